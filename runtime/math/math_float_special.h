/* More functions of floats on the CPU, for vectors: without branches, their
 * polynomials fitted for the purpose. Included by math.h; spec/c/ulp.c measures
 * them. What needs the error of a product is computed in double where there is
 * no fused one. */

#ifdef __FP_FAST_FMAF
/* x - tanh(x): up to 1.2 by a polynomial (1.2e-8) times x^3, of which the
 * rounding errors are carried; from there x - 1 + 2 / (1 + exp(2 x)). */
FL_INLINE float fl_tanhshrink_f32(float x) {
  float a = fabsf(x), u = a * a, c = a * u, low;
  int32_t n;
  float rest = fmaf(a, u, -c) + a * fmaf(a, a, -u);
  float p = 2.68460935e-05f * u - 0.000240168112f;
  p = p * u + 0.00106209051f;
  p = p * u - 0.00330401794f;
  p = p * u + 0.00873210374f;
  p = p * u - 0.0218348168f;
  p = p * u + 0.0539635606f;
  p = p * u - 0.133333087f;
  float third = 0.333333343f, t = p * u - 1.21360770e-08f;
  float high = fl_exp_reduce(2 * (a > 20 ? 20 : a), &low, &n);
  float q = fl_exp_middle(high, low), s = fl_two_to(n);
  float far = (a - 1) + 2 / (s * q + (s + 1));
  return copysignf(a < 1.2f ? fmaf(c, third, c * t + rest * (third + t)) : far,
                   x);
}

/* x times a polynomial of w = -log(1 - x^2), or of its root (after Giles,
 * "Approximating the erfinv function", 2010). */
FL_INLINE float fl_erfinv_f32(float x) {
  float a = fabsf(x), k, f;
  float r = fl_log_reduce(fmaf(-a, a, 1), &k, &f);
  float w = -(k * 0.693145752f + (f + (r + k * 1.42860682e-6f)));
  float s = sqrtf(w) - 3;
  float p = 6.15864304e-10f * w - 2.39474893e-08f;
  p = p * w + 3.79029530e-07f;
  p = p * w - 2.88472916e-06f;
  p = p * w + 7.12353358e-06f;
  p = p * w + 3.78838449e-05f;
  p = p * w - 0.000118889169f;
  p = p * w - 0.00234058267f;
  p = p * w + 0.0115509536f;
  p = p * w + 0.232013509f;
  p = p * w - 2.66231996e-08f;
  float q = -7.81923227e-05f * s - 0.000100874218f;
  q = q * s + 0.00134019414f;
  q = q * s - 0.00354066957f;
  q = q * s + 0.00571671361f;
  q = q * s - 0.00764890015f;
  q = q * s + 0.00944312103f;
  q = q * s + 1.00167549f;
  q = q * s + 1.21202444e-08f;
  float y = x * (w < 6 ? 0.886226952f : 2.83297682f) + x * (w < 6 ? p : q);
  return a < 1 ? y : a == 1 ? copysignf(INFINITY, x) : NAN;
}

/* log(x + low) for a low below x's last place, given as its part of x */
FL_INLINE float fl_log_more(float x, float part, float twos) {
  float k, f, r = fl_log_reduce(x, &k, &f);
  k += twos;
  return k * 0.693145752f + (f + (r + (k * 1.42860682e-6f + part)));
}
/* log(b + sqrt(b^2 + c)) for c = 1 and b > 1/2, or c = -1 and b >= 2; 1 over
 * the sum is the difference. */
