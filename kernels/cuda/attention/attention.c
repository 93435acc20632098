/* Attention: which kernels compute it, and with what. 16-bit floats of up to
 * 256 columns go to tensor cores: attention.cu, attention_backward.cu, on
 * Hopper with up to 128 columns attention_sm90.cu, attention_sm90_backward.cu.
 * So does f32 of up to 128: attention_f32.cu, attention_f32_backward.cu. All
 * else goes to attention_plain.cu, as f32 or f64. */
#include <math.h>
#include <string.h>

#include "../driver/library.h"

#include "attention_sm90.h"
#include "../device/line.h"

enum { ROWS = 64, THREADS = 128, PLAIN_THREADS = 256 }; /* of a block */
enum { FEW = 4 };                                       /* queries */
enum { CLUSTER = 8 }; /* blocks that join what they have computed */

/* --- kernels --- */

/* Columns of 16-bit kernels; 0: too many. */
static int width(int64_t cols) {
  static const int widths[] = {32, 64, 96, 128, 192, 256};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (cols <= widths[i])
      return widths[i];
  return 0;
}

/* Rows of the tiles a 16-bit kernel goes over. */
static int forward_step(int w) {
  return w <= 128 ? 64 : 32;
}
static int keys_step(int w) {
  return w <= 64 ? 64 : w <= 128 ? 32 : 16;
}
static int queries_step(int w) {
  return w <= 128 ? 64 : w <= 192 ? 32 : 16;
}
static int keys_columns(int w) {
  return w <= 128 ? w : w / 2;
}

static flc_spec forward_spec(int dtype, int w, bool more) {
  return FLC_SPEC("attention", "forward", dtype, w, forward_step(w), more);
}
static int few_width(int64_t cols) {
  return cols <= 64 ? 64 : cols <= 128 ? 128 : 256;
}
static flc_spec few_spec(int dtype, int w, int queries) {
  return FLC_SPEC("attention", "few", dtype, w, queries);
}
static flc_spec merge_spec(int dtype) {
  return FLC_SPEC("attention", "merge", dtype);
}
static flc_spec keys_spec(int dtype, int w, bool more) {
  return FLC_SPEC("attention_backward", "keys", dtype, w, keys_columns(w),
                  keys_step(w), more);
}
static flc_spec queries_spec(int dtype, int w, bool more) {
  return FLC_SPEC("attention_backward", "queries", dtype, w, queries_step(w),
                  more);
}
static flc_spec delta_spec(int dtype) {
  return FLC_SPEC("attention_backward", "delta", dtype);
}
/* f32 on tensor cores: a block has 64 rows of `whole` operands in shared memory
 * and `pairs` of tiles of `step` rows; `blocks` share a processor. For up to 64
 * columns, and for more. */
typedef struct f32_kernel {
  const char *file, *name;
  int whole, pairs, step[2], blocks[2];
} f32_kernel;
static const f32_kernel
    f32_forward = {"attention_f32", "forward", 1, 1, {64, 32}, {2, 2}},
    f32_keys = {"attention_f32_backward", "keys", 2, 2, {32, 16}, {3, 2}},
    f32_queries = {"attention_f32_backward", "queries", 2, 1, {32, 32}, {3, 2}};
static flc_spec f32_spec(const f32_kernel *k, int w, bool more) {
  return FLC_SPEC(k->file, k->name, w, k->step[w > 64], k->blocks[w > 64],
                  more);
}

static unsigned f32_shared(const f32_kernel *k, int cols) {
  int tiles = 2 * k->pairs * k->step[cols > 64],
      numbers = k->whole * ROWS * (cols + 4) + tiles * (cols + 5);
  return (unsigned)numbers * (unsigned)sizeof(float);
}

/* Rows of a thread's part of a tile; a block has 16 times as many. */
static int plain_rows(int dtype) {
  return dtype == FL_F32 ? 8 : 4;
}
static flc_spec plain_forward_spec(int dtype, int parts) {
  return FLC_SPEC("attention_plain", "forward", dtype, parts,
                  plain_rows(dtype));
}
static flc_spec plain_keys_spec(int dtype, int parts) {
  return FLC_SPEC("attention_plain", "keys", dtype, parts, plain_rows(dtype));
}
static flc_spec plain_queries_spec(int dtype, int parts) {
  return FLC_SPEC("attention_plain", "queries", dtype, parts,
                  plain_rows(dtype));
}

/* Hopper's */
enum { WIDE_KEYS = 128, WIDE_THREADS = 384 };
static int wide_stages(int w) {
  return w == 64 ? 4 : 2;
}
/* Groups that compute, forward: three, where registers suffice (not for scores
 * of two tiles, without mask and dropout) and tiles of 192 queries leave little
 * of the last one empty. */
