/* Pure functions: once a call has been like the one before, its launches are
 * traced, and later calls put them into the window without the function's code.
 * What the code would have changed outside of launches is changed here: the
 * generator's offset, versions of memory, gradients of leaves. */
#include "pure.h"

#include "../memory/stream.h"
#include "../tape/tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- keeping --- */

static void tensors_drop(fl_tensor **list, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    fl_tensor_release(list[k]);
  fli_mfree(list);
}

static fl_status tensors_keep(fl_runtime *rt, fl_tensor *const *list,
                              uint32_t n, fl_tensor ***to) {
  if (!(*to = fli_malloc(rt, n * sizeof **to + 1)))
    return FL_ENOMEM;
  for (uint32_t k = 0; k < n; k++)
    (*to)[k] = fl_tensor_retain(list[k]);
  return FL_OK;
}

static void pure_forget_note(struct fli_pure *u) {
  tensors_drop(u->inputs, u->n_inputs);
  tensors_drop(u->results, u->n_results);
  fli_mfree(u->lives);
  u->inputs = u->results = NULL;
  u->lives = NULL;
  u->n_inputs = u->n_results = u->n_lives = 0;
  u->noted = false;
}

static void pure_forget_last(struct fli_pure *u) {
  tensors_drop(u->kept, u->n_kept);
  fli_mfree(u->numbers);
  u->kept = NULL;
  u->numbers = NULL;
  u->n_kept = 0;
  u->last_id = 0;
}

static void trace_free(fli_trace *t) {
  for (uint32_t k = 0; k < t->n_slots; k++)
    if (t->slots[k].t)
      fl_tensor_release(t->slots[k].t);
  for (uint32_t k = 0; k < t->n_results; k++)
    if (t->results[k].t)
      fl_tensor_release(t->results[k].t);
  for (uint32_t k = 0; k < t->n_grads; k++) {
    fl_tensor_release(t->grads[k].leaf);
    fl_tensor_release(t->grads[k].grad);
  }
  fli_mfree(t->inputs);
  fli_mfree(t->slots);
  fli_mfree(t->numbers);
  fli_mfree(t->results);
  fli_mfree(t->grads);
  fli_mfree(t);
}

fl_status fli_pure_new(fl_compiled *c) {
  struct fli_pure *u = fli_malloc(c->rt, sizeof *u);
  if (!u)
    return FL_ENOMEM;
  *u = (struct fli_pure){.rt = c->rt, .made = -1};
  c->pure = u;
  return FL_OK;
}

void fli_pure_free(struct fli_pure *u) {
  if (!u)
    return;
  pure_forget_note(u);
  pure_forget_last(u);
  for (int k = 0; k < u->n_traces; k++)
    trace_free(u->traces[k]);
  fli_mfree(u);
}

void fli_pure_end(struct fli_pure *u) {
  if (!u)
    return;
  pure_forget_note(u);
  u->feeding = NULL;
}

void fli_pure_begin(struct fli_pure *u) {
  u->offset = u->rt->generator.offset;
  u->windows = 0;
  u->feeding = NULL;
}

/* --- tracing --- */

typedef struct tracing {
  struct fli_pure *u;
  fl_runtime *rt;
  fli_window *w;
  const fli_plan *p;
  fli_trace *t;
  bool failed;
} tracing;

static void FL_PRINTF(3, 4)
    trace_fails(tracing *k, fl_site site, const char *format, ...) {
  char text[200];
  va_list args;
  va_start(args, format);
  if (!k->failed) {
    vsnprintf(text, sizeof text, format, args);
    const char *place = site ? fl_site_text(k->rt, site) : "";
    snprintf(k->u->why, sizeof k->u->why, "%s%s%s", place, place[0] ? ": " : "",
             text);
  }
  va_end(args);
  k->failed = true;
}

static bool in_live(const struct fli_pure *u, uint32_t entry) {
  for (uint32_t k = 0; k + 1 < u->n_lives; k += 2)
    if (entry >= u->lives[k] && entry < u->lives[k + 1])
      return true;
  return false;
}

