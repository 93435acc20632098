/* group_norm and batch_norm, apart from their sums, which reduce.cu computes:
 * the factors of every channel or plane, and the pass that applies them. */
#include "device/line.cuh"
#include "batch_norm.h"

inline double number(const plane_numbers &v, int64_t i, double otherwise) {
  return v.data ? fl_load<double>(v.data, v.dtype, i * v.stride) : otherwise;
}
inline void keep(const plane_numbers &v, int64_t i, double w) {
  if (v.data)
    fl_save(v.data, v.dtype, i * v.stride, w);
}
/* For (x - m) a + b, or dy a + (x - m) b + c: the last term has what rounding
 * leaves out of m. */
inline void factors(const planes_args &p, int64_t i, double a, double b,
                    double c, double m) {
  double rounding = p.wide == FL_F32 ? (double)(float)m - m : 0;
  if (p.dy)
    c += rounding * b;
  else
    b += rounding * a;
  fl_save(p.a, p.wide, i, a);
  fl_save(p.b, p.wide, i, b);
  fl_save(p.c, p.wide, i, c);
  fl_save(p.m, p.wide, i, m);
}

/* y = (x - m) a + b, or dx = dy a + ((x - m) b + c). VEC adjacent elements of
 * the whole tensor a turn, over planes of any size. */
template <int D, int VEC, int BACK>
__global__ void __launch_bounds__(256)
    apply(const __grid_constant__ planes_args p) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  const V *fa = (const V *)p.a, *fb = (const V *)p.b;
  const V *fc = (const V *)p.c, *fm = (const V *)p.m;
  for (int64_t i = fl_thread() * VEC; i < p.total; i += fl_threads() * VEC) {
    fl_vec<S, VEC> x = fl_read<S, VEC>((const S *)p.x + i), dy = x;
    if (BACK)
      dy = fl_read<S, VEC>((const S *)p.dy + i);
    int64_t at, k;
    fl_quotient(fl_quotient(i, p.size, &at), p.factors, &k);
    V v[VEC], a = fa[k], b = fb[k], m = fm[k], c = BACK ? fc[k] : V(0);
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      if (at == p.size) {
        at = 0;
        k = k + 1 == p.factors ? 0 : k + 1;
        a = fa[k];
        b = fb[k];
        m = fm[k];
        c = BACK ? fc[k] : V(0);
      }
      at++;
      V d = fl_get<V>(x.at[e]) - m;
      v[e] = BACK ? fl_get<V>(dy.at[e]) * a + (d * b + c) : d * a + b;
    }
    fl_write<S, VEC>((S *)p.y + i, fl_packed<D, VEC>::of(v));
  }
}

/* --- batch_norm: a thread for each channel --- */

/* Of channel i, from its mean and variance if it trains. Running statistics
 * change for good: not after a fault. */
inline void forward_channel(const planes_args &p, int64_t i, double mean,
                            double var) {
  if (p.training) {
    double by = p.momentum, n = p.count;
    if (n > 0 && !fl_faulty(p.fault)) {
      double more = n > 1 ? n / (n - 1) : 1;
      double old_mean = number(p.running_mean, i, 0);
      double old_var = number(p.running_var, i, 0);
      keep(p.running_mean, i, (1 - by) * old_mean + by * mean);
      keep(p.running_var, i, (1 - by) * old_var + by * (var * more));
    }
  } else {
    mean = number(p.running_mean, i, 0);
    var = number(p.running_var, i, 0);
  }
  double rstd = 1 / sqrt(var + p.eps);
  keep(p.mean, i, mean);
  keep(p.rstd, i, rstd);
  factors(p, i, rstd * number(p.weight, i, 1), number(p.bias, i, 0), 0, mean);
}

template <int WD>
__global__ void batch_forward(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread();
  if (i < p.channels)
    forward_channel(p, i, p.training ? p.s1[i] : 0, p.training ? p.s2[i] : 0);
}

/* What rounding left out of the mean of n elements, where that counts: rows of
 * `each` elements, `step` apart. For a warp. */
inline double mean_left(const planes_args &p, double mean, double rstd,
                        int64_t first, int64_t n, int64_t each, int64_t step) {
  double s = 0;
  if (!(fabs(mean) * rstd > PLANES_FAR))
    return 0;
#pragma unroll 4
  for (int64_t e = threadIdx.x & 31; e < n; e += 32)
    s += fl_load<double>(p.x, p.type, first + e / each * step + e % each) -
         mean;
  return fl_warp_reduce(s, fl_sum_of()) / (double)n;
}

