/* A step of Adam whose moments are codes of 8 bits. A warp has a block of
 * elements, of which a lane has ADAM8_LANE neighbours at a time. Formulas are
 * the CPU's. */
#include "device/early.cuh"
#include "device/flare.cuh"
#include "adam8.h"

template <class T> struct adam8_rule {
  T keep, decay, c1, b2, c2, eps, rate, root;

  adam8_rule(const adam8_args &a) {
    adam8_now now = a.later ? *a.later : a.now;
    keep = (T)(a.decoupled ? 1 - now.lr * a.decay : 1);
    decay = (T)(a.decoupled ? 0 : a.decay);
    c1 = (T)(1 - a.b1);
    b2 = (T)a.b2;
    c2 = (T)(1 - a.b2);
    eps = (T)a.eps;
    rate = (T)now.rate;
    root = (T)now.root;
  }
};

/* Up to ADAM8_LANE elements of a lane. */
template <class T> struct adam8_part {
  T p[ADAM8_LANE];
  float m[ADAM8_LANE], v[ADAM8_LANE];
};

template <int D, class T>
void adam8_get(const void *from, int64_t at, int n, T (&to)[ADAM8_LANE]) {
  const FL_S(D) *x = (const FL_S(D) *)from + at;
  constexpr int N = 16 / sizeof(*x) < ADAM8_LANE ? 16 / sizeof(*x) : ADAM8_LANE;
  if (n == ADAM8_LANE && ((uintptr_t)x & 15) == 0) {
#pragma unroll
    for (int k = 0; k < ADAM8_LANE; k += N) {
      fl_vec<FL_S(D), N> v = fl_read<FL_S(D), N>(x + k);
#pragma unroll
      for (int j = 0; j < N; j++)
        to[k + j] = fl_get<T>(v.at[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < ADAM8_LANE; j++)
      to[j] = j < n ? fl_get<T>(x[j]) : T(0);
  }
}

template <int D, class T>
void adam8_put(void *to, int64_t at, int n, const T (&from)[ADAM8_LANE]) {
  FL_S(D) *x = (FL_S(D) *)to + at;
  constexpr int N = 16 / sizeof(*x) < ADAM8_LANE ? 16 / sizeof(*x) : ADAM8_LANE;
  if (n == ADAM8_LANE && ((uintptr_t)x & 15) == 0) {
#pragma unroll
    for (int k = 0; k < ADAM8_LANE; k += N) {
      fl_vec<FL_S(D), N> v;
#pragma unroll
      for (int j = 0; j < N; j++)
        v.at[j] = fl_put<FL_S(D)>(from[k + j]);
      fl_write(x + k, v);
    }
  } else {
#pragma unroll
    for (int j = 0; j < ADAM8_LANE; j++)
      if (j < n)
        x[j] = fl_put<FL_S(D)>(from[j]);
  }
}

inline void adam8_codes(const unsigned char *from, int n,
                        unsigned char (&to)[ADAM8_LANE]) {
  if (n == ADAM8_LANE && ((uintptr_t)from & 7) == 0) {
    fl_vec<unsigned char, 8> v = fl_read<unsigned char, 8>(from);
#pragma unroll
    for (int j = 0; j < ADAM8_LANE; j++)
      to[j] = v.at[j];
  } else {
#pragma unroll
    for (int j = 0; j < ADAM8_LANE; j++)
      to[j] = j < n ? from[j] : 0;
  }
}

/* The new values of n elements from `at` on. */
template <int DP, int DG, class T>
void adam8_advance(const adam8_args &a, const adam8_rule<T> &r,
                   const float (*map)[ADAM8_CODES], const float (&scale)[2],
                   int64_t at, int n, adam8_part<T> &x) {
  T g[ADAM8_LANE];
  unsigned char m[ADAM8_LANE], v[ADAM8_LANE];
  adam8_get<DP>(a.p, at, n, x.p);
  adam8_get<DG>(a.g, at, n, g);
  adam8_codes(a.codes[0] + at, n, m);
  adam8_codes(a.codes[1] + at, n, v);
#pragma unroll
  for (int j = 0; j < ADAM8_LANE; j++) {
    T first = (T)(map[0][m[j]] * scale[0]), second = (T)(map[1][v[j]] * scale[1]);
    T d = g[j] + r.decay * x.p[j];
    first += r.c1 * (d - first);
    second = r.b2 * second + r.c2 * d * d;
    x.m[j] = (float)first;
    x.v[j] = (float)second;
    x.p[j] = x.p[j] * r.keep - r.rate * (first / (fl_sqrt(second) * r.root + r.eps));
  }
}

/* How many middles are below x; NaN: all. */
inline unsigned char adam8_code(const float *middles, float x) {
  int low = 0;
#pragma unroll
  for (int k = ADAM8_CODES / 2; k > 0; k /= 2)
    low += middles[low + k - 1] >= x ? 0 : k;
  return (unsigned char)low;
}

inline void adam8_encode(const float *middles, const float (&x)[ADAM8_LANE],
                         float most, unsigned char *to, int n) {
  fl_vec<unsigned char, 8> v;
  float by = most == 0 ? 1 : most;
#pragma unroll
  for (int j = 0; j < ADAM8_LANE; j++)
    v.at[j] = adam8_code(middles, x[j] / by);
  if (n == ADAM8_LANE && ((uintptr_t)to & 7) == 0) {
    fl_write(to, v);
  } else {
#pragma unroll
    for (int j = 0; j < ADAM8_LANE; j++)
      if (j < n)
        to[j] = v.at[j];
  }
}

template <int DP, int DG>
__global__ void __launch_bounds__(ADAM8_THREADS)
    step(const __grid_constant__ adam8_args a) {
  typedef FL_W(DP) T;
  __shared__ float map[2][ADAM8_CODES], middles[2][ADAM8_CODES];
  fl_begin();
  if (fl_faulty(a.fault))
    return;
  for (int i = threadIdx.x; i < 2 * ADAM8_CODES; i += ADAM8_THREADS) {
    (&map[0][0])[i] = a.maps[i];
    (&middles[0][0])[i] = i % ADAM8_CODES < ADAM8_CODES - 1
                              ? (a.maps[i] + a.maps[i + 1]) / 2
                              : 0;
  }
  __syncthreads();
  adam8_rule<T> r(a);
  int lane = threadIdx.x & 31, warps = ADAM8_THREADS / 32;
  int64_t b = blockIdx.x * (int64_t)warps + threadIdx.x / 32;
  for (; b < a.blocks; b += gridDim.x * (int64_t)warps) {
    int64_t from = b * a.block, end = from + a.block;
    end = end < a.n ? end : a.n;
    float scale[2] = {a.scales[0][b], a.scales[1][b]}, most[2] = {0, 0};
    adam8_part<T> x;
    const int WIDTH = 32 * ADAM8_LANE;
    for (int64_t at = from + lane * ADAM8_LANE; at < end; at += WIDTH) {
      int n = end - at < ADAM8_LANE ? (int)(end - at) : ADAM8_LANE;
      adam8_advance<DP, DG>(a, r, map, scale, at, n, x);
#pragma unroll
      for (int j = 0; j < ADAM8_LANE; j++)
        if (j < n) {
          most[0] = fl_most_nan(most[0], fl_abs(x.m[j]));
          most[1] = fl_most_nan(most[1], fl_abs(x.v[j]));
        }
    }
    most[0] = fl_warp_reduce(most[0], fl_max_of());
    most[1] = fl_warp_reduce(most[1], fl_max_of());
    for (int64_t at = from + lane * ADAM8_LANE; at < end; at += WIDTH) {
      int n = end - at < ADAM8_LANE ? (int)(end - at) : ADAM8_LANE;
      if (a.block > WIDTH) /* else it is there */
        adam8_advance<DP, DG>(a, r, map, scale, at, n, x);
      adam8_put<DP>(a.p, at, n, x.p);
      adam8_encode(middles[0], x.m, most[0], a.codes[0] + at, n);
      adam8_encode(middles[1], x.v, most[1], a.codes[1] + at, n);
    }
    __syncwarp();
    if (lane == 0) {
      a.scales[0][b] = most[0];
      a.scales[1][b] = most[1];
    }
  }
}
