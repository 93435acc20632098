/* Which values are computed a second time. Where a plan needs most memory,
 * values wait that launches far behind it read. A minimum cut over bytes says
 * which of them have to be kept, so that the others can be computed from them.
 * A choice is judged by the plan that is made of it. */
#include "recompute.h"
#include "cut.h"

#include <string.h>

#define LEAST  ((size_t)1 << 20) /* bytes: less is not worth it */
#define NEAR   4                 /* launches that a value may wait */
#define ROUNDS 3
/* Parts of what a plan reads and writes that may be added. */
#define FREE  200
#define CHEAP 50

/* What may be computed again. */
typedef enum again {
  AGAIN_FUSED, /* launches that fuse, where launches that fuse read them */
  AGAIN_CHEAP, /* all but products, convolutions and attention */
  AGAIN_ALL
} again;

typedef struct choosing {
  fl_compiled *c;
  fli_plan *p;
  const fli_window *w;
  struct fli_recompute r;
  uint32_t peak; /* the launch at which most is live */
  again level;
  uint32_t before; /* only what is made before this launch */
  uint8_t *kept;   /* of slots: it has to be */
  /* of slots */
  uint32_t *writer, *touched, *late, *written, *rewritten;
  uint8_t *opaque; /* read behind the peak by a launch that does not fuse */
  uint32_t *saved, *best; /* of slots, as r.from */
} choosing;

#define SEVERAL (FUSE_NONE - 1)

static bool launch_writes(const choosing *q, const fli_entry *e, int k) {
  return k >= e->n_in ||
         fli_op_writes(e->op, fli_entry_attrs(q->w, e), e->n_in, k);
}

static int slot_of(const choosing *q, const fli_entry *e, int k) {
  return q->r.args[e->arg + (uint32_t)k].slot;
}

static bool is_temporary(const choosing *q, int slot) {
  return q->w->slots[slot].made && !q->p->held[slot];
}

/* --- what launches do with slots, before the peak and behind it --- */

static void look_operand(choosing *q, uint32_t i, const fli_entry *e, int k) {
  int slot = slot_of(q, e, k);
  if (slot < 0)
    return;
  bool writes = launch_writes(q, e, k);
  if (writes)
    q->writer[slot] = q->writer[slot] == FUSE_NONE ? i : SEVERAL;
  if (i <= q->peak) {
    q->touched[slot] = i;
    if (writes)
      q->written[slot] = i;
    return;
  }
  if (writes && q->rewritten[slot] == FUSE_NONE)
    q->rewritten[slot] = i;
  if (k < e->n_in) {
    q->late[slot] = q->late[slot] == FUSE_NONE ? i : q->late[slot];
    q->opaque[slot] |= !q->r.cheap[i];
  }
}

static void look(choosing *q) {
  uint32_t n = q->w->n_slots;
  memset(q->writer, 0xff, 5 * (size_t)n * sizeof *q->writer);
  memset(q->opaque, 0, n);
  for (uint32_t i = 0; i < q->w->n; i++) {
    const fli_entry *e = &q->w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && q->r.runs[i]; k++)
      look_operand(q, i, e, k);
  }
}

/* The last of the launches behind the peak that are the first to read what has
 * waited for them: until there, memory has to be as it was. */
static uint32_t look_horizon(const choosing *q) {
  uint32_t horizon = q->peak;
  for (uint32_t k = 0; k < q->w->n_slots; k++)
    if (is_temporary(q, (int)k) && q->late[k] != FUSE_NONE &&
        q->touched[k] != FUSE_NONE && q->late[k] > horizon)
      horizon = q->late[k];
  return horizon;
}

static bool is_heavy(const fl_op *op) {
  const char *kind = fli_window_kind(op);
  return strcmp(kind, "product") == 0 || strcmp(kind, "convolution") == 0 ||
         strcmp(kind, "attention") == 0 || strcmp(kind, "linear algebra") == 0;
}

/* Whether launch i, before the peak, may run again behind it. */
static bool may_repeat(const choosing *q, uint32_t i, uint32_t horizon) {
  const fli_entry *e = &q->w->entries[i];
  if (!q->r.runs[i] || i >= q->peak || i >= q->before || e->writes ||
      e->op->id >= FLI_OPS || e->op->info.collective)
    return false;
  if (q->level == AGAIN_FUSED ? !q->r.cheap[i]
                              : q->level == AGAIN_CHEAP && is_heavy(e->op))
    return false;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = slot_of(q, e, k);
    if (slot < 0)
      continue;
    if (k >= e->n_in
            ? !is_temporary(q, slot) || q->writer[slot] != i || q->kept[slot] ||
                  q->r.from[slot] != FUSE_NONE
            : (q->written[slot] != FUSE_NONE && q->written[slot] > i) ||
                  q->rewritten[slot] <= horizon)
      return false;
  }
  return true;
}

