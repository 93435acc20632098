/* What the files of the matrix product share: the product as a record, with
 * something to be done to each finished block of C, for one thread (gemm_f32.c,
 * gemm_f64.c) and for all of them (gemm.c). */
#ifndef FL_CPU_GEMM_H
#define FL_CPU_GEMM_H

#include "cpu.h"

/* C (m x n) = A (m x k) B (k x n) [+ C if `add`], row strides lda, ldb, ldc;
 * A is stored k x m if `ta`, B n x k if `tb`. */
typedef struct fl_cpu_product {
  bool ta, tb, add;
  int64_t m, n, k;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  void *c;
  int64_t ldc;
  /* Called once for every element of C, in blocks, when it is final and still
   * in the cache; i0, j0 is where this C lies in the caller's. May be NULL. */
  void (*done)(void *context, int64_t i, int64_t rows, int64_t j, int64_t cols);
  void *context;
  int64_t i0, j0;
  /* Packed B (or NULL): its first `packed_cols` columns, `step` rows at a time,
   * each step in the order that product_pack makes of it. j0 may then be any
   * multiple of FL_PACK_COLUMNS, and b is not read. */
  const void *packed;
  int64_t packed_cols, step;
} fl_cpu_product;

/* Rows of C in registers, two vectors wide; B is read where it lies for a C of
 * up to twice as many. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define FL_TILE_ROWS 14 /* 28 sums, 2 of B, 1 of A in 32 registers */
#else
#define FL_TILE_ROWS 6 /* 12 + 2 + 1 in 16 */
#endif

/* Steps of the sum done at a time, and in how many columns B is packed. */
#define FL_PACK_STEPS   256
#define FL_PACK_COLUMNS 32

/* On the calling thread; needs about 200 KiB of stack. */
void FL_CPU(product_f32)(const fl_cpu_product *p);
void FL_CPU(product_f64)(const fl_cpu_product *p);
/* k <= FL_PACK_STEPS rows of B into k * cols elements, cols rounded up to
 * FL_PACK_COLUMNS; pieces that begin at a multiple of that lie one after the
 * other. */
void FL_CPU(product_pack_f32)(bool tb, int64_t k, int64_t cols, const void *b,
                              int64_t ldb, void *to);
void FL_CPU(product_pack_f64)(bool tb, int64_t k, int64_t cols, const void *b,
                              int64_t ldb, void *to);
/* Over the launch's threads; `dtype` is F32 or F64. */
fl_status FL_CPU(product)(const fl_launch *l, fl_dtype dtype,
                          const fl_cpu_product *p);

#endif
