/* The CUDA backend's table: devices, streams, events and launches. Opening it
 * loads nothing: the driver is loaded when a device is first asked for. */
#include "backend.h"
#include "autotune.h"

#include "../../../runtime/tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static flc_backend *backend_of(fl_backend *b) {
  return (flc_backend *)b;
}

static int device_count(fl_backend *b) {
  (void)b;
  return flc_devices();
}

static fl_kernel find_kernel(fl_backend *b, const char *op) {
  (void)b;
  return flc_kernel_find(op);
}

/* --- waiting --- */

static void nap(long us) {
  struct timespec t = {.tv_nsec = us * 1000};
  nanosleep(&t, NULL);
}

/* Spins for 20 ms, then naps for a part of what it has waited: so a wait ends
 * late by some thousandths of it at most (naps last 50 us longer than they are
 * asked to), and a long one leaves the core to others and can be interrupted.
 */
static fl_status wait_for(fl_stream *s, CUevent e) {
  fl_backend_options *o = &s->backend->options;
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (unsigned turn = 0;; turn++) {
    CUresult r = e ? flc_cu->EventQuery(e) : flc_cu->StreamQuery(s->handle);
    if (r == CUDA_SUCCESS)
      return FL_OK;
    if (r != CUDA_ERROR_NOT_READY)
      return flc_failed(s->device, r, "waiting for the device");
    if (turn % 64)
      continue;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long us = (now.tv_sec - start.tv_sec) * 1000000 +
              (now.tv_nsec - start.tv_nsec) / 1000;
    if (us < 20000)
      continue;
    if (o->interrupted && o->interrupted(o->context)) {
      s->left = true;
      return fli_fail(FL_EINTERRUPT,
                      "interrupted while waiting for cuda:%d; what was queued "
                      "goes on",
                      s->device->index);
    }
    nap(us < 100000 ? us / 500 : 200);
    turn = 63;
  }
}

fl_status flc_wait(fl_stream *s) {
  fl_status status = flc_capture_waits(s, NULL);
  if (status == FL_OK)
    status = wait_for(s, NULL);
  if (status == FL_OK) {
    s->done = s->last;
    s->left = false;
  }
  return status;
}

fl_status flc_wait_event(fl_stream *s, CUevent e) {
  fl_status status = flc_capture_waits(s, NULL);
  return status ? status : wait_for(s, e);
}

/* Whether something on the device was left running and still does. Taking back
 * what it uses would wait for it, perhaps for ever. */
static bool stuck(const flc_backend *c, const flc_device *d) {
  if (c->lost >> d->index & 1)
    return true;
  for (const fl_stream *s = c->streams; s; s = s->next)
    if (s->device == d && s->left &&
        flc_cu->StreamQuery(s->handle) == CUDA_ERROR_NOT_READY)
      return true;
  return false;
}

bool flc_settle(flc_backend *c, flc_device *d) {
  if (stuck(c, d))
    return false;
  for (fl_stream *s = c->streams; s; s = s->next)
    if (s->device == d && s->capture)
      return false;
  for (fl_stream *s = c->streams; s; s = s->next)
    if (s->device == d && flc_wait(s) == FL_EINTERRUPT)
      return false;
  flc_cu->CtxSynchronize(); /* others in the process may have used it */
  return true;
}

/* --- streams --- */

static fl_status word_open(fl_stream *s) {
  flc_device *d = s->device;
  void *host;
  CUdeviceptr seen;
  FLC_TRY(d,
          flc_cu->MemHostAlloc(&host, sizeof(flc_word),
                               CU_MEMHOSTALLOC_PORTABLE |
                                   CU_MEMHOSTALLOC_DEVICEMAP),
          "pinned memory for a stream");
  memset(host, 0, sizeof(flc_word));
  s->mirror = host;
  FLC_TRY(d, flc_cu->MemHostGetDevicePointer(&seen, host, 0),
          "pinned memory for a stream");
  FLC_TRY(d, flc_cu->MemAlloc(&s->word, sizeof(flc_word)),
          "memory for a stream");
  flc_word w = {.mirror = (flc_word *)(uintptr_t)seen};
  FLC_TRY(d, flc_cu->MemcpyHtoDAsync(s->word, &w, sizeof w, s->handle),
          "memory for a stream");
  FLC_TRY(d, flc_cu->StreamSynchronize(s->handle), "a new stream");
  return FL_OK;
}

