/* lgamma and its derivatives, for math.h, which includes this once. */

/* lgamma without the global that it leaves the sign in. */
#if defined(__CUDACC_RTC__) || defined(_WIN32)
#define FL_LGAMMA(name, x) name(x)
#else
#define FL_LGAMMA(name, x) name##_r(x, &(int){0})
#endif
#ifdef __CUDACC_RTC__
/* lgammaf loses all digits beside the roots below 0. */
static inline float fl_lgamma_f32(float x) {
  return (float)lgamma((double)x);
}
#else
/* In double and without branches, for vectors. Of x > 0: up to 2.5
 * (y - 1) (y - 2) times a polynomial of y - 1.5 (relative error 1.1e-9), with y
 * = x + 1 below 0.5, up to 8 another (6e-10), then Stirling's series. Else by
 * reflection, where nothing may be lost beside the roots, and the series begins
 * 6 further by recurrence. Loops look first whether all is above 0
 * (kernels/cpu/near.h). */
FL_INLINE double fl_lgamma_mid(double y) {
  double t = y - 1.5;
  double mid = 1.9920699972436647e-4;
  mid = mid * t - 2.746830909009112e-4;
  mid = mid * t - 5.165955186986025e-4;
  mid = mid * t + 6.404873365822044e-4;
  mid = mid * t + 8.950304935424447e-4;
  mid = mid * t - 1.0924268526566108e-3;
  mid = mid * t - 3.580209103326262e-4;
  mid = mid * t + 2.325771100254957e-4;
  mid = mid * t + 1.0112744016837173e-3;
  mid = mid * t - 1.4488347652075225e-3;
  mid = mid * t + 1.8377746508754576e-3;
  mid = mid * t - 3.1426156890661046e-3;
  mid = mid * t + 5.4601641382591055e-3;
  mid = mid * t - 9.434692803744267e-3;
  mid = mid * t + 1.679598834952713e-2;
  mid = mid * t - 3.1307953842674485e-2;
  mid = mid * t + 6.291143573138863e-2;
  mid = mid * t - 1.4595990506610176e-1;
  return (mid * t + 4.831289503633568e-1) * (t + 0.5) * (t - 0.5);
}
/* what Stirling's series has beside the logarithm */
FL_INLINE double fl_lgamma_tail(double z) {
  double v = 1 / z, w = v * v;
  return (0.5 * (1.8378770664093454836 - 1)) +
         v * (1. / 12 -
              w * (1. / 360 -
                   w * (1. / 1260 -
                        w * (1. / 1680 - w * (1. / 1188 - w * (691. / 360360 -
                                                               w / 156))))));
}
FL_INLINE double fl_lgamma_right(float x, double mid, double tail) {
  double y = (double)x, t = y - 5.25;
  double p = 3.0658612179932476e-11 * t - 8.6716339788191207e-11;
  p = p * t - 2.7624888184094456e-10;
  p = p * t - 7.5291713492756687e-10;
  p = p * t + 1.2223428415917614e-08;
  p = p * t - 4.9815819484637457e-08;
  p = p * t + 2.7589792990276489e-07;
  p = p * t - 1.9208504302548761e-06;
  p = p * t + 1.312293126372535e-05;
  p = p * t - 9.4774256274133233e-05;
  p = p * t + 0.00076090413074031155;
  p = p * t - 0.0073070645576270707;
  p = p * t + 0.10488023245126919;
  p = p * t + 1.5599773391623843;
  p = p * t + 3.5613759085318057;
  float k, f, r = fl_log_reduce(x, &k, &f);
  double l = (double)k * FL_LN2 + ((double)f + (double)r);
  mid -= y < 0.5 ? l : 0;
  return y < 2.5 ? mid : y < 8 ? p : (y - 0.5) * (l - 1) + tail;
}
FL_INLINE float fl_lgamma_near(float x) {
  double a = (double)x, mid = fl_lgamma_mid(a < 0.5 ? a + 1 : a);
  return (float)fl_lgamma_right(x, mid, fl_lgamma_tail(a));
}
static inline float fl_lgamma_f32(float x) {
  double a = x, y = a > 0 ? a : 1 - a, z = y < 8 ? y + 6 : y;
  double mid = fl_lgamma_mid(y < 0.5 ? y + 1 : y), tail = fl_lgamma_tail(z);
  double up = y * (y + 1) * (y + 2) * (y + 3) * (y + 4) * (y + 5);
  up = y < 2.5 || y >= 8 ? 1 : up;
  double r = a - rint(a), rr = r * r; /* sin(pi r) */
  double sine = 5.3926646626081248e-10;
  sine = sine * rr - 2.2948428997269856e-08;
  sine = sine * rr + 7.9520540014755084e-07;
  sine = sine * rr - 2.1915353447830204e-05;
  sine = sine * rr + 0.00046630280576761234;
  sine = sine * rr - 0.0073704309457143478;
  sine = sine * rr + 0.082145886611128191;
  sine = sine * rr - 0.59926452932079188;
  sine = sine * rr + 2.5501640398773451;
  sine = sine * rr - 5.1677127800499694;
  sine = fabs((sine * rr + FL_PI) * r);
  double main = y < 2.5 ? mid : (z - 0.5) * (log(z) - 1) + tail;
  double left = log(FL_PI * up / sine) - main;
  double sum = a > 0 ? fl_lgamma_right(x, mid, tail) : left;
  return fabs(a) == (double)INFINITY ? INFINITY : (float)sum;
}
#endif
static inline double fl_lgamma_f64(double x) {
  return FL_LGAMMA(lgamma, x);
}

