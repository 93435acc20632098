/* The algorithms of sort.c for one width of keys, that of f32 or of f64. A word
 * W is a key above SHIFT bits of a position. Words are all different. */
#include "sort.h"
#include "typed.h"

#if FL_T_IS_F32
typedef uint64_t W;
#define SHIFT 32
#else
__extension__ typedef unsigned __int128 W;
#define SHIFT 64
#endif

/* --- words of elements --- */

static inline uint32_t key_f32(uint32_t u) {
  uint32_t k = u == 0x80000000u ? 0 : u;
  k ^= (uint32_t)((int32_t)k >> 31) | 0x80000000u;
  return (u & 0x7fffffff) > 0x7f800000 ? UINT32_MAX : k;
}

/* 16-bit floats: `inf` is infinity's pattern. */
static inline uint32_t key_16(uint32_t u, uint32_t inf) {
  uint32_t k = u == 0x8000 ? 0 : u;
  k ^= k & 0x8000 ? 0xffff : 0x8000;
  return (u & 0x7fff) > inf ? UINT32_MAX : k;
}

#define PACK(key, i) ((uint64_t)((uint32_t)(key) ^ flip) << 32 | (uint32_t)(i))
#define KEYS(T, key)                                                           \
  do {                                                                         \
    const T *x = (const T *)from;                                              \
    if (stride == 1)                                                           \
      for (int64_t i = 0; i < n; i++) {                                        \
        T u = x[i];                                                            \
        w[i] = PACK(key, start + i);                                           \
      }                                                                        \
    else                                                                       \
      for (int64_t i = 0; i < n; i++) {                                        \
        T u = x[i * stride];                                                   \
        w[i] = PACK(key, start + i);                                           \
      }                                                                        \
  } while (0)

/* Words of elements start .. start + n of a line of keys up to 32 bits. */
static void load_32(const sorting *c, const char *from, int64_t start,
                    int64_t n, uint64_t *restrict w) {
  int64_t stride = c->x_stride;
  uint32_t flip = c->descending ? UINT32_MAX : 0;
  from += start * stride * (int64_t)c->size;
  switch (c->dtype) {
  case FL_F32:
    KEYS(fl_word4, key_f32(u));
    break;
  case FL_F16:
    KEYS(fl_word2, key_16(u, 0x7c00));
    break;
  case FL_BF16:
    KEYS(fl_word2, key_16(u, 0x7f80));
    break;
  case FL_I64:
    KEYS(fl_word8, u - c->least);
    break;
  case FL_I32:
    KEYS(fl_word4, u ^ 0x80000000u);
    break;
  case FL_I16:
    KEYS(fl_word2, u ^ 0x8000u);
    break;
  case FL_I8:
    KEYS(fl_word1, u ^ 0x80u);
    break;
  case FL_BOOL:
    KEYS(fl_word1, u != 0);
    break;
  default:
    KEYS(fl_word1, u);
  }
}
#undef KEYS
#undef PACK

#if FL_T_IS_F32
#define load load_32
#else
static inline uint64_t key_f64(uint64_t u) {
  if ((u & INT64_MAX) > (uint64_t)0x7ff << 52)
    return UINT64_MAX;
  u = u == (uint64_t)1 << 63 ? 0 : u;
  return u ^ ((uint64_t)((int64_t)u >> 63) | (uint64_t)1 << 63);
}

static void load(const sorting *c, const char *from, int64_t start, int64_t n,
                 W *w) {
  int64_t stride = c->x_stride;
  uint64_t flip = c->descending ? UINT64_MAX : 0;
  if (c->size < 8) { /* a line of more than 2^32 small elements */
    uint64_t one[64];
    for (int64_t i = 0; i < n; i += 64) {
      int64_t m = n - i < 64 ? n - i : 64;
      load_32(c, from, start + i, m, one);
      for (int64_t j = 0; j < m; j++)
        w[i + j] = (W)(one[j] >> 32) << 64 | (uint64_t)(start + i + j);
    }
    return;
  }
  const fl_word8 *x = (const fl_word8 *)from + start * stride;
  for (int64_t i = 0; i < n; i++) {
    uint64_t u = x[i * stride];
    uint64_t key = c->dtype == FL_F64 ? key_f64(u) : u ^ (uint64_t)1 << 63;
    w[i] = (W)(key ^ flip) << 64 | (uint64_t)(start + i);
  }
}
#endif

