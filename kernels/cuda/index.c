/* Launches of the kernels that read or write at positions. Masks are in
 * mask.c. */
#include "order.h"
#include "index.h"

#include <string.h>

#define LANE   16         /* positions for a place that one thread adds up */
#define SORTED 4096       /* floats to add that are put in order first */
#define LINE   (48 << 10) /* bytes of a line that is added to on chip */

static flc_grid grid_of(int64_t threads) {
  int64_t blocks = fl_ceil_div(threads, INDEX_THREADS), most = 1 << 30;
  return (flc_grid){.x = (unsigned)(blocks < most ? blocks : most),
                    .block = INDEX_THREADS};
}

/* A number counts as a vector of one element. */
static fl_view index_vector(const fl_view *v) {
  fl_view x;
  fl_view_copy(&x, v);
  if (x.ndim == 0) {
    x.ndim = 1;
    x.shape[0] = 1;
    x.stride[0] = 0;
  }
  return x;
}

/* The ids in v, which never count from the end; `at` is NULL when that failed.
 */
static positions ids_of(const fl_launch *l, const fl_view *v, int64_t bound) {
  fl_dtype d = v->dtype == FL_I32 ? FL_I32 : FL_I64;
  return (positions){.at = flc_input(l, v, d),
                     .narrow = d == FL_I32,
                     .fault = flc_fault_of(l),
                     .bound = bound};
}

/* The positions in v; negative ones count from the end. */
static positions positions_of(const fl_launch *l, const fl_view *v,
                              int64_t bound) {
  positions p = ids_of(l, v, bound);
  p.from_end = bound;
  return p;
}

static fl_status index_clear(const fl_launch *l, const fl_view *y) {
  return flc_zero(l, y->data,
                  (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype));
}

/* --- whole slices: index_select, embedding, index_copy --- */

/* The largest unit, in bytes, that slices of `inner` elements are whole in. */
static int unit_of(const void *a, const void *b, int64_t inner, int size) {
  for (; size < 16; size *= 2, inner /= 2)
    if (inner % 2 || !flc_aligned(a, 2 * (size_t)size) ||
        !flc_aligned(b, 2 * (size_t)size))
      break;
  return size;
}

static void set_inner(slices_args *a, int64_t inner) {
  a->inner = inner;
  a->by_inner = flc_divisor_of(inner);
  a->by_n = flc_divisor_of(a->n);
}

typedef positions (*read_index)(const fl_launch *l, const fl_view *v,
                                int64_t bound);

_Static_assert(FL_IN_index_select_x == FL_IN_embedding_weight &&
                   FL_IN_index_select_index == FL_IN_embedding_index,
               "one function for both rows");

static fl_status index_take(const fl_launch *l, int dim, read_index read) {
  fl_view x = index_vector(&l->in[FL_IN_index_select_x]);
  const fl_view *index = &l->in[FL_IN_index_select_index], *y = &l->out[0];
  slices_args a = {.to = y->data,
                   .outer = fl_numel(dim, x.shape),
                   .n = fl_view_numel(index),
                   .inner = fl_numel(x.ndim - dim - 1, x.shape + dim + 1)};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  a.index = read(l, index, x.shape[dim]);
  a.from = fl_view_numel(&x)
               ? flc_input(l, &l->in[FL_IN_index_select_x], x.dtype)
               : NULL;
  if (!a.index.at || (!a.from && fl_view_numel(&x) > 0))
    return FL_ENOMEM;
  int unit = unit_of(a.from, a.to, a.inner, flc_size(&x));
  set_inner(&a, a.inner * flc_size(&x) / unit);
  flc_spec spec = FLC_SPEC("index", "take", unit);
  flc_grid g = grid_of(fl_ceil_div(a.outer * a.n * a.inner, INDEX_UNITS));
  g.early = true;
  return FLC_RUN(l, spec, g, a);
}

FLC_KERNEL(index_select) {
  return index_take(l, (int)l->attrs->v[FL_ATTR_index_select_dim].i,
                    positions_of);
}

FLC_KERNEL(embedding) {
  return index_take(l, 0, ids_of);
}

/* Who writes each of `bound` positions: the last of the index. */
static fl_status claim(const fl_launch *l, const positions *index, int64_t n,
                       const uint64_t **last) {
  flc_spec spec = FLC_SPEC("index", "claim", 0);
  claim_args a = {.index = *index, .n = n};
  size_t bytes = (size_t)(index->bound + 1) * sizeof *a.last;
  *last = a.last = fl_scratch_get(l, bytes);
  if (!a.last)
    return FL_ENOMEM;
  fl_status s = flc_zero(l, a.last, bytes);
  return s == FL_OK ? FLC_RUN(l, spec, grid_of(n), a) : s;
}

