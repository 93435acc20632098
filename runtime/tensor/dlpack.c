/* Memory shared with other libraries through DLPack, exported and imported.
 * Exported memory outlives its tensor and, if need be, its runtime; the other
 * library may release it on any thread. */
#include "../dlpack.h"
#include "../memory/stream.h"
#include "extra.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAJOR 1
#define MINOR 0 /* fields and flags that are used here */

static const struct {
  uint8_t code, bits;
} kinds[FLI_DTYPES] = {
    [FL_F64] = {kDLFloat, 64},   [FL_F32] = {kDLFloat, 32},
    [FL_F16] = {kDLFloat, 16},   [FL_BF16] = {kDLBfloat, 16},
    [FL_I64] = {kDLInt, 64},     [FL_I32] = {kDLInt, 32},
    [FL_I16] = {kDLInt, 16},     [FL_I8] = {kDLInt, 8},
    [FL_U8] = {kDLUInt, 8},      [FL_BOOL] = {kDLBool, 8},
    [FL_C64] = {kDLComplex, 64}, [FL_C128] = {kDLComplex, 128},
};

static const struct {
  const char *backend;
  DLDeviceType type;
} places[] = {{"cpu", kDLCPU},
              {"cuda", kDLCUDA},
              {"sim", kDLExtDev},
              {"cpu", kDLCUDAHost},
              {"cuda", kDLCUDAManaged}};
#define PLACES (sizeof places / sizeof places[0])

void fl_tensor_protect(fl_tensor *t) {
  if (!t)
    return;
  if (t->storage)
    t->storage->read_only = true;
}

fl_status fli_check_writable(const fl_tensor *t, const char *op,
                             const char *suffix) {
  if (t->storage && t->storage->read_only)
    return fli_fail(FL_EARG,
                    "%s%s: the tensor lies in memory that may only be read: "
                    "clone() it first",
                    op, suffix);
  if (!t->contiguous && fli_overlaps_itself(t))
    return fli_fail(
        FL_EAUTOGRAD,
        "%s%s: an expanded or overlapping tensor cannot be written in "
        "place: several elements share memory; clone() it first",
        op, suffix);
  return t->storage && t->storage->exposed & FLI_KEPT
             ? t->rt->up->keep_write(t->storage)
             : FL_OK;
}

/* --- what is lent --- */

typedef struct lent {
  struct fli_lending *of;
  struct lent *next; /* released on another thread */
  fl_storage *storage;
  int64_t shape[FL_MAX_DIMS], stride[FL_MAX_DIMS];
  union {
    DLManagedTensorVersioned managed;
    DLManagedTensor old;
  };
} lent;

/* A runtime's. The lock is recursive: giving back may release what another
 * library holds, and that something of ours again. */
struct fli_lending {
  pthread_mutex_t lock;
  fl_runtime *rt;
  size_t live; /* for the owner's thread until the runtime is closed */
  bool closed;
  lent *back;
  atomic_bool waiting;
};

static struct fli_lending *lending_of(fl_runtime *rt) {
  if (rt->lending)
    return rt->lending;
  struct fli_lending *l = fli_malloc(rt, sizeof *l);
  if (!l)
    return NULL;
  *l = (struct fli_lending){.rt = rt};
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&l->lock, &a);
  pthread_mutexattr_destroy(&a);
  return rt->lending = l;
}

static void lending_free(struct fli_lending *l) {
  pthread_mutex_destroy(&l->lock);
  fli_mfree(l);
}

static void take_back(lent *x) {
  fli_storage_release(x->storage);
  x->of->live--;
  fli_mfree(x);
}

