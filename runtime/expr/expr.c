/* Expression graphs: nodes of elementwise rows, with dtypes by the rows'
 * signatures and gradients by the rows' gradient rules, which work on nodes as
 * they do on tensors. */
#include "../ops/number.h"
#include "expr.h"

#include <stdlib.h>
#include <string.h>

void fli_graph_open(fli_graph *g, fl_runtime *rt) {
  *g = (fli_graph){.rt = rt};
}

void fli_graph_close(fli_graph *g) {
  fli_mfree(g->nodes);
  g->nodes = NULL;
  g->n = g->room = g->n_in = 0;
}

void fli_graph_fit(fli_graph *g) {
  if (!g->n || g->n == g->room)
    return;
  fli_expr_node *less = realloc(g->nodes, (size_t)g->n * sizeof *less);
  if (!less) /* it stays as it is */
    return;
  g->nodes = less;
  g->room = g->n;
}

fl_status fli_graph_copy(fli_graph *to, const fli_graph *from) {
  fli_graph_open(to, from->rt);
  to->room = from->n + 16;
  to->nodes = fli_malloc(from->rt, (size_t)to->room * sizeof *to->nodes);
  if (!to->nodes)
    return FL_ENOMEM;
  memcpy(to->nodes, from->nodes, (size_t)from->n * sizeof *to->nodes);
  to->n = from->n;
  to->n_in = from->n_in;
  return FL_OK;
}

/* --- nodes --- */

static bool same_value(fl_value a, fl_value b) {
  return a.dtype == b.dtype && a.i == b.i;
}

static bool same_node(const fli_expr_node *a, const fli_expr_node *b) {
  if (a->op != b->op || a->n_in != b->n_in || a->attr[0].i != b->attr[0].i ||
      a->attr[1].i != b->attr[1].i)
    return false;
  for (int k = 0; k < a->n_in; k++)
    if (!same_value(a->in[k], b->in[k]))
      return false;
  return true;
}

static fl_status add_node(fli_graph *g, const fli_expr_node *node,
                          fl_value *out) {
  for (int i = 0; i < g->n && node->op != FLI_INPUT; i++)
    if (same_node(&g->nodes[i], node)) {
      *out = fli_node_value(i);
      return FL_OK;
    }
  if (g->n >= FL_PROGRAM_VALUES)
    return fli_fail(FL_ESIZE, "the expression is too long: more than %d values",
                    FL_PROGRAM_VALUES);
  if (g->n == g->room) {
    int room = g->room ? 2 * g->room : 32;
    fli_expr_node *more = fli_malloc(g->rt, (size_t)room * sizeof *more);
    if (!more)
      return FL_ENOMEM;
    if (g->n)
      memcpy(more, g->nodes, (size_t)g->n * sizeof *more);
    fli_mfree(g->nodes);
    g->nodes = more;
    g->room = room;
  }
  g->nodes[g->n] = *node;
  g->nodes[g->n].origin = g->origin;
  *out = fli_node_value(g->n++);
  return FL_OK;
}

fl_status fli_graph_input(fli_graph *g, fl_dtype d, int weak, fl_value *out) {
  fli_expr_node node = {.op = FLI_INPUT, .dtype = d, .weak = weak};
  g->n_in++;
  return add_node(g, &node, out);
}

/* --- dtypes --- */

fl_dtype fli_graph_dtype(const fli_graph *g, fl_value v) {
  return v.dtype == FLI_NODE ? g->nodes[v.i].dtype : v.dtype;
}

static int weak_of(const fli_graph *g, fl_value v) {
  return v.dtype == FLI_NODE ? g->nodes[v.i].weak : FLI_NUMBER;
}

static int expr_lift(fl_dtype d) {
  fl_kind k = fl_dtype_kind(d);
  return k == FL_KIND_BOOL ? 0 : k == FL_KIND_FLOAT ? 2 : 1;
}

