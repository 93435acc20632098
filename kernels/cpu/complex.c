/* Products of complex numbers, pairs in the last dim, with broadcasting. */
#include "move.h"

#define PIECE (8 << 10) /* pairs worth a thread's while */

typedef struct product {
  int ndim; /* of pairs; the last dim is a line */
  int64_t shape[FL_MAX_DIMS], stride[2][FL_MAX_DIMS]; /* in pairs */
  int64_t cuts, cut; /* pieces of a line, and their length */
  bool conj;
  const void *x[2];
  void *y;
} product;

/* Lines of n pairs; one that has stride 0 is a single pair. */
#define LINE(T, name)                                                          \
  static inline __attribute__((always_inline)) void name##_by(                 \
      int64_t n, T sign, const T *restrict a, int64_t as, const T *restrict b, \
      int64_t bs, T *restrict y) {                                             \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                      \
      T ar = a[2 * i * as], ai = a[2 * i * as + 1];                            \
      T br = b[2 * i * bs], bi = sign * b[2 * i * bs + 1];                     \
      y[2 * i] = ar * br - ai * bi;                                            \
      y[2 * i + 1] = ar * bi + ai * br;                                        \
    }                                                                          \
  }                                                                            \
  static void name##_line(int64_t n, T sign, const T *a, int64_t as,           \
                          const T *b, int64_t bs, T *y) {                      \
    if (as == 1 && bs == 1)                                                    \
      name##_by(n, sign, a, 1, b, 1, y);                                       \
    else if (as == 1 && bs == 0)                                               \
      name##_by(n, sign, a, 1, b, 0, y);                                       \
    else                                                                       \
      name##_by(n, sign, a, as, b, bs, y);                                     \
  }                                                                            \
  static void name(void *context, int64_t begin, int64_t end) {                \
    const product *p = context;                                                \
    int last = p->ndim - 1;                                                    \
    fl_walk w;                                                                 \
    fl_walk_start(&w, last, p->shape, begin / p->cuts);                        \
    for (int64_t u = begin; u < end; u++) {                                    \
      int64_t cut = u % p->cuts * p->cut, n = p->shape[last] - cut, at[2];     \
      for (int k = 0; k < 2; k++)                                              \
        at[k] = fl_walk_offset(&w, p->stride[k]) + cut * p->stride[k][last];   \
      name##_line(n < p->cut ? n : p->cut, p->conj ? -1 : 1,                   \
                  (const T *)p->x[0] + 2 * at[0], p->stride[0][last],          \
                  (const T *)p->x[1] + 2 * at[1], p->stride[1][last],          \
                  (T *)p->y + 2 * (u / p->cuts * p->shape[last] + cut));       \
      if (cut + p->cut >= p->shape[last])                                      \
        fl_walk_next(&w);                                                      \
    }                                                                          \
  }
LINE(float, product_f32)
LINE(double, product_f64)

/* Whether a view's pairs may be read where they are. */
static bool whole_pairs(const fl_view *v, fl_dtype d) {
  bool whole = v->dtype == d && v->stride[v->ndim - 1] == 1;
  for (int i = 0; i < v->ndim - 1 && whole; i++)
    whole = v->stride[i] % 2 == 0;
  return whole;
}

/* Joins dims that run on in both. */
static void complex_merge(product *p) {
  int n = 0;
  for (int d = 1; d < p->ndim; d++) {
    bool on = true;
    for (int k = 0; k < 2; k++)
      on &= p->stride[k][n] == p->stride[k][d] * p->shape[d];
    if (!on)
      n++;
    p->shape[n] = on ? p->shape[n] * p->shape[d] : p->shape[d];
    for (int k = 0; k < 2; k++)
      p->stride[k][n] = p->stride[k][d];
  }
  p->ndim = n + 1;
}

FL_KERNEL(complex_mul) {
  const fl_view *y = &l->out[0];
  fl_dtype d = fl_cpu_wide(y->dtype);
  product p = {.ndim = y->ndim - 1,
               .conj = l->attrs->v[FL_ATTR_complex_mul_conj].i};
  int64_t numel = fl_view_numel(y);
  p.y = FL_CPU(output)(l, y, d);
  memcpy(p.shape, y->shape, sizeof p.shape);
  for (int k = 0; k < 2; k++) {
    fl_view x = l->in[k];
    if (!whole_pairs(&x, d)) {
      x.data = (void *)FL_CPU(input)(l, &x, d);
      fl_row_major(x.ndim, x.shape, x.stride);
    }
    p.x[k] = x.data;
    x.ndim--;
    fl_broadcast_strides(&x, p.ndim, p.stride[k]);
    for (int i = 0; i < p.ndim; i++)
      p.stride[k][i] /= 2;
  }
  if (!p.y || !p.x[0] || !p.x[1])
    return FL_ENOMEM;
  if (p.ndim == 0)
    p.ndim = (int)(p.shape[0] = 1);
  if (numel > 0) {
    complex_merge(&p);
    int64_t line = p.shape[p.ndim - 1];
    p.cut = line < PIECE ? line : PIECE;
    p.cuts = fl_ceil_div(line, p.cut);
    fl_cpu_parallel(l, numel / 2 / line * p.cuts, PIECE / p.cut,
                    d == FL_F64 ? product_f64 : product_f32, &p);
  }
  FL_CPU(finish)(l, y, d, p.y);
  return FL_OK;
}
