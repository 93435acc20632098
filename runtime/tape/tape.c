/* The tape: nodes and how calls become nodes, histories of views and of tensors
 * written in place, hooks. The backward pass itself is backward.c.
 *
 * Writing through views. A view remembers its base. An in-place call on a view
 * replaces the history of the *base* by one REGION node: outside the region the
 * gradient passes to the base's old history, inside it goes through the call.
 * The base counts such replacements (rebases); a view that has seen fewer
 * re-derives its own node, as_strided of the base, when it is asked for it. */
#include "../memory/stream.h"
#include "tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- nodes --- */

struct fli_tape {
  fl_node *dying; /* nodes whose release is due */
  bool releasing;
};

fl_status fli_tape_open(fl_runtime *rt) {
  rt->tape = fli_malloc(rt, sizeof *rt->tape);
  if (!rt->tape)
    return FL_ENOMEM;
  memset(rt->tape, 0, sizeof *rt->tape);
  return FL_OK;
}

void fli_tape_close(fl_runtime *rt) {
  fli_mfree(rt->tape);
  rt->tape = NULL;
}

static size_t attrs_bytes(const fl_attrs *a) {
  return a ? sizeof *a - (FL_MAX_LIST - a->used) * sizeof a->list[0] : 0;
}

fl_status fli_node_new(fl_runtime *rt, fli_node_kind kind, const fl_op *op,
                       int n_in, int n_out, int n_saved, const fl_attrs *attrs,
                       fl_node **out) {
  size_t head = (sizeof(fl_node) + 15) & ~(size_t)15;
  size_t ab = (attrs_bytes(attrs) + 15) & ~(size_t)15;
  size_t bytes = head + ab + (size_t)n_in * sizeof(fli_edge) +
                 (size_t)n_saved * sizeof(fli_saved) +
                 (size_t)n_out * sizeof(fl_tensor *) +
                 (size_t)(n_in + n_out) * sizeof(fl_meta);
  char *p = fli_small_new(rt, bytes);
  if (!p)
    return FL_ENOMEM;
  fl_node *n = (fl_node *)p;
  memset(n, 0, sizeof *n);
  n->part = *fli_part(rt);
  p += head;
  if (attrs) {
    n->attrs = (fl_attrs *)p;
    memcpy(n->attrs, attrs, attrs_bytes(attrs));
  }
  p += ab;
  n->edges = (fli_edge *)p;
  p += (size_t)n_in * sizeof(fli_edge);
  n->saved = (fli_saved *)p;
  p += (size_t)n_saved * sizeof(fli_saved);
  n->grads = (fl_tensor **)p;
  p += (size_t)n_out * sizeof(fl_tensor *);
  n->in_meta = (fl_meta *)p;
  n->out_meta = n->in_meta + n_in;
  memset(n->edges, 0, (size_t)n_in * sizeof(fli_edge));
  memset(n->grads, 0, (size_t)n_out * sizeof(fl_tensor *));
  n->rc = 1;
  n->kind = kind;
  n->op = op;
  n->n_in = n_in;
  n->n_out = n_out;
  n->bytes = bytes;
  n->seq = rt->node_seq += 2; /* room for one between: see rederive */
  *out = n;
  return FL_OK;
}

void fli_node_forget(fl_runtime *rt, fl_node *n) {
  int n_saved = n->n_saved;
  n->n_saved = 0;
  n->released |= n_saved > 0 || n->kind == FLI_NODE_CUSTOM;
  if (n->kind == FLI_NODE_CUSTOM && n->key && rt->tape_host.forget)
    rt->tape_host.forget(rt->tape_host.context, n->key);
  if (n->kind == FLI_NODE_CUSTOM)
    n->key = 0;
  for (int i = 0; i < n_saved; i++)
    fl_tensor_release(n->saved[i].value.tensor);
  if (n->inner)
    fli_node_forget(rt, n->inner);
}

