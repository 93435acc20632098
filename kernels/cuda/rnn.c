/* Launches of the recurrent cells, and of an LSTM over time step by step. */
#include "gemm/product.h"
#include "rnn.h"
#include "rnn_time.h"

#define BLOCK 256

/* The dtype that a launch runs in: that of all operands, if they have one, else
 * F64 if there is one, else F32. */
static fl_dtype rnn_common(const fl_launch *l) {
  fl_dtype d = l->out[0].dtype, wide = FL_F32;
  bool same = true;
  for (int k = 0; k < l->n_in + l->n_out; k++) {
    const fl_view *v = k < l->n_in ? &l->in[k] : &l->out[k - l->n_in];
    if (!v->data)
      continue;
    same &= v->dtype == d;
    wide = v->dtype == FL_F64 ? FL_F64 : wide;
  }
  return same ? d : wide;
}

/* The operands of a launch as contiguous memory of one dtype. */
typedef struct operands {
  const fl_launch *l;
  fl_dtype dtype;
  const char *in[8];
  fl_view out[3];
} operands;

static fl_status rnn_take(const fl_launch *l, operands *o) {
  fl_dtype d = rnn_common(l);
  *o = (operands){.l = l, .dtype = d};
  for (int k = 0; k < l->n_in; k++)
    if (l->in[k].data && !(o->in[k] = flc_input(l, &l->in[k], d)))
      return FL_ENOMEM;
  for (int k = 0; k < l->n_out; k++) {
    fl_view *v = &o->out[k];
    *v = l->out[k];
    v->dtype = d;
    if (l->out[k].dtype != d &&
        !(v->data =
              fl_scratch_get(l, (size_t)fl_view_numel(v) * fl_dtype_size(d))))
      return FL_ENOMEM;
  }
  return FL_OK;
}

static fl_status rnn_give(const operands *o, fl_status s) {
  const fl_launch *l = o->l;
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    if (l->out[k].dtype != o->dtype)
      s = flc_move(l, &l->out[k], &o->out[k]);
  return s;
}

/* Launches a cell: four elements a thread if n and all addresses allow it. */
static fl_status rnn_launch(const operands *o, const char *entry,
                            const rnn_args *a) {
  int v = a->n % 4 == 0 ? 4 : 1;
  for (int k = 0; k < 8; k++)
    if (!flc_aligned(a->in[k], 4 * fl_dtype_size(o->dtype)))
      v = 1;
  flc_spec spec = FLC_SPEC("rnn", entry, (int16_t)o->dtype, v);
  flc_grid g = {.x = (unsigned)fl_ceil_div(a->all / v, BLOCK), .block = BLOCK};
  return FLC_RUN(o->l, spec, g, *a);
}

/* Over the rows of a state like in[`state`]. */
static fl_status rnn_run(const fl_launch *l, const char *entry, int state) {
  const fl_view *like = &l->in[state];
  rnn_args a = {.all = fl_view_numel(like)};
  operands o;
  if (a.all == 0)
    return FL_OK;
  a.n = like->shape[like->ndim - 1];
  fl_status s = rnn_take(l, &o);
  for (int k = 0; k < l->n_in; k++)
    a.in[k] = o.in[k];
  for (int k = 0; k < l->n_out; k++)
    a.out[k] = o.out[k].data;
  return s == FL_OK ? rnn_give(&o, rnn_launch(&o, entry, &a)) : s;
}

/* gates, c -> h, c2, act */
FLC_KERNEL(lstm_cell) {
  return rnn_run(l, "lstm", FL_IN_lstm_cell_c);
}

/* dh, dc, c, c2, act -> dgates, dc1 */
FLC_KERNEL(lstm_cell_backward) {
  return rnn_run(l, "lstm_back", FL_IN_lstm_cell_backward_c);
}

/* gi, gh, h -> y, act */
FLC_KERNEL(gru_cell) {
  return rnn_run(l, "gru", FL_IN_gru_cell_h);
}

/* dy, gh, h, act -> dgi, dgh, dh */
FLC_KERNEL(gru_cell_backward) {
  return rnn_run(l, "gru_back", FL_IN_gru_cell_backward_h);
}

/* --- an LSTM over time --- */

