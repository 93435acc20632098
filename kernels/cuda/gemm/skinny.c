/* Products whose A has few rows: which of them skinny.cu computes, and with
 * what. */
#include "product.h"
#include "skinny.h"

#include "../device/line.h"
#include "../../../runtime/program.h"

#include <string.h>

#define KNOWN ((int64_t)10 << 20) /* bytes of f32 */

/* Lines of `k` elements, `apart` from each other, in whole aligned chunks. */
static bool skinny_lines(const flc_product *p, const void *data, int64_t rows,
                         int64_t apart, const int64_t *step) {
  int64_t n = 16 / (int64_t)fl_dtype_size(p->dtype);
  bool fit = flc_aligned(data, 16) && (rows == 1 || apart % n == 0);
  for (int i = 0; i < p->dims; i++)
    fit = fit && step[i] % n == 0;
  return fit;
}

/* A product of a matrix and a vector, as one of the vector and the transposed
 * matrix: C lies the same. */
static flc_product skinny_turned(const flc_product *p) {
  flc_product t = *p;
  if (p->n != 1 || p->m == 1 || (p->bias && !p->bias_down))
    return t;
  t.m = 1;
  t.n = p->m;
  t.a = p->b;
  t.am = p->k;
  t.ak = p->bk;
  t.b = p->a;
  t.bn = p->am;
  t.bk = p->ak;
  t.bias_down = false;
  memcpy(t.astep, p->bstep, sizeof t.astep);
  memcpy(t.bstep, p->astep, sizeof t.bstep);
  return t;
}

bool flc_product_skinny(const flc_product *from) {
  flc_product p = skinny_turned(from);
  int64_t n = 16 / (int64_t)fl_dtype_size(p.dtype);
  return fl_dtype_is_float(p.dtype) && !p.add && !p.apart && p.k > 0 &&
         p.m <= (fl_dtype_is_low(p.dtype) ? 16 : 8) && p.n <= INT32_MAX &&
         flc_product_batch(&p) <= 65535 && p.ak == 1 && p.bk == 1 &&
         p.k % n == 0 && skinny_lines(&p, p.a, p.m, p.am, p.astep) &&
         skinny_lines(&p, p.b, p.n, p.bn, p.bstep);
}

/* Columns of a block of `plain`: registers suffice for. */
static int skinny_wide(fl_dtype d) {
  return d == FL_F64 ? 2 : 4;
}
/* As measured on an H200, beside cuBLASLt: 16-bit floats as long as all blocks
 * run at once, f32 up to some size. */
bool flc_product_surely_skinny(const fl_launch *l, const flc_product *from) {
  flc_product p = skinny_turned(from);
  if (!flc_product_skinny(from) || p.dims || p.m > 8)
    return false;
  return fl_dtype_is_low(p.dtype)
             ? fl_ceil_div(p.n, 8) < 4 * (int64_t)flc_chip_of(l)->processors
             : p.dtype == FL_F32 && p.n * p.k * 4 <= KNOWN;
}

/* Without what is behind the product. */
static flc_spec tensor_spec(int dtype, int halves, int r, int stages) {
  return FLC_SPEC("skinny", "tensor", dtype, halves, r, stages);
}
static flc_spec plain_spec(int dtype, int m, int r) {
  return FLC_SPEC("skinny", "plain", dtype, m, r);
}

skinny_cut flc_skinny_cut(const fl_launch *l, int64_t blocks, int64_t k,
                          int64_t chunk, int64_t most) {
  int64_t chunks = fl_ceil_div(k, chunk), sms = flc_chip_of(l)->processors,
          warps = blocks >= 4 * sms   ? 4
                  : blocks >= 2 * sms ? 8
                                      : SKINNY_WARPS;
  int64_t turns = fl_ceil_div(chunks, warps < most ? warps : most);
  return (skinny_cut){(int)fl_ceil_div(chunks, turns), (int)turns};
}

typedef struct skinny_way {
  flc_spec spec;
  flc_grid grid;
} skinny_way;

