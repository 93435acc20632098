/* Launches of the optimizer steps: tables of tensors, as many launches as they
 * need, and learning rates that may be on the device. */
#include "cuda.h"
#include "optim.h"

#include <math.h>
#include <string.h>

/* Fills the tables of launches and runs them. */
typedef struct stepping {
  const fl_launch *l;
  optim_args a;
  int rule, groups;
  int64_t tensors;
  const fl_view *xs; /* groups of as many tensors */
  fl_dtype type;     /* computed in */
  flc_spec spec;     /* of the tensors in the table */
} stepping;

static const int8_t groups_of[] = {
    [OPTIM_SGD] = 2,      [OPTIM_MOMENTUM] = 3,
    [OPTIM_ADAM] = 4,     [OPTIM_AMSGRAD] = 5,
    [OPTIM_RMSPROP] = 3,  [OPTIM_RMSPROP_MOMENTUM] = 4,
    [OPTIM_CENTERED] = 4, [OPTIM_CENTERED_MOMENTUM] = 5,
    [OPTIM_ADAGRAD] = 3,  [OPTIM_LION] = 3,
    [OPTIM_LERP] = 2,     [OPTIM_ASSIGN] = 2,
    [OPTIM_SCALE] = 1};

static bool written(int group) {
  return group != 1; /* all but the gradient */
}

static fl_status flush(stepping *c) {
  optim_args *a = &c->a;
  flc_grid g = {.x = a->first[a->count], .block = OPTIM_THREADS, .early = true};
  fl_status s = g.x ? FLC_RUN(c->l, c->spec, g, *a) : FL_OK;
  if (a->parts)
    a->parts += g.x;
  a->count = 0;
  return s;
}

/* Puts a tensor with its groups' memory `at` into the table. */
static fl_status optim_add(stepping *c, const flc_spec *spec, int64_t n,
                           void *const *at, const int *dtypes) {
  optim_args *a = &c->a;
  bool full =
      a->count == OPTIM_TENSORS || (a->count + 1) * c->groups > OPTIM_SLOTS;
  bool other = a->count > 0 &&
               (memcmp(c->spec.t, spec->t, sizeof spec->t) ||
                memcmp(a->dtype, dtypes, (size_t)c->groups * sizeof *dtypes));
  fl_status s = full || other ? flush(c) : FL_OK;
  c->spec = *spec;
  memcpy(a->dtype, dtypes, (size_t)c->groups * sizeof *dtypes);
  memcpy(a->at + a->count * c->groups, at, (size_t)c->groups * sizeof *at);
  a->n[a->count] = n;
  a->first[a->count + 1] =
      a->first[a->count] + (unsigned)fl_ceil_div(n, OPTIM_CHUNK);
  a->count++;
  return s;
}

/* The kernel for these dtypes: exactly those, if it is an ordinary mix. */
static flc_spec spec_of(const stepping *c, const int *d) {
  bool wide = c->type == FL_F64, exact = true;
  int state = c->groups > 2 ? d[2] : d[0];
  for (int g = 0; g < c->groups; g++)
    exact &= (d[g] == FL_F64) == wide && (g < 3 || d[g] == state);
  int gradient = c->groups > 1 ? d[1] : d[0];
  if (!exact)
    return FLC_SPEC("optim", "step", c->rule, c->type, -1, -1, -1);
  return FLC_SPEC("optim", "step", c->rule, c->type, d[0], gradient, state);
}

static const fl_view *view_of(const stepping *c, int64_t i, int g) {
  return &c->xs[g * c->tensors + i];
}

/* Whether tensor i and its groups have one order of elements without gaps. */
static bool optim_dense(const stepping *c, int64_t i) {
  const fl_view *first = view_of(c, i, 0);
  bool same = fl_dense(first);
  for (int g = 1; g < c->groups && same; g++)
    same = fl_same_strides(first, view_of(c, i, g));
  return same;
}

