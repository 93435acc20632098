/* layer_norm and rms_norm and their gradients: lines in registers, read once;
 * lines too long for that are read twice. For the gradients of weights every
 * block sums its lines, and `weights` adds the blocks' sums. D is the dtype of
 * x and dx, R that of y and dy: D, or 16 bits where D is f32.
 *
 * A text in front of this file (norm_tail.c) has elementwise work on dx:
 *   NORM_BODY: statements that declare v<n> for every value but inputs
 *   NORM_GIVEN(F): F(value) for each input that is dx
 *   NORM_INPUTS(F): F(k, dtype, value) for each that is an element of a.in[k]
 *   NORM_RESULTS(F): F(k, dtype, value) for each element of a.out[k]
 *   NORM_SUMS(F): F(k, value) for each value that is summed over all lines */
#include "device/line.cuh"
#include "expr.cuh"
#include "norm.h"

#ifndef NORM_BODY
#define NORM_BODY
#define NORM_GIVEN(F)
#define NORM_INPUTS(F)
#define NORM_RESULTS(F)
#define NORM_SUMS(F)
#endif

/* Weights i to i + VEC - 1 of either type. */
template <int D, int VEC>
void weights_at(const void *w, int wide, int i, FL_W(D) (&to)[VEC]) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  if (wide && D != FL_F64 && D != FL_F32) {
    enum { HALF = VEC > 4 ? 4 : VEC };
#pragma unroll
    for (int k = 0; k < VEC; k += HALF) {
      fl_vec<V, HALF> v = fl_read<V, HALF>((const V *)w + i + k);
#pragma unroll
      for (int m = 0; m < HALF; m++)
        to[k + m] = v.at[m];
    }
    return;
  }
  fl_unpacked<D, VEC>::to(fl_read<S, VEC>((const S *)w + i), to);
}

/* Weights of x's dtype are asked for before the last sum is waited for. */
template <int D, int R, int VEC, int E, int BLOCK>
__global__ void __launch_bounds__(!BLOCK   ? 128
                                  : E > 16 ? 512
                                           : 1024)
    forward(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  fl_group<BLOCK> g(a.lanes);
  bool on = g.line < a.lines;
  int n = on ? (int)a.n : 0;
  int64_t at = on ? g.line * a.n : 0;
  bool early = E <= 16 && !a.wide;
  fl_line<D, VEC, E> x, w, b;
  V v[E], q = 0, rest = 0, mean = 0;
  x.load((const S *)a.x + at, n, g.lane, g.lanes);
  x.get(v);
  if (a.mean)
    mean = g.sum(fl_tree(v)) * (V)a.part;
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    V t = 0, u = 0;
#pragma unroll
    for (int k = c * VEC; k < (c + 1) * VEC; k++) {
      v[k] -= mean;
      t += v[k] * v[k];
      u += v[k];
    }
    bool within = x.place(c, g.lane, g.lanes) < n;
    q += within ? t : V(0);
    rest += within ? u : V(0);
  }
  if (a.weight && early)
    w.load((const S *)a.weight, n, g.lane, g.lanes);
  if (a.bias && early)
    b.load((const S *)a.bias, n, g.lane, g.lanes);
  /* What rounding left in the mean is large beside the spread where the values
   * are: the second sums correct both (Chan, Golub, LeVeque 1983). */
  g.sum(q, rest);
  rest = a.mean ? rest * (V)a.part : V(0);
  V var = q * (V)a.part - rest * rest;
  V rstd = 1 / fl_sqrt((var < 0 ? V(0) : var) + (V)a.eps);
  V shift = rest * rstd;
  if (on && g.lane == 0) {
    if (a.mean)
      ((V *)a.mean)[g.line] = mean + rest;
    ((V *)a.rstd)[g.line] = rstd;
  }
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    int i = x.place(c, g.lane, g.lanes);
    V by[VEC], to[VEC];
    if (i >= n)
      continue;
    if (a.weight && early)
      w.get(c, by);
    else if (a.weight)
      weights_at<D, VEC>(a.weight, a.wide, i, by);
    if (a.bias && early)
      b.get(c, to);
    else if (a.bias)
      weights_at<D, VEC>(a.bias, a.wide, i, to);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
      V h = v[c * VEC + k] * rstd - shift;
      h = a.weight ? h * by[k] : h;
      v[c * VEC + k] = a.bias ? h + to[k] : h;
    }
    fl_write<FL_S(R), VEC>((FL_S(R) *)a.y + at + i,
                           fl_packed<R, VEC>::of(v + c * VEC));
  }
}

