/* What loss.c plans and loss_typed.c computes. */
#ifndef FL_CPU_LOSS_H
#define FL_CPU_LOSS_H

#include "cpu.h"

#define TILE 64 /* samples taken together */

/* x is outer x classes x inner; a task is a tile of up to TILE samples:
 * adjacent rows when inner is 1, else adjacent columns. */
typedef struct loss_job {
  int64_t outer, classes, inner, tiles, width;
  const void *x, *weight, *probabilities;
  const int64_t *target; /* as given: counted from base */
  int64_t ignore;
  int base;
  double smoothing;
  double even;      /* of the smoothing for each class */
  double weights;   /* their sum */
  double scale;     /* dy of a loss that is one number, per weight */
  const void *each; /* dy of every sample */
  void *lse, *dx;
  double *losses, *totals; /* of every sample */
} loss_job;

typedef struct loss_kernels {
  fl_cpu_task forward, backward;
} loss_kernels;
extern const loss_kernels FL_CPU(loss_f32), FL_CPU(loss_f64);

#endif
