/* Convolution on tensor cores, 16-bit floats: implicit products over places x
 * (tap, channel). Operands have channels innermost, in eights; other layouts
 * are packed into that first. */
#include "conv.cuh"
#include "../device/tile.cuh"

/* --- operands --- */

/* Rows are places, k is (tap, channel): a step is 64 channels of taps. Also
 * finds where the weights of its chunk of k are. */
template <int ROWS, int THREADS> struct conv_source {
  const conv_args &a;
  const conv_place *rows;
  const uint16_t *x;
  int64_t weights; /* -1: past the end of k */

  void load(uint32_t at, int step) {
    int chunk = threadIdx.x & 7, row = threadIdx.x >> 3;
    int k = step * FL_STEP + chunk * 8;
    int u = (int)conv_divide(k, a.by_channels), c = k - u * a.channels;
    bool live = u < a.n_taps;
    conv_tap tap = conv_tap_of(a, u);
    weights = live ? (int64_t)tap.number * a.channels + c : -1;
    const uint16_t *from = x + tap.shift + c;
    at += fl_swizzle<128>(row, chunk);
#pragma unroll
    for (int i = 0; i < ROWS; i += THREADS / 8) {
      const conv_place &r = rows[row + i];
      bool valid = live && conv_inside(a, r.p, tap);
      fl_copy16(at + i * 128, valid ? from + r.in : x, valid);
    }
  }
};

/* Rows are channels of the destination; k goes with the source's. */
template <int ROWS, int THREADS> struct conv_weights {
  const int64_t &weights;
  const uint16_t *w;
  int64_t ld;
  int rows;

  void load(uint32_t at, int) {
    int chunk = threadIdx.x & 7, row = threadIdx.x >> 3;
    const uint16_t *from = w + row * ld + weights;
    at += fl_swizzle<128>(row, chunk);
#pragma unroll
    for (int i = 0; i < ROWS; i += THREADS / 8) {
      bool valid = weights >= 0 && row + i < rows;
      fl_copy16(at + i * 128, valid ? from + i * ld : w, valid);
    }
  }
};

/* k is places, columns are (tap, channel). */
template <int COLS, int THREADS> struct conv_columns {
  const conv_args &a;
  const uint16_t *x;
  int64_t all; /* places of all images */
  conv_tap tap;
  bool live;

  conv_columns(const conv_args &a, const void *at, int col)
      : a(a), all(a.images * a.places) {
    int n = col + threadIdx.x % (COLS / 8) * 8;
    int u = (int)conv_divide(n, a.by_channels);
    live = u < a.n_taps;
    tap = conv_tap_of(a, u);
    x = (const uint16_t *)at + n - u * a.channels;
  }

  /* A line's place is found by one lane for all that copy from it. */
  void load(uint32_t at, int step) {
    constexpr int WIDE = COLS / 8, LINES = THREADS / WIDE; /* at a time */
    constexpr int EACH = WIDE < 32 ? 32 / WIDE : 1;        /* of a warp's */
    int chunk = threadIdx.x % WIDE, line = threadIdx.x / WIDE;
    int lane = threadIdx.x & 31, mine = lane / EACH % (FL_STEP / LINES);
    int64_t first = (int64_t)step * FL_STEP;
    int64_t k = first + (threadIdx.x & ~31) / WIDE + lane % EACH + mine * LINES;
    conv_place own = conv_place_of(a, k < all ? k : 0, k < all);
#pragma unroll
    for (int i = 0; i < FL_STEP / LINES; i++) {
      int from = i * EACH + (EACH > 1 ? lane / WIDE : 0);
      conv_place r;
      r.in = __shfl_sync(0xffffffff, own.in, from);
#pragma unroll
      for (int d = 0; d < 3; d++)
        r.p[d] = __shfl_sync(0xffffffff, own.p[d], from);
      bool valid = live && conv_inside(a, r.p, tap);
      fl_copy16(at + fl_across(line + i * LINES, chunk * 8),
                valid ? x + r.in + tap.shift : a.x, valid);
    }
  }
};

/* --- convolution, and the gradient of its input --- */

/* C by channels, from shared memory: V places of a channel at once. */
template <int D, int V, int M, int LD, int THREADS>
void conv_store(const conv_args &a, const float *c, FL_S(D) * y,
           const conv_place *rows, int cols, int live, int64_t channel) {
  typedef FL_S(D) S;
  constexpr int H = V < 4 ? V : 4;
  for (int i = threadIdx.x; i < cols * (M / V); i += THREADS) {
    int ch = i / (M / V), row = i % (M / V) * V;
    fl_vec<S, V> out;
    if (row >= live)
      continue;
    float bias =
        a.bias ? fl_load<float>(a.bias, a.bias_dtype, channel + ch) : 0;
#pragma unroll
    for (int e = 0; e < V; e += H) {
      fl_vec<float, H> v = fl_read<float, H>(c + ch * LD + row + e);
#pragma unroll
      for (int h = 0; h < H; h++)
        out.at[e + h] = fl_put<S>(v.at[h] + bias);
    }
    fl_write(y + ch * a.y_channel + rows[row].out, out);
  }
}

