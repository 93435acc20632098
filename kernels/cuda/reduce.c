/* Reductions over any set of dims: cuts any strided input into rows or columns,
 * picks the grid, and launches reduce.cu. Running sums are in scan.c. */
#include "cuda.h"

#include "reduce.h"

#include <math.h>
#include <string.h>

#define THREADS 256
#define LOT     4 /* accesses of a thread that are worth having it */
#define WORTH   4 /* pieces of columns that are worth a launch to merge them */

typedef struct axis {
  int64_t size, in, out;
  bool reduced;
} axis;

typedef struct plan {
  const fl_launch *l;
  reduce_args a;
  axis axes[FL_MAX_DIMS]; /* smallest stride first */
  int n, kind;
  fl_dtype dtype;
  int64_t lines, width; /* elements of a result; adjacent results */
  bool columns;
  bool in_order; /* positions over several dims: repeats count as elements */
} plan;

static int64_t at_most(int64_t v, int64_t most) {
  return v < most ? v : most;
}
/* The least power of 2 from v on, at most `most`. */
static int power_for(int64_t v, int most) {
  int p = 1;
  while (p < v && p < most)
    p *= 2;
  return p;
}
static int lot_of(fl_dtype d) {
  size_t size = fl_dtype_size(d);
  return size > 1 ? (int)(16 / size) : 8;
}

/* --- the axes --- */

/* Smallest stride first, 0 (a repeated element) last. */
static bool axis_before(const axis *a, const axis *b) {
  return a->in && (a->in < b->in || !b->in);
}

/* Axes without those of size 1, strides made positive, neighbours that can be
 * one made one. */
static void set_axes(plan *p, const fl_view *v, unsigned reduced,
                     size_t out_size) {
  int n = 0, m = 0;
  int64_t out = 1, size = (int64_t)fl_dtype_size(v->dtype);
  axis axes[FL_MAX_DIMS];
  for (int d = v->ndim - 1; d >= 0; d--) {
    axis x = {v->shape[d], v->stride[d], 0, reduced >> d & 1};
    if (!x.reduced) {
      x.out = out;
      out *= x.size;
    }
    if (x.size == 1)
      continue;
    if (x.in < 0) { /* walk it from its other end */
      p->a.x = (const char *)p->a.x + (x.size - 1) * x.in * size;
      p->a.y = (char *)p->a.y + (x.size - 1) * x.out * (int64_t)out_size;
      x.in = -x.in;
      x.out = -x.out;
    }
    int k = n++;
    for (; k > 0 && axis_before(&x, &axes[k - 1]); k--)
      axes[k] = axes[k - 1];
    axes[k] = x;
  }
  for (int k = 0; k < n; k++) {
    axis *last = m ? &p->axes[m - 1] : NULL, x = axes[k];
    if (last && last->reduced == x.reduced && x.in == last->in * last->size &&
        x.out == last->out * last->size)
      last->size *= x.size;
    else
      p->axes[m++] = x;
  }
  p->n = m;
}

static void set_roles(plan *p) {
  reduce_args *a = &p->a;
  /* one element, repeated: runs of that one */
  bool have_run = p->n > 0 && p->axes[0].in == 0;
  a->run = a->repeats = 1;
  a->run_in = 0;
  p->columns = p->n > 0 && !p->axes[0].reduced && !have_run;
  for (int k = 0; k < p->n; k++) {
    reduce_axis x = {p->axes[k].size, p->axes[k].in, p->axes[k].out};
    if (!p->axes[k].reduced)
      a->keep[a->n_keep++] = x;
    else if (!have_run) {
      a->run = x.size;
      a->run_in = x.in;
      have_run = true;
    } else {
      a->red[a->n_red++] = x;
      a->repeats *= x.size;
    }
  }
  p->lines = a->run * a->repeats;
  p->width = a->n_keep ? a->keep[0].size : 1;
  p->columns = p->columns && have_run;
}

