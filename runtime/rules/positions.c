/* Rules of scatter_prod and its like, and the composed operators that read and
 * write at positions: scatter_reduce, gather_nd, scatter_nd, take, put,
 * index_fill. Positions count from the call's base. */
#include "env.h"

#include <math.h>
#include <string.h>

static fl_value run_along(fli_env *e, int op, int at, int64_t dim, int n,
                          const fl_value *in) {
  fl_attrs a = fli_attrs(e, op);
  a.v[at].i = dim;
  return fli_run(e, op, &a, n, in);
}

#define ALONG(op, dim, ...)                                                    \
  run_along(&g->e, FLI_OP_##op, FL_ATTR_##op##_dim, dim,                       \
            (int)(sizeof((fl_value[]){__VA_ARGS__}) / sizeof(fl_value)),       \
            (fl_value[]){__VA_ARGS__})

static fl_dtype dtype_of(fl_value v) {
  return v.tensor ? fli_meta(v)->dtype : v.dtype;
}

static bool is_float(fl_value v) {
  return fl_dtype_kind(dtype_of(v)) == FL_KIND_FLOAT;
}

/* One value everywhere, as v. */
static fl_value positions_like(fli_env *e, fl_value v, double value) {
  const fl_meta *m = fli_meta(v);
  fl_attrs a = fli_attrs(e, FLI_OP_full);
  fli_set_list(e, &a, FL_ATTR_full_shape, m->ndim, m->shape);
  a.v[FL_ATTR_full_value].f = value;
  a.v[FL_ATTR_full_dtype].i = m->dtype;
  if (v.tensor)
    e->device = fl_tensor_device(v.tensor);
  return fli_run(e, FLI_OP_full, &a, 0, NULL);
}

/* --- gradients of products and extremes --- */

/* The part of src that index covers. */
static fl_value covered(fli_grad *g) {
  fl_value src = g->in[FL_IN_scatter_src], index = g->in[FL_IN_scatter_index];
  const fl_meta *m = fli_meta(index), *s = fli_meta(src);
  if (!src.tensor || s->ndim == 0)
    return src;
  for (int d = 0; d < s->ndim; d++)
    if (s->shape[d] != m->shape[d])
      src = fli_v_narrow(&g->e, src, d, 0, m->shape[d], 1);
  return src;
}

/* Pads a gradient of the covered part to the shape of src. */
static fl_value uncovered(fli_grad *g, fl_value dx) {
  const fl_meta *src = &g->in_meta[FL_IN_scatter_src], *m = fli_meta(dx);
  int64_t list[2 * FL_MAX_DIMS] = {0};
  if (src->ndim == 0 || g->e.status || fli_same_shape(src, m))
    return dx;
  for (int d = 0; d < src->ndim; d++)
    list[2 * (src->ndim - 1 - d) + 1] = src->shape[d] - m->shape[d];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2 * src->ndim, list);
  return RUN_A(pad, &a, dx);
}

/* The gradient of x is dy times the product of the elements of src written
 * there; that of an element of src is dy times the product of x and the other
 * elements. The latter is a quotient; zeros are left out of it and counted,
 * since it is 0 if one of the others is 0. */
void fli_grad_scatter_prod(fli_grad *g) {
  int64_t dim = g->attrs->v[FL_ATTR_scatter_prod_dim].i;
  fl_value x = g->in[FL_IN_scatter_prod_x],
           index = g->in[FL_IN_scatter_prod_index], src = covered(g),
           dy = g->dy[0];
  if (g->need[FL_IN_scatter_prod_x])
    g->dx[FL_IN_scatter_prod_x] = MUL(
        dy, ALONG(scatter_prod, dim, positions_like(&g->e, dy, 1), index, src));
  if (!g->need[FL_IN_scatter_prod_src])
    return;
  fl_value x_zero = RUN(eq, x, fli_integer(0));
  fl_value zero = RUN(eq, src, fli_integer(0));
  fl_value rest = RUN(where, zero, NUM(1), src);
  fl_value all =
      ALONG(scatter_prod, dim, RUN(where, x_zero, NUM(1), x), index, rest);
  fl_value zeros =
      ALONG(scatter_add, dim, CAST(x_zero, FL_I64), index, CAST(zero, FL_I64));
  fl_value others = SUB(ALONG(gather, dim, zeros, index), CAST(zero, FL_I64));
  fl_value one = DIV(ALONG(gather, dim, MUL(dy, all), index), rest);
  g->dx[FL_IN_scatter_prod_src] =
      uncovered(g, RUN(where, RUN(eq, others, fli_integer(0)), one, NUM(0)));
}

