/* What pooling.c plans and pooling_typed.c computes. */
#ifndef FL_CPU_POOLING_H
#define FL_CPU_POOLING_H

#include "cpu.h"

#include <stdatomic.h>

#define POOL_BLOCK 256  /* results of a row done at once */
#define POOL_ROOM  2048 /* elements of a row, split by residues */

/* Spatial dims are (depth, height, width); those that are not there have size 1
 * and windows of 1. */
typedef struct pool_axis {
  int64_t in, out;
  int64_t kernel, stride, padding, dilation;
  int64_t *first, *end; /* means: elements of a result ... */
  double *weight;       /* ... and its weight */
} pool_axis;

typedef struct pooling {
  const fl_launch *l;
  pool_axis axis[3];
  const void *x; /* contiguous */
  void *y;
  int64_t *where;
  int64_t planes, in, out; /* elements of a plane */
  int base;
  /* Short strides: rows are split by residues; global indices begin..end of a
   * residue are elements, others padding. residues 0: not worth it. */
  int64_t residues, split, begin[4], end[4];
  int64_t *delta;      /* maxima: position of a tap, from the first one's */
  _Atomic int64_t bad; /* a position out of range, as stored */
  atomic_bool failed;
} pooling;

/* Pieces of work are rows of results, backward planes. Integers have maxima
 * alone, without gradients. */
typedef struct pooling_kernels {
  fl_cpu_task max, max_back, mean, mean_back;
} pooling_kernels;
extern const pooling_kernels FL_CPU(pooling_f32), FL_CPU(pooling_f64),
    FL_CPU(pooling_i64);

#endif
