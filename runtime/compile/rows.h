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

/* Elements at positions. Result and source, or source and result of a sum, are
 * alike but for the dim that the positions count: its place is taken by the
 * dims of the index (SLICES), or each element has a position (EACH). */
typedef enum fli_at { FLI_AT_NONE, FLI_AT_SLICES, FLI_AT_EACH } fli_at;

typedef struct fli_indexing {
  fli_at at;
  bool sum; /* src is added to x, or to zeros without x (-1) */
  int8_t x, index, src;
  bool from_end; /* positions below 0 count from the end */
  int dim;       /* of x, or of the result of a sum */
  int64_t skip;  /* a position where nothing is added; -1 */
} fli_indexing;
/* Whether the row reads or adds at positions, and how. */
bool fli_row_indexes(const fl_op *op, const fl_attrs *attrs, fli_indexing *x);

typedef enum fli_over {
  FLI_OVER_DIMS, /* what attributes say */
  FLI_OVER_CHANNELS,
  FLI_OVER_GROUPS /* x is seen as (N, groups, C / groups, ...) */
} fli_over;

typedef struct fli_row_facts {
  const char *body;     /* FL_BODY; NULL */
  const char *each;     /* FL_EACH; NULL */
  const char *by_row;   /* FL_BY_ROW; NULL */
  const char *formula;  /* FL_FORMULA; NULL */
  fli_over over;        /* FL_OVER */
  fli_piece_fn *pieces; /* FL_PIECES; NULL */
  int fills;            /* FL_FILLS: 1 + the attribute; 0 */
  bool scales;          /* FL_SCALES */
} fli_row_facts;
const fli_row_facts *fli_row_facts_of(const fl_op *op);

/* Whether kernels of the row write result k into memory with these strides. */
bool fli_row_places(const fl_op *op, int k, const fl_meta *m,
                    const int64_t *stride);

/* Whether kernels of the row may apply an expression to the first result. */
bool fli_row_epilogue(const fl_op *op);
/* Whether they may find the moments of each channel of it. */
bool fli_row_moments(const fl_op *op);
/* Whether they may run a tile without reductions on it. */
bool fli_row_tail(const fl_op *op);
/* Whether libraries apply the row to the result of a product in its kernel. */
bool fli_row_in_product(const fl_op *op);

/* The number of the input whose values the row copies, with so many inputs; -1:
 * it computes new ones. A kernel that overwrites its result does not read it.
 */
int fli_row_copies(const fl_op *op, int n_in);

/* The row that runs many launches of this one at once; NULL: none. */
const fl_op *fli_row_list(const fl_runtime *rt, const fl_op *op);

/* The name of input k. */
const char *fli_row_input(const fl_op *op, int k);
/* Whether the words of `list`, blanks between them, contain `name`. */
bool fli_row_lists(const char *list, const char *name);
/* Whether a body assigns to `name`. */
bool fli_row_assigns(const char *text, const char *name);
/* The dims of x, which is in[0], that the body of a row reduces, a bit each. */
uint32_t fli_row_reduced(const fl_op *op, const fl_attrs *attrs,
                         const fl_meta *x);

#endif
