/* layer_norm and rms_norm (over the last dims), group_norm and batch_norm (over
 * planes: the space of one sample and channel), and their gradients. */
#include "cpu.h"

#include "../../runtime/math.h"

#include <string.h>

typedef struct rows_job {
  int64_t n, grain;
  double eps;
  const void *x, *dy, *weight, *bias;
  void *y; /* or dx */
  void *mean, *rstd;
  void *dw; /* partial sums: dw and db of each piece */
} rows_job;

typedef struct planes_job planes_job;
struct planes_job {
  int64_t planes, size, channels, groups; /* groups of channels; batch: 0 */
  bool second;
  const void *x, *dy;
  void *y;
  double *mean; /* by owner: (sample, group), or channel */
  double *s1, *s2, *a, *b, *c;
  int64_t (*owner)(const planes_job *j, int64_t plane);
};

#define T float
#define S(name) name##_f32
#include "norm.inc"
#undef T
#undef S
#define T double
#define S(name) name##_f64
#include "norm.inc"
#undef T
#undef S

#define BY_TYPE(type, name) ((type) == FL_F64 ? name##_f64 : name##_f32)

/* --- rows --- */

static fl_status forward_rows(const fl_launch *l, const fl_view *bias,
                              const fl_view *mean, const fl_view *rstd,
                              double eps) {
  const fl_view *x = &l->in[0], *w = &l->in[1];
  fl_dtype type = fl_cpu_wide(x->dtype);
  int64_t rows = fl_view_numel(rstd), total = fl_view_numel(x);
  rows_job j = {.n = rows ? total / rows : 0, .eps = eps};
  if (total == 0)
    return FL_OK;
  j.x = FL_CPU(input)(l, x, type);
  j.weight = w->data ? FL_CPU(input)(l, w, type) : NULL;
  j.bias = bias && bias->data ? FL_CPU(input)(l, bias, type) : NULL;
  j.y = FL_CPU(output)(l, &l->out[0], type);
  j.mean = mean ? FL_CPU(output)(l, mean, type) : NULL;
  j.rstd = FL_CPU(output)(l, rstd, type);
  if (!j.x || !j.y || !j.rstd || (w->data && !j.weight) ||
      (bias && bias->data && !j.bias) || (mean && !j.mean))
    return FL_ENOMEM;
  fl_cpu_parallel(l, rows, j.n < 16384 ? 16384 / j.n : 1, BY_TYPE(type, rows),
                  &j);
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (mean)
    FL_CPU(finish)(l, mean, type, j.mean);
  FL_CPU(finish)(l, rstd, type, j.rstd);
  return FL_OK;
}

FL_KERNEL(layer_norm);
FL_KERNEL(layer_norm) {
  return forward_rows(l, &l->in[2], &l->out[1], &l->out[2], l->attrs->v[1].f);
}

FL_KERNEL(rms_norm);
FL_KERNEL(rms_norm) {
  return forward_rows(l, NULL, NULL, &l->out[1], l->attrs->v[1].f);
}

