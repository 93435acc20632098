/* A part of math.h, on CPUs and GPUs: floats by way of doubles, so that what
 * cancels in between does not show. */

static inline double fl_atan2_f64(double a, double b) {
  return atan2(a, b);
}
/* Equal infinities have no difference. */
static inline double fl_logaddexp_f64(double a, double b) {
  double d = a == b ? 0 : fabs(a - b);
  return fl_maximum_f64(a, b) + log1p(exp(-d));
}
static inline double fl_logaddexp2_f64(double a, double b) {
  double d = a == b ? 0 : fabs(a - b);
  return fl_maximum_f64(a, b) + FL_LOG2E * log1p(exp2(-d));
}
#ifdef __CUDACC_RTC__ /* else see math_float_special.h */
static inline float fl_logaddexp_f32(float a, float b) {
  return (float)fl_logaddexp_f64(a, b);
}
static inline float fl_logaddexp2_f32(float a, float b) {
  return (float)fl_logaddexp2_f64(a, b);
}
#endif
static inline double fl_xlog1py_f64(double a, double b) {
  return a == 0 && b == b ? 0 : a * log1p(b);
}
static inline float fl_xlog1py_f32(float a, float b) {
  return (float)fl_xlog1py_f64(a, b);
}
static inline double fl_sinc_f64(double x) {
  double s, c, z = fl_sinc_parts_f64(x, &s, &c);
  return x == 0 ? 1 : s / z;
}
static inline float fl_sinc_f32(float x) {
  return (float)fl_sinc_f64(x);
}
/* x - tanh(x); near 0 by its series. */
static inline double fl_tanhshrink_f64(double x) {
  double u = x * x;
  double near = 1. / 3 + u * (-2. / 15 + u * (17. / 315 - u * (62. / 2835)));
  return u < 1e-4 ? x * u * near : x - tanh(x);
}
/* Winitzki's approximation, within 0.4 %, then Halley's steps, which cube that:
 * against erf in the middle and against erfc towards the ends. */
static inline double fl_erfinv_by(double x, int steps) {
  double a = fabs(x);
  if (!(a < 1))
    return a == 1 ? copysign((double)INFINITY, x) : (double)NAN;
  double l = log1p(-a * a) / 0.147, t = 4.33075 + 0.0735 * l;
  double root = sqrt(t * t - l), y = sqrt(t > 0 ? -l / (root + t) : root - t);
  for (int k = 0; k < steps; k++) {
    double off = a < 0.5 ? erf(y) - a : 1 - a - erfc(y);
    off /= FL_2_SQRTPI * exp(-y * y);
    y -= off / (1 + y * off);
  }
  return copysign(y, x);
}
static inline double fl_erfinv_f64(double x) {
  return fl_erfinv_by(x, 3);
}
#ifdef __CUDACC_RTC__
static inline float fl_tanhshrink_f32(float x) {
  return (float)fl_tanhshrink_f64(x);
}
static inline float fl_erfinv_f32(float x) {
  return (float)fl_erfinv_by(x, 2);
}
#endif
/* x tanh(log(1 + e^x)); the tanh is n / (n + 2) with n = e^x (e^x + 2). */
static inline double fl_mish_f64(double x) {
  double e = exp(-fabs(x)), n = e * (e + 2), m = 1 + 2 * e;
  return x < 0 ? x * n / (n + 2) : x * m / (m + 2 * (e * e));
}
static inline float fl_mish_f32(float x) {
  return (float)fl_mish_f64(x);
}
static inline double fl_gelu_f64(double x, double approx) {
  return approx > 0 ? fl_gelu_by_tanh_f64(x) : fl_gelu_erf_f64(x);
}
FL_INLINE float fl_gelu_f32(float x, float approx) {
#ifdef __FP_FAST_FMAF
  return approx > 0 ? fl_gelu_by_tanh_f32(x) : fl_gelu_erf_f32(x);
#else
  return approx > 0 ? (float)fl_gelu_by_tanh_f64(x) : fl_gelu_erf_f32(x);
#endif
}
