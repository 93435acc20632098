/* The dispatcher, the path of every operation: modes -> check -> infer ->
 * allocate -> kernel -> tape node. Views and composed operators leave early;
 * in-place calls of structured operators run out of place, then assign. */
#include "../memory/stream.h"
#include "../ops/number.h"
#include "../ops/types.h"
#include "../tape/tape.h"
#include "window.h"

#include <string.h>

#define FEW 8 /* inputs that live on the C stack */

typedef struct work {
  fl_runtime *rt;
  const fl_call *c;
  const fl_op *op;
  const fl_attrs *attrs;
  int n_in, n_out;
  const fl_operand *in;
  const fl_meta **metas;
  fl_device device;
  bool device_known, any_dtype; /* inputs are not checked for theirs */
  fl_dtype common; /* of elementwise inputs: what numbers are converted to */
  uint32_t saves;
  fl_meta out[FL_MAX_OUT];
  int64_t draws;
} work;

static const fl_meta number_meta[] = {
    [FL_F64] = {.dtype = FL_F64},   [FL_F32] = {.dtype = FL_F32},
    [FL_I64] = {.dtype = FL_I64},   [FL_BOOL] = {.dtype = FL_BOOL},
    [FL_I32] = {.dtype = FL_I32},   [FL_F16] = {.dtype = FL_F16},
    [FL_BF16] = {.dtype = FL_BF16}, [FL_I16] = {.dtype = FL_I16},
    [FL_I8] = {.dtype = FL_I8},     [FL_U8] = {.dtype = FL_U8}};

/* --- check --- */

static fl_status check_tensor(work *w, int k, fl_tensor *t) {
  if (t->rt != w->rt)
    return t->rt
               ? fli_fail(FL_EOWNER, "%s: input %d belongs to another runtime",
                          w->op->info.name, k + 1)
               : fli_fail(FL_ECLOSED, "%s: tensor is closed (input %d)",
                          w->op->info.name, k + 1);
  bool stands = !t->storage && w->op->family == FLI_COMPOSE && w->rt->batch;
  if (!t->storage && !stands) /* its rows say what is missing */
    return w->rt->meta ? FL_OK
                       : fli_fail(FL_EUNSUPPORTED,
                                  "%s: input %d was made in meta mode and has "
                                  "no values",
                                  w->op->info.name, k + 1);
  fl_device d = stands ? fl_tensor_device(t) : t->storage->device;
  if (!FLI_LIKELY(stands || !t->storage->pending) &&
      (!w->rt->window || w->rt->window->flushing || t->storage->away))
    FLI_TRY(fli_settle(t)); /* says that it has no values */
  if (!w->device_known) {
    w->device = d;
    w->device_known = true;
  } else if (w->device != d) {
    const char *name = fl_device_name(w->rt, w->device);
    return fli_fail(FL_EDEVICE, "%s: input %d is on %s, the ones before on %s",
                    w->op->info.name, k + 1, fl_device_name(w->rt, d), name);
  }
  return FL_OK;
}

static fl_status check_inputs(work *w) {
  const fl_op *op = w->op;
  if (FLI_LIKELY(op->variadic < 0) ? w->n_in != op->info.n_in
                                   : w->n_in < op->info.n_in)
    return fli_fail(FL_EARG, "%s takes %d input%s, not %d: %s", op->info.name,
                    op->info.n_in, FLI_S(op->info.n_in), w->n_in,
                    op->info.signature);
  for (int k = 0; k < w->n_in; k++) {
    const fl_operand *o = &w->in[k];
    int p = k < op->info.n_in ? k : op->info.n_in;
    if (FLI_LIKELY(o->tensor != NULL)) {
      FLI_TRY(check_tensor(w, k, o->tensor));
      w->metas[k] = &o->tensor->meta;
    } else if (o->dtype == FL_NODTYPE) {
      if (!op->in_optional[p])
        return fli_fail(FL_EARG, "%s misses input %d: %s", op->info.name, k + 1,
                        op->info.signature);
      w->metas[k] = NULL;
      continue;
    } else if ((unsigned)o->dtype >= FLI_DTYPES)
      return fli_fail(FL_EARG, "%s: input %d has the dtype number %d",
                      op->info.name, k + 1, (int)o->dtype);
    else
      w->metas[k] = &number_meta[o->dtype];
    if (!FLI_LIKELY(
            fli_type_fits((fl_param_type)op->in_type[p], w->metas[k]->dtype)) &&
        (o->tensor || op->in_type[p] != FL_T_FLOAT) && !w->any_dtype &&
        !fli_complex_passes(op, p, w->metas[k]->dtype))
      return fli_wrong_type(op, k, w->metas[k]->dtype);
  }
  if (!w->device_known && (w->device = w->c->device) != 0)
    FLI_TRY(fli_check_device(w->rt, w->device));
  return FL_OK;
}

