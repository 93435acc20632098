/* Gradients of the elementwise rows, and what a plain row costs. Unary rows
 * share one rule: their formulas are the derivatives. */
#include "../math/math.h"
#include "env.h"

/* Every operand once, inputs that are written twice, and an operation for each
 * element of the largest result. */
void fli_cost_bytes(const fli_infer *c, double *flops, double *bytes) {
  double n;
  *flops = *bytes = 0;
  for (int k = 0; k < c->n_in; k++)
    if (c->in[k])
      *bytes += (double)fl_numel(c->in[k]->ndim, c->in[k]->shape) *
                (double)fl_dtype_size(c->in[k]->dtype) *
                (fli_op_writes(c->op, c->attrs, c->n_in, k) ? 2 : 1);
  for (int k = 0; k < c->n_out; k++) {
    n = (double)fl_numel(c->out[k].ndim, c->out[k].shape);
    *bytes += n * (double)fl_dtype_size(c->out[k].dtype);
    *flops = n > *flops ? n : *flops;
  }
}

/* Reductions: an operation for each element that is read. */
void fli_cost_reads(const fli_infer *c, double *flops, double *bytes) {
  const fl_meta *x = c->in[0];
  fli_cost_bytes(c, flops, bytes);
  *flops = (double)fl_numel(x->ndim, x->shape);
}

/* Softmax and norms: a line's maximum or mean, differences, their exponentials
 * or squares, the sum of these, and the quotient. */
void fli_cost_lines(const fli_infer *c, double *flops, double *bytes) {
  fli_cost_reads(c, flops, bytes);
  *flops *= 5;
}

/* --- unary: y = f(x), dx = dy f'(s), s what is saved --- */

static fl_value saved_of(fli_grad *g) {
  return g->op->saves & 1                   ? g->in[0]
         : g->op->saves >> FLI_SAVE_OUT & 1 ? g->y[0]
                                            : fli_none();
}

void fli_grad_unary(fli_grad *g) {
  fl_value in[2] = {g->dy[0], saved_of(g)};
  g->dx[0] = fli_run(&g->e, g->op->id + 1, g->attrs, 2, in);
}

/* dx = dy f'(s): towards dy again f'(s), towards s dy f''(s). */
void fli_grad_unary_backward(fli_grad *g) {
  fl_value ddx = g->dy[0], dy = g->in[0], s = g->in[1];
  if (g->need[0])
    g->dx[0] = fli_run(&g->e, g->op->id, g->attrs, 2, (fl_value[]){ddx, s});
  if (g->need[1] && !fli_nothing(s))
    g->dx[1] =
        fli_run(&g->e, g->op->id + 1, g->attrs, 3, (fl_value[]){ddx, dy, s});
}

/* f''' and what follows are by the expression of the formula. */
void fli_grad_unary_backward2(fli_grad *g) {
  g->e.rt->up->row_grad(g);
}

/* Fails backward, for rows whose gradient would otherwise be left out
 * unnoticed. */
void fli_grad_once(fli_grad *g) {
  fli_env_fail(&g->e, FL_EAUTOGRAD, "%s: its results cannot be differentiated",
               g->op->info.name);
}

/* --- binary --- */

void fli_grad_add(fli_grad *g) {
  g->dx[0] = g->dx[1] = g->dy[0];
}

void fli_grad_sub(fli_grad *g) {
  g->dx[0] = g->dy[0];
  if (g->need[1])
    g->dx[1] = NEG(g->dy[0]);
}

void fli_grad_mul(fli_grad *g) {
  if (g->need[0])
    g->dx[0] = MUL(g->dy[0], g->in[1]);
  if (g->need[1])
    g->dx[1] = MUL(g->dy[0], g->in[0]);
}

void fli_grad_div(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1], dy = g->dy[0];
  if (g->need[0])
    g->dx[0] = DIV(dy, b);
  if (g->need[1])
    g->dx[1] = NEG(MUL(DIV(dy, b), DIV(a, b)));
}

/* Piecewise constant: no gradient. */
void fli_grad_floor_div(fli_grad *g) {
  (void)g;
}

void fli_grad_remainder(fli_grad *g) {
  g->dx[0] = g->dy[0];
  if (g->need[1])
    g->dx[1] = NEG(MUL(g->dy[0], RUN(floor_div, g->in[0], g->in[1])));
}

void fli_grad_fmod(fli_grad *g) {
  g->dx[0] = g->dy[0];
  if (g->need[1])
    g->dx[1] = NEG(MUL(g->dy[0], RUN(trunc, DIV(g->in[0], g->in[1]))));
}

/* Towards the base b a^(b-1), 0 where b is 0; towards the exponent a^b log a, 0
 * where a is 0 and b is not negative. */
