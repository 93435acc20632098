/* Launches of the kernels that rearrange elements or make them from attributes.
 * cat is copies into slices; copy, assign and fill are in map.c. */
#include "cuda.h"
#include "shape.h"

#include "../../runtime/math/math.h"

#define BLOCK SHAPE_THREADS

static flc_grid grid_of(int64_t threads) {
  int64_t blocks = fl_ceil_div(threads, BLOCK), most = 1 << 30;
  return (flc_grid){.x = (unsigned)(blocks < most ? blocks : most),
                    .block = BLOCK};
}

static void *shape_at(const fl_view *v, int64_t offset) {
  return (char *)v->data + offset * flc_size(v);
}

/* --- remap: flip, roll, repeat, pad --- */

static bool shape_whole(const remap_args *a, int d) {
  return a->before[d] == 0 && a->big[d] == a->small[d];
}

static void shape_join(remap_args *a) {
  int n = 0;
  for (int d = 1; d < a->ndim; d++) {
    if (shape_whole(a, n) && shape_whole(a, d) &&
        a->stride[d] == a->big[n] * a->stride[n]) {
      a->big[n] *= a->big[d];
      a->small[n] = a->big[n];
      continue;
    }
    n++;
    a->big[n] = a->big[d];
    a->small[n] = a->small[d];
    a->before[n] = a->before[d];
    a->stride[n] = a->stride[d];
  }
  a->ndim = n + 1;
}

/* Pairs of elements become one as long as they stay together; returns the size
 * reached. */
static int shape_widen(remap_args *a, int size) {
  for (; size < 16; size *= 2) {
    bool even = shape_whole(a, 0) && a->stride[0] == 1 && a->big[0] % 2 == 0 &&
                flc_aligned(a->x, 2 * (size_t)size);
    for (int d = 1; d < a->ndim && even; d++)
      even = a->stride[d] % 2 == 0;
    if (!even)
      break;
    for (int d = 1; d < a->ndim; d++)
      a->stride[d] /= 2;
    a->big[0] /= 2;
    a->small[0] /= 2;
    a->n /= 2;
  }
  return size;
}

/* Elements of a row that a thread writes at once. */
static int per_thread(int size, int64_t row) {
  int v = 16 / size;
  while (row % v)
    v /= 2;
  return v;
}

/* Dims of `a` are those of y, from the last; at least one. */
static fl_status remap(const fl_launch *l, remap_args *a) {
  const fl_view *y = &l->out[0];
  a->y = y->data;
  a->n = fl_view_numel(y);
  if (a->n == 0)
    return FL_OK;
  if (!a->x && fl_view_numel(&l->in[0]) > 0)
    return FL_ENOMEM;
  if (a->ndim == 0) {
    a->ndim = 1;
    a->big[0] = a->small[0] = 1;
  }
  shape_join(a);
  int size = shape_widen(a, flc_size(y)), v = per_thread(size, a->big[0]);
  for (int d = 0; d < a->ndim; d++)
    a->by[d] = flc_divisor_of(a->big[d]);
  flc_spec spec = FLC_SPEC("shape", "remap", size, v);
  return FLC_RUN(l, spec, grid_of(a->n / v), *a);
}

/* x where it is, dim by dim, with y's sizes. */
static remap_args shape_plain(const fl_launch *l, int mode) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  remap_args a = {.x = x->data, .ndim = y->ndim, .mode = mode};
  if (flc_is_number(x))
    a.x = flc_input(l, x, x->dtype);
  for (int i = 0; i < y->ndim; i++) {
    int d = x->ndim - 1 - i;
    a.big[i] = y->shape[y->ndim - 1 - i];
    a.small[i] = d < 0 ? 1 : x->shape[d];
    a.stride[i] = d < 0 ? 0 : x->stride[d];
  }
  return a;
}

