/* The types and numbers of NCCL that we use, by its own names, and the
 * collectives of our own beside it (peer.c). */
#ifndef FL_CUDA_NCCL_H
#define FL_CUDA_NCCL_H

#include "../cuda.h"

#include "../../../runtime/comm.h"

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
  char internal[FL_COMM_TICKET];
} ncclUniqueId;

#define FLC_NCCL_OLDEST 21800 /* 2.18 */

/* As it was then: later ones are longer, and take this for what it says. */
typedef struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
} ncclConfig_t;

/* FLC_NCCL_NUMBERS(V): name, value; a spec compares them with NVIDIA's
 * headers. */
#define FLC_NCCL_NUMBERS(V)                                                    \
  V(ncclSuccess, 0)                                                            \
  V(ncclUnhandledCudaError, 1)                                                 \
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

/* --- collectives over peer memory, of a group on one host --- */

typedef struct flc_peers flc_peers;
struct flc_device;

#define FLC_CARD 128 /* bytes that the others need to know of this rank */

/* FLARE_PEERS=only: there is no NCCL, so ranks may share a GPU. */
bool flc_peers_only(void);
/* This rank's area. NULL without a message where there is no such thing: the
 * group is too large, or memory cannot be shared. The device's context is
 * current, here and below. */
flc_peers *flc_peers_new(struct flc_device *d, int rank, int size, double limit,
                         unsigned char *card);
/* Maps the others' areas by their cards, in order; false: not possible. */
bool flc_peers_join(flc_peers *p, const unsigned char *cards);
void flc_peers_free(flc_peers *p);
/* The algorithm of a call: as it says, or by its size; of a group without peers
 * (NULL), NCCL's. */
fl_comm_way flc_peers_way(const flc_peers *p, const fl_comm_call *c);
fl_status flc_peers_run(flc_peers *p, const fl_comm_call *c, fl_comm_way way);
/* A mark of the call that is next, and whether the device has come to it. */
uint32_t flc_peers_next(const flc_peers *p);
bool flc_peers_begun(const flc_peers *p, uint32_t mark);
/* Kernels that wait end. */
void flc_peers_stop(flc_peers *p);
/* The rank that a kernel has given up to wait for, or -1. */
int flc_peers_late(const flc_peers *p);

#endif
