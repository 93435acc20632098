/* What the steps of a plan are, for the profiler: the launches that they hold,
 * the bytes that they move, and why they are kernels of their own. */
#include "fuse.h"
#include "rows.h"

#include <stdio.h>
#include <string.h>

/* --- when a plan is made --- */

static bool member_add(fuse *f, fli_step *x, uint32_t member) {
  fli_plan *p = f->p;
  if (p->n_members == f->members_room) {
    uint32_t room = f->members_room ? 2 * f->members_room : 64;
    uint32_t *more = fli_malloc(f->rt, room * sizeof *more);
    if (!more)
      return false;
    if (p->n_members)
      memcpy(more, p->members, p->n_members * sizeof *more);
    fli_mfree(p->members);
    p->members = more;
    f->members_room = room;
  }
  p->members[p->n_members++] = member;
  x->n_members++;
  return true;
}

/* A launch of the group: 0 if it has no nodes of its own, 1 if some are used,
 * else -1. Loads are not what it computes. */
static int member_used(const fuse *f, const fuse_group *g, const uint8_t *used,
                       uint32_t entry) {
  int state = 0;
  for (int k = 0; k < g->n_written; k++)
    if (g->written[k].column && f->entry_of[g->written[k].def] == entry)
      return 1;
  for (int i = 0, leaf = 0; i < g->graph.n && state <= 0; i++) {
    const fli_expr_node *x = &g->graph.nodes[i];
    const fuse_leaf *of = x->op == FLI_INPUT ? &g->leaves[leaf++] : NULL;
    if (x->origin == entry && (!of || of->kind == FL_LEAF_REDUCE))
      state = used[i] ? 1 : -1;
  }
  return state;
}

static bool member_joined(const fuse_group *g, uint32_t entry) {
  for (int k = 0; k < g->n; k++)
    if (g->entry[k] == entry)
      return true;
  return false;
}

/* Parts as launches of the window, each once; the list is in order. */
static void members_origins(const fuse *f, fli_step *x) {
  uint32_t *list = f->p->members + x->members, n = 0;
  for (uint32_t k = 0; k < x->n_members; k++) {
    uint32_t origin = f->parts[list[k] & ~FLI_AGAIN].origin;
    uint32_t again = list[k] & FLI_AGAIN;
    if (n && (list[n - 1] & ~FLI_AGAIN) == origin)
      list[n - 1] &= origin | again;
    else
      list[n++] = origin | again;
  }
  f->p->n_members -= x->n_members - n;
  x->n_members = n;
}

fl_status fli_explain_members(fuse *f, const fuse_group *g, const uint8_t *used,
                              fli_step *x) {
  fli_plan *p = f->p;
  x->members = p->n_members;
  for (int i = 0, leaf = 0; i < g->graph.n; i++) {
    const fli_expr_node *node = &g->graph.nodes[i];
    const fuse_leaf *of = node->op == FLI_INPUT ? &g->leaves[leaf++] : NULL;
    uint32_t again = node->origin | FLI_AGAIN;
    if (!used[i] || (of && of->kind != FL_LEAF_REDUCE) ||
        member_joined(g, node->origin))
      continue;
    bool there = false;
    for (uint32_t k = x->members; k < p->n_members && !there; k++)
      there = p->members[k] == again;
    if (!there && !member_add(f, x, again))
      return FL_ENOMEM;
  }
  for (int k = 0; k < g->n; k++)
    if (member_used(f, g, used, g->entry[k]) >= 0 &&
        !member_add(f, x, g->entry[k]))
      return FL_ENOMEM;
  for (uint32_t k = x->members + 1; k < p->n_members; k++) /* by calls */
    for (uint32_t i = k; i > x->members; i--) {
      uint32_t *m = &p->members[i - 1];
      if ((m[0] & ~FLI_AGAIN) <= (m[1] & ~FLI_AGAIN))
        break;
      uint32_t later = m[0];
      m[0] = m[1];
      m[1] = later;
    }
  members_origins(f, x);
  return FL_OK;
}

fl_status fli_explain_leader(fuse *f, uint32_t origin, fli_step *x) {
  if (!member_add(f, x, origin))
    return FL_ENOMEM;
  uint32_t *list = f->p->members + x->members;
  for (uint32_t k = x->n_members; --k > 0;)
    list[k] = list[k - 1];
  list[0] = origin;
  return FL_OK;
}

