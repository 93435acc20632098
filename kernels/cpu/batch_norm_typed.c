/* group_norm and batch_norm for one float type. */
#include "batch_norm.h"
#include "rows.h"

#define SPELL 128 /* rows summed in T before they go into doubles */

/* Sums of dy and of dy (x - mean). */
FL_FORCE void products(int64_t n, const T *dy, const T *x, T mean, double *s1,
                       double *s2) {
  double a = 0, b = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK) {
    int64_t end = n - i < FL_ROW_BLOCK ? n : i + FL_ROW_BLOCK;
    T s = 0, t = 0;
#pragma omp simd reduction(+ : s, t)
    for (int64_t k = i; k < end; k++) {
      s += dy[k];
      t += dy[k] * (x[k] - mean);
    }
    a += (double)s;
    b += (double)t;
  }
  *s1 = a;
  *s2 = b;
}

/* --- group_norm: groups of samples, from `begin` to `end` --- */

static void group_forward(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  const T *w = j->weight, *b = j->bias;
  int64_t channels = j->channels / j->groups, n = channels * j->size;
  for (int64_t g = begin; g < end; g++) {
    int64_t first = g % j->groups * channels;
    const T *x = (const T *)j->x + g * n;
    T *y = (T *)j->y + g * n;
    double exact, m2;
    row_moments(x, n, &exact, &m2);
    T mean = (T)exact, rstd = (T)(1 / sqrt(m2 / (double)n + j->eps));
    T left = (T)(exact - (double)mean); /* what rounding left out of the mean */
    ((T *)j->mean)[g] = mean;
    ((T *)j->rstd)[g] = rstd;
    if (n == 0) /* of many channels, perhaps */
      continue;
    if (j->size == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean - left) * rstd * (w ? w[first + i] : 1) +
               (b ? b[first + i] : 0);
      continue;
    }
    for (int64_t c = 0; c < channels; c++, x += j->size, y += j->size) {
      T by = w ? rstd * w[first + c] : rstd;
      T to = (b ? b[first + c] : 0) - left * by;
#pragma omp simd
      for (int64_t i = 0; i < j->size; i++)
        y[i] = (x[i] - mean) * by + to;
    }
  }
}

/* dx = rstd (g - mean(g) - h mean(g h)), g = dy weight; a plane's share of db
 * and dw into s1 and s2. */
static void group_backward(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  const T *w = j->weight;
  int64_t channels = j->channels / j->groups, n = channels * j->size;
  for (int64_t g = begin; g < end; g++) {
    int64_t first = g % j->groups * channels;
    const T *x = (const T *)j->x + g * n, *dy = (const T *)j->dy + g * n;
    T *dx = (T *)j->y + g * n;
    T mean = ((const T *)j->mean)[g], rstd = ((const T *)j->rstd)[g];
    double *s1 = j->s1 + g * channels, *s2 = j->s2 + g * channels;
    double c1 = 0, c2 = 0;
    T left = row_left(x, n, mean, rstd);
    if (j->size == 1) {
#pragma omp simd reduction(+ : c1, c2)
      for (int64_t c = 0; c < channels; c++) {
        T by = w ? w[first + c] : 1, h = (x[c] - mean - left) * rstd;
        s1[c] = (double)dy[c];
        s2[c] = (double)(dy[c] * h);
        c1 += (double)(dy[c] * by);
        c2 += (double)(dy[c] * by * h);
      }
    }
    for (int64_t c = 0; c < channels && j->size > 1; c++) {
      int64_t at = c * j->size;
      products(j->size, dy + at, x + at, mean, &s1[c], &s2[c]);
      s2[c] = (s2[c] - (double)left * s1[c]) * (double)rstd;
      c1 += s1[c] * (w ? (double)w[first + c] : 1);
      c2 += s2[c] * (w ? (double)w[first + c] : 1);
    }
    T b = (T)(c2 / (double)n) * rstd, a = (T)(c1 / (double)n) - left * b;
    if (j->size == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        dx[i] = rstd * (dy[i] * (w ? w[first + i] : 1) - a - (x[i] - mean) * b);
      continue;
    }
    for (int64_t c = 0; c < channels; c++) {
      int64_t at = c * j->size;
      T by = w ? w[first + c] : 1;
#pragma omp simd
      for (int64_t i = at; i < at + j->size; i++)
        dx[i] = rstd * (dy[i] * by - a - (x[i] - mean) * b);
    }
  }
}

/* --- batch_norm by planes --- */

static void plane_moments(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    const T *x = (const T *)j->x + p * j->size;
    row_moments(x, j->size, &j->s1[p], &j->s2[p]);
  }
}

static void plane_sums(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  for (int64_t p = begin; p < end; p++)
    products(j->size, (const T *)j->dy + p * j->size,
             (const T *)j->x + p * j->size, ((const T *)j->m)[p % j->channels],
             &j->s1[p], &j->s2[p]);
}

/* y = (x - m) a + b, or dx = dy a + ((x - m) b + c) */
static void plane_apply(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    int64_t channel = p % j->channels, n = j->size;
    const T *x = (const T *)j->x + p * n;
    const T *dy = j->dy ? (const T *)j->dy + p * n : NULL;
    T *y = (T *)j->y + p * n;
    T a = ((const T *)j->a)[channel], b = ((const T *)j->b)[channel];
    T c = ((const T *)j->c)[channel], m = ((const T *)j->m)[channel];
    if (dy) {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        y[i] = dy[i] * a + ((x[i] - m) * b + c);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - m) * a + b;
    }
  }
}

/* --- batch_norm by columns: task t is a tile of the columns of a piece of the
 * rows --- */

