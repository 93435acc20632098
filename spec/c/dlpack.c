/* Memory shared through DLPack, with a library of our own on the other side: it
 * takes and gives strided memory, on other threads, after the runtime. */
#include "check.h"

#include <flare/dlpack.h>
#include <flare/flare.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static fl_tensor *run(fl_runtime *rt, const char *op, fl_tensor *a,
                      fl_operand b) {
  fl_tensor *out = NULL;
  fl_operand in[2] = {{.tensor = a}, b};
  fl_call c = {.op = fl_op_find(rt, op), .n_in = 2, .in = in, .out = &out};
  CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  return out;
}

static fl_operand number(double v) {
  return (fl_operand){.dtype = FL_F64, .f = v};
}

static fl_tensor *counting(fl_runtime *rt, fl_device d) { /* (3, 4): 0..11 */
  float v[12];
  int64_t shape[2] = {3, 4};
  fl_tensor *t = NULL;
  for (int i = 0; i < 12; i++)
    v[i] = (float)i;
  CHECK(fl_tensor_new(rt, FL_F32, 2, shape, d, &t) == FL_OK);
  CHECK(fl_tensor_write(t, v, sizeof v) == FL_OK);
  return t;
}

static fl_tensor *turned(fl_runtime *rt,
                         fl_tensor *t) { /* columns 1.., as rows */
  fl_tensor *p = NULL, *n = NULL;
  fl_operand in = {.tensor = t};
  fl_attrs a = *fl_op_defaults(fl_op_find(rt, "transpose"));
  a.v[0].i = 0;
  a.v[1].i = 1;
  fl_call c = {.op = fl_op_find(rt, "transpose"),
               .n_in = 1,
               .in = &in,
               .attrs = &a,
               .out = &p};
  CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  in.tensor = p;
  a = *fl_op_defaults(fl_op_find(rt, "narrow"));
  a.v[0].i = 0;
  a.v[1].i = 1;
  a.v[2].i = fl_tensor_meta(p)->shape[0] - 1;
  c = (fl_call){.op = fl_op_find(rt, "narrow"),
                .n_in = 1,
                .in = &in,
                .attrs = &a,
                .out = &n};
  CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  fl_tensor_release(p);
  return n;
}

/* --- giving --- */

static void gives_memory(fl_runtime *rt) {
  fl_tensor *t = counting(rt, 0), *v = turned(rt, t);
  DLManagedTensorVersioned *m = NULL;
  DLManagedTensor *old = NULL;
  CHECK(fl_tensor_to_dlpack(v, NULL, &m) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_to_dlpack_old(v, NULL, &old) == FL_OK, "%s", fl_error());
  const DLTensor *both[2] = {&m->dl_tensor, &old->dl_tensor};
  for (int k = 0; k < 2; k++) {
    const DLTensor *d = both[k];
    CHECK(d->device.device_type == kDLCPU && d->device.device_id == 0);
    CHECK(d->ndim == 2 && d->shape[0] == 3 && d->shape[1] == 3);
    CHECK(d->strides[0] == 1 && d->strides[1] == 4 && d->byte_offset == 0);
    CHECK(d->dtype.code == kDLFloat && d->dtype.bits == 32);
    CHECK(d->dtype.lanes == 1);
    CHECK(((float *)d->data)[0] == 1 && ((float *)d->data)[1 + 4] == 6);
  }
  CHECK(m->version.major == 1 && m->flags == 0);
  ((float *)m->dl_tensor.data)[0] = 50; /* no copy */
  float first[12];
  CHECK(fl_tensor_read(t, first, sizeof first) == FL_OK && first[1] == 50);
  fl_tensor_release(v);
  fl_tensor_release(t);
  CHECK(((float *)old->dl_tensor.data)[0] == 50); /* they hold it */
  m->deleter(m);
  CHECK(((float *)old->dl_tensor.data)[0] == 50);
  old->deleter(old);
}

