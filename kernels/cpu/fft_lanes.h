/* Transforms of float pairs with vectors of 8 of them, of 8 lines side by side,
 * or of one line of 64 pairs and more: a pass of radix 8 along it, whose
 * eighths are transposed, leaves 8 lines, and passes across vectors then end in
 * natural order. */
#ifndef FL_CPU_FFT_LANES_H
#define FL_CPU_FFT_LANES_H

#include "fft_short.h"

#define LANES_MOST    (1 << 14) /* pairs of a line */
#define LANES_FACTORS 12

#define LANES_LEAST 16 /* of a line of 8, and at most: */
#define LANES_LARGE 512

typedef struct lanes_plan {
  int64_t n;
  bool alone;                            /* one line, not 8 */
  int n_factors, factors[LANES_FACTORS]; /* of n, or alone of n / 8 */
  const float *first; /* what each 8 columns are turned by in the first pass */
  const float *roots; /* powers of the root: (cos, cos, -sin, sin) */
} lanes_plan;

/* false: not with these radices, or too few. */
static bool lanes_factorize(int64_t n, int64_t lines, lanes_plan *p) {
  int64_t m = n / LANES;
  *p = (lanes_plan){.n = n};
  p->alone = n % LANES == 0 && m >= LANES && n <= LANES_MOST;
  if (!p->alone && (lines < LANES || n < LANES_LEAST || n > LANES_LARGE))
    return false;
  for (m = p->alone ? m : n; m > 1;) {
    int r = m % 8 == 0 && m != 16 ? 8
            : m % 4 == 0          ? 4
            : m % 2 == 0          ? 2
            : m % 3 == 0          ? 3
                                  : 5;
    if (m % r)
      return false;
    p->factors[p->n_factors++] = r;
    m /= r;
  }
  return true;
}

/* Floats of both tables. */
static int64_t lanes_room(const lanes_plan *p) {
  int64_t m = p->n / LANES;
  return p->alone ? m * (7 * 4) + 4 * LANES * 7 + m * 4 : p->n * 4;
}

/* Pairs of the room that lines are transformed in. */
static int64_t lanes_pairs(const lanes_plan *p) {
  return 3 * (p->alone ? p->n + LANES : LANES * p->n);
}

/* Where the i-th 8 columns of m begin: the last ones end with the line. */
SHORT_INLINE int64_t lanes_column(int64_t i, int64_t m) {
  return i * LANES + LANES <= m ? i * LANES : m - LANES;
}

static void lanes_tables(lanes_plan *p, const double *roots, int64_t step,
                         bool inverse, float *table) {
  int64_t m = p->alone ? p->n / LANES : p->n;
  float sign = inverse ? -1 : 1;
  p->first = table;
  for (int64_t i = 0; p->alone && i * LANES < m; i++)
    for (int64_t k = 1; k < 8; k++, table += 4 * LANES)
      for (int64_t lane = 0; lane < LANES; lane++) {
        const double *w = roots + 2 * step * k * (lanes_column(i, m) + lane);
        float *to = table + 2 * lane, s = sign * (float)w[1];
        to[0] = to[1] = (float)w[0];
        to[2 * LANES] = -s;
        to[2 * LANES + 1] = s;
      }
  p->roots = table;
  for (int64_t k = 0; k < m; k++, table += 4) {
    const double *w = roots + 2 * step * (p->n / m) * k;
    table[0] = table[1] = (float)w[0];
    table[3] = sign * (float)w[1];
    table[2] = -table[3];
  }
}

SHORT_INLINE void across2(lanes *a) {
  lanes d = a[0] - a[1];
  a[0] += a[1];
  a[1] = d;
}

SHORT_INLINE void across3(lanes *a, lanes quarter) {
  lanes t = a[1] + a[2], d = a[0] - t * 0.5f;
  lanes e = quarter * SWAPPED(a[1] - a[2]) * 0.86602540378443865f;
  a[0] += t;
  a[1] = d + e;
  a[2] = d - e;
}

SHORT_INLINE void across5(lanes *a, lanes quarter) {
  const float c1 = 0.30901699437494742f, c2 = -0.80901699437494742f;
  const float s1 = 0.95105651629515357f, s2 = 0.58778525229247313f;
  lanes t1 = a[1] + a[4], t2 = a[2] + a[3];
  lanes u1 = a[1] - a[4], u2 = a[2] - a[3];
  lanes d1 = a[0] + t1 * c1 + t2 * c2, d2 = a[0] + t1 * c2 + t2 * c1;
  lanes v1 = u1 * s1 + u2 * s2, v2 = u1 * s2 - u2 * s1;
  lanes e1 = quarter * SWAPPED(v1), e2 = quarter * SWAPPED(v2);
  a[0] += t1 + t2;
  a[1] = d1 + e1;
  a[4] = d1 - e1;
  a[2] = d2 + e2;
  a[3] = d2 - e2;
}

/* Two numbers for all lanes. */
SHORT_INLINE lanes alike(const float *w) {
  double d;
  memcpy(&d, w, sizeof d);
  return (lanes)(units){d, d, d, d, d, d, d, d};
}

