/* Rules of cross-entropy, and the losses that are composed of other rows. */
#include "../tensor/extra.h"
#include "fits.h"

#include <math.h>
#include <string.h>

enum { MEAN, SUM_, NONE_, BATCHMEAN };

/* --- cross-entropy --- */

/* Checks the shapes of x, target and weight, from input `first` on; lse has x's
 * shape without the classes. */
static fl_status check_scores(const fli_infer *c, int first, fl_meta *lse) {
  _Static_assert(FL_IN_FOLLOWS(cross_entropy, x, target) &&
                     FL_IN_FOLLOWS(cross_entropy, target, weight) &&
                     FL_IN_FOLLOWS(cross_entropy_backward, x, target) &&
                     FL_IN_FOLLOWS(cross_entropy_backward, target, weight),
                 "read for both rows");
  const fl_meta *x = c->in[first], *t = c->in[first + 1], *w = c->in[first + 2];
  int dim = x->ndim > 1;
  bool soft = fl_dtype_kind(t->dtype) == FL_KIND_FLOAT;
  if (x->ndim == 0)
    return fli_fail(FL_ESHAPE, "cross_entropy: scores have shape (N, C, ...) "
                               "or (C), not ()");
  lse->ndim = 0;
  for (int i = 0; i < x->ndim; i++)
    if (i != dim)
      lse->shape[lse->ndim++] = x->shape[i];
  if (x->shape[dim] == 0)
    return fli_fail(FL_ESHAPE,
                    "cross_entropy: scores of shape %s have no "
                    "class to choose",
                    fli_shape_text(x->ndim, x->shape));
  if (soft && fli_same_shape(t, lse))
    return fli_fail(FL_EDTYPE,
                    "cross_entropy: targets of shape %s are class positions "
                    "and must be i64 or i32, not %s",
                    fli_shape_text(t->ndim, t->shape), fl_dtype_name(t->dtype));
  if (!soft && fli_same_shape(t, x))
    return fli_fail(FL_EDTYPE,
                    "cross_entropy: targets of the scores' shape %s are "
                    "probabilities and must be floats, not %s (one-hot targets "
                    "of integers: target:to \"f32\")",
                    fli_shape_text(t->ndim, t->shape), fl_dtype_name(t->dtype));
  if (!fli_same_shape(t, soft ? x : lse))
    return fli_fail(FL_ESHAPE,
                    "cross_entropy: scores of shape %s take targets of shape "
                    "%s (positions) or their own (probabilities), not %s",
                    fli_shape_text(x->ndim, x->shape),
                    fli_shape_text(lse->ndim, lse->shape),
                    fli_shape_text(t->ndim, t->shape));
  if (!soft && t->dtype != FL_I64 && t->dtype != FL_I32)
    return fli_fail(FL_EDTYPE,
                    "cross_entropy: targets are class positions (i64 or i32) "
                    "or probabilities, not %s",
                    fl_dtype_name(t->dtype));
  if (w && (w->ndim != 1 || w->shape[0] != x->shape[dim]))
    return fli_fail(FL_ESHAPE,
                    "cross_entropy: weight has one number for each "
                    "of %lld classes, not shape %s",
                    (long long)x->shape[dim],
                    fli_shape_text(w->ndim, w->shape));
  if (!(c->attrs->v[FL_ATTR_cross_entropies_label_smoothing].f >= 0 &&
        c->attrs->v[FL_ATTR_cross_entropies_label_smoothing].f <= 1))
    return fli_fail(FL_EARG,
                    "cross_entropy: label_smoothing must be between "
                    "0 and 1, not %g",
                    c->attrs->v[FL_ATTR_cross_entropies_label_smoothing].f);
  return FL_OK;
}

