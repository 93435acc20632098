/* The loops of reduce.c for one type. A block is at most a few thousand
 * elements a result, so a sum inside it may be a T; sums over blocks are
 * double. */
#include "../../runtime/math/math.h"
#include "reduce.h"
#include "typed.h"

#if FL_T_IS_FLOAT
#include "rows.h"

#define SLOT              f /* the member of a slot that T is accumulated in */
#define WIDE              double
#define LOWEST            (-INFINITY)
#define IS_NAN(v)         ((v) != (v))
#define IS_NAN_PAIR(u, v) ((bool)__builtin_isunordered(u, v))
#define NOT_A_NUMBER      ((T)NAN)
#else
#define SLOT              i
#define WIDE              int64_t
#define LOWEST            INT64_MIN
#define IS_NAN(v)         0
#define IS_NAN_PAIR(u, v) 0
#define NOT_A_NUMBER      0 /* never */
#endif

/* What of an element is summed or compared. */
FL_FORCE T part(int kind, T v) {
  switch (kind) {
  case K_ABS_SUM:
  case K_ABS_MAX:
    return fl_abs(v);
  case K_COUNT:
    return (T)(v != 0);
  case K_MIN: /* the largest of what is ordered the other way */
    return FL_T_IS_FLOAT ? -v : (T)(-1 - v);
  case K_ABS_MIN:
    return -fl_abs(v);
  default:
    return v;
  }
}

/* --- sums in T --- */

FL_FORCE T add_row(int kind, const T *x, int64_t n) {
  T lane[64], s = 0;
  int64_t i = 0;
  if (n >= 256) { /* enough lanes to hide the latency of the addition */
    for (int j = 0; j < 64; j++)
      lane[j] = 0;
    for (; i + 64 <= n; i += 64)
      for (int j = 0; j < 64; j++)
        lane[j] += part(kind, x[i + j]);
#pragma omp simd reduction(+ : s)
    for (int j = 0; j < 64; j++)
      s += lane[j];
  }
  T rest = 0;
#pragma omp simd reduction(+ : rest)
  for (int64_t j = i; j < n; j++)
    rest += part(kind, x[j]);
  return s + rest;
}

FL_FORCE void add_rows(int kind, const T *x, int64_t rows, int64_t stride,
                       int64_t n, slot *a) {
  if (n < 16) {
    for (int64_t r = 0; r < rows; r++, x += stride) {
      T s = part(kind, x[0]);
      for (int64_t i = 1; i < n; i++)
        s += part(kind, x[i]);
      a[r].SLOT += s;
    }
    return;
  }
  for (int64_t r = 0; r < rows; r++, x += stride)
    a[r].SLOT += add_row(kind, x, n);
}

FL_FORCE void add_cols(int kind, const T *x, int64_t rows, int64_t stride,
                       int64_t n, slot *a) {
  T t[MAX_TILE];
  for (int64_t j = 0; j < n; j++)
    t[j] = 0;
  for (; rows >= 8; x += 8 * stride, rows -= 8) {
    const T *x4 = x + 4 * stride;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
      t[j] +=
          ((part(kind, x[j]) + part(kind, x[j + stride])) +
           (part(kind, x[j + 2 * stride]) + part(kind, x[j + 3 * stride]))) +
          ((part(kind, x4[j]) + part(kind, x4[j + stride])) +
           (part(kind, x4[j + 2 * stride]) + part(kind, x4[j + 3 * stride])));
  }
  for (; rows > 0; x += stride, rows--) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
      t[j] += part(kind, x[j]);
  }
  for (int64_t j = 0; j < n; j++)
    a[j].SLOT += t[j];
}

/* --- maxima --- */

FL_FORCE T larger(T v, T than) {
  bool take = (v > than) | IS_NAN(v);
  return take ? v : than;
}

