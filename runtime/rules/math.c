/* Composed operators by element, over dims and along one: angles, closeness,
 * what to do about NaN, means with their variance, differences, sorting. */
#include "../env.h"

#include <float.h>
#include <math.h>

/* 16-bit floats as f32: what several rows make of them is rounded once. */
static fl_value wide(fli_composing *g, fl_value x) {
  fl_dtype d = fli_meta(x)->dtype;
  return d == FL_F16 || d == FL_BF16 ? CAST(x, FL_F32) : x;
}

static void narrowed(fli_composing *g, fl_value y) {
  if (g->e.status == FL_OK)
    g->out[0] = CAST(y, fli_meta(g->in[0])->dtype);
}

/* --- by element --- */

void compose_rad2deg(fli_composing *g) {
  g->out[0] = MUL(g->in[0], NUM(57.29577951308232088));
}

void compose_deg2rad(fli_composing *g) {
  g->out[0] = MUL(g->in[0], NUM(0.01745329251994329577));
}

void compose_logit(fli_composing *g) {
  fl_value x = wide(g, g->in[0]);
  double eps = g->attrs->v[0].f;
  if (eps == eps) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_clamp);
    a.v[0].f = eps;
    a.v[1].f = 1 - eps;
    x = RUN_A(clamp, &a, x);
  }
  narrowed(g, SUB(LOG(x), RUN(log1p, NEG(x))));
}

static double largest(fl_dtype d) {
  return d == FL_F64    ? DBL_MAX
         : d == FL_F16  ? 65504
         : d == FL_BF16 ? 0x1.fep127
                        : FLT_MAX;
}

void compose_nan_to_num(fli_composing *g) {
  fl_value x = g->in[0];
  fl_dtype d = x.tensor ? fli_meta(x)->dtype : x.dtype;
  double nan = g->attrs->v[0].f, high = g->attrs->v[1].f,
         low = g->attrs->v[2].f, top = largest(d);
  if (fl_dtype_kind(d) == FL_KIND_FLOAT) {
    x = RUN(where, RUN(eq, x, NUM(INFINITY)), NUM(high == high ? high : top),
            x);
    x = RUN(where, RUN(eq, x, NUM(-INFINITY)), NUM(low == low ? low : -top), x);
    x = RUN(where, RUN(isnan, g->in[0]), NUM(nan), x);
  }
  g->out[0] = x;
}

/* Integers as doubles, as their differences could wrap. */
static fl_value measured(fli_composing *g, fl_value x) {
  bool whole = x.tensor && fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT;
  return whole ? CAST(x, FL_F64) : x;
}

void compose_isclose(fli_composing *g) {
  fl_value a = measured(g, g->in[0]), b = measured(g, g->in[1]);
  double rtol = g->attrs->v[0].f, atol = g->attrs->v[1].f;
  fl_value off = RUN(abs, SUB(a, b));
  fl_value allowed = ADD(MUL(RUN(abs, b), NUM(rtol)), NUM(atol));
  fl_value near = RUN(logical_and, RUN(isfinite, off), RUN(le, off, allowed));
  near = RUN(logical_or, near, RUN(eq, a, b));
  if (g->attrs->v[2].i)
    near =
        RUN(logical_or, near, RUN(logical_and, RUN(ne, a, a), RUN(ne, b, b)));
  g->out[0] = near;
}

void compose_allclose(fli_composing *g) {
  compose_isclose(g);
  g->out[0] = RUN(all, g->out[0]);
}

/* --- over dims --- */

static fl_value without_nan(fli_composing *g, fl_value x) {
  if (fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT)
    return x;
  return RUN(where, RUN(isnan, x), NUM(0), x);
}

void compose_nansum(fli_composing *g) {
  g->out[0] = RUN_A(sum, g->attrs, without_nan(g, g->in[0]));
}

void compose_nanmean(fli_composing *g) {
  fl_value x = g->in[0], known = RUN(eq, x, x);
  fl_value n = RUN_A(sum, g->attrs, known);
  x = wide(g, without_nan(g, x)); /* the sum may be beyond what f16 holds */
  narrowed(g, DIV(RUN_A(sum, g->attrs, x), n));
}

/* attrs: dims, correction, keepdim */
static void with_mean(fli_composing *g, int op) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_mean);
  int n;
  const int64_t *dims = fl_attr_list(g->attrs, 0, &n);
  fli_set_list(&g->e, &a, 0, n, dims);
  a.v[1].i = g->attrs->v[2].i;
  g->out[0] = fli_run(&g->e, op, g->attrs, 1, g->in);
  g->out[1] = RUN_A(mean, &a, g->in[0]);
}

