/* Machine code for the cheap instructions of a plan of the kernel "tile".
 * tile_code.c chooses them and writes the code, tile.c runs it. */
#ifndef FL_CPU_TILE_CODE_H
#define FL_CPU_TILE_CODE_H

#include "code.h"

/* Of one run of instructions, at most. */
#define FL_NEST_OPERANDS  40
#define FL_NEST_CONSTANTS 64

typedef struct fl_nest_operand {
  int16_t value; /* which is read; -1: the constants */
  int16_t step;  /* whose result is written; -1: none */
  int64_t row;   /* bytes from row to row; < 0: -row for each element of one */
} fl_nest_operand;

/* Before the code of a run, in the same memory. */
typedef struct fl_nest_code {
  int32_t n, entry; /* operands; where the code begins, from here */
  bool rows;        /* row by row, or else the whole block as one */
  float constant[FL_NEST_CONSTANTS];
  fl_nest_operand op[];
} fl_nest_code;

typedef void (*fl_nest_entry)(int64_t rows, int64_t count, char **places,
                              const int64_t *moves, uint64_t mask);

#endif
