/* Compiles our declarations of NVIDIA's libraries against their own headers,
 * where those are: functions by type, structures by size and place, numbers by
 * value. Nothing runs; what is missing, or older than what we load, is said and
 * left out. */
#define FLC_REAL_HEADERS /* numbers are the headers' */

/* our types beside theirs, by other names */
#define CUresult                         our_CUresult
#define CUdeviceptr                      our_CUdeviceptr
#define CUdevice_attribute               our_CUdevice_attribute
#define CUfunction_attribute             our_CUfunction_attribute
#define CUmemAllocationGranularity_flags our_CUmemAllocationGranularity_flags
#define CUmemGenericAllocationHandle     our_CUmemGenericAllocationHandle
#define CUstreamCaptureStatus            our_CUstreamCaptureStatus
#define CUstreamCaptureMode              our_CUstreamCaptureMode
#define CUtensorMapDataType              our_CUtensorMapDataType
#define CUtensorMapInterleave            our_CUtensorMapInterleave
#define CUtensorMapSwizzle               our_CUtensorMapSwizzle
#define CUtensorMapL2promotion           our_CUtensorMapL2promotion
#define CUtensorMapFloatOOBfill          our_CUtensorMapFloatOOBfill
#define CUtensorMap                      our_CUtensorMap
#define CUmemLocation                    our_CUmemLocation
#define CUmemAllocationProp              our_CUmemAllocationProp
#define CUmemAccessDesc                  our_CUmemAccessDesc
#define CUipcMemHandle                   our_CUipcMemHandle
#define CUlaunchAttribute                our_CUlaunchAttribute
#define CUlaunchConfig                   our_CUlaunchConfig
#define CUDA_KERNEL_NODE_PARAMS          our_CUDA_KERNEL_NODE_PARAMS
#define nvrtcResult                      our_nvrtcResult
#define nvrtcProgram                     our_nvrtcProgram
#define cublasStatus_t                   our_cublasStatus_t
#define cublasComputeType_t              our_cublasComputeType_t
#define cudaDataType_t                   our_cudaDataType_t
#define cublasLtMatmulDescAttributes_t   our_cublasLtMatmulDescAttributes_t
#define cublasLtMatrixLayoutAttribute_t  our_cublasLtMatrixLayoutAttribute_t
#define cublasLtMatmulPreferenceAttributes_t                                   \
  our_cublasLtMatmulPreferenceAttributes_t
#define cublasLtMatmulDescOpaque_t       our_cublasLtMatmulDescOpaque_t
#define cublasLtMatmulDesc_t             our_cublasLtMatmulDesc_t
#define cublasLtMatrixLayoutOpaque_t     our_cublasLtMatrixLayoutOpaque_t
#define cublasLtMatrixLayout_t           our_cublasLtMatrixLayout_t
#define cublasLtMatmulPreferenceOpaque_t our_cublasLtMatmulPreferenceOpaque_t
#define cublasLtMatmulPreference_t       our_cublasLtMatmulPreference_t
#define cublasLtMatmulAlgo_t             our_cublasLtMatmulAlgo_t
#define cublasLtMatmulHeuristicResult_t  our_cublasLtMatmulHeuristicResult_t
#define ncclResult_t                     our_ncclResult_t
#define ncclDataType_t                   our_ncclDataType_t
#define ncclRedOp_t                      our_ncclRedOp_t
#define ncclUniqueId                     our_ncclUniqueId
#define ncclConfig_t                     our_ncclConfig_t
#define cusolverStatus_t                 our_cusolverStatus_t
#define cusolverEigMode_t                our_cusolverEigMode_t
#define libraryPropertyType              our_libraryPropertyType
#define cublasFillMode_t                 our_cublasFillMode_t
#define cublasSideMode_t                 our_cublasSideMode_t
#define cublasOperation_t                our_cublasOperation_t
#define cublasDiagType_t                 our_cublasDiagType_t
#define cusolverDnHandle_t               our_cusolverDnHandle_t
#define cusolverDnParams_t               our_cusolverDnParams_t
#define gesvdjInfo_t                     our_gesvdjInfo_t
#define cublasHandle_t                   our_cublasHandle_t
#define cufftResult                      our_cufftResult
#define cufftHandle                      our_cufftHandle
#define cudnnStatus_t                    our_cudnnStatus_t
#define cudnnBackendDescriptorType_t     our_cudnnBackendDescriptorType_t
#define cudnnBackendAttributeName_t      our_cudnnBackendAttributeName_t
#define cudnnBackendAttributeType_t      our_cudnnBackendAttributeType_t

