/* Makes the tiles (../tile.h) of fused kernels from expression graphs. */
#ifndef FL_EXPR_TILE_H
#define FL_EXPR_TILE_H

#include "../tile.h"
#include "expr.h"

/* The inputs of the graph are the leaves, in their order. Sources and masks of
 * leaves and values of stores and positions are places in `out`. */
typedef struct fli_tile_request {
  const fli_graph *graph;
  int n_out, n_stores, n_in, n_operands; /* n_in inputs, then outputs */
  const fl_value *out;
  const fl_dtype *out_dtype; /* of each `out` where it is used */
  const fl_dtype *operand_dtype;
  const fl_leaf *leaves;
  const fl_store *stores;
  int n_positions;
  const fl_position *positions;
  int n_dims, n_inner;
  int64_t shape[FL_TILE_DIMS];
  bool separate; /* products are rounded before they are added */
  bool exact;    /* of the tile */
} fli_tile_request;

/* The same tile for equal requests; it lives as long as the runtime. */
fl_status fli_tile_intern(fl_runtime *rt, const fli_tile_request *q,
                          const fl_tile **tile);
/* The operator that launches with a tile name; its kernels are "tile". */
fl_status fli_tile_op(fl_runtime *rt, const fl_op **op);
/* The same for a row with an expression behind it; its kernels are "epilogue".
 */
fl_status fli_epilogue_op(fl_runtime *rt, const fl_op **op);
void fli_tiles_close(fl_runtime *rt);

#endif
