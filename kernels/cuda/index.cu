/* Kernels that read or write at positions. A position out of range is reported
 * and then reads or writes nothing. The last of several writes to one place
 * wins; sums of slices are in the order of the index, so every run gives the
 * same bits. Only scatter_add of many floats with many positions for a place
 * (add) uses atomics, and not in deterministic mode. */
#include "device/divisor.cuh"
#include "device/early.cuh"
#include "index.h"

/* Position k of the index; false if it is bad. */
inline bool position(const positions &p, int64_t k, int64_t *at) {
  bool good;
  int64_t stored =
      p.narrow ? ((const int32_t *)p.at)[k] : ((const int64_t *)p.at)[k];
  if (stored < 0 && stored >= -p.from_end)
    stored += p.bound + p.fault.base;
  *at = fl_position(p.fault, stored, p.bound, &good);
  return good;
}

/* --- whole slices --- */

template <int SIZE>
__global__ void take(const __grid_constant__ slices_args a) {
  fl_begin();
  typedef FL_BITS(SIZE) T;
  int64_t all = a.outer * a.n * a.inner;
  int64_t first = (int64_t)blockIdx.x * (INDEX_THREADS * INDEX_UNITS);
  T v[INDEX_UNITS] = {};
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    int64_t u = first + j * INDEX_THREADS + threadIdx.x, row, o, at;
    if (u >= all)
      break;
    int64_t i = fl_split(u, a.by_inner, &row), k = fl_split(row, a.by_n, &o);
    if (position(a.index, k, &at))
      v[j] = ((const T *)a.from)[(o * a.index.bound + at) * a.inner + i];
  }
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    int64_t u = first + j * INDEX_THREADS + threadIdx.x;
    if (u < all)
      ((T *)a.to)[u] = v[j];
  }
}

/* Who writes each position. */
template <int T> __global__ void claim(const __grid_constant__ claim_args a) {
  int64_t at;
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads())
    if (position(a.index, k, &at))
      atomicMax((unsigned long long *)&a.last[at], (unsigned long long)k + 1);
}

template <int SIZE> __global__ void put(const __grid_constant__ slices_args a) {
  fl_begin();
  typedef FL_BITS(SIZE) T;
  int64_t all = a.outer * a.n * a.inner;
  for (int64_t u = fl_thread(); u < all; u += fl_threads()) {
    int64_t row, o, at;
    int64_t i = fl_split(u, a.by_inner, &row), k = fl_split(row, a.by_n, &o);
    if (position(a.index, k, &at) &&
        (!a.last || a.last[at] == (uint64_t)k + 1))
      ((T *)a.to)[(o * a.index.bound + at) * a.inner + i] =
          ((const T *)a.from)[u * a.step];
  }
}

/* --- single elements --- */

struct place {
  int64_t index, y, src;
};

inline place place_of(const pick_args &a, int64_t e) {
  place p = {0, 0, 0};
  for (int d = 0; d < a.ndim; d++) {
    int64_t c = fl_split(e, a.by[d], &e);
    p.index += c * a.index_stride[d];
    p.y += c * a.y_stride[d];
    p.src += c * a.src_stride[d];
  }
  return p;
}

template <int SIZE>
__global__ void gather(const __grid_constant__ pick_args a) {
  typedef FL_BITS(SIZE) T;
  int64_t first = (int64_t)blockIdx.x * (INDEX_THREADS * INDEX_UNITS);
  T v[INDEX_UNITS] = {};
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    int64_t e = first + j * INDEX_THREADS + threadIdx.x, at;
    if (e >= a.n)
      break;
    place p = place_of(a, e);
    if (position(a.index, e, &at))
      v[j] = ((const T *)a.src)[p.y + at * a.along];
  }
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    int64_t e = first + j * INDEX_THREADS + threadIdx.x;
    if (e < a.n)
      ((T *)a.y)[e] = v[j];
  }
}

/* N is the size of the numbers in `last`. */
template <int N> __global__ void contend(const __grid_constant__ pick_args a) {
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    place p = place_of(a, e);
    int64_t at;
    if (!position(a.index, e, &at))
      continue;
    int64_t to = p.y + at * a.along;
    if (N == 4)
      atomicMax((unsigned *)a.last + to, (unsigned)e + 1);
    else
      atomicMax((unsigned long long *)a.last + to, (unsigned long long)e + 1);
  }
}

