/* Attention forward for 16-bit floats on Hopper: a block is one warp group that
 * queues copies and two or three that compute, each 64 queries against tiles of
 * 128 keys (Shah et al., arXiv:2407.08608). Blocks stay and take one tile of
 * queries after the other. With 64 columns and nothing but a causal mask, the
 * scores of the next tile, also of the next queries, are computed under the
 * exponentials of this one. Otherwise, while groups are at their exponentials,
 * another has tensor cores, and the product with the values runs under the next
 * tile's scores. */
#include "attention_sm90.cuh"

#define WIDE_KEYS 128 /* of a tile */

/* G: groups that compute; registers suffice for three with 64 columns. */

/* Shared memory: twice queries, results, then STAGES times keys and values. A
 * tile is columns of 64, each (rows, 64). */
template <int W, int G, int STAGES> struct wide_room {
  static constexpr int queries = 64 * G * W * 2; /* bytes */
  static constexpr int tile = WIDE_KEYS * W * 2;
  uint32_t at;
  inline uint32_t q(int round) const {
    return at + (round & 1) * queries;
  }
  inline uint32_t y() const {
    return at + 2 * queries;
  }
  inline uint32_t k(int n) const {
    return at + 3 * queries + 2 * tile * (n % STAGES);
  }
  inline uint32_t v(int n) const {
    return k(n) + tile;
  }
};

/* Full: a copy has come; free: all warps that compute have read it. */
template <int STAGES> struct wide_gates {
  uint32_t at; /* of 4 + 4 * STAGES barriers */
  inline uint32_t q(int round, int free) const {
    return at + 8 * (2 * (round & 1) + free);
  }
  inline uint32_t k(int n, int free) const {
    return at + 32 + 8 * (2 * (n % STAGES) + free);
  }
  inline uint32_t v(int n, int free) const {
    return k(n, free) + 16 * STAGES;
  }
  static inline int parity(int n) {
    return n / STAGES & 1;
  }
  static inline int q_parity(int round) {
    return round / 2 & 1;
  }
};

/* A tile of queries of one head. Items are numbered by sections of heads, whose
 * keys and values fit in the cache together, and in a section from the longest
 * to the shortest. */
