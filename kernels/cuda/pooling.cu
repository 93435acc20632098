/* Pooling over 1 to 3 dims. A thread (for means of large windows: a warp)
 * computes one result. Gradients gather from the windows that contain an
 * element. Where the windows of maxima are not known, theirs adds by atomics:
 * if more than two windows have the same maximum, the order of the sum is not
 * fixed; in deterministic mode the positions are sorted first. */
#include "device/divisor.cuh"
#include "pooling.h"

/* What places within a plane are counted in. */
template <int WIDE> struct place;
template <> struct place<0> { typedef int I; };
template <> struct place<1> { typedef int64_t I; };

/* from ... to - 1 of a dim. */
template <class I> struct range { I from, to; };

/* What result o of a mean is made from; `count` gets how many elements it is
 * divided by. */
template <class I>
range<I> pooling_window(const pool_args &a, const pool_axis &x, I o, I *count) {
  if (a.adaptive) {
    int64_t first, end, rest;
    fl_split(o * x.in, x.by_out, &first);
    rest = fl_split((o + 1) * x.in, x.by_out, &end);
    end += rest > 0;
    *count = (I)(end - first);
    return {(I)first, (I)end};
  }
  I in = (I)x.in, padding = (I)x.padding;
  I first = o * (I)x.stride - padding, end = first + (I)x.kernel;
  I padded = min(in + padding, end) - first;
  first = max(first, I(0));
  end = min(end, in);
  *count = a.count_pad ? padded : end - first;
  return {first, end};
}

/* The results that element i is in. */
template <class I>
range<I> windows(const pool_args &a, const pool_axis &x, I i) {
  int64_t first = 0, last, rest;
  if (a.adaptive) {
    fl_split(i * x.out, x.by_in, &first);
    rest = fl_split((i + 1) * x.out, x.by_in, &last);
    return {(I)first, (I)(last + (rest > 0))};
  }
  int64_t low = i + x.padding - x.kernel + 1;
  if (low > 0)
    fl_split(low + x.stride - 1, x.by_stride, &first);
  fl_split(i + x.padding, x.by_stride, &last);
  return {(I)first, (I)min(last + 1, x.out)};
}

template <class I> struct spot {
  int64_t plane;
  I z, r, c;
};

/* The place of element e of results, or of what they are made from. */
template <class I> spot<I> pooling_result(const pool_args &a, int64_t e) {
  spot<I> s;
  s.c = (I)fl_split(e, a.axis[2].by_out, &e);
  s.r = (I)fl_split(e, a.axis[1].by_out, &e);
  s.z = (I)fl_split(e, a.axis[0].by_out, &s.plane);
  return s;
}

template <class I> spot<I> element(const pool_args &a, int64_t e) {
  spot<I> s;
  s.c = (I)fl_split(e, a.axis[2].by_in, &e);
  s.r = (I)fl_split(e, a.axis[1].by_in, &e);
  s.z = (I)fl_split(e, a.axis[0].by_in, &s.plane);
  return s;
}

/* Channels last: where the group of channels that thread e does begins; e
 * becomes the number of its place. */
inline int64_t first_channel(const pool_args &a, int64_t *e, int vec) {
  return fl_split(*e, a.by_groups, e) * vec;
}

/* --- maxima --- */

/* The taps of a window that are in the plane, `step` apart. */
template <class I> struct taps {
  I from, to, step;

  taps(const pool_axis &x, I o) {
    step = (I)x.dilation;
    from = o * (I)x.stride - (I)x.padding;
    to = min(from + (I)x.kernel * step, (I)x.in);
    while (from < 0)
      from += step;
  }
};

template <class W> struct lowest;
template <> struct lowest<float> {
  static float pooling_of() {
    return -INFINITY;
  }
};
template <> struct lowest<double> {
  static double pooling_of() {
    return -(double)INFINITY;
  }
};
template <> struct lowest<int64_t> {
  static int64_t pooling_of() {
    return INT64_MIN;
  }
};

