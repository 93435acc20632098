/* Our own matrix products: which kernel of gemm.cu, with which tiles, and
 * whether the sum is cut into pieces. */
#include "../driver/library.h"
#include "product.h"
#include "gemm.h"

#include <string.h>

#define PIECES_MOST ((int64_t)256 << 20) /* bytes */
#define READ_OFTEN  96                   /* times, for which a copy pays */

/* --- the plan --- */

typedef struct shape { /* of the tiles of a kernel */
  int m, n, blocks;    /* blocks that share a multiprocessor */
  double cost;         /* of a multiply-add, against the best */
} shape;

static const shape sizes[] = {
    {64, 64, 3, 1.7}, {128, 128, 2, 1.1}, {128, 256, 1, 1}};
/* The last by maps, whose steps need no threads (gemm_sm90.cu). */
static const shape hopper_sizes[] = {
    {64, 64, 3, 1.7}, {128, 128, 2, 1.2}, {128, 256, 1, 0.85}};
static const shape simt_sizes[] = {{64, 64, 3, 1.5}, {128, 128, 2, 1}};

typedef struct plan {
  int size, splits;
  double time;
} plan;

/* Cycles, roughly: rounds of blocks over the chip, and what is written and read
 * again if sums are cut. `rate`: multiply-adds of a multiprocessor in a cycle.
 */
static double time_of(const flc_product *p, const shape *s, int chips,
                      double rate, int64_t steps, int depth, int splits) {
  double c = (double)p->m * (double)p->n * (double)flc_product_batch(p);
  int64_t tiles = fl_ceil_div(p->m, s->m) * fl_ceil_div(p->n, s->n) *
                  flc_product_batch(p) * splits;
  double each = (double)fl_ceil_div(tiles, chips);
  double busy = each < s->blocks ? 1 + 0.5 * (1 - each / s->blocks) : 1;
  double work = (double)fl_ceil_div(steps, splits) * depth * s->m * s->n;
  /* the store at about 18 bytes a cycle; blocks hide each other's */
  double store = (2000 + s->m * s->n * 2 / 18.0) / (s->blocks > 1 ? 2 : 1);
  double time = each * (work * s->cost * busy / rate + store);
  return splits == 1 ? time : time + 5000 + c * splits * 8 / 1500;
}

static plan best(const flc_product *p, const shape *s, int n, int chips,
                 double rate, int depth) {
  static const int cuts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  int64_t steps = fl_ceil_div(p->k, depth);
  int64_t bytes = p->m * p->n * flc_product_batch(p) * 8;
  plan b = {0, 1, 1e300};
  for (int i = 0; i < n; i++)
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
      if (k > 0 && (cuts[k] * 4 > steps || cuts[k] * bytes > PIECES_MOST))
        break;
      double t = time_of(p, &s[i], chips, rate, steps, depth, cuts[k]);
      if (t < b.time)
        b = (plan){i, cuts[k], t};
    }
  return b;
}

/* --- operands --- */

bool flc_product_lines(int64_t rows, int64_t k, int64_t down, int64_t along) {
  return along == 1 || k == 1 || down == 1 || rows == 1;
}

bool flc_product_along(int64_t rows, int64_t k, int64_t down, int64_t along) {
  if (along == 1 || k == 1)
    return !(down == 1 && k == 1 && rows > 1);
  return false;
}

/* Whether all lines begin at a multiple of 16 bytes. A line that is alone and
 * ends amid 16 bytes does not fit: the hardware's copy of a part is given the
 * address of what follows, which compute-sanitizer takes for a read there. */
static bool gemm_fits(const void *data, int64_t lines, int64_t length,
                      int64_t ld, const flc_product *p, const int64_t *step) {
  bool whole = length % 8 == 0 || (ld % 8 == 0 && ld >= length);
  bool fit = flc_aligned(data, 16) && (lines == 1 ? whole : ld % 8 == 0);
  for (int i = 0; i < p->dims; i++)
    fit = fit && step[i] % 8 == 0;
  return fit;
}

/* A copy of an operand (rows, k) with aligned lines, if its own are not and
 * each is read often enough, `times`. */
