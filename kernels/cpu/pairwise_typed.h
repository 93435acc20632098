/* Distances between rows, for one T: the sums of squares of differences in
 * tiles of a few rows of A by two vectors of rows of B, over the panels that
 * gemm_tile.h makes of B. Included by gemm_typed.c. */

#define PAIR_ROWS 4

/* A root outside is that of squares that were lost or too large. */
#if FL_T_IS_F32
#define ROOT       __builtin_sqrtf
#define ROOT_LEAST 0x1p-50f
#define ROOT_MOST  0x1.fffffep127f
#else
#define ROOT       __builtin_sqrt
#define ROOT_LEAST 0x1p-480
#define ROOT_MOST  0x1.fffffffffffffp1023
#endif

/* Of some rows of A, and of B a panel of nv vectors, k steps. */
FORCE void pair_tile(int nv, int64_t k, const T *const *a, const T *b,
                     vec sum[PAIR_ROWS][2]) {
  UNROLL
  for (int i = 0; i < PAIR_ROWS; i++)
    sum[i][0] = sum[i][1] = (vec){0};
  for (int64_t p = 0; p < k; p++, b += nv * VL) {
    UNROLL
    for (int i = 0; i < PAIR_ROWS; i++) {
      vec x = splat(a[i][p]);
      IN_REGISTER(x);
      UNROLL
      for (int j = 0; j < nv; j++) {
        vec d = x - load(b + j * VL);
        sum[i][j] += d * d;
      }
    }
  }
}

/* All m rows of A beside a panel. */
FORCE void pair_panel(int nv, int64_t m, int64_t cols, int64_t k, const T *a,
                      int64_t lda, const T *b, bool add, T *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i += PAIR_ROWS) {
    const T *row[PAIR_ROWS];
    vec sum[PAIR_ROWS][2];
    for (int r = 0; r < PAIR_ROWS; r++)
      row[r] = a + min(i + r, m - 1) * lda;
    pair_tile(nv, k, row, b, sum);
    for (int r = 0; r < PAIR_ROWS && i + r < m; r++)
      for (int j = 0; j < nv; j++) {
        T *q = c + (i + r) * ldc + j * VL;
        part some = first(min(cols - j * VL, VL));
        vec s = sum[r][j];
        if (add)
          s += load_part(q, some);
        store_part(q, s, some);
      }
  }
}

/* By the largest difference. */
static T far_pair(int64_t k, const T *a, const T *b) {
  T most = 0, sum = 0;
  for (int64_t p = 0; p < k; p++) {
    T d = a[p] > b[p] ? a[p] - b[p] : b[p] - a[p];
    most = d > most ? d : most;
  }
  if (most == 0 || most > ROOT_MOST)
    return most;
  for (int64_t p = 0; p < k; p++) {
    T d = (a[p] - b[p]) / most;
    sum += d * d;
  }
  return most * ROOT(sum);
}

static void pair_roots(int64_t n, int64_t k, const T *a, const T *b, T *c) {
  int strange = 0;
#pragma omp simd reduction(| : strange)
  for (int64_t j = 0; j < n; j++) {
    c[j] = ROOT(c[j]);
    strange |= c[j] < ROOT_LEAST || c[j] > ROOT_MOST;
  }
  for (int64_t j = 0; strange && j < n; j++)
    if (c[j] < ROOT_LEAST || c[j] > ROOT_MOST)
      c[j] = far_pair(k, a, b + j * k);
}

/* C (m x n): how far each row of A (m x k) is from each of B (n x k); rows of C
 * are ldc apart. */
void FL_TYPED(pairwise)(int64_t m, int64_t n, int64_t k, const void *a,
                        const void *b, void *c, int64_t ldc) {
  T panel[KC * NR] __attribute__((aligned(FL_ALIGN)));
  for (int64_t j = 0; j < n; j += NR) {
    const T *rows = (const T *)b + j * k;
    T *to = (T *)c + j;
    int64_t cols = min(n - j, NR);
    for (int64_t p = 0; p < k || p == 0; p += KC) {
      int64_t now = min(k - p, KC);
      pack_bt(now, cols, rows + p, k, panel);
      if (cols > VL)
        pair_panel(2, m, cols, now, (const T *)a + p, k, panel, p > 0, to, ldc);
      else
        pair_panel(1, m, cols, now, (const T *)a + p, k, panel, p > 0, to, ldc);
    }
    for (int64_t i = 0; i < m; i++)
      pair_roots(cols, k, (const T *)a + i * k, rows, to + i * ldc);
  }
}
