/* Lines: n adjacent elements that a group of threads keeps in registers, E a
 * thread in vectors of VEC. A group is a block, or a power of 2 of a warp's
 * lanes. Softmax, norms and losses are built on it. */
#pragma once

#include "mma.cuh"

/* --- places --- */

/* i / n, and what is left in *rest; mostly both are small. */
inline int64_t fl_quotient(int64_t i, int64_t n, int64_t *rest) {
  if (((uint64_t)i | (uint64_t)n) >> 32 == 0) {
    uint32_t q = (uint32_t)i / (uint32_t)n;
    *rest = (int64_t)((uint32_t)i - q * (uint32_t)n);
    return q;
  }
  int64_t q = i / n;
  *rest = i - q * n;
  return q;
}

/* Of n elements from x on, those before the first place for VEC at once. */
template <int VEC, class S> int fl_head(const S *x, int64_t n) {
  int off = (int)((uintptr_t)x / sizeof(S) % VEC), head = off ? VEC - off : 0;
  return head < n ? head : (int)n;
}

/* --- groups --- */

template <class V> V fl_low() {
  return -(V)INFINITY;
}
/* What may be subtracted from any element: nothing has to come of -inf. */
template <class V> V fl_finite(V top) {
  return top == fl_low<V>() ? V(0) : top;
}

/* The larger; a NaN is left to what is computed from it. */
inline float fl_most(float a, float b) {
  return fmaxf(a, b);
}
inline double fl_most(double a, double b) {
  return fmax(a, b);
}

/* exp(x - top), as exact as a result of type D wants it. */
template <int D> float fl_exp_less(float x, float top) {
  if (D == FL_F32)
    return expf(x - top);
  return fl_exp2_fast(x * (float)FL_LOG2E - top * (float)FL_LOG2E);
}
template <int D> double fl_exp_less(double x, double top) {
  return exp(x - top);
}

template <bool BLOCK> struct fl_group {
  int lane, lanes;
  int64_t line, step; /* the group's first line, and how far its next is */

  fl_group(int lanes_)
      : lane(threadIdx.x), lanes(blockDim.x), line(blockIdx.x),
        step(gridDim.x) {
    if (BLOCK)
      return;
    lanes = lanes_;
    lane = threadIdx.x % lanes;
    step = fl_threads() / lanes;
    line = fl_thread() / lanes;
  }

  /* All threads of a warp stay together: whether any has a line left. */
  bool left(int64_t at, int64_t lines) const {
    return BLOCK ? at < lines : at - (threadIdx.x & 31) / lanes < lines;
  }

  template <class V> static void sum_lanes(V &a, V &b, int lanes) {
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
      if (k < lanes) {
        a += __shfl_xor_sync(0xffffffff, a, k);
        b += __shfl_xor_sync(0xffffffff, b, k);
      }
  }

  /* Sums of a and of b. */
  template <class V> void sum(V &a, V &b) const {
    __shared__ V part[2][32];
    sum_lanes(a, b, BLOCK ? 32 : lanes);
    if (!BLOCK)
      return;
    int warps = blockDim.x >> 5, at = threadIdx.x & 31;
    if (warps == 1)
      return;
    __syncthreads(); /* part may still be read by an earlier call */
    if (at == 0) {
      part[0][threadIdx.x >> 5] = a;
      part[1][threadIdx.x >> 5] = b;
    }
    __syncthreads();
    a = at < warps ? part[0][at] : V(0);
    b = at < warps ? part[1][at] : V(0);
    sum_lanes(a, b, 32);
  }

  template <class V> V sum(V a) const {
    V none = 0;
    sum(a, none);
    return a;
  }

  /* Maxima and sums of exponentials relative to them become the group's. */
  template <int D, class V> void soft(V &top, V &s) const {
    __shared__ V part[2][32];
    soft_lanes<D>(top, s, BLOCK ? 32 : lanes);
    if (!BLOCK)
      return;
    int warps = blockDim.x >> 5, at = threadIdx.x & 31;
    if (warps == 1)
      return;
    __syncthreads();
    if (at == 0) {
      part[0][threadIdx.x >> 5] = top;
      part[1][threadIdx.x >> 5] = s;
    }
    __syncthreads();
    top = at < warps ? part[0][at] : fl_low<V>();
    s = at < warps ? part[1][at] : V(0);
    soft_lanes<D>(top, s, 32);
  }
  template <int D, class V> static void soft_lanes(V &top, V &s, int lanes) {
    V most = top;
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
      if (k < lanes)
        most = fl_most(most, __shfl_xor_sync(0xffffffff, most, k));
    s *= fl_exp_less<D>(top, fl_finite(most));
    top = most;
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
      if (k < lanes)
        s += __shfl_xor_sync(0xffffffff, s, k);
  }
};

