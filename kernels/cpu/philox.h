/* Philox by the block: the words of 32 counters in a row, as math.h's fl_philox
 * makes them one by one. */
#ifndef FL_CPU_PHILOX_H
#define FL_CPU_PHILOX_H

#include "../../runtime/math/math.h"

#define FL_PHILOX_COUNTERS 32
#define FL_PHILOX_WORDS    128

#if defined(__x86_64__)
#include <immintrin.h>

/* A counter's word sits in the low half of a 64-bit lane; what gets into the
 * high half is never looked at, since the multiplication reads low halves only.
 */
#if defined(__AVX512F__)
#define FL_PHILOX_LANES 8
#define FL_PHILOX_MUL(a, b)                                                    \
  ((fl_philox_lanes)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define FL_PHILOX_LANES 4
#define FL_PHILOX_MUL(a, b)                                                    \
  ((fl_philox_lanes)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#else
#define FL_PHILOX_LANES 2
#define FL_PHILOX_MUL(a, b)                                                    \
  ((fl_philox_lanes)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#endif
typedef uint64_t fl_philox_lanes
    __attribute__((vector_size(8 * FL_PHILOX_LANES)));

/* Two chains at once hide the latency of the multiplications. */
__attribute__((always_inline)) static inline void
fl_philox_block_of(const int rounds, uint64_t seed, uint64_t counter,
                   uint64_t stream, uint32_t w[FL_PHILOX_WORDS]) {
  typedef fl_philox_lanes lanes;
  static const uint64_t count[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const lanes zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
  const int step = FL_PHILOX_LANES;
  lanes first;
  memcpy(&first, count, sizeof first);
  first += counter;
  for (int g = 0; g < FL_PHILOX_COUNTERS; g += 2 * step, first += 2 * step) {
    lanes a0 = first, b0 = first + step, a1 = a0 >> 32, b1 = b0 >> 32;
    lanes a2 = zero + (uint32_t)stream, b2 = a2, a3 = zero + (stream >> 32),
          b3 = a3;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
    for (int r = 0; r < rounds; r++) {
      lanes p0 = FL_PHILOX_MUL(a0, m0), p1 = FL_PHILOX_MUL(a2, m1);
      lanes q0 = FL_PHILOX_MUL(b0, m0), q1 = FL_PHILOX_MUL(b2, m1);
      a0 = (p1 >> 32) ^ a1 ^ (zero + k0);
      b0 = (q1 >> 32) ^ b1 ^ (zero + k0);
      a2 = (p0 >> 32) ^ a3 ^ (zero + k1);
      b2 = (q0 >> 32) ^ b3 ^ (zero + k1);
      a1 = p1;
      b1 = q1;
      a3 = p0;
      b3 = q0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    a0 = (a0 & 0xffffffffu) | a1 << 32;
    b0 = (b0 & 0xffffffffu) | b1 << 32;
    a2 = (a2 & 0xffffffffu) | a3 << 32;
    b2 = (b2 & 0xffffffffu) | b3 << 32;
    uint64_t pairs[4 * FL_PHILOX_LANES];
    for (int i = 0; i < step; i++) {
      pairs[2 * i] = a0[i];
      pairs[2 * i + 1] = a2[i];
      pairs[2 * (step + i)] = b0[i];
      pairs[2 * (step + i) + 1] = b2[i];
    }
    memcpy(w + 4 * g, pairs, sizeof pairs);
  }
}

#else

static inline void fl_philox_block_of(int rounds, uint64_t seed,
                                      uint64_t counter, uint64_t stream,
                                      uint32_t w[FL_PHILOX_WORDS]) {
  for (int i = 0; i < FL_PHILOX_COUNTERS; i++)
    fl_philox_of(rounds, seed, counter + (uint64_t)i, stream, w + 4 * i);
}

#endif
static inline void fl_philox_block(uint64_t seed, uint64_t counter,
                                   uint64_t stream,
                                   uint32_t w[FL_PHILOX_WORDS]) {
  fl_philox_block_of(FL_PHILOX_ROUNDS, seed, counter, stream, w);
}
/* Halves of words for dropout, the lower one of each first. */
static inline void fl_philox_halves(uint64_t seed, uint64_t counter,
                                    uint16_t h[2 * FL_PHILOX_WORDS]) {
  uint32_t w[FL_PHILOX_WORDS];
  fl_philox_block_of(FL_DROPOUT_ROUNDS, seed, counter, 0, w);
  for (int i = 0; i < FL_PHILOX_WORDS; i++) {
    h[2 * i] = (uint16_t)w[i];
    h[2 * i + 1] = (uint16_t)(w[i] >> 16);
  }
}

#endif
