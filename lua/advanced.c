/* x[...] with index tensors and masks in it. All of them together become one
 * list of positions along one dim: the dims they stand at are brought together
 * and merged, as NumPy and PyTorch define it, then it is an index_select or an
 * index_copy. */
#include "index.h"

typedef struct merged {
  fl_tensor *x;         /* with the indexed dims merged into `dim` */
  fl_tensor *positions; /* 1-d, counted from 1 */
  int dim, dims;        /* where, and how many were merged */
  int index_ndim;       /* shape of the index ... */
  int64_t index_shape[FL_MAX_DIMS];
  bool moved;                /* dims were permuted */
  int64_t back[FL_MAX_DIMS]; /* the permutation that undoes it */
  fl_meta before;            /* after permuting, before merging */
} merged;

static fl_operand advanced_of(fl_tensor *t) {
  return (fl_operand){.tensor = t, .dtype = FL_NODTYPE};
}

static fl_operand advanced_whole(int64_t i) {
  return (fl_operand){.tensor = NULL, .dtype = FL_I64, .i = i};
}

static fl_tensor *advanced_two(fll_plan_run *r, const fl_op *op, fl_operand a,
                               fl_operand b) {
  return fll_do(r, op, NULL, 2, (fl_operand[]){a, b}, false);
}

static fl_tensor *index_select(fll_plan_run *r, fl_tensor *x, int dim,
                               fl_tensor *positions) {
  fl_attrs a = {.used = 0};
  a.v[0].i = dim;
  return fll_do(r, r->st->index_select, &a, 2,
                (fl_operand[]){advanced_of(x), advanced_of(positions)}, false);
}

static fl_tensor *advanced_flat(fll_plan_run *r, fl_tensor *t) {
  if (!t)
    return NULL;
  int64_t n = fl_tensor_numel(t);
  return fl_tensor_meta(t)->ndim == 1
             ? t
             : fll_do_ints(r, r->st->reshape, t, 1, &n);
}

/* Where a mask is true, as positions among its elements counted from 1. */
static fl_tensor *true_positions(fll_plan_run *r, fl_tensor *mask) {
  fl_tensor *m = advanced_flat(r, mask);
  fl_operand in = advanced_of(m);
  fl_tensor *at = m ? fll_do(r, r->st->nonzero, NULL, 1, &in, false) : NULL;
  return advanced_flat(r, at);
}

static int64_t advanced_position(const fl_tensor *t, const void *p, int64_t i) {
  return fl_tensor_meta(t)->dtype == FL_I64 ? ((const int64_t *)p)[i]
                                            : ((const int32_t *)p)[i];
}

/* Looks at positions along a dim of n on the host: whether all are 1 to n. One
 * that is none, not even from the end, fails as the script wrote it. */
static bool all_from_start(fll_plan_run *r, fl_tensor *t, int64_t n) {
  const void *p = fl_tensor_borrow(t);
  int64_t count = fl_tensor_numel(t);
  if (!p) /* of many samples, inside vmap, or none */
    return count == 0;
  uint64_t outside = 0; /* the sign of what is below 1 or above n */
  if (fl_tensor_meta(t)->dtype == FL_I64)
    for (int64_t i = 0; i < count; i++) {
      uint64_t v = ((const uint64_t *)p)[i];
      outside |= (v - 1) | ((uint64_t)n - v);
    }
  else
    for (int64_t i = 0; i < count; i++) {
      int64_t v = ((const int32_t *)p)[i];
      outside |= (uint64_t)(v - 1) | (uint64_t)(n - v);
    }
  if (!(outside >> 63))
    return true;
  for (int64_t i = 0; i < count && r->status == FL_OK; i++) {
    int64_t v = advanced_position(t, p, i);
    if (v < -n || v == 0 || v > n)
      r->status =
          fli_fail(FL_EINDEX, "x[...]: position %lld is out of range 1..%lld%s",
                   (long long)v, (long long)n,
                   v ? "" : ": data that counts from 0 is x[index + 1] here");
  }
  return false;
}

/* Positions along a dim of n without those from the end, -1 being the last. The
 * host looks first where that is no wait. */
static fl_tensor *from_start(fll_plan_run *r, fl_tensor *t, int64_t n) {
  if (fl_tensor_device(t) == 0 && fl_tensor_contiguous(t) &&
      all_from_start(r, t, n))
    return t;
  if (r->status != FL_OK)
    return NULL;
  fl_runtime *rt = r->st->rt;
  fl_tensor *negative =
      advanced_two(r, fl_op_find(rt, "lt"), advanced_of(t), advanced_whole(0));
  fl_tensor *far =
      advanced_two(r, r->st->add, advanced_of(t), advanced_whole(n + 1));
  return far && negative
             ? fll_do(r, fl_op_find(rt, "where"), NULL, 3,
                      (fl_operand[]){advanced_of(negative), advanced_of(far),
                                     advanced_of(t)},
                      false)
             : NULL;
}

