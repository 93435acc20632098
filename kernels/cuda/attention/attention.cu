/* Attention forward for 16-bit floats on tensor cores: a block has 64 queries
 * of one head and goes over tiles of keys with a running softmax; scores and
 * weights stay in registers (Dao, arXiv:2307.08691). Nothing of size queries x
 * keys exists. */
#include "attention.cuh"
#include "../device/cluster.cuh"
#include "../device/early.cuh"

/* The warp's rows, of part of the keys. */
template <int W>
void att_save_part(const attention_args &a, const att_place &p,
                   const float (&o)[W / 8][4], const float (&factor)[2],
                   int64_t query, int part) {
  int lane = threadIdx.x & 31;
  int64_t heads = gridDim.x / a.parts / a.tiles,
          head = part * heads + p.b * a.heads + p.h;
#pragma unroll
  for (int j = 0; j < W / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int64_t row = query + lane / 4 + 8 * (e >> 1);
      int col = 8 * j + 2 * (lane % 4) + (e & 1);
      if (row < a.nq && col < a.dv_cols)
        a.part_y[(head * a.nq + row) * a.dv_cols + col] =
            o[j][e] * factor[e >> 1];
    }
}

/* W: columns, padded; N: keys of a tile; MORE: there may be a mask, dropout or
 * a scale that is not positive. */
template <int D, int W, int N, int MORE>
__global__ void __launch_bounds__(ATT_THREADS)
    forward(const __grid_constant__ attention_args a) {
  extern __shared__ uint4 room[];
  const int pair = 2 * N * W * 2; /* bytes */
  uint32_t q = fl_shared(room), kv = q + ATT_ROWS * W * 2;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int part = blockIdx.x % a.parts;
  att_place p = att_here(a, blockIdx.x / a.parts, a.heads, ATT_ROWS, a.causal);
  int64_t end = att_keys(a, p.first, ATT_ROWS), query = p.first + 16 * warp,
          share = (end + N * a.parts - 1) / (N * a.parts) * N,
          start = share * part;
  end = start + share < end ? start + share : end;
  att_random r = MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  float unit = (float)(MORE ? FL_LOG2E : a.scale * FL_LOG2E);
  float o[W / 8][4] = {};
  att_state state = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
  att_fetch<ATT_ROWS, W>(q, att_rows<uint16_t>(a.q, p.b, p.h), a.q.row, p.first,
                         a.nq, a.d);
  att_fetch_keys<W, N>(kv, a, p, start);
  for (int64_t key = start, turn = 0; key < end; key += N, turn ^= 1) {
    uint32_t k = kv + turn * pair, v = k + N * W * 2;
    if (key + N < end)
      att_fetch_keys<W, N>(kv + (turn ^ 1) * pair, a, p, key + N);
    else
      fl_copy_commit(); /* an empty group: one wait fits both cases */
    fl_copy_wait<1>();
    __syncthreads();
    float s[N / 8][4];
    att_scores<D, N, W>(s, q, 16 * warp, k);
    if (MORE)
      att_add_mask<D, N>(a, s, p, query, key);
    if (key + N > end || (a.causal && key + N > query + a.ahead + 1))
      att_cut<N>(s, a.nk - key, a.causal ? query + a.ahead - key : N);
    att_soften<N, MORE>(state, s, unit);
    att_shrink<W>(o, state);
    if (MORE && a.drop.limit)
      att_drop<N, 1>(a, r, s, p, query, key);
    att_update<D, N, W, W>(o, s, v, 0);
    __syncthreads();
  }
  fl_copy_wait<0>();
  __syncthreads();
  float factor[2], *lse = (float *)a.lse;
  if (a.parts > 1)
    lse = a.part_lse + part * (gridDim.x / a.parts / a.tiles) * a.nq;
  for (int half = 0; half < 2; half++) {
    float sum = fl_warp_reduce<4>(state.sum[half], fl_sum_of());
    int64_t row = query + lane / 4 + 8 * half;
    factor[half] = sum == 0 ? 0 : (MORE ? att_grown(a) : 1) / sum;
    if (lane % 4 == 0 && row < a.nq)
      lse[(p.b * a.heads + p.h) * a.nq + row] =
          state.top[half] * (MORE ? 1 : (float)a.scale) + fl_log(sum);
  }
  if (a.parts > 1)
    att_save_part<W>(a, p, o, factor, query, part);
  else
    att_save<D, W>(o, factor, (uint16_t *)room + 16 * warp * W,
                   att_rows<uint16_t>(a.y, p.b, p.h), a.y.row, query, a.nq,
                   a.dv_cols);
}

