/* What all attention kernels share: places of rows, masks, dropout, and the
 * products of 16-bit tiles by 4 warps, each of which owns 16 rows. */
#pragma once

#define FL_MATH 2
#include "../device/mma.cuh"
#include "attention.h"

template <class S> S *att_rows(const attention_rows &r, int64_t b, int64_t h) {
  return (S *)r.data + b * r.batch + h * r.head;
}

/* A block's tile of a head's rows. Those that have most to do come first. */
struct att_place {
  int64_t b, h, first;
};
inline att_place att_here(const attention_args &a, int64_t block, int heads,
                          int rows, bool last_first) {
  int64_t bh = block / a.tiles, tile = block % a.tiles;
  return {bh / heads, bh % heads,
          (last_first ? a.tiles - 1 - tile : tile) * rows};
}

/* Keys before this one are seen by some of `rows` queries from `first`. */
inline int64_t att_keys(const attention_args &a, int64_t first, int rows) {
  int64_t end = first + rows + a.ahead;
  return !a.causal || end > a.nk ? a.nk : end > 0 ? end : 0;
}

/* The first of the queries that see key `first`, in whole tiles of `rows`. */
inline int64_t att_queries(const attention_args &a, int64_t first, int rows) {
  return a.causal && first > a.ahead ? (first - a.ahead) / rows * rows : 0;
}

/* How many keys from `key` on the query sees; negative: none. */
inline int64_t att_keys_left(const attention_args &a, int64_t query,
                             int64_t key) {
  int64_t end = query + a.ahead + 1;
  return (a.causal && end < a.nk ? end : a.nk) - key;
}

/* A scaled score with the mask; -inf where it forbids. */
template <class T>
T att_masked(const attention_args &a, T s, int64_t b, int64_t h, int64_t query,
             int64_t key) {
  const attention_mask &m = a.mask;
  if (!m.data)
    return s;
  int64_t at = b * m.stride[0] + h * m.stride[1] + query * m.stride[2] +
               key * m.stride[3];
  if (m.dtype == FL_BOOL)
    return ((const uint8_t *)m.data)[at] ? s : T(-INFINITY);
  return s + ((const T *)m.data)[at];
}

/* One of 8 lanes' part of the sum of dy * y over a row's columns. */
template <int D>
FL_W(D)
att_dot(const attention_args &a, int64_t b, int64_t h, int64_t row, int lane) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  const S *y = att_rows<S>(a.y, b, h) + row * a.y.row,
          *dy = att_rows<S>(a.dy, b, h) + row * a.dy.row;
  W sum = 0;
  if (sizeof(S) == 2)
    for (int c = lane * 8; c < a.dv_cols; c += 64) {
      fl_vec<S, 8> u = fl_read<S, 8>(y + c), v = fl_read<S, 8>(dy + c);
#pragma unroll
      for (int e = 0; e < 8; e++)
        sum += fl_get<W>(u.at[e]) * fl_get<W>(v.at[e]);
    }
  else
    for (int c = lane; c < a.dv_cols; c += 8)
      sum += fl_get<W>(y[c]) * fl_get<W>(dy[c]);
  return sum;
}

/* Dropout of the virtual array (batch, heads, queries, keys): element e is
 * dropped by half e % 8 of the words of counter offset + e / 8, the lower half
 * of each first. */
