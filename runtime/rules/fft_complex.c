/* Fourier transforms of complex tensors, over one dim or several, with given
 * lengths and scales, composed of dft, rdft and irdft (fft.c), which have the
 * gradients. Also shifts, frequencies and short-time transforms. */
#include "env.h"

#include <math.h>
#include <string.h>

typedef fli_composing env;

enum { BACKWARD, ORTHO, FORWARD }; /* the order of norm's enum */

/* Which dims, of what lengths along them. */
typedef struct plan {
  int n;
  int64_t dims[FL_MAX_DIMS], sizes[FL_MAX_DIMS];
} plan;

static fl_value fft_complex_narrowed(env *g, fl_value x, int64_t dim,
                                     int64_t size) {
  return fli_v_narrow(&g->e, x, (int)dim, 0, size, 1);
}

/* Cut, or filled up with zeros, to `size` along dim. */
static fl_value fitted(env *g, fl_value x, int64_t dim, int64_t size) {
  const fl_meta *m = fli_meta(x);
  if (g->e.status || m->shape[dim] == size)
    return x;
  if (m->shape[dim] > size)
    return fft_complex_narrowed(g, x, dim, size);
  int64_t list[2 * FL_MAX_DIMS] = {0};
  int last = 2 * (m->ndim - 1 - (int)dim);
  list[last + 1] = size - m->shape[dim];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, last + 2, list);
  return RUN_A(pad, &a, x);
}

static bool is_complex(fl_value x) {
  return fli_is_complex(fli_meta(x)->dtype);
}

/* x as floats: integers become f32, and so do 16-bit floats. */
static fl_value as_float(env *g, fl_value x) {
  return CAST(x, fli_meta(x)->dtype == FL_F64 ? FL_F64 : FL_F32);
}

static fl_value as_pairs(env *g, fl_value x) {
  if (is_complex(x))
    return RUN(view_as_real, x);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2, (int64_t[]){0, 1});
  x = fli_v_unsqueeze(&g->e, as_float(g, x), fli_meta(x)->ndim);
  return RUN_A(pad, &a, x);
}

static fl_value as_complex(env *g, fl_value pairs) {
  return RUN(view_as_complex, RUN(contiguous, pairs));
}

/* Reads dim and n, or lists of them. `half`: the input is a half spectrum along
 * the last dim. */
static bool read_plan(env *g, plan *p, bool lists, bool half, int fixed) {
  const fl_meta *m = fli_meta(g->in[0]);
  const fl_attrs *a = g->attrs;
  int given = 0;
  const int64_t *sizes, *dims;
  if (lists) {
    sizes = fl_attr_list(a, FL_ATTR_grid_transforms_s, &given);
    dims = fl_attr_list(a, FL_ATTR_grid_transforms_dims, &p->n);
    if (p->n == 0) { /* the last ones */
      p->n = given ? given : fixed ? fixed : m->ndim;
      dims = NULL;
    }
  } else {
    sizes = &a->v[FL_ATTR_line_transforms_n].i;
    dims = &a->v[FL_ATTR_line_transforms_dim].i;
    given = *sizes != FL_ATTR_NONE;
    p->n = 1;
  }
  if (m->ndim == 0 || p->n > m->ndim || (given && given != p->n)) {
    fli_env_fail(
        &g->e, FL_EARG, "%s: %d lengths and %d dims for a tensor of shape %s",
        g->op->info.name, given, p->n, fli_shape_text(m->ndim, m->shape));
    return false;
  }
  for (int k = 0; k < p->n; k++) {
    p->dims[k] = dims ? dims[k] : m->ndim - p->n + k;
    int64_t have = m->shape[p->dims[k]];
    p->sizes[k] = given                   ? sizes[k]
                  : half && k == p->n - 1 ? 2 * (have - 1)
                                          : have;
    if (p->sizes[k] < 1) {
      fli_env_fail(&g->e, FL_EARG,
                   "%s: %lld is no length along dim %lld of shape %s",
                   g->op->info.name, (long long)p->sizes[k],
                   (long long)(p->dims[k] + g->e.base),
                   fli_shape_text(m->ndim, m->shape));
      return false;
    }
  }
  return true;
}