static fl_status gemm_align(const fl_launch *l, const flc_product *p,
                            int64_t rows, int64_t k, int64_t times,
                            const void **data, int64_t *down, int64_t *along,
                            int64_t *step) {
  bool runs = flc_product_along(rows, k, *down, *along);
  int64_t lines = runs ? rows : k, length = runs ? k : rows;
  int64_t room = fl_ceil_div(length, 8) * 8, size = lines * room;
  int64_t ld = runs ? *down : *along;
  if (times < READ_OFTEN || gemm_fits(*data, lines, length, ld, p, step))
    return FL_OK;
  fl_view from = {.data = (void *)(uintptr_t)*data, .dtype = p->dtype}, to;
  from.ndim = p->dims + 2;
  for (int i = 0; i < p->dims; i++) {
    from.shape[i] = step[i] ? p->size[i] : 1;
    from.stride[i] = step[i];
  }
  from.shape[p->dims] = lines;
  from.stride[p->dims] = runs ? *down : *along;
  from.shape[p->dims + 1] = length;
  from.stride[p->dims + 1] = 1;
  fl_view_copy(&to, &from);
  to.stride[p->dims] = room;
  for (int i = p->dims - 1; i >= 0; size *= from.shape[i--])
    to.stride[i] = size;
  to.data = fl_scratch_get(l, (size_t)size * 2 + 16); /* as in `fits` */
  if (!to.data)
    return FL_ENOMEM;
  for (int i = 0; i < p->dims; i++)
    step[i] = step[i] ? to.stride[i] : 0;
  *down = runs ? room : 1;
  *along = runs ? 1 : room;
  *data = to.data;
  return flc_move(l, &to, &from);
}

fl_status flc_product_align(const fl_launch *l, flc_product *p) {
  if (p->dtype != FL_F16 && p->dtype != FL_BF16)
    return FL_OK;
  fl_status s =
      gemm_align(l, p, p->m, p->k, p->n, &p->a, &p->am, &p->ak, p->astep);
  return s ? s
           : gemm_align(l, p, p->n, p->k, p->m, &p->b, &p->bn, &p->bk,
                        p->bstep);
}

/* --- running it --- */

static size_t sum_size(fl_dtype d) {
  return d == FL_F64 || d == FL_I64 || d == FL_BOOL ? 8 : 4;
}

void flc_product_fill(const flc_product *p, gemm_args *a) {
  int width = (int)(16 / fl_dtype_size(p->dtype));
  width = width > 8 ? 8 : width;
  *a = (gemm_args){.a = p->a,
                   .b = p->b,
                   .bias = p->bias,
                   .c = p->c,
                   .pre = p->pre,
                   .m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .am = p->am,
                   .ak = p->ak,
                   .bk = p->bk,
                   .bn = p->bn,
                   .batch = flc_product_batch(p),
                   .dims = p->dims,
                   .act = (int)p->act,
                   .bias_dtype = p->bias_dtype,
                   .bias_down = p->bias_down,
                   .wide = p->n % width == 0 && flc_aligned(p->c, 16) &&
                           flc_aligned(p->pre, 16)};
  memcpy(a->size, p->size, sizeof a->size);
  memcpy(a->astep, p->astep, sizeof a->astep);
  memcpy(a->bstep, p->bstep, sizeof a->bstep);
}

static fl_status gemm_gather(const fl_launch *l, const flc_product *p,
                             const gemm_args *a) {
  int64_t n = a->batch * a->m * a->n;
  int64_t blocks = fl_ceil_div(n, 256 * (a->wide ? 4 : 1));
  flc_spec spec =
      FLC_SPEC("gemm", "gather", (int16_t)p->dtype, (int16_t)a->wide);
  if (p->apart)
    spec = FLC_SPEC("pairwise", "gather", (int16_t)p->dtype);
  flc_grid grid = {.x = (unsigned)(blocks < 65536 ? blocks : 65536),
                   .block = 256};
  return FLC_RUN(l, spec, grid, *a);
}

