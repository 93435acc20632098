/* Arguments of the kernels in sort.cu. */
#ifndef FL_CUDA_SORT_H
#define FL_CUDA_SORT_H

#define SORT_ROW     4096 /* rows as long always fit into shared memory */
#define SORT_KEPT    1024 /* most elements that select keeps of a piece */
#define SORT_PIECE   8192 /* longest piece of select */
#define SORT_THREADS 256  /* of count and spread */
#define SORT_DIGITS  256

/* Elements of a tile of count and spread, by the bytes of one. */
#define SORT_TILE(size) ((size) == 8 ? 2048 : 4096)

/* Everything is (rows, n) and contiguous. `from` has the elements' positions in
 * their line; NULL: they are at 0, 1, 2 ... */
typedef struct rows_args {
  const void *x, *origin; /* values are taken from origin (rows, whole) */
  const uint32_t *from;
  void *values; /* (rows, k), may be NULL */
  int64_t *indices;
  int64_t rows, n, k, whole, base;
  int room; /* n up to a power of two */
  int per;  /* rows of a block */
  int down;
} rows_args;

/* The least k of each of `pieces` pieces, in any order. */
typedef struct select_args {
  const void *x;
  const uint32_t *from;
  void *to; /* (rows, pieces, k) */
  uint32_t *at;
  int64_t n;
  int pieces, k;
  int down;
} select_args;

/* One digit's pass over all rows. The last writes values and indices. */
typedef struct radix_args {
  const void *x;
  const uint32_t *from;
  void *to;
  uint32_t *at;
  void *values;
  int64_t *indices;
  uint32_t *totals;  /* (passes, rows, digits): how often each comes */
  uint64_t *words;   /* (rows, tiles, digits): see look_back */
  uint32_t *tickets; /* (passes): tiles that blocks have taken */
  int64_t rows, n, k, base;
  int tiles, chunks; /* of a row, for `spread` and for `count` */
  int passes, pass;
  int down, last;
} radix_args;

#endif
