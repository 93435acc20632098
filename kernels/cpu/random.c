/* Random numbers: rand, randn and their like, randint, randperm, bernoulli,
 * gamma, poisson, dropout and multinomial. Element e takes its bits from Philox
 * counter offset + e / 4, word e % 4 (f64: offset + e / 2, two words; dropout:
 * half a word, so offset
 * + e / 8), so numbers depend neither on threads nor on the device, and f16 and
 * bf16 get f32's rounded. What needs
 * more bits takes the same counter's other streams. Blocks always start at the
 * same elements and are made whole, so that vector loops have no tails whose
 * functions round differently. */
#include "move.h"
#include "near.h"
#include "philox.h"

#include <float.h>
#include <stdio.h>

#define COUNTERS FL_PHILOX_COUNTERS
#define WORDS    FL_PHILOX_WORDS
#define HALVES   (2 * WORDS)
#define PIECE    128  /* blocks a thread takes at once */
enum { near = true }; /* all angles are of one turn */

typedef struct drawing drawing;
struct drawing {
  /* makes the elements of block b: `out` has room for a whole block */
  void (*block)(const drawing *c, int64_t b, void *out);
  uint64_t seed, offset;
  double p[3]; /* low, width, most; mean, std; scale */
  int64_t low;
  uint64_t range, limit;
  int64_t n, per; /* elements in all, and of a block */
  fl_dtype made;  /* what `block` makes */
  const void *in; /* as `made`, contiguous; may be NULL */
  const fl_view *y;
};

static void draw_task(void *context, int64_t begin, int64_t end) {
  const drawing *c = context;
  int64_t size = (int64_t)fl_dtype_size(c->y->dtype);
  union {
    double f[2 * WORDS];
    int64_t i[WORDS];
  } u;
  for (int64_t b = begin; b < end; b++) {
    int64_t start = b * c->per, n = c->n - start;
    char *y = (char *)c->y->data + start * size;
    if (n >= c->per && c->made == c->y->dtype) {
      c->block(c, b, y);
      continue;
    }
    c->block(c, b, &u);
    FL_CPU(convert)(n < c->per ? n : c->per, c->y->dtype, y, c->made, &u);
  }
}

/* The seed is input k. */
static fl_status random_draw(const fl_launch *l, drawing *c, int k, int64_t per,
                             fl_dtype made) {
  c->seed = (uint64_t)fl_cpu_scalar_int(&l->in[k]);
  c->offset = (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_OFFSET(k)]);
  fl_view rows; /* elements are counted in row-major order */
  const fl_view *y = &l->out[0];
  c->y = y;
  c->n = fl_view_numel(y);
  c->per = per;
  c->made = made;
  if (fl_contiguous(y))
    return fl_cpu_stoppable(l, fl_ceil_div(c->n, per), PIECE, draw_task, c);
  fl_view_copy(&rows, y);
  fl_row_major(y->ndim, y->shape, rows.stride);
  rows.data = fl_scratch_get(l, fl_view_bytes(y));
  if (!rows.data)
    return FL_ENOMEM;
  c->y = &rows;
  fl_status s =
      fl_cpu_stoppable(l, fl_ceil_div(c->n, per), PIECE, draw_task, c);
  if (s == FL_OK)
    FL_CPU(move_view)(l, y, &rows);
  return s;
}

/* --- rand --- */

/* The greatest number of a dtype below x: rounding must not reach the end of a
 * half-open range. */
static double random_below(fl_dtype d, double x) {
  if (d == FL_F64)
    return nextafter(x, -INFINITY);
  float f = (float)x;
  f = (double)f < x ? f : nextafterf(f, -INFINITY);
  if (d == FL_F32)
    return f;
  uint16_t h;
  FL_CPU(convert)(1, d, &h, FL_F32, &f);
  float back = d == FL_F16 ? fl_from_f16(h) : fl_from_bf16(h);
  if (back > f) /* one step towards zero, or away from it below zero */
    h = (uint16_t)(h == 0 ? 0x8001 : h & 0x8000 ? h + 1 : h - 1);
  return d == FL_F16 ? fl_from_f16(h) : fl_from_bf16(h);
}

