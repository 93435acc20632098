/* Words by which blocks of a grid exchange values: the lowest bit of a float is
 * the parity of its turn, so a reader checks each word by itself, and no block
 * waits for another's fence. All blocks must run at the same time
 * (flc_grid.together).
 */
#pragma once

#include "flare.cuh"

typedef fl_vec<uint32_t, 4> fl_words;

inline fl_words fl_peek(const uint32_t *from) {
  fl_words v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.at[0]), "=r"(v.at[1]), "=r"(v.at[2]), "=r"(v.at[3])
               : "l"(from)
               : "memory");
  return v;
}

inline void fl_tell(uint32_t *word, uint32_t bits) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(bits)
               : "memory");
}

/* x rounded to a bit less, and the bit: 0 or 1. */
inline void fl_post(uint32_t *word, float x, uint32_t turn) {
  uint32_t bits = x == x ? __float_as_uint(x) + 1 : 0x7fc00000u;
  fl_tell(word, (bits & ~1u) | turn);
}

inline float fl_posted(uint32_t word) {
  return __uint_as_float(word & ~1u);
}
