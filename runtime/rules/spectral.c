/* Gradients of the factorizations with orthogonal factors. Formulas are in
 * PyTorch's documentation of each, and in Seeger et al. (2017) for QR; columns
 * that the factorization does not determine (those beyond min(m, n)) are
 * assumed to rotate as little as they can. */
#include "linalg.h"

/* d with zeros on the diagonal, then divided by what is not 0 elsewhere. */
static fl_value over_gaps(fli_grad *g, fl_value x, fl_value gaps, int64_t n) {
  fl_value eye = fli_identity(&g->e, n, gaps);
  return DIV(MUL(x, SUB(NUM(1), eye)), ADD(gaps, eye));
}

/* v[j] - v[i] at (i, j). */
static fl_value gaps_of(fli_grad *g, fl_value v) {
  int n = fli_meta(v)->ndim;
  return SUB(fli_v_unsqueeze(&g->e, v, n - 1), fli_v_unsqueeze(&g->e, v, n));
}

/* The first or the last columns of a matrix. */
static fl_value spectral_columns(fli_env *e, fl_value x, int64_t from,
                                 int64_t to) {
  int n = fli_meta(x)->ndim;
  return e->status ? x : fli_v_narrow(e, x, n - 1, from, to - from, 1);
}

static fl_value rows(fli_env *e, fl_value x, int64_t from, int64_t to) {
  int n = fli_meta(x)->ndim;
  return e->status ? x : fli_v_narrow(e, x, n - 2, from, to - from, 1);
}

/* --- QR --- */

/* m >= n: (dQ + Q S) R^-T, S symmetric with the lower triangle of R dR^T -
 * dQ^T Q. */
static fl_value grad_tall(fli_grad *g, fl_value q, fl_value r, fl_value dq,
                          fl_value dr) {
  fli_env *e = &g->e;
  fl_value m = SUB(MATMUL(r, TURN(dr)), MATMUL(TURN(dq), q));
  fl_value s =
      ADD(fli_triangle(e, m, false, 0), TURN(fli_triangle(e, m, false, -1)));
  fl_value b = ADD(dq, MATMUL(q, s));
  fl_attrs a = fli_attrs(e, FLI_OP_triangular_solve);
  a.v[FL_ATTR_triangular_solve_upper].i = true;
  return TURN(RUN_A(triangular_solve, &a, r, TURN(b)));
}

void fli_grad_qr(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *x = &g->in_meta[0];
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  fl_value q = g->y[0], r = g->y[FL_OUT_qr_r], dq = fli_g_dy(g, 0),
           dr = fli_g_dy(g, 1);
  if (m == 0 || n == 0 || e->status)
    return;
  if (m < n) { /* x = (x1 x2): x2 = Q R2 */
    fl_value x2 = spectral_columns(e, g->in[0], m, n),
             dr2 = spectral_columns(e, dr, m, n);
    dq = ADD(dq, MATMUL(x2, TURN(dr2)));
    fl_value dx1 = grad_tall(g, q, spectral_columns(e, r, 0, m), dq,
                             spectral_columns(e, dr, 0, m));
    fl_attrs a = fli_attrs(e, FLI_OP_cat);
    a.v[FL_ATTR_cat_dim].i = x->ndim - 1;
    g->dx[0] = RUN_A(cat, &a, dx1, MATMUL(q, dr2));
    return;
  }
  if (g->attrs->v[FL_ATTR_qr_mode].i && m > n) {
    fl_value rest = spectral_columns(e, q, n, m),
             drest = spectral_columns(e, dq, n, m);
    q = spectral_columns(e, q, 0, n);
    dq = SUB(spectral_columns(e, dq, 0, n),
             MATMUL(rest, MATMUL(TURN(drest), q)));
    r = rows(e, r, 0, n);
    dr = rows(e, dr, 0, n);
  }
  g->dx[0] = grad_tall(g, q, r, dq, dr);
}

/* --- singular values --- */

/* (X - X^T) / gaps. */
static fl_value turning(fli_grad *g, fl_value x, fl_value gaps, int64_t n) {
  return over_gaps(g, SUB(x, TURN(x)), gaps, n);
}

