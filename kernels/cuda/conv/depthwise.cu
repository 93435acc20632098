/* Convolutions of groups with few channels. A thread computes a tile of OH x OW
 * results in registers, for one channel or for two that lie side by side: a row
 * of the source is read once, from L1 mostly, and is multiplied with each row
 * of taps that meets it. Weights are in shared memory as floats. LAST: channels
 * are innermost, and lanes are channels, N each; otherwise lanes are tiles of a
 * plane, and N columns are read at once. Rows of taps are cut into segments of
 * S. T is the columns' step, in units of the distance of taps. */
#include "conv.cuh"

#include "depthwise.h"

/* The distance from the first column that a tile reads back to a multiple of N:
 * that of `same` padding. */
template <int N, int S> struct depthwise_lead {
  static constexpr int VALUE = (N - S / 2 % N) % N;
};

template <class S, int N> fl_vec<S, N> depthwise_read(const S *p) {
  if constexpr (sizeof(fl_vec<S, N>) >= 8)
    return fl_fetch<S, N>(p);
  else
    return fl_read<S, N>(p);
}

/* Columns col, col + hop, ... of a row; zeros beside it. */
template <int D, int LAST, int N, int S, int COUNT, int V>
void depthwise_window(float (&to)[COUNT][V], const FL_S(D) * row, int col,
                      const depthwise_args &a) {
  typedef FL_S(D) E;
  constexpr int LEAD = LAST ? 0 : depthwise_lead<N, S>::VALUE;
  if constexpr (LAST || N == 1) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      int c = col + i * a.hop[1];
      fl_vec<E, V> v = {};
      if ((uint32_t)c < (uint32_t)a.x_size[1])
        v = depthwise_read<E, V>(row + (int64_t)c * a.x_col);
#pragma unroll
      for (int k = 0; k < V; k++)
        to[i][k] = fl_get<float>(v.at[k]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < (LEAD + COUNT + N - 1) / N; j++) {
      int c = col - LEAD + j * N;
      fl_vec<E, N> v = {};
      if ((uint32_t)c < (uint32_t)a.x_size[1])
        v = depthwise_read<E, N>(row + c);
#pragma unroll
      for (int e = 0; e < N; e++)
        if (j * N + e >= LEAD && j * N + e - LEAD < COUNT)
          to[j * N + e - LEAD][0] = fl_get<float>(v.at[e]);
    }
  }
}

/* Where thread `spot` of a line begins along a dim: tiles of SIZE places that
 * are `every` apart interleave. */
template <int SIZE> int depthwise_start(int tile, int every) {
  return every == 1 ? tile * SIZE
                    : tile / every * (SIZE * every) + tile % every;
}

/* --- results, and gradients of inputs --- */

/* Weights of each line of the block, rows k0 to k1 of taps, as floats: LAST:
 * (tap, line, V), otherwise (line, tap). */
template <int D, int LAST, int V, int S>
void depthwise_stage(float *to, const depthwise_args &a, int64_t line0, int ci,
                     int k0, int k1) {
  constexpr int PAD = LAST ? S : (S + 3) / 4 * 4;
  int lanes = 1 << a.lane_bits, padded = a.segments * PAD;
  int n = (k1 - k0) * padded;
  for (int k = threadIdx.x / 32; k < lanes * V; k += DEPTHWISE / 32) {
    int lane = k / V;
    int64_t line = line0 + lane, image = conv_divide(line, a.by_line);
    int64_t ch = (line - image * a.by_line.by) * V + k % V;
    int64_t group = conv_divide(ch, a.by_group);
    const FL_S(D) *w = (const FL_S(D) *)a.w + a.w_at + group * a.w_group +
                       (ch - group * a.by_group.by) * a.w_result +
                       ci * a.w_channel;
    for (int i = threadIdx.x % 32; i < n; i += 32) {
      int row = (int)conv_divide(i, a.by_padded), col = i - row * padded;
      int u = col / PAD * S + col % PAD;
      float v = 0;
      if (line < a.lines && col % PAD < S && u < a.taps[1])
        v = fl_get<float>(w[(k0 + row) * a.w_row + u * a.w_col]);
      if (LAST)
        to[i * a.pitch + k] = v;
      else
        to[k * a.pitch + i] = v;
    }
  }
}