/* Whether every line begins at a multiple of `lot` elements. */
static bool reduce_aligned(const plan *p, int lot) {
  const reduce_args *a = &p->a;
  size_t bytes = (size_t)lot * fl_dtype_size(p->dtype);
  bool ok = flc_aligned(a->x, bytes) && (!a->x2 || flc_aligned(a->x2, bytes));
  ok = ok && p->width % lot == 0 && a->run_in % lot == 0;
  for (int k = 1; k < a->n_keep; k++)
    ok = ok && a->keep[k].in % lot == 0;
  for (int k = 0; k < a->n_red; k++)
    ok = ok && a->red[k].in % lot == 0;
  return ok;
}

/* --- grids --- */

static flc_grid grid_rows(plan *p, int processors) {
  reduce_args *a = &p->a;
  int lot = lot_of(p->dtype), pieces = 1;
  int64_t n = p->lines,
          busy = (int64_t)processors * (REDUCE_ROW_BLOCKS(p->kind, p->dtype));
  /* a warp's lanes where there are many results, or short ones */
  bool block = n > 32 * lot * 8 && a->results < busy * THREADS / 32;
  if (block && a->results < busy)
    pieces = (int)at_most(busy / a->results, n / (THREADS * lot * LOT) + 1);
  a->lanes = block ? THREADS : power_for(n / (2 * lot), 32);
  a->blocks = at_most(fl_ceil_div(pieces, a->repeats), a->run);
  a->block = fl_ceil_div(fl_ceil_div(a->run, a->blocks), 64) * 64;
  a->blocks = fl_ceil_div(a->run, a->block);
  a->per_piece = fl_ceil_div(a->blocks * a->repeats, pieces);
  a->pieces = (int)fl_ceil_div(a->blocks * a->repeats, a->per_piece);
  a->turn_lanes = a->lanes;
  if (a->run == 1)
    a->turn_lanes = 1;
  else if (a->repeats > 1)
    a->turn_lanes = power_for(fl_ceil_div(a->block, lot * LOT), a->lanes);
  /* a second input is read along with the first: both begin alike */
  size_t bytes = fl_dtype_size(p->dtype);
  uintptr_t apart = (uintptr_t)a->x - (uintptr_t)a->x2;
  a->vector = !a->x2 || apart % (bytes * (size_t)lot) == 0;
  int64_t rows = THREADS / a->lanes;
  return (flc_grid){.x = (unsigned)fl_ceil_div(a->results, rows),
                    .y = (unsigned)a->pieces,
                    .block = THREADS,
                    .early = true};
}

static flc_grid grid_columns(plan *p, int processors, int lot) {
  reduce_args *a = &p->a;
  int64_t outers = a->results / p->width;
  int64_t busy = (int64_t)processors * REDUCE_COLUMN_BLOCKS(p->kind);
  a->bx = power_for(fl_ceil_div(p->width, lot), 32);
  a->by = power_for(p->lines, THREADS / a->bx);
  a->bz = THREADS / (a->bx * a->by);
  a->tiles = fl_ceil_div(p->width, (int64_t)a->bx * lot);
  int64_t blocks = a->tiles * fl_ceil_div(outers, a->bz), pieces = 1,
          worth = p->lines / (a->by * 2 * LOT) + 1;
  if (blocks < busy && worth >= WORTH)
    pieces = at_most(busy / blocks, worth);
  a->per_piece = fl_ceil_div(p->lines, pieces);
  a->pieces = (int)fl_ceil_div(p->lines, a->per_piece);
  return (flc_grid){.x = (unsigned)blocks,
                    .y = (unsigned)a->pieces,
                    .block = THREADS,
                    .early = true};
}

/* Bytes of what is accumulated for a result. */
static size_t accumulated(int kind) {
  return kind >= REDUCE_LSE ? 16 : 8;
}

static flc_spec spec_of(const char *entry, int kind, fl_dtype d, int lot) {
  flc_spec s = FLC_SPEC("reduce", entry, kind, d, lot);
  s.n = lot ? 3 : 2;
  return s;
}

