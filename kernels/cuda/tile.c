/* The kernel "tile": which threads take which elements of a fused kernel's loop
 * nest, decided once for a tile and the alignment of its operands. What they
 * then do is printed by tile_text.c. */
#include "tile_text.h"
#include "driver/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is live, and what varies along a vector --- */

static void plan_live(tile_plan *p, int v) {
  const fl_program *b = p->t->body;
  if (p->live[v])
    return;
  p->live[v] = 1;
  if (v < b->n_in) {
    const fl_leaf *x = &p->t->leaves[v];
    if (x->source >= 0)
      plan_live(p, b->out[x->source]);
    if (x->mask >= 0)
      plan_live(p, b->out[x->mask]);
    for (int k = 0; k < p->t->n_positions; k++)
      if (flc_leaf_along(p, v, k))
        plan_live(p, flc_position_value(p, k));
    return;
  }
  const fl_instr *x = &b->instrs[v - b->n_in - b->n_const];
  for (int j = 0; v >= b->n_in + b->n_const && j < x->n_in; j++)
    plan_live(p, x->in[j]);
}

bool flc_tile_beside(const tile_plan *p, int leaf) {
  const fl_form *at = &p->leaf[leaf];
  int dim = flc_tile_vector_dim(p);
  bool beside = dim >= 0 && at->coef[dim] == 1 && at->offset % p->v == 0;
  for (int d = 0; d < p->n_dims && beside; d++)
    beside = d == dim || at->coef[d] % p->v == 0;
  return beside;
}

/* Whether a value compares a coordinate with a multiple of V, so that the
 * outcome is the same for all elements of a vector. */
static bool is_steady(const tile_plan *p, int v) {
  const fl_program *b = p->t->body;
  const fl_instr *x = &b->instrs[v - b->n_in - b->n_const];
  if (v < b->n_in + b->n_const || (x->row != FL_ROW_ge && x->row != FL_ROW_lt))
    return false;
  const uint16_t *of = x->in;
  int at = of[0], to = of[1] - b->n_in;
  if (at >= b->n_in || p->t->leaves[at].kind != FL_LEAF_COORD || to < 0 ||
      to >= b->n_const || b->constants[to].type != FL_I64)
    return false;
  return b->constants[to].i % p->v == 0 && flc_tile_beside(p, at);
}

/* Whether positions of a leaf, or of a store, vary along the vector. */
static bool leaf_along(const tile_plan *p, int leaf) {
  bool along = false;
  for (int k = 0; k < p->t->n_positions; k++)
    along = along ||
            (flc_leaf_along(p, leaf, k) && p->along[flc_position_value(p, k)]);
  return along;
}

static bool store_along(const tile_plan *p, int store) {
  bool along = false;
  for (int k = 0; k < p->t->n_positions; k++)
    along = along || (flc_store_along(p, store, k) &&
                      p->along[flc_position_value(p, k)]);
  return along;
}

/* Instructions are in the order of what they are made of, but for masks and
 * reductions: gone through until nothing changes. */
static void plan_along(tile_plan *p) {
  const fl_program *b = p->t->body;
  int d = flc_tile_vector_dim(p), first = b->n_in + b->n_const;
  memset(p->along, 0, sizeof p->along);
  for (int v = 0; v < p->n_values; v++)
    p->steady[v] = is_steady(p, v);
  for (bool more = true; more;) {
    more = false;
    for (int v = 0; v < p->n_values; v++) {
      uint8_t to = p->along[v];
      if (v < b->n_in) {
        const fl_leaf *x = &p->t->leaves[v];
        int of = x->kind == FL_LEAF_REDUCE ? x->source : x->mask;
        if (x->kind == FL_LEAF_REDUCE)
          to |= p->columns && p->along[b->out[of]];
        else
          to |= (d >= 0 && p->leaf[v].coef[d]) ||
                (of >= 0 && p->along[b->out[of]]);
        to |= leaf_along(p, v);
      }
      for (int j = 0;
           v >= first && !p->steady[v] && j < b->instrs[v - first].n_in; j++)
        to |= p->along[b->instrs[v - first].in[j]];
      more |= to != p->along[v];
      p->along[v] = to;
    }
  }
}

