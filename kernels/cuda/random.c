/* Launches of the random rows. Nothing waits for the device: values that a row
 * refuses (probabilities, weights) become errors through the error word. */
#include "driver/backend.h"
#include "order.h"
#include "random.h"

#include "../../runtime/math/math.h"

#include <stdio.h>
#include <string.h>

#define BLOCK 256

static random_number number_of(const fl_view *v) {
  if (flc_is_number(v))
    return (random_number){.value = flc_number_int(v)};
  return (random_number){.at = v->data, .dtype = v->dtype};
}

static flc_grid grid_of(int64_t threads) {
  int64_t blocks = fl_ceil_div(threads, BLOCK), most = 1 << 30;
  return (flc_grid){.x = (unsigned)(blocks < most ? blocks : most),
                    .block = BLOCK};
}

static bool is_float(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT;
}

/* The seed is input k. */
static fl_status random_draw(const fl_launch *l, const char *entry,
                             draw_args *a, int k) {
  const fl_view *y = &l->out[0];
  int size = (int)fl_dtype_size(y->dtype); /* a thread makes 16 bytes */
  fl_view rows; /* elements are counted in row-major order */
  bool turned = !fl_contiguous(y);
  a->seed = number_of(&l->in[k]);
  a->offset = number_of(&l->in[FL_IN_OFFSET(k)]);
  a->y = y->data;
  a->n = fl_view_numel(y);
  if (turned) {
    fl_view_copy(&rows, y);
    fl_row_major(y->ndim, y->shape, rows.stride);
    a->y = rows.data = fl_scratch_get(l, (size_t)(a->n * size));
    if (!a->y)
      return FL_ENOMEM;
  }
  a->wide = flc_aligned(a->x, size == 8 ? 32 : 16);
  if (a->n == 0)
    return FL_OK;
  flc_spec spec = FLC_SPEC("random", entry, y->dtype);
  flc_grid g = grid_of(fl_ceil_div(a->n, 16 / size));
  /* without an input there is nothing to wait for, and what a thread does once
   * is as long as a few turns */
  unsigned full = (unsigned)flc_chip_of(l)->processors * 2048 / BLOCK;
  if (!a->x && g.x > full)
    g.x = full;
  fl_status s = FLC_RUN(l, spec, g, *a);
  return s == FL_OK && turned ? flc_move(l, y, &rows) : s;
}

/* --- rand, randn, randint --- */

/* The greatest number of a dtype below x: rounding must not reach the end of a
 * half-open range. */
static double random_below(fl_dtype d, double x) {
  if (d == FL_F64)
    return nextafter(x, -INFINITY);
  float f = (float)x;
  f = (double)f < x ? f : nextafterf(f, -INFINITY);
  if (d == FL_F32)
    return f;
  uint16_t h = d == FL_F16 ? fl_to_f16(f) : fl_to_bf16(f);
  float back = d == FL_F16 ? fl_from_f16(h) : fl_from_bf16(h);
  if (back > f) /* one step towards zero, or away from it below zero */
    h = (uint16_t)(h == 0 ? 0x8001 : h & 0x8000 ? h + 1 : h - 1);
  return d == FL_F16 ? fl_from_f16(h) : fl_from_bf16(h);
}

FLC_KERNEL(rand) {
  double low = l->attrs->v[FL_ATTR_rand_low].f,
         high = l->attrs->v[FL_ATTR_rand_high].f;
  if (!(low <= high) || !(high - low < INFINITY))
    return fli_fail(FL_EARG, "rand: low must not be above high, got %g and %g",
                    low, high);
  draw_args a = {.low = low, .width = high - low};
  a.most = low < high ? random_below(l->out[0].dtype, high) : high;
  return random_draw(l, "rand", &a, FL_IN_rand_seed);
}

