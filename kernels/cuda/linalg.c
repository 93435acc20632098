/* Linear algebra by cuSOLVER and cuBLAS; without them the host computes it. The
 * libraries store matrices by columns, so they see ours transposed, and calls
 * are chosen so that few copies have to be transposed. A matrix that cannot be
 * factored is reported in the error word. */
#include "linalg_steps.h"
#include "gemm/product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_CHOLESKY 64
#define SMALL_QR       128   /* rows and columns that a block factors */
#define ALONE_QR       32    /* ... where there is one matrix */
#define SMALL_SVD      32    /* ... that the batched Jacobi takes */
#define JACOBI         128   /* ... below which Jacobi is as fast */
#define SINGULAR       1024  /* ... from which squares are nearly singular */
#define LARGEST        32768 /* ... at all */

/* --- rows --- */

_Static_assert(FL_IN_solve_a == FL_IN_triangular_solve_a &&
                   FL_IN_solve_b == FL_IN_triangular_solve_b,
               "read for both rows");

/* The right-hand sides, broadcast, into `y`, column by column if they are to be
 * turned. */
static fl_status right_sides(const flc_linalg *c, void *y, bool columns) {
  const fl_view *b = &c->l->in[FL_IN_solve_b];
  int own = b->ndim > 1 ? 2 : 1;
  fl_view to = {.data = y, .dtype = c->dtype, .ndim = c->lead + own}, from;
  fl_view_copy(&from, b);
  from.ndim = to.ndim;
  int64_t step = 1;
  for (int d = to.ndim - 1; d >= 0; d--) {
    int have = d - (to.ndim - b->ndim);
    to.shape[d] = from.shape[d] = c->l->out[0].shape[d];
    from.stride[d] = have >= 0 && b->shape[have] != 1 ? b->stride[have] : 0;
    to.stride[d] = step;
    step *= to.shape[d];
  }
  if (columns) {
    to.stride[to.ndim - 1] = c->n;
    to.stride[to.ndim - 2] = 1;
  }
  return flc_move(c->l, &to, &from);
}

/* Of what lies column by column the library reads and writes the lower
 * triangle, which is quicker; a lower one of ours is turned for it if it is
 * large. */
static fl_status cholesky(flc_linalg *c) {
  bool upper = c->l->attrs->v[FL_ATTR_cholesky_upper].i;
  int64_t n = c->n, size = n * n;
  bool turned = !upper && n > SMALL_CHOLESKY;
  int uplo = upper || turned ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
  size_t device = 0, host = 0;
  void *y = turned ? flc_linalg_get(c, c->batch * size) : c->out[0];
  if (!y)
    return FL_ENOMEM;
  fl_view columns = flc_linalg_strided(c, y, n, n, size, 1, n);
  TRY(turned ? flc_linalg_move(c, columns, flc_linalg_by_rows(c, c->in, n, n))
             : flc_linalg_copy(c, y, c->in, c->batch * size));
  if (c->batch > 1 && n <= FLC_SMALL_LU && c->batch <= INT32_MAX) {
    void *p = flc_linalg_pointers(c, y, size, c->batch);
    if (!p)
      return FL_ENOMEM;
    SOLVER(potrfBatched, c->s.handle, uplo, (int)n, p, (int)n, c->info,
           (int)c->batch);
  } else {
    CHECK(S(Xpotrf_bufferSize)(c->s.handle, c->s.params, uplo, n, c->type, y, n,
                               c->type, &device, &host));
    TRY(flc_linalg_rooms(c, device, host));
    for (int64_t b = 0; b < c->batch; b++)
      CHECK(S(Xpotrf)(c->s.handle, c->s.params, uplo, n, c->type,
                      flc_linalg_at(c, y, b * size), n, c->type, ROOMS,
                      c->info + b));
  }
  TRY(flc_linalg_diagonal(c, y, c->batch, false));
  if (turned)
    TRY(flc_linalg_move(c, flc_linalg_by_rows(c, c->out[0], n, n), columns));
  TRY(flc_linalg_triangle(c, c->out[0], n, upper));
  return flc_linalg_verdict(c, c->batch, FL_MATRIX_INDEFINITE, false);
}

