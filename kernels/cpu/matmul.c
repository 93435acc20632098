/* matmul (all ranks, broadcast batches, any strides, integers too) and linear
 * (x W^T + bias, then an activation, block by block). The products themselves
 * are in gemm.c. */

#include "../../runtime/math/math.h"
#include "gemm.h"
#include "matmul.h"
#include "narrow.h"

/* Multiply-adds from which one matrix of a batch is worth all threads. */
#define LARGE (4 << 20)
/* Multiply-adds of a piece of a batch, at least. */
#define PIECE (1 << 17)

/* A batch of matrices as the product takes them. */
typedef struct matrices {
  const void *data;
  fl_dtype dtype;
  int64_t rows, cols;
  bool turned; /* stored cols x rows */
  int64_t ld;
  int ndim; /* of the batch */
  int64_t shape[FL_MAX_DIMS], stride[FL_MAX_DIMS];
} matrices;

/* Whether the last two dims of v can be read as they are, and how. */
static bool matmul_readable(const fl_view *v, matrices *m) {
  return fl_cpu_matrix_lies(m->rows, m->cols, v->stride[v->ndim - 2],
                            v->stride[v->ndim - 1], &m->turned, &m->ld);
}

/* `v` has at least 2 dims. Copies, if it must, every matrix once: dims along
 * which a batch only repeats keep stride 0. */
static fl_status matmul_take(const fl_launch *l, const fl_view *v,
                             fl_dtype dtype, matrices *m) {
  m->dtype = dtype;
  m->ndim = v->ndim - 2;
  m->rows = v->shape[m->ndim];
  m->cols = v->shape[m->ndim + 1];
  for (int i = 0; i < m->ndim; i++) {
    m->shape[i] = v->shape[i];
    m->stride[i] = v->shape[i] == 1 ? 0 : v->stride[i];
  }
  m->data = v->data;
  if (v->dtype == dtype && matmul_readable(v, m))
    return FL_OK;
  fl_view w;
  fl_view_copy(&w, v);
  for (int i = 0; i < m->ndim; i++)
    if (m->stride[i] == 0 && w.shape[i] > 1)
      w.shape[i] = 1;
  m->data = FL_CPU(input)(l, &w, dtype);
  if (!m->data)
    return FL_ENOMEM;
  m->turned = false;
  m->ld = m->cols;
  int64_t size = m->rows * m->cols;
  for (int i = m->ndim - 1; i >= 0; size *= w.shape[i--])
    m->stride[i] = w.shape[i] == 1 ? 0 : size;
  return FL_OK;
}

/* Makes rows of the batch where that changes nothing in memory: (..., m, k)
 * with equal steps from row to row. */
static bool matmul_flatten(matrices *m) {
  int64_t rows = m->rows, ld = m->ld;
  if (m->turned)
    return false;
  for (int i = m->ndim - 1; i >= 0; i--) {
    if (m->shape[i] == 1)
      continue;
    if (rows == 1)
      ld = m->stride[i];
    else if (m->stride[i] != rows * ld)
      return false;
    rows *= m->shape[i];
  }
  if (rows > 1 && ld < m->cols)
    return false;
  m->rows = rows;
  m->ld = ld;
  m->ndim = 0;
  return true;
}

static bool repeats_only(const matrices *m) {
  for (int i = 0; i < m->ndim; i++)
    if (m->stride[i] != 0)
      return false;
  return true;
}

/* Whether nothing is broadcast to get a batch of this shape. */
static bool fills(const matrices *m, int ndim, const int64_t *shape) {
  if (m->ndim != ndim)
    return false;
  for (int i = 0; i < ndim; i++)
    if (m->shape[i] != shape[i])
      return false;
  return true;
}

static const void *matmul_move(const matrices *m, int64_t elements) {
  return (const char *)m->data + elements * (int64_t)fl_dtype_size(m->dtype);
}

/* --- batches --- */

typedef struct batch {
  const fl_launch *launch;
  matrices a, b;
  int ndim;
  int64_t shape[FL_MAX_DIMS];
  void *c;
  bool add; /* to what is there */
} batch;

/* The step of matrix `t` of the batch of results in an operand: dims are
 * aligned at the end. */
