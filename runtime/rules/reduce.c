/* Rules of the reductions: the dims of results, and gradients. */
#include "env.h"

#include <math.h>
#include <string.h>

/* --- shapes --- */

static unsigned mask_of(const fl_attrs *a, int slot, int ndim) {
  int n;
  const int64_t *dims = fl_attr_list(a, slot, &n);
  unsigned mask = 0;
  for (int i = 0; i < n; i++)
    mask |= 1u << dims[i];
  return n ? mask : (1u << ndim) - 1;
}

static void drop_dims(const fl_meta *x, unsigned mask, bool keep,
                      fl_meta *out) {
  out->ndim = 0;
  for (int i = 0; i < x->ndim; i++)
    if (!(mask >> i & 1))
      out->shape[out->ndim++] = x->shape[i];
    else if (keep)
      out->shape[out->ndim++] = 1;
}

static fl_status not_empty(fli_infer *c, unsigned mask) {
  const fl_meta *x = c->in[0];
  for (int i = 0; i < x->ndim; i++)
    if (mask >> i & 1 && x->shape[i] == 0)
      return fli_fail(FL_ESHAPE,
                      "%s: there is no extreme element of an empty dim: shape "
                      "%s",
                      c->op->info.name, fli_shape_text(x->ndim, x->shape));
  return FL_OK;
}

fl_status fli_shape_reduce(fli_infer *c) {
  unsigned mask = mask_of(c->attrs, FL_ATTR_reduce_dims, c->in[0]->ndim);
  drop_dims(c->in[0], mask,
            c->op->info.n_attr > 1 && c->attrs->v[FL_ATTR_reduce_keepdim].i,
            &c->out[0]);
  return FL_OK;
}

fl_status fli_shape_reduce_extreme(fli_infer *c) {
  FLI_TRY(not_empty(
      c, mask_of(c->attrs, FL_ATTR_reduce_extreme_dims, c->in[0]->ndim)));
  return fli_shape_reduce(c);
}

fl_status fli_shape_reduce_dim(fli_infer *c) {
  int64_t dim = c->attrs->v[FL_ATTR_reduce_dim_dim].i;
  const fl_meta *x = c->in[0];
  unsigned mask = dim == FL_ATTR_NONE ? (1u << x->ndim) - 1 : 1u << dim;
  FLI_TRY(not_empty(c, mask));
  for (int k = 0; k < c->n_out; k++)
    drop_dims(x, x->ndim ? mask : 0, c->attrs->v[FL_ATTR_reduce_dim_keepdim].i,
              &c->out[k]);
  return FL_OK;
}

fl_status fli_shape_reduce_var(fli_infer *c) {
  drop_dims(c->in[0],
            mask_of(c->attrs, FL_ATTR_reduce_var_dims, c->in[0]->ndim),
            c->attrs->v[FL_ATTR_reduce_var_keepdim].i, &c->out[0]);
  return FL_OK;
}

fl_status fli_shape_reduce_norm(fli_infer *c) {
  unsigned mask = mask_of(c->attrs, FL_ATTR_reduce_norm_dims, c->in[0]->ndim);
  if (c->attrs->v[FL_ATTR_reduce_norm_p].f < 0 ||
      isinf(c->attrs->v[FL_ATTR_reduce_norm_p].f))
    FLI_TRY(not_empty(c, mask));
  drop_dims(c->in[0], mask, c->attrs->v[FL_ATTR_reduce_norm_keepdim].i,
            &c->out[0]);
  return FL_OK;
}

/* --- gradients --- */

/* A result as it would be with keepdim, so that it broadcasts against x. */
static fl_value reduce_kept(fli_grad *g, fl_value y, unsigned mask) {
  fl_meta m = g->in_meta[0];
  for (int i = 0; i < m.ndim; i++)
    if (mask >> i & 1)
      m.shape[i] = 1;
  return RESHAPE(y, &m);
}

static double count_of(const fl_meta *x, unsigned mask) {
  double n = 1;
  for (int i = 0; i < x->ndim; i++)
    if (mask >> i & 1)
      n *= (double)x->shape[i];
  return n;
}

