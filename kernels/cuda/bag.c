/* Launches of embedding_bag and its gradient, which is a sum of slices. */
#include "order.h"
#include "bag.h"

/* Columns of a thread: as many as 16 bytes hold, where rows are whole in them.
 */
static int part_of(const bag_args *a, fl_dtype d) {
  int n = 16 / (int)fl_dtype_size(d);
  return a->width % n == 0 && flc_aligned(a->table, 16) && flc_aligned(a->y, 16)
             ? n
             : 1;
}

/* Inputs 1 to 3, which forward and backward share. */
static fl_status bag_take(const fl_launch *l, int64_t padding, fl_dtype wide,
                          bag_args *a) {
  const fl_view *index = &l->in[FL_IN_bags_index],
                *offsets = &l->in[FL_IN_bags_offsets],
                *factors = &l->in[FL_IN_bags_weights];
  a->n = fl_view_numel(index);
  a->padding = padding == FL_ATTR_NONE ? -1 : padding;
  a->fault = flc_fault_of(l);
  if (index->ndim == 2)
    a->each = index->shape[1];
  else
    a->offsets = flc_input(l, offsets, FL_I64);
  if (a->n > 0)
    a->index = flc_input(l, index, FL_I64);
  if (a->n > 0 && factors->data)
    a->factors = flc_input(l, factors, wide);
  return (a->n && !a->index) || (a->n && factors->data && !a->factors) ||
                 (index->ndim == 1 && !a->offsets)
             ? FL_ENOMEM
             : FL_OK;
}

static fl_status bag_launch(const fl_launch *l, const char *entry, fl_dtype d,
                            int64_t bags, bag_args *a) {
  int n = part_of(a, d);
  flc_spec spec = FLC_SPEC("bag", entry, d, n);
  a->by_parts = flc_divisor_of(a->width / n);
  int64_t blocks = fl_ceil_div(bags * a->by_parts.by, BAG_THREADS);
  flc_grid g = {.x = (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30),
                .block = BAG_THREADS};
  return FLC_RUN(l, spec, g, *a);
}

/* weight, index, offsets, factors -> y, where */
FLC_KERNEL(embedding_bag) {
  const fl_view *w = &l->in[FL_IN_embedding_bag_weight], *y = &l->out[0];
  const fl_attr *v = l->attrs->v;
  bag_args a = {.y = y->data,
                .where = l->out[FL_OUT_embedding_bag_where].data,
                .bags = y->shape[0],
                .width = y->shape[1],
                .rows = w->shape[0],
                .last = v[FL_ATTR_embedding_bag_include_last].i != 0,
                .mean = v[FL_ATTR_embedding_bag_mode].i == 1};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  fl_status s =
      bag_take(l, v[FL_ATTR_embedding_bag_padding].i, flc_wide(w->dtype), &a);
  if (s != FL_OK)
    return s;
  if (a.rows > 0 && !(a.table = flc_input(l, w, w->dtype)))
    return FL_ENOMEM;
  return bag_launch(l, v[FL_ATTR_embedding_bag_mode].i == 2 ? "most" : "sums",
                    w->dtype, a.bags, &a);
}

/* dy, index, offsets, factors -> dweight */
FLC_KERNEL(embedding_bag_backward) {
  const fl_view *dy = &l->in[FL_IN_embedding_bag_backward_dy], *y = &l->out[0];
  const fl_attr *v = l->attrs->v;
  fl_dtype wide = flc_wide(y->dtype);
  bag_args a = {.bags = dy->shape[0],
                .width = y->shape[1],
                .rows = y->shape[0],
                .last = v[FL_ATTR_embedding_bag_backward_include_last].i != 0,
                .mean = v[FL_ATTR_embedding_bag_backward_mode].i == 1};
  fl_view rows = {.dtype = wide, .ndim = 2};
  fl_status s =
      bag_take(l, v[FL_ATTR_embedding_bag_backward_padding].i, wide, &a);
  if (s != FL_OK)
    return s;
  if (a.n == 0 || fl_view_numel(dy) == 0)
    return flc_zero(l, y->data,
                    (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype));
  size_t bytes = (size_t)(a.n * a.width) * fl_dtype_size(wide);
  a.table = flc_input(l, dy, wide);
  a.y = rows.data = fl_scratch_get(l, bytes);
  if (!a.table || !a.y)
    return FL_ENOMEM;
  rows.shape[0] = a.n;
  rows.shape[1] = rows.stride[0] = a.width;
  rows.stride[1] = 1;
  s = bag_launch(l, "spread", wide, a.bags + a.last, &a);
  return s == FL_OK
             ? flc_sum_rows(l, &l->in[FL_IN_embedding_bag_backward_index],
                            &rows, a.padding)
             : s;
}

void flc_visit_bag(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int whole = 0; whole < 2; whole++) {
    int n = whole ? 16 / (int)fl_dtype_size(d) : 1;
    flc_spec sums = FLC_SPEC("bag", "sums", d, n),
             most = FLC_SPEC("bag", "most", d, n),
             spread = FLC_SPEC("bag", "spread", d, n);
    bool quick = d == FL_F32 && whole;
    v->spec(v, &sums, quick);
    v->spec(v, &most, quick);
    if (d == flc_wide(d))
      v->spec(v, &spread, quick);
  }
}
