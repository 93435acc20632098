/* Expressions that are reduced along dims as they are computed: the kernel
 * "expr" for programs with a reduction. Sums are kept in f64 or i64. */
#include "machine.h"

#include <math.h>
#include <string.h>

#define PIECE   16384 /* elements a thread takes at a time */
#define SEGMENT 32768 /* elements reduced into one partial result */
#define NARROW  16    /* kept rows shorter than this are not worth it */

/* --- loops: n values into one accumulator, or into one each --- */

#define SUM(a, v)  a += (A)(v)
#define PROD(a, v) a *= (A)(v)
#define MAX(a, v)  a = (A)(v) > a || v != v ? (A)(v) : a
#define MIN(a, v)  a = (A)(v) < a || v != v ? (A)(v) : a

#define LOOPS(name, suffix, T, A_, OP, SIMD)                                   \
  static void row_##name##_##suffix(int64_t n, void *to, const void *from) {   \
    typedef A_ A;                                                              \
    const T *v = from;                                                         \
    A a = *(A *)to;                                                            \
    SIMD for (int64_t i = 0; i < n; i++) OP(a, v[i]);                          \
    *(A *)to = a;                                                              \
  }                                                                            \
  static void each_##name##_##suffix(int64_t n, void *to, const void *from) {  \
    typedef A_ A;                                                              \
    const T *v = from;                                                         \
    A *a = to;                                                                 \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) OP(a[i], v[i]);        \
  }
#define TYPES(name, OP, SIMD)                                                  \
  LOOPS(name, f32, float, double, OP, SIMD)                                    \
  LOOPS(name, f64, double, double, OP, SIMD)                                   \
  LOOPS(name, i64, int64_t, int64_t, OP, SIMD)
TYPES(sum, SUM, _Pragma("omp simd reduction(+ : a)"))
TYPES(prod, PROD, _Pragma("omp simd reduction(* : a)"))
TYPES(max, MAX, )
TYPES(min, MIN, )

