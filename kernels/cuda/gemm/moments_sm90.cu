/* Products of 16-bit floats on Hopper that find the mean and the deviation of
 * each column of what they store. Blocks stay, one for each multiprocessor, and
 * keep to their columns. While one warp group finishes a tile, the other one
 * multiplies the next. */
#define FL_STEP 64

#include "../device/tile_sm90.cuh"

#include "moments.h"

#ifdef FL_HOPPER

/* Four matrices of 8 x 8 elements from the registers of a warp, as products
 * have them; lane 8 i + r says where line r of matrix i is. */
inline void put_matrices(uint32_t to, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, "
               "%4};" ::"r"(to),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/* The box of a map at (x, y) from shared memory: commit and wait as a group. By
 * one thread. */
inline void put_box(const fl_tensor_map *map, uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, "
               "{%2, %3, %4, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(0)
               : "memory");
}
inline void wait_for_boxes() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
inline uint32_t load4(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}

template <int D> uint32_t pack(float low, float high) {
  return D == FL_BF16 ? fl_pack_bf16(low, high) : fl_pack_f16(low, high);
}

struct moment {
  float n, mean, square;
};
inline moment joined(moment a, moment b) {
  float n = a.n + b.n;
  if (n == 0)
    return a;
  float d = b.mean - a.mean, w = b.n / n;
  return {n, a.mean + d * w, a.square + b.square + d * d * (a.n * w)};
}

/* Of boxes of 16 rows and 64 columns in shared memory, of which a lane has two
 * columns: their moments join those so far. The mean of each box of rows is
 * found first. */
template <int D, int HIGH, int BOXES> struct columns {
  float n, mean[BOXES][2], square[BOXES][2];

  columns() : n(0), mean(), square() {}

  /* `rows` of the warp's are C's; others are zeros. */
  void add(uint32_t at, float rows) {
    int lane = threadIdx.x & 31;
    float all = n + rows, w = rows / all, nw = n * w, each = 1 / rows;
    float beyond = HIGH * 16 - rows;
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
      uint32_t x[HIGH][16];
      float s[2] = {0, 0}, q[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int y = 0; y < 16; y++) {
          x[i][y] = load4(at + (i * BOXES + b) * 2048 + y * 128 +
                          ((lane >> 2 ^ (y & 7)) << 4) + (lane & 3) * 4);
          float2 v = fl_unpack<D>(x[i][y]);
          s[0] += v.x;
          s[1] += v.y;
        }
      s[0] *= each;
      s[1] *= each;
#pragma unroll
      for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int y = 0; y < 16; y++) {
          float2 v = fl_unpack<D>(x[i][y]);
          q[0] += (v.x - s[0]) * (v.x - s[0]);
          q[1] += (v.y - s[1]) * (v.y - s[1]);
        }
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float d = s[e] - mean[b][e];
        mean[b][e] += d * w;
        square[b][e] += q[e] - beyond * s[e] * s[e] + d * d * nw;
      }
    }
    n = all;
  }
};

