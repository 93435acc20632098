/* Linear algebra that is made of other rows: least squares, norms, ranks,
 * powers and the products that have names of their own. */
#include "linalg.h"

#include <math.h>
#include <string.h>

static bool is_matrix(fli_composing *g, fl_value x, bool square) {
  const fl_meta *m = fli_meta(x);
  if (m->ndim >= 2 &&
      (!square || m->shape[m->ndim - 2] == m->shape[m->ndim - 1]))
    return true;
  fli_env_fail(&g->e, FL_ESHAPE, "%s: needs %smatrices, got shape %s",
               g->op->info.name, square ? "square " : "",
               fli_shape_text(m->ndim, m->shape));
  return false;
}

void fli_compose_trace(fli_composing *g) {
  int n = fli_meta(g->in[0])->ndim;
  if (!is_matrix(g, g->in[0], false))
    return;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_diagonal);
  a.v[FL_ATTR_diagonal_dim1].i = n - 2;
  a.v[FL_ATTR_diagonal_dim2].i = n - 1;
  g->out[0] = SUM1(RUN_A(diagonal, &a, g->in[0]), n - 2, false);
}

/* NaN where the determinant is negative. */
void fli_compose_logdet(fli_composing *g) {
  fl_value both[FL_MAX_OUT];
  if (!is_matrix(g, g->in[0], true))
    return;
  RUN_ALL(slogdet, NULL, both, g->in[0]);
  g->out[0] = RUN(where, RUN(lt, both[0], NUM(0)), NUM(NAN),
                  both[FL_OUT_slogdet_logabsdet]);
}

/* Both get a dim of 1 beside each of their own, in opposite order, so that the
 * blocks of the product are in place. */
void fli_compose_kron(fli_composing *g) {
  const fl_meta *m[2] = {fli_meta(g->in[FL_IN_kron_a]),
                         fli_meta(g->in[FL_IN_kron_b])};
  int n = m[0]->ndim > m[1]->ndim ? m[0]->ndim : m[1]->ndim;
  int64_t wide[2][FL_MAX_DIMS], whole[FL_MAX_DIMS];
  if (2 * n > FL_MAX_DIMS) {
    fli_env_fail(&g->e, FL_ESHAPE, "kron: at most %d dims, got %d",
                 FL_MAX_DIMS / 2, n);
    return;
  }
  for (int d = 0; d < n; d++) {
    whole[d] = 1;
    for (int k = 0; k < 2; k++) {
      int from = d - (n - m[k]->ndim);
      wide[k][2 * d + k] = from < 0 ? 1 : m[k]->shape[from];
      wide[k][2 * d + 1 - k] = 1;
      if (__builtin_mul_overflow(whole[d], wide[k][2 * d + k], &whole[d])) {
        fli_env_fail(&g->e, FL_ESIZE, "kron: the result is too large");
        return;
      }
    }
  }
  fl_value a = fli_v_reshape(&g->e, g->in[FL_IN_kron_a], 2 * n, wide[0]);
  fl_value b = fli_v_reshape(&g->e, g->in[FL_IN_kron_b], 2 * n, wide[1]);
  g->out[0] = fli_v_reshape(&g->e, MUL(a, b), n, whole);
}

/* Elements `by` further along a dim of 3. */
static fl_value linalg_composed_shifted(fli_composing *g, fl_value x,
                                        int64_t dim, int64_t by) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_roll);
  fli_set_list(&g->e, &a, FL_ATTR_roll_shifts, 1, (int64_t[]){-by});
  fli_set_list(&g->e, &a, FL_ATTR_roll_dims, 1, &dim);
  return RUN_A(roll, &a, x);
}