static fl_status triangular_solve(flc_linalg *c) {
  const fl_attr *v = c->l->attrs->v;
  bool columns = flc_linalg_columns(c, c->k);
  void *y = columns ? flc_linalg_get(c, c->batch * c->n * c->k) : c->out[0];
  if (!y)
    return FL_ENOMEM;
  TRY(right_sides(c, y, columns));
  if (!v[FL_ATTR_triangular_solve_unitriangular].i) {
    TRY(flc_linalg_diagonal(c, c->in, c->many, true));
    TRY(flc_linalg_verdict(c, c->many, FL_MATRIX_DIAGONAL, false));
  }
  TRY(flc_linalg_by_triangle(
      c, c->in, y, c->k, v[FL_ATTR_triangular_solve_upper].i,
      v[FL_ATTR_triangular_solve_transpose].i,
      v[FL_ATTR_triangular_solve_unitriangular].i, columns));
  if (!columns)
    return FL_OK;
  return flc_linalg_move(
      c, flc_linalg_by_rows(c, c->out[0], c->n, c->k),
      flc_linalg_strided(c, y, c->n, c->k, c->n * c->k, 1, c->n));
}

static fl_status solve(flc_linalg *c) {
  lu_args a = {0};
  void *y = flc_linalg_get(c, c->batch * c->n * c->k);
  if (!y)
    return FL_ENOMEM;
  TRY(flc_linalg_survey(c, 0));
  TRY(right_sides(c, y, flc_linalg_columns(c, c->k)));
  TRY(flc_linalg_factors(c, &a));
  TRY(flc_linalg_by_factors(c, &a, y, c->k, c->out[0]));
  return flc_linalg_verdict(c, c->many, FL_MATRIX_SINGULAR, false);
}

static fl_status inv(flc_linalg *c) {
  lu_args a = {0};
  void *y = flc_linalg_get(c, c->batch * c->n * c->n);
  if (!y)
    return FL_ENOMEM;
  TRY(flc_linalg_survey(c, 0));
  TRY(flc_linalg_identity(c, y, c->n));
  TRY(flc_linalg_factors(c, &a));
  TRY(flc_linalg_by_factors(c, &a, y, c->n, c->out[0]));
  return flc_linalg_verdict(c, c->many, FL_MATRIX_SINGULAR, false);
}

/* det, and slogdet with two results. */
static fl_status determinant(flc_linalg *c) {
  lu_args a = {.sign = c->out[0], .size = c->out[FL_OUT_slogdet_logabsdet]};
  TRY(flc_linalg_factors(c, &a));
  flc_spec spec = FLC_SPEC("linalg", "lu_end", c->dtype, false);
  flc_grid grid = {.x = (unsigned)c->batch, .block = 128};
  return FLC_RUN(c->l, spec, grid, a);
}

/* By our own kernel, if two matrices fit in shared memory. */
static bool qr_fits(const flc_linalg *c, int64_t wide, size_t *bytes) {
  int64_t most = c->m > c->n ? c->m : c->n;
  *bytes = (size_t)(c->m * (c->n + wide) + most) * c->size;
  return most <= (c->batch > 1 ? SMALL_QR : ALONE_QR) &&
         *bytes <= (size_t)flc_chip_of(c->l)->shared - 2048;
}

static fl_status qr_small(flc_linalg *c, int64_t wide, size_t bytes) {
  qr_args a = {.x = c->in,
               .q = c->out[0],
               .r = c->out[FL_OUT_qr_r],
               .m = c->m,
               .n = c->n,
               .wide = wide};
  flc_spec spec = FLC_SPEC("linalg", "qr_small", c->dtype);
  flc_grid grid = {
      .x = (unsigned)c->batch, .block = 128, .shared = (unsigned)bytes};
  return FLC_RUN(c->l, spec, grid, a);
}

