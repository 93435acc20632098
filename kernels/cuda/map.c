/* The one driver of elementwise rows, and flc_move, which copies any view into
 * another. A row comes here as text (rows.c); which of map.cu's kernels runs it
 * depends on the operands alone. */
#include "rows.h"

#include "map.h"

#include "../../runtime/math/math.h"

#include <string.h>

#define THREADS 256

/* --- what the operands are --- */

static const flc_row identity = {
    .text = "#define CONVERT\n#define ROW return v[0];",
    .inputs = 1,
    .type = FLC_ROW_N};

static fl_dtype compute_type(const fl_launch *l, const flc_row *r, int n_in) {
  bool f64 = l->out[0].dtype == FL_F64, floats = false;
  for (int k = 0; k < n_in; k++) {
    f64 = f64 || l->in[k].dtype == FL_F64;
    floats = floats || fl_dtype_is_float(l->in[k].dtype);
  }
  if (r->type == FLC_ROW_I || (!floats && r->type == FLC_ROW_N))
    return FL_I64;
  return f64 ? FL_F64 : FL_F32;
}

/* What an element of dtype d is computed in. */
static fl_dtype map_wide(fl_dtype d) {
  return fl_dtype_is_float(d) ? flc_wide(d) : FL_I64;
}

static map_number number_of(const fl_view *v) {
  return (map_number){flc_number(v), flc_number_int(v)};
}

static unsigned blocks_for(const fl_launch *l, int64_t threads) {
  int64_t blocks = fl_ceil_div(threads, THREADS);
  int64_t most = (int64_t)flc_chip_of(l)->processors * 65536;
  return (unsigned)(blocks < most ? blocks : most);
}

/* --- contiguous --- */

static bool is_flat(const fl_view *y, const fl_view *in, int n_in) {
  for (int k = 0; k < n_in; k++)
    if (!flc_is_number(&in[k]) &&
        (!fl_same_shape(&in[k], y) || !fl_contiguous(&in[k])))
      return false;
  return fl_contiguous(y);
}

/* False: the memory is not aligned for v elements at once. */
static bool fill_flat(map_flat *a, const fl_view *y, const fl_view *in,
                      int n_in, size_t v) {
  a->y = y->data;
  a->n = fl_view_numel(y);
  a->bits = y->dtype == FL_BOOL;
  for (int k = 0; k < n_in; k++) {
    if (flc_is_number(&in[k]))
      a->number[k] = number_of(&in[k]);
    else if (flc_aligned(in[k].data, v * fl_dtype_size(in[k].dtype)))
      a->in[k] = in[k].data;
    else
      return false;
  }
  return flc_aligned(y->data, v * fl_dtype_size(y->dtype));
}

/* --- anything --- */

static void set_strides(map_any *a, int k, const fl_view *v, const fl_view *y) {
  int skip = y->ndim - v->ndim;
  for (int i = 0; i < y->ndim; i++)
    a->stride[k][i] =
        i < skip || v->shape[i - skip] == 1 ? 0 : v->stride[i - skip];
}

/* Dims a and a + 1 become one where every operand allows it. */
static void merge_dims(map_any *a, int operands) {
  int n = -1;
  for (int i = 0; i < a->ndim; i++) {
    if (a->size[i] == 1)
      continue;
    bool one = n >= 0;
    for (int k = 0; k < operands && one; k++)
      one = a->stride[k][n] == a->stride[k][i] * a->size[i];
    if (one)
      a->size[n] *= a->size[i];
    else
      a->size[++n] = a->size[i];
    for (int k = 0; k < operands; k++)
      a->stride[k][n] = a->stride[k][i];
  }
  if (n < 0) {
    n = 0;
    a->size[0] = 1;
  }
  a->ndim = n + 1;
}

