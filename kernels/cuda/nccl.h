/* The types and numbers of NCCL that we use, by its own names. */
#ifndef FL_CUDA_NCCL_H
#define FL_CUDA_NCCL_H

#include "cuda.h"

#include "../../runtime/comm.h"

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
  char internal[FL_COMM_TICKET];
} ncclUniqueId;

/* As it was in 2.18: later ones are longer, and take this for what it says. */
typedef struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
} ncclConfig_t;

/* FLC_NCCL_NUMBERS(V): name, value, for whoever compares them. */
#define FLC_NCCL_NUMBERS(V)                                                    \
  V(ncclSuccess, 0)                                                            \
  V(ncclInProgress, 7)                                                         \
  V(ncclInt8, 0)                                                               \
  V(ncclUint8, 1)                                                              \
  V(ncclInt32, 2)                                                              \
  V(ncclInt64, 4)                                                              \
  V(ncclFloat16, 6)                                                            \
  V(ncclFloat32, 7)                                                            \
  V(ncclFloat64, 8)                                                            \
  V(ncclBfloat16, 9)                                                           \
  V(ncclSum, 0)                                                                \
  V(ncclMax, 2)                                                                \
  V(ncclMin, 3)                                                                \
  V(ncclAvg, 4)

#ifndef FLC_REAL_HEADERS
enum {
#define FLC_NUMBER(name, value) name = value,
  FLC_NCCL_NUMBERS(FLC_NUMBER)
#undef FLC_NUMBER
};
#endif

typedef struct flc_nccl_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_nccl.def"
} flc_nccl_table;

/* NULL with a message if the library is missing, too old or broken. */
const flc_nccl_table *flc_nccl_get(void);
const char *flc_nccl_path(void); /* "" if it was not found, or not asked for */

#endif
