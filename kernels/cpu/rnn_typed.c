/* The loops of rnn.c for one float type, over rows begin..end of the state. */
#include "../../runtime/math/math.h"
#include "rnn.h"
#include "typed.h"

/* One row of an LSTM. What is added to its gates may be a zero with step 0; act
 * may lie where the gates do. */
static inline void lstm_row(int64_t n, const T *g, const T *more, int64_t step,
                            const T *restrict c, T *restrict h, T *restrict c2,
                            T *act) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T i = fl_sigmoid(g[j] + more[j * step]),
      f = fl_sigmoid(g[n + j] + more[(n + j) * step]),
      x = fl_tanh(g[2 * n + j] + more[(2 * n + j) * step]),
      o = fl_sigmoid(g[3 * n + j] + more[(3 * n + j) * step]);
    T s = f * c[j] + i * x;
    c2[j] = s;
    h[j] = o * fl_tanh(s);
    act[j] = i;
    act[n + j] = f;
    act[2 * n + j] = x;
    act[3 * n + j] = o;
  }
}

static void lstm(void *context, int64_t begin, int64_t end) {
  const rnn *r = context;
  static const T zero = 0;
  int64_t n = r->n;
  for (int64_t row = begin; row < end; row++)
    lstm_row(n, (const T *)r->in[FL_IN_lstm_cell_gates] + row * 4 * n, &zero, 0,
             (const T *)r->in[FL_IN_lstm_cell_c] + row * n,
             (T *)r->out[FL_OUT_lstm_cell_h] + row * n,
             (T *)r->out[FL_OUT_lstm_cell_c2] + row * n,
             (T *)r->out[FL_OUT_lstm_cell_act] + row * 4 * n);
}

/* --- over time --- */

/* The cells of some of the batch, of which act has the states' share. */
static void lstm_cells(void *context, int64_t i, int64_t rows, int64_t j,
                       int64_t cols) {
  const moment *m = context;
  const sequence *s = m->of;
  int64_t n = s->n;
  const T *c =
      m->before < 0 ? s->c : (const T *)s->cs + m->before * s->batch * n;
  (void)j, (void)cols; /* all of them */
  for (int64_t row = i; row < i + rows; row++) {
    int64_t at = (m->now * s->batch + row) * n;
    T *act = (T *)s->act + 4 * at;
    lstm_row(n, act, (const T *)s->gates + 4 * at, 1, c + row * n,
             (T *)s->y + at, (T *)s->cs + at, act);
  }
}

static void cells_task(void *context, int64_t begin, int64_t end) {
  const moment *m = context;
  m->of->cells(context, begin, end - begin, 0, 0);
}

/* The product of one step, of some of the batch. */
static fl_cpu_product step_product(const moment *m, int64_t begin,
                                   int64_t end) {
  const sequence *s = m->of;
  fl_cpu_product p = s->product;
  const T *h =
      m->before < 0 ? s->h : (const T *)s->y + m->before * s->batch * s->n;
  p.m = end - begin;
  p.i0 = begin;
  p.a = h + begin * s->n;
  p.c = (T *)s->act + (m->now * s->batch + begin) * 4 * s->n;
  return p;
}

/* All steps of some of the batch: they need nothing of the others. */
static void apart(void *context, int64_t begin, int64_t end) {
  const sequence *s = context;
  for (int64_t k = 0; k < s->time && !fl_cpu_interrupted(s->launch); k++) {
    moment m = moment_of(s, k);
    fl_cpu_product p = step_product(&m, begin, end);
    p.done = s->cells;
    p.context = &m;
    FL_TYPED(product)(&p);
  }
}

/* Step by step, each by all threads. */
static fl_status together(const sequence *s) {
  for (int64_t k = 0; k < s->time; k++) {
    moment m = moment_of(s, k);
    fl_cpu_product p = step_product(&m, 0, s->batch);
    fl_status got = FL_CPU(product)(s->launch, s->dtype, &p);
    if (got != FL_OK)
      return got;
    fl_cpu_parallel(s->launch, s->batch, 1 + 4096 / s->n, cells_task, &m);
  }
  return FL_OK;
}

/* One row; dh, dc and more, which comes to the activated gates, may be a zero
 * with step 0; dc1 may lie where dc does. */
static inline void lstm_back_row(int64_t n, const T *restrict dh,
                                 int64_t dh_step, const T *dc, int64_t dc_step,
                                 const T *more, int64_t step,
                                 const T *restrict c, const T *restrict c2,
                                 const T *restrict act, T *restrict dg,
                                 T *dc1) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T i = act[j], f = act[n + j], x = act[2 * n + j], o = act[3 * n + j];
    T t = fl_tanh(c2[j]), d = dh[j * dh_step];
    T s = dc[j * dc_step] + d * o * (1 - t * t);
    dg[j] = (s * x + more[j * step]) * i * (1 - i);
    dg[n + j] = (s * c[j] + more[(n + j) * step]) * f * (1 - f);
    dg[2 * n + j] = (s * i + more[(2 * n + j) * step]) * (1 - x * x);
    dg[3 * n + j] = (d * t + more[(3 * n + j) * step]) * o * (1 - o);
    dc1[j] = s * f;
  }
}