template <int SIZE, int N>
__global__ void scatter(const __grid_constant__ pick_args a) {
  typedef FL_BITS(SIZE) T;
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    place p = place_of(a, e);
    int64_t at;
    if (!position(a.index, e, &at))
      continue;
    int64_t to = p.y + at * a.along;
    if (((const FL_BITS(N) *)a.last)[to] == (FL_BITS(N))(e + 1))
      ((T *)a.y)[to] = ((const T *)a.src)[p.src];
  }
}

/* A thread adds up all of a lane, in the order of the index. */
template <int D>
__global__ void add_lanes(const __grid_constant__ pick_args a) {
  typedef FL_W(D) W;
  FL_S(D) *y = (FL_S(D) *)a.y;
  const FL_S(D) *src = (const FL_S(D) *)a.src;
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    place p = place_of(a, e);
    for (int64_t s = 0; s < a.steps; s++) {
      int64_t at;
      if (!position(a.index, p.index + s * a.index_step, &at))
        continue;
      FL_S(D) &to = y[p.y + at * a.along];
      to = fl_put<FL_S(D)>(fl_get<W>(to) +
                           fl_get<W>(src[p.src + s * a.src_step]));
    }
  }
}

inline void atomic_add(double *p, double v) {
  atomicAdd(p, v);
}
inline void atomic_add(float *p, float v) {
  atomicAdd(p, v);
}
inline void atomic_add(int64_t *p, int64_t v) {
  atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
inline void atomic_add(int32_t *p, int32_t v) {
  atomicAdd(p, v);
}

template <int D> __global__ void add(const __grid_constant__ pick_args a) {
  int64_t first = (int64_t)blockIdx.x * (INDEX_THREADS * INDEX_UNITS);
  int64_t to[INDEX_UNITS];
  FL_S(D) v[INDEX_UNITS];
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    int64_t e = first + j * INDEX_THREADS + threadIdx.x, at;
    to[j] = -1;
    if (e >= a.n)
      break;
    place p = place_of(a, e);
    v[j] = ((const FL_S(D) *)a.src)[p.src];
    if (position(a.index, e, &at))
      to[j] = p.y + at * a.along;
  }
#pragma unroll
  for (int j = 0; j < INDEX_UNITS; j++) {
    if (first + j * INDEX_THREADS + threadIdx.x < a.n && to[j] >= 0)
      atomic_add((FL_S(D) *)a.y + to[j], v[j]);
  }
}

/* The same where a lane of y lies side by side and fits in shared memory: a
 * block for each lane. */
template <int D>
__global__ void __launch_bounds__(512)
    add_lines(const __grid_constant__ pick_args a) {
  typedef FL_S(D) S;
  enum { EACH = 4 };
  extern __shared__ double room[];
  S *sum = (S *)room;
  place p = place_of(a, blockIdx.x);
  S *y = (S *)a.y + p.y;
  const S *src = (const S *)a.src + p.src;
  for (int64_t i = threadIdx.x; i < a.index.bound; i += blockDim.x)
    sum[i] = y[i];
  __syncthreads();
  for (int64_t first = threadIdx.x; first < a.steps;
       first += EACH * blockDim.x) {
    int64_t to[EACH];
    S v[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      int64_t s = first + j * blockDim.x, at;
      to[j] = -1;
      if (s >= a.steps)
        break;
      v[j] = src[s * a.src_step];
      if (position(a.index, p.index + s * a.index_step, &at))
        to[j] = at;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++)
      if (first + j * blockDim.x < a.steps && to[j] >= 0)
        atomic_add(sum + to[j], v[j]);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < a.index.bound; i += blockDim.x)
    y[i] = sum[i];
}

/* --- sums of slices --- */

template <int D> __global__ void keys(const __grid_constant__ keys_args a) {
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads()) {
    int64_t at;
    if (!position(a.index, k, &at) || at == a.skip)
      at = a.index.bound;
    ((FL_S(D) *)a.keys)[k] = (FL_S(D))at;
  }
}

/* Places in y as keys, in a.y; bad ones become a.all. */
template <int D> __global__ void places(const __grid_constant__ pick_args a) {
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    place p = place_of(a, e);
    int64_t at;
    bool good = position(a.index, e, &at);
    ((FL_S(D) *)a.y)[e] = (FL_S(D))(good ? p.y + at * a.along : a.all);
  }
}

