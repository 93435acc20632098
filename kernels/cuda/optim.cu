/* Optimizer steps over many tensors in one launch, and the norm over many. A
 * block finds its tensor in the table among the arguments and takes a chunk of
 * it. Formulas are the CPU's. */
#include "device/early.cuh"
#include "device/flare.cuh"
#include "optim.h"

/* The parts of a chunk: where it lies in each group, how long it is. */
struct chunk {
  int tensor;
  int64_t start, n;
};

inline chunk chunk_of(const optim_args &a) {
  int low = 0, high = a.count;
  while (high - low > 1) {
    int mid = (low + high) / 2;
    *(a.first[mid] <= blockIdx.x ? &low : &high) = mid;
  }
  int64_t start = (int64_t)(blockIdx.x - a.first[low]) * OPTIM_CHUNK;
  return {low, start, min((int64_t)OPTIM_CHUNK, a.n[low] - start)};
}

/* One element: g is its gradient, s its state; all are updated. */
template <int RULE, class T> struct rule {
  T lr, decay, keep, sign, b1, c1, b2, c2, eps, momentum, damp, rate, root;
  bool nesterov, first;

  rule(const optim_recipe &r, const optim_now &now) {
    lr = (T)now.lr;
    decay = (T)r.decay;
    sign = r.maximize ? -1 : 1;
    keep = 1;
    if (RULE == OPTIM_SGD) {
      lr *= sign;
      decay *= sign;
    } else if (RULE == OPTIM_LION || r.decoupled) {
      keep = (T)(1 - now.lr * r.decay);
      decay = 0;
    }
    b1 = (T)r.b1;
    c1 = (T)(1 - r.b1);
    b2 = (T)r.b2;
    c2 = (T)(1 - r.b2);
    eps = (T)r.eps;
    momentum = (T)r.momentum;
    damp = (T)r.damp;
    rate = (T)now.rate;
    root = (T)now.root;
    nesterov = r.nesterov;
    first = r.first;
  }

  void step(T &p, T g, T (&s)[3]) const {
    if constexpr (RULE == OPTIM_SGD) {
      p -= lr * (g + decay * p);
    } else if constexpr (RULE == OPTIM_MOMENTUM) {
      T d = sign * g + decay * p;
      s[0] = first ? d : momentum * s[0] + damp * d; /* undamped at first */
      p -= lr * (nesterov ? d + momentum * s[0] : s[0]);
    } else if constexpr (RULE == OPTIM_ADAM || RULE == OPTIM_AMSGRAD) {
      T w = p * keep, d = sign * g + decay * p;
      s[0] += c1 * (d - s[0]);
      s[1] = b2 * s[1] + c2 * d * d;
      T v = s[1];
      if (RULE == OPTIM_AMSGRAD)
        v = s[2] = fl_maximum(v, s[2]);
      p = w - rate * (s[0] / (fl_sqrt(v) * root + eps));
    } else if constexpr (RULE == OPTIM_LION) {
      T u = b1 * s[0] + c1 * g;
      s[0] = b2 * s[0] + c2 * g;
      p = p * keep - lr * fl_sign(u);
    } else if constexpr (RULE == OPTIM_LERP) {
      p = lr == 1 ? g : p + lr * (g - p); /* p may be infinite */
    } else if constexpr (RULE == OPTIM_ASSIGN) {
      p = g;
    } else if constexpr (RULE == OPTIM_SCALE) {
      p *= lr;
    } else {
      T d = g + decay * p;
      squares(p, d, s);
    }
  }

  /* The rules that divide by the root of a mean (or sum) of squares. */
  void squares(T &p, T d, T (&s)[3]) const {
    const bool centered =
        RULE == OPTIM_CENTERED || RULE == OPTIM_CENTERED_MOMENTUM;
    s[0] = RULE == OPTIM_ADAGRAD ? s[0] + d * d : b1 * s[0] + c1 * d * d;
    T v = s[0];
    if (centered) {
      s[1] += c1 * (d - s[1]);
      v -= s[1] * s[1];
      v = v < 0 ? T(0) : v; /* by rounding */
    }
    T by = d / (fl_sqrt(v) + eps);
    if (RULE == OPTIM_RMSPROP_MOMENTUM)
      by = s[1] = momentum * s[1] + by;
    if (RULE == OPTIM_CENTERED_MOMENTUM)
      by = s[2] = momentum * s[2] + by;
    p -= lr * by;
  }
};