/* Dims become 0-based from 0, checked against in[0]. */
static fl_status settle_dim(work *w, int64_t *dim, const char *name) {
  int n = w->n_in && w->metas[0] ? w->metas[0]->ndim : 0;
  int64_t room = n ? n : 1, d = *dim < 0 ? *dim + room : *dim;
  if (*dim == FL_ATTR_NONE)
    return FL_OK;
  if (d < 0 || d >= room)
    return fli_fail(FL_EARG, "%s: there is no %s %lld in a tensor of %d dims",
                    w->op->info.name, name,
                    (long long)(*dim < 0 ? *dim : *dim + w->c->base), n);
  *dim = d;
  return FL_OK;
}

static fl_status settle_attrs(work *w, fl_attrs *a) {
  const fl_op_info *info = &w->op->info;
  for (int i = 0; w->op->dims && i < info->n_params; i++) {
    const fl_param *p = &info->params[i];
    if (p->kind == FL_P_DIM)
      FLI_TRY(settle_dim(w, &a->v[p->slot].i, p->name));
    if (p->kind == FL_P_DIM && a->v[p->slot].i == FL_ATTR_NONE &&
        !p->has_default)
      return fli_fail(FL_EARG, "%s: %s is missing", info->name, p->name);
    if (p->kind != FL_P_DIMS)
      continue;
    unsigned seen = 0;
    for (uint32_t j = 0; j < a->v[p->slot].list.n; j++) {
      int64_t *d = &a->list[a->v[p->slot].list.at + j];
      FLI_TRY(settle_dim(w, d, "dim"));
      if (seen & 1u << *d)
        return fli_fail(FL_EARG, "%s: dim %lld is named twice", info->name,
                        (long long)(*d + w->c->base));
      seen |= 1u << *d;
    }
  }
  return FL_OK;
}

/* --- infer --- */

/* bool, integer, float: what numbers can raise. u8 and 1 are of one kind. */
static inline int call_lift(fl_dtype d) {
  fl_kind k = fl_dtype_kind(d);
  return k == FL_KIND_BOOL ? 0 : k == FL_KIND_FLOAT ? 2 : 1;
}

/* Tensors with dims decide; 0-d tensors, and then numbers, only raise the kind
 * (bool, integer, float). A float number counts as f32. */
static fl_dtype promote_inputs(const work *w, int from, int to) {
  fl_dtype group[3] = {FL_NODTYPE, FL_NODTYPE, FL_NODTYPE};
  for (int k = from; k < to; k++) {
    const fl_meta *m = w->metas[k];
    if (!m)
      continue;
    bool number = !w->in[k].tensor;
    int g = number ? 2 : m->ndim == 0;
    fl_dtype d = number && m->dtype == FL_F64 ? FL_F32 : m->dtype;
    group[g] = fli_promote(group[g], d);
  }
  fl_dtype r = group[0];
  for (int g = 1; g < 3; g++)
    if (r == FL_NODTYPE ||
        (group[g] != FL_NODTYPE && call_lift(group[g]) > call_lift(r)))
      r = fli_promote(r, group[g]);
  return r;
}

static inline fl_dtype to_float(fl_dtype d) {
  return fli_is_float(d) ? d : FL_F32;
}

