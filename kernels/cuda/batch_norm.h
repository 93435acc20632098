/* Arguments of the kernels in batch_norm.cu. The tensors are (samples,
 * channels, size); a plane is the space of one sample and channel. Where
 * channels are last, a pixel is a sample. */
#ifndef FL_CUDA_BATCH_NORM_H
#define FL_CUDA_BATCH_NORM_H

#define PLANES_FAR 64 /* as NORM_FAR of norm.h */

typedef struct plane_numbers { /* one for each channel, of any dtype */
  void *data;                  /* NULL: left out */
  int64_t stride;
  int dtype;
} plane_numbers;

typedef struct planes_args {
  const void *x, *dy;
  void *y;             /* or dx */
  void *a, *b, *c, *m; /* what is applied, of every channel or plane */
  int64_t factors;     /* how many of them */
  int64_t samples, channels, size, total;
  int64_t group;   /* channels of one */
  double *s1, *s2; /* mean and variance, or sums of dy and dy (x - mean) */
  plane_numbers weight, bias, running_mean, running_var;
  plane_numbers mean, rstd, dw, db;
  double eps, momentum, count;
  /* channels last: x is `samples` rows of channels. Blocks sum `each` rows for
   * `lanes` threads' channels into part: pieces of (2, channels) */
  void *part;
  int64_t each, pieces;
  int lanes;
  flc_fault fault;
  int training, wide; /* the dtype that a, b, c and m have */
  int type;           /* and that of x */
} planes_args;

#ifndef __CUDACC_RTC__
void flc_visit_batch_norm(flc_visitor *v);
#endif
#endif
