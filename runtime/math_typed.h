/* The part of math.h that reads the same for float and double; included by it
 * once for each, with T, FL_NAME and FL_LIBM defined. */

static inline T FL_NAME(fl_abs)(T x) {
  return FL_LIBM(fabs)(x);
}
static inline T FL_NAME(fl_sign)(T x) {
  return x > 0 ? (T)1 : x < 0 ? (T)-1 : x;
}
static inline T FL_NAME(fl_floor)(T x) {
  return FL_LIBM(floor)(x);
}
static inline T FL_NAME(fl_ceil)(T x) {
  return FL_LIBM(ceil)(x);
}
static inline T FL_NAME(fl_rint)(T x) {
  return FL_LIBM(rint)(x);
}
static inline T FL_NAME(fl_trunc)(T x) {
  return FL_LIBM(trunc)(x);
}
static inline T FL_NAME(fl_min)(T a, T b) {
  return a < b ? a : b;
}
static inline T FL_NAME(fl_max)(T a, T b) {
  return a > b ? a : b;
}
static inline T FL_NAME(fl_minimum)(T a, T b) {
  return a < b || a != a ? a : b;
}
static inline T FL_NAME(fl_maximum)(T a, T b) {
  return a > b || a != a ? a : b;
}
static inline T FL_NAME(fl_clamp)(T x, T lo, T hi) {
  T y = x < lo ? lo : x;
  return y > hi ? hi : y;
}
static inline T FL_NAME(fl_pow)(T a, T b) {
  return FL_LIBM(pow)(a, b);
}
static inline T FL_NAME(fl_atan2)(T a, T b) {
  return FL_LIBM(atan2)(a, b);
}
static inline T FL_NAME(fl_fmod)(T a, T b) {
  return FL_LIBM(fmod)(a, b);
}
static inline T FL_NAME(fl_remainder)(T a, T b) {
  T r = FL_LIBM(fmod)(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* By the remainder: floor(a / b) is one too many when a / b rounds up. */
static inline T FL_NAME(fl_floor_div)(T a, T b) {
  T r = FL_LIBM(fmod)(a, b);
  if (b == 0)
    return a / b;
  T q = (a - r) / b - (T)(r != 0 && (r < 0) != (b < 0));
  return FL_LIBM(rint)(q);
}
static inline T FL_NAME(fl_sigmoid)(T x) {
  return 1 / (1 + FL_LIBM(exp)(-x));
}
static inline T FL_NAME(fl_softplus)(T x) {
  return (x > 0 ? x : (T)0) + FL_LIBM(log1p)(FL_LIBM(exp)(-FL_LIBM(fabs)(x)));
}
static inline T FL_NAME(fl_silu_d1)(T x) {
  T s = 1 / (1 + FL_LIBM(exp)(-x));
  return s * (1 + x * (1 - s));
}
static inline T FL_NAME(fl_silu_d2)(T x) {
  T s = 1 / (1 + FL_LIBM(exp)(-x));
  return s * (1 - s) * (2 + x * (1 - 2 * s));
}
static inline T FL_NAME(fl_mish_d1)(T x) {
  T t = FL_LIBM(tanh)(FL_NAME(fl_softplus)(x)), s = FL_NAME(fl_sigmoid)(x);
  return t + x * s * (1 - t * t);
}
static inline T FL_NAME(fl_mish_d2)(T x) {
  T t = FL_LIBM(tanh)(FL_NAME(fl_softplus)(x)), s = FL_NAME(fl_sigmoid)(x);
  T d = 1 - t * t; /* d tanh / d softplus */
  return 2 * s * d + x * (s * (1 - s) * d - 2 * t * d * s * s);
}
static inline T FL_NAME(fl_gelu)(T x, T approx) {
  if (approx > 0) {
    T u = (T)FL_SQRT_2_PI * x * (1 + (T)0.044715 * x * x);
    return x / (1 + FL_LIBM(exp)(-2 * u));
  }
  return FL_NAME(fl_gelu_erf)(x);
}
static inline T FL_NAME(fl_gelu_d1)(T x, T approx) {
  if (approx > 0) {
    T u = (T)FL_SQRT_2_PI * x * (1 + (T)0.044715 * x * x);
    T s = 1 / (1 + FL_LIBM(exp)(-2 * u));
    T du = (T)FL_SQRT_2_PI * (1 + (T)0.134145 * x * x);
    return s + x * s * (1 - s) * 2 * du;
  }
  return FL_NAME(fl_gelu_erf_d1)(x);
}
static inline T FL_NAME(fl_gelu_d2)(T x, T approx) {
  if (approx > 0) {
    T u = (T)FL_SQRT_2_PI * x * (1 + (T)0.044715 * x * x);
    T s = 1 / (1 + FL_LIBM(exp)(-2 * u));
    T du = 2 * (T)FL_SQRT_2_PI * (1 + (T)0.134145 * x * x);
    T ddu = 2 * (T)FL_SQRT_2_PI * (T)0.26829 * x;
    T ds = s * (1 - s) * du;
    return 2 * ds + x * (ds * (1 - 2 * s) * du + s * (1 - s) * ddu);
  }
  T a = FL_NAME(fl_normal)(x);
  return (2 - a * a) * (T)FL_1_SQRT2PI * FL_NAME(fl_bell)(a);
}

#undef T
#undef FL_NAME
#undef FL_LIBM
