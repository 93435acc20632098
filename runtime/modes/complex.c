/* What rows do with complex tensors: real rows on pairs of numbers, so that
 * gradients, devices and strides need no code here. The gradient of a real
 * result with respect to x + i y is d/dx + i d/dy. */
#include "../tape/tape.h"
#include "../call/call.h"
#include "../rules/env.h"
#include "complex.h"

#include <string.h>

/* --- pairs and parts --- */

typedef fli_composing env; /* in[]: what the row was given, dims settled */

static bool is_complex(fl_value v) {
  return v.tensor && fli_is_complex(fli_meta(v)->dtype);
}

/* The complex dtype of all inputs: only tensors with dims widen it. */
static fl_dtype complex_common(const env *g) {
  fl_dtype d = FL_C64;
  for (int k = 0; k < g->n_in; k++)
    if (g->in[k].tensor && (is_complex(g->in[k]) || fli_meta(g->in[k])->ndim))
      d = fli_promote(d, fli_meta(g->in[k])->dtype);
  return d;
}

static fl_value last_dim(env *g, fl_value v) {
  return v.tensor && !g->e.status ? fli_v_unsqueeze(&g->e, v, fli_meta(v)->ndim)
                                  : v;
}

/* Zeros beside real numbers. */
static fl_value beside_zeros(env *g, fl_value re) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2, (int64_t[]){0, 1});
  return RUN_A(pad, &a, last_dim(g, re));
}

/* Any operand as (..., 2) of floats. */
static fl_value complex_pairs(env *g, fl_value v) {
  fl_dtype d = fli_part_dtype(complex_common(g));
  if (fli_nothing(v))
    return v;
  if (is_complex(v))
    return CAST(RUN(view_as_real, v), d);
  if (v.tensor)
    return beside_zeros(g, CAST(v, d));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_full);
  a.v[FL_ATTR_full_value].f = v.dtype == FL_F64 ? v.f : (double)v.i;
  a.v[FL_ATTR_full_dtype].i = d;
  return beside_zeros(g, fli_run(&g->e, FLI_OP_full, &a, 0, NULL));
}

static fl_value complex_part(env *g, fl_value pair, int64_t k) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_select);
  a.v[FL_ATTR_select_dim].i = fli_meta(pair)->ndim - 1;
  a.v[FL_ATTR_select_index].i = k;
  return g->e.status ? pair : RUN_A(select, &a, pair);
}

static fl_value complex_joined(env *g, fl_value pair) {
  return RUN(view_as_complex, RUN(contiguous, pair));
}

static fl_value complex_join(env *g, fl_value re, fl_value im) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_stack);
  a.v[FL_ATTR_stack_dim].i = fli_meta(re)->ndim;
  return RUN(view_as_complex, RUN_A(stack, &a, re, im));
}

/* --- arithmetic --- */

static void complex_on_pairs(env *g) {
  fl_value in[3];
  for (int k = 0; k < g->n_in; k++)
    in[k] = complex_pairs(g, g->in[k]);
  g->out[0] =
      complex_joined(g, fli_run(&g->e, g->op->id, g->attrs, g->n_in, in));
}

/* The row on both parts of one operand; the other is real. */
static void beside_real(env *g, int k) {
  fl_dtype d = fli_part_dtype(complex_common(g));
  fl_value in[2] = {g->in[0], g->in[1]};
  in[k] = complex_pairs(g, in[k]);
  in[1 - k] = last_dim(g, in[1 - k].tensor ? CAST(in[1 - k], d) : in[1 - k]);
  g->out[0] = complex_joined(g, fli_run(&g->e, g->op->id, NULL, 2, in));
}

static void complex_multiply(env *g) {
  if (!is_complex(g->in[0]) || !is_complex(g->in[1])) {
    beside_real(g, is_complex(g->in[0]) ? 0 : 1);
    return;
  }
  g->out[0] = RUN(view_as_complex, RUN(complex_mul, complex_pairs(g, g->in[0]),
                                       complex_pairs(g, g->in[1])));
}

/* b is scaled to about 1 first, so that its square neither overflows nor
 * underflows. The scale cancels, so it needs no gradient. */