/* As for tensors (call.c): values with dims decide, the others only raise the
 * kind, and a float number counts as f32. */
fl_dtype fli_graph_promote(const fli_graph *g, int n, const fl_value *v,
                           int *weak) {
  fl_dtype group[3] = {FL_NODTYPE, FL_NODTYPE, FL_NODTYPE};
  *weak = FLI_NUMBER;
  for (int k = 0; k < n; k++) {
    fl_dtype d = fli_graph_dtype(g, v[k]);
    int w = weak_of(g, v[k]);
    if (d == FL_NODTYPE) {
      *weak = FLI_TENSOR;
      return FL_NODTYPE;
    }
    if (w < *weak)
      *weak = w;
    if (w == FLI_NUMBER && d == FL_F64)
      d = FL_F32;
    group[w] = fli_promote(group[w], d);
  }
  fl_dtype r = group[0];
  for (int w = 1; w < 3; w++)
    if (r == FL_NODTYPE ||
        (group[w] != FL_NODTYPE && expr_lift(group[w]) > expr_lift(r)))
      r = fli_promote(r, group[w]);
  return r;
}

static bool expr_fits(fl_param_type want, fl_dtype d, bool number) {
  if (fli_is_complex(d))
    return false;
  switch (want) {
  case FL_T_ANY:
    return true;
  case FL_T_NUM:
    return d != FL_BOOL;
  case FL_T_FLOAT:
    return number || fl_dtype_kind(d) == FL_KIND_FLOAT;
  case FL_T_BOOL:
    return d == FL_BOOL || d == FL_U8;
  default:
    return fl_dtype_kind(d) != FL_KIND_FLOAT;
  }
}

static fl_status check_types(const fli_graph *g, const fl_op *op, int n,
                             const fl_value *in) {
  static const char *const wants[] = {"anything", "numbers", "floats",
                                      "integers", "true or false"};
  if (n != op->info.n_in && !(n == op->info.n_in - 1 && op->in_optional[n]))
    return fli_fail(FL_EARG, "%s takes %d input%s, not %d: %s", op->info.name,
                    op->info.n_in, FLI_S(op->info.n_in), n, op->info.signature);
  for (int k = 0; k < n; k++) {
    fl_dtype d = fli_graph_dtype(g, in[k]);
    fl_param_type want = (fl_param_type)op->in_type[k];
    if (d != FL_NODTYPE && !expr_fits(want, d, weak_of(g, in[k]) == FLI_NUMBER))
      return fli_fail(FL_EDTYPE, "%s: input %d is %s, but must be %s",
                      op->info.name, k + 1, fl_dtype_name(d), wants[want]);
  }
  return FL_OK;
}

static void expr_infer(const fli_graph *g, const fl_op *op,
                       fli_expr_node *node) {
  int a = op->out[0].a, b = op->out[0].b, ignored;
  fl_dtype all = fli_graph_promote(g, node->n_in, node->in, &node->weak);
  if (op->family == FLI_TEST || op->family == FLI_COMPARE) {
    node->dtype = FL_BOOL;
    return;
  }
  if (op->out[0].rule == FLI_OUT_FIXED) { /* then a is the dtype */
    node->dtype = (fl_dtype)a;
    return;
  }
  int n = b == -2 ? node->n_in - a : b == a + 1 ? 2 : 1;
  fl_dtype d = fli_graph_promote(g, n, node->in + a, &ignored);
  node->dtype = d;
  if (d == FL_NODTYPE || all == FL_NODTYPE)
    return;
  if ((op->out[0].rule == FLI_OUT_FLOAT || op->in_type[a] == FL_T_FLOAT) &&
      fl_dtype_kind(d) != FL_KIND_FLOAT)
    node->dtype = FL_F32;
  if (node->weak == FLI_NUMBER && fl_dtype_kind(node->dtype) == FL_KIND_FLOAT)
    node->dtype = FL_F64; /* as exact as a number in the text */
}

