/* Arguments of the kernels in quantized.cu. */
#ifndef FL_CUDA_QUANTIZED_H
#define FL_CUDA_QUANTIZED_H

#include "../device/divisor.h"
#include "skinny.h"

#define QUANTIZED_THREADS 128
#define QUANTIZED_WARPS   8 /* of a block of `tensor`, at most */

typedef struct quantized_args {
  skinny_args s;              /* of the product; B is the weight, (n, k) */
  const void *scales, *zeros; /* (n, groups); zeros NULL: the center */
  void *y;                    /* dequantize: (n, k) */
  int scale_dtype, zero_dtype;
  int groups, parts; /* of a row, and 16 bytes of a group */
  float center;
  flc_divisor by_row;   /* dequantize: vectors of a row */
  flc_divisor by_group; /* and of a group; else parts of a group */
} quantized_args;

#endif
