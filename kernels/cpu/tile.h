/* Sizes of the tiles of attention, convolution and Fourier transforms, and
 * scratch for the pieces of a parallel loop. The loops are in tile_typed.h. */
#ifndef FL_CPU_TILE_H
#define FL_CPU_TILE_H

#include "../../runtime/math/math.h"
#include "cpu.h"
#include "slots.h"

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

/* `count` elements from a slot's memory, aligned; moves *at on. */
static inline void *tile_carve(char **at, int64_t count, size_t size) {
  char *p = *at;
  *at += tile_up(count * (int64_t)size, FL_ALIGN);
  return p;
}

#define TILE_UNUSED __attribute__((unused))
/* Where GCC 12's address sanitizer looks for uses after return, a frame is
 * aligned by 32 bytes, and vectors of 64 in it are stored as if by 64. */
#define TILE_UNWATCHED __attribute__((no_sanitize("address")))
#if defined(__clang__)
#define TILE_ONCE __attribute__((noinline))
#else
#define TILE_ONCE __attribute__((noinline, noclone))
#endif

#endif
