/* Reductions: rows (a warp's lanes or a block for each), columns (coalesced
 * over the columns), and the pieces of both put together. Results do not
 * depend on what runs when: every element has its thread, every merge its
 * place. */
#include "line.cuh"
#include "reduce.h"

/* --- what values are computed in --- */

template <bool B, class X, class Y> struct choose { typedef X T; };
template <class X, class Y> struct choose<false, X, Y> { typedef Y T; };

template <int K, int D> struct value_of {
  enum { WIDE = D > FL_BF16 && (K == REDUCE_MEAN || K == REDUCE_MOMENTS) };
  typedef typename choose<WIDE, double, FL_W(D)>::T T;
};

template <class V> struct sum_type { typedef double T; };
template <> struct sum_type<int64_t> { typedef int64_t T; };

/* --- accumulators. add: N values, of positions at, at + step, ... --- */

template <class V> struct given {
  V shift;
  double p;
};

template <int K, class V> struct sums {
  typedef typename sum_type<V>::T S;
  S s;
  void start() {
    s = 0;
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &g, int64_t,
           int64_t) {
    if (K == REDUCE_SQUARES || K == REDUCE_POWERS) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        S w = (S)v[i];
        s += K == REDUCE_SQUARES ? w * w : (S)pow(fabs((double)w), g.p);
      }
    } else if (K == REDUCE_COUNT) {
      int n = 0;
#pragma unroll
      for (int i = 0; i < N; i++)
        n += v[i] != V(0);
      s += (S)n;
    } else {
      V t[N];
#pragma unroll
      for (int i = 0; i < N; i++)
        t[i] = K == REDUCE_ABS_SUM ? fl_abs(v[i]) : v[i];
      s += (S)fl_tree(t);
    }
  }
  void merge(const sums &o) {
    s += o.s;
  }
};

template <class V> struct products_of {
  typedef typename sum_type<V>::T S;
  S s;
  void start() {
    s = 1;
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &, int64_t,
           int64_t) {
#pragma unroll
    for (int i = 0; i < N; i++)
      s *= (S)v[i];
  }
  void merge(const products_of &o) {
    s *= o.s;
  }
};

template <class V> V lowest() {
  return -(V)INFINITY;
}
template <> inline int64_t lowest<int64_t>() {
  return INT64_MIN;
}
template <class V> V highest() {
  return (V)INFINITY;
}
template <> inline int64_t highest<int64_t>() {
  return INT64_MAX;
}

template <int K, class V> struct extremes {
  enum { LEAST = K == REDUCE_MIN || K == REDUCE_ABS_MIN };
  enum { ABS = K == REDUCE_ABS_MAX || K == REDUCE_ABS_MIN };
  V s;
  void start() {
    s = LEAST ? highest<V>() : lowest<V>();
  }
  void take(V v) {
    s = LEAST ? fl_minimum(v, s) : fl_maximum(v, s);
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &, int64_t,
           int64_t) {
#pragma unroll
    for (int i = 0; i < N; i++)
      take(ABS ? fl_abs(v[i]) : v[i]);
  }
  void merge(const extremes &o) {
    take(o.s);
  }
};

/* Sum of exponentials relative to the maximum; an infinite one is not
 * subtracted. */
template <class V> struct exponentials {
  V top, s;
  void start() {
    top = lowest<V>();
    s = 0;
  }
  static V finite(V m) {
    return fl_abs(m) == highest<V>() ? V(0) : m;
  }
  void raise(V to) {
    if (to > top || to != to) {
      s = s == V(0) ? s : s * fl_exp(top - to);
      top = to;
    }
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &, int64_t,
           int64_t) {
    V m = v[0];
#pragma unroll
    for (int i = 1; i < N; i++)
      m = fl_maximum(v[i], m);
    raise(m);
    V by = finite(top);
#pragma unroll
    for (int i = 0; i < N; i++)
      s += fl_exp(v[i] - by);
  }
  void merge(const exponentials &o) {
    raise(o.top);
    s += o.top == top || o.s == V(0) ? o.s : o.s * fl_exp(o.top - top);
  }
};

