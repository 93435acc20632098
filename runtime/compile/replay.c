/* Runs of plans by graphs. A graph has the addresses and numbers of its capture
 * baked in. Launches whose operands have others since are changed in the graph;
 * those that the backend cannot change must have the same ones, so a plan may
 * have several graphs, for the addresses that come again. */
#include "replay.h"

#include "../call/graph.h"
#include "../memory/capture.h"
#include "../memory/memory.h"

#include <string.h>

#define WARM     9   /* runs before: what they hold has settled by then */
#define TUNES    300 /* runs before, where kernels are being compared */
#define GRAPHS   4   /* of a plan */
#define SIGHTS   16  /* addresses remembered that had no graph */
#define CAPTURES 24  /* of a plan, at most */
#define FAILURES 3   /* then it has no graphs any more */
#define LIVE     128 /* graphs of a runtime */
#define FEWEST   2   /* launches */
#define MOST     2048
#define MANY     8 /* changed launches that another graph is worth */
#define MEMORY   ((size_t)256 << 20) /* of the graphs of a stream */
#define LONG     ((int64_t)16 << 20) /* bytes of a launch: launching is cheap */

typedef struct replay_use { /* an operand that is not the graph's own */
  uint32_t step;
  int slot;     /* -1: a number */
  uint32_t arg; /* of the number */
} replay_use;

typedef struct replay_step {
  uint64_t seq;
  uint32_t scratch, n_scratch;
  bool fixed; /* cannot be changed */
} replay_step;

typedef struct replay_graph {
  fl_graph *graph;
  fl_stream *stream;
  uint64_t turn;
  void **data;      /* of each slot */
  int64_t *numbers; /* of each use */
  replay_step *steps;
  fli_scratch_log scratch;
  size_t bytes; /* of memory of its own, at most at a time */
} replay_graph;

struct fli_replay {
  fl_runtime *rt;
  uint64_t turn;
  int runs, captures, failures, n_graphs;
  bool off;
  uint32_t n_uses, n_steps;
  replay_use *uses;
  uint8_t *changed; /* of each step */
  uint8_t *lasting; /* of each slot: no step writes there */
  replay_graph *graphs[GRAPHS];
  uint64_t sights[SIGHTS];
  int n_sights;
};

static inline bool is_inner(const fli_plan *p, int slot) {
  return p->made[slot] && !p->held[slot];
}

/* Operand k of a step: its slot, or FLI_ARG_..., with the number's `arg`. */
static int operand_of(const fli_window *w, const fli_plan *p, const fli_step *x,
                      int k, uint32_t *arg) {
  if (x->op) {
    const fli_fused_operand *o = &p->operands[x->operands + (uint32_t)k];
    *arg = o->number;
    return o->slot;
  }
  *arg = w->entries[x->entry].arg + (uint32_t)k;
  return w->args[*arg].slot;
}

static int64_t operand_bytes(const fli_window *w, const fli_plan *p,
                             const fli_step *x, int k) {
  const fl_meta *m =
      x->op ? &p->operands[x->operands + (uint32_t)k].meta
            : &w->args[w->entries[x->entry].arg + (uint32_t)k].meta;
  uint32_t arg;
  return operand_of(w, p, x, k, &arg) < 0
             ? 0
             : fl_numel(m->ndim, m->shape) * (int64_t)fl_dtype_size(m->dtype);
}

static int operands_of(const fli_window *w, const fli_step *x) {
  const fli_entry *e = &w->entries[x->entry];
  return x->op ? x->n_in + x->n_out : e->n_in + e->n_out;
}

/* --- what a plan is worth --- */

/* Memory of the plan's own, all at once; and what its launches read and write.
 */
static bool replay_pays(const fli_window *w, const fli_plan *p) {
  size_t inner = 0;
  int64_t bytes = 0;
  if (p->n_steps < FEWEST || p->n_steps > MOST)
    return false;
  for (uint32_t k = 0; k < fli_plan_slots(p); k++)
    if (is_inner(p, (int)k))
      inner += w->slots[k].s->bytes;
  for (uint32_t i = 0; i < p->n_steps; i++)
    for (int k = 0, n = operands_of(w, &p->steps[i]); k < n; k++)
      bytes += operand_bytes(w, p, &p->steps[i], k);
  for (uint32_t i = 0; i < p->n_steps; i++)
    if (p->steps[i].loop) /* its values are large, so its launches long */
      return false;
  return inner <= MEMORY && bytes / p->n_steps <= LONG;
}

