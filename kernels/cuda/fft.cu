/* Parts of the Fourier rows that cuFFT does not compute: scales, the removal of
 * what does not count in a half spectrum, and transforms of short lines. */
#include "device/divisor.cuh"

#include "fft.h"

#define EACH(i, n) for (int64_t i = fl_thread(); i < (n); i += fl_threads())

template <int D, int N>
__global__ void __launch_bounds__(256)
    scale(const __grid_constant__ fft_args a) {
  typedef FL_S(D) T;
  EACH(i, a.n) {
    fl_vec<T, N> v = fl_read<T, N>((T *)a.y + i * N);
#pragma unroll
    for (int k = 0; k < N; k++)
      v.at[k] *= (T)a.scale;
    fl_write<T, N>((T *)a.y + i * N, v);
  }
}

/* A scaled copy that the library may overwrite. The first element of a line,
 * and with an even length the last, keep only the part that becomes real along
 * the other dims: the mean of the element and the conjugate of its mirror
 * image. */
template <int D>
__global__ void __launch_bounds__(256)
    half(const __grid_constant__ fft_args a) {
  typedef FL_S(D) T;
  const T *x = (const T *)a.x;
  fl_vec<T, 2> *y = (fl_vec<T, 2> *)a.y;
  T by = (T)a.scale;
  EACH(i, a.n) {
    int64_t rest, line, plane;
    fl_split(i, a.inner, &rest);
    int64_t k = fl_split(rest, a.size, &line);
    fl_vec<T, 2> v = fl_read<T, 2>(x + 2 * i);
    if (k == 0 || 2 * k == a.whole) {
      int64_t k1 = fl_split(line, a.plane[1], &plane),
              k0 = fl_split(plane, a.plane[0], &rest);
      int64_t by1 = (k1 ? a.plane[1].by - k1 : 0) - k1,
              by0 = (k0 ? a.plane[0].by - k0 : 0) - k0;
      int64_t mirror = i + (by0 * a.plane[1].by + by1) * a.size.by * a.inner.by;
      fl_vec<T, 2> m = fl_read<T, 2>(x + 2 * mirror);
      v.at[0] = (v.at[0] + m.at[0]) / 2;
      v.at[1] = mirror == i ? T(0) : (v.at[1] - m.at[1]) / 2;
    }
    y[i] = {v.at[0] * by, v.at[1] * by};
  }
}

/* --- short lines ---
 * A block has some of them in shared memory, element j of line b at j * pitch +
 * b, and does the passes of kernels/cpu/fft_typed.c in their order of
 * operations. Products are rounded before they are added: in f32 the results are those of a
 * CPU without fused multiplication and addition, to the bit. */

inline float product(float a, float b) {
  return __fmul_rn(a, b);
}
inline double product(double a, double b) {
  return __dmul_rn(a, b);
}

template <class T> using pair = fl_vec<T, 2>;
template <class T> pair<T> operator+(pair<T> a, pair<T> b) {
  return {a.at[0] + b.at[0], a.at[1] + b.at[1]};
}
template <class T> pair<T> operator-(pair<T> a, pair<T> b) {
  return {a.at[0] - b.at[0], a.at[1] - b.at[1]};
}
template <class T> pair<T> operator*(pair<T> a, pair<T> w) {
  return {product(a.at[0], w.at[0]) - product(a.at[1], w.at[1]),
          product(a.at[0], w.at[1]) + product(a.at[1], w.at[0])};
}

inline int over(int n, const flc_divisor &d) {
  return (int)((__umulhi((uint32_t)n, d.magic) + (uint32_t)n) >> d.shift);
}

/* What a butterfly reads is `far` apart, what it leaves `next`. Turned by the
 * root's powers 0, `turn`, 2 `turn`, 3 `turn`. */
