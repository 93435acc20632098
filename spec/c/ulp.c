/* How far the rows of special functions are from the truth, in units of the
 * last place of f32, for every instruction set that this machine has, both in
 * vectors and one by one; and in those of f16 and bf16. Without arguments a
 * sample, against the bounds below. With "all" every float there is, as the
 * table in bench/results/ulp.md:
 *   ulp all [--jobs N] [--step K] [NAME ...]    (K: only every Kth)
 *
 * The truth is the x87's long double; where it would take too long, the row in
 * double, as long as both agree on every 1021st input. */
#include "check.h"

#include "../../runtime/flare.h"

#define FL_ISA v2
#include "../../kernels/cpu/isa.h"
#include "../../kernels/cpu/map.h"
#include "../../runtime/math/math.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

typedef long double real;

/* --- the truth --- */

#define PI 3.14159265358979323846264338327950288L

static real sigmoid(real x) {
  return 1 / (1 + expl(-x));
}
static real softplus(real x) {
  return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}
static real phi(real x) { /* of the normal distribution */
  return 0.5L * erfcl(-x * 0.70710678118654752440084436210484904L);
}
static real gelu_tanh(real x) {
  real u = 0.79788456080286535587989211986876373L * x * (1 + 0.044715L * x * x);
  return x < -1e4L ? -0.0L : x / (1 + expl(-2 * u));
}
static real tail(real x) { /* x - tanh(x), by its series where it cancels */
  static const real c[] = {1 / 3.0L, -2 / 15.0L, 17 / 315.0L, -62 / 2835.0L};
  real u = x * x;
  return fabsl(x) < 1e-3L ? x * u * (c[0] + u * (c[1] + u * (c[2] + u * c[3])))
                          : x - tanhl(x);
}
static real sinc(real x) {
  real whole = rintl(x), y = sinl(PI * (x - whole)) / (PI * x);
  return x == 0 ? 1 : fmodl(whole, 2) == 0 ? y : -y;
}
/* Below 0 by reflection, up to 12 by recurrence, then the asymptotic series
 * (Abramowitz and Stegun 6.3.6, 6.3.7, 6.3.18). */
static real digamma(real x) {
  static const real b[] = {1 / 12.0L,  -1 / 120.0L,     1 / 252.0L, -1 / 240.0L,
                           1 / 132.0L, -691 / 32760.0L, 1 / 12.0L};
  real y = 0, part = x - rintl(x);
  if (x == 0)
    return copysignl(INFINITY, -x);
  if (x < 0 && (part == 0 || isinf(x)))
    return NAN;
  if (x < 0) {
    y = -PI / tanl(PI * part);
    x = 1 - x;
  }
  for (; x < 12; x += 1)
    y -= 1 / x;
  real s = 1 / (x * x), sum = 0;
  for (int k = 6; k >= 0; k--)
    sum = s * (b[k] + sum);
  return y + logl(x) - 0.5L / x - sum;
}
/* Newton's method, corrected as Halley does it, from the row in double. */
static real erfinv(real x) {
  real a = fabsl(x), y = fl_erfinv_f64((double)a);
  if (!(a < 1))
    return a == 1 ? copysignl(INFINITY, x) : NAN;
  for (int k = 0; k < 2; k++) {
    real off = a < 0.5L ? erfl(y) - a : 1 - a - erfcl(y);
    off /= 1.12837916709551257389615890312154517L * expl(-y * y);
    y -= off / (1 + y * off);
  }
  return copysignl(y, x);
}
/* exp(x^2) erfc(x); from 50 on by the asymptotic series (7.1.23). */
static real erfcx(real x) {
  real s = 1 / (2 * x * x);
  return x < 50 ? expl(x * x) * erfcl(x)
                : (1 - s * (1 - 3 * s * (1 - 5 * s))) /
                      (x * 1.77245385090551602729816748334114518L);
}
static real log_ndtr(real x) {
  real y = x * -0.70710678118654752440084436210484904L;
  return y < 1 ? log1pl(-0.5L * erfcl(-y)) : logl(0.5L * erfcx(y)) - y * y;
}
/* Halley's steps towards the smaller tail, from the row in double. */
static real ndtri(real x) {
  real p = x < 0.5L ? x : 1 - x, y = -fl_ndtri_f64((double)p);
  if (!(p > 0))
    return p == 0 ? copysignl(INFINITY, x - 0.5L) : NAN;
  for (int k = 0; k < 2; k++) {
    real off = p - 0.5L * erfcl(y * 0.70710678118654752440084436210484904L);
    off *= 2.50662827463100050241576528481104525L * expl(0.5L * y * y);
    y -= off / (1 + 0.5L * y * off);
  }
  return x < 0.5L ? -y : y;
}
/* exp(-|x|) I_n(x) for n = 0 and 1, as Abramowitz and Stegun have it: 9.6.10,
 * and from 40 on 9.7.1. */
