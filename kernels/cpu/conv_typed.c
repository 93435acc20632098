/* The loops of conv.c for one type T. */
#include "conv.h"
#include "tile_typed.h"

#define PANEL (CONV_NV * VN)

/* C (mr x nv vectors) = or += sum over p of A[., p] * B[p, .]; A[i, p] is
 * a[p * lda + i], row p of B begins at b + off[p]. mr and nv are constants
 * where this is inlined. */
static inline __attribute__((always_inline)) void
conv_micro(int mr, int nv, int64_t k, const T *a, int64_t lda, const T *b,
           const int64_t *off, T *to, int64_t ldc, bool add) {
  V c[CONV_MR][TILE_NV];
#pragma GCC unroll 8
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      c[i][j] = add ? *(const V *)(to + i * ldc + j * VN) : (V){0};
  for (int64_t p = 0; p < k; p++, a += lda) {
    const T *bp = b + off[p];
    V row[TILE_NV];
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      row[j] = *(const V *)(bp + j * VN);
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
      V x = a[i] - (V){0};
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++)
        c[i][j] += x * row[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      *(V *)(to + i * ldc + j * VN) = c[i][j];
}

#define NARROW(nv)                                                             \
  TILE_ONCE static void conv_micro##nv(int mr, int64_t k, const T *a,          \
                                       const T *b, const int64_t *off, T *c,   \
                                       int64_t ldc, bool add) {                \
    int64_t lda = mr;                                                          \
    if (mr == CONV_MR && (nv) <= CONV_NV) {                                    \
      conv_micro(CONV_MR, nv, k, a, lda, b, off, c, ldc, add);                 \
      return;                                                                  \
    }                                                                          \
    for (; mr >= 4; mr -= 4, a += 4, c += 4 * ldc)                             \
      conv_micro(4, nv, k, a, lda, b, off, c, ldc, add);                       \
    for (; mr >= 2; mr -= 2, a += 2, c += 2 * ldc)                             \
      conv_micro(2, nv, k, a, lda, b, off, c, ldc, add);                       \
    if (mr)                                                                    \
      conv_micro(1, nv, k, a, lda, b, off, c, ldc, add);                       \
  }
NARROW(1)
NARROW(2)
#if CONV_NV > 2
NARROW(3)
#endif
#undef NARROW

/* Rows of k from..to of all blocks of results, for nv vectors of columns. */
static void conv_panel(const conv *c, int64_t k, const T *packed, int64_t from,
                       int64_t to, int nv, const T *b, const int64_t *off,
                       T *sums, int64_t ld) {
  for (int64_t m = 0; m < c->cd; m += CONV_MR) {
    int mr = (int)(c->cd - m < CONV_MR ? c->cd - m : CONV_MR);
    const T *a = packed + m * k + from * mr;
    T *s = sums + m * ld;
    bool add = from > 0;
    switch (nv) {
    case 1:
      conv_micro1(mr, to - from, a, b, off, s, ld, add);
      break;
    case 2:
      conv_micro2(mr, to - from, a, b, off, s, ld, add);
      break;
#if CONV_NV > 2
    case 3:
      conv_micro3(mr, to - from, a, b, off, s, ld, add);
      break;
#endif
    }
  }
}

/* --- planes --- */

/* One plane: `row` is source row 0 of its channel. */
static void conv_plane(const conv *c, const int64_t phase[3],
                       const int64_t start[3], const char *base, T *planes) {
  const conv_data *d = &c->from;
  const conv_axis *ax = c->axis, *a = &ax[2];
  int64_t shift = phase[2] + a->lo, n = a->extent, first = start[2];
  /* indices begin..end of a row are in the source, the others 0 */
  int64_t begin = conv_floor_div(a->step - 1 - shift, a->step) - first;
  int64_t end = conv_floor_div(a->from + a->step - 1 - shift, a->step) - first;
  begin = begin < 0 ? 0 : begin > n ? n : begin;
  end = end < begin ? begin : end > n ? n : end;
  base += d->size * d->stride[4] * ((first + begin) * a->step + shift);
  for (int64_t i = 0; i < ax[0].extent; i++) {
    int64_t z = (i + start[0]) * ax[0].step + phase[0] + ax[0].lo;
    for (int64_t j = 0; j < ax[1].extent; j++, planes += n) {
      int64_t y = (j + start[1]) * ax[1].step + phase[1] + ax[1].lo;
      if (z < 0 || z >= ax[0].from || y < 0 || y >= ax[1].from) {
        memset(planes, 0, (size_t)n * sizeof(T));
        continue;
      }
      for (int64_t x = 0; x < begin; x++)
        planes[x] = 0;
      load(planes + begin,
           base + d->size * (z * d->stride[2] + y * d->stride[3]), d->dtype,
           d->stride[4] * a->step, end - begin);
      for (int64_t x = end; x < n; x++)
        planes[x] = 0;
    }
  }
}

