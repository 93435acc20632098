/* Pooling: shapes and gradients. Backward rows are linear, so the gradient of
 * each is a forward pass. */
#include "window.h"

/* x is (batch, channels, sizes) or (channels, sizes); a kernel of one number
 * pools all dims after the first two. Gives the first spatial dim, or 0. */
static int first_spatial(int ndim, int numbers) {
  int n = numbers > 1 ? numbers : ndim == 2 ? 1 : ndim - 2;
  return n >= 1 && n <= 3 && (ndim == n + 2 || ndim == n + 1) ? ndim - n : 0;
}

static fl_status wrong_dims(const fli_infer *c, const fl_meta *x) {
  return fli_fail(FL_ESHAPE,
                  "%s: the input must be (batch, channels, sizes) or the same "
                  "without batch, with one kernel size for each of 1 to 3 "
                  "sizes, got %s",
                  c->op->info.name, fli_shape_text(x->ndim, x->shape));
}

typedef struct windows {
  int first, n; /* spatial dims of x */
  int64_t kernel[3], stride[3], padding[3], dilation[3];
} windows;

/* Where a row has the attributes of its windows; dilation -1: it has none. */
typedef struct window_slots {
  int kernel, stride, padding, dilation;
} window_slots;

static const window_slots of_max = {
    FL_ATTR_max_pool_kernel, FL_ATTR_max_pool_stride, FL_ATTR_max_pool_padding,
    FL_ATTR_max_pool_dilation};
static const window_slots of_mean = {FL_ATTR_avg_pool_kernel,
                                     FL_ATTR_avg_pool_stride,
                                     FL_ATTR_avg_pool_padding, -1};
static const window_slots of_mean_backward = {
    FL_ATTR_avg_pool_backward_kernel, FL_ATTR_avg_pool_backward_stride,
    FL_ATTR_avg_pool_backward_padding, -1};

