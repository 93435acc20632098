/* Attention for f32 and f64, forward and backward, with any number of columns:
 * tiles of 16 R x 64 scores for 256 threads; operands go through shared memory.
 * f32 is multiplied by tensor cores, each number as the sum of two of 11 bits:
 * three products of them have all but 2^-22 of it (as "3xTF32" in CUTLASS). The
 * same division of the work as for 16-bit floats: no atomics. */
#include "attention.cuh"

#define SIDE  64 /* columns of a tile, and of a part of a result */
#define DEPTH 16 /* of what is in shared memory at once */

/* What a thread has of a tile, and where: R x 4 beside each other. A row's
 * LANES are neighbours. */
template <class T, int R> struct att_tile {
  enum { ROWS = R, COLS = 4, LANES = 16 };
  T at[ROWS][COLS];
  static int row(int i) {
    return threadIdx.x / 16 * R + i;
  }
  static int col(int j) {
    return threadIdx.x % 16 * 4 + j;
  }
};
/* As tensor cores have it: a warp has 16 rows, a thread two of them. */
template <int R> struct att_tile<float, R> {
  enum { ROWS = R / 4, COLS = 16, LANES = 4 };
  static_assert(R == 8, "eight warps of sixteen rows");
  float at[ROWS][COLS];
  static int row(int i) {
    return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
  }
  static int col(int j) {
    return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
  }
};

/* Rows of one head of an operand, from one of them. */
template <class T> struct att_strip {
  const T *data;
  int64_t stride, rows; /* rows there are from here */
  int cols;
  bool whole; /* in 16 bytes */
};
template <class T>
att_strip<T> att_strip_of(const attention_rows &r, int64_t b, int64_t h,
                          int64_t first, int64_t rows, int cols) {
  const int unit = 16 / sizeof(T);
  const T *from = att_rows<T>(r, b, h) + first * r.row;
  return {from, r.row, rows - first, cols,
          r.row % unit == 0 && cols % unit == 0 && (uint64_t)from % 16 == 0};
}

/* Rows are so far apart that what a warp reads at once is in different banks.
 */
template <class T, int NC, int R> struct att_shared {
  T a[DEPTH][16 * R + 8], b[DEPTH][SIDE + 8];
  T p[SIDE][16 * R + 8]; /* transposed: a column of the tile is a row */
  T c[DEPTH][NC * SIDE + 4];
};
template <int NC, int R> struct att_shared<float, NC, R> {
  float a[DEPTH][16 * R + 8], b[DEPTH][SIDE + 8];
  float c[DEPTH][NC * SIDE + 4];
};

/* 16 bytes of row `row` from column `col` on, or what there is of them. */
template <class T>
fl_vec<T, 16 / sizeof(T)> att_piece(const att_strip<T> &s, int row, int col) {
  fl_vec<T, 16 / sizeof(T)> v = {};
  const T *from = s.data + row * s.stride + col;
  if (row >= s.rows)
    return v;
  if (s.whole && col < s.cols)
    return fl_read<T, 16 / sizeof(T)>(from);
#pragma unroll
  for (int e = 0; e < 16 / sizeof(T); e++)
    if (col + e < s.cols)
      v.at[e] = from[e];
  return v;
}

/* Columns k.. of N rows, transposed. */
template <int N, class T>
void att_flip(T (&to)[DEPTH][N + 8], const att_strip<T> &s, int k) {
  enum { V = 16 / sizeof(T) };
#pragma unroll
  for (int i = threadIdx.x; i < N * DEPTH / V; i += 256) {
    int row = i % N, col = i / N * V;
    fl_vec<T, V> v = att_piece(s, row, k + col);
#pragma unroll
    for (int e = 0; e < V; e++)
      to[col + e][row] = v.at[e];
  }
}

