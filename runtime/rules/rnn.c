/* Recurrent cells: shapes and gradients. Fused backward rows compute the usual
 * gradients; those that must be differentiable again are composed of ordinary
 * operators. */
#include "env.h"

/* x (..., parts * n) beside like (..., n). */
static fl_status check_parts(const char *op, const char *name, const fl_meta *x,
                             int64_t parts, const fl_meta *like) {
  bool fits = x->ndim == like->ndim && x->ndim >= 1;
  for (int i = 0; i < x->ndim && fits; i++)
    fits =
        x->shape[i] == like->shape[i] * (i == x->ndim - 1 ? parts : (int64_t)1);
  if (fits)
    return FL_OK;
  return fli_fail(FL_ESHAPE,
                  "%s: %s %s does not fit a state %s: the last size must be "
                  "%lld times the state's",
                  op, name, fli_shape_text(x->ndim, x->shape),
                  fli_shape_text(like->ndim, like->shape), (long long)parts);
}

static void rnn_give(fl_meta *out, const fl_meta *m) {
  out->ndim = m->ndim;
  for (int i = 0; i < m->ndim; i++)
    out->shape[i] = m->shape[i];
}

/* gates, c -> h, c2, act */
fl_status fli_shape_lstm_cell(fli_infer *c) {
  FLI_TRY(check_parts("lstm_cell", "gates", c->in[FL_IN_lstm_cell_gates], 4,
                      c->in[FL_IN_lstm_cell_c]));
  rnn_give(&c->out[0], c->in[FL_IN_lstm_cell_c]);
  rnn_give(&c->out[FL_OUT_lstm_cell_c2], c->in[FL_IN_lstm_cell_c]);
  rnn_give(&c->out[FL_OUT_lstm_cell_act], c->in[FL_IN_lstm_cell_gates]);
  return FL_OK;
}

/* dh, dc, c, c2, act -> dgates, dc1 */
fl_status fli_shape_lstm_cell_backward(fli_infer *c) {
  const char *op = "lstm_cell_backward";
  for (int k = 0; k < 4; k++)
    if (c->in[k])
      FLI_TRY(check_parts(op, "a gradient or state", c->in[k], 1,
                          c->in[FL_IN_lstm_cell_backward_c]));
  FLI_TRY(check_parts(op, "act", c->in[FL_IN_lstm_cell_backward_act], 4,
                      c->in[FL_IN_lstm_cell_backward_c]));
  rnn_give(&c->out[0], c->in[FL_IN_lstm_cell_backward_act]);
  rnn_give(&c->out[FL_OUT_lstm_cell_backward_dc1],
           c->in[FL_IN_lstm_cell_backward_c]);
  return FL_OK;
}

/* gi, gh, h -> y, act */
fl_status fli_shape_gru_cell(fli_infer *c) {
  FLI_TRY(check_parts("gru_cell", "gi", c->in[FL_IN_gru_cell_gi], 3,
                      c->in[FL_IN_gru_cell_h]));
  FLI_TRY(check_parts("gru_cell", "gh", c->in[FL_IN_gru_cell_gh], 3,
                      c->in[FL_IN_gru_cell_h]));
  rnn_give(&c->out[0], c->in[FL_IN_gru_cell_h]);
  rnn_give(&c->out[FL_OUT_gru_cell_act], c->in[FL_IN_gru_cell_gi]);
  return FL_OK;
}

/* dy, gh, h, act -> dgi, dgh, dh */
fl_status fli_shape_gru_cell_backward(fli_infer *c) {
  const char *op = "gru_cell_backward";
  FLI_TRY(check_parts(op, "dy", c->in[FL_IN_gru_cell_backward_dy], 1,
                      c->in[FL_IN_gru_cell_backward_h]));
  FLI_TRY(check_parts(op, "gh", c->in[FL_IN_gru_cell_backward_gh], 3,
                      c->in[FL_IN_gru_cell_backward_h]));
  FLI_TRY(check_parts(op, "act", c->in[FL_IN_gru_cell_backward_act], 3,
                      c->in[FL_IN_gru_cell_backward_h]));
  rnn_give(&c->out[0], c->in[FL_IN_gru_cell_backward_gh]);
  rnn_give(&c->out[FL_OUT_gru_cell_backward_dgh],
           c->in[FL_IN_gru_cell_backward_gh]);
  rnn_give(&c->out[FL_OUT_gru_cell_backward_dh],
           c->in[FL_IN_gru_cell_backward_h]);
  return FL_OK;
}

