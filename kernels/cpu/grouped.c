/* grouped_mm: products of groups of rows with a matrix each, or of groups of
 * columns and rows with one another. Large ones one after the other over all
 * threads, the rest side by side. The products themselves are in gemm.c. */
#include "gemm.h"
#include "matmul.h"
#include "narrow.h"

/* Multiply-adds from which a product is worth all threads, and those of a piece
 * of smaller ones, at least. */
#define LARGE (4 << 20)
#define PIECE (1 << 17)

/* Matrices as the product takes them, `step` elements apart. */
typedef struct operand {
  const void *data;
  int64_t ld, step;
  bool turned; /* stored cols x rows */
} operand;

typedef struct grouped {
  const fl_launch *launch;
  fl_dtype dtype;
  bool rows;       /* b has a matrix for each group */
  int64_t m, k, n; /* of the whole: m or k is cut into groups */
  const int64_t *ends;
  operand a, b;
  void *c;
} grouped;

/* The last dims of v, whose elements have the launch's dtype, or a copy. */
static fl_status operand_take(const fl_launch *l, const fl_view *v,
                              fl_dtype dtype, operand *o) {
  int d = v->ndim - 2;
  o->data = v->data;
  o->step = d ? v->stride[0] : 0;
  if (v->dtype == dtype &&
      fl_cpu_matrix_lies(v->shape[d], v->shape[d + 1], v->stride[d],
                         v->stride[d + 1], &o->turned, &o->ld))
    return FL_OK;
  o->data = FL_CPU(input)(l, v, dtype);
  o->turned = false;
  o->ld = v->shape[d + 1];
  o->step = v->shape[d] * v->shape[d + 1];
  return o->data ? FL_OK : FL_ENOMEM;
}

static const void *grouped_at(const grouped *g, const void *base, int64_t i) {
  return (const char *)base + i * (int64_t)fl_dtype_size(g->dtype);
}

static int64_t group_begin(const grouped *g, int64_t t) {
  return t ? g->ends[t - 1] : 0;
}

static int64_t group_size(const grouped *g, int64_t t) {
  return g->ends[t] - group_begin(g, t);
}

static double group_work(const grouped *g, int64_t t) {
  return (double)group_size(g, t) * (double)(g->rows ? g->k : g->m) *
         (double)g->n;
}

static fl_cpu_product product_of(const grouped *g, int64_t t) {
  const operand *a = &g->a, *b = &g->b;
  int64_t from = group_begin(g, t), size = group_size(g, t);
  fl_cpu_product p = {.ta = a->turned,
                      .tb = b->turned,
                      .m = g->rows ? size : g->m,
                      .n = g->n,
                      .k = g->rows ? g->k : size,
                      .lda = a->ld,
                      .ldb = b->ld,
                      .ldc = g->n};
  int64_t down = from * (a->turned ? 1 : a->ld),
          along = from * (a->turned ? a->ld : 1);
  p.a = grouped_at(g, a->data, g->rows ? down : along);
  p.b = grouped_at(g, b->data,
                   g->rows ? t * b->step : from * (b->turned ? 1 : b->ld));
  p.c = (void *)(uintptr_t)grouped_at(g, g->c,
                                      (g->rows ? from : t * g->m) * g->n);
  return p;
}

static void small_task(void *context, int64_t begin, int64_t end) {
  const grouped *g = context;
  for (int64_t t = begin; t < end && !fl_cpu_interrupted(g->launch); t++) {
    fl_cpu_product p = product_of(g, t);
    if (group_work(g, t) >= LARGE || p.m == 0)
      continue;
    if (g->dtype == FL_F64)
      FL_CPU(product_f64)(&p);
    else
      FL_CPU(product_f32)(&p);
  }
}

static fl_status grouped_multiply(const grouped *g, int64_t groups) {
  double small = 1;
  for (int64_t t = 0; t < groups; t++)
    if (group_work(g, t) < LARGE) {
      small += group_work(g, t);
    } else {
      fl_cpu_product p = product_of(g, t);
      fl_status s = FL_CPU(product)(g->launch, g->dtype, &p);
      if (s != FL_OK)
        return s;
    }
  int64_t grain = (int64_t)((double)PIECE * (double)groups / small) + 1;
  fl_cpu_parallel(g->launch, groups, grain < groups ? grain : groups,
                  small_task, (void *)(uintptr_t)g);
  return fl_cpu_interrupted(g->launch) ? fl_cpu_stopped(g->launch) : FL_OK;
}

/* --- matrices of 16 bits, which become floats a group at a time --- */

