/* Kernels that move elements or make them from attributes alone: cat, pad,
 * flip, roll, repeat, triangles, arange, linspace, eye, and the backward
 * kernels of pad and as_strided. Copies and fills are in copy.c. */
#include "shape.h"

#include "../../runtime/math/math.h"

#define PIECE (16 << 10) /* elements of light work for a thread */
#define CHUNK 256        /* elements made at once before conversion */

static void *shape_at(const fl_view *v, int64_t offset) {
  return (char *)v->data + offset * (int64_t)fl_element_size(v);
}

/* --- cat, flip, roll, repeat --- */

FL_KERNEL(cat) {
  int dim = (int)l->attrs->v[FL_ATTR_cat_dim].i;
  fl_view slice = l->out[0];
  int64_t start = 0;
  for (int i = 0; i < l->n_in; i++) {
    const fl_view *x = &l->in[i];
    if (x->ndim != slice.ndim || fl_view_numel(x) == 0)
      continue; /* nothing: an empty (0) may stand among others */
    slice.data = shape_at(&l->out[0], start * slice.stride[dim]);
    slice.shape[dim] = x->shape[dim];
    FL_CPU(move_view)(l, &slice, x);
    start += x->shape[dim];
  }
  return FL_OK;
}

FL_KERNEL(flip) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int n;
  const int64_t *dims = fl_attr_list(l->attrs, FL_ATTR_flip_dims, &n);
  int64_t stride[FL_MAX_DIMS], start = 0;
  bool turned[FL_MAX_DIMS] = {false};
  if (fl_view_numel(x) == 0)
    return FL_OK;
  memcpy(stride, x->stride, sizeof stride);
  for (int i = 0; i < n && x->ndim > 0; i++)
    turned[dims[i]] = true;
  for (int d = 0; d < x->ndim; d++)
    if (turned[d]) {
      start += (x->shape[d] - 1) * x->stride[d];
      stride[d] = -x->stride[d];
    }
  FL_CPU(move)
  (l, fl_element_size(x), x->ndim, x->shape, y->data, y->stride,
   shape_at(x, start), stride);
  return FL_OK;
}

/* Each rolled dim splits what is left in two: `d` and the offsets say where
 * this part of the block begins. */
static void roll_from(const fl_launch *l, const fl_view *x, const int64_t *by,
                      int d, int64_t *shape, int64_t to, int64_t from) {
  const fl_view *y = &l->out[0];
  while (d < x->ndim && by[d] == 0) {
    shape[d] = x->shape[d];
    d++;
  }
  if (d == x->ndim) {
    FL_CPU(move)
    (l, fl_element_size(x), x->ndim, shape, shape_at(y, to), y->stride,
     shape_at(x, from), x->stride);
    return;
  }
  int64_t head = by[d], tail = x->shape[d] - by[d];
  shape[d] = tail;
  roll_from(l, x, by, d + 1, shape, to + head * y->stride[d], from);
  shape[d] = head;
  roll_from(l, x, by, d + 1, shape, to, from + tail * x->stride[d]);
}

FL_KERNEL(roll) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int n, nd;
  const int64_t *shifts = fl_attr_list(l->attrs, FL_ATTR_roll_shifts, &n);
  const int64_t *dims = fl_attr_list(l->attrs, FL_ATTR_roll_dims, &nd);
  int64_t numel = fl_view_numel(x);
  if (numel == 0)
    return FL_OK;
  if (nd == 0 || x->ndim == 0) { /* in row-major order, whatever the shape */
    const char *p = FL_CPU(input)(l, x, x->dtype);
    if (!p)
      return FL_ENOMEM;
    int64_t by = fl_remainder_i64(n ? shifts[0] : 0, numel), one = 1,
            tail = numel - by;
    FL_CPU(move)
    (l, fl_element_size(x), 1, &tail, shape_at(y, by), &one, p, &one);
    FL_CPU(move)
    (l, fl_element_size(x), 1, &by, y->data, &one,
     p + tail * (int64_t)fl_element_size(x), &one);
    return FL_OK;
  }
  int64_t by[FL_MAX_DIMS] = {0}, shape[FL_MAX_DIMS];
  for (int i = 0; i < n; i++) {
    int64_t size = x->shape[dims[i]];
    by[dims[i]] = (by[dims[i]] + fl_remainder_i64(shifts[i], size)) % size;
  }
  roll_from(l, x, by, 0, shape, 0, 0);
  return FL_OK;
}

