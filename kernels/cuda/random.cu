/* Random numbers. Element e takes its bits from Philox counter offset + e / 4,
 * word e % 4 (f64: offset + e / 2, two words; dropout: half a word, so offset
 * + e / 8), as on the CPU: numbers do not depend on the device. */
#define FL_MATH 2
#include "device/flare.cuh"
#include "random.h"

inline uint64_t number(const random_number &r) {
  return (uint64_t)(r.at ? fl_load<int64_t>(r.at, r.dtype, 0) : r.value);
}

/* Elements N c ... N c + N - 1 of the result. */
template <int D, int N, class W>
void random_put(const draw_args &a, int64_t c, const W (&v)[N]) {
  FL_S(D) *y = (FL_S(D) *)a.y + c * N;
  int64_t left = a.n - c * N;
  if (left >= N) {
    fl_vec<FL_S(D), N> out;
#pragma unroll
    for (int i = 0; i < N; i++)
      out.at[i] = fl_put<FL_S(D)>(v[i]);
    fl_write(y, out);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < left)
        y[i] = fl_put<FL_S(D)>(v[i]);
  }
}

/* The same elements of x; 0 behind the end. */
template <int D, int N>
void random_take(const draw_args &a, int64_t c, FL_W(D) (&v)[N]) {
  const FL_S(D) *x = (const FL_S(D) *)a.x + c * N;
  int64_t left = a.n - c * N;
  if (left >= N && a.wide) {
    fl_vec<FL_S(D), N> in = fl_read<FL_S(D), N>(x);
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = fl_get<FL_W(D)>(in.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = i < left ? fl_get<FL_W(D)>(x[i]) : FL_W(D)(0);
  }
}

/* Counters of a thread, which makes 16 bytes of floats at once; elements of a
 * counter. */
#define COUNTERS(D) (sizeof(FL_S(D)) == 2 ? 2 : 1)
#define PER(D)      (D == FL_F64 ? 2 : 4)
#define EACH(per)                                                              \
  uint64_t seed = number(a.seed), offset = number(a.offset);                   \
  for (int64_t c = fl_thread(); c * (per) < a.n; c += fl_threads())

/* The words of group c of a few counters. */
template <int N>
void words(uint64_t seed, uint64_t offset, int64_t c, uint32_t (&w)[N]) {
#pragma unroll
  for (int i = 0; i < N / 4; i++)
    fl_philox(seed, offset + (uint64_t)(c * (N / 4) + i), 0, w + 4 * i);
}

template <int D> __global__ void rand(const __grid_constant__ draw_args a) {
  typedef FL_W(D) W;
  W low = (W)a.low, width = (W)a.width, most = (W)a.most;
  const int N = COUNTERS(D) * PER(D);
  EACH(N) {
    uint32_t w[4 * COUNTERS(D)];
    W v[N];
    words(seed, offset, c, w);
#pragma unroll
    for (int i = 0; i < N; i++) {
      W u;
      if constexpr (D == FL_F64)
        u = low + width * fl_uniform53(w[2 * i], w[2 * i + 1]);
      else
        u = low + width * fl_uniform24(w[i]);
      v[i] = u < most ? u : most;
    }
    random_put<D>(a, c, v);
  }
}

inline double root(double x) {
  return sqrt(x);
}
inline float root(float x) { /* within one unit of the last place */
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Box and Muller: two numbers (f64: four words) make two. */
template <int D, bool EXP> void normals(const draw_args &a) {
  typedef FL_W(D) W;
  W mean = (W)a.low, std = (W)a.width;
  const int N = COUNTERS(D) * PER(D);
  EACH(N) {
    uint32_t w[4 * COUNTERS(D)];
    W v[N];
    words(seed, offset, c, w);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      W u, s, k;
      if constexpr (D == FL_F64) {
        u = fl_uniform53(w[0], w[1]) + 0x1p-54;
        sincospi(2 * fl_uniform53(w[2], w[3]), &s, &k);
      } else {
        u = ((float)w[i] + 0.5f) * 0x1p-32f;
        sincospif(2 * fl_uniform24(w[i + 1]), &s, &k);
      }
      W r = std * root(-2 * fl_log(u));
      v[i] = mean + r * k;
      v[i + 1] = mean + r * s;
    }
#pragma unroll
    for (int i = 0; i < N && EXP; i++)
      v[i] = fl_exp(v[i]);
    random_put<D>(a, c, v);
  }
}

template <int D> __global__ void randn(const __grid_constant__ draw_args a) {
  normals<D, false>(a);
}

template <int D>
__global__ void log_normal(const __grid_constant__ draw_args a) {
  normals<D, true>(a);
}

/* What one or two words make by themselves. */
template <int D, class F> void each_word(const draw_args &a, F f) {
  typedef FL_W(D) W;
  const int N = COUNTERS(D) * PER(D);
  EACH(N) {
    uint32_t w[4 * COUNTERS(D)];
    W v[N];
    words(seed, offset, c, w);
#pragma unroll
    for (int i = 0; i < N; i++)
      v[i] = D == FL_F64 ? f(w[2 * i % 4], w[(2 * i + 1) % 4]) : f(w[i], 0);
    random_put<D>(a, c, v);
  }
}

template <int D>
__global__ void exponential(const __grid_constant__ draw_args a) {
  typedef FL_W(D) W;
  W scale = (W)a.width;
  each_word<D>(a, [&](uint32_t high, uint32_t low) -> W {
    return scale * (D == FL_F64 ? (W)fl_exponential_f64(high, low)
                                : (W)fl_exponential_f32(high));
  });
}

template <int D> __global__ void cauchy(const __grid_constant__ draw_args a) {
  typedef FL_W(D) W;
  each_word<D>(a, [&](uint32_t high, uint32_t low) -> W {
    double u = D == FL_F64 ? fl_inside53(high, low) : fl_inside32(high);
    return (W)(a.low + a.width * tan(FL_PI * (u - 0.5)));
  });
}

/* x scaled from [0, 2^64) to [0, range) */
inline uint64_t scale(uint32_t high, uint32_t low, uint64_t range) {
  return __umul64hi((uint64_t)high << 32 | low, range);
}

template <int D> __global__ void randint(const __grid_constant__ draw_args a) {
  EACH(4) {
    uint32_t w[4], v[4];
    FL_W(D) y[4];
    fl_philox(seed, offset + (uint64_t)c, 0, w);
    fl_philox(seed, offset + (uint64_t)c, 1, v);
#pragma unroll
    for (int i = 0; i < 4; i++)
      y[i] = (FL_W(D))(int64_t)((uint64_t)a.first + scale(w[i], v[i], a.range));
    random_put<D>(a, c, y);
  }
}

/* As many whole steps as an exponential number has. */
template <int D>
__global__ void geometric(const __grid_constant__ draw_args a) {
  EACH(4) {
    uint32_t w[4], v[4];
    double y[4];
    fl_philox(seed, offset + (uint64_t)c, 0, w);
    fl_philox(seed, offset + (uint64_t)c, 1, v);
#pragma unroll
    for (int i = 0; i < 4; i++)
      y[i] = 1 + floor(a.width * fl_exponential_f64(w[i], v[i]));
    random_put<D>(a, c, y);
  }
}

/* Values that are refused become an error of the launch, as bad positions do:
 * the host does not wait for it. */
inline void refuse(const flc_fault &f, int what, double value,
                   int64_t draws = 0) {
  fl_report(f, __double_as_longlong(value), REFUSED_CODE(what, draws));
}

template <int D>
__global__ void bernoulli(const __grid_constant__ draw_args a) {
  typedef FL_W(D) W;
  const int N = COUNTERS(D) * PER(D);
  EACH(N) {
    uint32_t w[4 * COUNTERS(D)];
    W p[N];
    random_take<D>(a, c, p);
    words(seed, offset, c, w);
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (!(p[i] >= 0 && p[i] <= 1))
        refuse(a.fault, REFUSED_PROBABILITY, (double)p[i]);
      if constexpr (D == FL_F64)
        p[i] = fl_uniform53(w[2 * i], w[2 * i + 1]) < p[i];
      else
        p[i] = fl_uniform24(w[i]) < p[i];
    }
    random_put<D>(a, c, p);
  }
}

