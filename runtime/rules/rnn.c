/* Recurrent cells: shapes and gradients. Fused backward rows do the usual; what
 * must be differentiable again is written out in ordinary operators. */
#include "../env.h"

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

static void give(fl_meta *out, const fl_meta *m) {
  out->ndim = m->ndim;
  for (int i = 0; i < m->ndim; i++)
    out->shape[i] = m->shape[i];
}

/* gates, c -> h, c2, act */
fl_status shape_lstm_cell(fli_infer *c) {
  FLI_TRY(check_parts("lstm_cell", "gates", c->in[0], 4, c->in[1]));
  give(&c->out[0], c->in[1]);
  give(&c->out[1], c->in[1]);
  give(&c->out[2], c->in[0]);
  return FL_OK;
}

/* dh, dc, c, c2, act -> dgates, dc1 */
fl_status shape_lstm_cell_backward(fli_infer *c) {
  const char *op = "lstm_cell_backward";
  for (int k = 0; k < 4; k++)
    if (c->in[k])
      FLI_TRY(check_parts(op, "a gradient or state", c->in[k], 1, c->in[2]));
  FLI_TRY(check_parts(op, "act", c->in[4], 4, c->in[2]));
  give(&c->out[0], c->in[4]);
  give(&c->out[1], c->in[2]);
  return FL_OK;
}

/* gi, gh, h -> y, act */
fl_status shape_gru_cell(fli_infer *c) {
  FLI_TRY(check_parts("gru_cell", "gi", c->in[0], 3, c->in[2]));
  FLI_TRY(check_parts("gru_cell", "gh", c->in[1], 3, c->in[2]));
  give(&c->out[0], c->in[2]);
  give(&c->out[1], c->in[0]);
  return FL_OK;
}

/* dy, gh, h, act -> dgi, dgh, dh */
fl_status shape_gru_cell_backward(fli_infer *c) {
  const char *op = "gru_cell_backward";
  FLI_TRY(check_parts(op, "dy", c->in[0], 1, c->in[2]));
  FLI_TRY(check_parts(op, "gh", c->in[1], 3, c->in[2]));
  FLI_TRY(check_parts(op, "act", c->in[3], 3, c->in[2]));
  give(&c->out[0], c->in[1]);
  give(&c->out[1], c->in[1]);
  give(&c->out[2], c->in[2]);
  return FL_OK;
}

/* --- gradients --- */

/* Part k of the last dim, of n elements; nothing of nothing. */
static fl_value part(fli_grad *g, fl_value x, int64_t k, int64_t n) {
  if (fli_nothing(x))
    return x;
  return fli_v_narrow(&g->e, x, fli_meta(x)->ndim - 1, k * n, n, 1);
}

/* Sums and products in which nothing stands for 0. */
static fl_value plus(fli_grad *g, fl_value a, fl_value b) {
  return fli_nothing(a) ? b : fli_nothing(b) ? a : ADD(a, b);
}

static fl_value times(fli_grad *g, fl_value a, fl_value b) {
  return fli_nothing(a) ? a : MUL(a, b);
}

/* Through a sigmoid or tanh with the result y. */
static fl_value sigmoid_back(fli_grad *g, fl_value d, fl_value y) {
  return times(g, d, MUL(y, SUB(NUM(1), y)));
}

static fl_value tanh_back(fli_grad *g, fl_value d, fl_value y) {
  return times(g, d, SUB(NUM(1), MUL(y, y)));
}

static fl_value or_zeros(fli_grad *g, fl_value x, fl_value like) {
  return fli_nothing(x) ? MUL(like, NUM(0)) : x;
}

static fl_value join(fli_grad *g, int n, const fl_value *parts) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
  int ndim = fli_meta(parts[0])->ndim;
  a.v[0].i = ndim ? ndim - 1 : 0;
  return fli_run(&g->e, FLI_OP_cat, &a, n, parts);
}

/* c2 = f c + i n, h = o tanh(c2); dy[2] is of the activated gates. */
static void lstm_plain(fli_grad *g) {
  fl_value dh = g->dy[0], dact = g->dy[2], c = g->in[1], c2 = g->y[1],
           act = g->y[2], a[4], d[4];
  int64_t n = g->in_meta[1].shape[g->in_meta[1].ndim - 1];
  for (int k = 0; k < 4; k++)
    a[k] = part(g, act, k, n);
  fl_value t = RUN(tanh, c2);
  fl_value dc2 = plus(g, g->dy[1], tanh_back(g, times(g, dh, a[3]), t));
  d[0] = times(g, dc2, a[2]);
  d[1] = times(g, dc2, c);
  d[2] = times(g, dc2, a[0]);
  d[3] = times(g, dh, t);
  for (int k = 0; k < 4; k++) {
    d[k] = plus(g, d[k], part(g, dact, k, n));
    d[k] = k == 2 ? tanh_back(g, d[k], a[k]) : sigmoid_back(g, d[k], a[k]);
    d[k] = or_zeros(g, d[k], a[k]);
  }
  if (g->need[0])
    g->dx[0] = join(g, 4, d);
  if (g->need[1])
    g->dx[1] = times(g, dc2, a[1]);
}

void grad_lstm_cell(fli_grad *g) {
  if (g->create || !fli_nothing(g->dy[2])) {
    lstm_plain(g);
    return;
  }
  fl_value d[FL_MAX_OUT];
  RUN_ALL(lstm_cell_backward, NULL, d, g->dy[0], g->dy[1], g->in[1], g->y[1],
          g->y[2]);
  g->dx[0] = d[0];
  g->dx[1] = d[1];
}

/* r, z = sigmoid(gi + gh), n = tanh(gi_n + r gh_n), y = n + z (h - n) */
static void gru_plain(fli_grad *g) {
  fl_value dy = g->dy[0], gh = g->in[1], h = g->in[2], act = g->y[1];
  int64_t n = g->in_meta[2].shape[g->in_meta[2].ndim - 1];
  fl_value r = part(g, act, 0, n), z = part(g, act, 1, n),
           new = part(g, act, 2, n), dact = g->dy[1];
  fl_value dn = tanh_back(
      g, plus(g, times(g, dy, SUB(NUM(1), z)), part(g, dact, 2, n)), new);
  fl_value dr = sigmoid_back(
      g, plus(g, times(g, dn, part(g, gh, 2, n)), part(g, dact, 0, n)), r);
  fl_value dz = sigmoid_back(
      g, plus(g, times(g, dy, SUB(h, new)), part(g, dact, 1, n)), z);
  if (g->need[0])
    g->dx[0] = join(g, 3, (fl_value[]){dr, dz, dn});
  if (g->need[1])
    g->dx[1] = join(g, 3, (fl_value[]){dr, dz, MUL(dn, r)});
  if (g->need[2])
    g->dx[2] = times(g, dy, z);
}

void grad_gru_cell(fli_grad *g) {
  if (g->create || !fli_nothing(g->dy[1])) {
    gru_plain(g);
    return;
  }
  fl_value d[FL_MAX_OUT];
  RUN_ALL(gru_cell_backward, NULL, d, g->dy[0], g->in[1], g->in[2], g->y[1]);
  for (int k = 0; k < 3; k++)
    g->dx[k] = d[k];
}
