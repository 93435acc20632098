/* Linear algebra: operands as contiguous batches of matrices in float or
 * double, the leading dims of two of them broadcast. What is done with a matrix
 * is in factor.c. */
#include "lapack.h"

/* `v` with the leading dims of `like`, a repeated one at stride 0; `own` last
 * dims are v's. */
static void linalg_spread(const fl_view *v, int own, const fl_view *like,
                          int lead, fl_view *out) {
  fl_view_copy(out, v);
  out->ndim = lead + own;
  for (int d = out->ndim - 1; d >= 0; d--) {
    int from = d - (out->ndim - v->ndim);
    bool there = from >= 0;
    out->shape[d] = d < lead ? like->shape[d] : v->shape[from];
    out->stride[d] =
        there && (d >= lead || v->shape[from] != 1) ? v->stride[from] : 0;
  }
}

_Static_assert(FL_IN_solve_b == FL_IN_triangular_solve_b, "read for both rows");

static fl_status linalg_run(const fl_launch *l, fl_factorization f,
                            fl_dtype d) {
  const fl_view *a = &l->in[FL_IN_solve_a], *y = &l->out[0];
  int64_t results = 0; /* a batch may be endless, and its matrices empty */
  for (int k = 0; k < l->n_out; k++)
    results |= fl_view_numel(&l->out[k]);
  if (results == 0)
    return FL_OK;
  fl_factor c = {.l = l, .wide = d == FL_F64, .k = 1};
  c.m = a->shape[a->ndim - 2];
  c.n = a->shape[a->ndim - 1];
  int right = l->n_in > 1 ? l->in[FL_IN_solve_b].ndim > 1 ? 2 : 1 : 0;
  int lead = right ? y->ndim - right : a->ndim - 2;
  c.batch = fl_numel(lead, right ? y->shape : a->shape);
  if (right == 2)
    c.k = l->in[FL_IN_solve_b].shape[l->in[FL_IN_solve_b].ndim - 1];
  for (int k = 0; k < l->n_in; k++) {
    fl_view v;
    linalg_spread(&l->in[k], k ? right : 2, right ? y : a, lead, &v);
    if (!(c.in[k] = FL_CPU(input)(l, &v, d)))
      return FL_ENOMEM;
    c.in_bytes[k] = (size_t)fl_view_numel(&v) * fl_dtype_size(d);
  }
  for (int k = 0; k < l->n_out; k++)
    c.out_bytes[k] = (size_t)fl_view_numel(&l->out[k]) * fl_dtype_size(d);
  for (int k = 0; k < l->n_out; k++)
    if (!(c.out[k] = FL_CPU(output)(l, &l->out[k], d)))
      return FL_ENOMEM;
  if (!(c.lib = fl_lapack_get(l->op)))
    return FL_EUNSUPPORTED;
  fl_status s = f(&c);
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    FL_CPU(finish)(l, &l->out[k], d, c.out[k]);
  return s;
}

#define LINALG(name)                                                           \
  FL_KERNEL(name) {                                                            \
    return linalg_run(l, fl_lapack_##name, fl_cpu_wide(l->out[0].dtype));      \
  }

LINALG(cholesky)
LINALG(cholesky_pivoted)
LINALG(triangular_solve)
LINALG(solve)
LINALG(inv)
LINALG(det)
LINALG(slogdet)
LINALG(qr)
LINALG(lu_factor)
LINALG(geqrf)
LINALG(svd)
LINALG(pinv)
LINALG(eigh)
LINALG(eig_pairs)

FL_KERNEL(matrix_exp) { /* its coefficients span 17 digits */
  return linalg_run(l, fl_lapack_matrix_exp, FL_F64);
}
