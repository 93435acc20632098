/* The loops of unary rows' derivatives: <row>_backward is dy f',
 * <row>_backward2 is ddy dy f''. What is saved is x, or y; a row that saves x
 * may use y too, and the compiler drops what it does not use. */
#include "map.h"
#include "near.h"

#include <string.h>

#define SPAN 1024 /* elements to which a single operand is spread */

static void fill(void *to, size_t size, int64_t n, const void *one) {
  uint32_t *to4 = to, one4;
  uint64_t *to8 = to, one8;
  memcpy(&one4, one, sizeof one4);
  memcpy(&one8, one, size);
  if (size == sizeof one4)
    for (int64_t i = 0; i < n; i++)
      to4[i] = one4;
  else
    for (int64_t i = 0; i < n; i++)
      to8[i] = one8;
}

/* A loop over operands of step 1, run for some of step 0: they are spread in
 * memory that stays near, so each formula is compiled once and not for every
 * choice of steps. */
static void spread(fl_map_loop loop, size_t size, int n_in, int64_t n,
                   void *out, const void *const *in, const int *step,
                   const double *p, int bits) {
  static const int one[FL_MAP_IN] = {1, 1, 1};
  _Alignas(64) unsigned char buffer[FL_MAP_IN][SPAN * 8];
  const void *at[FL_MAP_IN] = {NULL};
  for (int k = 0; k < n_in; k++) {
    at[k] = step[k] ? in[k] : buffer[k];
    if (!step[k])
      fill(buffer[k], size, n < SPAN ? n : SPAN, in[k]);
  }
  for (int64_t i = 0; i < n; i += SPAN) {
    loop(n - i < SPAN ? n - i : SPAN, (char *)out + (size_t)i * size, at, one,
         p, bits);
    for (int k = 0; k < n_in; k++)
      if (step[k])
        at[k] = (const char *)at[k] + SPAN * size;
  }
}

/* words of the saves column, as the rows of unary operators use them */
#define SAVED_X(f)    const T x = s[i], y = (T)(f);
#define SAVED_Y(f)    const T y = s[i], x = y;
#define SAVED_NONE(f) const T x = 0, y = 0;
#define SAVES_X       1
#define SAVES_Y       1
#define SAVES_NONE    0

#define RUN(value, ...)                                                        \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    __VA_ARGS__(void) x, (void)y;                                              \
    r[i] = (T)(g[i] * (value));                                                \
  }
#define LOOP(name, suffix, T_, saves, saved, value)                            \
  static void name##_##suffix(int64_t n, void *out, const void *const *in,     \
                              const int *step, const double *p, int bits) {    \
    typedef T_ T;                                                              \
    const T *g = in[0], *s = in[1], p1 = FL_PARAM(T, p[1]);                    \
    T *r = out;                                                                \
    (void)p1, (void)s;                                                         \
    if (!step[0] || (saves && !step[1])) {                                     \
      spread(name##_##suffix, sizeof(T), 1 + saves, n, out, in, step, p,       \
             bits);                                                            \
      return;                                                                  \
    }                                                                          \
    FL_WHOLE_VECTORS(name##_##suffix, T, 1 + saves, value saved)               \
    if (FL_CHOOSES(name) && p[0] == 0) {                                       \
      enum { near = false };                                                   \
      const T p0 = 0;                                                          \
      (void)p0;                                                                \
      RUN(value, saved)                                                        \
    } else {                                                                   \
      const T p0 = FL_PARAM(T, p[0]);                                          \
      (void)p0;                                                                \
      FL_BY_DISTANCE(T, value, n, s, RUN(value, saved))                        \
    }                                                                          \
  }
#define RUN2(value, ...)                                                       \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                        \
    __VA_ARGS__(void) x, (void)y;                                              \
    r[i] = (T)(dd[i] * g[i] * (value));                                        \
  }
#define LOOP2(name, suffix, T_, saves, saved, value)                           \
  static void name##_2nd_##suffix(int64_t n, void *out, const void *const *in, \
                                  const int *step, const double *p,            \
                                  int bits) {                                  \
    typedef T_ T;                                                              \
    const T *dd = in[0], *g = in[1], *s = in[2], p0 = FL_PARAM(T, p[0]),       \
            p1 = FL_PARAM(T, p[1]);                                            \
    T *r = out;                                                                \
    (void)p0, (void)p1, (void)s;                                               \
    if (!step[0] || !step[1] || (saves && !step[2])) {                         \
      spread(name##_2nd_##suffix, sizeof(T), 2 + saves, n, out, in, step, p,   \
             bits);                                                            \
      return;                                                                  \
    }                                                                          \
    FL_WHOLE_VECTORS(name##_2nd_##suffix, T, 2 + saves, value saved)           \
    FL_BY_DISTANCE(T, value, n, s, RUN2(value, saved))                         \
  }

#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  LOOP(name, f32, float, SAVES_##saves, SAVED_##saves(f), df)                  \
  LOOP(name, f64, double, SAVES_##saves, SAVED_##saves(f), df)                 \
  LOOP2(name, f32, float, SAVES_##saves, SAVED_##saves(f), ddf)                \
  LOOP2(name, f64, double, SAVES_##saves, SAVED_##saves(f), ddf)               \
  const fl_map FL_MAP(name##_backward) = {                                     \
      FL_PARAMS_##name, false, {name##_f32, name##_f64, NULL}};                \
  FL_KERNEL(name##_backward);                                                  \
  FL_KERNEL(name##_backward) {                                                 \
    return FL_CPU(map)(l, &FL_MAP(name##_backward));                           \
  }                                                                            \
  const fl_map FL_MAP(name##_backward2) = {                                    \
      FL_PARAMS_##name, false, {name##_2nd_f32, name##_2nd_f64, NULL}};        \
  FL_KERNEL(name##_backward2);                                                 \
  FL_KERNEL(name##_backward2) {                                                \
    return FL_CPU(map)(l, &FL_MAP(name##_backward2));                          \
  }
#define fl_not(x, bits) ((T)0) /* bitwise rows have no derivative */
#include "../../runtime/ops.def"
