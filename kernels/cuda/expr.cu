/* Fused expressions: elementwise over any strides, and reduced as they are
 * computed. The program is put in front of this text (expr.c):
 *   EXPR_INPUTS(F), EXPR_RESULTS(F): F(number, dtype, value, type) for each
 *   FL_MATH: how much of math.h it needs
 *   EXPR_BODY: declares the values from those of the inputs
 *   EXPR_REDUCE: 0, or the fl_reduction; then EXPR_A, the accumulators' type,
 *   and EXPR_FIRST, what they begin with */
#ifndef EXPR_BODY
#define FL_MATH 0
#endif
#include "device/early.cuh"
#include "expr.cuh"

/* Fold of two accumulators: R is the fl_reduction. */
template <int R, class A> A expr_joined(A a, A v) {
  return R == 1   ? a + v
         : R == 2 ? a * v
         : R == 3 ? (v > a || v != v ? v : a)
                  : (v < a || v != v ? v : a);
}

#ifndef EXPR_BODY

/* The segments' accumulators in their order, a warp for each result; WHOLE:
 * they are integers. It is the same for all programs. */
template <int R, int WHOLE, int D>
__global__ void __launch_bounds__(EXPR_THREADS)
    fold(const __grid_constant__ expr_fold a) {
  fl_begin();
  typedef typename fl_type<WHOLE ? FL_I64 : FL_F64>::S A;
  const A *from = (const A *)a.partial;
  const int64_t i = fl_thread() / 32;
  const int lane = threadIdx.x & 31;
  A s = 0;
  if (i < a.n && lane < a.segments)
    s = from[lane * a.n + i];
  for (int k = lane + 32; k < a.segments && i < a.n; k += 32)
    s = expr_joined<R>(s, from[k * a.n + i]);
#pragma unroll
  for (int k = 16; k > 0; k /= 2) {
    const A other = __shfl_down_sync(0xffffffff, s, k);
    if (lane + k < a.segments)
      s = expr_joined<R>(s, other);
  }
  if (lane == 0 && i < a.n)
    ((FL_S(D) *)a.y)[i] = fl_put<FL_S(D)>(s);
}

#else

/* V elements of an operand from `p` on, `n` of which there are; one for all if
 * REPEATED. */
template <int V, int REPEATED, class S, class W>
void expr_take(W *to, const S *p, int n) {
  if constexpr (REPEATED) {
    const W one = fl_get<W>(*p);
#pragma unroll
    for (int j = 0; j < V; j++)
      to[j] = one;
  } else {
    fl_vec<S, V> x;
    if (n >= V)
      x = fl_fetch<S, V>(p);
    else
#pragma unroll
      for (int j = 0; j < V; j++)
        x.at[j] = p[j < n ? j : 0];
#pragma unroll
    for (int j = 0; j < V; j++)
      to[j] = fl_get<W>(x.at[j]);
  }
}

enum {
#define ONE(k, D, value, W) + 1
  OPERANDS = 0 EXPR_INPUTS(ONE) EXPR_RESULTS(ONE)
};

/* Only what repeats may be a number, and lie among the arguments. */
#define BEGIN(k, D, value, W)                                                  \
  const FL_S(D) *in##k =                                                       \
      (const FL_S(D) *)((REPEATS >> k) & 1 && !a.data[k] ? &a.number[k]        \
                                                         : a.data[k]);
