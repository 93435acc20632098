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

/* A job and the type that its task is compiled for. */
typedef struct typed {
  fl_dtype type;
  const void *job;
} typed;

#define TYPED_TASK(name, job_type)                                             \
  static void name(void *context, int64_t begin, int64_t end) {                \
    const typed *t = context;                                                  \
    const job_type *e = t->job;                                                \
    if (t->type == FL_F32)                                                     \
      name##_f32(e, begin, end);                                               \
    else if (t->type == FL_F64)                                                \
      name##_f64(e, begin, end);                                               \
    else                                                                       \
      name##_i64(e, begin, end);                                               \
  }

#endif
