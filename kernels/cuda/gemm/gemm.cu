/* Matrix products: tensor cores for 16-bit floats, plain multiply-adds for the
 * rest, and vectors. Bias, activation and what it was applied to come with the
 * store. Sums are cut by shape only, and pieces added in order. */
#include "gemm.cuh"
#include "../device/tile.cuh"

/* --- 16-bit floats --- */

template <int D, int SIZE, int AK, int BK, int FIT>
__global__ void __launch_bounds__(fl_size<SIZE>::THREADS)
    product(const __grid_constant__ gemm_args a) {
  constexpr int M = fl_size<SIZE>::M, N = fl_size<SIZE>::N;
  constexpr int THREADS = fl_size<SIZE>::THREADS, LD = N + 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  place p = place_of(a, blockIdx.x, M, N);
  fl_matrix<M, THREADS, AK, FIT> am((const uint16_t *)a.a + p.a, p.row,
                                    AK ? a.am : a.ak, a.m - p.row, a.k);
  fl_matrix<N, THREADS, BK, FIT> bm((const uint16_t *)a.b + p.b, p.col,
                                    BK ? a.bn : a.bk, a.n - p.col, a.k);
  int steps = (int)((a.k + FL_STEP - 1) / FL_STEP);
  int begin = p.split * a.steps, end = begin + a.steps;
  fl_tile_of<D, SIZE, AK, BK> tile;
  fl_multiply<fl_size<SIZE>::STAGES>(
      tile, am, bm, begin, end < steps ? end : steps, fl_shared(shared));
  float *c = (float *)shared;
  tile.template put<LD>(c);
  gemm_store<D, M, N, LD, THREADS>(a, p, c);
}

/* --- the rest --- */

template <int D, int R, int AK, int BK>
__global__ void __launch_bounds__(FL_SIMT)
    simt(const __grid_constant__ gemm_args a) {
  typedef fl_simt<D, R> Tile;
  typedef typename Tile::W W;
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile tile;
  place p = simt_tile<AK, BK>(a, tile, shared);
  gemm_store<D, Tile::SIZE, Tile::SIZE, Tile::LINE, FL_SIMT>(a, p, (W *)shared);
}

/* Adds the pieces of the sum up, 16 bytes (WIDE) or an element at a time. */
template <int D, int WIDE>
__global__ void __launch_bounds__(256)
    gather(const __grid_constant__ gemm_args a) {
  typedef typename fl_simt_type<D>::W W;
  constexpr int N = WIDE ? width_of<D>() : 1, H = N < 4 ? N : 4;
  int64_t all = a.batch * a.m * a.n;
  for (int64_t at = fl_thread() * N; at < all; at += fl_threads() * N) {
    W v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = 0;
    for (int s = 0; s < a.splits; s++)
#pragma unroll
      for (int i = 0; i < N; i += H) {
        fl_vec<W, H> x = fl_read<W, H>((const W *)a.part + s * all + at + i);
#pragma unroll
        for (int h = 0; h < H; h++)
          v[i + h] += x.at[h];
      }
    if (a.bias)
      add_bias<D>(a, v, at / a.n % a.m, at % a.n);
    finish<D, N>(a, v, at);
  }
}

/* Bias and activation of a product that is already in memory, a.a. */
template <int D, int WIDE>
__global__ void __launch_bounds__(256)
    apply(const __grid_constant__ gemm_args a) {
  typedef typename fl_simt_type<D>::W W;
  typedef FL_S(D) S;
  constexpr int N = WIDE ? width_of<D>() : 1;
  int64_t all = a.batch * a.m * a.n;
  for (int64_t at = fl_thread() * N; at < all; at += fl_threads() * N) {
    fl_vec<S, N> x = fl_read<S, N>((const S *)a.a + at);
    W v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = fl_simt_get<W>(x.at[i]);
    if (a.bias)
      add_bias<D>(a, v, at / a.n % a.m, at % a.n);
    finish<D, N>(a, v, at);
  }
}

/* C += a.a, m elements each. */
template <int D, int TO>
__global__ void __launch_bounds__(256)
    accumulate(const __grid_constant__ gemm_args a) {
  typedef FL_S(TO) S;
  typedef FL_W(TO) W;
#pragma unroll 4
  for (int64_t i = fl_thread(); i < a.m; i += fl_threads())
    ((S *)a.c)[i] = fl_put<S>(fl_get<W>(((const S *)a.c)[i]) +
                              fl_get<W>(((const FL_S(D) *)a.a)[i]));
}

/* The activation alone, 16 bytes a turn, four turns at once. */
template <int D, int ACT>
__global__ void __launch_bounds__(256)
    activation(const __grid_constant__ gemm_args a) {
  typedef typename fl_simt_type<D>::W W;
  typedef FL_S(D) S;
  constexpr int N = width_of<D>(), TURNS = 4, STEP = 256 * N;
  int64_t all = a.batch * a.m * a.n,
          first = (int64_t)blockIdx.x * (STEP * TURNS) + threadIdx.x * N;
  fl_vec<S, N> x[TURNS];
#pragma unroll
  for (int t = 0; t < TURNS; t++)
    if (first + t * STEP < all)
      x[t] = fl_read<S, N>((const S *)a.a + first + t * STEP);
#pragma unroll
  for (int t = 0; t < TURNS; t++) {
    W v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = fl_simt_get<W>(x[t].at[i]);
    activate<sizeof(S) == 2>(v, ACT);
#pragma unroll
    for (int i = 0; i < N; i++)
      x[t].at[i] = fl_put<S>(v[i]);
    if (first + t * STEP < all)
      fl_write((S *)a.c + first + t * STEP, x[t]);
  }
}
