/* From groups to a plan's steps: which results of groups something reads, and
 * what kernel computes them. */
#include "fuse.h"
#include "rows.h"

#include "../ops/number.h"

#include <string.h>

/* --- which results are needed --- */

/* What launches before `time` wrote to the slot is read from memory. */
static void emit_needs(fuse *f, int slot, uint32_t time) {
  for (uint32_t k = fli_fuse_before(f, slot, time);
       k != FUSE_NONE && !f->needed[k]; k = f->before[k])
    f->needed[k] = 1;
}

/* Whether memory has to get what the group writes to the slot. */
static bool emit_stores(const fuse *f, const fuse_group *g, int slot) {
  if (fli_fuse_stays(f, slot))
    return true;
  for (uint32_t k = f->last[slot]; k != FUSE_NONE; k = f->before[k])
    for (int i = 0; i < g->n && f->needed[k]; i++)
      if (f->entry_of[k] == g->entry[i])
        return true;
  return false;
}

/* Marks the positions that a form goes along. */
static void emit_along(const fuse_group *g, const fl_form *at, uint8_t *used) {
  for (int d = 0; d < g->nest.n; d++)
    if (g->nest.position[d] && at->coef[d])
      used[g->positions[g->nest.position[d] - 1].is.value] = 1;
}

void fli_fuse_used(const fuse_group *g, uint8_t *used, bool positions) {
  int leaf = g->n_leaves - 1;
  for (int i = g->graph.n; i-- > 0;) {
    const fli_expr_node *x = &g->graph.nodes[i];
    for (int k = 0; k < x->n_in && used[i]; k++)
      if (x->in[k].dtype == FLI_NODE)
        used[x->in[k].i] = 1;
    if (x->op != FLI_INPUT)
      continue;
    const fuse_leaf *of = &g->leaves[leaf--];
    if (used[i] && of->source >= 0)
      used[of->source] = 1;
    if (used[i] && of->mask >= 0)
      used[of->mask] = 1;
    if (used[i] && of->kind == FL_LEAF_LOAD && positions)
      emit_along(g, &of->at, used);
  }
}

/* What a store is made of. */
static void emit_stored(const fuse_group *g, const fuse_value *w,
                        uint8_t *used) {
  used[w->value.i] = 1;
  emit_along(g, &w->at, used);
}

/* Whether the group is one launch of the window as it was called. */
static bool emit_whole(const fuse *f, const fuse_group *g) {
  const fuse_part *part = &f->parts[g->entry[0]];
  for (int k = 1; k < g->n; k++)
    if (f->parts[g->entry[k]].origin != part->origin)
      return false;
  return !g->inlined && g->n == part->parts;
}

/* All that launch i of the window reads. */
static void emit_reads(fuse *f, uint32_t origin, uint32_t time) {
  const fli_entry *e = &f->w->entries[origin];
  for (int k = 0; k < e->n_in; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0)
      emit_needs(f, slot, time);
  }
}

/* From the last step to the first: drops groups whose results nothing reads,
 * and stores of others. */
static void emit_prune(fuse *f) {
  for (uint32_t s = f->n_steps; s-- > 0;) {
    fuse_group *g = f->steps[s].group;
    uint8_t used[FL_PROGRAM_VALUES] = {0};
    if (!g) {
      emit_reads(f, f->parts[f->steps[s].entry].origin, f->steps[s].entry);
      continue;
    }
    int n = 0;
    for (int k = 0; k < g->n_written; k++)
      if (emit_stores(f, g, g->written[k].slot)) {
        emit_stored(g, &g->written[k], used);
        if (g->written[k].sum)
          emit_needs(f, g->written[k].slot, f->entry_of[g->written[k].def]);
        g->written[n++] = g->written[k];
      }
    g->n_written = n;
    if (n && emit_whole(f, g))
      emit_reads(f, f->parts[g->entry[0]].origin, g->entry[0]);
    fli_fuse_used(g, used, true);
    for (int k = 0; k < g->n_leaves; k++)
      if (used[g->leaves[k].node] && g->leaves[k].slot >= 0)
        emit_needs(f, g->leaves[k].slot, g->leaves[k].time);
  }
}

