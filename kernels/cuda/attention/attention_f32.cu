/* Attention forward for f32 of up to 128 columns on tensor cores: as for 16-bit
 * floats, with numbers of two parts each. */
#include "attention_f32.cuh"

/* A block has 64 queries. W: columns, padded; N: keys of a tile; BLOCKS share a
 * processor; MORE: there may be a mask, dropout or a scale that is not
 * positive. Keys come while values are multiplied, and the other way round. */
template <int W, int N, int BLOCKS, int MORE>
__global__ void __launch_bounds__(ATT_THREADS, BLOCKS)
    forward(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pitch = att_pitch<W>::BYTES;
  uint32_t q = fl_shared(room), k = q + ATT_ROWS * pitch, v = k + N * pitch;
  const float *values = (const float *)((char *)room + (ATT_ROWS + N) * pitch);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  att_place p = att_here(a, blockIdx.x, a.heads, ATT_ROWS, a.causal);
  int64_t end = att_keys(a, p.first, ATT_ROWS), query = p.first + 16 * warp;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  const float *ks = att_rows<float>(a.k, p.b, p.h / a.group),
              *vs = att_rows<float>(a.v, p.b, p.h / a.group);
  float unit = (float)(MORE ? FL_LOG2E : a.scale * FL_LOG2E), o[W / 8][4] = {};
  att_state state = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
  att_fetch32<ATT_ROWS, W>(q, att_rows<float>(a.q, p.b, p.h), a.q.row, p.first,
                           a.nq, a.d);
  att_fetch32<N, W>(k, ks, a.k.row, 0, a.nk, a.d);
  fl_copy_commit();
  for (int64_t key = 0; key < end; key += N) {
    float s[N / 8][4];
    fl_copy_wait<0>();
    __syncthreads(); /* keys are there, values are done with */
    att_fetch32<N, W>(v, vs, a.v.row, key, a.nk, a.dv_cols);
    fl_copy_commit();
    att_scores32<W, N>(s, q + 16 * warp * pitch, k);
    if (MORE)
      att_add_mask<FL_F32, N>(a, s, p, query, key);
    if (key + N > end || (a.causal && key + N > query + a.ahead + 1))
      att_cut<N>(s, a.nk - key, a.causal ? query + a.ahead - key : N);
    att_soften<N, 1>(state, s, unit);
    if (MORE && a.drop.limit)
      att_drop<N, 1>(a, r, s, p, query, key);
    fl_copy_wait<0>();
    __syncthreads(); /* values are there, keys are done with */
    if (key + N < end)
      att_fetch32<N, W>(k, ks, a.k.row, key + N, a.nk, a.d);
    fl_copy_commit();
    att_update32<W, N>(o, state.ratio, s, values);
  }
  fl_copy_wait<0>();
  float factor[2];
  for (int half = 0; half < 2; half++) {
    float sum = fl_warp_reduce<4>(state.sum[half], fl_sum_of());
    int64_t row = query + lane / 4 + 8 * half;
    factor[half] = sum == 0 ? 0 : (MORE ? att_grown(a) : 1) / sum;
    if (lane % 4 == 0 && row < a.nq)
      ((float *)a.lse)[(p.b * a.heads + p.h) * a.nq + row] =
          state.top[half] * (MORE ? 1 : (float)a.scale) + fl_log(sum);
  }
  att_save32<W>(o, factor, att_rows<float>(a.y, p.b, p.h), a.y.row, query, a.nq,
                a.dv_cols);
}