fl_status fli_shape_cross_entropy(fli_infer *c) {
  fl_meta *lse = &c->out[FL_OUT_cross_entropy_lse];
  FLI_TRY(check_scores(c, FL_IN_cross_entropy_x, lse));
  c->out[0].ndim = c->out[FL_OUT_cross_entropy_total].ndim = 0;
  if (c->attrs->v[FL_ATTR_cross_entropy_reduction].i == NONE_) {
    c->out[0].ndim = lse->ndim;
    memcpy(c->out[0].shape, lse->shape, sizeof lse->shape);
  }
  return FL_OK;
}

fl_status fli_shape_cross_entropy_backward(fli_infer *c) {
  fl_meta lse;
  FLI_TRY(check_scores(c, FL_IN_cross_entropy_backward_x, &lse));
  FLI_TRY(
      fli_fits(c, FL_IN_cross_entropy_backward_dy,
               c->attrs->v[FL_ATTR_cross_entropy_backward_reduction].i == NONE_
                   ? lse.ndim
                   : 0,
               lse.shape));
  FLI_TRY(fli_fits(c, FL_IN_cross_entropy_backward_lse, lse.ndim, lse.shape));
  FLI_TRY(fli_fits(c, FL_IN_cross_entropy_backward_total, 0, NULL));
  c->out[0].ndim = c->in[FL_IN_cross_entropy_backward_x]->ndim;
  memcpy(c->out[0].shape, c->in[FL_IN_cross_entropy_backward_x]->shape,
         sizeof c->in[FL_IN_cross_entropy_backward_x]->shape);
  return FL_OK;
}

fl_status fli_shape_cross_entropy_total(fli_infer *c) {
  const fl_meta *t = c->in[FL_IN_cross_entropy_total_target],
                *w = c->in[FL_IN_cross_entropy_total_weight];
  if (fl_dtype_kind(t->dtype) != FL_KIND_FLOAT && t->dtype != FL_I64 &&
      t->dtype != FL_I32)
    return fli_fail(FL_EDTYPE,
                    "cross_entropy_total: targets are class positions (i64 or "
                    "i32) or probabilities, not %s",
                    fl_dtype_name(t->dtype));
  if (fl_dtype_kind(c->out[0].dtype) != FL_KIND_FLOAT)
    return fli_fail(FL_EDTYPE,
                    "cross_entropy_total: dtype must be a float, "
                    "not %s",
                    fl_dtype_name(c->out[0].dtype));
  if (w && w->ndim != 1)
    return fli_fail(FL_ESHAPE,
                    "cross_entropy_total: weight has one number for each "
                    "class, not shape %s",
                    fli_shape_text(w->ndim, w->shape));
  c->out[0].ndim = 0;
  return FL_OK;
}

/* A number for each class, so that it broadcasts against x. */
static fl_value per_class(fli_grad *g, fl_value w, const fl_meta *x, int dim) {
  fl_meta m = {.ndim = x->ndim - dim};
  for (int i = 0; i < m.ndim; i++)
    m.shape[i] = i ? 1 : x->shape[dim];
  return RESHAPE(w, &m);
}

/* What the loss weighs -log softmax(x) with: the target as probabilities of x's
 * shape, with smoothing and class weights; nothing of it for ignored samples.
 */
static fl_value soft_targets(fli_grad *g, fl_value x, fl_value t, fl_value w,
                             double smoothing) {
  const fl_meta *m = fli_meta(x);
  int dim = m->ndim > 1;
  double even = smoothing / (double)m->shape[dim];
  fl_value soft = t, valid = fli_none();
  if (fl_dtype_kind(fli_meta(t)->dtype) != FL_KIND_FLOAT) {
    int64_t ignore = g->attrs->v[FL_ATTR_cross_entropy_ignore_index].i;
    valid = RUN(ne, t, fli_integer(ignore));
    fl_value safe = RUN(where, valid, t, fli_integer(g->e.base));
    fl_attrs a = fli_attrs(&g->e, FLI_OP_one_hot);
    a.v[FL_ATTR_one_hot_classes].i = m->shape[dim];
    a.v[FL_ATTR_one_hot_dtype].i = m->dtype;
    soft = RUN_A(one_hot, &a, safe); /* classes last: bring them to dim */
    int64_t order[FL_MAX_DIMS];
    for (int i = 0; i < m->ndim; i++)
      order[i] = i < dim ? i : i == dim ? m->ndim - 1 : i - 1;
    soft = fli_v_permute(&g->e, soft, order);
    valid = fli_v_unsqueeze(&g->e, valid, dim);
  }
  if (smoothing != 0)
    soft = ADD(MUL(soft, NUM(1 - smoothing)), NUM(even));
  if (w.tensor)
    soft = MUL(soft, per_class(g, w, m, dim));
  return valid.tensor ? RUN(where, valid, soft, NUM(0)) : soft;
}

