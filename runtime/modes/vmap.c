/* vmap: a function written for one sample runs on a batch of them. Inside it a
 * tensor stands for one sample: it has that sample's shape and no values, and
 * refers to the batched tensor, which has one more dim in front. A call on such
 * tensors runs twice: for shapes and history, as in meta mode, and on the
 * batched tensors, by the rule of the row's mark FL_VMAP. Rules are made of
 * rows, so gradients pass through, levels nest, and a gradient that is taken
 * inside is a gradient per sample. */
#include "../tape/tape.h"
#include "../call/call.h"
#include "../program.h"
#include "../rules/env.h"

#include <string.h>

struct fli_batch { /* an open level */
  uint64_t id;     /* later ones lie inside */
  int64_t size;
  struct fli_batch *outer;
};

typedef struct work {
  fl_runtime *rt;
  const fl_call *c;
  uint64_t level;
  int64_t size;
  int n_in, n_out;
  const fl_operand *in;
  fl_value *all;              /* the inputs: of all samples, or as they are */
  fl_tensor *one[FL_MAX_OUT]; /* the results for one sample */
  fl_value out[FL_MAX_OUT];   /* for all */
  fli_env e;
} work;

/* --- levels --- */

static const struct fli_batch *level_of(const fl_runtime *rt,
                                        const fl_tensor *t) {
  if (!t || !t->extra || !t->extra->all)
    return NULL;
  const struct fli_batch *b = rt->batch;
  while (b && b->id != t->extra->level)
    b = b->outer;
  return b;
}

fl_status fl_vmap_open(fl_runtime *rt, int64_t n) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  if (n < 1)
    return fli_fail(FL_EARG, "vmap: there must be a sample, not %lld",
                    (long long)n);
  if (rt->trace)
    return fli_fail(FL_EUNSUPPORTED, "vmap: not while a kernel is recorded");
  struct fli_batch *b = fli_malloc(rt, sizeof *b);
  if (!b)
    return FL_ENOMEM;
  *b = (struct fli_batch){++rt->next_id, n, rt->batch};
  rt->batch = b;
  fli_mode_set(rt, FLI_MODE_VMAP, true);
  return FL_OK;
}

/* Tensors of the level that are still held lose their batched tensors, whose
 * memory must not wait for the host's collector. The list begins with the
 * newest, and a release may change it. */
static void end_level(fl_runtime *rt, uint64_t level) {
  size_t n = 0;
  for (fl_tensor *t = rt->tensors; t && t->id > level; t = t->next)
    n += t->extra && t->extra->level == level;
  fl_tensor **all = n ? fli_malloc(rt, n * sizeof *all) : NULL;
  size_t k = 0;
  for (fl_tensor *t = rt->tensors; all && t && t->id > level; t = t->next)
    if (t->extra && t->extra->level == level)
      all[k++] = fli_extra_let_go(t);
  while (k)
    fl_tensor_release(all[--k]);
  fli_mfree(all);
}

void fl_vmap_close(fl_runtime *rt) {
  if (!rt)
    return;
  struct fli_batch *b = rt->batch;
  if (b) {
    rt->batch = b->outer;
    fli_mode_set(rt, FLI_MODE_VMAP, rt->batch != NULL);
    end_level(rt, b->id);
    fli_mfree(b);
  }
}

static fl_status need_level(fl_runtime *rt) {
  FLI_TRY(fli_check_owner(rt));
  return rt->batch ? FL_OK : fli_fail(FL_EARG, "vmap: none is open");
}