/* --- applying rows --- */

static double real_of(fl_value v) {
  return v.dtype == FL_F64 ? v.f : (double)v.i;
}

/* Arithmetic on numbers alone. */
static bool fold(int op, int n, const fl_value *in, fl_value *out) {
  if (!fli_is_number(in[0]) || (n > 1 && !fli_is_number(in[1])))
    return false;
  bool real = op == FLI_OP_div || in[0].dtype == FL_F64 ||
              (n > 1 && in[1].dtype == FL_F64);
  double x = real_of(in[0]), y = n > 1 ? real_of(in[1]) : 0, r = 0;
  uint64_t i = (uint64_t)in[0].i, j = n > 1 ? (uint64_t)in[1].i : 0, k = 0;
  switch (op) {
  case FLI_OP_neg:
    r = -x, k = 0 - i;
    break;
  case FLI_OP_add:
    r = x + y, k = i + j;
    break;
  case FLI_OP_sub:
    r = x - y, k = i - j;
    break;
  case FLI_OP_mul:
    r = x * y, k = i * j;
    break;
  case FLI_OP_div:
    r = x / y;
    break;
  default:
    return false;
  }
  *out = real ? fli_number(r) : fli_integer((int64_t)k);
  return true;
}

/* x * 1 and x / 1, which are frequent in gradients. */
static bool vanishes(const fli_graph *g, int op, const fl_value *in,
                     fl_value *out) {
  int one = op == FLI_OP_mul && fli_is_number(in[0]) ? 0 : 1, weak;
  if (op != FLI_OP_mul && op != FLI_OP_div)
    return false;
  if (!fli_is_number(in[one]) || real_of(in[one]) != 1)
    return false;
  fl_dtype d = fli_graph_dtype(g, in[1 - one]);
  if (d == FL_NODTYPE || fli_graph_promote(g, 2, in, &weak) != d ||
      (op == FLI_OP_div && fl_dtype_kind(d) != FL_KIND_FLOAT))
    return false;
  *out = in[1 - one];
  return true;
}

fl_status fli_graph_cast(fli_graph *g, fl_value v, fl_dtype d, fl_value *out) {
  fli_expr_node node = {.op = FLI_OP_copy, .n_in = 1, .dtype = d, .in = {v}};
  fl_dtype from = fli_graph_dtype(g, v);
  bool number = fli_is_number(v) || weak_of(g, v) == FLI_NUMBER;
  node.attr[0].i = d;
  if (d == FL_NODTYPE || (from == d && !number)) {
    *out = v;
    return FL_OK;
  }
  return add_node(g, &node, out);
}

static fl_status expr_refuse(const fl_op *op) {
  return fli_fail(FL_EUNSUPPORTED,
                  "%s is not elementwise, and cannot be part of an expression",
                  op->info.name);
}

static bool is_integer_node(const fli_graph *g, fl_value v) {
  return v.dtype == FLI_NODE && fli_is_integer(g->nodes[v.i].dtype);
}

/* What the mode of exact integers (call/integers.c) does, on nodes. */
static bool is_exact(fli_graph *g, const fl_op *op, const fl_attrs *a, int n,
                     const fl_value *in, fl_value *out, fl_status *s) {
  if (op->marks & FLI_MARK_BOUNDS) {
    if (!is_integer_node(g, in[0]))
      return false;
    *out = in[0];
    *s = FL_OK;
    for (int k = 0; k < 2 && *s == FL_OK; k++) {
      fl_value both[2] = {*out};
      if (fli_clamp_bound(a, k == 0, &both[1]))
        *s = fli_graph_apply(g, k ? FLI_OP_minimum : FLI_OP_maximum, NULL, 2,
                             both, out);
    }
    return true;
  }
  int real = in[0].dtype == FL_F64 ? 0 : 1, id = op->id;
  if (n != 2 || in[real].dtype != FL_F64 || !is_integer_node(g, in[1 - real]))
    return false;
  fl_value both[2] = {in[0], in[1]};
  fli_compare_exactly(&id, &both[real], real == 0);
  *s = fli_graph_apply(g, id, NULL, 2, both, out);
  return true;
}

