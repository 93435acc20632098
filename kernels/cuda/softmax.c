/* softmax, log_softmax and their gradients: lines in registers, long lines in
 * pieces, columns. */
#include "line.h"

#include "softmax.h"

#define LONG_THREADS 512

/* Elements of a line that a thread keeps. */
static int most_of(fl_dtype d, bool backward) {
  if (d == FL_F64)
    return 8;
  return d == FL_F32 && backward ? 16 : 32;
}

static flc_spec line_spec(bool backward, fl_dtype d, const flc_line *p) {
  return FLC_SPEC("softmax", backward ? "backward" : "forward", d, p->vec,
                  p->each, p->block);
}

/* A line in pieces: what each finds, then all by what they found. */
static fl_status long_lines(const fl_launch *l, fl_dtype d, int vec,
                            softmax_args *a) {
  int64_t busy = (int64_t)flc_chip_of(l)->processors * 4;
  int64_t least = LONG_THREADS * vec * 4;
  int64_t pieces = a->lines < busy ? busy / a->lines : 1;
  if (pieces > a->n / least + 1)
    pieces = a->n / least + 1;
  a->piece = flc_ceil_div(flc_ceil_div(a->n, pieces), 64) * 64;
  a->pieces = (int)flc_ceil_div(a->n, a->piece);
  int64_t tasks = a->lines * a->pieces;
  a->partial = fl_scratch_get(l, (size_t)tasks * 16);
  if (!a->partial)
    return FL_ENOMEM;
  flc_grid grid = {.x = (unsigned)(tasks < 1 << 30 ? tasks : 1 << 30),
                   .block = LONG_THREADS};
  flc_spec begin = FLC_SPEC("softmax", "long_begin", d, vec);
  flc_spec end = FLC_SPEC("softmax", "long_end", d, vec);
  fl_status s = FLC_RUN(l, begin, grid, *a);
  return s == FL_OK ? FLC_RUN(l, end, grid, *a) : s;
}

static fl_status columns(const fl_launch *l, fl_dtype d, softmax_args *a,
                         int64_t outer) {
  flc_spec spec = FLC_SPEC("softmax", "columns", d);
  int wide = flc_power(a->inner, 32);
  int deep = flc_power(flc_ceil_div(a->n, 4), 256 / wide);
  a->bx = flc_power(a->inner, 256 / deep);
  unsigned threads = (unsigned)(a->bx * deep);
  flc_grid grid = {.x = (unsigned)(outer * flc_ceil_div(a->inner, a->bx)),
                   .block = threads < 32 ? 32 : threads};
  return FLC_RUN(l, spec, grid, *a);
}

static fl_status run(const fl_launch *l, bool backward, bool logarithm) {
  const fl_view *x = &l->in[0], *y = &l->in[1];
  fl_dtype d = l->out[0].dtype;
  int dim = (int)l->attrs->v[0].i;
  int64_t total = flc_numel(&l->out[0]), outer;
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
    return columns(l, d, &a, outer);
  bool aligned = flc_aligned(a.x, 16) && flc_aligned(a.y, 16);
  if (!flc_line_of(a.n, d, aligned, most_of(d, backward), &p))
    return long_lines(l, d, p.vec, &a);
  a.lanes = p.lanes;
  flc_spec spec = line_spec(backward, d, &p);
  flc_grid grid = {.x = flc_line_grid(&p, a.lines),
                   .block = (unsigned)p.threads};
  return FLC_RUN(l, spec, grid, a);
}

FLC_KERNEL(softmax) {
  return run(l, false, false);
}

FLC_KERNEL(log_softmax) {
  return run(l, false, true);
}

FLC_KERNEL(softmax_backward) {
  return run(l, true, false);
}

FLC_KERNEL(log_softmax_backward) {
  return run(l, true, true);
}

void flc_visit_softmax(flc_visitor *v) {
  flc_line p;
  for (fl_dtype d = FL_F64; d <= FL_BF16; d++) {
    bool quick = d == FL_BF16;
    for (int back = 0; back < 2; back++)
      for (int n = 0; flc_line_next(&n, d, most_of(d, back), &p);) {
        flc_spec s = line_spec(back, d, &p);
        v->spec(v, &s, quick && n == 5);
      }
    for (int k = 0; k < 2; k++) {
      int vec = k ? 1 : flc_lot(d);
      flc_spec begin = FLC_SPEC("softmax", "long_begin", d, vec);
      flc_spec end = FLC_SPEC("softmax", "long_end", d, vec);
      v->spec(v, &begin, quick && !k);
      v->spec(v, &end, quick && !k);
    }
    flc_spec columns = FLC_SPEC("softmax", "columns", d);
    v->spec(v, &columns, quick);
  }
}