/* --- lines --- */

template <int D, int VEC> struct fl_packed {
  template <class V> static fl_vec<FL_S(D), VEC> of(const V *v) {
    fl_vec<FL_S(D), VEC> r;
#pragma unroll
    for (int i = 0; i < VEC; i++)
      r.at[i] = fl_put<FL_S(D)>(v[i]);
    return r;
  }
};
template <int D, int VEC> struct fl_packed_16 {
  static fl_vec<FL_S(D), VEC> of(const float *v) {
    fl_vec<FL_S(D), VEC> r;
    uint32_t w[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; i++)
      w[i] = D == FL_BF16 ? fl_pack_bf16(v[2 * i], v[2 * i + 1])
                          : fl_pack_f16(v[2 * i], v[2 * i + 1]);
    memcpy(&r, w, sizeof r);
    return r;
  }
};
template <> struct fl_packed<FL_BF16, 8> : fl_packed_16<FL_BF16, 8> {};
template <> struct fl_packed<FL_BF16, 4> : fl_packed_16<FL_BF16, 4> {};
template <> struct fl_packed<FL_F16, 8> : fl_packed_16<FL_F16, 8> {};
template <> struct fl_packed<FL_F16, 4> : fl_packed_16<FL_F16, 4> {};

/* Stored elements as they are computed with: 16-bit ones two from a word. */
template <int D, int VEC> struct fl_unpacked {
  template <class V> static void to(const fl_vec<FL_S(D), VEC> &x, V *v) {
#pragma unroll
    for (int i = 0; i < VEC; i++)
      v[i] = fl_get<V>(x.at[i]);
  }
};
template <int VEC> struct fl_unpacked_bf16 {
  static void to(const fl_vec<bf16, VEC> &x, float *v) {
    uint32_t w[VEC / 2];
    memcpy(w, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < VEC / 2; i++) {
      v[2 * i] = __uint_as_float(w[i] << 16);
      v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
  }
};
template <> struct fl_unpacked<FL_BF16, 8> : fl_unpacked_bf16<8> {};
template <> struct fl_unpacked<FL_BF16, 4> : fl_unpacked_bf16<4> {};

/* x where `on`, else VEC times `other`. */
template <class S, int VEC>
fl_vec<S, VEC> fl_or(bool on, const fl_vec<S, VEC> &x, S other) {
  enum { WORDS = sizeof(x) / 4 };
  fl_vec<S, VEC> y;
#pragma unroll
  for (int i = 0; i < VEC; i++)
    y.at[i] = other;
  if (WORDS == 0)
    return on ? x : y;
  uint32_t a[WORDS + 1], b[WORDS + 1];
  memcpy(a, &x, sizeof(x));
  memcpy(b, &y, sizeof(x));
#pragma unroll
  for (int i = 0; i < WORDS; i++)
    a[i] = on ? a[i] : b[i];
  memcpy(&y, a, sizeof(x));
  return y;
}

template <int D, int VEC, int E> struct fl_line {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  enum { CHUNKS = E / VEC };
  fl_vec<S, VEC> at[CHUNKS];

  static int place(int c, int lane, int lanes) {
    return (c * lanes + lane) * VEC;
  }
  /* Where the line has no elements: `other`. The loads depend on nothing, so
   * all are under way at once; x must have an element. */
  void load(const S *x, int n, int lane, int lanes, V other = V(0)) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int i = place(c, lane, lanes);
      at[c] = fl_read<S, VEC>(x + (i < n ? i : 0));
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      at[c] = fl_or(place(c, lane, lanes) < n, at[c], fl_put<S>(other));
  }
  void get(int c, V *v) const {
    fl_unpacked<D, VEC>::to(at[c], v);
  }
  void get(V (&v)[E]) const {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      get(c, v + c * VEC);
  }
};