/* The number of the plan's last dims that are adjacent and innermost in x: one
 * row transforms up to three such dims. */
static int fft_complex_together(const plan *p, int ndim) {
  int n = 1;
  while (n < p->n && n < 3 && p->dims[p->n - 1] == ndim - 1 &&
         p->dims[p->n - n - 1] == p->dims[p->n - n] - 1)
    n++;
  return n;
}

/* x of the lengths that the plan's dims from k on have, the last one's being
 * `last`. */
static fl_value sized(env *g, fl_value x, const plan *p, int k, int64_t last) {
  for (; k < p->n; k++)
    x = fitted(g, x, p->dims[k], k < p->n - 1 ? p->sizes[k] : last);
  return x;
}

/* The scale of the plan's dims `from` to `to`. */
static double scale_over(const env *g, const plan *p, int from, int to,
                         bool inverse) {
  double count = 1;
  for (int k = from; k < to; k++)
    count *= (double)p->sizes[k];
  int64_t norm = g->attrs->v[FL_ATTR_transforms_norm].i;
  if (norm == ORTHO)
    return 1 / sqrt(count);
  return (norm == BACKWARD) == inverse ? 1 / count : 1;
}

/* dft over the first n of the plan's dims, one by one. */
static fl_value over_dims(env *g, fl_value x, const plan *p, int n,
                          bool inverse) {
  for (int k = 0; k < n; k++) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_dft);
    a.v[FL_ATTR_dft_dim].i = p->dims[k];
    a.v[FL_ATTR_dft_inverse].i = inverse;
    a.v[FL_ATTR_dft_scale].f = scale_over(g, p, k, k + 1, inverse);
    x = RUN_A(dft, &a, fitted(g, x, p->dims[k], p->sizes[k]));
  }
  return x;
}

static void fft_complex_whole(env *g, bool lists, int fixed, bool inverse) {
  plan p;
  if (!read_plan(g, &p, lists, false, fixed))
    return;
  int many = fft_complex_together(&p, fli_meta(g->in[0])->ndim),
      first = p.n - many;
  fl_value x = over_dims(g, as_pairs(g, g->in[0]), &p, first, inverse);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_dft);
  a.v[FL_ATTR_dft_dim].i = p.dims[p.n - 1];
  a.v[FL_ATTR_dft_inverse].i = inverse;
  a.v[FL_ATTR_dft_scale].f = scale_over(g, &p, first, p.n, inverse);
  a.v[FL_ATTR_dft_dims].i = many;
  x = sized(g, x, &p, first, p.sizes[p.n - 1]);
  g->out[0] = as_complex(g, RUN_A(dft, &a, x));
}

/* Real input: the last dim and those adjacent by rdft, then the others. */
static void forward_half(env *g, bool lists, int fixed) {
  plan p;
  fl_value x = g->in[0];
  if (is_complex(x)) {
    fli_env_fail(&g->e, FL_EDTYPE, "%s: x is %s, but must be real",
                 g->op->info.name, fl_dtype_name(fli_meta(x)->dtype));
    return;
  }
  if (!read_plan(g, &p, lists, false, fixed))
    return;
  int many = fft_complex_together(&p, fli_meta(x)->ndim), first = p.n - many;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_rdft);
  a.v[FL_ATTR_rdft_dim].i = p.dims[p.n - 1];
  a.v[FL_ATTR_rdft_scale].f = scale_over(g, &p, first, p.n, false);
  a.v[FL_ATTR_rdft_dims].i = many;
  x = sized(g, as_float(g, x), &p, first, p.sizes[p.n - 1]);
  x = over_dims(g, RUN_A(rdft, &a, x), &p, first, false);
  g->out[0] = as_complex(g, x);
}

static void inverse_half(env *g, bool lists, int fixed) {
  plan p;
  if (!read_plan(g, &p, lists, true, fixed))
    return;
  int many = fft_complex_together(&p, fli_meta(g->in[0])->ndim),
      first = p.n - many;
  int64_t n = p.sizes[p.n - 1];
  fl_value x = over_dims(g, as_pairs(g, g->in[0]), &p, first, true);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_irdft);
  a.v[FL_ATTR_irdft_n].i = n;
  a.v[FL_ATTR_irdft_dim].i = p.dims[p.n - 1];
  a.v[FL_ATTR_irdft_scale].f = scale_over(g, &p, first, p.n, true);
  a.v[FL_ATTR_irdft_dims].i = many;
  g->out[0] = RUN_A(irdft, &a, sized(g, x, &p, first, n / 2 + 1));
}