template <int D, int SIZE>
__global__ void __launch_bounds__(fl_size<SIZE>::THREADS)
    direct(const __grid_constant__ conv_args a) {
  constexpr int M = fl_size<SIZE>::M, N = fl_size<SIZE>::N;
  constexpr int THREADS = fl_size<SIZE>::THREADS,
                STAGES = fl_size<SIZE>::STAGES;
  typedef FL_S(D) S;
  typedef fl_tile_of<D, SIZE, true, true> Tile;
  extern __shared__ __align__(1024) unsigned char shared[];
  conv_place *rows = (conv_place *)(shared + STAGES * Tile::BYTES);
  int64_t block = blockIdx.x, tile_n = block % a.tiles_n;
  int64_t tile_m = block / a.tiles_n % a.tiles_m;
  int64_t group = block / (a.tiles_n * a.tiles_m);
  int64_t first = tile_m * M, all = a.images * a.places;
  int col = (int)tile_n * N, cols = fl_clip(a.rows - col, N);
  for (int i = threadIdx.x; i < M; i += THREADS)
    rows[i] =
        conv_place_of(a, first + i < all ? first + i : 0, first + i < all);
  __syncthreads();
  conv_source<M, THREADS> x = {a, rows,
                               (const uint16_t *)a.x + group * a.x_group, -1};
  conv_weights<N, THREADS> w = {
      x.weights, (const uint16_t *)a.w + group * a.w_group + col * a.w_row,
      a.w_row, cols};
  Tile tile;
  fl_multiply<STAGES>(tile, x, w, 0, a.steps, fl_shared(shared));
  constexpr int LD = M + 4;
  float *c = (float *)shared;
  S *y = (S *)a.y + (group * a.rows + col) * a.y_channel;
  int live = fl_clip(all - first, M);
  int64_t channel = group * a.rows + col;
  tile.template put_turned<LD>(c);
  __syncthreads();
  if (a.wide == 8)
    conv_store<D, 8, M, LD, THREADS>(a, c, y, rows, cols, live, channel);
  else if (a.wide == 4)
    conv_store<D, 4, M, LD, THREADS>(a, c, y, rows, cols, live, channel);
  else
    conv_store<D, 1, M, LD, THREADS>(a, c, y, rows, cols, live, channel);
}

/* --- the gradient of weights --- */

template <int D, int SIZE>
__global__ void __launch_bounds__(fl_size<SIZE>::THREADS)
    weights(const __grid_constant__ conv_args a) {
  constexpr int M = fl_size<SIZE>::M, N = fl_size<SIZE>::N;
  constexpr int THREADS = fl_size<SIZE>::THREADS,
                STAGES = fl_size<SIZE>::STAGES;
  constexpr int LD = N + 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  int64_t block = blockIdx.x, tiles = a.tiles_m * a.tiles_n;
  int64_t tile = block % tiles, z = block / tiles;
  int64_t group = z % a.groups, split = z / a.groups;
  int row = (int)(tile % a.tiles_m) * M, col = (int)(tile / a.tiles_m) * N;
  int width = a.n_taps * a.channels;
  int64_t all = a.images * a.places;
  int steps = (int)((all + FL_STEP - 1) / FL_STEP);
  int begin = (int)split * a.steps, end = begin + a.steps;
  fl_matrix<M, THREADS, false, true> dy((const uint16_t *)a.w +
                                            group * a.w_group,
                                        row, a.w_row, a.rows - row, all);
  conv_columns<N, THREADS> x(a, (const uint16_t *)a.x + group * a.x_group, col);
  fl_tile_of<D, SIZE, false, false> t;
  fl_multiply<STAGES>(t, dy, x, begin, end < steps ? end : steps,
                      fl_shared(shared));
  float *c = (float *)shared;
  t.template put<LD>(c);
  __syncthreads();
  float *part = a.part + ((split * a.groups + group) * a.rows + row) * width;
  int rows = fl_clip(a.rows - row, M);
  for (int i = threadIdx.x; i < rows * (N / 4); i += THREADS) {
    int r = i / (N / 4), k = i % (N / 4) * 4;
    if (col + k < width)
      fl_write(part + (int64_t)r * width + col + k,
               fl_read<float, 4>(c + r * LD + k));
  }
}

/* --- layouts --- */

/* 64 places of 64 channels into shared memory, two channels a word, V places at
 * once. */
