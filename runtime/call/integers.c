/* The mode of comparisons and clamp: integers beside real numbers are compared
 * and bounded as integers, since doubles hold none beyond 2^53. */
#include "../ops/number.h"
#include "call.h"

/* The formula's parameters are reals, which hold no integer beyond 2^53. */
static fl_status clamp_integers(fl_runtime *rt, const fl_call *c) {
  static const int ids[2] = {FLI_OP_maximum, FLI_OP_minimum};
  const fl_attrs *a = c->attrs ? c->attrs : &c->op->defaults;
  fl_tensor *held = fl_tensor_retain(c->in[0].tensor);
  fl_status s = FL_OK;
  bool any = false;
  for (int k = 0; k < 2 && s == FL_OK; k++) {
    fl_operand in[2] = {{.tensor = held, .dtype = FL_NODTYPE}};
    fl_tensor *out = NULL;
    if (!fli_clamp_bound(a, k == 0, &in[1]))
      continue;
    s = fli_number_fits(c->op->info.name, c->inplace, &in[1], held->meta.dtype);
    if (s != FL_OK)
      break;
    fl_call part = *c;
    part.op = &rt->ops[ids[k]];
    part.n_in = 2;
    part.in = in;
    part.attrs = NULL;
    part.out = &out;
    s = fl_call_run(rt, &part);
    fl_tensor_release(held);
    held = s == FL_OK ? out : NULL;
    any = true;
  }
  if (s == FL_OK && !any && !c->inplace) {
    fl_tensor *out = NULL;
    s = fli_tensor_copy(rt, held, FL_NODTYPE, c->site, &out);
    fl_tensor_release(held);
    held = out;
  }
  if (s == FL_OK)
    c->out[0] = held;
  else
    fl_tensor_release(held);
  return s;
}

static bool has_integers(const fl_operand *o) {
  return o->tensor && fli_is_integer(o->tensor->meta.dtype);
}

static bool is_real(const fl_operand *o) {
  return !o->tensor && o->dtype == FL_F64;
}

bool fli_mode_integers(fl_runtime *rt, const fl_call *c, fl_status *status) {
  if (c->op->marks & FLI_MARK_BOUNDS) {
    if (c->n_in != 1 || !has_integers(&c->in[0]))
      return false;
    *status = clamp_integers(rt, c);
    return true;
  }
  if (c->n_in != 2)
    return false;
  bool first = is_real(&c->in[0]);
  if (!is_real(&c->in[!first]) || !has_integers(&c->in[first]))
    return false;
  fl_operand in[2] = {c->in[0], c->in[1]};
  int id = c->op->id;
  fli_compare_exactly(&id, &in[!first], first);
  fl_call exact = *c;
  exact.op = &rt->ops[id];
  exact.in = in;
  *status = fl_call_run(rt, &exact);
  return true;
}