/* Positions along a dim of n, checked against it and counted from 0: looked up
 * in 0, 1, ... n - 1, so that the kernel finds what is out of range. */
static fl_tensor *from_zero(fll_plan_run *r, fl_tensor *t, int64_t n) {
  const fl_op *arange = fl_op_find(r->st->rt, "arange");
  fl_attrs a = *fl_op_defaults(arange);
  a.v[0].f = 0;
  a.v[1].f = (double)n;
  fl_tensor *all = fll_do(r, arange, &a, 0, NULL, false);
  return all ? index_select(r, all, 0, t) : NULL;
}

/* The common shape of the index tensors. */
static bool advanced_broadcast(fll_plan_run *r, fl_tensor *const *t, int n,
                               merged *m) {
  for (int k = 0; k < n; k++) {
    const fl_meta *s = fl_tensor_meta(t[k]);
    if (s->ndim > m->index_ndim) {
      int more = s->ndim - m->index_ndim;
      memmove(m->index_shape + more, m->index_shape,
              sizeof(int64_t) * (size_t)m->index_ndim);
      for (int i = 0; i < more; i++)
        m->index_shape[i] = 1;
      m->index_ndim = s->ndim;
    }
    for (int i = 0; i < s->ndim; i++) {
      int64_t *size = &m->index_shape[m->index_ndim - s->ndim + i];
      if (*size == 1) {
        *size = s->shape[i];
      } else if (s->shape[i] != 1 && s->shape[i] != *size) {
        r->status = fli_fail(FL_ESHAPE,
                             "x[...]: index tensors of shapes %s and %s do not "
                             "broadcast",
                             fli_shape_text(m->index_ndim, m->index_shape),
                             fli_shape_text(s->ndim, s->shape));
        return false;
      }
    }
  }
  return true;
}

/* Several index tensors: position = ((i * n2) + j) * n3 + k ... along the
 * merged dim. */
static void advanced_combine(fll_plan_run *r, fl_tensor *const *t, int n,
                             merged *m) {
  fl_tensor *sum = NULL;
  if (!advanced_broadcast(r, t, n, m))
    return;
  for (int k = 0; k < n && r->status == FL_OK; k++) {
    int64_t size = m->before.shape[m->dim + k];
    fl_tensor *e = from_start(r, t[k], size);
    if (e)
      e = fll_do_ints(r, r->st->expand, e, m->index_ndim, m->index_shape);
    fl_tensor *p = e ? from_zero(r, advanced_flat(r, e), size) : NULL;
    if (sum && p) {
      sum = advanced_two(r, r->st->mul, advanced_of(sum), advanced_whole(size));
      sum = sum ? advanced_two(r, r->st->add, advanced_of(sum), advanced_of(p))
                : NULL;
    } else {
      sum = p;
    }
  }
  m->positions =
      sum ? advanced_two(r, r->st->add, advanced_of(sum), advanced_whole(1))
          : NULL;
}

/* Brings the indexed dims together: in place if they are neighbours, else in
 * front. */
static fl_tensor *gather_dims(fll_plan_run *r, const fll_gather *g,
                              fl_tensor *x, merged *m) {
  const fl_meta *s = fl_tensor_meta(x);
  m->dim = g->dim[0];
  m->before = *s;
  bool neighbours = true;
  for (int k = 1; k < g->n; k++)
    neighbours = neighbours && g->dim[k] == g->dim[k - 1] + 1;
  if (neighbours)
    return x;
  int64_t order[FL_MAX_DIMS];
  int n = 0;
  for (int k = 0; k < g->n; k++)
    order[n++] = g->dim[k];
  for (int d = 0; d < s->ndim; d++) {
    bool indexed = false;
    for (int k = 0; k < g->n; k++)
      indexed = indexed || g->dim[k] == d;
    if (!indexed)
      order[n++] = d;
  }
  for (int d = 0; d < n; d++)
    m->back[order[d]] = d;
  m->moved = true;
  m->dim = 0;
  fl_tensor *y = fll_do_ints(r, r->st->permute, x, n, order);
  if (y)
    m->before = *fl_tensor_meta(y);
  return y;
}

