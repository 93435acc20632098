/* What attention's kernels for Hopper share. */
#pragma once

#include "attention.cuh"
#include "attention_sm90.h"
#include "../device/wgmma.cuh"

/* W columns of ROWS rows from `row`: W / 64 boxes, one after the other. */
template <int W, int ROWS>
void wide_load(uint32_t to, const attention_map &map, uint32_t bar, int row,
               int head, int batch) {
  for (int c = 0; c < W / 64; c++)
    fl_tile_load(to + c * ROWS * 128, (const fl_tensor_map *)&map, bar, 64 * c,
                 row, head, batch);
}

/* A mask's bits for the lane's two rows; a lane without a row reads the first
 * one, and its results are not stored. */
struct wide_mask {
  const uint32_t *row[2];
  int word;
};
inline wide_mask wide_mask_of(const attention_bits &m, int64_t b, int64_t h,
                              int64_t row, int64_t rows) {
  const uint32_t *first = m.data + b * m.batch + h * m.head;
  row += threadIdx.x % 32 / 4;
  return {{first + (row < rows ? row : 0) * m.row,
           first + (row + 8 < rows ? row + 8 : 0) * m.row},
          m.word};
}

/* The words of N columns from `col`, a multiple of N: bit 8 (j % 4) + e of word
 * j / 4 is for the lane's s[j][e]. */
template <int N> struct wide_words {
  uint32_t at[2][N / 32];
  inline wide_words(const wide_mask &m, int col) {
    int turn = 2 * (threadIdx.x & 3);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      fl_vec<uint32_t, N / 32> w =
          fl_read<uint32_t, N / 32>(m.row[half] + col / 32 * m.word);
#pragma unroll
      for (int i = 0; i < N / 32; i++)
        at[half][i] = w.at[i] >> turn;
    }
  }
  /* What the mask forbids becomes `value`. */
  inline void hide(float (&s)[N / 8][4], float value) const {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!(at[e >> 1][j / 4] >> (8 * (j % 4) + (e & 1)) & 1))
          s[j][e] = value;
  }
};

/* Sums (64, N) as the left operand of products: 16 columns to each p[i]. */
template <int D, int N>
void wide_pack(uint32_t (&p)[N / 16][4], const float (&s)[N / 8][4]) {
#pragma unroll
  for (int i = 0; i < N / 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      p[i][j] = fl_pack<D>(s[2 * i + j / 2][2 * (j & 1)],
                           s[2 * i + j / 2][2 * (j & 1) + 1]);
}
