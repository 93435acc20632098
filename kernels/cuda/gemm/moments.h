/* What the kernels of moments_sm90.cu get: C (m, n) = A (m, k) B (n, k), lines
 * of all of them side by side. */
#ifndef FL_CUDA_MOMENTS_H
#define FL_CUDA_MOMENTS_H

#include "gemm.h"

#define MOMENTS_ROWS   128 /* of a tile; its columns are 64 or 128 */
#define MOMENTS_STAGES 5   /* of 64 elements of the sum */
/* Steps, the tiles of two warp groups on their way out, barriers. */
#define MOMENTS_SHARED(columns)                                                \
  (MOMENTS_STAGES * (MOMENTS_ROWS + (columns)) * 128 +                         \
   2 * MOMENTS_ROWS * (columns)*2 + 128)

typedef struct moments_sm90 {
  gemm_map a, b, c;
  float *part; /* (parts, n): count, mean, 0, deviation */
  int64_t m, n;
  int steps;
  uint32_t across, items; /* tiles of a line of them, all */
} moments_sm90;

#endif
