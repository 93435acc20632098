/* The backward pass: which nodes take part, in which order they run, where
 * their gradients go. Nodes are counted first (how many others feed each one),
 * then run newest first as soon as all their gradients are in; nothing
 * recurses, so the length of a chain does not matter. */
#include "../memory/stream.h"
#include "pass.h"

#include <stdlib.h>
#include <string.h>

#define FEW 16 /* of each in a pass that needs no memory for them */

/* --- vectors --- */

/* A full vector, of which the first FEW lie on the stack, gets more room. */
static fl_status backward_grow(void *list, size_t *room, size_t each) {
  void **old = list;
  void *p = realloc(*room == FEW ? NULL : *old, 2 * *room * each);
  if (!p)
    return fli_fail(FL_ENOMEM, "out of memory: backward");
  if (*room == FEW)
    memcpy(p, *old, FEW * each);
  *old = p;
  *room *= 2;
  return FL_OK;
}

static fl_status heap_push(fli_pass *p, fl_node *n) {
  if (p->n_heap == p->heap_room)
    FLI_TRY(backward_grow(&p->heap, &p->heap_room, sizeof *p->heap));
  size_t i = p->n_heap++;
  for (; i > 0 && p->heap[(i - 1) / 2]->seq < n->seq; i = (i - 1) / 2)
    p->heap[i] = p->heap[(i - 1) / 2];
  p->heap[i] = n;
  return FL_OK;
}

static fl_node *heap_pop(fli_pass *p) {
  fl_node *top = p->heap[0], *last = p->heap[--p->n_heap];
  size_t i = 0, n = p->n_heap;
  for (size_t k; (k = 2 * i + 1) < n; i = k) {
    if (k + 1 < n && p->heap[k + 1]->seq > p->heap[k]->seq)
      k++;
    if (p->heap[k]->seq <= last->seq)
      break;
    p->heap[i] = p->heap[k];
  }
  p->heap[i] = last;
  return top;
}

/* --- nodes of a pass --- */

static fl_status enter(fli_pass *p, fl_node *n) {
  if (n->active)
    return fli_fail(FL_EAUTOGRAD,
                    "backward inside backward over the same "
                    "graph: %s at %s is running already",
                    fli_node_name(n), fl_site_text(p->rt, n->site));
  if (p->n_nodes == p->nodes_room)
    FLI_TRY(backward_grow(&p->nodes, &p->nodes_room, sizeof *p->nodes));
  p->nodes[p->n_nodes++] = n;
  n->rc++;
  n->pass = p->id;
  n->active = true;
  n->needed = p->captured == NULL;
  n->deps = 0;
  n->makers = 0;
  return FL_OK;
}

static fl_status meet_leaf(fli_pass *p, fl_tensor *leaf) {
  fli_extra *x;
  FLI_TRY(fli_extra_of(leaf, &x));
  if (x->pass != p->id) {
    if (p->n_leaves == p->leaves_room)
      FLI_TRY(backward_grow(&p->leaves, &p->leaves_room, sizeof *p->leaves));
    p->leaves[p->n_leaves++] = (fli_reached){fl_tensor_retain(leaf), x->pass,
                                             x->deps, x->capture, x->sum};
    x->pass = p->id;
    x->deps = 0;
    x->capture = -1;
    x->sum = NULL;
  }
  x->deps++;
  return FL_OK;
}

static fl_status explore(fli_pass *p) {
  for (size_t i = 0; i < p->n_nodes; i++) {
    fl_node *n = p->nodes[i];
    for (int k = 0; k < n->n_in && !n->end; k++) {
      fli_edge *e = &n->edges[k];
      if (e->leaf)
        FLI_TRY(meet_leaf(p, e->leaf));
      if (!e->node)
        continue;
      if (e->node->pass != p->id || !e->node->active)
        FLI_TRY(enter(p, e->node));
      e->node->deps++;
    }
  }
  return FL_OK;
}

