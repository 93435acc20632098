/* The tile machine: runs a program's instructions on tiles that stay in the L1
 * cache, each with a row's own vector loop. expr.c and expr_reduce.c share it.
 */
#ifndef FL_CPU_MACHINE_H
#define FL_CPU_MACHINE_H

#include "../../runtime/program.h"
#include "map.h"
#include "tiled.h"

#define FL_MACHINE_TILE  1024      /* elements at most */
#define FL_MACHINE_ARENA (1 << 16) /* bytes of all buffers of a thread */

/* One launch, the same for all threads. */
typedef struct fl_machine {
  const fl_program *program;
  int64_t tile; /* elements at a time */
  size_t room;  /* bytes of a buffer */
  fl_tiles tiles;
  fl_tiled op[FL_MAX_OUT + FL_PROGRAM_IN]; /* the results, the inputs */
  bool used[FL_PROGRAM_IN];
  bool over; /* a result lies where an input does */
  int16_t result_of[FL_PROGRAM_VALUES]; /* an instruction's value: which result
                                           it is, or -1 */
  bool known[FL_PROGRAM_VALUES];        /* one element for the whole launch */
  fl_map_loop loop[FL_PROGRAM_VALUES];  /* of instructions */
  uint64_t cell[FL_PROGRAM_VALUES];     /* of what is known */
} fl_machine;

/* A thread's place in it. */
typedef struct fl_machine_run {
  const fl_machine *m;
  const void *at[FL_PROGRAM_VALUES];
  uint8_t step[FL_PROGRAM_VALUES]; /* 0: one element for the whole tile */
  fl_walker w;
  int64_t begin;
  _Alignas(64) unsigned char arena[FL_MACHINE_ARENA];
} fl_machine_run;

/* Needs tiles.shape, tiles.ndim and the operands, bound but not merged. */
fl_status FL_CPU(machine_open)(fl_machine *m, const fl_launch *l);
void FL_CPU(machine_start)(fl_machine_run *r, const fl_machine *m);
void FL_CPU(machine_seek)(fl_machine_run *r, int64_t begin);
/* Computes the next n elements, n of fl_tiles_take, and moves on. Results go
 * to their tensors if `store`. */
void FL_CPU(machine_tile)(fl_machine_run *r, int64_t n, bool store);
/* A value as n elements, of the tile that was computed last. */
const void *FL_CPU(machine_value)(fl_machine_run *r, int value, int64_t n);

/* The loop of an instruction, NULL for a conversion. */
fl_map_loop FL_CPU(machine_loop)(const fl_program *p, const fl_instr *x);
/* a * b + c, a * b - c, c - a * b, with one rounding and with two. */
extern const fl_map FL_CPU(products_once)[3], FL_CPU(products_twice)[3];

/* In expr_reduce.c. */
fl_status FL_CPU(expr_reduce)(const fl_launch *l);

#endif
