/* What both kinds of convolution kernels do with places and taps. */
#pragma once

#include "../device/mma.cuh"

#include "conv.h"

inline int64_t conv_divide(int64_t n, const conv_divider &d) {
  if (n >> 31)
    return n / d.by;
  uint32_t u = (uint32_t)n;
  return (__umulhi(u, d.multiply) + u) >> d.shift;
}

/* Where a place of the grid reads and writes, before any tap. */
struct conv_place {
  int64_t in, out;
  int p[3];
};

/* Place n of all images; one that is not there reads nothing. */
inline conv_place conv_place_of(const conv_args &a, int64_t n, bool valid) {
  conv_place r;
  int64_t image = conv_divide(n, a.by_places);
  int q = (int)(n - image * a.places);
  int q01 = (int)conv_divide(q, a.by_grid2), q2 = q - q01 * a.grid[2];
  int q0 = (int)conv_divide(q01, a.by_grid1), q1 = q01 - q0 * a.grid[1];
  r.p[0] = valid ? q0 * a.step[0] + a.base[0] : -(1 << 30);
  r.p[1] = q1 * a.step[1] + a.base[1];
  r.p[2] = q2 * a.step[2] + a.base[2];
  r.in = image * a.x_image + r.p[0] * a.x_place[0] + r.p[1] * a.x_place[1] +
         r.p[2] * a.x_place[2];
  r.out = image * a.y_image + a.y_at + q0 * a.y_place[0] + q1 * a.y_place[1] +
          q2 * a.y_place[2];
  return r;
}

/* A tap: how far from its place it reads, and which of the kernel's it is.
 * CONV_NOWHERE as d[0] is outside for every place, as the places that are not
 * there are for every tap: sizes are below 2^30. */
#define CONV_NOWHERE (-2147483647 - 1)

struct conv_tap {
  int d[3], number;
  int64_t shift;
};

inline conv_tap conv_tap_of(const conv_args &a, int u) {
  conv_tap t;
  int u01 = (int)conv_divide(u, a.by_taps2), u2 = u - u01 * a.taps[2];
  int u0 = (int)conv_divide(u01, a.by_taps1), u1 = u01 - u0 * a.taps[1];
  t.d[0] = u0 * a.hop[0];
  t.d[1] = u1 * a.hop[1];
  t.d[2] = u2 * a.hop[2];
  t.shift =
      t.d[0] * a.x_place[0] + t.d[1] * a.x_place[1] + t.d[2] * a.x_place[2];
  t.number = ((a.first[0] + u0 * a.every[0]) * a.kernel[1] + a.first[1] +
              u1 * a.every[1]) *
                 a.kernel[2] +
             a.first[2] + u2 * a.every[2];
  return t;
}

inline bool conv_inside(const conv_args &a, const int (&p)[3],
                        const conv_tap &t) {
  return (uint32_t)p[0] + (uint32_t)t.d[0] < (uint32_t)a.size[0] &&
         (uint32_t)p[1] + (uint32_t)t.d[1] < (uint32_t)a.size[1] &&
         (uint32_t)p[2] + (uint32_t)t.d[2] < (uint32_t)a.size[2];
}