fl_status fl_vmap_in(fl_runtime *rt, fl_tensor *t, fl_tensor **one) {
  FLI_NEED(rt, "rt");
  FLI_NEED(t, "t");
  FLI_NEED(one, "one");
  FLI_TRY(need_level(rt));
  FLI_TRY(fli_check_tensors(__func__, "t", rt, 1, &t));
  if (t->meta.ndim == 0 || t->meta.shape[0] != rt->batch->size)
    return fli_fail(FL_ESHAPE, "vmap: %s has not %lld samples in its first dim",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    (long long)rt->batch->size);
  fl_meta m = {.dtype = t->meta.dtype, .ndim = t->meta.ndim - 1};
  memcpy(m.shape, t->meta.shape + 1, (size_t)m.ndim * sizeof *m.shape);
  FLI_TRY(fli_tensor_header(rt, one));
  fli_tensor_set_shape(*one, &m);
  fl_status s = fli_extra_stand(*one, t, rt->batch->id);
  if (s) {
    fl_tensor_release(*one);
    return s;
  }
  (*one)->requires_grad = fli_is_float(m.dtype) && fli_wants_grad(t);
  return FL_OK;
}

fl_status fl_vmap_out(fl_runtime *rt, fl_tensor *t, fl_tensor **all) {
  FLI_NEED(rt, "rt");
  FLI_NEED(t, "t");
  FLI_NEED(all, "all");
  FLI_TRY(need_level(rt));
  FLI_TRY(fli_check_tensors(__func__, "t", rt, 1, &t));
  if (level_of(rt, t) == rt->batch) {
    *all = fl_tensor_retain(t->extra->all);
    return FL_OK;
  }
  int64_t shape[FL_MAX_DIMS];
  if (t->meta.ndim == FL_MAX_DIMS)
    return fli_fail(FL_ESIZE,
                    "vmap: a result has %d dims, there is no room "
                    "for the samples'",
                    FL_MAX_DIMS);
  shape[0] = rt->batch->size; /* the same for every sample */
  memcpy(shape + 1, t->meta.shape, (size_t)t->meta.ndim * sizeof *shape);
  fl_attrs a = rt->ops[FLI_OP_expand].defaults;
  FLI_TRY(fl_attrs_list(&a, FL_ATTR_expand_shape, t->meta.ndim + 1, shape));
  fl_operand in = {.tensor = t};
  fl_call c = {.op = &rt->ops[FLI_OP_expand],
               .n_in = 1,
               .in = &in,
               .attrs = &a,
               .out = all};
  return fl_call_run(rt, &c);
}

/* --- tools of the rules --- */

static int ndim_of(const work *w, int k) { /* for one sample */
  return w->in[k].tensor ? w->in[k].tensor->meta.ndim : 0;
}

static bool is_batched(const work *w, int k) {
  const struct fli_batch *b = level_of(w->rt, w->in[k].tensor);
  return b && b->id == w->level;
}

/* Dims of size 1 behind the first, so that n others follow it. */
static fl_value vmap_align(work *w, int k, int n) {
  int64_t shape[FL_MAX_DIMS + 1];
  const fl_meta *m = fli_meta(w->all[k]);
  int have = m->ndim - 1;
  if (!is_batched(w, k) || have >= n)
    return w->all[k];
  if (n + 1 > FL_MAX_DIMS)
    return fli_env_fail(&w->e, FL_ESIZE,
                        "vmap: %s: %d dims and the samples' are too many",
                        w->c->op->info.name, n);
  shape[0] = w->size;
  for (int i = 0; i < n; i++)
    shape[i + 1] = i < n - have ? 1 : m->shape[i + 1 - (n - have)];
  return fli_v_reshape(&w->e, w->all[k], n + 1, shape);
}

/* With the dim of the samples, also if it is the same for all. */
static fl_value vmap_spread(work *w, int k) {
  int64_t shape[FL_MAX_DIMS + 1];
  const fl_meta *m = fli_meta(w->all[k]);
  if (is_batched(w, k) || !w->in[k].tensor)
    return w->all[k];
  if (m->ndim == FL_MAX_DIMS)
    return fli_env_fail(&w->e, FL_ESIZE, "vmap: %s: %d dims are too many",
                        w->c->op->info.name, m->ndim);
  shape[0] = w->size;
  memcpy(shape + 1, m->shape, (size_t)m->ndim * sizeof *shape);
  return fli_v_expand(&w->e, w->all[k], m->ndim + 1, shape);
}

static const fl_attrs *given_attrs(const work *w) {
  return w->c->attrs ? w->c->attrs : &w->c->op->defaults;
}

