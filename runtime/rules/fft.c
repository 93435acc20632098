/* Discrete Fourier transforms of complex numbers kept as pairs in a last dim.
 * They are linear: each row's gradient is the opposite transform. */
#include "env.h"

#include <math.h>
#include <string.h>

/* 5 n log2(n) is what a transform of radix 2 takes. */
static double transform_flops(const fl_meta *x, int64_t n, int64_t dim,
                              int64_t dims) {
  double all = (double)fl_numel(x->ndim, x->shape), size = (double)n;
  for (int64_t k = 1; k < dims; k++)
    size *= (double)x->shape[dim - k];
  return 2.5 * all * (size > 1 ? log2(size) : 1);
}

void fli_cost_dft(const fli_infer *c, double *flops, double *bytes) {
  int64_t dim = c->attrs->v[FL_ATTR_dft_dim].i;
  fli_cost_bytes(c, flops, bytes);
  *flops = transform_flops(c->in[0], c->in[0]->shape[dim], dim,
                           c->attrs->v[FL_ATTR_dft_dims].i);
}

void fli_cost_rdft(const fli_infer *c, double *flops, double *bytes) {
  int64_t dim = c->attrs->v[FL_ATTR_rdft_dim].i;
  fli_cost_bytes(c, flops, bytes);
  *flops = transform_flops(c->in[0], c->in[0]->shape[dim], dim,
                           c->attrs->v[FL_ATTR_rdft_dims].i);
}

void fli_cost_irdft(const fli_infer *c, double *flops, double *bytes) {
  const fl_attr *a = c->attrs->v;
  fli_cost_bytes(c, flops, bytes);
  *flops = transform_flops(c->in[0], a[FL_ATTR_irdft_n].i,
                           a[FL_ATTR_irdft_dim].i, a[FL_ATTR_irdft_dims].i);
}

/* The number of dims transformed, dim being the last of them. */
static fl_status check_dims(const fli_infer *c, int64_t dim, int64_t dims) {
  int64_t most = dim < 2 ? dim + 1 : 3;
  if (dims < 1 || dims > most)
    return fli_fail(FL_EARG,
                    "%s: dims is %lld, but can be 1 to %lld at dim %lld",
                    c->op->info.name, (long long)dims, (long long)most,
                    (long long)(dim + c->base));
  return FL_OK;
}

static fl_status check_pairs(const fli_infer *c, int64_t dim) {
  const fl_meta *x = c->in[0];
  if (x->ndim == 0 || x->shape[x->ndim - 1] != 2)
    return fli_fail(FL_ESHAPE,
                    "%s: needs complex numbers as pairs, with a last dim of 2, "
                    "got shape %s",
                    c->op->info.name, fli_shape_text(x->ndim, x->shape));
  if (dim == x->ndim - 1)
    return fli_fail(FL_EARG, "%s: dim %lld is that of the pairs",
                    c->op->info.name, (long long)(dim + c->base));
  return FL_OK;
}

fl_status fli_shape_dft(fli_infer *c) {
  const fl_meta *x = c->in[0];
  FLI_TRY(check_pairs(c, c->attrs->v[FL_ATTR_dft_dim].i));
  FLI_TRY(check_dims(c, c->attrs->v[FL_ATTR_dft_dim].i,
                     c->attrs->v[FL_ATTR_dft_dims].i));
  c->out[0].ndim = x->ndim;
  memcpy(c->out[0].shape, x->shape, sizeof x->shape);
  return FL_OK;
}

fl_status fli_shape_rdft(fli_infer *c) {
  const fl_meta *x = c->in[0];
  int64_t dim = c->attrs->v[FL_ATTR_rdft_dim].i;
  if (x->ndim == 0 || x->ndim == FL_MAX_DIMS || x->shape[dim] == 0)
    return fli_fail(FL_ESHAPE,
                    "rdft: needs a tensor of 1 to %d dims with something along "
                    "dim, got shape %s",
                    FL_MAX_DIMS - 1, fli_shape_text(x->ndim, x->shape));
  FLI_TRY(check_dims(c, dim, c->attrs->v[FL_ATTR_rdft_dims].i));
  c->out[0].ndim = x->ndim + 1;
  memcpy(c->out[0].shape, x->shape, sizeof x->shape);
  c->out[0].shape[dim] = x->shape[dim] / 2 + 1;
  c->out[0].shape[x->ndim] = 2;
  return FL_OK;
}