/* Rows k.., columns `from`.. as they lie. */
template <int N, class T>
void att_lay(T (&to)[DEPTH][N + 4], const att_strip<T> &s, int k, int from) {
  enum { V = 16 / sizeof(T) };
#pragma unroll
  for (int i = threadIdx.x; i < N * DEPTH / V; i += 256) {
    int row = i / (N / V), col = i % (N / V) * V;
    fl_write<T, V>(&to[row][col], att_piece(s, k + row, from + col));
  }
}

/* --- products of tiles in tensor cores --- */

inline void att_split(float x, uint32_t &high, uint32_t &low) {
  high = fl_tf32(x);
  float most = __uint_as_float(high);
  low = fl_tf32(most == x ? 0 : x - most); /* infinities have no rest */
}

/* Columns 8 n.. of s += a (16, 8) * b (8, 8): the small parts first. */
struct att_left {
  uint32_t high[4], low[4];
  inline att_left(float x0, float x1, float x2, float x3) {
    att_split(x0, high[0], low[0]);
    att_split(x1, high[1], low[1]);
    att_split(x2, high[2], low[2]);
    att_split(x3, high[3], low[3]);
  }
  inline void by(float b0, float b1, float (&s)[2][16], int n) const {
    uint32_t h0, h1, l0, l1;
    att_split(b0, h0, l0);
    att_split(b1, h1, l1);
    float c[4] = {s[0][2 * n], s[0][2 * n + 1], s[1][2 * n], s[1][2 * n + 1]};
    fl_mma_tf32(c, low, h0, h1);
    fl_mma_tf32(c, high, l0, l1);
    fl_mma_tf32(c, high, h0, h1);
    s[0][2 * n] = c[0];
    s[0][2 * n + 1] = c[1];
    s[1][2 * n] = c[2];
    s[1][2 * n + 1] = c[3];
  }
};

/* s += a b^T, of what is in shared memory. */
template <int NC, int R>
void att_multiply(const att_shared<float, NC, R> &m, att_tile<float, R> &s) {
  const int quad = threadIdx.x % 32 / 4, four = threadIdx.x % 4, row = s.row(0);
#pragma unroll
  for (int k = four; k < DEPTH + four; k += 8) {
    att_left a(m.a[k][row], m.a[k][row + 8], m.a[k + 4][row],
               m.a[k + 4][row + 8]);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
      a.by(m.b[k][8 * n + quad], m.b[k + 4][8 * n + quad], s.at, n);
  }
}
template <class T, int NC, int R>
void att_multiply(const att_shared<T, NC, R> &m, att_tile<T, R> &s) {
#pragma unroll
  for (int d = 0; d < DEPTH; d++)
#pragma unroll
    for (int i = 0; i < 4 * R; i++)
      s.at[i / 4][i % 4] += m.a[d][s.row(i / 4)] * m.b[d][s.col(i % 4)];
}

/* s = a b^T */
template <class T, int NC, int R>
void att_scores(att_shared<T, NC, R> &m, att_tile<T, R> &s,
                const att_strip<T> &a, const att_strip<T> &b) {
  s = {};
  for (int k = 0; k < a.cols; k += DEPTH) {
    __syncthreads();
    att_flip<16 * R>(m.a, a, k);
    att_flip<SIDE>(m.b, b, k);
    __syncthreads();
    att_multiply(m, s);
  }
}

/* sum += p b, columns `from`.. of b; sum[c] has columns 64 c... A thread's two
 * columns of p are columns `four` and `four` + 4 of what is multiplied, and so
 * are the rows of b. */
