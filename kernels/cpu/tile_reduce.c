/* The accumulating loops of the kernel "tile". Sums of f32 are taken in lanes
 * of f32 over one block, and go on in double. */
#include "tile_plan.h"

#include <math.h>
#include <string.h>

#define LANES 64
#ifdef __clang__
#define FOLD_ONCE __attribute__((noinline))
#else
#define FOLD_ONCE __attribute__((noinline, noclone))
#endif

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
        lane[j] = (L)(FIRST);                                                  \
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
#define LINES(name, T, A, member, OP)                                          \
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
#define FOLD(name, T, L, A, member, OP, FIRST)                                 \
  ROW(name, T, L, A, OP, FIRST)                                                \
  LINES(name, T, A, member, OP)
/* Rows of floats have been reduced in their own type (tile_reduce_typed.c). */
#define FOLD_SHORT(name, T, OP)                                                \
  static double name##_row(int64_t n, const T *v, double a) {                  \
    for (int64_t i = 0; i < n; i++)                                            \
      OP(a, (double)v[i]);                                                     \
    return a;                                                                  \
  }                                                                            \
  LINES(name, T, double, f, OP)
#define FOLDS(name, OP, I, B)                                                  \
  FOLD_SHORT(name##_f32, float, OP)                                            \
  FOLD_SHORT(name##_f64, double, OP)                                           \
  FOLD(name##_i64, int64_t, int64_t, int64_t, i, OP, I)                        \
  FOLD(name##_bool, uint8_t, B, int64_t, i, OP, I)
FOLDS(sum, SUM, 0, int64_t)
FOLDS(max, MAX, INT64_MIN, uint8_t)
FOLDS(min, MIN, INT64_MAX, uint8_t)
FOLD(prod_f32, float, double, double, f, PROD, 1)
FOLD(prod_f64, double, double, double, f, PROD, 1)
FOLD(prod_i64, int64_t, int64_t, int64_t, i, PROD, 1)
#define prod_bool min_bool /* of 0 and 1 */

/* --- the mean and the deviation --- */

typedef struct moments {
  double n, mean, square;
} moments;
_Static_assert(sizeof(moments) == FL_NEST_MOMENTS * sizeof(fl_acc), "");

FOLD_ONCE static void join_moments(moments *a, double n, double mean,
                                   double square) {
  double all = a->n + n, d = mean - a->mean;
  if (n == 0)
    return;
  a->mean += d * (n / all);
  a->square += square + d * (n / all) * d * a->n;
  a->n = all;
}

void FL_CPU(nest_join_moments)(int64_t n, fl_acc *to, const fl_acc *from) {
  moments *a = (moments *)(void *)to;
  const moments *b = (const moments *)(const void *)from;
  for (int64_t i = 0; i < n; i++)
    join_moments(&a[i], b[i].n, b[i].mean, b[i].square);
}

#define SIDE 32 /* columns side by side */

/* Differences from the first row, then from the mean of the rows, which are
 * `pitch` apart. */
#define MOMENTS(name, T)                                                       \
  FOLD_ONCE static void name##_columns(int64_t rows, const T *v,               \
                                       int64_t pitch, moments *a) {            \
    T sum[SIDE] = {0}, square[SIDE] = {0};                                     \
    for (int64_t r = 1; r < rows; r++)                                         \
      _Pragma("omp simd") for (int j = 0; j < SIDE; j++) sum[j] +=             \
          v[r * pitch + j] - v[j];                                             \
    for (int j = 0; j < SIDE; j++)                                             \
      sum[j] /= (T)rows;                                                       \
    for (int64_t r = 0; r < rows; r++)                                         \
      _Pragma("omp simd") for (int j = 0; j < SIDE; j++) {                     \
        T d = v[r * pitch + j] - v[j] - sum[j];                                \
        square[j] += d * d;                                                    \
      }                                                                        \
    for (int j = 0; j < SIDE; j++)                                             \
      join_moments(&a[j], (double)rows, (double)v[j] + (double)sum[j],         \
                   (double)square[j]);                                         \
  }                                                                            \
  FOLD_ONCE static void name##_column(int64_t rows, const T *v, int64_t pitch, \
                                      moments *a) {                            \
    double sum = 0, square = 0;                                                \
    for (int64_t r = 1; r < rows; r++)                                         \
      sum += (double)(v[r * pitch] - v[0]);                                    \
    sum /= (double)rows;                                                       \
    for (int64_t r = 0; r < rows; r++) {                                       \
      double d = (double)(v[r * pitch] - v[0]) - sum;                          \
      square += d * d;                                                         \
    }                                                                          \
    join_moments(a, (double)rows, (double)v[0] + sum, square);                 \
  }                                                                            \
  static void name##_row(int64_t n, const T *v, moments *a) {                  \
    int64_t lines = n / SIDE, rest = n % SIDE;                                 \
    moments side[SIDE] = {{0}};                                                \
    if (lines)                                                                 \
      name##_columns(lines, v, SIDE, side);                                    \
    for (int j = 0; j < SIDE && lines; j++)                                    \
      join_moments(a, side[j].n, side[j].mean, side[j].square);                \
    if (rest)                                                                  \
      name##_column(rest, v + lines * SIDE, 1, a);                             \
  }                                                                            \
  static void name(int64_t groups, int64_t rows, int64_t width, fl_acc *to,    \
                   const void *from) {                                         \
    const T *v = from;                                                         \
    moments *a = (moments *)(void *)to;                                        \
    for (int64_t g = 0; g < groups; g++, a += width, v += rows * width) {      \
      int64_t j = 0;                                                           \
      for (; j + SIDE <= width; j += SIDE)                                     \
        name##_columns(rows, v + j, width, a + j);                             \
      for (; j < width; j++)                                                   \
        if (width == 1)                                                        \
          name##_row(rows, v, a);                                              \
        else                                                                   \
          name##_column(rows, v + j, width, a + j);                            \
    }                                                                          \
  }
MOMENTS(moments_f32, float)
MOMENTS(moments_f64, double)

#define MOMENTS_TABLE                                                          \
  { moments_f32, moments_f64 }
#define FOLD_TABLE(name)                                                       \
  { name##_f32, name##_f64, name##_i64, name##_bool }
static const fl_nest_fold folds[][4] = {{0},
                                        FOLD_TABLE(sum),
                                        FOLD_TABLE(prod),
                                        FOLD_TABLE(max),
                                        FOLD_TABLE(min),
                                        MOMENTS_TABLE,
                                        MOMENTS_TABLE};

fl_nest_fold FL_CPU(nest_fold)(int reduction, fl_dtype type) {
  return folds[reduction][type == FL_F32   ? 0
                          : type == FL_F64 ? 1
                          : type == FL_I64 ? 2
                                           : 3];
}

fl_acc FL_CPU(nest_first)(int reduction, fl_dtype type) {
  static const double starts[FL_REDUCTIONS] = {0, 0, 1, -INFINITY, INFINITY};
  static const int64_t whole[] = {0, 0, 1, INT64_MIN, INT64_MAX};
  if (fl_dtype_is_float(type))
    return (fl_acc){.f = starts[reduction]};
  return (fl_acc){.i = whole[reduction]};
}