static real bessel_ie(int n, real x) {
  real a = fabsl(x), sum = 1, term = 1;
  if (a < 40)
    for (int k = 1; k < 120 && term > sum * 0x1p-64L; k++)
      sum += term *= a * a / (4.0L * k * (k + n));
  else
    for (int k = 1; k < 40 && fabsl(term) > 0x1p-64L; k++)
      sum += term *= ((2 * k - 1) * (2 * k - 1) - 4.0L * n * n) / (8 * a * k);
  sum *= a < 40 ? expl(-a) * (n ? 0.5L * a : 1) : 1 / sqrtl(2 * PI * a);
  return n && x < 0 ? -sum : sum;
}
static real bessel_i(int n, real x) {
  real y = bessel_ie(n, x) * expl(fabsl(x));
  return fabsl(x) < 200 ? y : n ? x * INFINITY : fabsl(x) * INFINITY;
}
static real gamma_log(real x) {
  return lgammal_r(x, &(int){0});
}
static real add_exp(real a, real b) {
  real d = a == b ? 0 : fabsl(a - b);
  return isnan(a) || isnan(b) ? NAN : fmaxl(a, b) + log1pl(expl(-d));
}
static real add_exp2(real a, real b) {
  real d = a == b ? 0 : fabsl(a - b);
  return isnan(a) || isnan(b)
             ? NAN
             : fmaxl(a, b) +
                   log1pl(exp2l(-d)) * 1.44269504088896340735992468100189214L;
}

/* --- the rows --- */

enum { V2, V3, V4, PLAIN, ISAS };
static const char *const isa_names[ISAS] = {"v2", "v3", "v4", "plain"};

/* X(name in the table, row, first attribute, bound, slow, truth of a and b).
 * Above 2: gelu for negative a, a product of four rounded factors, and erfc one
 * by one, as glibc has it. */
