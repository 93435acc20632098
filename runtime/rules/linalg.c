/* Linear algebra: shapes and gradients. Gradients are those of Giles (2008) and
 * of PyTorch's documentation, in rows that have gradients themselves. What is
 * made of these rows alone is in linalg_composed.c. */
#include "../tensor/extra.h"
#include "linalg.h"

#include <string.h>

void fli_cost_cubic(const fli_infer *c, double *flops, double *bytes) {
  const fl_meta *x = c->in[0];
  fli_cost_bytes(c, flops, bytes);
  double m = (double)x->shape[x->ndim - 2], n = (double)x->shape[x->ndim - 1];
  *flops = 2 * (double)fl_numel(x->ndim, x->shape) * (m < n ? m : n);
}

/* --- shapes --- */

static fl_status linalg_matrices(const fli_infer *c) {
  const fl_meta *x = c->in[0];
  if (x->ndim < 2)
    return fli_fail(FL_ESHAPE, "%s: needs matrices, got shape %s",
                    c->op->info.name, fli_shape_text(x->ndim, x->shape));
  return FL_OK;
}

static fl_status squares(const fli_infer *c) {
  const fl_meta *x = c->in[0];
  if (x->ndim < 2 || x->shape[x->ndim - 1] != x->shape[x->ndim - 2])
    return fli_fail(FL_ESHAPE, "%s: needs square matrices, got shape %s",
                    c->op->info.name, fli_shape_text(x->ndim, x->shape));
  return FL_OK;
}

/* The leading dims of x and then `n` sizes. */
static void led(const fl_meta *x, fl_meta *y, int n, const int64_t *sizes) {
  y->ndim = x->ndim - 2 + n;
  memcpy(y->shape, x->shape, sizeof y->shape);
  for (int i = 0; i < n; i++)
    y->shape[x->ndim - 2 + i] = sizes[i];
}

fl_status fli_shape_square(fli_infer *c) {
  FLI_TRY(squares(c));
  led(c->in[0], &c->out[0], 2, c->in[0]->shape + c->in[0]->ndim - 2);
  return FL_OK;
}

fl_status fli_shape_det(fli_infer *c) {
  FLI_TRY(squares(c));
  for (int k = 0; k < c->n_out; k++)
    led(c->in[0], &c->out[k], 0, NULL);
  return FL_OK;
}

fl_status fli_shape_solve(fli_infer *c) {
  const fl_meta *a = c->in[FL_IN_solve_a], *b = c->in[FL_IN_solve_b];
  fl_meta *y = &c->out[0];
  FLI_TRY(squares(c));
  int own = b->ndim > 1 ? 2 : 1, na = a->ndim - 2, nb = b->ndim - own;
  int64_t n = a->shape[na];
  bool fits = b->ndim > 0 && b->shape[nb] == n;
  y->ndim = na > nb ? na : nb;
  for (int i = 0; i < y->ndim && fits; i++) {
    int64_t sa = i < y->ndim - na ? 1 : a->shape[i - (y->ndim - na)];
    int64_t sb = i < y->ndim - nb ? 1 : b->shape[i - (y->ndim - nb)];
    fits = sa == sb || sa == 1 || sb == 1;
    y->shape[i] = sa == 1 ? sb : sa;
  }
  if (!fits)
    return fli_fail(FL_ESHAPE,
                    "%s: b %s does not fit a %s: it must have %lld rows, and "
                    "leading dims that broadcast",
                    c->op->info.name, fli_shape_text(b->ndim, b->shape),
                    fli_shape_text(a->ndim, a->shape), (long long)n);
  for (int i = 0; i < own; i++)
    y->shape[y->ndim++] = b->shape[nb + i];
  return FL_OK;
}

fl_status fli_shape_qr(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(linalg_matrices(c));
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  int64_t k = m < n || c->attrs->v[FL_ATTR_qr_mode].i ? m : n;
  led(x, &c->out[0], 2, (int64_t[]){m, k});
  led(x, &c->out[FL_OUT_qr_r], 2, (int64_t[]){k, n});
  return FL_OK;
}

/* Factors as x, and in result `second` k numbers for each matrix. */
static fl_status factors(fli_infer *c, int second, int64_t k) {
  const fl_meta *x = c->in[0];
  led(x, &c->out[0], 2, x->shape + x->ndim - 2);
  led(x, &c->out[second], 1, &k);
  return FL_OK;
}

fl_status fli_shape_lu_factor(fli_infer *c) {
  FLI_TRY(linalg_matrices(c));
  return factors(c, FL_OUT_lu_factor_order,
                 c->in[0]->shape[c->in[0]->ndim - 2]);
}

fl_status fli_shape_geqrf(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(linalg_matrices(c));
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  return factors(c, FL_OUT_geqrf_tau, m < n ? m : n);
}