FL_FORCE void max_rows(int kind, const T *x, int64_t rows, int64_t stride,
                       int64_t n, slot *a) {
  for (int64_t r = 0; r < rows; r++, x += stride) {
    T m = part(kind, x[0]);
    int nan = 0;
    if (n < 16) {
      for (int64_t i = 1; i < n; i++)
        m = larger(part(kind, x[i]), m);
    } else {
#pragma omp simd reduction(max : m) reduction(| : nan)
      for (int64_t i = 0; i < n; i++) {
        T v = part(kind, x[i]);
        m = v > m ? v : m;
        nan |= IS_NAN(v);
      }
      m = nan ? NOT_A_NUMBER : m;
    }
    a[r].SLOT = m > a[r].SLOT || IS_NAN(m) ? m : a[r].SLOT;
  }
}

FL_FORCE T larger_of_4(T u, T v, T y, T z) {
  u = u > v ? u : v;
  y = y > z ? y : z;
  return u > y ? u : y;
}

FL_FORCE void max_cols(int kind, const T *x, int64_t rows, int64_t stride,
                       int64_t n, slot *a) {
  T t[MAX_TILE];
  for (int64_t j = 0; j < n; j++)
    t[j] = (T)a[j].SLOT;
  for (; rows >= 4; x += 4 * stride, rows -= 4) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T u = part(kind, x[j]), v = part(kind, x[j + stride]);
      T y = part(kind, x[j + 2 * stride]);
      T z = part(kind, x[j + 3 * stride]);
      bool nan = IS_NAN_PAIR(u, v) | IS_NAN_PAIR(y, z);
      T most = larger_of_4(u, v, y, z), old = t[j];
      bool take = (most > old) | nan;
      most = nan ? NOT_A_NUMBER : most;
      t[j] = take ? most : old;
    }
  }
  for (; rows > 0; x += stride, rows--) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T old = t[j];
      t[j] = larger(part(kind, x[j]), old);
    }
  }
  for (int64_t j = 0; j < n; j++)
    a[j].SLOT = t[j];
}

/* --- sums and products in the slot's type: no overflow on the way --- */

FL_FORCE WIDE wide_part(int kind, T v, WIDE p) {
  switch (kind) {
#if FL_T_IS_FLOAT
  case K_SQUARES:
    return (WIDE)v * (WIDE)v;
  case K_POWERS:
    return fl_pow(fl_abs((WIDE)v), p);
#endif
  default:
    (void)p;
    return (WIDE)v;
  }
}

FL_FORCE void wide_rows(int kind, const T *x, int64_t rows, int64_t stride,
                        int64_t n, double p, slot *a) {
  for (int64_t r = 0; r < rows; r++, x += stride) {
    if (kind == K_PROD) {
      WIDE s = 1;
#pragma omp simd reduction(* : s)
      for (int64_t i = 0; i < n; i++)
        s *= (WIDE)x[i];
      a[r].SLOT *= s;
      continue;
    }
    WIDE s = 0, t = 0;
    int64_t h = n / 2;
#pragma omp simd reduction(+ : s, t)
    for (int64_t i = 0; i < h; i++) {
      s += wide_part(kind, x[i], (WIDE)p);
      t += wide_part(kind, x[i + h], (WIDE)p);
    }
    if (n & 1)
      s += wide_part(kind, x[n - 1], (WIDE)p);
    a[r].SLOT += s + t;
  }
}

FL_FORCE void wide_cols(int kind, const T *x, int64_t rows, int64_t stride,
                        int64_t n, double p, slot *a) {
  for (; rows > 0; x += stride, rows--) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      WIDE v = wide_part(kind, x[j], (WIDE)p);
      a[j].SLOT = kind == K_PROD ? a[j].SLOT * v : a[j].SLOT + v;
    }
  }
}

#if FL_T_IS_FLOAT
/* --- mean and sum of squared deviations: a block by two passes, corrected for
 * the rounding of its mean (e), blocks together by
 * merge_moments. Planes: mean, m2, count. --- */

FL_FORCE void moments_rows(const T *x, int64_t rows, int64_t stride, int64_t n,
                           slot *a, int64_t w) {
  for (int64_t r = 0; r < rows; r++, x += stride) {
    T mean = row_sum_block(x, n) / (T)n, s = 0, e = 0;
#pragma omp simd reduction(+ : s, e)
    for (int64_t i = 0; i < n; i++) {
      T d = x[i] - mean;
      s += d * d;
      e += d;
    }
    merge_moments(&a[r].f, &a[r + w].f, &a[r + 2 * w].f,
                  mean + (double)e / (double)n, s - (double)e * e / (double)n,
                  (double)n);
  }
}