static void destroy(fl_runtime *rt, fl_node *n) {
  fli_node_forget(rt, n);
  fli_hooks_drop(rt, &n->hooks);
  fli_node_drop_grads(n);
  for (int k = 0; k < n->n_in; k++) {
    if (n->edges[k].node)
      fli_node_release(rt, n->edges[k].node);
    fl_tensor_release(n->edges[k].leaf);
  }
  if (n->inner)
    fli_node_release(rt, n->inner);
  fli_mfree(n->region);
  fli_mfree((void *)(uintptr_t)n->name);
  fli_small_free(rt, n, n->bytes);
}

/* Releases go through a list: a chain of a million nodes must not recurse. */
void fli_node_release(fl_runtime *rt, fl_node *n) {
  if (--n->rc)
    return;
  struct fli_tape *tape = rt->tape;
  n->next_dying = tape->dying;
  tape->dying = n;
  if (tape->releasing)
    return;
  tape->releasing = true;
  while (tape->dying) {
    fl_node *next = tape->dying;
    tape->dying = next->next_dying;
    destroy(rt, next);
  }
  tape->releasing = false;
}

/* A tensor with retain_grad is freed: its node drops the hook. */
void fli_node_unretain(fl_tensor *t) {
  for (fli_hook **h = &t->node->hooks; *h;) {
    fli_hook *dead = *h;
    if (dead->keep != t) {
      h = &dead->next;
      continue;
    }
    *h = dead->next;
    fli_mfree(dead);
  }
}

/* --- histories --- */

/* What retain_grad asked for is the gradient of t as it is now. */
static void move_retain(fl_tensor *t, fl_node *to) {
  if (!t->extra || !t->extra->retain || !t->node)
    return;
  fli_hook **h = &t->node->hooks, **end = &to->hooks;
  while (*h && (*h)->keep != t)
    h = &(*h)->next;
  if (!*h)
    return;
  fli_hook *moved = *h;
  *h = moved->next;
  while (*end)
    end = &(*end)->next;
  moved->next = NULL;
  moved->out = 0;
  *end = moved;
}

/* t's history becomes n, which it takes over. */
static void set_history(fl_tensor *t, fl_node *n) {
  move_retain(t, n);
  if (t->node)
    fli_node_release(t->rt, t->node);
  t->node = n;
  t->node_out = 0;
}

static fl_status rederive(fl_tensor *t) {
  fl_runtime *rt = t->rt;
  fl_tensor *base = t->base;
  fl_attrs a = rt->ops[FLI_OP_as_strided].defaults;
  fl_node *n;
  if (t->meta.dtype != base->meta.dtype)
    return fli_fail(FL_EAUTOGRAD,
                    "a tensor was written in place after this "
                    "view of it as %s was made; make it again",
                    fl_dtype_name(t->meta.dtype));
  FLI_TRY(
      fl_attrs_list(&a, FL_ATTR_as_strided_size, t->meta.ndim, t->meta.shape));
  FLI_TRY(
      fl_attrs_list(&a, FL_ATTR_as_strided_stride, t->meta.ndim, t->stride));
  a.v[FL_ATTR_as_strided_offset].i = t->offset - base->offset;
  FLI_TRY(fli_node_new(rt, FLI_NODE_OP, &rt->ops[FLI_OP_as_strided], 1, 1, 0,
                       &a, &n));
  n->seq = base->node->seq + 1; /* may be newer than a node that leads here */
  n->site = base->node->site;
  n->device = fl_tensor_device(t);
  n->stream = fli_stream_now(rt, n->device);
  n->in_meta[0] = base->meta;
  n->out_meta[0] = t->meta;
  fli_edge_to(base, &n->edges[0]);
  set_history(t, n);
  t->seen = base->rebases;
  return FL_OK;
}

fl_status fli_node_of(fl_tensor *t, fl_node **n) {
  if (t->is_view && t->seen != t->base->rebases && t->base->node)
    FLI_TRY(rederive(t));
  *n = t->node;
  return FL_OK;
}