static void run_row(work *w, const fl_attrs *a, int n, const fl_value *in) {
  fli_run_op(&w->e, w->c->op, a, n, in, w->out);
}

/* --- rules --- */

static bool rule_elementwise(work *w) {
  int most = 0;
  for (int k = 0; k < w->n_in; k++)
    most = ndim_of(w, k) > most ? ndim_of(w, k) : most;
  for (int k = 0; k < w->n_in; k++)
    w->all[k] = vmap_align(w, k, most);
  run_row(w, given_attrs(w), w->n_in, w->all);
  return true;
}

static bool others_batched(const work *w) { /* than the first input */
  for (int k = 1; k < w->n_in; k++)
    if (is_batched(w, k))
      return true;
  return false;
}

/* Leading dims of the first input are free; the others are the same for all
 * samples. */
static bool rule_leading(work *w) {
  if (others_batched(w))
    return false;
  run_row(w, given_attrs(w), w->n_in, w->all);
  return true;
}

/* Positions of any shape in a table that all samples share. */
static bool rule_lookup(work *w) {
  if (is_batched(w, FL_IN_embedding_weight))
    return false;
  run_row(w, given_attrs(w), w->n_in, w->all);
  return true;
}

/* Attributes that name dims count one more; an empty list means all dims of a
 * sample. A 0-d sample counts as one of size 1. */
static bool rule_dims(work *w) {
  const fl_op_info *info = &w->c->op->info;
  const fl_attrs *given = given_attrs(w);
  fl_attrs a;
  int n = ndim_of(w, info->params[0].kind == FL_P_TENSOR ? 0 : w->n_in - 1);
  int room = n ? n : 1;
  fl_attrs_copy(&a, given); /* only what is used, since the tape keeps it */
  for (int k = 0; k < w->n_in; k++)
    if (w->in[k].tensor && ndim_of(w, k) != n)
      return false;
  for (int i = 0; i < info->n_params; i++)
    if (info->params[i].kind == FL_P_DIM &&
        given->v[info->params[i].slot].i == FL_ATTR_NONE)
      return false;
  for (int k = 0; k < w->n_in; k++) {
    w->all[k] = vmap_spread(w, k);
    if (w->in[k].tensor && n == 0)
      w->all[k] = fli_v_reshape(&w->e, w->all[k], 2, (int64_t[]){w->size, 1});
  }
  a.used = 0;
  for (int i = 0; i < info->n_params; i++) {
    const fl_param *p = &info->params[i];
    int64_t list[FL_MAX_LIST];
    int count;
    const int64_t *was;
    switch (p->kind) {
    case FL_P_DIM:
      a.v[p->slot].i += given->v[p->slot].i < 0 ? room + 1 : 1;
      break;
    case FL_P_DIMS:
      was = fl_attr_list(given, p->slot, &count);
      for (int j = 0; j < (count ? count : room); j++)
        list[j] = count ? was[j] + (was[j] < 0 ? room + 1 : 1) : j + 1;
      fli_set_list(&w->e, &a, p->slot, count ? count : room, list);
      break;
    case FL_P_INTS:
    case FL_P_SHAPE:
      was = fl_attr_list(given, p->slot, &count);
      fli_set_list(&w->e, &a, p->slot, count, was);
      break;
    default:
      break;
    }
  }
  run_row(w, &a, w->n_in, w->all);
  return true;
}

/* The shape for one sample, behind the dim of the samples. */
static int batched_shape(const work *w, int64_t *shape) {
  const fl_meta *m = &w->one[0]->meta;
  shape[0] = w->size;
  memcpy(shape + 1, m->shape, (size_t)m->ndim * sizeof *shape);
  return m->ndim + 1;
}

/* A view of the same elements in another shape. */
static bool rule_shape(work *w) {
  int64_t shape[FL_MAX_DIMS + 1];
  int n = batched_shape(w, shape);
  w->out[0] = fli_v_reshape(&w->e, w->all[0], n, shape);
  return true;
}

