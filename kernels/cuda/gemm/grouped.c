/* The row grouped_mm: which kernel of grouped.cu and with which tiles. How
 * large groups are is known on the device alone, so there are as many blocks as
 * the most tiles that groups of so many rows can have, or blocks that stay. */
#include "../driver/library.h"
#include "product.h"
#include "grouped.h"

#define TILE_M 128 /* of gemm_sm90.cuh */
#define TILE_N 256

/* The product of one group, whose operands are alike in all of them. */
typedef struct grouped {
  const fl_launch *launch;
  fl_dtype dtype;
  bool rows, ak, bk; /* rows are cut; memory runs along the sum */
  grouped_args h;
} grouped;

static int64_t tiles_of(const grouped *g, int m, int n) {
  const gemm_args *a = &g->h.g;
  int64_t across = fl_ceil_div(a->n, n), down = fl_ceil_div(a->m, m);
  return g->rows ? (g->h.total / m + g->h.groups) * across
                 : down * across * g->h.groups;
}

static fl_status grouped_run(grouped *g, const flc_spec *spec, int m, int n,
                             unsigned block, size_t shared) {
  int64_t blocks = tiles_of(g, m, n);
  gemm_args *a = &g->h.g;
  a->tiles_m = fl_ceil_div(a->m, m);
  a->tiles_n = fl_ceil_div(a->n, n);
  if (blocks > INT32_MAX)
    return fli_fail(FL_ESIZE,
                    "%s: %lld tiles of the result are more than a launch has",
                    g->launch->op, (long long)blocks);
  flc_grid grid = {
      .x = (unsigned)blocks, .block = block, .shared = (unsigned)shared};
  return FLC_RUN(g->launch, *spec, grid, g->h);
}

/* --- 16-bit floats --- */

/* Whether lines of 16-bit elements, `ld` apart, begin at multiples of 16 bytes,
 * those of a group's first rows among them. */
static bool lines_fit(const void *data, int64_t ld, int64_t step) {
  return flc_aligned(data, 16) && ld % 8 == 0 && step % 8 == 0;
}

static bool operands_fit(const grouped *g) {
  const gemm_args *a = &g->h.g;
  return (g->rows ? g->ak : !g->ak && !g->bk) && a->k % 8 == 0 &&
         a->n % 8 == 0 && (g->rows || a->m % 8 == 0) &&
         lines_fit(a->a, g->ak ? a->am : a->ak, 0) &&
         lines_fit(a->b, g->bk ? a->bn : a->bk, g->h.bstep);
}

/* Maps of the whole operands; false if Hopper's kernels cannot have them. */
static bool grouped_maps(const grouped *g, grouped_sm90 *s) {
  const gemm_args *a = &g->h.g;
  int64_t step[FLC_BATCH_DIMS] = {g->h.bstep}, none[FLC_BATCH_DIMS] = {0};
  flc_product p = {.dtype = g->dtype, .dims = g->rows, .size = {g->h.groups}};
  s->h = g->h;
  return flc_product_map(&p, &s->a, a->a, g->ak, a->m, a->k,
                         g->ak ? a->am : a->ak, none, TILE_M) &&
         flc_product_map(&p, &s->b, a->b, g->bk, a->n, a->k,
                         g->bk ? a->bn : a->bk, step, TILE_N);
}

static fl_status run_sm90(grouped *g, grouped_sm90 *s) {
  int64_t blocks = tiles_of(g, TILE_M, TILE_N),
          most = flc_chip_of(g->launch)->processors;
  s->h.g.tiles_m = fl_ceil_div(s->h.g.m, TILE_M);
  s->h.g.tiles_n = fl_ceil_div(s->h.g.n, TILE_N);
  flc_spec spec =
      g->rows ? FLC_SPEC("grouped_sm90", "rows", (int16_t)g->dtype, g->bk)
              : FLC_SPEC("grouped_sm90", "sums", (int16_t)g->dtype);
  flc_grid grid = {.x = (unsigned)(blocks < most ? blocks : most),
                   .block = 384,
                   .shared = GEMM_SM90_SHARED};
  return FLC_RUN(g->launch, spec, grid, *s);
}

/* Tiles as large as an average group has rows, or as leave no multiprocessor
 * idle. */
static bool small_tiles(const grouped *g, int m, int n) {
  return g->rows && g->h.total <= (int64_t)g->h.groups * 64
             ? true
             : tiles_of(g, m, n) < flc_chip_of(g->launch)->processors;
}

static fl_status grouped_16(grouped *g) {
  const flc_chip *chip = flc_chip_of(g->launch);
  bool fit = operands_fit(g);
  grouped_sm90 s;
  if (fit && chip->major == 9 && flc_fits(chip, GEMM_SM90_SHARED) &&
      flc_aligned(g->h.g.c, 16) && !small_tiles(g, TILE_M, TILE_N) &&
      grouped_maps(g, &s))
    return run_sm90(g, &s);
  int size = fit && small_tiles(g, 128, 128) ? 0 : 1;
  flc_spec spec = FLC_SPEC("grouped", "product", (int16_t)g->dtype,
                           (int16_t)size, g->rows, g->ak, g->bk, fit);
  return grouped_run(g, &spec, 64 << size, 64 << size, 128,
                     flc_product_shared(chip, size));
}

/* --- the rest --- */

