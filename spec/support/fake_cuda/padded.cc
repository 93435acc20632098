// The kernel of padded.cu on the host: every thread in turn.
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__
#define __grid_constant__
struct dim { unsigned x, y, z; };
static dim gridDim, blockDim, blockIdx, threadIdx;
template <class S, int N> struct alignas(sizeof(S) * N) fl_vec { S at[N]; };
template <class S, int N> static fl_vec<S, N> fl_read(const S *p) {
  assert((uintptr_t)p % sizeof(fl_vec<S, N>) == 0);
  fl_vec<S, N> v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class S, int N> static void fl_write(S *p, const fl_vec<S, N> &v) {
  assert((uintptr_t)p % sizeof v == 0);
  memcpy(p, &v, sizeof v);
}
static uint32_t __funnelshift_r(uint32_t low, uint32_t high, unsigned by) {
  return (uint32_t)(((uint64_t)high << 32 | low) >> by);
}
static int64_t fl_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

// KERNELS

extern "C" void host_copy(const lines_args *a, unsigned x, unsigned y,
                          unsigned block) {
  gridDim = {x, y, 1};
  blockDim = {block, 1, 1};
  for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
        copy<2>(*a);
}
