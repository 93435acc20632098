/* Composed operators by element, over dims, of two tensors and along one dim:
 * angles, closeness, what to do about NaN, means with their variance,
 * distances, differences, sorting. */
#include "env.h"

#include <float.h>
#include <math.h>

/* 16-bit floats as f32, so that the result of several rows is rounded once. */
static fl_value math_wide(fli_composing *g, fl_value x) {
  fl_dtype d = fli_meta(x)->dtype;
  return d == FL_F16 || d == FL_BF16 ? CAST(x, FL_F32) : x;
}

static void math_narrowed(fli_composing *g, fl_value y) {
  if (g->e.status == FL_OK)
    g->out[0] = CAST(y, fli_meta(g->in[0])->dtype);
}

/* --- by element --- */

void fli_compose_rad2deg(fli_composing *g) {
  g->out[0] = MUL(g->in[0], NUM(57.29577951308232088));
}

void fli_compose_deg2rad(fli_composing *g) {
  g->out[0] = MUL(g->in[0], NUM(0.01745329251994329577));
}

void fli_compose_logit(fli_composing *g) {
  fl_value x = math_wide(g, g->in[0]);
  double eps = g->attrs->v[FL_ATTR_logit_eps].f;
  if (eps == eps) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_clamp);
    a.v[FL_ATTR_clamp_min].f = eps;
    a.v[FL_ATTR_clamp_max].f = 1 - eps;
    x = RUN_A(clamp, &a, x);
  }
  math_narrowed(g, SUB(LOG(x), RUN(log1p, NEG(x))));
}

static double math_largest(fl_dtype d) {
  return d == FL_F64    ? DBL_MAX
         : d == FL_F16  ? 65504
         : d == FL_BF16 ? 0x1.fep127
                        : FLT_MAX;
}

void fli_compose_nan_to_num(fli_composing *g) {
  fl_value x = g->in[0];
  fl_dtype d = x.tensor ? fli_meta(x)->dtype : x.dtype;
  double nan = g->attrs->v[FL_ATTR_nan_to_num_nan].f,
         high = g->attrs->v[FL_ATTR_nan_to_num_posinf].f,
         low = g->attrs->v[FL_ATTR_nan_to_num_neginf].f, top = math_largest(d);
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
  bool math_whole =
      x.tensor && fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT;
  return math_whole ? CAST(x, FL_F64) : x;
}

void fli_compose_isclose(fli_composing *g) {
  fl_value a = measured(g, g->in[FL_IN_isclose_a]),
           b = measured(g, g->in[FL_IN_isclose_b]);
  double rtol = g->attrs->v[FL_ATTR_isclose_rtol].f,
         atol = g->attrs->v[FL_ATTR_isclose_atol].f;
  fl_value off = RUN(abs, SUB(a, b));
  fl_value allowed = ADD(MUL(RUN(abs, b), NUM(rtol)), NUM(atol));
  fl_value near = RUN(logical_and, RUN(isfinite, off), RUN(le, off, allowed));
  near = RUN(logical_or, near, RUN(eq, a, b));
  if (g->attrs->v[FL_ATTR_isclose_equal_nan].i)
    near =
        RUN(logical_or, near, RUN(logical_and, RUN(ne, a, a), RUN(ne, b, b)));
  g->out[0] = near;
}

void fli_compose_allclose(fli_composing *g) {
  fli_compose_isclose(g);
  g->out[0] = RUN(all, g->out[0]);
}

/* --- over dims --- */

static fl_value without_nan(fli_composing *g, fl_value x) {
  if (fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT)
    return x;
  return RUN(where, RUN(isnan, x), NUM(0), x);
}

void fli_compose_nansum(fli_composing *g) {
  g->out[0] = RUN_A(sum, ATTRS_FOR(sum, nansum), without_nan(g, g->in[0]));
}

void fli_compose_nanmean(fli_composing *g) {
  fl_value x = g->in[0], known = RUN(eq, x, x);
  fl_value n = RUN_A(sum, ATTRS_FOR(sum, nanmean), known);
  x = math_wide(g,
                without_nan(g, x)); /* the sum may be beyond what f16 holds */
  math_narrowed(g, DIV(RUN_A(sum, ATTRS_FOR(sum, nanmean), x), n));
}