FL_INLINE float fl_log_hyperbolic(float x, float c) {
  bool big = x > 2048;
  float b = big ? 2.0f : x, z = fmaf(b, b, c), s = sqrtf(z), sum = b + s;
  float rest = fmaf(b, b, c - z) + fmaf(-s, s, z);
  float lost = c > 0 ? b - (sum - s) : s - (sum - b);
  float part = (lost * (2 * s) + rest) * (c * (s - b)) / (2 * s);
  return fl_log_more(big ? x : sum, big ? 0 : part, big ? 1 : 0);
}
FL_INLINE float fl_asinh_f32(float x) {
  float a = fabsf(x), u = a * a;
  float p = 0.0132221403f - 0.00490374491f * u;
  p = p * u - 0.0212777928f;
  p = p * u + 0.0302147977f;
  p = p * u - 0.0446288809f;
  p = p * u + 0.0749994367f;
  p = p * u - 0.166666657f;
  float y = a < 0.6f ? a + a * (u * p) : fl_log_hyperbolic(a, 1);
  return a < INFINITY ? copysignf(y, x) : x;
}
FL_INLINE float fl_acosh_f32(float x) {
  float t = x - 1, r = sqrtf(2 * t);
  float p = 0.000175847803f - 2.70000255e-05f * t;
  p = p * t - 0.000632170646f;
  p = p * t + 0.00187123776f;
  p = p * t - 0.00557405502f;
  p = p * t + 0.018749306f;
  p = p * t - 0.083333306f;
  float y = t < 1 ? r + r * (t * p) : fl_log_hyperbolic(x, -1);
  return x < INFINITY ? y : x;
}
/* From 1/2 on half the logarithm of (1 + a) / (1 - a), with what the quotient
 * and its numerator lost; 1 over the latter by a line is good enough. */
FL_INLINE float fl_atanh_f32(float x) {
  float a = fabsf(x), u = a * a;
  float p = 0.0245198403f + 0.175945029f * u;
  p = p * u + 0.102827564f;
  p = p * u + 0.109671719f;
  p = p * u + 0.142948538f;
  p = p * u + 0.199997276f;
  p = p * u + 0.333333373f;
  float n = 1 + a, d = 1 - a, q = n / d;
  float part = (a - (n - 1) + fmaf(-q, d, n)) * (1.16f - n / 3);
  float far = fl_log_ends(q, 0.5f * fl_log_more(q, part, 0));
  return copysignf(a < 0.5f ? a + a * (u * p) : far, x);
}

#else
static inline float fl_tanhshrink_f32(float x) {
  return (float)fl_tanhshrink_f64((double)x);
}
static inline float fl_erfinv_f32(float x) {
  return (float)fl_erfinv_by((double)x, 2);
}
static inline float fl_asinh_f32(float x) {
  return (float)asinh((double)x);
}
static inline float fl_acosh_f32(float x) {
  return (float)acosh((double)x);
}
static inline float fl_atanh_f32(float x) {
  return (float)atanh((double)x);
}
#endif

/* exp(-|x|) I_n(x), or without the exponential; in double, but for the root:
 * up to 8 a polynomial of x^2 / 4 (Abramowitz and Stegun 9.6.10), from there
 * one of 8 / x (9.7.1), both within 2e-9. */
FL_INLINE float fl_bessel_i_f32(int n, float x, bool scaled) {
  static const double near[2][12] = {
      {1.2115990918750212e-15, 4.8871552620139697e-14, 8.2792196584507321e-12,
       6.043361383685652e-10, 3.947857158815103e-08, 1.9282548512121835e-06,
       6.9447835409068882e-05, 0.0017361015135848273, 0.027777793772782892,
       0.24999998625069556, 1.0000000046222521, 0.99999999974312992},
      {9.6140430790494998e-17, 4.8846754512677756e-15, 8.1035327768263482e-13,
       6.7546197409185244e-11, 4.9291770442461085e-09, 2.75517079225757e-07,
       1.1574325123298555e-05, 0.00034722151196133209, 0.0069444456278117085,
       0.083333332316299122, 0.50000000034187342, 0.99999999998100164}};
  static const double far[2][7] = {
      {6.9311348859269419e-06, -9.1719316808935138e-06, 2.0566747139090788e-05,
       5.3360701362440243e-05, 0.00043894317535446572, 0.0062334312697640342,
       0.39894228083080335},
      {-7.8159990182023128e-06, 9.9582230610658919e-06, -2.4812993409022678e-05,
       -7.5756157818299917e-05, -0.00073121323062017756, -0.018700372652298087,
       0.39894227992200576}};
  float size = fabsf(x), a = !scaled && size > 200 ? 200 : size;
  float t = 8 / (a < 8 ? 8 : a), root = sqrtf(t);
  double q = 0.25 * (double)a * (double)a, p = near[n][0], r = far[n][0];
#pragma GCC unroll 12
  for (int k = 1; k < 12; k++)
    p = p * q + near[n][k];
#pragma GCC unroll 7
  for (int k = 1; k < 7; k++)
    r = r * (double)t + far[n][k];
  p *= n == 1 ? 0.5 * (double)a : 1;
  r *= (double)root * 0.35355339059327376;
  bool small = a < 8;
  double power = scaled ? (small ? -(double)a : 0) : (small ? 0 : (double)a);
  float y = (float)((small ? p : r) * exp(power));
  return n == 1 ? copysignf(y, x) : y;
}
static inline float fl_bessel_i0_f32(float x) {
  return fl_bessel_i_f32(0, x, false);
}
static inline float fl_bessel_i1_f32(float x) {
  return fl_bessel_i_f32(1, x, false);
}
static inline float fl_bessel_i0e_f32(float x) {
  return fl_bessel_i_f32(0, x, true);
}
static inline float fl_bessel_i1e_f32(float x) {
  return fl_bessel_i_f32(1, x, true);
}

