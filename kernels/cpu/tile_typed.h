/* Products of small tiles for attention and convolution, for one float type:
 * the pieces are in cache, often strided, and too small for a packing gemm.
 * Also loads and stores of elements of any float dtype, and transposes. No
 * threads here. */
#ifndef FL_CPU_TILE_TYPED_H
#define FL_CPU_TILE_TYPED_H

#include "tile.h"
#include "typed.h"

#define TILE_SIZE (FL_T_IS_F32 ? 4 : 8)

typedef T vec
    __attribute__((vector_size(TILE_BYTES), aligned(sizeof(T)), may_alias));
#define V      vec
#define VN     ((int64_t)(TILE_BYTES / sizeof(T)))
#define AT(p)  (*(V *)(p))
#define CAT(p) (*(const V *)(p))

/* C (mr x nv vectors) = or += sum over p of A[., p] * B[p, .], where A[i, p] is
 * a[i * ars + p * acs] and row p of B starts at b + p * ldb. mr and nv are
 * constants where this is inlined, so `c` lives in registers. */
static inline __attribute__((always_inline)) void
micro(int mr, int nv, int64_t k, const T *a, int64_t ars, int64_t acs,
      const T *b, int64_t ldb, T *to, int64_t ldc, bool add) {
  V c[TILE_MR][TILE_NV];
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      c[i][j] = add ? CAT(to + i * ldc + j * VN) : (V){0};
  for (int64_t p = 0; p < k; p++, a += acs, b += ldb) {
    V row[TILE_NV];
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      row[j] = CAT(b + j * VN);
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
      V x = a[i * ars] - (V){0};
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++)
        c[i][j] += x * row[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      AT(to + i * ldc + j * VN) = c[i][j];
}

/* The same with a number of rows known only now; nv is a constant. */
static inline __attribute__((always_inline)) void
micro_rows(int mr, int nv, int64_t k, const T *a, int64_t ars, int64_t acs,
           const T *b, int64_t ldb, T *c, int64_t ldc, bool add) {
  if (mr == TILE_ROWS(nv)) {
    micro(TILE_ROWS(nv), nv, k, a, ars, acs, b, ldb, c, ldc, add);
    return;
  }
  if (TILE_ROWS(nv) > 6)
    for (; mr >= 6; mr -= 6, a += 6 * ars, c += 6 * ldc)
      micro(6, nv, k, a, ars, acs, b, ldb, c, ldc, add);
  for (; mr >= 4; mr -= 4, a += 4 * ars, c += 4 * ldc)
    micro(4, nv, k, a, ars, acs, b, ldb, c, ldc, add);
  for (; mr >= 1; mr -= 1, a += ars, c += ldc)
    micro(1, nv, k, a, ars, acs, b, ldb, c, ldc, add);
}

#define NARROW(nv)                                                             \
  TILE_ONCE static void micro##nv(int mr, int64_t k, const T *a, int64_t ars,  \
                                  int64_t acs, const T *b, int64_t ldb, T *c,  \
                                  int64_t ldc, bool add) {                     \
    micro_rows(mr, nv, k, a, ars, acs, b, ldb, c, ldc, add);                   \
  }
NARROW(1)
NARROW(2)
#if TILE_NV > 2
NARROW(3)
NARROW(4)
#endif
#undef NARROW

/* C (m x n) = or += A (m x k) * B (k x n); n is rounded up to whole vectors,
 * for which B and C must have room. `band` says where zeros need no work: see
 * tile_band. */
TILE_UNUSED static void product(tile_band band, int64_t off, int64_t m,
                                int64_t n, int64_t k, const T *a, int64_t ars,
                                int64_t acs, const T *b, int64_t ldb, T *c,
                                int64_t ldc, bool add) {
  int64_t nv = fl_ceil_div(n, VN);
  for (int64_t v = 0, w; v < nv; v += w) {
    /* 5 vectors are 3 + 2, not 4 + 1 */
    w = nv - v <= TILE_NV                      ? nv - v
        : nv - v == TILE_NV + 1 && TILE_NV > 2 ? TILE_NV - 1
                                               : TILE_NV;
    int64_t rows = TILE_ROWS(w);
    for (int64_t i = 0; i < m; i += rows) {
      int mr = (int)(m - i < rows ? m - i : rows);
      int64_t from = 0, to = k, v0 = v, w0 = w;
      if (band == TILE_K_TO && to > i + mr + off)
        to = i + mr + off > 0 ? i + mr + off : 0;
      else if (band == TILE_K_FROM && i + off > 0)
        from = i + off < k ? i + off : k;
      else if (band == TILE_N_TO && (v + w) * VN > i + mr + off) {
        int64_t end = (i + mr + off + VN - 1) / VN; /* may be negative */
        w0 = end > v ? end - v : 0;
      } else if (band == TILE_N_FROM && v * VN < i + off) {
        v0 = (i + off) / VN < v + w ? (i + off) / VN : v + w;
        w0 = v + w - v0;
      }
      const T *ai = a + i * ars + from * acs, *bi = b + from * ldb + v0 * VN;
      T *ci = c + i * ldc + v0 * VN;
      /* fewer vectors: at most `rows` rows still fit */
      switch (w0) {
      case 1:
        micro1(mr, to - from, ai, ars, acs, bi, ldb, ci, ldc, add);
        break;
      case 2:
        micro2(mr, to - from, ai, ars, acs, bi, ldb, ci, ldc, add);
        break;
#if TILE_NV > 2
      case 3:
        micro3(mr, to - from, ai, ars, acs, bi, ldb, ci, ldc, add);
        break;
      case 4:
        micro4(mr, to - from, ai, ars, acs, bi, ldb, ci, ldc, add);
        break;
#endif
      }
    }
  }
}

