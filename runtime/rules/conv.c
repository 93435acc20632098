/* Convolution: shapes, gradients, cost. A convolution is linear in x and in the
 * weight, and its two gradients are again convolutions of that kind, so each of
 * the three rows is differentiated by the other two. */
#include "window.h"

/* The positions of a row's convolution attributes. */
typedef struct conv_slots {
  int stride, padding, dilation, groups;
} conv_slots;

static const conv_slots of_conv = {FL_ATTR_conv_stride, FL_ATTR_conv_padding,
                                   FL_ATTR_conv_dilation, FL_ATTR_conv_groups};
static const conv_slots of_grads = {
    FL_ATTR_conv_grads_stride, FL_ATTR_conv_grads_padding,
    FL_ATTR_conv_grads_dilation, FL_ATTR_conv_grads_groups};

static const int64_t ones[3] = {1, 1, 1}, zeros[3] = {0, 0, 0};

/* The shape of a convolution of x with weight. */
static fl_status conv_infer(fli_infer *c, const fl_meta *x, const fl_meta *w,
                            const conv_slots *at, fl_meta *y) {
  const char *op = c->op->info.name;
  int n = w->ndim - 2, first = x->ndim - n; /* the first spatial dim of x */
  int64_t stride[3], padding[3], dilation[3],
      groups = c->attrs->v[at->groups].i;
  if (n < 1 || n > 3)
    return fli_fail(FL_ESHAPE,
                    "%s: the weight must be (outputs, inputs / groups, 1 to 3 "
                    "sizes), got %s",
                    op, fli_shape_text(w->ndim, w->shape));
  if (first != 2 && first != 1)
    return fli_fail(FL_ESHAPE,
                    "%s: with a weight %s the input must be (batch, channels, "
                    "%d sizes) or the same without batch, got %s",
                    op, fli_shape_text(w->ndim, w->shape), n,
                    fli_shape_text(x->ndim, x->shape));
  if (groups < 1 || w->shape[0] % groups != 0 ||
      x->shape[first - 1] != w->shape[1] * groups)
    return fli_fail(FL_ESHAPE,
                    "%s: an input %s, a weight %s and %lld groups do not fit: "
                    "channels must be %lld, and outputs a multiple of groups",
                    op, fli_shape_text(x->ndim, x->shape),
                    fli_shape_text(w->ndim, w->shape), (long long)groups,
                    (long long)(w->shape[1] * groups));
  FLI_TRY(fli_window_list(c, at->stride, "stride", n, ones, 1, stride));
  FLI_TRY(fli_window_list(c, at->padding, "padding", n, zeros, 0, padding));
  FLI_TRY(fli_window_list(c, at->dilation, "dilation", n, ones, 1, dilation));
  y->ndim = x->ndim;
  y->shape[0] = x->shape[0];
  y->shape[first - 1] = w->shape[0];
  for (int i = 0; i < n; i++) {
    int64_t kernel = w->shape[2 + i], size = x->shape[first + i];
    y->shape[first + i] =
        kernel < 1 ? 0
                   : fli_window_count(size, kernel, stride[i], padding[i],
                                      dilation[i], false);
    if (y->shape[first + i] == 0)
      return fli_fail(FL_ESHAPE,
                      "%s: a kernel of %lld (dilation %lld) does not fit into "
                      "size %lld with padding %lld",
                      op, (long long)kernel, (long long)dilation[i],
                      (long long)size, (long long)padding[i]);
  }
  return FL_OK;
}

fl_status fli_shape_conv(fli_infer *c) {
  const fl_meta *w = c->in[FL_IN_conv_weight], *bias = c->in[FL_IN_conv_bias];
  FLI_TRY(conv_infer(c, c->in[FL_IN_conv_x], w, &of_conv, &c->out[0]));
  if (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[0]))
    return fli_fail(FL_ESHAPE, "conv: the bias must be (%lld), got %s",
                    (long long)w->shape[0],
                    fli_shape_text(bias->ndim, bias->shape));
  return FL_OK;
}

