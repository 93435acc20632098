/* Rules of layer_norm, rms_norm, group_norm and batch_norm. The kernels'
 * backward rows are used unless the gradient must be differentiable itself;
 * then it is written in ordinary rows, from x normalised anew: dx = rstd (h -
 * mean(h) - xhat mean(h xhat)), h = dy weight. */
#include "fits.h"

#include <string.h>

/* --- shapes --- */

static void copy_shape(fl_meta *to, const fl_meta *from) {
  to->ndim = from->ndim;
  memcpy(to->shape, from->shape, sizeof to->shape);
}

/* Parameter k has the shape of these dims of x. */
static fl_status matches(const fli_infer *c, int k, int ndim,
                         const int64_t *shape, bool channels) {
  const fl_meta *x = c->in[FL_IN_norms_x], *p = c->in[k];
  const char *name = c->op->info.params[k].name;
  if (!p || fli_has_shape(p, ndim, shape))
    return FL_OK;
  return fli_fail(FL_ESHAPE, "%s: x %s and %s %s do not fit: %s%s%s",
                  c->op->info.name, fli_shape_text(x->ndim, x->shape), name,
                  fli_shape_text(p->ndim, p->shape),
                  channels ? "" : "x must end with ", name,
                  channels ? " has a number for each channel" : "'s sizes");
}

static fl_status check_dims(const fli_infer *c, const fl_meta *x,
                            int64_t dims) {
  if (dims >= 1 && dims <= x->ndim)
    return FL_OK;
  return fli_fail(FL_EARG,
                  "%s: cannot normalise over the last %lld dims of a tensor of "
                  "shape %s",
                  c->op->info.name, (long long)dims,
                  fli_shape_text(x->ndim, x->shape));
}

/* Results of layer_norm and rms_norm: y, then the statistics, a number for each
 * row. */
static fl_status rows_shape(fli_infer *c, int64_t dims) {
  const fl_meta *x = c->in[FL_IN_row_norms_x];
  FLI_TRY(check_dims(c, x, dims));
  if (!fli_is_float(c->out[0].dtype))
    return fli_fail(FL_EDTYPE, "%s: dtype is a float type, not %s",
                    c->op->info.name, fl_dtype_name(c->out[0].dtype));
  int rows = x->ndim - (int)dims;
  for (int k = 1; k < c->n_in; k++)
    FLI_TRY(matches(c, k, (int)dims, x->shape + rows, false));
  copy_shape(&c->out[0], x);
  for (int k = 1; k < c->n_out; k++) {
    c->out[k].ndim = rows;
    memcpy(c->out[k].shape, x->shape, (size_t)rows * sizeof *x->shape);
  }
  return FL_OK;
}

fl_status fli_shape_layer_norm(fli_infer *c) {
  return rows_shape(c, c->attrs->v[FL_ATTR_layer_norm_dims].i);
}

fl_status fli_shape_rms_norm(fli_infer *c) {
  return rows_shape(c, c->attrs->v[FL_ATTR_rms_norm_dims].i);
}

/* dx, then weight's and bias's gradients, empty without a weight. */
static fl_status backward_shapes(fli_infer *c, int ndim, const int64_t *shape) {
  static const int64_t nothing[1] = {0};
  const fl_meta *x = c->in[FL_IN_norms_backward_x];
  FLI_TRY(fli_fits(c, FL_IN_norms_backward_dy, x->ndim, x->shape));
  FLI_TRY(fli_fits(c, FL_IN_norms_backward_weight, ndim, shape));
  copy_shape(&c->out[0], x);
  for (int k = 1; k < c->n_out; k++) {
    c->out[k].ndim = c->in[FL_IN_norms_backward_weight] ? ndim : 1;
    memcpy(c->out[k].shape,
           c->in[FL_IN_norms_backward_weight] ? shape : nothing,
           (size_t)c->out[k].ndim * sizeof *shape);
  }
  return FL_OK;
}

/* The statistics of the rows are the inputs from `figures` on. */
static fl_status rows_backward_shape(fli_infer *c, const fl_meta *x,
                                     int figures, int64_t dims) {
  FLI_TRY(check_dims(c, x, dims));
  int outer = x->ndim - (int)dims;
  for (int k = figures; k < c->n_in; k++)
    FLI_TRY(fli_fits(c, k, outer, x->shape));
  return backward_shapes(c, (int)dims, x->shape + outer);
}

fl_status fli_shape_layer_norm_backward(fli_infer *c) {
  return rows_backward_shape(c, c->in[FL_IN_layer_norm_backward_x],
                             FL_IN_layer_norm_backward_mean,
                             c->attrs->v[FL_ATTR_layer_norm_backward_dims].i);
}