/* --- vectors --- */

/* `given`: the tile's own form. */
static int form_way(const tile_plan *p, const fl_form *at, const fl_form *given,
                    int operand, int v) {
  int dim = flc_tile_vector_dim(p);
  int64_t c = dim < 0 ? 0 : at->coef[dim];
  int64_t unit = 16 / (int64_t)fl_dtype_size(p->dtype[operand]);
  if (c == 0)
    return TILE_SAME;
  unit = v < unit ? v : unit;
  bool good =
      c == 1 && v > 1 && at->offset % unit == 0 && (p->aligned >> operand & 1);
  for (int d = 0; d < p->n_dims && good; d++)
    good = d == dim || at->coef[d] % unit == 0;
  for (int k = 0; k < p->t->n_positions && good; k++)
    good = given->coef[p->t->n_dims + k] % unit == 0;
  return good ? TILE_BESIDE : TILE_EACH;
}

/* Forms that go along the vector, for which it is chosen: those that move much
 * memory. Of rows those of elements. */
typedef struct plan_operand {
  const fl_form *at, *given;
  int operand;
  int64_t bytes;
} plan_operand;

static int vector_operands(const tile_plan *p, plan_operand *to) {
  const fl_tile *t = p->t;
  int n = 0, large = 0, dim = flc_tile_vector_dim(p);
  int64_t most = 0;
  for (int k = 0; k < t->n_stores; k++)
    if ((p->columns || flc_store_inner(p, k)) && !fl_store_sums(&t->stores[k]))
      to[n++] =
          (plan_operand){&p->store[k], &t->stores[k].at,
                         t->n_in + t->stores[k].operand, flc_store_bytes(p, k)};
  for (int k = 0; k < t->body->n_in; k++)
    if (t->leaves[k].kind == FL_LEAF_LOAD && p->live[k] &&
        (p->columns || p->f.inner[k]))
      to[n++] = (plan_operand){&p->leaf[k], &t->leaves[k].at,
                               t->leaves[k].operand, flc_leaf_bytes(p, k)};
  for (int k = 0; k < n; k++)
    most = to[k].bytes > most ? to[k].bytes : most;
  for (int k = 0; k < n; k++)
    if (to[k].bytes >= most / 8 && dim >= 0 && to[k].at->coef[dim] != 0)
      to[large++] = to[k];
  return large;
}

/* 16 bytes of the widest, where all can be read and written so. */
static int plan_vector(const tile_plan *p) {
  plan_operand x[FL_TILE_STORES + FL_TILE_LEAVES];
  int n = vector_operands(p, x), dim = flc_tile_vector_dim(p);
  size_t most = 2;
  for (int k = 0; k < n; k++) {
    size_t size = fl_dtype_size(p->dtype[x[k].operand]);
    most = size > most ? size : most;
  }
  for (int v = n && dim >= 0 ? (int)(16 / most) : 1; v > 1; v /= 2) {
    bool good = p->size[dim] % v == 0;
    for (int k = 0; k < n && good; k++)
      good = x[k].at->coef[dim] != 1 ||
             form_way(p, x[k].at, x[k].given, x[k].operand, v) == TILE_BESIDE;
    bool any = false;
    for (int k = 0; k < n; k++)
      any |= x[k].at->coef[dim] == 1;
    if (good && any)
      return v;
  }
  return 1;
}

static void plan_ways(tile_plan *p) {
  const fl_tile *t = p->t;
  plan_along(p);
  for (int k = 0; k < t->body->n_in; k++) {
    const fl_leaf *x = &t->leaves[k];
    if (x->kind != FL_LEAF_LOAD)
      continue;
    int way = form_way(p, &p->leaf[k], &x->at, x->operand, p->v);
    if (leaf_along(p, k))
      way = TILE_EACH;
    if (way == TILE_SAME && x->mask >= 0 &&
        p->along[flc_tile_value(p, x->mask)])
      way = TILE_EACH;
    p->leaf_way[k] = (uint8_t)way;
  }
  for (int k = 0; k < t->n_stores; k++) {
    int way = form_way(p, &p->store[k], &t->stores[k].at,
                       t->n_in + t->stores[k].operand, p->v);
    bool each = store_along(p, k) || fl_store_sums(&t->stores[k]);
    p->store_way[k] = (uint8_t)(each ? TILE_EACH : way);
  }
}

