/* Fourier transforms of cuFFT for fft.c. The library's functions are a table in
 * cusolver.h. */
#ifndef FL_CUDA_CUFFT_H
#define FL_CUDA_CUFFT_H

#include "cusolver.h"

#define FLC_FFT_DIMS 3 /* of a transform */

/* What a plan depends on; `stride` is between elements of a line, `in_step` and
 * `out_step` between lines. More than one dim, the last of them n, lie side by
 * side. */
typedef struct flc_fft_lines {
  int64_t device, kind, wide, dims, size[FLC_FFT_DIMS], stride, in_step,
      out_step, batch;
} flc_fft_lines;

/* `count` times the same transform, `in` and `out` bytes apart. */
typedef struct flc_fft_batch {
  const char *x;
  char *y;
  int64_t count;
  size_t in, out;
} flc_fft_batch;

/* FL_EUNSUPPORTED: the library has no plan for it. The library is there
 * (flc_fft_get). */
fl_status flc_fft_execute(const fl_launch *l, const flc_fft_lines *of,
                          bool inverse, flc_fft_batch b);

#endif
