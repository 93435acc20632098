/* Views: how each one maps shape, strides and offset, and their gradients. Also
 * the composed operators that are a view when they can be one: reshape,
 * flatten, contiguous. */
#include "env.h"

#include <string.h>

static fl_status set_dim(fli_viewing *v, int64_t size, int64_t stride) {
  if (v->out.ndim == FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "%s: a tensor has at most %d dims",
                    v->op->info.name, FL_MAX_DIMS);
  v->out.shape[v->out.ndim] = size;
  v->stride[v->out.ndim++] = stride;
  return FL_OK;
}

static void keep_dims(fli_viewing *v) {
  v->out.ndim = v->x->ndim;
  memcpy(v->out.shape, v->x->shape, sizeof v->out.shape);
  memcpy(v->stride, v->x_stride, sizeof v->stride);
}

/* --- view and reshape --- */

/* `want` with its -1 filled in, for n elements. */
static fl_status fill_shape(const char *op, const fl_meta *x, int n,
                            const int64_t *want, int64_t *shape) {
  int64_t total = fl_numel(x->ndim, x->shape), known = 1;
  int open = -1;
  if (n > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "%s: a tensor has at most %d dims", op,
                    FL_MAX_DIMS);
  for (int i = 0; i < n; i++) {
    shape[i] = want[i];
    if (want[i] == -1 && open >= 0)
      return fli_fail(FL_ESHAPE, "%s: only one size can be -1 in %s", op,
                      fli_shape_text(n, want));
    if (want[i] < -1)
      return fli_fail(FL_ESHAPE, "%s: size %lld in %s is negative", op,
                      (long long)want[i], fli_shape_text(n, want));
    if (want[i] == -1)
      open = i;
    else if (__builtin_mul_overflow(known, want[i], &known))
      return fli_fail(FL_ESIZE, "%s: shape %s is too large", op,
                      fli_shape_text(n, want));
  }
  if (open >= 0 && known > 0 && total % known == 0) {
    shape[open] = total / known;
    known *= shape[open];
  } else if (open >= 0)
    return fli_fail(FL_ESHAPE,
                    "%s: %lld elements of shape %s cannot be "
                    "divided into %s",
                    op, (long long)total, fli_shape_text(x->ndim, x->shape),
                    fli_shape_text(n, want));
  if (known != total)
    return fli_fail(FL_ESHAPE, "%s: shape %s has %lld elements, %s has %lld",
                    op, fli_shape_text(x->ndim, x->shape), (long long)total,
                    fli_shape_text(n, want), (long long)known);
  return FL_OK;
}

/* Strides of x seen in another shape; false if it needs a copy. Walks both
 * shapes from the end over runs of x's dims that lie contiguously. */
static bool view_strides(const fl_meta *x, const int64_t *xs, int n,
                         const int64_t *shape, int64_t *strides) {
  if (fl_numel(x->ndim, x->shape) == 0 || x->ndim == 0) {
    int64_t s = 1;
    for (int i = n - 1; i >= 0; i--) {
      strides[i] = s;
      s *= shape[i] > 1 ? shape[i] : 1;
    }
    return true;
  }
  int to = n - 1;
  int64_t run = xs[x->ndim - 1], have = 1, used = 1;
  for (int i = x->ndim - 1; i >= 0; i--) {
    have *= x->shape[i];
    bool ends = i == 0 || (x->shape[i - 1] != 1 && xs[i - 1] != have * run);
    if (!ends)
      continue;
    for (; to >= 0 && (used < have || shape[to] == 1); to--) {
      strides[to] = used * run;
      used *= shape[to];
    }
    if (used != have)
      return false;
    if (i > 0) {
      run = xs[i - 1];
      have = used = 1;
    }
  }
  return to == -1;
}

fl_status fli_view_view(fli_viewing *v) {
  int n;
  const int64_t *want = fl_attr_list(v->attrs, FL_ATTR_view_shape, &n);
  FLI_TRY(fill_shape("view", v->x, n, want, v->out.shape));
  v->out.ndim = n;
  if (!view_strides(v->x, v->x_stride, n, v->out.shape, v->stride))
    return fli_fail(FL_ESHAPE,
                    "view: a tensor of shape %s with strides %s cannot be seen "
                    "as %s without a copy: use reshape",
                    fli_shape_text(v->x->ndim, v->x->shape),
                    fli_shape_text(v->x->ndim, v->x_stride),
                    fli_shape_text(n, want));
  return FL_OK;
}

