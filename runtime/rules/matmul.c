/* Matrix products and linear maps: shapes, gradients, cost. */
#include "env.h"

#include <math.h>
#include <string.h>

/* --- matmul --- */

static fl_status bad_product(const fli_infer *c, const char *why, int64_t a,
                             int64_t b) {
  return fli_fail(
      FL_ESHAPE, "matmul: %s x %s: %s sizes %lld and %lld differ",
      fli_shape_text(c->in[FL_IN_matmul_a]->ndim, c->in[FL_IN_matmul_a]->shape),
      fli_shape_text(c->in[FL_IN_matmul_b]->ndim, c->in[FL_IN_matmul_b]->shape),
      why, (long long)a, (long long)b);
}

/* A 1-d `a` is a row, a 1-d `b` a column; their dim is not in the result. */
fl_status fli_shape_matmul(fli_infer *c) {
  const fl_meta *a = c->in[FL_IN_matmul_a], *b = c->in[FL_IN_matmul_b];
  fl_meta *y = &c->out[0];
  if (a->ndim == 0 || b->ndim == 0)
    return fli_fail(FL_ESHAPE,
                    "matmul: %s x %s: a single number has no rows; "
                    "multiply by it with *",
                    fli_shape_text(a->ndim, a->shape),
                    fli_shape_text(b->ndim, b->shape));
  int64_t k = a->shape[a->ndim - 1],
          rows = b->shape[b->ndim > 1 ? b->ndim - 2 : 0];
  if (k != rows)
    return bad_product(c, "inner", k, rows);
  int na = a->ndim > 2 ? a->ndim - 2 : 0, nb = b->ndim > 2 ? b->ndim - 2 : 0;
  int n = na > nb ? na : nb;
  for (int i = 0; i < n; i++) {
    int64_t sa = i < n - na ? 1 : a->shape[i - (n - na)],
            sb = i < n - nb ? 1 : b->shape[i - (n - nb)];
    if (sa != sb && sa != 1 && sb != 1)
      return bad_product(c, "leading", sa, sb);
    y->shape[i] = sa == 1 ? sb : sa;
  }
  if (a->ndim > 1)
    y->shape[n++] = a->shape[a->ndim - 2];
  if (b->ndim > 1)
    y->shape[n++] = b->shape[b->ndim - 1];
  y->ndim = n;
  return FL_OK;
}

void fli_cost_matmul(const fli_infer *c, double *flops, double *bytes) {
  const fl_meta *a = c->in[0], *y = &c->out[0];
  fli_cost_bytes(c, flops, bytes);
  *flops = 2 * (double)fl_numel(y->ndim, y->shape) *
           (double)(a->ndim ? a->shape[a->ndim - 1] : 1);
}

/* The product of the other two operands, which has to have c's shape. */
fl_status fli_shape_matmul_add(fli_infer *c) {
  _Static_assert(FL_IN_FOLLOWS(matmul_add, c, a) &&
                     FL_IN_FOLLOWS(matmul_add, a, b),
                 "a product's operands");
  const fl_meta *to = c->in[FL_IN_matmul_add_c];
  fl_meta y;
  fli_infer product = *c;
  product.in = c->in + FL_IN_matmul_add_a;
  product.out = &y;
  FLI_TRY(fli_shape_matmul(&product));
  if (!fli_same_shape(&y, to))
    return fli_fail(FL_ESHAPE,
                    "matmul_add: c has shape %s, but the product of a and b "
                    "has %s",
                    fli_shape_text(to->ndim, to->shape),
                    fli_shape_text(y.ndim, y.shape));
  return FL_OK;
}

void fli_cost_matmul_add(const fli_infer *c, double *flops, double *bytes) {
  const fl_meta *a = c->in[FL_IN_matmul_add_a], *to = c->in[FL_IN_matmul_add_c];
  double n = (double)fl_numel(to->ndim, to->shape);
  fli_cost_bytes(c, flops, bytes);
  *bytes += n * (double)fl_dtype_size(to->dtype); /* read and written */
  *flops = 2 * n * (double)(a->ndim ? a->shape[a->ndim - 1] : 1);
}

/* All dims but the last as one: (rows, n). */
static fl_value flat_rows(fli_env *e, fl_value x) {
  const fl_meta *m = fli_meta(x);
  if (e->status || m->ndim == 2)
    return x;
  int64_t n = m->ndim ? m->shape[m->ndim - 1] : 1;
  int64_t rows = m->ndim ? fl_numel(m->ndim - 1, m->shape) : 1;
  return fli_v_reshape(e, x, 2, (int64_t[]){rows, n});
}

