/* Launches of sort and topk: which of the kernels of sort.cu, and the dims
 * before and after the one sorted along. */
#include "order.h"
#include "sort.h"

#include <string.h>

/* --- rows in shared memory --- */

static int word_of(const flc_order *o) {
  return fl_dtype_size(o->dtype) == 8 ? 16 : 8;
}

static fl_status sort_rows(const fl_launch *l, const flc_order *o,
                           const void *x, const uint32_t *from, int64_t n) {
  rows_args a = {.x = x,
                 .origin = o->x,
                 .from = from,
                 .values = o->values,
                 .indices = o->indices,
                 .rows = o->rows,
                 .n = n,
                 .k = o->k,
                 .whole = o->n,
                 .base = o->base,
                 .room = 1,
                 .per = 1,
                 .down = o->down};
  while (a.room < n)
    a.room *= 2;
  while (a.room * a.per < 512 && a.per < o->rows)
    a.per *= 2;
  int pairs = a.room * a.per / 2;
  flc_spec spec = FLC_SPEC("sort", "rows", o->dtype);
  flc_grid g = {.x = (unsigned)fl_ceil_div(o->rows, a.per),
                .block = pairs < 32     ? 32
                         : pairs > 1024 ? 1024
                                        : (unsigned)pairs,
                .shared = (unsigned)(word_of(o) * a.room * a.per)};
  return FLC_RUN(l, spec, g, a);
}

/* --- a few of long rows --- */

static fl_status select_few(const fl_launch *l, const flc_order *o) {
  const void *x = o->x;
  const uint32_t *from = NULL;
  int64_t n = o->n;
  while (n > SORT_ROW) {
    select_args a = {.x = x, .from = from, .n = n, .down = o->down};
    int64_t pieces = fl_ceil_div(n, SORT_PIECE), m = pieces * o->k;
    a.pieces = (int)pieces;
    a.k = (int)o->k;
    a.to = fl_scratch_get(l, (size_t)(o->rows * m) * fl_dtype_size(o->dtype));
    a.at = fl_scratch_get(l, (size_t)(o->rows * m) * sizeof *a.at);
    if (!a.to || !a.at)
      return FL_ENOMEM;
    flc_spec spec = FLC_SPEC("sort", "select", o->dtype);
    flc_grid g = {.x = (unsigned)(o->rows * pieces), .block = 512};
    fl_status s = FLC_RUN(l, spec, g, a);
    if (s != FL_OK)
      return s;
    x = a.to;
    from = a.at;
    n = m;
  }
  return sort_rows(l, o, x, from, n);
}

/* --- long rows --- */

typedef struct pairs {
  void *x;
  uint32_t *at;
} pairs;

static bool get_pairs(const fl_launch *l, const flc_order *o, pairs *p) {
  size_t n = (size_t)(o->rows * o->n);
  p->x = fl_scratch_get(l, n * fl_dtype_size(o->dtype));
  p->at = fl_scratch_get(l, n * sizeof *p->at);
  return p->x && p->at;
}

/* Room for the words by which tiles publish counts, and the counts of all
 * digits. */
static fl_status count_digits(const fl_launch *l, const flc_order *o,
                              radix_args *a) {
  size_t words = (size_t)(o->rows * a->tiles) * SORT_DIGITS * sizeof *a->words,
         totals =
             (size_t)(o->rows * a->passes) * SORT_DIGITS * sizeof *a->totals,
         tickets = (size_t)a->passes * sizeof *a->tickets;
  char *room = fl_scratch_get(l, words + totals + tickets);
  if (!room)
    return FL_ENOMEM;
  a->words = (uint64_t *)room;
  a->totals = (uint32_t *)(room + words);
  a->tickets = (uint32_t *)(room + words + totals);
  fl_status s = flc_zero(l, room, words + totals + tickets);
  int64_t busy = (int64_t)flc_chip_of(l)->processors * 8;
  a->chunks = (int)fl_ceil_div(busy, o->rows);
  if (a->chunks > a->tiles)
    a->chunks = a->tiles;
  flc_spec count = FLC_SPEC("sort", "count", o->dtype);
  flc_grid g = {.x = (unsigned)(o->rows * a->chunks), .block = SORT_THREADS};
  return s == FL_OK ? FLC_RUN(l, count, g, *a) : s;
}

