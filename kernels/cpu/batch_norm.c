/* group_norm and batch_norm, over planes (the space of one sample and channel),
 * and their gradients. */
#include "batch_norm.h"

#include <math.h>

#include <string.h>

#define GRAIN       16384 /* elements worth a thread's while */
#define MOST_PIECES 64    /* partial sums of weights' gradients */

static int64_t at_least(int64_t v, int64_t least) {
  return v < least ? least : v;
}

/* Whether the result has channels last. Then `to` gets x as (N, H, W, C): a
 * pixel is a sample, with one element for each channel. */
static bool channels_last(const fl_launch *l, const fl_view *x, fl_view *to) {
  bool last = fl_channels_last(&l->out[0]);
  if (last)
    fl_as_channels_last(x, to);
  else
    fl_view_copy(to, x);
  return last;
}

/* An input that may be left out: false if there was no memory for it. */
static bool batch_norm_optional(const fl_launch *l, const fl_view *v,
                                fl_dtype type, const void **to) {
  *to = v && v->data ? FL_CPU(input)(l, v, type) : NULL;
  return *to || !v || !v->data;
}

static void batch_norm_zero(const fl_view *v) {
  if (v)
    memset(v->data, 0, fl_view_bytes(v));
}

/* --- planes --- */

/* `last`: x is (N, H, W, C), without planes. */
static void set_planes(const fl_view *x, bool last, planes_job *j) {
  j->samples = x->shape[0];
  j->channels = x->shape[last ? 3 : 1];
  j->size = 1;
  for (int i = 2; i < x->ndim && !last; i++)
    j->size *= x->shape[i];
  if (last)
    j->samples *= x->shape[1] * x->shape[2];
  j->width = j->channels * j->size;
  j->tiles = fl_ceil_div(j->width, FL_COLUMNS);
  j->light = at_least(GRAIN / at_least(j->width, 1), 1);
  j->grain = at_least(j->light, fl_ceil_div(j->samples, MOST_PIECES));
  /* the pieces' sums must cost little beside the pieces */
  j->grain = at_least(j->grain, j->tiles < 16 ? 16 : j->samples);
  j->pieces = fl_ceil_div(j->samples, at_least(j->grain, 1));
}

/* Pieces of work that are planes, or groups of `planes` of them. */
static void over_planes(const fl_launch *l, planes_job *j, int64_t planes,
                        fl_cpu_task f) {
  int64_t each = at_least(j->size * planes, 1);
  int64_t tasks = planes > 0 ? j->samples * j->channels / planes
                             : j->samples * j->groups; /* of nothing */
  fl_cpu_parallel(l, tasks, each < GRAIN ? GRAIN / each : 1, f, j);
}

static void over_columns(const fl_launch *l, planes_job *j, fl_cpu_task f) {
  fl_cpu_parallel(l, j->pieces * j->tiles, 1, f, j);
}

static void *batch_norm_numbers(const fl_launch *l, int64_t n, fl_dtype type) {
  return fl_scratch_get(l, (size_t)(n + 1) * fl_dtype_size(type));
}

/* group_norm: a task is a group of a sample. */
FL_KERNEL(group_norm) {
  const fl_view *x = &l->in[FL_IN_group_norm_x];
  fl_dtype type = fl_cpu_wide(x->dtype);
  planes_job j = {.groups = l->attrs->v[FL_ATTR_group_norm_groups].i,
                  .eps = l->attrs->v[FL_ATTR_group_norm_eps].f};
  set_planes(x, false, &j);
  if (j.samples * j.groups == 0)
    return FL_OK;
  j.x = FL_CPU(input)(l, x, type);
  j.y = FL_CPU(output)(l, &l->out[0], type);
  j.mean = FL_CPU(output)(l, &l->out[FL_OUT_group_norm_mean], type);
  j.rstd = FL_CPU(output)(l, &l->out[FL_OUT_group_norm_rstd], type);
  if (!j.x || !j.y || !j.mean || !j.rstd ||
      !batch_norm_optional(l, &l->in[FL_IN_group_norm_weight], type,
                           &j.weight) ||
      !batch_norm_optional(l, &l->in[FL_IN_group_norm_bias], type, &j.bias))
    return FL_ENOMEM;
  over_planes(l, &j, j.channels / j.groups,
              FL_OF_FLOAT(batch_norm, type)->group_forward);
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  FL_CPU(finish)(l, &l->out[FL_OUT_group_norm_mean], type, j.mean);
  FL_CPU(finish)(l, &l->out[FL_OUT_group_norm_rstd], type, j.rstd);
  return FL_OK;
}

/* What the gradients of both have in common. in: dy, x, weight, mean, rstd;
 * out: dx, dw, db. */
