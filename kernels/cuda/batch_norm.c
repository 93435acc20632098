/* group_norm and batch_norm and their gradients: sums by reduce.c, the rest by
 * the kernels of batch_norm.cu. */
#include "device/line.h"

#include "batch_norm.h"
#include "reduce.h"

#include "../../runtime/view.h"

#define THREADS 256

/* --- what all have in common --- */

static void set_planes(const fl_view *x, planes_args *p) {
  p->samples = x->shape[0];
  p->channels = x->shape[1];
  p->size = 1;
  for (int i = 2; i < x->ndim; i++)
    p->size *= x->shape[i];
  p->total = p->samples * p->channels * p->size;
}

static plane_numbers numbers_of(const fl_view *v) {
  plane_numbers n = {v->data, 1, v->dtype};
  if (v->data && v->ndim == 1)
    n.stride = v->stride[0];
  return n;
}

/* The statistics (N, groups) or (C) that forward saved, as they lie. */
static fl_status set_saved(const fl_launch *l, const fl_view *v,
                           plane_numbers *n) {
  *n = (plane_numbers){(void *)(uintptr_t)flc_input(l, v, v->dtype), 1,
                       v->dtype};
  return n->data ? FL_OK : FL_ENOMEM;
}

/* n results of two sums in doubles, and m factors of four kinds. */
static fl_status set_room(const fl_launch *l, fl_dtype d, int64_t n, int64_t m,
                          planes_args *p) {
  size_t each = fl_dtype_size(flc_wide(d)) * (size_t)m;
  p->s1 = fl_scratch_get(l, (size_t)(n + 1) * 2 * sizeof(double));
  char *a = fl_scratch_get(l, 4 * each + 1);
  if (!p->s1 || !a)
    return FL_ENOMEM;
  p->s2 = p->s1 + n;
  p->a = a;
  p->b = a + each;
  p->c = a + 2 * each;
  p->m = a + 3 * each;
  p->factors = m;
  p->wide = flc_wide(d);
  p->type = d;
  return FL_OK;
}

static fl_view view_of(const planes_args *p, fl_dtype d, int64_t n,
                       int64_t each) {
  return (fl_view){.data = (void *)(uintptr_t)p->x,
                   .dtype = d,
                   .ndim = 3,
                   .shape = {n, each, p->total / n / each},
                   .stride = {p->total / n, p->total / n / each, 1}};
}

/* `entry` with a thread for each of n. */
static fl_status small(const fl_launch *l, const char *entry, int64_t n,
                       const planes_args *p) {
  flc_spec spec = FLC_SPEC("batch_norm", entry, 0);
  flc_grid grid = {.x = (unsigned)fl_ceil_div(n, THREADS), .block = THREADS};
  return n ? FLC_RUN(l, spec, grid, *p) : FL_OK;
}

static fl_status batch_norm_apply(const fl_launch *l, fl_dtype d,
                                  const planes_args *p) {
  int vec = flc_lot(d);
  if (p->total % vec || !flc_aligned(p->x, 16) || !flc_aligned(p->dy, 16))
    vec = 1;
  flc_spec spec = FLC_SPEC("batch_norm", "apply", d, vec, p->dy != NULL);
  int64_t blocks = fl_ceil_div(p->total, (int64_t)THREADS * vec);
  int64_t most = (int64_t)flc_chip_of(l)->processors * 64;
  flc_grid grid = {.x = (unsigned)(blocks < most ? blocks : most),
                   .block = THREADS};
  return p->total ? FLC_RUN(l, spec, grid, *p) : FL_OK;
}

/* --- channels last --- */

/* v's memory, pixel by pixel. */
static const void *read_last(const fl_launch *l, const fl_view *v, fl_dtype d) {
  fl_view w;
  fl_as_channels_last(v, &w);
  return flc_input(l, &w, d);
}

/* A pixel is a sample, of one element for each channel. */
static void set_last(planes_args *p) {
  p->samples *= p->size;
  p->size = 1;
}

/* Channels that a thread takes at once. */
static int last_width(fl_dtype d, const planes_args *p) {
  int vec = flc_lot(d);
  bool good = p->channels % vec == 0 && flc_aligned(p->x, 16) &&
              flc_aligned(p->dy, 16) && flc_aligned(p->y, 16);
  return good ? vec : 1;
}

