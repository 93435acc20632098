/* A part of math.h: special functions that no libm has, or not everywhere. All
 * are computed in double, floats too: their series lose a few digits near roots
 * and for large arguments, which a float then does not show. */

/* Long functions are called: inlined into some loops and not into others they
 * would round differently here and there, and a GPU's kernel of sixteen
 * elements a thread would take half a minute to compile. */
#define FL_CALLED static __attribute__((noinline, unused))
#ifdef __cplusplus
#define FL_LONG FL_CALLED
#else /* compilers know when */
#define FL_LONG static inline
#endif

/* --- Bessel functions --- */

/* Of the first and second kind libm has j0, j1, jn and so on. f(x) / x, at 0
 * by its limit. */
static inline double fl_bessel_j0_f64(double x) {
  return j0(x);
}
static inline double fl_bessel_j1_f64(double x) {
  return j1(x);
}
static inline double fl_bessel_y0_f64(double x) {
  return y0(x);
}
static inline double fl_bessel_y1_f64(double x) {
  return y1(x);
}
static inline double fl_bessel_j1x_f64(double x) {
  return x == 0 ? 0.5 : j1(x) / x;
}
static inline double fl_bessel_j2x_f64(double x) {
  return x == 0 ? 0 : jn(2, x) / x;
}

/* exp(-|x|) I_n(x): up to 30 the series of (x / 2)^(2k + n) / (k! (k + n)!),
 * from there the asymptotic one (Abramowitz and Stegun 9.6.10, 9.7.1), as long
 * as terms change the sum. */
FL_LONG double fl_bessel_ie(int n, double x) {
  double a = fabs(x), sum = 1, term = 1, q = 0.25 * x * x;
  if (a < 30) {
    for (int k = 1; k < 80 && term > sum * 0x1p-55; k++) {
      term *= q / (k * (double)(k + n));
      sum += term;
    }
    sum *= exp(-a) * (n == 0 ? 1 : n == 1 ? 0.5 * a : 0.5 * q);
  } else {
    for (int k = 1; k < 30 && fabs(term) > 0x1p-55; k++) {
      double odd = 2 * k - 1;
      term *= (odd * odd - 4 * n * n) / (8 * a * k);
      sum += term;
    }
    sum = a < (double)INFINITY ? sum / sqrt(2 * FL_PI * a) : 0;
  }
  return x < 0 && n % 2 ? -sum : x == x ? sum : x;
}
static inline double fl_bessel_i0e_f64(double x) {
  return fl_bessel_ie(0, x);
}
static inline double fl_bessel_i1e_f64(double x) {
  return fl_bessel_ie(1, x);
}
static inline double fl_bessel_unscaled(int n, double x) {
  double half = exp(0.5 * fabs(x)); /* all of it may be too much at once */
  return fabs(x) < (double)INFINITY ? fl_bessel_ie(n, x) * half * half
         : n % 2                    ? x
                                    : x * x;
}
static inline double fl_bessel_i0_f64(double x) {
  return fl_bessel_unscaled(0, x);
}
static inline double fl_bessel_i1_f64(double x) {
  return fl_bessel_unscaled(1, x);
}
static inline double fl_bessel_i1x_f64(double x) {
  return x == 0 ? 0.5 : fl_bessel_i1_f64(x) / x;
}
static inline double fl_bessel_i2x_f64(double x) {
  return x == 0 ? 0 : fl_bessel_unscaled(2, x) / x;
}
static inline double fl_bessel_i1ex_f64(double x) {
  return x == 0 ? 0.5 : fl_bessel_ie(1, x) / x;
}
static inline double fl_bessel_i2ex_f64(double x) {
  return x == 0 ? 0 : fl_bessel_ie(2, x) / x;
}

/* --- the normal distribution --- */

/* exp(x^2) erfc(x): by the continued fraction (7.1.14) where that is short. */
FL_LONG double fl_erfcx_f64(double x) {
  double f = 0;
  if (x < 2)
    return exp(x * x) * erfc(x);
  if (x > 1e8)
    return 0.5 * FL_2_SQRTPI / x;
  for (int k = 100; k > 0; k--)
    f = 0.5 * k / (x + f);
  return 0.5 * FL_2_SQRTPI / (x + f);
}
static inline double fl_ndtr_f64(double x) {
  return 0.5 * erfc(-FL_1_SQRT2 * x);
}
static inline double fl_log_ndtr_f64(double x) {
  if (x > -1)
    return log1p(-0.5 * erfc(FL_1_SQRT2 * x));
  return log(0.5 * fl_erfcx_f64(-FL_1_SQRT2 * x)) - 0.5 * x * x;
}
/* its derivative: the density through ndtr */
static inline double fl_log_ndtr_d_f64(double x) {
  return FL_SQRT_2_PI / fl_erfcx_f64(-FL_1_SQRT2 * x);
}
/* Where the smaller tail is p: erfinv's start (there in math_typed.h), and
 * Halley's steps against erfc. */
