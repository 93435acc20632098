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

/* What one access reads. */
template <int BYTES> struct depthwise_bits;
template <> struct depthwise_bits<2> { typedef uint16_t T; };
template <> struct depthwise_bits<4> { typedef uint32_t T; };
template <> struct depthwise_bits<8> { typedef uint2 T; };
template <> struct depthwise_bits<16> { typedef uint4 T; };

template <class E, int N>
using depthwise_bits_of = typename depthwise_bits<sizeof(E) * N>::T;

template <class E, int N>
depthwise_bits_of<E, N> depthwise_read(const E *p, bool inside) {
  depthwise_bits_of<E, N> bits = {};
  if (inside)
    bits = *(const depthwise_bits_of<E, N> *)p;
  return bits;
}

/* Element i of them. bf16 is taken of whole words: its upper half by a mask. */
template <int D, int N>
float depthwise_float(const depthwise_bits_of<FL_S(D), N> &bits, int i) {
  if constexpr (D == FL_BF16 && N > 1) {
    uint32_t words[N / 2];
    memcpy(words, &bits, sizeof words);
    uint32_t w = words[i / 2];
    return __uint_as_float(i % 2 ? w & 0xffff0000u : w << 16);
  } else {
    fl_vec<FL_S(D), N> v;
    memcpy(&v, &bits, sizeof v);
    return fl_get<float>(v.at[i]);
  }
}

/* COUNT columns col, col + hop, ... of a row of the source, zeros beside it.
 * They are loaded one step before they are used, and are bits in between. */
template <int D, int LAST, int N, int S, int COUNT> struct depthwise_window {
  typedef FL_S(D) E;
  static constexpr bool EACH = LAST || N == 1; /* an access for each column */
  static constexpr int V = LAST ? N : 1;
  static constexpr int LEAD = EACH ? 0 : depthwise_lead<N, S>::VALUE;
  static constexpr int LOADS = EACH ? COUNT : (LEAD + COUNT + N - 1) / N;
  depthwise_bits_of<E, N> at[LOADS];
  uint32_t inside; /* which of them are in the row */

  void place(int col, const depthwise_args &a) {
    inside = 0;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      int c = col - LEAD + i * (EACH ? a.hop[1] : N);
      inside |= (uint32_t)((uint32_t)c < (uint32_t)a.x_size[1]) << i;
    }
  }

  /* `row` is where column 0 of row y is. */
  void load(const E *row, int col, bool there, const depthwise_args &a) {
    int step = EACH ? a.x_hop : N;
    uint32_t which = there ? inside : 0;
    row += EACH ? col * a.x_col : col - LEAD;
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      at[i] = depthwise_read<E, N>(row + i * step, which >> i & 1);
  }

  void get(float (&to)[COUNT][V]) const {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
      for (int k = 0; k < V; k++)
        to[i][k] = EACH ? depthwise_float<D, N>(at[i], k)
                        : depthwise_float<D, N>(at[(i + LEAD) / N],
                                                (i + LEAD) % N);
  }
};

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
          fl_write<E, V>(y + p * a.y_col, v);
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

/* Row r of what a tile reads, with the rows of taps from k0 to k1 that it meets
 * for each row of the tile. */
template <int LAST, int S, int T, int OH, int OW, int COUNT, int V>
void depthwise_multiply(float (&sum)[OH][OW][V], const float (&in)[COUNT][V],
                        const float *w, int r, int k0, int k1,
                        const depthwise_args &a) {
  int line = a.segments * (LAST ? S * a.pitch : (S + 3) / 4 * 4);
#pragma unroll
  for (int h = 0; h < OH; h++) {
    int u = r - h * a.stretch;
    if (u < k0 || u >= k1)
      continue;
    float by[S][V];
    depthwise_taps<LAST, V, S>(by, w + (u - k0) * line, a);
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
      for (int j = 0; j < OW; j++)
#pragma unroll
        for (int k = 0; k < V; k++)
          sum[h][j][k] += in[j * T + s][k] * by[s][k];
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
  int tap = LAST ? a.pitch : 1;
  uint32_t rows = a.x_size[0];
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
        int end = live ? (OH - 1) * a.stretch + k1 : k0, r = k0, g = 0;
        bool there = (uint32_t)(from_row + r * a.hop[0]) < rows;
        depthwise_window<D, LAST, N, S, COUNT> next;
        next.place(from_col, a);
        next.load(plane + (from_row + r * a.hop[0]) * a.x_row, from_col,
                  there && r < end, a);
        while (r < end) {
          float in[COUNT][V];
          next.get(in);
          const float *by = w + g * PAD * tap;
          int at_row = r;
          bool meets = there;
          g = g + 1 < a.segments ? g + 1 : 0;
          r += g == 0;
          int y = from_row + r * a.hop[0], c = from_col + g * S * a.hop[1];
          there = (uint32_t)y < rows;
          if (a.segments > 1)
            next.place(c, a);
          next.load(plane + y * a.x_row, c, there && r < end, a);
          if (meets)
            depthwise_multiply<LAST, S, T>(sum, in, by, at_row, k0, k1, a);
        }
      }
    if (live)
      depthwise_put<D, LAST, N, OH, OW, V>(sum, a, image, ch, row, col);
    first += spots;
  }
}

