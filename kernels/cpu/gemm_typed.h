/* The matrix product on one thread, for one T: gemm_f32.c and gemm_f64.c
 * include this. C is computed in strips of NC columns; for each KC steps of the
 * sum the strip of B is put into the order of the tiles (it stays in the L2
 * cache), then rows of A pass over it, MR at a time (they stay in L1).
 * Products so thin that a tile would be mostly empty are dot products or sums
 * of rows instead. */

#include "gemm.h"
#include "gemm_tile.h"

#define KC     256
#define NC     (512 / (int)sizeof(T))
#define KC_DOT 1024 /* of a dot product */
#define THIN   4    /* so few columns are dot products */

typedef struct product {
  bool ta, tb;
  int64_t m, n, k;
  const T *a;
  int64_t lda;
  const T *b;
  int64_t ldb;
  T *c;
  int64_t ldc;
} product;

static int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* --- thin products --- */

/* The dot products of `rows` rows of A with `t` vectors, as many as a vector
 * has lanes: lane r * t + j is row r times vector j. */
FORCE vec dot_tile(int rows, int t, int64_t k, const T *const *a,
                   const T *const *v) {
  vec sum[VL];
  UNROLL
  for (int i = 0; i < VL; i++)
    sum[i] = (vec){0};
  int64_t p = 0;
  for (; p + VL <= k; p += VL)
    UNROLL
  for (int r = 0; r < rows; r++) {
    vec x = load(a[r] + p);
    UNROLL
    for (int j = 0; j < t; j++)
      sum[r * t + j] += x * load(v[j] + p);
  }
  if (p < k) {
    part rest = first(k - p);
    UNROLL
    for (int r = 0; r < rows; r++) {
      vec x = load_part(a[r] + p, rest);
      UNROLL
      for (int j = 0; j < t; j++)
        sum[r * t + j] += x * load_part(v[j] + p, rest);
    }
  }
  return sums(sum);
}

/* Row i of A times vector j into c[i * cs + j * ct], for n rows and t <= 4
 * vectors; row and vector are contiguous. */
#define DOTS(t, tile_rows)                                                     \
  static void dots_##t(int64_t n, int64_t k, const T *a, int64_t lda,          \
                       const T *const *v, bool add, T *c, int64_t cs,          \
                       int64_t ct) {                                           \
    for (int64_t i = 0; i < n; i += tile_rows) {                               \
      const T *row[tile_rows];                                                 \
      for (int r = 0; r < tile_rows; r++)                                      \
        row[r] = a + min(i + r, n - 1) * lda;                                  \
      vec s = dot_tile(tile_rows, t, k, row, v);                               \
      for (int r = 0; r < tile_rows && i + r < n; r++)                         \
        for (int j = 0; j < t; j++) {                                          \
          T *q = c + (i + r) * cs + j * ct;                                    \
          *q = add ? *q + s[r * t + j] : s[r * t + j];                         \
        }                                                                      \
    }                                                                          \
  }
DOTS(1, VL)
#if VL >= 4
DOTS(2, (VL / 2))
DOTS(4, (VL / 4))
#else
#define dots_2 dots_1 /* never called */
#define dots_4 dots_1
#endif

/* The dot products of n rows of A with t vectors, of which vector j begins at
 * v + j * vs with step `step`; result (i, j) goes to c[i * cs + j * ct]. Rows
 * in groups that stay in the L2 cache while the vectors pass, four at a time.
 */