FL_FORCE void moments_cols(const T *x, int64_t rows, int64_t stride, int64_t n,
                           slot *a, int64_t w) {
  double mean[MAX_TILE], m2[MAX_TILE];
  columns_moments(x, rows, stride, n, mean, m2);
  for (int64_t j = 0; j < n; j++)
    merge_moments(&a[j].f, &a[j + w].f, &a[j + 2 * w].f, mean[j], m2[j],
                  (double)rows);
}

/* --- log of the sum of exponentials. Planes: maximum, sum --- */

/* Equal maxima (both -inf, say) must not be subtracted. */
FL_FORCE void merge_lse(double *m, double *s, double m2, double s2) {
  double top = m2 > *m || m2 != m2 ? m2 : *m;
  double t = *m == top ? *s : *s * exp(*m - top);
  *s = t + (m2 == top ? s2 : s2 * exp(m2 - top));
  *m = top;
}

FL_FORCE void lse_rows(const T *x, int64_t rows, int64_t stride, int64_t n,
                       slot *a, int64_t w) {
  for (int64_t r = 0; r < rows; r++, x += stride) {
    T m = row_max(x, n);
    double s =
        fl_abs(m) == (T)INFINITY ? (double)(m > 0) : row_exp_sum(x, n, m);
    merge_lse(&a[r].f, &a[r + w].f, m, s);
  }
}

FL_FORCE void lse_cols(const T *x, int64_t rows, int64_t stride, int64_t n,
                       slot *a, int64_t w) {
  T m[MAX_TILE], s[MAX_TILE];
  for (int64_t j = 0; j < n; j++) {
    m[j] = (T)-INFINITY;
    s[j] = 0;
  }
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T old = m[j];
      m[j] = larger(x[r * stride + j], old);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
      s[j] += row_exp1(x[r * stride + j] - m[j]);
  }
  for (int64_t j = 0; j < n; j++)
    merge_lse(&a[j].f, &a[j + w].f, m[j],
              fl_abs(m[j]) == (T)INFINITY ? (double)(m[j] > 0) : (double)s[j]);
}
#endif

/* --- by kind --- */

static void reduce_rows(const reduce_job *b, const void *data, int64_t rows,
                        int64_t stride, int64_t n, slot *a, int64_t w) {
  const T *x = data;
  (void)w;
  switch (b->kind) {
  case K_SUM:
    add_rows(K_SUM, x, rows, stride, n, a);
    break;
  case K_COUNT:
    add_rows(K_COUNT, x, rows, stride, n, a);
    break;
  case K_MAX:
    max_rows(K_MAX, x, rows, stride, n, a);
    break;
  case K_MIN:
    max_rows(K_MIN, x, rows, stride, n, a);
    break;
  case K_PROD:
    wide_rows(K_PROD, x, rows, stride, n, b->p, a);
    break;
#if FL_T_IS_FLOAT
  case K_ABS_SUM:
    add_rows(K_ABS_SUM, x, rows, stride, n, a);
    break;
  case K_ABS_MAX:
    max_rows(K_ABS_MAX, x, rows, stride, n, a);
    break;
  case K_ABS_MIN:
    max_rows(K_ABS_MIN, x, rows, stride, n, a);
    break;
  case K_SQUARES:
    wide_rows(K_SQUARES, x, rows, stride, n, b->p, a);
    break;
  case K_POWERS:
    wide_rows(K_POWERS, x, rows, stride, n, b->p, a);
    break;
  case K_MOMENTS:
    moments_rows(x, rows, stride, n, a, w);
    break;
  case K_LSE:
    lse_rows(x, rows, stride, n, a, w);
    break;
#endif
  }
}

