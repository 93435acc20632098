/* The loops of softmax and its gradient for one float type. Rows of nothing but
 * -inf, and rows with +inf or NaN, come out as NaN. */
#include "rows.h"
#include "softmax.h"

#define LOGS   16   /* rows taken together for their logarithms */
#define NARROW 8    /* fewer columns than this are taken one by one ... */
#define SHORT  2048 /* ... if they are not longer than this */

/* --- rows --- */

/* As (x - top) - log(sum): top + log(sum) would round to top's digits. Several
 * rows together, so that the logarithms are taken in lanes. */
static void log_rows(int64_t rows, int64_t n, const T *x, T *y) {
  T top[LOGS], shift[LOGS];
  for (int64_t r = 0; r < rows; r++) {
    top[r] = row_max(x + r * n, n);
    shift[r] = (T)row_exp_sum(x + r * n, n, top[r]);
  }
#pragma omp simd
  for (int64_t r = 0; r < rows; r++)
    shift[r] = fl_log(shift[r]);
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    T m = top[r], s = shift[r];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - m) - s;
  }
}

static void soft_row(int64_t n, const T *x, T *y, bool logarithm) {
  if (logarithm) {
    log_rows(1, n, x, y);
    return;
  }
  T top = row_max(x, n);
  T scale = (T)(1 / row_exp(x, n, top, y, 1));
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    y[i] *= scale;
}

/* dx = y (dy - sum(y dy)), or dy - exp(y) sum(dy) */
FL_FORCE double back_sum(int64_t n, const T *dy, const T *y, bool logarithm) {
  return logarithm ? row_sum(dy, n) : row_dot(dy, y, n);
}

FL_FORCE void back_apply(int64_t n, const T *dy, const T *y, T *dx, T sum,
                         bool logarithm) {
  if (logarithm)
    row_less_exp(dy, y, sum, dx, n);
  else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      dx[i] = y[i] * (dy[i] - sum);
  }
}

static void back_row(int64_t n, const T *dy, const T *y, T *dx,
                     bool logarithm) {
  T sum = (T)back_sum(n, dy, y, logarithm);
  back_apply(n, dy, y, dx, sum, logarithm);
}

/* --- pieces of long rows --- */

/* Piece number i: where it begins and how long it is. */
FL_FORCE int64_t piece_at(const softmax_job *j, int64_t i, int64_t *n) {
  int64_t from = i % j->pieces * j->piece;
  *n = j->n - from < j->piece ? j->n - from : j->piece;
  return i / j->pieces * j->n + from;
}

static void soft_begin(void *context, int64_t begin, int64_t end) {
  const softmax_job *j = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t n, at = piece_at(j, i, &n);
    const T *x = (const T *)j->x + at;
    T *y = (T *)j->out + at, top = row_max(x, n);
    T shift = top == (T)-INFINITY ? 0 : top;
    j->top[i] = (double)top;
    j->sum[i] =
        j->logarithm ? row_exp_sum(x, n, shift) : row_exp(x, n, shift, y, 1);
  }
}

static void soft_end(void *context, int64_t begin, int64_t end) {
  const softmax_job *j = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t n, at = piece_at(j, i, &n);
    const T *x = (const T *)j->x + at;
    T *y = (T *)j->out + at, top = (T)j->top[i], by = (T)j->sum[i];
    if (j->logarithm) {
#pragma omp simd
      for (int64_t k = 0; k < n; k++)
        y[k] = (x[k] - top) - by;
    } else {
#pragma omp simd
      for (int64_t k = 0; k < n; k++)
        y[k] *= by;
    }
  }
}

static void back_begin(void *context, int64_t begin, int64_t end) {
  const softmax_job *j = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t n, at = piece_at(j, i, &n);
    j->top[i] = 0;
    j->sum[i] =
        back_sum(n, (const T *)j->x + at, (const T *)j->y + at, j->logarithm);
  }
}

static void back_end(void *context, int64_t begin, int64_t end) {
  const softmax_job *j = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t n, at = piece_at(j, i, &n);
    back_apply(n, (const T *)j->x + at, (const T *)j->y + at, (T *)j->out + at,
               (T)j->sum[i], j->logarithm);
  }
}

/* --- columns: n rows of `wide` of the `inner` adjacent elements --- */

