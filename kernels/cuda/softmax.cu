/* softmax, log_softmax and their gradients: lines in registers, read once; long
 * ones in pieces, read twice; columns where the dim is not the last. Lines of
 * nothing but -inf, and those with +inf or NaN, come out as NaN. */
#include "device/line.cuh"
#include "softmax.h"

/* Sums that are taken off something of their own size are taken in double. */
template <int D> struct sum_type { typedef FL_W(D) T; };
template <> struct sum_type<FL_F32> { typedef double T; };

/* --- lines in registers --- */

template <int D, int VEC, int E, int BLOCK>
__global__ void __launch_bounds__(BLOCK ? 1024 : 128)
    forward(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  fl_group<BLOCK> g(a.lanes);
  bool on = g.line < a.lines;
  int n = on ? (int)a.n : 0;
  int64_t at = on ? g.line * a.n : 0;
  fl_line<D, VEC, E> x;
  x.load((const S *)a.x + at, n, g.lane, g.lanes, fl_low<V>());
  V v[E], top = fl_low<V>(), s = 0;
  x.get(v);
#pragma unroll
  for (int k = 0; k < E; k++)
    top = fl_most(v[k], top);
  V own = fl_finite(top), all = top;
  if (a.logarithm) {
#pragma unroll
    for (int k = 0; k < E; k++)
      s += fl_exp_less<D>(v[k], own);
    g.template soft<D>(all, s);
    V log = fl_log(s);
#pragma unroll
    for (int k = 0; k < E; k++)
      v[k] = (v[k] - all) - log;
  } else {
#pragma unroll
    for (int k = 0; k < E; k++) {
      v[k] = fl_exp_less<D>(v[k], own);
      s += v[k];
    }
    g.template soft<D>(all, s);
    V by = fl_exp_less<D>(own, fl_finite(all)) / s;
#pragma unroll
    for (int k = 0; k < E; k++)
      v[k] *= by;
  }
  fl_store_line<D, VEC, E>((S *)a.out + at, v, n, g.lane, g.lanes);
}

/* dx = y (dy - sum(y dy)), or dy - exp(y) sum(dy) */
template <int D, int VEC, int E, int BLOCK>
__global__ void __launch_bounds__(BLOCK ? 1024 : 128)
    backward(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  typedef typename sum_type<D>::T T;
  fl_group<BLOCK> g(a.lanes);
  bool on = g.line < a.lines;
  int n = on ? (int)a.n : 0;
  int64_t at = on ? g.line * a.n : 0;
  fl_line<D, VEC, E> dy, y;
  dy.load((const S *)a.x + at, n, g.lane, g.lanes);
  y.load((const S *)a.y + at, n, g.lane, g.lanes);
  V v[E];
  T sum = 0;
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    V d[VEC], p[VEC];
    dy.get(c, d);
    y.get(c, p);
#pragma unroll
    for (int k = 0; k < VEC; k++)
      sum += (T)(a.logarithm ? d[k] : d[k] * p[k]);
  }
  V s = (V)g.sum(sum);
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    V d[VEC], p[VEC];
    dy.get(c, d);
    y.get(c, p);
    if (a.logarithm) {
#pragma unroll
      for (int k = 0; k < VEC; k++)
        v[c * VEC + k] = d[k] - fl_exp_less<D>(p[k], V(0)) * s;
    } else {
#pragma unroll
      for (int k = 0; k < VEC; k++)
        v[c * VEC + k] = p[k] * (d[k] - s);
    }
  }
  fl_store_line<D, VEC, E>((S *)a.out + at, v, n, g.lane, g.lanes);
}

/* --- what is too long for that: first every piece by itself, then all by what
 * they found, or both at once where a line is one piece --- */

enum { BOTH, BEGIN, END };

/* Sum of dy y, or of dy. */
template <int D> struct slope {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  const S *y;
  int logarithm;
  typename sum_type<D>::T s;

  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t i, int64_t step) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      V d[N], p[N];
      fl_unpacked<D, N>::to(x[u], d);
      if (!logarithm) {
        fl_unpacked<D, N>::to(fl_read<S, N>(y + i + u * step), p);
#pragma unroll
        for (int k = 0; k < N; k++)
          d[k] *= p[k];
      }
#pragma unroll
      for (int k = 0; k < N; k++)
        s += d[k];
    }
  }
};

/* Writes the results: y, or dx where there is an `y`. */
template <int D> struct results {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  const S *y;
  S *out;
  int logarithm;
  V top, s, by, log;

  void set(V top_, V s_) {
    top = top_;
    s = s_;
    by = 1 / s;
    log = fl_log(s);
  }
  V forward(V u) const {
    return logarithm ? (u - top) - log : fl_exp_less<D>(u, top) * by;
  }
  V backward(V u, V z) const {
    return logarithm ? u - fl_exp_less<D>(z, V(0)) * s : z * (u - s);
  }
  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t i, int64_t step) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      V v[N], p[N];
      int64_t at = i + u * step;
      fl_unpacked<D, N>::to(x[u], v);
      if (y) {
        fl_unpacked<D, N>::to(fl_read<S, N>(y + at), p);
#pragma unroll
        for (int k = 0; k < N; k++)
          v[k] = backward(v[k], p[k]);
      } else {
#pragma unroll
        for (int k = 0; k < N; k++)
          v[k] = forward(v[k]);
      }
      fl_leave<S, N>(out + at, fl_packed<D, N>::of(v));
    }
  }
};