/* All columns of u, and the gradient towards them, become the first k. */
static void first_columns(fli_grad *g, fl_value *u, fl_value *du, int64_t k,
                          int64_t all) {
  fli_env *e = &g->e;
  if (all == k)
    return;
  fl_value rest = spectral_columns(e, *u, k, all);
  *u = spectral_columns(e, *u, 0, k);
  if (fli_nothing(*du))
    return;
  fl_value drest = spectral_columns(e, *du, k, all);
  *du = SUB(spectral_columns(e, *du, 0, k),
            MATMUL(rest, MATMUL(TURN(drest), *u)));
}

/* The part of du outside the span of u's columns, divided by the singular
 * values. */
static fl_value outside(fli_grad *g, fl_value u, fl_value du, fl_value s) {
  return DIV(SUB(du, MATMUL(u, MATMUL(TURN(u), du))), s);
}

void fli_grad_svd(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *x = &g->in_meta[0];
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  int64_t k = m < n ? m : n;
  fl_value u = g->y[0], v = TURN(g->y[FL_OUT_svd_vh]), sum = fli_none();
  fl_value s =
      fli_v_unsqueeze(e, g->y[FL_OUT_svd_s], x->ndim - 2); /* of columns */
  bool vectors = !fli_nothing(g->dy[0]) || !fli_nothing(g->dy[FL_OUT_svd_vh]);
  if (k == 0)
    return;
  fl_value du = fli_none(), dv = fli_none();
  if (vectors) {
    du = fli_g_dy(g, 0);
    dv = TURN(fli_g_dy(g, 2));
  }
  bool full = g->attrs->v[FL_ATTR_svd_full_matrices].i;
  first_columns(g, &u, &du, k, full ? m : k);
  first_columns(g, &v, &dv, k, full ? n : k);
  if (!fli_nothing(g->dy[FL_OUT_svd_s]))
    sum = MATMUL(MUL(u, fli_v_unsqueeze(e, g->dy[FL_OUT_svd_s], x->ndim - 2)),
                 TURN(v));
  if (vectors) {
    fl_value gaps = gaps_of(g, RUN(square, g->y[FL_OUT_svd_s]));
    fl_value in_u = turning(g, MATMUL(TURN(u), du), gaps, k);
    fl_value in_v = turning(g, MATMUL(TURN(v), dv), gaps, k);
    fl_value inner = ADD(MUL(in_u, s), MUL(TURN(s), in_v));
    fl_value more = MATMUL(MATMUL(u, inner), TURN(v));
    if (m > k)
      more = ADD(more, MATMUL(outside(g, u, du, s), TURN(v)));
    if (n > k)
      more = ADD(more, MATMUL(u, TURN(outside(g, v, dv, s))));
    sum = fli_nothing(sum) ? more : ADD(sum, more);
  }
  g->dx[0] = sum;
}

/* --- eigenvalues --- */

void fli_grad_eigh(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *x = &g->in_meta[0];
  int64_t n = x->shape[x->ndim - 1];
  fl_value v = g->y[FL_OUT_eigh_vectors], inner = fli_none();
  if (n == 0)
    return;
  if (!fli_nothing(g->dy[FL_OUT_eigh_vectors]))
    inner = over_gaps(g, MATMUL(TURN(v), g->dy[FL_OUT_eigh_vectors]),
                      gaps_of(g, g->y[0]), n);
  if (!fli_nothing(g->dy[0])) {
    fl_value eye = fli_identity(e, n, g->dy[0]);
    fl_value d = MUL(eye, fli_v_unsqueeze(e, g->dy[0], x->ndim - 2));
    inner = fli_nothing(inner) ? d : ADD(inner, d);
  }
  fl_value dx = MATMUL(MATMUL(v, inner), TURN(v));
  g->dx[0] = MUL(ADD(dx, TURN(dx)), NUM(0.5));
}

/* Real and imaginary parts of pairs. */
static fl_value spectral_part(fli_env *e, fl_value x, int64_t k) {
  fl_attrs a = fli_attrs(e, FLI_OP_select);
  a.v[FL_ATTR_select_dim].i = fli_meta(x)->ndim - 1;
  a.v[FL_ATTR_select_index].i = k;
  return fli_run(e, FLI_OP_select, &a, 1, &x);
}

