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
  int64_t tiles;               /* of queries, forward */
  int64_t chunks;              /* of keys, backward */
  bool causal;
  int64_t ahead; /* keys - queries: query i sees keys up to i + ahead */
  double scale, dropout;
  uint64_t seed, offset;
  void *lse;     /* (batch, heads, nq) of the type computed in */
  void *delta;   /* the same: sum of dy * y over columns */
  void *dq_sums; /* (chunks, batch, heads, nq, padded d), or dq itself */
  tile_slots slots;
} att;

static inline char *att_at(const att_rows *r, int64_t b, int64_t h,
                           int64_t row) {
  return r->data +
         r->size * (b * r->stride[0] + h * r->stride[1] + row * r->stride[2]);
}

typedef struct attention_kernels {
  fl_status (*forward)(att *a);
  fl_status (*backward)(att *a);
} attention_kernels;
extern const attention_kernels FL_CPU(attention_f32), FL_CPU(attention_f64);

#endif