static void rand_f32(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  float *y = out, low = (float)c->p[0], width = (float)c->p[1];
  float most = (float)c->p[2];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
  for (int i = 0; i < WORDS; i++) {
    float v = low + width * fl_uniform24(w[i]);
    y[i] = v < most ? v : most;
  }
}

static void rand_f64(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  double *y = out, low = c->p[0], width = c->p[1], most = c->p[2];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
  for (int i = 0; i < WORDS / 2; i++) {
    double v = low + width * fl_uniform53(w[2 * i], w[2 * i + 1]);
    y[i] = v < most ? v : most;
  }
}

FL_KERNEL(rand) {
  bool wide = l->out[0].dtype == FL_F64;
  double low = l->attrs->v[FL_ATTR_rand_low].f,
         high = l->attrs->v[FL_ATTR_rand_high].f;
  if (!(low <= high) || !(high - low < INFINITY))
    return fli_fail(FL_EARG, "rand: low must not be above high, got %g and %g",
                    low, high);
  drawing c = {.block = wide ? rand_f64 : rand_f32, .p = {low, high - low}};
  c.p[2] = low < high ? random_below(l->out[0].dtype, high) : high;
  return random_draw(l, &c, 0, wide ? WORDS / 2 : WORDS,
                     wide ? FL_F64 : FL_F32);
}

/* --- randn --- */

/* Box and Muller: two words make two numbers. The logarithm's argument is in
 * (0, 1]; sine and cosine have loops of their own, or the compiler would join
 * them into one call that has no vector form. */
static void randn_f32(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  float r[WORDS / 2], t[WORDS / 2];
  float *y = out, mean = (float)c->p[0], std = (float)c->p[1];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++) {
    float u = ((float)w[2 * i] + 0.5f) * 0x1p-32f;
    r[i] = std * fl_sqrt(-2 * fl_log(u));
    t[i] = (float)(2 * FL_PI) * fl_uniform24(w[2 * i + 1]);
  }
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++)
    y[2 * i] = mean + r[i] * fl_cos(t[i]);
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++)
    y[2 * i + 1] = mean + r[i] * fl_sin(t[i]);
}

static void randn_f64(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  double r[WORDS / 4], t[WORDS / 4];
  double *y = out, mean = c->p[0], std = c->p[1];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS / 4; i++) {
    double u = fl_uniform53(w[4 * i], w[4 * i + 1]) + 0x1p-54;
    r[i] = std * fl_sqrt(-2 * fl_log(u));
    t[i] = 2 * FL_PI * fl_uniform53(w[4 * i + 2], w[4 * i + 3]);
  }
#pragma omp simd
  for (int i = 0; i < WORDS / 4; i++)
    y[2 * i] = mean + r[i] * fl_cos(t[i]);
#pragma omp simd
  for (int i = 0; i < WORDS / 4; i++)
    y[2 * i + 1] = mean + r[i] * fl_sin(t[i]);
}

FL_KERNEL(randn) {
  bool wide = l->out[0].dtype == FL_F64;
  drawing c = {.block = wide ? randn_f64 : randn_f32,
               .p = {l->attrs->v[FL_ATTR_randn_mean].f,
                     l->attrs->v[FL_ATTR_randn_std].f}};
  if (!(c.p[1] >= 0))
    return fli_fail(FL_EARG, "randn: std must be at least 0, got %g", c.p[1]);
  return random_draw(l, &c, 0, wide ? WORDS / 2 : WORDS,
                     wide ? FL_F64 : FL_F32);
}

/* --- others, of one uniform number each or of a normal one --- */

static void exponential_f32(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  float *y = out, random_scale = (float)c->p[0];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS; i++)
    y[i] = random_scale * fl_exponential_f32(w[i]);
}

static void exponential_f64(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  double *y = out, random_scale = c->p[0];
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++)
    y[i] = random_scale * fl_exponential_f64(w[2 * i], w[2 * i + 1]);
}

