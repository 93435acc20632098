/* The functions that formulas and kernels call, by our own names: type-generic
 * over float, double and (where it makes sense) int64_t, and vectorisable. On
 * glibc the transcendental ones go to libmvec's vector variants by declaration;
 * elsewhere to plain libm. Also conversions of f16 and bf16. Special functions
 * are in math_special.h, the Philox generator in math_random.h; both come with
 * this file. Everything is defined for every argument. */
#ifndef FL_MATH_H
#define FL_MATH_H

#ifndef __CUDACC_RTC__ /* there flare.cuh has declared what is needed */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <features.h>
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
/* Declared before <math.h>, so that its own declarations inherit the attribute:
 * gcc then takes the 4-, 8- or 16-lane variant in a vectorised loop. */
#define FL_SIMD1(name)                                                         \
  __attribute__((simd("notinbranch"), const, nothrow)) double name(double);    \
  __attribute__((simd("notinbranch"), const, nothrow)) float name##f(float);
#define FL_SIMD2(name)                                                         \
  __attribute__((simd("notinbranch"), const, nothrow)) double name(double,     \
                                                                   double);    \
  __attribute__((simd("notinbranch"), const, nothrow)) float name##f(float,    \
                                                                     float);
FL_SIMD1(exp)
FL_SIMD1(exp2)
FL_SIMD1(expm1)
FL_SIMD1(log)
FL_SIMD1(log2)
FL_SIMD1(log10)
FL_SIMD1(log1p)
FL_SIMD1(sin)
FL_SIMD1(cos)
FL_SIMD1(tan)
FL_SIMD1(asin)
FL_SIMD1(acos)
FL_SIMD1(atan)
FL_SIMD1(sinh)
FL_SIMD1(cosh)
FL_SIMD1(tanh)
FL_SIMD1(asinh)
FL_SIMD1(acosh)
FL_SIMD1(atanh)
FL_SIMD1(erf)
FL_SIMD1(erfc)
FL_SIMD1(cbrt)
FL_SIMD2(pow)
FL_SIMD2(atan2)
FL_SIMD2(hypot)
#endif
#endif
#include <math.h>
#define FL_MATH 2
#else
#define __FP_FAST_FMAF 1
/* Parsing all this is a fifth of what compiling a small kernel takes, so device
 * code says what it needs. 0: fl_to_int; 1: the functions of FL_LIBM_NAMES and
 * FL_BASIC_*; 2: all. */
#ifndef FL_MATH
#define FL_MATH 1
#endif
#endif

/* A loop with a call that is not inlined is not vectorised. */
#ifdef __CUDACC_RTC__
#define FL_INLINE static inline
#else
#define FL_INLINE static inline __attribute__((always_inline))
#endif

#define FL_LN2       0.69314718055994530942
#define FL_LOG2E     1.44269504088896340736
#define FL_LOG10E    0.43429448190325182765
#define FL_PI        3.14159265358979323846
#define FL_2_SQRTPI  1.12837916709551257390
#define FL_1_SQRT2   0.70710678118654752440
#define FL_1_SQRT2PI 0.39894228040143267794
#define FL_SQRT_2_PI 0.79788456080286535588
/* Klambauer et al. 2017, arXiv:1706.02515 */
#define FL_SELU_A 1.6732632423543772848
#define FL_SELU_S 1.0507009873554804934

/* Truncates; saturates; NaN gives 0. */
static inline int64_t fl_to_int(double x) {
  return x != x                        ? 0
         : x >= 9223372036854775808.0  ? INT64_MAX
         : x <= -9223372036854775808.0 ? INT64_MIN
                                       : (int64_t)x;
}

#define FL_LIBM_NAMES(X)                                                       \
  X(sqrt)                                                                      \
  X(exp)                                                                       \
  X(exp2)                                                                      \
  X(expm1)                                                                     \
  X(log)                                                                       \
  X(log2)                                                                      \
  X(log10)                                                                     \
  X(log1p)                                                                     \
  X(sin)                                                                       \
  X(cos)                                                                       \
  X(tan)                                                                       \
  X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh)   \
      X(erf) X(erfc) X(cbrt)