static fl_status gemm_launch(const fl_launch *l, const flc_product *p,
                             const flc_spec *spec, const plan *q,
                             const shape *s, int depth, unsigned block,
                             size_t shared, gemm_sm90 *h) {
  gemm_args a;
  flc_product_fill(p, &a);
  a.tiles_m = fl_ceil_div(p->m, s->m);
  a.tiles_n = fl_ceil_div(p->n, s->n);
  int64_t steps = fl_ceil_div(p->k, depth);
  int64_t each = fl_ceil_div(steps, q->splits);
  a.steps = (int)each;
  a.splits = each ? (int)fl_ceil_div(steps, each) : 1;
  if (a.splits > 1) {
    a.part = fl_scratch_get(l, (size_t)(a.splits * a.batch * a.m * a.n) *
                                   sum_size(p->dtype));
    if (!a.part)
      return FL_ENOMEM;
  }
  int64_t blocks = a.tiles_m * a.tiles_n * a.batch * a.splits;
  if (blocks > INT32_MAX)
    return fli_fail(FL_ESIZE,
                    "%s: %lld tiles of the result are more than a launch has",
                    l->op, (long long)blocks);
  flc_grid grid = {
      .x = (unsigned)blocks, .block = block, .shared = (unsigned)shared};
  fl_status st;
  if (h) { /* blocks that stay */
    int64_t most = flc_chip_of(l)->processors;
    h->g = a;
    h->items = (uint32_t)blocks;
    grid.x = (unsigned)(blocks < most ? blocks : most);
    st = FLC_RUN(l, *spec, grid, *h);
  } else
    st = FLC_RUN(l, *spec, grid, a);
  return st == FL_OK && a.splits > 1 ? gemm_gather(l, p, &a) : st;
}

static size_t gemm_larger(size_t a, size_t b) {
  return a > b ? a : b;
}

size_t flc_product_shared(const flc_chip *chip, int size) {
  const shape *s = &sizes[size];
  size_t step = (size_t)(s->m + s->n) * 128;
  size_t steps = size == 0 || (size == 2 && chip->major == 9) ? 4 : 3;
  return gemm_larger(step * steps, (size_t)s->m * (size_t)(s->n + 9) * 4);
}

size_t flc_simt_shared(fl_dtype dtype, int r) {
  size_t edge = (size_t)r * 64, line = edge + 4;
  return gemm_larger(3 * 2 * 16 * line * fl_dtype_size(dtype),
                     (edge + 1) * line * sum_size(dtype));
}

int flc_simt_sizes(const flc_chip *chip, fl_dtype dtype) {
  bool large = dtype == FL_F32 || dtype == FL_F64;
  return large && flc_fits(chip, flc_simt_shared(dtype, 2)) ? 2 : 1;
}

/* --- Hopper --- */