static fl_status set_backward(const fl_launch *l, fl_dtype type,
                              planes_job *j) {
  const void *mean, *rstd;
  fl_view x, dy, dx;
  bool last = channels_last(l, &l->in[FL_IN_group_norm_backward_x], &x);
  channels_last(l, &l->in[FL_IN_group_norm_backward_dy], &dy);
  channels_last(l, &l->out[0], &dx);
  set_planes(&x, last, j);
  _Static_assert(
      FL_IN_group_norm_backward_x == FL_IN_batch_norm_backward_x &&
          FL_IN_group_norm_backward_weight ==
              FL_IN_batch_norm_backward_weight &&
          FL_IN_group_norm_backward_mean == FL_IN_batch_norm_backward_mean &&
          FL_IN_group_norm_backward_rstd == FL_IN_batch_norm_backward_rstd,
      "read for both rows");
  j->dy = FL_CPU(input)(l, &dy, type);
  j->x = FL_CPU(input)(l, &x, type);
  j->y = FL_CPU(output)(l, &dx, type);
  if (!j->dy || !j->x || !j->y ||
      !batch_norm_optional(l, &l->in[FL_IN_group_norm_backward_weight], type,
                           &j->weight) ||
      !batch_norm_optional(l, &l->in[FL_IN_group_norm_backward_mean], type,
                           &mean) ||
      !batch_norm_optional(l, &l->in[FL_IN_group_norm_backward_rstd], type,
                           &rstd))
    return FL_ENOMEM;
  j->mean = (void *)(uintptr_t)mean;
  j->rstd = (void *)(uintptr_t)rstd;
  return FL_OK;
}

/* dw and db from their sums of every channel. */
static void put_weights(const fl_launch *l, const planes_job *j,
                        const double *dw, const double *db) {
  if (!j->weight)
    return;
  FL_CPU(finish)(l, &l->out[FL_OUT_group_norm_backward_dw], FL_F64, dw);
  FL_CPU(finish)(l, &l->out[FL_OUT_group_norm_backward_db], FL_F64, db);
}

FL_KERNEL(group_norm_backward) {
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_group_norm_backward_x].dtype);
  planes_job j = {.groups = l->attrs->v[FL_ATTR_group_norm_backward_groups].i};
  if (fl_view_numel(&l->in[FL_IN_group_norm_backward_x]) == 0) {
    batch_norm_zero(&l->out[FL_OUT_group_norm_backward_dw]);
    batch_norm_zero(&l->out[FL_OUT_group_norm_backward_db]);
    return FL_OK;
  }
  fl_status s = set_backward(l, type, &j);
  int64_t planes = j.samples * j.channels;
  if (s != FL_OK)
    return s;
  double *sums = batch_norm_numbers(l, 2 * planes + 2 * j.channels, FL_F64);
  if (!sums)
    return FL_ENOMEM;
  j.s1 = sums + 2 * j.channels;
  j.s2 = j.s1 + planes;
  over_planes(l, &j, j.channels / j.groups,
              FL_OF_FLOAT(batch_norm, type)->group_backward);
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (j.weight) { /* s2 has been multiplied by its group's rstd */
    double *dw = sums, *db = dw + j.channels;
    memset(sums, 0, (size_t)(2 * j.channels) * sizeof *sums);
    for (int64_t p = 0; p < planes; p += j.channels)
      for (int64_t c = 0; c < j.channels; c++) {
        dw[c] += j.s2[p + c];
        db[c] += j.s1[p + c];
      }
    put_weights(l, &j, dw, db);
  }
  return FL_OK;
}

/* --- batch_norm --- */

/* Adds up the figures of every channel: of every sample and channel, or of
 * every piece and column. With `about`, s1's squared distances from it,
 * weighted. */
static void add_figures(const planes_job *j, const double *about, double *s1,
                        double *s2) {
  bool columns = j->size < PLANE;
  int64_t rows = columns ? j->pieces : j->samples;
  int64_t each = columns ? j->size : 1, at = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t left = j->samples - r * j->grain;
    double n = (double)(!columns ? j->size : left < j->grain ? left : j->grain);
    for (int64_t c = 0; c < j->channels; c++)
      for (int64_t i = 0; i < each; i++, at++) {
        double d = about ? j->s1[at] - about[c] : 0;
        if (about)
          s2[c] += n * d * d;
        else {
          s1[c] += j->weigh ? n * j->s1[at] : j->s1[at];
          s2[c] += j->s2[at];
        }
      }
  }
}

static fl_status set_figures(const fl_launch *l, planes_job *j, double *s1,
                             double *s2) {
  int64_t rows = j->size < PLANE ? j->pieces : j->samples;
  int64_t n = rows * (j->size < PLANE ? j->width : j->channels);
  j->s1 = batch_norm_numbers(l, 2 * n, FL_F64);
  if (!j->s1)
    return FL_ENOMEM;
  j->s2 = j->s1 + n;
  for (int64_t c = 0; c < j->channels; c++)
    s1[c] = s2[c] = 0;
  return FL_OK;
}