/* Around the first element, in double: sums of several threads just add. */
template <class V> struct moments {
  double s, q;
  void start() {
    s = q = 0;
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &g, int64_t,
           int64_t) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      double d = (double)v[i] - (double)g.shift;
      s += d;
      q += d * d;
    }
  }
  void merge(const moments &o) {
    s += o.s;
    q += o.q;
  }
};

template <class V> struct pairs {
  double s, q;
  void start() {
    s = q = 0;
  }
  template <int N>
  void add(const V (&v)[N], const V (&u)[N], const given<V> &g, int64_t,
           int64_t) {
    V t[N], w[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      t[i] = v[i];
      w[i] = v[i] * (u[i] - g.shift);
    }
    s += (double)fl_tree(t);
    q += (double)fl_tree(w);
  }
  void merge(const pairs &o) {
    s += o.s;
    q += o.q;
  }
};

/* The first largest (least) element, the first NaN if any, and its position. */
template <int K, class V> struct places {
  V s;
  int64_t at;
  void start() {
    s = 0;
    at = -1;
  }
  static bool beats(V v, V than) {
    bool more = K == REDUCE_ARG_MIN ? v < than : v > than;
    return more || (v != v && than == than);
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &, int64_t from,
           int64_t step) {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (at < 0 || beats(v[i], s)) {
        s = v[i];
        at = from + i * step;
      }
  }
  void merge(const places &o) {
    if (o.at < 0)
      return;
    if (at < 0 || beats(o.s, s) || (!beats(s, o.s) && o.at < at))
      *this = o;
  }
};

template <int K, class V> struct acc_of { typedef sums<K, V> T; };
#define ACC(K, A)                                                              \
  template <class V> struct acc_of<K, V> { typedef A T; };
#define COMMA ,
ACC(REDUCE_PROD, products_of<V>)
ACC(REDUCE_MAX, extremes<REDUCE_MAX COMMA V>)
ACC(REDUCE_MIN, extremes<REDUCE_MIN COMMA V>)
ACC(REDUCE_ABS_MAX, extremes<REDUCE_ABS_MAX COMMA V>)
ACC(REDUCE_ABS_MIN, extremes<REDUCE_ABS_MIN COMMA V>)
ACC(REDUCE_LSE, exponentials<V>)
ACC(REDUCE_MOMENTS, moments<V>)
ACC(REDUCE_PRODUCTS, pairs<V>)
ACC(REDUCE_ARG_MAX, places<REDUCE_ARG_MAX COMMA V>)
ACC(REDUCE_ARG_MIN, places<REDUCE_ARG_MIN COMMA V>)

/* --- results --- */

/* What a result is stored as: of D itself, but for integers' means and what is
 * counted, which a.finish tells. */
template <int K, int D> struct stored {
  enum {
    WHOLE = D > FL_BF16,
    MEANS = K == REDUCE_MEAN || K == REDUCE_MOMENTS,
    ADDS = K == REDUCE_SUM || K == REDUCE_PROD,
    T = WHOLE && MEANS  ? FL_F32
        : WHOLE && ADDS ? FL_I64
                        : D
  };
  template <class W> static void put(const reduce_args &a, int64_t i, W w) {
    ((FL_S(T) *)a.y)[i] = fl_put<FL_S(T)>(w);
  }
};

