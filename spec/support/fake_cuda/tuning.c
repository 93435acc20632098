/* What autotuning asks for: cuBLASLt and cuDNN whose heuristics name as many
 * algorithms as are wanted, all with a workspace, and which launch a kernel
 * "algorithm<i>" or "plan<i>" that does nothing (-D BLAS or DNN). cuDNN refuses
 * to run plan FAKE_REFUSES. Epilogues that cuBLASLt is asked for are lines of
 * the file that FAKE_EPILOGUES names; FAKE_ASKED gets a line for each question
 * to its heuristic, "program", or "beside" if it comes from another thread. */
#define _GNU_SOURCE /* gettid */
#include "../../../kernels/cuda/driver/library.h"
#include "../../../kernels/cuda/vendor/cublaslt.h"
#include "../../../kernels/cuda/vendor/cudnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FLC_DL(ret, name, params) ret name params;

/* By the driver that is loaded, machine.c's. A function is its name. */
static void run(const char *kind, int i, CUstream stream) {
  static char names[64][24];
  static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned,
                            unsigned, unsigned, unsigned, CUstream, void **,
                            void **);
  char path[1000];
  if (!launch) {
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("FLARE_CUDA_PATH"));
    void *driver = dlopen(path, RTLD_NOW);
    *(void **)&launch = driver ? dlsym(driver, "cuLaunchKernel") : NULL;
  }
  if (!launch || i >= 64)
    return;
  if (!names[i][0])
    snprintf(names[i], sizeof names[i], "%s<%d>", kind, i);
  launch((CUfunction)(void *)names[i], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

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
  const char *name = getenv("FAKE_ASKED");
  FILE *f = name ? fopen(name, "a") : NULL;
  if (f) {
    fputs(gettid() == getpid() ? "program\n" : "beside\n", f);
    fclose(f);
  }
  memset(results, 0, (size_t)wanted * sizeof *results);
  for (int i = 0; i < wanted; i++) {
    results[i].workspaceSize = 1 << 20;
    memcpy(&results[i].algo, &i, sizeof i);
  }
  *found = wanted;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t bytes, CUstream stream) {
  int i;
  memcpy(&i, algo, sizeof i);
  run("algorithm", i, stream);
  return CUBLAS_STATUS_SUCCESS;
}
#else
#include "../../../kernels/cuda/vendor/dl_cudnn.def"

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  *handle = (void *)1;
  return CUDNN_STATUS_SUCCESS;
}

/* A descriptor: which of the heuristic's configs it is, or was made of. */
typedef struct part {
  int which;
} part;

static _Thread_local CUstream stream_of; /* as it was last set */

cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *descriptor) {
  *descriptor = calloc(1, sizeof(part));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  free(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t n, const void *values) {
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    *(part *)descriptor = **(part *const *)values;
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
  for (int i = 0; name == CUDNN_ATTR_ENGINEHEUR_RESULTS && i < room; i++)
    ((part **)values)[i]->which = i;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  stream_of = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                  cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const char *refused = getenv("FAKE_REFUSES");
  int which = ((part *)plan)->which;
  if (refused && atoi(refused) == which)
    return 1;
  run("plan", which, stream_of);
  return CUDNN_STATUS_SUCCESS;
}
#endif