/* What the steps leave as it is. Of a launch that writes some of its inputs,
 * all count as written. */
static void replay_lasts(const fli_window *w, const fli_plan *p,
                         uint8_t *lasting) {
  uint32_t arg;
  for (uint32_t k = 0; k < fli_plan_slots(p); k++)
    lasting[k] = !p->made[k];
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const fli_step *x = &p->steps[i];
    const fli_entry *e = &w->entries[x->entry];
    bool all = x->list || (!x->op && e->writes);
    int n = operands_of(w, x);
    for (int k = all ? 0 : x->op ? x->n_in : e->n_in; k < n; k++) {
      int slot = operand_of(w, p, x, k, &arg);
      if (slot >= 0)
        lasting[slot] = 0;
    }
  }
}

static struct fli_replay *replay_new(const fli_window *w, const fli_plan *p) {
  uint32_t n = 0, arg;
  for (uint32_t i = 0; i < p->n_steps; i++)
    n += (uint32_t)operands_of(w, &p->steps[i]);
  struct fli_replay *r = fli_malloc(w->rt, sizeof *r);
  if (!r)
    return NULL;
  *r = (struct fli_replay){.rt = w->rt, .n_steps = p->n_steps};
  r->uses = fli_malloc(w->rt, n * sizeof *r->uses);
  r->changed = fli_malloc(w->rt, p->n_steps);
  r->lasting = fli_malloc(w->rt, fli_plan_slots(p));
  if (!r->uses || !r->changed || !r->lasting) {
    fli_replay_free(r);
    return NULL;
  }
  for (uint32_t i = 0; i < p->n_steps; i++)
    for (int k = 0; k < operands_of(w, &p->steps[i]); k++) {
      int slot = operand_of(w, p, &p->steps[i], k, &arg);
      if (slot == FLI_ARG_NUMBER || (slot >= 0 && !is_inner(p, slot)))
        r->uses[r->n_uses++] = (replay_use){i, slot < 0 ? -1 : slot, arg};
    }
  replay_lasts(w, p, r->lasting);
  return r;
}

/* --- graphs --- */

static void graph_drop(replay_graph *g) {
  fl_graph_free(g->graph);
  fli_mfree(g->data);
  fli_mfree(g->numbers);
  fli_mfree(g->steps);
  fli_mfree(g->scratch.notes);
  fli_mfree(g);
}

static replay_graph *graph_new(const fli_window *w, const struct fli_replay *r,
                               uint32_t n_slots) {
  fl_runtime *rt = w->rt;
  replay_graph *g = fli_malloc(rt, sizeof *g);
  if (!g)
    return NULL;
  *g = (replay_graph){.stream = w->stream};
  g->data = fli_malloc(rt, n_slots * sizeof *g->data);
  g->numbers = fli_malloc(rt, r->n_uses * sizeof *g->numbers);
  g->steps = fli_malloc(rt, r->n_steps * sizeof *g->steps);
  if (g->data && g->numbers && g->steps &&
      fli_capture_open(rt, w->device, &g->graph) == FL_OK) {
    fli_capture_log(g->graph, &g->scratch);
    return g;
  }
  graph_drop(g);
  return NULL;
}

/* Takes graph k out of the plan's. */
static void replay_drop(struct fli_replay *r, int k) {
  graph_drop(r->graphs[k]);
  r->graphs[k] = r->graphs[--r->n_graphs];
}

void fli_replay_free(struct fli_replay *r) {
  if (!r)
    return;
  while (r->n_graphs)
    replay_drop(r, 0);
  fli_mfree(r->uses);
  fli_mfree(r->changed);
  fli_mfree(r->lasting);
  fli_mfree(r);
}

int fli_replay_graphs(const struct fli_replay *r, size_t *bytes) {
  int n = 0;
  *bytes = 0;
  for (int k = 0; r && k < r->n_graphs; k++)
    if (fli_graph_exec(r->graphs[k]->graph)) {
      *bytes = fli_graph_bytes(r->graphs[k]->graph); /* they share it */
      n++;
    }
  return n;
}

/* --- capturing --- */