static int wide_groups(int w, int64_t queries, int more) {
  return w == 64 && more == 1 &&
                 fl_ceil_div(queries, 192) * 192 <= queries + queries / 12
             ? 3
             : 2;
}
static int wide_queries(int w) { /* of a tile, backward */
  return w == 64 ? 128 : 64;
}
static flc_spec wide_forward_spec(int dtype, int w, int groups, int more) {
  return FLC_SPEC("attention_sm90", "forward", dtype, w, groups, wide_stages(w),
                  more);
}
static flc_spec wide_rows_spec(int dtype, int w) {
  return FLC_SPEC("attention_sm90_backward", "rows", dtype, w);
}
static flc_spec bits_spec(int turn, int quads) {
  return FLC_SPEC("attention", "bits", turn, quads);
}
static flc_spec wide_keys_spec(int dtype, int w, int more) {
  return FLC_SPEC("attention_sm90_backward", "keys", dtype, w, more);
}
static flc_spec wide_gather_spec(int dtype, int w) {
  return FLC_SPEC("attention_sm90_backward", "gather", dtype, w);
}

static void visit_one(flc_visitor *v, flc_spec s, bool quick) {
  v->spec(v, &s, quick);
}

void flc_visit_attention(flc_visitor *v) {
  static const int common[] = {32, 64, 96, 128, 192, 256};
  FL_EACH_DTYPE(dtype, fl_dtype_is_low) {
    visit_one(v, delta_spec(dtype), dtype == FL_BF16);
    visit_one(v, merge_spec(dtype), dtype == FL_BF16);
    for (int w = 64; w <= 256; w *= 2)
      for (int queries = 1; queries <= FEW; queries *= 2)
        visit_one(v, few_spec(dtype, w, queries),
                  dtype == FL_BF16 && w == 128 && queries == 1);
    for (int i = 0; i < 6; i++)
      for (int more = 0; more < 2; more++) {
        bool quick = dtype == FL_BF16 && common[i] == 64 && more;
        visit_one(v, forward_spec(dtype, common[i], more), quick);
        visit_one(v, keys_spec(dtype, common[i], more), quick);
        visit_one(v, queries_spec(dtype, common[i], more), quick);
      }
  }
  FL_EACH_DTYPE(dtype, fl_dtype_is_low)
  for (int w = 64; w <= 128; w += 64) {
    bool quick = dtype == FL_BF16 && w == 128;
    for (int more = 0; more < 4; more++) {
      visit_one(v, wide_forward_spec(dtype, w, 2, more), quick && more % 2);
      if (w == 64 && more == 1)
        visit_one(v, wide_forward_spec(dtype, w, 3, more), dtype == FL_BF16);
      visit_one(v, wide_keys_spec(dtype, w, more), quick && more != 2);
    }
    visit_one(v, wide_rows_spec(dtype, w), quick);
    visit_one(v, wide_gather_spec(dtype, w), quick);
  }
  for (int k = 0; k < 4; k++)
    visit_one(v, bits_spec(k / 2, k % 2), k == 3);
  for (int w = 32; w <= 128; w += 32)
    for (int more = 0; more < 2; more++) {
      bool quick = w == 64 || (w == 128 && more);
      visit_one(v, f32_spec(&f32_forward, w, more), quick);
      visit_one(v, f32_spec(&f32_keys, w, more), quick);
      visit_one(v, f32_spec(&f32_queries, w, more), quick);
    }
  FL_EACH_DTYPE(dtype, fl_dtype_is_wide) {
    visit_one(v, delta_spec(dtype), false);
    for (int parts = dtype == FL_F32 ? 2 : 1; parts <= 2; parts++) {
      bool quick = dtype == FL_F32;
      visit_one(v, plain_forward_spec(dtype, parts), quick);
      visit_one(v, plain_keys_spec(dtype, parts), quick);
      visit_one(v, plain_queries_spec(dtype, parts), quick);
    }
  }
}

/* --- operands --- */

static int wider(const attention_args *a) {
  return a->d > a->dv_cols ? a->d : a->dv_cols;
}

typedef struct work {
  const fl_launch *l;
  attention_args a;
  fl_dtype dtype; /* of the kernels' operands */
  fl_dtype wide;  /* computed in */
  bool tensor;    /* 16-bit kernels */
  bool f32;       /* those of f32 on tensor cores */
  int unit;       /* of elements that copies take, 16 bytes or 1 */
  bool more;      /* a mask, dropout, or a scale that is not positive */
  int64_t heads_all, heads_k;
} work;

/* Counted from the last dim; 1 for a dim that is not there. */
static int64_t size_at(const fl_view *v, int from_last) {
  return from_last <= v->ndim ? v->shape[v->ndim - from_last] : 1;
}
static int64_t stride_at(const fl_view *v, int from_last) {
  return size_at(v, from_last) == 1 ? 0 : v->stride[v->ndim - from_last];
}

