/* The loops of unary rows' derivatives: <row>_backward is dy f',
 * <row>_backward2 is ddy dy f''. What is saved is x, or y; a row that saves x
 * may use y too, and the compiler drops what it does not use. */
#include "map.h"
#include "near.h"

/* words of the saves column, as the rows of unary operators use them */
#define SAVED_X(f)    const T x = s[i * ks], y = (T)(f);
#define SAVED_Y(f)    const T y = s[i * ks], x = y;
#define SAVED_NONE(f) const T x = 0, y = 0;
#define STEP_X(k)     k
#define STEP_Y(k)     k
#define STEP_NONE(k)  1

#define RUN(G, KS, value, ...)                                                 \
  {                                                                            \
    const int64_t ks = KS;                                                     \
    (void)ks;                                                                  \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                      \
      __VA_ARGS__(void) x, (void)y;                                            \
      r[i] = (T)(G * (value));                                                 \
    }                                                                          \
  }
/* Steps are compiled in where there are elements to differentiate at. */
#define RUNS(step_saved, value, ...)                                           \
  if (!step_saved(step[1]))                                                    \
    RUN(g[i * step[0]], 0, value, __VA_ARGS__)                                 \
  else if (step[0])                                                            \
    RUN(g[i], 1, value, __VA_ARGS__)                                           \
  else {                                                                       \
    const T g0 = g[0];                                                         \
    RUN(g0, 1, value, __VA_ARGS__)                                             \
  }
#define LOOP(name, sig, suffix, T_, step_saved, saved, value)                  \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    const T *g = in[0], *s = in[1], p1 = FL_PARAM(T, p[1]);                    \
    T *r = out;                                                                \
    (void)bits, (void)p1, (void)s;                                             \
    if (FL_CHOOSES(sig) && p[0] == 0) {                                        \
      enum { near = false };                                                   \
      const T p0 = 0;                                                          \
      (void)p0;                                                                \
      RUNS(step_saved, value, saved)                                           \
    } else {                                                                   \
      const T p0 = FL_PARAM(T, p[0]);                                          \
      (void)p0;                                                                \
      FL_BY_DISTANCE(T, value, step_saved(step[1]) ? n : 1, s,                 \
                     RUNS(step_saved, value, saved))                           \
    }                                                                          \
  }
#define RUN2(value, ...)                                                       \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    __VA_ARGS__(void) x, (void)y;                                              \
    r[i] = (T)(dd[i * kd] * g[i * kg] * (value));                              \
  }
#define LOOP2(name, suffix, T_, saved, value)                                  \
  static void name##_2nd_##suffix(int64_t n, void *out, const void *const *in, \
                                  const int *step, const double *p,            \
                                  int bits) {                                  \
    typedef T_ T;                                                              \
    const T *dd = in[0], *g = in[1], *s = in[2], p0 = FL_PARAM(T, p[0]),       \
            p1 = FL_PARAM(T, p[1]);                                            \
    const int64_t kd = step[0], kg = step[1], ks = step[2];                    \
    T *r = out;                                                                \
    (void)bits, (void)p0, (void)p1, (void)s, (void)ks;                         \
    FL_BY_DISTANCE(T, value, ks ? n : 1, s, RUN2(value, saved))                \
  }

#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  LOOP(name, sig, f32, float, STEP_##saves, SAVED_##saves(f), df)              \
  LOOP(name, sig, f64, double, STEP_##saves, SAVED_##saves(f), df)             \
  LOOP2(name, f32, float, SAVED_##saves(f), ddf)                               \
  LOOP2(name, f64, double, SAVED_##saves(f), ddf)                              \
  const fl_map FL_MAP(name##_backward) = {                                     \
      sig, false, {name##_f32, name##_f64, NULL}};                             \
  FL_KERNEL(name##_backward);                                                  \
  FL_KERNEL(name##_backward) {                                                 \
    return FL_CPU(map)(l, &FL_MAP(name##_backward));                           \
  }                                                                            \
  const fl_map FL_MAP(name##_backward2) = {                                    \
      sig, false, {name##_2nd_f32, name##_2nd_f64, NULL}};                     \
  FL_KERNEL(name##_backward2);                                                 \
  FL_KERNEL(name##_backward2) {                                                \
    return FL_CPU(map)(l, &FL_MAP(name##_backward2));                          \
  }
#define fl_not(x, bits) ((T)0) /* bitwise rows have no derivative */
#include "../../runtime/ops.def"
