/* Interpolation, composed of index selections and weighted sums: resample along
 * one dim, interpolate over all spatial dims, grid_sample at any coordinates.
 * Positions and weights are computed in f64 (grid_sample's in the grid's
 * dtype); 16-bit floats are summed in f32. */
#include "fits.h"

#include <math.h>
#include <string.h>

static fl_value select_at(fli_env *e, fl_value x, int dim, fl_value index) {
  fl_attrs a = fli_attrs(e, FLI_OP_index_select);
  a.v[FL_ATTR_index_select_dim].i = dim;
  return fli_run(e, FLI_OP_index_select, &a, 2, (fl_value[]){x, index});
}

static fl_value clamped(fli_env *e, fl_value x, double low, double high) {
  fl_attrs a = fli_attrs(e, FLI_OP_clamp);
  a.v[FL_ATTR_clamp_min].f = low;
  a.v[FL_ATTR_clamp_max].f = high;
  return fli_run(e, FLI_OP_clamp, &a, 1, &x);
}

/* Weights of an element `d` away in cubic convolution (Keys, 1981), for |d| <=
 * 1 and for 1 < |d| < 2. */
static fl_value near_weight(fli_composing *g, fl_value d, double a) {
  fl_value w = SUB(MUL(d, NUM(a + 2)), NUM(a + 3));
  return ADD(MUL(MUL(w, d), d), NUM(1));
}

static fl_value far_weight(fli_composing *g, fl_value d, double a) {
  fl_value w = ADD(MUL(SUB(d, NUM(5)), d), NUM(8));
  return MUL(SUB(MUL(w, d), NUM(4)), NUM(a));
}

/* --- along one dim --- */

enum { NEAREST, LINEAR, CUBIC };

typedef struct sampling {
  int dim, mode, rounding;
  int64_t n, size; /* elements there are, and wanted */
  double start, step, a, outside;
  bool antialias, exclude;
} sampling;

/* start + j step for j = 0, 1, ... */
static fl_value resample_places(fli_composing *g, const sampling *s) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)s->size;
  a.v[FL_ATTR_arange_dtype].i = FL_F64;
  fl_value j = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  return ADD(MUL(j, NUM(s->step)), NUM(s->start));
}

/* Positions clamped to those that exist, for index_select. */
static fl_value as_index(fli_composing *g, fl_value p, const sampling *s) {
  p = clamped(&g->e, p, 0, (double)(s->n - 1));
  return ADD(CAST(p, FL_I64), fli_integer(g->e.base));
}

/* A vector of weights, to be broadcast along the dim. */
static fl_value as_weights(fli_composing *g, fl_value w, fl_value x,
                           const sampling *s) {
  const fl_meta *m = fli_meta(x);
  int64_t shape[FL_MAX_DIMS];
  for (int d = 0; d < m->ndim; d++)
    shape[d] = 1;
  if (m->ndim > 0)
    shape[s->dim] = s->size;
  return fli_v_reshape(&g->e, CAST(w, m->dtype), m->ndim, shape);
}

static fl_value resample_nearest(fli_composing *g, fl_value x, fl_value p,
                                 const sampling *s) {
  /* whole and half numbers that rounding missed by a little */
  fl_value half = DIV(RUN(round, MUL(p, NUM(2))), NUM(2));
  fl_value off = RUN(abs, SUB(p, half));
  p = RUN(where, RUN(lt, off, NUM(1e-9)), half, p);
  if (s->rounding == 0)
    p = RUN(floor, p);
  else if (s->rounding == 1)
    p = RUN(ceil, p);
  else if (s->rounding == 2)
    p = RUN(ceil, SUB(p, NUM(0.5)));
  else
    p = RUN(floor, ADD(p, NUM(0.5)));
  return select_at(&g->e, x, s->dim, as_index(g, p, s));
}