template <int R, class T>
void butterfly(const pair<T> *from, int far, const pair<T> *w, int turn,
               pair<T> *to, int next) {
  if constexpr (R == 2) {
    pair<T> p = from[0], q = from[far];
    to[0] = p + q;
    to[next] = (p - q) * w[turn];
  } else {
    pair<T> p = from[0], q = from[far], r = from[2 * far], s = from[3 * far];
    pair<T> d = {q.at[1] - s.at[1], s.at[0] - q.at[0]};
    to[0] = (p + r) + (q + s);
    to[next] = ((p - r) + d) * w[turn];
    to[2 * next] = ((p + r) - (q + s)) * w[2 * turn];
    to[3 * next] = ((p - r) - d) * w[3 * turn];
  }
}

/* Butterfly u of m = n / r reads every m-th element from u on, and leaves every
 * span-th: t and `at` are u's place in its span and where that begins. */
template <int R, class T>
void pass_of(const fft_short_args &a, const flc_divisor &span,
             const pair<T> *root, const pair<T> *x, pair<T> *y) {
  int m = a.n / R, last = (1 << a.log) - 1, pitch = last + 2;
  for (int i = threadIdx.x; i < m << a.log; i += blockDim.x) {
    int b = i & last, u = i >> a.log, at = over(u, span) * (int)span.by;
    butterfly<R>(x + u * pitch + b, m * pitch, root, at * a.by,
                 y + (u + (R - 1) * at) * pitch + b, (int)span.by * pitch);
  }
}

/* Of any factor: a thread for each result. */
template <class T>
void pass_any(const fft_short_args &a, int r, const flc_divisor &span,
              const pair<T> *root, const pair<T> *x, pair<T> *y) {
  int m = a.n / r, last = (1 << a.log) - 1, pitch = last + 2;
  for (int i = threadIdx.x; i < a.n << a.log; i += blockDim.x) {
    int b = i & last, k = i >> a.log, j = k / m, u = k - j * m;
    int at = over(u, span) * (int)span.by;
    const pair<T> *from = x + u * pitch + b;
    pair<T> sum = from[0];
    for (int k = 1, turn = j; k < r; k++) {
      sum = sum + from[k * m * pitch] * root[turn * m * a.by];
      turn += j;
      turn -= turn < r ? 0 : r;
    }
    y[(u + (r - 1) * at + j * (int)span.by) * pitch + b] =
        sum * root[j * at * a.by];
  }
}

/* Lines that a block has at a time. `base` is where the memory begins that the
 * first of them shares with others side by side, in lines, and `place` its
 * place there. */
struct tile {
  int64_t base;
  int place, lines;
};

/* Where element k of a line of `size` lies. */
inline int64_t where(const fft_short_args &a, const tile &t, int line, int k,
                     int size) {
  int p = t.place + line, outer = over(p, a.inner);
  return t.base * size + (outer * (size - 1) + k) * a.inner.by + p;
}

/* HALF_OF and WHOLE_OF of fft_typed.c: u and its mirror image v, w the root. */
template <class T> pair<T> half_of(pair<T> u, pair<T> v, pair<T> w) {
  pair<T> e = {(u.at[0] + v.at[0]) / 2, (u.at[1] - v.at[1]) / 2};
  pair<T> d = {(u.at[1] + v.at[1]) / 2, (v.at[0] - u.at[0]) / 2};
  return e + d * w;
}
template <class T> pair<T> whole_of(pair<T> u, pair<T> v, pair<T> w) {
  pair<T> d = {u.at[0] - v.at[0], u.at[1] + v.at[1]};
  return {u.at[1] - v.at[1] +
              (product(d.at[0], w.at[0]) + product(d.at[1], w.at[1])),
          u.at[0] + v.at[0] -
              (product(d.at[1], w.at[0]) - product(d.at[0], w.at[1]))};
}

/* Element k of what is transformed: a pair, or two real numbers, or what a half
 * spectrum becomes. */