static fl_status qr(flc_linalg *c) {
  int64_t m = c->m, n = c->n, k = m < n ? m : n,
          wide = c->l->attrs->v[FL_ATTR_qr_mode].i ? m : k,
          room = n > wide ? n : wide;
  size_t device = 0, host = 0;
  int lwork = 0;
  size_t bytes;
  if (qr_fits(c, wide, &bytes))
    return qr_small(c, wide, bytes);
  void *a = flc_linalg_get(c, c->batch * m * room), *tau = flc_linalg_get(c, k);
  if (!a || !tau)
    return FL_ENOMEM;
  fl_view turned = flc_linalg_strided(c, a, m, n, m * room, 1, m), r = turned,
          q = turned;
  r.shape[1] = q.shape[2] = wide;
  TRY(flc_linalg_move(c, turned, flc_linalg_by_rows(c, c->in, m, n)));
  CHECK(S(Xgeqrf_bufferSize)(c->s.handle, c->s.params, m, n, c->type, a, m,
                             c->type, tau, c->type, &device, &host));
  SOLVER(orgqr_bufferSize, c->s.handle, (int)m, (int)wide, (int)k, a, (int)m,
         tau, &lwork);
  size_t more = (size_t)lwork * c->size;
  TRY(flc_linalg_rooms(c, device > more ? device : more, host));
  /* r lies where q will: what is above the diagonal goes first */
  for (int64_t b = 0; b < c->batch; b++) {
    void *x = flc_linalg_at(c, a, b * m * room);
    fl_view to = flc_linalg_by_rows(
                c, flc_linalg_at(c, c->out[FL_OUT_qr_r], b * wide * n), wide,
                n),
            from = r;
    from.data = x;
    from.shape[0] = to.shape[0] = 1;
    CHECK(S(Xgeqrf)(c->s.handle, c->s.params, m, n, c->type, x, m, c->type, tau,
                    c->type, ROOMS, c->info));
    TRY(flc_linalg_move(c, to, from));
    SOLVER(orgqr, c->s.handle, (int)m, (int)wide, (int)k, x, (int)m, tau,
           c->room, lwork, c->info);
  }
  TRY(flc_linalg_triangle(c, c->out[FL_OUT_qr_r], wide, true));
  return flc_linalg_move(c, flc_linalg_by_rows(c, c->out[0], m, wide), q);
}

/* Of A^T = U S V^T, both column by column: u (n x wu) and v (m x wv), `full` or
 * with min(m, n) columns. `a` is lost. */
typedef struct parts {
  void *a, *u, *s, *v;
  int64_t wu, wv;
  bool full;
} parts;

static fl_status svd_small(flc_linalg *c, const parts *p) {
  int m = (int)c->m, n = (int)c->n, lwork = 0, batch = (int)c->batch;
  SOLVER(gesvdjBatched_bufferSize, c->s.handle, CUSOLVER_EIG_MODE_VECTOR, n, m,
         p->a, n, p->s, p->u, n, p->v, m, &lwork, c->s.jacobi, batch);
  TRY(flc_linalg_rooms(c, (size_t)lwork * c->size, 0));
  SOLVER(gesvdjBatched, c->s.handle, CUSOLVER_EIG_MODE_VECTOR, n, m, p->a, n,
         p->s, p->u, n, p->v, m, c->room, lwork, c->info, c->s.jacobi, batch);
  return FL_OK;
}

static fl_status svd_jacobi(flc_linalg *c, const parts *p, int64_t b) {
  int m = (int)c->m, n = (int)c->n, lwork = 0, econ = !p->full;
  int64_t k = c->m < c->n ? c->m : c->n;
  void *a = flc_linalg_at(c, p->a, b * c->m * c->n),
       *s = flc_linalg_at(c, p->s, b * k),
       *u = flc_linalg_at(c, p->u, b * c->n * p->wu),
       *v = flc_linalg_at(c, p->v, b * c->m * p->wv);
  SOLVER(gesvdj_bufferSize, c->s.handle, CUSOLVER_EIG_MODE_VECTOR, econ, n, m,
         a, n, s, u, n, v, m, &lwork, c->s.jacobi);
  TRY(flc_linalg_rooms(c, (size_t)lwork * c->size, 0));
  SOLVER(gesvdj, c->s.handle, CUSOLVER_EIG_MODE_VECTOR, econ, n, m, a, n, s, u,
         n, v, m, c->room, lwork, c->info + b, c->s.jacobi);
  return FL_OK;
}

/* By the polar decomposition, which changes matrices that are nearly singular,
 * and says by how much; where that is more than rounding, they are done again.
 */