/* Whether the value only waits for a moment, or is needed as it is. */
static bool must_stay(const choosing *q, uint32_t slot) {
  if (q->late[slot] == FUSE_NONE)
    return false;
  return (q->level == AGAIN_FUSED && q->opaque[slot]) ||
         q->late[slot] - q->touched[slot] <= NEAR;
}

/* --- the cut --- */

static uint32_t node_in(uint32_t slot) {
  return 2 + 2 * slot;
}
static uint32_t node_out(uint32_t slot) {
  return 3 + 2 * slot;
}

static fl_status cut_slot(const choosing *q, fli_cut *c, uint32_t slot,
                          const bool *repeatable) {
  bool temporary = is_temporary(q, (int)slot);
  uint32_t by = q->writer[slot];
  bool repeats =
      temporary && by < q->w->n && repeatable[by] && !must_stay(q, slot);
  if (!temporary) /* it is there whatever happens */
    FLI_TRY(fli_cut_edge_add(c, 0, node_out(slot), FLI_CUT_NEVER));
  else if (!repeats)
    FLI_TRY(fli_cut_edge_add(c, 0, node_in(slot), FLI_CUT_NEVER));
  if (temporary)
    FLI_TRY(fli_cut_edge_add(c, node_in(slot), node_out(slot),
                             (int64_t)q->w->slots[slot].bytes + 1));
  if (temporary && q->late[slot] != FUSE_NONE && q->touched[slot] != FUSE_NONE)
    FLI_TRY(fli_cut_edge_add(c, node_out(slot), 1, FLI_CUT_NEVER));
  if (!repeats)
    return FL_OK;
  const fli_entry *e = &q->w->entries[by];
  for (int k = 0; k < e->n_in; k++)
    if (slot_of(q, e, k) >= 0)
      FLI_TRY(fli_cut_edge_add(c, node_out((uint32_t)slot_of(q, e, k)),
                               node_in(slot), FLI_CUT_NEVER));
  return FL_OK;
}

/* Adds what the cut leaves to be computed again to r.from. */
static fl_status cut_choose(choosing *q, bool *repeatable) {
  fli_cut c;
  uint32_t n = q->w->n_slots, horizon;
  fl_status s = fli_cut_open(&c, q->c->rt, 2 + 2 * n);
  look(q);
  horizon = look_horizon(q);
  for (uint32_t i = 0; i < q->w->n; i++)
    repeatable[i] = may_repeat(q, i, horizon);
  for (uint32_t k = 0; k < n && s == FL_OK; k++)
    if (q->writer[k] != FUSE_NONE || q->touched[k] != FUSE_NONE)
      s = cut_slot(q, &c, k, repeatable);
  if (s == FL_OK) {
    fli_cut_solve(&c);
    for (uint32_t k = 0; k < n; k++) {
      uint32_t by = q->writer[k];
      if (is_temporary(q, (int)k) && by < q->w->n && repeatable[by] &&
          !fli_cut_source(&c, node_in(k))) {
        q->r.from[k] = q->peak + 1;
        q->r.any = true;
      }
    }
  }
  fli_cut_close(&c);
  return s;
}

/* --- trying --- */

static void choice_copy(const choosing *q, uint32_t *to, const uint32_t *from) {
  memcpy(to, from, q->w->n_slots * sizeof *to);
}

/* The plan of r.from. */
static fl_status choice_make(choosing *q) {
  q->r.any = false;
  for (uint32_t k = 0; k < q->w->n_slots; k++)
    q->r.any |= q->r.from[k] != FUSE_NONE;
  fli_plan_unbuild(q->p);
  return fli_plan_make(q->c, q->p, q->w, &q->r);
}

/* The launch at which the plan needs most. */
static uint32_t choice_peak(const choosing *q) {
  uint32_t i = q->p->peak_step;
  while (i < q->p->n_steps && q->p->steps[i].entry >= q->p->n)
    i++;
  return i < q->p->n_steps ? q->p->steps[i].entry : q->w->n;
}

