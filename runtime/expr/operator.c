/* Run-time operators of expression graphs: one for each graph (equal graphs
 * share it), with a program for backends, a shape rule that broadcasts, and
 * gradients that are operators of the same kind. */
#include "../tape/tape.h"
#include "expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- interning --- */

static uint64_t operator_mix(uint64_t h, uint64_t v) {
  return (h ^ v) * 0x9E3779B97F4A7C15u ^ (h >> 29);
}

static uint64_t hash_graph(const fli_graph *g, uint64_t h) {
  for (int i = 0; i < g->n; i++) {
    const fli_expr_node *x = &g->nodes[i];
    h = operator_mix(operator_mix(operator_mix(h, (uint64_t)x->op), x->dtype),
                     (uint64_t)x->weak);
    h = operator_mix(operator_mix(h, (uint64_t)x->attr[0].i),
                     (uint64_t)x->attr[1].i);
    for (int k = 0; k < x->n_in; k++)
      h = operator_mix(operator_mix(h, x->in[k].dtype), (uint64_t)x->in[k].i);
  }
  return h;
}

static uint64_t hash_of(const fli_op_request *q) {
  uint64_t h =
      operator_mix((uint64_t)q->reduce << 1 | q->separate, q->backward_for);
  for (const char *s = q->name; *s; s++)
    h = operator_mix(h, (unsigned char)*s);
  h = hash_graph(q->graph, h);
  if (q->backward)
    h = hash_graph(q->backward, h);
  for (int k = 0; k < q->n_out; k++)
    h = operator_mix(operator_mix(h, q->out_dtype[k]), (uint64_t)q->out[k].i);
  return h;
}

static bool same_node(const fli_expr_node *a, const fli_expr_node *b) {
  bool same = a->op == b->op && a->dtype == b->dtype && a->weak == b->weak &&
              a->n_in == b->n_in && a->attr[0].i == b->attr[0].i &&
              a->attr[1].i == b->attr[1].i;
  for (int k = 0; k < a->n_in && same; k++)
    same = a->in[k].dtype == b->in[k].dtype && a->in[k].i == b->in[k].i;
  return same;
}

static bool same_graph(const fli_graph *a, const fli_graph *b) {
  bool same = a->n == b->n;
  for (int i = 0; i < a->n && same; i++)
    same = same_node(&a->nodes[i], &b->nodes[i]);
  return same;
}

static bool is_the_one(const fli_expr_op *x, const fli_op_request *q) {
  bool same = x->n_out == q->n_out && x->program->reduce == q->reduce &&
              x->separate == q->separate &&
              x->backward_for == q->backward_for &&
              strcmp(x->op->info.name, q->name) == 0 &&
              same_graph(&x->graph, q->graph) &&
              (!q->backward || same_graph(&x->backward, q->backward));
  for (int k = 0, n = 0; k < q->graph->n_in && same; k++)
    if (q->backward_for >> k & 1) {
      same = x->backward_out[n].i == q->backward_out[n].i;
      n++;
    }
  for (int k = 0; k < q->n_out && same; k++)
    same = x->out[k].dtype == q->out[k].dtype && x->out[k].i == q->out[k].i &&
           x->out_dtype[k] == q->out_dtype[k];
  return same;
}

static void free_op(fli_expr_op *x) {
  for (fli_derived *d = x->derived, *next; d; d = next) {
    next = d->next;
    fli_mfree(d->message);
    fli_mfree(d);
  }
  fli_graph_close(&x->graph);
  fli_graph_close(&x->backward);
  fli_mfree(x->program);
  fli_mfree(x);
}

void fli_exprs_close(fl_runtime *rt) {
  for (fli_expr_op *x = rt->exprs, *next; x; x = next) {
    next = x->next;
    free_op(x);
  }
  rt->exprs = NULL;
  free(rt->expr_slots);
  rt->expr_slots = NULL;
  rt->n_exprs = rt->n_expr_slots = 0;
}