/* --- a few queries, as when text is generated --- */

#define FEW_KEYS  4 /* of a group of lanes at a time */
#define FEW_AHEAD 256 /* of a block, that are asked for early */
#define ATT_PARTS 8 /* of a cluster, at most */

/* A running softmax of one query; o: this lane's columns. */
struct few_state {
  float top, sum, o[8];
  inline void start() {
    top = -INFINITY;
    sum = 0;
#pragma unroll
    for (int e = 0; e < 8; e++)
      o[e] = 0;
  }
  /* Brings what there is to the scale of a new largest score, which it gives;
   * 0 while there is none. */
  inline float rescale(float next) {
    float base = next == -INFINITY ? 0 : next,
          ratio = fl_exp2_fast((top - base) * (float)FL_LOG2E);
    top = next;
    sum *= ratio;
#pragma unroll
    for (int e = 0; e < 8; e++)
      o[e] *= ratio;
    return base;
  }
  /* Scores to weights, on the scale of the largest of all. */
  inline void soften(float (&s)[FEW_KEYS]) {
    float next = top;
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++)
      next = fmaxf(next, s[u]);
    float base = rescale(next);
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++) {
      s[u] = fl_exp2_fast((s[u] - base) * (float)FL_LOG2E);
      sum += s[u];
    }
  }
  inline void save(float &to_top, float &to_sum, float *to) const {
    to_top = top; /* all lanes' are the same */
    to_sum = sum;
#pragma unroll
    for (int e = 0; e < 8; e++)
      to[e] = o[e];
  }
  /* With what the lane `away` has, for the same columns. */
  inline void join(int away) {
    float top2 = __shfl_xor_sync(0xffffffff, top, away);
    rescale(fmaxf(top, top2)); /* now both are of one scale */
    sum += __shfl_xor_sync(0xffffffff, sum, away);
#pragma unroll
    for (int e = 0; e < 8; e++)
      o[e] += __shfl_xor_sync(0xffffffff, o[e], away);
  }
};

inline uint4 few_read(const uint16_t *at, bool there) {
  uint4 v = {0, 0, 0, 0};
  if (there)
    v = *(const uint4 *)at;
  return v;
}
/* Asks for a row of keys or values. */
inline void few_prefetch(const uint16_t *row, int64_t cols) {
#pragma unroll 1
  for (int64_t i = 0; i < cols; i += 64)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(
        __cvta_generic_to_global(row + i)));
}
/* For the keys of a block, since those of earlier steps lie in no cache. */
inline void few_ahead(const attention_args &a, const uint16_t *k,
                      const uint16_t *v, int64_t start, int64_t end) {
  if (end - start <= FEW_AHEAD)
    for (int64_t key = start + threadIdx.x; key < end; key += ATT_THREADS) {
      few_prefetch(k + key * a.k.row, a.d);
      few_prefetch(v + key * a.v.row, a.dv_cols);
    }
}
template <int D> void few_unpack(float (&to)[8], const uint4 &from) {
  typedef FL_S(D) S;
#pragma unroll
  for (int i = 0; i < 8; i++)
    to[i] = fl_get<float>(((const S *)&from)[i]);
}

/* Elements of the mask, all on their way before `take` gets the first. */
template <class T, int Q, class F>
void few_values(const attention_mask &m, const int64_t (&at)[Q][FEW_KEYS],
                F take) {
  T v[Q][FEW_KEYS];
#pragma unroll
  for (int i = 0; i < Q; i++)
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++)
      v[i][u] = ((const T *)m.data)[at[i][u]];
#pragma unroll
  for (int i = 0; i < Q; i++)
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++)
      take(i, u, v[i][u]);
}
/* What the mask adds to the scores of FEW_KEYS keys, `step` apart, with each
 * query; -inf: not seen. It is loaded at once, along with the keys. */