static void soft_columns(int64_t n, int64_t inner, int64_t wide, const T *x,
                         T *y, bool logarithm) {
  T top[TILE], sum[TILE];
  for (int64_t k = 0; k < wide; k++) {
    top[k] = x[k];
    sum[k] = 0;
  }
  for (int64_t i = 1; i < n; i++)
#pragma omp simd
    for (int64_t k = 0; k < wide; k++) {
      T old = top[k], v = x[i * inner + k];
      bool take = (v > old) | (v != v);
      top[k] = take ? v : old;
    }
  for (int64_t i = 0; i < n; i++)
#pragma omp simd
    for (int64_t k = 0; k < wide; k++) {
      T e = row_exp1(x[i * inner + k] - top[k]);
      if (!logarithm)
        y[i * inner + k] = e;
      sum[k] += e;
    }
  for (int64_t k = 0; k < wide; k++)
    sum[k] = logarithm ? fl_log(sum[k]) : 1 / sum[k];
  for (int64_t i = 0; i < n; i++) {
    const T *row = x + i * inner;
    T *to = y + i * inner;
    if (logarithm) {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        to[k] = (row[k] - top[k]) - sum[k];
    } else {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        to[k] *= sum[k];
    }
  }
}

static void back_columns(int64_t n, int64_t inner, int64_t wide, const T *dy,
                         const T *y, T *dx, bool logarithm) {
  T sum[TILE] = {0};
  for (int64_t i = 0; i < n; i++) {
    const T *d = dy + i * inner, *v = y + i * inner;
    if (logarithm) {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        sum[k] += d[k];
    } else {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        sum[k] += d[k] * v[k];
    }
  }
  for (int64_t i = 0; i < n; i++) {
    const T *d = dy + i * inner, *v = y + i * inner;
    T *to = dx + i * inner;
    if (logarithm) {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        to[k] = d[k] - row_exp1(v[k]) * sum[k];
    } else {
#pragma omp simd
      for (int64_t k = 0; k < wide; k++)
        to[k] = v[k] * (d[k] - sum[k]);
    }
  }
}

/* A few short columns: each as a row in a buffer. */
static void narrow_columns(const softmax_job *j, int64_t at) {
  T a[SHORT], b[SHORT];
  T *out = (T *)j->out + at;
  a[0] = b[0] = 0;
  for (int64_t k = 0; k < j->inner; k++) {
    const T *x = (const T *)j->x + at + k, *y = (const T *)j->y;
    for (int64_t i = 0; i < j->n; i++)
      a[i] = x[i * j->inner];
    if (y) {
      for (int64_t i = 0; i < j->n; i++)
        b[i] = y[at + k + i * j->inner];
      back_row(j->n, a, b, a, j->logarithm);
    } else
      soft_row(j->n, a, a, j->logarithm);
    for (int64_t i = 0; i < j->n; i++)
      out[i * j->inner + k] = a[i];
  }
}

/* Rows, or tiles of columns, `begin` to `end`. */
static void softmax_task(void *context, int64_t begin, int64_t end) {
  const softmax_job *j = context;
  const T *x = j->x, *y = j->y;
  T *out = j->out;
  for (int64_t r = begin; r < end; r++) {
    int64_t first = r % j->tiles * TILE;
    int64_t at = r / j->tiles * j->n * j->inner + first;
    int64_t wide = j->inner - first < TILE ? j->inner - first : TILE;
    if (j->inner == 1 && !y && j->logarithm) {
      int64_t most = j->n <= 1024 ? LOGS : 1, rows = end - r;
      rows = rows < most ? rows : most;
      log_rows(rows, j->n, x + at, out + at);
      r += rows - 1;
    } else if (j->inner == 1 && y)
      back_row(j->n, x + at, y + at, out + at, j->logarithm);
    else if (j->inner == 1)
      soft_row(j->n, x + at, out + at, j->logarithm);
    else if (j->inner < NARROW && j->n <= SHORT)
      narrow_columns(j, at);
    else if (y)
      back_columns(j->n, j->inner, wide, x + at, y + at, out + at,
                   j->logarithm);
    else
      soft_columns(j->n, j->inner, wide, x + at, out + at, j->logarithm);
  }
}

const softmax_kernels FL_TYPED(softmax) = {.task = softmax_task,
                                           .begin = soft_begin,
                                           .end = soft_end,
                                           .back_begin = back_begin,
                                           .back_end = back_end};
