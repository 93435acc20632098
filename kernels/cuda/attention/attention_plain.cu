/* Attention for f64, and f32 of many columns, forward and backward, without
 * tensor cores: tiles of 16 R x 64 scores, R x 4 to each of 256 threads; what
 * multiplies rows of another operand goes through shared memory. Any number of
 * columns. The same division of the work as for 16-bit floats: no atomics. */
#include "attention.cuh"

#define SIDE  64 /* columns of a tile, and of a part of a result */
#define DEPTH 16 /* of what is in shared memory at once */

/* Rows of one head of an operand, from one of them. */
template <class T> struct att_strip {
  const T *data;
  int64_t stride, rows; /* rows there are from here */
  int cols;
};
template <class T>
att_strip<T> att_strip_of(const attention_rows &r, int64_t b, int64_t h,
                          int64_t first, int64_t rows, int cols) {
  return {att_rows<T>(r, b, h) + first * r.row, r.row, rows - first, cols};
}

template <class T, int NC, int R> struct att_shared {
  T a[DEPTH][16 * R + 4], b[DEPTH][SIDE + 4];
  T p[SIDE][16 * R + 4]; /* transposed: a column of the tile is a row */
  T c[DEPTH][NC * SIDE];
};

/* Columns k.. of N rows, transposed. */
template <int N, class T>
void att_flip(T (&to)[DEPTH][N + 4], const att_strip<T> &s, int k) {
#pragma unroll
  for (int i = threadIdx.x; i < N * DEPTH; i += 256) {
    int row = i / DEPTH, col = i % DEPTH;
    to[col][row] = row < s.rows && k + col < s.cols
                       ? s.data[row * s.stride + k + col]
                       : T(0);
  }
}

/* s = a b^T */
template <class T, int NC, int R>
void att_scores(att_shared<T, NC, R> &m, T (&s)[R][4], const att_strip<T> &a,
                const att_strip<T> &b) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4 * R; i++)
    s[i / 4][i % 4] = 0;
  for (int k = 0; k < a.cols; k += DEPTH) {
    __syncthreads();
    att_flip<16 * R>(m.a, a, k);
    att_flip<SIDE>(m.b, b, k);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
      for (int i = 0; i < 4 * R; i++)
        s[i / 4][i % 4] += m.a[d][ty + i / 4] * m.b[d][tx + i % 4];
  }
}

/* The tile p to shared memory, for att_update. */
template <class T, int NC, int R>
void att_share(att_shared<T, NC, R> &m, const T (&p)[R][4]) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4 * R; i++)
    m.p[tx + i % 4][ty + i / 4] = p[i / 4][i % 4];
}

/* sum += p b, columns `from`.. of b; column 64 c + tx + j is sum[c][i][j]. */
template <class T, int NC, int R>
void att_update(att_shared<T, NC, R> &m, T (&sum)[NC][R][4],
                const att_strip<T> &b, int from) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
  for (int k = 0; k < SIDE && k < b.rows; k += DEPTH) {
    __syncthreads();
    for (int i = threadIdx.x; i < DEPTH * NC * SIDE; i += 256) {
      int row = i / (NC * SIDE), col = i % (NC * SIDE);
      m.c[row][col] = k + row < b.rows && from + col < b.cols
                          ? b.data[(k + row) * b.stride + from + col]
                          : T(0);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
      for (int c = 0; c < NC; c++)
#pragma unroll
        for (int i = 0; i < 4 * R; i++)
          sum[c][i / 4][i % 4] +=
              m.p[k + d][ty + i / 4] * m.c[d][c * SIDE + tx + i % 4];
  }
}

template <class T, int NC, int R>
void att_save(const T (&sum)[NC][R][4], const T (&factor)[R],
              const attention_rows &r, const att_place &p, int64_t rows,
              int cols, int from) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
  T *to = att_rows<T>(r, p.b, p.h);
#pragma unroll
  for (int c = 0; c < NC; c++)