FLC_KERNEL(randn) {
  draw_args a = {.low = l->attrs->v[FL_ATTR_randn_mean].f,
                 .width = l->attrs->v[FL_ATTR_randn_std].f};
  if (!(a.width >= 0))
    return fli_fail(FL_EARG, "randn: std must be at least 0, got %g", a.width);
  return random_draw(l, "randn", &a, FL_IN_randn_seed);
}

FLC_KERNEL(randint) {
  const fl_attr *t = l->attrs->v;
  draw_args a = {.first = t[FL_ATTR_randint_low].i};
  a.range =
      (uint64_t)t[FL_ATTR_randint_high].i - (uint64_t)t[FL_ATTR_randint_low].i;
  return random_draw(l, "randint", &a, FL_IN_randint_seed);
}

/* --- others, of a uniform number each or of a normal one --- */

FLC_KERNEL(exponential) {
  double rate = l->attrs->v[FL_ATTR_exponential_rate].f;
  draw_args a = {.width = 1 / rate};
  if (!(rate > 0 && rate < INFINITY))
    return fli_fail(FL_EARG, "exponential: rate must be above 0, got %g", rate);
  return random_draw(l, "exponential", &a, FL_IN_exponential_seed);
}

FLC_KERNEL(cauchy) {
  draw_args a = {.low = l->attrs->v[FL_ATTR_cauchy_median].f,
                 .width = l->attrs->v[FL_ATTR_cauchy_sigma].f};
  if (!(a.width > 0))
    return fli_fail(FL_EARG, "cauchy: sigma must be above 0, got %g", a.width);
  return random_draw(l, "cauchy", &a, FL_IN_cauchy_seed);
}

FLC_KERNEL(log_normal) {
  draw_args a = {.low = l->attrs->v[FL_ATTR_log_normal_mean].f,
                 .width = l->attrs->v[FL_ATTR_log_normal_std].f};
  if (!(a.width >= 0))
    return fli_fail(FL_EARG, "log_normal: std must be at least 0, got %g",
                    a.width);
  return random_draw(l, "log_normal", &a, FL_IN_log_normal_seed);
}

FLC_KERNEL(geometric) {
  double p = l->attrs->v[FL_ATTR_geometric_p].f;
  draw_args a = {.width = -1 / log1p(-p)};
  if (!(p > 0 && p <= 1))
    return fli_fail(FL_EARG,
                    "geometric: p must be above 0 and at most 1, got %g", p);
  return random_draw(l, "geometric", &a, FL_IN_geometric_seed);
}

/* --- randperm --- */

static fl_status shuffle(const fl_launch *l, shuffle_args *a, fl_dtype d) {
  flc_spec places = FLC_SPEC("random", "places", d);
  flc_spec groups = FLC_SPEC("random", "groups", d);
  flc_spec follow = FLC_SPEC("random", "follow", d);
  size_t n = (size_t)a->n;
  flc_order o = {.dtype = d, .rows = 1, .n = a->n, .k = a->n};
  a->place = fl_scratch_get(l, n * fl_dtype_size(d));
  o.x = a->place;
  a->sorted = o.values = fl_scratch_get(l, n * fl_dtype_size(d));
  a->steps = o.indices = fl_scratch_get(l, n * sizeof *a->steps);
  a->slot = fl_scratch_get(l, n * sizeof *a->slot);
  a->group = fl_scratch_get(l, n * sizeof *a->group);
  o.bytes = flc_order_bytes(a->n);
  if (!a->place || !a->sorted || !a->steps || !a->slot || !a->group)
    return FL_ENOMEM;
  fl_status s = flc_zero(l, a->group, n * sizeof *a->group);
  if (s == FL_OK)
    s = FLC_RUN(l, places, grid_of(fl_ceil_div(a->n, 4)), *a);
  if (s == FL_OK)
    s = flc_order_rows(l, &o);
  if (s == FL_OK)
    s = FLC_RUN(l, groups, grid_of(a->n), *a);
  return s == FL_OK ? FLC_RUN(l, follow, grid_of(a->n), *a) : s;
}

