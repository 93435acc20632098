/* Loops: a step of a plan that runs launches chunk by chunk. It has windows of
 * its own, each with a plan: `before` once, `body` for each chunk (`rest` for a
 * shorter last one), `after` once. Sums over the chunks are added up in wide
 * floats. */
#include "chunk.h"

#include <string.h>

typedef struct loop_slot {
  int outer;          /* of the window; -1: the loop's own */
  bool kept;          /* own memory that lives as long as the loop runs */
  bool read, written; /* one of the window */
  int64_t step;       /* bytes of a unit */
  size_t bytes;       /* of an own one, besides units */
} loop_slot;

typedef struct loop_number { /* a number that the window gives */
  uint32_t arg, outer;
} loop_number;

typedef struct loop_part {
  fli_window w;
  fli_plan *p;
  uint32_t n_numbers, numbers_room;
  loop_number *numbers;
  int64_t units;
} loop_part;

struct fli_loop {
  fl_runtime *rt;
  uint32_t n_slots, slots_room;
  loop_slot *slots;
  fl_storage **kept;
  int64_t units, each;
  loop_part before, body, rest, after;
};

/* --- building --- */

typedef struct building {
  const fli_region *r;
  fli_loop *l;
  loop_part *part;
  int64_t units; /* of this part's chunk */
  fl_status status;
  const fli_entry *like; /* the launch that is being translated */
} building;

static bool build_room(building *b, void *array, uint32_t *room, uint32_t need,
                       size_t size) {
  void **old = array;
  if (b->status || need <= *room)
    return !b->status;
  uint32_t n = *room ? 2 * *room : 16;
  while (n < need)
    n *= 2;
  void *more = fli_malloc(b->l->rt, n * size);
  if (!more) {
    b->status = FL_ENOMEM;
    return false;
  }
  if (*old)
    memcpy(more, *old, *room * size);
  fli_mfree(*old);
  *old = more;
  *room = n;
  return true;
}

/* The loop's slot for what `of` says. */
static int build_slot(building *b, loop_slot of) {
  fli_loop *l = b->l;
  for (uint32_t k = 0; k < l->n_slots && of.outer >= 0; k++)
    if (l->slots[k].outer == of.outer && l->slots[k].step == of.step &&
        l->slots[k].kept == of.kept && l->slots[k].bytes == of.bytes) {
      l->slots[k].read |= of.read;
      l->slots[k].written |= of.written;
      return (int)k;
    }
  if (!build_room(b, &l->slots, &l->slots_room, l->n_slots + 1,
                  sizeof *l->slots))
    return 0;
  l->slots[l->n_slots] = of;
  return (int)l->n_slots++;
}

/* Slots of chunks of the window's inner values are marked by this size. */
#define INNER 1

/* Operand k of the window in this part: a chunk of it, if it is cut. */
static fli_arg build_arg(building *b, uint32_t k, bool written) {
  const fli_region *r = b->r;
  fli_arg a = *fli_fuse_arg(r->f, k);
  int dim = r->dim[k];
  if (a.slot < 0)
    return a;
  loop_slot of = {.outer = a.slot, .read = !written, .written = written};
  if (dim >= 0) {
    of.step = fli_region_step(r, &a, dim);
    a.meta.shape[dim] = a.meta.shape[dim] / r->units * b->units;
  }
  if (r->slots[a.slot].inner) {
    of.bytes = INNER;
    if (r->slots[a.slot].lies_in >= 0)
      of.outer = r->slots[a.slot].lies_in;
  }
  a.slot = build_slot(b, of);
  return a;
}

/* A contiguous value of the loop's own. */
static fli_arg build_own(building *b, const fl_meta *m, fl_dtype d, bool kept) {
  fli_arg a = {.meta = *m};
  a.meta.dtype = d;
  int64_t n = 1;
  for (int i = m->ndim; i-- > 0; n *= m->shape[i])
    a.stride[i] = n;
  a.slot = build_slot(b, (loop_slot){.outer = -1,
                                     .kept = kept,
                                     .bytes = (size_t)n * fl_dtype_size(d)});
  return a;
}