static void give_back(lent *x) {
  struct fli_lending *l = x->of;
  fl_runtime *rt = l->rt;
  pthread_mutex_lock(&l->lock);
  if (!l->closed && rt->owner != fli_self()) {
    x->next = l->back;
    l->back = x;
    atomic_store(&l->waiting, true);
    pthread_mutex_unlock(&l->lock);
    return;
  }
  if (!l->closed) { /* our own thread: no lock while foreign code runs */
    pthread_mutex_unlock(&l->lock);
    take_back(x);
    return;
  }
  rt->owner = fli_self();
  take_back(x);
  bool last = l->live == 0;
  pthread_mutex_unlock(&l->lock);
  if (last) {
    lending_free(l);
    rt->up->end(rt);
  }
}

void fli_lending_drain(fl_runtime *rt) {
  struct fli_lending *l = rt->lending;
  if (FLI_LIKELY(!l) ||
      !atomic_load_explicit(&l->waiting, memory_order_relaxed))
    return;
  pthread_mutex_lock(&l->lock);
  lent *x = l->back;
  l->back = NULL;
  atomic_store(&l->waiting, false);
  pthread_mutex_unlock(&l->lock);
  for (lent *next; x; x = next) {
    next = x->next;
    take_back(x);
  }
}

bool fli_lending_keeps(fl_runtime *rt) {
  struct fli_lending *l = rt->lending;
  if (!l)
    return false;
  fli_lending_drain(rt);
  pthread_mutex_lock(&l->lock);
  for (lent *x = l->back, *next; x; x = next) { /* came in between */
    next = x->next;
    take_back(x);
  }
  l->back = NULL;
  l->closed = l->live > 0;
  /* the host's functions may go with the host */
  rt->options = (fl_runtime_options){.threads = rt->options.threads};
  fl_memory_trace(rt, NULL, NULL);
  bool keeps = l->closed;
  pthread_mutex_unlock(&l->lock);
  if (!keeps) {
    lending_free(l);
    rt->lending = NULL;
  }
  return keeps;
}

/* --- export --- */

static intptr_t stream_wish(const fl_dlpack_options *o) {
  return o && o->struct_size >= sizeof *o ? o->stream : FL_DLPACK_WAIT;
}

/* The other library's work on the memory waits for ours, and the memory is not
 * reused before that work has finished. */
static fl_status hand_over(fl_tensor *t, intptr_t stream) {
  fl_runtime *rt = t->rt;
  fl_device d = t->storage->device;
  int now = fl_stream_current(rt, d), other;
  if (!(fli_backend(rt, d)->flags & FL_BACKEND_ASYNC) ||
      stream == FL_DLPACK_NO_ORDER)
    return FL_OK;
  if (t->storage->block)
    FLI_TRY(fli_stream_uses(rt, d, t->storage->block));
  if (stream == FL_DLPACK_WAIT)
    return fli_stream_finish(rt, d);
  FLI_TRY(fl_stream_adopt(rt, d, stream, &other));
  fl_status s = fli_stream_order(rt, d, other, 1u << now);
  if (s == FL_OK && t->storage->block)
    fli_block_used(t->storage->block, other, 0);
  fl_stream_release(rt, d, other);
  return s;
}

static fl_status place_of(fl_tensor *t, DLDevice *device) {
  fl_device d = t->storage->device;
  const char *name = fli_backend(t->rt, d)->name;
  for (size_t k = 0; k < PLACES; k++)
    if (strcmp(places[k].backend, name) == 0) {
      *device = (DLDevice){places[k].type, d & 255};
      return FL_OK;
    }
  return fli_fail(FL_EUNSUPPORTED, "dlpack: it knows no device \"%s\"",
                  fl_device_name(t->rt, d));
}