template <int V>
void fetch(const conv_pack_args &a, uint32_t (&tile)[64][33], int64_t image,
           uint32_t first, uint32_t ch0) {
  const uint16_t *from = (const uint16_t *)a.from + image * a.image;
#pragma unroll
  for (int n = 0; n < 8 / V; n++) {
    uint32_t i = n * 256 + threadIdx.x;
    uint32_t place = i % (64 / V) * V, pair = i / (64 / V), q = first + place;
    uint32_t group = (ch0 + pair * 2) / a.padded;
    uint32_t c = ch0 + pair * 2 - group * a.padded;
    int64_t at = (int64_t)(group * a.channels + c) * a.channel;
    bool low = q < a.places && group < a.groups && c < a.channels;
    bool high = low && c + 1 < a.channels;
    if (a.step) {
      at += q * a.step;
    } else {
      uint32_t q01 = q / a.size[2], q0 = q01 / a.size[1];
      at += q0 * a.place[0] + (q01 - q0 * a.size[1]) * a.place[1] +
            (q - q01 * a.size[2]) * a.place[2];
    }
    fl_vec<uint16_t, V> x = {}, y = {};
    if (low)
      x = fl_read<uint16_t, V>(from + at);
    if (high)
      y = fl_read<uint16_t, V>(from + at + a.channel);
#pragma unroll
    for (int e = 0; e < V; e++)
      tile[place + e][pair] = x.at[e] | (uint32_t)y.at[e] << 16;
  }
}

template <int D>
__global__ void __launch_bounds__(256)
    pack(const __grid_constant__ conv_pack_args a) {
  __shared__ uint32_t tile[64][33];
  uint32_t tiles = ((uint32_t)a.places + 63) / 64, image = blockIdx.x / tiles;
  uint32_t first = (blockIdx.x - image * tiles) * 64, ch0 = blockIdx.y * 64;
  int64_t all = (int64_t)a.groups * a.padded;
  uint16_t *to = (uint16_t *)a.to + image * a.places * all;
  if (a.wide == 8)
    fetch<8>(a, tile, image, first, ch0);
  else if (a.wide == 4)
    fetch<4>(a, tile, image, first, ch0);
  else
    fetch<1>(a, tile, image, first, ch0);
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 8; i += 256) {
    int place = i / 8, ch = i % 8 * 8;
    const uint32_t *line = &tile[place][ch / 2];
    fl_vec<uint32_t, 4> v = {line[0], line[1], line[2], line[3]};
    if (first + place < a.places && ch0 + ch < all)
      fl_write((uint32_t *)(to + (first + place) * all + ch0 + ch), v);
  }
}

template <int D>
__global__ void __launch_bounds__(256)
    pack_weights(const __grid_constant__ conv_weight_args a) {
  int64_t all = a.rows * a.taps * a.padded;
  int sources = a.turned ? a.outputs : a.inputs;
  int each = a.turned ? a.inputs : a.outputs; /* rows of a group */
  for (int64_t i = fl_thread(); i < all; i += fl_threads()) {
    int c = (int)(i % a.padded), tap = (int)(i / a.padded % a.taps);
    int64_t row = i / a.padded / a.taps, group = row / each;
    int64_t output = a.turned ? group * a.outputs + c : row;
    int64_t input = a.turned ? row - group * each : c;
    ((uint16_t *)a.to)[i] =
        c < sources ? ((const uint16_t *)
                           a.from)[(output * a.inputs + input) * a.taps + tap]
                    : 0;
  }
}

/* Elements of 16 bits by way of shared memory, inputs a multiple of 8: eight at
 * a time are read and written. */
template <int WD>
__global__ void __launch_bounds__(256)
    turn_weights(const __grid_constant__ conv_turn_args a) {
  extern __shared__ uint4 room[];
  const uint16_t *matrix = (const uint16_t *)room;
  int n = a.inputs * a.taps, cols = a.back ? a.taps : a.inputs;
  int step = a.back ? a.inputs : a.taps; /* of what was read */
  const uint4 *from = (const uint4 *)a.from + (int64_t)blockIdx.x * (n / 8);
  uint16_t *to = (uint16_t *)a.to + (int64_t)blockIdx.x * n;
#pragma unroll 4
  for (int i = threadIdx.x; i < n / 8; i += blockDim.x)
    room[i] = from[i];
  __syncthreads();
  for (int i = 8 * threadIdx.x; i < n; i += 8 * blockDim.x) {
    fl_vec<uint16_t, 8> v;
    int row = i / cols, col = i - row * cols;
#pragma unroll
    for (int e = 0; e < 8; e++) {
      v.at[e] = matrix[col * step + row];
      bool end = ++col == cols;
      col = end ? 0 : col;
      row += end;
    }
    fl_leave(to + i, v);
  }
}

/* The pieces of the sum, in order. */
template <int D>
__global__ void __launch_bounds__(256)
    sum_weights(const __grid_constant__ conv_sum_args a) {
  typedef FL_S(D) S;
  int64_t all = a.outputs * a.inputs * a.taps;
  int64_t piece = a.outputs * a.taps * a.padded;
  for (int64_t i = fl_thread(); i < all; i += fl_threads()) {
    int tap = (int)(i % a.taps), c = (int)(i / a.taps % a.inputs);
    int64_t o = i / a.taps / a.inputs;
    const float *p = a.part + (o * a.taps + tap) * a.padded + c;
    float sum = 0;
    for (int s = 0; s < a.splits; s++)
      sum += p[s * piece];
    ((S *)a.to)[i] = fl_put<S>(sum);
  }
}
