/* Factorizations of batches of matrices by LAPACK: matrices are dealt out to
 * the pool's threads, each with working memory of its own, and the first one
 * that cannot be done is named. Compiled once. */
#include "factor.h"

#include <math.h>
#include <string.h>

#define GRAIN   16384 /* multiplications worth a thread's while */
#define SHARES  32    /* pieces of a batch */
#define LONG    3e7   /* multiplications of a matrix that take tens of ms */
#define LARGEST 16384 /* rows or columns whose workspace LAPACK can count */

typedef struct deal {
  const fl_factor *c;
  fl_lapack_step f;
  int64_t grain;
  size_t each;
  char *room;
  int64_t bad[SHARES]; /* the first that failed of a piece, or -1 */
  int info[SHARES];
} deal;

static void factor_pieces(void *context, int64_t begin, int64_t end) {
  deal *d = context;
  int64_t share = begin / d->grain;
  for (int64_t b = begin;
       b < end && d->bad[share] < 0 && !fl_cpu_interrupted(d->c->l); b++)
    if ((d->info[share] = d->f(d->c, b, d->room + (size_t)share * d->each)))
      d->bad[share] = b;
}

static fl_status factor_failed(const fl_factor *c, int64_t b, int info,
                               fl_matrix_fault what) {
  if (info < 0 && info != STRANGE)
    return fli_fail(FL_EARG, "%s: LAPACK refused argument %d", c->l->op, -info);
  return fli_fail_matrix(c->l->op, info < 0 ? FL_MATRIX_STRANGE : what,
                         c->batch == 1 ? -1 : b, c->l->base, info);
}

/* f for every matrix, with room for so many numbers and integers; `what` it
 * means if it fails. */
static fl_status all(const fl_factor *c, fl_lapack_step f, int64_t numbers,
                     int64_t integers, double work, fl_matrix_fault what) {
  deal d = {.c = c, .f = f};
  if (c->m > LARGEST || c->n > LARGEST || c->k > INT32_MAX)
    return fli_fail(FL_ESIZE,
                    "%s: matrices of %lld x %lld are too large, %d "
                    "is the most",
                    c->l->op, (long long)c->m, (long long)c->n, LARGEST);
  int64_t worth = (int64_t)(GRAIN / (work + 1)) + 1;
  d.grain = fl_ceil_div(c->batch, SHARES);
  d.grain = d.grain > worth ? d.grain : worth;
  int64_t shares = fl_ceil_div(c->batch, d.grain);
  bool aside = work > LONG && fl_cpu_can_stop(c->l);
  d.each = (size_t)numbers * (c->wide ? 8 : 4) + (size_t)integers * 4;
  d.each = (d.each + FL_ALIGN) / FL_ALIGN * FL_ALIGN;
  d.room = fl_scratch_get(c->l, d.each * (size_t)shares);
  if (!d.room)
    return FL_ENOMEM;
  if (aside) { /* uses memory of its own; that above counts it */
    fl_status outcome = fl_lapack_detached(c, f, d.each, &d.bad[0], &d.info[0]);
    return outcome || d.bad[0] < 0
               ? outcome
               : factor_failed(c, d.bad[0], d.info[0], what);
  }
  for (int64_t k = 0; k < shares; k++)
    d.bad[k] = -1;
  fl_status s = fl_cpu_stoppable(c->l, c->batch, d.grain, factor_pieces, &d);
  if (s == FL_OK && fl_cpu_interrupted(c->l))
    s = fl_cpu_stopped(c->l);
  for (int64_t k = 0; k < shares && s == FL_OK; k++)
    if (d.bad[k] >= 0)
      s = factor_failed(c, d.bad[k], d.info[k], what);
  return s;
}

#define ONE(name) ((c->wide ? &FL_CPU(factor_f64) : &FL_CPU(factor_f32))->name)

static double cube(const fl_factor *c) {
  return (double)c->m * (double)c->n * (double)(c->m < c->n ? c->m : c->n);
}

fl_status fl_lapack_cholesky(fl_factor *c) {
  if (c->n == 0)
    return FL_OK;
  return all(c, ONE(cholesky), 1, 0, cube(c) / 3, FL_MATRIX_INDEFINITE);
}

fl_status fl_lapack_cholesky_pivoted(fl_factor *c) {
  return all(c, ONE(cholesky_pivoted), 2 * c->n, c->n, cube(c) / 3,
             FL_MATRIX_STRANGE);
}

fl_status fl_lapack_triangular_solve(fl_factor *c) {
  if (c->n == 0 || c->k == 0)
    return FL_OK;
  return all(c, ONE(triangular_solve), 1, 0, (double)(c->n * c->n * c->k),
             FL_MATRIX_DIAGONAL);
}