static void stream_drop(fl_stream *s) {
  flc_context before;
  if (s->left && flc_cu->StreamQuery(s->handle) == CUDA_ERROR_NOT_READY) {
    s->backend->lost |= 1u << s->device->index;
    return; /* the device still writes to what it has */
  }
  if (flc_enter(s->device, &before) == FL_OK) {
    flc_stages_close(s);
    if (s->mirror)
      flc_cu->MemFreeHost((void *)s->mirror);
    if (s->word)
      flc_cu->MemFree(s->word);
    if (s->handle && !s->adopted)
      flc_cu->StreamDestroy(s->handle);
    flc_leave(s->device, before);
  }
  free(s);
}

void flc_break(flc_backend *c, const char *why) {
  char *none = NULL, *text = strdup(why);
  if (!text || !atomic_compare_exchange_strong(&c->broken, &none, text))
    free(text);
}

/* Over `handle`, or if that is NULL over a new one. */
static fl_status stream_make(flc_backend *c, int device, CUstream handle,
                             fl_stream **out) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  if (!d)
    return FL_EDEVICE;
  fl_stream *s = calloc(1, sizeof *s);
  if (!s)
    return fli_fail(FL_ENOMEM, "out of memory: a stream");
  s->backend = c;
  s->device = d;
  s->handle = handle;
  s->adopted = handle != NULL;
  fl_status status = flc_enter(d, &before);
  if (status == FL_OK) {
    CUresult e = handle
                     ? CUDA_SUCCESS
                     : flc_cu->StreamCreate(&s->handle, CU_STREAM_NON_BLOCKING);
    status = e ? flc_failed(d, e, "a new stream") : word_open(s);
    flc_leave(d, before);
  }
  if (status) {
    stream_drop(s);
    return status;
  }
  s->next = c->streams;
  c->streams = s;
  *out = s;
  flc_precompile_start(d->arch, false);
  return FL_OK;
}

/* NULL stands for the device's first stream; NULL: failed, message set. */
fl_stream *flc_stream_find(flc_backend *c, int device, fl_stream *s) {
  if (s)
    return s;
  if (!c->first[device] && stream_make(c, device, NULL, &c->first[device]))
    return NULL;
  return c->first[device];
}

static fl_status stream_new(fl_backend *b, int device, fl_stream **s) {
  return stream_make(backend_of(b), device, NULL, s);
}

static fl_status stream_handle(fl_backend *b, int device, fl_stream *s,
                               intptr_t *handle) {
  if (!(s = flc_stream_find(backend_of(b), device, s)))
    return FL_EDEVICE;
  *handle = (intptr_t)s->handle;
  return FL_OK;
}

static fl_status stream_adopt(fl_backend *b, int device, intptr_t handle,
                              fl_stream **s) {
  if (!handle)
    return fli_fail(FL_EARG, "stream 0 may be any: 1 is CUDA's default stream, "
                             "2 the default stream of each thread");
  return stream_make(backend_of(b), device, (CUstream)handle, s);
}

static void stream_free(fl_backend *b, fl_stream *s) {
  fl_stream **at = &backend_of(b)->streams;
  while (*at != s)
    at = &(*at)->next;
  *at = s->next;
  if (backend_of(b)->first[s->device->index] == s)
    backend_of(b)->first[s->device->index] = NULL;
  stream_drop(s);
}

/* Of the launches that may be running, the one that a fault came from:
 * the first of the user's kernels, since ours have been tried; without any, the
 * first one. */
static void find_suspect(flc_backend *c, flc_device *d) {
  const flc_name *first = NULL;
  int n = 0;
  for (const fl_stream *s = c->streams; s; s = s->next)
    for (int i = 0; i < FLC_NAMES && s->device == d; i++) {
      const flc_name *k = &s->names[i];
      if (k->seq <= s->done || (first && first->raw && !k->raw))
        continue;
      bool better = !first || (k->raw && !first->raw);
      n = better ? 1 : n + 1;
      if (better || k->seq < first->seq)
        first = k;
    }
  if (!first)
    return;
  const char *what = first->raw ? "kernel" : "operator";
  char where[200];
  if (n == 1)
    snprintf(where, sizeof where, " in the %s %.100s", what, first->op);
  else
    snprintf(where, sizeof where,
             " in one of the last %d %ss, the first of them %.100s "
             "(FLARE_SYNC=1 finds out which)",
             n, what, first->op);
  c->suspect = first->seq;
  pthread_mutex_lock(&flc_lock);
  flc_fault_in(d, where);
  pthread_mutex_unlock(&flc_lock);
}

fl_status flc_tell_fault(fl_stream *s, uint64_t *failed) {
  flc_backend *c = s->backend;
  pthread_mutex_lock(&flc_lock);
  bool first = !s->device->named;
  s->device->named = true;
  pthread_mutex_unlock(&flc_lock);
  if (first)
    find_suspect(c, s->device);
  if (failed)
    *failed = c->suspect;
  return fli_fail(FL_EFAULT, "%s", s->device->cause);
}

