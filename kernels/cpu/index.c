/* Kernels that read or write at positions: embedding, gather, scatter, index_*,
 * one_hot. Positions in tensors count from the launch's base
 * and are all checked before anything is written. Where several land in one
 * place they take effect in the order of the index, whatever the threads. */
#include "index.h"
#include "move.h"

#define PIECE (16 << 10) /* elements of light work for a thread */

/* Whether none of n positions is negative or out of range. */
static bool all_within(const fl_launch *l, const int64_t *p, int64_t n,
                       int64_t bound) {
  uint64_t outside = 0;
  for (int64_t i = 0; i < n; i++)
    outside |= (uint64_t)(p[i] - l->base) >= (uint64_t)bound;
  return !outside;
}

fl_status FL_CPU(ids)(const fl_launch *l, const fl_view *v, int64_t bound,
                      const int64_t **index) {
  const int64_t *p = FL_CPU(input)(l, v, FL_I64);
  if (!p)
    return FL_ENOMEM;
  int64_t n = fl_view_numel(v);
  bool within = all_within(l, p, n, bound);
  for (int64_t i = 0; !within && i < n; i++) {
    int64_t k = p[i];
    if (!fl_cpu_position(l, &k, bound))
      return fl_cpu_bad_position(l, k, bound);
  }
  *index = p;
  return FL_OK;
}

fl_status FL_CPU(positions)(const fl_launch *l, const fl_view *v, int64_t bound,
                            const int64_t **index) {
  const int64_t *p = FL_CPU(input)(l, v, FL_I64);
  if (!p)
    return FL_ENOMEM;
  int64_t n = fl_view_numel(v);
  *index = p;
  if (all_within(l, p, n, bound))
    return FL_OK;
  int64_t *from_start = fl_scratch_get(l, (size_t)n * sizeof *p);
  if (!from_start)
    return FL_ENOMEM;
  for (int64_t i = 0; i < n; i++) {
    bool from_end = p[i] < 0 && p[i] >= -bound;
    int64_t k = from_start[i] = p[i] + (from_end ? bound + l->base : 0);
    if (!fl_cpu_position(l, &k, bound))
      return fl_cpu_bad_position(l, k, bound);
  }
  *index = from_start;
  return FL_OK;
}

static int64_t grain_of(int64_t elements) {
  return elements >= PIECE ? 1 : PIECE / (elements > 0 ? elements : 1);
}

/* --- whole slices: index_select and embedding --- */

typedef struct selection {
  size_t size;
  int ndim; /* of the dims before the one selected from */
  const fl_view *x;
  const int64_t *index;
  int64_t n, inner, stride, base;
  char *y;
} selection;

static void select_task(void *context, int64_t begin, int64_t end) {
  const selection *c = context;
  int64_t row = c->inner * (int64_t)c->size;
  fl_walk w;
  fl_walk_start(&w, c->ndim, c->x->shape, begin / c->n);
  int64_t k = begin % c->n, offset = fl_walk_offset(&w, c->x->stride);
  for (int64_t u = begin; u < end; u++) {
    int64_t from = offset + (c->index[k] - c->base) * c->stride;
    memcpy(c->y + u * row, (const char *)c->x->data + from * (int64_t)c->size,
           (size_t)row);
    if (++k == c->n) {
      k = 0;
      fl_walk_next(&w);
      offset = fl_walk_offset(&w, c->x->stride);
    }
  }
}

/* The same where a slice is one element. */
static void select_elements(void *context, int64_t begin, int64_t end) {
  const selection *c = context;
  fl_walk w;
  fl_walk_start(&w, c->ndim, c->x->shape, begin / c->n);
  for (int64_t u = begin, m; u < end; u += m, fl_walk_next(&w)) {
    int64_t k = u % c->n, s = c->stride;
    int64_t offset = fl_walk_offset(&w, c->x->stride) - c->base * s;
    m = end - u < c->n - k ? end - u : c->n - k;
    const int64_t *index = c->index + k;
#define PICK(T)                                                                \
  do {                                                                         \
    T *restrict t = (T *)c->y + u;                                             \
    const T *restrict f = (const T *)c->x->data + offset;                      \
    if (s == 1)                                                                \
      for (int64_t i = 0; i < m; i++)                                          \
        t[i] = f[index[i]];                                                    \
    else                                                                       \
      for (int64_t i = 0; i < m; i++)                                          \
        t[i] = f[index[i] * s];                                                \
  } while (0)
    FL_BY_SIZE(c->size, PICK)
#undef PICK
  }
}