static void names_every_dtype(fl_runtime *rt) {
  static const int codes[] = {kDLFloat, kDLFloat, kDLFloat,   kDLBfloat,
                              kDLInt,   kDLInt,   kDLInt,     kDLInt,
                              kDLUInt,  kDLBool,  kDLComplex, kDLComplex};
  int64_t shape[1] = {2};
  for (int d = 0; d < fl_dtype_count(); d++) {
    fl_tensor *t = NULL, *back = NULL;
    DLManagedTensorVersioned *m = NULL;
    CHECK(fl_tensor_zeros(rt, (fl_dtype)d, 1, shape, 0, &t) == FL_OK);
    CHECK(fl_tensor_to_dlpack(t, NULL, &m) == FL_OK, "%s", fl_error());
    CHECK(m->dl_tensor.dtype.code == codes[d]);
    CHECK(m->dl_tensor.dtype.bits == 8 * fl_dtype_size((fl_dtype)d));
    CHECK(fl_tensor_from_dlpack(rt, m, NULL, &back) == FL_OK, "%s", fl_error());
    CHECK(fl_tensor_meta(back)->dtype == (fl_dtype)d);
    CHECK(fl_tensor_data(back) == fl_tensor_data(t));
    fl_tensor_release(t);
    fl_tensor_release(back);
  }
}

static void refuses_to_give(fl_runtime *rt) {
  fl_tensor *t = counting(rt, 0), *sum;
  DLManagedTensorVersioned *m = NULL;
  CHECK(fl_tensor_require_grad(t, true) == FL_OK);
  CHECK(fl_tensor_to_dlpack(t, NULL, &m) == FL_EAUTOGRAD);
  CHECK(strstr(fl_error(), "detach() it first"), "%s", fl_error());
  sum = run(rt, "add", t, number(1));
  CHECK(fl_tensor_to_dlpack(sum, NULL, &m) == FL_EAUTOGRAD);
  fl_meta_mode(rt, true);
  fl_tensor *none = run(rt, "add", t, number(1));
  fl_meta_mode(rt, false);
  fl_tensor_require_grad(t, false);
  CHECK(fl_tensor_to_dlpack(none, NULL, &m) != FL_OK);
  fl_tensor_release(none);
  fl_tensor_release(sum);
  fl_tensor_release(t);
}

static void *delete_it(void *m) {
  DLManagedTensorVersioned *managed = m;
  managed->deleter(managed);
  return NULL;
}

static void delete_elsewhere(DLManagedTensorVersioned *m) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, delete_it, m) == 0);
  pthread_join(thread, NULL);
}

static void takes_back_from_threads(fl_runtime *rt) {
  fl_memory_stats before, lent, after;
  fl_memory_get(rt, 0, &before);
  for (int k = 0; k < 50; k++) {
    fl_tensor *t = counting(rt, 0);
    DLManagedTensorVersioned *m = NULL;
    CHECK(fl_tensor_to_dlpack(t, NULL, &m) == FL_OK);
    fl_tensor_release(t);
    fl_memory_get(rt, 0, &lent);
    CHECK(lent.live > before.live);
    delete_elsewhere(m);
  }
  size_t live;
  fl_handles_bytes(rt, &live);
  fl_memory_get(rt, 0, &after);
  CHECK(after.live == before.live, "%zu %zu", after.live, before.live);
}

/* What is lent stays good when the runtime is gone, until the last is back. */
static void outlives_the_runtime(bool elsewhere, const char *device) {
  fl_runtime *rt = NULL;
  DLManagedTensorVersioned *m[3];
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  fl_device d = 0;
  CHECK(fl_device_find(rt, device, &d) == FL_OK);
  fl_tensor *t = counting(rt, d), *sum = run(rt, "add", t, number(1)),
            *back = NULL;
  CHECK(fl_tensor_to_dlpack(t, NULL, &m[0]) == FL_OK);
  CHECK(fl_tensor_to_dlpack(sum, NULL, &m[1]) == FL_OK);
  /* lent, taken, lent again */
  CHECK(fl_tensor_from_dlpack(rt, m[0], NULL, &back) == FL_OK);
  CHECK(fl_tensor_to_dlpack(back, NULL, &m[2]) == FL_OK);
  fl_tensor_release(sum);
  fl_mark *mark = NULL;
  CHECK(fl_mark_new(rt, d, &mark) == FL_OK);
  fl_runtime_close(rt);
  CHECK(fl_tensor_closed(t) && fl_tensor_closed(back));
  fl_mark_free(mark);
  DLManagedTensorVersioned *none;
  CHECK(fl_tensor_to_dlpack(t, NULL, &none) == FL_ECLOSED);
  for (int k = 2; k > 0; k--) {
    if (d == 0)
      CHECK(((float *)m[k]->dl_tensor.data)[5] == (k == 1 ? 6 : 5));
    if (elsewhere)
      delete_elsewhere(m[k]);
    else
      m[k]->deleter(m[k]);
  }
  fl_tensor_release(t);
  fl_tensor_release(back);
}

