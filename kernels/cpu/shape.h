/* What shape.c plans and shape_typed.c adds up: gradients of pad and
 * as_strided. */
#ifndef FL_CPU_SHAPE_H
#define FL_CPU_SHAPE_H

#include "move.h"

/* What padding does along each dim: `map` has the source coordinate of every
 * padded one, -1 where there is none. */
typedef struct padding {
  int ndim, mode;
  const int64_t *big, *small; /* shapes with and without padding */
  int64_t before[FL_MAX_DIMS];
  const int64_t *map[FL_MAX_DIMS];
  int outer; /* leading dims that are not padded */
} padding;

/* The padded coordinates [from, to) of the last dim that are the source's own.
 */
static inline void pad_inside(const padding *p, int64_t *from, int64_t *to) {
  int last = p->ndim - 1;
  int64_t b = p->before[last], n = p->big[last], end = b + p->small[last];
  *from = b < 0 ? 0 : b < n ? b : n;
  *to = end < *from ? *from : end < n ? end : n;
}

/* Offset of the source row of a padded row, -1 if it has none. */
static inline int64_t pad_row(const padding *p, const fl_walk *w,
                              const int64_t *stride, bool *none) {
  int64_t offset = 0;
  *none = false;
  for (int d = 0; d < p->ndim - 1; d++) {
    int64_t i = p->map[d][w->at[d]];
    *none |= i < 0;
    offset += i * stride[d];
  }
  return offset;
}

typedef struct unpad_work {
  padding p;
  const void *dy;
  void *dx;
  int64_t big, small; /* elements below the dims that are not padded */
} unpad_work;

typedef struct strided_work {
  int ndim;
  const int64_t *size, *stride;
} strided_work;

typedef struct shape_kernels {
  fl_cpu_task unpad;
  void (*unstride)(const strided_work *c, const void *from, void *to,
                   int64_t offset);
} shape_kernels;
extern const shape_kernels FL_CPU(shape_f32), FL_CPU(shape_f64);

#endif
