/* Bias and activation of linear, for one float type. */
#include "../../runtime/math/math.h"
#include "matmul.h"
#include "typed.h"

/* n elements: y = act(x), x and y may be the same. */
static void activate(fl_cpu_act act, int64_t n, const T *x, T *y) {
  switch (act) {
  case FL_ACT_RELU:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = x[i] > 0 ? x[i] : x[i] != x[i] ? x[i] : (T)0;
    return;
  case FL_ACT_GELU:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = fl_gelu(x[i], (T)0);
    return;
  case FL_ACT_GELU_TANH:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = fl_gelu(x[i], (T)1);
    return;
  case FL_ACT_SILU:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = x[i] / (1 + fl_exp(-x[i]));
    return;
  case FL_ACT_TANH:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = fl_tanh(x[i]);
    return;
  case FL_ACT_SIGMOID:
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
      y[i] = fl_sigmoid(x[i]);
    return;
  case FL_ACT_NONE:
    return;
  }
}

/* A finished block of x W^T: adds the bias to it, then y = act of it. */
static void finish_block(void *context, int64_t i, int64_t rows, int64_t j,
                         int64_t cols) {
  const linear_map *g = context;
  const T *bias = (const T *)g->bias + j;
  for (int64_t r = i; r < i + rows; r++) {
    T *pre = (T *)g->pre + r * g->n + j, *y = (T *)g->y + r * g->n + j;
    if (g->bias) {
#pragma omp simd
      for (int64_t c = 0; c < cols; c++)
        pre[c] += bias[c];
    }
    activate(g->act, cols, pre, y);
  }
}

const matmul_kernels FL_TYPED(matmul) = {.finish_block = finish_block};
