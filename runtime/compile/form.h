/* Linear forms over the dims of a loop nest: where an access lies in memory,
 * and which coordinates of another nest it has. */
#ifndef FL_COMPILE_FORM_H
#define FL_COMPILE_FORM_H

#include "../tile.h"

#include <string.h>

/* The sizes of a loop nest, and which coordinates count: where a condition on
 * coordinates holds, from low to high. A dim whose coordinate an index tensor
 * gives has no loop (gather.c). */
typedef struct fli_nest {
  int n;
  int position[FL_TILE_DIMS]; /* 1 + which position; 0: a loop */
  int64_t size[FL_TILE_DIMS], low[FL_TILE_DIMS], high[FL_TILE_DIMS];
} fli_nest;

static inline void fli_nest_add(fli_nest *nest, int64_t size) {
  nest->size[nest->n] = size;
  nest->low[nest->n] = 0;
  nest->position[nest->n] = 0;
  nest->high[nest->n++] = size - 1;
}

static inline fl_form fli_form_constant(int64_t offset) {
  fl_form f;
  memset(&f, 0, sizeof f);
  f.offset = offset;
  return f;
}

/* to += factor * x */
static inline void fli_form_add(fl_form *to, const fl_form *x, int64_t factor,
                                int n) {
  to->offset += factor * x->offset;
  for (int i = 0; i < n; i++)
    to->coef[i] += factor * x->coef[i];
}

static inline bool fli_form_equal(const fl_form *a, const fl_form *b, int n) {
  bool same = a->offset == b->offset;
  for (int i = 0; i < n && same; i++)
    same = a->coef[i] == b->coef[i];
  return same;
}

/* The smallest and the largest value; coefficients may be negative. */
static inline void fli_form_range(const fl_form *f, const fli_nest *nest,
                                  int64_t *low, int64_t *high) {
  *low = *high = f->offset;
  for (int i = 0; i < nest->n; i++) {
    int64_t a = f->coef[i] * nest->low[i], b = f->coef[i] * nest->high[i];
    *low += a < b ? a : b;
    *high += a < b ? b : a;
  }
}

/* An access `at` of `nest` as coordinates of a region of `dims` dims with these
 * sizes and strides from `offset` on: forms `to`, one for each dim. False: not
 * every access is one of the region's lattice. `inside` is false if coordinates
 * may lie beyond the sizes; an access whose coordinates do so is of no element
 * of the region. */
bool fli_form_split(const fl_form *at, const fli_nest *nest, int dims,
                    const int64_t *size, const int64_t *stride, int64_t offset,
                    fl_form *to, bool *inside);

/* The coordinates of a nest of `dims` dims, read from memory with these
 * strides, as forms of `nest` whose access of the same memory is `at`, so that
 * both read the same elements. Dims of `nest` may have to be cut in two:
 * cut(context, dim, inner) does it, with the sizes (size / inner, inner) as
 * dims `dim` and `dim` + 1, and changes `at` and `to`, too. Dims of stride 0
 * are matched with the dims of `nest` that `at` does not use, by their sizes in
 * order. False: there is no such correspondence. */
typedef bool fli_form_cut(void *context, int dim, int64_t inner);
bool fli_form_match(fli_nest *nest, fl_form *at, int dims, const int64_t *size,
                    const int64_t *stride, int64_t offset, fl_form *to,
                    fli_form_cut *cut, void *context);
/* Cuts dim `dim` of a form. */
void fli_form_cut_dim(fl_form *f, int n, int dim, int64_t inner);

#endif
