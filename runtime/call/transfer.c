/* Values that enter or leave tensors, and tensors that move to another device
 * or dtype. Strided tensors are copied by calls of operators. */
#include "../memory/capture.h"
#include "../memory/stream.h"
#include "../tape/tape.h"
#include "call.h"

#include <string.h>

fl_status fl_tensor_zeros(fl_runtime *rt, fl_dtype dtype, int ndim,
                          const int64_t *shape, fl_device d, fl_tensor **t) {
  FLI_NEED(rt, "rt");
  FLI_NEED(t, "t");
  fl_attrs a = *fl_op_defaults(&rt->ops[FLI_OP_full]);
  size_t bytes;
  FLI_TRY(fli_check_size(dtype, ndim, shape, &bytes));
  FLI_TRY(fl_attrs_list(&a, FL_ATTR_full_shape, ndim, shape));
  a.v[FL_ATTR_full_value].f = 0;
  a.v[FL_ATTR_full_dtype].i = dtype;
  fl_call c = {.op = &rt->ops[FLI_OP_full], .attrs = &a, .device = d, .out = t};
  return fl_call_run(rt, &c);
}

static fl_status copy_as(fl_runtime *rt, fl_tensor *t, fl_dtype d, int layout,
                         fl_site site, fl_tensor **out) {
  const fl_op *copy = &rt->ops[FLI_OP_copy];
  fl_operand in = {.tensor = t};
  fl_attrs a;
  fl_attrs_copy(&a, &copy->defaults);
  if (d != FL_NODTYPE)
    a.v[FL_ATTR_copy_dtype].i = d;
  a.v[FL_ATTR_copy_layout].i = layout;
  fl_call c = {
      .op = copy, .n_in = 1, .in = &in, .attrs = &a, .site = site, .out = out};
  return fl_call_run(rt, &c);
}

fl_status fli_tensor_copy(fl_runtime *rt, fl_tensor *t, fl_dtype d,
                          fl_site site, fl_tensor **out) {
  return copy_as(rt, t, d, FLI_LAYOUT_KEEP, site, out);
}

/* A contiguous tensor with the same values, in meta mode, too: t itself or a
 * copy. New reference, no history. */
static fl_status transfer_plain(fl_tensor *t, fl_tensor **out) {
  if (t->contiguous) {
    *out = fl_tensor_retain(t);
    return FL_OK;
  }
  fl_runtime *rt = t->rt;
  bool grad = fl_grad_mode(rt, false), meta = fl_meta_mode(rt, false);
  fl_status s =
      copy_as(rt, t, FL_NODTYPE, FLI_LAYOUT_CONTIGUOUS, rt->copy_site, out);
  fl_grad_mode(rt, grad);
  fl_meta_mode(rt, meta);
  return s;
}

static fl_status check_bytes(const fl_tensor *t, size_t bytes) {
  size_t need = (size_t)t->numel * fl_dtype_size(t->meta.dtype);
  if (bytes != need)
    return fli_fail(FL_ESIZE,
                    "a tensor of shape %s and dtype %s has %zu bytes, not %zu",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    fl_dtype_name(t->meta.dtype), need, bytes);
  return FL_OK;
}

static inline fl_status transfer_watched(fl_tensor *t, bool writes) {
  return t->rt->watch ? fli_streams_touch(t, writes, "a copy", t->rt->copy_site)
                      : FL_OK;
}

fl_status fl_tensor_read(fl_tensor *t, void *to, size_t bytes) {
  FLI_NEED(t, "t");
  fl_tensor *p;
  FLI_TRY(fli_need_memory(t, "reading values: "));
  FLI_TRY(check_bytes(t, bytes));
  if (bytes == 0)
    return FL_OK;
  FLI_NEED(to, "to");
  fl_device d = t->storage->device;
  FLI_TRY(fli_capture_refuses(t->rt, d, "values that the host reads"));
  FLI_TRY(transfer_plain(t, &p));
  fl_backend *b = fli_backend(t->rt, d);
  fl_status s = fli_settle(p);
  if (s == FL_OK)
    s = transfer_watched(p, false);
  if (s == FL_OK && !(b->flags & FL_BACKEND_HOST))
    s = fli_copy(t->rt, d, FL_COPY_OUT, to, d, fli_tensor_ptr(p), bytes);
  else if (s == FL_OK)
    memcpy(to, fli_tensor_ptr(p), bytes);
  if (s == FL_OK || s == FL_EFAULT)
    s = fli_stream_finish(t->rt, d);
  fl_tensor_release(p);
  return s;
}