static fl_status svd_polar(flc_linalg *c, const parts *p, int64_t b) {
  int64_t m = c->m, n = c->n, k = m < n ? m : n, size = m * n;
  size_t device = 0, host = 0;
  double changed = 0;
  int econ = !p->full;
  void *a = flc_linalg_at(c, p->a, b * size),
       *s = flc_linalg_at(c, p->s, b * k),
       *u = flc_linalg_at(c, p->u, b * n * p->wu),
       *v = flc_linalg_at(c, p->v, b * m * p->wv),
       *kept = flc_linalg_get(c, size);
  if (!kept)
    return FL_ENOMEM;
  TRY(flc_linalg_copy(c, kept, a, size));
  CHECK(S(Xgesvdp_bufferSize)(
      c->s.handle, c->s.params, CUSOLVER_EIG_MODE_VECTOR, econ, n, m, c->type,
      a, n, c->type, s, c->type, u, n, c->type, v, m, c->type, &device, &host));
  TRY(flc_linalg_rooms(c, device, host));
  CHECK(S(Xgesvdp)(c->s.handle, c->s.params, CUSOLVER_EIG_MODE_VECTOR, econ, n,
                   m, c->type, a, n, c->type, s, c->type, u, n, c->type, v, m,
                   c->type, ROOMS, c->info + b, &changed));
  double most = 0, eps = c->wide ? 0x1p-52 : 0x1p-23;
  if (changed > 0) {
    float narrow = 0;
    TRY(flc_read(c->l, c->wide ? (void *)&most : &narrow, s, c->size));
    most += (double)narrow;
  }
  if (changed <= most * eps * (double)(m > n ? m : n) / 4)
    return FL_OK;
  TRY(flc_linalg_copy(c, a, kept, size));
  return svd_jacobi(c, p, b);
}

static fl_status decompose(flc_linalg *c, parts *p) {
  int64_t k = c->m < c->n ? c->m : c->n, most = c->m > c->n ? c->m : c->n;
  bool small = most <= SMALL_SVD && c->batch <= INT32_MAX;
  p->wu = p->full || small ? c->n : k;
  p->wv = p->full || small ? c->m : k;
  if (!p->u || p->wu != (p->full ? c->n : k))
    p->u = flc_linalg_get(c, c->batch * c->n * p->wu);
  p->v = flc_linalg_get(c, c->batch * c->m * p->wv);
  if (!p->u || !p->v)
    return FL_ENOMEM;
  TRY(flc_linalg_tame(c, 0, false, &p->a));
  if (small)
    TRY(svd_small(c, p));
  /* large squares would be done twice as a rule: see svd_polar */
  bool polar = k >= JACOBI && (k < SINGULAR || most >= 2 * k);
  for (int64_t b = 0; b < c->batch && !small; b++)
    TRY(polar ? svd_polar(c, p, b) : svd_jacobi(c, p, b));
  return flc_linalg_verdict(c, c->batch, FL_MATRIX_SLOW, true);
}

/* u of ours is v, row by row; vh is u. */
static fl_status svd(flc_linalg *c) {
  int64_t k = c->m < c->n ? c->m : c->n;
  parts p = {.u = c->out[FL_OUT_svd_vh],
             .s = c->out[FL_OUT_svd_s],
             .full = c->l->attrs->v[FL_ATTR_svd_full_matrices].i};
  int64_t wu = p.full ? c->n : k, wv = p.full ? c->m : k;
  TRY(decompose(c, &p));
  if (p.u != c->out[FL_OUT_svd_vh])
    TRY(flc_linalg_move(
        c, flc_linalg_by_rows(c, c->out[FL_OUT_svd_vh], wu, c->n),
        flc_linalg_strided(c, p.u, wu, c->n, c->n * p.wu, c->n, 1)));
  return flc_linalg_move(
      c, flc_linalg_by_rows(c, c->out[0], c->m, wv),
      flc_linalg_strided(c, p.v, c->m, wv, c->m * p.wv, 1, c->m));
}

static fl_status linalg_multiply(const flc_linalg *c, flc_product *p,
                                 int64_t astep, int64_t bstep) {
  p->dtype = c->dtype;
  if (c->batch > 1) {
    p->dims = 1;
    p->size[0] = c->batch;
    p->astep[0] = astep;
    p->bstep[0] = bstep;
  }
  return flc_multiply(c->l, p);
}

static fl_status pinv(flc_linalg *c) {
  int64_t m = c->m, n = c->n, k = m < n ? m : n;
  double rcond = c->l->attrs->v[FL_ATTR_pinv_rcond].f;
  parts p = {.s = flc_linalg_get(c, c->batch * k)};
  if (!p.s)
    return FL_ENOMEM;
  TRY(decompose(c, &p));
  if (isnan(rcond))
    rcond = (double)(m > n ? m : n) * (c->wide ? 0x1p-52 : 0x1p-23);
  inverse_args a = {.v = p.u,
                    .s = p.s,
                    .batch = c->batch,
                    .n = n,
                    .k = k,
                    .step = n * p.wu,
                    .rcond = rcond};
  flc_spec spec = FLC_SPEC("linalg", "inverse", c->dtype);
  TRY(FLC_RUN(c->l, spec, flc_linalg_over(c->batch * n * k), a));
  flc_product by = {.m = n,
                    .n = m,
                    .k = k,
                    .am = 1,
                    .ak = n,
                    .bk = m,
                    .bn = 1,
                    .a = p.u,
                    .b = p.v,
                    .c = c->out[0]};
  return linalg_multiply(c, &by, n * p.wu, m * p.wv);
}

