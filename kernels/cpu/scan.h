/* What scan.c plans and scan_typed.c computes. */
#ifndef FL_CPU_SCAN_H
#define FL_CPU_SCAN_H

#include "cpu.h"

#define MAX_TILE FL_COLUMNS /* results computed together */

typedef union slot {
  double f;
  int64_t i;
} slot;

typedef struct scan {
  const void *x;
  void *y;
  int64_t n, inner, tiles, piece, pieces;
  slot *sums; /* of each piece, then of all before it */
} scan;

typedef struct scan_kernels {
  fl_cpu_task cols;
  fl_cpu_task sums, rows; /* pieces of rows: their sums, then their elements */
} scan_kernels;
extern const scan_kernels FL_CPU(scan_f32), FL_CPU(scan_f64), FL_CPU(scan_i64);

#endif
