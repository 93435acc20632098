/* Registration of operators: a kernel of the host program, of a shared library
 * or in a backend's language, with a signature in the notation of the op table,
 * becomes a run-time operator. */
#include "native.h"

#include <string.h>

uint64_t fl_op_fingerprint(const fl_op *op) {
  FLI_NEED_OR(op, "op", 0);
  const fl_op_info *i = &op->info;
  uint64_t h = 0xcbf29ce484222325u;
#define MIX(v) h = (h ^ (uint64_t)(v)) * 0x100000001b3u
  for (const char *c = i->name; *c; c++)
    MIX((unsigned char)*c);
  MIX(i->n_in), MIX(i->n_attr), MIX(i->n_out);
  for (int k = 0; k < i->n_params; k++)
    MIX(i->params[k].kind), MIX(i->params[k].type), MIX(i->params[k].optional);
  for (int k = 0; k < i->n_out; k++)
    MIX(op->out[k].rule), MIX(op->out[k].a), MIX(op->out[k].b);
#undef MIX
  return h ? h : 1;
}

static fl_status shape_native(fli_infer *c) {
  const fli_native *n = c->op->native;
  if (n->shape)
    return n->shape(n->context, c->n_in, c->in, c->attrs, c->n_out, c->out);
  const fl_meta *like = n->like < c->n_in ? c->in[n->like] : NULL;
  if (!like)
    return fli_fail(FL_EARG, "%s: input %d is missing", c->op->info.name,
                    n->like + 1);
  for (int k = 0; k < c->n_out; k++) {
    c->out[k].ndim = like->ndim;
    memcpy(c->out[k].shape, like->shape, sizeof like->shape);
  }
  return FL_OK;
}

static void grad_native(fli_grad *g) {
  const fl_op *op = g->op->native->backward;
  fl_value in[FL_MAX_PARAMS], out[FL_MAX_OUT];
  int n = 0;
  for (int k = 0; k < g->n_in; k++)
    in[n++] = g->in[k];
  for (int k = 0; k < g->n_out; k++)
    in[n++] = g->y[k];
  for (int k = 0; k < g->n_out; k++) {
    if (fli_nothing(g->dy[k])) {
      fli_env_fail(&g->e, FL_EUNSUPPORTED,
                   "%s: its gradient wants those of all results",
                   g->op->info.name);
      return;
    }
    in[n++] = g->dy[k];
  }
  fli_run_op(&g->e, op, op->info.n_attr ? g->attrs : NULL, n, in, out);
  for (int k = 0; k < op->info.n_out; k++)
    g->dx[k] = out[k];
}

/* The library stays open: its kernels may be called from any runtime. */
static fl_status open_library(const fl_op_spec *s, uint64_t print,
                              fl_kernel *kernel) {
  fl_status (*init)(const char *, uint64_t) = NULL;
  FLI_TRY(fli_library_symbol(s->library, s->symbol, kernel));
  if (!s->init)
    return FL_OK;
  FLI_TRY(fli_library_symbol(s->library, s->init, &init));
  return init(s->name, print);
}

static fl_status find_backward(fl_runtime *rt, const fl_op_spec *s,
                               const fl_op *op, const fl_op **backward) {
  *backward = NULL;
  if (!s->backward)
    return FL_OK;
  const fl_op *b = fl_op_find(rt, s->backward);
  if (!b)
    return FL_EARG;
  if (b->info.n_in != op->info.n_in + 2 * op->info.n_out ||
      b->info.n_out != op->info.n_in ||
      (b->info.n_attr && b->info.n_attr != op->info.n_attr))
    return fli_fail(
        FL_EARG,
        "op.register: %s cannot be the gradient of %s: it must take "
        "%d inputs and give %d results",
        s->backward, s->name, op->info.n_in + 2 * op->info.n_out,
        op->info.n_in);
  *backward = b;
  return FL_OK;
}

typedef struct registering {
  fl_runtime *rt;
  const fl_op_spec *s;
  int backend;
  uint64_t print;
  fl_kernel kernel; /* NULL: none, there is an expression */
  fl_native plan;
  const fl_op *backward;
} registering;

