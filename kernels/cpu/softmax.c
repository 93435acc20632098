/* softmax, log_softmax and their gradients: rows (or tiles of columns, when the
 * dim is not the last) that stay in the cache between their passes. */
#include "softmax.h"

#include <math.h>

#define GRAIN 8192 /* elements worth a thread's while */
/* A row in pieces: every piece by itself, then all by what they found. */
static fl_status long_rows(const fl_launch *l, fl_dtype type, int64_t outer,
                           softmax_job *j) {
  size_t tasks = (size_t)(outer * j->pieces);
  j->top = fl_scratch_get(l, 2 * tasks * sizeof(double));
  if (!j->top)
    return FL_ENOMEM;
  j->sum = j->top + tasks;
  const softmax_kernels *k = FL_OF_FLOAT(softmax, type);
  bool back = j->y != NULL;
  fl_status s = fl_cpu_stoppable(l, (int64_t)tasks, 1,
                                 back ? k->back_begin : k->begin, j);
  if (s != FL_OK)
    return s;
  for (int64_t r = 0; r < outer; r++) {
    double *top = j->top + r * j->pieces, *sum = j->sum + r * j->pieces;
    double most = top[0], total = 0;
    for (int64_t p = 1; p < j->pieces; p++)
      most = top[p] > most || top[p] != top[p] ? top[p] : most;
    for (int64_t p = 0; p < j->pieces; p++)
      total += top[p] == most ? sum[p] : sum[p] * exp(top[p] - most);
    /* what every piece is to be shifted or multiplied with */
    for (int64_t p = 0; p < j->pieces; p++) {
      sum[p] = back           ? total
               : j->logarithm ? log(total)
                              : exp(top[p] - most) / total;
      top[p] = most;
    }
  }
  return fl_cpu_stoppable(l, (int64_t)tasks, 1, back ? k->back_end : k->end, j);
}

_Static_assert(FL_ATTR_softmax_dim == FL_ATTR_log_softmax_dim &&
                   FL_ATTR_softmax_dim == FL_ATTR_softmax_backward_dim &&
                   FL_ATTR_softmax_dim == FL_ATTR_log_softmax_backward_dim &&
                   FL_IN_softmax_backward_y == FL_IN_log_softmax_backward_y,
               "one function for four rows");

static fl_status softmax_run(const fl_launch *l, bool backward,
                             bool logarithm) {
  const fl_view *x = &l->in[FL_IN_softmax_x];
  fl_dtype type = fl_cpu_wide(x->dtype);
  int dim = (int)l->attrs->v[FL_ATTR_softmax_dim].i;
  int64_t total = fl_view_numel(x);
  softmax_job j = {
      .n = x->ndim ? x->shape[dim] : 1, .inner = 1, .logarithm = logarithm};
  for (int i = dim + 1; i < x->ndim; i++)
    j.inner *= x->shape[i];
  if (total == 0)
    return FL_OK;
  j.x = FL_CPU(input)(l, x, type);
  j.y = backward ? FL_CPU(input)(l, &l->in[FL_IN_softmax_backward_y], type)
                 : NULL;
  j.out = FL_CPU(output)(l, &l->out[0], type);
  if (!j.x || !j.out || (backward && !j.y))
    return FL_ENOMEM;
  int64_t outer = total / j.n / j.inner;
  j.tiles = fl_ceil_div(j.inner, TILE);
  j.pieces = j.inner == 1 && j.n > 8 * GRAIN ? fl_ceil_div(j.n, 4 * GRAIN) : 1;
  j.piece = fl_ceil_div(j.n, j.pieces);
  j.pieces = fl_ceil_div(j.n, j.piece);
  fl_status s;
  if (j.pieces > 1) {
    s = long_rows(l, type, outer, &j);
  } else {
    int64_t each = j.n * (j.inner < TILE ? j.inner : TILE);
    s = fl_cpu_stoppable(l, outer * j.tiles, each < GRAIN ? GRAIN / each : 1,
                         FL_OF_FLOAT(softmax, type)->task, &j);
  }
  if (s == FL_OK)
    FL_CPU(finish)(l, &l->out[0], type, j.out);
  return s;
}

FL_KERNEL(softmax) {
  return softmax_run(l, false, false);
}

FL_KERNEL(log_softmax) {
  return softmax_run(l, false, true);
}

FL_KERNEL(softmax_backward) {
  return softmax_run(l, true, false);
}

FL_KERNEL(log_softmax_backward) {
  return softmax_run(l, true, true);
}
