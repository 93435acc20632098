/* How the host lays lines out for line.cuh's kernels. */
#ifndef FL_CUDA_LINE_H
#define FL_CUDA_LINE_H

#ifndef __CUDACC_RTC__
#include "../cuda.h"

/* Elements of a 16-byte access. */
static inline int flc_lot(fl_dtype d) {
  return (int)(16 / fl_dtype_size(d));
}

/* The least power of 2 from v on, at most `most`. */
static inline int flc_power(int64_t v, int most) {
  int p = 1;
  while (p < v && p < most)
    p *= 2;
  return p;
}

/* A line in registers: `each` elements a thread in vectors of `vec`, lines by
 * blocks of `threads`, or by `lanes` of a block of 128. */
typedef struct flc_line {
  int vec, each, block, lanes, threads;
} flc_line;

/* Whether lines of n fit, with at most `most` elements a thread. */
static inline bool flc_line_of(int64_t n, fl_dtype d, bool aligned, int most,
                               flc_line *p) {
  int lot = flc_lot(d);
  p->vec = aligned && n % lot == 0 ? lot : 1;
  most = p->vec == 1 && most > 16 ? 16 : most;
  p->block = n > 32 * most;
  p->lanes = 32;
  p->threads = 128;
  if (!p->block) {
    p->each = n <= 256 ? 8 : most;
    p->lanes = flc_power(fl_ceil_div(n, p->each), 32);
    return true;
  }
  p->each = most > 16 && n <= 16 * 1024 ? 16 : most;
  p->threads = (int)(fl_ceil_div(fl_ceil_div(n, p->each), 32) * 32);
  return n <= (int64_t)p->each * 1024;
}

/* Blocks for `lines` of them. */
static inline unsigned flc_line_grid(const flc_line *p, int64_t lines) {
  return (unsigned)(p->block ? lines
                             : fl_ceil_div(lines, p->threads / p->lanes));
}

/* Goes through the layouts that lines may get with `most`, *n from 0 on; false
 * after the last. */
static inline bool flc_line_next(int *n, fl_dtype d, int most, flc_line *p) {
  while (*n < 12) {
    int k = (*n)++, vec = k / 6 ? 1 : flc_lot(d), each = 8 << k % 3;
    int wide = vec == 1 && most > 16 ? 16 : most;
    *p = (flc_line){.vec = vec, .each = each, .block = k / 3 % 2};
    if (each == wide || (each < wide && each == (p->block ? 16 : 8)))
      return true;
  }
  return false;
}
#endif
#endif
