/* Weights of 4 and 8 bits: their numbers as floats, and products of a few rows
 * with them as they are stored. The whole numbers are exact in 16 bits, and so
 * go to tensor cores; sums over a group are scaled in f32. */
#include "skinny.cuh"

#include "../device/divisor.cuh"
#include "quantized.h"

/* 0x4b000000 + q is the float 2^23 + q. */
#define EXACT 8388608.0f
inline float quantized_float(uint32_t q) {
  return __uint_as_float(0x4b000000u | q);
}

template <class W>
void quantized_params(const quantized_args &a, int64_t at, W *scale, W *zero) {
  *scale = fl_load<W>(a.scales, a.scale_dtype, at);
  *zero = a.zeros ? fl_load<W>(a.zeros, a.zero_dtype, at) : W(a.center);
}

/* --- as floats --- */

/* N numbers for each thread, 8 or 1. */
template <int D, int Q, int N>
__global__ void __launch_bounds__(QUANTIZED_THREADS)
    dequantize(const __grid_constant__ quantized_args a) {
  typedef FL_W(D) W;
  const void *weight = a.s.g.b;
  int64_t all = a.s.g.n * (a.s.g.k / N);
  for (int64_t e = fl_thread(); e < all; e += fl_threads()) {
    int64_t row, group;
    int64_t at = fl_split(e, a.by_row, &row);
    fl_split(at, a.by_group, &group);
    W scale, zero;
    quantized_params(a, row * a.groups + group, &scale, &zero);
    fl_vec<FL_S(D), N> y;
    if constexpr (Q == FL_U8 && N == 8) {
      uint32_t w = ((const uint32_t *)weight)[e];
#pragma unroll
      for (int i = 0; i < N; i++)
        y.at[i] = fl_put<FL_S(D)>((W(w >> (4 * i) & 15) - zero) * scale);
    } else if constexpr (Q == FL_U8) {
      int q = ((const uint8_t *)weight)[e / 2] >> (e % 2 * 4) & 15;
      y.at[0] = fl_put<FL_S(D)>((W(q) - zero) * scale);
    } else {
      fl_vec<int8_t, N> w = fl_read<int8_t, N>((const int8_t *)weight + e * N);
#pragma unroll
      for (int i = 0; i < N; i++)
        y.at[i] = fl_put<FL_S(D)>((W(w.at[i]) - zero) * scale);
    }
    fl_write((FL_S(D) *)a.y + e * N, y);
  }
}

/* --- products --- */

/* a * 1 + b of two elements, which is exact here. */
template <int D> uint32_t quantized_shift(uint32_t a, uint32_t b) {
  uint32_t y;
  if (D == FL_BF16)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(y)
        : "r"(a), "r"(0x3f803f80u), "r"(b));
  else
    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(y)
        : "r"(a), "r"(0x3c003c00u), "r"(b));
  return y;
}

/* The numbers of a register of the weight, less the center, in pairs: of 8
 * numbers of 4 bits number i with i + 4, of 4 numbers of 8 bits neighbours.
 * 0x4300 + q is 128 + q as bf16, 0x6400 + q is 1024 + q as f16. */
template <int D, int Q>
void quantized_pairs(uint32_t (&to)[Q == FL_U8 ? 4 : 2], uint32_t w) {
  if constexpr (Q == FL_U8) {
    constexpr uint32_t BASE = D == FL_BF16 ? 0x43004300u : 0x64006400u,
                       LESS = D == FL_BF16 ? 0xc308c308u : 0xe408e408u;
#pragma unroll
    for (int i = 0; i < 4; i++)
      to[i] = quantized_shift<D>((w >> (4 * i) & 0x000f000fu) | BASE, LESS);
  } else {
    w ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t low = w >> (16 * i) & 255, high = w >> (16 * i + 8) & 255;
      if (D == FL_BF16)
        to[i] = fl_pack<D>(quantized_float(low) - (EXACT + 128),
                           quantized_float(high) - (EXACT + 128));
      else
        to[i] =
            quantized_shift<D>(low | high << 16 | 0x64006400u, 0xe480e480u);
    }
  }
}

/* A lane's elements of a row of A that belong to such a register, in pairs
 * alike. */
template <int Q>
void quantized_rows(uint32_t (&to)[Q == FL_U8 ? 4 : 2], const uint16_t *p,
                    bool there) {
  if constexpr (Q == FL_U8) {
    uint4 x = {0, 0, 0, 0};
    if (there)
      x = *(const uint4 *)p;
    to[0] = __byte_perm(x.x, x.z, 0x5410);
    to[1] = __byte_perm(x.x, x.z, 0x7632);
    to[2] = __byte_perm(x.y, x.w, 0x5410);
    to[3] = __byte_perm(x.y, x.w, 0x7632);
  } else {
    uint2 x = {0, 0};
    if (there)
      x = *(const uint2 *)p;
    to[0] = x.x;
    to[1] = x.y;
  }
}

