/* Divisors that many threads share: on the device, quotients of numbers below
 * 2^31 are a multiplication and a shift (Granlund and Montgomery 1994). */
#ifndef FL_CUDA_DIVISOR_H
#define FL_CUDA_DIVISOR_H

typedef struct flc_divisor {
  int64_t by;
  uint32_t magic;
  int shift;
} flc_divisor;

/* `by` is positive. From 2^31 on, all smaller numbers have the quotient 0. */
static inline flc_divisor flc_divisor_of(int64_t by) {
  flc_divisor d = {by, 0, 31};
  if (by >> 31)
    return d;
  d.shift = 0;
  while ((int64_t)1 << d.shift < by)
    d.shift++;
  uint64_t over = ((uint64_t)1 << d.shift) - (uint64_t)by;
  d.magic = (uint32_t)((over << 32) / (uint64_t)by + 1);
  return d;
}

#endif
