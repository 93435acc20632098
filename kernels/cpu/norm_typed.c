/* Normalisation over the last dims for one float type. */
#include "norm.h"
#include "rows.h"

#define TOGETHER 16  /* rows whose figures are computed in lanes */
#define SPELL    128 /* rows summed in T before they go into doubles */

/* `shift`: what rounding left out of the mean, times rstd. */
FL_FORCE void norm_row(const norm_job *j, const T *x, T *y, T mean, T rstd,
                       T shift) {
  const T *w = j->weight, *b = j->bias;
  int64_t n = j->n;
  if (w && b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = ((x[i] - mean) * rstd - shift) * w[i] + b[i];
  } else if (w) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = ((x[i] - mean) * rstd - shift) * w[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - mean) * rstd - shift;
    for (int64_t i = 0; b && i < n; i++)
      y[i] += b[i];
  }
}

/* Several rows' figures together: roots and divisions in lanes. */
static void norm_rows(void *context, int64_t begin, int64_t end) {
  const norm_job *j = context;
  int64_t n = j->n, most = n <= 1024 ? TOGETHER : 1;
  const T *x = j->x;
  T *y = j->y;
  for (int64_t r = begin; r < end; r += most) {
    int64_t rows = end - r < most ? end - r : most;
    T mean[TOGETHER];
    double rstd[TOGETHER], left[TOGETHER]; /* left out of the mean */
    for (int64_t k = 0; k < rows; k++) {
      const T *row = x + (r + k) * n;
      double exact = 0;
      if (j->centre)
        row_moments(row, n, &exact, &rstd[k]);
      else
        rstd[k] = row_squares(row, n, 0);
      mean[k] = (T)exact;
      left[k] = exact - (double)mean[k];
    }
#pragma omp simd
    for (int64_t k = 0; k < rows; k++)
      rstd[k] = 1 / sqrt(rstd[k] / (double)n + j->eps);
    for (int64_t k = 0; k < rows; k++) {
      if (j->centre)
        ((T *)j->mean)[r + k] = mean[k];
      ((T *)j->rstd)[r + k] = (T)rstd[k];
      norm_row(j, x + (r + k) * n, y + (r + k) * n, mean[k], (T)rstd[k],
               (T)(left[k] * rstd[k]));
    }
  }
}

/* Towards x and, added to dw and db, towards weight and bias, of rows x and
 * x + n (`two`) or of x alone: dx = rstd (g - mean(g) - h mean(g h)), g = dy w,
 * h = (x - mean) rstd - s, where s corrects the rounding of the mean; without a
 * mean (rms) the middle term goes. */
FL_FORCE void norm_back(const norm_job *j, int64_t r, bool two, bool centre,
                        T *dw, T *db) {
  int64_t n = j->n, next = two ? n : 0;
  const T *w = j->weight, *mean = j->mean, *rstd = (const T *)j->rstd + r;
  const T *x = (const T *)j->x + r * n, *dy = (const T *)j->dy + r * n;
  T *dx = (T *)j->y + r * n;
  T m0 = centre ? mean[r] : 0, m1 = centre && two ? mean[r + 1] : 0;
  T r0 = rstd[0], r1 = two ? rstd[1] : 0;
  T s0 = centre ? row_left(x, n, m0, r0) * r0 : 0;
  T s1 = centre && two ? row_left(x + n, n, m1, r1) * r1 : 0;
  T a0 = 0, b0 = 0, a1 = 0, b1 = 0;
#pragma omp simd reduction(+ : a0, b0, a1, b1)
  for (int64_t i = 0; i < n; i++) {
    T h0 = (x[i] - m0) * r0 - s0, g0 = dy[i] * w[i];
    T h1 = (x[i + next] - m1) * r1 - s1, d1 = two ? dy[i + next] : 0;
    T g1 = d1 * w[i];
    if (centre) {
      a0 += g0;
      a1 += g1;
      db[i] += dy[i] + d1;
    }
    b0 += g0 * h0;
    b1 += g1 * h1;
    dw[i] += dy[i] * h0 + d1 * h1;
  }
  a0 /= (T)n;
  b0 /= (T)n;
  a1 /= (T)n;
  b1 /= (T)n;
  a0 -= s0 * b0;
  a1 -= s1 * b1;
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    dx[i] = r0 * (dy[i] * w[i] - a0 - (x[i] - m0) * r0 * b0);
  if (!two)
    return;
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    dx[i + n] = r1 * (dy[i + n] * w[i] - a1 - (x[i + n] - m1) * r1 * b1);
}

/* The same for a row without weight. */
FL_FORCE void norm_back_plain(const norm_job *j, int64_t r) {
  int64_t n = j->n;
  const T *x = (const T *)j->x + r * n, *dy = (const T *)j->dy + r * n;
  T *dx = (T *)j->y + r * n;
  T mean = j->centre ? ((const T *)j->mean)[r] : 0, c1 = 0, c2 = 0;
  T rstd = ((const T *)j->rstd)[r];
  T s = j->centre ? row_left(x, n, mean, rstd) * rstd : 0;
#pragma omp simd reduction(+ : c1, c2)
  for (int64_t i = 0; i < n; i++) {
    c1 += dy[i];
    c2 += dy[i] * ((x[i] - mean) * rstd - s);
  }
  c2 /= (T)n;
  c1 = j->centre ? c1 / (T)n - s * c2 : 0;
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    dx[i] = rstd * (dy[i] - c1 - (x[i] - mean) * rstd * c2);
}

FL_FORCE void norm_spell(const norm_job *j, int64_t r, int64_t end, bool centre,
                         T *dw, T *db) {
  for (; r + 2 <= end; r += 2)
    norm_back(j, r, true, centre, dw, db);
  if (r < end)
    norm_back(j, r, false, centre, dw, db);
}

static void norm_rows_backward(void *context, int64_t begin, int64_t end) {
  const norm_job *j = context;
  int64_t n = j->n, piece = begin / j->grain;
  if (!j->weight) {
    for (int64_t r = begin; r < end; r++)
      norm_back_plain(j, r);
    return;
  }
  double *part = j->parts + piece * 2 * n;
  T *dw = (T *)j->spells + piece * 2 * n, *db = dw + n;
  for (int64_t i = 0; i < 2 * n; i++)
    part[i] = 0;
  for (int64_t r = begin; r < end; r += SPELL) {
    int64_t to = end - r < SPELL ? end : r + SPELL;
    for (int64_t i = 0; i < 2 * n; i++)
      dw[i] = 0;
    if (j->centre)
      norm_spell(j, r, to, true, dw, db);
    else
      norm_spell(j, r, to, false, dw, db);
    for (int64_t i = 0; i < 2 * n; i++)
      part[i] += (double)dw[i];
  }
}

/* Elements `begin` to `end` of dw and db: the pieces' sums, in their order. */
static void norm_rows_weights(void *context, int64_t begin, int64_t end) {
  const norm_job *j = context;
  for (int k = 0; k < (j->db ? 2 : 1); k++) {
    T *to = k ? j->db : j->dw;
    for (int64_t i = begin; i < end; i++) {
      const double *part = j->parts + k * j->n + i;
      double s = 0;
      for (int64_t p = 0; p < j->pieces; p++)
        s += part[p * 2 * j->n];
      to[i] = (T)s;
    }
  }
}

const norm_kernels FL_TYPED(norm) = {.forward = norm_rows,
                                     .backward = norm_rows_backward,
                                     .weights = norm_rows_weights};