static attention_rows rows_of(const fl_view *v, void *data) {
  return (attention_rows){data, stride_at(v, 4), stride_at(v, 3),
                          stride_at(v, 2)};
}

static void contiguous(fl_view *v) {
  int64_t n = 1;
  for (int i = v->ndim; i-- > 0; n *= v->shape[i])
    v->stride[i] = n;
}

/* Whether a kernel can read it where it lies: columns side by side and, on
 * tensor cores, in whole aligned chunks of 16 bytes. */
static bool fits(const work *w, const fl_view *v) {
  if (v->dtype != w->dtype || stride_at(v, 1) > 1 || stride_at(v, 1) < 0 ||
      (stride_at(v, 1) == 0 && size_at(v, 1) > 1))
    return false;
  int n = w->unit;
  return n == 1 || (size_at(v, 1) % n == 0 && stride_at(v, 2) % n == 0 &&
                    stride_at(v, 2) >= 0 && stride_at(v, 2) <= INT32_MAX &&
                    stride_at(v, 3) % n == 0 && stride_at(v, 4) % n == 0 &&
                    flc_aligned(v->data, 16));
}

static fl_status take(const work *w, const fl_view *v, attention_rows *r) {
  if (fits(w, v)) {
    *r = rows_of(v, v->data);
    return FL_OK;
  }
  fl_view to = *v;
  to.dtype = w->dtype;
  int64_t cols = size_at(v, 1);
  to.shape[v->ndim - 1] = fl_ceil_div(cols, w->unit) * w->unit;
  contiguous(&to);
  size_t bytes = (size_t)fl_view_numel(&to) * fl_dtype_size(w->dtype);
  to.data = fl_scratch_get(w->l, bytes + 1);
  if (!to.data)
    return FL_ENOMEM;
  *r = rows_of(&to, to.data);
  if (bytes == 0)
    return FL_OK;
  if (to.shape[v->ndim - 1] != cols) {
    fl_status s = flc_zero(w->l, to.data, bytes);
    if (s)
      return s;
    to.shape[v->ndim - 1] = cols;
  }
  return fl_view_numel(&to) ? flc_move(w->l, &to, v) : FL_OK;
}

/* Where a result of the kernels goes: `temp` is it, or scratch of `dtype` that
 * has to be moved there (give). Kernels write aligned chunks where columns are
 * whole ones. */
static fl_status open_out(const work *w, const fl_view *out, fl_dtype dtype,
                          fl_view *temp) {
  bool chunks = w->unit > 1 && size_at(out, 1) % w->unit == 0;
  *temp = *out;
  if (out->dtype != dtype ||
      (chunks && out->dtype == w->dtype && !fits(w, out))) {
    temp->dtype = dtype;
    contiguous(temp);
    temp->data = fl_scratch_get(
        w->l, (size_t)fl_view_numel(out) * fl_dtype_size(dtype) + 1);
  }
  return temp->data || !fl_view_numel(out) ? FL_OK : FL_ENOMEM;
}
static fl_status give(const work *w, const fl_view *out, const fl_view *temp) {
  return out->data == temp->data || !fl_view_numel(out)
             ? FL_OK
             : flc_move(w->l, out, temp);
}

/* `own`: one of the operands' dtype may stay as it is. */
static fl_status open_mask(work *w, const fl_view *m, bool own) {
  attention_mask *to = &w->a.mask;
  fl_view v;
  if (!m->data)
    return FL_OK;
  fl_view_copy(&v, m);
  bool fits = m->dtype == w->wide || (own && m->dtype == w->dtype);
  if (m->dtype != FL_BOOL && (!fits || flc_is_number(m))) {
    contiguous(&v);
    v.data = (void *)flc_input(w->l, m, w->wide);
    v.dtype = w->wide;
    if (!v.data)
      return FL_ENOMEM;
  }
  to->data = v.data;
  to->dtype = (int)v.dtype;
  for (int i = 0; i < 4; i++)
    to->stride[i] = stride_at(&v, 4 - i);
  return FL_OK;
}

/* For kernels that know no masks of 16 bits. */
static fl_status wide_mask(work *w, const fl_view *m) {
  return w->tensor && w->a.mask.dtype == (int)w->dtype ? open_mask(w, m, false)
                                                       : FL_OK;
}

static void open_number(const fl_view *v, uint64_t *value, const void **at,
                        int *dtype) {
  if (flc_is_number(v))
    *value = (uint64_t)flc_number_int(v);
  else
    *at = v->data;
  *dtype = (int)v->dtype;
}

/* Whether f32 goes to tensor cores: up to 128 columns, as far as the tiles fit
 * into the chip's shared memory. */