/* Into y, which holds x already. */
static fl_status copy_slices(const fl_launch *l, const fl_view *y) {
  fl_view x = index_vector(y);
  const fl_view *src = &l->in[FL_IN_index_copy_src];
  int dim = (int)l->attrs->v[FL_ATTR_index_copy_dim].i;
  slices_args a = {.to = y->data,
                   .outer = fl_numel(dim, x.shape),
                   .n = fl_view_numel(&l->in[FL_IN_index_copy_index]),
                   .inner = fl_numel(x.ndim - dim - 1, x.shape + dim + 1),
                   .step = src->ndim > 0};
  fl_status s = FL_OK;
  if (a.outer * a.n * a.inner == 0)
    return s;
  a.index = positions_of(l, &l->in[FL_IN_index_copy_index], x.shape[dim]);
  a.from = flc_input(l, src, x.dtype);
  if (!a.index.at || !a.from)
    return FL_ENOMEM;
  if (a.n > 1)
    s = claim(l, &a.index, a.n, &a.last);
  int unit = flc_size(&x);
  if (a.step)
    unit = unit_of(a.from, a.to, a.inner, unit);
  set_inner(&a, a.inner * flc_size(&x) / unit);
  flc_spec spec = FLC_SPEC("index", "put", unit);
  flc_grid g = grid_of(a.outer * a.n * a.inner);
  g.early = true;
  return s == FL_OK ? FLC_RUN(l, spec, g, a) : s;
}

/* In place x is y, and need not be contiguous. */
FLC_KERNEL(index_copy) {
  const fl_view *x = &l->in[FL_IN_index_copy_x], *y = &l->out[0];
  fl_view to;
  fl_view_copy(&to, y);
  if (!fl_contiguous(y)) {
    int64_t step = 1;
    for (int i = to.ndim - 1; i >= 0; i--) {
      to.stride[i] = step;
      step *= to.shape[i];
    }
    to.data = fl_scratch_get(l, (size_t)step * fl_dtype_size(to.dtype));
    if (!to.data)
      return FL_ENOMEM;
  }
  fl_status s = to.data == x->data ? FL_OK : flc_move(l, &to, x);
  if (s == FL_OK)
    s = copy_slices(l, &to);
  return s == FL_OK && to.data != y->data ? flc_move(l, y, &to) : s;
}

/* --- sums of slices: index_add, embedding_backward --- */

static fl_dtype key_type(const sums_args *a) {
  return a->bound < INT32_MAX ? FL_I32 : FL_I64;
}

/* What sums are made in. */
static fl_dtype wide_of(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT ? flc_wide(d) : FL_I64;
}

/* Room for a key for each of n positions, and src as slices to add: dtypes
 * other than y's become the one that sums are made in. */
static fl_status take_slices(const fl_launch *l, sums_args *a,
                             const fl_view *src, void **keys) {
  fl_dtype y = l->out[0].dtype, wide = wide_of(y);
  fl_dtype from = src->dtype == y ? y : wide;
  a->wide = wide;
  a->from = from;
  a->tiles = fl_ceil_div(a->n, INDEX_RUN);
  a->by_columns = flc_divisor_of(a->outer * a->inner);
  a->by_inner = flc_divisor_of(a->inner);
  a->y = l->out[0].data;
  a->single = src->ndim == 0;
  a->src = flc_input(l, src, from);
  *keys = fl_scratch_get(l, (size_t)a->n * fl_dtype_size(key_type(a)));
  return a->src && *keys ? FL_OK : FL_ENOMEM;
}

/* Puts the keys in order and adds the slices to y in that order. */
static fl_status add_by_keys(const fl_launch *l, sums_args *a,
                             const void *keys) {
  fl_dtype k = key_type(a), y = l->out[0].dtype;
  flc_spec add = FLC_SPEC("index", "sums", y, a->from, k, a->how);
  flc_spec carry = FLC_SPEC("index", "carry", y, k, a->how);
  int64_t n = a->n, sums = a->tiles * a->outer * a->inner;
  flc_order o = {.dtype = k, .x = keys, .rows = 1, .n = n, .k = n};
  o.bytes = flc_order_bytes(a->bound + 1);
  a->keys = o.values = fl_scratch_get(l, (size_t)n * fl_dtype_size(k));
  a->order = o.indices = fl_scratch_get(l, (size_t)n * sizeof(int64_t));
  a->head = fl_scratch_get(l, (size_t)sums * fl_dtype_size((fl_dtype)a->wide));
  a->tail = fl_scratch_get(l, (size_t)sums * fl_dtype_size((fl_dtype)a->wide));
  if (!a->keys || !a->order || !a->head || !a->tail)
    return FL_ENOMEM;
  fl_status s = flc_order_rows(l, &o);
  if (s == FL_OK)
    s = FLC_RUN(l, add, grid_of(sums), *a);
  return s == FL_OK && a->tiles > 1 ? FLC_RUN(l, carry, grid_of(sums), *a) : s;
}