/* Mean and squared deviations of every channel into mean[] and m2[]. */
static fl_status channel_moments(const fl_launch *l, fl_dtype type,
                                 planes_job *j, double *mean, double *m2) {
  fl_status s = set_figures(l, j, mean, m2);
  if (s != FL_OK)
    return s;
  if (j->size < PLANE)
    over_columns(l, j, FL_OF_FLOAT(batch_norm, type)->column_moments);
  else
    over_planes(l, j, 1, FL_OF_FLOAT(batch_norm, type)->plane_moments);
  j->weigh = true;
  add_figures(j, NULL, mean, m2);
  for (int64_t c = 0; c < j->channels; c++)
    mean[c] /= (double)(j->samples * j->size);
  add_figures(j, mean, NULL, m2);
  return FL_OK;
}

/* running = (1 - m) running + m batch */
static fl_status update_running(const fl_launch *l, const fl_view *v, double m,
                                int64_t n, const double *batch, double scale) {
  const void *given;
  if (!v->data)
    return FL_OK;
  double *now = batch_norm_numbers(l, n, FL_F64);
  if (!now || !batch_norm_optional(l, v, FL_F64, &given))
    return FL_ENOMEM;
  const double *old = given;
  for (int64_t i = 0; i < n; i++)
    now[i] = (1 - m) * old[i] + m * (batch[i] * scale);
  FL_CPU(finish)(l, v, FL_F64, now);
  return FL_OK;
}

/* Room for what is applied: figures of every channel, or of every column. */
static fl_status set_factors(const fl_launch *l, fl_dtype type, planes_job *j) {
  int64_t n = j->size < PLANE ? j->width : j->channels;
  j->a = batch_norm_numbers(l, n, type);
  j->b = batch_norm_numbers(l, n, type);
  j->c = batch_norm_numbers(l, n, type);
  j->m = batch_norm_numbers(l, n, type);
  return j->a && j->b && j->c && j->m ? FL_OK : FL_ENOMEM;
}

/* attrs: training, momentum, eps; in: x, weight, bias, running mean and var */
FL_KERNEL(batch_norm) {
  fl_view x, y;
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_batch_norm_x].dtype);
  planes_job j = {.eps = l->attrs->v[FL_ATTR_batch_norm_eps].f};
  bool last = channels_last(l, &l->in[FL_IN_batch_norm_x], &x);
  channels_last(l, &l->out[0], &y);
  set_planes(&x, last, &j);
  int64_t n = j.channels;
  double *mean = batch_norm_numbers(l, n, FL_F64),
         *var = batch_norm_numbers(l, n, FL_F64);
  double *rstd = batch_norm_numbers(l, n, FL_F64);
  if (!mean || !var || !rstd ||
      !batch_norm_optional(l, &l->in[FL_IN_batch_norm_weight], FL_F64,
                           &j.weight) ||
      !batch_norm_optional(l, &l->in[FL_IN_batch_norm_bias], FL_F64, &j.bias))
    return FL_ENOMEM;
  fl_status s = FL_OK;
  if (fl_view_numel(&x)) {
    j.x = FL_CPU(input)(l, &x, type);
    j.y = FL_CPU(output)(l, &y, type);
    if (!j.x || !j.y)
      return FL_ENOMEM;
  }
  if (l->attrs->v[FL_ATTR_batch_norm_training].i) {
    double m = l->attrs->v[FL_ATTR_batch_norm_momentum].f,
           count = (double)(j.samples * j.size);
    s = channel_moments(l, type, &j, mean, var);
    for (int64_t c = 0; c < n; c++)
      var[c] /= count;
    if (s == FL_OK && count > 0)
      s = update_running(l, &l->in[FL_IN_batch_norm_running_mean], m, n, mean,
                         1);
    if (s == FL_OK && count > 0)
      s = update_running(l, &l->in[FL_IN_batch_norm_running_var], m, n, var,
                         count > 1 ? count / (count - 1) : 1);
  } else {
    const void *from, *of;
    if (!batch_norm_optional(l, &l->in[FL_IN_batch_norm_running_mean], FL_F64,
                             &from) ||
        !batch_norm_optional(l, &l->in[FL_IN_batch_norm_running_var], FL_F64,
                             &of))
      return FL_ENOMEM;
    memcpy(mean, from, (size_t)n * sizeof *mean);
    memcpy(var, of, (size_t)n * sizeof *var);
  }
  if (s == FL_OK)
    s = set_factors(l, type, &j);
  if (s != FL_OK)
    return s;
  const double *w = j.weight, *b = j.bias;
  for (int64_t c = 0; c < n; c++)
    rstd[c] = 1 / sqrt(var[c] + j.eps);
  FL_OF_FLOAT(batch_norm, type)->forward_factors(&j, mean, rstd, w, b);
  if (j.x) {
    if (j.size < PLANE)
      fl_cpu_parallel(l, j.samples, j.light,
                      FL_OF_FLOAT(batch_norm, type)->column_apply, &j);
    else
      over_planes(l, &j, 1, FL_OF_FLOAT(batch_norm, type)->plane_apply);
    FL_CPU(finish)(l, &y, type, j.y);
  }
  FL_CPU(finish)(l, &l->out[FL_OUT_batch_norm_mean], FL_F64, mean);
  FL_CPU(finish)(l, &l->out[FL_OUT_batch_norm_rstd], FL_F64, rstd);
  return FL_OK;
}

