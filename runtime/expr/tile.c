/* Tiles: interned as expressions are, since launches that wait on a device may
 * outlive the plan that made them. */
#include "tile.h"

#include <stdlib.h>
#include <string.h>

typedef struct fli_tile { /* one block with its leaves and stores */
  fl_tile base;
  fl_program *body;
  void *plan[FL_TILE_PLANS];
  struct fli_tile *next;
} fli_tile;

/* --- what backends ask --- */

static bool raise_fact(uint8_t *fact, int to) {
  bool more = to > *fact;
  *fact = more ? (uint8_t)to : *fact;
  return more;
}

/* What v has at least, of what it is made of. */
static bool join_facts(fl_tile_facts *f, int v, int of) {
  bool more = raise_fact(&f->phase[v], f->phase[of]);
  more |= raise_fact(&f->inner[v], f->inner[of]);
  if (f->single[v] > f->single[of]) {
    f->single[v] = 0;
    more = true;
  }
  return more;
}

static bool leaf_facts(const fl_tile *t, int leaf, fl_tile_facts *f) {
  const fl_leaf *x = &t->leaves[leaf];
  const uint16_t *out = t->body->out;
  bool more = false;
  if (x->kind == FL_LEAF_REDUCE)
    return raise_fact(&f->phase[leaf], f->phase[out[x->source]] + 1);
  for (int i = 0; i < t->n_dims; i++) {
    bool moves = x->at.coef[i] != 0 && t->shape[i] != 1;
    f->inner[leaf] |= moves && i >= t->n_dims - t->n_inner;
    f->single[leaf] &= !moves;
  }
  for (int k = 0; k < t->n_positions; k++)
    if (x->at.coef[t->n_dims + k])
      more |= join_facts(f, leaf, out[t->positions[k].value]);
  if (x->kind == FL_LEAF_BITS)
    more |= join_facts(f, leaf, out[x->source]);
  if (x->mask >= 0)
    more |= join_facts(f, leaf, out[x->mask]);
  return more;
}

/* Instructions are in the order of what they are made of, but one below a leaf
 * may stand after others that are above it: all are gone through until nothing
 * changes, which is at most once a phase, and once for the masks. */
void fl_tile_find(const fl_tile *t, fl_tile_facts *f) {
  const fl_program *p = t->body;
  int first = p->n_in + p->n_const;
  memset(f, 0, sizeof *f);
  memset(f->single, 1, sizeof f->single);
  for (int leaf = 0; leaf < p->n_in; leaf++)
    if (t->leaves[leaf].kind == FL_LEAF_REDUCE)
      f->single[leaf] = 0;
  for (bool more = true; more;) {
    more = false;
    for (int leaf = 0; leaf < p->n_in; leaf++)
      more |= leaf_facts(t, leaf, f);
    for (int v = first; v < first + p->n_instr; v++)
      for (int j = 0; j < p->instrs[v - first].n_in; j++)
        more |= join_facts(f, v, p->instrs[v - first].in[j]);
  }
  f->phases = 1;
  for (int v = 0; v < first + p->n_instr; v++)
    f->phases = f->phase[v] >= f->phases ? f->phase[v] + 1 : f->phases;
}

/* --- making --- */

static uint64_t tile_mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 32;
}

static uint64_t hash_form(const fl_form *at, int n, uint64_t h) {
  h = tile_mix(h, (uint64_t)at->offset);
  for (int i = 0; i < n; i++)
    h = tile_mix(h, (uint64_t)at->coef[i]);
  return h;
}

static uint64_t hash_tile(const fl_tile *t, const fli_tile_request *q) {
  uint64_t h = t->body->hash;
  int n_coefs = t->n_dims + t->n_positions;
  h = tile_mix(h, (uint64_t)t->n_dims << 8 | (uint64_t)t->n_inner);
  for (int i = 0; i < t->n_dims; i++)
    h = tile_mix(h, (uint64_t)t->shape[i]);
  for (int k = 0; k < t->body->n_in; k++) {
    const fl_leaf *x = &t->leaves[k];
    h = tile_mix(h, (uint64_t)x->kind | (uint64_t)x->reduction << 8 |
                        (uint64_t)(uint16_t)x->operand << 16 |
                        (uint64_t)(uint16_t)x->source << 32 |
                        (uint64_t)(uint16_t)x->mask << 48);
    h = hash_form(&x->at, n_coefs, h);
  }
  for (int k = 0; k < t->n_stores; k++) {
    const fl_store *x = &t->stores[k];
    h = tile_mix(h, (uint64_t)(uint16_t)x->operand |
                        (uint64_t)(uint16_t)x->value << 16 |
                        (uint64_t)x->add << 32 | (uint64_t)x->round << 40);
    h = hash_form(&x->at, n_coefs, h);
  }
  for (int k = 0; k < t->n_positions; k++) { /* but for the launch */
    const fl_position *x = &t->positions[k];
    h = tile_mix(h, (uint64_t)(uint16_t)x->value | (uint64_t)x->from_end << 16 |
                        (uint64_t)(uint32_t)x->base << 32);
    h = tile_mix(tile_mix(h, (uint64_t)x->bound), (uint64_t)x->skip);
  }
  for (int k = 0; k < q->n_operands; k++)
    h = tile_mix(h, q->operand_dtype[k]);
  return tile_mix(h, (uint64_t)t->n_in << 8 | (uint64_t)q->exact << 1 |
                         (uint64_t)q->separate);
}

