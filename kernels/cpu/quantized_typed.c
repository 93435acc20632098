/* Rows of a quantised weight as floats, for one float type. */
#include "narrow.h"
#include "typed.h"

#define PARAMS 64 /* scales converted at a time */

FL_FORCE void group_of_4(const uint8_t *q, int64_t from, int64_t n, T zero,
                         T scale, T *restrict out) {
  int64_t i = 0;
  if (n > 0 && from % 2) { /* the group begins in the middle of a byte */
    out[0] = ((T)(q[from / 2] >> 4) - zero) * scale;
    i = 1;
  }
  const uint8_t *bytes = q + (from + i) / 2;
  int64_t pairs = (n - i) / 2;
#pragma omp simd
  for (int64_t p = 0; p < pairs; p++) {
    out[i + 2 * p] = ((T)(bytes[p] & 15) - zero) * scale;
    out[i + 2 * p + 1] = ((T)(bytes[p] >> 4) - zero) * scale;
  }
  if (i + 2 * pairs < n)
    out[n - 1] = ((T)(bytes[pairs] & 15) - zero) * scale;
}

static void quantized_rows(const fl_cpu_narrow *w, int64_t first, int64_t end,
                           void *to) {
  int64_t groups = w->groups, size = groups ? w->k / groups : 0;
  bool pairs = w->dtype == FL_U8;
  size_t bytes = fl_cpu_narrow_bytes(w);
  T scale[PARAMS], zero[PARAMS];
  for (int64_t r = first; r < end; r++)
    for (int64_t g = 0; g < groups; g++) {
      int64_t c = g % PARAMS, at = r * groups + g;
      if (c == 0) {
        int64_t n = groups - g < PARAMS ? groups - g : PARAMS;
        FL_CPU(convert)
        (n, DTYPE, scale, w->scale_dtype,
         (const char *)w->scales + (size_t)at * fl_dtype_size(w->scale_dtype));
        if (w->zeros)
          FL_CPU(convert)
        (n, DTYPE, zero, w->zero_dtype,
         (const char *)w->zeros + (size_t)at * fl_dtype_size(w->zero_dtype));
      }
      T z = w->zeros ? zero[c] : pairs ? 8 : 0, s = scale[c];
      T *restrict out = (T *)to + (r - first) * w->k + g * size;
      if (pairs) {
        group_of_4((const uint8_t *)w->weight + (size_t)r * bytes, g * size,
                   size, z, s, out);
        continue;
      }
      const int8_t *q =
          (const int8_t *)w->weight + (size_t)r * bytes + g * size;
#pragma omp simd
      for (int64_t i = 0; i < size; i++)
        out[i] = ((T)q[i] - z) * s;
    }
}

const quantized_kernels FL_TYPED(quantized) = {.rows = quantized_rows};