static fl_value sum_per_class(fli_grad *g, fl_value x, int dim) {
  for (int d = g->in_meta[FL_IN_cross_entropy_x].ndim; d-- > 0;)
    if (d != dim)
      x = SUM1(x, d, false);
  return x;
}

/* The number of targets of each class. */
static fl_value per_class_count(fli_grad *g) {
  return sum_per_class(g,
                       soft_targets(g, g->in[FL_IN_cross_entropy_x],
                                    g->in[FL_IN_cross_entropy_target],
                                    fli_none(), 0),
                       g->in_meta[FL_IN_cross_entropy_x].ndim > 1);
}

/* The gradient of class weights: a class's part of the loss divided by its
 * weight. The mean over positions also divides by the sum of their weights,
 * `total`. */
static fl_value weight_slope(fli_grad *g, fl_value scale, fl_value logs,
                             fl_value total) {
  fl_value a = soft_targets(
      g, g->in[FL_IN_cross_entropy_x], g->in[FL_IN_cross_entropy_target],
      fli_none(), g->attrs->v[FL_ATTR_cross_entropy_label_smoothing].f);
  fl_value d = sum_per_class(g, MUL(scale, NEG(MUL(a, logs))),
                             g->in_meta[FL_IN_cross_entropy_x].ndim > 1);
  if (!total.tensor)
    return d;
  fl_value loss =
      SUM(MUL(g->in[FL_IN_cross_entropy_weight], d), 0, NULL, false);
  return SUB(d, MUL(per_class_count(g), DIV(loss, total)));
}

/* The divisor of the mean; 1 if the sum of weights is 0: then the gradient is
 * 0, as in the kernel, although the loss is 0 / 0. */
static fl_value divisor(fli_grad *g, fl_value total) {
  return RUN(where, RUN(eq, total, NUM(0)), NUM(1), total);
}

