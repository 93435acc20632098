/* The passes of fft.c for one float type. Lines lie side by side: element j of
 * line b is at j * w + b, real and imaginary parts apart, so that every loop
 * over lines is contiguous. */
#include "fft.h"
#include "tile_typed.h"

#include <string.h>

/* One pass of Stockham's algorithm: m r numbers, s elements apart, in groups of
 * s. It reads in order of k m + p and writes in order of r p + j, which leaves
 * the result in natural order after the last pass. w holds powers of the root
 * of the whole length, of which this pass takes every step-th. */
typedef struct pass {
  int64_t m, s, step;
  int r;
  const T *w; /* (cos, sin) */
  const T *xr, *xi;
  T *yr, *yi;
} pass;

static void pass2(const pass *c) {
  int64_t s = c->s, far = c->m * s;
  for (int64_t p = 0; p < c->m; p++) {
    T cr = c->w[2 * p * c->step], ci = c->w[2 * p * c->step + 1];
    const T *restrict ar = c->xr + p * s, *restrict ai = c->xi + p * s;
    T *restrict yr = c->yr + 2 * p * s, *restrict yi = c->yi + 2 * p * s;
#pragma omp simd
    for (int64_t q = 0; q < s; q++) {
      T br = ar[q + far], bi = ai[q + far];
      T dr = ar[q] - br, di = ai[q] - bi;
      yr[q] = ar[q] + br;
      yi[q] = ai[q] + bi;
      yr[q + s] = dr * cr - di * ci;
      yi[q + s] = dr * ci + di * cr;
    }
  }
}

/* s is c->s, known to the compiler where it is small. */
static inline __attribute__((always_inline)) void pass4_by(const pass *c,
                                                           int64_t s) {
  int64_t far = c->m * s;
  for (int64_t p = 0; p < c->m; p++) {
    const T *w1 = c->w + 2 * p * c->step, *w2 = c->w + 4 * p * c->step,
            *w3 = c->w + 6 * p * c->step;
    T c1 = w1[0], s1 = w1[1], c2 = w2[0], s2 = w2[1], c3 = w3[0], s3 = w3[1];
    const T *restrict xr = c->xr + p * s, *restrict xi = c->xi + p * s;
    T *restrict yr = c->yr + 4 * p * s, *restrict yi = c->yi + 4 * p * s;
#pragma omp simd
    for (int64_t q = 0; q < s; q++) {
      T ar = xr[q] + xr[q + 2 * far], ai = xi[q] + xi[q + 2 * far];
      T br = xr[q] - xr[q + 2 * far], bi = xi[q] - xi[q + 2 * far];
      T cr = xr[q + far] + xr[q + 3 * far], ci = xi[q + far] + xi[q + 3 * far];
      T dr = xi[q + far] - xi[q + 3 * far], di = xr[q + 3 * far] - xr[q + far];
      T er = br + dr, ei = bi + di, fr = br - dr, fi = bi - di;
      T hr = ar - cr, hi = ai - ci;
      yr[q] = ar + cr;
      yi[q] = ai + ci;
      yr[q + s] = er * c1 - ei * s1;
      yi[q + s] = er * s1 + ei * c1;
      yr[q + 2 * s] = hr * c2 - hi * s2;
      yi[q + 2 * s] = hr * s2 + hi * c2;
      yr[q + 3 * s] = fr * c3 - fi * s3;
      yi[q + 3 * s] = fr * s3 + fi * c3;
    }
  }
}

