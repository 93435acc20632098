/* Elements of memory as values of a group's expression: known ones, those that
 * an earlier launch computes and that are computed again, or loads. */
#include "fuse.h"
#include "rows.h"

#include "../view.h"

#include <stdio.h>
#include <string.h>

#define DEPTH 12 /* launches that are computed again one inside the other */
#define AGAIN 64 /* nodes that such a computation may add */

static bool value_try(fuse *f, fl_status s) {
  if (s && !f->status)
    f->status = s;
  return s == FL_OK;
}

const fl_meta *fli_fuse_space(const fuse *f, const fli_entry *e) {
  fuse_role role = fli_fuse_part(f, e)->role;
  bool first = role == FUSE_BODY || role == FUSE_SUM;
  return &fli_fuse_arg(f, e->arg + (first ? 0u : (uint32_t)e->n_in))->meta;
}

fl_form fli_fuse_access(const fli_arg *a, const fl_form *of, int dims) {
  fl_form at = fli_form_constant(a->offset);
  for (int i = 0; i < a->meta.ndim; i++)
    if (a->meta.shape[i] != 1)
      fli_form_add(&at, &of[i + dims - a->meta.ndim], a->stride[i],
                   FL_TILE_DIMS);
  return at;
}

/* --- what a group knows --- */

static bool value_add(fuse_group *g, const fuse_value *x) {
  if (g->n_values == FUSE_VALUES)
    return false;
  g->values[g->n_values++] = *x;
  return true;
}

static bool value_find(const fuse_group *g, uint32_t def, int slot,
                       fl_dtype dtype, const fl_form *at, int mask,
                       fl_value *v) {
  for (int k = g->n_values; k-- > 0;) {
    const fuse_value *x = &g->values[k];
    if (x->def == def && x->slot == slot && x->dtype == dtype &&
        (x->mask < 0 || x->mask == mask) &&
        fli_form_equal(&x->at, at, g->nest.n)) {
      *v = x->value;
      return true;
    }
  }
  return false;
}

static fuse_leaf *leaf_new(fuse *f, fuse_group *g, fl_dtype dtype, int weak,
                           fl_value *v) {
  if (g->n_leaves == FL_TILE_LEAVES ||
      !value_try(f, fli_graph_input(&g->graph, dtype, weak, v)))
    return NULL;
  fuse_leaf *x = &g->leaves[g->n_leaves++];
  memset(x, 0, sizeof *x);
  x->number = FUSE_NONE;
  x->slot = x->source = x->mask = -1;
  x->dtype = dtype;
  x->node = (int)v->i;
  return x;
}

static bool value_number(fuse *f, fuse_group *g, uint32_t k, fl_value *v) {
  for (int i = 0; i < g->n_leaves; i++)
    if (g->leaves[i].number == k) {
      *v = fli_node_value(g->leaves[i].node);
      return true;
    }
  fuse_leaf *x = leaf_new(f, g, fli_fuse_arg(f, k)->meta.dtype, FLI_NUMBER, v);
  if (x)
    x->number = k;
  return x != NULL;
}

static bool value_apply(fuse *f, fuse_group *g, int op, fl_value a, fl_value b,
                        fl_value *v) {
  return value_try(
      f, fli_graph_apply(&g->graph, op, NULL, 2, (fl_value[]){a, b}, v));
}

/* --- masks: conditions on coordinates --- */

static bool value_coordinate(fuse *f, fuse_group *g, const fl_form *at,
                             fl_value *v) {
  for (int i = 0; i < g->n_leaves; i++)
    if (g->leaves[i].kind == FL_LEAF_COORD &&
        fli_form_equal(&g->leaves[i].at, at, g->nest.n)) {
      *v = fli_node_value(g->leaves[i].node);
      return true;
    }
  fuse_leaf *x = leaf_new(f, g, FL_I64, FLI_TENSOR, v);
  if (!x)
    return false;
  x->kind = FL_LEAF_COORD;
  x->at = *at;
  return true;
}

