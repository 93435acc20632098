/* cuBLAS, cuSOLVER and cuFFT that can be opened, and do nothing with what they
 * get: -D CUBLAS, CUSOLVER or CUFFT, linked with all.c. */
#include "../../../kernels/cuda/vendor/cusolver.h"

#define MAKE(T, symbol)                                                        \
  int symbol(T *handle);                                                       \
  int symbol(T *handle) {                                                      \
    static char one;                                                           \
    *handle = (T)(void *)&one;                                                 \
    return 0;                                                                  \
  }

#ifdef CUBLAS
MAKE(cublasHandle_t, cublasCreate_v2)
#endif
#ifdef CUSOLVER
MAKE(cusolverDnHandle_t, cusolverDnCreate)
MAKE(cusolverDnParams_t, cusolverDnCreateParams)
MAKE(gesvdjInfo_t, cusolverDnCreateGesvdjInfo)
#endif
