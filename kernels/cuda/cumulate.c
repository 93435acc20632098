/* Running products, logarithms of sums of exponentials, and extremes with their
 * positions. */
#include "cuda.h"

#include "cumulate.h"

#define SHORT  64   /* elements of a line that one thread walks along */
#define LEAST  2048 /* elements of a line that are worth a piece */
#define PIECES 64   /* at most: each puts those before it together */

/* With pieces in two passes. */
static fl_status cumulate_passes(const fl_launch *l, const char *entry,
                                 int kind, fl_dtype d, flc_grid grid,
                                 cumulate_args *a) {
  a->parts = NULL;
  if (a->pieces > 1) {
    size_t tasks = (size_t)a->lines * (size_t)a->pieces;
    flc_spec first = FLC_SPEC("cumulate", entry, kind, d, false);
    if (!(a->parts = fl_scratch_get(l, tasks * 16)))
      return FL_ENOMEM;
    fl_status s = FLC_RUN(l, first, grid, *a);
    if (s)
      return s;
  }
  flc_spec spec = FLC_SPEC("cumulate", entry, kind, d, true);
  return FLC_RUN(l, spec, grid, *a);
}

_Static_assert(FL_ATTR_cumprod_dim == FL_ATTR_logcumsumexp_dim &&
                   FL_ATTR_cumprod_dim == FL_ATTR_cummax_dim &&
                   FL_ATTR_cumprod_dim == FL_ATTR_cummin_dim &&
                   FL_OUT_cummax_indices == FL_OUT_cummin_indices,
               "one function for four rows");

static fl_status cumulate_run(const fl_launch *l, int kind, bool least) {
  const fl_view *x = &l->in[0];
  cumulate_args a = {
      .n = 1, .inner = 1, .base = l->base, .least = least, .pieces = 1};
  int dim = x->ndim ? (int)l->attrs->v[FL_ATTR_cumprod_dim].i : 0;
  int64_t total = fl_view_numel(x);
  if (total == 0)
    return FL_OK;
  if (x->ndim) {
    a.n = x->shape[dim];
    a.inner = fl_numel(x->ndim - dim - 1, x->shape + dim + 1);
  }
  a.lines = total / a.n;
  a.y = l->out[0].data;
  a.at = kind == CUMULATE_EXTREME ? l->out[FL_OUT_cummax_indices].data : NULL;
  if (!(a.x = flc_input(l, x, x->dtype)))
    return FL_ENOMEM;
  bool alone = a.inner == 1 && a.n > SHORT;
  int64_t tasks = alone ? a.lines : fl_ceil_div(a.lines, 128);
  int64_t least_of = alone ? LEAST : SHORT;
  int64_t want = (int64_t)flc_chip_of(l)->processors * 8 / tasks;
  want = want < a.n / least_of ? want : a.n / least_of;
  want = want < 1 ? 1 : want < PIECES ? want : PIECES;
  a.piece = fl_ceil_div(a.n, want);
  a.pieces = (int)fl_ceil_div(a.n, a.piece);
  flc_grid grid = {.x = (unsigned)(alone ? tasks * a.pieces : tasks),
                   .y = alone ? 1 : (unsigned)a.pieces,
                   .block = alone ? 256 : 128};
  return cumulate_passes(l, alone ? "lines" : "columns", kind, x->dtype, grid,
                         &a);
}

FLC_KERNEL(cumprod) {
  return cumulate_run(l, CUMULATE_PROD, false);
}

FLC_KERNEL(logcumsumexp) {
  return cumulate_run(l, CUMULATE_LOGS, false);
}

FLC_KERNEL(cummax) {
  return cumulate_run(l, CUMULATE_EXTREME, false);
}

FLC_KERNEL(cummin) {
  return cumulate_run(l, CUMULATE_EXTREME, true);
}

void flc_visit_cumulate(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_real)
  for (int k = 0; k < (fl_dtype_kind(d) == FL_KIND_FLOAT ? 6 : 4); k++) {
    flc_spec lines = FLC_SPEC("cumulate", "lines", k / 2, d, k % 2);
    flc_spec columns = FLC_SPEC("cumulate", "columns", k / 2, d, k % 2);
    v->spec(v, &lines, d == FL_BF16 && k % 2 && k > 1);
    v->spec(v, &columns, d == FL_BF16 && k % 2 && k > 1);
  }
}