/* NaN is the largest; of equal ones the first. */
template <int D, int WIDE>
__global__ void most(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef typename place<WIDE>::I I;
  const I columns = (I)a.axis[2].in, rows = (I)a.axis[1].in;
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    spot<I> o = pooling_result<I>(a, e);
    const FL_S(D) *x = (const FL_S(D) *)a.x + o.plane * a.in;
    taps<I> tz(a.axis[0], o.z), tr(a.axis[1], o.r), tc(a.axis[2], o.c);
    I at = (tz.from * rows + tr.from) * columns + tc.from;
    W best = lowest<W>::pooling_of();
    FL_S(D) value = fl_put<FL_S(D)>(best);
    for (I z = tz.from; z < tz.to; z += tz.step)
      for (I r = tr.from; r < tr.to; r += tr.step) {
        I row = (z * rows + r) * columns;
        for (I c = tc.from; c < tc.to; c += tc.step) {
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

/* The same for VEC channels, which are innermost. */
template <int D, int WIDE, int VEC>
__global__ void most_last(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef FL_S(D) S;
  typedef typename place<WIDE>::I I;
  constexpr int TAPS = 3; /* of a row, that are read at once */
  constexpr int PAIR = VEC > 1 ? 2 : 1;
  const I columns = (I)a.axis[2].in, rows = (I)a.axis[1].in;
  for (int64_t t = fl_thread(); t < a.n / VEC; t += fl_threads()) {
    int64_t e = t, channel = first_channel(a, &e, VEC);
    spot<I> o = pooling_result<I>(a, e);
    const S *x = (const S *)a.x + o.plane * a.in * a.channels + channel;
    taps<I> tz(a.axis[0], o.z), tr(a.axis[1], o.r), tc(a.axis[2], o.c);
    W best[VEC];
    I at[VEC];
    fl_vec<S, VEC> value;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      at[i] = (tz.from * rows + tr.from) * columns + tc.from;
      best[i] = lowest<W>::pooling_of();
      value.at[i] = fl_put<S>(best[i]);
    }
    for (I z = tz.from; z < tz.to; z += tz.step)
      for (I r = tr.from; r < tr.to; r += tr.step)
        for (I c = tc.from; c < tc.to; c += TAPS * tc.step) {
          fl_vec<S, VEC> s[TAPS];
          I here[TAPS], row = (z * rows + r) * columns;
#pragma unroll
          for (int k = 0; k < TAPS; k++) { /* what is beyond is read again */
            bool in = c + k * tc.step < tc.to;
            here[k] = in ? row + c + k * tc.step : here[k ? k - 1 : 0];
            s[k] = fl_fetch<S, VEC>(x + here[k] * a.channels);
          }
#pragma unroll
          for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int i = 0; i < VEC; i++) {
              W v = fl_get<W>(s[k].at[i]);
              if (v > best[i] || v != v) {
                best[i] = v;
                value.at[i] = s[k].at[i];
                at[i] = here[k];
              }
            }
        }
    fl_leave<S, VEC>((S *)a.y + t * VEC, value);
#pragma unroll
    for (int i = 0; i < VEC; i += PAIR) {
      fl_vec<int64_t, PAIR> pair;
#pragma unroll
      for (int k = 0; k < PAIR; k++)
        pair.at[k] = at[i + k] + a.base;
      fl_leave<int64_t, PAIR>(a.where + t * VEC + i, pair);
    }
  }
}

/* The gradient: each element of a.y sums a.x of the windows whose maximum it
 * is. */
template <int D, int WIDE>
__global__ void unmost(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].out, columns = (I)a.axis[2].out;
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    spot<I> i = element<I>(a, e);
    const FL_S(D) *dy = (const FL_S(D) *)a.x + i.plane * a.out;
    const int64_t *where = a.where + i.plane * a.out;
    int64_t here = e - i.plane * a.in + a.base;
    range<I> z = windows(a, a.axis[0], i.z), r = windows(a, a.axis[1], i.r);
    range<I> c = windows(a, a.axis[2], i.c);
    W sum = 0;
    for (I oz = z.from; oz < z.to; oz++)
      for (I orow = r.from; orow < r.to; orow++)
        for (I oc = c.from; oc < c.to; oc++) {
          I o = (oz * rows + orow) * columns + oc;
          if (where[o] == here)
            sum += fl_get<W>(dy[o]);
        }
    ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>(sum);
  }
}

/* A bit for each of VEC channels: whether its maximum is at `here`. */
template <int VEC, int PAIR>
uint32_t maxima_at(const int64_t *where, int64_t here) {
  uint32_t bits = 0;
#pragma unroll
  for (int v = 0; v < VEC; v += PAIR) {
    fl_vec<int64_t, PAIR> at = fl_fetch<int64_t, PAIR>(where + v);
#pragma unroll
    for (int k = 0; k < PAIR; k++)
      bits |= (uint32_t)(at.at[k] == here) << (v + k);
  }
  return bits;
}

/* The same of 8 channels by four threads of one element, whose channels lie
 * side by side: they read positions in the order of memory. */
inline uint32_t maxima_of_four(const int64_t *where, int64_t here) {
  int lane = threadIdx.x & 31, mine = lane & 3, first = lane - mine;
  const int64_t *at = where - mine * 8 + mine * 2;
  uint32_t bits = 0, all = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) { /* two channels of thread k */
    fl_vec<int64_t, 2> v = fl_fetch<int64_t, 2>(at + k * 8);
    bits |= (uint32_t)(v.at[0] == here) << (2 * k) |
            (uint32_t)(v.at[1] == here) << (2 * k + 1);
  }
