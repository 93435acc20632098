/* What the kernels of fused expressions get: see expr.c. Included by host and
 * device code. */
#ifndef FL_CUDA_EXPR_H
#define FL_CUDA_EXPR_H

#define EXPR_IN       14
#define EXPR_OPERANDS 19 /* the inputs, then the results */
#define EXPR_DIMS     8
#define EXPR_THREADS  256

/* An operand that is a number: which one counts is the type it is read as. */
typedef struct expr_number {
  double f;
  int64_t i;
} expr_number;

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
  int lanes; /* threads that share a result, a power of 2 */
  int n_keep, n_red;
  void *data[EXPR_OPERANDS]; /* NULL: a number */
  void *partial;             /* segments x n accumulators; NULL: one segment */
  expr_number number[EXPR_IN];
  expr_axis axis[EXPR_DIMS];
} expr_args;

#endif
