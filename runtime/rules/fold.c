/* Composed operators that rearrange spatial dims: im2col and fold, pixel and
 * channel shuffles, movedim, tile. */
#include "window.h"

#include <string.h>

/* --- im2col and fold --- */

/* Windows over n dims of space, as a view of a contiguous (batch, channels,
 * padded sizes): its shape is (batch, channels, kernel, counts). */
typedef struct windows {
  int n;
  int64_t kernel[3], dilation[3], padding[3], stride[3];
  int64_t padded[5], shape[8], strides[8];
} windows;

/* The positions of a row's window attributes. */
typedef struct window_slots {
  int kernel, dilation, padding, stride;
} window_slots;

static const window_slots of_im2col = {
    FL_ATTR_im2col_kernel, FL_ATTR_im2col_dilation, FL_ATTR_im2col_padding,
    FL_ATTR_im2col_stride};
static const window_slots of_fold = {FL_ATTR_fold_kernel, FL_ATTR_fold_dilation,
                                     FL_ATTR_fold_padding, FL_ATTR_fold_stride};

static bool list_of(fli_composing *g, int k, const char *name, int n,
                    int64_t missing, int64_t low, int64_t *out) {
  int given;
  const int64_t *v = fl_attr_list(g->attrs, k, &given);
  bool fits = given == n || given == 1 || (given == 0 && missing >= low);
  for (int i = 0; i < n && fits; i++) {
    out[i] = given == 0 ? missing : v[given == 1 ? 0 : i];
    fits = out[i] >= low && out[i] <= FLI_MAX_WINDOW;
  }
  if (!fits)
    fli_env_fail(&g->e, FL_EARG,
                 "%s: %s must be one number or %d, each at least %lld",
                 g->op->info.name, name, n, (long long)low);
  return fits;
}

/* x's shape is (batch, channels, sizes). */
static bool fold_plan(fli_composing *g, const window_slots *at, int n,
                      const int64_t *x, windows *w) {
  int64_t step = 1;
  w->n = n;
  if (!list_of(g, at->kernel, "kernel", n, 0, 1, w->kernel) ||
      !list_of(g, at->dilation, "dilation", n, 1, 1, w->dilation) ||
      !list_of(g, at->padding, "padding", n, 0, 0, w->padding) ||
      !list_of(g, at->stride, "stride", n, 1, 1, w->stride))
    return false;
  w->padded[0] = w->shape[0] = x[0];
  w->padded[1] = w->shape[1] = x[1];
  for (int k = n - 1; k >= 0; k--) {
    int64_t count = fli_window_count(x[k + 2], w->kernel[k], w->stride[k],
                                     w->padding[k], w->dilation[k], false);
    if (count == 0) {
      fli_env_fail(&g->e, FL_ESHAPE,
                   "%s: a kernel of %lld (dilation %lld) does not fit into "
                   "size %lld with padding %lld",
                   g->op->info.name, (long long)w->kernel[k],
                   (long long)w->dilation[k], (long long)x[k + 2],
                   (long long)w->padding[k]);
      return false;
    }
    w->padded[k + 2] = x[k + 2] + 2 * w->padding[k];
    w->shape[k + 2] = w->kernel[k];
    w->strides[k + 2] = w->dilation[k] * step;
    w->shape[k + 2 + n] = count;
    w->strides[k + 2 + n] = w->stride[k] * step;
    step *= w->padded[k + 2];
  }
  w->strides[1] = step;
  w->strides[0] = step * x[1];
  return true;
}

static fl_value padded(fli_composing *g, fl_value x, const windows *w,
                       int64_t sign) {
  int64_t list[6];
  bool any = false;
  for (int k = 0; k < w->n; k++) {
    list[2 * k] = list[2 * k + 1] = sign * w->padding[w->n - 1 - k];
    any |= list[2 * k] != 0;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2 * w->n, list);
  return any ? RUN_A(pad, &a, x) : RUN(contiguous, x);
}

/* The number of spatial dims: from the attribute lists, or from x's shape. */
static int space_of(int numbers, int ndim) {
  return numbers > 1 ? numbers : ndim - 2;
}

