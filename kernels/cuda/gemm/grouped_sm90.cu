/* Products of groups of 16-bit floats on Hopper: blocks that stay, one for each
 * multiprocessor. Rows behind a group's last are multiplied and not stored. */
#include "gemm_sm90.cuh"
#include "grouped.cuh"

/* Groups of rows; A's memory runs along the sum. */
template <int D, int BK>
__global__ void __launch_bounds__(384, 1)
    rows(const __grid_constant__ grouped_sm90 a) {
#ifdef FL_HOPPER
  typedef walk<D, 1, BK> Walk;
  extern __shared__ __align__(1024) unsigned char shared[];
  Walk w(shared);
  const grouped_args &h = a.h;
  int steps = (int)(((uint32_t)h.g.k + FL_STEP - 1) / FL_STEP);
  place p;
  span s;
  if (threadIdx.x >= 256) {
    fl_registers_less<40>();
    if (threadIdx.x >= 288)
      return;
    for (uint32_t item = blockIdx.x; rows_place(h, item, M, N, &p, &s);
         item += gridDim.x) {
      if (threadIdx.x == 256)
        w.load(a.a, a.b, {(int)p.row, 0, 0}, {(int)p.col, (int)p.matrix, 0}, 0,
               steps);
      __syncwarp();
    }
    return;
  }
  fl_registers_more<232>();
  for (uint32_t item = blockIdx.x; rows_place(h, item, M, N, &p, &s);
       item += gridDim.x) {
    typename Walk::Tile t;
    w.template multiply<0>(t, steps, FL_STEP);
    p.matrix = 0;
    gemm_sm90_finish<D>(h.g, p, t, shared, s.to);
  }
#endif
}

/* Groups of the sum; memory of both operands runs across it. */
template <int D>
__global__ void __launch_bounds__(384, 1)
    sums(const __grid_constant__ grouped_sm90 a) {
#ifdef FL_HOPPER
  typedef walk<D, 0, 0> Walk;
  extern __shared__ __align__(1024) unsigned char shared[];
  Walk w(shared);
  const grouped_args &h = a.h;
  place p;
  span s;
  if (threadIdx.x >= 256) {
    fl_registers_less<40>();
    if (threadIdx.x > 256)
      return;
    for (uint32_t item = blockIdx.x; sums_place(h, item, M, N, &p, &s);
         item += gridDim.x)
      w.load(a.a, a.b, {(int)p.row, 0, 0}, {(int)p.col, 0, 0}, s.from,
             (s.to - s.from + FL_STEP - 1) / FL_STEP);
    return;
  }
  fl_registers_more<232>();
  for (uint32_t item = blockIdx.x; sums_place(h, item, M, N, &p, &s);
       item += gridDim.x) {
    int steps = (s.to - s.from + FL_STEP - 1) / FL_STEP;
    if (steps == 0)
      continue;
    typename Walk::Tile t;
    w.template multiply<1>(t, steps, s.to - s.from - (steps - 1) * FL_STEP);
    gemm_sm90_finish<D>(h.g, p, t, shared, h.g.m);
  }
#endif
}
