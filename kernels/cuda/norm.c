/* layer_norm and rms_norm over the last dims, and their gradients. group_norm
 * and batch_norm are in batch_norm.c. */
#include "device/line.h"

#include "norm_tail.h"
#include "batch_norm.h"
#include "reduce.h"

#define LONG_THREADS 512
#define MOST_OF_WARP 32 /* elements a thread of a warp's line (gradients) */
#define LONG_CHUNK                                                             \
  4096 /* elements of a long line for a block, as in norm.cu                   \
        */

/* Elements that a thread keeps: 32 of a warp's line, 16 of a block's. */
static int most_of(fl_dtype d, int vec) {
  return d == FL_F64 || vec == 1 ? 8 : d == FL_F32 ? 16 : 32;
}

/* --- what both directions are given --- */

/* Whether there are kernels for x of d and y (dy) of r. */
static bool a_pair(fl_dtype d, fl_dtype r) {
  return r == d || (d == FL_F32 && (r == FL_F16 || r == FL_BF16));
}

/* Where a result is made that a kernel gives as d: in its own memory, or on the
 * way to it. */
static void *made_as(const fl_launch *l, const fl_view *v, fl_dtype d) {
  size_t bytes = (size_t)fl_view_numel(v) * fl_dtype_size(d);
  return v->dtype == d ? v->data : fl_scratch_get(l, bytes);
}

static fl_status hand_over(const fl_launch *l, const fl_view *v, fl_dtype d,
                           void *made) {
  if (made == v->data)
    return FL_OK;
  fl_view from = {.data = made,
                  .dtype = d,
                  .ndim = 1,
                  .shape = {fl_view_numel(v)},
                  .stride = {1}};
  fl_view to = from;
  to.data = v->data;
  to.dtype = v->dtype;
  return flc_move(l, &to, &from);
}

/* weight, and bias where there is one: as they are if both are of x's dtype,
 * else both of the wide one. */
static fl_status set_weights(const fl_launch *l, fl_dtype d, const fl_view *w,
                             const fl_view *b, norm_args *a) {
  bool no_b = !b || !b->data;
  a->wide = (w->data && w->dtype != d) || (!no_b && b->dtype != d);
  fl_dtype type = a->wide ? flc_wide(d) : d;
  a->weight = w->data ? flc_input(l, w, type) : NULL;
  a->bias = no_b ? NULL : flc_input(l, b, type);
  return (w->data && !a->weight) || (!no_b && !a->bias) ? FL_ENOMEM : FL_OK;
}

static bool norm_aligned(const norm_args *a) {
  return flc_aligned(a->x, 16) && flc_aligned(a->dy, 16) &&
         flc_aligned(a->weight, 16) && flc_aligned(a->bias, 16);
}

static void set_lines(norm_args *a, int64_t lines, int64_t total) {
  a->lines = lines;
  a->n = lines ? total / lines : 0;
  a->part = 1 / (double)a->n;
  a->chunks = a->n ? fl_ceil_div(a->n, LONG_CHUNK) : 1;
}

static flc_grid long_grid(const norm_args *a) {
  return (flc_grid){.x = (unsigned)(a->lines * a->chunks),
                    .block = LONG_THREADS};
}

/* --- forward --- */

static flc_spec forward_spec(fl_dtype d, fl_dtype r, const flc_line *p) {
  return FLC_SPEC("norm", "forward", d, r, p->vec, p->each, p->block);
}

/* Much to do for a thread of a block: what a line costs it beside that, two
 * sums over the block, is long. */
static bool forward_line(int64_t n, fl_dtype d, bool is_aligned, flc_line *p) {
  bool fits = flc_line_of(n, d, is_aligned, most_of(d, 0), p);
  if (p->vec == 1)
    return flc_line_of(n, d, false, most_of(d, 1), p);
  if (!p->block || most_of(d, 0) < 32)
    return fits;
  p->each = 32;
  p->threads = (int)(fl_ceil_div(n, 1024) * 32);
  return p->threads <= 512;
}

