/* Attention backward for 16-bit floats on Hopper: a block owns 128 keys, 64 to
 * each of two warp groups that compute, and goes over tiles of queries, which a
 * third group fetches. Scores are transposed, (keys, queries), so that weights
 * and gradients of scores are left operands of dv and dk where they are, in
 * registers; dq needs all keys, so gradients of scores go through shared memory
 * too, and each group has half of dq. dq is summed over blocks by atomics, in
 * no particular order: it may differ by rounding from run to run. Where it must
 * not, attention_backward.cu does the work. */
#include "attention_sm90.cuh"

#define BACK_KEYS 128 /* of a block */

/* Queries of a tile. */
template <int W> constexpr int back_queries = W == 64 ? 128 : 64;

/* Shared memory: keys, values, twice queries and dy, twice gradients of scores,
 * twice lse and delta; each warp's part of a mask where that is fetched. */
template <int W> struct back_room {
  static constexpr int tile = BACK_KEYS * W * 2;
  static constexpr int step = back_queries<W> * W * 2;
  static constexpr int ds_bytes = BACK_KEYS * back_queries<W> * 2;
  static constexpr int row_bytes = 2 * back_queries<W> * 4;
  uint32_t at;
  inline uint32_t k() const {
    return at;
  }
  inline uint32_t v() const {
    return at + tile;
  }
  inline uint32_t q(int n) const {
    return at + 2 * tile + (n & 1) * 2 * step;
  }
  inline uint32_t dy(int n) const {
    return q(n) + step;
  }
  inline uint32_t ds(int n) const {
    return at + 2 * tile + 4 * step + (n & 1) * ds_bytes;
  }
  inline uint32_t rows(int n) const {
    return at + 2 * tile + 4 * step + 2 * ds_bytes + (n & 1) * row_bytes;
  }
  inline uint32_t mask(int warp) const {
    return rows(0) + 2 * row_bytes + warp * back_queries<W> * 32;
  }
};

/* Barriers: keys and values; of each stage full and free, of q with rows, and
 * of dy. */
struct back_gates {
  uint32_t at;
  inline uint32_t kv() const {
    return at;
  }
  inline uint32_t q(int n, int free) const {
    return at + 8 + 16 * (n & 1) + 8 * free;
  }
  inline uint32_t dy(int n, int free) const {
    return q(n, free) + 32;
  }
  static inline int parity(int n) {
    return n >> 1 & 1;
  }
};

/* The tiles of queries that this block's keys are seen by, of all heads that
 * share them. */
struct back_work {
  att_place p;
  int from, tiles, all;
};
template <int W> back_work back_here(const attention_sm90 &w) {
  back_work b;
  b.p = att_here(w.a, blockIdx.x, w.a.heads / w.a.group, BACK_KEYS, false);
  b.from = (int)att_queries(w.a, b.p.first, back_queries<W>) / back_queries<W>;
  b.tiles = b.from < w.tiles_q ? (int)w.tiles_q - b.from : 0;
  b.all = b.tiles * w.a.group;
  return b;
}

template <int W>
void back_produce(const attention_sm90 &w, const back_work &b, back_room<W> m,
                  back_gates gate) {
  int batch = (int)b.p.b, hk = (int)b.p.h, first = (int)b.p.first;
  fl_barrier_expect(gate.kv(), 2 * m.tile);
  wide_load<W, BACK_KEYS>(m.k(), w.k, gate.kv(), first, hk, batch);
  wide_load<W, BACK_KEYS>(m.v(), w.v, gate.kv(), first, hk, batch);
  for (int n = 0; n < b.all; n++) {
    int h = hk * w.a.group + n / b.tiles, t = b.from + n % b.tiles,
        parity = gate.parity(n) ^ 1, row = t * back_queries<W>;
    const float *rows =
        w.rows + (((int64_t)batch * w.a.heads + h) * w.tiles_q + t) *
                     (2 * back_queries<W>);
    fl_barrier_wait(gate.q(n, 1), parity);
    fl_barrier_expect(gate.q(n, 0), m.step + m.row_bytes);
    wide_load<W, back_queries<W>>(m.q(n), w.q, gate.q(n, 0), row, h, batch);
    fl_bulk_load(m.rows(n), rows, gate.q(n, 0), m.row_bytes);
    fl_barrier_wait(gate.dy(n, 1), parity);
    fl_barrier_expect(gate.dy(n, 0), m.step);
    wide_load<W, back_queries<W>>(m.dy(n), w.dy, gate.dy(n, 0), row, h, batch);
  }
}

