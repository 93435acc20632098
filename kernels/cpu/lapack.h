/* LAPACK found at run time, and the factorizations over it. Both are compiled
 * once: linalg.c brings operands of any dtype and strides as contiguous batches
 * of matrices in float or double. */
#ifndef FL_CPU_LAPACK_H
#define FL_CPU_LAPACK_H

#include "cpu.h"

#include <stdatomic.h>

typedef struct fl_lapack {
#define FL_LAPACK(T, name, symbol, params) void(*symbol) params;
#include "lapack.def"
} fl_lapack;

/* NULL with a message: there is no such library, `op` needs it. */
const fl_lapack *fl_lapack_get(const char *op);

/* A batch of matrices, m x n each and row by row, with what is asked of it. */
typedef struct fl_factor {
  const fl_launch *l;
  const fl_lapack *lib;
  bool wide; /* double, else float */
  int64_t batch, m, n;
  int64_t k; /* columns of the right-hand sides */
  const void *in[2];
  void *out[3];
  size_t in_bytes[2], out_bytes[3];
  const atomic_bool *abandoned; /* NULL: the caller waits for the result */
} fl_factor;

/* What is done with matrix b; 0, or what went wrong. */
typedef int (*fl_lapack_step)(const fl_factor *c, int64_t b, void *room);

/* f for every matrix on threads aside, each with so many bytes of working
 * memory (lapack_thread.c). EINTERRUPT: the caller is to stop, the threads go
 * on. *bad: the first matrix that failed, or -1. */
fl_status fl_lapack_detached(const fl_factor *c, fl_lapack_step f, size_t each,
                             int64_t *bad, int *info);

/* The result is not wanted any more: between two calls of LAPACK. */
static inline bool fl_lapack_abandoned(const fl_factor *c) {
  return c->abandoned && atomic_load(c->abandoned);
}

typedef fl_status (*fl_factorization)(fl_factor *c);

/* By the names of their rows; attributes are read from the launch. */
fl_status fl_lapack_cholesky(fl_factor *c);
fl_status fl_lapack_cholesky_pivoted(fl_factor *c);
fl_status fl_lapack_triangular_solve(fl_factor *c);
fl_status fl_lapack_solve(fl_factor *c);
fl_status fl_lapack_inv(fl_factor *c);
fl_status fl_lapack_det(fl_factor *c);
fl_status fl_lapack_slogdet(fl_factor *c);
fl_status fl_lapack_qr(fl_factor *c);
fl_status fl_lapack_lu_factor(fl_factor *c);
fl_status fl_lapack_geqrf(fl_factor *c);
fl_status fl_lapack_svd(fl_factor *c);
fl_status fl_lapack_pinv(fl_factor *c);
fl_status fl_lapack_eigh(fl_factor *c);
fl_status fl_lapack_eig_pairs(fl_factor *c);
fl_status fl_lapack_matrix_exp(fl_factor *c);

#endif
