/* What factor.c does with one matrix, for one type. Rows of ours are columns of
 * LAPACK's: what it is given is the transposed matrix, and calls are chosen so
 * that nothing needs to be turned round. Each returns 0, or what went wrong.
 * Compiled once for each type, not for each instruction set. */
#include "factor.h"
#include "typed.h"

#include <math.h>
#include <string.h>

#if FL_T_IS_F32
#define LA(name) s##name##_
#else
#define LA(name) d##name##_
#endif
#define A(k, size) ((const T *)c->in[k] + b * (size))
#define Y(k, size) ((T *)c->out[k] + b * (size))

static int is_finite(int64_t n, const T *x) {
  T sum = 0; /* of zeros, NaN if one is not finite */
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * 0;
  return sum == 0;
}

static void turn(int64_t m, int64_t n, const T *x, T *y) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      y[j * m + i] = x[i * n + j];
}

static void unit(int64_t n, T *y) {
  memset(y, 0, (size_t)(n * n) * sizeof *y);
  for (int64_t i = 0; i < n; i++)
    y[i * n + i] = 1;
}

/* A lower triangle row by row is an upper one column by column. */
static int cholesky(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, info = 0;
  bool upper = c->l->attrs->v[FL_ATTR_cholesky_upper].i;
  T *y = Y(0, c->n * c->n);
  (void)room;
  memcpy(y, A(0, c->n * c->n), (size_t)(c->n * c->n) * sizeof *y);
  c->lib->LA(potrf)(upper ? "L" : "U", &n, y, &n, &info, 1);
  for (int64_t i = 0; i < n && info == 0; i++)
    if (y[i * n + i] != y[i * n + i]) /* some let NaN pass */
      info = (int)i + 1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = upper ? 0 : i + 1; j < (upper ? i : n); j++)
      y[i * n + j] = 0;
  return info;
}

/* Numbers stand for positions: fewer than 2^24. */
static int cholesky_pivoted(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, info = 0, rank = 0;
  bool upper = c->l->attrs->v[FL_ATTR_cholesky_pivoted_upper].i;
  double given = c->l->attrs->v[FL_ATTR_cholesky_pivoted_tol].f;
  T *y = Y(0, c->n * c->n), *order = Y(1, c->n), *work = room;
  T tol = given == given ? (T)given : -1; /* below 0: LAPACK's own */
  int *pivots = (int *)(void *)(work + 2 * c->n);
  memcpy(y, A(0, c->n * c->n), (size_t)(c->n * c->n) * sizeof *y);
  for (int64_t i = 0; i < n; i++) /* the other triangle is not read */
    if (!is_finite(upper ? n - i : i + 1, y + i * n + (upper ? i : 0)))
      return STRANGE;
  if (n)
    c->lib->LA(pstrf)(upper ? "L" : "U", &n, y, &n, pivots, &rank, &tol, work,
                      &info, 1);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++)
      if ((upper ? j < i : j > i) || (i >= rank && j >= rank))
        y[i * n + j] = 0;
    order[i] = (T)(pivots[i] - 1 + c->l->base);
  }
  *Y(2, 1) = (T)rank;
  return info < 0 ? info : 0;
}

/* The solution's rows are combined: X^T op(A)^T = B^T. */
static int triangular_solve(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, k = (int)c->k;
  const fl_attr *v = c->l->attrs->v;
  bool upper = v[FL_ATTR_triangular_solve_upper].i,
       transpose = v[FL_ATTR_triangular_solve_transpose].i,
       unit_diagonal = v[FL_ATTR_triangular_solve_unitriangular].i;
  const T *a = A(0, c->n * c->n), one = 1;
  T *y = Y(0, c->n * c->k);
  (void)room;
  for (int64_t i = 0; i < n && !unit_diagonal; i++)
    if (a[i * n + i] == 0)
      return (int)i + 1;
  memcpy(y, A(1, c->n * c->k), (size_t)(c->n * c->k) * sizeof *y);
  c->lib->LA(trsm)("R", upper ? "L" : "U", transpose ? "T" : "N",
                   unit_diagonal ? "U" : "N", &k, &n, &one, a, &n, y, &k, 1, 1,
                   1, 1);
  return 0;
}

