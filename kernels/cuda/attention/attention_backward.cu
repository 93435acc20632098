/* Attention backward for 16-bit floats on tensor cores. Weights are computed
 * again from lse, twice: a block of `keys` owns 64 keys and sums dk and dv over
 * the queries, a block of `queries` owns 64 queries and sums dq over the keys.
 * So there are no atomics, and results do not depend on the order of blocks. */
#include "attention.cuh"

/* delta = sum of dy * y over columns; 8 lanes to a row. */
template <int D>
__global__ void delta(const __grid_constant__ attention_args a) {
  typedef FL_W(D) W;
  int64_t row = fl_thread() / 8, bh = row / a.nq;
  int lane = threadIdx.x % 8;
  W sum = 0;
  if (bh < a.tiles) /* here: batch * heads */
    sum = att_dot<D>(a, bh / a.heads, bh % a.heads, row % a.nq, lane);
  sum = fl_warp_reduce<8>(sum, fl_sum_of());
  if (bh < a.tiles && lane == 0)
    ((W *)a.delta)[row] = sum;
}

/* --- dk and dv --- */

template <int W, int N>
void att_fetch_queries(uint32_t to, float *lse, const attention_args &a,
                       int64_t b, int64_t h, int64_t query) {
  att_fetch<N, W>(to, att_rows<uint16_t>(a.q, b, h), a.q.row, query, a.nq, a.d);
  att_fetch<N, W>(to + N * W * 2, att_rows<uint16_t>(a.dy, b, h), a.dy.row,
                  query, a.nq, a.dv_cols);
  fl_copy_commit();
  att_fetch_rows<N>(lse, a, b, h, query);
}

/* A block has 64 keys and COLS columns of dk and dv. N: queries of a tile. */
template <int D, int W, int COLS, int N, int MORE>
__global__ void __launch_bounds__(ATT_THREADS)
    keys(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pair = 2 * N * W * 2;
  uint32_t k = fl_shared(room), v = k + ATT_ROWS * W * 2,
           qs = v + ATT_ROWS * W * 2;
  float(*rows)[2 * N] =
      (float(*)[2 * N])((char *)room + 2 * ATT_ROWS * W * 2 + 2 * pair);
  int warp = threadIdx.x >> 5, part = blockIdx.x % (W / COLS);
  att_place p =
      att_here(a, blockIdx.x / (W / COLS), a.heads / a.group, ATT_ROWS, false);
  int64_t key = p.first + 16 * warp, from = att_queries(a, p.first, N),
          tiles = from < a.nq ? (a.nq - from + N - 1) / N : 0;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  float unit = (float)(a.scale * FL_LOG2E), dk[COLS / 8][4] = {},
        dv[COLS / 8][4] = {};
  att_fetch<ATT_ROWS, W>(k, att_rows<uint16_t>(a.k, p.b, p.h), a.k.row, p.first,
                         a.nk, a.d);
  att_fetch<ATT_ROWS, W>(v, att_rows<uint16_t>(a.v, p.b, p.h), a.v.row, p.first,
                         a.nk, a.dv_cols);
  fl_copy_commit();
  for (int g = 0; g < a.group; g++) {
    int64_t h = p.h * a.group + g;
    if (tiles)
      att_fetch_queries<W, N>(qs, rows[0], a, p.b, h, from);
    for (int64_t t = 0; t < tiles; t++) {
      int turn = t & 1;
      int64_t query = from + t * N;
      uint32_t q = qs + turn * pair, dy = q + N * W * 2;
      if (t + 1 < tiles)
        att_fetch_queries<W, N>(qs + (turn ^ 1) * pair, rows[turn ^ 1], a, p.b,
                                h, query + N);
      else
        fl_copy_commit();
      fl_copy_wait<1>();
      __syncthreads();
      float s[N / 8][4], dp[N / 8][4];
      att_scores<D, N, W>(s, k, 16 * warp, q);
      att_scores<D, N, W>(dp, v, 16 * warp, dy);
      att_grade<N, MORE, 1, 0>(a, r, p.b, h, query, key,
                               a.causal && key + 16 > query + a.ahead, unit,
                               rows[turn], rows[turn] + N, s, dp);
      att_update<D, N, W, COLS>(dv, s, dy, part * COLS);
      att_update<D, N, W, COLS>(dk, dp, q, part * COLS);
      __syncthreads();
    }
  }
  fl_copy_wait<0>();
  __syncthreads();
  float one[2] = {1, 1}, scale[2] = {(float)a.scale, (float)a.scale};
  uint16_t *mine = (uint16_t *)room + 16 * warp * COLS;
  att_save<D, COLS>(dv, one, mine,
                    att_rows<uint16_t>(a.dv, p.b, p.h) + part * COLS, a.dv.row,
                    key, a.nk, a.dv_cols - part * COLS);
  att_save<D, COLS>(dk, scale, mine,
                    att_rows<uint16_t>(a.dk, p.b, p.h) + part * COLS, a.dk.row,
                    key, a.nk, a.d - part * COLS);
}

/* --- dq --- */

template <int D, int W, int N, int MORE>
__global__ void __launch_bounds__(ATT_THREADS)
    queries(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pair = 2 * N * W * 2;
  uint32_t q = fl_shared(room), dy = q + ATT_ROWS * W * 2,
           kv = dy + ATT_ROWS * W * 2;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  att_place p = att_here(a, blockIdx.x, a.heads, ATT_ROWS, a.causal);
  int64_t end = att_keys(a, p.first, ATT_ROWS), query = p.first + 16 * warp,
          bh = p.b * a.heads + p.h;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  float unit = (float)(a.scale * FL_LOG2E), dq[W / 8][4] = {}, lse[2], delta[2];
  for (int half = 0; half < 2; half++) {
    int64_t i = query + lane / 4 + 8 * half;
    lse[half] = att_lse(a, bh, i);
    delta[half] = i < a.nq ? ((const float *)a.delta)[bh * a.nq + i] : 0;
  }
  att_fetch<ATT_ROWS, W>(q, att_rows<uint16_t>(a.q, p.b, p.h), a.q.row, p.first,
                         a.nq, a.d);
  att_fetch<ATT_ROWS, W>(dy, att_rows<uint16_t>(a.dy, p.b, p.h), a.dy.row,
                         p.first, a.nq, a.dv_cols);
  att_fetch_keys<W, N>(kv, a, p, 0);
  for (int64_t key = 0, turn = 0; key < end; key += N, turn ^= 1) {
    uint32_t k = kv + turn * pair, v = k + N * W * 2;
    if (key + N < end)
      att_fetch_keys<W, N>(kv + (turn ^ 1) * pair, a, p, key + N);
    else
      fl_copy_commit();
    fl_copy_wait<1>();
    __syncthreads();
    float s[N / 8][4], dp[N / 8][4];
    att_scores<D, N, W>(s, q, 16 * warp, k);
    att_scores<D, N, W>(dp, dy, 16 * warp, v);
    att_grade<N, MORE, 0, 0>(a, r, p.b, p.h, query, key,
                             key + N > a.nk ||
                                 (a.causal && key + N > query + a.ahead + 1),
                             unit, lse, delta, s, dp);
    att_update<D, N, W, W>(dq, dp, k, 0);
    __syncthreads();
  }
  fl_copy_wait<0>();
  __syncthreads();
  float scale[2] = {(float)a.scale, (float)a.scale};
  att_save<D, W>(dq, scale, (uint16_t *)room + 16 * warp * W,
                 att_rows<uint16_t>(a.dq, p.b, p.h), a.dq.row, query, a.nq,
                 a.d);
}
