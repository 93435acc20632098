/* Shape rules of the optimizer steps: they check the number of groups in xs and
 * that tensors at one position of the groups agree in shape. */
#include "env.h"

#include <limits.h>

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

static bool is_list(const fl_meta *m, int64_t n, fl_dtype d) {
  return m->ndim == 1 && m->shape[0] == n && m->dtype == d;
}

fl_status fli_shape_adam8_step(fli_infer *c) {
  const fl_meta *p = c->in[FL_IN_adam8_step_p], *g = c->in[FL_IN_adam8_step_g];
  const fl_meta *maps = c->in[FL_IN_adam8_step_maps];
  int64_t block = c->attrs->v[FL_ATTR_adam8_step_block].i;
  if (block < 1 || block > INT_MAX)
    return fli_fail(FL_EARG, "adam8_step: block must be 1 to %d, got %lld",
                    INT_MAX, (long long)block);
  for (int k = FL_IN_adam8_step_maps; k < c->n_in; k++)
    if (!c->operands[k].tensor)
      return fli_fail(FL_EARG, "adam8_step: input %d must be a tensor", k + 1);
  for (int k = 0; k < FL_IN_adam8_step_maps; k++)
    if (fl_numel(c->in[k]->ndim, c->in[k]->shape) != 1)
      return fli_fail(FL_ESHAPE,
                      "adam8_step: %s must be one number, got shape %s",
                      k == FL_IN_adam8_step_lr ? "lr" : "step",
                      fli_shape_text(c->in[k]->ndim, c->in[k]->shape));
  if (!fli_same_shape(p, g))
    return fli_fail(FL_ESHAPE, "adam8_step: p has shape %s, its gradient %s",
                    fli_shape_text(p->ndim, p->shape),
                    fli_shape_text(g->ndim, g->shape));
  if (maps->ndim != 2 || maps->shape[0] != 2 || maps->shape[1] != 256)
    return fli_fail(FL_ESHAPE, "adam8_step: maps must be (2, 256), got %s",
                    fli_shape_text(maps->ndim, maps->shape));
  int64_t n = fl_numel(p->ndim, p->shape), blocks = n / block + (n % block > 0);
  if (!is_list(c->in[FL_IN_adam8_step_mean], n, FL_U8) ||
      !is_list(c->in[FL_IN_adam8_step_square], n, FL_U8) ||
      !is_list(c->in[FL_IN_adam8_step_mean_scales], blocks, FL_F32) ||
      !is_list(c->in[FL_IN_adam8_step_square_scales], blocks, FL_F32))
    return fli_fail(FL_ESHAPE,
                    "adam8_step: of a parameter of %lld elements the moments "
                    "must be u8 of (%lld), their scales f32 of (%lld)",
                    (long long)n, (long long)n, (long long)blocks);
  return FL_OK;
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