static fl_status check_mask(const fl_tensor *mask, const fl_meta *x, int dim) {
  const fl_meta *m = fl_tensor_meta(mask);
  for (int i = 0; i < m->ndim; i++)
    if (m->shape[i] != x->shape[dim + i])
      return fli_fail(FL_ESHAPE,
                      "x[mask]: the mask's shape %s does not match %s at dim "
                      "%d",
                      fli_shape_text(m->ndim, m->shape),
                      fli_shape_text(x->ndim, x->shape), dim + 1);
  return FL_OK;
}

/* Masks among several index tensors become one for each of their dims. */
static void spread_masks(fll_plan_run *r, const fll_gather *g, fl_tensor *x,
                         fll_gather *all) {
  all->n = 0;
  for (int k = 0; k < g->n && r->status == FL_OK; k++) {
    const fl_meta *s = fl_tensor_meta(g->tensor[k]);
    if (s->dtype != FL_BOOL) {
      all->dim[all->n] = g->dim[k];
      all->tensor[all->n++] = g->tensor[k];
      continue;
    }
    r->status = check_mask(g->tensor[k], fl_tensor_meta(x), g->dim[k]);
    fl_operand mask = advanced_of(g->tensor[k]);
    fl_tensor *rows = fll_do(r, r->st->nonzero, NULL, 1, &mask, false);
    for (int d = 0; d < s->ndim && rows; d++) {
      fl_attrs a = {.used = 0};
      fl_operand in = advanced_of(rows);
      a.v[0].i = 1;
      a.v[1].i = d;
      all->dim[all->n] = g->dim[k] + d;
      all->tensor[all->n++] = fll_do(r, r->st->select, &a, 1, &in, false);
    }
  }
}

/* One index tensor, or one mask of any dims. */
static fl_tensor *advanced_alone(fll_plan_run *r, fl_tensor *t, fl_tensor *x,
                                 merged *m) {
  const fl_meta *s = fl_tensor_meta(t);
  if (s->dtype == FL_BOOL) {
    r->status = check_mask(t, fl_tensor_meta(x), m->dim);
    m->dims = s->ndim;
    t = r->status == FL_OK ? true_positions(r, t) : NULL;
  } else {
    t = from_start(r, t, m->before.shape[m->dim]);
  }
  if (!t)
    return NULL;
  s = fl_tensor_meta(t);
  m->index_ndim = s->ndim;
  memcpy(m->index_shape, s->shape, sizeof m->index_shape);
  return advanced_flat(r, t);
}

static void advanced_merge(fll_plan_run *r, const fll_gather *given,
                           fl_tensor *x, merged *m) {
  fll_gather all;
  const fll_gather *g = given;
  if (given->n > 1) {
    spread_masks(r, given, x, &all);
    g = &all;
  }
  if (r->status != FL_OK)
    return;
  fl_tensor *y = gather_dims(r, g, x, m);
  m->dims = g->n;
  if (!y)
    return;
  if (g->n == 1)
    m->positions = advanced_alone(r, g->tensor[0], x, m);
  else
    advanced_combine(r, g->tensor, g->n, m);
  if (r->status != FL_OK)
    return;
  int64_t shape[FL_MAX_DIMS + 1], size = 1;
  int n = 0;
  const fl_meta *s = &m->before;
  for (int d = 0; d < m->dim; d++)
    shape[n++] = s->shape[d];
  for (int d = 0; d < m->dims; d++)
    size *= s->shape[m->dim + d];
  shape[n++] = size;
  for (int d = m->dim + m->dims; d < s->ndim; d++)
    shape[n++] = s->shape[d];
  m->x = m->dims == 1 ? y : fll_do_ints(r, r->st->reshape, y, n, shape);
}

/* before[:dim] + index shape + before[dim + dims:] */
static int result_shape(fll_plan_run *r, const merged *m, int64_t *shape) {
  const fl_meta *s = &m->before;
  int n = 0;
  if (s->ndim - m->dims + m->index_ndim > FL_MAX_DIMS) {
    r->status = fli_fail(FL_ESIZE,
                         "x[...]: the result would have %d dims, at "
                         "most %d are possible",
                         s->ndim - m->dims + m->index_ndim, FL_MAX_DIMS);
    return 0;
  }
  for (int d = 0; d < m->dim; d++)
    shape[n++] = s->shape[d];
  for (int d = 0; d < m->index_ndim; d++)
    shape[n++] = m->index_shape[d];
  for (int d = m->dim + m->dims; d < s->ndim; d++)
    shape[n++] = s->shape[d];
  return n;
}

