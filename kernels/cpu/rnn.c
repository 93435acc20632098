/* The elementwise halves of recurrent cells, fused: LSTM (gates in the order
 * input, forget, cell, output) and GRU (reset, update, new), each with its
 * gradient; and both over time. Loops are in rnn.inc. */
#include "../../runtime/math/math.h"
#include "gemm.h"

#include <string.h>

typedef struct rnn {
  int64_t n;         /* size of the state */
  const void *in[5]; /* contiguous, of the type computed in; NULL: left out */
  void *out[3];
} rnn;

/* Sequences for each thread from which each goes through time on its own, those
 * that one takes at least, and multiply-adds of a step that are worth going
 * together. */
#define ENOUGH   8
#define LEAST    4
#define TOGETHER (1 << 20)

typedef struct sequence {
  const fl_launch *launch;
  fl_dtype dtype;
  int64_t time, batch, n;
  int64_t parts; /* of a product: 4 of an LSTM, 3 of a GRU */
  bool reverse;
  void (*cells)(void *moment, int64_t i, int64_t rows, int64_t j, int64_t cols);
  fl_cpu_task back_cells;
  const void *gates, *bias, *h, *c;
  void *y, *cs, *act;
  const void *dy, *dcs, *dact; /* NULL: left out */
  void *dgates, *dh, *dc;
  void *dsums;            /* of what the products gave */
  fl_cpu_product product; /* of a step, without its rows */
} sequence;

typedef struct moment { /* a step: where it is, and the one before it or -1 */
  const sequence *of;
  int64_t now, before;
} moment;

static moment moment_of(const sequence *s, int64_t k) {
  if (!s->reverse)
    return (moment){s, k, k - 1};
  return (moment){s, s->time - 1 - k, k ? s->time - k : -1};
}

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
  bool wide = s->dtype == FL_F64;
  int64_t least;
  fl_status status = rnn_ready(s, true, weight);
  if (status != FL_OK)
    return status;
  if (rnn_apart(s, &least))
    fl_cpu_parallel(s->launch, s->batch, least, wide ? apart_f64 : apart_f32,
                    s);
  else
    status = wide ? together_f64(s) : together_f32(s);
  return rnn_give(s, status, out);
}

static fl_status run_back(sequence *s, const void *weight, bool add,
                          void **out) {
  bool wide = s->dtype == FL_F64;
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
    fl_cpu_parallel(s->launch, s->batch, least,
                    wide ? back_apart_f64 : back_apart_f32, s);
  else
    status = wide ? back_together_f64(s) : back_together_f32(s);
  return rnn_give(s, status, out);
}

/* Of a state (time, batch, n) and the gates of each. */
static sequence sequence_of(const fl_launch *l, const fl_view *y,
                            int64_t parts) {
  return (sequence){.launch = l,
                    .time = y->shape[0],
                    .batch = y->shape[1],
                    .n = y->shape[2],
                    .parts = parts,
                    .reverse = l->attrs->v[0].i};
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
  s.gates = in[0], s.h = in[2], s.c = in[3];
  s.y = out[0], s.cs = out[1], s.act = out[2];
  s.cells = s.dtype == FL_F64 ? lstm_cells_f64 : lstm_cells_f32;
  return run_steps(&s, in[1], out);
}

/* dy, dcs, dact, weight, c, cs, act -> dgates, dh, dc */
FL_KERNEL(lstm_backward) {
  sequence s = sequence_of(l, &l->in[5], 4);
  const void *in[7];
  void *out[3];
  if (s.batch * s.n == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.dy = in[0], s.dcs = in[1], s.dact = in[2];
  s.c = in[4], s.cs = (void *)(uintptr_t)in[5];
  s.act = (void *)(uintptr_t)in[6];
  s.dgates = s.dsums = out[0], s.dh = out[1], s.dc = out[2];
  s.back_cells = s.dtype == FL_F64 ? lstm_back_cells_f64 : lstm_back_cells_f32;
  return run_back(&s, in[3], false, out);
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
  s.gates = in[0], s.bias = in[2], s.h = in[3];
  s.y = out[0], s.act = out[1];
  s.cells = s.dtype == FL_F64 ? gru_cells_f64 : gru_cells_f32;
  return run_steps(&s, in[1], out);
}

/* dy, dact, weight, h, y, act -> dgates, dsums, dh */
FL_KERNEL(gru_backward) {
  sequence s = sequence_of(l, &l->in[4], 3);
  const void *in[6];
  void *out[3];
  if (s.batch * s.n == 0)
    return FL_OK;
  fl_status status = rnn_take(&s, in, out);
  if (status != FL_OK)
    return status;
  s.dy = in[0], s.dact = in[1], s.h = in[3];
  s.y = (void *)(uintptr_t)in[4];
  s.act = (void *)(uintptr_t)in[5];
  s.dgates = out[0], s.dsums = out[1], s.dh = out[2];
  s.back_cells = s.dtype == FL_F64 ? gru_back_cells_f64 : gru_back_cells_f32;
  return run_back(&s, in[2], true, out);
}