/* f(k) for each of this thread's elements k that the line has. */
template <int VEC, int E, class F>
void fl_each(int n, int lane, int lanes, F f) {
#pragma unroll
  for (int c = 0; c < E / VEC; c++)
    if ((c * lanes + lane) * VEC < n) {
#pragma unroll
      for (int k = 0; k < VEC; k++)
        f(c * VEC + k);
    }
}

template <int D, int VEC, int E>
void fl_store_line(FL_S(D) * y, const FL_W(D) (&v)[E], int n, int lane,
                   int lanes) {
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    int i = (c * lanes + lane) * VEC;
    if (i < n)
      fl_write<FL_S(D), VEC>(y + i, fl_packed<D, VEC>::of(v + c * VEC));
  }
}

/* The sum of E numbers, so that few additions wait for each other. */
template <int E, class V> V fl_tree_of(const V *t) {
  if constexpr (E == 1)
    return t[0];
  else
    return fl_tree_of<E / 2>(t) + fl_tree_of<E - E / 2>(t + E / 2);
}
template <int E, class V> V fl_tree(const V (&t)[E]) {
  return fl_tree_of<E>(t);
}

/* --- lines of any length --- */

/* f.take(vectors, i, step) for all of n adjacent elements: U vectors a turn, of
 * elements i, i + step, ...; then one, then what lies before and after the
 * vectors as vectors of 1. */
template <int VEC, int U, class S, class F>
void fl_walk(const S *x, int64_t n, int lane, int lanes, F &f) {
  int64_t head = fl_head<VEC>(x, n), end = head + (n - head) / VEC * VEC;
  int64_t step = (int64_t)lanes * VEC, i = head + (int64_t)lane * VEC;
#pragma unroll 1
  for (; i + (U - 1) * step < end; i += U * step) {
    fl_vec<S, VEC> v[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      v[u] = fl_read<S, VEC>(x + i + u * step);
    f.take(v, i, step);
  }
#pragma unroll 1
  for (; i < end; i += step) {
    fl_vec<S, VEC> v[1] = {fl_read<S, VEC>(x + i)};
    f.take(v, i, step);
  }
#pragma unroll 1
  for (int64_t k = lane; k < head + n - end; k += lanes) {
    int64_t c = k < head ? k : k - head + end;
    fl_vec<S, 1> v[1] = {fl_read<S, 1>(x + c)};
    f.take(v, c, 1);
  }
}

/* The largest of what was taken, and the sum of exponentials relative to it. */
template <int D> struct fl_peak {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  V top, s;

  void start() {
    top = fl_low<V>();
    s = 0;
  }
  template <int N, int U>
  void take(const fl_vec<S, N> (&x)[U], int64_t, int64_t) {
    V v[U * N], most = top;
#pragma unroll
    for (int u = 0; u < U; u++)
      fl_unpacked<D, N>::to(x[u], v + u * N);
#pragma unroll
    for (int k = 0; k < U * N; k++)
      most = fl_most(v[k], most);
    if (most > top) {
      s *= fl_exp_less<D>(top, most);
      top = most;
    }
    V own = fl_finite(top);
#pragma unroll
    for (int k = 0; k < U * N; k++)
      v[k] = fl_exp_less<D>(v[k], own);
    s += fl_tree(v);
  }
  void merge(V top2, V s2) {
    V most = fl_most(top, top2), own = fl_finite(most);
    s = s * fl_exp_less<D>(top, own) + s2 * fl_exp_less<D>(top2, own);
    top = most;
  }
};
