/* y = x w^T + bias, for x (m, k) and w (n, k) with any strides: an array of
 * 16 x 16 multipliers of 16 bits, tile by tile of y. While one chunk of k is
 * multiplied, the next one is read. */
#include "kernels.h"
#include "tile.h"

static void store_tile(CLOCK float *y, int row, int m, int n, const float *bias,
                       float sum[TILE][TILE]) {
#pragma HLS INLINE off
  int lanes = lanes_of(row, 1);
  LOOP(WRITE_DEPTH, (int64_t)m * beats_of(n, lanes));
  for (int i = 0; i < m; i++)
    for (int c = 0; c < n; c += lanes) {
#pragma HLS PIPELINE II = 1
      for (int t = 0; t < LANES; t++) {
#pragma HLS UNROLL
        if (t < lanes && c + t < n) {
          y[(int64_t)i * row + c + t] = sum[i][c + t] + bias[c + t];
          sum[i][c + t] = 0;
        }
      }
    }
}

/* Step s of a product is chunk s % chunks of tile s / chunks. */
typedef struct step {
  int i, j, c, m, n, k; /* where, and how many rows, columns, products */
} step;

static step step_at(int64_t s, int m, int n, int k) {
  int chunks = (k + CHUNK - 1) / CHUNK, across = (m + TILE - 1) / TILE;
  int64_t tile = s / chunks;
  step t = {(int)(tile % across) * TILE,
            (int)(tile / across) * TILE,
            (int)(s % chunks) * CHUNK,
            0,
            0,
            0};
  t.m = tile_rows(m, t.i);
  t.n = tile_rows(n, t.j);
  t.k = k - t.c < CHUNK ? k - t.c : CHUNK;
  return t;
}

/* The operands of a step, each through its own port. */
static void load_step(CLOCK step t, const float *x, int x_row, int x_col,
                      const float *w, int w_row, int w_col, rows *a, rows *b) {
#pragma HLS INLINE off
  FORK(one, other);
  load_rows(ON(one) x + (int64_t)t.i * x_row + (int64_t)t.c * x_col, x_row,
            x_col, t.m, t.k, a);
  load_rows(ON(other) w + (int64_t)t.j * w_row + (int64_t)t.c * w_col, w_row,
            w_col, t.n, t.k, b);
  JOIN(one, other);
}

static void load_bias(CLOCK const float *from, int n, int has, float *bias) {
#pragma HLS INLINE off
  LOOP(READ_DEPTH, has ? beats_of(n, LANES) : 0);
  for (int c = 0; c < TILE; c++)
#pragma HLS UNROLL
    bias[c] = has && c < n ? from[c] : 0;
}

/* Rows of y have neighbouring elements; m, n and k are at least 1. */
void fl_fpga_product(CLOCK const float *x, const float *w, const float *bias,
                     float *y, int m, int n, int k, int x_row, int x_col,
                     int w_row, int w_col, int y_row, int has_bias) {
#pragma HLS INTERFACE m_axi port = x bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = w bundle = gmem1 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = bias bundle = gmem2 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = y bundle = gmem3 max_widen_bitwidth = 512
#pragma HLS INTERFACE s_axilite port = return
  rows a[2], b[2];
#pragma HLS ARRAY_PARTITION variable = a complete dim = 1
#pragma HLS ARRAY_PARTITION variable = b complete dim = 1
  float sum[TILE][TILE] = {{0}}, add[TILE];
#pragma HLS ARRAY_PARTITION variable = sum complete dim = 0
  int64_t chunks = (k + CHUNK - 1) / CHUNK;
  int64_t steps = chunks * ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE);
  load_step(ON(clock) step_at(0, m, n, k), x, x_row, x_col, w, w_row, w_col,
            &a[0], &b[0]);
  for (int64_t s = 0; s < steps; s++) {
    step t = step_at(s, m, n, k);
    int here = (int)(s & 1);
    FORK(reads, works);
    if (s + 1 < steps)
      load_step(ON(reads) step_at(s + 1, m, n, k), x, x_row, x_col, w, w_row,
                w_col, &a[!here], &b[!here]);
    if (t.i == 0 && t.c == 0)
      load_bias(ON(works) bias + t.j, t.n, has_bias, add);
    multiply_rows(ON(works) & a[here], &b[here], t.m, t.n, t.k, sum);
    if (t.c + t.k == k)
      store_tile(ON(works) y + (int64_t)t.i * y_row + t.j, y_row, t.m, t.n, add,
                 sum);
    JOIN(reads, works);
  }
}