/* Tells the backend what the steps leave as it is; for replay_told. */
static fl_view *replay_tells(const fli_window *w, const fli_plan *p,
                             const struct fli_replay *r) {
  uint32_t n_slots = fli_plan_slots(p);
  int n = 0;
  fl_view *ranges = fli_malloc(w->rt, n_slots * sizeof *ranges);
  for (uint32_t k = 0; k < n_slots && ranges; k++)
    if (r->lasting[k]) {
      ranges[n].data = w->slots[k].s->data;
      ranges[n++].shape[0] = (int64_t)w->slots[k].s->bytes;
    }
  fli_lasting(w->rt, w->device, w->stream, ranges, n);
  return ranges;
}

static void replay_told(const fli_window *w, fl_view *ranges) {
  fli_lasting(w->rt, w->device, w->stream, NULL, 0);
  fli_mfree(ranges);
}

/* What step i has needed, beside `before` bytes that were live. */
static void capture_count(const fli_window *w, replay_graph *g, uint32_t i,
                          size_t before) {
  size_t live = fli_memory_live(w->rt, w->device);
  size_t bytes = live > before ? live - before : 0; /* others may free some */
  for (uint32_t k = g->steps[i].scratch; k < g->scratch.n; k++)
    bytes += g->scratch.notes[k].bytes;
  g->bytes = bytes > g->bytes ? bytes : g->bytes;
}

/* The launches of step i, over memory of the graph's. */
static fl_status capture_step(fli_window *w, const fli_plan *p, uint32_t i,
                              replay_graph *g, size_t before) {
  const fli_step *x = &p->steps[i];
  fl_status s = FL_OK;
  g->steps[i].scratch = g->scratch.n;
  for (uint32_t k = 0; k < x->n_made && s == FL_OK; k++) {
    uint32_t slot = p->numbers[x->made + k];
    fl_storage *made = w->slots[slot].s;
    if (made->pending)
      s = fli_storage_fill(w->rt, made, w->entries[x->entry].site);
    g->data[slot] = made->data;
  }
  if (s == FL_OK)
    s = fli_plan_step(w, p, x);
  g->steps[i].seq = w->rt->seq;
  g->steps[i].n_scratch = g->scratch.n - g->steps[i].scratch;
  capture_count(w, g, i, before);
  for (uint32_t k = 0; k < x->n_last && s == FL_OK; k++) {
    uint32_t slot = p->numbers[x->last + k];
    if (is_inner(p, (int)slot) && !w->slots[slot].s->pending)
      fli_storage_empty(w->rt, w->slots[slot].s);
  }
  return s;
}

static void capture_note(const fli_window *w, const fli_plan *p,
                         const struct fli_replay *r, replay_graph *g) {
  fl_backend *b = fli_backend(w->rt, w->device);
  const fl_graph_exec *exec = fli_graph_exec(g->graph);
  for (uint32_t k = 0; k < fli_plan_slots(p); k++)
    if (!is_inner(p, (int)k))
      g->data[k] = fli_slot_start(&w->slots[k]);
  for (uint32_t k = 0; k < r->n_uses; k++)
    g->numbers[k] = r->uses[k].slot < 0 ? w->args[r->uses[k].arg].operand.i : 0;
  for (uint32_t i = 0; i < p->n_steps; i++)
    g->steps[i].fixed = b->exec_fixed(b, exec, g->steps[i].seq);
}

/* The launches of a plan, and those that its kernels report positions for. */
static uint32_t replay_notes(const fli_plan *p) {
  uint32_t n = p->n_steps;
  for (uint32_t i = 0; i < p->n_steps; i++)
    n += p->steps[i].tile ? (uint32_t)p->steps[i].tile->n_positions : 0;
  return n;
}