static bool rule_expand(work *w) {
  int64_t shape[FL_MAX_DIMS + 1];
  int n = batched_shape(w, shape);
  w->out[0] = fli_v_expand(&w->e, vmap_align(w, 0, n - 1), n, shape);
  return true;
}

static bool rule_permute(work *w) {
  int n;
  int64_t order[FL_MAX_DIMS + 1] = {0};
  const int64_t *was = fl_attr_list(given_attrs(w), FL_ATTR_permute_dims, &n);
  for (int i = 0; i < n; i++)
    order[i + 1] = was[i] + (was[i] < 0 ? n + 1 : 1);
  w->out[0] = fli_v_permute(&w->e, w->all[0], order);
  return true;
}

/* Both as matrices, with their leading dims aligned. */
static bool rule_matmul(work *w) {
  const fl_meta *a = fli_meta(w->all[FL_IN_matmul_a]),
                *b = fli_meta(w->all[FL_IN_matmul_b]);
  int na = ndim_of(w, FL_IN_matmul_a), nb = ndim_of(w, FL_IN_matmul_b);
  if (na == 1) {
    int64_t row[3] = {w->size, 1, a->shape[a->ndim - 1]};
    bool all = is_batched(w, FL_IN_matmul_a);
    w->all[FL_IN_matmul_a] =
        fli_v_reshape(&w->e, w->all[FL_IN_matmul_a], 2 + all, row + !all);
  }
  if (nb == 1) {
    int64_t column[3] = {w->size, b->shape[b->ndim - 1], 1};
    bool all = is_batched(w, FL_IN_matmul_b);
    w->all[FL_IN_matmul_b] =
        fli_v_reshape(&w->e, w->all[FL_IN_matmul_b], 2 + all, column + !all);
  }
  na = na < 2 ? 2 : na;
  nb = nb < 2 ? 2 : nb;
  w->all[FL_IN_matmul_a] = vmap_align(w, FL_IN_matmul_a, na > nb ? na : nb);
  w->all[FL_IN_matmul_b] = vmap_align(w, FL_IN_matmul_b, na > nb ? na : nb);
  run_row(w, NULL, 2, w->all);
  return true;
}

static fl_value matmul_of(work *w, fl_value a, fl_value b) {
  return fli_run(&w->e, FLI_OP_matmul, NULL, 2, (fl_value[]){a, b});
}

/* With shared weights the samples are more lines. With a weight for each
 * sample: a batched product, a sum and the activation. */
static bool rule_linear(work *w) {
  fli_env *e = &w->e;
  int act = (int)given_attrs(w)->v[FL_ATTR_linear_act].i,
      n = ndim_of(w, FL_IN_linear_x);
  bool bias = w->in[FL_IN_linear_bias].tensor != NULL;
  if (!is_batched(w, FL_IN_linear_weight) &&
      !is_batched(w, FL_IN_linear_bias)) {
    run_row(w, given_attrs(w), w->n_in, w->all);
    return true;
  }
  /* (B, lines, in) x (B, in, out) */
  fl_value x = w->all[FL_IN_linear_x],
           weight = fli_v_transpose(e, w->all[FL_IN_linear_weight], -2, -1);
  const fl_meta *m = fli_meta(x);
  bool all = is_batched(w, FL_IN_linear_x);
  int64_t in = m->shape[m->ndim - 1];
  int64_t lines = 1;
  for (int i = all; i < m->ndim - 1; i++)
    lines *= m->shape[i];
  x = fli_v_reshape(e, x, 2 + all, (int64_t[]){w->size, lines, in} + !all);
  fl_value y = matmul_of(w, x, weight);
  if (bias) {
    fl_value b = w->all[FL_IN_linear_bias];
    if (is_batched(w, FL_IN_linear_bias))
      b = fli_v_unsqueeze(e, b, 1);
    y = fli_run(e, FLI_OP_add, NULL, 2, (fl_value[]){y, b});
  }
  int64_t shape[FL_MAX_DIMS + 1] = {w->size};
  const fl_meta *one = &w->one[0]->meta;
  memcpy(shape + 1, one->shape, (size_t)one->ndim * sizeof *shape);
  if (e->status == FL_OK)
    y = fli_v_reshape(e, y, n + 1, shape);
  w->out[0] = y;
  w->out[FL_OUT_linear_pre] =
      fli_v_zeros(e, fli_meta(y)->dtype, 2, (int64_t[]){w->size, 0}, e->device);
  if (act > 0 && e->status == FL_OK) {
    fl_attrs a;
    int op = fli_linear_act(e, act, &a);
    if (w->one[FL_OUT_linear_pre]
            ->numel) /* else the activation's gradient needs only y */
      w->out[FL_OUT_linear_pre] = y;
    w->out[0] = fli_run(e, op, &a, 1, &y);
  }
  return true;
}

