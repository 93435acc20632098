/* Reductions over any set of dims: one driver that cuts any strided input into
 * blocks of rows or columns, and the loops of reduce_typed.c. Reductions that
 * give positions are in extremes_typed.c, running sums in scan.c. */
#include "../../runtime/math/math.h"
#include "axis.h"
#include "move.h"
#include "reduce.h"

#define MAX_PIECES 64           /* of the elements of one result */
#define BUFFER     FL_ROW_BLOCK /* elements converted at a time */

/* --- one block --- */

static void block_rows(const reduce_job *b, const char *x, int64_t rows,
                       int64_t n, slot *a) {
  size_t size = fl_dtype_size(b->stored);
  double buffer[BUFFER];
  int64_t stride = b->tile.in, most = 1;
  if (b->stored == b->compute) {
    b->typed->rows(b, x, rows, stride, n, a, b->width);
    return;
  }
  if (stride == n && n > 0) /* several rows are adjacent */
    most = BUFFER / n;
  for (int64_t r = 0; r < rows; r += most) {
    int64_t m = rows - r < most ? rows - r : most;
    FL_CPU(convert)
    (m * n, b->compute, buffer, b->stored, x + r * stride * (int64_t)size);
    b->typed->rows(b, buffer, m, n, n, a + r, b->width);
  }
}

/* Columns of a few adjacent elements are reduced as longer ones, made of
 * several rows, and these then onto each other. */
static bool block_narrow(const reduce_job *b, const char *x, int64_t rows,
                         int64_t n, slot *a) {
  slot wide[3 * 64];
  if (n >= 32 || b->run.in != n || rows * n < 16 * 64)
    return false;
  int64_t k = 64 / n, w = k * n, whole = rows / k;
  b->typed->start(b, w, wide, w);
  b->typed->cols(b, x, whole, w, w, wide, w);
  size_t size = fl_dtype_size(b->compute);
  if (rows > whole * k)
    b->typed->cols(b, x + whole * w * (int64_t)size, rows - whole * k, n, n,
                   wide, w);
  for (int64_t i = 0; i < k; i++) {
    slot part[3 * 32];
    for (int p = 0; p < b->planes; p++)
      for (int64_t j = 0; j < n; j++)
        part[p * b->width + j] = wide[p * w + i * n + j];
    b->typed->merge(b, n, a, part, b->width);
  }
  return true;
}

static void block_cols(const reduce_job *b, const char *x, int64_t rows,
                       int64_t n, slot *a) {
  size_t size = fl_dtype_size(b->stored);
  double buffer[BUFFER];
  int64_t stride = b->run.in, most = BUFFER / n;
  if (b->stored == b->compute) {
    if (n != b->width || !block_narrow(b, x, rows, n, a))
      b->typed->cols(b, x, rows, stride, n, a, b->width);
    return;
  }
  for (int64_t r = 0; r < rows; r += most) {
    int64_t m = rows - r < most ? rows - r : most;
    const char *from = x + r * stride * (int64_t)size;
    size_t to = fl_dtype_size(b->compute);
    if (stride == n)
      FL_CPU(convert)(m * n, b->compute, buffer, b->stored, from);
    else
      for (int64_t i = 0; i < m; i++)
        FL_CPU(convert)
    (n, b->compute, (char *)buffer + (size_t)(i * n) * to, b->stored,
     from + i * stride * (int64_t)size);
    b->typed->cols(b, buffer, m, n, n, a, b->width);
  }
}

/* --- tasks --- */

static int64_t offset_of(int64_t i, int n, const axis *axes, int64_t *out) {
  int64_t in = 0;
  for (int k = n - 1; k >= 0; k--) {
    int64_t at = i % axes[k].size;
    i /= axes[k].size;
    in += at * axes[k].in;
    *out += at * axes[k].out;
  }
  return in;
}

/* Where the results of tile number t begin, in the input and the output, and
 * how many they are. */
static int64_t tile_of(const reduce_job *b, int64_t t, int64_t *in,
                       int64_t *out) {
  int64_t first = t % b->tiles * b->width, left = b->tile.size - first;
  *out = first * b->tile.out;
  *in = first * b->tile.in + offset_of(t / b->tiles, b->n_keep, b->keep, out);
  return left < b->width ? left : b->width;
}

