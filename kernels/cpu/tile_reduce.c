/* The accumulating loops of the kernel "tile". Sums of f32 are taken in lanes
 * of f32 over one block, and go on in double. */
#include "tile_plan.h"

#include <math.h>
#include <string.h>

#define LANES 64

#define SUM(a, v)  a += (v)
#define PROD(a, v) a *= (v)
#define MAX(a, v)  a = (v) > a || v != v ? (v) : a
#define MIN(a, v)  a = (v) < a || v != v ? (v) : a

/* One row, in lanes L of their own. */
#define ROW(name, T, L, A, OP, FIRST)                                          \
  static A name##_row(int64_t n, const T *v, A a) {                            \
    int64_t i = 0;                                                             \
    if (n >= LANES) {                                                          \
      L lane[LANES];                                                           \
      for (int j = 0; j < LANES; j++)                                          \
        lane[j] = FIRST;                                                       \
      for (; i + LANES <= n; i += LANES)                                       \
        _Pragma("omp simd") for (int j = 0; j < LANES; j++)                    \
            OP(lane[j], (L)v[i + j]);                                          \
      for (int w = LANES / 2; w >= 8; w /= 2)                                  \
        _Pragma("omp simd") for (int j = 0; j < w; j++)                        \
            OP(lane[j], lane[w + j]);                                          \
      for (int j = 0; j < 8; j++)                                              \
        OP(a, (A)lane[j]);                                                     \
    }                                                                          \
    for (; i < n; i++)                                                         \
      OP(a, (A)v[i]);                                                          \
    return a;                                                                  \
  }
#define FOLD(name, T, L, A, member, OP, FIRST)                                 \
  ROW(name, T, L, A, OP, FIRST)                                                \
  static void name(int64_t groups, int64_t rows, int64_t width, fl_acc *to,    \
                   const void *from) {                                         \
    const T *v = from;                                                         \
    for (int64_t g = 0; g < groups; g++, to += width) {                        \
      if (width == 1) {                                                        \
        to->member = name##_row(rows, v, to->member);                          \
        v += rows;                                                             \
        continue;                                                              \
      }                                                                        \
      for (int64_t r = 0; r < rows; r++, v += width)                           \
        _Pragma("omp simd") for (int64_t j = 0; j < width; j++)                \
            OP(to[j].member, (A)v[j]);                                         \
    }                                                                          \
  }
#define FOLDS(name, OP, R, I)                                                  \
  FOLD(name##_f32, float, float, double, f, OP, (float)(R))                    \
  FOLD(name##_f64, double, double, double, f, OP, R)                           \
  FOLD(name##_i64, int64_t, int64_t, int64_t, i, OP, I)                        \
  FOLD(name##_bool, uint8_t, int64_t, int64_t, i, OP, I)
FOLDS(sum, SUM, 0, 0)
FOLDS(max, MAX, -INFINITY, INT64_MIN)
FOLDS(min, MIN, INFINITY, INT64_MAX)
FOLD(prod_f32, float, double, double, f, PROD, 1)
FOLD(prod_f64, double, double, double, f, PROD, 1)
FOLD(prod_i64, int64_t, int64_t, int64_t, i, PROD, 1)
FOLD(prod_bool, uint8_t, int64_t, int64_t, i, PROD, 1)

#define FOLD_TABLE(name)                                                       \
  { name##_f32, name##_f64, name##_i64, name##_bool }
static const fl_nest_fold folds[][4] = {
    {0}, FOLD_TABLE(sum), FOLD_TABLE(prod), FOLD_TABLE(max), FOLD_TABLE(min)};

fl_nest_fold FL_CPU(nest_fold)(int reduction, fl_dtype type) {
  return folds[reduction][type == FL_F32   ? 0
                          : type == FL_F64 ? 1
                          : type == FL_I64 ? 2
                                           : 3];
}

fl_acc FL_CPU(nest_first)(int reduction, fl_dtype type) {
  static const double starts[] = {0, 0, 1, -INFINITY, INFINITY};
  static const int64_t whole[] = {0, 0, 1, INT64_MIN, INT64_MAX};
  if (fl_dtype_is_float(type))
    return (fl_acc){.f = starts[reduction]};
  return (fl_acc){.i = whole[reduction]};
}
