/* Plans of cuDNN for convolutions (cudnn.c). */
#ifndef FL_CUDA_CUDNN_PLAN_H
#define FL_CUDA_CUDNN_PLAN_H

#include "../conv/convolve.h"
#include "cudnn.h"

typedef struct flc_dnn_layout { /* as the library wants it */
  int n;
  int64_t size[5], stride[5], alignment;
} flc_dnn_layout;

/* False: elements that repeat. */
bool flc_dnn_planes(const flc_conv *c, const flc_planes *p, flc_dnn_layout *y);
/* Of weights at w; `last`: inputs innermost. */
void flc_dnn_weights(const flc_conv *c, const void *w, flc_dnn_layout *y,
                     bool last);

typedef struct flc_dnn_plan {
  cudnnBackendDescriptor_t made; /* NULL: none */
  int64_t bytes;                 /* of its workspace */
  bool packed;                   /* for channels innermost, by copies */
  bool kept;                     /* a graph may run it */
} flc_dnn_plan;

/* A handle is for one thread at a time. NULL: there is none. */
cudnnHandle_t flc_dnn_open(void);
/* Up to `most` plans, the most promising first; how many. `y`: of x, w, y. */
int flc_dnn_plans(cudnnHandle_t handle, const flc_conv *c,
                  const flc_dnn_layout y[3], bool packed, int most,
                  flc_dnn_plan *plans);
void flc_dnn_drop(flc_dnn_plan *p);
/* The library's status. `at`: x, w, y; `room`: the workspace. */
int flc_dnn_run(cudnnHandle_t handle, CUstream stream, const flc_dnn_plan *p,
                void *const at[3], void *room);

#endif