FLC_KERNEL(flip) {
  const fl_view *x = &l->in[0];
  remap_args a = shape_plain(l, SHAPE_CONSTANT);
  int n;
  const int64_t *dims = fl_attr_list(l->attrs, FL_ATTR_flip_dims, &n);
  int64_t start = 0;
  bool turned[FL_MAX_DIMS] = {false};
  for (int i = 0; i < n && x->ndim > 0; i++)
    turned[dims[i]] = true;
  for (int d = 0; d < x->ndim; d++)
    if (turned[d]) {
      start += (x->shape[d] - 1) * x->stride[d];
      a.stride[x->ndim - 1 - d] = -x->stride[d];
    }
  if (start)
    a.x = shape_at(x, start);
  return remap(l, &a);
}

FLC_KERNEL(roll) {
  const fl_view *x = &l->in[0];
  int n, nd;
  const int64_t *shifts = fl_attr_list(l->attrs, FL_ATTR_roll_shifts, &n);
  const int64_t *dims = fl_attr_list(l->attrs, FL_ATTR_roll_dims, &nd);
  int64_t numel = fl_view_numel(x);
  remap_args a = shape_plain(l, SHAPE_CIRCULAR);
  if (numel == 0)
    return FL_OK;
  if (nd == 0 || x->ndim == 0) { /* in row-major order, whatever the shape */
    a.x = flc_input(l, x, x->dtype);
    a.ndim = 1;
    a.big[0] = a.small[0] = numel;
    a.stride[0] = 1;
    a.before[0] = fl_remainder_i64(n ? shifts[0] : 0, numel);
    return a.x ? remap(l, &a) : FL_ENOMEM;
  }
  for (int i = 0; i < n; i++) {
    int64_t size = x->shape[dims[i]];
    int64_t *by = &a.before[x->ndim - 1 - dims[i]];
    *by = (*by + fl_remainder_i64(shifts[i], size)) % size;
  }
  return remap(l, &a);
}

FLC_KERNEL(repeat) {
  remap_args a = shape_plain(l, SHAPE_CIRCULAR);
  return remap(l, &a);
}

uint64_t flc_element(fl_dtype d, double v) {
  size_t size = fl_dtype_size(d);
  int64_t i = fl_to_int(v);
  uint64_t bits = 0;
  float f = (float)v;
  if (d == FL_F64)
    memcpy(&bits, &v, sizeof v);
  else if (d == FL_F32)
    memcpy(&bits, &f, sizeof f);
  else if (d == FL_F16 || d == FL_BF16)
    bits = d == FL_F16 ? fl_to_f16(f) : fl_to_bf16(f);
  else if (d == FL_BOOL)
    bits = v != 0;
  else if (size == 8)
    bits = (uint64_t)i;
  else {
    int64_t most = d == FL_U8 ? 255 : ((int64_t)1 << (8 * size - 1)) - 1;
    i = fl_clamp_i64(i, d == FL_U8 ? 0 : -most - 1, most);
    bits = (uint64_t)i & (((uint64_t)1 << (8 * size)) - 1);
  }
  return bits;
}

FLC_KERNEL(pad) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int n;
  const int64_t *list = fl_attr_list(l->attrs, FL_ATTR_pad_pad, &n);
  if (x->ndim == 0)
    return flc_move(l, y, x);
  remap_args a = shape_plain(l, (int)l->attrs->v[FL_ATTR_pad_mode].i);
  for (int i = 0; i < x->ndim && 2 * i < n; i++)
    a.before[i] = list[2 * i];
  uint64_t bits = flc_element(x->dtype, l->attrs->v[FL_ATTR_pad_value].f);
  int64_t shape_whole;
  if (x->dtype == FL_I64 && fl_attr_whole(l->attrs, FL_ATTR_pad_value,
                                          FL_WHOLE_pad_value, &shape_whole))
    bits = (uint64_t)shape_whole;
  for (int size = 8 * flc_size(x); size < 64; size *= 2)
    bits |= bits << size;
  a.value[0] = a.value[1] = bits;
  return remap(l, &a);
}

/* --- gradients --- */