fl_status fl_tensor_write(fl_tensor *t, const void *from, size_t bytes) {
  FLI_NEED(t, "t");
  FLI_TRY(fli_need_memory(t, "writing values: "));
  FLI_TRY(check_bytes(t, bytes));
  if (bytes == 0)
    return FL_OK;
  FLI_NEED(from, "from");
  FLI_TRY(fli_check_writable(t, "write", ""));
  fl_runtime *rt = t->rt;
  FLI_TRY(fli_capture_refuses(rt, t->storage->device,
                              "values that the host writes"));
  if (!t->contiguous) { /* through a contiguous tensor, and assign */
    fl_tensor *p, *same;
    FLI_TRY(fl_tensor_new(rt, t->meta.dtype, t->meta.ndim, t->meta.shape,
                          t->storage->device, &p));
    fl_status s = fl_tensor_write(p, from, bytes);
    fl_operand in[2] = {{.tensor = t}, {.tensor = p}};
    fl_call c = {.op = &rt->ops[FLI_OP_assign],
                 .n_in = 2,
                 .in = in,
                 .inplace = true,
                 .out = &same};
    if (s == FL_OK && (s = fl_call_run(rt, &c)) == FL_OK)
      fl_tensor_release(same);
    fl_tensor_release(p);
    return s;
  }
  fl_device d = t->storage->device;
  fl_backend *b = fli_backend(rt, d);
  FLI_TRY(fli_settle(t));
  FLI_TRY(transfer_watched(t, true));
  t->storage->version++;
  if (b->flags & FL_BACKEND_HOST) {
    memcpy(fli_tensor_ptr(t), from, bytes);
    return FL_OK;
  }
  return fli_copy(rt, d, FL_COPY_IN, fli_tensor_ptr(t), d, from, bytes);
}

fl_status fl_tensor_item(fl_tensor *t, double *f, int64_t *i) {
  FLI_NEED(t, "t");
  union {
    uint16_t h;
    float f;
    double d;
    int64_t l;
    int32_t w;
    int16_t s;
    int8_t c;
    uint8_t u;
  } v;
  FLI_TRY(fli_need_memory(t, "item: "));
  if (t->numel != 1)
    return fli_fail(FL_ESHAPE,
                    "item: a tensor of shape %s has %lld elements, "
                    "not one",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    (long long)t->numel);
  if (fli_is_complex(t->meta.dtype))
    return fli_fail(FL_EDTYPE, "item: %s has two parts: take real() or imag()",
                    fl_dtype_name(t->meta.dtype));
  fl_status read = fl_tensor_read(t, &v, fl_dtype_size(t->meta.dtype));
  if (read)
    return t->rt->capture ? fli_told("item", read) : read;
  int64_t whole = 0;
  double real = 0;
  switch (t->meta.dtype) {
  case FL_F64:
    real = v.d;
    break;
  case FL_F32:
    real = v.f;
    break;
  case FL_F16:
    real = fli_half_value(FL_F16, v.h);
    break;
  case FL_BF16:
    real = fli_half_value(FL_BF16, v.h);
    break;
  case FL_I64:
    whole = v.l;
    break;
  case FL_I32:
    whole = v.w;
    break;
  case FL_I16:
    whole = v.s;
    break;
  case FL_I8:
    whole = v.c;
    break;
  default:
    whole = v.u;
    break;
  }
  if (fl_dtype_kind(t->meta.dtype) == FL_KIND_FLOAT)
    whole = fli_to_integer(real);
  else
    real = (double)whole;
  if (f)
    *f = real;
  if (i)
    *i = whole;
  return FL_OK;
}

