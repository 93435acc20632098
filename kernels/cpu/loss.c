/* Cross-entropy of scores against class positions or probabilities, and its
 * gradient. Scores are (N, C, space...) or (C); a sample is one of N x space.
 * The other losses are composed of rows (runtime/rules/loss.c); bce_input
 * checks what one of them is given. */
#include "loss.h"

#define GRAIN 8192 /* scores worth a thread's while */

enum { MEAN, SUM, NONE };

/* Class positions, checked before anything is computed. */
static fl_status set_targets(const fl_launch *l, const fl_view *v,
                             loss_job *j) {
  int64_t n = fl_view_numel(v), bad = 0;
  const int64_t *t = j->target = FL_CPU(input)(l, v, FL_I64);
  if (!t)
    return FL_ENOMEM;
  for (int64_t i = 0; i < n; i++)
    bad |= (t[i] != j->ignore) &
           ((uint64_t)(t[i] - l->base) >= (uint64_t)j->classes);
  for (int64_t i = 0; bad && i < n; i++)
    if (t[i] != j->ignore && (uint64_t)(t[i] - l->base) >= (uint64_t)j->classes)
      return fl_cpu_bad_position(l, t[i] - l->base, j->classes);
  return FL_OK;
}

/* What forward and backward both read: inputs x, target and weight. */
static fl_status set_job(const fl_launch *l, const fl_view *x,
                         const fl_view *target, const fl_view *weight,
                         loss_job *j) {
  fl_dtype type = fl_cpu_wide(x->dtype);
  int dim = x->ndim > 1;
  j->classes = x->shape[dim];
  j->outer = dim ? x->shape[0] : 1;
  j->inner = 1;
  for (int i = dim + 1; i < x->ndim; i++)
    j->inner *= x->shape[i];
  j->width = TILE;
  if (j->inner == 1 && j->classes > GRAIN / TILE)
    j->width = j->classes < GRAIN ? GRAIN / j->classes : 1;
  j->tiles = ((j->inner == 1 ? j->outer : j->inner) + j->width - 1) / j->width;
  _Static_assert(FL_ATTR_cross_entropy_ignore_index ==
                         FL_ATTR_cross_entropy_backward_ignore_index &&
                     FL_ATTR_cross_entropy_label_smoothing ==
                         FL_ATTR_cross_entropy_backward_label_smoothing,
                 "read for both rows");
  j->ignore = l->attrs->v[FL_ATTR_cross_entropy_ignore_index].i;
  j->base = l->base;
  j->smoothing = l->attrs->v[FL_ATTR_cross_entropy_label_smoothing].f;
  j->even = j->smoothing / (double)j->classes;
  if (fl_view_numel(x) == 0)
    return FL_OK;
  j->x = FL_CPU(input)(l, x, type);
  j->weight = weight->data ? FL_CPU(input)(l, weight, type) : NULL;
  if (!j->x || (weight->data && !j->weight))
    return FL_ENOMEM;
  j->weights = j->weight ? 0 : (double)j->classes;
  for (int64_t c = 0; j->weight && c < j->classes; c++)
    j->weights += type == FL_F64 ? ((const double *)j->weight)[c]
                                 : (double)((const float *)j->weight)[c];
  if (fl_dtype_kind(target->dtype) != FL_KIND_FLOAT)
    return set_targets(l, target, j);
  j->probabilities = FL_CPU(input)(l, target, type);
  return j->probabilities ? FL_OK : FL_ENOMEM;
}

static void over_samples(const fl_launch *l, fl_cpu_task f, loss_job *j) {
  int64_t tasks = (j->inner == 1 ? 1 : j->outer) * j->tiles;
  int64_t cost = j->width * j->classes;
  if (j->x)
    fl_cpu_parallel(l, tasks, cost < GRAIN ? GRAIN / cost : 1, f, j);
}

static double sum_of(int64_t n, const double *v) {
  if (n > 64)
    return sum_of(n / 2, v) + sum_of(n - n / 2, v + n / 2);
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += v[i];
  return sum;
}

FL_KERNEL(cross_entropy) {
  loss_job j = {0};
  const fl_view *y = &l->out[0], *lse = &l->out[FL_OUT_cross_entropy_lse],
                *total = &l->out[FL_OUT_cross_entropy_total];
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_cross_entropy_x].dtype);
  fl_status s = set_job(l, &l->in[FL_IN_cross_entropy_x],
                        &l->in[FL_IN_cross_entropy_target],
                        &l->in[FL_IN_cross_entropy_weight], &j);
  if (s != FL_OK)
    return s;
  int64_t samples = j.outer * j.inner,
          reduction = l->attrs->v[FL_ATTR_cross_entropy_reduction].i;
  j.losses = fl_scratch_get(l, (size_t)(2 * samples + 1) * sizeof(double));
  if (!j.losses)
    return FL_ENOMEM;
  j.totals = j.losses + samples;
  for (int64_t i = 0; !j.x && i < samples; i++) /* no classes at all */
    j.losses[i] = j.totals[i] = 0;
  if (samples && !(j.lse = FL_CPU(output)(l, lse, type)))
    return FL_ENOMEM;
  over_samples(l, FL_OF_FLOAT(loss, type)->forward, &j);
  double weight = sum_of(samples, j.totals);
  FL_CPU(finish)(l, total, FL_F64, &weight);
  if (reduction == NONE)
    FL_CPU(finish)(l, y, FL_F64, j.losses);
  else {
    double loss = sum_of(samples, j.losses);
    if (reduction == MEAN)
      loss /= weight;
    FL_CPU(finish)(l, y, FL_F64, &loss);
  }
  if (samples)
    FL_CPU(finish)(l, lse, type, j.lse);
  return FL_OK;
}

