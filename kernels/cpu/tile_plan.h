/* How the kernel "tile" (tile.c) goes through a nest: what tile_plan.c finds
 * out once for each tile. It holds no pointer to the tile or its operands.
 *
 * Elements are computed in blocks of up to bp x bq, along two dims of the nest,
 * the axes P and Q, with the elements of one p side by side. The other dims are
 * loops around the blocks. A chunk is a block of rows: reductions run along Q
 * within the rows of P, or, if `across`, along P for the columns of Q. Without
 * reduced dims each block is a chunk. */
#ifndef FL_CPU_TILE_PLAN_H
#define FL_CPU_TILE_PLAN_H

#include "../../runtime/tile.h"
#include "machine.h"
#include "tile_code.h"
#include "tile_positions.h"

#define FL_NEST_BLOCK  4096      /* elements of a block, at most */
#define FL_NEST_ROW    1024      /* of a row of it that is reduced */
#define FL_NEST_ARENA  (1 << 16) /* bytes of all buffers of a thread */
#define FL_NEST_CACHE  (1 << 17) /* bytes kept from phase to phase */
#define FL_NEST_STEPS  2048
#define FL_NEST_PHASES 32

typedef struct fl_nest_place { /* a form over the axes and the loops */
  int64_t offset, p, q, loop[FL_TILE_DIMS];
  int64_t along[FL_TILE_POSITIONS];
} fl_nest_place;

enum {
  FL_VARY_P = 1,
  FL_VARY_Q = 2,
  FL_VARY_BLOCK = 3,
  FL_VARY_INNER = 4,
  FL_VARY_ANY = 8 /* with anything in the nest */
};

typedef enum fl_nest_kind {
  FL_NEST_LEAF,   /* loads leaf `what`, or makes its coordinates */
  FL_NEST_INSTR,  /* runs instruction `what` */
  FL_NEST_SPREAD, /* value `what` for every element of the block */
  FL_NEST_KEPT,   /* value `what` from the cache of an earlier phase */
  FL_NEST_REDUCE, /* the source of leaf `what` into its accumulators */
  FL_NEST_STORE   /* store `what` */
} fl_nest_kind;

typedef struct fl_nest_step {
  uint8_t kind, vary; /* vary: FL_VARY_BLOCK's bits of the result */
  bool spread;        /* STORE: its value has been spread, if need be */
  int16_t what;
  int16_t slot;  /* buffer of the result; -1: none */
  int16_t store; /* INSTR: the store that may be its buffer, or -1 */
  int32_t kept;  /* bytes from the cache's begin for each element; -1: none */
  /* INSTR, REDUCE, STORE, SPREAD: what it reads, numbers of values (those
   * spread come after all others), and how (FL_READ_). */
  int16_t in[3];
  uint8_t read[3], type, size; /* type of the result or of what is stored */
  bool in_place;               /* LEAF: it is used where it lies */
  bool by_rows;                /* INSTR: one row of the block after the other */
  bool dot;                    /* REDUCE: sums products of in[0] and in[1] */
  bool inside;  /* INSTR: nothing reads it after the run that it is in */
  int16_t run;  /* INSTR: of how many it is the first that run as code; 0 */
  int32_t code; /* where that is */
  /* Bytes from one row of the block to the next, of the result and of what it
   * reads, where rows are not packed; else 0. */
  int64_t pitch, in_pitch[3];
  int64_t row[3];   /* by_rows: bytes to go on, if not READ_ALL */
  fl_map_loop loop; /* INSTR; NULL: a conversion */
} fl_nest_step;

enum {
  FL_READ_ONE,  /* one element for the whole block */
  FL_READ_ALL,  /* as many as the block has */
  FL_READ_ROWS, /* one for each row */
  FL_READ_LINE, /* one row, for all rows */
  FL_READ_STEP = 1
};

typedef union fl_acc { /* accumulators: int64_t for integers */
  double f;
  int64_t i;
} fl_acc;

typedef struct fl_nest_reduction {
  uint8_t leaf, phase, reduction;
  uint8_t type, to; /* of what it reduces, of its own value */
  int16_t twin;     /* the leaf with the other moment of its source; -1 */
  int acc;          /* its first accumulator, in rows of a chunk */
  bool typed;       /* in the type of its values */
  bool direct;      /* of one block, into the leaf's own buffer */
  fl_acc first;
} fl_nest_reduction;

typedef struct fl_nest_list {
  int begin, end; /* of steps */
} fl_nest_list;

