/* Arguments of the kernels in optim.cu. */
#ifndef FL_CUDA_OPTIM_H
#define FL_CUDA_OPTIM_H

#define OPTIM_GROUPS  5   /* parameter, gradient and three of state */
#define OPTIM_SLOTS   320 /* pointers of one launch: groups times tensors */
#define OPTIM_TENSORS 96
#define OPTIM_THREADS 256
#define OPTIM_CHUNK   8192 /* elements of a block */

enum {
  OPTIM_SGD,
  OPTIM_MOMENTUM,
  OPTIM_ADAM,
  OPTIM_AMSGRAD,
  OPTIM_RMSPROP,
  OPTIM_RMSPROP_MOMENTUM,
  OPTIM_CENTERED,
  OPTIM_CENTERED_MOMENTUM,
  OPTIM_ADAGRAD,
  OPTIM_LION,
  OPTIM_LERP,
  OPTIM_ASSIGN,
  OPTIM_SCALE
};

/* Norms by what is summed (or the most is taken of): x != 0, |x|, x^2, |x|,
 * |x|^p. */
enum { OPTIM_COUNT, OPTIM_SUM, OPTIM_SQUARES, OPTIM_MOST, OPTIM_ANY };

/* What changes from step to step: on the device, if the script keeps it there.
 */
typedef struct optim_now {
  double lr;
  double rate, root; /* Adam: lr over the first correction, 1 / sqrt of the
                        second */
} optim_now;

typedef struct optim_recipe {
  double decay, b1, b2, eps, momentum, damp;
  int decoupled, maximize, nesterov, first;
} optim_recipe;

/* Tensors of one launch, in blocks of OPTIM_CHUNK: tensor t has blocks
 * first[t] ... first[t + 1] - 1; group g of it is at[t * groups + g]. */
typedef struct optim_args {
  flc_fault fault;
  optim_recipe recipe;
  optim_now now;
  const optim_now *later; /* not NULL: instead of `now` */
  double p;               /* of a norm */
  double *parts;          /* a norm's sum of each block */
  int count;
  int dtype[OPTIM_GROUPS]; /* where the kernel is for any */
  unsigned first[OPTIM_TENSORS + 1];
  int64_t n[OPTIM_TENSORS];
  void *at[OPTIM_SLOTS];
} optim_args;

/* optim_now from numbers of which some are on the device. */
typedef struct optim_prepare {
  const void *lr, *step; /* NULL: the values below */
  int lr_dtype, step_dtype;
  double lr_value, step_value, b1, b2;
  optim_now *to;
} optim_prepare;

typedef struct optim_finish {
  const double *parts;
  int64_t n;
  double p;
  void *y;
  int dtype;
} optim_finish;

#endif
