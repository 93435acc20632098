/* Convolutions by our own kernels: 1 x 1 as matrix products, 16-bit floats on
 * tensor cores with channels innermost, f32 and f64 by plain tiles, and groups
 * of few channels result by result. */
#include "convolve.h"
#include "../gemm/product.h"
#include "conv.h"
#include "../gemm/gemm.h"

#include <string.h>

#define STEP        64 /* of a sum on tensor cores */
#define PLAIN_STEP  16
#define FEW         4 /* channels of a group that need no tiles */
#define PIECES_MOST ((int64_t)256 << 20) /* bytes */

conv_divider flc_conv_divider(int64_t by) {
  conv_divider d = {by > 0 ? (uint32_t)by : 1, 0, 0};
  while (((uint64_t)1 << d.shift) < d.by)
    d.shift++;
  d.multiply =
      (uint32_t)((((((uint64_t)1 << d.shift) - d.by) << 32) / d.by) + 1);
  return d;
}

static bool conv_native_half(const flc_conv *c) {
  return fl_dtype_size(c->dtype) == 2;
}

/* --- where a launch reads and writes --- */

void flc_conv_set_source(conv_args *a, const flc_planes *p, int64_t channels) {
  a->x = p->data;
  a->images = p->images;
  a->x_image = p->image;
  a->x_channel = p->channel;
  a->x_group = p->channel * channels;
  a->channels = (int)channels;
  for (int i = 0; i < 3; i++) {
    a->x_place[i] = p->place[i];
    a->size[i] = (int)p->size[i];
  }
}

void flc_conv_set_destination(conv_args *a, const flc_planes *p, int64_t rows) {
  a->y = p->data;
  a->y_image = p->image;
  a->y_channel = p->channel;
  a->rows = (int)rows;
}

static void set_dividers(conv_args *a) {
  a->n_taps = a->taps[0] * a->taps[1] * a->taps[2];
  a->places = (int64_t)a->grid[0] * a->grid[1] * a->grid[2];
  a->by_places = flc_conv_divider(a->places);
  a->by_grid1 = flc_conv_divider(a->grid[1]);
  a->by_grid2 = flc_conv_divider(a->grid[2]);
  a->by_channels = flc_conv_divider(a->channels);
  a->by_taps = flc_conv_divider(a->n_taps);
  a->by_taps1 = flc_conv_divider(a->taps[1]);
  a->by_taps2 = flc_conv_divider(a->taps[2]);
}