/* As many slots as expressions at least; with less memory chains are longer. */
static bool grow_slots(fl_runtime *rt) {
  if (rt->n_exprs < rt->n_expr_slots)
    return true;
  uint32_t n = rt->n_expr_slots ? 2 * rt->n_expr_slots : 64;
  fli_expr_op **slots = calloc(n, sizeof(fli_expr_op *));
  if (!slots)
    return rt->n_expr_slots > 0;
  for (fli_expr_op *x = rt->exprs; x; x = x->next) {
    x->next_in_slot = slots[x->hash & (n - 1)];
    slots[x->hash & (n - 1)] = x;
  }
  free(rt->expr_slots);
  rt->expr_slots = slots;
  rt->n_expr_slots = n;
  return true;
}

/* --- construction --- */

enum { DIMS, KEEPDIM }; /* the attributes of a reduction, in this order */

static void write_signature(const fli_op_request *q, char *to, size_t room) {
  size_t n = 0;
  for (int k = 0; k < q->graph->n_in; k++)
    n += (size_t)snprintf(to + n, room - n, "%sin%d:any", k ? ", " : "", k + 1);
  if (q->reduce)
    n += (size_t)snprintf(to + n, room - n, ", dims:ints=, keepdim:flag=false");
  for (int k = 0; k < q->n_out; k++)
    n += (size_t)snprintf(to + n, room - n, "%sout%d:%s", k ? ", " : " -> ",
                          k + 1, fl_dtype_name(q->out_dtype[k]));
}

static fl_status make_plain(fl_runtime *rt, fli_expr_op *x,
                            const fli_op_request *q) {
  fli_op_request plain = *q;
  fli_graph graph;
  int weak;
  fl_dtype d = fli_graph_promote(&x->graph, 1, q->out, &weak);
  FLI_TRY(fli_graph_copy(&graph, &x->graph));
  plain.graph = &graph;
  plain.reduce = FL_REDUCE_NONE;
  plain.out_dtype = &d;
  fl_status s = fli_expr_intern(rt, &plain, &x->plain);
  fli_graph_close(&graph);
  return s;
}

static fl_status shape_expr(fli_infer *c);
static void grad_expr(fli_grad *g);

static fl_status operator_make(fl_runtime *rt, const fli_op_request *q,
                               fli_expr_op *x) {
  char signature[512];
  fli_graph_fit(q->graph);
  x->graph = *q->graph;
  *q->graph = (fli_graph){.rt = rt};
  if (q->backward) {
    int n = __builtin_popcount(q->backward_for);
    fli_graph_fit(q->backward);
    x->backward = *q->backward;
    *q->backward = (fli_graph){.rt = rt};
    memcpy(x->backward_out, q->backward_out, (size_t)n * sizeof(fl_value));
    x->backward_for = q->backward_for;
  }
  x->separate = q->separate;
  FLI_TRY(fli_expr_lower(&x->graph, q->n_out, q->out, q->out_dtype, q->reduce,
                         q->separate, q->name, &x->program));
  if (q->reduce)
    FLI_TRY(make_plain(rt, x, q));
  x->n_out = q->n_out;
  memcpy(x->out, q->out, (size_t)q->n_out * sizeof *x->out);
  memcpy(x->out_dtype, q->out_dtype, (size_t)q->n_out * sizeof(fl_dtype));
  fli_op_request named = *q;
  named.graph = &x->graph;
  write_signature(&named, signature, sizeof signature);
  FLI_TRY(fli_op_new(rt, q->name, signature, "expr", &x->op));
  x->op->shape = shape_expr;
  x->op->grad = grad_expr;
  if (!q->reduce) {
    x->op->layout = fli_layout_alike;
    x->op->marks |= FLI_MARK_POINTWISE;
  }
  x->op->info.differentiable = true;
  x->op->info.doc = "An expression.";
  x->op->program = x->program;
  x->op->expr = x;
  if (!grow_slots(rt))
    return fli_fail(FL_ENOMEM, "out of memory: expressions");
  fli_expr_op **slot = &rt->expr_slots[x->hash & (rt->n_expr_slots - 1)];
  x->next_in_slot = *slot;
  *slot = x;
  x->next = rt->exprs;
  rt->exprs = x;
  rt->n_exprs++;
  return FL_OK;
}