/* --- passes --- */

/* Little more than what it is made of costs. */
static bool is_cheap(const tile_plan *p, int v) {
  const fl_program *b = p->t->body;
  const fl_instr *x = &b->instrs[v - b->n_in - b->n_const];
  int inner = -1;
  for (int j = 0; j < x->n_in; j++) {
    if (!p->f.inner[x->in[j]] || x->in[j] == inner)
      continue;
    if (inner >= 0)
      return false;
    inner = x->in[j];
  }
  switch (x->row) {
  case FL_ROW_round_f16:
  case FL_ROW_round_bf16:
  case FL_ROW_convert:
  case FL_ROW_mul_add:
  case FL_ROW_mul_sub:
  case FL_ROW_sub_mul:
  case FL_ROW_add:
  case FL_ROW_sub:
  case FL_ROW_mul:
  case FL_ROW_neg:
  case FL_ROW_square:
  case FL_ROW_relu:
  case FL_ROW_where:
    return true;
  default:
    return false;
  }
}

static void need_value(tile_plan *p, const uint8_t *made, int v,
                       uint8_t *need) {
  const fl_program *b = p->t->body;
  if (!p->f.inner[v] || need[v])
    return;
  if (v < b->n_in) {
    bool kept = made[v] && p->t->leaves[v].kind == FL_LEAF_LOAD;
    need[v] = kept ? TILE_KEPT : TILE_MADE;
    p->keep[v] |= kept;
    for (int k = 0; k < p->t->n_positions && !kept; k++)
      if (flc_leaf_along(p, v, k))
        need_value(p, made, flc_position_value(p, k), need);
    return;
  }
  if (made[v] && !is_cheap(p, v)) {
    need[v] = TILE_KEPT;
    p->keep[v] = 1;
    return;
  }
  need[v] = TILE_MADE;
  const fl_instr *x = &b->instrs[v - b->n_in - b->n_const];
  for (int j = 0; j < x->n_in; j++)
    need_value(p, made, x->in[j], need);
}

static void need_pass(tile_plan *p, const uint8_t *made, int pass,
                      uint8_t *need) {
  const fl_tile *t = p->t;
  memset(need, 0, FL_PROGRAM_VALUES);
  for (int k = 0; k < t->body->n_in; k++)
    if (t->leaves[k].kind == FL_LEAF_REDUCE && p->live[k] &&
        p->f.phase[k] == pass + 1)
      need_value(p, made, flc_tile_value(p, t->leaves[k].source), need);
  for (int k = 0; k < t->n_stores && pass == p->f.phases - 1; k++) {
    need_value(p, made, flc_tile_value(p, t->stores[k].value), need);
    for (int i = 0; i < t->n_positions; i++)
      if (flc_store_along(p, k, i))
        need_value(p, made, flc_position_value(p, i), need);
  }
}

/* What later passes load, if its place depends on no value. */
static void need_loads(tile_plan *p, const uint8_t *made, uint8_t *need) {
  for (int k = 0; k < p->t->body->n_in; k++) {
    bool fixed = p->live[k] && p->t->leaves[k].kind == FL_LEAF_LOAD &&
                 p->t->leaves[k].mask < 0;
    for (int i = 0; i < p->t->n_positions; i++)
      fixed = fixed && !flc_leaf_along(p, k, i);
    if (fixed)
      need_value(p, made, k, need);
  }
}

void flc_tile_needs(tile_plan *p, int pass, uint8_t *need) {
  uint8_t made[FL_PROGRAM_VALUES] = {0};
  bool few = p->kept && !p->columns && p->rows <= TILE_FEW && p->kernels < 2;
  for (int k = p->kept ? 0 : pass; k <= pass; k++) {
    need_pass(p, made, k, need);
    if (few && k == 0) /* nothing else hides the time that they take */
      need_loads(p, made, need);
    for (int v = 0; v < p->n_values && p->kept; v++)
      made[v] |= need[v] == TILE_MADE;
  }
}