#include "../../kernels/cuda/driver/library.h"
#include "../../kernels/cuda/vendor/cublaslt.h"
#include "../../kernels/cuda/vendor/cudnn.h"
#include "../../kernels/cuda/vendor/nccl.h"
#include "../../kernels/cuda/vendor/cusolver.h"

#undef CUresult
#undef CUdeviceptr
#undef CUdevice_attribute
#undef CUfunction_attribute
#undef CUmemAllocationGranularity_flags
#undef CUmemGenericAllocationHandle
#undef CUstreamCaptureStatus
#undef CUstreamCaptureMode
#undef CUtensorMapDataType
#undef CUtensorMapInterleave
#undef CUtensorMapSwizzle
#undef CUtensorMapL2promotion
#undef CUtensorMapFloatOOBfill
#undef CUtensorMap
#undef CUmemLocation
#undef CUmemAllocationProp
#undef CUmemAccessDesc
#undef CUipcMemHandle
#undef CUlaunchAttribute
#undef CUlaunchConfig
#undef CUDA_KERNEL_NODE_PARAMS
#undef nvrtcResult
#undef nvrtcProgram
#undef cublasStatus_t
#undef cublasComputeType_t
#undef cudaDataType_t
#undef cublasLtMatmulDescAttributes_t
#undef cublasLtMatrixLayoutAttribute_t
#undef cublasLtMatmulPreferenceAttributes_t
#undef cublasLtMatmulDescOpaque_t
#undef cublasLtMatmulDesc_t
#undef cublasLtMatrixLayoutOpaque_t
#undef cublasLtMatrixLayout_t
#undef cublasLtMatmulPreferenceOpaque_t
#undef cublasLtMatmulPreference_t
#undef cublasLtMatmulAlgo_t
#undef cublasLtMatmulHeuristicResult_t
#undef ncclResult_t
#undef ncclDataType_t
#undef ncclRedOp_t
#undef ncclUniqueId
#undef ncclConfig_t
#undef cusolverStatus_t
#undef cusolverEigMode_t
#undef libraryPropertyType
#undef cublasFillMode_t
#undef cublasSideMode_t
#undef cublasOperation_t
#undef cublasDiagType_t
#undef cusolverDnHandle_t
#undef cusolverDnParams_t
#undef gesvdjInfo_t
#undef cublasHandle_t
#undef cufftResult
#undef cufftHandle
#undef cudnnStatus_t
#undef cudnnBackendDescriptorType_t
#undef cudnnBackendAttributeName_t
#undef cudnnBackendAttributeType_t
#undef CU_LAUNCH_PARAM_END
#undef CU_LAUNCH_PARAM_BUFFER_POINTER
#undef CU_LAUNCH_PARAM_BUFFER_SIZE

