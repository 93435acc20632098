/* softmax, log_softmax and their gradients: lines in registers, read once; long
 * ones in pieces, read twice; columns where the dim is not the last. Lines of
 * nothing but -inf, and those with +inf or NaN, come out as NaN. */
#include "line.cuh"
#include "softmax.h"

/* --- lines in registers --- */

template <int D, int VEC, int E, int BLOCK>
__global__ void __launch_bounds__(BLOCK ? 1024 : 128)
    forward(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  fl_group<BLOCK> g(a.lanes);
  int n = g.line < a.lines ? (int)a.n : 0;
  fl_line<D, VEC, E> x;
  x.load((const S *)a.x + g.line * a.n, n, g.lane, g.lanes);
  V v[E], top = fl_low<V>(), s = 0;
  fl_each<VEC, E>(n, g.lane, g.lanes, [&](int k) {
    v[k] = x.get(k);
    top = fl_max_of()(v[k], top);
  });
  V own = fl_finite(top);
  fl_each<VEC, E>(n, g.lane, g.lanes, [&](int k) {
    V e = fl_exp_for<D>(v[k] - own);
    s += e;
    if (!a.logarithm)
      v[k] = e;
  });
  V all = top;
  g.template soft<D>(all, s);
  V by = fl_exp_for<D>(own - fl_finite(all)) / s, log = fl_log(s);
  fl_each<VEC, E>(n, g.lane, g.lanes, [&](int k) {
    v[k] = a.logarithm ? (v[k] - all) - log : v[k] * by;
  });
  fl_store_line<D, VEC, E>((S *)a.out + g.line * a.n, v, n, g.lane, g.lanes);
}

/* dx = y (dy - sum(y dy)), or dy - exp(y) sum(dy) */
template <int D, int VEC, int E, int BLOCK>
__global__ void __launch_bounds__(BLOCK ? 1024 : 128)
    backward(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  fl_group<BLOCK> g(a.lanes);
  int n = g.line < a.lines ? (int)a.n : 0;
  fl_line<D, VEC, E> dy, y;
  dy.load((const S *)a.x + g.line * a.n, n, g.lane, g.lanes);
  y.load((const S *)a.y + g.line * a.n, n, g.lane, g.lanes);
  V s = 0, v[E];
  fl_each<VEC, E>(n, g.lane, g.lanes, [&](int k) {
    s += a.logarithm ? dy.get(k) : dy.get(k) * y.get(k);
  });
  s = g.sum(s);
  fl_each<VEC, E>(n, g.lane, g.lanes, [&](int k) {
    v[k] = a.logarithm ? dy.get(k) - fl_exp_for<D>(y.get(k)) * s
                       : y.get(k) * (dy.get(k) - s);
  });
  fl_store_line<D, VEC, E>((S *)a.out + g.line * a.n, v, n, g.lane, g.lanes);
}

/* --- long lines: block (piece, line) --- */

/* f(x's elements, y's, their place) over this block's piece, by vectors. */
template <int D, int VEC, class F>
void over_piece(const softmax_args &a, int64_t line, int64_t piece, F f) {
  typedef FL_S(D) S;
  int64_t from = piece * a.piece, end = from + a.piece;
  end = end < a.n ? end : a.n;
  const S *x = (const S *)a.x + line * a.n;
  const S *y = a.y ? (const S *)a.y + line * a.n : x;
#pragma unroll 4
  for (int64_t i = from + threadIdx.x * VEC; i < end; i += blockDim.x * VEC)
    f(fl_read<S, VEC>(x + i), a.y ? fl_read<S, VEC>(y + i) : fl_vec<S, VEC>(),
      line * a.n + i);
}

template <int D, int VEC>
__global__ void __launch_bounds__(512)
    long_begin(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  V *part = (V *)a.partial;
  fl_group<true> g(0);
  for (int64_t w = blockIdx.x; w < a.lines * a.pieces; w += gridDim.x) {
    V top = fl_low<V>(), s = 0;
    over_piece<D, VEC>(a, w / a.pieces, w % a.pieces,
                       [&](fl_vec<S, VEC> x, fl_vec<S, VEC> y, int64_t) {
                         if (a.y) {
#pragma unroll
                           for (int k = 0; k < VEC; k++) {
                             V d = fl_get<V>(x.at[k]);
                             s += a.logarithm ? d : d * fl_get<V>(y.at[k]);
                           }
                           return;
                         }
                         V most = top;
#pragma unroll
                         for (int k = 0; k < VEC; k++)
                           most = fl_max_of()(fl_get<V>(x.at[k]), most);
                         if (most > top || most != most) {
                           s *= fl_exp_for<D>(top - most);
                           top = most;
                         }
                         V own = fl_finite(top);
#pragma unroll
                         for (int k = 0; k < VEC; k++)
                           s += fl_exp_for<D>(fl_get<V>(x.at[k]) - own);
                       });
    if (a.y)
      s = g.sum(s);
    else
      g.template soft<D>(top, s);
    if (threadIdx.x == 0) {
      part[2 * w] = top;
      part[2 * w + 1] = s;
    }
  }
}