/* The entry that makes or first touches slot k: for messages. */
static fl_site slot_site(const fli_window *w, uint32_t slot) {
  for (uint32_t i = 0; i < w->n; i++) {
    const fli_entry *e = &w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out; k++)
      if (w->args[e->arg + (uint32_t)k].slot == (int)slot)
        return e->site;
  }
  return 0;
}

/* Whether operand k of the row is a seed or an offset of random numbers. */
static bool is_rng(const fl_op *op, int k) {
  for (int i = 0; i < op->info.n_params; i++)
    if (op->info.params[i].kind == FL_P_RNG && op->info.params[i].slot == k)
      return true;
  return false;
}

/* Whether an earlier launch has drawn from there: gradients draw again. */
static bool is_drawn(const fli_trace *t, uint64_t rel) {
  for (uint32_t k = 0; k < t->n_numbers; k++)
    if (t->numbers[k].draws && (uint64_t)t->numbers[k].operand.i == rel)
      return true;
  return false;
}

static uint32_t count_numbers(const fli_window *w) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < w->n_args; k++)
    n += w->args[k].slot == FLI_ARG_NUMBER;
  return n;
}

/* A number must be what it was in the call before, or move with the generator.
 */
static void trace_number(tracing *k, uint32_t entry, int operand, int64_t was) {
  const fli_entry *e = &k->w->entries[entry];
  uint32_t arg = e->arg + (uint32_t)operand;
  fl_operand o = k->w->args[arg].operand;
  uint64_t rel = (uint64_t)o.i - k->u->offset;
  bool draws = o.i != was && rel < k->t->draws &&
               (uint64_t)was - k->u->last_offset == rel &&
               (is_rng(e->op, operand) || is_drawn(k->t, rel));
  if (o.i != was && !draws && !in_live(k->u, entry))
    trace_fails(k, e->site,
                "a number that %s gets changes from call to call; give it as "
                "a tensor that is changed in place",
                e->op->info.name);
  if (draws)
    o.i = (int64_t)rel;
  k->t->numbers[k->t->n_numbers++] = (fli_trace_number){arg, o, draws};
}

static void trace_numbers(tracing *k) {
  uint32_t at = 0;
  k->t->numbers =
      fli_malloc(k->rt, count_numbers(k->w) * sizeof *k->t->numbers + 1);
  if (!k->t->numbers) {
    k->failed = true;
    return;
  }
  for (uint32_t i = 0; i < k->w->n; i++) {
    const fli_entry *e = &k->w->entries[i];
    for (int j = 0; j < e->n_in; j++)
      if (k->w->args[e->arg + (uint32_t)j].slot == FLI_ARG_NUMBER)
        trace_number(k, i, j, k->u->numbers[at++]);
  }
}

#define WALK 1024 /* nodes to visit; more are taken for history */

/* Whether backward could go through t: it could not through a node that has
 * released what it saved. */
static bool has_history(const fl_tensor *t) {
  fl_runtime *rt = t->rt;
  fl_node *stack[WALK];
  int n = 0;
  if (!t->node)
    return false;
  stack[n++] = t->node;
  rt->pass++;
  while (n) {
    fl_node *at = stack[--n];
    if (at->released)
      return false;
    at->pass = rt->pass;
    for (int k = 0; k < at->n_in && n < WALK; k++)
      if (at->edges[k].node && at->edges[k].node->pass != rt->pass)
        stack[n++] = at->edges[k].node;
  }
  return true;
}

static bool is_result(const struct fli_pure *u, const fl_tensor *t) {
  for (uint32_t k = 0; k < u->n_results; k++)
    if (u->results[k] == t)
      return true;
  return false;
}

static int input_of(const struct fli_pure *u, const fl_tensor *t) {
  for (uint32_t k = 0; k < u->n_inputs; k++)
    if (u->inputs[k] == t)
      return (int)k;
  return -1;
}

