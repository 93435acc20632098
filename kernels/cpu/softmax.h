/* What softmax.c plans and softmax_typed.c computes. */
#ifndef FL_CPU_SOFTMAX_H
#define FL_CPU_SOFTMAX_H

#include "cpu.h"

#define TILE 64 /* columns taken together */

/* The tensors are outer x n x inner. Long rows are cut into pieces. */
typedef struct softmax_job {
  int64_t n, inner, tiles, piece, pieces;
  const void *x; /* forward's input, or dy */
  const void *y; /* of the gradients; NULL: forward */
  void *out;
  bool logarithm;
  double *top, *sum; /* of every piece */
} softmax_job;

typedef struct softmax_kernels {
  fl_cpu_task task;       /* rows, or tiles of columns */
  fl_cpu_task begin, end; /* pieces of long rows: two passes */
  fl_cpu_task back_begin, back_end;
} softmax_kernels;
extern const softmax_kernels FL_CPU(softmax_f32), FL_CPU(softmax_f64);

#endif
