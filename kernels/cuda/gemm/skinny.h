/* What the kernels of skinny.cu get. */
#ifndef FL_CUDA_SKINNY_H
#define FL_CUDA_SKINNY_H

#include "../expr.h"
#include "gemm.h"

#define SKINNY_WARPS  16         /* of a block, at most */
#define SKINNY_SHARED (96 << 10) /* bytes of it, as every chip has them */
#define SKINNY_EARLY  (6 << 20)  /* bytes of B that are worth asking ahead */
#define SKINNY_AHEAD  16384 /* bytes of a column that are asked for early */

/* A has up to 16 rows of 16-bit floats, or up to 8 of f32 and f64; rows of A
 * and columns of B are lines along k, aligned to 16 bytes. */
typedef struct skinny_args {
  gemm_args g;
  expr_args e; /* of the expression behind the product */
  int lasting; /* no launch of the graph writes B or the bias: they may be read
                  before the kernels in front have ended (flc_lasting) */
} skinny_args;

#endif