/* A launch whose own kernel is not there is no repetition in the first kernel
 * that computes it. */
fl_status fli_explain_owners(fuse *f) {
  fli_plan *p = f->p;
  bool *owned = fli_malloc(f->rt, f->w->n + 1);
  if (!owned)
    return FL_ENOMEM;
  memset(owned, 0, f->w->n);
  for (uint32_t i = 0; i < p->n_steps; i++)
    owned[p->steps[i].entry] |= p->steps[i].n_members == 0;
  for (uint32_t k = 0; k < p->n_members; k++)
    if (!(p->members[k] & FLI_AGAIN))
      owned[p->members[k]] = true;
  for (uint32_t k = 0; k < p->n_members; k++) {
    uint32_t entry = p->members[k] & ~FLI_AGAIN;
    if (!owned[entry])
      p->members[k] = entry;
    owned[entry] = true;
  }
  fli_mfree(owned);
  return FL_OK;
}

/* --- when it runs --- */

static const char *apart_text(fli_apart why) {
  static const char *const texts[] = {
      [FLI_APART_NOT] = "",
      [FLI_APART_OPERATOR] = "the operator has a kernel of its own",
      [FLI_APART_DTYPE] = "fused kernels do not compute in the dtype",
      [FLI_APART_EMPTY] = "a tensor has no elements",
      [FLI_APART_NOTHING] = "no kernel of the call computes what it reads",
      [FLI_APART_AFTER] = "it reads the result of kernel %d, which takes no "
                          "other operators",
      [FLI_APART_CLOSED] = "it reads the result of kernel %d, which others "
                           "between them need",
      [FLI_APART_LOOPS] = "its loops are not those of kernel %d",
      [FLI_APART_ROWS] = "the rows that kernel %d reduces are too long to be "
                         "read again in it",
      [FLI_APART_MEMORY] = "it writes memory that kernel %d uses for other "
                           "elements",
      [FLI_APART_ORDER] = "another kernel has to run between kernel %d and it",
      [FLI_APART_LIMIT] = "kernel %d is full"};
  return texts[why];
}

static bool step_has(const fli_plan *p, const fli_step *x, uint32_t entry) {
  for (uint32_t k = 0; k < x->n_members; k++)
    if (p->members[x->members + k] == entry)
      return true;
  return x->n_members == 0 && x->entry == entry;
}

/* Elements of a form in a nest, each once. */
static double form_elements(const fl_form *at, int dims, const int64_t *shape) {
  double n = 1;
  for (int i = 0; i < dims; i++)
    n *= at->coef[i] ? (double)shape[i] : 1;
  return n;
}

/* Elements that the kernel reads or writes of operand k, which a leader's have
 * shapes of. */
static double operand_elements(const fli_step *x, const fli_fused_operand *o,
                               int k) {
  const fl_tile *t = x->tile;
  double n = 0;
  bool own = t && (k < x->n_in ? k >= t->n_in : k >= x->n_in + t->n_out);
  if (!t || own)
    return (double)fl_numel(o->meta.ndim, o->meta.shape);
  for (int i = 0; i < t->body->n_in && k < x->n_in; i++)
    if (t->leaves[i].kind == FL_LEAF_LOAD && t->leaves[i].operand == k)
      n += form_elements(&t->leaves[i].at, t->n_dims, t->shape);
  for (int i = 0; i < t->n_stores && k >= x->n_in; i++)
    if (t->stores[i].operand == k - x->n_in)
      n += form_elements(&t->stores[i].at, t->n_dims, t->shape);
  return n;
}

/* Whether memory is older than the window, or something else holds it: a
 * variable, garbage that is not collected yet, the tape. */
static bool slot_kept(const fli_plan *p, int slot) {
  return !p->made[slot] || p->held[slot];
}

/* Bytes of operands [from, to): what overlaps lies in one storage, which is not
 * read more than once. */
static double operand_bytes(const fli_window *w, const fli_plan *p,
                            const fli_step *x, int from, int to, bool kept) {
  const fli_fused_operand *o = p->operands + x->operands;
  double sum = 0;
  for (int k = from; k < to; k++) {
    double bytes = 0;
    bool first = o[k].slot >= 0 && (!kept || slot_kept(p, o[k].slot));
    for (int i = from; i < k && first; i++)
      first = o[i].slot != o[k].slot;
    for (int i = k; i < to && first; i++)
      if (o[i].slot == o[k].slot)
        bytes += operand_elements(x, &o[i], i) *
                 (double)fl_dtype_size(o[i].meta.dtype);
    double most = first ? (double)w->slots[o[k].slot].s->bytes : 0;
    sum += bytes < most ? bytes : most;
  }
  return sum;
}

