/* Products of a few rows of floats with weights of 4, 8 and 16 bits. ROWS rows
 * of the weight pass over the rows of x at a time, so that there are enough
 * independent sums; each sum is in 16 lanes and added up at the end. Every
 * result is summed in the same order, however rows are grouped. */
#include "narrow.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors stay in this file */

#define LANES  16
#define BLOCK  128   /* numbers of 4 bits in 16 lanes of 32 bits */
#define GROUPS 2048  /* of a row, at most: their scales lie on the stack */
#define PIECE  65536 /* multiply-adds of a piece, at least */
#define UNROLL _Pragma("GCC unroll 16")
#if defined(__AVX512F__)
#define ROWS 4
#elif defined(__AVX2__)
#define ROWS 2
#else
#define ROWS 1
#endif

typedef float lanes __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef int32_t wholes __attribute__((vector_size(64)));
typedef float lanes_anywhere
    __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words_anywhere
    __attribute__((vector_size(64), aligned(1), may_alias));

FL_FORCE lanes load_lanes(const float *p) {
  return *(const lanes_anywhere *)p;
}

FL_FORCE lanes splat_lanes(float x) {
  return (lanes){0} + x;
}

FL_FORCE float sum_lanes(lanes v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float s[LANES];
  memcpy(s, &v, sizeof s);
  for (int n = LANES / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++)
      s[i] += s[i + n];
  return s[0];
#endif
}

/* A weight, x in the order of the weight's lanes, and what x adds up to in each
 * lane of a group (or of a block of numbers of 4 bits). */
typedef struct narrow_work {
  const fl_cpu_narrow *w;
  int64_t m, width, parts; /* width: k in whole vectors or blocks */
  const float *x, *sums;   /* (m, width), (m, parts, LANES) */
  float *y;
} narrow_work;

/* The scales and zeros of ROWS rows, and room to load a vector of them. */
typedef struct narrow_params {
  float scale[ROWS][GROUPS + LANES], zero[ROWS][GROUPS + LANES];
} narrow_params;

/* --- numbers of 4 bits ---
 * Lane l of a block of 64 bytes has the numbers 8 l to 8 l + 7 of 128, from the
 * lowest bits on; x is put in the same order. */

#if defined(__AVX512F__)
/* permutexvar looks at the lowest 4 bits of a lane only: a table of 16 floats.
 */
#define CENTER 8
FL_FORCE lanes numbers_of_4(words w, int i) {
  const __m512 table =
      _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  return (lanes)_mm512_permutexvar_ps((__m512i)(w >> (4 * i)), table);
}
#else
#define CENTER 0
FL_FORCE lanes numbers_of_4(words w, int i) {
  return __builtin_convertvector((wholes)((w >> (4 * i)) & 15), lanes);
}
#endif

/* The parameters of a block's lanes, where a group has 32, 64 or more numbers.
 */
FL_FORCE lanes spread(const float *p, int64_t size) {
#if defined(__AVX512F__)
  const __m512i by32 =
      _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  if (size == 32)
    return (lanes)_mm512_permutexvar_ps(by32, _mm512_loadu_ps(p));
  if (size == 64)
    return (lanes)_mm512_permutexvar_ps(_mm512_srli_epi32(by32, 1),
                                        _mm512_loadu_ps(p));
#else
  if (size == 32)
    return (lanes){p[0], p[0], p[0], p[0], p[1], p[1], p[1], p[1],
                   p[2], p[2], p[2], p[2], p[3], p[3], p[3], p[3]};
  if (size == 64)
    return (lanes){p[0], p[0], p[0], p[0], p[0], p[0], p[0], p[0],
                   p[1], p[1], p[1], p[1], p[1], p[1], p[1], p[1]};
#endif
  return splat_lanes(p[0]);
}

FL_FORCE words load_block(const uint8_t *p, int64_t bytes) {
  if (bytes >= 64)
    return *(const words_anywhere *)p;
  words v = {0};
  memcpy(&v, p, (size_t)bytes);
  return v;
}

FL_FORCE void dots_4(const narrow_work *g, const narrow_params *p, int rows,
                     int m, const uint8_t *weight, int64_t row, int64_t first,
                     int64_t size) {
  int64_t bytes = g->w->k / 2;
  lanes total[ROWS][4];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++)
      total[r][j] = (lanes){0};
  for (int64_t b = 0; b < g->parts; b++) {
    const float *x = g->x + first * g->width + b * BLOCK;
    words w[ROWS];
    lanes sum[ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) {
      w[r] = load_block(weight + r * bytes + b * 64, bytes - b * 64);
      UNROLL for (int j = 0; j < m; j++) sum[r][j] = (lanes){0};
    }
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int r = 0; r < rows; r++) {
      lanes q = numbers_of_4(w[r], i);
      UNROLL for (int j = 0; j < m; j++) sum[r][j] +=
          q * load_lanes(x + j * g->width + i * LANES);
    }
    int64_t at = b * BLOCK / size;
    UNROLL for (int r = 0; r < rows; r++) {
      lanes scale = spread(p->scale[r] + at, size);
      lanes zero = CENTER - spread(p->zero[r] + at, size);
      UNROLL for (int j = 0; j < m; j++) {
        const float *all = g->sums + ((first + j) * g->parts + b) * LANES;
        total[r][j] += scale * (sum[r][j] + zero * load_lanes(all));
      }
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++)
      g->y[(first + j) * g->w->n + row + r] = sum_lanes(total[r][j]);
}