static void reduce_task(const reduce_job *b, int64_t t, int64_t piece,
                        slot *a) {
  int64_t in, out, none = 0, n = tile_of(b, t, &in, &out);
  int64_t end = (piece + 1) * b->per_piece;
  int64_t size = (int64_t)fl_dtype_size(b->stored);
  if (end > b->segments)
    end = b->segments;
  b->typed->start(b, n, a, b->width);
  for (int64_t s = piece * b->per_piece; s < end; s++) {
    int64_t at = s % b->blocks * b->block, left = b->run.size - at;
    int64_t i =
        in + at * b->run.in + offset_of(s / b->blocks, b->n_red, b->red, &none);
    int64_t m = left < b->block ? left : b->block;
    (b->cols ? block_cols : block_rows)(b, b->x + i * size, b->cols ? m : n,
                                        b->cols ? n : m, a);
  }
}

static int64_t result_size(const reduce_job *b) {
  return b->finish >= DONE_ANY ? 8 : (int64_t)fl_dtype_size(b->compute);
}

/* What was accumulated from elements that stand for several equal ones. */
static void count_repeats(const reduce_job *b, int64_t n, slot *a) {
  int64_t plane = b->kind == K_LSE || b->kind == K_MOMENTS ? b->width : 0;
  double times = (double)b->repeats;
  if (b->kind >= K_MAX && b->kind != K_LSE)
    return;
  for (slot *s = a + plane; s < a + plane + n; s++)
    if (b->compute == FL_I64)
      s->i = b->kind == K_PROD
                 ? fl_pow_i64(s->i, b->repeats)
                 : (int64_t)((uint64_t)s->i * (uint64_t)b->repeats);
    else
      s->f = b->kind == K_PROD ? pow(s->f, times) : s->f * times;
  for (int64_t j = 0; j < n && b->kind == K_MOMENTS; j++)
    a[2 * b->width + j].f *= times;
}

static void reduce_finish(const reduce_job *b, int64_t t, slot *a) {
  int64_t in, out, n = tile_of(b, t, &in, &out);
  if (b->repeats > 1)
    count_repeats(b, n, a);
  b->typed->finish(b, n, a, b->width, b->y + out * result_size(b), b->tile.out);
}

static void reduce_tasks(void *context, int64_t begin, int64_t end) {
  const reduce_job *b = context;
  slot own[3 * MAX_TILE];
  for (int64_t i = begin; i < end; i++) {
    int64_t t = i / b->pieces, piece = i % b->pieces;
    slot *a = b->pieces > 1 ? b->partial + i * b->planes * b->width : own;
    reduce_task(b, t, piece, a);
    if (b->pieces == 1)
      reduce_finish(b, t, a);
  }
}

static void merge_tasks(void *context, int64_t begin, int64_t end) {
  const reduce_job *b = context;
  int64_t each = b->planes * b->width, in, out;
  for (int64_t t = begin; t < end; t++) {
    slot *a = b->partial + t * b->pieces * each;
    int64_t n = tile_of(b, t, &in, &out);
    for (int64_t i = 1; i < b->pieces; i++)
      b->typed->merge(b, n, a, a + i * each, b->width);
    reduce_finish(b, t, a);
  }
}

/* --- planning --- */

/* Smallest stride first, 0 (a repeated element) last. */
static bool axis_before(const axis *a, const axis *b) {
  return a->in && (a->in < b->in || !b->in);
}

/* Axes of the input without those of size 1 and those along which a result
 * meets the same element again, strides made positive, innermost first,
 * neighbours that can be one made one. */