struct att_random {
  uint64_t seed, offset;
};
inline att_random att_random_of(const attention_args &a) {
  const attention_drop &d = a.drop;
  return {d.seed_at ? (uint64_t)fl_load<int64_t>(d.seed_at, d.seed_dtype, 0)
                    : d.seed,
          d.offset_at
              ? (uint64_t)fl_load<int64_t>(d.offset_at, d.offset_dtype, 0)
              : d.offset};
}
inline int64_t att_element(const attention_args &a, int64_t b, int64_t h,
                           int64_t query, int64_t key) {
  return ((b * a.heads + h) * a.nq + query) * a.nk + key;
}
/* The greatest word whose upper half is dropped, if there is dropout. */
inline uint32_t att_last(const attention_args &a) {
  return ((uint32_t)a.drop.limit << 16) - 1;
}
inline uint64_t att_counter(const att_random &r, int64_t e) {
  return r.offset + (uint64_t)e / 8;
}
/* Bit i: the i-th of a counter's eight elements stays. */
inline uint32_t att_kept8(uint64_t seed, uint64_t counter, uint32_t last) {
  uint32_t w[4], bits = 0;
  fl_philox_of(FL_DROPOUT_ROUNDS, seed, counter, 0, w);
#pragma unroll
  for (int i = 0; i < 4; i++)
    bits |= (uint32_t)(w[i] << 16 > last) << 2 * i | (uint32_t)(w[i] > last)
                                                         << (2 * i + 1);
  return bits;
}
inline uint32_t att_kept(const attention_args &a, const att_random &r,
                         int64_t e) {
  return att_kept8(r.seed, att_counter(r, e), att_last(a)) >> (e & 7) & 1;
}
template <class T> T att_keep(const attention_args &a, uint32_t bits, int i) {
  return bits >> i & 1 ? (T)a.drop.keep : T(0);
}

/* --- tiles of 16-bit elements in shared memory, for 128 threads --- */

#define ATT_THREADS 128
#define ATT_ROWS    64 /* of a block: 16 for each warp */

/* Bit 4 j + e: element e of s[j] of the warp's tile stays. FLIP: rows are keys.
 * Loops, since random numbers are long code; AT_ONCE of them hide each other's
 * latency. Eight keys in a row have one counter if that is so in every row:
 * then lanes that share counters share the work, and byte i of `own` is one
 * that the others read as well. Keys begin at a multiple of 8. */
template <int N, int FLIP, int AT_ONCE>
uint32_t att_kept_tile(const attention_args &a, const att_random &r, int64_t b,
                       int64_t h, int64_t query, int64_t key) {
  int lane = threadIdx.x & 31, quad = lane / 4, four = lane % 4;
  uint32_t bits = 0, own = 0;
  if (a.nk % 8) {
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
      int row = quad + 8 * (i >> 1 & 1),
          col = 8 * (i >> 2) + 2 * four + (i & 1);
      bits |= att_kept(a, r,
                       att_element(a, b, h, query + (FLIP ? col : row),
                                   key + (FLIP ? row : col)))
              << i;
    }
    return bits;
  }
  /* a lane's j: of its parity, 2 i + odd; FLIP: for element quad % 4 of its
   * column, else for rows quad + 8 (four % 2) */
  int odd = FLIP ? quad / 4 : four / 2;
  query += FLIP ? 2 * four + (quad & 1) : quad + 8 * (four & 1);
  key += FLIP ? 8 * (quad >> 1 & 1) : 0;
  uint64_t step = FLIP ? (uint64_t)a.nk : 1,
           counter =
               att_counter(r, att_element(a, b, h, query, key)) + step * odd;
  uint32_t last = att_last(a);
#pragma unroll AT_ONCE
  for (int i = 0; i < N / 16; i++)
    own |= att_kept8(r.seed, counter + step * (2 * i), last) << 8 * i;
#pragma unroll
  for (int k = 0; k < (FLIP ? 8 : 4); k++) {
    uint32_t theirs =
        __shfl_sync(0xffffffff, own, FLIP ? four + 4 * k : (lane & ~3) + k);
    bits |= FLIP ? (theirs >> quad & 0x01010101) << k
                 : (theirs >> 2 * four & 0x03030303) << 2 * k;
  }
  return bits;
}

/* --- a warp's 16 queries and N keys: the running softmax --- */

/* Of the rows lane / 4 and lane / 4 + 8. */
struct att_state {
  float top[2], sum[2]; /* sum: this lane's part */
  float ratio[2];       /* what was summed before counts as much */
};

/* Masked scores become -inf: from column `left` on, and those more than `ahead`
 * columns after their row. */
template <int N>
void att_cut(float (&s)[N / 8][4], int64_t left, int64_t ahead) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t end = ahead + lane / 4 + 8 * half + 1;
    end = (end < left ? end : left) - 2 * (lane % 4);
    int seen = end < 0 ? 0 : end < N ? (int)end : N;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        if (8 * j + e >= seen)
          s[j][2 * half + e] = -INFINITY;
  }
}

