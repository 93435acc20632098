/* Products of tiles on tensor cores, 16-bit elements, sums in float: operands
 * come into shared memory in steps of FL_STEP elements of the sum, several
 * steps ahead. gemm.cu and conv.cu say where the operands come from. */
#pragma once

#define FL_STEP 64 /* elements of the sum: lines of 128 bytes */

#include "tile_sm90.cuh"

/* A tile lies in shared memory in lines of 128 bytes. Where memory runs along
 * k: ROWS lines of FL_STEP elements. Where it runs across k: ROWS / 64 parts,
 * each of FL_STEP lines of 64 elements. */
inline uint32_t fl_across(int k, int row) {
  return (uint32_t)(row >> 6) * (FL_STEP * 128) +
         fl_swizzle<128>(k, (row & 63) >> 3);
}

/* --- the product --- */

/* C (BM, BN) of one block, cut among warps into (WM, WN); AK, BK: whether the
 * operands' memory runs along k. */
template <int D, int BM, int BN, int WM, int WN, bool AK, bool BK>
struct fl_tile {
  static constexpr int DOWN = BM / WM, THREADS = DOWN * (BN / WN) * 32;
  static constexpr int B_AT = BM * 128, BYTES = B_AT + BN * 128; /* of a step */
  float sum[WM / 16][WN / 8][4];
  uint32_t a[2][WM / 16][4], b[2][WN / 16][4];
  int lane, row, col;

  fl_tile() {
    int warp = threadIdx.x >> 5;
    lane = threadIdx.x & 31;
    row = warp % DOWN * WM;
    col = warp / DOWN * WN;
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          sum[i][j][e] = 0;
  }

  void take(int buffer, uint32_t at, int k) {
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
      if (AK)
        fl_ldmatrix(a[buffer][i],
                    at + fl_swizzle<128>(row + i * 16 + (lane & 15),
                                         k / 8 + (lane >> 4)));
      else
        fl_ldmatrix_trans(a[buffer][i],
                          at + fl_across(k + (lane & 7) + (lane >> 4) * 8,
                                         row + i * 16 + (lane & 8)));
    at += B_AT;
#pragma unroll
    for (int j = 0; j < WN / 16; j++)
      if (BK)
        fl_ldmatrix(
            b[buffer][j],
            at + fl_swizzle<128>(col + j * 16 + (lane & 7) + (lane >> 4) * 8,
                                 k / 8 + (lane >> 3 & 1)));
      else
        fl_ldmatrix_trans(
            b[buffer][j],
            at + fl_across(k + (lane & 15), col + j * 16 + (lane >> 4) * 8));
  }

  /* The step that lies at `at`: A, then B. */
  void step(uint32_t at) {
    take(0, at, 0);
#pragma unroll
    for (int k = 0; k < FL_STEP; k += 16) {
      int now = k / 16 & 1;
      if (k + 16 < FL_STEP)
        take(now ^ 1, at, k + 16);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++)
          fl_mma<D>(sum[i][j], a[now][i], b[now][j / 2][j % 2 * 2],
                    b[now][j / 2][j % 2 * 2 + 1]);
    }
  }

  /* C into shared memory, rows of LD floats; 8 more than BN avoid conflicts. */
  template <int LD> void put(float *to) {
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++) {
        float *p =
            to + (row + i * 16 + lane / 4) * LD + col + j * 8 + lane % 4 * 2;
        *(float2 *)p = make_float2(sum[i][j][0], sum[i][j][1]);
        *(float2 *)(p + 8 * LD) = make_float2(sum[i][j][2], sum[i][j][3]);
      }
  }

  /* The same by columns of LD floats; 4 more than BM avoid conflicts. */
  template <int LD> void put_turned(float *to) {
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          to[(col + j * 8 + lane % 4 * 2 + (e & 1)) * LD + row + i * 16 +
             lane / 4 + (e >> 1) * 8] = sum[i][j][e];
  }
};

/* The blocks that there are: C (M, N), steps that are in shared memory at a
 * time. gemm.c and conv_native.c know them too. */
template <int SIZE> struct fl_size;
template <> struct fl_size<0> {
  enum { M = 64, N = 64, W = 32, THREADS = 128, STAGES = 4 };
};
template <> struct fl_size<1> {
  enum { M = 128, N = 128, W = 64, THREADS = 128, STAGES = 3 };
};
template <> struct fl_size<2> {
#ifdef FL_HOPPER
  enum {M = 128, N = 256, W = 64, THREADS = 256, STAGES = 4};
#else
  enum { M = 128, N = 256, W = 64, THREADS = 256, STAGES = 3 };
#endif
};

#ifdef FL_HOPPER
template <int D, int SIZE, bool AK, bool BK>
using fl_tile_of = fl_hopper_tile<D, fl_size<SIZE>::M, fl_size<SIZE>::N,
                                  fl_size<SIZE>::THREADS, AK, BK>;