static flc_grid skinny_grid(const flc_product *p, int columns, int warps,
                            int shared, bool early) {
  return (flc_grid){.x = (unsigned)fl_ceil_div(p->n, columns),
                    .y = (unsigned)flc_product_batch(p),
                    .block = (unsigned)warps * 32,
                    .shared = (unsigned)(warps * shared),
                    .early = early};
}

static skinny_way skinny_tensor(const fl_launch *l, const flc_product *p) {
  int64_t batch = flc_product_batch(p), tiles = fl_ceil_div(p->n, 8) * batch,
          sms = flc_chip_of(l)->processors;
  int r = tiles >= 16 * sms  ? 4
          : tiles >= 4 * sms ? 2
                             : 1,
      halves = p->m > 8 ? 2 : 1, line = (r + halves) * 1024;
  skinny_cut c = flc_skinny_cut(l, fl_ceil_div(p->n, 8 * r) * batch, p->k, 64,
                                SKINNY_SHARED / (4 * line));
  int stages = c.turns <= 2 && r < 4 ? 2 : 4;
  return (skinny_way){tensor_spec((int)p->dtype, halves, r, stages),
                      skinny_grid(p, 8 * r, c.warps, stages * line,
                                  p->n * p->k * 2 >= SKINNY_EARLY)};
}

static skinny_way skinny_plain(const fl_launch *l, const flc_product *p) {
  int64_t batch = flc_product_batch(p), sms = flc_chip_of(l)->processors;
  int m = flc_power(p->m, 8),
      r = p->n * batch >= 16 * sms ? skinny_wide(p->dtype) : 2;
  skinny_cut c = flc_skinny_cut(l, fl_ceil_div(p->n, r) * batch, p->k,
                                32 * 16 / (int64_t)fl_dtype_size(p->dtype),
                                SKINNY_SHARED / (4 * r * 512));
  return (skinny_way){plain_spec((int)p->dtype, m, r),
                      skinny_grid(p, r, c.warps, 4 * r * 512, false)};
}

bool flc_skinny_args(const fl_launch *l, const flc_product *p, skinny_args *a,
                     flc_spec *spec) {
  fl_epilogue e;
  int *result = &spec->t[spec->n++];
  memset(&a->e, 0, sizeof a->e);
  *result = -1;
  a->lasting = flc_lasting(l, p->b) && (!p->bias || flc_lasting(l, p->bias));
  flc_product_fill(p, &a->g);
  if (!p->behind)
    return true;
  fl_epilogue_split(p->behind, p->c, &e);
  *result = p->behind->row_result;
  spec->soon = true;
  return flc_expr_inside(&e.program, *result, &spec->text, &a->e);
}

fl_status flc_product_run_skinny(const fl_launch *l, const flc_product *from) {
  flc_product p = skinny_turned(from);
  bool low = fl_dtype_is_low(p.dtype);
  skinny_way w = low ? skinny_tensor(l, &p) : skinny_plain(l, &p);
  skinny_args a;
  if (!flc_skinny_args(l, &p, &a, &w.spec))
    return flc_product_first(l, from);
  w.grid.early = w.grid.early || a.lasting;
  return FLC_RUN(l, w.spec, w.grid, a);
}

void flc_visit_skinny(flc_visitor *v) {
  FL_EACH_DTYPE(d, fl_dtype_is_low)
  for (int halves = 1; halves <= 2; halves++)
    for (int r = 1; r <= 4; r *= 2)
      for (int stages = r == 4 ? 4 : 2; stages <= 4; stages *= 2) {
        flc_spec s = tensor_spec(d, halves, r, stages);
        s.t[s.n++] = -1;
        v->spec(v, &s, d == FL_BF16 && r == 4);
      }
  FL_EACH_DTYPE(d, fl_dtype_is_wide)
  for (int m = 1; m <= 8; m *= 2)
    for (int r = 2; r <= skinny_wide(d); r *= 2) {
      flc_spec s = plain_spec(d, m, r);
      s.t[s.n++] = -1;
      v->spec(v, &s, d == FL_F32 && m == 8 && r == 4);
    }
}
