/* Plans: launches become groups, one kernel each. A group is open while later
 * launches may still join; a launch that must come after one of a group closes
 * it, and kernels run in the order in which their groups are closed. */
#include "chunk.h"
#include "recompute.h"

#include <string.h>

#define DISTANCE 8 /* launches of others that a group lets pass */

static bool fuse_step_add(fuse *f, fuse_group *g, uint32_t entry) {
  if (f->n_steps == f->room) {
    uint32_t room = f->room ? 2 * f->room : 64;
    fuse_step *more = fli_malloc(f->rt, room * sizeof *more);
    if (!more) {
      f->status = FL_ENOMEM;
      return false;
    }
    if (f->n_steps)
      memcpy(more, f->steps, f->n_steps * sizeof *more);
    fli_mfree(f->steps);
    f->steps = more;
    f->room = room;
  }
  f->steps[f->n_steps++] = (fuse_step){g, entry, f->apart, f->from};
  return true;
}

/* Group i will run after all steps so far. */
static void close_group(fuse *f, int i) {
  fuse_group *g = f->groups[i];
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].slot >= 0)
      f->readers[g->leaves[k].slot] &= ~(1u << i);
  for (int k = 0; k < g->n_written; k++)
    if (f->writer[g->written[k].slot] == i) /* not one that joined by now */
      f->writer[g->written[k].slot] = -1;
  g->open = false;
  f->groups[i] = NULL;
  if (!fuse_step_add(f, g, g->entry[g->n - 1]))
    fli_fuse_group_free(g);
}

static void close_groups(fuse *f, uint32_t which) {
  for (int i = 0; i < FUSE_OPEN; i++)
    if (which >> i & 1 && f->groups[i])
      close_group(f, i);
}

/* Open groups that must run before a launch of its own: they write what it
 * touches, or read what it writes. */
static uint32_t conflicts_of(const fuse *f, const fli_entry *e) {
  uint32_t mask = 0;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot < 0)
      continue;
    if (f->writer[slot] >= 0)
      mask |= 1u << f->writer[slot];
    if (fli_fuse_part_writes(f, e, k))
      mask |= f->readers[slot];
  }
  return mask;
}

/* Open groups that the launch may join: those that write what it reads first,
 * then those that read what it reads. */
static int partners_of(const fuse *f, const fli_entry *e, int *list) {
  uint32_t readers = 0, seen = 0;
  int n = 0;
  for (int k = 0; k < e->n_in; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    readers |= slot >= 0 ? f->readers[slot] : 0;
  }
  uint32_t conflicts = conflicts_of(f, e);
  for (int turn = 0; turn < 2; turn++)
    for (int i = FUSE_OPEN; i-- > 0;)
      if ((turn ? readers : conflicts) >> i & 1 && !(seen >> i & 1)) {
        list[n++] = i;
        seen |= 1u << i;
      }
  return n;
}

/* A free place for a group; the oldest one is closed for it. */
static int group_place(fuse *f) {
  int oldest = 0;
  for (int i = 0; i < FUSE_OPEN; i++) {
    if (!f->groups[i])
      return i;
    if (f->groups[i]->age > f->groups[oldest]->age)
      oldest = i;
  }
  close_group(f, oldest);
  return oldest;
}

/* A launch of its own has run. */
static void pass_groups(fuse *f) {
  uint32_t old = 0;
  for (int k = 0; k < FUSE_OPEN; k++)
    if (f->groups[k] && ++f->groups[k]->age > DISTANCE)
      old |= 1u << k;
  close_groups(f, old);
}

static void add_other(fuse *f, uint32_t i) {
  if (f->parts[i].parts > 1) {
    f->failed = fli_fuse_origin(f, f->parts[i].origin);
    return;
  }
  close_groups(f, conflicts_of(f, &f->entries[i]));
  fuse_step_add(f, NULL, i);
  pass_groups(f);
}

