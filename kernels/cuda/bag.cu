/* embedding_bag: a thread adds up N neighbouring columns of a bag in the order
 * of the index; and the gradient of each position. A position out of range is
 * reported and adds nothing. */
#include "device/divisor.cuh"

#include "bag.h"

struct span {
  int64_t from, to;
};

inline int64_t place(const bag_args &a, int64_t k) {
  return fl_position(a.fault, a.offsets[k], a.n + 1);
}

/* Every position before the last offset is in some bag, whatever the offsets
 * are. */
inline span bag_of(const bag_args &a, int64_t b) {
  if (!a.offsets)
    return {b * a.each, (b + 1) * a.each};
  int64_t from = b == 0 ? 0 : place(a, b);
  int64_t to = b + 1 < a.bags + a.last ? place(a, b + 1) : a.n;
  return {from, max(from, to)};
}

/* The row of position k; false if it counts for nothing. */
inline bool row_of(const bag_args &a, int64_t k, int64_t *row) {
  bool good;
  *row = fl_position(a.fault, a.index[k], a.rows, &good);
  return good && *row != a.padding;
}

template <int D, int N>
__global__ void __launch_bounds__(BAG_THREADS)
    sums(const __grid_constant__ bag_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  const int BATCH = 4;
  for (int64_t e = fl_thread(); e < a.bags * a.by_parts.by; e += fl_threads()) {
    int64_t b, col = N * fl_split(e, a.by_parts, &b), count = 0;
    const S *table = (const S *)a.table + col;
    span at = bag_of(a, b);
    W sum[N] = {};
    for (int64_t k = at.from; k < at.to; k += BATCH) {
      fl_vec<S, N> v[BATCH];
      W f[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        int64_t row;
        f[j] = 0;
        v[j] = {};
        if (k + j < at.to && row_of(a, k + j, &row)) {
          v[j] = fl_read<S, N>(table + row * a.width);
          f[j] = a.factors ? ((const W *)a.factors)[k + j] : W(1);
          count++;
        }
      }
#pragma unroll
      for (int j = 0; j < BATCH; j++)
#pragma unroll
        for (int i = 0; i < N; i++)
          sum[i] += f[j] * fl_get<W>(v[j].at[i]);
    }
    W scale = a.mean && count > 1 ? W(1) / W(count) : W(1);
    fl_vec<S, N> y;
#pragma unroll
    for (int i = 0; i < N; i++)
      y.at[i] = fl_put<S>(sum[i] * scale);
    fl_write((S *)a.y + b * a.width + col, y);
  }
}

/* The largest elements and where the first of each was; NaN is larger than
 * anything. */
template <int D, int N>
__global__ void __launch_bounds__(BAG_THREADS)
    most(const __grid_constant__ bag_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  for (int64_t e = fl_thread(); e < a.bags * a.by_parts.by; e += fl_threads()) {
    int64_t b, col = N * fl_split(e, a.by_parts, &b);
    span at = bag_of(a, b);
    W best[N] = {};
    int64_t where[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      where[i] = -1;
#pragma unroll 4
    for (int64_t k = at.from; k < at.to; k++) {
      int64_t row;
      if (!row_of(a, k, &row))
        continue;
      fl_vec<S, N> v = fl_read<S, N>((const S *)a.table + row * a.width + col);
#pragma unroll
      for (int i = 0; i < N; i++) {
        W w = fl_get<W>(v.at[i]);
        bool more = where[i] < 0 || !(w <= best[i] || best[i] != best[i]);
        best[i] = more ? w : best[i];
        where[i] = more ? row : where[i];
      }
    }
    for (int i = 0; i < N; i++) {
      int64_t to = b * a.width + col + i;
      ((S *)a.y)[to] = fl_put<S>(best[i]);
      a.where[to] = where[i] + a.fault.base;
    }
  }
}

/* What each position gets of dy: its bag's row times its factor or its share of
 * a mean, and zeros behind the last bag, which come as one more. D: F32, F64.
 */
template <int D, int N>
__global__ void __launch_bounds__(BAG_THREADS)
    spread(const __grid_constant__ bag_args a) {
  typedef FL_S(D) W;
  int64_t bags = a.bags + a.last;
  for (int64_t e = fl_thread(); e < bags * a.by_parts.by; e += fl_threads()) {
    int64_t b, col = N * fl_split(e, a.by_parts, &b), row;
    bool behind = b == a.bags;
    span at = behind ? span{place(a, b), a.n} : bag_of(a, b);
    fl_vec<W, N> dy = {}, y;
    if (!behind)
      dy = fl_read<W, N>((const W *)a.table + b * a.width + col);
    W scale = 1;
    if (a.mean) {
      int64_t count = 0;
      for (int64_t k = at.from; k < at.to; k++)
        count += row_of(a, k, &row);
      scale = count > 1 ? W(1) / W(count) : W(1);
    }
    for (int64_t k = at.from; k < at.to; k++) {
      W f = a.factors ? ((const W *)a.factors)[k] : scale;
#pragma unroll
      for (int i = 0; i < N; i++)
        y.at[i] = f * dy.at[i];
      fl_write((W *)a.y + k * a.width + col, y);
    }
  }
}