/* attrs: dims, correction, keepdim */
static void with_mean(fli_composing *g, int op) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_mean);
  int n;
  const int64_t *dims = fl_attr_list(g->attrs, FL_ATTR_with_mean_dims, &n);
  fli_set_list(&g->e, &a, FL_ATTR_mean_dims, n, dims);
  a.v[FL_ATTR_mean_keepdim].i = g->attrs->v[FL_ATTR_with_mean_keepdim].i;
  g->out[0] = fli_run(&g->e, op, g->attrs, 1, g->in);
  g->out[FL_OUT_with_mean_mean] = RUN_A(mean, &a, g->in[0]);
}

void fli_compose_var_mean(fli_composing *g) {
  with_mean(g, FLI_OP_var);
}

void fli_compose_std_mean(fli_composing *g) {
  with_mean(g, FLI_OP_std);
}

void fli_compose_dist(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  a.v[FL_ATTR_norm_p].f = g->attrs->v[FL_ATTR_dist_p].f;
  g->out[0] = RUN_A(norm, &a, SUB(g->in[FL_IN_dist_a], g->in[FL_IN_dist_b]));
}

void fli_compose_cov(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  if (m->ndim < 1 || m->ndim > 2) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "cov: needs (variables, observations) or (observations), got "
                 "shape %s",
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  int last = m->ndim - 1;
  double n = (double)m->shape[last] - g->attrs->v[FL_ATTR_cov_correction].f;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_mean);
  fli_set_list(&g->e, &a, FL_ATTR_mean_dims, 1, (int64_t[]){last});
  a.v[FL_ATTR_mean_keepdim].i = true;
  fl_value x = math_wide(g, g->in[0]);
  for (int k = 0; k < 2; k++) /* then what rounding left out of the mean */
    x = SUB(x, RUN_A(mean, &a, x));
  fl_value turned = last ? TRANSPOSE(x, 0, 1) : x;
  math_narrowed(g, DIV(MATMUL(x, turned), NUM(n > 0 ? n : 0)));
}

void fli_compose_corrcoef(fli_composing *g) {
  fl_value c = RUN(cov, math_wide(g, g->in[0])), d;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_diagonal);
  if (g->e.status != FL_OK)
    return;
  if (fli_meta(c)->ndim == 0) {
    math_narrowed(g, DIV(c, c));
    return;
  }
  d = SQRT(RUN_A(diagonal, &a, c));
  c = DIV(DIV(c, fli_v_unsqueeze(&g->e, d, 1)), fli_v_unsqueeze(&g->e, d, 0));
  a = fli_attrs(&g->e, FLI_OP_clamp);
  a.v[FL_ATTR_clamp_min].f = -1;
  a.v[FL_ATTR_clamp_max].f = 1;
  math_narrowed(g, RUN_A(clamp, &a, c));
}

void fli_compose_aminmax(fli_composing *g) {
  g->out[0] = RUN_A(amin, ATTRS_FOR(amin, aminmax), g->in[0]);
  g->out[FL_OUT_aminmax_max] = RUN_A(amax, ATTRS_FOR(amax, aminmax), g->in[0]);
}

/* attrs: p, dim, maxnorm */
void fli_compose_renorm(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  double most = g->attrs->v[FL_ATTR_renorm_maxnorm].f;
  int64_t dims[FL_MAX_DIMS], n = 0;
  if (m->ndim < 2 || !(most >= 0)) {
    fli_env_fail(&g->e, m->ndim < 2 ? FL_ESHAPE : FL_EARG,
                 "renorm: needs a tensor of at least 2 dims and a maxnorm that "
                 "is not negative, got shape %s and %g",
                 fli_shape_text(m->ndim, m->shape), most);
    return;
  }
  for (int d = 0; d < m->ndim; d++)
    if (d != g->attrs->v[FL_ATTR_renorm_dim].i)
      dims[n++] = d;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  a.v[FL_ATTR_norm_p].f = g->attrs->v[FL_ATTR_renorm_p].f;
  fli_set_list(&g->e, &a, FL_ATTR_norm_dims, (int)n, dims);
  a.v[FL_ATTR_norm_keepdim].i = true;
  fl_value x = math_wide(g, g->in[0]), size = RUN_A(norm, &a, x);
  fl_value factor = DIV(NUM(most), ADD(size, NUM(1e-7)));
  factor = RUN(where, RUN(gt, size, NUM(most)), factor, NUM(1));
  math_narrowed(g, MUL(x, factor));
}

