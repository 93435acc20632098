/* Cross-entropy and its gradient. The other losses are composed of rows
 * (runtime/rules/loss.c); bce_input checks what one of them is given. */
#include "device/line.h"

#include "loss.h"

#define THREADS 256
#define LINE    512  /* threads of a sample with many classes */
#define SHORT   1024 /* classes that a warp takes */
#define LOT     4    /* 16-byte accesses of a thread */

/* What forward and backward both read: scores, target and weight. */
static fl_status set_job(const fl_launch *l, const fl_view *x,
                         const fl_view *target, const fl_view *weight,
                         loss_args *a) {
  fl_dtype wide = flc_wide(x->dtype);
  int dim = x->ndim > 1;
  a->classes = x->shape[dim];
  a->inner = 1;
  for (int i = dim + 1; i < x->ndim; i++)
    a->inner *= x->shape[i];
  a->samples = (dim ? x->shape[0] : 1) * a->inner;
  a->ignore = l->attrs->v[FL_ATTR_cross_entropies_ignore_index].i;
  a->smoothing = l->attrs->v[FL_ATTR_cross_entropies_label_smoothing].f;
  a->even = a->smoothing / (double)a->classes;
  a->reduction = (int)l->attrs->v[FL_ATTR_cross_entropies_reduction].i;
  a->fault = flc_fault_of(l);
  a->wide = wide;
  if (a->samples == 0)
    return FL_OK;
  bool soft = fl_dtype_kind(target->dtype) == FL_KIND_FLOAT;
  a->mode = soft ? LOSS_SHARES : a->even != 0 ? LOSS_SMOOTH : LOSS_CLASS;
  a->target_dtype = soft ? wide : target->dtype;
  a->x = flc_input(l, x, x->dtype);
  a->target = flc_input(l, target, (fl_dtype)a->target_dtype);
  a->weight = weight->data ? flc_input(l, weight, wide) : NULL;
  if (!a->x || !a->target || (weight->data && !a->weight))
    return FL_ENOMEM;
  a->lanes = flc_power(fl_ceil_div(a->classes, flc_lot(x->dtype)), 32);
  return FL_OK;
}

static int vector_of(const loss_args *a, fl_dtype d) {
  uintptr_t apart = a->dx ? (uintptr_t)a->x - (uintptr_t)a->dx : 0;
  return a->mode == LOSS_SHARES || apart % 16 ? 1 : flc_lot(d);
}

static flc_grid threads_for(int64_t n, unsigned block) {
  return (flc_grid){
      .x = (unsigned)fl_ceil_div(n, block), .block = block, .early = true};
}

/* The sums of all samples' losses and weights; many samples in two steps. */
static fl_status loss_gather(const fl_launch *l, loss_args *a) {
  flc_spec spec = FLC_SPEC("loss", "gather", 0);
  flc_grid one = {.x = 1, .block = 512, .early = true};
  if (a->samples > 16384) {
    flc_grid many = {.x = 256, .block = 512, .early = true};
    a->parts = fl_scratch_get(l, 2 * many.x * sizeof(double));
    if (!a->parts)
      return FL_ENOMEM;
    fl_status s = FLC_RUN(l, spec, many, *a);
    if (s != FL_OK)
      return s;
    a->losses = a->parts;
    a->samples = many.x;
    a->parts = NULL;
  }
  return FLC_RUN(l, spec, one, *a);
}

