/* Floats on the CPU, where the vector libm is more than two units of the last
 * place off: polynomials fitted for the purpose, each within 1e-8 of its
 * function before rounding, or the function in double. Included by math.h;
 * spec/c/ulp.c measures them all. A comment that names no range holds for any
 * argument. */

/* 2^k for -126 <= k <= 127, 0 for k = -127 */
static inline float fl_two_to(int32_t k) {
  return fl_bits_float((uint32_t)(k + 127) << 23);
}

/* exp: the polynomial is 1 + r + r^2 P(r), fitted to a relative error of 3e-9
 * on |r| <= ln 2 / 2. 2^k goes in two factors, so denormals come out right. */
#define FL_EXP_LOG2E  0x1.715476p+0f
#define FL_EXP_LN2_HI 0x1.62e4p-1f
#define FL_EXP_LN2_LO 0x1.7f7d1cp-20f
#define FL_EXP_P0     0x1.fffffcp-2f
#define FL_EXP_P1     0x1.555492p-3f
#define FL_EXP_P2     0x1.5558f2p-5f
#define FL_EXP_P3     0x1.123a2p-7f
#define FL_EXP_P4     0x1.6a23dp-10f

/* x = n ln 2 + high - low, |x| < 2^20. Adding 1.5 * 2^23 rounds to integers,
 * which the sum has in its low bits. */
FL_INLINE float fl_exp_reduce(float x, float *low, int32_t *n) {
  float bias = 0x1.8p23f, sum = x * FL_EXP_LOG2E + bias, t = sum - bias;
  *n = (int32_t)(fl_float_bits(sum) - fl_float_bits(bias));
  *low = t * FL_EXP_LN2_LO;
  return x - t * FL_EXP_LN2_HI;
}
/* exp(high - low) - 1, of at most ln 2 / 2 */
FL_INLINE float fl_exp_middle(float high, float low) {
  float r = high - low, p = FL_EXP_P3 + r * FL_EXP_P4;
  p = FL_EXP_P2 + r * p;
  p = FL_EXP_P1 + r * p;
  p = FL_EXP_P0 + r * p;
  return high + ((r * r) * p - low);
}
/* x 2^n for -250 <= n <= 250, rounded once */
FL_INLINE float fl_scale_f32(float x, int32_t n) {
  int32_t half = (n + 254) >> 1;
  float y = x * fl_bits_float((uint32_t)half << 23);
  return y * fl_bits_float((uint32_t)(n + 254 - half) << 23);
}
/* x 2^n: a product without error, rounded once */
FL_INLINE float fl_times_power_f32(float x, int32_t n) {
  int32_t most = n < -400 ? -400 : n > 400 ? 400 : n;
  uint64_t bits = (uint64_t)(most + 1023) << 52;
  double power;
  memcpy(&power, &bits, 8);
  return (float)((double)x * power);
}
FL_INLINE float fl_exp_f32(float x) {
  float low, a = fabsf(x);
  int32_t n;
  float high = fl_exp_reduce(copysignf(a > 104 ? 104 : a, x), &low, &n);
  return fl_scale_f32(1 + fl_exp_middle(high, low), n);
}
/* x / (1 + exp(-v - low)) for a v of x's sign and a tiny low. The exponential
 * is 2^n (1 + q); the denominator is kept at about 1, by 2^-n where n > 0. */