static fl_dtype out_dtype(work *w, int k) {
  const fl_op *op = w->op;
  int a = op->out[k].a, b = op->out[k].b;
  fl_dtype d = FL_F32;
  if (op->out[k].rule <= FLI_OUT_WIDE) {
    if (b == -1)
      d = w->metas[a] ? w->metas[a]->dtype : FL_F32;
    else if (b == -2)
      d = promote_inputs(w, a, w->n_in);
    else if (b == a + 1)
      d = promote_inputs(w, a, b + 1);
    else
      d = fli_promote(w->metas[a] ? w->metas[a]->dtype : FL_NODTYPE,
                      w->metas[b] ? w->metas[b]->dtype : FL_NODTYPE);
  }
  switch (op->out[k].rule) {
  case FLI_OUT_FLOAT:
    return to_float(d);
  case FLI_OUT_ACC:
    return fli_is_float(d) ? d : FL_I64;
  case FLI_OUT_WIDE:
    return d == FL_F64 ? FL_F64 : FL_F32;
  case FLI_OUT_FIXED:
    return (fl_dtype)a;
  case FLI_OUT_ATTR:
    if (w->attrs->v[a].i != FL_ATTR_NONE)
      return (fl_dtype)w->attrs->v[a].i;
    return w->n_in && w->metas[0] ? w->metas[0]->dtype : FL_F32;
  default:
    return d;
  }
}

static fl_status mismatch(work *w, int k) {
  const fl_meta *a = w->metas[0], *b = w->metas[k];
  return fli_fail(FL_ESHAPE,
                  "%s: shapes %s and %s do not broadcast: sizes must be equal, "
                  "or 1",
                  w->op->info.name, fli_shape_text(a->ndim, a->shape),
                  fli_shape_text(b->ndim, b->shape));
}

static fl_status call_broadcast(work *w, fl_meta *out) {
  out->ndim = 0;
  for (int k = 0; k < w->n_in; k++) {
    const fl_meta *m = w->metas[k];
    if (!m)
      continue;
    if (m->ndim > out->ndim) { /* make room in front */
      int more = m->ndim - out->ndim;
      for (int i = out->ndim - 1; i >= 0; i--)
        out->shape[i + more] = out->shape[i];
      for (int i = 0; i < more; i++)
        out->shape[i] = 1;
      out->ndim = m->ndim;
    }
    int skip = out->ndim - m->ndim;
    for (int i = 0; i < m->ndim; i++) {
      int64_t *o = &out->shape[i + skip], s = m->shape[i];
      if (*o == s)
        continue;
      if (*o == 1)
        *o = s;
      else if (s != 1)
        return mismatch(w, k);
    }
  }
  return FL_OK;
}

static fl_status infer_elementwise(work *w) {
  fl_meta *out = &w->out[0];
  const fl_meta *a = w->metas[0], *b = w->n_in > 1 ? w->metas[1] : NULL;
  out->dtype =
      FLI_LIKELY(w->n_in == 2 && w->op->out[0].rule == FLI_OUT_PROMOTE &&
                 w->in[0].tensor && w->in[1].tensor && a->dtype == b->dtype)
          ? a->dtype
          : out_dtype(w, 0);
  w->common = out->dtype;
  if (w->op->family == FLI_COMPARE)
    w->common = promote_inputs(w, 0, w->n_in);
  else if (fli_is_integer(out->dtype))
    FLI_TRY(fli_numbers_fit(w->c, w->n_in, w->in, out->dtype));
  bool same = a && w->n_in <= 2 && w->in[0].tensor &&
              (!b || !w->in[1].tensor || fli_same_shape(a, b));
  if (!same)
    return call_broadcast(w, out);
  out->ndim = a->ndim;
  for (int i = 0; i < a->ndim; i++)
    out->shape[i] = a->shape[i];
  return FL_OK;
}

/* What shape and cost rules see. */
static inline fli_infer facts(work *w, fl_attrs *attrs) {
  return (fli_infer){.rt = w->rt,
                     .op = w->op,
                     .n_in = w->n_in,
                     .n_out = w->n_out,
                     .in = w->metas,
                     .operands = w->in,
                     .out = w->out,
                     .attrs = attrs,
                     .base = w->c->base,
                     .saves = w->saves,
                     .draws = -1};
}

static fl_status infer_structured(work *w, fl_attrs *attrs) {
  fli_infer f = facts(w, attrs);
  if (w->n_in > 1 && w->in[0].tensor && !w->op->info.random &&
      fli_is_integer(w->metas[0]->dtype) && w->op->out[0].rule == FLI_OUT_INPUT)
    FLI_TRY(fli_numbers_fit(w->c, w->n_in, w->in, w->metas[0]->dtype));
  for (int k = 0; k < w->n_out; k++) {
    w->out[k].dtype = out_dtype(w, k);
    if (!FLI_LIKELY(!fli_is_complex(w->out[k].dtype)))
      return fli_wrong_type(w->op, -1, w->out[k].dtype);
  }
  FLI_TRY(w->op->shape(&f));
  w->saves = f.saves;
  w->draws = f.draws;
  return FL_OK;
}