static int older_first(const void *a, const void *b) {
  uint64_t x = (*(fl_node *const *)a)->seq, y = (*(fl_node *const *)b)->seq;
  return (x > y) - (x < y);
}

/* fl_grad: only nodes on a path to an input need to run. An edge always leads
 * to an older node, so one sweep from the oldest finds them. */
static void prune(fli_pass *p) {
  for (int i = 0; i < p->n_inputs; i++)
    if (p->input_nodes[i] && p->input_nodes[i]->pass == p->id)
      p->input_nodes[i]->needed = true;
  if (p->n_nodes)
    qsort(p->nodes, p->n_nodes, sizeof *p->nodes, older_first);
  for (size_t i = 0; i < p->n_nodes; i++) {
    fl_node *n = p->nodes[i];
    for (int k = 0; k < n->n_in && !n->needed; k++)
      n->needed = (n->edges[k].node && n->edges[k].node->needed) ||
                  (n->edges[k].leaf && n->edges[k].leaf->extra->capture >= 0);
  }
}

/* --- streams ---
 *
 * A node's rule runs on the stream that its forward ran on, leaves are finished
 * on the one that backward was called on. A stream waits for those that made
 * what it is about to read: `makers` has a bit for each. */

static inline bool streams(const fli_pass *p) {
  return p->rt->watch & FLI_WATCH_STREAMS;
}

/* The stream in use is about to read g, or what is there already of its sum. */
static fl_status await_makers(fli_pass *p, const fl_tensor *g,
                              uint32_t makers) {
  if (!g || !g->storage || !makers)
    return FL_OK;
  return fli_stream_follow(p->rt, g->storage->device, makers);
}

static uint32_t maker_of(fli_pass *p, const fl_tensor *g) {
  return g && g->storage ? 1u << fl_stream_current(p->rt, g->storage->device)
                         : 0;
}

/* A leaf has all of its gradient. */
static fl_status finish_here(fli_pass *p, fl_tensor *leaf) {
  fli_extra *x = leaf->extra;
  fl_tensor *g = x->sum;
  x->sum = NULL;
  if (!g)
    return FL_OK;
  fl_status s = fli_pass_hooks(p, x->hooks, 0, leaf, &g);
  if (s == FL_OK && p->captured && x->capture >= 0) {
    p->captured[x->capture] = g;
    return FL_OK;
  }
  if (s || p->captured || !leaf->requires_grad) { /* not wanted any more */
    fl_tensor_release(g);
    return s;
  }
  bool placed = x->place && !p->create && (!x->grad || x->grad == x->place);
  bool first = !x->grad && !placed; /* then it becomes leaf's, without a copy */
  fl_tensor *own = p->each && !first ? fl_tensor_retain(g) : NULL;
  s = placed ? fli_place(p->rt, x, g, p->site) : fli_sum_keep(p, &x->grad, g);
  if (p->each && s == FL_OK)
    s = p->each(p->context, leaf, first ? x->grad : own);
  fl_tensor_release(own);
  return s ? s : fli_tape_ready(p->rt, leaf);
}

static fl_status finish_leaf(fli_pass *p, fl_tensor *leaf) {
  fli_extra *x = leaf->extra;
  if (!streams(p) || !x->sum || !x->sum->storage)
    return finish_here(p, leaf);
  fl_runtime *rt = p->rt;
  fl_device d = x->sum->storage->device;
  int was = fl_stream_current(rt, d);
  if (p->away && d == p->device)
    FLI_TRY(fl_stream_use(rt, d, p->home));
  fl_status s = await_makers(p, x->sum, x->makers);
  x->makers = 0;
  if (s == FL_OK)
    s = finish_here(p, leaf);
  fl_stream_use(rt, d, was);
  return s;
}