/* gates (time, batch, 4 n), weight (4 n, n), h and c (batch, n). */
static fl_status check_lstm(const char *op, const char *name,
                            const fl_meta *gates, const fl_meta *w,
                            const fl_meta *h, const fl_meta *c) {
  bool fits = gates->ndim == 3 && w->ndim == 2 && h->ndim == 2 && c->ndim == 2;
  if (fits) {
    int64_t batch = h->shape[0], n = h->shape[1];
    fits = gates->shape[1] == batch && gates->shape[2] == 4 * n &&
           w->shape[0] == 4 * n && w->shape[1] == n && c->shape[0] == batch &&
           c->shape[1] == n;
  }
  if (fits)
    return FL_OK;
  return fli_fail(FL_ESHAPE,
                  "%s: needs %s (time, batch, 4 n), weight (4 n, n), and h and "
                  "c (batch, n), got %s, %s, %s and %s",
                  op, name, fli_shape_text(gates->ndim, gates->shape),
                  fli_shape_text(w->ndim, w->shape),
                  fli_shape_text(h->ndim, h->shape),
                  fli_shape_text(c->ndim, c->shape));
}

/* gates, weight, h, c -> y, cs, act */
fl_status fli_shape_lstm(fli_infer *c) {
  const fl_meta *gates = c->in[FL_IN_lstm_gates];
  FLI_TRY(check_lstm("lstm", "gates", gates, c->in[FL_IN_lstm_weight],
                     c->in[FL_IN_lstm_h], c->in[FL_IN_lstm_c]));
  for (int k = 0; k < 3; k++) {
    rnn_give(&c->out[k], gates);
    if (k < 2)
      c->out[k].shape[2] = c->in[FL_IN_lstm_h]->shape[1];
  }
  return FL_OK;
}

static fl_status check_lstm_backward(const fl_meta *const *in) {
  const fl_meta *act = in[FL_IN_lstm_backward_act],
                *cs = in[FL_IN_lstm_backward_cs], *like[3] = {cs, cs, act};
  FLI_TRY(check_lstm("lstm_backward", "act", act,
                     in[FL_IN_lstm_backward_weight], in[FL_IN_lstm_backward_c],
                     in[FL_IN_lstm_backward_c]));
  FLI_TRY(check_parts("lstm_backward", "act", act, 4, cs));
  for (int k = 0; k < 3; k++)
    if (in[k])
      FLI_TRY(check_parts("lstm_backward", "a gradient", in[k], 1, like[k]));
  return FL_OK;
}

/* dy, dcs, dact, weight, c, cs, act -> dgates, dh, dc */
fl_status fli_shape_lstm_backward(fli_infer *c) {
  FLI_TRY(check_lstm_backward(c->in));
  rnn_give(&c->out[0], c->in[FL_IN_lstm_backward_act]);
  rnn_give(&c->out[FL_OUT_lstm_backward_dh], c->in[FL_IN_lstm_backward_c]);
  rnn_give(&c->out[FL_OUT_lstm_backward_dc], c->in[FL_IN_lstm_backward_c]);
  return FL_OK;
}

/* gates (time, batch, 3 n), weight (3 n, n), bias (3 n) and h (batch, n). */
static fl_status check_gru(const char *op, const fl_meta *gates, int64_t parts,
                           const fl_meta *w, const fl_meta *bias,
                           const fl_meta *h) {
  bool fits = gates->ndim == 3 && w->ndim == 2 && h->ndim == 2;
  if (fits) {
    int64_t n = h->shape[1];
    fits = gates->shape[1] == h->shape[0] && gates->shape[2] == parts * n &&
           w->shape[0] == 3 * n && w->shape[1] == n &&
           (!bias || (bias->ndim == 1 && bias->shape[0] == 3 * n));
  }
  if (fits)
    return FL_OK;
  return fli_fail(FL_ESHAPE,
                  "%s: needs %s (time, batch, %d n), weight (3 n, n), bias "
                  "(3 n) and h (batch, n), got %s, %s, %s and %s",
                  op, parts == 3 ? "gates" : "act", (int)parts,
                  fli_shape_text(gates->ndim, gates->shape),
                  fli_shape_text(w->ndim, w->shape),
                  bias ? fli_shape_text(bias->ndim, bias->shape) : "none",
                  fli_shape_text(h->ndim, h->shape));
}

