/* Tiles: interned as expressions are, since launches that wait on a device may
 * outlive the plan that made them. */
#include "tile.h"

#include <stdlib.h>
#include <string.h>

typedef struct fli_tile { /* one block with its leaves and stores */
  fl_tile base;
  fl_program *body;
  struct fli_tile *next;
} fli_tile;

/* --- what backends ask --- */

static void leaf_facts(const fl_tile *t, int leaf, fl_tile_facts *f) {
  const fl_leaf *x = &t->leaves[leaf];
  const uint16_t *out = t->body->out;
  if (x->kind == FL_LEAF_REDUCE) {
    f->phase[leaf] = (uint8_t)(f->phase[out[x->source]] + 1);
    return;
  }
  f->single[leaf] = 1;
  for (int i = 0; i < t->n_dims; i++) {
    bool moves = x->at.coef[i] != 0 && t->shape[i] != 1;
    f->inner[leaf] |= moves && i >= t->n_dims - t->n_inner;
    f->single[leaf] &= !moves;
  }
  if (x->mask >= 0) {
    f->inner[leaf] |= f->inner[out[x->mask]];
    f->single[leaf] &= f->single[out[x->mask]];
  }
}

static void instr_facts(const fl_program *p, int k, fl_tile_facts *f) {
  int v = p->n_in + p->n_const + k;
  f->single[v] = 1;
  for (int j = 0; j < p->instrs[k].n_in; j++) {
    int in = p->instrs[k].in[j];
    f->phase[v] = f->phase[in] > f->phase[v] ? f->phase[in] : f->phase[v];
    f->inner[v] |= f->inner[in];
    f->single[v] &= f->single[in];
  }
  f->phases = f->phase[v] >= f->phases ? f->phase[v] + 1 : f->phases;
}

/* Sources and masks are made of leaves before theirs, so one pass over the
 * leaves, each after the instructions below it, is enough. */
void fl_tile_find(const fl_tile *t, fl_tile_facts *f) {
  const fl_program *p = t->body;
  int first = p->n_in + p->n_const, done = 0;
  memset(f, 0, sizeof *f);
  f->phases = 1;
  for (int v = p->n_in; v < first; v++)
    f->single[v] = 1;
  for (int leaf = 0; leaf < p->n_in; leaf++) {
    const fl_leaf *x = &t->leaves[leaf];
    int of = x->kind == FL_LEAF_REDUCE ? x->source : x->mask;
    for (; of >= 0 && done <= p->out[of] - first; done++)
      instr_facts(p, done, f);
    leaf_facts(t, leaf, f);
    f->phases = f->phase[leaf] >= f->phases ? f->phase[leaf] + 1 : f->phases;
  }
  for (; done < p->n_instr; done++)
    instr_facts(p, done, f);
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
  h = tile_mix(h, (uint64_t)t->n_dims << 8 | (uint64_t)t->n_inner);
  for (int i = 0; i < t->n_dims; i++)
    h = tile_mix(h, (uint64_t)t->shape[i]);
  for (int k = 0; k < t->body->n_in; k++) {
    const fl_leaf *x = &t->leaves[k];
    h = tile_mix(h, (uint64_t)x->kind | (uint64_t)x->reduction << 8 |
                        (uint64_t)(uint16_t)x->operand << 16 |
                        (uint64_t)(uint16_t)x->source << 32 |
                        (uint64_t)(uint16_t)x->mask << 48);
    h = hash_form(&x->at, t->n_dims, h);
  }
  for (int k = 0; k < t->n_stores; k++) {
    const fl_store *x = &t->stores[k];
    h = tile_mix(h, (uint64_t)(uint16_t)x->operand |
                        (uint64_t)(uint16_t)x->value << 16);
    h = hash_form(&x->at, t->n_dims, h);
  }
  for (int k = 0; k < q->n_operands; k++)
    h = tile_mix(h, q->operand_dtype[k]);
  return tile_mix(h, (uint64_t)t->n_in << 8 | (uint64_t)q->separate);
}

static fl_status tile_make(fl_runtime *rt, const fli_tile_request *q,
                           fli_tile **out) {
  int n_leaves = q->graph->n_in;
  size_t leaves = (size_t)n_leaves * sizeof(fl_leaf);
  size_t stores = (size_t)q->n_stores * sizeof(fl_store);
  fli_tile *t = fli_malloc(rt, sizeof *t + leaves + stores);
  if (!t)
    return FL_ENOMEM;
  fl_leaf *to = (fl_leaf *)(void *)(t + 1);
  fl_store *store = (fl_store *)(void *)((char *)to + leaves);
  memcpy(to, q->leaves, leaves);
  memcpy(store, q->stores, stores);
  t->next = NULL;
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
                      .stores = store};
  memcpy(t->base.shape, q->shape, sizeof q->shape);
  t->base.hash = hash_tile(&t->base, q);
  *out = t;
  return FL_OK;
}

static void tile_free(fli_tile *t) {
  fli_mfree(t->body);
  fli_mfree(t);
}

static bool same_tile(const fl_tile *a, const fl_tile *b) {
  size_t leaves = (size_t)a->body->n_in * sizeof(fl_leaf);
  size_t stores = (size_t)a->n_stores * sizeof(fl_store);
  return a->hash == b->hash && a->n_dims == b->n_dims &&
         a->n_inner == b->n_inner && a->n_stores == b->n_stores &&
         a->body->n_in == b->body->n_in &&
         memcmp(a->leaves, b->leaves, leaves) == 0 &&
         memcmp(a->stores, b->stores, stores) == 0;
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

fl_status fli_tile_op(fl_runtime *rt, const fl_op **op) {
  if (!rt->tile_op) {
    fl_op *made;
    FLI_TRY(fli_op_new(rt, "fused", "x:any -> y:any", "tile", &made));
    made->info.doc = "Several operators in one kernel.";
    rt->tile_op = made;
  }
  *op = rt->tile_op;
  return FL_OK;
}

void fli_tiles_close(fl_runtime *rt) {
  for (fli_tile *t = rt->tiles, *next; t; t = next) {
    next = t->next;
    tile_free(t);
  }
  rt->tiles = NULL;
}
