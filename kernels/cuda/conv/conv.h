/* What the kernels of conv.cu and conv_plain.cu get. Convolution and the
 * gradient of its input are one loop: results at places q of a grid, of all
 * images, gather from a source at q * step + base + u * hop for taps u. Missing
 * dims have size 1. Strides are in elements. */
#ifndef FL_CUDA_CONV_H
#define FL_CUDA_CONV_H

typedef struct conv_divider { /* n / by for 0 <= n < 2^31 */
  uint32_t by, multiply;
  int shift;
} conv_divider;

typedef struct conv_args {
  const void *x, *w, *bias; /* w: gradient of weights: dy */
  void *y;
  float *part; /* gradient of weights: sums of (split, group, row, column) */
  int bias_dtype;
  int64_t images, groups;
  /* the source: channels of a group, as they lie in memory */
  int64_t x_image, x_group, x_channel, x_place[3];
  int size[3], channels;
  /* the grid */
  int grid[3], step[3], base[3], hop[3];
  int64_t places; /* of an image */
  conv_divider by_places, by_grid1, by_grid2;
  /* taps u of this launch, tap first + u * every of the kernel */
  int taps[3], n_taps, first[3], every[3], kernel[3];
  conv_divider by_channels, by_taps, by_taps1, by_taps2;
  /* the destination */
  int64_t y_image, y_channel, y_place[3], y_at;
  int rows; /* channels of a group in the destination; dy's */
  /* weights, from (group, destination, source, tap) */
  int64_t w_group, w_row, w_channel, w_tap;
  int64_t tiles_m, tiles_n;
  int splits, steps;
  int wide; /* so many places in a row, 8, 4 or 1, are stored at once */
  /* depthwise */
  int multiplier; /* results for each channel */
} conv_args;

/* (image, channel, place) to (image, place, group, channels of 8). */
typedef struct conv_pack_args {
  const void *from;
  void *to;
  int64_t images, places, image, channel, place[3];
  int64_t step; /* from place to place, if it is always the same; or 0 */
  int size[3], groups, channels, padded; /* of a group */
  int wide; /* so many places, 8, 4 or 1, are read at once */
} conv_pack_args;

/* Weights (outputs, inputs / groups, taps), contiguous, to (row, tap, padded):
 * rows are outputs, or, `turned`, the inputs of each group. */
typedef struct conv_weight_args {
  const void *from;
  void *to;
  int64_t rows;
  int outputs, inputs, taps, padded, turned; /* of a group */
} conv_weight_args;

/* Each of `outputs` matrices, a block's: (inputs, taps) into (taps, inputs),
 * or, `back`, the other way. */
typedef struct conv_turn_args {
  const void *from;
  void *to;
  int inputs, taps, back;
} conv_turn_args;

/* dw (outputs, inputs / groups, taps) from sums of (split, output, tap, padded)
 */
typedef struct conv_sum_args {
  const float *part;
  void *to;
  int64_t outputs;
  int inputs, taps, padded, splits;
} conv_sum_args;

#endif
