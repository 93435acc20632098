/* Arguments of the kernels in pooling.cu. */
#ifndef FL_CUDA_POOLING_H
#define FL_CUDA_POOLING_H

#include "device/divisor.h"

/* Spatial dims are (depth, height, width); those that are not there have size 1
 * and windows of 1. */
typedef struct pool_axis {
  int64_t in, out;
  int64_t kernel, stride, padding, dilation;
  flc_divisor by_in, by_out, by_stride;
} pool_axis;

typedef struct pool_args {
  pool_axis axis[3];
  const void *x; /* dy, for gradients */
  void *y;
  int64_t *where;
  int64_t planes, in, out; /* elements of a plane */
  int64_t n;               /* elements of y */
  /* channels last: planes are images, an element of which has so many channels,
   * in groups that a thread takes at once */
  int64_t channels;
  flc_divisor by_groups;
  int64_t base;
  int adaptive, count_pad;
} pool_args;

/* dx gets dy at positions of its planes, or its places as keys. */
typedef struct pool_put_args {
  flc_fault fault;
  const void *dy;
  const int64_t *where;
  void *dx;
  int64_t n;
  int64_t all;          /* elements of dx */
  flc_divisor in, out;  /* of a plane */
  flc_divisor channels; /* innermost ones; 1: none */
} pool_put_args;

#endif