/* Cuts the rows so that about so many blocks run on each multiprocessor; gives
 * their grid. Threads that would have no channels are few. */
static flc_grid last_cut(const fl_launch *l, planes_args *p, int vec,
                         int blocks) {
  int64_t groups = fl_ceil_div(p->channels, vec);
  int lanes = 32;
  while (lanes > 1 && (lanes / 2 >= groups || (lanes > 4 && groups % lanes)))
    lanes /= 2;
  int64_t across = fl_ceil_div(groups, lanes), step = THREADS / lanes;
  int64_t want =
      fl_ceil_div((int64_t)flc_chip_of(l)->processors * blocks, across);
  int64_t least = 4 * step; /* rows that are in flight at once */
  want = want < 65535 ? want : 65535;
  p->lanes = lanes;
  p->each = fl_ceil_div(p->samples, want);
  p->each = p->each > least ? p->each : least;
  p->pieces = fl_ceil_div(p->samples, p->each);
  return (flc_grid){
      .x = (unsigned)across, .y = (unsigned)p->pieces, .block = THREADS};
}

/* `sums` of pieces of the rows, then `entry`, which adds them up and makes the
 * factors. */
static fl_status last_reduce(const fl_launch *l, fl_dtype d, const char *sums,
                             const char *entry, planes_args *p) {
  int vec = last_width(d, p);
  flc_grid grid = last_cut(l, p, vec, 4);
  fl_dtype wide = flc_wide(d);
  p->part = fl_scratch_get(l, (size_t)(p->pieces * 2 * p->channels) *
                                  fl_dtype_size(wide));
  if (!p->part)
    return FL_ENOMEM;
  flc_spec spec = FLC_SPEC("batch_norm", sums, d, vec);
  fl_status s = FLC_RUN(l, spec, grid, *p);
  flc_spec join = FLC_SPEC("batch_norm", entry, wide);
  flc_grid warps = {.x = (unsigned)fl_ceil_div(p->channels * 32, THREADS),
                    .block = THREADS};
  return s == FL_OK ? FLC_RUN(l, join, warps, *p) : s;
}

static fl_status last_apply(const fl_launch *l, fl_dtype d, planes_args *p) {
  int vec = last_width(d, p);
  flc_grid grid = last_cut(l, p, vec, 16);
  flc_spec spec = FLC_SPEC("batch_norm", "last_apply", d, vec, p->dy != NULL);
  return p->total ? FLC_RUN(l, spec, grid, *p) : FL_OK;
}

static fl_status no_elements(const fl_launch *l) {
  fl_status s = FL_OK;
  for (int k = 1; k < 3 && s == FL_OK; k++) {
    const fl_view *v = &l->out[k];
    size_t bytes = (size_t)fl_view_numel(v) * fl_dtype_size(v->dtype);
    s = bytes ? flc_zero(l, v->data, bytes) : FL_OK;
  }
  return s;
}

_Static_assert(
    FL_IN_group_norm_backward_dy == FL_IN_batch_norm_backward_dy &&
        FL_IN_group_norm_backward_x == FL_IN_batch_norm_backward_x &&
        FL_IN_group_norm_backward_weight == FL_IN_batch_norm_backward_weight &&
        FL_IN_group_norm_backward_mean == FL_IN_batch_norm_backward_mean &&
        FL_IN_group_norm_backward_rstd == FL_IN_batch_norm_backward_rstd &&
        FL_OUT_group_norm_backward_dw == FL_OUT_batch_norm_backward_dw &&
        FL_OUT_group_norm_backward_db == FL_OUT_batch_norm_backward_db,
    "read for both rows");

/* in: dy, x, weight, mean, rstd; out: dx, dw, db */
static fl_status set_backward(const fl_launch *l, fl_dtype d, planes_args *p) {
  const fl_view *w = &l->in[FL_IN_group_norm_backward_weight];
  const fl_view *x = &l->in[FL_IN_group_norm_backward_x],
                *dy = &l->in[FL_IN_group_norm_backward_dy];
  bool last = fl_channels_last(&l->out[0]);
  set_planes(x, p);
  p->dy = last ? read_last(l, dy, d) : flc_input(l, dy, d);
  p->x = last ? read_last(l, x, d) : flc_input(l, x, d);
  p->y = l->out[0].data;
  p->weight = numbers_of(w);
  if (w->data) {
    p->dw = numbers_of(&l->out[FL_OUT_group_norm_backward_dw]);
    p->db = numbers_of(&l->out[FL_OUT_group_norm_backward_db]);
  }
  if (!p->dy || !p->x ||
      set_saved(l, &l->in[FL_IN_group_norm_backward_mean], &p->mean) != FL_OK ||
      set_saved(l, &l->in[FL_IN_group_norm_backward_rstd], &p->rstd) != FL_OK)
    return FL_ENOMEM;
  return FL_OK;
}

