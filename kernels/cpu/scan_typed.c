/* Running sums for one type. */
#include "scan.h"
#include "typed.h"

#if FL_T_IS_FLOAT
#define WIDE double /* what sums are kept in */
#define SLOT f      /* its member of a slot */
#else
#define WIDE int64_t
#define SLOT i
#endif

/* Four at a time, so that only one addition in four waits for the last. */
static WIDE scan_row(const T *x, int64_t n, WIDE c, T *y) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    WIDE p = (WIDE)x[i], q = p + (WIDE)x[i + 1];
    WIDE r = (WIDE)x[i + 2], s = q + (r + (WIDE)x[i + 3]);
    y[i] = (T)(c + p);
    y[i + 1] = (T)(c + q);
    y[i + 2] = (T)(c + (q + r));
    c += s;
    y[i + 3] = (T)c;
  }
  for (; i < n; i++) {
    c += (WIDE)x[i];
    y[i] = (T)c;
  }
  return c;
}

static WIDE scan_sum(const T *x, int64_t n) {
  WIDE s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++)
    s += (WIDE)x[i];
  return s;
}

static void scan_sums(void *context, int64_t begin, int64_t end) {
  const scan *e = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / e->pieces, from = i % e->pieces * e->piece;
    int64_t n = e->n - from < e->piece ? e->n - from : e->piece;
    e->sums[i].SLOT = scan_sum((const T *)e->x + row * e->n + from, n);
  }
}

static void scan_rows(void *context, int64_t begin, int64_t end) {
  const scan *e = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / e->pieces, from = i % e->pieces * e->piece;
    int64_t n = e->n - from < e->piece ? e->n - from : e->piece;
    scan_row((const T *)e->x + row * e->n + from, n,
             e->pieces > 1 ? e->sums[i].SLOT : 0,
             (T *)e->y + row * e->n + from);
  }
}

static void scan_cols(void *context, int64_t begin, int64_t end) {
  const scan *e = context;
  WIDE c[MAX_TILE];
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / e->tiles, first = i % e->tiles * MAX_TILE;
    int64_t n = e->inner - first < MAX_TILE ? e->inner - first : MAX_TILE;
    const T *x = (const T *)e->x + o * e->n * e->inner + first;
    T *y = (T *)e->y + o * e->n * e->inner + first;
    for (int64_t j = 0; j < n; j++)
      c[j] = 0;
    for (int64_t r = 0; r < e->n; r++, x += e->inner, y += e->inner) {
#pragma omp simd
      for (int64_t j = 0; j < n; j++) {
        c[j] += (WIDE)x[j];
        y[j] = (T)c[j];
      }
    }
  }
}

const scan_kernels FL_TYPED(scan) = {
    .cols = scan_cols, .sums = scan_sums, .rows = scan_rows};
