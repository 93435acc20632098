/* The Fourier rows: short lines by kernels of our own (fft.cu), others by cuFFT
 * (vendor/cufft.c), or by the CPU's kernel if there is no cuFFT. */
#include "driver/process.h"
#include "vendor/cufft.h"

#include "fft.h"

#define LOOP 4 /* planes, from which on lines are copied side by side */

#define TRY(step)                                                              \
  do {                                                                         \
    fl_status s_ = (step);                                                     \
    if (s_)                                                                    \
      return s_;                                                               \
  } while (0)

typedef struct call {
  const fl_launch *l;
  fl_dtype dtype;
  bool wide, inverse;
  int kind, dims;
  /* of a transform: real numbers or pairs, what goes in, what comes out */
  int64_t n, in, out;
  int64_t outer, inner, size[FLC_FFT_DIMS];
  double scale;
  const void *x;
  void *y;
} call;

static flc_grid fft_over(int64_t n) {
  int64_t blocks = fl_ceil_div(n, 256);
  return (flc_grid){.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                    .block = 256};
}

static int64_t fft_numbers(const call *c, bool out) {
  int64_t pairs = c->kind == (out ? FFT_HALF : FFT_REAL) ? 1 : 2;
  return c->outer * c->inner * (out ? c->out : c->in) * pairs;
}

static void *fft_get(const call *c, int64_t n) {
  return fl_scratch_get(c->l, (size_t)(n + 1) * fl_dtype_size(c->dtype));
}

/* `count` times the same transform, one after the other in memory. */
static fl_status run_library(const call *c, const flc_fft_lines *of,
                             const char *x, char *y, int64_t count) {
  int64_t number = (int64_t)fl_dtype_size(c->dtype);
  flc_fft_batch b = {.x = x,
                     .y = y,
                     .count = count,
                     .in = (size_t)(fft_numbers(c, false) / count * number),
                     .out = (size_t)(fft_numbers(c, true) / count * number)};
  return flc_fft_execute(c->l, of, c->inverse, b);
}

/* Lines side by side, so many at once that no place in them needs 32 bits. */
static fl_status in_parts(const call *c, flc_fft_lines *of, const char *x,
                          char *y) {
  int64_t all = of->batch, most = ((1 << 30) / (c->n + 2)) & ~(int64_t)1;
  int64_t number = (int64_t)fl_dtype_size(c->dtype);
  int64_t in = fft_numbers(c, false) / all * number,
          out = fft_numbers(c, true) / all * number;
  most = most ? most : 2;
  for (int64_t at = 0; at < all; at += most) {
    of->batch = all - at < most ? all - at : most;
    TRY(run_library(c, of, x + at * in, y + at * out, 1));
  }
  return FL_OK;
}

/* (outer, size, inner) as it lies, or with the lines side by side. */
static fl_view planes(const call *c, const void *p, int64_t size, bool pairs,
                      bool turned) {
  fl_dtype pair = c->wide ? FL_C128 : FL_C64;
  return (fl_view){
      .data = (void *)(uintptr_t)p,
      .dtype = pairs ? pair : c->dtype,
      .ndim = 3,
      .shape = {c->outer, size, c->inner},
      .stride = {size * c->inner, turned ? 1 : c->inner, turned ? size : 1}};
}

static fl_status fft_turn(const call *c, void *to, const void *from,
                          int64_t size, bool pairs, bool back) {
  fl_view a = planes(c, from, size, pairs, back),
          b = planes(c, to, size, pairs, !back);
  return flc_move(c->l, &b, &a);
}

static fl_status half(const call *c, const void *x, void *y, bool turned) {
  int64_t n = c->size[c->dims - 1];
  fft_args a = {
      .x = x,
      .y = y,
      .n = fft_numbers(c, false) / 2,
      .plane = {flc_divisor_of(c->dims > 2 ? c->size[0] : 1),
                flc_divisor_of(c->dims > 1 ? c->size[c->dims - 2] : 1)},
      .size = flc_divisor_of(n / 2 + 1),
      .inner = flc_divisor_of(turned ? 1 : c->inner),
      .whole = n,
      .scale = c->scale};
  flc_spec spec = FLC_SPEC("fft", "half", c->dtype);
  return FLC_RUN(c->l, spec, fft_over(a.n), a);
}

static fl_status scale(const call *c, void *y, int64_t n) {
  int lot = (int)(16 / fl_dtype_size(c->dtype));
  lot = n % lot == 0 && flc_aligned(y, 16) ? lot : 1;
  fft_args a = {.y = y, .n = n / lot, .scale = c->scale};
  flc_spec spec = FLC_SPEC("fft", "scale", c->dtype, lot);
  return FLC_RUN(c->l, spec, fft_over(a.n), a);
}