#ifndef __cplusplus
#define fl_sqrt(x)          FL_FLOATS1(fl_sqrt, x)
#define fl_exp(x)           FL_FLOATS1(fl_exp, x)
#define fl_exp2(x)          FL_FLOATS1(fl_exp2, x)
#define fl_expm1(x)         FL_FLOATS1(fl_expm1, x)
#define fl_log(x)           FL_FLOATS1(fl_log, x)
#define fl_log2(x)          FL_FLOATS1(fl_log2, x)
#define fl_log10(x)         FL_FLOATS1(fl_log10, x)
#define fl_log1p(x)         FL_FLOATS1(fl_log1p, x)
#define fl_sin(x)           FL_FLOATS1(fl_sin, x)
#define fl_cos(x)           FL_FLOATS1(fl_cos, x)
#define fl_tan(x)           FL_FLOATS1(fl_tan, x)
#define fl_asin(x)          FL_FLOATS1(fl_asin, x)
#define fl_acos(x)          FL_FLOATS1(fl_acos, x)
#define fl_atan(x)          FL_FLOATS1(fl_atan, x)
#define fl_sinh(x)          FL_FLOATS1(fl_sinh, x)
#define fl_cosh(x)          FL_FLOATS1(fl_cosh, x)
#define fl_tanh(x)          FL_FLOATS1(fl_tanh, x)
#define fl_asinh(x)         FL_FLOATS1(fl_asinh, x)
#define fl_acosh(x)         FL_FLOATS1(fl_acosh, x)
#define fl_atanh(x)         FL_FLOATS1(fl_atanh, x)
#define fl_erf(x)           FL_FLOATS1(fl_erf, x)
#define fl_erfc(x)          FL_FLOATS1(fl_erfc, x)
#define fl_cbrt(x)          FL_FLOATS1(fl_cbrt, x)
#define fl_atan2(a, b)      FL_FLOATS2(fl_atan2, a, b)
#define fl_hypot(a, b)      FL_FLOATS2(fl_hypot, a, b)
#define fl_copysign(a, b)   FL_FLOATS2(fl_copysign, a, b)
#define fl_logaddexp(a, b)  FL_FLOATS2(fl_logaddexp, a, b)
#define fl_xlogy(a, b)      FL_FLOATS2(fl_xlogy, a, b)
#define fl_ldexp(a, b)      FL_FLOATS2(fl_ldexp, a, b)
#define fl_logaddexp2(a, b) FL_FLOATS2(fl_logaddexp2, a, b)
#define fl_xlog1py(a, b)    FL_FLOATS2(fl_xlog1py, a, b)