#define SECOND_ATTRIBUTE 20 /* softplus's threshold */
#define UNARY(X)                                                               \
  X(reciprocal, reciprocal, 0, 0.5, 0, 1 / a)                                  \
  X(sqrt, sqrt, 0, 0.5, 0, sqrtl(a))                                           \
  X(rsqrt, rsqrt, 0, 2, 0, 1 / sqrtl(a))                                       \
  X(exp, exp, 0, 2, 0, expl(a))                                                \
  X(exp2, exp2, 0, 2, 0, exp2l(a))                                             \
  X(expm1, expm1, 0, 2, 0, expm1l(a))                                          \
  X(log, log, 0, 2, 0, logl(a))                                                \
  X(log2, log2, 0, 2, 0, log2l(a))                                             \
  X(log10, log10, 0, 2, 0, log10l(a))                                          \
  X(log1p, log1p, 0, 2, 0, log1pl(a))                                          \
  X(sin, sin, 0, 2, 0, sinl(a))                                                \
  X(cos, cos, 0, 2, 0, cosl(a))                                                \
  X(tan, tan, 0, 2, 0, tanl(a))                                                \
  X(asin, asin, 0, 2, 0, asinl(a))                                             \
  X(acos, acos, 0, 2, 0, acosl(a))                                             \
  X(atan, atan, 0, 2, 0, atanl(a))                                             \
  X(sinh, sinh, 0, 2, 0, sinhl(a))                                             \
  X(cosh, cosh, 0, 2, 0, coshl(a))                                             \
  X(tanh, tanh, 0, 2, 0, tanhl(a))                                             \
  X(asinh, asinh, 0, 2, 0, asinhl(a))                                          \
  X(acosh, acosh, 0, 2, 0, acoshl(a))                                          \
  X(atanh, atanh, 0, 2, 0, atanhl(a))                                          \
  X(erf, erf, 0, 2, 0, erfl(a))                                                \
  X(erfc, erfc, 0, 3, 0, erfcl(a))                                             \
  X(erfinv, erfinv, 0, 2, 0, erfinv(a))                                        \
  X(lgamma, lgamma, 0, 2, 0, gamma_log(a))                                     \
  X(digamma, digamma, 0, 2, 1, digamma(a))                                     \
  X(sinc, sinc, 0, 2, 0, sinc(a))                                              \
  X(i0, i0, 0, 2, 0, bessel_i(0, a))                                           \
  X(i1, i1, 0, 2, 0, bessel_i(1, a))                                           \
  X(i0e, i0e, 0, 2, 0, bessel_ie(0, a))                                        \
  X(i1e, i1e, 0, 2, 0, bessel_ie(1, a))                                        \
  X(sigmoid, sigmoid, 0, 2, 0, sigmoid(a))                                     \
  X(logsigmoid, logsigmoid, 0, 2, 0, -softplus(-a))                            \
  X(leaky_relu, leaky_relu, 0.01, 2, 0, a > 0 ? a : 0.01L * a)                 \
  X(elu, elu, 1, 2, 0, a > 0 ? a : expm1l(a))                                  \
  X(selu, selu, 0, 2, 0,                                                       \
    1.0507009873554804934L * (a > 0 ? a : 1.6732632423543772848L * expm1l(a))) \
  X(celu, celu, 1, 2, 0, a > 0 ? a : expm1l(a))                                \
  X(gelu, gelu, 0, 7, 0, a < -1e4L ? -0.0L : a * phi(a))                       \
  X(gelu_tanh, gelu, 1, 2, 0, gelu_tanh(a))                                    \
  X(silu, silu, 0, 2, 0, a *sigmoid(a))                                        \
  X(mish, mish, 0, 2, 0, a *tanhl(softplus(a)))                                \
  X(softplus, softplus, 1, 2, 0, softplus(a))                                  \
  X(hardsigmoid, hardsigmoid, 0, 2, 0, a > 3 ? 1 : a < -3 ? 0 : (a + 3) / 6)   \
  X(softsign, softsign, 0, 2, 0, a / (1 + fabsl(a)))                           \
  X(tanhshrink, tanhshrink, 0, 2, 1, tail(a))                                  \
  X(cbrt, cbrt, 0, 2, 0, cbrtl(a))                                             \
  X(erfcx, erfcx, 0, 2, 0, erfcx(a))                                           \
  X(ndtr, ndtr, 0, 2, 0, phi(a))                                               \
  X(log_ndtr, log_ndtr, 0, 2, 0, log_ndtr(a))                                  \
  X(ndtri, ndtri, 0, 2, 0, ndtri(a))                                           \
  X(entr, entr, 0, 2, 0, a < 0 ? -INFINITY : a == 0 ? 0 : -a * logl(a))        \
  X(hardswish, hardswish, 0, 2, 0,                                             \
    a > 3    ? a                                                               \
    : a < -3 ? 0 * a                                                           \
             : a * ((a + 3) / 6))
#define BINARY(X)                                                              \
  X(fmod, fmod, 0, 0.5, 0, fmodl(a, b))                                        \
  X(ldexp, ldexp, 0, 0.5, 0,                                                   \
    b != b ? b : ldexpl(a, (int)fmaxl(-5000, fminl(b, 5000))))                 \
  X(pow, pow, 0, 2, 0, powl(a, b))                                             \
  X(atan2, atan2, 0, 2, 0, atan2l(a, b))                                       \
  X(hypot, hypot, 0, 2, 0, hypotl(a, b))                                       \
  X(logaddexp, logaddexp, 0, 2, 0, add_exp(a, b))                              \
  X(logaddexp2, logaddexp2, 0, 2, 0, add_exp2(a, b))                           \
  X(xlogy, xlogy, 0, 2, 0, a == 0 && b == b ? 0 : a * logl(b))                 \
  X(xlog1py, xlog1py, 0, 2, 0, a == 0 && b == b ? 0 : a * log1pl(b))

#define TRUTH(name, row, p0, bound, slow, f)                                   \
  static real truth_##name(real a, real b) {                                   \
    (void)b;                                                                   \
    return f;                                                                  \
  }
UNARY(TRUTH)
BINARY(TRUTH)

#define WEAK(isa, name)                                                        \
  extern const fl_map fl_cpu_##isa##_##name##_map __attribute__((weak));