static int plan_axes(reduce_job *b, const fl_view *v, uint32_t reduced,
                     axis *axes) {
  int n = 0, m = 0;
  b->repeats = 1;
  int64_t out = 1;
  int64_t size = (int64_t)fl_dtype_size(v->dtype);
  for (int d = v->ndim - 1; d >= 0; d--) {
    axis x = {v->shape[d], v->stride[d], 0, reduced >> d & 1};
    if (!x.reduced) {
      x.out = out;
      out *= x.size;
    }
    if (x.size == 1)
      continue;
    if (x.in == 0 && x.reduced) {
      b->repeats *= x.size;
      continue;
    }
    if (x.in < 0) { /* walk it from its other end */
      b->x += (x.size - 1) * x.in * size;
      b->y += (x.size - 1) * x.out * result_size(b);
      x.in = -x.in;
      x.out = -x.out;
    }
    int k = n++;
    for (; k > 0 && axis_before(&x, &axes[k - 1]); k--)
      axes[k] = axes[k - 1];
    axes[k] = x;
  }
  for (int k = 0; k < n; k++) {
    axis *last = &axes[m - 1], x = axes[k];
    if (m && last->reduced == x.reduced && x.in == last->in * last->size &&
        x.out == last->out * last->size)
      last->size *= x.size;
    else
      axes[m++] = x;
  }
  return m;
}

/* Which axes are tile and run, and the rest, outermost first. */
static void plan_roles(reduce_job *b, const axis *axes, int n) {
  bool have_tile = false, have_run = false;
  b->tile = (axis){1, 0, 0, false};
  b->run = (axis){1, 0, 0, true};
  b->n_keep = b->n_red = 0;
  b->cols = n > 0 && !axes[0].reduced;
  for (int k = 0; k < n; k++) {
    bool *have = axes[k].reduced ? &have_run : &have_tile;
    if (!*have)
      *(axes[k].reduced ? &b->run : &b->tile) = axes[k];
    *have = true;
  }
  bool skip_tile = have_tile, skip_run = have_run;
  axis keep[FL_MAX_DIMS], red[FL_MAX_DIMS];
  for (int k = 0; k < n; k++) {
    bool *skip = axes[k].reduced ? &skip_run : &skip_tile;
    if (!*skip && axes[k].reduced)
      red[b->n_red++] = axes[k];
    else if (!*skip)
      keep[b->n_keep++] = axes[k];
    *skip = false;
  }
  for (int k = 0; k < b->n_keep; k++)
    b->keep[k] = keep[b->n_keep - 1 - k];
  for (int k = 0; k < b->n_red; k++)
    b->red[k] = red[b->n_red - 1 - k];
}

/* Sizes of tiles, blocks and pieces; from the shape alone. `count` is the
 * number of elements of one result. */
static void plan_sizes(reduce_job *b, int64_t count) {
  int64_t outer = 1, repeats = 1;
  for (int k = 0; k < b->n_keep; k++)
    outer *= b->keep[k].size;
  for (int k = 0; k < b->n_red; k++)
    repeats *= b->red[k].size;
  if (b->cols) {
    int64_t tiles = fl_ceil_div(b->tile.size, MAX_TILE);
    bool narrow = b->tile.size < 32 && b->run.in == b->tile.size;
    b->width = fl_ceil_div(b->tile.size, tiles);
    b->block = clamp_to(GRAIN / b->width, 64, narrow ? GRAIN : 512);
  } else {
    int64_t run = clamp_to(b->run.size, 1, FL_ROW_BLOCK);
    int64_t most = b->tile.size < MAX_TILE ? b->tile.size : MAX_TILE;
    int64_t wide =
        FL_ROW_BLOCK / run > GRAIN / count ? FL_ROW_BLOCK / run : GRAIN / count;
    b->width = clamp_to(wide, 1, most);
    b->block = FL_ROW_BLOCK;
  }
  b->tiles = fl_ceil_div(b->tile.size, b->width);
  b->block = clamp_to(b->block, 1, b->run.size);
  b->blocks = fl_ceil_div(b->run.size, b->block);
  b->segments = b->blocks * repeats;
  b->outer = outer;
  b->pieces = 1;
  if (count > 2 * GRAIN / b->width && outer * b->tiles < MAX_PIECES)
    b->pieces = clamp_to(count / (GRAIN / b->width), 1, MAX_PIECES);
  b->per_piece = fl_ceil_div(b->segments, b->pieces);
  b->pieces = fl_ceil_div(b->segments, b->per_piece);
}