/* The first pass of a line alone: neighbours are what is done together. */
static void pass4_alone(const pass *c) {
  int64_t m = c->m;
  const T *restrict xr = c->xr, *restrict xi = c->xi, *restrict w = c->w;
  T *restrict yr = c->yr, *restrict yi = c->yi;
#pragma omp simd
  for (int64_t p = 0; p < m; p++) {
    T c1 = w[2 * p], s1 = w[2 * p + 1], c2 = w[4 * p], s2 = w[4 * p + 1];
    T c3 = w[6 * p], s3 = w[6 * p + 1];
    T ar = xr[p] + xr[p + 2 * m], ai = xi[p] + xi[p + 2 * m];
    T br = xr[p] - xr[p + 2 * m], bi = xi[p] - xi[p + 2 * m];
    T cr = xr[p + m] + xr[p + 3 * m], ci = xi[p + m] + xi[p + 3 * m];
    T dr = xi[p + m] - xi[p + 3 * m], di = xr[p + 3 * m] - xr[p + m];
    T er = br + dr, ei = bi + di, fr = br - dr, fi = bi - di;
    T hr = ar - cr, hi = ai - ci;
    yr[4 * p] = ar + cr;
    yr[4 * p + 1] = er * c1 - ei * s1;
    yr[4 * p + 2] = hr * c2 - hi * s2;
    yr[4 * p + 3] = fr * c3 - fi * s3;
    yi[4 * p] = ai + ci;
    yi[4 * p + 1] = er * s1 + ei * c1;
    yi[4 * p + 2] = hr * s2 + hi * c2;
    yi[4 * p + 3] = fr * s3 + fi * c3;
  }
}

/* Of sixteens there is no rest: no code for one before and after each loop. */
static void pass4(const pass *c) {
  if (c->s == 1)
    pass4_alone(c);
  else if (c->s == 8)
    pass4_by(c, 8);
  else if (c->s == 16)
    pass4_by(c, 16);
  else if (c->s % 16 == 0)
    pass4_by(c, c->s & ~(int64_t)15);
  else
    pass4_by(c, c->s);
}

/* Any radix: r sums of r terms. */
static void pass_any(const pass *c) {
  int64_t s = c->s, far = c->m * s, r = c->r, root = c->m * c->step;
  for (int64_t p = 0; p < c->m; p++)
    for (int64_t j = 0; j < r; j++) {
      const T *restrict xr = c->xr + p * s, *restrict xi = c->xi + p * s;
      T *restrict yr = c->yr + (r * p + j) * s;
      T *restrict yi = c->yi + (r * p + j) * s;
#pragma omp simd
      for (int64_t q = 0; q < s; q++) {
        yr[q] = xr[q];
        yi[q] = xi[q];
      }
      for (int64_t k = 1; k < r; k++) {
        const T *w = c->w + 2 * (j * k % r) * root;
        T cr = w[0], ci = w[1];
#pragma omp simd
        for (int64_t q = 0; q < s; q++) {
          T ar = xr[q + k * far], ai = xi[q + k * far];
          yr[q] += ar * cr - ai * ci;
          yi[q] += ar * ci + ai * cr;
        }
      }
      const T *w = c->w + 2 * j * p * c->step;
      T cr = w[0], ci = w[1];
#pragma omp simd
      for (int64_t q = 0; q < s; q++) {
        T ar = yr[q], ai = yi[q];
        yr[q] = ar * cr - ai * ci;
        yi[q] = ar * ci + ai * cr;
      }
    }
}

/* The same sums in the same order, of a few terms that stay in registers. */
static inline __attribute__((always_inline)) void pass_few(const pass *c,
                                                           int r) {
  int64_t s = c->s, far = c->m * s, root = c->m * c->step;
  T w[2 * FEW], last[2 * FEW];
  for (int k = 0; k < 2 * r; k++)
    w[k] = c->w[2 * (k / 2) * root + k % 2];
  for (int64_t p = 0; p < c->m; p++) {
    const T *restrict xr = c->xr + p * s, *restrict xi = c->xi + p * s;
    T *restrict yr = c->yr + r * p * s, *restrict yi = c->yi + r * p * s;
    for (int k = 0; k < 2 * r; k++)
      last[k] = c->w[2 * (k / 2) * p * c->step + k % 2];
#pragma omp simd
    for (int64_t q = 0; q < s; q++) {
      T ar[FEW], ai[FEW];
#pragma GCC unroll 8
      for (int k = 0; k < r; k++) {
        ar[k] = xr[q + k * far];
        ai[k] = xi[q + k * far];
      }
#pragma GCC unroll 8
      for (int j = 0; j < r; j++) {
        T br = ar[0], bi = ai[0];
#pragma GCC unroll 8
        for (int k = 1; k < r; k++) {
          T cr = w[2 * (j * k % r)], ci = w[2 * (j * k % r) + 1];
          br += ar[k] * cr - ai[k] * ci;
          bi += ar[k] * ci + ai[k] * cr;
        }
        yr[q + j * s] = br * last[2 * j] - bi * last[2 * j + 1];
        yi[q + j * s] = br * last[2 * j + 1] + bi * last[2 * j];
      }
    }
  }
}

