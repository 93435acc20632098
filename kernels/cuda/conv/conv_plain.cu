/* Convolution without tensor cores: f32 and f64 as implicit products of plain
 * tiles, read where they lie with any strides; and, for all floats, groups of
 * so few channels (depthwise) that a thread or block does a result by itself.
 */
#include "conv.cuh"
#include "../device/simt.cuh"

/* --- operands of tiles --- */

/* Rows are channels of the destination; k is (channel, tap). */
template <class Tile> struct plain_weights {
  typedef typename Tile::S S;
  const conv_args &a;
  const S *w;
  int rows;

  void load(S *to, int64_t step) {
    constexpr int STRIDE = FL_SIMT / FL_SIMT_STEP;
    int q = threadIdx.x % FL_SIMT_STEP, r = threadIdx.x / FL_SIMT_STEP;
    int k = (int)step * FL_SIMT_STEP + q;
    int c = (int)conv_divide(k, a.by_taps);
    conv_tap tap = conv_tap_of(a, k - c * a.n_taps);
    const S *from = w + c * a.w_channel + tap.number * a.w_tap + r * a.w_row;
#pragma unroll
    for (int i = 0; i < Tile::SIZE / STRIDE; i++) {
      bool valid = c < a.channels && r + i * STRIDE < rows;
      fl_copy_one(to + q * Tile::LINE + r + i * STRIDE,
                  valid ? from + i * STRIDE * a.w_row : w, valid);
    }
  }
};

/* Columns are places. */
template <class Tile> struct plain_places {
  typedef typename Tile::S S;
  const conv_args &a;
  const S *x;
  conv_place place;

  /* Each (channel, tap) is found by one lane for its warp. */
  void load(S *to, int64_t step) {
    constexpr int STRIDE = FL_SIMT / Tile::SIZE, EACH = FL_SIMT_STEP / STRIDE;
    int col = threadIdx.x % Tile::SIZE, q = threadIdx.x / Tile::SIZE;
    int k = (int)step * FL_SIMT_STEP + q + threadIdx.x % EACH * STRIDE;
    int c = (int)conv_divide(k, a.by_taps);
    conv_tap own = conv_tap_of(a, k - c * a.n_taps);
    own.shift += c * a.x_channel;
    own.d[0] = c < a.channels ? own.d[0] : CONV_NOWHERE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      conv_tap tap;
      tap.shift = __shfl_sync(0xffffffff, own.shift, i);
#pragma unroll
      for (int d = 0; d < 3; d++)
        tap.d[d] = __shfl_sync(0xffffffff, own.d[d], i);
      bool valid = conv_inside(a, place.p, tap);
      fl_copy_one(to + (q + i * STRIDE) * Tile::LINE + col,
                  valid ? x + place.in + tap.shift : x, valid);
    }
  }
};

/* Rows are channels of dy; k is places of all images. */
template <class Tile> struct plain_slopes {
  typedef typename Tile::S S;
  const conv_args &a;
  const S *dy;
  int rows;

  void load(S *to, int64_t step) {
    constexpr int STRIDE = FL_SIMT / FL_SIMT_STEP;
    int q = threadIdx.x % FL_SIMT_STEP, r = threadIdx.x / FL_SIMT_STEP;
    int64_t k = step * FL_SIMT_STEP + q;
    bool live = k < a.images * a.places;
    const S *from = dy + conv_place_of(a, live ? k : 0, live).out;
#pragma unroll
    for (int i = 0; i < Tile::SIZE / STRIDE; i++) {
      bool valid = live && r + i * STRIDE < rows;
      fl_copy_one(to + q * Tile::LINE + r + i * STRIDE,
                  valid ? from + (r + i * STRIDE) * a.y_channel : dy, valid);
    }
  }
};

/* Columns are (channel, tap); k is places. */
template <class Tile> struct plain_columns {
  typedef typename Tile::S S;
  static constexpr int STRIDE = FL_SIMT / FL_SIMT_STEP;
  static constexpr int EACH = Tile::SIZE / STRIDE;
  const conv_args &a;
  const S *x;
  conv_tap tap[EACH];
  uint32_t live;

  plain_columns(const conv_args &a, const S *x, int col) : a(a), x(x), live(0) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int n = col + threadIdx.x / FL_SIMT_STEP + i * STRIDE;
      int c = (int)conv_divide(n, a.by_taps);
      tap[i] = conv_tap_of(a, n - c * a.n_taps);
      tap[i].shift += c * a.x_channel;
      live |= (uint32_t)(c < a.channels) << i;
    }
  }

  void load(S *to, int64_t step) {
    int q = threadIdx.x % FL_SIMT_STEP, r = threadIdx.x / FL_SIMT_STEP;
    int64_t k = step * FL_SIMT_STEP + q;
    bool there = k < a.images * a.places;
    conv_place place = conv_place_of(a, there ? k : 0, there);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      bool valid = (live >> i & 1) && conv_inside(a, place.p, tap[i]);
      fl_copy_one(to + q * Tile::LINE + r + i * STRIDE,
                  valid ? x + place.in + tap[i].shift : x, valid);
    }
  }
};

/* --- tiles --- */

