/* Gradients in a backward pass: their sums, and calls of the host's functions
 * (hooks, backward functions). */
#include "../call/call.h"
#include "pass.h"

#include <stdio.h>

/* In meta mode there is no memory, and nothing shares it. */
static bool has_owners(const fl_tensor *t, int n) {
  return t->storage ? fli_storage_owners(t->storage) == n : t->rt->meta;
}

bool fli_sum_is_free(const fl_tensor *t) {
  return t->rc == 1 && !t->is_view && !t->node && !t->rt->batch &&
         has_owners(t, 1);
}

/* *sum += g; takes over the reference of g. */
fl_status fli_sum_add(fli_pass *p, fl_tensor **sum, fl_tensor *g) {
  if (!*sum) {
    *sum = g;
    return FL_OK;
  }
  fl_operand in[2] = {{.tensor = *sum}, {.tensor = g}};
  fl_tensor *out;
  fl_call c = {.op = &p->rt->ops[FLI_OP_add],
               .n_in = 2,
               .in = in,
               .out = &out,
               .site = p->site,
               .inplace = !p->create && fli_sum_is_free(*sum)};
  fl_status s = fl_call_run(p->rt, &c);
  fl_tensor_release(g);
  if (s == FL_OK) {
    fl_tensor_release(*sum);
    *sum = out;
  }
  return s;
}

/* A view of all elements of a tensor that nothing else has, such as matrices
 * that were transposed twice, stands for itself from now on. */
static void own_whole(fl_tensor *t) {
  const fl_tensor *base = t->base;
  if (t->is_view && t->rc == 1 && t->contiguous && !t->node && base->rc == 1 &&
      !base->node && base->numel == t->numel && has_owners(t, 2))
    fli_tensor_own(t);
}

/* Takes over g. What users see shares no memory with anything else. */
fl_status fli_sum_keep(fli_pass *p, fl_tensor **grad, fl_tensor *g) {
  if (!*grad)
    own_whole(g);
  if (*grad || fli_sum_is_free(g))
    return fli_sum_add(p, grad, g);
  fl_status s = fli_tensor_copy(p->rt, g, FL_NODTYPE, p->site, grad);
  fl_tensor_release(g);
  return s;
}

/* --- functions of the host --- */

/* A gradient that a function gave. */
typedef struct given_gradient {
  fl_runtime *rt;
  int64_t key;
  const char *name; /* of the operator, NULL: it is a hook */
  int input;
} given_gradient;

static fl_status refuse_gradient(const given_gradient *g, const char *what,
                                 const char *got, const char *wanted) {
  const fl_tape_host *host = &g->rt->tape_host;
  char who[128] = "a hook", where[300] = "", input[32] = "";
  fl_site site = host->where ? host->where(host->context, g->key) : 0;
  if (g->name) {
    snprintf(who, sizeof who, "the backward function of %.80s", g->name);
    snprintf(input, sizeof input, " for input %d", g->input + 1);
  }
  if (site)
    snprintf(where, sizeof where, " (%s)", fl_site_text(g->rt, site));
  return fli_fail(FL_EAUTOGRAD, "%s%s gave a gradient %s %s%s, not %s", who,
                  where, what, got, input, wanted);
}

static fl_status check_shape(const given_gradient *g, const fl_meta *got,
                             const fl_meta *wanted) {
  char text[256];
  if (fli_same_shape(got, wanted))
    return FL_OK;
  snprintf(text, sizeof text, "%s", fli_shape_text(got->ndim, got->shape));
  return refuse_gradient(g, "of shape", text,
                         fli_shape_text(wanted->ndim, wanted->shape));
}

static fl_status check_dtype(const given_gradient *g, fl_dtype got,
                             fl_dtype wanted) {
  return got == wanted ? FL_OK
                       : refuse_gradient(g, "of dtype", fl_dtype_name(got),
                                         fl_dtype_name(wanted));
}