/* Equal extremes share the gradient. */
void fli_grad_scatter_amax(fli_grad *g) {
  int64_t dim = g->attrs->v[FL_ATTR_scatter_amax_dim].i;
  fl_value index = g->in[FL_IN_scatter_amax_index], dy = g->dy[0], y = g->y[0];
  fl_dtype d = fli_meta(dy)->dtype;
  fl_value of_x = CAST(RUN(eq, g->in[FL_IN_scatter_amax_x], y), d);
  fl_value of_src = CAST(RUN(eq, covered(g), ALONG(gather, dim, y, index)), d);
  fl_value n = ALONG(scatter_add, dim, of_x, index, of_src);
  fl_value share = DIV(dy, RUN(maximum, n, NUM(1)));
  if (g->need[FL_IN_scatter_amax_x])
    g->dx[FL_IN_scatter_amax_x] = MUL(share, of_x);
  if (g->need[FL_IN_scatter_amax_src])
    g->dx[FL_IN_scatter_amax_src] =
        uncovered(g, MUL(ALONG(gather, dim, share, index), of_src));
}

/* --- scatter_reduce --- */

enum { SUM_OF, PROD_OF, MEAN_OF, AMAX_OF, AMIN_OF };

/* x with what the reduction starts from at the positions. */
static fl_value emptied(fli_composing *g, fl_value x, fl_value index,
                        int64_t dim, int how) {
  static const int64_t top[FLI_DTYPES] = {
      [FL_I64] = INT64_MAX, [FL_I32] = INT32_MAX, [FL_I16] = INT16_MAX,
      [FL_I8] = INT8_MAX,   [FL_U8] = UINT8_MAX,  [FL_BOOL] = 1};
  fl_dtype d = dtype_of(x);
  fl_value start = fli_integer(how == PROD_OF);
  if (how == AMAX_OF || how == AMIN_OF) {
    if (is_float(x))
      start = NUM(how == AMAX_OF ? -INFINITY : INFINITY);
    else if (how == AMIN_OF)
      start = fli_integer(top[d]);
    else
      start = fli_integer(d == FL_U8 || d == FL_BOOL ? 0 : -top[d] - 1);
  }
  return ALONG(scatter, dim, x, index, start);
}

static fl_value mean_of(fli_composing *g, fl_value x, fl_value index,
                        fl_value src, int64_t dim, bool self) {
  fl_dtype wide = dtype_of(x) == FL_F64 ? FL_F64 : FL_F32;
  bool whole = !is_float(x);
  fl_value n = CAST(positions_like(&g->e, x, 1), whole ? FL_I64 : wide);
  fl_value sum = CAST(x, whole ? FL_I64 : wide);
  if (!self) {
    n = emptied(g, n, index, dim, SUM_OF);
    sum = emptied(g, sum, index, dim, SUM_OF);
  }
  n = ALONG(scatter_add, dim, n, index, fli_integer(1));
  sum = ALONG(scatter_add, dim, sum, index, src);
  n = RUN(maximum, n, fli_integer(1));
  return CAST(whole ? RUN(floor_div, sum, n) : DIV(sum, n), dtype_of(x));
}

static fl_value positions_reduced(fli_composing *g, fl_value x, fl_value index,
                                  fl_value src, int64_t dim, int how,
                                  bool self) {
  static const int rows[] = {FLI_OP_scatter_add, FLI_OP_scatter_prod, 0,
                             FLI_OP_scatter_amax, FLI_OP_scatter_amin};
  if (how == MEAN_OF)
    return mean_of(g, x, index, src, dim, self);
  if (!self)
    x = emptied(g, x, index, dim, how);
  return run_along(&g->e, rows[how], FL_ATTR_scatter_dim, dim, 3,
                   (fl_value[]){x, index, src});
}

void fli_compose_scatter_reduce(fli_composing *g) {
  const fl_attr *a = g->attrs->v;
  if (!g->in[FL_IN_scatter_reduce_x].tensor) {
    fli_env_fail(&g->e, FL_EARG, "scatter_reduce: x must be a tensor");
    return;
  }
  g->out[0] = positions_reduced(
      g, g->in[FL_IN_scatter_reduce_x], g->in[FL_IN_scatter_reduce_index],
      g->in[FL_IN_scatter_reduce_src], a[FL_ATTR_scatter_reduce_dim].i,
      (int)a[FL_ATTR_scatter_reduce_reduce].i,
      a[FL_ATTR_scatter_reduce_include_self].i != 0);
}

/* --- positions of several dims --- */

/* 0, 1, ... n - 1. */
static fl_value positions_counted(fli_composing *g, int64_t n) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)n;
  return fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
}

/* Rows of index's last dim, positions in n dims of x from `first` on, as
 * positions in those dims merged, counted from 0. Each is looked up in 0, 1,
 * ..., so that the kernel finds what is out of range. */
