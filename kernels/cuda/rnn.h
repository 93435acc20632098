/* Arguments of the kernels in rnn.cu. */
#ifndef FL_CUDA_RNN_H
#define FL_CUDA_RNN_H

typedef struct rnn_args {
  const void *in[8]; /* contiguous; NULL: left out */
  void *out[4];
  int64_t n, all; /* size of a state, and of all of them */
} rnn_args;

#endif