static fl_status check_device(const given_gradient *g, fl_device got,
                              fl_device wanted) {
  char text[64];
  if (got == wanted)
    return FL_OK;
  snprintf(text, sizeof text, "%s", fl_device_name(g->rt, got));
  return refuse_gradient(g, "on", text, fl_device_name(g->rt, wanted));
}

static fl_status call_hook(fl_runtime *rt, int64_t key, fl_tensor *of,
                           fl_tensor **grad) {
  fl_tensor *given = fl_tensor_retain(*grad);
  fl_status s = rt->tape_host.hook
                    ? rt->tape_host.hook(rt->tape_host.context, key, of, grad)
                    : fli_fail(FL_EAUTOGRAD, "a hook's function is gone");
  if (*grad != given) { /* replaced: the old one has lost its owner */
    fl_tensor_release(given);
    given_gradient g = {.rt = rt, .key = key};
    s = s ? s : check_shape(&g, &(*grad)->meta, &given->meta);
    s = s ? s : check_dtype(&g, (*grad)->meta.dtype, given->meta.dtype);
    s = s ? s
          : check_device(&g, fl_tensor_device(*grad), fl_tensor_device(given));
  }
  fl_tensor_release(given);
  return s;
}

fl_status fli_pass_hooks(fli_pass *p, fli_hook *h, int out, fl_tensor *of,
                         fl_tensor **grad) {
  for (; h && *grad; h = h->next) {
    if (h->out != out || h->dropped)
      continue;
    if (h->keep)
      FLI_TRY(fli_sum_keep(p, &h->keep->extra->grad, fl_tensor_retain(*grad)));
    else
      FLI_TRY(call_hook(p->rt, h->key, of, grad));
  }
  return FL_OK;
}

/* The device of the gradient that an edge takes; false: any. */
static bool edge_device(const fli_edge *e, fl_device *d) {
  if (e->leaf && e->leaf->storage)
    *d = e->leaf->storage->device;
  else if (e->node &&
           (e->node->kind == FLI_NODE_OP || e->node->kind == FLI_NODE_REGION))
    *d = e->node->device;
  else
    return false;
  return true;
}

/* Gradients of another float dtype are converted, as those of rules are. */
static fl_status check_custom(fli_pass *p, fl_node *n, int k, fl_tensor **dx) {
  fl_runtime *rt = p->rt;
  const fl_meta *m = &n->in_meta[k];
  fl_device d;
  given_gradient g = {rt, n->key, n->name, k};
  FLI_TRY(check_shape(&g, &dx[k]->meta, m));
  if (edge_device(&n->edges[k], &d))
    FLI_TRY(check_device(&g, fl_tensor_device(dx[k]), d));
  if (!fli_is_float(dx[k]->meta.dtype) || !fli_is_float(m->dtype))
    return check_dtype(&g, dx[k]->meta.dtype, m->dtype);
  if (dx[k]->meta.dtype == m->dtype)
    return FL_OK;
  fl_tensor *cast;
  FLI_TRY(fli_tensor_copy(rt, dx[k], m->dtype, n->site, &cast));
  fl_tensor_release(dx[k]);
  dx[k] = cast;
  return FL_OK;
}

fl_status fli_pass_custom(fli_pass *p, fl_node *n, fl_tensor **dx) {
  fl_runtime *rt = p->rt;
  if (!rt->tape_host.backward || !n->key)
    return fli_fail(FL_EAUTOGRAD, "the backward function of %s is gone",
                    n->name);
  FLI_TRY(rt->tape_host.backward(rt->tape_host.context, n->key, n->n_out,
                                 n->grads, n->n_in, dx));
  for (int k = 0; k < n->n_in; k++)
    if (dx[k] && n->in_meta[k].dtype != FL_NODTYPE &&
        (n->edges[k].node || n->edges[k].leaf))
      FLI_TRY(check_custom(p, n, k, dx));
  return FL_OK;
}
