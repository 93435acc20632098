/* Cross-entropy for one float type. A tile is n samples: rows `step` = classes
 * apart, classes 1 apart, or columns 1 apart, classes `inner` apart. */
#include "loss.h"
#include "rows.h"

typedef struct tile {
  int64_t n, first;   /* samples, and the number of the first */
  int64_t step, deep; /* from sample to sample, from class to class */
  int64_t at;         /* of the first sample's first class */
} tile;

FL_FORCE tile tile_of(const loss_job *j, int64_t task) {
  int64_t all = j->inner == 1 ? j->outer : j->inner;
  int64_t first = task % j->tiles * j->width, row = task / j->tiles;
  tile t = {.n = all - first < j->width ? all - first : j->width};
  t.first = row * j->inner + first;
  t.step = j->inner == 1 ? j->classes : 1;
  t.deep = j->inner;
  t.at = row * j->classes * j->inner + first * t.step;
  return t;
}

/* The class of a sample from 0, -1: it is ignored. */
FL_FORCE int64_t class_of(const loss_job *j, int64_t sample) {
  int64_t t = j->target[sample];
  return t == j->ignore ? -1 : t - j->base;
}

/* What a sample's loss weighs its class c with, of its probability p. */
FL_FORCE T share(const loss_job *j, T p, int64_t c) {
  T w = j->weight ? ((const T *)j->weight)[c] : (T)1;
  return w * ((T)(1 - j->smoothing) * p + (T)j->even);
}

/* Largest score and sum of exponentials relative to it, of every sample. */
static void tops(const loss_job *j, const tile *t, T *top, T *sum) {
  const T *x = (const T *)j->x + t->at;
  if (t->deep == 1) {
    for (int64_t i = 0; i < t->n; i++, x += t->step) {
      top[i] = row_max(x, j->classes);
      sum[i] = (T)row_exp_sum(x, j->classes, top[i]);
    }
    return;
  }
  for (int64_t i = 0; i < t->n; i++) {
    top[i] = x[i];
    sum[i] = 0;
  }
  for (int64_t c = 1; c < j->classes; c++) {
    const T *row = x + c * t->deep;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++) {
      T old = top[i], v = row[i];
      bool take = (v > old) | (v != v);
      top[i] = take ? v : old;
    }
  }
  for (int64_t c = 0; c < j->classes; c++) {
    const T *row = x + c * t->deep;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++)
      sum[i] += row_exp1(row[i] - top[i]);
  }
}

/* Losses of samples whose target is a class: (lse - x[class]), and with
 * smoothing the mean over all classes. The difference is taken from the largest
 * score, then the logarithm is added: lse has only the largest score's digits.
 */
static void class_losses(const loss_job *j, const tile *t, const T *top,
                         const T *logs) {
  const T *w = j->weight;
  for (int64_t i = 0; i < t->n; i++) {
    const T *x = (const T *)j->x + t->at + i * t->step;
    int64_t c = class_of(j, t->first + i);
    double loss = 0, total = 0;
    if (c >= 0) {
      total = w ? (double)w[c] : 1;
      loss = (1 - j->smoothing) * total *
             (double)((top[i] - x[c * t->deep]) + logs[i]);
      double all = 0;
      int64_t n = j->even != 0 ? j->classes : 0, deep = t->deep;
#pragma omp simd reduction(+ : all)
      for (int64_t k = 0; k < n; k++)
        all += (double)(((top[i] - x[k * deep]) + logs[i]) * (w ? w[k] : 1));
      loss += j->even * all;
    }
    j->losses[t->first + i] = loss;
    j->totals[t->first + i] = total;
  }
}

/* Losses of samples whose target is a probability for each class; a class that
 * has none counts nothing, whatever its score. */
static void soft_losses(const loss_job *j, const tile *t, const T *top,
                        const T *logs) {
  double loss[TILE];
  for (int64_t i = 0; i < t->n; i++)
    loss[i] = 0;
  for (int64_t i = 0; t->deep == 1 && i < t->n; i++) {
    const T *x = (const T *)j->x + t->at + i * t->step;
    const T *p = (const T *)j->probabilities + t->at + i * t->step;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < j->classes; c++) {
      T a = share(j, p[c], c), d = (top[i] - x[c]) + logs[i];
      sum += a == 0 ? 0.0 : (double)(a * d);
    }
    loss[i] = sum;
  }
  for (int64_t c = 0; t->deep > 1 && c < j->classes; c++) {
    const T *x = (const T *)j->x + t->at + c * t->deep;
    const T *p = (const T *)j->probabilities + t->at + c * t->deep;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++) {
      T a = share(j, p[i], c), d = (top[i] - x[i]) + logs[i];
      loss[i] += a == 0 ? 0.0 : (double)(a * d);
    }
  }
  for (int64_t i = 0; i < t->n; i++) {
    j->losses[t->first + i] = loss[i];
    j->totals[t->first + i] = 1;
  }
}