static void pass_odd(const pass *c) {
  if (c->r == 3)
    pass_few(c, 3);
  else if (c->r == 5)
    pass_few(c, 5);
  else if (c->r == 7)
    pass_few(c, 7);
  else
    pass_any(c);
}

/* w lines of a smooth length in a (real parts, imaginary ones `far` numbers
 * behind), with b as large; returns which of them has the result. */
static T *passes(const plan *p, int64_t w, int64_t far, T *a, T *b) {
  pass c = {.m = p->n, .s = w, .step = 1, .w = p->roots};
  for (int i = 0; i < p->n_factors; i++) {
    c.r = p->factors[i];
    c.m /= c.r;
    c.xr = a;
    c.xi = a + far;
    c.yr = b;
    c.yi = b + far;
    if (c.r == 4)
      pass4(&c);
    else if (c.r == 2)
      pass2(&c);
    else
      pass_odd(&c);
    c.s *= c.r;
    c.step *= c.r;
    T *swap = a;
    a = b;
    b = swap;
  }
  return a;
}

/* A line alone of n = m q numbers is q lines of m as it lies, element k of line
 * b at k q + b; their transforms, turned by exp(-2 pi i k b / n), are m lines
 * of q. So all loops run over whole vectors. */
static T *split(const plan *p, T *a, T *b) {
  int64_t q = p->across->n, m = p->low->n, far = p->far;
  const T *restrict c = p->turn, *restrict s = c + p->n;
  T *x = passes(p->low, q, far, a, b), *y = x == a ? b : a;
  T *restrict re = x, *restrict im = x + far;
#pragma omp simd
  for (int64_t i = 0; i < p->n; i++) {
    T u = re[i], v = im[i];
    re[i] = u * c[i] - v * s[i];
    im[i] = u * s[i] + v * c[i];
  }
  transpose(y, m, x, q, m, q, 1);
  transpose(y + far, m, x + far, q, m, q, 1);
  return passes(p->across, m, far, y, x);
}

static T *smooth(const plan *p, int64_t w, T *a, T *b) {
  return w == 1 && p->low ? split(p, a, b) : passes(p, w, p->far * w, a, b);
}

/* Element j of w lines times by[j], a pair. */
static void times(int64_t n, int64_t w, const T *xr, const T *xi,
                  const T *restrict by, T *yr, T *yi) {
  if (w == 1) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T ar = xr[j], ai = xi[j], br = by[2 * j], bi = by[2 * j + 1];
      yr[j] = ar * br - ai * bi;
      yi[j] = ar * bi + ai * br;
    }
    return;
  }
  for (int64_t j = 0; j < n; j++)
#pragma omp simd
    for (int64_t k = j * w; k < (j + 1) * w; k++) {
      T ar = xr[k], ai = xi[k], br = by[2 * j], bi = by[2 * j + 1];
      yr[k] = ar * br - ai * bi;
      yi[k] = ar * bi + ai * br;
    }
}

/* Bluestein: with k j = (k^2 + j^2 - (k - j)^2) / 2 a transform of any length
 * is a convolution with a chirp, done at a smooth length m >= 2 n - 1. The
 * inverse transform of length m is the forward one with its parts exchanged;
 * that it is m times as large, the spectrum knows. */
