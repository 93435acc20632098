/* The strided copy of move.h: merges dims, cuts the block into lines for the
 * threads, and goes in tiles where one side runs across the other. */
#include "move.h"

#define TILE    32         /* elements; a tile's lines stay in L1 */
#define PIECE   (16 << 10) /* elements a thread takes at once */
#define CONVERT 1024       /* elements converted at once */

typedef struct block {
  size_t size;
  int ndim; /* after merging, at least 1; the last dim is the line */
  int64_t shape[FL_MOVE_DIMS], to_stride[FL_MOVE_DIMS],
      from_stride[FL_MOVE_DIMS];
  char *to;
  const char *from;
  int64_t cuts, cut; /* pieces of a line, and their length */
} block;

typedef struct conversion {
  block b; /* its size is that of `from` */
  fl_dtype to, from;
  size_t to_size;
} conversion;

void FL_CPU(move_line)(size_t size, int64_t n, void *to, int64_t ts,
                       const void *from, int64_t fs) {
  if (ts == 1 && fs == 1) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
#define LINE(T)                                                                \
  do {                                                                         \
    T *restrict t = to;                                                        \
    const T *restrict f = from;                                                \
    if (fs == 0 && ts == 1) {                                                  \
      T value = n ? f[0] : 0;                                                  \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i] = value;                                                          \
    } else if (ts == 1 && fs == -1) {                                          \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i] = f[-i];                                                          \
    } else if (ts == 1) {                                                      \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i] = f[i * fs];                                                      \
    } else {                                                                   \
      for (int64_t i = 0; i < n; i++)                                          \
        t[i * ts] = f[i * fs];                                                 \
    }                                                                          \
  } while (0)
  FL_BY_SIZE(size, LINE)
#undef LINE
}

/* rows x columns elements, `from` contiguous down the columns, by way of a tile
 * that has both: neither side is walked in large steps, which would put all its
 * lines in one set of the cache. */
static void tiles(size_t size, int64_t rows, int64_t columns, void *to,
                  int64_t to_row, int64_t to_column, const void *from,
                  int64_t from_column) {
#define TILES(T)                                                               \
  for (int64_t c = 0; c < columns; c += TILE) {                                \
    int64_t n = columns - c < TILE ? columns - c : TILE;                       \
    const T *f = (const T *)from + c * from_column;                            \
    T tile[TILE][TILE];                                                        \
    for (int64_t j = 0; j < n; j++)                                            \
      for (int64_t i = 0; i < rows; i++)                                       \
        tile[i][j] = f[i + j * from_column];                                   \
    for (int64_t i = 0; i < rows; i++) {                                       \
      T *t = (T *)to + i * to_row + c * to_column;                             \
      for (int64_t j = 0; j < n; j++)                                          \
        t[j * to_column] = tile[i][j];                                         \
    }                                                                          \
  }
  FL_BY_SIZE(size, TILES)
#undef TILES
}

/* Whole lines, in runs that differ in the dim before alone. */
static void lines_task(void *context, int64_t begin, int64_t end) {
  const block *b = context;
  int last = b->ndim - 1, row = last - 1;
  int64_t n = b->shape[last], ts = b->to_stride[last],
          fs = b->from_stride[last];
  fl_walk w;
  fl_walk_start(&w, last, b->shape, begin);
  while (begin < end) {
    int64_t run = last ? b->shape[row] - w.at[row] : 1;
    run = run < end - begin ? run : end - begin;
    char *t = b->to + fl_walk_offset(&w, b->to_stride) * (int64_t)b->size;
    const char *f =
        b->from + fl_walk_offset(&w, b->from_stride) * (int64_t)b->size;
    int64_t tn = last ? b->to_stride[row] * (int64_t)b->size : 0,
            fn = last ? b->from_stride[row] * (int64_t)b->size : 0;
    for (int64_t k = 0; k < run; k++, t += tn, f += fn)
      FL_CPU(move_line)(b->size, n, t, ts, f, fs);
    begin += run;
    if (last)
      w.at[row] += run - 1;
    fl_walk_next(&w);
  }
}

static void cut_task(void *context, int64_t begin, int64_t end) {
  const block *b = context;
  int last = b->ndim - 1;
  fl_walk w;
  fl_walk_start(&w, last, b->shape, begin / b->cuts);
  int64_t cut = begin % b->cuts;
  for (int64_t u = begin; u < end; u++) {
    int64_t start = cut * b->cut, n = b->shape[last] - start;
    int64_t t = fl_walk_offset(&w, b->to_stride) + start * b->to_stride[last];
    int64_t f =
        fl_walk_offset(&w, b->from_stride) + start * b->from_stride[last];
    FL_CPU(move_line)
    (b->size, n < b->cut ? n : b->cut, b->to + t * (int64_t)b->size,
     b->to_stride[last], b->from + f * (int64_t)b->size, b->from_stride[last]);
    if (++cut == b->cuts) {
      cut = 0;
      fl_walk_next(&w);
    }
  }
}

/* Pieces are bands of TILE rows; the second last dim is `from`'s contiguous. */
static void tile_task(void *context, int64_t begin, int64_t end) {
  const block *b = context;
  int r = b->ndim - 2, c = b->ndim - 1;
  for (int64_t u = begin; u < end; u++) {
    fl_walk w;
    fl_walk_start(&w, r, b->shape, u / b->cuts);
    int64_t row = u % b->cuts * b->cut, rows = b->shape[r] - row;
    int64_t t = fl_walk_offset(&w, b->to_stride) + row * b->to_stride[r];
    int64_t f = fl_walk_offset(&w, b->from_stride) + row;
    tiles(b->size, rows < b->cut ? rows : b->cut, b->shape[c],
          b->to + t * (int64_t)b->size, b->to_stride[r], b->to_stride[c],
          b->from + f * (int64_t)b->size, b->from_stride[c]);
  }
}