static int input_at(const struct fli_pure *u, const fl_storage *s) {
  for (uint32_t k = 0; k < u->n_inputs; k++)
    if (u->inputs[k]->storage == s)
      return (int)k;
  return -1;
}

/* A tensor of the runtime lies in slot `s`; `known` counts those of each slot.
 */
static void trace_tensor(tracing *k, fl_tensor *x, uint32_t slot,
                         uint32_t *known) {
  fli_trace_slot *s = &k->t->slots[slot];
  if (!s->slot.made) {
    if (s->kind == FLI_TRACE_OUTER && (!s->t || (s->t->is_view && !x->is_view)))
      s->t = x;
    return;
  }
  known[slot]++;
  if (has_history(x))
    trace_fails(k, slot_site(k->w, slot),
                "a result would need the function for its gradient; compute "
                "gradients inside of it, or call it in flare.no_grad");
  if (is_result(k->u, x)) {
    if (s->kind == FLI_TRACE_INNER)
      s->kind = FLI_TRACE_FRESH;
    return;
  }
  s->kind = FLI_TRACE_KEPT;
  s->t = x;
}

/* Memory that only the window holds: the trace gets a tensor for it. */
static void trace_value(tracing *k, fli_trace_slot *s) {
  fl_meta m = {.dtype = FL_BOOL, .ndim = 1};
  m.shape[0] = (int64_t)s->s->bytes;
  s->kind = FLI_TRACE_VALUE;
  if (fli_tensor_header(k->rt, &s->t)) {
    k->failed = true;
    return;
  }
  fli_tensor_set_shape(s->t, &m);
  fli_storage_retain(s->s);
  fli_tensor_attach(s->t, s->s);
}

static void trace_slots(tracing *k) {
  fli_window *w = k->w;
  uint32_t *known = fli_malloc(k->rt, w->n_slots * sizeof *known + 1);
  k->t->slots = fli_malloc(k->rt, w->n_slots * sizeof *k->t->slots + 1);
  if (!known || !k->t->slots) {
    k->failed = true;
    fli_mfree(known);
    return;
  }
  memset(known, 0, w->n_slots * sizeof *known);
  for (uint32_t i = 0; i < w->n_slots; i++) {
    fli_trace_slot *s = &k->t->slots[i];
    const fl_storage *at = w->slots[i].s;
    *s = (fli_trace_slot){
        .slot = w->slots[i], .s = w->slots[i].s, .device = at->device};
    s->slot.s = NULL;
    s->input = s->slot.made ? -1 : input_at(k->u, at);
    s->kind = s->slot.made    ? FLI_TRACE_INNER
              : s->input >= 0 ? FLI_TRACE_INPUT
                              : FLI_TRACE_OUTER;
    if (s->input >= 0) {
      const fl_tensor *x = k->u->inputs[s->input];
      s->shift =
          s->slot.base - x->offset * (int64_t)fl_dtype_size(x->meta.dtype);
    }
  }
  k->t->n_slots = w->n_slots;
  for (fl_tensor *x = k->rt->tensors; x; x = x->next)
    if (x->storage && x->storage->window == w->epoch)
      trace_tensor(k, x, x->storage->slot, known);
  for (uint32_t i = 0; i < w->n_slots; i++) {
    fli_trace_slot *s = &k->t->slots[i];
    if (s->t)
      fl_tensor_retain(s->t);
    else if (s->kind == FLI_TRACE_OUTER)
      trace_value(k, s);
    if (s->slot.made && (int)known[i] != fli_storage_owners(w->slots[i].s))
      trace_fails(k, slot_site(w, i),
                  "something besides tensors holds a result");
  }
  fli_mfree(known);
}