/* Planes of channels from..to of a group, indices from `first` on along the dim
 * that is cut. */
static void conv_fill(const conv *c, int64_t image, int64_t group, int64_t from,
                      int64_t to, int64_t first, T *planes) {
  const conv_data *d = &c->from;
  const conv_axis *ax = c->axis;
  int64_t start[3] = {0, 0, 0}, phase[3],
          slots = ax[0].phases * ax[1].phases * ax[2].phases;
  start[c->cut] = first;
  for (int64_t ch = from; ch < to; ch++) {
    const char *base =
        d->data +
        d->size * (image * d->stride[0] + (group * c->cs + ch) * d->stride[1]);
    for (int64_t slot = 0; slot < slots; slot++, planes += c->plane) {
      phase[2] = ax[2].phase[slot % ax[2].phases];
      phase[1] = ax[1].phase[slot / ax[2].phases % ax[1].phases];
      phase[0] = ax[0].phase[slot / ax[2].phases / ax[1].phases];
      conv_plane(c, phase, start, base, planes);
    }
  }
}

/* --- convolution and the gradient of its input --- */

typedef struct conv_room {
  T *planes, *sums, *gathered;
  int64_t *index; /* of columns, in planes */
  int64_t *rows;  /* offsets of gathered rows: 0, PANEL, ... */
} conv_room;

static size_t conv_carve(const conv *c, char *at, conv_room *r) {
  char *start = at;
  int64_t planes = c->direct ? 0 : c->images_once * c->cs * c->channel;
  r->planes = tile_carve(&at, planes + 2 * PANEL, sizeof(T));
  r->sums = tile_carve(&at, c->cd * c->columns, sizeof(T));
  r->gathered = tile_carve(&at, CONV_GATHER * PANEL, sizeof(T));
  r->index = tile_carve(&at, c->dense ? c->columns : PANEL, 8);
  r->rows = tile_carve(&at, CONV_GATHER, 8);
  return (size_t)(at - start);
}

/* Columns that are not side by side, or the last ones of a tensor. */
static void conv_gather(const conv *c, const conv_sub *s, const T *packed,
                        conv_room *r, const T *planes, const int64_t *index,
                        int64_t n, T *sums) {
  int nv = (int)(fl_ceil_div(n, VN));
  int64_t depth = c->depth < CONV_GATHER ? c->depth : CONV_GATHER;
  for (int64_t k = 0; k < s->k || k == 0; k += depth) {
    int64_t end = k + depth < s->k ? k + depth : s->k;
    for (int64_t p = k; p < end; p++) {
      const T *from = planes + s->off[p];
      T *restrict to = r->gathered + (p - k) * PANEL;
      for (int64_t j = 0; j < n; j++)
        to[j] = from[index[j]];
    }
    conv_panel(c, s->k, packed, k, end, nv, r->gathered, r->rows, sums,
               c->columns);
  }
}

/* Sums for a flat range of columns; what lies between results is computed and
 * not used. `end`: nothing after it may be read. */
static void conv_flat_sums(const conv *c, const conv_sub *s, const T *packed,
                           conv_room *r, const T *planes, int64_t n,
                           const T *end) {
  for (int64_t k = 0; k < s->k || k == 0; k += c->depth) {
    int64_t to = k + c->depth < s->k ? k + c->depth : s->k;
    for (int64_t col = 0; col < n; col += PANEL) {
      int nv = (int)((n - col < PANEL ? n - col + VN - 1 : PANEL) / VN);
      if (c->direct && planes + s->reach + col + nv * VN > end) {
        if (k == 0) {
          for (int64_t j = 0; j < nv * VN; j++)
            r->index[j] = col + (col + j < n ? j : n - 1 - col);
          conv_gather(c, s, packed, r, planes, r->index, nv * VN,
                      r->sums + col);
        }
        continue;
      }
      conv_panel(c, s->k, packed, k, to, nv, planes + col, s->off + k,
                 r->sums + col, c->columns);
    }
  }
}

