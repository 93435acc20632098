/* Lines: n adjacent elements that a group of threads keeps in registers, E a
 * thread in vectors of VEC. A group is a block, or a power of 2 of a warp's
 * lanes. Softmax, norms and losses are built on it. */
#pragma once

#include "flare.cuh"

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

/* exp of what goes into a result of type D. */
template <int D> float fl_exp_for(float x) {
  return D == FL_F32 ? expf(x) : __expf(x);
}
template <int D> double fl_exp_for(double x) {
  return exp(x);
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
        most = fl_max_of()(most, __shfl_xor_sync(0xffffffff, most, k));
    s *= fl_exp_for<D>(top - fl_finite(most));
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
template <int D> struct fl_packed_16 {
  static fl_vec<FL_S(D), 8> of(const float *v) {
    fl_vec<FL_S(D), 8> r;
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      w[i] = D == FL_BF16 ? fl_pack_bf16(v[2 * i], v[2 * i + 1])
                          : fl_pack_f16(v[2 * i], v[2 * i + 1]);
    memcpy(&r, w, 16);
    return r;
  }
};
template <> struct fl_packed<FL_BF16, 8> : fl_packed_16<FL_BF16> {};
template <> struct fl_packed<FL_F16, 8> : fl_packed_16<FL_F16> {};

template <int D, int VEC, int E> struct fl_line {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  enum { CHUNKS = E / VEC };
  fl_vec<S, VEC> at[CHUNKS];

  static int place(int c, int lane, int lanes) {
    return (c * lanes + lane) * VEC;
  }
  void load(const S *x, int n, int lane, int lanes) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int i = place(c, lane, lanes);
      if (i < n)
        at[c] = fl_read<S, VEC>(x + i);
    }
  }
  V get(int i) const {
    return fl_get<V>(at[i / VEC].at[i % VEC]);
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
template <int E, class V> V fl_tree(V (&t)[E]) {
#pragma unroll
  for (int k = E / 2; k > 0; k /= 2)
#pragma unroll
    for (int i = 0; i < k; i++)
      t[i] += t[i + k];
  return t[0];
}