FL_INLINE float fl_gate_f32(float x, float v, float low) {
  float more, a = fabsf(v);
  int32_t n;
  float high = fl_exp_reduce(copysignf(a > 150 ? 150 : a, -v), &more, &n);
  float q = fl_exp_middle(high, more + low);
  int32_t up = n > 0 ? n : 0, down = n < 0 ? n : 0, off = up - down;
  float r = fl_two_to(down < -127 ? -127 : down);
  float s = fl_two_to(off > 127 ? -127 : -off);
  return fl_scale_f32(x / ((r * q + s) + 1), -up);
}
static inline float fl_expm1_f32(float x) {
  float y = x < -20 ? -20 : x;
  y = y > 89 ? 89 : y;
  float t = rintf(y * FL_EXP_LOG2E);
  float r = (y - t * FL_EXP_LN2_HI) - t * FL_EXP_LN2_LO;
  float p = 0.00138825201f;
  p = p * r + 0.00836652517f;
  p = p * r + 0.0416672006f;
  p = p * r + 0.166665435f;
  p = p * r + 0.49999997f;
  p = p * (r * r) + r;
  float s = fl_two_to((int32_t)t - 1); /* 2^128 is not a float */
  return (s * p + (s - 0.5f)) * 2;
}
static inline float fl_cosh_f32(float x) {
  float low, y = fabsf(x);
  int32_t n;
  float high = fl_exp_reduce(y > 90 ? 90 : y, &low, &n);
  float h = (1 + fl_exp_middle(high, low)) * fl_two_to(n - 4) * 8;
  return h + 0.25f / h;
}

/* Of x > 0: x = 2^k (1 + f), 1 + f between the roots of 1/2 and 2; returns
 * (log(1 + f) - f). */
FL_INLINE float fl_log_reduce(float x, float *k, float *f) {
  bool tiny = x < 0x1p-126f;
  float larger = tiny ? x * 0x1p23f : x, less = tiny ? 23 : 0;
  uint32_t u = fl_float_bits(larger);
  int32_t e = (int32_t)(u - 0x3f3504f3) >> 23;
  float m = fl_bits_float(u - ((uint32_t)e << 23)) - 1;
  *k = (float)e - less;
  *f = m;
  float p = 0.129014209f - 0.0760925636f * m;
  p = p * m - 0.132463455f;
  p = p * m + 0.141822726f;
  p = p * m - 0.16608718f;
  p = p * m + 0.200019613f;
  p = p * m - 0.250016004f;
  p = p * m + 0.333333254f;
  p = p * m - 0.499999881f;
  return m * m * p;
}
/* y is the result for x that is positive, finite and a number. */
static inline float fl_log_ends(float x, float y) {
  float end = x < 0 ? NAN : -INFINITY;
  y = x > 0 ? y : end;
  return x < INFINITY ? y : x;
}
static inline float fl_log_f32(float x) {
  float k, f, r = fl_log_reduce(x, &k, &f);
  return fl_log_ends(x, k * 0.693145752f + (f + (r + k * 1.42860682e-6f)));
}
static inline float fl_log2_f32(float x) {
  float k, f, r = fl_log_reduce(x, &k, &f);
  return fl_log_ends(
      x, k + (f * 1.44269502f + (f * 1.92596303e-8f + r * 1.44269502f)));
}
static inline float fl_log10_f32(float x) {
  float k, f, r = fl_log_reduce(x, &k, &f);
  float low = k * 4.60503907e-6f + (f * -1.01030501e-8f + r * 0.434294492f);
  return fl_log_ends(x, k * 0.301025391f + (f * 0.434294492f + low));
}
/* log(1 + x) for 0 <= x <= 1 */
static inline float fl_log1p_unit_f32(float x) {
#ifdef __FP_FAST_FMAF
  float p = 0.00208444009f * x - 0.0136911869f;
  p = p * x + 0.0421139076f;
  p = p * x - 0.0832380503f;
  p = p * x + 0.124794811f;
  p = p * x - 0.161351576f;
  p = p * x + 0.198996216f;
  p = p * x - 0.249888644f;
  p = p * x + 0.333327144f;
  p = p * x - 0.499999881f;
  return x + x * x * p;
#else
  return (float)log1p((double)x);
#endif
}

FL_INLINE float fl_tanh_f32(float x) {
  float a = fabsf(x), u = a * a, low;
  float p = 0.0205820687f - 0.00564036053f * u;
  int32_t n;
  p = p * u - 0.0537225269f;
  p = p * u + 0.133312404f;
  p = p * u - 0.333332747f;
  float high = fl_exp_reduce(2 * (a > 10 ? 10 : a), &low, &n);
  float q = fl_exp_middle(high, low), s = fl_two_to(n);
  float y = a < 0.625f ? a + a * (u * p) : 1 - 2 / (s * q + (s + 1));
  return copysignf(y, x);
}

