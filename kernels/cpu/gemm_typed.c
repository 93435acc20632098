/* The matrix product on one thread, for one float type. C is computed in strips
 * of columns; for each KC steps of the sum the strip of B is put into the order
 * of the tiles (it stays in the L2 cache), then rows of A pass over it, MR at a
 * time (they stay in L1). Products so thin that a tile would be mostly empty
 * are dot products or sums of rows instead. */

#include "gemm.h"
#include "typed.h"

#include "gemm_tile.h"

#define KC      FL_STRIP_STEPS
#define NC      (512 / (int)sizeof(T))
#define KC_DOT  1024   /* of a dot product */
#define THIN    4      /* so few columns are dot products */
#define FETCHED 262144 /* bytes of a strip of B fetched beside the work */

typedef struct product {
  bool ta, tb;
  int64_t m, n, k;
  const T *a;
  int64_t lda;
  const T *b;
  int64_t ldb;
  T *c;
  int64_t ldc;
  T *room; /* for a strip of room_cols columns of B, or NULL */
  int64_t room_cols;
  int64_t j0; /* of a packed B, where C's columns begin; else -1 */
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

/* What of an operand comes next: `rows` of them, `step` bytes apart and `bytes`
 * long. Tiles fetch it in columns of two lines, from `row` on. */
typedef struct coming {
  const char *at;
  int64_t rows, step, bytes, row;
} coming;

/* Some columns of B over some steps of the sum, in panels of NR columns. */
typedef struct strip {
  int64_t p, k; /* steps p .. p + k */
  int64_t j, cols;
  const T *b;
  int64_t panel; /* elements from one panel to the next */
  int64_t ldb;   /* from row to row of a panel, and of the last one */
  int64_t last;
  /* of a B that lies where it is: what is more than whole vectors, put in order
   * where parts of vectors are not free; else NULL */
  const T *rest;
  coming next; /* of B, for the steps after these */
} strip;

/* Rows of A fall into panels of nearly equal height. */
typedef struct panels {
  int64_t count, each, more; /* the first `more` panels have one row more */
} panels;

static panels cut_rows(int64_t m) {
  if (m <= 2 * MR) /* without a division: small products are that quick */
    return m <= MR ? (panels){1, m, 0} : (panels){2, m >> 1, m & 1};
  int64_t count = fl_ceil_div(m, MR);
  return (panels){count, m / count, m % count};
}

/* What a tile of k steps fetches of it. */
static ahead take_lines(coming *f, int64_t k) {
  if (f->bytes <= 0)
    return (ahead){f->at, 0};
  ahead now = {f->at + f->row * f->step, f->step};
  f->row += k / STEPS;
  if (f->row >= f->rows) {
    f->row = 0;
    f->at += 128;
    f->bytes -= 128;
  }
  return now;
}

/* Rows of C, mr of them, over a strip. Next come f of A and g of B. */
static void row_of_tiles(bool columns, int mr, const strip *s, const T *a,
                         int64_t ra, T *c, int64_t ldc, bool add, coming *f,
                         coming *g) {
  tile_fn whole = tiles[columns][WHOLE][mr - 1],
          two = tiles[columns][TWO][mr - 1], one = tiles[columns][ONE][mr - 1];
  int64_t j = 0, cols = s->rest ? s->cols / VL * VL : s->cols;
  const T *b = s->b;
  ahead none = {(const char *)b, 0};
  for (; j + NR <= cols; j += NR, b += s->panel)
    whole(s->k, a, ra, b, s->ldb, c + j, ldc, NR, add,
          take_lines(f->bytes > 0 ? f : g, s->k));
  if (j < cols)
    (cols - j > VL ? two : one)(s->k, a, ra, b, s->last, c + j, ldc, cols - j,
                                add, none);
  if (s->rest)
    one(s->k, a, ra, s->rest, VL, c + cols, ldc, s->cols - cols, add, none);
}

/* Panels of A that pass over a strip together, and how many if copied. */
#define GROUP   (MR == 14 ? COPIES : 32)
#define COPIES  (128 / MR / (int)sizeof(T))
#define A_PANEL (A_COLUMN * A_ROW(KC))

/* Columns of a strip over which all panels of a group pass before the next
 * ones. A low tile needs B so often that it must lie in the L1 cache. */
#define CHUNK (MR == 14 ? INT64_MAX : 2 * NR)

typedef struct group {
  int count, mr[GROUP];
  const T *a[GROUP];
  int64_t ra;
  coming next;
} group;

/* The group of panels from `q` on, whose first row is i, in order if need be;
 * returns how many rows it has. */
static int64_t take_group(const product *g, const strip *s, const panels *h,
                          int64_t q, int64_t i, bool copy_a, T *copy,
                          group *r) {
  const T *a = g->ta ? g->a + s->p * g->lda + i : g->a + i * g->lda + s->p;
  int64_t rows = 0, unit = (int64_t)sizeof(T);
  r->count = (int)min(copy_a ? COPIES : GROUP, h->count - q);
  r->ra = !copy_a ? g->lda : g->ta ? A_COLUMN : A_ROW(s->k);
  for (int c = 0; c < r->count; c++) {
    const T *from = g->ta ? a + rows : a + rows * g->lda;
    r->mr[c] = (int)(h->each + (q + c < h->more));
    r->a[c] = copy_a ? copy + c * A_PANEL : from;
    if (copy_a && !g->ta)
      pack_a(s->k, r->mr[c], from, g->lda, copy + c * A_PANEL);
    rows += r->mr[c];
  }
  if (copy_a && g->ta)
    pack_at(s->k, r->count, r->mr, a, g->lda, copy, A_PANEL);
  /* then the rows below, or the first ones of the next steps */
  int64_t left = g->m - i - rows, then = s->p;
  if (left <= 0) {
    left = rows;
    then += s->k;
    i = -rows;
  }
  r->next = (coming){.at = (const char *)a};
  if (then < g->k) {
    int64_t down = i + rows, k = min(s->k, g->k - then);
    int64_t next = min(left, rows);
    const T *from =
        g->a + (g->ta ? then * g->lda + down : down * g->lda + then);
    int64_t off = (int64_t)((uintptr_t)from & 63);
    r->next.at = (const char *)from - off;
    r->next.rows = g->ta ? k : next;
    r->next.step = g->lda * unit;
    r->next.bytes = (g->ta ? next : k) * unit + off;
  }
  return rows;
}

/* All rows of A over a strip. */
static void sweep(const product *g, bool copy_a, const strip *s, bool add,
                  const fl_cpu_product *done) {
  T copy[COPIES * A_PANEL] __attribute__((aligned(FL_ALIGN)));
  panels h = cut_rows(g->m);
  coming next = s->next;
  group r;
  for (int64_t q = 0, i = 0, rows; q < h.count; q += r.count, i += rows) {
    rows = take_group(g, s, &h, q, i, copy_a, copy, &r);
    for (int64_t j = 0; j < s->cols; j += CHUNK) {
      strip some = *s;
      T *c = g->c + i * g->ldc + s->j + j;
      some.b += j / NR * s->panel;
      some.cols -= j;
      if (some.cols > CHUNK) {
        some.cols = CHUNK;
        some.rest = NULL;
      }
      for (int64_t l = 0, row = i; l < r.count; row += r.mr[l++]) {
        row_of_tiles(g->ta, r.mr[l], &some, r.a[l], r.ra, c, g->ldc, add,
                     &r.next, &next);
        c += r.mr[l] * g->ldc;
        if (done && j + some.cols == s->cols)
          done->done(done->context, done->i0 + row, r.mr[l], done->j0 + s->j,
                     s->cols);
      }
    }
  }
}

/* Rows of A a multiple of 4 KiB apart share one set of the L1 cache. Columns
 * that do not stay there all together are read best in order. */
static bool should_copy(const product *g) {
  int64_t bytes = g->lda * (int64_t)sizeof(T);
  return g->n > NR && (g->ta ? g->k * bytes > 32768 : bytes % 4096 == 0);
}

/* Whether tiles read B as well where it is: it fits in the L1 cache, its rows
 * lie close together, or so few rows of A pass over it that putting it in order
 * costs more. */
static bool in_place(const product *g) {
  int64_t row = g->ldb * (int)sizeof(T);
  return g->m <= 2 * MR || g->k * row <= 32768 ||
         (row <= FL_CLOSE_ROWS && (MR == 14 || g->m <= 16 * MR));
}

/* Steps of the sum that are done at a time. */
static int64_t steps(int64_t k) {
  if (k <= KC)
    return k;
  int64_t rounds = fl_ceil_div(k, KC);
  return (fl_ceil_div(k, rounds) + VL - 1) / VL * VL;
}

/* Steps of the sum from p on, at most `each`; the ones after them are fetched
 * while these are done, unless they would drive these out of the cache. */
static void take_steps(const product *g, strip *s, int64_t p, int64_t each) {
  int64_t unit = (int64_t)sizeof(T), then = p + each;
  int64_t k = min(g->k - then, each);
  s->p = p;
  s->k = min(g->k - p, each);
  s->next = (coming){.at = (const char *)g->b};
  if (k <= 0 || k * s->cols * unit > FETCHED)
    return;
  s->next = (coming){.at = (const char *)(g->tb ? g->b + s->j * g->ldb + then
                                                : g->b + then * g->ldb + s->j),
                     .rows = g->tb ? s->cols : k,
                     .step = g->ldb * unit,
                     .bytes = (g->tb ? k : s->cols) * unit};
}

static void direct(const product *g, bool add, const fl_cpu_product *done) {
  bool copy_a = should_copy(g);
  int64_t each = steps(g->k);
  strip s = {.cols = g->n, .panel = NR, .ldb = g->ldb, .last = g->ldb};
#if !PARTS_ARE_FREE
  T rest[KC * VL] __attribute__((aligned(FL_ALIGN)));
  int64_t whole = g->n / VL * VL;
  s.rest = whole < g->n ? rest : NULL;
#endif
  for (int64_t p = 0; p < g->k; p += each) {
    take_steps(g, &s, p, each);
    s.b = g->b + s.p * g->ldb;
#if !PARTS_ARE_FREE
    if (s.rest)
      pack_b(s.k, g->n - whole, s.b + whole, g->ldb, rest);
#endif
    sweep(g, copy_a, &s, add || s.p, s.p + s.k == g->k ? done : NULL);
  }
}

static void blocked(const product *g, bool add, const fl_cpu_product *done) {
  bool copy_a = should_copy(g);
  int64_t each = steps(g->k);
  strip s = {.b = g->room, .ldb = NR};
  for (; s.j < g->n; s.j += g->room_cols) {
    s.cols = min(g->n - s.j, g->room_cols);
    int64_t rest = s.cols % NR;
    s.last = rest && rest <= VL ? VL : NR;
    for (int64_t p = 0; p < g->k; p += each) {
      take_steps(g, &s, p, each);
      s.panel = s.k * NR;
      if (g->tb)
        pack_bt(s.k, s.cols, g->b + s.j * g->ldb + s.p, g->ldb, g->room);
      else
        pack_b(s.k, s.cols, g->b + s.p * g->ldb + s.j, g->ldb, g->room);
      sweep(g, copy_a, &s, add || s.p, s.p + s.k == g->k ? done : NULL);
    }
  }
}

/* B in order beforehand, in the strips of steps that `blocked` makes of all
 * columns. */
static void in_order(const product *g, bool add, const fl_cpu_product *done) {
  bool copy_a = should_copy(g);
  int64_t each = steps(g->k), rest = g->n % NR;
  strip s = {.cols = g->n, .ldb = NR};
  s.last = rest && rest <= VL ? VL : NR;
  s.next = (coming){.at = (const char *)g->b};
  for (int64_t p = 0; p < g->k; p += each) {
    s.p = p;
    s.k = min(g->k - p, each);
    s.panel = s.k * NR;
    s.b = g->b + p * g->ldb + g->j0 * s.k;
    sweep(g, copy_a, &s, add || p, p + s.k == g->k ? done : NULL);
  }
}

void FL_TYPED(pack)(bool tb, int64_t n, int64_t k, const void *b, int64_t ldb,
                    void *to) {
  int64_t each = steps(k);
  for (int64_t p = 0; p < k; p += each) {
    T *some = (T *)to + p * FL_PACKED(n);
    if (tb)
      pack_bt(min(k - p, each), n, (const T *)b + p, ldb, some);
    else
      pack_b(min(k - p, each), n, (const T *)b + p * ldb, ldb, some);
  }
}

static void __attribute__((noinline))
blocked_here(product g, bool add, const fl_cpu_product *done) {
  T room[KC * NC] __attribute__((aligned(FL_ALIGN)));
  g.room = room;
  g.room_cols = NC;
  blocked(&g, add, done);
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
  } else if (g->j0 >= 0) {
    in_order(g, add, done);
    return;
  } else if (thin(g, add)) {
  } else if (!g->ta && more && more <= THIN && g->n > NR && g->k >= 2 * VL) {
    product l = *g, r = *g;
    l.n = g->n - more;
    r.n = more;
    r.b += l.n * (g->tb ? g->ldb : 1);
    r.c += l.n;
    run(&l, add, NULL);
    thin(&r, add);
  } else {
    if (!g->tb && in_place(g))
      direct(g, add, done);
    else if (g->room)
      blocked(g, add, done);
    else
      blocked_here(*g, add, done);
    return;
  }
  if (done)
    done->done(done->context, done->i0, g->m, done->j0, g->n);
}

void FL_TYPED(product)(const fl_cpu_product *p) {
  product g = {p->ta,        p->tb,
               p->m,         p->n,
               p->k,         p->a,
               p->lda,       p->b,
               p->ldb,       p->c,
               p->ldc,       p->room,
               p->room_cols, p->packed ? p->j0 : -1};
  run(&g, p->add, p->done ? p : NULL);
}

void FL_TYPED(gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                    const T *a, int64_t lda, const T *b, int64_t ldb, bool add,
                    T *c, int64_t ldc) {
  product g = {ta, tb, m, n, k, a, lda, b, ldb, c, ldc, NULL, 0, -1};
  run(&g, add, NULL);
}

#include "pairwise_typed.h"