/* Every result of a sub, in order: where its column is. */
static int64_t conv_index(const conv *c, const int64_t count[3], int64_t images,
                          int64_t *index) {
  const conv_axis *ax = c->axis;
  int64_t n = 0;
  for (int64_t image = 0; image < images; image++)
    for (int64_t z = 0; z < count[0]; z++)
      for (int64_t y = 0; y < count[1]; y++)
        for (int64_t x = 0; x < count[2]; x++)
          index[n++] = image * c->cs * c->channel +
                       (z * ax[1].extent + y) * ax[2].extent + x;
  return n;
}

/* Sums of one image to their places; `pitch` columns from row to row, `layer`
 * from depth to depth. */
static void conv_store(const conv *c, const conv_sub *s, int64_t image,
                       int64_t group, int64_t first, const int64_t count[3],
                       const T *sums, int64_t pitch, int64_t layer) {
  const conv_data *d = &c->to;
  const int64_t *every = c->every;
  int64_t at[3] = {s->first[0], s->first[1], s->first[2]};
  at[c->cut] += first * every[c->cut];
  int64_t rows = count[1], cols = count[2], step = d->stride[4] * every[2];
  if (pitch == cols && step == 1 && d->stride[3] * every[1] == cols) {
    cols *= rows; /* rows follow each other on both sides */
    rows = 1;
  }
  for (int64_t m = 0; m < c->cd; m++, sums += c->columns) {
    int64_t ch = group * c->cd + m;
    T bias = c->bias ? ((const T *)c->bias)[ch] : 0;
    for (int64_t z = 0; z < count[0]; z++)
      for (int64_t y = 0; y < rows; y++) {
        char *to =
            d->data + d->size * (image * d->stride[0] + ch * d->stride[1] +
                                 (at[0] + z * every[0]) * d->stride[2] +
                                 (at[1] + y * every[1]) * d->stride[3] +
                                 at[2] * d->stride[4]);
        store(to, d->dtype, step, sums + z * layer + y * pitch, cols, 1, bias);
      }
  }
}

/* One group of some images, one strip: all subs. */
static void conv_part(const conv *c, conv_room *r, int64_t image,
                      int64_t images, int64_t group, int64_t first) {
  const conv_data *d = &c->from;
  const conv_axis *ax = c->axis;
  const T *planes = r->planes, *end = NULL;
  if (c->direct) {
    const T *base = (const T *)d->data;
    int64_t last = 1;
    for (int i = 0; i < 5; i++)
      last += (d->shape[i] - 1) * d->stride[i];
    end = base + last;
    int64_t pitch = c->cut == 2   ? 1
                    : c->cut == 1 ? ax[2].extent
                                  : ax[1].extent * ax[2].extent;
    planes = base + image * d->stride[0] + group * c->cs * d->stride[1] +
             first * pitch;
  } else
    for (int64_t i = 0; i < images; i++)
      conv_fill(c, image + i, group, 0, c->cs, first,
                r->planes + i * c->cs * c->channel);
  for (int64_t n = 0; n < c->n_subs; n++) {
    const conv_sub *s = &c->subs[n];
    const T *packed =
        (const T *)c->packed + group * c->cs * c->cd * c->taps + s->weights;
    int64_t count[3] = {s->count[0], s->count[1], s->count[2]};
    count[c->cut] -= first;
    if (count[c->cut] > c->strip)
      count[c->cut] = c->strip;
    if (count[c->cut] <= 0)
      continue;
    if (!c->dense) {
      conv_flat_sums(c, s, packed, r, planes, conv_flat(c, count), end);
      conv_store(c, s, image, group, first, count, r->sums, ax[2].extent,
                 ax[1].extent * ax[2].extent);
      continue;
    }
    int64_t columns = conv_index(c, count, images, r->index),
            one = conv_volume(count);
    for (int64_t col = 0; col < columns; col += PANEL)
      conv_gather(c, s, packed, r, planes, r->index + col,
                  columns - col < PANEL ? columns - col : PANEL, r->sums + col);
    for (int64_t i = 0; i < images; i++)
      conv_store(c, s, image + i, group, first, count, r->sums + i * one,
                 count[2], count[1] * count[2]);
  }
}