void fli_compose_cross(fli_composing *g) {
  fl_value a = g->in[FL_IN_cross_a], b = g->in[FL_IN_cross_b];
  const fl_meta *m = fli_meta(a), *n = fli_meta(b);
  int64_t da = g->attrs->v[FL_ATTR_cross_dim].i, db = da + n->ndim - m->ndim;
  if (m->ndim == 0 || db < 0 || m->shape[da] != 3 || n->shape[db] != 3) {
    fli_env_fail(
        &g->e, FL_ESHAPE, "cross: needs 3 elements along dim, got %s and %s",
        fli_shape_text(m->ndim, m->shape), fli_shape_text(n->ndim, n->shape));
    return;
  }
  g->out[0] = SUB(MUL(linalg_composed_shifted(g, a, da, 1),
                      linalg_composed_shifted(g, b, db, 2)),
                  MUL(linalg_composed_shifted(g, a, da, 2),
                      linalg_composed_shifted(g, b, db, 1)));
}

/* --- over factorizations --- */

void fli_compose_svdvals(fli_composing *g) {
  fl_value usv[FL_MAX_OUT];
  RUN_ALL(svd, NULL, usv, g->in[0]);
  g->out[0] = usv[FL_OUT_svd_s];
}

void fli_compose_eigvalsh(fli_composing *g) {
  fl_value wv[FL_MAX_OUT];
  RUN_ALL(eigh, ATTRS_FOR(eigh, eigvalsh), wv, g->in[0]);
  g->out[0] = wv[0];
}

void fli_compose_lstsq(fli_composing *g) {
  const fl_meta *a = fli_meta(g->in[FL_IN_lstsq_a]),
                *b = fli_meta(g->in[FL_IN_lstsq_b]);
  int rows = b->ndim - (b->ndim > 1 ? 2 : 1);
  if (!is_matrix(g, g->in[FL_IN_lstsq_a], false))
    return;
  if (b->ndim == 0 || b->shape[rows] != a->shape[a->ndim - 2]) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "lstsq: b %s does not fit a %s: it must have %lld rows",
                 fli_shape_text(b->ndim, b->shape),
                 fli_shape_text(a->ndim, a->shape),
                 (long long)a->shape[a->ndim - 2]);
    return;
  }
  g->out[0] = MATMUL(RUN_A(pinv, ATTRS_FOR(pinv, lstsq), g->in[FL_IN_lstsq_a]),
                     g->in[FL_IN_lstsq_b]);
}

void fli_compose_matrix_rank(fli_composing *g) {
  fl_value usv[FL_MAX_OUT], x = g->in[0];
  const fl_meta *m = fli_meta(x);
  double rtol = g->attrs->v[FL_ATTR_matrix_rank_rtol].f;
  if (!is_matrix(g, x, false))
    return;
  int64_t rows = m->shape[m->ndim - 2], columns = m->shape[m->ndim - 1];
  if (rtol != rtol)
    rtol = (double)(rows > columns ? rows : columns) *
           (m->dtype == FL_F64 ? 0x1p-52 : 0x1p-23);
  RUN_ALL(svd, NULL, usv, x);
  int last = m->ndim - 2;
  fl_value s = usv[FL_OUT_svd_s];
  if (rows && columns)
    s = RUN(gt, s, MUL(fli_v_narrow(&g->e, s, last, 0, 1, 1), NUM(rtol)));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_count_nonzero);
  fli_set_list(&g->e, &a, FL_ATTR_count_nonzero_dims, 1, (int64_t[]){last});
  g->out[0] = RUN_A(count_nonzero, &a, s);
}

void fli_compose_vector_norm(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  int n;
  const int64_t *dims = fl_attr_list(g->attrs, FL_ATTR_vector_norm_dims, &n);
  fli_set_list(&g->e, &a, FL_ATTR_norm_dims, n, dims);
  a.v[FL_ATTR_norm_p] = g->attrs->v[FL_ATTR_vector_norm_ord];
  a.v[FL_ATTR_norm_keepdim] = g->attrs->v[FL_ATTR_vector_norm_keepdim];
  g->out[0] = RUN_A(norm, &a, g->in[0]);
}

/* The largest or smallest along one dim, which is kept. */
static fl_value linalg_composed_extreme(fli_composing *g, fl_value x,
                                        int64_t dim, bool least) {
  int op = least ? FLI_OP_amin : FLI_OP_amax;
  fl_attrs a = fli_attrs(&g->e, op);
  fli_set_list(&g->e, &a, FL_ATTR_amax_dims, 1, &dim);
  a.v[FL_ATTR_amax_keepdim].i = true;
  return fli_run(&g->e, op, &a, 1, &x);
}

