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

/* How the product takes a matrix (rows, cols) with these strides as it lies:
 * stored cols x rows if `turned`; false if it cannot. */
static inline bool fl_cpu_matrix_lies(int64_t rows, int64_t cols, int64_t down,
                                      int64_t along, bool *turned,
                                      int64_t *ld) {
  *turned = false;
  if ((along == 1 || cols == 1) && (down >= cols || rows == 1)) {
    *ld = rows == 1 ? cols : down;
    return true;
  }
  *turned = (down == 1 || rows == 1) && (along >= rows || cols == 1);
  *ld = cols == 1 ? rows : along;
  return *turned;
}

#endif
