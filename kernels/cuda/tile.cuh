/* What the printed kernels of tiles call: vectors of any number of elements,
 * and reductions over the threads of a row. A text that has no FL_MATH of its
 * own takes none of math.h. */
#pragma once
#ifndef FL_MATH
#define FL_MATH 0
#endif
#include "device/early.cuh"
#include "device/flare.cuh"
#include "../../runtime/math/philox.h"

/* Keeps v apart from what follows. Neither NVRTC nor the assembler contracts an
 * operation that names its rounding, and v + -0.0 is v. */
static void fl_separate(float &v) {
  asm("add.rn.f32 %0, %0, 0f80000000;" : "+f"(v));
}
static void fl_separate(double &v) {
  asm("add.rn.f64 %0, %0, 0d8000000000000000;" : "+d"(v));
}

/* --- elements --- */

template <class W, class S> W tile_get(S s) { return fl_get<W>(s); }
template <class S, class W> S tile_put(W v) { return fl_put<S>(v); }
template <class S> S tile_put(bool v) { return fl_put<S>((int64_t)v); }

/* Stores are volatile, and no access passes them: memory that is written may
 * have been read by the same thread. */
template <class S> void tile_store(S *p, S v) {
  const uint64_t to = __cvta_generic_to_global(p);
  if constexpr (sizeof(S) == 8) {
    uint64_t w;
    memcpy(&w, &v, 8);
    asm volatile("st.global.b64 [%0], %1;" ::"l"(to), "l"(w) : "memory");
  } else if constexpr (sizeof(S) == 4) {
    uint32_t w;
    memcpy(&w, &v, 4);
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(w) : "memory");
  } else if constexpr (sizeof(S) == 2) {
    uint16_t w;
    memcpy(&w, &v, 2);
    asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(w) : "memory");
  } else {
    uint8_t w;
    memcpy(&w, &v, 1);
    asm volatile("st.global.b8 [%0], %1;" ::"l"(to), "r"((uint32_t)w)
                 : "memory");
  }
}

/* V elements, in accesses of at most 16 bytes. */
template <class S, int V> struct tile_vec {
  static constexpr int SIZE = V * sizeof(S) > 16 ? 16 : V * sizeof(S);
  static constexpr int STEP = SIZE / sizeof(S);
  alignas(SIZE) S at[V];
};
template <class S, int V> void tile_load(tile_vec<S, V> &x, const S *p) {
  constexpr int STEP = tile_vec<S, V>::STEP;
#pragma unroll
  for (int i = 0; i < V; i += STEP) {
    fl_vec<S, STEP> y;
    if constexpr (sizeof y >= 8)
      y = fl_fetch<S, STEP>(p + i);
    else
      y = fl_read<S, STEP>(p + i);
#pragma unroll
    for (int k = 0; k < STEP; k++)
      x.at[i + k] = y.at[k];
  }
}
template <class S, int V> void tile_zero(tile_vec<S, V> &x) {
#pragma unroll
  for (int i = 0; i < V; i++)
    memset(&x.at[i], 0, sizeof(S));
}
template <class S, int V> void tile_save(S *p, const tile_vec<S, V> &x) {
  constexpr int STEP = tile_vec<S, V>::STEP;
#pragma unroll
  for (int i = 0; i < V; i += STEP) {
    fl_vec<S, STEP> y;
#pragma unroll
    for (int k = 0; k < STEP; k++)
      y.at[k] = x.at[i + k];
    uint32_t w[4];
    memcpy(w, &y, sizeof y);
    const uint64_t to = __cvta_generic_to_global(p + i);
    if constexpr (sizeof y == 16)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                   "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                   : "memory");
    else if constexpr (sizeof y == 8)
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]),
                   "r"(w[1])
                   : "memory");
    else if constexpr (sizeof y == 4)
      asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");
    else if constexpr (sizeof y == 2)
      asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"((uint16_t)w[0])
                   : "memory");
    else
      asm volatile("st.global.b8 [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");
  }
}
/* 0 where a mask is false, of which nothing is read. */
template <class S, int V>
void tile_load_masked(tile_vec<S, V> &x, const S *p, const bool (&mask)[V]) {
  bool all = true;
#pragma unroll
  for (int j = 0; j < V; j++)
    all = all && mask[j];
  if (all)
    tile_load(x, p);
  else {
    tile_zero(x);
#pragma unroll
    for (int j = 0; j < V; j++)
      if (mask[j])
        x.at[j] = p[j];
  }
}

/* --- positions (../../runtime/tile.h) --- */

struct tile_fault {
  fl_fault_word *word;
  uint64_t seq; /* of position 0 */
};
/* Position k, counted from 0; -1: it is bad, or one to skip. */
inline int64_t tile_position(const tile_fault &f, int k, int64_t stored,
                             int64_t bound, int64_t base, bool from_end,
                             int64_t skip) {
  int64_t i = from_end && stored < 0 && stored >= -bound ? stored + bound
                                                         : stored - base;
  if ((uint64_t)i < (uint64_t)bound)
    return i == skip ? -1 : i;
  flc_fault at = {f.word, f.seq + k, base};
  fl_report(at, i, bound);
  return -1;
}

inline void tile_add(float *p, float v) { atomicAdd(p, v); }
inline void tile_add(double *p, double v) { atomicAdd(p, v); }
inline void tile_add(int64_t *p, int64_t v) {
  atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
template <class S, int V> void tile_add(S *p, const tile_vec<S, V> &x) {
#if __CUDA_ARCH__ >= 900
  if constexpr (sizeof(S) == 4 && V % 4 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 4)
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                       __cvta_generic_to_global(p + i)),
                   "f"(x.at[i]), "f"(x.at[i + 1]), "f"(x.at[i + 2]),
                   "f"(x.at[i + 3])
                   : "memory");
    return;
  }
