/* sin, cos, tan and lgamma in loops over floats: where all arguments are near,
 * what the functions take for others is left out. Who includes this, for
 * math.h, says by a constant `near` whether they are. */
#ifndef FL_CPU_NEAR_H
#define FL_CPU_NEAR_H

#include "../../runtime/math/math.h"

#define FL_NEAR_OR_FAR(f, x)                                                   \
  _Generic((x), float                                                          \
           : near ? f##_near((float)(x)) : f##_f32((float)(x)), default        \
           : f##_f64((double)(x)))
#ifdef __FP_FAST_FMAF
#undef fl_sin
#undef fl_cos
#undef fl_tan
#define fl_sin(x) FL_NEAR_OR_FAR(fl_sin, x)
#define fl_cos(x) FL_NEAR_OR_FAR(fl_cos, x)
#define fl_tan(x) FL_NEAR_OR_FAR(fl_tan, x)
#endif
#undef fl_lgamma
#define fl_lgamma(x) FL_NEAR_OR_FAR(fl_lgamma, x)

/* Whether a formula asks, in loops over T. */
#define FL_ASKS_NEAR(T, f)                                                     \
  (sizeof(T) == sizeof(float) && __builtin_strstr(#f, "near ?") != NULL)
/* The loop, with `near` as the n arguments from x on are, if the formula f
 * asks. */
#define FL_BY_DISTANCE(T, f, n, x, ...)                                        \
  if (FL_ASKS_NEAR(T, f) &&                                                    \
      fl_all_near(n, x, __builtin_strstr(#f, "fl_lgamma") != NULL)) {          \
    enum { near = true };                                                      \
    __VA_ARGS__                                                                \
  } else {                                                                     \
    enum { near = false };                                                     \
    __VA_ARGS__                                                                \
  }

static inline bool fl_all_near(int64_t n, const void *arguments, bool gamma) {
  const float *x = arguments, least = gamma ? 0x1p-149f : -FL_NEAR,
              most = gamma ? INFINITY : FL_NEAR;
  uint32_t far = 0;
#pragma omp simd reduction(| : far)
  for (int64_t i = 0; i < n; i++)
    far |= !(x[i] >= least && x[i] <= most);
  return !far;
}

#endif
