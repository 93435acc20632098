/* grid_sample and its gradients: x (N, C, space) read at the places in grid
 * (N, results, n), n = 2 or 3. Where each result reads, and how it is weighed,
 * is worked out once for all channels: K elements of a plane for each result.
 * Channels do not meet in dx and results do not meet in y and dgrid, so sums
 * have one order. */
#include "grid.h"

#include <string.h>

#define PIECE (64 << 10) /* elements read that are worth a thread's while */

_Static_assert(FL_ATTR_grid_sample_mode == FL_ATTR_grid_sample_backward_mode &&
                   FL_ATTR_grid_sample_padding ==
                       FL_ATTR_grid_sample_backward_padding &&
                   FL_ATTR_grid_sample_align_corners ==
                       FL_ATTR_grid_sample_backward_align_corners,
               "read for both rows");

/* Everything but what is read and written; `in` is x's place among inputs. */
static void grid_open(sampling *s, const fl_launch *l, int in) {
  _Static_assert(FL_IN_FOLLOWS(grid_sample, x, grid) &&
                     FL_IN_FOLLOWS(grid_sample_backward, x, grid),
                 "read for both rows");
  const fl_view *x = &l->in[in], *grid = &l->in[in + 1];
  const fl_attr *a = l->attrs->v;
  memset(s, 0, sizeof *s);
  s->n = x->ndim - 2;
  s->mode = (int)a[FL_ATTR_grid_sample_mode].i;
  s->padding = (int)a[FL_ATTR_grid_sample_padding].i;
  s->corners = a[FL_ATTR_grid_sample_align_corners].i != 0;
  s->taps = s->mode == NEAREST ? 1 : s->mode == LINEAR ? 2 : 4;
  s->reads = 1;
  s->plane = 1;
  for (int k = 0; k < s->n; k++) {
    s->size[k] = x->shape[x->ndim - 1 - k];
    s->step[k] = s->plane;
    s->plane *= s->size[k];
    s->reads *= s->taps;
  }
  s->batch = x->shape[0];
  s->channels = x->shape[1];
  s->results = fl_numel(s->n, grid->shape + 1);
  s->cut = s->results < BLOCK ? s->results : BLOCK;
  s->cuts = s->cut ? fl_ceil_div(s->results, s->cut) : 0;
}

/* Where everything is read, for all results. */
static fl_status grid_find(const fl_launch *l, sampling *s, bool wide) {
  if (s->plane > INT32_MAX)
    return fli_fail(FL_ESIZE, "%s: planes of %lld elements are too large",
                    l->op, (long long)s->plane);
  int64_t n = s->batch * s->results * s->reads;
  s->at = fl_scratch_get(l, (size_t)n * sizeof *s->at);
  s->weight = fl_scratch_get(l, (size_t)n * (wide ? 8 : 4));
  if (!s->at || !s->weight)
    return FL_ENOMEM;
  fl_cpu_parallel(l, s->batch * s->cuts, PIECE / 4 / (s->cut * s->reads) + 1,
                  (wide ? &FL_CPU(grid_f64) : &FL_CPU(grid_f32))->find, s);
  return FL_OK;
}

FL_KERNEL(grid_sample) {
  const fl_view *x = &l->in[FL_IN_grid_sample_x], *y = &l->out[0];
  fl_dtype d = fl_cpu_wide(x->dtype) == FL_F64 ||
                       l->in[FL_IN_grid_sample_grid].dtype == FL_F64
                   ? FL_F64
                   : FL_F32;
  bool wide = d == FL_F64;
  sampling s;
  grid_open(&s, l, FL_IN_grid_sample_x);
  if (fl_view_numel(y) == 0)
    return FL_OK;
  s.x = FL_CPU(input)(l, x, d);
  s.grid = FL_CPU(input)(l, &l->in[FL_IN_grid_sample_grid], d);
  s.y = FL_CPU(output)(l, y, d);
  if (!s.x || !s.grid || !s.y)
    return FL_ENOMEM;
  fl_status status = grid_find(l, &s, wide);
  if (status)
    return status;
  fl_cpu_parallel(l, s.batch * s.channels * s.cuts,
                  PIECE / (s.cut * s.reads) + 1, FL_OF_FLOAT(grid, d)->read,
                  &s);
  FL_CPU(finish)(l, y, d, s.y);
  return FL_OK;
}

/* dy, x, grid -> dx, dgrid */
FL_KERNEL(grid_sample_backward) {
  const fl_view *x = &l->in[FL_IN_grid_sample_backward_x], *dx = &l->out[0],
                *dgrid = &l->out[FL_OUT_grid_sample_backward_dgrid];
  fl_dtype d = fl_cpu_wide(x->dtype) == FL_F64 ||
                       l->in[FL_IN_grid_sample_backward_grid].dtype == FL_F64
                   ? FL_F64
                   : FL_F32;
  bool wide = d == FL_F64;
  sampling s;
  grid_open(&s, l, FL_IN_grid_sample_backward_x);
  s.dy = FL_CPU(input)(l, &l->in[FL_IN_grid_sample_backward_dy], d);
  s.x = FL_CPU(input)(l, x, d);
  s.grid = FL_CPU(input)(l, &l->in[FL_IN_grid_sample_backward_grid], d);
  s.dx = FL_CPU(output)(l, dx, d);
  s.dgrid = FL_CPU(output)(l, dgrid, d);
  if (!s.dy || !s.x || !s.grid || !s.dx || !s.dgrid)
    return FL_ENOMEM;
  memset(s.dx, 0, (size_t)fl_view_numel(dx) * fl_dtype_size(d));
  memset(s.dgrid, 0, (size_t)fl_view_numel(dgrid) * fl_dtype_size(d));
  if (s.batch * s.results * s.channels > 0) {
    fl_status status = grid_find(l, &s, wide);
    if (status)
      return status;
    fl_cpu_parallel(l, s.batch * s.channels, PIECE / (s.results * s.reads) + 1,
                    FL_OF_FLOAT(grid, d)->spread, &s);
    fl_cpu_parallel(l, s.batch * s.cuts,
                    PIECE / (s.cut * s.reads * s.channels) + 1,
                    FL_OF_FLOAT(grid, d)->slopes, &s);
  }
  FL_CPU(finish)(l, dx, d, s.dx);
  FL_CPU(finish)(l, dgrid, d, s.dgrid);
  return FL_OK;
}