#endif
#pragma unroll
  for (int i = 0; i < V; i++)
    tile_add(p + i, x.at[i]);
}

/* --- reductions: R is the fl_reduction --- */

template <int R, class A> A tile_join(A a, A v) {
  return R == 1   ? a + v
         : R == 2 ? a * v
         : R == 3 ? (v > a || v != v ? v : a)
                  : (v < a || v != v ? v : a);
}

/* The mean and the deviation of n elements, as sums of their differences from
 * `at` and of the squares of these, which lose digits only if `at` is many
 * times as far from the mean as most elements are. So it is first an element,
 * and the mean before sums are joined. */
template <class T> struct tile_moments {
  T n, at, sum, square;
};
template <class T> tile_moments<T> tile_moved(tile_moments<T> a, T at) {
  const T d = at - a.at;
  return {a.n, at, a.sum - a.n * d, a.square - d * (2 * a.sum - a.n * d)};
}
template <class T> tile_moments<T> tile_settled(tile_moments<T> a) {
  return a.n > 0 ? tile_moved(a, a.at + a.sum / a.n) : a;
}
template <class T> T tile_mean(tile_moments<T> a) {
  return a.at + a.sum / a.n;
}
template <class T> T tile_deviation(tile_moments<T> a) {
  const T q = a.square - a.sum * (a.sum / a.n);
  return q < 0 ? T(0) : q;
}
/* b is settled. */
template <int R, class T>
tile_moments<T> tile_join(tile_moments<T> a, tile_moments<T> b) {
  if (a.n == 0)
    return b;
  if (b.n > 0) {
    b = tile_moved(b, a.at);
    a.n += b.n;
    a.sum += b.sum;
    a.square += b.square;
  }
  return a;
}
template <class T, int V> void tile_take(tile_moments<T> &a, const T (&x)[V]) {
  T sum = 0, square = 0;
  if (a.n == 0)
    a.at = x[0];
#pragma unroll
  for (int j = 0; j < V; j++) {
    const T d = x[j] - a.at;
    sum += d;
    square += d * d;
  }
  a.n += V;
  a.sum += sum;
  a.square += square;
}
template <int R, class T> tile_moments<T> tile_join(tile_moments<T> a, T v) {
  const T x[1] = {v};
  tile_take(a, x);
  return a;
}

/* Over N threads side by side, a power of two up to 32; in each of them. Of
 * moments the first thread has some. */
template <int R, int N, class T> tile_moments<T> tile_lanes(tile_moments<T> a) {
  a = tile_moved(a, (T)__shfl_sync(0xffffffff, a.at, 0, N));
#pragma unroll
  for (int k = N / 2; k > 0; k /= 2) {
    a.n += __shfl_xor_sync(0xffffffff, a.n, k);
    a.sum += __shfl_xor_sync(0xffffffff, a.sum, k);
    a.square += __shfl_xor_sync(0xffffffff, a.square, k);
  }
  return tile_settled(a);
}
template <int R, int N, class A> A tile_lanes(A a) {
#pragma unroll
  for (int k = N / 2; k > 0; k /= 2)
    a = tile_join<R>(a, (A)__shfl_xor_sync(0xffffffff, a, k));
  return a;
}
/* Of N warps, whose parts lie in shared memory. */
template <int R, int N, class A> A tile_warps(const A *part) {
  return tile_lanes<R, N>(part[threadIdx.x & (N - 1)]);
}
/* COLUMNS columns of ROWS threads with V values each; all get the results. */
template <int R, int ROWS, int COLUMNS, int V, class A>
void tile_columns(A (&a)[V], A *part, int row, int column) {
  __syncthreads(); /* it may still be read */
#pragma unroll
  for (int j = 0; j < V; j++)
    part[(row * V + j) * COLUMNS + column] = a[j];
  __syncthreads();
  for (int j = row; j < V; j += ROWS) {
    A s = part[j * COLUMNS + column];
#pragma unroll
    for (int k = 1; k < ROWS; k++)
      s = tile_join<R>(s, part[(k * V + j) * COLUMNS + column]);
    part[j * COLUMNS + column] = s;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; j++)
    a[j] = part[j * COLUMNS + column];
}

/* --- column sums --- */

/* Sums over GROUPS groups of LANES threads, in those of the first. `part` has
 * room for four numbers of each thread. */
template <int LANES, int GROUPS, int N, class A>
void tile_groups(A (&a)[N], A *part, int lane, int group) {
  if constexpr (GROUPS == 1)
    return;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4 && i + k < N; k++)
      part[(k * GROUPS + group) * LANES + lane] = a[i + k];
    __syncthreads();
    if (group == 0) {
#pragma unroll
      for (int k = 0; k < 4 && i + k < N; k++)
        for (int g = 1; g < GROUPS; g++)
          a[i + k] += part[(k * GROUPS + g) * LANES + lane];
    }
  }
}
/* Over THREADS threads, in the first of them. */
template <int THREADS, class A> A tile_block(A a, A *part) {
  a = tile_lanes<1, 32>(a);
  __syncthreads();
  if ((threadIdx.x & 31) == 0)
    part[threadIdx.x >> 5] = a;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int k = 1; k < THREADS / 32; k++)
      a += part[k];
  return a;
}
/* Over ROWS threads of each of COLUMNS columns, in the first row. */
template <int COLUMNS, int ROWS, class A>
A tile_down(A a, A *part, int column, int row) {
  part[row * COLUMNS + column] = a;
  __syncthreads();
  if (row == 0)
    for (int k = 1; k < ROWS; k++)
      a += part[k * COLUMNS + column];
  return a;
}