/* Tensor i; strided ones by way of scratch. */
static fl_status optim_take(stepping *c, int64_t i) {
  void *at[OPTIM_GROUPS];
  int dtypes[OPTIM_GROUPS] = {0};
  int64_t n = fl_view_numel(view_of(c, i, 0));
  bool dense = optim_dense(c, i);
  for (int g = 0; g < c->groups && n > 0; g++) {
    const fl_view *v = view_of(c, i, g);
    dtypes[g] = v->dtype;
    at[g] = dense ? v->data : (void *)(uintptr_t)flc_input(c->l, v, v->dtype);
    if (!at[g])
      return FL_ENOMEM;
  }
  if (n == 0)
    return FL_OK;
  flc_spec spec = spec_of(c, dtypes);
  fl_status s = optim_add(c, &spec, n, at, dtypes);
  bool back = false;
  for (int g = 0; g < c->groups; g++)
    back |= at[g] != view_of(c, i, g)->data;
  if (!back || s != FL_OK)
    return s;
  s = flush(c);
  for (int g = 0; g < c->groups && s == FL_OK; g++) {
    const fl_view *to = view_of(c, i, g);
    fl_view from = *to;
    int64_t stride = 1;
    from.data = at[g];
    for (int d = to->ndim - 1; d >= 0; d--) {
      from.stride[d] = stride;
      stride *= to->shape[d];
    }
    if (written(g) && at[g] != to->data)
      s = flc_move(c->l, to, &from);
  }
  return s;
}

/* A rule over in[from] ... */
static fl_status optim_step(const fl_launch *l, int rule, stepping *c,
                            int from) {
  c->l = l;
  c->rule = rule;
  c->groups = groups_of[rule];
  c->xs = l->in + from;
  c->tensors = (l->n_in - from) / c->groups;
  c->type = FL_F32;
  c->a.fault = flc_fault_of(l);
  for (int i = from; i < l->n_in; i++)
    if (l->in[i].dtype == FL_F64)
      c->type = FL_F64;
  fl_status s = FL_OK;
  for (int64_t i = 0; i < c->tensors && s == FL_OK; i++)
    s = optim_take(c, i);
  return s == FL_OK ? flush(c) : s;
}

_Static_assert(FL_IN_sgd_step_lr == FL_IN_adam_step_lr &&
                   FL_IN_sgd_step_lr == FL_IN_rmsprop_step_lr &&
                   FL_IN_sgd_step_lr == FL_IN_adagrad_step_lr &&
                   FL_IN_sgd_step_lr == FL_IN_lion_step_lr &&
                   FL_IN_sgd_step_lr == FL_IN_lerp_step_weight &&
                   FL_IN_sgd_step_lr == FL_IN_scale_step_scale,
               "one function for seven rows");
_Static_assert(FL_IN_sgd_step_xs == FL_IN_rmsprop_step_xs &&
                   FL_IN_sgd_step_xs == FL_IN_adagrad_step_xs &&
                   FL_IN_sgd_step_xs == FL_IN_lion_step_xs &&
                   FL_IN_sgd_step_xs == FL_IN_lerp_step_xs &&
                   FL_IN_sgd_step_xs == FL_IN_scale_step_xs,
               "one function for six rows");

fl_status flc_optim_now(const fl_launch *l, const fl_view *lr, const fl_view *t,
                        double b1, double b2, optim_now *now,
                        const optim_now **later) {
  bool adam = t != NULL;
  if (flc_is_number(lr) && (!adam || flc_is_number(t))) {
    now->lr = flc_number(lr);
    if (adam) {
      double n = flc_number(t);
      now->rate = now->lr / (1 - pow(b1, n));
      now->root = 1 / sqrt(1 - pow(b2, n));
    }
    return FL_OK;
  }
  optim_prepare p = {.b1 = b1, .b2 = b2};
  p.to = fl_scratch_get(l, sizeof *p.to);
  if (!p.to)
    return FL_ENOMEM;
  if (flc_is_number(lr))
    p.lr_value = flc_number(lr);
  else {
    p.lr = lr->data;
    p.lr_dtype = lr->dtype;
  }
  if (adam && flc_is_number(t))
    p.step_value = flc_number(t);
  else if (adam) {
    p.step = t->data;
    p.step_dtype = t->dtype;
  }
  *later = p.to;
  flc_spec spec = FLC_SPEC("optim", "prepare", 0);
  flc_grid one = {.x = 1, .block = 1, .early = true};
  return FLC_RUN(l, spec, one, p);
}

/* `t` as there. */
static fl_status optim_settle(const fl_launch *l, stepping *c,
                              const fl_view *t) {
  const optim_recipe *r = &c->a.recipe;
  return flc_optim_now(l, &l->in[FL_IN_sgd_step_lr], t, r->b1, r->b2, &c->a.now,
                       &c->a.later);
}