/* A's LU in `room`, followed by the pivots. */
static int lu(const fl_factor *c, int64_t b, void *room, T **a, int **pivots) {
  int n = (int)c->n, info = 0;
  *a = room;
  *pivots = (int *)(void *)(*a + c->n * c->n);
  if (n == 0)
    return 0;
  memcpy(*a, A(0, c->n * c->n), (size_t)(c->n * c->n) * sizeof **a);
  c->lib->LA(getrf)(&n, &n, *a, &n, *pivots, &info);
  return info;
}

/* Factors of something with a NaN give nothing but NaN, or zeros. */
static int is_nan(int64_t n, const T *a, int64_t size, T *y) {
  T sum = 0;
  for (int64_t i = 0; i < n * n; i++)
    sum += a[i] != a[i];
  for (int64_t i = 0; i < size && sum > 0; i++)
    y[i] = (T)NAN;
  return sum > 0;
}

/* A^T = P L U, so X^T = B^T U^-1 L^-1 P^-1: rows of X change places last. */
static int solve(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, k = (int)c->k, *pivots;
  T *a, *y = Y(0, c->n * c->k), one = 1;
  int info = lu(c, b, room, &a, &pivots);
  if (is_nan(c->n, a, c->n * c->k, y))
    return 0;
  if (info)
    return info;
  memcpy(y, A(1, c->n * c->k), (size_t)(c->n * c->k) * sizeof *y);
  c->lib->LA(trsm)("R", "U", "N", "N", &k, &n, &one, a, &n, y, &k, 1, 1, 1, 1);
  c->lib->LA(trsm)("R", "L", "N", "U", &k, &n, &one, a, &n, y, &k, 1, 1, 1, 1);
  for (int64_t i = c->n - 1; i >= 0; i--) {
    T *p = y + i * c->k, *q = y + (int64_t)(pivots[i] - 1) * c->k;
    for (int64_t j = 0; j < c->k && p != q; j++) {
      T t = p[j];
      p[j] = q[j];
      q[j] = t;
    }
  }
  return 0;
}

static int inverse(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, info = 0, *pivots, lwork = (int)(c->n * BLOCK);
  T *a;
  info = lu(c, b, room, &a, &pivots);
  if (is_nan(c->n, a, c->n * c->n, Y(0, c->n * c->n)))
    return 0;
  if (info)
    return info;
  T *work = a + c->n * c->n + c->n; /* behind the pivots */
  c->lib->LA(getri)(&n, a, &n, pivots, work, &lwork, &info);
  memcpy(Y(0, c->n * c->n), a, (size_t)(c->n * c->n) * sizeof *a);
  return info;
}

static int det(const fl_factor *c, int64_t b, void *room) {
  int *pivots;
  T *a, y = 1;
  lu(c, b, room, &a, &pivots);
  for (int64_t i = 0; i < c->n; i++)
    y *= pivots[i] == i + 1 ? a[i * c->n + i] : -a[i * c->n + i];
  *Y(0, 1) = y;
  return 0;
}

static int slogdet(const fl_factor *c, int64_t b, void *room) {
  int *pivots;
  T *a, sign = 1, sum = 0;
  lu(c, b, room, &a, &pivots);
  for (int64_t i = 0; i < c->n; i++) {
    T d = a[i * c->n + i];
    bool minus = (d < 0) != (pivots[i] != i + 1);
    sign = d == 0 || sign == 0 ? 0 : d != d ? d : minus ? -sign : sign;
    sum += (T)log(fabs((double)d));
  }
  *Y(0, 1) = sign;
  *Y(1, 1) = sum;
  return 0;
}