static T *chirped(const plan *p, int64_t w, T *a, T *b) {
  const plan *q = p->inner;
  int64_t m = q->n, n = p->n, far = p->far * w, wide_far = q->far * w;
  T *wide = b, *other = b + 2 * wide_far;
  times(n, w, a, a + far, p->roots, wide, wide + wide_far);
  memset(wide + n * w, 0, (size_t)((m - n) * w) * sizeof(T));
  memset(wide + wide_far + n * w, 0, (size_t)((m - n) * w) * sizeof(T));
  T *x = smooth(q, w, wide, other);
  times(m, w, x, x + wide_far, p->spectrum, x + wide_far, x);
  x = smooth(q, w, x, x == wide ? other : wide);
  times(n, w, x + wide_far, x, p->roots, a, a + far);
  return a;
}

static T *transform(const plan *p, int64_t w, T *a, T *b) {
  return p->inner ? chirped(p, w, a, b) : smooth(p, w, a, b);
}

/* --- lines in and out --- */

/* Lines are read a few elements at a time, one after the other: they may lie a
 * power of two apart, and together use the same few places of the cache. */
#undef EACH_TILE
#undef EACH_OF_TILE
#define EACH_TILE(n, w)                                                        \
  for (int64_t t = 0; t < (n); t += TILE)                                      \
    for (int64_t line = 0; line < (w); line++)
#define EACH_OF_TILE(n) for (int64_t k = t; k < (n) && k < t + TILE; k++)

/* Where lines start, in elements of a tensor of outer x size x inner. */
static inline int64_t start(int64_t inner, int64_t line, int64_t size) {
  return line / inner * size * inner + line % inner;
}

/* Pairs, or real numbers, of which two neighbours are one complex number if
 * their count is even. The inverse transform is the forward one with parts
 * exchanged. */
typedef struct layout {
  int64_t size, unit, step, part; /* part: from real to imaginary, 0: none */
} layout;

static layout layout_of(const fft_job *j, bool real, int64_t inner) {
  bool lone = real && !j->half;
  return (layout){.size = real ? j->n : j->plan->n,
                  .unit = real ? 1 : 2,
                  .step = lone ? inner : 2 * inner,
                  .part = lone   ? 0
                          : real ? inner
                                 : 1};
}

/* Whether pairs of the w lines lie side by side in memory. */
static bool in_order(int64_t inner, const layout *at, int64_t first,
                     int64_t w) {
  return at->unit == 2 && first % inner + w <= inner;
}

static void take_pairs(int64_t n, const T *restrict from, T *restrict re,
                       T *restrict im) {
#pragma omp simd
  for (int64_t k = 0; k < n; k++) {
    re[k] = from[2 * k];
    im[k] = from[2 * k + 1];
  }
}

static void give_pairs(int64_t n, T *restrict to, const T *restrict re,
                       const T *restrict im, T scale) {
#pragma omp simd
  for (int64_t k = 0; k < n; k++) {
    to[2 * k] = re[k] * scale;
    to[2 * k + 1] = im[k] * scale;
  }
}

static void load_plain(const fft_job *j, int64_t first, int64_t w, T *a) {
  const T *x = j->x;
  layout at = layout_of(j, j->kind == REAL, j->inner);
  int64_t n = j->plan->n, far = j->plan->far;
  int64_t re = j->inverse ? far : 0, im = far - re;
  if (in_order(j->inner, &at, first, w)) {
    const T *from = x + 2 * start(j->inner, first, n);
    for (int64_t k = 0; k < n; k++, from += 2 * j->inner)
      take_pairs(w, from, a + (re + k) * w, a + (im + k) * w);
    return;
  }
  EACH_TILE(n, w) {
    const T *from = x + at.unit * start(j->inner, first + line, at.size);
    EACH_OF_TILE(n) {
      const T *v = from + k * at.step;
      a[(re + k) * w + line] = v[0];
      a[(im + k) * w + line] = at.part ? v[at.part] : 0;
    }
  }
}

