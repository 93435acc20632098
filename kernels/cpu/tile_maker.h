/* A plan of the kernel "tile" while it is made: tile_plan.c finds the blocks
 * and the steps, tile_bind.c the buffers and how steps read them. */
#ifndef FL_CPU_TILE_MAKER_H
#define FL_CPU_TILE_MAKER_H

#include "tile_plan.h"

/* Elements along Q from which rows are computed one by one. */
#define BY_ROWS 64

typedef struct maker {
  const fl_launch *l;
  const fl_tile *t;
  const fl_program *p;
  fl_nest_plan *n;
  int first, values; /* the first instruction's value; how many values */
  int n_dims, n_inner;
  int64_t shape[FL_TILE_DIMS];
  fl_form leaf[FL_TILE_LEAVES], store[FL_TILE_STORES];
  int axis_p, axis_q; /* dims, -1: none */
  bool whole;         /* a chunk is one block: values stay */
  int now, n_slots;
  size_t cached; /* bytes of the cache for each element */
  uint8_t full;  /* FL_VARY_BLOCK's bits that blocks have */
  bool too_long;
  fl_code *code; /* NULL: the loops of the rows are used alone */
  uint16_t uses[FL_PROGRAM_VALUES]; /* of a value: how often it is read */
  /* of values, then of them spread */
  uint8_t made[2 * FL_PROGRAM_VALUES];
  int16_t made_by[FL_PROGRAM_VALUES], slot[2 * FL_PROGRAM_VALUES],
      last[2 * FL_PROGRAM_VALUES];
  int32_t kept[FL_PROGRAM_VALUES];
} maker;

static inline bool is_reduce(const maker *m, int leaf) {
  return m->t->leaves[leaf].kind == FL_LEAF_REDUCE;
}

/* The values that leaf x is made of, but for positions: two at most. */
static inline int leaf_values(const maker *m, int x, int *v) {
  const fl_leaf *leaf = &m->t->leaves[x];
  int n = 0;
  if (leaf->mask >= 0)
    v[n++] = m->p->out[leaf->mask];
  if (leaf->source >= 0)
    v[n++] = m->p->out[leaf->source];
  return n;
}

/* The values of the positions that a form goes along, FL_NEST_ALONG at most. */
static inline int along_values(const maker *m, const fl_nest_place *x, int *v) {
  int n = 0;
  for (int k = 0; k < m->t->n_positions && n < FL_NEST_ALONG; k++)
    if (x->along[k])
      v[n++] = m->p->out[m->t->positions[k].value];
  return n;
}

static inline bool is_position(const maker *m, int v) {
  bool any = false;
  for (int k = 0; k < m->t->n_positions; k++)
    any = any || m->p->out[m->t->positions[k].value] == v;
  return any;
}

static inline uint8_t vary_block(const maker *m, int v) {
  return m->n->vary[v] & FL_VARY_BLOCK;
}

/* Whether an instruction is one of those that tile_code.c writes code for. */
bool FL_CPU(nest_codes)(const maker *m, int instr);

/* What an instruction reads that takes v: v, or v spread. Rows of a block that
 * are long enough are computed one by one instead, and those with code. */
static inline int read_by_instr(const maker *m, int instr, int v) {
  const fl_nest_plan *n = m->n;
  uint8_t vary = vary_block(m, v), to = vary_block(m, m->first + instr);
  bool by_rows =
      n->bp > 1 && (n->bq >= BY_ROWS || FL_CPU(nest_codes)(m, instr));
  return vary == to || vary == 0 || by_rows ? v : m->values + v;
}

/* What a step reads, as numbers of values; those spread come after all. */
int FL_CPU(nest_reads)(const maker *m, const fl_nest_step *s, int *in);
/* The value that it gives, or -1. */
int FL_CPU(nest_gives)(const maker *m, const fl_nest_step *s);

/* Puts steps that have code side by side. */
void FL_CPU(nest_order)(maker *m);
/* Gives steps their buffers and operands. */
void FL_CPU(nest_bind)(maker *m);
/* Writes the code of runs. */
void FL_CPU(nest_code)(maker *m);

#endif
