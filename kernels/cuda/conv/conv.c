/* The rows conv, conv_input_grad and conv_weight_grad: what a launch asks for,
 * as a record. How it is done is in conv_native.c and cudnn.c. */
#include "../gemm/product.h"
#include "convolve.h"

#include <string.h>

static void open_planes(flc_planes *p, const fl_view *v, int spatial) {
  int first = v->ndim - spatial; /* 1 without a dim for the batch */
  *p = (flc_planes){.data = v->data, .images = 1, .size = {1, 1, 1}};
  if (first == 2) {
    p->images = v->shape[0];
    p->image = v->shape[0] == 1 ? 0 : v->stride[0];
  }
  p->channels = v->shape[first - 1];
  p->channel = v->stride[first - 1];
  for (int i = 0; i < spatial; i++) {
    p->size[3 - spatial + i] = v->shape[first + i];
    p->place[3 - spatial + i] =
        v->shape[first + i] == 1 ? 0 : v->stride[first + i];
  }
}

/* Planes in `dtype`: the view's own, whatever its strides, or a copy. */
static fl_status read_planes(const fl_launch *l, flc_planes *p,
                             const fl_view *v, int spatial, fl_dtype dtype) {
  fl_view w;
  if (v->dtype == dtype) {
    open_planes(p, v, spatial);
    return FL_OK;
  }
  fl_view_copy(&w, v);
  w.data = (void *)(uintptr_t)flc_input(l, v, dtype);
  int64_t n = 1;
  for (int i = v->ndim - 1; i >= 0; n *= v->shape[i--])
    w.stride[i] = n;
  open_planes(p, &w, spatial);
  return w.data ? FL_OK : FL_ENOMEM;
}

/* Attribute lists are complete: one number for each dim of space. */
static void read_list(const fl_attrs *a, int k, int spatial, int64_t missing,
                      int64_t out[3]) {
  int n;
  const int64_t *v = fl_attr_list(a, k, &n);
  for (int i = 0; i < 3; i++) {
    int at = i - (3 - spatial);
    out[i] = at >= 0 && at < n ? v[at] : missing;
  }
}

/* All but the operands. stride, padding, dilation, groups are attributes from
 * `at` on; `w` has the weight's shape. */
static void read_window(const fl_launch *l, flc_conv *c, int at,
                        const fl_view *w) {
  c->spatial = w->ndim - 2;
  c->outputs = w->shape[0];
  c->inputs = w->shape[1];
  for (int i = 0; i < 3; i++) {
    int k = i - (3 - c->spatial);
    c->kernel[i] = k >= 0 ? w->shape[2 + k] : 1;
  }
  read_list(l->attrs, at, c->spatial, 1, c->stride);
  read_list(l->attrs, at + 1, c->spatial, 0, c->pad);
  read_list(l->attrs, at + 2, c->spatial, 1, c->dilation);
  c->groups = l->attrs->v[at + 3].i;
}

/* Whether weights have their inputs innermost, in order. */
static bool inputs_last(const fl_view *w) {
  int64_t n = w->shape[1];
  return w->ndim == 4 && w->stride[1] == 1 && w->stride[3] == n &&
         w->stride[2] == n * w->shape[3] &&
         w->stride[0] == n * w->shape[3] * w->shape[2] && !fl_contiguous(w);
}

/* Weights (outputs, inputs, kernel) to (outputs, kernel, inputs), or back. */
static fl_status turn_weights(const fl_launch *l, const flc_conv *c, void *from,
                              void *to, bool back) {
  int64_t taps = flc_volume(c->kernel);
  if (fl_dtype_size(c->dtype) == 2)
    return flc_conv_turn_weights(l, c, from, to, back);
  fl_view x = {.data = from,
               .dtype = c->dtype,
               .ndim = 3,
               .shape = {c->outputs, c->inputs, taps},
               .stride = {c->inputs * taps, taps, 1}};
  fl_view y = x, *last = back ? &x : &y;
  y.data = to;
  last->stride[1] = 1;
  last->stride[2] = c->inputs;
  return flc_move(l, &y, &x);
}

