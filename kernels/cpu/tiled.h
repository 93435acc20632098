/* Operands that are walked together, tile by tile, over one iteration space:
 * what elementwise rows (map.c) and expressions (expr.c) share. Dims are merged
 * where all operands allow it; a tile's elements are used where they lie or
 * gathered and converted into a buffer. */
#ifndef FL_CPU_TILED_H
#define FL_CPU_TILED_H

#include "cpu.h"

typedef struct fl_tiled {
  char *data;
  fl_dtype dtype;
  size_t size;
  int64_t stride[FL_MAX_DIMS];        /* over the merged dims */
  bool single;                        /* one element */
  bool flat;                          /* contiguous over everything */
  _Alignas(8) unsigned char value[8]; /* of a single one, converted */
} fl_tiled;

typedef struct fl_tiles {
  int ndim, n;
  int64_t shape[FL_MAX_DIMS];
  fl_tiled *op; /* n operands */
} fl_tiles;

typedef struct fl_walker { /* where in the merged dims the tile begins */
  int64_t at[FL_MAX_DIMS];
} fl_walker;

static inline void fl_tiles_start(fl_walker *w, const fl_tiles *t, int64_t i) {
  for (int d = t->ndim - 1; d >= 0; d--) {
    w->at[d] = i % t->shape[d];
    i /= t->shape[d];
  }
}

static inline char *fl_tiles_at(const fl_walker *w, const fl_tiles *t,
                                const fl_tiled *o) {
  int64_t at = 0;
  for (int d = 0; d < t->ndim; d++)
    at += w->at[d] * o->stride[d];
  return o->data + at * (int64_t)o->size;
}

/* Within a row; its end starts the next one. */
static inline void fl_tiles_step(fl_walker *w, const fl_tiles *t, int64_t by) {
  int d = t->ndim - 1;
  w->at[d] += by;
  for (; d > 0 && w->at[d] >= t->shape[d]; d--) {
    w->at[d] = 0; /* rows are taken whole, so it is exactly at the end */
    w->at[d - 1]++;
  }
}

static inline void fl_tiles_next(fl_walker *w, const fl_tiles *t, int64_t n) {
  while (n > 0) {
    int64_t k = t->shape[t->ndim - 1] - w->at[t->ndim - 1];
    k = n < k ? n : k;
    fl_tiles_step(w, t, k);
    n -= k;
  }
}

/* How many of `left` elements to take at once: long rows one at a time, so that
 * they are used where they lie. */
static inline int64_t fl_tiles_take(const fl_walker *w, const fl_tiles *t,
                                    int64_t left, int64_t most) {
  int last = t->ndim - 1;
  int64_t n = left < most ? left : most, room = t->shape[last] - w->at[last];
  return room < n && t->shape[last] >= 64 ? room : n;
}

/* n elements from w on, row by row, between an operand and a buffer. */
static inline void fl_tiles_move(const fl_tiles *t, fl_walker w, int64_t n,
                                 const fl_tiled *o, char *buffer, fl_dtype type,
                                 bool store) {
  int last = t->ndim - 1;
  size_t wide = fl_dtype_size(type);
  while (n > 0) {
    int64_t room = t->shape[last] - w.at[last], k = n < room ? n : room;
    char *mine = fl_tiles_at(&w, t, o);
    if (store)
      FL_CPU(store_row)(k, o->dtype, mine, o->stride[last], type, buffer);
    else
      FL_CPU(load_row)(k, type, buffer, o->dtype, mine, o->stride[last]);
    buffer += (size_t)k * wide;
    n -= k;
    fl_tiles_step(&w, t, k);
  }
}

/* The tile of an input: where it lies if it can be used there; *step 0 for one
 * element all along (not with `spread`). */
static inline const void *fl_tiles_load(const fl_tiles *t, const fl_walker *w,
                                        int64_t begin, int64_t n,
                                        const fl_tiled *o, fl_dtype type,
                                        void *buffer, bool spread, int *step) {
  int last = t->ndim - 1;
  bool row = w->at[last] + n <= t->shape[last];
  *step = !o->single;
  if (o->single)
    return o->value;
  if (o->flat && o->dtype == type)
    return o->data + (size_t)begin * o->size;
  if (row && o->stride[last] == 1 && o->dtype == type)
    return fl_tiles_at(w, t, o);
  if (row && o->stride[last] == 0 && !spread) {
    FL_CPU(convert)(1, type, buffer, o->dtype, fl_tiles_at(w, t, o));
    *step = 0;
    return buffer;
  }
  fl_tiles_move(t, *w, n, o, buffer, type, false);
  return buffer;
}

/* Where a result's tile can be written at once, or NULL. */
static inline void *fl_tiles_place(const fl_tiles *t, const fl_walker *w,
                                   int64_t begin, int64_t n, const fl_tiled *o,
                                   fl_dtype type) {
  int last = t->ndim - 1;
  if (o->dtype != type)
    return NULL;
  if (o->flat)
    return o->data + (size_t)begin * o->size;
  return w->at[last] + n <= t->shape[last] && o->stride[last] == 1
             ? fl_tiles_at(w, t, o)
             : NULL;
}

/* --- setting up --- */

/* `v` broadcast to ndim dims; a single element is converted to `type`. */
static inline void fl_tiled_bind(fl_tiled *o, const fl_view *v, int ndim,
                                 fl_dtype type) {
  int skip = ndim - v->ndim;
  o->data = v->data;
  o->dtype = v->dtype;
  o->size = fl_dtype_size(v->dtype);
  o->single = fl_view_numel(v) == 1;
  for (int i = 0; i < ndim; i++)
    o->stride[i] =
        i < skip || v->shape[i - skip] == 1 ? 0 : v->stride[i - skip];
  if (o->single)
    FL_CPU(convert)(1, type, o->value, v->dtype, v->data);
}

static inline bool fl_tiled_flat(const fl_tiles *t, const fl_tiled *o) {
  int64_t expect = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (o->stride[i] != expect)
      return false;
    expect *= t->shape[i];
  }
  return true;
}

/* Neighbouring dims become one where every operand allows it. Then `flat` is
 * known. */
static inline void fl_tiles_merge(fl_tiles *t) {
  int k = -1;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 1)
      continue;
    bool one = k >= 0;
    for (int n = 0; n < t->n && one; n++)
      one = t->op[n].single ||
            t->op[n].stride[k] == t->op[n].stride[i] * t->shape[i];
    if (one)
      t->shape[k] *= t->shape[i];
    else
      t->shape[++k] = t->shape[i];
    for (int n = 0; n < t->n; n++)
      t->op[n].stride[k] = t->op[n].stride[i];
  }
  t->ndim = k + 1;
  if (k < 0) {
    t->ndim = 1;
    t->shape[0] = 1;
    for (int n = 0; n < t->n; n++)
      t->op[n].stride[0] = 1;
  }
  for (int n = 0; n < t->n; n++)
    t->op[n].flat = !t->op[n].single && fl_tiled_flat(t, &t->op[n]);
}

#endif