/* --- taking --- */

typedef struct producer { /* the other library's tensor */
  DLManagedTensorVersioned m;
  DLManagedTensor old;
  int64_t shape[9], strides[9];
  float memory[24];
  int deleted;
} producer;

static void deleted(DLManagedTensorVersioned *m) {
  ((producer *)m->manager_ctx)->deleted++;
}

static void deleted_old(DLManagedTensor *m) {
  ((producer *)m->manager_ctx)->deleted++;
}

/* (2, 3) from the fifth of 24 numbers on: rows backwards, columns by two. */
static void produce(producer *p) {
  memset(p, 0, sizeof *p);
  for (int i = 0; i < 24; i++)
    p->memory[i] = (float)i;
  p->shape[0] = 2;
  p->shape[1] = 3;
  p->strides[0] = -7;
  p->strides[1] = 2;
  p->m.version = (DLPackVersion){1, 3};
  p->m.manager_ctx = p->old.manager_ctx = p;
  p->m.deleter = deleted;
  p->old.deleter = deleted_old;
  p->m.dl_tensor = (DLTensor){.data = p->memory,
                              .device = {kDLCPU, 0},
                              .ndim = 2,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = p->shape,
                              .strides = p->strides,
                              .byte_offset = 40};
  p->old.dl_tensor = p->m.dl_tensor;
}

static void takes_memory(fl_runtime *rt) {
  static const float want[6] = {10, 12, 14, 3, 5, 7};
  for (int way = 0; way < 2; way++) {
    producer p;
    float got[6];
    fl_tensor *t = NULL;
    produce(&p);
    CHECK((way ? fl_tensor_from_dlpack(rt, &p.m, NULL, &t)
               : fl_tensor_from_dlpack_old(rt, &p.old, NULL, &t)) == FL_OK,
          "%s", fl_error());
    CHECK(fl_tensor_data(t) == &p.memory[10]);
    CHECK(fl_tensor_read(t, got, sizeof got) == FL_OK);
    CHECK(memcmp(got, want, sizeof want) == 0);
    fl_tensor *v = turned(rt, t), *same = NULL; /* their columns 2 and 3 */
    fl_operand in[2] = {{.tensor = v}, number(100)};
    fl_call c = {.op = fl_op_find(rt, "add"),
                 .n_in = 2,
                 .in = in,
                 .inplace = true,
                 .out = &same};
    CHECK(v && fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
    fl_tensor_release(same);
    CHECK(p.memory[12] == 112 && p.memory[7] == 107 && p.memory[10] == 10);
    /* a leaf as any other */
    CHECK(fl_tensor_require_grad(t, true) == FL_OK, "%s", fl_error());
    fl_tensor_release(t);
    CHECK(p.deleted == 0);
    fl_tensor_release(v);
    CHECK(p.deleted == 1);
  }
}

static void takes_what_may_only_be_read(fl_runtime *rt) {
  producer p;
  fl_tensor *t = NULL, *out = NULL;
  produce(&p);
  p.m.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == FL_OK);
  fl_operand in[2] = {{.tensor = t}, number(1)};
  fl_call c = {.op = fl_op_find(rt, "add"),
               .n_in = 2,
               .in = in,
               .inplace = true,
               .out = &out};
  CHECK(fl_call_run(rt, &c) == FL_EARG);
  CHECK(strstr(fl_error(), "add_: the tensor lies in memory that may only "
                           "be read"),
        "%s", fl_error());
  CHECK(fl_tensor_write(t, p.memory, 24) == FL_EARG);
  fl_tensor *sum = run(rt, "add", t, number(1));
  DLManagedTensorVersioned *m = NULL;
  DLManagedTensor *old = NULL;
  CHECK(fl_tensor_to_dlpack_old(t, NULL, &old) == FL_EUNSUPPORTED);
  CHECK(fl_tensor_to_dlpack(t, NULL, &m) == FL_OK);
  CHECK(m->flags == DLPACK_FLAG_BITMASK_READ_ONLY);
  m->deleter(m);
  fl_tensor_release(sum);
  fl_tensor_release(t);
  CHECK(p.deleted == 1 && p.memory[10] == 10);
}

