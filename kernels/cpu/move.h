/* Moving elements whatever they mean: unsigned words by size, a walk over
 * coordinates and the strided copy that the index and shape kernels share. No
 * arithmetic and no conversion here. */
#ifndef FL_CPU_MOVE_H
#define FL_CPU_MOVE_H

#include "cpu.h"

#include <string.h>

#define FL_MOVE_DIMS (2 * FL_MAX_DIMS) /* what repeat needs */

/* The same bytes are floats elsewhere. */
typedef uint8_t fl_word1;
typedef uint16_t __attribute__((may_alias)) fl_word2;
typedef uint32_t __attribute__((may_alias)) fl_word4;
typedef uint64_t __attribute__((may_alias)) fl_word8;

/* Runs the macro M(type) for elements of `size` bytes. */
#define FL_BY_SIZE(size, M)                                                    \
  switch (size) {                                                              \
  case 1:                                                                      \
    M(fl_word1);                                                               \
    break;                                                                     \
  case 2:                                                                      \
    M(fl_word2);                                                               \
    break;                                                                     \
  case 4:                                                                      \
    M(fl_word4);                                                               \
    break;                                                                     \
  default:                                                                     \
    M(fl_word8);                                                               \
  }

/* Copies a block of elements, strides in elements (0 and negative ones too), on
 * the launch's threads. The two must not overlap. */
void FL_CPU(move)(const fl_launch *l, size_t size, int ndim,
                  const int64_t *shape, void *to, const int64_t *to_stride,
                  const void *from, const int64_t *from_stride);
/* Writes `from` into a view of the same shape, converting if need be. */
void FL_CPU(move_view)(const fl_launch *l, const fl_view *to,
                       const fl_view *from);
/* n elements along one dim; the serial part of the same. */
void FL_CPU(move_line)(size_t size, int64_t n, void *to, int64_t to_stride,
                       const void *from, int64_t from_stride);
/* n contiguous elements equal to the one at `value`, on the launch's threads.
 */
void FL_CPU(move_fill)(const fl_launch *l, size_t size, int64_t n, void *to,
                       const void *value);

/* The positions in v, contiguous and still counted from the launch's base; all
 * lie in [0, bound) once shifted. Those that v counts from the end, -1 for the
 * last, are counted from the start; among ids they are errors. In index.c. */
fl_status FL_CPU(positions)(const fl_launch *l, const fl_view *v, int64_t bound,
                            const int64_t **index);
fl_status FL_CPU(ids)(const fl_launch *l, const fl_view *v, int64_t bound,
                      const int64_t **index);

/* Coordinates in row-major order from flat position `at` on. */
typedef struct fl_walk {
  int ndim;
  const int64_t *shape;
  int64_t at[FL_MOVE_DIMS];
} fl_walk;

static inline void fl_walk_start(fl_walk *w, int ndim, const int64_t *shape,
                                 int64_t at) {
  w->ndim = ndim;
  w->shape = shape;
  for (int d = ndim - 1; d >= 0; d--) {
    w->at[d] = at % shape[d];
    at /= shape[d];
  }
}

static inline void fl_walk_next(fl_walk *w) {
  for (int d = w->ndim - 1; d >= 0; d--) {
    if (++w->at[d] < w->shape[d])
      return;
    w->at[d] = 0;
  }
}

static inline int64_t fl_walk_offset(const fl_walk *w, const int64_t *stride) {
  int64_t offset = 0;
  for (int d = 0; d < w->ndim; d++)
    offset += w->at[d] * stride[d];
  return offset;
}

/* The bytes of `value` as one element of a dtype. */
static inline const void *fl_element(fl_dtype dtype, double value,
                                     uint64_t *room) {
  *room = 0;
  FL_CPU(convert)(1, dtype, room, FL_F64, &value);
  return room;
}

#endif
