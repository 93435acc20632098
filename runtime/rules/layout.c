/* Layout rules: which strides results get where inputs are not contiguous. A
 * row names its rule by FL_LAYOUT; what they share is in tensor/layout.c. */
#include "../ops/rules.h"

/* As the first input of the result's shape that has an order: an expanded
 * tensor has none. */
void fli_layout_alike(const fl_attrs *attrs, int n_in, const fl_operand *in,
                      int n_out, fl_tensor *const *out) {
  (void)attrs;
  for (int k = 0; k < n_out; k++)
    for (int i = 0; i < n_in; i++) {
      const fl_tensor *x = in[i].tensor;
      if (x && fli_same_shape(&x->meta, &out[k]->meta) &&
          (x->contiguous || fli_order_like(x, out[k])))
        break;
    }
}

/* A gradient is as the forward operand, which comes last, if that is saved. */
void fli_layout_saved(const fl_attrs *attrs, int n_in, const fl_operand *in,
                      int n_out, fl_tensor *const *out) {
  fl_operand turned[3];
  int n = 0;
  while (n_in > 0 && n < 3)
    turned[n++] = in[--n_in];
  fli_layout_alike(attrs, n, turned, n_out, out);
}

/* Images are channels-last if one of the inputs is. */
void fli_layout_channels(const fl_attrs *attrs, int n_in, const fl_operand *in,
                         int n_out, fl_tensor *const *out) {
  (void)attrs;
  for (int i = 0; i < n_in; i++)
    if (in[i].tensor && fli_channels_last(in[i].tensor)) {
      for (int k = 0; k < n_out; k++)
        if (out[k]->meta.ndim == 4)
          fli_make_channels_last(out[k]);
      return;
    }
}

/* Heads inside rows, if the first input has them there. */
void fli_layout_heads(const fl_attrs *attrs, int n_in, const fl_operand *in,
                      int n_out, fl_tensor *const *out) {
  (void)attrs, (void)n_in;
  for (int k = 0; k < n_out; k++)
    fli_heads_layout(in[0].tensor, out[k]);
}

/* As the attribute says. */
void fli_layout_copy(const fl_attrs *attrs, int n_in, const fl_operand *in,
                     int n_out, fl_tensor *const *out) {
  switch (attrs->v[FL_ATTR_copy_layout].i) {
  case FLI_LAYOUT_KEEP:
    fli_layout_alike(attrs, n_in, in, n_out, out);
    break;
  case FLI_LAYOUT_CHANNELS_LAST:
    fli_make_channels_last(out[0]);
    break;
  default:
    break;
  }
}