/* The last two dims the other way round. */
static fl_value matmul_turned(fli_env *e, fl_value x) {
  int n = fli_meta(x)->ndim;
  return e->status ? x : fli_v_transpose(e, x, n - 2, n - 1);
}

/* (..., m, n) to (m, ... n) as a matrix. */
static fl_value rows_first(fli_env *e, fl_value x) {
  const fl_meta *m = fli_meta(x);
  int n = m->ndim;
  int64_t dims[FL_MAX_DIMS], rows = m->shape[n - 2], rest = m->shape[n - 1];
  dims[0] = n - 2;
  dims[n - 1] = n - 1;
  for (int i = 0; i < n - 2; i++) {
    dims[i + 1] = i;
    rest *= m->shape[i];
  }
  return fli_v_reshape(e, fli_v_permute(e, x, dims), 2,
                       (int64_t[]){rows, rest});
}

/* y = a b with both at least 2-d. Where one operand is a single matrix used by
 * the whole batch, its gradient is one product over all rows, not a batch of
 * products to be summed. */
static void grad_matrices(fli_grad *g, fl_value dy) {
  fli_env *e = &g->e;
  const fl_meta *a = &g->in_meta[FL_IN_matmul_a],
                *b = &g->in_meta[FL_IN_matmul_b];
  if (g->need[FL_IN_matmul_a]) {
    if (a->ndim == 2 && b->ndim > 2)
      g->dx[FL_IN_matmul_a] =
          MATMUL(rows_first(e, dy),
                 flat_rows(e, matmul_turned(e, g->in[FL_IN_matmul_b])));
    else
      g->dx[FL_IN_matmul_a] =
          MATMUL(dy, matmul_turned(e, g->in[FL_IN_matmul_b]));
  }
  if (g->need[FL_IN_matmul_b]) {
    if (b->ndim == 2 && a->ndim > 2)
      g->dx[FL_IN_matmul_b] =
          MATMUL(matmul_turned(e, flat_rows(e, g->in[FL_IN_matmul_a])),
                 flat_rows(e, dy));
    else
      g->dx[FL_IN_matmul_b] =
          MATMUL(matmul_turned(e, g->in[FL_IN_matmul_a]), dy);
  }
}

/* a is a row of k: y (..., n). */
static void grad_row(fli_grad *g, fl_value dy) {
  fli_env *e = &g->e;
  int n = g->out_meta[0].ndim;
  if (g->need[FL_IN_matmul_a]) {
    fl_value column = fli_v_unsqueeze(e, dy, n);
    fl_value dx = MATMUL(g->in[FL_IN_matmul_b], column); /* (..., k, 1) */
    if (e->status)
      return;
    const fl_meta *m = fli_meta(dx);
    g->dx[FL_IN_matmul_a] = fli_v_reshape(e, dx, m->ndim - 1, m->shape);
  }
  if (g->need[FL_IN_matmul_b])
    g->dx[FL_IN_matmul_b] = MUL(fli_v_unsqueeze(e, g->in[FL_IN_matmul_a], 1),
                                fli_v_unsqueeze(e, dy, n - 1));
}

/* b is a column of k: y (..., m). */
static void grad_column(fli_grad *g, fl_value dy) {
  fli_env *e = &g->e;
  int n = g->out_meta[0].ndim;
  if (g->need[FL_IN_matmul_a])
    g->dx[FL_IN_matmul_a] =
        MUL(fli_v_unsqueeze(e, dy, n), g->in[FL_IN_matmul_b]);
  if (g->need[FL_IN_matmul_b]) {
    fl_value a = flat_rows(e, g->in[FL_IN_matmul_a]);
    if (e->status)
      return;
    fl_value flat = fli_v_reshape(e, dy, 1, &fli_meta(a)->shape[0]);
    g->dx[FL_IN_matmul_b] = MATMUL(matmul_turned(e, a), flat);
  }
}

