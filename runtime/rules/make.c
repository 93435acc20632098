/* Rules of the rows that make and fill tensors. */
#include "fits.h"

#include <string.h>

fl_status fli_shape_same(fli_infer *c) {
  const fl_meta *x = c->in[0];
  c->out[0].ndim = x->ndim;
  memcpy(c->out[0].shape, x->shape, (size_t)x->ndim * sizeof *x->shape);
  return FL_OK;
}

/* All of one shape. */
fl_status fli_shape_alike(fli_infer *c) {
  for (int k = 1; k < c->n_in; k++)
    FLI_TRY(fli_fits(c, k, c->in[FL_IN_alike_dy]->ndim,
                     c->in[FL_IN_alike_dy]->shape));
  return fli_shape_same(c);
}

/* Another dtype: the engine converts the gradient back. */
fl_status fli_shape_copy(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_copy_x];
  if (c->attrs->v[FL_ATTR_copy_layout].i == FLI_LAYOUT_CHANNELS_LAST &&
      x->ndim != 4)
    return fli_fail(FL_ESHAPE,
                    "copy: channels_last is a layout of (N, C, H, W), not of "
                    "%s",
                    fli_shape_text(x->ndim, x->shape));
  return fli_shape_same(c);
}

void fli_grad_copy(fli_grad *g) {
  g->dx[0] = g->dy[0];
}

void fli_grad_fill(fli_grad *g) {
  if (g->need[FL_IN_fill_x])
    g->dx[FL_IN_fill_x] = fli_g_none(g);
  if (g->need[FL_IN_fill_value])
    g->dx[FL_IN_fill_value] = SUM(g->dy[0], 0, NULL, false);
}