fl_status fli_shape_rms_norm_backward(fli_infer *c) {
  return rows_backward_shape(c, c->in[FL_IN_rms_norm_backward_x],
                             FL_IN_rms_norm_backward_rstd,
                             c->attrs->v[FL_ATTR_rms_norm_backward_dims].i);
}

static fl_status has_channels(const fli_infer *c, const fl_meta *x) {
  return x->ndim >= 2
             ? FL_OK
             : fli_fail(FL_ESHAPE, "%s: x has shape (N, C, ...), not %s",
                        c->op->info.name, fli_shape_text(x->ndim, x->shape));
}

static fl_status check_channels(fli_infer *c, int n_params) {
  const fl_meta *x = c->in[FL_IN_norms_x];
  FLI_TRY(has_channels(c, x));
  for (int k = 1; k <= n_params; k++)
    FLI_TRY(matches(c, k, 1, x->shape + 1, true));
  copy_shape(&c->out[0], x);
  return FL_OK;
}

static fl_status check_groups(const fli_infer *c, const fl_meta *x) {
  int64_t groups = c->attrs->v[FL_ATTR_group_norms_groups].i;
  return groups >= 1 && x->shape[1] % groups == 0
             ? FL_OK
             : fli_fail(FL_EARG,
                        "%s: %lld channels cannot be divided into %lld groups",
                        c->op->info.name, (long long)x->shape[1],
                        (long long)groups);
}

fl_status fli_shape_group_norm(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_group_norm_x];
  FLI_TRY(check_channels(c, 2));
  FLI_TRY(check_groups(c, x));
  for (int k = 1; k < 3; k++) {
    c->out[k].ndim = 2;
    c->out[k].shape[0] = x->shape[0];
    c->out[k].shape[1] = c->attrs->v[FL_ATTR_group_norm_groups].i;
  }
  return FL_OK;
}

fl_status fli_shape_group_norm_backward(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_group_norm_backward_x];
  FLI_TRY(has_channels(c, x));
  FLI_TRY(check_groups(c, x));
  for (int k = 3; k < 5; k++)
    FLI_TRY(fli_fits(
        c, k, 2,
        (int64_t[]){x->shape[0],
                    c->attrs->v[FL_ATTR_group_norm_backward_groups].i}));
  return backward_shapes(c, 1, c->in[FL_IN_group_norm_backward_x]->shape + 1);
}

fl_status fli_shape_batch_norm(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_batch_norm_x];
  FLI_TRY(check_channels(c, 4));
  if (!c->attrs->v[FL_ATTR_batch_norm_training].i &&
      (!c->in[FL_IN_batch_norm_running_mean] ||
       !c->in[FL_IN_batch_norm_running_var]))
    return fli_fail(FL_EARG, "batch_norm: without running_mean and "
                             "running_var it can only train");
  if (c->attrs->v[FL_ATTR_batch_norm_training].i && x->shape[1] > 0 &&
      fl_numel(x->ndim, x->shape) == x->shape[1])
    return fli_fail(FL_ESHAPE,
                    "batch_norm: training needs more than one "
                    "value for each channel, got shape %s",
                    fli_shape_text(x->ndim, x->shape));
  for (int k = 1; k < 3; k++) {
    c->out[k].ndim = 1;
    c->out[k].shape[0] = x->shape[1];
  }
  return FL_OK;
}

fl_status fli_shape_batch_norm_backward(fli_infer *c) {
  FLI_TRY(has_channels(c, c->in[FL_IN_batch_norm_backward_x]));
  for (int k = 3; k < 5; k++)
    FLI_TRY(fli_fits(c, k, 1, c->in[FL_IN_batch_norm_backward_x]->shape + 1));
  return backward_shapes(c, 1, c->in[FL_IN_batch_norm_backward_x]->shape + 1);
}

/* --- gradients --- */

static bool wanted(const fli_grad *g) {
  return !fli_nothing(g->dy[0]);
}

static void hand_over(fli_grad *g, const fl_value *out, bool bias) {
  g->dx[FL_IN_norms_x] = out[0];
  if (g->need[FL_IN_norms_weight])
    g->dx[FL_IN_norms_weight] = out[1];
  if (bias && g->need[FL_IN_norms_bias])
    g->dx[FL_IN_norms_bias] = g->in_meta[FL_IN_norms_weight].dtype == FL_NODTYPE
                                  ? fli_none()
                                  : out[2];
}

static fl_value mean_over(fli_grad *g, fl_value x, int n, const int64_t *dims) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_mean);
  fli_set_list(&g->e, &a, FL_ATTR_mean_dims, n, dims);
  a.v[FL_ATTR_mean_keepdim].i = true;
  return RUN_A(mean, &a, x);
}

/* Normalised over `dims`: xhat, and in *r what it was multiplied by. The second
 * mean is what rounding left out of the first. */