static fl_value linear(fli_composing *g, fl_value x, fl_value p,
                       const sampling *s) {
  p = clamped(&g->e, p, 0, (double)(s->n - 1));
  fl_value low = RUN(floor, p);
  fl_value a = select_at(&g->e, x, s->dim, as_index(g, low, s));
  fl_value b = select_at(&g->e, x, s->dim, as_index(g, ADD(low, NUM(1)), s));
  return RUN(lerp, a, b, as_weights(g, SUB(p, low), x, s));
}

/* Weights of elements `d` away, where results lie `wide` apart. */
static fl_value weights_of(fli_composing *g, fl_value d, double wide,
                           const sampling *s) {
  d = RUN(abs, wide == 1 ? d : DIV(d, NUM(wide)));
  if (s->mode == LINEAR)
    return clamped(&g->e, SUB(NUM(1), d), 0, 1);
  fl_value far = RUN(where, RUN(lt, d, NUM(2)), far_weight(g, d, s->a), NUM(0));
  return RUN(where, RUN(le, d, NUM(1)), near_weight(g, d, s->a), far);
}

/* `taps` elements around each place: vectors of positions and of weights, one
 * for each tap. */
static fl_value banded(fli_composing *g, fl_value x, fl_value p, int taps,
                       double wide, const sampling *s) {
  double reach = (s->mode == CUBIC ? 2 : 1) * wide;
  sampling all = {.size = taps, .start = 1, .step = 1};
  fl_value at = RUN(floor, SUB(p, NUM(reach))), sum = fli_none();
  at = ADD(fli_v_unsqueeze(&g->e, resample_places(g, &all), 1), at);
  fl_value held = clamped(&g->e, at, 0, (double)(s->n - 1));
  fl_value w = weights_of(g, SUB(at, p), wide, s);
  if (s->exclude)
    w = RUN(where, RUN(eq, at, held), w, NUM(0));
  if (s->exclude || wide > 1)
    w = DIV(w, SUM1(w, 0, true));
  w = CAST(w, fli_meta(x)->dtype);
  at = ADD(CAST(held, FL_I64), fli_integer(g->e.base));
  for (int k = 0; k < taps && g->e.status == FL_OK; k++) {
    fl_value row = fli_v_narrow(&g->e, at, 0, k, 1, 1);
    fl_value y =
        select_at(&g->e, x, s->dim, fli_v_reshape(&g->e, row, 1, &s->size));
    row = as_weights(g, fli_v_narrow(&g->e, w, 0, k, 1, 1), x, s);
    sum = k ? RUN(addcmul, sum, y, row) : MUL(y, row);
  }
  return sum;
}

/* With very many taps: a product with a matrix of weights. */
static fl_value smoothed(fli_composing *g, fl_value x, fl_value p, double wide,
                         const sampling *s) {
  int last = fli_meta(x)->ndim - 1;
  int64_t beyond = 0, n = s->n;
  x = TRANSPOSE(x, s->dim, last);
  if (!s->exclude) { /* the outermost elements stand for what is outside */
    fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
    beyond = (int64_t)ceil((s->mode == CUBIC ? 2 : 1) * wide) + 1;
    fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2, (int64_t[]){beyond, beyond});
    a.v[FL_ATTR_pad_mode].i = 2; /* replicate */
    x = RUN_A(pad, &a, x);
    n += 2 * beyond;
  }
  sampling all = {.size = n, .start = -(double)beyond, .step = 1};
  fl_value d = SUB(fli_v_unsqueeze(&g->e, resample_places(g, &all), 1),
                   fli_v_unsqueeze(&g->e, p, 0));
  fl_value w = weights_of(g, d, wide, s);
  w = DIV(w, SUM1(w, 0, true));
  return TRANSPOSE(MATMUL(x, CAST(w, fli_meta(x)->dtype)), s->dim, last);
}

/* Where results are farther apart than elements, antialias averages all
 * elements near a result. */