/* By rejection: a thread for each element. */
template <int D, int WHAT, class F>
void each_element(const draw_args &a, double low, double high, double least,
                  F f) {
  uint64_t seed = number(a.seed), offset = number(a.offset);
  for (int64_t e = fl_thread(); e < a.n; e += fl_threads()) {
    double p = (double)fl_get<FL_W(D)>(((const FL_S(D) *)a.x)[e]), v = 0;
    if (p >= low && p <= high)
      v = f(seed, offset, (uint64_t)e, p);
    else
      refuse(a.fault, WHAT, p);
    v = v < least ? least : v;
    ((FL_S(D) *)a.y)[e] = fl_put<FL_S(D)>((FL_W(D))v);
  }
}
#define GREATEST(D) (D == FL_F64 ? 0x1.fffffffffffffp1023 : 0x1.fffffep127)

template <int D> __global__ void gammas(const __grid_constant__ draw_args a) {
  each_element<D, REFUSED_SHAPE>(a, D == FL_F64 ? 0x1p-1074 : 0x1p-149, GREATEST(D),
                  D == FL_F64 ? 0x1p-1022 : 0x1p-126, fl_draw_gamma);
}

template <int D> __global__ void poissons(const __grid_constant__ draw_args a) {
  each_element<D, REFUSED_RATE>(a, 0, GREATEST(D), 0, fl_draw_poisson);
}

