/* Convolutions of groups with few channels, depthwise ones above all, by the
 * kernels of depthwise.cu: which tiles, in which order, and how many blocks. */
#include "convolve.h"
#include "depthwise.h"

#define FEW         4    /* channels of a group */
#define WIDEST      2048 /* columns of taps, whose weights have room */
#define TURNS       8    /* tiles of a thread, at most */
#define WAVES       8 /* blocks for each multiprocessor, if there are so many */
#define TILE_ROWS   4
#define PIECES_MOST ((int64_t)64 << 20) /* bytes */

/* A specialisation of depthwise.cu; its arguments in their order. */
typedef struct depthwise_form {
  int last, n, s, t, rows, cols;
} depthwise_form;

static int64_t common(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

/* Whether a thread reaches all of a channel by offsets of 32 bits, beyond the
 * edges as well. */
static bool reaches(const flc_conv *c, const flc_planes *p) {
  int64_t most = 0;
  for (int i = 1; i < 3; i++) {
    int64_t beyond = c->pad[i] + c->kernel[i] * c->dilation[i] +
                     (TILE_ROWS + 8) * c->stride[i] * c->dilation[i];
    most += (p->size[i] + 2 * beyond) * p->place[i];
  }
  return most <= INT32_MAX;
}

bool flc_conv_few(const flc_conv *c) {
  int64_t s = c->stride[2], step = s / common(s, c->dilation[2]);
  bool fits = c->kind == FLC_CONV_INPUT || step <= 2;
  return c->groups > 1 && c->inputs <= FEW && c->inputs > 0 &&
         c->kernel[2] <= WIDEST && c->spatial <= 2 && c->dtype != FL_F64 &&
         fits && reaches(c, &c->x) && reaches(c, &c->y);
}

/* --- from a launch of conv.cu to one of these --- */

/* Taps in the order of the source. */
static void turn_taps(conv_args *a) {
  for (int i = 0; i < 3; i++)
    if (a->hop[i] < 0) {
      int last = a->taps[i] > 0 ? a->taps[i] - 1 : 0;
      a->base[i] += a->hop[i] * last;
      a->first[i] += a->every[i] * last;
      a->hop[i] = -a->hop[i];
      a->every[i] = -a->every[i];
    }
}

static void depthwise_take(depthwise_args *a, conv_args *from) {
  turn_taps(from);
  a->x = from->x;
  a->y = from->y;
  a->x_image = from->x_image;
  a->x_channel = from->x_channel;
  a->x_row = (int)from->x_place[1];
  a->x_col = (int)from->x_place[2];
  a->y_image = from->y_image;
  a->y_channel = from->y_channel;
  a->y_row = (int)from->y_place[1];
  a->y_col = (int)from->y_place[2];
  a->y_at = from->y_at;
  a->channels = from->channels;
  a->by_group = flc_conv_divider(from->rows);
  for (int i = 0; i < 2; i++) {
    a->x_size[i] = from->size[i + 1];
    a->size[i] = from->grid[i + 1];
    a->step[i] = from->step[i + 1];
    a->base[i] = from->base[i + 1];
    a->hop[i] = from->hop[i + 1];
    a->taps[i] = from->taps[i + 1];
    int g = (int)common(a->step[i], a->hop[i]);
    a->every[i] = a->hop[i] / g;
    if (i == 0)
      a->stretch = a->step[i] / g;
  }
  a->x_hop = a->x_col * a->hop[1];
  a->w_row = from->every[1] * from->kernel[2];
  a->w_col = from->every[2];
  a->w_at = (int64_t)from->first[1] * from->kernel[2] + from->first[2];
}

/* --- the form --- */

static int64_t tiles_along(const depthwise_args *a, int dim, int size) {
  int64_t each = fl_ceil_div(a->size[dim], a->every[dim]);
  return a->every[dim] * fl_ceil_div(each, size);
}

/* Whether all places that are read or written at once, n of them, lie together
 * and where such an access may begin. */
static bool together(const depthwise_args *a, const depthwise_form *f, int n,
                     fl_dtype dtype, const void *y) {
  int64_t all = a->x_image | a->x_row | a->y_image | a->y_row;
  size_t bytes = (size_t)n * fl_dtype_size(dtype);
  if (!flc_aligned(a->x, bytes) || !flc_aligned(y, bytes))
    return false;
  if (f->last)
    return a->channels == 1 && a->by_group.by == 1 &&
           (all | a->x_col | a->y_col | a->y_at) % n == 0;
  int lead = (n - f->s / 2 % n) % n;
  return a->x_col == 1 && a->y_col == 1 && a->hop[1] == 1 && a->segments == 1 &&
         (a->base[1] - lead) % n == 0 &&
         (all | a->x_channel | a->y_channel | a->y_at | a->x_size[1] |
          a->size[1]) %
                 n ==
             0;
}

/* Segments of 3, 5 or 7 taps, as few taps as possible. */
static int segment_of(int taps, int *segments) {
  int best = 3, least = INT32_MAX;
  for (int s = 3; s <= 7; s += 2) {
    int n = (int)fl_ceil_div(taps > 0 ? taps : 1, s);
    if (n * s <= least) {
      least = n * s;
      best = s;
      *segments = n;
    }
  }
  return best;
}

static depthwise_form form_of(depthwise_args *a, int64_t channels,
                              fl_dtype dtype, const void *y, int rows) {
  depthwise_form f = {.last = a->x_channel == 1 && a->y_channel == 1};
  f.t = a->step[1] * a->every[1] / a->hop[1];
  f.s = segment_of(a->taps[1], &a->segments);
  f.cols = f.t == 2 ? 4 : 8;
  f.rows = rows;
  if (f.last && f.t == 1 && f.rows > 1 &&
      tiles_along(a, 1, 7) * 7 < tiles_along(a, 1, 8) * 8)
    f.cols = 7;
  f.n = f.last ? 2 : 4;
  while (f.n > 1 &&
         ((f.last && channels % f.n != 0) || !together(a, &f, f.n, dtype, y)))
    f.n /= 2;
  return f;
}

/* How many lines share a block: most tiles side by side, but not many threads
 * without one. */
static int lanes_for(int64_t spots, int most) {
  int each = most, bits = 0;
  while (each > 1 && fl_ceil_div(spots, each) * each - spots > spots / 8)
    each /= 2;
  while (each << bits < DEPTHWISE)
    bits++;
  return bits;
}

static flc_spec spec_of(const char *entry, fl_dtype dtype,
                        const depthwise_form *f) {
  flc_spec s = FLC_SPEC("depthwise", "", (int16_t)dtype, f->last, f->n, f->s,
                        f->t, f->rows, f->cols);
  s.entry = entry;
  return s;
}

static fl_status depthwise_start(const fl_launch *l, const flc_spec *spec,
                                 const depthwise_args *a, int64_t blocks,
                                 size_t shared) {
  if (blocks > INT32_MAX)
    return fli_fail(FL_ESIZE, "%s: %lld tiles are more than a launch has",
                    l->op, (long long)blocks);
  flc_grid grid = {
      .x = (unsigned)blocks, .block = DEPTHWISE, .shared = (unsigned)shared};
  return flc_run(l, spec, grid, a, sizeof *a);
}

/* --- results, and gradients of inputs --- */

/* How a block's weights lie in shared memory, for as many of its lines and rows
 * of taps as there is room for: bytes. */
static size_t share_room(depthwise_args *a, const depthwise_form *f) {
  int width = f->last ? f->n : 1;
  int padded = a->segments * (f->last ? f->s : (f->s + 3) / 4 * 4);
  while (a->lane_bits > 0 &&
         (padded * (width << a->lane_bits) + padded) * 4 > DEPTHWISE_ROOM)
    a->lane_bits--;
  int lines = width << a->lane_bits, each = f->last ? lines + width : lines;
  int most = DEPTHWISE_ROOM / (padded * each * 4);
  a->chunk = a->taps[0] < most ? a->taps[0] : most > 1 ? most : 1;
  a->by_padded = flc_conv_divider(padded);
  if (f->last) {
    a->pitch = each;
    return (size_t)(a->chunk * padded * each) * 4;
  }
  a->pitch = a->chunk * padded; /* lines begin in different banks */
  a->pitch += a->pitch % 8 == 0 ? 4 : 0;
  return (size_t)(a->pitch * lines) * 4;
}

static fl_status run_places(const fl_launch *l, const flc_conv *c,
                            conv_args *from) {
  depthwise_args a = {.w = c->w,
                      .bias = from->bias,
                      .bias_dtype = from->bias_dtype,
                      .w_group = from->w_group,
                      .w_result = from->w_row,
                      .w_channel = from->w_channel};
  int64_t channels = from->groups * from->rows;
  depthwise_take(&a, from);
  depthwise_form f =
      form_of(&a, channels, c->dtype, a.y, a.size[0] == 1 ? 1 : TILE_ROWS);
  int64_t vectors = channels / (f.last ? f.n : 1);
  a.by_line = flc_conv_divider(vectors);
  a.lines = from->images * vectors;
  a.strips = (int)tiles_along(&a, 1, f.cols);
  a.by_strips = flc_conv_divider(a.strips);
  a.spots = a.strips * tiles_along(&a, 0, f.rows);
  a.lane_bits = lanes_for(a.spots, f.last ? 8 : DEPTHWISE);
  size_t shared = share_room(&a, &f);
  a.line_blocks = fl_ceil_div(a.lines, 1 << a.lane_bits);
  int64_t all = fl_ceil_div(a.spots, DEPTHWISE >> a.lane_bits);
  int64_t turns = a.line_blocks * all / (flc_chip_of(l)->processors * WAVES);
  a.turns = (int)(turns < 1 ? 1 : turns > TURNS ? TURNS : turns);
  flc_spec spec = spec_of("places", c->dtype, &f);
  return depthwise_start(l, &spec, &a,
                         a.line_blocks * fl_ceil_div(all, a.turns), shared);
}

static fl_status few_forward(const fl_launch *l, const flc_conv *c) {
  int64_t taps = flc_volume(c->kernel), each = c->outputs / c->groups;
  conv_args a = {.bias = c->bias,
                 .bias_dtype = c->bias_dtype,
                 .groups = c->groups,
                 .w_group = each * c->inputs * taps,
                 .w_row = c->inputs * taps,
                 .w_channel = taps};
  flc_conv_set_source(&a, &c->x, c->inputs);
  flc_conv_set_destination(&a, &c->y, each);
  flc_conv_set_window(&a, c);
  return run_places(l, c, &a);
}

static fl_status few_input(const fl_launch *l, const flc_conv *c) {
  int64_t taps = flc_volume(c->kernel), each = c->outputs / c->groups;
  int64_t p[3] = {0};
  conv_args a = {.groups = c->groups,
                 .w_group = each * c->inputs * taps,
                 .w_row = taps,
                 .w_channel = c->inputs * taps};
  fl_status s = FL_OK;
  for (p[1] = 0; p[1] < c->stride[1] && p[1] < c->x.size[1]; p[1]++)
    for (p[2] = 0; p[2] < c->stride[2] && p[2] < c->x.size[2]; p[2]++) {
      flc_conv_set_source(&a, &c->y, each);
      flc_conv_set_destination(&a, &c->x, c->inputs);
      flc_conv_set_phase(&a, c, p);
      if ((s = run_places(l, c, &a)))
        return s;
    }
  return s;
}

/* --- gradients of weights --- */

static fl_status run_pieces(const fl_launch *l, const flc_conv *c,
                            depthwise_args *a) {
  a->y = c->w;
  a->lines = c->outputs * c->inputs;
  a->line_blocks = fl_ceil_div(a->lines, 32);
  flc_spec spec = FLC_SPEC("depthwise", "pieces", (int16_t)c->dtype);
  flc_grid grid = {.x = (unsigned)(a->line_blocks * a->taps[0] * a->taps[1]),
                   .block = 32 * DEPTHWISE_DEPTH};
  return flc_run(l, &spec, grid, a, sizeof *a);
}

static fl_status few_weight(const fl_launch *l, const flc_conv *c) {
  conv_args from = {.groups = c->groups};
  depthwise_args a = {.w = c->y.data};
  int64_t pairs = c->outputs * c->inputs;
  flc_conv_set_source(&from, &c->x, c->inputs);
  flc_conv_set_destination(&from, &c->y, c->outputs / c->groups);
  flc_conv_set_window(&from, c);
  depthwise_take(&a, &from);
  depthwise_form f = form_of(&a, pairs, c->dtype, a.w, a.taps[0]);
  int64_t band = a.taps[0] == 1 ? 1 : f.s;
  f.rows = (int)band;
  a.lines = pairs / (f.last ? f.n : 1);
  a.strips = (int)tiles_along(&a, 1, f.cols);
  a.by_strips = flc_conv_divider(a.strips);
  a.height = f.t == 1 && band > 1 && a.stretch == 1 ? 2 : 1;
  int64_t rows = a.height == 1 ? a.size[0] : tiles_along(&a, 0, a.height);
  a.by_rows = flc_conv_divider(rows);
  a.spots = c->y.images * rows * a.strips;
  a.lane_bits = lanes_for(a.spots, f.last ? 8 : DEPTHWISE);
  a.line_blocks = fl_ceil_div(a.lines, 1 << a.lane_bits);
  int64_t blocks = a.line_blocks * a.segments * fl_ceil_div(a.taps[0], band);
  int64_t bytes = pairs * a.taps[0] * a.taps[1] * 4;
  int64_t splits = fl_ceil_div(flc_chip_of(l)->processors * WAVES, blocks);
  int64_t most = fl_ceil_div(a.spots, DEPTHWISE >> a.lane_bits);
  splits = splits < most ? splits : most;
  splits = splits < PIECES_MOST / bytes ? splits : PIECES_MOST / bytes;
  a.splits = splits < 1 ? 1 : (int)splits;
  a.part = fl_scratch_get(l, (size_t)(bytes * a.splits));
  if (!a.part)
    return FL_ENOMEM;
  flc_spec spec = spec_of("taps", c->dtype, &f);
  fl_status s = depthwise_start(l, &spec, &a, blocks * a.splits,
                                (size_t)f.s * (f.last ? f.n : 1) * DEPTHWISE *
                                    sizeof(float));
  return s ? s : run_pieces(l, c, &a);
}

/* Makes p a copy with channels innermost as they are in `like`, or not: lanes
 * are channels or columns of both. */
static fl_status follow(const fl_launch *l, const flc_conv *c, flc_planes *p,
                        const flc_planes *like) {
  bool last = like->channel == 1;
  int64_t places = flc_volume(p->size), step = last ? p->channels : 1;
  if ((p->channel == 1) == last || flc_volume(like->size) == 1 || places == 1)
    return FL_OK;
  fl_view from = flc_planes_view(p, c->dtype);
  p->data = fl_scratch_get(l, (size_t)(p->images * p->channels * places) *
                                  fl_dtype_size(c->dtype));
  p->image = p->channels * places;
  p->channel = last ? 1 : places;
  for (int i = 2; i >= 0; step *= p->size[i--])
    p->place[i] = step;
  fl_view to = flc_planes_view(p, c->dtype);
  return p->data ? flc_move(l, &to, &from) : FL_ENOMEM;
}

fl_status flc_depthwise(const fl_launch *l, const flc_conv *c) {
  flc_conv alike = *c;
  fl_status s = c->kind == FLC_CONV_FORWARD ? follow(l, c, &alike.x, &c->y)
                                            : follow(l, c, &alike.y, &c->x);
  if (s)
    return s;
  switch (c->kind) {
  case FLC_CONV_FORWARD:
    return few_forward(l, &alike);
  case FLC_CONV_INPUT:
    return few_input(l, &alike);
  case FLC_CONV_WEIGHT:
    break;
  }
  return few_weight(l, &alike);
}

/* --- what a pack holds --- */

static void visit_forms(flc_visitor *v, fl_dtype d, int last, int n, int s) {
  static const struct { int t, cols; } tiles[] = {{1, 8}, {2, 4}, {1, 7}};
  for (int i = 0; i < 3; i++)
    for (int flat = 0; flat < 2; flat++) {
      if (i == 2 && !(last && !flat))
        continue;
      bool quick = d == FL_BF16 && s == 7 && n > 1 && i != 1 && !flat;
      depthwise_form f = {last,         n, s, tiles[i].t, flat ? 1 : TILE_ROWS,
                          tiles[i].cols};
      flc_spec places = spec_of("places", d, &f);
      v->spec(v, &places, quick);
      f.rows = flat ? 1 : s;
      flc_spec taps = spec_of("taps", d, &f);
      v->spec(v, &taps, quick);
    }
}

void flc_visit_depthwise(flc_visitor *v) {
  static const fl_dtype dtypes[] = {FL_BF16, FL_F16, FL_F32};
  for (int i = 0; i < 3; i++) {
    flc_spec sum = FLC_SPEC("depthwise", "pieces", (int16_t)dtypes[i]);
    v->spec(v, &sum, i == 0);
    for (int s = 3; s <= 7; s += 2)
      for (int n = 1; n <= 4; n *= 2) {
        if (n <= 2)
          visit_forms(v, dtypes[i], 1, n, s);
        visit_forms(v, dtypes[i], 0, n, s);
      }
  }
}
