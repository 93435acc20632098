/* What batch_norm.c plans and batch_norm_typed.c computes. */
#ifndef FL_CPU_BATCH_NORM_H
#define FL_CPU_BATCH_NORM_H

#include "cpu.h"

#define PLANE 32 /* smaller planes are taken as columns */

/* x is (samples, channels, size). In columns it is samples rows of width =
 * channels x size; a piece is `grain` of them. */
typedef struct planes_job {
  int64_t samples, channels, size, groups;
  int64_t width, grain, pieces, tiles;
  int64_t light; /* rows worth a thread's while */
  bool weigh;    /* s1 are means, not sums */
  double eps;
  const void *x, *dy, *weight, *bias;
  void *y; /* or dx */
  void *mean, *rstd;
  double *s1, *s2;     /* of every plane (or piece and column): mean and squared
                          deviations, or sums of dy and dy (x - mean) */
  void *a, *b, *c, *m; /* of every channel (or column): what to apply */
} planes_job;

typedef struct batch_norm_kernels {
  fl_cpu_task group_forward, group_backward;
  fl_cpu_task plane_moments, plane_sums, plane_apply;
  fl_cpu_task column_moments, column_sums, column_apply;
  /* j->m, a, b, c from the channels' figures */
  void (*forward_factors)(const planes_job *j, const double *mean,
                          const double *rstd, const double *w, const double *b);
  void (*backward_means)(const planes_job *j);
  void (*backward_factors)(const planes_job *j, const double *rstd,
                           const double *w, const double *db, const double *dw,
                           const double *left, bool training);
  bool (*any_far)(const planes_job *j);
} batch_norm_kernels;
extern const batch_norm_kernels FL_CPU(batch_norm_f32), FL_CPU(batch_norm_f64);

#endif
