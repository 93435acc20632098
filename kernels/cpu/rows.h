/* Reductions of one contiguous row, or of columns side by side, that softmax,
 * norms, losses and reductions share. For typed files; float has versions with
 * AVX-512. */
#ifndef FL_CPU_ROWS_H
#define FL_CPU_ROWS_H

#include "../../runtime/math/math.h"
#include "typed.h"

#if FL_T_IS_F32 && defined(__AVX512F__)
#include <immintrin.h>
#endif

FL_FORCE T row_exp1(T x) {
#if FL_T_IS_F32
  return fl_exp_f32(x);
#else
  return exp(x);
#endif
}

#define ROW_FAR                                                                \
  64 /* means of so many deviations have a rounding that counts                \
      */

/* Whether the rounding of a mean to T is large beside the deviation 1 / rstd.
 */
FL_FORCE bool row_is_far(T mean, T rstd) {
  return fabs((double)mean * (double)rstd) > ROW_FAR;
}

/* What rounding left out of the mean of a row, where that counts. */
FL_FORCE T row_left(const T *x, int64_t n, T mean, T rstd) {
  double s = 0;
  if (!row_is_far(mean, rstd))
    return 0;
  for (int64_t i = 0; i < n; i++)
    s += (double)(x[i] - mean);
  return (T)(s / (double)n);
}

/* Mean, sum of squared deviations and count of two sets together (Chan, Golub
 * and LeVeque 1979). */
FL_FORCE void merge_moments(double *mean, double *m2, double *count,
                            double mean2, double m22, double count2) {
  double n = *count + count2, d = mean2 - *mean;
  if (count2 == 0)
    return;
  *mean += d * (count2 / n);
  *m2 += m22 + d * d * (*count * count2 / n);
  *count = n;
}

#if FL_T_IS_F32 && defined(__AVX512F__)

FL_FORCE __m512 fl_exp_512(__m512 x) {
  __m512 t =
      _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(FL_EXP_LOG2E)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(t, _mm512_set1_ps(FL_EXP_LN2_HI), x);
  r = _mm512_fnmadd_ps(t, _mm512_set1_ps(FL_EXP_LN2_LO), r);
  __m512 p =
      _mm512_fmadd_ps(r, _mm512_set1_ps(FL_EXP_P4), _mm512_set1_ps(FL_EXP_P3));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(FL_EXP_P2));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(FL_EXP_P1));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(FL_EXP_P0));
  p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
  p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
  /* x = -inf gives r = NaN; such lanes are 0 */
  __mmask16 normal =
      _mm512_cmp_ps_mask(x, _mm512_set1_ps(-104.0f), _CMP_NLT_UQ);
  __mmask16 big = _mm512_cmp_ps_mask(x, _mm512_set1_ps(89.0f), _CMP_GT_OQ);
  p = _mm512_maskz_scalef_ps(normal, p, t);
  return _mm512_mask_mov_ps(p, big, _mm512_set1_ps(INFINITY));
}

FL_FORCE __mmask16 fl_tail_512(int64_t n) {
  return (__mmask16)((1u << n) - 1);
}

/* NaN if there is one, -inf for nothing. */
static inline float row_max(const float *x, int64_t n) {
  __m512 low = _mm512_set1_ps(-INFINITY), a = low, b = low;
  __mmask16 nan = 0;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512 u = _mm512_loadu_ps(x + i), v = _mm512_loadu_ps(x + i + 16);
    nan |= _mm512_cmp_ps_mask(u, v, _CMP_UNORD_Q);
    a = _mm512_max_ps(u, a);
    b = _mm512_max_ps(v, b);
  }
  for (; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    __m512 u = _mm512_mask_loadu_ps(low, k, x + i);
    nan |= _mm512_cmp_ps_mask(u, u, _CMP_UNORD_Q);
    a = _mm512_max_ps(u, a);
  }
  return nan ? NAN : _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}

/* Sums of products and of elements, at most FL_ROW_BLOCK of them. */
FL_FORCE float row_dot_block(const float *x, const float *y, int64_t n) {
  __m512 a = _mm512_setzero_ps(), b = a;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i), a);
    b = _mm512_fmadd_ps(_mm512_loadu_ps(x + i + 16),
                        _mm512_loadu_ps(y + i + 16), b);
  }
  for (; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    a = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(k, x + i),
                        _mm512_maskz_loadu_ps(k, y + i), a);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(a, b));
}

FL_FORCE float row_sum_block(const float *x, int64_t n) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    a = _mm512_add_ps(a, _mm512_loadu_ps(x + i));
    b = _mm512_add_ps(b, _mm512_loadu_ps(x + i + 16));
    c = _mm512_add_ps(c, _mm512_loadu_ps(x + i + 32));
    d = _mm512_add_ps(d, _mm512_loadu_ps(x + i + 48));
  }
  for (; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(k, x + i));
  }
  return _mm512_reduce_add_ps(
      _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
}

