/* The types and numbers of cuBLASLt that we use, by its own names where these
 * are not its secret. */
#ifndef FL_CUDA_CUBLASLT_H
#define FL_CUDA_CUBLASLT_H

#include "../cuda.h"

typedef int cublasStatus_t, cublasComputeType_t, cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t {
  uint64_t data[32];
} cublasLtMatmulDescOpaque_t, *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t {
  uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t, *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t data[8];
} cublasLtMatmulPreferenceOpaque_t, *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

/* FLC_BLAS_NUMBERS(V): name, value; a spec compares them with NVIDIA's
 * headers. */
#define FLC_BLAS_NUMBERS(V)                                                    \
  V(CUBLAS_STATUS_SUCCESS, 0)                                                  \
  V(CUBLAS_OP_N, 0)                                                            \
  V(CUBLAS_OP_T, 1)                                                            \
  V(CUDA_R_32F, 0)                                                             \
  V(CUDA_R_64F, 1)                                                             \
  V(CUDA_R_16F, 2)                                                             \
  V(CUDA_R_16BF, 14)                                                           \
  V(CUBLAS_COMPUTE_32F, 68)                                                    \
  V(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                          \
  V(CUBLAS_COMPUTE_64F, 70)                                                    \
  V(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                     \
  V(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                            \
  V(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                            \
  V(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                            \
  V(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                          \
  V(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                      \
  V(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                             \
  V(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                  \
  V(CUBLASLT_EPILOGUE_DEFAULT, 1)                                              \
  V(CUBLASLT_EPILOGUE_RELU, 2)                                                 \
  V(CUBLASLT_EPILOGUE_BIAS, 4)                                                 \
  V(CUBLASLT_EPILOGUE_RELU_BIAS, 6)                                            \
  V(CUBLASLT_EPILOGUE_GELU_AUX, 160)                                           \
  V(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)                                      \
  V(CUBLASLT_EPILOGUE_DGELU, 192)                                              \
  V(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                               \
  V(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                             \
  V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                             \
  V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                             \
  V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                             \
  V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                             \
  V(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

#ifndef FLC_REAL_HEADERS
enum {
#define FLC_NUMBER(name, value) name = value,
  FLC_BLAS_NUMBERS(FLC_NUMBER)
#undef FLC_NUMBER
};
#endif

typedef struct flc_blas_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_cublaslt.def"
} flc_blas_table;

/* NULL without the library; the message says what is missing. */
const flc_blas_table *flc_blas_get(void);
const char *flc_blas_path(void);

#endif