/* From the sums of dy and dy (x - mean). With constant statistics (not
 * training) only dy's own term is left. For a warp. */
inline void backward_channel(const planes_args &p, int64_t i, double db,
                             double products) {
  double rstd = number(p.rstd, i, 1), mean = number(p.mean, i, 0);
  double left = 0, n = p.count;
  if (p.training)
    left = mean_left(p, mean, rstd, i * p.size, p.samples * p.size, p.size,
                     p.channels * p.size);
  if ((threadIdx.x & 31) != 0)
    return;
  double dw = (products - left * db) * rstd;
  double by = rstd * number(p.weight, i, 1);
  double b = p.training ? -by * dw * rstd / n : 0;
  double c = p.training ? -by * db / n : 0;
  keep(p.dw, i, dw);
  keep(p.db, i, db);
  factors(p, i, by, b, c, mean + left);
}

template <int WD>
__global__ void batch_backward(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread() / 32;
  if (i < p.channels)
    backward_channel(p, i, p.s1[i], p.s2[i]);
}

/* --- batch_norm, channels last --- */

/* What a thread has: VEC channels of the rows `row`, row + step ... below end. */
struct last_place {
  int64_t channel, row, end;
  int step;
  last_place(const planes_args &p, int vec) {
    int lane = threadIdx.x % p.lanes;
    step = blockDim.x / p.lanes;
    channel = ((int64_t)blockIdx.x * p.lanes + lane) * vec;
    row = blockIdx.y * p.each + threadIdx.x / p.lanes;
    end = min((int64_t)(blockIdx.y + 1) * p.each, p.samples);
    if (channel >= p.channels)
      end = 0; /* nothing */
  }
};

/* n values with this mean and sum of squared deviations join the first. */
template <class V>
inline void last_join(int &n, V &mean, V &m2, int more, V mean2, V m22) {
  if (more == 0)
    return;
  V all = V(n + more), d = mean2 - mean;
  mean += d * (V(more) / all);
  m2 += m22 + d * d * (V(n) * V(more) / all);
  n += more;
}

template <class S, class V, int VEC>
void read_channels(const S *x, V (&to)[VEC]) {
  fl_vec<S, VEC> v = fl_read<S, VEC>(x);
#pragma unroll
  for (int i = 0; i < VEC; i++)
    to[i] = fl_get<V>(v.at[i]);
}

/* Means and squared deviations of a piece's rows, as differences from the first
 * row, which lose no digits where all is far from 0. Four rows at a time are in
 * flight; threads of the same channels then join theirs in a tree. */
template <int D, int VEC>
__global__ void __launch_bounds__(256)
    last_moments(const __grid_constant__ planes_args p) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  __shared__ V means[VEC * 256], squares[VEC * 256];
  __shared__ int counts[256];
  last_place at(p, VEC);
  const S *x = (const S *)p.x + at.channel;
  V mean[VEC] = {}, m2[VEC] = {}, origin[VEC] = {};
  int n = 0;
  int64_t r = at.row;
  if (r < at.end)
    read_channels(x, origin);
  for (; r + 3 * at.step < at.end; r += 4 * at.step) {
    fl_vec<S, VEC> v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      v[k] = fl_read<S, VEC>(x + (r + k * at.step) * p.channels);
    V by = V(4) / V(n + 4), both = V(n) * by;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      V e[4], here = 0, off = 0;
#pragma unroll
      for (int k = 0; k < 4; k++)
        here += e[k] = fl_get<V>(v[k].at[i]) - origin[i];
      here *= V(0.25);
#pragma unroll
      for (int k = 0; k < 4; k++)
        off += (e[k] - here) * (e[k] - here);
      V d = here - mean[i];
      mean[i] += d * by;
      m2[i] += off + d * d * both;
    }
    n += 4;
  }
  for (; r < at.end; r += at.step) {
    fl_vec<S, VEC> v = fl_read<S, VEC>(x + r * p.channels);
    V by = V(1) / V(++n);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
      V e = fl_get<V>(v.at[i]) - origin[i], d = e - mean[i];
      mean[i] += d * by;
      m2[i] += d * (e - mean[i]);
    }
  }
  int me = threadIdx.x;
  counts[me] = n;
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    means[i * 256 + me] = mean[i];
    squares[i * 256 + me] = m2[i];
  }
  for (int half = blockDim.x / 2; half >= p.lanes; half /= 2) {
    __syncthreads();
    if (me < half) {
      int all = n;
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        all = n;
        last_join(all, mean[i], m2[i], counts[me + half],
                  means[i * 256 + me + half], squares[i * 256 + me + half]);
        means[i * 256 + me] = mean[i];
        squares[i * 256 + me] = m2[i];
      }
      counts[me] = n = all;
    }
  }
  if (me >= p.lanes || at.channel >= p.channels)
    return;
  V *to = (V *)p.part + blockIdx.y * 2 * p.channels + at.channel;
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    to[i] = mean[i];
    to[p.channels + i] = m2[i];
  }
}