static fl_status eigh(flc_linalg *c) {
  bool upper = c->l->attrs->v[FL_ATTR_eigh_upper].i;
  int uplo = upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER,
      job = CUSOLVER_EIG_MODE_VECTOR;
  int64_t n = c->n, size = n * n;
  size_t device = 0, host = 0;
  void *a, *w = c->out[0];
  TRY(flc_linalg_tame(c, upper ? 1 : -1, false, &a));
  if (c->batch > 1) {
    CHECK(S(XsyevBatched_bufferSize)(c->s.handle, c->s.params, job, uplo, n,
                                     c->type, a, n, c->type, w, c->type,
                                     &device, &host, c->batch));
    TRY(flc_linalg_rooms(c, device, host));
    CHECK(S(XsyevBatched)(c->s.handle, c->s.params, job, uplo, n, c->type, a, n,
                          c->type, w, c->type, ROOMS, c->info, c->batch));
  } else {
    CHECK(S(Xsyevd_bufferSize)(c->s.handle, c->s.params, job, uplo, n, c->type,
                               a, n, c->type, w, c->type, &device, &host));
    TRY(flc_linalg_rooms(c, device, host));
    CHECK(S(Xsyevd)(c->s.handle, c->s.params, job, uplo, n, c->type, a, n,
                    c->type, w, c->type, ROOMS, c->info));
  }
  TRY(flc_linalg_verdict(c, c->batch, FL_MATRIX_SLOW, true));
  return flc_linalg_move(
      c, flc_linalg_by_rows(c, c->out[FL_OUT_eigh_vectors], n, n),
      flc_linalg_strided(c, a, n, n, size, 1, n));
}

static fl_status eig_pairs(flc_linalg *c) {
  int64_t n = c->n, size = n * n;
  int none = CUSOLVER_EIG_MODE_NOVECTOR, job = CUSOLVER_EIG_MODE_VECTOR,
      pair = c->wide ? CUDA_C_64F : CUDA_C_32F;
  size_t device = 0, host = 0;
  void *a, *w = c->out[0], *v = flc_linalg_get(c, c->batch * size);
  if (!v)
    return FL_ENOMEM;
  TRY(flc_linalg_tame(c, 0, true, &a));
  CHECK(S(Xgeev_bufferSize)(c->s.handle, c->s.params, none, job, n, c->type, a,
                            n, pair, w, c->type, NULL, n, c->type, v, n,
                            c->type, &device, &host));
  TRY(flc_linalg_rooms(c, device, host));
  for (int64_t b = 0; b < c->batch; b++)
    CHECK(S(Xgeev)(c->s.handle, c->s.params, none, job, n, c->type,
                   flc_linalg_at(c, a, b * size), n, pair,
                   flc_linalg_at(c, w, 2 * b * n), c->type, NULL, n, c->type,
                   flc_linalg_at(c, v, b * size), n, c->type, ROOMS,
                   c->info + b));
  TRY(flc_linalg_verdict(c, c->batch, FL_MATRIX_SLOW, true));
  pairs_args p = {.v = v,
                  .w = w,
                  .y = c->out[FL_OUT_eig_pairs_vectors],
                  .batch = c->batch,
                  .n = n};
  flc_spec spec = FLC_SPEC("linalg", "to_pairs", c->dtype);
  return FLC_RUN(c->l, spec, flc_linalg_over(c->batch * size), p);
}

/* --- the exponential: how often to square is read back --- */

static fl_status square_product(const flc_linalg *c, const double *a,
                                const double *b, double *y) {
  flc_product p = {.m = c->n,
                   .n = c->n,
                   .k = c->n,
                   .am = c->n,
                   .ak = 1,
                   .bk = c->n,
                   .bn = 1,
                   .a = a,
                   .b = b,
                   .c = y};
  return linalg_multiply(c, &p, c->n * c->n, c->n * c->n);
}