fl_status fli_expr_intern(fl_runtime *rt, const fli_op_request *q,
                          const fl_op **op) {
  uint64_t h = hash_of(q);
  if (q->graph->n_in > FL_PROGRAM_IN)
    return fli_fail(FL_ESIZE, "%s: %d inputs are too many: at most %d", q->name,
                    q->graph->n_in, FL_PROGRAM_IN);
  uint32_t mask = rt->n_expr_slots - 1; /* unused without slots */
  fli_expr_op *first = rt->n_exprs ? rt->expr_slots[h & mask] : NULL;
  for (fli_expr_op *x = first; x; x = x->next_in_slot)
    if (x->hash == h && is_the_one(x, q)) {
      *op = x->op;
      return FL_OK;
    }
  fli_expr_op *x = fli_malloc(rt, sizeof *x);
  if (!x)
    return FL_ENOMEM;
  memset(x, 0, sizeof *x);
  x->hash = h;
  fl_status s = operator_make(rt, q, x);
  if (s)
    free_op(x);
  else
    *op = x->op;
  return s;
}

/* --- shapes --- */

static fl_status operator_broadcast(const fli_infer *c, fl_meta *to) {
  to->ndim = 0;
  for (int k = 0; k < c->n_in; k++)
    if (c->in[k]->ndim > to->ndim)
      to->ndim = c->in[k]->ndim;
  for (int i = 0; i < to->ndim; i++)
    to->shape[i] = 1;
  for (int k = 0; k < c->n_in; k++) {
    const fl_meta *m = c->in[k];
    int64_t *shape = to->shape + (to->ndim - m->ndim);
    for (int i = 0; i < m->ndim; i++)
      if (shape[i] == 1)
        shape[i] = m->shape[i];
      else if (m->shape[i] != shape[i] && m->shape[i] != 1)
        return fli_fail(FL_ESHAPE,
                        "%s: input %d of shape %s does not broadcast to %s: "
                        "sizes must be equal, or 1",
                        c->op->info.name, k + 1,
                        fli_shape_text(m->ndim, m->shape),
                        fli_shape_text(to->ndim, to->shape));
  }
  return FL_OK;
}

/* The dims of a reduction, counted over all inputs together, 0-based in the
 * attributes from here on. */
static fl_status reduce_shape(fli_infer *c, const fl_meta *all,
                              fl_reduction kind) {
  fl_attr *dims = &c->attrs->v[DIMS];
  fl_meta *out = &c->out[0];
  uint32_t mask = dims->list.n ? 0 : (1u << all->ndim) - 1;
  for (uint32_t j = 0; j < dims->list.n; j++) {
    int64_t *d = &c->attrs->list[dims->list.at + j];
    int64_t k = *d < 0 ? *d + all->ndim : *d;
    if (k < 0 || k >= all->ndim || mask >> k & 1)
      return fli_fail(FL_EARG,
                      "%s: dim %lld %s: the inputs together have shape %s",
                      c->op->info.name, (long long)(*d < 0 ? *d : *d + c->base),
                      k < 0 || k >= all->ndim ? "is none" : "is named twice",
                      fli_shape_text(all->ndim, all->shape));
    mask |= 1u << (*d = k);
  }
  out->ndim = 0;
  for (int i = 0; i < all->ndim; i++) {
    if (!(mask >> i & 1))
      out->shape[out->ndim++] = all->shape[i];
    else if (c->attrs->v[KEEPDIM].i)
      out->shape[out->ndim++] = 1;
    if (mask >> i & 1 && all->shape[i] == 0 && kind >= FL_REDUCE_MAX)
      return fli_fail(FL_ESHAPE,
                      "%s: there is no extreme element of an empty dim: shape "
                      "%s",
                      c->op->info.name, fli_shape_text(all->ndim, all->shape));
  }
  return FL_OK;
}