template <int NC, int R>
void att_update(att_shared<float, NC, R> &m, att_tile<float, R> (&sum)[NC],
                const att_tile<float, R> &p, const att_strip<float> &b,
                int from) {
  const int quad = threadIdx.x % 32 / 4, two = threadIdx.x % 4 * 2;
#pragma unroll
  for (int k = 0; k < SIDE; k += DEPTH) {
    if (k >= b.rows)
      break;
    __syncthreads();
    att_lay<NC * SIDE>(m.c, b, k, from);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d += 8) {
      const int j = (k + d) / 4;
      att_left a(p.at[0][j], p.at[1][j], p.at[0][j + 1], p.at[1][j + 1]);
#pragma unroll
      for (int c = 0; c < NC; c++)
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
          a.by(m.c[d + two][c * SIDE + 8 * n + quad],
               m.c[d + two + 1][c * SIDE + 8 * n + quad], sum[c].at, n);
    }
  }
}
template <class T, int NC, int R>
void att_update(att_shared<T, NC, R> &m, att_tile<T, R> (&sum)[NC],
                const att_tile<T, R> &p, const att_strip<T> &b, int from) {
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4 * R; i++)
    m.p[p.col(i % 4)][p.row(i / 4)] = p.at[i / 4][i % 4];
  for (int k = 0; k < SIDE && k < b.rows; k += DEPTH) {
    __syncthreads();
    att_lay<NC * SIDE>(m.c, b, k, from);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
      for (int c = 0; c < NC; c++)
#pragma unroll
        for (int i = 0; i < 4 * R; i++)
          sum[c].at[i / 4][i % 4] +=
              m.p[k + d][p.row(i / 4)] * m.c[d][c * SIDE + p.col(i % 4)];
  }
}

template <class T, int NC, int R>
void att_save(const att_tile<T, R> (&sum)[NC],
              const T (&factor)[att_tile<T, R>::ROWS], const attention_rows &r,
              const att_place &p, int64_t rows, int cols, int from) {
  typedef att_tile<T, R> tile;
  T *to = att_rows<T>(r, p.b, p.h);
#pragma unroll
  for (int c = 0; c < NC; c++)
#pragma unroll
    for (int i = 0; i < tile::ROWS * tile::COLS; i++) {
      int64_t row = p.first + tile::row(i / tile::COLS);
      int col = from + c * SIDE + tile::col(i % tile::COLS);
      if (row < rows && col < cols)
        to[row * r.row + col] =
            sum[c].at[i / tile::COLS][i % tile::COLS] * factor[i / tile::COLS];
    }
}

/* Scaled scores with the mask; what may not be seen, and what is not there, is
 * -inf. FLIP: rows of the tile are keys. */
template <class T, int FLIP, int R>
void att_limit(const attention_args &a, att_tile<T, R> &s, int64_t b, int64_t h,
               int64_t query, int64_t key) {
#pragma unroll
  for (int i = 0; i < 4 * R; i++) {
    int row = s.row(i / s.COLS), col = s.col(i % s.COLS);
    int64_t q = query + (FLIP ? col : row), k = key + (FLIP ? row : col);
    bool seen = q < a.nq && k < a.nk && !(a.causal && k > q);
    T &x = s.at[i / s.COLS][i % s.COLS];
    x = seen ? att_masked<T>(a, x * (T)a.scale, b, h, q, k) : T(-INFINITY);
  }
}

/* Bit i: element i of this thread's 4 R stays. A loop, since random numbers are
 * long code. */
template <class T, int FLIP, int R>
uint32_t att_kept_own(const attention_args &a, const att_random &r, int64_t b,
                      int64_t h, int64_t query, int64_t key) {
  typedef att_tile<T, R> tile;
  uint32_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < 4 * R; i++) {
    int row = tile::row(i / tile::COLS), col = tile::col(i % tile::COLS);
    int64_t e = att_element(a, b, h, query + (FLIP ? col : row),
                            key + (FLIP ? row : col));
    bits |= att_kept(a, r, e) << i;
  }
  return bits;
}