static fl_status reduce_launch(plan *p) {
  reduce_args *a = &p->a;
  int processors = flc_chip_of(p->l)->processors;
  int lot = lot_of(p->dtype);
  flc_spec spec;
  flc_grid grid;
  if (p->columns) {
    lot = reduce_aligned(p, lot) ? lot : 1;
    grid = grid_columns(p, processors, lot);
    spec = spec_of("columns", p->kind, p->dtype, lot);
  } else {
    grid = grid_rows(p, processors);
    spec = spec_of("rows", p->kind, p->dtype, 0);
  }
  if (a->pieces > 1) {
    size_t n = (size_t)(a->results * a->pieces);
    a->partial = fl_scratch_get(p->l, n * accumulated(p->kind));
    if (!a->partial)
      return FL_ENOMEM;
  }
  fl_status s = FLC_RUN(p->l, spec, grid, *a);
  if (s != FL_OK || a->pieces == 1)
    return s;
  a->lanes = a->results >= 16384 ? 1 : 32;
  if (a->results < 256 && a->pieces > 64)
    a->lanes = THREADS;
  spec = spec_of("merge", p->kind, p->dtype, 0);
  grid = (flc_grid){.x = (unsigned)fl_ceil_div(a->results * a->lanes, THREADS),
                    .block = THREADS,
                    .early = true};
  return FLC_RUN(p->l, spec, grid, *a);
}

/* No elements: every result is what comes of none. */
static fl_status launch_empty(plan *p) {
  reduce_args *a = &p->a;
  a->keep[0] = (reduce_axis){a->results, 0, 1};
  a->n_keep = a->pieces = a->lanes = a->turn_lanes = 1;
  a->blocks = 1;
  flc_spec spec = spec_of("rows", p->kind, p->dtype, 0);
  flc_grid grid = {.x = (unsigned)fl_ceil_div(a->results, THREADS),
                   .block = THREADS,
                   .early = true};
  return FLC_RUN(p->l, spec, grid, *a);
}

/* --- a reduction of view v --- */

static void dense_strides(fl_view *v) {
  for (int64_t d = v->ndim - 1, stride = 1; d >= 0; d--) {
    v->stride[d] = stride;
    stride *= v->shape[d];
  }
}

/* The elements of v as dtype d, in its order and without gaps. Dims that repeat
 * elements (stride 0) still do: a copy holds each element once. */
static fl_status read_input(const plan *p, const fl_view *v, fl_dtype d,
                            fl_view *to) {
  fl_view once;
  fl_view_copy(&once, v);
  for (int i = 0; i < v->ndim; i++)
    if (v->stride[i] == 0 && v->shape[i] > 1 && !p->in_order)
      once.shape[i] = 1;
  const void *data = flc_input(p->l, &once, d);
  if (!data)
    return FL_ENOMEM;
  fl_view_copy(to, v);
  to->data = (void *)(uintptr_t)data;
  to->dtype = d;
  dense_strides(&once);
  for (int i = 0; i < v->ndim; i++)
    to->stride[i] = once.shape[i] == v->shape[i] ? once.stride[i] : 0;
  return FL_OK;
}

static fl_status reduce_view(plan *p, const fl_view *v, unsigned reduced,
                             size_t out_size) {
  reduce_args *a = &p->a;
  void *y = a->y;
  fl_view dense;
  int64_t count = 1;
  a->results = 1;
  for (int d = 0; d < v->ndim; d++)
    *(reduced >> d & 1 ? &count : &a->results) *= v->shape[d];
  a->count = (double)count;
  p->dtype = v->dtype;
  if (a->results == 0)
    return FL_OK;
  if (count == 0)
    return launch_empty(p);
  a->x = v->data;
  set_axes(p, v, reduced, out_size);
  if (flc_is_number(v) || (p->n && p->axes[0].in > 1)) {
    if (read_input(p, v, v->dtype, &dense) != FL_OK)
      return FL_ENOMEM; /* nothing was adjacent, now it is */
    a->x = dense.data;
    a->y = y;
    set_axes(p, &dense, reduced, out_size);
  }
  set_roles(p);
  return reduce_launch(p);
}

static unsigned all_dims(const fl_view *v) {
  return (1u << v->ndim) - 1;
}

static unsigned mask_of(const fl_launch *l, int at, const fl_view *v) {
  int n;
  const int64_t *dims = fl_attr_list(l->attrs, at, &n);
  unsigned mask = n ? 0 : all_dims(v);
  for (int k = 0; k < n; k++)
    mask |= 1u << dims[k];
  return mask;
}

