/* The loops of unary rows, forward, and their kernels. */
#include "map.h"
#include "near.h"

#define SPAN 1024 /* elements that are near or far together */
#define RUN_SPAN(R, f)                                                         \
  _Pragma("omp simd") for (int64_t i = from; i < to; i++) {                    \
    const T x = a[i];                                                          \
    r[i] = (R)(f);                                                             \
  }
#define RUN(R, f)                                                              \
  for (int64_t from = 0, to; from < n; from = to) {                            \
    to = FL_ASKS_NEAR(T, f) && n - from > SPAN ? from + SPAN : n;              \
    FL_BY_DISTANCE(T, f, to - from, a + from, RUN_SPAN(R, f))                  \
  }
/* Tests give the same in any vector. */
#define WHOLE_VECTORS(self, T, R, f)                                           \
  if (sizeof(T) == sizeof(R))                                                  \
  FL_WHOLE_VECTORS(self, T, 1, f)
#define LOOP(name, suffix, T_, R, f)                                           \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    const T *a = in[0], p1 = FL_PARAM(T, p[1]);                                \
    R *r = out;                                                                \
    (void)step, (void)bits, (void)p1;                                          \
    WHOLE_VECTORS(name##_##suffix, T, R, f)                                    \
    if (FL_CHOOSES(name) && p[0] == 0) {                                       \
      const T p0 = 0;                                                          \
      (void)p0;                                                                \
      RUN(R, f)                                                                \
    } else {                                                                   \
      const T p0 = FL_PARAM(T, p[0]);                                          \
      (void)p0;                                                                \
      RUN(R, f)                                                                \
    }                                                                          \
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

#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  LOOPS_##T(name, f)                                                           \
      const fl_map FL_MAP(name) = {FL_PARAMS_##name, false, TABLE_##T(name)};  \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name) {                                                            \
    return FL_CPU(map)(l, &FL_MAP(name));                                      \
  }
#include "../../runtime/ops.def"

#define FL_TEST(name, T, sig, f)                                               \
  LOOP(name, f32, float, uint8_t, f)                                           \
  LOOP(name, f64, double, uint8_t, f)                                          \
  LOOP(name, i64, int64_t, uint8_t, f)                                         \
  const fl_map FL_MAP(name) = {FL_PARAMS_##name, true, TABLE_N(name)};         \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name) {                                                            \
    return FL_CPU(map)(l, &FL_MAP(name));                                      \
  }
#include "../../runtime/ops.def"
