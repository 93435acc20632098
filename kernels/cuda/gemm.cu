/* Matrix products: tensor cores for 16-bit floats, plain multiply-adds for the
 * rest, and vectors. Bias, activation and what it was applied to come with the
 * store. Sums are cut by shape only, and pieces added in order. */
#include "simt.cuh"
#include "tile.cuh"

#include "gemm.h"

enum { NONE, RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID };

/* --- what happens to finished elements --- */

/* FAST: to a few ulp, for what is rounded to 16 bits. */
template <bool FAST> inline float quotient(float a, float b) {
  return FAST ? __fdividef(a, b) : a / b;
}
template <bool FAST> inline double quotient(double a, double b) {
  return a / b;
}
template <bool FAST> inline float power(float x) {
  return FAST ? __expf(x) : expf(x);
}
template <bool FAST> inline double power(double x) {
  return exp(x);
}

template <bool FAST, class W, int N> void activate(W (&v)[N], int act) {
#define EACH(f)                                                                \
  {                                                                            \
    _Pragma("unroll") for (int i = 0; i < N; i++) {                            \
      W x = v[i];                                                              \
      v[i] = f;                                                                \
    }                                                                          \
    return;                                                                    \
  }
  switch (act) {
  case RELU:
    EACH(x > 0 ? x : x != x ? x : W(0))
  case GELU:
    EACH(fl_gelu(x, W(0)))
  case GELU_TANH:
    EACH(quotient<FAST>(x, 1 + power<FAST>(W(-2 * FL_SQRT_2_PI) * x *
                                           (1 + W(0.044715) * x * x))))
  case SILU:
    EACH(quotient<FAST>(x, 1 + power<FAST>(-x)))
  case TANH:
    EACH(fl_tanh(x))
  case SIGMOID:
    EACH(quotient<FAST>(W(1), 1 + power<FAST>(-x)))
  }
#undef EACH
}

/* N finished elements of C, from index `at` on; aligned if N > 1. */
template <int D, int N, class W>
void finish(const gemm_args &a, W (&v)[N], int64_t at) {
  typedef FL_S(D) S;
  fl_vec<S, N> out;
  if constexpr (W(0.5) == 0) { /* integers have nothing of this */
#pragma unroll
    for (int i = 0; i < N; i++)
      out.at[i] = fl_put<S>((int64_t)v[i]);
  } else {
    if (a.pre) {
#pragma unroll
      for (int i = 0; i < N; i++)
        out.at[i] = fl_put<S>(v[i]);
      fl_write((S *)a.pre + at, out);
    }
    if (a.act)
      activate<sizeof(S) == 2>(v, a.act);
#pragma unroll
    for (int i = 0; i < N; i++)
      out.at[i] = fl_put<S>(v[i]);
  }
  fl_write((S *)a.c + at, out);
}

/* The bias of elements of one row, from column col on. */
template <int D, int N, class W>
void add_bias(const gemm_args &a, W (&v)[N], int64_t row, int64_t col) {
  typedef FL_S(D) S;
  if (a.bias_down) {
    W b = fl_load<W>(a.bias, a.bias_dtype, row);
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] += b;
  } else if (a.bias_dtype == D) { /* the usual case, without a switch */
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] += fl_simt_get<W>(((const S *)a.bias)[col + i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] += fl_load<W>(a.bias, a.bias_dtype, col + i);
  }
}

/* Elements of 16 bytes, at most 8. */
template <int D> constexpr int width_of() {
  return sizeof(FL_S(D)) < 2 ? 8 : 16 / sizeof(FL_S(D));
}

/* --- which tile a block has --- */

struct place {
  int64_t row, col; /* of C */
  int64_t matrix;
  int split;
  int64_t a, b; /* elements to the matrices of the operands */
};

/* Tiles go down 8 rows of tiles at a time, so that neighbours in time share
 * what is in the cache. */
inline place place_of(const gemm_args &a, int size_m, int size_n) {
  place p;
  int64_t tiles = a.tiles_m * a.tiles_n, z = blockIdx.x / tiles;
  int64_t tile = blockIdx.x - z * tiles, group = tile / (8 * a.tiles_n);
  int64_t inside = tile - group * 8 * a.tiles_n;
  int64_t high = a.tiles_m - group * 8 < 8 ? a.tiles_m - group * 8 : 8;
  p.row = (group * 8 + inside % high) * size_m;
  p.col = inside / high * size_n;
  p.split = (int)(z % a.splits);
  p.matrix = z / a.splits;
  p.a = p.b = 0;
  int64_t left = p.matrix;
  for (int i = a.dims - 1; i >= 0; i--) {
    int64_t at = left % a.size[i];
    left /= a.size[i];
    p.a += at * a.astep[i];
    p.b += at * a.bstep[i];
  }
  return p;
}

/* The block's M x N of C by way of shared memory, in rows of LD: as it is if it
 * is a piece of a sum, else finished. */
template <int D, int M, int N, int LD, int THREADS, class W>
void store(const gemm_args &a, const place &p, W *c) {
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
  place p = place_of(a, M, N);
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
  store<D, M, N, LD, THREADS>(a, p, c);
}

/* --- the rest --- */

template <int D, int R, int AK, int BK>
__global__ void __launch_bounds__(FL_SIMT)
    simt(const __grid_constant__ gemm_args a) {
  typedef fl_simt<D, R> Tile;
  typedef typename Tile::S S;
  typedef typename Tile::W W;
  extern __shared__ __align__(1024) unsigned char shared[];
  place p = place_of(a, Tile::SIZE, Tile::SIZE);
  fl_simt_matrix<Tile, AK> am((const S *)a.a + p.a, p.row, a.am, a.ak,
                              a.m - p.row, a.k);
  fl_simt_matrix<Tile, BK> bm((const S *)a.b + p.b, p.col, a.bn, a.bk,
                              a.n - p.col, a.k);
  int64_t steps = (a.k + FL_SIMT_STEP - 1) / FL_SIMT_STEP;
  int64_t begin = (int64_t)p.split * a.steps, end = begin + a.steps;
  Tile tile;
  fl_simt_multiply(tile, am, bm, begin, end < steps ? end : steps, (S *)shared);
  __syncthreads();
  W *c = (W *)shared;
  tile.put(c);
  store<D, Tile::SIZE, Tile::SIZE, Tile::LINE, FL_SIMT>(a, p, c);
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
