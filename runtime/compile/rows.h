/* What rows tell the planner beside their family: marks of ops.def. */
#ifndef FL_COMPILE_ROWS_H
#define FL_COMPILE_ROWS_H

#include "../ops/ops.h"

/* A box of the result that is a box of an input: the element at coordinates c,
 * from[i] <= c[i] < to[i], is that of the input at c - shift. */
typedef struct fli_piece {
  int input;
  int64_t from[FL_MAX_DIMS], to[FL_MAX_DIMS], shift[FL_MAX_DIMS];
} fli_piece;

/* Piece k of the result of a row that moves elements; false: there is none.
 * Elements in no piece are the number at input -1, `value`. */
typedef struct fli_moving {
  const fl_attrs *attrs;
  int n_in;
  const fl_meta *const *in; /* some of a list may be empty tensors */
  const fl_meta *out;
  double value;
} fli_moving;
typedef bool fli_piece_fn(fli_moving *m, int k, fli_piece *piece);

typedef struct fli_row_facts {
  const char *body;     /* FL_BODY; NULL */
  fli_piece_fn *pieces; /* FL_PIECES; NULL */
} fli_row_facts;
const fli_row_facts *fli_row_facts_of(const fl_op *op);

/* Whether kernels of the row write result k into memory with these strides. */
bool fli_row_places(const fl_op *op, int k, const fl_meta *m,
                    const int64_t *stride);

/* The number of the input whose values the row copies, with so many inputs; -1:
 * it computes new ones. A kernel that overwrites its result does not read it.
 */
int fli_row_copies(const fl_op *op, int n_in);

/* The dims of in[0] that a row with a body reduces, a bit each. */
uint32_t fli_row_reduced(const fl_op *op, const fl_attrs *attrs,
                         const fl_meta *x);

#endif
