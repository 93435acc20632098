/* Checks that shape rules of rows for gradients share. A program may call such
 * a row with inputs of its own, so each input must have the shape that the
 * forward operator gives it. */
#ifndef FL_RULES_FITS_H
#define FL_RULES_FITS_H

#include "env.h"

/* Input k, if it is there, has this shape. */
static inline fl_status fli_fits(const fli_infer *c, int k, int ndim,
                                 const int64_t *shape) {
  const fl_meta *m = c->in[k];
  if (!m || fli_has_shape(m, ndim, shape))
    return FL_OK;
  return fli_fail(FL_ESHAPE, "%s: %s has shape %s, but must have %s",
                  c->op->info.name, c->op->info.params[k].name,
                  fli_shape_text(m->ndim, m->shape),
                  fli_shape_text(ndim, shape));
}

/* Rows of attention: heads of q share those of k and v equally. */
fl_status fli_fits_heads(const char *row, int64_t heads, int64_t of_keys);
/* Their gradients: inputs `first` and the following, y, lse, seed and offset,
 * and the results, which have the shapes of q, k and v. */
fl_status fli_fits_attention(fli_infer *c, int first, int ndim,
                             const int64_t *y, const int64_t *lse);

#endif
