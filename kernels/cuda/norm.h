/* Arguments of the kernels in norm.cu. Lines are n adjacent elements. */
#ifndef FL_CUDA_NORM_H
#define FL_CUDA_NORM_H

#define NORM_FAR 64 /* the rounding of a mean of so many deviations counts */

#define NORM_MORE 4 /* operands, and sums, of what is behind a gradient */

typedef struct norm_args {
  const void *x, *dy;        /* of dtypes of their own, as y */
  const void *weight, *bias; /* NULL: left out */
  void *y;                   /* or dx */
  void *mean, *rstd;         /* of the wide type; mean NULL: rms_norm */
  void *parts; /* dw and db of every block or piece, and sums behind them */
  void *dw, *db;
  const void *in[NORM_MORE]; /* what is behind reads, and writes, elements */
  void *out[NORM_MORE];
  struct norm_sum {
    void *to; /* NULL: left out */
    int dtype, round;
  } sum[2 + NORM_MORE]; /* dw and db first */
  double *sums;         /* of long lines: 2 for each, of gradients 3 */
  int64_t n, lines;
  double eps, part;   /* 1 / n */
  int64_t piece;      /* lines of a part (long) */
  int64_t chunks;     /* blocks of a long line */
  int n_parts, kinds; /* kinds of sums in each part */
  int lanes;
  int wide; /* weight and bias are of the wide type, not x's */
} norm_args;

#endif
