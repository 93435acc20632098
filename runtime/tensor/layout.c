/* Layouts: whether elements overlap, which order the dims have in memory, and
 * results in the order of an input: channels-last images, and attention with
 * heads inside rows, as projections have them. A layout is nothing but strides.
 */
#include "tensor.h"

#include "../view.h"

#include <string.h>

/* Whether elements may share memory: some dim does not step over all that the
 * dims with smaller steps reach. */
bool fli_overlaps_itself(const fl_tensor *t) {
  int64_t step[FL_MAX_DIMS], reach[FL_MAX_DIMS], all = 0;
  int n = 0;
  for (int i = 0; i < t->meta.ndim; i++) {
    int64_t s = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
    int k = n;
    if (t->meta.shape[i] == 0)
      return false;
    if (t->meta.shape[i] == 1)
      continue;
    for (; k > 0 && step[k - 1] > s; k--) {
      step[k] = step[k - 1];
      reach[k] = reach[k - 1];
    }
    step[k] = s;
    reach[k] = (t->meta.shape[i] - 1) * s;
    n++;
  }
  for (int k = 0; k < n; k++) {
    if (step[k] <= all)
      return true;
    all += reach[k];
  }
  return false;
}

bool fli_same_place(const fl_tensor *a, const fl_tensor *b) {
  return a->offset == b->offset && a->meta.dtype == b->meta.dtype &&
         fli_same_shape(&a->meta, &b->meta) &&
         memcmp(a->stride, b->stride, (size_t)a->meta.ndim * 8) == 0;
}

bool fli_channels_last(const fl_tensor *t) {
  static const int order[] = {1, 3, 2, 0};
  int64_t least = 1;
  if (t->contiguous || t->meta.ndim != 4 || t->meta.shape[1] < 2 ||
      t->stride[1] != 1)
    return false;
  for (int i = 0; i < 4; i++) {
    int d = order[i];
    if (t->meta.shape[d] == 1)
      continue;
    if (t->stride[d] < least)
      return false;
    least = t->stride[d] * t->meta.shape[d];
  }
  return true;
}

void fli_make_channels_last(fl_tensor *t) {
  const int64_t *size = t->meta.shape;
  if (t->numel == 0)
    return;
  fli_tensor_set_strides(t, (int64_t[]){size[1] * size[3] * size[2], 1,
                                        size[1] * size[3], size[1]});
}

bool fli_order_like(const fl_tensor *x, fl_tensor *y) {
  int order[FL_MAX_DIMS], n = y->meta.ndim;
  int64_t stride[FL_MAX_DIMS], step = 1;
  if (fli_channels_last(x)) {
    fli_make_channels_last(y);
    return true;
  }
  if (!fl_order_dims(n, x->meta.shape, x->stride, order))
    return false;
  for (int i = n - 1; i >= 0; i--) {
    stride[order[i]] = step;
    step *= y->meta.shape[order[i]];
  }
  fli_tensor_set_strides(y, stride);
  return true;
}

bool fli_dense_order(const fl_tensor *t, int *order) {
  int64_t step = 1;
  if (!fl_order_dims(t->meta.ndim, t->meta.shape, t->stride, order))
    return false;
  for (int i = t->meta.ndim - 1; i >= 0; i--) {
    int d = order[i];
    if (t->meta.shape[d] == 1)
      continue;
    if (t->stride[d] != step)
      return false;
    step *= t->meta.shape[d];
  }
  return true;
}

bool fli_same_order(int ndim, const int64_t *shape, const int64_t *a,
                    const int64_t *b) {
  int of_a[FL_MAX_DIMS], of_b[FL_MAX_DIMS];
  bool known = fl_order_dims(ndim, shape, a, of_a);
  if (known != fl_order_dims(ndim, shape, b, of_b))
    return false;
  return !known || memcmp(of_a, of_b, (size_t)ndim * sizeof *of_a) == 0;
}

void fli_views_by_memory(int n_in, fl_view *in, int n_out, fl_view *out) {
  int order[FL_MAX_DIMS], n = out[0].ndim;
  if (fl_contiguous(&out[0]) ||
      !fl_order_dims(n, out[0].shape, out[0].stride, order))
    return;
  for (int k = 0; k < n_in; k++)
    if (in[k].data && in[k].ndim > 0)
      fl_reorder_dims(&in[k], n, order);
  for (int k = 0; k < n_out; k++)
    fl_reorder_dims(&out[k], n, order);
}

void fli_heads_layout(const fl_tensor *q, fl_tensor *y) {
  const int64_t *size = y->meta.shape;
  int n = y->meta.ndim, heads = n - 3, rows = n - 2;
  if (!q || q->contiguous || q->meta.ndim != n || n < 3 || size[heads] < 2 ||
      size[rows] < 2 || q->stride[heads] < 1 ||
      q->stride[heads] >= q->stride[rows] || y->numel == 0)
    return;
  y->stride[heads] = size[n - 1];
  y->stride[rows] = size[n - 1] * size[heads];
  y->contiguous = false;
}

fl_status fl_tensor_lay_like(fl_tensor *t, const fl_tensor *like) {
  FLI_NEED(t, "t");
  FLI_NEED(like, "like");
  if (!fli_same_shape(&t->meta, &like->meta))
    return fli_fail(FL_ESHAPE, "fl_tensor_lay_like: t has shape %s, like %s",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    fli_shape_text(like->meta.ndim, like->meta.shape));
  if (!t->contiguous || t->is_view || t->node)
    return fli_fail(FL_EARG, "fl_tensor_lay_like: t must be new: contiguous, "
                             "no view and without history");
  if (!like->contiguous)
    fli_order_like(like, t);
  return FL_OK;
}
