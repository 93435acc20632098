/* Products of tiles of f32 by tensor cores, for attention: each number is the
 * sum of two of 11 bits, and three products of those have all but 2^-22 of it
 * ("3xTF32" in CUTLASS). Tiles lie in shared memory as they are; what is read
 * from there is split in registers, once for all that it is multiplied with. */
#pragma once

#include "attention.cuh"

/* Rows of W + 4 floats: an odd number of 16 bytes, so that rows below each
 * other, and pairs of them, are in different banks. */
template <int W> struct att_pitch {
  enum { FLOATS = W + 4, BYTES = FLOATS * 4 };
};

/* Rows first.. of one head, W columns; zeros after `rows` rows and `cols`
 * columns (a multiple of 4). Queues copies. */
template <int ROWS, int W>
void att_fetch32(uint32_t to, const float *from, int64_t stride, int64_t first,
                 int64_t rows, int cols) {
  int left = rows - first < ROWS ? (int)(rows - first) : ROWS;
  from += first * stride;
#pragma unroll
  for (int i = 0; i < ROWS * (W / 4); i += ATT_THREADS) {
    int n = i + threadIdx.x, row = n / (W / 4), chunk = n % (W / 4);
    bool valid = row < left && chunk * 4 < cols;
    fl_copy16(to + row * att_pitch<W>::BYTES + chunk * 16,
              from + (valid ? (int64_t)row * (int)stride + chunk * 4 : 0),
              valid);
  }
}

/* The upper 11 bits, and what is left, rounded to as many: the unit drops the
 * rest. An infinity leaves nothing. */
inline void att_split(uint32_t x, uint32_t &high, uint32_t &low) {
  high = x & 0xffffe000;
  low = __float_as_uint(__uint_as_float(x) - __uint_as_float(high)) + 0x1000;
}

/* (16, 8) of the left operand. */
struct att_left {
  uint32_t high[4], low[4];
  inline void set(const uint32_t (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      att_split(x[i], high[i], low[i]);
  }
};
/* N times (8, 8) of the right one. */
template <int N> struct att_right {
  uint32_t high[N][2], low[N][2];
  inline void set(int n, uint32_t x0, uint32_t x1) {
    att_split(x0, high[n][0], low[n][0]);
    att_split(x1, high[n][1], low[n][1]);
  }
};

/* Tiles at.. of N beside each other: c += a b, of which `small` gets the small
 * products; it may be c. Neighbours do not wait for each other. */
template <int N, int ALL>
void att_multiply(float (&c)[ALL][4], float (&small)[ALL][4], int at,
                  const att_left &a, const att_right<N> &b) {
#pragma unroll
  for (int i = 0; i < N; i++)
    fl_mma_tf32(small[at + i], a.low, b.high[i]);
#pragma unroll
  for (int i = 0; i < N; i++)
    fl_mma_tf32(small[at + i], a.high, b.low[i]);
#pragma unroll
  for (int i = 0; i < N; i++)
    fl_mma_tf32(c[at + i], a.high, b.high[i]);
}

/* c = a b^T, (16, W) by (N, W); a, b: where they begin. The unit cuts off what
 * a sum has no bits for: small products have sums of their own. */
template <int W, int N>
void att_scores32(float (&c)[N / 8][4], uint32_t a, uint32_t b) {
  const int pitch = att_pitch<W>::BYTES;
  int lane = threadIdx.x & 31;
  a += (lane & 15) * pitch + (lane >> 4) * 16;
  b += ((lane & 7) + (lane >> 4 << 3)) * pitch + (lane >> 3 & 1) * 16;
  float small[N / 8][4] = {};
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    c[i / 4][i % 4] = 0;
#pragma unroll 4
  for (int k = 0; k < W / 8; k++) {
    att_left left;
    uint32_t x[4];
    fl_ldmatrix(x, a + 32 * k);
    left.set(x);
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
      att_right<2> right;
      fl_ldmatrix(x, b + 8 * j * pitch + 32 * k);
      right.set(0, x[0], x[1]);
      right.set(1, x[2], x[3]);
      att_multiply(c, small, j, left, right);
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    c[i / 4][i % 4] += small[i / 4][i % 4];
}

/* c (16, W) = c * ratio + p (16, K) b (K, W), a ratio for rows before 8 and one
 * for the others; p is the sums of a product. Of each 8 rows of b a lane takes
 * two below each other, as p has them beside each other, and 4 columns of each
 * 32: c[4 g + i] has of each row columns 32 g + 4 n + i, n from 0 to 7. Sums of
 * many tiles are added up outside the unit, which would cut off each time. */
template <int W, int K>
void att_update32(float (&c)[W / 8][4], const float (&ratio)[2],
                  const float (&p)[K / 8][4], const float *b) {
  const int pitch = att_pitch<W>::FLOATS;
  int lane = threadIdx.x & 31;
  float sum[W / 8][4] = {};
  b += lane % 4 * 2 * pitch + lane / 4 * 4;
#pragma unroll
  for (int k = 0; k < K / 8; k++) {
    att_left left;
    uint32_t s[4] = {__float_as_uint(p[k][0]), __float_as_uint(p[k][2]),
                     __float_as_uint(p[k][1]), __float_as_uint(p[k][3])};
    left.set(s);
#pragma unroll
    for (int g = 0; g < W / 32; g++) {
      const uint4 *at = (const uint4 *)(b + 8 * k * pitch + 32 * g);
      uint4 x = *at, y = at[pitch / 4];
      att_right<4> right;
      right.set(0, x.x, y.x);
      right.set(1, x.y, y.y);
      right.set(2, x.z, y.z);
      right.set(3, x.w, y.w);
      att_multiply(sum, sum, 4 * g, left, right);
    }
  }
#pragma unroll
  for (int i = 0; i < W / 2; i++)
    c[i / 4][i % 4] =
        fmaf(c[i / 4][i % 4], ratio[i / 2 % 2], sum[i / 4][i % 4]);
}

/* Writes 16 rows of such sums, times factor[0] and, rows 8.., factor[1], as
 * rows first.. of memory with `stride`. */
template <int W>
void att_save32(const float (&c)[W / 8][4], const float (&factor)[2], float *to,
                int64_t stride, int64_t first, int64_t rows, int cols) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t row = first + lane / 4 + 8 * half;
    if (row >= rows)
      return;
#pragma unroll
    for (int i = 0; i < W / 16; i++) {
      int g = i / 2, e = 2 * half + i % 2,
          col = 32 * g + 8 * (lane % 4) + 4 * (i % 2);
      float *at = to + row * stride + col;
      float v[4] = {c[4 * g][e] * factor[half], c[4 * g + 1][e] * factor[half],
                    c[4 * g + 2][e] * factor[half],
                    c[4 * g + 3][e] * factor[half]};
      if (cols % 4 == 0) { /* then so are all strides of a result */
        if (col < cols)
          *(float4 *)at = {v[0], v[1], v[2], v[3]};
      } else
#pragma unroll
        for (int n = 0; n < 4; n++)
          if (col + n < cols)
            at[n] = v[n];
    }
  }
}
