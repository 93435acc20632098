/* What all kernels of matrix products do: bias, activation and the store of
 * finished elements, and which tile of C is whose. */
#pragma once

#include "../device/approx.cuh"
#include "../device/simt.cuh"

#include "gemm.h"

enum { NONE, RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID };

/* --- what happens to finished elements --- */

/* FAST: what is rounded to 16 bits. */
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
    EACH((fl_gelu_of<FAST, W>(x, W(0))))
  case GELU_TANH:
    EACH(fl_quotient_of<FAST>(x,
                              1 + fl_power_of<FAST>(W(-2 * FL_SQRT_2_PI) * x *
                                                    (1 + W(0.044715) * x * x))))
  case SILU:
    EACH(fl_quotient_of<FAST>(x, 1 + fl_power_of<FAST>(-x)))
  case TANH:
    EACH(fl_tanh(x))
  case SIGMOID:
    EACH(fl_quotient_of<FAST>(W(1), 1 + fl_power_of<FAST>(-x)))
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

/* Where the operands of a matrix of the batch begin. */
inline void matrices_of(const gemm_args &g, uint32_t left, int64_t *a,
                        int64_t *b) {
  *a = *b = 0;
  for (int i = g.dims - 1; i >= 0; i--) {
    uint32_t size = (uint32_t)g.size[i], at = left % size;
    left /= size;
    *a += at * g.astep[i];
    *b += at * g.bstep[i];
  }
}

/* Tile number `tile` of down x across. Tiles go down 8 rows of tiles at a time,
 * so that neighbours in time share what is in the cache. */
inline void tile_at(uint32_t tile, uint32_t down, uint32_t across, int size_m,
                    int size_n, place *p) {
  uint32_t band = 8 * across, group = tile / band;
  uint32_t inside = tile - group * band;
  uint32_t high = down - group * 8 < 8 ? down - group * 8 : 8;
  p->row = (int64_t)(group * 8 + inside % high) * size_m;
  p->col = (int64_t)(inside / high) * size_n;
}

inline place place_of(const gemm_args &a, uint32_t item, int size_m,
                      int size_n) {
  place p;
  uint32_t down = (uint32_t)a.tiles_m, tiles = down * (uint32_t)a.tiles_n;
  uint32_t z = item / tiles;
  tile_at(item - z * tiles, down, (uint32_t)a.tiles_n, size_m, size_n, &p);
  p.split = (int)(z % a.splits);
  p.matrix = z / a.splits;
  matrices_of(a, z / a.splits, &p.a, &p.b);
  return p;
}

/* The tile at p, in shared memory, in rows of Tile::LINE. */
template <int AK, int BK, class Tile>
void simt_tile_at(const gemm_args &a, const place &p, Tile &tile,
                  unsigned char *shared) {
  typedef typename Tile::S S;
  fl_simt_matrix<Tile, AK> am((const S *)a.a + p.a, p.row, a.am, a.ak,
                              a.m - p.row, a.k);
  fl_simt_matrix<Tile, BK> bm((const S *)a.b + p.b, p.col, a.bn, a.bk,
                              a.n - p.col, a.k);
  int64_t steps = (a.k + FL_SIMT_STEP - 1) / FL_SIMT_STEP;
  int64_t begin = (int64_t)p.split * a.steps, end = begin + a.steps;
  fl_simt_multiply(tile, am, bm, begin, end < steps ? end : steps, (S *)shared);
  __syncthreads();
  tile.put((typename Tile::W *)shared);
}

template <int AK, int BK, class Tile>
place simt_tile(const gemm_args &a, Tile &tile, unsigned char *shared) {
  place p = place_of(a, blockIdx.x, Tile::SIZE, Tile::SIZE);
  simt_tile_at<AK, BK>(a, p, tile, shared);
  return p;
}

/* --- the store --- */

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