/* Drops dims of one element and joins those that run on in both. */
static void move_merge(block *b, int ndim, const int64_t *shape,
                       const int64_t *ts, const int64_t *fs) {
  int n = 0;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] == 1)
      continue;
    if (n > 0 && b->to_stride[n - 1] == ts[d] * shape[d] &&
        b->from_stride[n - 1] == fs[d] * shape[d]) {
      b->shape[n - 1] *= shape[d];
      b->to_stride[n - 1] = ts[d];
      b->from_stride[n - 1] = fs[d];
      continue;
    }
    b->shape[n] = shape[d];
    b->to_stride[n] = ts[d];
    b->from_stride[n++] = fs[d];
  }
  if (n == 0) {
    b->shape[0] = b->to_stride[0] = b->from_stride[0] = 1;
    n = 1;
  }
  b->ndim = n;
}

/* Puts `from`'s contiguous dim next to the last where the line itself strides
 * through `from`: true if tiles pay. */
static bool across(block *b) {
  int last = b->ndim - 1, k = last - 1;
  if (b->from_stride[last] == 1 || b->from_stride[last] == 0)
    return false;
  while (k >= 0 && b->from_stride[k] != 1)
    k--;
  if (k < 0 || b->shape[k] < 8 || b->shape[last] < 8)
    return false;
  int64_t n = b->shape[k], t = b->to_stride[k], f = b->from_stride[k];
  for (; k < last - 1; k++) {
    b->shape[k] = b->shape[k + 1];
    b->to_stride[k] = b->to_stride[k + 1];
    b->from_stride[k] = b->from_stride[k + 1];
  }
  b->shape[k] = n;
  b->to_stride[k] = t;
  b->from_stride[k] = f;
  return true;
}

void FL_CPU(move)(const fl_launch *l, size_t size, int ndim,
                  const int64_t *shape, void *to, const int64_t *to_stride,
                  const void *from, const int64_t *from_stride) {
  block b = {.size = size, .to = to, .from = from};
  if (fl_numel(ndim, shape) == 0)
    return;
  move_merge(&b, ndim, shape, to_stride, from_stride);
  int last = b.ndim - 1;
  int64_t line = b.shape[last];
  if (last > 0 && across(&b)) {
    b.cut = TILE;
    b.cuts = (b.shape[last - 1] + TILE - 1) / TILE;
    int64_t grain = PIECE / (line * TILE);
    fl_cpu_parallel(l, fl_numel(last - 1, b.shape) * b.cuts,
                    grain > 1 ? grain : 1, tile_task, &b);
    return;
  }
  b.cut = line < PIECE ? line : PIECE;
  b.cuts = fl_ceil_div(line, b.cut);
  fl_cpu_parallel(l, fl_numel(last, b.shape) * b.cuts, PIECE / b.cut,
                  b.cuts == 1 ? lines_task : cut_task, &b);
}

/* Lines again, but by way of buffers from one dtype to the other. */
static void convert_task(void *context, int64_t begin, int64_t end) {
  const conversion *c = context;
  const block *b = &c->b;
  int last = b->ndim - 1;
  int64_t tos = b->to_stride[last], fs = b->from_stride[last];
  uint64_t in[CONVERT], out[CONVERT];
  fl_walk w;
  fl_walk_start(&w, last, b->shape, begin / b->cuts);
  int64_t cut = begin % b->cuts;
  for (int64_t u = begin; u < end; u++) {
    int64_t start = cut * b->cut, n = b->shape[last] - start;
    n = n < b->cut ? n : b->cut;
    char *t = b->to + (fl_walk_offset(&w, b->to_stride) + start * tos) *
                          (int64_t)c->to_size;
    const char *f =
        b->from +
        (fl_walk_offset(&w, b->from_stride) + start * fs) * (int64_t)b->size;
    if (fs != 1)
      FL_CPU(move_line)(b->size, n, in, 1, f, fs);
    FL_CPU(convert)
    (n, c->to, tos == 1 ? t : (void *)out, c->from,
     fs == 1 ? f : (const void *)in);
    if (tos != 1)
      FL_CPU(move_line)(c->to_size, n, t, tos, out, 1);
    if (++cut == b->cuts) {
      cut = 0;
      fl_walk_next(&w);
    }
  }
}

void FL_CPU(move_view)(const fl_launch *l, const fl_view *to,
                       const fl_view *from) {
  size_t size = fl_dtype_size(from->dtype);
  if (from->dtype == to->dtype) {
    FL_CPU(move)
    (l, size, to->ndim, to->shape, to->data, to->stride, from->data,
     from->stride);
    return;
  }
  conversion c = {.b = {.size = size, .to = to->data, .from = from->data},
                  .to = to->dtype,
                  .from = from->dtype,
                  .to_size = fl_dtype_size(to->dtype)};
  if (fl_view_numel(to) == 0)
    return;
  move_merge(&c.b, to->ndim, to->shape, to->stride, from->stride);
  int last = c.b.ndim - 1;
  int64_t line = c.b.shape[last];
  c.b.cut = line < CONVERT ? line : CONVERT;
  c.b.cuts = fl_ceil_div(line, c.b.cut);
  fl_cpu_parallel(l, fl_numel(last, c.b.shape) * c.b.cuts, PIECE / 4 / c.b.cut,
                  convert_task, &c);
}

void FL_CPU(move_fill)(const fl_launch *l, size_t size, int64_t n, void *to,
                       const void *value) {
  int64_t one = 1, zero = 0;
  FL_CPU(move)(l, size, 1, &n, to, &one, value, &zero);
}