FL_KERNEL(exponential) {
  bool wide = l->out[0].dtype == FL_F64;
  double rate = l->attrs->v[FL_ATTR_exponential_rate].f;
  drawing c = {.block = wide ? exponential_f64 : exponential_f32,
               .p = {1 / rate}};
  if (!(rate > 0 && rate < INFINITY))
    return fli_fail(FL_EARG, "exponential: rate must be above 0, got %g", rate);
  return random_draw(l, &c, 0, wide ? WORDS / 2 : WORDS,
                     wide ? FL_F64 : FL_F32);
}

/* The tangent needs its digits near the ends: in double. */
static void cauchy_f32(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  float *y = out;
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS; i++)
    y[i] =
        (float)(c->p[0] + c->p[1] * fl_tan(FL_PI * (fl_inside32(w[i]) - 0.5)));
}

static void cauchy_f64(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  double *y = out;
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++) {
    double u = fl_inside53(w[2 * i], w[2 * i + 1]);
    y[i] = c->p[0] + c->p[1] * fl_tan(FL_PI * (u - 0.5));
  }
}

FL_KERNEL(cauchy) {
  bool wide = l->out[0].dtype == FL_F64;
  drawing c = {.block = wide ? cauchy_f64 : cauchy_f32,
               .p = {l->attrs->v[FL_ATTR_cauchy_median].f,
                     l->attrs->v[FL_ATTR_cauchy_sigma].f}};
  if (!(c.p[1] > 0))
    return fli_fail(FL_EARG, "cauchy: sigma must be above 0, got %g", c.p[1]);
  return random_draw(l, &c, 0, wide ? WORDS / 2 : WORDS,
                     wide ? FL_F64 : FL_F32);
}

static void log_normal_f32(const drawing *c, int64_t b, void *out) {
  float *y = out;
  randn_f32(c, b, out);
#pragma omp simd
  for (int i = 0; i < WORDS; i++)
    y[i] = fl_exp(y[i]);
}

static void log_normal_f64(const drawing *c, int64_t b, void *out) {
  double *y = out;
  randn_f64(c, b, out);
#pragma omp simd
  for (int i = 0; i < WORDS / 2; i++)
    y[i] = fl_exp(y[i]);
}

FL_KERNEL(log_normal) {
  bool wide = l->out[0].dtype == FL_F64;
  drawing c = {.block = wide ? log_normal_f64 : log_normal_f32,
               .p = {l->attrs->v[FL_ATTR_log_normal_mean].f,
                     l->attrs->v[FL_ATTR_log_normal_std].f}};
  if (!(c.p[1] >= 0))
    return fli_fail(FL_EARG, "log_normal: std must be at least 0, got %g",
                    c.p[1]);
  return random_draw(l, &c, 0, wide ? WORDS / 2 : WORDS,
                     wide ? FL_F64 : FL_F32);
}

/* As many whole steps as an exponential number has; words of streams 0 and 1.
 */
static void geometric_block(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS], v[WORDS];
  double *y = out, random_scale = c->p[0];
  uint64_t counter = c->offset + (uint64_t)b * COUNTERS;
  fl_philox_block(c->seed, counter, 0, w);
  fl_philox_block(c->seed, counter, 1, v);
#pragma omp simd
  for (int i = 0; i < WORDS; i++)
    y[i] = 1 + fl_floor(random_scale * fl_exponential_f64(w[i], v[i]));
}

FL_KERNEL(geometric) {
  double p = l->attrs->v[FL_ATTR_geometric_p].f;
  drawing c = {.block = geometric_block, .p = {-1 / log1p(-p)}};
  if (!(p > 0 && p <= 1))
    return fli_fail(FL_EARG,
                    "geometric: p must be above 0 and at most 1, got %g", p);
  return random_draw(l, &c, 0, WORDS, FL_F64);
}

/* --- integers --- */

/* x scaled from [0, 2^64) to [0, range): the bias is below 2^-32 for ranges up
 * to 2^32. */
