/* What the kernels of depthwise.cu get: convolutions, or gradients of them, of
 * groups that have few channels. Dims 0 and 1 are rows and columns. Results at
 * places q gather from a source at q * step + base + u * hop for taps u, as in
 * conv.h, with hop > 0. Strides are in elements. */
#ifndef FL_CUDA_DEPTHWISE_H
#define FL_CUDA_DEPTHWISE_H

#include "conv.h"

#define DEPTHWISE       128        /* threads of a block */
#define DEPTHWISE_ROOM  (48 << 10) /* bytes of weights in shared memory */
#define DEPTHWISE_DEPTH 8          /* threads that sum pieces of a weight */

typedef struct depthwise_args {
  const void *x, *w, *bias; /* gradient of weights: w is dy */
  void *y;
  float *part; /* gradient of weights: sums of (split, tap, line) */
  int bias_dtype;
  int64_t x_image, x_channel, y_image, y_channel, y_at;
  int x_row, x_col, y_row, y_col;
  int x_hop;              /* from a tap to the next */
  int x_size[2], size[2]; /* of the source, and of the places */
  int step[2], base[2], hop[2];
  int every[2];  /* places of a thread are so far apart: hop / gcd(step, hop) */
  int stretch;   /* rows: step / gcd(step, hop) */
  int height;    /* gradient of weights: rows that a thread has at once */
  int strips;    /* of columns, in one row */
  int64_t spots; /* tiles of a line, a thread's; gradient of weights: of all
                    images */
  conv_divider by_strips, by_rows;
  /* lines: (image, channels); gradient of weights: (output, input) pairs */
  int64_t lines;
  conv_divider by_line, by_group; /* lines of an image, results of a group */
  int channels;                   /* of a group in the source */
  int lane_bits;                  /* log2 of the lines of a block */
  int64_t line_blocks;
  int turns; /* tiles that a thread does, one after the other */
  /* taps: `chunk` rows are in shared memory at a time */
  int taps[2], segments, chunk;
  conv_divider by_padded; /* columns of taps, as they are in shared memory */
  int pitch;              /* floats from tap to tap, or line to line */
  /* weights, from (group, result, source, tap row, tap column) */
  int64_t w_group, w_result, w_channel, w_at;
  int w_row, w_col;
  int splits;
} depthwise_args;

#endif
