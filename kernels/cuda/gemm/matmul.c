/* The rows matmul (all ranks, broadcast batches, any strides, integers too) and
 * linear (x W^T + bias, then an activation): views made into one product. The
 * products themselves are in gemm.c and vendor/cublaslt.c. */
#include "product.h"

static void read_view(const fl_view *v, flc_matrices *m) {
  m->data = v->data;
  m->ndim = v->ndim - 2;
  m->rows = v->shape[m->ndim];
  m->cols = v->shape[m->ndim + 1];
  m->down = v->stride[m->ndim];
  m->along = v->stride[m->ndim + 1];
  for (int i = 0; i < m->ndim; i++) {
    m->shape[i] = v->shape[i];
    m->step[i] = v->shape[i] == 1 ? 0 : v->stride[i];
  }
}

/* A copy holds every matrix once: dims along which a batch only repeats keep
 * step 0. */
fl_status flc_matrices_read(const fl_launch *l, const fl_view *v,
                            fl_dtype dtype, flc_matrices *m) {
  bool half = dtype == FL_F16 || dtype == FL_BF16;
  read_view(v, m);
  if (v->dtype == dtype &&
      (!half || flc_product_lines(m->rows, m->cols, m->down, m->along)))
    return FL_OK;
  fl_view w;
  fl_view_copy(&w, v);
  for (int i = 0; i < m->ndim; i++)
    if (m->step[i] == 0)
      w.shape[i] = 1;
  int64_t n = 1;
  const void *data = flc_input(l, &w, dtype);
  if (!data)
    return FL_ENOMEM;
  for (int i = w.ndim - 1; i >= 0; n *= w.shape[i--])
    w.stride[i] = n;
  for (int i = 0; i < m->ndim; i++)
    m->step[i] = w.shape[i] == 1 ? 0 : w.stride[i];
  m->data = data;
  m->down = m->cols;
  m->along = 1;
  return FL_OK;
}

/* A 1-d operand as a row (a) or as a column (b). */
static void as_matrix(const fl_view *v, bool column, fl_view *w) {
  if (v->ndim > 1) {
    fl_view_copy(w, v);
    return;
  }
  w->data = v->data;
  w->dtype = v->dtype;
  w->ndim = 2;
  w->shape[column] = 1;
  w->stride[column] = 0;
  w->shape[!column] = v->shape[0];
  w->stride[!column] = v->stride[0];
}

/* Adds a dim of the batch, outermost first; one that continues the last is
 * merged with it. */
static void add_dim(flc_product *p, int64_t size, int64_t a, int64_t b) {
  int last = p->dims - 1;
  if (size == 1)
    return;
  if (last >= 0 && p->astep[last] == a * size && p->bstep[last] == b * size) {
    p->size[last] *= size;
    p->astep[last] = a;
    p->bstep[last] = b;
    return;
  }
  p->size[p->dims] = size;
  p->astep[p->dims] = a;
  p->bstep[p->dims++] = b;
}

/* The last dims of the batch become rows where B repeats and A goes on evenly.
 */
static void matmul_flatten(flc_product *p) {
  for (; p->dims > 0; p->dims--) {
    int last = p->dims - 1;
    if (p->bstep[last] != 0)
      return;
    if (p->m == 1)
      p->am = p->astep[last];
    else if (p->astep[last] != p->m * p->am)
      return;
    p->m *= p->size[last];
  }
}

void flc_product_join(flc_product *p, const flc_matrices *a,
                      const flc_matrices *b, int ndim, const int64_t *shape) {
  p->m = a->rows;
  p->n = b->cols;
  p->k = a->cols;
  p->am = a->down;
  p->ak = a->along;
  p->bk = b->down;
  p->bn = b->along;
  p->a = a->data;
  p->b = b->data;
  for (int i = 0; i < ndim; i++) {
    int ia = i - (ndim - a->ndim), ib = i - (ndim - b->ndim);
    add_dim(p, shape[i], ia < 0 ? 0 : a->step[ia], ib < 0 ? 0 : b->step[ib]);
  }
  matmul_flatten(p);
}