/* --- elements of any float dtype, as T --- */

TILE_UNUSED static void load(T *to, const void *from, fl_dtype d,
                             int64_t stride, int64_t n) {
  if (d == DTYPE && stride == 1) {
    memcpy(to, from, (size_t)n * sizeof(T));
    return;
  }
  switch (d) {
  case FL_F32: {
    const float *x = from;
    if (stride == 1)
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)x[i];
    else if (stride == 2)
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)x[i * 2];
    else
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)x[i * stride];
    break;
  }
  case FL_F64: {
    const double *x = from;
    for (int64_t i = 0; i < n; i++)
      to[i] = (T)x[i * stride];
    break;
  }
  case FL_BF16: {
    const uint16_t *x = from;
    if (stride == 1)
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)fl_from_bf16(x[i]);
    else
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)fl_from_bf16(x[i * stride]);
    break;
  }
  case FL_F16: {
    const uint16_t *x = from;
    if (stride == 1)
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)fl_from_f16(x[i]);
    else
      for (int64_t i = 0; i < n; i++)
        to[i] = (T)fl_from_f16(x[i * stride]);
    break;
  }
  default:
    for (int64_t i = 0; i < n; i++)
      to[i] = 0;
  }
}

/* to = add + scale * from. Rows are often short: the last vector overlaps the
 * one before instead of leaving single elements. */
static inline void scale_row(T *restrict to, const T *restrict from, int64_t n,
                             T scale, T add) {
  typedef T eight __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)),
                                 may_alias));
  int64_t i = 0;
  if (n < 8) {
    for (; i < n; i++)
      to[i] = from[i] * scale + add;
    return;
  }
  for (; i < n - 8; i += 8)
    *(eight *)(to + i) = *(const eight *)(from + i) * scale + add;
  *(eight *)(to + n - 8) = *(const eight *)(from + n - 8) * scale + add;
}

/* add + scale * from, into n elements `stride` apart. */
TILE_UNUSED static void store(void *to, fl_dtype d, int64_t stride,
                              const T *from, int64_t n, T scale, T add) {
  if (d == DTYPE && stride == 1) {
    scale_row(to, from, n, scale, add);
    return;
  }
  switch (d) {
  case FL_F32: {
    float *y = to;
    if (stride == 1)
      for (int64_t i = 0; i < n; i++)
        y[i] = (float)(from[i] * scale + add);
    else if (stride == 2)
      for (int64_t i = 0; i < n; i++)
        y[i * 2] = (float)(from[i] * scale + add);
    else
      for (int64_t i = 0; i < n; i++)
        y[i * stride] = (float)(from[i] * scale + add);
    break;
  }
  case FL_F64: {
    double *y = to;
    for (int64_t i = 0; i < n; i++)
      y[i * stride] = (double)(from[i] * scale + add);
    break;
  }
  case FL_BF16: {
    uint16_t *y = to;
    for (int64_t i = 0; i < n; i++)
      y[i * stride] = fl_to_bf16((float)(from[i] * scale + add));
    break;
  }
  case FL_F16: {
    uint16_t *y = to;
    for (int64_t i = 0; i < n; i++)
      y[i * stride] = fl_to_f16((float)(from[i] * scale + add));
    break;
  }
  default:
    break;
  }
}

/* Rows of `cols` elements, contiguous in `to` with row stride ldt >= cols; what
 * is left of a row becomes 0. */