/* dy and weight, or dy and x; the shape of the missing one is an attribute. */
static fl_status shape_grad(fli_infer *c, bool of_input) {
  const fl_meta *dy = c->in[FL_IN_conv_grads_dy],
                *other = c->in[of_input ? FL_IN_conv_input_grad_weight
                                        : FL_IN_conv_weight_grad_x];
  int n;
  const int64_t *shape = fl_attr_list(c->attrs, FL_ATTR_conv_grads_shape, &n);
  fl_meta missing = {.ndim = n <= FL_MAX_DIMS ? n : 0}, y = {.ndim = 0};
  for (int i = 0; i < missing.ndim; i++)
    missing.shape[i] = shape[i];
  FLI_TRY(conv_infer(c, of_input ? &missing : other,
                     of_input ? other : &missing, &of_grads, &y));
  bool same = y.ndim == dy->ndim;
  for (int i = 0; i < y.ndim && same; i++)
    same = y.shape[i] == dy->shape[i];
  if (!same)
    return fli_fail(FL_ESHAPE, "%s: dy is %s, but the convolution gives %s",
                    c->op->info.name, fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(y.ndim, y.shape));
  c->out[0].ndim = missing.ndim;
  for (int i = 0; i < missing.ndim; i++)
    c->out[0].shape[i] = missing.shape[i];
  return FL_OK;
}

fl_status fli_shape_conv_input_grad(fli_infer *c) {
  return shape_grad(c, true);
}

fl_status fli_shape_conv_weight_grad(fli_infer *c) {
  return shape_grad(c, false);
}

/* A multiply-add for each result and weight of its channel. */
static double products_of(const fl_meta *y, const fl_meta *w) {
  return 2 * (double)fl_numel(y->ndim, y->shape) *
         (double)fl_numel(w->ndim - 1, w->shape + 1);
}

void fli_cost_conv(const fli_infer *c, double *flops, double *bytes) {
  fli_cost_bytes(c, flops, bytes);
  *flops = products_of(&c->out[0], c->in[FL_IN_conv_weight]);
}

void fli_cost_conv_input_grad(const fli_infer *c, double *flops,
                              double *bytes) {
  fli_cost_bytes(c, flops, bytes);
  *flops = products_of(c->in[FL_IN_conv_input_grad_dy],
                       c->in[FL_IN_conv_input_grad_weight]);
}

void fli_cost_conv_weight_grad(const fli_infer *c, double *flops,
                               double *bytes) {
  fli_cost_bytes(c, flops, bytes);
  *flops = products_of(c->in[FL_IN_conv_weight_grad_dy], &c->out[0]);
}

/* --- gradients --- */

static void copy_list(fli_grad *g, fl_attrs *a, int to, int from) {
  int n;
  const int64_t *v = fl_attr_list(g->attrs, from, &n);
  fli_set_list(&g->e, a, to, n, v);
}

/* The attributes that say which convolution it is, from those of the node. */
static void copy_window(fli_grad *g, fl_attrs *a, const conv_slots *to,
                        const conv_slots *from) {
  copy_list(g, a, to->stride, from->stride);
  copy_list(g, a, to->padding, from->padding);
  copy_list(g, a, to->dilation, from->dilation);
  a->v[to->groups] = g->attrs->v[from->groups];
}

/* Those of a gradient of this shape. */
static fl_attrs grad_window(fli_grad *g, int op, const fl_meta *shape,
                            const conv_slots *from) {
  fl_attrs a = fli_attrs(&g->e, op);
  fli_set_list(&g->e, &a, FL_ATTR_conv_grads_shape, shape->ndim, shape->shape);
  copy_window(g, &a, &of_grads, from);
  return a;
}

static fl_value conv(fli_grad *g, fl_value x, fl_value w) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_conv);
  copy_window(g, &a, &of_conv, &of_grads);
  return RUN_A(conv, &a, x, w, fli_none());
}

static fl_value input_grad(fli_grad *g, fl_value dy, fl_value w,
                           const fl_meta *x, const conv_slots *from) {
  fl_attrs a = grad_window(g, FLI_OP_conv_input_grad, x, from);
  return RUN_A(conv_input_grad, &a, dy, w);
}

