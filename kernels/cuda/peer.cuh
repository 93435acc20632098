/* Words in memory that other GPUs have mapped: one GPU sets a word, another
 * waits for it and then sees all that the first wrote before. */
#pragma once

#include "device/flare.cuh"

inline void fl_word_set(uint32_t *word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value)
               : "memory");
}

inline uint32_t fl_word_get(const uint32_t *word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(word)
               : "memory");
  return value;
}

inline uint64_t fl_nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
