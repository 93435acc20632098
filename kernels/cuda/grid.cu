/* grid_sample and its gradients. A thread computes a result for all channels,
 * with positions and weights computed once. Several results may add to one
 * element of dx: by atomics, or in deterministic mode by one thread for each
 * plane. */
#include "device/flare.cuh"

#include "grid.h"

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };

/* One dim of a result: each tap's place (held to those that there are), weight
 * and the weight's derivative; how the coordinate follows the grid's. */
template <class T> struct axis {
  T at[4], weight[4], change[4], slope;
};

/* c clamped to 0 .. last; NaN becomes 0. */
template <class T> T grid_held(T c, T last) {
  return c > 0 ? c < last ? c : last : T(0);
}

/* c reflected at low and high; slope changes its sign with it. */
template <class T> void grid_reflect(T low, T high, T &c, T &slope) {
  T span = high - low, x = c - low, far = x < 0 ? -x : x;
  if (!(span > 0)) {
    c = 0 * c;
    slope = 0;
    return;
  }
  T turns = floor(far / span), extra = far - turns * span;
  bool back = turns - 2 * floor(turns / 2) != 0;
  c = back ? high - extra : extra + low;
  slope = (x < 0) != back ? -slope : slope;
}

/* c brought to where there are elements. */
template <class T>
void grid_inside(const grid_args &a, int64_t size, T &c, T &slope) {
  T last = (T)(size - 1);
  if (a.padding == ZEROS)
    return;
  if (a.padding == REFLECTION)
    grid_reflect(a.corners ? T(0) : T(-0.5), a.corners ? last : last + T(0.5), c,
            slope);
  slope = c < 0 || c > last ? T(0) : slope;
  c = c < 0 ? T(0) : c > last ? last : c;
}

/* Keys' cubic weights with a = -0.75, and their derivatives, of a distance. */
#define A T(-0.75)
template <class T> T near_by(T d) {
  return ((A + 2) * d - (A + 3)) * d * d + 1;
}
template <class T> T near_slope(T d) {
  return (3 * (A + 2) * d - 2 * (A + 3)) * d;
}
template <class T> T far_off(T d) {
  return (((d - 5) * d + 8) * d - 4) * A;
}
template <class T> T far_slope(T d) {
  return ((3 * d - 10) * d + 8) * A;
}
#undef A

template <int TAPS, class T> void taps_of(T c, axis<T> &r) {
  if constexpr (TAPS == 1) {
    r.at[0] = rint(c);
    r.weight[0] = 1;
    r.change[0] = 0;
    return;
  }
  T low = floor(c), t = c - low, u = 1 - t;
  if constexpr (TAPS == 2) {
    r.at[0] = low;
    r.at[1] = low + 1;
    r.weight[0] = u;
    r.weight[1] = t;
    r.change[0] = -1;
    r.change[1] = 1;
  } else if constexpr (TAPS == 4) {
#pragma unroll
    for (int k = 0; k < 4; k++)
      r.at[k] = low + (k - 1);
    r.weight[0] = far_off(t + 1);
    r.weight[1] = near_by(t);
    r.weight[2] = near_by(u);
    r.weight[3] = far_off(u + 1);
    r.change[0] = far_slope(t + 1);
    r.change[1] = near_slope(t);
    r.change[2] = -near_slope(u);
    r.change[3] = -far_slope(u + 1);
  }
}

template <int TAPS, class T>
void read_axis(const grid_args &a, T g, int k, axis<T> &r) {
  int64_t size = a.size[k];
  T last = (T)(size - 1), by = (a.corners ? last : (T)size) / 2, none = 0;
  T c = (g + 1) * by - (a.corners ? T(0) : T(0.5));
  r.slope = by;
  if (TAPS != 4)
    grid_inside(a, size, c, r.slope);
  taps_of<TAPS>(c, r);
#pragma unroll
  for (int j = 0; j < TAPS; j++) {
    T at = r.at[j];
    if (TAPS == 4) {
      grid_inside(a, size, at, none);
      at = rint(at);
    }
    r.at[j] = grid_held(at, last);
    if (a.padding == ZEROS && r.at[j] != at)
      r.weight[j] = r.change[j] = 0;
  }
}

