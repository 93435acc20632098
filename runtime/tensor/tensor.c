/* Storages and tensor headers: making, sharing, counting, reading and writing
 * them. What operators do to tensors is in call.c, histories in backward.c. */
#include "../internal.h"
#include "../tape/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- storages --- */

/* The bytes that only the host's handles keep alive follow the two counts. */
static inline void account(fl_storage *s) {
  bool only = s->refs == s->handles && s->refs > 0;
  if (only == s->host_only)
    return;
  s->host_only = only;
  if (only)
    s->rt->host_only += s->bytes;
  else
    s->rt->host_only -= s->bytes;
}

fl_status fli_storage_new(fl_runtime *rt, size_t bytes, fl_device d,
                          fl_site site, fl_storage **out) {
  fl_storage *s = fli_small_new(rt, sizeof *s);
  if (!s)
    return FL_ENOMEM;
  s->block = NULL;
  if (bytes != SIZE_MAX) { /* else foreign memory follows */
    fl_status status = fli_alloc(rt, d, bytes, site, &s->block, &s->data);
    if (status) {
      fli_small_free(rt, s, sizeof *s);
      return status;
    }
  } else
    bytes = 0;
  atomic_init(&s->rc, 1);
  s->refs = s->handles = 0;
  s->device = d;
  s->bytes = bytes;
  s->rt = rt;
  s->done = NULL;
  s->version = s->write_site = 0;
  s->loan = NULL;
  s->host_only = s->read_only = false;
  rt->live_bytes += bytes;
  *out = s;
  return FL_OK;
}

void fli_storage_retain(fl_storage *s) {
  atomic_fetch_add_explicit(&s->rc, 1, memory_order_relaxed);
}

void fli_storage_release(fl_storage *s) {
  if (atomic_load(&s->rc) != 1 && /* a sole one is nobody else's to change */
      atomic_fetch_sub_explicit(&s->rc, 1, memory_order_acq_rel) != 1)
    return;
  fl_runtime *rt = s->rt;
  if (s->host_only)
    rt->host_only -= s->bytes;
  rt->live_bytes -= s->bytes;
  if (s->block)
    fli_free(rt, s->block);
  else if (s->done)
    s->done(s->context, s->data);
  fli_small_free(rt, s, sizeof *s);
}

/* --- headers --- */

fl_status fli_tensor_header(fl_runtime *rt, fl_tensor **out) {
  fl_tensor *t = rt->free_tensors;
  if (FLI_LIKELY(t != NULL))
    rt->free_tensors = t->next;
  else if (!(t = fli_malloc(rt, sizeof *t)))
    return FL_ENOMEM;
  /* everything but shape and strides, which come with the value */
  t->rc = 1;
  t->handles = t->node_out = 0;
  t->requires_grad = t->is_view = t->no_grad_view = t->wrapped_number = false;
  t->storage = NULL;
  t->rt = rt;
  t->id = ++rt->next_id;
  t->node = NULL;
  t->base = NULL;
  t->offset = t->rebases = t->seen = 0;
  t->extra = NULL;
  t->prev = NULL;
  t->next = rt->tensors;
  if (t->next)
    t->next->prev = t;
  rt->tensors = t;
  rt->n_tensors++;
  *out = t;
  return FL_OK;
}

static void attach(fl_tensor *t, fl_storage *s) {
  t->storage = s;
  s->refs += t->rc;
  account(s);
}

/* Takes the storage away; the header stays, closed or about to go. */
static void detach_storage(fl_tensor *t) {
  fl_storage *s = t->storage;
  if (!s)
    return;
  t->storage = NULL;
  s->handles -= t->handles;
  account(s);
  if (s->loan && (!s->refs || atomic_load(&s->rc) == 1))
    fli_loan_leave(s);
  fli_storage_release(s);
}

void fli_tensor_rehouse(fl_tensor *t, fl_storage *s, int refs) {
  t->storage->refs -= refs;
  detach_storage(t);
  fli_storage_retain(s);
  t->storage = s;
  s->refs += refs;
  s->handles += t->handles;
  account(s);
}