template <int LAST, int V, int S>
void depthwise_taps(float (&w)[S][V], const float *from,
                    const depthwise_args &a) {
  if constexpr (LAST) {
#pragma unroll
    for (int s = 0; s < S; s++) {
      fl_vec<float, V> v = fl_read<float, V>(from + s * a.pitch);
#pragma unroll
      for (int k = 0; k < V; k++)
        w[s][k] = v.at[k];
    }
  } else {
#pragma unroll
    for (int s = 0; s < S; s += 4) {
      fl_vec<float, 4> v = fl_read<float, 4>(from + s);
#pragma unroll
      for (int e = 0; e < 4 && s + e < S; e++)
        w[s + e][0] = v.at[e];
    }
  }
}

/* A tile as it is stored, with its bias. */
template <int D, int LAST, int N, int OH, int OW, int V>
void depthwise_put(float (&sum)[OH][OW][V], const depthwise_args &a,
                   int64_t image, int64_t ch, int row, int col) {
  typedef FL_S(D) E;
  float bias[V];
#pragma unroll
  for (int k = 0; k < V; k++)
    bias[k] = a.bias ? fl_load<float>(a.bias, a.bias_dtype, ch + k) : 0;
#pragma unroll
  for (int h = 0; h < OH; h++) {
    int q = row + h * a.every[0];
    E *y = (E *)a.y + a.y_at + image * a.y_image + ch * a.y_channel +
           q * a.y_row;
    if (q >= a.size[0])
      break;
    if constexpr (LAST || N == 1 || OW % N != 0) {
#pragma unroll
      for (int j = 0; j < OW; j++) {
        int p = col + j * a.every[1];
        fl_vec<E, V> v;
#pragma unroll
        for (int k = 0; k < V; k++)
          v.at[k] = fl_put<E>(sum[h][j][k] + bias[k]);
        if (p < a.size[1])
          fl_write<E, V>(y + (int64_t)p * a.y_col, v);
      }
    } else {
#pragma unroll
      for (int j = 0; j < OW; j += N) {
        fl_vec<E, N> v;
#pragma unroll
        for (int e = 0; e < N; e++)
          v.at[e] = fl_put<E>(sum[h][j + e][0] + bias[0]);
        if (col + j < a.size[1])
          fl_leave<E, N>(y + col + j, v);
      }
    }
  }
}

template <int D, int LAST, int N, int S, int T, int OH, int OW>
__global__ void __launch_bounds__(DEPTHWISE, LAST ? 3 : 4)
    places(const __grid_constant__ depthwise_args a) {
  typedef FL_S(D) E;
  constexpr int V = LAST ? N : 1, COUNT = (OW - 1) * T + S;
  constexpr int PAD = LAST ? S : (S + 3) / 4 * 4;
  extern __shared__ __align__(16) float staged[];
  int lanes = 1 << a.lane_bits, spots = DEPTHWISE >> a.lane_bits;
  int lane = LAST ? threadIdx.x & (lanes - 1) : threadIdx.x / spots;
  int spot = LAST ? threadIdx.x >> a.lane_bits : threadIdx.x % spots;
  int64_t at = blockIdx.x / a.line_blocks;
  int64_t line0 = (blockIdx.x - at * a.line_blocks) << a.lane_bits;
  int64_t line = line0 + lane, image = conv_divide(line, a.by_line);
  int64_t ch = (line - image * a.by_line.by) * V;
  int64_t group = conv_divide(ch, a.by_group);
  int64_t first = at * a.turns * spots;
  const float *w = staged + (LAST ? lane * V : lane * a.pitch);
  int tap = LAST ? a.pitch : 1, line_of_taps = a.segments * PAD * tap;
  const E *x = (const E *)a.x + image * a.x_image;
  for (int turn = 0; turn < a.turns && first < a.spots; turn++) {
    int64_t n = first + spot;
    bool live = line < a.lines && n < a.spots;
    int tile = (int)conv_divide(live ? n : 0, a.by_strips);
    int strip = (int)(live ? n : 0) - tile * a.strips;
    int row = depthwise_start<OH>(tile, a.every[0]);
    int col = depthwise_start<OW>(strip, a.every[1]);
    int from_row = row * a.step[0] + a.base[0];
    int from_col = col * a.step[1] + a.base[1];
    float sum[OH][OW][V] = {};
    for (int ci = 0; ci < a.channels; ci++)
      for (int k0 = 0; k0 < a.taps[0]; k0 += a.chunk) {
        int k1 = k0 + a.chunk < a.taps[0] ? k0 + a.chunk : a.taps[0];
        if (turn == 0 || a.channels > 1 || a.chunk < a.taps[0]) {
          __syncthreads();
          depthwise_stage<D, LAST, V, S>(staged, a, line0, ci, k0, k1);
          __syncthreads();
        }
        const E *plane = x + (group * a.channels + ci) * a.x_channel;
        for (int r = k0; live && r < (OH - 1) * a.stretch + k1; r++) {
          int y = from_row + r * a.hop[0];
          if ((uint32_t)y >= (uint32_t)a.x_size[0])
            continue;
          for (int g = 0; g < a.segments; g++) {
            float in[COUNT][V];
            depthwise_window<D, LAST, N, S, COUNT, V>(
                in, plane + y * a.x_row, from_col + g * S * a.hop[1], a);
#pragma unroll
            for (int h = 0; h < OH; h++) {
              int u = r - h * a.stretch;
              if (u < k0 || u >= k1)
                continue;
              float by[S][V];
              depthwise_taps<LAST, V, S>(
                  by, w + (u - k0) * line_of_taps + g * PAD * tap, a);
#pragma unroll
              for (int s = 0; s < S; s++)
#pragma unroll
                for (int j = 0; j < OW; j++)
#pragma unroll
                  for (int k = 0; k < V; k++)
                    sum[h][j][k] += in[j * T + s][k] * by[s][k];
            }
          }
        }
      }
    if (live)
      depthwise_put<D, LAST, N, OH, OW, V>(sum, a, image, ch, row, col);
    first += spots;
  }
}