#pragma unroll
  for (int k = 0; k < 4; k++)
    all |= (__shfl_sync(0xfu << first, bits, first + k) >> (2 * mine) & 3)
           << (2 * k);
  return all;
}

/* The same, channels last. FOUR: groups of channels are a multiple of 4. */
template <int D, int WIDE, int VEC, int FOUR>
__global__ void unmost_last(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef FL_S(D) S;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].out, columns = (I)a.axis[2].out;
  for (int64_t t = fl_thread(); t < a.n / VEC; t += fl_threads()) {
    int64_t e = t, channel = first_channel(a, &e, VEC);
    spot<I> i = element<I>(a, e);
    int64_t from = i.plane * a.out * a.channels + channel;
    const S *dy = (const S *)a.x + from;
    const int64_t *where = a.where + from;
    int64_t here = e - i.plane * a.in + a.base;
    range<I> z = windows(a, a.axis[0], i.z), r = windows(a, a.axis[1], i.r);
    range<I> c = windows(a, a.axis[2], i.c);
    W sum[VEC] = {};
    for (I oz = z.from; oz < z.to; oz++)
      for (I orow = r.from; orow < r.to; orow++)
        for (I oc = c.from; oc < c.to; oc++) {
          int64_t o = ((oz * rows + orow) * columns + oc) * a.channels;
          fl_vec<S, VEC> s = fl_fetch<S, VEC>(dy + o);
          uint32_t bits;
          if constexpr (FOUR)
            bits = maxima_of_four(where + o, here);
          else
            bits = maxima_at<VEC, VEC == 1 ? 1 : 2>(where + o, here);
#pragma unroll
          for (int v = 0; v < VEC; v++)
            sum[v] += bits >> v & 1 ? fl_get<W>(s.at[v]) : W(0);
        }
    fl_vec<S, VEC> y;
#pragma unroll
    for (int v = 0; v < VEC; v++)
      y.at[v] = fl_put<S>(sum[v]);
    fl_leave<S, VEC>((S *)a.y + t * VEC, y);
  }
}

/* Where in dx element e of dy goes: plane, place and, if they are innermost,
 * channel. */
inline int64_t pooling_place(const pool_put_args &a, int64_t e, bool *good) {
  int64_t plane, rest = e, channel = 0;
  if (a.channels.by > 1)
    channel = fl_split(e, a.channels, &rest);
  fl_split(rest, a.out, &plane);
  int64_t at = fl_position(a.fault, a.where[e], a.in.by, good);
  return (plane * a.in.by + at) * a.channels.by + channel;
}

template <int D> __global__ void put(const __grid_constant__ pool_put_args a) {
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    bool good;
    int64_t at = pooling_place(a, e, &good);
    if (good)
      atomicAdd((FL_S(D) *)a.dx + at, ((const FL_S(D) *)a.dy)[e]);
  }
}

/* Places in dx as keys; bad ones become a.all. */
template <int D>
__global__ void places(const __grid_constant__ pool_put_args a) {
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    bool good;
    int64_t at = pooling_place(a, e, &good);
    ((FL_S(D) *)a.dx)[e] = (FL_S(D))(good ? at : a.all);
  }
}

/* --- means --- */

