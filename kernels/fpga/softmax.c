/* y = softmax of each row of x (rows, n), for rows of at most 4096 elements.
 * exp comes from a table of exp on [-16, 0]; below that it is 0. */
#include "kernels.h"

#define LONGEST 4096

void fl_fpga_softmax(CLOCK const float *x, const int32_t *table, float *y,
                     int rows, int n, int x_row) {
#pragma HLS INTERFACE m_axi port = x bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = table bundle = gmem1 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = y bundle = gmem2 max_widen_bitwidth = 512
#pragma HLS INTERFACE s_axilite port = return
  float row[LONGEST];
#pragma HLS ARRAY_PARTITION variable = row cyclic factor = 16
  int32_t exps[TABLE + 1]; /* a copy for each two lanes */
  load_table(ON(clock) table, exps);
  int in = lanes_of(x_row, 1), out = lanes_of(n, 1);
  for (int r = 0; r < rows; r++) {
    const float *from = x + (int64_t)r * x_row;
    float *to = y + (int64_t)r * n;
    float most = from[0], sum = 0;
    LOOP(READ_DEPTH, beats_of(n, in));
    for (int c = 0; c < n; c++) {
#pragma HLS UNROLL factor = 16
      row[c] = from[c];
      most = row[c] > most || row[c] != row[c] ? row[c] : most;
    }
    LOOP(LOOK_DEPTH, beats_of(n, LANES));
    int64_t total = 0; /* of at most 4096 numbers of 27 bits */
    for (int c = 0; c < n; c++) {
#pragma HLS UNROLL factor = 16
      row[c] = exp_by(exps, row[c] - most);
      total += row[c] == row[c] ? (int64_t)ldexpf(row[c], TABLE_BITS) : 0;
    }
    sum = most - most == 0 ? ldexpf((float)total, -TABLE_BITS) : NAN;
    LOOP(DIV_DEPTH + WRITE_DEPTH, beats_of(n, out));
    for (int c = 0; c < n; c++)
#pragma HLS UNROLL factor = 16
      to[c] = row[c] / sum;
  }
}