typedef fl_status (*keys_fn)(const fl_launch *l, void *keys, fl_dtype type,
                             void *context);

static fl_status join_at(const fl_launch *l, const fl_view *src, int64_t n,
                         int how, keys_fn index_places, void *context) {
  sums_args a = {.n = n, .outer = 1, .inner = 1, .how = how};
  void *keys;
  a.bound = fl_view_numel(&l->out[0]);
  fl_status s = take_slices(l, &a, src, &keys);
  if (s == FL_OK)
    s = index_places(l, keys, key_type(&a), context);
  return s == FL_OK ? add_by_keys(l, &a, keys) : s;
}

fl_status flc_sum_at(const fl_launch *l, const fl_view *src, int64_t n,
                     fl_status (*index_places)(const fl_launch *l, void *keys,
                                               fl_dtype type, void *context),
                     void *context) {
  return join_at(l, src, n, INDEX_SUM, index_places, context);
}

/* y has what the sums are added to. */
static fl_status add_slices(const fl_launch *l, sums_args *a,
                            const fl_view *index, read_index read,
                            const fl_view *src, int64_t skip) {
  flc_spec spec = FLC_SPEC("index", "keys", key_type(a));
  keys_args k = {.n = fl_view_numel(index), .skip = skip};
  a->n = k.n;
  if (a->outer * a->n * a->inner == 0)
    return FL_OK;
  fl_status s = take_slices(l, a, src, &k.keys);
  k.index = read(l, index, a->bound);
  if (s != FL_OK || !k.index.at)
    return FL_ENOMEM;
  s = FLC_RUN(l, spec, grid_of(k.n), k);
  return s == FL_OK ? add_by_keys(l, a, k.keys) : s;
}

FLC_KERNEL(index_add) {
  fl_view x = index_vector(&l->in[FL_IN_index_add_x]);
  int dim = (int)l->attrs->v[FL_ATTR_index_add_dim].i;
  sums_args a = {.outer = fl_numel(dim, x.shape),
                 .bound = x.shape[dim],
                 .inner = fl_numel(x.ndim - dim - 1, x.shape + dim + 1)};
  fl_status s = flc_move(l, &l->out[0], &l->in[FL_IN_index_add_x]);
  return s == FL_OK ? add_slices(l, &a, &l->in[FL_IN_index_add_index],
                                 positions_of, &l->in[FL_IN_index_add_src], -1)
                    : s;
}

fl_status flc_sum_rows(const fl_launch *l, const fl_view *index,
                       const fl_view *src, int64_t skip) {
  const fl_view *y = &l->out[0];
  sums_args a = {.outer = 1,
                 .bound = y->shape[0],
                 .inner = fl_numel(y->ndim - 1, y->shape + 1)};
  fl_status s = index_clear(l, y);
  return s == FL_OK ? add_slices(l, &a, index, ids_of, src, skip) : s;
}

/* dy (index..., width...) summed into y (rows, width...). */
FLC_KERNEL(embedding_backward) {
  int64_t padding = l->attrs->v[FL_ATTR_embedding_backward_padding].i;
  return flc_sum_rows(l, &l->in[FL_IN_embedding_backward_index],
                      &l->in[FL_IN_embedding_backward_dy],
                      padding == FL_ATTR_NONE ? -1 : padding);
}

/* --- single elements: gather, scatter, scatter_add --- */

static bool joins(const pick_args *a, int n, int64_t index, int64_t y,
                  int64_t src) {
  int64_t size = a->by[n].by;
  return index == size * a->index_stride[n] && y == size * a->y_stride[n] &&
         src == size * a->src_stride[n];
}

/* Dims of `index` with the strides of what is addressed and of src; dims that
 * are one run in all of them as one. Without `lanes` elements are single. */
