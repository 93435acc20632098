/* Rules of the optimizer steps: how many groups xs has and that tensors of one
 * place agree in shape. */
#include "env.h"

/* Groups of state that a rule keeps; -2: as many as `moments` says. */
static int optim_kept(const fli_infer *c) {
  const fl_attr *a = c->attrs->v;
  switch (c->op->id) {
  case FLI_OP_adam_step:
    return a[6].i ? 3 : 2;
  case FLI_OP_rmsprop_step:
    return 1 + (a[4].f != 0) + (a[5].i != 0);
  case FLI_OP_adagrad_step:
  case FLI_OP_lion_step:
    return 1;
  case FLI_OP_lerp_step:
    return 0;
  case FLI_OP_scale_step:
    return -1; /* nor gradients */
  default:     /* sgd keeps what it is given, but momentum needs its buffer */
    return a[1].f != 0 ? 1 : -2;
  }
}

fl_status fli_shape_step(fli_infer *c) {
  const char *name = c->op->info.name;
  int64_t moments = c->attrs->v[0].i;
  int from = c->op->info.n_in, n = c->n_in - from, keep = optim_kept(c);
  if (keep == -2 ? moments < 0 || moments > 1 : moments != keep)
    return fli_fail(FL_EARG,
                    "%s: moments is %lld; with these settings it must "
                    "be %s%d",
                    name, (long long)moments, keep == -2 ? "0 or " : "",
                    keep == -2 ? 1 : keep);
  for (int k = 0; k < from; k++)
    if (fl_numel(c->in[k]->ndim, c->in[k]->shape) != 1)
      return fli_fail(FL_ESHAPE,
                      "%s: input %d must be one number, got shape %s", name,
                      k + 1, fli_shape_text(c->in[k]->ndim, c->in[k]->shape));
  int groups = 2 + (int)moments, count = n / groups;
  if (n % groups)
    return fli_fail(FL_EARG, "%s: %d tensors are not %d groups of as many each",
                    name, n, groups);
  for (int i = 0; i < n; i++) {
    const fl_meta *p = c->in[from + i % (count ? count : 1)],
                  *x = c->in[from + i];
    if (!c->operands[from + i].tensor)
      return fli_fail(FL_EARG, "%s: tensor %d is missing", name, i + 1);
    if (!fli_same_shape(x, p))
      return fli_fail(FL_ESHAPE,
                      "%s: tensor %d of group %d has shape %s, the first "
                      "group's has %s",
                      name, i % count + 1, i / count + 1,
                      fli_shape_text(x->ndim, x->shape),
                      fli_shape_text(p->ndim, p->shape));
  }
  return FL_OK;
}

fl_status fli_shape_global_norm(fli_infer *c) {
  double p = c->attrs->v[0].f;
  if (!(p >= 0))
    return fli_fail(FL_EARG, "global_norm: p must be at least 0, got %g", p);
  for (int i = 0; i < c->n_in; i++)
    if (!c->operands[i].tensor)
      return fli_fail(FL_EARG, "global_norm: tensor %d is missing", i + 1);
  c->out[0].ndim = 0;
  return FL_OK;
}
