/* Elementwise rows: contiguous operands 16 bytes at a time, anything else by
 * coordinates. The row itself is put in front of this text as ROW: the body of
 * a function of v[] (operands), p0..p3 (attributes) and bits that gives a T;
 * tests give 1 or 0. */
#include "device/approx.cuh"
#include "device/divisor.cuh"
#include "device/early.cuh"

#include "map.h"

template <class T> T map_param(double v) {
  return (T)v;
}
template <> inline int64_t map_param<int64_t>(double v) {
  return fl_to_int(v);
}
template <class T> T number(const map_number &v) {
  return (T)v.f;
}
template <> inline int64_t number<int64_t>(const map_number &v) {
  return v.i;
}

/* As rows write them; LOW is `row`'s. */
#define fl_gelu(x, approx)   fl_gelu_of<LOW, T>(x, approx)
#define fl_gelu_d(x, approx) fl_gelu_d_of<LOW, T>(x, approx)
#define fl_exp(x)            fl_row_exp<LOW>(x)
#define fl_tanh(x)           fl_tanh_of<LOW>(x)
#define fl_sigmoid(x)        fl_sigmoid_of<LOW>(x)
#define fl_silu(x)           fl_silu_of<LOW>(x)
#define fl_silu_d(x)         fl_silu_d_of<LOW>(x)

template <bool LOW, class T> T map_row(const T *v, const double *p, int bits) {
  const T p0 = map_param<T>(p[0]), p1 = map_param<T>(p[1]), p2 = map_param<T>(p[2]),
          p3 = map_param<T>(p[3]);
  ROW
}

#undef fl_gelu
#undef fl_gelu_d
#undef fl_exp
#undef fl_tanh
#undef fl_sigmoid
#undef fl_silu
#undef fl_silu_d

/* V elements of one operand from i on into v[][k]. */
template <class S, class T, int IN, int V>
inline void map_take(const map_flat &a, int k, int64_t i, T (*v)[IN]) {
  fl_vec<S, V> x = fl_read<S, V>((const S *)a.in[k] + i);
#pragma unroll
  for (int j = 0; j < V; j++)
    v[j][k] = fl_get<T>(x.at[j]);
}
/* The same of an operand that may be a number, where `left` of them there
 * are. */