/* A complex matrix R + i I as the real one (R -I; I R): products, conjugate
 * transposes and inverses of these are those of the complex ones. */
static fl_value as_blocks(fli_grad *g, fl_value re, fl_value im) {
  fl_attrs side = fli_attrs(&g->e, FLI_OP_cat), over = side;
  int n = fli_meta(re)->ndim;
  if (g->e.status)
    return re;
  side.v[FL_ATTR_cat_dim].i = n - 1;
  over.v[FL_ATTR_cat_dim].i = n - 2;
  return RUN_A(cat, &over, RUN_A(cat, &side, re, NEG(im)),
               RUN_A(cat, &side, im, re));
}

/* Expands numbers for the columns to a matrix: a factor for each element. */
static fl_value diagonal(fli_grad *g, fl_value x, fl_value eye) {
  return MUL(eye, fli_v_unsqueeze(&g->e, x, g->in_meta[0].ndim - 2));
}

/* V^-H (diag(dw) + (V^H dV - V^H V diag(Re(V^H dV))) / E) V^H, E(i, j) =
 * conj(z), z = w[j] - w[i]: vectors have norm 1. x / conj(z) = x z / |z|^2. */
void fli_grad_eig_pairs(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *x = &g->in_meta[0];
  int64_t n = x->shape[x->ndim - 1];
  if (n == 0)
    return;
  fl_value dw = fli_g_dy(g, 0), dv = fli_g_dy(g, 1);
  fl_value v = as_blocks(g, spectral_part(e, g->y[FL_OUT_eig_pairs_vectors], 0),
                         spectral_part(e, g->y[FL_OUT_eig_pairs_vectors], 1));
  fl_value d = as_blocks(g, spectral_part(e, dv, 0), spectral_part(e, dv, 1));
  fl_value eye = fli_identity(e, n, dw), vh = TURN(v);
  fl_value p = MATMUL(vh, d);
  fl_value re = spectral_columns(e, rows(e, p, 0, n), 0, n),
           im = spectral_columns(e, rows(e, p, n, 2 * n), 0, n);
  fl_value own = as_blocks(g, MUL(re, eye), MUL(re, NUM(0)));
  p = SUB(p, MATMUL(MATMUL(vh, v), own));
  re = spectral_columns(e, rows(e, p, 0, n), 0, n);
  im = spectral_columns(e, rows(e, p, n, 2 * n), 0, n);
  fl_value gr = gaps_of(g, spectral_part(e, g->y[0], 0));
  fl_value gi = gaps_of(g, spectral_part(e, g->y[0], 1));
  fl_value size = ADD(ADD(RUN(square, gr), RUN(square, gi)), eye);
  fl_value off = DIV(SUB(NUM(1), eye), size);
  fl_value qr = MUL(SUB(MUL(re, gr), MUL(im, gi)), off);
  fl_value qi = MUL(ADD(MUL(re, gi), MUL(im, gr)), off);
  qr = ADD(qr, diagonal(g, spectral_part(e, dw, 0), eye));
  qi = ADD(qi, diagonal(g, spectral_part(e, dw, 1), eye));
  fl_value all = MATMUL(as_blocks(g, qr, qi), vh);
  fl_value dx = RUN(solve, vh, all);
  g->dx[0] = spectral_columns(e, rows(e, dx, 0, n), 0, n);
}

/* --- the pseudoinverse, of constant rank (Golub and Pereyra 1973) --- */

void fli_grad_pinv(fli_grad *g) {
  fl_value a = g->in[0], p = g->y[0], pt = TURN(p), dt = TURN(g->dy[0]);
  fl_value left = MATMUL(MATMUL(dt, p), pt);  /* dP^T P P^T */
  fl_value right = MATMUL(pt, MATMUL(p, dt)); /* P^T P dP^T */
  fl_value dx = NEG(MATMUL(MATMUL(pt, g->dy[0]), pt));
  dx = ADD(dx, SUB(left, MATMUL(a, MATMUL(p, left))));
  g->dx[0] = ADD(dx, SUB(right, MATMUL(MATMUL(right, p), a)));
}
