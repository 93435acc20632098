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
inline void factors(const planes_args &p, int64_t i, double a, double b,
                    double c, double m) {
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

/* Running statistics change for good: not after a fault. */
template <int WD>
__global__ void batch_forward(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread();
  if (i >= p.channels)
    return;
  double mean, var;
  if (p.training) {
    double by = p.momentum, n = p.count;
    mean = p.s1[i];
    var = p.s2[i];
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

/* With constant statistics (not training) only dy's own term is left. */
template <int WD>
__global__ void batch_backward(const __grid_constant__ planes_args p) {
  int64_t i = fl_thread();
  if (i >= p.channels)
    return;
  double rstd = number(p.rstd, i, 1), n = p.count;
  double db = p.s1[i], dw = p.s2[i] * rstd;
  double by = rstd * number(p.weight, i, 1);
  double b = p.training ? -by * dw * rstd / n : 0;
  double c = p.training ? -by * db / n : 0;
  keep(p.dw, i, dw);
  keep(p.db, i, db);
  factors(p, i, by, b, c, number(p.mean, i, 0));
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
  for (int64_t k = lane; k < p.group; k += 32) {
    int64_t i = g * p.group + k;
    double w = number(p.weight, i % p.channels, 1);
    c1 += p.s1[i] * w;
    c2 += p.s2[i] * w;
  }
  c1 = fl_warp_reduce(c1, fl_sum_of()) / n;
  c2 = fl_warp_reduce(c2, fl_sum_of()) * rstd / n;
  for (int64_t k = lane; k < p.group; k += 32) {
    int64_t i = g * p.group + k;
    factors(p, i, rstd * number(p.weight, i % p.channels, 1), -rstd * rstd * c2,
            -rstd * c1, mean);
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