static fl_value reshaped(fli_composing *g, fl_value x, int n,
                         const int64_t *want) {
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  fl_tensor *t = x.tensor;
  if (!t)
    return fli_env_fail(&g->e, FL_EARG, "%s: the input must be a tensor",
                        g->op->info.name);
  fl_status s = fill_shape(g->op->info.name, &t->meta, n, want, shape);
  if (s) {
    g->e.status = s;
    return fli_none();
  }
  if (!view_strides(&t->meta, t->stride, n, shape, strides))
    x = RUN(contiguous, x);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_view);
  fli_set_list(&g->e, &a, FL_ATTR_view_shape, n, shape);
  return RUN_A(view, &a, x);
}

void fli_compose_reshape(fli_composing *g) {
  int n;
  const int64_t *want = fl_attr_list(g->attrs, FL_ATTR_reshape_shape, &n);
  g->out[0] = reshaped(g, g->in[0], n, want);
}

void fli_compose_flatten(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int first = (int)g->attrs->v[FL_ATTR_flatten_first].i,
      last = (int)g->attrs->v[FL_ATTR_flatten_last].i;
  int64_t shape[FL_MAX_DIMS], size = 1;
  int n = 0;
  if (last < first) {
    fli_env_fail(&g->e, FL_EARG, "flatten: first comes after last");
    return;
  }
  for (int i = 0; i < first; i++)
    shape[n++] = m->shape[i];
  for (int i = first; i <= last && i < m->ndim; i++)
    size *= m->shape[i];
  shape[n++] = size;
  for (int i = last + 1; i < m->ndim; i++)
    shape[n++] = m->shape[i];
  g->out[0] = reshaped(g, g->in[0], n, shape);
}

void fli_compose_contiguous(fli_composing *g) {
  fl_tensor *t = g->in[0].tensor;
  if (t && t->contiguous) {
    g->out[0] = g->in[0];
    return;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_copy);
  a.v[FL_ATTR_copy_layout].i = FLI_LAYOUT_CONTIGUOUS;
  g->out[0] = RUN_A(copy, &a, g->in[0]);
}

/* --- moving and dropping dims --- */

fl_status fli_view_permute(fli_viewing *v) {
  int n;
  const int64_t *dims = fl_attr_list(v->attrs, FL_ATTR_permute_dims, &n);
  if (n != v->x->ndim)
    return fli_fail(FL_EARG, "permute: %d dims named for a tensor of %d", n,
                    v->x->ndim);
  for (int i = 0; i < n; i++)
    FLI_TRY(set_dim(v, v->x->shape[dims[i]], v->x_stride[dims[i]]));
  return FL_OK;
}

fl_status fli_view_transpose(fli_viewing *v) {
  int64_t a = v->attrs->v[FL_ATTR_transpose_dim0].i,
          b = v->attrs->v[FL_ATTR_transpose_dim1].i;
  keep_dims(v);
  if (v->x->ndim == 0)
    return FL_OK;
  v->out.shape[a] = v->x->shape[b];
  v->out.shape[b] = v->x->shape[a];
  v->stride[a] = v->x_stride[b];
  v->stride[b] = v->x_stride[a];
  return FL_OK;
}

fl_status fli_view_expand(fli_viewing *v) {
  int n;
  const int64_t *want = fl_attr_list(v->attrs, FL_ATTR_expand_shape, &n);
  int skip = n - v->x->ndim;
  bool fits = skip >= 0;
  for (int i = 0; i < n && fits; i++) {
    int64_t have = i < skip ? 1 : v->x->shape[i - skip];
    int64_t size = want[i] == -1 && i >= skip ? have : want[i];
    fits = size >= 0 && (have == 1 || have == size);
    if (fits)
      FLI_TRY(set_dim(v, size,
                      have == size && i >= skip ? v->x_stride[i - skip] : 0));
  }
  return fits ? FL_OK
              : fli_fail(FL_ESHAPE,
                         "expand: shape %s does not expand to %s: only sizes "
                         "of 1 can, and new dims come first",
                         fli_shape_text(v->x->ndim, v->x->shape),
                         fli_shape_text(n, want));
}

fl_status fli_view_squeeze(fli_viewing *v) {
  int n;
  const int64_t *dims = fl_attr_list(v->attrs, FL_ATTR_squeeze_dims, &n);
  for (int i = 0; i < v->x->ndim; i++) {
    bool named = n == 0;
    for (int j = 0; j < n; j++)
      named = named || dims[j] == i;
    if (!named || v->x->shape[i] != 1)
      FLI_TRY(set_dim(v, v->x->shape[i], v->x_stride[i]));
  }
  return FL_OK;
}