/* s = a b^T, queued: 64 of the block's keys against a tile of queries. */
template <int D, int W>
void back_scores(float (&s)[back_queries<W> / 8][4], uint32_t a, uint32_t b) {
  fl_products_open();
#pragma unroll
  for (int i = 0; i < W / 16; i++)
    fl_wgmma<D, 0, 0>(
        s, fl_tile_desc(a + i / 4 * BACK_KEYS * 128 + i % 4 * 32),
        fl_tile_desc(b + i / 4 * back_queries<W> * 128 + i % 4 * 32), i);
  fl_products_commit();
}

/* sum += p b, queued; b is a tile of queries. */
template <int D, int W>
void back_update(float (&sum)[W / 8][4],
                 const uint32_t (&p)[back_queries<W> / 16][4], uint32_t b) {
  fl_products_open();
#pragma unroll
  for (int i = 0; i < back_queries<W> / 16; i++)
    fl_wgmma<D, 1>(sum, p[i], fl_tile_desc(b + i * 2048, back_queries<W> * 128),
                   1);
  fl_products_commit();
}

/* Scores to weights, by lse of their columns; EXACT: see att_soften. */
template <int Q, int EXACT>
void back_weights(float (&s)[Q / 8][4], uint32_t lse, float unit) {
#pragma unroll
  for (int j = 0; j < Q / 8; j++) {
    float2 less = fl_load8(lse + 32 * j + threadIdx.x % 4 * 8);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float by = e & 1 ? less.y : less.x;
      s[j][e] = fl_exp2_fast(EXACT ? (s[j][e] - by) * unit
                                   : fmaf(s[j][e], unit, -by));
    }
  }
}

/* Scores scaled, and the mask. */
template <int D, int Q>
void back_add_mask(const attention_args &a, float (&s)[Q / 8][4], int64_t b,
                   int64_t h, int64_t query, int64_t key) {
  const attention_mask &m = a.mask;
  int lane = threadIdx.x & 31;
  query += 2 * (lane % 4);
  int left = a.nq - query < Q ? (int)(a.nq - query) : Q;
  int64_t at = b * m.stride[0] + h * m.stride[1] + query * m.stride[2];
#pragma unroll
  for (int j = 0; j < Q / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[j][e] *= (float)a.scale;
  if (!m.data)
    return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t row = key + lane / 4 + 8 * half,
            from = at + (row < a.nk ? row : 0) * m.stride[3];
    if (m.dtype == FL_BOOL) {
      const uint8_t *seen = (const uint8_t *)m.data + from;
#pragma unroll
      for (int j = 0; j < Q / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left && !seen[(8 * j + e) * m.stride[2]])
            s[j][2 * half + e] = -INFINITY;
    } else if (m.dtype == FL_F32) {
      const float *more = (const float *)m.data + from;
#pragma unroll
      for (int j = 0; j < Q / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left)
            s[j][2 * half + e] += more[(8 * j + e) * m.stride[2]];
    } else {
      const FL_S(D) *more = (const FL_S(D) *)m.data + from;
#pragma unroll
      for (int j = 0; j < Q / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left)
            s[j][2 * half + e] +=
                fl_get<float>(more[(8 * j + e) * m.stride[2]]);
    }
  }
}

/* A warp's part of a mask of D, (queries, 16 keys), on its way: rows of 32
 * bytes. Zeros where there is nothing. */
template <int Q>
void back_fetch_mask(const attention_args &a, uint32_t to, int64_t b, int64_t h,
                     int64_t query, int64_t key) {
  const attention_mask &m = a.mask;
  int lane = threadIdx.x & 31, chunk = lane & 1;
  const uint16_t *from =
      (const uint16_t *)m.data + b * m.stride[0] + h * m.stride[1];
  key += 8 * chunk;
#pragma unroll
  for (int i = 0; i < Q / 16; i++) {
    int row = 16 * i + lane / 2;
    bool there = query + row < a.nq && key < a.nk;
    fl_copy16(to + fl_swizzle<32>(row, chunk),
              there ? from + (query + row) * m.stride[2] + key : from, there);
  }
  fl_copy_commit();
}