static fl_status shape_clear(const fl_launch *l, const fl_view *y) {
  return flc_zero(l, y->data,
                  (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype));
}

/* Neighbouring dims without padding as one. */
static int join_unpadded(unpad_args *a, int ndim) {
  int n = 0;
  for (int d = 1; d < ndim; d++) {
    if (a->before[n] == 0 && a->big[n] == a->small[n] && a->before[d] == 0 &&
        a->big[d] == a->small[d]) {
      a->big[n] *= a->big[d];
      a->small[n] = a->big[n];
      continue;
    }
    n++;
    a->big[n] = a->big[d];
    a->small[n] = a->small[d];
    a->before[n] = a->before[d];
  }
  return n + 1;
}

FLC_KERNEL(pad_backward) {
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  int n;
  const int64_t *list = fl_attr_list(l->attrs, FL_ATTR_pad_backward_pad, &n);
  if (dx->ndim == 0)
    return flc_move(l, dx, dy);
  if (fl_view_numel(dx) == 0)
    return FL_OK;
  if (fl_view_numel(dy) == 0)
    return shape_clear(l, dx);
  unpad_args a = {.dy = flc_input(l, dy, dx->dtype),
                  .dx = dx->data,
                  .n = fl_view_numel(dx),
                  .mode = (int)l->attrs->v[FL_ATTR_pad_backward_mode].i};
  if (!a.dy)
    return FL_ENOMEM;
  for (int i = 0; i < dx->ndim; i++) {
    a.big[i] = dy->shape[dx->ndim - 1 - i];
    a.small[i] = dx->shape[dx->ndim - 1 - i];
    a.before[i] = 2 * i < n ? list[2 * i] : 0;
  }
  int ndim = join_unpadded(&a, dx->ndim);
  flc_spec spec = FLC_SPEC("shape", "unpad", dx->dtype, ndim);
  return FLC_RUN(l, spec, grid_of(a.n), a);
}

/* Adds a dim, keeping the smallest stride first. Negative strides turn dy
 * around. */
static void add_dim(unstride_args *a, int *n, int64_t size, int64_t stride,
                    int64_t from, size_t bytes) {
  if (size == 1)
    return;
  if (stride < 0) {
    a->offset += (size - 1) * stride;
    a->dy = (const char *)a->dy + (size - 1) * from * (int64_t)bytes;
    stride = -stride;
    from = -from;
  }
  int k = (*n)++;
  for (; k > 0 && a->stride[k - 1] > stride; k--) {
    a->size[k] = a->size[k - 1];
    a->stride[k] = a->stride[k - 1];
    a->from[k] = a->from[k - 1];
  }
  a->size[k] = size;
  a->stride[k] = stride;
  a->from[k] = from;
}

/* Dims that are one run in both as one; then how far they reach. */
static int join_strided(unstride_args *a, int ndim) {
  int n = 0;
  for (int d = 1; d < ndim; d++) {
    if (a->stride[d] == a->size[n] * a->stride[n] &&
        a->from[d] == a->size[n] * a->from[n]) {
      a->size[n] *= a->size[d];
      continue;
    }
    n++;
    a->size[n] = a->size[d];
    a->stride[n] = a->stride[d];
    a->from[n] = a->from[d];
  }
  ndim = ndim ? n + 1 : 0;
  for (int d = 0; d < ndim; d++)
    a->reach[d] = (d ? a->reach[d - 1] : 0) + (a->size[d] - 1) * a->stride[d];
  return ndim;
}

