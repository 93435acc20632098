/* Every function that we call of one of NVIDIA's libraries, as a weak one that
 * does nothing: -D DRIVER, COMPILER, BLAS, CUBLAS, CUSOLVER, CUFFT, DNN or
 * NCCL. What a case needs otherwise is in a file that is linked with it. */
#include "../../../kernels/cuda/driver/library.h"
#include "../../../kernels/cuda/vendor/cublaslt.h"
#include "../../../kernels/cuda/vendor/cudnn.h"
#include "../../../kernels/cuda/vendor/nccl.h"
#include "../../../kernels/cuda/vendor/cusolver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FAKE(ret, symbol, params)                                              \
  __attribute__((weak)) ret symbol params;                                     \
  ret symbol params {                                                          \
    return (ret)0;                                                             \
  }

#ifdef DRIVER
#define FLC_CU(ret, name, symbol, params) FAKE(ret, symbol, params)
#include "../../../kernels/cuda/driver/dl.def"
#endif
#ifdef COMPILER
#define FLC_RTC(ret, name, symbol, params) FAKE(ret, symbol, params)
#include "../../../kernels/cuda/driver/dl.def"
#endif
#ifdef BLAS
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_cublaslt.def"
#endif
#ifdef CUBLAS
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_cublas.def"
#endif
#ifdef CUSOLVER
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_cusolver.def"
#endif
#ifdef CUFFT
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_cufft.def"
#endif
#ifdef DNN
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_cudnn.def"
#endif
#ifdef NCCL
#define FLC_DL(ret, name, params) FAKE(ret, name, params)
#include "../../../kernels/cuda/vendor/dl_nccl.def"
#endif
