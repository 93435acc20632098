/* The language of gradient rules and composed operators; see env.h. */
#include "../tape/tape.h"
#include "env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fli_env_open(fli_env *e, fl_runtime *rt, int base, fl_site site) {
  e->rt = rt;
  e->graph = NULL;
  e->status = FL_OK;
  e->failed = NULL;
  e->base = base;
  e->site = site;
  e->device = 0;
  e->generator = NULL;
  e->n_temps = 0;
  e->room = (int)(sizeof e->few / sizeof *e->few);
  e->temps = e->few;
}

void fli_env_close(fli_env *e) {
  while (e->n_temps)
    fl_tensor_release(e->temps[--e->n_temps]);
  if (e->temps != e->few)
    fli_mfree(e->temps);
  e->temps = e->few;
}

static bool env_keep(fli_env *e, fl_tensor *t) {
  if (e->n_temps == e->room) {
    fl_tensor **more = fli_malloc(e->rt, 2 * (size_t)e->room * sizeof *more);
    if (!more) {
      fl_tensor_release(t);
      e->status = FL_ENOMEM;
      return false;
    }
    memcpy(more, e->temps, (size_t)e->room * sizeof *more);
    if (e->temps != e->few)
      fli_mfree(e->temps);
    e->temps = more;
    e->room *= 2;
  }
  e->temps[e->n_temps++] = t;
  return true;
}

fl_value fli_env_own(fli_env *e, fl_tensor *t) {
  return env_keep(e, t) ? fli_given(t) : fli_none();
}

fl_value fli_env_fail(fli_env *e, fl_status s, const char *format, ...) {
  char text[900];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (e->status == FL_OK)
    e->status = fli_fail(s, "%s", text);
  return fli_none();
}

static fl_status env_call(fli_env *e, const fl_op *op, const fl_attrs *attrs,
                          int n, const fl_value *in, bool inplace,
                          fl_tensor **out) {
  fl_device d = e->device;
  for (int k = 0; k < n; k++)
    if (in[k].tensor) {
      d = fl_tensor_device(in[k].tensor);
      break;
    }
  fl_call c = {.op = op,
               .n_in = n,
               .in = in,
               .attrs = attrs,
               .base = e->base,
               .inplace = inplace,
               .site = e->site,
               .device = d,
               .generator = e->generator,
               .out = out};
  fl_status s = fl_call_run(e->rt, &c);
  if (s)
    e->failed = op;
  return s;
}

void fli_run_op(fli_env *e, const fl_op *op, const fl_attrs *attrs, int n,
                const fl_value *in, fl_value *out) {
  fl_tensor *results[FL_MAX_OUT];
  int n_out = op->info.n_out;
  for (int k = 0; k < n_out; k++)
    fli_give(&out[k], NULL);
  if (e->status || (e->status = env_call(e, op, attrs, n, in, false, results)))
    return;
  for (int k = 0; k < n_out; k++)
    if (env_keep(e, results[k]))
      fli_give(&out[k], results[k]);
}

void fli_run_all(fli_env *e, int op, const fl_attrs *attrs, int n,
                 const fl_value *in, fl_value *out) {
  if (!e->graph) {
    fli_run_op(e, &e->rt->ops[op], attrs, n, in, out);
    return;
  }
  for (int k = 0; k < e->rt->ops[op].info.n_out; k++)
    out[k] = fli_none();
  if (e->status == FL_OK)
    e->status = e->rt->up->graph_apply(e->graph, op, attrs, n, in, out);
}

/* A temporary input of a graph: with `history` a view of it, else a tensor of
 * the same elements, a leaf if it is `needed`. */
static fl_value entry_of(fli_env *e, fl_value v, bool history, bool needed) {
  fl_tensor *t;
  if (e->status || !v.tensor)
    return v;
  if (history) {
    fl_attrs a = fli_attrs(e, FLI_OP_view);
    fli_set_list(e, &a, FL_ATTR_view_shape, v.tensor->meta.ndim,
                 v.tensor->meta.shape);
    return fli_run(e, FLI_OP_view, &a, 1, &v);
  }
  if ((e->status = fl_tensor_detach(v.tensor, &t)) || !env_keep(e, t))
    return fli_none();
  t->requires_grad = needed;
  return fli_given(t);
}

