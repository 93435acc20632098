/* Windows of elements for one type (see pooling.c): the largest element and,
 * for floats, means and the gradients of both. */
#include "pooling.h"
#include "typed.h"

#include <math.h>

#if FL_T_IS_F32
#define INT int32_t /* an integer as wide as T */
#else
#define INT int64_t
#endif
#if FL_T_IS_FLOAT
#define LOWEST    -(T)INFINITY
#define IS_NAN(v) ((v) != (v))
#else
#define LOWEST    INT64_MIN
#define IS_NAN(v) false
#endif

/* --- short strides: vectors along a row of results --- */

/* Row x of the source by residues of the stride, from result `first` on:
 * element i of residue r is x[(first + i) * stride + r - padding], or `fill`
 * outside. */
static void pool_split(const pooling *p, const T *restrict x, int64_t first,
                       T fill, T *restrict to) {
  const pool_axis *a = &p->axis[2];
  int64_t n = p->split, s = a->stride;
  for (int64_t r = 0; r < p->residues; r++, to += n) {
    int64_t begin = p->begin[r] - first, end = p->end[r] - first;
    begin = begin < 0 ? 0 : begin > n ? n : begin;
    end = end < begin ? begin : end > n ? n : end;
    const T *from = x + first * s + r - a->padding;
    for (int64_t i = 0; i < begin; i++)
      to[i] = fill;
    if (s == 1)
      for (int64_t i = begin; i < end; i++)
        to[i] = from[i];
    else if (s == 2)
      for (int64_t i = begin; i < end; i++)
        to[i] = from[i * 2];
    else
      for (int64_t i = begin; i < end; i++)
        to[i] = from[i * s];
    for (int64_t i = end; i < n; i++)
      to[i] = fill;
  }
}

/* Where the results' elements of one tap are in a split row. */
static inline const T *pool_tap(const pooling *p, const T *row, int64_t t) {
  int64_t j = t * p->axis[2].dilation, s = p->axis[2].stride;
  return row + j % s * p->split + j / s;
}

/* The position of the first element of a window that is in the plane. */
static int64_t pool_corner(const pooling *p, const int64_t o[3]) {
  int64_t at = 0;
  for (int i = 0; i < 3; i++) {
    const pool_axis *a = &p->axis[i];
    int64_t x = o[i] * a->stride - a->padding;
    if (x < 0)
      x += (-x + a->dilation - 1) / a->dilation * a->dilation;
    at = at * a->in + x;
  }
  return at;
}

/* Not inlined: gcc would jam the loops around it and lose the vectors. */
static __attribute__((noinline)) void pool_better(const T *restrict from,
                                                  INT number, int64_t n,
                                                  T *restrict best,
                                                  INT *restrict tap) {
#pragma omp simd
  for (int64_t o = 0; o < n; o++) {
    T v = from[o], b = best[o];
    best[o] = v > b || IS_NAN(v) ? v : b;
    tap[o] = v > b || IS_NAN(v) ? number : tap[o];
  }
}

/* Results first, first + 1, ... (n, at most POOL_BLOCK) of one row; NaN is the
 * largest. */
static void pool_max_block(const pooling *p, const T *x, int64_t z, int64_t r,
                           int64_t first, int64_t n, T *y, int64_t *where) {
  const pool_axis *a = p->axis;
  int64_t z0 = z * a[0].stride - a[0].padding,
          r0 = r * a[1].stride - a[1].padding, padded = (n + 15) / 16 * 16;
  int64_t corner =
      (z0 * a[1].in + r0) * a[2].in + first * a[2].stride - a[2].padding;
  T row[POOL_ROOM], best[POOL_BLOCK];
  INT tap[POOL_BLOCK], t = 0;
  for (int64_t o = 0; o < padded; o++) {
    best[o] = LOWEST;
    tap[o] = -1;
  }
  for (int64_t i = 0; i < a[0].kernel; i++)
    for (int64_t j = 0; j < a[1].kernel; j++, t += (INT)a[2].kernel) {
      int64_t zi = z0 + i * a[0].dilation, rj = r0 + j * a[1].dilation;
      if (zi < 0 || zi >= a[0].in || rj < 0 || rj >= a[1].in)
        continue;
      pool_split(p, x + (zi * a[1].in + rj) * a[2].in, first, LOWEST, row);
      for (int64_t k = 0; k < a[2].kernel; k++)
        pool_better(pool_tap(p, row, k), t + (INT)k, padded, best, tap);
    }
  for (int64_t o = 0; o < n; o++) {
    y[o] = best[o];
    where[o] =
        p->base + (tap[o] >= 0 ? corner + o * a[2].stride + p->delta[tap[o]]
                               : pool_corner(p, (int64_t[]){z, r, first + o}));
  }
}