void fli_grad_matmul(fli_grad *g) {
  bool row = g->in_meta[FL_IN_matmul_a].ndim == 1,
       column = g->in_meta[FL_IN_matmul_b].ndim == 1;
  fl_value dy = g->dy[0];
  if (row && column) {
    if (g->need[FL_IN_matmul_a])
      g->dx[FL_IN_matmul_a] = MUL(dy, g->in[FL_IN_matmul_b]);
    if (g->need[FL_IN_matmul_b])
      g->dx[FL_IN_matmul_b] = MUL(dy, g->in[FL_IN_matmul_a]);
  } else if (row) {
    grad_row(g, dy);
  } else if (column) {
    grad_column(g, dy);
  } else {
    grad_matrices(g, dy);
  }
}

/* --- linear --- */

enum { NONE, RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID };

static bool needs_pre(int64_t act) {
  return act == GELU || act == GELU_TANH || act == SILU;
}

static fl_status check_linear(const fl_meta *x, const fl_meta *w,
                              const fl_meta *b) {
  if (w->ndim != 2)
    return fli_fail(FL_ESHAPE,
                    "linear: weight must be (outputs, inputs), got %s",
                    fli_shape_text(w->ndim, w->shape));
  if (x->ndim == 0 || x->shape[x->ndim - 1] != w->shape[1])
    return fli_fail(FL_ESHAPE,
                    "linear: x %s does not fit weight %s: its last size must "
                    "be %lld",
                    fli_shape_text(x->ndim, x->shape),
                    fli_shape_text(w->ndim, w->shape), (long long)w->shape[1]);
  if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
    return fli_fail(FL_ESHAPE,
                    "linear: bias %s does not fit weight %s: it must be "
                    "(%lld)",
                    fli_shape_text(b->ndim, b->shape),
                    fli_shape_text(w->ndim, w->shape), (long long)w->shape[0]);
  return FL_OK;
}

/* The second result is what the activation was applied to, empty where backward
 * does without: relu, tanh and sigmoid go by their results. */
fl_status fli_shape_linear(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_linear_x], *w = c->in[FL_IN_linear_weight];
  int64_t act = c->attrs->v[FL_ATTR_linear_act].i;
  FLI_TRY(check_linear(x, w, c->in[FL_IN_linear_bias]));
  fl_meta *y = &c->out[0], *pre = &c->out[FL_OUT_linear_pre];
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof y->shape);
  y->shape[x->ndim - 1] = w->shape[0];
  pre->ndim = 1;
  pre->shape[0] = 0;
  if (needs_pre(act)) {
    pre->ndim = y->ndim;
    memcpy(pre->shape, y->shape, sizeof y->shape);
  }
  if (act == NONE || needs_pre(act))
    c->saves &= ~(1u << FLI_SAVE_OUT);
  if (!needs_pre(act))
    c->saves &= ~(2u << FLI_SAVE_OUT);
  return FL_OK;
}

int fli_linear_act(fli_env *e, int64_t act, fl_attrs *a) {
  static const int rows[] = {
      [RELU] = FLI_OP_relu, [GELU] = FLI_OP_gelu, [GELU_TANH] = FLI_OP_gelu,
      [SILU] = FLI_OP_silu, [TANH] = FLI_OP_tanh, [SIGMOID] = FLI_OP_sigmoid,
  };
  *a = fli_attrs(e, rows[act]);
  if (act == GELU_TANH)
    a->v[FL_ATTR_gelu_approx].i = 1;
  return rows[act];
}

/* The gradient of what the activation was applied to. */
static fl_value grad_of_pre(fli_grad *g) {
  int64_t act = g->attrs->v[FL_ATTR_linear_act].i;
  fl_value dy = g->dy[0];
  if (!fli_nothing(dy) && act != NONE) {
    fl_attrs a;
    int op = fli_linear_act(&g->e, act, &a);
    dy = fli_run(
        &g->e, op + 1, &a, 2, /* <op>_backward */
        (fl_value[]){
            dy, g->y[needs_pre(act) ? FL_OUT_linear_pre : FL_OUT_linear_y]});
  }
  if (!needs_pre(act) || fli_nothing(g->dy[FL_OUT_linear_pre]))
    return dy;
  return fli_nothing(dy) ? g->dy[FL_OUT_linear_pre]
                         : ADD(dy, g->dy[FL_OUT_linear_pre]);
}