static uint32_t needed_for_gradient(fl_runtime *rt, fli_expr_op *x);

static fl_status shape_expr(fli_infer *c) {
  fli_expr_op *x = c->op->expr;
  fl_meta all;
  bool wants = false;
  for (int k = 0, n = 0; k < x->graph.n; k++) {
    const fli_expr_node *node = &x->graph.nodes[k];
    if (node->op != FLI_INPUT)
      continue;
    if (c->in[n]->dtype != node->dtype)
      return fli_fail(FL_EDTYPE, "%s: input %d is %s, but must be %s",
                      c->op->info.name, n + 1, fl_dtype_name(c->in[n]->dtype),
                      fl_dtype_name(node->dtype));
    n++;
  }
  FLI_TRY(operator_broadcast(c, &all));
  for (int k = 0; k < c->n_in; k++)
    wants = wants ||
            (c->operands[k].tensor && fli_wants_grad(c->operands[k].tensor));
  if (wants && c->rt->grad_enabled)
    c->saves = needed_for_gradient(c->rt, x);
  if (x->program->reduce)
    return reduce_shape(c, &all, x->program->reduce);
  for (int k = 0; k < c->n_out; k++) {
    c->out[k].ndim = all.ndim;
    memcpy(c->out[k].shape, all.shape, (size_t)all.ndim * sizeof *all.shape);
  }
  return FL_OK;
}

/* --- gradients --- */

/* What of `from` the values `out` need, as a graph of its own. Inputs that
 * `present` lacks become zeros; d->from gets the numbers of the others. */
static fl_status extract(const fli_graph *from, uint32_t present, int n_out,
                         fl_value *out, fli_derived *d, fli_graph *to) {
  fl_value map[FL_PROGRAM_VALUES];
  bool used[FL_PROGRAM_VALUES] = {false};
  fl_runtime *rt = from->rt;
  fli_graph_open(to, rt);
  for (int k = 0; k < n_out; k++)
    used[out[k].i] = true;
  for (int i = from->n - 1; i >= 0; i--)
    for (int k = 0; used[i] && k < from->nodes[i].n_in; k++)
      if (from->nodes[i].in[k].dtype == FLI_NODE)
        used[from->nodes[i].in[k].i] = true;
  for (int i = 0, number = 0; i < from->n; i++) {
    const fli_expr_node *x = &from->nodes[i];
    if (x->op == FLI_INPUT) {
      bool here = present >> number++ & 1;
      if (!used[i])
        continue;
      if (!here) {
        FLI_TRY(fli_graph_cast(to, fli_number(0), x->dtype, &map[i]));
        continue;
      }
      if (to->n_in == FL_PROGRAM_IN)
        return fli_fail(FL_EUNSUPPORTED,
                        "its gradient needs more than %d tensors",
                        FL_PROGRAM_IN);
      d->from[to->n_in] = (uint8_t)(number - 1);
      FLI_TRY(fli_graph_input(to, x->dtype, x->weak, &map[i]));
      continue;
    }
    if (!used[i])
      continue;
    fl_value in[3];
    fl_attrs attrs = rt->ops[x->op].defaults;
    attrs.v[0] = x->attr[0];
    attrs.v[1] = x->attr[1];
    for (int k = 0; k < x->n_in; k++)
      in[k] = x->in[k].dtype == FLI_NODE ? map[x->in[k].i] : x->in[k];
    FLI_TRY(fli_graph_apply(to, x->op, &attrs, x->n_in, in, &map[i]));
  }
  for (int k = 0; k < n_out; k++)
    out[k] = map[out[k].i];
  return FL_OK;
}