/* Part of the sum of n neighbours, for one of LANES threads. */
template <int LANES, class W, class S, class I> W pooling_part(const S *x, I n) {
  W sum[4] = {0, 0, 0, 0};
  I i = threadIdx.x % LANES;
  for (; i + 3 * LANES < n; i += 4 * LANES) {
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum[j] += fl_get<W>(x[i + j * LANES]);
  }
  for (; i < n; i += LANES)
    sum[0] += fl_get<W>(x[i]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Windows as wide as the plane are one run. */
template <int D, int LANES, int WIDE>
__global__ void mean(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].in, columns = (I)a.axis[2].in;
  for (int64_t e = fl_thread() / LANES; e < a.n; e += fl_threads() / LANES) {
    spot<I> o = pooling_result<I>(a, e);
    const FL_S(D) *x = (const FL_S(D) *)a.x + o.plane * a.in;
    I nz, nr, nc;
    range<I> z = pooling_window(a, a.axis[0], o.z, &nz);
    range<I> r = pooling_window(a, a.axis[1], o.r, &nr);
    range<I> c = pooling_window(a, a.axis[2], o.c, &nc);
    bool run = LANES > 1 && c.to - c.from == columns;
    W sum = 0;
    for (I i = z.from; i < z.to; i++)
      if (run)
        sum += pooling_part<LANES, W>(x + (i * rows + r.from) * columns,
                              (r.to - r.from) * columns);
      else
        for (I j = r.from; j < r.to; j++)
          sum += pooling_part<LANES, W>(x + (i * rows + j) * columns + c.from,
                                c.to - c.from);
    if (LANES > 1)
      sum = fl_warp_reduce(sum, fl_sum_of());
    if (threadIdx.x % LANES == 0)
      ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>(sum / ((W)nz * (W)nr * (W)nc));
  }
}

template <int D, int WIDE>
__global__ void unmean(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].out, columns = (I)a.axis[2].out;
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    spot<I> i = element<I>(a, e);
    const FL_S(D) *dy = (const FL_S(D) *)a.x + i.plane * a.out;
    range<I> z = windows(a, a.axis[0], i.z), r = windows(a, a.axis[1], i.r);
    range<I> c = windows(a, a.axis[2], i.c);
    W sum = 0;
    for (I oz = z.from; oz < z.to; oz++)
      for (I orow = r.from; orow < r.to; orow++)
        for (I oc = c.from; oc < c.to; oc++) {
          I nz, nr, nc;
          pooling_window(a, a.axis[0], oz, &nz);
          pooling_window(a, a.axis[1], orow, &nr);
          pooling_window(a, a.axis[2], oc, &nc);
          sum += fl_get<W>(dy[(oz * rows + orow) * columns + oc]) /
                 ((W)nz * (W)nr * (W)nc);
        }
    ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>(sum);
  }
}

/* --- means, channels last --- */

template <int D, int WIDE, int VEC>
__global__ void mean_last(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef FL_S(D) S;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].in, columns = (I)a.axis[2].in;
  for (int64_t t = fl_thread(); t < a.n / VEC; t += fl_threads()) {
    int64_t e = t, channel = first_channel(a, &e, VEC);
    spot<I> o = pooling_result<I>(a, e);
    const S *x = (const S *)a.x + o.plane * a.in * a.channels + channel;
    I nz, nr, nc;
    range<I> z = pooling_window(a, a.axis[0], o.z, &nz);
    range<I> r = pooling_window(a, a.axis[1], o.r, &nr);
    range<I> c = pooling_window(a, a.axis[2], o.c, &nc);
    W sum[VEC] = {};
    for (I i = z.from; i < z.to; i++)
      for (I j = r.from; j < r.to; j++)
        for (I k = c.from; k < c.to; k++) {
          fl_vec<S, VEC> s = fl_read<S, VEC>(
              x + ((i * rows + j) * columns + k) * a.channels);
#pragma unroll
          for (int v = 0; v < VEC; v++)
            sum[v] += fl_get<W>(s.at[v]);
        }
    fl_vec<S, VEC> y;
#pragma unroll
    for (int v = 0; v < VEC; v++)
      y.at[v] = fl_put<S>(sum[v] / ((W)nz * (W)nr * (W)nc));
    fl_write<S, VEC>((S *)a.y + t * VEC, y);
  }
}

template <int D, int WIDE, int VEC>
__global__ void unmean_last(const __grid_constant__ pool_args a) {
  typedef FL_W(D) W;
  typedef FL_S(D) S;
  typedef typename place<WIDE>::I I;
  const I rows = (I)a.axis[1].out, columns = (I)a.axis[2].out;
  for (int64_t t = fl_thread(); t < a.n / VEC; t += fl_threads()) {
    int64_t e = t, channel = first_channel(a, &e, VEC);
    spot<I> i = element<I>(a, e);
    const S *dy = (const S *)a.x + i.plane * a.out * a.channels + channel;
    range<I> z = windows(a, a.axis[0], i.z), r = windows(a, a.axis[1], i.r);
    range<I> c = windows(a, a.axis[2], i.c);
    W sum[VEC] = {};
    for (I oz = z.from; oz < z.to; oz++)
      for (I orow = r.from; orow < r.to; orow++)
        for (I oc = c.from; oc < c.to; oc++) {
          I nz, nr, nc;
          pooling_window(a, a.axis[0], oz, &nz);
          pooling_window(a, a.axis[1], orow, &nr);
          pooling_window(a, a.axis[2], oc, &nc);
          W by = (W)nz * (W)nr * (W)nc;
          fl_vec<S, VEC> s = fl_read<S, VEC>(
              dy + ((oz * rows + orow) * columns + oc) * a.channels);
#pragma unroll
          for (int v = 0; v < VEC; v++)
            sum[v] += fl_get<W>(s.at[v]) / by;
        }
    fl_vec<S, VEC> y;
#pragma unroll
    for (int v = 0; v < VEC; v++)
      y.at[v] = fl_put<S>(sum[v]);
    fl_write<S, VEC>((S *)a.y + t * VEC, y);
  }
}
