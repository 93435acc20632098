/* What kernels of every backend ask of an operand's shape and strides. Inline,
 * so that a backend built outside the tree can use it too. */
#ifndef FL_VIEW_H
#define FL_VIEW_H

#include "backend.h"
#include "op_slots.h"

#include <string.h>

static inline int64_t fl_ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static inline int64_t fl_view_numel(const fl_view *v) {
  return fl_numel(v->ndim, v->shape);
}

/* Bytes of one element, and of all elements without gaps. */
static inline size_t fl_element_size(const fl_view *v) {
  return fl_dtype_size(v->dtype);
}
static inline size_t fl_view_bytes(const fl_view *v) {
  return (size_t)fl_view_numel(v) * fl_element_size(v);
}

static inline bool fl_same_shape(const fl_view *a, const fl_view *b) {
  if (a->ndim != b->ndim)
    return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i])
      return false;
  return true;
}

/* True as well where there are no elements. */
static inline bool fl_contiguous(const fl_view *v) {
  int64_t expect = 1;
  for (int i = v->ndim - 1; i >= 0; i--) {
    if (v->shape[i] == 0)
      return true;
    if (v->shape[i] != 1 && v->stride[i] != expect)
      return false;
    expect *= v->shape[i];
  }
  return true;
}

/* The strides of a contiguous tensor; a dim of size 0 counts as 1. */
static inline void fl_row_major(int ndim, const int64_t *shape,
                                int64_t *stride) {
  int64_t s = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    stride[d] = s;
    s *= shape[d] > 0 ? shape[d] : 1;
  }
}

/* The dims from the largest step to the smallest; dims of one element are last.
 * False: elements repeat along a dim, which has no place in an order. */
static inline bool fl_order_dims(int ndim, const int64_t *shape,
                                 const int64_t *stride, int *order) {
  int n = 0, last = ndim;
  for (int i = ndim - 1; i >= 0; i--)
    if (shape[i] == 1)
      order[--last] = i;
  for (int i = 0; i < ndim; i++) {
    int64_t step = stride[i] < 0 ? -stride[i] : stride[i];
    int k = n;
    if (shape[i] == 1)
      continue;
    if (step == 0)
      return false;
    for (; k > 0; k--) {
      int64_t s = stride[order[k - 1]];
      if ((s < 0 ? -s : s) >= step)
        break;
      order[k] = order[k - 1];
    }
    order[k] = i;
    n++;
  }
  return true;
}

/* v with `ndim` dims in this order; dims that it lacks in front repeat. */
static inline void fl_reorder_dims(fl_view *v, int ndim, const int *order) {
  int64_t shape[FL_MAX_DIMS], stride[FL_MAX_DIMS];
  int lacks = ndim - v->ndim;
  for (int i = 0; i < ndim; i++) {
    int d = order[i] - lacks;
    shape[i] = d < 0 ? 1 : v->shape[d];
    stride[i] = d < 0 ? 0 : v->stride[d];
  }
  v->ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    v->shape[i] = shape[i];
    v->stride[i] = stride[i];
  }
}

/* Where a dim is in this order. */
static inline int fl_ordered_dim(int dim, int ndim, const int *order) {
  int at = 0;
  while (at < ndim && order[at] != dim)
    at++;
  return at;
}

/* A launch of a row with one input that works along the dim in attribute `dim`,
 * with its dims in the order of the result's memory. */
typedef struct fl_ordered {
  fl_launch l;
  fl_view in, out;
  fl_attrs attrs;
} fl_ordered;
static inline const fl_launch *fl_by_memory(const fl_launch *l, int dim,
                                            fl_ordered *o) {
  const fl_view *y = &l->out[0];
  int order[FL_MAX_DIMS];
  if (fl_contiguous(y) || !fl_order_dims(y->ndim, y->shape, y->stride, order))
    return l;
  fl_view_copy(&o->in, &l->in[0]);
  fl_view_copy(&o->out, y);
  fl_reorder_dims(&o->in, y->ndim, order);
  fl_reorder_dims(&o->out, y->ndim, order);
  fl_attrs_copy(&o->attrs, l->attrs);
  o->attrs.v[dim].i = fl_ordered_dim((int)l->attrs->v[dim].i, y->ndim, order);
  o->l = *l;
  o->l.in = &o->in;
  o->l.out = &o->out;
  o->l.attrs = &o->attrs;
  return &o->l;
}

/* Whether v is (N, C, H, W) with channels innermost, then W, H and N, without
 * gaps; false where that is the contiguous order as well. */
static inline bool fl_channels_last(const fl_view *v) {
  return v->ndim == 4 && !fl_contiguous(v) && v->stride[1] == 1 &&
         (v->shape[3] == 1 || v->stride[3] == v->shape[1]) &&
         (v->shape[2] == 1 || v->stride[2] == v->shape[1] * v->shape[3]) &&
         (v->shape[0] == 1 ||
          v->stride[0] == v->shape[1] * v->shape[3] * v->shape[2]);
}

/* Whether v's elements fill their memory without gaps, in whatever order. */
static inline bool fl_dense(const fl_view *v) {
  int order[FL_MAX_DIMS];
  fl_view w;
  if (fl_contiguous(v))
    return true;
  if (!fl_order_dims(v->ndim, v->shape, v->stride, order))
    return false;
  fl_view_copy(&w, v);
  fl_reorder_dims(&w, v->ndim, order);
  return fl_contiguous(&w);
}

/* Whether elements of two views of one shape have the same places. */
static inline bool fl_same_strides(const fl_view *a, const fl_view *b) {
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != 1 && a->stride[i] != b->stride[i])
      return false;
  return true;
}

/* v of shape (N, C, H, W) as (N, H, W, C). */
static inline void fl_as_channels_last(const fl_view *v, fl_view *to) {
  static const int order[4] = {0, 2, 3, 1};
  fl_view_copy(to, v);
  fl_reorder_dims(to, 4, order);
}

/* Strides of v as if broadcast to `ndim` dims of a shape it fits. */
static inline void fl_broadcast_strides(const fl_view *v, int ndim,
                                        int64_t *stride) {
  for (int d = 0; d < ndim; d++) {
    int k = d - (ndim - v->ndim);
    stride[d] = k < 0 || v->shape[k] == 1 ? 0 : v->stride[k];
  }
}

/* v with at least one dim: a number is a vector of one element. */
static inline void fl_as_vector(const fl_view *v, fl_view *to) {
  fl_view_copy(to, v);
  if (to->ndim == 0) {
    to->ndim = 1;
    to->shape[0] = 1;
    to->stride[0] = 0;
  }
}

/* v with at least two dims: a vector is a row or, with `column`, a column. */
static inline void fl_as_matrix(const fl_view *v, bool column, fl_view *to) {
  if (v->ndim > 1) {
    fl_view_copy(to, v);
    return;
  }
  to->data = v->data;
  to->dtype = v->dtype;
  to->ndim = 2;
  to->shape[column] = 1;
  to->stride[column] = 0;
  to->shape[!column] = v->shape[0];
  to->stride[!column] = v->stride[0];
}

/* The attributes p[0] to p[3] of a formula (FL_UNARY, FL_BINARY, FL_TERNARY)
 * whose row has `params`, FL_PARAMS_*; p is left alone if there are none. */
static inline void fl_formula_params(const fl_launch *l, int params,
                                     double *p) {
  for (int k = 0; params && k < 4; k++)
    p[k] = params == FL_PARAMS_CHOICE ? (double)l->attrs->v[k].i
                                      : l->attrs->v[k].f;
}

#endif