/* Scores scaled, and that part of the mask once it is there. */
template <int D, int Q>
void back_add_fetched(const attention_args &a, float (&s)[Q / 8][4],
                      uint32_t mask) {
  int lane = threadIdx.x & 31;
  float scale = (float)a.scale;
  fl_copy_wait<0>();
  __syncwarp();
#pragma unroll
  for (int i = 0; i < Q / 16; i++) {
    uint32_t more[4];
    fl_ldmatrix_trans(more,
                      mask + fl_swizzle<32>(16 * i + lane / 16 * 8 + lane % 8,
                                            lane >> 3 & 1));
#pragma unroll
    for (int k = 0; k < 4; k++) {
      float2 v = fl_unpack<D>(more[k]);
      float *to = &s[2 * i + k / 2][2 * (k & 1)];
      to[0] = fmaf(to[0], scale, v.x);
      to[1] = fmaf(to[1], scale, v.y);
    }
  }
  __syncwarp(); /* all have read: the next part may come */
}

/* What stays, 32 sums to a word; all without dropout. */
template <int Q>
void back_keep(const attention_args &a, const att_random &r,
               uint32_t (&bits)[Q / 64], int64_t b, int64_t h, int64_t query,
               int64_t key) {
#pragma unroll
  for (int i = 0; i < Q / 64; i++)
    bits[i] = a.drop.limit
                  ? att_kept_tile<64, 1, 4>(a, r, b, h, query + 64 * i, key)
                  : 0xffffffff;
}

/* Weights that are dropped become 0. */
template <int Q>
void back_drop(uint32_t (&p)[Q / 16][4], const uint32_t (&bits)[Q / 64]) {
#pragma unroll
  for (int i = 0; i < Q / 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int first = (8 * i + 2 * j) % 32;
      p[i][j] &= (bits[i / 4] >> first & 1 ? 0xffff : 0) |
                 (bits[i / 4] >> first & 2 ? 0xffff0000 : 0);
    }
}

/* Weights of keys that are not there, or not seen, become 0. */
template <int Q>
void back_cut(float (&s)[Q / 8][4], int keys, int key, int query, bool causal) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int j = 0; j < Q / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int at = key + lane / 4 + 8 * (e >> 1),
          col = query + 8 * j + 2 * (lane % 4) + (e & 1);
      if (at >= keys || (causal && at > col))
        s[j][e] = 0;
    }
}

/* Gradients of scores from dp and weights, rounded: floats would not fit. */
template <int D, int Q, int MORE>
void back_grade(uint32_t (&ds)[Q / 16][4], const float (&dp)[Q / 8][4],
                const uint32_t (&p)[Q / 16][4], uint32_t delta,
                const uint32_t (&bits)[Q / 64], float keep) {
#pragma unroll
  for (int c = 0; c < Q / 8; c++) {
    float2 less = fl_load8(delta + 32 * c + threadIdx.x % 4 * 8);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int j = 2 * (c & 1) + half, first = (4 * c + 2 * half) % 32;
      float2 w = fl_unpack<D>(p[c / 2][j]);
      float x = dp[c][2 * half], y = dp[c][2 * half + 1];
      if (MORE) {
        x = bits[c / 8] >> first & 1 ? x * keep : 0;
        y = bits[c / 8] >> first & 2 ? y * keep : 0;
      }
      ds[c / 2][j] = fl_pack<D>(w.x * (x - less.x), w.y * (y - less.y));
    }
  }
}

/* This warp's 16 keys of gradients of scores; blocks of (keys, 64 queries). */
template <int Q>
void back_share(uint32_t to, const uint32_t (&ds)[Q / 16][4], int key) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < Q / 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      fl_store4(
          to + i / 4 * BACK_KEYS * 128 +
              fl_swizzle<128>(key + lane / 4 + 8 * (j & 1), i % 4 * 2 + j / 2) +
              4 * (lane % 4),
          ds[i][j]);
}

/* This group's half of dq: 64 columns of the tile's queries if they are 64,
 * else 64 of the queries. */
template <int D, int W>
void back_dq(float (&dq)[8][4], uint32_t ds, uint32_t k, int group) {
  int half = group * BACK_KEYS * 128;
  fl_products_open();
#pragma unroll
  for (int i = 0; i < BACK_KEYS / 16; i++)
    fl_wgmma<D, 1, 1>(dq, fl_tile_desc(ds + (W == 64 ? half : 0) + i * 2048),
                      fl_tile_desc(k + (W == 64 ? 0 : half) + i * 2048), i);
  fl_products_commit();
}

inline void back_add(const attention_sm90 &w, const back_work &b, int h, int t,
                     int group, const float (&dq)[8][4]) {
  int64_t tile = (b.p.b * w.a.heads + h) * w.tiles_q + t;
  float *to = w.dq_sums + (tile * 2 + group) * 4096 + threadIdx.x % 128 * 4;
#pragma unroll
  for (int j = 0; j < 8; j++)
    fl_add4(to + j * 512, dq[j]);
}

