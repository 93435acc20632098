/* sort and topk along a dim. A line's elements become unsigned keys that order
 * as the values do (NaN greatest, -0 equal to 0), packed above their positions,
 * so that any order of packed words is stable and each occurs once. Keys of 32
 * bits and fewer go into 64-bit words, and those of integers that all lie near
 * each other; the rest into 128-bit ones. */
#include "move.h"

#define STACK  1024        /* words of a buffer that goes on the stack */
#define SHARES 16          /* buffers in scratch when it is longer */
#define PIECE  (32 << 10)  /* elements a thread takes of one long line */
#define LONG   (4 * PIECE) /* elements from which a line gets all threads */
#define BLOCK  64          /* elements compared with the limit at once */
#define FEW    32          /* wanted elements that are kept by insertion */

__extension__ typedef unsigned __int128 wide_word;

/* Lines along one dim: `n` elements each, `k` of them wanted; strides in
 * elements. */
typedef struct sorting {
  const fl_launch *l;
  fl_dtype dtype;
  size_t size;
  const char *x;
  char *values;
  int64_t *indices;
  int64_t n, k;
  int64_t x_stride, y_stride, base;
  uint64_t least; /* of long integers in 64-bit words */
  bool descending;
  int ndim;
  int64_t lines[FL_MAX_DIMS]; /* the shape without dim */
  int64_t x_strides[FL_MAX_DIMS], y_strides[FL_MAX_DIMS];
  int64_t room;  /* words in each of a line's two buffers */
  void *scratch; /* those buffers, SHARES times; NULL: on the stack */
  int64_t share; /* lines that use the same ones, in turn */
} sorting;

static inline uint64_t key_f64(uint64_t u) {
  if ((u & INT64_MAX) > (uint64_t)0x7ff << 52)
    return UINT64_MAX;
  u = u == (uint64_t)1 << 63 ? 0 : u;
  return u ^ ((uint64_t)((int64_t)u >> 63) | (uint64_t)1 << 63);
}

static inline uint32_t key_f32(uint32_t u) {
  uint32_t k = u == 0x80000000u ? 0 : u;
  k ^= (uint32_t)((int32_t)k >> 31) | 0x80000000u;
  return (u & 0x7fffffff) > 0x7f800000 ? UINT32_MAX : k;
}

/* 16-bit floats: `inf` is infinity's pattern. */
static inline uint32_t key_16(uint32_t u, uint32_t inf) {
  uint32_t k = u == 0x8000 ? 0 : u;
  k ^= k & 0x8000 ? 0xffff : 0x8000;
  return (u & 0x7fff) > inf ? UINT32_MAX : k;
}

#define PACK(key, i) ((uint64_t)((uint32_t)(key) ^ flip) << 32 | (uint32_t)(i))
#define KEYS(T, key)                                                           \
  do {                                                                         \
    const T *x = (const T *)from;                                              \
    if (stride == 1)                                                           \
      for (int64_t i = 0; i < n; i++) {                                        \
        T u = x[i];                                                            \
        w[i] = PACK(key, start + i);                                           \
      }                                                                        \
    else                                                                       \
      for (int64_t i = 0; i < n; i++) {                                        \
        T u = x[i * stride];                                                   \
        w[i] = PACK(key, start + i);                                           \
      }                                                                        \
  } while (0)

/* Words of elements start .. start + n of a line of keys up to 32 bits. */
static void load_32(const sorting *c, const char *from, int64_t start,
                    int64_t n, uint64_t *restrict w) {
  int64_t stride = c->x_stride;
  uint32_t flip = c->descending ? UINT32_MAX : 0;
  from += start * stride * (int64_t)c->size;
  switch (c->dtype) {
  case FL_F32:
    KEYS(fl_word4, key_f32(u));
    break;
  case FL_F16:
    KEYS(fl_word2, key_16(u, 0x7c00));
    break;
  case FL_BF16:
    KEYS(fl_word2, key_16(u, 0x7f80));
    break;
  case FL_I64:
    KEYS(fl_word8, u - c->least);
    break;
  case FL_I32:
    KEYS(fl_word4, u ^ 0x80000000u);
    break;
  case FL_I16:
    KEYS(fl_word2, u ^ 0x8000u);
    break;
  case FL_I8:
    KEYS(fl_word1, u ^ 0x80u);
    break;
  case FL_BOOL:
    KEYS(fl_word1, u != 0);
    break;
  default:
    KEYS(fl_word1, u);
  }
}
#undef KEYS
#undef PACK