#define NUMBER(name, value) _Static_assert((int)(name) == (value), #name);
#define SIZE(type)                                                             \
  _Static_assert(sizeof(our_##type) == sizeof(type), "size of " #type);
#define SIZE_ALIGNED(type)                                                     \
  SIZE(type)                                                                   \
  _Static_assert(_Alignof(our_##type) == _Alignof(type), "alignment "          \
                                                         "of " #type);
#define PLACE(type, field)                                                     \
  _Static_assert(offsetof(our_##type, field) == offsetof(type, field),         \
                 #type "." #field);                                            \
  _Static_assert(sizeof(((our_##type *)0)->field) ==                           \
                     sizeof(((type *)0)->field),                               \
                 "size of " #type "." #field);
#define FUNCTION(ret, symbol, params)                                          \
  ret(*const check_##symbol) params = symbol;

#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#pragma GCC diagnostic ignored "-Wunused-const-variable"

/* --- the driver --- */

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

#if !defined CUDA_VERSION || CUDA_VERSION < 12000
#pragma message "skipped: there is no <cuda.h> of CUDA 12 or later"
#else

/* exported by all drivers, but declared only for calls of CUDA 12 */
CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                   CUstreamCaptureStatus *status,
                                   cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **last, size_t *n_last);

FLC_CU_NUMBERS(NUMBER)

SIZE(CUresult)
SIZE(CUdeviceptr)
SIZE(CUdevice_attribute)
SIZE(CUfunction_attribute)
SIZE(CUmemAllocationGranularity_flags)
SIZE(CUstreamCaptureStatus)
SIZE(CUstreamCaptureMode)
SIZE(CUmemGenericAllocationHandle)
SIZE(CUtensorMapDataType)
SIZE(CUtensorMapInterleave)
SIZE(CUtensorMapSwizzle)
SIZE(CUtensorMapL2promotion)
SIZE(CUtensorMapFloatOOBfill)
SIZE(CUtensorMap)
SIZE_ALIGNED(CUmemLocation)
PLACE(CUmemLocation, type)
PLACE(CUmemLocation, id)
SIZE_ALIGNED(CUmemAllocationProp)
PLACE(CUmemAllocationProp, type)
PLACE(CUmemAllocationProp, requestedHandleTypes)
PLACE(CUmemAllocationProp, location)
PLACE(CUmemAllocationProp, win32HandleMetaData)
PLACE(CUmemAllocationProp, allocFlags)
PLACE(CUmemAllocationProp, allocFlags.compressionType)
PLACE(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
PLACE(CUmemAllocationProp, allocFlags.usage)
SIZE_ALIGNED(CUmemAccessDesc)
PLACE(CUmemAccessDesc, location)
PLACE(CUmemAccessDesc, flags)
SIZE_ALIGNED(CUipcMemHandle)
SIZE_ALIGNED(CUlaunchAttribute)
PLACE(CUlaunchAttribute, id)
PLACE(CUlaunchAttribute, value)
PLACE(CUlaunchAttribute, value.clusterDim)
PLACE(CUlaunchAttribute, value.clusterDim.x)
PLACE(CUlaunchAttribute, value.clusterDim.y)
PLACE(CUlaunchAttribute, value.clusterDim.z)
SIZE_ALIGNED(CUlaunchConfig)
PLACE(CUlaunchConfig, gridDimX)
PLACE(CUlaunchConfig, gridDimY)
PLACE(CUlaunchConfig, gridDimZ)
PLACE(CUlaunchConfig, blockDimX)
PLACE(CUlaunchConfig, blockDimY)
PLACE(CUlaunchConfig, blockDimZ)
PLACE(CUlaunchConfig, sharedMemBytes)
PLACE(CUlaunchConfig, hStream)
PLACE(CUlaunchConfig, attrs)
PLACE(CUlaunchConfig, numAttrs)

#define FLC_CU(ret, name, symbol, params) FUNCTION(ret, symbol, params)
#include "../../kernels/cuda/driver/dl.def"

#endif

/* --- NVRTC --- */

#if __has_include(<nvrtc.h>)
#include <nvrtc.h>

SIZE(nvrtcResult)
#define FLC_RTC(ret, name, symbol, params) FUNCTION(ret, symbol, params)
#include "../../kernels/cuda/driver/dl.def"

#else
#pragma message "skipped: there is no <nvrtc.h>"
#endif

/* --- cuBLASLt --- */

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#if !defined CUBLAS_VERSION || CUBLAS_VERSION < 120000
#pragma message "skipped: there is no <cublasLt.h> of CUDA 12 or later"
#else

FLC_BLAS_NUMBERS(NUMBER)

SIZE(cublasStatus_t)
SIZE(cublasComputeType_t)
SIZE(cudaDataType_t)
SIZE(cublasLtMatmulDescAttributes_t)
SIZE(cublasLtMatrixLayoutAttribute_t)
SIZE(cublasLtMatmulPreferenceAttributes_t)
SIZE_ALIGNED(cublasLtMatmulDescOpaque_t)
SIZE_ALIGNED(cublasLtMatrixLayoutOpaque_t)
SIZE_ALIGNED(cublasLtMatmulPreferenceOpaque_t)
SIZE_ALIGNED(cublasLtMatmulAlgo_t)
SIZE_ALIGNED(cublasLtMatmulHeuristicResult_t)
PLACE(cublasLtMatmulHeuristicResult_t, algo)
PLACE(cublasLtMatmulHeuristicResult_t, workspaceSize)
PLACE(cublasLtMatmulHeuristicResult_t, state)
PLACE(cublasLtMatmulHeuristicResult_t, wavesCount)

#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_cublaslt.def"

#endif

/* --- cuBLAS, cuSOLVER, cuFFT --- */

#if __has_include(<cusolverDn.h>) && defined CUBLAS_VERSION
#include <cublas_v2.h>
#include <cusolverDn.h>
#endif

#if !defined CUSOLVER_VERSION || CUSOLVER_VERSION < 11701
#pragma message "skipped: there is no <cusolverDn.h> of CUDA 12.6 or later"
#else

FLC_SOLVER_NUMBERS(NUMBER)

SIZE(cusolverStatus_t)
SIZE(cusolverEigMode_t)
SIZE(libraryPropertyType)
SIZE(cublasFillMode_t)
SIZE(cublasSideMode_t)
SIZE(cublasOperation_t)
SIZE(cublasDiagType_t)

#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_cublas.def"
#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_cusolver.def"

#endif

#if __has_include(<cufftXt.h>) && defined CUDA_VERSION
#include <cufft.h>
#include <cufftXt.h>
#endif

#if !defined CUFFT_VERSION || CUFFT_VERSION < 11000
#pragma message "skipped: there is no <cufftXt.h> of CUDA 12 or later"
#else

FLC_FFT_NUMBERS(NUMBER)

SIZE(cufftResult)
SIZE(cufftHandle)

#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_cufft.def"

#endif

/* --- cuDNN --- */

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

#if !defined CUDNN_MAJOR || CUDNN_MAJOR < 9
#pragma message "skipped: there is no <cudnn.h> of cuDNN 9 or later"
#else

FLC_DNN_NUMBERS(NUMBER)

SIZE(cudnnStatus_t)
SIZE(cudnnBackendDescriptorType_t)
SIZE(cudnnBackendAttributeName_t)
SIZE(cudnnBackendAttributeType_t)

#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_cudnn.def"

#endif

/* --- NCCL --- */

#if __has_include(<nccl.h>) && defined CUDA_VERSION
#include <nccl.h>
#endif

#if !defined NCCL_VERSION_CODE || NCCL_VERSION_CODE < 21800
#pragma message "skipped: there is no <nccl.h> of NCCL 2.18 or later"
#else

FLC_NCCL_NUMBERS(NUMBER)

SIZE(ncclResult_t)
SIZE(ncclDataType_t)
SIZE(ncclRedOp_t)
SIZE_ALIGNED(ncclUniqueId)
PLACE(ncclConfig_t, size)
PLACE(ncclConfig_t, magic)
PLACE(ncclConfig_t, version)
PLACE(ncclConfig_t, blocking)
PLACE(ncclConfig_t, cgaClusterSize)
PLACE(ncclConfig_t, minCTAs)
PLACE(ncclConfig_t, maxCTAs)
PLACE(ncclConfig_t, netName)
PLACE(ncclConfig_t, splitShare)

#define FLC_DL(ret, name, params) FUNCTION(ret, name, params)
#include "../../kernels/cuda/vendor/dl_nccl.def"

#endif
