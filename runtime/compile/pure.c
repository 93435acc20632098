/* Pure functions: once a call has been like the one before, its launches are
 * traced, and later calls put them into the window without the function's code.
 * What the code would have changed outside of launches is changed here: the
 * generator's offset, versions of memory, gradients of leaves. */
#include "pure.h"

#include "../memory/stream.h"

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
    fli_trace_free(u->traces[k]);
  fli_mfree(u);
}

void fli_pure_end(struct fli_pure *u) {
  if (!u)
    return;
  pure_forget_note(u);
  u->feeding = NULL;
}

void fli_pure_begin(struct fli_pure *u) {
  u->generator = u->rt->generator;
  u->windows = 0;
  u->feeding = NULL;
}

/* --- traces --- */

static fli_plan *plan_with(const fl_compiled *c, uint64_t id) {
  for (int k = 0; k < c->n_plans; k++)
    if (c->plans[k]->id == id)
      return c->plans[k];
  return NULL;
}

/* Whether no later call can have t: its plan has gone, or tensors have moved.
 */
static bool trace_ended(const fl_compiled *c, const fli_trace *t) {
  return !plan_with(c, t->id) || t->moves != c->rt->moves;
}

static void trace_remove(struct fli_pure *u, int k) {
  fli_trace *t = u->traces[k];
  u->traces[k] = u->traces[--u->n_traces];
  fli_trace_free(t);
}

void fli_pure_clean(fl_compiled *c) {
  struct fli_pure *u = c->pure;
  for (int k = u ? u->n_traces : 0; k-- > 0;)
    if (u->traces[k] != u->feeding && trace_ended(c, u->traces[k]))
      trace_remove(u, k);
}

/* t takes the place of the least recently used, if there are many. */
static void trace_add(fl_compiled *c, fli_trace *t) {
  struct fli_pure *u = c->pure;
  int oldest = 0;
  fli_pure_clean(c);
  for (int k = 0; k < u->n_traces; k++)
    if (u->traces[k]->turn < u->traces[oldest]->turn)
      oldest = k;
  if (u->n_traces == FLI_TRACES)
    trace_remove(u, oldest);
  t->turn = ++u->turn;
  u->made = t->number = u->made_so_far++;
  u->traces[u->n_traces++] = t;
}

/* --- calls with code --- */

/* What the next call is compared with: its numbers, and tensors that this one
 * has made. */
static void pure_remember(struct fli_pure *u, const fli_window *w,
                          const fli_plan *p) {
  uint32_t n = fli_trace_count(w), at = 0, kept = 0;
  pure_forget_last(u);
  for (fl_tensor *x = u->rt->tensors; x; x = x->next)
    kept += x->storage && x->storage->window == w->epoch &&
            w->slots[x->storage->slot].made;
  u->kept = fli_malloc(u->rt, kept * sizeof *u->kept + 1);
  u->numbers = fli_malloc(u->rt, n * sizeof *u->numbers + 1);
  u->last_id = u->kept && u->numbers ? p->id : 0;
  u->last_generator = u->generator;
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
  if (u->repeats && u->last_id == p->id) {
    fli_trace *t = fli_trace_make(u, w, p);
    if (t) {
      trace_add(w->owner, t);
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
         rt->modes == t->modes && rt->moves == t->moves &&
         rt->grad_enabled == t->grad_enabled && rt->autocast == t->autocast &&
         !rt->meta && !rt->anomaly && !rt->capture && !rt->profile &&
         !rt->rehearsal && !(rt->watch & FLI_WATCH_RACES);
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
  return *base % FLI_WINDOW_ALIGN == 0 && *base + s->low >= 0 &&
                 *base + s->high <= (int64_t)x->storage->bytes
             ? x->storage
             : NULL;
}

static bool slots_bind(const fli_trace *t, fl_tensor *const *in,
                       uint32_t mark) {
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
  return true;
}

/* Older memory of the call: each slot has a storage of its own, and arguments
 * that share one are those that shared it. */
static bool trace_binds(const fl_compiled *c, const fli_trace *t,
                        fl_tensor *const *in) {
  bool binds = slots_bind(t, in, ++c->rt->epochs); /* no window has that mark */
  c->window->epoch = ++c->rt->epochs;
  return binds;
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

static void feed_numbers(fli_window *w, const fli_trace *t,
                         const fl_generator *g, uint32_t from, uint32_t to) {
  for (uint32_t k = 0; k < t->n_numbers; k++) {
    const fli_trace_number *x = &t->numbers[k];
    if (x->arg < from || x->arg >= to)
      continue;
    fl_operand *o = &w->args[x->arg].operand;
    *o = x->operand;
    if (x->draw == FLI_TRACE_SEED)
      o->i = (int64_t)g->seed;
    else if (x->draw == FLI_TRACE_OFFSET)
      o->i += (int64_t)g->offset;
  }
}

static fli_trace *trace_with(const struct fli_pure *u, int number) {
  for (int k = 0; u && k < u->n_traces; k++)
    if (u->traces[k]->number == number)
      return u->traces[k];
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
  fli_trace *t = trace_with(u, trace);
  if (!t)
    return FL_OK;
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
  t->turn = ++u->turn;
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
  feed_numbers(w, t, &c->pure->generator, w->n_args, args);
  for (uint32_t k = 0; k < w->n_slots && to == t->n; k++)
    w->slots[k].last = t->slots[k].slot.last;
  if (to == t->n)
    c->rt->generator.offset = c->pure->generator.offset + t->draws;
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
