/* Weighted sums of elements from anywhere: y[p] (+)= the sum over r < terms of
 * weight[r stride + p] x[at[r stride + p]], p < n. */
#ifndef FL_CPU_GATHER_H
#define FL_CPU_GATHER_H

#include "typed.h"

#if FL_T_IS_F32 && defined(__AVX512F__)
#include <immintrin.h>
/* Compilers that do not know the CPU make single loads of it. */
static inline void gather(int64_t n, int64_t terms, int64_t stride,
                          const float *restrict weight,
                          const int32_t *restrict at, const float *restrict x,
                          bool add, float *restrict y) {
  for (int64_t p = 0; p < n; p += 16) {
    __mmask16 m = n - p < 16 ? (__mmask16)((1u << (n - p)) - 1) : 0xffff;
    __m512 zero = _mm512_setzero_ps();
    __m512 sum = add ? _mm512_maskz_loadu_ps(m, y + p) : zero;
    for (int64_t r = 0; r < terms; r++) {
      __m512i i = _mm512_maskz_loadu_epi32(m, at + r * stride + p);
      __m512 v = _mm512_mask_i32gather_ps(zero, m, i, x, 4);
      __m512 w = _mm512_maskz_loadu_ps(m, weight + r * stride + p);
      sum = r || add ? _mm512_fmadd_ps(w, v, sum) : _mm512_mul_ps(w, v);
    }
    _mm512_mask_storeu_ps(y + p, m, sum);
  }
}
#else
static inline void gather(int64_t n, int64_t terms, int64_t stride,
                          const T *restrict weight, const int32_t *restrict at,
                          const T *restrict x, bool add, T *restrict y) {
  for (int64_t r = 0; r < terms; r++, weight += stride, at += stride) {
    if (r == 0 && !add) {
#pragma omp simd
      for (int64_t p = 0; p < n; p++)
        y[p] = weight[p] * x[at[p]];
      continue;
    }
#pragma omp simd
    for (int64_t p = 0; p < n; p++)
      y[p] += weight[p] * x[at[p]];
  }
}
#endif

#endif