template <int KIND, class T>
pair<T> taken(const fft_short_args &a, const pair<T> *root, const tile &t,
              int line, int k) {
  const T *x = (const T *)a.x;
  if constexpr (KIND == FFT_PAIRS) {
    pair<T> v = fl_read<T, 2>(x + 2 * where(a, t, line, k, a.n));
    return a.inverse ? pair<T>{v.at[1], v.at[0]} : v;
  } else if constexpr (KIND == FFT_REAL) {
    x += where(a, t, line, a.by * k, a.by * a.n);
    return {x[0], a.half ? x[a.inner.by] : T(0)};
  } else {
    int size = a.by * a.n / 2 + 1, other = a.n - k;
    int near = a.half || k < other ? k : other;
    pair<T> u = fl_read<T, 2>(x + 2 * where(a, t, line, near, size));
    u.at[1] = k ? u.at[1] : T(0);
    if (!a.half)
      return {near < k ? -u.at[1] : u.at[1], u.at[0]};
    pair<T> v = fl_read<T, 2>(x + 2 * where(a, t, line, other, size));
    v.at[1] = k ? v.at[1] : T(0);
    return whole_of(u, v, root[k]);
  }
}

/* Of the line's transform z to element k of the result. */
template <int KIND, class T>
void fft_left(const fft_short_args &a, const pair<T> *root, const tile &t, int line,
          int k, const pair<T> *z, int pitch) {
  T *y = (T *)a.y, by = (T)a.scale;
  pair<T> u = z[(k < a.n ? k : 0) * pitch];
  if constexpr (KIND == FFT_HALF) {
    y += where(a, t, line, a.by * k, a.by * a.n);
    y[0] = u.at[1] * by;
    if (a.half)
      y[a.inner.by] = u.at[0] * by;
    return;
  }
  if (KIND == FFT_PAIRS && a.inverse)
    u = {u.at[1], u.at[0]};
  if (KIND == FFT_REAL && a.half) {
    pair<T> v = z[(k ? a.n - k : 0) * pitch];
    u = half_of(u, v, root[k]);
    u.at[1] = k == 0 || k == a.n ? T(0) : u.at[1];
  }
  fl_write<T, 2>(y + 2 * where(a, t, line, k, (int)a.out.by),
                 {u.at[0] * by, u.at[1] * by});
}

/* Line and element of the i-th of all that go in, or come out. */
inline int line_of(const fft_short_args &a, int i, const flc_divisor &size,
                   int *k) {
  int along = over(i, size), last = (1 << a.log) - 1;
  *k = a.down ? i >> a.log : i - along * (int)size.by;
  return a.down ? i & last : along;
}

#define ABREAST 4 /* elements that a thread waits for at once */

template <int D, int KIND>
__global__ void __launch_bounds__(256)
    few(const __grid_constant__ fft_short_args a) {
  typedef FL_S(D) T;
  __shared__ pair<T> root[FFT_SHORT],
      room[2][FFT_ROOM / sizeof(pair<T>) + FFT_SHORT];
  const int wide = 1 << a.log, pitch = wide + 1, step = blockDim.x;
  const int in = a.n << a.log, out = (int)a.out.by << a.log;
  for (int k = threadIdx.x; k < a.n * a.by; k += step)
    root[k] = {(T)a.root[2 * k], (T)a.root[2 * k + 1]};
  for (int64_t first = (int64_t)blockIdx.x << a.log; first < a.lines;
       first += (int64_t)gridDim.x << a.log) {
    tile t;
    t.lines = a.lines - first < wide ? (int)(a.lines - first) : wide;
    t.place = (int)fl_split(first, a.inner, &t.base);
    t.base *= a.inner.by;
    pair<T> *x = room[0], *y = room[1], v[ABREAST];
    int line, k;
    __syncthreads();
    /* the last one again rather than none: so nothing waits for a branch */
    for (int begin = threadIdx.x; begin < in; begin += ABREAST * step) {
#pragma unroll
      for (int q = 0; q < ABREAST; q++) {
        line = line_of(a, min(begin + q * step, in - 1), a.in, &k);
        v[q] = taken<KIND, T>(a, root, t, min(line, t.lines - 1), k);
      }
#pragma unroll
      for (int q = 0; q < ABREAST; q++) {
        line = line_of(a, min(begin + q * step, in - 1), a.in, &k);
        x[k * pitch + line] = v[q];
      }
    }
    for (int f = 0; f < a.n_factors; f++) {
      __syncthreads();
      if (a.factor[f] == 4)
        pass_of<4>(a, a.span[f], root, x, y);
      else if (a.factor[f] == 2)
        pass_of<2>(a, a.span[f], root, x, y);
      else
        pass_any(a, a.factor[f], a.span[f], root, x, y);
      pair<T> *swap = x;
      x = y;
      y = swap;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < out; i += step) {
      line = line_of(a, i, a.out, &k);
      if (line < t.lines)
        fft_left<KIND, T>(a, root, t, line, k, x + line, pitch);
    }
  }
}

