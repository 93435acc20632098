/* Matrix products of 16-bit floats on Hopper: blocks that stay, one for each
 * multiprocessor. */
#include "gemm_sm90.cuh"

#ifdef FL_HOPPER

/* The steps of a split. */
inline int begin_of(const gemm_args &a, const place &p) {
  return p.split * a.steps;
}
inline int steps_of(const gemm_args &a, const place &p) {
  int left = (int)(((uint32_t)a.k + FL_STEP - 1) / FL_STEP) - begin_of(a, p);
  return left < a.steps ? left : a.steps;
}

/* All tiles of this block. By one thread. */
template <class Walk> void load_tiles(Walk &w, const gemm_sm90 &h) {
  const gemm_args &a = h.g;
  int last = a.dims - 1, inner = a.dims > 0 ? (int)a.size[last] : 1;
  for (uint32_t item = blockIdx.x; item < h.items; item += gridDim.x) {
    place p = place_of(a, item, M, N);
    int z = (int)p.matrix % inner, v = (int)p.matrix / inner;
    origin am = {(int)p.row, a.dims > 0 && a.astep[last] ? z : 0,
                 a.dims > 1 && a.astep[0] ? v : 0};
    origin bm = {(int)p.col, a.dims > 0 && a.bstep[last] ? z : 0,
                 a.dims > 1 && a.bstep[0] ? v : 0};
    w.load(h.a, h.b, am, bm, begin_of(a, p) * FL_STEP, steps_of(a, p));
  }
}

#endif

template <int D, int AK, int BK>
__global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ gemm_sm90 h) {
#ifdef FL_HOPPER
  typedef walk<D, AK, BK> Walk;
  extern __shared__ __align__(1024) unsigned char shared[];
  Walk w(shared);
  if (threadIdx.x >= 256) {
    fl_registers_less<40>();
    if (threadIdx.x == 256)
      load_tiles(w, h);
    return;
  }
  fl_registers_more<232>();
  for (uint32_t item = blockIdx.x; item < h.items; item += gridDim.x) {
    place p = place_of(h.g, item, M, N);
    typename Walk::Tile t;
    w.template multiply<0>(t, steps_of(h.g, p), FL_STEP);
    gemm_sm90_finish<D>(h.g, p, t, shared, h.g.m);
  }
#endif
}
