/* Launches of pooling and its gradients. */
#include "device/line.h"
#include "order.h"
#include "pooling.h"

#include "../../runtime/view.h"

#define BLOCK 256
#define LARGE 64 /* elements of a window that a warp sums */

static flc_grid grid_of(int64_t threads) {
  int64_t blocks = fl_ceil_div(threads, BLOCK), most = 1 << 30;
  return (flc_grid){.x = (unsigned)(blocks < most ? blocks : most),
                    .block = BLOCK};
}

/* Element i of list k for (depth, height, width); lists are of the last dims.
 */
static int64_t pooling_listed(const fl_attrs *a, int k, int i,
                              int64_t missing) {
  int n;
  const int64_t *v = fl_attr_list(a, k, &n);
  i -= 3 - n;
  return i >= 0 && i < n ? v[i] : missing;
}

/* The last `spatial` dims of x and y (shapes only). */
static pool_args planes_of(const fl_launch *l, const fl_view *x,
                           const fl_view *y, int spatial) {
  pool_args p = {.planes = fl_numel(x->ndim - spatial, x->shape),
                 .in = 1,
                 .out = 1,
                 .y = l->out[0].data,
                 .n = fl_view_numel(&l->out[0]),
                 .base = l->base};
  for (int i = 0; i < 3; i++) {
    pool_axis *a = &p.axis[i];
    int k = i - (3 - spatial);
    a->in = k < 0 ? 1 : x->shape[x->ndim - spatial + k];
    a->out = k < 0 ? 1 : y->shape[y->ndim - spatial + k];
    a->kernel = a->stride = a->dilation = 1;
    p.in *= a->in;
    p.out *= a->out;
    if (p.n > 0) {
      a->by_in = flc_divisor_of(a->in);
      a->by_out = flc_divisor_of(a->out);
      a->by_stride = flc_divisor_of(1);
    }
  }
  return p;
}

/* --- channels last --- */

/* Whether a launch is done with channels innermost: those of its result are, or
 * the result is one place for each channel of such an input. */
static bool pooling_last(const fl_launch *l, int spatial) {
  const fl_view *y = &l->out[0];
  return spatial == 2 && y->ndim == 4 &&
         (fl_channels_last(y) ||
          (y->shape[2] * y->shape[3] == 1 && fl_channels_last(&l->in[0])));
}

/* v's memory as kernels read it, by planes or with channels innermost. */
static const void *read_as(const fl_launch *l, const fl_view *v, fl_dtype d,
                           bool last) {
  fl_view w;
  if (!last)
    return flc_input(l, v, d);
  fl_as_channels_last(v, &w);
  return flc_input(l, &w, d);
}

/* Channels that a thread takes at once. */
static int set_channels(pool_args *p, const fl_view *x) {
  int vec = flc_lot(x->dtype);
  p->channels = x->shape[1];
  p->planes = x->shape[0];
  if (p->channels % vec || !flc_aligned(p->x, 16) || !flc_aligned(p->y, 16) ||
      !flc_aligned(p->where, 16))
    vec = 1;
  p->by_groups = flc_divisor_of(p->channels / vec);
  return vec;
}

/* Results in another order than kernels write are made in scratch memory. */
static fl_status open_results(const fl_launch *l, bool last, fl_view *made) {
  for (int k = 0; k < l->n_out; k++) {
    fl_view_copy(&made[k], &l->out[k]);
    if (last || fl_contiguous(&l->out[k]))
      continue;
    fl_row_major(made[k].ndim, made[k].shape, made[k].stride);
    made[k].data = fl_scratch_get(l, fl_view_bytes(&made[k]));
    if (!made[k].data)
      return FL_ENOMEM;
  }
  return FL_OK;
}

static fl_status close_results(const fl_launch *l, const fl_view *made,
                               fl_status s) {
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    if (made[k].data != l->out[k].data)
      s = flc_move(l, &l->out[k], &made[k]);
  return s;
}