/* --- sums at positions --- */

/* Open groups that must run before a sum as it was called. */
static uint32_t sum_conflicts(const fuse *f, const fli_entry *e) {
  uint32_t mask = 0;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0 && f->writer[slot] >= 0)
      mask |= 1u << f->writer[slot];
    if (slot >= 0 && k >= e->n_in)
      mask |= f->readers[slot];
  }
  return mask;
}

/* A sum, of which launch i is the begin, is a part of a kernel if that computes
 * what is added. */
static bool sum_joins(fuse *f, uint32_t i) {
  const fli_entry *e = &f->entries[i + 1];
  uint32_t close = 0;
  int list[FUSE_OPEN], n = partners_of(f, e, list);
  int writer = f->writer[fli_fuse_arg(f, e->arg)->slot];
  bool joins = false;
  f->now = i + 1;
  for (int k = 0; k < n && !joins && writer >= 0; k++)
    joins = list[k] == writer && fli_fuse_could_join(f, list[k], i + 1, &close);
  f->now = i;
  return joins;
}

static void add_sum_whole(fuse *f, uint32_t i) {
  f->apart = FLI_APART_OPERATOR;
  close_groups(f, sum_conflicts(f, &f->w->entries[f->parts[i].origin]));
  fuse_step_add(f, NULL, i);
  f->parts[i].role = FUSE_WHOLE;
  f->runs[i + 1] = false;
  pass_groups(f);
}

/* No open group has to do with the launch: the last one that wrote what it
 * reads is why. */
static void note_apart(fuse *f, const fli_entry *e) {
  f->apart = FLI_APART_NOTHING;
  f->from = FUSE_NONE;
  for (int k = 0; k < e->n_in; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    uint32_t def = slot < 0 ? FUSE_NONE : f->last[slot];
    if (def == FUSE_NONE ||
        (f->from != FUSE_NONE && f->entry_of[def] < f->from))
      continue;
    f->from = f->entry_of[def];
    f->apart = fli_fuse_can(f, &f->entries[f->from]) ? FLI_APART_CLOSED
                                                     : FLI_APART_AFTER;
  }
}

/* The launch would join group i, and close others that compute what it reads,
 * too: those become one group with it where they can. The group to join. */
static int merge_writers(fuse *f, int i, uint32_t entry) {
  const fli_entry *e = &f->entries[entry];
  uint32_t close = 0, writers = 0;
  for (int k = 0; k < e->n_in; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0 && f->writer[slot] >= 0)
      writers |= 1u << f->writer[slot];
  }
  if (!(writers & ~(1u << i)) || !fli_fuse_could_join(f, i, entry, &close))
    return i;
  for (int k = 0; k < FUSE_OPEN && !f->status; k++)
    if (k != i && close & writers & 1u << k)
      fli_fuse_merge(f, i, k, &i);
  return i;
}

static void add_fusable(fuse *f, uint32_t i) {
  const fli_entry *e = &f->entries[i];
  int list[FUSE_OPEN], n = partners_of(f, e, list);
  uint32_t close = 0;
  f->apart = FLI_APART_NOT;
  if (n == 0)
    note_apart(f, e);
  for (int k = 0; k < n && !f->status; k++)
    if (f->groups[list[k]] &&
        fli_fuse_join(f, merge_writers(f, list[k], i), i, &close)) {
      close_groups(f, close);
      return;
    }
  if (f->status)
    return;
  int at = group_place(f);
  fuse_group *g = fli_fuse_group_new(f);
  if (!g)
    return;
  g->apart = f->apart;
  g->from = f->from;
  f->groups[at] = g;
  if (fli_fuse_begin(f, at, i, &close)) {
    close_groups(f, close);
    return;
  }
  f->groups[at] = NULL;
  fli_fuse_group_free(g);
  if (!f->status)
    add_other(f, i);
}