void fli_compose_im2col(fli_composing *g) {
  fl_value x = g->in[0];
  const fl_meta *m = fli_meta(x);
  int numbers = (int)g->attrs->v[FL_ATTR_im2col_kernel].list.n,
      n = space_of(numbers, m->ndim);
  bool batch = m->ndim == n + 2;
  int64_t shape[5] = {1};
  windows w;
  if (n < 1 || n > 3 || (!batch && m->ndim != n + 1)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "im2col: x must be (batch, channels, sizes) with 1 to 3 "
                 "sizes, a kernel size for each; without batch the kernel "
                 "needs as many numbers; got %s",
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  memcpy(shape + !batch, m->shape, (size_t)m->ndim * sizeof *shape);
  if (!fold_plan(g, &of_im2col, n, shape, &w))
    return;
  x = padded(g, fli_v_reshape(&g->e, x, n + 2, shape), &w, 1);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_size, 2 * n + 2, w.shape);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_stride, 2 * n + 2, w.strides);
  a.v[FL_ATTR_as_strided_offset].i = 0;
  x = RUN_A(as_strided, &a, x);
  int64_t columns[3] = {w.shape[0], w.shape[1] * fl_numel(n, w.kernel),
                        fl_numel(n, w.shape + 2 + n)};
  g->out[0] = fli_v_reshape(&g->e, x, batch ? 3 : 2, columns + !batch);
}

void fli_compose_fold(fli_composing *g) {
  fl_value x = g->in[0];
  const fl_meta *m = fli_meta(x);
  int n, kernels = (int)g->attrs->v[FL_ATTR_fold_kernel].list.n;
  const int64_t *size = fl_attr_list(g->attrs, FL_ATTR_fold_size, &n);
  bool batch = m->ndim == 3;
  int64_t shape[5] = {batch ? m->shape[0] : 1};
  windows w;
  if (n < 1 || n > 3 || (!batch && m->ndim != 2) ||
      (kernels != 1 && kernels != n)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "fold: x must be (batch, columns, windows) or the same "
                 "without batch, with 1 to 3 sizes and a kernel size for "
                 "each, got %s, %d sizes and %d",
                 fli_shape_text(m->ndim, m->shape), n, kernels);
    return;
  }
  memcpy(shape + 2, size, (size_t)n * sizeof *shape);
  shape[1] = 1;
  if (!fold_plan(g, &of_fold, n, shape, &w))
    return;
  int64_t each = fl_numel(n, w.kernel), count = fl_numel(n, w.shape + 2 + n);
  int64_t columns = m->shape[m->ndim - 2];
  if (columns % each || m->shape[m->ndim - 1] != count) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "fold: x has %lld columns and %lld windows; a kernel of %lld "
                 "elements needs a multiple of that, and size %s has %lld "
                 "windows",
                 (long long)columns, (long long)m->shape[m->ndim - 1],
                 (long long)each, fli_shape_text(n, size), (long long)count);
    return;
  }
  shape[1] = columns / each;
  if (!fold_plan(g, &of_fold, n, shape, &w))
    return;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided_backward);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_shape, n + 2, w.padded);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_size, 2 * n + 2, w.shape);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_stride, 2 * n + 2,
               w.strides);
  x = fli_v_reshape(&g->e, x, 2 * n + 2, w.shape);
  x = padded(g, RUN_A(as_strided_backward, &a, x), &w, -1);
  g->out[0] = fli_v_reshape(&g->e, x, n + 1 + batch, shape + !batch);
}

/* --- channels and pixels --- */

static bool divides(fli_composing *g, int64_t by, int64_t a, int64_t b,
                    const char *what) {
  const fl_meta *m = fli_meta(g->in[0]);
  bool fits = by >= 1 && a % by == 0 && b % by == 0;
  if (!fits)
    fli_env_fail(&g->e, FL_ESHAPE, "%s: %lld does not divide the %s of %s",
                 g->op->info.name, (long long)by, what,
                 fli_shape_text(m->ndim, m->shape));
  return fits;
}

static bool has_pixels(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  if (m->ndim < 3 || m->ndim > 5)
    fli_env_fail(&g->e, FL_ESHAPE,
                 "%s: x must be (channels, height, width), with up to 2 dims "
                 "before, got %s",
                 g->op->info.name, fli_shape_text(m->ndim, m->shape));
  return g->e.status == FL_OK;
}

/* (lead, channels) of m's dims before height and width. */
static int64_t lead_of(const fl_meta *m) {
  return fl_numel(m->ndim - 3, m->shape);
}

