/* Results that lie in memory as an input does, where that saves copies: those
 * of convolutions of 16-bit floats with channels innermost, as matrix units
 * want them, and of attention with heads inside rows, as projections give and
 * take them. */
#include "internal.h"

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