/* The result as (r0, s0, r1, s1, ...), the input with stride 0 along the r. */
FL_KERNEL(repeat) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int64_t shape[FL_MOVE_DIMS], to[FL_MOVE_DIMS], from[FL_MOVE_DIMS];
  for (int d = 0; d < y->ndim; d++) {
    int k = d - (y->ndim - x->ndim);
    int64_t size = k < 0 ? 1 : x->shape[k];
    shape[2 * d] = size > 0 ? y->shape[d] / size : 0;
    shape[2 * d + 1] = size;
    to[2 * d] = size * y->stride[d];
    to[2 * d + 1] = y->stride[d];
    from[2 * d] = 0;
    from[2 * d + 1] = k < 0 ? 0 : x->stride[k];
  }
  FL_CPU(move)
  (l, fl_element_size(x), 2 * y->ndim, shape, y->data, to, x->data, from);
  return FL_OK;
}

/* --- pad --- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

static int64_t pad_source(int mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size)
    return i;
  switch (mode) {
  case REFLECT:
    return i < 0 ? -i : 2 * (size - 1) - i;
  case REPLICATE:
    return i < 0 ? 0 : size - 1;
  case CIRCULAR:
    return fl_remainder_i64(i, size);
  default:
    return -1;
  }
}

/* `list` is before, after of the last dim, then of the one before it ... */
static fl_status pad_plan(const fl_launch *l, padding *p, int ndim,
                          const int64_t *big, const int64_t *small, int mode,
                          int n, const int64_t *list) {
  *p = (padding){.ndim = ndim, .mode = mode, .big = big, .small = small};
  int64_t total = 0;
  for (int d = 0; d < ndim; d++)
    total += big[d];
  int64_t *map = fl_scratch_get(l, (size_t)(total + 1) * sizeof *map);
  if (!map)
    return FL_ENOMEM;
  for (int d = 0; d < ndim; d++) {
    int k = 2 * (ndim - 1 - d);
    p->before[d] = k < n ? list[k] : 0;
    p->map[d] = map;
    for (int64_t i = 0; i < big[d]; i++)
      *map++ = pad_source(mode, i - p->before[d], small[d]);
    if (p->outer == d && p->before[d] == 0 && big[d] == small[d])
      p->outer = d + 1;
  }
  return FL_OK;
}

typedef struct pad_work {
  padding p;
  size_t size;
  const fl_view *x;
  char *y;
  const void *value;
} pad_work;

static void pad_task(void *context, int64_t begin, int64_t end) {
  const pad_work *c = context;
  const padding *p = &c->p;
  int last = p->ndim - 1;
  int64_t n = p->big[last], from, to, stride = c->x->stride[last];
  const int64_t *map = p->map[last];
  pad_inside(p, &from, &to);
  fl_walk w;
  fl_walk_start(&w, last, p->big, begin);
  for (int64_t r = begin; r < end; r++, fl_walk_next(&w)) {
    bool none;
    int64_t row = pad_row(p, &w, c->x->stride, &none);
    char *y = c->y + r * n * (int64_t)c->size;
    if (none) {
      FL_CPU(move_line)(c->size, n, y, 1, c->value, 0);
      continue;
    }
    const char *x = (const char *)c->x->data + row * (int64_t)c->size;
#define EDGE(T)                                                                \
  do {                                                                         \
    const T *f = (const T *)x, value = *(const T *)c->value;                   \
    T *t = (T *)y;                                                             \
    for (int64_t i = 0; i < from; i++)                                         \
      t[i] = map[i] < 0 ? value : f[map[i] * stride];                          \
    for (int64_t i = to; i < n; i++)                                           \
      t[i] = map[i] < 0 ? value : f[map[i] * stride];                          \
  } while (0)
    FL_BY_SIZE(c->size, EDGE)
#undef EDGE
    FL_CPU(move_line)
    (c->size, to - from, y + from * (int64_t)c->size, 1,
     x + (from - p->before[last]) * stride * (int64_t)c->size, stride);
  }
}