void fli_compose_pixel_shuffle(fli_composing *g) {
  static const int64_t order[] = {0, 1, 4, 2, 5, 3};
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t r = g->attrs->v[FL_ATTR_pixel_shuffle_factor].i, shape[FL_MAX_DIMS];
  if (!has_pixels(g) || r < 1 || r > 1 << 15)
    r = 0;
  if (g->e.status || !divides(g, r * r, m->shape[m->ndim - 3], 0, "channels"))
    return;
  const int64_t *s = m->shape + m->ndim - 3;
  int64_t six[] = {lead_of(m), s[0] / (r * r), r, r, s[1], s[2]};
  memcpy(shape, m->shape, sizeof shape);
  shape[m->ndim - 3] = six[1];
  shape[m->ndim - 2] = s[1] * r;
  shape[m->ndim - 1] = s[2] * r;
  fl_value x = fli_v_reshape(&g->e, g->in[0], 6, six);
  g->out[0] =
      fli_v_reshape(&g->e, fli_v_permute(&g->e, x, order), m->ndim, shape);
}

void fli_compose_pixel_unshuffle(fli_composing *g) {
  static const int64_t order[] = {0, 1, 3, 5, 2, 4};
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t r = g->attrs->v[FL_ATTR_pixel_unshuffle_factor].i, shape[FL_MAX_DIMS];
  if (!has_pixels(g) || r < 1 || r > 1 << 15)
    r = 0;
  if (g->e.status || !divides(g, r, m->shape[m->ndim - 2],
                              m->shape[m->ndim - 1], "height or width"))
    return;
  const int64_t *s = m->shape + m->ndim - 3;
  int64_t six[] = {lead_of(m), s[0], s[1] / r, r, s[2] / r, r};
  memcpy(shape, m->shape, sizeof shape);
  shape[m->ndim - 3] = s[0] * r * r;
  shape[m->ndim - 2] = six[2];
  shape[m->ndim - 1] = six[4];
  fl_value x = fli_v_reshape(&g->e, g->in[0], 6, six);
  g->out[0] =
      fli_v_reshape(&g->e, fli_v_permute(&g->e, x, order), m->ndim, shape);
}

void fli_compose_channel_shuffle(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int64_t groups = g->attrs->v[FL_ATTR_channel_shuffle_groups].i;
  if (m->ndim < 2) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "channel_shuffle: x must be (batch, channels, ...), got %s",
                 fli_shape_text(m->ndim, m->shape));
    return;
  }
  if (!divides(g, groups, m->shape[1], 0, "channels"))
    return;
  int64_t four[] = {m->shape[0], groups, m->shape[1] / groups,
                    fl_numel(m->ndim - 2, m->shape + 2)};
  fl_value x = fli_v_reshape(&g->e, g->in[0], 4, four);
  g->out[0] = RESHAPE(TRANSPOSE(x, 1, 2), m);
}

/* --- dims --- */

void fli_compose_movedim(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int n, to, next = 0;
  const int64_t *from = fl_attr_list(g->attrs, FL_ATTR_movedim_from, &n);
  const int64_t *at = fl_attr_list(g->attrs, FL_ATTR_movedim_to, &to);
  int64_t order[FL_MAX_DIMS];
  bool moved[FL_MAX_DIMS] = {false}, taken[FL_MAX_DIMS] = {false};
  if (n != to) {
    fli_env_fail(&g->e, FL_EARG,
                 "movedim: %d dims to move and %d places for them", n, to);
    return;
  }
  if (m->ndim == 0) {
    g->out[0] = RUN(view, g->in[0]);
    return;
  }
  for (int i = 0; i < n; i++) {
    moved[from[i]] = taken[at[i]] = true;
    order[at[i]] = from[i];
  }
  for (int d = 0; d < m->ndim; d++) {
    if (taken[d])
      continue;
    while (moved[next])
      next++;
    order[d] = next++;
  }
  g->out[0] = fli_v_permute(&g->e, g->in[0], order);
}

void fli_compose_tile(fli_composing *g) {
  const fl_meta *m = fli_meta(g->in[0]);
  int n;
  const int64_t *times = fl_attr_list(g->attrs, FL_ATTR_tile_repeats, &n);
  int64_t all[FL_MAX_LIST];
  int more = n < m->ndim ? m->ndim - n : 0;
  for (int d = 0; d < more; d++)
    all[d] = 1;
  memcpy(all + more, times, (size_t)n * sizeof *all);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_repeat);
  fli_set_list(&g->e, &a, FL_ATTR_repeat_repeats, n + more, all);
  g->out[0] = RUN_A(repeat, &a, g->in[0]);
}