/* Launches of at most 2^31 elements, cut along the first dim. */
static fl_status run_pieces(const fl_launch *l, const flc_spec *spec,
                            map_any *a, size_t bytes_out, size_t bytes_in) {
  const int64_t most = INT32_MAX - 1024;
  int64_t all = a->size[0], inner = a->n / all;
  int64_t piece = inner <= most ? most / inner : 1;
  for (int64_t from = 0; from < all; from += piece) {
    map_any part = *a;
    part.size[0] = all - from < piece ? all - from : piece;
    part.n = inner * part.size[0];
    for (int k = 0; k <= MAP_IN; k++)
      if (a->data[k])
        part.data[k] =
            (char *)a->data[k] +
            from * a->stride[k][0] * (int64_t)(k ? bytes_in : bytes_out);
    if (part.n > most) /* rows of more than that */
      return fli_fail(FL_ESIZE, "%s: rows of %lld elements are too long", l->op,
                      (long long)inner);
    flc_grid g = {.x = blocks_for(l, fl_ceil_div(part.n, part.each)),
                  .block = THREADS,
                  .early = true};
    fl_status s = FLC_RUN(l, *spec, g, part);
    if (s)
      return s;
  }
  return FL_OK;
}

static void set_any(map_any *a, const fl_view *y, const fl_view *in, int n_in) {
  *a = (map_any){.n = fl_view_numel(y), .ndim = y->ndim, .data = {y->data}};
  memcpy(a->size, y->shape, (size_t)y->ndim * sizeof *a->size);
  set_strides(a, 0, y, y);
  for (int k = 0; k < n_in; k++) {
    if (flc_is_number(&in[k])) {
      a->number[k] = number_of(&in[k]);
      continue;
    }
    a->data[k + 1] = in[k].data;
    set_strides(a, k + 1, &in[k], y);
  }
  merge_dims(a, n_in + 1);
  a->each = a->size[a->ndim - 1] % 4 == 0 ? 4 : 1;
}

/* Inputs of dtype d (or numbers), the result d or bool. */
static fl_status run_any(const fl_launch *l, const flc_row *r, const fl_view *y,
                         const fl_view *in, int n_in, fl_dtype d, int bits) {
  map_any a;
  set_any(&a, y, in, n_in);
  a.bits = bits;
  fl_formula_params(l, r->params, a.p);
  flc_spec spec = FLC_SPEC("map", "any", d, y->dtype, n_in);
  spec.text = r->text;
  return run_pieces(l, &spec, &a, fl_dtype_size(y->dtype), fl_dtype_size(d));
}

static fl_status map_convert(const fl_launch *l, const fl_view *to,
                             const fl_view *from) {
  map_any a;
  set_any(&a, to, from, 1);
  a.each = 1;
  a.dtype[0] = to->dtype;
  a.dtype[1] = from->dtype;
  flc_spec spec = FLC_SPEC("map", "convert", map_wide(from->dtype));
  spec.text = identity.text;
  return run_pieces(l, &spec, &a, fl_dtype_size(to->dtype),
                    fl_dtype_size(from->dtype));
}

/* A contiguous view of the same shape and another dtype, in scratch. */
static fl_status temporary(const fl_launch *l, const fl_view *v, fl_dtype d,
                           fl_view *t) {
  int64_t n = 1;
  t->dtype = d;
  t->ndim = v->ndim;
  for (int i = v->ndim - 1; i >= 0; i--) {
    t->shape[i] = v->shape[i];
    t->stride[i] = n;
    n *= v->shape[i];
  }
  t->data = fl_scratch_get(l, (size_t)(n ? n : 1) * fl_dtype_size(d));
  return t->data ? FL_OK : FL_ENOMEM;
}

/* Operands of dtypes that differ: all become the type that is computed in. */
static fl_status run_mixed(const fl_launch *l, const flc_row *r,
                           const fl_view *y, const fl_view *in, int n_in,
                           fl_dtype t) {
  fl_view same[MAP_IN], to;
  for (int k = 0; k < n_in; k++) {
    fl_view_copy(&same[k], &in[k]);
    if (flc_is_number(&in[k]) || in[k].dtype == t)
      continue;
    fl_status s = temporary(l, &in[k], t, &same[k]);
    if (s == FL_OK)
      s = flc_move(l, &same[k], &in[k]);
    if (s)
      return s;
  }
  int bits = y->dtype == FL_BOOL;
  if (y->dtype == t || r->test)
    return run_any(l, r, y, same, n_in, t, bits);
  fl_status s = temporary(l, y, t, &to);
  if (s == FL_OK)
    s = run_any(l, r, &to, same, n_in, t, bits);
  return s ? s : flc_move(l, y, &to);
}

