/* Launches that run a second time. In the planner's window they are launches
 * like others, in their places; when the plan runs they stand behind the
 * window's own, and so do their operands and storages. */
#include "recompute.h"
#include "rows.h"

#include <string.h>

/* --- noting --- */

fl_status fli_repeat_note(fuse *f) {
  struct fli_recompute *r = f->recompute;
  const fli_window *w = f->w;
  if (!r || r->noted)
    return FL_OK;
  memcpy(r->args, f->args, w->n_args * sizeof *r->args);
  memcpy(r->runs, f->runs, w->n);
  for (uint32_t i = 0; i < w->n; i++)
    r->cheap[i] = f->runs[i] && (fli_fuse_can(f, &w->entries[i]) ||
                                 fli_row_facts_of(w->entries[i].op)->body);
  r->noted = true;
  return FL_OK;
}

/* --- planning --- */

typedef struct repeating {
  fuse *f;
  const fli_window *old;
  uint32_t *from;      /* as that of the choice */
  uint32_t *writer;    /* of slots: the launch that writes it; SEVERAL */
  uint32_t *last;      /* the last launch so far that wrote it, + 1 */
  uint32_t *copy;      /* its second copy */
  uint32_t *todo;      /* slots */
  uint32_t *launch;    /* that are to be repeated */
  bool *wanted, *done; /* of launches */
  uint32_t n_launches, n_args;
} repeating;

#define SEVERAL (FUSE_NONE - 1)

static void note_writers(repeating *q) {
  const fuse *f = q->f;
  memset(q->writer, 0xff, q->old->n_slots * sizeof *q->writer);
  for (uint32_t i = 0; i < q->old->n; i++) {
    const fli_entry *e = &q->old->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && f->runs[i]; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
      if (slot >= 0 && fli_fuse_writes(f, e, k))
        q->writer[slot] = q->writer[slot] == FUSE_NONE ? i : SEVERAL;
    }
  }
}

/* Whether the slot is a second copy, which the launch that reads it has been
 * given: it may run again with that. */
static bool is_copy(const repeating *q, int slot) {
  return slot >= (int)q->old->n_slots;
}

/* Whether launch d can run again before launch i: its results are new memory of
 * its own, and what it reads is as it was. Slots that are computed again, too,
 * are added to the list. */
static bool repeat_visit(repeating *q, uint32_t d, uint32_t i, uint32_t *n) {
  const fuse *f = q->f;
  const fli_entry *e = &q->old->entries[d];
  if (e->writes)
    return false;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot < 0 || is_copy(q, slot))
      continue;
    if (k >= e->n_in) {
      if (!q->old->slots[slot].made || q->writer[slot] != d)
        return false;
    } else if (q->from[slot] <= i)
      q->todo[(*n)++] = (uint32_t)slot;
    else if (q->last[slot] > d + 1)
      return false; /* written since */
  }
  return true;
}

/* Finds the launches that make the slot's second copy before launch i. */
static bool repeat_collect(repeating *q, uint32_t slot, uint32_t i) {
  uint32_t n = 1;
  q->n_launches = 0;
  q->todo[0] = slot;
  while (n) {
    uint32_t d = q->writer[q->todo[--n]];
    if (d < q->old->n && (q->done[d] || q->wanted[d]))
      continue;
    if (d >= q->old->n || !repeat_visit(q, d, i, &n))
      return false;
    q->wanted[d] = true;
    uint32_t at = q->n_launches++;
    for (; at && q->launch[at - 1] > d; at--)
      q->launch[at] = q->launch[at - 1];
    q->launch[at] = d;
  }
  return true;
}

static uint32_t repeat_slot(repeating *q, uint32_t slot) {
  fli_window *w = &q->f->repeated;
  fli_plan *p = q->f->p;
  if (q->copy[slot] == FUSE_NONE) {
    q->copy[slot] = w->n_slots;
    w->slots[w->n_slots] = w->slots[slot];
    p->held[w->n_slots] = 0;
    p->made[w->n_slots] = 1;
    p->copies[p->n_copies++] = slot;
    w->n_slots++;
  }
  return q->copy[slot];
}