FLC_KERNEL(randperm) {
  const fl_view *y = &l->out[0];
  shuffle_args a = {.seed = number_of(&l->in[FL_IN_randperm_seed]),
                    .offset = number_of(&l->in[FL_IN_randperm_offset]),
                    .y = y->data,
                    .n = y->shape[0],
                    .base = l->base,
                    .dtype = y->dtype};
  if (a.n == 0)
    return FL_OK;
  return shuffle(l, &a, a.n <= INT32_MAX ? FL_I32 : FL_I64);
}

/* --- bernoulli, dropout --- */

/* What the error word says, in the CPU's words. */
fl_status flc_value_refused(const char *op, int64_t bits, int64_t code) {
  static const char *const says[] = {
      "%g is not a probability (0 to 1)", "%g is no shape (above 0, finite)",
      "%g is no rate (0 or more, finite)",
      "weights must be finite and not negative, got %g",
      "the weights of a row sum to %g"};
  double value;
  char text[80];
  memcpy(&value, &bits, sizeof value);
  int64_t what = (code - INT64_MIN) % 16, draws = (code - INT64_MIN) / 16;
  if (what >= REFUSED_FEW)
    return fli_fail(FL_EARG,
                    "%s: %lld draws without replacement from %.0f classes with "
                    "a weight",
                    op, (long long)draws, value);
  if (what == REFUSED_BCE)
    return fli_fail(FL_EARG, FL_BCE_REFUSES, value);
  snprintf(text, sizeof text, says[what], value);
  return fli_fail(FL_EARG, "%s: %s", op, text);
}

_Static_assert(FL_IN_bernoulli_p == FL_IN_gamma_alpha &&
                   FL_IN_bernoulli_p == FL_IN_poisson_rate &&
                   FL_IN_bernoulli_seed == FL_IN_gamma_seed &&
                   FL_IN_bernoulli_seed == FL_IN_poisson_seed,
               "one function for three rows");

/* Of each element of the input by itself. */
static fl_status draw_of(const fl_launch *l, const char *entry) {
  const fl_view *p = &l->in[FL_IN_bernoulli_p];
  draw_args a = {.x = flc_input(l, p, p->dtype), .fault = flc_fault_of(l)};
  return a.x ? random_draw(l, entry, &a, FL_IN_bernoulli_seed) : FL_ENOMEM;
}

FLC_KERNEL(bernoulli) {
  return draw_of(l, "bernoulli");
}

FLC_KERNEL(gamma) {
  return draw_of(l, "gammas");
}

FLC_KERNEL(poisson) {
  return draw_of(l, "poissons");
}

_Static_assert(FL_IN_dropout_x == FL_IN_dropout_backward_dy &&
                   FL_IN_dropout_seed == FL_IN_dropout_backward_seed &&
                   FL_ATTR_dropout_p == FL_ATTR_dropout_backward_p,
               "one function for both rows");

static fl_status random_drop(const fl_launch *l) {
  const fl_view *x = &l->in[FL_IN_dropout_x], *y = &l->out[0];
  double p = l->attrs->v[FL_ATTR_dropout_p].f;
  if (!(p >= 0 && p <= 1))
    return fli_fail(FL_EARG, "%s: p must be from 0 to 1, got %g", l->op, p);
  uint64_t limit = (uint64_t)rint(p * 0x1p16);
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (limit == 0)
    return flc_move(l, y, x);
  if (limit >> 16)
    return flc_zero(l, y->data,
                    (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype));
  draw_args a = {.x = flc_input(l, x, x->dtype),
                 .width = 1 / (1 - p),
                 .limit = (uint32_t)limit};
  return a.x ? random_draw(l, "dropout", &a, FL_IN_dropout_seed) : FL_ENOMEM;
}

FLC_KERNEL(dropout) {
  return random_drop(l);
}

/* The forward pass once more, on dy. */
FLC_KERNEL(dropout_backward) {
  return random_drop(l);
}

