/* pair_distances: Euclidean distances between all rows of two batches of
 * matrices, tiled like a matrix product (pairwise.cu). */
#include "product.h"

FLC_KERNEL(pair_distances) {
  const fl_view *out = &l->out[0];
  flc_matrices a, b;
  flc_product p = {.dtype = out->dtype, .c = out->data, .apart = true};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  if (flc_matrices_read(l, &l->in[FL_IN_pair_distances_a], out->dtype, &a) !=
          FL_OK ||
      flc_matrices_read(l, &l->in[FL_IN_pair_distances_b], out->dtype, &b) !=
          FL_OK)
    return FL_ENOMEM;
  b = flc_matrices_transposed(&b);
  flc_product_join(&p, &a, &b, out->ndim - 2, out->shape);
  return flc_product_own(l, &p);
}