/* J_n and Y_n for n = 0 and 1, in double but for the root: up to 8 by
 * polynomials of x^2 / 4 - 8, of Y_n for what its logarithm and pole leave,
 * from there by the modulus and phase of Abramowitz and Stegun 9.2.5; all
 * within 1e-15, for the digits beside zeros. */
FL_INLINE float fl_bessel_jy_f32(int n, float x, bool second) {
  static const double near[4][16] = {
      {-3.5328657067566392e-25, 7.6840079874825729e-23, -1.4397908223482974e-20,
       2.3218816009803617e-18, -3.1638764865069837e-16, 3.5830959731645513e-14,
       -3.3046746436013049e-12, 2.4188035655670343e-10, -1.3576850228727839e-08,
       5.5690326144354e-07, -1.5486695735079988e-05, 0.00025351061063078327,
       -0.0015782984524798577, -0.01013233254823722, 0.11628765591198215,
       0.045829664859813754},
      {-2.275875932343567e-26, 5.3018865783253729e-24, -1.0706632870385845e-21,
       1.8717226860342111e-19, -2.7863033633541895e-17, 3.4802641788837941e-15,
       -3.5830957680992467e-13, 2.9742071790662726e-11, -1.9350428529457639e-09,
       9.5037951601130483e-08, -3.3414195686552276e-06, 7.7433478675399599e-05,
       -0.0010140424425231652, 0.0047348953574395738, 0.020264665096474489,
       -0.11628765591198215},
      {7.651278495996904e-25, -1.6293191726677575e-22, 2.9814871587334531e-20,
       -4.6834617173636745e-18, 6.1948303766875195e-16, -6.7796021407847338e-14,
       6.0063496678256541e-12, -4.1876679986667715e-10, 2.210953125065035e-08,
       -8.352564657680373e-07, 2.0513216502171942e-05, -0.00026307317720252122,
       0.00028149672596293853, 0.025735882482414738, -0.10355448629505734,
       -0.38225065445942497},
      {2.4892205995873679e-26, -5.6832764922145498e-24, 1.1222609663265934e-21,
       -1.9140348552889383e-19, 2.7712586239574711e-17, -3.3536926122243509e-15,
       3.3284969722667335e-13, -2.6453575101019047e-11, 1.6319707583992611e-09,
       -7.4877765018909877e-08, 2.3970907355476494e-06, -4.7948827783032721e-05,
       0.00045912517981776865, 0.00036511830814052313, -0.030422178848991392,
       0.070759858821180049}};
  static const double far[4][10] = {
      {-6.5108304741802399e-10, 4.3470198493442316e-09, -1.4688370230278967e-08,
       3.7692552289358434e-08, -1.0005564466994938e-07, 3.6146332595242677e-07,
       -2.1838366297450552e-06, 2.7380877475003379e-05, -0.0010986328123152348,
       0.99999999999999911},
      {5.4489131841713753e-10, -3.5446584232896465e-09, 1.1430705310439188e-08,
       -2.6937308710872911e-08, 6.1909420061190431e-08, -1.8110871379537551e-07,
       8.2376758311117158e-07, -6.9307804305027295e-06, 0.00014305114729032146,
       -0.01562499999999914},
      {7.0049343253238005e-10, -4.6865171325358962e-09, 1.5897140104245217e-08,
       -4.1105958680646637e-08, 1.1067935112206618e-07, -4.0969625037522286e-07,
       2.5809072539935371e-06, -3.5203986675433673e-05, 0.0018310546873025434,
       1.0000000000000009},
      {-5.8419501111689288e-10, 3.8068327830220801e-09, -1.2315052161969155e-08,
       2.9199086153765322e-08, -6.7876411238911731e-08, 2.0244419862099592e-07,
       -9.5050789228160667e-07, 8.4709547617051198e-06, -0.00020027160626350879,
       0.046874999999999084}};
  float a = fabsf(x), t = 8 / (a < 8 ? 8 : a), root = sqrtf(t);
  double d = (double)a, q = 0.25 * d * d - 8, u = 64 / (d * d);
  u = a < 8 ? 1 : u;
  double j = near[n][0], y = near[n + 2][0];
#pragma GCC unroll 16
  for (int k = 1; k < 16; k++) {
    j = j * q + near[n][k];
    y = y * q + near[n + 2][k];
  }
  j *= n == 1 ? 0.5 * d : 1;
  y = (n == 1 ? y * d : y) +
      2 / FL_PI * (n == 1 ? j * log(d) - 1 / d : j * log(d));
  double p = far[2 * n][0], r = far[2 * n + 1][0];
#pragma GCC unroll 10
  for (int k = 1; k < 10; k++) {
    p = p * u + far[2 * n][k];
    r = r * u + far[2 * n + 1][k];
  }
  /* not of the same variable, or gcc calls sincos, which no vector has */
  double s = sin(a < INFINITY ? d : 0), c = cos(a < INFINITY ? d : 1);
  r *= (double)t;
  double sum = s + c, off = n == 1 ? -sum : s - c;
  sum = n == 1 ? s - c : sum;
  double wave = second ? p * off + r * sum : p * sum - r * off;
  wave *= 0.19947114020071635 * (double)root; /* 1 / sqrt(8 pi) */
  float result = (float)(a < 8 ? (second ? y : j) : wave);
  if (second)
    return x < 0 ? NAN : x == 0 ? -INFINITY : result;
  return n == 1 ? copysignf(1, x) * result : result;
}
static inline float fl_bessel_j0_f32(float x) {
  return fl_bessel_jy_f32(0, x, false);
}
static inline float fl_bessel_j1_f32(float x) {
  return fl_bessel_jy_f32(1, x, false);
}
static inline float fl_bessel_y0_f32(float x) {
  return fl_bessel_jy_f32(0, x, true);
}
static inline float fl_bessel_y1_f32(float x) {
  return fl_bessel_jy_f32(1, x, true);
}

