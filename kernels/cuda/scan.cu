/* Running sums, in double or int64_t: a line by a warp's lanes or a block, or a
 * column by a thread. Long ones are cut into pieces, which are summed first. */
#include "device/line.cuh"
#include "scan.h"

template <int D> struct scan_type {
  enum { OUT = !FL_IS_FLOAT(D) ? FL_I64 : D };
  typedef FL_S(D) S;
  typedef FL_S(OUT) T; /* of results */
};
template <class V> struct sum_of { typedef double T; };
template <> struct sum_of<int64_t> { typedef int64_t T; };
#define SUM(D) typename sum_of<FL_W(D)>::T

template <int D> SUM(D) at_of(const scan_args &a, int64_t i) {
  return (SUM(D))fl_get<FL_W(D)>(((const FL_S(D) *)a.x)[i]);
}

/* --- lines --- */

/* Of v over the group: the sum of those before this thread, and of all. */
template <bool BLOCK, class T> T scan_before(const fl_group<BLOCK> &g, T v, T *all) {
  __shared__ T part[32];
  int width = BLOCK ? 32 : g.lanes, lane = g.lane % width;
  T sum = v;
  for (int k = 1; k < width; k *= 2) {
    T t = __shfl_up_sync(0xffffffff, sum, k, width);
    if (lane >= k)
      sum += t;
  }
  *all = __shfl_sync(0xffffffff, sum, width - 1, width);
  T less = __shfl_up_sync(0xffffffff, sum, 1, width);
  sum = lane ? less : T(0);
  if (!BLOCK)
    return sum;
  int warps = blockDim.x >> 5, warp = threadIdx.x >> 5;
  __syncthreads(); /* part may still be read by an earlier call */
  if (lane == 0)
    part[warp] = *all;
  __syncthreads();
  T total = 0;
  for (int k = 0; k < warps; k++) {
    if (k < warp)
      sum += part[k];
    total += part[k];
  }
  *all = total;
  return sum;
}

/* Task (line, piece): its first element and how many there are. */
inline int64_t piece_of(const scan_args &a, int64_t task, int64_t *n) {
  int64_t from, line = fl_quotient(task, a.pieces, &from);
  from *= a.piece;
  *n = a.n - from < a.piece ? a.n - from : a.piece;
  return line * a.n + from;
}

template <int D>
__global__ void __launch_bounds__(256)
    sums(const __grid_constant__ scan_args a) {
  typedef SUM(D) T;
  int64_t n, at = piece_of(a, blockIdx.x, &n);
  T s = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    s += at_of<D>(a, at + i);
  s = fl_group<true>(0).sum(s);
  if (threadIdx.x == 0)
    ((T *)a.sums)[blockIdx.x] = s;
}

template <int D, int VEC, int BLOCK>
__global__ void __launch_bounds__(256)
    lines(const __grid_constant__ scan_args a) {
  typedef typename scan_type<D>::S S;
  typedef typename scan_type<D>::T R;
  typedef SUM(D) T;
  enum { PART = sizeof(R) * VEC > 16 ? 16 / sizeof(R) : VEC };
  fl_group<BLOCK> g(a.lanes);
  int64_t tasks = a.lines * a.pieces, n = 0, at = 0;
  if (g.line < tasks)
    at = piece_of(a, g.line, &n);
  T carry = 0;
  if (BLOCK && a.pieces > 1) {
    int64_t piece, line = fl_quotient(g.line, a.pieces, &piece);
    for (int64_t p = g.lane; p < piece; p += g.lanes)
      carry += ((const T *)a.sums)[line * a.pieces + p];
    carry = g.sum(carry);
  }
  int64_t most = a.piece < a.n ? a.piece : a.n; /* the same for all threads */
  for (int64_t from = 0; from < most; from += (int64_t)g.lanes * VEC) {
    int64_t i = from + (int64_t)g.lane * VEC;
    fl_vec<S, VEC> v;
    T t[VEC], sum = 0, all;
    if (i < n)
      v = fl_read<S, VEC>((const S *)a.x + at + i);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
      sum += i < n ? (T)fl_get<FL_W(D)>(v.at[k]) : T(0);
      t[k] = sum;
    }
    T less = scan_before(g, sum, &all) + carry;
    carry += all;
    if (i >= n)
      continue;
#pragma unroll
    for (int k = 0; k < VEC; k += PART) {
      fl_vec<R, PART> r;
#pragma unroll
      for (int m = 0; m < PART; m++)
        r.at[m] = fl_put<R>(less + t[k + m]);
      fl_write<R, PART>((R *)a.y + at + i + k, r);
    }
  }
}

/* --- columns: task (line of inner, piece) --- */

template <int D>
__global__ void __launch_bounds__(128)
    column_sums(const __grid_constant__ scan_args a) {
  typedef SUM(D) T;
  int64_t r = fl_thread(), col, from = blockIdx.y * a.piece;
  if (r >= a.lines)
    return;
  int64_t at = fl_quotient(r, a.inner, &col) * a.n * a.inner + col;
  int64_t end = from + a.piece < a.n ? from + a.piece : a.n;
  T s = 0;
#pragma unroll 4
  for (int64_t i = from; i < end; i++)
    s += at_of<D>(a, at + i * a.inner);
  ((T *)a.sums)[blockIdx.y * a.lines + r] = s;
}

template <int D>
__global__ void __launch_bounds__(128)
    columns(const __grid_constant__ scan_args a) {
  typedef SUM(D) T;
  typedef typename scan_type<D>::T R;
  int64_t r = fl_thread(), col, from = blockIdx.y * a.piece;
  if (r >= a.lines)
    return;
  int64_t at = fl_quotient(r, a.inner, &col) * a.n * a.inner + col;
  int64_t end = from + a.piece < a.n ? from + a.piece : a.n;
  T s = 0;
  for (int p = 0; p < (int)blockIdx.y; p++)
    s += ((const T *)a.sums)[p * a.lines + r];
  for (int64_t i = from; i < end; i += 4) {
    T v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      v[k] = i + k < end ? at_of<D>(a, at + (i + k) * a.inner) : T(0);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      s += v[k];
      if (i + k < end)
        ((R *)a.y)[at + (i + k) * a.inner] = fl_put<R>(s);
    }
  }
}