FL_KERNEL(pad) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int n;
  const int64_t *list = fl_attr_list(l->attrs, FL_ATTR_pad_pad, &n);
  int64_t numel = fl_view_numel(y);
  uint64_t room;
  if (numel == 0)
    return FL_OK;
  const void *value =
      fl_element(x->dtype, l->attrs->v[FL_ATTR_pad_value].f, &room);
  int64_t whole;
  if (x->dtype == FL_I64 &&
      fl_attr_whole(l->attrs, FL_ATTR_pad_value, FL_WHOLE_pad_value, &whole))
    room = (uint64_t)whole;
  if (x->ndim == 0 || fl_view_numel(x) == 0) {
    FL_CPU(move_fill)
    (l, fl_element_size(x), numel, y->data, x->ndim == 0 ? x->data : value);
    return FL_OK;
  }
  pad_work c = {
      .size = fl_element_size(x), .x = x, .y = y->data, .value = value};
  fl_status s = pad_plan(l, &c.p, x->ndim, y->shape, x->shape,
                         (int)l->attrs->v[FL_ATTR_pad_mode].i, n, list);
  if (s != FL_OK)
    return s;
  int64_t line = y->shape[y->ndim - 1], grain = PIECE / line;
  fl_cpu_parallel(l, numel / line, grain > 1 ? grain : 1, pad_task, &c);
  return FL_OK;
}

/* --- backward of pad and as_strided, rows above a sum --- */

FL_KERNEL(pad_backward) {
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  int n;
  const int64_t *list = fl_attr_list(l->attrs, FL_ATTR_pad_backward_pad, &n);
  fl_dtype wide = fl_cpu_wide(dx->dtype);
  const void *from = FL_CPU(input)(l, dy, wide);
  void *to = FL_CPU(output)(l, dx, wide);
  if (!from || !to)
    return FL_ENOMEM;
  memset(to, 0, (size_t)fl_view_numel(dx) * fl_dtype_size(wide));
  if (dx->ndim == 0) {
    memcpy(to, from, fl_dtype_size(wide));
  } else if (fl_view_numel(dx) > 0 && fl_view_numel(dy) > 0) {
    unpad_work c = {.dy = from, .dx = to};
    fl_status s =
        pad_plan(l, &c.p, dx->ndim, dy->shape, dx->shape,
                 (int)l->attrs->v[FL_ATTR_pad_backward_mode].i, n, list);
    if (s != FL_OK)
      return s;
    if (c.p.outer == dx->ndim)
      c.p.outer--; /* no padding at all: rows of the last dim */
    int outer = c.p.outer;
    c.big = fl_numel(dx->ndim - outer, dy->shape + outer);
    c.small = fl_numel(dx->ndim - outer, dx->shape + outer);
    int64_t grain = PIECE / c.big;
    fl_cpu_parallel(l, fl_numel(outer, dx->shape), grain > 1 ? grain : 1,
                    FL_OF_FLOAT(shape, wide)->unpad, &c);
  }
  FL_CPU(finish)(l, dx, wide, to);
  return FL_OK;
}

/* dy is what as_strided made of a contiguous tensor: places that it shows more
 * than once get the sum, in the order of dy. */