/* Sums of x - from and of its squares. */
FL_FORCE void row_shifted_block(const float *x, int64_t n, float from,
                                float *sum, float *squares) {
  __m512 f = _mm512_set1_ps(from);
  __m512 a = _mm512_setzero_ps(), b = a, qa = a, qb = a;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512 u = _mm512_sub_ps(_mm512_loadu_ps(x + i), f);
    __m512 v = _mm512_sub_ps(_mm512_loadu_ps(x + i + 16), f);
    a = _mm512_add_ps(a, u);
    b = _mm512_add_ps(b, v);
    qa = _mm512_fmadd_ps(u, u, qa);
    qb = _mm512_fmadd_ps(v, v, qb);
  }
  for (; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    __m512 u = _mm512_maskz_sub_ps(k, _mm512_maskz_loadu_ps(k, x + i), f);
    a = _mm512_add_ps(a, u);
    qa = _mm512_fmadd_ps(u, u, qa);
  }
  *sum = _mm512_reduce_add_ps(_mm512_add_ps(a, b));
  *squares = _mm512_reduce_add_ps(_mm512_add_ps(qa, qb));
}

/* Sum of (x - mean)^2. */
FL_FORCE float row_squares_block(const float *x, int64_t n, float mean) {
  __m512 a = _mm512_setzero_ps(), b = a, m = _mm512_set1_ps(mean);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512 u = _mm512_sub_ps(_mm512_loadu_ps(x + i), m);
    __m512 v = _mm512_sub_ps(_mm512_loadu_ps(x + i + 16), m);
    a = _mm512_fmadd_ps(u, u, a);
    b = _mm512_fmadd_ps(v, v, b);
  }
  for (; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    __m512 u = _mm512_maskz_sub_ps(k, _mm512_maskz_loadu_ps(k, x + i), m);
    a = _mm512_fmadd_ps(u, u, a);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(a, b));
}

/* z = x - exp(y) s */
static inline void row_less_exp(const float *x, const float *y, float s,
                                float *z, int64_t n) {
  __m512 vs = _mm512_set1_ps(s);
  for (int64_t i = 0; i < n; i += 16) {
    __mmask16 k = n - i < 16 ? fl_tail_512(n - i) : (__mmask16)-1;
    __m512 e = fl_exp_512(_mm512_maskz_loadu_ps(k, y + i));
    _mm512_mask_storeu_ps(
        z + i, k, _mm512_fnmadd_ps(e, vs, _mm512_maskz_loadu_ps(k, x + i)));
  }
}

/* Sum of exp(x - m) over at most FL_ROW_BLOCK elements; stored to y times g if
 * y is given. */
FL_FORCE float row_exps(const float *x, int64_t n, float m, float *y, float g) {
  __m512 s = _mm512_setzero_ps(), vm = _mm512_set1_ps(m),
         vg = _mm512_set1_ps(g);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 e = fl_exp_512(_mm512_sub_ps(_mm512_loadu_ps(x + i), vm));
    if (y)
      _mm512_storeu_ps(y + i, _mm512_mul_ps(e, vg));
    s = _mm512_add_ps(s, e);
  }
  if (i < n) {
    __mmask16 k = fl_tail_512(n - i);
    __m512 e = fl_exp_512(_mm512_sub_ps(_mm512_maskz_loadu_ps(k, x + i), vm));
    if (y)
      _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(e, vg));
    s = _mm512_mask_add_ps(s, k, s, e);
  }
  return _mm512_reduce_add_ps(s);
}

#else
static inline T row_max(const T *x, int64_t n) {
  T m = (T)-INFINITY;
  int nan = 0;
#pragma omp simd reduction(max : m) reduction(| : nan)
  for (int64_t i = 0; i < n; i++) {
    m = x[i] > m ? x[i] : m;
    nan |= x[i] != x[i];
  }
  return nan ? (T)NAN : m;
}

FL_FORCE T row_exps(const T *x, int64_t n, T m, T *y, T g) {
  T s = 0;
  if (y) {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
      T e = row_exp1(x[i] - m);
      y[i] = e * g;
      s += e;
    }
  } else {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
      s += row_exp1(x[i] - m);
  }
  return s;
}
/* Sum of at most FL_ROW_BLOCK elements; 64 lanes hide the latency of the
 * addition, and read memory in one stream. */