static void index_plan(pick_args *a, const fl_view *index, int dim,
                       const int64_t *y, const int64_t *src, bool lanes) {
  int64_t contiguous[FL_MAX_DIMS];
  int n = -1;
  fl_row_major(index->ndim, index->shape, contiguous);
  a->along = y[dim];
  a->steps = lanes ? index->shape[dim] : 1;
  a->index_step = contiguous[dim];
  a->src_step = src[dim];
  a->n = fl_view_numel(index) / (lanes && a->steps ? a->steps : 1);
  for (int d = index->ndim - 1; d >= 0; d--) {
    int64_t along_y = d == dim ? 0 : y[d];
    if (index->shape[d] == 1 || (lanes && d == dim))
      continue;
    if (n >= 0 && joins(a, n, contiguous[d], along_y, src[d])) {
      a->by[n] = flc_divisor_of(a->by[n].by * index->shape[d]);
      continue;
    }
    n++;
    a->by[n] = flc_divisor_of(index->shape[d]);
    a->index_stride[n] = contiguous[d];
    a->y_stride[n] = along_y;
    a->src_stride[n] = src[d];
  }
  a->ndim = n + 1;
}

FLC_KERNEL(gather) {
  fl_view x = index_vector(&l->in[FL_IN_gather_x]),
          index = index_vector(&l->in[FL_IN_gather_index]);
  int dim = (int)l->attrs->v[FL_ATTR_gather_dim].i;
  int64_t none[FL_MAX_DIMS] = {0};
  pick_args a = {.src = x.data, .y = l->out[0].data};
  if (fl_view_numel(&index) == 0)
    return FL_OK;
  if (flc_is_number(&l->in[FL_IN_gather_x]))
    a.src = flc_input(l, &l->in[FL_IN_gather_x], x.dtype);
  a.index = positions_of(l, &l->in[FL_IN_gather_index], x.shape[dim]);
  if (!a.index.at || (!a.src && fl_view_numel(&x) > 0))
    return FL_ENOMEM;
  /* the addressed tensor is the source here: its places are y's */
  index_plan(&a, &index, dim, x.stride, none, false);
  flc_spec spec = FLC_SPEC("index", "gather", flc_size(&x));
  return FLC_RUN(l, spec, grid_of(fl_ceil_div(a.n, INDEX_UNITS)), a);
}

/* src as `type`, with strides; one number for all has none. */
static const void *source(const fl_launch *l, fl_dtype type, int64_t *stride) {
  const fl_view *src = &l->in[FL_IN_scatter_src];
  bool as_it_is = src->dtype == type && !flc_is_number(src);
  memset(stride, 0, FL_MAX_DIMS * sizeof *stride);
  if (src->ndim > 0 && as_it_is)
    memcpy(stride, src->stride, sizeof src->stride);
  else if (src->ndim > 0)
    fl_row_major(src->ndim, src->shape, stride);
  return as_it_is ? src->data : flc_input(l, src, type);
}

static fl_status scatter_last(const fl_launch *l, pick_args *a, int size) {
  int64_t n = fl_view_numel(&l->out[0]);
  int width = a->n < UINT32_MAX ? 4 : 8;
  a->last = fl_scratch_get(l, (size_t)(n * width));
  if (!a->last)
    return FL_ENOMEM;
  flc_spec contend = FLC_SPEC("index", "contend", width);
  flc_spec write = FLC_SPEC("index", "scatter", size, width);
  fl_status s = flc_zero(l, a->last, (size_t)(n * width));
  if (s == FL_OK)
    s = FLC_RUN(l, contend, grid_of(a->n), *a);
  return s == FL_OK ? FLC_RUN(l, write, grid_of(a->n), *a) : s;
}

FLC_KERNEL(scatter) {
  fl_view x = index_vector(&l->in[FL_IN_scatter_x]),
          index = index_vector(&l->in[FL_IN_scatter_index]);
  const fl_view *y = &l->out[0];
  int dim = (int)l->attrs->v[FL_ATTR_scatter_dim].i;
  int64_t to[FL_MAX_DIMS], from[FL_MAX_DIMS];
  pick_args a = {.y = y->data};
  fl_status s = flc_move(l, y, &l->in[FL_IN_scatter_x]);
  if (s != FL_OK || fl_view_numel(&index) == 0)
    return s;
  a.index = positions_of(l, &l->in[FL_IN_scatter_index], x.shape[dim]);
  a.src = source(l, x.dtype, from);
  if (!a.index.at || !a.src)
    return FL_ENOMEM;
  fl_row_major(x.ndim, x.shape, to);
  index_plan(&a, &index, dim, to, from, false);
  return scatter_last(l, &a, flc_size(&x));
}

