/* cuSOLVER with cuBLAS, and cuFFT: the types and numbers of theirs that we use,
 * and their functions as tables. */
#ifndef FL_CUDA_CUSOLVER_H
#define FL_CUDA_CUSOLVER_H

#include "cublaslt.h"

typedef int cusolverStatus_t, cusolverEigMode_t, libraryPropertyType;
typedef int cublasFillMode_t, cublasSideMode_t, cublasOperation_t,
    cublasDiagType_t;
typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cusolverDnParams *cusolverDnParams_t;
typedef struct gesvdjInfo *gesvdjInfo_t;
typedef struct cublasContext *cublasHandle_t;
typedef int cufftResult, cufftHandle;

/* name, value; a spec compares them with NVIDIA's headers */
#define FLC_SOLVER_NUMBERS(V)                                                  \
  V(CUSOLVER_STATUS_SUCCESS, 0)                                                \
  V(CUSOLVER_EIG_MODE_NOVECTOR, 0)                                             \
  V(CUSOLVER_EIG_MODE_VECTOR, 1)                                               \
  V(CUBLAS_FILL_MODE_LOWER, 0)                                                 \
  V(CUBLAS_FILL_MODE_UPPER, 1)                                                 \
  V(CUBLAS_SIDE_LEFT, 0)                                                       \
  V(CUBLAS_SIDE_RIGHT, 1)                                                      \
  V(CUBLAS_DIAG_NON_UNIT, 0)                                                   \
  V(CUBLAS_DIAG_UNIT, 1)                                                       \
  V(MAJOR_VERSION, 0)                                                          \
  V(MINOR_VERSION, 1)
#define FLC_FFT_NUMBERS(V)                                                     \
  V(CUFFT_SUCCESS, 0)                                                          \
  V(CUFFT_FORWARD, -1)                                                         \
  V(CUFFT_INVERSE, 1)                                                          \
  V(CUDA_C_32F, 4)                                                             \
  V(CUDA_C_64F, 5)

#ifndef FLC_REAL_HEADERS
enum {
#define FLC_NUMBER(name, value) name = value,
  FLC_SOLVER_NUMBERS(FLC_NUMBER) FLC_FFT_NUMBERS(FLC_NUMBER)
#undef FLC_NUMBER
};
#endif

typedef struct flc_cusolver_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_cusolver.def"
} flc_cusolver_table;

typedef struct flc_cublas_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_cublas.def"
} flc_cublas_table;

typedef struct flc_fft_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_cufft.def"
} flc_fft_table;

/* NULL without the library; the message says what is missing. cuSOLVER is not
 * there without cuBLAS. */
const flc_cusolver_table *flc_cusolver_get(void);
const flc_cublas_table *flc_cublas_get(void);
const flc_fft_table *flc_fft_get(void);
const char *flc_cusolver_path(void);
const char *flc_cublas_path(void);
const char *flc_fft_path(void);

/* Both libraries, ready for a launch's stream. */
typedef struct flc_solver {
  const flc_cusolver_table *t;
  const flc_cublas_table *blas;
  cusolverDnHandle_t handle;
  cusolverDnParams_t params;
  gesvdjInfo_t jacobi;
  cublasHandle_t blas_handle;
} flc_solver;

/* FL_EDEVICE: they are not there. From FL_OK to the close no other thread has
 * them. */
fl_status flc_solver_open(const fl_launch *l, flc_solver *s);
void flc_solver_close(void);

#endif