typedef void (*loop)(int64_t n, void *to, const void *from);
#define ROW(name)                                                              \
  { row_##name##_f32, row_##name##_f64, row_##name##_i64 }
#define EACH(name)                                                             \
  { each_##name##_f32, each_##name##_f64, each_##name##_i64 }
static const loop row_loops[][3] = {
    {0}, ROW(sum), ROW(prod), ROW(max), ROW(min)};
static const loop each_loops[][3] = {
    {0}, EACH(sum), EACH(prod), EACH(max), EACH(min)};

/* --- the plan --- */

typedef union acc {
  double f;
  int64_t i;
} acc;

typedef struct job {
  fl_machine m;
  fl_dtype type, acc_type, out_dtype; /* of values, accumulators, the result */
  acc first;
  loop row, each, fold; /* fold: accumulators into accumulators */
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
  j->row = row_loops[p->reduce][t];
  j->each = each_loops[p->reduce][t];
  j->fold = each_loops[p->reduce][real ? 1 : 2];
}

static fl_view together(const fl_launch *l) {
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

/* Dims in the order of the walk: kept, reduced and, if the innermost one is
 * kept and long, that one last. The result has stride 0 along reduced ones. */
static void plan(job *j, const fl_launch *l) {
  fl_view all = together(l);
  int n, order[FL_MAX_DIMS], at = 0;
  const int64_t *dims = fl_attr_list(l->attrs, 0, &n);
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
  int last = all.ndim - 1;
  bool inner = mask && all.ndim && !(mask >> last & 1) &&
               all.shape[last] >= NARROW && j->reduced > 1;
  if (inner)
    j->width = all.shape[last];
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < all.ndim; i++)
      if ((int)(mask >> i & 1) == turn && !(inner && i == last))
        order[at++] = i;
  if (inner)
    order[at++] = last;
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

static void finish(const job *j, int64_t at, int64_t n, const acc *a) {
  FL_CPU(convert)
  (n, j->out_dtype, j->out + (size_t)at * j->out_size, j->acc_type, a);
}

/* `rows` times `n` elements, one after the other, into n accumulators (each)
 * or, with n reduced elements in a row, into one for each row. */
static void reduce_run(const job *j, fl_machine_run *r, int64_t rows, int64_t n,
                       bool each, acc *to) {
  const fl_program *p = j->m.program;
  size_t size = fl_dtype_size(j->type);
  int64_t left = rows * n, done = 0; /* elements; of the row we are in */
  while (left > 0) {
    int64_t take = fl_tiles_take(&r->w, &j->m.tiles, left, j->m.tile);
    FL_CPU(machine_tile)(r, take, false);
    const char *v = FL_CPU(machine_value)(r, p->out[0], take);
    left -= take;
    while (take > 0) {
      int64_t k = n - done < take ? n - done : take;
      if (each)
        j->each(k, to + done, v);
      else
        j->row(k, to, v);
      v += (size_t)k * size;
      take -= k;
      done += k;
      if (done == n) {
        done = 0;
        to += !each;
      }
    }
  }
}

/* Kept elements innermost: task = (outer, block, segment). */
static void columns(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  fl_machine_run r;
  acc own[FL_MACHINE_TILE];
  for (int64_t t = begin; t < end; t++) {
    int64_t s = t % j->segments, b = t / j->segments % j->blocks;
    int64_t outer = t / j->segments / j->blocks, from = s * j->segment;
    int64_t rows = j->reduced - from, n = j->width - b * j->block;
    rows = rows < j->segment ? rows : j->segment;
    n = n < j->block ? n : j->block;
    acc *a = j->partial ? j->partial + t * j->block : own;
    for (int64_t i = 0; i < n; i++)
      a[i] = j->first;
    int64_t at = (outer * j->reduced + from) * j->width + b * j->block;
    if (j->blocks == 1 && rows > 0) {
      FL_CPU(machine_start)(&r, &j->m, at);
      reduce_run(j, &r, rows, n, true, a);
    } else {
      for (int64_t i = 0; i < rows; i++, at += j->width) {
        FL_CPU(machine_start)(&r, &j->m, at);
        reduce_run(j, &r, 1, n, true, a);
      }
    }
    if (!j->partial)
      finish(j, outer * j->width + b * j->block, n, a);
  }
}

/* Reduced elements innermost: task = (kept, segment), many at once where they
 * are whole. */
static void rows(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  fl_machine_run r;
  acc own[FL_MACHINE_TILE];
  for (int64_t t = begin; t < end;) {
    int64_t s = t % j->segments, from = s * j->segment, n = j->reduced - from;
    int64_t many = end - t < FL_MACHINE_TILE ? end - t : FL_MACHINE_TILE;
    n = n < j->segment ? n : j->segment;
    many = j->segments > 1 ? 1 : many;
    acc *a = j->partial ? j->partial + t : own;
    for (int64_t i = 0; i < many; i++)
      a[i] = j->first;
    if (n > 0) {
      FL_CPU(machine_start)(&r, &j->m, t / j->segments * j->reduced + from);
      reduce_run(j, &r, many, n, false, a);
    }
    if (!j->partial)
      finish(j, t, many, a);
    t += many;
  }
}

/* Partial results in the order of their segments. */
static void combine(const job *j) {
  int64_t each = j->width > 1 ? j->block : 1;
  for (int64_t t = 0; t < j->kept / j->width * j->blocks; t++) {
    acc *a = j->partial + t * j->segments * each;
    int64_t b = t % j->blocks, n = j->width - b * j->block;
    n = j->width > 1 ? (n < j->block ? n : j->block) : 1;
    for (int64_t s = 1; s < j->segments; s++)
      j->fold(n, a, a + s * each);
    finish(j, t / j->blocks * j->width + b * j->block, n, a);
  }
}

static int64_t at_least_one(int64_t n) {
  return n > 1 ? n : 1;
}

fl_status FL_CPU(expr_reduce)(const fl_launch *l) {
  job j;
  set_loops(&j, l->program);
  plan(&j, l);
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
  j.blocks = (j.width + j.block - 1) / j.block;
  j.segment = at_least_one(SEGMENT / j.block);
  j.segments = at_least_one((j.reduced + j.segment - 1) / j.segment);
  /* enough tasks without: one segment */
  int64_t tasks = j.kept / j.width * j.blocks;
  if (tasks >= 64) {
    j.segment = at_least_one(j.reduced);
    j.segments = 1;
  }
  tasks *= j.segments;
  if (j.segments > 1 &&
      !(j.partial = fl_scratch_get(l, (size_t)(tasks * j.block) * sizeof(acc))))
    return FL_ENOMEM;
  int64_t cost = j.block * (j.reduced < j.segment ? j.reduced : j.segment);
  fl_cpu_parallel(l, tasks, at_least_one(PIECE / at_least_one(cost)),
                  j.width > 1 ? columns : rows, &j);
  if (j.partial)
    combine(&j);
  return FL_OK;
}