bool fli_fuse_coordinate(fuse *f, int i, const fl_form *at, fl_value *v) {
  return value_coordinate(f, f->groups[i], at, v);
}

enum { UNKNOWN = -1, OUTSIDE, INSIDE, PARTLY };

/* The dims of the nest may have become more. */
static void nest_widen(fli_nest *nest, const fli_nest *to) {
  memcpy(nest->low, to->low, (size_t)to->n * sizeof *to->low);
  memcpy(nest->high, to->high, (size_t)to->n * sizeof *to->high);
}

/* Where from <= at < to, the nest's only coordinate in `at` has a range. */
static void mask_nest(fli_nest *nest, const fl_form *at, int64_t from,
                      int64_t to) {
  int only = -1;
  for (int i = 0; i < nest->n; i++) {
    if (at->coef[i] == 0 || nest->size[i] == 1)
      continue;
    if (only >= 0 || at->coef[i] != 1)
      return;
    only = i;
  }
  if (only < 0)
    return;
  int64_t low = from - at->offset, high = to - 1 - at->offset;
  if (low > nest->low[only])
    nest->low[only] = low;
  if (high < nest->high[only])
    nest->high[only] = high;
}

/* from <= at < to: *mask becomes *mask and that, and the nest's ranges shrink.
 */
static int mask_range(fuse *f, fuse_group *g, const fl_form *at, int64_t from,
                      int64_t to, int *mask) {
  int64_t low, high;
  fl_value c, test;
  fli_form_range(at, &g->nest, &low, &high);
  if (high < from || low >= to)
    return OUTSIDE;
  if (low >= from && high < to)
    return INSIDE;
  if (!f->tiles || fli_fuse_along(&g->nest, at) ||
      !value_coordinate(f, g, at, &c))
    return UNKNOWN;
  for (int k = 0; k < 2; k++) {
    if (k ? high < to : low >= from)
      continue;
    if (!value_apply(f, g, k ? FLI_OP_lt : FLI_OP_ge, c,
                     fli_integer(k ? to : from), &test))
      return UNKNOWN;
    if (*mask >= 0 && !value_apply(f, g, FLI_OP_logical_and,
                                   fli_node_value(*mask), test, &test))
      return UNKNOWN;
    *mask = (int)test.i;
  }
  mask_nest(&g->nest, at, from, to);
  return PARTLY;
}

static bool value_where(fuse *f, fuse_group *g, int mask, fl_value a,
                        fl_value b, fl_value *v) {
  return value_try(f, fli_graph_apply(&g->graph, FLI_OP_where, NULL, 3,
                                      (fl_value[]){fli_node_value(mask), a, b},
                                      v));
}

/* --- computing again --- */

typedef struct value_state { /* of a group, to go back to */
  int nodes, inputs, leaves, values, positions;
} value_state;

static value_state value_mark(const fuse_group *g) {
  return (value_state){g->graph.n, g->graph.n_in, g->n_leaves, g->n_values,
                       g->n_positions};
}

static void value_back(fuse_group *g, value_state s) {
  g->graph.n = s.nodes;
  g->graph.n_in = s.inputs;
  g->n_leaves = s.leaves;
  g->n_values = s.values;
  fli_fuse_forget_positions(g, s.positions);
}

#define FAR 64 /* launches: memory that nothing reads any more may be free */
#define CACHED                                                                 \
  ((size_t)16 << 20) /* bytes that caches hold, read in any order */

/* How often an element of memory is read: elements of the nest for each that
 * the form goes through. */
static double form_repeats(const fli_nest *nest, const fl_form *at) {
  double repeats = 1;
  for (int i = 0; i < nest->n; i++)
    if (nest->position[i])
      repeats /= at->coef[i] ? (double)nest->size[i] : 1;
    else if (at->coef[i] == 0)
      repeats *= (double)nest->size[i];
  return repeats;
}