static fl_value resample_between(fli_composing *g, fl_value x, fl_value p,
                                 const sampling *s) {
  double wide = s->antialias && s->step > 1 ? s->step : 1;
  double taps = ceil((s->mode == CUBIC ? 4 : 2) * wide);
  if (s->mode == LINEAR && wide == 1)
    return linear(g, x, p, s);
  return taps <= 64 || fli_meta(x)->ndim == 0
             ? banded(g, x, p, taps < 64 ? (int)taps : 64, wide, s)
             : smoothed(g, x, p, wide, s);
}

static sampling sampling_of(const fl_attr *v, const fl_meta *m) {
  return (sampling){.dim = (int)v[FL_ATTR_resampling_dim].i,
                    .n = m->ndim ? m->shape[v[FL_ATTR_resampling_dim].i] : 1,
                    .size = v[FL_ATTR_resampling_size].i,
                    .start = v[FL_ATTR_resampling_start].f,
                    .step = v[FL_ATTR_resampling_step].f,
                    .mode = (int)v[FL_ATTR_resampling_mode].i,
                    .rounding = (int)v[FL_ATTR_resampling_rounding].i,
                    .a = v[FL_ATTR_resampling_cubic].f,
                    .antialias = v[FL_ATTR_resampling_antialias].i != 0,
                    .exclude = v[FL_ATTR_resampling_exclude_outside].i != 0,
                    .outside = v[FL_ATTR_resampling_outside].f};
}

static fl_status check_sampling(const char *op, const fl_meta *m,
                                const sampling *s) {
  if (m->ndim == 0 && s->size != 1)
    return fli_fail(FL_ESHAPE,
                    "%s: a 0-d tensor has one element, asked for %lld", op,
                    (long long)s->size);
  if (fl_dtype_kind(m->dtype) != FL_KIND_FLOAT && s->mode != NEAREST)
    return fli_fail(FL_EDTYPE,
                    "%s: %s can be resampled with mode = nearest only: convert "
                    "it to a float first",
                    op, fl_dtype_name(m->dtype));
  if (s->size < 0 || (s->n < 1 && s->size > 0) ||
      !(fabs(s->start) < INFINITY) || !(fabs(s->step) < INFINITY))
    return fli_fail(FL_EARG,
                    "%s: cannot make %lld of %lld elements from %g by %g", op,
                    (long long)s->size, (long long)s->n, s->start, s->step);
  return FL_OK;
}

fl_status fli_shape_resample(fli_infer *c) {
  const fl_meta *x = c->in[0];
  sampling s = sampling_of(c->attrs->v, x);
  c->out[0].ndim = x->ndim;
  memcpy(c->out[0].shape, x->shape, sizeof x->shape);
  if (x->ndim)
    c->out[0].shape[s.dim] = s.size;
  return check_sampling(c->op->info.name, x, &s);
}

void fli_compose_resample(fli_composing *g) {
  fl_value x = g->in[0], p, y;
  if (!x.tensor) {
    fli_env_fail(&g->e, FL_EARG, "resample: x must be a tensor");
    return;
  }
  sampling all = sampling_of(g->attrs->v, fli_meta(x)), *s = &all;
  fl_dtype d = fli_meta(x)->dtype;
  if ((g->e.status = check_sampling("resample", fli_meta(x), s)))
    return;
  p = resample_places(g, s);
  if (s->mode == NEAREST) {
    y = resample_nearest(g, x, p, s);
  } else {
    x = fli_v_widened(&g->e, x);
    y = resample_between(g, x, p, s);
  }
  if (s->outside == s->outside) {
    fl_value in = RUN(eq, p, clamped(&g->e, p, 0, (double)(s->n - 1)));
    in = as_weights(g, CAST(in, FL_F32), CAST(y, FL_F32), s);
    y = RUN(where, CAST(in, FL_BOOL), y,
            fl_dtype_kind(d) != FL_KIND_FLOAT ? fli_integer((int64_t)s->outside)
                                              : NUM(s->outside));
  }
  g->out[0] = CAST(y, d);
}

