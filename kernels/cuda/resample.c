/* resample and its gradient. */
#include "cuda.h"

#include "resample.h"

#include <math.h>

enum { NEAREST, LINEAR, CUBIC };

static flc_grid over(int64_t n, int block) {
  int64_t blocks = flc_ceil_div(n, block);
  return (flc_grid){.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                    .block = (unsigned)block};
}

static int64_t along(const fl_launch *l, const fl_view *v) {
  return v->ndim ? v->shape[l->attrs->v[0].i] : 1;
}

/* Everything but the operands; `n` elements, of which there are results. */
static fl_status prepare(const fl_launch *l, int64_t n, int64_t results,
                         resample_args *a) {
  const fl_attr *v = l->attrs->v;
  const fl_view *y = &l->out[0];
  int dim = (int)v[0].i;
  sampling *s = &a->s;
  *s = (sampling){.n = n,
                  .results = results,
                  .start = v[2].f,
                  .step = v[3].f,
                  .mode = (int)v[4].i,
                  .rounding = (int)v[5].i,
                  .cubic = v[6].f,
                  .exclude = v[8].i != 0,
                  .outside = v[9].f};
  s->wide = v[7].i && s->step > 1 ? s->step : 1;
  s->taps = s->mode == NEAREST ? 1
            : s->mode == LINEAR && s->wide == 1
                ? 2
                : (int64_t)ceil((s->mode == CUBIC ? 4 : 2) * s->wide);
  size_t all = (size_t)(results * s->taps + 1);
  a->count = fl_scratch_get(l, (size_t)(results + 1) * sizeof *a->count);
  a->at = fl_scratch_get(l, all * sizeof *a->at);
  a->weight = fl_scratch_get(l, all * sizeof *a->weight);
  if (!a->count || !a->at || !a->weight)
    return FL_ENOMEM;
  a->total = flc_numel(y);
  a->by_inner = flc_divisor_of(
      y->ndim ? fl_numel(y->ndim - dim - 1, y->shape + dim + 1) : 1);
  a->by_along = flc_divisor_of(along(l, y));
  a->y = y->data;
  flc_spec spec = FLC_SPEC("resample", "terms", 0);
  return FLC_RUN(l, spec, over(results, 128), *a);
}

FLC_KERNEL(resample) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  resample_args a = {0};
  if (flc_numel(y) == 0)
    return FL_OK;
  fl_status status = prepare(l, along(l, x), along(l, y), &a);
  if (status)
    return status;
  if (!(a.x = flc_input(l, x, y->dtype)))
    return FL_ENOMEM;
  flc_spec sums = FLC_SPEC("resample", "sums", y->dtype);
  flc_spec pick = FLC_SPEC("resample", "pick", (int)fl_dtype_size(y->dtype));
  if (a.s.mode != NEAREST)
    return FLC_RUN(l, sums, over(a.total, 256), a);
  a.fill = flc_element(y->dtype, a.s.outside);
  return FLC_RUN(l, pick, over(a.total, 256), a);
}

FLC_KERNEL(resample_backward) {
  const fl_view *dy = &l->in[0], *dx = &l->out[0];
  resample_args a = {0};
  if (flc_numel(dx) == 0)
    return FL_OK;
  fl_status status = prepare(l, along(l, dx), along(l, dy), &a);
  if (status)
    return status;
  if (!(a.x = flc_input(l, dy, dx->dtype)))
    return FL_ENOMEM;
  flc_spec spec = FLC_SPEC("resample", "back", dx->dtype);
  return FLC_RUN(l, spec, over(a.total, 256), a);
}

void flc_visit_resample(flc_visitor *v) {
  flc_spec terms = FLC_SPEC("resample", "terms", 0);
  v->spec(v, &terms, true);
  for (fl_dtype d = 0; d <= FL_BF16; d++) {
    flc_spec sums = FLC_SPEC("resample", "sums", d);
    flc_spec back = FLC_SPEC("resample", "back", d);
    v->spec(v, &sums, d == FL_BF16);
    v->spec(v, &back, d == FL_BF16);
  }
  for (int size = 1; size <= 8; size *= 2) {
    flc_spec pick = FLC_SPEC("resample", "pick", size);
    v->spec(v, &pick, size == 4);
  }
}
