/* What attention's kernels for Hopper get: the operands as tensor maps too, of
 * boxes of 64 columns by as many rows as a tile has. Backward, queries come in
 * tiles of 128 if there are up to 64 columns, else 64. */
#ifndef FL_CUDA_ATTENTION_SM90_H
#define FL_CUDA_ATTENTION_SM90_H

#include "attention.h"

typedef struct attention_map {
  uint64_t opaque[16];
} __attribute__((aligned(64))) attention_map;

typedef struct attention_sm90 {
  attention_map q, k, v, dy;
  attention_args a;
  int more;        /* backward: see `keys` */
  int items;       /* forward: tiles of all heads */
  int section;     /* heads whose items are mixed */
  int *counter;    /* of items taken, or NULL */
  int64_t tiles_q; /* backward: tiles of queries of a head */
  float *rows;     /* (batch, heads, tiles_q, 2, queries): lse for powers of 2,
                      delta */
  float *dq_sums;  /* (batch, heads, tiles_q, 2, 8, 128, 4): see `keys` */
} attention_sm90;

#endif