/* Scores scaled, and the mask. */
template <int D, int N>
void att_add_mask(const attention_args &a, float (&s)[N / 8][4],
                  const att_place &p, int64_t query, int64_t key) {
  const attention_mask &m = a.mask;
  int lane = threadIdx.x & 31;
  int64_t col = key + 2 * (lane % 4),
          at = p.b * m.stride[0] + p.h * m.stride[1] + col * m.stride[3];
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[j][e] *= (float)a.scale;
  if (!m.data)
    return;
  int left = a.nk - col < N ? (int)(a.nk - col) : N;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t row = query + lane / 4 + 8 * half,
            from = at + (row < a.nq ? row : 0) * m.stride[2];
    if (m.dtype == FL_BOOL) {
      const uint8_t *seen = (const uint8_t *)m.data + from;
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left && !seen[(8 * j + e) * m.stride[3]])
            s[j][2 * half + e] = -INFINITY;
    } else if (m.dtype == FL_F32) {
      const float *more = (const float *)m.data + from;
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left)
            s[j][2 * half + e] += more[(8 * j + e) * m.stride[3]];
    } else {
      const FL_S(D) *more = (const FL_S(D) *)m.data + from;
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (8 * j + e < left)
            s[j][2 * half + e] +=
                fl_get<float>(more[(8 * j + e) * m.stride[3]]);
    }
  }
}

/* Scores to weights exp(s - top), with the state brought up to date. `unit`
 * makes scores powers of two; EXACT: differences first, since scores may be as
 * large as floats get. Rows that see nothing keep top -inf, sum 0. */
template <int N, int EXACT>
void att_soften(att_state &r, float (&s)[N / 8][4], float unit) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float next = r.top[half], more = 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
      next = fmaxf(next, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    next = fmaxf(next, __shfl_xor_sync(0xffffffff, next, 1));
    next = fmaxf(next, __shfl_xor_sync(0xffffffff, next, 2));
    float base = next == -INFINITY ? 0 : next, less = base * unit;
    r.ratio[half] = fl_exp2_fast(EXACT ? (r.top[half] - base) * unit
                                       : fmaf(r.top[half], unit, -less));
    r.top[half] = next;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &x = s[j][2 * half + e];
        x = fl_exp2_fast(EXACT ? (x - base) * unit : fmaf(x, unit, -less));
        more += x;
      }
    r.sum[half] = fmaf(r.sum[half], r.ratio[half], more);
  }
}