/* Whether places within planes, and beyond their ends, need 64 bits. */
static int pooling_wide(const pool_args *p) {
  int64_t most = p->in > p->out ? p->in : p->out;
  for (int i = 0; i < 3; i++) {
    const pool_axis *a = &p->axis[i];
    int64_t reach = a->kernel * a->dilation + a->stride + a->padding;
    most = most > reach + a->in ? most : reach + a->in;
  }
  return most > INT32_MAX / 4;
}

/* Lists k, k + 1, k + 2 are kernel, stride, padding; dilation < 0: none. */
static void set_windows(const fl_launch *l, pool_args *p, int k, int dilation) {
  for (int i = 0; i < 3; i++) {
    pool_axis *a = &p->axis[i];
    a->kernel = pooling_listed(l->attrs, k, i, 1);
    a->stride = pooling_listed(l->attrs, k + 1, i, 1);
    a->by_stride = flc_divisor_of(a->stride);
    a->padding = pooling_listed(l->attrs, k + 2, i, 0);
    if (dilation >= 0)
      a->dilation = pooling_listed(l->attrs, dilation, i, 1);
  }
}

FLC_KERNEL(max_pool) {
  const fl_view *x = &l->in[0];
  fl_view made[2];
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_max_pool_kernel, &spatial);
  pool_args p = planes_of(l, x, &l->out[0], spatial);
  bool last = pooling_last(l, spatial);
  set_windows(l, &p, FL_ATTR_max_pool_kernel, FL_ATTR_max_pool_dilation);
  if (p.n == 0)
    return FL_OK;
  p.x = read_as(l, x, x->dtype, last);
  if (!p.x || open_results(l, last, made) != FL_OK)
    return FL_ENOMEM;
  p.y = made[0].data;
  p.where = made[FL_OUT_max_pool_where].data;
  if (last) {
    int vec = set_channels(&p, x);
    flc_spec spec =
        FLC_SPEC("pooling", "most_last", x->dtype, pooling_wide(&p), vec);
    return FLC_RUN(l, spec, grid_of(p.n / vec), p);
  }
  flc_spec spec = FLC_SPEC("pooling", "most", x->dtype, pooling_wide(&p));
  return close_results(l, made, FLC_RUN(l, spec, grid_of(p.n), p));
}

static fl_status pooling_places(const fl_launch *l, void *keys, fl_dtype type,
                                void *context) {
  pool_put_args *a = context;
  flc_spec spec = FLC_SPEC("pooling", "places", type);
  a->dx = keys;
  return FLC_RUN(l, spec, grid_of(a->n), *a);
}

/* By atomics, in F32 or F64, which they can add. `dx` is contiguous. */
static fl_status pooling_put(const fl_launch *l, const fl_view *dx,
                             const fl_view *dy, pool_put_args *a) {
  fl_dtype type = flc_wide(dx->dtype);
  size_t bytes = (size_t)fl_view_numel(dx) * fl_dtype_size(type);
  flc_spec spec = FLC_SPEC("pooling", "put", type);
  fl_view sum = *dx;
  sum.dtype = type;
  if (type != dx->dtype)
    sum.data = fl_scratch_get(l, bytes);
  a->dx = sum.data;
  a->dy = flc_input(l, dy, type);
  if (!a->dx || !a->dy)
    return FL_ENOMEM;
  fl_status s = flc_zero(l, a->dx, bytes);
  if (s == FL_OK)
    s = FLC_RUN(l, spec, grid_of(a->n), *a);
  return s == FL_OK && type != dx->dtype ? flc_move(l, dx, &sum) : s;
}