/* --- gradients of weights --- */

/* The places of a row of dy that a thread has; zeros beside it. */
template <int D, int LAST, int N, int OW, int V>
void depthwise_slopes(float (&to)[OW][V], const FL_S(D) * from, int col,
                      const depthwise_args &a) {
  typedef FL_S(D) E;
  if constexpr (LAST || N == 1 || OW % N != 0) {
#pragma unroll
    for (int j = 0; j < OW; j++) {
      int p = col + j * a.every[1];
      fl_vec<E, V> v = {};
      if (p < a.size[1])
        v = depthwise_read<E, V>(from + (int64_t)p * a.y_col);
#pragma unroll
      for (int k = 0; k < V; k++)
        to[j][k] = fl_get<float>(v.at[k]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < OW; j += N) {
      fl_vec<E, N> v = {};
      if (col + j < a.size[1])
        v = depthwise_read<E, N>(from + col + j);
#pragma unroll
      for (int e = 0; e < N; e++)
        to[j + e][0] = fl_get<float>(v.at[e]);
    }
  }
}

/* Adds the sums of a line's threads as a tree, a row of taps at a time, which
 * go to rows `first` and columns `col` of taps, after `before` others. */
template <int LAST, int KY, int S, int V>
void depthwise_sum(float (&sum)[KY][S][V], float *sums, const depthwise_args &a,
                   int64_t line, int spot, int64_t before, int first,
                   int col) {
  int spots = DEPTHWISE >> a.lane_bits;
  int apart = LAST ? 1 << a.lane_bits : 1;
#pragma unroll
  for (int u = 0; u < KY; u++) {
    __syncthreads();
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
      for (int k = 0; k < V; k++)
        sums[(s * V + k) * DEPTHWISE + threadIdx.x] = sum[u][s][k];
    for (int half = spots / 2; half > 0; half /= 2) {
      __syncthreads();
      if (spot < half)
#pragma unroll
        for (int i = 0; i < S * V; i++)
          sums[i * DEPTHWISE + threadIdx.x] +=
              sums[i * DEPTHWISE + threadIdx.x + half * apart];
    }
    if (spot == 0 && line < a.lines && first + u < a.taps[0])
#pragma unroll
      for (int s = 0; s < S; s++)
#pragma unroll
        for (int k = 0; k < V; k++) {
          int64_t tap = before + (first + u) * a.taps[1] + col + s;
          if (col + s < a.taps[1])
            a.part[(tap * a.lines + line) * V + k] =
                sums[(s * V + k) * DEPTHWISE + threadIdx.x];
        }
  }
}

/* Sums of KY rows of S taps over a part of the places of all images. Blocks are
 * (lines, segments, rows of taps, split). */
template <int D, int LAST, int N, int S, int T, int KY, int OW>
__global__ void __launch_bounds__(DEPTHWISE)
    taps(const __grid_constant__ depthwise_args a) {
  typedef FL_S(D) E;
  constexpr int V = LAST ? N : 1, COUNT = (OW - 1) * T + S;
  extern __shared__ __align__(16) float sums[];
  int lanes = 1 << a.lane_bits, spots = DEPTHWISE >> a.lane_bits;
  int lane = LAST ? threadIdx.x & (lanes - 1) : threadIdx.x / spots;
  int spot = LAST ? threadIdx.x >> a.lane_bits : threadIdx.x % spots;
  int64_t at = blockIdx.x / a.line_blocks;
  int64_t line = ((blockIdx.x - at * a.line_blocks) << a.lane_bits) + lane;
  int bands = (a.taps[0] + KY - 1) / KY;
  int segment = (int)(at % a.segments), band = (int)(at / a.segments % bands);
  int split = (int)(at / a.segments / bands), first = band * KY;
  int64_t pair = line * V, out = pair / a.channels;
  int64_t group = conv_divide(out, a.by_group);
  const E *x = (const E *)a.x +
               (group * a.channels + pair % a.channels) * a.x_channel;
  const E *dy = (const E *)a.w + out * a.y_channel;
  float sum[KY][S][V] = {};
  int64_t each = (a.spots + a.splits - 1) / a.splits;
  int64_t end = (split + 1) * each < a.spots ? (split + 1) * each : a.spots;
  for (int64_t n = split * each + spot; line < a.lines && n < end; n += spots) {
    int64_t q = conv_divide(n, a.by_strips);
    int64_t image = conv_divide(q, a.by_rows);
    int row = (int)(q - image * a.size[0]);
    int col = depthwise_start<OW>((int)(n - q * a.strips), a.every[1]);
    const E *from = dy + image * a.y_image + row * a.y_row;
    float slope[OW][V];
    depthwise_slopes<D, LAST, N, OW, V>(slope, from, col, a);
    int from_row = row * a.step[0] + a.base[0];
    int from_col =
        col * a.step[1] + a.base[1] + segment * S * a.hop[1];
#pragma unroll
    for (int u = 0; u < KY; u++) {
      int y = from_row + (first + u) * a.hop[0];
      if ((uint32_t)y >= (uint32_t)a.x_size[0])
        continue;
      float in[COUNT][V];
      depthwise_window<D, LAST, N, S, COUNT, V>(
          in, x + image * a.x_image + y * a.x_row, from_col, a);
#pragma unroll
      for (int s = 0; s < S; s++)
#pragma unroll
        for (int j = 0; j < OW; j++)
#pragma unroll
          for (int k = 0; k < V; k++)
            sum[u][s][k] += in[j * T + s][k] * slope[j][k];
    }
  }
  depthwise_sum<LAST, KY, S, V>(sum, sums, a, line, spot,
                                (int64_t)split * a.taps[0] * a.taps[1], first,
                                segment * S);
}

/* dw (line, tap) of part (split, tap, line): 32 lines of a block, whose pieces
 * are the threads' next dim. `lines` are single channels here. */
template <int D>
__global__ void __launch_bounds__(32 * DEPTHWISE_DEPTH)
    pieces(const __grid_constant__ depthwise_args a) {
  __shared__ float sums[DEPTHWISE_DEPTH][32];
  int lane = threadIdx.x % 32, depth = threadIdx.x / 32;
  int64_t tap = blockIdx.x / a.line_blocks, n = (int64_t)a.taps[0] * a.taps[1];
  int64_t line = (blockIdx.x - tap * a.line_blocks) * 32 + lane;
  float sum = 0;
  if (line < a.lines)
    for (int z = depth; z < a.splits; z += DEPTHWISE_DEPTH)
      sum += a.part[(z * n + tap) * a.lines + line];
  sums[depth][lane] = sum;
  __syncthreads();
  if (depth > 0 || line >= a.lines)
    return;
  for (int z = 1; z < DEPTHWISE_DEPTH; z++)
    sum += sums[z][lane];
  ((FL_S(D) *)a.y)[line * n + tap] = fl_put<FL_S(D)>(sum);
}