static bool form_scattered(const fli_nest *nest, const fl_form *at) {
  bool any = false;
  for (int i = 0; i < nest->n; i++)
    any |= nest->position[i] && at->coef[i];
  return any;
}

/* Bytes that loads added since then read for an element of the nest; operands
 * that are much smaller than it stay in caches, at positions if they fit.
 * Memory that lives on because of it counts twice. */
static size_t bytes_since(const fuse *f, const fuse_group *g, int leaves,
                          uint32_t time) {
  size_t bytes = 0;
  for (int k = leaves; k < g->n_leaves; k++) {
    const fuse_leaf *x = &g->leaves[k];
    if (x->kind != FL_LEAF_LOAD || x->number != FUSE_NONE)
      continue;
    const fli_slot *slot = &f->w->slots[x->slot];
    if (form_repeats(&g->nest, &x->at) >= 8 &&
        (!form_scattered(&g->nest, &x->at) || slot->s->bytes <= CACHED))
      continue;
    bool freed = slot->made && !f->p->held[x->slot] && slot->last + FAR < time;
    bytes += fl_dtype_size(x->dtype) << freed;
  }
  return bytes;
}

/* A piece that only this launch reads is computed nowhere else then. What is
 * read at positions is read and written once for several elements of the nest,
 * or the reverse, if it is not computed again. */
static bool worth_again(const fuse *f, const fuse_group *g, int slot,
                        fl_dtype dtype, const fl_form *at, int mask,
                        value_state s) {
  uint32_t now = f->parts[f->now].origin;
  double bytes = (double)bytes_since(f, g, s.leaves, now);
  double size = (double)fl_dtype_size(dtype), saved = size;
  bool scattered = form_scattered(&g->nest, at);
  if (!fli_fuse_stays(f, slot) && !f->opaque[slot] &&
      f->reads[slot] < FUSE_READERS) /* it is not even written */
    saved += scattered ? (size + bytes) / form_repeats(&g->nest, at) : size;
  bool moved = mask >= 0 && f->reads[slot] == 1 && !fli_fuse_stays(f, slot);
  return g->graph.n - s.nodes <= AGAIN && (moved || bytes <= saved);
}

/* The element `at` of the slot as launch `def` has written it, computed again
 * at its coordinates. */
static bool value_again(fuse *f, int i, uint32_t def, const fl_form *at,
                        int mask, int depth, uint32_t *close, fl_value *v) {
  fuse_group *g = f->groups[i];
  uint32_t entry = f->entry_of[def];
  const fli_entry *e = &f->entries[entry];
  const fli_arg *a = fli_fuse_arg(f, def);
  fl_form of[FL_MAX_DIMS];
  bool inside;
  if (depth == DEPTH || !fli_fuse_can(f, e) || e->n_out != 1 ||
      fli_fuse_part(f, e)->reduced || fli_fuse_part(f, e)->role == FUSE_SUM ||
      !fli_form_split(at, &g->nest, a->meta.ndim, a->meta.shape, a->stride,
                      a->offset, of, &inside))
    return false;
  int own = mask, partly = INSIDE, there = INSIDE;
  fli_nest nest = g->nest;
  fl_value y[FL_MAX_OUT], old;
  for (int d = 0; d < a->meta.ndim && !inside && there > OUTSIDE; d++) {
    there = mask_range(f, g, &of[d], 0, a->meta.shape[d], &own);
    partly = there == PARTLY ? PARTLY : partly;
  }
  bool built =
      there > OUTSIDE && fli_fuse_build(f, i, e, of, own, depth + 1, close, y);
  nest_widen(&g->nest, &nest);
  if (there == OUTSIDE)
    return fli_fuse_resolve(f, i, a->slot, a->meta.dtype, at, entry, mask,
                            depth + 1, close, v);
  if (!built || /* parts of rows compute in f32 */
      !value_try(f, fli_graph_cast(&g->graph, y[0], a->meta.dtype, v)))
    return false;
  return partly == INSIDE ||
         (fli_fuse_resolve(f, i, a->slot, a->meta.dtype, at, entry, mask,
                           depth + 1, close, &old) &&
          value_where(f, g, own, *v, old, v));
}