fl_status fli_shape_irdft(fli_infer *c) {
  const fl_meta *x = c->in[0];
  int64_t n = c->attrs->v[FL_ATTR_irdft_n].i,
          dim = c->attrs->v[FL_ATTR_irdft_dim].i;
  FLI_TRY(check_pairs(c, dim));
  FLI_TRY(check_dims(c, dim, c->attrs->v[FL_ATTR_irdft_dims].i));
  if (n < 1 || x->shape[dim] != n / 2 + 1)
    return fli_fail(FL_ESHAPE,
                    "irdft: a result of n = %lld needs n / 2 + 1 = %lld pairs "
                    "along dim, got shape %s",
                    (long long)n, (long long)(n < 0 ? 0 : n / 2 + 1),
                    fli_shape_text(x->ndim, x->shape));
  c->out[0].ndim = x->ndim - 1;
  memcpy(c->out[0].shape, x->shape, sizeof x->shape);
  c->out[0].shape[dim] = n;
  return FL_OK;
}

/* The transposed matrix with the sign of i changed: the inverse one. */
void fli_grad_dft(fli_grad *g) {
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  a.v[FL_ATTR_dft_inverse].i = !a.v[FL_ATTR_dft_inverse].i;
  g->dx[0] = RUN_A(dft, &a, g->dy[0]);
}

/* Multiplies the pairs along dim but those that are their own mirror image (the
 * first, and the last of an even length). */
static fl_value scale_inner(fli_grad *g, fl_value x, int64_t dim, int64_t n,
                            double by) {
  const fl_meta *m = fli_meta(x);
  int64_t size = (n - 1) / 2, shape[FL_MAX_DIMS];
  if (g->e.status || size == 0)
    return x;
  for (int d = 0; d < m->ndim; d++)
    shape[d] = d == dim ? size : 1;
  fl_device device = fl_tensor_device(x.tensor);
  fl_value w = fli_v_zeros(&g->e, m->dtype, m->ndim, shape, device);
  w = ADD(w, NUM(by - 1));
  fl_attrs pad = fli_attrs(&g->e, FLI_OP_pad);
  int64_t ends[2 * FL_MAX_DIMS] = {0};
  int last = 2 * (m->ndim - 1 - (int)dim);
  ends[last] = 1;
  ends[last + 1] = n % 2 == 0;
  fli_set_list(&g->e, &pad, FL_ATTR_pad_pad, last + 2, ends);
  return MUL(x, ADD(RUN_A(pad, &pad, w), NUM(1)));
}

/* irdft counts all pairs between these twice, for their mirror images. */
void fli_grad_rdft(fli_grad *g) {
  int64_t dim = g->attrs->v[FL_ATTR_rdft_dim].i, n = g->in_meta[0].shape[dim];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_irdft);
  a.v[FL_ATTR_irdft_n].i = n;
  a.v[FL_ATTR_irdft_dim].i = dim;
  a.v[FL_ATTR_irdft_scale] = g->attrs->v[FL_ATTR_rdft_scale];
  a.v[FL_ATTR_irdft_dims] = g->attrs->v[FL_ATTR_rdft_dims];
  g->dx[0] = RUN_A(irdft, &a, scale_inner(g, g->dy[0], dim, n, 0.5));
}

void fli_grad_irdft(fli_grad *g) {
  int64_t n = g->attrs->v[FL_ATTR_irdft_n].i,
          dim = g->attrs->v[FL_ATTR_irdft_dim].i;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_rdft);
  a.v[FL_ATTR_rdft_dim].i = dim;
  a.v[FL_ATTR_rdft_scale] = g->attrs->v[FL_ATTR_irdft_scale];
  a.v[FL_ATTR_rdft_dims] = g->attrs->v[FL_ATTR_irdft_dims];
  g->dx[0] = scale_inner(g, RUN_A(rdft, &a, g->dy[0]), dim, n, 2);
}