/* --- of two --- */

/* a (..., m, k) and b (..., n, k) give y (..., m, n). */
static fl_status math_pairs(const fl_meta *a, const fl_meta *b, fl_meta *y) {
  int na = a->ndim - 2, nb = b->ndim - 2, n = na > nb ? na : nb;
  bool fits = na >= 0 && nb >= 0 && a->shape[na + 1] == b->shape[nb + 1];
  for (int i = 0; i < n && fits; i++) {
    int64_t sa = i < n - na ? 1 : a->shape[i - (n - na)],
            sb = i < n - nb ? 1 : b->shape[i - (n - nb)];
    fits = sa == sb || sa == 1 || sb == 1;
    y->shape[i] = sa == 1 ? sb : sa;
  }
  if (!fits)
    return fli_fail(FL_ESHAPE,
                    "cdist: needs (..., rows, size) twice with the same size, "
                    "and leading dims that broadcast, got %s and %s",
                    fli_shape_text(a->ndim, a->shape),
                    fli_shape_text(b->ndim, b->shape));
  y->ndim = n + 2;
  y->shape[n] = a->shape[na];
  y->shape[n + 1] = b->shape[nb];
  return FL_OK;
}

fl_status fli_shape_pair_distances(fli_infer *c) {
  return math_pairs(c->in[FL_IN_pair_distances_a],
                    c->in[FL_IN_pair_distances_b], &c->out[0]);
}

/* Every row of a beside every row of b. */
static void distances(fli_composing *g, double power) {
  const fl_meta *a = fli_meta(g->in[FL_IN_distances_a]),
                *b = fli_meta(g->in[FL_IN_distances_b]);
  fl_meta y;
  if ((g->e.status = math_pairs(a, b, &y)))
    return;
  int n = y.ndim + 1;
  int64_t size = a->shape[a->ndim - 1];
  /* short rows are put in front: what lies side by side are rows of b then */
  bool front = size <= 32 && size <= b->shape[b->ndim - 2];
  fl_value u = g->in[FL_IN_distances_a], v = g->in[FL_IN_distances_b];
  if (front) {
    u = TRANSPOSE(u, a->ndim - 2, a->ndim - 1);
    v = RUN(contiguous, TRANSPOSE(v, b->ndim - 2, b->ndim - 1));
  }
  u = fli_v_unsqueeze(&g->e, u, front ? a->ndim : a->ndim - 1);
  v = fli_v_unsqueeze(&g->e, v, front ? b->ndim - 1 : b->ndim - 2);
  fl_attrs p = fli_attrs(&g->e, FLI_OP_norm);
  p.v[FL_ATTR_norm_p].f = power;
  fli_set_list(&g->e, &p, FL_ATTR_norm_dims, 1,
               (int64_t[]){front ? n - 3 : n - 1});
  g->out[0] = RUN_A(norm, &p, SUB(u, v));
}

void fli_compose_pair_distances(fli_composing *g) {
  distances(g, 2);
}

void fli_compose_cdist(fli_composing *g) {
  if (g->attrs->v[FL_ATTR_cdist_p].f == 2)
    g->out[0] = RUN(pair_distances, g->in[FL_IN_cdist_a], g->in[FL_IN_cdist_b]);
  else
    distances(g, g->attrs->v[FL_ATTR_cdist_p].f);
}

/* With w = dy / y, 0 where y is, the gradient towards a row of a is the sum of
 * w (a - b): its own share and a product. Rows are taken from b's mean, so that
 * what they have in common takes no digits from what they differ by. */
