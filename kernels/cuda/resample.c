/* resample and its gradient. */
#include "cuda.h"

#include "resample.h"

#include <math.h>

enum { NEAREST, LINEAR, CUBIC };

static flc_grid resample_over(int64_t n, int block) {
  int64_t blocks = fl_ceil_div(n, block);
  return (flc_grid){.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                    .block = (unsigned)block};
}

static int64_t resample_along(const fl_launch *l, const fl_view *v) {
  return v->ndim ? v->shape[l->attrs->v[FL_ATTR_resampling_dim].i] : 1;
}

/* Threads take v elements of y each. */
static void by_vectors(const fl_launch *l, int v, resample_args *a) {
  int64_t along_y = resample_along(l, &l->out[0]);
  a->total = fl_view_numel(&l->out[0]) / v;
  a->by_inner = flc_divisor_of(a->inner > 1 ? a->inner / v : 1);
  a->by_along = flc_divisor_of(a->inner > 1 ? along_y : along_y / v);
}

/* 16 bytes of y's elements if that goes, 1 if not. */
static int vector_of(const fl_launch *l, const resample_args *a) {
  int v = (int)(16 / fl_dtype_size(l->out[0].dtype));
  int64_t row = a->inner > 1 ? a->inner : resample_along(l, &l->out[0]);
  bool whole = a->inner == 1 || flc_aligned(a->x, 16);
  return row % v == 0 && whole && flc_aligned(a->y, 16) ? v : 1;
}

/* Everything but the operands; `n` elements, of which there are results. */
static fl_status resample_prepare(const fl_launch *l, int64_t n,
                                  int64_t results, resample_args *a) {
  fl_dtype wide = flc_wide(l->out[0].dtype);
  const fl_attr *v = l->attrs->v;
  const fl_view *y = &l->out[0];
  int dim = (int)v[FL_ATTR_resampling_dim].i;
  sampling *s = &a->s;
  *s = (sampling){.n = n,
                  .results = results,
                  .start = v[FL_ATTR_resampling_start].f,
                  .step = v[FL_ATTR_resampling_step].f,
                  .mode = (int)v[FL_ATTR_resampling_mode].i,
                  .rounding = (int)v[FL_ATTR_resampling_rounding].i,
                  .cubic = v[FL_ATTR_resampling_cubic].f,
                  .exclude = v[FL_ATTR_resampling_exclude_outside].i != 0,
                  .outside = v[FL_ATTR_resampling_outside].f};
  s->wide = v[FL_ATTR_resampling_antialias].i && s->step > 1 ? s->step : 1;
  s->taps = s->mode == NEAREST ? 1
            : s->mode == LINEAR && s->wide == 1
                ? 2
                : (int64_t)ceil((s->mode == CUBIC ? 4 : 2) * s->wide);
  size_t all = (size_t)(results * s->taps + 1);
  a->count = fl_scratch_get(l, (size_t)(results + 1) * sizeof *a->count);
  a->at = fl_scratch_get(l, all * sizeof *a->at);
  a->weight = fl_scratch_get(l, all * fl_dtype_size(wide));
  if (!a->count || !a->at || !a->weight)
    return FL_ENOMEM;
  a->inner = y->ndim ? fl_numel(y->ndim - dim - 1, y->shape + dim + 1) : 1;
  a->y = y->data;
  by_vectors(l, 1, a);
  flc_spec spec = FLC_SPEC("resample", "terms", wide);
  return FLC_RUN(l, spec, resample_over(results, 128), *a);
}

FLC_KERNEL(resample) {
  fl_ordered ordered;
  l = fl_by_memory(l, FL_ATTR_resample_dim, &ordered);
  const fl_view *x = &l->in[0], *y = &l->out[0];
  resample_args a = {0};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  fl_status status =
      resample_prepare(l, resample_along(l, x), resample_along(l, y), &a);
  if (status)
    return status;
  if (!(a.x = flc_input(l, x, y->dtype)))
    return FL_ENOMEM;
  int v = vector_of(l, &a);
  flc_spec sums = FLC_SPEC("resample", "sums", y->dtype, v);
  flc_spec pick = FLC_SPEC("resample", "pick", (int)fl_dtype_size(y->dtype), v);
  by_vectors(l, v, &a);
  if (a.s.mode != NEAREST)
    return FLC_RUN(l, sums, resample_over(a.total, 256), a);
  a.fill = flc_element(y->dtype, a.s.outside);
  return FLC_RUN(l, pick, resample_over(a.total, 256), a);
}

FLC_KERNEL(resample_backward) {
  fl_ordered ordered;
  l = fl_by_memory(l, FL_ATTR_resample_dim, &ordered);
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  resample_args a = {0};
  if (fl_view_numel(dx) == 0)
    return FL_OK;
  fl_status status =
      resample_prepare(l, resample_along(l, dx), resample_along(l, dy), &a);
  if (status)
    return status;
  if (!(a.x = flc_input(l, dy, dx->dtype)))
    return FL_ENOMEM;
  flc_spec spec = FLC_SPEC("resample", "back", dx->dtype);
  return FLC_RUN(l, spec, resample_over(a.total, 256), a);
}

void flc_visit_resample(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_wide) {
    flc_spec terms = FLC_SPEC("resample", "terms", d);
    v->spec(v, &terms, d == FL_F32);
  }
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    int many = (int)(16 / fl_dtype_size(d));
    flc_spec sums = FLC_SPEC("resample", "sums", d, 1);
    flc_spec back = FLC_SPEC("resample", "back", d);
    v->spec(v, &sums, false);
    v->spec(v, &back, d == FL_BF16);
    sums = FLC_SPEC("resample", "sums", d, many);
    v->spec(v, &sums, d == FL_BF16);
  }
  for (int size = 1; size <= 8; size *= 2) {
    flc_spec pick = FLC_SPEC("resample", "pick", size, 1);
    v->spec(v, &pick, false);
    pick = FLC_SPEC("resample", "pick", size, 16 / size);
    v->spec(v, &pick, size == 4);
  }
}