template <int HOW, class W> inline W index_joined(W a, W b) {
  if (HOW == INDEX_PROD)
    return a * b;
  if (HOW == INDEX_MAX)
    return fl_maximum(a, b);
  if (HOW == INDEX_MIN)
    return fl_minimum(a, b);
  return a + b;
}

/* Tiles of INDEX_RUN sorted positions: a thread joins one column of one. Runs
 * that lie within a tile are done with; of others the part that came from
 * before goes to head, the part that goes on to tail. K: the keys' dtype. */
template <int D, int DS, int K, int HOW>
__global__ void sums(const __grid_constant__ sums_args a) {
  typedef FL_W(D) W;
  typedef FL_S(K) key_type;
  const int BATCH = 8;
  const key_type *keys = (const key_type *)a.keys;
  const FL_S(DS) *src = (const FL_S(DS) *)a.src;
  int64_t columns = a.outer * a.inner;
  for (int64_t e = fl_thread(); e < a.tiles * columns; e += fl_threads()) {
    int64_t tile, o, c = fl_split(e, a.by_columns, &tile),
                     i = fl_split(c, a.by_inner, &o);
    int64_t first = tile * INDEX_RUN, end = min(first + INDEX_RUN, a.n);
    FL_S(D) *y = (FL_S(D) *)a.y + o * a.bound * a.inner + i;
    const FL_S(DS) *from = src + (a.single ? 0 : o * a.n * a.inner + i);
    key_type run = keys[first];
    bool head = first > 0 && keys[first - 1] == run;
    W sum = W(HOW == INDEX_PROD);
    if (run < a.bound) {
      if (!head)
        sum = fl_get<W>(y[run * a.inner]);
      else if (HOW >= INDEX_MAX)
        sum = fl_get<W>(from[a.single ? 0 : a.order[first] * a.inner]);
    }
    for (int64_t start = first; start < end; start += BATCH) {
      key_type key[BATCH];
      W v[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        int64_t k = start + j;
        key[j] = k < end ? keys[k] : run;
        v[j] = 0;
        if (k < end && key[j] < a.bound)
          v[j] = fl_get<W>(from[a.single ? 0 : a.order[k] * a.inner]);
      }
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        if (start + j >= end)
          break;
        if (key[j] != run) {
          if (head)
            ((W *)a.head)[e] = sum;
          else if (run < a.bound)
            y[run * a.inner] = fl_put<FL_S(D)>(sum);
          head = false;
          run = key[j];
          sum = run < a.bound ? fl_get<W>(y[run * a.inner]) : W(0);
        }
        sum = index_joined<HOW>(sum, v[j]);
      }
    }
    if (head)
      ((W *)a.head)[e] = sum;
    else if (end < a.n && keys[end] == run)
      ((W *)a.tail)[e] = sum;
    else if (run < a.bound)
      y[run * a.inner] = fl_put<FL_S(D)>(sum);
  }
}

/* Runs that begin in a tile and go on beyond it. */
template <int D, int K, int HOW>
__global__ void carry(const __grid_constant__ sums_args a) {
  typedef FL_W(D) W;
  typedef FL_S(K) key_type;
  const key_type *keys = (const key_type *)a.keys;
  int64_t columns = a.outer * a.inner;
  for (int64_t e = fl_thread(); e < a.tiles * columns; e += fl_threads()) {
    int64_t tile, o, c = fl_split(e, a.by_columns, &tile),
                     i = fl_split(c, a.by_inner, &o);
    int64_t first = tile * INDEX_RUN, end = first + INDEX_RUN;
    if (end >= a.n)
      continue;
    key_type run = keys[end - 1];
    bool here = first == 0 || keys[first - 1] != run;
    if (!here || keys[end] != run || run >= a.bound)
      continue;
    W sum = ((const W *)a.tail)[e];
    for (int64_t t = e + columns; end < a.n && keys[end] == run;
         t += columns, end += INDEX_RUN)
      sum = index_joined<HOW>(sum, ((const W *)a.head)[t]);
    FL_S(D) *y = (FL_S(D) *)a.y + o * a.bound * a.inner + i;
    y[run * a.inner] = fl_put<FL_S(D)>(sum);
  }
}

/* --- one_hot --- */

template <int D> __global__ void hot(const __grid_constant__ hot_args a) {
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads()) {
    int64_t at;
    if (position(a.index, k, &at))
      ((FL_S(D) *)a.y)[k * a.index.bound + at] = fl_put<FL_S(D)>(FL_W(D)(1));
  }
}