static int64_t matmul_place(const batch *g, const matrices *m, int64_t t) {
  int64_t at = 0;
  for (int i = g->ndim - 1, k = m->ndim - 1; i >= 0 && k >= 0; i--, k--) {
    at += t % g->shape[i] * m->stride[k];
    t /= g->shape[i];
  }
  return at;
}

static fl_cpu_product product_of(const batch *g, int64_t t) {
  const matrices *a = &g->a, *b = &g->b;
  int64_t size = a->rows * b->cols;
  return (fl_cpu_product){
      .ta = a->turned,
      .tb = b->turned,
      .add = g->add,
      .m = a->rows,
      .n = b->cols,
      .k = a->cols,
      .a = matmul_move(a, matmul_place(g, a, t)),
      .lda = a->ld,
      .b = matmul_move(b, matmul_place(g, b, t)),
      .ldb = b->ld,
      .c = (char *)g->c + t * size * (int64_t)fl_dtype_size(a->dtype),
      .ldc = b->cols,
  };
}

static void batch_task(void *context, int64_t begin, int64_t end) {
  const batch *g = context;
  for (int64_t t = begin; t < end && !fl_cpu_interrupted(g->launch); t++) {
    fl_cpu_product p = product_of(g, t);
    if (g->a.dtype == FL_F64)
      FL_CPU(product_f64)(&p);
    else
      FL_CPU(product_f32)(&p);
  }
}

