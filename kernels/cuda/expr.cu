/* Fused expressions: elementwise over any strides, and reduced as they are
 * computed. The program is put in front of this text (expr.c):
 *   EXPR_INPUTS(F), EXPR_RESULTS(F): F(number, dtype, value, type) for each
 *   EXPR_BODY: declares the values from those of the inputs
 *   EXPR_REDUCE: 0, or the fl_reduction; then EXPR_A, the accumulators' type,
 *   and EXPR_FIRST, what they begin with */
#include "flare.cuh"
#include "expr.h"

template <class W> W number(const expr_number &v) { return (W)v.f; }
template <> inline int64_t number<int64_t>(const expr_number &v) { return v.i; }
template <> inline bool number<bool>(const expr_number &v) { return v.i != 0; }

/* A bool is a number where it is stored. */
template <class S, class W> S stored(W v) { return fl_put<S>(v); }
template <class S> S stored(bool v) { return fl_put<S>((int64_t)v); }

/* Adds to the operands' places those of element i of some axes. BIG: counts do
 * not fit 32 bits. */
template <int BIG>
void walk(const expr_args &a, const expr_axis *axis, int n, int64_t i,
                 int64_t *at) {
#define ADD(k, D, value, W) at[k] += c * axis[d].stride[k];
#pragma unroll 1
  for (int d = n - 1; d >= 0; d--) {
    int64_t c = i;
    if (d > 0) {
      int64_t size = axis[d].size;
      int64_t q = BIG ? i / size : (uint32_t)i / (uint32_t)size;
      c = i - q * size;
      i = q;
    }
    EXPR_INPUTS(ADD)
    EXPR_RESULTS(ADD)
  }
#undef ADD
}

/* V elements of an operand from place `at` on, `n` of which there are. */
template <int V, class S, class W>
void take(W *to, const void *data, int64_t at, int64_t stride, int n,
          const expr_number &given) {
  if (!data || stride == 0) {
    W one = data ? fl_get<W>(((const S *)data)[at]) : number<W>(given);
#pragma unroll
    for (int j = 0; j < V; j++)
      to[j] = one;
    return;
  }
  const S *p = (const S *)data + at;
  fl_vec<S, V> x;
  if (V > 1 && n >= V)
    x = fl_read<S, V>(p);
  else
    for (int j = 0; j < V; j++)
      x.at[j] = p[j < n ? j * stride : 0];
#pragma unroll
  for (int j = 0; j < V; j++)
    to[j] = fl_get<W>(x.at[j]);
}

