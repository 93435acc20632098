/* Rules of the rows that move elements (cat, pad, flip, roll, repeat,
 * triangles, assign, backward of as_strided) or make them from attributes, and
 * of stack and repeat_interleave, which are composed of such. */
#include "../ops/number.h"
#include "env.h"

#include <math.h>
#include <string.h>

static fl_status set_shape(fl_meta *m, int ndim, const int64_t *shape) {
  m->ndim = ndim;
  memcpy(m->shape, shape, (size_t)ndim * sizeof *shape);
  return FL_OK;
}

/* The attribute named `shape` becomes the shape of out[0]. */
static fl_status take_shape(fli_infer *c) {
  const fl_op_info *op = &c->op->info;
  int n = 0;
  const int64_t *shape = NULL;
  for (int i = 0; i < op->n_params && !shape; i++)
    if (op->params[i].kind == FL_P_SHAPE)
      shape = fl_attr_list(c->attrs, op->params[i].slot, &n);
  if (n > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "%s: a tensor has at most %d dims, not %d",
                    op->name, FL_MAX_DIMS, n);
  for (int i = 0; i < n; i++)
    if (shape[i] < 0)
      return fli_fail(FL_ESHAPE, "%s: size %lld in shape %s is negative",
                      op->name, (long long)shape[i], fli_shape_text(n, shape));
  return set_shape(&c->out[0], n, shape);
}

fl_status fli_shape_sized(fli_infer *c) {
  return take_shape(c);
}

/* --- made from attributes --- */

/* A `number` parameter fits the result's dtype. */
static fl_status check_number(const fli_infer *c, const char *name) {
  const fl_op_info *op = &c->op->info;
  for (int k = 0; k < op->n_params; k++)
    if (strcmp(op->params[k].name, name) == 0) {
      fl_operand o = fli_attr_operand(c->attrs, &op->params[k]);
      return fli_number_fits(op->name, false, &o, c->out[0].dtype);
    }
  return FL_OK;
}

fl_status fli_shape_filled(fli_infer *c) {
  FLI_TRY(check_number(c, "value"));
  return take_shape(c);
}

typedef struct steps {
  int64_t start, stop, step;
} steps;

/* Integers are counted in integers: doubles lose digits beyond 2^53. */
static bool whole_steps(const fl_attrs *a, steps *s) {
  return fl_attr_whole(a, FL_ATTR_arange_start, FL_WHOLE_arange_start,
                       &s->start) &&
         fl_attr_whole(a, FL_ATTR_arange_stop, FL_WHOLE_arange_stop,
                       &s->stop) &&
         fl_attr_whole(a, FL_ATTR_arange_step, FL_WHOLE_arange_step, &s->step);
}

/* The number of elements, as a double: it may be more than memory holds. The
 * difference of two i64 fits u64. */
static double count_steps(const fl_attrs *a, bool inclusive) {
  double n = (a->v[FL_ATTR_arange_stop].f - a->v[FL_ATTR_arange_start].f) /
             a->v[FL_ATTR_arange_step].f;
  steps s;
  if (!whole_steps(a, &s)) /* a step's rounding lets stop in */
    return inclusive ? floor(n + 1e-9) + 1 : ceil(n);
  uint64_t from = (uint64_t)s.start, to = (uint64_t)s.stop,
           by = (uint64_t)s.step;
  uint64_t way = s.step > 0 ? to - from : from - to;
  by = s.step > 0 ? by : 0 - by;
  return (double)(way / by) + (inclusive || way % by ? 1 : 0);
}

/* The last element fits the dtype, so all do. */
static fl_status check_last(const fli_infer *c, int64_t n) {
  const fl_attrs *a = c->attrs;
  fl_operand last = {.dtype = FL_F64,
                     .f = a->v[FL_ATTR_arange_start].f +
                          (double)(n - 1) * a->v[FL_ATTR_arange_step].f};
  steps s;
  if (whole_steps(a, &s)) {
    last.dtype = FL_I64;
    last.i = s.start + (n - 1) * s.step;
  }
  FLI_TRY(check_number(c, "start"));
  return fli_number_fits("arange", false, &last, c->out[0].dtype);
}

