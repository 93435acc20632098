/* Elementwise rows of ops.def as text for NVRTC, and the driver that runs one
 * (map.c). */
#ifndef FL_CUDA_ROWS_H
#define FL_CUDA_ROWS_H

#include "cuda.h"

/* what a formula is compiled for, as in ops.def: floats, numbers, integers */
typedef enum flc_row_type { FLC_ROW_F, FLC_ROW_N, FLC_ROW_I } flc_row_type;

typedef struct flc_row {
  const char *text; /* "#define ROW ...", NULL ends the table */
  int params;       /* FL_PARAMS_* of the row */
  int inputs;       /* how many it reads */
  flc_row_type type;
  bool test;  /* results are bool */
  bool mixes; /* has kernels for f32 beside 16-bit floats */
} flc_row;

extern const flc_row flc_rows[];
fl_status flc_map(const fl_launch *l, const flc_row *r, const fl_view *y,
                  const fl_view *in, int n_in);

#endif