/* The gradients of x with respect to the inputs in d->need, as values of `g`,
 * which begins as a copy of x's graph; d->gives says which inputs have one. */
static fl_status by_rules(fli_expr_op *x, fli_derived *d, fli_graph *g,
                          fl_value *dx, int *n_dx) {
  int wanted[FL_MAX_OUT], inputs[FL_MAX_OUT], n = 0;
  fl_value dy[FL_MAX_OUT], all[FL_MAX_OUT];
  for (int k = 0; k < x->n_out; k++) { /* the results' own places stay free */
    fl_value unused;
    FLI_TRY(fli_graph_input(g, x->out_dtype[k], FLI_TENSOR, &unused));
  }
  for (int k = 0; k < x->n_out; k++) {
    FLI_TRY(fli_graph_input(g, x->out_dtype[k], FLI_TENSOR, &dy[k]));
    if (!(d->dy >> k & 1))
      dy[k] = fli_none();
  }
  for (int i = 0, number = 0; i < x->graph.n; i++)
    if (x->graph.nodes[i].op == FLI_INPUT && d->need >> number++ & 1) {
      inputs[n] = number - 1;
      wanted[n++] = i;
    }
  FLI_TRY(fli_graph_gradient(g, x->n_out, x->out, dy, n, wanted, all));
  for (int k = 0; k < n; k++)
    if (!fli_nothing(all[k])) {
      d->gives[*n_dx] = (uint8_t)inputs[k];
      dx[(*n_dx)++] = all[k];
    }
  return FL_OK;
}

static void by_text(const fli_expr_op *x, fli_derived *d, fl_value *dx,
                    int *n_dx) {
  for (int k = 0, of = 0; k < x->graph.n_in; k++) {
    if (!(x->backward_for >> k & 1))
      continue;
    if (d->need >> k & 1) {
      d->gives[*n_dx] = (uint8_t)k;
      dx[(*n_dx)++] = x->backward_out[of];
    }
    of++;
  }
}

static fl_dtype input_dtype(const fli_graph *g, int number) {
  for (int i = 0;; i++)
    if (g->nodes[i].op == FLI_INPUT && number-- == 0)
      return g->nodes[i].dtype;
}

static fl_status derive(fl_runtime *rt, fli_expr_op *x, fli_derived *d) {
  fli_graph work, own;
  fl_value dx[FL_MAX_OUT];
  fl_dtype dtypes[FL_MAX_OUT];
  char name[64];
  int n_in = x->graph.n_in, n = 0;
  uint32_t present = ((1u << (n_in + x->n_out)) - 1) | d->dy
                                                           << (n_in + x->n_out);
  FLI_TRY(fli_graph_copy(&work, x->backward_for ? &x->backward : &x->graph));
  fl_status s = FL_OK;
  if (x->backward_for)
    by_text(x, d, dx, &n);
  else
    s = by_rules(x, d, &work, dx, &n);
  if (s == FL_OK && n)
    s = extract(&work, present, n, dx, d, &own);
  else
    fli_graph_open(&own, rt);
  for (int k = 0; k < n && s == FL_OK; k++) {
    dtypes[k] = input_dtype(&x->graph, d->gives[k]);
    if (fli_graph_dtype(&own, dx[k]) != dtypes[k])
      s = fli_graph_cast(&own, dx[k], dtypes[k], &dx[k]);
  }
  snprintf(name, sizeof name, "%.50s_backward", x->op->info.name);
  if (s == FL_OK && n)
    s = fli_expr_intern(rt,
                        &(fli_op_request){.name = name,
                                          .graph = &own,
                                          .n_out = n,
                                          .out = dx,
                                          .out_dtype = dtypes},
                        &d->op);
  fli_graph_close(&own);
  fli_graph_close(&work);
  return s;
}