template <int K, int D> struct result {
  typedef typename value_of<K, D>::T V;
  typedef stored<K, D> to;

  static void put(const reduce_args &a, const sums<K, V> &t, int64_t,
                  int64_t out) {
    if (K == REDUCE_COUNT && a.finish >= DONE_ANY) {
      bool all = (double)t.s == a.count, any = t.s != 0;
      if (a.finish == DONE_COUNT)
        ((int64_t *)a.y)[out] = (int64_t)t.s;
      else
        ((uint8_t *)a.y)[out] = a.finish == DONE_ANY ? any : all;
    } else if (K == REDUCE_SQUARES)
      to::put(a, out, sqrt((double)t.s));
    else if (K == REDUCE_POWERS)
      to::put(a, out, pow((double)t.s, 1 / a.p));
    else if ((K == REDUCE_SUM || K == REDUCE_MEAN) && a.finish == DONE_MEAN)
      to::put(a, out, (double)t.s / a.count);
    else
      to::put(a, out, t.s);
  }
  template <class A>
  static void put(const reduce_args &a, const A &t, int64_t, int64_t out) {
    to::put(a, out, t.s); /* products and extremes */
  }
  static void put(const reduce_args &a, const exponentials<V> &t, int64_t,
                  int64_t out) {
    to::put(a, out, t.top + fl_log(t.s));
  }
  static void put(const reduce_args &a, const moments<V> &t, int64_t in,
                  int64_t out) {
    double q = t.q - t.s * t.s / a.count;
    q = q < 0 ? 0 : q;
    if (a.finish == DONE_VAR) {
      double left = a.count - a.p;
      to::put(a, out, q / (left > 0 ? left : 0));
      return;
    }
    double first = 0;
    if (a.per_piece)
      first = fl_get<double>(((const FL_S(D) *)a.x)[in]);
    ((double *)a.y)[out] = first + t.s / a.count;
    ((double *)a.y2)[out] = q / a.count;
  }
  static void put(const reduce_args &a, const pairs<V> &t, int64_t,
                  int64_t out) {
    ((double *)a.y)[out] = t.s;
    ((double *)a.y2)[out] = t.q;
  }
  static void put(const reduce_args &a, const places<K, V> &t, int64_t,
                  int64_t out) {
    if (a.y)
      to::put(a, out, t.s);
    ((int64_t *)a.y2)[out] = t.at + a.base;
  }
};

/* --- places --- */

inline int64_t offset_of(int64_t i, int n, const reduce_axis *axes,
                         int64_t *out) {
  int64_t in = 0;
#pragma unroll 1
  for (int k = 0; k < n; k++) {
    int64_t at = i;
    if (k + 1 < n)
      i = fl_quotient(i, axes[k].size, &at);
    in += at * axes[k].in;
    *out += at * axes[k].out;
  }
  return in;
}

template <int K, int D>
given<typename value_of<K, D>::T> given_of(const reduce_args &a, int64_t in,
                                           int64_t out) {
  typedef typename value_of<K, D>::T V;
  given<V> g = {V(0), a.p};
  if (K == REDUCE_MOMENTS && a.per_piece)
    g.shift = fl_get<V>(((const FL_S(D) *)a.x)[in]);
  if (K == REDUCE_PRODUCTS)
    g.shift = ((const V *)a.shift)[out / a.shift_each];
  return g;
}

/* --- putting threads' parts together --- */

template <class A> A shuffled(const A &a, int k) {
  A b;
  uint32_t w[sizeof(A) / 4];
  memcpy(w, &a, sizeof(A));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(A) / 4); i++)
    w[i] = __shfl_xor_sync(0xffffffff, w[i], k);
  memcpy(&b, w, sizeof(A));
  return b;
}

/* Of `lanes` neighbours (a power of 2 up to 32, or the block): in the first. */
template <class A> void together(A &a, int lanes) {
  __shared__ A part[32];
  int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
#pragma unroll 1
  for (int k = (lanes < 32 ? lanes : 32) / 2; k > 0; k /= 2)
    a.merge(shuffled(a, k));
  if (lanes <= 32)
    return;
  if (lane == 0)
    part[threadIdx.x >> 5] = a;
  __syncthreads();
  if (threadIdx.x >= 32)
    return;
  a.start();
  if (lane < warps)
    a = part[lane];
#pragma unroll 1
  for (int k = 16; k > 0; k /= 2)
    a.merge(shuffled(a, k));
}

template <int K, int D, class A>
void leave(const reduce_args &a, const A &t, int64_t r, int64_t in,
           int64_t out) {
  if (a.pieces > 1)
    ((A *)a.partial)[(int64_t)blockIdx.y * a.results + r] = t;
  else
    result<K, D>::put(a, t, in, out);
}

/* --- rows --- */

template <int D> struct lot { /* elements of one access */
  enum { BYTES = sizeof(FL_S(D)), N = BYTES > 1 ? 16 / BYTES : 8 };
};

