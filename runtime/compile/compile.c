/* Compiled functions: they remember the windows of their runs, have a plan made
 * for a window that occurs again, and run it by its plan. */
#include "chunk.h"
#include "pure.h"
#include "recompute.h"
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MISSES  64 /* calls without a plan before it gives up */
#define RECENT  8  /* runs that say what a plan has to hold */
#define STARVES 3  /* times that it may need more memory than there is */
#define SHRINKS 4  /* times that it may hold less than before */

/* --- the windows of earlier runs --- */

static bool same_entry(const fli_entry *a, const fli_entry *b) {
  return a->op == b->op && a->base == b->base && a->n_in == b->n_in &&
         a->n_out == b->n_out && a->common == b->common && a->arg == b->arg &&
         a->attrs == b->attrs;
}

static bool same_made(const fli_plan *p, const fli_window *w) {
  for (uint32_t k = 0; k < p->n_slots; k++)
    if (p->made[k] != w->slots[k].made)
      return false;
  return true;
}

/* Whether p was made for a window with the launches, operands and attributes of
 * w. */
static bool plan_fits(const fli_plan *p, const fli_window *w) {
  if (w->has == p->id) /* compared when the launches came */
    return same_made(p, w);
  if (p->hash != w->hash || p->n != w->n || p->n_args != w->n_args ||
      p->n_words != w->n_words || p->n_slots != w->n_slots ||
      p->device != w->device)
    return false;
  for (uint32_t i = 0; i < p->n; i++)
    if (!same_entry(&p->entries[i], &w->entries[i]))
      return false;
  for (uint32_t k = 0; k < p->n_args; k++)
    if (!fli_same_region(&p->args[k], &w->args[k]))
      return false;
  return same_made(p, w) &&

         memcmp(p->words, w->words, p->n_words * sizeof *p->words) == 0;
}

void fli_plan_unbuild(fli_plan *p) {
  for (uint32_t i = 0; i < p->n_steps; i++)
    fli_loop_free(p->steps[i].loop);
  fli_mfree(p->steps);
  fli_mfree(p->numbers);
  fli_mfree(p->operands);
  fli_mfree(p->moved);
  fli_mfree(p->members);
  fli_mfree(p->repeats);
  fli_mfree(p->repeat_args);
  fli_mfree(p->copies);
  fli_replay_free(p->replay);
  p->replay = NULL;
  p->warm = 0;
  p->plain = false;
  p->steps = NULL;
  p->numbers = NULL;
  p->operands = NULL;
  p->moved = NULL;
  p->members = NULL;
  p->repeats = NULL;
  p->repeat_args = NULL;
  p->copies = NULL;
  p->n_repeats = p->n_repeat_args = p->n_copies = 0;
  p->n_steps = p->n_numbers = p->n_operands = p->n_moved = 0;
  p->n_members = 0;
  p->built = p->failed = false;
  p->prepared = 0;
}

/* Adds the slots that w holds to those that p holds. Slots that no recent run
 * has held are dropped: a run whose garbage was not yet collected may have held
 * them. */
static void plan_holds(fli_plan *p, const fli_window *w) {
  bool grows = false, shrinks = false;
  for (uint32_t k = 0; k < p->n_slots; k++) {
    grows |= w->slots[k].held && !p->held[k];
    p->held[k] |= w->slots[k].held;
    p->lately[k] |= w->slots[k].held;
    shrinks |= p->held[k] && !p->lately[k];
  }
  if (++p->recent == RECENT) {
    shrinks = shrinks && p->shrunk < SHRINKS;
    if (shrinks) {
      memcpy(p->held, p->lately, p->n_slots);
      p->shrunk++;
    }
    memset(p->lately, 0, p->n_slots);
    p->recent = 0;
  } else
    shrinks = false;
  if (grows || shrinks) {
    fli_recompute_forget(p);
    fli_plan_unbuild(p);
  }
}

void fli_plan_free(fli_plan *p) {
  fli_recompute_forget(p);
  fli_plan_unbuild(p);
  fli_mfree(p->entries);
  fli_mfree(p->args);
  fli_mfree(p->words);
  fli_mfree(p->held);
  fli_mfree(p);
}

static void *copy_of(fl_runtime *rt, const void *from, size_t bytes) {
  void *to = fli_malloc(rt, bytes ? bytes : 1);
  return to ? memcpy(to, from, bytes) : NULL;
}