static fl_status long_forward(const fl_launch *l, fl_dtype d, fl_dtype r,
                              norm_args *a) {
  fl_view v = {.data = (void *)(uintptr_t)a->x,
               .dtype = d,
               .ndim = 2,
               .shape = {a->lines, a->n},
               .stride = {a->n, 1}};
  a->sums = fl_scratch_get(l, (size_t)a->lines * 2 * sizeof(double));
  if (!a->sums)
    return FL_ENOMEM;
  fl_status s = flc_moments(l, &v, 2, a->sums, a->sums + a->lines);
  flc_spec spec = FLC_SPEC("norm", "long_forward", d, r);
  return s == FL_OK ? FLC_RUN(l, spec, long_grid(a), *a) : s;
}

static fl_status norm_forward(const fl_launch *l, const fl_view *bias,
                              const fl_view *mean, const fl_view *rstd) {
  const fl_view *x = &l->in[FL_IN_row_norms_x], *y = &l->out[0];
  fl_dtype d = a_pair(x->dtype, y->dtype) ? x->dtype : flc_wide(x->dtype);
  fl_dtype r = a_pair(d, y->dtype) ? y->dtype : d;
  norm_args a = {.y = made_as(l, y, r),
                 .mean = mean ? mean->data : NULL,
                 .rstd = rstd->data,
                 .eps = l->attrs->v[FL_ATTR_row_norms_eps].f};
  flc_line p;
  set_lines(&a, fl_view_numel(rstd), fl_view_numel(x));
  if (a.lines == 0)
    return FL_OK;
  a.x = flc_input(l, x, d);
  if (!a.x || (fl_view_numel(y) && !a.y))
    return FL_ENOMEM;
  fl_status s = set_weights(l, d, &l->in[FL_IN_row_norms_weight], bias, &a);
  if (s != FL_OK)
    return s;
  if (!forward_line(a.n, d, norm_aligned(&a), &p) || a.n == 0)
    s = long_forward(l, d, r, &a);
  else {
    a.lanes = p.lanes;
    flc_spec spec = forward_spec(d, r, &p);
    flc_grid grid = {.x = flc_line_grid(&p, a.lines),
                     .block = (unsigned)p.threads};
    s = FLC_RUN(l, spec, grid, a);
  }
  return s == FL_OK && a.n ? hand_over(l, y, r, a.y) : s;
}

FLC_KERNEL(layer_norm) {
  return norm_forward(l, &l->in[FL_IN_layer_norm_bias],
                      &l->out[FL_OUT_layer_norm_mean],
                      &l->out[FL_OUT_layer_norm_rstd]);
}

FLC_KERNEL(rms_norm) {
  return norm_forward(l, NULL, NULL, &l->out[FL_OUT_rms_norm_rstd]);
}

/* --- backward --- */

/* Lines by warps, or by blocks of at most 512 threads, whose sums towards the
 * weights stay in registers; lines on their way wait in shared memory. A warp
 * takes as much as its registers hold: it waits for no other warp, and its
 * block has the sums of four lines. */
static bool backward_line(int64_t n, fl_dtype d, bool is_aligned, flc_line *p) {
  flc_line_of(n, d, is_aligned, 8, p);
  int size = (int)fl_dtype_size(d), most = p->vec == 1 || size == 8 ? 8
                                           : size == 4              ? 16
                                                                    : 32;
  if (p->vec == 1 && size == 8)
    most = p->each = 4;
  if (p->block && p->vec > 1 && size < 8 && n <= 32 * MOST_OF_WARP) {
    p->block = 0;
    p->threads = 128;
    p->each = n <= 32 * 24 ? 24 : 32;
  }
  if (!p->block && n <= 32 * p->each) {
    p->lanes = flc_power(fl_ceil_div(n, p->each), 32);
    return true;
  }
  p->block = 1;
  p->each = most;
  p->threads = (int)(fl_ceil_div(fl_ceil_div(n, p->each), 32) * 32);
  return p->threads <= 512;
}

/* `text`: of what is behind, or NULL. */
static flc_spec backward_spec(fl_dtype d, fl_dtype r, const flc_line *p,
                              bool centre, const char *text) {
  flc_spec s = FLC_SPEC("norm", "backward", d, r, p->vec, p->each, p->block,
                        centre, text != NULL);
  s.text = text;
  return s;
}