/* --- loads --- */

static bool value_load(fuse *f, int i, const fuse_value *x, uint32_t time,
                       uint32_t *close, fl_value *v) {
  fuse_group *g = f->groups[i];
  uint32_t last = f->last[x->slot];
  int writer = f->writer[x->slot];
  bool late = last != FUSE_NONE && f->entry_of[last] >= time;
  if (writer == i || (late && !fli_fuse_merge_loads(f, x->slot, time))) {
    f->values = FLI_APART_ORDER;
    return false; /* written over, or only when the group has run */
  }
  bool one = true;
  for (int d = 0; d < g->nest.n; d++)
    one &= x->at.coef[d] == 0;
  fuse_leaf *leaf =
      leaf_new(f, g, x->dtype, one ? FLI_TENSOR_0D : FLI_TENSOR, v);
  if (!leaf)
    return false;
  leaf->slot = x->slot;
  leaf->time = time;
  leaf->mask = x->mask;
  leaf->at = x->at;
  if (writer >= 0 && !late)
    *close |= 1u << writer;
  fuse_value known = *x;
  known.value = *v;
  return value_add(g, &known);
}

bool fli_fuse_resolve(fuse *f, int i, int slot, fl_dtype dtype,
                      const fl_form *at, uint32_t time, int mask, int depth,
                      uint32_t *close, fl_value *v) {
  fuse_group *g = f->groups[i];
  uint32_t def = fli_fuse_before(f, slot, time);
  if (value_find(g, def, slot, dtype, at, mask, v))
    return true;
  fuse_value x = {
      .def = def, .slot = slot, .mask = mask, .dtype = dtype, .at = *at};
  if (def != FUSE_NONE && fli_fuse_arg(f, def)->meta.dtype == dtype) {
    value_state before = value_mark(g);
    uint32_t also = *close;
    if (value_again(f, i, def, at, mask, depth, &also, v) &&
        worth_again(f, g, slot, dtype, at, mask, before)) {
      *close = also;
      g->inlined = true;
      x.value = *v;
      return value_add(g, &x);
    }
    if (f->status)
      return false;
    value_back(g, before);
  }
  return value_load(f, i, &x, time, close, v);
}

/* --- launches --- */

static bool build_moved(fuse *f, int i, const fli_entry *e, const fl_form *of,
                        int mask, int depth, uint32_t *close, fl_value *v) {
  fuse_group *g = f->groups[i];
  const fli_arg *out = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  const fl_meta *metas[FL_MAX_LIST];
  fli_moving m = {.attrs = fli_entry_attrs(f->w, e),
                  .n_in = e->n_in,
                  .in = metas,
                  .out = &out->meta};
  fli_piece p;
  bool any = false;
  if (e->n_in > FL_MAX_LIST)
    return false;
  for (int k = 0; k < e->n_in; k++)
    metas[k] = &fli_fuse_arg(f, e->arg + (uint32_t)k)->meta;
  fli_piece_fn *pieces = fli_row_facts_of(e->op)->pieces;
  uint32_t time = (uint32_t)(e - f->entries);
  for (int k = 0; pieces(&m, k, &p); k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)p.input);
    fl_form at = fli_form_constant(a->offset);
    fli_nest nest = g->nest;
    int own = mask, there = INSIDE;
    for (int d = 0; d < out->meta.ndim && there > OUTSIDE; d++) {
      int now = mask_range(f, g, &of[d], p.from[d], p.to[d], &own);
      there = now == INSIDE ? there : now;
      fli_form_add(&at, &of[d], a->stride[d], FL_TILE_DIMS);
      at.offset -= p.shift[d] * a->stride[d];
    }
    fl_value x;
    bool built =
        there > OUTSIDE &&
        fli_fuse_resolve(f, i, a->slot, a->meta.dtype, &at, time, own, depth,
                         close, &x) &&
        value_try(f, fli_graph_cast(&g->graph, x, out->meta.dtype, &x));
    nest_widen(&g->nest, &nest);
    if (there == OUTSIDE)
      continue;
    if (!built)
      return false;
    if (!any && there == PARTLY) {
      fl_value other = fli_number(m.value);
      if (!value_try(f, fli_graph_cast(&g->graph, other, out->meta.dtype, v)))
        return false;
    }
    if (there == INSIDE)
      *v = x;
    else if (!value_where(f, g, own, x, *v, v))
      return false;
    any = true;
  }
  return any;
}