/* A block has 16 R queries and NC * 64 columns of the result. */
template <int D, int NC, int R>
__global__ void __launch_bounds__(256, D == FL_F32 && NC == 1 ? 2 : 1)
    forward(const __grid_constant__ attention_args a) {
  typedef FL_W(D) T;
  extern __shared__ double room[];
  att_shared<T, NC, R> &m = *(att_shared<T, NC, R> *)room;
  typedef att_tile<T, R> tile;
  int part = blockIdx.x % a.chunks, from = part * NC * SIDE;
  att_place p = att_here(a, blockIdx.x / a.chunks, a.heads, 16 * R, a.causal);
  att_random r = a.drop.limit ? att_random_of(a) : att_random{0, 0};
  int64_t end = att_keys(a, p.first, 16 * R), hk = p.h / a.group;
  att_strip<T> q = att_strip_of<T>(a.q, p.b, p.h, p.first, a.nq, a.d);
  tile o[NC] = {}, s;
  T top[tile::ROWS], sum[tile::ROWS] = {};
#pragma unroll
  for (int i = 0; i < tile::ROWS; i++)
    top[i] = -INFINITY;
  for (int64_t key = 0; key < end; key += SIDE) {
    att_scores(m, s, q, att_strip_of<T>(a.k, p.b, hk, key, a.nk, a.d));
    att_limit<T, 0, R>(a, s, p.b, p.h, p.first, key);
    uint32_t bits =
        a.drop.limit ? att_kept_own<T, 0, R>(a, r, p.b, p.h, p.first, key) : 0;
#pragma unroll
    for (int i = 0; i < tile::ROWS; i++) {
      T next = top[i], part = 0;
#pragma unroll
      for (int j = 0; j < tile::COLS; j++)
        next = s.at[i][j] > next ? s.at[i][j] : next;
      next = fl_warp_reduce<tile::LANES>(next, fl_max_of());
      T base = next == T(-INFINITY) ? T(0) : next;
      T ratio = fl_exp(top[i] - base);
      top[i] = next;
#pragma unroll
      for (int j = 0; j < tile::COLS; j++) {
        T w = fl_exp(s.at[i][j] - base);
        part += w;
        s.at[i][j] =
            a.drop.limit ? w * att_keep<T>(a, bits, tile::COLS * i + j) : w;
      }
      sum[i] = sum[i] * ratio + part;
#pragma unroll
      for (int c = 0; c < NC; c++)
#pragma unroll
        for (int j = 0; j < tile::COLS; j++)
          o[c].at[i][j] *= ratio;
    }
    att_update(m, o, s, att_strip_of<T>(a.v, p.b, hk, key, a.nk, a.dv_cols),
               from);
  }
  T factor[tile::ROWS];
#pragma unroll
  for (int i = 0; i < tile::ROWS; i++) {
    T all = fl_warp_reduce<tile::LANES>(sum[i], fl_sum_of());
    int64_t row = p.first + tile::row(i);
    factor[i] = all == 0 ? T(0) : 1 / all;
    if (part == 0 && threadIdx.x % tile::LANES == 0 && row < a.nq)
      ((T *)a.lse)[(p.b * a.heads + p.h) * a.nq + row] = top[i] + fl_log(all);
  }
  att_save<T, NC, R>(o, factor, a.y, p, a.nq, a.dv_cols, from);
}

/* --- backward --- */

/* Scores and dy v^T become dropped weights and gradients of scores. */
template <class T, int FLIP, int R>
void att_grade(const attention_args &a, const att_random &r, att_tile<T, R> &s,
               att_tile<T, R> &dp, int64_t b, int64_t h, int64_t query,
               int64_t key) {
  uint32_t bits =
      a.drop.limit ? att_kept_own<T, FLIP, R>(a, r, b, h, query, key) : 0;
  att_limit<T, FLIP, R>(a, s, b, h, query, key);
#pragma unroll
  for (int i = 0; i < 4 * R; i++) {
    int row = i / s.COLS, col = i % s.COLS;
    int64_t q = query + (FLIP ? s.col(col) : s.row(row)),
            at = (b * a.heads + h) * a.nq + q;
    T lse = q < a.nq ? ((const T *)a.lse)[at] : T(0),
      delta = q < a.nq ? ((const T *)a.delta)[at] : T(0);
    T p = fl_exp(s.at[row][col] - (lse == T(-INFINITY) ? T(0) : lse));
    T k = a.drop.limit ? att_keep<T>(a, bits, i) : T(1);
    s.at[row][col] = p * k;
    dp.at[row][col] = p * (dp.at[row][col] * k - delta) * (T)a.scale;
  }
}

