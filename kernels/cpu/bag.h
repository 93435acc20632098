/* What bag.c plans and bag_typed.c puts together. */
#ifndef FL_CPU_BAG_H
#define FL_CPU_BAG_H

#include "cpu.h"

#define COLUMNS 64 /* of a bag that are added up at once */
#define AHEAD   8  /* positions whose rows are asked for early */
#define LINE    64 /* bytes of a cache's line */

enum { SUM, MEAN, MAX };

typedef struct bagging {
  const void *weight; /* or dy */
  int64_t stride;     /* of its rows */
  const int64_t *index, *offsets;
  const void *factors;       /* NULL: 1 */
  int64_t n, each;           /* positions; those of a bag without offsets */
  int64_t bags, width, rows; /* rows of the table */
  int64_t padding, base;     /* padding as stored, base - 1: none */
  int mode;
  bool last;
  void *y;
  int64_t *where;
} bagging;

/* The positions of bag b: from the first to before the one returned. */
static inline int64_t bag_of(const bagging *c, int64_t b, int64_t *from) {
  if (!c->offsets) {
    *from = b * c->each;
    return *from + c->each;
  }
  *from = c->offsets[b] - c->base;
  return b + 1 < c->bags || c->last ? c->offsets[b + 1] - c->base : c->n;
}

/* What the sum of a bag is multiplied by. */
static inline double bag_scale(const bagging *c, int64_t from, int64_t to) {
  int64_t count = to - from;
  if (c->mode != MEAN)
    return 1;
  if (c->padding >= c->base)
    for (int64_t k = from; k < to; k++)
      count -= c->index[k] == c->padding;
  return 1.0 / (double)(count > 0 ? count : 1);
}

typedef struct bag_kernels {
  fl_cpu_task sums, most;
} bag_kernels;
extern const bag_kernels FL_CPU(bag_f32), FL_CPU(bag_f64), FL_CPU(bag_f16),
    FL_CPU(bag_bf16);

#endif