/* Holds what it points to. A failure to re-derive leaves an empty edge and is
 * noticed by the caller through fli_node_of. */
void fli_edge_to(fl_tensor *t, fli_edge *e) {
  fl_node *n;
  e->node = NULL;
  e->leaf = NULL;
  e->out = 0;
  if (fli_node_of(t, &n))
    return;
  if (n) {
    n->rc++;
    e->node = n;
    e->out = t->node_out;
  } else if (t->requires_grad)
    e->leaf = fl_tensor_retain(fli_stand_in(t));
}

static void copy_meta(fl_meta *to, const fl_meta *from) {
  to->dtype = from->dtype;
  to->ndim = from->ndim;
  for (int i = 0; i < from->ndim; i++)
    to->shape[i] = from->shape[i];
}

/* --- recording --- */

static inline bool has_gradient(const fl_tensor *t) {
  return fli_is_float(t->meta.dtype) || fli_is_complex(t->meta.dtype);
}

/* Which inputs to save, a bit each. */
static uint32_t saved_inputs(uint32_t saves, const fl_call *c) {
  int n = c->n_in < FLI_SAVE_IN ? c->n_in : FLI_SAVE_IN;
  uint32_t which = saves & ((1u << n) - 1);
  if (which && saves & FLI_SAVE_CROSS)
    for (int k = 0; k < 2; k++) {
      fl_tensor *other = c->in[1 - k].tensor;
      if (!other || !fli_wants_grad(other))
        which &= ~(1u << k);
    }
  return which;
}

/* The first input after those with bits that is saved as well: a list's letter
 * stands for all its tensors. */
static int first_further(const fl_op *op, uint32_t which, int n_in) {
  int list = 0;
  for (int k = 0; k < op->variadic; k++)
    list += op->info.params[k].kind == FL_P_TENSOR;
  return op->variadic >= 0 && which >> list & 1 ? list + 1 : n_in;
}

static int count_bits(uint32_t bits) {
  int n = 0;
  for (; bits; bits &= bits - 1)
    n++;
  return n;
}

static void save(fl_node *n, int slot, fl_operand value) {
  fli_saved *s = &n->saved[n->n_saved++];
  s->value = value;
  s->slot = slot;
  s->version = 0;
  if (value.tensor && value.tensor->storage)
    s->version = value.tensor->storage->version;
}

/* A result is saved without its history: the history is this node. */
static fl_status save_output(fl_node *n, int k, fl_tensor *t) {
  fl_tensor *bare;
  FLI_TRY(fli_tensor_alias(t, false, &bare));
  save(n, -1 - k, (fl_operand){.tensor = bare});
  return FL_OK;
}