static bool takes_f32(const work *w, bool backward) {
  const flc_chip *chip = flc_chip_of(w->l);
  int cols = wider(&w->a);
  if (w->dtype != FL_F32 || cols > 128)
    return false;
  cols = width(cols);
  return backward ? flc_fits(chip, f32_shared(&f32_keys, cols)) &&
                        flc_fits(chip, f32_shared(&f32_queries, cols))
                  : flc_fits(chip, f32_shared(&f32_forward, cols));
}

/* Operands from input `first` on are q, k, v; the inputs up to v decide on the
 * kernels. */
static fl_status open(work *w, const fl_launch *l, int first, int mask,
                      int random) {
  _Static_assert(FL_IN_FOLLOWS(attention, q, k) &&
                     FL_IN_FOLLOWS(attention, k, v) &&
                     FL_IN_FOLLOWS(attention_backward, q, k) &&
                     FL_IN_FOLLOWS(attention_backward, k, v),
                 "read for both rows");
  const fl_view *q = &l->in[first], *k = &l->in[first + 1],
                *v = &l->in[first + 2];
  attention_args *a = &w->a;
  fl_status s;
  memset(w, 0, sizeof *w);
  w->l = l;
  w->dtype = q->dtype;
  for (int i = 0; i < first + 3; i++) {
    fl_dtype d = l->in[i].dtype;
    if (d != w->dtype)
      w->dtype = d == FL_F64 || w->dtype == FL_F64 ? FL_F64 : FL_F32;
  }
  a->d = (int)size_at(q, 1);
  a->dv_cols = (int)size_at(v, 1);
  w->tensor = fl_dtype_size(w->dtype) == 2 &&
              width(a->d > a->dv_cols ? a->d : a->dv_cols) != 0;
  w->wide = flc_wide(w->dtype);
  if (!w->tensor)
    w->dtype = w->wide;
  w->f32 = takes_f32(w, first == FL_IN_attention_backward_q);
  w->unit = w->tensor ? 8 : w->f32 ? 4 : 1;
  w->heads_k = size_at(k, 3);
  a->heads = (int)size_at(q, 3);
  a->group = w->heads_k ? (int)(a->heads / w->heads_k) : 1;
  w->heads_all = size_at(q, 4) * a->heads;
  w->heads_k *= size_at(q, 4);
  a->nq = size_at(q, 2);
  a->nk = size_at(k, 2);
  a->causal = l->attrs->v[FL_ATTR_attentions_causal].i != 0 &&
              a->nq > 1; /* one query sees all */
  a->ahead = a->nk - a->nq;
  a->scale = l->attrs->v[FL_ATTR_attentions_scale].f;
  if (a->scale != a->scale)
    a->scale = a->d ? 1 / sqrt((double)a->d) : 1;
  double p = l->attrs->v[FL_ATTR_attentions_dropout].f;
  if (p > 0) {
    attention_drop *d = &a->drop;
    d->limit = (uint64_t)rint(p * 0x1p16);
    d->keep = d->limit >> 16 ? 0 : 1 / (1 - p);
    open_number(&l->in[random], &d->seed, &d->seed_at, &d->seed_dtype);
    open_number(&l->in[FL_IN_OFFSET(random)], &d->offset, &d->offset_at,
                &d->offset_dtype);
  }
  if ((s = take(w, q, &a->q)) || (s = take(w, k, &a->k)) ||
      (s = take(w, v, &a->v)) ||
      (s = open_mask(w, &l->in[mask], w->tensor && a->nq > ROWS)))
    return s;
  w->more = a->mask.data || a->drop.limit || !(a->scale > 0);
  return FL_OK;
}

/* --- launches --- */

/* 64 of `rows` rows of one of `heads` to a block, or to `parts` blocks. Shared
 * memory has `tiles` tiles of 64 rows, twice two of `step` rows, which are gone
 * over, and two numbers for each of these. */
static fl_status run16(work *w, flc_spec spec, int64_t rows, int64_t heads,
                       int tiles, int step, int parts) {
  int cols = width(wider(&w->a));
  w->a.tiles = fl_ceil_div(rows, ROWS);
  flc_grid g = {.x = (unsigned)(w->a.tiles * heads * parts),
                .block = THREADS,
                .shared = (unsigned)(tiles * ROWS * cols * 2 +
                                     4 * step * (cols * 2 + 4))};
  return g.x ? FLC_RUN(w->l, spec, g, w->a) : FL_OK;
}

/* Few queries, as when text is generated, would keep few processors busy: then
 * blocks share the keys of a tile, two steps or more each, and a second kernel
 * adds up. */