/* In double: x = 2 p - 1 times a polynomial of w = -log(1 - x^2), up to 6, and
 * the root of w times one of its inverse from there (5.2e-9 and 3e-9). */
static inline float fl_ndtri_f32(float x) {
  double a = (double)x, t = 2 * a - 1, u = 4 * a * (1 - a), w = -log(u);
  double s = sqrt(w < 6 ? 6 : w), v = 1 / s;
  double p = 8.8462181349612962e-10 * w - 3.427947599498058e-08;
  p = p * w + 5.4134323012397769e-07;
  p = p * w - 4.1176972499872559e-06;
  p = p * w + 1.024018437646122e-05;
  p = p * w + 5.3123132954315105e-05;
  p = p * w - 0.00016736974180849799;
  p = p * w - 0.0033108488367334919;
  p = p * w + 0.016335927101877944;
  p = p * w + 0.32811654618802594;
  p = p * w + 1.2533141437978994;
  double q = 177.20508990627951 * v - 413.54381121888088;
  q = q * v + 426.06148732489237;
  q = q * v - 259.1201022807254;
  q = q * v + 105.33548959914772;
  q = q * v - 31.709532003832546;
  q = q * v + 8.3640047359410108;
  q = q * v - 1.8443134820566409;
  q = q * v - 0.034134382383154457;
  q = q * v + 1.4145739969965163;
  float y = (float)(w < 6 ? t * p : copysign(s * q, t));
  return u > 0 ? y : u == 0 ? copysignf(INFINITY, (float)t) : NAN;
}

/* exp(x^2) erfc(x) of x >= 0: a polynomial (1e-10) of (x - 3) / (x + 3),
 * through 1 + 2 x (after Shepherd and Laframboise, 1981). */