bool fli_fuse_reduce(fuse *f, int i, fl_reduction kind, fl_value v,
                     fl_value *out) {
  fuse_group *g = f->groups[i];
  for (int k = g->reduce_from; k < g->n_leaves; k++)
    if (g->leaves[k].kind == FL_LEAF_REDUCE && g->leaves[k].reduction == kind &&
        g->leaves[k].source == (int)v.i) {
      *out = fli_node_value(g->leaves[k].node);
      return true;
    }
  fuse_leaf *x = leaf_new(f, g, fli_graph_dtype(&g->graph, v), FLI_TENSOR, out);
  if (!x)
    return false;
  x->kind = FL_LEAF_REDUCE;
  x->reduction = kind;
  x->source = (int)v.i;
  return true;
}

typedef struct reducing {
  fuse *f;
  int i;
} reducing;

static fl_status reduce_node(void *context, fl_reduction kind, fl_value v,
                             fl_value *out) {
  const reducing *r = context;
  if (v.dtype == FLI_NODE && fli_fuse_reduce(r->f, r->i, kind, v, out))
    return FL_OK;
  return r->f->status ? r->f->status
                      : fli_fail(FL_ESIZE, "too many values in one kernel");
}

static bool body_memory(fuse *f, int i, const fli_entry *e, int input,
                        const fl_form *of, int mask, int depth, uint32_t *close,
                        fl_value *v) {
  const fl_meta *space = fli_fuse_space(f, e);
  const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)input);
  fl_dtype wide = space->dtype == FL_F64 ? FL_F64 : FL_F32;
  if (a->slot < 0)
    return true;
  fl_form at = fli_fuse_access(a, of, space->ndim);
  return fli_fuse_resolve(f, i, a->slot, a->meta.dtype, &at,
                          (uint32_t)(e - f->entries), mask, depth, close, v) &&
         value_try(f, fli_graph_cast(&f->groups[i]->graph, *v, wide, v));
}

static const char *result_name(const fl_op *op, int k) {
  return op->info.out_name[k][0] ? op->info.out_name[k] : "result";
}

/* What the text may name: inputs, attributes, results of earlier parts. */
static bool body_names(fuse *f, int i, const fli_entry *e, const fl_form *of,
                       int mask, int depth, uint32_t *close,
                       fli_named_value *given, int *n) {
  const fuse_part *part = fli_fuse_part(f, e);
  const fl_attrs *attrs = fli_entry_attrs(f->w, e);
  const fl_op *op = e->op;
  given[(*n)++] = (fli_named_value){"count", fli_number((double)part->count)};
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *q = &op->info.params[k];
    fl_value v = fli_none();
    if (q->kind == FL_P_TENSOR &&
        !body_memory(f, i, e, q->slot, of, mask, depth, close, &v))
      return false;
    if (q->kind == FL_P_REAL)
      v = fli_number(attrs->v[q->slot].f);
    if (q->kind == FL_P_FLAG)
      v = (fl_value){.dtype = FL_BOOL, .i = attrs->v[q->slot].i != 0};
    given[(*n)++] = (fli_named_value){q->name, v};
  }
  for (int k = 0; k < part->n_more; k++) {
    fl_value v;
    if (!body_memory(f, i, e, e->n_in - part->n_more + k, of, mask, depth,
                     close, &v))
      return false;
    given[(*n)++] = (fli_named_value){result_name(op, part->more[k]), v};
  }
  return true;
}

