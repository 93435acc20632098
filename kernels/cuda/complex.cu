/* Products of complex numbers, pairs of floats, with broadcasting: computed as
 * wide as anything else, and rounded once. */
#define FL_MATH 0
#include "device/divisor.cuh"

#include "complex.h"

template <int D>
__global__ void __launch_bounds__(256)
    product(const __grid_constant__ pairs_args a) {
  for (int64_t i = fl_thread(); i < a.n; i += fl_threads()) {
    int64_t rest = i, at[2] = {0, 0};
    for (int d = a.ndim - 1; d >= 0; d--) {
      int64_t c = rest;
      if (d > 0)
        c = fl_split(rest, a.size[d], &rest);
      at[0] += c * a.stride[0][d];
      at[1] += c * a.stride[1][d];
    }
    FL_W(D) v[2][2];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        v[k][j] = fl_get<FL_W(D)>(
            ((const FL_S(D) *)a.x[k])[at[k] + j * a.inside[k]]);
    v[1][1] *= (FL_W(D))a.sign;
    fl_vec<FL_S(D), 2> y;
    y.at[0] = fl_put<FL_S(D)>(v[0][0] * v[1][0] - v[0][1] * v[1][1]);
    y.at[1] = fl_put<FL_S(D)>(v[0][0] * v[1][1] + v[0][1] * v[1][0]);
    fl_write<FL_S(D), 2>((FL_S(D) *)a.y + 2 * i, y);
  }
}