/* n adjacent elements by `lanes` threads: up to alignment, by vectors, rest. */
template <int K, int D, class A, class V>
void span(A &t, const reduce_args &a, const given<V> &g, const FL_S(D) * x,
          const FL_S(D) * x2, int64_t n, int64_t at, int lane, int lanes) {
  typedef FL_S(D) S;
  enum { N = lot<D>::N, TWO = K == REDUCE_PRODUCTS, U = TWO ? 2 : 4 };
  int64_t head = n;
  if (a.vector) {
    int off = (int)((uintptr_t)x / sizeof(S) % N);
    head = off ? N - off : 0;
    head = head < n ? head : n;
  }
#pragma unroll 4
  for (int64_t i = lane; i < head; i += lanes) {
    V v[1] = {fl_get<V>(x[i])}, u[1] = {TWO ? fl_get<V>(x2[i]) : V(0)};
    t.add(v, u, g, at + i, 1);
  }
  int64_t vectors = (n - head) / N, j = lane;
  x += head;
  x2 += TWO ? head : 0;
  for (; j + (U - 1) * lanes < vectors; j += U * lanes) {
    fl_vec<S, N> b[U], c[U];
#pragma unroll
    for (int k = 0; k < U; k++) {
      b[k] = fl_read<S, N>(x + (j + k * lanes) * N);
      if (TWO)
        c[k] = fl_read<S, N>(x2 + (j + k * lanes) * N);
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
      V v[N], u[N];
#pragma unroll
      for (int i = 0; i < N; i++) {
        v[i] = fl_get<V>(b[k].at[i]);
        u[i] = TWO ? fl_get<V>(c[k].at[i]) : V(0);
      }
      t.add(v, u, g, at + head + (j + k * lanes) * N, 1);
    }
  }
#pragma unroll 1
  for (; j < vectors; j += lanes) {
    fl_vec<S, N> b = fl_read<S, N>(x + j * N), c = b;
    if (TWO)
      c = fl_read<S, N>(x2 + j * N);
    V v[N], u[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      v[i] = fl_get<V>(b.at[i]);
      u[i] = TWO ? fl_get<V>(c.at[i]) : V(0);
    }
    t.add(v, u, g, at + head + j * N, 1);
  }
#pragma unroll 1
  for (int64_t i = vectors * N + lane; i < n - head; i += lanes) {
    V v[1] = {fl_get<V>(x[i])}, u[1] = {TWO ? fl_get<V>(x2[i]) : V(0)};
    t.add(v, u, g, at + head + i, 1);
  }
}

template <int K, int D>
__global__ void __launch_bounds__(256)
    rows(const __grid_constant__ reduce_args a) {
  typedef typename value_of<K, D>::T V;
  typedef typename acc_of<K, V>::T A;
  typedef FL_S(D) S;
  int lane = threadIdx.x % a.lanes, side = blockDim.x / a.lanes;
  int64_t r = (int64_t)blockIdx.x * side + threadIdx.x / a.lanes;
  int64_t in = 0, out = 0;
  A t;
  t.start();
  if (r < a.results) {
    in = offset_of(r, a.n_keep, a.keep, &out);
    given<V> g = given_of<K, D>(a, in, out);
    const S *x = (const S *)a.x + in, *x2 = (const S *)a.x2 + in;
    int64_t s = (int64_t)blockIdx.y * a.per_piece, end = s + a.per_piece;
    int64_t none = 0, turns = a.blocks * a.repeats;
    int turn = a.turn_lanes;
    end = end < turns ? end : turns;
    for (s += lane / turn; s < end; s += a.lanes / turn) {
      int64_t at, n;
      int64_t off =
          offset_of(fl_quotient(s, a.blocks, &at), a.n_red, a.red, &none);
      at *= a.block;
      n = a.run - at < a.block ? a.run - at : a.block;
      off += at;
      span<K, D>(t, a, g, x + off, K == REDUCE_PRODUCTS ? x2 + off : x2, n, at,
                 lane % turn, turn);
    }
  }
  together(t, a.lanes);
  if (r < a.results && lane == 0)
    leave<K, D>(a, t, r, in, out);
}

/* --- columns: N adjacent ones for each thread --- */