static void complex_divide(env *g) {
  if (!is_complex(g->in[1])) {
    beside_real(g, 0);
    return;
  }
  fl_value a = complex_pairs(g, g->in[0]), b = complex_pairs(g, g->in[1]);
  fl_value ar = complex_part(g, a, 0), ai = complex_part(g, a, 1);
  fl_value br = complex_part(g, b, 0), bi = complex_part(g, b, 1);
  bool grad = fl_grad_mode(g->e.rt, false);
  fl_value size = RUN(maximum, RUN(abs, br), RUN(abs, bi));
  fl_grad_mode(g->e.rt, grad);
  br = DIV(br, size);
  bi = DIV(bi, size);
  fl_value by = MUL(ADD(MUL(br, br), MUL(bi, bi)), size);
  g->out[0] = complex_join(g, DIV(ADD(MUL(ar, br), MUL(ai, bi)), by),
                           DIV(SUB(MUL(ai, br), MUL(ar, bi)), by));
}

static void complex_reciprocal(env *g) {
  g->out[0] = RUN(div, NUM(1), g->in[0]);
}

static void complex_square(env *g) {
  g->out[0] = RUN(mul, g->in[0], g->in[0]);
}

/* The larger part first: no overflow, and no gradient at 0. */
static void complex_magnitude(env *g) {
  fl_value x = complex_pairs(g, g->in[0]);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_norm);
  fli_set_list(&g->e, &a, FL_ATTR_norm_dims, 1,
               (int64_t[]){fli_meta(g->in[0])->ndim});
  g->out[0] = RUN_A(norm, &a, x);
}

static void complex_exponential(env *g) {
  fl_value x = complex_pairs(g, g->in[0]), size = EXP(complex_part(g, x, 0));
  fl_value angle = complex_part(g, x, 1);
  g->out[0] =
      complex_join(g, MUL(size, RUN(cos, angle)), MUL(size, RUN(sin, angle)));
}

static void complex_logarithm(env *g) {
  fl_value x = complex_pairs(g, g->in[0]);
  g->out[0] =
      complex_join(g, LOG(RUN(abs, g->in[0])),
                   RUN(atan2, complex_part(g, x, 1), complex_part(g, x, 0)));
}

/* `over` combines what the row says of the two parts. */
static void compare_parts(env *g, int over) {
  fl_value in[2] = {complex_pairs(g, g->in[0]), complex_pairs(g, g->in[1])};
  fl_value y = fli_run(&g->e, g->op->id, NULL, 2, in);
  fl_attrs a = fli_attrs(&g->e, over);
  fli_set_list(&g->e, &a, FL_ATTR_truths_dims, 1,
               (int64_t[]){fli_meta(y)->ndim - 1});
  g->out[0] = fli_run(&g->e, over, &a, 1, &y);
}

static void complex_equal(env *g) {
  compare_parts(g, FLI_OP_all);
}

static void complex_unequal(env *g) {
  compare_parts(g, FLI_OP_any);
}

static void complex_product(env *g) {
  fl_value in[2] = {g->in[0], g->in[1]}, re[2], im[2];
  fl_dtype d = fli_part_dtype(complex_common(g));
  for (int k = 0; k < 2; k++) {
    fl_value p = is_complex(in[k]) ? complex_pairs(g, in[k]) : fli_none();
    re[k] = fli_nothing(p) ? CAST(in[k], d) : complex_part(g, p, 0);
    im[k] = fli_nothing(p) ? p : complex_part(g, p, 1);
  }
  fl_value r = MATMUL(re[0], re[1]), i = fli_none();
  if (!fli_nothing(im[0]) && !fli_nothing(im[1]))
    r = SUB(r, MATMUL(im[0], im[1]));
  if (!fli_nothing(im[1]))
    i = MATMUL(re[0], im[1]);
  if (!fli_nothing(im[0])) {
    fl_value more = MATMUL(im[0], re[1]);
    i = fli_nothing(i) ? more : ADD(i, more);
  }
  g->out[0] = complex_join(g, r, i);
}

static void complex_choose(env *g) {
  g->out[0] =
      complex_joined(g, RUN(where, last_dim(g, g->in[FL_IN_where_condition]),
                            complex_pairs(g, g->in[FL_IN_where_a]),
                            complex_pairs(g, g->in[FL_IN_where_b])));
}

/* --- movement of elements --- */

