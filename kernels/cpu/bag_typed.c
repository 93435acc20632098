/* The loops of bag.c for tables of one float type; of 16 bits, they are
 * computed as float. */
#include "../../runtime/math/math.h"
#include "bag.h"
#include "typed.h"

#include <string.h>

#if FL_T_IS_F16
typedef uint16_t S;
#define LOAD(v)  fl_from_f16(v)
#define STORE(v) fl_to_f16(v)
#elif FL_T_IS_BF16
typedef uint16_t S;
#define LOAD(v)  fl_from_bf16(v)
#define STORE(v) fl_to_bf16(v)
#else
typedef T S;
#define LOAD(v)  (v)
#define STORE(v) (v)
#endif

/* Sums of m columns, from `col` on, over positions k..end. With m constant,
 * they stay in registers. */
FL_FORCE void bag_sum(const bagging *c, int64_t k, int64_t end, int64_t col,
                      int m, T *restrict sum) {
  const S *table = (const S *)c->weight + col;
  const T *factors = c->factors;
  for (int i = 0; i < m; i++)
    sum[i] = 0;
  for (; k < end; k++) {
    const S *restrict row = table + (c->index[k] - c->base) * c->stride;
    if (k + AHEAD < c->n)
      for (int i = 0; i < m; i += LINE / (int)sizeof(S))
        __builtin_prefetch(table + (c->index[k + AHEAD] - c->base) * c->stride +
                           i);
    if (c->index[k] == c->padding)
      continue;
    T f = factors ? factors[k] : 1;
#pragma omp simd
    for (int i = 0; i < m; i++)
      sum[i] += f * LOAD(row[i]);
  }
}

static void bag_sums(void *context, int64_t begin, int64_t end) {
  const bagging *c = context;
  T sum[COLUMNS];
  for (int64_t b = begin; b < end; b++) {
    S *y = (S *)c->y + b * c->width;
    int64_t from, to = bag_of(c, b, &from);
    T scale = (T)bag_scale(c, from, to);
    for (int64_t col = 0; col < c->width; col += COLUMNS) {
      int m = c->width - col < COLUMNS ? (int)(c->width - col) : COLUMNS;
      if (m == COLUMNS)
        bag_sum(c, from, to, col, COLUMNS, sum);
      else
        bag_sum(c, from, to, col, m, sum);
      for (int i = 0; i < m; i++)
        y[col + i] = STORE(sum[i] * scale);
    }
  }
}

/* The largest elements and where in the bag the first of each was. NaN is
 * larger than anything. */
static void bag_most(void *context, int64_t begin, int64_t end) {
  const bagging *c = context;
  for (int64_t b = begin; b < end; b++) {
    int64_t from, to = bag_of(c, b, &from);
    for (int64_t col = 0; col < c->width; col += COLUMNS) {
      int m = c->width - col < COLUMNS ? (int)(c->width - col) : COLUMNS;
      T most[COLUMNS] = {0};
      int32_t at[COLUMNS];
      memset(at, -1, sizeof at);
      for (int64_t k = from; k < to; k++) {
        const S *restrict row =
            (const S *)c->weight + col + (c->index[k] - c->base) * c->stride;
        if (c->index[k] == c->padding)
          continue;
#pragma omp simd
        for (int i = 0; i < m; i++) {
          T v = LOAD(row[i]), old = most[i];
          bool more = at[i] < 0 || !(v <= old || old != old);
          most[i] = more ? v : old;
          at[i] = more ? (int32_t)(k - from) : at[i];
        }
      }
      for (int i = 0; i < m; i++) {
        int64_t to_i = b * c->width + col + i;
        ((S *)c->y)[to_i] = STORE(most[i]);
        c->where[to_i] = at[i] < 0 ? c->base - 1 : c->index[from + at[i]];
      }
    }
  }
}

const bag_kernels FL_TYPED(bag) = {.sums = bag_sums, .most = bag_most};