/* gates, weight, bias, h -> y, act: the gates, and behind them what the reset
 * gate was multiplied with */
fl_status fli_shape_gru(fli_infer *c) {
  const fl_meta *gates = c->in[FL_IN_gru_gates], *h = c->in[FL_IN_gru_h];
  FLI_TRY(check_gru("gru", gates, 3, c->in[FL_IN_gru_weight],
                    c->in[FL_IN_gru_bias], h));
  for (int k = 0; k < 2; k++) {
    rnn_give(&c->out[k], gates);
    c->out[k].shape[2] = h->shape[1] * (k ? 4 : 1);
  }
  return FL_OK;
}

static fl_status check_gru_backward(const fl_meta *const *in) {
  const fl_meta *y = in[FL_IN_gru_backward_y],
                *act = in[FL_IN_gru_backward_act];
  FLI_TRY(check_gru("gru_backward", act, 4, in[FL_IN_gru_backward_weight], NULL,
                    in[FL_IN_gru_backward_h]));
  FLI_TRY(check_parts("gru_backward", "act", act, 4, y));
  if (in[FL_IN_gru_backward_dy])
    FLI_TRY(check_parts("gru_backward", "a gradient", in[FL_IN_gru_backward_dy],
                        1, y));
  if (in[FL_IN_gru_backward_dact])
    FLI_TRY(check_parts("gru_backward", "a gradient",
                        in[FL_IN_gru_backward_dact], 1, act));
  return FL_OK;
}

/* dy, dact, weight, h, y, act -> dgates, dsums, dh */
fl_status fli_shape_gru_backward(fli_infer *c) {
  FLI_TRY(check_gru_backward(c->in));
  for (int k = 0; k < 2; k++) {
    rnn_give(&c->out[k], c->in[FL_IN_gru_backward_y]);
    c->out[k].shape[2] *= 3;
  }
  rnn_give(&c->out[FL_OUT_gru_backward_dh], c->in[FL_IN_gru_backward_h]);
  return FL_OK;
}

/* --- gradients --- */

/* Part k of the last dim, of n elements; nothing of nothing. */
static fl_value rnn_part(fli_env *e, fl_value x, int64_t k, int64_t n) {
  if (fli_nothing(x))
    return x;
  return fli_v_narrow(e, x, fli_meta(x)->ndim - 1, k * n, n, 1);
}

static fl_value rnn_two(fli_env *e, int op, fl_value a, fl_value b) {
  return fli_run(e, op, NULL, 2, (fl_value[]){a, b});
}

/* Sums and products in which nothing stands for 0. */
static fl_value plus(fli_env *e, fl_value a, fl_value b) {
  return fli_nothing(a) ? b : fli_nothing(b) ? a : rnn_two(e, FLI_OP_add, a, b);
}

static fl_value times(fli_env *e, fl_value a, fl_value b) {
  return fli_nothing(a) ? a : rnn_two(e, FLI_OP_mul, a, b);
}

static fl_value from_one(fli_env *e, fl_value x) {
  return rnn_two(e, FLI_OP_sub, NUM(1), x);
}

/* Through a sigmoid or tanh with the result y. */
static fl_value sigmoid_back(fli_env *e, fl_value d, fl_value y) {
  return times(e, d, times(e, y, from_one(e, y)));
}

static fl_value tanh_back(fli_env *e, fl_value d, fl_value y) {
  return times(e, d, from_one(e, times(e, y, y)));
}

static fl_value or_zeros(fli_env *e, fl_value x, fl_value like) {
  return fli_nothing(x) ? times(e, like, NUM(0)) : x;
}