/* What a lane adds up: `c` of scaled groups, `part` and `ones` of one group. */
template <int D, int Q, int HALVES, int R> struct quantized_sums {
  enum { EACH = Q == FL_U8 ? 32 : 16, PAIRS = Q == FL_U8 ? 4 : 2 };
  float c[R][4], part[R][4], ones[4];

  void start() {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      ones[i] = 0;
#pragma unroll
      for (int r = 0; r < R; r++)
        c[r][i] = part[r][i] = 0;
    }
  }

  /* Scales the sums of a group: those of the numbers less the center, and of A
   * alone, which the zeros are multiplied with. */
  void fold(const quantized_args &a, const float2 *table, int group) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float2 s = table[(r * 8 + threadIdx.x % 4 * 2 + i) * a.groups + group];
        c[r][i] += s.x * part[r][i] + s.y * ones[0];
        c[r][i + 2] += s.x * part[r][i + 2] + s.y * ones[2];
        part[r][i] = part[r][i + 2] = 0;
      }
    ones[0] = ones[2] = 0;
  }

  /* A part of the weight, `b`, and of the rows. */
  void multiply(const quantized_args &a, const uint32_t (&f)[HALVES][PAIRS],
                const uint32_t (&b)[R][4], int j) {
    constexpr uint32_t ONE = D == FL_BF16 ? 0x3f803f80u : 0x3c003c00u;
    uint32_t rows[PAIRS / 2][4], q[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS / 2; i++) {
      rows[i][0] = f[0][2 * i];
      rows[i][1] = HALVES > 1 ? f[HALVES - 1][2 * i] : 0;
      rows[i][2] = f[0][2 * i + 1];
      rows[i][3] = HALVES > 1 ? f[HALVES - 1][2 * i + 1] : 0;
      if (a.zeros)
        fl_mma<D>(ones, rows[i], ONE, ONE);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      quantized_pairs<D, Q>(q, b[r][j]);
#pragma unroll
      for (int i = 0; i < PAIRS / 2; i++)
        fl_mma<D>(part[r], rows[i], q[2 * i], q[2 * i + 1]);
    }
  }

  /* Parts `unit` to unit + 3, which are chunks `chunk` on of lines at `from`;
   * x: the lane's row of A. */
  void add(const quantized_args &a, const float2 *table, const uint16_t *x,
           uint32_t from, int unit, int chunk) {
    const gemm_args &g = a.s.g;
    const int lane = threadIdx.x & 31, all = (int)(g.k / EACH);
    int64_t group;
    int left = a.parts - (int)fl_split(unit, a.by_group, &group);
    uint32_t f[4][HALVES][PAIRS], b[R][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int h = 0; h < HALVES; h++)
        quantized_rows<Q>(f[j][h], x + h * 8 * g.am + (unit + j) * EACH,
                          unit + j < all && lane / 4 + h * 8 < g.m);
#pragma unroll
    for (int r = 0; r < R; r++)
      fl_ldmatrix(b[r],
                  from + fl_swizzle<128>(r * 8 + (lane & 7), chunk + lane / 8));
#pragma unroll
    for (int j = 0; j < 4; j++) {
      multiply(a, f[j], b, j);
      if (--left > 0 && j < 3)
        continue;
      if (group < a.groups)
        fold(a, table, (int)group);
      group++;
      left = a.parts;
    }
  }
};

/* Gives `take` numbers `at` to at + count - 1 of `all`, and zeros behind the last,
 * a thread each; a thread has four of them on their way. */
template <int D, class F>
void quantized_fetch(const void *p, int64_t at, int64_t all, int count, F take) {
  enum { U = 4 };
  typedef FL_S(D) S;
  const int step = blockDim.x;
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += U * step) {
    float x[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int k = i + u * step;
      x[u] = 0;
      if (k < count && at + k < all)
        x[u] = fl_get<float>(((const S *)p)[at + k]);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (i + u * step < count)
        take(i + u * step, x[u]);
  }
}
template <class F>
void quantized_load(const void *p, int dtype, int64_t at, int64_t all, int count,
                    F take) {
  switch (dtype) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  case FL_##NAME:                                                              \
    quantized_fetch<FL_##NAME>(p, at, all, count, take);                       \
    break;
#include "../../../runtime/dtype.def"
  }
}

/* As `tensor` of skinny.cu; a line of the weight in shared memory is 8 parts of
 * 16 bytes, of 32 or 16 numbers. Before the lines come the scales of the
 * block's columns, and what they are shifted by. */