static fl_status make_node(fl_runtime *rt, const fl_call *c,
                           const fl_attrs *attrs, uint32_t saves,
                           fl_tensor *const *out, const fl_operand *saved,
                           fl_node **result) {
  const fl_op *op = c->op;
  int n_out = op->info.n_out;
  uint32_t ins = saved_inputs(saves, c);
  uint32_t outs = saves >> FLI_SAVE_OUT & ((1u << n_out) - 1);
  int further = first_further(op, ins, c->n_in);
  int n_saved = count_bits(ins) + c->n_in - further + count_bits(outs);
  fl_node *n;
  FLI_TRY(fli_node_new(rt, FLI_NODE_OP, op, c->n_in, n_out, n_saved,
                       op->info.n_attr ? attrs : NULL, &n));
  n->base = c->base;
  n->site = c->site;
  fl_status s = FL_OK;
  for (int k = 0; k < c->n_in; k++) {
    fl_tensor *t = c->in[k].tensor;
    n->in_meta[k].dtype = FL_NODTYPE;
    n->in_meta[k].ndim = 0;
    if (!t)
      continue;
    n->device = fl_tensor_device(t);
    copy_meta(&n->in_meta[k], &t->meta);
    if (has_gradient(t) && fli_wants_grad(t)) {
      fli_edge_to(t, &n->edges[k]);
      if (!n->edges[k].node && !n->edges[k].leaf)
        s = FL_ENOMEM;
    }
  }
  n->stream = fli_stream_now(rt, n->device);
  for (int k = 0; k < c->n_in && (k >= further || ins >> k); k++)
    if (k >= further || ins >> k & 1) {
      fl_operand kept = saved[k];
      if (kept.tensor && kept.tensor->storage && kept.tensor->storage->loan)
        s = s ? s : fli_loan_mark(saved[k].tensor, &kept.tensor);
      else if (kept.tensor)
        fl_tensor_retain(kept.tensor);
      if (s == FL_OK)
        save(n, k, kept);
    }
  for (int k = 0; k < n_out; k++) {
    copy_meta(&n->out_meta[k], &out[k]->meta);
    if (s == FL_OK && outs >> k & 1)
      s = save_output(n, k, out[k]);
  }
  if (s) {
    fli_node_release(rt, n);
    return s;
  }
  *result = n;
  return FL_OK;
}

fl_status fli_tape_record(fl_runtime *rt, const fl_call *c,
                          const fl_attrs *attrs, uint32_t saves,
                          fl_tensor **out) {
  fl_node *n;
  FLI_TRY(make_node(rt, c, attrs, saves, out, c->in, &n));
  int users = 0;
  for (int k = 0; k < n->n_out; k++)
    if (has_gradient(out[k]) && (k == 0 || !(saves & FLI_SAVE_ALONE))) {
      out[k]->node = n;
      out[k]->node_out = k;
      users++;
    }
  n->rc += users - 1;
  if (n->rc == 0) {
    n->rc = 1;
    fli_node_release(rt, n);
  }
  return FL_OK;
}

/* --- in place --- */

fl_status fli_tape_check_inplace(const fl_call *c) {
  fl_tensor *t = c->in[0].tensor;
  const char *name = c->op->info.name;
  bool tracked = false;
  for (int k = 0; k < c->n_in; k++)
    tracked = tracked || (c->in[k].tensor && fli_wants_grad(c->in[k].tensor));
  if (t->requires_grad && !t->node)
    return fli_fail(FL_EAUTOGRAD,
                    "%s_: a leaf that requires a gradient cannot be written in "
                    "place; do it inside no_grad, or on a result",
                    name);
  if (!t->is_view)
    return FL_OK;
  if (t->base->requires_grad && !t->base->node && !t->no_grad_view)
    return fli_fail(FL_EAUTOGRAD,
                    "%s_: this is a view of a leaf that requires a gradient, "
                    "and cannot be written in place; do it inside no_grad",
                    name);
  if (tracked && t->meta.dtype != t->base->meta.dtype)
    return fli_fail(FL_EAUTOGRAD,
                    "%s_: a view as %s of a %s tensor cannot be written in "
                    "place where gradients are recorded",
                    name, fl_dtype_name(t->meta.dtype),
                    fl_dtype_name(t->base->meta.dtype));
  if ((tracked || t->base->node) && t->no_grad_view)
    return fli_fail(FL_EAUTOGRAD,
                    "%s_: this view was made inside no_grad, so its base would "
                    "not learn of the write; make the view outside",
                    name);
  if (tracked && !t->base->contiguous)
    return fli_fail(FL_EAUTOGRAD,
                    "%s_: the base of this view is not contiguous; clone() it "
                    "before writing through views with gradients",
                    name);
  return FL_OK;
}

/* The base's history becomes: `inner` on the region, the old one around it.
 * Takes `inner` over, also when it fails. */
