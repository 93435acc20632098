/* Pooling over 1 to 3 dims: largest elements with their positions, means over
 * windows, means to a given size, and the gradients. Means are sums over boxes:
 * along each dim a result has a first and a last element and a weight. Loops
 * are in pooling_typed.c. */
#include "pooling.h"

#define POOL_WORK 16384 /* elements that a thread takes at once */

static int64_t pool_number(const fl_attrs *a, int k, int i, int64_t missing) {
  int n;
  const int64_t *v = fl_attr_list(a, k, &n);
  i -= 3 - n;
  return i >= 0 && i < n ? v[i] : missing;
}

/* The last `spatial` dims of views of x and y (shapes only). */
static void pool_open(pooling *p, const fl_launch *l, const fl_view *x,
                      const fl_view *y, int spatial) {
  memset(p, 0, sizeof *p);
  p->l = l;
  p->base = l->base;
  p->planes = p->in = p->out = 1;
  for (int i = 0; i < x->ndim - spatial; i++)
    p->planes *= x->shape[i];
  for (int i = 0; i < 3; i++) {
    pool_axis *a = &p->axis[i];
    int k = i - (3 - spatial);
    a->in = k < 0 ? 1 : x->shape[x->ndim - spatial + k];
    a->out = k < 0 ? 1 : y->shape[y->ndim - spatial + k];
    a->kernel = a->stride = a->dilation = 1;
    p->in *= a->in;
    p->out *= a->out;
  }
}

/* Lists at, at + 1, at + 2 are kernel, stride, padding; dilation < 0: none. */
static void pool_windows(pooling *p, int at, int dilation) {
  const fl_attrs *attrs = p->l->attrs;
  for (int i = 0; i < 3; i++) {
    pool_axis *a = &p->axis[i];
    a->kernel = pool_number(attrs, at, i, 1);
    a->stride = pool_number(attrs, at + 1, i, 1);
    a->padding = pool_number(attrs, at + 2, i, 0);
    if (dilation >= 0)
      a->dilation = pool_number(attrs, dilation, i, 1);
  }
}

/* Whether rows are split; see struct pooling. */
static void pool_plan_split(pooling *p) {
  const pool_axis *a = &p->axis[2];
  int64_t span = (a->kernel - 1) * a->dilation, s = a->stride;
  int64_t block = a->out < POOL_BLOCK ? (a->out + 15) / 16 * 16 : POOL_BLOCK;
  if (s > 4 || a->out < 4 || span > POOL_ROOM)
    return;
  p->split = block + span / s;
  if (p->split * s > POOL_ROOM)
    return;
  p->residues = s;
  for (int64_t r = 0; r < s; r++) { /* (i s + r - padding) in the row */
    int64_t low = a->padding - r, high = low + a->in;
    p->begin[r] = low <= 0 ? 0 : fl_ceil_div(low, s);
    p->end[r] = high <= 0 ? 0 : fl_ceil_div(high, s);
  }
}

static bool pool_taps(pooling *p) {
  const pool_axis *a = p->axis;
  int64_t n = a[0].kernel * a[1].kernel * a[2].kernel;
  pool_plan_split(p);
  if (n > INT32_MAX)
    p->residues = 0;
  if (!p->residues)
    return true;
  p->delta = fl_scratch_get(p->l, (size_t)n * 8);
  for (int64_t t = 0; t < n && p->delta; t++) {
    int64_t i = t / (a[1].kernel * a[2].kernel), j = t / a[2].kernel,
            k = t % a[2].kernel;
    j %= a[1].kernel;
    p->delta[t] = (i * a[0].dilation * a[1].in + j * a[1].dilation) * a[2].in +
                  k * a[2].dilation;
  }
  return p->delta != NULL;
}

static bool pool_alloc(pooling *p, pool_axis *a, int64_t n) {
  a->first = fl_scratch_get(p->l, (size_t)n * 8);
  a->end = fl_scratch_get(p->l, (size_t)n * 8);
  a->weight = fl_scratch_get(p->l, (size_t)n * sizeof(double));
  return a->first && a->end && a->weight;
}

/* Elements first..end of a dim make result o. */
static bool pool_boxes(pooling *p, bool adaptive, bool count_pad) {
  for (int i = 0; i < 3; i++) {
    pool_axis *a = &p->axis[i];
    if (!pool_alloc(p, a, a->out))
      return false;
    for (int64_t o = 0; o < a->out; o++) {
      int64_t first = o * a->stride - a->padding, end = first + a->kernel;
      if (adaptive) {
        first = o * a->in / a->out;
        end = ((o + 1) * a->in + a->out - 1) / a->out;
      }
      int64_t padded = a->in + a->padding < end ? a->in + a->padding : end;
      int64_t count = padded - first;
      first = first > 0 ? first : 0;
      end = end < a->in ? end : a->in;
      a->first[o] = first;
      a->end[o] = end;
      a->weight[o] = 1 / (double)(count_pad ? count : end - first);
    }
  }
  return true;
}

static fl_dtype pool_dtype(const fl_view *x) {
  return fl_dtype_kind(x->dtype) == FL_KIND_FLOAT ? fl_cpu_wide(x->dtype)
                                                  : FL_I64;
}