/* --- kernels --- */

typedef struct emitting {
  fuse *f;
  const fuse_group *g;
  int n_dims, n_inner, order[FL_TILE_DIMS]; /* of the nest's dims */
  int64_t size[FL_TILE_DIMS];
  int n_in, n_out; /* operands */
  fli_fused_operand operands[FL_TILE_OPERANDS];
  int n_leaves;
  fl_leaf leaves[FL_TILE_LEAVES];
  int n_values;
  fl_value out[FL_TILE_OUT];
  fl_dtype out_dtype[FL_TILE_OUT];
  int n_positions, along[FL_TILE_POSITIONS]; /* dims of the nest */
  fl_position positions[FL_TILE_POSITIONS];
  int at[FL_PROGRAM_VALUES]; /* of the group's nodes in the kernel's graph */
  fli_graph graph;
} emitting;

/* Whether elements lie closer together along dim a of the nest than along dim
 * b: most accesses decide, results count double. */
static bool emit_closer(const fuse_group *g, const uint8_t *used, int a,
                        int b) {
  int votes = 0;
  for (int k = 0; k < g->n_written + g->n_leaves; k++) {
    const fl_form *at =
        k < g->n_written ? &g->written[k].at : &g->leaves[k - g->n_written].at;
    int64_t x = at->coef[a], y = at->coef[b];
    if (k >= g->n_written && (g->leaves[k - g->n_written].slot < 0 ||
                              !used[g->leaves[k - g->n_written].node]))
      continue;
    if (x > 0 && y > 0 && x != y)
      votes += (x < y ? -1 : 1) * (k < g->n_written ? 2 : 1);
  }
  return votes < 0;
}

/* Whether every access goes through dims k - 1 and k as through one. */
static bool emit_merges(const emitting *m, const uint8_t *used, int k) {
  const fuse_group *g = m->g;
  int a = m->order[k - 1], b = m->order[k];
  for (int i = 0; i < g->n_written; i++)
    if (g->written[i].at.coef[a] != g->written[i].at.coef[b] * m->size[k])
      return false;
  for (int i = 0; i < g->n_leaves; i++) {
    const fuse_leaf *x = &g->leaves[i];
    if (used[x->node] && x->kind != FL_LEAF_REDUCE &&
        x->at.coef[a] != x->at.coef[b] * m->size[k])
      return false;
  }
  return true;
}

/* Dims k - 1 and k become one. */
static void emit_merge(emitting *m, int k) {
  m->n_inner -= k >= m->n_dims - m->n_inner;
  m->order[k - 1] = m->order[k];
  m->size[k - 1] *= m->size[k];
  for (int i = k; i + 1 < m->n_dims; i++) {
    m->order[i] = m->order[i + 1];
    m->size[i] = m->size[i + 1];
  }
  m->n_dims--;
}

/* Outer dims, then inner ones, each in the order of memory, so that what lies
 * side by side is last; dims of one element are left out. */
static void emit_dims(emitting *m, const uint8_t *used) {
  const fuse_group *g = m->g;
  for (int turn = 0; turn < 2; turn++) {
    int first = m->n_dims;
    for (int i = 0; i < g->nest.n; i++) {
      if (g->nest.size[i] == 1 || g->nest.position[i] ||
          (int)(g->inner >> i & 1) != turn)
        continue;
      int at = m->n_dims++;
      for (; at > first && emit_closer(g, used, m->order[at - 1], i); at--)
        m->order[at] = m->order[at - 1];
      m->order[at] = i;
      m->n_inner += turn;
    }
  }
  for (int k = 0; k < m->n_dims; k++)
    m->size[k] = g->nest.size[m->order[k]];
  for (int k = m->n_dims - 1; k > 0; k--)
    if (k != m->n_dims - m->n_inner && emit_merges(m, used, k))
      emit_merge(m, k);
}

