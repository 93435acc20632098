/* Operators composed of sorting: k-th values, median, mode, quantiles,
 * searches, distinct elements, counts. */
#include "../tensor/extra.h"
#include "env.h"

#include <math.h>
#include <string.h>

/* --- one rank of a sorted line --- */

/* x sorted along a dim, which is the only one if x had none, or if all elements
 * are one line; `keep`: what is taken has a dim of 1 there. */
typedef struct line {
  fl_value values, places;
  int64_t dim, n;
  bool keep;
  int ones; /* dims of 1 that the result gets, -1: none */
} line;

static line sorted(fli_composing *g, fl_value x, int64_t dim, bool keep) {
  fl_value both[FL_MAX_OUT];
  const fl_meta *m = fli_meta(x);
  line s = {.dim = dim, .keep = keep, .ones = -1};
  if (dim == FL_ATTR_NONE || m->ndim == 0) {
    int64_t n = fl_numel(m->ndim, m->shape);
    s.ones = keep ? m->ndim : 0;
    s.dim = 0;
    x = fli_v_reshape(&g->e, x, 1, &n);
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_sort);
  a.v[FL_ATTR_sort_dim].i = s.dim;
  RUN_ALL(sort, &a, both, x);
  s.values = both[0];
  s.places = both[FL_OUT_sort_indices];
  if (g->e.status == FL_OK)
    s.n = fli_meta(x)->shape[s.dim];
  if (g->e.status == FL_OK && s.n == 0)
    fli_env_fail(&g->e, FL_ESHAPE, "%s: there is no element along the dim",
                 g->op->info.name);
  return s;
}

/* Without its dim of 1, if that is not kept. */
static fl_value order_shaped(fli_composing *g, const line *s, fl_value x) {
  int64_t ones[FL_MAX_DIMS];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_squeeze);
  if (s->ones >= 0) {
    for (int d = 0; d < s->ones; d++)
      ones[d] = 1;
    return fli_v_reshape(&g->e, x, s->ones, ones);
  }
  if (s->keep)
    return x;
  fli_set_list(&g->e, &a, FL_ATTR_squeeze_dims, 1, &s->dim);
  return RUN_A(squeeze, &a, x);
}

static fl_value rank(fli_composing *g, const line *s, fl_value x, int64_t k) {
  return fli_v_narrow(&g->e, x, (int)s->dim, k, 1, 1);
}

void fli_compose_kthvalue(fli_composing *g) {
  int64_t k = g->attrs->v[FL_ATTR_kthvalue_k].i;
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_kthvalue_dim].i,
                  g->attrs->v[FL_ATTR_kthvalue_keepdim].i != 0);
  if (g->e.status == FL_OK && (k < 1 || k > s.n)) {
    fli_env_fail(&g->e, FL_EARG, "kthvalue: k must be from 1 to %lld, got %lld",
                 (long long)s.n, (long long)k);
    return;
  }
  g->out[0] = order_shaped(g, &s, rank(g, &s, s.values, k - 1));
  g->out[FL_OUT_kthvalue_indices] =
      order_shaped(g, &s, rank(g, &s, s.places, k - 1));
}

/* The lower of the two middle elements; NaN, which sorting puts last, if there
 * is one. */
void fli_compose_median(fli_composing *g) {
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_median_dim].i,
                  g->attrs->v[FL_ATTR_median_keepdim].i != 0);
  int64_t middle = (s.n - 1) / 2;
  if (g->e.status != FL_OK)
    return;
  fl_value last = rank(g, &s, s.values, s.n - 1);
  fl_value nan = RUN(ne, last, last);
  g->out[0] =
      order_shaped(g, &s, RUN(where, nan, last, rank(g, &s, s.values, middle)));
  g->out[FL_OUT_median_indices] =
      order_shaped(g, &s,
                   RUN(where, nan, rank(g, &s, s.places, s.n - 1),
                       rank(g, &s, s.places, middle)));
}

/* Interpolates between a and b; lerp's difference is avoided where one of them
 * is infinite. */
static fl_value order_between(fli_composing *g, fl_value a, fl_value b,
                              fl_value part) {
  fl_value far = RUN(logical_or, RUN(isinf, a), RUN(isinf, b));
  fl_value sum = ADD(MUL(a, SUB(NUM(1), part)), MUL(b, part));
  return RUN(where, far, sum, RUN(lerp, a, b, part));
}

