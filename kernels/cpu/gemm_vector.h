/* Vectors of T for the matrix product: loads, stores, parts of a vector,
 * transposition and sums. By the compiler's vector extension, so that one text
 * serves AVX-512, AVX2, SSE and NEON; intrinsics only where a mask is needed.
 * Included behind typed.h. */

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES   64
#define IN_REGISTER(x) __asm__("" : "+v"(x))
#elif defined(__AVX2__)
#define VECTOR_BYTES   32
#define IN_REGISTER(x) __asm__("" : "+x"(x))
#else
#define VECTOR_BYTES 16
#if defined(__SSE2__)
#define IN_REGISTER(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define IN_REGISTER(x) __asm__("" : "+w"(x))
#else
#define IN_REGISTER(x) (void)(x)
#endif
#endif

#if FL_T_IS_F32
#define VL (VECTOR_BYTES / 4)
#else
#define VL (VECTOR_BYTES / 8)
#endif

/* f(s, lane) for all lanes */
#define LANES2(f, s) f(s, 0), f(s, 1)
#define LANES4(f, s) LANES2(f, s), f(s, 2), f(s, 3)
#define LANES8(f, s) LANES4(f, s), f(s, 4), f(s, 5), f(s, 6), f(s, 7)
#define LANES16(f, s)                                                          \
  LANES8(f, s), f(s, 8), f(s, 9), f(s, 10), f(s, 11), f(s, 12), f(s, 13),      \
      f(s, 14), f(s, 15)
#if FL_T_IS_F32 && VECTOR_BYTES == 64
#define LANES LANES16
#elif (FL_T_IS_F32 && VECTOR_BYTES == 32) || VECTOR_BYTES == 64
#define LANES LANES8
#elif FL_T_IS_F32 || VECTOR_BYTES == 32
#define LANES LANES4
#else
#define LANES LANES2
#endif

/* Of loops over registers: all of it, before registers are given out. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define FORCE static inline __attribute__((always_inline))

typedef T vec __attribute__((vector_size(VECTOR_BYTES)));
typedef T vec_anywhere
    __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));

FORCE vec load(const T *p) {
  return *(const vec_anywhere *)p;
}
FORCE void store(T *p, vec v) {
  *(vec_anywhere *)p = v;
}
FORCE vec splat(T x) {
#define SAME(s, l) x
  return (vec){LANES(SAME, 0)};
#undef SAME
}

/* The first n lanes (0 < n <= VL) of memory; the others are 0 and not touched.
 */
#if defined(__AVX512F__)
#define PARTS_ARE_FREE 1 /* a masked load costs what a load costs */
#if FL_T_IS_F32
typedef __mmask16 part;
#define PART_LOAD  _mm512_maskz_loadu_ps
#define PART_STORE _mm512_mask_storeu_ps
#else
typedef __mmask8 part;
#define PART_LOAD  _mm512_maskz_loadu_pd
#define PART_STORE _mm512_mask_storeu_pd
#endif
FORCE part first(int64_t n) {
  return (part)((1u << n) - 1);
}
FORCE vec load_part(const T *p, part n) {
  return PART_LOAD(n, p);
}
FORCE void store_part(T *p, vec v, part n) {
  PART_STORE(p, n, v);
}
#elif defined(__AVX2__)
#define PARTS_ARE_FREE 0
typedef __m256i part;
#if FL_T_IS_F32
FORCE part first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#define PART_LOAD  _mm256_maskload_ps
#define PART_STORE _mm256_maskstore_ps
#else
FORCE part first(int64_t n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n),
                            _mm256_setr_epi64x(0, 1, 2, 3));
}
#define PART_LOAD  _mm256_maskload_pd
#define PART_STORE _mm256_maskstore_pd
#endif
FORCE vec load_part(const T *p, part n) {
  return PART_LOAD(p, n);
}
FORCE void store_part(T *p, vec v, part n) {
  PART_STORE(p, n, v);
}
#else
#define PARTS_ARE_FREE 0
typedef int64_t part;
FORCE part first(int64_t n) {
  return n;
}
FORCE vec load_part(const T *p, part n) {
  vec v = {0};
  UNROLL
  for (int i = 0; i < VL; i++)
    if (i < n)
      v[i] = p[i];
  return v;
}
FORCE void store_part(T *p, vec v, part n) {
  UNROLL
  for (int i = 0; i < VL; i++)
    if (i < n)
      p[i] = v[i];
}
#endif