/* A counter's words are halves of 8 elements, the lower ones first. */
template <int D> __global__ void dropout(const __grid_constant__ draw_args a) {
  FL_W(D) scale = (FL_W(D))a.width;
  EACH(8) {
    uint32_t w[4];
    FL_W(D) v[8];
    random_take<D>(a, c, v);
    fl_philox_of(FL_DROPOUT_ROUNDS, seed, offset + (uint64_t)c, 0, w);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t half = i & 1 ? w[i / 2] >> 16 : w[i / 2] & 0xffff;
      v[i] = half >= a.limit ? v[i] * scale : FL_W(D)(0);
    }
    random_put<D>(a, c, v);
  }
}

/* --- randperm ---
 * Fisher and Yates from the inside out, without its steps in a row: step i puts
 * i at place[i], where it stays until a later step k takes that place and moves
 * it to k; and again from there. Which step is next is read from the places in
 * order; such a chain has about log n links. */

template <int D>
__global__ void places(const __grid_constant__ shuffle_args a) {
  EACH(4) {
    uint32_t w[4], v[4];
    fl_philox(seed, offset + (uint64_t)c, 0, w);
    fl_philox(seed, offset + (uint64_t)c, 1, v);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int64_t e = 4 * c + i;
      if (e < a.n)
        ((FL_S(D) *)a.place)[e] = (FL_S(D))scale(w[i], v[i], (uint64_t)e + 1);
    }
  }
}

template <int D>
__global__ void groups(const __grid_constant__ shuffle_args a) {
  const FL_S(D) *sorted = (const FL_S(D) *)a.sorted;
  for (int64_t k = fl_thread(); k < a.n; k += fl_threads()) {
    a.slot[a.steps[k]] = k;
    if (k == 0 || sorted[k - 1] != sorted[k])
      a.group[sorted[k]] = k + 1;
  }
}