fli_plan *fli_plan_new(const fli_window *w) {
  fl_runtime *rt = w->rt;
  fli_plan *p = fli_malloc(rt, sizeof *p);
  if (!p)
    return NULL;
  *p = (fli_plan){.id = ++rt->recordings,
                  .hash = w->hash,
                  .device = w->device,
                  .n = w->n,
                  .n_args = w->n_args,
                  .n_words = w->n_words,
                  .n_slots = w->n_slots};
  p->entries = copy_of(rt, w->entries, w->n * sizeof *w->entries);
  p->args = copy_of(rt, w->args, w->n_args * sizeof *w->args);
  p->words = copy_of(rt, w->words, w->n_words * sizeof *w->words);
  p->held = fli_malloc(rt, 5 * (size_t)w->n_slots + 1); /* two with copies */
  if (!p->entries || !p->args || !p->words || !p->held) {
    fli_plan_free(p);
    return NULL;
  }
  p->made = p->held + 2 * (size_t)w->n_slots;
  p->lately = p->made + 2 * (size_t)w->n_slots;
  memset(p->lately, 0, w->n_slots);
  for (uint32_t k = 0; k < w->n_slots; k++) {
    p->held[k] = w->slots[k].held;
    p->made[k] = w->slots[k].made;
  }
  return p;
}

/* p is about to be freed. */
static void plan_expect_not(fl_compiled *c, const fli_plan *p) {
  for (int k = 0; k < c->n_plans; k++)
    if (c->plans[k]->next == p)
      c->plans[k]->next = NULL;
  c->start = c->start == p ? NULL : c->start;
  c->last = c->last == p ? NULL : c->last;
}

static void plans_free(fl_compiled *c) {
  for (int k = 0; k < c->n_plans; k++)
    fli_plan_free(c->plans[k]);
  c->n_plans = 0;
  c->start = c->last = NULL;
}

/* The plan for windows like w; a new one takes the place of the least recently
 * used. */
static fli_plan *plan_of(fl_compiled *c, const fli_window *w) {
  int oldest = 0;
  for (int k = 0; k < c->n_plans; k++) {
    if (plan_fits(c->plans[k], w))
      return c->plans[k];
    if (c->plans[k]->turn < c->plans[oldest]->turn)
      oldest = k;
  }
  fli_plan *p = fli_plan_new(w);
  if (!p)
    return NULL;
  if (c->n_plans < FLI_PLANS)
    c->plans[c->n_plans++] = p;
  else {
    plan_expect_not(c, c->plans[oldest]);
    fli_plan_free(c->plans[oldest]);
    c->plans[oldest] = p;
  }
  return p;
}

void fli_window_expect(fli_window *w, const fli_plan *p) {
  w->next = (fli_recording){0};
  if (p)
    w->next = (fli_recording){.id = p->id,
                              .hash = p->hash,
                              .n = p->n,
                              .n_args = p->n_args,
                              .n_words = p->n_words,
                              .n_slots = p->n_slots,
                              .entries = p->entries,
                              .args = p->args,
                              .words = p->words};
}

/* --- running --- */

void fli_plan_view(const fli_window *w, const fli_fused_operand *o,
                   fl_view *v) {
  if (o->slot < 0) {
    fli_window_view(w, &w->args[o->number], FL_NODTYPE, v);
    return;
  }
  v->dtype = o->meta.dtype;
  v->ndim = o->meta.ndim;
  v->data = fli_slot_data(&w->slots[o->slot], o->meta.dtype, o->offset);
  for (int i = 0; i < v->ndim; i++) {
    v->shape[i] = o->meta.shape[i];
    v->stride[i] = o->stride[i];
  }
}

static fl_status run_fused(fli_window *w, const fli_plan *p,
                           const fli_step *x) {
  fl_view views[FL_TILE_OPERANDS];
  const fl_meta *metas[2] = {NULL, NULL};
  const fli_fused_operand *o = p->operands + x->operands;
  for (int i = 0; i < x->n_in + x->n_out; i++) {
    fli_plan_view(w, &o[i], &views[i]);
    if (i < 2 && i < x->n_in)
      metas[i] = &o[i].meta;
  }
  fl_launch l = {.n_in = x->n_in,
                 .n_out = x->n_out,
                 .in = views,
                 .out = views + x->n_in,
                 .tile = x->tile,
                 .attrs = &x->op->defaults};
  return fli_window_send(w, &w->entries[x->entry], x->op, &l, metas);
}

