/* resample and its gradient: along one dim every result is a weighted sum of
 * some elements. Which ones, and how much of each, is a table that is worked
 * out once in double; the gradient's table is the same one turned round. */
#include "../../runtime/math/math.h"
#include "move.h"
#include "resample.h"

#include <math.h>

#define PIECE (16 << 10) /* elements read that are worth a thread's while */

enum { NEAREST, LINEAR, CUBIC };

/* --- tables --- */

typedef struct sampling {
  int64_t n, results;
  double start, step, a, outside;
  int mode, rounding;
  bool antialias, exclude;
} sampling;

static sampling sampling_of(const fl_attr *a, int64_t n, int64_t results) {
  return (sampling){.n = n,
                    .results = results,
                    .start = a[FL_ATTR_resample_start].f,
                    .step = a[FL_ATTR_resample_step].f,
                    .mode = (int)a[FL_ATTR_resample_mode].i,
                    .rounding = (int)a[FL_ATTR_resample_rounding].i,
                    .a = a[FL_ATTR_resample_cubic].f,
                    .antialias = a[FL_ATTR_resample_antialias].i != 0,
                    .exclude = a[FL_ATTR_resample_exclude_outside].i != 0,
                    .outside = a[FL_ATTR_resample_outside].f};
}

static double resample_held(double p, int64_t n) {
  return p > 0 ? p < (double)(n - 1) ? p : (double)(n - 1) : 0;
}

static int64_t resample_nearest(const sampling *s, double p) {
  double half = rint(2 * p) / 2; /* that rounding missed by a little */
  p = fabs(p - half) < 1e-9 ? half : p;
  p = s->rounding == 0   ? floor(p)
      : s->rounding == 1 ? ceil(p)
      : s->rounding == 2 ? ceil(p - 0.5)
                         : floor(p + 0.5);
  return (int64_t)resample_held(p, s->n);
}

/* Of an element d away; cubic convolution is Keys' (1981). */
static double weight_of(const sampling *s, double d) {
  double a = s->a;
  d = fabs(d);
  if (s->mode == LINEAR)
    return d < 1 ? 1 - d : 0;
  return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
         : d < 2 ? (((d - 5) * d + 8) * d - 4) * a
                 : 0;
}

/* How far elements that count lie apart, and the most of them. */
static int64_t taps_of(const sampling *s, double *wide) {
  *wide = s->antialias && s->step > 1 ? s->step : 1;
  if (s->mode == NEAREST)
    return 1;
  if (s->mode == LINEAR && *wide == 1)
    return 2;
  return (int64_t)ceil((s->mode == CUBIC ? 4 : 2) * *wide);
}

/* The terms of the result at p; returns how many. */
static int64_t terms_of(const sampling *s, double p, int64_t taps, double wide,
                        int64_t *at, double *weight) {
  int64_t n = 0;
  double sum = 0;
  if (s->outside == s->outside && p != resample_held(p, s->n))
    return 0;
  if (s->mode == NEAREST) {
    at[0] = resample_nearest(s, p);
    weight[0] = 1;
    return 1;
  }
  if (s->mode == LINEAR && wide == 1) {
    p = resample_held(p, s->n);
    at[0] = (int64_t)floor(p);
    at[1] = at[0] + 1 < s->n ? at[0] + 1 : at[0];
    weight[1] = p - floor(p);
    weight[0] = 1 - weight[1];
    return 2;
  }
  double low = floor(p - (s->mode == CUBIC ? 2 : 1) * wide) + 1;
  for (int64_t k = 0; k < taps; k++) {
    double place = low + (double)k, in = resample_held(place, s->n);
    double w = weight_of(s, wide == 1 ? place - p : (place - p) / wide);
    if (s->exclude && place != in)
      continue;
    at[n] = (int64_t)in;
    weight[n++] = w;
    sum += w;
  }
  for (int64_t k = 0; k < n && (s->exclude || wide > 1); k++)
    weight[k] /= sum;
  return n;
}

static bool make_table(const fl_launch *l, const sampling *s, table *t) {
  double wide;
  int64_t taps = taps_of(s, &wide), all = s->results * taps;
  t->n = s->n;
  t->results = s->results;
  t->first = fl_scratch_get(l, (size_t)(s->results + 1) * sizeof *t->first);
  t->at = fl_scratch_get(l, (size_t)(all + 1) * sizeof *t->at);
  t->weight = fl_scratch_get(l, (size_t)(all + 1) * sizeof *t->weight);
  if (!t->first || !t->at || !t->weight)
    return false;
  t->first[0] = 0;
  for (int64_t j = 0; j < s->results; j++) {
    double p = s->start + (double)j * s->step;
    int64_t i = t->first[j];
    t->first[j + 1] = i + terms_of(s, p, taps, wide, t->at + i, t->weight + i);
  }
  return true;
}

/* Which results element k is a term of, and with what weight. */
static bool resample_turn(const fl_launch *l, table *t) {
  int64_t all = t->first[t->results];
  int64_t *first = fl_scratch_get(l, (size_t)(t->n + 2) * sizeof *first);
  int64_t *at = fl_scratch_get(l, (size_t)(all + 1) * sizeof *at);
  double *weight = fl_scratch_get(l, (size_t)(all + 1) * sizeof *weight);
  if (!first || !at || !weight)
    return false;
  memset(first, 0, (size_t)(t->n + 2) * sizeof *first);
  for (int64_t i = 0; i < all; i++)
    first[t->at[i] + 2]++;
  for (int64_t k = 0; k < t->n; k++)
    first[k + 2] += first[k + 1];
  for (int64_t j = 0; j < t->results; j++)
    for (int64_t i = t->first[j]; i < t->first[j + 1]; i++) {
      int64_t to = first[t->at[i] + 1]++;
      at[to] = j;
      weight[to] = t->weight[i];
    }
  *t = (table){.n = t->results,
               .results = t->n,
               .first = first,
               .at = at,
               .weight = weight};
  return true;
}