void fli_grad_pair_distances(fli_grad *g) {
  fl_value a = g->in[FL_IN_pair_distances_a], b = g->in[FL_IN_pair_distances_b],
           y = g->y[0], zero = NUM(0);
  const fl_meta *m = fli_meta(y), *mb = fli_meta(b);
  int n = m->ndim;
  if (fl_numel(n, m->shape) == 0) {
    for (int k = 0; k < 2; k++)
      g->dx[k] = fli_v_zeros(&g->e, g->in_meta[k].dtype, g->in_meta[k].ndim,
                             g->in_meta[k].shape, g->e.device);
    return;
  }
  fl_attrs along = fli_attrs(&g->e, FLI_OP_mean);
  fli_set_list(&g->e, &along, FL_ATTR_mean_dims, 1, (int64_t[]){mb->ndim - 2});
  along.v[FL_ATTR_mean_keepdim].i = true;
  fl_value middle = RUN_A(mean, &along, b);
  a = SUB(a, middle);
  b = SUB(b, middle);
  fl_value same = RUN(eq, y, zero);
  fl_value w =
      RUN(where, same, zero, DIV(g->dy[0], RUN(where, same, NUM(1), y)));
  if (g->need[FL_IN_pair_distances_a])
    g->dx[FL_IN_pair_distances_a] =
        SUB(MUL(a, SUM1(w, n - 1, true)), MATMUL(w, b));
  if (g->need[FL_IN_pair_distances_b]) {
    fl_value t = TRANSPOSE(w, n - 2, n - 1);
    g->dx[FL_IN_pair_distances_b] =
        SUB(MUL(b, SUM1(t, n - 1, true)), MATMUL(t, a));
  }
}

/* Over the last dims; a number multiplies. */
void fli_compose_inner(fli_composing *g) {
  const fl_meta *m[2] = {fli_meta(g->in[FL_IN_inner_a]),
                         fli_meta(g->in[FL_IN_inner_b])};
  int64_t shape[2 * FL_MAX_DIMS], flat[2];
  fl_value v[2];
  int n = 0;
  if (m[0]->ndim == 0 || m[1]->ndim == 0) {
    g->out[0] = MUL(g->in[FL_IN_inner_a], g->in[FL_IN_inner_b]);
    return;
  }
  for (int k = 0; k < 2; k++) {
    int last = m[k]->ndim - 1;
    flat[0] = fl_numel(last, m[k]->shape);
    flat[1] = m[k]->shape[last];
    for (int d = 0; d < last; d++)
      shape[n++] = m[k]->shape[d];
    v[k] = fli_v_reshape(&g->e, g->in[k], 2, flat);
  }
  if (flat[1] != m[0]->shape[m[0]->ndim - 1] || n > FL_MAX_DIMS) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "inner: needs the same last size and a result of at most %d "
                 "dims, got %s and %s",
                 FL_MAX_DIMS, fli_shape_text(m[0]->ndim, m[0]->shape),
                 fli_shape_text(m[1]->ndim, m[1]->shape));
    return;
  }
  g->out[0] =
      fli_v_reshape(&g->e, MATMUL(v[0], TRANSPOSE(v[1], 0, 1)), n, shape);
}

/* --- by element, once more --- */

/* The exponent from the logarithm, which may be off by one at powers of 2. */
void fli_compose_frexp(fli_composing *g) {
  fl_value x = math_wide(g, g->in[0]), zero = NUM(0);
  if (fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT)
    x = CAST(x, FL_F32);
  fl_dtype d = fl_dtype_kind(fli_meta(g->in[0])->dtype) == FL_KIND_FLOAT
                   ? fli_meta(g->in[0])->dtype
                   : FL_F32;
  fl_value ok = RUN(logical_and, RUN(isfinite, x), RUN(ne, x, zero));
  fl_value safe = RUN(where, ok, RUN(abs, x), NUM(1));
  fl_value e = ADD(RUN(floor, RUN(log2, safe)), NUM(1));
  fl_value m = RUN(ldexp, safe, NEG(e));
  e = ADD(e, SUB(CAST(RUN(ge, m, NUM(1)), fli_meta(e)->dtype),
                 CAST(RUN(lt, m, NUM(0.5)), fli_meta(e)->dtype)));
  m = RUN(copysign, RUN(ldexp, safe, NEG(e)), x);
  g->out[0] = CAST(RUN(where, ok, m, x), d);
  g->out[FL_OUT_frexp_exponent] = CAST(RUN(where, ok, e, zero), FL_I32);
}

/* A unit of the last place of a, of the one below where a is a power of two and
 * b nearer to 0. */
