/* Transforms of 4 to 64 float pairs, lines that follow each other, with vectors
 * of 8 pairs: 64 pairs at a time, which stay in registers. A line of n = p q is
 * p vectors of q elements, transformed across vectors, turned, transposed, and
 * transformed across vectors again. */
#ifndef FL_CPU_FFT_SHORT_H
#define FL_CPU_FFT_SHORT_H

#include "tile.h"

#include <string.h>

#define ROOM  64 /* pairs at a time */
#define LANES 8  /* pairs of a vector */

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float half_lanes
    __attribute__((vector_size(32), aligned(4), may_alias));
typedef double units __attribute__((vector_size(64))); /* a pair each */

#define SHORT_INLINE TILE_UNWATCHED static inline __attribute__((always_inline))
#define MIX(a, b, ...)                                                         \
  (lanes) __builtin_shufflevector((units)(a), (units)(b), __VA_ARGS__)
#define SWAPPED(a)                                                             \
  __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12,  \
                          15, 14)

SHORT_INLINE lanes alternating(float even, float odd) {
  lanes a;
#pragma GCC unroll 16
  for (int i = 0; i < 2 * LANES; i++)
    a[i] = i % 2 ? odd : even;
  return a;
}

/* Columns become rows: of 8 vectors, or of halves of 4. */
SHORT_INLINE void transpose8(lanes *a) {
  lanes b[8], c[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    b[i] = MIX(a[2 * i], a[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[4 + i] = MIX(a[2 * i], a[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    c[i] = MIX(b[2 * i], b[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11);
    c[4 + i] = MIX(b[2 * i], b[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#pragma GCC unroll 2
  for (int odd = 0; odd < 2; odd++)
#pragma GCC unroll 2
    for (int high = 0; high < 2; high++) {
      lanes u = c[4 * high + 2 * odd], v = c[4 * high + 2 * odd + 1];
      a[4 * high + odd] = MIX(u, v, 0, 1, 4, 5, 8, 9, 12, 13);
      a[4 * high + 2 + odd] = MIX(u, v, 2, 3, 6, 7, 10, 11, 14, 15);
    }
}

SHORT_INLINE void transpose4(lanes *a) {
  lanes b[4];
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    b[i] = MIX(a[2 * i], a[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[2 + i] = MIX(a[2 * i], a[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    a[i] = MIX(b[2 * i], b[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13);
    a[2 + i] = MIX(b[2 * i], b[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  }
}

/* Across every step-th vector; `quarter` times a pair's parts exchanged is the
 * pair times -i, or, inverse, i. */
SHORT_INLINE void across4(lanes *a, int step, lanes quarter) {
  lanes s = a[0] + a[2 * step], d = a[0] - a[2 * step];
  lanes t = a[step] + a[3 * step], e = SWAPPED(a[step] - a[3 * step]);
  a[0] = s + t;
  a[step] = d + quarter * e;
  a[2 * step] = s - t;
  a[3 * step] = d - quarter * e;
}

SHORT_INLINE void across8(lanes *a, lanes quarter) {
  lanes r = (lanes){0} + 0.70710678118654752f;
  across4(a, 2, quarter);
  across4(a + 1, 2, quarter);
  lanes e[4] = {a[0], a[2], a[4], a[6]};
  lanes o1 = a[3] + quarter * SWAPPED(a[3]), o2 = quarter * SWAPPED(a[5]);
  lanes o3 = quarter * SWAPPED(a[7]) - a[7];
  a[4] = e[0] - a[1];
  a[0] = e[0] + a[1];
  a[1] = e[1] + r * o1;
  a[5] = e[1] - r * o1;
  a[2] = e[2] + o2;
  a[6] = e[2] - o2;
  a[3] = e[3] + r * o3;
  a[7] = e[3] - r * o3;
}

/* Vector k times the k-th of the table's: cosines, and sines with the signs
 * that they have beside exchanged parts. */
SHORT_INLINE void turn_by(lanes *a, int n, const float *table) {
#pragma GCC unroll 8
  for (int k = 1; k < n; k++) {
    const lanes *w = (const lanes *)table + 2 * (k - 1);
    a[k] = a[k] * w[0] + SWAPPED(a[k]) * w[1];
  }
}

/* A vector's halves lie `far` pairs apart. */
SHORT_INLINE lanes halves_at(const float *x, int far) {
  half_lanes u = *(const half_lanes *)x, v = *(const half_lanes *)(x + 2 * far);
  return __builtin_shufflevector(u, v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                 13, 14, 15);
}
#define LOW_HALF(a) __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7)
SHORT_INLINE void halves_to(float *y, int far, lanes a) {
  *(half_lanes *)y = LOW_HALF(a);
  *(half_lanes *)(y + 2 * far) =
      __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* ROOM pairs from x to y; n is known where this is inlined. */
SHORT_INLINE void short_room(int n, const float *x, float *y,
                             const float *table, lanes quarter, float scale) {
  bool apart = n == 16; /* its vectors are halves of two lines */
  lanes a[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
    a[i] = apart ? halves_at(x + 64 * (i / 4) + 8 * (i % 4), 16)
                 : *(const lanes *)(x + 16 * i);
  if (n == 8) {
    transpose8(a);
    across8(a, quarter);
    transpose8(a);
  } else if (n == 64) {
    across8(a, quarter);
    turn_by(a, 8, table);
    transpose8(a);
    across8(a, quarter);
  } else
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      if (n == 4)
        transpose4(a + i);
      across4(a + i, 1, quarter);
      if (n > 4)
        turn_by(a + i, 4, table);
      if (n < 32)
        transpose4(a + i);
      if (n == 16)
        across4(a + i, 1, quarter);
    }
  if (n == 32) {
    transpose8(a);
    across8(a, quarter);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
    if (apart)
      halves_to(y + 64 * (i / 4) + 8 * (i % 4), 16, a[i] * scale);
    else if (n == 32)
      halves_to(y + 8 * i, 32, a[i] * scale);
    else
      *(lanes *)(y + 16 * i) = a[i] * scale;
}

SHORT_INLINE void short_rooms(int n, int64_t pairs, const float *x, float *y,
                              const float *table, bool inverse, float scale) {
  lanes quarter = inverse ? alternating(-1, 1) : alternating(1, -1);
  for (; pairs >= ROOM; pairs -= ROOM, x += 2 * ROOM, y += 2 * ROOM)
    short_room(n, x, y, table, quarter, scale);
  if (pairs == 0)
    return;
  float rest[2 * ROOM] = {0};
  size_t bytes = (size_t)(2 * pairs) * sizeof *rest;
  memcpy(rest, x, bytes);
  short_room(n, rest, rest, table, quarter, scale);
  memcpy(y, rest, bytes);
}

static bool has_short(int64_t n) {
  return n >= 4 && n <= ROOM && (n & (n - 1)) == 0;
}

/* `pairs` of all lines of n from x to y. */
TILE_UNWATCHED static void short_lines(int64_t n, int64_t pairs, const float *x,
                                       float *y, const float *table,
                                       bool inverse, float scale) {
  switch (n) {
  case 4:
    short_rooms(4, pairs, x, y, table, inverse, scale);
    break;
  case 8:
    short_rooms(8, pairs, x, y, table, inverse, scale);
    break;
  case 16:
    short_rooms(16, pairs, x, y, table, inverse, scale);
    break;
  case 32:
    short_rooms(32, pairs, x, y, table, inverse, scale);
    break;
  default:
    short_rooms(64, pairs, x, y, table, inverse, scale);
  }
}

#define SHORT_TABLE (7 * 4 * LANES) /* floats */

/* Of the powers of a root, of which every step-th is one of n: what short_lines
 * turns by. */
static void short_table(int64_t n, const double *roots, int64_t step,
                        bool inverse, float *table) {
  int64_t across = n < 64 ? 4 : 8, along = n / across;
  for (int64_t k = 1; k < across; k++)
    for (int64_t i = 0; i < LANES; i++) {
      const double *w = roots + 2 * step * (k * (i % along));
      float s = (float)(inverse ? -w[1] : w[1]);
      float *to = table + (k - 1) * 4 * LANES + 2 * i;
      to[0] = to[1] = (float)w[0];
      to[2 * LANES] = -s;
      to[2 * LANES + 1] = s;
    }
}

/* --- real lines of 2 m, whose pairs are the lines of m above --- */

#define ALIKE    (2 * LANES * 2) /* floats of a table for LANES pairs */
#define REVERSED 7, 6, 5, 4, 3, 2, 1, 0

/* u, its mirror image v and the table's part for them to (u + v*) by + (u - v*)
 * w, v* being v's conjugate. */
SHORT_INLINE lanes mirrored(lanes u, lanes v, const float *table, lanes by) {
  const lanes *w = (const lanes *)table;
  lanes conjugate = alternating(1, -1);
  lanes e = u + v * conjugate, d = u - v * conjugate;
  return e * by + (d * w[0] + SWAPPED(d) * w[1]);
}

/* Of the n-th root's powers: `mirrored` makes a half spectrum times `scale` of
 * the pairs' transform by them, or (back) what is to be transformed of it. */
static void mirror_table(int64_t m, const double *roots, bool back,
                         double scale, float *table) {
  for (int64_t k = 0; k < m || k < LANES; k++) {
    const double *w = roots + 2 * (k % m);
    float *to = table + k / LANES * ALIKE + k % LANES * 2;
    to[0] = to[1] = (float)(back ? w[1] : w[1] * scale / 2);
    to[2 * LANES + 1] = (float)(back ? w[0] : -w[0] * scale / 2);
    to[2 * LANES] = -to[2 * LANES + 1];
  }
}

/* z has LANES pairs more than are read. */
TILE_UNWATCHED static void half_lines(int64_t m, int64_t lines, const float *z,
                                      float *y, const float *table,
                                      float scale) {
  lanes by = alternating(scale / 2, scale / 2);
  for (int64_t i = 0; i < lines; i++, z += 2 * m, y += 2 * m + 2) {
    if (m == 4) {
      lanes u = *(const lanes *)z;
      u = mirrored(u, MIX(u, u, 0, 3, 2, 1, 4, 7, 6, 5), table, by);
      *(half_lanes *)y = LOW_HALF(u);
    }
    for (int64_t k = 0; k + LANES <= m; k += LANES)
      *(lanes *)(y + 2 * k) =
          mirrored(*(const lanes *)(z + 2 * k),
                   MIX(*(const lanes *)(z + 2 * (m - k - 7)), by, REVERSED),
                   table + k / LANES * ALIKE, by);
    y[0] = (z[0] + z[1]) * scale;
    y[2 * m] = (z[0] - z[1]) * scale;
    y[1] = y[2 * m + 1] = 0;
  }
}

TILE_UNWATCHED static void whole_lines(int64_t m, int64_t lines, const float *x,
                                       float *z, const float *table) {
  lanes by = alternating(1, 1);
  for (int64_t i = 0; i < lines; i++, x += 2 * m + 2, z += 2 * m) {
    if (m == 4) {
      lanes u = halves_at(x, 0), v = halves_at(x + 2, 0);
      u = mirrored(u, MIX(v, v, 3, 2, 1, 0, 7, 6, 5, 4), table, by);
      *(half_lanes *)z = LOW_HALF(u);
    }
    for (int64_t k = 0; k + LANES <= m; k += LANES)
      *(lanes *)(z + 2 * k) =
          mirrored(*(const lanes *)(x + 2 * k),
                   MIX(*(const lanes *)(x + 2 * (m - k - 7)), by, REVERSED),
                   table + k / LANES * ALIKE, by);
    z[0] = x[0] + x[2 * m];
    z[1] = x[0] - x[2 * m];
  }
}

#endif
