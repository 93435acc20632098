/* Convolution in one to three dims, and its gradients. Convolution and the
 * gradient of its input are the same loop: every channel of the source is
 * copied once into zero-padded planes, one for each residue of the stride, so
 * that a tap of the kernel is a shifted view of a plane and the products of
 * tiles (conv_typed.c) read them in place; nothing like im2col is made.
 * Geometry is here, loops in conv_typed.c. Work is cut by shape only. */
#include "conv.h"

#include <string.h>

static void conv_open_data(conv_data *d, const fl_view *v, int spatial) {
  bool single = v->ndim == spatial + 1;
  d->data = v->data;
  d->dtype = v->dtype;
  d->size = (int64_t)fl_dtype_size(v->dtype);
  for (int i = 0; i < 5; i++) {
    d->shape[i] = 1;
    d->stride[i] = 0;
  }
  for (int i = 0; i < v->ndim; i++) {
    int at = i < 2 - single ? i + single : i - (2 - single) + 5 - spatial;
    d->shape[at] = v->shape[i];
    d->stride[at] = v->shape[i] == 1 ? 0 : v->stride[i];
  }
}

/* Attribute lists are complete: one number for each spatial dim. */
static void conv_list(const fl_attrs *a, int k, int spatial, int64_t missing,
                      int64_t out[3]) {
  int n;
  const int64_t *v = fl_attr_list(a, k, &n);
  for (int i = 0; i < 3; i++) {
    int at = i - (3 - spatial);
    out[i] = at >= 0 && at < n ? v[at] : missing;
  }
}

/* --- taps --- */

/* Where tap t along a dim reads for result r (the first of its sub): forward
 * source position o * stride + t * dilation - pad; gradient (i + pad - t *
 * dilation) / stride where that is whole. */
typedef struct conv_dim {
  int64_t kernel, stride, pad, dilation;
  bool gradient;
} conv_dim;

/* False: the tap has no part in this sub. */
static bool conv_tap(const conv_dim *d, int64_t t, int64_t r, int64_t *phase,
                     int64_t *shift) {
  int64_t j = t * d->dilation;
  if (!d->gradient) {
    *phase = j % d->stride;
    *shift = j / d->stride;
    return true;
  }
  *phase = 0;
  *shift = conv_floor_div(r + d->pad - j, d->stride);
  return *shift * d->stride == r + d->pad - j;
}

/* lo, span, phases of one dim over all its taps and subs. */
static void conv_plan_axis(conv_axis *a, const conv_dim *d, int64_t subs,
                           int64_t most) {
  int64_t low = INT64_MAX, high = INT64_MIN, phase, shift;
  a->phases = 0;
  for (int64_t r = 0; r < subs; r++)
    for (int64_t t = 0; t < d->kernel; t++) {
      if (!conv_tap(d, t, r, &phase, &shift))
        continue;
      low = shift < low ? shift : low;
      high = shift > high ? shift : high;
      int64_t p = 0;
      while (p < a->phases && a->phase[p] != phase)
        p++;
      if (p == a->phases)
        a->phase[a->phases++] = phase;
    }
  if (low > high) { /* no taps at all */
    low = high = 0;
    a->phase[a->phases++] = 0;
  }
  if (d->gradient) {
    a->step = 1;
    a->lo = low;
    a->span = high - low;
  } else {
    a->step = d->stride;
    a->lo = -d->pad;
    a->span = high;
  }
  a->extent = most + a->span;
}

/* The taps of one sub, and their offsets for the first channel. */
static void conv_plan_sub(conv *c, const conv_dim *dims, conv_sub *s,
                          int64_t *off) {
  const conv_axis *ax = c->axis;
  int64_t n = 0;
  for (int64_t t = 0; t < c->taps; t++) {
    int64_t at[3] = {t / (c->kernel[1] * c->kernel[2]),
                     t / c->kernel[2] % c->kernel[1], t % c->kernel[2]};
    int64_t slot = 0, place = 0;
    bool part = true;
    for (int i = 0; i < 3 && part; i++) {
      int64_t phase, shift, p = 0;
      part = conv_tap(&dims[i], at[i], s->first[i], &phase, &shift);
      while (part && ax[i].phase[p] != phase)
        p++;
      slot = slot * ax[i].phases + p;
      place = place * ax[i].extent + shift - (dims[i].gradient ? ax[i].lo : 0);
    }
    if (!part)
      continue;
    c->tap_number[s->tap + n] = t;
    off[n++] = slot * c->plane + place;
  }
  s->taps = n;
  s->k = n * c->cs;
}

