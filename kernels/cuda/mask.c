/* Launches of masked_select, masked_scatter and nonzero. The shape rule has
 * counted the set flags, so sizes are known. */
#include "cuda.h"
#include "index.h"

/* v broadcast to a shape, as contiguous memory of its own dtype. */
static const void *mask_spread(const fl_launch *l, const fl_view *v, int ndim,
                               const int64_t *shape) {
  int64_t n = fl_numel(ndim, shape), stride = 1;
  if (fl_view_numel(v) == n)
    return flc_input(l, v, v->dtype);
  fl_view to = {.dtype = v->dtype, .ndim = ndim};
  to.data = fl_scratch_get(l, (size_t)n * fl_dtype_size(v->dtype));
  for (int d = ndim - 1; d >= 0; d--) {
    to.shape[d] = shape[d];
    to.stride[d] = stride;
    stride *= shape[d];
  }
  return to.data && flc_move(l, &to, v) == FL_OK ? to.data : NULL;
}

/* The shape that both views broadcast to. */
static int common_shape(const fl_view *a, const fl_view *b, int64_t *shape) {
  int n = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int d = 0; d < n; d++) {
    int i = d - (n - a->ndim), j = d - (n - b->ndim);
    int64_t s = i < 0 ? 1 : a->shape[i], t = j < 0 ? 1 : b->shape[j];
    shape[d] = s == 1 ? t : s;
  }
  return n;
}

/* Counts the flags of each tile, and those before it. */
static fl_status count(const fl_launch *l, mask_args *a, int size) {
  flc_spec each = FLC_SPEC("mask", "count", size);
  flc_spec before = FLC_SPEC("mask", "before", 0);
  a->tiles = fl_ceil_div(a->n, MASK_TILE);
  a->before = fl_scratch_get(l, (size_t)(a->tiles + 1) * sizeof *a->before);
  if (!a->before)
    return FL_ENOMEM;
  flc_grid tiles = {.x = (unsigned)a->tiles, .block = MASK_THREADS};
  flc_grid one = {.x = 1, .block = a->tiles > 64 ? 1024 : 64};
  fl_status s = FLC_RUN(l, each, tiles, *a);
  return s == FL_OK ? FLC_RUN(l, before, one, *a) : s;
}

static fl_status mask_move(const fl_launch *l, const mask_args *a,
                           const char *entry, int size) {
  flc_spec spec = FLC_SPEC("mask", entry, size);
  flc_grid tiles = {.x = (unsigned)a->tiles, .block = MASK_THREADS};
  return FLC_RUN(l, spec, tiles, *a);
}

FLC_KERNEL(masked_select) {
  const fl_view *x = &l->in[FL_IN_masked_select_x], *y = &l->out[0];
  int64_t shape[FL_MAX_DIMS];
  int ndim = common_shape(x, &l->in[FL_IN_masked_select_mask], shape);
  mask_args a = {.bits = 255,
                 .y = y->data,
                 .n = fl_numel(ndim, shape),
                 .room = y->shape[0]};
  if (a.n == 0 || a.room == 0)
    return FL_OK;
  a.flags = mask_spread(l, &l->in[FL_IN_masked_select_mask], ndim, shape);
  a.x = mask_spread(l, x, ndim, shape);
  if (!a.flags || !a.x)
    return FL_ENOMEM;
  fl_status s = count(l, &a, 1);
  return s == FL_OK ? mask_move(l, &a, "compact", flc_size(x)) : s;
}

/* Only a src that may be too short is worth waiting for the count. */
static fl_status check_room(const fl_launch *l, const mask_args *a) {
  int64_t total = 0;
  if (a->room >= a->n)
    return FL_OK;
  fl_status s = flc_read(l, &total, a->before + a->tiles, sizeof total);
  if (s == FL_OK && total > a->room)
    return fli_fail(FL_ESHAPE,
                    "%s: the mask takes %lld elements and src has %lld", l->op,
                    (long long)total, (long long)a->room);
  return s;
}

FLC_KERNEL(masked_scatter) {
  const fl_view *x = &l->in[FL_IN_masked_scatter_x],
                *src = &l->in[FL_IN_masked_scatter_src], *y = &l->out[0];
  int64_t shape[FL_MAX_DIMS];
  int ndim = common_shape(x, &l->in[FL_IN_masked_scatter_mask], shape);
  mask_args a = {.bits = 255,
                 .y = y->data,
                 .n = fl_numel(ndim, shape),
                 .room = fl_view_numel(src)};
  if (a.n == 0)
    return FL_OK;
  a.flags = mask_spread(l, &l->in[FL_IN_masked_scatter_mask], ndim, shape);
  fl_status s = a.flags ? count(l, &a, 1) : FL_ENOMEM;
  if (s == FL_OK)
    s = check_room(l, &a);
  if (s == FL_OK)
    s = flc_move(l, y, x);
  if (s != FL_OK || a.room == 0)
    return s;
  a.x = flc_input(l, src, x->dtype);
  return a.x ? mask_move(l, &a, "expand", flc_size(x)) : FL_ENOMEM;
}

FLC_KERNEL(nonzero) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int size = flc_size(x);
  mask_args a = {.bits = ~(uint64_t)0,
                 .y = y->data,
                 .n = fl_view_numel(x),
                 .room = y->shape[0],
                 .ndim = x->ndim,
                 .base = l->base};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (fl_dtype_kind(x->dtype) == FL_KIND_FLOAT) /* -0 is 0 */
    a.bits = ((uint64_t)1 << (8 * size - 1)) - 1;
  for (int d = 0; d < x->ndim; d++)
    a.shape[d] = flc_divisor_of(x->shape[x->ndim - 1 - d]);
  a.flags = flc_input(l, x, x->dtype);
  if (!a.flags)
    return FL_ENOMEM;
  fl_status s = count(l, &a, size);
  return s == FL_OK ? mask_move(l, &a, "find", size) : s;
}
