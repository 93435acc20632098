/* The matrix product of doubles on one thread; see gemm_typed.h. */
#define T           double
#define FL_T_IS_F32 0
#define PRODUCT     FL_CPU(product_f64)
#define PACK        FL_CPU(pack_f64)
#define PAIRS       FL_CPU(pairwise_f64)
#define GEMM        FL_CPU(gemm_f64)
#include "gemm_typed.h"
