/* Random numbers of programs that try many things. */
#ifndef SPEC_RANDOM_H
#define SPEC_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t random_state;

static uint64_t next_random(void) { /* splitmix64 */
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}
static int64_t below(int64_t n) {
  return n > 0 ? (int64_t)(next_random() % (uint64_t)n) : 0;
}
static bool chance(int percent) {
  return below(100) < percent;
}

#endif