static fl_status exp_sum(const flc_linalg *c, const exp_args *a, int what) {
  flc_spec spec = FLC_SPEC("linalg", "exp_sum", what);
  return FLC_RUN(c->l, spec, flc_linalg_over(c->batch * c->n * c->n), *a);
}

/* The Taylor polynomial of degree 20 of A / 2^s, by powers of A^4 (Paterson and
 * Stockmeyer 1973), squared s times. Unlike the CPU's fraction it needs
 * products alone. */
static fl_status matrix_exp(flc_linalg *c) {
  int64_t size = c->batch * c->n * c->n;
  double *room = flc_linalg_get(c, 6 * size);
  size_t bytes = (size_t)(c->batch + 1) * sizeof(int);
  int *squares = fl_scratch_get(c->l, bytes), most = 0;
  if (!room || !squares)
    return FL_ENOMEM;
  exp_args a = {.x = c->in,
                .a = room,
                .a2 = room + size,
                .a3 = room + 2 * size,
                .a4 = room + 3 * size,
                .t = room + 4 * size,
                .u = room + 5 * size,
                .y = c->out[0],
                .squares = squares,
                .batch = c->batch,
                .n = c->n};
  flc_spec norm = FLC_SPEC("linalg", "exp_norm", 0);
  flc_grid each = {.x = (unsigned)c->batch, .block = 256};
  TRY(flc_zero(c->l, squares, bytes));
  TRY(FLC_RUN(c->l, norm, each, a));
  TRY(exp_sum(c, &a, LINALG_EXP_SCALE));
  TRY(square_product(c, a.a, a.a, a.a2));
  TRY(square_product(c, a.a2, a.a, a.a3));
  TRY(square_product(c, a.a2, a.a2, a.a4));
  for (int k = 4; k >= 0; k--) {
    for (int i = 0; i < 5; i++)
      a.q[i] = 1 / tgamma(4 * k + i + 1);
    if (k < 4)
      TRY(square_product(c, a.a4, a.t, a.u));
    TRY(exp_sum(c, &a, k < 4 ? LINALG_EXP_NEXT : LINALG_EXP_FIRST));
  }
  TRY(flc_read(c->l, &most, squares + c->batch, sizeof most));
  for (a.step = 0; a.step < most; a.step++) {
    TRY(square_product(c, a.t, a.t, a.u));
    TRY(exp_sum(c, &a, LINALG_EXP_SQUARE));
  }
  return exp_sum(c, &a, LINALG_EXP_DONE);
}

/* --- reading a launch --- */

/* One matrix for all, or the input with the leading dims of `like`. */
static fl_status linalg_matrices(flc_linalg *c, const fl_view *like) {
  fl_view v;
  const fl_view *x = &c->l->in[0];
  fl_view_copy(&v, x);
  c->many = fl_numel(x->ndim - 2, x->shape);
  if (c->many != 1 || c->batch == 1) {
    v.ndim = c->lead + 2;
    for (int d = v.ndim - 1; d >= 0; d--) {
      int from = d - (v.ndim - x->ndim);
      v.shape[d] = d < c->lead ? like->shape[d] : x->shape[from];
      v.stride[d] = from >= 0 && (d >= c->lead || x->shape[from] != 1)
                        ? x->stride[from]
                        : 0;
    }
    c->many = c->batch;
  }
  c->in = flc_input(c->l, &v, c->dtype);
  return c->in ? FL_OK : FL_ENOMEM;
}

/* Memory for a result: its own, or scratch where that has another dtype or is
 * the input's. */
static void *linalg_result(const flc_linalg *c, const fl_view *y) {
  if (y->dtype == c->dtype && y->data != c->l->in[0].data)
    return y->data;
  return flc_linalg_get(c, fl_view_numel(y));
}

static fl_status linalg_finish(const flc_linalg *c) {
  for (int k = 0; k < c->l->n_out; k++) {
    const fl_view *y = &c->l->out[k];
    fl_view from;
    if (c->out[k] == y->data)
      continue;
    fl_view_copy(&from, y);
    from.data = c->out[k];
    from.dtype = c->dtype;
    int64_t step = 1;
    for (int d = y->ndim - 1; d >= 0; step *= y->shape[d--])
      from.stride[d] = step;
    TRY(flc_move(c->l, y, &from));
  }
  return FL_OK;
}

