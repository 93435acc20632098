/* Results that are only computed to be copied: the launch writes the region
 * that they would be copied to, other launches read them there, and the copy is
 * left out. Gradients of q, k and v become parts of the gradient of the product
 * that made all three; heads are joined where attention writes them. */
#include "fuse.h"
#include "rows.h"

#include <string.h>

typedef struct placing { /* the pass over a window */
  fuse *f;
  uint32_t *first; /* of slots: the first operand that is in it */
  uint32_t *next;  /* of operands: the next one in the same slot */
  uint32_t *entry; /* of operands: their launch */
} placing;

static void index_operands(placing *q) {
  const fuse *f = q->f;
  memset(q->first, 0xff, f->w->n_slots * sizeof *q->first);
  for (uint32_t i = f->w->n; i-- > 0;) {
    const fli_entry *e = &f->w->entries[i];
    for (uint32_t k = (uint32_t)(e->n_in + e->n_out); k-- > 0;) {
      int slot = fli_fuse_arg(f, e->arg + k)->slot;
      q->entry[e->arg + k] = i;
      if (slot < 0)
        continue;
      q->next[e->arg + k] = q->first[slot];
      q->first[slot] = e->arg + k;
    }
  }
}

static bool operand_written(const placing *q, uint32_t x) {
  const fli_entry *e = &q->f->w->entries[q->entry[x]];
  return fli_fuse_writes(q->f, e, (int)(x - e->arg));
}

/* --- regions --- */

static int64_t region_numel(const fli_arg *a) {
  int64_t n = 1;
  for (int i = 0; i < a->meta.ndim; i++)
    n *= a->meta.shape[i];
  return n;
}

/* The elements that the region reaches modulo `period`, from *low to *high;
 * false: not an interval. A period of 0: no modulus. */
static bool region_span(const fli_arg *a, int64_t period, int64_t *low,
                        int64_t *high) {
  *low = *high = period ? a->offset % period : a->offset;
  for (int i = 0; i < a->meta.ndim; i++) {
    if (a->meta.shape[i] == 1 || (period && a->stride[i] % period == 0))
      continue;
    int64_t reach = (a->meta.shape[i] - 1) * a->stride[i];
    *(reach < 0 ? low : high) += reach;
  }
  return period == 0 || (*low >= 0 && *high < period);
}

/* Whether two regions of a slot have no element in common, as far as intervals
 * of memory, or of each period of their strides, show. */
static bool regions_apart(const fli_arg *a, const fli_arg *b) {
  int64_t low[2], high[2];
  if (a->meta.dtype != b->meta.dtype) /* other units */
    return false;
  for (int i = -1; i < a->meta.ndim; i++) {
    int64_t period = i < 0 ? 0 : a->stride[i];
    if (i < 0 || (period > 1 && a->meta.shape[i] > 1))
      if (region_span(a, period, &low[0], &high[0]) &&
          region_span(b, period, &low[1], &high[1]) &&
          (high[0] < low[1] || high[1] < low[0]))
        return true;
  }
  return false;
}

/* --- maps --- */

typedef struct place_cuts { /* the dims of a result, cut by the match */
  fli_nest nest;
  int of[FL_TILE_DIMS]; /* which dim of the result they are part of */
} place_cuts;

static bool place_cut(void *context, int dim, int64_t inner) {
  place_cuts *c = context;
  fli_nest old = c->nest;
  for (int i = old.n; i > dim + 1; i--)
    c->of[i] = c->of[i - 1];
  c->of[dim + 1] = c->of[dim];
  c->nest.n = 0;
  for (int i = 0; i < old.n; i++) {
    fli_nest_add(&c->nest, i == dim ? old.size[i] / inner : old.size[i]);
    if (i == dim)
      fli_nest_add(&c->nest, inner);
  }
  return true;
}

static void form_of(const fli_arg *a, fl_form *at) {
  *at = fli_form_constant(a->offset);
  for (int i = 0; i < a->meta.ndim; i++)
    at->coef[i] = a->meta.shape[i] == 1 ? 0 : a->stride[i];
}