/* --- run --- */

fl_status fli_send(fl_runtime *rt, fl_device d, fl_kernel kernel,
                   const fl_launch *l) {
  fl_backend *b = fli_backend(rt, d);
  uint64_t failed = 0;
  if (!(b->flags & FL_BACKEND_ASYNC))
    return b->launch ? b->launch(b, kernel, l) : kernel(l);
  fl_status s = b->stream_peek(b, l->device, l->stream, &failed);
  if (!s && (s = b->launch(b, kernel, l)) != FL_EFAULT)
    return s;
  return rt->capture ? s : fli_stream_finish(rt, d); /* once, with its line */
}

static fl_status send_timed(work *w, fl_kernel kernel, const fl_launch *l,
                            fl_tensor **out) {
  fli_infer f = facts(w, (fl_attrs *)(uintptr_t)w->attrs);
  fli_profiled what = {.op = w->op->info.name, .site = w->c->site};
  fl_stream *stream = l ? l->stream : NULL; /* without l: in meta mode */
  what.device = l ? w->device : 0;
  w->op->cost(&f, &what.flops, &what.bytes);
  fli_profile_operands(w->n_in, w->in, w->n_out, out, &what);
  size_t at = fli_profile_begin(w->rt, &what, stream);
  fl_status s = l ? fli_send(w->rt, w->device, kernel, l) : FL_OK;
  fli_profile_end(w->rt, at, stream);
  return s;
}

static bool writes_inputs(const work *w) {
  for (int k = 0; k < w->n_in; k++)
    if (w->in[k].tensor && fli_op_writes(w->op, w->attrs, w->n_in, k))
      return true;
  return false;
}

static fl_status call_launch(work *w, fl_tensor **out) {
  fl_runtime *rt = w->rt;
  fl_backend *b = fli_backend(rt, w->device);
  fl_kernel kernel = w->op->kernel[w->device >> 8];
  fl_view few[FEW], *in = few, to[FL_MAX_OUT];
  fl_status status;
  if (!kernel)
    return fli_fail(FL_EUNSUPPORTED, "%s: the %s backend has no kernel for it",
                    w->op->info.name, b->name);
  if (rt->window) {
    fli_entry e = {.op = w->op,
                   .site = w->c->site,
                   .base = w->c->base,
                   .writes = w->op->writes && writes_inputs(w),
                   .n_in = w->n_in,
                   .n_out = w->n_out,
                   .common = FL_NODTYPE};
    if (w->op->family < FLI_STRUCTURED)
      e.common = w->common;
    if (fli_window_takes(rt, w->device, &e, w->attrs, w->in, out, &status))
      return status;
  }
  if (w->n_in > FEW && !(in = fli_malloc(rt, (size_t)w->n_in * sizeof *in)))
    return FL_ENOMEM;
  for (int k = 0; k < w->n_in; k++) {
    if (w->in[k].tensor)
      fli_view_of(w->in[k].tensor, &in[k]);
    else if (w->in[k].dtype != FL_NODTYPE)
      fli_view_number(&w->in[k],
                      w->op->family >= FLI_STRUCTURED ? FL_NODTYPE : w->common,
                      &in[k]);
    else {
      in[k].data = NULL;
      in[k].ndim = 0;
      in[k].dtype = FL_NODTYPE;
    }
  }
  for (int k = 0; k < w->n_out; k++)
    fli_view_of(out[k], &to[k]);
  if (w->op->marks & FLI_MARK_POINTWISE && !out[0]->contiguous)
    fli_views_by_memory(w->n_in, in, w->n_out, to);
  fli_scratch s;
  fli_scratch_open(&s, rt, w->device, w->c->site);
  uint64_t seq = ++rt->seq;
  fl_launch l = {.op = w->op->info.name,
                 .n_in = w->n_in,
                 .n_out = w->n_out,
                 .in = in,
                 .out = to,
                 .attrs = w->attrs,
                 .program = w->op->program,
                 .native = w->op->plan,
                 .base = w->c->base,
                 .writes = w->op->writes && writes_inputs(w),
                 .device = w->device & 255,
                 .stream = fli_stream(rt, w->device),
                 .scratch = &s.base,
                 .seq = seq};
  fli_note_launch(rt, l.op, w->c->site, seq, w->n_in, w->metas);
  status = w->op->info.collective ? fli_comm_begin(rt, w->c, &l, out) : FL_OK;
  if (rt->watch && !status)
    status =
        fli_streams_launch(rt, w->device, w->c, w->n_in, w->in, w->n_out, out);
  if (FLI_LIKELY(status == FL_OK))
    status = rt->profile ? send_timed(w, kernel, &l, out)
                         : fli_send(rt, w->device, kernel, &l);
  fli_scratch_close(&s);
  if (in != few)
    fli_mfree(in);
  return status;
}