void fli_compose_nextafter(fli_composing *g) {
  fl_value a = g->in[FL_IN_nextafter_a], b = g->in[FL_IN_nextafter_b],
           parts[FL_MAX_OUT];
  fl_value like = RUN(copysign, a, b); /* of the result's dtype and shape */
  if (g->e.status)
    return;
  fl_dtype d = fli_meta(like)->dtype, w = d == FL_F64 ? d : FL_F32;
  int digits = d == FL_F64 ? 53 : d == FL_F32 ? 24 : d == FL_F16 ? 11 : 8;
  int least = d == FL_F64 ? -1021 : d == FL_F16 ? -13 : -125;
  double most = d == FL_F64   ? DBL_MAX
                : d == FL_F32 ? (double)FLT_MAX
                : d == FL_F16 ? 65504
                              : 0x1.fep127;
  a = CAST(a.tensor ? a : ADD(MUL(like, NUM(0)), a), w);
  b = CAST(b.tensor ? b : ADD(MUL(like, NUM(0)), b), w);
  fl_value zero = NUM(0), up = RUN(gt, b, a);
  RUN_ALL(frexp, NULL, parts, a);
  fl_value in = RUN(where, RUN(gt, a, zero), RUN(lt, b, a), up);
  fl_value power = RUN(eq, RUN(abs, parts[0]), NUM(0.5));
  fl_value e = SUB(CAST(parts[FL_OUT_frexp_exponent], w),
                   CAST(RUN(logical_and, in, power), w));
  e = RUN(where, RUN(eq, a, zero), NUM(least), e);
  e = SUB(RUN(maximum, e, NUM(least)), NUM(digits));
  fl_value unit = RUN(ldexp, ADD(MUL(e, zero), NUM(1)), e);
  fl_value y = ADD(a, RUN(where, up, unit, NEG(unit)));
  y = RUN(where, RUN(eq, y, zero), RUN(copysign, y, a), y);
  y = RUN(where, RUN(isinf, a), RUN(copysign, NUM(most), a), y);
  y = RUN(where, RUN(eq, a, b), b, y);
  y = RUN(where, RUN(isnan, a), a, RUN(where, RUN(isnan, b), b, y));
  g->out[0] = CAST(y, d);
}

void fli_compose_float_power(fli_composing *g) {
  fl_value v[2];
  for (int k = 0; k < 2; k++)
    v[k] = g->in[k].tensor ? CAST(g->in[k], FL_F64) : g->in[k];
  g->out[0] = RUN(pow, v[0], v[1]);
}

void fli_compose_mvlgamma(fli_composing *g) {
  int64_t p = g->attrs->v[FL_ATTR_mvlgamma_p].i;
  fl_value x = math_wide(g, g->in[0]), y = RUN(lgamma, x);
  if (p < 1 || p > 1000) {
    fli_env_fail(&g->e, FL_EARG, "mvlgamma: p must be from 1 to 1000, got %lld",
                 (long long)p);
    return;
  }
  for (int64_t k = 1; k < p && g->e.status == FL_OK; k++)
    y = ADD(y, RUN(lgamma, SUB(x, NUM((double)k / 2))));
  math_narrowed(g, ADD(y, NUM((double)(p * (p - 1)) / 4 * log(M_PI))));
}

static fl_value math_whole(fli_composing *g, double from, double to,
                           double step, fl_dtype d) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = from;
  a.v[FL_ATTR_arange_stop].f = to;
  a.v[FL_ATTR_arange_step].f = step;
  a.v[FL_ATTR_arange_dtype].i = d;
  return fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
}

void fli_compose_vander(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t n = g->attrs->v[FL_ATTR_vander_n].i;
  bool rising = g->attrs->v[FL_ATTR_vander_increasing].i != 0;
  if (m->ndim == 0 || m->ndim == FL_MAX_DIMS || (n < 0 && n != FL_ATTR_NONE)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "vander: needs (..., numbers) and n columns, got shape %s and "
                 "%lld",
                 fli_shape_text(m->ndim, m->shape), (long long)n);
    return;
  }
  if (n == FL_ATTR_NONE)
    n = m->shape[m->ndim - 1];
  bool real = fl_dtype_kind(m->dtype) >= FL_KIND_FLOAT;
  fl_dtype d = real ? m->dtype : FL_I64; /* powers are larger than what they
                                            are made of */
  double last = (double)n;
  fl_value e = rising ? math_whole(g, 0, last, 1, d)
                      : math_whole(g, last - 1, -1, -1, d);
  fl_value x = fli_v_unsqueeze(&g->e, g->in[0], m->ndim);
  g->out[0] = RUN(pow, CAST(x, d), e);
}