static bool is_full_mask(const fll_gather *g, const fl_tensor *x) {
  const fl_meta *m = fl_tensor_meta(g->tensor[0]);
  return g->n == 1 && m->dtype == FL_BOOL && m->ndim == fl_tensor_meta(x)->ndim;
}

fl_tensor *fll_gather_read(fll_plan_run *r, const fll_gather *g, fl_tensor *x) {
  if (is_full_mask(g, x)) {
    r->status = check_mask(g->tensor[0], fl_tensor_meta(x), 0);
    return advanced_two(r, r->st->masked_select, advanced_of(x),
                        advanced_of(g->tensor[0]));
  }
  merged m = {0};
  int64_t shape[FL_MAX_DIMS];
  advanced_merge(r, g, x, &m);
  fl_tensor *y =
      m.x && m.positions ? index_select(r, m.x, m.dim, m.positions) : NULL;
  int n = y ? result_shape(r, &m, shape) : 0;
  if (!y || r->status != FL_OK)
    return NULL;
  return m.index_ndim == 1 ? y : fll_do_ints(r, r->st->reshape, y, n, shape);
}

/* x[mask] = value: one value everywhere, or a value for each true element. */
static void write_mask(fll_plan_run *r, fl_tensor *mask, fl_tensor *x,
                       fl_operand value) {
  fl_tensor *y;
  r->status = check_mask(mask, fl_tensor_meta(x), 0);
  if (!value.tensor || fl_tensor_numel(value.tensor) == 1)
    y = fll_do(r, r->st->masked_fill, NULL, 3,
               (fl_operand[]){advanced_of(x), advanced_of(mask), value}, false);
  else
    y = fll_do(r, r->st->masked_scatter, NULL, 3,
               (fl_operand[]){advanced_of(x), advanced_of(mask), value}, false);
  if (y)
    fll_do(r, r->st->assign, NULL, 2,
           (fl_operand[]){advanced_of(x), advanced_of(y)}, true);
}

/* The value as a tensor of x's dtype. */
static fl_tensor *as_tensor(fll_plan_run *r, fl_operand value, fl_tensor *x) {
  fl_dtype d = fl_tensor_meta(x)->dtype;
  fl_tensor *t = NULL;
  if (value.tensor) {
    fl_status s = fl_tensor_to(value.tensor, r->device, d, &t);
    if (s != FL_OK)
      r->status = s;
    return s == FL_OK ? fll_keep(r, t) : NULL;
  }
  fl_attrs a = *fl_op_defaults(r->st->full);
  a.v[1].f = 0; /* value, for now */
  a.v[2].i = d;
  t = fll_do(r, r->st->full, &a, 0, NULL, false);
  return t ? fll_do(r, r->st->assign, NULL, 2,
                    (fl_operand[]){advanced_of(t), value}, true)
           : NULL;
}

void fll_gather_write(fll_plan_run *r, const fll_gather *g, fl_tensor *x,
                      fl_operand value) {
  if (r->status != FL_OK)
    return;
  if (is_full_mask(g, x)) {
    write_mask(r, g->tensor[0], x, value);
    return;
  }
  merged m = {0};
  int64_t shape[FL_MAX_DIMS];
  advanced_merge(r, g, x, &m);
  int n = m.x && m.positions ? result_shape(r, &m, shape) : 0;
  fl_tensor *v = r->status == FL_OK ? as_tensor(r, value, x) : NULL;
  v = v ? fll_do_ints(r, r->st->expand, v, n, shape) : NULL;
  if (!v)
    return;
  /* (..., positions, ...): the index dims become one again */
  int64_t one[FL_MAX_DIMS];
  memcpy(one, fl_tensor_meta(m.x)->shape, sizeof one);
  one[m.dim] = fl_tensor_numel(m.positions);
  v = fll_do_ints(r, r->st->reshape, v, fl_tensor_meta(m.x)->ndim, one);
  fl_attrs a = {.used = 0};
  a.v[0].i = m.dim;
  fl_tensor *y =
      v ? fll_do(r, r->st->index_copy, &a, 3,
                 (fl_operand[]){advanced_of(m.x), advanced_of(m.positions),
                                advanced_of(v)},
                 false)
        : NULL;
  if (y && m.dims > 1)
    y = fll_do_ints(r, r->st->reshape, y, m.before.ndim, m.before.shape);
  if (y && m.moved)
    y = fll_do_ints(r, r->st->permute, y, m.before.ndim, m.back);
  if (y)
    fll_do(r, r->st->assign, NULL, 2,
           (fl_operand[]){advanced_of(x), advanced_of(y)}, true);
}