static fl_status rebase(fl_runtime *rt, fl_tensor *t, fl_node *inner) {
  fl_tensor *base = t->base;
  fl_node *n;
  fl_status s =
      fli_node_new(rt, FLI_NODE_REGION, inner->op, inner->n_in, 1, 0, NULL, &n);
  if (s) {
    fli_node_release(rt, inner);
    return s;
  }
  n->inner = inner;
  struct fli_geometry *r = fli_malloc(rt, sizeof *r);
  if (!r) {
    fli_node_release(rt, n);
    return FL_ENOMEM;
  }
  r->ndim = t->meta.ndim;
  memcpy(r->shape, t->meta.shape, sizeof r->shape);
  memcpy(r->stride, t->stride, sizeof r->stride);
  r->offset = t->offset - base->offset;
  n->region = r;
  n->site = inner->site;
  n->device = inner->device;
  n->stream = inner->stream;
  copy_meta(&n->out_meta[0], &base->meta);
  for (int k = 0; k < inner->n_in; k++) {
    n->in_meta[k] = inner->in_meta[k];
    if (k == 0)
      continue;
    n->edges[k] = inner->edges[k]; /* the outer node is what runs */
    inner->edges[k] = (fli_edge){0};
  }
  copy_meta(&n->in_meta[0], &base->meta);
  fli_edge_to(base, &n->edges[0]);
  set_history(base, n);
  base->rebases++;
  return rederive(t);
}

fl_status fli_node_part(fl_runtime *rt, fl_node *region, fl_node **out) {
  const struct fli_geometry *r = region->region;
  fl_attrs a = rt->ops[FLI_OP_as_strided].defaults;
  FLI_TRY(fl_attrs_list(&a, FL_ATTR_as_strided_size, r->ndim, r->shape));
  FLI_TRY(fl_attrs_list(&a, FL_ATTR_as_strided_stride, r->ndim, r->stride));
  a.v[FL_ATTR_as_strided_offset].i = r->offset;
  FLI_TRY(fli_node_new(rt, FLI_NODE_OP, &rt->ops[FLI_OP_as_strided], 1, 1, 0,
                       &a, out));
  fl_node *n = *out;
  n->site = region->site;
  n->device = region->device;
  n->stream = region->stream;
  copy_meta(&n->in_meta[0], &region->out_meta[0]);
  copy_meta(&n->out_meta[0], &region->inner->out_meta[0]);
  n->edges[0] = (fli_edge){.node = region};
  region->rc++;
  return FL_OK;
}

fl_status fli_tape_record_inplace(fl_runtime *rt, const fl_call *c,
                                  const fl_attrs *attrs,
                                  const fl_operand *saved) {
  fl_tensor *t = c->in[0].tensor;
  fl_node *n;
  FLI_TRY(make_node(rt, c, attrs, c->op->saves, &t, saved, &n));
  if (t->is_view)
    return rebase(rt, t, n);
  set_history(t, n);
  t->rebases++;
  return FL_OK;
}

fl_status fli_tape_transfer(fl_tensor *t, fl_tensor *to) {
  fl_runtime *rt = t->rt;
  fl_node *n;
  if (!rt->grad_enabled || !has_gradient(t) || !fli_wants_grad(t))
    return FL_OK;
  FLI_TRY(fli_node_new(rt, FLI_NODE_TRANSFER, NULL, 1, 1, 0, NULL, &n));
  n->device = fl_tensor_device(t);
  n->stream = fli_stream_now(rt, n->device);
  copy_meta(&n->in_meta[0], &t->meta);
  copy_meta(&n->out_meta[0], &to->meta);
  fli_edge_to(t, &n->edges[0]);
  to->node = n;
  to->node_out = 0;
  return FL_OK;
}

static fl_status check_outside_vmap(const char *name, int n,
                                    fl_tensor *const *ins) {
  for (int k = 0; k < n; k++) {
    fl_tensor *all = ins[k] && ins[k]->extra ? ins[k]->extra->all : NULL;
    if (all && fli_wants_grad(all))
      return fli_fail(FL_EUNSUPPORTED,
                      "%s: inside vmap gradients do not pass through a "
                      "function of one's own, or checkpoint, to what is "
                      "outside",
                      name);
  }
  return FL_OK;
}