/* dk and dv of the warp's 16 keys, by way of shared memory. */
template <int D, int W>
void back_save(const attention_args &a, const back_work &b,
               const float (&dk)[W / 8][4], const float (&dv)[W / 8][4],
               float keep, int key, uint16_t *room) {
  float kept[2] = {keep, keep}, scale[2] = {(float)a.scale, (float)a.scale};
  att_save<D, W>(dv, kept, room, att_rows<uint16_t>(a.dv, b.p.b, b.p.h),
                 a.dv.row, key, a.nk, a.dv_cols);
  att_save<D, W>(dk, scale, room, att_rows<uint16_t>(a.dk, b.p.b, b.p.h),
                 a.dk.row, key, a.nk, a.d);
}

template <int D, int W, int MORE>
void back_consume(const attention_sm90 &w, const back_work &b, back_room<W> m,
                  back_gates gate, int group, uint16_t *room) {
  constexpr int Q = back_queries<W>;
  const attention_args &a = w.a;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3,
      local = 64 * group + 16 * warp, key = (int)b.p.first + local;
  uint32_t mask = m.mask(4 * group + warp);
  float unit = (float)(MORE >= 2 ? FL_LOG2E : a.scale * FL_LOG2E),
        keep = MORE && a.drop.limit ? (float)a.drop.keep : 1, dk[W / 8][4] = {},
        dv[W / 8][4] = {};
  att_random random =
      MORE && a.drop.limit ? att_random_of(a) : att_random{0, 0};
  bool short_of = b.p.first + BACK_KEYS > a.nk;
  uint32_t k = m.k() + group * 64 * 128, v = m.v() + group * 64 * 128;
  fl_barrier_wait(gate.kv(), 0);
  fl_products_hold(dk);
  if (MORE == 3 && b.all)
    back_fetch_mask<Q>(a, mask, b.p.b, b.p.h * a.group, b.from * Q, key);
  for (int n = 0; n < b.all; n++) {
    int t = b.from + n % b.tiles, h = (int)b.p.h * a.group + n / b.tiles;
    float s[Q / 8][4], dp[Q / 8][4], dq[8][4];
    uint32_t p[Q / 16][4], ds[Q / 16][4], bits[Q / 64];
    fl_barrier_wait(gate.q(n, 0), gate.parity(n));
    back_scores<D, W>(s, k, m.q(n));
    fl_barrier_wait(gate.dy(n, 0), gate.parity(n));
    back_scores<D, W>(dp, v, m.dy(n));
    fl_products_wait<1>(); /* and dk of the tile before */
    fl_products_hold(s);
    fl_products_hold(dk);
    if (n > 0 && lane == 0)
      fl_barrier_arrive(gate.q(n - 1, 1));
    if (MORE == 2)
      back_add_mask<D, Q>(a, s, b.p.b, h, t * Q, key);
    if (MORE == 3) {
      back_add_fetched<D, Q>(a, s, mask);
      if (n + 1 < b.all)
        back_fetch_mask<Q>(a, mask, b.p.b, b.p.h * a.group + (n + 1) / b.tiles,
                           (b.from + (n + 1) % b.tiles) * Q, key);
    }
    back_weights<Q, (MORE >= 2)>(s, m.rows(n), unit);
    if (MORE == 1 && a.bits.data)
      wide_words<Q>(wide_mask_of(a.bits, b.p.b, h, key, a.nk), t * Q)
          .hide(s, 0);
    int last = t * Q + (int)a.ahead; /* key that the first query sees */
    if (short_of || (a.causal && b.p.first + BACK_KEYS > last + 1))
      back_cut<Q>(s, (int)a.nk, key, last, a.causal);
    wide_pack<D, Q>(p, s);
    fl_products_wait<0>();
    fl_products_hold(dp);
    if (!MORE)
      back_update<D, W>(dv, p, m.dy(n));
    else
      back_keep<Q>(a, random, bits, b.p.b, h, t * Q, key);
    back_grade<D, Q, MORE>(ds, dp, p, m.rows(n) + Q * 4, bits, keep);
    if (MORE) {
      back_drop<Q>(p, bits);
      back_update<D, W>(dv, p, m.dy(n));
    }
    back_share<Q>(m.ds(n), ds, local);
    fl_fence_async();
    fl_meet(1, 256);
    back_dq<D, W>(dq, m.ds(n), m.k(), group);
    back_update<D, W>(dk, ds, m.q(n));
    fl_products_wait<1>();
    fl_products_hold(dq);
    fl_products_hold(dv);
    if (lane == 0)
      fl_barrier_arrive(gate.dy(n, 1));
    back_add(w, b, h, t, group, dq);
    if (W == 64) { /* else it runs under the next scores; here registers end */
      fl_products_wait<0>();
      fl_products_hold(dk);
    }
  }
  fl_products_wait<0>();
  fl_products_hold(dk);
  fl_meet(1, 256); /* all have read the keys: their place is free */
  back_save<D, W>(a, b, dk, dv, keep, key, room + local * W);
}