fl_status fli_plan_step(fli_window *w, const fli_plan *p, const fli_step *x) {
  return x->loop     ? fli_loop_run(w, x->loop)
         : x->list   ? fli_plan_list(w, p, x)
         : x->leader ? fli_plan_epilogue(w, p, x)
         : x->op     ? run_fused(w, p, x)
                     : fli_window_run(w, x->entry);
}

static bool step_changes(const fli_window *w, const fli_plan *p,
                         const fli_step *x) {
  if (x->loop)
    return fli_loop_changes(w, x->loop);
  bool changes = !x->op && fli_window_changes(w, x->entry);
  for (int k = 0; k < (x->op ? x->n_out : 0); k++)
    changes |= !w->slots[p->operands[(int)x->operands + x->n_in + k].slot].made;
  return changes;
}

static fl_status plan_move(fli_window *w, const fli_plan *p) {
  for (uint32_t i = 0; i < p->n_moved; i++) {
    fli_arg *a = &w->args[p->moved[i].arg];
    a->slot = p->moved[i].slot;
    a->offset = p->moved[i].offset;
    memcpy(a->stride, p->moved[i].stride, sizeof a->stride);
  }
  return fli_plan_extend(w, p);
}

/* The operands are again where the window has them. */
static void plan_move_back(fli_window *w, const fli_plan *p) {
  for (uint32_t i = 0; i < p->n_moved; i++)
    if (p->moved[i].arg < p->n_args) /* not of a launch that runs again */
      w->args[p->moved[i].arg] = p->args[p->moved[i].arg];
}

fl_status fli_plan_run(fli_window *w, const fli_plan *p) {
  fl_status first = FL_OK;
  FLI_TRY(plan_move(w, p));
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const fli_step *x = &p->steps[i];
    fl_status s = FL_OK;
    for (uint32_t k = 0; k < x->n_made && s == FL_OK; k++) {
      fl_storage *made = w->slots[p->numbers[x->made + k]].s;
      if (made->pending)
        s = fli_storage_fill(w->rt, made, w->entries[x->entry].site);
    }
    if (w->rt->profile && !x->loop)
      fli_explain_step(w, p, x);
    if (s == FL_OK && !(first && step_changes(w, p, x)))
      s = fli_plan_step(w, p, x);
    if (s && !first)
      first = s;
    if (s == FL_ENOMEM)
      return first;
    for (uint32_t k = 0; k < x->n_last; k++) {
      fli_slot *slot = &w->slots[p->numbers[x->last + k]];
      fl_storage *gone = slot->s;
      slot->s = NULL;
      fli_storage_release(gone);
    }
  }
  return first;
}

/* --- whether plans win (trial.c) --- */

static uint64_t trial_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool trial_runs(const fl_compiled *c) {
  return !c->off && !c->pure && !c->first && !c->check && !c->memory &&
         !c->trial.done;
}

/* A window of this call runs by a plan. Calls with several windows, or another
 * one than the call before, say nothing. */
static void trial_sees(fl_compiled *c, const fli_window *w) {
  if (!trial_runs(c))
    return;
  c->trial.spoiled = c->trial.hash || w->device != 0;
  c->trial.hash = w->hash;
}

static void trial_begin(fl_compiled *c) {
  if (!trial_runs(c) || c->rt->window)
    return;
  fli_trial_next(&c->trial);
  c->trial.begun = trial_clock();
}

static void trial_end(fl_compiled *c) {
  if (!trial_runs(c) || c->rt->window)
    return;
  fli_trial_add(&c->trial, trial_clock() - c->trial.begun);
  c->off = c->trial.lost;
}

/* There was no memory for its first launch, and garbage has been collected by
 * now: what is held is less. The window runs without a plan, which needs less
 * at once; the plan is made anew, or given up. */
static void plan_starves(fli_plan *p, fli_window *w) {
  plan_move_back(w, p);
  for (uint32_t k = 0; k < w->n_slots; k++)
    p->held[k] = w->slots[k].held = fli_slot_held(&w->slots[k]);
  fli_plan_unbuild(p);
  p->failed = ++p->starved >= STARVES;
}

/* Whether calls go on without their plan until it is ready. */
static bool plan_waits(const fl_compiled *c, const fli_window *w) {
  return !(c->wait || c->first || c->check || c->memory || w->rt->capture ||
           w->rt->rehearsal);
}