int flc_tile_kept_bytes(tile_plan *p) {
  uint8_t need[FL_PROGRAM_VALUES], loaded[FL_TILE_LEAVES] = {0};
  int bytes = 0, first = 0;
  p->kept = true;
  memset(p->keep, 0, sizeof p->keep);
  for (int pass = 0; pass < p->f.phases; pass++) {
    flc_tile_needs(p, pass, need);
    for (int k = 0; k < p->t->body->n_in; k++)
      loaded[k] |= need[k] == TILE_MADE;
  }
  for (int v = 0; v < p->n_values; v++) {
    fl_dtype d = fl_program_type(p->t->body, v);
    bool leaf = v < p->t->body->n_in;
    if (leaf && p->t->leaves[v].kind == FL_LEAF_LOAD && loaded[v])
      *(p->keep[v] ? &bytes : &first) +=
          (int)fl_dtype_size(p->dtype[p->t->leaves[v].operand]);
    else if (!leaf && p->keep[v])
      bytes += d == FL_BOOL ? 1 : (int)fl_dtype_size(d);
  }
  return bytes ? bytes + first / 2 : first;
}

static int two_up(int64_t n, int most) { /* a power of two, >= n up to most */
  int k = 1;
  while (k < n && k < most)
    k *= 2;
  return k;
}

/* Vectors of a thread that it loads before it uses one. */
static int loads_together(const tile_plan *p, int64_t steps) {
  const fl_tile *t = p->t;
  int bytes = 1;
  for (int k = 0; k < t->body->n_in; k++)
    if (p->live[k] && p->f.inner[k] && t->leaves[k].kind == FL_LEAF_LOAD)
      bytes += (int)fl_dtype_size(p->dtype[t->leaves[k].operand]) *
               (p->leaf_way[k] == TILE_SAME ? 1 : p->v);
  int n = bytes > 64 ? 1 : 128 / bytes;
  n = n > 8 ? 8 : n >= 4 ? n & ~3 : n;
  return n > steps ? (int)steps : n;
}

#define RESIDENT 64 /* registers of a thread when two large blocks fit */

/* While one block waits for its sums, another one loads. */
static void plan_resident(tile_plan *p, int64_t keeps) {
  if (p->lanes >= 256 && p->lanes <= 512 && keeps <= 192)
    p->resident = 65536 / (RESIDENT * p->lanes);
}

/* Threads of a row such that what is kept fits their registers. */
static void plan_rows(tile_plan *p) {
  int64_t vectors = fl_ceil_div(p->reduced, p->v);
  int bytes = flc_tile_kept_bytes(p);
  p->kept = p->f.phases <= TILE_PASSES && p->reduced > 0;
  if (vectors <= 32 || (p->reduced <= 1024 && p->rows > TILE_FEW)) {
    p->lanes = two_up(vectors, 32);
    p->chunks = (int)fl_ceil_div(vectors, p->lanes);
    p->groups = 128 / p->lanes;
    if (p->kept && (int64_t)p->chunks * p->v * bytes <= 256)
      return;
  }
  p->groups = 1;
  for (p->lanes = 128; p->lanes <= 1024; p->lanes *= 2) {
    p->chunks = (int)fl_ceil_div(vectors, p->lanes);
    int64_t keeps = (int64_t)p->chunks * p->v * bytes;
    if (p->kept && p->chunks <= 64 &&
        (keeps <= 96 || (p->lanes == 512 && keeps <= 192) ||
         (p->lanes == 1024 && keeps <= 128))) {
      plan_resident(p, keeps);
      return;
    }
  }
  p->kept = false;
  p->lanes = vectors < 1024 ? 128 : vectors < 4096 ? 256 : 512;
  p->chunks = loads_together(p, fl_ceil_div(vectors, p->lanes));
}