/* One sample after the other, stacked: right for every row. */
static void loop_samples(work *w) {
  fli_env *e = &w->e;
  int64_t n = w->size;
  size_t room = (size_t)n * (size_t)w->n_out;
  fl_value *in = fli_malloc(w->rt, ((size_t)w->n_in + room) * sizeof *in);
  if (!in) {
    e->status = FL_ENOMEM;
    return;
  }
  fl_value *made = in + w->n_in;
  for (int64_t b = 0; b < n && e->status == FL_OK; b++) {
    fl_value out[FL_MAX_OUT];
    for (int k = 0; k < w->n_in; k++) {
      in[k] = w->all[k];
      if (!is_batched(w, k))
        continue;
      fl_attrs a = fli_attrs(e, FLI_OP_select);
      a.v[FL_ATTR_select_dim].i = 0;
      a.v[FL_ATTR_select_index].i = b;
      in[k] = fli_run(e, FLI_OP_select, &a, 1, &w->all[k]);
    }
    if (e->status == FL_OK)
      fli_run_op(e, w->c->op, w->c->attrs, w->n_in, in, out);
    for (int k = 0; k < w->n_out && e->status == FL_OK; k++)
      made[k * n + b] = out[k];
  }
  for (int k = 0; k < w->n_out && e->status == FL_OK; k++)
    w->out[k] = fli_run(e, FLI_OP_stack, NULL, (int)n, made + k * n);
  fli_mfree(in);
}

/* --- the rule of a row --- */

/* The rules of the marks FL_VMAP; each returns false where it does not apply
 * and the samples must run one after the other. */
static bool (*const rules[FLI_OPS])(work *) = {
#define FL_VMAP(name, rule) [FLI_OP_##name] = rule_##rule,
#include "../ops.def"
};

static void run_rule(work *w) {
  const fl_op *op = w->c->op;
  bool (*rule)(work *) = op->id < FLI_OPS ? rules[op->id] : NULL;
  if (op->family < FLI_STRUCTURED || (op->expr && !op->program->reduce))
    rule = rule_elementwise;
  if (!(rule && rule(w)) && w->e.status == FL_OK)
    loop_samples(w);
}

/* --- a call --- */

/* The shapes, dtypes and history of one sample. */
static fl_status run_one(work *w, const fl_call *c) {
  fl_runtime *rt = w->rt;
  fl_call one = *c;
  struct fli_batch *open = rt->batch;
  bool meta = fl_meta_mode(rt, true), anomaly = fl_anomaly_mode(rt, false);
  bool was = rt->one;
  one.out = w->one;
  rt->batch = NULL;
  fli_mode_set(rt, FLI_MODE_VMAP, false);
  rt->one = true;
  fl_status s = fl_call_run(rt, &one);
  rt->one = was;
  rt->batch = open;
  fli_mode_set(rt, FLI_MODE_VMAP, open != NULL);
  fl_anomaly_mode(rt, anomaly);
  fl_meta_mode(rt, meta);
  return s;
}