static void conv_task(void *context, int64_t begin, int64_t end) {
  conv *c = context;
  conv_room r;
  char *slot = tile_slot_take(&c->slots);
  conv_carve(c, slot, &r);
  for (int64_t i = 0; i < CONV_GATHER; i++)
    r.rows[i] = i * PANEL;
  for (int64_t n = begin; n < end && !fl_cpu_interrupted(c->l); n++) {
    int64_t strip = n % c->strips, group = n / c->strips % c->groups,
            image = n / c->strips / c->groups * c->images_once;
    int64_t images =
        c->images - image < c->images_once ? c->images - image : c->images_once;
    conv_part(c, &r, image, images, group, strip * c->strip);
  }
  tile_slot_give(&c->slots, slot);
}

/* Weights (destination, source, tap), or flipped (source, destination, tap),
 * into blocks of CONV_MR rows; piece n is one block of all subs. */
static void conv_pack_task(void *context, int64_t begin, int64_t end) {
  conv *c = context;
  int64_t blocks = fl_ceil_div(c->cd, CONV_MR), size = c->cs * c->cd * c->taps,
          row = c->flipped ? c->taps : c->cs * c->taps,
          col = c->flipped ? c->cd * c->taps : c->taps;
  for (int64_t n = begin; n < end; n++) {
    int64_t group = n / blocks, m = n % blocks * CONV_MR;
    int64_t mr = c->cd - m < CONV_MR ? c->cd - m : CONV_MR;
    const T *from = (const T *)c->weight + group * size + m * row;
    for (int64_t j = 0; j < c->n_subs; j++) {
      const conv_sub *s = &c->subs[j];
      const int64_t *tap = c->tap_number + s->tap;
      T *to = (T *)c->packed + group * size + s->weights + m * s->k;
      for (int64_t ch = 0; ch < c->cs; ch++)
        for (int64_t t = 0; t < s->taps; t++, to += mr)
          for (int64_t i = 0; i < mr; i++)
            to[i] = from[i * row + ch * col + tap[t]];
    }
  }
}

static fl_status conv_run(conv *c, int at, int spatial, const fl_view *w,
                          const fl_view *bias) {
  const fl_launch *l = c->l;
  conv_room r;
  c->weight = FL_CPU(input)(l, w, DTYPE);
  c->bias = bias ? FL_CPU(input)(l, bias, DTYPE) : NULL;
  if (!c->weight || (bias && !c->bias) ||
      !FL_CPU(conv_plan)(c, at, spatial, DTYPE))
    return FL_ENOMEM;
  int64_t size = c->groups * c->cs * c->cd * c->taps;
  c->packed = fl_scratch_get(l, (size_t)size * sizeof(T) + 1);
  int64_t tasks =
      (c->images + c->images_once - 1) / c->images_once * c->groups * c->strips;
  /* pieces of about a million multiply-adds */
  int64_t work = c->columns * c->cs * (c->taps * c->cd + 8) / 8 + 1;
  int64_t grain = 1 + 200000 / work;
  if (!c->packed || !tile_slots_open(l, &c->slots, fl_ceil_div(tasks, grain),
                                     conv_carve(c, NULL, &r)))
    return FL_ENOMEM;
  int64_t blocks = c->groups * (fl_ceil_div(c->cd, CONV_MR));
  fl_cpu_parallel(l, blocks, 1 + 30000 * blocks / (size + 1), conv_pack_task,
                  c);
  fl_cpu_parallel(l, tasks, grain, conv_task, c);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

/* --- gradient of the weights --- */

/* C (mr rows of k x nv vectors of channels of dy) += sum over results of
 * planes[off[i] + result] * dy[result, .]; dy has one row for each result. */
static inline __attribute__((always_inline)) void
conv_weight_micro(int mr, int nv, const conv_span *span, const T *planes,
                  const int64_t *off, const T *dy, int64_t ldy, T *to,
                  int64_t ldc) {
  V c[8][TILE_NV];
  const T *from[8];
#pragma GCC unroll 8
  for (int i = 0; i < mr; i++) {
    from[i] = planes + off[i];
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      c[i][j] = *(const V *)(to + i * ldc + j * VN);
  }
  for (int64_t z = 0; z < span->count[0]; z++)
    for (int64_t y = 0; y < span->count[1]; y++) {
      int64_t x = z * span->layer + y * span->pitch, end = x + span->count[2];
      for (; x < end; x++, dy += ldy) {
        V row[TILE_NV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
          row[j] = *(const V *)(dy + j * VN);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
          V v = from[i][x] - (V){0};
#pragma GCC unroll 4
          for (int j = 0; j < nv; j++)
            c[i][j] += v * row[j];
        }
      }
    }
#pragma GCC unroll 8
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++)
      *(V *)(to + i * ldc + j * VN) = c[i][j];
}

