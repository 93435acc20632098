/* What reductions and scans share: the dim that they run along, the type that
 * they compute in, how a long row is divided among threads. */
#ifndef FL_CPU_AXIS_H
#define FL_CPU_AXIS_H

#include "cpu.h"

#define GRAIN 16384 /* elements worth a thread's while */

static inline int64_t clamp_to(int64_t v, int64_t lo, int64_t hi) {
  return v < lo ? lo : v > hi ? hi : v;
}

static inline fl_dtype compute_type(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT ? fl_cpu_wide(d) : FL_I64;
}

/* Outer x n x inner around dim d; d < 0: one row of everything. */
static inline int64_t split_around(const fl_view *v, int64_t d, int64_t *n,
                                   int64_t *inner) {
  int64_t outer = 1;
  *n = *inner = 1;
  for (int k = 0; k < v->ndim; k++)
    *(d < 0 || k == d ? n : k < d ? &outer : inner) *= v->shape[k];
  return outer;
}

/* Rows longer than two pieces are cut. */
static inline void cut_row(int64_t n, int64_t *piece, int64_t *pieces) {
  *pieces = n > 4 * GRAIN ? fl_ceil_div(n, 2 * GRAIN) : 1;
  *piece = fl_ceil_div(n, *pieces);
  *pieces = fl_ceil_div(n, *piece);
}

#endif