FL_KERNEL(as_strided_backward) {
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  int n;
  strided_work c = {
      .size = fl_attr_list(l->attrs, FL_ATTR_as_strided_backward_size, &n)};
  c.stride = fl_attr_list(l->attrs, FL_ATTR_as_strided_backward_stride, &n);
  c.ndim = n;
  fl_dtype wide = fl_cpu_wide(dx->dtype);
  const void *from = FL_CPU(input)(l, dy, wide);
  void *to = FL_CPU(output)(l, dx, wide);
  if (!from || !to)
    return FL_ENOMEM;
  memset(to, 0, (size_t)fl_view_numel(dx) * fl_dtype_size(wide));
  int64_t offset = l->attrs->v[FL_ATTR_as_strided_backward_offset].i;
  if (fl_view_numel(dy) > 0)
    FL_OF_FLOAT(shape, wide)->unstride(&c, from, to, offset);
  FL_CPU(finish)(l, dx, wide, to);
  return FL_OK;
}

/* --- triangles --- */

typedef struct triangle {
  const fl_view *x, *y;
  int64_t diagonal;
  bool upper;
} triangle;

static void triangle_task(void *context, int64_t begin, int64_t end) {
  const triangle *c = context;
  const fl_view *x = c->x;
  int last = x->ndim - 1;
  int64_t rows = x->shape[last - 1], m = x->shape[last];
  int64_t size = (int64_t)fl_element_size(x);
  fl_walk w;
  fl_walk_start(&w, last, x->shape, begin);
  for (int64_t r = begin; r < end; r++, fl_walk_next(&w)) {
    /* first column above the diagonal's left side or below its right one */
    int64_t k = r % rows + c->diagonal + !c->upper;
    k = k < 0 ? 0 : k > m ? m : k;
    char *y = (char *)c->y->data + r * m * size;
    const char *f = shape_at(x, fl_walk_offset(&w, x->stride));
    int64_t from = c->upper ? k : 0, to = c->upper ? m : k;
    memset(y, 0, (size_t)(from * size));
    FL_CPU(move_line)
    ((size_t)size, to - from, y + from * size, 1,
     f + from * x->stride[last] * size, x->stride[last]);
    memset(y + to * size, 0, (size_t)((m - to) * size));
  }
}

static fl_status triangles(const fl_launch *l, bool upper) {
  const fl_view *x = &l->in[0];
  _Static_assert(FL_ATTR_tril_diagonal == FL_ATTR_triu_diagonal,
                 "read for both rows");
  triangle c = {x, &l->out[0], l->attrs->v[FL_ATTR_tril_diagonal].i, upper};
  int64_t numel = fl_view_numel(x);
  if (numel == 0)
    return FL_OK;
  int64_t m = x->shape[x->ndim - 1], big = (int64_t)1 << 62;
  c.diagonal = fl_clamp_i64(c.diagonal, -big, big); /* sums stay in range */
  fl_cpu_parallel(l, numel / m, PIECE / m + 1, triangle_task, &c);
  return FL_OK;
}

FL_KERNEL(tril) {
  return triangles(l, false);
}

FL_KERNEL(triu) {
  return triangles(l, true);
}

/* --- made from attributes --- */

typedef struct sequence {
  const fl_view *y;
  double start, stop, step;
  int64_t n, istart, istep;
  bool whole; /* integer results of integer steps: exact beyond 2^53 */
  bool both_ends;
  bool even; /* integers from istart to istep in even steps */
} sequence;

/* Element j of the integers from start to stop in `last` even steps, fewer than
 * 2^31, without its fraction. */
static int64_t even_step(int64_t start, int64_t stop, int64_t j, int64_t last) {
  bool up = stop >= start;
  uint64_t from = (uint64_t)start, to = (uint64_t)stop;
  uint64_t way = up ? to - from : from - to, n = (uint64_t)last;
  uint64_t part = way % n * (uint64_t)j;
  uint64_t whole = way / n * (uint64_t)j + part / n;
  int64_t y = (int64_t)(up ? from + whole : from - whole);
  if (part % n == 0)
    return y;
  return up && y < 0 ? y + 1 : !up && y > 0 ? y - 1 : y;
}