/* From x to y, both as ours lie. The library wants real numbers aligned as if
 * they were pairs. */
static fl_status fft_transform(const call *c) {
  bool odd = c->kind != FFT_PAIRS && c->outer > 1 && c->n * c->inner % 2;
  bool flat = c->inner == 1, turned = !flat && (c->outer > LOOP || odd);
  flc_fft_lines of = {.device = c->l->device,
                      .kind = c->kind,
                      .wide = c->wide,
                      .dims = c->dims,
                      .size = {c->size[0], c->size[1], c->size[2]},
                      .stride = flat || turned ? 1 : c->inner,
                      .in_step = flat || turned ? c->in : 1,
                      .out_step = flat || turned ? c->out : 1,
                      .batch = turned ? c->outer * c->inner
                               : flat ? c->outer
                                      : c->inner};
  const void *x = c->x;
  void *y = c->y, *copy;
  if (!flc_fft_get())
    return FL_EUNSUPPORTED;
  if (turned) {
    if (!(copy = fft_get(c, fft_numbers(c, false))) ||
        !(y = fft_get(c, fft_numbers(c, true))))
      return FL_ENOMEM;
    TRY(fft_turn(c, copy, x, c->in, c->kind != FFT_REAL, false));
    x = copy;
  }
  if (c->kind == FFT_HALF) {
    copy = turned ? (void *)(uintptr_t)x : fft_get(c, fft_numbers(c, false));
    if (!copy)
      return FL_ENOMEM;
    TRY(half(c, x, copy, turned));
    x = copy;
  }
  TRY(flat || turned ? in_parts(c, &of, x, y)
                     : run_library(c, &of, x, y, c->outer));
  if (c->kind != FFT_HALF && c->scale != 1)
    TRY(scale(c, y, fft_numbers(c, true)));
  return turned ? fft_turn(c, c->y, y, c->out, c->kind != FFT_HALF, true)
                : FL_OK;
}

/* --- short lines --- */

/* Lines next to each other from which on memory is read along them. */
#define DOWN 8

/* Elements of all lines up to which the launch is what takes time. */
#define FEW (1 << 16)

/* How many lines a block has: as fit, fewer where not all processors would be
 * busy. */
static int lines_log(const call *c, int64_t all, int n) {
  int log = 0, processors = flc_chip_of(c->l)->processors;
  int64_t room = FFT_ROOM / 2 / (int64_t)fl_dtype_size(c->dtype);
  while ((int64_t)n << (log + 1) <= room && all >> log > processors)
    log++;
  return log;
}

/* false: the line is not short, or has too large a factor, or lines side by
 * side are too many for 32 bits. */
static bool short_line(const call *c, fft_short_args *a) {
  a->half = c->kind != FFT_PAIRS && c->n % 2 == 0;
  a->by = a->half ? 2 : 1;
  a->n = (int)c->n / a->by;
  int factors[FL_FACTORS];
  if (c->dims != 1 || c->n > FFT_SHORT || c->inner >> 30)
    return false;
  a->n_factors = fli_factors(a->n, factors);
  for (int k = 0, span = 1; k < a->n_factors; span *= factors[k++]) {
    a->factor[k] = factors[k];
    a->span[k] = flc_divisor_of(span);
  }
  return a->n_factors >= 0;
}

/* Whether the library would not be quicker, or is not there. */
static bool take_short(const call *c) {
  return c->outer * c->inner * c->n <= FEW || c->kind == FFT_HALF ||
         !flc_fft_get();
}

static fl_status run_short(const call *c, fft_short_args *a) {
  a->x = c->x;
  a->y = c->y;
  a->lines = c->outer * c->inner;
  a->log = lines_log(c, a->lines, a->n);
  a->inverse = c->inverse;
  a->down = c->inner >= DOWN;
  a->in = flc_divisor_of(a->n);
  a->out = flc_divisor_of(c->kind == FFT_REAL ? c->out : a->n);
  a->inner = flc_divisor_of(c->inner);
  a->scale = c->scale;
  for (int64_t k = 0; k < c->n; k++)
    fli_root(k, c->n, a->root + 2 * k);
  flc_spec spec = FLC_SPEC("fft", "few", c->dtype, c->kind);
  int64_t blocks = fl_ceil_div(a->lines, (int64_t)1 << a->log),
          most = (int64_t)flc_chip_of(c->l)->processors * 16;
  flc_grid grid = {.x = (unsigned)(blocks < most ? blocks : most),
                   .block = 256};
  return FLC_RUN(c->l, spec, grid, *a);
}

/* --- short lines of a power of two --- */

