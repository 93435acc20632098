/* Arguments of the kernels in random.cu. */
#ifndef FL_CUDA_RANDOM_H
#define FL_CUDA_RANDOM_H

#include "refused.h"

/* A number by value, or one element of device memory. */
typedef struct random_number {
  const void *at; /* NULL: `value` */
  int64_t value;
  int dtype;
} random_number;

typedef struct draw_args {
  random_number seed, offset;
  const void *x;
  void *y;
  int64_t n;
  double low, width, most; /* randn: low is the mean, width the deviation */
  int64_t first;           /* randint: low and how many */
  uint64_t range;
  uint32_t limit;  /* dropout: words below it drop */
  int wide;        /* x may be read by whole counters */
  flc_fault fault; /* of values that are refused */
} draw_args;

/* randperm: place[i] is where step i puts its number. */
typedef struct shuffle_args {
  random_number seed, offset;
  void *place;          /* i32 or i64 */
  const void *sorted;   /* the places in order ... */
  const int64_t *steps; /* ... and their steps */
  int64_t *slot;        /* of each step: its place among the sorted */
  int64_t *group; /* of each place: the first among the sorted + 1, or 0 */
  void *y;
  int64_t n, base;
  int dtype;
} shuffle_args;

#define SAMPLE_EACH  4    /* classes of a thread at a time */
#define SAMPLE_TILES 1024 /* most tiles of a row that `draw` takes */
#define SAMPLE_DRAWS 8    /* most draws of it */

typedef struct sample_args {
  random_number seed, offset;
  const void *p; /* (rows, classes), doubles but for `draw` */
  double *sums;  /* running sums of p, or times of arrival */
  int64_t *y;    /* (rows, n) */
  int64_t rows, classes, n, base;
  int replacement;
  flc_fault fault; /* of weights that are refused */
} sample_args;

#endif
