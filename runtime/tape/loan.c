/* Loans: memory that holds tensors only while forward needs them, such as the
 * parameters of a sharded model. Of tensors in it, and of their casts by
 * autocast, the tape saves marks without memory: the backward pass asks the
 * host for the values again, in the dtype that was used. */
#include "tape.h"

#include <string.h>

fl_status fl_tensor_lend(fl_tensor *flat, int64_t key) {
  FLI_NEED(flat, "flat");
  if (!flat->rt || !flat->storage)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(flat->rt));
  if (!flat->contiguous || flat->offset || flat->storage->loan)
    return fli_fail(FL_EAUTOGRAD,
                    "what is lent is a contiguous tensor from its "
                    "memory's start on, once");
  struct fli_loan *loan = fli_small_new(flat->rt, sizeof *loan);
  if (!loan)
    return fli_fail(FL_ENOMEM, "out of memory: a loan");
  *loan = (struct fli_loan){1, key};
  flat->storage->loan = loan;
  flat->storage->loan_at = 0;
  return FL_OK;
}

/* What t is a result of, for one that stands for it. */
static fl_status inherit(fl_tensor *t, fl_tensor *from) {
  fl_node *n;
  FLI_TRY(fli_node_of(from, &n));
  if (n) {
    n->rc++;
    t->node = n;
    t->node_out = from->node_out;
  } else if (from->requires_grad) {
    fli_extra *x;
    FLI_TRY(fli_extra_of(t, &x));
    t->requires_grad = true;
    x->stand = fl_tensor_retain(fli_stand_in(from));
  }
  return FL_OK;
}

fl_status fli_loan_mark(fl_tensor *t, fl_tensor **out) {
  fl_tensor *mark;
  fli_extra *x;
  FLI_TRY(fli_tensor_header(t->rt, &mark));
  fli_tensor_set_shape(mark, &t->meta);
  memcpy(mark->stride, t->stride, sizeof t->stride);
  mark->contiguous = t->contiguous;
  mark->offset = t->offset + t->storage->loan_at;
  fl_status s = fli_extra_of(mark, &x);
  if (s == FL_OK) {
    x->loan = t->storage->loan;
    x->loan->rc++;
    s = inherit(mark, t);
  }
  if (s)
    fl_tensor_release(mark);
  else
    *out = mark;
  return s;
}

fl_status fli_loan_fetch(fl_runtime *rt, fl_tensor *mark, fl_tensor **out) {
  fl_tensor *flat = NULL;
  if (!rt->tape_host.lent)
    return fli_fail(FL_EAUTOGRAD, "who lent a tensor is gone");
  FLI_TRY(rt->tape_host.lent(rt->tape_host.context, mark->extra->loan->key,
                             mark->meta.dtype, &flat));
  int64_t last = mark->offset;
  for (int i = 0; i < mark->meta.ndim && mark->numel; i++)
    last += (mark->meta.shape[i] - 1) * mark->stride[i];
  fl_status s;
  if (flat->meta.dtype != mark->meta.dtype || !flat->contiguous ||
      (mark->numel && last >= flat->numel))
    s = fli_fail(FL_EAUTOGRAD,
                 "what was lent has come back as %s of %lld "
                 "elements",
                 fl_dtype_name(flat->meta.dtype), (long long)flat->numel);
  else
    s = fli_tensor_view(flat, &mark->meta, mark->stride,
                        flat->offset + mark->offset, out);
  if (s == FL_OK) {
    fli_tensor_own(*out);
    s = inherit(*out, mark);
    if (s)
      fl_tensor_release(*out);
  }
  fl_tensor_release(flat);
  return s;
}

fl_status fl_tensor_stand_in(fl_tensor *t, fl_tensor *leaf) {
  FLI_NEED(t, "t");
  FLI_NEED(leaf, "leaf");
  fli_extra *x;
  if (!t->rt || !leaf->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (leaf->rt != t->rt || !leaf->requires_grad || t == leaf ||
      fli_wants_grad(t) || !fli_same_shape(&t->meta, &leaf->meta))
    return fli_fail(FL_EAUTOGRAD, "the stand-in of a tensor without history is "
                                  "a leaf of its shape");
  FLI_TRY(fli_extra_of(t, &x));
  FLI_TRY(fl_tensor_require_grad(t, true));
  x->stand = fl_tensor_retain(leaf);
  return FL_OK;
}

bool fl_tensor_held(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", false);
  return t->rc > t->handles;
}