/* A block takes a piece of a line. Lines begin anywhere, but x, y and out
 * alike. */
template <int D, int VEC, int PASS>
__global__ void __launch_bounds__(512)
    lines(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  V *part = (V *)a.partial;
  fl_group<true> g(0);
  int64_t piece, line = fl_quotient(blockIdx.x, a.pieces, &piece);
  int64_t from = piece * a.piece, at = line * a.n + from;
  int64_t n = a.n - from < a.piece ? a.n - from : a.piece;
  const S *x = (const S *)a.x + at, *y = a.y ? (const S *)a.y + at : nullptr;
  fl_peak<D> t;
  slope<D> d = {y, a.logarithm, 0};
  t.start();
  if (PASS == END) {
    part += line * a.pieces * 2;
    for (int p = g.lane; p < a.pieces; p += g.lanes) {
      d.s += part[2 * p + 1];
      if (!y)
        t.merge(part[2 * p], part[2 * p + 1]);
    }
  } else if (y)
    fl_walk<VEC, 4>(x, n, g.lane, g.lanes, d);
  else
    fl_walk<VEC, 4>(x, n, g.lane, g.lanes, t);
  if (y)
    t.s = (V)g.sum(d.s);
  else
    g.template soft<D>(t.top, t.s);
  if (PASS == BEGIN) {
    if (g.lane == 0) {
      part[2 * (int64_t)blockIdx.x] = t.top;
      part[2 * (int64_t)blockIdx.x + 1] = t.s;
    }
    return;
  }
  results<D> r = {y, (S *)a.out + at, a.logarithm};
  r.set(t.top, t.s);
  fl_walk<VEC, 4>(x, n, g.lane, g.lanes, r);
}

/* Columns: bx threads along inner, the rest along the dim. Block (tile of an
 * outer, piece). */
template <int D, int PASS>
__global__ void __launch_bounds__(256)
    columns(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  typedef typename sum_type<D>::T T;
  __shared__ V tops[256];
  __shared__ T sums[256];
  int tx = threadIdx.x % a.bx, ty = threadIdx.x / a.bx;
  int by = blockDim.x / a.bx;
  int64_t tile, tiles = (a.inner + a.bx - 1) / a.bx;
  int64_t outer = fl_quotient(blockIdx.x, tiles, &tile);
  int64_t col = tile * a.bx + tx, at = outer * a.n * a.inner + col;
  int64_t r = outer * a.inner + col, from = blockIdx.y * a.piece;
  int64_t end = from + a.piece < a.n ? from + a.piece : a.n;
  bool on = col < a.inner;
  const S *x = (const S *)a.x + at, *y = a.y ? (const S *)a.y + at : nullptr;
  V *part = (V *)a.partial;
  fl_peak<D> t;
  T s = 0;
  t.start();
  if (PASS == END) {
    for (int p = ty; on && p < a.pieces; p += by) {
      V top = part[2 * (p * a.lines + r)],
        sum = part[2 * (p * a.lines + r) + 1];
      s += sum;
      if (!y)
        t.merge(top, sum);
    }
  } else if (y) {
#pragma unroll 4
    for (int64_t i = from + ty; on && i < end; i += by) {
      V u = fl_get<V>(x[i * a.inner]);
      s += a.logarithm ? u : u * fl_get<V>(y[i * a.inner]);
    }
  } else
#pragma unroll 1
    for (int64_t i = from + ty; on && i < end; i += 4 * by) {
      fl_vec<S, 1> v[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int64_t at_k = i + k * by < end ? i + k * by : i;
        v[k].at[0] = x[at_k * a.inner];
        if (at_k == i && k)
          v[k].at[0] = fl_put<S>(fl_low<V>());
      }
      t.take(v, 0, 0);
    }
  tops[threadIdx.x] = t.top;
  sums[threadIdx.x] = y ? s : (T)t.s;
  __syncthreads();
  t.start();
  s = 0;
  for (int k = 0; k < by; k++) {
    s += sums[tx + k * a.bx];
    if (!y)
      t.merge(tops[tx + k * a.bx], (V)sums[tx + k * a.bx]);
  }
  if (y)
    t.s = (V)s;
  if (PASS == BEGIN) {
    if (on && ty == 0) {
      part[2 * (blockIdx.y * a.lines + r)] = t.top;
      part[2 * (blockIdx.y * a.lines + r) + 1] = t.s;
    }
    return;
  }
  results<D> w = {y, nullptr, a.logarithm};
  w.set(t.top, t.s);
#pragma unroll 4
  for (int64_t i = from + ty; on && i < end; i += by) {
    V u = fl_get<V>(x[i * a.inner]);
    u = y ? w.backward(u, fl_get<V>(y[i * a.inner])) : w.forward(u);
    ((S *)a.out)[at + i * a.inner] = fl_put<S>(u);
  }
}
