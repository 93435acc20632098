/* Attention forward for 16-bit floats on Hopper: a block is one warp group that
 * queues copies and two or three that compute, each 64 queries against tiles of
 * 128 keys. While groups are at their exponentials, another has tensor cores,
 * and the product with the values runs under the next tile's scores (Shah et
 * al., arXiv:2407.08608). Blocks stay and take one tile of queries after the
 * other. */
#include "attention_sm90.cuh"

#define WIDE_KEYS 128 /* of a tile */

/* G: groups that compute; registers suffice for three with 64 columns. */

/* Shared memory: queries, results, then STAGES times keys and values. A tile is
 * columns of 64, each (rows, 64). */
template <int W, int G, int STAGES> struct wide_room {
  static constexpr int queries = 64 * G * W * 2; /* bytes */
  static constexpr int tile = WIDE_KEYS * W * 2;
  uint32_t at;
  inline uint32_t q() const {
    return at;
  }
  inline uint32_t y() const {
    return at + queries;
  }
  inline uint32_t k(int n) const {
    return at + 2 * queries + 2 * tile * (n % STAGES);
  }
  inline uint32_t v(int n) const {
    return k(n) + tile;
  }
};

/* Full: a copy has come; free: all warps that compute have read it. */
template <int STAGES> struct wide_gates {
  uint32_t at; /* of 2 + 4 * STAGES barriers */
  inline uint32_t q(int free) const {
    return at + 8 * free;
  }
  inline uint32_t k(int n, int free) const {
    return at + 16 + 8 * (2 * (n % STAGES) + free);
  }
  inline uint32_t v(int n, int free) const {
    return k(n, free) + 16 * STAGES;
  }
  static inline int parity(int n) {
    return n / STAGES & 1;
  }
};

/* A tile of queries of one head. Items are numbered by sections of heads, whose
 * keys and values fit in the cache together, and in a section from the longest
 * to the shortest. */
struct wide_item {
  att_place p;
  int tiles; /* of keys */
};
template <int G> wide_item wide_at(const attention_sm90 &w, int i) {
  wide_item item;
  int all = (int)w.a.tiles, size = w.section * all, from = i / size * w.section,
      heads = w.items / all - from;
  heads = heads < w.section ? heads : w.section;
  int head = from + i % size % heads, tile = i % size / heads;
  tile = w.a.causal ? all - 1 - tile : tile;
  item.p = {head / w.a.heads, head % w.a.heads, (int64_t)tile * 64 * G};
  int64_t end = att_keys(w.a, item.p.first, 64 * G);
  /* queries that see no key go through one tile, all of which is cut */
  item.tiles = end > 0 ? (int)((end + WIDE_KEYS - 1) / WIDE_KEYS) : 1;
  return item;
}

/* This block's item of a round: the next of a counter, or, where counting is
 * not worth it, by turns forwards and backwards, so that the sums of lengths
 * are about the same. */
