/* Tiles of matrices: shared memory without bank conflicts, asynchronous copies
 * into it, fragments from it, and products of fragments. Inline PTX of sm_80
 * and, below FLARE_ARCH >= 900, of sm_90a. */
#pragma once

#include "flare.cuh"

/* The address that instructions on shared memory take. */
inline uint32_t fl_shared(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* Where 16-byte chunk `chunk` of row `row` lies in a tile whose rows have ROW
 * bytes (a multiple of 32): 8 rows' chunks of one column, which ldmatrix reads
 * at once, fall into different banks. */
template <int ROW> uint32_t fl_swizzle(int row, int chunk) {
  int turn = ROW % 128 == 0  ? row & 7
             : ROW % 64 == 0 ? (row >> 1) & 3
                             : (row >> 2) & 1;
  return (uint32_t)(row * ROW + ((chunk ^ turn) << 4));
}

/* --- copies from global to shared memory, 16 bytes each --- */

/* Zeros where not `valid`; `from` must be an address all the same. */
inline void fl_copy16(uint32_t to, const void *from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
/* SIZE of 4, 8 or 16 bytes: the first `bytes` of them from memory, aligned to
 * SIZE, zeros after that. */
template <int SIZE>
void fl_copy_part(uint32_t to, const void *from, int bytes) {
  if (SIZE == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from), "n"(SIZE), "r"(bytes)
                 : "memory");
}
inline void fl_store16(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]),
               "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}
inline void fl_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most N of this thread's groups are under way. */
template <int N> void fl_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* --- fragments: 8 x 8 matrices of 16-bit elements --- */

/* Lane i gives the address of row i % 8 of matrix i / 8. A register gets the
 * elements (lane / 4, 2 * (lane % 4) + {0, 1}); transposed, those of the
 * transposed matrix. */
inline void fl_ldmatrix(uint32_t &r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r)
               : "r"(at)
               : "memory");
}
inline void fl_ldmatrix(uint32_t (&r)[2], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(at)
               : "memory");
}
inline void fl_ldmatrix(uint32_t (&r)[4], uint32_t at) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(at)
      : "memory");
}
inline void fl_ldmatrix_trans(uint32_t &r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r)
               : "r"(at)
               : "memory");
}
inline void fl_ldmatrix_trans(uint32_t (&r)[2], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(at)
               : "memory");
}
inline void fl_ldmatrix_trans(uint32_t (&r)[4], uint32_t at) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(at)
      : "memory");
}

/* c (16, 8) += a (16, 16) * b (16, 8), D is FL_BF16 or FL_F16. Of each 8 x 8
 * quarter a lane has row lane / 4 and columns 2 * (lane % 4) + {0, 1}; b's
 * registers are those of its transposed quarters. a's quarters are in the
 * order (0, 0), (8, 0), (0, 8), (8, 8); c[0..1] is row lane / 4, c[2..3] row
 * lane / 4 + 8. */
template <int D>
void fl_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (D == FL_BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}

/* c (16, 8) += a (16, 8) * b (8, 8) of floats, whose upper 11 bits count: a's
 * are (lane / 4, lane % 4), 8 rows after that, both 4 columns on; b's (lane %
 * 4, lane / 4) and 4 rows after that; c as above. */
inline void fl_mma_tf32(float (&c)[4], const uint32_t (&a)[4],
                        const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* c (8, 8) += a (8, 4) * b (4, 8) in double: a is (lane / 4, lane % 4), b is
 * (lane % 4, lane / 4), c[0..1] is (lane / 4, 2 * (lane % 4) + {0, 1}). */
inline void fl_mma(double (&c)[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, "
               "{%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
}

/* Two floats as one register of elements, `low` in the lower half. */
template <int D> uint32_t fl_pack(float low, float high) {
  return D == FL_BF16 ? fl_pack_bf16(low, high) : fl_pack_f16(low, high);
}

/* 2 ^ x, to 2 ulp; 0 for -inf. */
inline float fl_exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