void fli_grad_cross_entropy(fli_grad *g) {
  fl_value x = g->in[FL_IN_cross_entropy_x],
           t = g->in[FL_IN_cross_entropy_target],
           w = g->in[FL_IN_cross_entropy_weight], dy = g->dy[0];
  const fl_meta *m = fli_meta(x);
  int dim = m->ndim > 1;
  bool soft = fl_dtype_kind(g->in_meta[FL_IN_cross_entropy_target].dtype) ==
              FL_KIND_FLOAT;
  if (fli_nothing(dy)) /* the other results are constants of the loss */
    return;
  if (g->need[FL_IN_cross_entropy_x] && !g->create) {
    g->dx[FL_IN_cross_entropy_x] = RUN_A(
        cross_entropy_backward,
        ATTRS_FOR(cross_entropy_backward, cross_entropy),
        IN(cross_entropy_backward, dy) = dy, IN(cross_entropy_backward, x) = x,
        IN(cross_entropy_backward, target) = t,
        IN(cross_entropy_backward, weight) = w,
        IN(cross_entropy_backward, lse) = g->y[FL_OUT_cross_entropy_lse],
        IN(cross_entropy_backward, total) = g->y[FL_OUT_cross_entropy_total]);
    if (!g->need[FL_IN_cross_entropy_target] &&
        !g->need[FL_IN_cross_entropy_weight])
      return;
  }
  fl_value scale = dy, total = fli_none(); /* of weights, if there are any */
  if (g->attrs->v[FL_ATTR_cross_entropy_reduction].i == MEAN) {
    if (w.tensor && !soft)
      total = g->create ? SUM(MUL(w, per_class_count(g)), 0, NULL, false)
                        : g->y[FL_OUT_cross_entropy_total];
    fl_value by =
        divisor(g, total.tensor ? total : g->y[FL_OUT_cross_entropy_total]);
    scale = DIV(dy, by);
    total = total.tensor ? by : total;
  }
  if (g->attrs->v[FL_ATTR_cross_entropy_reduction].i == NONE_)
    scale = fli_v_unsqueeze(&g->e, dy, dim);
  fl_attrs along = fli_attrs(&g->e, FLI_OP_softmax);
  along.v[FL_ATTR_softmax_dim].i = dim;
  if (g->need[FL_IN_cross_entropy_x] && g->create) {
    fl_value a = soft_targets(
        g, x, t, w, g->attrs->v[FL_ATTR_cross_entropy_label_smoothing].f);
    fl_value p = RUN_A(softmax, &along, x);
    g->dx[FL_IN_cross_entropy_x] =
        MUL(scale, SUB(MUL(SUM1(a, dim, true), p), a));
  }
  if (!(g->need[FL_IN_cross_entropy_target] && soft) &&
      !g->need[FL_IN_cross_entropy_weight])
    return;
  fl_value logs = RUN_A(log_softmax, &along, x);
  if (g->need[FL_IN_cross_entropy_weight])
    g->dx[FL_IN_cross_entropy_weight] = weight_slope(g, scale, logs, total);
  if (g->need[FL_IN_cross_entropy_target] && soft) {
    fl_value d = MUL(scale, NEG(logs));
    d = MUL(d, NUM(1 - g->attrs->v[FL_ATTR_cross_entropy_label_smoothing].f));
    g->dx[FL_IN_cross_entropy_target] =
        w.tensor ? MUL(d, per_class(g, w, m, dim)) : d;
  }
}

/* --- composed --- */

static void reduce(fli_composing *g, fl_value loss, int64_t reduction) {
  if (reduction == MEAN)
    loss = RUN(mean, loss);
  else if (reduction != NONE_)
    loss = SUM(loss, 0, NULL, false);
  g->out[0] = loss;
}

static bool same_shapes(fli_composing *g) {
  const fl_meta *x = fli_meta(g->in[FL_IN_losses_x]),
                *t = fli_meta(g->in[FL_IN_losses_target]);
  if (g->in[FL_IN_losses_x].tensor && g->in[FL_IN_losses_target].tensor &&
      !fli_same_shape(x, t)) {
    fli_env_fail(&g->e, FL_ESHAPE, "%s: x has shape %s, target %s",
                 g->op->info.name, fli_shape_text(x->ndim, x->shape),
                 fli_shape_text(t->ndim, t->shape));
    return false;
  }
  return true;
}

/* Labels checked to be below `classes`: they are looked up in 0, 1, ..., since
 * gather would take negative labels as positions from the end. */
static fl_value class_labels(fli_composing *g, fl_value t, int64_t classes) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = (double)g->e.base;
  a.v[FL_ATTR_arange_stop].f = (double)(g->e.base + classes);
  a.v[FL_ATTR_arange_dtype].i = FL_I64;
  g->e.device = fl_tensor_device(t.tensor);
  fl_value table = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  table = fli_v_unsqueeze(&g->e, table, 1);
  if (g->e.status != FL_OK)
    return fli_none();
  return RESHAPE(RUN(embedding, table, t), fli_meta(t));
}

/* Whether t has x's shape without the dim of the classes. */
static bool labels_fit(const fl_meta *x, const fl_meta *t, int dim) {
  if (x->ndim == 0 || t->ndim != x->ndim - 1)
    return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->shape[d] != x->shape[d + (d >= dim)])
      return false;
  return true;
}