/* false too where the library needs 0.86 of the time: lines of the most pairs
 * that it takes as they lie. */
static bool in_registers(const call *c, const fft_short_args *a) {
  bool follow = c->inner == 1;
  if (c->dtype != FL_F32 || a->n < 2 || (a->n & (a->n - 1)) ||
      !(a->half || c->kind == FFT_PAIRS) || (!follow && c->inner < DOWN) ||
      (follow && !(flc_aligned(c->x, 16) && flc_aligned(c->y, 16))))
    return false;
  return a->n < FFT_SHORT || (!follow && c->outer > LOOP) || !flc_fft_get();
}

static fl_status run_line(const call *c) {
  int n = (int)c->n / (c->kind == FFT_PAIRS ? 1 : 2);
  fft_line_args a = {.x = c->x,
                     .y = c->y,
                     .lines = c->outer * c->inner,
                     .inverse = c->inverse,
                     .inner = flc_divisor_of(c->inner),
                     .scale = c->scale};
  for (int64_t k = 0; k < c->n; k++) {
    double root[2];
    fli_root(k, c->n, root);
    a.root[2 * k] = (float)root[0];
    a.root[2 * k + 1] = (float)root[1];
  }
  flc_spec spec = FLC_SPEC("fft", "line", c->kind, n, c->inner > 1);
  flc_grid grid = {.block = FFT_LINES(n)};
  grid.x = (unsigned)fl_ceil_div(a.lines, grid.block);
  return FLC_RUN(c->l, spec, grid, a);
}

/* As v, but contiguous at p. */
static void fft_contiguous(fl_view *to, const fl_view *v, fl_dtype d, void *p) {
  int64_t step = 1;
  fl_view_copy(to, v);
  to->data = p;
  to->dtype = d;
  for (int i = v->ndim - 1; i >= 0; step *= v->shape[i--])
    to->stride[i] = step;
}

/* Over c->dims dims, of which `dim` is the last, from x to y. */
static fl_status fft_run(const fl_launch *l, const fl_view *x, const fl_view *y,
                         call *c, int dim) {
  int pair = c->kind == FFT_REAL ? x->ndim : x->ndim - 1;
  c->l = l;
  c->dtype = flc_wide(x->dtype);
  c->wide = c->dtype == FL_F64;
  int64_t half = c->n / 2 + 1, above = 1;
  c->size[c->dims - 1] = c->n;
  for (int k = 1; k < c->dims; k++) {
    c->size[c->dims - 1 - k] = x->shape[dim - k];
    above *= x->shape[dim - k];
  }
  c->in = above * (c->kind == FFT_HALF ? half : c->n);
  c->out = above * (c->kind == FFT_REAL ? half : c->n);
  c->n *= above;
  c->outer = fl_numel(dim + 1 - c->dims, x->shape);
  c->inner = fl_numel(pair - dim - 1, x->shape + dim + 1);
  if (fl_view_numel(y) == 0)
    return FL_OK;
  size_t aligned = 2 * fl_dtype_size(c->dtype);
  if (!(c->x = flc_input(l, x, c->dtype)))
    return FL_ENOMEM;
  if (!flc_aligned(c->x, aligned)) {
    void *copy = fft_get(c, fft_numbers(c, false));
    if (!copy)
      return FL_ENOMEM;
    TRY(flc_copy(l, copy, c->x,
                 (size_t)fft_numbers(c, false) * fl_dtype_size(c->dtype)));
    c->x = copy;
  }
  bool direct = y->dtype == c->dtype && flc_aligned(y->data, aligned);
  if (!(c->y = direct ? y->data : fft_get(c, fft_numbers(c, true))))
    return FL_ENOMEM;
  if (c->n == 1) { /* lines are elements, wherever they lie */
    c->outer *= c->inner;
    c->inner = 1;
  }
  fft_short_args a;
  bool own = short_line(c, &a);
  TRY(own && in_registers(c, &a) ? run_line(c)
      : own && take_short(c)     ? run_short(c, &a)
                                 : fft_transform(c));
  if (direct)
    return FL_OK;
  fl_view from;
  fft_contiguous(&from, y, c->dtype, c->y);
  return flc_move(l, y, &from);
}

/* How many dims are done by one plan: all, or one after the other. */
static int at_once(const fl_view *x, int64_t n, int dim, int64_t dims,
                   bool pairs) {
  bool fits = n > 1 && n < 1 << 30 && dim == x->ndim - 1 - pairs;
  for (int k = 1; k < dims; k++) {
    n *= x->shape[dim - k];
    fits = fits && x->shape[dim - k] > 1 && n < 1 << 30;
  }
  return fits ? (int)dims : 1;
}

