/* grid_sample and its gradients. */
#include "cuda.h"

#include "grid.h"

enum { NEAREST, LINEAR, CUBIC };

typedef struct call {
  grid_args a;
  fl_dtype dtype;
  int n, taps;
} call;

/* Everything but what is read and written; `in` is x's place among inputs. */
static call grid_open(const fl_launch *l, int in) {
  _Static_assert(FL_IN_FOLLOWS(grid_sample, x, grid) &&
                     FL_IN_FOLLOWS(grid_sample_backward, x, grid),
                 "read for both rows");
  const fl_view *x = &l->in[in], *grid = &l->in[in + 1];
  const fl_attr *v = l->attrs->v;
  call c = {.n = x->ndim - 2};
  grid_args *a = &c.a;
  a->mode = (int)v[FL_ATTR_grid_samples_mode].i;
  a->padding = (int)v[FL_ATTR_grid_samples_padding].i;
  a->corners = v[FL_ATTR_grid_samples_align_corners].i != 0;
  c.taps = a->mode == NEAREST ? 1 : a->mode == LINEAR ? 2 : 4;
  c.dtype =
      flc_wide(x->dtype) == FL_F64 || grid->dtype == FL_F64 ? FL_F64 : FL_F32;
  a->plane = 1;
  for (int k = 0; k < c.n; k++) {
    a->size[k] = x->shape[x->ndim - 1 - k];
    a->step[k] = a->plane;
    a->plane *= a->size[k];
  }
  a->batch = x->shape[0];
  a->channels = x->shape[1];
  a->results = fl_numel(c.n, grid->shape + 1);
  return c;
}

static flc_spec spec_of(const call *c, const char *entry) {
  return FLC_SPEC("grid", entry, c->dtype, c->n, c->taps);
}

/* A thread for each result, and more of them for its channels if there are few.
 */
static flc_grid grid_each(const call *c, bool channels) {
  int64_t n = c->a.batch * c->a.results, blocks = fl_ceil_div(n, 256);
  int64_t more = (1 << 18) / (n + 1) + 1;
  more = more < c->a.channels ? more : c->a.channels;
  return (flc_grid){.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                    .y = channels ? (unsigned)(more < 1024 ? more : 1024) : 1,
                    .block = 256};
}

/* A result in what is computed: its own memory, or scratch for `finish`. */
static void *made(const fl_launch *l, const fl_view *y, fl_dtype d) {
  return y->dtype == d ? y->data
                       : fl_scratch_get(l, (size_t)(fl_view_numel(y) + 1) *
                                               fl_dtype_size(d));
}

static fl_status grid_finish(const fl_launch *l, const fl_view *y, fl_dtype d,
                             void *data) {
  fl_view from;
  if (data == y->data)
    return FL_OK;
  fl_view_copy(&from, y);
  from.data = data;
  from.dtype = d;
  return flc_move(l, y, &from);
}

FLC_KERNEL(grid_sample) {
  call c = grid_open(l, FL_IN_grid_sample_x);
  const fl_view *y = &l->out[0];
  if (fl_view_numel(y) == 0)
    return FL_OK;
  c.a.x = flc_input(l, &l->in[FL_IN_grid_sample_x], c.dtype);
  c.a.grid = flc_input(l, &l->in[FL_IN_grid_sample_grid], c.dtype);
  c.a.y = made(l, y, c.dtype);
  if (!c.a.x || !c.a.grid || !c.a.y)
    return FL_ENOMEM;
  flc_spec spec = spec_of(&c, "read");
  fl_status s = FLC_RUN(l, spec, grid_each(&c, true), c.a);
  return s ? s : grid_finish(l, y, c.dtype, c.a.y);
}

static fl_status grid_backward(const fl_launch *l, const call *c) {
  bool planes = flc_deterministic();
  flc_spec slopes = spec_of(c, "slopes"),
           spread = spec_of(c, planes ? "spread_planes" : "spread");
  flc_grid lines = {.x = (unsigned)fl_ceil_div(c->a.batch * c->a.channels, 256),
                    .block = 256};
  fl_status s = FLC_RUN(l, slopes, grid_each(c, false), c->a);
  return s ? s : FLC_RUN(l, spread, planes ? lines : grid_each(c, true), c->a);
}

/* dy, x, grid -> dx, dgrid */
FLC_KERNEL(grid_sample_backward) {
  call c = grid_open(l, FL_IN_grid_sample_backward_x);
  const fl_view *dx = &l->out[0],
                *dgrid = &l->out[FL_OUT_grid_sample_backward_dgrid];
  size_t size = fl_dtype_size(c.dtype);
  c.a.dy = flc_input(l, &l->in[FL_IN_grid_sample_backward_dy], c.dtype);
  c.a.x = flc_input(l, &l->in[FL_IN_grid_sample_backward_x], c.dtype);
  c.a.grid = flc_input(l, &l->in[FL_IN_grid_sample_backward_grid], c.dtype);
  c.a.dx = made(l, dx, c.dtype);
  c.a.dgrid = made(l, dgrid, c.dtype);
  if (!c.a.dy || !c.a.x || !c.a.grid || !c.a.dx || !c.a.dgrid)
    return FL_ENOMEM;
  fl_status s = flc_zero(l, c.a.dx, (size_t)fl_view_numel(dx) * size);
  if (s == FL_OK)
    s = flc_zero(l, c.a.dgrid, (size_t)fl_view_numel(dgrid) * size);
  if (s == FL_OK && c.a.batch * c.a.results * c.a.channels > 0)
    s = grid_backward(l, &c);
  if (s == FL_OK)
    s = grid_finish(l, dx, c.dtype, c.a.dx);
  return s ? s : grid_finish(l, dgrid, c.dtype, c.a.dgrid);
}

void flc_visit_grid(flc_visitor *v) {
  static const char *const entries[] = {"read", "slopes", "spread",
                                        "spread_planes"};
  FL_EACH_DTYPE(d, fl_dtype_is_wide)
  for (int n = 2; n <= 3; n++)
    for (int taps = 1; taps <= 4; taps *= 2)
      for (int i = 0; i < 4; i++) {
        flc_spec s = FLC_SPEC("grid", entries[i], d, n, taps);
        v->spec(v, &s, d == FL_F32 && n == 2 && taps == 2);
      }
}