static bool is_float(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT;
}

/* Whether there are kernels of this kind for the dtype. Other integers go by
 * i64: no program lives by their products. */
static bool takes(int kind, fl_dtype d) {
  switch (kind) {
  case REDUCE_SUM:
    return true;
  case REDUCE_MEAN:
    return d == FL_I64 || d == FL_BOOL;
  case REDUCE_COUNT:
    return is_float(d) || d == FL_I64 || d == FL_BOOL;
  case REDUCE_POWERS:
  case REDUCE_LSE:
  case REDUCE_PRODUCTS:
    return is_float(d);
  default:
    return is_float(d) || d == FL_I64;
  }
}

/* x over the dims in `reduced`, into `values` (may be NULL) and p->a.y2. What
 * has no kernels is converted, and its extremes back. */
static fl_status reduce_run(plan *p, const fl_view *x, unsigned reduced,
                            const fl_view *values) {
  fl_view v, wide = {.data = NULL};
  size_t size = values ? fl_dtype_size(values->dtype) : 0;
  fl_view_copy(&v, x);
  p->a.y = values ? values->data : NULL;
  if (!takes(p->kind, v.dtype)) {
    if (read_input(p, x, FL_I64, &v) != FL_OK)
      return FL_ENOMEM;
    if (values && (p->kind == REDUCE_EXTREME || p->kind == REDUCE_PLACE)) {
      wide = *values;
      wide.dtype = FL_I64;
      size = sizeof(int64_t);
      wide.data =
          fl_scratch_get(p->l, (size_t)fl_view_numel(values) * size + 1);
      p->a.y = wide.data;
      if (!wide.data)
        return FL_ENOMEM;
    }
  }
  fl_status s = reduce_view(p, &v, reduced, size);
  if (s != FL_OK || !wide.data || fl_view_numel(values) == 0)
    return s;
  return flc_move(p->l, values, &wide);
}

/* in[0] over the dims in attribute `at` (none: all). */
static fl_status reduce_all(const fl_launch *l, int kind, int finish, int at,
                            double power) {
  plan p = {.l = l, .kind = kind};
  p.a.p = power;
  p.a.finish = finish;
  return reduce_run(&p, &l->in[0], mask_of(l, at, &l->in[0]), &l->out[0]);
}

static fl_status reduce_extreme(const fl_launch *l, int at, bool absolute,
                                bool least) {
  plan p = {.l = l, .kind = REDUCE_EXTREME};
  p.a.absolute = absolute;
  p.a.least = least;
  return reduce_run(&p, &l->in[0], mask_of(l, at, &l->in[0]), &l->out[0]);
}

fl_status flc_moments(const fl_launch *l, const fl_view *x, unsigned reduced,
                      double *mean, double *var) {
  plan p = {.l = l, .kind = REDUCE_MOMENTS};
  p.a.y = mean;
  p.a.y2 = var;
  p.a.finish = DONE_MOMENTS;
  return reduce_view(&p, x, reduced, sizeof *mean);
}

fl_status flc_products(const fl_launch *l, const fl_view *x, const void *dy,
                       const void *mean, int64_t each, unsigned reduced,
                       double *s1, double *s2) {
  plan p = {.l = l, .kind = REDUCE_PRODUCTS};
  fl_view v;
  fl_view_copy(&v, x);
  p.a.x2 = v.data;
  p.a.shift = mean;
  p.a.shift_each = each;
  p.a.y = s1;
  p.a.y2 = s2;
  v.data = (void *)(uintptr_t)dy;
  dense_strides(&v);
  return reduce_view(&p, &v, reduced, sizeof *s1);
}

/* --- kernels --- */