#define TAKE(k, D, value, W)                                                   \
  W x##k[V];                                                                   \
  take<V, FL_S(D)>(x##k, a.data[k], at[k], inner.stride[k], left, a.number[k]);
#define VALUE(k, D, value, W) const W v##value = x##k[j];

#if EXPR_REDUCE == 0

/* A thread takes V elements along the last axis; there `left` may be less than
 * V only where it is the one axis. */
template <int V, int BIG>
__global__ void __launch_bounds__(EXPR_THREADS)
    map(const __grid_constant__ expr_args a) {
  const expr_axis &inner = a.axis[a.n_keep - 1];
  const int64_t step = fl_threads() * V;
  for (int64_t i = fl_thread() * V; i < a.n; i += step) {
    const int left = a.n - i < V ? (int)(a.n - i) : V;
    int64_t at[EXPR_OPERANDS] = {0};
    walk<BIG>(a, a.axis, a.n_keep, i, at);
    EXPR_INPUTS(TAKE)
#define RESULT(k, D, value, W) fl_vec<FL_S(D), V> x##k;
    EXPR_RESULTS(RESULT)
#pragma unroll
    for (int j = 0; j < V; j++) {
      EXPR_INPUTS(VALUE)
      EXPR_BODY
#define KEEP(k, D, value, W) x##k.at[j] = stored<FL_S(D)>(v##value);
      EXPR_RESULTS(KEEP)
    }
#define SAVE(k, D, value, W)                                                   \
  {                                                                            \
    FL_S(D) *to = (FL_S(D) *)a.data[k] + at[k];                                \
    if (V > 1 && left == V)                                                    \
      fl_write<FL_S(D), V>(to, x##k);                                          \
    else                                                                       \
      for (int j = 0; j < left; j++)                                           \
        to[j * inner.stride[k]] = x##k.at[j];                                  \
  }
    EXPR_RESULTS(SAVE)
  }
}

#else

inline EXPR_A join(EXPR_A a, EXPR_A v) {
  return EXPR_REDUCE == 1   ? a + v
         : EXPR_REDUCE == 2 ? a * v
         : EXPR_REDUCE == 3 ? (v > a || v != v ? v : a)
                            : (v < a || v != v ? v : a);
}

/* The result's dtype and place. */
#define STORE(k, D, value, W)                                                  \
  {                                                                            \
    int64_t at[EXPR_OPERANDS] = {0};                                           \
    walk<BIG>(a, a.axis, a.n_keep, i, at);                                     \
    ((FL_S(D) *)a.data[k])[at[k]] = stored<FL_S(D)>(s);                        \
  }
template <int BIG> void finish(const expr_args &a, int64_t i, EXPR_A s) {
  EXPR_RESULTS(STORE)
}

/* a.lanes threads share a result. COLUMNS: a thread has V results that lie side
 * by side, and so have its neighbours; otherwise V elements of a result lie so.
 * blockIdx.y is the segment. */
template <int V, int COLUMNS, int BIG>
__global__ void __launch_bounds__(EXPR_THREADS)
    reduce(const __grid_constant__ expr_args a) {
  const int KEPT = COLUMNS ? V : 1, RUN = COLUMNS ? 1 : V, left = V;
  __shared__ EXPR_A part[EXPR_THREADS * KEPT];
  const int groups = EXPR_THREADS / a.lanes, t = threadIdx.x;
  const int group = COLUMNS ? t % groups : t / a.lanes;
  const int lane = COLUMNS ? t / groups : t % a.lanes;
  const int64_t i = ((int64_t)blockIdx.x * groups + group) * KEPT;
  const expr_axis &inner = a.axis[a.n_keep + (COLUMNS ? -1 : a.n_red - 1)];
  const int64_t begin = blockIdx.y * a.segment;
  const int64_t end = min(begin + a.segment, a.reduced);
  EXPR_A sum[V];
#pragma unroll
  for (int j = 0; j < V; j++)
    sum[j] = (EXPR_A)EXPR_FIRST;
  int64_t from[EXPR_OPERANDS] = {0};
  walk<BIG>(a, a.axis, a.n_keep, i < a.n ? i : 0, from);
  for (int64_t r = begin + lane * RUN; r < end && i < a.n; r += a.lanes * RUN) {
    int64_t at[EXPR_OPERANDS];
#define START(k, D, value, W) at[k] = from[k];
    EXPR_INPUTS(START)
    EXPR_RESULTS(START)
    walk<BIG>(a, a.axis + a.n_keep, a.n_red, r, at);
    EXPR_INPUTS(TAKE)
#pragma unroll
    for (int j = 0; j < V; j++) {
      EXPR_INPUTS(VALUE)
      EXPR_BODY
#define JOIN(k, D, value, W) sum[j] = join(sum[j], (EXPR_A)v##value);
      EXPR_RESULTS(JOIN)
    }
  }
  if (!COLUMNS)
    for (int j = 1; j < V; j++)
      sum[0] = join(sum[0], sum[j]);
#pragma unroll
  for (int j = 0; j < KEPT; j++)
    part[(lane * groups + group) * KEPT + j] = sum[j];
  for (int half = a.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      for (int j = 0; j < KEPT; j++) {
        EXPR_A *p = &part[(lane * groups + group) * KEPT + j];
        *p = join(*p, p[half * groups * KEPT]);
      }
  }
  if (lane > 0 || i >= a.n)
    return;
  for (int j = 0; j < KEPT; j++) {
    EXPR_A s = part[group * KEPT + j];
    if (a.partial)
      ((EXPR_A *)a.partial)[blockIdx.y * a.n + i + j] = s;
    else
      finish<BIG>(a, i + j, s);
  }
}

/* The segments' accumulators in their order: a warp for each result. */
template <int BIG>
__global__ void __launch_bounds__(EXPR_THREADS)
    fold(const __grid_constant__ expr_args a) {
  const int64_t i = fl_thread() / 32;
  const int lane = threadIdx.x & 31;
  EXPR_A s = (EXPR_A)EXPR_FIRST;
  for (int k = lane; k < a.segments && i < a.n; k += 32)
    s = join(s, ((const EXPR_A *)a.partial)[k * a.n + i]);
#pragma unroll
  for (int k = 16; k > 0; k /= 2) {
    EXPR_A other = __shfl_down_sync(0xffffffff, s, k);
    s = join(s, other);
  }
  if (lane == 0 && i < a.n)
    finish<BIG>(a, i, s);
}
#endif