/* Sums of dy and of dy (x - mean) of every channel. */
static fl_status channel_sums(const fl_launch *l, fl_dtype type, planes_job *j,
                              double *s1, double *s2) {
  fl_status s = set_figures(l, j, s1, s2);
  if (s != FL_OK)
    return s;
  if (j->size < PLANE)
    over_columns(l, j, FL_OF_FLOAT(batch_norm, type)->column_sums);
  else
    over_planes(l, j, 1, FL_OF_FLOAT(batch_norm, type)->plane_sums);
  add_figures(j, NULL, s1, s2);
  return FL_OK;
}

/* What rounding left out of the saved means, where that counts. */
static fl_status means_left(const fl_launch *l, fl_dtype type, planes_job *j,
                            double *left) {
  const void *saved;
  double *m2 = batch_norm_numbers(l, j->channels, FL_F64);
  memset(left, 0, (size_t)j->channels * sizeof *left);
  if (!FL_OF_FLOAT(batch_norm, type)->any_far(j))
    return FL_OK;
  if (!m2 || !batch_norm_optional(l, &l->in[FL_IN_batch_norm_backward_mean],
                                  FL_F64, &saved))
    return FL_ENOMEM;
  fl_status s = channel_moments(l, type, j, left, m2);
  j->weigh = false;
  for (int64_t c = 0; c < j->channels; c++)
    left[c] -= ((const double *)saved)[c];
  return s;
}

/* With constant statistics (not training) only dy's own term is left. */
FL_KERNEL(batch_norm_backward) {
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_batch_norm_backward_x].dtype);
  planes_job j = {0};
  const void *weight, *rstd;
  if (fl_view_numel(&l->in[FL_IN_batch_norm_backward_x]) == 0) {
    batch_norm_zero(&l->out[FL_OUT_batch_norm_backward_dw]);
    batch_norm_zero(&l->out[FL_OUT_batch_norm_backward_db]);
    return FL_OK;
  }
  fl_status s = set_backward(l, type, &j);
  if (s == FL_OK)
    s = set_factors(l, type, &j);
  if (s != FL_OK)
    return s;
  int64_t n = j.channels;
  double *db = batch_norm_numbers(l, n, FL_F64),
         *dw = batch_norm_numbers(l, n, FL_F64),
         *left = batch_norm_numbers(l, n, FL_F64);
  bool training = l->attrs->v[FL_ATTR_batch_norm_backward_training].i;
  if (!db || !dw || !left ||
      !batch_norm_optional(l, &l->in[FL_IN_batch_norm_backward_weight], FL_F64,
                           &weight) ||
      !batch_norm_optional(l, &l->in[FL_IN_batch_norm_backward_rstd], FL_F64,
                           &rstd))
    return FL_ENOMEM;
  if (training)
    s = means_left(l, type, &j, left);
  else
    memset(left, 0, (size_t)n * sizeof *left);
  FL_OF_FLOAT(batch_norm, type)->backward_means(&j);
  if (s == FL_OK)
    s = channel_sums(l, type, &j, db, dw);
  if (s != FL_OK)
    return s;
  for (int64_t c = 0; c < n; c++)
    dw[c] = (dw[c] - left[c] * db[c]) * ((const double *)rstd)[c];
  FL_OF_FLOAT(batch_norm, type)
      ->backward_factors(&j, rstd, weight, db, dw, left, training);
  if (j.size < PLANE)
    fl_cpu_parallel(l, j.samples, j.light,
                    FL_OF_FLOAT(batch_norm, type)->column_apply, &j);
  else
    over_planes(l, &j, 1, FL_OF_FLOAT(batch_norm, type)->plane_apply);
  fl_view dx;
  channels_last(l, &l->out[0], &dx);
  FL_CPU(finish)(l, &dx, type, j.y);
  put_weights(l, &j, dw, db);
  return FL_OK;
}