static fl_value merged(fli_composing *g, const fl_meta *x, fl_value index,
                       int first, int n) {
  fl_value sum = fli_none();
  int last = fli_meta(index)->ndim - 1;
  int64_t rows = 1;
  for (int d = 0; d < last; d++)
    rows *= fli_meta(index)->shape[d];
  for (int k = 0; k < n && g->e.status == FL_OK; k++) {
    int64_t size = x->shape[first + k];
    fl_value at = fli_v_reshape(
        &g->e, fli_v_narrow(&g->e, index, last, k, 1, 1), 1, &rows);
    at = ALONG(index_select, 0, positions_counted(g, size), at);
    sum = k == 0 ? at : ADD(MUL(sum, fli_integer(size)), at);
  }
  return n ? sum
           : CAST(fli_v_zeros(&g->e, FL_I64, 1, &rows, g->e.device), FL_I64);
}

/* The index's own dims are lead, and it addresses `n` dims of x after batch
 * dims, which both have. */
static bool check_nd(fli_composing *g, int64_t batch, int *n) {
  const fl_meta *x = fli_meta(g->in[FL_IN_nd_x]),
                *index = fli_meta(g->in[FL_IN_nd_index]);
  const char *op = g->op->info.name;
  bool fits = g->in[FL_IN_nd_x].tensor && g->in[FL_IN_nd_index].tensor &&
              index->ndim > batch && batch >= 0 && x->ndim >= batch;
  for (int d = 0; d < batch && fits; d++)
    fits = x->shape[d] == index->shape[d];
  *n = fits && index->shape[index->ndim - 1] <= x->ndim - batch
           ? (int)index->shape[index->ndim - 1]
           : -1;
  if (*n >= 0)
    return true;
  fli_env_fail(&g->e, FL_ESHAPE,
               "%s: index of shape %s does not fit x of shape %s: its last dim "
               "is a position in at most %d dims, after %lld equal ones",
               op, fli_shape_text(index->ndim, index->shape),
               fli_shape_text(x->ndim, x->shape),
               x->ndim - (int)(batch < 0 || batch > x->ndim ? 0 : batch),
               (long long)batch);
  return false;
}

/* index's dims but the last, then x's from `from` on. */
static int parts_shape(fli_composing *g, int from, int64_t *shape) {
  const fl_meta *x = fli_meta(g->in[FL_IN_nd_x]),
                *index = fli_meta(g->in[FL_IN_nd_index]);
  int n = 0;
  if (index->ndim - 1 + x->ndim - from > FL_MAX_DIMS) {
    fli_env_fail(&g->e, FL_ESIZE,
                 "%s: the parts would have %d dims, at most %d are possible",
                 g->op->info.name, index->ndim - 1 + x->ndim - from,
                 FL_MAX_DIMS);
    return 0;
  }
  for (int d = 0; d < index->ndim - 1; d++)
    shape[n++] = index->shape[d];
  for (int d = from; d < x->ndim; d++)
    shape[n++] = x->shape[d];
  return n;
}

void fli_compose_gather_nd(fli_composing *g) {
  fl_value x = g->in[FL_IN_gather_nd_x], index = g->in[FL_IN_gather_nd_index];
  const fl_meta *m = fli_meta(x), *s = fli_meta(index);
  int batch = (int)g->attrs->v[FL_ATTR_gather_nd_batch_dims].i, n;
  int64_t shape[FL_MAX_DIMS], parts[FL_MAX_DIMS];
  if (!check_nd(g, g->attrs->v[FL_ATTR_gather_nd_batch_dims].i, &n))
    return;
  int dims = parts_shape(g, batch + n, shape);
  int64_t batches = fl_numel(batch, m->shape);
  int64_t size = fl_numel(n, m->shape + batch);
  int64_t rest = fl_numel(m->ndim - batch - n, m->shape + batch + n);
  fl_value at = merged(g, m, index, batch, n);
  if (batch > 0 && g->e.status == FL_OK) {
    int64_t each = fl_numel(s->ndim - 1 - batch, s->shape + batch);
    fl_value start = MUL(positions_counted(g, batches), fli_integer(size));
    start = fli_v_unsqueeze(&g->e, start, 1);
    at = fli_v_reshape(&g->e, at, 2, (int64_t[]){batches, each});
    at = fli_v_reshape(&g->e, ADD(at, start), 1, (int64_t[]){batches * each});
  }
  parts[0] = batches * size;
  parts[1] = rest;
  x = fli_v_reshape(&g->e, x, 2, parts);
  x = ALONG(index_select, 0, x, ADD(at, fli_integer(g->e.base)));
  g->out[0] = fli_v_reshape(&g->e, x, dims, shape);
}

