/* Complex tensors and the pairs of floats that they are: views between them,
 * and the rows that make complex numbers or take them apart. */
#include "env.h"

#include <string.h>

fl_status fli_view_view_as_real(fli_viewing *v) {
  int n = v->x->ndim;
  if (n == FL_MAX_DIMS)
    return fli_fail(FL_ESHAPE, "view_as_real: %d dims leave none for the pairs",
                    n);
  v->out.dtype = fli_part_dtype(v->x->dtype);
  v->out.ndim = n + 1;
  for (int d = 0; d < n; d++) {
    v->out.shape[d] = v->x->shape[d];
    v->stride[d] = 2 * v->x_stride[d];
  }
  v->out.shape[n] = 2;
  v->stride[n] = 1;
  v->offset = 2 * v->x_offset;
  return FL_OK;
}

void fli_grad_view_as_real(fli_grad *g) {
  g->dx[0] = RUN(view_as_complex, RUN(contiguous, g->dy[0]));
}

fl_status fli_view_view_as_complex(fli_viewing *v) {
  int n = v->x->ndim - 1;
  bool fits = n >= 0 && v->x->shape[n] == 2;
  if (!fits || (v->x->dtype != FL_F32 && v->x->dtype != FL_F64))
    return fli_fail(fits ? FL_EDTYPE : FL_ESHAPE,
                    "view_as_complex: needs f32 or f64 with a last dim of 2, "
                    "got %s of shape %s",
                    fl_dtype_name(v->x->dtype),
                    fli_shape_text(v->x->ndim, v->x->shape));
  v->out.dtype = v->x->dtype == FL_F64 ? FL_C128 : FL_C64;
  v->out.ndim = n;
  bool whole = v->x_stride[n] == 1 && v->x_offset % 2 == 0;
  for (int d = 0; d < n; d++) {
    v->out.shape[d] = v->x->shape[d];
    v->stride[d] = v->x_stride[d] / 2;
    whole = whole && (v->x_stride[d] % 2 == 0 || v->x->shape[d] <= 1);
  }
  if (!whole && fl_numel(v->x->ndim, v->x->shape) > 0)
    return fli_fail(FL_ESHAPE,
                    "view_as_complex: pairs must lie side by side, strides are "
                    "%s: use contiguous() first",
                    fli_shape_text(v->x->ndim, v->x_stride));
  v->offset = v->x_offset / 2;
  return FL_OK;
}

void fli_grad_view_as_complex(fli_grad *g) {
  g->dx[0] = RUN(view_as_real, g->dy[0]);
}

/* --- products of pairs --- */

fl_status fli_shape_complex_mul(fli_infer *c) {
  fl_meta *y = &c->out[0];
  const fl_meta *wide = c->in[c->in[FL_IN_complex_mul_b]->ndim >
                              c->in[FL_IN_complex_mul_a]->ndim];
  y->ndim = wide->ndim;
  memcpy(y->shape, wide->shape, sizeof y->shape);
  for (int k = 0; k < 2; k++) {
    const fl_meta *m = c->in[k];
    if (m->ndim == 0 || m->shape[m->ndim - 1] != 2)
      return fli_fail(FL_ESHAPE,
                      "complex_mul: needs complex numbers as pairs, with a "
                      "last dim of 2, got shape %s",
                      fli_shape_text(m->ndim, m->shape));
    for (int i = 0, skip = y->ndim - m->ndim; i < m->ndim; i++) {
      int64_t *size = &y->shape[i + skip];
      if (*size == 1)
        *size = m->shape[i];
      if (m->shape[i] != *size && m->shape[i] != 1)
        return fli_fail(FL_ESHAPE,
                        "complex_mul: shapes %s and %s do not broadcast: sizes "
                        "must be equal, or 1",
                        fli_shape_text(c->in[FL_IN_complex_mul_a]->ndim,
                                       c->in[FL_IN_complex_mul_a]->shape),
                        fli_shape_text(c->in[FL_IN_complex_mul_b]->ndim,
                                       c->in[FL_IN_complex_mul_b]->shape));
    }
  }
  return FL_OK;
}

static fl_value one_of(fli_env *e, fl_value pair, int64_t k) {
  fl_attrs a = fli_attrs(e, FLI_OP_select);
  if (e->status)
    return pair;
  a.v[FL_ATTR_select_dim].i = fli_meta(pair)->ndim - 1;
  a.v[FL_ATTR_select_index].i = k;
  return fli_run(e, FLI_OP_select, &a, 1, &pair);
}

void fli_compose_complex_mul(fli_composing *g) {
  fl_value re[2], im[2];
  fl_meta m;
  const fl_meta *in[2] = {fli_meta(g->in[FL_IN_complex_mul_a]),
                          fli_meta(g->in[FL_IN_complex_mul_b])};
  fli_infer c = {.out = &m, .in = in};
  if ((g->e.status = fli_shape_complex_mul(&c)))
    return;
  for (int k = 0; k < 2; k++) {
    fl_value x = fli_v_widened(&g->e, g->in[k]);
    re[k] = one_of(&g->e, x, 0);
    im[k] = one_of(&g->e, x, 1);
  }
  if (g->attrs->v[FL_ATTR_complex_mul_conj].i)
    im[1] = NEG(im[1]);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_stack);
  a.v[FL_ATTR_stack_dim].i = m.ndim - 1;
  fl_value y = RUN_A(stack, &a, SUB(MUL(re[0], re[1]), MUL(im[0], im[1])),
                     ADD(MUL(re[0], im[1]), MUL(im[0], re[1])));
  g->out[0] = CAST(y, fli_promote(in[0]->dtype, in[1]->dtype));
}

