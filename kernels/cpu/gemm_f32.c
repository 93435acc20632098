/* The matrix product of floats on one thread; see gemm_typed.h. */
#define T           float
#define FL_T_IS_F32 1
#define PRODUCT     FL_CPU(product_f32)
#define PACK        FL_CPU(pack_f32)
#define PAIRS       FL_CPU(pairwise_f32)
#define GEMM        FL_CPU(gemm_f32)
#include "gemm_typed.h"
