/* Column sums of the kernel "tile". */
#include "tile_columns.h"

#include <string.h>

#define PIECES 16 /* at most */
#define SUMMED 4  /* elements for each cell of a piece, at least */

/* The least and the largest value of a form. */
static void form_range(const fl_tile *t, const fl_form *at, int64_t *low,
                       int64_t *high) {
  *low = *high = at->offset;
  for (int d = 0; d < t->n_dims; d++)
    *(at->coef[d] < 0 ? low : high) += at->coef[d] * (t->shape[d] - 1);
}

fl_status FL_CPU(columns_begin)(const fl_launch *l, fl_nest_columns *x) {
  const fl_tile *t = l->tile;
  int64_t all = 1;
  memset(x, 0, sizeof *x);
  for (int k = 0; k < t->n_stores; k++) {
    int64_t low, high;
    if (!fl_store_sums(&t->stores[k]))
      continue;
    form_range(t, &t->stores[k].at, &low, &high);
    x->first[k] = x->n - low;
    x->n += high - low + 1;
  }
  if (x->n == 0)
    return FL_OK;
  for (int d = 0; d < t->n_dims; d++)
    all *= t->shape[d];
  x->pieces = all / (SUMMED * x->n);
  x->pieces = x->pieces < 1 ? 1 : x->pieces > PIECES ? PIECES : x->pieces;
  size_t bytes = (size_t)(x->pieces * x->n) * sizeof *x->cells;
  if (!(x->cells = fl_scratch_get(l, bytes)))
    return FL_ENOMEM;
  memset(x->cells, 0, bytes);
  return FL_OK;
}

#define ADD(T)                                                                 \
  static void add_##T(int64_t pn, int64_t qn, double *to, int64_t p,           \
                      int64_t q, const char *from, int64_t pitch) {            \
    for (int64_t i = 0; i < pn; i++, to += p, from += pitch) {                 \
      const T *x = (const T *)(const void *)from;                              \
      if (q == 1)                                                              \
        for (int64_t k = 0; k < qn; k++)                                       \
          to[k] += (double)x[k];                                               \
      else if (q == 0) {                                                       \
        double sum = 0;                                                        \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t k = 0; k < qn;     \
                                                    k++) sum += (double)x[k];  \
        *to += sum;                                                            \
      } else                                                                   \
        for (int64_t k = 0; k < qn; k++)                                       \
          to[k * q] += (double)x[k];                                           \
    }                                                                          \
  }
ADD(float)
ADD(double)
#undef ADD

void FL_CPU(columns_add)(int64_t pn, int64_t qn, fl_dtype type, double *to,
                         int64_t p, int64_t q, const void *from,
                         int64_t pitch) {
  (type == FL_F64 ? add_double : add_float)(pn, qn, to, p, q, from, pitch);
}

/* One cell of store k, whose form has this value. */
static void end_cell(const fl_launch *l, const fl_nest_columns *x, int k,
                     int64_t at) {
  const fl_store *s = &l->tile->stores[k];
  const fl_view *to = &l->out[s->operand];
  double sum = 0;
  char round[8];
  for (int64_t i = 0; i < x->pieces; i++)
    sum += x->cells[i * x->n + x->first[k] + at];
  fl_dtype d = (fl_dtype)s->round;
  if (d == FL_F16 || d == FL_BF16) {
    FL_CPU(store_row)(1, d, round, 1, FL_F64, &sum);
    FL_CPU(load_row)(1, FL_F64, &sum, d, round, 1);
  }
  FL_CPU(store_row)
  (1, to->dtype, (char *)to->data + at * (int64_t)fl_dtype_size(to->dtype), 1,
   FL_F64, &sum);
}

void FL_CPU(columns_end)(const fl_launch *l, const fl_nest_columns *x) {
  const fl_tile *t = l->tile;
  for (int k = 0; k < t->n_stores && x->cells; k++) {
    int64_t c[FL_TILE_DIMS] = {0}, at = t->stores[k].at.offset;
    int d = fl_store_sums(&t->stores[k]) ? 0 : -1;
    while (d >= 0) {
      end_cell(l, x, k, at);
      for (d = t->n_dims - 1; d >= 0; d--) {
        int64_t coef = t->stores[k].at.coef[d];
        if (coef == 0)
          continue;
        at += coef;
        if (++c[d] < t->shape[d])
          break;
        at -= coef * c[d];
        c[d] = 0;
      }
    }
  }
}
