/* What rnn.c plans and rnn_typed.c computes. */
#ifndef FL_CPU_RNN_H
#define FL_CPU_RNN_H

#include "gemm.h"

typedef struct rnn {
  int64_t n;         /* size of the state */
  const void *in[5]; /* contiguous, of the type computed in; NULL: left out */
  void *out[3];
} rnn;

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

static inline moment moment_of(const sequence *s, int64_t k) {
  if (!s->reverse)
    return (moment){s, k, k - 1};
  return (moment){s, s->time - 1 - k, k ? s->time - k : -1};
}

enum { RNN_LSTM, RNN_LSTM_BACK, RNN_GRU, RNN_GRU_BACK, RNN_CELLS };

typedef struct rnn_kernels {
  fl_cpu_task cell[RNN_CELLS]; /* rows of an rnn */
  /* rows of the batch through all of time; all of the batch, step by step */
  fl_cpu_task apart, back_apart;
  fl_status (*together)(const sequence *s);
  fl_status (*back_together)(const sequence *s);
  void (*lstm_cells)(void *m, int64_t i, int64_t rows, int64_t j, int64_t cols);
  void (*gru_cells)(void *m, int64_t i, int64_t rows, int64_t j, int64_t cols);
  fl_cpu_task lstm_back_cells, gru_back_cells;
} rnn_kernels;
extern const rnn_kernels FL_CPU(rnn_f32), FL_CPU(rnn_f64);

#endif