/* in: dy, x, weight, [mean], rstd; out: dx, dw, [db] */
static fl_status backward_rows(const fl_launch *l, const fl_view *mean,
                               const fl_view *rstd, const fl_view *db) {
  const fl_view *w = &l->in[2], *dw = &l->out[1];
  fl_dtype type = fl_cpu_wide(l->in[1].dtype);
  int64_t rows = fl_view_numel(rstd), total = fl_view_numel(&l->in[1]);
  rows_job j = {.n = rows ? total / rows : 0};
  if (total == 0) { /* no rows, but perhaps weights: their gradient is 0 */
    memset(dw->data, 0, (size_t)fl_view_numel(dw) * fl_dtype_size(dw->dtype));
    if (db)
      memset(db->data, 0,
             (size_t)fl_view_numel(db) * fl_dtype_size(db->dtype));
    return FL_OK;
  }
  int64_t few = (rows + 63) / 64, light = j.n < 16384 ? 16384 / j.n : 1;
  j.grain = few > light ? few : light;
  int64_t pieces = (rows + j.grain - 1) / j.grain;
  j.dy = FL_CPU(input)(l, &l->in[0], type);
  j.x = FL_CPU(input)(l, &l->in[1], type);
  j.weight = w->data ? FL_CPU(input)(l, w, type) : NULL;
  j.mean = mean ? (void *)(uintptr_t)FL_CPU(input)(l, mean, type) : NULL;
  j.rstd = (void *)(uintptr_t)FL_CPU(input)(l, rstd, type);
  j.y = FL_CPU(output)(l, &l->out[0], type);
  j.dw = fl_scratch_get(l, w->data ? (size_t)(pieces * 2 * j.n) *
                                         fl_dtype_size(type)
                                   : 1);
  if (!j.dy || !j.x || !j.rstd || !j.y || !j.dw || (w->data && !j.weight) ||
      (mean && !j.mean))
    return FL_ENOMEM;
  fl_cpu_parallel(l, rows, j.grain, BY_TYPE(type, rows_backward), &j);
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (!w->data)
    return FL_OK;
  void *to_w = FL_CPU(output)(l, dw, type);
  void *to_b = db ? FL_CPU(output)(l, db, type) : NULL;
  if (!to_w || (db && !to_b))
    return FL_ENOMEM;
  if (type == FL_F64)
    add_pieces_f64(&j, pieces, to_w, to_b);
  else
    add_pieces_f32(&j, pieces, to_w, to_b);
  FL_CPU(finish)(l, dw, type, to_w);
  if (db)
    FL_CPU(finish)(l, db, type, to_b);
  return FL_OK;
}

FL_KERNEL(layer_norm_backward);
FL_KERNEL(layer_norm_backward) {
  return backward_rows(l, &l->in[3], &l->in[4], &l->out[2]);
}

FL_KERNEL(rms_norm_backward);
FL_KERNEL(rms_norm_backward) {
  return backward_rows(l, NULL, &l->in[3], NULL);
}

/* --- planes --- */

static int64_t by_group(const planes_job *j, int64_t p) {
  return p / (j->channels / j->groups);
}

static int64_t by_channel(const planes_job *j, int64_t p) {
  return p % j->channels;
}

static int64_t owners_of(const planes_job *j) {
  return j->groups ? j->planes / j->channels * j->groups : j->channels;
}

/* Geometry, inputs and room for the figures of planes and owners. */
static fl_status set_planes(const fl_launch *l, const fl_view *x,
                            int64_t groups, planes_job *j) {
  j->channels = x->shape[1];
  j->planes = x->shape[0] * j->channels;
  j->size = j->planes ? fl_view_numel(x) / j->planes : 0;
  j->groups = groups;
  j->owner = groups ? by_group : by_channel;
  size_t n = (size_t)(j->planes + 1), o = (size_t)(owners_of(j) + 1);
  j->x = FL_CPU(input)(l, x, fl_cpu_wide(x->dtype));
  j->s1 = fl_scratch_get(l, (5 * n + o) * sizeof(double));
  if (!j->x || !j->s1)
    return FL_ENOMEM;
  memset(j->s1, 0, (5 * n + o) * sizeof(double));
  j->s2 = j->s1 + n;
  j->a = j->s2 + n;
  j->b = j->a + n;
  j->c = j->b + n;
  j->mean = j->c + n;
  return FL_OK;
}

static void over_planes(const fl_launch *l, planes_job *j, fl_cpu_task f) {
  int64_t each = j->size < 16384 ? 16384 / (j->size ? j->size : 1) : 1;
  fl_cpu_parallel(l, j->planes, each, f, j);
}

