/* The kernels as the emulator calls them: the arguments of their descriptors
 * (product.json and so on), in that order, after a clock that counts. */
#ifndef FL_FPGA_KERNELS_H
#define FL_FPGA_KERNELS_H

#include "hls.h"

void fl_fpga_product(CLOCK const float *x, const float *w, const float *bias,
                     float *y, int m, int n, int k, int x_row, int x_col,
                     int w_row, int w_col, int y_row, int has_bias);
void fl_fpga_softmax(CLOCK const float *x, const int32_t *table, float *y,
                     int rows, int n, int x_row);
void fl_fpga_lookup(CLOCK const float *x, const int32_t *table, float *y, int n,
                    float slope);
void fl_fpga_elementwise(CLOCK const float *a, const float *b, float *y,
                         int rows, int cols, int a_row, int a_col, int b_row,
                         int b_col, int op);
void fl_fpga_attention(CLOCK const float *q, const float *k, const float *v,
                       const int32_t *table, float *y, float *stats, int t,
                       int s, int d, int q_row, int k_row, int v_row, int y_row,
                       float scale, int causal);

#endif