FLC_KERNEL(as_strided_backward) {
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  int n, ndim = 0;
  const int64_t *size =
      fl_attr_list(l->attrs, FL_ATTR_as_strided_backward_size, &n);
  const int64_t *stride =
      fl_attr_list(l->attrs, FL_ATTR_as_strided_backward_stride, &n);
  if (fl_view_numel(dx) == 0)
    return FL_OK;
  if (fl_view_numel(dy) == 0)
    return shape_clear(l, dx);
  unstride_args a = {.dy = flc_input(l, dy, dx->dtype),
                     .dx = dx->data,
                     .n = fl_view_numel(dx),
                     .offset =
                         l->attrs->v[FL_ATTR_as_strided_backward_offset].i};
  if (!a.dy)
    return FL_ENOMEM;
  int64_t from = 1;
  for (int d = n - 1; d >= 0; d--) {
    add_dim(&a, &ndim, size[d], stride[d], from, fl_dtype_size(dx->dtype));
    from *= size[d];
  }
  ndim = join_strided(&a, ndim);
  flc_spec spec = FLC_SPEC("shape", "unstride", dx->dtype, ndim);
  return FLC_RUN(l, spec, grid_of(a.n), a);
}

/* --- cat, triangles --- */

/* x, contiguous and of y's dtype, as rows of `row` elements of y's longer rows
 * from `to` on. */
static fl_status lay(const fl_launch *l, const fl_view *x, void *to,
                     int64_t row, int64_t pitch) {
  int size = flc_size(x);
  while (size < 16 && row % 2 == 0 && pitch % 2 == 0 &&
         flc_aligned(x->data, 2 * (size_t)size) &&
         flc_aligned(to, 2 * (size_t)size)) {
    row /= 2;
    pitch /= 2;
    size *= 2;
  }
  lay_args a = {.from = x->data,
                .to = to,
                .n = fl_view_numel(x) * flc_size(x) / size,
                .pitch = pitch,
                .row = flc_divisor_of(row)};
  flc_spec spec = FLC_SPEC("shape", "lay", size);
  return FLC_RUN(l, spec, grid_of(fl_ceil_div(a.n, SHAPE_UNITS)), a);
}

FLC_KERNEL(cat) {
  int dim = (int)l->attrs->v[FL_ATTR_cat_dim].i, order[FL_MAX_DIMS];
  fl_view whole = l->out[0], *y = &whole;
  bool turned =
      !fl_contiguous(y) && fl_order_dims(y->ndim, y->shape, y->stride, order);
  if (turned) {
    dim = fl_ordered_dim(dim, y->ndim, order);
    fl_reorder_dims(y, y->ndim, order);
  }
  fl_view slice = *y, part, *x = &part;
  int64_t start = 0;
  int64_t inner = fl_numel(y->ndim - dim - 1, y->shape + dim + 1);
  for (int i = 0; i < l->n_in; i++) {
    fl_view_copy(x, &l->in[i]);
    if (x->ndim != y->ndim || fl_view_numel(x) == 0)
      continue; /* nothing: an empty (0) may stand among others */
    if (turned)
      fl_reorder_dims(x, y->ndim, order);
    int64_t n = x->shape[dim];
    slice.data = shape_at(y, start * inner);
    slice.shape[dim] = n;
    bool shape_plain = x->dtype == y->dtype && fl_contiguous(x);
    fl_status s = shape_plain
                      ? lay(l, x, slice.data, n * inner, y->shape[dim] * inner)
                      : flc_move(l, &slice, x);
    if (s != FL_OK)
      return s;
    start += n;
  }
  return FL_OK;
}

_Static_assert(FL_ATTR_tril_diagonal == FL_ATTR_triu_diagonal,
               "one function for both rows");

static fl_status shape_triangle(const fl_launch *l, bool upper) {
  const fl_view *x = &l->in[0];
  int64_t big = (int64_t)1 << 62; /* sums stay in range */
  triangle_args a = {
      .y = l->out[0].data, .n = fl_view_numel(x), .upper = upper};
  if (a.n == 0)
    return FL_OK;
  a.rows = flc_divisor_of(x->shape[x->ndim - 2]);
  a.columns = flc_divisor_of(x->shape[x->ndim - 1]);
  a.diagonal = fl_clamp_i64(l->attrs->v[FL_ATTR_tril_diagonal].i, -big, big);
  a.x = flc_input(l, x, x->dtype);
  int v = per_thread(flc_size(x), a.columns.by);
  if (!flc_aligned(a.x, 16))
    v = 1;
  flc_spec spec = FLC_SPEC("shape", "triangle", flc_size(x), v);
  return a.x ? FLC_RUN(l, spec, grid_of(a.n / v), a) : FL_ENOMEM;
}