template <int Q>
void few_mask(const attention_args &a, float (&more)[Q][FEW_KEYS],
              int64_t first, int step, int64_t end, int64_t b, int64_t h) {
  const attention_mask &m = a.mask;
  int64_t at[Q][FEW_KEYS], line = b * m.stride[0] + h * m.stride[1];
#pragma unroll
  for (int i = 0; i < Q; i++)
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++) {
      int64_t key = first + u * step, row = i < a.nq ? i : 0;
      bool seen = key < end && i < a.nq && !(a.causal && key > i + a.ahead);
      more[i][u] = seen ? 0 : -INFINITY;
      at[i][u] = line + row * m.stride[2] +
                 (key < end ? key : end - 1) * m.stride[3];
    }
  if (m.data && m.dtype == FL_BOOL) {
    few_values<uint8_t>(m, at, [&](int i, int u, uint8_t there) {
      more[i][u] = there ? more[i][u] : -INFINITY;
    });
  } else if (m.data)
    few_values<float>(m, at, [&](int i, int u, float v) { more[i][u] += v; });
}

/* Results of the parts of a cluster, to be joined by its first block. */
template <int W, int Q> struct few_part {
  float lse[Q], y[Q][W];
};

template <int D, int W, int Q>
inline void few_join(const attention_args &a, few_part<W, Q> &mine, int part,
                     int64_t bh, int64_t b, int64_t h) {
  fl_cluster_sync();
#pragma unroll 1
  for (int i = 0; i < Q && i < a.nq && part == 0; i++) {
    float lse[ATT_PARTS], top = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < ATT_PARTS; n++) {
      lse[n] = n < a.parts ? fl_cluster_read(&mine.lse[i], n) : -INFINITY;
      top = fmaxf(top, lse[n]);
    }
    float base = top == -INFINITY ? 0 : top;
#pragma unroll
    for (int n = 0; n < ATT_PARTS; n++) {
      lse[n] = fl_exp(lse[n] - base);
      sum += lse[n];
    }
    if (threadIdx.x == 0)
      ((float *)a.lse)[bh * a.nq + i] = top + fl_log(sum);
    for (int c = threadIdx.x; c < a.dv_cols; c += ATT_THREADS) {
      float y = 0;
#pragma unroll
      for (int n = 0; n < ATT_PARTS; n++)
        if (lse[n] != 0)
          y += lse[n] * fl_cluster_read(&mine.y[i][c], n);
      att_rows<uint16_t>(a.y, b, h)[i * a.y.row + c] =
          fl_pack<D>(sum == 0 ? 0 : y / sum, 0) & 0xffff;
    }
  }
  fl_cluster_sync(); /* until then the others' memory is read */
}

/* The results of all warps of the block, joined and stored: y and lse, or those
 * of this part of the keys. */
template <int D, int W, int Q, int WARPS>
inline void few_save(const attention_args &a, const float (&tops)[WARPS][Q],
                     const float (&sums)[WARPS][Q],
                     const float (&os)[WARPS][Q][W], few_part<W, Q> &mine,
                     int part, int64_t bh, int64_t b, int64_t h) {
  int64_t rows = (int64_t)gridDim.x / a.parts * a.nq;
#pragma unroll 1
  for (int i = 0; i < Q && i < a.nq; i++) {
    float top = -INFINITY, sum = 0, weight[WARPS];
#pragma unroll
    for (int n = 0; n < WARPS; n++)
      top = fmaxf(top, tops[n][i]);
#pragma unroll
    for (int n = 0; n < WARPS; n++) {
      float base = top == -INFINITY ? 0 : top;
      weight[n] = fl_exp2_fast((tops[n][i] - base) * (float)FL_LOG2E);
      sum += weight[n] * sums[n][i];
    }
    float factor = sum == 0 ? 0 : 1 / sum, lse = top + fl_log(sum);
    int64_t row = bh * a.nq + i;
    if (threadIdx.x == 0 && a.joined)
      mine.lse[i] = lse;
    else if (threadIdx.x == 0)
      (a.parts > 1 ? a.part_lse + part * rows : (float *)a.lse)[row] = lse;
    for (int c = threadIdx.x; c < a.dv_cols; c += ATT_THREADS) {
      float y = 0;
#pragma unroll
      for (int n = 0; n < WARPS; n++)
        y += weight[n] * os[n][i][c];
      y *= factor;
      if (a.joined)
        mine.y[i][c] = y;
      else if (a.parts > 1)
        a.part_y[(part * rows + row) * a.dv_cols + c] = y;
      else
        att_rows<uint16_t>(a.y, b, h)[i * a.y.row + c] =
            fl_pack<D>(y, 0) & 0xffff;
    }
  }
}

