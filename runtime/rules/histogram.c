/* Histograms: how many elements are in each of equal parts of a range. */
#include "../tensor/extra.h"
#include "env.h"

#include <math.h>

typedef struct range {
  fl_value low, high; /* 0-d, in the dtype that is computed in */
  int64_t bins;
  double pad;  /* around data that is all the same */
  bool coarse; /* edges are 16-bit floats */
} range;

/* From the attributes, or from the data where they are NaN or both the same. */
static bool find_range(fli_composing *g, fl_value x, double low, double high,
                       range *r) {
  const fl_meta *m = fli_meta(x);
  bool given = low == low && high == high && low != high;
  if (r->bins < 1 || (given && !(low < high && high - low < INFINITY))) {
    fli_env_fail(&g->e, FL_EARG,
                 "%s: needs at least 1 bin and a finite range that rises, got "
                 "%lld bins from %g to %g",
                 g->op->info.name, (long long)r->bins, low, high);
    return false;
  }
  if (g->e.status != FL_OK)
    return false;
  bool none = fl_numel(m->ndim, m->shape) == 0;
  if (given || none) {
    fl_value zero =
        fli_v_zeros(&g->e, m->dtype, 0, NULL, fl_tensor_device(x.tensor));
    r->low = ADD(zero, NUM(given ? low : low == high ? low : 0));
    r->high = ADD(zero, NUM(given ? high : low == high ? low + 1 : 1));
    return true;
  }
  bool known = fli_needs_values(g->e.rt, x.tensor, "") == FL_OK;
  fl_value least = RUN(amin, x), most = RUN(amax, x);
  double first = 0, last = 0;
  if (known && g->e.status == FL_OK)
    g->e.status = fl_tensor_item(least.tensor, &first, NULL);
  if (known && g->e.status == FL_OK)
    g->e.status = fl_tensor_item(most.tensor, &last, NULL);
  if (g->e.status != FL_OK)
    return false;
  if (!(last - first < INFINITY)) {
    fli_env_fail(&g->e, FL_EARG,
                 "%s: the data reach from %g to %g, which is no finite range; "
                 "give min and max",
                 g->op->info.name, first, last);
    return false;
  }
  fl_value same = RUN(eq, least, most);
  r->low = RUN(where, same, SUB(least, NUM(r->pad)), least);
  r->high = RUN(where, same, ADD(most, NUM(r->pad)), most);
  return true;
}

/* bins + 1 edges; the last one is the end of the range exactly. */
static fl_value edges_of(fli_composing *g, const range *r) {
  const fl_meta *m = fli_meta(r->low);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)(r->bins + 1);
  a.v[FL_ATTR_arange_dtype].i = m->dtype;
  fl_value step = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  fl_value width = DIV(SUB(r->high, r->low), NUM((double)r->bins));
  fl_value edges = ADD(MUL(step, width), r->low);
  return RUN(where, RUN(eq, step, NUM((double)r->bins)), r->high, edges);
}

static fl_value edge_at(fli_composing *g, fl_value edges, fl_value bin) {
  return RUN(take, edges, ADD(bin, fli_integer(g->e.base)));
}

/* The bin of each element, from 0: a quotient, which rounds, corrected by the
 * edges on both sides. */
static fl_value bin_by_quotient(fli_composing *g, fl_value x, const range *r,
                                fl_value edges) {
  fl_value at = DIV(SUB(x, r->low), SUB(r->high, r->low));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_clamp);
  a.v[FL_ATTR_clamp_min].f = 0;
  a.v[FL_ATTR_clamp_max].f = (double)(r->bins - 1);
  at = RUN_A(clamp, &a, RUN(floor, MUL(at, NUM((double)r->bins))));
  at = CAST(at, FL_I64);
  fl_value below = RUN(lt, x, edge_at(g, edges, at));
  fl_value next = edge_at(g, edges, ADD(at, fli_integer(1)));
  return ADD(SUB(at, CAST(below, FL_I64)), CAST(RUN(ge, x, next), FL_I64));
}

/* The same by a search, for edges whose rounding makes the bins unequal. */
static fl_value bin_by_search(fli_composing *g, fl_value x, fl_value edges) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_searchsorted);
  a.v[FL_ATTR_searchsorted_right].i = true;
  return SUB(RUN_A(searchsorted, &a, edges, x), fli_integer(1 + g->e.base));
}