static fl_status set_parts(work *w, int64_t parts, int64_t most, int joined) {
  attention_args *a = &w->a;
  parts = parts > most ? most : parts;
  a->parts = parts > 32 ? 32 : parts > 1 ? (int)parts : 1;
  a->joined = a->parts > 1 && a->parts <= joined;
  if (a->parts == 1 || a->joined)
    return FL_OK;
  size_t floats = (size_t)(a->parts * w->heads_all * a->nq);
  a->part_y = fl_scratch_get(w->l, floats * (size_t)a->dv_cols * 4 + 1);
  a->part_lse = fl_scratch_get(w->l, floats * 4);
  return a->part_y && a->part_lse ? FL_OK : FL_ENOMEM;
}

/* Up to 4 queries: blocks so many that memory is kept busy, each with 8 keys or
 * more for a group of lanes. */
static fl_status run_few(work *w) {
  attention_args *a = &w->a;
  int cols = few_width(wider(a)), keys = 8 * THREADS / (cols / 8);
  const flc_chip *chip = flc_chip_of(w->l);
  fl_status s = set_parts(w, 8 * chip->processors / w->heads_all, a->nk / keys,
                          chip->major >= 9 ? CLUSTER : 1);
  flc_spec spec = few_spec((int)w->dtype, cols, flc_power(a->nq, 4));
  flc_grid g = {.x = (unsigned)(w->heads_all * a->parts),
                .block = THREADS,
                .cluster = a->joined ? (unsigned)a->parts : 0,
                .early = true};
  return s ? s : FLC_RUN(w->l, spec, g, *a);
}

static fl_status forward16(work *w) {
  attention_args *a = &w->a;
  int cols = width(wider(a)), step = forward_step(cols);
  int64_t blocks = fl_ceil_div(a->nq, ROWS) * w->heads_all,
          rows = w->heads_all * a->nq;
  fl_status s;
  if (a->nq <= FEW && !a->drop.limit)
    s = run_few(w);
  else if ((s = set_parts(w, 2 * flc_chip_of(w->l)->processors / blocks,
                          a->nk / (2 * step), 1)) == FL_OK)
    s = run16(w, forward_spec((int)w->dtype, cols, w->more), a->nq,
              w->heads_all, 1, step, a->parts);
  if (s || a->parts == 1 || a->joined)
    return s;
  flc_spec spec = merge_spec((int)w->dtype);
  flc_grid g = {.x = (unsigned)rows, .block = THREADS};
  return FLC_RUN(w->l, spec, g, *a);
}

static fl_status run_f32(work *w, const f32_kernel *k, int64_t rows,
                         int64_t heads) {
  int cols = width(wider(&w->a));
  flc_spec spec = f32_spec(k, cols, w->more);
  w->a.tiles = fl_ceil_div(rows, ROWS);
  flc_grid g = {.x = (unsigned)(w->a.tiles * heads),
                .block = THREADS,
                .shared = f32_shared(k, cols)};
  return g.x ? FLC_RUN(w->l, spec, g, w->a) : FL_OK;
}

/* `parts`: columns / 64 of a block's result. */
static fl_status run_plain(work *w, flc_spec spec, int64_t rows, int64_t heads,
                           int cols, int parts) {
  int tile = 16 * plain_rows((int)w->dtype),
      numbers = (16 + ROWS) * (tile + 4) + 16 * (ROWS + 4) + 16 * parts * ROWS;
  w->a.tiles = fl_ceil_div(rows, tile);
  w->a.chunks = cols ? (int)fl_ceil_div(cols, parts * ROWS) : 1;
  flc_grid g = {.x = (unsigned)(w->a.tiles * heads * w->a.chunks),
                .block = PLAIN_THREADS,
                .shared =
                    (unsigned)numbers * (unsigned)fl_dtype_size(w->dtype)};
  return g.x ? FLC_RUN(w->l, spec, g, w->a) : FL_OK;
}

static int plain_parts(const work *w) {
  return wider(&w->a) <= ROWS ? 1 : 2;
}

/* --- Hopper --- */

/* Rows as a tensor map of boxes of (64, tile); false: maps cannot describe it.
 * Copies fill with zeros what lies outside. */