#define TAKE(k, D, value, W)                                                   \
  W x##k[V];                                                                   \
  expr_take<V, (REPEATS >> k) & 1>(x##k, in##k + at[k], left);
#define VALUE(k, D, value, W) const W v##value = x##k[j];

/* Element i of the only axis; along it vectors lie side by side. */
template <int V, int ALONG, int REPEATED>
inline int64_t expr_flat(int64_t i, int64_t stride) {
  return V == 1 || !ALONG ? i * stride : REPEATED ? 0 : i;
}

#if EXPR_REDUCE == 0

/* A thread takes V elements along the last axis, which is the only one if FLAT;
 * TAIL: then the last thread may have less. No loop: NVRTC is quicker so. */
template <int V, int FLAT, int TAIL, int BIG, int REPEATS>
__global__ void __launch_bounds__(EXPR_THREADS)
    map(const __grid_constant__ expr_args a) {
  fl_begin();
  const int64_t i = fl_thread() * V;
  EXPR_INPUTS(BEGIN)
  if (i < a.n) {
    const int left = TAIL && a.n - i < V ? (int)(a.n - i) : V;
    int64_t at[OPERANDS] = {0};
    if constexpr (FLAT) {
#define PLACE(k, D, value, W)                                                  \
  at[k] = expr_flat<V, 1, (REPEATS >> k) & 1>(i, a.axis[0].stride[k]);
      EXPR_INPUTS(PLACE)
      EXPR_RESULTS(PLACE)
    } else
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
    if (left == V)                                                             \
      fl_leave<FL_S(D), V>(to, x##k);                                          \
    else                                                                       \
      for (int j = 0; j < left; j++)                                           \
        to[j] = x##k.at[j];                                                    \
  }
    EXPR_RESULTS(SAVE)
  }
}

#else

inline EXPR_A join(EXPR_A a, EXPR_A v) { return expr_joined<EXPR_REDUCE>(a, v); }

/* 1 << a.lane_bits threads share a result. COLUMNS: a thread computes V adjacent
 * results, and the next thread the V after them; otherwise it reads V adjacent
 * elements of one result at a time. blockIdx.y is the segment. FLAT: one axis is
 * kept, one reduced. */
template <int V, int COLUMNS, int FLAT, int BIG, int REPEATS>
__global__ void __launch_bounds__(EXPR_THREADS)
    reduce(const __grid_constant__ expr_args a) {
  fl_begin();
  const int KEPT = COLUMNS ? V : 1, RUN = COLUMNS ? 1 : V, left = V;
  __shared__ EXPR_A part[EXPR_THREADS * KEPT];
  const int lanes = 1 << a.lane_bits, groups = EXPR_THREADS >> a.lane_bits;
  const int t = threadIdx.x;
  const int group = COLUMNS ? t & (groups - 1) : t >> a.lane_bits;
  const int lane = COLUMNS ? t >> (EXPR_BITS - a.lane_bits) : t & (lanes - 1);
  const int64_t i = ((int64_t)blockIdx.x * groups + group) * KEPT;
  const int64_t begin = blockIdx.y * a.segment;
  const int64_t end = min(begin + a.segment, a.reduced);
  EXPR_INPUTS(BEGIN)
  EXPR_A sum[V];
#pragma unroll
  for (int j = 0; j < V; j++)
    sum[j] = (EXPR_A)EXPR_FIRST;
  int64_t from[OPERANDS] = {0};
  if constexpr (FLAT) {
#define KEPT_AT(k, D, value, W)                                                \
  from[k] = expr_flat<V, COLUMNS, (REPEATS >> k) & 1>(i, a.axis[0].stride[k]);
    EXPR_INPUTS(KEPT_AT)
  } else
    walk<BIG>(a, a.axis, a.n_keep, i < a.n ? i : 0, from);
  for (int64_t r = begin + lane * RUN; r < end && i < a.n; r += lanes * RUN) {
    int64_t at[OPERANDS];
#define START(k, D, value, W)                                                  \
  at[k] = from[k] +                                                            \
          (FLAT ? expr_flat<V, !COLUMNS, (REPEATS >> k) & 1>(r, a.axis[1].stride[k]) \
                : 0);
    EXPR_INPUTS(START)
    if constexpr (!FLAT)
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
#pragma unroll
    for (int j = 1; j < V; j++)
      sum[0] = join(sum[0], sum[j]);
#pragma unroll
  for (int j = 0; j < KEPT; j++)
    part[(lane * groups + group) * KEPT + j] = sum[j];
#pragma unroll 1
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
#pragma unroll 1
      for (int j = 0; j < KEPT; j++) {
        EXPR_A *p = &part[(lane * groups + group) * KEPT + j];
        *p = join(*p, p[half * groups * KEPT]);
      }
  }
  if (lane > 0 || i >= a.n)
    return;
#pragma unroll 1
  for (int j = 0; j < KEPT; j++) {
    const EXPR_A s = part[group * KEPT + j];
    if (a.partial)
      ((EXPR_A *)a.partial)[blockIdx.y * a.n + i + j] = s;
    else {
#define STORE(k, D, value, W)                                                  \
  ((FL_S(D) *)a.data[k])[i + j] = fl_put<FL_S(D)>(s);
      EXPR_RESULTS(STORE)
    }
  }
}
#endif
#endif