#else
template <int D, int SIZE, bool AK, bool BK>
using fl_tile_of = fl_tile<D, fl_size<SIZE>::M, fl_size<SIZE>::N,
                           fl_size<SIZE>::W, fl_size<SIZE>::W, AK, BK>;
#endif

/* Steps begin .. end - 1 of the sum. a.load(at, step) and b.load queue the
 * copies of their part; all have landed, and all warps have read, at the end.
 */
template <int STAGES, class Tile, class A, class B>
void fl_multiply(Tile &t, A &a, B &b, int begin, int end, uint32_t shared) {
#ifdef FL_HOPPER
  fl_hopper_multiply<STAGES, Tile::THREADS == 256>(t, a, b, begin, end, shared);
#else
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (begin + s < end) {
      a.load(shared + s * Tile::BYTES, begin + s);
      b.load(shared + s * Tile::BYTES + Tile::B_AT, begin + s);
    }
    fl_copy_commit();
  }
  int read = 0, write = STAGES - 1;
  for (int step = begin; step < end; step++) {
    fl_copy_wait<STAGES - 2>();
    __syncthreads();
    int next = step + STAGES - 1;
    if (next < end) {
      a.load(shared + write * Tile::BYTES, next);
      b.load(shared + write * Tile::BYTES + Tile::B_AT, next);
    }
    fl_copy_commit();
    t.step(shared + read * Tile::BYTES);
    read = read + 1 == STAGES ? 0 : read + 1;
    write = write + 1 == STAGES ? 0 : write + 1;
  }
  fl_copy_wait<0>();
  __syncthreads();
#endif
}

/* --- operands that are matrices --- */

inline int fl_clip(int64_t n, int most) {
  return n < 0 ? 0 : n > most ? most : (int)n;
}

/* n of 8 elements from anywhere, zeros after; whole words only from between lo
 * and hi. */
inline void fl_fetch(uint32_t (&r)[4], const uint16_t *p, int n,
                     const uint16_t *lo, const uint16_t *hi) {
  int shift = (int)((uintptr_t)p & 15);
  const uint16_t *q = (const uint16_t *)((uintptr_t)p - shift);
  if (n == 8 && q >= lo && q + 16 <= hi) {
    uint4 x = ((const uint4 *)q)[0], y = ((const uint4 *)q)[1];
    uint32_t w[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 6; i++)
      w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++)
      w[i] = shift & 4 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 4; i++)
      r[i] = shift & 2 ? __funnelshift_r(w[i], w[i + 1], 16) : w[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t low = 2 * i < n ? p[2 * i] : 0;
    uint32_t high = 2 * i + 1 < n ? p[2 * i + 1] : 0;
    r[i] = low | high << 16;
  }
}

/* `rows` lines, `ld` elements apart, of k elements each (ALONG), or k lines of
 * `rows` elements. FIT: every line and `p` are aligned to 16 bytes. */
template <int ROWS, int THREADS, bool ALONG, bool FIT> struct fl_matrix {
  const uint16_t *p, *end;
  int64_t ld, k;
  int rows;

  fl_matrix(const void *at, int64_t skip, int64_t ld, int64_t left, int64_t k)
      : p((const uint16_t *)at + skip * (ALONG ? ld : 1)), ld(ld), k(k),
        rows(fl_clip(left, ROWS)) {
    end = ALONG ? p + (rows - 1) * ld + k : p + (k - 1) * ld + rows;
  }

  void one(uint32_t to, const uint16_t *from, int n) {
    if (FIT) {
      fl_copy_part<16>(to, n > 0 ? from : p, n * 2);
    } else {
      uint32_t r[4];
      fl_fetch(r, from, n, p, end);
      fl_store16(to, r);
    }
  }

  void load(uint32_t at, int step) {
    int64_t first = (int64_t)step * FL_STEP;
    if (ALONG) {
      int chunk = threadIdx.x & 7, row = threadIdx.x >> 3;
      int n = fl_clip(k - first - chunk * 8, 8);
      const uint16_t *from = p + row * ld + first + chunk * 8;
      at += fl_swizzle<128>(row, chunk);
#pragma unroll
      for (int i = 0; i < ROWS; i += THREADS / 8)
        one(at + i * 128, from + i * ld, row + i < rows ? n : 0);
    } else {
      constexpr int LINES = THREADS * 8 / ROWS;
      int chunk = threadIdx.x % (ROWS / 8), line = threadIdx.x / (ROWS / 8);
      int n = fl_clip(rows - chunk * 8, 8);
      int lines = fl_clip(k - first, FL_STEP);
      const uint16_t *from = p + (first + line) * ld + chunk * 8;
#pragma unroll
      for (int i = 0; i < FL_STEP; i += LINES)
        one(at + fl_across(line + i, chunk * 8), from + i * ld,
            line + i < lines ? n : 0);
    }
  }
};
