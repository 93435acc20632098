/* A convolution, or one of its two gradients, as a record: what conv.c reads
 * from a launch, and what our own kernels and the library (cudnn.c) answer. */
#ifndef FL_CUDA_CONVOLVE_H
#define FL_CUDA_CONVOLVE_H

#include "../cuda.h"
#include "conv.h"

typedef enum flc_conv_kind {
  FLC_CONV_FORWARD, /* x, w, bias -> y */
  FLC_CONV_INPUT,   /* y, w -> x */
  FLC_CONV_WEIGHT   /* x, y -> w */
} flc_conv_kind;

/* (images, channels, 3 sizes) with any strides; missing dims have size 1. */
typedef struct flc_planes {
  void *data;
  int64_t images, channels, size[3];
  int64_t image, channel, place[3]; /* strides in elements */
} flc_planes;

/* All of one dtype; weights are contiguous, (outputs, inputs, kernel), or have
 * inputs last, (outputs, kernel, inputs). The output is contiguous or
 * channels-last (runtime/rules/layout.c). */
typedef struct flc_conv {
  flc_conv_kind kind;
  fl_dtype dtype;
  int spatial;
  flc_planes x, y;
  void *w;
  void *w_last;            /* if w is NULL: weights with inputs last */
  int64_t outputs, inputs; /* inputs of a group */
  int64_t groups, kernel[3], stride[3], pad[3], dilation[3];
  const void *bias; /* contiguous, or NULL */
  fl_dtype bias_dtype;
} flc_conv;

static inline fl_view flc_planes_view(const flc_planes *p, fl_dtype dtype) {
  return (fl_view){
      .data = p->data,
      .dtype = dtype,
      .ndim = 5,
      .shape = {p->images, p->channels, p->size[0], p->size[1], p->size[2]},
      .stride = {p->image, p->channel, p->place[0], p->place[1], p->place[2]}};
}

static inline int64_t flc_volume(const int64_t v[3]) {
  return v[0] * v[1] * v[2];
}

/* --- channels innermost, in eights (16-bit floats) --- */

/* Whether the planes have this layout already. */
bool flc_conv_packed(const flc_planes *p, int64_t groups);
/* Makes p a copy with this layout, each group's channels padded with zeros to
 * `padded`; in `room`, or scratch. */
fl_status flc_conv_pack(const fl_launch *l, const flc_conv *c, flc_planes *p,
                        int64_t *padded, void *room);
/* Weights of 16 bits (outputs, inputs, kernel) to (outputs, kernel, inputs), or
 * back. */
fl_status flc_conv_turn_weights(const fl_launch *l, const flc_conv *c,
                                const void *from, void *to, bool back);
/* Matrices (rows, cols) into (cols, rows); rows are a multiple of 8. */
fl_status flc_conv_turn(const fl_launch *l, const flc_conv *c, int64_t matrices,
                        int64_t rows, int64_t cols, const void *from, void *to);

/* Makes w of w_last: a copy or, for a gradient of weights, room for it, which
 * flc_conv_put_weights brings to w_last of `to`. */
fl_status flc_conv_weights(const fl_launch *l, flc_conv *c);
fl_status flc_conv_put_weights(const fl_launch *l, const flc_conv *c,
                               const flc_conv *to);
/* --- a launch of our own kernels, a piece at a time --- */

conv_divider flc_conv_divider(int64_t by);
/* Where it reads; channels of a group. */
void flc_conv_set_source(conv_args *a, const flc_planes *p, int64_t channels);
/* Where it writes, or what is multiplied; results of a group. */
void flc_conv_set_destination(conv_args *a, const flc_planes *p, int64_t rows);
/* Every place of y reads all taps of x: the convolution itself, and what the
 * gradient of weights multiplies y with. */
void flc_conv_set_window(conv_args *a, const flc_conv *c);
/* Places phase, phase + stride, ... of x: tap t reads y at (place + pad - t
 * dilation) / stride where that is whole, which every stride / gcd-th tap is.
 */
void flc_conv_set_phase(conv_args *a, const flc_conv *c,
                        const int64_t phase[3]);

/* --- groups of few channels (depthwise.c) --- */

/* Whether it is one that flc_depthwise does, with any strides. */
bool flc_conv_few(const flc_conv *c);
fl_status flc_depthwise(const fl_launch *l, const flc_conv *c);

/* Our own kernels write contiguous memory; a copy follows where it is not. */
fl_status flc_conv_native(const fl_launch *l, const flc_conv *c);
/* Whether it is a product: of one tap, with channels innermost. */
struct flc_product;
bool flc_conv_product(const flc_conv *c, struct flc_product *p);
/* By our own kernels or the library, as flc_conv_choice says. */
fl_status flc_convolve(const fl_launch *l, const flc_conv *c);

#endif