#define MANY 256 /* launches: fewer are planned in a moment */

/* Makes the steps of the plan; false: there are none. Backends that make
 * kernels beside the program have plans made in slices, too. */
static bool plan_built(fl_compiled *c, fli_plan *p, const fli_window *w) {
  bool slices =
      w->n > MANY && plan_waits(c, w) && fli_backend(w->rt, w->device)->prepare;
  bool later = false;
  if (!p->built && !p->failed) {
    fl_status s = fli_recompute(c, p, w, slices ? &later : NULL);
    c->unready += later;
    if (later)
      return false;
    p->built = s == FL_OK;
    if (!p->built) {
      fli_plan_unbuild(p);
      p->failed = true;
    }
  }
  return !p->failed;
}

/* Whether the kernels of the plan are there; if not, this call runs without it,
 * unless it must have it. */
static bool plan_ready(fl_compiled *c, fli_plan *p, const fli_window *w) {
  if (p->prepared == p->n_steps)
    return true;
  fl_status s = fli_plan_prepare(p, w);
  if (!plan_waits(c, w)) {
    p->prepared = p->n_steps; /* launches wait, and say what has failed */
    return true;
  }
  if (s) {
    snprintf(c->failure, sizeof c->failure, "%s", fl_error());
    fli_plan_unbuild(p);
    p->failed = true;
  }
  bool ready = !s && p->prepared == p->n_steps;
  c->unready += !ready;
  return ready;
}

#define ROOMS 8 /* times that a plan is made anew for less room */

/* With a cap: whether the plan may run. There may be less room than it was made
 * for. */
static bool plan_may(fl_compiled *c, fli_plan *p, const fli_window *w,
                     fl_status *status) {
  if (!c->memory)
    return true;
  size_t room = fli_cap_room(c, p, w);
  if (p->peak > room && room < p->room && p->shrunk_room++ < ROOMS) {
    fli_plan_unbuild(p);
    if (!plan_built(c, p, w))
      return true;
  }
  return fli_cap_holds(c, p, w, status);
}

static fl_status plan_run(fl_compiled *c, fli_plan *p, fli_window *w) {
  fl_status status;
  if (c->check && !w->rt->capture)
    return fli_plan_check(w, p, c->exact, fli_plan_run);
  size_t before = fli_memory_live(w->rt, w->device),
         peak = c->memory ? fli_cap_begin(w) : 0;
  FLI_TRY(plan_move(w, p));
  if (!fli_replay_run(c, w, p, &status))
    status = fli_plan_run(w, p);
  if (c->memory && fli_cap_end(c, p, w, before, peak) && status == FL_OK &&
      p->shrunk_room++ < ROOMS)
    fli_plan_unbuild(p);
  return status;
}

bool fli_compiled_plan(fli_window *w, fl_status *status) {
  fl_compiled *c = w->owner;
  c->runs++;
  fli_plan *p = plan_of(c, w);
  if (!p)
    return false; /* no memory for it: without a plan, then */
  p->turn = c->runs;
  *(c->last ? &c->last->next : &c->start) = p;
  c->last = p;
  fli_window_expect(w, p->next);
  plan_holds(p, w);
  if (c->pure)
    fli_pure_see(c->pure, w, p);
  if (p->seen++ == 0 && !c->first && !c->memory) {
    c->fresh = true;
    fli_window_prepare(w);
    return false;
  }
  bool known = p->built;
  if (p->built && p->adds && !fli_sums_allowed(w->rt, w->device))
    fli_plan_unbuild(p);
  if (!plan_built(c, p, w) || !plan_ready(c, p, w))
    return false;
  if (!plan_may(c, p, w, status))
    return true;
  if (p->failed)
    return false;
  uint64_t before = w->rt->seq;
  *status = plan_run(c, p, w);
  if (*status == FL_ENOMEM && w->rt->seq == before) {
    plan_starves(p, w);
    return false;
  }
  plan_move_back(w, p);
  c->planned++;
  c->used |= known;
  trial_sees(c, w);
  return true;
}

/* A call has ended. Where more calls are new than run by a plan that was there,
 * making recordings and plans costs more than it brings. */
static void calls_count(fl_compiled *c) {
  if (c->window)
    return;
  if (c->used)
    c->misses -= c->misses > 0;
  else if (c->fresh && ++c->misses >= MISSES && !c->off) {
    c->off = c->varies = true;
    plans_free(c);
    fli_pure_clean(c);
  }
  c->fresh = c->used = false;
}

