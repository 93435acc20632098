/* What autotuning asks for: cuBLASLt and cuDNN whose heuristics name as many
 * algorithms as are wanted, all with a workspace, and which do nothing (-D BLAS
 * or DNN). Epilogues that cuBLASLt is asked for are lines of the file that
 * FAKE_EPILOGUES names. */
#include "../../../kernels/cuda/driver/library.h"
#include "../../../kernels/cuda/vendor/cublaslt.h"
#include "../../../kernels/cuda/vendor/cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FLC_DL(ret, name, params) ret name params;
#ifdef BLAS
#include "../../../kernels/cuda/vendor/dl_cublaslt.def"

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = (void *)1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t what,
                               const void *value, size_t bytes) {
  const char *name = getenv("FAKE_EPILOGUES");
  int epilogue = 0;
  if (what != CUBLASLT_MATMUL_DESC_EPILOGUE || !name)
    return CUBLAS_STATUS_SUCCESS;
  memcpy(&epilogue, value, sizeof epilogue);
  FILE *f = fopen(name, "a");
  if (f) {
    fprintf(f, "%d\n", epilogue);
    fclose(f);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *found) {
  memset(results, 0, (size_t)wanted * sizeof *results);
  for (int i = 0; i < wanted; i++)
    results[i].workspaceSize = 1 << 20;
  *found = wanted;
  return CUBLAS_STATUS_SUCCESS;
}
#else
#include "../../../kernels/cuda/vendor/dl_cudnn.def"

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  *handle = (void *)1;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *descriptor) {
  *descriptor = (void *)1;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t room, int64_t *n, void *values) {
  int64_t bytes = 1 << 20;
  *n = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE ? 0 : room;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    memcpy(values, &bytes, sizeof bytes);
  return CUDNN_STATUS_SUCCESS;
}
#endif