/* Up to 1 by a polynomial, then 1 minus what the normal distribution has beyond
 * a sqrt(2). */
FL_INLINE float fl_erf_f32(float x) {
  float a = fabsf(x), s = a * a;
  float p = 7.80690389e-05f * s - 0.00079978531f;
  p = p * s + 0.0051871622f;
  p = p * s - 0.0268533472f;
  p = p * s + 0.112835787f;
  p = p * s - 0.37612626f;
  p = p * s + 0.128379166f;
  float t = a > 4 ? 5.65685425f : a * 1.41421354f;
  float far = 1 - 2 * (fl_bell_f32(t) * fl_mills_f32(t));
  return a < 1 ? x + x * p : a == a ? copysignf(far, x) : x;
}

/* of 0 <= t <= 1 */
FL_INLINE float fl_atan_middle(float t) {
  float s = t * t, p = 0.0108873611f - 0.0017875476f * s;
  p = p * s - 0.0311270021f;
  p = p * s + 0.0579065457f;
  p = p * s - 0.0840047523f;
  p = p * s + 0.109511748f;
  p = p * s - 0.142640516f;
  p = p * s + 0.19998531f;
  p = p * s - 0.333332986f;
  return t + t * s * p;
}
#define FL_PI_HIGH 3.14159274f
#define FL_PI_LOW  -8.74227766e-8f
static inline float fl_atan_f32(float x) {
  float a = fabsf(x), y = fl_atan_middle(a > 1 ? 1 / a : a);
  y = a > 1 ? 0.5f * FL_PI_HIGH - (y - 0.5f * FL_PI_LOW) : y;
  return copysignf(y, x);
}
static inline float fl_atan2_f32(float a, float b) {
  float u = fabsf(a), v = fabsf(b), high = u > v ? u : v, low = u > v ? v : u;
  float t = low == high ? (high == 0 ? 0.0f : 1.0f) : low / high;
  float y = fl_atan_middle(t);
  y = u > v ? 0.5f * FL_PI_HIGH - (y - 0.5f * FL_PI_LOW) : y;
  y = copysignf(1, b) < 0 ? FL_PI_HIGH - (y - FL_PI_LOW) : y;
  return a != a || b != b ? NAN : copysignf(y, a);
}
/* asin(t) / t - 1 for t^2 = s <= 1/4 */
static inline float fl_asin_middle(float s) {
  float p = 0.0241520926f + 0.0422117971f * s;
  p = p * s + 0.0454760417f;
  p = p * s + 0.0749525204f;
  p = p * s + 0.166667536f;
  return p * s;
}
static inline float fl_asin_f32(float x) {
  float a = fabsf(x), s = a > 0.5f ? 0.5f - 0.5f * a : a * a;
  float t = a > 0.5f ? sqrtf(s) : a, more = t * fl_asin_middle(s);
  float d = 0.5f * FL_PI_HIGH - 2 * t, lost = 0.5f * FL_PI_HIGH - d - 2 * t;
  float far = d - (2 * more - 0.5f * FL_PI_LOW - lost);
  return copysignf(a > 0.5f ? far : t + more, x);
}
static inline float fl_acos_f32(float x) {
  float a = fabsf(x), s = a > 0.5f ? 0.5f - 0.5f * a : a * a;
  float t = a > 0.5f ? sqrtf(s) : x, y = t + t * fl_asin_middle(s);
  float far = x < 0 ? FL_PI_HIGH - (2 * y - FL_PI_LOW) : 2 * y;
  return a > 0.5f ? far : 0.5f * FL_PI_HIGH - (y - 0.5f * FL_PI_LOW);
}

/* sin, cos and tan: in double, and quicker up to FL_NEAR where there are fused
 * products. Loops look first whether all is near (kernels/cpu/near.h). */
#define FL_NEAR 65536.0f
#ifdef __FP_FAST_FMAF
/* x = k pi / 2 + high + low, with pi / 2 in three parts; the first difference
 * has no error, nor has the second beside the zeros, where digits are lost. */
