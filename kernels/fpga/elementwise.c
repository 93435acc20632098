/* y = a op b for (rows, cols) elements: adders and multipliers of f32, so that
 * results are those of any processor. Strides of 0 repeat an operand. */
#include "kernels.h"

/* By number in driver.c and elementwise.json, too. */
enum { OP_ADD, OP_SUB, OP_MUL, OP_RELU, OP_COPY };

static float compute_one(int op, float a, float b) {
  switch (op) {
  case OP_ADD:
    return a + b;
  case OP_SUB:
    return a - b;
  case OP_MUL:
    return a * b;
  case OP_RELU:
    return a > 0 || a != a ? a : 0;
  default:
    return a;
  }
}

/* Elements a cycle of an operand; a repeated one is read once. */
static int operand_lanes(int row, int col) {
  return col == 0 ? LANES : lanes_of(row, col);
}

/* y is contiguous. */
void fl_fpga_elementwise(CLOCK const float *a, const float *b, float *y,
                         int rows, int cols, int a_row, int a_col, int b_row,
                         int b_col, int op) {
#pragma HLS INTERFACE m_axi port = a bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = b bundle = gmem1 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = y bundle = gmem2 max_widen_bitwidth = 512
#pragma HLS INTERFACE s_axilite port = return
  int one = rows == 1; /* then nothing begins in the middle of a beat */
  int lanes = lanes_of(one ? 0 : cols, 1);
  int la = operand_lanes(one ? 0 : a_row, a_col);
  int lb = operand_lanes(one ? 0 : b_row, b_col);
  lanes = la < lanes ? la : lanes;
  lanes = lb < lanes ? lb : lanes;
  LOOP(READ_DEPTH + ADD_DEPTH + WRITE_DEPTH,
       (int64_t)rows * beats_of(cols, lanes));
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < cols; c += lanes) {
#pragma HLS PIPELINE II = 1
      for (int t = 0; t < LANES; t++) {
#pragma HLS UNROLL
        if (t < lanes && c + t < cols) {
          int64_t at = c + t;
          y[(int64_t)r * cols + at] =
              compute_one(op, a[(int64_t)r * a_row + at * a_col],
                          b[(int64_t)r * b_row + at * b_col]);
        }
      }
    }
}
