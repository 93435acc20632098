/* Rules of the random rows. */
#include "fits.h"

#include <string.h>

fl_status fli_shape_random(fli_infer *c) {
  if (fl_dtype_kind(c->out[0].dtype) != FL_KIND_FLOAT)
    return fli_fail(FL_EDTYPE, "%s: dtype must be a float, got %s",
                    c->op->info.name, fl_dtype_name(c->out[0].dtype));
  return fli_shape_sized(c);
}

/* Whether all integers in [low, high) fit a dtype exactly. */
static bool random_fits(fl_dtype d, int64_t low, int64_t high) {
  switch (d) {
  case FL_F64:
    return low >= -(1ll << 53) && high <= (1ll << 53) + 1;
  case FL_F32:
    return low >= -(1 << 24) && high <= (1 << 24) + 1;
  case FL_F16:
    return low >= -2048 && high <= 2049;
  case FL_BF16:
    return low >= -256 && high <= 257;
  case FL_I64:
    return true;
  case FL_BOOL:
    return low >= 0 && high <= 2;
  case FL_U8:
    return low >= 0 && high <= 256;
  default: {
    int64_t half = (int64_t)1 << (8 * fl_dtype_size(d) - 1);
    return low >= -half && high <= half;
  }
  }
}

fl_status fli_shape_randint(fli_infer *c) {
  int64_t low = c->attrs->v[FL_ATTR_randint_low].i,
          high = c->attrs->v[FL_ATTR_randint_high].i;
  if (low >= high)
    return fli_fail(FL_EARG,
                    "randint: low must be below high, got %lld and "
                    "%lld",
                    (long long)low, (long long)high);
  if (!random_fits(c->out[0].dtype, low, high))
    return fli_fail(FL_EDTYPE, "randint: %s cannot hold all of %lld..%lld",
                    fl_dtype_name(c->out[0].dtype), (long long)low,
                    (long long)(high - 1));
  return fli_shape_sized(c);
}

fl_status fli_shape_randperm(fli_infer *c) {
  int64_t n = c->attrs->v[FL_ATTR_randperm_n].i;
  if (n < 0)
    return fli_fail(FL_EARG, "randperm: n must not be negative, got %lld",
                    (long long)n);
  if (n > 0 && !random_fits(c->out[0].dtype, c->base, n + c->base))
    return fli_fail(FL_EDTYPE, "randperm: %s cannot hold all of %d..%lld",
                    fl_dtype_name(c->out[0].dtype), c->base,
                    (long long)(n - 1 + c->base));
  c->out[0].ndim = 1;
  c->out[0].shape[0] = n;
  return FL_OK;
}

fl_status fli_shape_dropout_backward(fli_infer *c) {
  FLI_TRY(fli_fits(c, FL_IN_dropout_backward_seed, 0, NULL));
  FLI_TRY(fli_fits(c, FL_IN_dropout_backward_offset, 0, NULL));
  return fli_shape_same(c);
}

fl_status fli_shape_multinomial(fli_infer *c) {
  const fl_meta *p = c->in[FL_IN_multinomial_p];
  int64_t n = c->attrs->v[FL_ATTR_multinomial_n].i;
  if (p->ndim < 1 || p->ndim > 2 || p->shape[p->ndim - 1] == 0)
    return fli_fail(
        FL_ESHAPE,
        "multinomial: weights must be (classes) or (rows, classes), "
        "got shape %s",
        fli_shape_text(p->ndim, p->shape));
  if (n < 0)
    return fli_fail(FL_EARG, "multinomial: n must not be negative, got %lld",
                    (long long)n);
  c->out[0].ndim = p->ndim;
  c->out[0].shape[0] = p->shape[0];
  c->out[0].shape[p->ndim - 1] = n;
  return FL_OK;
}

void fli_grad_dropout(fli_grad *g) {
  g->dx[FL_IN_dropout_x] =
      RUN_A(dropout_backward, ATTRS_FOR(dropout_backward, dropout), g->dy[0],
            g->in[FL_IN_dropout_seed], g->in[FL_IN_dropout_offset]);
}

/* Each sample moves with its shape parameter so that its quantile stays the
 * same. */
void fli_grad_gamma(fli_grad *g) {
  g->dx[FL_IN_gamma_alpha] =
      MUL(g->dy[0], RUN(gamma_da, g->in[FL_IN_gamma_alpha], g->y[0]));
}

void fli_grad_dropout_backward(fli_grad *g) {
  g->dx[FL_IN_dropout_backward_dy] = RUN_A(
      dropout_backward, g->attrs, g->dy[0], g->in[FL_IN_dropout_backward_seed],
      g->in[FL_IN_dropout_backward_offset]);
}