/* Turns the error word into the message that the CPU's kernel would give. */
static fl_status backend_tell(fl_stream *s, uint64_t *failed) {
  if (s->device->cause[0])
    return flc_tell_fault(s, failed);
  if (s->backend->broken)
    return fli_fail(FL_ECOMM, "%s", s->backend->broken);
  uint64_t seq = s->mirror->seq;
  if (!seq)
    return FL_OK;
  const flc_name *name = &s->names[seq % FLC_NAMES];
  if (name->seq != seq)
    name = flc_capture_find(s, seq);
  int base = name ? name->base : 0;
  const char *op = name ? name->op : "?";
  if (failed)
    *failed = seq;
  if (s->mirror->bound < INT64_MIN / 2) /* a value, as random.cu reports it */
    return flc_value_refused(op, s->mirror->position, s->mirror->bound);
  if (s->mirror->bound < 0) { /* a matrix, as linalg.cu reports it */
    int64_t what = -1 - s->mirror->bound;
    return fli_fail_matrix(op, (fl_matrix_fault)(what % 16),
                           s->mirror->position, base, (int)(what / 16));
  }
  long long given = s->mirror->position + base,
            last = s->mirror->bound - 1 + base;
  return fli_fail(FL_EINDEX, "%s: position %lld is out of range %d..%lld%s", op,
                  given, base, last,
                  given == 0 && base == 1
                      ? ": positions count from 1; for data that counts from 0 "
                        "say base = 0"
                      : "");
}

static fl_status stream_sync(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed) {
  flc_context before;
  s = s ? s : backend_of(b)->first[device];
  if (!s)
    return FL_OK;
  if (s->device->cause[0])
    return backend_tell(s, failed);
  fl_status status = flc_enter(s->device, &before);
  if (status)
    return status;
  status = flc_wait(s);
  if (status == FL_EFAULT || (status == FL_OK && s->backend->broken))
    status = backend_tell(s, failed);
  else if (status == FL_OK && s->mirror->seq) {
    status = backend_tell(s, failed);
    flc_cu->MemsetD8Async(s->word, 0, sizeof(uint64_t), s->handle);
    s->mirror->seq = 0;
  }
  flc_leave(s->device, before);
  return status;
}

static fl_status stream_peek(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed) {
  s = s ? s : backend_of(b)->first[device];
  if (!s || (!s->mirror->seq && !s->device->cause[0] && !s->backend->broken))
    return FL_OK;
  return backend_tell(s, failed);
}

/* --- events --- */

static fl_status event_new(fl_backend *b, int device, fl_event **e) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  (void)b;
  if (!d)
    return FL_EDEVICE;
  if (!(*e = calloc(1, sizeof **e)))
    return fli_fail(FL_ENOMEM, "out of memory: an event");
  (*e)->device = d;
  fl_status s = flc_enter(d, &before);
  if (s == FL_OK) {
    CUresult r = flc_cu->EventCreate(&(*e)->handle, 0);
    s = r ? flc_failed(d, r, "a new event") : FL_OK;
    flc_leave(d, before);
  }
  if (s)
    free(*e);
  return s;
}

static void event_free(fl_backend *b, fl_event *e) {
  flc_context before;
  (void)b;
  if (flc_enter(e->device, &before) == FL_OK) {
    flc_cu->EventDestroy(e->handle);
    flc_leave(e->device, before);
  }
  free(e);
}

static fl_status event_record(fl_backend *b, fl_event *e, fl_stream *s) {
  flc_context before;
  if (!(s = flc_stream_find(backend_of(b), e->device->index, s)))
    return FL_EDEVICE;
  fl_status status = flc_capture_waits(s, NULL);
  if (status == FL_OK)
    status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUresult r = flc_cu->EventRecord(e->handle, s->handle);
  flc_leave(s->device, before);
  return r ? flc_failed(e->device, r, "recording an event") : FL_OK;
}

static fl_status event_wait(fl_backend *b, fl_event *e, fl_stream *s) {
  flc_context before;
  if (!(s = flc_stream_find(backend_of(b), e->device->index, s)))
    return FL_EDEVICE;
  fl_status status = flc_capture_waits(s, NULL);
  if (status == FL_OK)
    status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUresult r = flc_cu->StreamWaitEvent(s->handle, e->handle, 0);
  flc_leave(s->device, before);
  return r ? flc_failed(s->device, r, "waiting for an event") : FL_OK;
}

static bool event_done(fl_backend *b, fl_event *e) {
  flc_context before;
  (void)b;
  if (flc_enter(e->device, &before))
    return true;
  CUresult r = flc_cu->EventQuery(e->handle);
  flc_leave(e->device, before);
  return r != CUDA_ERROR_NOT_READY;
}