fl_status fli_view_unsqueeze(fli_viewing *v) {
  int64_t d = v->attrs->v[FL_ATTR_unsqueeze_dim].i, n = v->x->ndim;
  int64_t at = d < 0 ? d + n + 1 : d;
  if (at < 0 || at > n)
    return fli_fail(FL_EARG,
                    "unsqueeze: there is no dim %lld in a result of %lld dims",
                    (long long)(d < 0 ? d : d + v->base), (long long)(n + 1));
  for (int i = 0; i <= n; i++) {
    if (i == at)
      FLI_TRY(set_dim(v, 1, i < n ? v->x_stride[i] * v->x->shape[i] : 1));
    if (i < n)
      FLI_TRY(set_dim(v, v->x->shape[i], v->x_stride[i]));
  }
  return FL_OK;
}

/* --- parts --- */

static fl_status view_position(const fli_viewing *v, int64_t *i, int64_t size) {
  int64_t at = *i < 0 ? *i + size : *i;
  if (at < 0 || at >= size)
    return fli_fail(FL_EINDEX, "%s: position %lld is out of range %d..%lld",
                    v->op->info.name, (long long)(*i < 0 ? *i : *i + v->base),
                    v->base, (long long)(size - 1 + v->base));
  *i = at;
  return FL_OK;
}

fl_status fli_view_narrow(fli_viewing *v) {
  int64_t dim = v->attrs->v[FL_ATTR_narrow_dim].i,
          start = v->attrs->v[FL_ATTR_narrow_start].i,
          length = v->attrs->v[FL_ATTR_narrow_length].i,
          step = v->attrs->v[FL_ATTR_narrow_step].i;
  if (v->x->ndim == 0)
    return fli_fail(FL_ESHAPE, "narrow: a 0-d tensor has no dims");
  int64_t size = v->x->shape[dim];
  if (length == 0 && start == size)
    start = 0;
  else if (length != 0 || size != 0)
    FLI_TRY(view_position(v, &start, size ? size : 1));
  if (step == 0 || step == INT64_MIN || length < 0)
    return fli_fail(FL_EINDEX,
                    "narrow: a length of %lld and a step of %lld: a length "
                    "cannot be negative, a step not 0",
                    (long long)length, (long long)step);
  int64_t most = step > 0 ? (size - 1 - start) / step : start / -step;
  if (length > 0 && (start >= size || length - 1 > most))
    return fli_fail(FL_EINDEX,
                    "narrow: %lld elements from position %lld with step %lld "
                    "do not lie within size %lld",
                    (long long)length, (long long)(start + v->base),
                    (long long)step, (long long)size);
  keep_dims(v);
  v->out.shape[dim] = length;
  v->stride[dim] *= length > 1 ? step : 1;
  v->offset += start * v->x_stride[dim];
  return FL_OK;
}

fl_status fli_view_select(fli_viewing *v) {
  int64_t dim = v->attrs->v[FL_ATTR_select_dim].i,
          i = v->attrs->v[FL_ATTR_select_index].i;
  if (v->x->ndim == 0)
    return fli_fail(FL_ESHAPE, "select: a 0-d tensor has no dims");
  FLI_TRY(view_position(v, &i, v->x->shape[dim]));
  for (int k = 0; k < v->x->ndim; k++)
    if (k != dim)
      FLI_TRY(set_dim(v, v->x->shape[k], v->x_stride[k]));
  v->offset += i * v->x_stride[dim];
  return FL_OK;
}

fl_status fli_view_diagonal(fli_viewing *v) {
  int64_t off = v->attrs->v[FL_ATTR_diagonal_offset].i,
          a = v->attrs->v[FL_ATTR_diagonal_dim1].i,
          b = v->attrs->v[FL_ATTR_diagonal_dim2].i;
  if (v->x->ndim < 2 || a == b)
    return fli_fail(FL_EARG,
                    "diagonal: needs two different dims of a tensor "
                    "of shape %s",
                    fli_shape_text(v->x->ndim, v->x->shape));
  int64_t rows = v->x->shape[a] + (off < 0 ? off : 0),
          cols = v->x->shape[b] - (off > 0 ? off : 0);
  int64_t size = rows < cols ? rows : cols;
  for (int k = 0; k < v->x->ndim; k++)
    if (k != a && k != b)
      FLI_TRY(set_dim(v, v->x->shape[k], v->x_stride[k]));
  FLI_TRY(set_dim(v, size > 0 ? size : 0, v->x_stride[a] + v->x_stride[b]));
  if (size > 0)
    v->offset += off < 0 ? -off * v->x_stride[a] : off * v->x_stride[b];
  return FL_OK;
}