void flc_conv_set_window(conv_args *a, const flc_conv *c) {
  for (int i = 0; i < 3; i++) {
    a->grid[i] = (int)c->y.size[i];
    a->step[i] = (int)c->stride[i];
    a->base[i] = -(int)c->pad[i];
    a->hop[i] = (int)c->dilation[i];
    a->taps[i] = a->kernel[i] = (int)c->kernel[i];
    a->first[i] = 0;
    a->every[i] = 1;
    a->y_place[i] = c->y.place[i];
  }
  a->y_at = 0;
  set_dividers(a);
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

void flc_conv_set_phase(conv_args *a, const flc_conv *c,
                        const int64_t phase[3]) {
  a->y_at = 0;
  for (int i = 0; i < 3; i++) {
    int64_t s = c->stride[i], d = c->dilation[i], k = c->kernel[i];
    int64_t every = s / gcd(d, s), at = phase[i] + c->pad[i], t = 0;
    while (t < every && t < k && (at - t * d) % s != 0)
      t++;
    bool none = t >= k || (at - t * d) % s != 0;
    a->grid[i] = (int)fl_ceil_div(c->x.size[i] - phase[i], s);
    a->step[i] = 1;
    a->base[i] = none ? 0 : (int)((at - t * d) / s);
    a->hop[i] = -(int)(every * d / s);
    a->taps[i] = none ? 0 : (int)fl_ceil_div(k - t, every);
    a->first[i] = (int)t;
    a->every[i] = (int)every;
    a->kernel[i] = (int)k;
    a->y_place[i] = c->x.place[i] * s;
    a->y_at += phase[i] * c->x.place[i];
  }
  set_dividers(a);
}

/* How many elements of 16 bits can be moved at once where all of these are
 * multiples of it: 8, 4 or 1. */
static int width_of(const void *data, int64_t a, int64_t b, int64_t c) {
  int64_t all = a | b | c;
  return all % 8 == 0 && flc_aligned(data, 16)  ? 8
         : all % 4 == 0 && flc_aligned(data, 8) ? 4
                                                : 1;
}

static int store_width(const conv_args *a) {
  int64_t expect = 1;
  for (int i = 2; i >= 0; i--) {
    if (a->grid[i] > 1 && a->y_place[i] != expect)
      return 1;
    expect *= a->grid[i];
  }
  return width_of(a->y, a->places | a->y_at, a->y_image, a->y_channel);
}

/* --- launches --- */

static fl_status conv_native_start(const fl_launch *l, const char *file,
                                   const char *entry, const conv_args *a,
                                   int64_t blocks, fl_dtype dtype, int size,
                                   unsigned block, size_t shared) {
  if (blocks > INT32_MAX)
    return fli_fail(FL_ESIZE, "%s: %lld tiles are more than a launch has",
                    l->op, (long long)blocks);
  flc_spec spec = {.file = file,
                   .entry = entry,
                   .n = size < 0 ? 1 : 2,
                   .t = {(int16_t)dtype, (int16_t)size}};
  if (size < 0)
    spec.t[1] = 0;
  flc_grid grid = {
      .x = (unsigned)blocks, .block = block, .shared = (unsigned)shared};
  return flc_run(l, &spec, grid, a, sizeof *a);
}

static unsigned blocks_for(int64_t n) {
  int64_t blocks = fl_ceil_div(n, 256);
  return (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);
}

static int64_t conv_native_up(int64_t n, int64_t to) {
  return fl_ceil_div(n, to) * to;
}

/* --- channels innermost, in eights --- */

bool flc_conv_packed(const flc_planes *p, int64_t groups) {
  bool good = (p->channel == 1 || p->channels == 1) &&
              p->channels / groups % 8 == 0 && p->image % 8 == 0 &&
              flc_aligned(p->data, 16);
  for (int i = 0; i < 3; i++)
    good = good && p->place[i] % 8 == 0;
  return good;
}

/* The one stride of places, if they have but one; 0 otherwise. */
static int64_t place_step(const flc_planes *p) {
  int64_t first = 0, expect = 0;
  for (int i = 2; i >= 0; i--) {
    if (p->size[i] == 1)
      continue;
    if (!first)
      first = expect = p->place[i];
    if (p->place[i] != expect)
      return 0;
    expect *= p->size[i];
  }
  return first ? first : 1;
}

/* The one stride of places of all images, 0 if there is more than one. */
static int64_t line_step(const flc_planes *p) {
  int64_t places = flc_volume(p->size), step = place_step(p);
  if (p->images == 1)
    return step;
  if (places == 1)
    return p->image;
  return step * places == p->image ? step : 0;
}

fl_status flc_conv_pack(const fl_launch *l, const flc_conv *c, flc_planes *p,
                        int64_t *padded, void *room) {
  int64_t each = p->channels / c->groups, places = flc_volume(p->size);
  *padded = conv_native_up(each, 8);
  int64_t all = *padded * c->groups;
  conv_pack_args a = {.from = p->data,
                      .images = p->images,
                      .places = places,
                      .image = p->image,
                      .channel = p->channel,
                      .groups = (int)c->groups,
                      .channels = (int)each,
                      .padded = (int)*padded};
  a.step = place_step(p);
  a.wide = a.step == 1 ? width_of(p->data, places, p->channel, p->image) : 1;
  a.to =
      room ? room : fl_scratch_get(l, (size_t)(p->images * places * all) * 2);
  if (!a.to)
    return FL_ENOMEM;
  int64_t blocks = p->images * fl_ceil_div(places, 64);
  if (blocks > INT32_MAX || fl_ceil_div(all, 64) > 65535)
    return fli_fail(FL_ESIZE, "%s: too many images or channels", l->op);
  int64_t step = all;
  for (int i = 2; i >= 0; i--) {
    a.size[i] = (int)p->size[i];
    a.place[i] = p->place[i];
    p->place[i] = step;
    step *= p->size[i];
  }
  flc_spec spec = FLC_SPEC("conv", "pack", (int16_t)c->dtype);
  flc_grid grid = {
      .x = (unsigned)blocks, .y = (unsigned)fl_ceil_div(all, 64), .block = 256};
  p->data = a.to;
  p->image = step;
  p->channel = 1;
  return FLC_RUN(l, spec, grid, a);
}

fl_status flc_conv_turn_weights(const fl_launch *l, const flc_conv *c,
                                const void *from, void *to, bool back) {
  int64_t taps = flc_volume(c->kernel), n = c->inputs * taps;
  conv_turn_args a = {from, to, (int)c->inputs, (int)taps, back};
  flc_spec spec = FLC_SPEC("conv", "turn_weights", 0);
  flc_grid g = {.x = (unsigned)c->outputs, .block = 256};
  if (n * 2 <= 48 << 10 && c->inputs % 8 == 0 && flc_aligned(from, 16) &&
      flc_aligned(to, 16)) {
    g.shared = (unsigned)(n * 2);
    return FLC_RUN(l, spec, g, a);
  }
  fl_view v = {.data = (void *)(uintptr_t)from,
               .dtype = c->dtype,
               .ndim = 3,
               .shape = {c->outputs, c->inputs, taps},
               .stride = {n, taps, 1}};
  fl_view w = v, *last = back ? &v : &w;
  w.data = to;
  last->stride[1] = 1;
  last->stride[2] = c->inputs;
  return flc_move(l, &w, &v);
}

fl_status flc_conv_turn(const fl_launch *l, const flc_conv *c, int64_t matrices,
                        int64_t rows, int64_t cols, const void *from,
                        void *to) {
  conv_pack_args a = {.from = from,
                      .to = to,
                      .images = matrices,
                      .places = cols,
                      .image = rows * cols,
                      .channel = cols,
                      .step = 1,
                      .size = {1, 1, 1},
                      .groups = 1,
                      .channels = (int)rows,
                      .padded = (int)rows};
  int64_t blocks = matrices * fl_ceil_div(cols, 64);
  if (blocks > INT32_MAX || fl_ceil_div(rows, 64) > 65535)
    return fli_fail(FL_ESIZE, "%s: too many images or places", l->op);
  a.wide = width_of(from, cols, 0, 0);
  flc_spec spec = FLC_SPEC("conv", "pack", (int16_t)c->dtype);
  flc_grid grid = {.x = (unsigned)blocks,
                   .y = (unsigned)fl_ceil_div(rows, 64),
                   .block = 256};
  return FLC_RUN(l, spec, grid, a);
}

static fl_status pack_weights(const fl_launch *l, const flc_conv *c,
                              bool turned, conv_args *a) {
  int64_t outputs = c->outputs / c->groups;
  conv_weight_args w = {.from = c->w,
                        .rows = turned ? c->inputs * c->groups : c->outputs,
                        .outputs = (int)outputs,
                        .inputs = (int)c->inputs,
                        .taps = (int)flc_volume(c->kernel),
                        .turned = turned};
  w.padded = (int)conv_native_up(turned ? outputs : c->inputs, 8);
  int64_t n = w.rows * w.taps * w.padded;
  w.to = fl_scratch_get(l, (size_t)n * 2 + 16);
  if (!w.to)
    return FL_ENOMEM;
  a->w = w.to;
  a->w_row = (int64_t)w.taps * w.padded;
  a->w_group = a->rows * a->w_row;
  if (n == 0)
    return FL_OK;
  flc_spec spec = FLC_SPEC("conv", "pack_weights", (int16_t)c->dtype);
  flc_grid grid = {.x = blocks_for(n), .block = 256};
  return FLC_RUN(l, spec, grid, w);
}

/* --- tiles --- */

/* As tile.cuh has them, and their threads. */
static const struct {
  int m, n, threads;
} tiles_of[] = {{64, 64, 128}, {128, 128, 128}, {128, 256, 256}};

static size_t shared_of(const flc_chip *chip, int size) {
  size_t m = (size_t)tiles_of[size].m, n = (size_t)tiles_of[size].n;
  size_t steps = size == 0 || (size == 2 && chip->major == 9) ? 4 : 3;
  size_t step = (m + n) * 128 * steps, c = m * (n + 8) * 4;
  return (step > c ? step : c) + m * 32;
}

/* Large tiles where they fit, fill the chip and are not mostly empty. */
static int size_of(const fl_launch *l, int64_t m, int64_t n, int64_t times) {
  const flc_chip *chip = flc_chip_of(l);
  for (int size = 2; size > 0; size--) {
    int64_t tm = tiles_of[size].m, tn = tiles_of[size].n;
    int64_t tiles = fl_ceil_div(m, tm) * fl_ceil_div(n, tn) * times;
    if (m > 64 && n > tn / 2 && (n % tn == 0 || n % tn > tn / 2) &&
        tiles >= chip->processors && flc_fits(chip, shared_of(chip, size)))
      return size;
  }
  return 0;
}

static fl_status run_tensor(const fl_launch *l, const flc_conv *c,
                            conv_args *a) {
  int64_t all = a->images * a->places;
  int size = size_of(l, all, a->rows, c->groups);
  a->tiles_m = fl_ceil_div(all, tiles_of[size].m);
  a->tiles_n = fl_ceil_div(a->rows, tiles_of[size].n);
  a->steps = (int)fl_ceil_div((int64_t)a->n_taps * a->channels, STEP);
  a->wide = store_width(a);
  return conv_native_start(
      l, "conv", "direct", a, a->tiles_m * a->tiles_n * a->groups, c->dtype,
      size, (unsigned)tiles_of[size].threads, shared_of(flc_chip_of(l), size));
}

static int plain_size(const fl_launch *l, const flc_conv *c, int64_t m,
                      int64_t n, int64_t times) {
  const flc_chip *chip = flc_chip_of(l);
  int64_t tiles = fl_ceil_div(m, 128) * fl_ceil_div(n, 128) * times;
  bool large = m > 64 && n > 64 && tiles >= chip->processors;
  return large ? flc_simt_sizes(chip, c->dtype) : 1;
}

static fl_status run_plain(const fl_launch *l, const flc_conv *c,
                           conv_args *a) {
  int64_t all = a->images * a->places;
  int r = plain_size(l, c, a->rows, all, c->groups), edge = r * 64;
  a->tiles_m = fl_ceil_div(a->rows, edge);
  a->tiles_n = fl_ceil_div(all, edge);
  return conv_native_start(l, "conv_plain", "direct", a,
                           a->tiles_m * a->tiles_n * a->groups, c->dtype, r,
                           256, flc_simt_shared(c->dtype, r));
}

static fl_status run_places(const fl_launch *l, const flc_conv *c,
                            conv_args *a) {
  if (c->groups > 1 && c->inputs <= FEW)
    return conv_native_start(
        l, "conv_plain", "each_result", a,
        blocks_for(a->images * a->groups * a->rows * a->places), c->dtype, -1,
        256, 0);
  return conv_native_half(c) ? run_tensor(l, c, a) : run_plain(l, c, a);
}

/* Weights as a launch reads them: those of the gradient the other way round. */
static fl_status set_weights(const fl_launch *l, const flc_conv *c, bool turned,
                             conv_args *a) {
  int64_t taps = flc_volume(c->kernel), line = c->inputs * taps;
  if (conv_native_half(c) && !(c->groups > 1 && c->inputs <= FEW))
    return pack_weights(l, c, turned, a);
  a->w = c->w;
  a->w_group = c->outputs / c->groups * line;
  a->w_row = turned ? taps : line;
  a->w_channel = turned ? line : taps;
  a->w_tap = 1;
  return FL_OK;
}

static fl_status set_packed(const fl_launch *l, const flc_conv *c,
                            const flc_planes *p, conv_args *a) {
  flc_planes q = *p;
  int64_t each = p->channels / c->groups;
  if (conv_native_half(c) && !(c->groups > 1 && c->inputs <= FEW) &&
      !flc_conv_packed(p, c->groups)) {
    fl_status s = flc_conv_pack(l, c, &q, &each, NULL);
    if (s)
      return s;
  }
  flc_conv_set_source(a, &q, each);
  return FL_OK;
}

static fl_status conv_native_forward(const fl_launch *l, const flc_conv *c) {
  conv_args a = {
      .bias = c->bias, .bias_dtype = c->bias_dtype, .groups = c->groups};
  flc_conv_set_destination(&a, &c->y, c->outputs / c->groups);
  fl_status s = set_packed(l, c, &c->x, &a);
  if (s || (s = set_weights(l, c, false, &a)))
    return s;
  flc_conv_set_window(&a, c);
  return run_places(l, c, &a);
}

static fl_status input_grad(const fl_launch *l, const flc_conv *c) {
  conv_args a = {.groups = c->groups};
  int64_t p[3];
  flc_conv_set_destination(&a, &c->x, c->inputs);
  fl_status s = set_packed(l, c, &c->y, &a);
  if (s || (s = set_weights(l, c, true, &a)))
    return s;
  for (p[0] = 0; p[0] < c->stride[0] && p[0] < c->x.size[0]; p[0]++)
    for (p[1] = 0; p[1] < c->stride[1] && p[1] < c->x.size[1]; p[1]++)
      for (p[2] = 0; p[2] < c->stride[2] && p[2] < c->x.size[2]; p[2]++) {
        flc_conv_set_phase(&a, c, p);
        if ((s = run_places(l, c, &a)))
          return s;
      }
  return FL_OK;
}

/* --- the gradient of weights --- */

/* Into how many pieces a sum of `steps` is cut. */
static int conv_native_cut(const fl_launch *l, int64_t tiles, int64_t steps,
                           int64_t least, int64_t bytes) {
  int64_t want = fl_ceil_div(2 * flc_chip_of(l)->processors, tiles);
  want = want < steps / least ? want : steps / least;
  want = want < PIECES_MOST / bytes ? want : PIECES_MOST / bytes;
  return want < 1 ? 1 : (int)want;
}

static void cut_into(conv_args *a, int64_t steps, int pieces) {
  a->steps = (int)fl_ceil_div(steps, pieces);
  a->splits = (int)fl_ceil_div(steps, a->steps);
}

static fl_status weight_tensor(const fl_launch *l, const flc_conv *c,
                               conv_args *a) {
  int64_t width = (int64_t)a->n_taps * a->channels;
  int64_t steps = fl_ceil_div(a->images * a->places, STEP);
  int64_t bytes = c->outputs * width * 4;
  const flc_chip *chip = flc_chip_of(l);
  int size = a->rows <= 64 || width <= 64 ? 0 : width % 256 == 0 ? 2 : 1;
  while (size > 0 && !flc_fits(chip, shared_of(chip, size)))
    size--;
  a->tiles_m = fl_ceil_div(a->rows, tiles_of[size].m);
  a->tiles_n = fl_ceil_div(width, tiles_of[size].n);
  int64_t tiles = a->tiles_m * a->tiles_n * c->groups;
  cut_into(a, steps, conv_native_cut(l, tiles, steps, 8, bytes));
  a->part = fl_scratch_get(l, (size_t)(bytes * a->splits));
  if (!a->part)
    return FL_ENOMEM;
  fl_status s = conv_native_start(
      l, "conv", "weights", a, tiles * a->splits, c->dtype, size,
      (unsigned)tiles_of[size].threads, shared_of(chip, size));
  conv_sum_args sum = {.part = a->part,
                       .to = c->w,
                       .outputs = c->outputs,
                       .inputs = (int)c->inputs,
                       .taps = a->n_taps,
                       .padded = a->channels,
                       .splits = a->splits};
  flc_spec spec = FLC_SPEC("conv", "sum_weights", (int16_t)c->dtype);
  flc_grid grid = {.x = blocks_for(c->outputs * c->inputs * a->n_taps),
                   .block = 256};
  return s ? s : FLC_RUN(l, spec, grid, sum);
}

static fl_status weight_plain(const fl_launch *l, const flc_conv *c,
                              conv_args *a) {
  int64_t width = (int64_t)a->n_taps * a->channels;
  int64_t steps = fl_ceil_div(a->images * a->places, PLAIN_STEP);
  int64_t bytes = c->outputs * width * (int64_t)fl_dtype_size(c->dtype);
  int r =
      a->rows > 64 && width > 64 ? flc_simt_sizes(flc_chip_of(l), c->dtype) : 1;
  a->tiles_m = fl_ceil_div(a->rows, r * 64);
  a->tiles_n = fl_ceil_div(width, r * 64);
  int64_t tiles = a->tiles_m * a->tiles_n * c->groups;
  cut_into(a, steps, conv_native_cut(l, tiles, steps, 16, bytes));
  if (a->splits > 1 &&
      !(a->part = fl_scratch_get(l, (size_t)(bytes * a->splits))))
    return FL_ENOMEM;
  fl_status s =
      conv_native_start(l, "conv_plain", "weights", a, tiles * a->splits,
                        c->dtype, r, 256, flc_simt_shared(c->dtype, r));
  if (s || a->splits == 1)
    return s;
  gemm_args g = {.c = c->w,
                 .part = a->part,
                 .batch = 1,
                 .m = c->outputs,
                 .n = width,
                 .splits = a->splits};
  flc_spec spec = FLC_SPEC("gemm", "gather", (int16_t)c->dtype, 0);
  flc_grid grid = {.x = blocks_for(c->outputs * width), .block = 256};
  return FLC_RUN(l, spec, grid, g);
}

static fl_status weight_grad(const fl_launch *l, const flc_conv *c) {
  conv_args a = {.groups = c->groups, .y = c->w};
  flc_planes dy = c->y;
  int64_t each = c->outputs / c->groups, padded = each;
  bool few = c->groups > 1 && c->inputs <= FEW;
  fl_status s = set_packed(l, c, &c->x, &a);
  if (s)
    return s;
  if (conv_native_half(c) && !few &&
      !(flc_conv_packed(&dy, c->groups) && line_step(&dy) > 0) &&
      (s = flc_conv_pack(l, c, &dy, &padded, NULL)))
    return s;
  flc_conv_set_window(&a, c);
  for (int i = 0; i < 3; i++)
    a.y_place[i] = dy.place[i];
  a.w = dy.data;
  a.rows = (int)each;
  a.y_image = dy.image;
  a.y_channel = dy.channel;
  if (few)
    return conv_native_start(l, "conv_plain", "each_weight", &a,
                             c->outputs * c->inputs * a.n_taps, c->dtype, -1,
                             256, 0);
  if (!conv_native_half(c))
    return weight_plain(l, c, &a);
  a.w_group = padded;
  a.w_row = line_step(&dy);
  return weight_tensor(l, c, &a);
}

/* --- 1 x 1 --- */

/* Places with one stride, no window: y = W x for each image. */
static bool is_product(const flc_conv *c, const flc_planes *p) {
  if (c->kind == FLC_CONV_WEIGHT || c->groups != 1 || c->inputs == 0 ||
      c->outputs == 0)
    return false;
  for (int i = 0; i < 3; i++)
    if (c->kernel[i] != 1 || c->stride[i] != 1 || c->pad[i] != 0)
      return false;
  int64_t step = place_step(p);
  return step > 0 && (!conv_native_half(c) ||
                      flc_product_lines(flc_volume(p->size), p->channels, step,
                                        p->channel));
}

static fl_status conv_native_multiply(const fl_launch *l, const flc_conv *c,
                                      const flc_planes *from,
                                      const flc_planes *to) {
  bool turned = c->kind == FLC_CONV_INPUT;
  flc_product p = {.dtype = c->dtype,
                   .m = to->channels,
                   .n = flc_volume(to->size),
                   .k = from->channels,
                   .am = turned ? 1 : c->inputs,
                   .ak = turned ? c->inputs : 1,
                   .bk = from->channel,
                   .bn = place_step(from),
                   .a = c->w,
                   .b = from->data,
                   .c = to->data,
                   .dims = from->images > 1,
                   .bias = c->bias,
                   .bias_dtype = c->bias_dtype,
                   .bias_down = true};
  p.size[0] = from->images;
  p.bstep[0] = from->image;
  return flc_multiply(l, &p);
}

/* --- any --- */

static bool too_large(const flc_planes *p) {
  return flc_volume(p->size) > INT32_MAX / 2 || p->channels > INT32_MAX / 16;
}

static fl_status own(const fl_launch *l, const flc_conv *c) {
  if (too_large(&c->x) || too_large(&c->y) ||
      c->inputs * flc_volume(c->kernel) > INT32_MAX / 16)
    return fli_fail(FL_ESIZE,
                    "%s: planes of more than %d places, or so many channels, "
                    "are not supported on the GPU",
                    l->op, INT32_MAX / 2);
  const flc_planes *from = c->kind == FLC_CONV_INPUT ? &c->y : &c->x;
  if (is_product(c, from))
    return conv_native_multiply(l, c, from, from == &c->x ? &c->y : &c->x);
  switch (c->kind) {
  case FLC_CONV_FORWARD:
    return conv_native_forward(l, c);
  case FLC_CONV_INPUT:
    return input_grad(l, c);
  case FLC_CONV_WEIGHT:
    break;
  }
  return weight_grad(l, c);
}

/* Whether own kernels can write p as it lies. */
static bool lies_in_planes(const flc_planes *p) {
  int64_t step = 1;
  for (int i = 2; i >= 0; step *= p->size[i--])
    if (p->size[i] != 1 && p->place[i] != step)
      return false;
  return p->channels == 1 || p->channel == step;
}

fl_status flc_conv_native(const fl_launch *l, const flc_conv *c) {
  flc_conv plain = *c;
  if (!c->w && flc_conv_weights(l, &plain) != FL_OK)
    return FL_ENOMEM;
  bool few = flc_conv_few(c);
  flc_planes *p = c->kind == FLC_CONV_INPUT ? &plain.x : &plain.y;
  int64_t step = 1;
  if (c->kind == FLC_CONV_WEIGHT) {
    fl_status s = few ? flc_depthwise(l, &plain) : own(l, &plain);
    return s == FL_OK && !c->w ? flc_conv_put_weights(l, &plain, c) : s;
  }
  if (few)
    return flc_depthwise(l, &plain);
  if (lies_in_planes(p))
    return own(l, &plain);
  fl_view to = flc_planes_view(p, c->dtype);
  fl_view from = to;
  for (int i = 4; i >= 0; step *= from.shape[i--])
    from.stride[i] = step;
  p->data = from.data =
      fl_scratch_get(l, (size_t)step * fl_dtype_size(c->dtype));
  p->image = from.stride[0];
  p->channel = from.stride[1];
  for (int i = 0; i < 3; i++)
    p->place[i] = from.stride[2 + i];
  fl_status s = from.data ? own(l, &plain) : FL_ENOMEM;
  return s ? s : flc_move(l, &to, &from);
}

/* --- what a pack holds --- */

void flc_visit_conv(flc_visitor *v) {
  static const char *const tensor[] = {"direct", "weights"};
  static const char *const single[] = {"pack", "pack_weights", "sum_weights"};
  static const fl_dtype halves[] = {FL_BF16, FL_F16};
  static const fl_dtype wides[] = {FL_F32, FL_F64};
  static const char *const each[] = {"each_result", "each_weight"};
  flc_spec turn = FLC_SPEC("conv", "turn_weights", 0);
  v->spec(v, &turn, true);
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < 2; k++)
      for (int size = 0; size < 3; size++) {
        flc_spec s = FLC_SPEC("conv", tensor[k], halves[i], size);
        v->spec(v, &s, i == 0 && size == 1);
      }
    for (int k = 0; k < 3; k++) {
      flc_spec s = FLC_SPEC("conv", single[k], halves[i]);
      v->spec(v, &s, i == 0);
    }
    for (int k = 0; k < 2; k++)
      for (int r = 1; r <= 2; r++) {
        flc_spec s = FLC_SPEC("conv_plain", tensor[k], wides[i], r);
        v->spec(v, &s, r == 2 && i == 0);
      }
  }
  for (int k = 0; k < 2; k++)
    FL_EACH_DTYPE(d, fl_dtype_is_float) {
      flc_spec s = FLC_SPEC("conv_plain", each[k], d);
      v->spec(v, &s, d == FL_F32);
    }
}