static fl_form emit_form(const emitting *m, const fl_form *at) {
  fl_form y = fli_form_constant(at->offset);
  for (int i = 0; i < m->n_dims; i++)
    y.coef[i] = at->coef[m->order[i]];
  for (int k = 0; k < m->n_positions; k++)
    y.coef[m->n_dims + k] = at->coef[m->along[k]];
  return y;
}

static int emit_operand(emitting *m, const fli_fused_operand *o, bool in) {
  int first = in ? 0 : m->n_in, n = in ? m->n_in : m->n_out;
  for (int k = 0; k < n; k++) {
    const fli_fused_operand *x = &m->operands[first + k];
    if (x->slot == o->slot && x->meta.dtype == o->meta.dtype &&
        (o->slot >= 0 || x->number == o->number))
      return k;
  }
  if (m->n_in + m->n_out == FL_TILE_OPERANDS)
    return -1;
  m->operands[first + n] = *o;
  return in ? m->n_in++ : m->n_out++;
}

/* The number of the value among those that leaves and stores refer to. */
static int emit_value(emitting *m, int node, fl_dtype d) {
  fl_value v = fli_node_value(m->at[node]);
  for (int k = 0; k < m->n_values; k++)
    if (m->out[k].i == v.i && m->out_dtype[k] == d)
      return k;
  if (m->n_values == FL_TILE_OUT)
    return -1;
  m->out[m->n_values] = v;
  m->out_dtype[m->n_values] = d;
  return m->n_values++;
}

static fl_status emit_leaf(emitting *m, const fuse_leaf *x) {
  fl_leaf *to = &m->leaves[m->n_leaves++];
  memset(to, 0, sizeof *to);
  to->kind = (uint8_t)x->kind;
  to->operand = to->source = to->mask = -1;
  to->at = emit_form(m, &x->at);
  if (x->kind == FL_LEAF_REDUCE) {
    to->reduction = (uint8_t)x->reduction;
    to->source = (int16_t)emit_value(m, x->source, x->dtype);
    return to->source < 0 ? FL_ESIZE : FL_OK;
  }
  if (x->kind == FL_LEAF_COORD)
    return FL_OK;
  if (x->kind == FL_LEAF_BITS) {
    to->source = (int16_t)emit_value(m, x->source, FL_I64);
    to->mask = (int16_t)emit_value(m, x->mask, FL_I64);
    return to->source < 0 || to->mask < 0 ? FL_ESIZE : FL_OK;
  }
  if (x->mask >= 0 && (to->mask = (int16_t)emit_value(m, x->mask, FL_BOOL)) < 0)
    return FL_ESIZE;
  fli_fused_operand o = {.slot = x->number == FUSE_NONE ? x->slot : -1,
                         .number = x->number};
  o.meta.dtype = x->dtype;
  return (to->operand = (int16_t)emit_operand(m, &o, true)) < 0 ? FL_ESIZE
                                                                : FL_OK;
}

/* The positions that leaves or stores go along. */
static void emit_positions(emitting *m, const uint8_t *used) {
  const fuse_group *g = m->g;
  for (int d = 0; d < g->nest.n; d++) {
    bool any = false;
    for (int k = 0; k < g->n_leaves; k++)
      any = any || (used[g->leaves[k].node] && g->leaves[k].at.coef[d]);
    for (int k = 0; k < g->n_written; k++)
      any = any || g->written[k].at.coef[d];
    if (any && g->nest.position[d])
      m->along[m->n_positions++] = d;
  }
}