static inline int64_t where(W w) {
  return (int64_t)(w & (((W)1 << SHIFT) - 1));
}

/* --- sorting words --- */

static void insertion(W *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    W w = a[i];
    int64_t j = i;
    for (; j > 0 && w < a[j - 1]; j--)
      a[j] = a[j - 1];
    a[j] = w;
  }
}

/* Sorts a with the help of b; returns which of the two has the result. */
static W *merges(W *a, W *b, int64_t n) {
  const int64_t run = 16;
  for (int64_t i = 0; i < n; i += run)
    insertion(a + i, n - i < run ? n - i : run);
  for (int64_t m = run; m < n; m *= 2) {
    for (int64_t i = 0; i < n; i += 2 * m) {
      int64_t mid = i + m < n ? i + m : n, end = mid + m < n ? mid + m : n;
      int64_t p = i, q = mid, o = i;
      while (p < mid && q < end) {
        bool right = a[q] < a[p];
        b[o++] = right ? a[q] : a[p];
        p += !right;
        q += right;
      }
      memcpy(b + o, a + p, (size_t)(mid - p) * sizeof *a);
      memcpy(b + o + mid - p, a + q, (size_t)(end - q) * sizeof *a);
    }
    W *t = a;
    a = b;
    b = t;
  }
  return a;
}

/* Bytes of the key from the lowest; those equal in all words cost nothing. */
static W *radix(W *a, W *b, int64_t n) {
  int64_t counts[SHIFT / 8][256];
  memset(counts, 0, sizeof counts);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < SHIFT / 8; d++)
      counts[d][(a[i] >> (SHIFT + 8 * d)) & 255]++;
  for (int d = 0; d < SHIFT / 8; d++) {
    int64_t *count = counts[d], at = 0;
    if (count[(a[0] >> (SHIFT + 8 * d)) & 255] == n)
      continue;
    for (int k = 0; k < 256; k++) {
      int64_t here = count[k];
      count[k] = at;
      at += here;
    }
    for (int64_t i = 0; i < n; i++)
      b[count[(a[i] >> (SHIFT + 8 * d)) & 255]++] = a[i];
    W *t = a;
    a = b;
    b = t;
  }
  return a;
}

static W *sort_words(W *a, W *b, int64_t n) {
  return n < 4 * SHIFT ? merges(a, b, n) : radix(a, b, n);
}

static inline bool any_below(const W *w, int64_t n, W limit) {
  int below = 0;
  for (int64_t i = 0; i < n; i++)
    below |= w[i] < limit;
  return below;
}

/* The least k words of elements begin .. end, in order, for few k: s is sorted
 * all the time. No word has all bits set. */
static W *few(const sorting *c, const char *x, int64_t begin, int64_t end,
              int64_t k, W *s) {
  W block[BLOCK];
  for (int64_t i = 0; i < k; i++)
    s[i] = ~(W)0;
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = end - i < BLOCK ? end - i : BLOCK;
    load(c, x, i, n, block);
    if (!any_below(block, n, s[k - 1]))
      continue;
    for (int64_t j = 0; j < n; j++) {
      W w = block[j];
      int64_t p = k - 1;
      if (w >= s[p])
        continue;
      for (; p > 0 && w < s[p - 1]; p--)
        s[p] = s[p - 1];
      s[p] = w;
    }
  }
  return s;
}

/* The same for any k, in a or in b, which have c->room. Words below the limit
 * are gathered until the buffer is full; then it is sorted and the limit falls.
 */