static fl_value rnn_join(fli_env *e, int n, const fl_value *parts) {
  fl_attrs a = fli_attrs(e, FLI_OP_cat);
  int ndim = fli_meta(parts[0])->ndim;
  a.v[FL_ATTR_cat_dim].i = ndim ? ndim - 1 : 0;
  return fli_run(e, FLI_OP_cat, &a, n, parts);
}

/* One step: c2 = f c + i n, h = o tanh(c2). d is of h, c2 and the activated
 * gates. */
static void lstm_plain(fli_env *e, const fl_value *d, fl_value c, fl_value c2,
                       fl_value act, fl_value *dgates, fl_value *dc1) {
  if (e->status)
    return;
  const fl_meta *m = fli_meta(c);
  int64_t n = m->shape[m->ndim - 1];
  fl_value a[4], p[4];
  for (int k = 0; k < 4; k++)
    a[k] = rnn_part(e, act, k, n);
  fl_value t = fli_run(e, FLI_OP_tanh, NULL, 1, &c2);
  fl_value dc2 = plus(e, d[1], tanh_back(e, times(e, d[0], a[3]), t));
  p[0] = times(e, dc2, a[2]);
  p[1] = times(e, dc2, c);
  p[2] = times(e, dc2, a[0]);
  p[3] = times(e, d[0], t);
  for (int k = 0; k < 4; k++) {
    p[k] = plus(e, p[k], rnn_part(e, d[2], k, n));
    p[k] = k == 2 ? tanh_back(e, p[k], a[k]) : sigmoid_back(e, p[k], a[k]);
    p[k] = or_zeros(e, p[k], a[k]);
  }
  *dgates = rnn_join(e, 4, p);
  *dc1 = times(e, dc2, a[1]);
}

void fli_grad_lstm_cell(fli_grad *g) {
  fl_value both[FL_MAX_OUT], *d = g->dy, c = g->in[FL_IN_lstm_cell_c];
  if (g->create || !fli_nothing(d[2])) {
    lstm_plain(&g->e, d, c, g->y[FL_OUT_lstm_cell_c2],
               g->y[FL_OUT_lstm_cell_act], &g->dx[FL_IN_lstm_cell_gates],
               &g->dx[FL_IN_lstm_cell_c]);
    return;
  }
  RUN_ALL(lstm_cell_backward, NULL, both, IN(lstm_cell_backward, dh) = d[0],
          IN(lstm_cell_backward, dc) = d[1], IN(lstm_cell_backward, c) = c,
          IN(lstm_cell_backward, c2) = g->y[FL_OUT_lstm_cell_c2],
          IN(lstm_cell_backward, act) = g->y[FL_OUT_lstm_cell_act]);
  g->dx[FL_IN_lstm_cell_gates] = both[0];
  g->dx[FL_IN_lstm_cell_c] = both[FL_OUT_lstm_cell_backward_dc1];
}

/* r, z = sigmoid(gi + gh), x = tanh(gi_n + r gh_n), y = x + z (h - x); d is of
 * y and of what act holds: r, z, x and, over time, gh_n. To the parts of gi,
 * and the last of gh. */
static void gru_plain(fli_env *e, const fl_value *d, fl_value hn, fl_value h,
                      fl_value act, int64_t n, fl_value *to) {
  fl_value r = rnn_part(e, act, 0, n), z = rnn_part(e, act, 1, n),
           x = rnn_part(e, act, 2, n);
  fl_value dx =
      plus(e, times(e, d[0], from_one(e, z)), rnn_part(e, d[1], 2, n));
  to[2] = tanh_back(e, dx, x);
  to[0] = plus(e, times(e, to[2], hn), rnn_part(e, d[1], 0, n));
  to[0] = sigmoid_back(e, to[0], r);
  to[1] = times(e, d[0], rnn_two(e, FLI_OP_sub, h, x));
  to[1] = sigmoid_back(e, plus(e, to[1], rnn_part(e, d[1], 1, n)), z);
  to[3] = times(e, to[2], r);
}

