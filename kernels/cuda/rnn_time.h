/* Arguments of the kernels in rnn_time.cu. */
#ifndef FL_CUDA_RNN_TIME_H
#define FL_CUDA_RNN_TIME_H

/* Warps of a block, at most, by how many sums each has. */
#define RNN_TIME_WARPS(u, s) ((u) * (s) > 4 ? 8 : 16)

typedef struct rnn_time_args {
  const void *in[7]; /* of the row; contiguous, NULL: left out */
  void *out[3];
  uint32_t *posted; /* zeros: room for what steps post, two turns of it */
  int time, batch, n, depth;
  int parts;      /* blocks beside each other, for the columns of a product */
  int wide, tall; /* warps of a block that work, along columns and sequences */
  int chunk;      /* steps of the sum staged at a time */
  int reverse;
} rnn_time_args;

#endif