/* Up to Q queries of a head, without tensor cores, whose tiles would be almost
 * empty. A row of W columns is 16 bytes of each of W / 8 lanes; such groups
 * take keys in turns, and their results are joined in the end. */
template <int D, int W, int Q>
__global__ void __launch_bounds__(ATT_THREADS, Q == 1 ? 6 : 1)
    few(const __grid_constant__ attention_args a) {
  enum {
    LANES = W / 8,
    GROUPS = ATT_THREADS / LANES,
    WARPS = ATT_THREADS / 32
  };
  __shared__ float tops[WARPS][Q], sums[WARPS][Q], os[WARPS][Q][W];
  __shared__ few_part<W, Q> mine;
  int part = blockIdx.x % a.parts, lane = threadIdx.x % LANES,
      group = threadIdx.x / LANES, warp = threadIdx.x / 32, col = lane * 8;
  int64_t bh = blockIdx.x / a.parts, b = bh / a.heads, h = bh % a.heads,
          end = att_keys(a, 0, (int)a.nq),
          share = (end + a.parts - 1) / a.parts, start = share * part;
  end = start + share < end ? start + share : end;
  const uint16_t *k = att_rows<uint16_t>(a.k, b, h / a.group) + col,
                 *v = att_rows<uint16_t>(a.v, b, h / a.group) + col,
                 *from = att_rows<uint16_t>(a.q, b, h) + col;
  float q[Q][8];
  few_state r[Q];
  few_ahead(a, k - col, v - col, start, end);
  fl_begin();
#pragma unroll
  for (int i = 0; i < Q; i++) {
    few_unpack<D>(q[i], few_read(from + i * a.q.row, i < a.nq && col < a.d));
    r[i].start();
  }
#pragma unroll 1
  for (int64_t first = start; first < end; first += FEW_KEYS * GROUPS) {
    uint4 ks[FEW_KEYS], vs[FEW_KEYS];
    float s[Q][FEW_KEYS], more[Q][FEW_KEYS], x[8];
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++) {
      int64_t key = first + u * GROUPS + group;
      bool there = key < end;
      ks[u] = few_read(k + key * a.k.row, there && col < a.d);
      vs[u] = few_read(v + key * a.v.row, there && col < a.dv_cols);
    }
    few_mask(a, more, first + group, GROUPS, end, b, h);
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++) {
      few_unpack<D>(x, ks[u]);
#pragma unroll
      for (int i = 0; i < Q; i++) {
        float dot = 0;
#pragma unroll
        for (int e = 0; e < 8; e++)
          dot += q[i][e] * x[e];
        dot = fl_warp_reduce<LANES>(dot, fl_sum_of()) * (float)a.scale;
        s[i][u] = more[i][u] == -INFINITY ? -INFINITY : dot + more[i][u];
      }
    }
#pragma unroll
    for (int i = 0; i < Q; i++)
      r[i].soften(s[i]);
#pragma unroll
    for (int u = 0; u < FEW_KEYS; u++) {
      few_unpack<D>(x, vs[u]);
#pragma unroll
      for (int i = 0; i < Q; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
          r[i].o[e] += s[i][u] * x[e];
    }
  }
#pragma unroll
  for (int i = 0; i < Q; i++) {
#pragma unroll
    for (int away = LANES; away < 32; away *= 2)
      r[i].join(away);
    if (threadIdx.x % 32 < LANES)
      r[i].save(tops[warp][i], sums[warp][i], os[warp][i] + col);
  }
  __syncthreads();
  few_save<D, W>(a, tops, sums, os, mine, part, bh, b, h);
  if (a.joined)
    few_join<D>(a, mine, part, bh, b, h);
}

