/* Cross-entropy of scores against class positions or probabilities, and its
 * gradient. Scores are (N, C, space...) or (C); a sample is one of N x space. The
 * other losses are composed of rows (runtime/rules/loss.c). */
#include "cpu.h"

#include "../../runtime/math.h"

typedef struct job {
  int64_t samples, classes, inner, grain;
  const void *x, *weight, *probabilities;
  const int64_t *target; /* from 0; -1: ignored */
  double smoothing, weights, scale;
  const void *each; /* dy of every sample */
  void *lse, *dx, *rows;
  double *losses, *totals;
} job;

#define T float
#define S(name) name##_f32
#include "loss.inc"
#undef T
#undef S
#define T double
#define S(name) name##_f64
#include "loss.inc"
#undef T
#undef S

enum { MEAN, SUM, NONE };

/* Class positions from 0, checked; the ignored ones -1. */
static fl_status set_targets(const fl_launch *l, const fl_view *v,
                             int64_t ignore, job *j) {
  const int64_t *given = FL_CPU(input)(l, v, FL_I64);
  int64_t *target =
      fl_scratch_get(l, (size_t)(j->samples + 1) * sizeof *target);
  if (!given || !target)
    return FL_ENOMEM;
  for (int64_t i = 0; i < j->samples; i++) {
    int64_t t = given[i];
    target[i] = -1;
    if (t == ignore)
      continue;
    if (!fl_cpu_position(l, &t, j->classes))
      return fl_cpu_bad_position(l, t, j->classes);
    target[i] = t;
  }
  j->target = target;
  return FL_OK;
}

/* What forward and backward both read: inputs x, target and weight. */
static fl_status set_job(const fl_launch *l, const fl_view *x,
                         const fl_view *target, const fl_view *weight,
                         job *j) {
  fl_dtype type = fl_cpu_wide(x->dtype);
  int dim = x->ndim > 1;
  j->classes = x->shape[dim];
  j->inner = 1;
  for (int i = dim + 1; i < x->ndim; i++)
    j->inner *= x->shape[i];
  j->samples = (dim ? x->shape[0] : 1) * j->inner;
  j->grain = j->classes < 16384 ? 16384 / (j->classes ? j->classes : 1) : 1;
  j->smoothing = l->attrs->v[1].f;
  j->x = FL_CPU(input)(l, x, type);
  j->weight = weight->data ? FL_CPU(input)(l, weight, type) : NULL;
  if (!j->x || (weight->data && !j->weight))
    return FL_ENOMEM;
  j->weights = j->weight ? 0 : (double)j->classes;
  for (int64_t c = 0; j->weight && c < j->classes; c++)
    j->weights += type == FL_F64 ? ((const double *)j->weight)[c]
                                 : (double)((const float *)j->weight)[c];
  if (target->dtype > FL_BF16)
    return set_targets(l, target, l->attrs->v[0].i, j);
  j->probabilities = FL_CPU(input)(l, target, type);
  return j->probabilities ? FL_OK : FL_ENOMEM;
}

static double sum_of(int64_t n, const double *v) {
  if (n > 64)
    return sum_of(n / 2, v) + sum_of(n - n / 2, v + n / 2);
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += v[i];
  return sum;
}

FL_KERNEL(cross_entropy);
FL_KERNEL(cross_entropy) {
  job j = {0};
  fl_status s = set_job(l, &l->in[0], &l->in[1], &l->in[2], &j);
  if (s)
    return s;
  fl_dtype type = fl_cpu_wide(l->in[0].dtype);
  int64_t pieces = j.samples / j.grain + 1;
  size_t n = (size_t)j.samples + 1;
  j.lse = FL_CPU(output)(l, &l->out[1], type);
  j.losses = fl_scratch_get(l, n * sizeof(double));
  j.totals = fl_scratch_get(l, n * sizeof(double));
  if (!j.lse || !j.losses || !j.totals)
    return FL_ENOMEM;
  if (j.inner > 1 && !(j.rows = fl_scratch_get(
                           l, (size_t)(pieces * j.classes) * sizeof(double))))
    return FL_ENOMEM;
  fl_cpu_parallel(l, j.samples, j.grain,
                  type == FL_F64 ? forward_f64 : forward_f32, &j);
  double total = sum_of(j.samples, j.totals);
  fl_dtype y = l->out[0].dtype;
  FL_CPU(convert)(1, l->out[2].dtype, l->out[2].data, FL_F64, &total);
  if (l->attrs->v[2].i == NONE)
    FL_CPU(convert)(j.samples, y, l->out[0].data, FL_F64, j.losses);
  else {
    double loss = sum_of(j.samples, j.losses);
    if (l->attrs->v[2].i == MEAN)
      loss /= total;
    FL_CPU(convert)(1, y, l->out[0].data, FL_F64, &loss);
  }
  FL_CPU(finish)(l, &l->out[1], type, j.lse);
  return FL_OK;
}

/* in: dy, x, target, weight, lse, total */
FL_KERNEL(cross_entropy_backward);
FL_KERNEL(cross_entropy_backward) {
  job j = {0};
  fl_status s = set_job(l, &l->in[1], &l->in[2], &l->in[3], &j);
  if (s)
    return s;
  fl_dtype type = fl_cpu_wide(l->in[1].dtype);
  const void *lse = FL_CPU(input)(l, &l->in[4], type);
  j.lse = (void *)(uintptr_t)lse;
  j.dx = FL_CPU(output)(l, &l->out[0], type);
  if (!j.lse || !j.dx)
    return FL_ENOMEM;
  if (l->attrs->v[2].i == NONE) {
    j.each = FL_CPU(input)(l, &l->in[0], type);
    if (!j.each)
      return FL_ENOMEM;
  } else {
    j.scale = fl_cpu_scalar(&l->in[0]);
    if (l->attrs->v[2].i == MEAN)
      j.scale /= fl_cpu_scalar(&l->in[5]);
  }
  fl_cpu_parallel(l, j.samples, j.grain,
                  type == FL_F64 ? backward_f64 : backward_f32, &j);
  FL_CPU(finish)(l, &l->out[0], type, j.dx);
  return FL_OK;
}
