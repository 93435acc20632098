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
} fl_cpu_product;

/* On the calling thread; needs about 150 KiB of stack. */
void FL_CPU(product_f32)(const fl_cpu_product *p);
void FL_CPU(product_f64)(const fl_cpu_product *p);
/* Over the launch's threads; `dtype` is F32 or F64. */
fl_status FL_CPU(product)(const fl_launch *l, fl_dtype dtype,
                          const fl_cpu_product *p);

#endif