/* True: it has run, with status *s. */
static bool run_flat(const fl_launch *l, const flc_row *r, const fl_view *y,
                     const fl_view *in, int n_in, fl_dtype d, fl_status *s) {
  map_flat a = {0};
  size_t from = fl_dtype_size(d), to = fl_dtype_size(y->dtype);
  size_t v = 16 / (from > to ? from : to);
  if (!fill_flat(&a, y, in, n_in, v))
    return false;
  flc_spec spec = FLC_SPEC("map", "flat", d, y->dtype, n_in, (int)v);
  if (n_in > 1 && !flc_is_number(&in[1]) && in[1].dtype != d)
    spec.t[spec.n++] = in[1].dtype; /* of two dtypes */
  spec.text = r->text;
  fl_formula_params(l, r->params, a.p);
  /* a vector for each thread, or several where the chip is full with them */
  int64_t vectors = fl_ceil_div(a.n, (int64_t)v),
          full = (int64_t)flc_chip_of(l)->processors * 2048;
  if (vectors >= full * MAP_TURNS(n_in))
    vectors = fl_ceil_div(vectors, MAP_TURNS(n_in));
  flc_grid g = {.x = blocks_for(l, vectors), .block = THREADS, .early = true};
  *s = FLC_RUN(l, spec, g, a);
  return true;
}

/* The dtype of all inputs that are tensors; FL_NODTYPE: they differ. */
static fl_dtype common_dtype(const fl_view *in, int n_in) {
  fl_dtype d = FL_NODTYPE;
  for (int k = 0; k < n_in; k++) {
    if (flc_is_number(&in[k]))
      continue;
    if (d != FL_NODTYPE && d != in[k].dtype)
      return FL_NODTYPE;
    d = in[k].dtype;
  }
  return d;
}

static bool is_16_bits(fl_dtype d) {
  return d == FL_F16 || d == FL_BF16;
}

fl_status flc_map(const fl_launch *l, const flc_row *r, const fl_view *y,
                  const fl_view *in, int n_in) {
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (n_in > r->inputs)
    n_in = r->inputs; /* a saved operand that the row does not read */
  fl_dtype t = compute_type(l, r, n_in), d = common_dtype(in, n_in);
  fl_status s;
  /* f32 beside 16 bits, as autocast mixes them: some rows take them so */
  if (r->mixes && d == FL_NODTYPE && y->dtype == FL_F32 && t == FL_F32 &&
      is_16_bits(in[0].dtype) != is_16_bits(in[1].dtype) &&
      is_flat(y, in, n_in) && run_flat(l, r, y, in, n_in, in[0].dtype, &s))
    return s;
  /* floats have kernels of their own, the rest goes by what computes it */
  bool own = fl_dtype_is_float(d) && map_wide(d) == t &&
             y->dtype == (r->test ? FL_BOOL : d);
  if (own && d != FL_F64 && is_flat(y, in, n_in) &&
      run_flat(l, r, y, in, n_in, d, &s))
    return s;
  return own ? run_any(l, r, y, in, n_in, d, 0)
             : run_mixed(l, r, y, in, n_in, t);
}

/* --- moving --- */

/* The dims in the order of `to`'s memory: more of them become one. */
static void by_memory(fl_view *to, fl_view *from) {
  for (int i = 1; i < to->ndim; i++)
    for (int k = i; k > 0 && to->stride[k - 1] < to->stride[k]; k--) {
#define SWAP(a)                                                                \
  do {                                                                         \
    int64_t t_ = a[k];                                                         \
    a[k] = a[k - 1];                                                           \
    a[k - 1] = t_;                                                             \
  } while (0)
      SWAP(to->shape);
      SWAP(to->stride);
      SWAP(from->shape);
      SWAP(from->stride);
#undef SWAP
    }
}

/* Pairs of elements become one as long as they stay together; returns the size
 * reached. */