static void takes_odd_shapes(fl_runtime *rt) {
  producer p;
  fl_tensor *t = NULL;
  produce(&p);
  p.m.dl_tensor.strides = NULL; /* row-major */
  CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == FL_OK);
  CHECK(fl_tensor_contiguous(t) && *(float *)fl_tensor_data(t) == 10);
  fl_tensor_release(t);
  p.m.dl_tensor.ndim = 0; /* one element */
  p.m.dl_tensor.shape = NULL;
  CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == FL_OK);
  CHECK(fl_tensor_numel(t) == 1 && *(float *)fl_tensor_data(t) == 10);
  fl_tensor_release(t);
  produce(&p);
  p.shape[0] = 0; /* none, and no memory */
  p.m.dl_tensor.data = NULL;
  CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_numel(t) == 0);
  fl_tensor_release(t);
  produce(&p);
  p.strides[0] = 0; /* the same row twice: refuses to be written */
  CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == FL_OK);
  CHECK(fl_tensor_write(t, p.memory, 24) == FL_EAUTOGRAD);
  fl_tensor_release(t);
}

#define REFUSED(change, status, message)                                       \
  do {                                                                         \
    produce(&p);                                                               \
    change;                                                                    \
    CHECK(fl_tensor_from_dlpack(rt, &p.m, NULL, &t) == (status));              \
    CHECK(strstr(fl_error(), message), "%s", fl_error());                      \
    CHECK(p.deleted == 0);                                                     \
  } while (0)

static void refuses_to_take(fl_runtime *rt) {
  producer p;
  fl_tensor *t = NULL;
  REFUSED(p.m.version.major = 2, FL_EUNSUPPORTED, "version 2.3");
  REFUSED(p.m.dl_tensor.dtype.code = kDLComplex, FL_EDTYPE, "complex32");
  REFUSED(p.m.dl_tensor.dtype.code = 40, FL_EDTYPE, "type 32");
  REFUSED(p.m.dl_tensor.dtype.lanes = 4, FL_EDTYPE, "float32 in vectors");
  REFUSED(p.m.dl_tensor.dtype.bits = 8, FL_EDTYPE, "float8");
  REFUSED(p.m.dl_tensor.device.device_type = 8, FL_EDEVICE, "device type 8");
  REFUSED(p.m.dl_tensor.device = ((DLDevice){kDLExtDev, 99}), FL_EARG, "sim");
  REFUSED(p.m.dl_tensor.ndim = 9, FL_ESIZE, "at most 8 dims, not 9");
  REFUSED(p.m.dl_tensor.ndim = -1, FL_ESIZE, "not -1");
  REFUSED(p.m.dl_tensor.shape = NULL, FL_EARG, "shape is missing");
  REFUSED(p.shape[1] = -1, FL_ESHAPE, "negative");
  REFUSED(p.shape[1] = INT64_MAX, FL_ESIZE, "too large");
  REFUSED(p.strides[0] = INT64_MIN / 2, FL_ESIZE, "overflow");
  REFUSED(p.strides[1] = INT64_MAX, FL_ESIZE, "overflow");
  REFUSED(p.m.dl_tensor.data = NULL, FL_EARG, "no memory");
  REFUSED(p.m.dl_tensor.byte_offset = 2, FL_EARG, "not aligned");
  REFUSED(p.m.dl_tensor.byte_offset = UINT64_C(1) << 63, FL_ESIZE, "overflows");
  REFUSED(p.m.dl_tensor.byte_offset = UINT64_MAX - 3, FL_ESIZE, "overflows");
}