/* Strides of the result's dims from those of their parts; false: parts of a dim
 * lie elsewhere. */
static bool join_cuts(const place_cuts *c, const fl_form *at, fli_arg *to) {
  int64_t size[FL_MAX_DIMS];
  for (int i = 0; i < to->meta.ndim; i++) {
    to->stride[i] = 1;
    size[i] = 1;
  }
  for (int i = c->nest.n; i-- > 0;) {
    int d = c->of[i];
    if (c->nest.size[i] == 1)
      continue;
    if (size[d] == 1)
      to->stride[d] = at->coef[i];
    else if (at->coef[i] != to->stride[d] * size[d])
      return false;
    size[d] *= c->nest.size[i];
  }
  return true;
}

/* Where the elements of a result go when its memory, read as `from`, is copied
 * to `target`, as a region *to of the shape of the result. */
static bool place_map(const fli_arg *result, const fli_arg *from,
                      const fli_arg *target, fli_arg *to) {
  place_cuts c = {.nest.n = 0};
  fl_form at, of[FL_MAX_DIMS], there = fli_form_constant(target->offset);
  int dims = target->meta.ndim, skip = dims - from->meta.ndim;
  int64_t stride[FL_MAX_DIMS];
  if (region_numel(result) != region_numel(target) ||
      region_numel(from) != region_numel(target))
    return false;
  for (int i = 0; i < result->meta.ndim; i++) {
    c.of[i] = i;
    fli_nest_add(&c.nest, result->meta.shape[i]);
  }
  for (int i = 0; i < dims; i++)
    stride[i] = i < skip ? 0 : from->stride[i - skip];
  form_of(result, &at);
  if (!fli_form_match(&c.nest, &at, dims, target->meta.shape, stride,
                      from->offset, of, place_cut, &c))
    return false;
  for (int i = 0; i < dims; i++)
    if (target->meta.shape[i] > 1)
      fli_form_add(&there, &of[i], target->stride[i], c.nest.n);
  *to = *result;
  to->slot = target->slot;
  to->offset = there.offset;
  return join_cuts(&c, &there, to);
}

/* An operand that reads memory of `result`, as it reads `to` instead. */
static bool place_reader(const fli_arg *result, const fli_arg *to,
                         const fli_arg *x, fli_arg *moved) {
  fli_nest nest = {.n = 0};
  fl_form at, of[FL_MAX_DIMS], there = fli_form_constant(to->offset);
  bool inside;
  for (int i = 0; i < x->meta.ndim; i++)
    fli_nest_add(&nest, x->meta.shape[i]);
  form_of(x, &at);
  if (x->meta.dtype != result->meta.dtype ||
      !fli_form_split(&at, &nest, result->meta.ndim, result->meta.shape,
                      result->stride, result->offset, of, &inside) ||
      !inside)
    return false;
  for (int i = 0; i < result->meta.ndim; i++)
    fli_form_add(&there, &of[i], to->stride[i], nest.n);
  *moved = *x;
  moved->slot = to->slot;
  moved->offset = there.offset;
  int last = -1;
  for (int i = 0; i < nest.n; i++) {
    moved->stride[i] = there.coef[i];
    last = nest.size[i] > 1 ? i : last;
  }
  /* what lay side by side still does: kernels read it as fast */
  return last < 0 || moved->stride[last] == at.coef[last];
}

/* --- copies --- */

typedef struct place {
  placing *q;
  uint32_t result, copy; /* the operand that is placed; the launch */
  fli_arg to;
  uint32_t until; /* the launch that writes over it; FUSE_NONE */
} place;

/* The only operand that writes a slot. */
static uint32_t only_writer(const placing *q, int slot) {
  uint32_t found = FUSE_NONE;
  for (uint32_t x = q->first[slot]; x != FUSE_NONE; x = q->next[x]) {
    if (!q->f->runs[q->entry[x]] || !operand_written(q, x))
      continue;
    if (found != FUSE_NONE)
      return FUSE_NONE;
    found = x;
  }
  return found;
}