static void plan_columns(tile_plan *p) {
  int64_t vectors = p->rows / p->v,
          last = p->n_outer ? p->size[p->n_outer - 1] : 1;
  bool only = p->n_dims == p->n_outer && p->f.phases == 1;
  int threads = 256; /* whose sums fit shared memory */
  while (!only && threads * flc_sums_shared(p) > 48 << 10)
    threads /= 2;
  p->lanes = only ? 1 : two_up(p->reduced, threads);
  p->groups = two_up(fl_ceil_div(last, p->v), 32);
  if (p->lanes * p->groups > threads)
    p->lanes = threads / p->groups;
  p->groups = threads / p->lanes;
  if (vectors < p->groups) {
    p->groups = two_up(vectors, p->groups);
    p->groups = p->groups * p->lanes < 32 ? 32 / p->lanes : p->groups;
  }
  p->kept = false;
  p->chunks = 1;
  if (only)
    return;
  int64_t steps = fl_ceil_div(p->reduced, p->lanes);
  int bytes = flc_tile_kept_bytes(p);
  p->kept = p->f.phases <= TILE_PASSES && p->reduced > 0 && steps <= 16 &&
            steps * p->v * bytes <= 128;
  p->chunks = p->kept ? (int)steps : loads_together(p, steps);
}

/* A store once a row may be where a row's leaf is loaded, which the other
 * segments of the row still read. */
static bool rows_in_place(const tile_plan *p) {
  const fl_tile *t = p->t;
  for (int k = 0; k < t->n_stores; k++)
    for (int i = 0; i < t->body->n_in; i++)
      if (!flc_store_inner(p, k) && p->live[i] &&
          t->leaves[i].kind == FL_LEAF_LOAD &&
          memcmp(&t->stores[k].at, &t->leaves[i].at, sizeof t->stores->at) == 0)
        return true;
  return false;
}

static int64_t plan_blocks(const tile_plan *p) {
  return fl_ceil_div(p->columns ? p->rows / p->v : p->rows, p->groups);
}

/* Few rows that are long: several blocks share each. */
static void plan_segments(tile_plan *p, const flc_chip *chip) {
  int64_t blocks = plan_blocks(p), step = p->columns ? 1 : p->v;
  p->segments = p->kernels = 1;
  p->segment = p->reduced;
  if ((p->f.phases < 2 && !(p->columns && p->writes_inner)) ||
      p->f.phases > TILE_PASSES || blocks >= chip->processors ||
      p->reduced < (p->columns ? 256 : 8192) ||
      (p->writes_inner && rows_in_place(p)))
    return;
  if (!p->columns) {
    p->lanes = 256;
    p->groups = 1;
    blocks = plan_blocks(p);
  }
  p->kept = false;
  p->resident = 0;
  p->chunks = loads_together(p, 8);
  int64_t least = step * p->lanes * p->chunks;
  int64_t segments = (int64_t)chip->processors * 8 / blocks;
  int64_t most = p->reduced / least;
  segments = segments > most ? most : segments;
  segments = segments > 1024 ? 1024 : segments;
  if (segments < 2)
    return;
  p->segment = fl_ceil_div(fl_ceil_div(p->reduced, segments), least) * least;
  p->segments = (int)fl_ceil_div(p->reduced, p->segment);
  p->kernels = p->segments > 1 ? p->f.phases : 1;
}

static void plan_make(tile_plan *p, const flc_chip *chip) {
  const fl_tile *t = p->t;
  p->n_values = t->body->n_in + t->body->n_const + t->body->n_instr;
  fl_tile_find(t, &p->f);
  for (int k = 0; k < t->n_stores; k++) {
    plan_live(p, flc_tile_value(p, t->stores[k].value));
    for (int i = 0; i < t->n_positions; i++)
      if (flc_store_along(p, k, i))
        plan_live(p, flc_position_value(p, i));
  }
  p->f.phases = 1;
  for (int v = 0; v < p->n_values; v++)
    if (p->live[v] && p->f.phase[v] >= p->f.phases)
      p->f.phases = p->f.phase[v] + 1;
  flc_tile_dims(p);
  p->v = plan_vector(p);
  plan_ways(p);
  if (p->sums)
    flc_columns_plan(p, chip->processors);
  else if (p->columns)
    plan_columns(p);
  else
    plan_rows(p);
  if (!p->sums)
    plan_segments(p, chip);
  memset(p->keep, 0, sizeof p->keep);
}

