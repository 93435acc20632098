/* A block of Hopper's products of 16-bit floats: one warp asks for tiles by
 * tensor maps, as far ahead as there is shared memory, two warp groups multiply
 * and store. gemm_sm90.cu and grouped_sm90.cu say which tiles a block has. */
#pragma once

#include "gemm.cuh"

#define FL_STEP 64 /* elements of the sum: lines of 128 bytes */

#include "../device/tile_sm90.cuh"

#define M      128
#define N      256
#define STAGES 4
#define LD     68 /* floats of a line of 64 columns on its way out */

#ifdef FL_HOPPER

/* A tile of an operand: its row, or column, and its matrix. */
struct origin {
  int row, z, w;
};

template <int D, int AK, int BK> struct walk {
  typedef fl_hopper_tile<D, M, N, 256, AK, BK> Tile;
  uint32_t shared, full, empty; /* barriers of 8 bytes */
  int stage, phase;

  walk(unsigned char *at) : shared(fl_shared(at)), stage(0), phase(0) {
    full = shared + STAGES * Tile::BYTES + 2 * 64 * LD * 4;
    empty = full + STAGES * 8;
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) {
        fl_barrier_init(full + i * 8, 1);
        fl_barrier_init(empty + i * 8, 8); /* warps */
      }
      fl_barrier_ready();
    }
    __syncthreads();
  }

  void next() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }

  /* `steps` steps of the sum from element k on. By one thread. */
  void load(const gemm_map &amap, const gemm_map &bmap, origin a, origin b,
            int k, int steps) {
    const fl_tensor_map *am = (const fl_tensor_map *)&amap;
    const fl_tensor_map *bm = (const fl_tensor_map *)&bmap;
    for (int end = k + steps * FL_STEP; k < end; k += FL_STEP, next()) {
      uint32_t to = shared + stage * Tile::BYTES, bar = full + stage * 8;
      fl_barrier_wait(empty + stage * 8, phase ^ 1);
      fl_barrier_expect(bar, Tile::BYTES);
      if (AK)
        fl_tile_load(to, am, bar, k, a.row, a.z, a.w);
      else
        for (int i = 0; i < M / 64; i++)
          fl_tile_load(to + i * Tile::PART, am, bar, a.row + i * 64, k, a.z,
                       a.w);
      to += Tile::B_AT;
      if (BK)
        fl_tile_load(to, bm, bar, k, b.row, b.z, b.w);
      else
        for (int i = 0; i < N / 64; i++)
          fl_tile_load(to + i * Tile::PART, bm, bar, b.row + i * 64, k, b.z,
                       b.w);
    }
  }

  /* Lines of the sum from `from` on, in a step where memory runs across it,
   * belong to others. */
  void cut(uint32_t at, int from) {
    int chunks = (FL_STEP - from) * 8;
    for (int i = threadIdx.x; i < chunks * (M + N) / 64; i += 256)
      fl_store16(at + i / chunks * Tile::PART + from * 128 + i % chunks * 16,
                 {0, 0, 0, 0});
    fl_fence_async();
    fl_meet(3, 256);
  }

  /* At least one step: sums that may be nothing would double registers. CUT:
   * the last has `lines` of the sum. */
  template <int CUT> void multiply(Tile &t, int steps, int lines) {
    int before = -1;
    int step = 0;
    do {
      fl_barrier_wait(full + stage * 8, phase);
      if (CUT && step == steps - 1 && lines < FL_STEP)
        cut(shared + stage * Tile::BYTES, lines);
      t.step(shared + stage * Tile::BYTES, step);
      fl_products_wait<1>();
      if (before >= 0 && threadIdx.x % 32 == 0)
        fl_barrier_arrive(empty + before * 8);
      before = stage;
      next();
    } while (++step < steps);
    t.wait();
    if (before >= 0 && threadIdx.x % 32 == 0)
      fl_barrier_arrive(empty + before * 8);
  }
};

/* 64 columns of a warp group's 64 rows, of which those below `end` are C's;
 * they lie in shared memory with their bias. */
template <int D>
void gemm_sm90_store(const gemm_args &a, const place &p, const float *c,
                     const float *bias, int row, int64_t col, int64_t end) {
  int thread = threadIdx.x & 127, chunk = thread % 8 * 8;
  int64_t y = p.row + row + thread / 8;
  int64_t at = p.matrix * a.m * a.n + y * a.n + col + chunk;
  if (a.part)
    at += p.split * a.batch * a.m * a.n;
  if (col + chunk >= a.n)
    return;
#pragma unroll 1
  for (int r = thread / 8; r < 64 && y < end; r += 16, y += 16) {
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

/* Stores the tile at p, 64 columns at a time, by way of shared memory. */
template <int D, class Tile>
void gemm_sm90_finish(const gemm_args &a, const place &p, Tile &t,
                      unsigned char *shared, int64_t end) {
  int group = threadIdx.x >> 7, lane = threadIdx.x & 31;
  float *c = (float *)(shared + STAGES * Tile::BYTES) + group * 64 * LD;
  float *bias = (float *)(shared + STAGES * Tile::BYTES) + 2 * 64 * LD +
                STAGES * 4 + group * 64; /* behind the barriers */
  float *mine =
      c + ((threadIdx.x >> 5 & 3) * 16 + lane / 4) * LD + lane % 4 * 2;
#pragma unroll 1
  for (int part = 0; part < N / 64 && p.col + part * 64 < a.n; part++) {
#pragma unroll
    for (int q = 0; q < N / 64; q++)
      if (part == q) /* sums cannot be indexed */
        gemm_sm90_put(t, mine, q);
    if (a.bias && !a.part)
      take_bias(a, bias, a.bias_down ? p.row + group * 64 : p.col + part * 64);
    fl_meet(1 + group, 128);
    gemm_sm90_store<D>(a, p, c, bias, group * 64, p.col + part * 64, end);
    fl_meet(1 + group, 128);
  }
}

#endif