#define DECLARE(name, row, p0, bound, slow, f)                                 \
  WEAK(v2, row) WEAK(v3, row) WEAK(v4, row) WEAK(plain, row)
UNARY(DECLARE)
BINARY(DECLARE)

typedef struct row {
  const char *name;
  const fl_map *map[ISAS];
  real (*truth)(real a, real b);
  double p[4], bound;
  bool slow; /* the row in double is not good enough as the truth */
  int inputs;
} row;

#define ENTRY(name, row, p0, bound, slow, inputs)                              \
  {#name,                                                                      \
   {&fl_cpu_v2_##row##_map, &fl_cpu_v3_##row##_map, &fl_cpu_v4_##row##_map,    \
    &fl_cpu_plain_##row##_map},                                                \
   truth_##name,                                                               \
   {p0, SECOND_ATTRIBUTE},                                                     \
   bound,                                                                      \
   slow,                                                                       \
   inputs},
#define ENTRY1(name, row, p0, bound, slow, f)                                  \
  ENTRY(name, row, p0, bound, slow, 1)
#define ENTRY2(name, row, p0, bound, slow, f)                                  \
  ENTRY(name, row, p0, bound, slow, 2)
static const row rows[] = {UNARY(ENTRY1) BINARY(ENTRY2)};
#define ROWS ((int)(sizeof rows / sizeof *rows))

/* --- formats --- */

typedef struct format {
  const char *name;
  int digits, least; /* of the fraction; the least exponent of normal numbers */
  double end;        /* what would come after the largest number */
} format;
enum { F32, F16, BF16, FORMATS };
static const format formats[FORMATS] = {{"f32", 23, -126, 0x1p128},
                                        {"f16", 10, -14, 0x1p16},
                                        {"bf16", 7, -126, 0x1p128}};

/* --- measuring --- */

#define PIECE 2048 /* stays in the first cache */
/* how the row runs: in vectors for each instruction set, and one by one */
enum { ONE = ISAS, WAYS };

typedef struct score {
  double worst, sum;
  uint32_t a, b;     /* the bits of the worst inputs */
  uint64_t n, above; /* above 1 */
} score;

typedef struct work {
  const row *r;
  const format *to;
  bool has[ISAS];
  int best;         /* of the instruction sets */
  uint64_t n, step; /* inputs, and how far apart */
  uint64_t next;    /* piece */
  pthread_mutex_t lock;
  score way[WAYS];
  double doubt; /* the truth's own error, relatively */
} work;

typedef struct piece {
  float a[PIECE], b[PIECE], y[PIECE];
  double x[PIECE], z[PIECE], truth[PIECE], scale[PIECE];
} piece;

/* as wide as this CPU has it: the build itself is for any */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(NDEBUG)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* An infinity counts as the number that would come after the largest. */
static inline double within(const format *f, double x) {
  return x > f->end ? f->end : x < -f->end ? -f->end : x;
}

/* How many units of the last place of each truth are 1. */
WIDE static void find_scales(const format *f, piece *p, int64_t n) {
  int least = f->least, digits = f->digits;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    double t = within(f, p->truth[i]);
    double inside = fabs(t) == f->end ? t * 0.75 : t;
    uint64_t bits;
    memcpy(&bits, &inside, 8);
    int64_t e = (int64_t)(bits >> 52 & 2047) - 1023;
    e = e < least ? least : e;
    bits = (uint64_t)(digits - e + 1023) << 52;
    memcpy(&p->scale[i], &bits, 8);
    p->truth[i] = t;
  }
}

/* Units of the last place of the truth that a result is off. */
static inline double off_by(const format *f, const piece *p, int64_t i) {
  double t = p->truth[i], a = within(f, (double)p->y[i]);
  double d = fabs(a - t) * p->scale[i], huge = 0x1p1000;
  return d == d ? d : (t != t) == (a != a) ? 0 : huge;
}

WIDE static void add(const format *f, score *s, const piece *p, int64_t n) {
  double worst = 0, sum = 0;
  int64_t above = 0;
#pragma omp simd reduction(max : worst) reduction(+ : sum, above)
  for (int64_t i = 0; i < n; i++) {
    double off = off_by(f, p, i);
    worst = off > worst ? off : worst;
    sum += off;
    above += off > 1;
  }
  s->n += (uint64_t)n;
  s->sum += sum;
  s->above += (uint64_t)above;
  if (worst <= s->worst)
    return;
  s->worst = worst;
  for (int64_t i = 0; i < n; i++)
    if (off_by(f, p, i) == worst) {
      s->a = fl_float_bits(p->a[i]);
      s->b = fl_float_bits(p->b[i]);
    }
}

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* The inputs of a piece. Two inputs: three in four pairs are between 2^-4 and
 * 2^8 in magnitude, where results are numbers; the rest are any bits. */
