/* Arguments of the kernels in linalg.cu: batches of matrices, contiguous, rows
 * x cols unless a comment says otherwise. */
#ifndef FL_CUDA_LINALG_H
#define FL_CUDA_LINALG_H

typedef struct matrices_args {
  const void *x;
  void *y;
  int *code; /* of each matrix: 0, or what is wrong with it */
  int64_t batch, rows, cols;
  int64_t pieces; /* blocks for each matrix */
  int triangle;   /* 1: what is on and above the diagonal counts, -1: on and
                     below it, 0: all */
} matrices_args;

/* An LU factorization, looked at: what it says of a matrix, and the order of
 * rows that its exchanges leave. */
typedef struct lu_args {
  const void *lu;     /* n x n each */
  const void *pivots; /* from 1 */
  bool wide;          /* they are i64, else i32 */
  const int *strange; /* what had an inf or NaN before */
  int *code;          /* the pivot that is zero, from 1; or LINALG_NAN */
  int *order;         /* n of each */
  void *sign, *size;  /* the determinant's; size NULL: sign is all of it */
  int64_t n;
} lu_args;
#define LINALG_NAN (-1)

typedef struct reorder_args {
  const void *x; /* n x k each */
  void *y;
  const int *order, *code; /* of a matrix of the batch, or of all */
  int64_t n, k, batch;
  bool one; /* there is one order */
} reorder_args;

/* Reports the first matrix without a result to the host. */
typedef struct verdict_args {
  const int *code, *strange; /* strange: an error by itself; or NULL */
  int64_t batch;
  int kind, strange_kind;
  flc_fault fault;
} verdict_args;

typedef struct pointers_args {
  void **p;
  char *base;
  int64_t step, n; /* bytes */
} pointers_args;

/* V S^+: column j of v (n x k, column by column) over s[j], if that counts. */
typedef struct inverse_args {
  void *v;
  const void *s;
  int64_t batch, n, k, step; /* step: from one v to the next */
  double rcond;
} inverse_args;

/* Columns of real numbers, where conjugate pairs share two, as pairs. */
typedef struct pairs_args {
  const void *v, *w; /* n x n column by column, n pairs */
  void *y;
  int64_t batch, n;
} pairs_args;

/* q (m x wide) and r (wide x n) of x. */
typedef struct qr_args {
  const void *x;
  void *q, *r;
  int64_t m, n, wide;
} qr_args;

/* The exponential, in double; what is added up between products. */
enum {
  LINALG_EXP_SCALE,
  LINALG_EXP_FIRST,
  LINALG_EXP_NEXT,
  LINALG_EXP_SQUARE,
  LINALG_EXP_DONE
};
typedef struct exp_args {
  const double *x;
  double *a, *a2, *a3, *a4, *t, *u, *y;
  int *squares; /* of each matrix; one more: the most */
  double q[5];  /* 1 / (4 k)! and on */
  int64_t batch, n;
  int step;
} exp_args;

#endif