static fl_status emit_position_values(emitting *m) {
  const fuse *f = m->f;
  for (int k = 0; k < m->n_positions; k++) {
    const fuse_position *x =
        &m->g->positions[m->g->nest.position[m->along[k]] - 1];
    fl_position *to = &m->positions[k];
    memset(to, 0, sizeof *to); /* tiles are compared as memory */
    to->bound = x->is.bound;
    to->skip = x->is.skip;
    to->op = x->is.op;
    to->base = x->is.base;
    to->from_end = x->is.from_end;
    to->entry = fli_fuse_origin(f, f->parts[x->entry].origin);
    to->value = (int16_t)emit_value(m, x->is.value, FL_I64);
    if (to->value < 0)
      return FL_ESIZE;
  }
  return FL_OK;
}

/* Copies the nodes that are used, and the leaves among them. */
static fl_status emit_graph(emitting *m, fli_step *step) {
  const fuse_group *g = m->g;
  uint8_t used[FL_PROGRAM_VALUES] = {0};
  for (int k = 0; k < g->n_written; k++)
    emit_stored(g, &g->written[k], used);
  fli_fuse_used(g, used, true);
  emit_dims(m, used);
  emit_positions(m, used);
  FLI_TRY(fli_explain_members(m->f, g, used, step));
  m->graph.nodes =
      fli_malloc(m->f->rt, (size_t)g->graph.n * sizeof *g->graph.nodes);
  if (!m->graph.nodes)
    return FL_ENOMEM;
  m->graph.room = g->graph.n;
  for (int i = 0, leaf = 0; i < g->graph.n; i++) {
    const fli_expr_node *x = &g->graph.nodes[i];
    const fuse_leaf *of = x->op == FLI_INPUT ? &g->leaves[leaf++] : NULL;
    if (!used[i])
      continue;
    m->at[i] = m->graph.n;
    fli_expr_node *y = &m->graph.nodes[m->graph.n++];
    *y = *x;
    for (int k = 0; k < x->n_in; k++)
      if (x->in[k].dtype == FLI_NODE)
        y->in[k].i = m->at[x->in[k].i];
    if (!of)
      continue;
    m->graph.n_in++;
    FLI_TRY(emit_leaf(m, of));
  }
  return FL_OK;
}

fl_status fli_fuse_operands(fuse *f, uint32_t n) {
  fli_plan *p = f->p;
  if (n <= f->operands_room)
    return FL_OK;
  fli_fused_operand *to = fli_malloc(f->rt, 2 * n * sizeof *to);
  if (!to)
    return FL_ENOMEM;
  if (p->n_operands)
    memcpy(to, p->operands, p->n_operands * sizeof *to);
  fli_mfree(p->operands);
  p->operands = to;
  f->operands_room = 2 * n;
  return FL_OK;
}

static fl_status emit_step_operands(emitting *m, fli_step *x) {
  fli_plan *p = m->f->p;
  uint32_t n = (uint32_t)(m->n_in + m->n_out);
  FLI_TRY(fli_fuse_operands(m->f, p->n_operands + n));
  x->n_in = m->n_in;
  x->n_out = m->n_out;
  x->operands = p->n_operands;
  memcpy(p->operands + p->n_operands, m->operands, n * sizeof *m->operands);
  p->n_operands += n;
  return FL_OK;
}

/* Whether the backend can run the tile: FL_ESIZE if it keeps too much. */
static fl_status probe_tile(fl_device d, const fli_step *x,
                            const fli_fused_operand *operands, int n_in,
                            int n_out) {
  fl_view v[FL_TILE_OPERANDS];
  for (int k = 0; k < n_in + n_out; k++) {
    const fli_fused_operand *o = &operands[k];
    fl_operand number = {.dtype = o->meta.dtype};
    if (o->slot < 0)
      fli_view_number(&number, FL_NODTYPE, &v[k]);
    v[k].dtype = o->meta.dtype;
    v[k].ndim = 0;
    if (o->slot >= 0)
      v[k].data = (void *)((uintptr_t)(o->slot + 1) << 12);
  }
  fl_launch l = {.op = x->op->info.name,
                 .n_in = n_in,
                 .n_out = n_out,
                 .in = v,
                 .out = v + n_in,
                 .attrs = &x->op->defaults,
                 .tile = x->tile,
                 .device = d & 255,
                 .probe = true};
  return x->op->kernel[d >> 8](&l);
}