void fli_compose_fft(env *g) {
  fft_complex_whole(g, false, 0, false);
}

void fli_compose_ifft(env *g) {
  fft_complex_whole(g, false, 0, true);
}

void fli_compose_rfft(env *g) {
  forward_half(g, false, 0);
}

void fli_compose_irfft(env *g) {
  inverse_half(g, false, 0);
}

void fli_compose_fft2(env *g) {
  fft_complex_whole(g, true, 2, false);
}

void fli_compose_ifft2(env *g) {
  fft_complex_whole(g, true, 2, true);
}

void fli_compose_rfft2(env *g) {
  forward_half(g, true, 2);
}

void fli_compose_irfft2(env *g) {
  inverse_half(g, true, 2);
}

void fli_compose_fftn(env *g) {
  fft_complex_whole(g, true, 0, false);
}

void fli_compose_ifftn(env *g) {
  fft_complex_whole(g, true, 0, true);
}

void fli_compose_rfftn(env *g) {
  forward_half(g, true, 0);
}

void fli_compose_irfftn(env *g) {
  inverse_half(g, true, 0);
}

/* --- shifts and frequencies --- */

/* Rolls by half of each size: rounded down, or up for the way back. */
static void fft_complex_shifted(env *g, bool back) {
  const fl_meta *m = fli_meta(g->in[0]);
  int n;
  const int64_t *dims = fl_attr_list(g->attrs, FL_ATTR_shifts_dims, &n);
  fl_value x = g->in[0];
  for (int k = 0; k < (n ? n : m->ndim); k++) {
    int64_t dim = n ? dims[k] : k, size = m->shape[dim];
    int64_t by = back ? (size + 1) / 2 : size / 2;
    if (size < 2)
      continue;
    fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
    a.v[FL_ATTR_cat_dim].i = dim;
    x = RUN_A(cat, &a, fli_v_narrow(&g->e, x, (int)dim, size - by, by, 1),
              fft_complex_narrowed(g, x, dim, size - by));
  }
  g->out[0] = x.tensor == g->in[0].tensor ? RUN(copy, x) : x;
}

void fli_compose_fftshift(env *g) {
  fft_complex_shifted(g, false);
}

void fli_compose_ifftshift(env *g) {
  fft_complex_shifted(g, true);
}

static fl_value fft_complex_counted(env *g, int64_t from, int64_t to) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = (double)from;
  a.v[FL_ATTR_arange_stop].f = (double)to;
  a.v[FL_ATTR_arange_dtype].i = FL_F64;
  return fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
}

static void count_frequencies(env *g, bool half) {
  int64_t n = g->attrs->v[FL_ATTR_frequencies_n].i;
  double by = 1 / ((double)n * g->attrs->v[FL_ATTR_frequencies_d].f);
  if (n < 1) {
    fli_env_fail(&g->e, FL_EARG, "%s: n is %lld and must be at least 1",
                 g->op->info.name, (long long)n);
    return;
  }
  fl_value k;
  if (half)
    k = fft_complex_counted(g, 0, n / 2 + 1);
  else {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
    k = RUN_A(cat, &a, fft_complex_counted(g, 0, (n + 1) / 2),
              fft_complex_counted(g, -(n / 2), 0));
  }
  g->out[0] =
      CAST(MUL(k, NUM(by)), (fl_dtype)g->attrs->v[FL_ATTR_frequencies_dtype].i);
}

void fli_compose_fftfreq(env *g) {
  count_frequencies(g, false);
}

void fli_compose_rfftfreq(env *g) {
  count_frequencies(g, true);
}

/* --- short-time transforms --- */

typedef struct frames {
  int64_t n, hop, length; /* of a transform, between them, of the window */
  bool centered, normalized, onesided;
} frames;