/* --- strips, tiles, tasks --- */

/* How many results along the cut dim are done at once. */
static void conv_plan_strip(conv *c) {
  c->cut = 0;
  while (c->cut < 2 && c->most[c->cut] == 1)
    c->cut++;
  int64_t n = c->most[c->cut], one[3], whole[3];
  for (int i = 0; i < 3; i++) {
    whole[i] = c->most[i];
    one[i] = i == c->cut ? 1 : c->most[i];
  }
  int64_t columns = conv_flat(c, one), source = c->cs;
  if (n > 1)
    columns = (conv_flat(c, whole) - columns) / (n - 1);
  for (int i = 0; i < 3; i++)
    source *= c->axis[i].phases * (i == c->cut ? 1 : c->axis[i].extent);
  int64_t strip = 2 * CONV_CACHE / (source + 1) - c->axis[c->cut].span;
  int64_t other = CONV_CACHE / (c->cd * columns + 1);
  strip = strip < other ? strip : other;
  /* narrow strips would read all weights too often */
  int64_t least = 256 / columns + 1, tasks = c->images * c->groups;
  strip = strip > least ? strip : least;
  if (tasks < CONV_TASKS) { /* cut further for the threads' sake */
    int64_t each = n * tasks / CONV_TASKS + 1, few = 48 / columns + 1;
    each = each > few ? each : few;
    strip = strip < each ? strip : each;
  }
  strip = strip < n ? strip : n;
  c->strips = fl_ceil_div(n, strip);
  c->strip = fl_ceil_div(n, c->strips);
  c->strips = fl_ceil_div(n, c->strip);
  c->axis[c->cut].extent = c->strip + c->axis[c->cut].span;
}

/* Whether columns are gathered: when too many of a flat range are no results.
 * Then several small images make one range. */
static void conv_plan_columns(conv *c) {
  int64_t count[3], k = c->cs * c->taps;
  for (int i = 0; i < 3; i++)
    count[i] = i == c->cut ? c->strip : c->most[i];
  int64_t volume = conv_volume(count), flat = conv_flat(c, count);
  /* multiply-adds of 16 against the gathering of one element */
  c->dense = (flat - volume) * c->cd / 16 > volume;
  c->images_once = 1;
  if (c->dense && c->strips == 1) {
    int64_t want = 192 / volume + 1;
    int64_t tasks = c->images * c->groups / want;
    c->images_once =
        tasks >= CONV_TASKS ? want : c->images * c->groups / CONV_TASKS + 1;
    c->images_once = c->images_once < want ? c->images_once : want;
    if (c->images_once > c->images)
      c->images_once = c->images;
  }
  c->columns = tile_up(c->dense ? c->images_once * volume : flat, 64) + 64;
  c->depth = k > 0 ? k : 1;
  if (c->cd * k > 2 * CONV_CACHE) {
    c->depth = 2 * CONV_CACHE / c->cd;
    c->depth = c->depth > 64 ? c->depth : 64;
  }
  if (c->dense && c->depth > CONV_GATHER)
    c->depth = CONV_GATHER;
}

/* The source itself serves as planes: no padding, stride 1, rows as they are
 * needed. Strips then are offsets. */
static bool conv_is_direct(const conv *c, fl_dtype dtype) {
  const conv_data *f = &c->from;
  int64_t stride = 1;
  if (f->dtype != dtype || c->dense || c->copied)
    return false;
  for (int i = 2; i >= 0; i--) {
    const conv_axis *a = &c->axis[i];
    int64_t extent = c->most[i] + a->span;
    if (a->step != 1 || a->lo != 0 || a->phases != 1 || extent > a->from ||
        (f->shape[2 + i] > 1 && f->stride[2 + i] != stride))
      return false;
    stride *= a->from;
  }
  return f->stride[1] >= 0 && f->stride[0] >= 0;
}