static void trace_writes(tracing *k) {
  const fli_window *w = k->w;
  for (uint32_t i = 0; i < w->n; i++) {
    const fli_entry *e = &w->entries[i];
    if (in_live(k->u, i))
      continue;
    for (int j = 0; j < e->n_in + e->n_out; j++) {
      int slot = w->args[e->arg + (uint32_t)j].slot;
      if (slot < 0 || k->t->slots[slot].slot.made ||
          (j < e->n_in &&
           !fli_op_writes(e->op, fli_entry_attrs(w, e), e->n_in, j)))
        continue;
      if (k->t->slots[slot].kind == FLI_TRACE_VALUE)
        trace_fails(k, e->site,
                    "%s writes memory that nothing refers to after the call",
                    e->op->info.name);
      k->t->slots[slot].writes++;
      k->t->slots[slot].write_site = e->site;
    }
  }
}

/* What the last call has left in memory of its own must not be read by the
 * next, which would overwrite it. */
static void trace_carried(tracing *k) {
  for (uint32_t i = 0; i < k->t->n_slots; i++)
    for (uint32_t j = 0; j < k->u->n_kept; j++)
      if (!k->t->slots[i].slot.made &&
          k->u->kept[j]->storage == k->t->slots[i].s)
        trace_fails(k, slot_site(k->w, i),
                    "it reads a tensor that the call before has made (a "
                    "gradient that it adds to, a variable that it replaces); "
                    "change such tensors in place, and clear gradients");
}

static void trace_results(tracing *k) {
  const struct fli_pure *u = k->u;
  fli_trace *t = k->t;
  t->results = fli_malloc(k->rt, u->n_results * sizeof *t->results + 1);
  if (!t->results) {
    k->failed = true;
    return;
  }
  for (uint32_t i = 0; i < u->n_results; i++) {
    fl_tensor *x = u->results[i];
    bool here = x->storage && x->storage->window == k->w->epoch;
    fli_trace_result *r = &t->results[t->n_results++];
    *r = (fli_trace_result){.input = input_of(u, x), .slot = -1};
    if (r->input >= 0)
      continue;
    const fli_trace_slot *s = here ? &t->slots[x->storage->slot] : NULL;
    if (s && s->kind == FLI_TRACE_INPUT)
      trace_fails(k, 0, "result %u is a view of an argument", i + 1);
    if (!s || s->kind != FLI_TRACE_FRESH) {
      r->t = fl_tensor_retain(x);
      continue;
    }
    r->slot = (int)x->storage->slot;
    r->meta = x->meta;
    memcpy(r->stride, x->stride, sizeof r->stride);
    r->offset = x->offset;
  }
}

static bool new_grad(const tracing *k, const fl_tensor *leaf) {
  const fl_tensor *g = leaf->extra ? leaf->extra->grad : NULL;
  return g && g->storage && g->storage->window == k->w->epoch &&
         k->t->slots[g->storage->slot].slot.made;
}

static void trace_grads(tracing *k) {
  fli_trace *t = k->t;
  uint32_t n = 0;
  for (fl_tensor *x = k->rt->tensors; x; x = x->next)
    n += new_grad(k, x);
  t->grads = fli_malloc(k->rt, n * sizeof *t->grads + 1);
  if (!t->grads) {
    k->failed = true;
    return;
  }
  for (fl_tensor *x = k->rt->tensors; x; x = x->next) {
    if (!new_grad(k, x))
      continue;
    if (input_of(k->u, x) >= 0)
      trace_fails(k, 0, "it gives an argument a gradient");
    t->grads[t->n_grads++] =
        (fli_trace_grad){fl_tensor_retain(x), fl_tensor_retain(x->extra->grad)};
  }
}