/* attrs: ignore_index, reduction */
void fli_compose_nll_loss(fli_composing *g) {
  fl_value x = g->in[FL_IN_nll_loss_x], t = g->in[FL_IN_nll_loss_target],
           w = g->in[FL_IN_nll_loss_weight];
  const fl_meta *m = fli_meta(x);
  int dim = m->ndim > 1;
  int64_t reduction = g->attrs->v[FL_ATTR_nll_loss_reduction].i;
  if (!x.tensor || !t.tensor || !labels_fit(m, fli_meta(t), dim)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "nll_loss: log-probabilities of shape (N, C, ...) take "
                 "targets of shape (N, ...), got %s and %s",
                 fli_shape_text(m->ndim, m->shape),
                 fli_shape_text(fli_meta(t)->ndim, fli_meta(t)->shape));
    return;
  }
  const fl_meta *of = w.tensor ? fli_meta(w) : NULL;
  if (of && (of->ndim != 1 || of->shape[0] != m->shape[dim])) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "nll_loss: weight has one number for each of %lld classes, "
                 "not shape %s",
                 (long long)m->shape[dim], fli_shape_text(of->ndim, of->shape));
    return;
  }
  fl_value valid =
      RUN(ne, t, fli_integer(g->attrs->v[FL_ATTR_nll_loss_ignore_index].i));
  fl_value safe = RUN(where, valid, t, fli_integer(g->e.base));
  safe = class_labels(g, safe, m->shape[dim]);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_gather);
  a.v[FL_ATTR_gather_dim].i = dim;
  fl_value at = fli_v_unsqueeze(&g->e, safe, dim);
  fl_value picked = RUN_A(gather, &a, x, at);
  fl_value loss = NEG(RESHAPE(picked, fli_meta(t)));
  fl_value weight = CAST(valid, m->dtype);
  if (w.tensor) {
    int64_t n = fl_numel(fli_meta(t)->ndim, fli_meta(t)->shape);
    fl_value flat = fli_v_reshape(&g->e, safe, 1, &n);
    fl_attrs sel = fli_attrs(&g->e, FLI_OP_index_select);
    sel.v[FL_ATTR_index_select_dim].i = 0;
    fl_value each = RUN_A(index_select, &sel, w, flat);
    weight = MUL(weight, RESHAPE(each, fli_meta(t)));
  }
  loss = RUN(where, valid, MUL(loss, weight), NUM(0));
  if (reduction == MEAN)
    g->out[0] = DIV(SUM(loss, 0, NULL, false), SUM(weight, 0, NULL, false));
  else
    reduce(g, loss, reduction);
}

void fli_compose_mse_loss(fli_composing *g) {
  if (same_shapes(g))
    reduce(
        g,
        RUN(square, SUB(g->in[FL_IN_mse_loss_x], g->in[FL_IN_mse_loss_target])),
        g->attrs->v[FL_ATTR_mse_loss_reduction].i);
}

void fli_compose_l1_loss(fli_composing *g) {
  if (same_shapes(g))
    reduce(g,
           RUN(abs, SUB(g->in[FL_IN_l1_loss_x], g->in[FL_IN_l1_loss_target])),
           g->attrs->v[FL_ATTR_l1_loss_reduction].i);
}

/* d^2 / 2 inside the bend, bend (|d| - bend / 2) outside, divided by `unit`. */
static void bent(fli_composing *g, double bend, double unit) {
  if (!same_shapes(g))
    return;
  fl_value d = SUB(g->in[FL_IN_bent_losses_x], g->in[FL_IN_bent_losses_target]);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_huber);
  a.v[FL_ATTR_huber_delta].f = bend;
  if (bend <= 0)
    reduce(g, RUN(abs, d), g->attrs->v[FL_ATTR_bent_losses_reduction].i);
  else
    reduce(g, RUN_A(huber, &a, d),
           g->attrs->v[FL_ATTR_bent_losses_reduction].i);
  if (bend > 0 && unit != 1)
    g->out[0] = DIV(g->out[0], NUM(unit));
}