static void thin_dots(int64_t n, int64_t t, int64_t k, const T *a, int64_t lda,
                      const T *v, int64_t vs, int64_t step, bool add, T *c,
                      int64_t cs, int64_t ct) {
  T copy[4][KC_DOT];
  for (int64_t p = 0; p < k; p += KC_DOT, add = true) {
    int64_t kc = min(k - p, KC_DOT);
    int64_t group = t <= 4 || step != 1 ? n : NC / 2;
    for (int64_t i = 0; i < n; i += group) {
      int64_t rows = min(n - i, group);
      for (int64_t j = 0, now; j < t; j += now) {
        now = VL < 4 ? 1 : t - j >= 4 ? 4 : t - j >= 2 ? 2 : 1;
        const T *x[4];
        for (int64_t l = 0; l < now; l++) {
          x[l] = v + (j + l) * vs + p * step;
          if (step == 1)
            continue;
          for (int64_t q = 0; q < kc; q++)
            copy[l][q] = x[l][q * step];
          x[l] = copy[l];
        }
        (now == 4   ? dots_4
         : now == 2 ? dots_2
                    : dots_1)(rows, kc, a + i * lda + p, lda, x, add,
                              c + i * cs + j * ct, cs, ct);
      }
    }
  }
}

/* c (+)= v times the k x n matrix B, by rows of B, four at a time. */
static void sum_of_rows(int64_t n, int64_t k, const T *v, int64_t step,
                        const T *b, int64_t ldb, bool add, T *restrict c) {
  for (int64_t j = 0; j < n; j += KC_DOT) {
    int64_t nc = min(n - j, KC_DOT);
    T *restrict q = c + j;
    const T *y = b + j;
    int64_t p = 0;
    if (!add)
      for (int64_t i = 0; i < nc; i++)
        q[i] = 0;
    for (; p + 4 <= k; p += 4, y += 4 * ldb) {
      T x0 = v[p * step], x1 = v[(p + 1) * step], x2 = v[(p + 2) * step],
        x3 = v[(p + 3) * step];
      const T *y1 = y + ldb, *y2 = y1 + ldb, *y3 = y2 + ldb;
#pragma omp simd
      for (int64_t i = 0; i < nc; i++)
        q[i] += (x0 * y[i] + x1 * y1[i]) + (x2 * y2[i] + x3 * y3[i]);
    }
    for (; p < k; p++, y += ldb) {
      T x = v[p * step];
#pragma omp simd
      for (int64_t i = 0; i < nc; i++)
        q[i] += x * y[i];
    }
  }
}

/* Whether the product was thin, and is done. */
static bool thin(const product *g, bool add) {
  if (g->m == 1 && !g->tb) {
    sum_of_rows(g->n, g->k, g->a, g->ta ? g->lda : 1, g->b, g->ldb, add, g->c);
    return true;
  }
  if (g->n == 1 && g->ta && (g->ldc == 1 || g->m == 1)) {
    sum_of_rows(g->m, g->k, g->b, g->tb ? 1 : g->ldb, g->a, g->lda, add, g->c);
    return true;
  }
  if (g->tb && g->m <= (g->k < 8 * VL ? 2 : 4) * THIN && g->k >= 2 * VL) {
    thin_dots(g->n, g->m, g->k, g->b, g->ldb, g->a, g->ta ? 1 : g->lda,
              g->ta ? g->lda : 1, add, g->c, 1, g->ldc);
    return true;
  }
  if (!g->ta && g->n <= (g->tb && g->k >= 8 * VL ? 3 : 1) * THIN &&
      g->k >= 2 * VL) {
    thin_dots(g->m, g->n, g->k, g->a, g->lda, g->b, g->tb ? g->ldb : 1,
              g->tb ? 1 : g->ldb, add, g->c, g->ldc, 1);
    return true;
  }
  return false;
}

/* --- tiles --- */

/* Calls the tiles of rows i .. i + mr of C over a strip of B, which lies in
 * panels of NR columns `panel` elements apart, rows of a panel ldb apart (the
 * last one, if narrower, `last` apart). */
static void row_of_tiles(bool columns, int mr, int64_t cols, int64_t k,
                         const T *a, int64_t ra, const T *b, int64_t ldb,
                         int64_t panel, int64_t last, T *c, int64_t ldc,
                         bool add) {
  tile_fn whole = tiles[columns][WHOLE][mr - 1];
  int64_t j = 0;
  for (; j + NR <= cols; j += NR, b += panel)
    whole(k, a, ra, b, ldb, c + j, ldc, NR, add);
  if (cols - j > VL)
    tiles[columns][TWO][mr - 1](k, a, ra, b, last, c + j, ldc, cols - j, add);
  else if (j < cols)
    tiles[columns][ONE][mr - 1](k, a, ra, b, last, c + j, ldc, cols - j, add);
}