/* --- windows --- */

/* n places from 0 to 1 in f64: periodic ones leave out the last, which would be
 * the first again. Nothing after a failure. */
static fl_value fft_places(fli_composing *g) {
  int64_t n = g->attrs->v[FL_ATTR_windows_n].i;
  bool periodic = g->attrs->v[FL_ATTR_windows_periodic].i;
  if (n < 0)
    return fli_env_fail(&g->e, FL_EARG,
                        "%s: n is %lld and must not be negative",
                        g->op->info.name, (long long)n);
  fl_attrs count = fli_attrs(&g->e, FLI_OP_arange);
  count.v[FL_ATTR_arange_start].f = 0;
  count.v[FL_ATTR_arange_stop].f = (double)n;
  count.v[FL_ATTR_arange_dtype].i = FL_F64;
  fl_value t = fli_run(&g->e, FLI_OP_arange, &count, 0, NULL);
  return MUL(t, NUM(n ? 1 / (double)(periodic || n == 1 ? n : n - 1) : 0));
}

/* A window of one element is 1. */
static void fft_window(fli_composing *g, fl_value w, int64_t dtype) {
  if (g->attrs->v[FL_ATTR_windows_n].i == 1)
    w = ADD(MUL(w, NUM(0)), NUM(1));
  g->out[0] = CAST(w, (fl_dtype)dtype);
}

/* a0 - a1 cos(t) + a2 cos(2 t) over a turn */
static void cosines(fli_composing *g, int64_t dtype, const double a[3]) {
  fl_value angle = MUL(fft_places(g), NUM(2 * M_PI));
  fl_value w = SUB(NUM(a[0]), MUL(RUN(cos, angle), NUM(a[1])));
  if (a[2] != 0)
    w = ADD(w, MUL(RUN(cos, MUL(angle, NUM(2))), NUM(a[2])));
  fft_window(g, w, dtype);
}

void fli_compose_bartlett_window(fli_composing *g) {
  fl_value off = RUN(abs, SUB(MUL(fft_places(g), NUM(2)), NUM(1)));
  fft_window(g, SUB(NUM(1), off), g->attrs->v[FL_ATTR_bartlett_window_dtype].i);
}

void fli_compose_kaiser_window(fli_composing *g) {
  fl_value off = RUN(square, SUB(MUL(fft_places(g), NUM(2)), NUM(1)));
  double beta = g->attrs->v[FL_ATTR_kaiser_window_beta].f;
  off = SQRT(RUN(maximum, SUB(NUM(1), off), NUM(0)));
  /* i0e: i0 of a large beta is too much for a double */
  fl_value x = MUL(off, NUM(beta)),
           top = MUL(ADD(MUL(x, NUM(0)), NUM(1)), NUM(beta));
  fl_value w = DIV(RUN(i0e, x), RUN(i0e, top));
  w = MUL(w, EXP(SUB(RUN(abs, x), NUM(fabs(beta)))));
  fft_window(g, w, g->attrs->v[FL_ATTR_kaiser_window_dtype].i);
}

void fli_compose_hann_window(fli_composing *g) {
  cosines(g, g->attrs->v[FL_ATTR_hann_window_dtype].i,
          (double[3]){0.5, 0.5, 0});
}

void fli_compose_hamming_window(fli_composing *g) {
  double alpha = g->attrs->v[FL_ATTR_hamming_window_alpha].f,
         beta = g->attrs->v[FL_ATTR_hamming_window_beta].f;
  cosines(g, g->attrs->v[FL_ATTR_hamming_window_dtype].i,
          (double[3]){alpha, beta, 0});
}

void fli_compose_blackman_window(fli_composing *g) {
  cosines(g, g->attrs->v[FL_ATTR_blackman_window_dtype].i,
          (double[3]){0.42, 0.5, 0.08});
}