/* A part of a row: its text. */
static bool build_body(fuse *f, int i, const fli_entry *e, const fl_form *of,
                       int mask, int depth, uint32_t *close, fl_value *y) {
  fuse_group *g = f->groups[i];
  const fuse_part *part = fli_fuse_part(f, e);
  const fl_op *op = e->op;
  fli_named_value given[FL_MAX_PARAMS + FL_MAX_OUT + 1];
  fl_dtype wide = fli_fuse_space(f, e)->dtype == FL_F64 ? FL_F64 : FL_F32;
  char name[FL_MAX_OUT][20];
  int n = 0;
  if (!body_names(f, i, e, of, mask, depth, close, given, &n))
    return false;
  for (int k = 0; k < e->n_out; k++)
    if (part->writes[k] >= 0)
      snprintf(name[k], sizeof name[k], "%s", result_name(op, part->writes[k]));
    else
      snprintf(name[k], sizeof name[k], "new_%.15s",
               fli_row_input(op, -1 - part->writes[k]));
  reducing r = {f, i};
  g->graph.reduce = reduce_node;
  g->graph.context = &r;
  fl_status s = fli_expr_body(&g->graph, op->info.name, part->text, wide, n,
                              given, e->n_out, (const char(*)[20])name, y);
  g->graph.reduce = NULL;
  return value_try(f, s);
}

/* The random bits of the element at these coordinates of the result, by numbers
 * that the launch has as seed and offset. */
static bool value_bits(fuse *f, fuse_group *g, const fli_entry *e,
                       const fl_form *of, fl_value *v) {
  const fl_meta *y = &fli_fuse_arg(f, e->arg + (uint32_t)e->n_in)->meta;
  static const char *const names[] = {"seed", "offset"};
  int64_t step[FL_MAX_DIMS];
  fl_form at = fli_form_constant(0);
  fl_value by[2];
  for (int j = 0; j < 2; j++) {
    int k = 0;
    while (k < e->n_in && strcmp(fli_row_input(e->op, k), names[j]) != 0)
      k++;
    uint32_t arg = e->arg + (uint32_t)k;
    if (k == e->n_in || fli_fuse_arg(f, arg)->slot != FLI_ARG_NUMBER ||
        !value_number(f, g, arg, &by[j]))
      return false;
  }
  fl_row_major(y->ndim, y->shape, step);
  for (int d = 0; d < y->ndim; d++)
    if (y->shape[d] != 1)
      fli_form_add(&at, &of[d], step[d], FL_TILE_DIMS);
  if (fli_fuse_along(&g->nest, &at))
    return false;
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].kind == FL_LEAF_BITS &&
        g->leaves[k].source == (int)by[0].i &&
        g->leaves[k].mask == (int)by[1].i &&
        fli_form_equal(&g->leaves[k].at, &at, g->nest.n)) {
      *v = fli_node_value(g->leaves[k].node);
      return true;
    }
  fuse_leaf *x = leaf_new(f, g, FL_F32, FLI_TENSOR, v);
  if (!x)
    return false;
  x->kind = FL_LEAF_BITS;
  x->source = (int)by[0].i;
  x->mask = (int)by[1].i;
  x->at = at;
  return true;
}

/* A row with FL_FORMULA. */
static bool build_formula(fuse *f, int i, const fli_entry *e, const fl_form *of,
                          int mask, int depth, uint32_t *close, fl_value *y) {
  fuse_group *g = f->groups[i];
  fl_dtype d = fli_fuse_space(f, e)->dtype;
  fli_named_value given[FL_MAX_PARAMS + FL_MAX_OUT + 2];
  int n = 0;
  if (!value_bits(f, g, e, of, &given[n].value))
    return false;
  given[n++].name = "bits";
  return body_names(f, i, e, of, mask, depth, close, given, &n) &&
         value_try(f, fli_expr_body(&g->graph, e->op->info.name,
                                    fli_row_facts_of(e->op)->formula,
                                    d == FL_F64 ? FL_F64 : FL_F32, n, given, 1,
                                    &(const char[20]){"result"}, y)) &&
         value_try(f, fli_graph_cast(&g->graph, *y, d, y));
}