static void load_64(const sorting *c, const char *from, int64_t start,
                    int64_t n, wide_word *w) {
  int64_t stride = c->x_stride;
  uint64_t flip = c->descending ? UINT64_MAX : 0;
  if (c->size < 8) { /* a line of more than 2^32 small elements */
    uint64_t one[64];
    for (int64_t i = 0; i < n; i += 64) {
      int64_t m = n - i < 64 ? n - i : 64;
      load_32(c, from, start + i, m, one);
      for (int64_t j = 0; j < m; j++)
        w[i + j] = (wide_word)(one[j] >> 32) << 64 | (uint64_t)(start + i + j);
    }
    return;
  }
  const fl_word8 *x = (const fl_word8 *)from + start * stride;
  for (int64_t i = 0; i < n; i++) {
    uint64_t u = x[i * stride];
    uint64_t key = c->dtype == FL_F64 ? key_f64(u) : u ^ (uint64_t)1 << 63;
    w[i] = (wide_word)(key ^ flip) << 64 | (uint64_t)(start + i);
  }
}

#define W             uint64_t
#define SHIFT         32
#define FL_NAME(name) name##_32
#include "sort.inc"
#define W             wide_word
#define SHIFT         64
#define FL_NAME(name) name##_64
#include "sort.inc"

/* Whether integers of 64 bits, which are then looked at, are all less than 2^32
 * apart. */
static bool are_near(const fl_view *x, uint64_t *least) {
  const int64_t *v = x->data;
  if (x->dtype != FL_I64 || !fl_contiguous(x))
    return false;
  int64_t n = fl_view_numel(x), low = v[0], high = v[0];
#pragma omp simd reduction(min : low) reduction(max : high)
  for (int64_t i = 0; i < n; i++) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
  }
  *least = (uint64_t)low;
  return (uint64_t)high - (uint64_t)low <= UINT32_MAX;
}

_Static_assert(FL_OUT_sort_indices == FL_OUT_topk_indices,
               "one function for both rows");

static fl_status sort_run(const fl_launch *l, int64_t k, int dim,
                          bool descending) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  sorting c = {.l = l, .dtype = x->dtype, .x = x->data, .values = y->data};
  c.size = fl_dtype_size(x->dtype);
  c.indices = l->out[FL_OUT_sort_indices].data;
  c.base = l->base;
  c.descending = descending;
  c.n = x->ndim ? x->shape[dim] : 1;
  c.k = k;
  c.ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) {
    c.lines[d] = d == dim ? 1 : x->shape[d];
    c.x_strides[d] = x->stride[d];
    c.y_strides[d] = y->stride[d];
  }
  c.x_stride = x->ndim ? x->stride[dim] : 1;
  c.y_stride = x->ndim ? y->stride[dim] : 1;
  if (c.n * fl_numel(c.ndim, c.lines) * k == 0)
    return FL_OK;
  bool small = c.size < 8 || (k == c.n && are_near(x, &c.least));
  return small && c.n <= UINT32_MAX ? lines_32(&c) : lines_64(&c);
}

FL_KERNEL(sort) {
  const fl_view *x = &l->in[0];
  int dim = (int)l->attrs->v[FL_ATTR_sort_dim].i;
  return sort_run(l, x->ndim ? x->shape[dim] : 1, dim,
                  l->attrs->v[FL_ATTR_sort_descending].i != 0);
}

FL_KERNEL(topk) {
  return sort_run(l, l->attrs->v[FL_ATTR_topk_k].i,
                  (int)l->attrs->v[FL_ATTR_topk_dim].i,
                  l->attrs->v[FL_ATTR_topk_largest].i != 0);
}
