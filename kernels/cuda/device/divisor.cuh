/* Unsigned words by size, for kernels that only move elements, and quotients of
 * positions. */
#pragma once

#include "flare.cuh"
#include "divisor.h"

template <int SIZE> struct fl_bits;
template <> struct fl_bits<1> { typedef uint8_t T; };
template <> struct fl_bits<2> { typedef uint16_t T; };
template <> struct fl_bits<4> { typedef uint32_t T; };
template <> struct fl_bits<8> { typedef uint64_t T; };
template <> struct fl_bits<16> { typedef ulonglong2 T; };
#define FL_BITS(SIZE) typename fl_bits<SIZE>::T

/* n = q * by + r, none of them negative; returns r. In 32 bits where that is
 * enough. */
inline int64_t fl_split(int64_t n, int64_t by, int64_t *q) {
  if (((uint64_t)n | (uint64_t)by) >> 32 == 0)
    *q = (uint32_t)n / (uint32_t)by;
  else
    *q = n / by;
  return n - *q * by;
}
inline int64_t fl_split(int64_t n, const flc_divisor &d, int64_t *q) {
  if ((uint64_t)n >> 31) {
    *q = n / d.by;
    return n - *q * d.by;
  }
  uint32_t m = (uint32_t)n, k = (__umulhi(m, d.magic) + m) >> d.shift;
  *q = k;
  return m - k * (uint32_t)d.by;
}