static fl_status call_allocate(work *w, fl_tensor **out) {
  for (int k = 0; k < w->n_out; k++) {
    size_t bytes;
    fl_status s = fli_check_size(w->out[k].dtype, w->out[k].ndim,
                                 w->out[k].shape, &bytes);
    if (s == FL_OK)
      s = fli_tensor_result(w->rt, &w->out[k], bytes, w->device, w->c->site,
                            &out[k]);
    if (s == FL_OK)
      continue;
    while (k)
      fl_tensor_release(out[--k]);
    return s;
  }
  if (w->op->layout)
    w->op->layout(w->attrs, w->n_in, w->in, w->n_out, out);
  return FL_OK;
}

static inline bool may_want_grad(const fl_tensor *t) {
  return t->requires_grad || t->node || t->is_view;
}

static inline bool records(const work *w) {
  if (!w->rt->grad_enabled || !w->op->grad)
    return false;
  for (int k = 0; k < w->n_in; k++)
    if (w->in[k].tensor && may_want_grad(w->in[k].tensor) &&
        fli_wants_grad(w->in[k].tensor))
      return true;
  return false;
}

static fl_status run_fresh(work *w) {
  fl_tensor **out = w->c->out;
  if (w->op->writes)
    FLI_TRY(fli_writes_check(w->rt, w->op, w->attrs, w->n_in, w->in));
  FLI_TRY(call_allocate(w, out));
  fl_status s = !w->rt->meta              ? call_launch(w, out)
                : fli_profile_meta(w->rt) ? send_timed(w, NULL, NULL, out)
                                          : FL_OK;
  if (s == FL_OK && w->rt->anomaly)
    s = fli_anomaly(w->rt, w->c, w->n_out, out);
  if (s == FL_OK && records(w))
    s = fli_tape_record(w->rt, w->c, w->attrs, w->saves, out);
  if (s)
    for (int k = 0; k < w->n_out; k++)
      fl_tensor_release(out[k]);
  else if (w->op->writes)
    fli_writes_note(w->op, w->attrs, w->n_in, w->in, w->c->site);
  return s;
}

/* --- in place --- */

static fl_status check_target(work *w) {
  fl_tensor *t = w->in[0].tensor;
  const char *name = w->op->info.name;
  if (!t)
    return fli_fail(FL_EARG, "%s_: the first input must be a tensor", name);
  FLI_TRY(fli_check_writable(t, name, "_"));
  return w->rt->grad_enabled ? fli_tape_check_inplace(w->c) : FL_OK;
}

/* Whether a result r of an operator can be kept in a tensor t. */
static fl_status check_result(const char *op, const fl_meta *t,
                              const fl_meta *r) {
  if (!fli_same_shape(r, t))
    return fli_fail(
        FL_ESHAPE, "%s_: the result has shape %s and does not fit into %s", op,
        fli_shape_text(r->ndim, r->shape), fli_shape_text(t->ndim, t->shape));
  if (fl_dtype_kind(r->dtype) > fl_dtype_kind(t->dtype) &&
      (fl_dtype_kind(r->dtype) >= FL_KIND_FLOAT ||
       fl_dtype_kind(t->dtype) == FL_KIND_BOOL))
    return fli_fail(FL_EDTYPE,
                    "%s_: the result is %s and cannot be kept in a %s tensor",
                    op, fl_dtype_name(r->dtype), fl_dtype_name(t->dtype));
  return FL_OK;
}

/* The values as they are, with t's history, for second derivatives. */
static fl_status clone_old(fl_runtime *rt, fl_tensor *t, fl_tensor **out) {
  bool grad = fl_grad_mode(rt, false);
  fl_status s = fli_tensor_copy(rt, t, FL_NODTYPE, 0, out);
  fl_grad_mode(rt, grad);
  return s == FL_OK ? fli_tape_transfer(t, *out) : s;
}