/* y and lse from those of parts of the keys, at most 32; a block to a row. */
template <int D>
__global__ void __launch_bounds__(ATT_THREADS)
    merge(const __grid_constant__ attention_args a) {
  __shared__ float weights[32];
  int lane = threadIdx.x;
  int64_t row = blockIdx.x, rows = gridDim.x, bh = row / a.nq;
  if (lane < 32) {
    float mine = lane < a.parts ? a.part_lse[lane * rows + row] : -INFINITY;
    float top = fl_warp_reduce(mine, fl_max_of());
    float base = top == -INFINITY ? 0 : top, weight = fl_exp(mine - base);
    float sum = fl_warp_reduce(weight, fl_sum_of());
    weights[lane] = sum == 0 ? 0 : weight / sum;
    if (lane == 0)
      ((float *)a.lse)[row] = top + fl_log(sum);
  }
  __syncthreads();
  uint16_t *y = att_rows<uint16_t>(a.y, bh / a.heads, bh % a.heads) +
                row % a.nq * a.y.row;
  for (int col = lane; col < a.dv_cols; col += ATT_THREADS) {
    float all = 0;
#pragma unroll 8
    for (int part = 0; part < a.parts; part++) {
      float v = a.part_y[(part * rows + row) * a.dv_cols + col];
      all += weights[part] != 0 ? weights[part] * v : 0;
    }
    y[col] = fl_pack<D>(all, 0) & 0xffff;
  }
}

/* --- a bool mask as bits --- */

/* Four bytes, 0 or not, as 0 or 1 each. */
inline uint32_t bits_flags(uint32_t w) {
  w |= w >> 4;
  w |= w >> 2;
  return (w | w >> 1) & 0x01010101;
}

/* Columns side by side: a warp makes four words of each of ROWS rows, a lane
 * looks at one column of each, or, QUADS, at four in a row. */
template <int QUADS>
void bits_of_rows(const attention_pack &a, const uint8_t *from, uint32_t *to,
                  int64_t line, int64_t group) {
  enum { ROWS = 8 };
  int lane = threadIdx.x & 31;
  uint32_t w[ROWS];
  int64_t col = group * 128 + lane * (QUADS ? 4 : 1);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int64_t row = line * ROWS + r;
    const uint8_t *p = from + (row < a.rows ? row : 0) * a.stride[2];
    w[r] = 0;
    if (QUADS && col < a.columns)
      w[r] = *(const uint32_t *)(p + col);
    if (!QUADS)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int64_t at = col + 32 * i < a.columns ? col + 32 * i : a.columns - 1;
        w[r] |= (uint32_t)p[at * a.stride[3]] << 8 * i;
      }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int64_t row = line * ROWS + r;
    uint32_t flags = bits_flags(w[r]), word = 0;
    if (QUADS) { /* the product brings the flags together */
      word = (flags * 0x10204080u >> 28) << 4 * (lane & 7);
#pragma unroll
      for (int k = 1; k < 8; k *= 2)
        word |= __shfl_xor_sync(0xffffffff, word, k);
    } else
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t all = __ballot_sync(0xffffffff, flags >> 8 * i & 1);
        word = lane / 8 == i ? all : word;
      }
    if (row < a.rows && lane % 8 == 0)
      to[row * a.words + group * 4 + lane / 8] = word;
  }
}

/* Rows side by side: a lane makes a word of one row, or, QUADS, of four. */
template <int QUADS>
void bits_of_columns(const attention_pack &a, const uint8_t *from, uint32_t *to,
                     int64_t line, int64_t group) {
  enum { ROWS = QUADS ? 4 : 1 };
  int lane = threadIdx.x & 31;
  int64_t row = (line * 32 + lane) * ROWS;
  uint32_t word[ROWS] = {0};
  from += (row < a.rows ? row : 0) * a.stride[2];
#pragma unroll 8
  for (int i = 0; i < 32; i++) {
    int64_t col = group * 32 + i < a.columns ? group * 32 + i : a.columns - 1;
    const uint8_t *p = from + col * a.stride[3];
    uint32_t flags = bits_flags(QUADS ? *(const uint32_t *)p : *p);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      word[r] |= (flags >> 8 * r & 1) << i;
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (row + r < a.rows)
      to[(row + r) * a.words + group] = word[r];
}

/* TURN: rows are side by side, else columns; QUADS: at whole words. */
template <int TURN, int QUADS>
__global__ void __launch_bounds__(256)
    bits(const __grid_constant__ attention_pack a) {
  int64_t unit = fl_thread() / 32;
  if (unit >= a.units)
    return;
  int64_t groups = TURN ? a.words : a.words / 4, group = unit % groups,
          line = unit / groups % a.lines, bh = unit / (a.lines * groups);
  const uint8_t *from =
      a.mask + bh / a.heads * a.stride[0] + bh % a.heads * a.stride[1];
  uint32_t *to = a.to + bh * a.rows * a.words;
  if (TURN)
    bits_of_columns<QUADS>(a, from, to, line, group);
  else
    bits_of_rows<QUADS>(a, from, to, line, group);
}