/* --- multinomial --- */

FLC_KERNEL(multinomial) {
  const fl_view *p = &l->in[FL_IN_multinomial_p];
  flc_spec sums = FLC_SPEC("random", "sums", 0);
  flc_spec replace = FLC_SPEC("random", "replace", 0);
  flc_spec race = FLC_SPEC("random", "race", 0);
  sample_args a = {.seed = number_of(&l->in[FL_IN_multinomial_seed]),
                   .offset = number_of(&l->in[FL_IN_multinomial_offset]),
                   .rows = p->ndim == 2 ? p->shape[0] : 1,
                   .classes = p->shape[p->ndim - 1],
                   .n = l->attrs->v[FL_ATTR_multinomial_n].i,
                   .base = l->base,
                   .y = l->out[0].data,
                   .replacement =
                       l->attrs->v[FL_ATTR_multinomial_replacement].i != 0,
                   .fault = flc_fault_of(l)};
  if (a.rows == 0)
    return FL_OK;
  if (!a.replacement && a.n > a.classes)
    return fli_fail(FL_EARG,
                    "multinomial: %lld draws without replacement from %lld "
                    "classes",
                    (long long)a.n, (long long)a.classes);
  unsigned block = a.classes > 256 ? 1024 : 128;
  bool few = (a.n == 1 || a.replacement) && a.n <= SAMPLE_DRAWS &&
             a.classes <= (int64_t)SAMPLE_TILES * SAMPLE_EACH * block;
  fl_dtype d = few && is_float(p->dtype) ? p->dtype : FL_F64;
  a.p = flc_input(l, p, d);
  if (!few)
    a.sums = fl_scratch_get(l, (size_t)(a.rows * a.classes) * sizeof(double));
  if (!a.p || !(few || a.sums))
    return FL_ENOMEM;
  flc_grid each = {.x = (unsigned)a.rows, .block = block};
  if (few) {
    flc_spec random_draw = FLC_SPEC("random", "draw", d);
    return FLC_RUN(l, random_draw, each, a);
  }
  fl_status s = FLC_RUN(l, sums, each, a);
  if (s != FL_OK || a.n == 0)
    return s;
  if (a.replacement || a.n == 1)
    return FLC_RUN(l, replace, grid_of(a.rows * a.n), a);
  s = FLC_RUN(l, race, grid_of(a.rows * a.classes), a);
  flc_order o = {.dtype = FL_F64,
                 .x = a.sums,
                 .rows = a.rows,
                 .n = a.classes,
                 .k = a.n,
                 .base = l->base,
                 .indices = a.y};
  return s == FL_OK ? flc_order_rows(l, &o) : s;
}

void flc_visit_random(flc_visitor *v) {
  static const char *const floats[] = {"rand",    "randn",      "exponential",
                                       "cauchy",  "log_normal", "bernoulli",
                                       "dropout", "gammas",     "poissons"};
  static const char *const steps[] = {"places", "groups", "follow"};
  static const char *const samples[] = {"sums", "replace", "race"};
  FL_EACH_DTYPE(d, fl_dtype_is_real) {
    flc_spec s = FLC_SPEC("random", "randint", d);
    v->spec(v, &s, d == FL_I64);
    s = FLC_SPEC("random", "geometric", d);
    v->spec(v, &s, d == FL_I64);
    for (int i = 0; i < 9 && is_float((fl_dtype)d); i++) {
      s = FLC_SPEC("random", floats[i], d);
      v->spec(v, &s, d == FL_F32);
    }
  }
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    flc_spec s = FLC_SPEC("random", "draw", d);
    v->spec(v, &s, d == FL_F32);
  }
  for (int i = 0; i < 3; i++) {
    flc_spec s = FLC_SPEC("random", steps[i], FL_I32);
    v->spec(v, &s, true);
    s = FLC_SPEC("random", samples[i], 0);
    v->spec(v, &s, true);
  }
}