void fli_composed_grad(fli_env *e, const fl_op *op, const fl_attrs *attrs,
                       int n, const fl_value *in, const bool *need,
                       const fl_value *dy, fl_value *dx) {
  enum { MOST = 10 };
  fl_value entry[MOST];
  fl_tensor *inputs[MOST], *roots[FL_MAX_OUT], *seeds[FL_MAX_OUT], *got[MOST];
  int n_roots = 0, n_inputs = 0, which[MOST];
  bool record = fl_grad_mode(e->rt, true);
  for (int k = 0; k < n && k < MOST; k++) {
    bool history = record && in[k].tensor && fli_wants_grad(in[k].tensor);
    entry[k] = entry_of(e, in[k], history, need[k]);
    if (entry[k].tensor && (need[k] || history)) {
      which[n_inputs] = k;
      inputs[n_inputs++] = entry[k].tensor;
    }
  }
  fli_composing c = {.op = op, .attrs = attrs, .n_in = n, .in = entry};
  fli_env_open(&c.e, e->rt, e->base, e->site);
  c.e.device = e->device;
  c.e.status = e->status;
  for (int k = 0; k < FL_MAX_OUT; k++)
    c.out[k] = fli_none();
  if (c.e.status == FL_OK)
    op->compose(&c);
  for (int k = 0; k < op->info.n_out; k++)
    if (c.e.status == FL_OK && dy[k].tensor &&
        fli_wants_grad(c.out[k].tensor)) { /* of constants: nothing */
      roots[n_roots] = c.out[k].tensor;
      seeds[n_roots++] = dy[k].tensor;
    }
  unsigned flags = FL_BACKWARD_UNUSED | FLI_BACKWARD_STOP |
                   (record ? FL_BACKWARD_CREATE : 0);
  if (c.e.status == FL_OK && n_roots && n_inputs)
    c.e.status = e->rt->up->grad(e->rt, n_roots, roots, seeds, n_inputs, inputs,
                                 flags, got);
  else
    n_inputs = 0;
  e->status = c.e.status;
  fli_env_close(&c.e);
  fl_grad_mode(e->rt, record);
  for (int k = 0; k < n_inputs && e->status == FL_OK; k++)
    if (got[k] && env_keep(e, got[k]) && need[which[k]])
      dx[which[k]] = fli_given(got[k]);
}

fl_value fli_run(fli_env *e, int op, const fl_attrs *attrs, int n,
                 const fl_value *in) {
  fl_value out[FL_MAX_OUT];
  fli_run_all(e, op, attrs, n, in, out);
  return e->status ? fli_none() : out[0];
}

fl_value fli_run_inplace(fli_env *e, int op, const fl_attrs *attrs, int n,
                         const fl_value *in) {
  fl_tensor *result;
  if (e->graph)
    return fli_env_fail(e, FL_EUNSUPPORTED, "%s_ writes in place",
                        e->rt->ops[op].info.name);
  if (e->status ||
      (e->status = env_call(e, &e->rt->ops[op], attrs, n, in, true, &result)))
    return fli_none();
  return env_keep(e, result) ? fli_given(result) : fli_none();
}

const fl_meta *fli_meta(fl_value v) {
  static const fl_meta nothing = {.dtype = FL_F32};
  return v.tensor ? &v.tensor->meta : &nothing;
}

fl_attrs fli_attrs(fli_env *e, int op) {
  return e->rt->ops[op].defaults;
}

void fli_set_list(fli_env *e, fl_attrs *a, int k, int n, const int64_t *v) {
  fl_status s = fl_attrs_list(a, k, n, v);
  if (s && e->status == FL_OK)
    e->status = s;
}

/* --- the usual rows --- */

fl_value fli_v_sum(fli_env *e, fl_value x, int n, const int64_t *dims,
                   bool keepdim) {
  fl_attrs a = fli_attrs(e, FLI_OP_sum);
  fli_set_list(e, &a, FL_ATTR_sum_dims, n, dims);
  a.v[FL_ATTR_sum_keepdim].i = keepdim;
  return fli_run(e, FLI_OP_sum, &a, 1, &x);
}

static fl_value env_shaped(fli_env *e, int op, int at, fl_value x, int ndim,
                           const int64_t *shape) {
  if (fli_has_shape(fli_meta(x), ndim, shape))
    return x;
  fl_attrs a = fli_attrs(e, op);
  fli_set_list(e, &a, at, ndim, shape);
  return fli_run(e, op, &a, 1, &x);
}

fl_value fli_v_reshape(fli_env *e, fl_value x, int ndim, const int64_t *shape) {
  return env_shaped(e, FLI_OP_reshape, FL_ATTR_reshape_shape, x, ndim, shape);
}

fl_value fli_v_expand(fli_env *e, fl_value x, int ndim, const int64_t *shape) {
  return env_shaped(e, FLI_OP_expand, FL_ATTR_expand_shape, x, ndim, shape);
}