static inline uint64_t random_scale(uint64_t x, uint64_t range) {
  __extension__ typedef unsigned __int128 word;
  return (uint64_t)(((word)x * range) >> 64);
}

/* 64 bits for each element: its words in streams 0 and 1. */
static void randint_block(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS], v[WORDS];
  int64_t *y = out;
  uint64_t counter = c->offset + (uint64_t)b * COUNTERS, range = c->range;
  fl_philox_block(c->seed, counter, 0, w);
  fl_philox_block(c->seed, counter, 1, v);
  if (range >> 32)
    for (int i = 0; i < WORDS; i++)
      y[i] = (int64_t)((uint64_t)c->low +
                       random_scale((uint64_t)w[i] << 32 | v[i], range));
  else /* the same in two halves, which vectorises */
    for (int i = 0; i < WORDS; i++)
      y[i] = (int64_t)((uint64_t)c->low +
                       ((w[i] * range + (v[i] * range >> 32)) >> 32));
}

FL_KERNEL(randint) {
  const fl_attr *a = l->attrs->v;
  drawing c = {.block = randint_block, .low = a[FL_ATTR_randint_low].i};
  c.range =
      (uint64_t)a[FL_ATTR_randint_high].i - (uint64_t)a[FL_ATTR_randint_low].i;
  return random_draw(l, &c, 0, WORDS, FL_I64);
}

/* Fisher and Yates, from the inside out; one thread, since every step needs the
 * one before it. */
FL_KERNEL(randperm) {
  const fl_view *y = &l->out[0];
  int64_t n = y->shape[0], base = l->base;
  drawing c = {.seed = (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_randperm_seed]),
               .offset =
                   (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_randperm_offset])};
  int64_t *p = FL_CPU(output)(l, y, FL_I64);
  if (!p)
    return FL_ENOMEM;
  uint32_t w[WORDS], v[WORDS];
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i % WORDS;
    if (k == 0) {
      if (i % 65536 == 0 && fl_cpu_interrupted(l))
        return fl_cpu_stopped(l);
      fl_philox_block(c.seed, c.offset + (uint64_t)(i / 4), 0, w);
      fl_philox_block(c.seed, c.offset + (uint64_t)(i / 4), 1, v);
    }
    int64_t j =
        (int64_t)random_scale((uint64_t)w[k] << 32 | v[k], (uint64_t)i + 1);
    p[i] = p[j];
    p[j] = i + base;
  }
  FL_CPU(finish)(l, y, FL_I64, p);
  return FL_OK;
}

/* --- bernoulli, dropout --- */

/* The first element that is not in [low, high], or -1. */
#define FIRST_BAD(T, name)                                                     \
  static int64_t name(const void *x, int64_t n, T low, T high) {               \
    const T *p = x;                                                            \
    int bad = 0;                                                               \
    for (int64_t i = 0; i < n; i++)                                            \
      bad |= !(p[i] >= low && p[i] <= high);                                   \
    for (int64_t i = 0; bad && i < n; i++)                                     \
      if (!(p[i] >= low && p[i] <= high))                                      \
        return i;                                                              \
    return -1;                                                                 \
  }
FIRST_BAD(float, first_bad_f32)
FIRST_BAD(double, first_bad_f64)

/* The input as `wide`, all of it in [low, high]; `says` has a %g. */
static fl_status bounded(const fl_launch *l, drawing *c, fl_dtype wide,
                         double low, double high, const char *says) {
  int64_t n = fl_view_numel(&l->in[FL_IN_bernoulli_p]), bad;
  if (!(c->in = FL_CPU(input)(l, &l->in[FL_IN_bernoulli_p], wide)))
    return FL_ENOMEM;
  bad = wide == FL_F64 ? first_bad_f64(c->in, n, low, high)
                       : first_bad_f32(c->in, n, (float)low, (float)high);
  if (bad < 0)
    return FL_OK;
  char text[80];
  snprintf(text, sizeof text, says,
           wide == FL_F64 ? ((const double *)c->in)[bad]
                          : (double)((const float *)c->in)[bad]);
  return fli_fail(FL_EARG, "%s: %s", l->op, text);
}