/* --- gradients of weights --- */

/* Rows of dy that a thread has at once: a row of x meets both, in taps that
 * follow each other. (`height`: one, if rows have a stride and columns none.)
 */
template <int T, int KY> struct depthwise_rows {
  static constexpr int VALUE = T == 1 && KY > 1 ? 2 : 1;
};

/* The places of a row of dy that a thread has; zeros beside it. */
template <int D, int LAST, int N, int OW, int V>
void depthwise_slopes(float (&to)[OW][V], const FL_S(D) * from, int col,
                      bool there, const depthwise_args &a) {
  typedef FL_S(D) E;
  if constexpr (LAST || N == 1 || OW % N != 0) {
#pragma unroll
    for (int j = 0; j < OW; j++) {
      int p = col + j * a.every[1];
      depthwise_bits_of<E, V> v =
          depthwise_read<E, V>(from + p * a.y_col, there && p < a.size[1]);
#pragma unroll
      for (int k = 0; k < V; k++)
        to[j][k] = depthwise_float<D, V>(v, k);
    }
  } else {
#pragma unroll
    for (int j = 0; j < OW; j += N) {
      depthwise_bits_of<E, N> v =
          depthwise_read<E, N>(from + col + j, there && col + j < a.size[1]);
#pragma unroll
      for (int e = 0; e < N; e++)
        to[j + e][0] = depthwise_float<D, N>(v, e);
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
  constexpr int ROWS = depthwise_rows<T, KY>::VALUE;
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
  uint32_t rows = a.x_size[0];
  int64_t each = (a.spots + a.splits - 1) / a.splits;
  int64_t end = (split + 1) * each < a.spots ? (split + 1) * each : a.spots;
  for (int64_t n = split * each + spot; line < a.lines && n < end; n += spots) {
    int64_t q = conv_divide(n, a.by_strips);
    int64_t image = conv_divide(q, a.by_rows);
    int tile = (int)(q - image * a.by_rows.by);
    int row = a.height == 1 ? tile : depthwise_start<ROWS>(tile, a.every[0]);
    int col = depthwise_start<OW>((int)(n - q * a.strips), a.every[1]);
    float slope[ROWS][OW][V];
#pragma unroll
    for (int h = 0; h < ROWS; h++) {
      int at = row + h * a.every[0];
      depthwise_slopes<D, LAST, N, OW, V>(
          slope[h], dy + image * a.y_image + at * a.y_row, col,
          h < a.height && at < a.size[0], a);
    }
    int y = row * a.step[0] + a.base[0] + first * a.hop[0];
    int c = col * a.step[1] + a.base[1] + segment * S * a.hop[1];
    const E *plane = x + image * a.x_image;
    depthwise_window<D, LAST, N, S, COUNT> next;
    next.place(c, a);
    next.load(plane + y * a.x_row, c, (uint32_t)y < rows, a);
#pragma unroll
    for (int r = 0; r < KY + ROWS - 1; r++) {
      float in[COUNT][V];
      bool there = (uint32_t)y < rows;
      next.get(in);
      y += a.hop[0];
      if (r + 1 < KY + ROWS - 1)
        next.load(plane + y * a.x_row, c, (uint32_t)y < rows, a);
      if (!there)
        continue;
#pragma unroll
      for (int h = 0; h < ROWS; h++)
#pragma unroll
        for (int s = 0; s < S; s++)
#pragma unroll
          for (int j = 0; j < OW; j++)
#pragma unroll
            for (int k = 0; k < V; k++)
              if (r - h >= 0 && r - h < KY)
                sum[r - h][s][k] += in[j * T + s][k] * slope[h][j][k];
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