FLC_KERNEL(tril) {
  return shape_triangle(l, false);
}

FLC_KERNEL(triu) {
  return shape_triangle(l, true);
}

/* --- made from attributes --- */

static fl_status shape_sequence(const fl_launch *l, sequence_args *a) {
  const fl_view *y = &l->out[0];
  flc_spec spec = FLC_SPEC("shape", "sequence", y->dtype,
                           (int16_t)(a->kind == SHAPE_STEPS));
  a->y = y->data;
  a->n = fl_view_numel(y);
  return a->n ? FLC_RUN(l, spec, grid_of(a->n), *a) : FL_OK;
}

FLC_KERNEL(arange) {
  const fl_attr *t = l->attrs->v;
  sequence_args a = {.start = t[FL_ATTR_arange_start].f,
                     .step = t[FL_ATTR_arange_step].f,
                     .kind = SHAPE_STEPS};
  if (fl_dtype_kind(l->out[0].dtype) != FL_KIND_FLOAT &&
      fl_attr_whole(l->attrs, FL_ATTR_arange_start, FL_WHOLE_arange_start,
                    &a.first) &&
      fl_attr_whole(l->attrs, FL_ATTR_arange_step, FL_WHOLE_arange_step, &a.by))
    a.kind = SHAPE_WHOLE; /* exact beyond 2^53 */
  return shape_sequence(l, &a);
}

FLC_KERNEL(linspace) {
  const fl_attr *t = l->attrs->v;
  int64_t n = l->out[0].shape[0];
  sequence_args a = {.start = t[FL_ATTR_linspace_start].f,
                     .stop = t[FL_ATTR_linspace_stop].f,
                     .kind = SHAPE_STEPS};
  if (n > 1) {
    a.step = (a.stop - a.start) / (double)(n - 1);
    a.kind = SHAPE_ENDS; /* so that the last one is `stop` itself */
  }
  if (n <= INT32_MAX && fl_dtype_kind(l->out[0].dtype) != FL_KIND_FLOAT &&
      fl_attr_whole(l->attrs, FL_ATTR_linspace_start, FL_WHOLE_linspace_start,
                    &a.first) &&
      fl_attr_whole(l->attrs, FL_ATTR_linspace_stop, FL_WHOLE_linspace_stop,
                    &a.by))
    a.kind = n > 1 ? SHAPE_EVEN : SHAPE_WHOLE;
  return shape_sequence(l, &a);
}

FLC_KERNEL(eye) {
  sequence_args a = {.by = l->out[0].shape[1], .kind = SHAPE_DIAGONAL};
  return shape_sequence(l, &a);
}

static void shape_visit(flc_visitor *v, flc_spec s, bool quick) {
  v->spec(v, &s, quick);
}

void flc_visit_shape(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_real)
  for (int16_t steps = 0; steps < 2; steps++)
    shape_visit(v, FLC_SPEC("shape", "sequence", d, steps), d == FL_F32);
  for (int size = 1; size <= 16; size *= 2) {
    shape_visit(v, FLC_SPEC("shape", "lay", size), size == 16);
    for (int n = 1; n <= 16 / size; n *= 2) {
      shape_visit(v, FLC_SPEC("shape", "remap", size, n), size == 4 && n == 4);
      if (size <= 8)
        shape_visit(v, FLC_SPEC("shape", "triangle", size, n),
                    size == 4 && n == 4);
    }
  }
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int n = 0; n <= FL_MAX_DIMS; n++) {
    if (n > 0 && n <= 4)
      shape_visit(v, FLC_SPEC("shape", "unpad", d, n), d == FL_F32 && n == 3);
    shape_visit(v, FLC_SPEC("shape", "unstride", d, n), d == FL_F32 && n == 3);
  }
}