static void trace_inputs(tracing *k) {
  const struct fli_pure *u = k->u;
  fli_trace *t = k->t;
  t->inputs = fli_malloc(k->rt, u->n_inputs * sizeof *t->inputs + 1);
  if (!t->inputs) {
    k->failed = true;
    return;
  }
  t->n_inputs = u->n_inputs;
  for (uint32_t i = 0; i < u->n_inputs; i++) {
    fl_tensor *x = u->inputs[i];
    t->inputs[i] = (fli_trace_input){
        .meta = x->meta, .requires_grad = fl_tensor_requires_grad(x)};
    memcpy(t->inputs[i].stride, x->stride, sizeof x->stride);
    if (x->storage && input_at(u, x->storage) != (int)i)
      trace_fails(k, 0, "arguments %u and %u share memory",
                  input_at(u, x->storage) + 1, i + 1);
    if (x->node && k->rt->grad_enabled)
      trace_fails(k, 0,
                  "argument %u is the result of an operator that a "
                  "gradient would go through; detach it",
                  i + 1);
  }
}

static fli_trace *trace_make(struct fli_pure *u, fli_window *w,
                             const fli_plan *p) {
  fl_runtime *rt = u->rt;
  fli_trace *t = fli_malloc(rt, sizeof *t);
  if (!t)
    return NULL;
  *t = (fli_trace){.id = p->id,
                   .device = w->device,
                   .modes = rt->modes,
                   .grad_enabled = rt->grad_enabled,
                   .autocast = rt->autocast,
                   .n = w->n,
                   .draws = rt->generator.offset - u->offset};
  tracing k = {.u = u, .rt = rt, .w = w, .p = p, .t = t};
  void (*const passes[])(tracing *) = {
      trace_inputs,  trace_numbers, trace_slots, trace_writes,
      trace_carried, trace_results, trace_grads};
  for (size_t i = 0; i < sizeof passes / sizeof *passes && !k.failed; i++)
    passes[i](&k);
  if (!k.failed)
    return t;
  trace_free(t);
  return NULL;
}

/* What the next call is compared with: its numbers, and tensors that this one
 * has made. */
static void pure_remember(struct fli_pure *u, const fli_window *w,
                          const fli_plan *p) {
  uint32_t n = count_numbers(w), at = 0, kept = 0;
  pure_forget_last(u);
  for (fl_tensor *x = u->rt->tensors; x; x = x->next)
    kept += x->storage && x->storage->window == w->epoch &&
            w->slots[x->storage->slot].made;
  u->kept = fli_malloc(u->rt, kept * sizeof *u->kept + 1);
  u->numbers = fli_malloc(u->rt, n * sizeof *u->numbers + 1);
  u->last_id = u->kept && u->numbers ? p->id : 0;
  u->last_offset = u->offset;
  for (fl_tensor *x = u->rt->tensors; x && u->last_id; x = x->next)
    if (x->storage && x->storage->window == w->epoch &&
        w->slots[x->storage->slot].made)
      u->kept[u->n_kept++] = fl_tensor_retain(x);
  for (uint32_t i = 0; i < w->n && u->last_id; i++) {
    const fli_entry *e = &w->entries[i];
    for (int j = 0; j < e->n_in; j++)
      if (w->args[e->arg + (uint32_t)j].slot == FLI_ARG_NUMBER)
        u->numbers[at++] = w->args[e->arg + (uint32_t)j].operand.i;
  }
}

void fli_pure_see(struct fli_pure *u, fli_window *w, const fli_plan *p) {
  u->windows++;
  if (u->feeding || !u->noted || u->windows > 1) {
    u->last_id = u->feeding ? u->last_id : 0;
    return;
  }
  if (u->repeats && u->last_id == p->id && u->n_traces < FLI_TRACES) {
    fli_trace *t = trace_make(u, w, p);
    if (t) {
      u->made = u->n_traces;
      u->traces[u->n_traces++] = t;
      pure_forget_last(u);
      return;
    }
  }
  pure_remember(u, w, p);
}