static fl_status linalg_prepare(flc_linalg *c) {
  const fl_launch *l = c->l;
  TRY(linalg_matrices(c, l->n_in > 1 ? &l->out[0] : &l->in[0]));
  for (int k = 0; k < l->n_out; k++)
    if (!(c->out[k] = linalg_result(c, &l->out[k])))
      return FL_ENOMEM;
  c->info = fl_scratch_get(l, (size_t)c->batch * 2 * sizeof(int));
  if (!c->info)
    return FL_ENOMEM;
  c->strange = c->info + c->batch;
  return FL_OK;
}

static fl_status linalg_run(const fl_launch *l, fl_status (*f)(flc_linalg *),
                            fl_dtype d) {
  const fl_view *x = &l->in[FL_IN_solve_a];
  flc_linalg c = {.l = l, .dtype = d, .wide = d == FL_F64, .k = 1};
  int right = l->n_in > 1 ? l->in[FL_IN_solve_b].ndim > 1 ? 2 : 1 : 0;
  c.size = fl_dtype_size(d);
  c.type = c.wide ? CUDA_R_64F : CUDA_R_32F;
  c.m = x->shape[x->ndim - 2];
  c.n = x->shape[x->ndim - 1];
  c.lead = right ? l->out[0].ndim - right : x->ndim - 2;
  c.batch = fl_numel(c.lead, right ? l->out[0].shape : x->shape);
  if (right == 2)
    c.k = l->in[FL_IN_solve_b].shape[l->in[FL_IN_solve_b].ndim - 1];
  if (c.batch == 0 || c.m == 0 || c.n == 0 || c.k == 0 || c.m > LARGEST ||
      c.n > LARGEST || c.k > INT32_MAX || flc_solver_open(l, &c.s))
    return flc_on_host(l);
  fl_status s = linalg_prepare(&c);
  if (s == FL_OK)
    s = f(&c);
  flc_solver_close();
  free(c.host);
  return s ? s : linalg_finish(&c);
}

#define LINALG(name, f)                                                        \
  FLC_KERNEL(name) {                                                           \
    return linalg_run(l, f, flc_wide(l->out[0].dtype));                        \
  }
LINALG(cholesky, cholesky)
LINALG(triangular_solve, triangular_solve)
LINALG(solve, solve)
LINALG(inv, inv)
LINALG(det, determinant)
LINALG(slogdet, determinant)
LINALG(qr, qr)
LINALG(svd, svd)
LINALG(pinv, pinv)
LINALG(eigh, eigh)
LINALG(eig_pairs, eig_pairs)

FLC_KERNEL(matrix_exp) { /* its coefficients span 17 digits */
  return linalg_run(l, matrix_exp, FL_F64);
}

/* Seldom asked for: the host does them. */
#define ON_HOST(name)                                                          \
  FLC_KERNEL(name) {                                                           \
    return flc_on_host(l);                                                     \
  }
ON_HOST(cholesky_pivoted)
ON_HOST(lu_factor)
ON_HOST(geqrf)

void flc_visit_linalg(flc_visitor *v) {
  static const char *const entries[] = {"survey",   "blank",   "triangle",
                                        "identity", "reorder", "inverse",
                                        "to_pairs", "qr_small"};
  FL_EACH_DTYPE(d, fl_dtype_is_wide) {
    bool quick = d == FL_F64;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
      flc_spec s = FLC_SPEC("linalg", entries[i], d);
      v->spec(v, &s, quick);
    }
    for (int yes = 0; yes < 2; yes++) {
      flc_spec s = FLC_SPEC("linalg", "diagonal", d, yes);
      flc_spec e = FLC_SPEC("linalg", "lu_end", d, yes);
      v->spec(v, &s, quick && yes);
      v->spec(v, &e, quick && yes);
    }
  }
  flc_spec verdict = FLC_SPEC("linalg", "verdict", 0);
  flc_spec pointers = FLC_SPEC("linalg", "pointers", 0);
  flc_spec norm = FLC_SPEC("linalg", "exp_norm", 0);
  v->spec(v, &verdict, true);
  v->spec(v, &pointers, true);
  v->spec(v, &norm, true);
  for (int what = LINALG_EXP_SCALE; what <= LINALG_EXP_DONE; what++) {
    flc_spec s = FLC_SPEC("linalg", "exp_sum", what);
    v->spec(v, &s, what == LINALG_EXP_NEXT);
  }
}
