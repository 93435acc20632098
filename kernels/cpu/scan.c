/* cumsum: lines are cut into pieces, which are summed first, or columns go side
 * by side. */
#include "axis.h"
#include "scan.h"

FL_KERNEL(cumsum) {
  const fl_view *v = &l->in[0], *out = &l->out[0];
  fl_dtype type = compute_type(v->dtype);
  scan e = {0};
  const scan_kernels *k =
      type == FL_I64 ? &FL_CPU(scan_i64) : FL_OF_FLOAT(scan, type);
  int64_t outer = split_around(
      v, v->ndim ? l->attrs->v[FL_ATTR_cumsum_dim].i : -1, &e.n, &e.inner);
  if (fl_view_numel(v) == 0)
    return FL_OK;
  if (!(e.x = FL_CPU(input)(l, v, type)) ||
      !(e.y = FL_CPU(output)(l, out, type)))
    return FL_ENOMEM;
  if (e.inner > 1) {
    e.tiles = fl_ceil_div(e.inner, MAX_TILE);
    int64_t cost = e.n * (e.inner < MAX_TILE ? e.inner : MAX_TILE);
    fl_status s = fl_cpu_stoppable(
        l, outer * e.tiles, clamp_to(GRAIN / cost, 1, GRAIN), k->cols, &e);
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
    fl_status s = fl_cpu_stoppable(l, tasks, grain, k->sums, &e);
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
  fl_status s = fl_cpu_stoppable(l, tasks, grain, k->rows, &e);
  if (s == FL_OK)
    FL_CPU(finish)(l, out, type, e.y);
  return s;
}
