/* Arguments of the kernels in cumulate.cu. The tensor is outer x n x inner. */
#ifndef FL_CUDA_CUMULATE_H
#define FL_CUDA_CUMULATE_H

enum { CUMULATE_PROD, CUMULATE_EXTREME, CUMULATE_LOGS };

typedef struct cumulate_args {
  const void *x;
  void *y;
  int64_t *at; /* positions of extremes */
  void *parts; /* what each piece comes to */
  int64_t n, inner, lines, base;
  int64_t piece; /* elements of a line that are one task */
  int pieces, least;
} cumulate_args;

#endif
