/* What the kernels of gemm.cu get. Strides are in elements. */
#ifndef FL_CUDA_GEMM_H
#define FL_CUDA_GEMM_H

#define GEMM_DIMS 6 /* of a batch */

/* C (m, n) = A (m, k) B (k, n), for each matrix of a batch; C is contiguous. */
typedef struct gemm_args {
  const void *a, *b, *bias; /* bias of n elements, or NULL */
  void *c, *pre;            /* pre: C before the activation, or NULL */
  float *part;              /* splits > 1: (splits, batch, m, n) */
  int64_t m, n, k;
  int64_t am, ak, bk, bn;
  int64_t batch, size[GEMM_DIMS], astep[GEMM_DIMS], bstep[GEMM_DIMS];
  int64_t tiles_m, tiles_n;
  int dims, splits, steps; /* steps of the sum in a split */
  int act, bias_dtype;
  int bias_down; /* bias has m elements, one for each row */
  int wide;      /* rows of C, and C, are aligned to 16 bytes */
} gemm_args;

typedef struct gemm_map { /* a tensor map */
  uint64_t opaque[16];
} __attribute__((aligned(64))) gemm_map;

/* Shared memory of gemm_sm90.cuh: four steps, 64 columns of C on their way out,
 * barriers and bias. */
#define GEMM_SM90_SHARED (4 * 384 * 128 + 2 * 64 * 68 * 4 + 64 + 2 * 64 * 4)

/* gemm_sm90.cu: the operands as maps of four dims, the last two of the batch
 * (one along which an operand repeats has size 1 there). */
typedef struct gemm_sm90 {
  gemm_map a, b;
  gemm_args g;
  uint32_t items; /* tiles of all matrices and splits */
} gemm_sm90;

#endif