void fli_grad_linear(fli_grad *g) {
  fli_env *e = &g->e;
  fl_value d = grad_of_pre(g);
  if (e->status || fli_nothing(d))
    return;
  if (g->need[FL_IN_linear_x])
    g->dx[FL_IN_linear_x] = MATMUL(d, g->in[FL_IN_linear_weight]);
  fl_value rows = flat_rows(e, d);
  if (g->need[FL_IN_linear_weight])
    g->dx[FL_IN_linear_weight] =
        MATMUL(matmul_turned(e, rows), flat_rows(e, g->in[FL_IN_linear_x]));
  if (g->n_in > 2 && g->need[FL_IN_linear_bias])
    g->dx[FL_IN_linear_bias] = SUM1(rows, 0, false);
}

/* --- composed --- */

void fli_compose_outer(fli_composing *g) {
  const fl_meta *a = fli_meta(g->in[FL_IN_outer_a]),
                *b = fli_meta(g->in[FL_IN_outer_b]);
  if (a->ndim != 1 || b->ndim != 1) {
    fli_env_fail(
        &g->e, FL_ESHAPE, "outer: needs two 1-d tensors, got %s and %s",
        fli_shape_text(a->ndim, a->shape), fli_shape_text(b->ndim, b->shape));
    return;
  }
  g->out[0] = MUL(fli_v_unsqueeze(&g->e, g->in[FL_IN_outer_a], 1),
                  g->in[FL_IN_outer_b]);
}

static fl_value scaled(fli_composing *g, fl_value x, double by) {
  if (by == 1)
    return x;
  bool whole = fl_dtype_kind(fli_meta(x)->dtype) != FL_KIND_FLOAT &&
               by == floor(by) && fabs(by) < 0x1p53;
  return MUL(x, whole ? fli_integer((int64_t)by) : NUM(by));
}

/* x's share and that of a product. beta 0 means that x is not read: its NaNs do
 * not matter. */
static void add_product(fli_composing *g, fl_value product) {
  double beta = g->attrs->v[FL_ATTR_add_products_beta].f,
         alpha = g->attrs->v[FL_ATTR_add_products_alpha].f;
  fl_value y = scaled(g, product, alpha);
  if (beta != 0)
    g->out[0] = ADD(scaled(g, g->in[FL_IN_add_products_x], beta), y);
  else
    g->out[0] = y;
}

void fli_compose_addmm(fli_composing *g) {
  add_product(g, MATMUL(g->in[FL_IN_addmm_a], g->in[FL_IN_addmm_b]));
}

static bool have_dims(fli_composing *g, int da, int db) {
  const fl_meta *a = fli_meta(g->in[FL_IN_add_products_a]),
                *b = fli_meta(g->in[FL_IN_add_products_b]);
  if (a->ndim == da && b->ndim == db)
    return true;
  fli_env_fail(&g->e, FL_ESHAPE,
               "%s: a must have %d dims and b %d, got shapes %s and %s",
               g->op->info.name, da, db, fli_shape_text(a->ndim, a->shape),
               fli_shape_text(b->ndim, b->shape));
  return false;
}

void fli_compose_addmv(fli_composing *g) {
  if (have_dims(g, 2, 1))
    add_product(g, MATMUL(g->in[FL_IN_addmv_a], g->in[FL_IN_addmv_b]));
}

void fli_compose_addr(fli_composing *g) {
  if (have_dims(g, 1, 1))
    add_product(g, RUN(outer, g->in[FL_IN_addr_a], g->in[FL_IN_addr_b]));
}

void fli_compose_baddbmm(fli_composing *g) {
  if (have_dims(g, 3, 3))
    add_product(g, MATMUL(g->in[FL_IN_baddbmm_a], g->in[FL_IN_baddbmm_b]));
}

/* The sum over the batch is part of one product: (n, batch m) (batch m, p). */
void fli_compose_addbmm(fli_composing *g) {
  if (!have_dims(g, 3, 3))
    return;
  const fl_meta *a = fli_meta(g->in[FL_IN_addbmm_a]),
                *b = fli_meta(g->in[FL_IN_addbmm_b]);
  if (a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1]) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "addbmm: shapes %s and %s do not fit one another",
                 fli_shape_text(3, a->shape), fli_shape_text(3, b->shape));
    return;
  }
  int64_t n = a->shape[1], p = b->shape[2], m = a->shape[0] * a->shape[2];
  fl_value left = TRANSPOSE(g->in[FL_IN_addbmm_a], 0, 1);
  left = fli_v_reshape(&g->e, left, 2, (int64_t[]){n, m});
  fl_value right =
      fli_v_reshape(&g->e, g->in[FL_IN_addbmm_b], 2, (int64_t[]){m, p});
  add_product(g, MATMUL(left, right));
}
