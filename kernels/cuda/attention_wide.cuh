/* What attention's kernels for Hopper share. */
#pragma once

#include "attention.cuh"
#include "attention_wide.h"
#include "wgmma.cuh"

/* W columns of ROWS rows from `row`: W / 64 boxes, one after the other. */
template <int W, int ROWS>
void wide_load(uint32_t to, const attention_map &map, uint32_t bar, int row,
               int head, int batch) {
  for (int c = 0; c < W / 64; c++)
    fl_tile_load(to + c * ROWS * 128, (const fl_tensor_map *)&map, bar, 64 * c,
                 row, head, batch);
}

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
