/* softmax, log_softmax and their gradients: lines in registers, long lines in
 * pieces, columns. */
#include "device/line.h"

#include "softmax.h"

#define LONG_THREADS 512

/* Elements of a line that a thread keeps. */
static int most_of(fl_dtype d, bool backward) {
  if (d == FL_F64)
    return 8;
  return d == FL_F32 || backward ? 16 : 32;
}

static flc_spec line_spec(bool backward, fl_dtype d, const flc_line *p) {
  return FLC_SPEC("softmax", backward ? "backward" : "forward", d, p->vec,
                  p->each, p->block);
}

/* As many pieces as make `busy` tasks of `tasks`, none of less than `least`. */
static fl_status set_pieces(const fl_launch *l, int64_t tasks, int64_t busy,
                            int64_t least, softmax_args *a) {
  int64_t pieces = tasks < busy ? busy / tasks : 1;
  if (pieces > a->n / least + 1)
    pieces = a->n / least + 1;
  a->piece = fl_ceil_div(fl_ceil_div(a->n, pieces), 64) * 64;
  a->pieces = (int)fl_ceil_div(a->n, a->piece);
  a->partial = NULL;
  if (a->pieces > 1)
    a->partial = fl_scratch_get(l, (size_t)(a->lines * a->pieces) * 16);
  return a->pieces > 1 && !a->partial ? FL_ENOMEM : FL_OK;
}

/* In one launch, or in two with pieces. */
static fl_status softmax_passes(const fl_launch *l, flc_spec spec,
                                flc_grid grid, const softmax_args *a) {
  int *pass = &spec.t[spec.n - 1];
  for (*pass = a->pieces > 1; *pass < 3; ++*pass) {
    fl_status s = FLC_RUN(l, spec, grid, *a);
    if (s != FL_OK || *pass == 0)
      return s;
  }
  return FL_OK;
}

static fl_status long_lines(const fl_launch *l, fl_dtype d, softmax_args *a) {
  uintptr_t x = (uintptr_t)a->x, apart = (x - (uintptr_t)a->out) % 16;
  if (a->y)
    apart |= (x - (uintptr_t)a->y) % 16;
  int vec = apart ? 1 : flc_lot(d);
  fl_status s = set_pieces(l, a->lines, flc_chip_of(l)->processors * 4,
                           LONG_THREADS * vec * 8, a);
  flc_spec spec = FLC_SPEC("softmax", "lines", d, vec, 0);
  flc_grid grid = {.x = (unsigned)(a->lines * a->pieces),
                   .block = LONG_THREADS};
  return s == FL_OK ? softmax_passes(l, spec, grid, a) : s;
}

static fl_status softmax_columns(const fl_launch *l, fl_dtype d,
                                 softmax_args *a, int64_t outer) {
  flc_spec spec = FLC_SPEC("softmax", "columns", d, 0);
  int wide = flc_power(a->inner, 32);
  int deep = flc_power(fl_ceil_div(a->n, 4), 256 / wide);
  a->bx = flc_power(a->inner, 256 / deep);
  int threads = a->bx * deep;
  int64_t blocks = outer * fl_ceil_div(a->inner, a->bx);
  fl_status s =
      set_pieces(l, blocks, flc_chip_of(l)->processors * 8, deep * 16, a);
  flc_grid grid = {.x = (unsigned)blocks,
                   .y = (unsigned)a->pieces,
                   .block = threads < 32 ? 32 : (unsigned)threads};
  return s == FL_OK ? softmax_passes(l, spec, grid, a) : s;
}

_Static_assert(FL_ATTR_softmax_dim == FL_ATTR_log_softmax_dim &&
                   FL_ATTR_softmax_dim == FL_ATTR_softmax_backward_dim &&
                   FL_ATTR_softmax_dim == FL_ATTR_log_softmax_backward_dim &&
                   FL_IN_softmax_x == FL_IN_softmax_backward_dy &&
                   FL_IN_softmax_backward_y == FL_IN_log_softmax_backward_y,
               "one function for four rows");

static fl_status softmax_run(const fl_launch *l, bool backward,
                             bool logarithm) {
  const fl_view *x = &l->in[FL_IN_softmax_x],
                *y = &l->in[FL_IN_softmax_backward_y];
  fl_dtype d = l->out[0].dtype;
  int dim = (int)l->attrs->v[FL_ATTR_softmax_dim].i;
  int64_t total = fl_view_numel(&l->out[0]), outer;
  softmax_args a = {.n = 1, .inner = 1, .logarithm = logarithm};
  flc_line p;
  if (total == 0)
    return FL_OK;
  if (x->ndim)
    a.n = x->shape[dim];
  for (int i = dim + 1; i < x->ndim; i++)
    a.inner *= x->shape[i];
  outer = total / a.n / a.inner;
  a.lines = outer * a.inner;
  a.x = flc_input(l, x, d);
  a.y = backward ? flc_input(l, y, d) : NULL;
  a.out = l->out[0].data;
  if (!a.x || (backward && !a.y))
    return FL_ENOMEM;
  if (a.inner > 1)
    return softmax_columns(l, d, &a, outer);
  bool aligned = flc_aligned(a.x, 16) && flc_aligned(a.y, 16);
  if (!flc_line_of(a.n, d, aligned, most_of(d, backward), &p))
    return long_lines(l, d, &a);
  a.lanes = p.lanes;
  flc_spec spec = line_spec(backward, d, &p);
  flc_grid grid = {.x = flc_line_grid(&p, a.lines),
                   .block = (unsigned)p.threads};
  return FLC_RUN(l, spec, grid, a);
}

FLC_KERNEL(softmax) {
  return softmax_run(l, false, false);
}

FLC_KERNEL(log_softmax) {
  return softmax_run(l, false, true);
}

FLC_KERNEL(softmax_backward) {
  return softmax_run(l, true, false);
}

FLC_KERNEL(log_softmax_backward) {
  return softmax_run(l, true, true);
}

void flc_visit_softmax(flc_visitor *v) {
  flc_line p;
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    bool quick = d == FL_BF16;
    for (int back = 0; back < 2; back++)
      for (int n = 0; flc_line_next(&n, d, most_of(d, back), &p);) {
        flc_spec s = line_spec(back, d, &p);
        v->spec(v, &s, quick && n == 5);
      }
    for (int pass = 0; pass < 3; pass++) {
      flc_spec many = FLC_SPEC("softmax", "lines", d, flc_lot(d), pass);
      flc_spec one = FLC_SPEC("softmax", "lines", d, 1, pass);
      flc_spec softmax_columns = FLC_SPEC("softmax", "columns", d, pass);
      v->spec(v, &many, quick && !pass);
      v->spec(v, &one, false);
      v->spec(v, &softmax_columns, quick && !pass);
    }
  }
}