static void gru_cell_plain(fli_grad *g) {
  fl_value gh = g->in[FL_IN_gru_cell_gh], act = g->y[FL_OUT_gru_cell_act], p[4];
  fli_env *e = &g->e;
  int64_t n =
      g->in_meta[FL_IN_gru_cell_h].shape[g->in_meta[FL_IN_gru_cell_h].ndim - 1];
  gru_plain(e, g->dy, rnn_part(e, gh, 2, n), g->in[FL_IN_gru_cell_h], act, n,
            p);
  if (g->need[FL_IN_gru_cell_gi])
    g->dx[FL_IN_gru_cell_gi] = rnn_join(e, 3, p);
  if (g->need[FL_IN_gru_cell_gh])
    g->dx[FL_IN_gru_cell_gh] = rnn_join(e, 3, (fl_value[]){p[0], p[1], p[3]});
  if (g->need[FL_IN_gru_cell_h])
    g->dx[FL_IN_gru_cell_h] = times(e, g->dy[0], rnn_part(e, act, 1, n));
}

void fli_grad_gru_cell(fli_grad *g) {
  if (g->create || !fli_nothing(g->dy[FL_OUT_gru_cell_act])) {
    gru_cell_plain(g);
    return;
  }
  fl_value d[FL_MAX_OUT];
  RUN_ALL(gru_cell_backward, NULL, d, IN(gru_cell_backward, dy) = g->dy[0],
          IN(gru_cell_backward, gh) = g->in[FL_IN_gru_cell_gh],
          IN(gru_cell_backward, h) = g->in[FL_IN_gru_cell_h],
          IN(gru_cell_backward, act) = g->y[FL_OUT_gru_cell_act]);
  for (int k = 0; k < 3; k++)
    g->dx[k] = d[k];
}

/* --- over time --- */

static fl_value at_time(fli_env *e, fl_value x, int64_t t) {
  fl_attrs a = fli_attrs(e, FLI_OP_select);
  if (e->status || fli_nothing(x))
    return x;
  a.v[FL_ATTR_select_dim].i = 0;
  a.v[FL_ATTR_select_index].i = t;
  return fli_run(e, FLI_OP_select, &a, 1, &x);
}

static fl_value all_times(fli_env *e, int64_t n, const fl_value *xs) {
  fl_attrs a = fli_attrs(e, FLI_OP_stack);
  a.v[FL_ATTR_stack_dim].i = 0;
  return fli_run(e, FLI_OP_stack, &a, (int)n, xs);
}

/* Room for `lists` values of each of `n` times; NULL: none, and e has failed.
 */
static fl_value *lists_of(fli_env *e, int lists, int64_t n) {
  fl_value *v = NULL;
  if (n <= INT32_MAX)
    v = fli_malloc(e->rt, (size_t)(lists * n) * sizeof *v);
  if (!v)
    e->status = FL_ENOMEM;
  return v;
}

void fli_compose_lstm(fli_composing *g) {
  fli_env *e = &g->e;
  fl_value in[FL_INS_lstm], step[FL_MAX_OUT];
  const fl_meta *m[FL_INS_lstm];
  for (int k = 0; k < FL_INS_lstm; k++)
    m[k] = fli_meta(g->in[k]);
  if ((e->status =
           check_lstm("lstm", "gates", m[FL_IN_lstm_gates],
                      m[FL_IN_lstm_weight], m[FL_IN_lstm_h], m[FL_IN_lstm_c])))
    return;
  int64_t n = m[FL_IN_lstm_gates]->shape[0];
  if (n == 0) {
    fl_device device = fl_tensor_device(g->in[FL_IN_lstm_h].tensor);
    for (int k = 0; k < 2; k++)
      g->out[k] = fli_v_zeros(
          e, m[2 + k]->dtype, 3,
          (int64_t[]){0, m[FL_IN_lstm_h]->shape[0], m[FL_IN_lstm_h]->shape[1]},
          device);
    g->out[FL_OUT_lstm_act] = g->in[FL_IN_lstm_gates];
    return;
  }
  for (int k = 0; k < FL_INS_lstm; k++)
    in[k] = fli_v_widened(e, g->in[k]);
  fl_value *list = lists_of(e, 3, n);
  for (int64_t k = 0; k < n && !e->status; k++) {
    int64_t t = g->attrs->v[FL_ATTR_lstm_reverse].i ? n - 1 - k : k;
    fl_value own =
        RUN(linear, in[FL_IN_lstm_h], in[FL_IN_lstm_weight], fli_none());
    RUN_ALL(lstm_cell, NULL, step,
            ADD(at_time(e, in[FL_IN_lstm_gates], t), own), in[FL_IN_lstm_c]);
    in[FL_IN_lstm_h] = list[t] = step[0];
    in[FL_IN_lstm_c] = list[n + t] = step[FL_OUT_lstm_cell_c2];
    list[2 * n + t] = step[FL_OUT_lstm_cell_act];
  }
  for (int k = 0; k < 3 && !e->status; k++)
    g->out[k] =
        CAST(all_times(e, n, list + k * n), m[k < 2 ? k + 2 : 0]->dtype);
  fli_mfree(list);
}