fl_status flc_conv_weights(const fl_launch *l, flc_conv *c) {
  int64_t n = c->outputs * c->inputs * flc_volume(c->kernel);
  c->w = fl_scratch_get(l, (size_t)n * fl_dtype_size(c->dtype));
  if (!c->w)
    return FL_ENOMEM;
  return c->kind == FLC_CONV_WEIGHT ? FL_OK
                                    : turn_weights(l, c, c->w_last, c->w, true);
}

fl_status flc_conv_put_weights(const fl_launch *l, const flc_conv *c,
                               const flc_conv *to) {
  return turn_weights(l, c, c->w, to->w_last, false);
}

static fl_status read_weight(const fl_launch *l, flc_conv *c,
                             const fl_view *w) {
  if (w->dtype == c->dtype && inputs_last(w)) {
    c->w_last = w->data;
    return FL_OK;
  }
  c->w = (void *)(uintptr_t)flc_input(l, w, c->dtype);
  return c->w ? FL_OK : FL_ENOMEM;
}

_Static_assert(FL_IN_conv_input_grad_weight == FL_IN_conv_weight_grad_x,
               "read for both rows");

/* What a gradient is computed in: its operands may differ. */
static fl_dtype conv_common(const fl_launch *l) {
  fl_dtype a = l->in[FL_IN_conv_grads_dy].dtype,
           b = l->in[FL_IN_conv_input_grad_weight].dtype;
  return a == b ? a : a == FL_F64 || b == FL_F64 ? FL_F64 : FL_F32;
}

/* Runs c, whose result is `out`; through memory of c's dtype if out has another
 * one. `to` is where c keeps the pointer to its result. */
static fl_status run_into(const fl_launch *l, flc_conv *c, const fl_view *out,
                          void **to) {
  if (out->dtype == c->dtype)
    return flc_convolve(l, c);
  fl_view v;
  fl_view_copy(&v, out);
  v.dtype = c->dtype;
  v.data =
      fl_scratch_get(l, (size_t)fl_view_numel(out) * fl_dtype_size(c->dtype));
  if (!v.data)
    return FL_ENOMEM;
  *to = v.data;
  fl_status s = flc_convolve(l, c);
  return s == FL_OK ? flc_move(l, out, &v) : s;
}

/* Whether elements lie as in a matrix (places, channels). */
static bool places_by_channels(const flc_planes *p) {
  int64_t step = p->channels;
  bool lines = p->channel == 1;
  for (int i = 2; i >= 0; step *= p->size[i--])
    lines = lines && (p->size[i] == 1 || p->place[i] == step);
  return lines && (p->images == 1 || p->image == step);
}

bool flc_conv_product(const flc_conv *c, flc_product *p) {
  const void *w = c->w ? c->w : c->w_last;
  int64_t places = c->y.images * flc_volume(c->y.size);
  bool plain = c->groups == 1 && flc_volume(c->kernel) == 1 &&
               flc_volume(c->stride) == 1 && places_by_channels(&c->x) &&
               places_by_channels(&c->y);
  for (int i = 0; i < 3; i++)
    plain = plain && c->pad[i] == 0;
  *p = (flc_product){
      .dtype = c->dtype, .m = places, .bias_dtype = c->bias_dtype};
  switch (c->kind) {
  case FLC_CONV_FORWARD: /* y = x w^T */
    p->n = c->outputs;
    p->k = c->inputs;
    p->a = c->x.data;
    p->b = w;
    p->c = c->y.data;
    p->bias = c->bias;
    p->bk = 1;
    p->bn = c->inputs;
    break;
  case FLC_CONV_INPUT: /* x = y w */
    p->n = c->inputs;
    p->k = c->outputs;
    p->a = c->y.data;
    p->b = w;
    p->c = c->x.data;
    p->bk = c->inputs;
    p->bn = 1;
    break;
  case FLC_CONV_WEIGHT: /* w = y^T x */
    p->m = c->outputs;
    p->n = c->inputs;
    p->k = places;
    p->a = c->y.data;
    p->b = c->x.data;
    p->c = (void *)(uintptr_t)w;
    p->bk = c->inputs;
    p->bn = 1;
    break;
  }
  p->am = c->kind == FLC_CONV_WEIGHT ? 1 : p->k;
  p->ak = c->kind == FLC_CONV_WEIGHT ? c->outputs : 1;
  return plain;
}

