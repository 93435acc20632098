/* Composed operators between diagonals and matrices, and unflatten. */
#include "env.h"

#include <string.h>

static fl_value diag_padded(fli_composing *g, fl_value x, int n,
                            const int64_t *list) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, n, list);
  return RUN_A(pad, &a, x);
}

/* x's last dim on a diagonal of matrices, the last two dims of the result: with
 * n zeros after each of n elements every row begins one element later. */
static fl_value embedded(fli_composing *g, fl_value x, int64_t offset) {
  const fl_meta *m = fli_meta(x);
  int last = m->ndim - 1;
  int64_t n = m->shape[last], far = offset < 0 ? -offset : offset;
  int64_t shape[FL_MAX_DIMS];
  if (m->ndim == FL_MAX_DIMS || far > INT32_MAX || n > INT32_MAX)
    return fli_env_fail(&g->e, FL_ESIZE, "%s: the result is too large",
                        g->op->info.name);
  memcpy(shape, m->shape, sizeof shape);
  x = diag_padded(g, fli_v_unsqueeze(&g->e, x, m->ndim), 2, (int64_t[]){0, n});
  shape[last] = n * (n + 1);
  x = fli_v_reshape(&g->e, x, last + 1, shape);
  x = fli_v_narrow(&g->e, x, last, 0, n * n, 1);
  shape[last] = shape[last + 1] = n;
  x = fli_v_reshape(&g->e, x, last + 2, shape);
  if (far == 0)
    return x;
  return diag_padded(g, x, 4,
                     offset > 0 ? (int64_t[]){far, 0, 0, far}
                                : (int64_t[]){0, far, far, 0});
}

void fli_compose_diag(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t offset = g->attrs->v[FL_ATTR_diag_offset].i;
  if (m->ndim == 1) {
    g->out[0] = embedded(g, g->in[0], offset);
  } else if (m->ndim == 2) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_diagonal);
    a.v[FL_ATTR_diagonal_offset].i = offset;
    g->out[0] = RUN_A(diagonal, &a, g->in[0]);
  } else {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "diag: x must be a vector or a matrix, got shape %s",
                 fli_shape_text(m->ndim, m->shape));
  }
}

void fli_compose_diag_embed(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int n = m->ndim + 1;
  int64_t dim1 = g->attrs->v[FL_ATTR_diag_embed_dim1].i,
          dim2 = g->attrs->v[FL_ATTR_diag_embed_dim2].i;
  dim1 += dim1 < 0 ? n : 0;
  dim2 += dim2 < 0 ? n : 0;
  if (m->ndim == 0 || dim1 == dim2 || dim1 < 0 || dim2 < 0 || dim1 >= n ||
      dim2 >= n) {
    fli_env_fail(&g->e, FL_EARG,
                 "diag_embed: needs two dims of the result, which has %d, for "
                 "x of shape %s",
                 n, fli_shape_text(m->ndim, m->shape));
    return;
  }
  fl_value x = embedded(g, g->in[0], g->attrs->v[FL_ATTR_diag_embed_offset].i);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_movedim);
  fli_set_list(&g->e, &a, FL_ATTR_movedim_from, 2, (int64_t[]){n - 2, n - 1});
  fli_set_list(&g->e, &a, FL_ATTR_movedim_to, 2, (int64_t[]){dim1, dim2});
  g->out[0] = dim1 == n - 2 && dim2 == n - 1 ? x : RUN_A(movedim, &a, x);
}

void fli_compose_unflatten(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int dim = (int)g->attrs->v[FL_ATTR_unflatten_dim].i, n;
  const int64_t *sizes = fl_attr_list(g->attrs, FL_ATTR_unflatten_sizes, &n);
  int64_t shape[FL_MAX_LIST + FL_MAX_DIMS], known = 1;
  int open = -1;
  bool fits = m->ndim > 0 && n > 0;
  for (int i = 0; i < n && fits; i++) {
    fits = sizes[i] >= (open < 0 ? -1 : 0) &&
           !__builtin_mul_overflow(known, sizes[i] < 0 ? 1 : sizes[i], &known);
    if (sizes[i] < 0)
      open = i;
  }
  int64_t size = fits ? m->shape[dim] : 0;
  fits = fits && (open < 0 ? known == size : known > 0 && size % known == 0);
  if (!fits || m->ndim - 1 + n > FL_MAX_DIMS) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "unflatten: dim %d of %s cannot be divided into %s",
                 dim + g->e.base, fli_shape_text(m->ndim, m->shape),
                 fli_shape_text(n, sizes));
    return;
  }
  memcpy(shape, m->shape, (size_t)dim * sizeof *shape);
  memcpy(shape + dim, sizes, (size_t)n * sizeof *shape);
  if (open >= 0)
    shape[dim + open] = size / known;
  memcpy(shape + dim + n, m->shape + dim + 1,
         (size_t)(m->ndim - dim - 1) * sizeof *shape);
  g->out[0] = fli_v_reshape(&g->e, g->in[0], m->ndim - 1 + n, shape);
}

void fli_compose_diagflat(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t n = fl_numel(m->ndim, m->shape);
  g->out[0] = RUN_A(diag, ATTRS_FOR(diag, diagflat),
                    fli_v_reshape(&g->e, g->in[0], 1, &n));
}
