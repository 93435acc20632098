/* What attention's kernels for Hopper get: the operands as tensor maps too, of
 * boxes of 64 columns by as many rows as a tile has. */
#ifndef FL_CUDA_ATTENTION_WIDE_H
#define FL_CUDA_ATTENTION_WIDE_H

#include "attention.h"

typedef struct attention_map {
  uint64_t opaque[16];
} __attribute__((aligned(64))) attention_map;

typedef struct attention_wide {
  attention_map q, k, v, dy;
  attention_args a;
  int64_t items; /* tiles of all heads */
} attention_wide;

#endif