/* --- numbers of 8 and 16 bits --- */

typedef int8_t bytes_16 __attribute__((vector_size(16)));
typedef uint16_t halves_16 __attribute__((vector_size(32)));

FL_FORCE lanes lanes_of_i8(const char *p) {
#if defined(__AVX512F__)
  return (lanes)_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
  __m128i v = _mm_loadu_si128((const __m128i *)p);
  __m256 half[2] = {
      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
  lanes y;
  memcpy(&y, half, sizeof y);
  return y;
#else
  bytes_16 v;
  memcpy(&v, p, sizeof v);
  return __builtin_convertvector(__builtin_convertvector(v, wholes), lanes);
#endif
}

FL_FORCE lanes lanes_of_bf16(const char *p) {
#if defined(__AVX512F__)
  return (lanes)_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif defined(__AVX2__)
  const __m128i *v = (const __m128i *)p;
  __m256i half[2] = {
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(v)), 16),
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1)), 16)};
  lanes y;
  memcpy(&y, half, sizeof y);
  return y;
#else
  halves_16 v;
  memcpy(&v, p, sizeof v);
  return (lanes)(__builtin_convertvector(v, words) << 16);
#endif
}

#if defined(__AVX512F__)
#define HAS_F16 1
FL_FORCE lanes lanes_of_f16(const char *p) {
  return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
#elif defined(__F16C__)
#define HAS_F16 1
FL_FORCE lanes lanes_of_f16(const char *p) {
  const __m128i *v = (const __m128i *)p;
  __m256 half[2] = {_mm256_cvtph_ps(_mm_loadu_si128(v)),
                    _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
  lanes y;
  memcpy(&y, half, sizeof y);
  return y;
}
#else
#define HAS_F16      0
#define lanes_of_f16 lanes_of_bf16 /* never called */
#endif

/* 16 numbers, or the n that there are. */
FL_FORCE lanes load_numbers(fl_dtype d, const char *p, int64_t n) {
  char rest[2 * LANES] = {0};
  if (n < LANES) {
    memcpy(rest, p, (size_t)n * (d == FL_I8 ? 1 : 2));
    p = rest;
  }
  return d == FL_I8     ? lanes_of_i8(p)
         : d == FL_BF16 ? lanes_of_bf16(p)
                        : lanes_of_f16(p);
}

FL_FORCE void dots_wide(const narrow_work *g, const narrow_params *p,
                        fl_dtype d, int rows, int m, const char *weight,
                        int64_t row, int64_t first) {
  const fl_cpu_narrow *w = g->w;
  int64_t bytes = (int64_t)fl_cpu_narrow_bytes(w), k = w->k,
          group = g->width / g->parts, each = d == FL_I8 ? 1 : 2;
  lanes total[ROWS][4];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++)
      total[r][j] = (lanes){0};
  for (int64_t b = 0; b < g->parts; b++) {
    lanes sum[ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++)
        sum[r][j] = (lanes){0};
    for (int64_t i = b * group; i < (b + 1) * group; i += LANES) {
      const float *x = g->x + first * g->width + i;
      UNROLL for (int r = 0; r < rows; r++) {
        lanes q = load_numbers(d, weight + r * bytes + i * each, k - i);
        UNROLL for (int j = 0; j < m; j++) sum[r][j] +=
            q * load_lanes(x + j * g->width);
      }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++) {
      if (d == FL_I8) {
        const float *all = g->sums + ((first + j) * g->parts + b) * LANES;
        total[r][j] +=
            p->scale[r][b] * (sum[r][j] - p->zero[r][b] * load_lanes(all));
      } else {
        total[r][j] = sum[r][j];
      }
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < m; j++)
      g->y[(first + j) * w->n + row + r] = sum_lanes(total[r][j]);
}

/* --- pieces --- */

static void read_params(const fl_cpu_narrow *w, int64_t row, int rows,
                        narrow_params *p) {
  int64_t n = w->groups;
  for (int r = 0; r < rows; r++) {
    int64_t at = (row + r) * n;
    FL_CPU(convert)
    (n, FL_F32, p->scale[r], w->scale_dtype,
     (const char *)w->scales + (size_t)at * fl_dtype_size(w->scale_dtype));
    if (w->zeros)
      FL_CPU(convert)
    (n, FL_F32, p->zero[r], w->zero_dtype,
     (const char *)w->zeros + (size_t)at * fl_dtype_size(w->zero_dtype));
    else for (int64_t i = 0; i < n; i++) p->zero[r][i] =
        w->dtype == FL_U8 ? 8 : 0;
    for (int64_t i = n; i < n + LANES; i++)
      p->scale[r][i] = p->zero[r][i] = 0;
  }
}

/* `rows` and `m` are constants here: a copy of the loops for each. */
FL_FORCE void dots(const narrow_work *g, const narrow_params *p, int rows,
                   int m, int64_t row, int64_t first) {
  const fl_cpu_narrow *w = g->w;
  const char *weight =
      (const char *)w->weight + (size_t)row * fl_cpu_narrow_bytes(w);
  int64_t size = w->groups ? w->k / w->groups : 0;
  if (w->dtype == FL_U8) {
    const uint8_t *q = (const uint8_t *)weight;
    if (size == 32)
      dots_4(g, p, rows, m, q, row, first, 32);
    else if (size == 64)
      dots_4(g, p, rows, m, q, row, first, 64);
    else
      dots_4(g, p, rows, m, q, row, first, size);
  } else if (w->dtype == FL_I8) {
    dots_wide(g, p, FL_I8, rows, m, weight, row, first);
  } else if (w->dtype == FL_BF16) {
    dots_wide(g, p, FL_BF16, rows, m, weight, row, first);
  } else {
    dots_wide(g, p, FL_F16, rows, m, weight, row, first);
  }
}

/* One function of all copies takes twice as long to compile. */
typedef void dots_of(const narrow_work *g, const narrow_params *p, int64_t row,
                     int64_t first);
#define DOTS(name, rows, m)                                                    \
  __attribute__((noinline)) static void name(const narrow_work *g,             \
                                             const narrow_params *p,           \
                                             int64_t row, int64_t first) {     \
    dots(g, p, rows, m, row, first);                                           \
  }
DOTS(rows_by_4, ROWS, 4)
DOTS(rows_by_1, ROWS, 1)
DOTS(row_by_4, 1, 4)
DOTS(row_by_1, 1, 1)

static void narrow_task(void *context, int64_t begin, int64_t end) {
  const narrow_work *g = context;
  narrow_params p;
  int rows;
  for (int64_t row = begin; row < end; row += rows) {
    rows = end - row >= ROWS ? ROWS : 1;
    if (g->w->dtype == FL_U8 || g->w->dtype == FL_I8)
      read_params(g->w, row, rows, &p);
    dots_of *by_4 = rows == ROWS ? rows_by_4 : row_by_4;
    dots_of *by_1 = rows == ROWS ? rows_by_1 : row_by_1;
    int64_t j = 0;
    for (; j + 4 <= g->m; j += 4)
      by_4(g, &p, row, j);
    for (; j < g->m; j++)
      by_1(g, &p, row, j);
  }
}

/* --- x in order --- */

static void order_x(narrow_work *g, const float *x, float *to, float *sums) {
  const fl_cpu_narrow *w = g->w;
  bool four = w->dtype == FL_U8;
  int64_t part = g->width / g->parts;
  for (int64_t r = 0; r < g->m; r++, x += w->k, to += g->width)
    for (int64_t b = 0; b < g->parts; b++, sums += LANES) {
      for (int l = 0; l < LANES; l++)
        sums[l] = 0;
      for (int64_t i = b * part; i < (b + 1) * part; i += LANES)
        for (int l = 0; l < LANES; l++) {
          int64_t from =
              four ? b * part + 8 * l + (i - b * part) / LANES : i + l;
          float v = from < w->k ? x[from] : 0;
          to[i + l] = v;
          sums[l] += v;
        }
    }
}

bool FL_CPU(narrow_takes)(const fl_cpu_narrow *w, int64_t m) {
  int64_t size = w->groups ? w->k / w->groups : w->k;
  if (m > FL_NARROW_ROWS || w->k < 64 || w->groups > GROUPS)
    return false;
  switch (w->dtype) {
  case FL_U8:
    return size == 32 || size == 64 || size % BLOCK == 0;
  case FL_I8:
    return w->groups == 1 || size % LANES == 0;
  case FL_BF16:
    return true;
  case FL_F16:
    return HAS_F16;
  default:
    return false;
  }
}

fl_status FL_CPU(narrow)(const fl_launch *l, const fl_cpu_narrow *w, int64_t m,
                         const float *x, float *y) {
  narrow_work g = {.w = w, .m = m, .y = y};
  int64_t unit = w->dtype == FL_U8 ? BLOCK : LANES;
  g.width = fl_ceil_div(w->k, unit) * unit;
  g.parts = w->dtype == FL_U8   ? g.width / BLOCK
            : w->dtype == FL_I8 ? w->groups
                                : 1;
  size_t width = (size_t)(m * g.width), sums = (size_t)(m * g.parts * LANES);
  float *room = fl_scratch_get(l, (width + sums) * sizeof *room);
  if (!room)
    return FL_ENOMEM;
  g.x = room;
  g.sums = room + width;
  order_x(&g, x, room, room + width);
  int64_t grain = fl_ceil_div(PIECE, w->k * m * ROWS) * ROWS;
  fl_cpu_parallel(l, w->n, grain, narrow_task, &g);
  return FL_OK;
}