static bool wide_map(const work *w, attention_map *map, const attention_rows *r,
                     int cols, int64_t rows, int64_t heads, int tile) {
  const flc_driver *cu = flc_driver_get();
  int type = w->dtype == FL_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  int64_t batch = w->heads_all / w->a.heads,
          stride[3] = {r->row, r->head, r->batch};
  uint64_t size[4] = {(uint64_t)cols, (uint64_t)rows, (uint64_t)heads,
                      (uint64_t)batch};
  uint64_t bytes[3];
  uint32_t box[4] = {64, (uint32_t)tile, 1, 1}, step[4] = {1, 1, 1, 1};
  for (int i = 0; i < 3; i++) {
    if (size[i + 1] == 1)
      stride[i] = 8; /* any: there is one */
    if (stride[i] <= 0 || stride[i] >= (int64_t)1 << 39)
      return false;
    bytes[i] = (uint64_t)stride[i] * 2;
  }
  return cols > 0 && rows > 0 && rows < INT32_MAX - WIDE_KEYS &&
         cu->TensorMapEncodeTiled(
             (CUtensorMap *)map, type, 4, r->data, size, bytes, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static int wide_width(const work *w) {
  return wider(&w->a) <= 64 ? 64 : 128;
}

/* What the kernels have to reckon with: their MORE. */
static int wide_more(const work *w) {
  const attention_args *a = &w->a;
  bool bits = !a->mask.data || a->mask.dtype == FL_BOOL;
  return !w->more ? 0 : bits && a->scale > 0 ? 1 : 2;
}

/* Whether a mask of 16-bit floats can be read n keys at a time. */
static bool wide_lots(const attention_args *a, int n) {
  const attention_mask *m = &a->mask;
  return m->data && m->dtype != FL_BOOL && m->dtype != FL_F32 &&
         m->stride[3] == 1 && m->stride[0] % n == 0 && m->stride[1] % n == 0 &&
         m->stride[2] % n == 0 && a->nk % n == 0 &&
         flc_aligned(m->data, 2 * (size_t)n);
}

/* A bool mask as bits, the keys' or (turned) the queries' side by side. Dims in
 * which it repeats stay one. */
static fl_status wide_bits(const work *w, attention_sm90 *to, bool turned) {
  const attention_mask *m = &w->a.mask;
  const int64_t *by = m->stride;
  if (to->more != 1 || !m->data)
    return FL_OK;
  int row = turned ? 3 : 2, col = turned ? 2 : 3;
  int64_t size[4] = {w->heads_all / w->a.heads, w->a.heads, w->a.nq, w->a.nk};
  for (int i = 0; i < 4; i++)
    size[i] = by[i] ? size[i] : 1;
  attention_pack a = {.mask = m->data,
                      .stride = {by[0], by[1], by[row], by[col]},
                      .heads = size[1],
                      .rows = size[row],
                      .columns = size[col],
                      .words = fl_ceil_div(size[col], 128) * 4};
  int64_t heads = size[0] * size[1];
  bool turn = by[row] == 1 && by[col] != 1;
  /* bytes four at a time, where all lines begin at a word and are whole */
  int side = turn ? row : col;
  bool quads = size[side] % 4 == 0 && by[side] == 1 && flc_aligned(m->data, 4);
  for (int i = 0; i < 4; i++)
    quads = quads && (i == side || by[i] % 4 == 0);
  a.lines = fl_ceil_div(a.rows, !turn ? 8 : quads ? 128 : 32);
  a.units = heads * a.lines * (turn ? a.words : a.words / 4);
  a.to = fl_scratch_get(w->l, (size_t)(heads * a.rows * a.words) * 4);
  if (!a.to)
    return FL_ENOMEM;
  to->a.bits =
      (attention_bits){a.to, size[0] > 1 ? size[1] * a.rows * a.words : 0,
                       size[1] > 1 ? a.rows * a.words : 0,
                       size[row] > 1 ? a.words : 0, size[col] > 1};
  flc_spec spec = bits_spec(turn, quads);
  flc_grid g = {.x = (unsigned)fl_ceil_div(a.units, 8), .block = 256};
  return FLC_RUN(w->l, spec, g, a);
}

/* The maps, of queries by tiles of `tile`; false: other kernels have to do it.
 * Few queries would leave most of a tile empty. */
static bool wide_open(const work *w, attention_sm90 *to, int tile) {
  const attention_args *a = &w->a;
  memset(to, 0, sizeof *to);
  if (!w->tensor || wider(a) > 128 || (a->d | a->dv_cols) % 8 ||
      a->nq <= ROWS || !w->heads_all || flc_chip_of(w->l)->major != 9 ||
      fl_ceil_div(a->nq, tile) * w->heads_all > INT32_MAX / 2)
    return false;
  int64_t heads_k = a->heads / a->group;
  to->a = *a;
  to->tiles_q = fl_ceil_div(a->nq, tile);
  to->more = wide_more(w);
  return wide_map(w, &to->q, &a->q, a->d, a->nq, a->heads, tile) &&
         wide_map(w, &to->k, &a->k, a->d, a->nk, heads_k, WIDE_KEYS) &&
         wide_map(w, &to->v, &a->v, a->dv_cols, a->nk, heads_k, WIDE_KEYS);
}

/* With a causal mask items differ in length. Long ones are taken by counting,
 * by sections of heads that leave most of the cache to others; for short ones
 * setting a counter to 0 would cost more than it gains. */
static fl_status wide_schedule(const work *w, attention_sm90 *to, int blocks) {
  const attention_args *a = &w->a;
  double one = (double)a->nk * (a->d + a->dv_cols) * 2 / a->group,
         flops = 2.0 * (double)w->heads_all * (double)a->nq * (double)a->nk *
                 (double)(a->d + a->dv_cols) / 2;
  to->section = 1;
  if (!a->causal)
    return FL_OK;
  to->section = (int)w->heads_all;
  if (to->items <= blocks || flops / blocks < 5e8) /* about 100 us */
    return FL_OK;
  double fit = (double)(flc_chip_of(w->l)->l2 / 3) / one;
  if (fit < (double)w->heads_all)
    to->section = (int)fl_ceil_div((int64_t)fit + 1, a->group) * a->group;
  to->counter = fl_scratch_get(w->l, sizeof(int));
  return to->counter ? flc_zero(w->l, to->counter, sizeof(int)) : FL_ENOMEM;
}

static fl_status wide_forward(const work *w, attention_sm90 *to) {
  int cols = wide_width(w), most = flc_chip_of(w->l)->processors,
      groups = wide_groups(cols, w->a.nq, to->more),
      rows = 3 * 64 * groups + 2 * WIDE_KEYS * wide_stages(cols);
  flc_spec spec = wide_forward_spec((int)w->dtype, cols, groups, to->more);
  to->a.tiles = to->tiles_q;
  to->items = (int)(to->a.tiles * w->heads_all);
  fl_status s = wide_bits(w, to, false);
  if (s || (s = wide_schedule(w, to, most)))
    return s;
  flc_grid g = {.x = (unsigned)(to->items < most ? to->items : most),
                .block = 128 * (unsigned)(groups + 1),
                .shared = (unsigned)(1024 + rows * cols * 2)};
  return FLC_RUN(w->l, spec, g, *to);
}

static fl_status wide_backward(const work *w, attention_sm90 *to) {
  int cols = wide_width(w), queries = wide_queries(cols), dtype = (int)w->dtype;
  int64_t tiles = w->heads_all * to->tiles_q;
  size_t bytes = (size_t)tiles * 2 * 8 * 128 * 4 * sizeof(float);
  to->more = to->more == 2 && wide_lots(&w->a, 8) ? 3 : to->more;
  int mask = to->more == 3 ? 8 * 32 * queries : 0; /* bytes */
  flc_spec rows = wide_rows_spec(dtype, cols),
           keys = wide_keys_spec(dtype, cols, to->more),
           gather = wide_gather_spec(dtype, cols);
  fl_status s;
  to->rows =
      fl_scratch_get(w->l, (size_t)(tiles * 2 * queries) * sizeof(float));
  to->dq_sums = fl_scratch_get(w->l, bytes);
  if (!to->rows || !to->dq_sums)
    return FL_ENOMEM;
  to->items = (int)w->heads_all;
  to->a.tiles = fl_ceil_div(to->a.nk, WIDE_KEYS);
  flc_grid g = {.x = (unsigned)fl_ceil_div(tiles * queries * 8, 256),
                .block = 256};
  if ((s = wide_bits(w, to, true)) ||
      (s = flc_zero(w->l, to->dq_sums, bytes)) ||
      (s = FLC_RUN(w->l, rows, g, *to)))
    return s;
  g = (flc_grid){
      .x = (unsigned)(to->a.tiles * w->heads_k),
      .block = WIDE_THREADS,
      .shared =
          (unsigned)(1024 + 2 * WIDE_KEYS * cols * 2 + 4 * queries * cols * 2 +
                     2 * WIDE_KEYS * queries * 2 + 2 * 2 * queries * 4 + mask)};
  if ((s = FLC_RUN(w->l, keys, g, *to)))
    return s;
  g = (flc_grid){.x = (unsigned)(tiles * 2), .block = 128, .shared = 8192};
  return FLC_RUN(w->l, gather, g, *to);
}

/* One query of each head, and heads that share keys: as well one head with more
 * queries, which reads keys once. Elements keep their numbers. */
static void join_heads(work *w) {
  attention_args *a = &w->a;
  if (a->nq != 1 || a->group == 1 || a->causal)
    return;
  a->q.row = a->q.head;
  a->y.row = a->y.head;
  a->mask.stride[2] = a->mask.stride[1];
  a->q.head *= a->group;
  a->y.head *= a->group;
  a->mask.stride[1] *= a->group;
  a->nq = a->group;
  a->heads /= a->group;
  w->heads_all /= a->group;
  a->group = 1;
}

/* q, k, v, mask, seed, offset -> y, lse */
FLC_KERNEL(attention) {
  work w;
  fl_view y, lse;
  fl_status s;
  if (fl_view_numel(&l->out[FL_OUT_attention_lse]) == 0)
    return FL_OK;
  if ((s = open(&w, l, FL_IN_attention_q, FL_IN_attention_mask,
                FL_IN_attention_seed)) ||
      (s = open_out(&w, &l->out[0], w.dtype, &y)) ||
      (s = open_out(&w, &l->out[FL_OUT_attention_lse], w.wide, &lse)))
    return s;
  w.a.y = rows_of(&y, y.data);
  w.a.lse = lse.data;
  join_heads(&w);
  attention_sm90 wide;
  if (wide_open(&w, &wide,
                64 * wide_groups(wide_width(&w), w.a.nq, wide_more(&w)))) {
    wide.more = wide.more == 2 && wide_lots(&w.a, 2) ? 3 : wide.more;
    s = wide_forward(&w, &wide);
  } else if (w.tensor) {
    s = wide_mask(&w, &l->in[FL_IN_attention_mask]);
    s = s ? s : forward16(&w);
  } else if (w.f32) {
    s = run_f32(&w, &f32_forward, w.a.nq, w.heads_all);
  } else {
    int parts = plain_parts(&w);
    s = run_plain(&w, plain_forward_spec((int)w.dtype, parts), w.a.nq,
                  w.heads_all, w.a.dv_cols, parts);
  }
  if (s || (s = give(&w, &l->out[0], &y)))
    return s;
  return give(&w, &l->out[FL_OUT_attention_lse], &lse);
}

static fl_status run_delta(work *w) {
  attention_args a = w->a;
  flc_spec spec = delta_spec((int)w->dtype);
  int64_t rows = w->heads_all * a.nq;
  flc_grid g = {.x = (unsigned)fl_ceil_div(rows * 8, 256), .block = 256};
  a.tiles = w->heads_all;
  return rows ? FLC_RUN(w->l, spec, g, a) : FL_OK;
}

static fl_status run_backward(work *w) {
  attention_sm90 wide;
  int dtype = (int)w->dtype;
  fl_status s;
  if (!flc_deterministic() &&
      wide_open(w, &wide, wide_queries(wide_width(w))) &&
      wide_map(w, &wide.dy, &w->a.dy, w->a.dv_cols, w->a.nq, w->a.heads,
               wide_queries(wide_width(w))))
    return wide_backward(w, &wide);
  if ((s = wide_mask(w, &w->l->in[FL_IN_attention_backward_mask])) ||
      (s = run_delta(w)))
    return s;
  if (w->tensor) {
    int cols = width(wider(&w->a));
    s = run16(w, keys_spec(dtype, cols, w->more), w->a.nk, w->heads_k, 2,
              keys_step(cols), cols / keys_columns(cols));
    return s ? s
             : run16(w, queries_spec(dtype, cols, w->more), w->a.nq,
                     w->heads_all, 2, queries_step(cols), 1);
  }
  if (w->f32) {
    s = run_f32(w, &f32_keys, w->a.nk, w->heads_k);
    return s ? s : run_f32(w, &f32_queries, w->a.nq, w->heads_all);
  }
  int parts = plain_parts(w);
  /* two results of f64 need too many registers for two parts each */
  int fewer = w->dtype == FL_F64 ? 1 : parts;
  s = run_plain(w, plain_keys_spec(dtype, fewer), w->a.nk, w->heads_k,
                wider(&w->a), fewer);
  return s ? s
           : run_plain(w, plain_queries_spec(dtype, parts), w->a.nq,
                       w->heads_all, w->a.d, parts);
}

/* dy, q, k, v, mask, y, lse, seed, offset -> dq, dk, dv */
FLC_KERNEL(attention_backward) {
  work w;
  fl_view out[3];
  attention_args *a = &w.a;
  fl_status s;
  if ((s = open(&w, l, FL_IN_attention_backward_q,
                FL_IN_attention_backward_mask,
                FL_IN_attention_backward_seed)) ||
      (s = take(&w, &l->in[FL_IN_attention_backward_dy], &a->dy)) ||
      (s = take(&w, &l->in[FL_IN_attention_backward_y], &a->y)))
    return s;
  attention_rows *rows[3] = {&a->dq, &a->dk, &a->dv};
  for (int i = 0; i < 3; i++) {
    if ((s = open_out(&w, &l->out[i], w.dtype, &out[i])))
      return s;
    *rows[i] = rows_of(&out[i], out[i].data);
  }
  size_t bytes = (size_t)(w.heads_all * a->nq) * fl_dtype_size(w.wide);
  a->delta = fl_scratch_get(l, bytes + 1);
  if (!a->delta)
    return FL_ENOMEM;
  if (bytes && !(a->lse = (void *)flc_input(
                     l, &l->in[FL_IN_attention_backward_lse], w.wide)))
    return FL_ENOMEM;
  if ((s = run_backward(&w)))
    return s;
  for (int i = 0; i < 3 && !s; i++)
    s = give(&w, &l->out[i], &out[i]);
  return s;
}