fl_status fli_shape_arange(fli_infer *c) {
  const fl_attr *a = c->attrs->v;
  double start = a[FL_ATTR_arange_start].f, stop = a[FL_ATTR_arange_stop].f,
         step = a[FL_ATTR_arange_step].f;
  if (!(fabs(stop - start) < INFINITY) || !(fabs(step) < INFINITY) || step == 0)
    return fli_fail(FL_EARG,
                    "arange: needs finite bounds and a step other than 0, got "
                    "%g to %g by %g",
                    start, stop, step);
  steps s;
  bool back = whole_steps(c->attrs, &s)
                  ? (s.step > 0 ? s.stop < s.start : s.stop > s.start)
                  : (stop - start) * step < 0;
  if (back)
    return fli_fail(FL_EARG, "arange: steps of %g do not lead from %g to %g",
                    step, start, stop);
  double n = count_steps(c->attrs, a[FL_ATTR_arange_inclusive].i);
  if (n > 0x1p53)
    return fli_fail(FL_ESIZE, "arange: %g elements are too many", n);
  if (n > 0)
    FLI_TRY(check_last(c, (int64_t)n));
  return set_shape(&c->out[0], 1, (int64_t[]){(int64_t)n});
}

fl_status fli_shape_linspace(fli_infer *c) {
  const fl_attr *a = c->attrs->v;
  if (!(fabs(a[FL_ATTR_linspace_start].f) < INFINITY) ||
      !(fabs(a[FL_ATTR_linspace_stop].f) < INFINITY) ||
      a[FL_ATTR_linspace_steps].i < 0)
    return fli_fail(FL_EARG,
                    "linspace: needs finite bounds and at least 0 steps, got "
                    "%g to %g in %lld",
                    a[FL_ATTR_linspace_start].f, a[FL_ATTR_linspace_stop].f,
                    (long long)a[FL_ATTR_linspace_steps].i);
  if (a[FL_ATTR_linspace_steps].i > 0)
    FLI_TRY(check_number(c, "start"));
  if (a[FL_ATTR_linspace_steps].i > 1)
    FLI_TRY(check_number(c, "stop"));
  return set_shape(&c->out[0], 1, (int64_t[]){a[FL_ATTR_linspace_steps].i});
}

fl_status fli_shape_eye(fli_infer *c) {
  int64_t n = c->attrs->v[FL_ATTR_eye_n].i, m = c->attrs->v[FL_ATTR_eye_m].i;
  if (m == FL_ATTR_NONE)
    m = n;
  if (n < 0 || m < 0)
    return fli_fail(FL_ESHAPE, "eye: sizes must not be negative, got %s",
                    fli_shape_text(2, (int64_t[]){n, m}));
  return set_shape(&c->out[0], 2, (int64_t[]){n, m});
}

/* --- assign --- */

fl_status fli_shape_assign(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_assign_x], *from = c->in[FL_IN_assign_from];
  int skip = x->ndim - from->ndim;
  bool fits = skip >= 0;
  for (int i = 0; i < from->ndim && fits; i++)
    fits = from->shape[i] == 1 || from->shape[i] == x->shape[i + skip];
  if (!fits)
    return fli_fail(FL_ESHAPE, "assign: shape %s does not broadcast to %s",
                    fli_shape_text(from->ndim, from->shape),
                    fli_shape_text(x->ndim, x->shape));
  return set_shape(&c->out[0], x->ndim, x->shape);
}

/* assign overwrites all of x, so its gradient is 0; the engine handles the rest
 * of x's base. */