/* Room for what one pass leaves to the next: as v, but wide. */
static fl_status fft_between(const fl_launch *l, const fl_view *v,
                             fl_view *to) {
  fl_dtype d = flc_wide(v->dtype);
  size_t bytes = (size_t)(fl_view_numel(v) + 1) * fl_dtype_size(d);
  fft_contiguous(to, v, d, fl_scratch_get(l, bytes));
  return to->data ? FL_OK : FL_ENOMEM;
}

/* Of pairs from x to y, over `dims` dims up to dim; only the first has the
 * scale. */
static fl_status run_pairs(const fl_launch *l, const fl_view *x,
                           const fl_view *y, call c, int dim, int64_t dims) {
  fl_view part;
  c.kind = FFT_PAIRS;
  for (bool first = true; dims > 0; first = false) {
    c.n = y->shape[dim];
    c.dims = at_once(y, c.n, dim, dims, true);
    dims -= c.dims;
    if (first && dims)
      TRY(fft_between(l, y, &part));
    TRY(fft_run(l, x, dims ? &part : y, &c, dim));
    dim -= c.dims;
    x = &part;
    c.scale = 1;
  }
  return FL_OK;
}

/* All `dims` dims of a row, the last of which has c.n real numbers or pairs. */
static fl_status run_all(const fl_launch *l, call c, int dim, int64_t dims) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  if (c.kind == FFT_PAIRS)
    return run_pairs(l, x, y, c, dim, dims);
  fl_view part;
  bool real = c.kind == FFT_REAL;
  c.dims = at_once(x, c.n, dim, dims, !real);
  int before = dim - c.dims;
  int64_t left = dims - c.dims;
  if (!left)
    return fft_run(l, x, y, &c, dim);
  TRY(fft_between(l, real ? y : x, &part));
  call others = c;
  others.scale = 1;
  if (real) {
    TRY(fft_run(l, x, &part, &c, dim));
    return run_pairs(l, &part, y, others, before, left);
  }
  TRY(run_pairs(l, x, &part, others, before, left));
  return fft_run(l, &part, y, &c, dim);
}

static fl_status fft_row(const fl_launch *l, call c, int dim, int64_t dims) {
  fl_status s = run_all(l, c, dim, dims);
  return s == FL_EUNSUPPORTED ? flc_on_host(l) : s;
}

FLC_KERNEL(dft) {
  const fl_attr *a = l->attrs->v;
  call c = {.kind = FFT_PAIRS,
            .inverse = a[FL_ATTR_dft_inverse].i,
            .scale = a[FL_ATTR_dft_scale].f};
  return fft_row(l, c, (int)a[FL_ATTR_dft_dim].i, a[FL_ATTR_dft_dims].i);
}

FLC_KERNEL(rdft) {
  const fl_attr *a = l->attrs->v;
  int dim = (int)a[FL_ATTR_rdft_dim].i;
  call c = {.kind = FFT_REAL,
            .n = l->in[0].shape[dim],
            .scale = a[FL_ATTR_rdft_scale].f};
  return fft_row(l, c, dim, a[FL_ATTR_rdft_dims].i);
}

FLC_KERNEL(irdft) {
  const fl_attr *a = l->attrs->v;
  call c = {.kind = FFT_HALF,
            .n = a[FL_ATTR_irdft_n].i,
            .inverse = true,
            .scale = a[FL_ATTR_irdft_scale].f};
  return fft_row(l, c, (int)a[FL_ATTR_irdft_dim].i, a[FL_ATTR_irdft_dims].i);
}

void flc_visit_fft(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_wide) {
    flc_spec one = FLC_SPEC("fft", "scale", d, 1);
    flc_spec lot = FLC_SPEC("fft", "scale", d, d == FL_F64 ? 2 : 4);
    flc_spec half = FLC_SPEC("fft", "half", d);
    v->spec(v, &one, false);
    v->spec(v, &lot, d == FL_F32);
    v->spec(v, &half, d == FL_F32);
    for (int kind = FFT_PAIRS; kind <= FFT_HALF; kind++) {
      flc_spec few = FLC_SPEC("fft", "few", d, kind);
      v->spec(v, &few, d == FL_F32);
    }
  }
  for (int kind = FFT_PAIRS; kind <= FFT_HALF; kind++)
    for (int n = 2; n <= (kind == FFT_PAIRS ? FFT_SHORT : FFT_SHORT / 2);
         n *= 2)
      for (int down = 0; down < 2; down++) {
        flc_spec line = FLC_SPEC("fft", "line", kind, n, down);
        v->spec(v, &line, n == 16 || n == FFT_SHORT);
      }
}
