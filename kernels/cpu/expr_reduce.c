/* Expressions that are reduced along dims as they are computed: the kernel
 * "expr" for programs with a reduction. Sums are kept in f64 or i64. */
#include "machine.h"

#include <math.h>
#include <string.h>

#define PIECE   16384 /* elements a thread takes at a time */
#define SEGMENT 32768 /* elements reduced into one partial result */
#define WIDE    128   /* accumulators that narrow rows are spread over */

/* --- loops: `groups` of `rows` of `width` values, each group into `width`
 * accumulators --- */

#define SUM(a, v)  a += (A)(v)
#define PROD(a, v) a *= (A)(v)
#define MAX(a, v)  a = (A)(v) > a || v != v ? (A)(v) : a
#define MIN(a, v)  a = (A)(v) < a || v != v ? (A)(v) : a

#define EACH(n, a, v, OP)                                                      \
  _Pragma("omp simd") for (int64_t i = 0; i < (n); i++) OP((a)[i], (v)[i]);
#define LOOP(name, suffix, T_, A_, OP, SIMD)                                   \
  static void name##_##suffix(int64_t groups, int64_t rows, int64_t width,     \
                              void *to, const void *from) {                    \
    typedef T_ T;                                                              \
    typedef A_ A;                                                              \
    const T *v = from;                                                         \
    A wide[WIDE], *a = to;                                                     \
    int64_t many = WIDE / width * width; /* whole rows side by side */         \
    for (int64_t g = 0; g < groups; g++, a += width) {                         \
      int64_t n = rows * width;                                                \
      if (width == 1) {                                                        \
        A s = *a;                                                              \
        if (n < 8)                                                             \
          for (int64_t i = 0; i < n; i++)                                      \
            OP(s, v[i]);                                                       \
        else                                                                   \
          SIMD for (int64_t i = 0; i < n; i++) OP(s, v[i]);                    \
        *a = s;                                                                \
        v += n;                                                                \
        continue;                                                              \
      }                                                                        \
      if (many > width && n >= 2 * many) {                                     \
        for (int64_t i = 0; i < many; i++)                                     \
          wide[i] = (A)v[i];                                                   \
        for (v += many, n -= many; n >= many; v += many, n -= many)            \
          EACH(many, wide, v, OP)                                              \
        for (int64_t k = 0; k < many; k += width)                              \
          EACH(width, a, wide + k, OP)                                         \
      }                                                                        \
      for (; n > 0; v += width, n -= width)                                    \
        EACH(width, a, v, OP)                                                  \
    }                                                                          \
  }
#define LOOPS(name, OP, SIMD)                                                  \
  LOOP(name, f32, float, double, OP, SIMD)                                     \
  LOOP(name, f64, double, double, OP, SIMD)                                    \
  LOOP(name, i64, int64_t, int64_t, OP, SIMD)
LOOPS(sum, SUM, _Pragma("omp simd reduction(+ : s)"))
LOOPS(prod, PROD, _Pragma("omp simd reduction(* : s)"))
LOOPS(max, MAX, )
LOOPS(min, MIN, )

typedef void (*loop)(int64_t groups, int64_t rows, int64_t width, void *to,
                     const void *from);
