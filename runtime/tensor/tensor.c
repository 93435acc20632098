/* Storages and tensor headers: making, sharing, counting, reading and writing
 * them. */
#include "../memory/alloc.h"
#include "../memory/stream.h"
#include "extra.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- storages --- */

/* The bytes that only the host's handles keep alive follow the two counts. */
static inline void account(fl_storage *s) {
  bool only = s->refs == s->handles && s->refs > 0 && !s->pending;
  if (only == s->host_only)
    return;
  s->host_only = only;
  if (only)
    s->rt->host_only += s->bytes;
  else
    s->rt->host_only -= s->bytes;
}

static void storage_init(fl_runtime *rt, fl_storage *s, size_t bytes,
                         fl_device d) {
  atomic_init(&s->rc, 1);
  s->refs = s->handles = 0;
  s->device = d;
  s->bytes = bytes;
  s->rt = rt;
  s->done = NULL;
  s->version = s->write_site = 0;
  s->loan = NULL;
  s->host_only = s->read_only = s->pending = s->away = false;
  s->exposed = 0;
  s->kept = NULL;
  s->window = s->slot = 0;
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
  storage_init(rt, s, bytes, d);
  rt->live_bytes += bytes;
  *out = s;
  return FL_OK;
}

fl_status fli_storage_pending(fl_runtime *rt, size_t bytes, fl_device d,
                              fl_storage **out) {
  fl_storage *s = fli_small_new(rt, sizeof *s);
  if (!s)
    return FL_ENOMEM;
  storage_init(rt, s, bytes, d);
  s->block = NULL;
  s->data = NULL;
  s->pending = true;
  *out = s;
  return FL_OK;
}

/* Its bytes count from now on. */
fl_status fli_storage_fill(fl_runtime *rt, fl_storage *s, fl_site site) {
  FLI_TRY(fli_alloc(rt, s->device, s->bytes, site, &s->block, &s->data));
  s->pending = false;
  rt->live_bytes += s->bytes;
  account(s);
  return FL_OK;
}

void fli_storage_empty(fl_runtime *rt, fl_storage *s) {
  if (s->host_only)
    rt->host_only -= s->bytes;
  rt->live_bytes -= s->bytes;
  fli_free(rt, s->block);
  s->host_only = false;
  s->pending = true;
  s->block = NULL;
  s->data = NULL;
}

fl_status fli_settle_storage(fl_runtime *rt, const fl_storage *s) {
  if (rt->window && s->window == rt->epochs)
    FLI_TRY(rt->up->flush(rt));
  if (s->away)
    return fli_fail(FL_ECLOSED,
                    "the tensor's memory is evicted: a plan keeps its values "
                    "elsewhere until it needs them");
  return s->pending
             ? fli_fail(FL_ECLOSED,
                        "the tensor has no values: its computation has failed "
                        "or is under way")
             : FL_OK;
}

/* The window that has the storage holds it, too, until its flush. */
int fli_storage_owners(const fl_storage *s) {
  bool waits = s->rt->window && s->window == s->rt->epochs;
  return (int)atomic_load_explicit(&s->rc, memory_order_acquire) - waits;
}

void fli_storage_retain(fl_storage *s) {
  atomic_fetch_add_explicit(&s->rc, 1, memory_order_relaxed);
}

