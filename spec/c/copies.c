/* Collectives by copies (kernels/cuda/copies.c) with a thread for each rank and
 * a driver that does at once what it is asked for: results against sums made
 * here, with pieces so small that the halves of the areas take many turns, and
 * ranks that are behind; one that never comes, and the end of waiting. */
#include "check.h"

#include "../../kernels/cuda/peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#undef COPY_PLACES
#define COPY_PLACES ((int64_t)4096)
#include "../../kernels/cuda/copies.c"

#define RANKS 5

static _Thread_local unsigned haste;

static void dawdle(void) {
  for (haste = haste * 1664525u + 1013904223u; haste >> 28 == 0;
       haste += 1u << 27)
    sched_yield();
}

static CUresult fake_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                          CUstream stream) {
  (void)stream;
  dawdle();
  memmove((void *)to, (const void *)from, bytes);
  return CUDA_SUCCESS;
}

static CUresult fake_write(CUstream stream, CUdeviceptr word, uint32_t value,
                           unsigned flags) {
  (void)stream, (void)flags;
  dawdle();
  __atomic_store_n((uint32_t *)word, value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUdeviceptr word, uint32_t value,
                          unsigned flags) {
  (void)stream, (void)flags;
  while ((int32_t)(__atomic_load_n((uint32_t *)word, __ATOMIC_ACQUIRE) -
                   value) < 0)
    sched_yield();
  return CUDA_SUCCESS;
}

static CUresult fake_stream(CUstream *stream, unsigned flags) {
  (void)flags;
  *stream = NULL;
  return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}

static const flc_driver fakes = {.MemcpyDtoDAsync = fake_copy,
                                 .StreamWriteValue32 = fake_write,
                                 .StreamWaitValue32 = fake_wait,
                                 .StreamCreate = fake_stream,
                                 .StreamDestroy = fake_destroy};
const flc_driver *flc_cu = &fakes;

fl_status flc_failed(flc_device *d, CUresult e, const char *tried) {
  (void)d, (void)e, (void)tried;
  return FL_EDEVICE;
}

flc_spec flc_peers_sum(fl_dtype d, int size) {
  return FLC_SPEC("peer", "sum", (int)d, size);
}

size_t fl_dtype_size(fl_dtype d) {
  return d == FL_F32 ? 4 : 8;
}

/* What the kernel does (spec/peer_spec.lua has the kernel itself). */
#define ADD_UP(T)                                                              \
  for (int64_t i = 0; i < a->n; i++) {                                         \
    T sum = 0;                                                                 \
    for (int k = 0; k < a->size; k++)                                          \
      sum += k == a->rank ? ((const T *)a->in)[i] : ((T *)a->area[k])[i];      \
    ((T *)a->out)[i] = sum;                                                    \
  }

fl_status flc_run_on(flc_device *d, CUstream stream, const char *op,
                     const flc_spec *spec, flc_grid g, const void *args) {
  const peer_args *a = args;
  (void)d, (void)stream, (void)op, (void)g;
  if (spec->t[0] == FL_F32)
    ADD_UP(float)
  else
    ADD_UP(double)
  return FL_OK;
}

/* --- ranks --- */

typedef struct rank {
  flc_peers peers;
  fl_comm_call call;
  fl_status status;
  pthread_t thread;
} rank;

static void *run(void *context) {
  rank *r = context;
  haste = (unsigned)r->peers.rank * 77777u + (unsigned)r->call.count;
  r->status = flc_copies_run(&r->peers, &r->call, NULL);
  return NULL;
}

static double number(int r, size_t i) {
  return (double)((i * 7 + (size_t)r * 1000003) % 1009) - 500;
}

static double get(const void *p, fl_dtype d, size_t i) {
  return d == FL_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void put(void *p, fl_dtype d, size_t i, double v) {
  if (d == FL_F32)
    ((float *)p)[i] = (float)v;
  else
    ((double *)p)[i] = v;
}

static void check_call(rank *all, int size, fl_comm_kind kind, fl_dtype d,
                       size_t count, bool in_place) {
  size_t ins = kind == FL_COMM_REDUCE_SCATTER ? (size_t)size * count : count;
  size_t outs = kind == FL_COMM_ALL_GATHER ? (size_t)size * count : count;
  int bad = 0;
  for (int r = 0; r < size; r++) {
    char *in = calloc(ins + outs + 2, 8), *out = in + ins * 8;
    if (in_place)
      out = in;
    for (size_t i = 0; i < ins; i++)
      put(in, d, i, number(r, i));
    put(out, d, outs, 77);
    all[r].call = (fl_comm_call){
        .kind = kind, .dtype = d, .count = count, .in = in, .out = out};
    CHECK(pthread_create(&all[r].thread, NULL, run, &all[r]) == 0, "thread");
  }
  for (int r = 0; r < size; r++) {
    pthread_join(all[r].thread, NULL);
    CHECK(all[r].status == FL_OK, "status %d", all[r].status);
  }
  for (int r = 0; r < size; r++) {
    for (size_t i = 0; i < outs; i++) {
      double want = 0;
      for (int k = 0; k < size; k++)
        want +=
            kind == FL_COMM_ALL_GATHER
                ? (k == (int)(i / count) ? number(k, i % count) : 0)
                : number(k, kind == FL_COMM_ALL_REDUCE ? i
                                                       : (size_t)r * count + i);
      bad += get(all[r].call.out, d, i) != want;
    }
    bad += get(all[r].call.out, d, outs) != 77;
    free((void *)(uintptr_t)all[r].call.in);
  }
  CHECK(bad == 0, "kind %d of %d ranks, %zu elements: %d are wrong", kind, size,
        count, bad);
}

static void make(rank *all, int size) {
  CUdeviceptr area[RANKS];
  for (int k = 0; k < size; k++) {
    area[k] = (CUdeviceptr)calloc(1, (size_t)PEER_AREA);
    for (int j = 0; j < size; j++) /* words that are about to wrap */
      ((uint32_t *)(area[k] + COPY_WORDS))[j] = 0xfffffff0u;
  }
  for (int r = 0; r < size; r++) {
    all[r] = (rank){.peers = {.rank = r, .size = size, .copied = 0xfffffff0u}};
    memcpy(all[r].peers.area, area, sizeof area);
  }
}

int main(void) {
  static const size_t counts[] = {1, 15, 16, 257, 1000, 4096, 30011};
  static const fl_comm_kind kinds[] = {
      FL_COMM_ALL_REDUCE, FL_COMM_REDUCE_SCATTER, FL_COMM_ALL_GATHER};
  rank all[RANKS];
  for (int size = 2; size <= RANKS; size++) {
    make(all, size);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
      for (int k = 0; k < 3; k++) {
        check_call(all, size, kinds[k], FL_F32, counts[n], false);
        check_call(all, size, kinds[k], FL_F64, counts[n], false);
        if (k == 0)
          check_call(all, size, kinds[k], FL_F32, counts[n], true);
      }
    /* rank 0 waits alone, until it is told that nobody comes */
    float x[40] = {0};
    uint32_t last = all[0].peers.copied;
    all[0].call = (fl_comm_call){.kind = FL_COMM_ALL_REDUCE,
                                 .dtype = FL_F32,
                                 .count = 40,
                                 .in = x,
                                 .out = x};
    CHECK(pthread_create(&all[0].thread, NULL, run, &all[0]) == 0, "thread");
    for (uint32_t phase = last + 1; phase != last + 3; phase++) {
      fake_wait(NULL, all[0].peers.area[1] + COPY_WORDS, phase, 0);
      flc_copies_stop(&all[0].peers);
    }
    pthread_join(all[0].thread, NULL);
    for (int k = 0; k < size; k++)
      free((void *)all[0].peers.area[k]);
  }
  return check_done("copies");
}
