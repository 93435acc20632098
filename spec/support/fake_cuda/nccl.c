/* A group that is there: the others of NCCL's functions do nothing. */
#include "../../../kernels/cuda/nccl.h"

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config) {
  static int group;
  (void)size, (void)id, (void)rank, (void)config;
  *comm = (ncclComm_t)&group;
  return ncclSuccess;
}