inline int wide_next(const attention_sm90 &w, int round) {
  if (w.counter)
    return round == 0 ? blockIdx.x : gridDim.x + atomicAdd(w.counter, 1);
  return round * gridDim.x +
         (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* One thread: all copies of this block, as far ahead as there is room. `items`
 * has the numbers of their items for the other warps; -1 is the end. */
template <int W, int G, int STAGES>
void wide_produce(const attention_sm90 &w, wide_room<W, G, STAGES> m,
                  wide_gates<STAGES> gate, int *items) {
  int n = 0, i = wide_next(w, 0);
  for (int round = 0;; round++) {
    fl_barrier_wait(gate.q(1), (round & 1) ^ 1);
    if (i >= w.items) {
      items[round & 1] = -1;
      fl_barrier_arrive(gate.q(0));
      return;
    }
    items[round & 1] = i;
    wide_item item = wide_at<G>(w, i);
    int b = (int)item.p.b, h = (int)item.p.h, hk = h / w.a.group;
    fl_barrier_expect(gate.q(0), m.queries);
    wide_load<W, 64 * G>(m.q(), w.q, gate.q(0), (int)item.p.first, h, b);
    i = wide_next(w, round + 1);
    for (int t = item.tiles - 1; t >= 0; t--, n++) {
      int parity = gate.parity(n) ^ 1;
      fl_barrier_wait(gate.k(n, 1), parity);
      fl_barrier_expect(gate.k(n, 0), m.tile);
      wide_load<W, WIDE_KEYS>(m.k(n), w.k, gate.k(n, 0), t * WIDE_KEYS, hk, b);
      fl_barrier_wait(gate.v(n, 1), parity);
      fl_barrier_expect(gate.v(n, 0), m.tile);
      wide_load<W, WIDE_KEYS>(m.v(n), w.v, gate.v(n, 0), t * WIDE_KEYS, hk, b);
    }
  }
}

/* s = q k^T, queued; q: this group's 64 rows. */
template <int D, int W, int G>
void wide_scores(float (&s)[16][4], uint32_t q, uint32_t k) {
  fl_products_open();
#pragma unroll
  for (int i = 0; i < W / 16; i++) {
    int col = i % 4 * 32;
    fl_wgmma<D, 0, 0>(s, fl_tile_desc(q + i / 4 * 64 * G * 128 + col),
                      fl_tile_desc(k + i / 4 * WIDE_KEYS * 128 + col), i);
  }
  fl_products_commit();
}

/* o += p v, queued. */
template <int D, int W>
void wide_values(float (&o)[W / 8][4], const uint32_t (&p)[8][4], uint32_t v) {
  fl_products_open();
#pragma unroll
  for (int i = 0; i < WIDE_KEYS / 16; i++)
    fl_wgmma<D, 1>(o, p[i], fl_tile_desc(v + i * 2048, WIDE_KEYS * 128), 1);
  fl_products_commit();
}

/* The warp's 16 rows of the result, by way of `room`. */
template <int D, int W, int G, int MORE>
void wide_save(const attention_sm90 &w, const wide_item &item, int query,
               const float (&o)[W / 8][4], const att_state &r, uint32_t room) {
  const attention_args &a = w.a;
  int lane = threadIdx.x & 31;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = fl_warp_reduce<4>(r.sum[half], fl_sum_of());
    int64_t row = query + lane / 4 + 8 * half;
    factor[half] = sum == 0 ? 0 : (MORE ? att_grown(a) : 1) / sum;
    if (lane % 4 == 0 && row < a.nq)
      ((float *)a.lse)[(item.p.b * a.heads + item.p.h) * a.nq + row] =
          r.top[half] * (MORE >= 2 ? 1 : (float)a.scale) + fl_log(sum);
  }
#pragma unroll
  for (int j = 0; j < W / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      fl_store4(room + j / 8 * 64 * G * 128 +
                    fl_swizzle<128>(lane / 4 + 8 * half, j % 8) +
                    4 * (lane % 4),
                fl_pack<D>(o[j][2 * half] * factor[half],
                           o[j][2 * half + 1] * factor[half]));
  __syncwarp();
  uint16_t *to = att_rows<uint16_t>(a.y, item.p.b, item.p.h);
#pragma unroll
  for (int n = lane; n < 16 * (W / 8); n += 32) {
    int row = n / (W / 8), chunk = n % (W / 8);
    if (query + row < a.nq && chunk * 8 < a.dv_cols)
      *(uint4 *)(to + (query + row) * a.y.row + chunk * 8) = fl_load16(
          room + chunk / 8 * 64 * G * 128 + fl_swizzle<128>(row, chunk % 8));
  }
}

/* Scores of one tile to weights, with what MORE adds. */
template <int MORE>
void wide_soften(const attention_args &a, float (&s)[16][4], att_state &r,
                 const att_random &random, const wide_mask &mask,
                 const att_place &p, int query, int key, float unit) {
  if (MORE == 1 && a.bits.data)
    wide_words<128>(mask, key).hide(s, -INFINITY);
  att_soften<128, MORE >= 2>(r, s, unit);
  if (MORE && a.drop.limit)
    att_drop<128, 4>(a, random, s, p, query, key);
}

/* A mask of the operands' dtype, a tile ahead: its pairs of keys as they lie,
 * for the lane's two rows. */
template <int D> struct wide_pairs {
  const uint16_t *row[2];
  uint32_t at[2][WIDE_KEYS / 8];

  inline wide_pairs(const attention_args &a, const att_place &p, int query) {
    const attention_mask &m = a.mask;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int64_t i = query + lane / 4 + 8 * half;
      row[half] = (const uint16_t *)m.data + p.b * m.stride[0] +
                  p.h * m.stride[1] + (i < a.nq ? i : 0) * m.stride[2] +
                  2 * (lane % 4);
    }
  }
  /* Those of keys from `key` on, of which there are `left` more. Keys beyond
   * them read any valid address: their scores are cut. */
  inline void fetch(int key, int64_t left) {
    int last = left - 2 * (threadIdx.x & 3) < WIDE_KEYS
                   ? (int)left - 2 * (int)(threadIdx.x & 3)
                   : WIDE_KEYS;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int j = 0; j < WIDE_KEYS / 8; j++)
        at[half][j] =
            *(const uint32_t *)(row[half] + (8 * j < last ? key + 8 * j : 0));
  }
  inline void add(float (&s)[WIDE_KEYS / 8][4], float scale) const {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int j = 0; j < WIDE_KEYS / 8; j++) {
        float2 more = fl_unpack<D>(at[half][j]);
        s[j][2 * half] = fmaf(s[j][2 * half], scale, more.x);
        s[j][2 * half + 1] = fmaf(s[j][2 * half + 1], scale, more.y);
      }
  }
};

