/* What index.c plans and index_typed.c adds, multiplies or compares. */
#ifndef FL_CPU_INDEX_H
#define FL_CPU_INDEX_H

#include "cpu.h"

/* y (outer, bound, inner) gets src (outer, n, inner) at index[n]; src is one
 * number when `single`. Pieces are bands of columns. */
typedef struct insertion {
  size_t size;
  const int64_t *index;
  const void *src;
  void *y;
  int64_t n, inner, bound, base, skip;
  int64_t cuts, cut;
  bool single;
} insertion;

/* Single elements at positions: what gather and scatter share. A line is what
 * one loop covers, the last dim of index that is longer than 1; that may be
 * dim. */
typedef struct picking picking;
typedef struct pick_line pick_line;
struct picking {
  void (*each)(const picking *c, const pick_line *p);
  size_t size;
  int ndim, dim, last;        /* last: the line's dim */
  int64_t lanes[FL_MAX_DIMS]; /* the index's shape without dim and line */
  int64_t steps;              /* lines of one lane: along dim, or 1 */
  int64_t line, cuts, cut, base;
  const int64_t *index;
  int64_t index_stride[FL_MAX_DIMS], stride[FL_MAX_DIMS],
      src_stride[FL_MAX_DIMS];
  const void *src;
  void *y;
};

/* One line of a picking: its place in index, y and src, and the strides of y
 * along dim and along the line. */
struct pick_line {
  int64_t n, index, y, src, y_dim, y_line, src_line;
};

enum { /* what happens at a position */
       PICK_WRITE,
       PICK_ADD,
       PICK_MUL,
       PICK_MAX,
       PICK_MIN,
       PICKS
};

typedef struct index_kernels {
  fl_cpu_task add_slices;
  void (*line[PICKS])(const picking *c, const pick_line *p); /* not WRITE */
} index_kernels;
extern const index_kernels FL_CPU(index_f32), FL_CPU(index_f64),
    FL_CPU(index_i64);

#endif
