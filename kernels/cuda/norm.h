/* Arguments of the kernels in norm.cu. Lines are n adjacent elements. */
#ifndef FL_CUDA_NORM_H
#define FL_CUDA_NORM_H

typedef struct norm_args {
  const void *x, *dy;        /* of dtypes of their own, as y */
  const void *weight, *bias; /* NULL: left out */
  void *y;                   /* or dx */
  void *mean, *rstd;         /* of the wide type; mean NULL: rms_norm */
  void *parts;               /* dw and db of every block or piece */
  void *dw, *db;
  double *sums; /* of long lines: mean and variance, or of gradients */
  int64_t n, lines;
  double eps, part; /* 1 / n */
  int64_t piece;    /* lines of a part (long) */
  int64_t chunks;   /* blocks of a long line */
  int n_parts;
  int lanes;
  int wide; /* weight and bias are of the wide type, not x's */
} norm_args;

#endif