fl_status fl_tape_custom(fl_runtime *rt, const char *name, int64_t key,
                         fl_site site, int n_in, fl_tensor *const *ins,
                         int n_out, fl_tensor *const *outs) {
  FLI_NEED(rt, "rt");
  FLI_NEED(name, "name");
  FLI_TRY(fli_check_count(__func__, "n_in", n_in));
  if (n_in > 0)
    FLI_NEED(ins, "ins");
  fl_node *n;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_check_tensors(__func__, "outs", rt, n_out, outs));
  for (int k = 0; k < n_in; k++)
    if (ins[k])
      FLI_TRY(fli_check_tensors(__func__, "ins", rt, 1, &ins[k]));
  FLI_TRY(check_outside_vmap(name, n_in, ins));
  FLI_TRY(fli_node_new(rt, FLI_NODE_CUSTOM, NULL, n_in, n_out, 0, NULL, &n));
  size_t len = strlen(name) + 1;
  char *copy = fli_malloc(rt, len);
  if (!copy) {
    fli_node_release(rt, n);
    return FL_ENOMEM;
  }
  memcpy(copy, name, len);
  n->name = copy;
  n->key = key;
  n->site = site;
  for (int k = 0; k < n_in; k++) {
    n->in_meta[k].dtype = FL_NODTYPE;
    n->in_meta[k].ndim = 0;
    if (!ins[k])
      continue;
    copy_meta(&n->in_meta[k], &ins[k]->meta);
    n->device = fl_tensor_device(ins[k]);
    if (has_gradient(ins[k]) && fli_wants_grad(ins[k]))
      fli_edge_to(ins[k], &n->edges[k]);
  }
  n->stream = fli_stream_now(rt, n->device);
  for (int k = 0; k < n_out; k++) {
    copy_meta(&n->out_meta[k], &outs[k]->meta);
    if (!has_gradient(outs[k]) || outs[k]->node || outs[k]->requires_grad)
      continue;
    outs[k]->node = n;
    outs[k]->node_out = k;
    n->rc++;
  }
  fli_node_release(rt, n);
  return FL_OK;
}

/* --- queries and settings --- */

bool fl_grad_mode(fl_runtime *rt, bool on) {
  FLI_NEED_OR(rt, "rt", false);
  bool was = rt->grad_enabled;
  rt->grad_enabled = on;
  return was;
}

fl_site fl_grad_site(fl_runtime *rt, fl_site site) {
  FLI_NEED_OR(rt, "rt", 0);
  fl_site was = rt->grad_site;
  rt->grad_site = site;
  return was;
}

bool fl_grad_enabled(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", false);
  return rt->grad_enabled;
}

static fl_status alive(const fl_tensor *t) {
  return t->rt ? fli_check_owner(t->rt)
               : fli_fail(FL_ECLOSED, "tensor is closed");
}

fl_status fl_tensor_require_grad(fl_tensor *t, bool on) {
  FLI_NEED(t, "t");
  FLI_TRY(alive(t));
  if (on && !has_gradient(t))
    return fli_fail(FL_EDTYPE,
                    "only floats and complex numbers can require gradients, "
                    "not %s",
                    fl_dtype_name(t->meta.dtype));
  if (!on && fli_wants_grad(t) && !t->requires_grad)
    return fli_fail(FL_EAUTOGRAD, "a result of operators cannot stop requiring "
                                  "a gradient: use detach()");
  if (!t->node)
    t->requires_grad = on;
  if (t->requires_grad && t->is_view)
    fli_tensor_own(t);
  return FL_OK;
}

bool fl_tensor_requires_grad(fl_tensor *t) {
  FLI_NEED_OR(t, "t", false);
  return t->rt && fli_wants_grad(t);
}

