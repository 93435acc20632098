/* The text of a tile's kernel while it is printed: tile_text.c prints loads,
 * values and stores, tile_sums.c reductions. */
#ifndef FL_CUDA_TILE_TEXT_H
#define FL_CUDA_TILE_TEXT_H

#include "tile.h"

typedef struct tile_text {
  char *at;
  size_t n, room;
  uint32_t known; /* positions of rows that have been printed */
  bool failed;
} tile_text;

void FL_PRINTF(2, 3) flc_put(tile_text *t, const char *format, ...);
/* Opens the loop over the v elements of a vector, j. */
void flc_put_each(tile_text *to, int v);

/* Declares the coordinates of dims [begin, end), of which `of` is the number.
 */
void flc_put_coordinates(tile_text *to, const tile_plan *p, const char *of,
                         int begin, int end);
/* `given`: the tile's own form; j: of element j of a vector. */
void flc_put_form(tile_text *to, const tile_plan *p, const fl_form *at,
                  const fl_form *given, bool j);
const char *flc_memory_type(const tile_plan *p, int operand);

/* --- of a plan --- */

static inline const char *value_type(const tile_plan *p, int v) {
  fl_dtype d = fl_program_type(p->t->body, v);
  return d == FL_F64    ? "double"
         : d == FL_F32  ? "float"
         : d == FL_BOOL ? "bool"
                        : "int64_t";
}
static inline int n_in(const tile_plan *p) {
  return p->t->body->n_in;
}
static inline int first_instr(const tile_plan *p) {
  return p->t->body->n_in + p->t->body->n_const;
}
static inline bool is_constant(const tile_plan *p, int v) {
  return v >= n_in(p) && v < first_instr(p);
}
static inline const fl_leaf *leaf_of(const tile_plan *p, int v) {
  return &p->t->leaves[v];
}
static inline bool is_load(const tile_plan *p, int v) {
  return v < n_in(p) && leaf_of(p, v)->kind == FL_LEAF_LOAD;
}
static inline bool is_reduce(const tile_plan *p, int v) {
  return v < n_in(p) && leaf_of(p, v)->kind == FL_LEAF_REDUCE;
}
static inline int store_value(const tile_plan *p, int k) {
  return flc_tile_value(p, p->t->stores[k].value);
}
static inline bool
rows_left(const tile_plan *p) { /* the last block has too few */
  if (p->sums)
    return p->turns % p->groups != 0;
  return (p->rows / (p->columns ? p->v : 1)) % p->groups != 0;
}
static inline bool is_moment(const tile_plan *p, int v) {
  return is_reduce(p, v) && leaf_of(p, v)->reduction >= FL_REDUCE_MEAN;
}

/* --- tile_sums.c --- */

/* The reduction whose sums give v too: the mean and the deviation of a value
 * have the same. */
int flc_sums_owner(const tile_plan *p, int v);

#define EACH_REDUCTION(k, phase_)                                              \
  for (int k = 0; k < n_in(p); k++)                                            \
    if (is_reduce(p, k) && p->live[k] && p->f.phase[k] == (phase_) &&          \
        flc_sums_owner(p, k) == k)

/* Declares the sums that a pass adds to, for the phase after it. */
void flc_sums_begin(tile_text *to, const tile_plan *p, int phase);
/* What holds a vector's values, for sums that take them together; in the loop
 * over j, adds value v of reduction k; and takes those that are held. */
void flc_sums_hold(tile_text *to, const tile_plan *p, int phase);
void flc_sums_add(tile_text *to, const tile_plan *p, int k, int v);
void flc_sums_take(tile_text *to, const tile_plan *p, int phase);
/* Before and at the end of the loop over all elements of a thread. */
void flc_sums_turns(tile_text *to, const tile_plan *p, int phase);
void flc_sums_turn(tile_text *to, const tile_plan *p, int phase);
/* The sums of all threads of a row, in each of them. */
void flc_sums_end(tile_text *to, const tile_plan *p, int phase);
/* The sums of an earlier kernel's segments, in the same order every time; and
 * those of this kernel's segment, for a later one. */
void flc_sums_again(tile_text *to, const tile_plan *p, int phase);
void flc_sums_away(tile_text *to, const tile_plan *p, int phase);
/* Bytes of shared memory that a thread of columns has. */
int flc_sums_shared(const tile_plan *p);

/* --- tile_columns.c --- */

/* Opens the loop over the rows of a block; closes it, and writes their sums. */
void flc_columns_begin(tile_text *to, const tile_plan *p);
void flc_columns_end(tile_text *to, const tile_plan *p);
/* What a sum store does with its value; `j`: of an element of a row. */
void flc_columns_add(tile_text *to, const tile_plan *p, int k, bool j);
/* The body of the second kernel. */
void flc_columns_text(tile_text *to, const tile_plan *p);

#endif