template <int W> void att_shrink(float (&o)[W / 8][4], const att_state &r) {
#pragma unroll
  for (int j = 0; j < W / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      o[j][e] *= r.ratio[e >> 1];
}

/* Weights that are dropped become 0; the others grow in the end, by att_grown.
 */
template <int N, int AT_ONCE>
void att_drop(const attention_args &a, const att_random &r,
              float (&s)[N / 8][4], const att_place &p, int64_t query,
              int64_t key) {
#pragma unroll
  for (int from = 0; from < N; from += 64) {
    uint32_t bits = att_kept_tile<(N < 64 ? N : 64), 0, AT_ONCE>(
        a, r, p.b, p.h, query, key + from);
#pragma unroll
    for (int i = 0; i < N / 2 && i < 32; i++)
      if (!(bits >> i & 1))
        s[from / 8 + i / 4][i % 4] = 0;
  }
}
inline float att_grown(const attention_args &a) {
  return a.drop.limit ? (float)a.drop.keep : 1;
}

/* --- backward: weights again, from lse --- */

/* exp(score - lse), 0 for a query that saw nothing. With MORE scores are scaled
 * already; else EXACT: `unit` does that, not EXACT: it makes powers of two. */
template <int MORE, int EXACT>
float att_weight(float s, float lse, float unit) {
  if (!MORE && !EXACT)
    return fl_exp2_fast(fmaf(s, unit, -lse * (float)FL_LOG2E));
  return fl_exp2_fast((MORE ? s - lse : fmaf(s, unit, -lse)) * (float)FL_LOG2E);
}

/* lse of a query, such that weights of one that saw nothing, or that is not
 * there, are 0. */
inline float att_lse(const attention_args &a, int64_t bh, int64_t query) {
  if (query >= a.nq)
    return INFINITY;
  float lse = ((const float *)a.lse)[bh * a.nq + query];
  return lse == -INFINITY ? INFINITY : lse;
}

/* lse and delta of N queries, for a tile of keys. */
template <int N>
void att_fetch_rows(float *lse, const attention_args &a, int64_t b, int64_t h,
                    int64_t query) {
  if (threadIdx.x < N) {
    int64_t bh = b * a.heads + h, i = query + threadIdx.x;
    lse[threadIdx.x] = att_lse(a, bh, i);
    lse[N + threadIdx.x] =
        i < a.nq ? ((const float *)a.delta)[bh * a.nq + i] : 0;
  }
}

/* Scores s and products dp = dy v^T become dropped weights and gradients of
 * scaled scores. `query` and `key` are those of the warp's first element; FLIP:
 * rows are keys, else queries. */
template <int N, int MORE, int FLIP, int EXACT>
void att_grade(const attention_args &a, const att_random &r, int64_t b,
               int64_t h, int64_t query, int64_t key, bool cut, float unit,
               const float *lse, const float *delta, float (&s)[N / 8][4],
               float (&dp)[N / 8][4]) {
  int lane = threadIdx.x & 31;
  uint32_t bits = MORE && a.drop.limit
                      ? att_kept_tile<N, FLIP, 1>(a, r, b, h, query, key)
                      : 0;
  /* columns that rows lane / 4 and lane / 4 + 8 see */
  int end[2] = {N, N};
#pragma unroll
  for (int half = 0; half < 2 && !FLIP; half++) {
    int64_t left = att_keys_left(a, query + lane / 4 + 8 * half, key);
    end[half] = (left < N ? (int)left : N) - 2 * (lane % 4);
  }
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int row = lane / 4 + 8 * (e >> 1), col = 8 * j + 2 * (lane % 4) + (e & 1),
          q = FLIP ? col : row, place = FLIP ? q : e >> 1;
      int64_t i = query + q, at = key + (FLIP ? row : col);
      float x = s[j][e], keep = 1;
      if (MORE) {
        x *= (float)a.scale;
        if (i < a.nq && at < a.nk)
          x = att_masked(a, x, b, h, i, at);
        if (a.drop.limit)
          keep = att_keep<float>(a, bits, 4 * j + e);
      }
      float p = att_weight<MORE, EXACT>(x, lse[place], unit);
      bool hidden = at >= a.nk || (a.causal && at > i + a.ahead);
      if (cut && (FLIP ? hidden : 8 * j + (e & 1) >= end[e >> 1]))
        p = 0;
      s[j][e] = p * keep;
      dp[j][e] = p * (dp[j][e] * keep - delta[place]);
    }
}

/* --- copies and products --- */

/* Rows first.. of one head, W columns; zeros after `rows` rows and `cols`
 * columns (a multiple of 8). Queues copies. */
template <int ROWS, int W>
void att_fetch(uint32_t to, const uint16_t *from, int64_t stride, int64_t first,
               int64_t rows, int cols) {
  int left = rows - first < ROWS ? (int)(rows - first) : ROWS;
  from += first * stride;
#pragma unroll
  for (int i = 0; i < ROWS * (W / 8); i += ATT_THREADS) {
    int n = i + threadIdx.x, row = n / (W / 8), chunk = n % (W / 8);
    if (ROWS * (W / 8) % ATT_THREADS && n >= ROWS * (W / 8))
      break;
    bool valid = row < left && chunk * 8 < cols;
    fl_copy16(to + fl_swizzle<W * 2>(row, chunk),
              from + (valid ? (int64_t)row * (int)stride + chunk * 8 : 0),
              valid);
  }
}

/* N keys and their values, as one group of copies. */
template <int W, int N>
void att_fetch_keys(uint32_t to, const attention_args &a, const att_place &p,
                    int64_t key) {
  int64_t h = p.h / a.group;
  att_fetch<N, W>(to, att_rows<uint16_t>(a.k, p.b, h), a.k.row, key, a.nk, a.d);
  att_fetch<N, W>(to + N * W * 2, att_rows<uint16_t>(a.v, p.b, h), a.v.row, key,
                  a.nk, a.dv_cols);
  fl_copy_commit();
}

