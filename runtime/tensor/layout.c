/* Layouts: whether elements overlap, and results with the layout of an input
 * where that saves copies: convolutions of 16-bit floats with channels
 * innermost, as tensor cores need them, and attention with heads inside rows,
 * as projections have them. */
#include "tensor.h"

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

void fli_conv_layout(const fl_tensor *x, fl_tensor *y) {
  const int64_t *size = y->meta.shape;
  if (!x || x->contiguous || x->meta.ndim != 4 || x->stride[1] != 1 ||
      x->meta.shape[1] % 8 != 0 || size[1] % 8 != 0 ||
      fl_dtype_size(y->meta.dtype) != 2 || y->numel == 0)
    return;
  y->stride[1] = 1;
  y->stride[3] = size[1];
  y->stride[2] = size[1] * size[3];
  y->stride[0] = size[1] * size[3] * size[2];
  y->contiguous = size[2] * size[3] == 1;
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