static fl_dtype stored_dtype(const fuse_group *g, const fuse_value *w) {
  return w->column ? fli_graph_dtype(&g->graph, w->value) : w->dtype;
}

static fl_storing emit_storing(const emitting *m, const fuse_value *w) {
  if (w->column) /* rows of one element have no inner dims */
    return m->n_inner ? w->column : FL_STORE_SUM;
  return w->sum ? FL_STORE_ADD : FL_STORE_SET;
}

static fl_status emit_tile(emitting *m, fli_step *x) {
  const fuse_group *g = m->g;
  fl_store stores[FL_TILE_STORES];
  fl_dtype dtypes[FL_TILE_OPERANDS];
  fli_tile_request q = {.graph = &m->graph,
                        .n_dims = m->n_dims,
                        .n_inner = m->n_inner,
                        .separate = true,
                        .exact = m->f->c->exact};
  memset(stores, 0, sizeof stores);
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *w = &g->written[k];
    fli_fused_operand o = {.slot = w->slot, .number = FUSE_NONE};
    int value = emit_value(m, (int)w->value.i, stored_dtype(g, w));
    o.meta.dtype = w->dtype;
    int operand = emit_operand(m, &o, false);
    if (value < 0 || operand < 0)
      return FL_ESIZE;
    stores[k].operand = (int16_t)operand;
    stores[k].value = (int16_t)value;
    stores[k].add = (int32_t)emit_storing(m, w);
    stores[k].round = w->column ? (int32_t)w->round : 0;
    m->f->p->adds = m->f->p->adds || w->sum;
    stores[k].at = emit_form(m, &w->at);
  }
  FLI_TRY(emit_position_values(m));
  q.n_positions = m->n_positions;
  q.positions = m->positions;
  for (int i = 0; i < m->n_dims; i++)
    q.shape[i] = m->size[i];
  for (int k = 0; k < m->n_in + m->n_out; k++)
    dtypes[k] = m->operands[k].meta.dtype;
  q.n_out = m->n_values;
  q.out = m->out;
  q.out_dtype = m->out_dtype;
  q.n_stores = g->n_written;
  q.stores = stores;
  q.leaves = m->leaves;
  q.n_in = m->n_in;
  q.n_operands = m->n_in + m->n_out;
  q.operand_dtype = dtypes;
  FLI_TRY(fli_tile_intern(m->f->rt, &q, &x->tile));
  FLI_TRY(fli_tile_op(m->f->rt, &x->op));
  FLI_TRY(probe_tile(m->f->w->device, x, m->operands, m->n_in, m->n_out));
  return emit_step_operands(m, x);
}

/* An operand of an expression has a shape and strides of its own. */
static void emit_strided(emitting *m, const fl_form *at, fli_fused_operand *o) {
  fl_form y = emit_form(m, at);
  o->offset = y.offset;
  o->meta.ndim = m->n_dims;
  for (int i = 0; i < m->n_dims; i++) {
    o->meta.shape[i] = y.coef[i] ? m->size[i] : 1;
    o->stride[i] = y.coef[i];
  }
}

#define REPEATS_LEAST 64

/* Whether many elements have loads of several in common, as factors of channels
 * are: a tile loads them once. */
static bool emit_repeats(const emitting *m, const fl_form *at) {
  int64_t same = 1;
  bool varies = false;
  for (int i = 0; i < m->n_dims; i++) {
    varies = varies || at->coef[i];
    same *= at->coef[i] ? 1 : m->size[i];
  }
  return varies && same >= REPEATS_LEAST;
}