FL_FORCE T row_sum_block(const T *x, int64_t n) {
  T lane[64], s = 0;
  int64_t i = 0;
  if (n >= 256) {
    for (int j = 0; j < 64; j++)
      lane[j] = 0;
    for (; i + 64 <= n; i += 64)
      for (int j = 0; j < 64; j++)
        lane[j] += x[i + j];
#pragma omp simd reduction(+ : s)
    for (int j = 0; j < 64; j++)
      s += lane[j];
  }
  T rest = 0;
#pragma omp simd reduction(+ : rest)
  for (int64_t j = i; j < n; j++)
    rest += x[j];
  return s + rest;
}

/* Sums of x - from and of its squares, likewise. */
FL_FORCE void row_shifted_block(const T *x, int64_t n, T from, T *sum,
                                T *squares) {
  T lane[32], lane2[32], s = 0, q = 0;
  int64_t i = 0;
  if (n >= 128) {
    for (int j = 0; j < 32; j++)
      lane[j] = lane2[j] = 0;
    for (; i + 32 <= n; i += 32)
      for (int j = 0; j < 32; j++) {
        T d = x[i + j] - from;
        lane[j] += d;
        lane2[j] += d * d;
      }
#pragma omp simd reduction(+ : s, q)
    for (int j = 0; j < 32; j++) {
      s += lane[j];
      q += lane2[j];
    }
  }
  T rest = 0, rest2 = 0;
#pragma omp simd reduction(+ : rest, rest2)
  for (int64_t j = i; j < n; j++) {
    T d = x[j] - from;
    rest += d;
    rest2 += d * d;
  }
  *sum = s + rest;
  *squares = q + rest2;
}

FL_FORCE T row_dot_block(const T *x, const T *y, int64_t n) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++)
    s += x[i] * y[i];
  return s;
}

/* Sum of (x - mean)^2. */
FL_FORCE T row_squares_block(const T *x, int64_t n, T mean) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++)
    s += (x[i] - mean) * (x[i] - mean);
  return s;
}

/* z = x - exp(y) s */
static inline void row_less_exp(const T *x, const T *y, T s, T *z, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    z[i] = x[i] - row_exp1(y[i]) * s;
}
#endif

static inline double row_sum(const T *x, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += row_sum_block(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK);
  return s;
}

/* Sum of exp(x - m). */
static inline double row_exp_sum(const T *x, int64_t n, T m) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += row_exps(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK, m, NULL,
                  1);
  return s;
}

/* y = g exp(x - m), and the sum of the exponentials. */
static inline double row_exp(const T *x, int64_t n, T m, T *y, T g) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += row_exps(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK, m, y + i,
                  g);
  return s;
}

static inline double row_dot(const T *x, const T *y, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += row_dot_block(x + i, y + i,
                       n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK);
  return s;
}

static inline double row_squares(const T *x, int64_t n, T mean) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += row_squares_block(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK,
                           mean);
  return s;
}

/* Mean and sum of squared deviations: one pass over the differences from the
 * first element (shifted data: Chan, Golub and LeVeque 1983), which are exactly
 * 0 where all elements are equal. Where the first element is an outlier, the
 * sums cancel, and a second pass takes the differences from the mean. */
static inline void row_moments(const T *x, int64_t n, double *mean,
                               double *m2) {
  T from = n ? x[0] : 0;
  for (int pass = 0; pass < 2; pass++) {
    double s = 0, q = 0, offset;
    for (int64_t i = 0; i < n; i += FL_ROW_BLOCK) {
      int64_t count = n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK;
      T sum, squares;
      row_shifted_block(x + i, count, from, &sum, &squares);
      s += (double)sum;
      q += (double)squares;
    }
    offset = s / (double)n;
    *mean = (double)from + offset;
    *m2 = q - s * offset;
    if (s * offset <= 8 * *m2) /* within 2.8 standard deviations */
      return;
    from = (T)*mean;
  }
  *m2 = *m2 < 0 ? 0 : *m2;
}

/* Means and sums of squared deviations down the columns of a block of rows, in
 * two passes, corrected for the rounding of the mean. */
static inline void columns_moments(const T *x, int64_t rows, int64_t stride,
                                   int64_t n, double *mean, double *m2) {
  T m[FL_COLUMNS], s[FL_COLUMNS], e[FL_COLUMNS];
  double count = (double)rows;
  for (int64_t j = 0; j < n; j++)
    m[j] = s[j] = e[j] = 0;
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
      m[j] += x[r * stride + j];
  }
  for (int64_t j = 0; j < n; j++)
    m[j] /= (T)rows;
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T d = x[r * stride + j] - m[j];
      s[j] += d * d;
      e[j] += d;
    }
  }
  for (int64_t j = 0; j < n; j++) {
    mean[j] = (double)m[j] + (double)e[j] / count;
    m2[j] = (double)s[j] - (double)e[j] * (double)e[j] / count;
  }
}

#endif
