/* Kernels around the libraries' factorizations: they find matrices that cannot
 * be factored, turn the libraries' results into those of the rows, and compute
 * determinants and the sums of the matrix exponential. No kernel waits for the
 * host. */
#include "device/flare.cuh"

#include "linalg.h"

#define EACH(i, n) for (int64_t i = fl_thread(); i < (n); i += fl_threads())

/* Marks matrices with an inf or NaN in what counts of them. */
template <int D>
__global__ void __launch_bounds__(256)
    survey(const __grid_constant__ matrices_args a) {
  int64_t size = a.rows * a.cols, b = blockIdx.x / a.pieces,
          piece = blockIdx.x % a.pieces;
  const FL_S(D) *x = (const FL_S(D) *)a.x + b * size;
  int strange = 0;
  for (int64_t i = piece * 256 + threadIdx.x; i < size; i += a.pieces * 256) {
    int64_t r = i / a.cols, c = i - r * a.cols;
    bool counts = a.triangle == 0 || (a.triangle > 0 ? c >= r : c <= r);
    strange |= counts && !(x[i] * 0 == 0);
  }
  if (__syncthreads_or(strange) && threadIdx.x == 0)
    a.code[b] = 1;
}

/* Replaces marked matrices by zeros: the library never reads an inf or NaN. */
template <int D>
__global__ void __launch_bounds__(256)
    blank(const __grid_constant__ matrices_args a) {
  int64_t size = a.rows * a.cols, b = blockIdx.x / a.pieces,
          piece = blockIdx.x % a.pieces;
  if (a.code[b] == 0)
    return;
  FL_S(D) *y = (FL_S(D) *)a.y + b * size;
  for (int64_t i = piece * 256 + threadIdx.x; i < size; i += a.pieces * 256)
    y[i] = 0;
}

/* Keeps a triangle of each, 0 elsewhere. */
template <int D>
__global__ void __launch_bounds__(256)
    triangle(const __grid_constant__ matrices_args a) {
  FL_S(D) *y = (FL_S(D) *)a.y;
  int64_t size = a.rows * a.cols;
  EACH(i, a.batch * size) {
    int64_t in = i % size, r = in / a.cols, c = in - r * a.cols;
    if (a.triangle > 0 ? c < r : c > r)
      y[i] = 0;
  }
}

/* Ones on the diagonal, 0 elsewhere. */
template <int D>
__global__ void __launch_bounds__(256)
    identity(const __grid_constant__ matrices_args a) {
  FL_S(D) *y = (FL_S(D) *)a.y;
  int64_t size = a.rows * a.cols;
  EACH(i, a.batch * size) {
    y[i] = i % size % (a.cols + 1) == 0;
  }
}

/* The first element of the diagonal that is NaN (of a matrix that has no code
 * yet), or that is 0, from 1: a warp for each matrix. */
template <int D, int ZERO>
__global__ void __launch_bounds__(128)
    diagonal(const __grid_constant__ matrices_args a) {
  int64_t b = fl_thread() / 32;
  if (b >= a.batch || (!ZERO && a.code[b] != 0))
    return;
  const FL_S(D) *x = (const FL_S(D) *)a.x + b * a.cols * a.cols;
  int first = 0x7fffffff;
  for (int64_t i = threadIdx.x & 31; i < a.cols; i += 32) {
    FL_S(D) d = x[i * (a.cols + 1)];
    if ((ZERO ? d == 0 : d != d) && i + 1 < first)
      first = (int)i + 1;
  }
  first = fl_warp_reduce(first, fl_min_of());
  if ((threadIdx.x & 31) == 0)
    a.code[b] = first == 0x7fffffff ? 0 : first;
}

/* A block for each LU. Exchanges are one after the other: in shared memory, by
 * one thread. */
template <int D, int ORDER>
__global__ void __launch_bounds__(128)
    lu_end(const __grid_constant__ lu_args a) {
  extern __shared__ int order[];
  int64_t n = a.n, b = blockIdx.x;
  const FL_S(D) *lu = (const FL_S(D) *)a.lu + b * n * n;
  const int64_t *far = (const int64_t *)a.pivots + b * n;
  const int32_t *near = (const int32_t *)a.pivots + b * n;
  if constexpr (ORDER) {
    int first = 0x7fffffff, nan = 0;
    for (int64_t i = threadIdx.x; i < n; i += 128) {
      order[i] = (int)i;
      if (lu[i * (n + 1)] == 0 && i + 1 < first)
        first = (int)i + 1;
    }
    if (a.strange[b])
      for (int64_t i = threadIdx.x; i < n * n; i += 128)
        nan |= lu[i] != lu[i];
    nan = __syncthreads_or(nan);
    first = fl_block_reduce(first, fl_min_of(), 0x7fffffff);
    if (threadIdx.x == 0) {
      a.code[b] = nan ? LINALG_NAN : first == 0x7fffffff ? 0 : first;
      for (int64_t i = n - 1; i >= 0; i--) {
        int64_t p = (a.wide ? far[i] : near[i]) - 1;
        int t = order[i];
        if ((uint64_t)p < (uint64_t)n) {
          order[i] = order[p];
          order[p] = t;
        }
      }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += 128)
      a.order[b * n + i] = order[i];
  } else {
    typedef FL_S(D) T;
    T product = 1, sign = 1;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 128) {
      T d = lu[i * (n + 1)];
      bool turned = (a.wide ? far[i] : near[i]) != i + 1;
      product *= turned ? -d : d;
      sign *= d == 0 ? T(0) : d != d ? d : (d < 0) != turned ? T(-1) : T(1);
      sum += log(fabs((double)d));
    }
    struct times {
      T operator()(T p, T q) const {
        return p * q;
      }
    };
    product = fl_block_reduce(a.size ? sign : product, times(), T(1));
    sum = fl_block_reduce(sum, fl_sum_of(), 0.0);
    if (threadIdx.x == 0) {
      ((T *)a.sign)[b] = product;
      if (a.size)
        ((T *)a.size)[b] = (T)sum;
    }
  }
}