/* The same for atomics. */
static fl_dtype sum_type(fl_dtype d) {
  return d == FL_I32 ? FL_I32 : wide_of(d);
}

/* Adds single elements to y, which has x already: few positions for each place
 * by one thread, others by atomics. */
static fl_status scatter_sums(const fl_launch *l, pick_args *a,
                              const fl_view *index, const fl_view *y,
                              bool lanes) {
  fl_view all = index_vector(y);
  int dim = (int)l->attrs->v[FL_ATTR_scatter_dim].i;
  int64_t to[FL_MAX_DIMS], from[FL_MAX_DIMS];
  a->src = source(l, y->dtype, from);
  if (!a->src)
    return FL_ENOMEM;
  a->y = y->data;
  fl_row_major(all.ndim, all.shape, to);
  int64_t bytes = all.shape[dim] * (int64_t)fl_dtype_size(y->dtype),
          each = index->shape[dim], blocks = fl_view_numel(index) / each;
  if (!lanes && to[dim] == 1 && bytes <= LINE && each >= all.shape[dim] / 4 &&
      blocks >= flc_chip_of(l)->processors && blocks <= INT32_MAX) {
    index_plan(a, index, dim, to, from, true);
    flc_spec lines = FLC_SPEC("index", "add_lines", y->dtype);
    flc_grid g = {
        .x = (unsigned)blocks, .block = 512, .shared = (unsigned)bytes};
    return FLC_RUN(l, lines, g, *a);
  }
  index_plan(a, index, dim, to, from, lanes);
  flc_spec spec = lanes ? FLC_SPEC("index", "add_lanes", y->dtype)
                        : FLC_SPEC("index", "add", y->dtype);
  int64_t threads = lanes ? a->n : fl_ceil_div(a->n, INDEX_UNITS);
  return FLC_RUN(l, spec, grid_of(threads), *a);
}

static fl_status index_places(const fl_launch *l, void *keys, fl_dtype type,
                              void *context) {
  pick_args *a = context;
  flc_spec spec = FLC_SPEC("index", "places", type);
  a->y = keys;
  return FLC_RUN(l, spec, grid_of(a->n), *a);
}

/* The same by putting the places in order: always the same sum. */
static fl_status scatter_sorted(const fl_launch *l, pick_args *a,
                                const fl_view *index, int how) {
  fl_view y = index_vector(&l->out[0]), src;
  int64_t to[FL_MAX_DIMS], none[FL_MAX_DIMS] = {0};
  fl_view_copy(&src, &l->in[FL_IN_scatter_src]);
  if (src.ndim > 0)
    memcpy(src.shape, index->shape, sizeof src.shape);
  fl_row_major(y.ndim, y.shape, to);
  index_plan(a, index, (int)l->attrs->v[FL_ATTR_scatter_dim].i, to, none,
             false);
  a->all = fl_view_numel(&y);
  return join_at(l, &src, a->n, how, index_places, a);
}

/* One position for each place needs no other dtype than y's. */
FLC_KERNEL(scatter_add) {
  fl_view x = index_vector(&l->in[FL_IN_scatter_add_x]),
          index = index_vector(&l->in[FL_IN_scatter_add_index]), y;
  const fl_view *out = &l->out[0];
  int64_t dim = l->attrs->v[FL_ATTR_scatter_add_dim].i, each = index.shape[dim];
  bool lanes = each <= LANE, whole = fl_dtype_kind(x.dtype) != FL_KIND_FLOAT;
  bool sorted = !lanes && !whole &&
                (fl_view_numel(&index) <= SORTED || flc_deterministic());
  pick_args a = {0};
  fl_view_copy(&y, out);
  if (each > 1 && !sorted)
    y.dtype = sum_type(x.dtype);
  if (y.dtype != out->dtype)
    y.data =
        fl_scratch_get(l, (size_t)fl_view_numel(out) * fl_dtype_size(y.dtype));
  if (fl_view_numel(out) == 0)
    return FL_OK;
  fl_status s =
      y.data ? flc_move(l, &y, &l->in[FL_IN_scatter_add_x]) : FL_ENOMEM;
  if (s != FL_OK || fl_view_numel(&index) == 0)
    return s;
  a.index = positions_of(l, &l->in[FL_IN_scatter_add_index], x.shape[dim]);
  if (!a.index.at)
    return FL_ENOMEM;
  if (sorted)
    return scatter_sorted(l, &a, &index, INDEX_SUM);
  s = scatter_sums(l, &a, &index, &y, lanes);
  return s == FL_OK && y.dtype != out->dtype ? flc_move(l, out, &y) : s;
}