static fl_value sum_kept(fli_grad *g, fl_value x, unsigned mask) {
  int64_t dims[FL_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < g->in_meta[0].ndim; i++)
    if (mask >> i & 1)
      dims[n++] = i;
  return n ? SUM(x, n, dims, true) : x;
}

/* A result's gradient for each element that went into it; one without dims is
 * for all as it is. */
static fl_value reduce_spread(fli_grad *g, fl_value dy) {
  if (fli_meta(dy)->ndim)
    dy = reduce_kept(
        g, dy, mask_of(g->attrs, FL_ATTR_reduce_dims, g->in_meta[0].ndim));
  return EXPAND(dy, &g->in_meta[0]);
}

void fli_grad_sum(fli_grad *g) {
  g->dx[0] = reduce_spread(g, g->dy[0]);
}

void fli_grad_mean(fli_grad *g) {
  unsigned mask = mask_of(g->attrs, FL_ATTR_mean_dims, g->in_meta[0].ndim);
  g->dx[0] =
      reduce_spread(g, DIV(g->dy[0], NUM(count_of(&g->in_meta[0], mask))));
}

/* The product of the others: y / x without zeros; with one zero only that
 * element has a gradient; with more none has. */
static fl_value others_by_division(fli_grad *g, fl_value x, unsigned mask) {
  fl_value zero = NUM(0), one = NUM(1);
  fl_value is_zero = RUN(eq, x, zero);
  fl_value zeros = sum_kept(g, CAST(is_zero, fli_meta(x)->dtype), mask);
  fl_value safe = RUN(where, is_zero, one, x);
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  a.v[FL_ATTR_prod_keepdim].i = true;
  fl_value all = RUN_A(prod, &a, safe);
  fl_value others = RUN(where, RUN(eq, zeros, zero), DIV(all, safe), zero);
  fl_value alone = RUN(logical_and, is_zero, RUN(eq, zeros, one));
  return RUN(where, alone, all, others);
}

static fl_value reduce_join(fli_grad *g, fl_value a, fl_value b, int dim) {
  fl_attrs at = fli_attrs(&g->e, FLI_OP_cat);
  at.v[FL_ATTR_cat_dim].i = dim;
  return RUN_A(cat, &at, a, b);
}

/* The same along the last dim without a division, so that derivatives are right
 * where elements are 0: elements are multiplied in pairs, the function finds
 * the product of the other pairs, and each element of a pair multiplies it by
 * its partner. */
static fl_value others_by_pairs(fli_grad *g, fl_value x) {
  fl_meta m = *fli_meta(x);
  int last = m.ndim - 1;
  int64_t n = m.shape[last], half = n / 2;
  if (n <= 1) {
    fl_device d = fl_tensor_device(x.tensor);
    return ADD(fli_v_zeros(&g->e, m.dtype, m.ndim, m.shape, d), NUM(1));
  }
  fl_value a = fli_v_narrow(&g->e, x, last, 0, half, 1);
  fl_value b = fli_v_narrow(&g->e, x, last, half, half, 1);
  fl_value pairs = MUL(a, b), rest = fli_none();
  if (n % 2) {
    rest = fli_v_narrow(&g->e, x, last, n - 1, 1, 1);
    pairs = reduce_join(g, pairs, rest, last);
  }
  if (!pairs.tensor)
    return pairs;
  fl_value others = others_by_pairs(g, pairs), y = others;
  if (n % 2)
    y = fli_v_narrow(&g->e, others, last, 0, half, 1);
  y = reduce_join(g, MUL(y, b), MUL(y, a), last);
  if (n % 2)
    y = reduce_join(g, y, fli_v_narrow(&g->e, others, last, half, 1, 1), last);
  return y;
}

/* That for x, with the reduced dims brought last and made one, and back. */
static fl_value others_again(fli_grad *g, fl_value x, unsigned mask) {
  const fl_meta *m = &g->in_meta[0];
  int64_t order[FL_MAX_DIMS], back[FL_MAX_DIMS];
  fl_meta moved = {.ndim = m->ndim}, flat = {.ndim = 2, .shape = {1, 1}};
  int k = 0;
  for (int last = 0; last < 2; last++)
    for (int i = 0; i < m->ndim; i++)
      if ((int)(mask >> i & 1) == last) {
        back[i] = k;
        moved.shape[k] = m->shape[i];
        order[k++] = i;
        flat.shape[last] *= m->shape[i];
      }
  x = RESHAPE(fli_v_permute(&g->e, x, order), &flat);
  x = x.tensor ? others_by_pairs(g, x) : x;
  return fli_v_permute(&g->e, RESHAPE(x, &moved), back);
}