static fl_status dlpack_lend(fl_tensor *t, const fl_dlpack_options *o,
                             lent **out) {
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (!t->storage)
    return fli_no_values(t, "dlpack: ");
  if (fli_wants_grad(t))
    return fli_fail(FL_EAUTOGRAD, "dlpack: the tensor takes part in gradients, "
                                  "which end here: detach() it first");
  DLDevice device;
  FLI_TRY(fli_check_sized("dlpack", "fl_dlpack_options", o));
  FLI_TRY(place_of(t, &device));
  FLI_TRY(fli_settle(t));
  FLI_TRY(fli_expose(t->storage));
  FLI_TRY(hand_over(t, stream_wish(o)));
  fli_lending_drain(t->rt);
  struct fli_lending *l = lending_of(t->rt);
  lent *x = l ? fli_malloc(t->rt, sizeof *x) : NULL;
  if (!x)
    return FL_ENOMEM;
  memset(x, 0, sizeof *x);
  x->of = l;
  x->storage = t->storage;
  memcpy(x->shape, t->meta.shape, sizeof x->shape);
  memcpy(x->stride, t->stride, sizeof x->stride);
  fli_storage_retain(t->storage);
  l->live++;
  *out = x;
  return FL_OK;
}

static void dlpack_describe(const fl_tensor *t, lent *x, DLTensor *d) {
  place_of((fl_tensor *)(uintptr_t)t, &d->device);
  d->data = t->numel ? fli_tensor_ptr(t) : NULL;
  d->ndim = t->meta.ndim;
  d->dtype =
      (DLDataType){kinds[t->meta.dtype].code, kinds[t->meta.dtype].bits, 1};
  d->shape = x->shape;
  d->strides = x->stride;
  d->byte_offset = 0;
}

static void deleter(DLManagedTensorVersioned *m) {
  if (m)
    give_back(m->manager_ctx);
}

static void deleter_old(DLManagedTensor *m) {
  if (m)
    give_back(m->manager_ctx);
}

fl_status fl_tensor_to_dlpack(fl_tensor *t, const fl_dlpack_options *o,
                              struct DLManagedTensorVersioned **m) {
  FLI_NEED(t, "t");
  FLI_NEED(m, "m");
  lent *x;
  FLI_TRY(dlpack_lend(t, o, &x));
  x->managed.version = (DLPackVersion){MAJOR, MINOR};
  x->managed.manager_ctx = x;
  x->managed.deleter = deleter;
  x->managed.flags = t->storage->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  dlpack_describe(t, x, &x->managed.dl_tensor);
  *m = &x->managed;
  return FL_OK;
}

fl_status fl_tensor_to_dlpack_old(fl_tensor *t, const fl_dlpack_options *o,
                                  struct DLManagedTensor **m) {
  FLI_NEED(t, "t");
  FLI_NEED(m, "m");
  lent *x;
  if (t->storage && t->storage->read_only)
    return fli_fail(FL_EUNSUPPORTED,
                    "dlpack: an unversioned tensor cannot say that its memory "
                    "is read-only: clone() it first");
  FLI_TRY(dlpack_lend(t, o, &x));
  x->old.manager_ctx = x;
  x->old.deleter = deleter_old;
  dlpack_describe(t, x, &x->old.dl_tensor);
  *m = &x->old;
  return FL_OK;
}

/* --- import --- */

typedef struct borrowed {
  DLManagedTensorVersioned *managed; /* one of the two */
  DLManagedTensor *old;
  fl_runtime *rt;
  fl_device device;
  int stream; /* the other library's; < 0: not known */
} borrowed;

/* The last reference is gone: the library gets the memory back when our work on
 * it has finished. */
static void return_it(void *context, void *data) {
  borrowed *b = context;
  fl_runtime *rt = b->rt;
  (void)data;
  if (!rt->closing && fli_backend(rt, b->device)->flags & FL_BACKEND_ASYNC) {
    if (b->stream < 0 ||
        fli_stream_order(rt, b->device, b->stream, UINT32_MAX) != FL_OK)
      fli_stream_settle(rt, b->device, UINT32_MAX);
    if (b->stream >= 0)
      fl_stream_release(rt, b->device, b->stream);
  }
  if (b->managed && b->managed->deleter)
    b->managed->deleter(b->managed);
  if (b->old && b->old->deleter)
    b->old->deleter(b->old);
  fli_mfree(b);
}