/* The polygammas: below 0 by reflection, up to 10 by recurrence, from there the
 * asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.11). Floats come from
 * doubles: near the roots nothing else keeps their digits. */
static inline double fl_digamma_f64(double x) {
  double y = 0, part = x - rint(x), s;
  if (x <= 0) {
    if (part == 0)
      return x == 0 ? copysign((double)INFINITY, -x) : (double)NAN;
    y = -FL_PI / tan(FL_PI * part);
    x = 1 - x;
  }
  for (; x < 10; x += 1)
    y -= 1 / x;
  s = 1 / (x * x);
  if (x > 1e17)
    return y + log(x);
  return y + log(x) - 0.5 / x -
         s * (1. / 12 -
              s * (1. / 120 -
                   s * (1. / 252 -
                        s * (1. / 240 - s * (1. / 132 - s * 691. / 32760)))));
}
/* `from`: where the series begins; 10 for all of a double. */
static inline double fl_trigamma_by(double x, double from) {
  double y = 0, sign = 1, s;
  if (x <= 0) {
    double sine = sin(FL_PI * (x - rint(x)));
    y = FL_PI * FL_PI / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  for (; x < from; x += 1)
    y += sign / (x * x);
  s = 1 / (x * x);
  return y + sign *
                 (1 + 0.5 / x +
                  s * (1. / 6 -
                       s * (1. / 30 -
                            s * (1. / 42 -
                                 s * (1. / 30 -
                                      s * (5. / 66 - s * 691. / 2730)))))) /
                 x;
}
static inline double fl_trigamma_f64(double x) {
  return fl_trigamma_by(x, 10);
}
static inline double fl_tetragamma_f64(double x) {
  double y = 0, s;
  if (x <= 0) {
    double part = FL_PI * (x - rint(x)), sine = sin(part);
    y = -2 * FL_PI * FL_PI * FL_PI * cos(part) / (sine * sine * sine);
    x = 1 - x;
  }
  for (; x < 10; x += 1)
    y -= 2 / (x * x * x);
  s = 1 / (x * x);
  return y -
         s * (1 + 1 / x +
              s * (1. / 2 -
                   s * (1. / 6 -
                        s * (1. / 6 -
                             s * (3. / 10 - s * (5. / 6 - s * 691. / 210))))));
}
static inline float fl_digamma_f32(float x) {
  return (float)fl_digamma_f64(x);
}
static inline float fl_trigamma_f32(float x) {
  return (float)fl_trigamma_by(x, 4);
}
static inline float fl_tetragamma_f32(float x) {
  return (float)fl_tetragamma_f64(x);
}