/* Others than sums: always in order. */
static fl_status scatter_joined(const fl_launch *l, int how) {
  fl_view x = index_vector(&l->in[FL_IN_scatter_x]),
          index = index_vector(&l->in[FL_IN_scatter_index]);
  pick_args a = {0};
  fl_status s = flc_move(l, &l->out[0], &l->in[FL_IN_scatter_x]);
  if (s != FL_OK || fl_view_numel(&index) == 0)
    return s;
  a.index = positions_of(l, &l->in[FL_IN_scatter_index],
                         x.shape[l->attrs->v[FL_ATTR_scatter_dim].i]);
  return a.index.at ? scatter_sorted(l, &a, &index, how) : FL_ENOMEM;
}

FLC_KERNEL(scatter_prod) {
  return scatter_joined(l, INDEX_PROD);
}

FLC_KERNEL(scatter_amax) {
  return scatter_joined(l, INDEX_MAX);
}

FLC_KERNEL(scatter_amin) {
  return scatter_joined(l, INDEX_MIN);
}

/* --- one_hot --- */

FLC_KERNEL(one_hot) {
  const fl_view *y = &l->out[0];
  hot_args a = {.y = y->data, .n = fl_view_numel(&l->in[0])};
  if (a.n == 0)
    return FL_OK;
  a.index = ids_of(l, &l->in[0], l->attrs->v[FL_ATTR_one_hot_classes].i);
  if (!a.index.at)
    return FL_ENOMEM;
  fl_status s = index_clear(l, y);
  flc_spec spec = FLC_SPEC("index", "hot", y->dtype);
  return s == FL_OK ? FLC_RUN(l, spec, grid_of(a.n), a) : s;
}

static void index_visit(flc_visitor *v, flc_spec s, bool quick) {
  v->spec(v, &s, quick);
}

static void visit_masks(flc_visitor *v) {
  for (int size = 1; size <= 8; size *= 2) {
    index_visit(v, FLC_SPEC("mask", "count", size), size == 1);
    index_visit(v, FLC_SPEC("mask", "compact", size), size == 4);
    index_visit(v, FLC_SPEC("mask", "expand", size), size == 4);
    index_visit(v, FLC_SPEC("mask", "find", size), size == 4);
  }
  index_visit(v, FLC_SPEC("mask", "before", 0), true);
}

void flc_visit_index(flc_visitor *v) {
  for (int size = 1; size <= 16; size *= 2) {
    index_visit(v, FLC_SPEC("index", "take", size), size == 16);
    index_visit(v, FLC_SPEC("index", "put", size), size == 16);
    if (size > 8)
      continue;
    index_visit(v, FLC_SPEC("index", "gather", size), size == 4);
    index_visit(v, FLC_SPEC("index", "scatter", size, 4), size == 4);
  }
  FL_EACH_DTYPE(d, fl_dtype_is_real) {
    index_visit(v, FLC_SPEC("index", "hot", d), d == FL_F32);
    index_visit(v, FLC_SPEC("index", "add_lanes", d), d == FL_F32);
    for (int how = INDEX_SUM; how <= INDEX_MIN; how++) {
      bool quick = d == FL_F32 && (how == INDEX_SUM || how == INDEX_MAX);
      index_visit(v, FLC_SPEC("index", "sums", d, d, FL_I32, how), quick);
      if (wide_of((fl_dtype)d) != (fl_dtype)d)
        index_visit(
            v, FLC_SPEC("index", "sums", d, wide_of((fl_dtype)d), FL_I32, how),
            false);
      index_visit(v, FLC_SPEC("index", "carry", d, FL_I32, how), quick);
    }
    if (sum_type((fl_dtype)d) == (fl_dtype)d) {
      index_visit(v, FLC_SPEC("index", "add", d), d == FL_F32);
      index_visit(v, FLC_SPEC("index", "add_lines", d), d == FL_F32);
    }
  }
  index_visit(v, FLC_SPEC("index", "keys", FL_I32), true);
  index_visit(v, FLC_SPEC("index", "places", FL_I32), true);
  index_visit(v, FLC_SPEC("index", "claim", 0), true);
  index_visit(v, FLC_SPEC("index", "contend", 4), true);
  visit_masks(v);
}
