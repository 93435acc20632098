/* What cuFFT does not do of the Fourier rows: scales, the parts of a half
 * spectrum that do not count, and lines of one element. */
#include "words.cuh"

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

/* A copy that the library may write to, times the scale. Of the first of a line
 * and, with an even length, of the last, only what becomes real along the other
 * dims: the mean of an element and of its mirror image's conjugate. */
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

/* Lines of one element are their own transforms. */
template <int D, int KIND>
__global__ void __launch_bounds__(256)
    single(const __grid_constant__ fft_args a) {
  typedef FL_S(D) T;
  const T *x = (const T *)a.x;
  T *y = (T *)a.y, by = (T)a.scale;
  EACH(i, a.n) {
    if constexpr (KIND == FFT_PAIRS)
      y[i] = x[i] * by;
    else if constexpr (KIND == FFT_HALF)
      y[i] = x[2 * i] * by;
    else
      y[i] = i % 2 ? T(0) : x[i / 2] * by;
  }
}
