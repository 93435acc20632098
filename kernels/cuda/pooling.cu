/* Pooling over 1 to 3 dims. A thread (for means of large windows: a warp) makes
 * one result. Gradients of means collect from the windows that an element is
 * in. The gradient of maxima adds by atomics: where windows overlap so that
 * more than two have the same maximum, the order of the sum is not fixed. */
#include "words.cuh"
#include "pooling.h"

/* from ... to - 1 of a dim */
struct range {
  int64_t from, to;
};

/* What result o of a mean is made from; `count` gets how many elements it is
 * divided by. */
inline range window(const pool_args &a, const pool_axis &x, int64_t o,
                    int64_t *count) {
  int64_t rest;
  if (a.adaptive) {
    int64_t first, end;
    fl_split(o * x.in, x.out, &first);
    rest = fl_split((o + 1) * x.in, x.out, &end);
    end += rest > 0;
    *count = end - first;
    return {first, end};
  }
  int64_t first = o * x.stride - x.padding, end = first + x.kernel;
  int64_t padded = min(x.in + x.padding, end) - first;
  first = max(first, (int64_t)0);
  end = min(end, x.in);
  *count = a.count_pad ? padded : end - first;
  return {first, end};
}

/* The results that element i is in. */
inline range windows(const pool_args &a, const pool_axis &x, int64_t i) {
  int64_t first, last, rest;
  if (a.adaptive) {
    fl_split(i * x.out, x.in, &first);
    rest = fl_split((i + 1) * x.out, x.in, &last);
    return {first, last + (rest > 0)};
  }
  int64_t low = i + x.padding - x.kernel + 1;
  first = 0;
  if (low > 0)
    fl_split(low + x.stride - 1, x.stride, &first);
  fl_split(i + x.padding, x.stride, &last);
  return {first, min(last + 1, x.out)};
}

struct spot {
  int64_t plane, z, r, c;
};
/* The place of element e among planes of the axes' `in` or `out`. */
inline spot spot_of(int64_t e, int64_t rows, int64_t columns, int64_t depth) {
  spot s;
  s.c = fl_split(e, columns, &e);
  s.r = fl_split(e, rows, &e);
  s.z = fl_split(e, depth, &s.plane);
  return s;
}

/* --- maxima --- */

/* The first element of a window that is in the plane. */
inline int64_t corner(const pool_axis &x, int64_t o) {
  int64_t i = o * x.stride - x.padding;
  return i < 0 ? i + (-i + x.dilation - 1) / x.dilation * x.dilation : i;
}

template <class W> struct lowest;
template <> struct lowest<float> {
  static float of() {
    return -INFINITY;
  }
};
template <> struct lowest<double> {
  static double of() {
    return -(double)INFINITY;
  }
};
template <> struct lowest<int64_t> {
  static int64_t of() {
    return INT64_MIN;
  }
};

/* NaN is the largest; of equal ones the first. */
template <int D> __global__ void most(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  const pool_axis &az = a.axis[0], &ar = a.axis[1], &ac = a.axis[2];
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    spot o = spot_of(e, ar.out, ac.out, az.out);
    const FL_S(D) *x = (const FL_S(D) *)a.x + o.plane * a.in;
    int64_t z0 = corner(az, o.z), r0 = corner(ar, o.r), c0 = corner(ac, o.c);
    int64_t z1 =
        min(o.z * az.stride - az.padding + az.kernel * az.dilation, az.in);
    int64_t r1 =
        min(o.r * ar.stride - ar.padding + ar.kernel * ar.dilation, ar.in);
    int64_t c1 =
        min(o.c * ac.stride - ac.padding + ac.kernel * ac.dilation, ac.in);
    int64_t at = (z0 * ar.in + r0) * ac.in + c0;
    W best = lowest<W>::of();
    FL_S(D) value = fl_put<FL_S(D)>(best);
    for (int64_t z = z0; z < z1; z += az.dilation)
      for (int64_t r = r0; r < r1; r += ar.dilation) {
        int64_t row = (z * ar.in + r) * ac.in;
        for (int64_t c = c0; c < c1; c += ac.dilation) {
          FL_S(D) s = x[row + c];
          W v = fl_get<W>(s);
          if (v > best || v != v) {
            best = v;
            value = s;
            at = row + c;
          }
        }
      }
    ((FL_S(D) *)a.y)[e] = value;
    a.where[e] = at + a.base;
  }
}

template <int D> __global__ void put(const __grid_constant__ pool_put_args a) {
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    int64_t plane;
    bool good;
    fl_split(e, a.out, &plane);
    int64_t at = fl_position(a.fault, a.where[e], a.in, &good);
    if (good)
      atomicAdd((FL_S(D) *)a.dx + plane * a.in + at,
                ((const FL_S(D) *)a.dy)[e]);
  }
}

/* --- means --- */

template <int D, int LANES>
__global__ void mean(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  const pool_axis &az = a.axis[0], &ar = a.axis[1], &ac = a.axis[2];
  int lane = threadIdx.x % LANES;
  for (int64_t e = fl_thread() / LANES; e < a.n; e += fl_threads() / LANES) {
    spot o = spot_of(e, ar.out, ac.out, az.out);
    const FL_S(D) *x = (const FL_S(D) *)a.x + o.plane * a.in;
    int64_t nz, nr, nc;
    range z = window(a, az, o.z, &nz), r = window(a, ar, o.r, &nr),
          c = window(a, ac, o.c, &nc);
    int64_t rows = r.to - r.from, columns = c.to - c.from;
    W sum = 0;
    if (LANES == 1) {
      for (int64_t i = z.from; i < z.to; i++)
        for (int64_t j = r.from; j < r.to; j++)
          for (int64_t k = c.from; k < c.to; k++)
            sum += fl_get<W>(x[(i * ar.in + j) * ac.in + k]);
    } else {
      int64_t all = (z.to - z.from) * rows * columns;
      for (int64_t i = lane; i < all; i += LANES) {
        int64_t q, k = fl_split(i, columns, &q), j = fl_split(q, rows, &q);
        sum += fl_get<W>(
            x[((z.from + q) * ar.in + r.from + j) * ac.in + c.from + k]);
      }
      sum = fl_warp_reduce(sum, fl_sum_of());
    }
    if (lane == 0)
      ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>(sum / ((W)nz * (W)nr * (W)nc));
  }
}

template <int D> __global__ void unmean(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  const pool_axis &az = a.axis[0], &ar = a.axis[1], &ac = a.axis[2];
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    spot i = spot_of(e, ar.in, ac.in, az.in);
    const FL_S(D) *dy = (const FL_S(D) *)a.x + i.plane * a.out;
    range z = windows(a, az, i.z), r = windows(a, ar, i.r),
          c = windows(a, ac, i.c);
    W sum = 0;
    for (int64_t oz = z.from; oz < z.to; oz++)
      for (int64_t orow = r.from; orow < r.to; orow++)
        for (int64_t oc = c.from; oc < c.to; oc++) {
          int64_t nz, nr, nc;
          window(a, az, oz, &nz);
          window(a, ar, orow, &nr);
          window(a, ac, oc, &nc);
          sum += fl_get<W>(dy[(oz * ar.out + orow) * ac.out + oc]) /
                 ((W)nz * (W)nr * (W)nc);
        }
    ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>(sum);
  }
}
