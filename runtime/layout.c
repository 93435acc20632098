/* Results that lie in memory as an input does, where that saves copies: those
 * of convolutions of 16-bit floats with channels innermost, as matrix units
 * want them. */
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