static void reduce_cols(const reduce_job *b, const void *data, int64_t rows,
                        int64_t stride, int64_t n, slot *a, int64_t w) {
  const T *x = data;
  (void)w;
  switch (b->kind) {
  case K_SUM:
    add_cols(K_SUM, x, rows, stride, n, a);
    break;
  case K_COUNT:
    add_cols(K_COUNT, x, rows, stride, n, a);
    break;
  case K_MAX:
    max_cols(K_MAX, x, rows, stride, n, a);
    break;
  case K_MIN:
    max_cols(K_MIN, x, rows, stride, n, a);
    break;
  case K_PROD:
    wide_cols(K_PROD, x, rows, stride, n, b->p, a);
    break;
#if FL_T_IS_FLOAT
  case K_ABS_SUM:
    add_cols(K_ABS_SUM, x, rows, stride, n, a);
    break;
  case K_ABS_MAX:
    max_cols(K_ABS_MAX, x, rows, stride, n, a);
    break;
  case K_ABS_MIN:
    max_cols(K_ABS_MIN, x, rows, stride, n, a);
    break;
  case K_SQUARES:
    wide_cols(K_SQUARES, x, rows, stride, n, b->p, a);
    break;
  case K_POWERS:
    wide_cols(K_POWERS, x, rows, stride, n, b->p, a);
    break;
  case K_MOMENTS:
    moments_cols(x, rows, stride, n, a, w);
    break;
  case K_LSE:
    lse_cols(x, rows, stride, n, a, w);
    break;
#endif
  }
}

/* What comes before the first block, and b's into a's. */
static void start(const reduce_job *b, int64_t n, slot *a, int64_t w) {
  WIDE v = 0;
  if (b->kind == K_PROD)
    v = 1;
  else if (b->kind >= K_MAX)
    v = LOWEST;
  for (int64_t j = 0; j < n; j++) {
    a[j].SLOT = v;
    for (int k = 1; k < b->planes; k++)
      a[j + k * w].SLOT = 0;
  }
}

static void merge(const reduce_job *b, int64_t n, slot *a, slot *c, int64_t w) {
  (void)w;
  if (b->kind < K_PROD) {
    for (int64_t j = 0; j < n; j++)
      a[j].SLOT += c[j].SLOT;
    return;
  }
  for (int64_t j = 0; j < n; j++) {
    if (b->kind == K_PROD)
      a[j].SLOT *= c[j].SLOT;
#if FL_T_IS_FLOAT
    else if (b->kind == K_MOMENTS)
      merge_moments(&a[j].f, &a[j + w].f, &a[j + 2 * w].f, c[j].f, c[j + w].f,
                    c[j + 2 * w].f);
    else if (b->kind == K_LSE)
      merge_lse(&a[j].f, &a[j + w].f, c[j].f, c[j + w].f);
#endif
    else if (c[j].SLOT > a[j].SLOT || IS_NAN(c[j].SLOT))
      a[j].SLOT = c[j].SLOT;
  }
}

static void finish(const reduce_job *b, int64_t n, const slot *a, int64_t w,
                   void *data, int64_t ys) {
  T *y = data;
  int64_t *yi = data;
  (void)w;
  for (int64_t j = 0; j < n; j++) {
    switch (b->finish) {
    case DONE_MIN:
      y[j * ys] = part(K_MIN, (T)a[j].SLOT);
      break;
    case DONE_ANY:
      yi[j * ys] = a[j].SLOT != 0;
      break;
    case DONE_ALL:
      yi[j * ys] = (double)a[j].SLOT == b->count;
      break;
    case DONE_COUNT:
      yi[j * ys] = (int64_t)a[j].SLOT;
      break;
#if FL_T_IS_FLOAT
    case DONE_MEAN:
      y[j * ys] = (T)(a[j].f / b->count);
      break;
    case DONE_ROOT:
      y[j * ys] = (T)(b->p == 2 ? sqrt(a[j].f) : pow(a[j].f, 1 / b->p));
      break;
    case DONE_VAR: {
      double left = b->count - b->p;
      y[j * ys] = (T)(a[j + w].f / (left > 0 ? left : 0));
      break;
    }
    case DONE_LSE:
      y[j * ys] = (T)(a[j].f + log(a[j + w].f));
      break;
#endif
    default:
      y[j * ys] = (T)a[j].SLOT;
    }
  }
}

const reduce_kernels FL_TYPED(reduce) = {.rows = reduce_rows,
                                         .cols = reduce_cols,
                                         .start = start,
                                         .merge = merge,
                                         .finish = finish};