/* size is that of x, the elements of dy are its results. */
fl_status fli_shape_resample_backward(fli_infer *c) {
  fl_meta x = *c->in[0];
  fl_attrs a;
  fl_attrs_copy(&a, c->attrs);
  int64_t dim = a.v[FL_ATTR_resampling_dim].i,
          n = a.v[FL_ATTR_resampling_size].i;
  if (x.ndim) {
    a.v[FL_ATTR_resampling_size].i = x.shape[dim];
    x.shape[dim] = n;
  }
  sampling s = sampling_of(a.v, &x);
  FLI_TRY(check_sampling("resample_backward", &x, &s));
  c->out[0].ndim = x.ndim;
  memcpy(c->out[0].shape, x.shape, sizeof x.shape);
  return FL_OK;
}

/* Of zeros: resample is linear. */
void fli_compose_resample_backward(fli_composing *g) {
  fl_value dy = g->in[0], x, dx = fli_none();
  fl_attrs a;
  if (!dy.tensor) {
    fli_env_fail(&g->e, FL_EARG, "resample_backward: dy must be a tensor");
    return;
  }
  fl_meta m = *fli_meta(dy);
  fli_infer c = {.op = g->op,
                 .in = (const fl_meta *[1]){fli_meta(dy)},
                 .out = &m,
                 .attrs = (fl_attrs *)(uintptr_t)g->attrs};
  if ((g->e.status = fli_shape_resample_backward(&c)))
    return;
  x = fli_v_zeros(&g->e, m.dtype, m.ndim, m.shape, fl_tensor_device(dy.tensor));
  fl_attrs_copy(&a, g->attrs);
  if (m.ndim)
    a.v[FL_ATTR_resampling_size].i =
        fli_meta(dy)->shape[a.v[FL_ATTR_resampling_dim].i];
  fli_composed_grad(&g->e, &g->e.rt->ops[FLI_OP_resample], &a, 1, &x,
                    (bool[1]){true}, &dy, &dx);
  g->out[0] = fli_nothing(dx) ? x : dx;
}

void fli_grad_resample(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  a.v[FL_ATTR_resampling_size].i =
      x->ndim ? x->shape[a.v[FL_ATTR_resampling_dim].i] : 1;
  g->dx[0] = RUN_A(resample_backward, &a, g->dy[0]);
}

void fli_grad_resample_backward(fli_grad *g) {
  const fl_meta *dy = &g->in_meta[0];
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  a.v[FL_ATTR_resampling_size].i =
      dy->ndim ? dy->shape[a.v[FL_ATTR_resampling_dim].i] : 1;
  if (a.v[FL_ATTR_resampling_outside].f == a.v[FL_ATTR_resampling_outside].f)
    a.v[FL_ATTR_resampling_outside].f =
        0; /* what is outside depends on nothing */
  g->dx[0] = RUN_A(resample, &a, g->dy[0]);
}

/* --- over all dims of space --- */

enum { BY_NEAREST, BY_NEAREST_EXACT, BY_LINEAR, BY_CUBIC, BY_AREA };

/* Elements j of the result and start + j step of x are at the same place. */
static void resample_align(sampling *s, int mode, double scale, bool corners) {
  double step = scale > 0 ? 1 / scale : (double)s->n / (double)s->size;
  s->mode = mode == BY_LINEAR ? LINEAR : mode == BY_CUBIC ? CUBIC : NEAREST;
  s->step = step;
  s->start = mode == BY_NEAREST         ? 0
             : mode == BY_NEAREST_EXACT ? step / 2
                                        : step / 2 - 0.5;
  if (corners && s->mode != NEAREST) {
    s->start = 0;
    s->step = s->size > 1 ? (double)(s->n - 1) / (double)(s->size - 1) : 0;
  }
}

/* Results along dim k of n of space; false after a failure. */
static bool size_of(fli_composing *g, int k, int64_t have, double scale,
                    int64_t *size) {
  int given;
  const int64_t *list =
      fl_attr_list(g->attrs, FL_ATTR_interpolate_size, &given);
  if (given)
    *size = list[given > 1 ? k : 0];
  else if (scale > 0 && scale * (double)have < 0x1p31)
    *size = (int64_t)floor((double)have * scale);
  else
    *size = 0;
  if (*size >= 1)
    return true;
  fli_env_fail(&g->e, FL_EARG,
               "interpolate: needs a size or a scale that give at least 1 "
               "element each, got %lld for a dim of %lld",
               (long long)*size, (long long)have);
  return false;
}

