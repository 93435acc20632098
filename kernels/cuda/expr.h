/* What the kernels of fused expressions get: see expr.c. Included by host and
 * device code. */
#ifndef FL_CUDA_EXPR_H
#define FL_CUDA_EXPR_H

#define EXPR_IN       14
#define EXPR_OPERANDS 19 /* the inputs, then the results */
#define EXPR_DIMS     8
#define EXPR_BITS     8
#define EXPR_THREADS  (1 << EXPR_BITS)

typedef struct expr_axis {
  int64_t size;
  int64_t stride[EXPR_OPERANDS]; /* elements */
} expr_axis;

/* Axes: those kept, then those reduced; the last of each kind runs fastest. */
typedef struct expr_args {
  int64_t n;       /* elements of the result */
  int64_t reduced; /* elements of each of them */
  int64_t segment; /* of the reduced ones, what a block takes */
  int segments;
  int lane_bits; /* 1 << lane_bits threads share a result */
  int n_keep, n_red;
  void *data[EXPR_OPERANDS]; /* NULL: a number */
  void *partial;             /* segments x n accumulators; NULL: one segment */
  int64_t number[EXPR_IN];   /* the bytes of those */
  expr_axis axis[EXPR_DIMS];
} expr_args;

/* What folds the segments' accumulators into the results. */
typedef struct expr_fold {
  int64_t n;
  int segments;
  const void *partial;
  void *y;
} expr_fold;

#endif