TILE_UNUSED static void pack(T *to, int64_t ldt, const char *from, fl_dtype d,
                             int64_t row, int64_t col, int64_t rows,
                             int64_t cols) {
  size_t size = d == FL_F64 ? 8 : d == FL_F32 ? 4 : 2;
  for (int64_t i = 0; i < rows; i++, to += ldt) {
    load(to, from + (int64_t)size * i * row, d, col, cols);
    for (int64_t j = cols; j < ldt; j++)
      to[j] = 0;
  }
}

/* A block of N x N numbers in registers: interleaving the halves of the rows
 * moves a bit of the row's number to the column's end, and one of the column's
 * to the row's. Row i is at (i / 2) * pair + (i % 2) * odd. */
#define BLOCK(name, V, N, LOW, HIGH)                                           \
  TILE_UNWATCHED static inline __attribute__((always_inline)) void name(       \
      T *to, int64_t to_pair, int64_t to_odd, const T *from, int64_t pair,     \
      int64_t odd, T scale) {                                                  \
    V a[N], b[N];                                                              \
    _Pragma("GCC unroll 16") for (int i = 0; i < (N); i++) {                   \
      const T *row = from + i / 2 * pair + i % 2 * odd;                        \
      a[i] = *(const V *)row * scale;                                          \
    }                                                                          \
    _Pragma("GCC unroll 4") for (int h = 1; h < (N); h *= 2) {                 \
      _Pragma("GCC unroll 8") for (int i = 0; i < (N) / 2; i++) {              \
        b[2 * i] = __builtin_shufflevector(a[i], a[i + (N) / 2], LOW);         \
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + (N) / 2], HIGH);    \
      }                                                                        \
      _Pragma("GCC unroll 16") for (int i = 0; i < (N); i++) {                 \
        a[i] = b[i];                                                           \
      }                                                                        \
    }                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < (N); i++) {                   \
      T *row = to + i / 2 * to_pair + i % 2 * to_odd;                          \
      *(V *)row = a[i];                                                        \
    }                                                                          \
  }

typedef T quad
    __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
#define LOW4   0, 4, 1, 5
#define HIGH4  2, 6, 3, 7
#define LOW8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
BLOCK(block4, quad, 4, LOW4, HIGH4)
#if TILE_BYTES / TILE_SIZE == 16
BLOCK(block, V, 16, LOW16, HIGH16)
#elif TILE_BYTES / TILE_SIZE == 8
BLOCK(block, V, 8, LOW8, HIGH8)
#endif
#undef BLOCK
#undef LOW4
#undef HIGH4
#undef LOW8
#undef HIGH8
#undef LOW16
#undef HIGH16

#define BLOCK_AT(i, j, name)                                                   \
  name(to + (j) / 2 * to_pair + (i), to_pair, to_odd,                          \
       from + (i) / 2 * pair + (j), pair, odd, scale)

/* to[j, i] = scale * from[i, j], where two rows that follow each other are
 * `odd` apart, and pairs of them `pair`: so the real and imaginary parts of
 * complex numbers may be rows of two matrices. */
TILE_UNUSED TILE_ONCE TILE_UNWATCHED static void
transpose_pairs(T *to, int64_t to_pair, int64_t to_odd, const T *from,
                int64_t pair, int64_t odd, int64_t rows, int64_t cols,
                T scale) {
  int64_t r4 = rows / 4 * 4, c4 = cols / 4 * 4, r = 0, c = 0;
#if TILE_BYTES / TILE_SIZE > 4
  r = rows / VN * VN;
  c = cols / VN * VN;
  for (int64_t i = 0; i < r; i += VN)
    for (int64_t j = 0; j < c; j += VN)
      BLOCK_AT(i, j, block);
#endif
  for (int64_t j = 0; j < c4; j += 4)
    for (int64_t i = j < c ? r : 0; i < r4; i += 4)
      BLOCK_AT(i, j, block4);
  for (int64_t j = 0; j < cols; j++)
    for (int64_t i = j < c4 ? r4 : 0; i < rows; i++)
      to[j / 2 * to_pair + j % 2 * to_odd + i] =
          from[i / 2 * pair + i % 2 * odd + j] * scale;
}
#undef BLOCK_AT

/* to[j, i] = scale * from[i, j]; to is cols x ldt, with zeros from column
 * `rows` on. */
TILE_UNUSED static void transpose(T *to, int64_t ldt, const T *from,
                                  int64_t ldf, int64_t rows, int64_t cols,
                                  T scale) {
  transpose_pairs(to, 2 * ldt, ldt, from, 2 * ldf, ldf, rows, cols, scale);
  if (rows < ldt)
    for (int64_t j = 0; j < cols; j++)
      memset(to + j * ldt + rows, 0, (size_t)(ldt - rows) * sizeof(T));
}

#endif