fl_tensor *fl_tensor_retain(fl_tensor *t) {
  t->rc++;
  if (t->storage) {
    t->storage->refs++;
    account(t->storage);
  }
  return t;
}

static void retain_base(fl_tensor *t) { /* not counted by the storage */
  t->rc++;
}

static void drop(fl_tensor *t) {
  fl_runtime *rt = t->rt;
  if (!rt) { /* outlived its runtime */
    free(t);
    return;
  }
  fl_tensor *base = t->base;
  if (t->extra)
    fli_extra_free(t);
  if (t->node)
    fli_node_release(rt, t->node);
  detach_storage(t);
  if (t->prev)
    t->prev->next = t->next;
  else
    rt->tensors = t->next;
  if (t->next)
    t->next->prev = t->prev;
  rt->n_tensors--;
  t->rt = NULL;
  t->next = rt->free_tensors;
  rt->free_tensors = t;
  if (base && --base->rc == 0)
    drop(base);
}

void fl_tensor_release(fl_tensor *t) {
  if (!t)
    return;
  if (t->storage) {
    t->storage->refs--;
    if (t->rc > 1)
      account(t->storage);
  }
  if (--t->rc == 0)
    drop(t);
}

void fl_tensor_handle(fl_tensor *t, int change) {
  t->handles += change;
  if (t->extra)
    fli_batch_handle(t, change);
  if (t->storage) {
    t->storage->handles += change;
    account(t->storage);
  }
}

size_t fl_handles_bytes(fl_runtime *rt, size_t *live) {
  fli_lending_drain(rt);
  if (live)
    *live = rt->live_bytes;
  return rt->host_only;
}

/* The runtime goes: every tensor still held becomes closed. */
void fli_tensors_close(fl_runtime *rt) {
  for (fl_tensor *t = rt->tensors; t; t = t->next)
    retain_base(t); /* so that nothing below frees a header in the list */
  for (fl_tensor *t = rt->tensors; t; t = t->next) {
    if (t->extra)
      fli_extra_free(t);
    if (t->node)
      fli_node_release(rt, t->node);
    t->node = NULL;
    detach_storage(t);
    if (t->base)
      t->base->rc--;
    t->base = NULL;
  }
  for (fl_tensor *t = rt->tensors, *next; t; t = next) {
    next = t->next;
    t->rt = NULL;
    if (--t->rc == 0)
      free(t);
  }
  for (fl_tensor *t = rt->free_tensors, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  rt->tensors = rt->free_tensors = NULL;
}

/* --- shapes --- */

fl_status fli_check_size(fl_dtype d, int ndim, const int64_t *shape,
                         size_t *bytes) {
  if ((unsigned)d >= FL_DTYPES)
    return fli_fail(FL_EARG, "there is no dtype number %d", (int)d);
  size_t n = (size_t)1 << fli_shift(d);
  bool zero = false;
  if (ndim < 0 || ndim > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "a tensor has at most %d dims, not %d",
                    FL_MAX_DIMS, ndim);
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0)
      return fli_fail(FL_ESHAPE, "size %lld in shape %s is negative",
                      (long long)shape[i], fli_shape_text(ndim, shape));
    zero = zero || shape[i] == 0;
  }
  for (int i = 0; i < ndim && !zero; i++)
    if (__builtin_mul_overflow(n, (size_t)shape[i], &n) || n > SIZE_MAX / 4)
      return fli_fail(FL_ESIZE,
                      "shape %s of %s is too large: its bytes do not "
                      "fit into 62 bits",
                      fli_shape_text(ndim, shape), fl_dtype_name(d));
  *bytes = zero ? 0 : n;
  return FL_OK;
}