/* Result p of sample b. */
template <int D, int N, int TAPS> struct reader {
  typedef FL_S(D) T;
  enum { READS = TAPS * TAPS * (N == 3 ? TAPS : 1) };
  axis<T> axes[N];

  reader(const grid_args &a, int64_t b, int64_t p) {
    const T *g = (const T *)a.grid + (b * a.results + p) * N;
#pragma unroll
    for (int k = 0; k < N; k++)
      read_axis<TAPS>(a, g[k], k, axes[k]);
  }
  /* Read r takes tap r / TAPS^k % TAPS along dim k. */
  int64_t place(const grid_args &a, int r) const {
    int64_t at = 0;
#pragma unroll
    for (int k = 0; k < N; k++, r /= TAPS)
      at += (int64_t)axes[k].at[r % TAPS] * a.step[k];
    return at;
  }
  /* `change`: the derivative along that dim; -1: none. */
  T weight(int r, int change = -1) const {
    T w = 1;
#pragma unroll
    for (int k = 0; k < N; k++, r /= TAPS)
      w *= k == change ? axes[k].change[r % TAPS] : axes[k].weight[r % TAPS];
    return w;
  }
};

#define EACH_RESULT(i, b, p)                                                   \
  for (int64_t i = fl_thread(), b, p;                                          \
       i < a.batch * a.results &&                                              \
       (b = i / a.results, p = i - b * a.results, true);                       \
       i += fl_threads())

template <int D, int N, int TAPS>
__global__ void __launch_bounds__(256)
    read(const __grid_constant__ grid_args a) {
  typedef reader<D, N, TAPS> R;
  typedef FL_S(D) T;
  EACH_RESULT(i, b, p) {
    R from(a, b, p);
    for (int64_t c = blockIdx.y; c < a.channels; c += gridDim.y) {
      const T *x = (const T *)a.x + (b * a.channels + c) * a.plane;
      T sum = 0;
#pragma unroll(R::READS > 16 ? 1 : R::READS)
      for (int r = 0; r < R::READS; r++)
        sum += from.weight(r) * x[from.place(a, r)];
      ((T *)a.y)[(b * a.channels + c) * a.results + p] = sum;
    }
  }
}

template <int D, int N, int TAPS>
__global__ void __launch_bounds__(256)
    slopes(const __grid_constant__ grid_args a) {
  typedef reader<D, N, TAPS> R;
  typedef FL_S(D) T;
  EACH_RESULT(i, b, p) {
    R from(a, b, p);
    T sum[N] = {0};
#pragma unroll 1
    for (int r = 0; r < R::READS; r++) {
      int64_t at = from.place(a, r);
      T flow = 0;
      for (int64_t c = b * a.channels; c < (b + 1) * a.channels; c++)
        flow += ((const T *)a.dy)[c * a.results + p] *
                ((const T *)a.x)[c * a.plane + at];
#pragma unroll
      for (int k = 0; k < N; k++)
        sum[k] += flow * from.weight(r, k) * from.axes[k].slope;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
      ((T *)a.dgrid)[i * N + k] = sum[k];
  }
}

template <int D, int N, int TAPS>
__global__ void __launch_bounds__(256)
    spread(const __grid_constant__ grid_args a) {
  typedef reader<D, N, TAPS> R;
  typedef FL_S(D) T;
  EACH_RESULT(i, b, p) {
    R to(a, b, p);
    for (int64_t c = blockIdx.y; c < a.channels; c += gridDim.y) {
      T *dx = (T *)a.dx + (b * a.channels + c) * a.plane;
      T dy = ((const T *)a.dy)[(b * a.channels + c) * a.results + p];
#pragma unroll(R::READS > 16 ? 1 : R::READS)
      for (int r = 0; r < R::READS; r++)
        if (to.weight(r) != 0)
          atomicAdd(dx + to.place(a, r), to.weight(r) * dy);
    }
  }
}

template <int D, int N, int TAPS>
__global__ void __launch_bounds__(256)
    spread_planes(const __grid_constant__ grid_args a) {
  typedef reader<D, N, TAPS> R;
  typedef FL_S(D) T;
  for (int64_t u = fl_thread(); u < a.batch * a.channels; u += fl_threads()) {
    T *dx = (T *)a.dx + u * a.plane;
    for (int64_t p = 0; p < a.results; p++) {
      R to(a, u / a.channels, p);
      T dy = ((const T *)a.dy)[u * a.results + p];
#pragma unroll 1
      for (int r = 0; r < R::READS; r++)
        dx[to.place(a, r)] += to.weight(r) * dy;
    }
  }
}
