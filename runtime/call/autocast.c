/* Autocast: while it is on, operators of class LOW take their floats in the
 * low type, those of class WIDE in f32; the others as they are given. Those of
 * class GIVES round what they give to the low type themselves. Casts are
 * ordinary calls, so gradients arrive in the type of what was cast. A parameter
 * is cast once: the copy is kept until the mode ends, backward begins, or the
 * parameter changes. One of meta mode has no values and is not kept. */
#include "../tensor/extra.h"
#include "call.h"

#define SLOTS 1024 /* of parameters that were cast, by their ids */
#define FEW   8

struct fli_cast {
  uint64_t id;
  uint32_t version;
  fl_dtype dtype;
  fl_tensor *copy; /* NULL: an empty slot */
};

void fli_autocast_forget(fl_runtime *rt) {
  if (!rt->casts)
    return;
  for (int i = 0; i < SLOTS; i++)
    fl_tensor_release(rt->casts[i].copy);
  fli_mfree(rt->casts);
  rt->casts = NULL;
}

fl_dtype fl_autocast(fl_runtime *rt, fl_dtype low) {
  FLI_NEED_OR(rt, "rt", FL_NODTYPE);
  fl_dtype was = rt->autocast;
  if (low != was)
    fli_autocast_forget(rt);
  rt->autocast = low;
  fli_mode_set(rt, FLI_MODE_AUTOCAST, low != FL_NODTYPE);
  return was;
}

fl_dtype fl_autocast_now(const fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", FL_NODTYPE);
  return rt->autocast;
}

static fl_status autocast_cast(fl_runtime *rt, const fl_call *c, fl_tensor *t,
                               fl_dtype d, fl_tensor **out) {
  FLI_TRY(fli_tensor_copy(rt, t, d, c->site, out));
  fli_loan_pass(t, *out);
  return FL_OK;
}

/* A new reference to t as d. */
static fl_status cast_of(fl_runtime *rt, const fl_call *c, fl_tensor *t,
                         fl_dtype d, fl_tensor **out) {
  bool parameter = t->requires_grad && !t->node && !t->is_view && t->storage &&
                   rt->grad_enabled && !rt->meta && !t->storage->loan;
  if (!parameter)
    return autocast_cast(rt, c, t, d, out);
  if (!rt->casts) {
    rt->casts = fli_malloc(rt, SLOTS * sizeof *rt->casts);
    if (!rt->casts)
      return FL_ENOMEM;
    for (int i = 0; i < SLOTS; i++)
      rt->casts[i].copy = NULL;
  }
  struct fli_cast *slot = &rt->casts[t->id % SLOTS];
  if (!slot->copy || slot->id != t->id || slot->dtype != d ||
      slot->version != t->storage->version) {
    fl_tensor *made;
    FLI_TRY(autocast_cast(rt, c, t, d, &made));
    fl_tensor_release(slot->copy);
    *slot = (struct fli_cast){t->id, t->storage->version, d, made};
  }
  *out = fl_tensor_retain(slot->copy);
  return FL_OK;
}

static bool wants_cast(const fl_tensor *t, fl_dtype to) {
  fl_dtype d = t ? t->meta.dtype : FL_NODTYPE;
  return d != to && (d == FL_F32 || d == FL_F16 || d == FL_BF16);
}

/* A call of class GIVES. A dtype that was asked for stays. */
static fl_status run_giving(fl_runtime *rt, const fl_call *c) {
  const fl_op_info *info = &c->op->info;
  fl_call inner = *c;
  fl_attrs attrs;
  if (c->n_in == 0 || !wants_cast(c->in[0].tensor, rt->autocast))
    return fli_call_below(rt, c, FLI_MODE_AUTOCAST);
  fl_attrs_copy(&attrs, c->attrs ? c->attrs : &c->op->defaults);
  for (int i = 0; i < info->n_params; i++) {
    const fl_param *p = &info->params[i];
    if (p->kind == FL_P_DTYPE && attrs.v[p->slot].i == FL_ATTR_NONE)
      attrs.v[p->slot].i = rt->autocast;
  }
  inner.attrs = &attrs;
  return fli_call_below(rt, &inner, FLI_MODE_AUTOCAST);
}

static fl_status run_cast(fl_runtime *rt, const fl_call *c) {
  fl_dtype to = c->op->cast == FLI_CAST_LOW ? rt->autocast : FL_F32;
  fl_operand few[FEW], *in = few;
  fl_status s = FL_OK;
  int n = 0;
  if (c->n_in > FEW && !(in = fli_malloc(rt, (size_t)c->n_in * sizeof *in)))
    return FL_ENOMEM;
  for (; n < c->n_in && s == FL_OK; n++) {
    in[n] = c->in[n];
    if (!in[n].tensor)
      continue;
    if (!wants_cast(in[n].tensor, to))
      fl_tensor_retain(in[n].tensor);
    else if ((s = cast_of(rt, c, c->in[n].tensor, to, &in[n].tensor)))
      in[n].tensor = NULL;
  }
  fl_call inner = *c;
  inner.in = in;
  if (s == FL_OK)
    s = fli_call_below(rt, &inner, FLI_MODE_AUTOCAST);
  while (n > 0)
    fl_tensor_release(in[--n].tensor);
  if (in != few)
    fli_mfree(in);
  return s;
}

bool fli_mode_autocast(fl_runtime *rt, const fl_call *c, fl_status *status) {
  if (c->inplace || c->op->cast < FLI_CAST_LOW)
    return false;
  *status = c->op->cast == FLI_CAST_GIVES ? run_giving(rt, c) : run_cast(rt, c);
  return true;
}
