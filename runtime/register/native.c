/* Registered operators: their expression, which runs where they have no kernel,
 * parsed for the dtypes of a call; and the arguments that a kernel in a
 * backend's language gets. */
#include "native.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT 2048

typedef struct fli_written { /* one reading */
  char *key;                 /* the declarations and texts it was made of */
  fl_expr *expr;
  struct fli_written *next;
} written;

void fli_native_free(fli_native *n) {
  if (!n)
    return;
  for (written *w = n->written, *next; w; w = next) {
    next = w->next;
    fl_expr_free(w->expr);
    fli_mfree(w->key);
    fli_mfree(w);
  }
  fli_mfree(n->expression);
  fli_mfree(n->gradient);
  fli_mfree(n);
}

/* --- texts --- */

typedef struct writer {
  char text[TEXT];
  size_t n;
} writer;

static void FL_PRINTF(2, 3) native_put(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t left = w->n < TEXT ? TEXT - w->n : 0;
  int n = fli_vsnprintf(left ? w->text + w->n : NULL, left, format, args);
  va_end(args);
  w->n += (size_t)n;
}

/* Numbers and floats have the type of the argument; inputs without a gradient
 * are declared as such. */
static void put_inputs(writer *w, const fl_op *op, const fl_value *in) {
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *p = &op->info.params[i];
    if (p->kind != FL_P_TENSOR)
      continue;
    bool fixed = p->type >= FL_T_INT && in[p->slot].tensor;
    if (fixed)
      native_put(w, "%s%s %s", p->slot ? ", " : "",
                 fl_dtype_name(fli_meta(in[p->slot])->dtype), p->name);
    else
      native_put(w, "%s%c %s", p->slot ? ", " : "", 'A' + p->slot, p->name);
  }
}

/* A result has the type that the signature says; one that several inputs
 * decide has that of its value. */
static void put_outputs(writer *w, const fl_op *op, const fl_meta *out) {
  for (int k = 0; k < op->info.n_out; k++) {
    const char *name = op->info.out_name[k];
    if (out)
      native_put(w, "%s%s %s", k ? ", " : "", fl_dtype_name(out[k].dtype),
                 name);
    else if (op->out[k].rule == FLI_OUT_FIXED)
      native_put(w, "%s%s %s", k ? ", " : "",
                 fl_dtype_name((fl_dtype)op->out[k].a), name);
    else if (op->out[k].rule == FLI_OUT_INPUT && op->out[k].b == -1)
      native_put(w, "%s%c %s", k ? ", " : "", 'A' + op->out[k].a, name);
    else
      native_put(w, "%s%c %s", k ? ", " : "", 'Z' - k, name);
  }
}

/* Attributes as locals before the text. */
static void put_attrs(writer *w, const fl_op *op, const fl_attrs *a) {
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *p = &op->info.params[i];
    if (p->kind == FL_P_REAL)
      native_put(w, "auto %s = %.17g; ", p->name, a->v[p->slot].f);
    else if (p->kind == FL_P_INT || p->kind == FL_P_ENUM)
      native_put(w, "auto %s = %lld; ", p->name, (long long)a->v[p->slot].i);
    else if (p->kind == FL_P_FLAG)
      native_put(w, "auto %s = %s; ", p->name,
                 a->v[p->slot].i ? "true" : "false");
  }
}

/* A value for each result, for an expression that is only differentiated. */
static void put_nothing(writer *w, const fl_op *op, const fl_meta *out) {
  for (int k = 0; k < op->info.n_out; k++)
    native_put(w, "%s = (%s)0; ", op->info.out_name[k],
               fl_dtype_name(out ? out[k].dtype : FL_F32));
}

static fl_status native_keep(fl_runtime *rt, const char *text, char **copy) {
  size_t bytes = strlen(text) + 1;
  if (!(*copy = fli_malloc(rt, bytes)))
    return FL_ENOMEM;
  memcpy(*copy, text, bytes);
  return FL_OK;
}

static fl_status native_add(fl_runtime *rt, const fl_op *op,
                            const char *const *texts, const char *key,
                            fl_expr **expr) {
  fl_expr_options o = {
      .struct_size = sizeof o, .name = op->info.name, .backward = texts[3]};
  written *w = fli_malloc(rt, sizeof *w);
  if (!w)
    return FL_ENOMEM;
  *w = (written){.next = op->native->written};
  fl_status s = native_keep(rt, key, &w->key);
  if (s == FL_OK)
    s = fl_expr_new(rt, texts[0], texts[1], texts[2], &o, &w->expr);
  if (s) {
    fli_mfree(w->key);
    fli_mfree(w);
    return s;
  }
  *expr = w->expr;
  op->native->written = w;
  return FL_OK;
}

/* The texts for such inputs, and for these results, or those of the signature.
 */
