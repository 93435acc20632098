/* The gradient of a view that takes a part of a tensor, added where it belongs:
 * into the sum of what other parts have given, without a tensor of zeros around
 * each part. */
#include "env.h"
#include "rules.h"
#include "tape.h"

/* Whether no element of the tensor is in the view twice: its row says so. */
bool fli_is_part(const fl_op *op) {
  return op->grad == grad_part;
}

fl_status fli_place(fl_runtime *rt, fli_extra *x, fl_tensor *g) {
  fl_operand in[2] = {{.tensor = x->place}, {.tensor = g}};
  fl_tensor *old = x->grad, *out;
  fl_call c = {.op = &rt->ops[old ? FLI_OP_add : FLI_OP_assign],
               .n_in = 2,
               .in = in,
               .inplace = true,
               .out = &out};
  fl_status s = fl_call_run(rt, &c);
  fl_tensor_release(g);
  if (s == FL_OK) {
    x->grad = out;
    fl_tensor_release(old);
  }
  return s;
}

/* *sum (NULL: zeros) += the gradient that node `n` has, at n's place in it. */
fl_status fli_add_part(fl_runtime *rt, fl_node *n, fl_tensor **sum) {
  fli_env env, *e = &env;
  const fl_meta *m = &n->in_meta[0];
  fl_tensor *dy = n->grads[0], *out;
  bool first = !*sum;
  fli_env_open(e, rt, n->base, n->site);
  fl_value whole =
      first ? fli_v_zeros(e, m->dtype, m->ndim, m->shape, fl_tensor_device(dy))
            : fli_given(*sum);
  fl_value part = fli_run(e, n->op->id, n->attrs, 1, &whole);
  fl_status s = e->status;
  if (s == FL_OK) {
    fl_operand in[2] = {{.tensor = part.tensor}, {.tensor = dy}};
    fl_call c = {.op = &rt->ops[first ? FLI_OP_assign : FLI_OP_add],
                 .n_in = 2,
                 .in = in,
                 .inplace = true,
                 .site = n->site,
                 .out = &out};
    s = fl_call_run(rt, &c);
  }
  if (s == FL_OK) {
    fl_tensor_release(out);
    if (first)
      *sum = fl_tensor_retain(whole.tensor);
  }
  fli_env_close(e);
  return s;
}