static void store_plain(const fft_job *j, int64_t first, int64_t w,
                        const T *a) {
  T *y = j->y, scale = (T)j->scale;
  layout at = layout_of(j, j->kind == HALF, j->below);
  int64_t n = j->plan->n, far = j->plan->far;
  int64_t re = j->inverse ? far : 0, im = far - re;
  if (in_order(j->below, &at, first, w)) {
    T *to = y + 2 * start(j->below, first, n);
    for (int64_t k = 0; k < n; k++, to += 2 * j->below)
      give_pairs(w, to, a + (re + k) * w, a + (im + k) * w, scale);
    return;
  }
  EACH_TILE(n, w) {
    T *to = y + at.unit * start(j->below, first + line, at.size);
    EACH_OF_TILE(n) {
      T *v = to + k * at.step;
      v[0] = a[(re + k) * w + line] * scale;
      if (at.part)
        v[at.part] = a[(im + k) * w + line] * scale;
    }
  }
}

/* The half of a spectrum from z, the transform of the even elements plus i
 * times that of the odd ones: both are symmetric, so z tells them apart. (ur,
 * ui) is z there and (vr, vi) its mirror image, (c, s) the root. */
#undef HALF_OF
#define HALF_OF(ur, ui, vr, vi, c, s, re, im)                                  \
  do {                                                                         \
    T er = ((ur) + (vr)) / 2, ei = ((ui) - (vi)) / 2;                          \
    T dr = ((ui) + (vi)) / 2, di = ((vr) - (ur)) / 2; /* -i (z - v) / 2 */     \
    re = (er + (dr * (c)-di * (s))) * scale;                                   \
    im = (ei + (dr * (s) + di * (c))) * scale;                                 \
  } while (0)

static void store_half(const fft_job *j, int64_t first, int64_t w, const T *a) {
  T *y = j->y, scale = (T)j->scale;
  const T *roots = j->roots;
  int64_t n = j->plan->n, size = j->n / 2 + 1, step = 2 * j->below;
  int64_t far = j->plan->far;
  EACH_TILE(size, w) {
    T *to = y + 2 * start(j->below, first + line, size);
    EACH_OF_TILE(size) {
      if (!j->half) {
        to[k * step] = a[k * w + line] * scale;
        to[k * step + 1] = a[(far + k) * w + line] * scale;
        continue;
      }
      const T *z = a + (k == n ? 0 : k) * w + line;
      const T *v = a + (k ? n - k : 0) * w + line;
      HALF_OF(z[0], z[far * w], v[0], v[far * w], roots[2 * k],
              roots[2 * k + 1], to[k * step], to[k * step + 1]);
      if (k == 0 || k == n)
        to[k * step + 1] = 0;
    }
  }
}

/* Back again: the first and, with an even length, the last of the half have no
 * imaginary part that counts. Parts are exchanged, for the inverse. */
#undef WHOLE_OF
#define WHOLE_OF(ur, ui, vr, vi, c, s, re, im)                                 \
  do {                                                                         \
    T er = (ur) + (vr), ei = (ui) - (vi), dr = (ur) - (vr), di = (ui) + (vi);  \
    im = er - (di * (c)-dr * (s));                                             \
    re = ei + (dr * (c) + di * (s));                                           \
  } while (0)

static void load_half(const fft_job *j, int64_t first, int64_t w, T *a) {
  const T *x = j->x, *roots = j->roots;
  int64_t n = j->plan->n, size = j->n / 2 + 1, step = 2 * j->inner;
  int64_t far = j->plan->far;
  EACH_TILE(n, w) {
    const T *from = x + 2 * start(j->inner, first + line, size);
    EACH_OF_TILE(n) {
      T *re = a + k * w + line, *im = re + far * w;
      if (!j->half) {
        bool low = k < size;
        const T *v = from + (low ? k : n - k) * step;
        *im = v[0];
        *re = k == 0 ? 0 : low ? v[1] : -v[1];
        continue;
      }
      const T *u = from + k * step, *v = from + (n - k) * step;
      WHOLE_OF(u[0], k ? u[1] : 0, v[0], k ? v[1] : 0, roots[2 * k],
               roots[2 * k + 1], *re, *im);
    }
  }
}

