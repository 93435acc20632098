/* Arguments of the kernels in loss.cu. Scores are outer x classes x inner; a
 * sample is one of outer x inner. */
#ifndef FL_CUDA_LOSS_H
#define FL_CUDA_LOSS_H

#include "refused.h"

enum { /* what the target is, and what else must be summed for it */
       LOSS_CLASS,
       LOSS_SMOOTH, /* a class, with smoothing */
       LOSS_SHARES  /* probabilities */
};

enum { LOSS_MEAN, LOSS_SUM, LOSS_NONE }; /* attribute `reduction` */

typedef struct loss_args {
  const void *x;
  const void *target; /* classes, or probabilities of the wide type */
  const void *weight; /* of the wide type; NULL: left out */
  const void *dy, *total;
  void *lse, *y, *dx, *total_out;
  double *losses; /* loss and weight of every sample, or of parts of them */
  double *parts;  /* where their sums go; NULL: to y and total_out */
  double *shares; /* of every sample: its classes' shares together */
  double *whole;  /* all classes' weights together */
  int64_t classes, inner, samples;
  int64_t ignore;
  int64_t piece, chunks; /* classes that a block takes (backward) */
  double smoothing, even;
  flc_fault fault;
  int lanes, mode, reduction;
  int target_dtype, dy_dtype, y_dtype, wide;
} loss_args;

#endif