static void fill(const work *w, piece *p, uint64_t from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t k = (from + (uint64_t)i) * w->step;
    uint32_t u = (uint32_t)k, v = 0;
    if (w->to != &formats[F32])
      u = fl_float_bits(w->to == &formats[F16] ? fl_from_f16((uint16_t)k)
                                               : fl_from_bf16((uint16_t)k));
    if (w->r->inputs == 2) {
      uint64_t m = mix(k + 1);
      u = (uint32_t)m, v = (uint32_t)(m >> 32);
      if (k % 4) {
        u = 0x3d800000 + u % 0x06000000;
        v = (0x3d800000 + v % 0x06000000) | (v & 0x80000000);
      }
    }
    p->a[i] = fl_bits_float(u);
    p->b[i] = fl_bits_float(v);
  }
}

static double know(const work *w, piece *p, int64_t n) {
  const void *in[] = {p->x, p->z};
  const row *r = w->r;
  double doubt = 0;
  for (int64_t i = 0; i < n; i++)
    p->x[i] = p->a[i], p->z[i] = p->b[i];
  if (!r->slow)
    r->map[w->best]->loop[1](n, p->truth, in, (const int[]){1, 1}, r->p, 64);
  for (int64_t i = 0; i < n; i += r->slow ? 1 : 1021) {
    real t = r->truth(p->a[i], p->b[i]);
    if (r->slow) {
      p->truth[i] = (double)t;
      continue;
    }
    bool number = fabsl(t) < w->to->end;
    real off = fabsl(p->truth[i] - t) / fmaxl(fabsl(t), 0x1p-150L);
    if (number && !(off <= doubt))
      doubt = off == off ? (double)off : INFINITY;
    else if (!number && isnan(t) != isnan(p->truth[i]))
      doubt = INFINITY;
  }
  find_scales(w->to, p, n);
  return doubt;
}

static void round_to(const format *f, float *y, int64_t n) {
  for (int64_t i = 0; i < n && f != &formats[F32]; i++)
    y[i] = f == &formats[F16] ? fl_from_f16(fl_to_f16(y[i]))
                              : fl_from_bf16(fl_to_bf16(y[i]));
}