static const pooling_kernels *pool_kernels(fl_dtype d) {
  return d == FL_I64   ? &FL_CPU(pooling_i64)
         : d == FL_F64 ? &FL_CPU(pooling_f64)
                       : &FL_CPU(pooling_f32);
}

static fl_status pool_run(pooling *p, const fl_view *x, fl_dtype d, int64_t n,
                          int64_t each, fl_cpu_task task) {
  const fl_launch *l = p->l;
  const fl_view *y = &l->out[0];
  p->x = FL_CPU(input)(l, x, d);
  p->y = FL_CPU(output)(l, y, d);
  if (!p->x || !p->y)
    return FL_ENOMEM;
  fl_cpu_parallel(l, n, 1 + POOL_WORK / (each + 1), task, p);
  FL_CPU(finish)(l, y, d, p->y);
  return FL_OK;
}

/* x -> y, where */
FL_KERNEL(max_pool) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  fl_dtype d = pool_dtype(x);
  pooling p;
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_max_pool_kernel, &spatial);
  pool_open(&p, l, x, y, spatial);
  pool_windows(&p, FL_ATTR_max_pool_kernel, FL_ATTR_max_pool_dilation);
  if (fl_view_numel(y) == 0)
    return FL_OK;
  const fl_view *where = &l->out[FL_OUT_max_pool_where];
  p.where = FL_CPU(output)(l, where, FL_I64);
  if (!p.where || !pool_taps(&p))
    return FL_ENOMEM;
  int64_t taps = p.axis[0].kernel * p.axis[1].kernel * p.axis[2].kernel;
  fl_status s = pool_run(&p, x, d, p.planes * p.axis[0].out * p.axis[1].out,
                         p.axis[2].out * taps, pool_kernels(d)->max);
  if (s == FL_OK)
    FL_CPU(finish)(l, where, FL_I64, p.where);
  return s;
}

/* dy, where -> dx */
FL_KERNEL(max_pool_backward) {
  const fl_view *dy = &l->in[FL_IN_max_pool_backward_dy], *dx = &l->out[0];
  fl_dtype d = fl_cpu_wide(dy->dtype);
  pooling p;
  pool_open(&p, l, dx, dy, 0);
  int lead = dx->ndim - (int)l->attrs->v[FL_ATTR_max_pool_backward_spatial].i;
  p.planes = fl_numel(lead, dx->shape);
  p.in = fl_numel(dx->ndim - lead, dx->shape + lead);
  p.out = fl_numel(dy->ndim - lead, dy->shape + lead);
  if (fl_view_numel(dx) == 0 && fl_view_numel(dy) == 0)
    return FL_OK; /* of however many planes */
  p.where = (int64_t *)(uintptr_t)FL_CPU(input)(
      l, &l->in[FL_IN_max_pool_backward_where], FL_I64);
  if (!p.where)
    return FL_ENOMEM;
  fl_status s =
      pool_run(&p, dy, d, p.planes, p.in + p.out, pool_kernels(d)->max_back);
  return atomic_load(&p.failed) ? fl_cpu_bad_position(l, p.bad, p.in) : s;
}

/* Means forward: a row of results is a piece of work; backward: a plane. */
static fl_status pool_mean(const fl_launch *l, int spatial, int windows,
                           bool adaptive, bool count_pad, bool back) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  fl_dtype d = fl_cpu_wide(x->dtype);
  pooling p;
  pool_open(&p, l, back ? y : x, back ? x : y, spatial);
  if (!adaptive)
    pool_windows(&p, windows, -1);
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (!pool_boxes(&p, adaptive, count_pad))
    return FL_ENOMEM;
  if (!adaptive && !back)
    pool_plan_split(&p);
  if (back)
    return pool_run(&p, x, d, p.planes, p.in + p.out,
                    pool_kernels(d)->mean_back);
  int64_t rows = p.axis[0].out * p.axis[1].out;
  return pool_run(&p, x, d, p.planes * rows, (p.in + p.out) / rows,
                  pool_kernels(d)->mean);
}

FL_KERNEL(avg_pool) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_avg_pool_kernel, &spatial);
  return pool_mean(l, spatial, FL_ATTR_avg_pool_kernel, false,
                   l->attrs->v[FL_ATTR_avg_pool_count_pad].i != 0, false);
}

FL_KERNEL(avg_pool_backward) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_avg_pool_backward_kernel, &spatial);
  return pool_mean(l, spatial, FL_ATTR_avg_pool_backward_kernel, false,
                   l->attrs->v[FL_ATTR_avg_pool_backward_count_pad].i != 0,
                   true);
}

FL_KERNEL(adaptive_avg_pool) {
  int spatial;
  fl_attr_list(l->attrs, FL_ATTR_adaptive_avg_pool_size, &spatial);
  return pool_mean(l, spatial, 0, true, false, false);
}

/* Dims that were not pooled have windows of one element. */
FL_KERNEL(adaptive_avg_pool_backward) {
  int n = l->in[FL_IN_adaptive_avg_pool_backward_dy].ndim - 1;
  return pool_mean(l, n < 3 ? n : 3, 0, true, false, true);
}