static void build_entry(building *b, const fl_op *op, const fl_attrs *attrs,
                        int n_in, const fli_arg *in, int n_out,
                        const fli_arg *out) {
  fli_window *w = &b->part->w;
  uint32_t n = (uint32_t)(n_in + n_out);
  size_t bytes = offsetof(fl_attrs, list) + attrs->used * sizeof *attrs->list;
  uint32_t words = (uint32_t)((bytes + 7) / 8);
  if (!build_room(b, &w->entries, &w->room, w->n + 1, sizeof *w->entries) ||
      !build_room(b, &w->args, &w->args_room, w->n_args + n, sizeof *w->args) ||
      !build_room(b, &w->words, &w->words_room, w->n_words + words,
                  sizeof *w->words))
    return;
  fli_entry *e = &w->entries[w->n++];
  *e = (fli_entry){.op = op,
                   .site = b->like->site,
                   .base = b->like->base,
                   .n_in = n_in,
                   .n_out = n_out,
                   .writes = op->writes,
                   .common = FL_NODTYPE,
                   .arg = w->n_args,
                   .attrs = w->n_words};
  w->words[w->n_words + words - 1] = 0;
  fl_attrs_copy((fl_attrs *)(void *)(w->words + w->n_words), attrs);
  memcpy(w->args + w->n_args, in, (size_t)n_in * sizeof *in);
  if (n_out)
    memcpy(w->args + w->n_args + n_in, out, (size_t)n_out * sizeof *out);
  w->n_args += n;
  w->n_words += words;
}

static const fl_op *build_row(const building *b, int row) {
  return &b->l->rt->ops[row];
}

static void build_copy(building *b, const fli_arg *from, const fli_arg *to) {
  const fl_op *op = build_row(b, FLI_OP_copy);
  fl_attrs a = op->defaults;
  a.v[FL_ATTR_copy_dtype].i = to->meta.dtype;
  build_entry(b, op, &a, 1, from, 1, to);
}

static void build_binary(building *b, int row, const fli_arg *x,
                         const fli_arg *y, const fli_arg *to) {
  const fl_op *op = build_row(b, row);
  build_entry(b, op, &op->defaults, 2, (fli_arg[]){*x, *y}, 1, to);
  if (!b->status)
    b->part->w.entries[b->part->w.n - 1].common = x->meta.dtype;
}

/* --- sums --- */

/* A result that the chunks add up. */
typedef struct summing {
  fli_arg result, sum; /* in the window's memory, and where it is added up */
  bool needed, ahead;
} summing;

static fl_dtype sum_dtype(fl_dtype d) {
  return fl_dtype_is_low(d) ? FL_F32 : d;
}

/* Sums of dtypes that need no rounding are added up where they belong. */
static summing sum_of(building *b, const fli_entry *e, int k) {
  const fli_region *r = b->r;
  uint32_t at = e->arg + (uint32_t)(e->n_in + k);
  const fli_arg *a = fli_fuse_arg(r->f, at);
  const fli_chunk_slot *slot = &r->slots[a->slot];
  summing s = {.needed = slot->outside || slot->ahead, .ahead = slot->ahead};
  s.result = s.sum = *a;
  if (s.needed)
    s.result = s.sum = build_arg(b, at, true);
  return s;
}

/* --- the parts --- */

/* The launch with operands of this part, and what is done with its sums. */
typedef struct translating {
  fl_attrs attrs;
  fli_split split;
  const fl_meta *metas[FLI_SPLIT_OPERANDS];
  fli_arg args[FLI_SPLIT_OPERANDS + 1];
} translating;