void fli_grad_prod(fli_grad *g) {
  unsigned mask = mask_of(g->attrs, FL_ATTR_prod_dims, g->in_meta[0].ndim);
  bool empty = fl_numel(g->in_meta[0].ndim, g->in_meta[0].shape) == 0;
  fl_value others = g->create && !empty ? others_again(g, g->in[0], mask)
                                        : others_by_division(g, g->in[0], mask);
  g->dx[0] = MUL(reduce_kept(g, g->dy[0], mask), others);
}

/* Equal extremes share the gradient. */
static fl_value shared(fli_grad *g, fl_value x, fl_value y, fl_value dy,
                       unsigned mask) {
  fl_value hit = CAST(RUN(eq, x, reduce_kept(g, y, mask)), fli_meta(x)->dtype);
  fl_value each = DIV(reduce_kept(g, dy, mask), sum_kept(g, hit, mask));
  return MUL(hit, each);
}

void fli_grad_amax(fli_grad *g) {
  unsigned mask = mask_of(g->attrs, FL_ATTR_amax_dims, g->in_meta[0].ndim);
  g->dx[0] = shared(g, g->in[0], g->y[0], g->dy[0], mask);
}

void fli_grad_max_dim(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  int64_t dim = g->attrs->v[FL_ATTR_max_dim_dim].i;
  fl_value dy = g->dy[0], at = g->y[FL_OUT_max_dim_indices];
  if (fli_nothing(dy))
    return;
  if (x->ndim == 0) {
    g->dx[0] = dy;
    return;
  }
  fl_value zeros = fli_v_zeros(&g->e, x->dtype, x->ndim, x->shape,
                               fl_tensor_device(dy.tensor));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_scatter_add);
  a.v[FL_ATTR_scatter_add_dim].i = dim;
  g->dx[0] = RUN_A(scatter_add, &a, zeros, reduce_kept(g, at, 1u << dim),
                   reduce_kept(g, dy, 1u << dim));
}

void fli_grad_var(fli_grad *g) {
  fl_value x = g->in[0];
  unsigned mask = mask_of(g->attrs, FL_ATTR_var_dims, g->in_meta[0].ndim);
  double n = count_of(&g->in_meta[0], mask),
         left = n - g->attrs->v[FL_ATTR_var_correction].f;
  /* the second mean is what rounding left out of the first */
  for (int k = 0; k < 2; k++)
    x = SUB(x, DIV(sum_kept(g, x, mask), NUM(n)));
  fl_value scale = MUL(reduce_kept(g, g->dy[0], mask), NUM(2 / left));
  g->dx[0] = MUL(x, scale);
}

void fli_grad_logsumexp(fli_grad *g) {
  unsigned mask = mask_of(g->attrs, FL_ATTR_logsumexp_dims, g->in_meta[0].ndim);
  /* where all is -inf: nothing, not the NaN of -inf + inf */
  fl_value y = g->y[0], none = RUN(eq, y, NUM(-INFINITY));
  y = RUN(where, none, NUM(0), y);
  fl_value p = EXP(SUB(g->in[0], reduce_kept(g, y, mask)));
  /* 1, but for the rounding of y */
  fl_value total =
      RUN(where, reduce_kept(g, none, mask), NUM(1), sum_kept(g, p, mask));
  g->dx[0] = MUL(DIV(reduce_kept(g, g->dy[0], mask), total), p);
}

/* The slope of a finite p-norm y: sign(x) |x|^(p-1) / y^(p-1), 0 where y is 0.
 */