bool flc_product_map(const flc_product *p, gemm_map *map, const void *data,
                     bool runs, int64_t rows, int64_t k, int64_t ld,
                     const int64_t *step, int tile) {
  bool bf16 = p->dtype == FL_BF16;
  const flc_driver *cu = flc_driver_get();
  uint64_t size[4] = {(uint64_t)(runs ? k : rows), (uint64_t)(runs ? rows : k),
                      1, 1};
  uint64_t bytes[3] = {(uint64_t)ld * 2, 16, 16};
  uint32_t box[4] = {64, runs ? (uint32_t)tile : 64, 1, 1};
  uint32_t each[4] = {1, 1, 1, 1};
  for (int i = 0; i < p->dims; i++) {
    int at = p->dims - 1 - i; /* innermost first */
    if (step[at] < 0 || step[at] >= (int64_t)1 << 38)
      return false;
    if (step[at] > 0) {
      size[2 + i] = (uint64_t)p->size[at];
      bytes[1 + i] = (uint64_t)step[at] * 2;
    }
  }
  if (size[1] == 1)
    bytes[0] = 16;
  return rows < INT32_MAX / 2 && k < INT32_MAX / 2 && ld >= 0 && bytes[0] > 0 &&
         bytes[0] < (uint64_t)1 << 39 &&
         cu->TensorMapEncodeTiled(
             (CUtensorMap *)map,
             bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             4, (void *)(uintptr_t)data, size, bytes, box, each,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool map_both(const flc_product *p, bool ak, bool bk, gemm_sm90 *h) {
  return p->dims <= 2 && p->k > 0 &&
         flc_product_map(p, &h->a, p->a, ak, p->m, p->k, ak ? p->am : p->ak,
                         p->astep, 128) &&
         flc_product_map(p, &h->b, p->b, bk, p->n, p->k, bk ? p->bn : p->bk,
                         p->bstep, 256);
}

/* --- 16-bit floats --- */

static fl_status run_16(const fl_launch *l, const flc_product *p) {
  const flc_chip *chip = flc_chip_of(l);
  bool ak = flc_product_along(p->m, p->k, p->am, p->ak);
  bool bk = flc_product_along(p->n, p->k, p->bn, p->bk);
  bool fit = (ak ? gemm_fits(p->a, p->m, p->k, p->am, p, p->astep)
                 : gemm_fits(p->a, p->k, p->m, p->ak, p, p->astep)) &&
             (bk ? gemm_fits(p->b, p->n, p->k, p->bn, p, p->bstep)
                 : gemm_fits(p->b, p->k, p->n, p->bk, p, p->bstep));
  int n = flc_fits(chip, flc_product_shared(chip, 2)) ? 3 : 2;
  bool hopper = chip->major == 9 && fit && n == 3 && p->n % 8 == 0 &&
                flc_aligned(p->c, 16) && flc_aligned(p->pre, 16);
  const shape *list = hopper ? hopper_sizes : sizes;
  plan q = best(p, fit ? list : sizes + 1, fit ? n : 1, chip->processors,
                chip->major == 9 ? 1700 : 1000, 64);
  if (!fit)
    q.size = 1;
  gemm_sm90 h;
  if (hopper && q.size == 2 && map_both(p, ak, bk, &h)) {
    flc_spec spec = FLC_SPEC("gemm_sm90", "product", (int16_t)p->dtype, ak, bk);
    return gemm_launch(l, p, &spec, &q, &list[2], 64, 384, GEMM_SM90_SHARED,
                       &h);
  }
  flc_spec spec = FLC_SPEC("gemm", "product", (int16_t)p->dtype,
                           (int16_t)q.size, ak, bk, fit);
  return gemm_launch(l, p, &spec, &q, &sizes[q.size], 64,
                     q.size == 2 ? 256 : 128, flc_product_shared(chip, q.size),
                     NULL);
}

static fl_status run_simt(const fl_launch *l, const flc_product *p) {
  const flc_chip *chip = flc_chip_of(l);
  bool ak = p->ak == 1 || p->am != 1, bk = p->bk == 1 && p->bn != 1;
  double rate = p->dtype == FL_F64 ? 90 : p->dtype == FL_F32 ? 90 : 45;
  int n = flc_simt_sizes(chip, p->dtype);
  if (p->apart) { /* two instructions, none of them a tensor core's */
    rate = p->dtype == FL_F64 ? 22 : 45;
    n = p->dtype == FL_F64 ? 1 : flc_simt_sizes(chip, FL_F32);
  }
  plan q = best(p, simt_sizes, n, chip->processors, rate, 16);
  flc_spec spec = FLC_SPEC(p->apart ? "pairwise" : "gemm", "simt",
                           (int16_t)p->dtype, (int16_t)(q.size + 1), ak, bk);
  return gemm_launch(l, p, &spec, &q, &simt_sizes[q.size], 16, 256,
                     flc_simt_shared(p->dtype, q.size + 1), NULL);
}

/* The product by itself, then its sum with C. */
static fl_status gemm_add(const fl_launch *l, const flc_product *p) {
  flc_product apart = *p;
  int64_t n = p->m * p->n * flc_product_batch(p);
  apart.add = false;
  apart.c = fl_scratch_get(l, (size_t)n * fl_dtype_size(p->dtype));
  if (!apart.c)
    return FL_ENOMEM;
  fl_status s = flc_product_own(l, &apart);
  if (s != FL_OK)
    return s;
  gemm_args a = {.a = apart.c, .c = p->c, .m = n, .n = 1, .batch = 1};
  int64_t blocks = fl_ceil_div(n, 256 * 4);
  flc_spec spec =
      FLC_SPEC("gemm", "accumulate", (int16_t)p->dtype, (int16_t)p->sum);
  flc_grid grid = {.x = (unsigned)(blocks < 65536 ? blocks : 65536),
                   .block = 256};
  return FLC_RUN(l, spec, grid, a);
}

fl_status flc_product_first(const fl_launch *l, const flc_product *p) {
  flc_product first = *p;
  int64_t n = p->m * p->n * flc_product_batch(p);
  if (l->probe)
    return p->behind ? flc_product_behind(p, p->c) : FL_OK;
  first.behind = NULL;
  if (!first.c &&
      !(first.c = fl_scratch_get(l, (size_t)n * fl_dtype_size(p->dtype))))
    return FL_ENOMEM;
  fl_status s = flc_product_own(l, &first);
  return s ? s : flc_product_behind(p, first.c);
}

fl_status flc_product_own(const fl_launch *l, const flc_product *p) {
  if (p->m == 0 || p->n == 0 || flc_product_batch(p) == 0)
    return FL_OK;
  if (flc_product_skinny(p))
    return flc_product_run_skinny(l, p);
  if (p->behind)
    return flc_product_first(l, p);
  if (p->add)
    return gemm_add(l, p);
  if (!p->apart && (p->dtype == FL_F16 || p->dtype == FL_BF16))
    return run_16(l, p);
  return run_simt(l, p);
}

/* --- what a pack holds --- */

static void visit_16(flc_visitor *v, fl_dtype d) {
  for (int i = 0; i < 4; i++) {
    for (int size = 0; size < 3; size++) {
      flc_spec s = FLC_SPEC("gemm", "product", (int16_t)d, (int16_t)size,
                            (int16_t)(i & 1), (int16_t)(i >> 1), 1);
      v->spec(v, &s, d == FL_BF16 && i == 3 && size == 1);
    }
    flc_spec s = FLC_SPEC("gemm", "product", (int16_t)d, 1, (int16_t)(i & 1),
                          (int16_t)(i >> 1), 0);
    v->spec(v, &s, false);
    s = FLC_SPEC("gemm_sm90", "product", (int16_t)d, (int16_t)(i & 1),
                 (int16_t)(i >> 1));
    v->spec(v, &s, d == FL_BF16 && i == 3);
  }
}

static void visit_apart(flc_visitor *v, fl_dtype d) {
  int most = d == FL_F64 ? 1 : 2;
  for (int r = 1; r <= most; r++)
    for (int i = 0; i < 4; i++) {
      flc_spec s = FLC_SPEC("pairwise", "simt", (int16_t)d, (int16_t)r,
                            (int16_t)(i & 1), (int16_t)(i >> 1));
      v->spec(v, &s, r == most && fl_dtype_is_wide(d) && i == 3);
    }
  flc_spec s = FLC_SPEC("pairwise", "gather", (int16_t)d);
  v->spec(v, &s, d == FL_F32);
}

void flc_visit_gemm(flc_visitor *v) {
  visit_16(v, FL_BF16);
  visit_16(v, FL_F16);
  FL_EACH_DTYPE(d, fl_dtype_is_float) {
    visit_apart(v, d);
    flc_spec same = FLC_SPEC("gemm", "accumulate", d, d);
    flc_spec wide = FLC_SPEC("gemm", "accumulate", d, FL_F32);
    v->spec(v, &same, d == FL_F32);
    if (fl_dtype_is_low((fl_dtype)d))
      v->spec(v, &wide, d == FL_BF16);
  }
  FL_EACH_DTYPE(d, fl_dtype_is_real) {
    bool half = d == FL_F16 || d == FL_BF16;
    for (int i = 0; i < 4 && !half; i++)
      for (int r = 1; r <= (fl_dtype_is_wide(d) ? 2 : 1); r++) {
        flc_spec s = FLC_SPEC("gemm", "simt", (int16_t)d, (int16_t)r,
                              (int16_t)(i & 1), (int16_t)(i >> 1));
        v->spec(v, &s, d == FL_F32 && r == 2 && i == 1);
      }
    for (int wide = 0; wide < 2; wide++) {
      flc_spec s = FLC_SPEC("gemm", "gather", (int16_t)d, (int16_t)wide);
      v->spec(v, &s, d == FL_BF16 && wide);
      for (int act = FLC_ACT_GELU; wide && act <= FLC_ACT_SIGMOID; act++)
        if (fl_dtype_kind((fl_dtype)d) == FL_KIND_FLOAT) {
          flc_spec only = FLC_SPEC("gemm", "activation", d, act);
          v->spec(v, &only, d == FL_BF16 && act == FLC_ACT_GELU);
        }
      s.entry = "apply";
      if (fl_dtype_kind((fl_dtype)d) == FL_KIND_FLOAT)
        v->spec(v, &s, d == FL_BF16 && wide);
    }
  }
}