/* y = x at `index` along dim, contiguous. */
static fl_status select_slices(const fl_launch *l, const fl_view *given,
                               int dim, const int64_t *index, int64_t n,
                               void *y) {
  fl_view x = *given;
  selection c = {.size = fl_element_size(&x), .x = &x, .ndim = dim, .y = y};
  c.base = l->base;
  c.n = n;
  c.index = index;
  int64_t inner = 1;
  bool whole = true;
  for (int d = x.ndim - 1; d > dim; d--) {
    whole &= x.stride[d] == inner || x.shape[d] == 1;
    inner *= x.shape[d];
  }
  c.inner = inner;
  if (c.n * fl_numel(dim, x.shape) * inner == 0)
    return FL_OK;
  if (!whole) { /* slices with holes: rare, so take all of x once */
    x.data = (void *)FL_CPU(input)(l, &x, x.dtype);
    fl_row_major(x.ndim, x.shape, x.stride);
    if (!x.data)
      return FL_ENOMEM;
  }
  c.stride = x.stride[dim];
  int64_t slices = c.n * fl_numel(dim, x.shape);
  fl_cpu_parallel(l, slices, grain_of(inner),
                  inner == 1 ? select_elements : select_task, &c);
  return FL_OK;
}

FL_KERNEL(index_select) {
  int dim = (int)l->attrs->v[FL_ATTR_index_select_dim].i;
  fl_view x;
  fl_as_vector(&l->in[FL_IN_index_select_x], &x);
  const int64_t *index;
  fl_status s = FL_CPU(positions)(l, &l->in[FL_IN_index_select_index],
                                  x.shape[dim], &index);
  return s ? s
           : select_slices(l, &x, dim, index,
                           fl_view_numel(&l->in[FL_IN_index_select_index]),
                           l->out[0].data);
}

FL_KERNEL(embedding) {
  const int64_t *index;
  fl_status s = FL_CPU(ids)(l, &l->in[FL_IN_embedding_index],
                            l->in[FL_IN_embedding_weight].shape[0], &index);
  return s ? s
           : select_slices(l, &l->in[FL_IN_embedding_weight], 0, index,
                           fl_view_numel(&l->in[FL_IN_embedding_index]),
                           l->out[0].data);
}

/* --- sums and copies into whole slices --- */

static pick_line line_at(const picking *c, const fl_walk *w, int64_t step,
                         int64_t cut) {
  int last = c->last, dim = c->dim;
  int64_t start = cut * c->cut, n = c->line - start;
  pick_line p = {.n = n < c->cut ? n : c->cut,
                 .y_dim = c->stride[dim],
                 .y_line = dim == last ? 0 : c->stride[last],
                 .src_line = c->src_stride[last]};
  p.index = fl_walk_offset(w, c->index_stride) + start +
            (dim == last ? 0 : step * c->index_stride[dim]);
  p.src = fl_walk_offset(w, c->src_stride) + start * p.src_line +
          (dim == last ? 0 : step * c->src_stride[dim]);
  p.y = fl_walk_offset(w, c->stride) + start * p.y_line - c->base * p.y_dim;
  return p;
}

/* `cut` lines of a lane may be split among threads unless the line is dim
 * itself, where two positions may be the same. */
static void pick_plan(const fl_launch *l, picking *c, const fl_view *index,
                      int dim, bool may_cut) {
  int last = index->ndim - 1;
  while (last > 0 && index->shape[last] == 1)
    last--;
  c->ndim = index->ndim;
  c->dim = dim;
  c->last = last;
  c->base = l->base;
  memcpy(c->lanes, index->shape, sizeof c->lanes);
  fl_row_major(c->ndim, index->shape, c->index_stride);
  c->line = c->cut = index->shape[last];
  c->steps = dim == last ? 1 : index->shape[dim];
  c->lanes[last] = c->lanes[dim] = 1;
  int64_t most = PIECE / (c->steps > 0 ? c->steps : 1);
  most = most < 64 ? 64 : most;
  if ((may_cut || dim != last) && c->cut > most)
    c->cut = most;
  c->cuts = c->cut > 0 ? fl_ceil_div(c->line, c->cut) : 0;
}