static fl_value normalised(fli_grad *g, fl_value x, int n, const int64_t *dims,
                           double eps, bool centre, fl_value *r) {
  for (int k = 0; k < 2 && centre; k++)
    x = SUB(x, mean_over(g, x, n, dims));
  *r = RUN(rsqrt, ADD(mean_over(g, RUN(square, x), n, dims), NUM(eps)));
  return MUL(x, *r);
}

static fl_value norm_through(fli_grad *g, fl_value h, fl_value xhat, fl_value r,
                             int n, const int64_t *dims, bool centre) {
  fl_value d = SUB(h, MUL(xhat, mean_over(g, MUL(h, xhat), n, dims)));
  if (centre)
    d = SUB(d, mean_over(g, h, n, dims));
  return MUL(r, d);
}

static void rows_again(fli_grad *g, bool centre) {
  const fl_meta *x = &g->in_meta[FL_IN_row_norms_x];
  int n = (int)g->attrs->v[FL_ATTR_row_norms_dims].i;
  int64_t dims[FL_MAX_DIMS];
  for (int i = 0; i < n; i++)
    dims[i] = x->ndim - n + i;
  fl_dtype wide = x->dtype == FL_F64 ? FL_F64 : FL_F32;
  fl_value dy = CAST(g->dy[0], wide), w = g->in[FL_IN_row_norms_weight], r;
  fl_value xhat = normalised(g, CAST(g->in[FL_IN_row_norms_x], wide), n, dims,
                             g->attrs->v[FL_ATTR_row_norms_eps].f, centre, &r);
  fl_value h = w.tensor ? MUL(dy, w) : dy;
  if (g->need[FL_IN_row_norms_x])
    g->dx[FL_IN_row_norms_x] = norm_through(g, h, xhat, r, n, dims, centre);
  if (g->need[FL_IN_row_norms_weight])
    g->dx[FL_IN_row_norms_weight] =
        MUL(dy, xhat); /* the engine sums over the rows */
  if (centre && g->need[FL_IN_row_norms_bias])
    g->dx[FL_IN_row_norms_bias] = dy;
}

/* The fused backward has no gradient of a bias without a weight. */
static void lone_bias(fli_grad *g, int n, const int64_t *dims) {
  if (g->need[FL_IN_norms_bias] && !g->in[FL_IN_norms_weight].tensor)
    g->dx[FL_IN_norms_bias] = n ? SUM(g->dy[0], n, dims, false) : g->dy[0];
}

void fli_grad_layer_norm(fli_grad *g) {
  if (!wanted(g))
    return;
  if (g->create) {
    rows_again(g, true);
    return;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_layer_norm_backward);
  fl_value out[FL_MAX_OUT];
  a.v[FL_ATTR_layer_norm_backward_dims].i =
      g->attrs->v[FL_ATTR_layer_norm_dims].i;
  RUN_ALL(layer_norm_backward, &a, out, IN(layer_norm_backward, dy) = g->dy[0],
          IN(layer_norm_backward, x) = g->in[FL_IN_layer_norm_x],
          IN(layer_norm_backward, weight) = g->in[FL_IN_layer_norm_weight],
          IN(layer_norm_backward, mean) = g->y[FL_OUT_layer_norm_mean],
          IN(layer_norm_backward, rstd) = g->y[FL_OUT_layer_norm_rstd]);
  hand_over(g, out, true);
  lone_bias(g, 0, NULL);
}

void fli_grad_rms_norm(fli_grad *g) {
  if (!wanted(g))
    return;
  if (g->create) {
    rows_again(g, false);
    return;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_rms_norm_backward);
  fl_value out[FL_MAX_OUT];
  a.v[FL_ATTR_rms_norm_backward_dims].i = g->attrs->v[FL_ATTR_rms_norm_dims].i;
  RUN_ALL(rms_norm_backward, &a, out, IN(rms_norm_backward, dy) = g->dy[0],
          IN(rms_norm_backward, x) = g->in[FL_IN_rms_norm_x],
          IN(rms_norm_backward, weight) = g->in[FL_IN_rms_norm_weight],
          IN(rms_norm_backward, rstd) = g->y[FL_OUT_rms_norm_rstd]);
  hand_over(g, out, false);
}

/* A number for each channel, to broadcast against (N, C, ...). */
static fl_value by_channel(fli_grad *g, fl_value v) {
  fl_meta m = {.ndim = g->in_meta[FL_IN_norms_x].ndim - 1};
  for (int i = 0; i < m.ndim; i++)
    m.shape[i] = i ? 1 : g->in_meta[FL_IN_norms_x].shape[1];
  return RESHAPE(v, &m);
}

static int all_but_channels(const fl_meta *x, int64_t *dims) {
  int n = 0;
  for (int i = 0; i < x->ndim; i++)
    if (i != 1)
      dims[n++] = i;
  return n;
}