#pragma unroll
    for (int i = 0; i < 4 * R; i++) {
      int64_t row = p.first + ty + i / 4;
      int col = from + c * SIDE + tx + i % 4;
      if (row < rows && col < cols)
        to[row * r.row + col] = sum[c][i / 4][i % 4] * factor[i / 4];
    }
}

/* Scaled scores with the mask; what may not be seen, and what is not there, is
 * -inf. FLIP: rows of the tile are keys. */
template <class T, int FLIP, int R>
void att_limit(const attention_args &a, T (&s)[R][4], int64_t b, int64_t h,
               int64_t query, int64_t key) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4 * R; i++) {
    int row = ty + i / 4, col = tx + i % 4;
    int64_t q = query + (FLIP ? col : row), k = key + (FLIP ? row : col);
    int64_t q_left = a.nq - q, k_left = a.nk - k;
    bool seen = q_left > 0 && k_left > 0 && !(a.causal && k_left < q_left);
    s[i / 4][i % 4] =
        seen ? att_masked<T>(a, s[i / 4][i % 4] * (T)a.scale, b, h, q, k)
             : T(-INFINITY);
  }
}

/* Bit i: element i of this thread's 4 R stays. A loop, since random numbers are
 * long code. */
template <int FLIP, int R>
uint32_t att_kept_own(const attention_args &a, const att_random &r, int64_t b,
                      int64_t h, int64_t query, int64_t key) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
  uint32_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < 4 * R; i++) {
    int row = ty + i / 4, col = tx + i % 4;
    int64_t e = att_element(a, b, h, query + (FLIP ? col : row),
                            key + (FLIP ? row : col));
    bits |= att_kept(a, r, e) << i;
  }
  return bits;
}

/* A block has 16 R queries and NC * 64 columns of the result. */
template <int D, int NC, int R>
__global__ void __launch_bounds__(256)
    forward(const __grid_constant__ attention_args a) {
  typedef FL_W(D) T;
  extern __shared__ double room[];
  att_shared<T, NC, R> &m = *(att_shared<T, NC, R> *)room;
  int part = blockIdx.x % a.chunks, from = part * NC * SIDE,
      ty = threadIdx.x / 16 * R;
  att_place p = att_here(a, blockIdx.x / a.chunks, a.heads, 16 * R, a.causal);
  att_random r = a.drop.limit ? att_random_of(a) : att_random{0, 0};
  int64_t end = att_keys(a, p.first, 16 * R), hk = p.h / a.group;
  att_strip<T> q = att_strip_of<T>(a.q, p.b, p.h, p.first, a.nq, a.d);
  T o[NC][R][4] = {}, top[R], sum[R] = {}, s[R][4];
#pragma unroll
  for (int i = 0; i < R; i++)
    top[i] = -INFINITY;
  for (int64_t key = 0; key < end; key += SIDE) {
    att_scores(m, s, q, att_strip_of<T>(a.k, p.b, hk, key, a.nk, a.d));
    att_limit<T, 0, R>(a, s, p.b, p.h, p.first, key);
    uint32_t bits =
        a.drop.limit ? att_kept_own<0, R>(a, r, p.b, p.h, p.first, key) : 0;
#pragma unroll
    for (int i = 0; i < R; i++) {
      T next = top[i], part = 0;
#pragma unroll
      for (int j = 0; j < 4; j++)
        next = s[i][j] > next ? s[i][j] : next;
      next = fl_warp_reduce<16>(next, fl_max_of());
      T base = next == T(-INFINITY) ? T(0) : next;
      T ratio = fl_exp(top[i] - base);
      top[i] = next;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        T w = fl_exp(s[i][j] - base);
        part += w;
        s[i][j] = a.drop.limit ? w * att_keep<T>(a, bits, 4 * i + j) : w;
      }
      sum[i] = sum[i] * ratio + part;
#pragma unroll
      for (int c = 0; c < NC; c++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          o[c][i][j] *= ratio;
    }
    att_share(m, s);
    att_update(m, o, att_strip_of<T>(a.v, p.b, hk, key, a.nk, a.dv_cols), from);
  }
  T factor[R];
#pragma unroll
  for (int i = 0; i < R; i++) {
    T all = fl_warp_reduce<16>(sum[i], fl_sum_of());
    int64_t row = p.first + ty + i;
    factor[i] = all == 0 ? T(0) : 1 / all;
    if (part == 0 && threadIdx.x % 16 == 0 && row < a.nq)
      ((T *)a.lse)[(p.b * a.heads + p.h) * a.nq + row] = top[i] + fl_log(all);
  }
  att_save(o, factor, a.y, p, a.nq, a.dv_cols, from);
}