/* Of the enum's order: fro nuc inf -inf 1 -1 2 -2. */
void fli_compose_matrix_norm(fli_composing *g) {
  int64_t ord = g->attrs->v[FL_ATTR_matrix_norm_ord].i;
  fl_value x = g->in[0], y;
  const fl_meta *m = fli_meta(x);
  int row = m->ndim - 2, column = m->ndim - 1;
  if (!is_matrix(g, x, false))
    return;
  if (ord == 0) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
    fli_set_list(&g->e, &a, FL_ATTR_norm_dims, 2, (int64_t[]){row, column});
    a.v[FL_ATTR_norm_keepdim].i = true;
    y = RUN_A(norm, &a, x);
  } else if (ord == 1 || ord >= 6) {
    fl_value usv[FL_MAX_OUT];
    RUN_ALL(svd, NULL, usv, x);
    fl_value s = fli_v_unsqueeze(&g->e, usv[FL_OUT_svd_s], row);
    y = ord == 1 ? SUM1(s, column, true)
                 : linalg_composed_extreme(g, s, column, ord == 7);
  } else {
    bool rows = ord < 4;
    fl_value sums = SUM1(RUN(abs, x), rows ? column : row, true);
    y = linalg_composed_extreme(g, sums, rows ? row : column, ord % 2);
  }
  g->out[0] = g->attrs->v[FL_ATTR_matrix_norm_keepdim].i || g->e.status
                  ? y
                  : fli_v_reshape(&g->e, y, row, m->shape);
}

void fli_compose_matrix_power(fli_composing *g) {
  int64_t n = g->attrs->v[FL_ATTR_matrix_power_n].i;
  fl_value x = g->in[0], y = fli_none();
  const fl_meta *m = fli_meta(x);
  if (!is_matrix(g, x, true))
    return;
  if (n < 0)
    x = RUN(inv, x);
  for (uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
       left && !g->e.status;) {
    if (left & 1)
      y = fli_nothing(y) ? x : MATMUL(y, x);
    if (left >>= 1)
      x = MATMUL(x, x);
  }
  if (n == 0)
    y = RUN(copy, EXPAND(fli_identity(&g->e, m->shape[m->ndim - 1], x), m));
  g->out[0] = n == 1 ? RUN(copy, y) : y;
}

/* a x = b by its factor: l (l^T x) = b, or u^T (u x) = b. */
static fl_value by_factor(fli_composing *g, fl_value l, fl_value b,
                          bool upper) {
  fl_attrs first = fli_attrs(&g->e, FLI_OP_triangular_solve);
  first.v[FL_ATTR_triangular_solve_upper].i = upper;
  fl_attrs second = first;
  first.v[FL_ATTR_triangular_solve_transpose].i = upper;
  second.v[FL_ATTR_triangular_solve_transpose].i = !upper;
  return RUN_A(triangular_solve, &second, l,
               RUN_A(triangular_solve, &first, l, b));
}

void fli_compose_cholesky_solve(fli_composing *g) {
  fl_value b = g->in[FL_IN_cholesky_solve_b], y;
  bool vector = fli_meta(b)->ndim == 1;
  if (vector)
    b = fli_v_unsqueeze(&g->e, b, 1);
  y = by_factor(g, g->in[FL_IN_cholesky_solve_l], b,
                g->attrs->v[FL_ATTR_cholesky_solve_upper].i);
  const fl_meta *m = fli_meta(y);
  g->out[0] = vector && !g->e.status
                  ? fli_v_reshape(&g->e, y, m->ndim - 1, m->shape)
                  : y;
}

void fli_compose_cholesky_inverse(fli_composing *g) {
  fl_value l = g->in[0];
  const fl_meta *m = fli_meta(l);
  if (is_matrix(g, l, true))
    g->out[0] = by_factor(g, l, fli_identity(&g->e, m->shape[m->ndim - 1], l),
                          g->attrs->v[FL_ATTR_cholesky_inverse_upper].i);
}