fl_status flc_conv_moments(const fl_launch *l, const fl_launch *tile,
                           int operand, bool *done) {
  const fl_view *out = &l->out[0], *x = &l->in[FL_IN_conv_x],
                *w = &l->in[FL_IN_conv_weight];
  flc_conv c = {.kind = FLC_CONV_FORWARD, .dtype = out->dtype};
  *done = false;
  if (x->dtype != out->dtype || w->dtype != out->dtype ||
      l->in[FL_IN_conv_bias].data || fl_view_numel(out) == 0)
    return FL_OK;
  read_window(l, &c, FL_ATTR_conv_stride, w);
  open_planes(&c.y, out, c.spatial);
  open_planes(&c.x, x, c.spatial);
  c.w = w->data;
  flc_product p;
  return flc_conv_product(&c, &p) && w->stride[1] == 1 &&
                 w->stride[0] == c.inputs
             ? flc_product_moments(l, &p, tile, operand, done)
             : FL_OK;
}

FLC_KERNEL(conv) {
  const fl_view *out = &l->out[0], *bias = &l->in[FL_IN_conv_bias];
  flc_conv c = {.kind = FLC_CONV_FORWARD, .dtype = out->dtype};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  read_window(l, &c, FL_ATTR_conv_stride, &l->in[FL_IN_conv_weight]);
  open_planes(&c.y, out, c.spatial);
  if (read_planes(l, &c.x, &l->in[FL_IN_conv_x], c.spatial, c.dtype) != FL_OK ||
      read_weight(l, &c, &l->in[FL_IN_conv_weight]) != FL_OK)
    return FL_ENOMEM;
  if (bias->data) {
    c.bias_dtype = bias->dtype;
    c.bias = flc_input(l, bias, bias->dtype);
    if (!c.bias)
      return FL_ENOMEM;
  }
  return flc_convolve(l, &c);
}

FLC_KERNEL(conv_input_grad) {
  const fl_view *out = &l->out[0];
  flc_conv c = {.kind = FLC_CONV_INPUT, .dtype = conv_common(l)};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  read_window(l, &c, FL_ATTR_conv_input_grad_stride,
              &l->in[FL_IN_conv_input_grad_weight]);
  open_planes(&c.x, out, c.spatial);
  if (read_planes(l, &c.y, &l->in[FL_IN_conv_input_grad_dy], c.spatial,
                  c.dtype) != FL_OK ||
      read_weight(l, &c, &l->in[FL_IN_conv_input_grad_weight]) != FL_OK)
    return FL_ENOMEM;
  return run_into(l, &c, out, &c.x.data);
}

FLC_KERNEL(conv_weight_grad) {
  const fl_view *out = &l->out[0];
  bool last = inputs_last(out);
  flc_conv c = {.kind = FLC_CONV_WEIGHT,
                .dtype = conv_common(l),
                .w = last ? NULL : out->data,
                .w_last = last ? out->data : NULL};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  if (fl_view_numel(&l->in[FL_IN_conv_weight_grad_dy]) ==
      0) /* an empty batch */
    return flc_zero(l, out->data,
                    (size_t)fl_view_numel(out) * fl_dtype_size(out->dtype));
  read_window(l, &c, FL_ATTR_conv_weight_grad_stride, out);
  if (read_planes(l, &c.y, &l->in[FL_IN_conv_weight_grad_dy], c.spatial,
                  c.dtype) != FL_OK ||
      read_planes(l, &c.x, &l->in[FL_IN_conv_weight_grad_x], c.spatial,
                  c.dtype) != FL_OK)
    return FL_ENOMEM;
  return run_into(l, &c, out, last ? &c.w_last : &c.w);
}