static fl_value weight_grad(fli_grad *g, fl_value dy, fl_value x,
                            const fl_meta *w, const conv_slots *from) {
  fl_attrs a = grad_window(g, FLI_OP_conv_weight_grad, w, from);
  return RUN_A(conv_weight_grad, &a, dy, x);
}

void fli_grad_conv(fli_grad *g) {
  fl_value dy = g->dy[0];
  if (g->need[FL_IN_conv_x])
    g->dx[FL_IN_conv_x] = input_grad(g, dy, g->in[FL_IN_conv_weight],
                                     &g->in_meta[FL_IN_conv_x], &of_conv);
  if (g->need[FL_IN_conv_weight])
    g->dx[FL_IN_conv_weight] = weight_grad(
        g, dy, g->in[FL_IN_conv_x], &g->in_meta[FL_IN_conv_weight], &of_conv);
  if (g->need[FL_IN_conv_bias]) { /* all dims but the channels */
    int64_t dims[FL_MAX_DIMS];
    int n = 0,
        first = g->out_meta[0].ndim - (g->in_meta[FL_IN_conv_weight].ndim - 2);
    for (int i = 0; i < g->out_meta[0].ndim; i++)
      if (i != first - 1)
        dims[n++] = i;
    g->dx[FL_IN_conv_bias] = SUM(dy, n, dims, false);
  }
}

void fli_grad_conv_input_grad(fli_grad *g) {
  if (g->need[FL_IN_conv_input_grad_dy])
    g->dx[FL_IN_conv_input_grad_dy] =
        conv(g, g->dy[0], g->in[FL_IN_conv_input_grad_weight]);
  if (g->need[FL_IN_conv_input_grad_weight])
    g->dx[FL_IN_conv_input_grad_weight] =
        weight_grad(g, g->in[FL_IN_conv_input_grad_dy], g->dy[0],
                    &g->in_meta[FL_IN_conv_input_grad_weight], &of_grads);
}

void fli_grad_conv_weight_grad(fli_grad *g) {
  if (g->need[FL_IN_conv_weight_grad_dy])
    g->dx[FL_IN_conv_weight_grad_dy] =
        conv(g, g->in[FL_IN_conv_weight_grad_x], g->dy[0]);
  if (g->need[FL_IN_conv_weight_grad_x])
    g->dx[FL_IN_conv_weight_grad_x] =
        input_grad(g, g->in[FL_IN_conv_weight_grad_dy], g->dy[0],
                   &g->in_meta[FL_IN_conv_weight_grad_x], &of_grads);
}

/* --- transposed convolution: what a convolution does to a gradient --- */

/* Number i of n of a list that may be empty or have one for all. */
static int64_t conv_number(fli_composing *g, int k, const char *name, int i,
                           int n, int64_t missing, int64_t low) {
  int given;
  const int64_t *v = fl_attr_list(g->attrs, k, &given);
  if (given > 1 && given != n) {
    char also[24] = "";
    if (n > 1)
      snprintf(also, sizeof also, " or %d", n);
    fli_env_fail(&g->e, FL_EARG,
                 "conv_transpose: %s needs one number%s, got %d", name, also,
                 given);
    return missing;
  }
  int64_t x = given == 0 ? missing : v[given == 1 ? 0 : i];
  if (x < low)
    fli_env_fail(&g->e, FL_EARG,
                 "conv_transpose: %s must be at least %lld, got %lld", name,
                 (long long)low, (long long)x);
  if (x > FLI_MAX_WINDOW)
    fli_env_fail(&g->e, FL_ESIZE, "conv_transpose: %s %lld is too large", name,
                 (long long)x);
  return x;
}

/* x with so many zeros behind it along its last n dims: what output_padding
 * asks for beyond a stride. */
static fl_value lengthened(fli_composing *g, fl_value x, int n,
                           const int64_t *by) {
  int64_t pads[6] = {0}, any = 0;
  for (int i = 0; i < n; i++)
    any |= pads[2 * (n - 1 - i) + 1] = by[i];
  if (!any || g->e.status != FL_OK)
    return x;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2 * n, pads);
  return RUN_A(pad, &a, x);
}