/* The order of interpolation's enum. */
enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

void fli_compose_quantile(fli_composing *g) {
  double q = g->attrs->v[FL_ATTR_quantile_q].f;
  int64_t how = g->attrs->v[FL_ATTR_quantile_interpolation].i;
  fl_dtype d = fli_meta(g->in[0])->dtype;
  if (!(q >= 0 && q <= 1)) {
    fli_env_fail(&g->e, FL_EARG, "quantile: q must be from 0 to 1, got %g", q);
    return;
  }
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_quantile_dim].i,
                  g->attrs->v[FL_ATTR_quantile_keepdim].i != 0);
  double at = q * (double)(s.n - 1), low = floor(at), part = at - low;
  if (g->e.status != FL_OK)
    return;
  if (how == LOWER || how == HIGHER)
    part = how == HIGHER && part > 0;
  else if (how == MIDPOINT)
    part = part > 0 ? 0.5 : 0;
  else if (how == NEAREST)
    part = rint(at) - low;
  if (d == FL_F16 || d == FL_BF16)
    s.values = CAST(s.values, FL_F32);
  fl_value last = rank(g, &s, s.values, s.n - 1);
  fl_value y = rank(g, &s, s.values, (int64_t)low + (part == 1));
  if (part > 0 && part < 1)
    y = order_between(g, y, rank(g, &s, s.values, (int64_t)low + 1), NUM(part));
  y = RUN(where, RUN(ne, last, last), last, y);
  g->out[0] = order_shaped(g, &s, CAST(y, d));
}

/* --- the same among what is no NaN, which sorting puts last --- */

/* The position of the last element that is not NaN; at least 0. */
static fl_value last_known(fli_composing *g, const line *s) {
  fl_value n = SUM1(RUN(eq, s->values, s->values), s->dim, true);
  return RUN(maximum, SUB(n, fli_integer(1)), fli_integer(0));
}

static fl_value at_rank(fli_composing *g, const line *s, fl_value x,
                        fl_value k) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_gather);
  a.v[FL_ATTR_gather_dim].i = s->dim;
  return RUN_A(gather, &a, x, ADD(k, fli_integer(g->e.base)));
}

void fli_compose_nanmedian(fli_composing *g) {
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_nanmedian_dim].i,
                  g->attrs->v[FL_ATTR_nanmedian_keepdim].i != 0);
  if (g->e.status != FL_OK)
    return;
  fl_value k = RUN(floor_div, last_known(g, &s), fli_integer(2));
  g->out[0] = order_shaped(g, &s, at_rank(g, &s, s.values, k));
  g->out[FL_OUT_nanmedian_indices] =
      order_shaped(g, &s, at_rank(g, &s, s.places, k));
}

void fli_compose_nanquantile(fli_composing *g) {
  double q = g->attrs->v[FL_ATTR_nanquantile_q].f;
  int64_t how = g->attrs->v[FL_ATTR_nanquantile_interpolation].i;
  fl_dtype d = fli_meta(g->in[0])->dtype;
  if (!(q >= 0 && q <= 1)) {
    fli_env_fail(&g->e, FL_EARG, "nanquantile: q must be from 0 to 1, got %g",
                 q);
    return;
  }
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_nanquantile_dim].i,
                  g->attrs->v[FL_ATTR_nanquantile_keepdim].i != 0);
  if (g->e.status != FL_OK)
    return;
  fl_value n = last_known(g, &s);
  fl_value at = MUL(CAST(n, FL_F64), NUM(q)), low = RUN(floor, at);
  fl_value part = SUB(at, low);
  if (how == LOWER)
    part = MUL(part, NUM(0));
  else if (how == HIGHER)
    part = RUN(ceil, part);
  else if (how == MIDPOINT)
    part = MUL(RUN(ceil, part), NUM(0.5));
  else if (how == NEAREST)
    part = SUB(RUN(round, at), low);
  if (d == FL_F16 || d == FL_BF16)
    s.values = CAST(s.values, FL_F32);
  low = CAST(low, FL_I64);
  fl_value next = RUN(minimum, ADD(low, fli_integer(1)), n);
  fl_value a = at_rank(g, &s, s.values, low);
  fl_value b = at_rank(g, &s, s.values, next);
  part = CAST(part, fli_meta(s.values)->dtype);
  fl_value y = order_between(g, a, b, part);
  y = RUN(where, RUN(eq, part, NUM(1)), b, y);
  y = RUN(where, RUN(eq, part, NUM(0)), a, y);
  g->out[0] = order_shaped(g, &s, CAST(y, d));
}

