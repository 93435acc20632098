/* The elementwise halves of recurrent cells, fused: LSTM (gates in the order
 * input, forget, cell, output) and GRU (reset, update, new), each with its
 * gradient. Loops are in rnn.inc. */
#include "../../runtime/math.h"
#include "cpu.h"

#include <string.h>

typedef struct rnn {
  int64_t n;         /* size of the state */
  const void *in[5]; /* contiguous, of the type computed in; NULL: left out */
  void *out[3];
} rnn;

#define T        float
#define NM(name) name##_f32
#include "rnn.inc"
#undef T
#undef NM
#define T        double
#define NM(name) name##_f64
#include "rnn.inc"
#undef T
#undef NM

/* Runs over the rows of a state like in[`state`]. */
static fl_status rnn_run(const fl_launch *l, int state, fl_cpu_task f32,
                         fl_cpu_task f64) {
  const fl_view *s = &l->in[state];
  fl_dtype d = FL_F32;
  rnn r = {.n = s->shape[s->ndim - 1]};
  for (int k = 0; k < l->n_in; k++)
    if (l->in[k].data && l->in[k].dtype == FL_F64)
      d = FL_F64;
  if (fl_view_numel(s) == 0)
    return FL_OK;
  for (int k = 0; k < l->n_in; k++)
    if (l->in[k].data && !(r.in[k] = FL_CPU(input)(l, &l->in[k], d)))
      return FL_ENOMEM;
  for (int k = 0; k < l->n_out; k++)
    if (!(r.out[k] = FL_CPU(output)(l, &l->out[k], d)))
      return FL_ENOMEM;
  fl_cpu_parallel(l, fl_view_numel(s) / r.n, 1 + 4096 / r.n,
                  d == FL_F64 ? f64 : f32, &r);
  for (int k = 0; k < l->n_out; k++)
    FL_CPU(finish)(l, &l->out[k], d, r.out[k]);
  return FL_OK;
}

/* gates, c -> h, c2, act */
FL_KERNEL(lstm_cell) {
  return rnn_run(l, 1, lstm_f32, lstm_f64);
}

/* dh, dc, c, c2, act -> dgates, dc1 */
FL_KERNEL(lstm_cell_backward) {
  return rnn_run(l, 2, lstm_back_f32, lstm_back_f64);
}

/* gi, gh, h -> y, act */
FL_KERNEL(gru_cell) {
  return rnn_run(l, 2, gru_f32, gru_f64);
}

/* dy, gh, h, act -> dgi, dgh, dh */
FL_KERNEL(gru_cell_backward) {
  return rnn_run(l, 2, gru_back_f32, gru_back_f64);
}
