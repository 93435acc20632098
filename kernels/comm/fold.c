/* The arithmetic of reductions: tiles of elements are accumulated in the wider
 * type, part after part in a fixed order, so results are deterministic. */
#include "comm.h"

#include "../../runtime/math/math.h"

#include <string.h>

#define TILE 512

/* Widens n stored elements, and back. */
#define LOAD(W, T, read)                                                       \
  do {                                                                         \
    const T *x_ = x;                                                           \
    for (size_t i = 0; i < n; i++)                                             \
      to[i] = (W)read(x_[i]);                                                  \
  } while (0)
#define SAVE(T, write)                                                         \
  do {                                                                         \
    T *y_ = y;                                                                 \
    for (size_t i = 0; i < n; i++)                                             \
      y_[i] = (T)write(from[i]);                                               \
  } while (0)
#define AS_IT_IS(x) (x)

static void load_f32(fl_dtype d, size_t n, const void *x, float *to) {
  if (d == FL_F16)
    LOAD(float, uint16_t, fl_from_f16);
  else if (d == FL_BF16)
    LOAD(float, uint16_t, fl_from_bf16);
  else
    memcpy(to, x, n * sizeof *to);
}

static void save_f32(fl_dtype d, size_t n, const float *from, void *y) {
  if (d == FL_F16)
    SAVE(uint16_t, fl_to_f16);
  else if (d == FL_BF16)
    SAVE(uint16_t, fl_to_bf16);
  else
    memcpy(y, from, n * sizeof *from);
}

static void load_f64(fl_dtype d, size_t n, const void *x, double *to) {
  (void)d;
  memcpy(to, x, n * sizeof *to);
}

static void save_f64(fl_dtype d, size_t n, const double *from, void *y) {
  (void)d;
  memcpy(y, from, n * sizeof *from);
}

static void load_i64(fl_dtype d, size_t n, const void *x, int64_t *to) {
  switch (d) {
  case FL_I64:
    memcpy(to, x, n * sizeof *to);
    return;
  case FL_I32:
    LOAD(int64_t, int32_t, AS_IT_IS);
    return;
  case FL_I16:
    LOAD(int64_t, int16_t, AS_IT_IS);
    return;
  case FL_I8:
    LOAD(int64_t, int8_t, AS_IT_IS);
    return;
  default:
    LOAD(int64_t, uint8_t, AS_IT_IS);
  }
}

static void save_i64(fl_dtype d, size_t n, const int64_t *from, void *y) {
  switch (d) {
  case FL_I64:
    memcpy(y, from, n * sizeof *from);
    return;
  case FL_I32:
    SAVE(int32_t, AS_IT_IS);
    return;
  case FL_I16:
    SAVE(int16_t, AS_IT_IS);
    return;
  case FL_I8:
    SAVE(int8_t, AS_IT_IS);
    return;
  default:
    SAVE(uint8_t, AS_IT_IS);
  }
}

/* NaN wins; x != x is false for integers. */
#define SMALLER(a, b) ((a) != (a) ? (a) : (a) <= (b) ? (a) : (b))
#define LARGER(a, b)  ((a) != (a) ? (a) : (a) >= (b) ? (a) : (b))

#define FOLD(W, suffix)                                                        \
  static void combine_##suffix(fl_comm_reduce reduce, size_t n, W *acc,        \
                               const W *x) {                                   \
    if (reduce == FL_COMM_MIN)                                                 \
      for (size_t i = 0; i < n; i++)                                           \
        acc[i] = SMALLER(acc[i], x[i]);                                        \
    else if (reduce == FL_COMM_MAX)                                            \
      for (size_t i = 0; i < n; i++)                                           \
        acc[i] = LARGER(acc[i], x[i]);                                         \
    else                                                                       \
      for (size_t i = 0; i < n; i++)                                           \
        acc[i] += x[i];                                                        \
  }                                                                            \
  static void fold_##suffix(fl_dtype d, fl_comm_reduce reduce, size_t n,       \
                            int n_parts, const void *const *parts,             \
                            int mean_of, char *out) {                          \
    W acc[TILE], x[TILE];                                                      \
    size_t size = fl_dtype_size(d);                                            \
    for (size_t at = 0; at < n; at += TILE) {                                  \
      size_t k = n - at < TILE ? n - at : TILE;                                \
      load_##suffix(d, k, (const char *)parts[0] + at * size, acc);            \
      for (int p = 1; p < n_parts; p++) {                                      \
        load_##suffix(d, k, (const char *)parts[p] + at * size, x);            \
        combine_##suffix(reduce, k, acc, x);                                   \
      }                                                                        \
      if (reduce == FL_COMM_MEAN && mean_of)                                   \
        for (size_t i = 0; i < k; i++)                                         \
          acc[i] /= (W)mean_of;                                                \
      save_##suffix(d, k, acc, out + at * size);                               \
    }                                                                          \
  }

FOLD(float, f32)
FOLD(double, f64)
FOLD(int64_t, i64)

void fl_comm_fold(fl_dtype d, fl_comm_reduce reduce, size_t n, int n_parts,
                  const void *const *parts, int mean_of, void *out) {
  if (d == FL_F64)
    fold_f64(d, reduce, n, n_parts, parts, mean_of, out);
  else if (fl_dtype_kind(d) == FL_KIND_FLOAT)
    fold_f32(d, reduce, n, n_parts, parts, mean_of, out);
  else
    fold_i64(d, reduce, n, n_parts, parts, mean_of, out);
}