/* Counts, or sums of weights, of x and weight with one dim, in `kept`. */
static fl_value counts(fli_composing *g, fl_value x, fl_value weight,
                       const range *r, fl_value edges, fl_dtype kept) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_clamp);
  a.v[FL_ATTR_clamp_min].f = 0;
  a.v[FL_ATTR_clamp_max].f = (double)(r->bins - 1);
  fl_value inside = RUN(logical_and, RUN(ge, x, r->low), RUN(le, x, r->high));
  x = RUN(where, inside, x, r->low);
  fl_value at =
      r->coarse ? bin_by_search(g, x, edges) : bin_by_quotient(g, x, r, edges);
  at = ADD(RUN_A(clamp, &a, at), fli_integer(g->e.base));
  fl_value one = CAST(inside, kept);
  if (!fli_nothing(weight))
    one = RUN(where, inside, CAST(weight, kept), NUM(0));
  if (g->e.status != FL_OK)
    return fli_none();
  fl_value zeros =
      fli_v_zeros(&g->e, kept, 1, &r->bins, fl_tensor_device(x.tensor));
  a = fli_attrs(&g->e, FLI_OP_scatter_add);
  a.v[FL_ATTR_scatter_add_dim].i = 0;
  return RUN_A(scatter_add, &a, zeros, at, one);
}

/* In one dim; integers and f64 as f64, the other floats as f32. */
static fl_value line_of(fli_composing *g, fl_value x) {
  const fl_meta *m = fli_meta(x);
  int64_t n = fl_numel(m->ndim, m->shape);
  bool wide = m->dtype == FL_F64 || fl_dtype_kind(m->dtype) != FL_KIND_FLOAT;
  return fli_v_reshape(&g->e, CAST(x, wide ? FL_F64 : FL_F32), 1, &n);
}

void fli_compose_histc(fli_composing *g) {
  const fl_attr *v = g->attrs->v;
  range r = {.bins = v[FL_ATTR_histc_bins].i, .pad = 1};
  fl_value x = line_of(g, g->in[0]);
  if (find_range(g, x, v[FL_ATTR_histc_min].f, v[FL_ATTR_histc_max].f, &r))
    g->out[0] = CAST(counts(g, x, fli_none(), &r, edges_of(g, &r), FL_I64),
                     fli_meta(g->in[0])->dtype);
}

/* attrs: bins, min, max, density */
void fli_compose_histogram(fli_composing *g) {
  const fl_attr *v = g->attrs->v;
  range r = {.bins = v[FL_ATTR_histogram_bins].i, .pad = 0.5};
  const fl_meta *m = fli_meta(g->in[FL_IN_histogram_x]);
  fl_value x = line_of(g, g->in[FL_IN_histogram_x]);
  fl_value weight = g->n_in > 1 ? g->in[FL_IN_histogram_weight] : fli_none();
  if (weight.tensor && !fli_same_shape(m, fli_meta(weight))) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "histogram: the weights must have the shape of x, %s",
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  if (!fli_nothing(weight) && !weight.tensor) {
    fli_env_fail(&g->e, FL_EARG, "histogram: weight must be a tensor");
    return;
  }
  if (!find_range(g, x, v[FL_ATTR_histogram_min].f, v[FL_ATTR_histogram_max].f,
                  &r))
    return;
  fl_dtype wide = fli_meta(x)->dtype;
  fl_dtype d = fl_dtype_kind(m->dtype) == FL_KIND_FLOAT ? m->dtype : FL_F32;
  fl_value edges = edges_of(g, &r);
  r.coarse = fl_dtype_size(d) == 2;
  if (d != wide) /* count by the edges that are returned */
    edges = CAST(CAST(edges, d), wide);
  if (r.coarse) {
    r.low = CAST(CAST(r.low, d), wide);
    r.high = CAST(CAST(r.high, d), wide);
  }
  fl_value y = weight.tensor
                   ? counts(g, x, line_of(g, weight), &r, edges, wide)
                   : CAST(counts(g, x, fli_none(), &r, edges, FL_I64), wide);
  fl_value width = DIV(SUB(r.high, r.low), NUM((double)r.bins));
  if (v[FL_ATTR_histogram_density].i)
    y = DIV(y, MUL(SUM(y, 0, NULL, false), width));
  g->out[0] = CAST(y, d);
  g->out[FL_OUT_histogram_edges] = CAST(edges, d);
}
