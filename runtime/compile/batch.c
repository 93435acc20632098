/* Copies that are steps of their own (casts of weights for autocast, of
 * gradients back) become launches of lists, where their order allows it. A copy
 * runs with the first one whose result something needs. */
#include "fuse.h"
#include "rows.h"

#include "../view.h"

#include <stdlib.h>
#include <string.h>

/* Bytes: a longer copy takes longer than its launch, and reads what is still in
 * the L2 cache where it stands. */
#define COPY_MOST ((int64_t)1 << 20)
/* Bytes of results that may stand ready before they are needed. */
#define EARLY ((int64_t)4 << 20)

typedef struct batch_copy {
  uint32_t step;
  uint32_t first, last;    /* it may run before any of these steps */
  uint32_t source, target; /* operands of the window */
  const fl_op *list;
  fl_dtype from, to;
  int64_t early; /* bytes that live longer if it runs before its place */
  bool taken;
} batch_copy;

typedef struct batch_touch {
  uint32_t step, next;
  bool writes;
} batch_touch;

typedef struct batching {
  fuse *f;
  uint32_t n, n_lists, n_taken;
  batch_copy *copies;
  uint32_t *order;      /* of copies, those that are needed first first */
  uint32_t *touched;    /* of slots: the first touch */
  uint8_t *copied;      /* of slots: copies read it (1), write it (2) */
  batch_touch *touches; /* in the order of steps */
} batching;

/* --- what may move --- */

static void batch_view(const fli_arg *a, fl_view *v) {
  v->data = NULL;
  v->dtype = a->meta.dtype;
  v->ndim = a->meta.ndim;
  for (int i = 0; i < v->ndim; i++) {
    v->shape[i] = a->meta.shape[i];
    v->stride[i] = a->stride[i];
  }
}

static int64_t batch_bytes(const fli_arg *a) {
  return fl_numel(a->meta.ndim, a->meta.shape) *
         (int64_t)fl_dtype_size(a->meta.dtype);
}

/* Whether the step copies floats to as many in the same order of memory. */
static bool batch_takes(const fuse *f, const fli_step *x, batch_copy *c) {
  const fli_entry *e = &f->w->entries[x->entry];
  int from = x->op || e->n_out != 1 ? -1 : fli_row_copies(e->op, e->n_in);
  if (from < 0 || !(c->list = fli_row_list(f->rt, e->op)) ||
      !c->list->kernel[f->w->device >> 8])
    return false;
  c->source = e->arg + (uint32_t)from;
  c->target = e->arg + (uint32_t)e->n_in;
  const fli_arg *a = fli_fuse_arg(f, c->source),
                *b = fli_fuse_arg(f, c->target);
  fl_view in, out;
  c->from = a->meta.dtype;
  c->to = b->meta.dtype;
  if (a->slot < 0 || a->slot == b->slot || !fli_is_float(c->from) ||
      !fli_is_float(c->to) || !fli_same_shape(&a->meta, &b->meta) ||
      batch_bytes(b) == 0 || batch_bytes(a) + batch_bytes(b) > COPY_MOST)
    return false;
  batch_view(a, &in);
  batch_view(b, &out);
  return fl_dense(&in) && fl_same_strides(&in, &out);
}

static void note_touches(batching *b) {
  const fuse *f = b->f;
  uint32_t n = 0;
  memset(b->touched, 0xff, f->w->n_slots * sizeof *b->touched);
  for (uint32_t i = f->p->n_steps; i-- > 0;)
    for (int k = fli_fuse_step_operands(f, &f->p->steps[i]); k-- > 0;) {
      bool writes;
      int slot = fli_fuse_step_operand(f, &f->p->steps[i], k, &writes);
      if (slot < 0)
        continue;
      b->touches[n] = (batch_touch){i, b->touched[slot], writes};
      b->touched[slot] = n++;
    }
}

/* Steps that touch the slot (with `writes` those that write it) bound the copy.
 * False: none does behind it. */
static bool batch_bound(const batching *b, batch_copy *c, int slot,
                        bool writes) {
  bool later = false;
  for (uint32_t k = b->touched[slot]; k != FUSE_NONE; k = b->touches[k].next) {
    const batch_touch *t = &b->touches[k];
    later |= t->step > c->step;
    if (t->step == c->step || (writes && !t->writes))
      continue;
    if (t->step < c->step && t->step >= c->first)
      c->first = t->step + 1;
    if (t->step > c->step && t->step < c->last)
      c->last = t->step;
  }
  return later;
}

