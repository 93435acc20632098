/* Kernels that users write: the texts, and the operators made of them so far,
 * one for each combination of inputs' dtypes. Recorded ones are kept the same
 * way; how they are recorded is in trace.c. */
#include "expr.h"

#include <stdio.h>
#include <string.h>

typedef struct known {
  uint64_t key;
  const fl_op *op;
} known;

struct fl_expr {
  fl_runtime *rt;
  char *name, *inputs, *outputs, *body,
      *backward; /* the last two may be NULL */
  char *site;    /* " (train.lua:12)" */
  char *signature;
  fl_reduction reduce;
  int n_in, n_out, n_back;
  fli_decl *in, *out; /* one block */
  /* another: of the backward text, inputs, results, gradients of results; and
   * what it must set, for the inputs in back_for */
  fli_decl *back_in, *back_out;
  uint32_t back_for;
  int n_known, room;
  known *known;
};

static fl_status read_reduction(const char *word, fl_reduction *r) {
  static const char *const words[] = {"", "sum", "prod", "max", "min"};
  *r = FL_REDUCE_NONE;
  if (!word)
    return FL_OK;
  for (int k = FL_REDUCE_SUM; k <= FL_REDUCE_MIN; k++)
    if (strcmp(words[k], word) == 0) {
      *r = (fl_reduction)k;
      return FL_OK;
    }
  return fli_fail(FL_EARG,
                  "reduce: there is no reduction \"%s\" (sum, prod, max, min)",
                  word);
}

static fl_status copy_text(fl_runtime *rt, const char *text, char **to) {
  if (!text)
    return FL_OK;
  *to = fli_malloc(rt, strlen(text) + 1);
  if (!*to)
    return FL_ENOMEM;
  strcpy(*to, text);
  return FL_OK;
}

static fli_source source_of(const fl_expr *e, bool backward) {
  return (fli_source){.rt = e->rt,
                      .name = e->name,
                      .inputs = e->inputs,
                      .outputs = e->outputs,
                      .body = backward ? e->backward : e->body,
                      .reduce = e->reduce,
                      .where = ""};
}

/* "g" and the name, of the same type. */
static fli_decl gradient_of(const fli_decl *d) {
  fli_decl g = *d;
  memmove(g.name + 1, g.name, strlen(g.name) + 1);
  g.name[0] = 'g';
  return g;
}

static bool may_have_gradient(const fli_decl *d) {
  return d->dtype == FL_NODTYPE || fl_dtype_kind(d->dtype) == FL_KIND_FLOAT;
}

static fl_status declare_backward(fl_expr *e) {
  int n = 0, most = 2 * (e->n_in + e->n_out);
  e->back_in = fli_malloc(e->rt, (size_t)most * sizeof *e->back_in);
  if (!e->back_in)
    return FL_ENOMEM;
  e->back_out = e->back_in + e->n_in + 2 * e->n_out;
  for (int k = 0; k < e->n_in; k++)
    e->back_in[n++] = e->in[k];
  for (int k = 0; k < e->n_out; k++)
    e->back_in[n++] = e->out[k];
  for (int k = 0; k < e->n_out; k++)
    e->back_in[n++] = gradient_of(&e->out[k]);
  for (int k = 0; k < e->n_in; k++)
    if (may_have_gradient(&e->in[k])) {
      e->back_for |= 1u << k;
      e->back_out[e->n_back++] = gradient_of(&e->in[k]);
    }
  return FL_OK;
}

static fl_status check_text(fl_expr *e, bool backward) {
  fli_source s = source_of(e, backward);
  fli_graph g;
  fl_value values[FLI_EXPR_IN];
  fl_dtype dtypes[FLI_EXPR_IN];
  fli_graph_open(&g, e->rt);
  fl_status status =
      backward
          ? fli_expr_parse(&s, e->n_in + 2 * e->n_out, e->back_in, e->n_back,
                           e->back_out, NULL, NULL, &g, values, dtypes)
          : fli_expr_parse(&s, e->n_in, e->in, e->n_out, e->out, NULL, NULL, &g,
                           values, dtypes);
  fli_graph_close(&g);
  return status;
}

static fl_status read_texts(fl_expr *e) {
  fli_source s = source_of(e, false);
  fli_decl in[FLI_EXPR_IN], out[FL_MAX_OUT];
  FLI_TRY(fli_read_decls(&s, e->inputs, "inputs", FLI_EXPR_IN, in, &e->n_in));
  FLI_TRY(
      fli_read_decls(&s, e->outputs, "outputs", FL_MAX_OUT, out, &e->n_out));
  size_t n_in = (size_t)e->n_in, n_out = (size_t)e->n_out;
  e->in = fli_malloc(e->rt, (n_in + n_out) * sizeof *in);
  if (!e->in)
    return FL_ENOMEM;
  e->out = e->in + n_in;
  memcpy(e->in, in, n_in * sizeof *in);
  memcpy(e->out, out, n_out * sizeof *out);
  if (e->reduce && e->n_out > 1)
    return fli_fail(FL_EARG, "%s: a reduction has one output, not %d", e->name,
                    e->n_out);
  FLI_TRY(check_text(e, false));
  if (!e->backward)
    return FL_OK;
  if (e->reduce)
    return fli_fail(FL_EARG,
                    "%s: a reduction derives its gradient; one of your own is "
                    "for elementwise kernels, whose result you can sum",
                    e->name);
  FLI_TRY(declare_backward(e));
  return check_text(e, true);
}