static void bernoulli_f32(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  float *y = out;
  const float *p = (const float *)c->in + b * WORDS;
  int64_t n = c->n - b * WORDS;
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
  n = n < WORDS ? n : WORDS;
  for (int64_t i = 0; i < n; i++)
    y[i] = fl_uniform24(w[i]) < p[i] ? 1.0f : 0.0f;
}

static void bernoulli_f64(const drawing *c, int64_t b, void *out) {
  uint32_t w[WORDS];
  double *y = out;
  const double *p = (const double *)c->in + b * (WORDS / 2);
  int64_t n = c->n - b * (WORDS / 2);
  fl_philox_block(c->seed, c->offset + (uint64_t)b * COUNTERS, 0, w);
  n = n < WORDS / 2 ? n : WORDS / 2;
  for (int64_t i = 0; i < n; i++)
    y[i] = fl_uniform53(w[2 * i], w[2 * i + 1]) < p[i] ? 1.0 : 0.0;
}

FL_KERNEL(bernoulli) {
  fl_dtype wide = fl_cpu_wide(l->in[FL_IN_bernoulli_p].dtype);
  bool f64 = wide == FL_F64;
  drawing c = {.block = f64 ? bernoulli_f64 : bernoulli_f32};
  fl_status s = bounded(l, &c, wide, 0, 1, "%g is not a probability (0 to 1)");
  return s == FL_OK ? random_draw(l, &c, 1, f64 ? WORDS / 2 : WORDS, wide) : s;
}

/* By rejection: a few elements at a time, since each takes its while. What is
 * too small for the dtype becomes its least normal number, so that logarithms
 * exist. */
#define FEW 32
#define REJECT(T, name, f, least)                                              \
  static void name(const drawing *c, int64_t b, void *out) {                   \
    const T *p = (const T *)c->in + b * FEW;                                   \
    int64_t left = c->n - b * FEW, n = left < FEW ? left : FEW;                \
    for (int64_t i = 0; i < n; i++) {                                          \
      double v = f(c->seed, c->offset, (uint64_t)(b * FEW + i), (double)p[i]); \
      ((T *)out)[i] = (T)(v < least ? least : v);                              \
    }                                                                          \
  }
REJECT(float, gamma_f32, fl_draw_gamma, FLT_MIN)
REJECT(double, gamma_f64, fl_draw_gamma, DBL_MIN)
REJECT(float, poisson_f32, fl_draw_poisson, 0)
REJECT(double, poisson_f64, fl_draw_poisson, 0)

FL_KERNEL(gamma) {
  fl_dtype wide = fl_cpu_wide(l->in[FL_IN_gamma_alpha].dtype);
  bool f64 = wide == FL_F64;
  drawing c = {.block = f64 ? gamma_f64 : gamma_f32};
  fl_status s =
      bounded(l, &c, wide, f64 ? DBL_TRUE_MIN : FLT_TRUE_MIN,
              f64 ? DBL_MAX : FLT_MAX, "%g is no shape (above 0, finite)");
  return s == FL_OK ? random_draw(l, &c, 1, FEW, wide) : s;
}

FL_KERNEL(poisson) {
  fl_dtype wide = fl_cpu_wide(l->in[FL_IN_poisson_rate].dtype);
  bool f64 = wide == FL_F64;
  drawing c = {.block = f64 ? poisson_f64 : poisson_f32};
  fl_status s = bounded(l, &c, wide, 0, f64 ? DBL_MAX : FLT_MAX,
                        "%g is no rate (0 or more, finite)");
  return s == FL_OK ? random_draw(l, &c, 1, FEW, wide) : s;
}

/* An element stays when its half of a word is at least p * 2^16, whatever its
 * dtype. */