/* --- launches --- */

/* What a text begins with, so that a launch needs nothing else. */
typedef struct tile_head {
  unsigned x, y, block, kernels;
  size_t scratch;
} tile_head;

static bool head_last(const tile_plan *p, int k) {
  return k == p->kernels - 1;
}

static int kernels_of(const tile_plan *p) {
  return p->sums ? 2 : p->kernels;
}

/* Kernel k of a plan with sum stores. */
static char *columns_make(tile_plan *p, int k) {
  char head[120];
  int threads = p->lanes * p->groups;
  int64_t blocks = k ? flc_columns_blocks(p, &threads) : p->over * p->parts;
  snprintf(head, sizeof head, "//%llu %d %d %d %llu\n",
           (unsigned long long)blocks, k ? 1 : p->segments, threads, 2,
           (unsigned long long)flc_columns_scratch(p));
  return flc_tile_text(p, k, head);
}

/* The last kernel of rows in segments joins their sums, and writes what is by
 * row: of a few rows each block, by many threads. */
static void plan_join(tile_plan *p) {
  p->v = p->columns ? 1 : p->v;
  p->groups = p->columns ? two_up(p->rows, 8) : 1;
  p->lanes = two_up(p->segments, 256 / p->groups);
  while (p->lanes * p->groups < 32)
    p->lanes *= 2;
  plan_ways(p);
}

static char *text_make(tile_plan *p, int k) {
  int cells = 0;
  char head[120];
  for (int i = 0; i < p->t->body->n_in; i++)
    cells += flc_tile_cells(p, i);
  bool once = head_last(p, k) && !p->writes_inner;
  tile_plan as = *p;
  if (once && p->kernels > 1)
    plan_join(p);
  snprintf(head, sizeof head, "//%llu %d %d %d %llu\n",
           (unsigned long long)plan_blocks(p), once ? 1 : p->segments,
           p->lanes * p->groups, p->kernels,
           p->kernels > 1
               ? (unsigned long long)cells * (unsigned long long)p->segments *
                     (unsigned long long)p->rows * 8
               : 0ULL);
  char *text = flc_tile_text(p, k, head);
  *p = as;
  return text;
}

static tile_head head_of(const char *text) {
  char *at;
  tile_head h;
  h.x = (unsigned)strtoul(text + 2, &at, 10);
  h.y = (unsigned)strtoul(at, &at, 10);
  h.block = (unsigned)strtoul(at, &at, 10);
  h.kernels = (unsigned)strtoul(at, &at, 10);
  h.scratch = (size_t)strtoull(at, &at, 10);
  return h;
}

static uint64_t tile_key(const fl_launch *l, uint64_t numbers, uint64_t aligned,
                         const flc_chip *chip) {
  uint64_t key = FLC_HASH;
  uint64_t of[] = {l->tile->hash, numbers, aligned, (uint64_t)chip->processors};
  key = flc_hash(key, of, sizeof of);
  for (int k = 0; k < l->n_in + l->n_out; k++) {
    uint8_t d =
        (uint8_t)(k < l->n_in ? &l->in[k] : &l->out[k - l->n_in])->dtype;
    key = flc_hash(key, &d, 1);
  }
  return key;
}

const char *flc_tile_texts(tile_plan *p, uint64_t key, const flc_chip *chip) {
  const char *first = NULL;
  bool good = true;
  plan_make(p, chip);
  for (int k = kernels_of(p) - 1; k >= 0 && good; k--) {
    char *made = p->sums ? columns_make(p, k) : text_make(p, k);
    good = made && (first = flc_text_keep(key + (uint64_t)k, made));
  }
  if (!good)
    fli_fail(FL_ENOMEM, "out of memory: the text of a kernel");
  return good ? first : NULL;
}

static const char *texts_of(const fl_launch *l, uint64_t key, uint64_t numbers,
                            uint64_t aligned) {
  tile_plan *p = calloc(1, sizeof *p);
  if (!p) {
    fli_fail(FL_ENOMEM, "out of memory: the plan of a kernel");
    return NULL;
  }
  p->t = l->tile;
  p->numbers = numbers;
  p->aligned = aligned;
  for (int k = 0; k < l->n_in + l->n_out; k++)
    p->dtype[k] = (k < l->n_in ? &l->in[k] : &l->out[k - l->n_in])->dtype;
  const char *text = flc_tile_texts(p, key, flc_chip_of(l));
  free(p);
  return text;
}