FLC_KERNEL(cross_entropy) {
  const fl_view *x = &l->in[FL_IN_cross_entropy_x], *y = &l->out[0];
  loss_args a = {.y = y->data,
                 .y_dtype = y->dtype,
                 .lse = l->out[FL_OUT_cross_entropy_lse].data,
                 .total_out = l->out[FL_OUT_cross_entropy_total].data};
  fl_dtype d = x->dtype;
  fl_status s = set_job(l, x, &l->in[FL_IN_cross_entropy_target],
                        &l->in[FL_IN_cross_entropy_weight], &a);
  if (s != FL_OK)
    return s;
  a.losses = fl_scratch_get(l, (size_t)(2 * a.samples + 1) * sizeof(double));
  if (!a.losses)
    return FL_ENOMEM;
  if (a.samples && a.inner > 1) {
    flc_spec spec = FLC_SPEC("loss", "columns", d, a.mode);
    s = FLC_RUN(l, spec, threads_for(a.samples, 128), a);
  } else if (a.samples) {
    bool block = a.classes > SHORT;
    flc_spec spec =
        FLC_SPEC("loss", "forward", d, vector_of(&a, d), a.mode, block);
    flc_grid grid = threads_for(a.samples * a.lanes, 128);
    if (block)
      grid = (flc_grid){.x = (unsigned)a.samples, .block = LINE, .early = true};
    s = FLC_RUN(l, spec, grid, a);
  }
  return s == FL_OK ? loss_gather(l, &a) : s;
}

FLC_KERNEL(cross_entropy_total) {
  const fl_view *t = &l->in[FL_IN_cross_entropy_total_target],
                *weight = &l->in[FL_IN_cross_entropy_total_weight];
  const fl_view *out = &l->out[0];
  bool soft = fl_dtype_kind(t->dtype) == FL_KIND_FLOAT;
  int64_t n = fl_view_numel(t);
  loss_args a = {.total_out = out->data,
                 .wide = out->dtype,
                 .samples = n,
                 .classes = INT64_MAX,
                 .target_dtype = t->dtype,
                 .ignore =
                     l->attrs->v[FL_ATTR_cross_entropy_total_ignore_index].i,
                 .fault = flc_fault_of(l)};
  if (soft) { /* each sample counts 1 */
    int64_t classes = t->ndim ? t->shape[t->ndim > 1] : 1;
    a.samples = classes ? n / classes : 0;
  } else if (n)
    a.target = flc_input(l, t, t->dtype);
  if (weight->data && !soft && n) {
    a.classes = weight->shape[0];
    a.weight = flc_input(l, weight, FL_F64);
  }
  if (n && !soft && (!a.target || (weight->data && !a.weight)))
    return FL_ENOMEM;
  flc_spec spec = FLC_SPEC("loss", "total", 0);
  return FLC_RUN(l, spec, ((flc_grid){.x = 1, .block = 512, .early = true}), a);
}

/* Sums over the classes that every gradient needs. */
static fl_status set_sums(const fl_launch *l, fl_dtype d, loss_args *a) {
  flc_spec whole = FLC_SPEC("loss", "whole", d);
  flc_spec shares = FLC_SPEC("loss", "shares", d);
  if (a->mode == LOSS_SHARES) {
    a->shares = fl_scratch_get(l, (size_t)a->samples * sizeof(double));
    if (!a->shares)
      return FL_ENOMEM;
    flc_grid grid = {
        .x = (unsigned)a->samples, .block = THREADS, .early = true};
    if (a->inner > 1)
      grid = threads_for(a->samples, THREADS);
    return FLC_RUN(l, shares, grid, *a);
  }
  if (a->mode == LOSS_CLASS || !a->weight)
    return FL_OK;
  a->whole = fl_scratch_get(l, sizeof(double));
  if (!a->whole)
    return FL_ENOMEM;
  return FLC_RUN(l, whole, ((flc_grid){.x = 1, .block = 512, .early = true}),
                 *a);
}