/* A block has 16 R keys and NC * 64 columns of dk and dv. */
template <int D, int NC, int R>
__global__ void __launch_bounds__(256)
    keys(const __grid_constant__ attention_args a) {
  typedef FL_W(D) T;
  extern __shared__ double room[];
  att_shared<T, NC, R> &m = *(att_shared<T, NC, R> *)room;
  int from = blockIdx.x % a.chunks * NC * SIDE;
  att_place p =
      att_here(a, blockIdx.x / a.chunks, a.heads / a.group, 16 * R, false);
  att_random r = a.drop.limit ? att_random_of(a) : att_random{0, 0};
  att_strip<T> k = att_strip_of<T>(a.k, p.b, p.h, p.first, a.nk, a.d),
               v = att_strip_of<T>(a.v, p.b, p.h, p.first, a.nk, a.dv_cols);
  typedef att_tile<T, R> tile;
  tile dk[NC] = {}, dv[NC] = {}, s, dp;
  for (int g = 0; g < a.group; g++) {
    int64_t h = p.h * a.group + g;
    for (int64_t i = a.causal ? p.first / SIDE * SIDE : 0; i < a.nq;
         i += SIDE) {
      att_strip<T> q = att_strip_of<T>(a.q, p.b, h, i, a.nq, a.d),
                   dy = att_strip_of<T>(a.dy, p.b, h, i, a.nq, a.dv_cols);
      att_scores(m, s, k, q);
      att_scores(m, dp, v, dy);
      att_grade<T, 1, R>(a, r, s, dp, p.b, h, i, p.first);
      att_update(m, dv, s, dy, from);
      att_update(m, dk, dp, q, from);
    }
  }
  T one[tile::ROWS];
#pragma unroll
  for (int i = 0; i < tile::ROWS; i++)
    one[i] = 1;
  att_save<T, NC, R>(dk, one, a.dk, p, a.nk, a.d, from);
  att_save<T, NC, R>(dv, one, a.dv, p, a.nk, a.dv_cols, from);
}

/* A block has 16 R queries and NC * 64 columns of dq. */
template <int D, int NC, int R>
__global__ void __launch_bounds__(256)
    queries(const __grid_constant__ attention_args a) {
  typedef FL_W(D) T;
  extern __shared__ double room[];
  att_shared<T, NC, R> &m = *(att_shared<T, NC, R> *)room;
  int from = blockIdx.x % a.chunks * NC * SIDE;
  att_place p = att_here(a, blockIdx.x / a.chunks, a.heads, 16 * R, a.causal);
  att_random r = a.drop.limit ? att_random_of(a) : att_random{0, 0};
  int64_t end = att_keys(a, p.first, 16 * R), hk = p.h / a.group;
  att_strip<T> q = att_strip_of<T>(a.q, p.b, p.h, p.first, a.nq, a.d),
               dy = att_strip_of<T>(a.dy, p.b, p.h, p.first, a.nq, a.dv_cols);
  typedef att_tile<T, R> tile;
  tile dq[NC] = {}, s, dp;
  for (int64_t key = 0; key < end; key += SIDE) {
    att_strip<T> k = att_strip_of<T>(a.k, p.b, hk, key, a.nk, a.d);
    att_scores(m, s, q, k);
    att_scores(m, dp, dy, att_strip_of<T>(a.v, p.b, hk, key, a.nk, a.dv_cols));
    att_grade<T, 0, R>(a, r, s, dp, p.b, p.h, p.first, key);
    att_update(m, dq, dp, k, from);
  }
  T one[tile::ROWS];
#pragma unroll
  for (int i = 0; i < tile::ROWS; i++)
    one[i] = 1;
  att_save<T, NC, R>(dq, one, a.dq, p, a.nq, a.d, from);
}