/* Of a number without dims: what is done along a dim changes nothing. */
static fl_value complex_alone(env *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_copy);
  return RUN_A(copy, &a, g->in[0]);
}

/* Rows along a dim, which counts from the first: that of the pairs, the last,
 * is not touched. */
static void complex_along(env *g) {
  fl_value few[8], *in = g->n_in <= 8 ? few : NULL;
  if (g->n_in == 1 && fli_meta(g->in[0])->ndim == 0) {
    g->out[0] = complex_alone(g);
    return;
  }
  if (!in && !(in = fli_malloc(g->e.rt, (size_t)g->n_in * sizeof *in))) {
    g->e.status = FL_ENOMEM;
    return;
  }
  for (int k = 0; k < g->n_in; k++) {
    bool index = g->op->variadic < 0 && g->op->in_type[k] >= FL_T_BOOL;
    in[k] = index ? g->in[k] : complex_pairs(g, g->in[k]);
  }
  g->out[0] =
      complex_joined(g, fli_run(&g->e, g->op->id, g->attrs, g->n_in, in));
  if (in != few)
    fli_mfree(in);
}

/* Sums and means: over all dims but that of the pairs. */
static void complex_reduce(env *g) {
  int64_t all[FL_MAX_DIMS];
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  int n = fli_meta(g->in[0])->ndim;
  for (int d = 0; d < n; d++)
    all[d] = d;
  fl_value x = complex_pairs(g, g->in[0]);
  if (a.v[FL_ATTR_complex_sums_dims].list.n == 0 && n)
    fli_set_list(&g->e, &a, FL_ATTR_complex_sums_dims, n, all);
  g->out[0] = n ? complex_joined(g, fli_run(&g->e, g->op->id, &a, 1, &x))
                : complex_alone(g);
}

static void complex_repeat(env *g) {
  int64_t times[FL_MAX_DIMS + 1];
  int n;
  const int64_t *list = fl_attr_list(g->attrs, FL_ATTR_repeat_repeats, &n);
  if (n >= FL_MAX_DIMS) {
    fli_env_fail(&g->e, FL_ESHAPE, "repeat: complex tensors have %d dims",
                 FL_MAX_DIMS - 1);
    return;
  }
  memcpy(times, list, (size_t)n * sizeof *times);
  times[n] = 1;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_repeat);
  fli_set_list(&g->e, &a, FL_ATTR_repeat_repeats, n + 1, times);
  g->out[0] = complex_joined(g, RUN_A(repeat, &a, complex_pairs(g, g->in[0])));
}

/* Positions for both parts of each element. */
static fl_value for_both(env *g, fl_value index) {
  const fl_meta *m = fli_meta(index);
  int64_t shape[FL_MAX_DIMS + 1];
  if (g->e.status || m->ndim == FL_MAX_DIMS)
    return index;
  memcpy(shape, m->shape, (size_t)m->ndim * sizeof *shape);
  shape[m->ndim] = 2;
  return fli_v_expand(&g->e, last_dim(g, index), m->ndim + 1, shape);
}

static void complex_gather(env *g) {
  fl_value y = RUN_A(gather, g->attrs, complex_pairs(g, g->in[FL_IN_gather_x]),
                     for_both(g, g->in[FL_IN_gather_index]));
  g->out[0] = complex_joined(g, y);
}

static void complex_select(env *g) {
  fl_value y =
      RUN(masked_select, complex_pairs(g, g->in[FL_IN_masked_select_x]),
          for_both(g, g->in[FL_IN_masked_select_mask]));
  g->out[0] = complex_joined(g, fli_v_reshape(&g->e, y, 2, (int64_t[]){-1, 2}));
}

/* Triangles are of the last two dims: the pairs go first for that. */
static void complex_triangle(env *g) {
  fl_value x = complex_pairs(g, g->in[0]);
  int n = fli_meta(x)->ndim;
  int64_t first[FL_MAX_DIMS], back[FL_MAX_DIMS];
  for (int d = 0; d < n; d++) {
    first[d] = d ? d - 1 : n - 1;
    back[d] = d == n - 1 ? 0 : d + 1;
  }
  x = g->e.status ? x : fli_v_permute(&g->e, x, first);
  x = fli_run(&g->e, g->op->id, g->attrs, 1, &x);
  g->out[0] =
      complex_joined(g, g->e.status ? x : fli_v_permute(&g->e, x, back));
}