static fl_status grouped_simt(grouped *g) {
  int r = flc_simt_sizes(flc_chip_of(g->launch), g->dtype);
  if (r > 1 && small_tiles(g, 128, 128))
    r = 1;
  flc_spec spec = FLC_SPEC("grouped", "simt", (int16_t)g->dtype, (int16_t)r,
                           g->rows, g->ak, g->bk);
  return grouped_run(g, &spec, 64 * r, 64 * r, 256,
                     flc_simt_shared(g->dtype, r));
}

static fl_status grouped_clear(const grouped *g) {
  flc_spec spec = FLC_SPEC("grouped", g->rows ? "clear_rows" : "clear_sums",
                           (int16_t)g->dtype);
  flc_grid grid = {.x = 64, .block = 256};
  if (!g->rows) {
    grid.x = (unsigned)g->h.groups;
    grid.y = 8;
  }
  return FLC_RUN(g->launch, spec, grid, g->h);
}

/* --- the row --- */

static fl_status grouped_take(grouped *g) {
  const fl_launch *l = g->launch;
  flc_matrices ma, mb;
  gemm_args *a = &g->h.g;
  if (flc_matrices_read(l, &l->in[FL_IN_grouped_mm_a], g->dtype, &ma) !=
          FL_OK ||
      flc_matrices_read(l, &l->in[FL_IN_grouped_mm_b], g->dtype, &mb) != FL_OK)
    return FL_ENOMEM;
  a->a = ma.data;
  a->b = mb.data;
  a->m = ma.rows;
  a->n = mb.cols;
  a->k = ma.cols;
  a->am = ma.down;
  a->ak = ma.along;
  a->bk = mb.down;
  a->bn = mb.along;
  g->h.bstep = g->rows ? mb.step[0] : 0;
  g->h.total = (int)(g->rows ? a->m : a->k);
  if (fl_dtype_is_low(g->dtype)) {
    g->ak = flc_product_along(a->m, a->k, a->am, a->ak);
    g->bk = flc_product_along(a->n, a->k, a->bn, a->bk);
  } else {
    g->ak = a->ak == 1 || a->am != 1;
    g->bk = a->bk == 1 && a->bn != 1;
  }
  return FL_OK;
}

FLC_KERNEL(grouped_mm) {
  const fl_view *x = &l->in[FL_IN_grouped_mm_a], *out = &l->out[0],
                *ends = &l->in[FL_IN_grouped_mm_ends];
  int width = (int)(16 / fl_dtype_size(out->dtype));
  grouped g = {.launch = l,
               .dtype = out->dtype,
               .rows = l->in[FL_IN_grouped_mm_b].ndim == 3};
  if (fl_view_numel(out) == 0)
    return FL_OK;
  if (x->shape[0] > INT32_MAX / 2 || x->shape[1] > INT32_MAX / 2 ||
      ends->shape[0] > INT32_MAX / 2)
    return fli_fail(FL_ESIZE, "%s: more than %d rows", l->op, INT32_MAX / 2);
  g.h.groups = (int)ends->shape[0];
  g.h.fault = flc_fault_of(l);
  g.h.g.c = out->data;
  g.h.g.splits = 1;
  g.h.g.batch = 1;
  g.h.g.wide =
      out->shape[out->ndim - 1] % width == 0 && flc_aligned(out->data, 16);
  if (g.h.groups > 0 && !(g.h.ends = flc_input(l, ends, FL_I64)))
    return FL_ENOMEM;
  fl_status s = grouped_take(&g);
  if (s == FL_OK)
    s = grouped_clear(&g);
  if (s != FL_OK || fl_view_numel(x) == 0 || g.h.groups == 0)
    return s;
  return fl_dtype_is_low(g.dtype) ? grouped_16(&g) : grouped_simt(&g);
}

/* --- what a pack holds --- */

static void visit_grouped(flc_visitor *v, fl_dtype d, int rows) {
  bool low = fl_dtype_is_low(d);
  for (int i = 0; i < 4; i++)
    for (int size = 0; size < 2; size++) {
      int16_t ak = (int16_t)(i & 1), bk = (int16_t)(i >> 1);
      bool fit = rows ? ak : i == 0, quick = size == 1 && i == rows;
      flc_spec s = FLC_SPEC("grouped", "simt", (int16_t)d, (int16_t)(size + 1),
                            (int16_t)rows, ak, bk);
      if (low)
        s = FLC_SPEC("grouped", "product", (int16_t)d, (int16_t)size,
                     (int16_t)rows, ak, bk, 1);
      if (!low || fit)
        v->spec(v, &s, quick && (d == FL_BF16 || d == FL_F32));
      s.t[5] = 0; /* lines that begin anywhere */
      if (low && size == 1)
        v->spec(v, &s, false);
    }
}

void flc_visit_grouped(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    flc_spec rows = FLC_SPEC("grouped", "clear_rows", d),
             sums = FLC_SPEC("grouped", "clear_sums", d);
    v->spec(v, &rows, d == FL_BF16);
    v->spec(v, &sums, d == FL_BF16);
    visit_grouped(v, (fl_dtype)d, 0);
    visit_grouped(v, (fl_dtype)d, 1);
    if (!fl_dtype_is_low((fl_dtype)d))
      continue;
    flc_spec s = FLC_SPEC("grouped_sm90", "sums", d);
    v->spec(v, &s, d == FL_BF16);
    for (int bk = 0; bk < 2; bk++) {
      s = FLC_SPEC("grouped_sm90", "rows", d, bk);
      v->spec(v, &s, d == FL_BF16 && bk);
    }
  }
}
