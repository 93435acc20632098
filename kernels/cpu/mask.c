/* masked_select, masked_scatter and nonzero: flags are counted by pieces,
 * counts are summed, and each piece then knows where its elements go. */
#include "../../runtime/math/math.h"
#include "move.h"

#define PIECE (16 << 10) /* elements of light work for a thread */

/* Elements in row-major order with a flag each; `from[p]` is how many flags are
 * set before piece p. */
typedef struct masking {
  size_t size;
  const uint8_t *mask;
  const char *x;
  char *y;
  int64_t *from, total;
} masking;

static void count_task(void *context, int64_t begin, int64_t end) {
  const masking *c = context;
  int64_t n = 0;
  for (int64_t i = begin; i < end; i++)
    n += c->mask[i] != 0;
  c->from[begin / PIECE] = n;
}

/* Counts by pieces to counts before pieces; returns the total. */
static int64_t running(int64_t n, int64_t *from) {
  int64_t total = 0, pieces = fl_ceil_div(n, PIECE);
  for (int64_t p = 0; p < pieces; p++) {
    int64_t here = from[p];
    from[p] = total;
    total += here;
  }
  return from[pieces] = total;
}

static int64_t *counters(const fl_launch *l, int64_t n) {
  return fl_scratch_get(l,
                        (size_t)(fl_ceil_div(n, PIECE) + 1) * sizeof(int64_t));
}

/* v broadcast to a shape, as contiguous memory of its own dtype. */
static const void *mask_spread(const fl_launch *l, const fl_view *v, int ndim,
                               const int64_t *shape) {
  int64_t n = fl_numel(ndim, shape), to[FL_MAX_DIMS], from[FL_MAX_DIMS];
  if (fl_view_numel(v) == n)
    return FL_CPU(input)(l, v, v->dtype);
  void *p = fl_scratch_get(l, (size_t)n * fl_element_size(v));
  fl_row_major(ndim, shape, to);
  fl_broadcast_strides(v, ndim, from);
  if (p)
    FL_CPU(move)(l, fl_element_size(v), ndim, shape, p, to, v->data, from);
  return p;
}

/* The shape that both views broadcast to. */
static int common_shape(const fl_view *a, const fl_view *b, int64_t *shape) {
  int n = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int d = 0; d < n; d++) {
    int i = d - (n - a->ndim), j = d - (n - b->ndim);
    int64_t s = i < 0 ? 1 : a->shape[i], t = j < 0 ? 1 : b->shape[j];
    shape[d] = s == 1 ? t : s;
  }
  return n;
}

static void masked_select_task(void *context, int64_t begin, int64_t end) {
  const masking *c = context;
  const uint8_t *restrict mask = c->mask;
  int64_t start = c->from[begin / PIECE], n = c->from[begin / PIECE + 1];
  (void)end; /* the last set flag of the piece comes before it */
#define PACK(T)                                                                \
  do {                                                                         \
    T *restrict t = (T *)c->y;                                                 \
    const T *restrict f = (const T *)c->x;                                     \
    for (int64_t i = begin, k = start; k < n; i++) {                           \
      t[k] = f[i];                                                             \
      k += mask[i] != 0;                                                       \
    }                                                                          \
  } while (0)
  FL_BY_SIZE(c->size, PACK)
#undef PACK
}

_Static_assert(FL_IN_masked_select_x == FL_IN_masked_scatter_x &&
                   FL_IN_masked_select_mask == FL_IN_masked_scatter_mask,
               "one plan for both rows");

static fl_status mask_plan(const fl_launch *l, masking *c, int *ndim,
                           int64_t *shape, int64_t *n) {
  *ndim = common_shape(&l->in[FL_IN_masked_select_x],
                       &l->in[FL_IN_masked_select_mask], shape);
  *n = fl_numel(*ndim, shape);
  c->size = fl_element_size(&l->in[FL_IN_masked_select_x]);
  c->y = l->out[0].data;
  c->mask = mask_spread(l, &l->in[FL_IN_masked_select_mask], *ndim, shape);
  c->from = counters(l, *n);
  if (!c->mask || !c->from)
    return FL_ENOMEM;
  fl_cpu_parallel(l, *n, PIECE, count_task, c);
  c->total = running(*n, c->from);
  return FL_OK;
}

/* The shape rule has counted already: out[0] has room for what is selected. */
FL_KERNEL(masked_select) {
  masking c;
  int ndim;
  int64_t n, shape[FL_MAX_DIMS];
  fl_status s = mask_plan(l, &c, &ndim, shape, &n);
  if (s != FL_OK)
    return s;
  if (c.total != l->out[0].shape[0])
    return fli_fail(FL_EARG, "%s: the mask changed while it was read", l->op);
  c.x = mask_spread(l, &l->in[FL_IN_masked_select_x], ndim, shape);
  if (!c.x)
    return FL_ENOMEM;
  fl_cpu_parallel(l, n, PIECE, masked_select_task, &c);
  return FL_OK;
}

