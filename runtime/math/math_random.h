/* The last part of math.h: Philox, and what is made of its words. Element e of
 * a draw has counter offset + e / 4; an element that needs more words than its
 * own takes the counter's other streams. */

#include "philox.h"

static inline void fl_philox(uint64_t seed, uint64_t counter, uint64_t stream,
                             uint32_t out[4]) {
  fl_philox_of(FL_PHILOX_ROUNDS, seed, counter, stream, out);
}
/* In [0, 1), 24 and 53 bits. */
static inline float fl_uniform24(uint32_t u) {
  return (float)(u >> 8) * 0x1p-24f;
}
static inline double fl_uniform53(uint32_t high, uint32_t low) {
  return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

/* --- from words to numbers --- */

/* In (0, 1): 32 bits. */
static inline double fl_inside32(uint32_t u) {
  return ((double)u + 0.5) * 0x1p-32;
}
/* The same of 53 bits; the last ones below 1 become the greatest. */
static inline double fl_inside53(uint32_t high, uint32_t low) {
  double u = fl_uniform53(high, low) + 0x1p-54;
  return u < 1 ? u : 1 - 0x1p-53;
}
/* The exponential distribution of rate 1, never 0. */
static inline float fl_exponential_f32(uint32_t u) {
  float v = ((float)u + 0.5f) * 0x1p-32f, most = 1 - 0x1p-24f;
  return -logf(v < most ? v : most);
}
static inline double fl_exponential_f64(uint32_t high, uint32_t low) {
  return -log(fl_inside53(high, low));
}

/* --- by rejection: attempt k of element e has four words of its own --- */

static inline void fl_attempt(uint64_t seed, uint64_t offset, uint64_t e,
                              uint64_t k, uint32_t w[4]) {
  fl_philox(seed, offset + e / 4, k << 2 | (e & 3), w);
}

/* Marsaglia and Tsang (2000): d (1 + c x)^3 of a normal x, for shapes from 1
 * on; below, a power of a uniform number times the gamma of alpha + 1. */
static inline double fl_draw_gamma(uint64_t seed, uint64_t offset, uint64_t e,
                                   double alpha) {
  double d = (alpha < 1 ? alpha + 1 : alpha) - 1. / 3, c = 1 / sqrt(9 * d);
  double scale = 1, v, x, u;
  uint32_t w[4];
  if (alpha < 1) {
    fl_attempt(seed, offset, e, 0, w);
    scale = exp(log(fl_inside53(w[0], w[1])) / alpha);
  }
  for (uint64_t k = 1;; k++) {
    fl_attempt(seed, offset, e, k, w);
    x = sqrt(-2 * log(fl_inside32(w[0])));
    x *= cos(2 * FL_PI * fl_inside32(w[1]));
    u = fl_inside53(w[2], w[3]);
    v = 1 + c * x;
    v = v * v * v;
    if (v > 0 && log(u) < 0.5 * x * x + d * (1 - v + log(v)))
      return d * v * scale;
  }
}

/* Small rates by adding up probabilities, others by transformed rejection with
 * a squeeze (Hoermann 1993, PTRS). */
static inline double fl_draw_poisson(uint64_t seed, uint64_t offset, uint64_t e,
                                     double rate) {
  uint32_t w[4];
  if (rate < 10) {
    fl_attempt(seed, offset, e, 0, w);
    double u = fl_inside53(w[0], w[1]), p = exp(-rate), sum = p, k = 0;
    while (u > sum && k < 200) {
      k += 1;
      p *= rate / k;
      sum += p;
    }
    return k;
  }
  double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  double squeeze = 0.9277 - 3.6224 / (b - 2), log_rate = log(rate);
  double ratio = log(1.1239 + 1.1328 / (b - 3.4));
  for (uint64_t t = 0;; t++) {
    fl_attempt(seed, offset, e, t, w);
    double u = fl_inside53(w[0], w[1]) - 0.5, v = fl_inside53(w[2], w[3]);
    double s = 0.5 - fabs(u), k = floor((2 * a / s + b) * u + rate + 0.43);
    if (s >= 0.07 && v <= squeeze)
      return k;
    if (k < 0 || (s < 0.013 && v > s))
      continue;
    if (log(v) + ratio - log(a / (s * s) + b) <=
        k * log_rate - rate - fl_lgamma_f64(k + 1))
      return k;
  }
}