FL_INLINE float fl_turn(float x, float *low, uint32_t *k) {
  float bias = 0x1.8p23f, sum = fmaf(x, 0.636619747f, bias), t = sum - bias;
  float rest = fmaf(-t, 1.57079637f, x), more = t * -4.37113883e-08f;
  float lost = fmaf(t, -1.71512451e-15f, fmaf(t, -4.37113883e-08f, -more));
  float high = rest - more;
  *low = rest - high - more - lost;
  *k = fl_float_bits(sum);
  return high;
}
/* sin(x + turns pi / 2); the polynomials are within 4e-9 */
FL_INLINE float fl_sin_turned(float x, uint32_t turns) {
  uint32_t k;
  float low, r = fl_turn(x, &low, &k), s = r * r;
  float p = 0.00833219197f - 0.000195187793f * s;
  p = p * s - 0.166666552f;
  float q = 2.44325656e-05f * s - 0.00138873106f;
  q = q * s + 0.0416666456f;
  float sine = r + (r * s * p + low);
  float cosine = fmaf(s, -0.5f, 1) + fmaf(s * s, q, -r * low);
  k += turns;
  float y = k & 1 ? cosine : sine;
  return fl_bits_float(fl_float_bits(y) ^ (k & 2) << 30);
}
FL_INLINE float fl_sin_near(float x) {
  return fl_sin_turned(x, 0);
}
FL_INLINE float fl_cos_near(float x) {
  return fl_sin_turned(x, 1);
}
FL_INLINE float fl_tan_near(float x) { /* 1.3e-9 */
  uint32_t k;
  float low, r = fl_turn(x, &low, &k), s = r * r;
  float p = 0.00437286124f * s + 9.79756078e-05f;
  p = p * s + 0.0108276047f;
  p = p * s + 0.0212861672f;
  p = p * s + 0.0540589169f;
  p = p * s + 0.133326754f;
  p = p * s + 0.333333492f;
  float y = r + (r * s * p + fmaf(low, s, low));
  return (k & 1 ? -1 : y) / (k & 1 ? y : 1);
}
#else
#define fl_sin_near(x) (float)sin((double)(x))
#define fl_cos_near(x) (float)cos((double)(x))
#define fl_tan_near(x) (float)tan((double)(x))
#endif
#define FL_TURNING(name)                                                       \
  FL_INLINE float fl_##name##_f32(float x) {                                   \
    float far = (float)name((double)x), y = fl_##name##_near(x);               \
    return fabsf(x) <= FL_NEAR ? y : far;                                      \
  }
FL_TURNING(sin)
FL_TURNING(cos)
FL_TURNING(tan)
#undef FL_TURNING

/* What is left of a after whole multiples of b: each step takes 51 bits off
 * the quotient, without error, since a product of 24 bits and the difference
 * fit into doubles. */
static inline float fl_fmod_f32(float a, float b) {
#ifdef __FP_FAST_FMA
  double r = fabs((double)a), d = fabs((double)b);
  d = d > 0x1p200 ? 0x1p200 : d;
  double over = 1 / d;
#pragma GCC unroll 6
  for (int k = 0; k < 6; k++)
    r = fma(-rint(r * over), d, r);
  return copysignf((float)(r < 0 ? r + d : r), a);
#else
  return fmodf(a, b);
#endif
}

#define FL_F32(name)                                                           \
  static inline float fl_##name##_f32(float x) {                               \
    return name##f(x);                                                         \
  }
#define FL_BY_F64(name)                                                        \
  static inline float fl_##name##_f32(float x) {                               \
    return (float)name((double)x);                                             \
  }
FL_F32(sqrt)
FL_F32(exp2)
FL_F32(erfc)
#ifdef __FP_FAST_FMAF
FL_F32(sinh)
FL_F32(log1p)
#else
FL_BY_F64(sinh)
FL_BY_F64(log1p)
#endif
#ifdef __AVX512F__ /* glibc's of narrower vectors are off by 2.8 units */
FL_F32(cbrt)
#else
FL_BY_F64(cbrt)
#endif
#undef FL_F32
#undef FL_BY_F64