/* --- any stride: one window after the other --- */

static void pool_max_window(const pooling *p, const T *x, const int64_t o[3],
                            T *y, int64_t *where) {
  const pool_axis *a = p->axis;
  int64_t start[3];
  for (int i = 0; i < 3; i++)
    start[i] = o[i] * a[i].stride - a[i].padding;
  T best = LOWEST;
  int64_t at = pool_corner(p, o);
  for (int64_t i = 0; i < a[0].kernel; i++)
    for (int64_t j = 0; j < a[1].kernel; j++) {
      int64_t z = start[0] + i * a[0].dilation,
              r = start[1] + j * a[1].dilation;
      if (z < 0 || z >= a[0].in || r < 0 || r >= a[1].in)
        continue;
      int64_t row = (z * a[1].in + r) * a[2].in;
      for (int64_t k = 0; k < a[2].kernel; k++) {
        int64_t c = start[2] + k * a[2].dilation;
        if (c < 0 || c >= a[2].in)
          continue;
        T v = x[row + c];
        if (v > best || IS_NAN(v)) {
          best = v;
          at = row + c;
        }
      }
    }
  *y = best;
  *where = p->base + at;
}

/* Pieces of work are rows of results. */
static void pool_max(void *context, int64_t begin, int64_t end) {
  const pooling *p = context;
  int64_t rows = p->axis[0].out * p->axis[1].out, n = p->axis[2].out;
  for (int64_t i = begin; i < end; i++) {
    const T *x = (const T *)p->x + i / rows * p->in;
    int64_t z = i % rows / p->axis[1].out, r = i % p->axis[1].out;
    T *y = (T *)p->y + i * n;
    int64_t *where = p->where + i * n;
    for (int64_t o = 0; o < n && p->residues; o += POOL_BLOCK)
      pool_max_block(p, x, z, r, o, n - o < POOL_BLOCK ? n - o : POOL_BLOCK,
                     y + o, where + o);
    for (int64_t o = 0; o < n && !p->residues; o++)
      pool_max_window(p, x, (int64_t[]){z, r, o}, y + o, where + o);
  }
}

#if FL_T_IS_FLOAT

/* --- gradients and means --- */

static void pool_max_back(void *context, int64_t begin, int64_t end) {
  pooling *p = context;
  for (int64_t i = begin; i < end; i++) {
    const T *restrict dy = (const T *)p->x + i * p->out;
    const int64_t *restrict where = p->where + i * p->out;
    T *restrict dx = (T *)p->y + i * p->in;
    memset(dx, 0, (size_t)p->in * sizeof(T));
    for (int64_t o = 0; o < p->out; o++) {
      int64_t at = where[o];
      if (!fl_cpu_position(p->l, &at, p->in)) {
        atomic_store(&p->bad, at);
        atomic_store(&p->failed, true);
        return;
      }
      dx[at] += dy[o];
    }
  }
}

/* Results first, first + 1, ... of one row, windows of a short stride: the rows
 * that they cover are added up before they are split. */
