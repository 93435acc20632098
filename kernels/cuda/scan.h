/* Arguments of the kernels in scan.cu. The tensor is outer x n x inner. */
#ifndef FL_CUDA_SCAN_H
#define FL_CUDA_SCAN_H

typedef struct scan_args {
  const void *x;
  void *y;
  void *sums; /* of every piece: double, or int64_t */
  int64_t n, inner, lines;
  int64_t piece; /* elements of a line that are one task */
  int pieces;
  int lanes;
} scan_args;

#endif
