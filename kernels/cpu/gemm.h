/* What the files of the matrix product share: the product as a record, with
 * something to be done to each finished block of C, for one thread
 * (gemm_typed.c) and for all of them (gemm.c). */
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
  /* Memory for a strip of B in order: k steps of the sum, FL_STRIP_STEPS at
   * most, times so many columns, a multiple of FL_STRIP_UNIT. NULL: a narrow
   * one on the stack. */
  void *room;
  int64_t room_cols;
  /* B lies in order already, by FL_CPU(pack): `b` is the whole of it, `ldb` its
   * columns by FL_PACKED, and column 0 of C is column j0 of it, a multiple of
   * FL_STRIP_UNIT. */
  bool packed;
} fl_cpu_product;

/* Rows of C in registers, two vectors wide; B is read where it lies for a C of
 * up to twice as many. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define FL_TILE_ROWS 14 /* 28 sums, 2 of B, 1 of A in 32 registers */
#else
#define FL_TILE_ROWS 6 /* 12 + 2 + 1 in 16 */
#endif

/* Steps of the sum done at a time, and columns in which C may be cut. */
#define FL_STRIP_STEPS 256
#define FL_STRIP_UNIT  32

/* Bytes from row to row of a B that tiles may read where it lies: rows farther
 * apart share too few sets of the L1 cache, and pages of the TLB. */
#define FL_CLOSE_ROWS 1024

/* On the calling thread; needs about 200 KiB of stack. Bits of the result do
 * not depend on how C is cut, as long as pieces are no smaller than 32 x 32 and
 * begin at multiples of 32 columns. */
void FL_CPU(product_f32)(const fl_cpu_product *p);
void FL_CPU(product_f64)(const fl_cpu_product *p);
/* Puts B, stored n x k if `tb`, in order: FL_PACKED(n) * k elements. */
#define FL_PACKED(n) (((n) + FL_STRIP_UNIT - 1) / FL_STRIP_UNIT * FL_STRIP_UNIT)
void FL_CPU(pack_f32)(bool tb, int64_t n, int64_t k, const void *b, int64_t ldb,
                      void *to);
void FL_CPU(pack_f64)(bool tb, int64_t n, int64_t k, const void *b, int64_t ldb,
                      void *to);
/* C (m x n): how far each row of A (m x k) is from each of B (n x k). */
void FL_CPU(pairwise_f32)(int64_t m, int64_t n, int64_t k, const void *a,
                          const void *b, void *c, int64_t ldc);
void FL_CPU(pairwise_f64)(int64_t m, int64_t n, int64_t k, const void *a,
                          const void *b, void *c, int64_t ldc);
/* Over the launch's threads; `dtype` is F32 or F64. */
fl_status FL_CPU(product)(const fl_launch *l, fl_dtype dtype,
                          const fl_cpu_product *p);

#endif
