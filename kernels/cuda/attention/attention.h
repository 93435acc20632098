/* What attention's kernels get, forward and backward alike. Operands are
 * (batch, head, row, column) with columns side by side. */
#ifndef FL_CUDA_ATTENTION_H
#define FL_CUDA_ATTENTION_H

typedef struct attention_rows {
  void *data;
  int64_t batch, head, row; /* strides in elements */
} attention_rows;

typedef struct attention_mask { /* data NULL: none */
  const void *data;
  int64_t stride[4];
  int dtype; /* bool, or the type computed in; for Hopper also the operands' */
} attention_mask;

/* A bool mask as bits, for the kernels for Hopper: 1 where a row sees a column.
 * Rows are queries and columns keys, backward the other way round. */
typedef struct attention_bits { /* data NULL: none */
  const uint32_t *data;
  int64_t batch, head, row; /* strides in words; a row is whole 16 bytes */
  int word;                 /* 1; 0: all columns are alike */
} attention_bits;

/* What makes bits. */
typedef struct attention_pack {
  const uint8_t *mask;
  int64_t stride[4]; /* of batch, head, row, column */
  uint32_t *to;      /* (batch, heads, rows, words) */
  int64_t heads, rows, columns, words;
  int64_t lines, units; /* of warps, of rows; and of all */
} attention_pack;

typedef struct attention_drop {
  uint64_t limit; /* of 2^16: a number below is dropped; 0: no dropout */
  double keep;    /* factor of what stays */
  uint64_t seed, offset;
  const void *seed_at, *offset_at; /* if not NULL, they are there */
  int seed_dtype, offset_dtype;
} attention_drop;

typedef struct attention_args {
  attention_rows q, k, v, y, dy, dq, dk, dv;
  attention_mask mask;
  attention_bits bits;
  attention_drop drop;
  int64_t nq, nk, tiles; /* queries, keys, tiles of a head */
  int heads, group;      /* heads of q; q's heads to one of k */
  int d, dv_cols;        /* columns of q and k, of v */
  int chunks;            /* parts of the columns of a result */
  int causal;            /* query i sees keys up to i + ahead */
  int64_t ahead;         /* keys - queries: the last query sees all keys */
  double scale;
  void *lse, *delta; /* (batch, heads, nq), of the type computed in */
  int joined;        /* parts are a cluster, which joins their results itself */
  int parts; /* more than 1: that many blocks share the keys of a tile, */
  float *part_y, *part_lse; /* (parts, batch, heads, nq, dv_cols or nothing) */
} attention_args;

#endif
