/* Arguments of the kernels in index.cu and mask.cu. */
#ifndef FL_CUDA_INDEX_H
#define FL_CUDA_INDEX_H

#include "device/divisor.h"

#define INDEX_DIMS    8
#define INDEX_THREADS 256
#define INDEX_UNITS   4  /* of a thread, where slices are moved */
#define INDEX_RUN     32 /* sorted positions that one thread adds up */

/* What becomes of several elements at one place. */
enum { INDEX_SUM, INDEX_PROD, INDEX_MAX, INDEX_MIN };

/* Positions as stored: i32 or i64. */
typedef struct positions {
  const void *at;
  int narrow; /* i32 */
  flc_fault fault;
  int64_t bound;
  int64_t from_end; /* how many negative ones are good: bound, or 0 of ids */
} positions;

/* (outer, bound, inner) and (outer, n, inner) in units of up to 16 bytes. */
typedef struct slices_args {
  positions index;
  const void *from;
  void *to;
  const uint64_t *last; /* of each position, who writes it: number + 1; NULL:
                           there is one */
  int64_t outer, n, inner;
  flc_divisor by_n, by_inner;
  int64_t step; /* of `from` between units: 0 where it is one number */
} slices_args;

typedef struct claim_args {
  positions index;
  uint64_t *last;
  int64_t n;
} claim_args;

/* Single elements: dims of the index from the last; strides of y (or of what is
 * gathered from) without the dim of the positions, whose stride is `along`. */
typedef struct pick_args {
  positions index;
  const void *src;
  void *y;
  void *last; /* as above, of each element of y */
  int64_t n;  /* elements of the index, or lanes */
  int ndim;
  int64_t along;
  flc_divisor by[INDEX_DIMS]; /* the shape */
  int64_t index_stride[INDEX_DIMS], y_stride[INDEX_DIMS],
      src_stride[INDEX_DIMS];
  int64_t steps, index_step, src_step; /* of a lane */
  int64_t all;                         /* elements of y */
} pick_args;

/* Positions from 0; bad ones, and those of `skip` (-1: none), become bound. */
typedef struct keys_args {
  positions index;
  void *keys; /* i32 or i64 */
  int64_t n, skip;
} keys_args;

/* y (outer, bound, inner) gets sums of src (outer, n, inner). */
typedef struct sums_args {
  const void *keys;     /* sorted */
  const int64_t *order; /* which slice each was */
  const void *src;
  void *y;
  void *head, *tail; /* (tiles, columns): sums that go on beyond a tile */
  int64_t n, outer, inner, bound, tiles;
  flc_divisor by_columns, by_inner;
  int single;     /* src is one number */
  int from, wide; /* dtypes of src and of sums, for the host */
  int how;        /* INDEX_SUM, ..., for the host */
} sums_args;

typedef struct hot_args {
  positions index;
  void *y;
  int64_t n;
} hot_args;

/* Flags in tiles. `before`: of each tile, how many flags are set, then how many
 * are set in the tiles before it; the total follows. */
#define MASK_TILE    4096
#define MASK_THREADS 256

typedef struct mask_args {
  const void *flags;
  uint64_t bits; /* those of a flag that count */
  const void *x; /* masked_select: elements; masked_scatter: their source */
  void *y;
  int64_t *before;
  int64_t n, tiles, room; /* room: elements (or rows) that y or x has */
  int ndim;
  flc_divisor shape[INDEX_DIMS];
  int64_t base;
} mask_args;

#endif
