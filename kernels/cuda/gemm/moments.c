/* Products that find the mean and the deviation of each column of their result,
 * and the tiles behind them that need nothing else of it. */
#include "../driver/autotune.h"
#include "../tile.h"
#include "product.h"
#include "moments.h"

typedef struct cut { /* of the result */
  int columns;       /* of a tile */
  int64_t across, items, blocks;
} cut;

static cut cut_of(const fl_launch *l, const flc_product *p) {
  cut c = {.columns = p->n > 64 ? 128 : 64};
  int64_t most = flc_chip_of(l)->processors;
  c.across = fl_ceil_div(p->n, c.columns);
  c.items = c.across * fl_ceil_div(p->m, MOMENTS_ROWS);
  c.blocks = most - most % c.across;
  c.blocks = c.blocks < c.items ? c.blocks : c.items;
  return c;
}

/* Where the product takes much longer than reading its result again, it is
 * better done by the library. */
static bool moments_pay(const flc_product *p) {
  return p->m >= 4096 && (p->k <= 1024 || p->n <= 512);
}

static bool moments_fit(const fl_launch *l, const flc_product *p) {
  const flc_chip *chip = flc_chip_of(l);
  int by = flc_setting_of(FLC_CONV);
  return chip->major == 9 && (p->dtype == FL_BF16 || p->dtype == FL_F16) &&
         flc_fits(chip, MOMENTS_SHARED(128)) && p->k % 8 == 0 &&
         p->n % 8 == 0 && p->n <= 64 * chip->processors &&
         p->m < INT32_MAX / 2 && flc_aligned(p->a, 16) &&
         flc_aligned(p->b, 16) && flc_aligned(p->c, 16) && by != FLC_LIBRARY &&
         (by == FLC_OWN || moments_pay(p));
}

typedef struct both { /* the product, and the tile */
  const flc_product *p;
  const fl_launch *tile;
  const char *text;
  cut c;
} both;

static flc_spec moments_spec(const both *b) {
  return FLC_SPEC("moments_sm90", "product", (int16_t)b->p->dtype,
                  (int16_t)b->c.columns);
}

/* Of a probe. */
static fl_status moments_soon(const fl_launch *l, const void *what) {
  const both *b = what;
  fl_launch tile = *b->tile;
  flc_spec spec = moments_spec(b);
  fl_status s = flc_run_soon(l, &spec);
  tile.probe = true;
  return s ? s : flc_tile_finish(&tile, b->text, NULL);
}

static fl_status moments_run(const fl_launch *l, const both *b) {
  const flc_product *p = b->p;
  int64_t parts = b->c.blocks / b->c.across;
  moments_sm90 g = {.m = p->m,
                    .n = p->n,
                    .steps = (int)fl_ceil_div(p->k, 64),
                    .across = (uint32_t)b->c.across,
                    .items = (uint32_t)b->c.items};
  const int64_t none[FLC_BATCH_DIMS] = {0};
  flc_spec spec = moments_spec(b);
  flc_grid grid = {.x = (unsigned)b->c.blocks,
                   .block = 384,
                   .shared = MOMENTS_SHARED(b->c.columns)};
  if (!flc_product_map(p, &g.a, p->a, true, p->m, p->k, p->am, none,
                       MOMENTS_ROWS) ||
      !flc_product_map(p, &g.b, p->b, true, p->n, p->k, p->bn, none,
                       b->c.columns) ||
      !flc_product_map(p, &g.c, p->c, true, p->m, p->n, p->n, none, 16))
    return fli_fail(FL_EUNSUPPORTED, "%s: no tensor map", l->op);
  g.part = fl_scratch_get(l, (size_t)(parts * p->n) * 16);
  if (!g.part)
    return FL_ENOMEM;
  fl_status s = FLC_RUN(l, spec, grid, g);
  return s ? s : flc_tile_finish(b->tile, b->text, g.part);
}

fl_status flc_product_moments(const fl_launch *l, const flc_product *p,
                              const fl_launch *tile, int operand, bool *done) {
  both b = {.p = p, .tile = tile};
  *done = false;
  if (!moments_fit(l, p))
    return FL_OK;
  b.c = cut_of(l, p);
  fl_status s = flc_tile_moments(tile, operand, p->n, p->m,
                                 (int)(b.c.blocks / b.c.across), &b.text);
  if (s || !b.text)
    return s;
  if (l->probe)
    return moments_soon(l, &b);
  *done = flc_deterministic() || flc_soon(l, moments_soon, &b) == 1;
  return *done ? moments_run(l, &b) : FL_OK;
}

void flc_visit_moments(flc_visitor *v) {
  static const int16_t types[] = {FL_BF16, FL_F16};
  for (int k = 0; k < 4; k++) {
    flc_spec s = FLC_SPEC("moments_sm90", "product", types[k / 2],
                          (int16_t)(k % 2 ? 128 : 64));
    v->spec(v, &s, k < 2);
  }
}