fl_status fli_graph_apply(fli_graph *g, int id, const fl_attrs *attrs, int n,
                          const fl_value *in, fl_value *out) {
  const fl_op *op = &g->rt->ops[id];
  const fl_attrs *given = attrs ? attrs : &op->defaults;
  const fl_attr *a = given->v;
  fli_expr_node node = {.op = id};
  fl_status s;
  while (n > 1 && fli_nothing(in[n - 1]))
    n--;
  if (op->marks & FLI_MARK_IDENTITY) {
    int64_t to =
        op->out[0].rule == FLI_OUT_ATTR ? a[op->out[0].a].i : FL_ATTR_NONE;
    return fli_graph_cast(g, in[0],
                          to == FL_ATTR_NONE ? FL_NODTYPE : (fl_dtype)to, out);
  }
  if (op->family >= FLI_STRUCTURED)
    return expr_refuse(op);
  FLI_TRY(check_types(g, op, n, in));
  if (op->modes & 1u << FLI_MODE_INTEGERS &&
      is_exact(g, op, given, n, in, out, &s))
    return s;
  if (n < 3 && (fold(id, n, in, out) || (n == 2 && vanishes(g, id, in, out))))
    return FL_OK;
  for (int k = 0; k < op->info.n_attr && k < 2; k++)
    node.attr[k] = a[k];
  for (int k = 0; k < n; k++)
    node.in[k] = in[k];
  node.n_in = n;
  expr_infer(g, op, &node);
  if (op->family != FLI_COMPARE && fli_is_integer(node.dtype))
    for (int k = 0; k < n; k++)
      if (fli_is_number(in[k]))
        FLI_TRY(fli_number_fits(op->info.name, false, &in[k], node.dtype));
  return add_node(g, &node, out);
}

/* --- gradients --- */

typedef struct sweep {
  fli_graph *g;
  int n;         /* nodes of the expression itself */
  bool *reaches; /* which of them depend on a wanted node */
  bool *wanted;  /* there it ends */
  fl_value *sum; /* their gradients */
} sweep;

static fl_status accumulate(sweep *s, fl_value at, fl_value dx) {
  fl_value *sum = &s->sum[at.i];
  fl_dtype d = s->g->nodes[at.i].dtype;
  if (fli_nothing(dx) || fl_dtype_kind(d) != FL_KIND_FLOAT)
    return FL_OK;
  if (fli_nothing(*sum))
    return fli_graph_cast(s->g, dx, d, sum);
  fl_value both[2] = {*sum, dx};
  FLI_TRY(fli_graph_apply(s->g, FLI_OP_add, NULL, 2, both, sum));
  return fli_graph_cast(s->g, *sum, d, sum);
}

/* A second derivative is taken apart; equal inputs get one gradient. */
static fl_status run_third(sweep *s, int i) {
  const fli_expr_node node = s->g->nodes[i];
  int wanted[3] = {0}, n = 0;
  fl_value dx[3];
  for (int k = 0; k < node.n_in; k++) {
    int at = (int)node.in[k].i, j = 0;
    if (node.in[k].dtype != FLI_NODE || !s->reaches[at])
      continue;
    while (j < n && wanted[j] != at)
      j++;
    if (j == n)
      wanted[n++] = at;
  }
  FLI_TRY(fli_graph_third(s->g, i, s->sum[i], n, wanted, dx));
  for (int k = 0; k < n; k++)
    FLI_TRY(accumulate(s, fli_node_value(wanted[k]), dx[k]));
  return FL_OK;
}