/* Bytes of an element of the inputs before number `end` of what is behind. */
constexpr int tail_bytes(int end) {
#define NORM_BYTES(k, T, value) +(k < end ? (int)sizeof(FL_S(T)) : 0)
  return 0 NORM_INPUTS(NORM_BYTES);
}

/* Copies a piece of BYTES, on its way, to shared memory. */
template <int BYTES> void send_piece(uint32_t to, const void *from) {
  constexpr int EACH = BYTES > 16 ? 16 : BYTES;
#pragma unroll
  for (int i = 0; i < BYTES; i += EACH)
    fl_copy_part<EACH>(to + i, (const char *)from + i, EACH);
}

/* Lines of x and dy on their way: two ahead in shared memory, where every
 * thread has places of its own, or, without 16-byte accesses, in registers when
 * they are wanted. */
template <int D, int R, int VEC, int E, int THREADS> struct ahead {
  typedef FL_S(D) S;
  typedef FL_S(R) SR;
  typedef FL_W(D) V;
  enum {
    CHUNKS = E / VEC,
    SHARED = VEC > 1,
    KEEP = SHARED ? VEC : E,
    XB = VEC * sizeof(S), /* bytes of a thread's piece of x, and of dy */
    DB = VEC * sizeof(SR),
    PIECES = XB + DB + VEC * tail_bytes(NORM_MORE)
  };
  uint32_t at;
  fl_line<D, VEC, KEEP> x;
  fl_line<R, VEC, KEEP> dy;

  /* Where this thread's piece c of x lies, and of dy behind all of x. */
  static uint32_t x_place(int stage, int c) {
    return place(stage, c, 0, XB);
  }
  static uint32_t dy_place(int stage, int c) {
    return place(stage, c, XB, DB);
  }
  /* Of what has `bytes`, behind pieces of `before`. */
  static uint32_t place(int stage, int c, int before, int bytes) {
    uint32_t threads = THREADS ? THREADS : blockDim.x;
    return stage * CHUNKS * threads * PIECES + CHUNKS * threads * before +
           threadIdx.x * bytes + c * threads * bytes;
  }
  template <int T> static uint32_t tail_place(int stage, int c, int k) {
    return place(stage, c, XB + DB + VEC * tail_bytes(k),
                 VEC * sizeof(FL_S(T)));
  }
  void start() {
    at = SHARED ? fl_shared(fl_dynamic()) : 0;
  }
  static char *fl_dynamic() {
    extern __shared__ __align__(16) char memory[];
    return memory;
  }
  void send(const norm_args &a, int stage, int64_t line, int lane, int lanes) {
    if (!SHARED)
      return;
    if (line < a.lines) {
      const S *x = (const S *)a.x + line * a.n + lane * VEC;
      const SR *dy = (const SR *)a.dy + line * a.n + lane * VEC;
      int n = (int)a.n;
#pragma unroll
      for (int c = 0; c < CHUNKS; c++) {
        if ((c * lanes + lane) * VEC >= n)
          break;
        fl_copy_part<SHARED ? XB : 16>(at + x_place(stage, c),
                                       x + c * lanes * VEC, XB);
        fl_copy_part<SHARED ? DB : 16>(at + dy_place(stage, c),
                                       dy + c * lanes * VEC, DB);
#define NORM_SEND(k, T, value)                                                 \
  send_piece<VEC * sizeof(FL_S(T))>(                                           \
      at + tail_place<T>(stage, c, k),                                         \
      (const FL_S(T) *)a.in[k] + line * a.n + (lane + c * lanes) * VEC);
        NORM_INPUTS(NORM_SEND)
      }
    }
    fl_copy_commit();
  }
  void wait(const norm_args &a, int64_t line, int lane, int lanes) {
    if (SHARED) {
      fl_copy_wait<1>();
      return;
    }
    bool any = line < a.lines;
    int n = any ? (int)a.n : 0;
    int64_t first = any ? line * a.n : 0; /* loads have to read something */
    x.load((const S *)a.x + first, n, lane, lanes);
    dy.load((const SR *)a.dy + first, n, lane, lanes);
  }
  void get(int stage, int c, V (&vx)[VEC], V (&vd)[VEC]) const {
    const char *from = fl_dynamic();
    fl_unpacked<D, VEC>::to(
        SHARED ? fl_read<S, VEC>((const S *)(from + x_place(stage, c)))
               : x.at[SHARED ? 0 : c],
        vx);
    fl_unpacked<R, VEC>::to(
        SHARED ? fl_read<SR, VEC>((const SR *)(from + dy_place(stage, c)))
               : dy.at[SHARED ? 0 : c],
        vd);
  }
};