/* Before g is added to a sum that other streams may have written. */
static fl_status note_maker(fli_pass *p, fli_edge *e, const fl_tensor *g) {
  if (!streams(p) || !g || (!e->node && !e->leaf))
    return FL_OK;
  uint32_t *makers = e->node ? &e->node->makers : &e->leaf->extra->makers;
  fl_status s = await_makers(p, g, *makers);
  *makers |= maker_of(p, g);
  return s;
}

/* Takes over the reference of g (may be NULL: no influence). */
static fl_status deliver(fli_pass *p, fli_edge *e, fl_tensor *g) {
  fl_status s = note_maker(p, e, g);
  if (e->node) {
    s = s || !g ? s : fli_finish_sum(p->rt, e->node);
    if (g && e->node->needed && s == FL_OK)
      s = fli_sum_add(p, &e->node->grads[e->out], g);
    else
      fl_tensor_release(g);
    if (--e->node->deps == 0 && s == FL_OK)
      s = heap_push(p, e->node);
    return s;
  }
  fli_extra *x = e->leaf ? e->leaf->extra : NULL;
  if (g && x && s == FL_OK)
    s = fli_sum_add(p, &x->sum, g);
  else
    fl_tensor_release(g);
  if (x && --x->deps == 0 && s == FL_OK)
    s = finish_leaf(p, e->leaf);
  return s;
}

/* --- running a node --- */

static fl_status check_saved(fli_pass *p, fl_node *n) {
  fl_runtime *rt = p->rt;
  if (n->released)
    return fli_fail(FL_EAUTOGRAD,
                    "backward through %s (%s) a second time: what it had saved "
                    "is gone; use retain_graph = true the first time",
                    fli_node_name(n), fl_site_text(rt, n->site));
  for (int i = 0; i < n->n_saved; i++) {
    fl_tensor *t = n->saved[i].value.tensor;
    if (!t || !t->storage || t->storage->version == n->saved[i].version)
      continue;
    char wrote[256];
    strncpy(wrote, fl_site_text(rt, t->storage->write_site), sizeof wrote - 1);
    wrote[sizeof wrote - 1] = 0;
    return fli_fail(FL_EAUTOGRAD,
                    "%s (%s) needs a tensor %s for its gradient that was "
                    "changed in place since, at %s",
                    fli_node_name(n), fl_site_text(rt, n->site),
                    fli_shape_text(t->meta.ndim, t->meta.shape), wrote);
  }
  return FL_OK;
}

/* A saved result gets its history back when backward itself is recorded. */
static fl_status with_history(fl_node *n, int k, fl_tensor *bare,
                              fl_tensor **out) {
  FLI_TRY(fli_tensor_alias(bare, false, out));
  (*out)->node = n;
  (*out)->node_out = k;
  n->rc++;
  return FL_OK;
}

typedef struct room { /* a rule's arrays, for nodes of up to 8 inputs */
  fl_value in[8], dx[8];
  bool need[8];
} room;

static fl_value fetch_lent(fli_env *e, fl_tensor *mark) {
  fl_tensor *t = NULL;
  if (e->status == FL_OK)
    e->status = fli_loan_fetch(e->rt, mark, &t);
  return e->status ? fli_none() : fli_env_own(e, t);
}