typedef struct fl_nest_plan {
  int n_loops, n_outer;          /* loops: those of rows first */
  int64_t loop[FL_TILE_DIMS];    /* their sizes */
  bool across, inner;            /* inner: there are reduced dims */
  int64_t np, nq, bp, bq;        /* sizes of the axes, of blocks */
  int64_t width;                 /* rows of a chunk: bp, or bq */
  int64_t chunks, passes, tiles; /* blocks of a chunk: passes, of which `tiles`
                                    are along the inner axis */
  int64_t outer_tiles;           /* chunks along the outer axis */
  int64_t row_tiles;             /* blocks along Q */
  int64_t segments, segment;     /* passes are cut, if segments > 1 */
  uint32_t cycles;               /* that a chunk took, at least; 0: not known */
  int phases, n_reduce, n_acc, n_steps; /* n_acc: for each row of a chunk */
  int slots, rows;                      /* buffers of blocks, of chunks */
  size_t wide, room, row_room;          /* bytes of an element, of a buffer */
  size_t arena, cache; /* bytes of all buffers, of values kept */
  fl_nest_list once;   /* what does not vary */
  fl_nest_list row[FL_NEST_PHASES], block[FL_NEST_PHASES], last;
  uint8_t phase[FL_PROGRAM_VALUES], vary[FL_PROGRAM_VALUES];
  int16_t row_slot[FL_PROGRAM_VALUES];
  fl_nest_reduction reduce[FL_TILE_LEAVES + 1]; /* the last: acc alone */
  bool all_direct; /* no reduction needs an accumulator */
  fl_nest_place leaf[FL_TILE_LEAVES], store[FL_TILE_STORES];
  uint64_t over[FL_TILE_STORES];    /* leaves that lie where it writes */
  uint64_t copied;                  /* leaves that are never used in place */
  uint64_t cell[FL_PROGRAM_VALUES]; /* constants */
  fl_nest_step steps[FL_NEST_STEPS];
} fl_nest_plan;

/* Of tile t, for stores over these leaves; `code`: to be written on, or NULL.
 */
fl_status FL_CPU(nest_plan)(const fl_launch *l, const fl_tile *t,
                            const uint64_t *over, fl_code *code,
                            fl_nest_plan *n);

/* What a tile keeps: a plan for each of its parts, in one block of malloc. */
#define FL_NEST_PARTS 12
typedef struct fl_nest_parts {
  fl_tile_plan base;
  fl_code code; /* of all parts */
  int n;
  bool whole;                    /* the only part is the tile itself */
  uint64_t over[FL_TILE_STORES]; /* leaves that lie where it writes */
  size_t tile[FL_NEST_PARTS], plan[FL_NEST_PARTS]; /* bytes from here */
} fl_nest_parts;
/* The plans that the tile has, or else new ones, which become the tile's if it
 * has none; `own`: the caller frees them. */
fl_status FL_CPU(nest_find_parts)(const fl_launch *l, fl_nest_parts **parts,
                                  bool *own);

/* --- tile_reduce.c: accumulators are double, or int64_t for integers --- */

/* Of the mean or the deviation: how many values, their mean, and the sum of
 * squared differences from it. */
#define FL_NEST_MOMENTS 3
static inline bool fl_nest_moments(int reduction) {
  return reduction >= FL_REDUCE_MEAN;
}
/* Joins n of them with as many others. */
void FL_CPU(nest_join_moments)(int64_t n, fl_acc *to, const fl_acc *from);

/* groups of rows x width values, each into `width` accumulators. */
typedef void (*fl_nest_fold)(int64_t groups, int64_t rows, int64_t width,
                             fl_acc *to, const void *from);
fl_nest_fold FL_CPU(nest_fold)(int reduction, fl_dtype type);
fl_acc FL_CPU(nest_first)(int reduction, fl_dtype type);

/* --- tile_reduce_typed.c: in the type of the values --- */

typedef struct fl_nest_typed { /* by fl_reduction; NULL: none */
  /* of `rows` rows of n values, at most FL_NEST_ROW, `pitch` bytes apart: one
   * result each */
  void (*rows[FL_REDUCTIONS])(int64_t rows, int64_t n, void *to,
                              const void *from, int64_t pitch);
  /* `rows` rows, packed, into `width` accumulators */
  void (*columns[FL_REDUCTIONS])(int64_t rows, int64_t width, void *to,
                                 const void *from);
  /* sums of products */
  void (*dot)(int64_t rows, int64_t n, void *to, const void *from,
              int64_t pitch, const void *by, int64_t by_pitch);
} fl_nest_typed;
extern const fl_nest_typed FL_CPU(nest_f32), FL_CPU(nest_f64);

#endif