static void *worker(void *context) {
  work *w = context;
  piece *p = malloc(sizeof *p);
  score way[WAYS] = {0};
  const int step[] = {1, 1};
  const row *r = w->r;
  double doubt = 0;
  for (;;) {
    pthread_mutex_lock(&w->lock);
    uint64_t from = w->next;
    w->next += PIECE;
    pthread_mutex_unlock(&w->lock);
    if (from >= w->n)
      break;
    int64_t n = w->n - from < PIECE ? (int64_t)(w->n - from) : PIECE;
    fill(w, p, from, n);
    double d = know(w, p, n);
    doubt = d > doubt ? d : doubt;
    for (int k = 0; k < WAYS; k++) {
      if (k < ISAS && !w->has[k])
        continue;
      fl_map_loop loop = r->map[k < ISAS ? k : w->best]->loop[0];
      for (int64_t i = 0, each = k == ONE ? 1 : n; i < n; i += each) {
        const void *in[] = {p->a + i, p->b + i};
        loop(each, p->y + i, in, step, r->p, 64);
      }
      round_to(w->to, p->y, n);
      add(w->to, &way[k], p, n);
    }
  }
  free(p);
  pthread_mutex_lock(&w->lock);
  w->doubt = doubt > w->doubt ? doubt : w->doubt;
  for (int k = 0; k < WAYS; k++) {
    score *s = &w->way[k];
    s->n += way[k].n, s->sum += way[k].sum, s->above += way[k].above;
    if (way[k].worst > s->worst)
      s->worst = way[k].worst, s->a = way[k].a, s->b = way[k].b;
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

/* What this CPU runs. */
static void look(work *w) {
  static const int needs[ISAS] = {[V2] = 2, [V3] = 3, [V4] = 4, [PLAIN] = 0};
  for (int k = 0; k < ISAS; k++) {
    w->has[k] = needs[k] <= fl_cpu_level() && w->r->map[k];
    if (w->has[k])
      w->best = k;
  }
}

static void measure(work *w, const row *r, const format *to, uint64_t n,
                    uint64_t step, int jobs) {
  pthread_t threads[64];
  *w = (work){.r = r, .to = to, .n = n, .step = step};
  pthread_mutex_init(&w->lock, NULL);
  look(w);
  for (int k = 0; k < jobs; k++)
    CHECK(pthread_create(&threads[k], NULL, worker, w) == 0);
  for (int k = 0; k < jobs; k++)
    pthread_join(threads[k], NULL);
  CHECK(w->doubt < 0x1p-30, "%s: the truth is off by %g", r->name, w->doubt);
}

/* --- all of it --- */

static void print_row(const work *w) {
  const score *most = NULL;
  uint64_t above = 0;
  double mean = 0;
  printf("| %s |", w->r->name);
  for (int k = 0; k < WAYS; k++) {
    const score *s = &w->way[k];
    if (s->n && k != PLAIN)
      printf(" %.2f |", s->worst);
    else if (k != PLAIN)
      printf(" - |");
    if (!s->n)
      continue;
    most = !most || s->worst > most->worst ? s : most;
    above = s->above > above ? s->above : above;
    mean = s->sum / (double)s->n > mean ? s->sum / (double)s->n : mean;
  }
  if (w->r->inputs == 2)
    printf(" %.9g, %.9g |", (double)fl_bits_float(most->a),
           (double)fl_bits_float(most->b));
  else
    printf(" %.9g |", (double)fl_bits_float(most->a));
  printf(" %.3f | %llu |\n", mean, (unsigned long long)above);
  fflush(stdout);
}

static bool wanted(const row *r, int n, char **names) {
  bool any = n == 0;
  for (int k = 0; k < n; k++)
    any = any || strcmp(names[k], r->name) == 0;
  return any;
}

static void all(int jobs, uint64_t step, int n, char **names) {
  work w;
#if defined(__GLIBC__)
  printf("glibc %s, %d threads\n\n", gnu_get_libc_version(), jobs);
#endif
  printf("| row | v2 | v3 | v4 | one by one | worst at | mean | above 1 |\n"
         "|---|---|---|---|---|---|---|---|\n");
  for (int k = 0; k < ROWS; k++)
    if (wanted(&rows[k], n, names)) {
      measure(&w, &rows[k], &formats[F32],
              ((uint64_t)1 << (rows[k].inputs == 2 ? 30 : 32)) / step, step,
              jobs);
      print_row(&w);
    }
}

static void sample(const row *r) {
  work w;
  for (int f = 0; f < FORMATS; f++) {
    measure(&w, r, &formats[f], f ? 65536 : 1 << 18, f ? 1 : 16381, 1);
    for (int k = 0; k < WAYS; k++)
      CHECK(w.way[k].worst <= r->bound,
            "%s of %s (%s) is off by %.3g at %.9g %.9g", r->name,
            formats[f].name, k < ISAS ? isa_names[k] : "one by one",
            w.way[k].worst, (double)fl_bits_float(w.way[k].a),
            (double)fl_bits_float(w.way[k].b));
  }
}

int main(int argc, char **argv) {
  fl_runtime *rt; /* without one, the kernels would not be linked */
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "%s", fl_error());
  int jobs = fl_runtime_threads(rt), names = 2;
  if (argc > 1 && strcmp(argv[1], "all") == 0) {
    int step = 1;
    for (; names + 1 < argc && argv[names][0] == '-'; names += 2)
      if (strcmp(argv[names], "--jobs") == 0)
        jobs = atoi(argv[names + 1]);
      else if (strcmp(argv[names], "--step") == 0)
        step = atoi(argv[names + 1]);
    jobs = jobs < 1 ? 1 : jobs > 64 ? 64 : jobs;
    all(jobs, (uint64_t)(step < 1 ? 1 : step), argc - names, argv + names);
  } else {
    for (int k = 0; k < ROWS; k++)
      if (argc < 2 || wanted(&rows[k], argc - 1, argv + 1))
        sample(&rows[k]);
  }
  fl_runtime_close(rt);
  return check_done("ulp");
}