/* Rows of A fall into panels of nearly equal height. */
typedef struct panels {
  int64_t count, each, more; /* the first `more` panels have one row more */
} panels;

static panels cut_rows(int64_t m) {
  if (m <= 2 * MR) /* without a division: small products are that quick */
    return m <= MR ? (panels){1, m, 0} : (panels){2, m >> 1, m & 1};
  int64_t count = (m + MR - 1) / MR;
  return (panels){count, m / count, m % count};
}

/* Both operands where they are; see in_place. */
static void small(const product *g, bool add) {
  panels h = cut_rows(g->m);
  int64_t whole = PARTS_ARE_FREE ? g->n : g->n / VL * VL;
#if !PARTS_ARE_FREE
  T rest[KC * VL] __attribute__((aligned(FL_ALIGN)));
#endif
  for (int64_t p = 0; p < g->k; p += KC, add = true) {
    int64_t kc = min(g->k - p, KC), i = 0;
    const T *b = g->b + p * g->ldb;
#if !PARTS_ARE_FREE
    if (whole < g->n)
      pack_b(kc, g->n - whole, b + whole, g->ldb, rest);
#endif
    for (int64_t s = 0; s < h.count; s++) {
      int mr = (int)(h.each + (s < h.more));
      const T *a = g->ta ? g->a + p * g->lda + i : g->a + i * g->lda + p;
      T *c = g->c + i * g->ldc;
      row_of_tiles(g->ta, mr, whole, kc, a, g->lda, b, g->ldb, NR, g->ldb, c,
                   g->ldc, add);
#if !PARTS_ARE_FREE
      if (whole < g->n)
        tiles[g->ta][ONE][mr - 1](kc, a, g->lda, rest, VL, c + whole, g->ldc,
                                  g->n - whole, add);
#endif
      i += mr;
    }
  }
}

/* panels of A copied together where A is stored k x m */
#define GROUP (16 / (int)sizeof(T))

/* One strip of C over kc steps of the sum. */
static void strip(const product *g, bool copy_a, int64_t p, int64_t kc,
                  const T *packed_b, int64_t j, int64_t cols, bool add,
                  const fl_cpu_product *done) {
  T copy[GROUP * KC * A_COLUMN] __attribute__((aligned(FL_ALIGN)));
  panels h = cut_rows(g->m);
  int64_t rest = cols % NR, last = rest && rest <= VL ? VL : NR;
  int at = 0, ready = 0, mr[GROUP];
  for (int64_t s = 0, i = 0; s < h.count; s++, at++) {
    mr[0] = (int)(h.each + (s < h.more));
    const T *a = g->ta ? g->a + p * g->lda + i : g->a + i * g->lda + p;
    int64_t ra = g->lda;
    if (copy_a && g->ta) {
      if (at == ready) {
        ready = (int)min(GROUP, h.count - s);
        for (at = ready - 1; at > 0; at--)
          mr[at] = (int)(h.each + (s + at < h.more));
        pack_at(kc, ready, mr, a, g->lda, copy, KC * A_COLUMN);
      }
      a = copy + at * KC * A_COLUMN;
      ra = A_COLUMN;
    } else if (copy_a) {
      pack_a(kc, mr[0], a, g->lda, copy);
      a = copy;
      ra = A_ROW(kc);
    }
    row_of_tiles(g->ta, mr[0], cols, kc, a, ra, packed_b, NR, kc * NR, last,
                 g->c + i * g->ldc + j, g->ldc, add);
    if (done)
      done->done(done->context, done->i0 + i, mr[0], done->j0 + j, cols);
    i += mr[0];
  }
}