void fli_compose_conv_transpose(fli_composing *g) {
  const fl_meta *x = fli_meta(g->in[FL_IN_conv_transpose_x]),
                *w = fli_meta(g->in[FL_IN_conv_transpose_weight]);
  int n = w->ndim - 2, first = x->ndim - n;
  int64_t stride[3], padding[3], dilation[3], more[3] = {0};
  int64_t shape[FL_MAX_DIMS],
      groups = g->attrs->v[FL_ATTR_conv_transpose_groups].i;
  if (n < 1 || n > 3 || (first != 1 && first != 2) || groups < 1 ||
      x->shape[first - 1] != w->shape[0] || w->shape[0] % groups != 0) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "conv_transpose: an input %s, a weight %s and %lld groups do "
                 "not fit: they must be (batch, inputs, sizes) and (inputs, "
                 "outputs / groups, kernel), with 1 to 3 sizes",
                 fli_shape_text(x->ndim, x->shape),
                 fli_shape_text(w->ndim, w->shape), (long long)groups);
    return;
  }
  shape[0] = x->shape[0];
  shape[first - 1] = w->shape[1] * groups;
  for (int i = 0; i < n && g->e.status == FL_OK; i++) {
    int64_t s = conv_number(g, FL_ATTR_conv_transpose_stride, "stride", i, n, 1,
                            1),
            p = conv_number(g, FL_ATTR_conv_transpose_padding, "padding", i, n,
                            0, 0),
            o = conv_number(g, FL_ATTR_conv_transpose_output_padding,
                            "output_padding", i, n, 0, 0),
            d = conv_number(g, FL_ATTR_conv_transpose_dilation, "dilation", i,
                            n, 1, 1);
    stride[i] = s;
    padding[i] = p;
    dilation[i] = d;
    shape[first + i] = (x->shape[first + i] - 1) * s - 2 * p +
                       d * (w->shape[2 + i] - 1) + o + 1;
    more[i] = s > 0 ? o / s : 0;
    if (o >= s && o >= d)
      fli_env_fail(&g->e, FL_EARG,
                   "conv_transpose: output_padding must be smaller than the "
                   "stride %lld or the dilation %lld, got %lld",
                   (long long)s, (long long)d, (long long)o);
    else if (shape[first + i] < 1)
      fli_env_fail(&g->e, FL_ESHAPE,
                   "conv_transpose: size %lld with kernel %lld, stride %lld "
                   "and padding %lld leaves nothing",
                   (long long)x->shape[first + i], (long long)w->shape[2 + i],
                   (long long)s, (long long)p);
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_conv_input_grad);
  fli_set_list(&g->e, &a, FL_ATTR_conv_input_grad_shape, x->ndim, shape);
  if (g->e.status)
    return;
  fli_set_list(&g->e, &a, of_grads.stride, n, stride);
  fli_set_list(&g->e, &a, of_grads.padding, n, padding);
  fli_set_list(&g->e, &a, of_grads.dilation, n, dilation);
  a.v[FL_ATTR_conv_input_grad_groups].i = groups;
  fl_value dy = lengthened(g, g->in[FL_IN_conv_transpose_x], n, more);
  fl_value y =
      RUN_A(conv_input_grad, &a, dy, g->in[FL_IN_conv_transpose_weight]);
  if (!fli_nothing(g->in[FL_IN_conv_transpose_bias])) {
    int64_t row[FL_MAX_DIMS] = {
        fl_numel(fli_meta(g->in[FL_IN_conv_transpose_bias])->ndim,
                 fli_meta(g->in[FL_IN_conv_transpose_bias])->shape)};
    for (int i = 0; i < n; i++)
      row[1 + i] = 1;
    if (row[0] != shape[first - 1])
      fli_env_fail(
          &g->e, FL_ESHAPE, "conv_transpose: the bias must be (%lld), got %s",
          (long long)shape[first - 1],
          fli_shape_text(fli_meta(g->in[FL_IN_conv_transpose_bias])->ndim,
                         fli_meta(g->in[FL_IN_conv_transpose_bias])->shape));
    y = ADD(y,
            fli_v_reshape(&g->e, g->in[FL_IN_conv_transpose_bias], n + 1, row));
  }
  g->out[0] = y;
}