void fli_compose_logspace(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_linspace);
  a.v[FL_ATTR_linspace_start].f = g->attrs->v[FL_ATTR_logspace_start].f;
  a.v[FL_ATTR_linspace_stop].f = g->attrs->v[FL_ATTR_logspace_stop].f;
  a.v[FL_ATTR_linspace_steps].i = g->attrs->v[FL_ATTR_logspace_steps].i;
  a.v[FL_ATTR_linspace_dtype].i = FL_F64;
  fl_value x = fli_run(&g->e, FLI_OP_linspace, &a, 0, NULL);
  x = RUN(pow, NUM(g->attrs->v[FL_ATTR_logspace_base].f), x);
  g->out[0] = CAST(x, (fl_dtype)g->attrs->v[FL_ATTR_logspace_dtype].i);
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

void fli_compose_diff(fli_composing *g) {
  fl_value x = g->in[0];
  int64_t n = g->attrs->v[FL_ATTR_diff_n].i,
          dim = g->attrs->v[FL_ATTR_diff_dim].i, size = size_along(g, x, dim);
  if (n < 0) {
    fli_env_fail(&g->e, FL_EARG, "diff: n must not be negative, got %lld",
                 (long long)n);
    return;
  }
  for (; n > 0 && size > 0; n--, size--) {
    x = neighbours(g, FLI_OP_sub, x, (int)dim);
    if (g->e.status)
      return;
    if (g->e.rt->meta || n >= size ||
        fl_numel(fli_meta(x)->ndim, fli_meta(x)->shape) == 0) {
      /* only its shape is left to tell, however many steps there are */
      int64_t left = size - 1 - (n - 1 < size - 1 ? n - 1 : size - 1);
      x = fli_v_narrow(&g->e, x, (int)dim, 0, left, 1);
      break;
    }
  }
  g->out[0] = x;
}

/* The areas between neighbours; nothing after a failure. */
static fl_value areas(fli_composing *g) {
  fl_value y = math_wide(g, g->in[FL_IN_areas_y]),
           x = g->n_in > 1 ? g->in[FL_IN_areas_x] : fli_none();
  int64_t dim = g->attrs->v[FL_ATTR_areas_dim].i, n = size_along(g, y, dim);
  fl_value sums = neighbours(g, FLI_OP_add, y, (int)dim);
  if (fli_nothing(x))
    return MUL(sums, NUM(g->attrs->v[FL_ATTR_areas_dx].f / 2));
  x = math_wide(g, x);
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
      (mx->ndim == 1 && mx->shape[0] != n))
    return fli_env_fail(&g->e, FL_ESHAPE,
                        "%s: x has shape %s, y %s; they must have as many "
                        "elements along dim",
                        g->op->info.name, fli_shape_text(mx->ndim, mx->shape),
                        fli_shape_text(my->ndim, my->shape));
  fl_value steps = neighbours(g, FLI_OP_sub, x, (int)places);
  return MUL(MUL(sums, steps), NUM(0.5));
}

void fli_compose_trapezoid(fli_composing *g) {
  math_narrowed(g, SUM1(areas(g), g->attrs->v[FL_ATTR_trapezoid_dim].i, false));
}

void fli_compose_cumulative_trapezoid(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cumsum);
  a.v[FL_ATTR_cumsum_dim].i = g->attrs->v[FL_ATTR_cumulative_trapezoid_dim].i;
  math_narrowed(g, RUN_A(cumsum, &a, areas(g)));
}

void fli_compose_argsort(fli_composing *g) {
  fl_value both[FL_MAX_OUT];
  RUN_ALL(sort, ATTRS_FOR(sort, argsort), both, g->in[0]);
  g->out[0] = both[FL_OUT_sort_indices];
}

void fli_compose_msort(fli_composing *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_sort);
  a.v[FL_ATTR_sort_dim].i = 0;
  g->out[0] = RUN_A(sort, &a, g->in[0]);
}