/* A row of a swizzled tile: chunks 2 k + high by k. For k known to the compiler
 * most of an address is an immediate. */
template <int ROW> struct att_chunks {
  static constexpr int mask = ROW % 128 == 0 ? 7 : ROW % 64 == 0 ? 3 : 1;
  uint32_t at, turn;
  inline att_chunks(uint32_t tile, int row, int high)
      : at(tile + row * ROW), turn(fl_swizzle<ROW>(row, high) - row * ROW) {
  }
  inline uint32_t operator()(int k) const {
    return at + ((2 * k & ~mask) << 4) + ((2 * k & mask) << 4 ^ turn);
  }
};

/* c (16, N) = a (16, W) b (N, W)^T; a's rows start at `row` of its tile. */
template <int D, int N, int W>
void att_scores(float (&c)[N / 8][4], uint32_t a, int row, uint32_t b) {
  int lane = threadIdx.x & 31;
  att_chunks<W * 2> as(a, row + (lane & 15), lane >> 4),
      bs(b, (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      c[j][e] = 0;
#pragma unroll
  for (int k = 0; k < W / 16; k++) {
    uint32_t fa[4], fb[4];
    fl_ldmatrix(fa, as(k));
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
      fl_ldmatrix(fb, bs(k) + 16 * j * W * 2);
      fl_mma<D>(c[2 * j], fa, fb[0], fb[1]);
      fl_mma<D>(c[2 * j + 1], fa, fb[2], fb[3]);
    }
  }
}

/* c (16, COLS) += p (16, K) b (K, W) from column `from` of b, a multiple of 32;
 * p is the sums of a product, rounded. */
template <int D, int K, int W, int COLS>
void att_update(float (&c)[COLS / 8][4], const float (&p)[K / 8][4], uint32_t b,
                int from) {
  int lane = threadIdx.x & 31;
  att_chunks<W * 2> bs(b, lane & 15, lane >> 4);
#pragma unroll
  for (int k = 0; k < K / 16; k++) {
    uint32_t fa[4] = {fl_pack<D>(p[2 * k][0], p[2 * k][1]),
                      fl_pack<D>(p[2 * k][2], p[2 * k][3]),
                      fl_pack<D>(p[2 * k + 1][0], p[2 * k + 1][1]),
                      fl_pack<D>(p[2 * k + 1][2], p[2 * k + 1][3])};
    uint32_t fb[4];
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
      fl_ldmatrix_trans(fb, bs(from / 16 + j) + 16 * k * W * 2);
      fl_mma<D>(c[2 * j], fa, fb[0], fb[1]);
      fl_mma<D>(c[2 * j + 1], fa, fb[2], fb[3]);
    }
  }
}

/* Writes the warp's 16 rows of sums, times factor[0] and, rows 8.., factor[1],
 * as rows first.. of memory with `stride`, by way of `room` (16 rows of COLS
 * elements, the warp's own). */
template <int D, int COLS>
void att_save(const float (&c)[COLS / 8][4], const float (&factor)[2],
              uint16_t *room, uint16_t *to, int64_t stride, int64_t first,
              int64_t rows, int cols) {
  int lane = threadIdx.x & 31;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      *(uint32_t *)((char *)room +
                    fl_swizzle<COLS * 2>(lane / 4 + 8 * half, j) +
                    4 * (lane % 4)) =
          fl_pack<D>(c[j][2 * half] * factor[half],
                     c[j][2 * half + 1] * factor[half]);
  __syncwarp();
  for (int n = lane; n < 16 * (COLS / 8); n += 32) {
    int row = n / (COLS / 8), chunk = n % (COLS / 8), left = cols - chunk * 8;
    if (first + row >= rows || left <= 0)
      continue;
    uint16_t *at = to + (first + row) * stride + chunk * 8;
    const uint16_t *from =
        (const uint16_t *)((char *)room + fl_swizzle<COLS * 2>(row, chunk));
    if (cols % 8 == 0) /* then so are all strides of a result */
      *(uint4 *)at = *(const uint4 *)from;
    else
      for (int i = 0; i < 8 && i < left; i++)
        at[i] = from[i];
  }
}