/* --- to another device or dtype --- */

/* After the work that is queued on the source's stream; the backend makes that
 * stream wait for the copy. */
static fl_status move_peer(fl_tensor *from, fl_tensor *to, size_t bytes) {
  fl_runtime *rt = from->rt;
  fl_device df = from->storage->device, dt = to->storage->device;
  fl_backend *b = fli_backend(rt, dt);
  FLI_TRY(transfer_watched(from, false));
  FLI_TRY(transfer_watched(to, true));
  fl_event *e = fli_stream_event(rt, df, fl_stream_current(rt, df));
  fl_status s = e ? b->event_wait(b, e, fli_stream(rt, dt)) : FL_OK;
  if (e)
    b->event_free(b, e);
  FLI_TRY(s);
  return fli_copy(rt, dt, FL_COPY_PEER, fli_tensor_ptr(to), df,
                  fli_tensor_ptr(from), bytes);
}

/* One side is pinned memory: the device copies, and the host waits only if the
 * caller asked for it. */
static fl_status move_pinned(fl_tensor *from, fl_tensor *to, size_t bytes,
                             struct fli_pin *pin, bool in, bool async) {
  fl_runtime *rt = from->rt;
  fl_device d = (in ? to : from)->storage->device;
  FLI_TRY(transfer_watched(in ? to : from, in));
  fl_status s = fli_copy(rt, d, in ? FL_COPY_IN_PINNED : FL_COPY_OUT_PINNED,
                         fli_tensor_ptr(to), d, fli_tensor_ptr(from), bytes);
  if (s) /* fli_stream_finish names the launch that failed */
    return s == FL_EFAULT && !async ? fli_stream_finish(rt, d) : s;
  if (rt->watch & FLI_WATCH_RACES)
    FLI_TRY(fli_race_check(rt, d, fl_stream_current(rt, d), in ? from : to, !in,
                           "a copy", rt->copy_site));
  FLI_TRY(fli_pin_used(pin, d));
  return async ? FL_OK : fli_stream_finish(rt, d);
}

/* Bytes of a contiguous tensor across devices: at once within a backend,
 * through host memory otherwise. */
static fl_status move_bytes(fl_tensor *from, fl_tensor *to, bool async) {
  fl_runtime *rt = from->rt;
  size_t bytes = (size_t)from->numel * fl_dtype_size(from->meta.dtype);
  fl_device df = from->storage->device, dt = to->storage->device;
  fl_backend *bf = fli_backend(rt, df), *bt = fli_backend(rt, dt);
  if (bytes == 0)
    return FL_OK;
  FLI_TRY(fli_capture_refuses(
      rt, -1,
      bt->flags & FL_BACKEND_HOST   ? "values that the host reads"
      : bf->flags & FL_BACKEND_HOST ? "values that the host writes"
                                    : "a copy between devices"));
  FLI_TRY(fli_settle(from));
  if (bf == bt && !(bf->flags & FL_BACKEND_HOST)) {
    if (!async)
      FLI_TRY(fl_device_sync(rt, df));
    return move_peer(from, to, bytes);
  }
  bool in = bf->flags & FL_BACKEND_HOST;
  struct fli_pin *pin = fli_pin_of((in ? from : to)->storage);
  if (pin && fli_pin_fits(pin, in ? dt : df))
    return move_pinned(from, to, bytes, pin, in, async);
  if (bt->flags & FL_BACKEND_HOST) {
    FLI_TRY(transfer_watched(to, true));
    return fl_tensor_read(from, fli_tensor_ptr(to), bytes);
  }
  if (in) {
    FLI_TRY(transfer_watched(from, false));
    FLI_TRY(fl_tensor_write(to, fli_tensor_ptr(from), bytes));
    return async ? FL_OK : fli_stream_finish(rt, dt);
  }
  void *host = fli_malloc(rt, bytes);
  if (!host)
    return FL_ENOMEM;
  fl_status s = fl_tensor_read(from, host, bytes);
  if (s == FL_OK)
    s = fl_tensor_write(to, host, bytes);
  if (s == FL_OK)
    s = fli_stream_finish(rt, dt);
  fli_mfree(host);
  return s;
}