static void forward(void *context, int64_t begin, int64_t end) {
  const loss_job *j = context;
  T top[TILE], logs[TILE];
  for (int64_t k = begin; k < end; k++) {
    tile t = tile_of(j, k);
    T *lse = (T *)j->lse + t.first;
    tops(j, &t, top, logs);
#pragma omp simd
    for (int64_t i = 0; i < t.n; i++) {
      logs[i] = fl_log(logs[i]);
      lse[i] = top[i] + logs[i];
    }
    if (j->probabilities)
      soft_losses(j, &t, top, logs);
    else
      class_losses(j, &t, top, logs);
  }
}

/* --- gradient: dx = dy (sum(a) softmax(x) - a), a the classes' shares --- */

/* dy and dy sum(a) of every sample. */
static void scales(const loss_job *j, const tile *t, T *scale, T *whole) {
  const T *w = j->weight;
  for (int64_t i = 0; i < t->n; i++) {
    double dy = j->each ? (double)((const T *)j->each)[t->first + i] : j->scale;
    double sum = 0;
    if (j->probabilities) {
      const T *p = (const T *)j->probabilities + t->at + i * t->step;
      for (int64_t c = 0; c < j->classes; c++)
        sum += (double)share(j, p[c * t->deep], c);
    } else {
      int64_t c = class_of(j, t->first + i);
      dy = c < 0 ? 0 : dy;
      sum = c < 0 ? 0
                  : (1 - j->smoothing) * (w ? (double)w[c] : 1) +
                        j->even * j->weights;
    }
    scale[i] = (T)dy;
    whole[i] = (T)(dy * sum);
  }
}

static void backward_rows(const loss_job *j, const tile *t, const T *scale,
                          const T *whole) {
  const T *w = j->weight;
  for (int64_t i = 0; i < t->n; i++) {
    int64_t at = t->at + i * t->step;
    const T *x = (const T *)j->x + at;
    T *dx = (T *)j->dx + at, lse = ((const T *)j->lse)[t->first + i];
    if (!j->probabilities && class_of(j, t->first + i) < 0) {
      for (int64_t c = 0; c < j->classes; c++)
        dx[c] = 0;
      continue;
    }
    row_exp(x, j->classes, lse, dx, whole[i]);
    if (j->probabilities) {
      const T *p = (const T *)j->probabilities + at;
#pragma omp simd
      for (int64_t c = 0; c < j->classes; c++)
        dx[c] -= scale[i] * share(j, p[c], c);
      continue;
    }
    for (int64_t c = 0; j->even != 0 && c < j->classes; c++)
      dx[c] -= scale[i] * ((T)j->even * (w ? w[c] : (T)1));
    int64_t c = class_of(j, t->first + i);
    dx[c] -= scale[i] * ((T)(1 - j->smoothing) * (w ? w[c] : (T)1));
  }
}

static void backward_columns(const loss_job *j, const tile *t, const T *scale,
                             const T *whole) {
  const T *w = j->weight, *lse = (const T *)j->lse + t->first;
  for (int64_t c = 0; c < j->classes; c++) {
    int64_t at = t->at + c * t->deep;
    const T *x = (const T *)j->x + at;
    T *dx = (T *)j->dx + at;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++)
      dx[i] = row_exp1(x[i] - lse[i]) * whole[i];
    if (j->probabilities) {
      const T *p = (const T *)j->probabilities + at;
#pragma omp simd
      for (int64_t i = 0; i < t->n; i++)
        dx[i] -= scale[i] * share(j, p[i], c);
    } else if (j->even != 0) {
      T even = (T)j->even * (w ? w[c] : (T)1);
#pragma omp simd
      for (int64_t i = 0; i < t->n; i++)
        dx[i] -= scale[i] * even;
    }
  }
  for (int64_t i = 0; !j->probabilities && i < t->n; i++) {
    int64_t c = class_of(j, t->first + i);
    T *dx = (T *)j->dx + t->at + i;
    if (c >= 0)
      dx[c * t->deep] -= scale[i] * ((T)(1 - j->smoothing) * (w ? w[c] : (T)1));
    else /* also where the score is not finite */
      for (int64_t k = 0; k < j->classes; k++)
        dx[k * t->deep] = 0;
  }
}

static void backward(void *context, int64_t begin, int64_t end) {
  const loss_job *j = context;
  T scale[TILE], whole[TILE];
  for (int64_t k = begin; k < end; k++) {
    tile t = tile_of(j, k);
    scales(j, &t, scale, whole);
    if (t.deep == 1)
      backward_rows(j, &t, scale, whole);
    else
      backward_columns(j, &t, scale, whole);
  }
}

const loss_kernels FL_TYPED(loss) = {.forward = forward, .backward = backward};