/* Nothing runs, and all storages are as they were, whether it fails or not. */
static replay_graph *replay_capture(fli_window *w, const fli_plan *p,
                                    struct fli_replay *r) {
  fl_status s = FL_OK;
  if (r->captures == CAPTURES || fli_graphs_live(w->rt) >= LIVE)
    return NULL;
  r->captures++;
  size_t before = fli_memory_live(w->rt, w->device);
  replay_graph *g = graph_new(w, r, fli_plan_slots(p));
  if (!g)
    return NULL;
  fl_view *lasting = replay_tells(w, p, r);
  for (uint32_t i = 0; i < p->n_steps && s == FL_OK; i++)
    s = capture_step(w, p, i, g, before);
  replay_told(w, lasting);
  for (uint32_t k = 0; k < fli_plan_slots(p); k++)
    if (is_inner(p, (int)k) && !w->slots[k].s->pending)
      fli_storage_empty(w->rt, w->slots[k].s);
  fl_status ended = fli_capture_shut(g->graph);
  if (s || ended || fli_graph_bytes(g->graph) > MEMORY ||
      fli_graph_notes(g->graph)->n != replay_notes(p)) {
    graph_drop(g);
    r->off = ++r->failures == FAILURES;
    return NULL;
  }
  capture_note(w, p, r, g);
  fli_graph_charge(g->graph, g->bytes);
  int k = r->n_graphs;
  if (k == GRAPHS) { /* for the least recently used */
    k = 0;
    for (int i = 1; i < GRAPHS; i++)
      if (r->graphs[i]->turn < r->graphs[k]->turn)
        k = i;
    replay_drop(r, k);
  }
  r->graphs[r->n_graphs++] = g;
  return g;
}

/* --- finding a graph, and changing it --- */

static bool use_changed(const fli_window *w, const struct fli_replay *r,
                        const replay_graph *g, uint32_t k) {
  const replay_use *u = &r->uses[k];
  return u->slot < 0 ? g->numbers[k] != w->args[u->arg].operand.i
                     : g->data[u->slot] != fli_slot_start(&w->slots[u->slot]);
}

/* How many launches must be changed; -1: g cannot be used. */
static int graph_differs(const fli_window *w, struct fli_replay *r,
                         const replay_graph *g) {
  int n = 0;
  memset(r->changed, 0, r->n_steps);
  for (uint32_t k = 0; k < r->n_uses; k++)
    if (use_changed(w, r, g, k)) {
      uint32_t step = r->uses[k].step;
      if (g->steps[step].fixed)
        return -1;
      n += !r->changed[step];
      r->changed[step] = 1;
    }
  return n;
}

/* Whether the addresses have been seen before: those that g cannot change, or
 * all of them. */