/* A choice from the one in `saved`, at the peak of the plan that is there. */
static fl_status choice_try(choosing *q, again level, uint32_t before,
                            bool *launches) {
  choice_copy(q, q->r.from, q->saved);
  q->level = level;
  q->before = before;
  FLI_TRY(cut_choose(q, launches));
  return choice_make(q);
}

#define BISECTS 5

/* As many values as cost no more than `traffic`, those that are made first. */
static fl_status choice_partly(choosing *q, again level, size_t least,
                               uint64_t traffic, bool *launches) {
  uint32_t low = 0, high = q->peak;
  for (int k = 0; k < BISECTS && low < high; k++) {
    uint32_t middle = low + (high - low + 1) / 2;
    FLI_TRY(choice_try(q, level, middle, launches));
    if (q->p->traffic <= traffic) {
      if (q->p->peak < least) {
        least = q->p->peak;
        choice_copy(q, q->best, q->r.from);
      }
      low = middle;
    } else
      high = middle - 1;
  }
  return FL_OK;
}

/* A round at the peak of the plan that is there; what has become less is the
 * choice in `saved`, and its plan is there. */
static fl_status choice_round(choosing *q, again level, uint64_t traffic,
                              bool *launches) {
  size_t least = q->p->peak;
  q->peak = choice_peak(q);
  if (q->peak >= q->w->n)
    return FL_OK;
  choice_copy(q, q->best, q->saved);
  FLI_TRY(choice_try(q, level, FUSE_NONE, launches));
  if (q->p->traffic > traffic)
    FLI_TRY(choice_partly(q, level, least, traffic, launches));
  else if (q->p->peak < least) {
    choice_copy(q, q->saved, q->r.from);
    return FL_OK;
  }
  choice_copy(q, q->saved, q->best);
  choice_copy(q, q->r.from, q->best);
  return choice_make(q);
}

/* Without a cap: what fuses, then what costs hardly more. Tests compute again
 * whatever they can. */
static fl_status choose_free(choosing *q, bool *launches) {
  const uint64_t first = q->p->traffic;
  for (int k = 0; k < ROUNDS; k++) {
    size_t before = q->p->peak;
    uint64_t traffic = first + first / (k ? CHEAP : FREE);
    again level = k == 0 ? AGAIN_FUSED : AGAIN_CHEAP;
    if (q->c->first) {
      traffic = UINT64_MAX;
      level = (again)k;
    }
    FLI_TRY(choice_round(q, level, traffic, launches));
    if (k && q->p->peak == before)
      break;
  }
  return FL_OK;
}

static fl_status choose(choosing *q, bool *launches) {
  FLI_TRY(fli_plan_make(q->c, q->p, q->w, &q->r));
  if (q->p->peak < LEAST && !q->c->first)
    return FL_OK;
  fl_status s = choose_free(q, launches);
  if (s == FL_OK || s == FL_ENOMEM)
    return s;
  for (uint32_t k = 0; k < q->w->n_slots; k++) /* a kernel was too large */
    q->r.from[k] = FUSE_NONE;
  return choice_make(q);
}

fl_status fli_recompute(fl_compiled *c, fli_plan *p, const fli_window *w) {
  choosing q = {.c = c, .p = p, .w = w, .before = FUSE_NONE};
  size_t slots = w->n_slots, n = w->n;
  q.r.args = fli_malloc(c->rt, w->n_args * sizeof *q.r.args +
                                   8 * slots * sizeof *q.r.from + 3 * n +
                                   2 * slots + 1);
  if (!q.r.args)
    return FL_ENOMEM;
  q.r.from = (uint32_t *)(void *)(q.r.args + w->n_args);
  q.writer = q.r.from + slots; /* the next five: look() */
  q.touched = q.writer + slots;
  q.late = q.touched + slots;
  q.written = q.late + slots;
  q.rewritten = q.written + slots;
  q.saved = q.rewritten + slots;
  q.best = q.saved + slots;
  q.r.cheap = (uint8_t *)(q.best + slots);
  q.r.runs = (bool *)(q.r.cheap + n);
  q.kept = q.r.cheap + 3 * n;
  q.opaque = q.kept + slots;
  memset(q.r.from, 0xff, slots * sizeof *q.r.from);
  memset(q.saved, 0xff, slots * sizeof *q.saved);
  memset(q.kept, 0, slots);
  fl_status s = choose(&q, q.r.runs + n);
  fli_mfree(q.r.args);
  return s;
}
