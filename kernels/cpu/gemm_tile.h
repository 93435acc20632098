/* The inner kernels of the matrix product for one T: a tile of C of up to MR
 * rows and two vectors of columns, kept in registers over the whole sum; and
 * the copying of operands into the order in which tiles read them.
 *
 * A tile reads B as rows of one or two whole vectors. It reads A one element at
 * a time, either along its rows (a row of A every `ra` elements) or along its
 * columns (a column every `ra`). */

#include "gemm_vector.h"

#define MR FL_TILE_ROWS
#define NR (2 * VL)

/* Memory that will be needed soon, two lines for every STEPS steps of a whole
 * tile: so it comes beside the work, and rows too short for the processor to
 * foresee are there in time. */
typedef struct ahead {
  const char *at;
  int64_t step; /* bytes from one pair of lines to the next */
} ahead;
#define STEPS 4

/* Where a tile reads. */
typedef struct reading {
  /* rows of A by threes, each three from one pointer: x86 addresses p, p + ra
   * and p + 2 ra without help */
  const T *row[(MR + 2) / 3];
  const T *column; /* or a column of A */
  int64_t ra;
  const T *b;
  int64_t ldb;
} reading;

/* `n` steps of the sum. */
FORCE void add_steps(int n, bool columns, int mr, int nv, bool partly,
                     part in_last, reading *r, vec sum[MR][2]) {
  UNROLL
  for (int p = 0; p < n; p++) {
    vec y[2];
    UNROLL
    for (int j = 0; j < nv; j++)
      y[j] = PARTS_ARE_FREE && partly && j == nv - 1
                 ? load_part(r->b + j * VL, in_last)
                 : load(r->b + j * VL);
    r->b += r->ldb;
    UNROLL
    for (int i = 0; i < mr; i++) {
      vec x = splat(columns ? r->column[i] : r->row[i / 3][i % 3 * r->ra + p]);
      IN_REGISTER(x); /* one load for both vectors, not one each */
      UNROLL
      for (int j = 0; j < nv; j++)
        sum[i][j] += x * y[j];
    }
    if (columns)
      r->column += r->ra;
  }
  if (columns)
    return;
  UNROLL
  for (int i = 0; i < mr; i += 3) {
    r->row[i / 3] += n;
    __asm__("" : "+r"(r->row[i / 3]));
  }
}

/* nv vectors, the last of which may count only in part. */
FORCE void tile(bool columns, int mr, int nv, bool partly, int64_t k,
                const T *a, int64_t ra, const T *b, int64_t ldb, T *c,
                int64_t ldc, int64_t cols, bool add, ahead next) {
  vec sum[MR][2];
  int64_t rest = cols - (nv - 1) * VL;
  part in_last = first(rest);
  reading r = {.column = a, .ra = ra, .b = b, .ldb = ldb};
  T *out = c;
  UNROLL
  for (int i = 0; i < mr; i++) {
    sum[i][0] = sum[i][1] = (vec){0};
    __builtin_prefetch(out, 1);
    if (nv > 1)
      __builtin_prefetch(out + nv * VL - 1, 1);
    out += ldc;
    __asm__("" : "+r"(out));
  }
  UNROLL
  for (int i = 0; i < mr; i += 3)
    r.row[i / 3] = a + i * ra;
  int64_t p = 0;
  for (; !partly && p + STEPS <= k; p += STEPS) {
    __builtin_prefetch(next.at, 0, 2);
    __builtin_prefetch(next.at + 64, 0, 2);
    next.at += next.step;
    add_steps(2, columns, mr, nv, false, in_last, &r, sum);
    add_steps(2, columns, mr, nv, false, in_last, &r, sum);
  }
  for (; p < k; p++)
    add_steps(1, columns, mr, nv, partly, in_last, &r, sum);
  UNROLL
  for (int i = 0; i < mr; i++) {
    UNROLL
    for (int j = 0; j < nv; j++) {
      T *q = c + j * VL;
      vec s = sum[i][j];
      if (!partly || j < nv - 1 || rest == VL) {
        if (add)
          s += load(q);
        store(q, s);
      } else {
        if (add)
          s += load_part(q, in_last);
        store_part(q, s, in_last);
      }
    }
    c += ldc;
    __asm__("" : "+r"(c));
  }
}

/* `cols` columns of C count, the rest of the last vector is not written; B has
 * whole vectors even so unless PARTS_ARE_FREE. */
typedef void (*tile_fn)(int64_t k, const T *a, int64_t ra, const T *b,
                        int64_t ldb, T *c, int64_t ldc, int64_t cols, bool add,
                        ahead next);

#define TILE(order, columns, mr, name, nv, partly)                             \
  static void order##_##mr##_##name(                                           \
      int64_t k, const T *a, int64_t ra, const T *b, int64_t ldb, T *c,        \
      int64_t ldc, int64_t cols, bool add, ahead next) {                       \
    tile(columns, mr, nv, partly, k, a, ra, b, ldb, c, ldc, cols, add, next);  \
  }