fl_status fl_compiled_note(fl_compiled *c, const fl_compiled_call *call) {
  FLI_NEED(c, "c");
  FLI_NEED(call, "call");
  FLI_TRY(fli_check_count(__func__, "n_in", call->n_in));
  FLI_TRY(fli_check_count(__func__, "n_out", call->n_out));
  FLI_TRY(fli_check_count(__func__, "n_lives", call->n_lives));
  if (call->n_in > 0)
    FLI_NEED(call->in, "call->in");
  if (call->n_out > 0)
    FLI_NEED(call->out, "call->out");
  if (call->n_lives > 0)
    FLI_NEED(call->lives, "call->lives");
  FLI_TRY(fli_check_tensors(__func__, "call->in", c->rt, call->n_in, call->in));
  FLI_TRY(
      fli_check_tensors(__func__, "call->out", c->rt, call->n_out, call->out));
  struct fli_pure *u = c->pure;
  if (!u || !c->window)
    return FL_OK;
  pure_forget_note(u);
  u->made = -1;
  u->why[0] = 0;
  FLI_TRY(tensors_keep(c->rt, call->in, (uint32_t)call->n_in, &u->inputs));
  u->n_inputs = (uint32_t)call->n_in;
  FLI_TRY(tensors_keep(c->rt, call->out, (uint32_t)call->n_out, &u->results));
  u->n_results = (uint32_t)call->n_out;
  u->lives = fli_malloc(c->rt, (size_t)call->n_lives * sizeof *u->lives + 1);
  if (!u->lives)
    return FL_ENOMEM;
  memcpy(u->lives, call->lives, (size_t)call->n_lives * sizeof *u->lives);
  u->n_lives = (uint32_t)call->n_lives;
  u->noted = true;
  u->repeats = call->repeats;
  return FL_OK;
}

int fl_compiled_traced(const fl_compiled *c, const char **why) {
  if (why)
    *why = c && c->pure && c->pure->why[0] ? c->pure->why : NULL;
  return c && c->pure ? c->pure->made : -1;
}

int64_t fl_compiled_position(const fl_compiled *c) {
  return c && c->window && c->window->depth == 1 ? (int64_t)c->window->n : -1;
}

/* --- calls without code --- */

static bool same_input(const fli_trace_input *i, fl_tensor *x, fl_device d) {
  if (!x->storage || x->storage->device != d || x->storage->pending ||
      x->storage->exposed || x->meta.dtype != i->meta.dtype ||
      x->meta.ndim != i->meta.ndim || (x->node && x->rt->grad_enabled) ||
      fl_tensor_requires_grad(x) != i->requires_grad)
    return false;
  for (int k = 0; k < x->meta.ndim; k++)
    if (x->meta.shape[k] != i->meta.shape[k] || x->stride[k] != i->stride[k])
      return false;
  return true;
}

static bool trace_allowed(const fl_compiled *c, const fli_trace *t) {
  const fl_runtime *rt = c->rt;
  return c->window && c->window->depth == 1 && c->window->n == 0 &&
         rt->modes == t->modes && rt->grad_enabled == t->grad_enabled &&
         rt->autocast == t->autocast && !rt->meta && !rt->anomaly &&
         !rt->capture && !rt->profile && !rt->rehearsal &&
         !(rt->watch & FLI_WATCH_RACES);
}

/* Where slot k of the call lies; NULL: nowhere. */
static fl_storage *bind_slot(const fli_trace *t, uint32_t k,
                             fl_tensor *const *in, int64_t *base) {
  const fli_trace_slot *s = &t->slots[k];
  const fl_tensor *x = s->kind == FLI_TRACE_INPUT ? in[s->input] : s->t;
  *base = s->slot.base;
  if (!x->storage || x->storage->exposed || x->storage->pending)
    return NULL;
  if (s->kind != FLI_TRACE_INPUT)
    return x->storage == s->s ? x->storage : NULL;
  *base = x->offset * (int64_t)fl_dtype_size(x->meta.dtype) + s->shift;
  return *base % FLI_WINDOW_ALIGN == 0 && x->storage->bytes >= s->slot.bytes
             ? x->storage
             : NULL;
}

/* Older memory of the call: each slot has a storage of its own, and arguments
 * that share one are those that shared it. */