template <class S, class T, int IN, int V>
inline void take_some(const map_flat &a, int k, int64_t i, int64_t left,
                      T (*v)[IN]) {
  if (a.in[k] && left >= V) {
    map_take<S, T, IN, V>(a, k, i, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    v[j][k] = a.in[k] ? fl_get<T>(((const S *)a.in[k])[i + (j < left ? j : 0)])
                      : number<T>(a.number[k]);
}

/* D: dtype of the inputs, O: of the result, IN: how many inputs (a number has
 * no memory), V: elements a thread takes at once, E: dtype of the second input.
 */
template <int D, int O, int IN, int V, int E> struct flat_vector {
  typedef FL_S(O) Y;
  typedef FL_W(D) T;
  T v[V][IN];

  void read(const map_flat &a, int64_t i) {
#pragma unroll
    for (int k = 0; k < IN; k++)
      if (k == 1)
        map_take<FL_S(E), T, IN, V>(a, k, i, v);
      else
        map_take<FL_S(D), T, IN, V>(a, k, i, v);
  }
  void read_some(const map_flat &a, int64_t i, int64_t left) {
#pragma unroll
    for (int k = 0; k < IN; k++)
      if (k == 1)
        take_some<FL_S(E), T, IN, V>(a, k, i, left, v);
      else
        take_some<FL_S(D), T, IN, V>(a, k, i, left, v);
  }
  void write(const map_flat &a, int64_t i, int64_t left) const {
    fl_vec<Y, V> y;
#pragma unroll
    for (int j = 0; j < V; j++)
      y.at[j] =
          fl_put<Y>(map_row < D == FL_F16 || D == FL_BF16 > (v[j], a.p, a.bits));
    if (left >= V)
      fl_leave((Y *)a.y + i, y);
    else
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j < left)
          ((Y *)a.y)[i + j] = y.at[j];
  }
};

/* A thread takes MAP_TURNS vectors, far apart: all are under way before the
 * first is needed, which compilers see to only where none may be a number. */
template <int D, int O, int IN, int V, int E = D>
__global__ void __launch_bounds__(256)
    flat(const __grid_constant__ map_flat a) {
  fl_begin();
  enum { TURNS = MAP_TURNS(IN) };
  const int64_t step = fl_threads() * V;
  int64_t i = fl_thread() * V;
  bool memory = true;
#pragma unroll
  for (int k = 0; k < IN; k++)
    memory = memory && a.in[k];
  if (memory)
#pragma unroll 1
    for (; i + (TURNS - 1) * step + V <= a.n; i += TURNS * step) {
      flat_vector<D, O, IN, V, E> x[TURNS];
#pragma unroll
      for (int u = 0; u < TURNS; u++)
        x[u].read(a, i + u * step);
#pragma unroll
      for (int u = 0; u < TURNS; u++)
        x[u].write(a, i + u * step, V);
    }
#pragma unroll 1
  for (; i < a.n; i += step) {
    flat_vector<D, O, IN, V, E> x;
    x.read_some(a, i, a.n - i);
    x.write(a, i, a.n - i);
  }
}

/* The same by coordinates: operands of dtype D with any strides. A thread takes
 * a.each elements along the last dim, 1 or 4. */
template <int D, int O, int IN>
__global__ void __launch_bounds__(256) any(const __grid_constant__ map_any a) {
  fl_begin();
  typedef FL_S(D) S;
  typedef FL_S(O) Y;
  typedef FL_W(D) T;
  const int last = a.ndim - 1;
  const int64_t step = fl_threads() * a.each;
  for (int64_t first = fl_thread() * a.each; first < a.n; first += step) {
    int64_t at[IN + 1] = {0};
    uint32_t rest = (uint32_t)first;
    for (int d = last; d >= 0; d--) {
      uint32_t size = (uint32_t)a.size[d], q = rest / size;
      uint32_t c = rest - q * size;
      rest = q;
#pragma unroll
      for (int k = 0; k <= IN; k++)
        at[k] += c * a.stride[k][d];
    }
    T v[4][IN];
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (e < a.each)
#pragma unroll
        for (int k = 0; k < IN; k++)
          v[e][k] =
              a.data[k + 1]
                  ? fl_get<T>(
                        ((const S *)a.data[k + 1])[at[k + 1] +
                                                   e * a.stride[k + 1][last]])
                  : number<T>(a.number[k]);
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (e < a.each)
        ((Y *)a.data[0])[at[0] + e * a.stride[0][last]] =
            fl_put<Y>(map_row < D == FL_F16 || D == FL_BF16 > (v[e], a.p, a.bits));
  }
}

#ifdef CONVERT
/* From any dtype and strides to any. */
template <int D> /* what it goes through */
__global__ void __launch_bounds__(256)
    convert(const __grid_constant__ map_any a) {
  fl_begin();
  typedef FL_W(D) T;
  for (int64_t i = fl_thread(); i < a.n; i += fl_threads()) {
    int64_t to = 0, from = 0;
    uint32_t rest = (uint32_t)i;
    for (int d = a.ndim - 1; d >= 0; d--) {
      uint32_t size = (uint32_t)a.size[d], q = rest / size;
      uint32_t c = rest - q * size;
      rest = q;
      to += c * a.stride[0][d];
      from += c * a.stride[1][d];
    }
    fl_save<T>(a.data[0], a.dtype[0], to,
               a.data[1] ? fl_load<T>(a.data[1], a.dtype[1], from)
                         : number<T>(a.number[0]));
  }
}

/* From any strides to any, elements of SIZE bytes whatever they mean. */
template <int SIZE>
__global__ void __launch_bounds__(256)
    words(const __grid_constant__ map_any a) {
  fl_begin();
  typedef FL_BITS(SIZE) W;
  const int last = a.ndim - 1;
  const int64_t step = fl_threads() * a.each;
  for (int64_t first = fl_thread() * a.each; first < a.n; first += step) {
    int64_t to = 0, from = 0;
    uint32_t rest = (uint32_t)first;
    for (int d = last; d >= 0; d--) {
      uint32_t size = (uint32_t)a.size[d], q = rest / size;
      uint32_t c = rest - q * size;
      rest = q;
      to += c * a.stride[0][d];
      from += c * a.stride[1][d];
    }
    W v[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (e < a.each)
        v[e] = ((const W *)a.data[1])[from + e * a.stride[1][last]];
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (e < a.each)
        ((W *)a.data[0])[to + e * a.stride[0][last]] = v[e];
  }
}
#endif

/* Elements of SIZE bytes, tiles of 32 x 32 through shared memory. */
template <int SIZE>
__global__ void __launch_bounds__(256)
    turn(const __grid_constant__ map_turn a) {
  typedef FL_BITS(SIZE) W;
  __shared__ W tile[32][33];
  int64_t tiles = (a.columns + 31) / 32;
  int64_t r0 = blockIdx.x / tiles * 32, c0 = blockIdx.x % tiles * 32;
  const W *x = (const W *)a.x + blockIdx.y * a.x_count;
  W *y = (W *)a.y + blockIdx.y * a.y_count;
  int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
#pragma unroll
  for (int j = ty; j < 32; j += 8)
    if (r0 + j < a.rows && c0 + tx < a.columns)
      tile[j][tx] = x[(r0 + j) * a.x_row + c0 + tx];
  __syncthreads();
#pragma unroll
  for (int j = ty; j < 32; j += 8)
    if (c0 + j < a.columns && r0 + tx < a.rows)
      y[(c0 + j) * a.y_row + r0 + tx] = tile[tx][j];
}

/* The same where 16 bytes are aligned both ways: a thread turns N x N elements
 * in its registers, so all its loads are under way at once. A warp has 8 x 4 of
 * these squares, a block 2 x 4 warps. */
template <int SIZE>
__global__ void __launch_bounds__(256)
    turn_squares(const __grid_constant__ map_turn a) {
  typedef FL_BITS(SIZE) W;
  enum { N = 16 / SIZE };
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t tiles = (a.columns + 16 * N - 1) / (16 * N), map_row = blockIdx.x / tiles,
          r = map_row * (16 * N) + ((warp & 1) * 8 + lane % 8) * N,
          c = (blockIdx.x - map_row * tiles) * (16 * N) +
              ((warp >> 1) * 4 + lane / 8) * N;
  if (r >= a.rows || c >= a.columns)
    return;
  const W *x = (const W *)a.x + blockIdx.y * a.x_count + r * a.x_row + c;
  W *y = (W *)a.y + blockIdx.y * a.y_count + c * a.y_row + r;
  fl_vec<W, N> v[N], t;
#pragma unroll
  for (int i = 0; i < N; i++)
    v[i] = fl_read<W, N>(x + i * a.x_row);
#pragma unroll
  for (int j = 0; j < N; j++) {
#pragma unroll
    for (int i = 0; i < N; i++)
      t.at[i] = v[i].at[j];
    fl_leave(y + j * a.y_row, t);
  }
}
