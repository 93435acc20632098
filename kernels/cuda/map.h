/* What the kernels of elementwise rows get: see map.c. Included by host and
 * device code. */
#ifndef FL_CUDA_MAP_H
#define FL_CUDA_MAP_H

#define MAP_IN   3
#define MAP_DIMS 8
/* Vectors of each input that a thread of `flat` takes. */
#define MAP_TURNS(inputs) ((inputs) == 3 ? 1 : 2)

/* An operand that is a number is there twice: which one counts is the type that
 * is computed in. */
typedef struct map_number {
  double f;
  int64_t i;
} map_number;

/* Contiguous operands of one shape, or numbers. */
typedef struct map_flat {
  void *y;
  const void *in[MAP_IN]; /* NULL: a number */
  int64_t n;
  double p[4]; /* the row's attributes */
  map_number number[MAP_IN];
  int bits; /* 1: the result is bool */
} map_flat;

/* Any strides and dtypes, up to 2^31 elements; dims are merged, the last one
 * runs fastest. */
typedef struct map_any {
  int64_t n;
  int ndim, bits, each;
  void *data[MAP_IN + 1]; /* the result, then the inputs; NULL: a number */
  int dtype[2];           /* of convert: to, from */
  double p[4];
  map_number number[MAP_IN];
  int64_t size[MAP_DIMS];
  int64_t stride[MAP_IN + 1][MAP_DIMS]; /* elements */
} map_any;

/* A rows x columns matrix turned into columns x rows, `count` of them. */
typedef struct map_turn {
  void *y;
  const void *x;
  int64_t rows, columns; /* of x */
  int64_t x_row, y_row;  /* elements from row to row */
  int64_t x_count, y_count;
} map_turn;

#endif
