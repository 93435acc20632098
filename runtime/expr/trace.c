/* Recording: while a trace is open, calls become nodes of its graph, and their
 * results are tensors without values that stand for those nodes. */
#include "../call/call.h"
#include "expr.h"

#include <string.h>

typedef struct standing {
  uint64_t id; /* of a tensor */
  fl_value value;
} standing;

struct fli_trace {
  fl_expr *e;
  struct fli_trace *outer;
  fli_graph graph;
  int n, room;
  standing *list;
  int n_in;
  fl_operand in[FLI_EXPR_IN]; /* tensors are held */
  bool was_meta, was_grad;
};

static const fl_value *value_of(const struct fli_trace *t, const fl_tensor *x) {
  for (int k = t->n - 1; k >= 0; k--)
    if (t->list[k].id == x->id)
      return &t->list[k].value;
  return NULL;
}

int fli_trace_weak(const fl_runtime *rt, const fl_tensor *x) {
  const fl_value *v = rt->trace ? value_of(rt->trace, x) : NULL;
  if (v)
    return rt->trace->graph.nodes[v->i].weak;
  return x->meta.ndim == 0 ? FLI_TENSOR_0D : FLI_TENSOR;
}

/* A tensor that stands for a value; new reference. */
static fl_status stand_in(fl_runtime *rt, fl_value v, fl_site site,
                          fl_tensor **out) {
  struct fli_trace *t = rt->trace;
  fl_meta m = {.dtype = fli_graph_dtype(&t->graph, v)};
  if (t->n == t->room) {
    int room = t->room ? 2 * t->room : 32;
    standing *more = fli_malloc(rt, (size_t)room * sizeof *more);
    if (!more)
      return FL_ENOMEM;
    if (t->n)
      memcpy(more, t->list, (size_t)t->n * sizeof *more);
    fli_mfree(t->list);
    t->list = more;
    t->room = room;
  }
  FLI_TRY(fli_tensor_make(rt, &m, 0, 0, site, out));
  t->list[t->n++] = (standing){(*out)->id, v};
  return FL_OK;
}

static void trace_end(fl_runtime *rt) {
  struct fli_trace *t = rt->trace;
  rt->trace = t->outer;
  fli_mode_set(rt, FLI_MODE_TRACE, t->outer != NULL);
  fl_meta_mode(rt, t->was_meta);
  fl_grad_mode(rt, t->was_grad);
  for (int k = 0; k < t->n_in; k++)
    fl_tensor_release(t->in[k].tensor);
  fli_graph_close(&t->graph);
  fli_mfree(t->list);
  fli_mfree(t);
}

fl_status fl_trace_begin(fl_expr *e, int n, const fl_operand *in,
                         fl_tensor **args) {
  FLI_NEED(e, "e");
  FLI_TRY(fli_check_count(__func__, "n", n));
  if (n > 0) {
    FLI_NEED(in, "in");
    FLI_NEED(args, "args");
  }
  fl_runtime *rt = fli_expr_runtime(e);
  FLI_TRY(fli_check_owner(rt));
  if (n > FLI_EXPR_IN)
    return fli_fail(FL_ESIZE, "%s takes at most %d inputs, not %d",
                    fl_expr_name(e), FLI_EXPR_IN, n);
  struct fli_trace *t = fli_malloc(rt, sizeof *t);
  int weak[FLI_EXPR_IN], made = 0;
  if (!t)
    return FL_ENOMEM;
  memset(t, 0, sizeof *t);
  t->e = e;
  t->n_in = n;
  fli_graph_open(&t->graph, rt);
  for (int k = 0; k < n; k++) {
    weak[k] = in[k].tensor ? fli_trace_weak(rt, in[k].tensor) : FLI_NUMBER;
    t->in[k] = in[k];
    if (in[k].tensor)
      fl_tensor_retain(in[k].tensor);
  }
  t->outer = rt->trace;
  rt->trace = t;
  fli_mode_set(rt, FLI_MODE_TRACE, true);
  t->was_meta = fl_meta_mode(rt, true);
  t->was_grad = fl_grad_mode(rt, false);
  fl_status s = FL_OK;
  for (int k = 0; k < n && s == FL_OK; k++) {
    fl_dtype d = in[k].tensor ? in[k].tensor->meta.dtype : in[k].dtype;
    fl_value v;
    s = fli_graph_input(&t->graph, d, weak[k], &v);
    if (s == FL_OK)
      s = stand_in(rt, v, 0, &args[k]);
    made += s == FL_OK;
  }
  if (s == FL_OK)
    return s;
  while (made)
    fl_tensor_release(args[--made]);
  trace_end(rt);
  return s;
}

/* An operand as a value of the graph. */
static fl_status read_operand(const fl_runtime *rt, const fl_call *c, int k,
                              fl_value *v) {
  const fl_operand *o = &c->in[k];
  const fl_value *known = o->tensor ? value_of(rt->trace, o->tensor) : NULL;
  *v = known ? *known : *o;
  if (!o->tensor || known)
    return FL_OK;
  return fli_fail(FL_EUNSUPPORTED,
                  "%s: input %d of %s is a tensor that is no argument of the "
                  "function: hand it in (numbers may be used from outside)",
                  fl_expr_name(rt->trace->e), k + 1, c->op->info.name);
}