static int map_widen(map_any *a, int size) {
  int last = a->ndim - 1;
  bool even = a->stride[0][last] == 1 && a->stride[1][last] == 1;
  for (; even && size < 16; size *= 2) {
    even = a->size[last] % 2 == 0;
    for (int k = 0; k < 2 && even; k++) {
      even = flc_aligned(a->data[k], 2 * (size_t)size);
      for (int d = 0; d < last && even; d++)
        even = a->stride[k][d] % 2 == 0;
    }
    if (!even)
      break;
    for (int d = 0; d < last; d++) {
      a->stride[0][d] /= 2;
      a->stride[1][d] /= 2;
    }
    a->size[last] /= 2;
    a->n /= 2;
  }
  a->each = size < 16 && a->size[last] % 4 == 0 ? 4 : 1;
  return size;
}

static fl_status move_words(const fl_launch *l, const fl_view *to,
                            const fl_view *from) {
  map_any a;
  fl_view x, y;
  fl_view_copy(&x, from);
  fl_view_copy(&y, to);
  if (fl_same_shape(&y, &x))
    by_memory(&y, &x);
  set_any(&a, &y, &x, 1);
  int size = map_widen(&a, (int)fl_dtype_size(to->dtype));
  flc_spec spec = FLC_SPEC("map", "words", size);
  spec.text = identity.text;
  return run_pieces(l, &spec, &a, (size_t)size, (size_t)size);
}

/* A matrix (or a row of them) read along its columns: true if `from` is one,
 * with the last two merged dims exchanged against `to`'s order. */
static bool map_turned(const fl_view *to, const fl_view *from, map_turn *t,
                       int64_t *count) {
  map_any a = {.ndim = to->ndim};
  memcpy(a.size, to->shape, (size_t)to->ndim * sizeof *a.size);
  set_strides(&a, 0, to, to);
  set_strides(&a, 1, from, to);
  merge_dims(&a, 2);
  int n = a.ndim;
  if (n < 2 || n > 3 || a.stride[0][n - 1] != 1 || a.stride[1][n - 2] != 1 ||
      a.size[n - 1] < 16 || a.size[n - 2] < 16)
    return false;
  *count = n == 3 ? a.size[0] : 1;
  *t = (map_turn){.y = to->data,
                  .x = from->data,
                  .rows = a.size[n - 1],
                  .columns = a.size[n - 2],
                  .x_row = a.stride[1][n - 1],
                  .y_row = a.stride[0][n - 2],
                  .x_count = n == 3 ? a.stride[1][0] : 0,
                  .y_count = n == 3 ? a.stride[0][0] : 0};
  return *count <= 65535;
}

/* Whether it goes by squares of 16 bytes each way. */
static bool by_squares(const map_turn *t, int64_t count, int size) {
  int64_t n = 16 / size;
  return size >= 2 && size <= 8 && flc_aligned(t->x, 16) &&
         flc_aligned(t->y, 16) && t->rows % n == 0 && t->columns % n == 0 &&
         t->x_row % n == 0 && t->y_row % n == 0 &&
         (count == 1 || (t->x_count % n == 0 && t->y_count % n == 0));
}

static fl_status turn(const fl_launch *l, const map_turn *t, int64_t count,
                      int size) {
  bool squares = by_squares(t, count, size);
  int side = squares ? 256 / size : 32; /* of a block's tile */
  flc_spec spec =
      FLC_SPEC("map", squares ? "turn_squares" : "turn", (int16_t)size);
  spec.text = identity.text;
  flc_grid g = {.x = (unsigned)(fl_ceil_div(t->rows, side) *
                                fl_ceil_div(t->columns, side)),
                .y = (unsigned)count,
                .block = THREADS};
  return FLC_RUN(l, spec, g, *t);
}

