/* sort and topk along a dim. A line's elements become unsigned keys that order
 * as the values do (NaN greatest, -0 equal to 0), packed above their positions,
 * so that any order of packed words is stable and each occurs once. Keys of 32
 * bits and fewer go into 64-bit words, and those of integers that all lie near
 * each other; the rest into 128-bit ones. */
#include "sort.h"

/* Whether integers of 64 bits, which are then looked at, are all less than 2^32
 * apart. */
static bool are_near(const fl_view *x, uint64_t *least) {
  const int64_t *v = x->data;
  if (x->dtype != FL_I64 || !fl_contiguous(x))
    return false;
  int64_t n = fl_view_numel(x), low = v[0], high = v[0];
#pragma omp simd reduction(min : low) reduction(max : high)
  for (int64_t i = 0; i < n; i++) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
  }
  *least = (uint64_t)low;
  return (uint64_t)high - (uint64_t)low <= UINT32_MAX;
}

_Static_assert(FL_OUT_sort_indices == FL_OUT_topk_indices,
               "one function for both rows");

static fl_status sort_run(const fl_launch *l, int64_t k, int dim,
                          bool descending) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  sorting c = {.l = l, .dtype = x->dtype, .x = x->data, .values = y->data};
  c.size = fl_dtype_size(x->dtype);
  c.indices = l->out[FL_OUT_sort_indices].data;
  c.base = l->base;
  c.descending = descending;
  c.n = x->ndim ? x->shape[dim] : 1;
  c.k = k;
  c.ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) {
    c.lines[d] = d == dim ? 1 : x->shape[d];
    c.x_strides[d] = x->stride[d];
    c.y_strides[d] = y->stride[d];
  }
  c.x_stride = x->ndim ? x->stride[dim] : 1;
  c.y_stride = x->ndim ? y->stride[dim] : 1;
  if (c.n * fl_numel(c.ndim, c.lines) * k == 0)
    return FL_OK;
  bool small = c.size < 8 || (k == c.n && are_near(x, &c.least));
  return small && c.n <= UINT32_MAX ? FL_CPU(sort_f32)(&c)
                                    : FL_CPU(sort_f64)(&c);
}

FL_KERNEL(sort) {
  const fl_view *x = &l->in[0];
  int dim = (int)l->attrs->v[FL_ATTR_sort_dim].i;
  return sort_run(l, x->ndim ? x->shape[dim] : 1, dim,
                  l->attrs->v[FL_ATTR_sort_descending].i != 0);
}

FL_KERNEL(topk) {
  return sort_run(l, l->attrs->v[FL_ATTR_topk_k].i,
                  (int)l->attrs->v[FL_ATTR_topk_dim].i,
                  l->attrs->v[FL_ATTR_topk_largest].i != 0);
}
