/* Functions of sort.c (the order of rows of keys) and index.c (sums in a fixed
 * order) that other families call. Host side only. */
#ifndef FL_CUDA_ORDER_H
#define FL_CUDA_ORDER_H

#include "cuda.h"

/* The least (greatest if `down`) k of each row of x (rows, n), contiguous, in
 * order, and their positions plus `base`; equal ones by position. Only the
 * lowest `bytes` bytes of integers differ (0: all may). */
typedef struct flc_order {
  fl_dtype dtype;
  const void *x;
  int64_t rows, n, k, base;
  int bytes;
  bool down;
  void *values;     /* (rows, k), may be NULL */
  int64_t *indices; /* (rows, k) */
} flc_order;
fl_status flc_order_rows(const fl_launch *l, const flc_order *o);

/* Adds src (n elements, or one number) to single elements of the launch's first
 * result, those for one place in their order. `places` writes which place each
 * is for: n keys of its type (i32 or i64), the number of elements for none. */
fl_status flc_sum_at(const fl_launch *l, const fl_view *src, int64_t n,
                     fl_status (*places)(const fl_launch *l, void *keys,
                                         fl_dtype type, void *context),
                     void *context);

/* Sums of slices: the launch's first result (rows, width...) gets src, slices
 * at the positions in index; those at `skip` (-1: none) count for nothing. */
fl_status flc_sum_rows(const fl_launch *l, const fl_view *index,
                       const fl_view *src, int64_t skip);

/* Bytes that positions below `bound` need. */
static inline int flc_order_bytes(int64_t bound) {
  int bytes = 1;
  while (bytes < 8 && (bound - 1) >> (8 * bytes) > 0)
    bytes++;
  return bytes;
}

#endif
