/* Running products, running logarithms of sums of exponentials, and running
 * extremes with their positions, along one dim. Running sums are in scan.c. */
#include "cpu.h"

#include <math.h>

#define GRAIN 16384 /* elements worth a thread's while */
#define TILE  64    /* columns that are walked together */

typedef struct work { /* seen as outer x n x inner */
  const void *x;
  void *y;
  int64_t *at; /* positions; NULL: products, or logarithms */
  int64_t n, inner, tiles, base;
  bool least, logs;
} work;

/* m + log(s) of one more; equal infinities have no difference. */
static double add_exp(double *m, double *s, double v) {
  double top = v > *m || v != v ? v : *m;
  *s = (top == *m ? *s : *s * exp(*m - top)) + (v == top ? 1 : exp(v - top));
  *m = top;
  return top + log(*s);
}

/* T: the elements, W: what products are kept in. Of equal ones the last counts;
 * nothing beats NaN, but a later one. */
#define WALK(T, W, name)                                                       \
  static void products_##name(const T *x, T *y, int64_t n, int64_t inner,      \
                              int64_t m) {                                     \
    W c[TILE];                                                                 \
    for (int64_t j = 0; j < m; j++)                                            \
      c[j] = 1;                                                                \
    for (int64_t r = 0; r < n; r++, x += inner, y += inner)                    \
      for (int64_t j = 0; j < m; j++)                                          \
        y[j] = (T)(c[j] *= (W)x[j]);                                           \
  }                                                                            \
  static void logs_##name(const T *x, T *y, int64_t n, int64_t inner,          \
                          int64_t m) {                                         \
    double top[TILE], sum[TILE];                                               \
    for (int64_t j = 0; j < m; j++) {                                          \
      top[j] = -INFINITY;                                                      \
      sum[j] = 0;                                                              \
    }                                                                          \
    for (int64_t r = 0; r < n; r++, x += inner, y += inner)                    \
      for (int64_t j = 0; j < m; j++)                                          \
        y[j] = (T)add_exp(&top[j], &sum[j], (double)x[j]);                     \
  }                                                                            \
  static void extremes_##name(const work *w, const T *x, T *y, int64_t *at,    \
                              int64_t m) {                                     \
    T c[TILE];                                                                 \
    int64_t where[TILE];                                                       \
    for (int64_t r = 0; r < w->n; r++) {                                       \
      for (int64_t j = 0; j < m; j++) {                                        \
        T v = x[r * w->inner + j];                                             \
        bool beats = r == 0 || v != v || (w->least ? v <= c[j] : v >= c[j]);   \
        c[j] = beats ? v : c[j];                                               \
        where[j] = beats ? r : where[j];                                       \
        y[r * w->inner + j] = c[j];                                            \
        at[r * w->inner + j] = where[j] + w->base;                             \
      }                                                                        \
    }                                                                          \
  }                                                                            \
  static void walk_##name(void *context, int64_t begin, int64_t end) {         \
    const work *w = context;                                                   \
    for (int64_t i = begin; i < end; i++) {                                    \
      int64_t first = i % w->tiles * TILE;                                     \
      int64_t from = i / w->tiles * w->n * w->inner + first;                   \
      int64_t left = w->inner - first, m = left < TILE ? left : TILE;          \
      if (w->at)                                                               \
        extremes_##name(w, (const T *)w->x + from, (T *)w->y + from,           \
                        w->at + from, m);                                      \
      else if (w->logs)                                                        \
        logs_##name((const T *)w->x + from, (T *)w->y + from, w->n, w->inner,  \
                    m);                                                        \
      else                                                                     \
        products_##name((const T *)w->x + from, (T *)w->y + from, w->n,        \
                        w->inner, m);                                          \
    }                                                                          \
  }

WALK(float, double, f32)
WALK(double, double, f64)
WALK(int64_t, uint64_t, i64)

_Static_assert(FL_ATTR_cumprod_dim == FL_ATTR_logcumsumexp_dim &&
                   FL_ATTR_cumprod_dim == FL_ATTR_cummax_dim &&
                   FL_ATTR_cumprod_dim == FL_ATTR_cummin_dim &&
                   FL_OUT_cummax_indices == FL_OUT_cummin_indices,
               "one function for four rows");

static fl_status cumulate(const fl_launch *l, bool positions, bool least,
                          bool logs) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  fl_dtype type =
      fl_dtype_kind(x->dtype) == FL_KIND_FLOAT ? fl_cpu_wide(x->dtype) : FL_I64;
  work w = {.n = 1, .inner = 1, .base = l->base, .least = least, .logs = logs};
  int dim = x->ndim ? (int)l->attrs->v[FL_ATTR_cumprod_dim].i : 0;
  int64_t total = fl_view_numel(x);
  if (total == 0)
    return FL_OK;
  if (x->ndim) {
    w.n = x->shape[dim];
    w.inner = fl_numel(x->ndim - dim - 1, x->shape + dim + 1);
  }
  w.x = FL_CPU(input)(l, x, type);
  w.y = FL_CPU(output)(l, y, type);
  w.at = positions ? l->out[FL_OUT_cummax_indices].data : NULL;
  if (!w.x || !w.y)
    return FL_ENOMEM;
  w.tiles = fl_ceil_div(w.inner, TILE);
  int64_t cost = w.n * (w.inner < TILE ? w.inner : TILE);
  fl_status s =
      fl_cpu_stoppable(l, total / (w.n * w.inner) * w.tiles, GRAIN / cost + 1,
                       type == FL_F32   ? walk_f32
                       : type == FL_F64 ? walk_f64
                                        : walk_i64,
                       &w);
  if (s == FL_OK)
    FL_CPU(finish)(l, y, type, w.y);
  return s;
}

FL_KERNEL(cumprod) {
  return cumulate(l, false, false, false);
}

FL_KERNEL(logcumsumexp) {
  return cumulate(l, false, false, true);
}

FL_KERNEL(cummax) {
  return cumulate(l, true, false, false);
}

FL_KERNEL(cummin) {
  return cumulate(l, true, true, false);
}