fl_status fli_view_unfold(fli_viewing *v) {
  int64_t dim = v->attrs->v[FL_ATTR_unfold_dim].i,
          size = v->attrs->v[FL_ATTR_unfold_size].i,
          step = v->attrs->v[FL_ATTR_unfold_step].i;
  int64_t have = v->x->ndim ? v->x->shape[dim] : 1;
  if (size < 1 || size > have || step < 1)
    return fli_fail(FL_EARG,
                    "unfold: windows of %lld with step %lld do not "
                    "fit into size %lld",
                    (long long)size, (long long)step, (long long)have);
  keep_dims(v);
  int64_t stride = v->x->ndim ? v->x_stride[dim] : 1;
  if (v->x->ndim) {
    v->out.shape[dim] = (have - size) / step + 1;
    v->stride[dim] = stride * step;
  }
  return set_dim(v, size, stride);
}

fl_status fli_view_as_strided(fli_viewing *v) {
  int n, m;
  const int64_t *size = fl_attr_list(v->attrs, FL_ATTR_as_strided_size, &n);
  const int64_t *stride = fl_attr_list(v->attrs, FL_ATTR_as_strided_stride, &m);
  int64_t off = v->attrs->v[FL_ATTR_as_strided_offset].i == FL_ATTR_NONE
                    ? 0
                    : v->attrs->v[FL_ATTR_as_strided_offset].i;
  int64_t first = off, last = off, room = 1;
  if (n != m || n > FL_MAX_DIMS)
    return fli_fail(FL_EARG, "as_strided: %d sizes and %d strides", n, m);
  for (int i = 0; i < v->x->ndim; i++)
    room += (v->x->shape[i] - 1) * v->x_stride[i];
  if (fl_numel(v->x->ndim, v->x->shape) == 0)
    room = 0;
  bool empty = fl_numel(n, size) == 0;
  for (int i = 0; i < n; i++) {
    int64_t far;
    if (size[i] < 0 || __builtin_mul_overflow(size[i] - 1, stride[i], &far) ||
        __builtin_add_overflow(far < 0 ? first : last, far,
                               far < 0 ? &first : &last))
      return fli_fail(FL_EARG, "as_strided: sizes %s with strides %s overflow",
                      fli_shape_text(n, size), fli_shape_text(n, stride));
    FLI_TRY(set_dim(v, size[i], stride[i]));
  }
  if (!empty && (first < 0 || last >= room))
    return fli_fail(FL_EINDEX,
                    "as_strided: sizes %s with strides %s from %lld reach "
                    "outside a tensor of shape %s",
                    fli_shape_text(n, size), fli_shape_text(n, stride),
                    (long long)off, fli_shape_text(v->x->ndim, v->x->shape));
  v->offset += empty ? 0 : off;
  return FL_OK;
}

/* --- gradients --- */

void fli_grad_reshaped(fli_grad *g) {
  g->dx[0] = RESHAPE(g->dy[0], &g->in_meta[0]);
}

void fli_grad_permute(fli_grad *g) {
  int n;
  const int64_t *dims = fl_attr_list(g->attrs, FL_ATTR_permute_dims, &n);
  int64_t back[FL_MAX_DIMS];
  for (int i = 0; i < n; i++)
    back[dims[i]] = i;
  g->dx[0] = fli_v_permute(&g->e, g->dy[0], back);
}

void fli_grad_transpose(fli_grad *g) {
  g->dx[0] = TRANSPOSE(g->dy[0], (int)g->attrs->v[FL_ATTR_transpose_dim0].i,
                       (int)g->attrs->v[FL_ATTR_transpose_dim1].i);
}

/* The engine sums dy over the expanded dims. */
void fli_grad_expand(fli_grad *g) {
  g->dx[0] = g->dy[0];
}

/* The gradient of a part: the same view of a contiguous tensor gives the place
 * of dy. */
void fli_grad_strided(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  int64_t strides[FL_MAX_DIMS], n = 1;
  for (int i = x->ndim - 1; i >= 0; i--) {
    strides[i] = n;
    n *= x->shape[i];
  }
  fli_viewing v = {.op = g->op, .attrs = g->attrs, .x = x, .x_stride = strides};
  fl_status s = g->op->view(&v);
  if (s) {
    g->e.status = s;
    return;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided_backward);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_shape, x->ndim, x->shape);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_size, v.out.ndim,
               v.out.shape);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_stride, v.out.ndim,
               v.stride);
  a.v[FL_ATTR_as_strided_backward_offset].i = v.offset;
  g->dx[0] = RUN_A(as_strided_backward, &a, g->dy[0]);
}