template <int D>
__global__ void follow(const __grid_constant__ shuffle_args a) {
  const FL_S(D) *place = (const FL_S(D) *)a.place;
  const FL_S(D) *sorted = (const FL_S(D) *)a.sorted;
  for (int64_t i = fl_thread(); i < a.n; i += fl_threads()) {
    int64_t at = place[i], k = a.slot[i] + 1; /* the next step of this place */
    while (k < a.n && sorted[k] == at) {
      at = a.steps[k]; /* which is later than all so far */
      k = a.group[at] - 1;
      if (k < 0)
        break;
    }
    fl_save(a.y, a.dtype, at, i + a.base);
  }
}

/* --- multinomial --- */

/* Sums of the threads before this one, and of all. */
inline double before_sum(double mine, double *part, double *all) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  double sum = mine;
#pragma unroll
  for (int k = 1; k < 32; k *= 2) {
    double other = __shfl_up_sync(0xffffffff, sum, k);
    sum += lane >= k ? other : 0;
  }
  __syncthreads();
  if (lane == 31)
    part[warp] = sum;
  __syncthreads();
  double before = sum - mine;
  *all = 0;
  for (int w = 0; w < warps; w++) {
    before += w < warp ? part[w] : 0;
    *all += part[w];
  }
  return before;
}

/* Running sums of a row, a block each. */
template <int T> __global__ void sums(const __grid_constant__ sample_args a) {
  const int N = 4;
  __shared__ double part[32];
  const double *p = (const double *)a.p + blockIdx.x * a.classes;
  double *to = a.sums + blockIdx.x * a.classes, carry = 0;
  int64_t some = 0;
  for (int64_t start = 0; start < a.classes; start += N * blockDim.x) {
    int64_t first = start + N * threadIdx.x;
    double v[N], mine = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
      v[j] = first + j < a.classes ? p[first + j] : 0;
      if (!(v[j] >= 0 && v[j] < INFINITY))
        refuse(a.fault, REFUSED_WEIGHT, v[j]);
      some += v[j] > 0;
      mine += v[j];
    }
    double all, before = carry + before_sum(mine, part, &all);
    carry += all;
#pragma unroll
    for (int j = 0; j < N; j++) {
      before += v[j];
      if (first + j < a.classes)
        to[first + j] = before;
    }
  }
  some = fl_block_reduce(some, fl_sum_of(), (int64_t)0);
  if (threadIdx.x == 0) {
    if (some == 0 || !(carry < INFINITY))
      refuse(a.fault, REFUSED_TOTAL, carry);
    else if (!a.replacement && a.n > some)
      refuse(a.fault, REFUSED_FEW, (double)some, a.n);
  }
}

/* Draw e: in [0, total). */
inline double drawn(const sample_args &a, int64_t e, double total) {
  uint64_t seed = number(a.seed), offset = number(a.offset);
  uint32_t high[4], low[4], h, v;
  fl_philox(seed, offset + (uint64_t)e / 4, 0, high);
  fl_philox(seed, offset + (uint64_t)e / 4, 1, low);
  int k = e & 3;
  h = k == 0 ? high[0] : k == 1 ? high[1] : k == 2 ? high[2] : high[3];
  v = k == 0 ? low[0] : k == 1 ? low[1] : k == 2 ? low[2] : low[3];
  double u = fl_uniform53(h, v) * total;
  return u < total ? u : nextafter(total, 0.0);
}

/* A few draws of a row, a block each: weights are read once, in tiles, and the
 * tile of a draw again. */