FL_FORCE int64_t column_task(const planes_job *j, int64_t t, int64_t *row,
                             int64_t *rows, int64_t *n) {
  int64_t first = t % j->tiles * FL_COLUMNS;
  *row = t / j->tiles * j->grain;
  *rows = j->samples - *row < j->grain ? j->samples - *row : j->grain;
  *n = j->width - first < FL_COLUMNS ? j->width - first : FL_COLUMNS;
  return first;
}

static void column_moments(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  double mean[FL_COLUMNS], m2[FL_COLUMNS];
  for (int64_t t = begin; t < end; t++) {
    int64_t row, rows, n, first = column_task(j, t, &row, &rows, &n);
    const T *x = (const T *)j->x + row * j->width + first;
    int64_t at = t / j->tiles * j->width + first;
    double *s1 = j->s1 + at, *s2 = j->s2 + at, count = 0;
    for (int64_t i = 0; i < n; i++)
      s1[i] = s2[i] = 0;
    for (int64_t r = 0; r < rows; r += SPELL) {
      int64_t k = rows - r < SPELL ? rows - r : SPELL;
      columns_moments(x + r * j->width, k, j->width, n, mean, m2);
      for (int64_t i = 0; i < n; i++) {
        double so_far = count;
        merge_moments(&s1[i], &s2[i], &so_far, mean[i], m2[i], (double)k);
      }
      count += (double)k;
    }
  }
}

static void column_sums(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  T a[FL_COLUMNS], b[FL_COLUMNS];
  for (int64_t t = begin; t < end; t++) {
    int64_t row, rows, n, first = column_task(j, t, &row, &rows, &n);
    const T *x = (const T *)j->x + row * j->width + first;
    const T *dy = (const T *)j->dy + row * j->width + first;
    const T *m = (const T *)j->m + first;
    int64_t at = t / j->tiles * j->width + first;
    double *s1 = j->s1 + at, *s2 = j->s2 + at;
    for (int64_t i = 0; i < n; i++)
      s1[i] = s2[i] = 0;
    for (int64_t r = 0; r < rows; r += SPELL) {
      int64_t to = rows - r < SPELL ? rows : r + SPELL;
      for (int64_t i = 0; i < n; i++)
        a[i] = b[i] = 0;
      for (int64_t k = r; k < to; k++) {
        const T *d = dy + k * j->width, *v = x + k * j->width;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
          a[i] += d[i];
          b[i] += d[i] * (v[i] - m[i]);
        }
      }
      for (int64_t i = 0; i < n; i++) {
        s1[i] += (double)a[i];
        s2[i] += (double)b[i];
      }
    }
  }
}

static void column_apply(void *context, int64_t begin, int64_t end) {
  const planes_job *j = context;
  const T *a = j->a, *b = j->b, *c = j->c, *m = j->m;
  int64_t n = j->width;
  for (int64_t r = begin; r < end; r++) {
    const T *x = (const T *)j->x + r * n;
    const T *dy = j->dy ? (const T *)j->dy + r * n : NULL;
    T *y = (T *)j->y + r * n;
    if (dy) {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        y[i] = dy[i] * a[i] + ((x[i] - m[i]) * b[i] + c[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - m[i]) * a[i] + b[i];
    }
  }
}

/* --- what is applied, from the figures of the channels --- */

FL_FORCE void put_factor(const planes_job *j, void *to, int64_t channel,
                         double v) {
  int64_t each = j->size < PLANE ? j->size : 1;
  for (int64_t i = 0; i < each; i++)
    ((T *)to)[channel * each + i] = (T)v;
}

static void forward_factors(const planes_job *j, const double *mean,
                            const double *rstd, const double *w,
                            const double *b) {
  for (int64_t c = 0; c < j->channels; c++) {
    double by = rstd[c] * (w ? w[c] : 1),
           rounding = (double)(T)mean[c] - mean[c];
    put_factor(j, j->m, c, mean[c]);
    put_factor(j, j->a, c, by);
    put_factor(j, j->b, c, (b ? b[c] : 0) + rounding * by);
    put_factor(j, j->c, c, 0);
  }
}

static void backward_means(const planes_job *j) {
  for (int64_t c = 0; c < j->channels; c++)
    put_factor(j, j->m, c, (double)((const T *)j->mean)[c]);
}

static void backward_factors(const planes_job *j, const double *rstd,
                             const double *w, const double *db,
                             const double *dw, const double *left,
                             bool training) {
  double n = (double)(j->samples * j->size);
  for (int64_t c = 0; c < j->channels; c++) {
    double by = rstd[c] * (w ? w[c] : 1);
    double b = training ? -by * dw[c] * rstd[c] / n : 0;
    put_factor(j, j->a, c, by);
    put_factor(j, j->b, c, b);
    put_factor(j, j->c, c, training ? -by * db[c] / n - left[c] * b : 0);
  }
}

/* Whether any channel is so far from 0 that its mean's rounding counts. */
static bool any_far(const planes_job *j) {
  for (int64_t c = 0; c < j->channels; c++)
    if (row_is_far(((const T *)j->mean)[c], ((const T *)j->rstd)[c]))
      return true;
  return false;
}

const batch_norm_kernels FL_TYPED(batch_norm) = {
    .group_forward = group_forward,
    .group_backward = group_backward,
    .plane_moments = plane_moments,
    .plane_sums = plane_sums,
    .plane_apply = plane_apply,
    .column_moments = column_moments,
    .column_sums = column_sums,
    .column_apply = column_apply,
    .forward_factors = forward_factors,
    .backward_means = backward_means,
    .backward_factors = backward_factors,
    .any_far = any_far};