/* The mask of values of one tile; with `next`, asks for that of the next. */
template <int D, int MORE>
void wide_add(const attention_args &a, float (&s)[16][4], wide_pairs<D> &pairs,
              const att_place &p, int query, int key, bool next) {
  if (MORE == 2)
    att_add_mask<D, 128>(a, s, p, query, key);
  if (MORE == 3) {
    pairs.add(s, (float)a.scale);
    if (next)
      pairs.fetch(key - WIDE_KEYS, WIDE_KEYS);
  }
}

/* The warp has read the keys of tile n, with `last` also the queries. */
template <int STAGES>
void wide_release(wide_gates<STAGES> gate, int n, bool last) {
  if ((threadIdx.x & 31) == 0) {
    fl_barrier_arrive(gate.k(n, 1));
    if (last)
      fl_barrier_arrive(gate.q(1));
  }
}

template <int D, int W, int G, int STAGES, int MORE>
void wide_consume(const attention_sm90 &w, wide_room<W, G, STAGES> m,
                  wide_gates<STAGES> gate, const int *items, int group) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, n = 0;
  float unit = (float)(MORE >= 2 ? FL_LOG2E : w.a.scale * FL_LOG2E);
  att_random random =
      MORE && w.a.drop.limit ? att_random_of(w.a) : att_random{0, 0};
  uint32_t q = m.q() + group * 64 * 128;
  int then = (group + 1) % G;
  if (then == 0)
    fl_meet_arrive(1, 256); /* the first group goes first */
  for (int round = 0;; round++) {
    fl_barrier_wait(gate.q(0), round & 1);
    if (items[round & 1] < 0)
      return;
    wide_item item = wide_at<G>(w, items[round & 1]);
    int query = (int)item.p.first + 64 * group + 16 * warp;
    float s[16][4], o[W / 8][4] = {};
    uint32_t p[8][4];
    att_state r = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
    wide_mask mask = {};
    if (MORE == 1)
      mask = wide_mask_of(w.a.bits, item.p.b, item.p.h, query, w.a.nq);
    int key = (item.tiles - 1) * WIDE_KEYS;
    wide_pairs<D> pairs(w.a, item.p, query);
    if (MORE == 3)
      pairs.fetch(key, w.a.nk - key);
    fl_barrier_wait(gate.k(n, 0), gate.parity(n));
    wide_scores<D, W, G>(s, q, m.k(n));
    fl_products_wait<0>();
    fl_products_hold(s);
    wide_release(gate, n, item.tiles == 1);
    wide_add<D, MORE>(w.a, s, pairs, item.p, query, key, item.tiles > 1);
    att_cut<128>(s, w.a.nk - key,
                 w.a.causal ? query + (int)w.a.ahead - key : 128);
    wide_soften<MORE>(w.a, s, r, random, mask, item.p, query, key, unit);
    wide_pack<D, 128>(p, s);
    if (item.tiles > 1)
      fl_barrier_wait(gate.k(n + 1, 0), gate.parity(n + 1));
    for (int t = item.tiles - 1; t > 0; t--, n++) {
      fl_meet(1 + group, 256);
      wide_scores<D, W, G>(s, q, m.k(n + 1));
      fl_barrier_wait(gate.v(n, 0), gate.parity(n));
      wide_values<D, W>(o, p, m.v(n));
      fl_meet_arrive(1 + then, 256);
      fl_products_wait<1>();
      fl_products_hold(s);
      wide_release(gate, n + 1, t == 1);
      key -= WIDE_KEYS;
      wide_add<D, MORE>(w.a, s, pairs, item.p, query, key, t > 1);
      if (w.a.causal && key + WIDE_KEYS > query + (int)w.a.ahead)
        att_cut<128>(s, 128, query + (int)w.a.ahead - key);
      wide_soften<MORE>(w.a, s, r, random, mask, item.p, query, key, unit);
      fl_products_hold(s);
      /* also keeps the exponentials before the next wait: compilers move what
       * follows no branch */
      if (t > 1)
        fl_barrier_wait(gate.k(n + 2, 0), gate.parity(n + 2));
      fl_products_wait<0>();
      fl_products_hold(o);
      if (lane == 0)
        fl_barrier_arrive(gate.v(n, 1));
      att_shrink<W>(o, r);
      wide_pack<D, 128>(p, s);
    }
    fl_barrier_wait(gate.v(n, 0), gate.parity(n));
    wide_values<D, W>(o, p, m.v(n));
    fl_products_wait<0>();
    fl_products_hold(o);
    if (lane == 0)
      fl_barrier_arrive(gate.v(n, 1));
    n++;
    wide_save<D, W, G, MORE>(w, item, query, o, r,
                             m.y() + (4 * group + warp) * 16 * 128);
    __syncwarp();
  }
}