static fl_status settled(const fl_launch *l, int rule, stepping *c) {
  fl_status s = optim_settle(l, c, NULL);
  return s == FL_OK ? optim_step(l, rule, c, FL_IN_sgd_step_xs) : s;
}

/* --- the rules; attribute 0 is always `moments`, groups of state --- */

static bool optim_flag(const fl_launch *l, int k) {
  return l->attrs->v[k].i != 0;
}

static double optim_real(const fl_launch *l, int k) {
  return l->attrs->v[k].f;
}

FLC_KERNEL(sgd_step) {
  stepping c = {
      .a.recipe = {.momentum = optim_real(l, FL_ATTR_sgd_step_momentum),
                   .damp = 1 - optim_real(l, FL_ATTR_sgd_step_dampening),
                   .nesterov = optim_flag(l, FL_ATTR_sgd_step_nesterov),
                   .decay = optim_real(l, FL_ATTR_sgd_step_weight_decay),
                   .first = optim_flag(l, FL_ATTR_sgd_step_first),
                   .maximize = optim_flag(l, FL_ATTR_sgd_step_maximize)}};
  return settled(l,
                 optim_real(l, FL_ATTR_sgd_step_momentum) != 0 ? OPTIM_MOMENTUM
                                                               : OPTIM_SGD,
                 &c);
}

FLC_KERNEL(adam_step) {
  stepping c = {
      .a.recipe = {.b1 = optim_real(l, FL_ATTR_adam_step_beta1),
                   .b2 = optim_real(l, FL_ATTR_adam_step_beta2),
                   .eps = optim_real(l, FL_ATTR_adam_step_eps),
                   .decay = optim_real(l, FL_ATTR_adam_step_weight_decay),
                   .decoupled = optim_flag(l, FL_ATTR_adam_step_decoupled),
                   .maximize = optim_flag(l, FL_ATTR_adam_step_maximize)}};
  fl_status s = optim_settle(l, &c, &l->in[FL_IN_adam_step_step]);
  return s == FL_OK ? optim_step(l,
                                 optim_flag(l, FL_ATTR_adam_step_amsgrad)
                                     ? OPTIM_AMSGRAD
                                     : OPTIM_ADAM,
                                 &c, FL_IN_adam_step_xs)
                    : s;
}

FLC_KERNEL(rmsprop_step) {
  stepping c = {
      .a.recipe = {.b1 = optim_real(l, FL_ATTR_rmsprop_step_alpha),
                   .eps = optim_real(l, FL_ATTR_rmsprop_step_eps),
                   .decay = optim_real(l, FL_ATTR_rmsprop_step_weight_decay),
                   .momentum = optim_real(l, FL_ATTR_rmsprop_step_momentum)}};
  bool moving = optim_real(l, FL_ATTR_rmsprop_step_momentum) != 0;
  int centered = moving ? OPTIM_CENTERED_MOMENTUM : OPTIM_CENTERED;
  int plain = moving ? OPTIM_RMSPROP_MOMENTUM : OPTIM_RMSPROP;
  return settled(
      l, optim_flag(l, FL_ATTR_rmsprop_step_centered) ? centered : plain, &c);
}

FLC_KERNEL(adagrad_step) {
  stepping c = {
      .a.recipe = {.eps = optim_real(l, FL_ATTR_adagrad_step_eps),
                   .decay = optim_real(l, FL_ATTR_adagrad_step_weight_decay)}};
  return settled(l, OPTIM_ADAGRAD, &c);
}

FLC_KERNEL(lion_step) {
  stepping c = {
      .a.recipe = {.b1 = optim_real(l, FL_ATTR_lion_step_beta1),
                   .b2 = optim_real(l, FL_ATTR_lion_step_beta2),
                   .decay = optim_real(l, FL_ATTR_lion_step_weight_decay)}};
  return settled(l, OPTIM_LION, &c);
}

FLC_KERNEL(lerp_step) {
  stepping c = {0};
  return settled(l, OPTIM_LERP, &c);
}

FLC_KERNEL(assign_step) {
  stepping c = {0};
  return optim_step(l, OPTIM_ASSIGN, &c, FL_IN_assign_step_xs);
}