void fli_compose_smooth_l1_loss(fli_composing *g) {
  bent(g, g->attrs->v[FL_ATTR_smooth_l1_loss_beta].f,
       g->attrs->v[FL_ATTR_smooth_l1_loss_beta].f);
}

void fli_compose_huber_loss(fli_composing *g) {
  if (!(g->attrs->v[FL_ATTR_huber_loss_delta].f > 0)) {
    fli_env_fail(&g->e, FL_EARG, "huber_loss: delta must be above 0, not %g",
                 g->attrs->v[FL_ATTR_huber_loss_delta].f);
    return;
  }
  bent(g, g->attrs->v[FL_ATTR_huber_loss_delta].f, 1);
}

/* log(x), clamped to -100 from below, where the gradient is 0. */
static fl_value held_log(fli_composing *g, fl_value x) {
  fl_value some = RUN(gt, x, NUM(exp(-100)));
  return RUN(where, some, LOG(RUN(where, some, x, NUM(1))), NUM(-100));
}

void fli_grad_bce_input(fli_grad *g) {
  g->dx[0] = g->dy[0];
}

void fli_compose_bce_loss(fli_composing *g) {
  fl_value x = g->in[FL_IN_bce_loss_x], t = g->in[FL_IN_bce_loss_target];
  if (!same_shapes(g))
    return;
  /* Logits passed by mistake would give losses below 0. The row refuses them
   * without waiting for the device; expressions have elementwise rows alone. */
  if (!g->e.graph)
    x = RUN(bce_input, x);
  fl_value yes = MUL(t, held_log(g, x));
  fl_value no = MUL(SUB(NUM(1), t), held_log(g, SUB(NUM(1), x)));
  fl_value loss = NEG(ADD(yes, no));
  if (g->in[FL_IN_bce_loss_weight].tensor)
    loss = MUL(loss, g->in[FL_IN_bce_loss_weight]);
  reduce(g, loss, g->attrs->v[FL_ATTR_bce_loss_reduction].i);
}

/* (1 - t) x + (1 + (p - 1) t) softplus(-x), p the weight of positives */
void fli_compose_bce_with_logits(fli_composing *g) {
  fl_value x = g->in[FL_IN_bce_with_logits_x],
           t = g->in[FL_IN_bce_with_logits_target],
           p = g->in[FL_IN_bce_with_logits_pos_weight];
  if (!same_shapes(g))
    return;
  fl_value away = NEG(RUN(logsigmoid, x));
  if (p.tensor)
    away = MUL(away, ADD(MUL(SUB(p, NUM(1)), t), NUM(1)));
  fl_value loss = ADD(MUL(SUB(NUM(1), t), x), away);
  if (g->in[FL_IN_bce_with_logits_weight].tensor)
    loss = MUL(loss, g->in[FL_IN_bce_with_logits_weight]);
  reduce(g, loss, g->attrs->v[FL_ATTR_bce_with_logits_reduction].i);
}

/* attrs: log_target, reduction */
void fli_compose_kl_div(fli_composing *g) {
  fl_value x = g->in[FL_IN_kl_div_x], t = g->in[FL_IN_kl_div_target], loss,
           zero = NUM(0);
  if (!same_shapes(g))
    return;
  if (g->attrs->v[FL_ATTR_kl_div_log_target].i)
    loss = MUL(EXP(t), SUB(t, x));
  else { /* 0 log 0 is 0 */
    fl_value some = RUN(gt, t, zero);
    fl_value safe = RUN(where, some, t, NUM(1));
    loss = SUB(MUL(t, LOG(safe)), MUL(t, x));
  }
  if (g->attrs->v[FL_ATTR_kl_div_reduction].i == BATCHMEAN) {
    const fl_meta *m = fli_meta(x);
    double n = m->ndim ? (double)m->shape[0] : 1;
    g->out[0] = DIV(SUM(loss, 0, NULL, false), NUM(n));
  } else
    reduce(g, loss, g->attrs->v[FL_ATTR_kl_div_reduction].i);
}

