/* Attention backward for f32 of up to 128 columns on tensor cores: as for
 * 16-bit floats, with numbers of two parts each. */
#include "attention_f32.cuh"

/* --- dk and dv --- */

template <int W, int N>
void att_fetch_queries32(uint32_t to, float *lse, const attention_args &a,
                         int64_t b, int64_t h, int64_t query) {
  att_fetch32<N, W>(to, att_rows<float>(a.q, b, h), a.q.row, query, a.nq, a.d);
  att_fetch32<N, W>(to + N * att_pitch<W>::BYTES, att_rows<float>(a.dy, b, h),
                    a.dy.row, query, a.nq, a.dv_cols);
  fl_copy_commit();
  att_fetch_rows<N>(lse, a, b, h, query);
}

/* A block has 64 keys. N: queries of a tile; the next one comes meanwhile. */
template <int W, int N, int BLOCKS, int MORE>
__global__ void __launch_bounds__(ATT_THREADS, BLOCKS)
    keys(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pitch = att_pitch<W>::BYTES, pair = 2 * N * pitch;
  uint32_t k = fl_shared(room), v = k + ATT_ROWS * pitch,
           qs = v + ATT_ROWS * pitch;
  const char *pairs = (char *)room + 2 * ATT_ROWS * pitch;
  float(*rows)[2 * N] = (float(*)[2 * N])(pairs + 2 * pair);
  int warp = threadIdx.x >> 5;
  att_place p = att_here(a, blockIdx.x, a.heads / a.group, ATT_ROWS, false);
  int64_t key = p.first + 16 * warp, from = att_queries(a, p.first, N),
          tiles = from < a.nq ? (a.nq - from + N - 1) / N : 0;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  float dk[W / 8][4] = {}, dv[W / 8][4] = {}, one[2] = {1, 1},
               scale[2] = {(float)a.scale, (float)a.scale};
  att_fetch32<ATT_ROWS, W>(k, att_rows<float>(a.k, p.b, p.h), a.k.row, p.first,
                           a.nk, a.d);
  att_fetch32<ATT_ROWS, W>(v, att_rows<float>(a.v, p.b, p.h), a.v.row, p.first,
                           a.nk, a.dv_cols);
  fl_copy_commit();
  for (int g = 0; g < a.group; g++) {
    int64_t h = p.h * a.group + g;
    if (tiles)
      att_fetch_queries32<W, N>(qs, rows[0], a, p.b, h, from);
    for (int64_t t = 0; t < tiles; t++) {
      int turn = t & 1;
      int64_t query = from + t * N;
      uint32_t q = qs + turn * pair;
      if (t + 1 < tiles)
        att_fetch_queries32<W, N>(qs + (turn ^ 1) * pair, rows[turn ^ 1], a,
                                  p.b, h, query + N);
      else
        fl_copy_commit();
      fl_copy_wait<1>();
      __syncthreads();
      float s[N / 8][4], dp[N / 8][4];
      att_scores32<W, N>(s, k + 16 * warp * pitch, q);
      att_scores32<W, N>(dp, v + 16 * warp * pitch, q + N * pitch);
      att_grade<N, MORE, 1, 1>(a, r, p.b, h, query, key,
                               a.causal && key + 16 > query + a.ahead, scale[0],
                               rows[turn], rows[turn] + N, s, dp);
      const float *numbers = (const float *)(pairs + turn * pair);
      att_update32<W, N>(dv, one, s, numbers + N * pitch / 4);
      att_update32<W, N>(dk, one, dp, numbers);
      __syncthreads();
    }
  }
  fl_copy_wait<0>();
  att_save32<W>(dv, one, att_rows<float>(a.dv, p.b, p.h), a.dv.row, key, a.nk,
                a.dv_cols);
  att_save32<W>(dk, scale, att_rows<float>(a.dk, p.b, p.h), a.dk.row, key, a.nk,
                a.d);
}

/* --- dq --- */

/* A block has 64 queries. N: keys of a tile. While one waits for its tile,
 * others on the same processor compute. */
template <int W, int N, int BLOCKS, int MORE>
__global__ void __launch_bounds__(ATT_THREADS, BLOCKS)
    queries(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pitch = att_pitch<W>::BYTES;
  uint32_t q = fl_shared(room), dy = q + ATT_ROWS * pitch,
           k = dy + ATT_ROWS * pitch, v = k + N * pitch;
  const float *numbers = (const float *)((char *)room + 2 * ATT_ROWS * pitch);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  att_place p = att_here(a, blockIdx.x, a.heads, ATT_ROWS, a.causal);
  int64_t end = att_keys(a, p.first, ATT_ROWS), query = p.first + 16 * warp,
          bh = p.b * a.heads + p.h;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  const float *ks = att_rows<float>(a.k, p.b, p.h / a.group),
              *vs = att_rows<float>(a.v, p.b, p.h / a.group);
  float dq[W / 8][4] = {}, one[2] = {1, 1}, lse[2], delta[2],
               scale[2] = {(float)a.scale, (float)a.scale};
  for (int half = 0; half < 2; half++) {
    int64_t i = query + lane / 4 + 8 * half;
    lse[half] = att_lse(a, bh, i);
    delta[half] = i < a.nq ? ((const float *)a.delta)[bh * a.nq + i] : 0;
  }
  att_fetch32<ATT_ROWS, W>(q, att_rows<float>(a.q, p.b, p.h), a.q.row, p.first,
                           a.nq, a.d);
  att_fetch32<ATT_ROWS, W>(dy, att_rows<float>(a.dy, p.b, p.h), a.dy.row,
                           p.first, a.nq, a.dv_cols);
  for (int64_t key = 0; key < end; key += N) {
    float s[N / 8][4], dp[N / 8][4];
    att_fetch32<N, W>(k, ks, a.k.row, key, a.nk, a.d);
    att_fetch32<N, W>(v, vs, a.v.row, key, a.nk, a.dv_cols);
    fl_copy_commit();
    fl_copy_wait<0>();
    __syncthreads();
    att_scores32<W, N>(s, q + 16 * warp * pitch, k);
    att_scores32<W, N>(dp, dy + 16 * warp * pitch, v);
    att_grade<N, MORE, 0, 1>(a, r, p.b, p.h, query, key,
                             key + N > a.nk ||
                                 (a.causal && key + N > query + a.ahead + 1),
                             scale[0], lse, delta, s, dp);
    att_update32<W, N>(dq, one, dp, numbers);
    __syncthreads();
  }
  fl_copy_wait<0>();
  att_save32<W>(dq, scale, att_rows<float>(a.dq, p.b, p.h), a.dq.row, query,
                a.nq, a.d);
}
