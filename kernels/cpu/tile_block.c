/* Steps of the kernel "tile" that move blocks: from memory, to memory, and from
 * rows and single elements to whole blocks. */
#include "tile_run.h"

#include "move.h"
#include "philox.h"

#include <string.h>

/* --- loads --- */

static void make_coordinates(const nest_run *r, const fl_nest_place *x,
                             uint8_t vary, int64_t *to) {
  int64_t from = nest_offset(r, x), pn = rows_of(r, vary), qn = row_of(r, vary);
  for (int64_t p = 0; p < pn; p++, to += qn)
    for (int64_t q = 0; q < qn; q++)
      to[q] = from + p * x->p + q * x->q;
}

/* Bits of n elements of dropout from `at` on, one after the other. Those before
 * the first element have none: nothing reads them where a block covers more
 * than the piece, and counters below 0 would not go on at 0. */
static void make_bits(uint64_t seed, uint64_t offset, uint64_t at, int64_t n,
                      float *to) {
  uint16_t half[2 * FL_PHILOX_WORDS];
  for (; n > 0 && at > INT64_MAX; n--, at++)
    *to++ = 0;
  while (n > 0) {
    unsigned from = (unsigned)(at % 8);
    int64_t most = 2 * FL_PHILOX_WORDS - (int64_t)from;
    int64_t some = n < most ? n : most;
    fl_philox_halves(seed, offset + at / 8, half);
    for (int64_t i = 0; i < some; i++)
      to[i] = half[from + i];
    to += some;
    at += (uint64_t)some;
    n -= some;
  }
}

static void load_bits(const nest_run *r, const fl_nest_step *s, float *to) {
  const nest *e = r->e;
  const fl_leaf *leaf = &e->t->leaves[s->what];
  const fl_nest_place *x = &e->n->leaf[s->what];
  int64_t pn = rows_of(r, s->vary), qn = row_of(r, s->vary);
  uint64_t at = (uint64_t)nest_offset(r, x), seed, offset;
  memcpy(&seed, r->value[e->p->out[leaf->source]], sizeof seed);
  memcpy(&offset, r->value[e->p->out[leaf->mask]], sizeof offset);
  if ((qn == 1 || x->q == 1) && (pn == 1 || x->p == (qn == 1 ? 1 : qn))) {
    make_bits(seed, offset, at, pn * qn, to);
    return;
  }
  for (int64_t p = 0; p < pn; p++, to += qn) {
    uint64_t row = at + (uint64_t)(p * x->p);
    if (x->q == 1)
      make_bits(seed, offset, row, qn, to);
    else
      for (int64_t q = 0; q < qn; q++)
        to[q] =
            (float)fl_dropout_bits(seed, offset, row + (uint64_t)(q * x->q), 0);
  }
}

/* How a form goes along positions in this block. */
static fl_nest_along nest_along(const nest_run *r, const fl_nest_place *x) {
  const nest *e = r->e;
  fl_nest_along a = {.t = e->t, .fault = e->fault};
  for (int k = 0; k < e->t->n_positions; k++) {
    if (!x->along[k] || a.n == FL_NEST_ALONG)
      continue;
    int v = e->p->out[e->t->positions[k].value], n = a.n++;
    uint8_t vary = e->n->vary[v];
    a.which[n] = k;
    a.coef[n] = x->along[k];
    a.value[n] = r->value[v];
    a.step_q[n] = vary & FL_VARY_Q ? 1 : 0;
    a.step_p[n] = vary & FL_VARY_P ? row_of(r, vary) : 0;
  }
  return a;
}

/* n elements where the mask is true, zeros elsewhere. */
static void load_masked(int64_t n, fl_dtype type, char *to, fl_dtype dtype,
                        const char *from, int64_t step, const uint8_t *mask) {
  size_t wide = fl_dtype_size(type), size = fl_dtype_size(dtype);
  memset(to, 0, (size_t)n * wide);
  for (int64_t i = 0, k; i < n; i = k) {
    const uint8_t *next = memchr(mask + i, 1, (size_t)(n - i));
    if (!next)
      return;
    i = next - mask;
    next = memchr(mask + i, 0, (size_t)(n - i));
    k = next ? next - mask : n;
    FL_CPU(load_row)
    (k - i, type, to + (size_t)i * wide, dtype, from + i * step * (int64_t)size,
     step);
  }
}