static fl_status register_check(const registering *r, const fl_op *op) {
  const fl_op_spec *s = r->s;
  if (s->fingerprint && s->fingerprint != r->print)
    return fli_fail(FL_EARG,
                    "op.register: %s has the fingerprint %016llx, not %016llx: "
                    "another signature was meant",
                    s->name, (unsigned long long)r->print,
                    (unsigned long long)s->fingerprint);
  if (s->like < 0 || s->like >= op->info.n_in)
    return fli_fail(FL_EARG, "op.register: %s has no input %d", s->name,
                    s->like + 1);
  if (s->backward && s->gradient)
    return fli_fail(FL_EARG, "op.register: %s has two gradients", s->name);
  return FL_OK;
}

/* The kernel that the spec names, and the hooks that may refuse it. */
static fl_status find_kernel(registering *r, const fl_op *op) {
  const fl_op_spec *s = r->s;
  fl_backend *b = r->rt->backends[r->backend];
  r->kernel = s->kernel;
  if (s->native) {
    FLI_TRY(fli_native_plan(op, s->n_native, s->native, &r->plan));
    r->plan.configure = s->configure;
    r->plan.context = s->context;
    if (!(r->kernel = b->kernel(b, "native")))
      return fli_fail(FL_EARG,
                      "op.register: the %s backend takes no kernels "
                      "in a language of its own",
                      b->name);
  } else if (!r->kernel && s->library)
    FLI_TRY(open_library(s, r->print, &r->kernel));
  else if (!r->kernel && !s->expression)
    return fli_fail(FL_EARG,
                    "op.register: %s has no kernel: neither a function, nor "
                    "one of a library, nor a source, nor an expression",
                    s->name);
  return s->start ? s->start(s->context, s->name, r->print) : FL_OK;
}

/* The operator that has the kernels: with an expression there are two. */
static fl_op *with_kernels(fl_op *op) {
  return op->native->inner ? op->native->inner : op;
}

static void add_kernel(const registering *r, fl_op *op) {
  op = with_kernels(op);
  if (!r->kernel)
    return;
  op->kernel[r->backend] = r->kernel;
  if (r->s->native) {
    memcpy(op->native->kernels, r->plan.kernels,
           (size_t)r->plan.n_kernels * sizeof *r->plan.kernels);
    op->native->plan = r->plan;
    op->native->plan.kernels = op->native->kernels;
    op->plan = &op->native->plan;
  }
}

static bool has_text(const char *wanted, const char *text) {
  return !wanted || (text && strcmp(wanted, text) == 0);
}

/* Whether the spec says what `known` is, or adds a kernel for a backend that
 * has none yet. Anything else is a new definition. */
static bool is_known(const registering *r, fl_op *known) {
  const fl_op_spec *s = r->s;
  if (!known || fl_op_fingerprint(known) != r->print)
    return false;
  const fli_native *n = known->native;
  fl_kernel kernel = with_kernels(known)->kernel[r->backend];
  bool same_kernel =
      !r->kernel || !kernel || (kernel == r->kernel && !s->native);
  bool same_gradient = !s->backward || r->backward == n->backward;
  bool same_shape = !s->shape || !kernel ||
                    (s->shape == n->shape && s->context == n->context);
  return same_kernel && same_gradient && same_shape && s->like == n->like &&
         has_text(s->expression, n->expression) &&
         has_text(s->gradient, n->gradient);
}

/* A new definition with the old signature keeps the kernels of other backends
 * if they compute the same. */
static void take_kernels(const registering *r, fl_op *op, fl_op *known) {
  const fl_op_spec *s = r->s;
  if (!known || fl_op_fingerprint(known) != r->print ||
      !has_text(s->expression, known->native->expression))
    return;
  fl_op *to = with_kernels(op), *from = with_kernels(known);
  for (int b = 0; b < r->rt->n_backends; b++)
    if (!to->kernel[b] && b != r->backend)
      to->kernel[b] = from->kernel[b];
  if (!to->plan)
    to->plan = from->plan;
}

static fl_status copy_text(fl_runtime *rt, const char *text, char **copy) {
  if (!text)
    return FL_OK;
  if (!(*copy = fli_malloc(rt, strlen(text) + 1)))
    return FL_ENOMEM;
  strcpy(*copy, text);
  return FL_OK;
}