static fl_status find_dtype(DLDataType t, fl_dtype *d) {
  for (int k = 0; k < FLI_DTYPES && t.lanes == 1; k++)
    if (kinds[k].code == t.code && kinds[k].bits == t.bits) {
      *d = (fl_dtype)k;
      return FL_OK;
    }
  static const char *const names[] = {"int",    "uint",    "float", "handle",
                                      "bfloat", "complex", "bool"};
  return fli_fail(FL_EDTYPE, "dlpack: there is no dtype for %s%d%s",
                  t.code < 7 ? names[t.code] : "type ", t.bits,
                  t.lanes == 1 ? "" : " in vectors");
}

static fl_status find_device(fl_runtime *rt, DLDevice given, fl_device *d) {
  for (size_t k = 0; k < PLACES; k++) {
    char name[64];
    if (places[k].type != given.device_type)
      continue;
    bool host = strcmp(places[k].backend, "cpu") == 0;
    snprintf(name, sizeof name, "%s:%d", places[k].backend,
             host ? 0 : (int)given.device_id);
    return fl_device_find(rt, name, d);
  }
  return fli_fail(FL_EDEVICE, "dlpack: memory of device type %d is not known",
                  (int)given.device_type);
}

/* Elements before and behind the first one that the tensor reaches. */
static fl_status dlpack_measure(const fl_meta *m, const int64_t *stride,
                                int64_t *low, int64_t *high) {
  *low = *high = 0;
  for (int i = 0; i < m->ndim; i++)
    if (m->shape[i] == 0) {
      *low = 0;
      *high = -1;
      return FL_OK;
    }
  for (int i = 0; i < m->ndim; i++) {
    int64_t reach, *end = stride[i] < 0 ? low : high;
    if (__builtin_mul_overflow(m->shape[i] - 1, stride[i], &reach) ||
        __builtin_add_overflow(*end, reach, end) || *high > INT64_MAX / 16 ||
        *low < -INT64_MAX / 16)
      return fli_fail(FL_ESIZE, "dlpack: the strides overflow");
  }
  return FL_OK;
}

typedef struct given {
  fl_meta meta;
  int64_t stride[FL_MAX_DIMS];
  int64_t low, high;
  fl_device device;
  char *first;
} given;

fl_status fli_check_memory(const char *who, const void *memory, size_t bytes,
                           fl_dtype d) {
  size_t size = fl_dtype_size(d);
  if (bytes && !memory)
    return fli_fail(FL_EARG, "%s: the tensor has no memory", who);
  if (bytes && (uintptr_t)memory % size)
    return fli_fail(FL_EARG,
                    "%s: the memory is not aligned to elements of %zu bytes",
                    who, size);
  return FL_OK;
}

static fl_status read_description(fl_runtime *rt, const DLTensor *x, given *g) {
  size_t bytes;
  if (x->ndim < 0 || x->ndim > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "dlpack: a tensor has at most %d dims, not %d",
                    FL_MAX_DIMS, (int)x->ndim);
  g->meta = (fl_meta){.ndim = x->ndim};
  FLI_TRY(find_dtype(x->dtype, &g->meta.dtype));
  FLI_TRY(find_device(rt, x->device, &g->device));
  if (x->ndim > 0 && !x->shape)
    return fli_fail(FL_EARG, "dlpack: the shape is missing");
  for (int i = 0; i < x->ndim; i++)
    g->meta.shape[i] = x->shape[i];
  FLI_TRY(fli_check_size(g->meta.dtype, x->ndim, g->meta.shape, &bytes));
  for (int64_t i = x->ndim - 1, n = 1; i >= 0; i--) {
    g->stride[i] = x->strides ? x->strides[i] : n;
    if (__builtin_mul_overflow(n, g->meta.shape[i], &n))
      n = 0; /* there is a size 0, and no element to step to */
  }
  FLI_TRY(dlpack_measure(&g->meta, g->stride, &g->low, &g->high));
  if (x->byte_offset > UINTPTR_MAX / 2 ||
      (uintptr_t)x->data > UINTPTR_MAX - x->byte_offset)
    return fli_fail(FL_ESIZE, "dlpack: a byte_offset of %llu overflows",
                    (unsigned long long)x->byte_offset);
  g->first = x->data ? (char *)x->data + x->byte_offset : NULL;
  return fli_check_memory("dlpack", x->data ? g->first : NULL, bytes,
                          g->meta.dtype);
}