/* Asks the row again how the launch is cut. */
static bool build_split(building *b, const fli_entry *e, translating *t) {
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int dim = b->r->dim[e->arg + (uint32_t)k];
    if (dim >= 0 && fli_region_ask(b->r->f, e, k, dim, t->metas, &t->split))
      return true;
  }
  b->status =
      fli_fail(FL_EUNSUPPORTED, "%s: it was cut before", e->op->info.name);
  return false;
}

/* The memory in which the sums of result k are, the same in all parts. */
static fli_arg sum_place(building *b, const summing *s, fli_arg **places) {
  fl_dtype d = sum_dtype(s->result.meta.dtype);
  fli_arg place = s->result;
  if (d != s->result.meta.dtype) {
    if ((*places)->slot < 0)
      **places = build_own(b, &s->result.meta, d, true);
    place = **places;
  }
  ++*places;
  return place;
}

static void body_launch(building *b, const fli_entry *e, translating *t,
                        fli_arg **places) {
  const fl_op *op = e->op;
  int n_in = e->n_in, row = fli_split_adder(op);
  fl_attrs_copy(&t->attrs, fli_entry_attrs(b->r->f->w, e));
  if (t->split.attr >= 0)
    t->attrs.v[t->split.attr].i = t->split.value;
  fli_arg *in = t->args + 1, *out = in + n_in, sum[FL_MAX_OUT];
  uint32_t first = b->part->w.n_args;
  bool adds[FL_MAX_OUT] = {false};
  for (int k = 0; k < n_in; k++)
    in[k] = build_arg(b, e->arg + (uint32_t)k, false);
  for (int k = 0; k < e->n_out; k++) {
    uint32_t at = e->arg + (uint32_t)(n_in + k);
    if (b->r->dim[at] >= 0) {
      out[k] = build_arg(b, at, true);
      continue;
    }
    const fli_arg *a = fli_fuse_arg(b->r->f, at);
    if (b->r->dim[at] == FLI_SPLIT_SUM) {
      summing s = sum_of(b, e, k);
      adds[k] = s.needed && !s.ahead;
      row = fl_dtype_is_float(a->meta.dtype) ? row : -1;
      if (adds[k])
        sum[k] = sum_place(b, &s, places);
    }
    if (!(adds[k] && row >= 0 && e->n_out == 1))
      out[k] = build_own(b, &a->meta, a->meta.dtype, false);
  }
  if (adds[0] && row >= 0 && e->n_out == 1) {
    t->args[0] = sum[0];
    build_entry(b, build_row(b, row), &build_row(b, row)->defaults, n_in + 1,
                t->args, 0, NULL);
    return;
  }
  build_entry(b, op, &t->attrs, n_in, in, e->n_out, out);
  if (b->status)
    return;
  b->part->w.entries[b->part->w.n - 1].common = e->common;
  for (int k = 0; k < n_in; k++)
    if (in[k].slot == FLI_ARG_NUMBER &&
        build_room(b, &b->part->numbers, &b->part->numbers_room,
                   b->part->n_numbers + 1, sizeof *b->part->numbers))
      b->part->numbers[b->part->n_numbers++] =
          (loop_number){first + (uint32_t)k, e->arg + (uint32_t)k};
  for (int k = 0; k < e->n_out; k++) {
    if (!adds[k])
      continue;
    fli_arg value = out[k];
    if (value.meta.dtype != sum[k].meta.dtype) {
      value = build_own(b, &value.meta, sum[k].meta.dtype, false);
      build_copy(b, &out[k], &value);
    }
    build_binary(b, FLI_OP_add, &sum[k], &value, &sum[k]);
  }
}

/* The row that gives result k before the rest: inputs and attributes by name.
 */