/* --- group_norm --- */

FLC_KERNEL(group_norm) {
  const fl_view *x = &l->in[FL_IN_group_norm_x];
  fl_dtype d = l->out[0].dtype;
  planes_args p = {.y = l->out[0].data,
                   .eps = l->attrs->v[FL_ATTR_group_norm_eps].f};
  int64_t groups = l->attrs->v[FL_ATTR_group_norm_groups].i, n, planes;
  set_planes(x, &p);
  n = p.samples * groups;
  planes = p.samples * p.channels;
  if (n == 0 || planes == 0)
    return FL_OK;
  p.group = p.channels / groups;
  p.x = flc_input(l, x, d);
  p.weight = numbers_of(&l->in[FL_IN_group_norm_weight]);
  p.bias = numbers_of(&l->in[FL_IN_group_norm_bias]);
  p.mean = (plane_numbers){l->out[FL_OUT_group_norm_mean].data, 1,
                           l->out[FL_OUT_group_norm_mean].dtype};
  p.rstd = (plane_numbers){l->out[FL_OUT_group_norm_rstd].data, 1,
                           l->out[FL_OUT_group_norm_rstd].dtype};
  fl_status s = set_room(l, d, n, planes, &p);
  if (s != FL_OK || !p.x)
    return FL_ENOMEM;
  fl_view v = {.data = (void *)(uintptr_t)p.x,
               .dtype = d,
               .ndim = 2,
               .shape = {n, p.group * p.size},
               .stride = {p.group * p.size, 1}};
  s = flc_moments(l, &v, 2, p.s1, p.s2);
  if (s == FL_OK)
    s = small(l, "group_forward", planes, &p);
  return s == FL_OK ? batch_norm_apply(l, d, &p) : s;
}

FLC_KERNEL(group_norm_backward) {
  fl_dtype d = l->out[0].dtype;
  planes_args p = {0};
  if (fl_view_numel(&l->in[FL_IN_group_norm_backward_x]) == 0)
    return no_elements(l);
  fl_status s = set_backward(l, d, &p);
  int64_t planes = p.samples * p.channels;
  if (s == FL_OK)
    s = set_room(l, d, planes, planes, &p);
  if (s != FL_OK)
    return s;
  p.group = p.channels / l->attrs->v[FL_ATTR_group_norm_backward_groups].i;
  fl_view v = view_of(&p, d, planes, 1);
  const void *mean =
      flc_input(l, &l->in[FL_IN_group_norm_backward_mean], flc_wide(d));
  if (!mean)
    return FL_ENOMEM;
  s = flc_products(l, &v, p.dy, mean, p.group, 4, p.s1, p.s2);
  if (s == FL_OK)
    s = small(l, "group_backward", planes / p.group * 32, &p);
  if (s == FL_OK && p.weight.data)
    s = small(l, "group_weights", p.channels * 32, &p);
  return s == FL_OK ? batch_norm_apply(l, d, &p) : s;
}

/* --- batch_norm --- */