void fli_grad_assign(fli_grad *g) {
  if (g->need[FL_IN_assign_x])
    g->dx[FL_IN_assign_x] = fli_g_none(g);
  if (g->need[FL_IN_assign_from])
    g->dx[FL_IN_assign_from] = g->dy[0];
}

/* --- cat and stack --- */

/* An empty vector may stand among tensors of any dims, as a start to append
 * to. */
static bool is_blank(const fl_meta *m) {
  return m->ndim == 1 && m->shape[0] == 0;
}

fl_status fli_shape_cat(fli_infer *c) {
  int dim = (int)c->attrs->v[FL_ATTR_cat_dim].i, like = 0;
  if (c->n_in == 0)
    return fli_fail(FL_EARG, "cat: needs at least one tensor");
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i]->ndim == 0)
      return fli_fail(FL_ESHAPE,
                      "cat: input %d has no dims; stack joins 0-d tensors",
                      i + 1);
  while (like < c->n_in - 1 && is_blank(c->in[like]))
    like++;
  const fl_meta *first = c->in[like];
  int64_t total = 0;
  if (dim >= first->ndim)
    return fli_fail(FL_EARG, "cat: there is no dim %d in a tensor of %d dims",
                    dim + c->base, first->ndim);
  for (int i = 0; i < c->n_in; i++) {
    const fl_meta *x = c->in[i];
    bool fits = x->ndim == first->ndim;
    for (int d = 0; d < x->ndim && fits; d++)
      fits = d == dim || x->shape[d] == first->shape[d];
    if (!fits && !is_blank(x))
      return fli_fail(FL_ESHAPE,
                      "cat: input %d has shape %s; beside %s it must differ in "
                      "dim %d only",
                      i + 1, fli_shape_text(x->ndim, x->shape),
                      fli_shape_text(first->ndim, first->shape), dim + c->base);
    if (fits && __builtin_add_overflow(total, x->shape[dim], &total))
      return fli_fail(FL_ESIZE, "cat: the result is too large");
  }
  set_shape(&c->out[0], first->ndim, first->shape);
  c->out[0].shape[dim] = total;
  return FL_OK;
}

void fli_grad_cat(fli_grad *g) {
  int dim = (int)g->attrs->v[FL_ATTR_cat_dim].i;
  int64_t start = 0;
  for (int i = 0; i < g->n_in; i++) {
    const fl_meta *m = &g->in_meta[i];
    if (m->ndim != g->out_meta[0].ndim)
      continue; /* a blank */
    int64_t n = m->shape[dim];
    if (g->need[i])
      g->dx[i] = fli_v_narrow(&g->e, g->dy[0], dim, start, n, 1);
    start += n;
  }
}

void fli_compose_stack(fli_composing *g) {
  int n = g->n_in, dim = (int)g->attrs->v[FL_ATTR_stack_dim].i;
  if (n == 0) {
    fli_env_fail(&g->e, FL_EARG, "stack: needs at least one tensor");
    return;
  }
  const fl_meta *first = fli_meta(g->in[FL_IN_stack_xs]);
  if (dim < 0)
    dim += first->ndim + 1;
  for (int i = 0; i < n; i++) {
    const fl_meta *m = fli_meta(g->in[i]);
    if (!g->in[i].tensor || !fli_same_shape(m, first)) {
      fli_env_fail(&g->e, FL_ESHAPE,
                   "stack: input %d has shape %s and the first %s; they must "
                   "be the same",
                   i + 1, fli_shape_text(m->ndim, m->shape),
                   fli_shape_text(first->ndim, first->shape));
      return;
    }
  }
  fl_value *xs = fli_malloc(g->e.rt, (size_t)n * sizeof *xs);
  if (!xs) {
    g->e.status = FL_ENOMEM;
    return;
  }
  for (int i = 0; i < n; i++)
    xs[i] = fli_v_unsqueeze(&g->e, g->in[i], dim);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_cat);
  a.v[FL_ATTR_cat_dim].i = dim;
  g->out[0] = fli_run(&g->e, FLI_OP_cat, &a, n, xs);
  fli_mfree(xs);
}