/* The next dim to resample: the one that shrinks most; of equal ones that grow
 * the last, so that most of the work is on whole rows. */
static int next_dim(int n, const int64_t *have, const int64_t *sizes,
                    const bool *done) {
  int best = -1;
  double least = 0;
  for (int k = 0; k < n; k++) {
    double grows = (double)sizes[k] / (double)(have[k] > 0 ? have[k] : 1);
    if (done[k] ||
        (best >= 0 && (grows > least || (grows == least && grows < 1))))
      continue;
    best = k;
    least = grows;
  }
  return best;
}

void fli_compose_interpolate(fli_composing *g) {
  const fl_attr *a = g->attrs->v;
  fl_value x = g->in[0];
  const fl_meta *m = fli_meta(x);
  int n = m->ndim - 2, given = (int)a[FL_ATTR_interpolate_size].list.n,
      mode = (int)a[FL_ATTR_interpolate_mode].i;
  double scale = a[FL_ATTR_interpolate_scale].f;
  int64_t sizes[3];
  if (n < 1 || n > 3 || (given > 1 && given != n)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "interpolate: x must be (batch, channels, sizes) with 1 to 3 "
                 "sizes, and size one number or one for each, got %s and %d",
                 fli_shape_text(m->ndim, m->shape), given);
    return;
  }
  for (int k = 0; k < n; k++)
    if (!size_of(g, k, m->shape[k + 2], scale, &sizes[k]))
      return;
  if (mode == BY_AREA) {
    fl_attrs pool = fli_attrs(&g->e, FLI_OP_adaptive_avg_pool);
    fli_set_list(&g->e, &pool, FL_ATTR_adaptive_avg_pool_size, n, sizes);
    g->out[0] = RUN_A(adaptive_avg_pool, &pool, x);
    return;
  }
  if (mode == BY_LINEAR || mode == BY_CUBIC)
    x = fli_v_widened(&g->e, x);
  bool done[3] = {false}, antialias = a[FL_ATTR_interpolate_antialias].i != 0;
  for (int left = n; left > 0 && g->e.status == FL_OK; left--) {
    int k = next_dim(n, m->shape + 2, sizes, done);
    done[k] = true;
    sampling s = {.n = m->shape[k + 2], .size = sizes[k]};
    resample_align(&s, mode, given ? 0 : scale,
                   a[FL_ATTR_interpolate_align_corners].i != 0);
    if (s.size == s.n && s.start == 0 && (s.step == 1 || s.n <= 1))
      continue;
    fl_attrs along = fli_attrs(&g->e, FLI_OP_resample);
    along.v[FL_ATTR_resample_dim].i = k + 2;
    along.v[FL_ATTR_resample_size].i = s.size;
    along.v[FL_ATTR_resample_start].f = s.start;
    along.v[FL_ATTR_resample_step].f = s.step;
    along.v[FL_ATTR_resample_mode].i = s.mode;
    along.v[FL_ATTR_resample_cubic].f = antialias ? -0.5 : -0.75;
    along.v[FL_ATTR_resample_antialias].i =
        along.v[FL_ATTR_resample_exclude_outside].i = antialias;
    x = RUN_A(resample, &along, x);
  }
  x = CAST(x, m->dtype);
  fl_tensor *t = x.tensor;
  bool images = t && fli_channels_last(t);
  g->out[0] = images ? x : RUN(contiguous, x);
}

/* --- at any place --- */

enum { ZEROS, BORDER, REFLECTION };

typedef struct axis { /* what is read along one dim of space, by result */
  int n;              /* how many elements */
  fl_value at[4], weight[4];
} axis;