/* Rows in the order that the row exchanges of LU give; NaN for matrices that
 * the code marks as not finite. */
template <int D>
__global__ void __launch_bounds__(256)
    reorder(const __grid_constant__ reorder_args a) {
  const FL_S(D) *x = (const FL_S(D) *)a.x;
  FL_S(D) *y = (FL_S(D) *)a.y;
  EACH(i, a.batch * a.n * a.k) {
    int64_t row = i / a.k, b = row / a.n, from = a.one ? 0 : b;
    int64_t r = a.order[from * a.n + (row - b * a.n)];
    y[i] = a.code[from] == LINALG_NAN ? (FL_S(D))NAN
                                      : x[(b * a.n + r) * a.k + i % a.k];
  }
}

/* Reports the first matrix with a code. One block. */
inline void report(const verdict_args &a, int64_t b, int what) {
  fl_report(a.fault, a.batch == 1 ? -1 : b, -1 - (int64_t)what);
}

template <int UNUSED>
__global__ void __launch_bounds__(256)
    verdict(const __grid_constant__ verdict_args a) {
  int64_t first = INT64_MAX;
  for (int64_t b = threadIdx.x; b < a.batch && first == INT64_MAX; b += 256)
    if ((a.code && a.code[b] > 0) || (a.strange && a.strange[b]))
      first = b;
  first = fl_block_reduce(first, fl_min_of(), (int64_t)INT64_MAX);
  if (threadIdx.x != 0 || first == INT64_MAX)
    return;
  bool strange = a.strange && a.strange[first];
  report(a, first, strange ? a.strange_kind : a.kind + 16 * a.code[first]);
}

template <int UNUSED>
__global__ void __launch_bounds__(256)
    pointers(const __grid_constant__ pointers_args a) {
  EACH(i, a.n) {
    a.p[i] = a.base + i * a.step;
  }
}

template <int D>
__global__ void __launch_bounds__(256)
    inverse(const __grid_constant__ inverse_args a) {
  typedef FL_S(D) T;
  const T *s = (const T *)a.s;
  T *v = (T *)a.v;
  EACH(i, a.batch * a.n * a.k) {
    int64_t j = i / a.n, b = j / a.k;
    v[b * a.step + i - b * a.n * a.k] *=
        s[j] > (T)a.rcond * s[b * a.k] ? 1 / s[j] : T(0);
  }
}

template <int D>
__global__ void __launch_bounds__(256)
    to_pairs(const __grid_constant__ pairs_args a) {
  typedef FL_S(D) T;
  int64_t n = a.n;
  T *y = (T *)a.y;
  EACH(at, a.batch * n * n) {
    int64_t b = at / (n * n), i = at / n % n, j = at % n;
    const T *v = (const T *)a.v + b * n * n;
    T im = ((const T *)a.w)[2 * (b * n + j) + 1];
    int64_t first = im < 0 && j > 0 ? j - 1 : j;
    T part = im != 0 && first + 1 < n ? v[(first + 1) * n + i] : T(0);
    y[2 * at] = v[first * n + i];
    y[2 * at + 1] = im < 0 ? -part : part;
  }
}

/* --- the exponential --- */

/* Where the polynomial of degree 20 is exact to the last bits of double (table
 * 3.1 of Al-Mohy and Higham 2011). */
#define THETA 1.438

/* How often each is halved: a block for each matrix; -1: not finite. */
template <int UNUSED>
__global__ void __launch_bounds__(256)
    exp_norm(const __grid_constant__ exp_args a) {
  const double *x = a.x + blockIdx.x * a.n * a.n;
  double most = 0;
  for (int64_t i = threadIdx.x / 32; i < a.n; i += 8) {
    double sum = 0;
    for (int64_t j = threadIdx.x & 31; j < a.n; j += 32)
      sum += fabs(x[i * a.n + j]);
    most = fl_max_of()(most, fl_warp_reduce(sum, fl_sum_of()));
  }
  most = fl_block_reduce(most, fl_max_of(), 0.0);
  if (threadIdx.x != 0)
    return;
  int squares = most <= 0x1p1000 ? 0 : -1;
  for (double by = most / THETA; squares >= 0 && by > 1; by *= 0.5)
    squares++;
  a.squares[blockIdx.x] = squares;
  atomicMax(&a.squares[a.batch], squares);
}