template <int D, int Q, int HALVES, int R, int STAGES, int RESULT>
__global__ void __launch_bounds__(QUANTIZED_WARPS * 32, R * HALVES > 1 ? 2 : 3)
    tensor(const __grid_constant__ quantized_args a) {
  typedef quantized_sums<D, Q, HALVES, R> Sums;
  extern __shared__ __align__(1024) unsigned char shared[];
  enum { LINES = R * 8, BYTES = LINES * 128 };
  const gemm_args &g = a.s.g;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = lane / 4;
  const int64_t first = (int64_t)blockIdx.x * LINES, end = g.k / Sums::EACH * 8;
  const int step = blockDim.x / 32 * 64; /* in 16 bits of the weight */
  const uint16_t *x = (const uint16_t *)g.a + row * g.am +
                      lane % 4 * (Sums::EACH / 4),
                 *w = (const uint16_t *)g.b + first * end;
  float2 *table = (float2 *)shared;
  const int scales = (LINES * a.groups * (int)sizeof(float2) + 1023) & ~1023;
  const uint32_t ring = fl_shared(shared) + scales + warp * (STAGES * BYTES);
  skinny_begin<LINES, true>(a.s, g.b, first, end * 2, end * 2, 0);
  const float bias = skinny_bias<D, LINES, float>(g, first);
  int64_t ahead = warp * 64;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++, ahead += step) {
    skinny_copy<LINES>(ring + s * BYTES, w, end, g.n - first, ahead, end);
    fl_copy_commit();
  }
  const int64_t begin = first * a.groups, all = g.n * a.groups;
  const int count = LINES * a.groups;
  quantized_load(a.scales, a.scale_dtype, begin, all, count,
                 [&](int i, float scale) { table[i] = float2{scale, 0}; });
  if (a.zeros)
    quantized_load(a.zeros, a.zero_dtype, begin, all, count,
                   [&](int i, float zero) {
                     table[i].y = (a.center - zero) * table[i].x;
                   });
  __syncthreads();
  Sums sum;
  sum.start();
  int stage = 0, next = STAGES - 1;
  for (int64_t at = warp * 64; at < end; at += step, ahead += step) {
    __syncwarp(); /* all have read what is written over */
    skinny_copy<LINES>(ring + next * BYTES, w, end, g.n - first, ahead, end);
    fl_copy_commit();
    fl_copy_wait<STAGES - 1>();
    __syncwarp();
#pragma unroll
    for (int chunk = 0; chunk < 8; chunk += 4)
      sum.add(a, table, x, ring + stage * BYTES, (int)(at / 8) + chunk, chunk);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  skinny_join<D, HALVES, R, RESULT>(a.s, sum.c, shared + scales, first, bias);
}

/* Floats, a warp for each column of the weight. A part is 16 bytes of it, of
 * one group. */
template <int Q, int M, int RESULT>
__global__ void __launch_bounds__(QUANTIZED_THREADS)
    rows(const __grid_constant__ quantized_args a) {
  enum { EACH = Q == FL_U8 ? 32 : 16, WORD = EACH / 4,
         COLUMNS = QUANTIZED_THREADS / 32 };
  __shared__ float sums[COLUMNS * M * COLUMNS];
  const gemm_args &g = a.s.g;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t first = (int64_t)blockIdx.x * COLUMNS, col = first + warp;
  fl_begin();
  const float bias = skinny_bias<FL_F32, COLUMNS, float>(g, first);
  int parts = col < g.n ? (int)(g.k / EACH) : 0;
  const uint32_t *weight = (const uint32_t *)g.b + col * parts * 4;
  float sum[M] = {};
  for (int p = lane; p < parts; p += 32) {
    fl_vec<uint32_t, 4> w = fl_fetch<uint32_t, 4>(weight + p * 4);
    float scale, zero, part[M] = {};
    quantized_params(a, col * a.groups + p / a.parts, &scale, &zero);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float q[WORD];
      uint32_t bits = Q == FL_U8 ? w.at[j] : w.at[j] ^ 0x80808080u;
#pragma unroll
      for (int i = 0; i < WORD; i++)
        q[i] = (Q == FL_U8
                    ? quantized_float(bits >> (4 * i) & 15) - EXACT
                    : quantized_float(bits >> (8 * i) & 255) - (EXACT + 128)) -
               zero;
#pragma unroll
      for (int m = 0; m < M; m++) {
        const float *x = (const float *)g.a + (m < g.m ? m : 0) * g.am +
                         p * EACH + j * WORD;
#pragma unroll
        for (int i = 0; i < WORD; i += 4) {
          fl_vec<float, 4> v = fl_read<float, 4>(x + i);
#pragma unroll
          for (int e = 0; e < 4; e++)
            part[m] += q[i + e] * v.at[e];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
      sum[m] += scale * part[m];
  }
  /* as if each warp had parts of all columns */
  for (int i = threadIdx.x; i < COLUMNS * M * COLUMNS; i += QUANTIZED_THREADS)
    sums[i] = 0;
  __syncthreads();
#pragma unroll
  for (int m = 0; m < M; m++) {
    float y = fl_warp_reduce(sum[m], fl_sum_of());
    if (lane == 0)
      sums[(warp * M + m) * COLUMNS + warp] = y;
  }
  __syncthreads();
  skinny_finish<FL_F32, COLUMNS, RESULT>(a.s, sums, M, 0, first, bias);
}