/* Without branches, which random masks would mislead: an element that keeps its
 * value reads the source all the same. */
static void masked_scatter_task(void *context, int64_t begin, int64_t end) {
  const masking *c = context;
  const uint8_t *restrict mask = c->mask;
  int64_t k = c->from[begin / PIECE], last = c->total - 1;
#define UNPACK(T)                                                              \
  do {                                                                         \
    T *restrict t = (T *)c->y;                                                 \
    const T *restrict f = (const T *)c->x;                                     \
    for (int64_t i = begin; i < end; i++) {                                    \
      T take = (T) - (mask[i] != 0), value = f[k < last ? k : last];           \
      t[i] = (T)((value & take) | (t[i] & ~take));                             \
      k += mask[i] != 0;                                                       \
    }                                                                          \
  } while (0)
  FL_BY_SIZE(c->size, UNPACK)
#undef UNPACK
}

FL_KERNEL(masked_scatter) {
  const fl_view *x = &l->in[FL_IN_masked_scatter_x],
                *src = &l->in[FL_IN_masked_scatter_src], *y = &l->out[0];
  masking c;
  int ndim;
  int64_t n, shape[FL_MAX_DIMS], stride[FL_MAX_DIMS];
  fl_status s = mask_plan(l, &c, &ndim, shape, &n);
  if (s != FL_OK)
    return s;
  if (c.total > fl_view_numel(src))
    return fli_fail(FL_ESHAPE,
                    "%s: the mask takes %lld elements and src has %lld", l->op,
                    (long long)c.total, (long long)fl_view_numel(src));
  c.x = FL_CPU(input)(l, src, x->dtype);
  if (!c.x)
    return FL_ENOMEM;
  fl_broadcast_strides(x, ndim, stride);
  FL_CPU(move)(l, c.size, ndim, shape, y->data, y->stride, x->data, stride);
  if (c.total > 0)
    fl_cpu_parallel(l, n, PIECE, masked_scatter_task, &c);
  return FL_OK;
}

/* --- nonzero --- */

typedef struct finding {
  size_t size;
  uint64_t bits; /* those that make a value differ from 0 (or -0) */
  const void *x;
  int ndim;
  const int64_t *shape;
  int64_t *from, *y, base;
} finding;

static void find_count(void *context, int64_t begin, int64_t end) {
  const finding *c = context;
  int64_t n = 0;
#define COUNT(T)                                                               \
  do {                                                                         \
    const T *x = c->x, bits = (T)c->bits;                                      \
    for (int64_t i = begin; i < end; i++)                                      \
      n += (x[i] & bits) != 0;                                                 \
  } while (0)
  FL_BY_SIZE(c->size, COUNT)
#undef COUNT
  c->from[begin / PIECE] = n;
}

/* Writes every position and goes on to the next place only after those that
 * count: no branches. */
static void find_task(void *context, int64_t begin, int64_t end) {
  const finding *c = context;
  int last = c->ndim - 1;
  int64_t line = c->shape[last], base = c->base;
  int64_t *y = c->y + c->from[begin / PIECE] * c->ndim;
  const int64_t *stop = c->y + c->from[begin / PIECE + 1] * c->ndim;
  fl_walk w;
  fl_walk_start(&w, last, c->shape, begin / line);
  for (int64_t i = begin, n; i < end; i += n, fl_walk_next(&w)) {
    int64_t j = i % line;
    n = end - i < line - j ? end - i : line - j;
#define FIND(T)                                                                \
  do {                                                                         \
    const T *x = (const T *)c->x + i, bits = (T)c->bits;                       \
    for (int64_t k = 0; k < n && y < stop; k++) {                              \
      for (int d = 0; d < last; d++)                                           \
        y[d] = w.at[d] + base;                                                 \
      y[last] = j + k + base;                                                  \
      y += (x[k] & bits) != 0 ? c->ndim : 0;                                   \
    }                                                                          \
  } while (0)
    FL_BY_SIZE(c->size, FIND)
#undef FIND
  }
}

FL_KERNEL(nonzero) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int64_t n = fl_view_numel(x);
  finding c = {.size = fl_element_size(x), .ndim = x->ndim, .shape = x->shape};
  c.bits = ~(uint64_t)0;
  if (fl_dtype_kind(x->dtype) == FL_KIND_FLOAT)
    c.bits = ((uint64_t)1 << (8 * c.size - 1)) - 1;
  c.y = y->data;
  c.base = l->base;
  c.x = FL_CPU(input)(l, x, x->dtype);
  c.from = counters(l, n);
  if (!c.x || !c.from)
    return FL_ENOMEM;
  fl_cpu_parallel(l, n, PIECE, find_count, &c);
  if (running(n, c.from) != y->shape[0])
    return fli_fail(FL_EARG, "%s: the tensor changed while it was read", l->op);
  if (x->ndim > 0)
    fl_cpu_parallel(l, n, PIECE, find_task, &c);
  return FL_OK;
}
