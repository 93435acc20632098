/* Reductions of one contiguous row that softmax, losses and logsumexp share:
 * maximum, sum, exponentials and their sum. Float versions with AVX-512 are
 * here, those that read the same for float and double in rows_typed.h. */
#ifndef FL_CPU_ROWS_H
#define FL_CPU_ROWS_H

#include "../../runtime/math/math.h"
#include "cpu.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Elements that lanes of a type may sum before the sum goes into a double:
 * 4096 / 64 lanes keeps the error of a float sum near one ulp. */
#define FL_ROW_BLOCK 4096

/* Columns that are reduced together, at most. */
#define FL_COLUMNS 512

#define FL_FORCE static inline __attribute__((always_inline))

FL_FORCE float fl_row_exp1_f32(float x) {
  return fl_exp_f32(x);
}
FL_FORCE double fl_row_exp1_f64(double x) {
  return exp(x);
}

/* Mean, sum of squared deviations and count of two sets together (Chan, Golub
 * and LeVeque 1979). */
FL_FORCE void fl_merge_moments(double *mean, double *m2, double *count,
                               double mean2, double m22, double count2) {
  double n = *count + count2, d = mean2 - *mean;
  if (count2 == 0)
    return;
  *mean += d * (count2 / n);
  *m2 += m22 + d * d * (*count * count2 / n);
  *count = n;
}

#if defined(__AVX512F__)
#define FL_ROWS_AVX512 1

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
static inline float fl_row_max_f32(const float *x, int64_t n) {
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
FL_FORCE float fl_row_dot_block_f32(const float *x, const float *y, int64_t n) {
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

FL_FORCE float fl_row_sum_block_f32(const float *x, int64_t n) {
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
FL_FORCE void fl_row_shifted_block_f32(const float *x, int64_t n, float from,
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
FL_FORCE float fl_row_squares_block_f32(const float *x, int64_t n, float mean) {
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
static inline void fl_row_less_exp_f32(const float *x, const float *y, float s,
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
FL_FORCE float fl_row_exps_f32(const float *x, int64_t n, float m, float *y,
                               float g) {
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
#endif

#define T       float
#define F(name) name##_f32
#include "rows_typed.h"
#undef T
#undef F
#undef FL_ROWS_AVX512
#define T       double
#define F(name) name##_f64
#include "rows_typed.h"
#undef T
#undef F

#endif