/* Launch d again, as the next one. */
static void repeat_launch(repeating *q, uint32_t d, uint32_t i) {
  fuse *f = q->f;
  fli_window *w = &f->repeated;
  fli_plan *p = f->p;
  const fli_entry *e = &q->old->entries[d];
  uint32_t n = (uint32_t)(e->n_in + e->n_out), at = q->n_args;
  for (uint32_t k = 0; k < n; k++) {
    fli_arg a = *fli_fuse_arg(f, e->arg + k);
    if (a.slot >= 0 && !is_copy(q, a.slot) &&
        ((int)k >= e->n_in || q->from[a.slot] <= i))
      a.slot = (int)repeat_slot(q, (uint32_t)a.slot);
    f->args[at + k] = p->repeat_args[at - q->old->n_args + k] = a;
  }
  p->repeats[p->n_repeats] =
      (fli_repeat){.entry = d, .arg = at - q->old->n_args};
  f->origin[w->n] = q->old->n + p->n_repeats++;
  f->runs[w->n] = true;
  w->entries[w->n] = *e;
  w->entries[w->n++].arg = at;
  q->n_args += n;
  p->n_repeat_args += n;
  q->done[d] = true;
}

/* What launch i reads is computed before it, as far as it is to be. True: some
 * launch runs again for it. */
static bool repeat_before(repeating *q, uint32_t i) {
  const fuse *f = q->f;
  const fli_entry *e = &q->old->entries[i];
  uint32_t before = f->p->n_repeats;
  for (int k = 0; k < e->n_in; k++) {
    fli_arg *a = &q->f->args[e->arg + (uint32_t)k];
    if (a->slot < 0 || q->from[a->slot] > i || fli_fuse_writes(f, e, k))
      continue;
    bool good = repeat_collect(q, (uint32_t)a->slot, i);
    for (uint32_t n = 0; n < q->n_launches; n++) {
      q->wanted[q->launch[n]] = false;
      if (good)
        repeat_launch(q, q->launch[n], i);
    }
    if (good)
      a->slot = (int)repeat_slot(q, (uint32_t)a->slot);
    else
      q->from[a->slot] = FUSE_NONE;
  }
  return f->p->n_repeats > before;
}

/* Whether launch `b` may not run before launch `a`. */
static bool repeat_follows(const fuse *f, const fli_entry *a,
                           const fli_entry *b) {
  for (int k = 0; k < a->n_in + a->n_out; k++)
    for (int j = 0; j < b->n_in + b->n_out; j++) {
      int slot = fli_fuse_arg(f, a->arg + (uint32_t)k)->slot;
      if (slot >= 0 && fli_fuse_arg(f, b->arg + (uint32_t)j)->slot == slot &&
          (fli_fuse_writes(f, a, k) || fli_fuse_writes(f, b, j)))
        return true;
    }
  return false;
}

/* Whether launch i reads what the launches that were repeated last read. */
static bool repeat_shares(const repeating *q, uint32_t i, uint32_t repeats) {
  const fuse *f = q->f;
  const fli_entry *e = &q->old->entries[i];
  for (uint32_t n = repeats; n < f->p->n_repeats; n++) {
    const fli_repeat *r = &f->p->repeats[n];
    const fli_entry *of = &q->old->entries[r->entry];
    for (int k = 0; k < of->n_in; k++)
      for (int j = 0; j < e->n_in; j++) {
        int slot = f->p->repeat_args[r->arg + (uint32_t)k].slot;
        if (slot >= 0 && fli_fuse_arg(f, e->arg + (uint32_t)j)->slot == slot)
          return true;
      }
  }
  return false;
}

#define AHEAD 4 /* launches */

/* Launch i, which does not fuse, has had launches repeated. One that follows
 * soon and reads what they read becomes one kernel with them if i waits for it:
 * the gradient of a weight for that of the activation. */
