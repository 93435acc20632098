/* The elementwise halves of recurrent cells, fused: LSTM (gates in the order
 * input, forget, cell, output) and GRU (reset, update, new), each with its
 * gradient; and both over time. Loops are in rnn_typed.c. */
#include "rnn.h"

#include <string.h>

/* Sequences for each thread from which each goes through time on its own, those
 * that one takes at least, and multiply-adds of a step that are worth going
 * together. */
#define ENOUGH   8
#define LEAST    4
#define TOGETHER (1 << 20)

/* Runs over the rows of a state like in[`state`]. */
static fl_status rnn_run(const fl_launch *l, int state, int cell) {
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
                  FL_OF_FLOAT(rnn, d)->cell[cell], &r);
  for (int k = 0; k < l->n_out; k++)
    FL_CPU(finish)(l, &l->out[k], d, r.out[k]);
  return FL_OK;
}

/* gates, c -> h, c2, act */
FL_KERNEL(lstm_cell) {
  return rnn_run(l, FL_IN_lstm_cell_c, RNN_LSTM);
}

/* dh, dc, c, c2, act -> dgates, dc1 */
FL_KERNEL(lstm_cell_backward) {
  return rnn_run(l, FL_IN_lstm_cell_backward_c, RNN_LSTM_BACK);
}

/* gi, gh, h -> y, act */
FL_KERNEL(gru_cell) {
  return rnn_run(l, FL_IN_gru_cell_h, RNN_GRU);
}

/* dy, gh, h, act -> dgi, dgh, dh */
FL_KERNEL(gru_cell_backward) {
  return rnn_run(l, FL_IN_gru_cell_backward_h, RNN_GRU_BACK);
}

/* Whether each thread takes some of the batch through all of time; how many it
 * takes at least. */
static bool rnn_apart(const sequence *s, int64_t *least) {
  int64_t threads = fl_cpu_pool_threads((const fl_cpu_pool *)s->launch->stream);
  int64_t each = fl_ceil_div(s->batch, threads);
  *least = each < LEAST ? LEAST : each;
  return threads == 1 || s->batch >= ENOUGH * threads ||
         (double)s->batch * (double)s->n * (double)s->n * 4 < TOGETHER;
}

/* The share of the state in a step is a product with weight (parts n, n), or
 * with its transpose, which is put in order once. Rows of act have 4 n. */
static fl_status rnn_ready(sequence *s, bool turned, const void *weight) {
  int64_t sums = s->parts * s->n, n = turned ? sums : s->n,
          k = turned ? s->n : sums, columns = FL_PACKED(n);
  void *room = fl_scratch_get(s->launch,
                              (size_t)(columns * k) * fl_dtype_size(s->dtype));
  if (!room)
    return FL_ENOMEM;
  s->product = (fl_cpu_product){.packed = true,
                                .n = n,
                                .k = k,
                                .lda = k,
                                .b = room,
                                .ldb = columns,
                                .ldc = turned ? 4 * s->n : n};
  (s->dtype == FL_F64 ? FL_CPU(pack_f64)
                      : FL_CPU(pack_f32))(turned, n, k, weight, s->n, room);
  return FL_OK;
}

/* The operands of a launch as contiguous memory of the type computed in. */
static fl_status rnn_take(sequence *s, const void **in, void **out) {
  const fl_launch *l = s->launch;
  s->dtype = FL_F32;
  for (int k = 0; k < l->n_in; k++)
    if (l->in[k].data && l->in[k].dtype == FL_F64)
      s->dtype = FL_F64;
  for (int k = 0; k < l->n_in; k++) {
    in[k] = NULL;
    if (l->in[k].data && !(in[k] = FL_CPU(input)(l, &l->in[k], s->dtype)))
      return FL_ENOMEM;
  }
  for (int k = 0; k < l->n_out; k++)
    if (!(out[k] = FL_CPU(output)(l, &l->out[k], s->dtype)))
      return FL_ENOMEM;
  return FL_OK;
}

static fl_status rnn_give(const sequence *s, fl_status status, void **out) {
  const fl_launch *l = s->launch;
  if (status == FL_OK && fl_cpu_interrupted(l))
    status = fl_cpu_stopped(l);
  for (int k = 0; k < l->n_out && status == FL_OK; k++)
    FL_CPU(finish)(l, &l->out[k], s->dtype, out[k]);
  return status;
}

/* All of time, once s has the operands. */
static fl_status run_steps(sequence *s, const void *weight, void **out) {
  const rnn_kernels *k = FL_OF_FLOAT(rnn, s->dtype);
  int64_t least;
  fl_status status = rnn_ready(s, true, weight);
  if (status != FL_OK)
    return status;
  if (rnn_apart(s, &least))
    fl_cpu_parallel(s->launch, s->batch, least, k->apart, s);
  else
    status = k->together(s);
  return rnn_give(s, status, out);
}