/* --- pad --- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* `big` is `small` padded by the list (before, after of the last dim, then of
 * the one before it); fails for what a mode cannot do. */
static fl_status pad_shape(const char *op, const fl_meta *small, int n,
                           const int64_t *list, int mode, int64_t *big) {
  if (n % 2 || n > 2 * small->ndim)
    return fli_fail(FL_EARG,
                    "%s: %d numbers do not fit a tensor of %d dims: two for "
                    "each dim, the last dim first",
                    op, n, small->ndim);
  for (int d = 0; d < small->ndim; d++) {
    int k = 2 * (small->ndim - 1 - d);
    int64_t before = k < n ? list[k] : 0, after = k < n ? list[k + 1] : 0;
    int64_t size = small->shape[d], more = before > after ? before : after;
    if (__builtin_add_overflow(size, before, &big[d]) ||
        __builtin_add_overflow(big[d], after, &big[d]) || big[d] < 0 ||
        -before > size || -after > size)
      return fli_fail(FL_ESIZE,
                      "%s: %lld and %lld around a dim of size %lld leave no "
                      "valid size",
                      op, (long long)before, (long long)after, (long long)size);
    if ((mode == REFLECT && more >= size && more > 0) ||
        (mode == CIRCULAR && more > size) ||
        (mode == REPLICATE && more > 0 && size == 0))
      return fli_fail(FL_ESHAPE,
                      "%s: size %lld is too small for %lld elements of this "
                      "kind of padding",
                      op, (long long)size, (long long)more);
  }
  return FL_OK;
}

fl_status fli_shape_pad(fli_infer *c) {
  int n;
  const int64_t *list = fl_attr_list(c->attrs, FL_ATTR_pad_pad, &n);
  c->out[0].ndim = c->in[0]->ndim;
  FLI_TRY(check_number(c, "value"));
  return pad_shape("pad", c->in[0], n, list,
                   (int)c->attrs->v[FL_ATTR_pad_mode].i, c->out[0].shape);
}

fl_status fli_shape_pad_backward(fli_infer *c) {
  const fl_meta *dy = c->in[0];
  int n;
  const int64_t *list = fl_attr_list(c->attrs, FL_ATTR_pad_backward_pad, &n);
  int64_t big[FL_MAX_DIMS];
  FLI_TRY(take_shape(c));
  FLI_TRY(pad_shape("pad_backward", &c->out[0], n, list,
                    (int)c->attrs->v[FL_ATTR_pad_backward_mode].i, big));
  if (!fli_has_shape(dy, c->out[0].ndim, big))
    return fli_fail(FL_ESHAPE, "pad_backward: dy has shape %s and must have %s",
                    fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(c->out[0].ndim, big));
  return FL_OK;
}

void fli_grad_pad(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  int n;
  const int64_t *list = fl_attr_list(g->attrs, FL_ATTR_pad_pad, &n);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad_backward);
  fli_set_list(&g->e, &a, FL_ATTR_pad_backward_shape, x->ndim, x->shape);
  fli_set_list(&g->e, &a, FL_ATTR_pad_backward_pad, n, list);
  a.v[FL_ATTR_pad_backward_mode] = g->attrs->v[FL_ATTR_pad_mode];
  g->dx[0] = RUN_A(pad_backward, &a, g->dy[0]);
}

void fli_grad_pad_backward(fli_grad *g) {
  int n;
  const int64_t *list = fl_attr_list(g->attrs, FL_ATTR_pad_backward_pad, &n);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, n, list);
  a.v[FL_ATTR_pad_mode] = g->attrs->v[FL_ATTR_pad_backward_mode];
  g->dx[0] = RUN_A(pad, &a, g->dy[0]);
}

/* --- flip, roll, repeat, triangles --- */

