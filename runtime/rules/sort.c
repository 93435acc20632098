/* Rules of sort and topk. */
#include "env.h"

#include <string.h>

static void both(fli_infer *c, const fl_meta *x) {
  for (int k = 0; k < 2; k++) {
    c->out[k].ndim = x->ndim;
    memcpy(c->out[k].shape, x->shape, (size_t)x->ndim * sizeof *x->shape);
  }
}

fl_status fli_shape_sort(fli_infer *c) {
  both(c, c->in[0]);
  return FL_OK;
}

fl_status fli_shape_topk(fli_infer *c) {
  const fl_meta *x = c->in[0];
  int64_t k = c->attrs->v[FL_ATTR_topk_k].i,
          dim = c->attrs->v[FL_ATTR_topk_dim].i;
  int64_t n = x->ndim ? x->shape[dim] : 1;
  if (k < 0 || k > n)
    return fli_fail(FL_EARG,
                    "topk: k must be from 0 to %lld, the size of dim "
                    "%lld, got %lld",
                    (long long)n, (long long)dim + c->base, (long long)k);
  if (x->ndim == 0 && k == 0)
    return fli_fail(FL_EARG, "topk: a 0-d tensor has one element, k is 0");
  both(c, x);
  if (x->ndim)
    c->out[0].shape[dim] = c->out[FL_OUT_topk_indices].shape[dim] = k;
  return FL_OK;
}

/* The gradient is dy at the positions that its elements had. */
static void put_back(fli_grad *g, int64_t dim) {
  const fl_meta *x = &g->in_meta[0];
  fl_value dy = g->dy[0];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_scatter);
  if (fli_nothing(dy))
    return;
  a.v[FL_ATTR_scatter_dim].i = dim;
  fl_value zeros = fli_v_zeros(&g->e, fli_meta(dy)->dtype, x->ndim, x->shape,
                               fl_tensor_device(dy.tensor));
  g->dx[0] = RUN_A(scatter, &a, zeros, g->y[FL_OUT_sorted_indices], dy);
}

void fli_grad_sort(fli_grad *g) {
  put_back(g, g->attrs->v[FL_ATTR_sort_dim].i);
}

void fli_grad_topk(fli_grad *g) {
  put_back(g, g->attrs->v[FL_ATTR_topk_dim].i);
}