/* What h was before each step, as rows. */
static fl_value states_before(fli_grad *g, fl_value h, int64_t n,
                              bool reverse) {
  fl_value xs[2] = {fli_v_unsqueeze(&g->e, h, 0),
                    fli_v_narrow(&g->e, g->y[0], 0, reverse, n - 1, 1)};
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
  a.v[FL_ATTR_cat_dim].i = 0;
  return RUN_A(cat, &a, xs[reverse], xs[!reverse]);
}

static fl_value as_rows(fli_env *e, fl_value x) {
  if (e->status)
    return x;
  const fl_meta *m = fli_meta(x);
  int64_t shape[2] = {m->shape[0] * m->shape[1], m->shape[2]};
  return fli_v_reshape(e, x, 2, shape);
}

/* From the last step to the first: the gradient of a step's h and c is that of
 * its results plus what the step after it passes back. */
void fli_compose_lstm_backward(fli_composing *g) {
  fli_env *e = &g->e;
  const fl_meta *m[FL_INS_lstm_backward];
  fl_value in[FL_INS_lstm_backward], dh = fli_none(), dc = dh;
  for (int k = 0; k < FL_INS_lstm_backward; k++)
    m[k] = fli_nothing(g->in[k]) ? NULL : fli_meta(g->in[k]);
  if ((e->status = check_lstm_backward(m)))
    return;
  for (int k = 0; k < FL_INS_lstm_backward; k++)
    in[k] = m[k] ? fli_v_widened(e, g->in[k]) : g->in[k];
  int64_t n = m[FL_IN_lstm_backward_act]->shape[0];
  bool reverse = g->attrs->v[FL_ATTR_lstm_backward_reverse].i;
  fl_value *dgates = lists_of(e, 1, n);
  for (int64_t k = n - 1; k >= 0 && !e->status; k--) {
    int64_t t = reverse ? n - 1 - k : k, before = reverse ? t + 1 : t - 1;
    fl_value d[3] = {plus(e, at_time(e, in[FL_IN_lstm_backward_dy], t), dh),
                     plus(e, at_time(e, in[FL_IN_lstm_backward_dcs], t), dc),
                     at_time(e, in[FL_IN_lstm_backward_dact], t)};
    lstm_plain(e, d,
               k ? at_time(e, in[FL_IN_lstm_backward_cs], before)
                 : in[FL_IN_lstm_backward_c],
               at_time(e, in[FL_IN_lstm_backward_cs], t),
               at_time(e, in[FL_IN_lstm_backward_act], t), &dgates[t], &dc);
    dh = rnn_two(e, FLI_OP_matmul, dgates[t], in[FL_IN_lstm_backward_weight]);
  }
  if (!e->status) {
    fl_value all = n ? all_times(e, n, dgates) : in[FL_IN_lstm_backward_act];
    g->out[0] = CAST(all, m[FL_IN_lstm_backward_act]->dtype);
    g->out[FL_OUT_lstm_backward_dh] =
        CAST(or_zeros(e, dh, in[FL_IN_lstm_backward_c]),
             m[FL_IN_lstm_backward_c]->dtype);
    g->out[FL_OUT_lstm_backward_dc] =
        CAST(or_zeros(e, dc, in[FL_IN_lstm_backward_c]),
             m[FL_IN_lstm_backward_c]->dtype);
  }
  fli_mfree(dgates);
}

