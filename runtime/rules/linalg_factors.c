/* Operators on the factors of LU and on Householder reflectors, and their
 * gradients. Permuted rows are gathered; positions count from the call's base,
 * as everywhere. */
#include "linalg.h"

#include <string.h>

/* --- LU --- */

static fl_value unit_lower(fli_env *e, fl_value f, fl_value b, bool turned) {
  fl_attrs a = fli_attrs(e, FLI_OP_triangular_solve);
  a.v[FL_ATTR_triangular_solve_transpose].i = turned;
  a.v[FL_ATTR_triangular_solve_unitriangular].i = true;
  return fli_run(e, FLI_OP_triangular_solve, &a, 2, (fl_value[]){f, b});
}

static fl_value by_upper(fli_env *e, fl_value f, fl_value b) {
  fl_attrs a = fli_attrs(e, FLI_OP_triangular_solve);
  a.v[FL_ATTR_triangular_solve_upper].i = true;
  return fli_run(e, FLI_OP_triangular_solve, &a, 2, (fl_value[]){f, b});
}

/* Rows or columns [from, to) of the last two dims. */
static fl_value linalg_factors_part(fli_env *e, fl_value x, bool columns,
                                    int64_t from, int64_t to) {
  if (e->status)
    return x;
  int dim = fli_meta(x)->ndim - (columns ? 1 : 2);
  return fli_v_narrow(e, x, dim, from, to - from, 1);
}

/* With l1, u1 the square parts in front, u2 what u has beside them, l2 what l
 * has below: dx = l1^-T (tril(l1^T dl1 - du2 u2^T, -1) + triu(du1 u1^T - l2^T
 * dl2)) u1^-T, beside it l1^-T du2, or below it dl2 u1^-T; rows go back. */
void fli_grad_lu_factor(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *x = &g->in_meta[0];
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  int64_t k = m < n ? m : n;
  if (k == 0)
    return;
  fl_value front = linalg_factors_part(
      e, linalg_factors_part(e, g->y[0], false, 0, k), true, 0, k);
  fl_value d = linalg_factors_part(
      e, linalg_factors_part(e, g->dy[0], false, 0, k), true, 0, k);
  fl_attrs beside = fli_attrs(e, FLI_OP_cat);
  beside.v[FL_ATTR_cat_dim].i = x->ndim - 1;
  fl_attrs below = beside;
  below.v[FL_ATTR_cat_dim].i = x->ndim - 2;
  fl_value low = fli_triangle(e, front, false, -1);
  low = ADD(low, fli_identity(e, k, front));
  fl_value lower = MATMUL(TURN(low), fli_triangle(e, d, false, -1));
  fl_value upper = MATMUL(fli_triangle(e, d, true, 0),
                          TURN(fli_triangle(e, front, true, 0)));
  fl_value more = fli_none();
  if (n > k) {
    more = linalg_factors_part(e, g->dy[0], true, k, n);
    lower = SUB(
        lower, MATMUL(more, TURN(linalg_factors_part(e, g->y[0], true, k, n))));
  } else if (m > k) {
    more = linalg_factors_part(e, g->dy[0], false, k, m);
    upper =
        SUB(upper,
            MATMUL(TURN(linalg_factors_part(e, g->y[0], false, k, m)), more));
  }
  fl_value y =
      ADD(fli_triangle(e, lower, false, -1), fli_triangle(e, upper, true, 0));
  y = TURN(by_upper(e, front, TURN(y)));
  if (n > k)
    y = RUN_A(cat, &beside, y, more);
  y = unit_lower(e, front, y, true);
  if (m > k)
    y = RUN_A(cat, &below, y, TURN(by_upper(e, front, TURN(more))));
  g->dx[0] = fli_rows_at(
      e, y, fli_inverse_order(e, g->y[FL_OUT_lu_factor_order]), false);
}