/* c reflected at low and high. */
static fl_value resample_reflected(fli_composing *g, fl_value c, double low,
                                   double high) {
  double span = high - low;
  if (span <= 0)
    return MUL(c, NUM(0));
  c = SUB(c, NUM(low));
  c = RUN(where, RUN(lt, c, NUM(0)), NEG(c), c);
  fl_value extra = RUN(fmod, c, NUM(span));
  fl_value turns = RUN(fmod, RUN(floor, DIV(c, NUM(span))), NUM(2));
  return RUN(where, RUN(eq, turns, NUM(0)), ADD(extra, NUM(low)),
             SUB(NUM(high), extra));
}

/* Coordinates c mapped into x, as the padding mode says. */
static fl_value resample_inside(fli_composing *g, fl_value c, int64_t size,
                                int padding, bool corners) {
  if (padding == ZEROS)
    return c;
  if (padding == REFLECTION)
    c = resample_reflected(g, c, corners ? 0 : -0.5,
                           (double)size - (corners ? 1 : 0.5));
  fl_value last = NUM((double)(size - 1));
  c = RUN(where, RUN(lt, c, NUM(0)), NUM(0), c); /* derivatives of any order */
  return RUN(where, RUN(gt, c, last), last, c);
}

static void read_axis(fli_composing *g, fl_value c, int64_t size, axis *r) {
  int mode = (int)g->attrs->v[FL_ATTR_grid_sample_mode].i,
      padding = (int)g->attrs->v[FL_ATTR_grid_sample_padding].i;
  bool corners = g->attrs->v[FL_ATTR_grid_sample_align_corners].i != 0;
  double last = (double)(size - 1);
  c = corners
          ? MUL(ADD(c, NUM(1)), NUM(last / 2))
          : DIV(SUB(MUL(ADD(c, NUM(1)), NUM((double)size)), NUM(1)), NUM(2));
  if (mode != CUBIC)
    c = resample_inside(g, c, size, padding, corners);
  fl_value low = RUN(floor, c), t = SUB(c, low), u = SUB(NUM(1), t);
  r->n = mode == NEAREST ? 1 : mode == LINEAR ? 2 : 4;
  for (int k = 0; k < r->n; k++)
    r->at[k] = ADD(low, NUM(mode == CUBIC ? k - 1 : k));
  r->weight[0] = u;
  r->weight[1] = t;
  if (mode == NEAREST) {
    r->at[0] = RUN(round, c);
    r->weight[0] = fli_none();
  } else if (mode == CUBIC) {
    r->weight[0] = far_weight(g, ADD(t, NUM(1)), -0.75);
    r->weight[1] = near_weight(g, t, -0.75);
    r->weight[2] = near_weight(g, u, -0.75);
    r->weight[3] = far_weight(g, ADD(u, NUM(1)), -0.75);
  }
  for (int k = 0; k < r->n; k++) {
    fl_value at = mode == CUBIC
                      ? resample_inside(g, r->at[k], size, padding, corners)
                      : r->at[k];
    fl_value held = clamped(&g->e, at, 0, last);
    fl_value in = padding == ZEROS ? RUN(eq, at, held) : fli_none();
    if (padding == ZEROS)
      r->weight[k] = mode == NEAREST ? CAST(in, fli_meta(c)->dtype)
                                     : RUN(where, in, r->weight[k], NUM(0));
    r->at[k] = CAST(mode == CUBIC ? RUN(round, held) : held, FL_I64);
  }
}

/* Sums elements of all axes, from axis k on, which `at` and `weight` of those
 * before lead to. rows: (elements of space, channels). */
