/* Results along one dim as weighted sums of a few elements: the terms are worked
 * out once, in double, by a thread for each result. Its gradient looks the
 * results up that an element is a term of: no sum depends on what runs when. */
#include "words.cuh"

#include "resample.h"

enum { NEAREST, LINEAR, CUBIC };

#define EACH(i, n)                                                             \
  for (int64_t i = fl_thread(); i < (n); i += fl_threads())

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
inline int terms_of(const sampling &s, double p, int64_t *at, double *weight) {
  at[0] = nearest(s, p);
  weight[0] = 1;
  if (s.outside == s.outside && p != held(p, s.n))
    return 0;
  if (s.mode == NEAREST)
    return 1;
  if (s.mode == LINEAR && s.wide == 1) {
    p = held(p, s.n);
    at[0] = (int64_t)floor(p);
    at[1] = at[0] + 1 < s.n ? at[0] + 1 : at[0];
    weight[1] = p - floor(p);
    weight[0] = 1 - weight[1];
    return 2;
  }
  int n = 0;
  double sum = 0, low = floor(p - (s.mode == CUBIC ? 2 : 1) * s.wide) + 1;
  for (int64_t k = 0; k < s.taps; k++) {
    double place = low + (double)k, in = held(place, s.n);
    double w = weight_of(s, s.wide == 1 ? place - p : (place - p) / s.wide);
    if (s.exclude && place != in)
      continue;
    at[n] = (int64_t)in;
    weight[n++] = w;
    sum += w;
  }
  for (int k = 0; k < n && (s.exclude || s.wide > 1); k++)
    weight[k] /= sum;
  return n;
}

template <int UNUSED>
__global__ void __launch_bounds__(128)
    terms(const __grid_constant__ resample_args a) {
  EACH(j, a.s.results) {
    int64_t *at = a.at + j * a.s.taps;
    double *weight = a.weight + j * a.s.taps;
    a.count[j] =
        terms_of(a.s, a.s.start + (double)j * a.s.step, at, weight);
  }
}

/* Element i of y: which along the dim, and where its line begins in x. */
inline int64_t line_of(const resample_args &a, int64_t i, int64_t along,
                       int64_t *j) {
  int64_t rest, outer, in = fl_split(i, a.by_inner, &rest);
  *j = fl_split(rest, a.by_along, &outer);
  return outer * along * a.by_inner.by + in;
}

template <int D>
__global__ void __launch_bounds__(256)
    sums(const __grid_constant__ resample_args a) {
  typedef FL_W(D) T;
  const FL_S(D) *x = (const FL_S(D) *)a.x;
  EACH(i, a.total) {
    int64_t j, line = line_of(a, i, a.s.n, &j);
    int n = a.count[j];
    T sum = n ? T(0) : (T)a.s.outside;
    for (int64_t k = j * a.s.taps; n > 0; n--, k++)
      sum += (T)a.weight[k] *
             fl_get<T>(x[line + a.at[k] * a.by_inner.by]);
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>(sum);
  }
}

/* Single elements, whatever they are. */
template <int SIZE>
__global__ void __launch_bounds__(256)
    pick(const __grid_constant__ resample_args a) {
  typedef FL_BITS(SIZE) W;
  W none = (W)a.fill;
  EACH(i, a.total) {
    int64_t j, line = line_of(a, i, a.s.n, &j);
    ((W *)a.y)[i] =
        a.count[j] ? ((const W *)a.x)[line + a.at[j] * a.by_inner.by] : none;
  }
}

/* x is dy, y is dx. */
template <int D>
__global__ void __launch_bounds__(256)
    back(const __grid_constant__ resample_args a) {
  typedef FL_W(D) T;
  const FL_S(D) *dy = (const FL_S(D) *)a.x;
  const sampling &s = a.s;
  EACH(i, a.total) {
    int64_t k, line = line_of(a, i, s.results, &k), from = 0, to = s.results;
    bool ordered = s.step >= 0;
    while (ordered && from < to) { /* the first that may reach element k */
      int64_t mid = (from + to) / 2;
      if (a.at[mid * s.taps] + s.taps <= k)
        from = mid + 1;
      else
        to = mid;
    }
    T sum = 0;
    for (int64_t j = from; j < s.results; j++) {
      const int64_t *at = a.at + j * s.taps;
      if (ordered && at[0] > k)
        break;
      for (int t = 0; t < a.count[j]; t++)
        if (at[t] == k)
          sum += (T)a.weight[j * s.taps + t] *
                 fl_get<T>(dy[line + j * a.by_inner.by]);
    }
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>(sum);
  }
}