/* By the windows: each element looks where their maxima are. */
static fl_status pooling_gather(const fl_launch *l, int spatial) {
  const fl_view *dx = &l->out[0], *dy = &l->in[FL_IN_max_pool_backward_dy];
  bool last = pooling_last(l, spatial);
  fl_view made[1];
  pool_args p = planes_of(l, dx, dy, spatial);
  set_windows(l, &p, FL_ATTR_max_pool_backward_kernel, -1);
  p.x = read_as(l, dy, dx->dtype, last);
  p.where = (int64_t *)(uintptr_t)read_as(
      l, &l->in[FL_IN_max_pool_backward_where], FL_I64, last);
  if (!p.x || !p.where || open_results(l, last, made) != FL_OK)
    return FL_ENOMEM;
  p.y = made[0].data;
  int wide = pooling_wide(&p);
  if (!last) {
    flc_spec spec = FLC_SPEC("pooling", "unmost", dx->dtype, wide);
    return close_results(l, made, FLC_RUN(l, spec, grid_of(p.n), p));
  }
  int vec = set_channels(&p, dx);
  flc_spec spec = FLC_SPEC("pooling", "unmost_last", dx->dtype, wide, vec,
                           vec == 8 && p.channels % 32 == 0);
  return FLC_RUN(l, spec, grid_of(p.n / vec), p);
}

FLC_KERNEL(max_pool_backward) {
  int spatial = (int)l->attrs->v[FL_ATTR_max_pool_backward_spatial].i, known;
  int lead = l->out[0].ndim - spatial;
  bool last = pooling_last(l, spatial);
  fl_view dy, dx, where;
  fl_view_copy(&dy, &l->in[FL_IN_max_pool_backward_dy]);
  fl_view_copy(&where, &l->in[FL_IN_max_pool_backward_where]);
  size_t bytes = fl_view_bytes(&l->out[0]);
  pool_put_args a = {.fault = flc_fault_of(l), .n = fl_view_numel(&dy)};
  if (bytes == 0)
    return FL_OK;
  if (a.n == 0)
    return flc_zero(l, l->out[0].data, bytes);
  fl_attr_list(l->attrs, FL_ATTR_max_pool_backward_kernel, &known);
  if (known)
    return pooling_gather(l, spatial);
  if (open_results(l, last, &dx) != FL_OK)
    return FL_ENOMEM;
  a.in = flc_divisor_of(fl_numel(spatial, dx.shape + lead));
  a.out = flc_divisor_of(fl_numel(spatial, dy.shape + lead));
  a.channels = flc_divisor_of(last ? dx.shape[1] : 1);
  a.all = fl_view_numel(&dx);
  if (last) {
    fl_as_channels_last(&l->out[0], &dx);
    fl_as_channels_last(&l->in[FL_IN_max_pool_backward_dy], &dy);
    fl_as_channels_last(&l->in[FL_IN_max_pool_backward_where], &where);
  }
  a.where = flc_input(l, &where, FL_I64);
  if (!a.where)
    return FL_ENOMEM;
  if (!flc_deterministic()) {
    fl_status s = pooling_put(l, &dx, &dy, &a);
    return last ? s : close_results(l, &dx, s);
  }
  fl_launch ordered = *l; /* sums are written as if to contiguous memory */
  ordered.out = &dx;
  fl_status s = flc_zero(l, dx.data, bytes);
  if (s == FL_OK)
    s = flc_sum_at(&ordered, &dy, a.n, pooling_places, &a);
  return last ? s : close_results(l, &dx, s);
}

/* Whether windows, or rows of them, are worth a warp. */
static bool large(const pool_args *p) {
  int64_t n = 1, row = 1;
  for (int i = 0; i < 3; i++) {
    const pool_axis *a = &p->axis[i];
    row = p->adaptive ? fl_ceil_div(a->in, a->out) : a->kernel;
    n *= row;
  }
  return n >= LARGE && (row >= 16 || row >= p->axis[2].in);
}

static fl_status run_mean(const fl_launch *l, pool_args *p, fl_dtype d, int vec,
                          bool back) {
  int wide = pooling_wide(p);
  if (vec) {
    flc_spec spec = back ? FLC_SPEC("pooling", "unmean_last", d, wide, vec)
                         : FLC_SPEC("pooling", "mean_last", d, wide, vec);
    return FLC_RUN(l, spec, grid_of(p->n / vec), *p);
  }
  int lanes = !back && large(p) ? 32 : 1;
  flc_spec spec = back ? FLC_SPEC("pooling", "unmean", d, wide)
                       : FLC_SPEC("pooling", "mean", d, lanes, wide);
  return FLC_RUN(l, spec, grid_of(p->n * lanes), *p);
}

