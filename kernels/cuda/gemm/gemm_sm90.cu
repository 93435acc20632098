/* Products of 16-bit floats on Hopper: blocks that stay, one for each
 * multiprocessor. One warp asks for tiles by tensor maps, as far ahead as
 * there is shared memory, two warp groups multiply and store. */
#include "gemm.cuh"

#define FL_STEP 64 /* elements of the sum: lines of 128 bytes */

#include "../device/tile_sm90.cuh"

#define M      128
#define N      256
#define STAGES 4
#define LD     68 /* floats of a line of 64 columns on its way out */

#ifdef FL_HOPPER

/* The steps of a split. */
inline int begin_of(const gemm_args &a, const place &p) {
  return p.split * a.steps;
}
inline int end_of(const gemm_args &a, const place &p) {
  int steps = (int)(((uint32_t)a.k + FL_STEP - 1) / FL_STEP);
  int end = begin_of(a, p) + a.steps;
  return end < steps ? end : steps;
}

template <int D, int AK, int BK> struct walk {
  typedef fl_hopper_tile<D, M, N, 256, AK, BK> Tile;
  const gemm_sm90 &h;
  uint32_t shared, full, empty; /* barriers of 8 bytes */
  int stage, phase;

  walk(const gemm_sm90 &h, uint32_t at)
      : h(h), shared(at), full(at + STAGES * Tile::BYTES + 2 * 64 * LD * 4),
        empty(full + STAGES * 8), stage(0), phase(0) {
  }

  void next() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }

  /* By one thread. */
  void load() {
    const gemm_args &a = h.g;
    const fl_tensor_map *am = (const fl_tensor_map *)&h.a;
    const fl_tensor_map *bm = (const fl_tensor_map *)&h.b;
    int last = a.dims - 1;
    int inner = a.dims > 0 ? (int)a.size[last] : 1;
    for (uint32_t item = blockIdx.x; item < h.items; item += gridDim.x) {
      place p = place_of(a, item, M, N);
      int z = (int)p.matrix % inner, w = (int)p.matrix / inner;
      int az = a.dims > 0 && a.astep[last] ? z : 0;
      int bz = a.dims > 0 && a.bstep[last] ? z : 0;
      int aw = a.dims > 1 && a.astep[0] ? w : 0;
      int bw = a.dims > 1 && a.bstep[0] ? w : 0;
      int row = (int)p.row, col = (int)p.col;
      int end = end_of(a, p);
      for (int step = begin_of(a, p); step < end; step++, next()) {
        uint32_t to = shared + stage * Tile::BYTES, bar = full + stage * 8;
        int k = step * FL_STEP;
        fl_barrier_wait(empty + stage * 8, phase ^ 1);
        fl_barrier_expect(bar, Tile::BYTES);
        if (AK)
          fl_tile_load(to, am, bar, k, row, az, aw);
        else
          for (int i = 0; i < M / 64; i++)
            fl_tile_load(to + i * Tile::PART, am, bar, row + i * 64, k, az, aw);
        to += Tile::B_AT;
        if (BK)
          fl_tile_load(to, bm, bar, k, col, bz, bw);
        else
          for (int i = 0; i < N / 64; i++)
            fl_tile_load(to + i * Tile::PART, bm, bar, col + i * 64, k, bz, bw);
      }
    }
  }

  /* At least one step: sums that may be nothing would double registers. */
  void multiply(Tile &t, int begin, int end) {
    int before = -1;
    int step = begin;
    do {
      fl_barrier_wait(full + stage * 8, phase);
      t.step(shared + stage * Tile::BYTES, step - begin);
      fl_products_wait<1>();
      if (before >= 0 && threadIdx.x % 32 == 0)
        fl_barrier_arrive(empty + before * 8);
      before = stage;
      next();
    } while (++step < end);
    t.wait();
    if (before >= 0 && threadIdx.x % 32 == 0)
      fl_barrier_arrive(empty + before * 8);
  }
};