static uint32_t repeat_wait(const repeating *q, uint32_t i, const bool *runs,
                            uint32_t repeats) {
  const fuse *f = q->f;
  const fli_entry *e = &q->old->entries[i];
  for (uint32_t j = i + 1; j < q->old->n && j <= i + AHEAD; j++) {
    const fli_entry *next = &q->old->entries[j];
    if (!runs[j])
      continue;
    if (repeat_follows(f, e, next))
      return i;
    if (f->recompute->cheap[j] && repeat_shares(q, j, repeats))
      return j;
  }
  return i;
}

static void repeat_emit(repeating *q, uint32_t i, bool runs) {
  fuse *f = q->f;
  fli_window *w = &f->repeated;
  const fli_entry *e = &q->old->entries[i];
  f->origin[w->n] = i;
  f->runs[w->n] = runs;
  w->entries[w->n++] = *e;
  for (int k = 0; k < e->n_in + e->n_out && runs; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0 && (uint32_t)slot < q->old->n_slots &&
        fli_fuse_writes(f, e, k))
      q->last[slot] = i + 1;
  }
}

static void repeat_all(repeating *q, const bool *runs) {
  fuse *f = q->f;
  fli_window *w = &f->repeated;
  uint32_t waits = FUSE_NONE, until = 0;
  for (uint32_t i = 0; i < q->old->n; i++) {
    uint32_t repeats = f->p->n_repeats;
    bool more = runs[i] && repeat_before(q, i);
    if (more && waits == FUSE_NONE && !f->recompute->cheap[i] &&
        (until = repeat_wait(q, i, runs, repeats)) > i) {
      waits = i;
      continue;
    }
    repeat_emit(q, i, runs[i]);
    if (waits != FUSE_NONE && i == until) {
      repeat_emit(q, waits, true);
      waits = FUSE_NONE;
    }
  }
  w->n_args = q->n_args;
  for (uint32_t i = 0; i < w->n; i++)
    for (int k = 0; k < w->entries[i].n_in + w->entries[i].n_out; k++) {
      int slot = fli_fuse_arg(f, w->entries[i].arg + (uint32_t)k)->slot;
      if (slot >= 0)
        w->slots[slot].last = i;
    }
}

/* Twice the launches, operands and slots: each runs at most once more. */
static bool repeat_room(fuse *f, const fli_window *old) {
  fl_runtime *rt = f->rt;
  size_t n = 2 * (size_t)old->n + 1, args = 2 * (size_t)old->n_args + 1,
         slots = 2 * (size_t)old->n_slots + 1;
  fli_plan *p = f->p;
  f->repeated = *old;
  f->repeated.n = 0;
  f->repeated.entries = fli_malloc(rt, n * sizeof *old->entries);
  f->repeated.slots = fli_malloc(rt, slots * sizeof *old->slots);
  f->origin = fli_malloc(rt, n * sizeof *f->origin);
  fli_arg *more = fli_malloc(rt, args * sizeof *more);
  bool *runs = fli_malloc(rt, n);
  p->repeats = fli_malloc(rt, n * sizeof *p->repeats);
  p->repeat_args = fli_malloc(rt, args * sizeof *p->repeat_args);
  p->copies = fli_malloc(rt, slots * sizeof *p->copies);
  if (more) {
    memcpy(more, f->args, old->n_args * sizeof *more);
    fli_mfree(f->args);
    f->args = more;
  }
  if (f->repeated.slots)
    memcpy(f->repeated.slots, old->slots, old->n_slots * sizeof *old->slots);
  if (runs) {
    memcpy(runs, f->runs, old->n);
    fli_mfree(f->runs);
    f->runs = runs;
  }
  return f->repeated.entries && f->repeated.slots && f->origin && more &&
         runs && p->repeats && p->repeat_args && p->copies;
}