#define SHUFFLE(x, y, f, s) __builtin_shufflevector(x, y, LANES(f, s))

/* Blocks of 128 bits, in which unpack instructions work. */
#define BLOCK  (16 / (int)sizeof(T))
#define BLOCKS (VL / BLOCK)
/* In each block: x0 y0 x1 y1 of the lower (h = 0) or upper half; pairs of lanes
 * of floats: x0 x1 y0 y1 or x2 x3 y2 y3. */
#define ZIP(h, l)                                                              \
  ((l) / BLOCK * BLOCK + (l) % BLOCK / 2 + (h)*BLOCK / 2 + ((l) % 2 ? VL : 0))
#define ZIP_PAIRS(h, l) ((l) / 4 * 4 + (l) % 2 + 2 * (h) + ((l)&2 ? VL : 0))
/* Blocks h, h + 2 ... of x, then those of y. */
#define DEAL(h, l)                                                             \
  ((l) / BLOCK < (BLOCKS + 1) / 2                                              \
       ? (2 * ((l) / BLOCK) + (h)) * BLOCK + (l) % BLOCK                       \
       : (2 * ((l) / BLOCK - BLOCKS / 2) + (h)) * BLOCK + (l) % BLOCK + VL)

/* Rows to columns: inside the blocks first, then the blocks themselves. */
FORCE void transpose(vec r[VL]) {
  UNROLL
  for (int g = 0; g < VL; g += BLOCK) {
    vec *q = r + g;
    vec a = SHUFFLE(q[0], q[1], ZIP, 0), b = SHUFFLE(q[0], q[1], ZIP, 1);
#if FL_T_IS_F32
    vec c = SHUFFLE(q[2], q[3], ZIP, 0), d = SHUFFLE(q[2], q[3], ZIP, 1);
    q[0] = SHUFFLE(a, c, ZIP_PAIRS, 0);
    q[1] = SHUFFLE(a, c, ZIP_PAIRS, 1);
    q[2] = SHUFFLE(b, d, ZIP_PAIRS, 0);
    q[3] = SHUFFLE(b, d, ZIP_PAIRS, 1);
#else
    q[0] = a;
    q[1] = b;
#endif
  }
#if VECTOR_BYTES > 16
  UNROLL
  for (int i = 0; i < BLOCK; i++) {
    vec a = SHUFFLE(r[i], r[i + BLOCK], DEAL, 0),
        b = SHUFFLE(r[i], r[i + BLOCK], DEAL, 1);
#if VECTOR_BYTES == 64
    vec c = SHUFFLE(r[i + 2 * BLOCK], r[i + 3 * BLOCK], DEAL, 0),
        d = SHUFFLE(r[i + 2 * BLOCK], r[i + 3 * BLOCK], DEAL, 1);
    r[i] = SHUFFLE(a, c, DEAL, 0);
    r[i + BLOCK] = SHUFFLE(b, d, DEAL, 0);
    r[i + 2 * BLOCK] = SHUFFLE(a, c, DEAL, 1);
    r[i + 3 * BLOCK] = SHUFFLE(b, d, DEAL, 1);
#else
    r[i] = a;
    r[i + BLOCK] = b;
#endif
  }
#endif
}

/* Of two vectors seen as rows of blocks of s lanes: x0 y0 x2 y2 ... and
 * x1 y1 x3 y3 ... */
#define EVEN(s, l) ((l) & (s) ? VL + (l) - (s) : (l))
#define ODD(s, l)  ((l) & (s) ? VL + (l) : (l) + (s))

/* A vector of the sums of VL vectors. */
#define SUMS_STEP(s)                                                           \
  UNROLL for (int i = 0; i < (s); i++) r[i] =                                  \
      SHUFFLE(r[i], r[i + (s)], EVEN, s) + SHUFFLE(r[i], r[i + (s)], ODD, s);
FORCE vec sums(vec r[VL]) {
#if FL_T_IS_F32 && VECTOR_BYTES == 64
  SUMS_STEP(8)
#endif
#if (FL_T_IS_F32 && VECTOR_BYTES >= 32) || VECTOR_BYTES == 64
  SUMS_STEP(4)
#endif
#if FL_T_IS_F32 || VECTOR_BYTES >= 32
  SUMS_STEP(2)
#endif
  SUMS_STEP(1)
  return r[0];
}