static void dropout_f32(const drawing *c, int64_t b, void *out) {
  uint16_t h[HALVES];
  float *y = out, s = (float)c->p[0];
  const float *x = (const float *)c->in + b * HALVES;
  uint32_t limit = (uint32_t)c->limit;
  int64_t n = c->n - b * HALVES;
  fl_philox_halves(c->seed, c->offset + (uint64_t)b * COUNTERS, h);
  if (n >= HALVES)
    for (int i = 0; i < HALVES; i++)
      y[i] = h[i] >= limit ? x[i] * s : 0;
  else
    for (int i = 0; i < n; i++)
      y[i] = h[i] >= limit ? x[i] * s : 0;
}

static void dropout_f64(const drawing *c, int64_t b, void *out) {
  uint16_t h[HALVES];
  double *y = out, s = c->p[0];
  const double *x = (const double *)c->in + b * HALVES;
  uint32_t limit = (uint32_t)c->limit;
  int64_t n = c->n - b * HALVES;
  fl_philox_halves(c->seed, c->offset + (uint64_t)b * COUNTERS, h);
  n = n < HALVES ? n : HALVES;
  for (int64_t i = 0; i < n; i++)
    y[i] = h[i] >= limit ? x[i] * s : 0;
}

FL_KERNEL(dropout) {
  const fl_view *x = &l->in[FL_IN_dropout_x], *y = &l->out[0];
  fl_dtype wide = fl_cpu_wide(x->dtype);
  drawing c = {.block = wide == FL_F64 ? dropout_f64 : dropout_f32};
  double p = l->attrs->v[FL_ATTR_dropout_p].f;
  if (!(p >= 0 && p <= 1))
    return fli_fail(FL_EARG, "%s: p must be from 0 to 1, got %g", l->op, p);
  c.limit = (uint64_t)rint(p * 0x1p16);
  if (c.limit == 0) {
    FL_CPU(move_view)(l, y, x);
    return FL_OK;
  }
  if (c.limit >> 16) {
    uint64_t zero = 0;
    FL_CPU(move_fill)
    (l, fl_dtype_size(y->dtype), fl_view_numel(y), y->data, &zero);
    return FL_OK;
  }
  c.p[0] = 1 / (1 - p);
  c.in = FL_CPU(input)(l, x, wide);
  if (!c.in)
    return FL_ENOMEM;
  return random_draw(l, &c, 1, HALVES, wide);
}

/* The forward pass once more, on dy. */
FL_KERNEL(dropout_backward) {
  return FL_CPU(dropout)(l);
}

/* --- multinomial --- */

typedef struct sampling {
  uint64_t seed, offset;
  const double *p; /* (rows, classes) */
  double *sums;    /* running sums of p, of each row */
  int64_t *y;      /* (rows, n) */
  int64_t classes, n, base;
} sampling;

/* Running sums of a row; fails when they make no distribution. */
static fl_status sum_row(const double *p, int64_t classes, int64_t n,
                         bool replacement, double *sums) {
  double sum = 0;
  int64_t some = 0;
  for (int64_t k = 0; k < classes; k++) {
    if (!(p[k] >= 0 && p[k] < INFINITY))
      return fli_fail(FL_EARG,
                      "multinomial: weights must be finite and not negative, "
                      "got %g",
                      p[k]);
    sum += p[k];
    sums[k] = sum;
    some += p[k] > 0;
  }
  if (some == 0 || !(sum < INFINITY))
    return fli_fail(FL_EARG, "multinomial: the weights of a row sum to %g",
                    sum);
  if (!replacement && n > some)
    return fli_fail(FL_EARG,
                    "multinomial: %lld draws without replacement from %lld "
                    "classes with a weight",
                    (long long)n, (long long)some);
  return FL_OK;
}

/* Rows by bisection of the running sums. */
static void replace_task(void *context, int64_t begin, int64_t end) {
  const sampling *c = context;
  for (int64_t e = begin; e < end; e++) {
    const double *sums = c->sums + e / c->n * c->classes;
    uint32_t high[4], low[4];
    fl_philox(c->seed, c->offset + (uint64_t)e / 4, 0, high);
    fl_philox(c->seed, c->offset + (uint64_t)e / 4, 1, low);
    double total = sums[c->classes - 1];
    double u = fl_uniform53(high[e % 4], low[e % 4]) * total;
    int64_t from = 0, to = c->classes - 1; /* the first sum above u */
    u = u < total ? u : nextafter(total, 0);
    while (from < to) {
      int64_t mid = from + (to - from) / 2;
      if (sums[mid] > u)
        to = mid;
      else
        from = mid + 1;
    }
    c->y[e] = from + c->base;
  }
}