/* --- runs of equal ones in a sorted line --- */

static fl_value order_filled(fli_composing *g, fl_value like, fl_dtype d,
                             int64_t v) {
  const fl_meta *m = fli_meta(like);
  if (g->e.status != FL_OK)
    return fli_none();
  fl_value zeros =
      fli_v_zeros(&g->e, d, m->ndim, m->shape, fl_tensor_device(like.tensor));
  return v ? RUN(fill, zeros, fli_integer(v)) : zeros;
}

static fl_attrs first_dim(fli_composing *g, int op, int at) {
  fl_attrs a = fli_attrs(&g->e, op);
  a.v[at].i = 0;
  return a;
}

#define FIRST_DIM(op) first_dim(g, FLI_OP_##op, FL_ATTR_##op##_dim)

/* Counts how often each of the n positions occurs in x (1-d). */
static fl_value order_counted(fli_composing *g, fl_value x, int64_t n) {
  if (g->e.status != FL_OK)
    return fli_none();
  fl_attrs a = FIRST_DIM(scatter_add);
  fl_value zeros =
      fli_v_zeros(&g->e, FL_I64, 1, &n, fl_tensor_device(x.tensor));
  return RUN_A(scatter_add, &a, zeros, x, order_filled(g, x, FL_I64, 1));
}

/* The sum of the weights at each; sums of integers are i64, 16-bit floats are
 * added in f32. */
static fl_value weighed(fli_composing *g, fl_value x, fl_value weight,
                        int64_t n) {
  fl_dtype d = fli_meta(weight)->dtype;
  bool whole = fl_dtype_kind(d) != FL_KIND_FLOAT;
  fl_dtype wide = whole ? FL_I64 : d == FL_F64 ? FL_F64 : FL_F32;
  if (g->e.status != FL_OK)
    return fli_none();
  fl_attrs a = FIRST_DIM(scatter_add);
  fl_value zeros = fli_v_zeros(&g->e, wide, 1, &n, fl_tensor_device(x.tensor));
  weight = fli_v_reshape(&g->e, CAST(weight, wide), 1, fli_meta(x)->shape);
  return CAST(RUN_A(scatter_add, &a, zeros, x, weight), whole ? FL_I64 : d);
}

/* Where an element differs from the one before it. */
static fl_value starts(fli_composing *g, fl_value x, int dim, int64_t n) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
  fl_value first = fli_v_narrow(&g->e, x, dim, 0, n > 0, 1);
  fl_value rest = RUN(ne, fli_v_narrow(&g->e, x, dim, n > 0, n - (n > 0), 1),
                      fli_v_narrow(&g->e, x, dim, 0, n - (n > 0), 1));
  a.v[FL_ATTR_cat_dim].i = dim;
  return RUN_A(cat, &a, order_filled(g, first, FL_BOOL, 1), rest);
}

/* Counts the elements of each run so far. The count is largest at the end of
 * the longest run; of equally long runs the first is taken. */
void fli_compose_mode(fli_composing *g) {
  fl_value best[FL_MAX_OUT];
  line s = sorted(g, g->in[0], g->attrs->v[FL_ATTR_mode_dim].i,
                  g->attrs->v[FL_ATTR_mode_keepdim].i != 0);
  if (g->e.status != FL_OK)
    return;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cumsum), b = a, c = a;
  a.v[FL_ATTR_cumsum_dim].i = s.dim;
  b = fli_attrs(&g->e, FLI_OP_cummax);
  b.v[FL_ATTR_cummax_dim].i = s.dim;
  c = fli_attrs(&g->e, FLI_OP_max_dim);
  c.v[FL_ATTR_max_dim_dim].i = s.dim;
  c.v[FL_ATTR_max_dim_keepdim].i = true;
  fl_value at = RUN_A(cumsum, &a, order_filled(g, s.values, FL_I64, 1));
  fl_value start = starts(g, s.values, (int)s.dim, s.n);
  start = RUN_A(cummax, &b, RUN(where, start, at, fli_integer(0)));
  RUN_ALL(max_dim, &c, best, SUB(at, start));
  fl_attrs take = fli_attrs(&g->e, FLI_OP_gather);
  take.v[FL_ATTR_gather_dim].i = s.dim;
  g->out[0] = order_shaped(
      g, &s, RUN_A(gather, &take, s.values, best[FL_OUT_max_dim_indices]));
  g->out[FL_OUT_mode_indices] = order_shaped(
      g, &s, RUN_A(gather, &take, s.places, best[FL_OUT_max_dim_indices]));
}