/* Rows of A a multiple of 4 KiB apart share one set of the L1 cache; columns
 * that far apart need a page each. */
static bool should_copy(const product *g) {
  int64_t bytes = g->lda * (int64_t)sizeof(T);
  return g->n > NR && (g->ta ? bytes >= 4096 : bytes % 4096 == 0);
}

/* Whether tiles may read B where it is: it fits in the L1 cache, or so few rows
 * of A pass over it that putting it in order costs more. */
static bool in_place(const product *g) {
  int64_t row = g->ldb * (int)sizeof(T);
  return g->m <= 2 * MR || g->k * row <= 32768 ||
         (g->m <= 16 * MR && row <= 2048 && !should_copy(g));
}

static void __attribute__((noinline))
blocked(const product *g, bool add, const fl_cpu_product *done) {
  T packed_b[KC * NC] __attribute__((aligned(FL_ALIGN)));
  int64_t rounds = (g->k + KC - 1) / KC;
  int64_t kc = ((g->k + rounds - 1) / rounds + VL - 1) / VL * VL;
  bool copy_a = should_copy(g);
  for (int64_t p = 0; p < g->k; p += kc) {
    int64_t now = min(g->k - p, kc);
    for (int64_t j = 0; j < g->n; j += NC) {
      int64_t cols = min(g->n - j, NC);
      if (g->tb)
        pack_bt(now, cols, g->b + j * g->ldb + p, g->ldb, packed_b);
      else
        pack_b(now, cols, g->b + p * g->ldb + j, g->ldb, packed_b);
      strip(g, copy_a, p, now, packed_b, j, cols, add || p,
            p + now == g->k ? done : NULL);
    }
  }
}

/* The same where B has been packed before. */
static void prepacked(const product *g, bool add, const fl_cpu_product *f) {
  const T *packed = f->packed;
  bool copy_a = should_copy(g);
  for (int64_t p = 0; p < g->k; p += f->step) {
    int64_t now = min(g->k - p, f->step);
    const T *b = packed + p * f->packed_cols + f->j0 * now;
    strip(g, copy_a, p, now, b, 0, g->n, add || p,
          f->done && p + now == g->k ? f : NULL);
  }
}

static void clear(const product *g) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      g->c[i * g->ldc + j] = 0;
}

static void run(const product *g, bool add, const fl_cpu_product *done) {
  if (g->m <= 0 || g->n <= 0)
    return;
  /* a few columns more than whole vectors */
  int64_t more = g->n % NR;
  if (g->k <= 0) {
    if (!add)
      clear(g);
  } else if (thin(g, add)) {
  } else if (!g->ta && more && more <= THIN && g->n > NR && g->k >= 2 * VL) {
    product l = *g, r = *g;
    l.n = g->n - more;
    r.n = more;
    r.b += l.n * (g->tb ? g->ldb : 1);
    r.c += l.n;
    run(&l, add, NULL);
    thin(&r, add);
  } else if (!g->tb && in_place(g)) {
    small(g, add);
  } else {
    blocked(g, add, done);
    return;
  }
  if (done)
    done->done(done->context, done->i0, g->m, done->j0, g->n);
}

void PRODUCT(const fl_cpu_product *p) {
  product g = {p->ta,  p->tb, p->m,   p->n, p->k,  p->a,
               p->lda, p->b,  p->ldb, p->c, p->ldc};
  if (p->packed && p->k > 0)
    prepacked(&g, p->add, p);
  else
    run(&g, p->add, p->done ? p : NULL);
}

void PACK(bool tb, int64_t k, int64_t cols, const void *b, int64_t ldb,
          void *to) {
  if (tb)
    pack_bt(k, cols, b, ldb, to);
  else
    pack_b(k, cols, b, ldb, to);
}

void GEMM(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T *a,
          int64_t lda, const T *b, int64_t ldb, bool add, T *c, int64_t ldc) {
  product g = {ta, tb, m, n, k, a, lda, b, ldb, c, ldc};
  run(&g, add, NULL);
}
