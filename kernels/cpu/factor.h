/* What factor.c deals out and factor_typed.c does with one matrix. */
#ifndef FL_CPU_FACTOR_H
#define FL_CPU_FACTOR_H

#include "lapack.h"

#define BLOCK   64    /* LAPACK's blocks are no wider */
#define STRANGE -1000 /* an inf or NaN where that cannot be */

/* Numbers of working memory that LAPACK's pages ask for, blocks included; what
 * is for integers follows them. */
#define SVD_WORK(m, n)                                                         \
  (4 * ((m) < (n) ? (m) : (n)) * ((m) < (n) ? (m) : (n)) +                     \
   7 * ((m) < (n) ? (m) : (n)) + ((m) + (n)) * BLOCK + 64)
#define EIGH_WORK(n) (1 + 6 * (n) + 2 * (n) * (n) + (n)*BLOCK)

typedef struct factor_kernels {
  fl_lapack_step cholesky, cholesky_pivoted, triangular_solve, solve, inv, det,
      slogdet, qr, lu_factor, geqrf, svd, pinv, eigh, eig_pairs;
} factor_kernels;
extern const factor_kernels FL_CPU(factor_f32), FL_CPU(factor_f64);

#endif