static W *least(const sorting *c, const char *x, int64_t begin, int64_t end,
                int64_t k, W *a, W *b) {
  int64_t n = end - begin, m = n < c->room ? n : c->room;
  if (c->room < n && k <= FEW)
    return few(c, x, begin, end, k, a);
  load(c, x, begin, m, a);
  W *s = sort_words(a, b, m), block[BLOCK];
  if (m == n)
    return s;
  W limit = s[k - 1];
  m = k;
  for (int64_t i = begin + c->room; i < end; i += BLOCK) {
    int64_t len = end - i < BLOCK ? end - i : BLOCK;
    load(c, x, i, len, block);
    if (!any_below(block, len, limit))
      continue;
    for (int64_t j = 0; j < len; j++) {
      s[m] = block[j];
      m += block[j] < limit;
    }
    if (m + BLOCK >= c->room) {
      s = sort_words(s, s == a ? b : a, m);
      limit = s[k - 1];
      m = k;
    }
  }
  return sort_words(s, s == a ? b : a, m);
}

/* --- lines --- */

/* Elements begin .. end of the result, from sorted words. */
static void store(const sorting *c, const char *x, int64_t y, int64_t begin,
                  int64_t end, const W *w) {
  int64_t xs = c->x_stride, ys = c->y_stride;
#define STORE(T)                                                               \
  do {                                                                         \
    const T *f = (const T *)x;                                                 \
    T *t = (T *)c->values + y;                                                 \
    for (int64_t i = begin; i < end; i++)                                      \
      t[i * ys] = f[where(w[i]) * xs];                                         \
  } while (0)
  FL_BY_SIZE(c->size, STORE)
#undef STORE
  for (int64_t i = begin; i < end; i++)
    c->indices[y + i * ys] = where(w[i]) + c->base;
}

static void line_task(void *context, int64_t begin, int64_t end) {
  const sorting *c = context;
  W here[2 * STACK], *a = here;
  if (c->scratch)
    a = (W *)c->scratch + begin / c->share * 2 * c->room;
  fl_walk w;
  fl_walk_start(&w, c->ndim, c->lines, begin);
  for (int64_t i = begin; i < end && !fl_cpu_interrupted(c->l);
       i++, fl_walk_next(&w)) {
    const char *x = c->x + fl_walk_offset(&w, c->x_strides) * (int64_t)c->size;
    W *s = least(c, x, 0, c->n, c->k, a, a + c->room);
    store(c, x, fl_walk_offset(&w, c->y_strides), 0, c->k, s);
  }
}

/* --- one long line on all threads --- */

typedef struct long_line {
  const sorting *c;
  const char *x;
  int64_t y, piece; /* place of the result, elements of a piece */
  W *a, *b;
  int shift;
  int64_t (*counts)[256]; /* of each piece */
} long_line;

static void load_task(void *context, int64_t begin, int64_t end) {
  long_line *p = context;
  load(p->c, p->x, begin, end - begin, p->a + begin);
}

static void store_task(void *context, int64_t begin, int64_t end) {
  long_line *p = context;
  store(p->c, p->x, p->y, begin, end, p->a);
}

static void count_task(void *context, int64_t begin, int64_t end) {
  long_line *p = context;
  int64_t *count = p->counts[begin / p->piece];
  memset(count, 0, sizeof *p->counts);
  for (int64_t i = begin; i < end; i++)
    count[(p->a[i] >> p->shift) & 255]++;
}

static void spread_task(void *context, int64_t begin, int64_t end) {
  long_line *p = context;
  int64_t *at = p->counts[begin / p->piece];
  for (int64_t i = begin; i < end; i++)
    p->b[at[(p->a[i] >> p->shift) & 255]++] = p->a[i];
}

/* Counts to places; true if all n words have the same digit. */
static bool places(long_line *p, int64_t n) {
  int64_t at = 0, pieces = fl_ceil_div(n, p->piece);
  for (int k = 0; k < 256; k++) {
    int64_t start = at;
    for (int64_t i = 0; i < pieces; i++) {
      int64_t here = p->counts[i][k];
      p->counts[i][k] = at;
      at += here;
    }
    if (at - start == n)
      return true;
  }
  return false;
}

