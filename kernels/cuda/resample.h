/* Arguments of the kernels in resample.cu. */
#ifndef FL_CUDA_RESAMPLE_H
#define FL_CUDA_RESAMPLE_H

#include "device/divisor.h"

/* Where results lie among n elements, as the row's attributes say. */
typedef struct sampling {
  int64_t n, results, taps; /* taps: the most terms of a result */
  double start, step, cubic, outside, wide;
  int mode, rounding, exclude;
} sampling;

/* Result j is the sum of count[j] terms, the k-th at k * results + j: so much
 * (weight, float or double as it is computed) of element `at`. Places do not
 * decrease with j if step is not negative. Threads take vectors of y: of
 * elements side by side of one result, or of results where inner is 1. */
typedef struct resample_args {
  sampling s;
  int *count;
  int64_t *at;
  void *weight;
  const void *x;
  void *y;
  int64_t inner, total;           /* total: vectors of y */
  flc_divisor by_inner, by_along; /* how many vectors there are of each */
  uint64_t fill;                  /* an element, where there is none */
} resample_args;

#endif