/* A^T = L Q': R is L^T, which lies in place, and Q is Q'^T. */
static int qr(const fl_factor *c, int64_t b, void *room) {
  int64_t k = c->m < c->n ? c->m : c->n,
          wide = c->l->attrs->v[FL_ATTR_qr_mode].i ? c->m : k;
  int m = (int)c->m, n = (int)c->n, few = (int)k, all = (int)wide, info = 0;
  int lwork = (int)((c->m + c->n) * BLOCK);
  T *a = room, *tau = a + c->m * c->n, *work = tau + k;
  T *q = Y(0, c->m * wide), *r = Y(1, wide * c->n);
  memcpy(a, A(0, c->m * c->n), (size_t)(c->m * c->n) * sizeof *a);
  if (k) {
    c->lib->LA(gelqf)(&n, &m, a, &n, tau, work, &lwork, &info);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < wide; j++)
        q[i * wide + j] = j < k ? a[i * n + j] : 0;
    c->lib->LA(orglq)(&all, &m, &few, q, &all, tau, work, &lwork, &info);
  } else if (wide)
    unit(wide, q);
  for (int64_t i = 0; i < wide; i++)
    for (int64_t j = 0; j < n; j++)
      r[i * n + j] = j >= i && i < k ? a[i * n + j] : 0;
  return info;
}

static int lu_factor(const fl_factor *c, int64_t b, void *room) {
  int m = (int)c->m, n = (int)c->n, info = 0;
  int64_t k = c->m < c->n ? c->m : c->n;
  T *a = room, *order = Y(1, c->m);
  int *pivots = (int *)(void *)(a + c->m * c->n);
  turn(m, n, A(0, c->m * c->n), a);
  if (k)
    c->lib->LA(getrf)(&m, &n, a, &m, pivots, &info);
  turn(n, m, a, Y(0, c->m * c->n));
  for (int64_t i = 0; i < m; i++)
    order[i] = (T)(i + c->l->base);
  for (int64_t i = 0; i < k; i++) {
    T t = order[i];
    order[i] = order[pivots[i] - 1];
    order[pivots[i] - 1] = t;
  }
  return info < 0 ? info : 0;
}

/* A^T = L Q': the reflections of its rows are those of A's columns. */
static int geqrf(const fl_factor *c, int64_t b, void *room) {
  int m = (int)c->m, n = (int)c->n, info = 0;
  int lwork = (int)((c->m + c->n) * BLOCK);
  int64_t k = c->m < c->n ? c->m : c->n;
  T *a = Y(0, c->m * c->n);
  memcpy(a, A(0, c->m * c->n), (size_t)(c->m * c->n) * sizeof *a);
  if (k)
    c->lib->LA(gelqf)(&n, &m, a, &n, Y(1, k), room, &lwork, &info);
  return info;
}

/* A^T = U' S V'^T: U of ours is V', V^T is U'^T. */
static int gesdd(const fl_factor *c, const char *job, T *a, T *s, T *u,
                 int64_t wide, T *vh, T *work) {
  int64_t k = c->m < c->n ? c->m : c->n;
  int m = (int)c->m, n = (int)c->n, ldu = (int)wide, info = 0;
  int64_t room = SVD_WORK(c->m, c->n);
  int lwork = (int)room, *iwork = (int *)(void *)(work + room);
  (void)k;
  c->lib->LA(gesdd)(job, &n, &m, a, &n, s, vh, &n, u, &ldu, work, &lwork, iwork,
                    &info, 1);
  return info;
}

static int svd(const fl_factor *c, int64_t b, void *room) {
  int64_t k = c->m < c->n ? c->m : c->n;
  bool full = c->l->attrs->v[FL_ATTR_svd_full_matrices].i;
  int64_t wu = full ? c->m : k, wv = full ? c->n : k;
  T *a = room, *u = Y(0, c->m * wu), *vh = Y(2, wv * c->n);
  const T *x = A(0, c->m * c->n);
  if (k == 0) {
    if (wu)
      unit(wu, u);
    if (wv)
      unit(wv, vh);
    return 0;
  }
  if (!is_finite(c->m * c->n, x))
    return STRANGE;
  memcpy(a, x, (size_t)(c->m * c->n) * sizeof *a);
  return gesdd(c, full ? "A" : "S", a, Y(1, k), u, wu, vh, a + c->m * c->n);
}