/* 16-bit floats as f32: f16 cannot hold the squares, neither large nor small
 * ones. */
static fl_value wide(fli_composing *g, fl_value x) {
  fl_dtype d = x.tensor ? fli_meta(x)->dtype : FL_F64;
  return d == FL_F16 || d == FL_BF16 ? CAST(x, FL_F32) : x;
}

/* x times a power of 2 for each vector along dim, so that its largest element
 * is near 1 and products neither overflow nor underflow. The power, in *scale,
 * goes through integers, so it is a constant to gradients. */
static fl_value scaled(fli_composing *g, fl_value x, int64_t dim,
                       fl_value *scale) {
  fl_attrs top = fli_attrs(&g->e, FLI_OP_norm);
  top.v[FL_ATTR_norm_p].f = INFINITY;
  fli_set_list(&g->e, &top, FL_ATTR_norm_dims, 1, &dim);
  fl_value most = RUN_A(norm, &top, x);
  const fl_meta *m = fli_meta(x);
  bool f64 = x.tensor && m->dtype == FL_F64;
  fl_attrs range = fli_attrs(&g->e, FLI_OP_clamp);
  range.v[FL_ATTR_clamp_min].f = f64 ? -1000 : -120;
  range.v[FL_ATTR_clamp_max].f = f64 ? 1000 : 120;
  fl_value power = RUN_A(clamp, &range, RUN(floor, RUN(log2, most)));
  power = CAST(CAST(power, FL_I64), f64 ? FL_F64 : FL_F32);
  *scale = RUN(exp2, NEG(power));
  if (g->e.status != FL_OK)
    return fli_none();
  fl_meta kept = *m;
  if (kept.ndim)
    kept.shape[dim] = 1;
  return MUL(x, RESHAPE(*scale, &kept));
}

static fl_value norm_along(fli_composing *g, fl_value x, int64_t dim) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  fli_set_list(&g->e, &a, FL_ATTR_norm_dims, 1, &dim);
  return RUN_A(norm, &a, x);
}

/* attrs: dim, eps */
void fli_compose_cosine_similarity(fli_composing *g) {
  fl_value a = wide(g, g->in[FL_IN_cosine_similarity_a]),
           b = wide(g, g->in[FL_IN_cosine_similarity_b]), by_a, by_b;
  int64_t dim = g->attrs->v[FL_ATTR_cosine_similarity_dim].i;
  double eps = g->attrs->v[FL_ATTR_cosine_similarity_eps].f;
  a = scaled(g, a, dim, &by_a);
  b = scaled(g, b, dim, &by_b);
  fl_value na = RUN(maximum, norm_along(g, a, dim), MUL(by_a, NUM(eps)));
  fl_value nb = RUN(maximum, norm_along(g, b, dim), MUL(by_b, NUM(eps)));
  fl_value y = DIV(DIV(SUM1(MUL(a, b), dim, false), na), nb);
  fl_dtype da = fli_meta(g->in[FL_IN_cosine_similarity_a])->dtype,
           db = fli_meta(g->in[FL_IN_cosine_similarity_b])->dtype;
  g->out[0] = CAST(y, fli_promote(da, db));
}

/* attrs: p, dim, eps */
void fli_compose_normalize(fli_composing *g) {
  fl_value x = wide(g, g->in[0]);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  a.v[FL_ATTR_norm_p].f = g->attrs->v[FL_ATTR_normalize_p].f;
  fli_set_list(&g->e, &a, FL_ATTR_norm_dims, 1,
               &g->attrs->v[FL_ATTR_normalize_dim].i);
  a.v[FL_ATTR_norm_keepdim].i = true;
  fl_value n = RUN_A(norm, &a, x);
  fl_attrs floor = fli_attrs(&g->e, FLI_OP_clamp);
  floor.v[FL_ATTR_clamp_min].f = g->attrs->v[FL_ATTR_normalize_eps].f;
  g->out[0] = CAST(DIV(x, RUN_A(clamp, &floor, n)), fli_meta(g->in[0])->dtype);
}
