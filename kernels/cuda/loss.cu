/* Cross-entropy of scores against class positions or probabilities, and its
 * gradient. Each direction reads the scores once: the maximum and the sum of
 * exponentials are taken together. */
#include "device/early.cuh"
#include "device/line.cuh"
#include "loss.h"

/* --- targets --- */

/* The class of a sample, -1: it is ignored. */
inline int64_t class_of(const loss_args &a, int64_t sample) {
  int64_t t = fl_load<int64_t>(a.target, a.target_dtype, sample);
  return t == a.ignore ? -1 : fl_position(a.fault, t, a.classes);
}
template <class V> V weight_of(const loss_args &a, int64_t c) {
  return a.weight ? ((const V *)a.weight)[c] : V(1);
}
/* What a sample's loss weighs its class c with, of its probability. */
template <class V> V share(const loss_args &a, int64_t at, int64_t c) {
  V p = ((const V *)a.target)[at];
  return weight_of<V>(a, c) * ((V)(1 - a.smoothing) * p + (V)a.even);
}

/* --- forward --- */

/* Sums over the classes of a sample: class i of the walk is element first + i *
 * apart, and class i. */
template <int D, int MODE> struct scores {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  const loss_args &a;
  int64_t first, apart;
  fl_peak<D> peak;
  double shares, dot; /* of the classes' weights, and times their scores */

  scores(const loss_args &a_, int64_t first_, int64_t apart_)
      : a(a_), first(first_), apart(apart_), shares(0), dot(0) {
    peak.start();
  }
  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t i, int64_t step) {
    peak.take(x, i, step);
#pragma unroll
    for (int u = 0; u < (MODE == LOSS_CLASS ? 0 : U); u++) {
      V v[N];
      fl_unpacked<D, N>::to(x[u], v);
#pragma unroll
      for (int k = 0; k < N; k++) {
        int64_t c = i + u * step + k;
        V w = MODE == LOSS_SMOOTH ? weight_of<V>(a, c)
                                  : share<V>(a, first + c * apart, c);
        if (MODE == LOSS_SHARES && w == V(0))
          continue; /* without a share it counts nothing, whatever its score */
        shares += (double)w;
        dot += (double)w * (double)v[k];
      }
    }
  }
};

/* Losses as differences from the largest score, then the logarithm: lse has
 * only the largest score's digits. */
template <int D, int MODE>
void leave_loss(const loss_args &a, int64_t sample, const scores<D, MODE> &t) {
  typedef FL_W(D) V;
  V top = t.peak.top, log = fl_log(top == fl_low<V>() ? (V)NAN : t.peak.s);
  double loss = ((double)top + (double)log) * t.shares - t.dot, total = 1;
  ((V *)a.lse)[sample] = top + log;
  if (MODE != LOSS_SHARES) {
    int64_t c = class_of(a, sample);
    total = c < 0 ? 0 : (double)weight_of<V>(a, c);
    if (c < 0)
      loss = 0;
    else {
      V x = fl_get<V>(((const FL_S(D) *)a.x)[t.first + c * t.apart]);
      loss = (1 - a.smoothing) * total * (double)((top - x) + log) +
             (MODE == LOSS_SMOOTH ? a.even * loss : 0);
    }
  }
  a.losses[2 * sample] = loss;
  a.losses[2 * sample + 1] = total;
  if (a.reduction == LOSS_NONE)
    fl_save(a.y, a.y_dtype, sample, loss);
}

/* Samples whose classes are adjacent: a group each. */
template <int D, int VEC, int MODE, int BLOCK>
__global__ void __launch_bounds__(BLOCK ? 512 : 128)
    forward(const __grid_constant__ loss_args a) {
  fl_begin();
  enum { U = D == FL_F64 ? 1 : VEC == 1 ? 8 : 4 };
  fl_group<BLOCK> g(a.lanes);
  bool on = g.line < a.samples;
  int64_t at = on ? g.line * a.classes : 0;
  scores<D, MODE> t(a, at, 1);
  fl_walk<VEC, U>((const FL_S(D) *)a.x + at, on ? a.classes : 0, g.lane,
                  g.lanes, t);
  g.template soft<D>(t.peak.top, t.peak.s);
  if (MODE != LOSS_CLASS)
    g.sum(t.shares, t.dot);
  if (on && g.lane == 0)
    leave_loss(a, g.line, t);
}