static fl_status pooling_settle(fli_infer *c, const fl_meta *x,
                                const window_slots *at, windows *w) {
  static const int64_t none[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
  int numbers;
  fl_attr_list(c->attrs, at->kernel, &numbers);
  w->first = first_spatial(x->ndim, numbers);
  w->n = x->ndim - w->first;
  if (!w->first)
    return wrong_dims(c, x);
  FLI_TRY(fli_window_list(c, at->kernel, "kernel", w->n, NULL, 1, w->kernel));
  FLI_TRY(
      fli_window_list(c, at->stride, "stride", w->n, w->kernel, 1, w->stride));
  FLI_TRY(
      fli_window_list(c, at->padding, "padding", w->n, none, 0, w->padding));
  for (int i = 0; i < 3; i++)
    w->dilation[i] = 1;
  if (at->dilation >= 0)
    FLI_TRY(fli_window_list(c, at->dilation, "dilation", w->n, ones, 1,
                            w->dilation));
  for (int i = 0; i < w->n; i++)
    if (2 * w->padding[i] > w->dilation[i] * (w->kernel[i] - 1) + 1)
      return fli_fail(FL_EARG,
                      "%s: padding must be at most half of the kernel, got "
                      "%lld for a kernel of %lld",
                      c->op->info.name, (long long)w->padding[i],
                      (long long)w->kernel[i]);
  return FL_OK;
}

static fl_status pooled(fli_infer *c, const fl_meta *x, const windows *w,
                        bool ceil, fl_meta *y) {
  y->ndim = x->ndim;
  for (int i = 0; i < x->ndim; i++) {
    int k = i - w->first;
    y->shape[i] =
        k < 0 ? x->shape[i]
              : fli_window_count(x->shape[i], w->kernel[k], w->stride[k],
                                 w->padding[k], w->dilation[k], ceil);
    if (k >= 0 && y->shape[i] == 0)
      return fli_fail(FL_ESHAPE,
                      "%s: a kernel of %lld (dilation %lld) does not fit into "
                      "size %lld with padding %lld",
                      c->op->info.name, (long long)w->kernel[k],
                      (long long)w->dilation[k], (long long)x->shape[i],
                      (long long)w->padding[k]);
  }
  return FL_OK;
}

static fl_meta meta_of(const fl_attrs *a, int k) {
  fl_meta m = {.dtype = FL_F32};
  int n;
  const int64_t *v = fl_attr_list(a, k, &n);
  for (int i = 0; i < n && i < FL_MAX_DIMS; i++)
    m.shape[m.ndim++] = v[i];
  return m;
}

static fl_status expect(const fli_infer *c, const fl_meta *dy,
                        const fl_meta *y) {
  bool same = dy->ndim == y->ndim;
  for (int i = 0; i < y->ndim && same; i++)
    same = dy->shape[i] == y->shape[i];
  return same ? FL_OK
              : fli_fail(FL_ESHAPE, "%s: dy is %s, but pooling gives %s",
                         c->op->info.name, fli_shape_text(dy->ndim, dy->shape),
                         fli_shape_text(y->ndim, y->shape));
}

static void pooling_give(fli_infer *c, const fl_meta *m) {
  c->out[0].ndim = m->ndim;
  for (int i = 0; i < m->ndim; i++)
    c->out[0].shape[i] = m->shape[i];
}

/* Backward needs x for its layout alone: one that is not channels-last, or
 * whose layout can be seen from dy, is not kept. */
static void save_layout(fli_infer *c) {
  const fl_tensor *x = c->operands[0].tensor;
  const fl_meta *y = &c->out[0];
  if (!x || !fli_channels_last(x) || y->shape[2] * y->shape[3] > 1)
    c->saves = 0;
}

/* --- maximum: kernel, stride, padding, dilation, ceil --- */

fl_status fli_shape_max_pool(fli_infer *c) {
  windows w;
  FLI_TRY(pooling_settle(c, c->in[0], &of_max, &w));
  FLI_TRY(pooled(c, c->in[0], &w, c->attrs->v[FL_ATTR_max_pool_ceil].i != 0,
                 &c->out[0]));
  fl_dtype positions = c->out[FL_OUT_max_pool_where].dtype;
  c->out[FL_OUT_max_pool_where] = c->out[0];
  c->out[FL_OUT_max_pool_where].dtype = positions;
  return FL_OK;
}

/* dy, where -> dx of `shape`; all but the spatial dims agree. */
fl_status fli_shape_max_pool_backward(fli_infer *c) {
  const fl_meta *dy = c->in[FL_IN_max_pool_backward_dy],
                *where = c->in[FL_IN_max_pool_backward_where];
  fl_meta x = meta_of(c->attrs, FL_ATTR_max_pool_backward_shape);
  int spatial = (int)c->attrs->v[FL_ATTR_max_pool_backward_spatial].i;
  bool fits = dy->ndim == where->ndim && dy->ndim == x.ndim && spatial >= 1 &&
              spatial <= x.ndim;
  for (int i = 0; i < x.ndim && fits; i++)
    fits = dy->shape[i] == where->shape[i] &&
           (i >= x.ndim - spatial || dy->shape[i] == x.shape[i]);
  if (!fits)
    return fli_fail(FL_ESHAPE,
                    "max_pool_backward: dy %s, positions %s and a result %s "
                    "with %d pooled dims do not fit",
                    fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(where->ndim, where->shape),
                    fli_shape_text(x.ndim, x.shape), spatial);
  pooling_give(c, &x);
  return FL_OK;
}

/* Backward is given the windows where they have no gaps: elements then find
 * theirs. */
static void give_windows(fli_grad *g, fl_attrs *a) {
  static const int to[] = {FL_ATTR_max_pool_backward_kernel,
                           FL_ATTR_max_pool_backward_stride,
                           FL_ATTR_max_pool_backward_padding};
  static const int from[] = {FL_ATTR_max_pool_kernel, FL_ATTR_max_pool_stride,
                             FL_ATTR_max_pool_padding};
  int n;
  const int64_t *dilation =
      fl_attr_list(g->attrs, FL_ATTR_max_pool_dilation, &n);
  for (int i = 0; i < n; i++)
    if (dilation[i] != 1)
      return;
  for (int k = 0; k < 3; k++) {
    const int64_t *list = fl_attr_list(g->attrs, from[k], &n);
    fli_set_list(&g->e, a, to[k], n, list);
  }
}

void fli_grad_max_pool(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_max_pool_backward);
  const fl_meta *x = &g->in_meta[0];
  int numbers;
  fl_attr_list(g->attrs, FL_ATTR_max_pool_kernel, &numbers);
  fli_set_list(&g->e, &a, FL_ATTR_max_pool_backward_shape, x->ndim, x->shape);
  a.v[FL_ATTR_max_pool_backward_spatial].i =
      numbers; /* the lists are complete */
  give_windows(g, &a);
  g->dx[0] =
      RUN_A(max_pool_backward, &a, g->dy[0], g->y[FL_OUT_max_pool_where]);
}