/* Groups that a rule has, and those of its state. */
constexpr int groups_of(int r) {
  return r == OPTIM_SCALE                                         ? 1
         : r == OPTIM_SGD || r == OPTIM_LERP || r == OPTIM_ASSIGN ? 2
         : r == OPTIM_AMSGRAD || r == OPTIM_CENTERED_MOMENTUM     ? 5
         : r == OPTIM_ADAM || r == OPTIM_RMSPROP_MOMENTUM || r == OPTIM_CENTERED
             ? 4
             : 3;
}

/* N elements of one group; D < 0: of a dtype known at run time. */
template <int D, int N, class T>
void optim_get(const optim_args &a, int group, const void *at, int64_t i,
               T (&v)[N]) {
  if constexpr (D < 0) {
#pragma unroll
    for (int j = 0; j < N; j++)
      v[j] = fl_load<T>(at, a.dtype[group], i + j);
  } else {
    fl_vec<FL_S(D), N> in = fl_read<FL_S(D), N>((const FL_S(D) *)at + i);
#pragma unroll
    for (int j = 0; j < N; j++)
      v[j] = fl_get<T>(in.at[j]);
  }
}

template <int D, int N, class T>
void optim_put(const optim_args &a, int group, void *at, int64_t i,
               const T (&v)[N]) {
  if constexpr (D < 0) {
#pragma unroll
    for (int j = 0; j < N; j++)
      fl_save(at, a.dtype[group], i + j, v[j]);
  } else {
    fl_vec<FL_S(D), N> out;
#pragma unroll
    for (int j = 0; j < N; j++)
      out.at[j] = fl_put<FL_S(D)>(v[j]);
    fl_write((FL_S(D) *)at + i, out);
  }
}

template <int RULE, int N, int DP, int DG, int DS, class T>
void advance(const optim_args &a, const rule<RULE, T> &r,
             void *const (&at)[OPTIM_GROUPS], int64_t i) {
  const int GROUPS = groups_of(RULE);
  T p[N] = {}, g[N] = {}, s[3][N] = {};
  if (RULE != OPTIM_ASSIGN)
    optim_get<DP>(a, 0, at[0], i, p);
  if (GROUPS > 1)
    optim_get<DG>(a, 1, at[1], i, g);
#pragma unroll
  for (int k = 2; k < GROUPS; k++)
    optim_get<DS>(a, k, at[k], i, s[k - 2]);
#pragma unroll
  for (int j = 0; j < N; j++) {
    T state[3] = {s[0][j], s[1][j], s[2][j]};
    r.step(p[j], g[j], state);
    s[0][j] = state[0];
    s[1][j] = state[1];
    s[2][j] = state[2];
  }
  optim_put<DP>(a, 0, at[0], i, p);
#pragma unroll
  for (int k = 2; k < GROUPS; k++)
    optim_put<DS>(a, k, at[k], i, s[k - 2]);
}