/* Slices along a dim as rows of a matrix, or elements as rows of one. */
static fl_value as_rows(fli_composing *g, fl_value x, int64_t dim, int64_t n) {
  const fl_meta *m = fli_meta(x);
  int64_t order[FL_MAX_DIMS], shape[2] = {n, 1};
  if (dim != FL_ATTR_NONE) {
    for (int d = 0; d < m->ndim; d++)
      order[d] = d == 0 ? dim : d <= dim ? d - 1 : d;
    x = fli_v_permute(&g->e, x, order);
    for (int d = 0; d < m->ndim; d++)
      shape[1] *= d == dim ? 1 : m->shape[d];
  }
  return fli_v_reshape(&g->e, x, 2, shape);
}

static fl_value order_selected(fli_composing *g, fl_value x, int64_t dim,
                               fl_value at) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_index_select);
  a.v[FL_ATTR_index_select_dim].i = dim;
  return RUN_A(index_select, &a, x, at);
}

/* In each column the rank of its elements among the distinct ones, from 1. */
static fl_value column_ranks(fli_composing *g, fl_value rows, int64_t n) {
  fl_value both[FL_MAX_OUT];
  fl_attrs along = FIRST_DIM(sort);
  fl_attrs sum = FIRST_DIM(cumsum);
  fl_attrs put = FIRST_DIM(scatter);
  RUN_ALL(sort, &along, both, rows);
  fl_value ranks = RUN_A(cumsum, &sum, starts(g, both[0], 0, n));
  fl_value zeros = order_filled(g, both[FL_OUT_sort_indices], FL_I64, 0);
  return RUN_A(scatter, &put, zeros, both[FL_OUT_sort_indices], ranks);
}

/* The permutation that sorts rows lexicographically: two columns are merged
 * into one column of ranks until one is left. */
static fl_value row_order(fli_composing *g, fl_value rows) {
  fl_value both[FL_MAX_OUT];
  if (g->e.status != FL_OK)
    return fli_none();
  int64_t n = fli_meta(rows)->shape[0], columns = fli_meta(rows)->shape[1];
  fl_attrs join = fli_attrs(&g->e, FLI_OP_cat);
  join.v[FL_ATTR_cat_dim].i = 1;
  while (columns > 1 && g->e.status == FL_OK) {
    fl_value ranks = column_ranks(g, rows, n);
    int64_t half = columns / 2;
    rows =
        ADD(MUL(fli_v_narrow(&g->e, ranks, 1, 0, half, 2), fli_integer(n + 1)),
            fli_v_narrow(&g->e, ranks, 1, 1, half, 2));
    if (columns % 2)
      rows = RUN_A(cat, &join, rows,
                   fli_v_narrow(&g->e, ranks, 1, columns - 1, 1, 1));
    columns -= half;
  }
  RUN_ALL(sort, NULL, both, fli_v_reshape(&g->e, rows, 1, &n));
  return both[FL_OUT_sort_indices];
}

