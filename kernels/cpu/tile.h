/* What attention.c and conv.c share: products of small tiles (tile.inc),
 * loading and storing elements of any float dtype, and scratch for the pieces
 * of a parallel loop. */
#ifndef FL_CPU_TILE_H
#define FL_CPU_TILE_H

#include "../../runtime/math.h"
#include "cpu.h"

#include <stdatomic.h>

/* Vector registers: how long, and how many accumulators fit beside the operands
 * (32 registers with AVX-512, 16 before). */
#if defined(__AVX512F__)
#define TILE_BYTES    64
#define TILE_NV       4
#define TILE_ROWS(nv) ((nv) == 4 ? 6 : (nv) == 3 ? 8 : 12)
#define TILE_MR       12
#else
#if defined(__AVX__)
#define TILE_BYTES 32
#else
#define TILE_BYTES 16
#endif
#define TILE_NV       2
#define TILE_ROWS(nv) ((nv) == 2 ? 6 : 10)
#define TILE_MR       10
#endif

/* Which part of a product needs computing, in tiles that a diagonal cuts; row i
 * of C, end after the block's last row: */
typedef enum tile_band {
  TILE_FULL,
  TILE_K_TO,   /* p < end + off */
  TILE_K_FROM, /* p >= i + off */
  TILE_N_TO,   /* columns < end + off; the rest of C is left alone */
  TILE_N_FROM  /* columns >= i + off */
} tile_band;

static inline int64_t tile_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/* Scratch blocks for tasks that run at the same time: one for each thread, the
 * lowest free one is taken. */
#define TILE_SLOTS 32
typedef struct tile_slots {
  _Atomic uint32_t taken;
  char *memory;
  size_t size;
} tile_slots;

/* False: no memory (the message is set). */
static inline bool tile_slots_open(const fl_launch *l, tile_slots *s,
                                   int64_t pieces, size_t size) {
  int64_t n = fl_cpu_pool_threads((const fl_cpu_pool *)l->stream);
  n = n < pieces ? n : pieces;
  n = n < TILE_SLOTS ? n : TILE_SLOTS;
  atomic_init(&s->taken, n == 32 ? 0 : ~0u << n);
  s->size = (size + FL_ALIGN - 1) / FL_ALIGN * FL_ALIGN;
  s->memory = n ? fl_scratch_get(l, (size_t)n * s->size) : NULL;
  return !n || s->memory;
}

static inline void *tile_slot_take(tile_slots *s) {
  uint32_t was = atomic_load_explicit(&s->taken, memory_order_relaxed);
  for (;;) {
    if (was == ~0u) { /* more threads than slots */
      was = atomic_load_explicit(&s->taken, memory_order_relaxed);
      continue;
    }
    uint32_t bit = ~was & (was + 1);
    if (atomic_compare_exchange_weak_explicit(&s->taken, &was, was | bit,
                                              memory_order_acquire,
                                              memory_order_relaxed))
      return s->memory + (size_t)__builtin_ctz(bit) * s->size;
  }
}

static inline void tile_slot_give(tile_slots *s, const void *slot) {
  size_t i = (size_t)((const char *)slot - s->memory) / s->size;
  atomic_fetch_and_explicit(&s->taken, ~(1u << i), memory_order_release);
}

/* `count` elements from a slot's memory, aligned; moves *at on. */
static inline void *tile_carve(char **at, int64_t count, size_t size) {
  char *p = *at;
  *at += tile_up(count * (int64_t)size, FL_ALIGN);
  return p;
}

#define TILE_UNUSED __attribute__((unused))
#if defined(__clang__)
#define TILE_ONCE __attribute__((noinline))
#else
#define TILE_ONCE __attribute__((noinline, noclone))
#endif
#define T          float
#define NM(name)   name##_f32
#define TILE_DTYPE FL_F32
#include "tile.inc"
#undef T
#undef NM
#undef TILE_DTYPE
#define T          double
#define NM(name)   name##_f64
#define TILE_DTYPE FL_F64
#include "tile.inc"
#undef T
#undef NM
#undef TILE_DTYPE

#endif
