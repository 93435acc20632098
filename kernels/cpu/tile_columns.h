/* Column sums of a tile: sum stores (../../runtime/tile.h) add to cells of
 * double in pieces of the chunks, which depend on the shape alone; at the end
 * the pieces' cells are added in order. */
#ifndef FL_CPU_TILE_COLUMNS_H
#define FL_CPU_TILE_COLUMNS_H

#include "../../runtime/tile.h"
#include "cpu.h"

typedef struct fl_nest_columns {
  int64_t n, pieces;             /* cells of a piece, of all stores */
  int64_t first[FL_TILE_STORES]; /* of a store: its cell of form 0 */
  double *cells;                 /* NULL: no sum stores */
} fl_nest_columns;

/* Gets the cells, all zero. */
fl_status FL_CPU(columns_begin)(const fl_launch *l, fl_nest_columns *x);
/* Adds pn rows of qn elements of `type`, F32 or F64, `pitch` bytes apart, to
 * cells p and q apart. */
void FL_CPU(columns_add)(int64_t pn, int64_t qn, fl_dtype type, double *to,
                         int64_t p, int64_t q, const void *from, int64_t pitch);
/* Writes the sums to the stores' memory. */
void FL_CPU(columns_end)(const fl_launch *l, const fl_nest_columns *x);

#endif