static bool trace_binds(const fl_compiled *c, const fli_trace *t,
                        fl_tensor *const *in) {
  uint32_t mark = ++c->rt->epochs; /* no window has it */
  int64_t base;
  for (uint32_t k = 0; k < t->n_slots; k++) {
    fl_storage *s;
    if (t->slots[k].kind <= FLI_TRACE_FRESH)
      continue;
    if (!(s = bind_slot(t, k, in, &base)) || s->window == mark)
      return false;
    s->window = mark;
    s->slot = k;
  }
  for (uint32_t k = 0; k < t->n_inputs; k++) {
    fl_storage *s = in[k]->storage;
    if (s->window != mark)
      continue;
    const fli_trace_slot *slot = &t->slots[s->slot];
    if (slot->kind != FLI_TRACE_INPUT || slot->input != (int)k)
      return false; /* it shared no memory when it was traced */
  }
  c->window->epoch = ++c->rt->epochs;
  return true;
}

static fl_status slot_storage(fl_compiled *c, const fli_trace_slot *s,
                              fl_storage **to) {
  if (s->kind == FLI_TRACE_INNER || s->kind == FLI_TRACE_FRESH)
    return fli_storage_pending(c->rt, s->slot.bytes, s->device, to);
  *to = s->s;
  if (s->kind == FLI_TRACE_KEPT && !(*to)->pending) {
    fli_storage_empty(c->rt, *to);
    (*to)->version++;
  }
  fli_storage_retain(*to);
  return FL_OK;
}

/* Slots [w->n_slots, n) get their storages; *in are the arguments. */
static fl_status feed_slots(fl_compiled *c, const fli_trace *t, uint32_t n) {
  fli_window *w = c->window;
  if (!fli_window_room(c->rt, &w->slots, &w->slots_room, n, sizeof *w->slots))
    return FL_ENOMEM;
  while (w->n_slots < n) {
    const fli_trace_slot *s = &t->slots[w->n_slots];
    fli_slot *slot = &w->slots[w->n_slots];
    *slot = s->slot;
    if (s->kind == FLI_TRACE_INPUT) {
      slot->s = bind_slot(t, w->n_slots, c->pure->inputs, &slot->base);
      fli_storage_retain(slot->s);
    } else
      FLI_TRY(slot_storage(c, s, &slot->s));
    slot->s->window = w->epoch;
    slot->s->slot = w->n_slots++;
    if (s->writes) {
      slot->s->version += s->writes;
      slot->s->write_site = s->write_site;
    }
  }
  return FL_OK;
}

static void feed_numbers(fli_window *w, const fli_trace *t, uint64_t offset,
                         uint32_t from, uint32_t to) {
  for (uint32_t k = 0; k < t->n_numbers; k++) {
    const fli_trace_number *x = &t->numbers[k];
    if (x->arg < from || x->arg >= to)
      continue;
    w->args[x->arg].operand = x->operand;
    if (x->draws)
      w->args[x->arg].operand.i += (int64_t)offset;
  }
}

static fli_plan *plan_with(const fl_compiled *c, uint64_t id) {
  for (int k = 0; k < c->n_plans; k++)
    if (c->plans[k]->id == id)
      return c->plans[k];
  return NULL;
}