/* Notes what launch i writes, for launches behind it. */
static void note_writes(fuse *f, uint32_t i) {
  const fli_entry *e = &f->entries[i];
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    uint32_t at = e->arg + (uint32_t)k;
    int slot = fli_fuse_arg(f, at)->slot;
    if (slot < 0 || !fli_fuse_part_writes(f, e, k))
      continue;
    f->before[at] = f->last[slot];
    f->entry_of[at] = i;
    f->last[slot] = at;
  }
}

static void count_uses(fuse *f) {
  for (uint32_t i = 0; i < f->n; i++) {
    const fli_entry *e = &f->entries[i];
    bool can = f->runs[i] && fli_fuse_can(f, e);
    for (int k = 0; f->runs[i] && k < e->n_in + e->n_out; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
      if (slot >= 0)
        f->opaque[slot] |= !can;
      if (slot >= 0 && k < e->n_in && f->reads[slot] < FUSE_READERS)
        f->reads[slot]++;
    }
  }
}

static fl_status fuse_all(fuse *f) {
  count_uses(f);
  for (uint32_t i = 0; i < f->n && !f->status && f->failed == FUSE_NONE; i++) {
    if (!f->runs[i])
      continue;
    f->now = i;
    f->apart = fli_fuse_apart(f, &f->entries[i]);
    f->from = FUSE_NONE;
    if (f->parts[i].role == FUSE_BEGIN && !sum_joins(f, i))
      add_sum_whole(f, i);
    else if (f->apart == FLI_APART_NOT)
      add_fusable(f, i);
    else
      add_other(f, i);
    note_writes(f, i);
  }
  for (int i = 0; i < FUSE_OPEN; i++)
    if (f->groups[i] && !f->status && f->failed == FUSE_NONE)
      close_group(f, i);
  if (f->status || f->failed != FUSE_NONE)
    return f->status;
  return fli_fuse_emit(f);
}

/* Lists the operands that lie elsewhere than in the window. */
static fl_status note_moved(fuse *f, const fli_window *w) {
  fli_plan *p = f->p;
  for (int turn = 0; turn < 2; turn++) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n_args; k++) {
      const fli_arg *a = fli_fuse_arg(f, k);
      if (a->slot < 0 || fli_same_region(a, &w->args[k]))
        continue;
      if (turn) {
        fli_moved *m = &p->moved[n];
        *m = (fli_moved){.arg = k, .slot = a->slot, .offset = a->offset};
        memcpy(m->stride, a->stride, (size_t)a->meta.ndim * sizeof *m->stride);
      }
      n++;
    }
    p->n_moved = n;
    if (!turn && !(p->moved = fli_malloc(f->rt, n * sizeof *p->moved + 1)))
      return FL_ENOMEM;
  }
  return FL_OK;
}

/* Arrays by slot and by operand. */
static uint32_t *fuse_arrays(fuse *f) {
  size_t slots = f->w->n_slots, args = f->n_args;
  uint32_t *words = fli_malloc(f->rt, (2 * slots + 2 * args) * sizeof *words +
                                          3 * slots + args + 1);
  if (!words)
    return NULL;
  f->readers = words;
  f->last = f->readers + slots;
  f->before = f->last + slots;
  f->entry_of = f->before + args;
  f->writer = (int8_t *)(f->entry_of + args);
  f->opaque = (uint8_t *)f->writer + slots;
  f->needed = f->opaque + slots;
  f->reads = f->needed + args;
  memset(f->readers, 0, slots * sizeof *f->readers);
  memset(f->last, 0xff, slots * sizeof *f->last);
  memset(f->before, 0xff, args * sizeof *f->before);
  memset(f->entry_of, 0, args * sizeof *f->entry_of);
  memset(f->writer, -1, slots);
  memset(f->opaque, 0, 2 * slots + args);
  return words;
}

