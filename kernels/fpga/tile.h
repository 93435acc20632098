/* The array of 16 x 16 multipliers with its buffers, which product.c and
 * attention.c share. For Vitis HLS, as hls.h. */
#ifndef FL_FPGA_TILE_H
#define FL_FPGA_TILE_H

#include "hls.h"

#define CHUNK 512 /* elements of a row in a buffer */

/* Rows as they come from memory, and the largest exponent of each. */
typedef struct rows {
  float x[TILE][CHUNK];
  int e[TILE];
} rows;

static inline void keep_element(rows *to, int r, int c, float x) {
  int e = exponent_of(x);
  to->x[r][c] = x;
  to->e[r] = e > to->e[r] ? e : to->e[r];
}

/* n rows of k elements. A column of rows that are neighbours comes in a cycle
 * as well, so that a matrix may be read in both directions. */
static inline void load_rows(CLOCK const float *from, int row, int col, int n,
                             int k, rows *to) {
#pragma HLS INLINE off
  int lanes = lanes_of(row, col);
  for (int r = 0; r < TILE; r++)
#pragma HLS UNROLL
    to->e[r] = 0;
  if (row == 1 && lanes_of(col, row) == LANES) {
    LOOP(READ_DEPTH, k);
    for (int c = 0; c < k; c++) {
#pragma HLS PIPELINE II = 1
      for (int r = 0; r < TILE; r++)
#pragma HLS UNROLL
        if (r < n)
          keep_element(to, r, c, from[r + (int64_t)c * col]);
    }
    return;
  }
  LOOP(READ_DEPTH, (int64_t)n * beats_of(k, lanes));
  for (int r = 0; r < n; r++)
    for (int c = 0; c < k; c += lanes) {
#pragma HLS PIPELINE II = 1
      for (int t = 0; t < LANES; t++)
#pragma HLS UNROLL
        if (t < lanes && c + t < k)
          keep_element(to, r, c + t,
                       from[(int64_t)r * row + (int64_t)(c + t) * col]);
    }
}

/* sum += a b^T for m rows of a and n of b. */
static inline void multiply_rows(CLOCK const rows *a, const rows *b, int m,
                                 int n, int k, float sum[TILE][TILE]) {
#pragma HLS INLINE off
  int64_t acc[TILE][TILE] = {{0}}; /* 48 bits */
#pragma HLS ARRAY_PARTITION variable = acc complete dim = 0
  LOOP(MAC_DEPTH, k);
  for (int c = 0; c < k; c++) {
#pragma HLS PIPELINE II = 1
    int16_t p[TILE], q[TILE];
    for (int r = 0; r < TILE; r++) {
#pragma HLS UNROLL
      p[r] = r < m ? to_fixed(a->x[r][c], a->e[r]) : 0;
      q[r] = r < n ? to_fixed(b->x[r][c], b->e[r]) : 0;
    }
    for (int i = 0; i < TILE; i++)
#pragma HLS UNROLL
      for (int j = 0; j < TILE; j++)
#pragma HLS UNROLL
        acc[i][j] += (int32_t)p[i] * q[j];
  }
  LOOP(ADD_DEPTH, TILE); /* a row of sums each cycle */
  for (int i = 0; i < TILE; i++) {
#pragma HLS PIPELINE II = 1
    for (int j = 0; j < TILE; j++)
#pragma HLS UNROLL
      sum[i][j] += from_fixed(acc[i][j], a->e[i], b->e[j]);
  }
}

static inline int tile_rows(int n, int from) {
  return n - from < TILE ? n - from : TILE;
}

#endif
