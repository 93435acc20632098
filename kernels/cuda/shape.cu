/* Kernels that rearrange elements or make them from numbers. flip, roll, repeat
 * and pad share one kernel (remap). A gradient gathers from the copies of an
 * element, so its sums have one order. */
#include "device/divisor.cuh"
#include "shape.h"

/* --- remap --- */

/* The coordinate of x that coordinate c of y comes from, -1: none. */
inline int64_t source(const remap_args &a, int d, int64_t c) {
  int64_t i = c - a.before[d], size = a.small[d];
  if ((uint64_t)i < (uint64_t)size)
    return i;
  switch (a.mode) {
  case SHAPE_REFLECT:
    return i < 0 ? -i : 2 * (size - 1) - i;
  case SHAPE_REPLICATE:
    return i < 0 ? 0 : size - 1;
  case SHAPE_CIRCULAR: {
    int64_t q, r = fl_split(i < 0 ? -i : i, size, &q);
    return i < 0 && r > 0 ? size - r : r;
  }
  default:
    return -1;
  }
}

/* V elements of the last dim at once; they come from anywhere. */
template <int SIZE, int V>
__global__ void remap(const __grid_constant__ remap_args a) {
  typedef FL_BITS(SIZE) T;
  const T *x = (const T *)a.x;
  T value;
  memcpy(&value, a.value, SIZE);
  for (int64_t k = fl_thread(); k * V < a.n; k += fl_threads()) {
    int64_t rest, c = fl_split(k * V, a.by[0], &rest), from = 0;
    bool none = false;
    for (int d = 1; d < a.ndim; d++) {
      int64_t i = source(a, d, fl_split(rest, a.by[d], &rest));
      none |= i < 0;
      from += i * a.stride[d];
    }
    fl_vec<T, V> out;
#pragma unroll
    for (int j = 0; j < V; j++) {
      int64_t i = none ? -1 : source(a, 0, c + j);
      out.at[j] = i < 0 ? value : x[from + i * a.stride[0]];
    }
    fl_write((T *)a.y + k * V, out);
  }
}

template <int SIZE> __global__ void lay(const __grid_constant__ lay_args a) {
  typedef FL_BITS(SIZE) T;
  int64_t first = (int64_t)blockIdx.x * (SHAPE_THREADS * SHAPE_UNITS);
  T v[SHAPE_UNITS];
#pragma unroll
  for (int j = 0; j < SHAPE_UNITS; j++) {
    int64_t u = first + j * SHAPE_THREADS + threadIdx.x;
    if (u < a.n)
      v[j] = ((const T *)a.from)[u];
  }
#pragma unroll
  for (int j = 0; j < SHAPE_UNITS; j++) {
    int64_t u = first + j * SHAPE_THREADS + threadIdx.x, row;
    int64_t c = fl_split(u, a.row, &row);
    if (u < a.n)
      ((T *)a.to)[row * a.pitch + c] = v[j];
  }
}

/* V elements of a row. */
template <int SIZE, int V>
__global__ void triangle(const __grid_constant__ triangle_args a) {
  typedef FL_BITS(SIZE) T;
  for (int64_t k = fl_thread() * V; k < a.n; k += fl_threads() * V) {
    int64_t q, c = fl_split(k, a.columns, &q), r = fl_split(q, a.rows, &q);
    fl_vec<T, V> v = fl_read<T, V>((const T *)a.x + k);
#pragma unroll
    for (int j = 0; j < V; j++) {
      int64_t right = c + j - r;
      bool keep = a.upper ? right >= a.diagonal : right <= a.diagonal;
      v.at[j] = keep ? v.at[j] : T(0);
    }
    fl_write((T *)a.y + k, v);
  }
}

/* --- gradients --- */

/* The coordinates of dy that came from coordinate i of dim d: candidates number
 * 0 ... count - 1, some of which are outside. */
struct origins {
  int64_t first, by, count;
  bool reflect;
};

inline origins origins_of(const unpad_args &a, int d, int64_t i) {
  int64_t size = a.small[d], big = a.big[d], at = a.before[d] + i;
  if (a.mode == SHAPE_CONSTANT || (a.before[d] == 0 && big == size))
    return {at, 0, 1, false};
  if (a.mode == SHAPE_REFLECT)
    return {at, i, 3, true};
  if (a.mode == SHAPE_CIRCULAR)
    return {at - size, size, 3, false};
  int64_t first = i == 0 ? 0 : at, last = i == size - 1 ? big - 1 : at;
  return {first, 1, last - first + 1, false};
}

/* Itself, its image before the first element, its image behind the last. */
inline int64_t origin(const origins &o, int64_t t, int64_t size) {
  if (!o.reflect)
    return o.first + t * o.by;
  int64_t i = o.by;
  if (t == 1)
    return i > 0 ? o.first - 2 * i : -1;
  return t == 0 ? o.first : i < size - 1 ? o.first + 2 * (size - 1 - i) : -1;
}