static void lstm_back(void *context, int64_t begin, int64_t end) {
  const rnn *r = context;
  static const T zero = 0;
  int64_t n = r->n;
  for (int64_t row = begin; row < end; row++) {
    const T *dh = r->in[FL_IN_lstm_cell_backward_dh]
                      ? (const T *)r->in[FL_IN_lstm_cell_backward_dh] + row * n
                      : &zero,
            *dc = r->in[FL_IN_lstm_cell_backward_dc]
                      ? (const T *)r->in[FL_IN_lstm_cell_backward_dc] + row * n
                      : &zero;
    const T *c = (const T *)r->in[FL_IN_lstm_cell_backward_c] + row * n,
            *c2 = (const T *)r->in[FL_IN_lstm_cell_backward_c2] + row * n,
            *act = (const T *)r->in[FL_IN_lstm_cell_backward_act] + row * 4 * n;
    T *dg = (T *)r->out[FL_OUT_lstm_cell_backward_dgates] + row * 4 * n,
      *dc1 = (T *)r->out[FL_OUT_lstm_cell_backward_dc1] + row * n;
    if (r->in[FL_IN_lstm_cell_backward_dh] &&
        r->in[FL_IN_lstm_cell_backward_dc])
      lstm_back_row(n, dh, 1, dc, 1, &zero, 0, c, c2, act, dg, dc1);
    else if (r->in[FL_IN_lstm_cell_backward_dh])
      lstm_back_row(n, dh, 1, dc, 0, &zero, 0, c, c2, act, dg, dc1);
    else
      lstm_back_row(n, dh, 0, dc, r->in[FL_IN_lstm_cell_backward_dc] != NULL,
                    &zero, 0, c, c2, act, dg, dc1);
  }
}

/* The cells of some of the batch; dh and dc hold what has come back of the
 * step after. */
static void lstm_back_cells(void *context, int64_t begin, int64_t end) {
  const moment *m = context;
  const sequence *s = m->of;
  static const T zero = 0;
  int64_t n = s->n;
  const T *c =
      m->before < 0 ? s->c : (const T *)s->cs + m->before * s->batch * n;
  for (int64_t row = begin; row < end; row++) {
    int64_t at = (m->now * s->batch + row) * n;
    T *dh = (T *)s->dh + row * n, *dc = (T *)s->dc + row * n;
    const T *dy = s->dy ? (const T *)s->dy + at : NULL,
            *dcs = s->dcs ? (const T *)s->dcs + at : NULL,
            *dact = s->dact ? (const T *)s->dact + 4 * at : &zero;
    for (int64_t j = 0; dy && j < n; j++)
      dh[j] += dy[j];
    for (int64_t j = 0; dcs && j < n; j++)
      dc[j] += dcs[j];
    lstm_back_row(n, dh, 1, dc, 1, dact, s->dact != NULL, c + row * n,
                  (const T *)s->cs + at, (const T *)s->act + 4 * at,
                  (T *)s->dgates + 4 * at, dc);
  }
}

static fl_cpu_product back_product(const moment *m, int64_t begin,
                                   int64_t end) {
  const sequence *s = m->of;
  fl_cpu_product p = s->product;
  p.m = end - begin;
  p.i0 = begin;
  p.a = (const T *)s->dsums + (m->now * s->batch + begin) * p.lda;
  p.c = (T *)s->dh + begin * s->n;
  return p;
}

static void back_apart(void *context, int64_t begin, int64_t end) {
  const sequence *s = context;
  for (int64_t k = s->time - 1; k >= 0 && !fl_cpu_interrupted(s->launch); k--) {
    moment m = moment_of(s, k);
    fl_cpu_product p = back_product(&m, begin, end);
    s->back_cells(&m, begin, end);
    FL_TYPED(product)(&p);
  }
}

static fl_status back_together(const sequence *s) {
  fl_status got = FL_OK;
  for (int64_t k = s->time - 1; k >= 0 && got == FL_OK; k--) {
    moment m = moment_of(s, k);
    fl_cpu_product p = back_product(&m, 0, s->batch);
    fl_cpu_parallel(s->launch, s->batch, 1 + 4096 / s->n, s->back_cells, &m);
    got = FL_CPU(product)(s->launch, s->dtype, &p);
  }
  return got;
}

/* One row of a GRU, whose products may lie where act does: then what the reset
 * gate is multiplied with is kept behind the gates. What is added to the
 * products may be a zero with step 0. */
static inline __attribute__((always_inline)) void
gru_row(int64_t n, const T *gi, const T *gh, const T *more, int64_t step,
        const T *restrict h, T *restrict y, T *act, bool keep) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T r = fl_sigmoid(gi[j] + (gh[j] + more[j * step])),
      z = fl_sigmoid(gi[n + j] + (gh[n + j] + more[(n + j) * step])),
      own = gh[2 * n + j] + more[(2 * n + j) * step];
    T x = fl_tanh(gi[2 * n + j] + r * own);
    y[j] = x + z * (h[j] - x);
    act[j] = r;
    act[n + j] = z;
    act[2 * n + j] = x;
    if (keep)
      act[3 * n + j] = own;
  }
}