FL_INLINE double fl_erfcx_right(double x) {
  double a = x > 1e60 ? 1e60 : x, b = a + 3, c = 1 + 2 * a, over = 1 / (b * c);
  double t = (a - 3) * c * over, p = -1.0991042066499371e-05;
  p = p * t + 3.8727391394880358e-06;
  p = p * t + 0.00011304329279425684;
  p = p * t - 0.00010415902236975365;
  p = p * t - 0.00077113610820394175;
  p = p * t + 0.0018881397181200823;
  p = p * t + 0.0025259366623893807;
  p = p * t - 0.023770345976373758;
  p = p * t + 0.068308742072595977;
  p = p * t - 0.11927368929047748;
  p = p * t + 0.1296450930038314;
  p = p * t - 0.047562292817042912;
  p = p * t - 0.13562110437035024;
  p = p * t + 1.2530080582544039;
  return p * b * over;
}
FL_INLINE double fl_erfcx_both(double x) {
  double a = fabs(x), y = fl_erfcx_right(a), z = x < 0 ? x * x : 0;
  double left = 2 * exp(z > 700 ? 700 : z) - y;
  return x < 0 ? left : y;
}
static inline float fl_erfcx_f32(float x) {
  return (float)fl_erfcx_both((double)x);
}
static inline float fl_log_ndtr_f32(float x) {
  double a = fabs((double)x) * FL_1_SQRT2, z = a * a, e = fl_erfcx_right(a);
  double far = 0.5 * e * exp(z > 700 ? -700 : -z); /* the smaller tail */
  double l = log(x < 0 ? 0.5 * e : 1 - far);
  double right = far < 1e-4 ? far * (-1 - far * (0.5 + far / 3)) : l;
  return (float)(x < 0 ? l - z : right);
}
static inline float fl_log_ndtr_d_f32(float x) {
  return (float)(FL_SQRT_2_PI / fl_erfcx_both((double)x * -FL_1_SQRT2));
}

/* log(1 + 2^-x) of x >= 0 in double, to 3e-16: sums with it may cancel. Of what
 * is no number it is nearly 0. 2^-f is a polynomial for |f| <= 1/2, and log(1 +
 * t) / t one for t <= 1. */
FL_INLINE double fl_log1p_power(double x) {
  double most = x < 1000 ? x : 1000, bias = 0x1.8p52, sum = most + bias;
  double f = most - (sum - bias), p = 7.074194297288521e-09, power;
  uint64_t bits, zero;
  p = p - 4.4558179083360645e-10 * f;
  p = p * f - 1.0178057087733941e-07;
  p = p * f + 1.3215432535912375e-06;
  p = p * f - 1.5252733841556773e-05;
  p = p * f + 0.00015403530463724353;
  p = p * f - 0.001333355814640647;
  p = p * f + 0.009618129107587256;
  p = p * f - 0.055504108664821625;
  p = p * f + 0.24022650695910158;
  p = p * f - 0.6931471805599453;
  p = p * f + 1;
  memcpy(&bits, &sum, 8);
  memcpy(&zero, &bias, 8);
  bits = (1023 + zero - bits) << 52;
  memcpy(&power, &bits, 8);
  double t = p * power, q = 0.0004137149986328025;
  q = q - 3.736111090625511e-05 * t;
  q = q * t - 0.0021722632494827515;
  q = q * t + 0.007238154348004206;
  q = q * t - 0.01733799236127139;
  q = q * t + 0.032211731805770014;
  q = q * t - 0.049194866349137806;
  q = q * t + 0.06504582676908699;
  q = q * t - 0.07816619989902081;
  q = q * t + 0.08910457377919344;
  q = q * t - 0.09950159794480418;
  q = q * t + 0.11100412403994149;
  q = q * t - 0.12498253933280125;
  q = q * t + 0.1428550383563181;
  q = q * t - 0.16666648665905762;
  q = q * t + 0.19999998967920216;
  q = q * t - 0.24999999963629108;
  q = q * t + 0.3333333333265183;
  q = q * t - 0.49999999999994904;
  return t + t * (q * t);
}
/* Of infinities only the larger one counts. */
FL_INLINE float fl_logaddexp_f32(float a, float b) {
  double apart = fabs((double)a - (double)b);
  return (float)((double)fl_maximum_f32(a, b) +
                 fl_log1p_power(apart * FL_LOG2E));
}
FL_INLINE float fl_logaddexp2_f32(float a, float b) {
  double apart = fabs((double)a - (double)b);
  return (float)((double)fl_maximum_f32(a, b) +
                 FL_LOG2E * fl_log1p_power(apart));
}