/* Another dtype. Imaginary parts are never dropped silently. */
static void complex_cast(env *g) {
  int64_t to = g->attrs->v[FL_ATTR_copy_dtype].i;
  fl_dtype from = fli_meta(g->in[0])->dtype;
  if (to == FL_ATTR_NONE)
    to = from;
  if (!fli_is_complex((fl_dtype)to)) {
    fli_env_fail(&g->e, FL_EDTYPE,
                 "copy: %s as %s would lose the imaginary part: take real() or "
                 "abs() of it",
                 fl_dtype_name(from), fl_dtype_name((fl_dtype)to));
    return;
  }
  fl_attrs a = fli_attrs(&g->e, FLI_OP_copy);
  a.v[FL_ATTR_copy_dtype].i = fli_part_dtype((fl_dtype)to);
  if (g->attrs->v[FL_ATTR_copy_layout].i == FLI_LAYOUT_CONTIGUOUS)
    a.v[FL_ATTR_copy_layout].i = FLI_LAYOUT_CONTIGUOUS;
  fl_value x = fli_is_complex(from) ? RUN(view_as_real, g->in[0]) : g->in[0];
  x = RUN_A(copy, &a, x);
  g->out[0] =
      RUN(view_as_complex, fli_is_complex(from) ? x : beside_zeros(g, x));
}

static void complex_full(env *g) {
  fl_attrs a;
  fl_attrs_copy(&a, g->attrs);
  a.v[FL_ATTR_full_dtype].i =
      fli_part_dtype((fl_dtype)a.v[FL_ATTR_full_dtype].i);
  fl_value y = fli_run(&g->e, FLI_OP_full, &a, 0, NULL);
  g->out[0] = RUN(view_as_complex, beside_zeros(g, y));
}

/* fill and assign: the new elements, which the call then writes. */
static void complex_write(env *g) {
  fl_value y = complex_joined(g, complex_pairs(g, g->in[1]));
  g->out[0] = g->e.status ? y : EXPAND(y, fli_meta(g->in[0]));
}

static void complex_strided(env *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_as_strided_backward);
  static const int lists[3] = {FL_ATTR_as_strided_backward_shape,
                               FL_ATTR_as_strided_backward_size,
                               FL_ATTR_as_strided_backward_stride};
  for (int k = 0; k < 3; k++) {
    int64_t list[FL_MAX_LIST + 1]; /* not validated yet */
    bool strides = lists[k] == FL_ATTR_as_strided_backward_stride;
    int n;
    const int64_t *from = fl_attr_list(g->attrs, lists[k], &n);
    for (int d = 0; d < n; d++)
      list[d] = strides ? 2 * from[d] : from[d];
    list[n] = strides ? 1 : 2;
    fli_set_list(&g->e, &a, lists[k], n + 1, list);
  }
  a.v[FL_ATTR_as_strided_backward_offset].i =
      2 * g->attrs->v[FL_ATTR_as_strided_backward_offset].i;
  g->out[0] = complex_joined(
      g, RUN_A(as_strided_backward, &a, complex_pairs(g, g->in[0])));
}

/* --- the table --- */

/* The rules of the marks FL_COMPLEX. */
static void (*const rules[FLI_OPS])(env *g) = {
#define FL_COMPLEX(name, rule) [FLI_OP_##name] = complex_##rule,
#include "../ops.def"
};

/* --- the call --- */

static bool concerned(fl_runtime *rt, const fl_call *c, const fl_attrs *a) {
  for (int k = 0; k < c->n_in; k++)
    if (c->in[k].tensor) {
      if (c->in[k].tensor->rt != rt)
        return false;
      if (fli_is_complex(c->in[k].tensor->meta.dtype))
        return true;
    }
  for (int i = 0; i < c->op->info.n_params; i++) {
    const fl_param *p = &c->op->info.params[i];
    if (p->kind == FL_P_DTYPE && a->v[p->slot].i != FL_ATTR_NONE &&
        fli_is_complex((fl_dtype)a->v[p->slot].i))
      return true;
  }
  return false;
}

