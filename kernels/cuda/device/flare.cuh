/* What device code shares: dtypes and conversions, vectors of 16 bytes,
 * reductions over warps and blocks, positions and their faults, and all inline
 * PTX. Compiled by NVRTC with everything being a device function by default;
 * the formulas' functions come from runtime/math/math.h. */
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef uint64_t uintptr_t;
#define INT64_MAX 9223372036854775807LL
#define INT64_MIN (-INT64_MAX - 1)
#define INFINITY  __int_as_float(0x7f800000)
#define NAN       __int_as_float(0x7fffffff)

/* 1 / x for an x with no need of the division's slow path: with x and 1 / x far
 * from where floats end. Within 1 unit of the last place. */
inline float fl_inverse(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return fmaf(fmaf(-x, r, 1.0f), r, r);
}

#include "../../../runtime/math/math.h"

/* --- dtypes: their numbers are those of runtime/types.h --- */

enum fl_dtype {
#define FL_DTYPE(NAME, name, T, size, kind, C)   FL_##NAME,
#define FL_DTYPE_COMPLEX(NAME, name, part, size) FL_##NAME,
#include "../../../runtime/dtype.def"
  FL_NODTYPE
};

enum { FL_KIND_BOOL, FL_KIND_UINT, FL_KIND_INT, FL_KIND_FLOAT };
enum {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (FL_KIND_##kind == FL_KIND_FLOAT) << FL_##NAME
  FL_SET_FLOAT = 0
#include "../../../runtime/dtype.def"
};
#define FL_IS_FLOAT(d) (FL_SET_FLOAT >> (d) & 1)

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct bool8 {
  uint8_t bits;
};

/* fl_type<FL_BF16>::S is what memory holds, ::W what it is computed in. */
template <int D> struct fl_type;
template <> struct fl_type<FL_F64> { typedef double S, W; };
template <> struct fl_type<FL_F32> { typedef float S, W; };
template <> struct fl_type<FL_F16> { typedef f16 S; typedef float W; };
template <> struct fl_type<FL_BF16> { typedef bf16 S; typedef float W; };
template <> struct fl_type<FL_I64> { typedef int64_t S, W; };
template <> struct fl_type<FL_I32> { typedef int32_t S; typedef int64_t W; };
template <> struct fl_type<FL_I16> { typedef int16_t S; typedef int64_t W; };
template <> struct fl_type<FL_I8> { typedef int8_t S; typedef int64_t W; };
template <> struct fl_type<FL_U8> { typedef uint8_t S; typedef int64_t W; };
template <> struct fl_type<FL_BOOL> { typedef bool8 S; typedef int64_t W; };
#define FL_S(D) typename fl_type<D>::S
#define FL_W(D) typename fl_type<D>::W

/* --- conversions --- */

inline float fl_f16_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
inline uint16_t fl_float_f16(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
inline uint16_t fl_float_bf16(float f) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
inline float fl_round_f16(float f) { return fl_f16_float(fl_float_f16(f)); }
inline float fl_round_bf16(float f) {
  return __uint_as_float((uint32_t)fl_float_bf16(f) << 16);
}
/* Two at once: `low` in the lower half. */
inline uint32_t fl_pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
inline uint32_t fl_pack_f16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

/* fl_get<W>(s): a stored element as W; fl_put<S>(w): W as stored. Floats to
 * integers truncate and saturate, NaN gives 0; anything not 0 is true. */
template <class W> W fl_get(double s) { return (W)s; }
template <class W> W fl_get(float s) { return (W)s; }
template <> inline int64_t fl_get<int64_t>(double s) { return fl_to_int(s); }
template <> inline int64_t fl_get<int64_t>(float s) { return fl_to_int(s); }
template <class W> W fl_get(f16 s) { return fl_get<W>(fl_f16_float(s.bits)); }
template <class W> W fl_get(bf16 s) {
  return fl_get<W>(__uint_as_float((uint32_t)s.bits << 16));
}
template <class W> W fl_get(int64_t s) { return (W)s; }
template <class W> W fl_get(int32_t s) { return (W)s; }
template <class W> W fl_get(int16_t s) { return (W)s; }
template <class W> W fl_get(int8_t s) { return (W)s; }
template <class W> W fl_get(uint8_t s) { return (W)s; }
template <class W> W fl_get(bool8 s) { return (W)(s.bits != 0); }

template <class S> struct fl_store {
  template <class W> static S put(W w) { return (S)w; }
};
#define FL_STORE_INT(S, low, high)                                             \
  template <> struct fl_store<S> {                                             \
    static S put(int64_t w) { return (S)w; }                                   \
    static S put(double w) {                                                   \
      int64_t i = fl_to_int(w);                                                \
      return (S)(i < (low) ? (low) : i > (high) ? (high) : i);                 \
    }                                                                          \
    static S put(float w) { return put((double)w); }                           \
  };
FL_STORE_INT(int64_t, INT64_MIN, INT64_MAX)
FL_STORE_INT(int32_t, -2147483647LL - 1, 2147483647LL)
FL_STORE_INT(int16_t, -32768LL, 32767LL)
FL_STORE_INT(int8_t, -128LL, 127LL)
FL_STORE_INT(uint8_t, 0LL, 255LL)
template <> struct fl_store<f16> {
  template <class W> static f16 put(W w) { return f16{fl_float_f16((float)w)}; }
};
template <> struct fl_store<bf16> {
  template <class W> static bf16 put(W w) {
    return bf16{fl_float_bf16((float)w)};
  }
};
template <> struct fl_store<bool8> {
  template <class W> static bool8 put(W w) { return bool8{(uint8_t)(w != 0)}; }
};
template <class S, class W> S fl_put(W w) { return fl_store<S>::put(w); }

/* Element i of memory whose dtype is known at run time only. */
template <class W> W fl_load(const void *p, int dtype, int64_t i) {
  switch (dtype) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  case FL_##NAME:                                                              \
    return fl_get<W>(((const FL_S(FL_##NAME) *)p)[i]);
#include "../../../runtime/dtype.def"
  }
  return W(0);
}
template <class W> void fl_save(void *p, int dtype, int64_t i, W w) {
  switch (dtype) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  case FL_##NAME:                                                              \
    ((FL_S(FL_##NAME) *)p)[i] = fl_put<FL_S(FL_##NAME)>(w);                    \
    break;
#include "../../../runtime/dtype.def"
  }
}

/* --- N elements in one access of up to 16 bytes --- */

template <class S, int N> struct alignas(sizeof(S) * N) fl_vec {
  S at[N];
};
template <class S, int N> fl_vec<S, N> fl_read(const S *p) {
  return *(const fl_vec<S, N> *)p;
}
template <class S, int N> void fl_write(S *p, const fl_vec<S, N> &v) {
  *(fl_vec<S, N> *)p = v;
}
/* The same from global memory, and to memory there that the kernel does not
 * read: compilers take vectors apart, and in loops, or where they are to be
 * quick, they may not put them together again. */
template <class S, int N> fl_vec<S, N> fl_fetch(const S *p) {
  fl_vec<S, N> v;
  uint32_t w[4];
  if constexpr (sizeof(v) == 16)
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(__cvta_generic_to_global(p)));
  else if constexpr (sizeof(v) == 8)
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1])
                 : "l"(__cvta_generic_to_global(p)));
  else
    return fl_read<S, N>(p);
  memcpy(&v, w, sizeof v);
  return v;
}
template <class S, int N> void fl_leave(S *p, const fl_vec<S, N> &v) {
  uint32_t w[4];
  if constexpr (sizeof(v) == 16 || sizeof(v) == 8)
    memcpy(w, &v, sizeof v);
  else
    fl_write(p, v);
  if constexpr (sizeof(v) == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(p)),
                 "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]));
  else if constexpr (sizeof(v) == 8)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(
                     __cvta_generic_to_global(p)),
                 "r"(w[0]), "r"(w[1]));
}

/* --- reductions: the result is in every lane, or thread --- */

struct fl_sum_of {
  template <class T> T operator()(T a, T b) const { return a + b; }
};
/* The larger, NaN if either is. */
inline float fl_most_nan(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
struct fl_max_of { /* NaN wins */
  template <class T> T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct fl_min_of {
  template <class T> T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

template <int LANES = 32, class T, class Op> T fl_warp_reduce(T v, Op op) {
#pragma unroll
  for (int k = LANES / 2; k > 0; k /= 2)
    v = op(v, __shfl_xor_sync(0xffffffff, v, k));
  return v;
}

/* All threads of the block (a multiple of 32, at most 1024) must come here. */
template <class T, class Op> T fl_block_reduce(T v, Op op, T identity) {
  __shared__ T part[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  v = fl_warp_reduce(v, op);
  if (warps == 1)
    return v;
  __syncthreads(); /* part may still be read by an earlier reduction */
  if (lane == 0)
    part[warp] = v;
  __syncthreads();
  return fl_warp_reduce(lane < warps ? part[lane] : identity, op);
}

/* --- positions --- */

struct fl_fault_word { /* in device memory; the host has a mirror */
  uint64_t seq;
  int64_t position, bound; /* position counts from 0 */
  struct fl_fault_word *mirror;
};
struct flc_fault { /* as in cuda.h */
  fl_fault_word *word;
  uint64_t seq;
  int64_t base;
};

/* Whether a launch of this stream has failed: then nothing may be changed that
 * outlives the step. */
inline bool fl_faulty(const flc_fault &f) {
  return *(volatile uint64_t *)&f.word->seq != 0;
}

/* Reports the first fault of a stream: the host reads the mirror. */
inline void fl_report(const flc_fault &f, int64_t position, int64_t bound) {
  if (atomicCAS((unsigned long long *)&f.word->seq, 0ull,
                (unsigned long long)f.seq) != 0)
    return;
  fl_fault_word *m = f.word->mirror;
  *(volatile int64_t *)&m->position = position;
  *(volatile int64_t *)&m->bound = bound;
  __threadfence_system();
  *(volatile uint64_t *)&m->seq = f.seq;
}

/* Position `stored`, counted from f.base, as one from 0 below bound. A bad one
 * is reported once, and 0 is taken instead: read or write nothing harmful. */
inline int64_t fl_position(const flc_fault &f, int64_t stored, int64_t bound,
                           bool *good = nullptr) {
  int64_t i = stored - f.base;
  bool ok = (uint64_t)i < (uint64_t)bound;
  if (good)
    *good = ok;
  if (ok)
    return i;
  fl_report(f, i, bound);
  return 0;
}

/* --- this thread's place --- */

inline int64_t fl_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
inline int64_t fl_threads() { return (int64_t)gridDim.x * blockDim.x; }