/* Sums of dy and of dy (x - mean) of a piece's rows. */
template <int D, int VEC>
__global__ void __launch_bounds__(256)
    last_sums(const __grid_constant__ planes_args p) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  __shared__ V first[VEC * 256], second[VEC * 256];
  last_place at(p, VEC);
  const S *x = (const S *)p.x + at.channel, *dy = (const S *)p.dy + at.channel;
  V s1[VEC] = {}, s2[VEC] = {}, m[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++)
    m[i] = at.channel < p.channels ? V(number(p.mean, at.channel + i, 0)) : V(0);
  for (int64_t r = at.row; r < at.end; r += 4 * at.step) {
    fl_vec<S, VEC> a[4], b[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (r + k * at.step < at.end) {
        a[k] = fl_read<S, VEC>(dy + (r + k * at.step) * p.channels);
        b[k] = fl_read<S, VEC>(x + (r + k * at.step) * p.channels);
      }
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (r + k * at.step < at.end) {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
          V d = fl_get<V>(a[k].at[i]);
          s1[i] += d;
          s2[i] += d * (fl_get<V>(b[k].at[i]) - m[i]);
        }
      }
  }
  int me = threadIdx.x;
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    first[i * 256 + me] = s1[i];
    second[i * 256 + me] = s2[i];
  }
  for (int half = blockDim.x / 2; half >= p.lanes; half /= 2) {
    __syncthreads();
    if (me < half) {
#pragma unroll
      for (int i = 0; i < VEC; i++) {
        first[i * 256 + me] = s1[i] += first[i * 256 + me + half];
        second[i * 256 + me] = s2[i] += second[i * 256 + me + half];
      }
    }
  }
  if (me >= p.lanes || at.channel >= p.channels)
    return;
  V *to = (V *)p.part + blockIdx.y * 2 * p.channels + at.channel;
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    to[i] = s1[i];
    to[p.channels + i] = s2[i];
  }
}

/* A warp for each channel puts its pieces together. WD: what they are. */
template <int WD>
__global__ void last_forward(const __grid_constant__ planes_args p) {
  typedef FL_W(WD) V;
  int64_t i = fl_thread() / 32;
  const V *part = (const V *)p.part + i;
  if (i >= p.channels)
    return;
  double mean = 0, m2 = 0;
  for (int64_t k = threadIdx.x & 31; k < p.pieces; k += 32) {
    int64_t n = min(p.each, p.samples - k * p.each);
    mean += (double)n * (double)part[2 * k * p.channels];
  }
  mean = fl_warp_reduce(mean, fl_sum_of()) / p.count;
  for (int64_t k = threadIdx.x & 31; k < p.pieces; k += 32) {
    int64_t n = min(p.each, p.samples - k * p.each);
    double d = (double)part[2 * k * p.channels] - mean;
    m2 += (double)part[(2 * k + 1) * p.channels] + (double)n * d * d;
  }
  m2 = fl_warp_reduce(m2, fl_sum_of());
  if ((threadIdx.x & 31) == 0)
    forward_channel(p, i,
                    mean + (p.total ? fl_load<double>(p.x, p.type, i) : 0),
                    m2 / p.count);
}

template <int WD>
__global__ void last_backward(const __grid_constant__ planes_args p) {
  typedef FL_W(WD) V;
  int64_t i = fl_thread() / 32;
  const V *part = (const V *)p.part + i;
  if (i >= p.channels)
    return;
  double s1 = 0, s2 = 0;
  for (int64_t k = threadIdx.x & 31; k < p.pieces; k += 32) {
    s1 += (double)part[2 * k * p.channels];
    s2 += (double)part[(2 * k + 1) * p.channels];
  }
  s1 = fl_warp_reduce(s1, fl_sum_of());
  s2 = fl_warp_reduce(s2, fl_sum_of());
  backward_channel(p, i, s1, s2);
}