/* Vectors of results pay where lines are what lies in a row. */
static bool make_band(const fl_launch *l, table *t, bool wide) {
  int64_t n = t->results, terms = n ? t->first[1] : 0;
  for (int64_t j = 0; j <= n; j++)
    if (t->first[j] != j * terms)
      return true;
  if (n < 8 || terms == 0 || t->n > INT32_MAX)
    return true;
  t->band_at = fl_scratch_get(l, (size_t)(n * terms) * sizeof *t->band_at);
  t->band_weight = fl_scratch_get(l, (size_t)(n * terms) * (wide ? 8 : 4));
  if (!t->band_at || !t->band_weight)
    return false;
  t->band = terms;
  for (int64_t j = 0; j < n; j++)
    for (int64_t k = 0; k < terms; k++) {
      t->band_at[k * n + j] = (int32_t)t->at[j * terms + k];
      double w = t->weight[j * terms + k];
      if (wide)
        ((double *)t->band_weight)[k * n + j] = w;
      else
        ((float *)t->band_weight)[k * n + j] = (float)w;
    }
  return true;
}

/* --- kernels --- */

/* Single elements, whatever they are. */
static void pick_task(void *context, int64_t begin, int64_t end) {
  const work *w = context;
  const table *t = &w->t;
  int64_t row = w->inner * (int64_t)w->size;
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u / w->cuts, j = u % w->cuts * w->cut, to = j + w->cut;
    const char *x = (const char *)w->x + o * t->n * row;
    char *y = (char *)w->y + o * t->results * row;
    to = to < t->results ? to : t->results;
    if (w->inner == 1 && t->first[t->results] == t->results) {
#define PICK(W)                                                                \
  for (; j < to; j++)                                                          \
  ((W *)y)[j] = ((const W *)x)[t->at[j]]
      FL_BY_SIZE(w->size, PICK)
#undef PICK
    }
    for (; j < to; j++) {
      bool none = t->first[j] == t->first[j + 1];
      FL_CPU(move_line)
      (w->size, w->inner, y + j * row, 1,
       none ? w->fill : x + t->at[t->first[j]] * row, !none);
    }
  }
}

_Static_assert(FL_ATTR_resample_dim == FL_ATTR_resample_backward_dim,
               "read for both rows");

static fl_status resample_run(const fl_launch *l, work *w, fl_dtype d,
                              fl_cpu_task task) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int dim = (int)l->attrs->v[FL_ATTR_resample_dim].i;
  w->outer = fl_numel(dim, x->shape);
  w->inner = x->ndim ? fl_numel(x->ndim - dim - 1, x->shape + dim + 1) : 1;
  w->x = FL_CPU(input)(l, x, d);
  w->y = FL_CPU(output)(l, y, d);
  if (!w->x || !w->y)
    return FL_ENOMEM;
  int64_t terms = w->t.first[w->t.results] / w->t.results + 1;
  int64_t cost = terms * w->inner;
  w->cut = PIECE / cost + 1;
  w->cut = w->cut < w->t.results ? w->cut : w->t.results;
  w->cuts = fl_ceil_div(w->t.results, w->cut);
  fl_cpu_parallel(l, w->outer * w->cuts, PIECE / (cost * w->cut) + 1, task, w);
  FL_CPU(finish)(l, y, d, w->y);
  return FL_OK;
}

static fl_status sums(const fl_launch *l, work *w) {
  fl_dtype d = fl_cpu_wide(l->out[0].dtype);
  const fl_view *x = &l->in[0];
  bool last =
      x->ndim == 0 || l->attrs->v[FL_ATTR_resample_dim].i == x->ndim - 1;
  if (last && !make_band(l, &w->t, d == FL_F64))
    return FL_ENOMEM;
  return resample_run(l, w, d, FL_OF_FLOAT(resample, d)->sums);
}

static int64_t resample_along(const fl_launch *l, const fl_view *v) {
  return v->ndim ? v->shape[l->attrs->v[FL_ATTR_resample_dim].i] : 1;
}

FL_KERNEL(resample) {
  fl_ordered ordered;
  l = fl_by_memory(l, FL_ATTR_resample_dim, &ordered);
  const fl_view *x = &l->in[0], *y = &l->out[0];
  sampling s =
      sampling_of(l->attrs->v, resample_along(l, x), resample_along(l, y));
  work w = {.none = s.outside};
  uint64_t room;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (!make_table(l, &s, &w.t))
    return FL_ENOMEM;
  if (s.mode != NEAREST)
    return sums(l, &w);
  w.size = fl_dtype_size(x->dtype);
  w.fill = fl_element(x->dtype, s.outside, &room);
  return resample_run(l, &w, x->dtype, pick_task);
}

FL_KERNEL(resample_backward) {
  fl_ordered ordered;
  l = fl_by_memory(l, FL_ATTR_resample_dim, &ordered);
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  sampling s =
      sampling_of(l->attrs->v, resample_along(l, dx), resample_along(l, dy));
  work w = {.none = 0};
  if (fl_view_numel(dx) == 0)
    return FL_OK;
  return make_table(l, &s, &w.t) && resample_turn(l, &w.t) ? sums(l, &w)
                                                           : FL_ENOMEM;
}