/* --- short lines, many of them ---
 * A thread has a whole line of a power of two in its registers, and the same
 * operations. Lines that follow each other come and go through memory that a
 * warp shares, lines side by side directly. */

/* The pass of span SPAN and those after it, in x. */
template <int N, int SPAN, int BY, class T>
void passes_from(const pair<T> *root, pair<T> *x) {
  if constexpr (SPAN < N) {
    constexpr int R = N / SPAN % 4 ? 2 : 4;
    pair<T> y[N];
#pragma unroll
    for (int u = 0; u < N / R; u++) {
      int at = u / SPAN * SPAN;
      butterfly<R>(x + u, N / R, root, at * BY, y + u + (R - 1) * at, SPAN);
    }
#pragma unroll
    for (int k = 0; k < N; k++)
      x[k] = y[k];
    passes_from<N, SPAN * R, BY>(root, x);
  }
}

/* What `taken` and `left` do, of a whole line: x has N elements, of a half
 * spectrum N + 1. */
template <int KIND, int N, class T>
void fft_transform(const fft_line_args &a, pair<T> *x) {
  const pair<T> *root = (const pair<T> *)a.root;
  T by = (T)a.scale;
  if constexpr (KIND == FFT_HALF) {
    x[0].at[1] = x[N].at[1] = 0;
#pragma unroll
    for (int k = 0; k <= N / 2; k++) {
      pair<T> u = x[k], v = x[N - k];
      x[k] = whole_of(u, v, root[k]);
      if (k)
        x[N - k] = whole_of(v, u, root[N - k]);
    }
  }
  passes_from<N, 1, KIND == FFT_PAIRS ? 1 : 2>(root, x);
  if constexpr (KIND == FFT_REAL) {
    x[N] = x[0];
#pragma unroll
    for (int k = 0; k <= N / 2; k++) {
      pair<T> u = x[k], v = x[N - k];
      x[k] = half_of(u, v, root[k]);
      x[N - k] = half_of(v, u, root[N - k]);
    }
    x[0].at[1] = x[N].at[1] = 0;
  }
#pragma unroll
  for (int k = 0; k < N + (KIND == FFT_REAL); k++)
    x[k] = {x[k].at[0] * by, x[k].at[1] * by};
}

/* Lines of N pairs that follow each other: a warp reads and leaves them as they
 * lie in memory, W pairs a thread, and a thread a line of them in memory that
 * the warp shares. Lines there are PITCH apart, so that neither has to wait for
 * the same banks. */