/* --- lines that follow each other: each by itself, then side by side --- */

static void store_half_line(const fft_job *j, int64_t line,
                            const T *restrict re, const T *restrict im) {
  int64_t n = j->plan->n;
  const T *restrict w = j->roots;
  T *restrict to = (T *)j->y + 2 * line * (n + 1), scale = (T)j->scale;
  to[0] = (re[0] + im[0]) * scale;
  to[2 * n] = (re[0] - im[0]) * scale;
  to[1] = to[2 * n + 1] = 0;
#pragma omp simd
  for (int64_t k = 1; k < n; k++)
    HALF_OF(re[k], im[k], re[n - k], im[n - k], w[2 * k], w[2 * k + 1],
            to[2 * k], to[2 * k + 1]);
}

static void load_half_line(const fft_job *j, int64_t line, T *restrict re,
                           T *restrict im, T *restrict u) {
  int64_t n = j->plan->n;
  const T *restrict w = j->roots;
  T *restrict v = u + j->plan->far;
  take_pairs(n + 1, (const T *)j->x + 2 * line * (n + 1), u, v);
  v[0] = v[n] = 0;
#pragma omp simd
  for (int64_t k = 0; k < n; k++)
    WHOLE_OF(u[k], v[k], u[n - k], v[n - k], w[2 * k], w[2 * k + 1], re[k],
             im[k]);
}

/* Both of lines side by side: a pair is two rows, between them and memory. */
static void store_half_rows(const fft_job *j, int64_t first, int64_t w,
                            const T *restrict a, T *restrict b) {
  int64_t n = j->plan->n, far = j->plan->far * w;
  const T *roots = j->roots;
  T scale = (T)j->scale;
  for (int64_t k = 0; k <= n; k++) {
    const T *u = a + (k < n ? k : 0) * w, *v = a + (k ? n - k : 0) * w;
    T c = roots[2 * k], s = roots[2 * k + 1], *re = b + 2 * k * w;
#pragma omp simd
    for (int64_t i = 0; i < w; i++)
      HALF_OF(u[i], u[i + far], v[i], v[i + far], c, s, re[i], re[i + w]);
    if (k == 0 || k == n)
      memset(re + w, 0, (size_t)w * sizeof(T));
  }
  transpose((T *)j->y + 2 * first * (n + 1), 2 * n + 2, b, w, 2 * n + 2, w, 1);
}

static void load_half_rows(const fft_job *j, int64_t first, int64_t w,
                           T *restrict a, T *restrict b) {
  int64_t n = j->plan->n, far = j->plan->far * w;
  const T *roots = j->roots;
  transpose(b, w, (const T *)j->x + 2 * first * (n + 1), 2 * n + 2, w,
            2 * n + 2, 1);
  memset(b + w, 0, (size_t)w * sizeof(T));
  memset(b + (2 * n + 1) * w, 0, (size_t)w * sizeof(T));
  for (int64_t k = 0; k < n; k++) {
    const T *u = b + 2 * k * w, *v = b + 2 * (n - k) * w;
    T c = roots[2 * k], s = roots[2 * k + 1], *re = a + k * w;
#pragma omp simd
    for (int64_t i = 0; i < w; i++)
      WHOLE_OF(u[i], u[i + w], v[i], v[i + w], c, s, re[i], re[i + far]);
  }
}

static void load_lines(const fft_job *j, int64_t first, int64_t w, T *a, T *b) {
  int64_t n = j->plan->n, far = j->plan->far * w, im = j->inverse ? -far : far;
  const T *from = (const T *)j->x + 2 * first * n;
  T *re = j->inverse ? a + far : a;
  if (j->kind == HALF)
    w > 1 ? load_half_rows(j, first, w, a, b)
          : load_half_line(j, first, a, a + far, b);
  else if (w > 1)
    transpose_pairs(re, w, im, from, 4 * n, 2 * n, w, 2 * n, 1);
  else
    take_pairs(n, from, re, re + im);
}