/* attrs: training, momentum, eps; in: x, weight, bias, running mean and var */
FLC_KERNEL(batch_norm) {
  const fl_view *x = &l->in[FL_IN_batch_norm_x];
  fl_dtype d = l->out[0].dtype;
  planes_args p = {.y = l->out[0].data,
                   .training = l->attrs->v[FL_ATTR_batch_norm_training].i != 0,
                   .momentum = l->attrs->v[FL_ATTR_batch_norm_momentum].f,
                   .eps = l->attrs->v[FL_ATTR_batch_norm_eps].f,
                   .fault = flc_fault_of(l)};
  set_planes(x, &p);
  p.count = (double)(p.samples * p.size);
  p.weight = numbers_of(&l->in[FL_IN_batch_norm_weight]);
  p.bias = numbers_of(&l->in[FL_IN_batch_norm_bias]);
  p.running_mean = numbers_of(&l->in[FL_IN_batch_norm_running_mean]);
  p.running_var = numbers_of(&l->in[FL_IN_batch_norm_running_var]);
  p.mean = numbers_of(&l->out[FL_OUT_batch_norm_mean]);
  p.rstd = numbers_of(&l->out[FL_OUT_batch_norm_rstd]);
  if (p.channels == 0)
    return FL_OK;
  fl_status s = set_room(l, d, p.channels, p.channels, &p);
  bool last = fl_channels_last(&l->out[0]);
  if (p.total)
    p.x = last ? read_last(l, x, d) : flc_input(l, x, d);
  if (s != FL_OK || (p.total && !p.x))
    return FL_ENOMEM;
  if (last) {
    set_last(&p);
    s = p.training ? last_reduce(l, d, "last_moments", "last_forward", &p)
                   : small(l, "batch_forward", p.channels, &p);
    return s == FL_OK ? last_apply(l, d, &p) : s;
  }
  if (p.training) {
    fl_view v = {.data = (void *)(uintptr_t)p.x,
                 .dtype = d,
                 .ndim = 3,
                 .shape = {p.samples, p.channels, p.size},
                 .stride = {p.channels * p.size, p.size, 1}};
    s = flc_moments(l, &v, 5, p.s1, p.s2);
  }
  if (s == FL_OK)
    s = small(l, "batch_forward", p.channels, &p);
  return s == FL_OK ? batch_norm_apply(l, d, &p) : s;
}

FLC_KERNEL(batch_norm_backward) {
  fl_dtype d = l->out[0].dtype;
  planes_args p = {
      .training = l->attrs->v[FL_ATTR_batch_norm_backward_training].i != 0};
  if (fl_view_numel(&l->in[FL_IN_batch_norm_backward_x]) == 0)
    return no_elements(l);
  fl_status s = set_backward(l, d, &p);
  if (s == FL_OK)
    s = set_room(l, d, p.channels, p.channels, &p);
  if (s != FL_OK)
    return s;
  p.count = (double)(p.samples * p.size);
  if (fl_channels_last(&l->out[0])) {
    set_last(&p);
    s = last_reduce(l, d, "last_sums", "last_backward", &p);
    return s == FL_OK ? last_apply(l, d, &p) : s;
  }
  fl_view v = view_of(&p, d, p.samples, p.channels);
  const void *mean =
      flc_input(l, &l->in[FL_IN_batch_norm_backward_mean], flc_wide(d));
  if (!mean)
    return FL_ENOMEM;
  s = flc_products(l, &v, p.dy, mean, 1, 5, p.s1, p.s2);
  if (s == FL_OK)
    s = small(l, "batch_backward", p.channels * 32, &p);
  return s == FL_OK ? batch_norm_apply(l, d, &p) : s;
}

static void visit_last(flc_visitor *v) {
  static const char *const sums[] = {"last_moments", "last_sums"};
  static const char *const joins[] = {"last_forward", "last_backward"};
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int k = 0; k < 4; k++) {
    int vec = k % 2 ? 1 : flc_lot(d);
    flc_spec s = FLC_SPEC("batch_norm", "last_apply", d, vec, k / 2);
    v->spec(v, &s, d == FL_BF16 && k == 2);
    s = FLC_SPEC("batch_norm", sums[k / 2], d, vec);
    v->spec(v, &s, d == FL_BF16 && vec > 1);
  }
  FL_EACH_DTYPE(d, fl_dtype_is_wide)
  for (int k = 0; k < 2; k++) {
    flc_spec s = FLC_SPEC("batch_norm", joins[k], d);
    v->spec(v, &s, d == FL_F32);
  }
}

void flc_visit_batch_norm(flc_visitor *v) {
  static const char *const others[] = {"batch_forward", "batch_backward",
                                       "group_forward", "group_backward",
                                       "group_weights"};
  FL_EACH_DTYPE(d, fl_dtype_is_float)
  for (int k = 0; k < 4; k++) {
    flc_spec s =
        FLC_SPEC("batch_norm", "apply", d, k % 2 ? 1 : flc_lot(d), k / 2);
    v->spec(v, &s, d == FL_BF16 && k == 2);
  }
  for (int k = 0; k < 5; k++) {
    flc_spec s = FLC_SPEC("batch_norm", others[k], 0);
    v->spec(v, &s, true);
  }
  visit_last(v);
}