static fl_status backward_lines(const fl_launch *l, fl_dtype d, loss_args *a) {
  int vec = vector_of(a, d);
  bool block = a->classes > SHORT;
  flc_spec spec = FLC_SPEC("loss", "backward", d, vec, a->mode, block);
  /* whole samples if they are many: a block must find out a few numbers first
   */
  int64_t most = (int64_t)THREADS * LOT * flc_lot(d);
  int64_t busy = (int64_t)flc_chip_of(l)->processors * 32;
  a->chunks = fl_ceil_div(a->classes, most);
  if (a->chunks > fl_ceil_div(busy, a->samples))
    a->chunks = fl_ceil_div(busy, a->samples);
  a->piece = fl_ceil_div(fl_ceil_div(a->classes, a->chunks), 64) * 64;
  flc_grid grid = threads_for(a->samples * a->lanes, 128);
  if (block)
    grid = (flc_grid){.x = (unsigned)(a->samples * a->chunks),
                      .block = THREADS,
                      .early = true};
  return FLC_RUN(l, spec, grid, *a);
}

/* in: dy, x, target, weight, lse, total */
FLC_KERNEL(cross_entropy_backward) {
  const fl_view *dy = &l->in[FL_IN_cross_entropy_backward_dy],
                *x = &l->in[FL_IN_cross_entropy_backward_x];
  loss_args a = {.dx = l->out[0].data};
  fl_dtype d = x->dtype;
  fl_status s = set_job(l, x, &l->in[FL_IN_cross_entropy_backward_target],
                        &l->in[FL_IN_cross_entropy_backward_weight], &a);
  if (s != FL_OK || a.samples == 0)
    return s;
  a.dy = flc_input(l, dy, dy->dtype);
  a.dy_dtype = dy->dtype;
  a.lse = (void *)(uintptr_t)flc_input(
      l, &l->in[FL_IN_cross_entropy_backward_lse], (fl_dtype)a.wide);
  a.total = flc_input(l, &l->in[FL_IN_cross_entropy_backward_total],
                      (fl_dtype)a.wide);
  if (!a.dy || !a.lse || !a.total)
    return FL_ENOMEM;
  s = set_sums(l, d, &a);
  if (s != FL_OK)
    return s;
  if (a.inner == 1)
    return backward_lines(l, d, &a);
  flc_spec spec = FLC_SPEC("loss", "columns_backward", d);
  return FLC_RUN(l, spec, threads_for(a.samples, 128), a);
}

FLC_KERNEL(bce_input) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  loss_args a = {.x = flc_input(l, x, x->dtype),
                 .y = y->data,
                 .samples = fl_view_numel(y),
                 .fault = flc_fault_of(l)};
  if (!a.x)
    return FL_ENOMEM;
  flc_spec spec = FLC_SPEC("loss", "probabilities", x->dtype);
  flc_grid grid = threads_for(fl_ceil_div(a.samples, 4), THREADS);
  return a.samples ? FLC_RUN(l, spec, grid, a) : FL_OK;
}

void flc_visit_loss(flc_visitor *v) {
  static const char *const entries[] = {"forward", "backward"};
  static const char *const others[] = {"columns_backward", "whole", "shares",
                                       "probabilities"};
  flc_spec loss_gather = FLC_SPEC("loss", "gather", 0);
  flc_spec total = FLC_SPEC("loss", "total", 0);
  v->spec(v, &loss_gather, true);
  v->spec(v, &total, true);
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    bool quick = d == FL_BF16;
    for (int k = 0; k < 12; k++)
      for (int one = 0; one < 2; one++) {
        int mode = k / 4, back = k / 2 % 2, block = k % 2;
        int vec = one ? 1 : flc_lot(d);
        flc_spec s = FLC_SPEC("loss", entries[back], d, vec, mode, block);
        if (one ? back || mode == LOSS_SHARES : mode != LOSS_SHARES)
          v->spec(v, &s, quick && block && !one && mode == LOSS_CLASS);
      }
    for (int k = 0; k < 4; k++) {
      flc_spec s = FLC_SPEC("loss", others[k], d);
      v->spec(v, &s, quick);
    }
    for (int k = 0; k < 3; k++) {
      flc_spec columns = FLC_SPEC("loss", "columns", d, k);
      v->spec(v, &columns, quick && k == LOSS_CLASS);
    }
  }
}