void fli_grad_lstm_backward(fli_grad *g) {
  fli_composed_grad(&g->e, g->op, g->attrs, FL_INS_lstm_backward, g->in,
                    g->need, g->dy, g->dx);
}

void fli_grad_lstm(fli_grad *g) {
  fli_env *e = &g->e;
  fl_value *y = g->y, *dy = g->dy, all[FL_MAX_OUT];
  if (g->in_meta[FL_IN_lstm_gates].shape[0] == 0)
    return;
  RUN_ALL(lstm_backward, ATTRS_FOR(lstm_backward, lstm), all,
          IN(lstm_backward, dy) = dy[0], IN(lstm_backward, dcs) = dy[1],
          IN(lstm_backward, dact) = dy[2],
          IN(lstm_backward, weight) = g->in[FL_IN_lstm_weight],
          IN(lstm_backward, c) = g->in[FL_IN_lstm_c],
          IN(lstm_backward, cs) = y[1], IN(lstm_backward, act) = y[2]);
  g->dx[FL_IN_lstm_gates] = all[0];
  if (g->need[FL_IN_lstm_weight] && !e->status)
    g->dx[FL_IN_lstm_weight] =
        MATMUL(TRANSPOSE(as_rows(e, all[0]), 0, 1),
               as_rows(e, states_before(g, g->in[FL_IN_lstm_h],
                                        g->in_meta[FL_IN_lstm_gates].shape[0],
                                        g->attrs->v[FL_ATTR_lstm_reverse].i)));
  g->dx[FL_IN_lstm_h] = all[FL_OUT_lstm_backward_dh];
  g->dx[FL_IN_lstm_c] = all[FL_OUT_lstm_backward_dc];
}

void fli_compose_gru(fli_composing *g) {
  fli_env *e = &g->e;
  const fl_meta *m[FL_INS_gru];
  fl_value in[FL_INS_gru], step[FL_MAX_OUT];
  for (int k = 0; k < FL_INS_gru; k++) {
    m[k] = fli_nothing(g->in[k]) ? NULL : fli_meta(g->in[k]);
    in[k] = m[k] ? fli_v_widened(e, g->in[k]) : g->in[k];
  }
  if (e->status ||
      (e->status = check_gru("gru", m[FL_IN_gru_gates], 3, m[FL_IN_gru_weight],
                             m[FL_IN_gru_bias], m[FL_IN_gru_h])))
    return;
  int64_t n = m[FL_IN_gru_gates]->shape[0], size = m[FL_IN_gru_h]->shape[1];
  if (n == 0) {
    for (int k = 0; k < 2; k++)
      g->out[k] = fli_v_zeros(
          e, m[k ? 0 : 3]->dtype, 3,
          (int64_t[]){0, m[FL_IN_gru_h]->shape[0], size * (k ? 4 : 1)},
          fl_tensor_device(g->in[FL_IN_gru_h].tensor));
    return;
  }
  fl_value *list = lists_of(e, 2, n);
  for (int64_t k = 0; k < n && !e->status; k++) {
    int64_t t = g->attrs->v[FL_ATTR_gru_reverse].i ? n - 1 - k : k;
    fl_value own =
        RUN(linear, in[FL_IN_gru_h], in[FL_IN_gru_weight], in[FL_IN_gru_bias]);
    RUN_ALL(gru_cell, NULL, step, at_time(e, in[FL_IN_gru_gates], t), own,
            in[FL_IN_gru_h]);
    in[FL_IN_gru_h] = list[t] = step[0];
    list[n + t] = rnn_join(
        e, 2,
        (fl_value[]){step[FL_OUT_gru_cell_act], rnn_part(e, own, 2, size)});
  }
  for (int k = 0; k < 2 && !e->status; k++)
    g->out[k] = CAST(all_times(e, n, list + k * n), m[k ? 0 : 3]->dtype);
  fli_mfree(list);
}

/* The inputs of gru_backward. */