FL_LONG double fl_ndtri_f64(double x) {
  double p = x < 0.5 ? x : 1 - x;
  if (!(p > 0))
    return p == 0 ? (x < 0.5 ? -(double)INFINITY : (double)INFINITY)
                  : (double)NAN;
  double l = log(4 * p * (1 - p)) / 0.147, t = 4.33075 + 0.0735 * l;
  double root = sqrt(t * t - l), y = sqrt(t > 0 ? -l / (root + t) : root - t);
  for (int k = 0; k < 4; k++) {
    double off = 2 * p - erfc(y);
    if (off != 0)
      off /= FL_2_SQRTPI * exp(-y * y);
    y -= off / (1 + y * off);
  }
  return x < 0.5 ? -y / FL_1_SQRT2 : y / FL_1_SQRT2;
}
static inline double fl_entr_f64(double x) {
  return x > 0 ? -x * log(x) : x == 0 ? 0 : x < 0 ? -(double)INFINITY : x;
}

/* --- zeta and polygamma --- */

/* Hurwitz's zeta function, the sum of (q + k)^-s, by Euler and Maclaurin. Below
 * -10000 that is too far to walk: NaN. */
FL_CALLED double fl_zeta_f64(double s, double q) {
  const double b[9] = {1. / 12,
                       -1. / 720,
                       1. / 30240,
                       -1. / 1209600,
                       1. / 47900160,
                       -691. / 1307674368000,
                       1. / 74724249600.,
                       -3617. / 10670622842880000.,
                       43867. / 5109094217170944000.};
  double sum = 0, w = q;
  if (s == 1)
    return (double)INFINITY;
  if (!(s > 1) || !(q > -10000) || (q <= 0 && q != floor(q) && s != floor(s)))
    return (double)NAN;
  if (q <= 0 && q == floor(q))
    return (double)INFINITY;
  for (double term = 1; w < 12 + s && fabs(term) > 1e-18 * fabs(sum); w += 1) {
    term = pow(w, -s);
    sum += term;
  }
  double tail = pow(w, -s), power = s * tail / w;
  if (!(w < (double)INFINITY) || tail == 0)
    return sum;
  sum += tail * w / (s - 1) + 0.5 * tail;
  for (int j = 0; j < 9; j++) {
    sum += b[j] * power;
    power *= (s + 2 * j + 1) * (s + 2 * j + 2) / (w * w);
  }
  return sum;
}

/* The n-th derivative of digamma; from the third on n! times zeta. */
FL_CALLED double fl_polygamma_f64(double x, double order) {
  double factor = 1;
  if (order == 0)
    return fl_digamma_f64(x);
  if (order == 1)
    return fl_trigamma_f64(x);
  if (order == 2)
    return fl_tetragamma_f64(x);
  if (!(order > 0) || order > 170 || order != floor(order))
    return (double)NAN;
  for (int k = 2; k <= order; k++)
    factor *= k;
  double sum = fl_zeta_f64(order + 1, x);
  return fmod(order, 2) == 0 ? -factor * sum : factor * sum;
}

/* --- incomplete gamma functions --- */

/* x - a - a log(x / a), without loss where they are near */
static inline double fl_gamma_deviance(double a, double x) {
  double m = (x - a) / a, sum = 0, power = m * m;
  if (fabs(m) > 0.1)
    return a * (m - log1p(m));
  for (int k = 2; k < 18; k++, power *= -m)
    sum += power / k;
  return a * sum;
}
/* x^a exp(-x) / Gamma(a + 1) */
static inline double fl_gamma_front(double a, double x) {
  double s = 1 / (a * a);
  if (a < 20)
    return exp(a * log(x) - x - fl_lgamma_f64(a + 1));
  s = (1. / 12 - s * (1. / 360 - s * (1. / 1260 - s * (1. / 1680)))) / a;
  return exp(-fl_gamma_deviance(a, x) - s) / sqrt(2 * FL_PI * a);
}

/* With f the front: P = f S for x up to a + 1, and else Q = f a C, and y[] the
 * sum S or the fraction C with its first two derivatives by a. True: it is S.
 * From a = 10^6 on the sums would be too long; see who asks. */
