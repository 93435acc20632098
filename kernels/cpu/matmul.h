/* What linear does to the finished blocks of its product (matmul_typed.c). */
#ifndef FL_CPU_MATMUL_H
#define FL_CPU_MATMUL_H

#include "cpu.h"

typedef struct linear_map {
  fl_cpu_act act;
  int64_t n;
  const void *bias; /* NULL: none */
  void *pre, *y;    /* the same where the activation's input is not kept */
} linear_map;

typedef struct matmul_kernels {
  /* adds the bias to a block of x W^T, then y = act of it; context: a
   * linear_map */
  void (*finish_block)(void *context, int64_t i, int64_t rows, int64_t j,
                       int64_t cols);
} matmul_kernels;
extern const matmul_kernels FL_CPU(matmul_f32), FL_CPU(matmul_f64);

#endif
