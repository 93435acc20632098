/* Arguments of the kernel in complex.cu: products of complex numbers. */
#ifndef FL_CUDA_COMPLEX_H
#define FL_CUDA_COMPLEX_H

#include "device/divisor.h"

#define PAIRS_DIMS 8

typedef struct pairs_args {
  const void *x[2];
  void *y;
  int64_t n;   /* pairs of the result, which is contiguous */
  double sign; /* -1: of the second factor's conjugate */
  int ndim;
  flc_divisor size[PAIRS_DIMS];
  int64_t stride[2][PAIRS_DIMS]; /* elements from pair to pair */
  int64_t inside[2];             /* elements from real to imaginary part */
} pairs_args;

#endif