/* A few rows with a matrix that is read as it is stored; false if this is
 * another product. */
static bool grouped_narrow(const grouped *g, const fl_view *b, int64_t t,
                           fl_status *s) {
  fl_cpu_narrow w = {.dtype = b->dtype, .n = g->n, .k = g->k};
  int64_t size = group_size(g, t);
  fl_cpu_product p = product_of(g, t);
  if (g->dtype != FL_F32 || b->stride[1] != 1 || b->stride[2] != g->k ||
      g->a.turned || g->a.ld != g->k || !FL_CPU(narrow_takes)(&w, size))
    return false;
  w.weight =
      (const char *)b->data + t * b->stride[0] * (int64_t)fl_element_size(b);
  *s = FL_CPU(narrow)(g->launch, &w, size, p.a, p.c);
  return true;
}

static fl_status grouped_convert(grouped *g, const fl_view *b) {
  fl_view one = {.dtype = b->dtype, .ndim = 2};
  g->b.turned = b->stride[2] != 1 && b->stride[1] == 1;
  g->b.step = 0;
  g->b.ld = g->b.turned ? g->k : g->n;
  for (int i = 0; i < 2; i++) {
    one.shape[i] = b->shape[g->b.turned ? 2 - i : 1 + i];
    one.stride[i] = b->stride[g->b.turned ? 2 - i : 1 + i];
  }
  void *room = NULL;
  for (int64_t t = 0; t < b->shape[0]; t++) {
    fl_status s = FL_OK;
    if (group_size(g, t) == 0 || grouped_narrow(g, b, t, &s)) {
      if (s != FL_OK)
        return s;
      continue;
    }
    if (!room &&
        !(room = fl_scratch_get(g->launch, (size_t)(g->k * g->n) *
                                               fl_dtype_size(g->dtype))))
      return FL_ENOMEM;
    one.data = (char *)b->data + t * b->stride[0] * (int64_t)fl_element_size(b);
    FL_CPU(load)(g->launch, &one, g->dtype, room);
    g->b.data = room;
    fl_cpu_product p = product_of(g, t);
    s = FL_CPU(product)(g->launch, g->dtype, &p);
    if (s != FL_OK)
      return s;
  }
  return FL_OK;
}

/* --- the row --- */

static fl_status check_ends(const fl_launch *l, const int64_t *ends,
                            int64_t groups, int64_t rows) {
  int64_t before = 0;
  for (int64_t t = 0; t < groups; before = ends[t++])
    if (ends[t] < before || ends[t] > rows)
      return fli_fail(FL_EINDEX,
                      "%s: ends must not fall and be at most %lld, the number "
                      "of rows; number %lld is %lld",
                      l->op, (long long)rows, (long long)(t + l->base),
                      (long long)ends[t]);
  return FL_OK;
}

FL_KERNEL(grouped_mm) {
  const fl_view *a = &l->in[FL_IN_grouped_mm_a],
                *b = &l->in[FL_IN_grouped_mm_b],
                *ends = &l->in[FL_IN_grouped_mm_ends], *out = &l->out[0];
  int64_t groups = ends->shape[0];
  grouped g = {.launch = l,
               .dtype = fl_cpu_wide(out->dtype),
               .rows = b->ndim == 3,
               .m = a->shape[0],
               .k = a->shape[1],
               .n = b->shape[b->ndim - 1]};
  g.ends = FL_CPU(input)(l, ends, FL_I64);
  if (!g.ends)
    return FL_ENOMEM;
  fl_status s = check_ends(l, g.ends, groups, g.rows ? g.m : g.k);
  if (s != FL_OK || fl_view_numel(out) == 0)
    return s;
  bool low = g.rows && fl_dtype_is_low(b->dtype);
  g.c = FL_CPU(output)(l, out, g.dtype);
  if (!g.c || operand_take(l, a, g.dtype, &g.a) != FL_OK ||
      (!low && operand_take(l, b, g.dtype, &g.b) != FL_OK))
    return FL_ENOMEM;
  s = low ? grouped_convert(&g, b) : grouped_multiply(&g, groups);
  if (s != FL_OK)
    return s;
  int64_t last = groups ? g.ends[groups - 1] : 0;
  if (g.rows)
    memset((void *)(uintptr_t)grouped_at(&g, g.c, last * g.n), 0,
           (size_t)((g.m - last) * g.n) * fl_dtype_size(g.dtype));
  FL_CPU(finish)(l, out, g.dtype, g.c);
  return FL_OK;
}