fl_status fli_shape_cholesky_pivoted(fli_infer *c) {
  FLI_TRY(squares(c));
  led(c->in[0], &c->out[FL_OUT_cholesky_pivoted_rank], 0, NULL);
  return factors(c, FL_OUT_cholesky_pivoted_order,
                 c->in[0]->shape[c->in[0]->ndim - 2]);
}

fl_status fli_shape_svd(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(linalg_matrices(c));
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  int64_t k = m < n ? m : n;
  bool full = c->attrs->v[FL_ATTR_svd_full_matrices].i;
  led(x, &c->out[0], 2, (int64_t[]){m, full ? m : k});
  led(x, &c->out[FL_OUT_svd_s], 1, &k);
  led(x, &c->out[FL_OUT_svd_vh], 2, (int64_t[]){full ? n : k, n});
  return FL_OK;
}

fl_status fli_shape_pinv(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(linalg_matrices(c));
  led(x, &c->out[0], 2,
      (int64_t[]){x->shape[x->ndim - 1], x->shape[x->ndim - 2]});
  return FL_OK;
}

fl_status fli_shape_eigh(fli_infer *c) {
  FLI_TRY(fli_shape_square(c));
  c->out[FL_OUT_eigh_vectors] = c->out[0];
  c->out[FL_OUT_eigh_vectors].dtype = c->in[0]->dtype;
  led(c->in[0], &c->out[0], 1, c->in[0]->shape + c->in[0]->ndim - 1);
  return FL_OK;
}

fl_status fli_shape_eig_pairs(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(squares(c));
  if (x->ndim == FL_MAX_DIMS)
    return fli_fail(FL_ESHAPE, "eig_pairs: %d dims leave none for the pairs",
                    x->ndim);
  int64_t n = x->shape[x->ndim - 1];
  led(x, &c->out[0], 2, (int64_t[]){n, 2});
  led(x, &c->out[FL_OUT_eig_pairs_vectors], 3, (int64_t[]){n, n, 2});
  return FL_OK;
}

/* --- gradients: inverses and determinants --- */

/* Phi(L^T dL), the lower triangle with half its diagonal, between L^-T and
 * L^-1; symmetric, since x is meant to be. */
static fl_value symmetric(fli_grad *g, fl_value l, fl_value dl, bool upper) {
  fli_env *e = &g->e;
  if (upper) {
    l = TURN(l);
    dl = TURN(dl);
  }
  fl_value p = fli_triangle(e, MATMUL(TURN(l), dl), false, 0);
  p = MUL(ADD(p, fli_triangle(e, p, false, -1)), NUM(0.5));
  fl_attrs a = fli_attrs(e, FLI_OP_triangular_solve);
  a.v[FL_ATTR_triangular_solve_transpose].i = true;
  fl_value half = TURN(RUN_A(triangular_solve, &a, l, p)); /* P^T L^-1 */
  fl_value s = RUN_A(triangular_solve, &a, l, half);
  return MUL(ADD(s, TURN(s)), NUM(0.5));
}

void fli_grad_cholesky(fli_grad *g) {
  g->dx[0] =
      symmetric(g, g->y[0], g->dy[0], g->attrs->v[FL_ATTR_cholesky_upper].i);
}

void fli_grad_cholesky_pivoted(fli_grad *g) {
  fl_value s = symmetric(g, g->y[0], g->dy[0],
                         g->attrs->v[FL_ATTR_cholesky_pivoted_upper].i);
  fl_value at = fli_inverse_order(&g->e, g->y[FL_OUT_cholesky_pivoted_order]);
  g->dx[0] = fli_rows_at(&g->e, fli_rows_at(&g->e, s, at, false), at, true);
}

/* Matrices of a right-hand side or a result, one column if it is 1-d. */
static fl_value linalg_columns(fli_grad *g, fl_value x) {
  bool vector = g->in_meta[FL_IN_solve_b].ndim == 1;
  return vector && !g->e.status ? fli_v_unsqueeze(&g->e, x, fli_meta(x)->ndim)
                                : x;
}

static fl_value as_given(fli_grad *g, fl_value x) {
  if (g->in_meta[FL_IN_solve_b].ndim > 1 || g->e.status)
    return x;
  const fl_meta *m = fli_meta(x);
  return fli_v_reshape(&g->e, x, m->ndim - 1, m->shape);
}

/* db = op(a)^-T dx, da = -db x^T within the triangle, turned if op turns. */
void fli_grad_triangular_solve(fli_grad *g) {
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  bool upper = a.v[FL_ATTR_triangular_solve_upper].i;
  bool turned = a.v[FL_ATTR_triangular_solve_transpose].i;
  bool unit = a.v[FL_ATTR_triangular_solve_unitriangular].i;
  a.v[FL_ATTR_triangular_solve_transpose].i = !turned;
  fl_value x = linalg_columns(g, g->y[0]);
  fl_value db = RUN_A(triangular_solve, &a, g->in[FL_IN_triangular_solve_a],
                      linalg_columns(g, g->dy[0]));
  if (g->need[FL_IN_triangular_solve_a]) {
    fl_value da = turned ? MATMUL(x, TURN(db)) : MATMUL(db, TURN(x));
    int64_t diagonal = unit ? upper ? 1 : -1 : 0;
    g->dx[FL_IN_triangular_solve_a] =
        NEG(fli_triangle(&g->e, da, upper, diagonal));
  }
  if (g->need[FL_IN_triangular_solve_b])
    g->dx[FL_IN_triangular_solve_b] = as_given(g, db);
}

