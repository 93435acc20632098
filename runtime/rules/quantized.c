/* Weights of 4 and 8 bits with scales: shapes, gradients, cost, and both rows
 * as expressions of others. */
#include "env.h"

#include <string.h>

/* Groups of a row and their size; FL_OK if scales and zeros fit the weight. */
static fl_status read_groups(const fli_infer *c, const fl_meta *w,
                             const fl_meta *scales, const fl_meta *zeros,
                             int64_t *columns) {
  const char *op = c->op->info.name;
  if (w->ndim != 2 || (w->dtype != FL_I8 && w->dtype != FL_U8))
    return fli_fail(w->ndim != 2 ? FL_ESHAPE : FL_EDTYPE,
                    "%s: weight must be i8 (outputs, inputs) or u8 (outputs, "
                    "inputs / 2), got %s %s",
                    op, fl_dtype_name(w->dtype),
                    fli_shape_text(w->ndim, w->shape));
  *columns = w->shape[1] * (w->dtype == FL_U8 ? 2 : 1);
  if (scales->ndim != 2 || scales->shape[0] != w->shape[0] ||
      (scales->shape[1] == 0 ? *columns != 0
                             : *columns % scales->shape[1] != 0))
    return fli_fail(FL_ESHAPE,
                    "%s: scales %s do not fit a weight of %lld rows of %lld: "
                    "they must be (%lld, groups), groups of one size",
                    op, fli_shape_text(scales->ndim, scales->shape),
                    (long long)w->shape[0], (long long)*columns,
                    (long long)w->shape[0]);
  if (zeros && !fli_same_shape(zeros, scales))
    return fli_fail(FL_ESHAPE, "%s: zeros %s must have the shape of scales, %s",
                    op, fli_shape_text(zeros->ndim, zeros->shape),
                    fli_shape_text(scales->ndim, scales->shape));
  return FL_OK;
}

fl_status fli_shape_dequantize(fli_infer *c) {
  const fl_meta *w = c->in[FL_IN_dequantize_weight];
  int64_t columns, d = c->attrs->v[FL_ATTR_dequantize_dtype].i;
  if (!fl_dtype_is_float((fl_dtype)d))
    return fli_fail(FL_EDTYPE, "dequantize: dtype must be a float, got %s",
                    fl_dtype_name((fl_dtype)d));
  FLI_TRY(read_groups(c, w, c->in[FL_IN_dequantize_scales],
                      c->in[FL_IN_dequantize_zeros], &columns));
  c->out[0].ndim = 2;
  c->out[0].shape[0] = w->shape[0];
  c->out[0].shape[1] = columns;
  return FL_OK;
}

fl_status fli_shape_quantized_linear(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_quantized_linear_x],
                *w = c->in[FL_IN_quantized_linear_weight],
                *bias = c->in[FL_IN_quantized_linear_bias];
  int64_t columns;
  FLI_TRY(read_groups(c, w, c->in[FL_IN_quantized_linear_scales],
                      c->in[FL_IN_quantized_linear_zeros], &columns));
  if (x->ndim == 0 || x->shape[x->ndim - 1] != columns)
    return fli_fail(FL_ESHAPE,
                    "quantized_linear: x %s does not fit the weight: its last "
                    "size must be %lld",
                    fli_shape_text(x->ndim, x->shape), (long long)columns);
  if (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[0]))
    return fli_fail(FL_ESHAPE, "quantized_linear: bias %s must be (%lld)",
                    fli_shape_text(bias->ndim, bias->shape),
                    (long long)w->shape[0]);
  fl_meta *y = &c->out[0];
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof y->shape);
  y->shape[x->ndim - 1] = w->shape[0];
  return FL_OK;
}

void fli_cost_quantized_linear(const fli_infer *c, double *flops,
                               double *bytes) {
  const fl_meta *x = c->in[FL_IN_quantized_linear_x], *y = &c->out[0];
  fli_cost_bytes(c, flops, bytes);
  *flops =
      2 * (double)fl_numel(y->ndim, y->shape) * (double)x->shape[x->ndim - 1];
}

/* --- as expressions --- */

/* Whether the operands fit: where a device has no kernel of the row, its shape
 * rule has not run. */
static bool operands_fit(fli_composing *g) {
  const fl_meta *in[FL_MAX_PARAMS] = {NULL};
  fl_meta out[FL_MAX_OUT];
  fl_attrs attrs = *g->attrs;
  fli_infer c = {.op = g->op,
                 .n_in = g->n_in,
                 .n_out = 1,
                 .in = in,
                 .out = out,
                 .attrs = &attrs};
  for (int k = 0; k < g->n_in; k++)
    in[k] = fli_nothing(g->in[k]) ? NULL : fli_meta(g->in[k]);
  if (!g->e.status)
    g->e.status = g->op->shape(&c);
  return g->e.status == FL_OK;
}