/* Each element of dy went to one element of the result, so its gradient is that
 * element of ddx. */
void fli_grad_max_pool_backward(fli_grad *g) {
  const fl_meta *dy = &g->in_meta[FL_IN_max_pool_backward_dy],
                *x = &g->out_meta[0];
  int spatial = (int)g->attrs->v[FL_ATTR_max_pool_backward_spatial].i,
      lead = dy->ndim - spatial;
  int64_t flat_x[FL_MAX_DIMS], flat_dy[FL_MAX_DIMS];
  for (int i = 0; i < lead; i++)
    flat_x[i] = flat_dy[i] = dy->shape[i];
  flat_x[lead] = fl_numel(spatial, x->shape + lead);
  flat_dy[lead] = fl_numel(spatial, dy->shape + lead);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_gather);
  a.v[FL_ATTR_gather_dim].i = lead;
  fl_value taken =
      RUN_A(gather, &a, fli_v_reshape(&g->e, g->dy[0], lead + 1, flat_x),
            fli_v_reshape(&g->e, g->in[FL_IN_max_pool_backward_where], lead + 1,
                          flat_dy));
  g->dx[FL_IN_max_pool_backward_dy] = RESHAPE(taken, dy);
}

/* --- mean: kernel, stride, padding, ceil, count_pad --- */

fl_status fli_shape_avg_pool(fli_infer *c) {
  windows w;
  FLI_TRY(pooling_settle(c, c->in[0], &of_mean, &w));
  FLI_TRY(pooled(c, c->in[0], &w, c->attrs->v[FL_ATTR_avg_pool_ceil].i != 0,
                 &c->out[0]));
  save_layout(c);
  return FL_OK;
}

/* shape, kernel, stride, padding, count_pad; whether sizes were rounded up is
 * seen from dy. */
static fl_status backward_windows(fli_infer *c, fl_meta *x, bool *ceil) {
  windows w;
  fl_meta y;
  *x = meta_of(c->attrs, FL_ATTR_avg_pool_backward_shape);
  FLI_TRY(pooling_settle(c, x, &of_mean_backward, &w));
  *ceil = false;
  for (int i = w.first; i < x->ndim && c->in[0]->ndim == x->ndim; i++) {
    int k = i - w.first;
    *ceil = *ceil || c->in[0]->shape[i] >
                         fli_window_count(x->shape[i], w.kernel[k], w.stride[k],
                                          w.padding[k], 1, false);
  }
  FLI_TRY(pooled(c, x, &w, *ceil, &y));
  return expect(c, c->in[0], &y);
}

fl_status fli_shape_avg_pool_backward(fli_infer *c) {
  fl_meta x;
  bool ceil;
  FLI_TRY(backward_windows(c, &x, &ceil));
  pooling_give(c, &x);
  return FL_OK;
}

static void copy_list(fli_grad *g, fl_attrs *a, int to, int from) {
  int n;
  const int64_t *v = fl_attr_list(g->attrs, from, &n);
  fli_set_list(&g->e, a, to, n, v);
}

static void copy_windows(fli_grad *g, fl_attrs *a, const window_slots *to,
                         const window_slots *from) {
  copy_list(g, a, to->kernel, from->kernel);
  copy_list(g, a, to->stride, from->stride);
  copy_list(g, a, to->padding, from->padding);
}

void fli_grad_avg_pool(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_avg_pool_backward);
  fli_set_list(&g->e, &a, FL_ATTR_avg_pool_backward_shape, g->in_meta[0].ndim,
               g->in_meta[0].shape);
  copy_windows(g, &a, &of_mean_backward, &of_mean);
  a.v[FL_ATTR_avg_pool_backward_count_pad] =
      g->attrs->v[FL_ATTR_avg_pool_count_pad];
  g->dx[0] = RUN_A(avg_pool_backward, &a, g->dy[0], g->in[0]);
}