void fli_grad_pow(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1], dy = g->dy[0], zero = NUM(0);
  if (g->need[0] && fli_is_number(b)) {
    double e = b.dtype == FL_F64 ? b.f : (double)b.i;
    if (e == 0)
      g->dx[0] = MUL(dy, NUM(0));
    else
      g->dx[0] = MUL(dy, MUL(NUM(e), RUN(pow, a, NUM(e - 1))));
  } else if (g->need[0])
    g->dx[0] = RUN(where, RUN(eq, b, zero), zero,
                   MUL(dy, MUL(b, RUN(pow, a, SUB(b, NUM(1))))));
  if (g->need[1])
    g->dx[1] = RUN(where, RUN(logical_and, RUN(eq, a, zero), RUN(ge, b, zero)),
                   zero, MUL(dy, MUL(RUN(pow, a, b), LOG(a))));
}

static fl_value is_nan(fli_grad *g, fl_value x) {
  return RUN(ne, x, x);
}

/* Equal inputs share the gradient, as in PyTorch. */
static void grad_extremum(fli_grad *g, int loses, bool nan_loses) {
  fl_value a = g->in[0], b = g->in[1], dy = g->dy[0], zero = NUM(0);
  fl_value equal = RUN(eq, a, b), half = MUL(dy, NUM(0.5));
  for (int k = 0; k < 2; k++) {
    if (!g->need[k])
      continue;
    fl_value in[2] = {k ? b : a, k ? a : b};
    fl_value lost = fli_run(&g->e, loses, NULL, 2, in);
    if (nan_loses) /* of two NaNs b is the result */
      lost =
          RUN(logical_or, lost,
              k ? RUN(logical_and, is_nan(g, b), RUN(eq, a, a)) : is_nan(g, a));
    g->dx[k] = RUN(where, lost, zero, RUN(where, equal, half, dy));
  }
}

void fli_grad_maximum(fli_grad *g) {
  grad_extremum(g, FLI_OP_lt, false);
}

void fli_grad_minimum(fli_grad *g) {
  grad_extremum(g, FLI_OP_gt, false);
}

void fli_grad_atan2(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1];
  fl_value scaled = DIV(g->dy[0], ADD(MUL(a, a), MUL(b, b)));
  if (g->need[0])
    g->dx[0] = MUL(scaled, b);
  if (g->need[1])
    g->dx[1] = NEG(MUL(scaled, a));
}

void fli_grad_fmax(fli_grad *g) {
  grad_extremum(g, FLI_OP_lt, true);
}

void fli_grad_fmin(fli_grad *g) {
  grad_extremum(g, FLI_OP_gt, true);
}

void fli_grad_heaviside(fli_grad *g) {
  if (g->need[1])
    g->dx[1] = RUN(where, RUN(eq, g->in[0], NUM(0)), g->dy[0], NUM(0));
}

/* 0 where both are 0, as there is no slope. */
void fli_grad_hypot(fli_grad *g) {
  fl_value y = RUN(where, RUN(eq, g->y[0], NUM(0)), NUM(1), g->y[0]);
  fl_value scaled = DIV(g->dy[0], y);
  for (int k = 0; k < 2; k++)
    if (g->need[k])
      g->dx[k] = MUL(scaled, g->in[k]);
}

void fli_grad_copysign(fli_grad *g) {
  if (g->need[0])
    g->dx[0] = MUL(g->dy[0],
                   MUL(RUN(sign, g->in[0]), RUN(copysign, NUM(1), g->in[1])));
}

void fli_grad_ldexp(fli_grad *g) {
  if (g->need[0])
    g->dx[0] = RUN(ldexp, g->dy[0], g->in[1]);
}

/* Input k minus the other one; 0 for infinities that are equal. */
static fl_value ahead(fli_grad *g, int k) {
  fl_value a = g->in[k], b = g->in[1 - k];
  fl_value same = RUN(logical_and, RUN(eq, a, b), RUN(isinf, a));
  return RUN(where, same, NUM(0), SUB(a, b));
}

/* Each input gets dy times its share of the sum of exponentials. */
void fli_grad_logaddexp(fli_grad *g) {
  for (int k = 0; k < 2; k++) {
    if (g->need[k])
      g->dx[k] = MUL(g->dy[0], RUN(sigmoid, ahead(g, k)));
  }
}

void fli_grad_logaddexp2(fli_grad *g) {
  for (int k = 0; k < 2; k++) {
    if (g->need[k])
      g->dx[k] = MUL(g->dy[0], RUN(sigmoid, MUL(ahead(g, k), NUM(FL_LN2))));
  }
}

void fli_grad_xlogy(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1], dy = g->dy[0], zero = NUM(0);
  if (g->need[0])
    g->dx[0] = RUN(where, RUN(logical_and, RUN(eq, a, zero), RUN(le, b, zero)),
                   zero, MUL(dy, LOG(b)));
  if (g->need[1])
    g->dx[1] = MUL(dy, DIV(a, b));
}