/* dw and db, and what is summed behind them. */
static fl_status sum_weights(const fl_launch *l, fl_dtype d, norm_args *a) {
  flc_spec spec = FLC_SPEC("norm", "weights", flc_wide(d));
  flc_grid grid = {.x = (unsigned)fl_ceil_div(a->n, 32),
                   .y = (unsigned)a->kinds,
                   .block = 1024};
  return FLC_RUN(l, spec, grid, *a);
}

static bool sums_any(const norm_args *a) {
  return a->weight || a->kinds > 2;
}

/* Memory for `parts` of all kinds of sums, if there are any. */
static fl_status set_parts(const fl_launch *l, fl_dtype d, int64_t parts,
                           norm_args *a) {
  size_t each = (size_t)a->kinds * (size_t)a->n * fl_dtype_size(flc_wide(d));
  a->n_parts = (int)parts;
  if (!sums_any(a) || l->probe)
    return FL_OK;
  a->parts = fl_scratch_get(l, (size_t)parts * each);
  return a->parts ? FL_OK : FL_ENOMEM;
}

static fl_status long_backward(const fl_launch *l, fl_dtype d, fl_dtype r,
                               norm_args *a) {
  flc_spec sums = FLC_SPEC("norm", "long_sums", d, r);
  flc_spec dx = FLC_SPEC("norm", "long_backward", d, r);
  flc_spec weights = FLC_SPEC("norm", "long_weights", d, r);
  a->sums = fl_scratch_get(l, (size_t)a->lines * 3 * sizeof(double));
  if (!a->sums)
    return FL_ENOMEM;
  flc_grid each = {.x = (unsigned)a->lines, .block = LONG_THREADS};
  fl_status s = FLC_RUN(l, sums, each, *a);
  if (s == FL_OK)
    s = FLC_RUN(l, dx, long_grid(a), *a);
  if (s != FL_OK || !a->weight)
    return s;
  int64_t blocks = fl_ceil_div(a->n, 256);
  int64_t parts = fl_ceil_div(flc_chip_of(l)->processors * 8, blocks);
  parts = parts > a->lines ? a->lines : parts;
  a->piece = fl_ceil_div(a->lines, parts);
  parts = fl_ceil_div(a->lines, a->piece);
  s = set_parts(l, d, parts, a);
  flc_grid grid = {.x = (unsigned)blocks, .y = (unsigned)parts, .block = 256};
  return s == FL_OK ? FLC_RUN(l, weights, grid, *a) : s;
}

/* Bytes of shared memory that a block takes beside the lines on their way: the
 * sums of a warp's line, and what the system keeps for itself. */
static int beside(const flc_line *p) {
  return 2048 + (p->block ? 0 : 256 * p->each);
}

/* Blocks that run at once, and no more: each goes through many lines. */
static int64_t blocks_for(const fl_launch *l, const flc_line *p, int shared,
                          int64_t lines) {
  const flc_chip *chip = flc_chip_of(l);
  int each = p->each > 16 ? 512 : p->each > 8 ? 640 : 1024;
  int64_t most = each / p->threads > 1 ? each / p->threads : 1;
  int64_t groups = p->block ? 1 : p->threads / p->lanes;
  int64_t room = (chip->shared + 1024) / (shared + beside(p));
  most = most > room ? room : most > 16 ? 16 : most;
  most = chip->processors * (most > 1 ? most : 1);
  lines = fl_ceil_div(lines, 4 * groups);
  return lines < most ? lines : most;
}

/* What is behind the gradient. */
static void set_tail(const norm_tail *tail, norm_args *a) {
  a->kinds = 2 + tail->n_sums;
  memcpy(a->in, tail->in, sizeof a->in);
  memcpy(a->out, tail->out, sizeof a->out);
  memcpy(a->sum + 2, tail->sum, sizeof tail->sum);
}

typedef struct given { /* the operands that not all norms have */
  const fl_view *mean, *rstd, *db;
} given;

