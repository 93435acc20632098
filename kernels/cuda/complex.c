/* Products of complex numbers. */
#include "cuda.h"

#include "complex.h"

/* The result's dims but the last, which are pairs; dims that run on in both
 * factors become one. */
static void set_dims(pairs_args *a, const fl_view *y, const fl_view *x) {
  int64_t size[PAIRS_DIMS] = {1};
  int n = 0;
  for (int d = 0; d < y->ndim - 1; d++) {
    int64_t step[2];
    bool on = true;
    if (y->shape[d] == 1)
      continue;
    for (int k = 0; k < 2; k++) {
      int from = d - (y->ndim - x[k].ndim);
      step[k] = from < 0 || x[k].shape[from] == 1 ? 0 : x[k].stride[from];
      on = on && n > 0 && a->stride[k][n - 1] == step[k] * y->shape[d];
    }
    if (!on)
      size[n++] = 1;
    size[n - 1] *= y->shape[d];
    for (int k = 0; k < 2; k++)
      a->stride[k][n - 1] = step[k];
  }
  a->ndim = n;
  for (int d = 0; d < n; d++)
    a->size[d] = flc_divisor_of(size[d]);
}

FLC_KERNEL(complex_mul) {
  const fl_view *y = &l->out[0];
  pairs_args a = {.y = y->data,
                  .n = fl_view_numel(y) / 2,
                  .sign = l->attrs->v[FL_ATTR_complex_mul_conj].i ? -1 : 1};
  fl_view x[2];
  if (a.n == 0)
    return FL_OK;
  for (int k = 0; k < 2; k++) {
    fl_view_copy(&x[k], &l->in[k]);
    if (x[k].dtype != y->dtype) {
      if (!(x[k].data = (void *)flc_input(l, &l->in[k], y->dtype)))
        return FL_ENOMEM;
      for (int64_t d = x[k].ndim - 1, n = 1; d >= 0; d--) {
        x[k].stride[d] = n;
        n *= x[k].shape[d];
      }
    }
    a.x[k] = x[k].data;
    a.inside[k] = x[k].stride[x[k].ndim - 1];
  }
  set_dims(&a, y, x);
  int64_t blocks = fl_ceil_div(a.n, 256);
  flc_spec spec = FLC_SPEC("complex", "product", y->dtype);
  flc_grid grid = {.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                   .block = 256};
  return FLC_RUN(l, spec, grid, a);
}

void flc_visit_complex(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    flc_spec s = FLC_SPEC("complex", "product", d);
    v->spec(v, &s, d == FL_F32);
  }
}
