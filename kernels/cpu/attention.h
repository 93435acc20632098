/* What attention.c plans and attention_typed.c computes. */
#ifndef FL_CPU_ATTENTION_H
#define FL_CPU_ATTENTION_H

#include "tile.h"

#define ATT_Q   64 /* queries of a tile */
#define ATT_K   64 /* keys of a tile */
#define ATT_MIN 16 /* tasks worth having, backward */

/* An operand as (batch, head, row, column); strides in elements. */
typedef struct att_rows {
  char *data;
  fl_dtype dtype;
  int64_t size; /* of an element */
  int64_t stride[4];
} att_rows;

typedef struct att {
  const fl_launch *l;
  att_rows q, k, v, mask, y, dy, dq, dk, dv;
  int64_t batch, heads, group; /* heads of q; q heads to one of k */
  int64_t nq, nk, d, dv_cols;  /* queries, keys, columns of q and k, of v */
  /* Sequences that lie one behind the other; q_ends NULL: one. Theirs are the
   * queries and keys from where the one before ends; the queries, then the keys
   * behind the last are two more, without keys and without queries. att_of
   * makes the above and the following those of one. */
  int64_t sequences;
  const int64_t *q_ends, *k_ends;
  int64_t all_q, all_k, first_q, first_k; /* queries, keys of all; its first */
  int64_t tiles;                          /* of queries, forward */
  int64_t chunks;                         /* of keys, backward */
  bool causal;
  int64_t ahead; /* keys - queries: query i sees keys up to i + ahead */
  double scale, dropout;
  uint64_t seed, offset;
  void *lse;     /* (batch, heads, all_q) of the type computed in */
  void *delta;   /* the same: sum of dy * y over columns */
  void *dq_sums; /* (chunks, batch, heads, all_q, padded d), or dq itself */
  tile_slots slots;
} att;

static inline char *att_at(const att_rows *r, int64_t b, int64_t h,
                           int64_t row) {
  return r->data +
         r->size * (b * r->stride[0] + h * r->stride[1] + row * r->stride[2]);
}

/* Where lse, delta and dq_sums have a query. */
static inline int64_t att_query(const att *a, int64_t b, int64_t h,
                                int64_t query) {
  return (b * a->heads + h) * a->all_q + a->first_q + query;
}

/* The work on sequence s, as if there were no others. */
static inline att att_of(const att *a, int64_t s) {
  att one = *a;
  if (!a->q_ends)
    return one;
  one.first_q = s ? a->q_ends[s - 1] : 0;
  one.first_k = s ? a->k_ends[s - 1] : 0;
  one.nq = a->q_ends[s] - one.first_q;
  one.nk = a->k_ends[s] - one.first_k;
  one.ahead = one.nk - one.nq;
  att_rows *rows[] = {&one.q, &one.y, &one.dy, &one.dq,
                      &one.k, &one.v, &one.dk, &one.dv};
  for (int i = 0; i < 8; i++)
    if (rows[i]->data)
      rows[i]->data += rows[i]->size * rows[i]->stride[2] *
                       (i < 4 ? one.first_q : one.first_k);
  return one;
}

/* Tiles of `rows` queries of sequences before s, at most: a tile of all that a
 * sequence has begun before is not the next one's. */
static inline int64_t att_tiles(const att *a, int64_t s, int64_t rows) {
  return s ? a->q_ends[s - 1] / rows + s : 0;
}

/* The sequence of a tile. */
static inline int64_t att_sequence(const att *a, int64_t tile, int64_t rows) {
  int64_t low = 0, high = a->sequences - 1;
  while (low < high) {
    int64_t s = (low + high + 1) / 2;
    if (att_tiles(a, s, rows) <= tile)
      low = s;
    else
      high = s - 1;
  }
  return low;
}

typedef struct attention_kernels {
  fl_status (*forward)(att *a);
  fl_status (*backward)(att *a);
} attention_kernels;
extern const attention_kernels FL_CPU(attention_f32), FL_CPU(attention_f64);

#endif