template <int N> struct rows {
  static constexpr int W = N % 2 ? 1 : 2, PITCH = N + (N % 2 ? 0 : 2);
  typedef fl_vec<float, 2 * W> some;
  static float *at(float *room, int i) {
    return room + 2 * (i / (N / W) * PITCH + i % (N / W) * W);
  }
  static void come(const float *from, int lines, float *room, pair<float> *x) {
    int lane = threadIdx.x % 32;
    some v[N / W];
    /* the last one again rather than none: so nothing waits for a branch */
#pragma unroll
    for (int k = 0; k < N / W; k++)
      v[k] = fl_fetch<float, 2 * W>(
          from + 2 * W * min(k * 32 + lane, lines * (N / W) - 1));
#pragma unroll
    for (int k = 0; k < N / W; k++)
      fl_write(at(room, k * 32 + lane), v[k]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < N / W; k++) {
      some u = fl_read<float, 2 * W>(room + 2 * (lane * PITCH + k * W));
#pragma unroll
      for (int i = 0; i < W; i++)
        x[W * k + i] = {u.at[2 * i], u.at[2 * i + 1]};
    }
    __syncwarp();
  }
  static void go(float *to, int lines, float *room, const pair<float> *x) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N / W; k++) {
      some u;
#pragma unroll
      for (int i = 0; i < W; i++) {
        u.at[2 * i] = x[W * k + i].at[0];
        u.at[2 * i + 1] = x[W * k + i].at[1];
      }
      fl_write(room + 2 * (lane * PITCH + k * W), u);
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < N / W; k++)
      if (k * 32 + lane < lines * (N / W))
        fl_leave(to + 2 * W * (k * 32 + lane),
                 fl_read<float, 2 * W>(at(room, k * 32 + lane)));
  }
};

/* Lines side by side: N pairs that are `inner` apart, or (REAL) 2 N numbers. */
template <int N, bool REAL> struct column {
  static void come(const float *p, int64_t inner, pair<float> *x) {
#pragma unroll
    for (int k = 0; k < N; k++)
      x[k] = REAL ? pair<float>{p[2 * k * inner], p[(2 * k + 1) * inner]}
                  : fl_fetch<float, 2>(p + 2 * k * inner);
  }
  static void go(float *p, int64_t inner, const pair<float> *x) {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (REAL) {
        p[2 * k * inner] = x[k].at[0];
        p[(2 * k + 1) * inner] = x[k].at[1];
      } else
        fl_leave(p + 2 * k * inner, x[k]);
  }
};

template <int N> void fft_exchange(pair<float> *x) {
#pragma unroll
  for (int k = 0; k < N; k++)
    x[k] = {x[k].at[1], x[k].at[0]};
}

template <int KIND, int N, bool DOWN>
__global__ void __launch_bounds__(FFT_LINES(N))
    line(const __grid_constant__ fft_line_args a) {
  constexpr int IN = N + (KIND == FFT_HALF), OUT = N + (KIND == FFT_REAL);
  constexpr int PITCH = rows<N>::PITCH;
  __shared__ fl_vec<float, 4> rooms[DOWN ? 1 : FFT_LINES(N) * PITCH / 2];
  int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, outer, at = 0;
  int lane = threadIdx.x % 32;
  float *room = rooms->at + (threadIdx.x - lane) * 2 * PITCH;
  const float *from = (const float *)a.x;
  float *to = (float *)a.y;
  if (DOWN) {
    at = fl_split(first, a.inner, &outer);
    from += 2 * outer * a.inner.by * IN + (KIND == FFT_REAL ? at : 2 * at);
    to += 2 * outer * a.inner.by * OUT + (KIND == FFT_HALF ? at : 2 * at);
  } else {
    first -= lane;
    from += 2 * first * IN;
    to += 2 * first * OUT;
  }
  if (first >= a.lines)
    return;
  int lines = a.lines - first < 32 ? (int)(a.lines - first) : 32;
  pair<float> x[N + 1];
  if (DOWN)
    column<IN, KIND == FFT_REAL>::come(from, a.inner.by, x);
  else
    rows<IN>::come(from, lines, room, x);
  if (KIND == FFT_PAIRS && a.inverse)
    fft_exchange<N>(x);
  fft_transform<KIND, N>(a, x);
  if (KIND == FFT_HALF || (KIND == FFT_PAIRS && a.inverse))
    fft_exchange<N>(x);
  if (DOWN)
    column<OUT, KIND == FFT_HALF>::go(to, a.inner.by, x);
  else
    rows<OUT>::go(to, lines, room, x);
}