/* The integers of a weight, (outputs, inputs), as floats. */
static fl_value integers_of(fli_composing *g, fl_value w, fl_dtype d) {
  const fl_meta *m = fli_meta(w);
  if (g->e.status || m->dtype == FL_I8)
    return CAST(w, d);
  int64_t rows = m->shape[0], pairs = m->shape[1];
  fl_value half[2] = {RUN(bitwise_and, w, fli_integer(15)),
                      RUN(shift_right, w, fli_integer(4))};
  fl_attrs a = fli_attrs(&g->e, FLI_OP_stack);
  a.v[FL_ATTR_stack_dim].i = 2;
  fl_value both = fli_run(&g->e, FLI_OP_stack, &a, 2, half);
  return CAST(fli_v_reshape(&g->e, both, 2, (int64_t[]){rows, 2 * pairs}), d);
}

static fl_value numbers_of(fli_composing *g, fl_value w, fl_value scales,
                           fl_value zeros, fl_dtype d) {
  fl_dtype wide = d == FL_F64 ? FL_F64 : FL_F32;
  fl_value q = integers_of(g, w, wide);
  if (g->e.status)
    return q;
  int64_t rows = fli_meta(q)->shape[0], columns = fli_meta(q)->shape[1],
          groups = fli_meta(scales)->shape[1];
  bool center = fli_meta(w)->dtype == FL_U8;
  q = fli_v_reshape(&g->e, q, 3,
                    (int64_t[]){rows, groups, groups ? columns / groups : 0});
  if (!fli_nothing(zeros))
    q = SUB(q, fli_v_unsqueeze(&g->e, CAST(zeros, wide), 2));
  else if (center)
    q = SUB(q, NUM(8));
  q = MUL(q, fli_v_unsqueeze(&g->e, CAST(scales, wide), 2));
  return CAST(fli_v_reshape(&g->e, q, 2, (int64_t[]){rows, columns}), d);
}

void fli_compose_dequantize(fli_composing *g) {
  if (!operands_fit(g))
    return;
  g->out[0] =
      numbers_of(g, g->in[FL_IN_dequantize_weight],
                 g->in[FL_IN_dequantize_scales], g->in[FL_IN_dequantize_zeros],
                 (fl_dtype)g->attrs->v[FL_ATTR_dequantize_dtype].i);
}

void fli_grad_dequantize(fli_grad *g) {
  fli_composed_grad(&g->e, g->op, g->attrs, g->n_in, g->in, g->need, g->dy,
                    g->dx);
}

/* The product is in x's dtype. */
void fli_compose_quantized_linear(fli_composing *g) {
  fl_value x = g->in[FL_IN_quantized_linear_x],
           bias = g->in[FL_IN_quantized_linear_bias];
  if (!operands_fit(g))
    return;
  fl_dtype d = fli_meta(x)->dtype;
  fl_value w = numbers_of(g, g->in[FL_IN_quantized_linear_weight],
                          g->in[FL_IN_quantized_linear_scales],
                          g->in[FL_IN_quantized_linear_zeros], d);
  if (!fli_nothing(bias))
    bias = CAST(bias, d);
  g->out[0] = RUN(linear, x, w, bias);
}

/* Towards x and bias by rows that have kernels, which is what tuning beside
 * quantised weights needs. */
void fli_grad_quantized_linear(fli_grad *g) {
  fli_env *e = &g->e;
  fl_value dy = g->dy[0], in[FL_INS_quantized_linear];
  bool need[FL_INS_quantized_linear];
  if (fli_nothing(dy))
    return;
  for (int k = 0; k < FL_INS_quantized_linear; k++) {
    need[k] = k < g->n_in && g->need[k];
    in[k] = k < g->n_in ? g->in[k] : fli_none();
  }
  if (need[FL_IN_quantized_linear_x]) {
    fl_attrs a = fli_attrs(e, FLI_OP_dequantize);
    a.v[FL_ATTR_dequantize_dtype].i = fli_meta(dy)->dtype;
    g->dx[FL_IN_quantized_linear_x] =
        MATMUL(dy, RUN_A(dequantize, &a, in[FL_IN_quantized_linear_weight],
                         in[FL_IN_quantized_linear_scales],
                         in[FL_IN_quantized_linear_zeros]));
  }
  if (need[FL_IN_quantized_linear_bias]) {
    const fl_meta *m = fli_meta(dy);
    int64_t n = m->shape[m->ndim - 1], rows = fl_numel(m->ndim - 1, m->shape);
    g->dx[FL_IN_quantized_linear_bias] =
        SUM1(fli_v_reshape(e, dy, 2, (int64_t[]){rows, n}), 0, false);
  }
  need[FL_IN_quantized_linear_x] = need[FL_IN_quantized_linear_bias] = false;
  if (need[FL_IN_quantized_linear_scales] || need[FL_IN_quantized_linear_zeros])
    fli_composed_grad(e, g->op, g->attrs, FL_INS_quantized_linear, in, need,
                      g->dy, g->dx);
}
