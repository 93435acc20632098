/* Gradients of running products, extremes and logarithms of sums. */
#include "env.h"

static fl_value running_turned(fli_grad *g, int64_t dim, fl_value x) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_flip);
  fli_set_list(&g->e, &a, FL_ATTR_flip_dims, 1, &dim);
  return RUN_A(flip, &a, x);
}

/* Sums from the end: products_k dy_k for all k from i on. */
static fl_value to_come(fli_grad *g, fl_value x) {
  int64_t dim = g->attrs->v[FL_ATTR_cumprod_dim].i;
  return running_turned(
      g, dim,
      RUN_A(cumsum, ATTRS_FOR(cumsum, cumprod), running_turned(g, dim, x)));
}

static fl_value zeros_like(fli_grad *g, fl_value x) {
  const fl_meta *m = fli_meta(x);
  return g->e.status ? fli_none()
                     : fli_v_zeros(&g->e, m->dtype, m->ndim, m->shape,
                                   fl_tensor_device(x.tensor));
}

static fl_value running_joined(fli_grad *g, int64_t dim, fl_value a,
                               fl_value b) {
  fl_attrs at = fli_attrs(&g->e, FLI_OP_cat);
  at.v[FL_ATTR_cat_dim].i = dim;
  return RUN_A(cat, &at, a, b);
}

/* t_i = b_i + a_i t_{i + 1} along a dim of n: in log2(n) rounds, after which an
 * element has all terms up to twice as far, and a_i is the product up to there.
 * There are n - 1 of a. */
static fl_value recur(fli_grad *g, int64_t dim, int64_t n, fl_value a,
                      fl_value b) {
  int d = (int)dim;
  if (n > 1) /* nothing comes after the last */
    a = running_joined(g, dim, a,
                       zeros_like(g, fli_v_narrow(&g->e, b, d, 0, 1, 1)));
  for (int64_t step = 1; step < n && g->e.status == FL_OK; step *= 2) {
    int64_t left = n - step;
    fl_value near = fli_v_narrow(&g->e, a, d, 0, left, 1);
    fl_value sum = MUL(near, fli_v_narrow(&g->e, b, d, step, left, 1));
    sum = ADD(fli_v_narrow(&g->e, b, d, 0, left, 1), sum);
    b = running_joined(g, dim, sum, fli_v_narrow(&g->e, b, d, left, step, 1));
    near = MUL(near, fli_v_narrow(&g->e, a, d, step, left, 1));
    a = running_joined(g, dim, near, fli_v_narrow(&g->e, a, d, left, step, 1));
  }
  return b;
}

/* Without a division, so that derivatives are right too where elements are 0:
 * the product of those before, times what follows without x_i itself. */
static fl_value product_again(fli_grad *g, fl_value x, fl_value dy) {
  int64_t dim = g->attrs->v[FL_ATTR_cumprod_dim].i,
          n = g->in_meta[0].shape[dim];
  int d = (int)dim;
  fl_value first = fli_v_narrow(&g->e, dy, d, 0, 1, 1);
  first = ADD(zeros_like(g, first), NUM(1));
  fl_value before = fli_v_narrow(&g->e, x, d, 0, n - 1, 1);
  before = running_joined(g, dim, first, RUN_A(cumprod, g->attrs, before));
  return MUL(before,
             recur(g, dim, n, fli_v_narrow(&g->e, x, d, 1, n - 1, 1), dy));
}

/* x_i is a factor of all results from i on, so dx_i is their sum, weighted by
 * dy, divided by x_i. At the first 0 of a line the products are taken without
 * it; at later zeros dx is 0. */
void fli_grad_cumprod(fli_grad *g) {
  fl_value x = g->in[0], dy = g->dy[0];
  if (g->in_meta[0].ndim == 0) {
    g->dx[0] = dy;
    return;
  }
  if (g->create &&
      g->in_meta[0].shape[g->attrs->v[FL_ATTR_cumprod_dim].i] > 0) {
    g->dx[0] = product_again(g, x, dy);
    return;
  }
  fl_value none = RUN(eq, x, NUM(0));
  fl_value first = RUN_A(cumsum, ATTRS_FOR(cumsum, cumprod), none);
  first = RUN(logical_and, none, RUN(eq, first, fli_integer(1)));
  fl_value y = RUN_A(cumprod, g->attrs, x);
  fl_value without = RUN_A(cumprod, g->attrs, RUN(where, first, NUM(1), x));
  fl_value dx = DIV(to_come(g, MUL(dy, y)), RUN(where, none, NUM(1), x));
  g->dx[0] = RUN(where, first, to_come(g, MUL(dy, without)), dx);
}

void fli_grad_cummax(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  fl_value dy = g->dy[0];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_scatter_add);
  if (fli_nothing(dy))
    return;
  a.v[FL_ATTR_scatter_add_dim].i = g->attrs->v[FL_ATTR_cummax_dim].i;
  fl_value zeros = fli_v_zeros(&g->e, fli_meta(dy)->dtype, x->ndim, x->shape,
                               fl_tensor_device(dy.tensor));
  g->dx[0] = RUN_A(scatter_add, &a, zeros, g->y[FL_OUT_cummax_indices], dy);
}

void fli_grad_cummin(fli_grad *g) {
  fli_grad_cummax(g);
}

/* sum_j dy_j exp(x_i - y_j) for all j from i on, as exp(x_i - y_i) s_i with
 * s_i = dy_i + exp(y_i - y_{i + 1}) s_{i + 1}: no exponent is above 0. */
void fli_grad_logcumsumexp(fli_grad *g) {
  fl_value x = g->in[0], y = g->y[0], dy = g->dy[0], zero = NUM(0);
  const fl_meta *m = &g->in_meta[0];
  int64_t dim = m->ndim ? g->attrs->v[FL_ATTR_logcumsumexp_dim].i : 0,
          n = m->ndim ? m->shape[dim] : 1;
  if (m->ndim == 0 || n == 0) {
    g->dx[0] = dy;
    return;
  }
  fl_value here = fli_v_narrow(&g->e, y, (int)dim, 0, n - 1, 1);
  fl_value next = fli_v_narrow(&g->e, y, (int)dim, 1, n - 1, 1);
  fl_value fall = RUN(where, RUN(eq, here, next), zero, SUB(here, next));
  fl_value s = recur(g, dim, n, EXP(fall), dy);
  fall = RUN(where, RUN(eq, x, y), zero, SUB(x, y));
  g->dx[0] = MUL(s, EXP(fall));
}
