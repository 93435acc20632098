/* Third and higher derivatives of unary rows: rows carry f, f' and f'' as
 * loops; from there on f'' is an expression itself, read from the row's
 * formula. In an eager call the second derivative is taken for an expression of
 * one row. */
#include "expr.h"

typedef enum saved { X, Y, NONE } saved;

typedef struct second {
  saved saved; /* what the formula is in terms of */
  const char *text;
} second;

static const second seconds[FLI_OPS] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  [FLI_OP_##name##_backward2] = {saves, #ddf},
#include "../ops.def"
};

/* The polygammas as expressions, which math.h has as loops: f of r, r + 1, ...,
 * r + 9, then the asymptotic series; r is x, or 1 - x below 0. */
#define TEN_TIMES(f)                                                           \
  f("0") f("1") f("2") f("3") f("4") f("5") f("6") f("7") f("8") f("9")
#define SQUARE(k) " + 1 / ((r + " k ") * (r + " k "))"
#define CUBE(k)   " - 2 / ((r + " k ") * (r + " k ") * (r + " k "))"
#define REFLECTED                                                              \
  "T r = x > 0 ? x : 1 - x, z = r + 10, s = 1 / (z * z);"                      \
  "T t = 3.14159265358979323846 * (x > 0 ? 0.5 : x - round(x)), q = sin(t);"
#define TRIGAMMA                                                               \
  REFLECTED                                                                    \
  "T v = (1 + 0.5 / z + s * (1.0 / 6 - s * (1.0 / 30 - s * (1.0 / 42"          \
  " - s * (1.0 / 30 - s * (5.0 / 66 - s * 0.253113553113553114))))))"          \
  " / z" TEN_TIMES(SQUARE) ";"                                                 \
                           "x > 0 ? v : 9.86960440108935862 / (q * q) - v"
#define TETRAGAMMA                                                             \
  REFLECTED                                                                    \
  "T v = -s * (1 + 1 / z + s * (0.5 - s * (1.0 / 6 - s * (1.0 / 6"             \
  " - s * (0.3 - s * (5.0 / 6 - s * 3.29047619047619048))))))" TEN_TIMES(      \
      CUBE) ";"                                                                \
            "x > 0 ? v : v - 62.0125533604039984 * cos(t) / (q * q * q)"

/* Bessel functions: f1(x) / x is q, (f0(x) - 2 f1(x) / x) / x is r. */
#define PARTS(f0, f1)                                                          \
  "T z = x == 0 ? 1 : x, q = x == 0 ? 0.5 : " f1 "(z) / z;"                    \
  "T r = x == 0 ? 0 : (" f0 "(z) - 2 * q) / z;"

/* Those whose formula is a function of math.h that is no row. */
static const char *text_of(int op, const double *p) {
  switch (op) {
  case FLI_OP_silu_backward2:
    return "T s = sigmoid(x); s * (1 - s) * (2 + x * (1 - 2 * s))";
  case FLI_OP_mish_backward2:
    return "T t = tanh(softplus(x)), s = sigmoid(x), d = 1 - t * t;"
           "2 * s * d + x * (s * (1 - s) * d - 2 * t * d * s * s)";
  case FLI_OP_gelu_backward2:
    if (p[0] == 0)
      return "(2 - x * x) * 0.39894228040143267794 * exp(-0.5 * x * x)";
    return "T s = sigmoid(1.59576912160573071 * x * (1 + 0.044715 * x * x));"
           "T u = 1.59576912160573071 * (1 + 0.134145 * x * x);"
           "T v = 1.59576912160573071 * 0.26829 * x, ds = s * (1 - s) * u;"
           "2 * ds + x * (ds * (1 - 2 * s) * u + s * (1 - s) * v)";
  case FLI_OP_lgamma_backward2:
    return TRIGAMMA;
  case FLI_OP_digamma_backward2:
    return TETRAGAMMA;
  case FLI_OP_bessel_j0_backward2:
    return PARTS("bessel_j0", "bessel_j1") "q - bessel_j0(x)";
  case FLI_OP_bessel_j1_backward2:
    return PARTS("bessel_j0", "bessel_j1") "-r - bessel_j1(x)";
  case FLI_OP_i0_backward2:
    return PARTS("i0", "i1") "i0(x) - q";
  case FLI_OP_i1_backward2:
    return PARTS("i0", "i1") "i1(x) - r";
  case FLI_OP_i0e_backward2:
    return PARTS("i0e", "i1e") "2 * (i0e(x) - sign(x) * i1e(x)) - q";
  case FLI_OP_i1e_backward2:
    return PARTS("i0e", "i1e") "2 * (i1e(x) + sign(x) * (q - i0e(x))) - r";
  case FLI_OP_sinc_backward2: /* near 0 by the series, and z is out of the way
                               */
    return "T u = 9.86960440108935862 * x * x;"
           "T z = u < 0.25 ? 1 : 3.14159265358979323846 * x;"
           "9.86960440108935862 * (u < 0.25 ? -1.0 / 3 + u * (0.1 - u *"
           "(1.0 / 168 - u * (1.0 / 6480 - u * (1.0 / 443520 - u *"
           "2.1197937864e-8)))) :"
           "((2 / (z * z) - 1) * sin(z) - 2 * cos(z) / z) / z)";
  default:
    return seconds[op].text;
  }
}

/* f'' of the saved value, by the attributes p. */
static fl_status second_derivative(fli_graph *g, const fli_expr_node *node,
                                   fl_value *out) {
  const fl_op *op = &g->rt->ops[node->op];
  fl_value x = node->in[2], y = x;
  fl_attrs attrs = {.v = {node->attr[0], node->attr[1]}};
  double p[2] = {0, 0};
  fli_attributes(op, node->attr, p);
  if (seconds[node->op].saved == NONE)
    return fli_graph_cast(g, fli_number(0), node->dtype, out);
  if (seconds[node->op].saved == X) /* the row itself stands two before */
    FLI_TRY(fli_graph_apply(g, node->op - 2, &attrs, 1, &x, &y));
  return fli_expr_formula(g, op->info.name, text_of(node->op, p), node->dtype,
                          x, y, p, out);
}

fl_status fli_graph_third(fli_graph *g, int i, fl_value dy, int n,
                          const int *wanted, fl_value *dx) {
  const fli_expr_node node = g->nodes[i];
  fl_value product, all;
  FLI_TRY(second_derivative(g, &node, &all));
  FLI_TRY(fli_graph_apply(g, FLI_OP_mul, NULL, 2, node.in, &product));
  FLI_TRY(fli_graph_apply(g, FLI_OP_mul, NULL, 2, (fl_value[]){product, all},
                          &all));
  return fli_graph_gradient(g, 1, &all, &dy, n, wanted, dx);
}

void fli_expr_row_grad(fli_grad *g) {
  const fl_op *op;
  fl_status s = FL_OK;
  bool numbers = false;
  for (int k = 0; k < g->n_in; k++)
    numbers = numbers || fli_is_number(g->in[k]);
  if (numbers)
    s = fli_fail(FL_EUNSUPPORTED,
                 "its derivatives are for tensors, not for numbers");
  s = s ? s : fli_expr_of_row(g, &op);
  if (s)
    fli_env_fail(&g->e, s, "%s: %s", g->op->info.name, fl_error());
  else
    fli_expr_flow_back(g, op);
}
