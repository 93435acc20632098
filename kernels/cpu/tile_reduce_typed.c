/* The reductions of the kernel "tile" in the type of their values, in
 * registers: of rows, and of columns side by side. tile_reduce.c has those that
 * accumulate in a wider type. */
#include "rows.h"
#include "tile_plan.h"

#define WIDE 128 /* lanes that narrow columns are spread over */

static const T *row_at(const void *from, int64_t r, int64_t pitch) {
  return (const T *)(const void *)((const char *)from + r * pitch);
}

static void sum_rows(int64_t rows, int64_t n, void *to, const void *from,
                     int64_t pitch) {
  T *y = to;
  for (int64_t r = 0; r < rows; r++)
    y[r] = row_sum_block(row_at(from, r, pitch), n);
}

static void max_rows(int64_t rows, int64_t n, void *to, const void *from,
                     int64_t pitch) {
  T *y = to;
  for (int64_t r = 0; r < rows; r++)
    y[r] = row_max(row_at(from, r, pitch), n);
}

static void min_rows(int64_t rows, int64_t n, void *to, const void *from,
                     int64_t pitch) {
  T *y = to;
  for (int64_t r = 0; r < rows; r++) {
    const T *x = row_at(from, r, pitch);
    T least = (T)INFINITY;
    int nan = 0;
#pragma omp simd reduction(min : least) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
      least = x[i] < least ? x[i] : least;
      nan |= x[i] != x[i];
    }
    y[r] = nan ? (T)NAN : least;
  }
}

static void dot_rows(int64_t rows, int64_t n, void *to, const void *from,
                     int64_t pitch, const void *by, int64_t by_pitch) {
  T *y = to;
  for (int64_t r = 0; r < rows; r++)
    y[r] = row_dot_block(row_at(from, r, pitch), row_at(by, r, by_pitch), n);
}

#define SUM(a, v) a += (v)
#define MAX(a, v) a = (v) > a || (v) != (v) ? (v) : a
#define MIN(a, v) a = (v) < a || (v) != (v) ? (v) : a

#define EACH(n, a, v, OP)                                                      \
  _Pragma("omp simd") for (int64_t j = 0; j < (n); j++) OP((a)[j], (v)[j]);
#define COLUMNS(name, OP)                                                      \
  static void name(int64_t rows, int64_t width, void *to, const void *from) {  \
    const T *v = from;                                                         \
    T wide[WIDE], *a = to;                                                     \
    int64_t many = WIDE / width * width, n = rows * width;                     \
    if (many > width && n >= 2 * many) { /* several rows side by side */       \
      for (int64_t j = 0; j < many; j++)                                       \
        wide[j] = v[j];                                                        \
      for (v += many, n -= many; n >= many; v += many, n -= many)              \
        EACH(many, wide, v, OP)                                                \
      for (int64_t k = 0; k < many; k += width)                                \
        EACH(width, a, wide + k, OP)                                           \
    }                                                                          \
    for (; n > 0; v += width, n -= width)                                      \
      EACH(width, a, v, OP)                                                    \
  }
COLUMNS(sum_columns, SUM)
COLUMNS(max_columns, MAX)
COLUMNS(min_columns, MIN)

const fl_nest_typed FL_TYPED(nest) = {
    .rows = {[FL_REDUCE_SUM] = sum_rows,
             [FL_REDUCE_MAX] = max_rows,
             [FL_REDUCE_MIN] = min_rows},
    .columns = {[FL_REDUCE_SUM] = sum_columns,
                [FL_REDUCE_MAX] = max_columns,
                [FL_REDUCE_MIN] = min_columns},
    .dot = dot_rows};