static fl_status radix_sort(const fl_launch *l, const flc_order *o) {
  int size = (int)fl_dtype_size(o->dtype);
  pairs p[2] = {{0}};
  radix_args a = {.x = o->x,
                  .values = o->values,
                  .indices = o->indices,
                  .rows = o->rows,
                  .n = o->n,
                  .k = o->k,
                  .base = o->base,
                  .passes = o->bytes > 0 && o->bytes < size ? o->bytes : size,
                  .down = o->down};
  a.tiles = (int)fl_ceil_div(o->n, SORT_TILE(size));
  for (int i = 0; i < 2 && i < a.passes - 1; i++)
    if (!get_pairs(l, o, &p[i]))
      return FL_ENOMEM;
  fl_status s = count_digits(l, o, &a);
  flc_spec spread = FLC_SPEC("sort", "spread", o->dtype);
  flc_grid tiles = {.x = (unsigned)(o->rows * a.tiles), .block = SORT_THREADS};
  for (; s == FL_OK && a.pass < a.passes; a.pass++) {
    a.last = a.pass == a.passes - 1;
    a.to = p[a.pass % 2].x;
    a.at = p[a.pass % 2].at;
    s = FLC_RUN(l, spread, tiles, a);
    a.x = a.to;
    a.from = a.at;
  }
  return s;
}

fl_status flc_order_rows(const fl_launch *l, const flc_order *o) {
  if (o->rows * o->n * o->k == 0)
    return FL_OK;
  if (o->n > UINT32_MAX - 1)
    return fli_fail(FL_ESIZE, "%s: rows of up to %u elements, not %lld", l->op,
                    UINT32_MAX - 1, (long long)o->n);
  int64_t room = SORT_ROW; /* that shared memory has for a row */
  while (2 * room * word_of(o) <= flc_chip_of(l)->shared)
    room *= 2;
  if (o->n > SORT_ROW && o->k <= SORT_KEPT)
    return select_few(l, o);
  return o->n <= room ? sort_rows(l, o, o->x, NULL, o->n) : radix_sort(l, o);
}

/* --- the rows of the op table --- */

/* v with dim moved to the end. */
static void moved(const fl_view *v, int dim, fl_view *to) {
  *to = *v;
  for (int d = dim; d < v->ndim - 1; d++) {
    to->shape[d] = v->shape[d + 1];
    to->stride[d] = v->stride[d + 1];
  }
  to->shape[v->ndim - 1] = v->shape[dim];
  to->stride[v->ndim - 1] = v->stride[dim];
}

/* Where a result is made: its own memory if dim is the last of it, else
 * scratch, which `finish` moves to its place. */
static void *sort_result(const fl_launch *l, const fl_view *to, fl_view *made) {
  *made = *to;
  fl_row_major(made->ndim, made->shape, made->stride);
  if (!fl_contiguous(to))
    made->data =
        fl_scratch_get(l, (size_t)fl_view_numel(to) * fl_dtype_size(to->dtype));
  return made->data;
}

static fl_status sort_dim(const fl_launch *l, int64_t k, int dim, bool down) {
  const fl_view *in = &l->in[0];
  fl_view x = *in, to[2], made[2];
  if (fl_view_numel(in) == 0 || k == 0)
    return FL_OK;
  if (flc_is_number(in))
    x.data = x.imm;
  for (int i = 0; i < 2; i++)
    to[i] = l->out[i];
  if (in->ndim > 0) {
    moved(in, dim, &x);
    for (int i = 0; i < 2; i++)
      moved(&l->out[i], dim, &to[i]);
  }
  flc_order o = {.dtype = in->dtype,
                 .n = in->ndim ? in->shape[dim] : 1,
                 .k = k,
                 .base = l->base,
                 .down = down};
  o.rows = fl_view_numel(in) / o.n;
  o.x = flc_input(l, &x, x.dtype);
  o.values = sort_result(l, &to[0], &made[0]);
  o.indices = sort_result(l, &to[1], &made[1]);
  if (!o.x || !o.values || !o.indices)
    return FL_ENOMEM;
  fl_status s = flc_order_rows(l, &o);
  for (int i = 0; i < 2 && s == FL_OK; i++)
    if (made[i].data != to[i].data)
      s = flc_move(l, &to[i], &made[i]);
  return s;
}

FLC_KERNEL(sort) {
  const fl_view *x = &l->in[0];
  int dim = (int)l->attrs->v[FL_ATTR_sort_dim].i;
  return sort_dim(l, x->ndim ? x->shape[dim] : 1, dim,
                  l->attrs->v[FL_ATTR_sort_descending].i != 0);
}

FLC_KERNEL(topk) {
  return sort_dim(l, l->attrs->v[FL_ATTR_topk_k].i,
                  (int)l->attrs->v[FL_ATTR_topk_dim].i,
                  l->attrs->v[FL_ATTR_topk_largest].i != 0);
}

void flc_visit_sort(flc_visitor *v) {
  static const char *const entries[] = {"rows", "select", "count", "spread"};
  FL_EACH_DTYPE(d, fl_dtype_is_real)
  for (int i = 0; i < 4; i++) {
    flc_spec s = FLC_SPEC("sort", entries[i], d);
    v->spec(v, &s, d == FL_F32);
  }
}
