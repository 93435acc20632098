/* Distances between all rows of two batches of matrices, in pieces that are
 * dealt out to the threads; the loops are in pairwise_typed.h. */
#include "gemm.h"

/* Rows of a piece, and multiply-adds that are worth a thread's while. */
#define DOWN   128
#define ACROSS 512
#define WORTH  65536

typedef struct work {
  const fl_launch *launch;
  fl_dtype dtype;
  const char *a, *b;
  char *c;
  int64_t m, n, k, down, across; /* pieces of a matrix */
} work;

static void pairwise_pieces(void *context, int64_t begin, int64_t end) {
  const work *w = context;
  int64_t each = w->down * w->across, size = (int64_t)fl_dtype_size(w->dtype);
  for (int64_t t = begin; t < end && !fl_cpu_interrupted(w->launch); t++) {
    int64_t at = t / each, i = t % each % w->down * DOWN,
            j = t % each / w->down * ACROSS;
    int64_t rows = w->m - i < DOWN ? w->m - i : DOWN,
            cols = w->n - j < ACROSS ? w->n - j : ACROSS;
    const char *a = w->a + (at * w->m + i) * w->k * size,
               *b = w->b + (at * w->n + j) * w->k * size;
    char *c = w->c + ((at * w->m + i) * w->n + j) * size;
    (w->dtype == FL_F64 ? FL_CPU(pairwise_f64) : FL_CPU(pairwise_f32))(
        rows, cols, w->k, a, b, c, w->n);
  }
}

/* `v` with the leading dims of the result, repeated where it has not got them.
 */
static const void *pairwise_spread(const fl_launch *l, const fl_view *v,
                                   fl_dtype d) {
  const fl_view *y = &l->out[0];
  fl_view w;
  w.data = v->data;
  w.dtype = v->dtype;
  w.ndim = y->ndim;
  for (int i = w.ndim - 1, k = v->ndim - 1; i >= 0; i--, k--) {
    bool own = i >= w.ndim - 2, there = k >= 0;
    w.shape[i] = own ? v->shape[k] : y->shape[i];
    w.stride[i] = there && (own || v->shape[k] > 1) ? v->stride[k] : 0;
  }
  return FL_CPU(input)(l, &w, d);
}

FL_KERNEL(pair_distances) {
  const fl_view *y = &l->out[0], *a = &l->in[FL_IN_pair_distances_a];
  work w = {.launch = l,
            .dtype = fl_cpu_wide(y->dtype),
            .m = y->shape[y->ndim - 2],
            .n = y->shape[y->ndim - 1],
            .k = a->shape[a->ndim - 1]};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (!(w.a = pairwise_spread(l, a, w.dtype)) ||
      !(w.b = pairwise_spread(l, &l->in[FL_IN_pair_distances_b], w.dtype)) ||
      !(w.c = FL_CPU(output)(l, y, w.dtype)))
    return FL_ENOMEM;
  w.down = fl_ceil_div(w.m, DOWN);
  w.across = fl_ceil_div(w.n, ACROSS);
  int64_t count = fl_numel(y->ndim - 2, y->shape) * w.down * w.across;
  double cost = (double)(w.m < DOWN ? w.m : DOWN) *
                (double)(w.n < ACROSS ? w.n : ACROSS) * (double)(w.k + 8);
  int64_t grain = cost >= WORTH ? 1 : (int64_t)(WORTH / cost) + 1;
  fl_cpu_parallel(l, count, grain, pairwise_pieces, &w);
  if (fl_cpu_interrupted(l))
    return fl_cpu_stopped(l);
  FL_CPU(finish)(l, y, w.dtype, w.c);
  return FL_OK;
}
