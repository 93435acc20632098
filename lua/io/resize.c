/* Planes of bytes resized with an antialiasing filter, the columns first, then
 * the rows, in integers of 22 bits behind the point and with bytes in between:
 * what Pillow computes, to the last bit. */
#include "pixels.h"

#include <math.h>

enum { BITS = 22 };

/* How each position of the result comes from those of the source. */
typedef struct taps {
  int most;        /* of a position */
  int *first, *n;  /* by position */
  int32_t *weight; /* (position, most) */
} taps;

static double linear(double x) {
  x = fabs(x);
  return x < 1 ? 1 - x : 0;
}

static double cubic(double x) { /* a = -1/2 */
  x = fabs(x);
  if (x < 1)
    return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

static int32_t fixed(double w) {
  return (int32_t)(w * (1 << BITS) + (w < 0 ? -0.5 : 0.5));
}

static taps new_taps(lua_State *L, int from, int to, bool smooth) {
  double scale = (double)from / to, wide = scale < 1 ? 1 : scale;
  double support = (smooth ? 2 : 1) * wide;
  taps t = {.most = (int)ceil(support) * 2 + 1};
  size_t n = (size_t)to, m = (size_t)t.most;
  double *w = fll_scratch(L, m * sizeof *w);
  t.first = fll_scratch(L, 2 * n * sizeof *t.first);
  t.n = t.first + n;
  t.weight = fll_scratch(L, n * m * sizeof *t.weight);
  for (int i = 0; i < to; i++) {
    double center = (i + 0.5) * scale, sum = 0;
    int low = (int)(center - support + 0.5);
    int high = (int)(center + support + 0.5);
    low = low < 0 ? 0 : low;
    high = high > from ? from : high;
    for (int k = low; k < high; k++) {
      double x = (k - center + 0.5) * (1 / wide);
      w[k - low] = smooth ? cubic(x) : linear(x);
      sum += w[k - low];
    }
    t.first[i] = low;
    t.n[i] = high - low;
    for (int k = 0; k < high - low; k++)
      t.weight[(size_t)i * m + k] = fixed(sum != 0 ? w[k] / sum : w[k]);
  }
  return t;
}

static unsigned char rounded(int32_t sum) {
  int v = sum >> BITS;
  return v < 0 ? 0 : v > 255 ? 255 : (unsigned char)v;
}

static void resize_row(const taps *t, const unsigned char *in, int to,
                       unsigned char *out) {
  for (int i = 0; i < to; i++) {
    const int32_t *w = t->weight + (size_t)i * t->most;
    const unsigned char *p = in + t->first[i];
    int32_t sum = 1 << (BITS - 1);
    for (int k = 0; k < t->n[i]; k++)
      sum += p[k] * w[k];
    out[i] = rounded(sum);
  }
}

/* A row of the result from rows of `width` bytes. */
static void blend_rows(const taps *t, int i, const unsigned char *rows,
                       int width, int32_t *sum, unsigned char *out) {
  for (int x = 0; x < width; x++)
    sum[x] = 1 << (BITS - 1);
  for (int k = 0; k < t->n[i]; k++) {
    int32_t w = t->weight[(size_t)i * t->most + k];
    const unsigned char *row = rows + (size_t)(t->first[i] + k) * width;
    for (int x = 0; x < width; x++)
      sum[x] += row[x] * w;
  }
  for (int x = 0; x < width; x++)
    out[x] = rounded(sum[x]);
}

/* resize_bytes(tensor, height, width, cubic): the last two dims resized, as
 * (planes, height, width). The tensor is contiguous and of u8. */
int fll_resize_bytes(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "resize_bytes", "x");
  const fl_meta *m = fl_tensor_meta(t);
  int64_t to_h = fll_checkint(L, 2, "resize_bytes", "height");
  int64_t to_w = fll_checkint(L, 3, "resize_bytes", "width");
  bool smooth = lua_toboolean(L, 4);
  if (m->dtype != FL_U8 || m->ndim < 2)
    fll_error(L, "resize_bytes: u8 of two dims or more is expected");
  int64_t h = m->shape[m->ndim - 2], w = m->shape[m->ndim - 1];
  const int64_t most = 1 << 24;
  if (h < 1 || w < 1 || to_h < 1 || to_w < 1 || h > most || w > most ||
      to_h > most || to_w > most)
    fll_error(L, "Resize: cannot make %lld x %lld pixels of %lld x %lld",
              (long long)to_h, (long long)to_w, (long long)h, (long long)w);
  size_t n;
  const char *data = fll_piece(L, st, 1, &n, "resize_bytes");
  const unsigned char *from = (const unsigned char *)data;
  int64_t planes = (int64_t)n / (h * w);
  taps across = new_taps(L, (int)w, (int)to_w, smooth);
  taps down = new_taps(L, (int)h, (int)to_h, smooth);
  unsigned char *middle = fll_scratch(L, (size_t)(h * to_w));
  int32_t *sum = fll_scratch(L, (size_t)to_w * sizeof *sum);
  unsigned char *to = fll_new_pixels(L, st, planes, to_h, to_w);
  for (int64_t p = 0; p < planes; p++) {
    for (int64_t y = 0; y < h; y++)
      resize_row(&across, from + (p * h + y) * w, (int)to_w, middle + y * to_w);
    for (int64_t y = 0; y < to_h; y++)
      blend_rows(&down, (int)y, middle, (int)to_w, sum,
                 to + (p * to_h + y) * to_w);
  }
  return 1;
}