static void before_ahead(building *b, const fli_entry *e, int row, int out,
                         const fli_arg *to) {
  const fl_op *op = build_row(b, row);
  const fl_attrs *from = fli_entry_attrs(b->r->f->w, e);
  fl_attrs attrs = op->defaults;
  fli_arg in[FL_MAX_PARAMS];
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *p = &op->info.params[i];
    if (p->kind == FL_P_DTYPE)
      attrs.v[p->slot].i =
          fli_fuse_arg(b->r->f, e->arg + (uint32_t)(e->n_in + out))->meta.dtype;
    for (int k = 0; k < e->op->info.n_params; k++) {
      const fl_param *q = &e->op->info.params[k];
      if (strcmp(p->name, q->name) != 0 || p->kind != q->kind)
        continue;
      if (p->kind != FL_P_TENSOR) {
        attrs.v[p->slot] = from->v[q->slot];
        continue;
      }
      in[p->slot] = *fli_fuse_arg(b->r->f, e->arg + (uint32_t)q->slot);
      if (in[p->slot].slot >= 0)
        in[p->slot].slot =
            build_slot(b, (loop_slot){.outer = in[p->slot].slot, .read = true});
    }
  }
  build_entry(b, op, &attrs, op->info.n_in, in, 1, to);
}

static void before_launch(building *b, const fli_entry *e, fli_arg **places) {
  int known = -1, row = fli_split_ahead(e->op, &known);
  for (int k = 0; k < e->n_out; k++) {
    if (b->r->dim[e->arg + (uint32_t)(e->n_in + k)] != FLI_SPLIT_SUM)
      continue;
    summing s = sum_of(b, e, k);
    if (s.ahead && k == known)
      before_ahead(b, e, row, k, &s.result);
    if (!s.needed || s.ahead)
      continue;
    const fl_op *fill = build_row(b, FLI_OP_fill);
    fli_arg to = sum_place(b, &s, places), zero = {.slot = FLI_ARG_NUMBER};
    zero.meta.dtype = zero.operand.dtype = FL_F64;
    build_entry(b, fill, &fill->defaults, 2, (fli_arg[]){to, zero}, 1, &to);
  }
}

static void after_launch(building *b, const fli_entry *e,
                         const fli_split *split, fli_arg **places) {
  for (int k = 0; k < e->n_out; k++) {
    if (b->r->dim[e->arg + (uint32_t)(e->n_in + k)] != FLI_SPLIT_SUM)
      continue;
    summing s = sum_of(b, e, k);
    if (!s.needed || s.ahead)
      continue;
    fli_arg place = sum_place(b, &s, places), value = place;
    bool direct = place.slot == s.result.slot;
    if (split->over[k] >= 0) {
      fli_arg by = sum_of(b, e, split->over[k]).result;
      if (!direct)
        value = build_own(b, &place.meta, place.meta.dtype, false);
      build_binary(b, FLI_OP_div, &place, &by, &value);
    }
    if (!direct)
      build_copy(b, &value, &s.result);
  }
}

typedef enum which { BEFORE, BODY, AFTER } which;

static void build_part(building *b, loop_part *part, which w, int64_t units,
                       fli_arg *places, translating *t) {
  const fli_region *r = b->r;
  b->part = part;
  b->units = part->units = units;
  for (uint32_t i = 0; i < r->n && !b->status; i++) {
    const fli_entry *e = &r->f->w->entries[r->entries[i]];
    b->like = e;
    if (!build_split(b, e, t))
      return;
    if (w == BEFORE)
      before_launch(b, e, &places);
    else if (w == BODY)
      body_launch(b, e, t, &places);
    else
      after_launch(b, e, &t->split, &places);
  }
}

