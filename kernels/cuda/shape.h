/* Arguments of the kernels in shape.cu. */
#ifndef FL_CUDA_SHAPE_H
#define FL_CUDA_SHAPE_H

#include "device/divisor.h"

enum { SHAPE_CONSTANT, SHAPE_REFLECT, SHAPE_REPLICATE, SHAPE_CIRCULAR };

#define SHAPE_DIMS 8

/* y[i] = x[where i comes from along each dim], or value; dims from the last. */
typedef struct remap_args {
  const void *x;
  void *y;
  int64_t n; /* elements of y */
  int ndim, mode;
  int64_t big[SHAPE_DIMS], small[SHAPE_DIMS]; /* sizes of y and of x */
  flc_divisor by[SHAPE_DIMS];                 /* the same as big */
  int64_t before[SHAPE_DIMS]; /* where x's first element is in y */
  int64_t stride[SHAPE_DIMS]; /* of x */
  uint64_t value[2];          /* its bits, repeated */
} remap_args;

/* Rows one after the other go to rows `pitch` apart; in units of a size. */
#define SHAPE_THREADS 256
#define SHAPE_UNITS   4 /* of a thread */
typedef struct lay_args {
  const void *from;
  void *to;
  int64_t n, pitch;
  flc_divisor row;
} lay_args;

/* dx[i] is the sum of the dy that came from it; dims from the last. */
typedef struct unpad_args {
  const void *dy;
  void *dx;
  int64_t n; /* elements of dx */
  int mode;
  int64_t big[SHAPE_DIMS], small[SHAPE_DIMS], before[SHAPE_DIMS];
} unpad_args;

/* Dims by stride, the smallest first. A view's element is at the sum of
 * coordinate times stride; reach is the most that this dim and those before it
 * add. */
typedef struct unstride_args {
  const void *dy;
  void *dx;
  int64_t n, offset; /* elements of dx; place of the view's first */
  int64_t size[SHAPE_DIMS], stride[SHAPE_DIMS], reach[SHAPE_DIMS];
  int64_t from[SHAPE_DIMS]; /* strides of dy */
} unstride_args;

/* Elements x columns matrices, of which one side of the diagonal is kept. */
typedef struct triangle_args {
  const void *x;
  void *y;
  int64_t n, diagonal;
  flc_divisor rows, columns;
  int upper;
} triangle_args;

enum { SHAPE_STEPS, SHAPE_WHOLE, SHAPE_EVEN, SHAPE_ENDS, SHAPE_DIAGONAL };

typedef struct sequence_args {
  void *y;
  int64_t n;
  double start, stop, step;
  int64_t first, by; /* integers; by: the step, the last one of even
                        steps, columns of a diagonal */
  int kind;
} sequence_args;

#endif