static bool read_frames(env *g, frames *f) {
  const fl_attr *v = g->attrs->v;
  f->n = v[FL_ATTR_framed_n_fft].i;
  f->length = v[FL_ATTR_framed_win_length].i == FL_ATTR_NONE
                  ? f->n
                  : v[FL_ATTR_framed_win_length].i;
  f->hop = v[FL_ATTR_framed_hop].i == FL_ATTR_NONE ? f->n / 4
                                                   : v[FL_ATTR_framed_hop].i;
  f->centered = v[FL_ATTR_framed_center].i;
  f->normalized = v[FL_ATTR_framed_normalized].i;
  f->onesided = v[FL_ATTR_framed_onesided].i;
  const fl_meta *w = fli_meta(g->in[FL_IN_framed_window]);
  bool fits = f->n > 0 && f->hop > 0 && f->length > 0 && f->length <= f->n;
  if (fits && !fli_nothing(g->in[FL_IN_framed_window]))
    fits = w->ndim == 1 && w->shape[0] == f->length;
  if (!fits)
    fli_env_fail(&g->e, FL_EARG,
                 "%s: needs n_fft >= win_length > 0, hop > 0 and a window of "
                 "win_length, got n_fft %lld, win_length %lld, hop %lld",
                 g->op->info.name, (long long)f->n, (long long)f->length,
                 (long long)f->hop);
  return fits;
}

/* The window in the middle of n, or ones. */
static fl_value window_of(env *g, const frames *f, fl_dtype d,
                          fl_device device) {
  fl_value w = g->in[FL_IN_framed_window];
  if (fli_nothing(w))
    w = ADD(fli_v_zeros(&g->e, d, 1, &f->length, device), NUM(1));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  int64_t before = (f->n - f->length) / 2;
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2,
               (int64_t[]){before, f->n - f->length - before});
  return f->n == f->length ? CAST(w, d) : RUN_A(pad, &a, CAST(w, d));
}

/* (batch, time) or (time) to (batch, frequency, frames). */
void fli_compose_stft(env *g) {
  frames f;
  fl_value x = g->in[FL_IN_stft_x];
  const fl_meta *m = fli_meta(x);
  if (!read_frames(g, &f))
    return;
  int64_t length = m->ndim ? m->shape[m->ndim - 1] : 0;
  int64_t all = length + (f.centered ? f.n / 2 * 2 : 0);
  if (m->ndim < 1 || m->ndim > 2 || all < f.n ||
      (f.centered && f.n / 2 >= length)) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "stft: needs (time) or (batch, time) with enough for n_fft "
                 "%lld, got shape %s",
                 (long long)f.n, fli_shape_text(m->ndim, m->shape));
    return;
  }
  x = as_float(g, x);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  a.v[FL_ATTR_pad_mode].i = 1; /* reflect */
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2, (int64_t[]){f.n / 2, f.n / 2});
  bool alone = m->ndim == 1;
  if (alone)
    x = fli_v_unsqueeze(&g->e, x, 0);
  if (f.centered && f.n > 1)
    x = RUN_A(pad, &a, x);
  fl_attrs cut = fli_attrs(&g->e, FLI_OP_unfold);
  cut.v[FL_ATTR_unfold_dim].i = 1;
  cut.v[FL_ATTR_unfold_size].i = f.n;
  cut.v[FL_ATTR_unfold_step].i = f.hop;
  fl_value y = RUN_A(unfold, &cut, x); /* (batch, frames, n) */
  if (g->e.status)
    return;
  y = MUL(y, window_of(g, &f, fli_meta(y)->dtype, fl_tensor_device(y.tensor)));
  double by = f.normalized ? 1 / sqrt((double)f.n) : 1;
  fl_attrs way = fli_attrs(&g->e, f.onesided ? FLI_OP_rdft : FLI_OP_dft);
  way.v[f.onesided ? FL_ATTR_rdft_dim : FL_ATTR_dft_dim].i = 2;
  way.v[f.onesided ? FL_ATTR_rdft_scale : FL_ATTR_dft_scale].f = by;
  y = f.onesided ? RUN_A(rdft, &way, y) : RUN_A(dft, &way, as_pairs(g, y));
  y = fli_v_transpose(&g->e, y, 1, 2);
  y = as_complex(g, y);
  g->out[0] = alone && !g->e.status
                  ? fli_v_reshape(&g->e, y, 2, fli_meta(y)->shape + 1)
                  : y;
}

