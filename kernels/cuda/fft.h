/* Arguments of the kernels in fft.cu. */
#ifndef FL_CUDA_FFT_H
#define FL_CUDA_FFT_H

enum { FFT_PAIRS, FFT_REAL, FFT_HALF }; /* what goes in */

#include "words.h"

typedef struct fft_args {
  const void *x;
  void *y;
  int64_t n; /* numbers of y, or pairs */
  /* half: (.., plane[0], plane[1], size, inner) pairs */
  flc_divisor plane[2], size, inner;
  int64_t whole; /* of real lines of so many */
  double scale;
} fft_args;

#endif
