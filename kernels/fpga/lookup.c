/* y = f(x) for n neighbours, by a table of f on [-16, 16]. Outside, f is taken
 * to be a line: the table's end and a slope there, 0 or 1. */
#include "kernels.h"

void fl_fpga_lookup(CLOCK const float *x, const int32_t *table, float *y, int n,
                    float slope) {
#pragma HLS INTERFACE m_axi port = x bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = table bundle = gmem1 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = y bundle = gmem2 max_widen_bitwidth = 512
#pragma HLS INTERFACE s_axilite port = return
  int32_t f[TABLE + 1]; /* a copy for each two lanes */
  load_table(ON(clock) table, f);
  LOOP(READ_DEPTH + LOOK_DEPTH + WRITE_DEPTH, beats_of(n, LANES));
  for (int c = 0; c < n; c++) {
#pragma HLS UNROLL factor = 16
    float in = x[c], within = in < -16 ? -16 : in > 16 ? 16 : in;
    float line = in > 16 ? (in - 16) * slope : 0;
    y[c] = in != in ? in : look_up(f, within, -16, TABLE / 32.0f) + line;
  }
}
