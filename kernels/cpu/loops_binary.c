/* The loops of binary, comparing and ternary rows, and their kernels. A step is
 * 1 or 0, and the usual cases are compiled apart so that they vectorise. */
#include "map.h"

#include "../../runtime/math/math.h"

#define RUN(A, B, f)                                                           \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    const T a = A, b = B;                                                      \
    r[i] = (R)(f);                                                             \
  }
#define LOOP(name, suffix, T_, R_, f)                                          \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    typedef R_ R;                                                              \
    const T *u = in[0], *v = in[1], u0 = u[0], v0 = v[0];                      \
    R *r = out;                                                                \
    (void)p, (void)bits;                                                       \
    if (sizeof(T) == sizeof(R)) /* comparisons are the same in any vector */   \
      FL_WHOLE_VECTORS(name##_##suffix, T, 2, f)                               \
    if (step[0] && step[1])                                                    \
      RUN(u[i], v[i], f)                                                       \
    else if (step[0])                                                          \
      RUN(u[i], v0, f)                                                         \
    else if (step[1])                                                          \
      RUN(u0, v[i], f)                                                         \
    else                                                                       \
      RUN(u0, v0, f)                                                           \
  }
#define LOOPS_F(name, f)                                                       \
  LOOP(name, f32, float, float, f) LOOP(name, f64, double, double, f)
#define LOOPS_I(name, f) LOOP(name, i64, int64_t, int64_t, f)
#define LOOPS_N(name, f) LOOPS_F(name, f) LOOPS_I(name, f)
#define TABLE_F(name)                                                          \
  { name##_f32, name##_f64, NULL }
#define TABLE_I(name)                                                          \
  { NULL, NULL, name##_i64 }
#define TABLE_N(name)                                                          \
  { name##_f32, name##_f64, name##_i64 }

#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  LOOPS_##T(name, f)                                                           \
      const fl_map FL_MAP(name) = {FL_PARAMS_NONE, false, TABLE_##T(name)};    \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name) {                                                            \
    return FL_CPU(map)(l, &FL_MAP(name));                                      \
  }
#include "../../runtime/ops.def"

#define FL_COMPARE(name, sig, f)                                               \
  LOOP(name, f32, float, uint8_t, f)                                           \
  LOOP(name, f64, double, uint8_t, f)                                          \
  LOOP(name, i64, int64_t, uint8_t, f)                                         \
  const fl_map FL_MAP(name) = {FL_PARAMS_NONE, true, TABLE_N(name)};           \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name) {                                                            \
    return FL_CPU(map)(l, &FL_MAP(name));                                      \
  }
#include "../../runtime/ops.def"

#define LOOP3(name, suffix, T_, f)                                             \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    const T *u = in[0], *v = in[1], *w = in[2], p0 = FL_PARAM(T, p[0]);        \
    const int64_t ku = step[0], kv = step[1], kw = step[2];                    \
    T *r = out;                                                                \
    (void)p0, (void)bits;                                                      \
    FL_WHOLE_VECTORS(name##_##suffix, T, 3, f)                                 \
    if (ku && kv && kw)                                                        \
      RUN3(u[i], v[i], w[i], f)                                                \
    else                                                                       \
      RUN3(u[i * ku], v[i * kv], w[i * kw], f)                                 \
  }
#define RUN3(A, B, C, f)                                                       \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    const T a = A, b = B, c = C;                                               \
    r[i] = (T)(f);                                                             \
  }
#define LOOPS3_F(name, f) LOOP3(name, f32, float, f) LOOP3(name, f64, double, f)
#define LOOPS3_N(name, f) LOOPS3_F(name, f) LOOP3(name, i64, int64_t, f)

#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  LOOPS3_##T(name, f)                                                          \
      const fl_map FL_MAP(name) = {FL_PARAMS_##name, false, TABLE_##T(name)};  \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name) {                                                            \
    return FL_CPU(map)(l, &FL_MAP(name));                                      \
  }
#include "../../runtime/ops.def"