/* to[owner] = sum over its planes of v[plane] */
static void gather_planes(const planes_job *j, const double *v, double *to) {
  for (int64_t o = 0; o < owners_of(j); o++)
    to[o] = 0;
  for (int64_t p = 0; p < j->planes; p++)
    to[j->owner(j, p)] += v[p];
}

static fl_status numbers(const fl_launch *l, const fl_view *v, double **to) {
  *to = NULL;
  if (!v->data)
    return FL_OK;
  *to = (double *)(uintptr_t)FL_CPU(input)(l, v, FL_F64);
  return *to ? FL_OK : FL_ENOMEM;
}

static void put_numbers(const fl_launch *l, const fl_view *v,
                        const double *from) {
  FL_CPU(finish)(l, v, FL_F64, from);
}

/* Mean and variance of every owner, in two passes. */
static void statistics(const fl_launch *l, planes_job *j, fl_dtype type,
                       double *var) {
  int64_t owners = owners_of(j);
  double n = (double)(j->planes * j->size) / (double)(owners ? owners : 1);
  over_planes(l, j, BY_TYPE(type, plane_sums));
  gather_planes(j, j->s1, j->mean);
  for (int64_t o = 0; o < owners; o++)
    j->mean[o] /= n;
  j->second = true;
  over_planes(l, j, BY_TYPE(type, plane_sums));
  gather_planes(j, j->s2, var);
  for (int64_t o = 0; o < owners; o++)
    var[o] /= n;
}

/* y = (x - mean) rstd w + b, and the two figures kept for the gradient. */
static fl_status normalise(const fl_launch *l, planes_job *j, fl_dtype type,
                           double *rstd) {
  double *w, *b;
  j->y = FL_CPU(output)(l, &l->out[0], type);
  if (!j->y || numbers(l, &l->in[1], &w) || numbers(l, &l->in[2], &b))
    return FL_ENOMEM;
  for (int64_t p = 0; p < j->planes; p++) {
    int64_t c = p % j->channels;
    j->a[p] = rstd[j->owner(j, p)] * (w ? w[c] : 1);
    j->b[p] = b ? b[c] : 0;
  }
  over_planes(l, j, BY_TYPE(type, plane_apply));
  FL_CPU(finish)(l, &l->out[0], type, j->y);
  put_numbers(l, &l->out[1], j->mean);
  put_numbers(l, &l->out[2], rstd);
  return FL_OK;
}

FL_KERNEL(group_norm);
FL_KERNEL(group_norm) {
  planes_job j = {0};
  fl_dtype type = fl_cpu_wide(l->in[0].dtype);
  fl_status s = set_planes(l, &l->in[0], l->attrs->v[0].i, &j);
  if (s)
    return s;
  double *rstd = fl_scratch_get(l, (size_t)(owners_of(&j) + 1) * sizeof *rstd);
  if (!rstd)
    return FL_ENOMEM;
  statistics(l, &j, type, rstd);
  for (int64_t o = 0; o < owners_of(&j); o++)
    rstd[o] = 1 / sqrt(rstd[o] + l->attrs->v[1].f);
  return normalise(l, &j, type, rstd);
}

/* running = (1 - m) running + m batch */
static fl_status update_running(const fl_launch *l, const fl_view *v, double m,
                                const double *batch, double scale) {
  double *old;
  if (!v->data)
    return FL_OK;
  int64_t n = fl_view_numel(v);
  double *now = fl_scratch_get(l, (size_t)(n + 1) * sizeof *now);
  if (!now || numbers(l, v, &old))
    return FL_ENOMEM;
  for (int64_t i = 0; i < n; i++)
    now[i] = (1 - m) * old[i] + m * batch[i] * scale;
  put_numbers(l, v, now);
  return FL_OK;
}