/* What is behind, for VEC elements of dx from `at` on, those of chunk c: they
 * come, and leave, in floats. */
template <int VEC, int E, class Ahead, class V, int SUMS>
void tail_of(const norm_args &a, int stage, int c, int64_t at,
             const V (&dx)[VEC], V (&sums)[SUMS][E]) {
  const char *from = Ahead::fl_dynamic();
#define NORM_READ(k, T, value)                                                 \
  float x##value[VEC];                                                         \
  fl_unpacked<T, VEC>::to(fl_read<FL_S(T), VEC>((                              \
                              const FL_S(T) *)(from +                          \
                                               Ahead::template tail_place<T>(  \
                                                   stage, c, k))),             \
                          x##value);
#define NORM_ROOM(k, T, value) float y##k[VEC];
  NORM_INPUTS(NORM_READ)
  NORM_RESULTS(NORM_ROOM)
#pragma unroll
  for (int j = 0; j < VEC; j++) {
#define NORM_GIVE(value)           const float v##value = dx[j];
#define NORM_TAKE(k, T, value)     const float v##value = x##value[j];
#define NORM_KEEP(k, T, value)     y##k[j] = v##value;
#define NORM_ADD(k, value)         sums[k][c * VEC + j] += v##value;
    NORM_GIVEN(NORM_GIVE)
    NORM_INPUTS(NORM_TAKE)
    NORM_BODY
    NORM_RESULTS(NORM_KEEP)
    NORM_SUMS(NORM_ADD)
  }
#define NORM_WRITE(k, T, value)                                                \
  fl_write<FL_S(T), VEC>((FL_S(T) *)a.out[k] + at, fl_packed<T, VEC>::of(y##k));
  NORM_RESULTS(NORM_WRITE)
}

/* Weights, or 1 where there are none. */
template <int D, int VEC>
void weights_or_one(const norm_args &a, int i, FL_W(D) (&to)[VEC]) {
#pragma unroll
  for (int k = 0; k < VEC; k++)
    to[k] = 1;
  if (a.weight)
    weights_at<D, VEC>(a.weight, a.wide, i, to);
}

/* The block's sums of one kind, which `weights` adds up. */
template <int D, int VEC, int E, int BLOCK>
void save_part(const norm_args &a, const fl_group<BLOCK> &g, int kind,
               const FL_W(D) (&t)[E]) {
  typedef FL_W(D) V;
  V *part = (V *)a.parts + ((int64_t)blockIdx.x * a.kinds + kind) * a.n;
  if (BLOCK) {
    fl_each<VEC, E>((int)a.n, g.lane, g.lanes, [&](int k) {
      part[fl_line<D, VEC, E>::place(k / VEC, g.lane, g.lanes) + k % VEC] =
          t[k];
    });
    return;
  }
  /* the groups of a block one after another */
  __shared__ V sum[32 * E];
  int turns = BLOCK ? 0 : blockDim.x / g.lanes;
  for (int turn = 0; turn < turns; turn++) {
    if ((int)threadIdx.x / g.lanes == turn)
      fl_each<VEC, E>((int)a.n, g.lane, g.lanes, [&](int k) {
        int i = fl_line<D, VEC, E>::place(k / VEC, g.lane, g.lanes) + k % VEC;
        sum[i] = t[k] + (turn ? sum[i] : V(0));
      });
    __syncthreads();
  }
  for (int i = threadIdx.x; i < a.n; i += blockDim.x)
    part[i] = sum[i];
  __syncthreads(); /* before the next kind */
}

/* The sums of what is behind. */
template <int D, int VEC, int E, int BLOCK, int SUMS, class Sums>
void save_tail(const norm_args &a, const fl_group<BLOCK> &g,
               const Sums &sums) {
#pragma unroll
  for (int k = 0; k < SUMS; k++)
    save_part<D, VEC, E, BLOCK>(a, g, 2 + k, sums[k]);
}

/* What forward saved of a line, if there is that line. */
template <int CENTRE, class V>
void read_saved(const norm_args &a, int64_t line, V &mean, V &rstd) {
  if (line >= a.lines)
    return;
  mean = CENTRE ? ((const V *)a.mean)[line] : 0;
  rstd = ((const V *)a.rstd)[line];
}

/* What rounding left out of a line's mean, times rstd; 0 where that is little
 * beside the spread. The lines of a warp are looked at together. */
template <int VEC, int E, class Ahead, int BLOCK, class V>
V line_shift(const Ahead &in, const fl_group<BLOCK> &g, int stage, int n,
             V part, V mean, V rstd) {
  bool far = fabs(mean) * rstd > V(NORM_FAR);
  if (!(BLOCK ? far : __any_sync(0xffffffff, far)))
    return 0;
  V t = 0;
#pragma unroll
  for (int c = 0; c < E / VEC; c++) {
    V vx[VEC], vd[VEC];
    if ((c * g.lanes + g.lane) * VEC >= n)
      continue;
    in.get(stage, c, vx, vd);
#pragma unroll
    for (int k = 0; k < VEC; k++)
      t += vx[k] - mean;
  }
  t = g.sum(t) * part;
  return far ? t * rstd : V(0);
}

#define NORM_ONE(k, value) +1

/* dx = rstd (g - mean(g) - h mean(g h)), g = dy w, h = (x - mean) rstd - shift;
 * without a mean (rms) h is x rstd, and the middle term goes. A group takes
 * every step-th line. What an element costs counts as much as memory:
 * multiply-adds, and as few as there can be. TAIL: with what is behind it. */
template <int D, int R, int VEC, int E, int BLOCK, int CENTRE, int TAIL>
__global__ void __launch_bounds__(BLOCK ? 512 : 128)
    backward(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  /* sizes that the compiler knows are steps in addresses, no arithmetic */
  fl_group<BLOCK> g(!BLOCK && E > 8 ? 32 : a.lanes);
  typedef ahead<D, R, VEC, E, BLOCK ? 0 : 128> Ahead;
  enum { SUMS = 0 NORM_SUMS(NORM_ONE) };
  Ahead in;
  V dw[E], db[E], sums[SUMS ? SUMS : 1][E] = {};
  int stage = 0;
#pragma unroll
  for (int k = 0; k < E; k++)
    dw[k] = db[k] = 0;
  V next_mean = 0, next_rstd = 0; /* asked for a line ahead */
  read_saved<CENTRE>(a, g.line, next_mean, next_rstd);
  in.start();
  in.send(a, 0, g.line, g.lane, g.lanes);
  in.send(a, 1, g.line + g.step, g.lane, g.lanes);
  for (int64_t line = g.line; g.left(line, a.lines); line += g.step) {
    int n = line < a.lines ? (int)a.n : 0;
    V mean = next_mean, rstd = next_rstd, shift = 0, s1 = 0, s2 = 0;
    read_saved<CENTRE>(a, line + g.step, next_mean, next_rstd);
    in.wait(a, line, g.lane, g.lanes);
    if (CENTRE)
      shift = line_shift<VEC, E, Ahead, BLOCK>(in, g, stage, n, (V)a.part, mean,
                                               rstd);
#pragma unroll
    for (int c = 0; c < E / VEC; c++) {
      int i = (c * g.lanes + g.lane) * VEC;
      if (i >= n)
        continue;
      V vx[VEC], vd[VEC], w[VEC];
      in.get(stage, c, vx, vd);
      weights_or_one<D, VEC>(a, i, w);
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        int e = c * VEC + k;
        V d = vd[k], h = CENTRE ? (vx[k] - mean) * rstd - shift : vx[k] * rstd;
        V u = d * w[k];
        if (CENTRE)
          s1 += u;
        s2 += u * h;
        dw[e] += d * h;
        if (CENTRE)
          db[e] += d;
      }
    }
    g.sum(s1, s2);
    s2 *= (V)a.part * rstd;
    s1 = CENTRE ? shift * s2 - s1 * (V)a.part * rstd : 0;
    s2 *= rstd;
#pragma unroll
    for (int c = 0; c < E / VEC; c++) {
      int i = (c * g.lanes + g.lane) * VEC;
      if (i >= n)
        continue;
      V vx[VEC], vd[VEC], w[VEC], v[VEC];
      in.get(stage, c, vx, vd);
      weights_or_one<D, VEC>(a, i, w);
#pragma unroll
      for (int k = 0; k < VEC; k++)
        v[k] = vd[k] * (w[k] * rstd) +
               (s1 - (CENTRE ? vx[k] - mean : vx[k]) * s2);
      if (!TAIL || a.y)
        fl_write<S, VEC>((S *)a.y + line * a.n + i, fl_packed<D, VEC>::of(v));
      if constexpr (TAIL)
        tail_of<VEC, E, Ahead>(a, stage, c, line * a.n + i, v, sums);
    }
    in.send(a, stage, line + 2 * g.step, g.lane, g.lanes);
    stage ^= 1;
  }
  if (a.weight)
    save_part<D, VEC, E, BLOCK>(a, g, 0, dw);
  if (a.weight && CENTRE)
    save_part<D, VEC, E, BLOCK>(a, g, 1, db);
  save_tail<D, VEC, E, BLOCK, SUMS>(a, g, sums);
}

/* dw, db and other sums: those of all parts. 32 columns a block, in double. */
template <int D>
__global__ void __launch_bounds__(1024)
    weights(const __grid_constant__ norm_args a) {
  typedef FL_W(D) V;
  __shared__ double sum[32][33];
  int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  int64_t i = (int64_t)blockIdx.x * 32 + tx;
  const norm_args::norm_sum &to = a.sum[blockIdx.y];
  const V *part = (const V *)a.parts + blockIdx.y * a.n + i;
  double s = 0;
  if (!to.to)
    return;
  if (i < a.n)
#pragma unroll 8
    for (int p = ty; p < a.n_parts; p += 32)
      s += (double)part[(int64_t)p * a.kinds * a.n];
  sum[ty][tx] = s;
  __syncthreads();
  for (int k = 16; k > 0; k /= 2) {
    if (ty < k)
      sum[ty][tx] += sum[ty + k][tx];
    __syncthreads();
  }
  if (ty > 0 || i >= a.n)
    return;
  s = sum[0][tx];
  if (to.round == FL_BF16)
    s = fl_get<float>(fl_put<bf16>((float)s));
  if (to.round == FL_F16)
    s = fl_get<float>(fl_put<f16>((float)s));
  fl_save(to.to, to.dtype, i, s);
}

/* --- long lines: block (line, chunk of 4096) --- */

#define CHUNK 4096

template <class V> V weight_of(const void *w, int wide, int dtype, int64_t i) {
  return wide ? ((const V *)w)[i] : fl_load<V>(w, dtype, i);
}

/* From a.sums: mean and variance of every line. */
template <int D, int R>
__global__ void __launch_bounds__(512)
    long_forward(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  int64_t line = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  double centre = a.sums[line], var = a.sums[a.lines + line];
  if (!a.mean) {
    var += centre * centre;
    centre = 0;
  }
  V mean = (V)centre, rstd = (V)(1 / sqrt(var + a.eps));
  V left = (V)(centre - (double)mean);
  if (chunk == 0 && threadIdx.x == 0) {
    if (a.mean)
      ((V *)a.mean)[line] = mean;
    ((V *)a.rstd)[line] = rstd;
  }
  int64_t end = (chunk + 1) * CHUNK < a.n ? (chunk + 1) * CHUNK : a.n;
#pragma unroll 4
  for (int64_t i = chunk * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
    V h = (fl_get<V>(((const S *)a.x)[line * a.n + i]) - mean - left) * rstd;
    if (a.weight)
      h *= weight_of<V>(a.weight, a.wide, D, i);
    if (a.bias)
      h += weight_of<V>(a.bias, a.wide, D, i);
    ((FL_S(R) *)a.y)[line * a.n + i] = fl_put<FL_S(R)>(h);
  }
}

/* Into a.sums: the means of g and of g h, and what rounding left out of the
 * mean. */
template <int D, int R>
__global__ void __launch_bounds__(512)
    long_sums(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  int64_t line = blockIdx.x, at = line * a.n;
  V mean = a.mean ? ((const V *)a.mean)[line] : V(0);
  double s1 = 0, s2 = 0, left = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    V u = fl_get<V>(((const FL_S(R) *)a.dy)[at + i]);
    V d = fl_get<V>(((const S *)a.x)[at + i]) - mean;
    if (a.weight)
      u *= weight_of<V>(a.weight, a.wide, D, i);
    s1 += (double)u;
    s2 += (double)(u * d);
    left += (double)d;
  }
  fl_group<true> g(0);
  g.sum(s1, s2);
  left = a.mean ? g.sum(left) / (double)a.n : 0;
  if (threadIdx.x == 0) {
    a.sums[line] = a.mean ? s1 / (double)a.n : 0;
    a.sums[a.lines + line] = (s2 - left * s1) *
                             (double)((const V *)a.rstd)[line] / (double)a.n;
    a.sums[2 * a.lines + line] = left;
  }
}

template <int D, int R>
__global__ void __launch_bounds__(512)
    long_backward(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  int64_t line = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  V mean = a.mean ? ((const V *)a.mean)[line] : V(0);
  V rstd = ((const V *)a.rstd)[line];
  V s1 = (V)a.sums[line], s2 = (V)a.sums[a.lines + line] * rstd;
  V left = (V)a.sums[2 * a.lines + line];
  int64_t end = (chunk + 1) * CHUNK < a.n ? (chunk + 1) * CHUNK : a.n;
#pragma unroll 4
  for (int64_t i = chunk * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
    V u = fl_get<V>(((const FL_S(R) *)a.dy)[line * a.n + i]);
    V d = fl_get<V>(((const S *)a.x)[line * a.n + i]) - mean - left;
    if (a.weight)
      u *= weight_of<V>(a.weight, a.wide, D, i);
    ((S *)a.y)[line * a.n + i] = fl_put<S>(rstd * (u - s1 - d * s2));
  }
}

/* dw and db of a.piece lines. */
template <int D, int R>
__global__ void __launch_bounds__(256)
    long_weights(const __grid_constant__ norm_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) V;
  int64_t i = fl_thread(), line = blockIdx.y * a.piece;
  int64_t end = line + a.piece < a.lines ? line + a.piece : a.lines;
  if (i >= a.n)
    return;
  V dw = 0, db = 0;
#pragma unroll 4
  for (; line < end; line++) {
    V d = fl_get<V>(((const FL_S(R) *)a.dy)[line * a.n + i]);
    V x = fl_get<V>(((const S *)a.x)[line * a.n + i]);
    V mean = a.mean ? ((const V *)a.mean)[line] : V(0);
    V left = (V)a.sums[2 * a.lines + line];
    dw += d * ((x - mean - left) * ((const V *)a.rstd)[line]);
    db += d;
  }
  V *part = (V *)a.parts + (int64_t)blockIdx.y * 2 * a.n;
  part[i] = dw;
  part[a.n + i] = db;
}
