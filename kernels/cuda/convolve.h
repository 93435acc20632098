/* A convolution, or one of its two gradients, as a record: what conv.c reads
 * from a launch, and what our own kernels and the library (cudnn.c) answer. */
#ifndef FL_CUDA_CONVOLVE_H
#define FL_CUDA_CONVOLVE_H

#include "cuda.h"

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

/* All of one dtype; what is written is contiguous, and so are weights:
 * (outputs, inputs, kernel). */
typedef struct flc_conv {
  flc_conv_kind kind;
  fl_dtype dtype;
  int spatial;
  flc_planes x, y;
  void *w;
  int64_t outputs, inputs; /* inputs of a group */
  int64_t groups, kernel[3], stride[3], pad[3], dilation[3];
  const void *bias; /* contiguous, or NULL */
  fl_dtype bias_dtype;
} flc_conv;

static inline int64_t flc_volume(const int64_t v[3]) {
  return v[0] * v[1] * v[2];
}

fl_status flc_conv_own(const fl_launch *l, const flc_conv *c);
/* By our own kernels or the library, as flc_conv_choice says. */
fl_status flc_convolve(const fl_launch *l, const flc_conv *c);

#endif