void fli_compose_lu(fli_composing *g) {
  fli_env *e = &g->e;
  const fl_meta *x = fli_meta(g->in[0]);
  fl_value both[FL_MAX_OUT];
  if (x->ndim < 2) {
    fli_env_fail(e, FL_ESHAPE, "lu: needs matrices, got shape %s",
                 fli_shape_text(x->ndim, x->shape));
    return;
  }
  RUN_ALL(lu_factor, NULL, both, g->in[0]);
  if (e->status)
    return;
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  int64_t k = m < n ? m : n;
  fl_value low = linalg_factors_part(e, both[0], true, 0, k);
  fl_value one = fli_diagonal(e, m, k, low);
  fl_attrs a = fli_attrs(e, FLI_OP_one_hot);
  a.v[FL_ATTR_one_hot_classes].i = m ? m : 1; /* of nothing */
  a.v[FL_ATTR_one_hot_dtype].i = x->dtype;
  g->out[0] = linalg_factors_part(
      e, TURN(RUN_A(one_hot, &a, both[FL_OUT_lu_factor_order])), false, 0, m);
  g->out[FL_OUT_lu_l] = ADD(fli_triangle(e, low, false, -1), one);
  g->out[FL_OUT_lu_u] =
      fli_triangle(e, linalg_factors_part(e, both[0], false, 0, k), true, 0);
}

/* The leading dims of a and b broadcast, and the last two of b. */
static bool linalg_factors_spread(fli_composing *g, const fl_meta *a,
                                  const fl_meta *b, fl_meta *y) {
  int na = a->ndim - 2, nb = b->ndim - 2;
  y->ndim = (na > nb ? na : nb) + 2;
  for (int d = 0; d < y->ndim - 2; d++) {
    int ia = d - (y->ndim - 2 - na), ib = d - (y->ndim - 2 - nb);
    int64_t sa = ia < 0 ? 1 : a->shape[ia], sb = ib < 0 ? 1 : b->shape[ib];
    if (sa != sb && sa != 1 && sb != 1)
      return false;
    y->shape[d] = sa == 1 ? sb : sa;
  }
  memcpy(y->shape + y->ndim - 2, b->shape + nb, 2 * sizeof *y->shape);
  (void)g;
  return true;
}