/* The input as contiguous memory of the compute type, for an input with nothing
 * adjacent: each element once, with stride 0 where the input has it. */
static fl_status copy_dense(const fl_launch *l, reduce_job *b, const fl_view *v,
                            uint32_t reduced, fl_view *dense) {
  fl_view few;
  bool some = false;
  fl_view_copy(&few, v);
  fl_view_copy(dense, v);
  for (int d = 0; d < v->ndim; d++)
    some |= v->stride[d] != 0 && v->shape[d] > 1;
  for (int d = 0; d < v->ndim; d++)
    if (v->stride[d] == 0 && (some || reduced >> d & 1))
      few.shape[d] = 1;
  b->x = dense->data = (void *)FL_CPU(input)(l, &few, b->compute);
  b->stored = dense->dtype = b->compute;
  for (int64_t d = v->ndim - 1, stride = 1; d >= 0; d--) {
    dense->stride[d] = few.shape[d] == v->shape[d] ? stride : 0;
    stride *= few.shape[d];
  }
  return b->x ? FL_OK : FL_ENOMEM;
}

static fl_status reduce_run(const fl_launch *l, reduce_job *b, int64_t count) {
  int64_t tiles = b->outer * b->tiles, tasks = tiles * b->pieces;
  int64_t cost = clamp_to(count / b->pieces, 1, GRAIN) * b->width;
  if (b->pieces > 1) {
    size_t bytes = (size_t)(tasks * b->planes * b->width) * sizeof(slot);
    b->partial = fl_scratch_get(l, bytes);
    if (!b->partial)
      return FL_ENOMEM;
  }
  fl_status s = fl_cpu_stoppable(l, tasks, clamp_to(GRAIN / cost, 1, tasks),
                                 reduce_tasks, b);
  if (s == FL_OK && b->pieces > 1)
    fl_cpu_parallel(l, tiles,
                    clamp_to(GRAIN / (b->pieces * b->width), 1, tiles),
                    merge_tasks, b);
  return s;
}

/* A reduction of in[0] over the dims in attribute `at` (none: all). Integers
 * are computed in `whole`. */
static fl_status reduce_all(const fl_launch *l, int kind, int finish, int at,
                            double p, fl_dtype whole) {
  const fl_view *v = &l->in[0], *out = &l->out[0];
  bool is_float = fl_dtype_kind(v->dtype) == FL_KIND_FLOAT;
  reduce_job b = {
      .kind = kind, .finish = finish, .p = p, .stored = v->dtype, .repeats = 1};
  int n_dims, n;
  const int64_t *dims = fl_attr_list(l->attrs, at, &n_dims);
  uint32_t reduced = n_dims ? 0 : (1u << v->ndim) - 1;
  axis axes[FL_MAX_DIMS];
  int64_t count = 1, results = fl_view_numel(out);
  for (int k = 0; k < n_dims; k++)
    reduced |= 1u << dims[k];
  for (int d = 0; d < v->ndim; d++)
    count *= reduced >> d & 1 ? v->shape[d] : 1;
  b.compute = is_float ? fl_cpu_wide(v->dtype) : whole;
  b.typed = b.compute == FL_I64 ? &FL_CPU(reduce_i64)
                                : FL_OF_FLOAT(reduce, b.compute);
  b.planes = kind == K_MOMENTS ? 3 : kind == K_LSE ? 2 : 1;
  b.count = (double)count;
  b.x = v->data;
  fl_dtype type = finish >= DONE_ANY ? FL_I64 : b.compute;
  if (results == 0)
    return FL_OK;
  void *y = FL_CPU(output)(l, out, type);
  if (!y)
    return FL_ENOMEM;
  b.y = y;
  if (count == 0) {
    b.tile = (axis){results, 0, 1, false};
    b.run = (axis){1, 0, 0, true};
    b.pieces = b.outer = b.per_piece = 1;
    b.width = clamp_to(results, 1, MAX_TILE);
    b.tiles = fl_ceil_div(results, b.width);
  } else {
    if (n_dims == 0 && fl_contiguous(v)) {
      axes[0] = (axis){count, 1, 0, true};
      n = 1;
    } else {
      n = plan_axes(&b, v, reduced, axes);
    }
    if (n && axes[0].in != 1) { /* nothing is adjacent: make it so */
      fl_view dense;
      fl_status s = copy_dense(l, &b, v, reduced, &dense);
      if (s != FL_OK)
        return s;
      b.y = y;
      n = plan_axes(&b, &dense, reduced, axes);
    }
    count /= b.repeats;
    plan_roles(&b, axes, n);
    plan_sizes(&b, count);
  }
  fl_status s = reduce_run(l, &b, clamp_to(count, 1, count + 1));
  if (s == FL_OK)
    FL_CPU(finish)(l, out, type, y);
  return s;
}