/* With q of step k: t = the terms of A^4k to A^(4k+3) over A^4k, plus u, A^4
 * times t before. */
template <int WHAT>
__global__ void __launch_bounds__(256)
    exp_sum(const __grid_constant__ exp_args a) {
  int64_t size = a.n * a.n;
  EACH(i, a.batch * size) {
    int squares = a.squares[i / size];
    bool diagonal = i % size % (a.n + 1) == 0;
    if constexpr (WHAT == LINALG_EXP_SCALE) {
      a.a[i] = squares < 0 ? 0 : ldexp(a.x[i], -squares);
    } else if constexpr (WHAT == LINALG_EXP_FIRST || WHAT == LINALG_EXP_NEXT) {
      double above = WHAT == LINALG_EXP_FIRST ? a.q[4] * a.a4[i] : a.u[i];
      a.t[i] = above + (a.q[3] * a.a3[i] + a.q[2] * a.a2[i]) +
               (a.q[1] * a.a[i] + a.q[0] * diagonal);
    } else if constexpr (WHAT == LINALG_EXP_SQUARE) {
      if (squares > a.step) /* u is t squared */
        a.t[i] = a.u[i];
    } else {
      a.y[i] = squares < 0 ? NAN : a.t[i];
    }
  }
}

/* --- QR of small matrices: a block for each, in shared memory --- */

/* Lanes take turns with a column of m: its product with v, from row j on, where
 * v has a 1; then what reflects it. */
template <class T>
void linalg_reflect(T *x, const T *v, T tau, int64_t j, int64_t m, int lane) {
  T dot = lane == 0 ? x[j] : T(0);
  for (int64_t i = j + 1 + lane; i < m; i += 32)
    dot += v[i] * x[i];
  dot = fl_warp_reduce(dot, fl_sum_of()) * tau;
  if (lane == 0)
    x[j] -= dot;
  for (int64_t i = j + 1 + lane; i < m; i += 32)
    x[i] -= dot * v[i];
  __syncwarp();
}

/* By Householder's reflections, which LAPACK chooses alike: a (m x n, column by
 * column) becomes R and the v's, q their product's first columns. */
template <int D>
__global__ void __launch_bounds__(128)
    qr_small(const __grid_constant__ qr_args args) {
  typedef FL_S(D) T;
  extern __shared__ double room[];
  int64_t m = args.m, n = args.n, wide = args.wide, k = m < n ? m : n;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  T *a = (T *)room, *q = a + m * n, *tau = q + m * wide;
  const T *x = (const T *)args.x + blockIdx.x * m * n;
  for (int64_t i = threadIdx.x; i < m * n; i += 128)
    a[i % n * m + i / n] = x[i];
  for (int64_t i = threadIdx.x; i < m * wide; i += 128)
    q[i] = i / m == i % m;
  __syncthreads();
  for (int64_t j = 0; j < k; j++) {
    T *v = a + j * m;
    if (warp == 0) {
      T most = 0, sum = 0;
      for (int64_t i = j + 1 + lane; i < m; i += 32)
        most = fl_max_of()(most, (T)fabs(v[i]));
      most = fl_warp_reduce(most, fl_max_of());
      T alpha = v[j], scale = most > fabs(alpha) ? most : (T)fabs(alpha);
      for (int64_t i = j + 1 + lane; i < m; i += 32)
        sum += v[i] / scale * (v[i] / scale);
      sum = fl_warp_reduce(sum, fl_sum_of()) + alpha / scale * (alpha / scale);
      T size = scale * sqrt(sum), beta = alpha < 0 ? size : -size;
      bool none = most == 0; /* nothing to reflect */
      for (int64_t i = j + 1 + lane; i < m && !none; i += 32)
        v[i] /= alpha - beta;
      if (lane == 0) {
        tau[j] = none ? T(0) : (beta - alpha) / beta;
        v[j] = none ? alpha : beta;
      }
    }
    __syncthreads();
    for (int64_t c = j + 1 + warp; c < n; c += 4)
      linalg_reflect(a + c * m, v, tau[j], j, m, lane);
    __syncthreads();
  }
  for (int64_t c = warp; c < wide; c += 4) /* each column by one warp */
    for (int64_t j = (c < k ? c : k - 1); j >= 0; j--)
      linalg_reflect(q + c * m, a + j * m, tau[j], j, m, lane);
  __syncthreads();
  T *y = (T *)args.q + blockIdx.x * m * wide,
    *r = (T *)args.r + blockIdx.x * wide * n;
  for (int64_t i = threadIdx.x; i < m * wide; i += 128)
    y[i] = q[i % wide * m + i / wide];
  for (int64_t i = threadIdx.x; i < wide * n; i += 128)
    r[i] = i / n <= i % n ? a[i % n * m + i / n] : T(0);
}