bool fl_tensor_is_leaf(fl_tensor *t) {
  FLI_NEED_OR(t, "t", false);
  return !t->rt || t->requires_grad || !fli_wants_grad(t);
}

const char *fl_tensor_node_name(fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  fl_node *n;
  if (!t->rt || fli_node_of(t, &n) || !n)
    return NULL;
  return fli_node_name(n);
}

const char *fli_node_name(const fl_node *n) {
  return n->kind == FLI_NODE_TRANSFER ? "to"
         : n->name                    ? n->name
                                      : n->op->info.name;
}

fl_site fl_tensor_node_site(fl_tensor *t) {
  FLI_NEED_OR(t, "t", 0);
  return t->node ? t->node->site : 0;
}

fl_tensor *fl_tensor_grad(fl_tensor *t) {
  FLI_NEED_OR(t, "t", NULL);
  return t->extra ? t->extra->grad : NULL;
}

fl_status fl_tensor_set_grad(fl_tensor *t, fl_tensor *grad) {
  FLI_NEED(t, "t");
  fli_extra *x;
  FLI_TRY(alive(t));
  if (grad && grad->rt != t->rt)
    return grad->rt
               ? fli_fail(FL_EOWNER, "the gradient belongs to another runtime")
               : fli_fail(FL_ECLOSED, "the gradient is closed");
  if (grad && !fli_same_shape(&grad->meta, &t->meta))
    return fli_fail(FL_ESHAPE, "a gradient has its tensor's shape %s, not %s",
                    fli_shape_text(t->meta.ndim, t->meta.shape),
                    fli_shape_text(grad->meta.ndim, grad->meta.shape));
  if (grad && grad->meta.dtype != t->meta.dtype &&
      !(grad->meta.dtype == FL_F32 && fl_dtype_is_low(t->meta.dtype)))
    return fli_fail(FL_EDTYPE, "a gradient of a %s tensor cannot be %s",
                    fl_dtype_name(t->meta.dtype),
                    fl_dtype_name(grad->meta.dtype));
  if (grad && grad->storage && t->storage &&
      grad->storage->device != t->storage->device)
    return fli_fail(FL_EDEVICE, "a gradient lies on its tensor's device");
  for (fl_tensor *g = grad; g; g = fl_tensor_grad(g))
    if (g == t)
      return fli_fail(FL_EARG, g == grad ? "a tensor cannot be its own gradient"
                                         : "the gradient's own gradient is "
                                           "this tensor: neither would ever "
                                           "be freed");
  if (!grad && !t->extra)
    return FL_OK;
  FLI_TRY(fli_extra_of(t, &x));
  fl_tensor *old = x->grad;
  x->grad = grad ? fl_tensor_retain(grad) : NULL;
  fl_tensor_release(old);
  return FL_OK;
}

static fl_status hook_new(fl_runtime *rt, fli_hook **list, int64_t key, int out,
                          fl_tensor *keep) {
  fli_hook *h = fli_malloc(rt, sizeof *h);
  if (!h)
    return FL_ENOMEM;
  *h = (fli_hook){.key = key, .out = out, .keep = keep};
  while (*list && !(*list)->keep) /* in the order they were added, */
    list = &(*list)->next;
  h->next = *list; /* and what is retained is what they have made of it */
  *list = h;
  return FL_OK;
}

fl_status fl_tensor_add_hook(fl_tensor *t, int64_t key) {
  FLI_NEED(t, "t");
  fl_node *n;
  fli_extra *x;
  FLI_TRY(alive(t));
  FLI_TRY(fli_node_of(t, &n));
  if (n)
    return hook_new(t->rt, &n->hooks, key, t->node_out, NULL);
  if (!t->requires_grad)
    return fli_fail(FL_EAUTOGRAD, "a hook needs a tensor that requires a "
                                  "gradient");
  FLI_TRY(fli_extra_of(t, &x));
  return hook_new(t->rt, &x->hooks, key, 0, NULL);
}