/* `a` has the lines, b room. */
static void store_lines(const fft_job *j, int64_t first, int64_t w, const T *a,
                        T *b) {
  int64_t n = j->plan->n, far = j->plan->far * w, im = j->inverse ? -far : far;
  T *to = (T *)j->y + 2 * first * n, scale = (T)j->scale;
  const T *re = j->inverse ? a + far : a;
  if (j->kind == REAL)
    w > 1 ? store_half_rows(j, first, w, a, b)
          : store_half_line(j, first, a, a + far);
  else if (w > 1)
    transpose_pairs(to, 4 * n, 2 * n, re, w, im, 2 * n, w, scale);
  else
    give_pairs(n, to, re, re + im, scale);
}

static void ahead(const fft_job *j, int64_t first, int64_t w) {
  int64_t n = 2 * (j->plan->n + (j->kind == HALF)), lines = j->lines - first;
  const char *x = (const char *)((const T *)j->x + first * n);
  fetch_ahead(x, (lines < w ? lines : w) * n * (int64_t)sizeof(T));
}

/* In double; in its own precision, as near as the table is. */
static void turned(const turning *t, int64_t n, int64_t far, int64_t first,
                   int64_t w, T *restrict a) {
  for (int64_t k = 0; k < n; k++, a += w) {
    const double *c = t->cos + k * LINES, *s = t->sin + k * LINES;
    double by[2], own[2];
    power(&t->of, first % t->lines * k, by);
#pragma omp simd private(own)
    for (int64_t b = 0; b < w; b++) {
      if (sizeof(T) == sizeof(double))
        power(&t->of, (first % t->lines + b) * k, own);
      else {
        own[0] = by[0] * c[b] - by[1] * s[b];
        own[1] = by[0] * s[b] + by[1] * c[b];
      }
      double ar = (double)a[b], ai = (double)a[b + far];
      a[b] = (T)(ar * own[0] - ai * own[1]);
      a[b + far] = (T)(ar * own[1] + ai * own[0]);
    }
  }
}

static void groups(void *context, int64_t begin, int64_t end) {
  fft_job *j = context;
  T *a = tile_slot_take(&j->slots), *b = a + 2 * j->plan->far * j->width;
  bool rows = j->kind == PAIRS || j->half;
  bool follow = j->inner == 1 && rows, leave = j->below == 1 && rows;
  for (int64_t g = begin; g < end; g++) {
    int64_t first = g * j->width, w = j->lines - first;
    w = w < j->width ? w : j->width;
    if (follow) {
      load_lines(j, first, w, a, b);
      if (g + 1 < end)
        ahead(j, first + w, w);
    } else
      (j->kind == HALF ? load_half : load_plain)(j, first, w, a);
    T *y = transform(j->plan, w, a, b);
    if (j->turn)
      turned(j->turn, j->plan->n, j->plan->far * w, first, w, y);
    if (leave)
      store_lines(j, first, w, y, y == a ? b : a);
    else
      (j->kind == REAL ? store_half : store_plain)(j, first, w, y);
  }
  tile_slot_give(&j->slots, a);
}

static void chirp_spectrum(const plan *p, void *room) {
  T *a = room, *spectrum = (T *)(uintptr_t)p->spectrum;
  const T *chirp = p->roots;
  int64_t m = p->inner->n, n = p->n, far = p->inner->far;
  memset(a, 0, (size_t)(2 * far) * sizeof(T));
  for (int64_t j = 0; j < n; j++) {
    a[j] = a[j ? m - j : 0] = chirp[2 * j];
    a[far + j] = a[far + (j ? m - j : 0)] = -chirp[2 * j + 1];
  }
  const T *y = smooth(p->inner, 1, a, a + 2 * far);
  for (int64_t j = 0; j < m; j++) {
    spectrum[2 * j] = y[j] / (T)m;
    spectrum[2 * j + 1] = y[far + j] / (T)m;
  }
}

const fft_kernels FL_TYPED(fft) = {.groups = groups,
                                   .chirp_spectrum = chirp_spectrum};