void fli_compose_gru_backward(fli_composing *g) {
  fli_env *e = &g->e;
  const fl_meta *m[FL_INS_gru_backward];
  fl_value in[FL_INS_gru_backward], dh = fli_none(), p[4];
  for (int k = 0; k < FL_INS_gru_backward; k++) {
    m[k] = fli_nothing(g->in[k]) ? NULL : fli_meta(g->in[k]);
    in[k] = m[k] ? fli_v_widened(e, g->in[k]) : g->in[k];
  }
  if (e->status || (e->status = check_gru_backward(m)))
    return;
  int64_t n = m[FL_IN_gru_backward_act]->shape[0],
          size = m[FL_IN_gru_backward_h]->shape[1];
  bool reverse = g->attrs->v[FL_ATTR_gru_backward_reverse].i;
  fl_value *list = lists_of(e, 2, n);
  for (int64_t k = n - 1; k >= 0 && !e->status; k--) {
    int64_t t = reverse ? n - 1 - k : k, before = reverse ? t + 1 : t - 1;
    fl_value act = at_time(e, in[FL_IN_gru_backward_act], t);
    fl_value d[2] = {plus(e, at_time(e, in[FL_IN_gru_backward_dy], t), dh),
                     at_time(e, in[FL_IN_gru_backward_dact], t)};
    gru_plain(e, d, rnn_part(e, act, 3, size),
              k ? at_time(e, in[FL_IN_gru_backward_y], before)
                : in[FL_IN_gru_backward_h],
              act, size, p);
    p[3] = plus(e, p[3], rnn_part(e, d[1], 3, size));
    for (int i = 0; i < 4; i++)
      p[i] = or_zeros(e, p[i], in[FL_IN_gru_backward_h]);
    list[t] = rnn_join(e, 3, p);
    list[n + t] = rnn_join(e, 3, (fl_value[]){p[0], p[1], p[3]});
    dh = plus(
        e,
        rnn_two(e, FLI_OP_matmul, list[n + t], in[FL_IN_gru_backward_weight]),
        times(e, d[0], rnn_part(e, act, 1, size)));
  }
  for (int k = 0; k < 2 && !e->status; k++)
    g->out[k] =
        CAST(n ? all_times(e, n, list + k * n)
               : fli_v_narrow(e, in[FL_IN_gru_backward_act], 2, 0, 3 * size, 1),
             m[FL_IN_gru_backward_act]->dtype);
  if (!e->status)
    g->out[FL_OUT_gru_backward_dh] =
        CAST(or_zeros(e, dh, in[FL_IN_gru_backward_h]),
             m[FL_IN_gru_backward_h]->dtype);
  fli_mfree(list);
}

void fli_grad_gru_backward(fli_grad *g) {
  fli_composed_grad(&g->e, g->op, g->attrs, FL_INS_gru_backward, g->in, g->need,
                    g->dy, g->dx);
}

void fli_grad_gru(fli_grad *g) {
  fli_env *e = &g->e;
  fl_value *y = g->y, *dy = g->dy, all[FL_MAX_OUT];
  int64_t n = g->in_meta[FL_IN_gru_gates].shape[0];
  if (n == 0)
    return;
  RUN_ALL(gru_backward, ATTRS_FOR(gru_backward, gru), all,
          IN(gru_backward, dy) = dy[0], IN(gru_backward, dact) = dy[1],
          IN(gru_backward, weight) = g->in[FL_IN_gru_weight],
          IN(gru_backward, h) = g->in[FL_IN_gru_h], IN(gru_backward, y) = y[0],
          IN(gru_backward, act) = y[1]);
  g->dx[FL_IN_gru_gates] = all[0];
  fl_value sums = as_rows(e, all[FL_OUT_gru_backward_dsums]);
  if (g->need[FL_IN_gru_weight] && !e->status)
    g->dx[FL_IN_gru_weight] =
        MATMUL(TRANSPOSE(sums, 0, 1),
               as_rows(e, states_before(g, g->in[FL_IN_gru_h], n,
                                        g->attrs->v[FL_ATTR_gru_reverse].i)));
  if (g->need[FL_IN_gru_bias])
    g->dx[FL_IN_gru_bias] = SUM1(sums, 0, false);
  g->dx[FL_IN_gru_h] = all[FL_OUT_gru_backward_dh];
}