/* Adds overlapping frames (batch, frames, n) at their positions in (batch,
 * time). */
static fl_value overlapped(env *g, fl_value y, const frames *f, int64_t batch,
                           int64_t count) {
  int64_t time = f->n + (count - 1) * f->hop;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided_backward);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_shape, 2,
               (int64_t[]){batch, time});
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_size, 3,
               (int64_t[]){batch, count, f->n});
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_backward_stride, 3,
               (int64_t[]){time, f->hop, 1});
  return RUN_A(as_strided_backward, &a, y);
}

/* Overlap-add: the sum of the frames over that of the squared windows. */
void fli_compose_istft(env *g) {
  frames f;
  fl_value x = g->in[FL_IN_istft_x];
  const fl_meta *m = fli_meta(x);
  if (!read_frames(g, &f))
    return;
  bool alone = m->ndim == 2;
  int64_t rows = m->ndim > 1 ? m->shape[m->ndim - 2] : 0;
  if (!is_complex(x) || m->ndim < 2 || m->ndim > 3 ||
      rows != (f.onesided ? f.n / 2 + 1 : f.n) || m->shape[m->ndim - 1] == 0) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "istft: needs complex (frequency, frames) or (batch, "
                 "frequency, frames) with %lld frequencies, got %s of shape %s",
                 (long long)(f.onesided ? f.n / 2 + 1 : f.n),
                 fl_dtype_name(m->dtype), fli_shape_text(m->ndim, m->shape));
    return;
  }
  int64_t count = m->shape[m->ndim - 1], batch = alone ? 1 : m->shape[0];
  fl_value y = RUN(view_as_real, x);
  if (alone)
    y = fli_v_unsqueeze(&g->e, y, 0);
  y = fli_v_transpose(&g->e, y, 1, 2); /* (batch, frames, frequency, 2) */
  fl_attrs way = fli_attrs(&g->e, f.onesided ? FLI_OP_irdft : FLI_OP_dft);
  double by = f.normalized ? 1 / sqrt((double)f.n) : 1 / (double)f.n;
  if (f.onesided)
    way.v[FL_ATTR_irdft_n].i = f.n;
  else
    way.v[FL_ATTR_dft_inverse].i = true;
  way.v[f.onesided ? FL_ATTR_irdft_dim : FL_ATTR_dft_dim].i = 2;
  way.v[f.onesided ? FL_ATTR_irdft_scale : FL_ATTR_dft_scale].f = by;
  y = f.onesided ? RUN_A(irdft, &way, y) : RUN_A(dft, &way, y);
  if (!f.onesided && !g->e.status)
    y = fli_v_reshape(&g->e, fli_v_narrow(&g->e, y, 3, 0, 1, 1), 3,
                      (int64_t[]){batch, count, f.n});
  if (g->e.status)
    return;
  fl_dtype d = fli_meta(y)->dtype;
  fl_value w = window_of(g, &f, d, fl_tensor_device(y.tensor));
  fl_value squares =
      fli_v_expand(&g->e, RUN(square, w), 3, (int64_t[]){1, count, f.n});
  y = overlapped(g, MUL(y, w), &f, batch, count);
  squares = overlapped(g, RUN(contiguous, squares), &f, 1, count);
  int64_t time = f.n + (count - 1) * f.hop, skip = f.centered ? f.n / 2 : 0;
  int64_t length = g->attrs->v[FL_ATTR_istft_length].i;
  int64_t left = time - 2 * skip, want = length == FL_ATTR_NONE ? left : length;
  int64_t keep = want < time - skip ? want : time - skip;
  if (want < 0 || left < 0) {
    fli_env_fail(&g->e, FL_EARG, "istft: %lld elements is no length",
                 (long long)want);
    return;
  }
  y = fli_v_narrow(&g->e, y, 1, skip, keep, 1);
  squares = fli_v_narrow(&g->e, squares, 1, skip, keep, 1);
  /* where no window reaches there is nothing to divide */
  squares = RUN(where, RUN(gt, squares, NUM(1e-11)), squares, NUM(1));
  y = fitted(g, DIV(y, squares), 1, want);
  g->out[0] = alone ? fli_v_reshape(&g->e, y, 1, &want) : y;
}