/* Whether the target can be written by the launch of the result instead of by
 * the copy; finds the launch that writes over it. */
static bool target_free(place *p) {
  const placing *q = p->q;
  uint32_t from = q->entry[p->result];
  p->until = FUSE_NONE;
  for (uint32_t x = q->first[p->to.slot]; x != FUSE_NONE; x = q->next[x]) {
    uint32_t i = q->entry[x];
    if (i < from || i == p->copy || !q->f->runs[i] ||
        regions_apart(fli_fuse_arg(q->f, x), &p->to))
      continue;
    if (i < p->copy)
      return false;
    if (operand_written(q, x)) {
      p->until = i;
      return true;
    }
  }
  return true;
}

/* Whether everything that reads the result can read the target; with `apply` it
 * does from now on. */
static bool readers_follow(place *p, bool apply) {
  const placing *q = p->q;
  const fli_arg result = *fli_fuse_arg(q->f, p->result);
  fli_arg moved;
  for (uint32_t x = q->first[result.slot]; x != FUSE_NONE; x = q->next[x]) {
    uint32_t i = q->entry[x];
    if (x == p->result || i == p->copy || !q->f->runs[i])
      continue;
    if (i >= p->until ||
        !place_reader(&result, &p->to, fli_fuse_arg(q->f, x), &moved))
      return false;
    if (apply)
      q->f->args[x] = moved;
  }
  return true;
}

/* The operands of slot `from` are in slot `to` from now on. */
static void join_slots(placing *q, int from, int to) {
  uint32_t *at = &q->first[to], a = *at, b = q->first[from];
  while (b != FUSE_NONE) {
    uint32_t *take = a < b ? &a : &b; /* FUSE_NONE is behind all */
    uint32_t x = *take;
    *at = x;
    at = &q->next[x];
    *take = *at;
  }
  *at = a;
  q->first[from] = FUSE_NONE;
}

static void try_copy(placing *q, uint32_t copy) {
  fuse *f = q->f;
  const fli_entry *e = &f->w->entries[copy];
  int moved = e->n_out == 1 ? fli_row_copies(e->op, e->n_in) : -1;
  if (moved < 0)
    return;
  const fli_arg *from = fli_fuse_arg(f, e->arg + (uint32_t)moved),
                *target = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  place p = {.q = q, .copy = copy};
  if (from->slot < 0 || from->slot == target->slot ||
      from->meta.dtype != target->meta.dtype || fli_fuse_stays(f, from->slot) ||
      (p.result = only_writer(q, from->slot)) == FUSE_NONE)
    return;
  const fli_entry *maker = &f->w->entries[q->entry[p.result]];
  const fli_arg *result = fli_fuse_arg(f, p.result);
  int k = (int)(p.result - maker->arg) - maker->n_in;
  if (q->entry[p.result] >= copy || k < 0 ||
      !place_map(result, from, target, &p.to) ||
      !fli_row_places(maker->op, k, &p.to.meta, p.to.stride) ||
      !target_free(&p) || !readers_follow(&p, false))
    return;
  readers_follow(&p, true);
  int slot = result->slot;
  f->args[p.result] = p.to;
  f->runs[copy] = false;
  join_slots(q, slot, p.to.slot);
}

fl_status fli_fuse_place(fuse *f) {
  const fli_window *w = f->w;
  size_t n = (size_t)w->n_slots + 2 * (size_t)w->n_args;
  uint32_t *room = fli_malloc(f->rt, n * sizeof *room + 1);
  if (!room)
    return FL_ENOMEM;
  placing q = {f, room, room + w->n_slots, room + w->n_slots + w->n_args};
  index_operands(&q);
  for (uint32_t i = 0; i < w->n; i++)
    if (f->runs[i])
      try_copy(&q, i);
  fli_mfree(room);
  return FL_OK;
}
