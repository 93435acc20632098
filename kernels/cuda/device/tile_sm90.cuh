/* The product of tile.cuh on Hopper's warp groups (sm_90a): sums of 64 rows and
 * up to 256 columns straight from shared memory, while the next steps are on
 * their way. */
#pragma once

#include "wgmma.cuh"

#ifdef FL_HOPPER

/* clang-format off */
#define FL_SUMS256                                                             \
  FL_SUMS8(0), FL_SUMS8(8), FL_SUMS8(16), FL_SUMS8(24)
#define FL_LIST256 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, " \
  "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, " \
  "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, " \
  "%57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
  "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
  "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
  "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, " \
  "%101, %102, %103, %104, %105, %106, %107, %108, %109, " \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, " \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127}"
/* clang-format on */

template <int D, int TRANS_A, int TRANS_B>
void fl_wgmma(float (&c)[32][4], uint64_t a, uint64_t b, int add) {
  if (D == FL_BF16)
    FL_WGMMA_SS(256, "bf16", "128", "129", "130", "131", "132");
  else
    FL_WGMMA_SS(256, "f16", "128", "129", "130", "131", "132");
}

/* C (BM, BN) of one block, cut among warp groups by rows. */
template <int D, int BM, int BN, int THREADS_, bool AK, bool BK>
struct fl_hopper_tile {
  static constexpr int THREADS = THREADS_, HIGH = BM * 2 / THREADS;
  static constexpr int B_AT = BM * 128, BYTES = B_AT + BN * 128; /* of a step */
  static constexpr int PART = 64 * 128; /* 64 rows, or lines of 64 columns */
  float sum[HIGH][BN / 8][4];

  void clear() {
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          sum[i][j][e] = 0;
  }

  /* Queues the products of the step that lies at `at`; `add`: to what is there.
   */
  void step(uint32_t at, int add) {
    uint32_t a = at + (threadIdx.x >> 7) * (HIGH * PART), b = at + B_AT;
    fl_products_open();
#pragma unroll
    for (int k = 0; k < FL_STEP / 16; k++) {
      uint64_t bd =
          BK ? fl_tile_desc(b + k * 32) : fl_tile_desc(b + k * 16 * 128, PART);
#pragma unroll
      for (int i = 0; i < HIGH; i++)
        fl_wgmma<D, !AK, !BK>(
            sum[i], fl_tile_desc(a + i * PART + k * (AK ? 32 : 16 * 128)), bd,
            add | k);
    }
    fl_products_commit();
  }
  void wait() {
    fl_products_wait<0>();
#pragma unroll
    for (int i = 0; i < HIGH; i++)
      fl_products_hold(sum[i]);
  }

  /* As of fl_tile. */
  template <int LD> void put(float *to) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int row = (warp >> 2) * HIGH * 64 + (warp & 3) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        float *p = to + (row + i * 64) * LD + j * 8 + lane % 4 * 2;
        *(float2 *)p = make_float2(sum[i][j][0], sum[i][j][1]);
        *(float2 *)(p + 8 * LD) = make_float2(sum[i][j][2], sum[i][j][3]);
      }
  }
  template <int LD> void put_turned(float *to) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int row = (warp >> 2) * HIGH * 64 + (warp & 3) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          to[(j * 8 + lane % 4 * 2 + (e & 1)) * LD + row + i * 64 +
             (e >> 1) * 8] = sum[i][j][e];
  }
};

/* As of fl_tile. Where a block has a multiprocessor for itself (ALONE), a
 * product may be under way while the next is queued: what it reads is written
 * again a step later. Others wait for it, and have a step more on its way. */
template <int STAGES, bool ALONE, class Tile, class A, class B>
void fl_hopper_multiply(Tile &t, A &a, B &b, int begin, int end,
                        uint32_t shared) {
  constexpr int AHEAD = STAGES - 1 - ALONE;
#pragma unroll
  for (int s = 0; s < AHEAD; s++) {
    if (begin + s < end) {
      a.load(shared + s * Tile::BYTES, begin + s);
      b.load(shared + s * Tile::BYTES + Tile::B_AT, begin + s);
    }
    fl_copy_commit();
  }
  if (begin >= end) {
    t.clear();
    return;
  }
  int read = 0, write = AHEAD, step = begin;
  do {
    fl_copy_wait<AHEAD - 1>();
    fl_fence_async();
    __syncthreads();
    t.step(shared + read * Tile::BYTES, step - begin);
    int next = step + AHEAD;
    if (next < end) {
      a.load(shared + write * Tile::BYTES, next);
      b.load(shared + write * Tile::BYTES + Tile::B_AT, next);
    }
    fl_copy_commit();
    fl_products_wait<ALONE>();
    read = read + 1 == STAGES ? 0 : read + 1;
    write = write + 1 == STAGES ? 0 : write + 1;
  } while (++step < end);
  t.wait();
  fl_copy_wait<0>();
  __syncthreads();
}

#endif