/* Copies of copies stay in their places. */
static void find_copies(batching *b) {
  const fuse *f = b->f;
  for (uint32_t i = 0; i < f->p->n_steps; i++) {
    batch_copy c = {.step = i, .last = f->p->n_steps};
    if (!batch_takes(f, &f->p->steps[i], &c))
      continue;
    const fli_arg *in = fli_fuse_arg(f, c.source),
                  *out = fli_fuse_arg(f, c.target);
    if (b->copied[out->slot] || b->copied[in->slot] & 2)
      continue;
    bool again = batch_bound(b, &c, in->slot, true);
    batch_bound(b, &c, out->slot, false);
    int64_t more = fli_fuse_stays(f, in->slot) || again ? 0 : batch_bytes(in),
            less = f->w->slots[out->slot].made ? batch_bytes(out) : 0;
    if (more > less) /* it would hold more memory if it ran later */
      c.last = i;
    c.early = less;
    b->copied[in->slot] |= 1;
    b->copied[out->slot] |= 2;
    b->copies[b->n++] = c;
  }
}

/* --- lists --- */

static void order_copies(batching *b) {
  uint32_t *count = b->touched; /* no longer needed; room for each step + 2 */
  uint32_t n = b->f->p->n_steps;
  memset(count, 0, (n + 2) * sizeof *count);
  for (uint32_t k = 0; k < b->n; k++)
    count[b->copies[k].last + 1]++;
  for (uint32_t i = 0; i <= n; i++)
    count[i + 1] += count[i];
  for (uint32_t k = 0; k < b->n; k++)
    b->order[count[b->copies[k].last]++] = k;
}

/* Copies that run with copy `seed`, before step seed->last. */
static int batch_list(const batching *b, uint32_t from, uint32_t *list) {
  const batch_copy *seed = &b->copies[b->order[from]];
  int64_t early = 0;
  int n = 0;
  for (uint32_t k = from; k < b->n && n < FLI_LIST_MOST; k++) {
    const batch_copy *c = &b->copies[b->order[k]];
    int64_t more = seed->last < c->step ? c->early : 0;
    if (c->taken || c->first > seed->last || c->list != seed->list ||
        c->from != seed->from || c->to != seed->to || early + more > EARLY)
      continue;
    early += more;
    list[n++] = b->order[k];
  }
  return n;
}

static void *more_room(fuse *f, void *old, size_t used, size_t bytes) {
  void *to = fli_malloc(f->rt, bytes + 1);
  if (to && used)
    memcpy(to, old, used);
  if (to)
    fli_mfree(old);
  return to;
}

/* Room for the operands and members of the lists. */
static fl_status batch_room(batching *b) {
  fuse *f = b->f;
  fli_plan *p = f->p;
  uint32_t operands = p->n_operands + 2 * b->n, members = p->n_members + b->n;
  void *to = more_room(f, p->operands, p->n_operands * sizeof *p->operands,
                       operands * sizeof *p->operands);
  if (!to)
    return FL_ENOMEM;
  p->operands = to;
  f->operands_room = operands;
  to = more_room(f, p->members, p->n_members * sizeof *p->members,
                 members * sizeof *p->members);
  if (!to)
    return FL_ENOMEM;
  p->members = to;
  f->members_room = members;
  return FL_OK;
}

static void batch_add_operand(fuse *f, uint32_t arg) {
  const fli_arg *a = fli_fuse_arg(f, arg);
  fli_fused_operand *o = &f->p->operands[f->p->n_operands++];
  *o = (fli_fused_operand){.slot = a->slot,
                           .number = FUSE_NONE,
                           .meta = a->meta,
                           .offset = a->offset};
  memcpy(o->stride, a->stride, sizeof o->stride);
}

