/* Arguments of the kernels in fft.cu. */
#ifndef FL_CUDA_FFT_H
#define FL_CUDA_FFT_H

enum { FFT_PAIRS, FFT_REAL, FFT_HALF }; /* what goes in */

#include "device/divisor.h"

typedef struct fft_args {
  const void *x;
  void *y;
  int64_t n; /* numbers of y, or pairs */
  /* half: (.., plane[0], plane[1], size, inner) pairs */
  flc_divisor plane[2], size, inner;
  int64_t whole; /* of real lines of so many */
  double scale;
} fft_args;

#define FFT_SHORT   64    /* elements of a line that needs no library */
#define FFT_FACTORS 4     /* it has at most */
#define FFT_ROOM    16384 /* bytes of the lines that a block has at a time */

/* Short lines, 1 << log at a time: complex ones of n, or (half) real ones of 2
 * n, which is `by` in the table of roots. A thread after the other reads and
 * leaves elements of a line, or (down) of lines side by side. */
typedef struct fft_short_args {
  const void *x;
  void *y;
  int64_t lines;
  int n, by, log;
  bool inverse, half, down;
  flc_divisor in, out, inner; /* pairs of a line before and after; lines */
  int n_factors, factor[FFT_FACTORS];
  flc_divisor span[FFT_FACTORS]; /* the product of the factors before */
  double scale, root[2 * FFT_SHORT];
} fft_short_args;

/* Many short lines, of n or 2 n. */
#define FFT_LINES(n) ((n) > 32 ? 64 : 128) /* that a block has, and threads */

typedef struct fft_line_args {
  const void *x;
  void *y;
  int64_t lines;
  bool inverse;
  flc_divisor inner;
  double scale;
  float root[2 * FFT_SHORT];
} fft_line_args;

#endif
