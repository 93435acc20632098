/* Scratch for tasks that run at the same time: a block for each thread. */
#ifndef FL_CPU_SLOTS_H
#define FL_CPU_SLOTS_H

#include "cpu.h"

#include <stdatomic.h>

/* The lowest free one is taken. */
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

#endif