static void sequence_task(void *context, int64_t begin, int64_t end) {
  const sequence *c = context;
  union {
    double f[CHUNK];
    int64_t i[CHUNK];
  } u;
  for (int64_t i = begin; i < end; i += CHUNK) {
    int64_t n = end - i < CHUNK ? end - i : CHUNK, half = c->n / 2;
    if (c->even)
      for (int64_t j = 0; j < n; j++)
        u.i[j] = even_step(c->istart, c->istep, i + j, c->n - 1);
    else if (c->whole)
      for (int64_t j = 0; j < n; j++)
        u.i[j] = c->istart + (i + j) * c->istep;
    else if (c->both_ends) /* so that the last one is `stop` itself */
      for (int64_t j = 0; j < n; j++)
        u.f[j] = i + j < half ? c->start + (double)(i + j) * c->step
                              : c->stop - (double)(c->n - 1 - i - j) * c->step;
    else
      for (int64_t j = 0; j < n; j++)
        u.f[j] = c->start + (double)(i + j) * c->step;
    FL_CPU(convert)
    (n, c->y->dtype, shape_at(c->y, i), c->whole || c->even ? FL_I64 : FL_F64,
     &u);
  }
}

FL_KERNEL(arange) {
  const fl_attr *a = l->attrs->v;
  const fl_view *y = &l->out[0];
  sequence c = {.y = y,
                .start = a[FL_ATTR_arange_start].f,
                .step = a[FL_ATTR_arange_step].f,
                .n = y->shape[0]};
  c.whole = fl_dtype_kind(y->dtype) != FL_KIND_FLOAT &&
            fl_attr_whole(l->attrs, FL_ATTR_arange_start, FL_WHOLE_arange_start,
                          &c.istart) &&
            fl_attr_whole(l->attrs, FL_ATTR_arange_step, FL_WHOLE_arange_step,
                          &c.istep);
  fl_cpu_parallel(l, c.n, PIECE, sequence_task, &c);
  return FL_OK;
}

FL_KERNEL(linspace) {
  const fl_attr *a = l->attrs->v;
  const fl_view *y = &l->out[0];
  sequence c = {.y = y,
                .start = a[FL_ATTR_linspace_start].f,
                .stop = a[FL_ATTR_linspace_stop].f,
                .n = y->shape[0]};
  c.both_ends = c.n > 1;
  if (c.both_ends)
    c.step = (c.stop - c.start) / (double)(c.n - 1);
  c.even = c.both_ends && c.n <= INT32_MAX &&
           fl_dtype_kind(y->dtype) != FL_KIND_FLOAT &&
           fl_attr_whole(l->attrs, FL_ATTR_linspace_start,
                         FL_WHOLE_linspace_start, &c.istart) &&
           fl_attr_whole(l->attrs, FL_ATTR_linspace_stop,
                         FL_WHOLE_linspace_stop, &c.istep);
  c.whole = c.n == 1 && fl_dtype_kind(y->dtype) != FL_KIND_FLOAT &&
            fl_attr_whole(l->attrs, FL_ATTR_linspace_start,
                          FL_WHOLE_linspace_start, &c.istart);
  fl_cpu_parallel(l, c.n, PIECE, sequence_task, &c);
  return FL_OK;
}

FL_KERNEL(eye) {
  const fl_view *y = &l->out[0];
  int64_t n = y->shape[0], m = y->shape[1];
  uint64_t room, zero = 0;
  size_t size = fl_element_size(y);
  const void *one = fl_element(y->dtype, 1, &room);
  FL_CPU(move_fill)(l, size, n * m, y->data, &zero);
  FL_CPU(move_line)(size, n < m ? n : m, y->data, m + 1, one, 0);
  return FL_OK;
}