struct wide_item {
  int b, h, first; /* query */
  int tiles;       /* of keys; 0: there is no item */
};
template <int G> wide_item wide_at(const attention_sm90 &w, int i) {
  wide_item item;
  int all = (int)w.a.tiles, size = w.section * all, from = i / size * w.section,
      heads = w.items / all - from;
  heads = heads < w.section ? heads : w.section;
  int head = from + i % size % heads, tile = i % size / heads;
  tile = w.a.causal ? all - 1 - tile : tile;
  item.b = head / w.a.heads;
  item.h = head % w.a.heads;
  item.first = tile * 64 * G;
  int64_t end = att_keys(w.a, item.first, 64 * G);
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
 * has them for the other warps: divisions take long. */
template <int W, int G, int STAGES>
void wide_produce(const attention_sm90 &w, wide_room<W, G, STAGES> m,
                  wide_gates<STAGES> gate, wide_item *items) {
  int n = 0, i = wide_next(w, 0);
  for (int round = 0;; round++) {
    uint32_t full = gate.q(round, 0);
    fl_barrier_wait(gate.q(round, 1), gate.q_parity(round) ^ 1);
    if (i >= w.items) {
      items[round & 1].tiles = 0;
      fl_barrier_arrive(full);
      return;
    }
    wide_item item = wide_at<G>(w, i);
    items[round & 1] = item;
    int b = item.b, h = item.h, hk = h / w.a.group;
    fl_barrier_expect(full, m.queries);
    wide_load<W, 64 * G>(m.q(round), w.q, full, item.first, h, b);
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

/* o = add ? o + p v : p v, queued. */
template <int D, int W>
void wide_values(float (&o)[W / 8][4], const uint32_t (&p)[8][4], uint32_t v,
                 int add) {
  fl_products_open();
#pragma unroll
  for (int i = 0; i < WIDE_KEYS / 16; i++)
    fl_wgmma<D, 1>(o, p[i], fl_tile_desc(v + i * 2048, WIDE_KEYS * 128),
                   i || add);
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
      ((float *)a.lse)[((int64_t)item.b * a.heads + item.h) * a.nq + row] =
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
  uint16_t *to = att_rows<uint16_t>(a.y, item.b, item.h);
#pragma unroll
  for (int n = lane; n < 16 * (W / 8); n += 32) {
    int row = n / (W / 8), chunk = n % (W / 8);
    if (query + row < a.nq && chunk * 8 < a.dv_cols)
      *(uint4 *)(to + (query + row) * a.y.row + chunk * 8) = fl_load16(
          room + chunk / 8 * 64 * G * 128 + fl_swizzle<128>(row, chunk % 8));
  }
  __syncwarp(); /* the next result may come to `room` */
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
void wide_release(wide_gates<STAGES> gate, int n, int round, bool last) {
  if ((threadIdx.x & 31) == 0) {
    fl_barrier_arrive(gate.k(n, 1));
    if (last)
      fl_barrier_arrive(gate.q(round, 1));
  }
}

/* Where a group is: at a tile of keys of an item. */
struct wide_turn {
  int round, n, left; /* items taken, tiles in all, and of this item after it */
  wide_item item;
  int key;
  bool first; /* of its item */
};

/* Goes to the next tile; false: there is none. */
template <int STAGES>
bool wide_advance(wide_gates<STAGES> gate, const wide_item *items,
                  wide_turn &t) {
  if (t.left > 0) {
    t.n++;
    t.left--;
    t.key -= WIDE_KEYS;
    t.first = false;
    return true;
  }
  int round = t.round + 1;
  fl_barrier_wait(gate.q(round, 0), gate.q_parity(round));
  wide_item next = items[round & 1];
  if (next.tiles == 0)
    return false;
  t = {round, t.n + 1, next.tiles - 1, next, (next.tiles - 1) * WIDE_KEYS,
       true};
  return true;
}

/* One tile of a stream: its scores become weights while the tile behind it has
 * its scores computed, `then`, and the values of the one before it are added;
 * both are complete at the end, and its own values queued. False: it was the
 * last. */
template <int D, int G, int STAGES>
bool wide_step(const attention_sm90 &w, const wide_room<64, G, STAGES> &m,
               wide_gates<STAGES> gate, const wide_item *items, int row,
               uint32_t room, float unit, wide_turn &t, wide_item &before,
               att_state &r, float (&s)[16][4], float (&then)[16][4],
               float (&o)[8][4], uint32_t (&p)[8][4]) {
  bool lane = (threadIdx.x & 31) == 0, first = t.first;
  uint32_t q = row / 64 * 64 * 128;
  att_state done = r;
  wide_turn next = t;
  bool more = wide_advance(gate, items, next);
  /* behind the last tile its own scores again, which nothing reads: products
   * under conditions wait for each other */
  if (more)
    fl_barrier_wait(gate.k(next.n, 0), gate.parity(next.n));
  wide_scores<D, 64, G>(then, m.q(next.round) + q, m.k(next.n));
  int ahead = t.item.first + row + (int)w.a.ahead - t.key;
  if (first || (w.a.causal && WIDE_KEYS > ahead))
    att_cut<128>(s, w.a.nk - t.key, w.a.causal ? ahead : 128);
  if (first)
    r = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
  att_soften<128, 0>(r, s, unit);
  fl_products_hold(s);
  /* also keeps the exponentials before the next wait: compilers move what
   * follows no branch */
  fl_barrier_wait(gate.v(t.n, 0), gate.parity(t.n));
  fl_products_wait<0>(); /* all have long ended */
  fl_products_hold(o);
  fl_products_hold(then);
  if (more)
    wide_release(gate, next.n, next.round, next.left == 0);
  if (lane && t.n > 0)
    fl_barrier_arrive(gate.v(t.n - 1, 1));
  if (!first)
    att_shrink<64>(o, r);
  else if (t.n > 0)
    wide_save<D, 64, G, 0>(w, before, before.first + row, o, done, room);
  wide_pack<D, 128>(p, s);
  wide_values<D, 64>(o, p, m.v(t.n), !first);
  before = t.item;
  t = next;
  return more;
}

/* Two groups, 64 columns: registers suffice for the scores of two tiles. */
template <int D, int G, int STAGES>
void wide_stream(const attention_sm90 &w, wide_room<64, G, STAGES> m,
                 wide_gates<STAGES> gate, const wide_item *items, int group) {
  int warp = threadIdx.x >> 5 & 3, row = 64 * group + 16 * warp;
  float unit = (float)(w.a.scale * FL_LOG2E);
  uint32_t q = group * 64 * 128, room = m.y() + (4 * group + warp) * 16 * 128;
  float s[16][4], then[16][4], o[8][4];
  uint32_t p[8][4];
  att_state r = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
  wide_turn t = {-1, -1, 0};
  wide_item before;
  if (!wide_advance(gate, items, t))
    return;
  fl_barrier_wait(gate.k(t.n, 0), gate.parity(t.n));
  wide_scores<D, 64, G>(s, m.q(t.round) + q, m.k(t.n));
  fl_products_wait<0>();
  fl_products_hold(s);
  wide_release(gate, t.n, t.round, t.left == 0);
  while (wide_step<D>(w, m, gate, items, row, room, unit, t, before, r, s, then,
                      o, p) &&
         wide_step<D>(w, m, gate, items, row, room, unit, t, before, r, then, s,
                      o, p))
    ;
  fl_products_wait<0>();
  fl_products_hold(o);
  wide_save<D, 64, G, 0>(w, before, before.first + row, o, r, room);
}

/* Item by item: a tile's scores come behind the weights of the one before it.
 */
template <int D, int W, int G, int STAGES, int MORE>
void wide_consume(const attention_sm90 &w, wide_room<W, G, STAGES> m,
                  wide_gates<STAGES> gate, const wide_item *items, int group) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, n = 0;
  float unit = (float)(MORE >= 2 ? FL_LOG2E : w.a.scale * FL_LOG2E);
  att_random random =
      MORE && w.a.drop.limit ? att_random_of(w.a) : att_random{0, 0};
  int then = (group + 1) % G;
  if (then == 0)
    fl_meet_arrive(1, 256); /* the first group goes first */
  for (int round = 0;; round++) {
    fl_barrier_wait(gate.q(round, 0), gate.q_parity(round));
    wide_item item = items[round & 1];
    if (item.tiles == 0)
      return;
    att_place place = {item.b, item.h, item.first};
    uint32_t q = m.q(round) + group * 64 * 128;
    int query = item.first + 64 * group + 16 * warp;
    float s[16][4], o[W / 8][4] = {};
    uint32_t p[8][4];
    att_state r = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
    wide_mask mask = {};
    if (MORE == 1)
      mask = wide_mask_of(w.a.bits, item.b, item.h, query, w.a.nq);
    int key = (item.tiles - 1) * WIDE_KEYS;
    wide_pairs<D> pairs(w.a, place, query);
    if (MORE == 3)
      pairs.fetch(key, w.a.nk - key);
    fl_barrier_wait(gate.k(n, 0), gate.parity(n));
    wide_scores<D, W, G>(s, q, m.k(n));
    fl_products_wait<0>();
    fl_products_hold(s);
    wide_release(gate, n, round, item.tiles == 1);
    wide_add<D, MORE>(w.a, s, pairs, place, query, key, item.tiles > 1);
    att_cut<128>(s, w.a.nk - key,
                 w.a.causal ? query + (int)w.a.ahead - key : 128);
    wide_soften<MORE>(w.a, s, r, random, mask, place, query, key, unit);
    wide_pack<D, 128>(p, s);
    if (item.tiles > 1)
      fl_barrier_wait(gate.k(n + 1, 0), gate.parity(n + 1));
    for (int t = item.tiles - 1; t > 0; t--, n++) {
      fl_meet(1 + group, 256);
      wide_scores<D, W, G>(s, q, m.k(n + 1));
      fl_barrier_wait(gate.v(n, 0), gate.parity(n));
      wide_values<D, W>(o, p, m.v(n), 1);
      fl_meet_arrive(1 + then, 256);
      fl_products_wait<1>();
      fl_products_hold(s);
      wide_release(gate, n + 1, round, t == 1);
      key -= WIDE_KEYS;
      wide_add<D, MORE>(w.a, s, pairs, place, query, key, t > 1);
      if (w.a.causal && key + WIDE_KEYS > query + (int)w.a.ahead)
        att_cut<128>(s, 128, query + (int)w.a.ahead - key);
      wide_soften<MORE>(w.a, s, r, random, mask, place, query, key, unit);
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
    wide_values<D, W>(o, p, m.v(n), 1);
    fl_products_wait<0>();
    fl_products_hold(o);
    if (lane == 0)
      fl_barrier_arrive(gate.v(n, 1));
    n++;
    wide_save<D, W, G, MORE>(w, item, query, o, r,
                             m.y() + (4 * group + warp) * 16 * 128);
  }
}

/* MORE: 1: there may be a mask of bits, and dropout; 2: any mask, dropout, or a
 * scale that is not positive; 3: the same with a mask in pairs. */
template <int D, int W, int G, int STAGES, int MORE>
__global__ void __launch_bounds__(128 * (G + 1), 1)
    forward(const __grid_constant__ attention_sm90 w) {
#ifdef FL_HOPPER
  extern __shared__ uint4 room[];
  __shared__ uint64_t gates[4 + 4 * STAGES];
  __shared__ wide_item items[2];
  wide_room<W, G, STAGES> m = {(fl_shared(room) + 1023) / 1024 * 1024};
  wide_gates<STAGES> gate = {fl_shared(gates)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 + 4 * STAGES; i++)
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
    if constexpr (MORE == 0 && W == 64 && G == 2)
      wide_stream<D>(w, m, gate, items, threadIdx.x / 128 - 1);
    else
      wide_consume<D, W, G, STAGES, MORE>(w, m, gate, items,
                                          threadIdx.x / 128 - 1);
  }
#endif
}