/* A call of another expression becomes a part of this one. */
static fl_status inlined(fl_runtime *rt, const fl_call *c, fl_value *out) {
  const fli_expr_op *x = c->op->expr;
  fli_graph *g = &rt->trace->graph;
  fl_value map[FL_PROGRAM_VALUES];
  int n = 0;
  for (int i = 0; i < x->graph.n; i++) {
    const fli_expr_node *node = &x->graph.nodes[i];
    fl_attrs attrs = {.v = {node->attr[0], node->attr[1]}};
    fl_value in[3];
    if (node->op == FLI_INPUT) {
      FLI_TRY(read_operand(rt, c, n++, &map[i]));
      continue;
    }
    for (int k = 0; k < node->n_in; k++)
      in[k] = node->in[k].dtype == FLI_NODE ? map[node->in[k].i] : node->in[k];
    FLI_TRY(fli_graph_apply(g, node->op, &attrs, node->n_in, in, &map[i]));
  }
  for (int k = 0; k < x->n_out; k++)
    FLI_TRY(fli_graph_cast(g, map[x->out[k].i], x->out_dtype[k], &out[k]));
  return FL_OK;
}

static fl_status trace_call(fl_runtime *rt, const fl_call *c) {
  struct fli_trace *t = rt->trace;
  fl_value in[3] = {{0}}, out[FL_MAX_OUT];
  const char *name = fl_expr_name(t->e);
  int n_out = 1;
  fl_status s;
  if (c->inplace)
    return fli_fail(FL_EUNSUPPORTED,
                    "%s: %s_ writes in place, which a kernel cannot; use %s",
                    name, c->op->info.name, c->op->info.name);
  if (c->op->expr && !c->op->program->reduce) {
    s = inlined(rt, c, out);
    n_out = c->op->info.n_out;
  } else {
    if (c->n_in > 3 || (c->op->family >= FLI_STRUCTURED &&
                        !(c->op->marks & FLI_MARK_IDENTITY)))
      return fli_fail(FL_EUNSUPPORTED,
                      "%s: %s is not elementwise, and cannot be part of a "
                      "kernel",
                      name, c->op->info.name);
    for (int k = 0; k < c->n_in; k++)
      FLI_TRY(read_operand(rt, c, k, &in[k]));
    s = fli_graph_apply(&t->graph, c->op->id, c->attrs, c->n_in, in, out);
  }
  for (int k = 0; k < n_out && s == FL_OK; k++) {
    if (out[k].dtype != FLI_NODE) /* of numbers alone */
      s = fli_graph_cast(&t->graph, out[k],
                         out[k].dtype == FL_F64 ? FL_F32 : out[k].dtype,
                         &out[k]);
    if (s == FL_OK)
      s = stand_in(rt, out[k], c->site, &c->out[k]);
    for (int j = 0; s && j < k; j++)
      fl_tensor_release(c->out[j]);
  }
  return s;
}

bool fli_mode_trace(fl_runtime *rt, const fl_call *c, fl_status *status) {
  if (c->op->family == FLI_COMPOSE) /* its rows are recorded one by one */
    return false;
  *status = trace_call(rt, c);
  return true;
}

static fl_status trace_finish(fl_runtime *rt, int n, fl_tensor *const *results,
                              const fl_op **op) {
  struct fli_trace *t = rt->trace;
  const char *name = fl_expr_name(t->e);
  fl_value out[FL_MAX_OUT];
  fl_dtype dtypes[FL_MAX_OUT];
  if (n < 1 || n > FL_MAX_OUT)
    return fli_fail(FL_EARG, "%s: the function must return 1 to %d tensors",
                    name, FL_MAX_OUT);
  for (int k = 0; k < n; k++) {
    const fl_value *v = value_of(t, results[k]);
    if (!v)
      return fli_fail(FL_EARG,
                      "%s: result %d of the function was not made from its "
                      "arguments",
                      name, k + 1);
    out[k] = *v;
    dtypes[k] = fli_graph_dtype(&t->graph, *v);
    if (t->graph.nodes[v->i].weak == FLI_NUMBER && dtypes[k] == FL_F64)
      dtypes[k] = FL_F32;
  }
  fli_graph graph = t->graph;
  t->graph.nodes = NULL;
  fl_status s = fli_expr_intern(rt,
                                &(fli_op_request){.name = name,
                                                  .graph = &graph,
                                                  .n_out = n,
                                                  .out = out,
                                                  .out_dtype = dtypes},
                                op);
  fli_graph_close(&graph);
  return s;
}

fl_status fl_trace_end(fl_expr *e, int n, fl_tensor *const *results,
                       const fl_op **op) {
  FLI_NEED(e, "e");
  if (n > 0)
    FLI_NEED(results, "results");
  if (n >= 0)
    FLI_NEED(op, "op");
  fl_runtime *rt = fli_expr_runtime(e);
  struct fli_trace *t = rt->trace;
  if (!t || t->e != e)
    return fli_fail(FL_EARG, "%s: nothing is being recorded for it",
                    fl_expr_name(e));
  fl_status s =
      n < 0 ? FL_OK : fli_check_tensors(__func__, "results", rt, n, results);
  if (s == FL_OK && n >= 0)
    s = trace_finish(rt, n, results, op);
  fl_operand in[FLI_EXPR_IN];
  int n_in = t->n_in;
  memcpy(in, t->in, sizeof in);
  t->n_in = 0;
  trace_end(rt);
  if (s == FL_OK && n >= 0)
    s = fli_expr_remember(e, n_in, in, *op);
  for (int k = 0; k < n_in; k++)
    fl_tensor_release(in[k].tensor);
  return s;
}