static bool replay_seen(const fli_window *w, struct fli_replay *r,
                        const replay_graph *g) {
  uint64_t h = g != NULL;
  for (uint32_t k = 0; k < r->n_uses; k++) {
    int slot = r->uses[k].slot;
    if (slot < 0 || (g && !g->steps[r->uses[k].step].fixed))
      continue;
    h = (h ^ (uint64_t)(uintptr_t)fli_slot_start(&w->slots[slot])) *
        0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  for (int k = 0; k < SIGHTS && k < r->n_sights; k++)
    if (r->sights[k] == h)
      return true;
  r->sights[r->n_sights++ % SIGHTS] = h;
  return false;
}

/* The memory of the graph's own that a step uses, for its views. */
static void step_borrows(fli_window *w, const fli_plan *p, const fli_step *x,
                         void *const *data) {
  for (int k = 0, n = operands_of(w, x); k < n; k++) {
    uint32_t arg;
    int slot = operand_of(w, p, x, k, &arg);
    if (slot >= 0 && is_inner(p, slot))
      w->slots[slot].s->data = data ? data[slot] : NULL;
  }
}

static fl_status graph_change(fli_window *w, const fli_plan *p,
                              const struct fli_replay *r, replay_graph *g) {
  fl_backend *b = fli_backend(w->rt, w->device);
  fl_graph_exec *exec = fli_graph_exec(g->graph);
  fl_status s = b->exec_update(b, exec, true), ended;
  fl_view *lasting = replay_tells(w, p, r);
  for (uint32_t i = 0; i < r->n_steps && s == FL_OK; i++) {
    fli_again again;
    if (!r->changed[i])
      continue;
    fli_again_open(&again, g->steps[i].seq, (int)g->steps[i].n_scratch,
                   g->scratch.notes + g->steps[i].scratch);
    w->again = &again;
    step_borrows(w, p, &p->steps[i], g->data);
    s = fli_plan_step(w, p, &p->steps[i]);
    step_borrows(w, p, &p->steps[i], NULL);
    w->again = NULL;
  }
  replay_told(w, lasting);
  ended = b->exec_update(b, exec, false);
  for (uint32_t k = 0; k < r->n_uses; k++)
    if (r->uses[k].slot < 0)
      g->numbers[k] = w->args[r->uses[k].arg].operand.i;
    else
      g->data[r->uses[k].slot] = fli_slot_start(&w->slots[r->uses[k].slot]);
  return s ? s : ended;
}

/* The one with the fewest launches to be changed; NULL: none. */
static replay_graph *replay_find(fli_window *w, const fli_plan *p,
                                 struct fli_replay *r) {
  int best = -1, least = 0;
  for (int k = r->n_graphs - 1; k >= 0; k--)
    if (!fli_graph_exec(r->graphs[k]->graph)) /* closed for its memory */
      replay_drop(r, k);
  for (int k = 0; k < r->n_graphs; k++) {
    int n = r->graphs[k]->stream == w->stream
                ? graph_differs(w, r, r->graphs[k])
                : -1;
    if (n >= 0 && (best < 0 || n < least)) {
      best = k;
      least = n;
    }
  }
  bool other = best < 0 || least > MANY; /* graph would be of use */
  if (other &&
      (r->n_graphs == 0 || replay_seen(w, r, best < 0 ? r->graphs[0] : NULL))) {
    replay_graph *g = replay_capture(w, p, r);
    if (g || r->off)
      return g;
  }
  if (best < 0)
    return NULL;
  if (graph_differs(w, r, r->graphs[best]) &&
      graph_change(w, p, r, r->graphs[best])) {
    replay_drop(r, best);
    r->off = ++r->failures == FAILURES;
    return NULL;
  }
  return r->graphs[best];
}

/* --- running --- */

static bool replay_may(const fl_compiled *c, const fli_window *w) {
  const fl_runtime *rt = w->rt;
  fl_backend *b = fli_backend(w->rt, w->device);
  uint64_t failed;
  return !c->no_graphs && !c->memory && b->exec_update && !rt->capture &&
         !rt->rehearsal && !rt->profile && !rt->anomaly &&
         w->stream == fli_stream(w->rt, w->device) &&
         b->stream_peek(b, w->device & 255, w->stream, &failed) == FL_OK;
}

/* Memory for what is held afterwards; false: as much as there is. */
static bool replay_fill(fli_window *w, const fli_plan *p) {
  for (uint32_t i = 0; i < p->n_steps; i++)
    for (uint32_t k = 0; k < p->steps[i].n_made; k++) {
      uint32_t slot = p->numbers[p->steps[i].made + k];
      fl_storage *s = w->slots[slot].s;
      if (p->held[slot] && s->pending &&
          fli_storage_fill(w->rt, s, w->entries[p->steps[i].entry].site))
        return false;
      if (!p->held[slot] && !s->pending)
        return false;
    }
  return true;
}

/* The lines of this run. */
static void replay_sites(const fli_window *w, const fli_plan *p,
                         fli_noted *notes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const fl_tile *t = p->steps[i].tile;
    for (int k = 0; t && k < t->n_positions; k++)
      notes->notes[n++].site = w->entries[t->positions[k].entry].site;
    notes->notes[n++].site = w->entries[p->steps[i].entry].site;
  }
}

/* Whether the next run may be a capture: storages that are held are the same
 * ones by then, and kernels are chosen. */
static bool replay_warm(const fl_compiled *c, const fli_window *w,
                        fli_plan *p) {
  uint64_t before = p->sent;
  p->sent = w->rt->seq;
  if (p->warm++ < (c->first ? 1 : WARM) || p->plain)
    return false;
  return c->first || p->warm > TUNES ||
         fli_settled(w->rt, w->device, w->stream, before);
}

bool fli_replay_run(fl_compiled *c, fli_window *w, fli_plan *p,
                    fl_status *status) {
  struct fli_replay *r = p->replay;
  if (!replay_may(c, w))
    return false;
  if (!r) {
    if (!replay_warm(c, w, p))
      return false;
    p->plain = !replay_pays(w, p);
    r = p->replay = p->plain ? NULL : replay_new(w, p);
  }
  if (!r || r->off || !replay_fill(w, p))
    return false;
  replay_graph *g = replay_find(w, p, r);
  if (!g)
    return false;
  g->turn = ++r->turn;
  replay_sites(w, p, fli_graph_notes(g->graph));
  *status = fli_graph_send(g->graph, w->entries[p->steps[0].entry].site);
  c->replayed++;
  return true;
}