/* Runs of equal rows, which are in order first if `sorted`. */
static void distinct(fli_composing *g, bool sorted) {
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t dim = m->ndim ? g->attrs->v[FL_ATTR_distinct_dim].i : FL_ATTR_NONE;
  bool flat = dim == FL_ATTR_NONE;
  int64_t n = flat ? fl_numel(m->ndim, m->shape) : m->shape[dim];
  fl_value rows = as_rows(g, g->in[0], dim, n), order = fli_none();
  if (g->e.status != FL_OK)
    return;
  if (fli_meta(rows)->shape[1] == 0) /* nothing that could differ */
    rows = fli_v_zeros(&g->e, FL_BOOL, 2, (int64_t[]){n, 1},
                       fl_tensor_device(g->in[0].tensor));
  if (sorted) {
    order = row_order(g, rows);
    rows = order_selected(g, rows, 0, order);
  }
  fl_attrs along = fli_attrs(&g->e, FLI_OP_any);
  fli_set_list(&g->e, &along, FL_ATTR_any_dims, 1, (int64_t[]){1});
  fl_value first = RUN_A(any, &along, starts(g, rows, 0, n));
  fl_attrs sum = FIRST_DIM(cumsum);
  fl_attrs put = FIRST_DIM(scatter);
  fl_value which = RUN_A(cumsum, &sum, first), inverse; /* from 1 */
  inverse = which = ADD(which, fli_integer(g->e.base - 1));
  fl_value at = RUN(nonzero, first);
  if (g->e.status != FL_OK)
    return;
  int64_t many = fli_meta(at)->shape[0];
  at = fli_v_reshape(&g->e, at, 1, &many);
  if (sorted) {
    inverse = order_filled(g, order, FL_I64, 0);
    inverse = RUN_A(scatter, &put, inverse, order, which);
    at = order_selected(g, order, 0, at);
  }
  fl_value x = g->in[0];
  if (flat)
    x = fli_v_reshape(&g->e, x, 1, &n);
  g->out[0] = order_selected(g, x, flat ? 0 : dim, at);
  g->out[FL_OUT_distinct_inverse] = flat ? RESHAPE(inverse, m) : inverse;
  g->out[FL_OUT_distinct_counts] = order_counted(g, which, many);
}

void fli_compose_unique(fli_composing *g) {
  distinct(g, true);
}

void fli_compose_unique_consecutive(fli_composing *g) {
  distinct(g, false);
}

/* --- places --- */

/* For each element of v, the number of elements of a sorted line that are less
 * (`right`: or equal). Both are joined and sorted stably, so that equal
 * elements keep the order in which they were joined. */
static void order_search(fli_composing *g, fl_value seq, fl_value v,
                         bool right) {
  const fl_meta *ms = fli_meta(seq), *mv;
  int64_t many, n = ms->ndim ? ms->shape[ms->ndim - 1] : 0;
  int last = ms->ndim - 1;
  if (!v.tensor && seq.tensor)
    v = ADD(
        fli_v_zeros(&g->e, ms->dtype, 0, NULL, fl_tensor_device(seq.tensor)),
        v);
  if (g->e.status != FL_OK)
    return;
  mv = fli_meta(v);
  bool fits = (last == 0 && v.tensor) ||
              (last > 0 && mv->ndim == ms->ndim &&
               !memcmp(ms->shape, mv->shape, (size_t)last * sizeof *ms->shape));
  if (!fits) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "%s: the sorted ones have shape %s, the others %s; they must "
                 "be 1-d, or have the same dims but for the last",
                 g->op->info.name, fli_shape_text(ms->ndim, ms->shape),
                 fli_shape_text(mv->ndim, mv->shape));
    return;
  }
  many = last ? mv->shape[last] : fl_numel(mv->ndim, mv->shape);
  fl_value x = last ? v : fli_v_reshape(&g->e, v, 1, &many), both[FL_MAX_OUT];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
  a.v[FL_ATTR_cat_dim].i = last;
  x = right ? RUN_A(cat, &a, seq, x) : RUN_A(cat, &a, x, seq);
  RUN_ALL(sort, NULL, both, x);
  fl_value order = both[FL_OUT_sort_indices];
  fl_value ours = right ? RUN(lt, order, fli_integer(n + g->e.base))
                        : RUN(ge, order, fli_integer(many + g->e.base));
  a = fli_attrs(&g->e, FLI_OP_cumsum);
  a.v[FL_ATTR_cumsum_dim].i = last;
  fl_value count = RUN_A(cumsum, &a, ours);
  a = fli_attrs(&g->e, FLI_OP_scatter);
  a.v[FL_ATTR_scatter_dim].i = last;
  count = RUN_A(scatter, &a, order_filled(g, order, FL_I64, 0), order, count);
  count = fli_v_narrow(&g->e, count, last, right ? n : 0, many, 1);
  g->out[0] = RESHAPE(ADD(count, fli_integer(g->e.base)), mv);
}