void fli_compose_scatter_nd(fli_composing *g) {
  fl_value x = g->in[FL_IN_scatter_nd_x], index = g->in[FL_IN_scatter_nd_index],
           src = g->in[FL_IN_scatter_nd_src];
  const fl_meta *m = fli_meta(x);
  int how = (int)g->attrs->v[FL_ATTR_scatter_nd_reduce].i, n;
  int64_t shape[FL_MAX_DIMS];
  if (!check_nd(g, 0, &n))
    return;
  int dims = parts_shape(g, n, shape);
  int64_t parts[2] = {fl_numel(n, m->shape),
                      fl_numel(m->ndim - n, m->shape + n)};
  fl_value at = ADD(merged(g, m, index, 0, n), fli_integer(g->e.base));
  int64_t some[2] = {fli_meta(at)->shape[0], parts[1]};
  if (g->e.status)
    return;
  if (src.tensor && fli_meta(src)->ndim > 0) {
    src = fli_v_expand(&g->e, src, dims, shape);
    src = fli_v_reshape(&g->e, src, 2, some);
  }
  fl_value y = fli_v_reshape(&g->e, x, 2, parts);
  if (how == 0)
    y = ALONG(index_copy, 0, y, at, src);
  else if (how == 1)
    y = ALONG(index_add, 0, y, at, src);
  else
    y = positions_reduced(
        g, y, fli_v_expand(&g->e, fli_v_unsqueeze(&g->e, at, 1), 2, some), src,
        0, how - 1, true);
  g->out[0] = RESHAPE(y, m);
}

/* --- flat positions, whole slices --- */

static fl_value positions_flat(fli_composing *g, fl_value v) {
  int64_t n = fl_numel(fli_meta(v)->ndim, fli_meta(v)->shape);
  return v.tensor ? fli_v_reshape(&g->e, v, 1, &n)
                  : fli_env_fail(&g->e, FL_EARG,
                                 "%s: x and index must be "
                                 "tensors",
                                 g->op->info.name);
}

void fli_compose_take(fli_composing *g) {
  fl_value y = ALONG(index_select, 0, positions_flat(g, g->in[FL_IN_take_x]),
                     positions_flat(g, g->in[FL_IN_take_index]));
  g->out[0] = RESHAPE(y, fli_meta(g->in[FL_IN_take_index]));
}

void fli_compose_put(fli_composing *g) {
  fl_value x = positions_flat(g, g->in[FL_IN_put_x]),
           index = positions_flat(g, g->in[FL_IN_put_index]),
           src = g->in[FL_IN_put_src];
  const fl_meta *m = fli_meta(g->in[FL_IN_put_index]);
  if (src.tensor && fli_meta(src)->ndim > 0) {
    if (!fli_same_shape(m, fli_meta(src))) {
      fli_env_fail(
          &g->e, FL_ESHAPE,
          "put: src has shape %s; it must be index's %s, or one number",
          fli_shape_text(fli_meta(src)->ndim, fli_meta(src)->shape),
          fli_shape_text(m->ndim, m->shape));
      return;
    }
    src = positions_flat(g, src);
  }
  x = g->attrs->v[FL_ATTR_put_accumulate].i
          ? ALONG(index_add, 0, x, index, src)
          : ALONG(index_copy, 0, x, index, src);
  g->out[0] = RESHAPE(x, fli_meta(g->in[FL_IN_put_x]));
}

void fli_compose_index_fill(fli_composing *g) {
  fl_value value = g->in[FL_IN_index_fill_value];
  if (value.tensor && fl_tensor_numel(value.tensor) != 1) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "index_fill: value must be one number, got shape %s",
                 fli_shape_text(fli_meta(value)->ndim, fli_meta(value)->shape));
    return;
  }
  const fl_meta *m = fli_meta(g->in[FL_IN_index_fill_x]);
  int64_t dim = g->attrs->v[FL_ATTR_index_fill_dim].i,
          n = m->ndim ? m->shape[dim] : 1;
  int64_t shape[FL_MAX_DIMS];
  for (int d = 0; d < m->ndim; d++)
    shape[d] = d == dim ? n : 1;
  fl_value mask = fli_v_zeros(&g->e, FL_BOOL, 1, &n, g->e.device);
  mask =
      ALONG(index_copy, 0, mask, g->in[FL_IN_index_fill_index], fli_integer(1));
  mask = fli_v_reshape(&g->e, mask, m->ndim, shape);
  if (value.tensor)
    value = fli_v_reshape(&g->e, value, 0, NULL);
  g->out[0] = RUN(masked_fill, g->in[FL_IN_index_fill_x], mask, value);
}