#define TABLE(name)                                                            \
  { name##_f32, name##_f64, name##_i64 }
static const loop loops[][3] = {
    {0}, TABLE(sum), TABLE(prod), TABLE(max), TABLE(min)};

/* --- the plan --- */

typedef union acc {
  double f;
  int64_t i;
} acc;

typedef struct job {
  fl_machine m;
  fl_dtype type, acc_type, out_dtype; /* of values, accumulators, the result */
  acc first;
  loop reduce, fold; /* values, accumulators into accumulators */
  char *out;
  size_t out_size;
  int64_t kept, reduced; /* elements */
  int64_t width;         /* kept elements that lie innermost; 1: reduced ones */
  int64_t segments, segment; /* of the reduced elements */
  int64_t blocks, block;     /* of the width */
  acc *partial;              /* of every task, when there are segments */
} job;

static void set_loops(job *j, const fl_program *p) {
  static const double starts[] = {0, 0, 1, -INFINITY, INFINITY};
  static const int64_t whole[] = {0, 0, 1, INT64_MIN, INT64_MAX};
  j->type = fl_program_type(p, p->out[0]);
  int t = j->type == FL_F32 ? 0 : j->type == FL_F64 ? 1 : 2;
  bool real = t < 2;
  j->acc_type = real ? FL_F64 : FL_I64;
  if (real)
    j->first.f = starts[p->reduce];
  else
    j->first.i = whole[p->reduce];
  j->reduce = loops[p->reduce][t];
  j->fold = loops[p->reduce][real ? 1 : 2];
}

static fl_view expr_reduce_together(const fl_launch *l) {
  fl_view all = {.ndim = 0};
  for (int k = 0; k < l->n_in; k++)
    if (l->in[k].ndim > all.ndim)
      all.ndim = l->in[k].ndim;
  for (int i = 0; i < all.ndim; i++)
    all.shape[i] = 1;
  for (int k = 0; k < l->n_in; k++)
    for (int i = 0; i < l->in[k].ndim; i++)
      if (l->in[k].shape[i] != 1)
        all.shape[all.ndim - l->in[k].ndim + i] = l->in[k].shape[i];
  return all;
}

/* Dims in the order of the walk: kept, reduced and, if the innermost ones are
 * kept, those last. The result has stride 0 along reduced ones. */
static void expr_reduce_plan(job *j, const fl_launch *l) {
  fl_view all = expr_reduce_together(l);
  int n, order[FL_MAX_DIMS], at = 0;
  const int64_t *dims = fl_attr_list(l->attrs, FL_ATTR_reduce_dims, &n);
  uint32_t mask = n ? 0 : (1u << all.ndim) - 1;
  int64_t stride[FL_MAX_DIMS], s = 1;
  for (int k = 0; k < n; k++)
    mask |= 1u << dims[k];
  j->kept = j->reduced = j->width = 1;
  for (int i = all.ndim - 1; i >= 0; i--) {
    bool r = mask >> i & 1;
    stride[i] = r ? 0 : s;
    *(r ? &j->reduced : &j->kept) *= all.shape[i];
    s *= r ? 1 : all.shape[i];
  }
  int inner = all.ndim; /* from here on dims are innermost */
  for (; inner > 0 && !(mask >> (inner - 1) & 1) && j->reduced > 1; inner--)
    j->width *= all.shape[inner - 1];
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < all.ndim; i++)
      if ((int)(mask >> i & 1) == turn && i < inner)
        order[at++] = i;
  for (int i = inner; i < all.ndim; i++)
    order[at++] = i;
  fl_machine *m = &j->m;
  m->tiles.ndim = all.ndim;
  for (int k = 0; k <= l->n_in; k++) {
    fl_tiled o, *to = &m->op[k];
    if (k == 0) {
      *to = (fl_tiled){.dtype = FL_F64, .size = 8};
      memcpy(o.stride, stride, sizeof stride);
    } else {
      fl_tiled_bind(to, &l->in[k - 1], all.ndim,
                    (fl_dtype)l->program->in_type[k - 1]);
      memcpy(o.stride, to->stride, sizeof o.stride);
    }
    for (int i = 0; i < all.ndim; i++)
      to->stride[i] = o.stride[order[i]];
  }
  for (int i = 0; i < all.ndim; i++)
    m->tiles.shape[i] = all.shape[order[i]];
}

/* --- running --- */

static void expr_reduce_finish(const job *j, int64_t at, int64_t n,
                               const acc *a) {
  FL_CPU(convert)
  (n, j->out_dtype, j->out + (size_t)at * j->out_size, j->acc_type, a);
}

/* groups * rows * width elements from the run's place on. */
static void reduce(const job *j, fl_machine_run *r, int64_t groups,
                   int64_t rows, int64_t width, acc *a) {
  size_t size = fl_dtype_size(j->type);
  int64_t group = rows * width, left = groups * group, row = 0, col = 0;
  while (left > 0) {
    int64_t take = fl_tiles_take(&r->w, &j->m.tiles, left, j->m.tile), k;
    FL_CPU(machine_tile)(r, take, false);
    const char *v = FL_CPU(machine_value)(r, j->m.program->out[0], take);
    left -= take;
    for (; take > 0; take -= k, v += (size_t)k * size) {
      if (row == 0 && col == 0 && take >= group) {
        int64_t n = take / group;
        k = n * group;
        j->reduce(n, rows, width, a, v);
        a += n * width;
        continue;
      }
      if (col == 0 && take >= width) {
        int64_t n = take / width < rows - row ? take / width : rows - row;
        k = n * width;
        j->reduce(1, n, width, a, v);
        row += n;
      } else {
        k = width - col < take ? width - col : take;
        j->reduce(1, 1, k, a + col, v);
        col += k;
        row += col == width;
        col = col == width ? 0 : col;
      }
      if (row == rows) {
        row = 0;
        a += width;
      }
    }
  }
}