/* What a launch needs, for operands like those of the first one. */
typedef struct tile_ready {
  fl_tile_plan base;
  uint64_t numbers, aligned;
  int processors, kernels;
  size_t scratch;
  const char *text[TILE_PASSES];
  flc_grid grid[TILE_PASSES];
} tile_ready;

static fl_status ready_make(const fl_launch *l, tile_ready *r) {
  uint64_t key = tile_key(l, r->numbers, r->aligned, flc_chip_of(l));
  const char *text = flc_text_find(key);
  if (!text && !(text = texts_of(l, key, r->numbers, r->aligned)))
    return FL_ENOMEM;
  tile_head h = head_of(text);
  r->kernels = (int)h.kernels;
  r->scratch = h.scratch;
  for (int k = 0; k < r->kernels; k++) {
    r->text[k] = k ? flc_text_find(key + (uint64_t)k) : text;
    h = head_of(r->text[k]);
    r->grid[k] =
        (flc_grid){.x = h.x, .y = h.y, .block = h.block, .early = true};
  }
  return FL_OK;
}

/* The tile's, or one in `fresh`, of which the tile gets a copy if it has none.
 */
static fl_status ready_find(const fl_launch *l, tile_ready *fresh,
                            const tile_ready **ready) {
  void **slot = &l->tile->plan[FL_TILE_DEVICE], *none = NULL;
  const tile_ready *r = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  *ready = r;
  if (r && r->numbers == fresh->numbers && r->aligned == fresh->aligned &&
      r->processors == fresh->processors)
    return FL_OK;
  *ready = fresh;
  fl_status s = ready_make(l, fresh);
  tile_ready *kept = s || r ? NULL : malloc(sizeof *kept);
  if (!kept)
    return s;
  *kept = *fresh;
  if (!__atomic_compare_exchange_n(slot, &none, kept, false, __ATOMIC_RELEASE,
                                   __ATOMIC_RELAXED))
    free(kept);
  return FL_OK;
}

/* The operands of a launch: addresses, and what texts depend on. */
static tile_ready operands_of(const fl_launch *l, uint64_t *args) {
  tile_ready r = {.processors = flc_chip_of(l)->processors};
  for (int k = 0; k < l->n_in + l->n_out; k++) {
    const fl_view *v = k < l->n_in ? &l->in[k] : &l->out[k - l->n_in];
    args[k] = (uint64_t)(uintptr_t)v->data;
    if (k < l->n_in && flc_is_number(v)) {
      memcpy(&args[k], v->imm, 8);
      r.numbers |= 1ULL << k;
    } else
      r.aligned |= (uint64_t)flc_aligned(v->data, 16) << k;
  }
  return r;
}

FLC_KERNEL(tile) {
  if (l->probe && !l->stream)
    return FL_OK;
  uint64_t args[FL_TILE_OPERANDS + 3];
  const tile_ready *r;
  int n = l->n_in + l->n_out, inner = l->tile->n_dims - l->tile->n_inner;
  for (int i = 0; i < l->tile->n_dims; i++)
    if (l->tile->shape[i] == 0 && (i < inner || l->tile->n_inner == 0))
      return FL_OK;
  tile_ready fresh = operands_of(l, args);
  fl_status s = ready_find(l, &fresh, &r);
  if (s)
    return s;
  args[n] = 0;
  if (r->scratch && !l->probe &&
      !(args[n] = (uint64_t)(uintptr_t)fl_scratch_get(l, r->scratch)))
    return FL_ENOMEM;
  size_t n_args = (size_t)n + 1;
  if (l->tile->n_positions && !l->probe) { /* tile_fault of tile.cuh */
    args[n_args++] = (uint64_t)(uintptr_t)flc_fault_of(l).word;
    args[n_args++] = fl_position_seq(l, 0);
  }
  for (int k = 0; k < r->kernels && s == FL_OK; k++) {
    flc_spec spec = {
        .file = "tile", .entry = "tile", .text = r->text[k], .soon = true};
    if (l->probe)
      s = flc_run_soon(l, &spec);
    else
      s = flc_run(l, &spec, r->grid[k], args, n_args * sizeof *args);
  }
  return s;
}

