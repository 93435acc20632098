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
static inline T FL_NAME(fl_remainder)(T a, T b) {
  T r = FL_NAME(fl_fmod)(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* By the remainder: floor(a / b) is one too many when a / b rounds up. From
 * `large` on, the rounding of a - r reaches the quotient's last digits; the
 * product, exact in an fma, says by how many it is off. */
static inline T FL_NAME(fl_floor_div)(T a, T b) {
  const T large = sizeof(T) == 4 ? (T)0x1p20 : (T)0x1p48;
  T r = FL_NAME(fl_fmod)(a, b);
  if (b == 0)
    return a / b;
  T q = FL_LIBM(rint)((a - r) / b);
  T off = (T)(r != 0 && (r < 0) != (b < 0));
  if (FL_LIBM(fabs)(q) >= large && q - q == 0)
    off -= FL_LIBM(rint)((FL_LIBM(fma)(-q, b, a) - r) / b);
  return q - off;
}
static inline T FL_NAME(fl_sigmoid)(T x) {
  return FL_NAME(fl_gate)(1, x, 0);
}
static inline T FL_NAME(fl_softplus)(T x) {
  T e = FL_NAME(fl_exp)(-FL_LIBM(fabs)(x));
  return (x > 0 ? x : (T)0) + FL_NAME(fl_log1p_unit)(e);
}
static inline T FL_NAME(fl_logsigmoid)(T x) {
  return -FL_NAME(fl_softplus)(-x);
}
static inline T FL_NAME(fl_silu)(T x) {
  /* -1000 gives 0, too */
  return FL_NAME(fl_gate)(x < -1000 ? (T)-1000 : x, x, 0);
}
static inline T FL_NAME(fl_silu_d1)(T x) {
  T s = FL_NAME(fl_sigmoid)(x);
  return s * (1 + x * (1 - s));
}
#if FL_MATH > 1
static inline T FL_NAME(fl_silu_d2)(T x) {
  T s = FL_NAME(fl_sigmoid)(x);
  return s * (1 - s) * (2 + x * (1 - 2 * s));
}
/* The derivative of x n / d is n / d + 4 x k / d^2, all of them of exp(-|x|).
 */
FL_INLINE T FL_NAME(fl_mish_d1)(T x) {
  T e = FL_NAME(fl_exp)(-FL_LIBM(fabs)(x));
  T n = x < 0 ? e * (e + 2) : 1 + 2 * e, d = n + 2 * (x < 0 ? (T)1 : e * e);
  T k = (x < 0 ? e : e * e) * (1 + e), over = 1 / d;
  return over * (n + 4 * x * k * over);
}
static inline T FL_NAME(fl_mish_d2)(T x) {
  T t = FL_NAME(fl_tanh)(FL_NAME(fl_softplus)(x)), s = FL_NAME(fl_sigmoid)(x);
  T d = 1 - t * t; /* d tanh / d softplus */
  return 2 * s * d + x * (s * (1 - s) * d - 2 * t * d * s * s);
}
/* With the rounding errors of 2 u = k1 x + k2 x^3, which exp(-2 u) would make
 * large; from 30 on it is 0. */
FL_INLINE T FL_NAME(fl_gelu_by_tanh)(T x) {
  const double k1 = 2 * FL_SQRT_2_PI, k2 = k1 * 0.044715;
  const T h1 = (T)k1, h2 = (T)k2, l1 = (T)(k1 - h1), l2 = (T)(k2 - h2);
  T a = FL_NAME(fl_clamp)(x, -30, 30);
  T z = a * a, q = FL_NAME(fl_fma)(h2, z, h1), from = q - h1;
  T low = (h1 - (q - from)) + FL_NAME(fl_fma)(h2, z, -from);
  low += h2 * FL_NAME(fl_rest)(a, a, z) + (l2 * z + l1);
  T v = a * q;
  low = FL_NAME(fl_rest)(a, q, v) + a * low;
  return FL_NAME(fl_gate)(x < 0 ? a : x, v, low);
}
static inline T FL_NAME(fl_gelu_d1)(T x, T approx) {
  if (approx > 0) {
    T u = (T)FL_SQRT_2_PI * x * (1 + (T)0.044715 * x * x);
    T s = 1 / (1 + FL_NAME(fl_exp)(-2 * u));
    T du = (T)FL_SQRT_2_PI * (1 + (T)0.134145 * x * x);
    return s + x * s * (1 - s) * 2 * du;
  }
  return FL_NAME(fl_gelu_erf_d1)(x);
}
static inline T FL_NAME(fl_gelu_d2)(T x, T approx) {
  if (approx > 0) {
    T u = (T)FL_SQRT_2_PI * x * (1 + (T)0.044715 * x * x);
    T s = 1 / (1 + FL_NAME(fl_exp)(-2 * u));
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
  return n == n ? FL_NAME(fl_times_power)(a, (int)most) : n;
}
static inline T FL_NAME(fl_hypot)(T a, T b) {
  return FL_LIBM(hypot)(a, b);
}
static inline T FL_NAME(fl_xlogy)(T a, T b) {
  return a == 0 && b == b ? (T)0 : a * FL_NAME(fl_log)(b);
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
#endif

#undef T
#undef FL_NAME
#undef FL_LIBM
