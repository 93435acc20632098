/* Arguments of the kernels in peer.cu. Every rank has an area that all others
 * have mapped: words by which blocks wait for each other, then two halves, used
 * in turn, that hold operands. */
#ifndef FL_CUDA_PEER_H
#define FL_CUDA_PEER_H

#define PEER_RANKS   8
#define PEER_BLOCKS  64
#define PEER_THREADS 512
#define PEER_ROW     32                  /* words of a block, one a rank */
#define PEER_STAGE   ((int64_t)64 << 10) /* where the first half begins */
#define PEER_HALF    ((int64_t)8 << 20)  /* bytes */
#define PEER_AREA    ((int64_t)18 << 20) /* whole pages of 2 MiB */

typedef struct peer_args {
  const void *in;
  void *out;
  char *area[PEER_RANKS];
  int64_t n;     /* elements of a part; all parts fill a half at most */
  int64_t step;  /* from part to part of the operand, or of the result */
  int64_t limit; /* nanoseconds to wait for a peer */
  int rank, size, half, reduce;
  int parts;      /* that this rank brings */
  int part;       /* that it wants */
  int from, to;   /* the ranks of which, where nothing is reduced */
  uint32_t phase; /* the last one of the call before */
  /* of the host: stop waiting; 1 + a rank that did not arrive;
   * the first phase of the last call that has begun */
  volatile int *stop, *late;
  volatile uint32_t *begun;
} peer_args;

#endif