void fli_grad_avg_pool_backward(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_avg_pool);
  fl_meta x = meta_of(g->attrs, FL_ATTR_avg_pool_backward_shape);
  const fl_meta *dy = &g->in_meta[FL_IN_avg_pool_backward_dy];
  int n;
  const int64_t *kernel =
      fl_attr_list(g->attrs, FL_ATTR_avg_pool_backward_kernel, &n);
  const int64_t *stride =
      fl_attr_list(g->attrs, FL_ATTR_avg_pool_backward_stride, &n);
  const int64_t *padding =
      fl_attr_list(g->attrs, FL_ATTR_avg_pool_backward_padding, &n);
  copy_windows(g, &a, &of_mean, &of_mean_backward);
  a.v[FL_ATTR_avg_pool_ceil].i = 0;
  for (int i = 0; i < n; i++)
    if (dy->shape[dy->ndim - n + i] != fli_window_count(x.shape[x.ndim - n + i],
                                                        kernel[i], stride[i],
                                                        padding[i], 1, false))
      a.v[FL_ATTR_avg_pool_ceil].i = 1;
  a.v[FL_ATTR_avg_pool_count_pad] =
      g->attrs->v[FL_ATTR_avg_pool_backward_count_pad];
  g->dx[FL_IN_avg_pool_backward_dy] = RUN_A(avg_pool, &a, g->dy[0]);
}

/* --- mean to a given size --- */

fl_status fli_shape_adaptive_pool(fli_infer *c) {
  static const int64_t *const missing = NULL;
  const fl_meta *x = c->in[0];
  int64_t size[3];
  int numbers;
  fl_attr_list(c->attrs, FL_ATTR_adaptive_pool_size, &numbers);
  int first = first_spatial(x->ndim, numbers);
  if (!first)
    return wrong_dims(c, x);
  FLI_TRY(fli_window_list(c, FL_ATTR_adaptive_pool_size, "size",
                          x->ndim - first, missing, 1, size));
  c->out[0].ndim = x->ndim;
  for (int i = 0; i < x->ndim; i++) {
    c->out[0].shape[i] = i < first ? x->shape[i] : size[i - first];
    if (i >= first && x->shape[i] == 0)
      return fli_fail(FL_ESHAPE, "%s: nothing to average in %s",
                      c->op->info.name, fli_shape_text(x->ndim, x->shape));
  }
  save_layout(c);
  return FL_OK;
}

/* Every dim may differ: those that do were pooled. */
fl_status fli_shape_adaptive_avg_pool_backward(fli_infer *c) {
  const fl_meta *dy = c->in[FL_IN_adaptive_avg_pool_backward_dy];
  fl_meta x = meta_of(c->attrs, FL_ATTR_adaptive_avg_pool_backward_shape);
  bool fits = dy->ndim == x.ndim && x.ndim >= 2 && x.ndim <= 5;
  int differing = 0;
  for (int i = 0; i < x.ndim && fits; i++) {
    differing += x.shape[i] != dy->shape[i];
    fits = x.shape[i] == dy->shape[i] ||
           (i > 0 && x.shape[i] > 0 && dy->shape[i] > 0);
  }
  if (!fits || differing > 3)
    return fli_fail(FL_ESHAPE, "%s: dy %s does not fit a result %s",
                    c->op->info.name, fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(x.ndim, x.shape));
  pooling_give(c, &x);
  return FL_OK;
}

void fli_grad_adaptive_avg_pool(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_adaptive_avg_pool_backward);
  fli_set_list(&g->e, &a, FL_ATTR_adaptive_avg_pool_backward_shape,
               g->in_meta[0].ndim, g->in_meta[0].shape);
  g->dx[0] = RUN_A(adaptive_avg_pool_backward, &a, g->dy[0], g->in[0]);
}

void fli_grad_adaptive_avg_pool_backward(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_adaptive_avg_pool);
  const fl_meta *dy = &g->in_meta[FL_IN_adaptive_avg_pool_backward_dy],
                *x = &g->out_meta[0];
  /* without a batch the second dim was pooled too; else it has its size */
  bool batch = dy->ndim > 2 && dy->shape[1] == x->shape[1];
  int n = dy->ndim - 1 - (batch || dy->ndim == 5);
  fli_set_list(&g->e, &a, FL_ATTR_adaptive_avg_pool_size, n,
               dy->shape + dy->ndim - n);
  g->dx[FL_IN_adaptive_avg_pool_backward_dy] =
      RUN_A(adaptive_avg_pool, &a, g->dy[0]);
}
