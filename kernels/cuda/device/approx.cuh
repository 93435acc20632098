/* What is rounded to 16 bits afterwards needs few digits: the same functions
 * where LOW, within 3e-5 or so of each result. NaN stays. */
#pragma once

#define FL_MATH 2
#include "flare.cuh"

inline float fl_low_exp2(float x) { /* denormals are 0 */
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline float fl_low_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <bool LOW> inline float fl_quotient_of(float a, float b) {
  return LOW ? a * fl_low_inverse(b) : a / b;
}
template <bool LOW> inline double fl_quotient_of(double a, double b) {
  return a / b;
}
template <bool LOW> inline float fl_power_of(float x) {
  return LOW ? fl_low_exp2(x * (float)FL_LOG2E) : expf(x);
}
template <bool LOW> inline double fl_power_of(double x) {
  return exp(x);
}

/* exp(x) as rows have it, such that 1 + exp(x) divides by a reciprocal. */
struct fl_low_power {
  float v;
  inline operator float() const {
    return v;
  }
};
inline fl_low_power operator+(int a, fl_low_power b) {
  return {(float)a + b.v};
}
inline float operator/(int a, fl_low_power b) {
  return (float)a * fl_low_inverse(b.v);
}
inline float operator/(float a, fl_low_power b) {
  return a * fl_low_inverse(b.v);
}
template <bool LOW, class T> inline auto fl_row_exp(T x) {
  if constexpr (LOW) { /* by its root, which is no denormal */
    float root = fl_low_exp2(x * (float)(0.5 * FL_LOG2E));
    return fl_low_power{root * root};
  } else
    return fl_power_of<LOW>(x);
}

/* Off by up to 2^-11 of the result: half of f16's last place, and a sixteenth
 * of bf16's. */
template <bool LOW> inline float fl_tanh_of(float x) {
  if (!LOW)
    return fl_tanh(x);
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <bool LOW> inline double fl_tanh_of(double x) {
  return fl_tanh(x);
}
/* 1 + exp(-x) is 2^64 times too small: its inverse is a float to where sigmoid
 * and silu are 0. */
template <bool LOW> inline float fl_sigmoid_of(float x) {
  if (!LOW)
    return fl_sigmoid(x);
  float e = fl_low_exp2(fmaf(x, -(float)FL_LOG2E, -64));
  return fl_low_inverse(e + 0x1p-64f) * 0x1p-64f;
}
template <bool LOW> inline double fl_sigmoid_of(double x) {
  return fl_sigmoid(x);
}
/* x sigmoid(v), v of x's sign; 0 for -inf. */
inline float fl_low_gate(float x, float v) {
  return fmaxf(x, -200) * fl_sigmoid_of<true>(v);
}
template <bool LOW, class T> T fl_silu_of(T x) {
  if constexpr (LOW)
    return fl_low_gate(x, x);
  else
    return fl_silu(x);
}
template <bool LOW> inline float fl_silu_d_of(float x) {
  if (!LOW)
    return fl_silu_d(x);
  float s = fl_sigmoid_of<LOW>(x);
  return s + x * s * (1 - s);
}
template <bool LOW> inline double fl_silu_d_of(double x) {
  return fl_silu_d(x);
}

/* |x| to where a Phi(-a) is 0. NaN stays. */
inline float fl_low_normal(float x) {
  float a = fabsf(x);
  return a > 14.5f ? 14.5f : a;
}
/* The root of the bell exp(-a^2 / 2), which is no denormal, and Phi(-a) over
 * the bell: a polynomial of 1 / (1 + 3 a / 8), from a least-squares fit on 0 to
 * 13. */
inline float fl_low_bell_root(float a) {
  return fl_low_exp2((float)(-0.25 * FL_LOG2E) * a * a);
}
inline float fl_low_mills(float a) {
  float t = fl_low_inverse(fmaf(0.375f, a, 1));
  float h = fmaf(-0.0913518444f, t, 0.201858342f);
  h = fmaf(h, t, 0.0823416710f);
  h = fmaf(h, t, 0.158120424f);
  return fmaf(h, t, 0.149019524f) * t;
}

template <bool LOW, class T> T fl_gelu_of(T x, T approx) {
  if constexpr (LOW) {
    if (approx > 0)
      return fl_low_gate(x, (float)(2 * FL_SQRT_2_PI) * x *
                                (1 + 0.044715f * x * x));
    float a = fl_low_normal(x), b = fl_low_bell_root(a);
    return (x < 0 ? 0 : x) - a * b * fl_low_mills(a) * b;
  } else
    return fl_gelu(x, approx);
}

/* Its derivative. */
template <bool LOW, class T> T fl_gelu_d_of(T x, T approx) {
  if constexpr (LOW) {
    if (approx > 0) {
      float u = (float)FL_SQRT_2_PI * x * (1 + 0.044715f * x * x),
            s = fl_sigmoid_of<LOW>(2 * u),
            du = (float)FL_SQRT_2_PI * (1 + 0.134145f * x * x);
      return s + x * s * (1 - s) * 2 * du;
    }
    float a = fl_low_normal(x), b = fl_low_bell_root(a);
    float d = b * (fl_low_mills(a) - (float)FL_1_SQRT2PI * a) * b;
    return x < 0 ? d : 1 - d;
  } else
    return fl_gelu_d(x, approx);
}