/* --- from moments that another kernel has found --- */

/* Whether rows are the columns of a matrix (reduced, rows) that is the operand,
 * of which the tile needs moments alone. */
static bool takes_moments(const tile_plan *p, int operand) {
  int found = 0;
  for (int k = 0; k < n_in(p); k++) {
    const fl_leaf *x = leaf_of(p, k);
    if (!p->live[k] || (is_load(p, k) && !p->f.inner[k]))
      continue;
    if (is_load(p, k)) {
      const fl_form *at = &p->leaf[k];
      if (x->operand != operand || x->mask >= 0 || at->offset ||
          p->n_dims != 2 || p->n_outer != 1 || at->coef[0] != 1 ||
          at->coef[1] != p->rows)
        return false;
    } else if (is_reduce(p, k)) {
      if (!is_moment(p, k) || !is_load(p, flc_tile_value(p, x->source)))
        return false;
      found += flc_sums_owner(p, k) == k;
    } else
      return false;
  }
  return found == 1 && p->f.phases == 2 && !p->sums && !p->writes_inner;
}

/* The text of the kernel that joins the parts; empty: the tile is another one.
 */
static char *moments_text(const fl_launch *l, int operand, int parts,
                          const tile_ready *r) {
  tile_plan *p = calloc(1, sizeof *p);
  char *text = NULL;
  if (!p)
    return NULL;
  p->t = l->tile;
  p->numbers = r->numbers;
  p->aligned = r->aligned;
  for (int k = 0; k < l->n_in + l->n_out; k++)
    p->dtype[k] = (k < l->n_in ? &l->in[k] : &l->out[k - l->n_in])->dtype;
  plan_make(p, flc_chip_of(l));
  if (takes_moments(p, operand)) {
    p->segments = parts;
    p->kernels = 2;
    p->kept = false;
    text = text_make(p, 1);
  } else
    text = calloc(1, 1);
  free(p);
  return text;
}

fl_status flc_tile_moments(const fl_launch *l, int operand, int64_t rows,
                           int64_t reduced, int parts, const char **text) {
  uint64_t args[FL_TILE_OPERANDS + 3];
  tile_ready r = operands_of(l, args);
  uint64_t of[] = {(uint64_t)operand, (uint64_t)parts};
  uint64_t key = flc_hash(tile_key(l, r.numbers, r.aligned, flc_chip_of(l)), of,
                          sizeof of);
  const fl_tile *t = l->tile;
  int64_t all = 1, outer = 1;
  for (int k = 0; k < t->n_dims; k++) {
    all *= t->shape[k];
    outer *= k < t->n_dims - t->n_inner ? t->shape[k] : 1;
  }
  *text = NULL;
  if (outer != rows || all != rows * reduced || t->n_positions)
    return FL_OK;
  const char *found = flc_text_find(key);
  if (!found) {
    char *made = moments_text(l, operand, parts, &r);
    if (!made || !(found = flc_text_keep(key, made)))
      return fli_fail(FL_ENOMEM, "out of memory: the text of a kernel");
  }
  *text = *found ? found : NULL;
  return FL_OK;
}

fl_status flc_tile_finish(const fl_launch *l, const char *text,
                          const void *parts) {
  uint64_t args[FL_TILE_OPERANDS + 3];
  int n = l->n_in + l->n_out;
  tile_head h = head_of(text);
  flc_grid grid = {.x = h.x, .y = h.y, .block = h.block};
  flc_spec spec = {.file = "tile", .entry = "tile", .text = text, .soon = true};
  operands_of(l, args);
  args[n] = (uint64_t)(uintptr_t)parts;
  return l->probe
             ? flc_run_soon(l, &spec)
             : flc_run(l, &spec, grid, args, ((size_t)n + 1) * sizeof *args);
}