/* Sum over what came from coordinates `rest` (of dims K and up); `at` is the
 * place in dy so far, `below` the elements of dy in one step of dim K. */
template <int D, int N, int K = 0>
FL_W(D)
unpad_sum(const unpad_args &a, int64_t rest, int64_t at, int64_t below) {
  if constexpr (K == N) {
    return fl_get<FL_W(D)>(((const FL_S(D) *)a.dy)[at]);
  } else {
    int64_t size = a.small[K], big = a.big[K], up,
            i = fl_split(rest, size, &up);
    origins o = origins_of(a, K, i);
    FL_W(D) sum = 0;
    for (int64_t t = 0; t < o.count; t++) {
      int64_t c = origin(o, t, size);
      if ((uint64_t)c < (uint64_t)big)
        sum += unpad_sum<D, N, K + 1>(a, up, at + c * below, below * big);
    }
    return sum;
  }
}

template <int D, int N>
__global__ void unpad(const __grid_constant__ unpad_args a) {
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads())
    ((FL_S(D) *)a.dx)[k] = fl_put<FL_S(D)>(unpad_sum<D, N>(a, k, 0, 1));
}

/* Sum over the view's elements `left` further than its first, in dims below K:
 * the coordinates of dim K - 1 that leave what the others can reach. */
template <int D, int K>
FL_W(D)
unstride_sum(const unstride_args &a, int64_t left, int64_t at) {
  if constexpr (K == 0) {
    return left == 0 ? fl_get<FL_W(D)>(((const FL_S(D) *)a.dy)[at])
                     : FL_W(D)(0);
  } else {
    int64_t stride = a.stride[K - 1], low = 0, high = a.size[K - 1] - 1;
    FL_W(D) sum = 0;
    if (stride > 0) {
      int64_t q, below = K > 1 ? a.reach[K > 1 ? K - 2 : 0] : 0;
      fl_split(left, stride, &q);
      high = min(high, q);
      if (left > below) {
        fl_split(left - below + stride - 1, stride, &q);
        low = q;
      }
    }
    for (int64_t c = low; c <= high; c++)
      sum +=
          unstride_sum<D, K - 1>(a, left - c * stride, at + c * a.from[K - 1]);
    return sum;
  }
}

template <int D, int N>
__global__ void unstride(const __grid_constant__ unstride_args a) {
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads()) {
    int64_t left = k - a.offset;
    bool in = left >= 0 && left <= (N > 0 ? a.reach[N > 0 ? N - 1 : 0] : 0);
    FL_W(D) sum = in ? unstride_sum<D, N>(a, left, 0) : FL_W(D)(0);
    ((FL_S(D) *)a.dx)[k] = fl_put<FL_S(D)>(sum);
  }
}

/* --- made from numbers --- */

/* Element j of the integers from start to stop in `last` even steps, fewer than
 * 2^31, without its fraction. */
inline int64_t even_step(int64_t start, int64_t stop, int64_t j,
                         int64_t last) {
  bool up = stop >= start;
  uint64_t from = (uint64_t)start, to = (uint64_t)stop;
  uint64_t way = up ? to - from : from - to, n = (uint64_t)last;
  uint64_t part = way % n * (uint64_t)j;
  uint64_t whole = way / n * (uint64_t)j + part / n;
  int64_t y = (int64_t)(up ? from + whole : from - whole);
  if (part % n == 0)
    return y;
  return up && y < 0 ? y + 1 : !up && y > 0 ? y - 1 : y;
}

/* STEPS: of that kind; the divisions of others cost registers. */
template <int D, int STEPS>
__global__ void sequence(const __grid_constant__ sequence_args a) {
  typedef FL_S(D) S;
  S *y = (S *)a.y;
  for (int64_t i = fl_thread(); i < a.n; i += fl_threads()) {
    if (STEPS) {
      y[i] = fl_put<S>(a.start + (double)i * a.step);
    } else if (a.kind == SHAPE_DIAGONAL) {
      int64_t q, c = fl_split(i, a.by, &q);
      y[i] = fl_put<S>(FL_W(D)(c == q));
    } else if (a.kind == SHAPE_EVEN) {
      y[i] = fl_put<S>(even_step(a.first, a.by, i, a.n - 1));
    } else if (a.kind == SHAPE_WHOLE) {
      y[i] = fl_put<S>(a.first + i * a.by);
    } else { /* SHAPE_ENDS */
      double v = i >= a.n / 2 ? a.stop - (double)(a.n - 1 - i) * a.step
                              : a.start + (double)i * a.step;
      y[i] = fl_put<S>(v);
    }
  }
}