void fli_tensor_set_shape(fl_tensor *t, const fl_meta *m) {
  int64_t n = 1;
  t->meta.dtype = m->dtype;
  t->meta.ndim = m->ndim;
  for (int i = m->ndim - 1; i >= 0; i--) {
    t->meta.shape[i] = m->shape[i];
    t->stride[i] = n;
    n *= m->shape[i];
  }
  t->numel = n;
  t->contiguous = true;
  if (n == 0)
    for (int i = m->ndim - 1, s = 1; i >= 0; i--) { /* NumPy's choice */
      t->stride[i] = s;
      s *= m->shape[i] ? (int)m->shape[i] : 1;
    }
}

static bool is_contiguous(const fl_tensor *t) {
  int64_t expect = 1;
  if (t->numel == 0)
    return true;
  for (int i = t->meta.ndim - 1; i >= 0; i--) {
    if (t->meta.shape[i] == 1)
      continue;
    if (t->stride[i] != expect)
      return false;
    expect *= t->meta.shape[i];
  }
  return true;
}

fl_status fli_tensor_view(fl_tensor *x, const fl_meta *m, const int64_t *stride,
                          int64_t offset, fl_tensor **out) {
  fl_tensor *t;
  FLI_TRY(fli_tensor_header(x->rt, &t));
  t->meta.dtype = m->dtype;
  t->meta.ndim = m->ndim;
  t->numel = 1;
  for (int i = 0; i < m->ndim; i++) {
    t->meta.shape[i] = m->shape[i];
    t->stride[i] = stride[i];
    t->numel *= m->shape[i];
  }
  t->offset = t->numel ? offset : 0; /* of nothing it may be anywhere */
  t->contiguous = is_contiguous(t);
  if (x->storage) {
    fli_storage_retain(x->storage);
    attach(t, x->storage);
  }
  t->base = x->is_view ? x->base : x;
  retain_base(t->base);
  t->is_view = true;
  t->seen = t->base->rebases;
  *out = t;
  return FL_OK;
}

static fl_status with_storage(fl_runtime *rt, const fl_meta *m, size_t bytes,
                              fl_device d, fl_site site, fl_tensor **out) {
  fl_tensor *t;
  fl_storage *s;
  FLI_TRY(fli_tensor_header(rt, &t));
  fli_tensor_set_shape(t, m);
  fl_status status = fli_storage_new(rt, bytes, d, site, &s);
  if (status) {
    fl_tensor_release(t);
    return status;
  }
  attach(t, s);
  *out = t;
  return FL_OK;
}

fl_status fl_tensor_new(fl_runtime *rt, fl_dtype dtype, int ndim,
                        const int64_t *shape, fl_device d, fl_tensor **out) {
  fl_meta m = {.dtype = dtype, .ndim = ndim};
  size_t bytes;
  FLI_TRY(fli_check_device(rt, d));
  FLI_TRY(fli_check_size(dtype, ndim, shape, &bytes));
  memcpy(m.shape, shape, (size_t)ndim * sizeof *shape);
  return fli_tensor_make(rt, &m, bytes, d, rt->copy_site, out);
}

fl_status fli_tensor_make(fl_runtime *rt, const fl_meta *m, size_t bytes,
                          fl_device d, fl_site site, fl_tensor **out) {
  if (!rt->meta)
    return with_storage(rt, m, bytes, d, site, out);
  FLI_TRY(fli_tensor_header(rt, out));
  fli_tensor_set_shape(*out, m);
  return FL_OK;
}

fl_status fl_tensor_zeros(fl_runtime *rt, fl_dtype dtype, int ndim,
                          const int64_t *shape, fl_device d, fl_tensor **t) {
  fl_attrs a = *fl_op_defaults(&rt->ops[FLI_OP_full]);
  size_t bytes;
  FLI_TRY(fli_check_size(dtype, ndim, shape, &bytes));
  FLI_TRY(fl_attrs_list(&a, 0, ndim, shape));
  a.v[1].f = 0;
  a.v[2].i = dtype;
  fl_call c = {.op = &rt->ops[FLI_OP_full], .attrs = &a, .device = d, .out = t};
  return fl_call_run(rt, &c);
}