/* Samples whose classes are `inner` apart: a thread each. */
template <int D, int MODE>
__global__ void __launch_bounds__(128)
    columns(const __grid_constant__ loss_args a) {
  fl_begin();
  typedef FL_S(D) S;
  int64_t r = fl_thread(), col;
  if (r >= a.samples)
    return;
  int64_t at = fl_quotient(r, a.inner, &col) * a.classes * a.inner + col;
  const S *x = (const S *)a.x + at;
  scores<D, MODE> t(a, at, a.inner);
  int64_t c = 0;
#pragma unroll 1
  for (; c + 4 <= a.classes; c += 4) {
    fl_vec<S, 1> v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      v[k].at[0] = x[(c + k) * a.inner];
    t.take(v, c, 1);
  }
#pragma unroll 1
  for (; c < a.classes; c++) {
    fl_vec<S, 1> v[1] = {x[c * a.inner]};
    t.take(v, c, 1);
  }
  leave_loss(a, r, t);
}

/* Samples' losses and weights into one pair for each block: into a.parts, or as
 * the results. */
template <int WD>
__global__ void __launch_bounds__(512)
    gather(const __grid_constant__ loss_args a) {
  fl_begin();
  double loss = 0, total = 0;
#pragma unroll 4
  for (int64_t i = fl_thread(); i < a.samples; i += fl_threads()) {
    loss += a.losses[2 * i];
    total += a.losses[2 * i + 1];
  }
  fl_group<true>(0).sum(loss, total);
  if (threadIdx.x)
    return;
  if (a.parts) {
    a.parts[2 * blockIdx.x] = loss;
    a.parts[2 * blockIdx.x + 1] = total;
    return;
  }
  fl_save(a.total_out, a.wide, 0, total);
  if (a.reduction != LOSS_NONE)
    fl_save(a.y, a.y_dtype, 0, a.reduction == LOSS_MEAN ? loss / total : loss);
}

/* The weights of all samples together; samples without a target count 1. */
template <int WD>
__global__ void __launch_bounds__(512)
    total(const __grid_constant__ loss_args a) {
  fl_begin();
  double s = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.samples; i += blockDim.x) {
    int64_t c = a.target ? class_of(a, i) : 0;
    s += !a.target ? 1 : c < 0 ? 0 : weight_of<double>(a, c);
  }
  s = fl_group<true>(0).sum(s);
  if (threadIdx.x == 0)
    fl_save(a.total_out, a.wide, 0, s);
}

/* --- backward: dx = dy (sum(a) softmax(x) - a), a the classes' shares --- */

/* All classes' weights together. */
template <int D>
__global__ void __launch_bounds__(512)
    whole(const __grid_constant__ loss_args a) {
  fl_begin();
  double s = 0;
  for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x)
    s += (double)weight_of<FL_W(D)>(a, c);
  s = fl_group<true>(0).sum(s);
  if (threadIdx.x == 0)
    *a.whole = s;
}

/* The shares of every sample's classes together: a block, or a thread where
 * classes are `inner` apart. */
template <int D>
__global__ void __launch_bounds__(256)
    shares(const __grid_constant__ loss_args a) {
  fl_begin();
  typedef FL_W(D) V;
  double s = 0;
  int64_t col, r = a.inner == 1 ? blockIdx.x : fl_thread();
  if (r >= a.samples)
    return;
  int64_t at = fl_quotient(r, a.inner, &col) * a.classes * a.inner + col;
  bool alone = a.inner > 1;
  for (int64_t c = alone ? 0 : threadIdx.x; c < a.classes;
       c += alone ? 1 : blockDim.x)
    s += (double)share<V>(a, at + c * a.inner, c);
  if (!alone)
    s = fl_group<true>(0).sum(s);
  if (alone || threadIdx.x == 0)
    a.shares[r] = s;
}

/* What a sample's gradient is made of. */
template <class V> struct slope {
  V scale, whole, even, lse, hit;
  int64_t c; /* -1: there is none */
};

template <class V> slope<V> slope_of(const loss_args &a, int mode, int64_t r) {
  slope<V> t;
  double dy =
      fl_load<double>(a.dy, a.dy_dtype, a.reduction == LOSS_NONE ? r : 0);
  if (a.reduction == LOSS_MEAN)
    dy /= fl_load<double>(a.total, a.wide, 0);
  t.lse = ((const V *)a.lse)[r];
  t.scale = (V)dy;
  t.c = -1;
  t.even = t.hit = t.whole = 0;
  if (mode == LOSS_SHARES) {
    t.whole = (V)(dy * a.shares[r]);
    return t;
  }
  t.c = class_of(a, r);
  if (t.c < 0)
    return t;
  V w = weight_of<V>(a, t.c);
  double all = a.even == 0 ? 0 : a.whole ? *a.whole : (double)a.classes;
  t.whole = (V)(dy * ((1 - a.smoothing) * (double)w + a.even * all));
  t.even = t.scale * (V)a.even;
  t.hit = t.scale * ((V)(1 - a.smoothing) * w);
  return t;
}