void fli_compose_lu_solve(fli_composing *g) {
  fli_env *e = &g->e;
  fl_value f = g->in[FL_IN_lu_solve_factors],
           order = g->in[FL_IN_lu_solve_order], b = g->in[FL_IN_lu_solve_b];
  const fl_meta *a = fli_meta(f), *o = fli_meta(order), *m = fli_meta(b);
  bool vector = m->ndim == 1;
  fl_meta whole;
  if (vector)
    b = fli_v_unsqueeze(e, b, 1);
  int n = a->ndim;
  bool fits = n >= 2 && m->ndim > 0 && fli_has_shape(o, n - 1, a->shape);
  fits = fits && a->shape[n - 1] == a->shape[n - 2];
  if (e->status || !fits ||
      fli_meta(b)->shape[fli_meta(b)->ndim - 2] != a->shape[n - 1] ||
      !linalg_factors_spread(g, a, fli_meta(b), &whole)) {
    fli_env_fail(e, FL_ESHAPE,
                 "lu_solve: factors %s, their order %s and b %s do not fit: "
                 "square matrices, a position for each row, as many rows in b",
                 fli_shape_text(a->ndim, a->shape),
                 fli_shape_text(o->ndim, o->shape),
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  order = fli_v_expand(e, order, whole.ndim - 1, whole.shape);
  b = fli_rows_at(e, EXPAND(b, &whole), order, false);
  b = by_upper(e, f, unit_lower(e, f, b, false));
  g->out[0] = vector ? fli_v_reshape(e, b, whole.ndim - 1, whole.shape) : b;
}

/* --- Householder's reflections --- */

/* The product of I - tau v v^T is I - V T V^T, where the inverse of T has 1 /
 * tau on the diagonal and above it the products of the vectors (Joffrain et
 * al., 2006): q c, or q^T c, without one reflection after the other. A
 * reflection with tau = 0 is none. */
static fl_value linalg_factors_reflected(fli_composing *g, fl_value x,
                                         fl_value tau, fl_value c,
                                         bool turned) {
  fli_env *e = &g->e;
  if (e->status)
    return c;
  fl_dtype to = fli_promote(fli_meta(x)->dtype, fli_meta(c)->dtype);
  fl_dtype d = to == FL_F64 ? FL_F64 : FL_F32; /* rounded once */
  x = CAST(x, d);
  tau = CAST(tau, d);
  c = CAST(c, d);
  if (e->status)
    return c;
  const fl_meta *m = fli_meta(x), *t = fli_meta(tau);
  int last = m->ndim - 1;
  int64_t k = t->shape[t->ndim - 1];
  fl_value v =
      ADD(fli_triangle(e, linalg_factors_part(e, x, true, 0, k), false, -1),
          fli_diagonal(e, m->shape[last - 1], k, x));
  fl_value some = fli_v_unsqueeze(e, RUN(ne, tau, NUM(0)), last - 1);
  fl_value scale = fli_v_unsqueeze(e, tau, last - 1);
  v = RUN(where, some, v, NUM(0));
  scale = DIV(NUM(1), RUN(where, some, scale, NUM(1)));
  fl_value inner = ADD(fli_triangle(e, MATMUL(TURN(v), v), true, 1),
                       MUL(fli_identity(e, k, x), scale));
  fl_attrs a = fli_attrs(e, FLI_OP_triangular_solve);
  a.v[FL_ATTR_triangular_solve_upper].i = true;
  a.v[FL_ATTR_triangular_solve_transpose].i = turned;
  fl_value by = RUN_A(triangular_solve, &a, inner, MATMUL(TURN(v), c));
  return CAST(SUB(c, MATMUL(v, by)), to);
}

/* Checks that tau has x's leading dims and at most as many numbers as x has
 * columns and rows. */
static bool reflections(fli_composing *g) {
  const fl_meta *x = fli_meta(g->in[FL_IN_reflectors_x]),
                *t = fli_meta(g->in[FL_IN_reflectors_tau]);
  int n = x->ndim;
  if (n >= 2 && t->ndim == n - 1 && t->shape[n - 2] <= x->shape[n - 1] &&
      t->shape[n - 2] <= x->shape[n - 2] &&
      memcmp(x->shape, t->shape, (size_t)(n - 2) * sizeof(int64_t)) == 0)
    return true;
  fli_env_fail(&g->e, FL_ESHAPE,
               "%s: tau %s does not fit vectors of shape %s: one for each "
               "column, or fewer",
               g->op->info.name, fli_shape_text(t->ndim, t->shape),
               fli_shape_text(n, x->shape));
  return false;
}

void fli_compose_householder_product(fli_composing *g) {
  const fl_meta *x = fli_meta(g->in[FL_IN_householder_product_x]);
  if (!reflections(g))
    return;
  int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
  if (n > m) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "householder_product: shape %s has more columns than rows",
                 fli_shape_text(x->ndim, x->shape));
    return;
  }
  fl_value one = fli_diagonal(&g->e, m, n, g->in[FL_IN_householder_product_x]);
  g->out[0] = linalg_factors_reflected(g, g->in[FL_IN_householder_product_x],
                                       g->in[FL_IN_householder_product_tau],
                                       EXPAND(one, x), false);
}

void fli_compose_ormqr(fli_composing *g) {
  const fl_meta *x = fli_meta(g->in[FL_IN_ormqr_x]),
                *c = fli_meta(g->in[FL_IN_ormqr_c]);
  bool left = g->attrs->v[FL_ATTR_ormqr_left].i,
       turned = g->attrs->v[FL_ATTR_ormqr_transpose].i;
  if (!reflections(g))
    return;
  int64_t m = x->shape[x->ndim - 2];
  if (c->ndim < 2 || c->shape[c->ndim - (left ? 2 : 1)] != m) {
    fli_env_fail(&g->e, FL_ESHAPE, "ormqr: c %s must have %lld %s",
                 fli_shape_text(c->ndim, c->shape), (long long)m,
                 left ? "rows" : "columns");
    return;
  }
  fl_value y = left ? g->in[FL_IN_ormqr_c] : TURN(g->in[FL_IN_ormqr_c]);
  y = linalg_factors_reflected(g, g->in[FL_IN_ormqr_x], g->in[FL_IN_ormqr_tau],
                               y, left ? turned : !turned);
  g->out[0] = left ? y : TURN(y);
}