#define TILES(mr)                                                              \
  TILE(rows, false, mr, whole, 2, false)                                       \
  TILE(rows, false, mr, two, 2, true)                                          \
  TILE(rows, false, mr, one, 1, true)                                          \
  TILE(columns, true, mr, whole, 2, false)                                     \
  TILE(columns, true, mr, two, 2, true)                                        \
  TILE(columns, true, mr, one, 1, true)
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#if MR == 14
TILES(7)
TILES(8)
TILES(9)
TILES(10)
TILES(11)
TILES(12)
TILES(13)
TILES(14)
#define BY_ROWS(order, name)                                                   \
  {                                                                            \
    order##_1_##name, order##_2_##name, order##_3_##name, order##_4_##name,    \
        order##_5_##name, order##_6_##name, order##_7_##name,                  \
        order##_8_##name, order##_9_##name, order##_10_##name,                 \
        order##_11_##name, order##_12_##name, order##_13_##name,               \
        order##_14_##name                                                      \
  }
#else
#define BY_ROWS(order, name)                                                   \
  {                                                                            \
    order##_1_##name, order##_2_##name, order##_3_##name, order##_4_##name,    \
        order##_5_##name, order##_6_##name                                     \
  }
#endif

enum { WHOLE, TWO, ONE };
/* [A along its columns][vectors][rows - 1] */
static const tile_fn tiles[2][3][MR] = {
    {BY_ROWS(rows, whole), BY_ROWS(rows, two), BY_ROWS(rows, one)},
    {BY_ROWS(columns, whole), BY_ROWS(columns, two), BY_ROWS(columns, one)},
};

/* --- copies --- */

/* Columns j0 .. j0 + cols of B in panels of NR columns, k rows each; the last
 * panel is as wide as whole vectors need, filled up with zeros. */
static void pack_b(int64_t k, int64_t cols, const T *b, int64_t ldb,
                   T *restrict to) {
  int64_t whole = cols / NR * NR, rest = cols - whole;
  for (int64_t p = 0; p < k; p++) {
    const T *from = b + p * ldb;
    T *q = to + p * NR;
    for (int64_t j = 0; j < whole; j += NR) {
      store(q, load(from + j));
      store(q + VL, load(from + j + VL));
      q += k * NR;
    }
    if (!rest)
      continue;
    int64_t wide = rest > VL ? NR : VL;
    q = to + whole * k + p * wide;
    if (wide == NR)
      store(q, load(from + whole));
    store(q + wide - VL,
          load_part(from + whole + wide - VL, first(rest - (wide - VL))));
  }
}

/* VL columns of the panel from `cols` rows of the stored n x k matrix. */
FORCE void pack_transposed(int64_t k, int64_t cols, const T *b, int64_t ldb,
                           T *restrict to, int64_t wide) {
  for (int64_t p = 0; p < k; p += VL) {
    vec r[VL];
    int64_t n = k - p < VL ? k - p : VL;
    part some = first(n);
    if (n == VL && cols == VL) {
      UNROLL
      for (int i = 0; i < VL; i++)
        r[i] = load(b + i * ldb + p);
    } else {
      UNROLL
      for (int i = 0; i < VL; i++)
        r[i] = i < cols ? load_part(b + i * ldb + p, some) : (vec){0};
    }
    transpose(r);
    T *q = to + p * wide;
    if (n == VL) {
      UNROLL
      for (int i = 0; i < VL; i++)
        store(q + i * wide, r[i]);
    } else {
      UNROLL
      for (int i = 0; i < VL; i++)
        if (i < n)
          store(q + i * wide, r[i]);
    }
  }
}

/* The same panels from B stored n x k. */
static void pack_bt(int64_t k, int64_t cols, const T *b, int64_t ldb,
                    T *restrict to) {
  for (int64_t j = 0; j < cols; j += VL) {
    int64_t panel = j / NR * NR, n = cols - j < VL ? cols - j : VL;
    int64_t wide = cols - panel > VL ? NR : VL;
    pack_transposed(k, n, b + j * ldb, ldb, to + panel * k + j - panel, wide);
  }
}

/* k elements of mr rows of A, A_ROW apart so that they do not compete for the
 * same sets of the cache. */
#define A_ROW(k) ((k) + 64 / (int)sizeof(T) + 4)

static void pack_a(int64_t k, int mr, const T *a, int64_t lda, T *restrict to) {
  for (int i = 0; i < mr; i++)
    __builtin_memcpy(to + i * A_ROW(k), a + i * lda, (size_t)k * sizeof(T));
}

/* The same of A stored k x m, for `count` panels side by side, `panel` elements
 * apart; columns of a panel A_COLUMN apart. */
#define A_COLUMN ((MR + VL - 1) / VL * VL)

static void pack_at(int64_t k, int count, const int *mr, const T *a,
                    int64_t lda, T *restrict to, int64_t panel) {
  for (int64_t p = 0; p < k; p++) {
    const T *from = a + p * lda;
    T *q = to + p * A_COLUMN;
    for (int c = 0; c < count; from += mr[c++], q += panel) {
      int i = 0;
      for (; i + VL <= mr[c]; i += VL)
        store(q + i, load(from + i));
      if (i < mr[c])
        store(q + i, load_part(from + i, first(mr[c] - i)));
    }
  }
}
