/* Extremes with their positions, of reduce.c, for one type. */
#include "reduce.h"
#include "typed.h"

#include <math.h>

#if FL_T_IS_F32
#define SPOT int32_t /* an integer as wide as T */
#else
#define SPOT int64_t
#endif
#if FL_T_IS_FLOAT
#define IS_NAN(v) ((v) != (v))
#else
#define IS_NAN(v) ((void)(v), 0)
#endif
#define BLOCK 64  /* elements that are compared together */
#define PIECE 512 /* of a row, a multiple of BLOCK */

FL_FORCE bool beats(bool least, T v, T best) {
  bool nan = IS_NAN(v) && !IS_NAN(best);
  return (least ? v < best : v > best) | nan;
}

/* The first element that equals m; if m is NaN, the first NaN. There is one.
 * Loops with a break are not vectorised, so blocks are asked first. */
FL_FORCE int64_t find_equal(const T *x, int64_t n, T m) {
  int64_t at = 0;
  for (; at + BLOCK <= n; at += BLOCK) {
    SPOT hit = 0;
#pragma omp simd reduction(| : hit)
    for (int64_t j = 0; j < BLOCK; j++)
      hit |= x[at + j] == m ? 1 : 0;
    if (hit)
      break;
  }
  while (at < n - 1 && x[at] != m)
    at++;
  return at;
}

FL_FORCE int64_t find_nan(const T *x, int64_t n) {
  int64_t at = 0;
  while (at < n - 1 && !IS_NAN(x[at]))
    at++;
  return at;
}

/* The largest (least) element, or NaN if any is. */
FL_FORCE T peak(bool least, const T *x, int64_t n) {
  T m = x[0];
  SPOT nan = 0;
  if (least) {
#pragma omp simd reduction(min : m) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
      m = x[i] < m ? x[i] : m;
      nan |= IS_NAN(x[i]) ? 1 : 0;
    }
  } else {
#pragma omp simd reduction(max : m) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
      m = x[i] > m ? x[i] : m;
      nan |= IS_NAN(x[i]) ? 1 : 0;
    }
  }
#if FL_T_IS_FLOAT
  return nan ? (T)NAN : m;
#else
  return m;
#endif
}

/* Position of the first largest (least) element, of the first NaN if any. Of a
 * long row the piece with the extreme is found first. */
FL_FORCE int64_t find_row(bool least, const T *x, int64_t n, T *value) {
  if (n < 32) {
    T m = x[0];
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
      bool take = beats(least, x[i], m);
      m = take ? x[i] : m;
      at = take ? i : at;
    }
    *value = m;
    return at;
  }
  int64_t from = 0;
  T m = peak(least, x, n < PIECE ? n : PIECE);
  for (int64_t i = PIECE; i < n && !IS_NAN(m); i += PIECE) {
    T here = peak(least, x + i, n - i < PIECE ? n - i : PIECE);
    if (beats(least, here, m)) {
      m = here;
      from = i;
    }
  }
  int64_t left = n - from < PIECE ? n - from : PIECE;
  from += IS_NAN(m) ? find_nan(x + from, left) : find_equal(x + from, left, m);
  *value = x[from];
  return from;
}

static int64_t find(bool least, const void *x, int64_t n, void *value) {
  return least ? find_row(true, x, n, value) : find_row(false, x, n, value);
}

/* The same down n columns of `rows` rows; `at` gets rows' numbers. */
FL_FORCE void find_cols(bool least, const T *x, int64_t rows, int64_t stride,
                        int64_t n, T *best, int64_t *at) {
  const int64_t most = 1 << 30;
  SPOT spot[MAX_TILE];
  for (int64_t j = 0; j < n; j++) {
    best[j] = x[j];
    at[j] = 0;
  }
  for (int64_t from = 0; from < rows; from += most) {
    int64_t end = rows - from < most ? rows - from : most;
    for (int64_t j = 0; j < n; j++)
      spot[j] = -1;
    for (int64_t r = 0; r < end; r++) {
      const T *row = x + (from + r) * stride;
#pragma omp simd
      for (int64_t j = 0; j < n; j++) {
        bool take = beats(least, row[j], best[j]);
        best[j] = take ? row[j] : best[j];
        spot[j] = take ? (SPOT)r : spot[j];
      }
    }
    for (int64_t j = 0; j < n; j++)
      at[j] = spot[j] < 0 ? at[j] : from + (int64_t)spot[j];
  }
}

static void arg_cols(void *context, int64_t begin, int64_t end) {
  const extreme *e = context;
  T best[MAX_TILE], *values = e->values;
  int64_t at[MAX_TILE];
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / e->tiles, first = i % e->tiles * MAX_TILE;
    int64_t n = e->inner - first < MAX_TILE ? e->inner - first : MAX_TILE;
    const T *x = (const T *)e->x + o * e->n * e->inner + first;
    if (e->least)
      find_cols(true, x, e->n, e->inner, n, best, at);
    else
      find_cols(false, x, e->n, e->inner, n, best, at);
    for (int64_t j = 0; j < n; j++) {
      e->indices[o * e->inner + first + j] = at[j] + e->base;
      if (values)
        values[o * e->inner + first + j] = best[j];
    }
  }
}

/* A row in pieces: what each found, into its first. */
static void arg_merge(const extreme *e, int64_t row) {
  T *best = (T *)e->best + row * e->pieces;
  int64_t *at = e->at + row * e->pieces, k = 0;
  for (int64_t i = 1; i < e->pieces; i++)
    if (beats(e->least, best[i], best[k]))
      k = i;
  e->indices[row] = at[k] + e->base;
  if (e->values)
    ((T *)e->values)[row] = best[k];
}

static void arg_rows(void *context, int64_t begin, int64_t end) {
  const extreme *e = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / e->pieces, from = i % e->pieces * e->piece;
    int64_t n = e->n - from < e->piece ? e->n - from : e->piece;
    T best, *value = e->pieces > 1 ? (T *)e->best + i
                     : e->values   ? (T *)e->values + i
                                   : &best;
    int64_t at =
        find(e->least, (const T *)e->x + row * e->n + from, n, value) + from;
    if (e->pieces > 1)
      e->at[i] = at;
    else
      e->indices[i] = at + e->base;
  }
}

const extreme_kernels FL_TYPED(extreme) = {
    .rows = arg_rows, .cols = arg_cols, .merge = arg_merge};