/* A constant that is a node, as results are. */
static bool build_filled(fuse *f, int i, const fli_entry *e, int which,
                         fl_value *y) {
  fuse_group *g = f->groups[i];
  const fl_meta *out = &fli_fuse_arg(f, e->arg + (uint32_t)e->n_in)->meta;
  double value = fli_entry_attrs(f->w, e)->v[which].f;
  fl_form none = fli_form_constant(0);
  return value_coordinate(f, g, &none, y) &&
         value_try(f, fli_graph_cast(&g->graph, *y, out->dtype, y)) &&
         (value == 0 ||
          value_apply(f, g, FLI_OP_add, *y, fli_number(value), y)) &&
         value_try(f, fli_graph_cast(&g->graph, *y, out->dtype, y));
}

static bool build_launch(fuse *f, int i, const fli_entry *e, const fl_form *of,
                         int mask, int depth, uint32_t *close, fl_value *y) {
  fuse_group *g = f->groups[i];
  const fli_row_facts *row = fli_row_facts_of(e->op);
  const fli_arg *out = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  uint32_t time = (uint32_t)(e - f->entries);
  fl_value in[3];
  if (g->graph.n > FUSE_NODES)
    return false;
  fuse_role role = fli_fuse_part(f, e)->role;
  if (role == FUSE_BODY)
    return build_body(f, i, e, of, mask, depth, close, y);
  if (role == FUSE_BEGIN)
    return fli_fuse_build_begin(f, i, e, of, mask, depth, close, y);
  if (row->formula)
    return build_formula(f, i, e, of, mask, depth, close, y);
  if (row->fills)
    return build_filled(f, i, e, row->fills - 1, y);
  if (fli_fuse_gathers(f, e))
    return fli_fuse_build_gather(f, i, e, of, mask, depth, close, y);
  if (row->pieces)
    return build_moved(f, i, e, of, mask, depth, close, y);
  int moved = fli_row_copies(e->op, e->n_in);
  for (int k = moved > 0 ? moved : 0; k < e->n_in; k++) {
    uint32_t at = e->arg + (uint32_t)k;
    const fli_arg *a = fli_fuse_arg(f, at);
    if (a->slot < 0) {
      if (!value_number(f, g, at, &in[k]))
        return false;
      continue;
    }
    fl_form access = fli_fuse_access(a, of, out->meta.ndim);
    if (!fli_fuse_resolve(f, i, a->slot, a->meta.dtype, &access, time, mask,
                          depth, close, &in[k]))
      return false;
  }
  if (moved >= 0)
    return value_try(f,
                     fli_graph_cast(&g->graph, in[moved], out->meta.dtype, y));
  if (!value_try(f, fli_graph_apply(&g->graph, e->op->id,
                                    fli_entry_attrs(f->w, e), e->n_in, in, y)))
    return false;
  bool test = e->op->family == FLI_TEST || e->op->family == FLI_COMPARE;
  fl_dtype d = fli_graph_dtype(&g->graph, *y);
  if (y->dtype != FLI_NODE || d != (test ? FL_BOOL : e->common))
    return false;
  return value_try(f, fli_graph_cast(&g->graph, *y, out->meta.dtype, y));
}

bool fli_fuse_build(fuse *f, int i, const fli_entry *e, const fl_form *of,
                    int mask, int depth, uint32_t *close, fl_value *y) {
  fli_graph *g = &f->groups[i]->graph;
  uint32_t outer = g->origin;
  g->origin = (uint32_t)(e - f->entries);
  bool built = build_launch(f, i, e, of, mask, depth, close, y);
  g->origin = outer;
  return built;
}