/* Dims count from the first one of the complex tensor. */
static fl_status complex_settle(const fl_call *c, fl_attrs *a) {
  int n = c->n_in && c->in[0].tensor ? c->in[0].tensor->meta.ndim : 0;
  for (int i = 0; i < c->op->info.n_params; i++) {
    const fl_param *p = &c->op->info.params[i];
    bool list = p->kind == FL_P_DIMS;
    int64_t *v = list ? a->list + a->v[p->slot].list.at : &a->v[p->slot].i;
    if (!list && p->kind != FL_P_DIM)
      continue;
    for (uint32_t k = 0; k < (list ? a->v[p->slot].list.n : 1); k++) {
      int64_t d = v[k] < 0 ? v[k] + n : v[k];
      if (v[k] == FL_ATTR_NONE)
        continue;
      if (n == 0 && c->n_in == 1 && (d == 0 || d == -1))
        d = 0;
      else if (d < 0 || d >= n)
        return fli_fail(FL_EARG,
                        "%s: there is no dim %lld in a complex tensor of %d "
                        "dims",
                        c->op->info.name,
                        (long long)(v[k] < 0 ? v[k] : v[k] + c->base), n);
      v[k] = d;
    }
  }
  return FL_OK;
}

/* The result overwrites in[0]. Refused where gradients are recorded: the tape
 * has no history of parts of elements. */
static fl_status overwrite(env *g, const fl_call *c) {
  fl_value x = g->in[0];
  if (!is_complex(x))
    return fli_fail(FL_EDTYPE,
                    "%s_: the result is complex and cannot be kept in a %s "
                    "tensor",
                    c->op->info.name, fl_dtype_name(fli_meta(x)->dtype));
  for (int k = 0; k < c->n_in; k++)
    if (g->e.rt->grad_enabled && c->in[k].tensor &&
        fli_wants_grad(c->in[k].tensor))
      return fli_fail(FL_EAUTOGRAD,
                      "%s_: complex tensors cannot be written in place where "
                      "gradients are recorded; do it inside no_grad",
                      c->op->info.name);
  bool grad = fl_grad_mode(g->e.rt, false);
  fl_value to = RUN(view_as_real, x);
  fl_value from = RUN(view_as_real, g->out[0]);
  if (g->e.status == FL_OK && !fli_same_shape(fli_meta(to), fli_meta(from)))
    g->e.status = fli_fail(
        FL_ESHAPE, "%s_: the result has shape %s and does not fit into %s",
        c->op->info.name,
        fli_shape_text(fli_meta(from)->ndim - 1, fli_meta(from)->shape),
        fli_shape_text(fli_meta(to)->ndim - 1, fli_meta(to)->shape));
  fli_run_inplace(&g->e, FLI_OP_assign, NULL, 2, (fl_value[]){to, from});
  fl_grad_mode(g->e.rt, grad);
  g->out[0] = x;
  return g->e.status;
}

static fl_status run_row(fl_runtime *rt, const fl_call *c,
                         const fl_attrs *asked, void (*run)(env *)) {
  fl_attrs attrs;
  FLI_TRY(fli_check_call(rt, c));
  fl_attrs_copy(&attrs, asked);
  FLI_TRY(complex_settle(c, &attrs));
  env g = {.op = c->op, .attrs = &attrs, .n_in = c->n_in, .in = c->in};
  fli_env_open(&g.e, rt, c->base, c->site);
  g.e.device = c->device;
  for (int k = 0; k < c->n_in; k++)
    if (c->in[k].tensor)
      g.e.device = fl_tensor_device(c->in[k].tensor);
  g.out[0] = fli_none();
  run(&g);
  fl_status s = g.e.status;
  if (s == FL_OK && c->inplace)
    s = overwrite(&g, c);
  if (s == FL_OK)
    c->out[0] = fl_tensor_retain(g.out[0].tensor);
  fli_env_close(&g.e);
  return s;
}

bool fli_mode_complex(fl_runtime *rt, const fl_call *c, fl_status *status) {
  const fl_attrs *asked = c->attrs ? c->attrs : &c->op->defaults;
  if (!concerned(rt, c, asked))
    return false;
  *status = run_row(rt, c, asked, rules[c->op->id]);
  return true;
}

void fli_complex_init(fl_runtime *rt) {
  for (int id = 0; id < FLI_OPS; id++)
    if (rules[id])
      rt->ops[id].modes |= 1u << FLI_MODE_COMPLEX;
}