static void survives_lack_of_memory(fl_runtime *rt) {
  for (int64_t k = 0; k < 20; k++) {
    producer p;
    produce(&p);
    fl_tensor *t = NULL;
    DLManagedTensorVersioned *m = NULL;
    fl_memory_fail(rt, k, 1);
    fl_status s = fl_tensor_from_dlpack(rt, &p.m, NULL, &t);
    if (s == FL_OK)
      s = fl_tensor_to_dlpack(t, NULL, &m);
    fl_memory_fail(rt, 0, 0);
    CHECK(s == FL_OK || s == FL_ENOMEM);
    if (m)
      m->deleter(m);
    fl_tensor_release(t);
    CHECK(p.deleted == (t ? 1 : 0), "%d", p.deleted);
  }
}

/* --- streams: those of sim stand for another library's --- */

static void streams_hand_over(fl_runtime *rt) {
  fl_device d;
  int stream;
  intptr_t handle, none = 0;
  CHECK(fl_device_find(rt, "sim:0", &d) == FL_OK);
  CHECK(fl_stream_new(rt, d, &stream) == FL_OK);
  CHECK(fl_stream_handle(rt, d, stream, &handle) == FL_OK);
  CHECK(fl_stream_handle(rt, d, 0, &none) == FL_OK && none != handle);
  CHECK(fl_stream_handle(rt, d, 9, &none) == FL_EARG);
  CHECK(fl_stream_handle(rt, 0, 0, &none) == FL_EUNSUPPORTED);
  int again;
  CHECK(fl_stream_adopt(rt, d, handle, &again) == FL_OK && again == stream);
  fl_stream_release(rt, d, again);
  CHECK(fl_stream_adopt(rt, d, 12345, &again) == FL_EUNSUPPORTED);
  fl_backend *sim = fl_device_backend(rt, d);

  for (int way = 0; way < 3; way++) { /* giving; taking; giving, host waits */
    fl_tensor *x = counting(rt, d), *y = NULL, *z;
    DLManagedTensorVersioned *m = NULL;
    float got[12];
    fl_dlpack_options here = {sizeof here, way == 0 ? handle : FL_DLPACK_WAIT},
                      not = {sizeof not, FL_DLPACK_NO_ORDER},
                      there = {sizeof there, handle};
    if (way == 1) /* what the other library does comes late */
      CHECK(fl_stream_use(rt, d, stream) == FL_OK);
    CHECK(sim->control(sim, "delay_us", 30000) == FL_OK);
    fl_tensor *late = run(rt, "mul", x, number(2));
    CHECK(sim->control(sim, "delay_us", 0) == FL_OK);
    CHECK(fl_tensor_to_dlpack(late, way == 1 ? &not : &here, &m) == FL_OK);
    CHECK(fl_stream_use(rt, d, way == 1 ? 0 : stream) == FL_OK);
    CHECK(fl_tensor_from_dlpack(rt, m, way == 1 ? &there : &not, &y) == FL_OK,
          "%s", fl_error());
    CHECK(fl_tensor_device(y) == d);
    z = run(rt, "add", y, number(1));
    fl_tensor_release(late);
    fl_tensor_release(y);
    CHECK(fl_tensor_read(z, got, sizeof got) == FL_OK);
    for (int i = 0; i < 12; i++)
      CHECK(got[i] == (float)(2 * i + 1), "%d: %g", way, (double)got[i]);
    fl_tensor_release(z);
    fl_tensor_release(x);
    CHECK(fl_stream_use(rt, d, 0) == FL_OK);
  }
  fl_stream_release(rt, d, stream);
}

int main(void) {
  fl_runtime *rt = NULL;
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "%s", fl_error());
  gives_memory(rt);
  names_every_dtype(rt);
  refuses_to_give(rt);
  takes_back_from_threads(rt);
  takes_memory(rt);
  takes_what_may_only_be_read(rt);
  takes_odd_shapes(rt);
  refuses_to_take(rt);
  survives_lack_of_memory(rt);
  streams_hand_over(rt);
  CHECK(fl_tensor_count(rt) == 0);
  fl_runtime_close(rt);
  outlives_the_runtime(false, "cpu");
  outlives_the_runtime(true, "cpu");
  outlives_the_runtime(true, "sim:0");
  return check_done("dlpack");
}