FLC_KERNEL(scale_step) {
  stepping c = {0};
  if (flc_is_number(&l->in[FL_IN_scale_step_scale]) &&
      flc_number(&l->in[FL_IN_scale_step_scale]) == 1)
    return FL_OK;
  return settled(l, OPTIM_SCALE, &c);
}

/* --- norm over all tensors --- */

static int kind_of(double p) {
  return p == 0          ? OPTIM_COUNT
         : p == 1        ? OPTIM_SUM
         : p == 2        ? OPTIM_SQUARES
         : p == INFINITY ? OPTIM_MOST
                         : OPTIM_ANY;
}

/* One sum in double for each chunk, then their sum. */
FLC_KERNEL(global_norm) {
  const fl_view *y = &l->out[0];
  stepping c = {
      .l = l, .groups = 1, .a.p = l->attrs->v[FL_ATTR_global_norm_p].f};
  int kind = kind_of(c.a.p);
  int64_t blocks = 0;
  for (int i = 0; i < l->n_in; i++)
    blocks += fl_ceil_div(fl_view_numel(&l->in[i]), OPTIM_CHUNK);
  optim_finish f = {.n = blocks, .p = c.a.p, .y = y->data, .dtype = y->dtype};
  c.a.parts = fl_scratch_get(l, (size_t)(blocks + 1) * sizeof(double));
  f.parts = c.a.parts;
  if (!f.parts)
    return FL_ENOMEM;
  fl_status s = FL_OK;
  for (int i = 0; i < l->n_in && s == FL_OK; i++) {
    const fl_view *x = &l->in[i];
    int64_t n = fl_view_numel(x);
    void *at = !n            ? NULL
               : fl_dense(x) ? x->data
                             : (void *)(uintptr_t)flc_input(l, x, x->dtype);
    flc_spec spec = FLC_SPEC("optim", "norm", kind, x->dtype);
    if (n > 0)
      s = at ? optim_add(&c, &spec, n, &at, (int[]){(int)x->dtype}) : FL_ENOMEM;
  }
  if (s == FL_OK)
    s = flush(&c);
  flc_spec spec = FLC_SPEC("optim", "finish", kind);
  flc_grid one = {.x = 1, .block = blocks > 64 ? 1024 : 64, .early = true};
  return s == FL_OK ? FLC_RUN(l, spec, one, f) : s;
}

static void optim_visit(flc_visitor *v, flc_spec s, bool quick) {
  v->spec(v, &s, quick);
}

/* The mixes of dtypes of parameters, gradients and state that trainers use. */
void flc_visit_optim(flc_visitor *v) {
  static const int mixes[][4] = {
      {FL_F32, FL_F32, FL_F32, FL_F32},    {FL_F64, FL_F64, FL_F64, FL_F64},
      {FL_F32, FL_BF16, FL_BF16, FL_BF16}, {FL_F32, FL_BF16, FL_BF16, FL_F32},
      {FL_F32, FL_F32, FL_BF16, FL_F32},   {FL_F32, FL_F16, FL_F16, FL_F16},
      {FL_F32, FL_F16, FL_F16, FL_F32},    {FL_F32, -1, -1, -1}};
  for (int r = OPTIM_SGD; r <= OPTIM_SCALE; r++)
    for (int i = 0; i < 8; i++) {
      const int *m = mixes[i];
      bool few = groups_of[r] < 3 && m[3] != m[0] && m[3] != m[1];
      if (!few)
        optim_visit(v, FLC_SPEC("optim", "step", r, m[0], m[1], m[2], m[3]),
                    i == 0 && r == OPTIM_ADAM);
    }
  FL_EACH_DTYPE(d, fl_dtype_is_low) /* weights, for autocast */
  optim_visit(v, FLC_SPEC("optim", "step", OPTIM_ASSIGN, FL_F32, d, FL_F32, d),
              d == FL_BF16);
  for (int k = OPTIM_COUNT; k <= OPTIM_ANY; k++) {
    FL_EACH_DTYPE(d, fl_dtype_is_float)
    optim_visit(v, FLC_SPEC("optim", "norm", k, d),
                k == OPTIM_SQUARES && d == FL_F32);
    optim_visit(v, FLC_SPEC("optim", "finish", k), k == OPTIM_SQUARES);
  }
  optim_visit(v, FLC_SPEC("optim", "prepare", 0), true);
}