template <int D, int VEC>
__global__ void __launch_bounds__(512)
    long_end(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  fl_group<true> g(0);
  for (int64_t w = blockIdx.x; w < a.lines * a.pieces; w += gridDim.x) {
    const V *part = (const V *)a.partial + w / a.pieces * a.pieces * 2;
    V top = fl_low<V>(), s = 0;
    for (int p = threadIdx.x; p < a.pieces; p += blockDim.x) {
      V more = part[2 * p], most = fl_max_of()(more, top);
      V by = fl_finite(most);
      if (a.y)
        s += part[2 * p + 1];
      else
        s = s * fl_exp_for<D>(top - by) +
            part[2 * p + 1] * fl_exp_for<D>(more - by);
      top = most;
    }
    if (a.y)
      s = g.sum(s);
    else
      g.template soft<D>(top, s);
    V by = 1 / s, log = fl_log(s);
    over_piece<D, VEC>(
        a, w / a.pieces, w % a.pieces,
        [&](fl_vec<S, VEC> x, fl_vec<S, VEC> y, int64_t at) {
          V v[VEC];
#pragma unroll
          for (int k = 0; k < VEC; k++) {
            V u = fl_get<V>(x.at[k]), z = fl_get<V>(y.at[k]);
            if (a.y)
              v[k] = a.logarithm ? u - fl_exp_for<D>(z) * s : z * (u - s);
            else
              v[k] =
                  a.logarithm ? (u - top) - log : fl_exp_for<D>(u - top) * by;
          }
          fl_write<S, VEC>((S *)a.out + at, fl_packed<D, VEC>::of(v));
        });
  }
}

/* --- columns: bx threads along inner, the rest along the dim --- */

template <int D>
__global__ void __launch_bounds__(256)
    columns(const __grid_constant__ softmax_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  __shared__ V part[2][256];
  int tx = threadIdx.x % a.bx, ty = threadIdx.x / a.bx;
  int by = blockDim.x / a.bx;
  int64_t tiles = (a.inner + a.bx - 1) / a.bx;
  int64_t col = blockIdx.x % tiles * a.bx + tx;
  int64_t at = blockIdx.x / tiles * a.n * a.inner + col;
  int64_t n = col < a.inner ? a.n : 0;
  const S *x = (const S *)a.x + at, *y = (const S *)a.y + (a.y ? at : 0);
  V top = fl_low<V>(), s = 0;
#pragma unroll 4
  for (int64_t i = ty; i < n; i += by) {
    V u = fl_get<V>(x[i * a.inner]);
    if (a.y) {
      s += a.logarithm ? u : u * fl_get<V>(y[i * a.inner]);
      continue;
    }
    V most = fl_max_of()(u, top), own = fl_finite(most);
    s = s * fl_exp_for<D>(top - own) + fl_exp_for<D>(u - own);
    top = most;
  }
  part[0][threadIdx.x] = top;
  part[1][threadIdx.x] = s;
  __syncthreads();
  top = part[0][tx];
  for (int k = 1; k < by; k++)
    top = fl_max_of()(part[0][tx + k * a.bx], top);
  s = 0;
  for (int k = 0; k < by; k++)
    s += a.y ? part[1][tx + k * a.bx]
             : part[1][tx + k * a.bx] *
                   fl_exp_for<D>(part[0][tx + k * a.bx] - fl_finite(top));
  V by_s = 1 / s, log = fl_log(s);
#pragma unroll 4
  for (int64_t i = ty; i < n; i += by) {
    V u = fl_get<V>(x[i * a.inner]), v;
    if (a.y) {
      V z = fl_get<V>(y[i * a.inner]);
      v = a.logarithm ? u - fl_exp_for<D>(z) * s : z * (u - s);
    } else
      v = a.logarithm ? (u - top) - log : fl_exp_for<D>(u - top) * by_s;
    ((S *)a.out)[at + i * a.inner] = fl_put<S>(v);
  }
}
