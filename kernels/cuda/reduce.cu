/* Reductions: rows (by a warp's lanes or a block each), columns (coalesced over
 * the columns), and the merge of the pieces of both. Which thread reads an
 * element and where a partial result is merged are fixed, so results do not
 * depend on the order in which blocks run. */
#include "device/early.cuh"
#include "device/line.cuh"
#include "reduce.h"

/* --- what values are computed in --- */

template <bool B, class X, class Y> struct choose { typedef X T; };
template <class X, class Y> struct choose<false, X, Y> { typedef Y T; };

template <int K, int D> struct value_of {
  enum { WIDE = !FL_IS_FLOAT(D) && (K == REDUCE_MEAN || K == REDUCE_MOMENTS) };
  typedef typename choose<WIDE, double, FL_W(D)>::T T;
};

template <class V> struct sum_type { typedef double T; };
template <> struct sum_type<int64_t> { typedef int64_t T; };

/* --- accumulators. add: N values, of positions at, at + step, ... --- */

/* |x|^p. Not inlined: it is long, and rare. */
__noinline__ double power(double x, double p) {
  return pow(fabs(x), p);
}

template <class V> struct given {
  V shift;
  double p;
  bool absolute, least;
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
    if (K == REDUCE_POWERS && g.p == 2) {
#pragma unroll
      for (int i = 0; i < N; i++)
        s += (S)v[i] * (S)v[i];
    } else if (K == REDUCE_POWERS) {
#pragma unroll
      for (int i = 0; i < N; i++)
        s += (S)power(v[i], g.p);
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
        t[i] = g.absolute ? fl_abs(v[i]) : v[i];
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
/* In the other order. */
template <class V> V flipped(V v) {
  return -v;
}
inline int64_t flipped(int64_t v) {
  return ~v;
}

template <class V> struct extremes {
  V s;
  void start() {
    s = lowest<V>();
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &g, int64_t,
           int64_t) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      V w = g.absolute ? fl_abs(v[i]) : v[i];
      s = fl_maximum(g.least ? flipped(w) : w, s);
    }
  }
  void merge(const extremes &o) {
    s = fl_maximum(o.s, s);
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
    return fl_abs(m) == (V)INFINITY ? V(0) : m;
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
    V t[N], w[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      t[i] = v[i] - g.shift;
      w[i] = t[i] * t[i];
    }
    s += (double)fl_tree(t);
    q += (double)fl_tree(w);
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

/* The larger, NaN if either is. */
template <class V> V reduce_larger(V a, V b) {
  return fl_maximum(a, b);
}
template <> inline float reduce_larger<float>(float a, float b) {
  return fl_most_nan(a, b);
}

/* The first largest (least) element, the first NaN if any, and its position. */
template <class V> struct places {
  V s;
  int64_t at;
  void start() {
    s = 0;
    at = -1;
  }
  static bool beats(V v, V than) {
    return v > than || (v != v && than == than);
  }
  template <int N>
  void add(const V (&v)[N], const V (&)[N], const given<V> &g, int64_t from,
           int64_t step) {
    V w[N], most;
#pragma unroll
    for (int i = 0; i < N; i++) {
      w[i] = g.least ? flipped(v[i]) : v[i];
      most = i ? fl_maximum(w[i], most) : w[i];
    }
    bool early = from < at; /* fl_walk takes a line's first elements late */
    if (at >= 0 && !early && !beats(most, s))
      return; /* mostly so */
#pragma unroll
    for (int i = 0; i < N; i++)
      if (at < 0 || beats(w[i], s) || (early && !beats(s, w[i]))) {
        s = w[i];
        at = from + i * step;
      }
  }
  /* Of N adjacent ones only the first's position is kept, until `settle`:
   * searching each time that some lane has found a larger one is the work. */
  template <int N>
  void add_run(const V (&v)[N], const given<V> &g, int64_t from) {
    V w[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      w[i] = g.least ? flipped(v[i]) : v[i];
#pragma unroll
    for (int k = N / 2; k > 0; k /= 2)
#pragma unroll
      for (int i = 0; i < k; i++)
        w[i] = reduce_larger(w[i], w[i + k]);
    bool first = at < 0 || beats(w[0], s) || (from < at && !beats(s, w[0]));
    s = first ? w[0] : s;
    at = first ? from : at;
  }
  /* get(i): element i, of which there are some before `end`. */
  template <class F> void settle(const given<V> &g, int64_t end, F get) {
    for (bool found = at < 0; !found && at < end; at += !found) {
      V w = g.least ? flipped(get(at)) : get(at);
      found = w == s || w != w;
      s = found ? w : s;
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
  template <class V> struct acc_of<K, V> { typedef A<V> T; };
ACC(REDUCE_PROD, products_of)
ACC(REDUCE_EXTREME, extremes)
ACC(REDUCE_LSE, exponentials)
ACC(REDUCE_MOMENTS, moments)
ACC(REDUCE_PRODUCTS, pairs)
ACC(REDUCE_PLACE, places)

/* --- results --- */

/* What a result is stored as: of D itself, but for integers' means and counts,
 * by a.finish. */
template <int K, int D> struct stored {
  enum {
    WHOLE = !FL_IS_FLOAT(D),
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
    } else if (K == REDUCE_POWERS)
      to::put(a, out,
              a.p == 2 ? sqrt((double)t.s) : power((double)t.s, 1 / a.p));
    else if ((K == REDUCE_SUM || K == REDUCE_MEAN) && a.finish == DONE_MEAN)
      to::put(a, out, (double)t.s / a.count);
    else
      to::put(a, out, t.s);
  }
  static void put(const reduce_args &a, const products_of<V> &t, int64_t,
                  int64_t out) {
    to::put(a, out, t.s);
  }
  static void put(const reduce_args &a, const extremes<V> &t, int64_t,
                  int64_t out) {
    to::put(a, out, a.least ? flipped(t.s) : t.s);
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
  static void put(const reduce_args &a, const places<V> &t, int64_t,
                  int64_t out) {
    if (a.y)
      to::put(a, out, a.least ? flipped(t.s) : t.s);
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
  given<V> g = {V(0), a.p, a.absolute != 0, a.least != 0};
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
template <class A> void reduce_together(A &a, int lanes) {
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

/* What fl_walk hands over goes into the accumulator. */
template <int K, int D> struct taker {
  typedef FL_S(D) S;
  typedef typename value_of<K, D>::T V;
  typename acc_of<K, V>::T t;
  given<V> g;
  const S *x2;
  int64_t at; /* the position of the walk's first element */

  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t i, int64_t step) {
    fl_vec<S, N> y[U];
    if (K == REDUCE_PRODUCTS)
#pragma unroll
      for (int k = 0; k < U; k++)
        y[k] = fl_read<S, N>(x2 + i + k * step);
#pragma unroll
    for (int k = 0; k < U; k++) {
      V v[N], u[N];
      values(x[k], v);
      if (K == REDUCE_PRODUCTS)
        values(y[k], u);
      if constexpr (K == REDUCE_PLACE)
        t.add_run(v, g, at + i + k * step);
      else
        t.add(v, u, g, at + i + k * step, 1);
    }
  }
  template <int N> static void values(const fl_vec<S, N> &x, V (&v)[N]) {
    if constexpr (D == FL_BF16)
      fl_unpacked<D, N>::to(x, v);
    else
#pragma unroll
      for (int m = 0; m < N; m++)
        v[m] = fl_get<V>(x.at[m]);
  }
};

template <int K, int D>
__global__ void __launch_bounds__(256, REDUCE_ROW_BLOCKS(K, D))
    rows(const __grid_constant__ reduce_args a) {
  fl_begin();
  typedef FL_S(D) S;
  int lane = threadIdx.x % a.lanes, side = blockDim.x / a.lanes;
  int64_t r = (int64_t)blockIdx.x * side + threadIdx.x / a.lanes;
  int64_t in = 0, out = 0;
  taker<K, D> f;
  f.t.start();
  if (r < a.results) {
    in = offset_of(r, a.n_keep, a.keep, &out);
    f.g = given_of<K, D>(a, in, out);
    const S *x = (const S *)a.x + in, *x2 = (const S *)a.x2 + in;
    int64_t s = (int64_t)blockIdx.y * a.per_piece, end = s + a.per_piece;
    int64_t none = 0, turns = a.blocks * a.repeats;
    int turn = a.turn_lanes;
    end = end < turns ? end : turns;
    for (s += lane / turn; s < end; s += a.lanes / turn) {
      int64_t off =
          offset_of(fl_quotient(s, a.blocks, &f.at), a.n_red, a.red, &none);
      f.at *= a.block;
      off += f.at;
      int64_t n = a.run - f.at < a.block ? a.run - f.at : a.block;
      f.x2 = K == REDUCE_PRODUCTS ? x2 + off : nullptr;
      if (K == REDUCE_PRODUCTS && !a.vector)
        fl_walk<1, 4>(x + off, n, lane % turn, turn, f);
      else
        fl_walk<lot<D>::N, K == REDUCE_PRODUCTS ? 2 : 4>(x + off, n,
                                                         lane % turn, turn, f);
    }
    if constexpr (K == REDUCE_PLACE)
      f.t.settle(f.g, a.run, [x](int64_t i) {
        return fl_get<typename value_of<K, D>::T>(x[i]);
      });
  }
  reduce_together(f.t, a.lanes);
  if (r < a.results && lane == 0)
    leave<K, D>(a, f.t, r, in, out);
}

/* --- columns: N adjacent ones for each thread --- */

/* Where line `line` of the reduced axes begins. */
inline int64_t line_at(const reduce_args &a, int64_t line) {
  int64_t at = line, none = 0, off = 0;
  if (a.n_red)
    off = offset_of(fl_quotient(line, a.run, &at), a.n_red, a.red, &none);
  return off + at * a.run_in;
}

template <int TWO, class S, int N>
inline void read_line(fl_vec<S, N> &b, fl_vec<S, N> &c, const S *x, const S *x2,
                      int64_t at) {
  b = fl_read<S, N>(x + at);
  if (TWO)
    c = fl_read<S, N>(x2 + at);
}

template <int K, int D, int N>
__global__ void __launch_bounds__(256, REDUCE_COLUMN_BLOCKS(K))
    columns(const __grid_constant__ reduce_args a) {
  fl_begin();
  typedef typename value_of<K, D>::T V;
  typedef typename acc_of<K, V>::T A;
  typedef FL_S(D) S;
  enum { TWO = K == REDUCE_PRODUCTS, U = 4 };
  __shared__ A part[256 * N];
  int tx = threadIdx.x % a.bx, tz = threadIdx.x / (a.bx * a.by);
  int ty = threadIdx.x / a.bx % a.by, side = a.bx * N;
  int64_t tile, wide = a.keep[0].size, out = 0;
  int64_t o = fl_quotient(blockIdx.x, a.tiles, &tile) * a.bz;
  int64_t first = tile * side, col = first + tx * N;
  bool on = (o + tz) * wide < a.results && col < wide;
  int64_t in = on ? offset_of(o + tz, a.n_keep - 1, a.keep + 1, &out) + col : 0;
  A t[N];
  given<V> g[N];
#pragma unroll
  for (int j = 0; j < N; j++) {
    t[j].start();
    if (on)
      g[j] = given_of<K, D>(a, in + j, out + (col + j) * a.keep[0].out);
  }
  const S *x = (const S *)a.x + in, *x2 = (const S *)a.x2 + (TWO ? in : 0);
  int64_t r = (int64_t)blockIdx.y * a.per_piece, end = r + a.per_piece;
  int64_t lines = a.run * a.repeats;
  end = !on ? 0 : end < lines ? end : lines;
  r += ty;
#pragma unroll 1
  for (; r + (U - 1) * a.by < end; r += U * a.by) {
    fl_vec<S, N> b[U], c[U];
#pragma unroll
    for (int k = 0; k < U; k++)
      read_line<TWO>(b[k], c[k], x, x2, line_at(a, r + k * a.by));
#pragma unroll
    for (int j = 0; j < N; j++) {
      V v[U], u[U];
#pragma unroll
      for (int k = 0; k < U; k++) {
        v[k] = fl_get<V>(b[k].at[j]);
        u[k] = TWO ? fl_get<V>(c[k].at[j]) : V(0);
      }
      t[j].add(v, u, g[j], r, a.by);
    }
  }
#pragma unroll 1
  for (; r < end; r += a.by) {
    fl_vec<S, N> b, c;
    read_line<TWO>(b, c, x, x2, line_at(a, r));
#pragma unroll
    for (int j = 0; j < N; j++) {
      V v[1] = {fl_get<V>(b.at[j])}, u[1] = {TWO ? fl_get<V>(c.at[j]) : V(0)};
      t[j].add(v, u, g[j], r, 1);
    }
  }
#pragma unroll
  for (int j = 0; j < N; j++)
    part[threadIdx.x * N + j] = t[j];
#pragma unroll 1
  for (int k = a.by / 2; k > 0; k /= 2) {
    __syncthreads();
#pragma unroll 1
    for (int j = ty < k ? 0 : N; j < N; j++)
      part[threadIdx.x * N + j].merge(part[(threadIdx.x + k * a.bx) * N + j]);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < side * a.bz; i += blockDim.x) {
    int z = i / side, c = i % side;
    if ((o + z) * wide >= a.results || first + c >= wide)
      continue;
    out = 0;
    in = offset_of(o + z, a.n_keep - 1, a.keep + 1, &out) + first + c;
    leave<K, D>(a, part[z * a.by * side + c], (o + z) * wide + first + c, in,
                out + (first + c) * a.keep[0].out);
  }
}

/* --- the pieces of every result --- */

template <int K, int D>
__global__ void __launch_bounds__(256)
    merge(const __grid_constant__ reduce_args a) {
  fl_begin();
  typedef typename acc_of<K, typename value_of<K, D>::T>::T A;
  int lane = threadIdx.x % a.lanes, side = blockDim.x / a.lanes;
  int64_t r = (int64_t)blockIdx.x * side + threadIdx.x / a.lanes, out = 0;
  A t;
  t.start();
  if (r < a.results)
#pragma unroll 2
    for (int64_t p = lane; p < a.pieces; p += a.lanes)
      t.merge(((const A *)a.partial)[p * a.results + r]);
  reduce_together(t, a.lanes);
  if (r < a.results && lane == 0) {
    int64_t in = offset_of(r, a.n_keep, a.keep, &out);
    result<K, D>::put(a, t, in, out);
  }
}