/* The operator for some gradients; NULL: no memory. */
static fli_derived *derived(fl_runtime *rt, fli_expr_op *x, uint32_t need,
                            uint32_t dy) {
  for (fli_derived *d = x->derived; d; d = d->next)
    if (d->need == need && d->dy == dy)
      return d;
  fli_derived *d = fli_malloc(rt, sizeof *d);
  if (!d)
    return NULL;
  memset(d, 0, sizeof *d);
  d->need = need;
  d->dy = dy;
  d->status = derive(rt, x, d);
  if (d->status == FL_ENOMEM) {
    fli_mfree(d);
    return NULL;
  }
  if (d->status && (d->message = fli_malloc(rt, strlen(fl_error()) + 1)))
    strcpy(d->message, fl_error());
  d->next = x->derived;
  return x->derived = d;
}

/* At most as many as an operator has results. */
static uint32_t some_of(uint32_t *need) {
  uint32_t some = 0;
  for (int n = 0; n < FL_MAX_OUT && *need; n++) {
    uint32_t bit = *need & -*need;
    some |= bit;
    *need -= bit;
  }
  return some;
}

/* The inputs and results that the whole gradient needs, as a row's `saves`. */
static uint32_t needed_for_gradient(fl_runtime *rt, fli_expr_op *x) {
  fl_reduction reduce = x->program->reduce;
  int n_in = x->graph.n_in;
  uint32_t floats = 0, all = (1u << n_in) - 1;
  if (x->uses_known)
    return x->uses;
  x->uses_known = true;
  if (reduce) {
    x->uses = all | 1u << FLI_SAVE_OUT;
    if (reduce == FL_REDUCE_SUM)
      x->uses = needed_for_gradient(rt, x->plain->expr);
    return x->uses;
  }
  for (int k = 0; k < n_in; k++)
    if (fl_dtype_kind(input_dtype(&x->graph, k)) == FL_KIND_FLOAT)
      floats |= 1u << k;
  while (floats) {
    uint32_t dy = (1u << x->n_out) - 1;
    fli_derived *d = derived(rt, x, some_of(&floats), dy);
    if (!d || d->status)
      return x->uses = all; /* backward will say why */
    for (int k = 0; d->op && k < d->op->info.n_in; k++) {
      int from = d->from[k];
      if (from < n_in + x->n_out)
        x->uses |= 1u << (from < n_in ? from : FLI_SAVE_OUT + from - n_in);
    }
  }
  return x->uses;
}

/* Gradients with respect to inputs from those of results. */
static void flow_back(fli_grad *g, fli_expr_op *x, const fl_value *y,
                      const fl_value *dy) {
  uint32_t need = 0, have = 0;
  int n_in = x->graph.n_in;
  for (int k = 0; k < n_in; k++)
    need |= (uint32_t)g->need[k] << k;
  for (int k = 0; k < x->n_out; k++)
    have |= (uint32_t)!fli_nothing(dy[k]) << k;
  while (need && g->e.status == FL_OK) {
    fl_value in[FL_PROGRAM_IN], out[FL_MAX_OUT];
    fli_derived *d = derived(g->e.rt, x, some_of(&need), have);
    if (!d || d->status) {
      fli_env_fail(&g->e, d ? d->status : FL_ENOMEM, "%s: %s", x->op->info.name,
                   d && d->message ? d->message : fl_error());
      return;
    }
    if (!d->op)
      continue;
    for (int k = 0; k < d->op->info.n_in; k++) {
      int from = d->from[k];
      in[k] = from < n_in              ? g->in[from]
              : from < n_in + x->n_out ? y[from - n_in]
                                       : dy[from - n_in - x->n_out];
    }
    fli_run_op(&g->e, d->op, NULL, d->op->info.n_in, in, out);
    for (int k = 0; k < d->op->info.n_out; k++)
      g->dx[d->gives[k]] = out[k];
  }
}