#define ROWS(mr, nv)                                                           \
  case mr:                                                                     \
    conv_weight_micro(mr, nv, s, planes, off, dy, ldy, to, ldc);               \
    break;
#define NARROW(nv, more)                                                       \
  TILE_ONCE static void conv_weight##nv(                                       \
      int mr, const conv_span *s, const T *planes, const int64_t *off,         \
      const T *dy, int64_t ldy, T *to, int64_t ldc) {                          \
    switch (mr) {                                                              \
      ROWS(1, nv)                                                              \
      ROWS(2, nv) ROWS(3, nv) ROWS(4, nv) ROWS(5, nv) ROWS(6, nv) more         \
    }                                                                          \
  }
NARROW(1, ROWS(7, 1) ROWS(8, 1))
#if TILE_NV > 2
NARROW(2, ROWS(7, 2) ROWS(8, 2))
NARROW(3, ROWS(7, 3) ROWS(8, 3))
NARROW(4, )
#else
NARROW(2, )
#endif
#undef NARROW
#undef ROWS

/* All rows of k, `n` of them, against all channels of dy. */
static void conv_weight_sums(const conv_span *s, const T *planes,
                             const int64_t *off, int64_t n, const T *dy,
                             int64_t ldy, T *to) {
  for (int64_t j = 0, nv; j < ldy; j += nv * VN) {
    nv = (ldy - j) / VN;
    nv = nv <= TILE_NV ? nv : nv == TILE_NV + 1 ? TILE_NV - 1 : TILE_NV;
    int64_t rows = nv * (TILE_NV > 2 ? 1 : 2) == 4 ? 6 : 8;
    int64_t blocks = fl_ceil_div(n, rows);
    for (int64_t i = 0; i < blocks; i++) { /* of nearly the same size */
      int64_t k = i * n / blocks;
      int mr = (int)((i + 1) * n / blocks - k);
      T *t = to + k * ldy + j;
      switch (nv) {
      case 1:
        conv_weight1(mr, s, planes, off + k, dy + j, ldy, t, ldy);
        break;
      case 2:
        conv_weight2(mr, s, planes, off + k, dy + j, ldy, t, ldy);
        break;
#if TILE_NV > 2
      case 3:
        conv_weight3(mr, s, planes, off + k, dy + j, ldy, t, ldy);
        break;
      case 4:
        conv_weight4(mr, s, planes, off + k, dy + j, ldy, t, ldy);
        break;
#endif
      }
    }
  }
}

/* C[i] += sum over x of planes[off[i] + x] * dy[x], i < n, n at most 8. */
static inline __attribute__((always_inline)) void
conv_dots(int n, const T *planes, const int64_t *off, const T *dy,
          int64_t length, T *to, int64_t ldw) {
  V s[8];
#pragma GCC unroll 8
  for (int i = 0; i < n; i++)
    s[i] = (V){0};
  for (int64_t x = 0; x < length; x += VN) {
    V d = *(const V *)(dy + x);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
      s[i] += d * *(const V *)(planes + off[i] + x);
  }
  for (int i = 0; i < n; i++) {
    T sum = 0;
    for (int u = 0; u < VN; u++)
      sum += s[i][u];
    to[i * ldw] += sum;
  }
}

/* Few channels of dy: vectors run along the results instead. dy (channel, flat)
 * is 0 between results; n is whole vectors. */
TILE_ONCE static void conv_weight_dots(const T *planes, const int64_t *off,
                                       int64_t k, const T *dy, int64_t channels,
                                       int64_t n, T *to, int64_t ldw) {
  for (int64_t o = 0; o < channels; o++, dy += n, to++) {
    int64_t i = 0;
    for (; i + 8 <= k; i += 8)
      conv_dots(8, planes, off + i, dy, n, to + i * ldw, ldw);
    for (; i + 3 <= k; i += 3)
      conv_dots(3, planes, off + i, dy, n, to + i * ldw, ldw);
    for (; i < k; i++)
      conv_dots(1, planes, off + i, dy, n, to + i * ldw, ldw);
  }
}

typedef struct conv_weight_room {
  T *planes, *dy, *rows;
} conv_weight_room;