typedef struct sequence {
  operands o;
  int64_t time, batch, n;
  size_t state, gates; /* bytes of a step's */
  bool reverse;
  void *room; /* for a state as it is computed, of 16 bits; else NULL */
} sequence;

_Static_assert(FL_ATTR_lstm_reverse == FL_ATTR_lstm_backward_reverse,
               "read for both rows");

/* `cs` is a result or an input (time, batch, n); false: nothing is in it. */
static bool rnn_begin(const fl_launch *l, const fl_view *cs, sequence *s) {
  *s = (sequence){.time = cs->shape[0],
                  .batch = cs->shape[1],
                  .n = cs->shape[2],
                  .reverse = l->attrs->v[FL_ATTR_lstm_reverse].i};
  return s->batch && s->n;
}

static fl_status rnn_ready(const fl_launch *l, sequence *s) {
  fl_status status = rnn_take(l, &s->o);
  size_t size = fl_dtype_size(s->o.dtype);
  s->state = (size_t)(s->batch * s->n) * size;
  s->gates = 4 * s->state;
  if (status == FL_OK && size == 2 &&
      !(s->room = fl_scratch_get(l, s->state * 2)))
    return FL_ENOMEM;
  return status;
}

/* Where step k is, of things of so many bytes each; NULL of nothing. */
static void *step_of(const sequence *s, const void *all, size_t bytes,
                     int64_t k) {
  int64_t t = s->reverse ? s->time - 1 - k : k;
  return all ? (char *)(uintptr_t)all + (size_t)t * bytes : NULL;
}

/* The product of a step; the next step has its scratch memory again. */
static fl_status rnn_multiply(const fl_launch *l, flc_product *p) {
  int mark = fl_scratch_mark(l);
  fl_status s = flc_multiply(l, p);
  fl_scratch_release(l, mark);
  return s;
}

/* One product and one cell a step. */
static fl_status rnn_forward(const sequence *s) {
  const operands *o = &s->o;
  const void *gates = o->in[FL_IN_lstm_gates], *h = o->in[FL_IN_lstm_h],
             *c = o->in[FL_IN_lstm_c];
  void *own = fl_scratch_get(o->l, s->gates);
  fl_status status = own ? FL_OK : FL_ENOMEM;
  for (int64_t k = 0; k < s->time && status == FL_OK; k++) {
    flc_product p = {.dtype = o->dtype,
                     .m = s->batch,
                     .n = 4 * s->n,
                     .k = s->n,
                     .am = s->n,
                     .ak = 1,
                     .bk = 1,
                     .bn = s->n,
                     .a = h,
                     .b = o->in[FL_IN_lstm_weight],
                     .c = own};
    bool kept = s->room && k > 0;
    rnn_args a = {.n = s->n,
                  .all = s->batch * s->n,
                  .in = {step_of(s, gates, s->gates, k), kept ? NULL : c, own,
                         kept ? s->room : NULL},
                  .out = {step_of(s, o->out[0].data, s->state, k),
                          step_of(s, o->out[FL_OUT_lstm_cs].data, s->state, k),
                          step_of(s, o->out[FL_OUT_lstm_act].data, s->gates, k),
                          s->room}};
    status = rnn_multiply(o->l, &p);
    if (status == FL_OK)
      status = rnn_launch(o, "lstm", &a);
    h = a.out[FL_OUT_lstm_cell_h];
    c = a.out[FL_OUT_lstm_cell_c2];
  }
  return status;
}

