/* A launch of the kernel "tile" while it runs, a thread's place in it, and the
 * steps of tile_block.c: loads, stores and spreads of blocks. */
#ifndef FL_CPU_TILE_RUN_H
#define FL_CPU_TILE_RUN_H

#include "tile_columns.h"
#include "tile_plan.h"

typedef struct nest { /* one launch, the same for all threads */
  const fl_launch *l;
  const fl_tile *t;
  const fl_program *p;
  const fl_nest_plan *n;
  const unsigned char *code;
  int first, values;
  int64_t out_size[FL_TILE_STORES];
  int phase; /* in segments: which one runs */
  fl_nest_fault *fault;
  const fl_nest_columns *columns;
  fl_acc *partials; /* of every chunk and segment: n_acc * width */
} nest;

typedef struct nest_run { /* a thread's place in it */
  const nest *e;
  int64_t p0, q0, pn, qn, at[FL_TILE_DIMS]; /* the block */
  int64_t count[4]; /* elements of what varies with P, Q, both */
  int64_t done;     /* elements of the chunk before it */
  const void *value[2 * FL_PROGRAM_VALUES];
  fl_acc *acc;   /* n_acc * width */
  double *cells; /* of column sums */
  char *part;    /* sums of columns in their own type, not in acc yet */
  int64_t parted[FL_TILE_LEAVES]; /* rows in them */
  char *slots, *rows, *spare, *kept;
  size_t kept_room; /* elements that are kept of a value */
  char *buffers;    /* of the steps that run: slots or rows */
  size_t room;
  _Alignas(64) char arena[FL_NEST_ARENA];
} nest_run;

static inline int64_t rows_of(const nest_run *r, uint8_t vary) {
  return r->count[vary & FL_VARY_P];
}

static inline int64_t row_of(const nest_run *r, uint8_t vary) {
  return r->count[vary & FL_VARY_Q];
}

static inline int64_t nest_offset(const nest_run *r, const fl_nest_place *x) {
  int64_t at = x->offset + x->p * r->p0 + x->q * r->q0;
  for (int k = 0; k < r->e->n->n_loops; k++)
    at += x->loop[k] * r->at[k];
  return at;
}

static inline char *store_place(const nest_run *r, int k) {
  const nest *e = r->e;
  return (char *)e->l->out[e->t->stores[k].operand].data +
         nest_offset(r, &e->n->store[k]) * e->out_size[k];
}

void FL_CPU(nest_load)(nest_run *r, const fl_nest_step *s);
void FL_CPU(nest_store)(nest_run *r, const fl_nest_step *s);
void FL_CPU(nest_spread)(nest_run *r, const fl_nest_step *s);

#endif
