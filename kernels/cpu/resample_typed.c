/* The weighted sums of resample.c for one float type. */
#include "gather.h"
#include "resample.h"

#define BLOCK 512 /* elements of a row summed at once */

/* Results j .. to of a line. */
static void line(const work *w, const T *restrict x, T *restrict y, int64_t j,
                 int64_t to) {
  const table *t = &w->t;
  if (t->band == 0) {
    for (; j < to; j++) {
      T sum = t->first[j] < t->first[j + 1] ? 0 : (T)w->none;
      for (int64_t i = t->first[j]; i < t->first[j + 1]; i++)
        sum += (T)t->weight[i] * x[t->at[i]];
      y[j] = sum;
    }
    return;
  }
  gather(to - j, t->band, t->results, (const T *)t->band_weight + j,
         t->band_at + j, x, false, y + j);
}

/* A result that is a row: sums of rows. */
static void row(const work *w, const T *x, T *restrict y, int64_t j) {
  const table *t = &w->t;
  int64_t from = t->first[j], terms = t->first[j + 1] - from, n = w->inner;
  for (int64_t b = 0; b < n; b += BLOCK) {
    int64_t end = n - b < BLOCK ? n : b + BLOCK, k = from;
    if (terms < 2) {
      T one = terms ? (T)t->weight[k] : 0, none = (T)w->none;
      const T *restrict p = terms ? x + t->at[k] * n : NULL;
      for (int64_t i = b; i < end; i++)
        y[i] = terms ? one * p[i] : none;
      continue;
    }
    T c = (T)t->weight[k], d = (T)t->weight[k + 1];
    const T *restrict p = x + t->at[k] * n, *restrict q = x + t->at[k + 1] * n;
#pragma omp simd
    for (int64_t i = b; i < end; i++)
      y[i] = c * p[i] + d * q[i];
    for (k += 2; k + 2 <= from + terms; k += 2) {
      c = (T)t->weight[k];
      d = (T)t->weight[k + 1];
      p = x + t->at[k] * n;
      q = x + t->at[k + 1] * n;
#pragma omp simd
      for (int64_t i = b; i < end; i++)
        y[i] += c * p[i] + d * q[i];
    }
    if (k < from + terms) {
      c = (T)t->weight[k];
      p = x + t->at[k] * n;
#pragma omp simd
      for (int64_t i = b; i < end; i++)
        y[i] += c * p[i];
    }
  }
}

static void sums(void *context, int64_t begin, int64_t end) {
  const work *w = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u / w->cuts, j = u % w->cuts * w->cut, to = j + w->cut;
    const T *x = (const T *)w->x + o * w->t.n * w->inner;
    T *y = (T *)w->y + o * w->t.results * w->inner;
    to = to < w->t.results ? to : w->t.results;
    if (w->inner == 1)
      line(w, x, y, j, to);
    else
      for (; j < to; j++)
        row(w, x, y + j * w->inner, j);
  }
}

const resample_kernels FL_TYPED(resample) = {.sums = sums};