/* attrs: training, momentum, eps; in: x, weight, bias, running mean and var */
FL_KERNEL(batch_norm);
FL_KERNEL(batch_norm) {
  planes_job j = {0};
  fl_dtype type = fl_cpu_wide(l->in[0].dtype);
  fl_status s = set_planes(l, &l->in[0], 0, &j);
  if (s)
    return s;
  int64_t channels = j.channels;
  double *var = fl_scratch_get(l, (size_t)(channels + 1) * sizeof *var), *run;
  if (!var)
    return FL_ENOMEM;
  if (l->attrs->v[0].i) {
    double n = (double)(j.planes * j.size) / (double)(channels ? channels : 1);
    double m = l->attrs->v[1].f;
    statistics(l, &j, type, var);
    if (update_running(l, &l->in[3], m, j.mean, 1) ||
        update_running(l, &l->in[4], m, var, n > 1 ? n / (n - 1) : 1))
      return FL_ENOMEM;
  } else {
    if (numbers(l, &l->in[3], &run))
      return FL_ENOMEM;
    memcpy(j.mean, run, (size_t)channels * sizeof *run);
    if (numbers(l, &l->in[4], &run))
      return FL_ENOMEM;
    memcpy(var, run, (size_t)channels * sizeof *run);
  }
  for (int64_t c = 0; c < channels; c++)
    var[c] = 1 / sqrt(var[c] + l->attrs->v[2].f);
  return normalise(l, &j, type, var);
}

/* in: dy, x, weight, mean, rstd; out: dx, dw, db. `constant`: the statistics did
 * not come from x. */
static fl_status backward_planes(const fl_launch *l, int64_t groups,
                                 bool constant) {
  planes_job j = {0};
  fl_dtype type = fl_cpu_wide(l->in[1].dtype);
  double *w, *mean, *rstd;
  fl_status s = set_planes(l, &l->in[1], groups, &j);
  if (s)
    return s;
  int64_t owners = owners_of(&j), channels = j.channels;
  double n = (double)(j.planes * j.size) / (double)(owners ? owners : 1);
  size_t room = (size_t)(2 * owners + 2 * channels + 1);
  double *g1 = fl_scratch_get(l, room * sizeof *g1);
  if (!g1 || numbers(l, &l->in[2], &w) || numbers(l, &l->in[3], &mean) ||
      numbers(l, &l->in[4], &rstd))
    return FL_ENOMEM;
  memset(g1, 0, room * sizeof *g1);
  double *g2 = g1 + owners, *dw = g2 + owners, *db = dw + channels;
  memcpy(j.mean, mean, (size_t)owners * sizeof *mean);
  j.dy = FL_CPU(input)(l, &l->in[0], type);
  j.y = FL_CPU(output)(l, &l->out[0], type);
  if (!j.dy || !j.y)
    return FL_ENOMEM;
  over_planes(l, &j, BY_TYPE(type, plane_sums));
  for (int64_t p = 0; p < j.planes; p++) {
    int64_t o = j.owner(&j, p), c = p % channels;
    double weight = w ? w[c] : 1;
    g1[o] += weight * j.s1[p];
    g2[o] += weight * j.s2[p] * rstd[o];
    dw[c] += j.s2[p] * rstd[o];
    db[c] += j.s1[p];
  }
  for (int64_t p = 0; p < j.planes; p++) {
    int64_t o = j.owner(&j, p);
    j.a[p] = rstd[o] * (w ? w[p % channels] : 1);
    j.b[p] = constant ? 0 : -rstd[o] * rstd[o] * g2[o] / n;
    j.c[p] = constant ? 0 : -rstd[o] * g1[o] / n;
  }
  over_planes(l, &j, BY_TYPE(type, plane_apply));
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (w) {
    put_numbers(l, &l->out[1], dw);
    put_numbers(l, &l->out[2], db);
  }
  return FL_OK;
}

FL_KERNEL(group_norm_backward);
FL_KERNEL(group_norm_backward) {
  return backward_planes(l, l->attrs->v[0].i, false);
}

FL_KERNEL(batch_norm_backward);
FL_KERNEL(batch_norm_backward) {
  return backward_planes(l, 0, !l->attrs->v[0].i);
}