static fl_value read_at(fli_composing *g, fl_value rows, int n, const axis *r,
                        const int64_t *size, fl_value first) {
  fl_value sum = fli_none();
  int combinations = 1;
  for (int k = 0; k < n; k++)
    combinations *= r[k].n;
  for (int c = 0; c < combinations && g->e.status == FL_OK; c++) {
    fl_value at = fli_none(), weight = fli_none();
    for (int k = n - 1, rest = c; k >= 0; k--) { /* the outermost dim is last */
      const axis *a = &r[k];
      int j = rest % a->n;
      rest /= a->n;
      at = k == n - 1 ? a->at[j] : ADD(MUL(at, fli_integer(size[k])), a->at[j]);
      if (!fli_nothing(a->weight[j]))
        weight = fli_nothing(weight) ? a->weight[j] : MUL(weight, a->weight[j]);
    }
    fl_value v = select_at(&g->e, rows, 0, ADD(at, first));
    if (fli_nothing(weight)) /* 1: a single element */
      return v;
    weight = CAST(fli_v_unsqueeze(&g->e, weight, 1), fli_meta(v)->dtype);
    sum = fli_nothing(sum) ? MUL(v, weight) : RUN(addcmul, sum, v, weight);
  }
  return sum;
}

static fl_status check_grid(const char *op, const fl_attrs *a, const fl_meta *x,
                            const fl_meta *grid) {
  int n = x->ndim - 2;
  bool fits = (n == 2 || n == 3) && grid->ndim == n + 2 &&
              grid->shape[n + 1] == n && grid->shape[0] == x->shape[0];
  for (int d = 2; d < n + 2 && fits; d++)
    fits = x->shape[d] > 0;
  if (!fits)
    return fli_fail(FL_ESHAPE,
                    "%s: x must be (batch, channels, height, width) and grid "
                    "(batch, height, width, 2), or with depth and 3, got %s "
                    "and %s",
                    op, fli_shape_text(x->ndim, x->shape),
                    fli_shape_text(grid->ndim, grid->shape));
  if (n == 3 && a->v[FL_ATTR_grid_samples_mode].i == CUBIC)
    return fli_fail(FL_EARG, "%s: mode = bicubic is for 2 dims of space, not 3",
                    op);
  return FL_OK;
}

static void shape_of_samples(const fl_meta *x, const fl_meta *grid,
                             fl_meta *y) {
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof y->shape);
  for (int d = 2; d < x->ndim; d++)
    y->shape[d] = grid->shape[d - 1];
}

fl_status fli_shape_grid_sample(fli_infer *c) {
  FLI_TRY(check_grid("grid_sample", c->attrs, c->in[FL_IN_grid_sample_x],
                     c->in[FL_IN_grid_sample_grid]));
  shape_of_samples(c->in[FL_IN_grid_sample_x], c->in[FL_IN_grid_sample_grid],
                   &c->out[0]);
  return FL_OK;
}

static void copy_shape(fl_meta *to, const fl_meta *from) {
  to->ndim = from->ndim;
  memcpy(to->shape, from->shape, sizeof to->shape);
}

fl_status fli_shape_grid_sample_backward(fli_infer *c) {
  fl_meta y;
  FLI_TRY(check_grid("grid_sample_backward", c->attrs,
                     c->in[FL_IN_grid_sample_backward_x],
                     c->in[FL_IN_grid_sample_backward_grid]));
  shape_of_samples(c->in[FL_IN_grid_sample_backward_x],
                   c->in[FL_IN_grid_sample_backward_grid], &y);
  FLI_TRY(fli_fits(c, FL_IN_grid_sample_backward_dy, y.ndim, y.shape));
  copy_shape(&c->out[0], c->in[FL_IN_grid_sample_backward_x]);
  copy_shape(&c->out[FL_OUT_grid_sample_backward_dgrid],
             c->in[FL_IN_grid_sample_backward_grid]);
  return FL_OK;
}

void fli_grad_grid_sample(fli_grad *g) {
  fl_value both[FL_MAX_OUT];
  if (fli_nothing(g->dy[0]))
    return;
  RUN_ALL(grid_sample_backward, ATTRS_FOR(grid_sample_backward, grid_sample),
          both, g->dy[0], g->in[FL_IN_grid_sample_x],
          g->in[FL_IN_grid_sample_grid]);
  g->dx[FL_IN_grid_sample_x] = both[0];
  g->dx[FL_IN_grid_sample_grid] = both[FL_OUT_grid_sample_backward_dgrid];
}

