/* How a tile runs as CUDA kernels: tile.c plans, tile_text.c prints the plan.
 * Host code alone. */
#ifndef FL_CUDA_TILE_H
#define FL_CUDA_TILE_H

#include "cuda.h"

#include "../../runtime/tile.h"

#define TILE_FEW    8 /* rows: a warp for each would keep a chip waiting */
#define TILE_PASSES 8 /* in one kernel with values kept, or with segments */

/* How the V elements of a vector lie. */
enum { TILE_SAME, TILE_BESIDE, TILE_EACH };

/* Dims are those of the tile without those of size 1, in the order in which
 * threads go through them, adjacent ones merged. The dims before n_outer number
 * the rows.
 *   rows: `lanes` threads share a row, V elements of its last dim at a time; a
 *     block has `groups` of them
 *   columns: a thread has V rows, adjacent along the last outer dim, and
 * `lanes` threads (of threadIdx.y, so to speak) share them; a block is `groups`
 * of those wide. Without inner dims there are no more lanes than one. */
typedef struct tile_plan {
  const fl_tile *t;
  fl_tile_facts f;
  fl_dtype dtype[FL_TILE_OPERANDS]; /* inputs, then outputs */
  uint64_t numbers, aligned;        /* operands, a bit each */
  int n_values;
  uint8_t live[FL_PROGRAM_VALUES];
  uint8_t along[FL_PROGRAM_VALUES];  /* varies along the vector */
  uint8_t steady[FL_PROGRAM_VALUES]; /* a test of a coordinate that does not */
  fl_form leaf[FL_TILE_LEAVES], store[FL_TILE_STORES]; /* by these dims */
  uint8_t leaf_way[FL_TILE_LEAVES], store_way[FL_TILE_STORES];
  int n_outer, n_dims;
  int64_t size[FL_TILE_DIMS];
  int64_t rows, reduced; /* how many, elements of each */
  bool columns, wide;    /* wide: indices do not fit 32 bits */
  bool writes_inner;     /* some store is of elements */
  int v, lanes, groups;
  int chunks;   /* vectors of a thread that are loaded together */
  bool kept;    /* those are all: values stay in registers between passes */
  int resident; /* blocks that have to fit a multiprocessor; 0: any number */
  uint8_t keep[FL_PROGRAM_VALUES]; /* those */
  int segments;                    /* of a row: blockIdx.y */
  int64_t segment;                 /* elements */
  int kernels;                     /* 1, or one for each pass with segments */
  /* sum stores: the dims before n_kept number sums, `over` of them, of `turns`
   * rows each; `parts` blocks share these */
  bool sums;
  int n_kept, parts;
  int64_t over, turns;
} tile_plan;

/* Sets the dims, their forms, and what they decide (tile_dims.c). */
void flc_tile_dims(tile_plan *p);
/* Bytes of all elements that the form of a leaf or store goes through. */
int64_t flc_leaf_bytes(const tile_plan *p, int leaf);
int64_t flc_store_bytes(const tile_plan *p, int store);
static inline int flc_tile_vector_dim(const tile_plan *p) {
  return p->columns               ? p->n_outer - 1
         : p->n_dims > p->n_outer ? p->n_dims - 1
                                  : -1;
}

/* Whether the form of a leaf counts the elements of each vector, from a
 * multiple of their number. */
bool flc_tile_beside(const tile_plan *p, int leaf);

/* What an inner value is to a pass. */
enum { TILE_UNUSED, TILE_MADE, TILE_KEPT };
/* Which inner values pass `pass` computes, which ones it has from earlier ones;
 * those are noted in p->keep. */
void flc_tile_needs(tile_plan *p, int pass, uint8_t *need);
static inline int flc_tile_value(const tile_plan *p, int out) {
  return p->t->body->out[out];
}

/* Numbers of 8 bytes that leaf k keeps for each part of a row. */
static inline int flc_tile_cells(const tile_plan *p, int k) {
  const fl_leaf *x = &p->t->leaves[k];
  return x->kind != FL_LEAF_REDUCE ? 0 : x->reduction >= FL_REDUCE_MEAN ? 4 : 1;
}

/* The forms of a leaf and a store along position k (../../runtime/tile.h). */
static inline int64_t flc_leaf_along(const tile_plan *p, int leaf, int k) {
  return p->t->leaves[leaf].at.coef[p->t->n_dims + k];
}
static inline int64_t flc_store_along(const tile_plan *p, int store, int k) {
  return p->t->stores[store].at.coef[p->t->n_dims + k];
}
static inline int flc_position_value(const tile_plan *p, int k) {
  return flc_tile_value(p, p->t->positions[k].value);
}
/* Whether a store is done for each element of a row. */
static inline bool flc_store_inner(const tile_plan *p, int k) {
  bool inner = p->f.inner[flc_tile_value(p, p->t->stores[k].value)] ||
               (p->t->stores[k].add == FL_STORE_SUM && p->t->n_dims);
  for (int i = 0; i < p->t->n_positions; i++)
    inner = inner ||
            (flc_store_along(p, k, i) && p->f.inner[flc_position_value(p, i)]);
  for (int d = p->n_outer; d < p->n_dims; d++)
    inner = inner || p->store[k].coef[d];
  return inner;
}

/* Registers that an element of a row takes from pass to pass; of one pass what
 * is loaded. In quarters. */
int flc_tile_kept_bytes(tile_plan *p);

/* --- tile_columns.c: plans with sum stores --- */

void flc_columns_plan(tile_plan *p, int processors);
size_t flc_columns_scratch(const tile_plan *p);
/* Of the second kernel. */
int64_t flc_columns_blocks(const tile_plan *p, int *threads);

/* The tile by the moments of parts of the operand (reduced, rows), by `text`;
 * NULL: it needs other things as well. A part has count, mean, 0 and deviation
 * of each row, as floats. */
fl_status flc_tile_moments(const fl_launch *l, int operand, int64_t rows,
                           int64_t reduced, int parts, const char **text);
fl_status flc_tile_finish(const fl_launch *l, const char *text,
                          const void *parts);

/* All texts of a plan with its tile, dtypes and operands set; they live as long
 * as the process: the first one, those behind it by the keys behind this. */
const char *flc_tile_texts(tile_plan *p, uint64_t key, const flc_chip *chip);
/* The text of kernel k, to be freed; NULL: out of memory. */
char *flc_tile_text(tile_plan *p, int k, const char *head);

#endif
