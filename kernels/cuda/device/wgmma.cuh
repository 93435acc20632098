/* Hopper's own (sm_90a): products of warp groups from shared memory, copies of
 * tiles by tensor maps, barriers that count bytes, registers moved between warp
 * groups. Tiles for products have rows of 64 16-bit elements, swizzled as
 * tensor maps do (128 bytes), and start at multiples of 1024 bytes. */
#pragma once

#include "mma.cuh"

/* Without it, kernels that need this header are empty and never launched. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FL_HOPPER
#endif

struct alignas(64) fl_tensor_map { /* CUtensorMap */
  uint64_t opaque[16];
};

/* --- barriers in shared memory: 8 bytes each --- */

/* Opens after `count` arrivals, and once the bytes expected have come. */
inline void fl_barrier_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)
               : "memory");
}
/* Makes what fl_barrier_init wrote known to copies. */
inline void fl_barrier_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
inline void fl_barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar)
               : "memory");
}
/* An arrival that also expects `bytes` more from copies. */
inline void fl_barrier_expect(uint32_t bar, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
      "r"(bytes)
      : "memory");
}
/* Until phase `parity` (0, 1, 0, ...) has ended. */
inline void fl_barrier_wait(uint32_t bar, int parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra ready;\n"
               "bra again;\n"
               "ready:\n"
               "}" ::"r"(bar),
               "r"(parity)
               : "memory");
}
/* Barriers 1 to 15 of the block, for `threads` of it. */
inline void fl_meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
inline void fl_meet_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* --- copies of tiles --- */

/* The box of a map of four dims at (x, y, z, w), zeros where it leaves the
 * tensor. By one thread. */
inline void fl_tile_load(uint32_t to, const fl_tensor_map *map, uint32_t bar,
                         int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
/* `bytes` (a multiple of 16) side by side. By one thread. */
inline void fl_bulk_load(uint32_t to, const void *from, uint32_t bar,
                         int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
               "bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}
inline void fl_map_prefetch(const fl_tensor_map *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* What this thread has written to shared memory, before copies or products read
 * it, or copies overwrite it. */
inline void fl_fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Adds `bytes` of floats in shared memory to global memory; commit and wait as
 * a group. By one thread. */
inline void fl_bulk_add(float *to, uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
               "[%0], [%1], %2;" ::"l"(to),
               "r"(from), "r"(bytes)
               : "memory");
}
inline void fl_bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until at most N of this thread's groups still read shared memory. */
template <int N> void fl_bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* --- registers: by all warps of a warp group --- */

template <int N> void fl_registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> void fl_registers_less() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* --- products of a warp group --- */

/* Describes a tile for products. Rows are what is summed over neither in a
 * (rows, 64) tile of a, or of b transposed; there `next` does not matter, and
 * 16 elements further along the sum are 32 bytes. Of b as it is, rows are
 * summed over: `next` is the bytes to its next 64 columns, and 16 rows further
 * are 2048 bytes. */
inline uint64_t fl_tile_desc(uint32_t at, int next = 16) {
  return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Around products: before the first, after the last of a group, and until at
 * most N groups are under way. */
inline void fl_products_open() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
inline void fl_products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> void fl_products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Keeps the compiler from moving uses of sums under way. */
template <int N> void fl_products_hold(float (&c)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      asm volatile("" : "+f"(c[i][j])::"memory");
}

/* clang-format off */
#define FL_SUMS2(j)                                                            \
  "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]),                  \
  "+f"(c[j + 1][0]), "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), "+f"(c[j + 1][3])
#define FL_SUMS8(j)  FL_SUMS2(j), FL_SUMS2(j + 2), FL_SUMS2(j + 4), FL_SUMS2(j + 6)
#define FL_SUMS64    FL_SUMS8(0)
#define FL_SUMS128   FL_SUMS8(0), FL_SUMS8(8)
#define FL_LIST64                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "                  \
  "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                   \
  "%24, %25, %26, %27, %28, %29, %30, %31}"
#define FL_LIST128                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "                  \
  "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                   \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "                   \
  "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "                   \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "                   \
  "%57, %58, %59, %60, %61, %62, %63}"

/* One instruction: a from shared memory (SS) or registers (RS). */
#define FL_WGMMA_SS(N, TYPE, A, B, SCALE, TA, TB)                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE ", 0;\n"             \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
               " " FL_LIST##N ", %" A ", %" B ", p, 1, 1, %" TA ", %" TB       \
               ";\n}" : FL_SUMS##N : "l"(a), "l"(b), "r"(add), "n"(TRANS_A),   \
               "n"(TRANS_B) : "memory")
#define FL_WGMMA_RS(N, TYPE, A0, A1, A2, A3, B, SCALE, TB)                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE ", 0;\n"             \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
               " " FL_LIST##N ", {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B    \
               ", p, 1, 1, %" TB ";\n}" : FL_SUMS##N : "r"(a[0]), "r"(a[1]),   \
               "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANS_B) : "memory")
/* clang-format on */

/* c (64, N) = add ? c + a b : a b, for 16 elements of the sum; N is 64 or 128.
 * Warp w of the group has rows 16 w.. as fl_mma does; c[j] is columns 8 j...
 * a: (64, 16) as it is, or TRANS_A: (16, 64) in memory; b: transposed in memory
 * (TRANS_B 0) or as it is (TRANS_B 1). */
template <int D, int TRANS_A, int TRANS_B>
void fl_wgmma(float (&c)[8][4], uint64_t a, uint64_t b, int add) {
  if (D == FL_BF16)
    FL_WGMMA_SS(64, "bf16", "32", "33", "34", "35", "36");
  else
    FL_WGMMA_SS(64, "f16", "32", "33", "34", "35", "36");
}
template <int D, int TRANS_A, int TRANS_B>
void fl_wgmma(float (&c)[16][4], uint64_t a, uint64_t b, int add) {
  if (D == FL_BF16)
    FL_WGMMA_SS(128, "bf16", "64", "65", "66", "67", "68");
  else
    FL_WGMMA_SS(128, "f16", "64", "65", "66", "67", "68");
}
template <int D, int TRANS_B>
void fl_wgmma(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add) {
  if (D == FL_BF16)
    FL_WGMMA_RS(64, "bf16", "32", "33", "34", "35", "36", "37", "38");
  else
    FL_WGMMA_RS(64, "f16", "32", "33", "34", "35", "36", "37", "38");
}
template <int D, int TRANS_B>
void fl_wgmma(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, int add) {
  if (D == FL_BF16)
    FL_WGMMA_RS(128, "bf16", "64", "65", "66", "67", "68", "69", "70");
  else
    FL_WGMMA_RS(128, "f16", "64", "65", "66", "67", "68", "69", "70");
}

/* Two elements as floats. */
template <int D> float2 fl_unpack(uint32_t v) {
  return D == FL_BF16 ? make_float2(__uint_as_float(v << 16),
                                    __uint_as_float(v & 0xffff0000))
                      : make_float2(fl_f16_float((uint16_t)v),
                                    fl_f16_float((uint16_t)(v >> 16)));
}

/* --- ordinary accesses to shared memory by address --- */

inline void fl_store4(uint32_t to, uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}
inline float2 fl_load8(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(at)
               : "memory");
  return v;
}
inline uint4 fl_load16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
/* Adds four floats to memory that others add to: in no particular order. */
inline void fl_add4(float *to, const float (&v)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}