/* --- for hosts --- */

fl_status fl_compiled_new(fl_runtime *rt, unsigned flags, fl_compiled **out) {
  FLI_NEED(rt, "rt");
  FLI_NEED(out, "out");
  FLI_TRY(fli_check_owner(rt));
  fl_compiled *c = fli_malloc(rt, sizeof *c);
  if (!c)
    return FL_ENOMEM;
  memset(c, 0, sizeof *c);
  c->rt = rt;
  c->exact = flags & FL_COMPILED_EXACT;
  c->first = flags & FL_COMPILED_FIRST;
  c->check = flags & FL_COMPILED_CHECK;
  c->no_graphs = flags & FL_COMPILED_NO_GRAPHS;
  c->again = flags & FL_COMPILED_AGAIN;
  c->wait = flags & FL_COMPILED_WAIT;
  if (flags & FL_COMPILED_PURE && fli_pure_new(c)) {
    fli_mfree(c);
    return FL_ENOMEM;
  }
  *out = c;
  return FL_OK;
}

void fl_compiled_free(fl_compiled *c) {
  if (!c)
    return;
  if (c->window) { /* other functions that are open go on without a window */
    c->window->depth = 1;
    fli_window_close(c->rt);
  }
  plans_free(c);
  fli_pure_free(c->pure);
  fli_mfree(c);
}

fl_status fl_compiled_begin(fl_compiled *c) {
  FLI_NEED(c, "c");
  FLI_TRY(fli_check_owner(c->rt));
  trial_begin(c);
  if (c->trial.plain)
    return FL_OK;
  FLI_TRY(fli_window_open(c->rt, c, &c->window));
  if (c->window && c->window->depth == 1) {
    c->last = NULL;
    fli_window_expect(c->window, c->start);
    if (c->pure) {
      c->window->whole = true;
      fli_pure_begin(c->pure);
    }
  }
  return FL_OK;
}

fl_status fl_compiled_end(fl_compiled *c) {
  FLI_NEED(c, "c");
  if (c->pure && c->window && c->window->depth == 1)
    c->window->whole = false;
  fl_status s = c->trial.plain ? FL_OK : fli_window_close(c->rt);
  fli_pure_end(c->pure);
  trial_end(c);
  calls_count(c);
  return s;
}

fl_status fl_compiled_chunk(fl_compiled *c, size_t bytes) {
  FLI_NEED(c, "c");
  c->chunk = bytes;
  return FL_OK;
}

fl_status fl_compiled_memory(fl_compiled *c, size_t bytes) {
  FLI_NEED(c, "c");
  c->memory = bytes;
  return FL_OK;
}

bool fl_compiled_waits(const fl_compiled *c) {
  return c && !c->off && !c->trial.plain;
}

void fl_compiled_get(const fl_compiled *c, fl_compiled_stats *s) {
  if (!s)
    return;
  *s = (fl_compiled_stats){0};
  if (!c)
    return;
  *s = (fl_compiled_stats){.windows = c->runs,
                           .planned = c->planned,
                           .replayed = c->replayed,
                           .traced = c->pure ? c->pure->entered : 0,
                           .traces = c->pure ? c->pure->n_traces : 0,
                           .unready = c->unready,
                           .failure = c->failure[0] ? c->failure : NULL,
                           .off = c->off,
                           .varies = c->varies,
                           .with = 1e-9 * (double)c->trial.least_with,
                           .without = 1e-9 * (double)c->trial.least_without};
  for (int k = 0; k < c->n_plans; k++) {
    const fli_plan *p = c->plans[k];
    size_t bytes;
    if (!p->built)
      continue;
    s->graphs += fli_replay_graphs(p->replay, &bytes);
    s->graph_bytes = bytes > s->graph_bytes ? bytes : s->graph_bytes;
    s->plans++;
    if (p->turn < s->turn)
      continue;
    s->turn = p->turn;
    s->launches = p->n;
    s->kernels = p->n_steps;
    s->repeats = p->n_repeats;
    s->memory = p->peak;
    s->chunks = 0;
    for (uint32_t i = 0; i < p->n_steps; i++)
      if (p->steps[i].loop)
        s->chunks += fli_loop_turns(p->steps[i].loop);
  }
}