static fl_status matmul_multiply(const fl_launch *l, batch *g) {
  int64_t count = fl_numel(g->ndim, g->shape);
  double work = (double)g->a.rows * (double)g->a.cols * (double)g->b.cols;
  if (count == 1 || work >= LARGE) {
    for (int64_t t = 0; t < count; t++) {
      fl_cpu_product p = product_of(g, t);
      fl_status s = FL_CPU(product)(l, g->a.dtype, &p);
      if (s != FL_OK)
        return s;
    }
    return FL_OK;
  }
  int64_t grain = work >= PIECE ? 1 : (int64_t)(PIECE / (work + 64)) + 1;
  fl_cpu_parallel(l, count, grain, batch_task, g);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

/* --- integers --- */

/* Rows begin .. end of all results, in 64 bits, wrapping. */
static void integer_task(void *context, int64_t begin, int64_t end) {
  const batch *g = context;
  int64_t m = g->a.rows, n = g->b.cols, k = g->a.cols;
  for (int64_t r = begin; r < end; r++) {
    if (fl_cpu_interrupted(g->launch))
      return;
    fl_cpu_product p = product_of(g, r / m);
    const int64_t *a = p.a, *b = p.b;
    int64_t i = r % m, *restrict c = (int64_t *)p.c + i * n;
    int64_t step = p.ta ? p.lda : 1, row = p.tb ? 1 : p.ldb,
            col = p.tb ? p.ldb : 1;
    a += p.ta ? i : i * p.lda;
    for (int64_t j = 0; j < n; j++)
      c[j] = 0;
    for (int64_t q = 0; q < k; q++) {
      int64_t x = a[q * step];
      const int64_t *y = b + q * row;
      for (int64_t j = 0; j < n; j++)
        c[j] += x * y[j * col];
    }
  }
}

static fl_status multiply_integers(const fl_launch *l, batch *g) {
  int64_t rows = fl_numel(g->ndim, g->shape) * g->a.rows;
  int64_t each = g->a.cols * g->b.cols + 1;
  fl_cpu_parallel(l, rows, each >= 65536 ? 1 : 65536 / each + 1, integer_task,
                  g);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

/* The largest magnitude among the elements, -1 for want of memory. */
static double matmul_magnitude(const fl_launch *l, const fl_view *v) {
  fl_view once;
  fl_view_copy(&once, v);
  for (int i = 0; i < once.ndim; i++)
    if (once.stride[i] == 0)
      once.shape[i] = 1;
  const int64_t *x = FL_CPU(input)(l, &once, FL_I64);
  if (!x)
    return -1;
  int64_t n = fl_view_numel(&once), low = 0, high = 0;
  for (int64_t i = 0; i < n; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  return fmax((double)high, -(double)low);
}

/* What integers are multiplied in: floats where every sum is a number that
 * these have, and there is enough to multiply to be worth looking. */
static fl_dtype integer_type(const fl_launch *l, const fl_view *a,
                             const fl_view *b) {
  double m = (double)a->shape[a->ndim - 2], k = (double)a->shape[a->ndim - 1],
         n = (double)b->shape[b->ndim - 1];
  if (m * n < 16 * (m + n) || m * n * k < LARGE / 16)
    return FL_I64;
  double x = matmul_magnitude(l, a), y = matmul_magnitude(l, b),
         most = x * y * k;
  if (x < 0 || y < 0)
    return FL_I64;
  return most <= 0x1p24 ? FL_F32 : most <= 0x1p53 ? FL_F64 : FL_I64;
}

/* --- matmul --- */

/* The operands, in which `dims` are of rows and columns, as `dtype`; results
 * have the shape of `out`. Large: fields are set one by one. */
static fl_status matmul_join(const fl_launch *l, const fl_view *a,
                             const fl_view *b, const fl_view *out, int dims,
                             fl_dtype dtype, batch *g) {
  g->launch = l;
  g->add = false;
  if (matmul_take(l, a, dtype, &g->a) != FL_OK ||
      matmul_take(l, b, dtype, &g->b) != FL_OK)
    return FL_ENOMEM;
  g->ndim = out->ndim - dims;
  for (int i = 0; i < g->ndim; i++)
    g->shape[i] = out->shape[i];
  if (repeats_only(&g->b) && fills(&g->a, g->ndim, g->shape) &&
      matmul_flatten(&g->a))
    g->ndim = 0;
  return FL_OK;
}

FL_KERNEL(matmul) {
  const fl_view *out = &l->out[0];
  bool floats = fl_dtype_kind(out->dtype) == FL_KIND_FLOAT;
  fl_view a, b;
  batch g;
  if (fl_view_numel(out) == 0)
    return FL_OK;
  fl_as_matrix(&l->in[FL_IN_matmul_a], false, &a);
  fl_as_matrix(&l->in[FL_IN_matmul_b], true, &b);
  fl_dtype dtype = floats ? fl_cpu_wide(out->dtype) : integer_type(l, &a, &b);
  if (matmul_join(l, &a, &b, out,
                  (l->in[FL_IN_matmul_a].ndim > 1) +
                      (l->in[FL_IN_matmul_b].ndim > 1),
                  dtype, &g) != FL_OK)
    return FL_ENOMEM;
  g.c = FL_CPU(output)(l, out, dtype);
  if (!g.c)
    return FL_ENOMEM;
  fl_status s =
      dtype == FL_I64 ? multiply_integers(l, &g) : matmul_multiply(l, &g);
  if (s == FL_OK && !floats && dtype != FL_I64) { /* i64 wraps as out does */
    void *whole = FL_CPU(output)(l, out, FL_I64);
    if (!whole)
      return FL_ENOMEM;
    FL_CPU(convert)(fl_view_numel(out), FL_I64, whole, dtype, g.c);
    FL_CPU(finish)(l, out, FL_I64, whole);
  } else if (s == FL_OK) {
    FL_CPU(finish)(l, out, dtype, g.c);
  }
  return s;
}

FL_KERNEL(matmul_add) {
  const fl_view *c = &l->in[FL_IN_matmul_add_c],
                *left = &l->in[FL_IN_matmul_add_a],
                *right = &l->in[FL_IN_matmul_add_b];
  fl_dtype dtype = fl_cpu_wide(c->dtype);
  fl_view a, b;
  batch g;
  if (fl_view_numel(c) == 0)
    return FL_OK;
  fl_as_matrix(left, false, &a);
  fl_as_matrix(right, true, &b);
  const void *sum = FL_CPU(input)(l, c, dtype); /* its memory, or a copy */
  if (!sum || matmul_join(l, &a, &b, c, (left->ndim > 1) + (right->ndim > 1),
                          dtype, &g) != FL_OK)
    return FL_ENOMEM;
  g.add = true;
  g.c = (void *)(uintptr_t)sum;
  fl_status s = matmul_multiply(l, &g);
  if (s == FL_OK)
    FL_CPU(finish)(l, c, dtype, g.c);
  return s;
}

/* --- linear --- */

/* x (..., inputs) as rows: its own memory if they are evenly spaced. */
static fl_status take_rows(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                           matrices *m) {
  fl_view w;
  fl_as_matrix(v, false, &w);
  if (matmul_take(l, &w, dtype, m) != FL_OK)
    return FL_ENOMEM;
  if (m->ndim == 0 || matmul_flatten(m))
    return FL_OK;
  m->data = FL_CPU(input)(l, &w, dtype);
  m->turned = false;
  m->ld = m->cols;
  m->rows = m->cols ? fl_view_numel(&w) / m->cols : 0;
  m->ndim = 0;
  return m->data ? FL_OK : FL_ENOMEM;
}

/* A few rows of x with a weight of 16 bits, which is read as it is stored;
 * false if this is another product. */
static bool linear_narrow(const fl_launch *l, linear_map *g, fl_status *s) {
  const fl_view *x = &l->in[FL_IN_linear_x],
                *weight = &l->in[FL_IN_linear_weight];
  fl_cpu_narrow w = {.dtype = weight->dtype,
                     .n = weight->shape[0],
                     .k = weight->shape[1],
                     .weight = weight->data};
  int64_t m = fl_view_numel(&l->out[0]) / w.n;
  if ((w.dtype != FL_F16 && w.dtype != FL_BF16) || !fl_contiguous(weight) ||
      fl_cpu_wide(l->out[0].dtype) != FL_F32 || !FL_CPU(narrow_takes)(&w, m))
    return false;
  const float *rows = FL_CPU(input)(l, x, FL_F32);
  *s = rows ? FL_CPU(narrow)(l, &w, m, rows, g->pre) : FL_ENOMEM;
  if (*s == FL_OK && (g->bias || g->act != FL_ACT_NONE))
    FL_CPU(matmul_f32).finish_block(g, 0, m, 0, w.n);
  return true;
}

static fl_status linear_finish(const fl_launch *l, fl_dtype dtype,
                               const linear_map *g) {
  FL_CPU(finish)(l, &l->out[0], dtype, g->y);
  if (g->pre != g->y)
    FL_CPU(finish)(l, &l->out[FL_OUT_linear_pre], dtype, g->pre);
  return FL_OK;
}

FL_KERNEL(linear) {
  const fl_view *out = &l->out[0], *bias = &l->in[FL_IN_linear_bias];
  fl_dtype dtype = fl_cpu_wide(out->dtype);
  bool keeps = fl_view_numel(&l->out[FL_OUT_linear_pre]) > 0;
  linear_map g = {.act = (fl_cpu_act)l->attrs->v[FL_ATTR_linear_act].i};
  matrices x, w;
  fl_status s;
  if (fl_view_numel(out) == 0)
    return FL_OK;
  g.n = out->shape[out->ndim - 1];
  if (bias->data && !(g.bias = FL_CPU(input)(l, bias, dtype)))
    return FL_ENOMEM;
  g.y = FL_CPU(output)(l, out, dtype);
  g.pre = keeps ? FL_CPU(output)(l, &l->out[FL_OUT_linear_pre], dtype) : g.y;
  if (!g.y || !g.pre)
    return FL_ENOMEM;
  if (linear_narrow(l, &g, &s))
    return s == FL_OK ? linear_finish(l, dtype, &g) : s;
  if (take_rows(l, &l->in[FL_IN_linear_x], dtype, &x) != FL_OK ||
      matmul_take(l, &l->in[FL_IN_linear_weight], dtype, &w) != FL_OK)
    return FL_ENOMEM;
  fl_cpu_product p = {
      .ta = x.turned,
      .tb = !w.turned,
      .m = fl_view_numel(out) / g.n,
      .n = g.n,
      .k = w.cols,
      .a = x.data,
      .lda = x.ld,
      .b = w.data,
      .ldb = w.ld,
      .c = g.pre,
      .ldc = g.n,
      .done = !g.bias && g.act == FL_ACT_NONE
                  ? NULL
                  : FL_OF_FLOAT(matmul, dtype)->finish_block,
      .context = &g,
  };
  s = FL_CPU(product)(l, dtype, &p);
  return s == FL_OK ? linear_finish(l, dtype, &g) : s;
}