/* Runs the rule of `n` for dy; dx[k] get new references or NULL. */
static fl_status apply_rule(fli_pass *p, fl_node *n, fl_node *history,
                            fl_tensor *const *dy, const bool *need,
                            fl_value *in, fl_value *dx_values, fl_tensor **dx) {
  fl_value y[FL_MAX_OUT], dys[FL_MAX_OUT];
  fl_tensor *revived[FL_MAX_OUT];
  bool placing = history == n && !p->create && !p->captured;
  fli_grad g; /* member by member: the room for results is large */
  fli_env_open(&g.e, p->rt, n->base, n->site);
  p->rt->back_part = n->part;
  g.op = n->op;
  g.attrs = n->attrs ? n->attrs : &n->op->defaults;
  g.n_in = n->n_in;
  g.n_out = n->n_out;
  g.in_meta = n->in_meta;
  g.out_meta = n->out_meta;
  g.in = in;
  g.y = y;
  g.dy = dys;
  g.dx = dx_values;
  g.need = need;
  g.create = p->create;
  for (int k = 0; k < n->n_in; k++) {
    fli_give(&in[k], NULL);
    fli_give(&dx_values[k], NULL);
  }
  for (int k = 0; k < n->n_out; k++) {
    fli_give(&y[k], NULL);
    fli_give(&dys[k], dy[k]);
    revived[k] = NULL;
    if (dy[k])
      g.e.device = fl_tensor_device(dy[k]);
  }
  for (int i = 0; i < n->n_saved && g.e.status == FL_OK; i++) {
    int slot = n->saved[i].slot;
    fl_tensor *t = n->saved[i].value.tensor;
    if (slot >= 0) {
      in[slot] = fli_is_mark(t) ? fetch_lent(&g.e, t) : n->saved[i].value;
      continue;
    }
    if (p->create && history) {
      g.e.status = with_history(history, -1 - slot, t, &revived[-1 - slot]);
      t = revived[-1 - slot];
    }
    y[-1 - slot] = fli_given(t);
  }
  if (g.e.status == FL_OK)
    n->op->grad(&g);
  for (int k = 0; k < n->n_in; k++) {
    dx[k] = NULL;
    if (!need[k] || g.e.status)
      continue;
    fl_value v = dx_values[k];
    if (!v.tensor)
      continue;
    if (!fli_same_shape(&v.tensor->meta, &n->in_meta[k]))
      v = fli_v_sum_to(&g.e, v, &n->in_meta[k]);
    if (g.e.status == FL_OK && v.tensor->meta.dtype != n->in_meta[k].dtype &&
        !(placing && fli_only_placed(&n->edges[k])))
      v = fli_v_cast(&g.e, v, n->in_meta[k].dtype);
    if (g.e.status == FL_OK)
      dx[k] = fl_tensor_retain(v.tensor);
  }
  fl_status s = g.e.status;
  fli_env_close(&g.e);
  for (int k = 0; k < n->n_out; k++)
    fl_tensor_release(revived[k]);
  for (int k = 0; k < n->n_in && s; k++) {
    fl_tensor_release(dx[k]);
    dx[k] = NULL;
  }
  return s;
}

/* A write into a region of the base: the gradient passes around it, and through
 * the operation inside. */
static fl_status run_region(fli_pass *p, fl_node *n, const bool *need,
                            fl_value *in, fl_value *values, fl_tensor **dx) {
  fl_runtime *rt = p->rt;
  struct fli_geometry *r = n->region;
  fli_env env, *e = &env;
  fl_attrs a = rt->ops[FLI_OP_as_strided].defaults;
  fl_value dy = fli_given(n->grads[0]);
  fli_env_open(e, rt, 0, n->site);
  if (!dy.tensor->contiguous)
    dy = fli_run(e, FLI_OP_contiguous, NULL, 1, &dy);
  fli_set_list(e, &a, FL_ATTR_as_strided_size, r->ndim, r->shape);
  fli_set_list(e, &a, FL_ATTR_as_strided_stride, r->ndim, r->stride);
  a.v[FL_ATTR_as_strided_offset].i = r->offset;
  fl_value part = fli_run(e, FLI_OP_as_strided, &a, 1, &dy);
  part = fli_run(e, FLI_OP_copy, NULL, 1, &part);
  fl_status s = e->status;
  fl_node *history = NULL; /* of the inner result, should it be saved */
  if (s == FL_OK && p->create)
    s = fli_node_part(rt, n, &history);
  if (s == FL_OK)
    s = apply_rule(p, n->inner, history, &part.tensor, need, in, values, dx);
  if (history)
    fli_node_release(rt, history);
  if (s == FL_OK && need[0]) {
    /* outside: dy with zeros in the region; inside: dx[0] */
    fl_attrs back = rt->ops[FLI_OP_as_strided_backward].defaults;
    fli_set_list(e, &back, FL_ATTR_as_strided_backward_shape,
                 n->out_meta[0].ndim, n->out_meta[0].shape);
    fli_set_list(e, &back, FL_ATTR_as_strided_backward_size, r->ndim, r->shape);
    fli_set_list(e, &back, FL_ATTR_as_strided_backward_stride, r->ndim,
                 r->stride);
    back.v[FL_ATTR_as_strided_backward_offset].i = r->offset;
    fl_value change = fli_given(dx[0]);
    fl_value mask = fli_v_zeros(e, FL_F32, r->ndim, r->shape, n->device);
    mask = fli_run(e, FLI_OP_add, NULL, 2, (fl_value[]){mask, fli_number(1)});
    mask = fli_run(e, FLI_OP_as_strided_backward, &back, 1, &mask);
    mask = fli_run(e, FLI_OP_ne, NULL, 2, (fl_value[]){mask, fli_number(0)});
    fl_value inside = fli_number(0);
    if (change.tensor)
      inside = fli_run(e, FLI_OP_as_strided_backward, &back, 1, &change);
    fl_value all =
        fli_run(e, FLI_OP_where, NULL, 3, (fl_value[]){mask, inside, dy});
    s = e->status;
    if (s == FL_OK) {
      fl_tensor_release(dx[0]);
      dx[0] = fl_tensor_retain(all.tensor);
    }
  }
  fli_env_close(e);
  return s;
}

