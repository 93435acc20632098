/* Gradients that are written into a part of another tensor: that of a view,
 * into the sum of what other parts have given, without a tensor of zeros around
 * each part; that of a leaf, into the place that it was given. */
#include "env.h"
#include "rules.h"
#include "tape.h"

/* Whether no element of the tensor is in the view twice: its row says so. */
bool fli_is_part(const fl_op *op) {
  return op->grad == grad_part;
}

fl_status fl_tensor_place_grad(fl_tensor *t, fl_tensor *flat, int64_t from) {
  fli_extra *x;
  fl_tensor *place = NULL;
  if (!t->rt || (flat && !flat->rt))
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (flat && !t->requires_grad)
    return fli_fail(FL_EAUTOGRAD, "only a leaf that requires a gradient has a "
                                  "place for it");
  if (flat &&
      (flat->rt != t->rt || fli_wants_grad(flat) || !flat->contiguous ||
       !fli_is_float(flat->meta.dtype) != !fli_is_float(t->meta.dtype) ||
       fl_tensor_device(flat) != fl_tensor_device(t) || from < 0 ||
       from > flat->numel - t->numel))
    return fli_fail(FL_ESHAPE,
                    "the place of a gradient is in a contiguous tensor on its "
                    "tensor's device, of floats for floats, which needs no "
                    "gradient itself and has room for %lld elements",
                    (long long)t->numel);
  FLI_TRY(fli_extra_of(t, &x));
  if (flat) {
    fl_meta m = t->meta;
    m.dtype = flat->meta.dtype;
    FLI_TRY(fli_tensor_view(flat, &m, t->stride, flat->offset + from, &place));
    fli_tensor_set_shape(place, &m);
    fli_tensor_own(place);
  }
  fl_tensor_release(x->place);
  x->place = place;
  return FL_OK;
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