void fli_grad_solve(fli_grad *g) {
  fl_value db =
      RUN(solve, TURN(g->in[FL_IN_solve_a]), linalg_columns(g, g->dy[0]));
  if (g->need[FL_IN_solve_a])
    g->dx[FL_IN_solve_a] = NEG(MATMUL(db, TURN(linalg_columns(g, g->y[0]))));
  if (g->need[FL_IN_solve_b])
    g->dx[FL_IN_solve_b] = as_given(g, db);
}

void fli_grad_inv(fli_grad *g) {
  fl_value y = TURN(g->y[0]);
  g->dx[0] = NEG(MATMUL(MATMUL(y, g->dy[0]), y));
}

/* The cofactors, which a singular matrix has, too: det(U V) times U, the
 * products of all singular values but one, and V. */
static fl_value cofactors(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *m = &g->in_meta[0];
  fl_value usv[FL_MAX_OUT];
  RUN_ALL(svd, NULL, usv, g->in[0]);
  int64_t n = m->shape[m->ndim - 1];
  fl_value eye = fli_identity(e, n, usv[0]);
  fl_value s = fli_v_unsqueeze(e, usv[FL_OUT_svd_s], m->ndim - 2);
  fl_value others = RUN(where, RUN(ne, eye, NUM(0)), NUM(1), s);
  fl_attrs a = fli_attrs(e, FLI_OP_prod);
  fli_set_list(e, &a, FL_ATTR_prod_dims, 1, (int64_t[]){m->ndim - 1});
  fl_value p = RUN_A(prod, &a, others);
  fl_value sign = MUL(RUN(det, usv[0]), RUN(det, usv[FL_OUT_svd_vh]));
  p = fli_v_unsqueeze(e, MUL(p, fli_v_unsqueeze(e, sign, m->ndim - 2)),
                      m->ndim - 2);
  return MATMUL(MUL(usv[0], p), usv[FL_OUT_svd_vh]);
}

/* A number for each matrix. */
static fl_value for_matrices(fli_grad *g, fl_value x) {
  int n = g->in_meta[0].ndim;
  return fli_v_unsqueeze(&g->e, fli_v_unsqueeze(&g->e, x, n - 2), n - 1);
}

/* Whether a determinant is 0, where values are at hand; asked only where the
 * gradient is recorded. */
static bool singular(fli_grad *g) {
  int64_t is = 0;
  fl_value zero = RUN(any, RUN(eq, g->y[0], NUM(0)));
  if (g->e.status == FL_OK &&
      fli_needs_values(g->e.rt, zero.tensor, "det") == FL_OK)
    g->e.status = fl_tensor_item(zero.tensor, NULL, &is);
  return is != 0;
}

/* The inverse can be differentiated again at any time, the cofactors only where
 * singular values differ. */
void fli_grad_det(fli_grad *g) {
  fl_value dy = g->dy[0];
  if (g->in_meta[0].shape[g->in_meta[0].ndim - 1] == 0)
    return;
  if (g->create && !singular(g))
    g->dx[0] = MUL(for_matrices(g, MUL(dy, g->y[0])), TURN(RUN(inv, g->in[0])));
  else
    g->dx[0] = MUL(for_matrices(g, dy), cofactors(g));
}

void fli_grad_slogdet(fli_grad *g) {
  if (!fli_nothing(g->dy[FL_OUT_slogdet_logabsdet]))
    g->dx[0] = MUL(for_matrices(g, g->dy[FL_OUT_slogdet_logabsdet]),
                   TURN(RUN(inv, g->in[0])));
}

/* The upper right block of the exponential of (x^T dy; 0 x^T). */
void fli_grad_matrix_exp(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *m = &g->in_meta[0];
  int last = m->ndim - 1;
  fl_value x = TURN(g->in[0]);
  fl_value zero = fli_v_zeros(e, m->dtype, m->ndim, m->shape,
                              fl_tensor_device(g->dy[0].tensor));
  fl_attrs side = fli_attrs(e, FLI_OP_cat), over = side;
  side.v[FL_ATTR_cat_dim].i = last;
  over.v[FL_ATTR_cat_dim].i = last - 1;
  fl_value top = RUN_A(cat, &side, x, g->dy[0]);
  fl_value all = RUN_A(cat, &over, top, RUN_A(cat, &side, zero, x));
  fl_value y = RUN(matrix_exp, all);
  int64_t n = m->shape[last];
  y = fli_v_narrow(e, y, last - 1, 0, n, 1);
  g->dx[0] = fli_v_narrow(e, y, last, n, n, 1);
}