/* Whether the gradient of a part may go straight into the sum for the whole. */
static bool adds_part(fli_pass *p, const fl_node *n) {
  const fl_node *to = n->edges[0].node;
  if (n->kind != FLI_NODE_OP || p->create || p->rt->batch || !to ||
      !to->needed || !fli_is_part(n->op))
    return false;
  const fl_tensor *sum = to->grads[n->edges[0].out];
  return !sum ||
         (fli_sum_is_free(sum) && sum->meta.dtype == n->in_meta[0].dtype);
}

static fl_status run_node(fli_pass *p, fl_node *n) {
  fl_runtime *rt = p->rt;
  room few;
  fl_tensor *few_dx[8], **dx = few_dx;
  fl_value *in = few.in, *values = few.dx;
  bool *need = few.need, any = false, way = false;
  void *more = NULL;
  p->site = n->site;
  FLI_TRY(fli_finish_sum(rt, n));
  for (int k = 0; k < n->n_out; k++) {
    if (n->grads[k] && n->hooks)
      FLI_TRY(fli_pass_hooks(p, n->hooks, k, NULL, &n->grads[k]));
    any = any || n->grads[k];
  }
  for (int i = 0; i < p->n_inputs; i++)
    if (p->input_nodes[i] == n && n->grads[p->inputs[i]->node_out] &&
        !p->captured[i])
      p->captured[i] = fl_tensor_retain(n->grads[p->inputs[i]->node_out]);
  if (n->end) {
    fli_node_drop_grads(n);
    return FL_OK;
  }
  if (n->n_in > 8) {
    size_t each = sizeof *dx + 2 * sizeof *in + sizeof *need;
    more = fli_malloc(rt, (size_t)n->n_in * each);
    if (!more)
      return FL_ENOMEM;
    in = more;
    values = in + n->n_in;
    dx = (fl_tensor **)(values + n->n_in);
    need = (bool *)(dx + n->n_in);
  }
  for (int k = 0; k < n->n_in; k++) {
    fli_edge *e = &n->edges[k];
    dx[k] = NULL;
    need[k] = e->node
                  ? e->node->needed
                  : e->leaf && (!p->captured || e->leaf->extra->capture >= 0);
    way = way || need[k];
  }
  fl_status s = FL_OK;
  way = way && any && n->needed; /* else only its own gradient is wanted */
  if (way) {
    s = n->kind == FLI_NODE_REGION ? check_saved(p, n->inner)
                                   : check_saved(p, n);
    if (s == FL_OK && adds_part(p, n)) {
      fli_edge *e = &n->edges[0];
      s = note_maker(p, e, n->grads[0]);
      s = s ? s : fli_add_part(rt, n);
    } else if (s == FL_OK && n->kind == FLI_NODE_OP)
      s = apply_rule(p, n, n, n->grads, need, in, values, dx);
    else if (s == FL_OK && n->kind == FLI_NODE_REGION)
      s = run_region(p, n, need, in, values, dx);
    else if (s == FL_OK && n->kind == FLI_NODE_CUSTOM) {
      rt->back_part = n->part; /* what a checkpoint computes again, too */
      s = fli_pass_custom(p, n, dx);
    } else if (s == FL_OK) /* a transfer: back to where it came from */
      s = fl_tensor_to(n->grads[0], n->device, FL_NODTYPE, &dx[0]);
  }
  fli_node_drop_grads(n);
  if (s == FL_OK && !p->retain && way)
    fli_node_forget(rt, n);
  for (int k = 0; k < n->n_in; k++) {
    if (s == FL_OK)
      s = deliver(p, &n->edges[k], dx[k]);
    else
      fl_tensor_release(dx[k]);
  }
  fli_mfree(more);
  return s;
}