void fl_tensor_drop_hook(fl_tensor *t, int64_t key) {
  if (!t)
    return;
  fli_hook **lists[2] = {t->node ? &t->node->hooks : NULL,
                         t->extra ? &t->extra->hooks : NULL};
  for (int i = 0; i < 2; i++)
    for (fli_hook **h = lists[i]; h && *h; h = &(*h)->next)
      if ((*h)->key == key && !(*h)->keep && !(*h)->dropped) {
        fli_hook *dead = *h;
        if (t->rt && t->rt->in_backward) {
          dead->dropped = true;
          return;
        }
        *h = dead->next;
        fli_mfree(dead);
        return;
      }
}

fl_status fl_tensor_retain_grad(fl_tensor *t) {
  FLI_NEED(t, "t");
  fl_node *n;
  fli_extra *x;
  FLI_TRY(alive(t));
  FLI_TRY(fli_node_of(t, &n));
  if (!n)
    return t->requires_grad
               ? FL_OK
               : fli_fail(FL_EAUTOGRAD, "retain_grad needs a tensor that "
                                        "requires a gradient");
  FLI_TRY(fli_extra_of(t, &x));
  if (x->retain)
    return FL_OK;
  x->retain = true;
  return hook_new(t->rt, &n->hooks, 0, t->node_out, t);
}

void fl_tape_set_host(fl_runtime *rt, const fl_tape_host *host) {
  if (!rt)
    return;
  rt->tape_host = host ? *host : (fl_tape_host){0};
}

fl_status fli_tape_ready(fl_runtime *rt, fl_tensor *leaf) {
  return rt->on_ready ? rt->on_ready(rt->on_ready_context, leaf) : FL_OK;
}

void fl_tape_on_ready(fl_runtime *rt,
                      fl_status (*ready)(void *context, fl_tensor *leaf),
                      void *context) {
  if (!rt)
    return;
  rt->on_ready = ready;
  rt->on_ready_context = context;
}

/* --- the graph as text --- */

const char *fl_tape_text(fl_tensor *t, int most) {
  FLI_NEED_OR(t, "t", "");
  fl_runtime *rt = t->rt;
  fl_node *n;
  size_t at = 0;
  if (!rt || fli_node_of(t, &n))
    return "";
  most = most < 1 ? 1 : most > 10000 ? 10000 : most;
  size_t room = (size_t)most * 900 + 64; /* what a node can need */
  char *text = fli_text(rt, room);
  fl_node **seen = fli_malloc(rt, (size_t)most * sizeof *seen);
  int n_seen = 0;
  if (!text || !seen) {
    fli_mfree(seen);
    return "";
  }
  text[0] = 0;
  if (n)
    seen[n_seen++] = n;
  for (int i = 0; i < n_seen; i++) {
    fl_node *m = seen[i];
    at += (size_t)snprintf(
        text + at, room - at,
        "#%llu %.60s %s %.200s saves %d:", (unsigned long long)m->seq,
        fli_node_name(m),
        fli_shape_text(m->out_meta[0].ndim, m->out_meta[0].shape),
        fl_site_text(rt, m->site), m->n_saved);
    for (int k = 0; k < m->n_in && k < 8; k++) {
      fli_edge *e = &m->edges[k];
      if (e->leaf)
        at += (size_t)snprintf(text + at, room - at, " leaf %llu",
                               (unsigned long long)e->leaf->id);
      if (!e->node)
        continue;
      at += (size_t)snprintf(text + at, room - at, " #%llu",
                             (unsigned long long)e->node->seq);
      bool known = n_seen == most;
      for (int j = 0; j < n_seen && !known; j++)
        known = seen[j] == e->node;
      if (!known)
        seen[n_seen++] = e->node;
    }
    at += (size_t)snprintf(text + at, room - at, "\n");
  }
  fli_mfree(seen);
  return text;
}