static inline bool fl_gamma_parts(double a, double x, double y[3]) {
  y[0] = 1;
  y[1] = y[2] = 0;
  if (x <= a + 1) {
    double term = 1, h = 0, q = 0;
    for (int n = 1; n < 20000 && term > 1e-18 * y[0]; n++) {
      double r = 1 / (a + n);
      term *= x * r;
      h += r;
      q += r * r;
      y[0] += term;
      y[1] -= h * term;
      y[2] += (h * h + q) * term;
    }
    return true;
  }
  double steps = 30 + 120 / x + 9 * sqrt(a) * (x < 2 * a ? 1 : 0.3);
  double t[3] = {0}, u[3] = {0}; /* backwards, numbers with derivatives */
  for (int k = (int)steps; k >= 0; k--) {
    t[0] = x + 2 * k + 1 - a - u[0];
    t[1] = -1 - u[1];
    t[2] = -u[2];
    if (k == 0)
      break;
    u[0] = k * (k - a) / t[0];
    u[1] = (-k - u[0] * t[1]) / t[0];
    u[2] = -(2 * u[1] * t[1] + u[0] * t[2]) / t[0];
  }
  y[0] = 1 / t[0];
  y[1] = -y[0] * t[1] / t[0];
  y[2] = -(2 * y[1] * t[1] + y[0] * t[2]) / t[0];
  return false;
}

/* P(a, x), or Q = 1 - P. Above 10^6 by the first terms of Temme's expansion
 * (DLMF 8.12), which is off by 1e-12 there. */
static inline double fl_igamma_of(double a, double x, bool upper) {
  double y[3], p, most = INFINITY;
  if (!(a >= 0 && x >= 0) || (a == x && (a == 0 || a == most)))
    return (double)NAN;
  if (x == 0 || a == most)
    return upper;
  if (a == 0 || x == most)
    return !upper;
  if (a > 1e6) {
    double d = fl_gamma_deviance(a, x), eta = sqrt(2 * d / a), m = (x - a) / a;
    eta = m < 0 ? -eta : eta;
    double c = fabs(m) < 1e-3 ? -1. / 3 + eta / 12 - 2 * eta * eta / 135
                              : 1 / m - 1 / eta;
    p = exp(-d) * c / sqrt(2 * FL_PI * a);
    return upper ? 0.5 * erfc(eta * sqrt(0.5 * a)) + p
                 : 0.5 * erfc(-eta * sqrt(0.5 * a)) - p;
  }
  bool lower = fl_gamma_parts(a, x, y);
  p = fl_gamma_front(a, x) * y[0] * (lower ? 1 : a);
  return lower == upper ? 1 - p : p;
}
FL_CALLED double fl_igamma_f64(double a, double x) {
  return fl_igamma_of(a, x, false);
}
FL_CALLED double fl_igammac_f64(double a, double x) {
  return fl_igamma_of(a, x, true);
}

/* How x moves with a where P(a, x) stays: -(dP/da) / (dP/dx), and what follows
 * from the second derivative by a (the implicit gradients of Figurnov et al.
 * 2018, whose gradient by a at constant x is gamma_daa). */
FL_CALLED double fl_gamma_da_f64(double a, double x) {
  double y[3];
  if (!(a > 0) || !(x >= 0))
    return (double)NAN;
  if (x == 0)
    return 0;
  if (a > 1e6)
    return 1 + (x - a) / (2 * a);
  if (fl_gamma_parts(a, x, y))
    return -x / a * (y[0] * (log(x) - fl_digamma_f64(a + 1)) + y[1]);
  return x * (y[0] * (log(x) - fl_digamma_f64(a)) + y[1]);
}
FL_CALLED double fl_gamma_daa_f64(double a, double x) {
  double y[3], first, second, l;
  if (!(a > 0) || !(x >= 0))
    return (double)NAN;
  if (x == 0)
    return 0;
  if (a > 1e6)
    return -0.5 * x / (a * a);
  bool lower = fl_gamma_parts(a, x, y);
  l = log(x) - fl_digamma_f64(lower ? a + 1 : a);
  first = y[0] * l + y[1];
  second =
      y[0] * (l * l - fl_trigamma_f64(lower ? a + 1 : a)) + 2 * y[1] * l + y[2];
  if (lower) {
    first *= -x / a;
    second *= -x / a;
    l += 1 / a;
  } else {
    first *= x;
    second *= x;
  }
  return second - first * l;
}

/* --- for formulas --- */