static fli_step batch_step(batching *b, int n, const uint32_t *list) {
  fuse *f = b->f;
  fli_plan *p = f->p;
  fli_step x = {.op = b->copies[list[0]].list,
                .list = true,
                .n_in = n,
                .n_out = n,
                .operands = p->n_operands,
                .members = p->n_members,
                .n_members = (uint32_t)n,
                .from = FUSE_NONE};
  for (int k = 0; k < n; k++)
    batch_add_operand(f, b->copies[list[k]].source);
  for (int k = 0; k < n; k++) {
    batch_copy *c = &b->copies[list[k]];
    uint32_t entry = p->steps[c->step].entry;
    batch_add_operand(f, c->target);
    p->members[p->n_members++] = entry;
    x.entry = entry > x.entry ? entry : x.entry;
    c->taken = true;
  }
  return x;
}

typedef struct batch_made { /* a list, before step `at` */
  uint32_t at;
  fli_step step;
} batch_made;

/* The steps with the lists among them, without the copies that these have. */
static void batch_merge(batching *b, const batch_made *made, fli_step *to) {
  fli_plan *p = b->f->p;
  uint32_t n = 0, copy = 0, list = 0;
  for (uint32_t i = 0; i <= p->n_steps; i++) {
    while (list < b->n_lists && made[list].at == i)
      to[n++] = made[list++].step;
    while (copy < b->n && b->copies[copy].step < i)
      copy++;
    bool moved =
        copy < b->n && b->copies[copy].step == i && b->copies[copy].taken;
    if (i < p->n_steps && !moved)
      to[n++] = p->steps[i];
  }
  fli_mfree(p->steps);
  p->steps = to;
  p->n_steps = n;
}

static fl_status batch_all(batching *b) {
  fuse *f = b->f;
  uint32_t list[FLI_LIST_MOST];
  batch_made *made = fli_malloc(f->rt, b->n * sizeof *made + 1);
  fli_step *to = fli_malloc(f->rt, (f->p->n_steps + 1) * sizeof *to);
  fl_status s = made && to ? batch_room(b) : FL_ENOMEM;
  for (uint32_t k = 0; k < b->n && s == FL_OK; k++) {
    uint32_t at = b->copies[b->order[k]].last;
    int n = b->copies[b->order[k]].taken ? 0 : batch_list(b, k, list);
    if (n > 1)
      made[b->n_lists++] = (batch_made){at, batch_step(b, n, list)};
  }
  if (s == FL_OK)
    batch_merge(b, made, to);
  else
    fli_mfree(to);
  fli_mfree(made);
  return s;
}

fl_status fli_fuse_batch(fuse *f) {
  const fli_plan *p = f->p;
  size_t slots = f->w->n_slots, steps = p->n_steps, touches = 0;
  if (fli_backend(f->rt, f->w->device)->flags & FL_BACKEND_HOST)
    return FL_OK; /* what a kernel has just read and written is in caches */
  for (uint32_t i = 0; i < p->n_steps; i++)
    touches += (size_t)fli_fuse_step_operands(f, &p->steps[i]);
  size_t heads = slots > steps + 2 ? slots : steps + 2;
  batching b = {.f = f};
  b.copies =
      fli_malloc(f->rt, steps * sizeof *b.copies + touches * sizeof *b.touches +
                            (heads + steps) * sizeof *b.order + slots + 1);
  if (!b.copies)
    return FL_ENOMEM;
  b.touches = (batch_touch *)(b.copies + steps);
  b.touched = (uint32_t *)(b.touches + touches);
  b.order = b.touched + heads;
  b.copied = (uint8_t *)(b.order + steps);
  memset(b.copied, 0, slots);
  note_touches(&b);
  find_copies(&b);
  order_copies(&b);
  fl_status s = b.n > 1 ? batch_all(&b) : FL_OK;
  fli_mfree(b.copies);
  return s;
}

/* --- running --- */

/* Kernels of lists take all that they write, then all that they read. */
fl_status fli_plan_list(fli_window *w, const fli_plan *p, const fli_step *x) {
  fl_view views[2 * FLI_LIST_MOST];
  const fli_fused_operand *o = p->operands + x->operands;
  const fl_meta *metas[2] = {&o[x->n_in].meta, &o[x->n_in + 1].meta};
  for (int k = 0; k < x->n_in; k++) {
    fli_plan_view(w, &o[x->n_in + k], &views[k]);
    fli_plan_view(w, &o[k], &views[x->n_in + k]);
  }
  fl_launch l = {.n_in = 2 * x->n_in,
                 .in = views,
                 .attrs = &x->op->defaults,
                 .writes = true};
  return fli_window_send(w, &w->entries[x->entry], x->op, &l, metas);
}