static fl_status read_texts(fl_runtime *rt, const fl_op *op,
                            const fl_attrs *attrs, const fl_value *in,
                            const fl_meta *out, fl_expr **expr) {
  const fli_native *n = op->native;
  writer w[4] = {0}, key = {0};
  put_inputs(&w[0], op, in);
  put_outputs(&w[1], op, out);
  put_attrs(&w[2], op, attrs);
  if (n->expression)
    native_put(&w[2], "%s", n->expression);
  else
    put_nothing(&w[2], op, out);
  if (n->gradient) {
    put_attrs(&w[3], op, attrs);
    native_put(&w[3], "%s", n->gradient);
  }
  native_put(&key, "%s|%s|%s", w[0].text, w[1].text, w[2].text);
  if (key.n >= TEXT || w[3].n >= TEXT)
    return fli_fail(FL_ESIZE, "%s: its text is too long", op->info.name);
  for (const written *k = n->written; k; k = k->next)
    if (strcmp(k->key, key.text) == 0) {
      *expr = k->expr;
      return FL_OK;
    }
  return native_add(rt, op,
                    (const char *const[]){w[0].text, w[1].text, w[2].text,
                                          n->gradient ? w[3].text : NULL},
                    key.text, expr);
}

static fl_status operator_of(fl_runtime *rt, const fl_op *op,
                             const fl_attrs *attrs, const fl_value *in,
                             const fl_meta *out, const fl_op **made) {
  fl_expr *expr;
  for (int k = 0; k < op->info.n_in; k++)
    if (fli_nothing(in[k]))
      return fli_fail(FL_EARG, "%s: its expression wants input %d",
                      op->info.name, k + 1);
  FLI_TRY(read_texts(rt, op, attrs, in, out, &expr));
  return fl_expr_op(expr, op->info.n_in, in, made);
}

void fli_native_compose(fli_composing *g) {
  fl_runtime *rt = g->e.rt;
  const fl_op *inner = g->op->native->inner, *made = NULL;
  const fl_attrs *attrs = g->attrs;
  if (!inner->kernel[g->e.device >> 8]) {
    g->e.status = operator_of(rt, g->op, attrs, g->in, NULL, &made);
    inner = made;
    attrs = NULL;
  }
  if (g->e.status == FL_OK)
    fli_run_op(&g->e, inner, attrs, g->n_in, g->in, g->out);
}

void fli_native_gradient(fli_grad *g) {
  const fl_op *own = g->op, *made = NULL;
  fl_status s = operator_of(g->e.rt, own, g->attrs, g->in, g->out_meta, &made);
  if (s) {
    g->e.status = s;
    return;
  }
  g->op = made;
  made->grad(g);
  g->op = own;
}

fl_status fli_native_check(fl_runtime *rt, const fl_op *op) {
  fl_value in[FL_MAX_PARAMS];
  fl_expr *expr;
  if (op->variadic >= 0 || op->info.n_in > FLI_EXPR_IN || op->info.n_in == 0)
    return fli_fail(FL_EARG,
                    "op.register: %s has an expression or a gradient as text, "
                    "and so must have 1 to %d inputs",
                    op->info.name, FLI_EXPR_IN);
  for (int k = 0; k < op->info.n_in; k++)
    in[k] = fli_none();
  return read_texts(rt, op, &op->defaults, in, NULL, &expr);
}

/* --- kernels in a backend's language --- */

static int comes_as(int type) {
  switch (type) {
  case FL_T_INT:
    return FL_NATIVE_OWN;
  case FL_T_BOOL:
    return FL_BOOL;
  case FL_T_INDEX:
  case FL_T_ID:
    return FL_I64;
  default:
    return FL_NODTYPE;
  }
}

fl_status fli_native_plan(const fl_op *op, int n,
                          const fl_native_kernel *kernels, fl_native *plan) {
  const fl_op_info *i = &op->info;
  if (op->variadic >= 0)
    return fli_fail(FL_EARG,
                    "op.register: %s takes any number of inputs, and cannot be "
                    "a kernel",
                    i->name);
  if (n < 1 || n > FLI_DTYPES)
    return fli_fail(FL_EARG, "op.register: %s has %s", i->name,
                    n < 1 ? "no kernel" : "more kernels than there are dtypes");
  for (int k = 0; k < n; k++)
    if ((unsigned)kernels[k].dtype >= FLI_DTYPES || !kernels[k].kernel)
      return fli_fail(FL_EARG,
                      "op.register: %s: kernel %d is NULL, or for no "
                      "dtype",
                      i->name, k + 1);
  plan->n_kernels = n;
  plan->kernels = kernels;
  for (int k = 0; k < i->n_in; k++)
    plan->in_as[k] = comes_as(op->in_type[k]);
  for (int k = 0; k < i->n_out; k++) {
    int rule = op->out[k].rule, a = op->out[k].a;
    plan->out_as[k] = rule == FLI_OUT_FIXED   ? a
                      : rule == FLI_OUT_INPUT ? comes_as(op->in_type[a])
                                              : FL_NODTYPE;
  }
  plan->n_attr = i->n_attr;
  for (int k = 0; k < i->n_params; k++) {
    const fl_param *p = &i->params[k];
    if (p->kind == FL_P_DIMS || p->kind == FL_P_INTS || p->kind == FL_P_SHAPE ||
        p->kind == FL_P_DTYPE)
      return fli_fail(FL_EARG,
                      "op.register: %s: %s cannot be passed to a kernel: "
                      "numbers and flags can",
                      i->name, p->name);
    if (p->kind != FL_P_TENSOR && p->kind != FL_P_RNG)
      plan->attr[p->slot] = p->kind == FL_P_REAL   ? 'd'
                            : p->kind == FL_P_FLAG ? 'b'
                                                   : 'i';
  }
  return FL_OK;
}
