/* masked_select, masked_scatter and nonzero: the set flags of each tile are
 * counted, a running sum turns the counts into offsets, and the elements are
 * moved in order. A warp handles consecutive elements, 32 at a time. */
#include "device/divisor.cuh"
#include "index.h"

#define WARPS (MASK_THREADS / 32)
#define STEPS (MASK_TILE / MASK_THREADS)

/* Flags of a warp's part of the tile, a mask for each 32; returns how many are
 * set. */
template <int SIZE>
int flags_of(const mask_args &a, int64_t first, uint32_t (&mask)[STEPS]) {
  const FL_BITS(SIZE) *flags = (const FL_BITS(SIZE) *)a.flags;
  int lane = threadIdx.x & 31, n = 0;
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    int64_t i = first + j * 32 + lane;
    bool set = i < a.n && (flags[i] & (FL_BITS(SIZE))a.bits) != 0;
    mask[j] = __ballot_sync(0xffffffff, set);
  }
#pragma unroll
  for (int j = 0; j < STEPS; j++)
    n += __popc(mask[j]);
  return n;
}

inline int64_t warp_first() {
  return (int64_t)blockIdx.x * MASK_TILE + (threadIdx.x >> 5) * (32 * STEPS);
}

template <int SIZE> __global__ void count(const __grid_constant__ mask_args a) {
  __shared__ int part[WARPS];
  uint32_t mask[STEPS];
  int n = flags_of<SIZE>(a, warp_first(), mask);
  if ((threadIdx.x & 31) == 0)
    part[threadIdx.x >> 5] = n;
  __syncthreads();
  if (threadIdx.x > 0)
    return;
  n = 0;
  for (int w = 0; w < WARPS; w++)
    n += part[w];
  a.before[blockIdx.x] = n;
}

/* Replaces each count by the sum of those before it; one block. */
template <int T> __global__ void before(const __grid_constant__ mask_args a) {
  __shared__ int64_t part[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int64_t carry = 0;
  for (int64_t start = 0; start < a.tiles; start += blockDim.x) {
    int64_t i = start + threadIdx.x, v = i < a.tiles ? a.before[i] : 0;
    int64_t sum = v, here = carry;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
      int64_t other = __shfl_up_sync(0xffffffff, sum, k);
      sum += lane >= k ? other : 0;
    }
    __syncthreads();
    if (lane == 31)
      part[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warps; w++) {
      here += w < warp ? part[w] : 0;
      carry += part[w];
    }
    if (i < a.tiles)
      a.before[i] = here + sum - v;
  }
  if (threadIdx.x == 0)
    a.before[a.tiles] = carry;
}

/* Calls each(i, rank) for this thread's elements whose flag is set. */
template <int SIZE, class Each> void mask_visit(const mask_args &a, Each each) {
  __shared__ int part[WARPS];
  uint32_t mask[STEPS];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t first = warp_first(), rank = a.before[blockIdx.x];
  int n = flags_of<SIZE>(a, first, mask);
  if (lane == 0)
    part[warp] = n;
  __syncthreads();
  for (int w = 0; w < warp; w++)
    rank += part[w];
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    int64_t i = first + j * 32 + lane;
    if (mask[j] >> lane & 1)
      each(i, rank + __popc(mask[j] & ((1u << lane) - 1)));
    rank += __popc(mask[j]);
  }
}

template <int SIZE>
__global__ void compact(const __grid_constant__ mask_args a) {
  typedef FL_BITS(SIZE) T;
  mask_visit<1>(a, [&](int64_t i, int64_t rank) {
    if (rank < a.room)
      ((T *)a.y)[rank] = ((const T *)a.x)[i];
  });
}

/* y has its own elements already. */
template <int SIZE>
__global__ void expand(const __grid_constant__ mask_args a) {
  typedef FL_BITS(SIZE) T;
  mask_visit<1>(a, [&](int64_t i, int64_t rank) {
    if (rank < a.room)
      ((T *)a.y)[i] = ((const T *)a.x)[rank];
  });
}

/* Coordinates, dims from the last. */
template <int SIZE> __global__ void find(const __grid_constant__ mask_args a) {
  mask_visit<SIZE>(a, [&](int64_t i, int64_t rank) {
    int64_t *y = (int64_t *)a.y + rank * a.ndim;
    if (rank >= a.room)
      return;
    for (int d = 0; d < a.ndim; d++) {
      y[a.ndim - 1 - d] = fl_split(i, a.shape[d], &i) + a.base;
    }
  });
}