/* MORE as forward, 3: a mask of D whose keys come 8 at a time. dk and dv, and
 * sums of dq: those of (batch, head, tile of queries, half) are as the lanes
 * hold them, for `gather`. */
template <int D, int W, int MORE>
__global__ void __launch_bounds__(384, 1)
    keys(const __grid_constant__ attention_sm90 w) {
#ifdef FL_HOPPER
  extern __shared__ uint4 room[];
  __shared__ uint64_t gates[9];
  back_room<W> m = {(fl_shared(room) + 1023) / 1024 * 1024};
  back_gates gate = {fl_shared(gates)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 9; i++) /* free, the even ones: by 8 warps */
      fl_barrier_init(gate.at + 8 * i, i && i % 2 == 0 ? 8 : 1);
    fl_barrier_ready();
  }
  __syncthreads();
  back_work b = back_here<W>(w);
  if (threadIdx.x < 128) {
    fl_registers_less<24>();
    if (threadIdx.x == 0)
      back_produce<W>(w, b, m, gate);
  } else {
    fl_registers_more<240>();
    back_consume<D, W, MORE>(w, b, m, gate, threadIdx.x / 128 - 1,
                             (uint16_t *)room + (m.at - fl_shared(room)) / 2);
  }
#endif
}

/* lse (for powers of two unless `more` is 2 or 3) and delta of each query,
 * padded to whole tiles such that weights of what is not there, or saw nothing,
 * are 0; 8 lanes to a query. */
template <int D, int W>
__global__ void rows(const __grid_constant__ attention_sm90 w) {
  const attention_args &a = w.a;
  constexpr int Q = back_queries<W>;
  int64_t n = fl_thread() / 8, bh = n / (w.tiles_q * Q),
          i = n % (w.tiles_q * Q);
  int lane = threadIdx.x % 8;
  float sum = 0, lse = INFINITY;
  if (bh < w.items && i < a.nq) { /* here: batch * heads */
    sum = att_dot<D>(a, bh / a.heads, bh % a.heads, i, lane);
    float known = ((const float *)a.lse)[bh * a.nq + i];
    lse = known == -INFINITY ? INFINITY
                             : known * (w.more >= 2 ? 1 : (float)FL_LOG2E);
  }
  sum = fl_warp_reduce<8>(sum, fl_sum_of());
  if (bh < w.items && lane == 0) {
    float *to = w.rows + n / Q * (2 * Q) + n % Q;
    to[0] = lse;
    to[Q] = sum;
  }
}

/* dq from its sums: 64 queries and 64 columns to a block. */
template <int D, int W>
__global__ void __launch_bounds__(128)
    gather(const __grid_constant__ attention_sm90 w) {
  extern __shared__ uint4 room[];
  const attention_args &a = w.a;
  int half = blockIdx.x % 2, warp = threadIdx.x >> 5;
  int64_t tile = blockIdx.x / 2, t = tile % w.tiles_q, bh = tile / w.tiles_q,
          first = t * back_queries<W> + (W == 64 ? 64 * half : 0);
  const float *sums = w.dq_sums + (int64_t)blockIdx.x * 4096 + threadIdx.x * 4;
  float dq[8][4], scale[2] = {(float)a.scale, (float)a.scale};
  int col = W == 64 ? 0 : 64 * half;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float4 v = *(const float4 *)(sums + j * 512);
    dq[j][0] = v.x, dq[j][1] = v.y, dq[j][2] = v.z, dq[j][3] = v.w;
  }
  att_save<D, 64>(dq, scale, (uint16_t *)room + warp * 16 * 64,
                  att_rows<uint16_t>(a.dq, bh / a.heads, bh % a.heads) + col,
                  a.dq.row, first + 16 * warp, a.nq, a.d - col);
}