static fl_status run_on_stream(fli_pass *p, fl_node *n) {
  fl_runtime *rt = p->rt;
  fl_tensor *g = NULL;
  if (!streams(p))
    return run_node(p, n);
  fl_device d = n->device;
  int home = fl_stream_current(rt, d);
  FLI_TRY(fl_stream_use(rt, d, n->stream));
  p->device = d;
  p->home = home;
  p->away = true;
  for (int k = 0; k < n->n_out && !g; k++)
    g = n->grads[k];
  fl_status s = await_makers(p, g, n->makers);
  n->makers = 0;
  bool seen = n->hooks != NULL; /* a hook may keep the gradient */
  for (int i = 0; i < p->n_inputs; i++)
    seen = seen || p->input_nodes[i] == n;
  if (s == FL_OK)
    s = run_node(p, n);
  p->away = false;
  fl_stream_use(rt, d, home);
  return s == FL_OK && seen ? fli_stream_follow(rt, d, 1u << n->stream) : s;
}

/* --- the pass --- */

static fl_status backward_seed(fli_pass *p, fl_tensor *root, fl_tensor *given,
                               fl_tensor **out) {
  fl_runtime *rt = p->rt;
  if (given) {
    FLI_TRY(fli_check_tensors("backward", "seeds", rt, 1, &given));
    if (!fli_same_shape(&given->meta, &root->meta))
      return fli_fail(FL_ESHAPE,
                      "backward: the gradient has shape %s, the "
                      "tensor %s",
                      fli_shape_text(given->meta.ndim, given->meta.shape),
                      fli_shape_text(root->meta.ndim, root->meta.shape));
    *out = fl_tensor_retain(given);
    return FL_OK;
  }
  if (root->numel != 1)
    return fli_fail(FL_EAUTOGRAD,
                    "backward from a tensor of shape %s needs a gradient of "
                    "that shape; without one it starts from one element, such "
                    "as a loss",
                    fli_shape_text(root->meta.ndim, root->meta.shape));
  fl_device d = fl_tensor_device(root);
  fl_backend *b = fli_backend(rt, d);
  if (!rt->meta && root->meta.dtype == FL_F32 && !b->launch &&
      b->flags & FL_BACKEND_HOST) { /* the usual: at once */
    FLI_TRY(
        fl_tensor_new(rt, FL_F32, root->meta.ndim, root->meta.shape, d, out));
    *(float *)fli_tensor_ptr(*out) = 1;
    return FL_OK;
  }
  fl_attrs a = rt->ops[FLI_OP_full].defaults;
  FLI_TRY(
      fl_attrs_list(&a, FL_ATTR_full_shape, root->meta.ndim, root->meta.shape));
  a.v[FL_ATTR_full_value].f = 1;
  a.v[FL_ATTR_full_dtype].i = root->meta.dtype;
  fl_call c = {
      .op = &rt->ops[FLI_OP_full], .attrs = &a, .device = d, .out = out};
  return fl_call_run(rt, &c);
}