/* Stockham's pass, as in fft_typed.c: m radices of s vectors; `last` is
 * known where this is inlined. */
SHORT_INLINE void lanes_radix(int r, int64_t m, int64_t s, const float *roots,
                              const float *x, float *y, lanes quarter,
                              bool last, float scale) {
  const lanes *from = (const lanes *)x;
  lanes *to = (lanes *)y;
  for (int64_t p = 0; p < m; p++, from += s, to += r * s)
    for (int64_t q = 0; q < s; q++) {
      lanes a[8];
#pragma GCC unroll 8
      for (int k = 0; k < r; k++)
        a[k] = from[q + k * m * s];
      if (r == 8)
        across8(a, quarter);
      else if (r == 4)
        across4(a, 1, quarter);
      else if (r == 2)
        across2(a);
      else if (r == 3)
        across3(a, quarter);
      else
        across5(a, quarter);
#pragma GCC unroll 8
      for (int k = 0; k < r; k++) {
        const float *w = roots + 4 * k * p * s;
        if (last)
          a[k] *= scale;
        else if (k)
          a[k] = a[k] * alike(w) + SWAPPED(a[k]) * alike(w + 2);
        to[q + k * s] = a[k];
      }
    }
}

SHORT_INLINE void lanes_pass(int r, int64_t m, int64_t s, const float *roots,
                             const float *x, float *y, lanes quarter,
                             float scale) {
  if (m == 1)
    lanes_radix(r, 1, s, roots, x, y, quarter, true, scale);
  else
    lanes_radix(r, m, s, roots, x, y, quarter, false, 1);
}

/* Passes over m vectors in a, by way of b, to y. */
TILE_UNWATCHED static void lanes_passes(const lanes_plan *p, int64_t m,
                                        float *a, float *b, float *y,
                                        lanes quarter, float scale) {
  int64_t s = 1;
  for (int i = 0; i < p->n_factors; i++) {
    int r = p->factors[i];
    float *to = i + 1 < p->n_factors ? b : y;
    m /= r;
    switch (r) {
    case 8:
      lanes_pass(8, m, s, p->roots, a, to, quarter, scale);
      break;
    case 4:
      lanes_pass(4, m, s, p->roots, a, to, quarter, scale);
      break;
    case 2:
      lanes_pass(2, m, s, p->roots, a, to, quarter, scale);
      break;
    case 3:
      lanes_pass(3, m, s, p->roots, a, to, quarter, scale);
      break;
    default:
      lanes_pass(5, m, s, p->roots, a, to, quarter, scale);
    }
    s *= r;
    b = a;
    a = to;
  }
}

/* A line from x to y, which may be the same memory. */
TILE_UNWATCHED static void lanes_line(const lanes_plan *p, const float *x,
                                      float *y, float *a, bool inverse,
                                      float scale) {
  lanes quarter = inverse ? alternating(-1, 1) : alternating(1, -1), v[8];
  int64_t m = p->n / LANES;
  const float *table = p->first;
  for (int64_t i = 0; i * LANES < m; i++, table += 7 * 4 * LANES) {
    int64_t column = lanes_column(i, m);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
      v[k] = *(const lanes *)(x + 2 * (column + k * m));
    across8(v, quarter);
    turn_by(v, 8, table);
    transpose8(v);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
      *(lanes *)(a + 2 * LANES * (column + k)) = v[k];
  }
  lanes_passes(p, m, a, a + 2 * p->n, y, quarter, scale);
}

/* 8 lines of n pairs that follow each other to n vectors, or (back) from them.
 */
TILE_UNWATCHED static void lanes_turn(int64_t n, const float *x, float *y,
                                      bool back) {
  lanes v[8];
  int64_t in = back ? LANES : n, out = back ? n : LANES;
  for (int64_t i = 0; i * LANES < n; i++) {
    int64_t column = lanes_column(i, n);
    const float *from = x + 2 * column * (back ? LANES : 1);
    float *to = y + 2 * column * (back ? 1 : LANES);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
      v[k] = *(const lanes *)(from + 2 * k * in);
    transpose8(v);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
      *(lanes *)(to + 2 * k * out) = v[k];
  }
}

/* Up to 8 lines from x to y, which may be the same memory. */
static void lanes_lines(const lanes_plan *p, int64_t lines, const float *x,
                        float *y, float *a, bool inverse, float scale) {
  int64_t n = p->n, all = 2 * LANES * n;
  size_t bytes = (size_t)(2 * lines * n) * sizeof(float);
  float *b = a + all, *c = b + all;
  lanes quarter = inverse ? alternating(-1, 1) : alternating(1, -1);
  if (lines < LANES) {
    memset(c, 0, (size_t)all * sizeof(float));
    x = memcpy(c, x, bytes);
  }
  lanes_turn(n, x, a, false);
  lanes_passes(p, n, a, b, c, quarter, scale);
  lanes_turn(n, c, lines < LANES ? a : y, true);
  if (lines < LANES)
    memcpy(y, a, bytes);
}

#endif