/* 64 columns of a warp group's 64 rows, which lie in shared memory with their
 * bias. */
template <int D>
void gemm_sm90_store(const gemm_args &a, const place &p, const float *c,
           const float *bias, int row, int64_t col) {
  int thread = threadIdx.x & 127, chunk = thread % 8 * 8;
  int64_t y = p.row + row + thread / 8;
  int64_t at = p.matrix * a.m * a.n + y * a.n + col + chunk;
  if (a.part)
    at += p.split * a.batch * a.m * a.n;
  if (col + chunk >= a.n)
    return;
#pragma unroll 1
  for (int r = thread / 8; r < 64 && y < a.m; r += 16, y += 16) {
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      fl_vec<float, 4> x = fl_read<float, 4>(c + r * LD + chunk + e);
      if (a.part)
        fl_write(a.part + at + e, x);
#pragma unroll
      for (int h = 0; h < 4; h++)
        v[e + h] = x.at[h];
    }
    if (!a.part) {
      if (a.bias) {
#pragma unroll
        for (int e = 0; e < 8; e++)
          v[e] += bias[a.bias_down ? r : chunk + e];
      }
      finish<D, 8>(a, v, at);
    }
    at += 16 * a.n;
  }
}

template <class Tile> void gemm_sm90_put(Tile &t, float *to, int part) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float(&s)[4] = t.sum[0][part * 8 + j];
    *(float2 *)(to + j * 8) = make_float2(s[0], s[1]);
    *(float2 *)(to + j * 8 + 8 * LD) = make_float2(s[2], s[3]);
  }
}

/* Bias of 64 columns, or rows, from `first` on. */
inline void take_bias(const gemm_args &a, float *to, int64_t first) {
  int i = threadIdx.x & 127;
  if (i < 64 && first + i < (a.bias_down ? a.m : a.n))
    to[i] = fl_load<float>(a.bias, a.bias_dtype, first + i);
}

#endif

template <int D, int AK, int BK>
__global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ gemm_sm90 h) {
#ifdef FL_HOPPER
  typedef walk<D, AK, BK> Walk;
  typedef typename Walk::Tile Tile;
  extern __shared__ __align__(1024) unsigned char shared[];
  Walk w(h, fl_shared(shared));
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      fl_barrier_init(w.full + i * 8, 1);
      fl_barrier_init(w.empty + i * 8, 8); /* warps */
    }
    fl_barrier_ready();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    fl_registers_less<40>();
    if (threadIdx.x == 256)
      w.load();
    return;
  }
  fl_registers_more<232>();
  int group = threadIdx.x >> 7, lane = threadIdx.x & 31;
  float *c = (float *)(shared + STAGES * Tile::BYTES) + group * 64 * LD;
  float *bias = (float *)(shared + STAGES * Tile::BYTES) + 2 * 64 * LD +
                STAGES * 4 + group * 64; /* behind the barriers */
  float *mine =
      c + ((threadIdx.x >> 5 & 3) * 16 + lane / 4) * LD + lane % 4 * 2;
  for (uint32_t item = blockIdx.x; item < h.items; item += gridDim.x) {
    const gemm_args &a = h.g;
    place p = place_of(a, item, M, N);
    int begin = begin_of(a, p), end = end_of(a, p);
    Tile t;
    w.multiply(t, begin, end);
#pragma unroll 1
    for (int part = 0; part < N / 64 && p.col + part * 64 < a.n; part++) {
#pragma unroll
      for (int q = 0; q < N / 64; q++)
        if (part == q) /* sums cannot be indexed */
          gemm_sm90_put(t, mine, q);
      if (a.bias && !a.part)
        take_bias(a, bias,
                  a.bias_down ? p.row + group * 64 : p.col + part * 64);
      fl_meet(1 + group, 128);
      gemm_sm90_store<D>(a, p, c, bias, group * 64, p.col + part * 64);
      fl_meet(1 + group, 128);
    }
  }
#endif
}