/* MORE: 1: there may be a mask of bits, and dropout; 2: any mask, dropout, or a
 * scale that is not positive; 3: the same with a mask in pairs. */
template <int D, int W, int G, int STAGES, int MORE>
__global__ void __launch_bounds__(128 * (G + 1), 1)
    forward(const __grid_constant__ attention_sm90 w) {
#ifdef FL_HOPPER
  extern __shared__ uint4 room[];
  __shared__ uint64_t gates[2 + 4 * STAGES];
  __shared__ int items[2];
  wide_room<W, G, STAGES> m = {(fl_shared(room) + 1023) / 1024 * 1024};
  wide_gates<STAGES> gate = {fl_shared(gates)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 + 4 * STAGES; i++)
      fl_barrier_init(gate.at + 8 * i, i & 1 ? 4 * G : 1);
    fl_barrier_ready();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    /* what the launch has given, not more: 168 for each of 384 threads, or 128
     * for each of 512 */
    fl_registers_less<G == 3 ? 32 : 40>();
    if (threadIdx.x == 0)
      wide_produce<W, G, STAGES>(w, m, gate, items);
  } else {
    fl_registers_more<G == 3 ? 160 : 232>();
    wide_consume<D, W, G, STAGES, MORE>(w, m, gate, items,
                                        threadIdx.x / 128 - 1);
  }
#endif
}