static fl_status sort_long(long_line *p, int64_t n) {
  const fl_launch *l = p->c->l;
  fl_status s = fl_cpu_stoppable(l, n, p->piece, load_task, p);
  for (p->shift = SHIFT; s == FL_OK && p->shift < 2 * SHIFT; p->shift += 8) {
    s = fl_cpu_stoppable(l, n, p->piece, count_task, p);
    if (s != FL_OK || places(p, n))
      continue;
    s = fl_cpu_stoppable(l, n, p->piece, spread_task, p);
    W *t = p->a;
    p->a = p->b;
    p->b = t;
  }
  return s;
}

/* The least k of each piece: piece i leaves them at a + i * k. */
static void least_task(void *context, int64_t begin, int64_t end) {
  long_line *p = context;
  const sorting *c = p->c;
  int64_t k = end - begin < c->k ? end - begin : c->k, i = begin / p->piece;
  W *a = p->b + i * 2 * c->room;
  W *s = least(c, p->x, begin, end, k, a, a + c->room);
  memcpy(p->a + i * c->k, s, (size_t)k * sizeof *s);
}

static fl_status long_lines(sorting *c, int64_t lines) {
  long_line p = {.c = c, .piece = PIECE};
  bool all = c->room == c->n;
  if (!all && p.piece < 8 * c->k)
    p.piece = 8 * c->k;
  int64_t pieces = fl_ceil_div(c->n, p.piece);
  int64_t na = all ? c->n : pieces * c->k;
  int64_t nb = all                         ? c->n
               : 2 * c->room * pieces > na ? 2 * c->room * pieces
                                           : na;
  W *a = fl_scratch_get(c->l, (size_t)na * sizeof *a);
  W *b = fl_scratch_get(c->l, (size_t)nb * sizeof *b);
  p.counts = fl_scratch_get(c->l, (size_t)pieces * sizeof *p.counts);
  if (!a || !b || !p.counts)
    return FL_ENOMEM;
  fl_walk w;
  fl_walk_start(&w, c->ndim, c->lines, 0);
  fl_status s = FL_OK;
  for (int64_t i = 0; s == FL_OK && i < lines; i++, fl_walk_next(&w)) {
    p.a = a;
    p.b = b;
    p.x = c->x + fl_walk_offset(&w, c->x_strides) * (int64_t)c->size;
    p.y = fl_walk_offset(&w, c->y_strides);
    if (all)
      s = sort_long(&p, c->n);
    else {
      s = fl_cpu_stoppable(c->l, c->n, p.piece, least_task, &p);
      if (s != FL_OK)
        break;
      int64_t last = c->n - (pieces - 1) * p.piece;
      p.a = sort_words(a, b, (pieces - 1) * c->k + (last < c->k ? last : c->k));
    }
    if (s == FL_OK)
      s = fl_cpu_stoppable(c->l, c->k, PIECE, store_task, &p);
  }
  return s;
}

static fl_status lines(sorting *c) {
  int64_t lines = fl_numel(c->ndim, c->lines);
  int64_t extra = c->k < 4 * BLOCK ? 4 * BLOCK : c->k;
  bool all = c->n <= 4 * c->k || (c->n <= 2048 && c->k > FEW);
  c->room = all ? c->n : c->k <= FEW ? c->k : c->k + extra;
  if (c->n >= LONG)
    return long_lines(c, lines);
  c->share = fl_ceil_div(lines, SHARES);
  int64_t grain = PIECE / 4 / c->n + 1;
  if (c->room > STACK) {
    int64_t shares = fl_ceil_div(lines, c->share);
    c->scratch =
        fl_scratch_get(c->l, (size_t)(shares * 2 * c->room) * sizeof(W));
    if (!c->scratch)
      return FL_ENOMEM;
    grain = c->share;
  }
  fl_cpu_parallel(c->l, lines, grain, line_task, c);
  return fl_cpu_interrupted(c->l) ? fl_cpu_stopped(c->l) : FL_OK;
}

const sort_lines FL_TYPED(sort) = lines;