FLC_KERNEL(matmul) {
  const fl_view *out = &l->out[0];
  fl_view a, b;
  flc_matrices ma, mb;
  flc_product p = {.dtype = out->dtype, .c = out->data};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  as_matrix(&l->in[FL_IN_matmul_a], false, &a);
  as_matrix(&l->in[FL_IN_matmul_b], true, &b);
  if (flc_matrices_read(l, &a, out->dtype, &ma) != FL_OK ||
      flc_matrices_read(l, &b, out->dtype, &mb) != FL_OK)
    return FL_ENOMEM;
  flc_product_join(&p, &ma, &mb,
                   out->ndim - (l->in[FL_IN_matmul_a].ndim > 1) -
                       (l->in[FL_IN_matmul_b].ndim > 1),
                   out->shape);
  flc_product_take(l, &p);
  return flc_multiply(l, &p);
}

/* 16-bit floats are multiplied as such and added up in c's dtype. */
FLC_KERNEL(matmul_add) {
  const fl_view *c = &l->in[FL_IN_matmul_add_c],
                *left = &l->in[FL_IN_matmul_add_a],
                *right = &l->in[FL_IN_matmul_add_b];
  bool alike = left->dtype == right->dtype && fl_dtype_is_low(left->dtype) &&
               (c->dtype == FL_F32 || c->dtype == left->dtype);
  fl_dtype dtype = alike ? left->dtype : c->dtype;
  fl_view a, b, whole;
  flc_matrices ma, mb;
  flc_product p = {.dtype = dtype, .add = true, .sum = c->dtype};
  if (fl_view_numel(c) == 0)
    return FL_OK;
  as_matrix(left, false, &a);
  as_matrix(right, true, &b);
  p.c = (void *)(uintptr_t)flc_input(l, c, c->dtype); /* or a copy */
  if (!p.c || flc_matrices_read(l, &a, dtype, &ma) != FL_OK ||
      flc_matrices_read(l, &b, dtype, &mb) != FL_OK)
    return FL_ENOMEM;
  flc_product_join(&p, &ma, &mb, c->ndim - (left->ndim > 1) - (right->ndim > 1),
                   c->shape);
  fl_status s = flc_multiply(l, &p);
  if (s != FL_OK || p.c == c->data)
    return s;
  fl_view_copy(&whole, c);
  whole.data = p.c;
  int64_t n = 1;
  for (int i = c->ndim; i-- > 0; n *= c->shape[i])
    whole.stride[i] = n;
  return flc_move(l, c, &whole);
}

flc_matrices flc_matrices_transposed(const flc_matrices *m) {
  flc_matrices t = *m;
  t.rows = m->cols;
  t.cols = m->rows;
  t.down = m->along;
  t.along = m->down;
  return t;
}

/* Rows of x, evenly spaced, or a copy that is. */
static fl_status take_rows(const fl_launch *l, const fl_view *x, fl_dtype dtype,
                           const flc_matrices *w, flc_product *p) {
  fl_view v;
  flc_matrices m, turned = flc_matrices_transposed(w);
  as_matrix(x, false, &v);
  if (flc_matrices_read(l, &v, dtype, &m) != FL_OK)
    return FL_ENOMEM;
  flc_product_join(p, &m, &turned, m.ndim, m.shape);
  if (p->dims == 0)
    return FL_OK;
  p->a = flc_input(l, x, dtype);
  p->m = p->k ? fl_view_numel(x) / p->k : 0;
  p->am = p->k;
  p->ak = 1;
  p->dims = 0;
  return p->a ? FL_OK : FL_ENOMEM;
}

FLC_KERNEL(linear) {
  const fl_view *out = &l->out[0], *bias = &l->in[FL_IN_linear_bias];
  bool keeps = fl_view_numel(&l->out[FL_OUT_linear_pre]) > 0;
  flc_matrices w;
  flc_product p = {.dtype = out->dtype,
                   .c = out->data,
                   .pre = keeps ? l->out[FL_OUT_linear_pre].data : NULL,
                   .act = (flc_act)l->attrs->v[FL_ATTR_linear_act].i};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  if (flc_matrices_read(l, &l->in[FL_IN_linear_weight], out->dtype, &w) !=
          FL_OK ||
      take_rows(l, &l->in[FL_IN_linear_x], out->dtype, &w, &p) != FL_OK)
    return FL_ENOMEM;
  p.m = fl_view_numel(out) / p.n; /* also where nothing is summed */
  if (bias->data) {
    p.bias_dtype = bias->dtype;
    p.bias = flc_input(l, bias, bias->dtype);
    if (!p.bias)
      return FL_ENOMEM;
  }
  flc_product_take(l, &p);
  return flc_multiply(l, &p);
}