fl_status fl_tensor_wrap(fl_runtime *rt, void *data, fl_dtype dtype, int ndim,
                         const int64_t *shape,
                         void (*done)(void *context, void *data), void *context,
                         fl_tensor **out) {
  fl_meta m = {.dtype = dtype, .ndim = ndim};
  size_t bytes;
  FLI_TRY(fli_check_size(dtype, ndim, shape, &bytes));
  FLI_TRY(fli_check_memory("wrap", data, bytes, dtype));
  memcpy(m.shape, shape, (size_t)ndim * sizeof *shape);
  FLI_TRY(with_storage(rt, &m, SIZE_MAX, 0, 0, out));
  fl_storage *s = (*out)->storage;
  s->data = data;
  s->bytes = bytes;
  s->done = done;
  s->context = context;
  rt->live_bytes += bytes;
  return FL_OK;
}

fl_status fli_tensor_alias(fl_tensor *x, bool bare, fl_tensor **out) {
  fl_tensor *t;
  if (!x->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_tensor_view(x, &x->meta, x->stride, x->offset, &t));
  t->base->rc--; /* x or its base live on, so this cannot be the last */
  t->base = NULL;
  t->is_view = false;
  *out = t;
  return fli_batch_alias(x, t, bare);
}

fl_status fl_tensor_detach(fl_tensor *x, fl_tensor **out) {
  return fli_tensor_alias(x, true, out);
}

/* A view without history stands for itself from now on: as a leaf it must be
 * the base of its own views. */
void fli_tensor_own(fl_tensor *t) {
  fl_tensor *base = t->base;
  t->base = NULL;
  t->is_view = false;
  if (base && --base->rc == 0)
    drop(base);
}

/* --- asking --- */

const fl_meta *fl_tensor_meta(const fl_tensor *t) {
  return &t->meta;
}
const int64_t *fl_tensor_strides(const fl_tensor *t) {
  return t->stride;
}
int64_t fl_tensor_offset(const fl_tensor *t) {
  return t->offset;
}
int64_t fl_tensor_numel(const fl_tensor *t) {
  return t->numel;
}
fl_device fl_tensor_device(const fl_tensor *t) {
  return t->storage ? t->storage->device : fli_batch_device(t);
}
uint64_t fl_tensor_id(const fl_tensor *t) {
  return t->id;
}
fl_runtime *fl_tensor_runtime(const fl_tensor *t) {
  return t->rt;
}
bool fl_tensor_contiguous(const fl_tensor *t) {
  return t->contiguous;
}
uint32_t fl_tensor_version(const fl_tensor *t) {
  return t->storage ? t->storage->version : 0;
}
bool fl_tensor_closed(const fl_tensor *t) {
  return !t->rt;
}
bool fl_tensor_shares(const fl_tensor *a, const fl_tensor *b) {
  return a->storage && a->storage == b->storage;
}

static fl_status need_memory(const fl_tensor *t, const char *who) {
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  if (!t->storage)
    return fli_no_values(t, who);
  return fli_check_owner(t->rt);
}

void *fl_tensor_data(fl_tensor *t) {
  if (need_memory(t, ""))
    return NULL;
  fl_device d = t->storage->device;
  if (!(fli_backend(t->rt, d)->flags & FL_BACKEND_HOST)) {
    fli_fail(FL_EDEVICE,
             "the memory of %s cannot be read from here: copy the "
             "tensor to \"cpu\" first",
             fl_device_name(t->rt, d));
    return NULL;
  }
  if (fl_device_sync(t->rt, d) ||
      (t->rt->watch && fli_streams_touch(t, false, "a copy", 0)))
    return NULL;
  return fli_tensor_ptr(t);
}

/* --- values in and out --- */

fl_status fli_tensor_copy(fl_runtime *rt, fl_tensor *t, fl_dtype d,
                          fl_site site, fl_tensor **out) {
  const fl_op *copy = &rt->ops[FLI_OP_copy];
  fl_operand in = {.tensor = t};
  fl_attrs a;
  fl_attrs_copy(&a, &copy->defaults);
  if (d != FL_NODTYPE)
    a.v[0].i = d;
  fl_call c = {
      .op = copy, .n_in = 1, .in = &in, .attrs = &a, .site = site, .out = out};
  return fl_call_run(rt, &c);
}