static fl_status mean(const fl_launch *l, pool_args *p, int spatial,
                      bool back) {
  const fl_view *x = &l->in[0];
  bool last = pooling_last(l, spatial);
  fl_view made[1];
  if (p->n == 0)
    return FL_OK;
  p->x = read_as(l, x, x->dtype, last);
  if (!p->x || open_results(l, last, made) != FL_OK)
    return FL_ENOMEM;
  p->y = made[0].data;
  int vec = last ? set_channels(p, x) : 0;
  return close_results(l, made, run_mean(l, p, x->dtype, vec, back));
}

FLC_KERNEL(avg_pool) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_avg_pool_kernel, &spatial);
  pool_args p = planes_of(l, &l->in[0], &l->out[0], spatial);
  set_windows(l, &p, FL_ATTR_avg_pool_kernel, -1);
  p.count_pad = l->attrs->v[FL_ATTR_avg_pool_count_pad].i != 0;
  return mean(l, &p, spatial, false);
}

FLC_KERNEL(avg_pool_backward) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_avg_pool_backward_kernel, &spatial);
  pool_args p =
      planes_of(l, &l->out[0], &l->in[FL_IN_avg_pool_backward_dy], spatial);
  set_windows(l, &p, FL_ATTR_avg_pool_backward_kernel, -1);
  p.count_pad = l->attrs->v[FL_ATTR_avg_pool_backward_count_pad].i != 0;
  return mean(l, &p, spatial, true);
}

FLC_KERNEL(adaptive_avg_pool) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_adaptive_avg_pool_size, &spatial);
  pool_args p = planes_of(l, &l->in[0], &l->out[0], spatial);
  p.adaptive = 1;
  return mean(l, &p, spatial, false);
}

/* Dims that were not pooled have windows of one element. */
FLC_KERNEL(adaptive_avg_pool_backward) {
  int n = l->in[FL_IN_adaptive_avg_pool_backward_dy].ndim - 1;
  int spatial = pooling_last(l, 2) ? 2 : n < 3 ? n : 3;
  pool_args p = planes_of(l, &l->out[0],
                          &l->in[FL_IN_adaptive_avg_pool_backward_dy], spatial);
  p.adaptive = 1;
  return mean(l, &p, spatial, true);
}

static void pooling_visit(flc_visitor *v, flc_spec s, bool quick) {
  v->spec(v, &s, quick);
}

void flc_visit_pooling(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_real) {
    pooling_visit(v, FLC_SPEC("pooling", "most", d, 0), d == FL_F32);
    for (int k = 0; k < 2; k++) {
      int vec = k ? 1 : flc_lot(d);
      pooling_visit(v, FLC_SPEC("pooling", "most_last", d, 0, vec),
                    d == FL_BF16 && vec > 1);
      if (!fl_dtype_is_float(d))
        continue;
      for (int four = 0; four < (vec == 8 ? 2 : 1); four++)
        pooling_visit(v, FLC_SPEC("pooling", "unmost_last", d, 0, vec, four),
                      d == FL_BF16 && vec > 1);
      pooling_visit(v, FLC_SPEC("pooling", "mean_last", d, 0, vec),
                    d == FL_BF16 && vec > 1);
      pooling_visit(v, FLC_SPEC("pooling", "unmean_last", d, 0, vec),
                    d == FL_BF16 && vec > 1);
    }
    if (!fl_dtype_is_float(d))
      continue;
    pooling_visit(v, FLC_SPEC("pooling", "unmost", d, 0), d == FL_F32);
    pooling_visit(v, FLC_SPEC("pooling", "mean", d, 1, 0), d == FL_F32);
    pooling_visit(v, FLC_SPEC("pooling", "mean", d, 32, 0), false);
    pooling_visit(v, FLC_SPEC("pooling", "unmean", d, 0), d == FL_F32);
    if (fl_dtype_is_wide(d))
      pooling_visit(v, FLC_SPEC("pooling", "put", d), d == FL_F32);
  }
  pooling_visit(v, FLC_SPEC("pooling", "places", FL_I32), true);
}
