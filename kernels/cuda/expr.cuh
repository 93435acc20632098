/* Expressions in kernels: of the text that expr.c puts in front (expr.cu says
 * what that is), what is stored and where operands lie. */
#pragma once

#include "device/flare.cuh"

#include "expr.h"

/* Keeps v apart from what follows. Neither NVRTC nor the assembler contracts an
 * operation that names its rounding, and v + -0.0 is v. */
static void fl_separate(float &v) {
  asm("add.rn.f32 %0, %0, 0f80000000;" : "+f"(v));
}
static void fl_separate(double &v) {
  asm("add.rn.f64 %0, %0, 0d8000000000000000;" : "+d"(v));
}

/* A bool is a number where it is stored. */
template <class S, class W> S stored(W v) { return fl_put<S>(v); }
template <class S> S stored(bool v) { return fl_put<S>((int64_t)v); }

#ifdef EXPR_BODY

/* Adds to the operands' places those of element i of some axes. BIG: counts do
 * not fit 32 bits. */
template <int BIG>
void walk(const expr_args &a, const expr_axis *axis, int n, int64_t i,
          int64_t *at) {
#define ADD(k, D, value, W) at[k] += c * axis[d].stride[k];
#pragma unroll 1
  for (int d = n - 1; d >= 0; d--) {
    int64_t c = i;
    if (d > 0) {
      int64_t size = axis[d].size;
      int64_t q = BIG ? i / size : (uint32_t)i / (uint32_t)size;
      c = i - q * size;
      i = q;
    }
    EXPR_INPUTS(ADD)
    if constexpr (EXPR_REDUCE == 0) {
      EXPR_RESULTS(ADD)
    }
  }
}

#endif