static fl_status tile_make(fl_runtime *rt, const fli_tile_request *q,
                           fli_tile **out) {
  int n_leaves = q->graph->n_in;
  size_t leaves = (size_t)n_leaves * sizeof(fl_leaf);
  size_t stores = (size_t)q->n_stores * sizeof(fl_store);
  size_t positions = (size_t)q->n_positions * sizeof(fl_position);
  fli_tile *t = fli_malloc(rt, sizeof *t + leaves + stores + positions);
  if (!t)
    return FL_ENOMEM;
  fl_leaf *to = (fl_leaf *)(void *)(t + 1);
  fl_store *store = (fl_store *)(void *)((char *)to + leaves);
  fl_position *position = (fl_position *)(void *)((char *)store + stores);
  memcpy(to, q->leaves, leaves);
  memcpy(store, q->stores, stores);
  if (positions)
    memcpy(position, q->positions, positions);
  t->next = NULL;
  memset(t->plan, 0, sizeof t->plan);
  t->body = NULL;
  fl_status s = fli_expr_lower(q->graph, q->n_out, q->out, q->out_dtype,
                               FL_REDUCE_NONE, q->separate, "fused", &t->body);
  if (s) {
    fli_mfree(t);
    return s;
  }
  t->base = (fl_tile){.body = t->body,
                      .n_dims = q->n_dims,
                      .n_inner = q->n_inner,
                      .n_stores = q->n_stores,
                      .n_in = q->n_in,
                      .n_out = q->n_operands - q->n_in,
                      .leaves = to,
                      .stores = store,
                      .n_positions = q->n_positions,
                      .exact = q->exact,
                      .positions = position,
                      .plan = t->plan};
  memcpy(t->base.shape, q->shape, sizeof q->shape);
  t->base.hash = hash_tile(&t->base, q);
  *out = t;
  return FL_OK;
}

static void tile_free(fli_tile *t) {
  for (int k = 0; k < FL_TILE_PLANS; k++) {
    fl_tile_plan *plan = t->plan[k];
    if (plan && plan->close)
      plan->close(plan);
    else
      free(plan);
  }
  fli_mfree(t->body);
  fli_mfree(t);
}

static bool same_tile(const fl_tile *a, const fl_tile *b) {
  size_t leaves = (size_t)a->body->n_in * sizeof(fl_leaf);
  size_t stores = (size_t)a->n_stores * sizeof(fl_store);
  size_t positions = (size_t)a->n_positions * sizeof(fl_position);
  return a->hash == b->hash && a->exact == b->exact && a->n_dims == b->n_dims &&
         a->n_inner == b->n_inner && a->n_stores == b->n_stores &&
         a->n_positions == b->n_positions && a->body->n_in == b->body->n_in &&
         memcmp(a->leaves, b->leaves, leaves) == 0 &&
         memcmp(a->stores, b->stores, stores) == 0 &&
         memcmp(a->positions, b->positions, positions) == 0;
}

fl_status fli_tile_intern(fl_runtime *rt, const fli_tile_request *q,
                          const fl_tile **tile) {
  fli_tile *made;
  FLI_TRY(tile_make(rt, q, &made));
  for (fli_tile *t = rt->tiles; t; t = t->next)
    if (same_tile(&t->base, &made->base)) {
      tile_free(made);
      *tile = &t->base;
      return FL_OK;
    }
  made->next = rt->tiles;
  rt->tiles = made;
  *tile = &made->base;
  return FL_OK;
}

static fl_status op_of(fl_runtime *rt, const fl_op **known, const char *kernel,
                       const fl_op **op) {
  if (!*known) {
    fl_op *made;
    FLI_TRY(fli_op_new(rt, "fused", "x:any -> x", kernel, &made));
    made->info.doc = "Several operators in one kernel.";
    *known = made;
  }
  *op = *known;
  return FL_OK;
}

fl_status fli_tile_op(fl_runtime *rt, const fl_op **op) {
  return op_of(rt, &rt->tile_op, "tile", op);
}

fl_status fli_epilogue_op(fl_runtime *rt, const fl_op **op) {
  return op_of(rt, &rt->epilogue_op, "epilogue", op);
}

void fli_tiles_close(fl_runtime *rt) {
  for (fli_tile *t = rt->tiles, *next; t; t = next) {
    next = t->next;
    tile_free(t);
  }
  rt->tiles = NULL;
}