fl_status fl_compiled_enter(fl_compiled *c, int trace, int n,
                            fl_tensor *const *in, bool *fits) {
  FLI_NEED(c, "c");
  FLI_NEED(fits, "fits");
  FLI_TRY(fli_check_count(__func__, "n", n));
  FLI_TRY(fli_check_tensors(__func__, "in", c->rt, n, in));
  struct fli_pure *u = c->pure;
  *fits = false;
  if (!u || trace < 0 || trace >= u->n_traces)
    return FL_OK;
  fli_trace *t = u->traces[trace];
  const fli_plan *p = plan_with(c, t->id);
  if (!p || !trace_allowed(c, t) || (uint32_t)n != t->n_inputs)
    return FL_OK;
  for (int k = 0; k < n; k++)
    if (!same_input(&t->inputs[k], in[k], t->device))
      return FL_OK;
  if (!trace_binds(c, t, in))
    return FL_OK;
  pure_forget_note(u);
  FLI_TRY(tensors_keep(c->rt, in, (uint32_t)n, &u->inputs));
  u->n_inputs = (uint32_t)n;
  for (uint32_t k = 0; k < t->n_grads; k++)
    if (fl_tensor_grad(t->grads[k].leaf) != t->grads[k].grad)
      FLI_TRY(fl_tensor_set_grad(t->grads[k].leaf, t->grads[k].grad));
  u->feeding = t;
  u->entered++;
  fli_window_expect(c->window, p);
  fli_window_begin(c->window, t->device);
  *fits = c->window->follows;
  return FL_OK;
}

fl_status fl_compiled_feed(fl_compiled *c, int64_t from, int64_t upto) {
  FLI_NEED(c, "c");
  fli_trace *t = c->pure ? c->pure->feeding : NULL;
  fli_window *w = c->window;
  if (t && (upto > (int64_t)t->n || (upto >= 0 && upto < from)))
    return fli_fail(FL_EARG, "the trace has %u launches, not %lld", t->n,
                    (long long)upto);
  if (!t || !w || !w->follows || (int64_t)w->n != from)
    return fli_fail(FL_EUNSUPPORTED,
                    "compile: {pure = true}: what runs again in each call (the "
                    "step of an optimizer) has launched other kernels than "
                    "when the function was traced");
  uint32_t to = upto < 0 ? t->n : (uint32_t)upto;
  const fli_recording *r = &w->next;
  uint32_t args = to < r->n ? w->entries[to].arg : r->n_args, slots = 0;
  for (uint32_t k = w->n_args; k < args; k++)
    if (w->args[k].slot >= (int)slots)
      slots = (uint32_t)w->args[k].slot + 1;
  FLI_TRY(feed_slots(c, t, slots));
  feed_numbers(w, t, c->pure->offset, w->n_args, args);
  for (uint32_t k = 0; k < w->n_slots && to == t->n; k++)
    w->slots[k].last = t->slots[k].slot.last;
  if (to == t->n)
    c->rt->generator.offset = c->pure->offset + t->draws;
  w->n = to;
  w->n_args = args;
  w->n_words = to < r->n ? w->entries[to].attrs : r->n_words;
  return FL_OK;
}

/* A new tensor over the memory of a slot. */
static fl_status result_new(fl_compiled *c, const fli_trace_result *r,
                            fl_tensor **out) {
  fl_storage *s = c->window->slots[r->slot].s;
  FLI_TRY(fli_tensor_header(c->rt, out));
  fli_tensor_set_shape(*out, &r->meta);
  fli_tensor_set_strides(*out, r->stride);
  (*out)->offset = r->offset;
  fli_storage_retain(s);
  fli_tensor_attach(*out, s);
  return FL_OK;
}

fl_status fl_compiled_results(fl_compiled *c, int *n, fl_tensor *const **list) {
  FLI_NEED(c, "c");
  FLI_NEED(n, "n");
  FLI_NEED(list, "list");
  struct fli_pure *u = c->pure;
  const fli_trace *t = u ? u->feeding : NULL;
  *n = 0;
  if (!t || !c->window)
    return FL_OK;
  if (!(u->results = fli_malloc(c->rt, t->n_results * sizeof *u->results + 1)))
    return FL_ENOMEM;
  for (uint32_t k = 0; k < t->n_results; k++) {
    const fli_trace_result *r = &t->results[k];
    if (r->t || r->input >= 0)
      u->results[k] = fl_tensor_retain(r->t ? r->t : u->inputs[r->input]);
    else
      FLI_TRY(result_new(c, r, &u->results[k]));
    u->n_results++;
  }
  *n = (int)u->n_results;
  *list = u->results;
  return FL_OK;
}
