/* NVIDIA's libraries as tables of functions, loaded when first asked for, and
 * the few types and numbers of theirs that we use. */
#ifndef FL_CUDA_LIBRARY_H
#define FL_CUDA_LIBRARY_H

#include "../cuda.h"

typedef int CUdevice_attribute, CUfunction_attribute;
typedef int CUmemAllocationGranularity_flags;
typedef int CUstreamCaptureStatus, CUstreamCaptureMode;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUkern_st *CUkernel;
typedef struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
      sharedMemBytes;
  void **kernelParams, **extra;
  CUkernel kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
typedef uint64_t CUmemGenericAllocationHandle;
typedef int nvrtcResult;
typedef struct nvrtcProgram_ *nvrtcProgram;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill;
typedef struct CUtensorMap {
  _Alignas(64) uint64_t opaque[16];
} CUtensorMap;

/* FLC_CU_NUMBERS(V): name, value; a spec compares them with NVIDIA's headers.
 * Errors from
 * CUDA_ERROR_ILLEGAL_ADDRESS on stay. */
#define FLC_CU_NUMBERS(V)                                                      \
  V(CUDA_SUCCESS, 0)                                                           \
  V(CUDA_ERROR_INVALID_VALUE, 1)                                               \
  V(CUDA_ERROR_OUT_OF_MEMORY, 2)                                               \
  V(CUDA_ERROR_NO_DEVICE, 100)                                                 \
  V(CUDA_ERROR_NOT_READY, 600)                                                 \
  V(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                           \
  V(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                   \
  V(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                            \
  V(CUDA_ERROR_LAUNCH_FAILED, 719)                                             \
  V(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                              \
  V(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                     \
  V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                          \
  V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                          \
  V(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                 \
  V(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)              \
  V(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                    \
  V(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3)                                     \
  V(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                                             \
  V(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                        \
  V(CU_STREAM_NON_BLOCKING, 1)                                                 \
  V(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                          \
  V(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                        \
  V(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                         \
  V(CU_EVENT_DISABLE_TIMING, 2)                                                \
  V(CU_MEMHOSTALLOC_PORTABLE, 1)                                               \
  V(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                              \
  V(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                     \
  V(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                          \
  V(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                               \
  V(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                            \
  V(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                     \
  V(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                       \
  V(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2)                                        \
  V(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                                  \
  V(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)                  \
  V(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 6)                                        \
  V(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 9)                                       \
  V(CU_TENSOR_MAP_INTERLEAVE_NONE, 0)                                          \
  V(CU_TENSOR_MAP_SWIZZLE_128B, 3)                                             \
  V(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 3)                                     \
  V(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)

#ifndef FLC_REAL_HEADERS
enum {
#define FLC_NUMBER(name, value) name = value,
  FLC_CU_NUMBERS(FLC_NUMBER)
#undef FLC_NUMBER
};
#endif
#define CU_LAUNCH_PARAM_END            ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE    ((void *)2)

typedef struct CUmemLocation {
  int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;
typedef struct CUipcMemHandle {
  char reserved[64];
} CUipcMemHandle;
typedef struct CUlaunchAttribute {
  int id;
  char pad[8 - sizeof(int)];
  union {
    char pad[64];
    void *stream; /* as aligned as theirs */
    struct {
      unsigned x, y, z;
    } clusterDim;
    int cooperative;
    int programmaticStreamSerializationAllowed;
  } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
      sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

typedef struct flc_driver {
#define FLC_CU(ret, name, symbol, params) ret(*name) params;
#include "dl.def"
} flc_driver;

typedef struct flc_compiler {
#define FLC_RTC(ret, name, symbol, params) ret(*name) params;
#include "dl.def"
} flc_compiler;

/* NULL if a library is missing, too old or broken: the message says which, and
 * what brings it. Found once for the whole process. */
const flc_driver *flc_driver_get(void);
const flc_compiler *flc_compiler_get(void);

/* Opens the first of `names` (ends with NULL) that the loader or one of the
 * usual folders has: FLARE_CUDA_PATH (folders, separated by colons), the
 * toolkits, Python's wheels; NULL with a message. `where` (room for 512) gets
 * its path. */
void *flc_library_open(const char *const *names, char *where);
/* Fills `table` with n functions by name; false: one is missing (message). */
bool flc_library_bind(void *handle, const char *where,
                      const char *const *symbols, int n, void *table);
/* The same for a library that is asked for once: `hint` ends its message where
 * it cannot be used. */
typedef struct flc_shared {
  bool open;
  char where[512], why[800];
} flc_shared;
void flc_shared_find(flc_shared *f, const char *const *names,
                     const char *const *symbols, int n, void *table,
                     const char *hint);
/* The path of the loaded library; "" if it is not loaded. */
const char *flc_driver_path(void);
const char *flc_compiler_path(void);

#endif