/* Without reductions, coordinates and masks a kernel can be an expression,
 * which is one for all shapes. On the CPU tiles cost less for each launch. */
static bool emit_may_be_expression(const emitting *m) {
  const fuse_group *g = m->g;
  for (int k = 0; k < m->n_leaves; k++)
    if (m->leaves[k].kind != FL_LEAF_LOAD || m->leaves[k].mask >= 0)
      return false;
  for (int k = 0; k < g->n_written; k++)
    if (g->written[k].column)
      return false;
  return m->f->w->device != 0 && !g->inner && !m->n_positions &&
         m->n_dims <= FL_MAX_DIMS && m->n_leaves <= FL_PROGRAM_IN &&
         g->n_written <= FL_MAX_OUT;
}

/* False: it must be a tile. */
static bool emit_is_expression(const emitting *m) {
  int repeats = 0;
  for (int k = 0; k < m->n_leaves; k++)
    repeats += emit_repeats(m, &m->leaves[k].at);
  return (repeats <= 1 || !m->f->tiles) && emit_may_be_expression(m);
}

/* The input of the expression that is the first result of the launch, if all of
 * that is read, once, in the order of its memory; -1. */
static int emit_result(const emitting *m, const fli_entry *e) {
  const fli_arg *y = fli_fuse_arg(m->f, e->arg + (uint32_t)e->n_in);
  int found = -1;
  int64_t count = 1;
  for (int k = 0; k < m->n_leaves; k++) {
    const fli_fused_operand *o = &m->operands[m->leaves[k].operand];
    if (o->slot != y->slot)
      continue;
    if (found >= 0 || o->meta.dtype != y->meta.dtype ||
        m->leaves[k].at.offset != y->offset)
      return -1;
    found = k;
  }
  for (int i = m->n_dims; i-- > 0 && found >= 0; count *= m->size[i])
    if (m->leaves[found].at.coef[i] != count)
      return -1;
  return count == fl_numel(y->meta.ndim, y->meta.shape) ? found : -1;
}

static fl_status emit_expression(emitting *m, fli_step *x) {
  const fuse_group *g = m->g;
  fl_value out[FL_MAX_OUT];
  fl_dtype dtypes[FL_MAX_OUT];
  fli_fused_operand of[FL_PROGRAM_IN];
  for (int k = 0; k < m->n_leaves; k++) { /* each leaf is an operand */
    of[k] = m->operands[m->leaves[k].operand];
    if (of[k].slot < 0)
      continue;
    of[k].offset = m->leaves[k].at.offset;
    of[k].meta.ndim = m->n_dims;
    for (int i = 0; i < m->n_dims; i++) {
      int64_t c = m->leaves[k].at.coef[i];
      of[k].meta.shape[i] = c ? m->size[i] : 1;
      of[k].stride[i] = c;
    }
  }
  memcpy(m->operands, of, (size_t)m->n_leaves * sizeof *of);
  m->n_in = m->n_leaves;
  m->n_out = g->n_written;
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *w = &g->written[k];
    fli_fused_operand *o = &m->operands[m->n_in + k];
    memset(o, 0, sizeof *o);
    o->slot = w->slot;
    o->meta.dtype = dtypes[k] = w->dtype;
    emit_strided(m, &w->at, o);
    for (int i = 0; i < m->n_dims; i++)
      o->meta.shape[i] = m->size[i];
    out[k] = fli_node_value(m->at[w->value.i]);
  }
  fli_op_request q = {.name = "fused",
                      .graph = &m->graph,
                      .n_out = g->n_written,
                      .out = out,
                      .out_dtype = dtypes,
                      .separate = true};
  FLI_TRY(fli_expr_intern(m->f->rt, &q, &x->op));
  if (!x->op->kernel[m->f->w->device >> 8])
    return fli_fail(FL_EUNSUPPORTED, "the backend runs no expressions");
  return emit_step_operands(m, x);
}