static fl_status text_describe(fl_expr *e) {
  const char *in = e->body ? e->inputs : "...";
  size_t room = strlen(e->name) + strlen(in) + 8;
  room += e->body ? strlen(e->outputs) : 0;
  e->signature = fli_malloc(e->rt, room);
  if (!e->signature)
    return FL_ENOMEM;
  snprintf(e->signature, room, "%s(%s)%s%s", e->name, in, e->body ? " -> " : "",
           e->body ? e->outputs : "");
  return FL_OK;
}

static fl_status text_fill(fl_expr *e, const char *inputs, const char *outputs,
                           const char *body, const fl_expr_options *o) {
  const char *what = !body ? "kernel" : o->reduce ? "reduce" : "elementwise";
  char site[300] = "";
  FLI_TRY(read_reduction(o->reduce, &e->reduce));
  if (o->site)
    snprintf(site, sizeof site, " (%s)", fl_site_text(e->rt, o->site));
  FLI_TRY(copy_text(e->rt, o->name ? o->name : what, &e->name));
  FLI_TRY(copy_text(e->rt, site, &e->site));
  FLI_TRY(copy_text(e->rt, body, &e->body));
  e->n_in = -1;
  if (!body)
    return text_describe(e);
  FLI_TRY(copy_text(e->rt, inputs, &e->inputs));
  FLI_TRY(copy_text(e->rt, outputs, &e->outputs));
  FLI_TRY(copy_text(e->rt, o->backward, &e->backward));
  FLI_TRY(text_describe(e));
  return read_texts(e);
}

fl_status fl_expr_new(fl_runtime *rt, const char *inputs, const char *outputs,
                      const char *body, const fl_expr_options *o,
                      fl_expr **result) {
  FLI_NEED(rt, "rt");
  FLI_NEED(result, "e");
  if (body) { /* without one it is to be recorded */
    FLI_NEED(inputs, "inputs");
    FLI_NEED(outputs, "outputs");
  }
  FLI_TRY(FL_CHECK_SIZED(fl_expr_options, o));
  fl_expr_options none = {.struct_size = sizeof none};
  FLI_TRY(fli_check_owner(rt));
  fl_expr *e = fli_malloc(rt, sizeof *e);
  if (!e)
    return FL_ENOMEM;
  memset(e, 0, sizeof *e);
  e->rt = rt;
  fl_status s = text_fill(e, inputs, outputs, body, o ? o : &none);
  if (s)
    fl_expr_free(e);
  else
    *result = e;
  return s;
}

void fl_expr_free(fl_expr *e) {
  if (!e)
    return;
  void *const parts[] = {e->name,     e->inputs, e->outputs,   e->body,
                         e->backward, e->site,   e->signature, e->in,
                         e->back_in,  e->known};
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
    fli_mfree(parts[k]);
  fli_mfree(e);
}

const char *fl_expr_name(const fl_expr *e) {
  FLI_NEED_OR(e, "e", "");
  return e->name;
}

fl_runtime *fli_expr_runtime(const fl_expr *e) {
  return e->rt;
}

const char *fl_expr_signature(const fl_expr *e) {
  FLI_NEED_OR(e, "e", "");
  return e->signature;
}

int fl_expr_inputs(const fl_expr *e) {
  FLI_NEED_OR(e, "e", 0);
  return e->n_in;
}

/* --- the operator for some dtypes --- */

static void kind_of(const fl_expr *e, const fl_operand *o, fl_dtype *d,
                    int *weak) {
  *d = o->tensor ? o->tensor->meta.dtype : o->dtype;
  *weak = !o->tensor ? FLI_NUMBER : fli_trace_weak(e->rt, o->tensor);
}

/* Five bits an input. */
static uint64_t key_of(const fl_expr *e, int n, const fl_operand *in) {
  uint64_t key = (uint64_t)n;
  for (int k = 0; k < n; k++) {
    fl_dtype d;
    int weak;
    kind_of(e, &in[k], &d, &weak);
    unsigned bits = weak == FLI_NUMBER ? 20 + (d == FL_F64   ? 0
                                               : d == FL_I64 ? 1
                                                             : 2)
                                       : (unsigned)d + 10 * (unsigned)weak;
    key = key << 5 | bits;
  }
  return key;
}

fl_status fli_expr_remember(fl_expr *e, int n, const fl_operand *in,
                            const fl_op *op) {
  if (e->n_known == e->room) {
    int room = e->room ? 2 * e->room : 1;
    known *more = fli_malloc(e->rt, (size_t)room * sizeof *more);
    if (!more)
      return FL_ENOMEM;
    if (e->n_known)
      memcpy(more, e->known, (size_t)e->n_known * sizeof *more);
    fli_mfree(e->known);
    e->known = more;
    e->room = room;
  }
  e->known[e->n_known++] = (known){key_of(e, n, in), op};
  return FL_OK;
}

