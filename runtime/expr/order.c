/* Third and higher derivatives of unary rows: rows carry f, f' and f'' as
 * loops; from there on f'' is an expression, read from the row's formula or,
 * where that calls functions of math.h that are no rows, from its mark
 * FL_SECOND. In an eager call the second derivative becomes an expression of
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

enum { ANY = -1 };

static const struct {
  int op, choice; /* for this value of p0 */
  const char *text;
} marked[] = {
#define FL_SECOND(name, p0, text) {FLI_OP_##name##_backward2, p0, text},
#include "../ops.def"
};

static const char *text_of(int op, const double *p) {
  for (size_t k = 0; k < sizeof marked / sizeof *marked; k++)
    if (marked[k].op == op &&
        (marked[k].choice == ANY || marked[k].choice == p[0]))
      return marked[k].text;
  return seconds[op].text;
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
