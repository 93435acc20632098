/* What the kernels of grouped_mm get. Strides are in elements. */
#ifndef FL_CUDA_GROUPED_H
#define FL_CUDA_GROUPED_H

#include "gemm.h"

/* Products of groups: g has the whole, in which rows of A and C, or the sum,
 * are cut into groups of one after the other. */
typedef struct grouped_args {
  gemm_args g;
  const int64_t *ends; /* of the groups */
  flc_fault fault;
  int64_t bstep;     /* from one matrix of B to the next, where rows are cut */
  int groups, total; /* total: rows, or elements of the sum */
} grouped_args;

typedef struct grouped_sm90 {
  gemm_map a, b;
  grouped_args h;
} grouped_sm90;

#endif