static fl_status fail_without_graph(const fli_pass *p) {
  const char *what = "backward: this tensor does not depend on anything that "
                     "requires a gradient";
  if (p->recorded)
    return fli_fail(FL_EAUTOGRAD, "%s", what);
  if (!p->rt->grad_site)
    return fli_fail(FL_EAUTOGRAD, "%s: recording is off", what);
  return fli_fail(FL_EAUTOGRAD, "%s: recording is off, by no_grad at %s", what,
                  fl_site_text(p->rt, p->rt->grad_site));
}

static fl_status backward_start(fli_pass *p, int n, fl_tensor *const *roots,
                                fl_tensor *const *seeds) {
  for (int i = 0; i < n; i++) {
    fl_node *node;
    if (!roots[i]->rt)
      return fli_fail(FL_ECLOSED, "backward: tensor is closed");
    FLI_TRY(fli_node_of(roots[i], &node));
    if (!node && !roots[i]->requires_grad)
      return fail_without_graph(p);
    if (node && (node->pass != p->id || !node->active))
      FLI_TRY(enter(p, node));
    if (!node)
      FLI_TRY(meet_leaf(p, roots[i]));
  }
  FLI_TRY(explore(p));
  for (int i = p->n_inputs - 1; i >= 0; i--) /* the first of equals */
    if (!p->input_nodes[i] && p->inputs[i]->extra &&
        p->inputs[i]->extra->pass == p->id)
      p->inputs[i]->extra->capture = i;
  if (p->captured)
    prune(p);
  for (int i = 0; i < n; i++) {
    fl_tensor *g = NULL;
    fl_node *node = roots[i]->node;
    FLI_TRY(backward_seed(p, roots[i], seeds ? seeds[i] : NULL, &g));
    if (node) {
      node->makers |= maker_of(p, g);
      FLI_TRY(fli_sum_add(p, &node->grads[roots[i]->node_out], g));
      continue;
    }
    fli_edge e = {.leaf = roots[i]};
    FLI_TRY(deliver(p, &e, g));
  }
  for (int i = 0; i < n; i++) {
    fl_node *node = roots[i]->node;
    if (node && node->deps == 0) {
      node->deps = -1; /* once */
      FLI_TRY(heap_push(p, node));
    }
  }
  return FL_OK;
}

static void backward_finish(fli_pass *p) {
  for (size_t i = 0; i < p->n_nodes; i++) {
    fl_node *n = p->nodes[i];
    n->active = n->end = false;
    fli_node_drop_grads(n); /* of a pass that failed */
    fli_node_release(p->rt, n);
  }
  for (size_t i = 0; i < p->n_leaves; i++) {
    fli_reached *r = &p->leaves[i];
    fli_extra *x = r->leaf->extra;
    fl_tensor_release(x->sum); /* of a pass that failed */
    x->pass = r->pass;
    x->deps = r->deps;
    x->capture = r->capture;
    x->sum = r->sum;
    fl_tensor_release(r->leaf);
  }
  if (p->nodes_room > FEW)
    free(p->nodes);
  if (p->heap_room > FEW)
    free(p->heap);
  if (p->leaves_room > FEW)
    free(p->leaves);
}