/* --- backward --- */

/* Scores and dy v^T become dropped weights and gradients of scores. */
template <class T, int FLIP, int R>
void att_grade(const attention_args &a, const att_random &r, T (&s)[R][4],
               T (&dp)[R][4], int64_t b, int64_t h, int64_t query,
               int64_t key) {
  int ty = threadIdx.x / 16 * R, tx = threadIdx.x % 16 * 4;
  uint32_t bits =
      a.drop.limit ? att_kept_own<FLIP, R>(a, r, b, h, query, key) : 0;
  att_limit<T, FLIP, R>(a, s, b, h, query, key);
#pragma unroll
  for (int i = 0; i < 4 * R; i++) {
    int64_t q = query + (FLIP ? tx + i % 4 : ty + i / 4),
            at = (b * a.heads + h) * a.nq + q;
    T lse = q < a.nq ? ((const T *)a.lse)[at] : T(0),
      delta = q < a.nq ? ((const T *)a.delta)[at] : T(0);
    T p = fl_exp(s[i / 4][i % 4] - (lse == T(-INFINITY) ? T(0) : lse));
    T k = a.drop.limit ? att_keep<T>(a, bits, i) : T(1);
    s[i / 4][i % 4] = p * k;
    dp[i / 4][i % 4] = p * (dp[i / 4][i % 4] * k - delta) * (T)a.scale;
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
  T dk[NC][R][4] = {}, dv[NC][R][4] = {}, s[R][4], dp[R][4];
  for (int g = 0; g < a.group; g++) {
    int64_t h = p.h * a.group + g;
    for (int64_t i = att_queries(a, p.first, SIDE); i < a.nq; i += SIDE) {
      att_strip<T> q = att_strip_of<T>(a.q, p.b, h, i, a.nq, a.d),
                   dy = att_strip_of<T>(a.dy, p.b, h, i, a.nq, a.dv_cols);
      att_scores(m, s, k, q);
      att_scores(m, dp, v, dy);
      att_grade<T, 1, R>(a, r, s, dp, p.b, h, i, p.first);
      att_share(m, s);
      att_update(m, dv, dy, from);
      att_share(m, dp);
      att_update(m, dk, q, from);
    }
  }
  T one[R];
#pragma unroll
  for (int i = 0; i < R; i++)
    one[i] = 1;
  att_save(dk, one, a.dk, p, a.nk, a.d, from);
  att_save(dv, one, a.dv, p, a.nk, a.dv_cols, from);
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
  T dq[NC][R][4] = {}, s[R][4], dp[R][4];
  for (int64_t key = 0; key < end; key += SIDE) {
    att_strip<T> k = att_strip_of<T>(a.k, p.b, hk, key, a.nk, a.d);
    att_scores(m, s, q, k);
    att_scores(m, dp, dy, att_strip_of<T>(a.v, p.b, hk, key, a.nk, a.dv_cols));
    att_grade<T, 0, R>(a, r, s, dp, p.b, p.h, p.first, key);
    att_share(m, dp);
    att_update(m, dq, k, from);
  }
  T one[R];
#pragma unroll
  for (int i = 0; i < R; i++)
    one[i] = 1;
  att_save(dq, one, a.dq, p, a.nq, a.d, from);
}