static fl_status rnn_backward(const sequence *s) {
  const operands *o = &s->o;
  const char *dy = o->in[FL_IN_lstm_backward_dy],
             *dcs = o->in[FL_IN_lstm_backward_dcs],
             *dact = o->in[FL_IN_lstm_backward_dact],
             *c = o->in[FL_IN_lstm_backward_c],
             *cs = o->in[FL_IN_lstm_backward_cs],
             *act = o->in[FL_IN_lstm_backward_act];
  void *dh = o->out[FL_OUT_lstm_backward_dh].data,
       *dc = o->out[FL_OUT_lstm_backward_dc].data;
  void *kept = s->room ? s->room : dc;
  fl_status status = FL_OK;
  for (int64_t k = s->time - 1; k >= 0 && status == FL_OK; k--) {
    bool last = k == s->time - 1;
    rnn_args a = {
        .n = s->n,
        .all = s->batch * s->n,
        .in = {step_of(s, dy, s->state, k), step_of(s, dcs, s->state, k),
               k ? step_of(s, cs, s->state, k - 1) : c,
               step_of(s, cs, s->state, k), step_of(s, act, s->gates, k),
               last ? NULL : dh, last ? NULL : kept,
               step_of(s, dact, s->gates, k)},
        .out = {step_of(s, o->out[0].data, s->gates, k), dc, s->room}};
    flc_product p = {.dtype = o->dtype,
                     .m = s->batch,
                     .n = s->n,
                     .k = 4 * s->n,
                     .am = 4 * s->n,
                     .ak = 1,
                     .bk = s->n,
                     .bn = 1,
                     .a = a.out[0],
                     .b = o->in[FL_IN_lstm_backward_weight],
                     .c = dh};
    status = rnn_launch(o, "lstm_back", &a);
    if (status == FL_OK)
      status = rnn_multiply(o->l, &p);
  }
  return status;
}

/* --- all of time in one launch, where the weight fits on the chip --- */

static const struct {
  int u, s; /* groups of four columns and sequences of a warp */
} sizes[] = {{1, 4}, {2, 8}, {4, 8}};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

/* Of a block: those that work, and as many as have something to stage. */
static int threads_of(const rnn_time_args *a, int k) {
  int most = RNN_TIME_WARPS(sizes[k].u, sizes[k].s), least = a->wide * a->tall;
  int64_t staged = fl_ceil_div((int64_t)a->chunk * a->tall * sizes[k].s, 128);
  return 32 * (staged > most ? most : staged > least ? (int)staged : least);
}

/* Cycles of a step, roughly, with a plan in `a`, whose chunk is set; 0: it does
 * not fit. */
static double cycles_of(const flc_chip *chip, int64_t groups, int size,
                        rnn_time_args *a, int k) {
  int u = sizes[k].u, s = sizes[k].s, warps = a->wide * a->tall;
  int64_t blocks =
      fl_ceil_div(groups, u * a->wide) * fl_ceil_div(a->batch, s * a->tall);
  int64_t room = chip->shared - (int64_t)a->wide * u * a->depth * 4 * size;
  int64_t chunk = room / (a->tall * s * 4) / 32 * 32;
  if (blocks > chip->processors || chunk < 64)
    return 0;
  a->parts = (int)fl_ceil_div(groups, u * a->wide);
  a->chunk = chunk < a->depth ? (int)chunk : a->depth;
  double rounds = (double)fl_ceil_div(a->depth, 32);
  double rnn_multiply = rounds * (double)fl_ceil_div(warps, 4) * u * 4 * s;
  double read = rounds * warps * (u * size + s);
  double stage = (double)a->depth * a->tall * s * 4 / 24; /* bytes a cycle */
  stage += 600 * (double)fl_ceil_div((int64_t)a->depth * a->tall * (s / 4),
                                     threads_of(a, k) * 4);
  return (rnn_multiply > read ? rnn_multiply : read) + stage +
         warps * u * 4 * s + 200 * (double)fl_ceil_div(a->depth, a->chunk);
}

/* Cycles of a step by a product and a cell: what two launches cost that wait
 * for each other, and multiply-adds, of 16-bit floats by tensor cores, at the
 * share of their peak that products with few rows reach. */
static double cycles_apart(const flc_chip *chip, fl_dtype d,
                           const rnn_time_args *a) {
  double rate = fl_dtype_size(d) == 2 ? 0.4 * 1024 : 0.6 * 128;
  double work = (double)a->batch * 4 * (double)a->n * (double)a->n;
  return 7000 + work / (rate * chip->processors);
}

/* The best plan into `a`; -1: there is none that beats a product and a cell a
 * step, else which of the sizes. */