template <int D, int R>
__global__ void __launch_bounds__(FL_SIMT, D == FL_F64 ? 1 : 2)
    direct(const __grid_constant__ conv_args a) {
  typedef fl_simt<D, R> Tile;
  typedef typename Tile::S S;
  typedef typename Tile::W W;
  constexpr int SIZE = Tile::SIZE;
  extern __shared__ __align__(1024) unsigned char shared[];
  int64_t block = blockIdx.x, tile_m = block % a.tiles_m;
  int64_t tile_n = block / a.tiles_m % a.tiles_n;
  int64_t group = block / (a.tiles_m * a.tiles_n);
  int row = (int)tile_m * SIZE,
      rows = a.rows - row < SIZE ? a.rows - row : SIZE;
  int64_t place = tile_n * SIZE + threadIdx.x % SIZE;
  bool there = place < a.images * a.places;
  plain_weights<Tile> w = {
      a, (const S *)a.w + group * a.w_group + row * a.w_row, rows};
  plain_places<Tile> x = {a, (const S *)a.x + group * a.x_group,
                          conv_place_of(a, there ? place : 0, there)};
  Tile tile;
  int64_t steps =
      ((int64_t)a.channels * a.n_taps + FL_SIMT_STEP - 1) / FL_SIMT_STEP;
  fl_simt_multiply(tile, w, x, 0, steps, (S *)shared);
  __syncthreads();
  W *c = (W *)shared;
  tile.put(c);
  __syncthreads();
  S *y = (S *)a.y + x.place.out;
  for (int i = threadIdx.x / SIZE; i < rows && there; i += FL_SIMT / SIZE) {
    int64_t ch = group * a.rows + row + i;
    W v = c[i * Tile::LINE + threadIdx.x % SIZE];
    if (a.bias)
      v += fl_load<W>(a.bias, a.bias_dtype, ch);
    y[ch * a.y_channel] = fl_put<S>(v);
  }
}

/* dw, or a piece of the sum. */
template <int D, int R>
__global__ void __launch_bounds__(FL_SIMT)
    weights(const __grid_constant__ conv_args a) {
  typedef fl_simt<D, R> Tile;
  typedef typename Tile::S S;
  typedef typename Tile::W W;
  constexpr int SIZE = Tile::SIZE;
  extern __shared__ __align__(1024) unsigned char shared[];
  int64_t block = blockIdx.x, tiles = a.tiles_m * a.tiles_n;
  int64_t tile_at = block % tiles, z = block / tiles;
  int64_t group = z % a.groups, split = z / a.groups;
  int row = (int)(tile_at % a.tiles_m) * SIZE;
  int col = (int)(tile_at / a.tiles_m) * SIZE;
  int rows = a.rows - row < SIZE ? a.rows - row : SIZE;
  int width = a.channels * a.n_taps;
  int64_t first = group * a.rows + row;
  plain_slopes<Tile> dy = {a, (const S *)a.w + first * a.y_channel, rows};
  plain_columns<Tile> x(a, (const S *)a.x + group * a.x_group, col);
  int64_t steps = (a.images * a.places + FL_SIMT_STEP - 1) / FL_SIMT_STEP;
  int64_t begin = split * a.steps, end = begin + a.steps;
  Tile tile;
  fl_simt_multiply(tile, dy, x, begin, end < steps ? end : steps, (S *)shared);
  __syncthreads();
  W *c = (W *)shared;
  tile.put(c);
  __syncthreads();
  W *part = (W *)a.part + split * a.groups * a.rows * width;
  for (int i = threadIdx.x; i < rows * SIZE; i += FL_SIMT) {
    int r = i / SIZE, k = i % SIZE;
    int64_t at = (first + r) * width + col + k;
    if (col + k >= width)
      continue;
    if (a.part)
      part[at] = c[r * Tile::LINE + k];
    else
      ((S *)a.y)[at] = fl_put<S>(c[r * Tile::LINE + k]);
  }
}

/* --- few channels in a group --- */

/* A thread for each result: (image, channel, place). */
template <int D>
__global__ void __launch_bounds__(256)
    each_result(const __grid_constant__ conv_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  int64_t channels = a.groups * a.rows, all = a.images * channels * a.places;
  for (int64_t i = fl_thread(); i < all; i += fl_threads()) {
    int64_t line = conv_divide(i, a.by_places), q = i - line * a.places;
    int64_t image = line / channels, ch = line - image * channels;
    int64_t group = ch / a.rows, row = ch - group * a.rows;
    conv_place place = conv_place_of(a, image * a.places + q, true);
    const S *x = (const S *)a.x + place.in + group * a.x_group;
    const S *w = (const S *)a.w + group * a.w_group + row * a.w_row;
    W sum = a.bias ? fl_load<W>(a.bias, a.bias_dtype, ch) : W(0);
    for (int u = 0; u < a.n_taps; u++) {
      conv_tap tap = conv_tap_of(a, u);
      if (!conv_inside(a, place.p, tap))
        continue;
      for (int c = 0; c < a.channels; c++)
        sum += fl_get<W>(x[tap.shift + c * a.x_channel]) *
               fl_get<W>(w[tap.number * a.w_tap + c * a.w_channel]);
    }
    ((S *)a.y)[place.out + ch * a.y_channel] = fl_put<S>(sum);
  }
}

/* A block for each weight: (output, channel, tap). */
template <int D>
__global__ void __launch_bounds__(256)
    each_weight(const __grid_constant__ conv_args a) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  int64_t at = blockIdx.x, line = at / a.n_taps, ch = line / a.channels;
  int64_t group = ch / a.rows, c = line - ch * a.channels;
  conv_tap tap = conv_tap_of(a, (int)(at - line * a.n_taps));
  const S *x = (const S *)a.x + group * a.x_group + c * a.x_channel + tap.shift;
  const S *dy = (const S *)a.w + ch * a.y_channel;
  W sum = 0;
  for (int64_t k = threadIdx.x; k < a.images * a.places; k += blockDim.x) {
    conv_place place = conv_place_of(a, k, true);
    if (conv_inside(a, place.p, tap))
      sum += fl_get<W>(x[place.in]) * fl_get<W>(dy[place.out]);
  }
  sum = fl_block_reduce(sum, fl_sum_of(), W(0));
  if (threadIdx.x == 0)
    ((S *)a.y)[at] = fl_put<S>(sum);
}