static void channel_sums(fli_grad *g, fl_value xhat) {
  int64_t dims[FL_MAX_DIMS];
  int n = all_but_channels(&g->in_meta[FL_IN_norms_x], dims);
  if (g->need[FL_IN_norms_weight])
    g->dx[FL_IN_norms_weight] = SUM(MUL(g->dy[0], xhat), n, dims, false);
  if (g->need[FL_IN_norms_bias])
    g->dx[FL_IN_norms_bias] = SUM(g->dy[0], n, dims, false);
}

void fli_grad_group_norm(fli_grad *g) {
  const fl_meta *x = &g->in_meta[FL_IN_group_norm_x];
  int64_t outer[FL_MAX_DIMS];
  if (!wanted(g))
    return;
  if (!g->create) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_group_norm_backward);
    fl_value out[FL_MAX_OUT];
    a.v[FL_ATTR_group_norm_backward_groups].i =
        g->attrs->v[FL_ATTR_group_norm_groups].i;
    RUN_ALL(group_norm_backward, &a, out,
            IN(group_norm_backward, dy) = g->dy[0],
            IN(group_norm_backward, x) = g->in[FL_IN_group_norm_x],
            IN(group_norm_backward, weight) = g->in[FL_IN_group_norm_weight],
            IN(group_norm_backward, mean) = g->y[FL_OUT_group_norm_mean],
            IN(group_norm_backward, rstd) = g->y[FL_OUT_group_norm_rstd]);
    hand_over(g, out, true);
    lone_bias(g, all_but_channels(x, outer), outer);
    return;
  }
  fl_meta flat = {
      .ndim = 3,
      .shape = {x->shape[0], g->attrs->v[FL_ATTR_group_norm_groups].i}};
  int64_t whole = fl_numel(x->ndim, x->shape),
          groups = x->shape[0] * flat.shape[1];
  flat.shape[2] = groups ? whole / groups : 0;
  int64_t last[1] = {2};
  fl_value r, w = g->in[FL_IN_group_norm_weight];
  fl_value xhat =
      normalised(g, RESHAPE(g->in[FL_IN_group_norm_x], &flat), 1, last,
                 g->attrs->v[FL_ATTR_group_norm_eps].f, true, &r);
  fl_value h = w.tensor ? MUL(g->dy[0], by_channel(g, w)) : g->dy[0];
  if (g->need[FL_IN_group_norm_x])
    g->dx[FL_IN_group_norm_x] =
        RESHAPE(norm_through(g, RESHAPE(h, &flat), xhat, r, 1, last, true), x);
  channel_sums(g, RESHAPE(xhat, x));
}

/* attrs: training, momentum, eps */
void fli_grad_batch_norm(fli_grad *g) {
  const fl_meta *x = &g->in_meta[FL_IN_batch_norm_x];
  int64_t dims[FL_MAX_DIMS];
  int n = all_but_channels(x, dims);
  bool training = g->attrs->v[FL_ATTR_batch_norm_training].i;
  if (!wanted(g))
    return;
  if (!g->create) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_batch_norm_backward);
    fl_value out[FL_MAX_OUT];
    a.v[FL_ATTR_batch_norm_backward_training].i = training;
    RUN_ALL(batch_norm_backward, &a, out,
            IN(batch_norm_backward, dy) = g->dy[0],
            IN(batch_norm_backward, x) = g->in[FL_IN_batch_norm_x],
            IN(batch_norm_backward, weight) = g->in[FL_IN_batch_norm_weight],
            IN(batch_norm_backward, mean) = g->y[FL_OUT_batch_norm_mean],
            IN(batch_norm_backward, rstd) = g->y[FL_OUT_batch_norm_rstd]);
    hand_over(g, out, true);
    lone_bias(g, n, dims);
    return;
  }
  fl_value r, xhat, w = g->in[FL_IN_batch_norm_weight];
  fl_value h = w.tensor ? MUL(g->dy[0], by_channel(g, w)) : g->dy[0];
  if (training) {
    xhat = normalised(g, g->in[FL_IN_batch_norm_x], n, dims,
                      g->attrs->v[FL_ATTR_batch_norm_eps].f, true, &r);
    if (g->need[FL_IN_batch_norm_x])
      g->dx[FL_IN_batch_norm_x] = norm_through(g, h, xhat, r, n, dims, true);
  } else { /* fixed statistics */
    r = by_channel(g, fli_given(g->y[FL_OUT_batch_norm_rstd].tensor));
    xhat = MUL(SUB(g->in[FL_IN_batch_norm_x],
                   by_channel(g, g->y[FL_OUT_batch_norm_mean])),
               r);
    if (g->need[FL_IN_batch_norm_x])
      g->dx[FL_IN_batch_norm_x] = MUL(h, r);
  }
  channel_sums(g, xhat);
}
