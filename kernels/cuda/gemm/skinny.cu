/* Products whose A has few rows, as when text is generated: what takes time is
 * to read B. Columns of B lie along k; a block has some of them, and its warps
 * share k. */
#include "skinny.cuh"

/* --- 16-bit floats --- */

/* A block has R times 8 columns, a warp 64 elements of k at a time, of which
 * STAGES are on their way. HALVES: of 8 rows of A. */
template <int D, int HALVES, int R, int STAGES, int RESULT>
__global__ void __launch_bounds__(SKINNY_WARPS * 32)
    tensor(const __grid_constant__ skinny_args a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int STEP = 64, LINES = (R + HALVES) * 8;
  const gemm_args &g = a.g;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int step = blockDim.x / 32 * STEP;
  const int64_t first = (int64_t)blockIdx.x * (R * 8);
  int64_t am, bm;
  matrices_of(g, blockIdx.y, &am, &bm);
  const uint16_t *x = (const uint16_t *)g.a + am,
                 *w = (const uint16_t *)g.b + bm + first * g.bn;
  const uint32_t ring = fl_shared(shared) + warp * (STAGES * LINES * 128);
  skinny_begin<R * 8, false>(a, (const uint16_t *)g.b + bm, first, g.bn * 2,
                             g.k * 2, step * ((STAGES - 1) * 2));
  const float bias = skinny_bias<D, R * 8, float>(g, first);
  float c[R][4] = {};
  int64_t ahead = warp * STEP;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++)
    skinny_copy<R * 8>(ring + s * (LINES * 128), w, g.bn, g.n - first,
                       ahead + s * step, g.k);
  skinny_await<false>(a);
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++, ahead += step) {
    skinny_copy<HALVES * 8>(ring + (s * LINES + R * 8) * 128, x, g.am, g.m,
                            ahead, g.k);
    fl_copy_commit();
  }
  int stage = 0, next = STAGES - 1;
  for (int64_t k = warp * STEP; k < g.k; k += step, ahead += step) {
    __syncwarp(); /* all have read what is written over */
    const uint32_t to = ring + next * (LINES * 128);
    skinny_copy<R * 8>(to, w, g.bn, g.n - first, ahead, g.k);
    skinny_copy<HALVES * 8>(to + R * 8 * 128, x, g.am, g.m, ahead, g.k);
    fl_copy_commit();
    fl_copy_wait<STAGES - 1>();
    __syncwarp();
    const uint32_t from = ring + stage * (LINES * 128);
#pragma unroll
    for (int half = 0; half < 2; half++) { /* 32 of k: 4 chunks */
      uint32_t f[HALVES][4], b[R][4];
      const int row = lane & 7, chunk = half * 4 + lane / 8;
#pragma unroll
      for (int h = 0; h < HALVES; h++)
        fl_ldmatrix(f[h], from + fl_swizzle<128>((R + h) * 8 + row, chunk));
#pragma unroll
      for (int r = 0; r < R; r++)
        fl_ldmatrix(b[r], from + fl_swizzle<128>(r * 8 + row, chunk));
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        uint32_t rows[4] = {f[0][i], HALVES > 1 ? f[HALVES - 1][i] : 0,
                            f[0][i + 1], HALVES > 1 ? f[HALVES - 1][i + 1] : 0};
#pragma unroll
        for (int r = 0; r < R; r++)
          fl_mma<D>(c[r], rows, b[r][i], b[r][i + 1]);
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  skinny_join<D, HALVES, R, RESULT>(a, c, shared, first, bias);
}

/* --- f32 and f64 --- */

/* A block has R columns; M: rows of A, or more. Threads copy what they read
 * themselves, 16 bytes of each column at a time. */
template <int D, int M, int R, int RESULT>
__global__ void __launch_bounds__(SKINNY_WARPS * 32)
    plain(const __grid_constant__ skinny_args a) {
  typedef FL_S(D) S;
  typedef fl_vec<S, 16 / sizeof(S)> vec;
  enum { V = 16 / sizeof(S), STAGES = 4 };
  extern __shared__ __align__(1024) unsigned char shared[];
  const gemm_args &g = a.g;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t first = (int64_t)blockIdx.x * R, step = blockDim.x * V;
  int64_t am, bm;
  matrices_of(g, blockIdx.y, &am, &bm);
  const S *x = (const S *)g.a + am, *w = (const S *)g.b + bm;
  vec *ring = (vec *)shared + threadIdx.x;
  skinny_begin<R, true>(a, w, first, g.bn * sizeof(S), g.k * sizeof(S),
                        step * ((STAGES - 1) * sizeof(S)));
  const S bias = skinny_bias<D, R, S>(g, first);
  int64_t col[R];
#pragma unroll
  for (int r = 0; r < R; r++)
    col[r] = (first + r < g.n ? first + r : g.n - 1) * g.bn;
  S c[M][R] = {};
  int64_t ahead = threadIdx.x * V;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++, ahead += step) {
#pragma unroll
    for (int r = 0; r < R; r++)
      if (ahead < g.k)
        fl_copy16(fl_shared(ring + (s * R + r) * blockDim.x),
                  w + col[r] + ahead, true);
    fl_copy_commit();
  }
  skinny_await<true>(a);
  int stage = 0;
  for (int64_t k = threadIdx.x * V; k < g.k; k += step, ahead += step) {
    const int next = (stage + STAGES - 1) % STAGES;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (ahead < g.k)
        fl_copy16(fl_shared(ring + (next * R + r) * blockDim.x),
                  w + col[r] + ahead, true);
    fl_copy_commit();
    vec y[R], z[M];
#pragma unroll
    for (int m = 0; m < M; m++)
      z[m] = m < g.m ? fl_read<S, V>(x + m * g.am + k) : vec{};
    fl_copy_wait<STAGES - 1>();
#pragma unroll
    for (int r = 0; r < R; r++)
      y[r] = ring[(stage * R + r) * blockDim.x];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int v = 0; v < V; v++)
          c[m][r] += z[m].at[v] * y[r].at[v];
    stage = (stage + 1) % STAGES;
  }
  fl_copy_wait<0>();
  __syncthreads();
  S *sums = (S *)shared;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < R; r++) {
      S s = fl_warp_reduce(c[m][r], fl_sum_of());
      if (lane == 0)
        sums[(warp * M + m) * R + r] = s;
    }
  __syncthreads();
  skinny_finish<D, R, RESULT>(a, sums, M, blockIdx.y, first, bias);
}
