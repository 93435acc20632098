/* Gradients of softmax and log_softmax, and of those gradients. */
#include "env.h"

void fli_grad_softmax(fli_grad *g) {
  g->dx[0] = RUN_A(softmax_backward, ATTRS_FOR(softmax_backward, softmax),
                   g->dy[0], g->y[0]);
}

void fli_grad_log_softmax(fli_grad *g) {
  g->dx[0] =
      RUN_A(log_softmax_backward, ATTRS_FOR(log_softmax_backward, log_softmax),
            g->dy[0], g->y[0]);
}

/* dx = y (dy - s), s = sum(y dy): towards dy it is the same map again; towards
 * y it is ddx (dy - s) - dy sum(y ddx). */
void fli_grad_softmax_backward(fli_grad *g) {
  fl_value ddx = g->dy[0], dy = g->in[FL_IN_softmax_backward_dy],
           y = g->in[FL_IN_softmax_backward_y];
  int64_t dim = g->attrs->v[FL_ATTR_softmax_backward_dim].i;
  bool flat = fli_meta(y)->ndim > 0;
  if (g->need[FL_IN_softmax_backward_dy])
    g->dx[FL_IN_softmax_backward_dy] =
        RUN_A(softmax_backward, g->attrs, ddx, y);
  if (!g->need[FL_IN_softmax_backward_y])
    return;
  fl_value s = MUL(y, dy), t = MUL(y, ddx);
  if (flat) {
    s = SUM1(s, dim, true);
    t = SUM1(t, dim, true);
  }
  g->dx[FL_IN_softmax_backward_y] = SUB(MUL(ddx, SUB(dy, s)), MUL(dy, t));
}

/* dx = dy - exp(y) s, s = sum(dy): towards dy ddx - sum(exp(y) ddx), towards y
 * -ddx exp(y) s. */
void fli_grad_log_softmax_backward(fli_grad *g) {
  fl_value ddx = g->dy[0], dy = g->in[FL_IN_log_softmax_backward_dy],
           p = EXP(g->in[FL_IN_log_softmax_backward_y]);
  int64_t dim = g->attrs->v[FL_ATTR_log_softmax_backward_dim].i;
  bool flat = fli_meta(g->in[FL_IN_log_softmax_backward_y])->ndim > 0;
  fl_value t = MUL(p, ddx);
  if (g->need[FL_IN_log_softmax_backward_dy])
    g->dx[FL_IN_log_softmax_backward_dy] =
        SUB(ddx, flat ? SUM1(t, dim, true) : t);
  if (g->need[FL_IN_log_softmax_backward_y])
    g->dx[FL_IN_log_softmax_backward_y] =
        NEG(MUL(t, flat ? SUM1(dy, dim, true) : dy));
}