static void pick_task(void *context, int64_t begin, int64_t end) {
  const picking *c = context;
  fl_walk w;
  fl_walk_start(&w, c->ndim, c->lanes, begin / c->cuts);
  int64_t cut = begin % c->cuts;
  for (int64_t u = begin; u < end; u++) {
    for (int64_t step = 0; step < c->steps; step++) {
      pick_line p = line_at(c, &w, step, cut);
      c->each(c, &p);
    }
    if (++cut == c->cuts) {
      cut = 0;
      fl_walk_next(&w);
    }
  }
}

static fl_status pick_run(const fl_launch *l, picking *c) {
  int64_t work = c->steps * c->cut;
  if (work == 0)
    return FL_OK;
  return fl_cpu_stoppable(l, fl_numel(c->ndim, c->lanes) * c->cuts,
                          grain_of(work), pick_task, c);
}

/* What sums run in: f64 and f32 floats, 64-bit integers. */
static fl_dtype sum_type(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT ? fl_cpu_wide(d) : FL_I64;
}

static const index_kernels *kernels_of(fl_dtype sums) {
  return sums == FL_I64 ? &FL_CPU(index_i64) : FL_OF_FLOAT(index, sums);
}

static void insert_task(void *context, int64_t begin, int64_t end) {
  const insertion *c = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u / c->cuts, start = u % c->cuts * c->cut, step = !c->single;
    int64_t n = c->inner - start < c->cut ? c->inner - start : c->cut;
    int64_t f = step * (o * c->n * c->inner + start);
    int64_t y = (o * c->bound - c->base) * c->inner + start;
#define PLACE(T)                                                               \
  for (int64_t k = 0; k < c->n; k++)                                           \
  ((T *)c->y)[y + c->index[k]] = ((const T *)c->src)[f + k * step]
    if (c->inner == 1)
      FL_BY_SIZE(c->size, PLACE)
    else
      for (int64_t k = 0; k < c->n; k++, f += step * c->inner)
        FL_CPU(move_line)
    (c->size, n, (char *)c->y + (y + c->index[k] * c->inner) * (int64_t)c->size,
     1, (const char *)c->src + f * (int64_t)c->size, step);
#undef PLACE
  }
}

static void insert_run(const fl_launch *l, insertion *c, int64_t outer,
                       fl_cpu_task task) {
  if (outer * c->n * c->inner == 0)
    return;
  int64_t most = PIECE / c->n;
  most = most < 256 ? 256 : most / 64 * 64;
  c->cut = c->inner < most ? c->inner : most;
  c->cuts = fl_ceil_div(c->inner, c->cut);
  fl_cpu_parallel(l, outer * c->cuts, grain_of(c->n * c->cut), task, c);
}

/* Where sums go: y's own memory or scratch, of type `wide`, holding x, which
 * may be y. */
static void *start_with(const fl_launch *l, const fl_view *x, fl_dtype wide) {
  fl_view to = l->out[0];
  int64_t step = 1;
  to.data = FL_CPU(output)(l, &l->out[0], wide);
  to.dtype = wide;
  for (int i = to.ndim - 1; i >= 0; i--) {
    to.stride[i] = step;
    step *= to.shape[i];
  }
  if (to.data && to.data != x->data)
    FL_CPU(move_view)(l, &to, x);
  return to.data;
}

_Static_assert(FL_ATTR_index_add_dim == FL_ATTR_index_copy_dim &&
                   FL_IN_index_add_index == FL_IN_index_copy_index &&
                   FL_IN_index_add_src == FL_IN_index_copy_src,
               "one function for both rows");