fl_status fli_fuse_repeat(fuse *f) {
  const fli_window *old = f->w;
  if (!f->recompute || !f->recompute->any)
    return FL_OK;
  size_t slots = old->n_slots, n = old->n;
  uint32_t *room = fli_malloc(
      f->rt, (4 * slots + old->n_args + slots + n + 1) * sizeof *room + 3 * n);
  if (!room || !repeat_room(f, old)) {
    fli_mfree(room);
    return FL_ENOMEM;
  }
  repeating q = {.f = f, .old = old, .from = room, .n_args = old->n_args};
  q.writer = q.from + slots;
  q.last = q.writer + slots;
  q.copy = q.last + slots;
  q.todo = q.copy + slots;
  q.launch = q.todo + old->n_args + slots + 1;
  q.wanted = (bool *)(q.launch + n);
  q.done = q.wanted + n;
  bool *runs = q.done + n;
  memcpy(q.from, f->recompute->from, slots * sizeof *q.from);
  memset(q.last, 0, slots * sizeof *q.last);
  memset(q.copy, 0xff, slots * sizeof *q.copy);
  memset(q.wanted, 0, 2 * n);
  memcpy(runs, f->runs, n);
  note_writers(&q);
  repeat_all(&q, runs);
  fli_mfree(room);
  f->w = &f->repeated;
  return FL_OK;
}

void fli_repeat_close(fuse *f) {
  fli_mfree(f->repeated.entries);
  fli_mfree(f->repeated.entries ? f->repeated.slots : NULL);
}

void fli_repeat_finish(fuse *f) {
  fli_plan *p = f->p;
  for (uint32_t k = 0; k < p->n_members; k++) {
    uint32_t member = p->members[k] & ~FLI_AGAIN;
    if (member >= p->n)
      p->members[k] = p->repeats[member - p->n].entry | FLI_AGAIN;
  }
  for (uint32_t i = 0; i < p->n_steps; i++)
    if (p->steps[i].from != FUSE_NONE && p->steps[i].from >= p->n)
      p->steps[i].from = p->repeats[p->steps[i].from - p->n].entry;
}

/* --- running --- */

static fl_status extend_room(fli_window *w, const fli_plan *p) {
  fl_runtime *rt = w->rt;
  return fli_window_room(rt, &w->entries, &w->room, w->n + p->n_repeats,
                         sizeof *w->entries) &&
                 fli_window_room(rt, &w->args, &w->args_room,
                                 w->n_args + p->n_repeat_args,
                                 sizeof *w->args) &&
                 fli_window_room(rt, &w->slots, &w->slots_room,
                                 w->n_slots + p->n_copies, sizeof *w->slots) &&
                 (!w->notes ||
                  fli_window_room(rt, &w->notes, &w->notes_room,
                                  w->n + p->n_repeats, sizeof *w->notes))
             ? FL_OK
             : FL_ENOMEM;
}

fl_status fli_plan_extend(fli_window *w, const fli_plan *p) {
  if (p->n_repeats == 0 || w->n_slots > p->n_slots)
    return FL_OK;
  FLI_TRY(extend_room(w, p));
  for (uint32_t k = 0; k < p->n_copies; k++) {
    fli_slot *to = &w->slots[w->n_slots];
    *to = (fli_slot){.bytes = w->slots[p->copies[k]].bytes, .made = true};
    FLI_TRY(fli_storage_pending(w->rt, to->bytes, w->device, &to->s));
    w->n_slots++;
  }
  for (uint32_t i = 0; i < p->n_repeats; i++) {
    const fli_repeat *r = &p->repeats[i];
    const fli_entry *of = &w->entries[r->entry];
    fli_entry *e = &w->entries[w->n + i];
    *e = *of;
    e->arg = w->n_args + r->arg;
    for (uint32_t k = 0; k < (uint32_t)(e->n_in + e->n_out); k++) {
      const fli_arg *a = &p->repeat_args[r->arg + k];
      w->args[e->arg + k] =
          a->slot == FLI_ARG_NUMBER ? w->args[of->arg + k] : *a;
    }
    if (w->notes)
      w->notes[w->n + i] = w->notes[r->entry];
  }
  return FL_OK;
}