static fl_value norm_slope(fli_grad *g, fl_value x, fl_value y, fl_value dy,
                           double p) {
  fl_value zero = NUM(0);
  if (p == 0)
    return MUL(x, zero);
  if (p == 1)
    return MUL(dy, RUN(sign, x));
  fl_value none = RUN(eq, y, zero), safe = RUN(where, none, NUM(1), y), d;
  if (p == 2)
    d = DIV(x, safe);
  else {
    fl_value a = RUN(abs, x);
    fl_value nothing = RUN(eq, a, zero);
    a = RUN(where, nothing, NUM(1), a);
    d = MUL(RUN(sign, x), RUN(pow, DIV(a, safe), NUM(p - 1)));
  }
  return RUN(where, none, zero, MUL(dy, d));
}

void fli_grad_norm(fli_grad *g) {
  fl_value x = g->in[0], y = g->y[0], dy = g->dy[0];
  unsigned mask = mask_of(g->attrs, FL_ATTR_norm_dims, g->in_meta[0].ndim);
  double p = g->attrs->v[FL_ATTR_norm_p].f;
  if (isinf(p))
    g->dx[0] = MUL(shared(g, RUN(abs, x), y, dy, mask), RUN(sign, x));
  else
    g->dx[0] =
        norm_slope(g, x, reduce_kept(g, y, mask), reduce_kept(g, dy, mask), p);
}

/* As norm's of all tensors in one. */
void fli_grad_global_norm(fli_grad *g) {
  fl_value y = g->y[0], dy = g->dy[0];
  double p = g->attrs->v[FL_ATTR_global_norm_p].f;
  fl_dtype type = g->out_meta[0].dtype;
  if (isinf(p)) { /* equal extremes share it, whichever tensors have them */
    fl_value hits = NUM(0);
    for (int i = 0; i < g->n_in; i++)
      hits = ADD(hits, SUM(CAST(RUN(eq, RUN(abs, g->in[i]), y), type), 0, NULL,
                           false));
    dy = DIV(dy, hits);
  }
  for (int i = 0; i < g->n_in; i++) {
    fl_value x = g->in[i];
    if (!g->need[i])
      continue;
    if (isinf(p))
      g->dx[i] =
          MUL(CAST(RUN(eq, RUN(abs, x), y), type), MUL(dy, RUN(sign, x)));
    else
      g->dx[i] = norm_slope(g, x, y, dy, p);
  }
}

void fli_grad_cumsum(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_flip);
  if (g->in_meta[0].ndim == 0) {
    g->dx[0] = g->dy[0];
    return;
  }
  fli_set_list(&g->e, &a, FL_ATTR_flip_dims, 1,
               &g->attrs->v[FL_ATTR_cumsum_dim].i);
  fl_value back = RUN_A(flip, &a, g->dy[0]);
  back = RUN_A(cumsum, g->attrs, back);
  g->dx[0] = RUN_A(flip, &a, back);
}

/* --- composed --- */

/* attrs: dims, correction, keepdim, as var's. Where the variance is 0 the
 * root's derivative is infinite; the gradient there is 0. */
void fli_compose_std(fli_composing *g) {
  fl_value v = RUN_A(var, ATTRS_FOR(var, std), g->in[0]);
  fl_value none = RUN(eq, v, NUM(0));
  fl_value root = SQRT(RUN(where, none, NUM(1), v));
  g->out[0] = RUN(where, none, NUM(0), root);
}

void fli_compose_sum_to(fli_composing *g) {
  int n;
  const int64_t *shape = fl_attr_list(g->attrs, FL_ATTR_sum_to_shape, &n);
  const fl_meta *x = fli_meta(g->in[0]);
  fl_meta m = {.ndim = n};
  bool fits = g->in[0].tensor && n <= x->ndim;
  for (int i = 0; i < n && fits; i++) {
    m.shape[i] = shape[i];
    fits = shape[i] == 1 || shape[i] == x->shape[x->ndim - n + i];
  }
  if (!fits) {
    fli_env_fail(&g->e, FL_ESHAPE, "sum_to: %s is not what %s broadcasts to",
                 fli_shape_text(x->ndim, x->shape), fli_shape_text(n, shape));
    return;
  }
  g->out[0] = CAST(fli_v_sum_to(&g->e, g->in[0], &m), x->dtype);
}