template <int D, int N> struct block {
  static constexpr int M = MOMENTS_ROWS, STAGES = MOMENTS_STAGES;
  static constexpr int B_AT = M * 128, BYTES = B_AT + N * 128;
  static constexpr int HIGH = M / 64, BOXES = N / 64, OUT = M * N * 2;
  const moments_sm90 &g;
  uint32_t shared, out, full, empty;

  block(const moments_sm90 &g, unsigned char *at)
      : g(g), shared(fl_shared(at)), out(shared + STAGES * BYTES),
        full(out + 2 * OUT), empty(full + STAGES * 8) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) {
        fl_barrier_init(full + i * 8, 1);
        fl_barrier_init(empty + i * 8, 4); /* warps of a group */
      }
      fl_barrier_ready();
    }
    __syncthreads();
  }

  int row_of(uint32_t item) {
    return (int)(item / g.across) * M;
  }
  int column() { /* gridDim.x is a multiple of `across` */
    return (int)(blockIdx.x % g.across) * N;
  }

  /* All tiles of this block. By one thread. */
  void load() {
    const fl_tensor_map *a = (const fl_tensor_map *)&g.a;
    const fl_tensor_map *b = (const fl_tensor_map *)&g.b;
    int stage = 0, phase = 0, col = column();
    for (uint32_t item = blockIdx.x; item < g.items; item += gridDim.x)
      for (int s = 0; s < g.steps; s++) {
        uint32_t to = shared + stage * BYTES, bar = full + stage * 8;
        fl_barrier_wait(empty + stage * 8, phase ^ 1);
        fl_barrier_expect(bar, BYTES);
        fl_tile_load(to, a, bar, s * FL_STEP, row_of(item), 0, 0);
        fl_tile_load(to + B_AT, b, bar, s * FL_STEP, col, 0, 0);
        if (++stage == STAGES) {
          stage = 0;
          phase ^= 1;
        }
      }
  }

  /* The steps of a tile, the first of which is number `at` of the block's. */
  void multiply(float (&sum)[HIGH][N / 8][4], int at) {
    int stage = at % STAGES, phase = at / STAGES & 1, before = -1, s = 0;
    do {
      fl_barrier_wait(full + stage * 8, phase);
      uint32_t a = shared + stage * BYTES;
      fl_products_open();
#pragma unroll
      for (int k = 0; k < FL_STEP / 16; k++)
#pragma unroll
        for (int i = 0; i < HIGH; i++)
          fl_wgmma<D, 0, 0>(sum[i], fl_tile_desc(a + i * 8192 + k * 32),
                            fl_tile_desc(a + B_AT + k * 32), s | k);
      fl_products_commit();
      fl_products_wait<1>();
      if (before >= 0 && threadIdx.x % 32 == 0)
        fl_barrier_arrive(empty + before * 8);
      before = stage;
      if (++stage == STAGES) {
        stage = 0;
        phase ^= 1;
      }
    } while (++s < g.steps);
    fl_meet_arrive(1 + (threadIdx.x >> 7 ^ 1), 256); /* the other's turn */
    fl_products_wait<0>();
#pragma unroll
    for (int i = 0; i < HIGH; i++)
      fl_products_hold(sum[i]);
    if (threadIdx.x % 32 == 0)
      fl_barrier_arrive(empty + before * 8);
  }

  /* A warp's rows, `row` and 64 further on, by way of boxes at `mine`. */
  void store(float (&sum)[HIGH][N / 8][4], uint32_t mine, int row, int col) {
    int lane = threadIdx.x & 31, r = lane & 15, j0 = lane >> 4;
    if (lane == 0)
      fl_bulk_wait_read<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < N / 8; j += 2) {
        float(&a)[4] = sum[i][j], (&b)[4] = sum[i][j + 1];
        uint32_t v[4] = {pack<D>(a[0], a[1]), pack<D>(a[2], a[3]),
                         pack<D>(b[0], b[1]), pack<D>(b[2], b[3])};
        put_matrices(mine + (i * BOXES + j / 8) * 2048 + r * 128 +
                         (((j % 8 + j0) ^ (r & 7)) << 4),
                     v);
      }
    fl_fence_async();
    __syncwarp();
    if (lane > 0)
      return;
    for (int i = 0; i < HIGH; i++)
      for (int b = 0; b < BOXES; b++)
        if (row + i * 64 < g.m && col + b * 64 < g.n)
          put_box((const fl_tensor_map *)&g.c, mine + (i * BOXES + b) * 2048,
                  col + b * 64, row + i * 64);
    fl_bulk_commit();
  }

  /* The warps' moments become the block's, in global memory. */
  void leave(const columns<D, HIGH, BOXES> &c, float *at, int col) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float *count = at + 8 * N * 2;
    fl_meet(3, 256); /* tiles have left shared memory */
#pragma unroll
    for (int b = 0; b < BOXES; b++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        *(float2 *)(at + (warp * N + b * 64 + lane * 2 + e) * 2) =
            make_float2(c.mean[b][e], c.square[b][e]);
    if (lane == 0)
      count[warp] = c.n;
    fl_meet(3, 256);
    int i = threadIdx.x;
    if (i >= N || col + i >= g.n)
      return;
    moment m = {0, 0, 0};
    for (int w = 0; w < 8; w++) {
      float2 v = *(float2 *)(at + (w * N + i) * 2);
      m = joined(m, {count[w], v.x, v.y});
    }
    *(float4 *)(g.part + (blockIdx.x / g.across * g.n + col + i) * 4) =
        make_float4(m.n, m.mean, 0, m.square);
  }

  void finish(unsigned char *at) {
    int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, col = column();
    uint32_t mine = out + group * OUT + warp * (16 * N * 2 * HIGH);
    columns<D, HIGH, BOXES> c;
    int steps = group * g.steps;
    if (group == 1)
      fl_meet_arrive(1, 256);
    for (uint32_t item = blockIdx.x + group * gridDim.x; item < g.items;
         item += 2 * gridDim.x) {
      int row = row_of(item) + warp * 16, rows = 0;
      float sum[HIGH][N / 8][4];
      fl_meet(1 + group, 256);
      multiply(sum, steps);
      steps += 2 * g.steps;
      store(sum, mine, row, col);
#pragma unroll
      for (int i = 0; i < HIGH; i++)
        rows += min(max((int)g.m - row - i * 64, 0), 16);
      if (rows > 0)
        c.add(mine, (float)rows);
    }
    if (threadIdx.x % 32 == 0)
      wait_for_boxes();
    leave(c, (float *)(at + STAGES * BYTES), col);
  }
};

#endif

template <int D, int N>
__global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ moments_sm90 g) {
#ifdef FL_HOPPER
  extern __shared__ __align__(1024) unsigned char shared[];
  block<D, N> b(g, shared);
  if (threadIdx.x >= 256) {
    fl_registers_less<40>();
    if (threadIdx.x == 256)
      b.load();
    return;
  }
  fl_registers_more<232>();
  b.finish(shared);
#endif
}