static void begin_with(const job *j, acc *a, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    a[i] = j->first;
}

/* Groups that are reduced whole, as many at once as there is room for. */
static void whole_groups(const job *j, fl_machine_run *r, int64_t begin,
                         int64_t end) {
  acc a[FL_MACHINE_TILE];
  int64_t most = FL_MACHINE_TILE / j->width;
  for (int64_t t = begin, n; t < end; t += n) {
    n = end - t < most ? end - t : most;
    begin_with(j, a, n * j->width);
    if (j->reduced)
      FL_CPU(machine_seek)(r, t * j->reduced * j->width);
    reduce(j, r, n, j->reduced, j->width, a);
    expr_reduce_finish(j, t * j->width, n * j->width, a);
  }
}

/* A task is (outer kept elements, block of the width, segment). */
static void tasks(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  fl_machine_run r;
  acc own[FL_MACHINE_TILE];
  FL_CPU(machine_start)(&r, &j->m);
  if (j->segments == 1 && j->blocks == 1) {
    whole_groups(j, &r, begin, end);
    return;
  }
  for (int64_t t = begin; t < end; t++) {
    int64_t s = t % j->segments, b = t / j->segments % j->blocks;
    int64_t outer = t / j->segments / j->blocks, from = s * j->segment;
    int64_t rows = j->reduced - from, n = j->width - b * j->block;
    rows = rows < j->segment ? rows : j->segment;
    n = n < j->block ? n : j->block;
    acc *a = j->partial ? j->partial + t * j->block : own;
    int64_t at = (outer * j->reduced + from) * j->width + b * j->block;
    begin_with(j, a, n);
    if (j->blocks == 1 && rows > 0) {
      FL_CPU(machine_seek)(&r, at);
      reduce(j, &r, 1, rows, n, a);
    }
    for (int64_t i = 0; i < rows && j->blocks > 1; i++, at += j->width) {
      FL_CPU(machine_seek)(&r, at);
      reduce(j, &r, 1, 1, n, a);
    }
    if (!j->partial)
      expr_reduce_finish(j, outer * j->width + b * j->block, n, a);
  }
}

/* Partial results in the order of their segments. */
static void expr_reduce_combine(const job *j) {
  for (int64_t t = 0; t < j->kept / j->width * j->blocks; t++) {
    acc *a = j->partial + t * j->segments * j->block;
    int64_t b = t % j->blocks, n = j->width - b * j->block;
    n = n < j->block ? n : j->block;
    for (int64_t s = 1; s < j->segments; s++)
      j->fold(1, 1, n, a, a + s * j->block);
    expr_reduce_finish(j, t / j->blocks * j->width + b * j->block, n, a);
  }
}

static int64_t at_least_one(int64_t n) {
  return n > 1 ? n : 1;
}

fl_status FL_CPU(expr_reduce)(const fl_launch *l) {
  job j;
  set_loops(&j, l->program);
  expr_reduce_plan(&j, l);
  j.out = l->out[0].data;
  j.out_dtype = l->out[0].dtype;
  j.out_size = fl_dtype_size(j.out_dtype);
  j.partial = NULL;
  if (j.kept == 0)
    return FL_OK;
  fl_status s = FL_CPU(machine_open)(&j.m, l);
  if (s)
    return s;
  j.block = j.width < FL_MACHINE_TILE ? j.width : FL_MACHINE_TILE;
  j.blocks = fl_ceil_div(j.width, j.block);
  j.segment = at_least_one(SEGMENT / j.block);
  j.segments = at_least_one(fl_ceil_div(j.reduced, j.segment));
  /* enough tasks without: one segment */
  int64_t n = j.kept / j.width * j.blocks;
  if (n >= 64) {
    j.segment = at_least_one(j.reduced);
    j.segments = 1;
  }
  n *= j.segments;
  if (j.segments > 1 &&
      !(j.partial = fl_scratch_get(l, (size_t)(n * j.block) * sizeof(acc))))
    return FL_ENOMEM;
  int64_t cost = j.block * (j.reduced < j.segment ? j.reduced : j.segment);
  fl_cpu_parallel(l, n, at_least_one(PIECE / at_least_one(cost)), tasks, &j);
  if (j.partial)
    expr_reduce_combine(&j);
  return FL_OK;
}
