/* Between dtypes, and between strided views and contiguous memory: how every
 * kernel gets its operands in the type that it computes in. Also small helpers
 * on views that all kernel files share. */
#include "../../runtime/math/math.h"
#include "move.h"

/* --- n contiguous elements --- */

/* Integers from a number: truncated, saturated, NaN to 0; from integers the low
 * bits. */
#define SATURATE(v, low, high)                                                 \
  ((v) != (v) ? 0 : (v) <= (low) ? (low) : (v) >= (high) ? (high) : (v))
#define TO_INT(v, T, low, high)                                                \
  _Generic((v), float                                                          \
           : (T)SATURATE((double)(v), (double)(low), (double)(high)), double   \
           : (T)SATURATE((double)(v), (double)(low), (double)(high)), default  \
           : (T)(int64_t)(v))

#define LOAD_F64(v)  (v)
#define LOAD_F32(v)  (v)
#define LOAD_F16(v)  fl_from_f16(v)
#define LOAD_BF16(v) fl_from_bf16(v)
#define LOAD_I64(v)  (v)
#define LOAD_I32(v)  (v)
#define LOAD_I16(v)  (v)
#define LOAD_I8(v)   (v)
#define LOAD_U8(v)   (v)
#define LOAD_BOOL(v) (v)

#define STORE_F64(v)  ((double)(v))
#define STORE_F32(v)  ((float)(v))
#define STORE_F16(v)  fl_to_f16((float)(v))
#define STORE_BF16(v) fl_to_bf16((float)(v))
#define STORE_I64(v)  to_i64(v)
#define STORE_I32(v)  TO_INT(v, int32_t, INT32_MIN, INT32_MAX)
#define STORE_I16(v)  TO_INT(v, int16_t, INT16_MIN, INT16_MAX)
#define STORE_I8(v)   TO_INT(v, int8_t, INT8_MIN, INT8_MAX)
#define STORE_U8(v)   TO_INT(v, uint8_t, 0, UINT8_MAX)
#define STORE_BOOL(v) ((uint8_t)((v) != 0))

#define to_i64(v)                                                              \
  _Generic((v), float                                                          \
           : fl_to_int((double)(v)), double                                    \
           : fl_to_int((double)(v)), default                                   \
           : (int64_t)(v))

typedef double type_F64;
typedef float type_F32;
typedef uint16_t type_F16;
typedef uint16_t type_BF16;
typedef int64_t type_I64;
typedef int32_t type_I32;
typedef int16_t type_I16;
typedef int8_t type_I8;
typedef uint8_t type_U8;
typedef uint8_t type_BOOL;

#define PAIR(FROM, TO)                                                         \
  case FL_##TO: {                                                              \
    const type_##FROM *restrict a = in;                                        \
    type_##TO *restrict y = out;                                               \
    for (int64_t i = 0; i < n; i++)                                            \
      y[i] = (type_##TO)STORE_##TO(LOAD_##FROM(a[i]));                         \
    return;                                                                    \
  }
#define FROM(F)                                                                \
  static void from_##F(int64_t n, fl_dtype to, void *out, const void *in) {    \
    switch (to) {                                                              \
      PAIR(F, F64);                                                            \
      PAIR(F, F32);                                                            \
      PAIR(F, F16);                                                            \
      PAIR(F, BF16);                                                           \
      PAIR(F, I64);                                                            \
      PAIR(F, I32);                                                            \
      PAIR(F, I16);                                                            \
      PAIR(F, I8);                                                             \
      PAIR(F, U8);                                                             \
      PAIR(F, BOOL);                                                           \
    default:                                                                   \
      return;                                                                  \
    }                                                                          \
  }
#define FL_DTYPE(NAME, name, T, size, kind, C) FROM(NAME)
#include "../../runtime/dtype.def"

void FL_CPU(convert)(int64_t n, fl_dtype to, void *out, fl_dtype from,
                     const void *in) {
  if (to == from) {
    memcpy(out, in, (size_t)n * fl_dtype_size(to));
    return;
  }
  switch (from) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  case FL_##NAME:                                                              \
    from_##NAME(n, to, out, in);                                               \
    return;
#include "../../runtime/dtype.def"
  default:
    return;
  }
}

/* --- strided rows --- */

#define STRIDED(bits)                                                          \
  case bits / 8: {                                                             \
    const uint##bits##_t *a = in;                                              \
    uint##bits##_t *y = out;                                                   \
    for (int64_t i = 0; i < n; i++)                                            \
      y[i * to] = a[i * from];                                                 \
    return;                                                                    \
  }

/* n elements of `size` bytes, `from` and `to` elements apart. */
static void copy_strided(int64_t n, size_t size, void *out, int64_t to,
                         const void *in, int64_t from) {
  if (to == 1 && from == 1) {
    memcpy(out, in, (size_t)n * size);
    return;
  }
  switch (size) { STRIDED(8) STRIDED(16) STRIDED(32) STRIDED(64) }
}

#define TILE 1024 /* elements converted at a time */

/* A strided row to contiguous memory of another dtype. */
void FL_CPU(load_row)(int64_t n, fl_dtype to, void *out, fl_dtype from,
                      const void *in, int64_t stride) {
  size_t size = fl_dtype_size(from), wide = fl_dtype_size(to);
  _Alignas(64) unsigned char tile[TILE * 8];
  if (from == to) {
    copy_strided(n, size, out, 1, in, stride);
    return;
  }
  if (stride == 1) {
    FL_CPU(convert)(n, to, out, from, in);
    return;
  }
  for (int64_t i = 0; i < n; i += TILE) {
    int64_t k = n - i < TILE ? n - i : TILE;
    copy_strided(k, size, tile, 1,
                 (const char *)in + i * stride * (int64_t)size, stride);
    FL_CPU(convert)(k, to, (char *)out + (size_t)i * wide, from, tile);
  }
}