void fli_grad_xlog1py(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1], dy = g->dy[0], zero = NUM(0);
  if (g->need[0])
    g->dx[0] =
        RUN(where, RUN(logical_and, RUN(eq, a, zero), RUN(le, b, NUM(-1))),
            zero, MUL(dy, RUN(log1p, b)));
  if (g->need[1])
    g->dx[1] = MUL(dy, DIV(a, ADD(b, NUM(1))));
}

/* The order is a whole number, and has no slope. */
void fli_grad_polygamma(fli_grad *g) {
  if (g->need[0])
    g->dx[0] = MUL(g->dy[0], RUN(polygamma, g->in[0], ADD(g->in[1], NUM(1))));
}

/* The derivative by s has no formula in flare's functions. */
void fli_grad_zeta(fli_grad *g) {
  fl_value s = g->in[0], q = g->in[1];
  if (g->need[0])
    fli_env_fail(&g->e, FL_EAUTOGRAD,
                 "zeta: there is no gradient towards s, only towards q");
  if (g->need[1])
    g->dx[1] = MUL(g->dy[0], NEG(MUL(s, RUN(zeta, ADD(s, NUM(1)), q))));
}

/* The density of the gamma distribution is the slope by x; that by a follows
 * from how x moves with a. */
static void grad_incomplete(fli_grad *g, double sign) {
  fl_value a = g->in[0], x = g->in[1];
  fl_value d = RUN(xlogy, SUB(a, NUM(1)), x);
  d = EXP(SUB(SUB(d, x), RUN(lgamma, a)));
  d = MUL(MUL(g->dy[0], NUM(sign)), d);
  if (g->need[0])
    g->dx[0] = NEG(MUL(d, RUN(gamma_da, a, x)));
  if (g->need[1])
    g->dx[1] = d;
}

void fli_grad_igamma(fli_grad *g) {
  grad_incomplete(g, 1);
}

void fli_grad_igammac(fli_grad *g) {
  grad_incomplete(g, -1);
}

void fli_grad_gamma_da(fli_grad *g) {
  fl_value a = g->in[0], x = g->in[1], y = g->y[0], dy = g->dy[0];
  if (g->need[0])
    g->dx[0] = MUL(dy, RUN(gamma_daa, a, x));
  if (g->need[1]) {
    fl_value l = SUB(LOG(x), RUN(digamma, a));
    fl_value d = ADD(l, MUL(y, SUB(DIV(SUB(a, NUM(1)), x), NUM(1))));
    g->dx[1] = RUN(where, RUN(eq, x, NUM(0)), NUM(0), NEG(MUL(dy, d)));
  }
}

/* By x it is the derivative by a of what grad_gamma_da has; by a there is no
 * formula in functions that are here. */
void fli_grad_gamma_daa(fli_grad *g) {
  fl_value a = g->in[0], x = g->in[1];
  if (g->need[0])
    fli_env_fail(&g->e, FL_EAUTOGRAD,
                 "gamma_daa: a third derivative by a is not available");
  if (g->need[1]) {
    fl_value d = SUB(DIV(SUB(a, NUM(1)), x), NUM(1));
    d = SUB(MUL(g->y[0], d), RUN(polygamma, a, NUM(1)));
    d = NEG(ADD(d, DIV(RUN(gamma_da, a, x), x)));
    g->dx[1] = MUL(g->dy[0], RUN(where, RUN(eq, x, NUM(0)), NUM(0), d));
  }
}

/* --- ternary --- */

void fli_grad_where(fli_grad *g) {
  if (g->need[1])
    g->dx[1] = RUN(where, g->in[0], g->dy[0], NUM(0));
  if (g->need[2])
    g->dx[2] = RUN(where, g->in[0], NUM(0), g->dy[0]);
}

void fli_grad_lerp(fli_grad *g) {
  fl_value a = g->in[0], b = g->in[1], w = g->in[2], dy = g->dy[0];
  if (g->need[0])
    g->dx[0] = SUB(dy, MUL(dy, w));
  if (g->need[1])
    g->dx[1] = MUL(dy, w);
  if (g->need[2])
    g->dx[2] = MUL(dy, SUB(b, a));
}

void fli_grad_addcmul(fli_grad *g) {
  fl_value scaled = MUL(g->dy[0], NUM(g->attrs->v[FL_ATTR_addcmul_value].f));
  g->dx[0] = g->dy[0];
  if (g->need[1])
    g->dx[1] = MUL(scaled, g->in[2]);
  if (g->need[2])
    g->dx[2] = MUL(scaled, g->in[1]);
}

void fli_grad_addcdiv(fli_grad *g) {
  fl_value a = g->in[1], b = g->in[2];
  fl_value scaled =
      DIV(MUL(g->dy[0], NUM(g->attrs->v[FL_ATTR_addcdiv_value].f)), b);
  g->dx[0] = g->dy[0];
  if (g->need[1])
    g->dx[1] = scaled;
  if (g->need[2])
    g->dx[2] = NEG(MUL(scaled, DIV(a, b)));
}