static void pool_mean_block(const pooling *p, const T *x, int64_t z, int64_t r,
                            int64_t first, int64_t n, T *y) {
  const pool_axis *a = p->axis;
  double weight = a[0].weight[z] * a[1].weight[r];
  int64_t padded = (n + 15) / 16 * 16;
  int64_t from = first * a[2].stride - a[2].padding;
  int64_t to = from + p->split * a[2].stride;
  from = from < 0 ? 0 : from;
  to = to < a[2].in ? to : a[2].in;
  T rows[POOL_ROOM], row[POOL_ROOM], sum[POOL_BLOCK];
  memset(rows, 0, to > from ? (size_t)(to - from) * sizeof(T) : 0);
  memset(sum, 0, (size_t)padded * sizeof(T));
  for (int64_t d = a[0].first[z]; d < a[0].end[z]; d++)
    for (int64_t h = a[1].first[r]; h < a[1].end[r]; h++) {
      const T *one = x + (d * a[1].in + h) * a[2].in;
#pragma omp simd
      for (int64_t i = from; i < to; i++)
        rows[i - from] += one[i];
    }
  pool_split(p, rows - from, first, 0, row);
  for (int64_t k = 0; k < a[2].kernel; k++) {
    const T *tap = pool_tap(p, row, k);
#pragma omp simd
    for (int64_t o = 0; o < padded; o++)
      sum[o] += tap[o];
  }
  for (int64_t o = 0; o < n; o++)
    y[o] = sum[o] * (T)(weight * a[2].weight[first + o]);
}

/* Sum of n elements side by side. */
static inline T pool_sum(const T *x, int64_t n) {
  T sum = 0;
  if (n < 8)
    for (int64_t i = 0; i < n; i++)
      sum += x[i];
  else
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
      sum += x[i];
  return sum;
}

static T pool_mean_window(const pooling *p, const T *x, int64_t z, int64_t r,
                          int64_t o) {
  const pool_axis *a = p->axis;
  int64_t rows = a[1].end[r] - a[1].first[r],
          cols = a[2].end[o] - a[2].first[o];
  if (cols == a[2].in) { /* rows follow each other */
    cols *= rows;
    rows = 1;
  }
  T sum = 0;
  for (int64_t d = a[0].first[z]; d < a[0].end[z]; d++)
    for (int64_t h = 0; h < rows; h++)
      sum += pool_sum(x + (d * a[1].in + a[1].first[r] + h) * a[2].in +
                          a[2].first[o],
                      cols);
  return sum * (T)(a[0].weight[z] * a[1].weight[r] * a[2].weight[o]);
}

/* Pieces of work are rows of results. */
static void pool_mean(void *context, int64_t begin, int64_t end) {
  const pooling *p = context;
  int64_t rows = p->axis[0].out * p->axis[1].out, n = p->axis[2].out;
  for (int64_t i = begin; i < end; i++) {
    const T *x = (const T *)p->x + i / rows * p->in;
    int64_t z = i % rows / p->axis[1].out, r = i % p->axis[1].out;
    T *y = (T *)p->y + i * n;
    for (int64_t o = 0; o < n && p->residues; o += POOL_BLOCK)
      pool_mean_block(p, x, z, r, o, n - o < POOL_BLOCK ? n - o : POOL_BLOCK,
                      y + o);
    for (int64_t o = 0; o < n && !p->residues; o++)
      y[o] = pool_mean_window(p, x, z, r, o);
  }
}

static void pool_mean_back(void *context, int64_t begin, int64_t end) {
  const pooling *p = context;
  const pool_axis *a = p->axis, *w = &a[2];
  for (int64_t i = begin; i < end; i++) {
    const T *dy = (const T *)p->x + i * p->out;
    T *restrict dx = (T *)p->y + i * p->in;
    memset(dx, 0, (size_t)p->in * sizeof(T));
    for (int64_t z = 0; z < a[0].out; z++)
      for (int64_t r = 0; r < a[1].out; r++)
        for (int64_t o = 0; o < w->out; o++) {
          T g = *dy++ * (T)(a[0].weight[z] * a[1].weight[r] * w->weight[o]);
          for (int64_t d = a[0].first[z]; d < a[0].end[z]; d++)
            for (int64_t h = a[1].first[r]; h < a[1].end[r]; h++) {
              T *row = dx + (d * a[1].in + h) * w->in;
              for (int64_t k = w->first[o]; k < w->end[o]; k++)
                row[k] += g;
            }
        }
  }
}

#endif

const pooling_kernels FL_TYPED(pooling) = {
    .max = pool_max,
#if FL_T_IS_FLOAT
    .max_back = pool_max_back,
    .mean = pool_mean,
    .mean_back = pool_mean_back,
#endif
};
