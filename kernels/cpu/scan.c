/* cumsum: lines are cut into pieces, which are summed first, or columns go side
 * by side. */
#include "axis.h"
#include "rows.h"

#define MAX_TILE FL_COLUMNS /* results computed together */

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

TYPED_TASK(scan_sums, scan)
TYPED_TASK(scan_rows, scan)
TYPED_TASK(scan_cols, scan)

FL_KERNEL(cumsum) {
  const fl_view *v = &l->in[0], *out = &l->out[0];
  fl_dtype type = compute_type(v->dtype);
  scan e = {0};
  typed t = {type, &e};
  int64_t outer =
      split_around(v, v->ndim ? l->attrs->v[0].i : -1, &e.n, &e.inner);
  if (fl_view_numel(v) == 0)
    return FL_OK;
  if (!(e.x = FL_CPU(input)(l, v, type)) ||
      !(e.y = FL_CPU(output)(l, out, type)))
    return FL_ENOMEM;
  if (e.inner > 1) {
    e.tiles = fl_ceil_div(e.inner, MAX_TILE);
    int64_t cost = e.n * (e.inner < MAX_TILE ? e.inner : MAX_TILE);
    fl_status s = fl_cpu_stoppable(
        l, outer * e.tiles, clamp_to(GRAIN / cost, 1, GRAIN), scan_cols, &t);
    if (s == FL_OK)
      FL_CPU(finish)(l, out, type, e.y);
    return s;
  }
  cut_row(e.n, &e.piece, &e.pieces);
  int64_t tasks = outer * e.pieces, grain = clamp_to(GRAIN / e.piece, 1, GRAIN);
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