/* V S^+ U^T, without the singular values below rcond times the largest. */
static int pinv(const fl_factor *c, int64_t b, void *room) {
  int64_t k = c->m < c->n ? c->m : c->n, size = c->m * c->n;
  double rcond = c->l->attrs->v[FL_ATTR_pinv_rcond].f;
  T *a = room, *s = a + size, *u = s + k, *vh = u + c->m * k, one = 1, zero = 0;
  const T *x = A(0, size);
  if (k == 0)
    return 0;
  if (!is_finite(size, x))
    return STRANGE;
  memcpy(a, x, (size_t)size * sizeof *a);
  int info = gesdd(c, "S", a, s, u, k, vh, vh + k * c->n);
  if (info)
    return info;
  if (rcond != rcond)
    rcond = (double)(c->m > c->n ? c->m : c->n) *
            (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52);
  for (int64_t j = 0; j < k; j++) {
    T by = s[j] > (T)rcond * s[0] ? 1 / s[j] : 0;
    for (int64_t i = 0; i < c->m; i++)
      u[i * k + j] *= by;
  }
  int m = (int)c->m, n = (int)c->n, few = (int)k;
  c->lib->LA(gemm)("T", "T", &m, &n, &few, &one, u, &few, vh, &n, &zero,
                   Y(0, size), &m, 1, 1);
  return 0;
}

static int eigh(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, info = 0;
  int64_t size = c->n * c->n, doubles = EIGH_WORK(c->n);
  int lwork = (int)doubles, liwork = (int)(3 + 5 * c->n);
  T *a = room, *work = a + size;
  int *iwork = (int *)(void *)(work + doubles);
  const T *x = A(0, size);
  bool upper = c->l->attrs->v[FL_ATTR_eigh_upper].i;
  if (n == 0)
    return 0;
  for (int64_t i = 0; i < n; i++) { /* the other triangle is not read */
    int64_t first = upper ? i : 0, last = upper ? n : i + 1;
    if (!is_finite(last - first, x + i * n + first))
      return STRANGE;
  }
  memcpy(a, x, (size_t)size * sizeof *a);
  c->lib->LA(syevd)("V", upper ? "L" : "U", &n, a, &n, Y(0, c->n), work, &lwork,
                    iwork, &liwork, &info, 1, 1);
  turn(n, n, a, Y(1, size));
  return info;
}

/* Conjugate pairs share two columns: the real and the imaginary part. */
static int eig_pairs(const fl_factor *c, int64_t b, void *room) {
  int n = (int)c->n, info = 0, one = 1, lwork = (int)(4 * c->n + BLOCK);
  int64_t size = c->n * c->n;
  T *a = room, *v = a + size, *re = v + size, *im = re + n, *work = im + n;
  T *w = Y(0, 2 * c->n), *y = Y(1, 2 * size);
  const T *x = A(0, size);
  if (n == 0)
    return 0;
  if (!is_finite(size, x))
    return STRANGE;
  turn(n, n, x, a);
  c->lib->LA(geev)("N", "V", &n, a, &n, re, im, NULL, &one, v, &n, work, &lwork,
                   &info, 1, 1);
  for (int64_t j = 0; j < n && info == 0; j++) {
    int64_t first = im[j] < 0 ? j - 1 : j;
    w[2 * j] = re[j];
    w[2 * j + 1] = im[j];
    for (int64_t i = 0; i < n; i++) {
      T part = im[j] != 0 ? v[(first + 1) * n + i] : 0;
      y[2 * (i * n + j)] = v[first * n + i];
      y[2 * (i * n + j) + 1] = im[j] < 0 ? -part : part;
    }
  }
  return info;
}

const factor_kernels FL_TYPED(factor) = {.cholesky = cholesky,
                                         .cholesky_pivoted = cholesky_pivoted,
                                         .triangular_solve = triangular_solve,
                                         .solve = solve,
                                         .inv = inverse,
                                         .det = det,
                                         .slogdet = slogdet,
                                         .qr = qr,
                                         .lu_factor = lu_factor,
                                         .geqrf = geqrf,
                                         .svd = svd,
                                         .pinv = pinv,
                                         .eigh = eigh,
                                         .eig_pairs = eig_pairs};