/* Gradients of L(a b): dy conj(b) for a, dy conj(a) for b. Of L(a conj(b)): dy
 * b for a, conj(dy) a for b. */
void fli_grad_complex_mul(fli_grad *g) {
  bool conj = g->attrs->v[FL_ATTR_complex_mul_conj].i;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_complex_mul), by = a;
  a.v[FL_ATTR_complex_mul_conj].i = !conj;
  by.v[FL_ATTR_complex_mul_conj].i = true;
  if (g->need[FL_IN_complex_mul_a])
    g->dx[FL_IN_complex_mul_a] =
        RUN_A(complex_mul, &a, g->dy[0], g->in[FL_IN_complex_mul_b]);
  if (g->need[FL_IN_complex_mul_b])
    g->dx[FL_IN_complex_mul_b] =
        conj ? RUN_A(complex_mul, &by, g->in[FL_IN_complex_mul_a], g->dy[0])
             : RUN_A(complex_mul, &by, g->dy[0], g->in[FL_IN_complex_mul_a]);
}

static bool is_complex(fl_value v) {
  return fli_is_complex(fli_meta(v)->dtype);
}

static fl_value complex_part(fli_composing *g, fl_value x, int64_t k) {
  return one_of(&g->e, RUN(view_as_real, x), k);
}

static fl_value as_tensor(fli_composing *g, fl_value v) {
  return v.tensor ? v : RUN(copy, v);
}

/* f64 if one is, and f32 otherwise. */
static fl_dtype part_dtype(fl_value a, fl_value b) {
  bool wide = fli_meta(a)->dtype == FL_F64 || fli_meta(b)->dtype == FL_F64;
  return wide ? FL_F64 : FL_F32;
}

/* Two real tensors, broadcast. */
static fl_value of_parts(fli_composing *g, fl_value re, fl_value im) {
  fl_dtype d = part_dtype(re, im);
  re = CAST(as_tensor(g, re), d);
  im = CAST(as_tensor(g, im), d);
  fl_meta m = *fli_meta(re);
  if (fli_meta(im)->ndim > m.ndim)
    m = *fli_meta(im);
  for (int k = 0; k < 2; k++) {
    const fl_meta *x = fli_meta(k ? im : re);
    for (int i = 0, skip = m.ndim - x->ndim; i < x->ndim; i++)
      if (m.shape[i + skip] == 1)
        m.shape[i + skip] = x->shape[i];
  }
  re = EXPAND(re, &m);
  im = EXPAND(im, &m);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_stack);
  a.v[FL_ATTR_stack_dim].i = m.ndim;
  return RUN(view_as_complex, RUN_A(stack, &a, re, im));
}

void fli_compose_complex(fli_composing *g) {
  g->out[0] = of_parts(g, g->in[FL_IN_complex_re], g->in[FL_IN_complex_im]);
}

void fli_compose_polar(fli_composing *g) {
  fl_dtype d = part_dtype(g->in[FL_IN_polar_size], g->in[FL_IN_polar_angle]);
  fl_value size = CAST(as_tensor(g, g->in[FL_IN_polar_size]), d);
  fl_value angle = CAST(as_tensor(g, g->in[FL_IN_polar_angle]), d);
  g->out[0] =
      of_parts(g, MUL(size, RUN(cos, angle)), MUL(size, RUN(sin, angle)));
}

static fl_value zeros_as(fli_composing *g, fl_value x) {
  const fl_meta *m = fli_meta(x);
  return g->e.status ? x
                     : fli_v_zeros(&g->e, m->dtype, m->ndim, m->shape,
                                   fl_tensor_device(x.tensor));
}

void fli_compose_real(fli_composing *g) {
  fl_value x = as_tensor(g, g->in[0]);
  g->out[0] = is_complex(x) ? complex_part(g, x, 0) : x;
}

void fli_compose_imag(fli_composing *g) {
  fl_value x = as_tensor(g, g->in[0]);
  g->out[0] = is_complex(x) ? complex_part(g, x, 1) : zeros_as(g, x);
}

void fli_compose_conj(fli_composing *g) {
  fl_value x = as_tensor(g, g->in[0]);
  g->out[0] = is_complex(x) ? of_parts(g, complex_part(g, x, 0),
                                       NEG(complex_part(g, x, 1)))
                            : x;
}

void fli_compose_angle(fli_composing *g) {
  fl_value x = as_tensor(g, g->in[0]);
  if (is_complex(x))
    g->out[0] = RUN(atan2, complex_part(g, x, 1), complex_part(g, x, 0));
  else
    g->out[0] = RUN(atan2, zeros_as(g, x), x);
}

/* --- eigenvalues of any square matrix --- */

static void eig(fli_composing *g, fl_value *wv) {
  fl_dtype d = part_dtype(g->in[0], g->in[0]);
  RUN_ALL(eig_pairs, NULL, wv, CAST(g->in[0], d));
}

void fli_compose_eig(fli_composing *g) {
  fl_value wv[FL_MAX_OUT];
  eig(g, wv);
  g->out[0] = RUN(view_as_complex, wv[0]);
  g->out[FL_OUT_eig_vectors] = RUN(view_as_complex, wv[1]);
}

void fli_compose_eigvals(fli_composing *g) {
  fl_value wv[FL_MAX_OUT];
  eig(g, wv);
  g->out[0] = RUN(view_as_complex, wv[0]);
}