/* The launch of the window that a launch of the planner's is part of. */
static uint32_t emit_origin(const fuse *f, uint32_t entry) {
  return entry == FUSE_NONE ? entry : f->parts[entry].origin;
}

/* The input of the tile that is the first result of the launch, if it has few
 * operands and no positions; -1. */
static int emit_summed(const emitting *m, const fli_entry *e) {
  const fli_arg *y = fli_fuse_arg(m->f, e->arg + (uint32_t)e->n_in);
  for (int k = 0; k < m->n_in; k++)
    if (m->operands[k].slot == y->slot)
      return m->n_in <= FL_PROGRAM_IN && m->g->n_written <= FL_MAX_OUT &&
                     !m->n_positions && y->offset == 0
                 ? k
                 : -1;
  return -1;
}

/* The kernel of a group: if it can be, with that of step `leader`, whose result
 * it reads; `whole`: else it is a launch of the window as it was called. */
static fl_status emit_kernel(emitting *m, int leader, bool whole, fli_step *x) {
  fuse *f = m->f;
  int result = -1;
  FLI_TRY(emit_graph(m, x));
  uint32_t origin =
      leader >= 0 ? f->parts[f->steps[leader].entry].origin : FUSE_NONE;
  bool tile =
      leader >= 0 && (m->g->inner || fli_row_tail(f->w->entries[origin].op));
  if (tile)
    result = whole && m->g->inner ? -1 : emit_summed(m, &f->w->entries[origin]);
  else if (leader >= 0 && emit_may_be_expression(m))
    result = emit_result(m, &f->w->entries[origin]);
  if (result >= 0) {
    FLI_TRY(tile ? emit_tile(m, x) : emit_expression(m, x));
    return fli_fuse_lead(f, origin, result, x);
  }
  if (!whole)
    return emit_is_expression(m) ? emit_expression(m, x) : emit_tile(m, x);
  f->p->n_members -= x->n_members;
  x->n_members = 0;
  return FL_OK;
}

static fl_status emit_group(fuse *f, uint32_t step) {
  const fuse_group *g = f->steps[step].group;
  fli_step x = {.entry = f->parts[g->entry[g->n - 1]].origin,
                .apart = g->apart,
                .from = emit_origin(f, g->from)};
  fl_status s = FL_OK;
  if (g->n_written == 0)
    return FL_OK;
  int leader = fli_fuse_leader(f, step);
  bool whole = emit_whole(f, g);
  if (leader >= 0 || !whole) {
    emitting *m = fli_malloc(f->rt, sizeof *m);
    if (!m)
      return FL_ENOMEM;
    memset(m, 0, sizeof *m);
    m->f = f;
    m->g = g;
    fli_graph_open(&m->graph, f->rt);
    s = emit_kernel(m, leader, whole, &x);
    fli_graph_close(&m->graph);
    fli_mfree(m);
  }
  f->p->steps[f->p->n_steps++] = x;
  return s;
}

fl_status fli_fuse_emit(fuse *f) {
  fli_plan *p = f->p;
  emit_prune(f);
  p->steps = fli_malloc(f->rt, (f->n_steps + 1) * sizeof *p->steps);
  if (!p->steps)
    return FL_ENOMEM;
  for (uint32_t i = 0; i < f->n_steps; i++)
    if (f->steps[i].group)
      FLI_TRY(emit_group(f, i));
    else
      p->steps[p->n_steps++] =
          (fli_step){.entry = f->parts[f->steps[i].entry].origin,
                     .apart = f->steps[i].apart,
                     .from = emit_origin(f, f->steps[i].from)};
  fli_fuse_lead_finish(f);
  FLI_TRY(fli_explain_owners(f));
  FLI_TRY(fli_fuse_batch(f));
  return fli_fuse_memory(f);
}
