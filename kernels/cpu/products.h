/* Loops of a * b + c, a * b - c and c - a * b: instructions of programs, which
 * round the product if PRODUCTS_ROUNDED. Included by two units. */
#include "machine.h"

#define EACH(A, B, C, f)                                                       \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    const T a = A, b = B, c = C;                                               \
    r[i] = f;                                                                  \
  }
#define PRODUCT_LOOP(name, suffix, T_, f)                                      \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    const T *u = in[0], *v = in[1], *w = in[2], u0 = *u, v0 = *v, w0 = *w;     \
    T *r = out;                                                                \
    (void)p, (void)bits;                                                       \
    switch (step[0] << 2 | step[1] << 1 | step[2]) {                           \
    case 7:                                                                    \
      EACH(u[i], v[i], w[i], f) break;                                         \
    case 6:                                                                    \
      EACH(u[i], v[i], w0, f) break;                                           \
    case 5:                                                                    \
      EACH(u[i], v0, w[i], f) break;                                           \
    case 4:                                                                    \
      EACH(u[i], v0, w0, f) break;                                             \
    case 3:                                                                    \
      EACH(u0, v[i], w[i], f) break;                                           \
    case 2:                                                                    \
      EACH(u0, v[i], w0, f) break;                                             \
    case 1:                                                                    \
      EACH(u0, v0, w[i], f) break;                                             \
    default:                                                                   \
      EACH(u0, v0, w0, f)                                                      \
    }                                                                          \
  }
#define PRODUCT_LOOPS(name, f)                                                 \
  PRODUCT_LOOP(name, f32, float, f) PRODUCT_LOOP(name, f64, double, f)
PRODUCT_LOOPS(mul_add, a *b + c)
PRODUCT_LOOPS(mul_sub, a *b - c)
PRODUCT_LOOPS(sub_mul, c - a * b)

const fl_map PRODUCTS[3] = {
    {FL_PARAMS_NONE, false, {mul_add_f32, mul_add_f64, NULL}},
    {FL_PARAMS_NONE, false, {mul_sub_f32, mul_sub_f64, NULL}},
    {FL_PARAMS_NONE, false, {sub_mul_f32, sub_mul_f64, NULL}}};