static void load_block(nest_run *r, const fl_nest_step *s, char *to) {
  const nest *e = r->e;
  const fl_leaf *leaf = &e->t->leaves[s->what];
  const fl_nest_place *x = &e->n->leaf[s->what];
  const fl_view *v = &e->l->in[leaf->operand];
  fl_dtype type = (fl_dtype)s->type;
  int64_t size = (int64_t)fl_dtype_size(v->dtype), wide = s->size;
  int64_t pn = rows_of(r, s->vary), qn = row_of(r, s->vary);
  const char *from = (const char *)v->data + nest_offset(r, x) * size;
  fl_nest_along along = nest_along(r, x);
  const uint8_t *mask = NULL;
  bool mp = false, mq = false;
  if (leaf->mask >= 0) {
    int m = e->p->out[leaf->mask];
    mask = r->value[m];
    mp = e->n->vary[m] & FL_VARY_P;
    mq = e->n->vary[m] & FL_VARY_Q;
  }
  r->value[s->what] = to;
  if (along.n) {
    along.mask = mask;
    along.mask_p = mp ? mq ? qn : 1 : 0;
    along.mask_q = mq;
    FL_CPU(nest_gather)
    (&along, pn, qn, type, to, v->dtype, from, x->p, x->q, r->spare);
    return;
  }
  if (mask) {
    for (int64_t p = 0; p < pn; p++, to += qn * wide) {
      if (mq)
        load_masked(qn, type, to, v->dtype, from + p * x->p * size, x->q, mask);
      else if (*mask)
        FL_CPU(load_row)
      (qn, type, to, v->dtype, from + p * x->p * size, x->q);
      else memset(to, 0, (size_t)(qn * wide));
      mask += mp ? mq ? qn : 1 : 0;
    }
    return;
  }
  if ((qn == 1 || x->q == 1) && (pn == 1 || x->p == (qn == 1 ? 1 : qn)))
    FL_CPU(load_row)(pn * qn, type, to, v->dtype, from, 1);
  else if (qn == 1)
    FL_CPU(load_row)(pn, type, to, v->dtype, from, x->p);
  else
    for (int64_t p = 0; p < pn; p++)
      FL_CPU(load_row)
  (qn, type, to + p * qn * wide, v->dtype, from + p * x->p * size, x->q);
}

void FL_CPU(nest_load)(nest_run *r, const fl_nest_step *s) {
  const nest *e = r->e;
  const fl_leaf *leaf = &e->t->leaves[s->what];
  char *to = r->buffers + (size_t)s->slot * r->room;
  if (s->in_place) {
    const char *data = e->l->in[leaf->operand].data;
    r->value[s->what] = data + nest_offset(r, &e->n->leaf[s->what]) * s->size;
  } else if (leaf->kind == FL_LEAF_COORD) {
    make_coordinates(r, &e->n->leaf[s->what], s->vary, (int64_t *)to);
    r->value[s->what] = to;
  } else if (leaf->kind == FL_LEAF_BITS) {
    load_bits(r, s, (float *)to);
    r->value[s->what] = to;
  } else {
    load_block(r, s, to);
  }
}

/* --- stores and spreads --- */

/* Repeats rows of one element, one row, or one element. */
static void spread_block(int64_t pn, int64_t qn, uint8_t vary, size_t size,
                         char *to, const char *from) {
  int64_t step_p = vary & FL_VARY_P ? 1 : 0;
  if (vary & FL_VARY_Q)
    for (int64_t p = 0; p < pn; p++)
      memcpy(to + (size_t)(p * qn) * size, from, (size_t)qn * size);
  else if (!step_p)
    FL_CPU(move_line)(size, pn * qn, to, 1, from, 0);
  else
    for (int64_t p = 0; p < pn; p++)
      FL_CPU(move_line)
  (size, qn, to + (size_t)(p * qn) * size, 1, from + (size_t)p * size, 0);
}

void FL_CPU(nest_store)(nest_run *r, const fl_nest_step *s) {
  const nest *e = r->e;
  const fl_nest_place *x = &e->n->store[s->what];
  fl_dtype dtype = e->l->out[e->t->stores[s->what].operand].dtype;
  int value = e->p->out[e->t->stores[s->what].value];
  fl_dtype type = (fl_dtype)s->type;
  uint8_t vary = e->n->vary[value] & FL_VARY_BLOCK;
  int64_t size = e->out_size[s->what], pn = rows_of(r, s->vary),
          qn = row_of(r, s->vary);
  const char *from = r->value[value];
  char *to = store_place(r, s->what);
  int64_t pitch = s->in_pitch[0];
  if (vary != s->vary && s->spread)
    from = r->value[e->values + value];
  else if (vary != s->vary) {
    spread_block(pn, qn, vary, s->size, r->spare, from);
    from = r->spare;
  }
  if (fl_store_sums(&e->t->stores[s->what])) {
    FL_CPU(columns_add)
    (pn, qn, type, r->cells + e->columns->first[s->what] + nest_offset(r, x),
     x->p, x->q, from, pitch ? pitch : qn * (int64_t)s->size);
    return;
  }
  if (e->t->stores[s->what].add) {
    fl_nest_along along = nest_along(r, x);
    FL_CPU(nest_add)
    (&along, pn, qn, dtype, to, x->p, x->q, from,
     pitch ? pitch : qn * (int64_t)s->size);
    return;
  }
  if (from == to && dtype == type)
    return;
  if (!pitch && (qn == 1 || x->q == 1) &&
      (pn == 1 || x->p == (qn == 1 ? 1 : qn)))
    FL_CPU(store_row)(pn * qn, dtype, to, 1, type, from);
  else if (qn == 1 && !pitch)
    FL_CPU(store_row)(pn, dtype, to, x->p, type, from);
  else
    for (int64_t p = 0; p < pn; p++)
      FL_CPU(store_row)
  (qn, dtype, to + p * x->p * size, x->q, type,
   from + p * (pitch ? pitch : qn * s->size));
}

void FL_CPU(nest_spread)(nest_run *r, const fl_nest_step *s) {
  const nest *e = r->e;
  char *to = r->buffers + (size_t)s->slot * r->room;
  spread_block(rows_of(r, s->vary), row_of(r, s->vary),
               e->n->vary[s->what] & FL_VARY_BLOCK, s->size, to,
               r->value[s->what]);
  r->value[e->values + s->what] = to;
}
