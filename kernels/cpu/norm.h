/* What norm.c plans and norm_typed.c computes: rows of n adjacent elements. */
#ifndef FL_CPU_NORM_H
#define FL_CPU_NORM_H

#include "cpu.h"

typedef struct norm_job {
  int64_t n, grain;
  double eps;
  bool centre; /* layer_norm: with a mean */
  const void *x, *dy, *weight, *bias;
  void *y; /* or dx */
  void *mean, *rstd;
  double *parts; /* dw and db of every piece */
  void *spells;  /* the same of at most SPELL rows */
  void *dw, *db;
  int64_t pieces;
} norm_job;

typedef struct norm_kernels {
  fl_cpu_task forward, backward;
  fl_cpu_task weights; /* elements of dw and db, from the pieces' sums */
} norm_kernels;
extern const norm_kernels FL_CPU(norm_f32), FL_CPU(norm_f64);

#endif
