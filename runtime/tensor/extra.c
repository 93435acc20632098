/* See extra.h. */
#include "extra.h"

#include <string.h>

void fli_hooks_drop(fl_runtime *rt, fli_hook **list) {
  while (*list) {
    fli_hook *h = *list;
    *list = h->next;
    if (!h->keep && !h->dropped && rt->tape_host.forget)
      rt->tape_host.forget(rt->tape_host.context, h->key);
    fli_mfree(h);
  }
}

fl_status fli_extra_of(fl_tensor *t, fli_extra **x) {
  if (!t->extra) {
    t->extra = fli_small_new(t->rt, sizeof *t->extra);
    if (!t->extra)
      return FL_ENOMEM;
    memset(t->extra, 0, sizeof *t->extra);
    t->extra->capture = -1;
  }
  *x = t->extra;
  return FL_OK;
}

/* --- loans --- */

static void loan_release(fl_runtime *rt, struct fli_loan *loan) {
  if (--loan->rc)
    return;
  if (rt->tape_host.forget)
    rt->tape_host.forget(rt->tape_host.context, loan->key);
  fli_small_free(rt, loan, sizeof *loan);
}

/* The last tensor leaves the storage. */
void fli_loan_leave(fl_storage *s) {
  loan_release(s->rt, s->loan);
  s->loan = NULL;
}

/* `to`, new, is what `from` is, element by element, in another dtype. */
void fli_loan_pass(const fl_tensor *from, fl_tensor *to) {
  const fl_storage *s = from->storage;
  if (!s || !s->loan || !from->contiguous || !to->storage || to->storage->loan)
    return;
  s->loan->rc++;
  to->storage->loan = s->loan;
  to->storage->loan_at = s->loan_at + from->offset - to->offset;
}

/* --- vmap --- */

fl_status fli_extra_stand(fl_tensor *t, fl_tensor *all, uint64_t level) {
  fli_extra *x;
  FLI_TRY(fli_extra_of(t, &x));
  x->all = fl_tensor_retain(all);
  x->level = level;
  return FL_OK;
}

/* Detaches the batched tensor of t; NULL if it has none. */
fl_tensor *fli_extra_let_go(fl_tensor *t) {
  fl_tensor *all = t->extra->all;
  t->extra->all = NULL;
  if (all && !t->node)
    fl_tensor_handle(all, -t->handles);
  return all;
}

/* Without a history only the host keeps the batched tensor alive. */
void fli_extra_handle(fl_tensor *t, int change) {
  if (t->extra->all && !t->node)
    fl_tensor_handle(t->extra->all, change);
}

fl_device fli_extra_device(const fl_tensor *t) {
  return t->extra && t->extra->all ? fl_tensor_device(t->extra->all) : 0;
}

fl_status fli_no_values(const fl_tensor *t, const char *who) {
  if (t->extra && t->extra->level)
    return fli_fail(FL_EUNSUPPORTED,
                    "%sinside vmap a tensor stands for many samples: it has a "
                    "shape but no values, and none when vmap is over",
                    who);
  if (t->rt->trace)
    return fli_fail(FL_EUNSUPPORTED,
                    "%sinside flare.kernel a tensor stands for any element: it "
                    "has no value; where() chooses",
                    who);
  return fli_fail(FL_EUNSUPPORTED,
                  "%sa tensor made in meta mode has a shape but no values",
                  who);
}

fl_status fli_needs_values(const fl_runtime *rt, const fl_tensor *x,
                           const char *op) {
  bool own = x && x->extra && x->extra->level;
  if (own || (rt->one && !(x && x->storage)))
    return fli_fail(FL_EUNSUPPORTED,
                    "%s: the size of the result depends on values, which "
                    "inside vmap are those of many samples; use a mask of a "
                    "fixed size, or call it outside",
                    op);
  if ((rt->meta && !rt->one) || (x && !x->storage))
    return fli_fail(FL_EUNSUPPORTED,
                    "%s: the size of the result depends on values, which there "
                    "are none of in meta mode",
                    op);
  return FL_OK;
}

/* An alias for the tape, or a detached one, has the same batched tensor.
 * Releases `to` if it fails. */
fl_status fli_extra_alias(fl_tensor *from, fl_tensor *to, bool bare) {
  fl_tensor *all = from->extra ? from->extra->all : NULL, *cut = NULL;
  if (!all)
    return FL_OK;
  fl_status s = bare ? fl_tensor_detach(all, &cut) : FL_OK;
  if (s == FL_OK)
    s = fli_extra_stand(to, bare ? cut : all, from->extra->level);
  fl_tensor_release(cut);
  if (s)
    fl_tensor_release(to);
  return s;
}

/* --- release and queries --- */

void fli_extra_free(fl_tensor *t) {
  fli_extra *x = t->extra;
  fl_tensor_release(fli_extra_let_go(t));
  t->extra = NULL;
  if (x->retain && t->node)
    t->rt->up->node_unretain(t);
  fli_hooks_drop(t->rt, &x->hooks);
  fl_tensor_release(x->grad);
  fl_tensor_release(x->place);
  fl_tensor_release(x->sum);
  if (x->loan)
    loan_release(t->rt, x->loan);
  fl_tensor_release(x->stand);
  fli_small_free(t->rt, x, sizeof *x);
}

bool fli_wants_grad(fl_tensor *t) {
  if (t->requires_grad || t->node)
    return true;
  return t->is_view && t->seen != t->base->rebases && t->base->node;
}
