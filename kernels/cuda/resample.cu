/* resample: results along one dim are weighted sums of a few elements. A thread
 * for each result computes positions and weights once, in double. The
 * gradient's kernel gathers: it finds the results that read an element, so sums
 * do not depend on the order in which threads run. */
#include "device/divisor.cuh"

#include "resample.h"

enum { NEAREST, LINEAR, CUBIC };

#define EACH(i, n) for (int64_t i = fl_thread(); i < (n); i += fl_threads())

inline double held(double p, int64_t n) {
  return p > 0 ? p < (double)(n - 1) ? p : (double)(n - 1) : 0;
}

inline int64_t nearest(const sampling &s, double p) {
  double half = rint(2 * p) / 2; /* that rounding missed by a little */
  p = fabs(p - half) < 1e-9 ? half : p;
  p = s.rounding == 0   ? floor(p)
      : s.rounding == 1 ? ceil(p)
      : s.rounding == 2 ? ceil(p - 0.5)
                        : floor(p + 0.5);
  return (int64_t)held(p, s.n);
}

/* Of an element d away; cubic convolution is Keys' (1981). */
inline double weight_of(const sampling &s, double d) {
  double a = s.cubic;
  d = fabs(d);
  if (s.mode == LINEAR)
    return d < 1 ? 1 - d : 0;
  return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
         : d < 2 ? (((d - 5) * d + 8) * d - 4) * a
                 : 0;
}

/* The terms of the result at p; returns how many. The first place is there also
 * where there are none. */
template <class T>
int terms_of(const sampling &s, double p, int64_t *at, T *weight) {
  const int64_t by = s.results;
  at[0] = nearest(s, p);
  weight[0] = 1;
  if (s.outside == s.outside && p != held(p, s.n))
    return 0;
  if (s.mode == NEAREST)
    return 1;
  if (s.mode == LINEAR && s.wide == 1) {
    p = held(p, s.n);
    at[0] = (int64_t)floor(p);
    at[by] = at[0] + 1 < s.n ? at[0] + 1 : at[0];
    weight[by] = (T)(p - floor(p));
    weight[0] = (T)(1 - (p - floor(p)));
    return 2;
  }
  int n = 0;
  double sum = 0, low = floor(p - (s.mode == CUBIC ? 2 : 1) * s.wide) + 1;
  for (int64_t k = 0; k < s.taps; k++) {
    double place = low + (double)k, in = held(place, s.n);
    double w = weight_of(s, s.wide == 1 ? place - p : (place - p) / s.wide);
    if (s.exclude && place != in)
      continue;
    at[n * by] = (int64_t)in;
    weight[n++ * by] = (T)w;
    sum += w;
  }
  for (int k = 0; k < n && (s.exclude || s.wide > 1); k++)
    weight[k * by] = (T)((double)weight[k * by] / sum);
  return n;
}

template <int D>
__global__ void __launch_bounds__(128)
    terms(const __grid_constant__ resample_args a) {
  FL_W(D) *weight = (FL_W(D) *)a.weight;
  const int64_t by = a.s.results;
  EACH(j, by) {
    int n =
        terms_of(a.s, a.s.start + (double)j * a.s.step, a.at + j, weight + j);
    a.count[j] = n;
    for (int64_t k = n ? n : 1; k < a.s.taps; k++) { /* vectors of sums do */
      a.at[k * by + j] = 0; /* read what is not there for each result */
      weight[k * by + j] = 0;
    }
  }
}

/* Vector i of V elements: its place j along y's dim, and where its line begins
 * in x, which has `along` elements there. */
template <int V>
int64_t line_of(const resample_args &a, int64_t i, int64_t along, int64_t *j) {
  int64_t rest, outer, in = fl_split(i, a.by_inner, &rest);
  *j = fl_split(rest, a.by_along, &outer);
  if (a.inner > 1)
    return outer * along * a.inner + in * V;
  *j *= V;
  return outer * along;
}

