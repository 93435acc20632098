/* A group whose GPUs have mapped memory of each other, as peer.c and copies.c
 * share it. */
#ifndef FL_CUDA_PEERS_H
#define FL_CUDA_PEERS_H

#include "backend.h"
#include "nccl.h"
#include "peer.h"

struct flc_peers {
  flc_device *device;
  int rank, size;
  int64_t limit; /* ns that a kernel waits at most */
  CUdeviceptr area[PEER_RANKS];
  int *host; /* pinned: stop, late, begun */
  CUdeviceptr host_at;
  uint32_t phase;
  int half;
  uint32_t copied; /* the phase of copies */
  int copies_half;
};

/* The kernel that adds up what all have copied. */
flc_spec flc_peers_sum(fl_dtype d, int size);

/* --- copies.c --- */

bool flc_copies_can(fl_comm_kind kind);
void flc_copies_stop(flc_peers *p);

#endif