static int kind_rank(const char *kind) {
  static const char *const kinds[] = {"copy", "pointwise", "reduction"};
  for (int k = 0; k < 3; k++)
    if (strcmp(kind, kinds[k]) == 0)
      return k;
  return 3;
}

/* The planner knows of more rows that they reduce or move than the profiler. */
static const char *kind_better(const char *kind, const fli_row_facts *row) {
  if (kind_rank(kind) < 3 || strcmp(kind, "operator") == 0)
    kind = row->body ? "reduction" : row->pieces ? "copy" : kind;
  return kind;
}

static void fused_shapes(fl_profile_step *s, const fli_plan *p,
                         const fli_step *x) {
  const fl_tile *t = x->tile;
  const fli_fused_operand *out = p->operands + x->operands + x->n_in;
  int dims = t ? t->n_dims : out->meta.ndim;
  int64_t row = 1;
  for (int i = 0; t && i < t->n_inner; i++)
    row *= t->shape[t->n_dims - 1 - i];
  int n = snprintf(s->shapes, sizeof s->shapes, "%s",
                   fli_shape_text(dims, t ? t->shape : out->meta.shape));
  if (t && t->n_inner && (size_t)n < sizeof s->shapes)
    snprintf(s->shapes + n, sizeof s->shapes - (size_t)n, ", rows of %lld",
             (long long)row);
}

static void fused_fill(const fli_window *w, const fli_plan *p,
                       const fli_step *x, fl_profile_step *s) {
  s->flops = 0;
  s->kind = "copy";
  for (uint32_t k = 0; k < x->n_members; k++) {
    uint32_t member = p->members[x->members + k], i = member & ~FLI_AGAIN;
    double flops, bytes, written;
    s->launches[k] = fli_window_launched(w, i);
    s->launches[k].again = member & FLI_AGAIN;
    const char *kind = kind_better(fli_window_kind(w->entries[i].op),
                                   fli_row_facts_of(w->entries[i].op));
    if (kind_rank(kind) > kind_rank(s->kind))
      s->kind = kind;
    fli_window_cost(w, i, &flops, &bytes, &written);
    s->flops += flops;
  }
  int ins = x->n_in, all = x->n_in + x->n_out;
  s->read = operand_bytes(w, p, x, 0, ins, false);
  s->written = operand_bytes(w, p, x, ins, all, false);
  s->kept = operand_bytes(w, p, x, ins, all, true);
  if (!x->leader)
    fused_shapes(s, p, x);
}

static void launch_kept(const fli_window *w, const fli_plan *p,
                        const fli_entry *e, fl_profile_step *s) {
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    const fli_arg *a = &w->args[e->arg + (uint32_t)k];
    if (a->slot >= 0 && slot_kept(p, a->slot) &&
        (k >= e->n_in ||
         fli_op_writes(e->op, fli_entry_attrs(w, e), e->n_in, k)))
      s->kept += (double)fl_numel(a->meta.ndim, a->meta.shape) *
                 (double)fl_dtype_size(a->meta.dtype);
  }
}

void fli_explain_step(fli_window *w, const fli_plan *p, const fli_step *x) {
  fl_profile_step *s = fli_window_step(w, x->leader ? x->leader - 1 : x->entry,
                                       x->n_members ? x->n_members : 1);
  if (!s)
    return;
  const fli_entry *e = &w->entries[x->entry];
  if (x->op) {
    fused_fill(w, p, x, s);
  } else {
    s->kind = kind_better(s->kind, fli_row_facts_of(e->op));
    launch_kept(w, p, e, s);
  }
  s->number = (int32_t)(x - p->steps);
  s->apart = apart_text(x->apart);
  for (uint32_t k = 0; k < p->n_steps && x->from != FUSE_NONE; k++)
    if (step_has(p, &p->steps[k], x->from))
      s->from = (int32_t)k;
  if (s->from == s->number) { /* the kernel that it would follow is not there */
    s->from = -1;
    s->apart = "what it reads of others is computed again in it";
  }
  fli_mfree(w->step);
  w->step = s;
}