/* As apply, with the factors of a thread's channels in registers. */
template <int D, int VEC, int BACK>
__global__ void __launch_bounds__(256)
    last_apply(const __grid_constant__ planes_args p) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  last_place at(p, VEC);
  if (at.row >= at.end)
    return;
  V a[VEC], b[VEC], c[VEC], m[VEC];
#pragma unroll
  for (int i = 0; i < VEC; i++) {
    a[i] = ((const V *)p.a)[at.channel + i];
    b[i] = ((const V *)p.b)[at.channel + i];
    c[i] = BACK ? ((const V *)p.c)[at.channel + i] : V(0);
    m[i] = ((const V *)p.m)[at.channel + i];
  }
  for (int64_t r = at.row; r < at.end; r += 4 * at.step) {
    fl_vec<S, VEC> x[4], dy[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (r + k * at.step < at.end) {
        int64_t e = (r + k * at.step) * p.channels + at.channel;
        x[k] = fl_read<S, VEC>((const S *)p.x + e);
        if (BACK)
          dy[k] = fl_read<S, VEC>((const S *)p.dy + e);
      }
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (r + k * at.step < at.end) {
        V v[VEC];
#pragma unroll
        for (int i = 0; i < VEC; i++) {
          V d = fl_get<V>(x[k].at[i]) - m[i];
          v[i] = BACK ? fl_get<V>(dy[k].at[i]) * a[i] + (d * b[i] + c[i])
                      : d * a[i] + b[i];
        }
        fl_write<S, VEC>((S *)p.y + (r + k * at.step) * p.channels + at.channel,
                         fl_packed<D, VEC>::of(v));
      }
  }
}

/* --- group_norm --- */

/* A thread for each plane. */
template <int WD>
__global__ void group_forward(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread();
  if (i >= p.samples * p.channels)
    return;
  int64_t g = i / p.group, channel = i % p.channels;
  double mean = p.s1[g], rstd = 1 / sqrt(p.s2[g] + p.eps);
  if (i % p.group == 0) {
    keep(p.mean, g, mean);
    keep(p.rstd, g, rstd);
  }
  factors(p, i, rstd * number(p.weight, channel, 1), number(p.bias, channel, 0),
          0, mean);
}

/* A warp for each group of a sample. */
template <int WD>
__global__ void group_backward(const __grid_constant__ planes_args p) {
  int64_t g = fl_thread() / 32, groups = p.samples * p.channels / p.group;
  int lane = threadIdx.x & 31;
  if (g >= groups)
    return;
  double c1 = 0, c2 = 0, n = (double)(p.group * p.size);
  double rstd = number(p.rstd, g, 1), mean = number(p.mean, g, 0);
  int64_t each = p.group * p.size;
  double left = mean_left(p, mean, rstd, g * each, each, each, 0);
  for (int64_t k = lane; k < p.group; k += 32) {
    int64_t i = g * p.group + k;
    double w = number(p.weight, i % p.channels, 1);
    p.s2[i] -= left * p.s1[i];
    c1 += p.s1[i] * w;
    c2 += p.s2[i] * w;
  }
  c1 = fl_warp_reduce(c1, fl_sum_of()) / n;
  c2 = fl_warp_reduce(c2, fl_sum_of()) * rstd / n;
  for (int64_t k = lane; k < p.group; k += 32) {
    int64_t i = g * p.group + k;
    factors(p, i, rstd * number(p.weight, i % p.channels, 1), -rstd * rstd * c2,
            -rstd * c1, mean + left);
  }
}

/* dw and db: a warp for each channel, over samples. */
template <int WD>
__global__ void group_weights(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread() / 32;
  int lane = threadIdx.x & 31;
  if (i >= p.channels)
    return;
  double dw = 0, db = 0;
  for (int64_t k = lane; k < p.samples; k += 32) {
    int64_t at = k * p.channels + i;
    dw += p.s2[at] * number(p.rstd, at / p.group, 1);
    db += p.s1[at];
  }
  dw = fl_warp_reduce(dw, fl_sum_of());
  db = fl_warp_reduce(db, fl_sum_of());
  if (lane == 0) {
    keep(p.dw, i, dw);
    keep(p.db, i, db);
  }
}