/* Launches of the window whose results something needs. */
static bool *window_runs(const fuse *f) {
  const fli_window *w = f->w;
  bool *runs = fli_malloc(f->rt, w->n + w->n_slots + 1), *needed = runs + w->n;
  for (size_t k = 0; runs && k < w->n_slots; k++)
    needed[k] = !f->p->made[k] || f->p->held[k];
  if (runs)
    fli_window_runs(w, needed, runs);
  return runs;
}

static void fuse_close(fuse *f) {
  fli_chunk_close(f);
  fli_repeat_close(f);
  fli_mfree(f->args);
  fli_mfree(f->runs);
  fli_mfree(f->entries);
  for (int i = 0; i < FUSE_OPEN; i++)
    fli_fuse_group_free(f->groups[i]);
  for (uint32_t i = 0; i < f->n_steps; i++)
    fli_fuse_group_free(f->steps[i].group);
  fli_mfree(f->steps);
}

static fl_status plan_try(fuse *f) {
  const fli_window *w = f->w;
  const fl_op *op;
  if (!(f->runs = window_runs(f)))
    return FL_ENOMEM;
  FLI_TRY(fli_tile_op(f->rt, &op));
  f->tiles = op->kernel[f->w->device >> 8];
  FLI_TRY(fli_epilogue_op(f->rt, &op));
  f->epilogues = op->kernel[f->w->device >> 8];
  FLI_TRY(fli_fuse_equal(f));
  FLI_TRY(fli_fuse_place(f));
  FLI_TRY(fli_repeat_note(f));
  FLI_TRY(fli_fuse_repeat(f));
  FLI_TRY(note_moved(f, w));
  FLI_TRY(fli_chunk(f));
  FLI_TRY(fli_fuse_open(f));
  uint32_t *words = fuse_arrays(f);
  fl_status s = words ? fuse_all(f) : FL_ENOMEM;
  if (s == FL_OK && f->failed == FUSE_NONE) {
    fli_chunk_finish(f);
    fli_repeat_finish(f);
  }
  fli_mfree(words);
  return s;
}

#define ATTEMPTS 8 /* with one launch less that is opened; then none is */

/* With kernels of at most `most` launches. */
static fl_status plan_build(fl_compiled *c, fli_plan *p, const fli_window *w,
                            struct fli_recompute *r, int most) {
  fuse *f = fli_malloc(w->rt, sizeof *f);
  size_t launches = 2 * (size_t)w->n; /* with those that run again */
  bool *closed = fli_malloc(w->rt, launches + 1);
  fl_status s = f && closed ? FL_OK : FL_ENOMEM;
  if (closed)
    memset(closed, 0, launches);
  for (int k = 0; s == FL_OK; k++) {
    *f = (fuse){.c = c,
                .w = w,
                .p = p,
                .rt = w->rt,
                .closed = closed,
                .recompute = r,
                .most = most,
                .failed = FUSE_NONE};
    s = plan_try(f);
    fuse_close(f);
    if (s || f->failed == FUSE_NONE)
      break;
    closed[f->failed] = true;
    if (k == ATTEMPTS)
      memset(closed, 1, launches);
    fli_plan_unbuild(p);
  }
  fli_mfree(closed);
  fli_mfree(f);
  return s;
}

/* Where a kernel would be too large for the backend, kernels take fewer. */
fl_status fli_plan_make(fl_compiled *c, fli_plan *p, const fli_window *w,
                        struct fli_recompute *r) {
  fl_status s = FL_ESIZE;
  p->sums = fli_sums_allowed(w->rt, w->device);
  p->adds = false;
  for (int most = FUSE_MEMBERS; most && s == FL_ESIZE; most /= 4)
    if ((s = plan_build(c, p, w, r, most)))
      fli_plan_unbuild(p);
  return s;
}

fl_status fli_plan_build(fl_compiled *c, fli_plan *p, const fli_window *w) {
  return w->owner ? fli_recompute(c, p, w, NULL) : fli_plan_make(c, p, w, NULL);
}