static size_t conv_weight_carve(const conv *c, char *at, conv_weight_room *r) {
  char *start = at;
  int64_t planes = c->direct ? 0 : c->split * c->channel;
  r->planes = tile_carve(&at, planes + 2 * PANEL, sizeof(T));
  r->dy = tile_carve(&at, c->columns * c->ldw, sizeof(T));
  r->rows = tile_carve(&at, c->dots ? 0 : c->columns * c->cd, sizeof(T));
  return (size_t)(at - start);
}

/* dy of one image, group and strip, each result a row of channels, or (dots)
 * each channel a row laid out as the planes are. */
static void conv_weight_dy(const conv *c, conv_weight_room *r, int64_t image,
                           int64_t group, int64_t first, const conv_span *s,
                           int64_t flat) {
  const conv_data *d = &c->to;
  int64_t at[3] = {0, 0, 0}, n = c->dots ? flat : conv_volume(s->count);
  int64_t pitch = c->dots ? s->pitch : s->count[2],
          layer = c->dots ? s->layer : s->count[2] * s->count[1];
  at[c->cut] = first;
  const char *base =
      d->data + d->size * (image * d->stride[0] + group * c->cd * d->stride[1] +
                           at[0] * d->stride[2] + at[1] * d->stride[3] +
                           at[2] * d->stride[4]);
  T *rows = c->dots ? r->dy : r->rows;
  if (c->dots)
    memset(rows, 0, (size_t)(c->cd * n) * sizeof(T));
  else if (d->dtype == DTYPE && d->stride[4] == 1 &&
           (s->count[1] == 1 || d->stride[3] == pitch) &&
           (s->count[0] == 1 || d->stride[2] == layer)) {
    transpose(r->dy, c->ldw, (const T *)base, d->stride[1], c->cd, n, 1);
    return;
  }
  for (int64_t o = 0; o < c->cd; o++)
    for (int64_t z = 0; z < s->count[0]; z++)
      for (int64_t y = 0; y < s->count[1]; y++)
        load(rows + o * n + z * layer + y * pitch,
             base + d->size * (o * d->stride[1] + z * d->stride[2] +
                               y * d->stride[3]),
             d->dtype, d->stride[4], s->count[2]);
  if (!c->dots)
    transpose(r->dy, c->ldw, rows, n, c->cd, n, 1);
}

/* Some channels of one group, over some of the units (image, strip). */
static void conv_weight_part(const conv *c, conv_weight_room *r, int64_t group,
                             int64_t channel, int64_t channels, int64_t unit,
                             int64_t end, T *to) {
  const conv_sub *sub = &c->subs[0];
  const conv_data *d = &c->from;
  int64_t pitch = c->cut == 2   ? 1
                  : c->cut == 1 ? c->axis[2].extent
                                : c->axis[1].extent * c->axis[2].extent;
  conv_span s = {.pitch = c->axis[2].extent,
                 .layer = c->axis[1].extent * c->axis[2].extent};
  memset(to, 0, (size_t)(channels * c->taps * c->ldw) * sizeof(T));
  for (; unit < end && !fl_cpu_interrupted(c->l); unit++) {
    int64_t image = unit / c->strips, first = unit % c->strips * c->strip;
    for (int i = 0; i < 3; i++)
      s.count[i] = c->most[i];
    s.count[c->cut] -= first;
    if (s.count[c->cut] > c->strip)
      s.count[c->cut] = c->strip;
    int64_t flat = tile_up(conv_flat(c, s.count), VN);
    const T *planes = r->planes;
    if (c->direct)
      planes = (const T *)d->data + image * d->stride[0] +
               (group * c->cs + channel) * d->stride[1] + first * pitch;
    else
      conv_fill(c, image, group, channel, channel + channels, first, r->planes);
    conv_weight_dy(c, r, image, group, first, &s, flat);
    if (c->dots)
      conv_weight_dots(planes, sub->off, channels * c->taps, r->dy, c->cd, flat,
                       to, c->ldw);
    else
      conv_weight_sums(&s, planes, sub->off, channels * c->taps, r->dy, c->ldw,
                       to);
  }
}