static double event_elapsed(fl_backend *b, fl_event *from, fl_event *to) {
  float ms = 0;
  (void)b;
  flc_cu->EventElapsedTime(&ms, from->handle, to->handle);
  return (double)ms * 1e3;
}

/* --- launching --- */

fl_status flc_name_launch(fl_stream *s, const flc_name *name) {
  if (s->update)
    return FL_OK;
  if (s->capture)
    return flc_capture_name(s->capture, name);
  s->names[name->seq % FLC_NAMES] = *name;
  s->last = name->seq;
  return FL_OK;
}

static fl_status backend_launch(fl_backend *b, fl_kernel k,
                                const fl_launch *given) {
  flc_backend *c = backend_of(b);
  fl_launch l = *given;
  flc_context before;
  fl_stream *s = flc_stream_find(c, l.device, l.stream);
  if (!s)
    return FL_EDEVICE;
  l.stream = s;
  l.handle = s->handle;
  fl_status status = FL_OK;
  for (int i = 0; l.tile && i < l.tile->n_positions && status == FL_OK; i++) {
    const fl_position *x = &l.tile->positions[i];
    status = flc_name_launch(
        s, &(flc_name){fl_position_seq(&l, i), x->op, x->base, false});
  }
  if (status == FL_OK)
    status = flc_name_launch(s, &(flc_name){l.seq, l.op, l.base, false});
  if (status == FL_OK)
    status = flc_enter(s->device, &before);
  if (status)
    return status;
  if (s->update) {
    status = flc_update_begin(s->update, l.seq);
    if (status == FL_OK)
      status = k(&l);
    if (status == FL_OK)
      status = flc_update_end(s->update);
    flc_leave(s->device, before);
    return status;
  }
  status = k(&l);
  if (status == FL_OK && s->capture)
    status = flc_capture_check(s, l.op);
  else if (status == FL_OK && c->sync) {
    uint64_t failed;
    status = stream_sync(b, l.device, s, &failed);
  }
  flc_leave(s->device, before);
  return status;
}

static void close_cuda(fl_backend *b) {
  while (backend_of(b)->streams)
    stream_free(b, backend_of(b)->streams);
  flc_precompile_close();
  free(backend_of(b)->broken);
  free(b);
}

fl_status fl_cuda_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **out);

fl_status fl_cuda_open(const fl_backend_options *o, fl_backend *cpu,
                       fl_backend **out) {
  flc_backend *c = calloc(1, sizeof *c);
  if (!c)
    return fli_fail(FL_ENOMEM, "out of memory: the CUDA backend");
  const char *sync = getenv("FLARE_SYNC"), *memory = getenv("FLARE_MEMORY");
  c->options = *o;
  c->cpu = cpu;
  c->direct = memory && strcmp(memory, "direct") == 0;
  c->sync = sync && *sync && strcmp(sync, "0") != 0;
  c->base = (fl_backend){
      .struct_size = sizeof(fl_backend),
      .name = "cuda",
      .flags = FL_BACKEND_ASYNC | FL_BACKEND_LAZY | FL_BACKEND_PROBES,
      .device_count = device_count,
      .kernel = find_kernel,
      .launch = backend_launch,
      .alloc = flc_memory_get,
      .release = flc_memory_put,
      .memory_info = flc_memory_info,
      .page = FLC_PAGE,
      .part = FLC_PART,
      .reserve = flc_reserve,
      .unreserve = flc_unreserve,
      .remap = flc_remap,
      .copy = flc_transfer,
      .stream_new = stream_new,
      .stream_free = stream_free,
      .stream_sync = stream_sync,
      .stream_peek = stream_peek,
      .event_new = event_new,
      .event_free = event_free,
      .event_record = event_record,
      .event_wait = event_wait,
      .event_done = event_done,
      .event_elapsed = event_elapsed,
      .host_alloc = flc_host_alloc,
      .host_free = flc_host_free,
      .close = close_cuda,
      .control = flc_control,
      .query = flc_query,
      .raw_new = flc_raw_new,
      .raw_facts = flc_raw_facts,
      .stream_handle = stream_handle,
      .stream_adopt = stream_adopt,
      .range = flc_range,
      .capture_begin = flc_capture_begin,
      .capture_end = flc_capture_end,
      .exec_launch = flc_exec_launch,
      .exec_free = flc_exec_free,
      .exec_update = flc_exec_update,
      .exec_fixed = flc_exec_fixed,
      .prepare = flc_prepare,
  };
  flc_precompile_open();
  *out = &c->base;
  return FL_OK;
}