static int rnn_plan(const fl_launch *l, fl_dtype d, int64_t groups,
                    rnn_time_args *a) {
  double best = cycles_apart(flc_chip_of(l), d, a);
  int found = -1;
  if (d == FL_F64)
    return -1;
  for (int k = 0; k < SIZES; k++)
    for (int warps = 0; warps < 256; warps++) {
      rnn_time_args b = *a;
      b.tall = warps / 16 + 1;
      b.wide = warps % 16 + 1;
      if (b.tall * b.wide > RNN_TIME_WARPS(sizes[k].u, sizes[k].s))
        continue;
      double t =
          cycles_of(flc_chip_of(l), groups, (int)fl_dtype_size(d), &b, k);
      if (t > 0 && t < best) {
        best = t;
        found = k;
        *a = b;
      }
    }
  return found;
}

/* False: it cannot be done so. */
static bool at_once(const sequence *s, const char *entry, bool rnn_forward,
                    fl_status *status) {
  const operands *o = &s->o;
  rnn_time_args a = {.reverse = s->reverse};
  int64_t depth = rnn_forward ? s->n : 4 * s->n;
  if (s->time > INT32_MAX || s->batch > INT32_MAX || depth > INT32_MAX)
    return false;
  a.time = (int)s->time;
  a.batch = (int)s->batch;
  a.n = (int)s->n;
  a.depth = (int)depth;
  int k =
      rnn_plan(o->l, o->dtype, rnn_forward ? s->n : fl_ceil_div(s->n, 4), &a);
  if (k < 0)
    return false;
  for (int i = 0; i < o->l->n_in; i++)
    a.in[i] = o->in[i];
  for (int i = 0; i < 3; i++)
    a.out[i] = o->out[i].data;
  size_t bytes = (size_t)(2 * fl_ceil_div(s->batch, 4) * 4 * depth) * 4;
  a.posted = fl_scratch_get(o->l, bytes);
  *status = a.posted ? flc_zero(o->l, a.posted, bytes) : FL_ENOMEM;
  if (*status != FL_OK)
    return true;
  int u = sizes[k].u, q = sizes[k].s;
  flc_spec spec = FLC_SPEC("rnn_time", entry, (int16_t)o->dtype, u, q);
  flc_grid g = {.x = (unsigned)(a.parts * fl_ceil_div(a.batch, q * a.tall)),
                .block = (unsigned)threads_of(&a, k),
                .together = true};
  g.shared =
      (unsigned)((size_t)(a.wide * u * a.depth * 4) * fl_dtype_size(o->dtype) +
                 (size_t)(a.tall * q * a.chunk) * 4);
  *status = FLC_RUN(o->l, spec, g, a);
  return true;
}

/* gates, weight, h, c -> y, cs, act */
FLC_KERNEL(lstm) {
  sequence s;
  if (!rnn_begin(l, &l->out[FL_OUT_lstm_cs], &s) || s.time == 0)
    return FL_OK;
  fl_status status = rnn_ready(l, &s);
  if (status == FL_OK && !at_once(&s, "forward", true, &status))
    status = rnn_forward(&s);
  return status == FL_OK ? rnn_give(&s.o, status) : status;
}

/* dy, dcs, dact, weight, c, cs, act -> dgates, dh, dc */
FLC_KERNEL(lstm_backward) {
  sequence s;
  if (!rnn_begin(l, &l->in[FL_IN_lstm_backward_cs], &s))
    return FL_OK;
  fl_status status = rnn_ready(l, &s);
  for (int k = 1; k < 3 && status == FL_OK && s.time == 0; k++)
    status = flc_zero(l, s.o.out[k].data, s.state);
  if (status == FL_OK && s.time && !at_once(&s, "backward", false, &status))
    status = rnn_backward(&s);
  return status == FL_OK ? rnn_give(&s.o, status) : status;
}

void flc_visit_rnn(flc_visitor *v) {
  static const char *const entries[] = {"lstm", "lstm_back", "gru", "gru_back"};
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int i = 0; i < 4; i++)
    for (int n = 1; n <= 4; n += 3) {
      flc_spec s = FLC_SPEC("rnn", entries[i], d, n);
      v->spec(v, &s, d == FL_F32 && n == 4);
    }
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int i = 0; i < 2 && d != FL_F64; i++)
    for (int k = 0; k < SIZES; k++) {
      flc_spec s = FLC_SPEC("rnn_time", i ? "backward" : "forward", d,
                            sizes[k].u, sizes[k].s);
      v->spec(v, &s, d == FL_F32 && k == SIZES - 1);
    }
}