template <int K, int D, int N>
__global__ void __launch_bounds__(256)
    columns(const __grid_constant__ reduce_args a) {
  typedef typename value_of<K, D>::T V;
  typedef typename acc_of<K, V>::T A;
  typedef FL_S(D) S;
  enum { TWO = K == REDUCE_PRODUCTS, U = 4 };
  __shared__ A part[256];
  int tx = threadIdx.x % a.bx, ty = threadIdx.x / a.bx % a.by;
  int64_t tile, wide = a.keep[0].size;
  int64_t o = fl_quotient(blockIdx.x, a.tiles, &tile) * a.bz +
              threadIdx.x / (a.bx * a.by);
  int64_t col = (tile * a.bx + tx) * N, out = 0, none = 0;
  bool on = o * wide < a.results && col < wide;
  int64_t in = on ? offset_of(o, a.n_keep - 1, a.keep + 1, &out) + col : 0;
  A t[N];
  given<V> g[N];
  out += col * a.keep[0].out;
#pragma unroll
  for (int j = 0; j < N; j++) {
    t[j].start();
    if (on)
      g[j] = given_of<K, D>(a, in + j, out + j * a.keep[0].out);
  }
  const S *x = (const S *)a.x + in, *x2 = (const S *)a.x2 + (TWO ? in : 0);
  int64_t r = (int64_t)blockIdx.y * a.per_piece, end = r + a.per_piece;
  int64_t lines = a.run * a.repeats;
  end = !on ? 0 : end < lines ? end : lines;
#pragma unroll 1
  for (r += ty; r < end; r += U * a.by) {
    fl_vec<S, N> b[U], c[U];
    int most = end - r > (U - 1) * a.by ? U : 1;
#pragma unroll
    for (int k = 0; k < U; k++) {
      int64_t line = r + k * a.by, at = line, off = 0;
      if (line >= end)
        continue;
      if (a.n_red)
        off = offset_of(fl_quotient(line, a.run, &at), a.n_red, a.red, &none);
      off += at * a.run_in;
      b[k] = fl_read<S, N>(x + off);
      if (TWO)
        c[k] = fl_read<S, N>(x2 + off);
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
      V v[U], u[U];
      if (most == U) {
#pragma unroll
        for (int k = 0; k < U; k++) {
          v[k] = fl_get<V>(b[k].at[j]);
          u[k] = TWO ? fl_get<V>(c[k].at[j]) : V(0);
        }
        t[j].add(v, u, g[j], r, a.by);
        continue;
      }
#pragma unroll
      for (int k = 0; k < U; k++)
        if (r + k * a.by < end) {
          V v1[1] = {fl_get<V>(b[k].at[j])};
          V u1[1] = {TWO ? fl_get<V>(c[k].at[j]) : V(0)};
          t[j].add(v1, u1, g[j], r + k * a.by, 1);
        }
    }
  }
#pragma unroll
  for (int j = 0; j < N; j++) {
#pragma unroll 1
    for (int k = a.by / 2; k > 0; k /= 2) {
      __syncthreads();
      if (ty >= k && ty < 2 * k)
        part[threadIdx.x] = t[j];
      __syncthreads();
      if (ty < k)
        t[j].merge(part[threadIdx.x + k * a.bx]);
    }
    if (on && ty == 0)
      leave<K, D>(a, t[j], o * wide + col + j, in + j, out + j * a.keep[0].out);
  }
}

/* --- the pieces of every result --- */

template <int K, int D>
__global__ void __launch_bounds__(256)
    merge(const __grid_constant__ reduce_args a) {
  typedef typename acc_of<K, typename value_of<K, D>::T>::T A;
  int lane = threadIdx.x % a.lanes, side = blockDim.x / a.lanes;
  int64_t r = (int64_t)blockIdx.x * side + threadIdx.x / a.lanes, out = 0;
  A t;
  t.start();
  if (r < a.results)
#pragma unroll 4
    for (int64_t p = lane; p < a.pieces; p += a.lanes)
      t.merge(((const A *)a.partial)[p * a.results + r]);
  together(t, a.lanes);
  if (r < a.results && lane == 0) {
    int64_t in = offset_of(r, a.n_keep, a.keep, &out);
    result<K, D>::put(a, t, in, out);
  }
}