/* Attaches a batched result, in the dtype and shape of the one for a sample. */
static fl_status vmap_settle(work *w, int k) {
  const fl_meta *m = &w->one[k]->meta;
  int64_t shape[FL_MAX_DIMS + 1] = {w->size};
  memcpy(shape + 1, m->shape, (size_t)m->ndim * sizeof *shape);
  fl_value v = fli_v_cast(&w->e, w->out[k], m->dtype);
  if (w->e.status == FL_OK)
    v = fli_v_reshape(&w->e, v, m->ndim + 1, shape);
  FLI_TRY(w->e.status);
  FLI_TRY(fli_extra_stand(w->one[k], v.tensor, w->level));
  fl_node *n = NULL; /* some results may have none, but be saved */
  for (int i = 0; i < w->n_out && !n; i++)
    n = w->one[i]->node;
  for (int i = 0; n && i < n->n_saved; i++) {
    fl_tensor *t = n->saved[i].value.tensor;
    if (n->saved[i].slot == -1 - k && t && !t->extra)
      FLI_TRY(fli_extra_stand(t, v.tensor, w->level));
  }
  return FL_OK;
}

/* Random numbers are drawn once, for all samples, so that the history and the
 * values use the same ones. */
static void vmap_draw(const work *w, fl_operand *in) {
  fl_generator *g = w->c->generator ? w->c->generator : &w->rt->generator;
  const fl_op_info *info = &w->c->op->info;
  bool drew = false;
  for (int i = 0; info->random && i < info->n_params; i++) {
    const fl_param *p = &info->params[i];
    if (p->kind != FL_P_RNG || in[p->slot].tensor ||
        in[p->slot].dtype != FL_NODTYPE)
      continue;
    in[p->slot].dtype = FL_I64;
    in[p->slot].i = (int64_t)(drew ? g->offset : g->seed);
    drew = true;
  }
  /* enough for the largest input at one counter a number */
  int64_t most = 1;
  for (int k = 0; k < w->n_in; k++)
    if (in[k].tensor && in[k].tensor->numel > most)
      most = in[k].tensor->numel;
  if (drew)
    g->offset += (uint64_t)(most * w->size);
}

static fl_status run_level(work *w, fl_operand *in, fl_value *all) {
  fl_call c = *w->c;
  memcpy(in, c.in, (size_t)c.n_in * sizeof *in);
  vmap_draw(w, in);
  c.in = in;
  w->in = in;
  w->all = all;
  for (int k = 0; k < c.n_in; k++) {
    all[k] = is_batched(w, k) ? fli_given(in[k].tensor->extra->all) : in[k];
    if (all[k].tensor)
      c.device = fl_tensor_device(all[k].tensor);
  }
  FLI_TRY(run_one(w, &c));
  fli_env_open(&w->e, w->rt, c.base, c.site);
  w->e.device = c.device;
  for (int k = 0; k < w->n_out; k++)
    w->out[k] = fli_none();
  run_rule(w);
  fl_status s = w->e.status;
  for (int k = 0; k < w->n_out && s == FL_OK; k++)
    if (w->out[k].tensor)
      s = vmap_settle(w, k);
  fli_env_close(&w->e);
  for (int k = 0; k < w->n_out; k++)
    if (s)
      fl_tensor_release(w->one[k]);
    else
      w->c->out[k] = w->one[k];
  return s;
}

bool fli_mode_vmap(fl_runtime *rt, const fl_call *c, fl_status *status) {
  const struct fli_batch *level = NULL;
  for (int k = 0; k < c->n_in; k++) {
    const struct fli_batch *b = level_of(rt, c->in[k].tensor);
    if (b && (!level || b->id > level->id))
      level = b;
  }
  if (!level || c->op->family == FLI_COMPOSE)
    return false;
  const char *name = c->op->info.name;
  if (c->inplace || c->op->info.n_out == 0) {
    *status = fli_fail(FL_EUNSUPPORTED,
                       "%s%s: inside vmap nothing is written in place: several "
                       "samples would be written at once",
                       name, c->inplace ? "_" : "");
    return true;
  }
  work w = {.rt = rt,
            .c = c,
            .level = level->id,
            .size = level->size,
            .n_in = c->n_in,
            .n_out = c->op->info.n_out};
  fl_operand *room = fli_malloc(rt, 2 * (size_t)c->n_in * sizeof *room);
  *status = room ? run_level(&w, room, room + c->n_in) : FL_ENOMEM;
  fli_mfree(room);
  return true;
}