/* Elementwise and the like: the kernel writes in[0]'s memory. Inputs that
 * overlap it otherwise than element by element are read from a copy; what the
 * tape saves of the old values is a copy too. */
static fl_status run_over(work *w, const fl_operand *given) {
  fl_tensor *t = w->in[0].tensor, *clones[FEW] = {NULL}, *old = NULL;
  fl_operand in[FEW], saved[FEW];
  fl_status s = check_result(w->op->info.name, w->metas[0], &w->out[0]);
  bool tape = s == FL_OK && records(w);
  memcpy(in, w->in, (size_t)w->n_in * sizeof *in);
  memcpy(saved, w->in, (size_t)w->n_in * sizeof *in);
  for (int k = 0; k < w->n_in && s == FL_OK; k++) {
    if (!in[k].tensor || !fl_tensor_shares(in[k].tensor, t))
      continue;
    if (!fli_same_place(in[k].tensor, t) ||
        (k && w->op->family >= FLI_STRUCTURED)) {
      s = clone_old(w->rt, in[k].tensor, &clones[k]);
      saved[k].tensor = in[k].tensor = clones[k];
    } else if (tape && (w->op->saves >> k & 1)) {
      if (!old)
        s = clone_old(w->rt, t, &old);
      saved[k].tensor = old;
    }
  }
  w->in = in;
  if (s == FL_OK && !w->rt->meta)
    s = call_launch(w, &t);
  if (s == FL_OK && t->storage) {
    t->storage->version++;
    t->storage->write_site = w->c->site;
  }
  if (s == FL_OK && w->rt->anomaly)
    s = fli_anomaly(w->rt, w->c, 1, &t);
  if (s == FL_OK && tape) {
    fl_call c = *w->c;
    c.in = given;
    s = fli_tape_record_inplace(w->rt, &c, w->attrs, saved);
  }
  for (int k = 1; k < w->n_in; k++)
    fl_tensor_release(clones[k]);
  fl_tensor_release(old);
  if (s == FL_OK)
    w->c->out[0] = fl_tensor_retain(t);
  return s;
}

/* Everything else: out of place, then assigned; the tape saves a copy. */
static fl_status run_then_assign(work *w) {
  const fl_call *c = w->c;
  fl_tensor *results[FL_MAX_OUT], *t = c->in[0].tensor, *old = NULL;
  fl_operand in[FEW];
  fl_call plain = *c;
  plain.inplace = false;
  plain.out = results;
  if (c->op->saves && c->n_in <= FEW && records(w)) {
    FLI_TRY(clone_old(w->rt, t, &old));
    for (int k = 0; k < c->n_in; k++) {
      in[k] = c->in[k];
      if (in[k].tensor && fl_tensor_shares(in[k].tensor, t) &&
          fli_same_place(in[k].tensor, t))
        in[k].tensor = old;
    }
    plain.in = in;
  }
  fl_status s = fl_call_run(w->rt, &plain);
  fl_tensor_release(old);
  if (s != FL_OK)
    return s;
  fl_operand both[2] = {c->in[0], {.tensor = results[0]}};
  fl_call assign = {.op = &w->rt->ops[FLI_OP_assign],
                    .n_in = 2,
                    .in = both,
                    .inplace = true,
                    .site = c->site,
                    .base = c->base,
                    .out = c->out};
  s = check_result(c->op->info.name, &t->meta, &results[0]->meta);
  if (s == FL_OK)
    s = fl_call_run(w->rt, &assign);
  for (int k = 0; k < c->op->info.n_out; k++)
    fl_tensor_release(results[k]);
  return s;
}

static bool writes_over(const fl_op *op) {
  return op->family < FLI_STRUCTURED || op->info.collective ||
         op->marks & FLI_MARK_OVERWRITES;
}

/* --- views --- */

/* The gradient of as_strided needs a contiguous input. For another one the same
 * elements are addressed from its base. */