/* A tensor over all the memory, and the one that was described as its view. */
static fl_status dlpack_build(fl_runtime *rt, const given *g, bool read_only,
                              borrowed *b, fl_tensor **out) {
  fl_tensor *all;
  int64_t count = g->high - g->low + 1;
  FLI_TRY(fl_tensor_wrap(
      rt, g->first + g->low * (int64_t)fl_dtype_size(g->meta.dtype),
      g->meta.dtype, 1, &count, NULL, b, &all));
  all->storage->device = g->device;
  all->storage->read_only = read_only;
  fl_status s = fli_tensor_view(all, &g->meta, g->stride, -g->low, out);
  if (s == FL_OK) {
    all->storage->done = return_it; /* the tensor owns it from here on */
    fli_tensor_own(*out);
  }
  fl_tensor_release(all);
  return s;
}

static fl_status dlpack_take(fl_runtime *rt, const DLTensor *x, bool read_only,
                             const fl_dlpack_options *o, borrowed with,
                             fl_tensor **out) {
  given g;
  intptr_t stream = stream_wish(o);
  FLI_TRY(fli_check_sized("dlpack", "fl_dlpack_options", o));
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(read_description(rt, x, &g));
  fli_lending_drain(rt);
  borrowed *b = fli_malloc(rt, sizeof *b);
  if (!b)
    return FL_ENOMEM;
  *b = with;
  b->rt = rt;
  b->device = g.device;
  b->stream = -1;
  fl_status s = FL_OK;
  if (fli_backend(rt, g.device)->flags & FL_BACKEND_ASYNC &&
      stream != FL_DLPACK_WAIT && stream != FL_DLPACK_NO_ORDER) {
    s = fl_stream_adopt(rt, g.device, stream, &b->stream);
    if (s == FL_OK)
      s = fli_stream_follow(rt, g.device, 1u << b->stream);
  }
  if (s == FL_OK)
    s = dlpack_build(rt, &g, read_only, b, out);
  if (s) {
    if (b->stream >= 0)
      fl_stream_release(rt, g.device, b->stream);
    fli_mfree(b);
  }
  return s;
}

fl_status fl_tensor_from_dlpack(fl_runtime *rt,
                                struct DLManagedTensorVersioned *m,
                                const fl_dlpack_options *o, fl_tensor **t) {
  FLI_NEED(rt, "rt");
  FLI_NEED(m, "m");
  FLI_NEED(t, "t");
  if (m->version.major != MAJOR)
    return fli_fail(FL_EUNSUPPORTED,
                    "dlpack: version %u.%u, this flare knows version %d",
                    m->version.major, m->version.minor, MAJOR);
  return dlpack_take(rt, &m->dl_tensor,
                     m->flags & DLPACK_FLAG_BITMASK_READ_ONLY, o,
                     (borrowed){.managed = m}, t);
}

fl_status fl_tensor_from_dlpack_old(fl_runtime *rt, struct DLManagedTensor *m,
                                    const fl_dlpack_options *o, fl_tensor **t) {
  FLI_NEED(rt, "rt");
  FLI_NEED(m, "m");
  FLI_NEED(t, "t");
  return dlpack_take(rt, &m->dl_tensor, false, o, (borrowed){.old = m}, t);
}