void fli_storage_release(fl_storage *s) {
  if (atomic_load(&s->rc) != 1 && /* a sole reference needs no atomic write */
      atomic_fetch_sub_explicit(&s->rc, 1, memory_order_acq_rel) != 1)
    return;
  fl_runtime *rt = s->rt;
  if (s->host_only)
    rt->host_only -= s->bytes;
  if (!s->pending)
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

void fli_tensor_attach(fl_tensor *t, fl_storage *s) {
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
  FLI_NEED_OR(t, "t", NULL);
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

static void tensor_drop(fl_tensor *t) {
  fl_runtime *rt = t->rt;
  if (!rt) { /* outlived its runtime */
    free(t);
    return;
  }
  fl_tensor *base = t->base;
  if (t->extra)
    fli_extra_free(t);
  if (t->node)
    rt->up->node_release(rt, t->node);
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
    tensor_drop(base);
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
    tensor_drop(t);
}

void fl_tensor_handle(fl_tensor *t, int change) {
  if (!t)
    return;
  t->handles += change;
  if (t->extra)
    fli_extra_handle(t, change);
  if (t->storage) {
    t->storage->handles += change;
    account(t->storage);
  }
}

size_t fl_handles_bytes(fl_runtime *rt, size_t *live) {
  FLI_NEED_OR(rt, "rt", 0);
  fli_lending_drain(rt);
  if (live)
    *live = rt->live_bytes;
  return rt->host_only;
}

/* The runtime closes: every tensor that is still held becomes closed. */
void fli_tensors_close(fl_runtime *rt) {
  for (fl_tensor *t = rt->tensors; t; t = t->next)
    retain_base(t); /* so that nothing below frees a header in the list */
  for (fl_tensor *t = rt->tensors; t; t = t->next) {
    if (t->extra)
      fli_extra_free(t);
    if (t->node)
      rt->up->node_release(rt, t->node);
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
  if ((unsigned)d >= FLI_DTYPES)
    return fli_fail(FL_EARG, "there is no dtype number %d", (int)d);
  size_t n = (size_t)1 << fli_shift(d);
  bool zero = false;
  if (ndim < 0 || ndim > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "a tensor has at most %d dims, not %d",
                    FL_MAX_DIMS, ndim);
  if (ndim > 0 && !shape)
    return fli_fail(FL_EARG, "the shape of %d dims is NULL", ndim);
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

void fli_tensor_set_strides(fl_tensor *t, const int64_t *stride) {
  for (int i = 0; i < t->meta.ndim; i++)
    t->stride[i] = stride[i];
  t->contiguous = is_contiguous(t);
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
    fli_tensor_attach(t, x->storage);
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
  fli_tensor_attach(t, s);
  *out = t;
  return FL_OK;
}

static fl_status tensor_pending(fl_runtime *rt, const fl_meta *m, size_t bytes,
                                fl_device d, fl_site site, fl_tensor **out) {
  fl_tensor *t;
  fl_storage *s;
  FLI_TRY(fli_tensor_header(rt, &t));
  fli_tensor_set_shape(t, m);
  fl_status status = fli_storage_pending(rt, bytes, d, &s);
  if (status) {
    fl_tensor_release(t);
    return status;
  }
  s->write_site = site;
  fli_tensor_attach(t, s);
  *out = t;
  return FL_OK;
}

fl_status fl_tensor_new(fl_runtime *rt, fl_dtype dtype, int ndim,
                        const int64_t *shape, fl_device d, fl_tensor **out) {
  FLI_NEED(rt, "rt");
  FLI_NEED(out, "t");
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

fl_status fli_tensor_result(fl_runtime *rt, const fl_meta *m, size_t bytes,
                            fl_device d, fl_site site, fl_tensor **out) {
  return rt->window && !rt->meta ? tensor_pending(rt, m, bytes, d, site, out)
                                 : fli_tensor_make(rt, m, bytes, d, site, out);
}

fl_status fl_tensor_wrap(fl_runtime *rt, void *data, fl_dtype dtype, int ndim,
                         const int64_t *shape,
                         void (*done)(void *context, void *data), void *context,
                         fl_tensor **out) {
  FLI_NEED(rt, "rt");
  FLI_NEED(out, "t");
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
  s->write_site = rt->copy_site; /* where it begins */
  rt->live_bytes += bytes;
  return FL_OK;
}

fl_status fl_tensor_new_pinned(fl_runtime *rt, fl_dtype dtype, int ndim,
                               const int64_t *shape, fl_tensor **t) {
  FLI_NEED(rt, "rt");
  FLI_NEED(t, "t");
  struct fli_pin *p = NULL;
  size_t bytes;
  FLI_TRY(fli_check_size(dtype, ndim, shape, &bytes));
  if (!rt->meta)
    FLI_TRY(fli_pin_new(rt, bytes, &p));
  if (!p)
    return fl_tensor_new(rt, dtype, ndim, shape, 0, t);
  fl_status s = fl_tensor_wrap(rt, fli_pin_memory(p), dtype, ndim, shape,
                               fli_pin_release, p, t);
  if (s)
    fli_pin_release(p, NULL);
  return s;
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
  return fli_extra_alias(x, t, bare);
}

fl_status fl_tensor_detach(fl_tensor *x, fl_tensor **out) {
  FLI_NEED(x, "t");
  FLI_NEED(out, "out");
  return fli_tensor_alias(x, true, out);
}

/* A view without history stands for itself from now on: as a leaf it must be
 * the base of its own views. */
void fli_tensor_own(fl_tensor *t) {
  fl_tensor *base = t->base;
  t->base = NULL;
  t->is_view = false;
  if (base && --base->rc == 0)
    tensor_drop(base);
}

/* --- queries --- */

const fl_meta *fl_tensor_meta(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  return &t->meta;
}
const int64_t *fl_tensor_strides(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  return t->stride;
}
int64_t fl_tensor_offset(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  return t->offset;
}
int64_t fl_tensor_numel(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  return t->numel;
}
fl_device fl_tensor_device(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", -1);
  return t->storage ? t->storage->device : fli_extra_device(t);
}
uint64_t fl_tensor_id(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  return t->id;
}
fl_runtime *fl_tensor_runtime(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  return t->rt;
}
bool fl_tensor_contiguous(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", false);
  return t->contiguous;
}
uint32_t fl_tensor_version(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  return t->storage ? t->storage->version : 0;
}
fl_site fl_tensor_made(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  const fl_storage *s = t->storage;
  return !s ? 0 : s->block ? s->block->site : s->write_site;
}
bool fl_tensor_closed(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", true);
  return !t->rt;
}
bool fl_tensor_pinned(const fl_tensor *t) {
  FLI_NEED_OR(t, "t", false);
  return t->storage && fli_pin_of(t->storage);
}
bool fl_tensor_shares(const fl_tensor *a, const fl_tensor *b) {
  FLI_NEED_OR(a, "a", false);
  FLI_NEED_OR(b, "b", false);
  return a->storage && a->storage == b->storage;
}

fl_status fli_need_memory(const fl_tensor *t, const char *who) {
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  if (!t->storage)
    return fli_no_values(t, who);
  return fli_check_owner(t->rt);
}

fl_status fli_check_tensors(const char *function, const char *what,
                            const fl_runtime *rt, int n, fl_tensor *const *t) {
  if (n < 0 || (n > 0 && !t))
    return n < 0 ? fli_check_count(function, what, n)
                 : fli_fail(FL_EARG, "%s: %s is NULL", function, what);
  for (int k = 0; k < n; k++)
    if (!t[k])
      return fli_fail(FL_EARG, "%s: %s[%d] is NULL", function, what, k);
    else if (t[k]->rt != rt)
      return t[k]->rt ? fli_fail(FL_EARG, "%s: %s[%d] is of another runtime",
                                 function, what, k)
                      : fli_fail(FL_ECLOSED, "%s: %s[%d] is closed", function,
                                 what, k);
  return FL_OK;
}

/* Code outside flare may write it from now on. */
fl_status fli_expose(fl_storage *s) {
  if (s->kept)
    FLI_TRY(s->rt->up->keep_write(s));
  s->exposed |= FLI_EXPOSED;
  return FL_OK;
}

void *fl_tensor_data(fl_tensor *t) {
  void *p = fl_tensor_borrow(t);
  if (p && fli_expose(t->storage))
    return NULL;
  return p;
}

void *fl_tensor_borrow(fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  if (fli_need_memory(t, ""))
    return NULL;
  fl_device d = t->storage->device;
  unsigned flags = fli_backend(t->rt, d)->flags;
  if (!(flags & FL_BACKEND_HOST)) {
    fli_fail(FL_EDEVICE,
             "the memory of %s cannot be read from here: copy the "
             "tensor to \"cpu\" first",
             fl_device_name(t->rt, d));
    return NULL;
  }
  if (fli_settle(t) || (flags & FL_BACKEND_ASYNC && fl_device_sync(t->rt, d)) ||
      (t->rt->watch && fli_streams_touch(t, false, "a copy", 0)))
    return NULL;
  return fli_tensor_ptr(t);
}

fl_status fl_tensor_memory(fl_tensor *t, fl_tensor **out) {
  FLI_NEED(t, "t");
  FLI_NEED(out, "bytes");
  if (!t->rt || !t->storage)
    return fli_fail(FL_ECLOSED, "tensor is closed or has no memory");
  fl_storage *s = t->storage;
  FLI_TRY(fli_check_owner(t->rt));
  if (!s->away)
    FLI_TRY(fli_settle(t));
  if ((!s->block && !s->away) || s->exposed || s->loan)
    return fli_fail(FL_EARG, "the memory of the tensor is not the allocator's "
                             "alone");
  fl_meta m = {.dtype = FL_U8, .ndim = 1, .shape = {(int64_t)s->bytes}};
  FLI_TRY(fli_tensor_header(t->rt, out));
  fli_tensor_set_shape(*out, &m);
  fli_storage_retain(s);
  fli_tensor_attach(*out, s);
  return FL_OK;
}