#ifdef __cplusplus
#define FL_SPECIAL1(f) FL_FLOATS1(f, f##_f32, f##_f64)
#define FL_SPECIAL2(f) FL_FLOATS2(f, f##_f32, f##_f64)
#else
#define FL_SPECIAL1(f)
#define FL_SPECIAL2(f)
#endif
#define FL_WIDE1(f)                                                            \
  static inline float f##_f32(float x) {                                       \
    return (float)f##_f64(x);                                                  \
  }                                                                            \
  FL_SPECIAL1(f)
#define FL_WIDE2(f)                                                            \
  static inline float f##_f32(float a, float b) {                              \
    return (float)f##_f64(a, b);                                               \
  }                                                                            \
  FL_SPECIAL2(f)
FL_WIDE1(fl_bessel_j1x)
FL_WIDE1(fl_bessel_j2x)
#ifdef __CUDACC_RTC__ /* else in math_float_special.h */
FL_WIDE1(fl_bessel_j0)
FL_WIDE1(fl_bessel_j1)
FL_WIDE1(fl_bessel_y0)
FL_WIDE1(fl_bessel_y1)
FL_WIDE1(fl_bessel_i0)
FL_WIDE1(fl_bessel_i1)
FL_WIDE1(fl_bessel_i0e)
FL_WIDE1(fl_bessel_i1e)
FL_WIDE1(fl_erfcx)
FL_WIDE1(fl_log_ndtr)
FL_WIDE1(fl_log_ndtr_d)
FL_WIDE1(fl_ndtri)
#endif
FL_WIDE1(fl_bessel_i1x)
FL_WIDE1(fl_bessel_i2x)
FL_WIDE1(fl_bessel_i1ex)
FL_WIDE1(fl_bessel_i2ex)
FL_WIDE1(fl_ndtr)
FL_WIDE1(fl_entr)
FL_WIDE2(fl_zeta)
FL_CALLED float fl_polygamma_f32(float x, float order) {
  return order == 1 ? fl_trigamma_f32(x) : (float)fl_polygamma_f64(x, order);
}
FL_SPECIAL2(fl_polygamma)
FL_WIDE2(fl_igamma)
FL_WIDE2(fl_igammac)
FL_WIDE2(fl_gamma_da)
FL_WIDE2(fl_gamma_daa)

#ifndef __cplusplus
#define fl_bessel_j0(x)    FL_FLOATS1(fl_bessel_j0, x)
#define fl_bessel_j1(x)    FL_FLOATS1(fl_bessel_j1, x)
#define fl_bessel_y0(x)    FL_FLOATS1(fl_bessel_y0, x)
#define fl_bessel_y1(x)    FL_FLOATS1(fl_bessel_y1, x)
#define fl_bessel_j1x(x)   FL_FLOATS1(fl_bessel_j1x, x)
#define fl_bessel_j2x(x)   FL_FLOATS1(fl_bessel_j2x, x)
#define fl_bessel_i0(x)    FL_FLOATS1(fl_bessel_i0, x)
#define fl_bessel_i1(x)    FL_FLOATS1(fl_bessel_i1, x)
#define fl_bessel_i0e(x)   FL_FLOATS1(fl_bessel_i0e, x)
#define fl_bessel_i1e(x)   FL_FLOATS1(fl_bessel_i1e, x)
#define fl_bessel_i1x(x)   FL_FLOATS1(fl_bessel_i1x, x)
#define fl_bessel_i2x(x)   FL_FLOATS1(fl_bessel_i2x, x)
#define fl_bessel_i1ex(x)  FL_FLOATS1(fl_bessel_i1ex, x)
#define fl_bessel_i2ex(x)  FL_FLOATS1(fl_bessel_i2ex, x)
#define fl_erfcx(x)        FL_FLOATS1(fl_erfcx, x)
#define fl_ndtr(x)         FL_FLOATS1(fl_ndtr, x)
#define fl_log_ndtr(x)     FL_FLOATS1(fl_log_ndtr, x)
#define fl_log_ndtr_d(x)   FL_FLOATS1(fl_log_ndtr_d, x)
#define fl_ndtri(x)        FL_FLOATS1(fl_ndtri, x)
#define fl_entr(x)         FL_FLOATS1(fl_entr, x)
#define fl_zeta(a, b)      FL_FLOATS2(fl_zeta, a, b)
#define fl_polygamma(a, b) FL_FLOATS2(fl_polygamma, a, b)
#define fl_igamma(a, b)    FL_FLOATS2(fl_igamma, a, b)
#define fl_igammac(a, b)   FL_FLOATS2(fl_igammac, a, b)
#define fl_gamma_da(a, b)  FL_FLOATS2(fl_gamma_da, a, b)
#define fl_gamma_daa(a, b) FL_FLOATS2(fl_gamma_daa, a, b)
#endif