/* t with its dims in the order of its memory, where that has no gaps: then its
 * bytes can be moved as they are. Otherwise as transfer_plain. */
static fl_status transfer_bytes(fl_tensor *t, bool *turned, fl_tensor **out) {
  int order[FL_MAX_DIMS];
  int64_t stride[FL_MAX_DIMS];
  fl_meta m = {.dtype = t->meta.dtype, .ndim = t->meta.ndim};
  *turned = !t->contiguous && fli_dense_order(t, order);
  if (!*turned)
    return transfer_plain(t, out);
  for (int i = 0; i < m.ndim; i++) {
    m.shape[i] = t->meta.shape[order[i]];
    stride[i] = t->stride[order[i]];
  }
  return fli_tensor_view(t, &m, stride, t->offset, out);
}

static fl_status transfer_move(fl_tensor *t, fl_device d, fl_dtype dtype,
                               bool async, fl_tensor **out) {
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  fl_runtime *rt = t->rt;
  bool moves = t->storage && d != t->storage->device;
  FLI_TRY(fli_check_device(rt, d));
  if (dtype != FL_NODTYPE && dtype != t->meta.dtype && !moves)
    return fli_tensor_copy(rt, t, dtype, rt->copy_site, out);
  if (!moves) {
    *out = fl_tensor_retain(t);
    return FL_OK;
  }
  fl_tensor *from, *to;
  if (async && dtype != FL_NODTYPE && dtype != t->meta.dtype) {
    /* not from the host while the copy runs */
    FLI_TRY(fli_tensor_copy(rt, t, dtype, rt->copy_site, &from));
    fl_status s = transfer_move(from, d, FL_NODTYPE, true, out);
    fl_tensor_release(from);
    return s;
  }
  bool turned;
  FLI_TRY(transfer_bytes(t, &turned, &from));
  size_t bytes = (size_t)from->numel * fl_dtype_size(from->meta.dtype);
  bool pin = async && fli_backend(rt, d)->flags & FL_BACKEND_HOST && !rt->meta;
  fl_status s =
      pin ? fl_tensor_new_pinned(rt, from->meta.dtype, from->meta.ndim,
                                 from->meta.shape, &to)
          : fli_tensor_make(rt, &from->meta, bytes, d, rt->copy_site, &to);
  if (s == FL_OK && to->storage && (s = move_bytes(from, to, async)))
    fl_tensor_release(to); /* in meta mode there are no bytes */
  fl_tensor_release(from);
  FLI_TRY(s);
  if (turned) {
    fli_tensor_set_shape(to, &t->meta);
    fli_tensor_set_strides(to, t->stride);
  }
  s = fli_tape_transfer(t, to);
  if (s == FL_OK && dtype != FL_NODTYPE && dtype != to->meta.dtype) {
    s = fli_tensor_copy(rt, to, dtype, rt->copy_site, out);
    fl_tensor_release(to);
    return s;
  }
  if (s) {
    fl_tensor_release(to);
    return s;
  }
  *out = to;
  return FL_OK;
}

fl_status fl_tensor_to(fl_tensor *t, fl_device d, fl_dtype dtype,
                       fl_tensor **out) {
  FLI_NEED(t, "t");
  FLI_NEED(out, "out");
  return transfer_move(t, d, dtype, false, out);
}

fl_status fl_tensor_to_async(fl_tensor *t, fl_device d, fl_dtype dtype,
                             fl_site site, fl_tensor **out) {
  FLI_NEED(t, "t");
  FLI_NEED(out, "out");
  fl_runtime *rt = t->rt;
  if (rt)
    rt->copy_site = site;
  fl_status s = transfer_move(t, d, dtype, true, out);
  if (rt)
    rt->copy_site = 0;
  return s;
}

