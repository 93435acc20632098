/* layer_norm and rms_norm (over the last dims) and their gradients. group_norm
 * and batch_norm are in batch_norm.c. */
#include "norm.h"

#include <string.h>

#define GRAIN       16384 /* elements worth a thread's while */
#define MOST_PIECES 64    /* partial sums of weights' gradients */

static int64_t at_least(int64_t v, int64_t least) {
  return v < least ? least : v;
}

/* An input that may be left out: false if there was no memory for it. */
static bool norm_optional(const fl_launch *l, const fl_view *v, fl_dtype type,
                          const void **to) {
  *to = v && v->data ? FL_CPU(input)(l, v, type) : NULL;
  return *to || !v || !v->data;
}

static void norm_zero(const fl_view *v) {
  if (v)
    memset(v->data, 0, fl_view_bytes(v));
}

/* --- rows --- */

_Static_assert(FL_ATTR_layer_norm_eps == FL_ATTR_rms_norm_eps &&
                   FL_IN_layer_norm_weight == FL_IN_rms_norm_weight &&
                   FL_IN_layer_norm_backward_x == FL_IN_rms_norm_backward_x &&
                   FL_IN_layer_norm_backward_weight ==
                       FL_IN_rms_norm_backward_weight &&
                   FL_OUT_layer_norm_backward_dw == FL_OUT_rms_norm_backward_dw,
               "one function for both rows");

static fl_status forward_rows(const fl_launch *l, const fl_view *bias,
                              const fl_view *mean, const fl_view *rstd) {
  const fl_view *x = &l->in[FL_IN_layer_norm_x];
  fl_dtype type = fl_cpu_wide(x->dtype);
  int64_t rows = fl_view_numel(rstd), total = fl_view_numel(x);
  norm_job j = {.n = rows ? total / rows : 0,
                .eps = l->attrs->v[FL_ATTR_layer_norm_eps].f,
                .centre = mean != NULL};
  if (rows == 0)
    return FL_OK;
  j.rstd = FL_CPU(output)(l, rstd, type);
  j.mean = mean ? FL_CPU(output)(l, mean, type) : NULL;
  if (!j.rstd || (mean && !j.mean))
    return FL_ENOMEM;
  if (total) {
    j.x = FL_CPU(input)(l, x, type);
    j.y = FL_CPU(output)(l, &l->out[0], type);
    if (!j.x || !j.y ||
        !norm_optional(l, &l->in[FL_IN_layer_norm_weight], type, &j.weight) ||
        !norm_optional(l, bias, type, &j.bias))
      return FL_ENOMEM;
  }
  fl_cpu_parallel(l, rows, j.n < GRAIN ? GRAIN / at_least(j.n, 1) : 1,
                  FL_OF_FLOAT(norm, type)->forward, &j);
  if (total)
    FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (mean)
    FL_CPU(finish)(l, mean, type, j.mean);
  FL_CPU(finish)(l, rstd, type, j.rstd);
  return FL_OK;
}

FL_KERNEL(layer_norm) {
  return forward_rows(l, &l->in[FL_IN_layer_norm_bias],
                      &l->out[FL_OUT_layer_norm_mean],
                      &l->out[FL_OUT_layer_norm_rstd]);
}

FL_KERNEL(rms_norm) {
  return forward_rows(l, NULL, NULL, &l->out[FL_OUT_rms_norm_rstd]);
}

/* in: dy, x, weight, [mean], rstd; out: dx, dw, [db] */
static fl_status backward_rows(const fl_launch *l, const fl_view *mean,
                               const fl_view *rstd, const fl_view *db) {
  const fl_view *w = &l->in[FL_IN_layer_norm_backward_weight],
                *dw = &l->out[FL_OUT_layer_norm_backward_dw];
  fl_dtype type = fl_cpu_wide(l->in[FL_IN_layer_norm_backward_x].dtype);
  const norm_kernels *k = FL_OF_FLOAT(norm, type);
  int64_t rows = fl_view_numel(rstd),
          total = fl_view_numel(&l->in[FL_IN_layer_norm_backward_x]);
  norm_job j = {.n = rows ? total / rows : 0, .centre = mean != NULL};
  if (total == 0) { /* no rows, but perhaps weights: their gradient is 0 */
    norm_zero(dw);
    norm_zero(db);
    return FL_OK;
  }
  j.grain = at_least(GRAIN / j.n, 1);
  j.grain = at_least(j.grain, fl_ceil_div(rows, MOST_PIECES));
  if (w->data) /* the pieces' sums must cost little beside the pieces */
    j.grain = at_least(j.grain, 16);
  j.pieces = fl_ceil_div(rows, j.grain);
  const void *given;
  j.dy = FL_CPU(input)(l, &l->in[FL_IN_layer_norm_backward_dy], type);
  j.x = FL_CPU(input)(l, &l->in[FL_IN_layer_norm_backward_x], type);
  j.y = FL_CPU(output)(l, &l->out[0], type);
  if (!j.dy || !j.x || !j.y || !norm_optional(l, w, type, &j.weight) ||
      !norm_optional(l, mean, type, &given))
    return FL_ENOMEM;
  j.mean = (void *)(uintptr_t)given;
  if (!norm_optional(l, rstd, type, &given))
    return FL_ENOMEM;
  j.rstd = (void *)(uintptr_t)given;
  if (j.weight) {
    size_t each = (size_t)(j.pieces * 2 * j.n);
    j.parts = fl_scratch_get(l, each * sizeof(double));
    j.spells = fl_scratch_get(l, each * fl_dtype_size(type));
    j.dw = FL_CPU(output)(l, dw, type);
    j.db = db ? FL_CPU(output)(l, db, type) : NULL;
    if (!j.parts || !j.spells || !j.dw || (db && !j.db))
      return FL_ENOMEM;
  }
  fl_cpu_parallel(l, rows, j.grain, k->backward, &j);
  FL_CPU(finish)(l, &l->out[0], type, j.y);
  if (!j.weight)
    return FL_OK;
  fl_cpu_parallel(l, j.n, at_least(GRAIN / (2 * j.pieces), 16), k->weights, &j);
  FL_CPU(finish)(l, dw, type, j.dw);
  if (db)
    FL_CPU(finish)(l, db, type, j.db);
  return FL_OK;
}

FL_KERNEL(layer_norm_backward) {
  return backward_rows(l, &l->in[FL_IN_layer_norm_backward_mean],
                       &l->in[FL_IN_layer_norm_backward_rstd],
                       &l->out[FL_OUT_layer_norm_backward_db]);
}

FL_KERNEL(rms_norm_backward) {
  return backward_rows(l, NULL, &l->in[FL_IN_rms_norm_backward_rstd], NULL);
}
