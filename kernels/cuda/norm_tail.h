/* What norm.c runs behind the gradient of a norm, in its kernel. Host code
 * alone. */
#ifndef FL_CUDA_NORM_TAIL_H
#define FL_CUDA_NORM_TAIL_H

#include "cuda.h"
#include "norm.h"

typedef struct norm_tail {
  const char *text; /* in front of norm.cu */
  int operand;      /* of the tile, which dx is */
  int bytes;        /* that an element of dx reads besides */
  int n_in, n_out, n_sums;
  const void *in[NORM_MORE];
  void *out[NORM_MORE];
  struct norm_sum sum[NORM_MORE];
} norm_tail;

/* The launch of a tile over lines of n elements; false: the kernel cannot be
 * joined with it. */
bool flc_norm_tail(const fl_launch *l, int operand, int64_t n, norm_tail *t);
/* A residual that is added, a result of 16 bits more, and a sum: for the check
 * of kernels, since texts of users are in no pack. */
extern const char flc_norm_sample[];

/* The gradient of a norm and the tile behind it in one kernel, if that can be,
 * and is compiled; else *done is false. `operand`: of the tile, dx. */
fl_status flc_norm_joint(const fl_launch *row, const fl_launch *tile,
                         int operand, bool *done);

#endif
