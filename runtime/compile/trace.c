/* Traces of pure functions (pure.c): what the launches of a call have to do
 * with the world outside of it, or why that cannot be done without the code. */
#include "pure.h"

#include "../tape/tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fli_trace_free(fli_trace *t) {
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

/* Operand k as a row that draws declares it: a seed, then an offset. */
static fli_trace_draw draw_of(const fl_op *op, int k) {
  fli_trace_draw draw = FLI_TRACE_SEED;
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *p = &op->info.params[i];
    if (p->kind == FL_P_RNG && p->slot == k)
      return draw;
    if (p->kind == FL_P_RNG)
      draw = FLI_TRACE_OFFSET;
  }
  return FLI_TRACE_NUMBER;
}

/* Whether an earlier launch has drawn from there: gradients draw again. */
static bool is_drawn(const fli_trace *t, uint64_t rel) {
  for (uint32_t k = 0; k < t->n_numbers; k++)
    if (t->numbers[k].draw == FLI_TRACE_OFFSET &&
        (uint64_t)t->numbers[k].operand.i == rel)
      return true;
  return false;
}

uint32_t fli_trace_count(const fli_window *w) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < w->n_args; k++)
    n += w->args[k].slot == FLI_ARG_NUMBER;
  return n;
}

/* Whether operands `at` and the next are the generator's seed and a number that
 * was drawn in this call, as they were in the one before. */
static bool is_pair(const tracing *k, const fli_entry *e, int at,
                    const int64_t *was) {
  const struct fli_pure *u = k->u;
  const fli_arg *a = &k->w->args[e->arg + (uint32_t)at];
  if (at < 0 || at + 1 >= e->n_in || a[0].slot != FLI_ARG_NUMBER ||
      a[1].slot != FLI_ARG_NUMBER)
    return false;
  uint64_t rel = (uint64_t)a[1].operand.i - u->generator.offset;
  return (uint64_t)a[0].operand.i == u->generator.seed &&
         (uint64_t)was[0] == u->last_generator.seed && rel < k->t->draws &&
         (uint64_t)was[1] - u->last_generator.offset == rel &&
         (draw_of(e->op, at) == FLI_TRACE_SEED || is_drawn(k->t, rel));
}

/* A number must be what it was in the call before, or the generator's. */
static void trace_number(tracing *k, uint32_t entry, int operand,
                         const int64_t *was) {
  const fli_entry *e = &k->w->entries[entry];
  uint32_t arg = e->arg + (uint32_t)operand;
  fl_operand o = k->w->args[arg].operand;
  fli_trace_draw draw = is_pair(k, e, operand, was) ? FLI_TRACE_SEED
                        : is_pair(k, e, operand - 1, was - 1)
                            ? FLI_TRACE_OFFSET
                            : FLI_TRACE_NUMBER;
  if (draw == FLI_TRACE_NUMBER && o.i != *was && !in_live(k->u, entry))
    trace_fails(k, e->site,
                "a number that %s gets changes from call to call; give it as "
                "a tensor that is changed in place",
                e->op->info.name);
  if (draw == FLI_TRACE_OFFSET)
    o.i -= (int64_t)k->u->generator.offset;
  k->t->numbers[k->t->n_numbers++] = (fli_trace_number){arg, o, draw};
}

static void trace_numbers(tracing *k) {
  uint32_t at = 0;
  k->t->numbers =
      fli_malloc(k->rt, fli_trace_count(k->w) * sizeof *k->t->numbers + 1);
  if (!k->t->numbers) {
    k->failed = true;
    return;
  }
  for (uint32_t i = 0; i < k->w->n; i++) {
    const fli_entry *e = &k->w->entries[i];
    for (int j = 0; j < e->n_in; j++)
      if (k->w->args[e->arg + (uint32_t)j].slot == FLI_ARG_NUMBER)
        trace_number(k, i, j, &k->u->numbers[at++]);
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

/* Which bytes of arguments' memory launches touch. */
static void trace_reach(tracing *k) {
  const fli_window *w = k->w;
  for (uint32_t i = 0; i < w->n_args; i++) {
    const fli_arg *a = &w->args[i];
    if (a->slot < 0 || k->t->slots[a->slot].kind != FLI_TRACE_INPUT)
      continue;
    int64_t low = a->offset, high = a->offset + 1;
    for (int j = 0; j < a->meta.ndim; j++) {
      int64_t far = (a->meta.shape[j] - 1) * a->stride[j];
      *(far < 0 ? &low : &high) += a->meta.shape[j] ? far : 0;
    }
    fli_trace_slot *s = &k->t->slots[a->slot];
    int64_t size = (int64_t)fl_dtype_size(a->meta.dtype);
    s->low = low * size < s->low ? low * size : s->low;
    s->high = high * size > s->high ? high * size : s->high;
  }
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

fli_trace *fli_trace_make(struct fli_pure *u, fli_window *w,
                          const fli_plan *p) {
  fl_runtime *rt = u->rt;
  fli_trace *t = fli_malloc(rt, sizeof *t);
  if (!t)
    return NULL;
  *t = (fli_trace){.id = p->id,
                   .device = w->device,
                   .modes = rt->modes,
                   .moves = rt->moves,
                   .grad_enabled = rt->grad_enabled,
                   .autocast = rt->autocast,
                   .n = w->n,
                   .draws = rt->generator.offset - u->generator.offset};
  tracing k = {.u = u, .rt = rt, .w = w, .p = p, .t = t};
  if (rt->generator.seed != u->generator.seed)
    trace_fails(&k, 0, "it sets the seed of the random numbers");
  void (*const passes[])(tracing *) = {
      trace_inputs, trace_numbers, trace_slots,   trace_reach,
      trace_writes, trace_carried, trace_results, trace_grads};
  for (size_t i = 0; i < sizeof passes / sizeof *passes && !k.failed; i++)
    passes[i](&k);
  if (!k.failed)
    return t;
  fli_trace_free(t);
  return NULL;
}