FLC_KERNEL(sum) {
  return reduce_all(l, REDUCE_SUM, DONE_VALUE, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(mean) {
  int kind = is_float(l->in[0].dtype) ? REDUCE_SUM : REDUCE_MEAN;
  return reduce_all(l, kind, DONE_MEAN, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(prod) {
  return reduce_all(l, REDUCE_PROD, DONE_VALUE, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(amax) {
  return reduce_extreme(l, FL_ATTR_amax_dims, false, false);
}

FLC_KERNEL(amin) {
  return reduce_extreme(l, FL_ATTR_amin_dims, false, true);
}

FLC_KERNEL(any) {
  return reduce_all(l, REDUCE_COUNT, DONE_ANY, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(all) {
  return reduce_all(l, REDUCE_COUNT, DONE_ALL, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(count_nonzero) {
  return reduce_all(l, REDUCE_COUNT, DONE_COUNT, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(var) {
  return reduce_all(l, REDUCE_MOMENTS, DONE_VAR, FL_ATTR_var_dims,
                    l->attrs->v[FL_ATTR_var_correction].f);
}

FLC_KERNEL(logsumexp) {
  return reduce_all(l, REDUCE_LSE, DONE_VALUE, FL_ATTR_reduce_dims, 0);
}

FLC_KERNEL(norm) {
  double p = l->attrs->v[FL_ATTR_norm_p].f;
  if (isinf(p))
    return reduce_extreme(l, FL_ATTR_norm_dims, true, p < 0);
  if (p == 0)
    return reduce_all(l, REDUCE_COUNT, DONE_VALUE, FL_ATTR_norm_dims, p);
  if (p != 1)
    return reduce_all(l, REDUCE_POWERS, DONE_VALUE, FL_ATTR_norm_dims, p);
  plan one = {.l = l, .kind = REDUCE_SUM};
  one.a.absolute = true;
  return reduce_run(&one, &l->in[0], mask_of(l, FL_ATTR_norm_dims, &l->in[0]),
                    &l->out[0]);
}

/* Values (may be NULL) and positions along attribute dim, or of everything.
 * Positions are counted in the input's own order: it must be contiguous but for
 * repeats along other dims. */
static fl_status reduce_places(const fl_launch *l, bool least,
                               const fl_view *values,
                               const fl_view *positions) {
  const fl_view *v = &l->in[0];
  int64_t dim = l->attrs->v[FL_ATTR_reduce_dim_dim].i;
  plan p = {.l = l, .kind = REDUCE_PLACE};
  fl_view dense;
  if (fl_view_numel(v) == 0)
    return FL_OK;
  fl_view_copy(&dense, v);
  bool whole = dim == FL_ATTR_NONE || !v->ndim;
  p.in_order = whole || v->stride[dim] == 0;
  if (takes(REDUCE_PLACE, v->dtype) &&
      read_input(&p, v, v->dtype, &dense) != FL_OK)
    return FL_ENOMEM;
  p.a.least = least;
  p.a.y2 = positions->data;
  p.a.base = l->base;
  return reduce_run(&p, &dense, whole ? all_dims(v) : 1u << dim, values);
}

FLC_KERNEL(max_dim) {
  return reduce_places(l, false, &l->out[0], &l->out[FL_OUT_max_dim_indices]);
}

FLC_KERNEL(min_dim) {
  return reduce_places(l, true, &l->out[0], &l->out[FL_OUT_min_dim_indices]);
}

FLC_KERNEL(argmax) {
  return reduce_places(l, false, NULL, &l->out[0]);
}

FLC_KERNEL(argmin) {
  return reduce_places(l, true, NULL, &l->out[0]);
}

/* --- what the pack holds --- */

void flc_visit_reduce(flc_visitor *v) {
  for (int kind = 0; kind < REDUCE_KINDS; kind++)
    FL_EACH_DTYPE(d, fl_dtype_is_real) {
      if (!takes(kind, d))
        continue;
      bool quick = kind == REDUCE_SUM && d == FL_BF16;
      flc_spec rows = spec_of("rows", kind, d, 0);
      flc_spec one = spec_of("columns", kind, d, 1);
      flc_spec many = spec_of("columns", kind, d, lot_of(d));
      flc_spec merge = spec_of("merge", kind, d, 0);
      v->spec(v, &rows, quick);
      v->spec(v, &one, false);
      v->spec(v, &many, quick);
      v->spec(v, &merge, quick);
    }
}