void fli_grad_flip(fli_grad *g) {
  g->dx[0] = RUN_A(flip, g->attrs, g->dy[0]);
}

fl_status fli_shape_roll(fli_infer *c) {
  int n = (int)c->attrs->v[FL_ATTR_roll_shifts].list.n,
      nd = (int)c->attrs->v[FL_ATTR_roll_dims].list.n;
  if (nd ? n != nd : n != 1)
    return fli_fail(FL_EARG,
                    "roll: %d shifts for %d dims; there must be one for each, "
                    "or one alone for the flattened tensor",
                    n, nd);
  return set_shape(&c->out[0], c->in[0]->ndim, c->in[0]->shape);
}

void fli_grad_roll(fli_grad *g) {
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  for (uint32_t i = 0; i < a.v[FL_ATTR_roll_shifts].list.n; i++) {
    int64_t *shift = &a.list[a.v[FL_ATTR_roll_shifts].list.at + i];
    *shift = (int64_t)(0 - (uint64_t)*shift);
  }
  g->dx[0] = RUN_A(roll, &a, g->dy[0]);
}

fl_status fli_shape_repeat(fli_infer *c) {
  const fl_meta *x = c->in[0];
  int n;
  const int64_t *times = fl_attr_list(c->attrs, FL_ATTR_repeat_repeats, &n);
  int skip = n - x->ndim;
  if (skip < 0 || n > FL_MAX_DIMS)
    return fli_fail(FL_EARG,
                    "repeat: %d numbers for a tensor of %d dims: one for each, "
                    "new dims first, at most %d",
                    n, x->ndim, FL_MAX_DIMS);
  c->out[0].ndim = n;
  for (int d = 0; d < n; d++) {
    int64_t size = d < skip ? 1 : x->shape[d - skip];
    if (times[d] < 0 ||
        __builtin_mul_overflow(size, times[d], &c->out[0].shape[d]))
      return fli_fail(FL_EARG,
                      "repeat: cannot repeat a size of %lld %lld times",
                      (long long)size, (long long)times[d]);
  }
  return FL_OK;
}

/* Sums dim by dim: the copies of a dim lie one after the other, so that
 * (before, times, size, after) has at most four dims. */
void fli_grad_repeat(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  int n;
  const int64_t *times = fl_attr_list(g->attrs, FL_ATTR_repeat_repeats, &n);
  fl_value dy = g->dy[0];
  for (int d = n - 1; d >= 0; d--) {
    int k = d - (n - x->ndim);
    int64_t size = k < 0 ? 1 : x->shape[k];
    int64_t before = fl_numel(d, g->out_meta[0].shape);
    int64_t after = k < 0 ? fl_numel(x->ndim, x->shape)
                          : fl_numel(x->ndim - k - 1, x->shape + k + 1);
    if (times[d] == 1)
      continue;
    dy =
        fli_v_reshape(&g->e, dy, 4, (int64_t[]){before, times[d], size, after});
    dy = SUM1(dy, 1, false);
  }
  g->dx[0] = RESHAPE(dy, x);
}

fl_status fli_shape_triangle(fli_infer *c) {
  const fl_meta *x = c->in[0];
  if (x->ndim < 2)
    return fli_fail(FL_ESHAPE, "%s: needs matrices, got shape %s",
                    c->op->info.name, fli_shape_text(x->ndim, x->shape));
  return set_shape(&c->out[0], x->ndim, x->shape);
}

void fli_grad_tril(fli_grad *g) {
  g->dx[0] = RUN_A(tril, g->attrs, g->dy[0]);
}

void fli_grad_triu(fli_grad *g) {
  g->dx[0] = RUN_A(triu, g->attrs, g->dy[0]);
}