static fl_status from_base(work *w, fl_attrs *attrs) {
  fl_tensor *x = w->in[0].tensor, *base = x->is_view ? x->base : x;
  if (!base->contiguous)
    return fli_fail(FL_EAUTOGRAD,
                    "as_strided: a tensor with strides %s has no gradient this "
                    "way; use contiguous() first",
                    fli_shape_text(x->meta.ndim, x->stride));
  if (attrs->v[FL_ATTR_as_strided_offset].i == FL_ATTR_NONE)
    attrs->v[FL_ATTR_as_strided_offset].i = 0;
  attrs->v[FL_ATTR_as_strided_offset].i += x->offset - base->offset;
  fl_operand in = {.tensor = base};
  fl_call c = *w->c;
  c.in = &in;
  c.attrs = attrs;
  return fl_call_run(w->rt, &c);
}

static fl_status run_view(work *w) {
  fl_tensor *x = w->in[0].tensor;
  fl_attrs attrs;
  fl_attrs_copy(&attrs, w->attrs);
  if (!x)
    return fli_fail(FL_EARG, "%s: a view of a number is not possible",
                    w->op->info.name);
  FLI_TRY(settle_attrs(w, &attrs));
  fli_viewing v;
  v.op = w->op;
  v.attrs = &attrs;
  v.x = &x->meta;
  v.x_stride = x->stride;
  v.x_offset = v.offset = x->offset;
  v.base = w->c->base;
  v.out.dtype = x->meta.dtype;
  v.out.ndim = 0;
  FLI_TRY(w->op->view(&v));
  size_t bytes; /* as if it had memory of its own: counts must not overflow */
  FLI_TRY(fli_check_size(v.out.dtype, v.out.ndim, v.out.shape, &bytes));
  if (w->op->shows == FLI_SHOWS_MEMORY && !x->contiguous && records(w))
    return from_base(w, &attrs);
  fl_tensor *out;
  FLI_TRY(fli_tensor_view(x, &v.out, v.stride, v.offset, &out));
  out->no_grad_view = x->no_grad_view || !w->rt->grad_enabled;
  if (records(w)) {
    fl_status s = fli_tape_record(w->rt, w->c, &attrs, w->saves, &out);
    if (s) {
      fl_tensor_release(out);
      return s;
    }
  }
  w->c->out[0] = out;
  return FL_OK;
}

static fl_status run_composed(work *w) {
  fl_attrs attrs;
  fl_attrs_copy(&attrs, w->attrs);
  FLI_TRY(settle_attrs(w, &attrs));
  bool outermost = w->rt->profile && !w->rt->called;
  if (outermost)
    fli_profile_call(w->rt, w->op->info.name);
  fl_status s = w->rt->up->compose(w->rt, w->c, &attrs, w->device);
  if (outermost)
    w->rt->called = NULL;
  return s;
}

/* --- random numbers --- */

/* Fills the two rng inputs, seed and offset, that were left out. */
static void fill_rng(work *w, fl_operand *in) {
  fl_generator *g = w->c->generator ? w->c->generator : &w->rt->generator;
  for (int i = 0, turn = 0; i < w->op->info.n_params; i++) {
    const fl_param *p = &w->op->info.params[i];
    if (p->kind != FL_P_RNG || in[p->slot].tensor ||
        in[p->slot].dtype != FL_NODTYPE)
      continue;
    in[p->slot].dtype = FL_I64;
    in[p->slot].i = (int64_t)(turn++ ? g->offset : g->seed);
    w->metas[p->slot] = &number_meta[FL_I64];
  }
}

/* Moves the generator on: a counter gives 4 numbers of 32 bits, 2 of 64. */
static void advance_rng(work *w) {
  fl_generator *g = w->c->generator ? w->c->generator : &w->rt->generator;
  int64_t n =
      w->draws < 0 ? fl_numel(w->out[0].ndim, w->out[0].shape) : w->draws;
  int per = w->out[0].dtype == FL_F64 ? 2 : 4;
  g->offset += (uint64_t)((n + per - 1) / per);
}

/* --- the entry --- */