/* A contiguous tensor with the same values, in meta mode, too: t itself or a
 * copy. New reference, no history. */
static fl_status plain(fl_tensor *t, fl_tensor **out) {
  if (t->contiguous) {
    *out = fl_tensor_retain(t);
    return FL_OK;
  }
  fl_runtime *rt = t->rt;
  bool grad = fl_grad_mode(rt, false), meta = fl_meta_mode(rt, false);
  fl_status s = fli_tensor_copy(rt, t, FL_NODTYPE, 0, out);
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

static inline fl_status watched(fl_tensor *t, bool writes) {
  return t->rt->watch ? fli_streams_touch(t, writes, "a copy", t->rt->copy_site)
                      : FL_OK;
}

fl_status fl_tensor_read(fl_tensor *t, void *to, size_t bytes) {
  fl_tensor *p;
  FLI_TRY(need_memory(t, "reading values: "));
  FLI_TRY(check_bytes(t, bytes));
  if (bytes == 0)
    return FL_OK;
  FLI_TRY(plain(t, &p));
  fl_device d = p->storage->device;
  fl_backend *b = fli_backend(t->rt, d);
  fl_status s = watched(p, false);
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
  FLI_TRY(need_memory(t, "writing values: "));
  FLI_TRY(check_bytes(t, bytes));
  if (bytes == 0)
    return FL_OK;
  FLI_TRY(fli_check_writable(t, "write", ""));
  fl_runtime *rt = t->rt;
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
  FLI_TRY(watched(t, true));
  t->storage->version++;
  if (b->flags & FL_BACKEND_HOST) {
    memcpy(fli_tensor_ptr(t), from, bytes);
    return FL_OK;
  }
  return fli_copy(rt, d, FL_COPY_IN, fli_tensor_ptr(t), d, from, bytes);
}

fl_status fl_tensor_item(fl_tensor *t, double *f, int64_t *i) {
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
  FLI_TRY(need_memory(t, "item: "));
  if (t->numel != 1)
    return fli_fail(FL_ESHAPE,
                    "item: a tensor of shape %s has %lld elements, "
                    "not one",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    (long long)t->numel);
  if (fli_is_complex(t->meta.dtype))
    return fli_fail(FL_EDTYPE, "item: %s has two parts: take real() or imag()",
                    fl_dtype_name(t->meta.dtype));
  FLI_TRY(fl_tensor_read(t, &v, fl_dtype_size(t->meta.dtype)));
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

/* Behind what the source's stream has to do; the backend lets that stream wait
 * for the copy. */
static fl_status move_peer(fl_tensor *from, fl_tensor *to, size_t bytes) {
  fl_runtime *rt = from->rt;
  fl_device df = from->storage->device, dt = to->storage->device;
  fl_backend *b = fli_backend(rt, dt);
  FLI_TRY(watched(from, false));
  fl_event *e = fli_stream_event(rt, df, fl_stream_current(rt, df));
  fl_status s = e ? b->event_wait(b, e, fli_stream(rt, dt)) : FL_OK;
  if (e)
    b->event_free(b, e);
  FLI_TRY(s);
  return fli_copy(rt, dt, FL_COPY_PEER, fli_tensor_ptr(to), df,
                  fli_tensor_ptr(from), bytes);
}

/* One side is pinned memory, nobody waits. */
static fl_status move_pinned(fl_tensor *from, fl_tensor *to, size_t bytes,
                             struct fli_pin *pin, bool in) {
  fl_runtime *rt = from->rt;
  fl_device d = (in ? to : from)->storage->device;
  FLI_TRY(watched(in ? to : from, in));
  FLI_TRY(fli_copy(rt, d, in ? FL_COPY_IN_PINNED : FL_COPY_OUT_PINNED,
                   fli_tensor_ptr(to), d, fli_tensor_ptr(from), bytes));
  if (rt->watch & FLI_WATCH_RACES)
    FLI_TRY(fli_race_check(rt, d, fl_stream_current(rt, d), in ? from : to, !in,
                           "a copy", rt->copy_site));
  return fli_pin_used(pin, d);
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
  if (bf == bt && !(bf->flags & FL_BACKEND_HOST)) {
    if (!async)
      FLI_TRY(fl_device_sync(rt, df));
    return move_peer(from, to, bytes);
  }
  bool in = bf->flags & FL_BACKEND_HOST;
  struct fli_pin *pin = fli_pin_of((in ? from : to)->storage);
  if (async && pin && fli_pin_fits(pin, in ? dt : df))
    return move_pinned(from, to, bytes, pin, in);
  if (bt->flags & FL_BACKEND_HOST)
    return fl_tensor_read(from, fli_tensor_ptr(to), bytes);
  if (in) {
    FLI_TRY(watched(from, false));
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

static fl_status move(fl_tensor *t, fl_device d, fl_dtype dtype, bool async,
                      fl_tensor **out) {
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  fl_runtime *rt = t->rt;
  bool moves = t->storage && d != t->storage->device;
  FLI_TRY(fli_check_device(rt, d));
  if (dtype != FL_NODTYPE && dtype != t->meta.dtype && !moves)
    return fli_tensor_copy(rt, t, dtype, 0, out);
  if (!moves) {
    *out = fl_tensor_retain(t);
    return FL_OK;
  }
  fl_tensor *from, *to;
  if (async && dtype != FL_NODTYPE && dtype != t->meta.dtype) {
    /* the host cannot while it arrives */
    FLI_TRY(fli_tensor_copy(rt, t, dtype, 0, &from));
    fl_status s = move(from, d, FL_NODTYPE, true, out);
    fl_tensor_release(from);
    return s;
  }
  FLI_TRY(plain(t, &from));
  size_t bytes = (size_t)from->numel * fl_dtype_size(from->meta.dtype);
  bool pin = async && fli_backend(rt, d)->flags & FL_BACKEND_HOST && !rt->meta;
  fl_status s =
      pin ? fl_tensor_new_pinned(rt, from->meta.dtype, from->meta.ndim,
                                 from->meta.shape, &to)
          : fli_tensor_make(rt, &from->meta, bytes, d, 0, &to);
  if (s == FL_OK && to->storage && (s = move_bytes(from, to, async)))
    fl_tensor_release(to); /* in meta mode there are no bytes */
  fl_tensor_release(from);
  FLI_TRY(s);
  s = fli_tape_transfer(t, to);
  if (s == FL_OK && dtype != FL_NODTYPE && dtype != to->meta.dtype) {
    s = fli_tensor_copy(rt, to, dtype, 0, out);
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
  return move(t, d, dtype, false, out);
}

fl_status fl_tensor_to_async(fl_tensor *t, fl_device d, fl_dtype dtype,
                             fl_site site, fl_tensor **out) {
  fl_runtime *rt = t->rt;
  if (rt)
    rt->copy_site = site;
  fl_status s = move(t, d, dtype, true, out);
  if (rt)
    rt->copy_site = 0;
  return s;
}

/* assign is the one row whose inputs may lie on two devices. */
bool fli_assign_is_far(const fl_call *c) {
  const fl_tensor *x = c->in[0].tensor, *from = c->in[1].tensor;
  return c->n_in == 2 && x && from && x->storage && from->storage &&
         x->rt == from->rt && x->storage->device != from->storage->device;
}

fl_status fli_assign_across(fl_runtime *rt, const fl_call *c) {
  fl_operand in[2] = {c->in[0], c->in[1]};
  fl_call near = *c;
  FLI_TRY(fl_tensor_to(c->in[1].tensor, c->in[0].tensor->storage->device,
                       FL_NODTYPE, &in[1].tensor));
  near.in = in;
  fl_status s = fl_call_run(rt, &near);
  fl_tensor_release(in[1].tensor);
  return s;
}