/* Runs the rule of node i on its gradient. */
static fl_status run_rule(sweep *s, int i) {
  const fli_expr_node node = s->g->nodes[i]; /* the array may move */
  const fl_op *op = &s->g->rt->ops[node.op];
  fl_attrs attrs = op->defaults;
  fl_meta in_meta[3] = {{0}}, out_meta = {.dtype = node.dtype};
  fl_value in[3], dx[3], y = fli_node_value(i);
  bool need[3];
  for (int k = 0; k < op->info.n_attr && k < 2; k++)
    attrs.v[k] = node.attr[k];
  for (int k = 0; k < 3; k++) {
    in[k] = k < node.n_in ? node.in[k] : fli_none();
    dx[k] = fli_none();
    need[k] = in[k].dtype == FLI_NODE && s->reaches[in[k].i];
    in_meta[k].dtype = fli_graph_dtype(s->g, in[k]);
  }
  if (op->family == FLI_UNARY_BACKWARD2)
    return run_third(s, i);
  fli_grad rule = {.op = op,
                   .attrs = &attrs,
                   .n_in = op->info.n_in,
                   .n_out = 1,
                   .in_meta = in_meta,
                   .out_meta = &out_meta,
                   .in = in,
                   .y = &y,
                   .dy = &s->sum[i],
                   .dx = dx,
                   .need = need,
                   .create = true};
  fl_value dy = s->sum[i]; /* rules may read it after the array has moved */
  rule.dy = &dy;
  fli_env_open(&rule.e, s->g->rt, 0, 0);
  rule.e.graph = s->g;
  op->grad(&rule);
  fl_status status = rule.e.status;
  fli_env_close(&rule.e);
  if (status == FL_EUNSUPPORTED)
    return fli_fail(status, "the gradient of %s: %s", op->info.name,
                    fl_error());
  for (int k = 0; k < node.n_in && status == FL_OK; k++)
    if (need[k])
      status = accumulate(s, in[k], dx[k]);
  return status;
}

static fl_status run_sweep(sweep *s) {
  fl_status status = FL_OK;
  for (int i = 0; i < s->n; i++) {
    const fli_expr_node *node = &s->g->nodes[i];
    if (node->op != FLI_INPUT && s->g->rt->ops[node->op].grad)
      for (int k = 0; k < node->n_in; k++)
        s->reaches[i] |=
            node->in[k].dtype == FLI_NODE && s->reaches[node->in[k].i];
  }
  for (int i = s->n - 1; i >= 0 && status == FL_OK; i--)
    if (s->g->nodes[i].op != FLI_INPUT && s->reaches[i] && !s->wanted[i] &&
        !fli_nothing(s->sum[i]))
      status = run_rule(s, i);
  return status;
}

fl_status fli_graph_gradient(fli_graph *g, int n_out, const fl_value *out,
                             const fl_value *dy, int n_wanted,
                             const int *wanted, fl_value *dx) {
  sweep s = {.g = g, .n = g->n};
  size_t each = sizeof *s.sum + 2 * sizeof *s.reaches;
  s.sum = fli_malloc(g->rt, (size_t)g->n * each);
  if (!s.sum)
    return FL_ENOMEM;
  s.reaches = (bool *)(s.sum + g->n);
  s.wanted = s.reaches + g->n;
  for (int i = 0; i < g->n; i++) {
    s.sum[i] = fli_none();
    s.reaches[i] = s.wanted[i] = false;
  }
  for (int k = 0; k < n_wanted; k++)
    s.reaches[wanted[k]] = s.wanted[wanted[k]] = true;
  fl_status status = FL_OK;
  for (int k = 0; k < n_out && status == FL_OK; k++)
    if (out[k].dtype == FLI_NODE)
      status = accumulate(&s, out[k], dy[k]);
  if (status == FL_OK)
    status = run_sweep(&s);
  for (int k = 0; k < n_wanted; k++)
    dx[k] = s.sum[wanted[k]];
  fli_mfree(s.sum);
  return status;
}
