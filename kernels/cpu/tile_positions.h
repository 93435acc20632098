/* Blocks of memory that a tile reads or adds to at positions (tile.h). */
#ifndef FL_CPU_TILE_POSITIONS_H
#define FL_CPU_TILE_POSITIONS_H

#include "../../runtime/tile.h"
#include "cpu.h"

#define FL_NEST_ALONG 2 /* positions of one form */

/* The first bad position that a thread has met. */
typedef struct fl_nest_fault {
  int taken; /* 1 + which position */
  int64_t at, bound;
} fl_nest_fault;

/* How a form goes along positions within a block: position k of its element
 * (p, q) is value[k][p * step_p[k] + q * step_q[k]]. */
typedef struct fl_nest_along {
  int n;
  const fl_tile *t;
  int which[FL_NEST_ALONG];
  int64_t coef[FL_NEST_ALONG];
  const int64_t *value[FL_NEST_ALONG];
  int64_t step_p[FL_NEST_ALONG], step_q[FL_NEST_ALONG];
  /* NULL, or where memory is read at all; elsewhere are zeros */
  const uint8_t *mask;
  int64_t mask_p, mask_q;
  fl_nest_fault *fault;
} fl_nest_along;

/* Memory of `dtype` around `from`, elements p and q apart, as pn x qn packed
 * elements of `type`; `spare` has room for a row. */
void FL_CPU(nest_gather)(const fl_nest_along *a, int64_t pn, int64_t qn,
                         fl_dtype type, char *to, fl_dtype dtype,
                         const char *from, int64_t p, int64_t q, char *spare);
/* Adds pn rows of qn elements, `pitch` bytes apart, to memory around `to`; both
 * are of `dtype`, F32, F64 or I64. */
void FL_CPU(nest_add)(const fl_nest_along *a, int64_t pn, int64_t qn,
                      fl_dtype dtype, char *to, int64_t p, int64_t q,
                      const char *from, int64_t pitch);
/* The failure that a kernel of the row would report. */
fl_status FL_CPU(nest_refused)(const fl_launch *l, const fl_nest_fault *f);

#endif