static fl_status insert(const fl_launch *l, bool add) {
  fl_view x;
  fl_as_vector(&l->in[FL_IN_index_add_x], &x);
  const fl_view *src = &l->in[FL_IN_index_add_src], *y = &l->out[0];
  int dim = (int)l->attrs->v[FL_ATTR_index_add_dim].i;
  fl_dtype type = add ? sum_type(x.dtype) : x.dtype;
  insertion c = {.size = fl_dtype_size(type), .base = l->base, .skip = -1};
  c.n = fl_view_numel(&l->in[FL_IN_index_add_index]);
  c.bound = x.shape[dim];
  c.inner = fl_numel(x.ndim - dim - 1, x.shape + dim + 1);
  c.single = src->ndim == 0;
  fl_status s =
      FL_CPU(positions)(l, &l->in[FL_IN_index_add_index], c.bound, &c.index);
  if (s != FL_OK)
    return s;
  c.src = FL_CPU(input)(l, src, type);
  c.y = start_with(l, &l->in[FL_IN_index_add_x], type);
  if (!c.src || !c.y)
    return FL_ENOMEM;
  insert_run(l, &c, fl_numel(dim, x.shape),
             add ? kernels_of(type)->add_slices : insert_task);
  FL_CPU(finish)(l, y, type, c.y);
  return FL_OK;
}

FL_KERNEL(index_add) {
  return insert(l, true);
}

FL_KERNEL(index_copy) {
  return insert(l, false);
}

/* dy (index..., width...) summed into y (rows, width...). */
FL_KERNEL(embedding_backward) {
  const fl_view *dy = &l->in[FL_IN_embedding_backward_dy], *y = &l->out[0];
  fl_dtype wide = fl_cpu_wide(y->dtype);
  insertion c = {.size = fl_dtype_size(wide), .base = l->base};
  int64_t padding = l->attrs->v[FL_ATTR_embedding_backward_padding].i;
  c.skip = padding == FL_ATTR_NONE ? -1 : padding + l->base;
  c.n = fl_view_numel(&l->in[FL_IN_embedding_backward_index]);
  c.bound = y->shape[0];
  c.inner = fl_numel(y->ndim - 1, y->shape + 1);
  fl_status s =
      FL_CPU(ids)(l, &l->in[FL_IN_embedding_backward_index], c.bound, &c.index);
  if (s != FL_OK)
    return s;
  c.src = FL_CPU(input)(l, dy, wide);
  c.y = FL_CPU(output)(l, y, wide);
  if (!c.src || !c.y)
    return FL_ENOMEM;
  uint64_t zero = 0;
  FL_CPU(move_fill)(l, c.size, c.bound * c.inner, c.y, &zero);
  insert_run(l, &c, 1, kernels_of(wide)->add_slices);
  FL_CPU(finish)(l, y, wide, c.y);
  return FL_OK;
}

/* --- single elements: gather and scatter --- */

static void gather_line(const picking *c, const pick_line *p) {
  const int64_t *index = c->index + p->index, n = p->n;
  int64_t along = p->y_dim, line = p->y_line;
#define PICK(T)                                                                \
  do {                                                                         \
    T *restrict t = (T *)c->y + p->index;                                      \
    const T *restrict f = (const T *)c->src + p->y;                            \
    if (along == 1 && line == 0)                                               \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i] = f[index[i]];                                                    \
    else                                                                       \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i] = f[index[i] * along + i * line];                                 \
  } while (0)
  FL_BY_SIZE(c->size, PICK)
#undef PICK
}

FL_KERNEL(gather) {
  fl_view x, index;
  fl_as_vector(&l->in[FL_IN_gather_x], &x);
  fl_as_vector(&l->in[FL_IN_gather_index], &index);
  int dim = (int)l->attrs->v[FL_ATTR_gather_dim].i;
  picking c = {.each = gather_line, .size = fl_element_size(&x), .src = x.data};
  c.y = l->out[0].data;
  fl_status s = FL_CPU(positions)(l, &index, x.shape[dim], &c.index);
  if (s != FL_OK)
    return s;
  pick_plan(l, &c, &index, dim, true);
  memcpy(c.stride, x.stride, sizeof c.stride);
  return pick_run(l, &c);
}