static given given_of(const fl_launch *l, bool centre) {
  return centre ? (given){&l->in[FL_IN_layer_norm_backward_mean],
                          &l->in[FL_IN_layer_norm_backward_rstd],
                          &l->out[FL_OUT_layer_norm_backward_db]}
                : (given){NULL, &l->in[FL_IN_rms_norm_backward_rstd], NULL};
}

/* Lines that fit, with what is behind them; else *done is false. */
static fl_status short_backward(const fl_launch *l, fl_dtype d, fl_dtype r,
                                norm_args *a, const norm_tail *tail,
                                bool *done) {
  flc_line p;
  bool fits = backward_line(a->n, d, norm_aligned(a), &p);
  size_t each = fl_dtype_size(d) + fl_dtype_size(r); /* two lines ahead */
  each += tail ? (size_t)tail->bytes : 0;
  unsigned shared =
      p.vec > 1 ? (unsigned)(p.threads * p.each * 2) * (unsigned)each : 0;
  *done = fits && (int)shared + beside(&p) <= flc_chip_of(l)->shared &&
          (!tail || p.vec > 1);
  if (!*done)
    return FL_OK;
  int64_t blocks = blocks_for(l, &p, (int)shared, a->lines);
  fl_status s = set_parts(l, d, blocks, a);
  if (s != FL_OK)
    return s;
  a->lanes = p.lanes;
  flc_spec spec =
      backward_spec(d, r, &p, a->mean != NULL, tail ? tail->text : NULL);
  flc_grid grid = {
      .x = (unsigned)blocks, .block = (unsigned)p.threads, .shared = shared};
  return FLC_RUN(l, spec, grid, *a);
}

/* `tail`: what is behind it, or NULL; *done: whether it all is done. */
static fl_status norm_backward(const fl_launch *l, bool centre,
                               const norm_tail *tail, bool *done) {
  given of = given_of(l, centre);
  const fl_view *mean = of.mean, *rstd = of.rstd, *db = of.db;
  const fl_view *dy = &l->in[FL_IN_norms_backward_dy],
                *x = &l->in[FL_IN_norms_backward_x], *dx = &l->out[0],
                *dw = &l->out[FL_OUT_norms_backward_dw];
  bool pair = a_pair(x->dtype, dy->dtype);
  fl_dtype wide = flc_wide(x->dtype), d = pair ? x->dtype : wide;
  fl_dtype r = pair ? dy->dtype : wide;
  norm_args a = {.y = made_as(l, dx, d),
                 .kinds = 2,
                 .sum = {{dw->data, dw->dtype, 0},
                         {db ? db->data : NULL, db ? db->dtype : FL_F32, 0}}};
  *done = true;
  set_lines(&a, fl_view_numel(rstd), fl_view_numel(x));
  if (fl_view_numel(x) == 0) { /* no lines, but perhaps weights */
    size_t bytes = (size_t)fl_view_numel(dw) * fl_dtype_size(dw->dtype);
    fl_status s = bytes ? flc_zero(l, dw->data, bytes) : FL_OK;
    return s == FL_OK && bytes && db ? flc_zero(l, db->data, bytes) : s;
  }
  if (tail && (dx->dtype != d || d == FL_F64)) {
    *done = false;
    return FL_OK;
  }
  a.dy = flc_input(l, dy, r);
  a.x = flc_input(l, x, d);
  a.mean = mean ? (void *)(uintptr_t)flc_input(l, mean, wide) : NULL;
  a.rstd = (void *)(uintptr_t)flc_input(l, rstd, wide);
  if ((!a.y && !tail) || !a.dy || !a.x || !a.rstd || (mean && !a.mean))
    return FL_ENOMEM;
  fl_status s =
      set_weights(l, d, &l->in[FL_IN_norms_backward_weight], NULL, &a);
  if (s != FL_OK)
    return s;
  if (!a.weight)
    a.sum[0].to = a.sum[1].to = NULL;
  if (tail)
    set_tail(tail, &a);
  s = short_backward(l, d, r, &a, tail, done);
  if (s == FL_OK && !*done && tail)
    return FL_OK;
  if (s == FL_OK && !*done)
    s = long_backward(l, d, r, &a);
  *done = true;
  if (s == FL_OK && sums_any(&a))
    s = sum_weights(l, d, &a);
  return s == FL_OK && a.y ? hand_over(l, dx, d, a.y) : s;
}

