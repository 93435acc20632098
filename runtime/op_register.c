/* Operators from outside: a kernel of the host program or of a shared library,
 * with a signature as the rows have it, becomes a run-time operator. */
#include "env.h"

#include <string.h>

typedef struct fli_native {
  int like;
  fl_status (*shape)(int n_in, const fl_meta *const *in, const fl_attrs *attrs,
                     int n_out, fl_meta *out);
  const fl_op *backward;
} native;

uint64_t fl_op_fingerprint(const fl_op *op) {
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
  const native *n = c->op->native;
  if (n->shape)
    return n->shape(c->n_in, c->in, c->attrs, c->n_out, c->out);
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
static fl_status open_library(const fl_op_spec *s, const fl_op *op,
                              fl_kernel *kernel) {
  fl_status (*init)(const char *, uint64_t) = NULL;
  if (!s->library)
    return fli_fail(FL_EARG, "op.register: %s has no kernel", s->name);
  FLI_TRY(fli_library_symbol(s->library, s->symbol, kernel));
  if (!s->init)
    return FL_OK;
  FLI_TRY(fli_library_symbol(s->library, s->init, &init));
  return init(s->name, fl_op_fingerprint(op));
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

static fl_status complete(fl_runtime *rt, const fl_op_spec *s, int backend,
                          fl_op *op, fl_op *known) {
  fl_kernel kernel = s->kernel;
  const fl_op *backward;
  uint64_t print = fl_op_fingerprint(op);
  if (s->fingerprint && s->fingerprint != print)
    return fli_fail(FL_EARG,
                    "op.register: %s has the fingerprint %016llx, not %016llx: "
                    "another signature was meant",
                    s->name, (unsigned long long)print,
                    (unsigned long long)s->fingerprint);
  if (known && fl_op_fingerprint(known) != print)
    return fli_fail(FL_EARG,
                    "op.register: there is a %s already, with the signature %s",
                    s->name, known->info.signature);
  if (s->like < 0 || s->like >= op->info.n_in)
    return fli_fail(FL_EARG, "op.register: %s has no input %d", s->name,
                    s->like + 1);
  FLI_TRY(find_backward(rt, s, op, &backward));
  if (!kernel)
    FLI_TRY(open_library(s, op, &kernel));
  if (known) {
    known->kernel[backend] = kernel;
    return FL_OK;
  }
  if (!(op->native = fli_malloc(rt, sizeof *op->native)))
    return FL_ENOMEM;
  *op->native = (native){s->like, s->shape, backward};
  memset(op->kernel, 0, sizeof op->kernel);
  op->kernel[backend] = kernel;
  op->shape = shape_native;
  op->grad = backward ? grad_native : NULL;
  if (backward)
    op->saves = ((1u << op->info.n_in) - 1) | ((1u << op->info.n_out) - 1)
                                                  << FLI_SAVE_OUT;
  op->info.differentiable = backward != NULL;
  op->info.doc = "An operator from outside.";
  return FL_OK;
}

fl_status fl_op_register(fl_runtime *rt, const fl_op_spec *s,
                         const fl_op **result) {
  fl_op *op, *known = rt->more_ops;
  int backend = 0;
  const char *name = s->backend ? s->backend : "cpu";
  FLI_TRY(fli_check_owner(rt));
  while (backend < rt->n_backends &&
         strcmp(rt->backends[backend]->name, name) != 0)
    backend++;
  if (backend == rt->n_backends)
    return fli_fail(FL_EARG, "op.register: there is no backend \"%s\"", name);
  for (int k = 0; k < rt->n_ops; k++)
    if (strcmp(rt->ops[k].info.name, s->name) == 0)
      return fli_fail(FL_EARG, "op.register: %s is an operator of flare's",
                      s->name);
  while (known && !(known->native && strcmp(known->info.name, s->name) == 0))
    known = known->next;
  FLI_TRY(fli_op_new(rt, s->name, s->signature, s->name, &op));
  fl_status status = complete(rt, s, backend, op, known);
  if (status || known) {
    rt->more_ops = op->next;
    fli_mfree(op);
  }
  if (status == FL_OK)
    *result = known ? known : op;
  return status;
}