#define FL_TYPED1(f, x)                                                        \
  _Generic((x), float : f##_f32, double : f##_f64, default : f##_i64)(x)
#define FL_TYPED2(f, a, b)                                                     \
  _Generic((a), float : f##_f32, double : f##_f64, default : f##_i64)(a, b)
#define FL_FLOATS1(f, x) _Generic((x), float : f##_f32, default : f##_f64)(x)
#define FL_FLOATS2(f, a, b)                                                    \
  _Generic((a), float : f##_f32, default : f##_f64)(a, b)

#define fl_abs(x)        FL_TYPED1(fl_abs, x)
#define fl_sign(x)       FL_TYPED1(fl_sign, x)
#define fl_floor(x)      FL_TYPED1(fl_floor, x)
#define fl_ceil(x)       FL_TYPED1(fl_ceil, x)
#define fl_rint(x)       FL_TYPED1(fl_rint, x) /* halves to even */
#define fl_trunc(x)      FL_TYPED1(fl_trunc, x)
#define fl_min(a, b)     FL_TYPED2(fl_min, a, b) /* b if either is NaN */
#define fl_max(a, b)     FL_TYPED2(fl_max, a, b)
#define fl_minimum(a, b) FL_TYPED2(fl_minimum, a, b) /* NaN if either is */
#define fl_maximum(a, b) FL_TYPED2(fl_maximum, a, b)
#define fl_pow(a, b)     FL_TYPED2(fl_pow, a, b)
/* Quotient rounded down, remainder with the sign of b (remainder) or of a
 * (fmod). Integers: division by 0 gives 0, remainder by 0 gives 0. */
#define fl_floor_div(a, b) FL_TYPED2(fl_floor_div, a, b)
#define fl_remainder(a, b) FL_TYPED2(fl_remainder, a, b)
#define fl_fmod(a, b)      FL_TYPED2(fl_fmod, a, b)
/* NaN stays NaN; hi wins when lo > hi */
#define fl_clamp(x, lo, hi)                                                    \
  _Generic((x), float                                                          \
           : fl_clamp_f32, double                                              \
           : fl_clamp_f64, default                                             \
           : fl_clamp_i64)(x, lo, hi)
/* approx 0: x Phi(x), exact in the left tail too; 1: Hendrycks and
 * Gimpel's tanh form (arXiv:1606.08415), as x / (1 + exp(-2u)), which keeps its
 * digits for negative x where 1 + tanh(u) loses them. _d and _dd are
 * derivatives. */
#define fl_gelu(x, approx)    FL_FLOATS2(fl_gelu, x, approx)
#define fl_gelu_d(x, approx)  FL_FLOATS2(fl_gelu_d1, x, approx)
#define fl_gelu_dd(x, approx) FL_FLOATS2(fl_gelu_d2, x, approx)
#define fl_sigmoid(x)         FL_FLOATS1(fl_sigmoid, x)
#define fl_logsigmoid(x)      FL_FLOATS1(fl_logsigmoid, x)
#define fl_silu(x)            FL_FLOATS1(fl_silu, x)
#define fl_mish(x)            FL_FLOATS1(fl_mish, x)
#define fl_tanhshrink(x)      FL_FLOATS1(fl_tanhshrink, x)
#define fl_silu_d(x)          FL_FLOATS1(fl_silu_d1, x)
#define fl_silu_dd(x)         FL_FLOATS1(fl_silu_d2, x)
#define fl_softplus(x)        FL_FLOATS1(fl_softplus, x) /* log(1 + exp(x)) */
#define fl_mish_d(x)          FL_FLOATS1(fl_mish_d1, x)
#define fl_mish_dd(x)         FL_FLOATS1(fl_mish_d2, x)
#define fl_erfinv(x)          FL_FLOATS1(fl_erfinv, x)
#define fl_lgamma(x)          FL_FLOATS1(fl_lgamma, x)
/* derivatives of lgamma: the first, the second, the third */
#define fl_digamma(x)    FL_FLOATS1(fl_digamma, x)
#define fl_trigamma(x)   FL_FLOATS1(fl_trigamma, x)
#define fl_tetragamma(x) FL_FLOATS1(fl_tetragamma, x)
#define fl_sinc(x)       FL_FLOATS1(fl_sinc, x) /* sin(pi x) / (pi x) */
#define fl_sinc_d(x)     FL_FLOATS1(fl_sinc_d1, x)
#define fl_sinc_dd(x)    FL_FLOATS1(fl_sinc_d2, x)
#define fl_signbit(x)    FL_TYPED1(fl_signbit, x)
/* exp(x) - 1 for x <= 0; another x gives some number */
#define fl_expm1_below(x) FL_FLOATS1(fl_expm1_below, x)
#endif

#if FL_MATH > 0

static inline uint32_t fl_float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static inline float fl_bits_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* fl_<name>_f32 and _f64 of libm's functions */
#define FL_F64(name)                                                           \
  static inline double fl_##name##_f64(double x) {                             \
    return name(x);                                                            \
  }
FL_LIBM_NAMES(FL_F64)

#if FL_MATH > 1
/* The normal distribution, for gelu. In float Phi(-a) is the bell exp(-a^2 / 2)
 * times a quotient of polynomials (relative error 1.3e-8, before rounding), and
 * the bell 2^n times a polynomial of a^2 + n 2 ln 2 (3e-9). */

/* |x| to 12.9: beyond it Phi(-a) is no normal float. NaN stays. */
static inline float fl_normal_f32(float x) {
  float a = fabsf(x);
  return a > 12.9f ? 12.9f : a;
}
/* bell / 2^n */
static inline float fl_bell_middle_f32(float a, float *power) {
  float z = a * a, bias = 0x1.8p23f; /* adding it rounds to integers */
  float t = bias - 0.72134752f * z, n = t - bias;
  /* a^2 with its rounding error, so that the tail keeps its digits */
#ifdef __FP_FAST_FMAF
  float r = fmaf(n, 1.38629436f, z) + fmaf(n, -3.80930865e-9f, fmaf(a, a, -z));
#else
  float h; /* the upper half of a's bits; n times 17 bits is exact as well */
  h = fl_bits_float(fl_float_bits(a) & 0xfffff000);
  float r =
      (h * h + n * 1.38629150f) + (n * 2.85721353e-6f + (a - h) * (a + h));
#endif
  float p = 2.1594904e-05f * r - 0.000261521171f;
  p = p * r + 0.00260426663f;
  p = p * r - 0.0208331514f;
  p = p * r + 0.124999985f;
  p = p * r - 0.5f;
  *power = n;
  return p * r + 1;
}
static inline float fl_bell_f32(float a) {
  float n, p = fl_bell_middle_f32(a, &n);
  return p * fl_bits_float((uint32_t)((int32_t)n + 127) << 23);
}
/* Phi(-a) / bell */
static inline float fl_mills_f32(float a) {
  float p = 0.00409128983f * a + 0.0404862389f,
        q = 0.0102552231f * a + 0.101490423f;
  p = p * a + 0.18283087f;
  p = p * a + 0.4377985f;
  p = p * a + 0.5f;
  q = q * a + 0.468393683f;
  q = q * a + 1.2009033f;
  q = q * a + 1.67348182f;
  return p / (q * a + 1);
}
/* To where a Phi(-a) is not even a denormal. */
FL_INLINE float fl_gelu_erf_f32(float x) {
  float a = fabsf(x) > 14.5f ? 14.5f : fabsf(x), n;
  float p = fl_bell_middle_f32(a, &n);
  int32_t k = (int32_t)n, half = k >> 1;
  float y = a * p * fl_mills_f32(a) *
            fl_bits_float((uint32_t)(half + 127) << 23) *
            fl_bits_float((uint32_t)(k - half + 127) << 23);
  return (x < 0 ? 0 : x) - y;
}
static inline float fl_gelu_erf_d1_f32(float x) {
  float a = fl_normal_f32(x);
  float d = fl_bell_f32(a) * (fl_mills_f32(a) - (float)FL_1_SQRT2PI * a);
  return x < 0 ? d : 1 - d;
}
/* In double the exact form; x to where erfc and exp are 0. */
static inline double fl_normal_f64(double x) {
  return x > 40 ? 40 : x < -40 ? -40 : x;
}
static inline double fl_bell_f64(double x) {
  return exp(-0.5 * x * x);
}
static inline double fl_gelu_erf_f64(double x) {
  double y = x < -40 ? -40 : x;
  return y * 0.5 * erfc(y * -FL_1_SQRT2);
}
static inline double fl_gelu_erf_d1_f64(double x) {
  double y = fl_normal_f64(x);
  return 0.5 * erfc(y * -FL_1_SQRT2) + y * FL_1_SQRT2PI * fl_bell_f64(y);
}

/* 2^n (1 + p) - 1, where p + 1 is exp of what n ln 2 leaves of x; within 9e-8
 * relatively. */
static inline float fl_expm1_below_f32(float x) {
  float a = x < -88 ? -88 : x, bias = 0x1.8p23f + 127, scale;
  float t = a * (float)FL_LOG2E + bias, n = t - bias;
  float r = a - n * (float)FL_LN2; /* off where 2^n is small */
  float p = 0.00138825201f;
  p = p * r + 0.00836652517f;
  p = p * r + 0.0416672006f;
  p = p * r + 0.166665435f;
  p = p * r + 0.49999997f;
  p = p * (r * r) + r;
  uint32_t u; /* t's low bits are n + 127 */
  memcpy(&u, &t, 4);
  u <<= 23;
  memcpy(&scale, &u, 4);
  return scale * p + (scale - 1);
}
static inline double fl_expm1_below_f64(double x) {
  return expm1(x);
}
#endif

#ifdef __FP_FAST_FMAF
static inline float fl_fma_f32(float a, float b, float c) {
  return fmaf(a, b, c);
}
static inline double fl_fma_f64(double a, double b, double c) {
  return fma(a, b, c);
}
/* What rounding took from p = a b. */
#define fl_rest_f32(a, b, p) fmaf(a, b, -(p))
#define fl_rest_f64(a, b, p) fma(a, b, -(p))
#else
#define fl_fma_f32(a, b, c)  ((a) * (b) + (c))
#define fl_fma_f64           fl_fma_f32
#define fl_rest_f32(a, b, p) 0
#define fl_rest_f64          fl_rest_f32
#endif
/* x / (1 + exp(-v - low)) for a v of x's sign and a tiny low */
static inline double fl_gate_f64(double x, double v, double low) {
  double e = exp(-fabs(v));
  e = v < 0 ? e + e * low : e - e * low;
  return (v < 0 ? x * e : x) / (1 + e);
}
static inline double fl_fmod_f64(double a, double b) {
  return fmod(a, b);
}
static inline double fl_log1p_unit_f64(double x) {
  return log1p(x);
}
#define fl_times_power_f64 ldexp

#ifdef __CUDACC_RTC__
static inline float fl_gate_f32(float x, float v, float low) {
  /* exp(-|v|) = e c, so that what is small keeps its digits */
  bool far = fabsf(v) > 80;
  float e = expf(far ? 40 - fabsf(v) : -fabsf(v)),
        c = far ? 4.24835426e-18f : 1;
  float q = fl_inverse(1 + e * c), y = x * e * q;
  return v < 0 ? (y + y * low) * c : x * (q - q * e * c * low);
}
static inline float fl_log1p_unit_f32(float x) {
  return log1pf(x);
}
#define fl_times_power_f32 ldexpf
static inline float fl_atan2_f32(float a, float b) {
  return atan2f(a, b);
}
static inline float fl_fmod_f32(float a, float b) {
  return fmodf(a, b);
}
#define FL_F32(name)                                                           \
  static inline float fl_##name##_f32(float x) {                               \
    return name##f(x);                                                         \
  }
FL_LIBM_NAMES(FL_F32)
#else
#include "math_float.h"
#endif

#if FL_MATH > 1
#include "math_gamma.h"
#endif

#define T             float
#define FL_NAME(name) name##_f32
#define FL_LIBM(name) name##f
#include "math_typed.h"
#define T             double
#define FL_NAME(name) name##_f64
#define FL_LIBM(name) name
#include "math_typed.h"

#if FL_MATH > 1
#include "math_double.h"
#endif
#ifndef __CUDACC_RTC__
#include "math_float_special.h"
#endif

/* --- integers --- */

static inline bool fl_signbit_i64(int64_t x) {
  return x < 0;
}
static inline int64_t fl_abs_i64(int64_t x) {
  return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
}
static inline int64_t fl_sign_i64(int64_t x) {
  return (x > 0) - (x < 0);
}
static inline int64_t fl_floor_i64(int64_t x) {
  return x;
}
#define fl_ceil_i64  fl_floor_i64
#define fl_rint_i64  fl_floor_i64
#define fl_trunc_i64 fl_floor_i64
static inline int64_t fl_min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t fl_max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}
#define fl_minimum_i64 fl_min_i64
#define fl_maximum_i64 fl_max_i64
static inline int64_t fl_clamp_i64(int64_t x, int64_t lo, int64_t hi) {
  return fl_min_i64(fl_max_i64(x, lo), hi);
}
static inline int64_t fl_fmod_i64(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b; /* INT64_MIN % -1 traps */
}
static inline int64_t fl_remainder_i64(int64_t a, int64_t b) {
  int64_t r = fl_fmod_i64(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t fl_floor_div_i64(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (b == -1)
    return (int64_t)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
/* Negative exponents give 0, but for a base of 1 or -1. */
static inline int64_t fl_pow_i64(int64_t a, int64_t b) {
  uint64_t r = 1, s = (uint64_t)a;
  if (b < 0)
    return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  for (; b; b >>= 1, s *= s)
    if (b & 1)
      r *= s;
  return (int64_t)r;
}
/* Shifts by 64 and more, or by less than 0, leave the sign alone or nothing. */
static inline int64_t fl_shl(int64_t a, int64_t b) {
  return (uint64_t)b > 63 ? 0 : (int64_t)((uint64_t)a << b);
}
static inline int64_t fl_shr(int64_t a, int64_t b) {
  return a >> ((uint64_t)b > 63 ? 63 : b);
}
/* Never negative, but for the least integer, whose size no integer has. */
static inline int64_t fl_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = fl_fmod_i64(a, b);
    a = b;
    b = r;
  }
  return fl_abs_i64(a);
}
static inline int64_t fl_lcm(int64_t a, int64_t b) {
  int64_t g = fl_gcd(a, b);
  return g == 0 ? 0 : fl_abs_i64((int64_t)((uint64_t)(a / g) * (uint64_t)b));
}
static inline int64_t fl_not(int64_t x, int bits) {
  return bits == 1 ? x == 0 : ~x;
}

/* --- the same names in C++ (CUDA), by overloading --- */

/* What FL_MATH 1 has, beside FL_LIBM_NAMES and fl_clamp. */
#define FL_BASIC_TYPED1(X) X(abs) X(sign) X(floor) X(ceil) X(rint) X(trunc)
#define FL_BASIC_TYPED2(X)                                                     \
  X(min)                                                                       \
  X(max)                                                                       \
  X(minimum) X(maximum) X(pow) X(floor_div) X(remainder) X(fmod)
#define FL_BASIC_FLOATS1(X) X(sigmoid) X(softplus) X(logsigmoid) X(silu)

#ifdef __cplusplus
#define FL_FLOATS1(f, F32, F64)                                                \
  static inline float f(float x) {                                             \
    return F32(x);                                                             \
  }                                                                            \
  static inline double f(double x) {                                           \
    return F64(x);                                                             \
  }
#define FL_FLOATS2(f, F32, F64)                                                \
  static inline float f(float a, float b) {                                    \
    return F32(a, b);                                                          \
  }                                                                            \
  static inline double f(double a, double b) {                                 \
    return F64(a, b);                                                          \
  }
#define FL_TYPED1(f)                                                           \
  FL_FLOATS1(f, f##_f32, f##_f64)                                              \
  static inline int64_t f(int64_t x) {                                         \
    return f##_i64(x);                                                         \
  }
#define FL_TYPED2(f)                                                           \
  FL_FLOATS2(f, f##_f32, f##_f64)                                              \
  static inline int64_t f(int64_t a, int64_t b) {                              \
    return f##_i64(a, b);                                                      \
  }
#define FL_BOTH(name) FL_FLOATS1(fl_##name, fl_##name##_f32, fl_##name##_f64)
#define FL_ALL1(name) FL_TYPED1(fl_##name)
#define FL_ALL2(name) FL_TYPED2(fl_##name)
FL_LIBM_NAMES(FL_BOTH)
FL_BASIC_FLOATS1(FL_BOTH)
FL_BASIC_TYPED1(FL_ALL1)
FL_BASIC_TYPED2(FL_ALL2)
static inline float fl_clamp(float x, float lo, float hi) {
  return fl_clamp_f32(x, lo, hi);
}
static inline double fl_clamp(double x, double lo, double hi) {
  return fl_clamp_f64(x, lo, hi);
}
static inline int64_t fl_clamp(int64_t x, int64_t lo, int64_t hi) {
  return fl_clamp_i64(x, lo, hi);
}
#if FL_MATH > 1
FL_FLOATS2(fl_atan2, fl_atan2_f32, fl_atan2_f64)
FL_FLOATS2(fl_gelu, fl_gelu_f32, fl_gelu_f64)
FL_FLOATS2(fl_gelu_d, fl_gelu_d1_f32, fl_gelu_d1_f64)
FL_FLOATS2(fl_gelu_dd, fl_gelu_d2_f32, fl_gelu_d2_f64)
FL_FLOATS1(fl_mish, fl_mish_f32, fl_mish_f64)
FL_FLOATS1(fl_tanhshrink, fl_tanhshrink_f32, fl_tanhshrink_f64)
FL_FLOATS1(fl_silu_d, fl_silu_d1_f32, fl_silu_d1_f64)
FL_FLOATS1(fl_silu_dd, fl_silu_d2_f32, fl_silu_d2_f64)
FL_FLOATS1(fl_mish_d, fl_mish_d1_f32, fl_mish_d1_f64)
FL_FLOATS1(fl_mish_dd, fl_mish_d2_f32, fl_mish_d2_f64)
FL_FLOATS1(fl_expm1_below, fl_expm1_below_f32, fl_expm1_below_f64)
FL_FLOATS2(fl_hypot, fl_hypot_f32, fl_hypot_f64)
FL_FLOATS2(fl_copysign, fl_copysign_f32, fl_copysign_f64)
FL_FLOATS2(fl_ldexp, fl_ldexp_f32, fl_ldexp_f64)
FL_FLOATS2(fl_logaddexp, fl_logaddexp_f32, fl_logaddexp_f64)
FL_FLOATS2(fl_logaddexp2, fl_logaddexp2_f32, fl_logaddexp2_f64)
FL_FLOATS2(fl_xlogy, fl_xlogy_f32, fl_xlogy_f64)
FL_FLOATS2(fl_xlog1py, fl_xlog1py_f32, fl_xlog1py_f64)
FL_FLOATS1(fl_erfinv, fl_erfinv_f32, fl_erfinv_f64)
FL_FLOATS1(fl_lgamma, fl_lgamma_f32, fl_lgamma_f64)
FL_FLOATS1(fl_digamma, fl_digamma_f32, fl_digamma_f64)
FL_FLOATS1(fl_trigamma, fl_trigamma_f32, fl_trigamma_f64)
FL_FLOATS1(fl_tetragamma, fl_tetragamma_f32, fl_tetragamma_f64)
FL_FLOATS1(fl_sinc, fl_sinc_f32, fl_sinc_f64)
FL_FLOATS1(fl_sinc_d, fl_sinc_d1_f32, fl_sinc_d1_f64)
FL_FLOATS1(fl_sinc_dd, fl_sinc_d2_f32, fl_sinc_d2_f64)
FL_TYPED1(fl_signbit)
#endif
#endif

#if FL_MATH > 1

/* --- 16-bit floats --- */

static inline float fl_from_bf16(uint16_t h) {
  return fl_bits_float((uint32_t)h << 16);
}
/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t fl_to_bf16(float f) {
  uint32_t u = fl_float_bits(f);
  uint32_t r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : r);
}
static inline float fl_from_f16(uint16_t h) {
  uint32_t em = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000)
                                                     << 16;
  /* 2^112 moves the exponent's bias, and makes denormals normal */
  uint32_t normal = fl_float_bits(fl_bits_float(em) * 0x1p112f);
  uint32_t special = em | 0x7f800000;
  return fl_bits_float(sign | ((h & 0x7c00) == 0x7c00 ? special : normal));
}
static inline uint16_t fl_to_f16(float f) {
  uint32_t u = fl_float_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  /* below 2^-14: adding 0.5 lets the float unit round to multiples of 2^-24 */
  uint32_t tiny = fl_float_bits(fl_bits_float(a) + 0.5f) - 0x3f000000;
  uint32_t normal = (a + 0xc8000fff + ((a >> 13) & 1)) >> 13;
  uint32_t r = a < 0x38800000 ? tiny : normal;
  r = a >= 0x47800000 ? 0x7c00 : r;
  r = a > 0x7f800000 ? 0x7e00 : r;
  return (uint16_t)(sign | r);
}

#include "math_special.h"
#include "math_random.h"

#endif /* FL_MATH > 1 */
#endif /* FL_MATH > 0 */

#endif