FLC_KERNEL(layer_norm_backward) {
  bool done;
  return norm_backward(l, true, NULL, &done);
}

FLC_KERNEL(rms_norm_backward) {
  bool done;
  return norm_backward(l, false, NULL, &done);
}

typedef struct joint {
  const norm_tail *tail;
  bool centre, *done;
} joint;

static fl_status norm_soon(const fl_launch *l, const void *what) {
  const joint *j = what;
  return norm_backward(l, j->centre, j->tail, j->done);
}

fl_status flc_norm_joint(const fl_launch *row, const fl_launch *tile,
                         int operand, bool *done) {
  const fl_view *x = &row->in[FL_IN_norms_backward_x];
  bool centre = row->row == fl_cuda_layer_norm_backward, fits = false;
  int64_t lines = fl_view_numel(given_of(row, centre).rstd);
  norm_tail tail;
  joint j = {&tail, centre, &fits};
  *done = false;
  if (lines == 0 || fl_view_numel(x) == 0 ||
      !flc_norm_tail(tile, operand, fl_view_numel(x) / lines, &tail))
    return FL_OK;
  if (row->probe) { /* without memory for copies of operands */
    fl_status s = norm_soon(row, &j);
    return s == FL_ENOMEM ? FL_OK : s;
  }
  if (!flc_deterministic() && flc_soon(row, norm_soon, &j) != 1)
    return FL_OK;
  return norm_backward(row, centre, &tail, done);
}

/* --- what the pack holds --- */

static void visit_backward(flc_visitor *v, fl_dtype d, fl_dtype r) {
  int size = (int)fl_dtype_size(d);
  for (int k = 0; k < 2; k++) {
    int vec = k ? 1 : flc_lot(d);
    int least = vec == 1 && size == 8 ? 4 : 8;
    int most = vec == 1 || size == 8 ? least : size == 4 ? 16 : 32;
    for (int centre = 0; centre < 2; centre++) {
      flc_line p = {.vec = vec, .each = least};
      flc_spec s = backward_spec(d, r, &p, centre, NULL);
      v->spec(v, &s, false);
      for (p.each = 24; vec > 1 && size < 8 && p.each <= MOST_OF_WARP;
           p.each += 8) {
        s = backward_spec(d, r, &p, centre, NULL);
        v->spec(v, &s, r == FL_BF16 && centre);
      }
      p.block = 1;
      p.each = most;
      s = backward_spec(d, r, &p, centre, NULL);
      v->spec(v, &s, r == FL_BF16 && vec > 1 && centre);
    }
  }
}

static void visit_pair(flc_visitor *v, fl_dtype d, fl_dtype r) {
  static const char *const others[] = {"long_forward", "long_sums",
                                       "long_backward", "long_weights"};
  bool quick = r == FL_BF16;
  flc_line p;
  for (int k = 0; k < 2; k++) {
    int vec = k ? 1 : flc_lot(d);
    for (int n = 0; flc_line_next(&n, d, most_of(d, vec), &p);) {
      flc_spec s = forward_spec(d, r, &p);
      if (p.vec == vec && !(p.block && p.each < most_of(d, vec)))
        v->spec(v, &s, quick && !k && p.block);
    }
  }
  visit_backward(v, d, r);
  for (int k = 0; k < 4; k++) {
    flc_spec s = FLC_SPEC("norm", others[k], d, r);
    v->spec(v, &s, quick && d == r);
  }
}

void flc_visit_norm(flc_visitor *v) {
  flc_line p = {.vec = 4, .each = 24};
  flc_spec s = backward_spec(FL_F32, FL_BF16, &p, true, flc_norm_sample);
  v->spec(v, &s, true);
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    flc_spec weights = FLC_SPEC("norm", "weights", d);
    if (fl_dtype_is_wide((fl_dtype)d))
      v->spec(v, &weights, d == FL_F32);
    FL_EACH_DTYPE(r, fl_dtype_is_float)
    if (a_pair(d, r))
      visit_pair(v, d, r);
  }
  flc_visit_batch_norm(v);
}
