/* What cuFFT does not do of the Fourier rows: scales, the parts of a half
 * spectrum that do not count, and lines of one element. */
#include "flare.cuh"

#include "fft.h"

#define EACH(i, n)                                                             \
  for (int64_t i = fl_thread(); i < (n); i += fl_threads())

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

/* A copy that the library may write to: without the imaginary parts of the
 * first and, with an even length, of the last; times the scale. */
template <int D>
__global__ void __launch_bounds__(256)
    half(const __grid_constant__ fft_args a) {
  typedef FL_S(D) T;
  const T *x = (const T *)a.x;
  fl_vec<T, 2> *y = (fl_vec<T, 2> *)a.y;
  T by = (T)a.scale;
  EACH(i, a.n) {
    int64_t k = i / a.inner % a.size;
    bool real = k == 0 || 2 * k == a.whole;
    y[i] = {x[2 * i] * by, real ? T(0) : x[2 * i + 1] * by};
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
