/* Arguments of the kernels in grid.cu: x (batch, channels, space), grid (batch,
 * results, dims of space), y (batch, channels, results). */
#ifndef FL_CUDA_GRID_H
#define FL_CUDA_GRID_H

typedef struct grid_args {
  const void *x, *grid, *dy;
  void *y, *dx, *dgrid;
  int64_t size[3], step[3]; /* of x; of grid's coordinates: the last dim first
                             */
  int64_t batch, channels, plane, results;
  int mode, padding, corners;
} grid_args;

#endif