/* T is the type computed in: F32 or F64. */
template <int RULE, int T, int DP, int DG, int DS>
__global__ void step(const __grid_constant__ optim_args a) {
  fl_begin();
  const int GROUPS = groups_of(RULE);
  if (fl_faulty(a.fault))
    return;
  optim_now now = a.later ? *a.later : a.now;
  if (RULE == OPTIM_SCALE && now.lr == 1)
    return;
  chunk c = chunk_of(a);
  rule<RULE, FL_W(T)> r(a.recipe, now);
  void *at[OPTIM_GROUPS];
  uintptr_t odd = 0;
#pragma unroll
  for (int g = 0; g < GROUPS; g++) {
    int size = g == 0   ? sizeof(FL_S(DP < 0 ? 0 : DP))
               : g == 1 ? sizeof(FL_S(DG < 0 ? 0 : DG))
                        : sizeof(FL_S(DS < 0 ? 0 : DS));
    at[g] = a.at[c.tensor * GROUPS + g];
    odd |= (uintptr_t)at[g] & (4 * size - 1);
  }
  int64_t end = c.start + c.n, i = c.start + 4 * threadIdx.x;
  if (DP >= 0 && odd == 0)
    for (; i + 4 <= end; i += 4 * OPTIM_THREADS)
      advance<RULE, 4, DP, DG, DS>(a, r, at, i);
  else
    for (; i + 4 <= end; i += 4 * OPTIM_THREADS)
      for (int j = 0; j < 4; j++)
        advance<RULE, 1, DP, DG, DS>(a, r, at, i + j);
  for (; i < end; i++) /* the thread that has the rest */
    advance<RULE, 1, DP, DG, DS>(a, r, at, i);
}

template <int NONE>
__global__ void prepare(const __grid_constant__ optim_prepare a) {
  fl_begin();
  double lr = a.lr ? fl_load<double>(a.lr, a.lr_dtype, 0) : a.lr_value;
  double t = a.step ? fl_load<double>(a.step, a.step_dtype, 0) : a.step_value;
  *a.to = {lr, lr / (1 - pow(a.b1, t)), 1 / sqrt(1 - pow(a.b2, t))};
}

/* --- norm --- */

/* In doubles: squares of floats do not overflow them. */
template <int KIND> double add_to(double sum, double x, double p) {
  x = fabs(x);
  switch (KIND) {
  case OPTIM_COUNT:
    return sum + (x != 0);
  case OPTIM_SUM:
    return sum + x;
  case OPTIM_SQUARES:
    return sum + x * x;
  case OPTIM_MOST:
    return fl_maximum(sum, x);
  default:
    return sum + pow(x, p);
  }
}

template <int KIND> double optim_whole(double v) {
  if (KIND == OPTIM_MOST)
    return fl_block_reduce(v, fl_max_of(), 0.0);
  return fl_block_reduce(v, fl_sum_of(), 0.0);
}

template <int KIND, int D>
__global__ void norm(const __grid_constant__ optim_args a) {
  fl_begin();
  chunk c = chunk_of(a);
  const FL_S(D) *x = (const FL_S(D) *)a.at[c.tensor] + c.start;
  bool wide = ((uintptr_t)x & (4 * sizeof(*x) - 1)) == 0;
  double sum[2] = {0, 0};
  int64_t i = 4 * threadIdx.x;
#pragma unroll 4
  for (; i + 4 <= c.n; i += 4 * OPTIM_THREADS) {
    fl_vec<FL_S(D), 4> v;
    if (wide)
      v = fl_read<FL_S(D), 4>(x + i);
    else
      v = {x[i], x[i + 1], x[i + 2], x[i + 3]};
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum[j % 2] = add_to<KIND>(sum[j % 2], fl_get<double>(v.at[j]), a.p);
  }
  for (; i < c.n; i++) /* the thread that has the rest */
    sum[0] = add_to<KIND>(sum[0], fl_get<double>(x[i]), a.p);
  double all =
      KIND == OPTIM_MOST ? fl_maximum(sum[0], sum[1]) : sum[0] + sum[1];
  all = optim_whole<KIND>(all);
  if (threadIdx.x == 0)
    a.parts[blockIdx.x] = all;
}

template <int KIND>
__global__ void finish(const __grid_constant__ optim_finish a) {
  fl_begin();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
    sum = KIND == OPTIM_MOST ? fl_maximum(sum, a.parts[i]) : sum + a.parts[i];
  sum = optim_whole<KIND>(sum);
  if (threadIdx.x > 0)
    return;
  if (KIND == OPTIM_SQUARES)
    sum = sqrt(sum);
  else if (KIND == OPTIM_ANY)
    sum = pow(sum, 1 / a.p);
  fl_save(a.y, a.dtype, 0, sum);
}