fl_status flc_move(const fl_launch *l, const fl_view *to, const fl_view *from) {
  map_turn t;
  int64_t count;
  if (fl_view_numel(to) == 0)
    return FL_OK;
  if (to->dtype == from->dtype && !flc_is_number(from)) {
    size_t size = fl_dtype_size(to->dtype);
    if (fl_same_shape(to, from) && fl_contiguous(to) && fl_contiguous(from))
      return flc_copy(l, to->data, from->data,
                      (size_t)fl_view_numel(to) * size);
    if (map_turned(to, from, &t, &count))
      return turn(l, &t, count, (int)size);
  }
  /* floats among themselves, and numbers, in one pass of 16 bytes */
  fl_dtype d = flc_is_number(from) ? to->dtype : from->dtype;
  fl_status s;
  if (fl_dtype_is_float(d) && fl_dtype_is_float(to->dtype) &&
      is_flat(to, from, 1) && run_flat(l, &identity, to, from, 1, d, &s))
    return s;
  return to->dtype == from->dtype && !flc_is_number(from)
             ? move_words(l, to, from)
             : map_convert(l, to, from);
}

const void *flc_input(const fl_launch *l, const fl_view *v, fl_dtype dtype) {
  if (v->dtype == dtype && !flc_is_number(v) && fl_contiguous(v))
    return v->data;
  fl_view to = {.dtype = dtype, .ndim = v->ndim};
  int64_t n = 1;
  for (int i = v->ndim - 1; i >= 0; i--) {
    to.shape[i] = v->shape[i];
    to.stride[i] = n;
    n *= v->shape[i];
  }
  to.data = fl_scratch_get(l, (size_t)(n ? n : 1) * fl_dtype_size(dtype));
  return to.data && flc_move(l, &to, v) == FL_OK ? to.data : NULL;
}

/* --- what the pack should hold --- */

static void visit_row(flc_visitor *v, const flc_row *r) {
  static const fl_dtype floats[] = {FL_F32, FL_BF16, FL_F16, FL_F64};
  for (int k = 0; k < 4 && r->type != FLC_ROW_I; k++) {
    fl_dtype d = floats[k], y = r->test ? FL_BOOL : d;
    flc_spec s = FLC_SPEC("map", "any", d, y, r->inputs);
    s.text = r->text;
    v->spec(v, &s, false);
    if (d == FL_F64)
      continue;
    s = FLC_SPEC("map", "flat", d, y, r->inputs, 16 / (int)fl_dtype_size(d));
    s.text = r->text;
    v->spec(v, &s, k == 0);
  }
  for (int k = 1; k < 3 && r->mixes; k++)
    for (int turn = 0; turn < 2; turn++) {
      fl_dtype a = turn ? FL_F32 : floats[k], b = turn ? floats[k] : FL_F32;
      flc_spec s = FLC_SPEC("map", "flat", a, FL_F32, 2, 4, b);
      s.text = r->text;
      v->spec(v, &s, false);
    }
  if (r->type == FLC_ROW_F)
    return;
  flc_spec s =
      FLC_SPEC("map", "any", FL_I64, r->test ? FL_BOOL : FL_I64, r->inputs);
  s.text = r->text;
  v->spec(v, &s, r->type == FLC_ROW_I);
}

void flc_visit_map(flc_visitor *v) {
  for (const flc_row *r = flc_rows; r->text; r++)
    visit_row(v, r);
  FL_EACH_DTYPE(from, fl_dtype_is_float)
  FL_EACH_DTYPE(to, fl_dtype_is_float) {
    int size = (int)fl_dtype_size((fl_dtype)from),
        other = (int)fl_dtype_size((fl_dtype)to);
    flc_spec s = FLC_SPEC("map", "flat", from, to, 1,
                          16 / (size > other ? size : other));
    s.text = identity.text;
    v->spec(v, &s, false);
  }
  static const fl_dtype types[] = {FL_F32, FL_F64, FL_I64};
  for (int k = 0; k < 3; k++) {
    flc_spec s = FLC_SPEC("map", "convert", types[k]);
    s.text = identity.text;
    v->spec(v, &s, k == 0);
  }
  for (int size = 1; size <= 16; size *= 2) {
    flc_spec s = FLC_SPEC("map", "turn", size);
    s.text = identity.text;
    v->spec(v, &s, size == 4);
    s = FLC_SPEC("map", "words", size);
    s.text = identity.text;
    v->spec(v, &s, size == 4);
    s = FLC_SPEC("map", "turn_squares", size);
    s.text = identity.text;
    if (size > 1 && size <= 8)
      v->spec(v, &s, size == 2);
  }
}