static fl_status run_pass(fli_pass *p, int n, fl_tensor *const *roots,
                          fl_tensor *const *seeds, unsigned flags) {
  fl_runtime *rt = p->rt;
  fl_node *nodes[FEW], *heap[FEW];
  fli_reached leaves[FEW];
  FLI_TRY(fli_check_owner(rt));
  p->nodes = nodes;
  p->heap = heap;
  p->leaves = leaves;
  p->nodes_room = p->heap_room = p->leaves_room = FEW;
  p->id = ++rt->pass;
  p->create = flags & FL_BACKWARD_CREATE;
  p->retain = p->create || (flags & FL_BACKWARD_RETAIN);
  bool grad = fl_grad_mode(rt, p->create), inside = rt->in_backward;
  p->recorded = grad;
  rt->in_backward = true;
  fl_dtype low = fl_autocast(rt, FL_NODTYPE); /* and forgets casts */
  fl_status s = backward_start(p, n, roots, seeds);
  while (s == FL_OK && p->n_heap)
    s = run_on_stream(p, heap_pop(p));
  backward_finish(p);
  fl_autocast(rt, low);
  rt->in_backward = inside;
  fl_grad_mode(rt, grad);
  return s;
}

fl_status fl_backward(fl_runtime *rt, int n, fl_tensor *const *roots,
                      fl_tensor *const *seeds, unsigned flags) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_tensors(__func__, "roots", rt, n, roots));
  return fl_backward_each(rt, n, roots, seeds, flags, NULL, NULL);
}

fl_status fl_backward_each(fl_runtime *rt, int n, fl_tensor *const *roots,
                           fl_tensor *const *seeds, unsigned flags,
                           fl_grad_fn each, void *context) {
  fli_pass p = {.rt = rt, .each = each, .context = context};
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_tensors(__func__, "roots", rt, n, roots));
  if (rt->batch)
    return fli_fail(FL_EAUTOGRAD, "backward: inside vmap use grad");
  fl_status s = run_pass(&p, n, roots, seeds, flags);
  return s || rt->in_backward ? s : fli_tape_ready(rt, NULL);
}

fl_status fl_grad(fl_runtime *rt, int n, fl_tensor *const *roots,
                  fl_tensor *const *seeds, int n_inputs,
                  fl_tensor *const *inputs, unsigned flags, fl_tensor **grads) {
  fli_pass p = {
      .rt = rt, .n_inputs = n_inputs, .inputs = inputs, .captured = grads};
  fl_status s = FL_OK;
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_tensors(__func__, "roots", rt, n, roots));
  FLI_TRY(fli_check_tensors(__func__, "inputs", rt, n_inputs, inputs));
  if (n_inputs > 0)
    FLI_NEED(grads, "grads");
  p.input_nodes =
      fli_malloc(rt, (size_t)(n_inputs ? n_inputs : 1) * sizeof *p.input_nodes);
  if (!p.input_nodes)
    return FL_ENOMEM;
  memset(grads, 0, (size_t)n_inputs * sizeof *grads);
  for (int i = 0; i < n_inputs && s == FL_OK; i++) {
    s = fli_node_of(inputs[i], &p.input_nodes[i]);
    if (s == FL_OK && p.input_nodes[i])
      p.input_nodes[i]->end = flags & FLI_BACKWARD_STOP;
    else if (s == FL_OK && !inputs[i]->requires_grad)
      s = fli_fail(FL_EAUTOGRAD, "grad: input %d does not require a gradient",
                   i + 1);
  }
  if (s == FL_OK)
    s = run_pass(&p, n, roots, seeds, flags);
  fli_mfree(p.input_nodes);
  for (int i = 0; i < n_inputs && s == FL_OK; i++) {
    for (int j = 0; j < i && !grads[i]; j++) /* asked for twice */
      if (inputs[j] == inputs[i] && grads[j])
        grads[i] = fl_tensor_retain(grads[j]);
    if (!grads[i] && !(flags & FL_BACKWARD_UNUSED))
      s = fli_fail(FL_EAUTOGRAD,
                   "grad: input %d has no influence on the result; "
                   "allow_unused = true gives nil for it",
                   i + 1);
  }
  for (int i = 0; i < n_inputs && s; i++) {
    fl_tensor_release(grads[i]);
    grads[i] = NULL;
  }
  return s;
}