void fli_compose_searchsorted(fli_composing *g) {
  order_search(g, g->in[FL_IN_searchsorted_sorted], g->in[FL_IN_searchsorted_x],
               g->attrs->v[FL_ATTR_searchsorted_right].i != 0);
}

void fli_compose_bucketize(fli_composing *g) {
  order_search(g, g->in[FL_IN_bucketize_boundaries], g->in[FL_IN_bucketize_x],
               g->attrs->v[FL_ATTR_bucketize_right].i != 0);
}

/* Found where it would be put. */
void fli_compose_isin(fli_composing *g) {
  bool invert = g->attrs->v[FL_ATTR_isin_invert].i != 0;
  if (!g->in[FL_IN_isin_x].tensor) {
    fli_env_fail(&g->e, FL_EARG, "isin: x must be a tensor, got a number");
    return;
  }
  if (!g->in[FL_IN_isin_values].tensor) {
    fl_value hit = RUN(eq, g->in[FL_IN_isin_x], g->in[FL_IN_isin_values]);
    g->out[0] = invert ? RUN(logical_not, hit) : hit;
    return;
  }
  const fl_meta *m = fli_meta(g->in[FL_IN_isin_values]),
                *mx = fli_meta(g->in[FL_IN_isin_x]);
  int64_t n = fl_numel(m->ndim, m->shape);
  fl_value seq = fli_v_reshape(&g->e, g->in[FL_IN_isin_values], 1, &n), hit,
           both[FL_MAX_OUT];
  if (n == 0) {
    hit = order_filled(g, g->in[FL_IN_isin_x], FL_BOOL, 0);
  } else {
    RUN_ALL(sort, NULL, both, seq);
    order_search(g, both[0], g->in[FL_IN_isin_x], false);
    fl_value at = RUN(minimum, g->out[0], fli_integer(n - 1 + g->e.base));
    hit = RUN(eq, RUN(take, both[0], at), g->in[FL_IN_isin_x]);
  }
  g->out[0] = invert ? RUN(logical_not, hit) : RESHAPE(hit, mx);
}

void fli_compose_bincount(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[FL_IN_bincount_x]), *mw;
  int64_t most = 0, bins = g->attrs->v[FL_ATTR_bincount_minlength].i,
          n = fl_numel(m->ndim, m->shape);
  fl_value weight = g->n_in > 1 ? g->in[FL_IN_bincount_weight] : fli_none();
  if (bins < 0) {
    fli_env_fail(&g->e, FL_EARG,
                 "bincount: minlength must not be negative, got %lld",
                 (long long)bins);
    return;
  }
  mw = fli_meta(weight);
  if (fli_is_number(weight) || (weight.tensor && !fli_same_shape(m, mw))) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "bincount: weight must have the shape of x, %s, got %s",
                 fli_shape_text(m->ndim, m->shape),
                 weight.tensor ? fli_shape_text(mw->ndim, mw->shape)
                               : "a number (minlength goes by name)");
    return;
  }
  fl_value x = fli_v_reshape(&g->e, g->in[FL_IN_bincount_x], 1, &n);
  if (n > 0 && g->e.status == FL_OK)
    g->e.status = fli_needs_values(g->e.rt, x.tensor, "bincount");
  if (g->e.status != FL_OK)
    return;
  if (n > 0) {
    int64_t least = 0;
    fl_value top = RUN(amax, x), low = RUN(amin, x);
    if (g->e.status == FL_OK)
      g->e.status = fl_tensor_item(top.tensor, NULL, &most);
    if (g->e.status == FL_OK)
      g->e.status = fl_tensor_item(low.tensor, NULL, &least);
    if (g->e.status == FL_OK && least < g->e.base) {
      fli_env_fail(&g->e, FL_EINDEX,
                   "bincount: position %lld is out of range: they count from "
                   "%d, and not from the end",
                   (long long)least, g->e.base);
      return;
    }
    if (most - g->e.base + 1 > bins)
      bins = most - g->e.base + 1;
  }
  g->out[0] = fli_nothing(weight) ? order_counted(g, x, bins)
                                  : weighed(g, x, weight, bins);
}
