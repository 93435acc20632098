/* Running products, running logarithms of sums of exponentials, and running
 * extremes with their positions: a block for each line, or a thread for each
 * column. Long ones are cut into pieces, whose totals are computed first (WRITE
 * = 0). */
#include "device/flare.cuh"

#include "cumulate.h"

template <class V> struct product_of { typedef double T; };
template <> struct product_of<int64_t> { typedef int64_t T; };

/* What a run of elements comes to; `then` is what follows it. */
template <int K, int D> struct run {
  typedef typename product_of<FL_W(D)>::T T;
  enum { OUT = !FL_IS_FLOAT(D) ? FL_I64 : D };
  T p;
  void start() {
    p = 1;
  }
  void start(const cumulate_args &a, int64_t i, int64_t) {
    p = (T)fl_get<FL_W(D)>(((const FL_S(D) *)a.x)[i]);
  }
  void then(const run &o, const cumulate_args &) {
    p *= o.p;
  }
  void put(const cumulate_args &a, int64_t i) const {
    ((FL_S(OUT) *)a.y)[i] = fl_put<FL_S(OUT)>(p);
  }
};

/* Of equal elements the last counts; nothing but a later NaN replaces a NaN. */
template <int D> struct run<CUMULATE_EXTREME, D> {
  typedef FL_W(D) T;
  T v;
  int64_t at; /* -1: none */
  void start() {
    v = 0;
    at = -1;
  }
  void start(const cumulate_args &a, int64_t i, int64_t place) {
    v = fl_get<T>(((const FL_S(D) *)a.x)[i]);
    at = place;
  }
  void then(const run &o, const cumulate_args &a) {
    bool beats = at < 0 || o.v != o.v || (a.least ? o.v <= v : o.v >= v);
    if (o.at >= 0 && beats)
      *this = o;
  }
  void put(const cumulate_args &a, int64_t i) const {
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>(v);
    a.at[i] = at + a.base;
  }
};

/* m + log(s); equal infinities have no difference. */
template <int D> struct run<CUMULATE_LOGS, D> {
  double m, s;
  void start() {
    m = -(double)INFINITY;
    s = 0;
  }
  void start(const cumulate_args &a, int64_t i, int64_t) {
    m = (double)fl_get<FL_W(D)>(((const FL_S(D) *)a.x)[i]);
    s = 1;
  }
  void then(const run &o, const cumulate_args &) {
    double top = o.m > m || o.m != o.m ? o.m : m;
    s = (top == m ? s : s * exp(m - top)) +
        (top == o.m ? o.s : o.s * exp(o.m - top));
    m = top;
  }
  void put(const cumulate_args &a, int64_t i) const {
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>((FL_W(D))(m + log(s)));
  }
};

template <class R> R from_below(const R &r, int k) {
  R b;
  uint32_t w[sizeof(R) / 4];
  memcpy(w, &r, sizeof(R));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(R) / 4); i++)
    w[i] = __shfl_up_sync(0xffffffff, w[i], k);
  memcpy(&b, w, sizeof(R));
  return b;
}

/* The total of all pieces before this one. */
template <class R>
R pieces_before(const cumulate_args &a, int64_t line, int64_t piece) {
  R c;
  c.start();
  for (int64_t p = 0; p < piece; p++)
    c.then(((const R *)a.parts)[line * a.pieces + p], a);
  return c;
}

#define EACH 4 /* elements of a thread's turn */

template <int K, int D, int WRITE>
__global__ void __launch_bounds__(256)
    lines(const __grid_constant__ cumulate_args a) {
  typedef run<K, D> R;
  __shared__ R part[8];
  int64_t line = blockIdx.x / a.pieces, piece = blockIdx.x % a.pieces,
          from = piece * a.piece, first = line * a.n;
  int64_t end = from + a.piece < a.n ? from + a.piece : a.n;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  R carry = pieces_before<R>(a, line, WRITE ? piece : 0);
  for (; from < end; from += 256 * EACH) {
    int64_t i = from + threadIdx.x * EACH;
    R own[EACH], sum, less, all = carry;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      own[k].start();
      if (i + k < end)
        own[k].start(a, first + i + k, i + k);
      if (k) {
        R t = own[k - 1];
        t.then(own[k], a);
        own[k] = t;
      }
    }
    sum = own[EACH - 1];
    for (int k = 1; k < 32; k *= 2) {
      R t = from_below(sum, k);
      if (lane >= k) {
        t.then(sum, a);
        sum = t;
      }
    }
    less = from_below(sum, 1);
    if (lane == 0)
      less.start();
    __syncthreads(); /* part may still be read */
    if (lane == 31)
      part[warp] = sum;
    __syncthreads();
    R before = carry;
    for (int k = 0; k < 8; k++) {
      if (k == warp)
        before = all;
      all.then(part[k], a);
    }
    carry = all;
    before.then(less, a);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      R t = before;
      t.then(own[k], a);
      if (WRITE && i + k < end)
        t.put(a, first + i + k);
    }
  }
  if (!WRITE && threadIdx.x == 0)
    ((R *)a.parts)[blockIdx.x] = carry;
}

template <int K, int D, int WRITE>
__global__ void __launch_bounds__(128)
    columns(const __grid_constant__ cumulate_args a) {
  typedef run<K, D> R;
  int64_t r = fl_thread(), piece = blockIdx.y, from = piece * a.piece;
  if (r >= a.lines)
    return;
  int64_t at = r / a.inner * a.n * a.inner + r % a.inner;
  int64_t end = from + a.piece < a.n ? from + a.piece : a.n;
  R c = pieces_before<R>(a, r, WRITE ? piece : 0);
#pragma unroll 4
  for (int64_t i = from; i < end; i++) {
    R t;
    t.start(a, at + i * a.inner, i);
    c.then(t, a);
    if (WRITE)
      c.put(a, at + i * a.inner);
  }
  if (!WRITE)
    ((R *)a.parts)[r * a.pieces + piece] = c;
}
