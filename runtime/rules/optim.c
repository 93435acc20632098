/* Shape rules of the optimizer steps: they check the number of groups in xs and
 * that tensors at one position of the groups agree in shape. */
#include "env.h"

enum { FREE = -2, NO_GRADIENTS = -1 };

/* With `keep` groups of state; FREE: as many as `moments` says, 0 or 1. */
static fl_status check_step(fli_infer *c, int keep) {
  const char *name = c->op->info.name;
  int64_t moments = c->attrs->v[FL_ATTR_step_moments].i;
  int from = c->op->info.n_in, n = c->n_in - from;
  if (keep == FREE ? moments < 0 || moments > 1 : moments != keep)
    return fli_fail(FL_EARG,
                    "%s: moments is %lld; with these settings it must "
                    "be %s%d",
                    name, (long long)moments, keep == FREE ? "0 or " : "",
                    keep == FREE ? 1 : keep);
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

/* Momentum needs its buffer. */
fl_status fli_shape_sgd_step(fli_infer *c) {
  return check_step(c,
                    c->attrs->v[FL_ATTR_sgd_step_momentum].f != 0 ? 1 : FREE);
}

fl_status fli_shape_adam_step(fli_infer *c) {
  return check_step(c, c->attrs->v[FL_ATTR_adam_step_amsgrad].i ? 3 : 2);
}

fl_status fli_shape_rmsprop_step(fli_infer *c) {
  const fl_attr *a = c->attrs->v;
  return check_step(c, 1 + (a[FL_ATTR_rmsprop_step_momentum].f != 0) +
                           (a[FL_ATTR_rmsprop_step_centered].i != 0));
}

fl_status fli_shape_adagrad_step(fli_infer *c) {
  return check_step(c, 1);
}

fl_status fli_shape_lion_step(fli_infer *c) {
  return check_step(c, 1);
}

fl_status fli_shape_lerp_step(fli_infer *c) {
  return check_step(c, 0);
}

fl_status fli_shape_assign_step(fli_infer *c) {
  return check_step(c, 0);
}

fl_status fli_shape_scale_step(fli_infer *c) {
  return check_step(c, NO_GRADIENTS);
}

fl_status fli_shape_global_norm(fli_infer *c) {
  double p = c->attrs->v[FL_ATTR_global_norm_p].f;
  if (!(p >= 0))
    return fli_fail(FL_EARG, "global_norm: p must be at least 0, got %g", p);
  for (int i = 0; i < c->n_in; i++)
    if (!c->operands[i].tensor)
      return fli_fail(FL_EARG, "global_norm: tensor %d is missing", i + 1);
  c->out[0].ndim = 0;
  return FL_OK;
}