fl_value fli_v_permute(fli_env *e, fl_value x, const int64_t *dims) {
  fl_attrs a = fli_attrs(e, FLI_OP_permute);
  fli_set_list(e, &a, FL_ATTR_permute_dims, fli_meta(x)->ndim, dims);
  return fli_run(e, FLI_OP_permute, &a, 1, &x);
}

fl_value fli_v_transpose(fli_env *e, fl_value x, int d0, int d1) {
  fl_attrs a = fli_attrs(e, FLI_OP_transpose);
  a.v[FL_ATTR_transpose_dim0].i = d0;
  a.v[FL_ATTR_transpose_dim1].i = d1;
  return fli_run(e, FLI_OP_transpose, &a, 1, &x);
}

fl_value fli_v_unsqueeze(fli_env *e, fl_value x, int dim) {
  fl_attrs a = fli_attrs(e, FLI_OP_unsqueeze);
  a.v[FL_ATTR_unsqueeze_dim].i = dim;
  return fli_run(e, FLI_OP_unsqueeze, &a, 1, &x);
}

fl_value fli_v_narrow(fli_env *e, fl_value x, int dim, int64_t start,
                      int64_t length, int64_t step) {
  fl_attrs a = fli_attrs(e, FLI_OP_narrow);
  a.v[FL_ATTR_narrow_dim].i = dim;
  a.v[FL_ATTR_narrow_start].i = start;
  a.v[FL_ATTR_narrow_length].i = length;
  a.v[FL_ATTR_narrow_step].i = step;
  return fli_run(e, FLI_OP_narrow, &a, 1, &x);
}

fl_value fli_v_cast(fli_env *e, fl_value x, fl_dtype d) {
  fl_attrs a = fli_attrs(e, FLI_OP_copy);
  if (e->status || (!e->graph && fli_meta(x)->dtype == d))
    return x;
  a.v[FL_ATTR_copy_dtype].i = d;
  return fli_run(e, FLI_OP_copy, &a, 1, &x);
}

fl_value fli_v_widened(fli_env *e, fl_value x) {
  if (e->status)
    return x;
  fl_dtype d = fli_meta(x)->dtype;
  return d == FL_F16 || d == FL_BF16 ? fli_v_cast(e, x, FL_F32) : x;
}

fl_value fli_v_zeros(fli_env *e, fl_dtype d, int ndim, const int64_t *shape,
                     fl_device device) {
  fl_attrs a = fli_attrs(e, FLI_OP_full);
  fl_tensor *t;
  if (e->graph)
    return fli_number(0);
  fli_set_list(e, &a, FL_ATTR_full_shape, ndim, shape);
  a.v[FL_ATTR_full_value].f = 0;
  a.v[FL_ATTR_full_dtype].i = d;
  fl_call c = {.op = &e->rt->ops[FLI_OP_full],
               .attrs = &a,
               .site = e->site,
               .device = device,
               .out = &t};
  if (e->status || (e->status = fl_call_run(e->rt, &c)))
    return fli_none();
  return env_keep(e, t) ? fli_given(t) : fli_none();
}

fl_value fli_v_sum_to(fli_env *e, fl_value x, const fl_meta *m) {
  const fl_meta *from = fli_meta(x);
  int64_t dims[FL_MAX_DIMS];
  int n = 0, skip = from->ndim - m->ndim;
  if (e->status || fli_nothing(x))
    return x;
  for (int i = 0; i < from->ndim; i++)
    if (i < skip || (m->shape[i - skip] == 1 && from->shape[i] != 1))
      dims[n++] = i;
  if (n)
    x = fli_v_sum(e, x, n, dims, false);
  return fli_v_reshape(e, x, m->ndim, m->shape);
}

fl_value fli_g_dy(fli_grad *g, int k) {
  if (!fli_nothing(g->dy[k]))
    return g->dy[k];
  fl_device d = 0;
  for (int i = 0; i < g->n_out; i++)
    if (g->dy[i].tensor)
      d = fl_tensor_device(g->dy[i].tensor);
  return fli_v_zeros(&g->e, g->out_meta[k].dtype, g->out_meta[k].ndim,
                     g->out_meta[k].shape, d);
}

fl_value fli_g_none(fli_grad *g) {
  fli_env *e = &g->e;
  const fl_meta *m = &g->in_meta[0];
  fl_dtype d = g->create ? FL_BOOL : m->dtype;
  fl_value zero = fli_v_zeros(e, d, 0, NULL, e->device);
  if (g->create) /* what comes of dy, so that there is a gradient of it */
    return RUN(where, zero, g->dy[0], NUM(0));
  return fli_v_expand(e, zero, m->ndim, m->shape);
}