/* --- kernels --- */

FL_KERNEL(sum) {
  return reduce_all(l, K_SUM, DONE_VALUE, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(mean) {
  return reduce_all(l, K_SUM, DONE_MEAN, FL_ATTR_reduce_dims, 0, FL_F64);
}

FL_KERNEL(prod) {
  return reduce_all(l, K_PROD, DONE_VALUE, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(amax) {
  return reduce_all(l, K_MAX, DONE_VALUE, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(amin) {
  return reduce_all(l, K_MIN, DONE_MIN, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(any) {
  return reduce_all(l, K_COUNT, DONE_ANY, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(all) {
  return reduce_all(l, K_COUNT, DONE_ALL, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(count_nonzero) {
  return reduce_all(l, K_COUNT, DONE_COUNT, FL_ATTR_reduce_dims, 0, FL_I64);
}

FL_KERNEL(var) {
  return reduce_all(l, K_MOMENTS, DONE_VAR, FL_ATTR_reduce_dims,
                    l->attrs->v[FL_ATTR_var_correction].f, FL_F64);
}

FL_KERNEL(logsumexp) {
  return reduce_all(l, K_LSE, DONE_LSE, FL_ATTR_reduce_dims, 0, FL_F64);
}

FL_KERNEL(norm) {
  double p = l->attrs->v[FL_ATTR_norm_p].f;
  if (p == 0)
    return reduce_all(l, K_COUNT, DONE_VALUE, FL_ATTR_norm_dims, p, FL_F64);
  if (p == 1)
    return reduce_all(l, K_ABS_SUM, DONE_VALUE, FL_ATTR_norm_dims, p, FL_F64);
  if (p == 2)
    return reduce_all(l, K_SQUARES, DONE_ROOT, FL_ATTR_norm_dims, p, FL_F64);
  if (p == INFINITY)
    return reduce_all(l, K_ABS_MAX, DONE_VALUE, FL_ATTR_norm_dims, p, FL_F64);
  if (p == -INFINITY)
    return reduce_all(l, K_ABS_MIN, DONE_MIN, FL_ATTR_norm_dims, p, FL_F64);
  return reduce_all(l, K_POWERS, DONE_ROOT, FL_ATTR_norm_dims, p, FL_F64);
}

/* --- extremes with positions --- */

/* Values into `values` (may be NULL), positions into `indices`. */
static fl_status extremes_of(const fl_launch *l, const fl_view *v, bool least,
                             const fl_view *values, const fl_view *indices) {
  fl_dtype type = compute_type(v->dtype);
  int64_t d = l->attrs->v[FL_ATTR_reduce_dim_dim].i;
  extreme e = {.least = least, .base = l->base, .indices = indices->data};
  const extreme_kernels *k =
      type == FL_I64 ? &FL_CPU(extreme_i64) : FL_OF_FLOAT(extreme, type);
  int64_t outer =
      split_around(v, d == FL_ATTR_NONE || !v->ndim ? -1 : d, &e.n, &e.inner);
  if (outer * e.inner == 0 || e.n == 0)
    return FL_OK;
  if (!(e.x = FL_CPU(input)(l, v, type)) ||
      (values && !(e.values = FL_CPU(output)(l, values, type))))
    return FL_ENOMEM;
  fl_status s;
  if (e.inner > 1) {
    e.tiles = fl_ceil_div(e.inner, MAX_TILE);
    int64_t cost = e.n * (e.inner < MAX_TILE ? e.inner : MAX_TILE);
    s = fl_cpu_stoppable(l, outer * e.tiles, clamp_to(GRAIN / cost, 1, GRAIN),
                         k->cols, &e);
  } else {
    cut_row(e.n, &e.piece, &e.pieces);
    if (e.pieces > 1) {
      size_t n = (size_t)(outer * e.pieces);
      e.best = fl_scratch_get(l, n * 8);
      e.at = fl_scratch_get(l, n * 8);
      if (!e.best || !e.at)
        return FL_ENOMEM;
    }
    s = fl_cpu_stoppable(l, outer * e.pieces,
                         clamp_to(GRAIN / e.piece, 1, GRAIN), k->rows, &e);
    for (int64_t row = 0; s == FL_OK && row < outer && e.pieces > 1; row++)
      k->merge(&e, row);
  }
  if (s == FL_OK && values)
    FL_CPU(finish)(l, values, type, e.values);
  return s;
}

/* A result with size 1 where the input repeats its elements, in new memory; the
 * dims of `to` are those of the input, but for dim d unless it is kept. */
static bool fold_result(const fl_launch *l, const fl_view *to, int64_t d,
                        const fl_view *few, fl_view *part) {
  bool kept = to->ndim == few->ndim;
  fl_view_copy(part, to);
  for (int k = 0, j = 0; k < few->ndim; k++)
    if (kept || (d != FL_ATTR_NONE && k != d))
      part->shape[j++] = k == d || d == FL_ATTR_NONE ? 1 : few->shape[k];
  fl_row_major(part->ndim, part->shape, part->stride);
  size_t n = (size_t)fl_view_numel(part) + 1;
  part->data = fl_scratch_get(l, n * fl_dtype_size(to->dtype));
  return part->data != NULL;
}

static void spread_result(const fl_launch *l, const fl_view *to,
                          const fl_view *part) {
  fl_view from;
  fl_view_copy(&from, part);
  for (int k = 0; k < to->ndim; k++) {
    from.stride[k] = part->shape[k] == to->shape[k] ? part->stride[k] : 0;
    from.shape[k] = to->shape[k];
  }
  FL_CPU(move_view)(l, to, &from);
}

/* Elements that an expanded input repeats are compared once: the first of equal
 * ones is at the first of its places. */
static fl_status extremes(const fl_launch *l, bool least, const fl_view *values,
                          const fl_view *indices) {
  const fl_view *v = &l->in[0];
  int64_t d = l->attrs->v[FL_ATTR_reduce_dim_dim].i;
  fl_view few, y, at;
  bool repeats = false;
  fl_view_copy(&few, v);
  for (int k = 0; k < v->ndim; k++)
    if (v->stride[k] == 0 && v->shape[k] > 1) {
      few.shape[k] = 1;
      repeats = true;
    }
  if (!repeats || fl_view_numel(indices) == 0)
    return extremes_of(l, v, least, values, indices);
  if (!fold_result(l, indices, d, &few, &at) ||
      (values && !fold_result(l, values, d, &few, &y)))
    return FL_ENOMEM;
  fl_status s = extremes_of(l, &few, least, values ? &y : NULL, &at);
  if (s != FL_OK)
    return s;
  if (d == FL_ATTR_NONE) { /* counted through all dims */
    int64_t *p = at.data, i = *p - l->base, place = 0, step = 1;
    for (int k = v->ndim - 1; k >= 0; k--) {
      place += i % few.shape[k] * step;
      i /= few.shape[k];
      step *= v->shape[k];
    }
    *p = place + l->base;
  }
  spread_result(l, indices, &at);
  if (values)
    spread_result(l, values, &y);
  return FL_OK;
}

FL_KERNEL(max_dim) {
  return extremes(l, false, &l->out[0], &l->out[FL_OUT_max_dim_indices]);
}

FL_KERNEL(min_dim) {
  return extremes(l, true, &l->out[0], &l->out[FL_OUT_min_dim_indices]);
}

FL_KERNEL(argmax) {
  return extremes(l, false, NULL, &l->out[0]);
}

FL_KERNEL(argmin) {
  return extremes(l, true, NULL, &l->out[0]);
}
