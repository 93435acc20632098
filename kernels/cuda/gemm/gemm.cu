/* Matrix products: tensor cores for 16-bit floats, plain multiply-adds for the
 * rest, and vectors. Bias, activation and what it was applied to come with the
 * store. Sums are cut by shape only, and pieces added in order. */
#include "gemm.cuh"
#include "../device/tile.cuh"

/* The block's M x N of C by way of shared memory, in rows of LD: as it is if it
 * is a piece of a sum, else finished. */
template <int D, int M, int N, int LD, int THREADS, class W>
void gemm_store(const gemm_args &a, const place &p, W *c) {
  constexpr int V = width_of<D>(), H = V < 4 ? V : 4;
  W *bias = c + M * LD;
  bool adds = a.bias && !a.part;
  int64_t first = p.matrix * a.m * a.n + p.row * a.n + p.col;
  int rows = a.m - p.row < M ? (int)(a.m - p.row) : M;
  int cols = a.n - p.col < N ? (int)(a.n - p.col) : N;
  W *part = (W *)a.part + p.split * a.batch * a.m * a.n;
  if (adds)
    for (int i = threadIdx.x; i < (a.bias_down ? rows : cols); i += THREADS)
      bias[i] =
          fl_load<W>(a.bias, a.bias_dtype, (a.bias_down ? p.row : p.col) + i);
  __syncthreads();
  if (a.wide) {
    for (int i = threadIdx.x; i < rows * (N / V); i += THREADS) {
      int row = i / (N / V), col = i % (N / V) * V;
      int64_t at = first + row * a.n + col;
      W v[V];
      if (col >= cols)
        continue;
#pragma unroll
      for (int e = 0; e < V; e += H) {
        fl_vec<W, H> x = fl_read<W, H>(c + row * LD + col + e);
        if (a.part)
          fl_write(part + at + e, x);
#pragma unroll
        for (int h = 0; h < H; h++)
          v[e + h] = x.at[h];
      }
      if (a.part)
        continue;
      if (adds) {
#pragma unroll
        for (int e = 0; e < V; e++)
          v[e] += bias[a.bias_down ? row : col + e];
      }
      finish<D, V>(a, v, at);
    }
    return;
  }
  for (int i = threadIdx.x; i < rows * N; i += THREADS) {
    int row = i / N, col = i % N;
    W v[1] = {c[row * LD + col]};
    int64_t at = first + row * a.n + col;
    if (col >= cols)
      continue;
    if (a.part) {
      part[at] = v[0];
      continue;
    }
    if (adds)
      v[0] += bias[a.bias_down ? row : col];
    finish<D, 1>(a, v, at);
  }
}

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