void fli_compose_grid_sample_backward(fli_composing *g) {
  fl_value dx[2] = {fli_none(), fli_none()};
  fl_meta y[2];
  const fl_meta *in[3];
  fl_attrs a;
  for (int k = 0; k < 3; k++)
    in[k] = fli_meta(g->in[k]);
  fl_attrs_copy(&a, g->attrs);
  fli_infer c = {.op = g->op, .attrs = &a, .out = y, .in = in};
  if ((g->e.status = fli_shape_grid_sample_backward(&c)))
    return;
  const fl_value given[2] = {
      [FL_IN_grid_sample_x] = g->in[FL_IN_grid_sample_backward_x],
      [FL_IN_grid_sample_grid] = g->in[FL_IN_grid_sample_backward_grid]};
  fli_composed_grad(&g->e, &g->e.rt->ops[FLI_OP_grid_sample],
                    ATTRS_FOR(grid_sample, grid_sample_backward), 2, given,
                    (bool[2]){true, true},
                    &g->in[FL_IN_grid_sample_backward_dy], dx);
  for (int k = 0; k < 2; k++)
    if (fli_nothing(dx[k]))
      dx[k] = MUL(given[k], NUM(0));
  g->out[0] = dx[FL_IN_grid_sample_x];
  g->out[FL_OUT_grid_sample_backward_dgrid] = dx[FL_IN_grid_sample_grid];
}

void fli_grad_grid_sample_backward(fli_grad *g) {
  fli_composed_grad(&g->e, g->op, g->attrs, 3, g->in, g->need, g->dy, g->dx);
}

void fli_compose_grid_sample(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[FL_IN_grid_sample_x]),
                *s = fli_meta(g->in[FL_IN_grid_sample_grid]);
  int n = m->ndim - 2;
  int64_t size[3], order[FL_MAX_DIMS], shape[FL_MAX_DIMS];
  axis r[3];
  if ((g->e.status = check_grid("grid_sample", g->attrs, m, s)))
    return;
  fl_dtype d = m->dtype;
  fl_value x = fli_v_widened(&g->e, g->in[FL_IN_grid_sample_x]),
           grid = fli_v_widened(&g->e, g->in[FL_IN_grid_sample_grid]);
  int64_t space = fl_numel(n, m->shape + 2), batch = m->shape[0];
  int64_t results = fl_numel(n, s->shape + 1), all = batch * results;
  for (int k = 0; k < n; k++) { /* x of the grid goes along the last dim */
    size[k] = m->shape[m->ndim - 1 - k];
    fl_value c = fli_v_narrow(&g->e, grid, n + 1, k, 1, 1);
    read_axis(g, fli_v_reshape(&g->e, c, 1, &all), size[k], &r[k]);
  }
  order[0] = 0;
  for (int k = 0; k < n; k++)
    order[k + 1] = k + 2;
  order[n + 1] = 1;
  x = fli_v_permute(&g->e, x, order);
  x = fli_v_reshape(&g->e, x, 2, (int64_t[]){batch * space, m->shape[1]});
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)batch;
  fl_value first = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  first = ADD(MUL(first, fli_integer(space)), fli_integer(g->e.base));
  first = fli_v_expand(&g->e, fli_v_unsqueeze(&g->e, first, 1), 2,
                       (int64_t[]){batch, results});
  first = fli_v_reshape(&g->e, first, 1, &all);
  fl_value y = read_at(g, x, n, r, size, first);
  memcpy(shape, s->shape, (size_t)(n + 1) * sizeof *shape);
  shape[n + 1] = m->shape[1];
  y = fli_v_reshape(&g->e, CAST(y, d), n + 2, shape);
  order[1] = n + 1;
  for (int k = 0; k < n; k++)
    order[k + 2] = k + 1;
  g->out[0] = RUN(contiguous, fli_v_permute(&g->e, y, order));
}