static fl_status run_back(sequence *s, const void *weight, bool add,
                          void **out) {
  const rnn_kernels *k = FL_OF_FLOAT(rnn, s->dtype);
  int64_t least;
  size_t state = (size_t)(s->batch * s->n) * fl_dtype_size(s->dtype);
  memset(s->dh, 0, state);
  if (s->dc)
    memset(s->dc, 0, state);
  fl_status status = rnn_ready(s, false, weight);
  if (status != FL_OK)
    return status;
  s->product.add = add;
  if (rnn_apart(s, &least))
    fl_cpu_parallel(s->launch, s->batch, least, k->back_apart, s);
  else
    status = k->back_together(s);
  return rnn_give(s, status, out);
}

_Static_assert(FL_ATTR_lstm_reverse == FL_ATTR_gru_reverse &&
                   FL_ATTR_lstm_reverse == FL_ATTR_lstm_backward_reverse &&
                   FL_ATTR_lstm_reverse == FL_ATTR_gru_backward_reverse,
               "read for four rows");

/* Of a state (time, batch, n) and the gates of each. */
static sequence sequence_of(const fl_launch *l, const fl_view *y,
                            int64_t parts) {
  return (sequence){.launch = l,
                    .time = y->shape[0],
                    .batch = y->shape[1],
                    .n = y->shape[2],
                    .parts = parts,
                    .reverse = l->attrs->v[FL_ATTR_lstm_reverse].i};
}

/* gates (time, batch, 4 n), weight (4 n, n), h, c (batch, n) -> y, cs, act */
FL_KERNEL(lstm) {
  sequence s = sequence_of(l, &l->out[0], 4);
  const void *in[4];
  void *out[3];
  if (fl_view_numel(&l->out[0]) == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.gates = in[FL_IN_lstm_gates], s.h = in[FL_IN_lstm_h],
  s.c = in[FL_IN_lstm_c];
  s.y = out[FL_OUT_lstm_y], s.cs = out[FL_OUT_lstm_cs],
  s.act = out[FL_OUT_lstm_act];
  s.cells = FL_OF_FLOAT(rnn, s.dtype)->lstm_cells;
  return run_steps(&s, in[FL_IN_lstm_weight], out);
}

/* dy, dcs, dact, weight, c, cs, act -> dgates, dh, dc */
FL_KERNEL(lstm_backward) {
  sequence s = sequence_of(l, &l->in[FL_IN_lstm_backward_cs], 4);
  const void *in[7];
  void *out[3];
  if (s.batch * s.n == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.dy = in[FL_IN_lstm_backward_dy], s.dcs = in[FL_IN_lstm_backward_dcs],
  s.dact = in[FL_IN_lstm_backward_dact];
  s.c = in[FL_IN_lstm_backward_c],
  s.cs = (void *)(uintptr_t)in[FL_IN_lstm_backward_cs];
  s.act = (void *)(uintptr_t)in[FL_IN_lstm_backward_act];
  s.dgates = s.dsums = out[FL_OUT_lstm_backward_dgates],
  s.dh = out[FL_OUT_lstm_backward_dh], s.dc = out[FL_OUT_lstm_backward_dc];
  s.back_cells = FL_OF_FLOAT(rnn, s.dtype)->lstm_back_cells;
  return run_back(&s, in[FL_IN_lstm_backward_weight], false, out);
}

/* gates (time, batch, 3 n), weight (3 n, n), bias, h (batch, n) -> y, act */
FL_KERNEL(gru) {
  sequence s = sequence_of(l, &l->out[0], 3);
  const void *in[4];
  void *out[2];
  if (fl_view_numel(&l->out[0]) == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.gates = in[FL_IN_gru_gates], s.bias = in[FL_IN_gru_bias],
  s.h = in[FL_IN_gru_h];
  s.y = out[FL_OUT_gru_y], s.act = out[FL_OUT_gru_act];
  s.cells = FL_OF_FLOAT(rnn, s.dtype)->gru_cells;
  return run_steps(&s, in[FL_IN_gru_weight], out);
}

/* dy, dact, weight, h, y, act -> dgates, dsums, dh */
FL_KERNEL(gru_backward) {
  sequence s = sequence_of(l, &l->in[FL_IN_gru_backward_y], 3);
  const void *in[6];
  void *out[3];
  if (s.batch * s.n == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.dy = in[FL_IN_gru_backward_dy], s.dact = in[FL_IN_gru_backward_dact],
  s.h = in[FL_IN_gru_backward_h];
  s.y = (void *)(uintptr_t)in[FL_IN_gru_backward_y];
  s.act = (void *)(uintptr_t)in[FL_IN_gru_backward_act];
  s.dgates = out[FL_OUT_gru_backward_dgates],
  s.dsums = out[FL_OUT_gru_backward_dsums], s.dh = out[FL_OUT_gru_backward_dh];
  s.back_cells = FL_OF_FLOAT(rnn, s.dtype)->gru_back_cells;
  return run_back(&s, in[FL_IN_gru_backward_weight], true, out);
}