static fl_status call_run(work *w) {
  fl_attrs attrs;
  fl_operand in[FEW];
  const fl_operand *given = w->in;
  bool drew = false;
  switch (w->op->family) {
  case FLI_VIEW:
    return run_view(w);
  case FLI_COMPOSE:
    return run_composed(w);
  case FLI_STRUCTURED:
    if (w->op->compose && !w->op->kernel[w->device >> 8])
      return run_composed(w);
    fl_attrs_copy(&attrs, w->attrs);
    w->attrs = &attrs;
    if (w->op->info.random && w->n_in <= FEW) {
      memcpy(in, w->in, (size_t)w->n_in * sizeof *in);
      for (int i = 0; i < w->op->info.n_params; i++)
        if (w->op->info.params[i].kind == FL_P_RNG)
          drew = drew || in[w->op->info.params[i].slot].dtype == FL_NODTYPE;
      fill_rng(w, in);
      w->in = in;
    }
    FLI_TRY(settle_attrs(w, &attrs));
    FLI_TRY(infer_structured(w, &attrs));
    if (drew)
      advance_rng(w);
    break;
  default:
    FLI_TRY(infer_elementwise(w));
  }
  if (w->c->inplace)
    return run_over(w, given);
  if (w->in == given)
    return run_fresh(w);
  fl_call c = *w->c; /* the tape must see the numbers that were drawn */
  c.in = w->in;
  w->c = &c;
  return run_fresh(w);
}

/* Opens the work of a call; `few` are places for up to FEW metas. */
static fl_status open_work(work *w, fl_runtime *rt, const fl_call *c,
                           const fl_meta **few) {
  /* member by member: `out` is large and written before it is read */
  w->rt = rt;
  w->c = c;
  w->op = c->op;
  w->n_in = c->n_in;
  w->in = c->in;
  w->attrs = c->attrs ? c->attrs : &c->op->defaults;
  w->n_out = c->op->info.n_out;
  w->saves = c->op->saves;
  w->device = 0;
  w->device_known = w->any_dtype = false;
  w->metas = few;
  if (c->n_in > FEW)
    w->metas = fli_malloc(rt, (size_t)c->n_in * sizeof *w->metas);
  return w->metas ? FL_OK : FL_ENOMEM;
}

fl_status fli_check_call(fl_runtime *rt, const fl_call *c) {
  const fl_meta *few[FEW];
  work w;
  FLI_TRY(open_work(&w, rt, c, few));
  w.any_dtype = true;
  fl_status s = check_inputs(&w);
  if (w.metas != few)
    fli_mfree(w.metas);
  return s;
}

static fl_status run_general(fl_runtime *rt, const fl_call *c) {
  const fl_meta *few[FEW];
  work w;
  FLI_TRY(open_work(&w, rt, c, few));
  fl_status s = check_inputs(&w);
  if (s == FL_OK && c->inplace)
    s = check_target(&w);
  if (s == FL_OK)
    s = c->inplace && !writes_over(c->op) ? run_then_assign(&w) : call_run(&w);
  if (w.metas != few)
    fli_mfree(w.metas);
  return s;
}

static fl_status run_from(fl_runtime *rt, const fl_call *c, unsigned modes) {
  fl_status s;
  unsigned now = rt->modes & modes;
  if (FLI_LIKELY(!now) && c->op->flat && fli_flat_run(rt, c, &s))
    return s;
  if (now == 1u << FLI_MODE_WINDOW && fli_mode_window(rt, c, &s))
    return s;
  for (unsigned on = (rt->modes | c->op->modes) & modes; on; on &= on - 1)
    if (rt->up->mode[__builtin_ctz(on)](rt, c, &s))
      return s;
  return run_general(rt, c);
}

fl_status fli_call_below(fl_runtime *rt, const fl_call *c, int mode) {
  return run_from(rt, c, ~0u << (mode + 1));
}

static fl_status check_record(const fl_runtime *rt, const fl_call *c) {
  if (!rt || !c)
    return fli_fail(FL_EARG, "fl_call_run: %s is NULL", rt ? "c" : "rt");
  if (!c->op)
    return fli_fail(FL_EARG,
                    "a call has no operator: fl_op_find gives NULL for "
                    "names that it does not know");
  if (!c->in && c->n_in)
    return fli_fail(FL_EARG, "%s: the call's `in` is NULL", c->op->info.name);
  if (!c->out && c->op->info.n_out)
    return fli_fail(FL_EARG, "%s: the call's `out` is NULL", c->op->info.name);
  return FL_OK;
}

fl_status fl_call_run(fl_runtime *rt, const fl_call *c) {
  if (!FLI_LIKELY(rt && c && c->op && c->out && (c->in || !c->n_in)))
    FLI_TRY(check_record(rt, c));
  FLI_TRY(fli_check_owner(rt));
  return run_from(rt, c, ~0u);
}
