/* What resample.c plans and resample_typed.c computes. */
#ifndef FL_CPU_RESAMPLE_H
#define FL_CPU_RESAMPLE_H

#include "cpu.h"

/* Result j is the sum of weight[i] x[at[i]], first[j] <= i < first[j + 1].
 * band: if all have as many, the same by term, for vectors of results. */
typedef struct table {
  int64_t n, results, band;
  int64_t *first, *at;
  double *weight;
  int32_t *band_at; /* (band, results) */
  void *band_weight;
} table;

/* x (outer, n, inner) to y (outer, results, inner). */
typedef struct work {
  table t;
  int64_t outer, inner, cut, cuts; /* results of a piece */
  size_t size;                     /* of an element that is only moved */
  const void *fill;                /* one of these, where there is none */
  double none;                     /* what a sum of nothing is */
  const void *x;
  void *y;
} work;

typedef struct resample_kernels {
  fl_cpu_task sums; /* pieces of lines' results */
} resample_kernels;
extern const resample_kernels FL_CPU(resample_f32), FL_CPU(resample_f64);

#endif