static void conv_weight_task(void *context, int64_t begin, int64_t end) {
  conv *c = context;
  conv_weight_room r;
  char *slot = tile_slot_take(&c->slots);
  conv_weight_carve(c, slot, &r);
  /* dots read behind the planes: 0 times something finite */
  if (!c->direct)
    memset(r.planes + c->split * c->channel, 0,
           (size_t)(2 * PANEL) * sizeof(T));
  int64_t units = c->images * c->strips, splits = fl_ceil_div(c->cs, c->split);
  for (int64_t n = begin; n < end; n++) {
    int64_t split = n % splits, group = n / splits % c->groups,
            piece = n / splits / c->groups, channel = split * c->split;
    int64_t channels = c->cs - channel < c->split ? c->cs - channel : c->split;
    T *to = (T *)c->packed +
            ((piece * c->groups + group) * c->cs + channel) * c->taps * c->ldw;
    conv_weight_part(c, &r, group, channel, channels, piece * units / c->pieces,
                     (piece + 1) * units / c->pieces, to);
  }
  tile_slot_give(&c->slots, slot);
}

/* Sums of all pieces, (k, channel of dy), to the result, (channel, k). */
static void conv_weight_add(void *context, int64_t begin, int64_t end) {
  conv *c = context;
  enum { ROWS = 64, COLS = 16 };
  int64_t k = c->cs * c->taps, blocks = fl_ceil_div(k, ROWS);
  const fl_view *out = &c->result;
  int64_t size = (int64_t)fl_dtype_size(out->dtype);
  T turned[COLS * ROWS];
  for (int64_t n = begin; n < end; n++) {
    int64_t group = n / blocks, k0 = n % blocks * ROWS,
            rows = k - k0 < ROWS ? k - k0 : ROWS;
    T *restrict sum = (T *)c->packed + (group * k + k0) * c->ldw;
    for (int64_t p = 1; p < c->pieces; p++) {
      const T *restrict more = sum + p * c->groups * k * c->ldw;
      for (int64_t i = 0; i < rows * c->ldw; i++)
        sum[i] += more[i];
    }
    for (int64_t o = 0; o < c->cd; o += COLS) {
      int64_t cols = c->cd - o < COLS ? c->cd - o : COLS;
      transpose(turned, ROWS, sum + o, c->ldw, rows, cols, 1);
      for (int64_t i = 0; i < cols; i++)
        store((char *)out->data + size * ((group * c->cd + o + i) * k + k0),
              out->dtype, 1, turned + i * ROWS, rows, 1, 0);
    }
  }
}

static fl_status conv_weight_run(conv *c, int at, int spatial) {
  const fl_launch *l = c->l;
  conv_weight_room r;
  c->dots = 2 * c->cd <= VN;
  c->copied = c->dots;
  if (!FL_CPU(conv_plan)(c, at, spatial, DTYPE))
    return FL_ENOMEM;
  c->ldw = c->dots ? c->cd : tile_up(c->cd, VN);
  /* tasks: channels first, they need no sums of their own */
  int64_t units = c->images * c->strips, k = c->cs * c->taps,
          all = c->groups * k * c->ldw;
  int64_t splits = k / 256 > 1 ? k / 256 : 1;
  int64_t most = fl_ceil_div(CONV_TASKS, c->groups);
  splits = splits < most ? splits : most;
  splits = splits < c->cs ? splits : c->cs;
  c->split = fl_ceil_div(c->cs, splits);
  splits = fl_ceil_div(c->cs, c->split);
  most = CONV_TASKS / (c->groups * splits);
  c->pieces = most < units ? most : units;
  if (c->pieces > (1 << 23) / (all + 1))
    c->pieces = (1 << 23) / (all + 1);
  if (c->pieces < 1)
    c->pieces = 1;
  int64_t tasks = c->pieces * c->groups * splits;
  int64_t work = c->columns * c->split * c->taps * c->cd / 8 *
                     (fl_ceil_div(units, c->pieces)) +
                 1;
  int64_t grain = 1 + 200000 / work;
  c->packed = fl_scratch_get(l, (size_t)(c->pieces * all) * sizeof(T) + 1);
  if (!c->packed || !tile_slots_open(l, &c->slots, fl_ceil_div(tasks, grain),
                                     conv_weight_carve(c, NULL, &r)))
    return FL_ENOMEM;
  fl_cpu_parallel(l, tasks, grain, conv_weight_task, c);
  fl_cpu_parallel(l, c->groups * ((k + 63) / 64),
                  1 + 30000 / (64 * c->ldw * c->pieces), conv_weight_add, c);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

const conv_kernels FL_TYPED(conv) = {.run = conv_run,
                                     .weights = conv_weight_run};