/* The shape that all inputs broadcast to. */
static fl_meta shape_of_inputs(const fli_grad *g, fl_dtype d) {
  fl_meta m = {.dtype = d};
  for (int k = 0; k < g->n_in; k++) {
    const fl_meta *in = &g->in_meta[k];
    int more = in->ndim - m.ndim;
    if (more > 0) {
      memmove(m.shape + more, m.shape, (size_t)m.ndim * sizeof *m.shape);
      for (int i = 0; i < more; i++)
        m.shape[i] = 1;
      m.ndim = in->ndim;
    }
    for (int i = 0; i < in->ndim; i++)
      if (in->shape[i] != 1)
        m.shape[m.ndim - in->ndim + i] = in->shape[i];
  }
  return m;
}

/* The gradient of a reduction is that of the row that reduces a tensor in the
 * same way. Its operand is computed again, except for sums. */
static void through_reduction(fli_grad *g, fli_expr_op *x) {
  static const int rows[] = {
#define FL_REDUCES(name, kind) [FL_REDUCE_##kind] = FLI_OP_##name,
#include "../ops.def"
  };
  const fl_op *row = &g->e.rt->ops[rows[x->program->reduce]], *own = g->op;
  fli_expr_op *plain = x->plain->expr;
  fl_meta m = shape_of_inputs(g, plain->out_dtype[0]);
  const fl_meta *in_meta = g->in_meta;
  fl_value *in = g->in, *dx = g->dx, value = fli_none(), d = fli_none();
  const bool *need = g->need, yes = true;
  int n_in = g->n_in;
  if (x->program->reduce != FL_REDUCE_SUM) {
    fli_run_op(&g->e, x->plain, NULL, n_in, in, &value);
    /* broadcast inputs alone may have fewer dims than all together */
    value = EXPAND(value, &m);
  }
  g->op = row;
  g->in_meta = &m;
  g->in = &value;
  g->dx = &d;
  g->need = &yes;
  g->n_in = 1;
  if (g->e.status == FL_OK)
    row->grad(g);
  g->op = own;
  g->in_meta = in_meta;
  g->in = in;
  g->dx = dx;
  g->need = need;
  g->n_in = n_in;
  if (g->e.status == FL_OK)
    d = CAST(d, plain->out_dtype[0]);
  if (g->e.status == FL_OK)
    flow_back(g, plain, &value, &d);
}

fl_status fli_expr_of_row(const fli_grad *g, const fl_op **op) {
  fli_graph graph;
  fl_value in[FLI_EXPR_IN], out;
  fl_dtype d = g->out_meta[0].dtype;
  fli_graph_open(&graph, g->e.rt);
  fl_status s = FL_OK;
  for (int k = 0; k < g->n_in && s == FL_OK; k++)
    s = fli_graph_input(&graph, g->in_meta[k].dtype, FLI_TENSOR, &in[k]);
  if (s == FL_OK)
    s = fli_graph_apply(&graph, g->op->id, g->attrs, g->n_in, in, &out);
  if (s == FL_OK)
    s = fli_graph_cast(&graph, out, d, &out);
  if (s == FL_OK)
    s = fli_expr_intern(g->e.rt,
                        &(fli_op_request){.name = g->op->info.name,
                                          .graph = &graph,
                                          .n_out = 1,
                                          .out = &out,
                                          .out_dtype = &d},
                        op);
  fli_graph_close(&graph);
  return s;
}

void fli_expr_flow_back(fli_grad *g, const fl_op *op) {
  flow_back(g, op->expr, g->y, g->dy);
}

static void grad_expr(fli_grad *g) {
  fli_expr_op *x = g->op->expr;
  if (x->program->reduce)
    through_reduction(g, x);
  else
    flow_back(g, x, g->y, g->dy);
}
