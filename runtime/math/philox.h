/* Counter-based random words, also for kernels that have no other functions of
 * math.h. */
#ifndef FL_PHILOX_H
#define FL_PHILOX_H

/* --- Philox 4x32 (Salmon et al., SC 2011) --- */

#define FL_PHILOX_ROUNDS  10
#define FL_DROPOUT_ROUNDS 7 /* the fewest with which it passes their tests */

/* Four random words from a 64-bit key and a 128-bit counter. */
static inline void fl_philox_of(int rounds, uint64_t seed, uint64_t counter,
                                uint64_t stream, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32),
           c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32),
           k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < rounds; i++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}
/* Element `at + i` of dropout has half (at + i) % 8 of the words of counter
 * offset + at / 8, the lower half of a word first; at % 8 + i is below 8. */
static inline uint32_t fl_dropout_bits(uint64_t seed, uint64_t offset,
                                       uint64_t at, int i) {
  uint32_t w[4];
  unsigned half = (unsigned)(at % 8) + (unsigned)i;
  fl_philox_of(FL_DROPOUT_ROUNDS, seed, offset + at / 8, 0, w);
  uint32_t a = half & 2 ? w[1] : w[0], b = half & 2 ? w[3] : w[2];
  return (half & 4 ? b : a) >> (half & 1 ? 16 : 0) & 0xffff;
}

#endif
