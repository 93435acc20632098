/* What sort.c plans and sort_typed.c sorts. */
#ifndef FL_CPU_SORT_H
#define FL_CPU_SORT_H

#include "move.h"

#define STACK  1024        /* words of a buffer that goes on the stack */
#define SHARES 16          /* buffers in scratch when it is longer */
#define PIECE  (32 << 10)  /* elements a thread takes of one long line */
#define LONG   (4 * PIECE) /* elements from which a line gets all threads */
#define BLOCK  64          /* elements compared with the limit at once */
#define FEW    32          /* wanted elements that are kept by insertion */

/* Lines along one dim: `n` elements each, `k` of them wanted; strides in
 * elements. */
typedef struct sorting {
  const fl_launch *l;
  fl_dtype dtype;
  size_t size;
  const char *x;
  char *values;
  int64_t *indices;
  int64_t n, k;
  int64_t x_stride, y_stride, base;
  uint64_t least; /* of long integers in 64-bit words */
  bool descending;
  int ndim;
  int64_t lines[FL_MAX_DIMS]; /* the shape without dim */
  int64_t x_strides[FL_MAX_DIMS], y_strides[FL_MAX_DIMS];
  int64_t room;  /* words in each of a line's two buffers */
  void *scratch; /* those buffers, SHARES times; NULL: on the stack */
  int64_t share; /* lines that use the same ones, in turn */
} sorting;

/* All lines, with keys as wide as the type: sort_typed.c. */
typedef fl_status (*sort_lines)(sorting *c);
extern const sort_lines FL_CPU(sort_f32), FL_CPU(sort_f64);

#endif