/* assign is the one row whose inputs may lie on two devices. */
static bool assign_is_far(const fl_call *c) {
  if (c->n_in != 2)
    return false;
  const fl_tensor *x = c->in[FL_IN_assign_x].tensor,
                  *from = c->in[FL_IN_assign_from].tensor;
  return x && from && x->storage && from->storage && x->rt == from->rt &&
         x->storage->device != from->storage->device;
}

static bool assign_is_async(const fl_call *c) {
  return c->attrs && c->attrs->v[FL_ATTR_assign_async].i;
}

/* Whether both have their elements in the same order of memory, without gaps.
 */
static bool assign_lies_alike(const fl_tensor *x, const fl_tensor *from) {
  int order[FL_MAX_DIMS];
  if (x->contiguous && from->contiguous)
    return true;
  for (int i = 0; i < x->meta.ndim; i++)
    if (x->meta.shape[i] != 1 && x->stride[i] != from->stride[i])
      return false;
  return fli_dense_order(x, order) && fli_dense_order(from, order);
}

/* Whether copying the bytes is all that the call does: nothing is converted,
 * laid out, recorded or checked for NaN. */
static bool assign_is_bytes(const fl_runtime *rt, const fl_call *c) {
  fl_tensor *x = c->in[FL_IN_assign_x].tensor,
            *from = c->in[FL_IN_assign_from].tensor;
  return c->inplace && !rt->meta && !rt->anomaly &&
         x->meta.dtype == from->meta.dtype &&
         fli_same_shape(&x->meta, &from->meta) && assign_lies_alike(x, from) &&
         !(rt->grad_enabled && (fli_wants_grad(x) || fli_wants_grad(from)));
}

static fl_status assign_bytes(const fl_call *c) {
  fl_tensor *x = c->in[FL_IN_assign_x].tensor, *to, *from;
  bool turned;
  FLI_TRY(fli_check_writable(x, c->op->info.name, "_"));
  FLI_TRY(fli_settle(x));
  FLI_TRY(transfer_bytes(c->in[FL_IN_assign_from].tensor, &turned, &from));
  fl_status s = transfer_bytes(x, &turned, &to);
  if (s == FL_OK) {
    s = move_bytes(from, to, assign_is_async(c));
    fl_tensor_release(to);
  }
  fl_tensor_release(from);
  FLI_TRY(s);
  x->storage->version++;
  x->storage->write_site = c->site;
  c->out[0] = fl_tensor_retain(x);
  return FL_OK;
}

/* `from` first goes to x's device, and is written into x there. The host waits
 * for what it will read itself. */
static fl_status assign_by_copy(fl_runtime *rt, const fl_call *c) {
  fl_operand in[FL_INS_assign];
  fl_operand *from = &in[FL_IN_assign_from];
  fl_device d = c->in[FL_IN_assign_x].tensor->storage->device;
  bool async =
      assign_is_async(c) && !(fli_backend(rt, d)->flags & FL_BACKEND_HOST);
  fl_call near = *c;
  in[FL_IN_assign_x] = c->in[FL_IN_assign_x];
  *from = c->in[FL_IN_assign_from];
  FLI_TRY(transfer_move(c->in[FL_IN_assign_from].tensor, d, FL_NODTYPE, async,
                        &from->tensor));
  near.in = in;
  fl_status s = fl_call_run(rt, &near);
  fl_tensor_release(from->tensor);
  return s;
}

static fl_status assign_across(fl_runtime *rt, const fl_call *c) {
  fl_site before = rt->copy_site;
  rt->copy_site = c->site;
  fl_status s =
      assign_is_bytes(rt, c) ? assign_bytes(c) : assign_by_copy(rt, c);
  rt->copy_site = before;
  return s;
}

bool fli_mode_transfer(fl_runtime *rt, const fl_call *c, fl_status *status) {
  if (!assign_is_far(c))
    return false;
  *status = assign_across(rt, c);
  return true;
}