/* And back. */
void FL_CPU(store_row)(int64_t n, fl_dtype to, void *out, int64_t stride,
                       fl_dtype from, const void *in) {
  size_t size = fl_dtype_size(to), wide = fl_dtype_size(from);
  _Alignas(64) unsigned char tile[TILE * 8];
  if (from == to) {
    copy_strided(n, size, out, stride, in, 1);
    return;
  }
  if (stride == 1) {
    FL_CPU(convert)(n, to, out, from, in);
    return;
  }
  for (int64_t i = 0; i < n; i += TILE) {
    int64_t k = n - i < TILE ? n - i : TILE;
    FL_CPU(convert)(k, to, tile, from, (const char *)in + (size_t)i * wide);
    copy_strided(k, size, (char *)out + i * stride * (int64_t)size, stride,
                 tile, 1);
  }
}

/* --- whole views --- */

typedef struct transfer {
  const fl_view *v;
  fl_dtype dtype;
  char *flat;
  bool store;
  int inner;
} transfer;

static void transfer_rows(void *context, int64_t begin, int64_t end) {
  const transfer *t = context;
  const fl_view *v = t->v;
  size_t size = fl_dtype_size(v->dtype), wide = fl_dtype_size(t->dtype);
  int last = t->inner;
  int64_t n = last >= 0 ? v->shape[last] : 1,
          stride = last >= 0 ? v->stride[last] : 1;
  for (int64_t r = begin; r < end; r++) {
    int64_t rest = r, at = 0;
    for (int i = last - 1; i >= 0; i--) {
      at += rest % v->shape[i] * v->stride[i];
      rest /= v->shape[i];
    }
    char *mine = (char *)v->data + at * (int64_t)size;
    char *flat = t->flat + (size_t)(r * n) * wide;
    if (t->store)
      FL_CPU(store_row)(n, v->dtype, mine, stride, t->dtype, flat);
    else
      FL_CPU(load_row)(n, t->dtype, flat, v->dtype, mine, stride);
  }
}

/* Dims that lie one after the other become one, so that rows are long. */
static void coalesce(const fl_view *v, fl_view *w) {
  w->data = v->data;
  w->dtype = v->dtype;
  w->ndim = 0;
  for (int i = 0; i < v->ndim; i++) {
    if (v->shape[i] == 1)
      continue;
    int k = w->ndim - 1;
    if (k >= 0 && w->stride[k] == v->stride[i] * v->shape[i]) {
      w->shape[k] *= v->shape[i];
      w->stride[k] = v->stride[i];
      continue;
    }
    w->shape[w->ndim] = v->shape[i];
    w->stride[w->ndim++] = v->stride[i];
  }
}

static void transfer_view(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                          void *flat, bool store) {
  fl_view w;
  int64_t n = fl_view_numel(v);
  if (n == 0)
    return;
  if (v->dtype == dtype) {
    int64_t rows[FL_MAX_DIMS];
    fl_row_major(v->ndim, v->shape, rows);
    FL_CPU(move)
    (l, fl_dtype_size(dtype), v->ndim, v->shape, store ? v->data : flat,
     store ? v->stride : rows, store ? flat : v->data,
     store ? rows : v->stride);
    return;
  }
  coalesce(v, &w);
  if (w.ndim == 1 && w.stride[0] == 1 && n > 32768) { /* cut one long row */
    w.shape[1] = 16384;
    w.stride[1] = 1;
    w.shape[0] = n / 16384;
    w.stride[0] = 16384;
    w.ndim = 2;
    int64_t tail = w.shape[0] * 16384;
    transfer t = {&w, dtype, flat, store, 1};
    fl_cpu_parallel(l, w.shape[0], 1, transfer_rows, &t);
    fl_view rest = {.data = (char *)v->data +
                            (size_t)tail * fl_dtype_size(v->dtype),
                    .dtype = v->dtype,
                    .ndim = 1,
                    .shape = {n - tail},
                    .stride = {1}};
    transfer u = {&rest, dtype,
                  (char *)flat + (size_t)tail * fl_dtype_size(dtype), store, 0};
    if (n > tail)
      transfer_rows(&u, 0, 1);
    return;
  }
  transfer t = {&w, dtype, flat, store, w.ndim - 1};
  int64_t row = w.ndim ? w.shape[w.ndim - 1] : 1, rows = n / row;
  int64_t grain = row > 16384 ? 1 : 16384 / row + 1;
  fl_cpu_parallel(l, rows, grain, transfer_rows, &t);
}

void FL_CPU(load)(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                  void *flat) {
  transfer_view(l, v, dtype, flat, false);
}

const void *FL_CPU(input)(const fl_launch *l, const fl_view *v,
                          fl_dtype dtype) {
  if (v->dtype == dtype && fl_contiguous(v))
    return v->data;
  void *flat =
      fl_scratch_get(l, (size_t)fl_view_numel(v) * fl_dtype_size(dtype));
  if (flat)
    transfer_view(l, v, dtype, flat, false);
  return flat;
}

void *FL_CPU(output)(const fl_launch *l, const fl_view *v, fl_dtype dtype) {
  if (v->dtype == dtype && fl_contiguous(v))
    return v->data;
  return fl_scratch_get(l, (size_t)fl_view_numel(v) * fl_dtype_size(dtype));
}

void FL_CPU(finish)(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                    const void *from) {
  if (from != v->data)
    transfer_view(l, v, dtype, (void *)(uintptr_t)from, true);
}
