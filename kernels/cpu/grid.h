/* What grid.c plans and grid_typed.c computes. */
#ifndef FL_CPU_GRID_H
#define FL_CPU_GRID_H

#include "cpu.h"

#define BLOCK 256 /* results whose places are worked out at once */

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };

typedef struct sampling {
  int n, taps, reads; /* dims of space, taps along each, all of them */
  int mode, padding;
  bool corners;
  int64_t size[3],
      step[3]; /* of x; of grid's coordinates: the last dim first */
  int64_t batch, channels, plane, results;
  int64_t cuts, cut; /* blocks of a sample's results */
  const void *x, *grid, *dy;
  void *y, *dx, *dgrid;
  int32_t *at;  /* (batch, reads, results): places in a plane */
  void *weight; /* the same */
} sampling;

typedef struct grid_kernels {
  fl_cpu_task find, read, spread, slopes;
} grid_kernels;
extern const grid_kernels FL_CPU(grid_f32), FL_CPU(grid_f64);

#endif