void compose_var_mean(fli_composing *g) {
  with_mean(g, FLI_OP_var);
}

void compose_std_mean(fli_composing *g) {
  with_mean(g, FLI_OP_std);
}

void compose_dist(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  a.v[0].f = g->attrs->v[0].f;
  g->out[0] = RUN_A(norm, &a, SUB(g->in[0], g->in[1]));
}

void compose_cov(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  if (m->ndim < 1 || m->ndim > 2) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "cov: needs (variables, observations) or (observations), got "
                 "shape %s",
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  int last = m->ndim - 1;
  double n = (double)m->shape[last] - g->attrs->v[0].f;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_mean);
  fli_set_list(&g->e, &a, 0, 1, (int64_t[]){last});
  a.v[1].i = true;
  fl_value x = wide(g, g->in[0]);
  x = SUB(x, RUN_A(mean, &a, x));
  fl_value turned = last ? TRANSPOSE(x, 0, 1) : x;
  narrowed(g, DIV(MATMUL(x, turned), NUM(n > 0 ? n : 0)));
}

/* --- along one dim --- */

static int64_t size_along(fli_composing *g, fl_value x, int64_t dim) {
  const fl_meta *m = fli_meta(x);
  if (m->ndim)
    return m->shape[dim];
  fli_env_fail(&g->e, FL_ESHAPE, "%s: needs a tensor of at least 1 dim",
               g->op->info.name);
  return 0;
}

/* f of neighbours: all but the first, and all but the last. */
static fl_value neighbours(fli_composing *g, int op, fl_value x, int dim) {
  int64_t n = size_along(g, x, dim);
  int64_t left = n > 0 ? n - 1 : 0;
  return fli_run(&g->e, op, NULL, 2,
                 (fl_value[]){fli_v_narrow(&g->e, x, dim, n - left, left, 1),
                              fli_v_narrow(&g->e, x, dim, 0, left, 1)});
}

void compose_diff(fli_composing *g) {
  fl_value x = g->in[0];
  int64_t n = g->attrs->v[0].i, dim = g->attrs->v[1].i,
          size = size_along(g, x, dim);
  if (n < 0) {
    fli_env_fail(&g->e, FL_EARG, "diff: n must not be negative, got %lld",
                 (long long)n);
    return;
  }
  for (; n > 0 && size > 0; n--, size--)
    x = neighbours(g, FLI_OP_sub, x, (int)dim);
  g->out[0] = x;
}

void compose_trapezoid(fli_composing *g) {
  fl_value y = wide(g, g->in[0]), x = g->n_in > 1 ? g->in[1] : fli_none();
  int64_t dim = g->attrs->v[1].i, n = size_along(g, y, dim);
  fl_value sums = neighbours(g, FLI_OP_add, y, (int)dim);
  if (fli_nothing(x)) {
    narrowed(g, MUL(SUM1(sums, dim, false), NUM(g->attrs->v[0].f / 2)));
    return;
  }
  x = wide(g, x);
  const fl_meta *my = fli_meta(y), *mx = fli_meta(x);
  int64_t shape[FL_MAX_DIMS], places = dim;
  for (int d = 0; d < my->ndim; d++)
    shape[d] = d == dim ? n : 1;
  if (mx->ndim == 1 && mx->shape[0] == n)
    x = fli_v_reshape(&g->e, x, my->ndim, shape);
  else
    places = dim - my->ndim + mx->ndim;
  if (places < 0 || mx->ndim > my->ndim ||
      (mx->ndim != 1 && mx->shape[places] != n) ||
      (mx->ndim == 1 && mx->shape[0] != n)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "trapezoid: x has shape %s, y %s; they must have as many "
                 "elements along dim",
                 fli_shape_text(mx->ndim, mx->shape),
                 fli_shape_text(my->ndim, my->shape));
    return;
  }
  fl_value steps = neighbours(g, FLI_OP_sub, x, (int)places);
  sums = MUL(MUL(sums, steps), NUM(0.5));
  narrowed(g, SUM1(sums, dim, false));
}

void compose_argsort(fli_composing *g) {
  fl_value both[FL_MAX_OUT];
  RUN_ALL(sort, g->attrs, both, g->in[0]);
  g->out[0] = both[1];
}

void compose_msort(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_sort);
  a.v[0].i = 0;
  g->out[0] = RUN_A(sort, &a, g->in[0]);
}
