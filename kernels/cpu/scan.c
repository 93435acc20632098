/* cumsum: lines are cut into pieces, which are summed first, or columns go side
 * by side. */
#include "rows.h"

#define MAX_TILE FL_COLUMNS /* results computed together */
#define GRAIN    16384      /* elements worth a thread's while */

typedef union slot {
  double f;
  int64_t i;
} slot;

typedef struct scan {
  const void *x;
  void *y;
  int64_t n, inner, tiles, piece, pieces;
  slot *sums; /* of each piece, then of all before it */
} scan;

#define T       float
#define F(name) name##_f32
#define SLOT    f
#define WIDE    double
#include "scan.inc"
#undef T
#undef F
#define T       double
#define F(name) name##_f64
#include "scan.inc"
#undef T
#undef F
#undef SLOT
#undef WIDE
#define T       int64_t
#define F(name) name##_i64
#define SLOT    i
#define WIDE    int64_t
#include "scan.inc"
#undef T
#undef F
#undef SLOT
#undef WIDE

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t scan_clamp(int64_t v, int64_t lo, int64_t hi) {
  return v < lo ? lo : v > hi ? hi : v;
}

static fl_dtype compute_type(fl_dtype d) {
  return fl_dtype_kind(d) == FL_KIND_FLOAT ? fl_cpu_wide(d) : FL_I64;
}

/* Outer x n x inner around dim d; d < 0: one row of everything. */
static int64_t scan_around(const fl_view *v, int64_t d, int64_t *n,
                           int64_t *inner) {
  int64_t outer = 1;
  *n = *inner = 1;
  for (int k = 0; k < v->ndim; k++)
    *(d < 0 || k == d ? n : k < d ? &outer : inner) *= v->shape[k];
  return outer;
}

typedef struct typed {
  fl_dtype type;
  const void *job;
} typed;

#define TYPED_TASK(name, job_type)                                             \
  static void name(void *context, int64_t begin, int64_t end) {                \
    const typed *t = context;                                                  \
    const job_type *e = t->job;                                                \
    if (t->type == FL_F32)                                                     \
      name##_f32(e, begin, end);                                               \
    else if (t->type == FL_F64)                                                \
      name##_f64(e, begin, end);                                               \
    else                                                                       \
      name##_i64(e, begin, end);                                               \
  }
TYPED_TASK(scan_sums, scan)
TYPED_TASK(scan_rows, scan)
TYPED_TASK(scan_cols, scan)

/* Rows longer than two pieces are cut. */
static void cut_row(int64_t n, int64_t *piece, int64_t *pieces) {
  *pieces = n > 4 * GRAIN ? ceil_div(n, 2 * GRAIN) : 1;
  *piece = ceil_div(n, *pieces);
  *pieces = ceil_div(n, *piece);
}

FL_KERNEL(cumsum) {
  const fl_view *v = &l->in[0], *out = &l->out[0];
  fl_dtype type = compute_type(v->dtype);
  scan e = {0};
  typed t = {type, &e};
  int64_t outer =
      scan_around(v, v->ndim ? l->attrs->v[0].i : -1, &e.n, &e.inner);
  if (fl_view_numel(v) == 0)
    return FL_OK;
  if (!(e.x = FL_CPU(input)(l, v, type)) ||
      !(e.y = FL_CPU(output)(l, out, type)))
    return FL_ENOMEM;
  if (e.inner > 1) {
    e.tiles = ceil_div(e.inner, MAX_TILE);
    int64_t cost = e.n * (e.inner < MAX_TILE ? e.inner : MAX_TILE);
    fl_status s = fl_cpu_stoppable(
        l, outer * e.tiles, scan_clamp(GRAIN / cost, 1, GRAIN), scan_cols, &t);
    if (s == FL_OK)
      FL_CPU(finish)(l, out, type, e.y);
    return s;
  }
  cut_row(e.n, &e.piece, &e.pieces);
  int64_t tasks = outer * e.pieces,
          grain = scan_clamp(GRAIN / e.piece, 1, GRAIN);
  if (e.pieces > 1) {
    e.sums = fl_scratch_get(l, (size_t)tasks * sizeof(slot));
    if (!e.sums)
      return FL_ENOMEM;
    fl_status s = fl_cpu_stoppable(l, tasks, grain, scan_sums, &t);
    if (s != FL_OK)
      return s;
    for (int64_t row = 0; row < outer; row++) {
      slot c = {.i = 0}, *sums = e.sums + row * e.pieces;
      for (int64_t i = 0; i < e.pieces; i++) {
        slot sum = sums[i];
        sums[i] = c;
        if (type == FL_I64)
          c.i += sum.i;
        else
          c.f += sum.f;
      }
    }
  }
  fl_status s = fl_cpu_stoppable(l, tasks, grain, scan_rows, &t);
  if (s == FL_OK)
    FL_CPU(finish)(l, out, type, e.y);
  return s;
}