fl_status fl_lapack_solve(fl_factor *c) {
  if (c->n == 0 || c->k == 0)
    return FL_OK;
  return all(c, ONE(solve), c->n * c->n, c->n, cube(c), FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_inv(fl_factor *c) {
  if (c->n == 0)
    return FL_OK;
  return all(c, ONE(inv), c->n * c->n + c->n + c->n * BLOCK, 0, 2 * cube(c),
             FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_det(fl_factor *c) {
  return all(c, ONE(det), c->n * c->n, c->n, cube(c), FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_slogdet(fl_factor *c) {
  return all(c, ONE(slogdet), c->n * c->n, c->n, cube(c), FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_qr(fl_factor *c) {
  int64_t k = c->m < c->n ? c->m : c->n;
  return all(c, ONE(qr), c->m * c->n + k + (c->m + c->n) * BLOCK, 0,
             4 * cube(c), FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_lu_factor(fl_factor *c) {
  int64_t k = c->m < c->n ? c->m : c->n;
  return all(c, ONE(lu_factor), c->m * c->n, k, cube(c), FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_geqrf(fl_factor *c) {
  return all(c, ONE(geqrf), (c->m + c->n) * BLOCK, 0, 2 * cube(c),
             FL_MATRIX_SINGULAR);
}

fl_status fl_lapack_svd(fl_factor *c) {
  int64_t k = c->m < c->n ? c->m : c->n;
  return all(c, ONE(svd), c->m * c->n + SVD_WORK(c->m, c->n), 8 * k,
             20 * cube(c), FL_MATRIX_SLOW);
}

fl_status fl_lapack_pinv(fl_factor *c) {
  int64_t k = c->m < c->n ? c->m : c->n;
  return all(c, ONE(pinv),
             c->m * c->n + k + (c->m + c->n) * k + SVD_WORK(c->m, c->n), 8 * k,
             20 * cube(c), FL_MATRIX_SLOW);
}

fl_status fl_lapack_eigh(fl_factor *c) {
  return all(c, ONE(eigh), c->n * c->n + EIGH_WORK(c->n), 3 + 5 * c->n,
             9 * cube(c), FL_MATRIX_SLOW);
}

fl_status fl_lapack_eig_pairs(fl_factor *c) {
  return all(c, ONE(eig_pairs), 2 * c->n * c->n + 6 * c->n + BLOCK, 0,
             25 * cube(c), FL_MATRIX_SLOW);
}

/* --- the exponential --- */

/* Higham (2005): exp(A) is the [13/13] Pade approximant of A / 2^s, squared s
 * times, exact to the last bits of double where the norm is below THETA. */
#define THETA 5.371920351148152

static void factor_product(const fl_factor *c, const double *a, const double *b,
                           double by, double *y) {
  if (fl_lapack_abandoned(c)) /* y is not read then */
    return;
  double zero = 0;
  int n = (int)c->n;
  c->lib->dgemm_("N", "N", &n, &n, &n, &by, a, &n, b, &n, &zero, y, &n, 1, 1);
}

static double norm_of(int64_t n, const double *a) { /* NaN: not finite */
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
      sum += fabs(a[i * n + j]);
    most = sum > most || sum != sum ? sum : most;
  }
  return most <= 0x1p1000 ? most : NAN;
}

static int factor_exponential(const fl_factor *c, int64_t b, void *room) {
  static const double p[] = {64764752532480000.,
                             32382376266240000.,
                             7771770303897600.,
                             1187353796428800.,
                             129060195264000.,
                             10559470521600.,
                             670442572800.,
                             33522128640.,
                             1323241920.,
                             40840800.,
                             960960.,
                             16380.,
                             182.,
                             1.};
  int64_t n = c->n, size = n * n;
  const double *x = (const double *)c->in[0] + b * size;
  double *y = (double *)c->out[0] + b * size;
  double *a = room, *a2 = a + size, *a4 = a2 + size, *a6 = a4 + size,
         *u = a6 + size, *v = u + size, *t = v + size;
  int *pivots = (int *)(void *)(t + size), rows = (int)n, info = 0, squares = 0;
  double norm = norm_of(n, x);
  if (norm != norm) {
    for (int64_t i = 0; i < size; i++)
      y[i] = NAN;
    return 0;
  }
  if (norm > THETA)
    frexp(norm / THETA, &squares);
  for (int64_t i = 0; i < size; i++)
    a[i] = ldexp(x[i], -squares);
  factor_product(c, a, a, 1, a2);
  factor_product(c, a2, a2, 1, a4);
  factor_product(c, a2, a4, 1, a6);
  for (int64_t i = 0; i < size; i++) {
    bool diagonal = i % (n + 1) == 0;
    t[i] = p[13] * a6[i] + p[11] * a4[i] + p[9] * a2[i];
    y[i] = p[7] * a6[i] + p[5] * a4[i] + p[3] * a2[i] + p[1] * diagonal;
    v[i] = p[12] * a6[i] + p[10] * a4[i] + p[8] * a2[i];
  }
  factor_product(c, a6, t, 1, u);
  for (int64_t i = 0; i < size; i++)
    t[i] = u[i] + y[i];
  factor_product(c, a, t, 1, u); /* odd powers */
  factor_product(c, a6, v, 1, t);
  for (int64_t i = 0; i < size; i++) {
    bool diagonal = i % (n + 1) == 0;
    double even =
        t[i] + p[6] * a6[i] + p[4] * a4[i] + p[2] * a2[i] + p[0] * diagonal;
    y[i] = even + u[i];
    v[i] = even - u[i];
  }
  if (fl_lapack_abandoned(c))
    return 0;
  c->lib->dgetrf_(&rows, &rows, v, &rows, pivots, &info);
  /* (V - U) Y = V + U, column by column: forward, then back */
  double one = 1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n && pivots[i] != i + 1; j++) {
      double *q = y + j * n, s = q[i];
      q[i] = q[pivots[i] - 1];
      q[pivots[i] - 1] = s;
    }
  c->lib->dtrsm_("L", "L", "N", "U", &rows, &rows, &one, v, &rows, y, &rows, 1,
                 1, 1, 1);
  c->lib->dtrsm_("L", "U", "N", "N", &rows, &rows, &one, v, &rows, y, &rows, 1,
                 1, 1, 1);
  for (int s = 0; s < squares && !fl_lapack_abandoned(c); s++) {
    factor_product(c, y, y, 1, t);
    memcpy(y, t, (size_t)size * sizeof *y);
  }
  return 0;
}

fl_status fl_lapack_matrix_exp(fl_factor *c) {
  if (c->n == 0)
    return FL_OK;
  return all(c, factor_exponential, 7 * c->n * c->n, c->n, 10 * cube(c),
             FL_MATRIX_SINGULAR);
}