/* in: dy, x, target, weight, lse, total */
FL_KERNEL(cross_entropy_backward) {
  loss_job j = {0};
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_cross_entropy_backward_x].dtype);
  fl_status s = set_job(l, &l->in[FL_IN_cross_entropy_backward_x],
                        &l->in[FL_IN_cross_entropy_backward_target],
                        &l->in[FL_IN_cross_entropy_backward_weight], &j);
  if (s != FL_OK || !j.x)
    return s;
  const void *lse =
      FL_CPU(input)(l, &l->in[FL_IN_cross_entropy_backward_lse], type);
  j.lse = (void *)(uintptr_t)lse;
  j.dx = FL_CPU(output)(l, &l->out[0], type);
  if (!j.lse || !j.dx)
    return FL_ENOMEM;
  if (l->attrs->v[FL_ATTR_cross_entropy_backward_reduction].i == NONE) {
    j.each = FL_CPU(input)(l, &l->in[FL_IN_cross_entropy_backward_dy], type);
    if (!j.each)
      return FL_ENOMEM;
  } else {
    j.scale = fl_cpu_scalar(&l->in[FL_IN_cross_entropy_backward_dy]);
    if (l->attrs->v[FL_ATTR_cross_entropy_backward_reduction].i == MEAN)
      j.scale /= fl_cpu_scalar(&l->in[FL_IN_cross_entropy_backward_total]);
  }
  over_samples(l, FL_OF_FLOAT(loss, type)->backward, &j);
  FL_CPU(finish)(l, &l->out[0], type, j.dx);
  return FL_OK;
}

FL_KERNEL(cross_entropy_total) {
  const fl_view *t = &l->in[FL_IN_cross_entropy_total_target],
                *weight = &l->in[FL_IN_cross_entropy_total_weight];
  int64_t n = fl_view_numel(t);
  double total = 0;
  if (fl_dtype_kind(t->dtype) == FL_KIND_FLOAT) { /* each sample counts 1 */
    int64_t classes = t->ndim ? t->shape[t->ndim > 1] : 1;
    total = classes ? (double)(n / classes) : 0;
  } else if (n) {
    loss_job j = {.base = l->base,
                  .classes = INT64_MAX,
                  .ignore =
                      l->attrs->v[FL_ATTR_cross_entropy_total_ignore_index].i};
    if (weight->data) {
      j.classes = weight->shape[0];
      if (!(j.weight = FL_CPU(input)(l, weight, FL_F64)))
        return FL_ENOMEM;
    }
    fl_status s = set_targets(l, t, &j);
    if (s != FL_OK)
      return s;
    const double *w = j.weight;
    for (int64_t i = 0; i < n; i++)
      if (j.target[i] != j.ignore)
        total += w ? w[j.target[i] - j.base] : 1;
  }
  FL_CPU(finish)(l, &l->out[0], FL_F64, &total);
  return FL_OK;
}

/* --- bce_input --- */

typedef struct checking {
  const float *f32; /* one of the two */
  const double *f64;
} checking;

static double value_at(const checking *c, int64_t i) {
  return c->f64 ? c->f64[i] : (double)c->f32[i];
}

static bool is_probability(double p) {
  return p >= 0 && p <= 1;
}

static bool all_probabilities(const checking *c, int64_t n) {
  int bad = 0;
  for (int64_t i = 0; c->f32 && i < n; i++)
    bad |= !(c->f32[i] >= 0 && c->f32[i] <= 1);
  for (int64_t i = 0; c->f64 && i < n; i++)
    bad |= !(c->f64[i] >= 0 && c->f64[i] <= 1);
  return !bad;
}

FL_KERNEL(bce_input) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  fl_dtype type = fl_cpu_wide(x->dtype);
  const void *in = FL_CPU(input)(l, x, type);
  if (!in)
    return FL_ENOMEM;
  checking c = {.f32 = type == FL_F64 ? NULL : in,
                .f64 = type == FL_F64 ? in : NULL};
  int64_t n = fl_view_numel(x), i = 0;
  if (!all_probabilities(&c, n)) {
    while (is_probability(value_at(&c, i)))
      i++;
    return fli_fail(FL_EARG, FL_BCE_REFUSES, value_at(&c, i));
  }
  FL_CPU(finish)(l, y, type, in);
  return FL_OK;
}