template <int D, int V>
__global__ void __launch_bounds__(256)
    sums(const __grid_constant__ resample_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) T;
  const T *weight = (const T *)a.weight;
  const int64_t by = a.s.results;
  EACH(i, a.total) {
    int64_t j;
    const S *x = (const S *)a.x + line_of<V>(a, i, a.s.n, &j);
    T sum[V];
    if (a.inner > 1) {
      int n = a.count[j];
#pragma unroll
      for (int v = 0; v < V; v++)
        sum[v] = n ? T(0) : (T)a.s.outside;
#pragma unroll 2
      for (int k = 0; k < n; k++) {
        fl_vec<S, V> from = fl_read<S, V>(x + a.at[k * by + j] * a.inner);
        T w = weight[k * by + j];
#pragma unroll
        for (int v = 0; v < V; v++)
          sum[v] += w * fl_get<T>(from.at[v]);
      }
    } else {
      fl_vec<int, V> n = fl_read<int, V>(a.count + j);
#pragma unroll
      for (int v = 0; v < V; v++)
        sum[v] = n.at[v] ? T(0) : (T)a.s.outside;
#pragma unroll 2
      for (int k = 0; k < a.s.taps; k++) {
        fl_vec<int64_t, V> at = fl_read<int64_t, V>(a.at + k * by + j);
        fl_vec<T, V> w = fl_read<T, V>(weight + k * by + j);
#pragma unroll
        for (int v = 0; v < V; v++)
          if (k < n.at[v])
            sum[v] += w.at[v] * fl_get<T>(x[at.at[v]]);
      }
    }
    fl_vec<S, V> y;
#pragma unroll
    for (int v = 0; v < V; v++)
      y.at[v] = fl_put<S>(sum[v]);
    fl_leave((S *)a.y + i * V, y);
  }
}

/* Single elements, whatever they are. */
template <int SIZE, int V>
__global__ void __launch_bounds__(256)
    pick(const __grid_constant__ resample_args a) {
  typedef FL_BITS(SIZE) W;
  EACH(i, a.total) {
    int64_t j;
    const W *x = (const W *)a.x + line_of<V>(a, i, a.s.n, &j);
    fl_vec<W, V> y;
    if (a.inner > 1)
      y = fl_read<W, V>(x + a.at[j] * a.inner);
    else {
      fl_vec<int64_t, V> at = fl_read<int64_t, V>(a.at + j);
#pragma unroll
      for (int v = 0; v < V; v++)
        y.at[v] = x[at.at[v]];
    }
#pragma unroll
    for (int v = 0; v < V; v++)
      if (a.s.outside == a.s.outside && !a.count[a.inner > 1 ? j : j + v])
        y.at[v] = (W)a.fill;
    fl_leave((W *)a.y + i * V, y);
  }
}

/* x is dy, y is dx. */
template <int D>
__global__ void __launch_bounds__(256)
    back(const __grid_constant__ resample_args a) {
  typedef FL_W(D) T;
  const FL_S(D) *dy = (const FL_S(D) *)a.x;
  const T *weight = (const T *)a.weight;
  const sampling &s = a.s;
  EACH(i, a.total) {
    int64_t k, line = line_of<1>(a, i, s.results, &k), from = 0, to = s.results;
    bool ordered = s.step >= 0;
    while (ordered && from < to) { /* the first that may reach element k */
      int64_t mid = (from + to) / 2;
      if (a.at[mid] + s.taps <= k)
        from = mid + 1;
      else
        to = mid;
    }
    T sum = 0;
    for (int64_t j = from; j < s.results; j++) {
      if (ordered && a.at[j] > k)
        break;
      for (int t = 0; t < a.count[j]; t++)
        if (a.at[t * s.results + j] == k)
          sum += weight[t * s.results + j] * fl_get<T>(dy[line + j * a.inner]);
    }
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>(sum);
  }
}