/* Of class c; without what its being the target takes away. */
template <int D, class V>
V slope_at(const loss_args &a, int mode, const slope<V> &t, V x, int64_t at,
           int64_t c) {
  V d = fl_exp_less<D>(x, t.lse) * t.whole;
  if (mode == LOSS_SHARES)
    return d - t.scale * share<V>(a, at, c);
  if (mode == LOSS_SMOOTH)
    d -= t.even * weight_of<V>(a, c);
  return d;
}

/* Writes the gradient of adjacent classes, the first of which is class `from`
 * and element `at`. */
template <int D, int MODE> struct gradient {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  const loss_args &a;
  slope<V> t;
  S *dx;
  int64_t at, from, hit; /* hit: the target, if it is here */

  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t i, int64_t step) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      V v[N];
      int64_t c = i + u * step;
      fl_unpacked<D, N>::to(x[u], v);
#pragma unroll
      for (int k = 0; k < N; k++)
        v[k] = slope_at<D>(a, MODE, t, v[k], at + c + k, from + c + k);
      if (hit >= c && hit < c + N) {
#pragma unroll
        for (int k = 0; k < N; k++)
          v[k] -= hit == c + k ? t.hit : V(0);
      }
      if (MODE != LOSS_SHARES && t.c < 0) { /* whatever the score is */
#pragma unroll
        for (int k = 0; k < N; k++)
          v[k] = 0;
      }
      fl_leave<S, N>(dx + c, fl_packed<D, N>::of(v));
    }
  }
};

/* Blocks take `piece` adjacent classes of a sample, groups all of them. */
template <int D, int VEC, int MODE, int BLOCK>
__global__ void __launch_bounds__(256)
    backward(const __grid_constant__ loss_args a) {
  fl_begin();
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  enum { U = D == FL_F64 ? 1 : VEC == 1 ? 8 : 4 };
  fl_group<BLOCK> g(a.lanes);
  int64_t r = g.line, from = 0, n = a.classes;
  if (BLOCK) {
    r = fl_quotient(blockIdx.x, a.chunks, &from);
    from *= a.piece;
    n = n - from < a.piece ? n - from : a.piece;
  }
  if (r >= a.samples)
    return;
  slope<V> t = slope_of<V>(a, MODE, r);
  int64_t at = r * a.classes + from;
  gradient<D, MODE> f = {a, t, (S *)a.dx + at, at, from, t.c - from};
  fl_walk<VEC, U>((const S *)a.x + at, n, g.lane, g.lanes, f);
}

template <int D>
__global__ void __launch_bounds__(128)
    columns_backward(const __grid_constant__ loss_args a) {
  fl_begin();
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  int64_t r = fl_thread(), col;
  if (r >= a.samples)
    return;
  slope<V> t = slope_of<V>(a, a.mode, r);
  int64_t at = fl_quotient(r, a.inner, &col) * a.classes * a.inner + col;
#pragma unroll 4
  for (int64_t c = 0; c < a.classes; c++, at += a.inner) {
    V x = fl_get<V>(((const S *)a.x)[at]);
    V d = slope_at<D>(a, a.mode, t, x, at, c);
    d = c == t.c ? d - t.hit : d;
    ((S *)a.dx)[at] = fl_put<S>(a.mode != LOSS_SHARES && t.c < 0 ? V(0) : d);
  }
}

/* Copies `samples` elements that must be probabilities. */
template <int D>
__global__ void __launch_bounds__(256)
    probabilities(const __grid_constant__ loss_args a) {
  fl_begin();
  typedef FL_S(D) S;
#pragma unroll 4
  for (int64_t i = fl_thread(); i < a.samples; i += fl_threads()) {
    S x = ((const S *)a.x)[i];
    double p = fl_get<double>(x);
    if (!(p >= 0 && p <= 1))
      fl_report(a.fault, __double_as_longlong(p), REFUSED_CODE(REFUSED_BCE, 0));
    ((S *)a.y)[i] = x;
  }
}
