/* What the kernels of this folder share. product.c, softmax.c, lookup.c,
 * elementwise.c and attention.c are C for Vitis HLS and include nothing else of
 * flare. Compiled as plain C they are an emulator of themselves: they compute
 * the same numbers and count cycles. The emulator knows nothing of placement
 * and timing, and its latencies are assumptions (below), not a report of
 * synthesis. */
#ifndef FL_FPGA_HLS_H
#define FL_FPGA_HLS_H

#include <math.h>
#include <stdint.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#endif

/* Each port of a kernel is 512 bits wide: 16 elements of f32 a cycle where
 * rows of neighbours begin at a multiple of 64 bytes, otherwise one. */
#define LANES 16
#define TILE  16 /* rows and columns of the array of multipliers */

/* Depths of pipelines in cycles: what the first result waits for. */
#define READ_DEPTH  64 /* a read of DDR4 behind an AXI interconnect */
#define WRITE_DEPTH 32
#define MAC_DEPTH   12 /* to fixed point, multiply, add */
#define ADD_DEPTH   8  /* an adder of f32, with what selects it */
#define LOOK_DEPTH                                                             \
  16                 /* to fixed point, two reads of a table, multiply, add    \
                      */
#define DIV_DEPTH 28 /* a divider of f32 */

/* A pipelined loop takes depth + interval * (trips - 1) cycles; all loops here
 * have the interval 1. Calls that run beside each other have clocks of their
 * own, from FORK to JOIN, and take as long as the longer one. CLOCK and ON are
 * arguments of the emulator alone. */
#ifdef __SYNTHESIS__
#define CLOCK
#define ON(c)
#define LOOP(depth, trips) ((void)(trips))
#define FORK(a, b)
#define JOIN(a, b)
#else
typedef struct fpga_clock {
  int64_t cycles;
} fpga_clock;
#define CLOCK              fpga_clock *clock,
#define ON(c)              c,
static inline void fpga_loop(fpga_clock *c, int64_t depth, int64_t trips) {
  c->cycles += trips > 0 ? depth + trips - 1 : 0;
}
#define LOOP(depth, trips) fpga_loop(clock, depth, trips)
#define FORK(a, b)         fpga_clock a[1] = {{0}}, b[1] = {{0}}
#define JOIN(a, b)                                                             \
  (clock->cycles += a->cycles > b->cycles ? a->cycles : b->cycles)
#endif

/* Elements a cycle of rows `row` elements apart, of neighbours `col` apart. */
static inline int lanes_of(int row, int col) {
  return col == 1 && row % LANES == 0 ? LANES : 1;
}

static inline int beats_of(int n, int lanes) {
  return (n + lanes - 1) / lanes;
}

/* --- fixed point --- */

/* A row is 16-bit integers q with one exponent e: x = q 2^(e - 141), where e is
 * the largest exponent field of the row's f32. So |x - q 2^(e - 141)| is at
 * most one unit, 2^(e - 141) <= max|x| 2^-14. A row with an inf or NaN has
 * e = 255, and what is computed of it is NaN. */
static inline int exponent_of(float x) {
  union {
    float f;
    uint32_t u;
  } bits = {x};
  return (int)(bits.u >> 23 & 255);
}

static inline int16_t to_fixed(float x, int e) {
  if (e == 255)
    return 0;
  float y = ldexpf(x, 141 - e);
  int q = (int)(y < 0 ? y - 0.5f : y + 0.5f);
  return (int16_t)(q > 32767 ? 32767 : q < -32767 ? -32767 : q);
}

/* A sum of products of two rows with these exponents. The accumulators of a
 * DSP48E2 have 48 bits: 512 products of 30 bits fit 39. */
static inline float from_fixed(int64_t sum, int ea, int eb) {
  return ea == 255 || eb == 255 ? NAN : ldexpf((float)sum, ea + eb - 282);
}

/* --- tables --- */

/* f at 2049 equidistant points from `low` to `high` in Q5.26, linear between
 * them: off by at most (high - low)^2 / 2^25 max|f''| + 2^-25. */
#define TABLE      2048
#define TABLE_BITS 26

static inline float look_up(const int32_t *table, float x, float low,
                            float per_unit) {
  float at = (x - low) * per_unit;
  int k = (int)at;
  k = k < 0 ? 0 : k > TABLE - 1 ? TABLE - 1 : k;
  int64_t part = (int64_t)((at - (float)k) * 65536.0f); /* Q0.16 */
  int64_t y = table[k] + ((table[k + 1] - (int64_t)table[k]) * part >> 16);
  return ldexpf((float)y, -TABLE_BITS);
}

/* exp(x) for x <= 0 by a table of exp on [-16, 0]; 0 below. */
static inline float exp_by(const int32_t *table, float x) {
  return x >= -16 ? look_up(table, x, -16, TABLE / 16.0f) : x != x ? x : 0;
}

/* A table out of memory. */
static inline void load_table(CLOCK const int32_t *from, int32_t *to) {
#pragma HLS INLINE off
  LOOP(READ_DEPTH, beats_of(TABLE + 1, LANES));
  for (int k = 0; k <= TABLE; k++) {
#pragma HLS PIPELINE II = 1
#pragma HLS UNROLL factor = 16
    to[k] = from[k];
  }
}

#endif