template <int D>
__global__ void __launch_bounds__(1024)
    draw(const __grid_constant__ sample_args a) {
  __shared__ double part[32], tile[SAMPLE_TILES];
  __shared__ unsigned long long found, last;
  const FL_S(D) *p = (const FL_S(D) *)a.p + blockIdx.x * a.classes;
  const int64_t side = SAMPLE_EACH * blockDim.x;
  int tiles = (int)((a.classes + side - 1) / side);
  int64_t some = 0;
  double total = 0;
  for (int t = 0; t < tiles; t++) {
    double mine = 0, v[SAMPLE_EACH], all;
#pragma unroll
    for (int j = 0; j < SAMPLE_EACH; j++) {
      int64_t c = t * side + j * blockDim.x + threadIdx.x;
      v[j] = c < a.classes ? fl_get<double>(p[c]) : 0;
    }
#pragma unroll
    for (int j = 0; j < SAMPLE_EACH; j++) {
      if (!(v[j] >= 0 && v[j] < INFINITY))
        refuse(a.fault, REFUSED_WEIGHT, v[j]);
      some += v[j] > 0;
      mine += v[j];
    }
    before_sum(mine, part, &all);
    if (threadIdx.x == 0)
      tile[t] = all;
    total += all;
  }
  some = fl_block_reduce(some, fl_sum_of(), (int64_t)0);
  if (threadIdx.x == 0) {
    if (some == 0 || !(total < INFINITY))
      refuse(a.fault, REFUSED_TOTAL, total);
    else if (!a.replacement && a.n > some)
      refuse(a.fault, REFUSED_FEW, (double)some, a.n);
  }
  for (int64_t e = 0; e < a.n; e++) {
    double u = drawn(a, blockIdx.x * a.n + e, total), all;
    int at = 0;
    for (int t = 0; t < tiles; t++) /* the last that is not empty, at most */
      if (tile[t] > 0) {
        at = t;
        if (u < tile[t])
          break;
        u -= tile[t];
      }
    int64_t first = at * side + SAMPLE_EACH * threadIdx.x;
    double v[SAMPLE_EACH], mine = 0;
#pragma unroll
    for (int j = 0; j < SAMPLE_EACH; j++) {
      v[j] = first + j < a.classes ? fl_get<double>(p[first + j]) : 0;
      mine += v[j];
    }
    if (threadIdx.x == 0) {
      found = ~0ull;
      last = 0;
    }
    double sum = before_sum(mine, part, &all);
#pragma unroll
    for (int j = 0; j < SAMPLE_EACH; j++) {
      sum += v[j];
      if (v[j] > 0)
        atomicMax(&last, (unsigned long long)(first + j));
      if (v[j] > 0 && sum > u)
        atomicMin(&found, (unsigned long long)(first + j));
    }
    __syncthreads();
    if (threadIdx.x == 0) /* none, if sums were rounded otherwise before */
      a.y[blockIdx.x * a.n + e] = (found == ~0ull ? last : found) + a.base;
    __syncthreads();
  }
}

/* By bisection of the running sums. */
template <int NONE>
__global__ void replace(const __grid_constant__ sample_args a) {
  for (int64_t e = fl_thread(); e < a.rows * a.n; e += fl_threads()) {
    const double *sums = a.sums + e / a.n * a.classes;
    double u = drawn(a, e, sums[a.classes - 1]);
    int64_t from = 0, to = a.classes - 1; /* the first sum above u */
    while (from < to) {
      int64_t mid = from + (to - from) / 2;
      if (sums[mid] > u)
        to = mid;
      else
        from = mid + 1;
    }
    a.y[e] = from + a.base;
  }
}

/* Without replacement: class k arrives after an exponential time of rate p[k],
 * and the first n are the draw (Efraimidis and Spirakis 2006). */
template <int NONE>
__global__ void race(const __grid_constant__ sample_args a) {
  uint64_t seed = number(a.seed), offset = number(a.offset);
  for (int64_t e = fl_thread(); e < a.rows * a.classes; e += fl_threads()) {
    uint32_t w[4];
    fl_philox(seed, offset, 1 + (uint64_t)e / 2, w);
    double u = e & 1 ? fl_uniform53(w[2], w[3]) : fl_uniform53(w[0], w[1]);
    double p = ((const double *)a.p)[e];
    a.sums[e] = p == 0 ? (double)INFINITY : -fl_log(u + 0x1p-54) / p;
  }
}
