/* Arguments of the kernels in bag.cu. */
#ifndef FL_CUDA_BAG_H
#define FL_CUDA_BAG_H

#include "device/divisor.h"

#define BAG_THREADS 128

typedef struct bag_args {
  const void *table;              /* (rows, width); spread: dy (bags, width) */
  const int64_t *index, *offsets; /* NULL: bags of `each` */
  const void *factors;            /* NULL: 1 */
  void *y; /* (bags, width); spread: (n, width), what each position gets */
  int64_t *where;
  flc_fault fault;
  int64_t n, each, bags, width, rows;
  int64_t padding; /* -1: none */
  int last;        /* offsets end with where the last bag ends */
  int mean;
  flc_divisor by_parts; /* vectors of a row */
} bag_args;

#endif