static void name_type(fli_decl *d, fl_dtype dtype) {
  d->dtype = dtype;
  strcpy(d->type, fl_dtype_name(dtype));
}

static bool is_letter_of(const fl_expr *e, const fli_decl *d) {
  for (int k = 0; k < e->n_in; k++)
    if (strcmp(e->in[k].type, d->type) == 0)
      return true;
  return false;
}

/* The text of the gradient for what the inputs and results are. */
static fl_status build_backward(const fl_expr *e, const fli_source *s,
                                const fl_dtype *dtypes, const int *weak,
                                const fl_dtype *out_dtypes, fli_graph *g,
                                fl_value *values) {
  fli_decl in[FLI_EXPR_IN + 2 * FL_MAX_OUT];
  fl_dtype all[FLI_EXPR_IN + 2 * FL_MAX_OUT], set[FLI_EXPR_IN];
  int says[FLI_EXPR_IN + 2 * FL_MAX_OUT] = {0}, n = e->n_in + 2 * e->n_out;
  memcpy(in, e->back_in, (size_t)n * sizeof *in);
  memcpy(all, dtypes, (size_t)e->n_in * sizeof *all);
  memcpy(says, weak, (size_t)e->n_in * sizeof *says);
  for (int k = e->n_in; k < n; k++) {
    all[k] = out_dtypes[(k - e->n_in) % e->n_out];
    if (in[k].dtype == FL_NODTYPE && !is_letter_of(e, &in[k]))
      name_type(&in[k], all[k]);
  }
  return fli_expr_parse(s, n, in, e->n_back, e->back_out, all, says, g, values,
                        set);
}

static fl_status text_build(fl_expr *e, const fl_operand *in, fli_graph *graph,
                            fli_graph *backward, const fl_op **op) {
  fl_dtype dtypes[FLI_EXPR_IN], out_dtypes[FL_MAX_OUT];
  int weak[FLI_EXPR_IN];
  fl_value out[FL_MAX_OUT], back[FLI_EXPR_IN];
  fli_source s = source_of(e, false), sb = source_of(e, true);
  s.where = sb.where = e->site;
  for (int k = 0; k < e->n_in; k++)
    kind_of(e, &in[k], &dtypes[k], &weak[k]);
  FLI_TRY(fli_expr_parse(&s, e->n_in, e->in, e->n_out, e->out, dtypes, weak,
                         graph, out, out_dtypes));
  bool sums = e->reduce == FL_REDUCE_SUM || e->reduce == FL_REDUCE_PROD;
  if (sums && e->out[0].dtype == FL_NODTYPE && !is_letter_of(e, &e->out[0]) &&
      fl_dtype_kind(out_dtypes[0]) != FL_KIND_FLOAT)
    out_dtypes[0] = FL_I64;
  if (e->backward)
    FLI_TRY(build_backward(e, &sb, dtypes, weak, out_dtypes, backward, back));
  return fli_expr_intern(
      e->rt,
      &(fli_op_request){.name = e->name,
                        .graph = graph,
                        .n_out = e->n_out,
                        .out = out,
                        .out_dtype = out_dtypes,
                        .reduce = e->reduce,
                        .backward = e->backward ? backward : NULL,
                        .backward_for = e->back_for,
                        .backward_out = back},
      op);
}

fl_status fl_expr_op(fl_expr *e, int n, const fl_operand *in,
                     const fl_op **op) {
  FLI_NEED(e, "e");
  FLI_NEED(op, "op");
  FLI_TRY(fli_check_count(__func__, "n", n));
  if (n > 0)
    FLI_NEED(in, "in");
  fli_graph graph, backward;
  *op = NULL;
  if (e->body ? n != e->n_in : n > FLI_EXPR_IN)
    return fli_fail(FL_EARG, "%s takes %s%d input%s, not %d: %s", e->name,
                    e->body ? "" : "at most ", e->body ? e->n_in : FLI_EXPR_IN,
                    e->body ? FLI_S(e->n_in) : "s", n, e->signature);
  uint64_t key = key_of(e, n, in);
  for (int k = 0; k < e->n_known; k++)
    if (e->known[k].key == key) {
      *op = e->known[k].op;
      return FL_OK;
    }
  if (!e->body)
    return FL_OK;
  fli_graph_open(&graph, e->rt);
  fli_graph_open(&backward, e->rt);
  fl_status s = text_build(e, in, &graph, &backward, op);
  fli_graph_close(&graph);
  fli_graph_close(&backward);
  return s ? s : fli_expr_remember(e, n, in, *op);
}

size_t fl_op_source(const fl_op *op, char *text, size_t room) {
  FLI_NEED_OR(op, "op", 0);
  room = text ? room : 0;
  if (room)
    *text = 0;
  return op->program ? fl_program_source(op->program, text, room) : 0;
}