static bool conv_alloc_axes(conv *c) {
  for (int i = 0; i < 3; i++) {
    c->axis[i].phase = fl_scratch_get(c->l, (size_t)(c->kernel[i] + 1) *
                                                sizeof *c->axis[i].phase);
    if (!c->axis[i].phase)
      return false;
  }
  return true;
}

static bool conv_alloc_subs(conv *c, const conv_dim *dims) {
  int64_t per[3], all = c->cs * c->taps;
  c->n_subs = 1;
  for (int i = 0; i < 3; i++) {
    per[i] = dims[i].gradient ? dims[i].stride : 1;
    if (per[i] > c->to.shape[2 + i])
      per[i] = c->to.shape[2 + i];
    c->n_subs *= per[i];
  }
  c->subs = fl_scratch_get(c->l, (size_t)c->n_subs * sizeof *c->subs + 1);
  c->tap_number = fl_scratch_get(c->l, (size_t)(c->taps + 1) * 8);
  int64_t *off = fl_scratch_get(c->l, (size_t)(all + c->taps + 1) * 8);
  if (!c->subs || !c->tap_number || !off)
    return false;
  int64_t taps = 0, weights = 0;
  for (int64_t n = 0; n < c->n_subs; n++) {
    conv_sub *s = &c->subs[n];
    s->first[0] = n / (per[1] * per[2]);
    s->first[1] = n / per[2] % per[1];
    s->first[2] = n % per[2];
    for (int i = 0; i < 3; i++)
      s->count[i] =
          (c->to.shape[2 + i] - s->first[i] + c->every[i] - 1) / c->every[i];
    s->tap = taps;
    s->off = off + taps * c->cs;
    conv_plan_sub(c, dims, s, s->off);
    s->reach = 0;
    for (int64_t k = 0; k < s->k; k++) {
      if (k >= s->taps)
        s->off[k] = s->off[k - s->taps] + c->channel;
      s->reach = s->off[k] > s->reach ? s->off[k] : s->reach;
    }
    s->weights = weights;
    weights += s->k * c->cd;
    taps += s->taps;
  }
  return true;
}

bool FL_CPU(conv_plan)(conv *c, int at, int spatial, fl_dtype dtype) {
  int64_t stride[3], pad[3], dilation[3];
  const fl_attrs *attrs = c->l->attrs;
  conv_dim dims[3];
  conv_list(attrs, at, spatial, 1, stride);
  conv_list(attrs, at + 1, spatial, 0, pad);
  conv_list(attrs, at + 2, spatial, 1, dilation);
  c->images = c->to.shape[0];
  c->taps = conv_volume(c->kernel);
  if (!conv_alloc_axes(c))
    return false;
  for (int i = 0; i < 3; i++) {
    dims[i] =
        (conv_dim){c->kernel[i], stride[i], pad[i], dilation[i], c->flipped};
    int64_t size = c->to.shape[2 + i], subs = c->flipped ? stride[i] : 1;
    c->every[i] = subs;
    subs = subs < size ? subs : size;
    c->most[i] = (size + c->every[i] - 1) / c->every[i];
    c->axis[i].from = c->from.shape[2 + i];
    conv_plan_axis(&c->axis[i], &dims[i], subs, c->most[i]);
  }
  conv_plan_strip(c);
  conv_plan_columns(c);
  c->direct = conv_is_direct(c, dtype);
  if (c->direct)
    for (int i = 0; i < 3; i++)
      c->axis[i].extent = c->axis[i].from;
  c->plane = c->channel = 1;
  for (int i = 0; i < 3; i++) {
    c->plane *= c->axis[i].extent;
    c->channel *= c->axis[i].extent * c->axis[i].phases;
  }
  if (c->direct) {
    c->channel = c->from.stride[1];
    int64_t count[3];
    for (int i = 0; i < 3; i++)
      count[i] = i == c->cut ? c->strip : c->most[i];
    c->columns = tile_up(conv_flat(c, count), 64) + 64;
  }
  return conv_alloc_subs(c, dims);
}

/* --- kernels --- */

static void conv_open(conv *c, const fl_launch *l, const int64_t *weight,
                      int spatial, int64_t groups) {
  memset(c, 0, sizeof *c);
  c->l = l;
  c->groups = groups;
  for (int i = 0; i < 3; i++) {
    int at = i - (3 - spatial);
    c->kernel[i] = at >= 0 ? weight[2 + at] : 1;
  }
}

