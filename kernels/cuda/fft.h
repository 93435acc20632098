/* Arguments of the kernels in fft.cu. */
#ifndef FL_CUDA_FFT_H
#define FL_CUDA_FFT_H

enum { FFT_PAIRS, FFT_REAL, FFT_HALF }; /* what goes in */

typedef struct fft_args {
  const void *x;
  void *y;
  int64_t n;           /* numbers of y, or pairs */
  int64_t size, inner; /* half: (.., size, inner) pairs; */
  int64_t whole;       /* of a real line of so many */
  double scale;
} fft_args;

#endif