void fli_compose_repeat_interleave(fli_composing *g) {
  int64_t times = g->attrs->v[FL_ATTR_repeat_interleave_repeats].i,
          given = g->attrs->v[FL_ATTR_repeat_interleave_dim].i,
          shape[FL_MAX_DIMS + 1];
  bool whole = given == FL_ATTR_NONE;
  int dim = whole ? 0 : (int)given;
  fl_value from = g->in[0];
  if (whole)
    from = fli_v_reshape(&g->e, from, 1, (const int64_t[]){-1});
  const fl_meta *m = fli_meta(from);
  if (times < 0 || m->ndim == 0 || m->ndim == FL_MAX_DIMS) {
    fli_env_fail(
        &g->e, FL_EARG,
        "repeat_interleave: needs a tensor of 1 to %d dims and a count "
        "that is not negative, got shape %s and %lld",
        FL_MAX_DIMS - 1, fli_shape_text(m->ndim, m->shape), (long long)times);
    return;
  }
  fl_value x = fli_v_unsqueeze(&g->e, from, dim + 1);
  memcpy(shape, m->shape, (size_t)(dim + 1) * sizeof *shape);
  shape[dim + 1] = times;
  memcpy(shape + dim + 2, m->shape + dim + 1,
         (size_t)(m->ndim - dim - 1) * sizeof *shape);
  x = fli_v_expand(&g->e, x, m->ndim + 1, shape);
  memcpy(shape, m->shape, (size_t)m->ndim * sizeof *shape);
  if (__builtin_mul_overflow(shape[dim], times, &shape[dim])) {
    fli_env_fail(&g->e, FL_ESIZE, "repeat_interleave: the result is too large");
    return;
  }
  g->out[0] = fli_v_reshape(&g->e, x, m->ndim, shape);
}

/* --- backward of strided views --- */

fl_status fli_shape_as_strided_backward(fli_infer *c) {
  const fl_meta *dy = c->in[0];
  int n, m;
  const int64_t *size =
      fl_attr_list(c->attrs, FL_ATTR_as_strided_backward_size, &n);
  const int64_t *stride =
      fl_attr_list(c->attrs, FL_ATTR_as_strided_backward_stride, &m);
  int64_t first = c->attrs->v[FL_ATTR_as_strided_backward_offset].i,
          last = first;
  FLI_TRY(take_shape(c));
  if (n != m || !fli_has_shape(dy, n, size))
    return fli_fail(FL_ESHAPE,
                    "as_strided_backward: dy has shape %s, size is %s with %d "
                    "strides",
                    fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(n, size), m);
  for (int d = 0; d < n; d++) {
    int64_t far;
    if (__builtin_mul_overflow(size[d] - 1, stride[d], &far) ||
        __builtin_add_overflow(far < 0 ? first : last, far,
                               far < 0 ? &first : &last))
      return fli_fail(FL_EARG, "as_strided_backward: strides %s overflow",
                      fli_shape_text(n, stride));
  }
  if (fl_numel(n, size) > 0 &&
      (first < 0 || last >= fl_numel(c->out[0].ndim, c->out[0].shape)))
    return fli_fail(FL_EINDEX,
                    "as_strided_backward: sizes %s with strides %s reach "
                    "outside shape %s",
                    fli_shape_text(n, size), fli_shape_text(n, stride),
                    fli_shape_text(c->out[0].ndim, c->out[0].shape));
  return FL_OK;
}

void fli_grad_as_strided_backward(fli_grad *g) {
  int n;
  const int64_t *size =
      fl_attr_list(g->attrs, FL_ATTR_as_strided_backward_size, &n);
  const int64_t *stride =
      fl_attr_list(g->attrs, FL_ATTR_as_strided_backward_stride, &n);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_size, n, size);
  fli_set_list(&g->e, &a, FL_ATTR_as_strided_stride, n, stride);
  a.v[FL_ATTR_as_strided_offset].i =
      g->attrs->v[FL_ATTR_as_strided_backward_offset].i;
  g->dx[0] = RUN_A(as_strided, &a, RUN(contiguous, g->dy[0]));
}