/* Where a result goes, in order; conv_close brings it to where it belongs. */
static bool conv_open_result(conv *c, int spatial) {
  const fl_view *out = &c->l->out[0];
  fl_view y;
  fl_view_copy(&y, out);
  int64_t n = 1;
  for (int i = y.ndim - 1; i >= 0; n *= y.shape[i--])
    y.stride[i] = n;
  y.data = FL_CPU(output)(c->l, out, out->dtype);
  conv_open_data(&c->to, &y, spatial);
  return y.data != NULL;
}
static fl_status conv_close(conv *c, fl_status s) {
  const fl_view *out = &c->l->out[0];
  if (s == FL_OK)
    FL_CPU(finish)(c->l, out, out->dtype, c->to.data);
  return s;
}

static const conv_kernels *conv_kernels_of(const fl_launch *l) {
  bool wide = l->in[FL_IN_conv_x].dtype == FL_F64 ||
              l->in[FL_IN_conv_weight].dtype == FL_F64;
  return wide ? &FL_CPU(conv_f64) : &FL_CPU(conv_f32);
}

/* x, weight, bias -> y */
FL_KERNEL(conv) {
  const fl_view *w = &l->in[FL_IN_conv_weight],
                *bias = l->in[FL_IN_conv_bias].data ? &l->in[FL_IN_conv_bias]
                                                    : NULL;
  int spatial = w->ndim - 2;
  conv c;
  if (fl_view_numel(&l->out[0]) == 0)
    return FL_OK;
  conv_open(&c, l, w->shape, spatial, l->attrs->v[FL_ATTR_conv_groups].i);
  conv_open_data(&c.from, &l->in[FL_IN_conv_x], spatial);
  if (!conv_open_result(&c, spatial))
    return FL_ENOMEM;
  c.cs = w->shape[1];
  c.cd = w->shape[0] / c.groups;
  return conv_close(
      &c, conv_kernels_of(l)->run(&c, FL_ATTR_conv_stride, spatial, w, bias));
}

/* dy, weight -> dx */
FL_KERNEL(conv_input_grad) {
  const fl_view *w = &l->in[FL_IN_conv_input_grad_weight];
  int spatial = w->ndim - 2;
  conv c;
  if (fl_view_numel(&l->out[0]) == 0)
    return FL_OK;
  conv_open(&c, l, w->shape, spatial,
            l->attrs->v[FL_ATTR_conv_input_grad_groups].i);
  conv_open_data(&c.from, &l->in[FL_IN_conv_input_grad_dy], spatial);
  if (!conv_open_result(&c, spatial))
    return FL_ENOMEM;
  c.flipped = true;
  c.cs = w->shape[0] / c.groups;
  c.cd = w->shape[1];
  return conv_close(&c,
                    conv_kernels_of(l)->run(&c, FL_ATTR_conv_input_grad_stride,
                                            spatial, w, NULL));
}

/* dy, x -> dw */
FL_KERNEL(conv_weight_grad) {
  const fl_view *w = &l->out[0];
  int spatial = w->ndim - 2;
  conv c;
  if (fl_view_numel(w) == 0)
    return FL_OK;
  conv_open(&c, l, w->shape, spatial,
            l->attrs->v[FL_ATTR_conv_weight_grad_groups].i);
  conv_open_data(&c.from, &l->in[FL_IN_conv_weight_grad_x], spatial);
  conv_open_data(&c.to, &l->in[FL_IN_conv_weight_grad_dy], spatial);
  c.cs = w->shape[1];
  c.cd = w->shape[0] / c.groups;
  if (fl_view_numel(&l->in[FL_IN_conv_weight_grad_dy]) ==
      0) { /* an empty batch */
    memset(w->data, 0, fl_view_bytes(w));
    return FL_OK;
  }
  fl_view_copy(&c.result, w);
  fl_row_major(w->ndim, w->shape, c.result.stride);
  c.result.data = FL_CPU(output)(l, w, w->dtype);
  if (!c.result.data)
    return FL_ENOMEM;
  fl_status s =
      conv_kernels_of(l)->weights(&c, FL_ATTR_conv_weight_grad_stride, spatial);
  if (s == FL_OK)
    FL_CPU(finish)(l, w, w->dtype, c.result.data);
  return s;
}