static void gru(void *context, int64_t begin, int64_t end) {
  const rnn *p = context;
  static const T zero = 0;
  int64_t n = p->n;
  for (int64_t row = begin; row < end; row++)
    gru_row(n, (const T *)p->in[FL_IN_gru_cell_gi] + row * 3 * n,
            (const T *)p->in[FL_IN_gru_cell_gh] + row * 3 * n, &zero, 0,
            (const T *)p->in[FL_IN_gru_cell_h] + row * n,
            (T *)p->out[FL_OUT_gru_cell_y] + row * n,
            (T *)p->out[FL_OUT_gru_cell_act] + row * 3 * n, false);
}

static void gru_cells(void *context, int64_t i, int64_t rows, int64_t j,
                      int64_t cols) {
  const moment *m = context;
  const sequence *s = m->of;
  static const T zero = 0;
  int64_t n = s->n;
  const T *h =
      m->before < 0 ? s->h : (const T *)s->y + m->before * s->batch * n;
  (void)j, (void)cols; /* all of them */
  for (int64_t row = i; row < i + rows; row++) {
    int64_t at = (m->now * s->batch + row) * n;
    T *act = (T *)s->act + 4 * at;
    gru_row(n, (const T *)s->gates + 3 * at, act, s->bias ? s->bias : &zero,
            s->bias != NULL, h + row * n, (T *)s->y + at, act, true);
  }
}

/* One row; own is what the reset gate was multiplied with, and dact, which
 * comes to what act holds, may be a zero with step 0. dh may lie where dy does.
 */
static inline void gru_back_row(int64_t n, const T *dy, const T *own,
                                const T *dact, int64_t step,
                                const T *restrict h, const T *restrict act,
                                T *restrict di, T *restrict dg, T *dh) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T r = act[j], z = act[n + j], x = act[2 * n + j], d = dy[j];
    T dx = (d * (1 - z) + dact[(2 * n + j) * step]) * (1 - x * x);
    T dr = (dx * own[j] + dact[j * step]) * r * (1 - r);
    T dz = (d * (h[j] - x) + dact[(n + j) * step]) * z * (1 - z);
    di[j] = dg[j] = dr;
    di[n + j] = dg[n + j] = dz;
    di[2 * n + j] = dx;
    dg[2 * n + j] = dx * r + dact[(3 * n + j) * step];
    dh[j] = d * z;
  }
}

static void gru_back(void *context, int64_t begin, int64_t end) {
  const rnn *p = context;
  static const T zero = 0;
  int64_t n = p->n;
  for (int64_t row = begin; row < end; row++)
    gru_back_row(
        n, (const T *)p->in[FL_IN_gru_cell_backward_dy] + row * n,
        (const T *)p->in[FL_IN_gru_cell_backward_gh] + row * 3 * n + 2 * n,
        &zero, 0, (const T *)p->in[FL_IN_gru_cell_backward_h] + row * n,
        (const T *)p->in[FL_IN_gru_cell_backward_act] + row * 3 * n,
        (T *)p->out[FL_OUT_gru_cell_backward_dgi] + row * 3 * n,
        (T *)p->out[FL_OUT_gru_cell_backward_dgh] + row * 3 * n,
        (T *)p->out[FL_OUT_gru_cell_backward_dh] + row * n);
}

/* dh is what has come back of the step after, and leaves what does not go
 * through the product, which is added to it. */
static void gru_back_cells(void *context, int64_t begin, int64_t end) {
  const moment *m = context;
  const sequence *s = m->of;
  static const T zero = 0;
  int64_t n = s->n;
  const T *h =
      m->before < 0 ? s->h : (const T *)s->y + m->before * s->batch * n;
  for (int64_t row = begin; row < end; row++) {
    int64_t at = (m->now * s->batch + row) * n;
    T *dh = (T *)s->dh + row * n;
    const T *act = (const T *)s->act + 4 * at;
    const T *dy = s->dy ? (const T *)s->dy + at : NULL,
            *dact = s->dact ? (const T *)s->dact + 4 * at : &zero;
    for (int64_t j = 0; dy && j < n; j++)
      dh[j] += dy[j];
    gru_back_row(n, dh, act + 3 * n, dact, s->dact != NULL, h + row * n, act,
                 (T *)s->dgates + 3 * at, (T *)s->dsums + 3 * at, dh);
  }
}

const rnn_kernels FL_TYPED(rnn) = {.cell = {[RNN_LSTM] = lstm,
                                            [RNN_LSTM_BACK] = lstm_back,
                                            [RNN_GRU] = gru,
                                            [RNN_GRU_BACK] = gru_back},
                                   .apart = apart,
                                   .back_apart = back_apart,
                                   .together = together,
                                   .back_together = back_together,
                                   .lstm_cells = lstm_cells,
                                   .gru_cells = gru_cells,
                                   .lstm_back_cells = lstm_back_cells,
                                   .gru_back_cells = gru_back_cells};