/* The part's window is complete: its slots and its plan. */
static void build_plan(building *b, loop_part *part) {
  fli_loop *l = b->l;
  fli_window *w = &part->w;
  if (b->status || w->n == 0)
    return;
  w->rt = l->rt;
  w->device = b->r->f->w->device;
  w->n_slots = l->n_slots;
  w->slots = fli_malloc(l->rt, l->n_slots * sizeof *w->slots);
  if (!w->slots) {
    b->status = FL_ENOMEM;
    return;
  }
  memset(w->slots, 0, l->n_slots * sizeof *w->slots);
  for (uint32_t k = 0; k < l->n_slots; k++) {
    const loop_slot *s = &l->slots[k];
    w->slots[k].made = s->outer < 0 ? !s->kept : s->bytes == INNER;
    w->slots[k].last = w->n;
    w->slots[k].bytes =
        s->bytes == INNER ? (size_t)(s->step * part->units) : s->bytes;
  }
  part->p = fli_plan_new(w);
  b->status =
      part->p ? fli_plan_build((fl_compiled *)(uintptr_t)b->r->f->c, part->p, w)
              : FL_ENOMEM;
}

fl_status fli_loop_new(const fli_region *r, fli_loop **out) {
  fl_runtime *rt = r->f->rt;
  size_t most = 0;
  for (uint32_t i = 0; i < r->n; i++)
    most += (size_t)r->f->w->entries[r->entries[i]].n_out;
  fli_loop *l = fli_malloc(rt, sizeof *l);
  translating *t = fli_malloc(rt, sizeof *t);
  fli_arg *places = fli_malloc(rt, (most + 1) * sizeof *places);
  building b = {.r = r, .l = l, .status = l && t && places ? 0 : FL_ENOMEM};
  if (l)
    memset(l, 0, sizeof *l);
  if (b.status == FL_OK) {
    memset(t, 0, sizeof *t);
    for (size_t k = 0; k < most; k++)
      places[k].slot = FLI_ARG_NONE;
    l->rt = rt;
    l->units = r->units;
    l->each = r->each;
    build_part(&b, &l->before, BEFORE, 0, places, t);
    build_part(&b, &l->body, BODY, l->each, places, t);
    if (l->units % l->each)
      build_part(&b, &l->rest, BODY, l->units % l->each, places, t);
    build_part(&b, &l->after, AFTER, 0, places, t);
    build_plan(&b, &l->before);
    build_plan(&b, &l->body);
    build_plan(&b, &l->rest);
    build_plan(&b, &l->after);
    l->kept = fli_malloc(rt, l->n_slots * sizeof(fl_storage *));
    if (!l->kept)
      b.status = FL_ENOMEM;
  }
  fli_mfree(places);
  fli_mfree(t);
  if (b.status) {
    fli_loop_free(l);
    return b.status;
  }
  *out = l;
  return FL_OK;
}

static void part_free(loop_part *part) {
  if (part->p)
    fli_plan_free(part->p);
  fli_mfree(part->numbers);
  fli_mfree(part->w.entries);
  fli_mfree(part->w.args);
  fli_mfree(part->w.words);
  fli_mfree(part->w.slots);
}

void fli_loop_free(fli_loop *l) {
  if (!l)
    return;
  part_free(&l->before);
  part_free(&l->body);
  part_free(&l->rest);
  part_free(&l->after);
  fli_mfree(l->slots);
  fli_mfree(l->kept);
  fli_mfree(l);
}

uint32_t fli_loop_slots(const fli_loop *l, uint32_t *n_read, int *slots) {
  uint32_t n = 0;
  for (int turn = 0; turn < 2; turn++) {
    for (uint32_t k = 0; k < l->n_slots; k++) {
      const loop_slot *s = &l->slots[k];
      if (s->outer >= 0 && s->bytes != INNER && (turn ? s->written : s->read))
        slots[n++] = s->outer;
    }
    if (!turn)
      *n_read = n;
  }
  return n;
}

bool fli_loop_changes(const fli_window *w, const fli_loop *l) {
  bool changes = false;
  for (uint32_t k = 0; k < l->n_slots; k++)
    changes |= l->slots[k].written && l->slots[k].bytes != INNER &&
               !w->slots[l->slots[k].outer].made;
  return changes;
}

