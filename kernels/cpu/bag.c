/* embedding_bag and its gradient: rows of a table put together by bags of
 * positions, without the rows in between. */
#include "bag.h"
#include "move.h"

#define PIECE (8 << 10) /* elements worth a thread's while */

/* Offsets begin with the first position, never fall and end within index. */
static fl_status check_offsets(const fl_launch *l, const bagging *c) {
  int64_t n = c->bags + c->last, before = 0;
  for (int64_t b = 0; b < n; b++) {
    int64_t at = c->offsets[b] - c->base;
    if (at < before || at > c->n || (b == 0 && at != 0))
      return fli_fail(FL_EINDEX,
                      "%s: offsets must begin with %lld and rise to %lld at "
                      "most, number %lld is %lld",
                      l->op, (long long)c->base, (long long)(c->n + c->base),
                      (long long)(b + c->base), (long long)c->offsets[b]);
    before = at;
  }
  return FL_OK;
}

/* Everything but the table, what is written and the mode. */
static fl_status bag_take(const fl_launch *l, int64_t padding, fl_dtype wide,
                          bagging *c) {
  const fl_view *index = &l->in[FL_IN_embedding_bag_index],
                *offsets = &l->in[FL_IN_embedding_bag_offsets],
                *factors = &l->in[FL_IN_embedding_bag_weights];
  _Static_assert(
      FL_IN_embedding_bag_index == FL_IN_embedding_bag_backward_index &&
          FL_IN_embedding_bag_offsets == FL_IN_embedding_bag_backward_offsets &&
          FL_IN_embedding_bag_weights == FL_IN_embedding_bag_backward_weights,
      "read for both rows");
  fl_status s = FL_CPU(ids)(l, index, c->rows, &c->index);
  if (s != FL_OK)
    return s;
  c->base = l->base;
  c->padding = padding == FL_ATTR_NONE ? l->base - 1 : padding + l->base;
  c->n = fl_view_numel(index);
  if (index->ndim == 2)
    c->each = index->shape[1];
  else if (!(c->offsets = FL_CPU(input)(l, offsets, FL_I64)))
    return FL_ENOMEM;
  if (factors->data && !(c->factors = FL_CPU(input)(l, factors, wide)))
    return FL_ENOMEM;
  return c->offsets ? check_offsets(l, c) : FL_OK;
}

/* weight, index, offsets, factors -> y, where */
FL_KERNEL(embedding_bag) {
  fl_view w = l->in[FL_IN_embedding_bag_weight];
  const fl_view *y = &l->out[0];
  const fl_attr *v = l->attrs->v;
  bagging c = {.mode = (int)v[FL_ATTR_embedding_bag_mode].i,
               .last = v[FL_ATTR_embedding_bag_include_last].i,
               .rows = w.shape[0]};
  c.bags = y->shape[0];
  c.width = y->shape[1];
  c.y = y->data;
  c.where = l->out[FL_OUT_embedding_bag_where].data;
  fl_status s =
      bag_take(l, v[FL_ATTR_embedding_bag_padding].i, fl_cpu_wide(w.dtype), &c);
  if (s != FL_OK || c.bags * c.width == 0)
    return s;
  if (w.stride[1] != 1 && c.width > 1) {
    w.data = (void *)(uintptr_t)FL_CPU(input)(l, &w, w.dtype);
    w.stride[0] = c.width;
    if (!w.data)
      return FL_ENOMEM;
  }
  c.weight = w.data;
  c.stride = w.stride[0];
  static const bag_kernels *const of[] = {[FL_F64] = &FL_CPU(bag_f64),
                                          [FL_F32] = &FL_CPU(bag_f32),
                                          [FL_F16] = &FL_CPU(bag_f16),
                                          [FL_BF16] = &FL_CPU(bag_bf16)};
  int64_t work = c.n * c.width / c.bags;
  fl_cpu_parallel(l, c.bags, PIECE / (work > 0 ? work : 1) + 1,
                  c.mode == MAX ? of[w.dtype]->most : of[w.dtype]->sums, &c);
  return FL_OK;
}

/* A piece is some rows of the table, which gets its share of all bags: so a row
 * is added up in the order of the index, by one thread. */
#define SPREAD(T, name)                                                        \
  static void name(void *context, int64_t begin, int64_t end) {                \
    const bagging *c = context;                                                \
    int64_t low = begin + c->base, high = end + c->base, width = c->width;     \
    T *y = (T *)c->y;                                                          \
    memset(y + begin * width, 0, (size_t)((end - begin) * width) * sizeof(T)); \
    for (int64_t b = 0; b < c->bags; b++) {                                    \
      const T *restrict dy = (const T *)c->weight + b * width;                 \
      int64_t k, to = bag_of(c, b, &k);                                        \
      T scale = (T)bag_scale(c, k, to);                                        \
      for (; k < to; k++) {                                                    \
        int64_t at = c->index[k];                                              \
        if (at < low || at >= high || at == c->padding)                        \
          continue;                                                            \
        T f = c->factors ? ((const T *)c->factors)[k] : scale;                 \
        T *restrict t = y + (at - c->base) * width;                            \
        _Pragma("omp simd") for (int64_t i = 0; i < width; i++) t[i] +=        \
            f * dy[i];                                                         \
      }                                                                        \
    }                                                                          \
  }
SPREAD(float, spread_f32)
SPREAD(double, spread_f64)

/* dy, index, offsets, factors -> dweight */
FL_KERNEL(embedding_bag_backward) {
  const fl_view *dy = &l->in[FL_IN_embedding_bag_backward_dy], *y = &l->out[0];
  const fl_attr *v = l->attrs->v;
  fl_dtype wide = fl_cpu_wide(y->dtype);
  bagging c = {.mode = (int)v[FL_ATTR_embedding_bag_backward_mode].i,
               .last = v[FL_ATTR_embedding_bag_backward_include_last].i,
               .rows = y->shape[0]};
  c.bags = dy->shape[0];
  c.width = y->shape[1];
  fl_status s =
      bag_take(l, v[FL_ATTR_embedding_bag_backward_padding].i, wide, &c);
  if (s != FL_OK || c.rows * c.width == 0)
    return s;
  c.weight = FL_CPU(input)(l, dy, wide);
  c.y = FL_CPU(output)(l, y, wide);
  if (!c.weight || !c.y)
    return FL_ENOMEM;
  int64_t threads = fl_cpu_pool_threads((const fl_cpu_pool *)l->stream);
  int64_t least = PIECE / c.width + 1, band = fl_ceil_div(c.rows, threads);
  fl_cpu_parallel(l, c.rows, band > least ? band : least,
                  wide == FL_F64 ? spread_f64 : spread_f32, &c);
  FL_CPU(finish)(l, y, wide, c.y);
  return FL_OK;
}
