/* What kernels share that read B once, for a few rows of A: asking for B ahead,
 * copies of its lines, and sums of warps as elements of C, with bias, activation
 * and an expression of the result (expr.c). */
#pragma once

#undef FL_MATH
#include "gemm.cuh"

#include "../device/early.cuh"
#include "../expr.cuh"
#include "skinny.h"

/* While the kernel before this one ends: asks for columns of B, `apart` bytes from
 * each other, from `first` on. If B lasts (skinny_args), a block then copies the
 * first `copied` bytes of its columns before skinny_await; otherwise it waits
 * here. SOON: the next kernel may begin before that, else when this one goes on,
 * since what it copies would take this one's share of memory. */
template <int COLS, bool SOON>
void skinny_begin(const skinny_args &a, const void *b, int64_t first,
                  int64_t apart, int64_t bytes, int64_t copied) {
  const int64_t col = first + threadIdx.x;
  if (SOON || !a.lasting)
    fl_let_next();
  if (!a.lasting)
    copied = 0;
  if (bytes > SKINNY_AHEAD)
    bytes = SKINNY_AHEAD;
  if (threadIdx.x < COLS && col < a.g.n && copied < bytes)
    fl_prefetch((const char *)b + col * apart + copied, bytes - copied);
  if (!a.lasting)
    fl_await();
}
template <bool SOON> void skinny_await(const skinny_args &a) {
  if (!a.lasting)
    return;
  fl_await();
  if (!SOON)
    fl_let_next();
}

/* --- finished elements --- */

/* The expression of element `at` of C, v before it is rounded. RESULT: which
 * input it is. */
template <int RESULT, class V> void skinny_express(const expr_args &a, V v, int64_t i) {
#ifdef EXPR_BODY
  enum {
#define ONE(k, D, value, W) +1
    OPERANDS = 0 EXPR_INPUTS(ONE) EXPR_RESULTS(ONE)
  };
  int64_t at[OPERANDS] = {0};
  walk<0>(a, a.axis, a.n_keep, i, at);
#define TAKE(k, D, value, W)                                                   \
  W v##value;                                                                  \
  if constexpr (k == RESULT)                                                   \
    v##value = (W)v;                                                           \
  else                                                                         \
    v##value = fl_get<W>(                                                      \
        ((const FL_S(D) *)(a.data[k] ? a.data[k] : &a.number[k]))[at[k]]);
  EXPR_INPUTS(TAKE)
  EXPR_BODY
#define KEEP(k, D, value, W)                                                   \
  ((FL_S(D) *)a.data[k])[at[k]] = stored<FL_S(D)>(v##value);
  EXPR_RESULTS(KEEP)
#endif
}

/* The bias of the first element that this thread finishes: it is read before the
 * sums are there, since it lies in no cache. */
template <int D, int COLS, class W>
W skinny_bias(const gemm_args &g, int64_t first) {
  const int row = threadIdx.x / COLS;
  const int64_t col = first + threadIdx.x % COLS;
  W v[1] = {0};
  if (g.bias && row < g.m && col < g.n)
    add_bias<D>(g, v, row, col);
  return v[0];
}

/* Sums of `parts` warps, (parts, rows, COLS) in shared memory, as elements of C
 * from column `first` of matrix `matrix` on. */
template <int D, int COLS, int RESULT, class W>
void skinny_finish(const skinny_args &a, const W *sums, int rows, int64_t matrix,
                   int64_t first, W bias) {
  const gemm_args &g = a.g;
  int parts = blockDim.x / 32;
  for (int i = threadIdx.x; i < (int)g.m * COLS; i += blockDim.x) {
    int row = i / COLS;
    int64_t col = first + i % COLS, at = (matrix * g.m + row) * g.n + col;
    if (col >= g.n)
      continue;
    W v[1] = {0};
    for (int part = 0; part < parts; part++)
      v[0] += sums[part * rows * COLS + i];
    if (i == threadIdx.x)
      v[0] += bias;
    else if (g.bias)
      add_bias<D>(g, v, row, col);
    if constexpr (RESULT < 0)
      finish<D, 1>(g, v, at);
    else {
      if (g.pre)
        ((FL_S(D) *)g.pre)[at] = fl_put<FL_S(D)>(v[0]);
      if (g.act)
        activate<sizeof(FL_S(D)) == 2>(v, g.act);
      if (g.c)
        ((FL_S(D) *)g.c)[at] = fl_put<FL_S(D)>(v[0]);
      skinny_express<RESULT>(a.e, v[0], at);
    }
  }
}

/* Fragments of C, R of 8 columns for each warp, as elements of C. `shared` has
 * been used for copies. */
template <int D, int HALVES, int R, int RESULT>
void skinny_join(const skinny_args &a, const float (&c)[R][4], void *shared,
                 int64_t first, float bias) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float *sums = (float *)shared, *mine =
      sums + (warp * HALVES * 8 + lane / 4) * (R * 8) + lane % 4 * 2;
  fl_copy_wait<0>();
  __syncthreads();
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int h = 0; h < HALVES; h++)
      fl_write(mine + h * 8 * (R * 8) + r * 8,
               fl_vec<float, 2>{c[r][2 * h], c[r][2 * h + 1]});
  __syncthreads();
  skinny_finish<D, R * 8, RESULT>(a, sums, HALVES * 8, blockIdx.y, first, bias);
}

/* --- copies --- */

/* 128 bytes, from element k on, of up to ROWS lines of 16-bit elements into
 * shared memory: zeros behind element `end`, and behind the last line. */
template <int ROWS>
void skinny_copy(uint32_t to, const uint16_t *from, int64_t apart,
                 int64_t rows, int64_t k, int64_t end) {
  const int lane = threadIdx.x & 31, chunk = lane & 7;
  const bool in = k + chunk * 8 < end;
#pragma unroll
  for (int i = 0; i < ROWS; i += 4) {
    const int row = i + lane / 8;
    const bool there = in && row < rows;
    fl_copy16(to + fl_swizzle<128>(row, chunk),
              from + (there ? row * apart + k + chunk * 8 : 0), there);
  }
}