fl_status fli_loop_prepare(const fli_loop *l, bool *ready) {
  const loop_part *parts[] = {&l->before, &l->body, &l->rest, &l->after};
  for (int k = 0; k < 4; k++) {
    fli_plan *p = parts[k]->p;
    if (!p)
      continue;
    FLI_TRY(fli_plan_prepare(p, &parts[k]->w));
    *ready = *ready && p->prepared == p->n_steps;
  }
  return FL_OK;
}

uint32_t fli_loop_turns(const fli_loop *l) {
  return (uint32_t)((l->units + l->each - 1) / l->each);
}

size_t fli_loop_memory(const fli_loop *l) {
  const loop_part *parts[] = {&l->before, &l->body, &l->rest, &l->after};
  size_t kept = 0, most = 0;
  for (uint32_t k = 0; k < l->n_slots; k++)
    kept += l->slots[k].kept ? l->slots[k].bytes : 0;
  for (int k = 0; k < 4; k++)
    if (parts[k]->p && parts[k]->p->peak > most)
      most = parts[k]->p->peak;
  return kept + most;
}

/* --- running: after a failure nothing more of the loop runs --- */

/* Binds slot k to units [first, first + units) of the window's memory. */
static fl_status part_bind(const fli_window *w, fli_loop *l, uint32_t k,
                           int64_t first, int64_t units, fli_slot *to) {
  const loop_slot *s = &l->slots[k];
  to->base = 0;
  if (!s->kept && (s->outer < 0 || s->bytes == INNER)) {
    size_t bytes = s->outer < 0 ? s->bytes : (size_t)(s->step * units);
    return fli_storage_pending(l->rt, bytes, w->device, &to->s);
  }
  to->s = s->kept ? l->kept[k] : w->slots[s->outer].s;
  if (!s->kept)
    to->base = w->slots[s->outer].base + s->step * first;
  fli_storage_retain(to->s);
  return FL_OK;
}

static fl_status part_run(const fli_window *w, fli_loop *l, loop_part *part,
                          int64_t first, int64_t units) {
  fli_window *v = &part->w;
  fl_status s = FL_OK;
  if (!part->p)
    return FL_OK;
  v->stream = w->stream;
  for (uint32_t k = 0; k < l->n_slots; k++)
    v->slots[k].s = NULL;
  for (uint32_t k = 0; k < l->n_slots && s == FL_OK; k++)
    s = part_bind(w, l, k, first, units, &v->slots[k]);
  for (uint32_t k = 0; k < part->n_numbers; k++)
    v->args[part->numbers[k].arg].operand =
        w->args[part->numbers[k].outer].operand;
  if (s == FL_OK)
    s = fli_plan_run(v, part->p);
  for (uint32_t k = 0; k < l->n_slots; k++)
    if (v->slots[k].s) {
      fli_storage_release(v->slots[k].s);
      v->slots[k].s = NULL;
    }
  return s;
}

static fl_status loop_turns(const fli_window *w, fli_loop *l) {
  fl_status first = part_run(w, l, &l->before, 0, 0);
  for (int64_t at = 0; at < l->units && first == FL_OK; at += l->each) {
    int64_t n = l->units - at < l->each ? l->units - at : l->each;
    first = part_run(w, l, n < l->each ? &l->rest : &l->body, at, n);
  }
  return first ? first : part_run(w, l, &l->after, 0, 0);
}

fl_status fli_loop_run(fli_window *w, fli_loop *l) {
  fl_status s = FL_OK;
  memset(l->kept, 0, l->n_slots * sizeof(fl_storage *));
  for (uint32_t k = 0; k < l->n_slots && s == FL_OK; k++)
    if (l->slots[k].kept)
      s = fli_storage_new(l->rt, l->slots[k].bytes, w->device, 0, &l->kept[k]);
  if (s == FL_OK)
    s = loop_turns(w, l);
  for (uint32_t k = 0; k < l->n_slots; k++)
    if (l->kept[k])
      fli_storage_release(l->kept[k]);
  return s;
}
