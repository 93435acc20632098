/* Arguments of the kernels in softmax.cu. The tensors are outer x n x inner. */
#ifndef FL_CUDA_SOFTMAX_H
#define FL_CUDA_SOFTMAX_H

typedef struct softmax_args {
  const void *x; /* forward's input, or dy */
  const void *y; /* of the gradients */
  void *out;
  void *partial; /* of every piece of long lines: top and sum */
  int64_t n, lines, inner;
  int64_t piece; /* elements of a long line that a block takes */
  int pieces;
  int lanes;
  int logarithm;
  int bx; /* threads along inner (columns) */
} softmax_args;

#endif