/* Makes the operator what the spec says. */
static fl_status register_fill(const registering *r, fl_op *op) {
  const fl_op_spec *s = r->s;
  bool texts = s->expression || s->gradient;
  if (!(op->native = fli_malloc(r->rt, sizeof *op->native)))
    return FL_ENOMEM;
  *op->native = (fli_native){.like = s->like,
                             .shape = s->shape,
                             .context = s->context,
                             .backward = r->backward};
  FLI_TRY(copy_text(r->rt, s->expression, &op->native->expression));
  FLI_TRY(copy_text(r->rt, s->gradient, &op->native->gradient));
  memset(op->kernel, 0, sizeof op->kernel);
  op->shape = shape_native;
  op->grad = r->backward ? grad_native : texts ? fli_native_gradient : NULL;
  if (op->grad)
    op->saves = ((1u << op->info.n_in) - 1) | ((1u << op->info.n_out) - 1)
                                                  << FLI_SAVE_OUT;
  op->info.differentiable = op->grad != NULL;
  op->info.doc = "An operator from outside.";
  return texts ? fli_native_check(r->rt, op) : FL_OK;
}

static void register_drop(fl_runtime *rt, fl_op *op) {
  rt->more_ops = op->next;
  fli_native_free(op->native);
  fli_mfree(op);
}

/* With an expression there are two: what is called, and what has the kernels.
 */
static fl_status register_complete(const registering *r, fl_op *op) {
  const fl_op_spec *s = r->s;
  fl_op *outer;
  FLI_TRY(register_fill(r, op));
  if (!s->expression) {
    add_kernel(r, op);
    return FL_OK;
  }
  FLI_TRY(fli_op_new(r->rt, s->name, s->signature, s->name, &outer));
  fl_status status = register_fill(r, outer);
  if (status) {
    register_drop(r->rt, outer);
    return status;
  }
  outer->family = FLI_COMPOSE;
  outer->compose = fli_native_compose;
  outer->native->inner = op;
  outer->info.differentiable = true;
  add_kernel(r, outer);
  return FL_OK;
}

/* A name that can be written in Lua and in C. */
static bool is_name(const char *s) {
  static const char letters[] = "0123456789_abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return *s > '9' && s[strspn(s, letters)] == 0;
}

fl_status fl_op_register(fl_runtime *rt, const fl_op_spec *given,
                         const fl_op **result) {
  FLI_NEED(rt, "rt");
  FLI_NEED(given, "spec");
  FLI_NEED(result, "op");
  FLI_TRY(FL_CHECK_SIZED(fl_op_spec, given));
  fl_op_spec spec = {0}, *s = &spec;
  memcpy(s, given,
         given->struct_size < sizeof *s ? given->struct_size : sizeof *s);
  fl_op *op, *known = rt->more_ops;
  registering r = {.rt = rt, .s = s};
  const char *name = s->backend ? s->backend : s->native ? "cuda" : "cpu";
  FLI_TRY(fli_check_owner(rt));
  if (!s->name || !s->signature)
    return fli_fail(FL_EARG, "op.register: a name and a signature are needed");
  if (!is_name(s->name))
    return fli_fail(FL_EARG,
                    "op.register: \"%s\" is no name: letters, digits and _",
                    s->name);
  while (r.backend < rt->n_backends &&
         strcmp(rt->backends[r.backend]->name, name) != 0)
    r.backend++;
  if (r.backend == rt->n_backends)
    return fli_fail(FL_EARG, "op.register: there is no backend \"%s\"", name);
  if (fl_op_row(rt, s->name) >= 0)
    return fli_fail(FL_EARG, "op.register: %s is an operator of flare's",
                    s->name);
  while (known && !(known->native && strcmp(known->info.name, s->name) == 0))
    known = known->next;
  FLI_TRY(fli_op_new(rt, s->name, s->signature, s->name, &op));
  r.print = fl_op_fingerprint(op);
  fl_status status = register_check(&r, op);
  if (status == FL_OK)
    status = find_backward(rt, s, op, &r.backward);
  if (status == FL_OK)
    status = find_kernel(&r, op);
  bool old = status == FL_OK && is_known(&r, known);
  if (status == FL_OK && !old)
    status = register_complete(&r, op);
  if (status || old)
    register_drop(rt, op);
  if (status)
    return status;
  if (old && !with_kernels(known)->kernel[r.backend])
    add_kernel(&r, known);
  else if (!old)
    take_kernels(&r, rt->more_ops, known);
  *result = old ? known : rt->more_ops;
  return FL_OK;
}