/* A heap with the latest arrival on top. */
static void sift(double *time, int64_t *who, int64_t n, int64_t i) {
  double t = time[i];
  int64_t w = who[i];
  for (int64_t k; (k = 2 * i + 1) < n; i = k) {
    k += k + 1 < n && time[k + 1] > time[k];
    if (time[k] <= t)
      break;
    time[i] = time[k];
    who[i] = who[k];
  }
  time[i] = t;
  who[i] = w;
}

/* Without replacement: class k arrives after an exponential time of rate p[k],
 * and the first n are the draw, in that order (Efraimidis and Spirakis 2006).
 * Class k of row r has bits from streams 1 + (r * classes + k) / 2 of the first
 * counter. `time` is the row's room for n numbers. */
static void race(const sampling *c, int64_t r, double *time) {
  const double *p = c->p + r * c->classes;
  int64_t *who = c->y + r * c->n, m = 0;
  for (int64_t k = 0; k < c->classes; k++) {
    uint64_t e = (uint64_t)(r * c->classes + k);
    uint32_t w[4];
    if (p[k] == 0)
      continue;
    fl_philox(c->seed, c->offset, 1 + e / 2, w);
    double u = fl_uniform53(w[e % 2 * 2], w[e % 2 * 2 + 1]) + 0x1p-54;
    double t = -fl_log(u) / p[k];
    if (m < c->n) {
      time[m] = t;
      who[m++] = k;
      for (int64_t i = m / 2; m == c->n && i-- > 0;)
        sift(time, who, m, i);
    } else if (t < time[0]) {
      time[0] = t;
      who[0] = k;
      sift(time, who, m, 0);
    }
  }
  for (int64_t i = m - 1; i > 0; i--) { /* sorts, the latest goes last */
    double t = time[0];
    int64_t w = who[0];
    time[0] = time[i];
    who[0] = who[i];
    time[i] = t;
    who[i] = w;
    sift(time, who, i, 0);
  }
  for (int64_t i = 0; i < m; i++)
    who[i] += c->base;
}

static void race_task(void *context, int64_t begin, int64_t end) {
  sampling *c = context;
  for (int64_t r = begin; r < end; r++)
    race(c, r, c->sums + r * c->classes); /* the sums are not needed again */
}

FL_KERNEL(multinomial) {
  const fl_view *p = &l->in[FL_IN_multinomial_p], *y = &l->out[0];
  bool replacement = l->attrs->v[FL_ATTR_multinomial_replacement].i != 0;
  sampling c = {
      .seed = (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_multinomial_seed]),
      .offset = (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_multinomial_offset]),
      .classes = p->shape[p->ndim - 1],
      .n = l->attrs->v[FL_ATTR_multinomial_n].i,
      .base = l->base,
      .y = y->data};
  int64_t rows = p->ndim == 2 ? p->shape[0] : 1;
  c.p = FL_CPU(input)(l, p, FL_F64);
  c.sums = fl_scratch_get(l, (size_t)(rows * c.classes) * sizeof(double));
  if (!c.p || !c.sums)
    return FL_ENOMEM;
  for (int64_t r = 0; r < rows; r++) {
    fl_status s = sum_row(c.p + r * c.classes, c.classes, c.n, replacement,
                          c.sums + r * c.classes);
    if (s != FL_OK)
      return s;
  }
  if (replacement || c.n == 1)
    fl_cpu_parallel(l, rows * c.n, 256, replace_task, &c);
  else if (c.n > 0)
    fl_cpu_parallel(l, rows, 4096 / c.classes + 1, race_task, &c);
  return FL_OK;
}
