/* How a launch is done in parts: which dims of its operands are cut together,
 * and which results are then sums. From the marks of ops.def. */
#ifndef FL_COMPILE_SPLIT_H
#define FL_COMPILE_SPLIT_H

#include "../ops/ops.h"

enum { FLI_SPLIT_WHOLE = -1, FLI_SPLIT_SUM = -2 };
#define FLI_SPLIT_OPERANDS 24 /* that a launch in parts may have */

typedef struct fli_split {
  const fl_op *op;
  const fl_attrs *attrs;
  int n_in, n_out;
  const fl_meta *const *in; /* NULL: left out, or a number */
  const fl_meta *const *out;
  int at, dim; /* the operand (inputs, then results) and the dim to be cut */
  /* The answer, for each operand: the dim that is cut; WHOLE: each part reads
   * all of it, or it is a result without elements; SUM: each part gives such a
   * result, and they are added up. */
  int8_t to[FLI_SPLIT_OPERANDS];
  /* Parts have this value of an attribute; -1: they have the launch's. */
  int attr;
  int64_t value;
  int over[FL_MAX_OUT]; /* a sum is divided by this other result; -1 */
} fli_split;

/* False: it cannot be done in parts along that dim. */
bool fli_split_of(fli_split *s);

/* The row that adds its result to its first input, for a row whose inputs are
 * the others; -1. */
int fli_split_adder(const fl_op *op);
/* The row that gives result *out of `op` without the rest: it has the inputs
 * and attributes of the same names; -1. An attribute `dtype` is the result's.
 */
int fli_split_ahead(const fl_op *op, int *out);
/* The input in whose memory the first result may lie; -1. */
int fli_split_reuses(const fl_op *op);

#endif
