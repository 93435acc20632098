/* The sums of shape.c for one float type. */
#include "shape.h"
#include "typed.h"

/* Pieces are blocks below the dims that are not padded, so no two of them add
 * into the same place. */
static void unpad(void *context, int64_t begin, int64_t end) {
  const unpad_work *c = context;
  const padding *p = &c->p;
  int last = p->ndim - 1, outer = p->outer;
  int64_t n = p->big[last], from, to, stride[FL_MAX_DIMS];
  const int64_t *map = p->map[last];
  fl_row_major(p->ndim, p->small, stride);
  for (int d = 0; d < outer; d++)
    stride[d] = 0; /* the block's place is known */
  pad_inside(p, &from, &to);
  for (int64_t b = begin; b < end; b++) {
    const T *dy = (const T *)c->dy + b * c->big;
    T *dx = (T *)c->dx + b * c->small;
    fl_walk w = {.ndim = last, .shape = p->big};
    for (int64_t r = 0; r < c->big; r += n, fl_walk_next(&w)) {
      bool none;
      T *t = dx + pad_row(p, &w, stride, &none);
      const T *f = dy + r;
      if (none)
        continue;
      for (int64_t i = 0; i < from; i++)
        if (map[i] >= 0)
          t[map[i]] += f[i];
      for (int64_t i = to; i < n; i++)
        if (map[i] >= 0)
          t[map[i]] += f[i];
      t -= p->before[last];
#pragma omp simd
      for (int64_t i = from; i < to; i++)
        t[i] += f[i];
    }
  }
}

static void unstride(const strided_work *c, const void *dy, void *dx,
                     int64_t offset) {
  const T *from = dy;
  T *to = dx;
  if (c->ndim == 0) {
    to[offset] += from[0];
    return;
  }
  int last = c->ndim - 1;
  int64_t n = c->size[last], s = c->stride[last];
  int64_t rows = fl_numel(last, c->size);
  fl_walk w = {.ndim = last, .shape = c->size};
  for (int64_t r = 0; r < rows; r++, fl_walk_next(&w)) {
    T *t = to + offset + fl_walk_offset(&w, c->stride);
    for (int64_t i = 0; i < n; i++)
      t[i * s] += *from++;
  }
}

const shape_kernels FL_TYPED(shape) = {.unpad = unpad, .unstride = unstride};
