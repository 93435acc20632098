/* The formulas of optim.c, which optim_typed.c computes. */
#ifndef FL_CPU_OPTIM_H
#define FL_CPU_OPTIM_H

#include "cpu.h"

/* What the formulas need; which of them is the rule's business. */
typedef struct recipe {
  double lr, decay, b1, b2, eps, momentum, damp;
  double rate, root; /* Adam: lr over the first correction, 1 / sqrt of the
                        second */
  bool decoupled, amsgrad, maximize, nesterov, first, centered;
} recipe;

typedef void (*step_loop)(const recipe *r, int64_t n, void *const *a);

enum {
  STEP_SGD,
  STEP_SGD_MOMENTUM,
  STEP_ADAM,
  STEP_AMSGRAD,
  STEP_RMSPROP,
  STEP_RMSPROP_MOMENTUM,
  STEP_RMSPROP_CENTERED,
  STEP_ADAGRAD,
  STEP_LION,
  STEP_LERP,
  STEP_SCALE,
  STEPS
};

typedef struct optim_kernels {
  step_loop step[STEPS];
  double (*norm)(double p, int64_t n, const void *x, double so_far);
} optim_kernels;
extern const optim_kernels FL_CPU(optim_f32), FL_CPU(optim_f64);

#endif
