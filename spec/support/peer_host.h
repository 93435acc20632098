// What kernels/cuda/peer.cu takes from flare.cuh and peer.cuh, on threads of the host: a block is
// some threads with a barrier, and the dtypes are by their numbers.
#include "../../runtime/types.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
using std::min;

#define __global__
#define __launch_bounds__(x)
#define __grid_constant__
struct place { int x; };
static thread_local place blockIdx, threadIdx, gridDim, blockDim;
struct block {
  pthread_barrier_t barrier;
  std::atomic<int> any{0};
};
static thread_local block *here;
static void __syncthreads() { pthread_barrier_wait(&here->barrier); }
static int __syncthreads_or(int v) {
  if (v) here->any = 1;
  __syncthreads();
  int result = here->any;
  __syncthreads();
  return result;
}

struct bf16 { uint16_t bits; };
template <int D> struct fl_type;
template <> struct fl_type<FL_F64> { typedef double S, W; };
template <> struct fl_type<FL_F32> { typedef float S, W; };
template <> struct fl_type<FL_BF16> { typedef bf16 S; typedef float W; };
template <> struct fl_type<FL_I64> { typedef int64_t S, W; };
template <> struct fl_type<FL_I32> { typedef int32_t S, W; };
template <> struct fl_type<FL_I8> { typedef int8_t S; typedef int32_t W; };
template <> struct fl_type<FL_U8> { typedef uint8_t S; typedef int32_t W; };
#define FL_S(D) typename fl_type<D>::S
#define FL_W(D) typename fl_type<D>::W
template <class W, class S> W fl_get(S s) { return (W)s; }
template <> float fl_get<float, bf16>(bf16 s) {
  uint32_t bits = (uint32_t)s.bits << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
template <class S, class W> S fl_put(W w) { return (S)w; }
template <> bf16 fl_put<bf16, float>(float f) { // no NaN
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <class S, int N> struct alignas(sizeof(S) * N) fl_vec { S at[N]; };
template <class S, int N> fl_vec<S, N> fl_read(const S *p) {
  fl_vec<S, N> v;
  memcpy(&v, p, sizeof v); // whatever the memory is of
  return v;
}
template <class S, int N> void fl_write(S *p, const fl_vec<S, N> &v) { memcpy(p, &v, sizeof v); }
struct fl_max_of {
  template <class T> T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct fl_min_of {
  template <class T> T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
static void fl_word_set(uint32_t *w, uint32_t v) { __atomic_store_n(w, v, __ATOMIC_RELEASE); }
static uint32_t fl_word_get(const uint32_t *w) {
  usleep(20); // there are more threads than cores
  return __atomic_load_n(w, __ATOMIC_ACQUIRE);
}
static uint64_t fl_nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