static void scatter_line(const picking *c, const pick_line *p) {
  const int64_t *index = c->index + p->index, n = p->n;
  int64_t along = p->y_dim, line = p->y_line, step = p->src_line;
#define PLACE(T)                                                               \
  do {                                                                         \
    T *t = (T *)c->y + p->y;                                                   \
    const T *f = (const T *)c->src + p->src;                                   \
    if (along == 1 && line == 0)                                               \
      for (int64_t i = 0; i < n; i++)                                          \
        t[index[i]] = f[i * step];                                             \
    else                                                                       \
      for (int64_t i = 0; i < n; i++)                                          \
        t[index[i] * along + i * line] = f[i * step];                          \
  } while (0)
  FL_BY_SIZE(c->size, PLACE)
#undef PLACE
}

_Static_assert(FL_ATTR_scatter_dim == FL_ATTR_scatter_add_dim &&
                   FL_ATTR_scatter_dim == FL_ATTR_scatter_prod_dim &&
                   FL_ATTR_scatter_dim == FL_ATTR_scatter_amax_dim &&
                   FL_ATTR_scatter_dim == FL_ATTR_scatter_amin_dim,
               "one function for five rows");

static fl_status index_place(const fl_launch *l, int how) {
  fl_view x, index;
  fl_as_vector(&l->in[FL_IN_scatter_x], &x);
  fl_as_vector(&l->in[FL_IN_scatter_index], &index);
  const fl_view *src = &l->in[FL_IN_scatter_src], *y = &l->out[0];
  int dim = (int)l->attrs->v[FL_ATTR_scatter_dim].i;
  fl_dtype type = how == PICK_WRITE ? x.dtype : sum_type(x.dtype);
  picking c = {.size = fl_dtype_size(type), .src = src->data};
  fl_status s = FL_CPU(positions)(l, &index, x.shape[dim], &c.index);
  if (s != FL_OK)
    return s;
  pick_plan(l, &c, &index, dim, false);
  fl_row_major(x.ndim, x.shape, c.stride);
  memcpy(c.src_stride, src->stride, sizeof c.src_stride);
  if (src->dtype != type) {
    c.src = FL_CPU(input)(l, src, type);
    fl_row_major(src->ndim, src->shape, c.src_stride);
  }
  if (src->ndim == 0) /* one number for all */
    memset(c.src_stride, 0, sizeof c.src_stride);
  c.y = start_with(l, &l->in[FL_IN_scatter_x], type);
  if (!c.src || !c.y)
    return FL_ENOMEM;
  c.each = how == PICK_WRITE ? scatter_line : kernels_of(type)->line[how];
  s = pick_run(l, &c);
  if (s == FL_OK)
    FL_CPU(finish)(l, y, type, c.y);
  return s;
}

FL_KERNEL(scatter) {
  return index_place(l, PICK_WRITE);
}

FL_KERNEL(scatter_add) {
  return index_place(l, PICK_ADD);
}

FL_KERNEL(scatter_prod) {
  return index_place(l, PICK_MUL);
}

FL_KERNEL(scatter_amax) {
  return index_place(l, PICK_MAX);
}

FL_KERNEL(scatter_amin) {
  return index_place(l, PICK_MIN);
}

/* --- one_hot --- */

typedef struct hot {
  size_t size;
  const int64_t *index;
  int64_t classes, base;
  char *y;
  const void *one;
} hot;

static void one_hot_task(void *context, int64_t begin, int64_t end) {
  const hot *c = context;
  int64_t row = c->classes * (int64_t)c->size;
  memset(c->y + begin * row, 0, (size_t)((end - begin) * row));
  for (int64_t i = begin; i < end; i++)
    memcpy(c->y + i * row + (c->index[i] - c->base) * (int64_t)c->size, c->one,
           c->size);
}

FL_KERNEL(one_hot) {
  const fl_view *y = &l->out[0];
  uint64_t room;
  hot c = {.size = fl_element_size(y),
           .classes = l->attrs->v[FL_ATTR_one_hot_classes].i,
           .base = l->base};
  c.y = y->data;
  c.one = fl_element(y->dtype, 1, &room);
  fl_status s = FL_CPU(ids)(l, &l->in[0], c.classes, &c.index);
  if (s == FL_OK)
    fl_cpu_parallel(l, fl_view_numel(&l->in[0]), grain_of(c.classes),
                    one_hot_task, &c);
  return s;
}
