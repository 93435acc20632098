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
static inline bool FL_NAME(fl_signbit)(T x) {
  return FL_LIBM(copysign)((T)1, x) < 0;
}
static inline T FL_NAME(fl_copysign)(T a, T b) {
  return FL_LIBM(copysign)(a, b);
}
/* Exponents beyond what any number has are as good as the last of these. */
static inline T FL_NAME(fl_ldexp)(T a, T n) {
  T most = n < -5000 ? (T)-5000 : n > 5000 ? (T)5000 : n;
  return n == n ? FL_LIBM(ldexp)(a, (int)most) : n;
}
static inline T FL_NAME(fl_hypot)(T a, T b) {
  return FL_LIBM(hypot)(a, b);
}
/* Equal infinities have no difference. */
static inline T FL_NAME(fl_logaddexp)(T a, T b) {
  T d = a == b ? (T)0 : FL_LIBM(fabs)(a - b);
  return FL_NAME(fl_maximum)(a, b) + FL_LIBM(log1p)(FL_LIBM(exp)(-d));
}
static inline T FL_NAME(fl_logaddexp2)(T a, T b) {
  T d = a == b ? (T)0 : FL_LIBM(fabs)(a - b);
  return FL_NAME(fl_maximum)(a, b) +
         (T)FL_LOG2E * FL_LIBM(log1p)(FL_LIBM(exp2)(-d));
}
static inline T FL_NAME(fl_xlog1py)(T a, T b) {
  return a == 0 && b == b ? (T)0 : a * FL_LIBM(log1p)(b);
}
static inline T FL_NAME(fl_xlogy)(T a, T b) {
  return a == 0 && b == b ? (T)0 : a * FL_LIBM(log)(b);
}
/* Winitzki's approximation, within 0.4 %, then Halley's steps, which cube that:
 * against erf in the middle and against erfc towards the ends. */
static inline T FL_NAME(fl_erfinv)(T x) {
  T a = FL_LIBM(fabs)(x);
  if (!(a < 1))
    return a == 1 ? FL_LIBM(copysign)((T)INFINITY, x) : (T)NAN;
  T l = FL_LIBM(log1p)(-a * a) / (T)0.147, t = (T)4.33075 + (T)0.0735 * l;
  T root = FL_LIBM(sqrt)(t * t - l);
  T y = FL_LIBM(sqrt)(t > 0 ? -l / (root + t) : root - t);
  for (int k = 0; k < 3; k++) {
    T off = a < (T)0.5 ? FL_LIBM(erf)(y) - a : 1 - a - FL_LIBM(erfc)(y);
    off /= (T)FL_2_SQRTPI * FL_LIBM(exp)(-y * y);
    y -= off / (1 + y * off);
  }
  return FL_LIBM(copysign)(y, x);
}
/* Near 0 by the series in u = (pi x)^2: quotients would lose all digits there.
 * Elsewhere sin and cos of what x is beyond a whole number. */
static inline T FL_NAME(fl_sinc_parts)(T x, T *sine, T *cosine) {
  T n = FL_LIBM(rint)(x), part = (T)FL_PI * (x - n);
  T sign = FL_LIBM(fabs)(n - 2 * FL_LIBM(rint)(n * (T)0.5)) > 0 ? (T)-1 : (T)1;
  *sine = sign * FL_LIBM(sin)(part);
  *cosine = sign * FL_LIBM(cos)(part);
  return (T)FL_PI * x;
}
static inline T FL_NAME(fl_sinc)(T x) {
  T s, c, z = FL_NAME(fl_sinc_parts)(x, &s, &c);
  return x == 0 ? (T)1 : s / z;
}
static inline T FL_NAME(fl_sinc_d1)(T x) {
  T s, c, z = FL_NAME(fl_sinc_parts)(x, &s, &c), u = z * z;
  if (u < (T)0.25)
    return (T)FL_PI * z *
           (-(T)1 / 3 +
            u * ((T)1 / 30 -
                 u * ((T)1 / 840 -
                      u * ((T)1 / 45360 -
                           u * ((T)1 / 3991680 - u * (T)1.9270852604e-9)))));
  return (T)FL_PI * (c - s / z) / z;
}
static inline T FL_NAME(fl_sinc_d2)(T x) {
  T s, c, z = FL_NAME(fl_sinc_parts)(x, &s, &c), u = z * z;
  if (u < (T)0.25)
    return (T)(FL_PI * FL_PI) *
           (-(T)1 / 3 +
            u * ((T)1 / 10 -
                 u * ((T)1 / 168 -
                      u * ((T)1 / 6480 -
                           u * ((T)1 / 443520 - u * (T)2.1197937864e-8)))));
  return (T)(FL_PI * FL_PI) * ((2 / u - 1) * s - 2 * c / z) / z;
}

#undef T
#undef FL_NAME
#undef FL_LIBM
