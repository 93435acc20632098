/* The kernel "epilogue": a row's kernel, then an expression of its result, or a
 * tile. Kernels of products find out what the expression is, and may contain
 * it; those of norms' gradients contain tiles (norm_tail.c). */
#include "product.h"

#include "../norm_tail.h"

#include "../../../runtime/program.h"

fl_status fl_cuda_matmul(const fl_launch *l);
fl_status fl_cuda_linear(const fl_launch *l);
fl_status fl_cuda_quantized_linear(const fl_launch *l);
fl_status fl_cuda_conv(const fl_launch *l);
fl_status fl_cuda_tile(const fl_launch *l);
fl_status fl_cuda_layer_norm_backward(const fl_launch *l);
fl_status fl_cuda_rms_norm_backward(const fl_launch *l);

fl_status flc_product_behind(const flc_product *p, void *c) {
  fl_epilogue e;
  fl_epilogue_split(p->behind, c, &e);
  return fl_cuda_expr(&e.program);
}

/* Whether elements lie side by side, in the order of the loops. */
static bool lies_flat(const fl_view *v, fl_dtype dtype) {
  int64_t n = 1;
  for (int i = v->ndim - 1; i >= 0; n *= v->shape[i--])
    if (v->shape[i] != 1 && v->stride[i] != n)
      return false;
  return v->dtype == dtype && v->data != v->imm;
}

bool flc_behind_is(const fl_launch *l, int row, const void **aux, void **to) {
  const fl_program *f = l->program;
  const fl_view *y = &l->out[0], *out = &l->out[l->row_out];
  const fl_instr *x = f->instrs;
  int64_t n = fl_view_numel(y);
  if (f->n_instr != 1 || x->row != row || x->n_in != f->n_in || f->n_out != 1 ||
      f->out[0] < f->n_in || x->in[0] != l->row_result ||
      !lies_flat(out, y->dtype) || fl_view_numel(out) != n)
    return false;
  for (int k = 1; k < x->n_in; k++) {
    const fl_view *v = &l->in[l->row_in + x->in[k]];
    if (!lies_flat(v, y->dtype) || fl_view_numel(v) != n)
      return false;
    *aux = v->data;
  }
  *to = out->data;
  return true;
}

/* The activation that the expression is; NONE: something else. */
static flc_act act_behind(const fl_launch *l, void **to) {
  static const struct {
    flc_act act;
    int row;
    double p0;
  } acts[] = {{FLC_ACT_RELU, FL_ROW_relu, 0},
              {FLC_ACT_GELU, FL_ROW_gelu, 0},
              {FLC_ACT_GELU_TANH, FL_ROW_gelu, 1},
              {FLC_ACT_SILU, FL_ROW_silu, 0},
              {FLC_ACT_TANH, FL_ROW_tanh, 0},
              {FLC_ACT_SIGMOID, FL_ROW_sigmoid, 0}};
  const void *none;
  for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
    if (flc_behind_is(l, acts[i].row, &none, to) &&
        (acts[i].row != FL_ROW_gelu || l->program->instrs->p[0] == acts[i].p0))
      return acts[i].act;
  return FLC_ACT_NONE;
}

void flc_product_take(const fl_launch *l, flc_product *p) {
  void *to;
  if (!l->program)
    return;
  flc_act act = p->act ? FLC_ACT_NONE : act_behind(l, &to);
  if (act == FLC_ACT_NONE) {
    p->behind = l;
    return;
  }
  p->act = act;
  p->pre = p->c;
  p->c = to;
}

/* The kernels of products look for the expression; those of other rows do not.
 * A probe of a product whose operands have to be copied finds no memory. */
FLC_KERNEL(epilogue) {
  const fl_view *y = &l->out[0];
  bool product = l->row == fl_cuda_matmul || l->row == fl_cuda_linear ||
                 l->row == fl_cuda_quantized_linear;
  bool norm = l->row == fl_cuda_layer_norm_backward ||
              l->row == fl_cuda_rms_norm_backward;
  void *result = y->data;
  fl_epilogue e;
  bool done = false;
  fl_status s = product ? l->row(l) : FL_OK;
  if (product && !(l->probe && s == FL_ENOMEM))
    return s;
  if (norm && l->tile) {
    fl_epilogue_split(l, result, &e);
    s = flc_norm_joint(&e.row, &e.program, l->row_result, &done);
    if (s || done)
      return s;
  }
  if (!result && !(result = fl_scratch_get(l, (size_t)fl_view_numel(y) *
                                                  fl_dtype_size(y->dtype))))
    return FL_ENOMEM;
  fl_epilogue_split(l, result, &e);
  if (l->row == fl_cuda_conv && l->tile) {
    s = flc_conv_moments(&e.row, &e.program, l->row_result, &done);
    if (s || done)
      return s;
  }
  s = l->probe ? FL_OK : l->row(&e.row);
  return s ? s : l->tile ? fl_cuda_tile(&e.program) : fl_cuda_expr(&e.program);
}
