/* Memory at positions, for the kernel "tile": gathers and sums. */
#include "tile_positions.h"

#include "move.h"

#include <string.h>

static void keep_fault(fl_nest_fault *f, int which, int64_t at, int64_t bound) {
  int none = 0;
  if (!__atomic_compare_exchange_n(&f->taken, &none, which + 1, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return;
  f->at = at;
  f->bound = bound;
}

/* Position k as `stored`, counted from 0; -1: it is bad. */
static int64_t position_of(const fl_nest_along *a, int k, int64_t stored) {
  const fl_position *x = &a->t->positions[a->which[k]];
  int64_t at = x->from_end && stored < 0 && stored >= -x->bound
                   ? stored + x->bound
                   : stored - x->base;
  if ((uint64_t)at < (uint64_t)x->bound)
    return at;
  keep_fault(a->fault, a->which[k], at, x->bound);
  return -1;
}

/* Where element (p, q) lies from (p, q) without positions; false: nowhere. With
 * `sum` positions to skip are nowhere, too. */
static bool place_of(const fl_nest_along *a, int64_t p, int64_t q, bool sum,
                     int64_t *place) {
  bool good = true;
  *place = 0;
  for (int k = 0; k < a->n; k++) {
    int64_t stored = a->value[k][p * a->step_p[k] + q * a->step_q[k]];
    int64_t at = position_of(a, k, stored);
    good = good && at >= 0 && !(sum && at == a->t->positions[a->which[k]].skip);
    *place += at * a->coef[k];
  }
  return good;
}

static bool is_by_row(const fl_nest_along *a) {
  bool row = true;
  for (int k = 0; k < a->n; k++)
    row = row && a->step_q[k] == 0;
  return row;
}

/* A row whose elements have positions of their own, as memory has them. */
static void gather_row(const fl_nest_along *a, int64_t p, int64_t qn,
                       size_t size, char *to, const char *from, int64_t q) {
  for (int64_t i = 0; i < qn; i++) {
    int64_t at;
    bool good = place_of(a, p, i, false, &at) &&
                (!a->mask || a->mask[p * a->mask_p + i * a->mask_q]);
    at += i * q;
#define PICK(T) ((T *)to)[i] = good ? ((const T *)from)[at] : 0
    FL_BY_SIZE(size, PICK)
#undef PICK
  }
}

void FL_CPU(nest_gather)(const fl_nest_along *a, int64_t pn, int64_t qn,
                         fl_dtype type, char *to, fl_dtype dtype,
                         const char *from, int64_t p, int64_t q, char *spare) {
  size_t size = fl_dtype_size(dtype), wide = fl_dtype_size(type);
  bool by_row = !a->mask && is_by_row(a);
  for (int64_t i = 0; i < pn; i++, to += (size_t)qn * wide) {
    const char *row = from + i * p * (int64_t)size;
    int64_t at;
    if (!by_row) {
      gather_row(a, i, qn, size, spare, row, q);
      FL_CPU(load_row)(qn, type, to, dtype, spare, 1);
    } else if (place_of(a, i, 0, false, &at))
      FL_CPU(load_row)
    (qn, type, to, dtype, row + at * (int64_t)size, q);
    else memset(to, 0, (size_t)qn * wide);
  }
}

#define ADD(T, U)                                                              \
  static void add_##T(const fl_nest_along *a, int64_t pn, int64_t qn,          \
                      char *to, int64_t p, int64_t q, const char *from,        \
                      int64_t pitch) {                                         \
    bool by_row = is_by_row(a);                                                \
    for (int64_t i = 0; i < pn; i++, from += pitch) {                          \
      const U *x = (const U *)from;                                            \
      U *y = (U *)to + i * p;                                                  \
      int64_t at;                                                              \
      if (by_row && !place_of(a, i, 0, true, &at))                             \
        continue;                                                              \
      if (by_row && q == 1)                                                    \
        for (int64_t k = 0; k < qn; k++)                                       \
          y[at + k] += x[k];                                                   \
      else                                                                     \
        for (int64_t k = 0; k < qn; k++)                                       \
          if (by_row || place_of(a, i, k, true, &at))                          \
            y[at + k * q] += x[k];                                             \
    }                                                                          \
  }
ADD(f32, float)
ADD(f64, double)
ADD(i64, uint64_t)
#undef ADD

void FL_CPU(nest_add)(const fl_nest_along *a, int64_t pn, int64_t qn,
                      fl_dtype dtype, char *to, int64_t p, int64_t q,
                      const char *from, int64_t pitch) {
  if (dtype == FL_F32)
    add_f32(a, pn, qn, to, p, q, from, pitch);
  else if (dtype == FL_F64)
    add_f64(a, pn, qn, to, p, q, from, pitch);
  else
    add_i64(a, pn, qn, to, p, q, from, pitch);
}

fl_status FL_CPU(nest_refused)(const fl_launch *l, const fl_nest_fault *f) {
  int which = f->taken - 1;
  const fl_position *x = &l->tile->positions[which];
  fl_launch of = *l;
  of.op = x->op;
  of.base = x->base;
  fl_status s = fl_cpu_bad_position(&of, f->at, f->bound);
  fli_fail_of(fl_position_seq(l, which));
  return s;
}
