/* Which values are computed a second time. Where a plan needs most memory,
 * values wait that launches far behind it read. A minimum cut over bytes says
 * which of them have to be kept, so that the others can be computed from them.
 * A choice is judged by the plan that is made of it. The search may go on in
 * later calls, from what it has found so far. */
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

typedef struct tried { /* a choice, and what its plan needs */
  size_t peak;
  uint64_t traffic;
  uint32_t at; /* the launch of the peak, or the window's number of them */
} tried;

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
  uint32_t *writer, *touched, *late, *written, *rewritten, *reach;
  uint8_t *opaque; /* read behind the peak by a launch that does not fuse */
  uint32_t *saved, *best; /* of slots, as r.from */
  /* with a cap: the plan that needs least so far */
  size_t least, least_chunk;
  uint32_t *least_from;
  int64_t *crossing, *waiting; /* of launches: bytes (see segment) */
  tried now;                   /* r.from */
  bool there;                  /* its plan is the one of `p` */
  /* Plans are made over several calls: a call begins anew, and takes the first
   * choices and what their plans need from the list. */
  bool slices, paused;
  uint32_t made, next; /* plans of this call; of the list, which comes next */
  uint32_t n_list, room_list;
  tried *list;
  uint32_t *list_from; /* r.from of each */
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

static bool is_heavy(const fl_op *op) {
  const char *kind = fli_window_kind(op);
  return strcmp(kind, "product") == 0 || strcmp(kind, "convolution") == 0 ||
         strcmp(kind, "attention") == 0 || strcmp(kind, "linear algebra") == 0;
}

/* Whether the value only waits for a moment, or is needed as it is. */
static bool must_stay(const choosing *q, uint32_t slot) {
  if (q->late[slot] == FUSE_NONE)
    return false;
  return (q->level == AGAIN_FUSED && q->opaque[slot]) ||
         q->late[slot] - q->touched[slot] <= NEAR;
}

/* The last of the launches that would be the first to read something of what
 * launch i makes again: until there, memory has to be as it was. */
static uint32_t horizon_of(const choosing *q, const fli_entry *e) {
  uint32_t horizon = 0;
  for (int k = e->n_in; k < e->n_in + e->n_out; k++) {
    uint32_t slot = (uint32_t)slot_of(q, e, k);
    if (q->reach[slot] > horizon)
      horizon = q->reach[slot];
    if (q->late[slot] != FUSE_NONE && q->late[slot] > horizon &&
        !must_stay(q, slot))
      horizon = q->late[slot];
  }
  return horizon;
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
  if (!temporary) /* it is there whatever happens: nothing has to be cut */
    return FL_OK;
  if (!repeats)
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

/* Finds the launches that may run again, from those that are needed last on. */
static void find_repeatable(choosing *q, bool *repeatable) {
  memset(q->reach, 0, q->w->n_slots * sizeof *q->reach);
  for (uint32_t i = q->w->n; i-- > 0;) {
    const fli_entry *e = &q->w->entries[i];
    uint32_t horizon = i < q->peak && q->r.runs[i] ? horizon_of(q, e) : 0;
    repeatable[i] = may_repeat(q, i, horizon);
    for (int k = 0; k < e->n_in && repeatable[i]; k++) {
      int slot = slot_of(q, e, k);
      if (slot >= 0 && q->reach[slot] < horizon)
        q->reach[slot] = horizon;
    }
  }
}

/* Adds what the cut leaves to be computed again to r.from. */
static fl_status cut_choose(choosing *q, bool *repeatable) {
  fli_cut c;
  uint32_t n = q->w->n_slots;
  fl_status s = fli_cut_open(&c, q->c->rt, 2 + 2 * n);
  look(q);
  find_repeatable(q, repeatable);
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

/* The launch at which the plan needs most. */
static uint32_t peak_of(const choosing *q) {
  uint32_t i = q->p->peak_step;
  while (i < q->p->n_steps && q->p->steps[i].entry >= q->p->n)
    i++;
  return i < q->p->n_steps ? q->p->steps[i].entry : q->w->n;
}

/* Adds `now` and r.from to the list. */
static fl_status list_add(choosing *q) {
  size_t slots = q->w->n_slots;
  if (q->n_list == q->room_list) {
    uint32_t room = q->room_list ? 2 * q->room_list : 32;
    tried *list = fli_malloc(
        q->c->rt, room * (sizeof *list + slots * sizeof *q->list_from));
    if (!list)
      return FL_ENOMEM;
    uint32_t *from = (uint32_t *)(void *)(list + room);
    if (q->n_list) {
      memcpy(list, q->list, q->n_list * sizeof *list);
      memcpy(from, q->list_from, q->n_list * slots * sizeof *from);
    }
    fli_mfree(q->list);
    q->list = list;
    q->list_from = from;
    q->room_list = room;
  }
  memcpy(q->list_from + q->n_list * slots, q->r.from,
         slots * sizeof *q->r.from);
  q->list[q->n_list++] = q->now;
  q->next = q->n_list;
  return FL_OK;
}

/* Makes the plan of r.from, whatever the list has. */
static fl_status choice_build(choosing *q) {
  if (q->slices && q->made) {
    q->paused = true;
    return FL_ESIZE;
  }
  q->made++;
  q->there = true;
  q->r.any = false;
  for (uint32_t k = 0; k < q->w->n_slots; k++)
    q->r.any |= q->r.from[k] != FUSE_NONE;
  fli_plan_unbuild(q->p);
  FLI_TRY(fli_plan_make(q->c, q->p, q->w, &q->r));
  q->now = (tried){q->p->peak, q->p->traffic, peak_of(q)};
  return FL_OK;
}

/* What the plan of r.from needs. */
static fl_status choice_make(choosing *q) {
  if (q->next < q->n_list) {
    q->now = q->list[q->next++];
    q->there = false;
    return FL_OK;
  }
  FLI_TRY(choice_build(q));
  return q->slices ? list_add(q) : FL_OK;
}

/* A choice from the one in `saved`, at the peak of the plan that is there. */
static fl_status choice_try(choosing *q, again level, uint32_t before,
                            bool *launches) {
  choice_copy(q, q->r.from, q->saved);
  q->level = level;
  q->before = before;
  if (q->next < q->n_list)
    choice_copy(q, q->r.from, q->list_from + q->next * (size_t)q->w->n_slots);
  else if (!q->slices || !q->made)
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
    if (q->now.traffic <= traffic) {
      if (q->now.peak < least) {
        least = q->now.peak;
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
  size_t least = q->now.peak;
  q->peak = q->now.at;
  if (q->peak >= q->w->n)
    return FL_OK;
  choice_copy(q, q->best, q->saved);
  FLI_TRY(choice_try(q, level, FUSE_NONE, launches));
  if (q->now.traffic > traffic)
    FLI_TRY(choice_partly(q, level, least, traffic, launches));
  else if (q->now.peak < least) {
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
  const uint64_t first = q->now.traffic;
  for (int k = 0; k < ROUNDS; k++) {
    size_t before = q->now.peak;
    uint64_t traffic = first + first / (k ? CHEAP : FREE);
    again level = k == 0 ? AGAIN_FUSED : AGAIN_CHEAP;
    if (q->c->again) {
      traffic = UINT64_MAX;
      level = (again)k;
    }
    FLI_TRY(choice_round(q, level, traffic, launches));
    if (k && q->now.peak == before)
      break;
  }
  return FL_OK;
}

/* --- with a cap --- */

static void choice_none(choosing *q, uint32_t *from) {
  memset(from, 0xff, q->w->n_slots * sizeof *from);
}

/* True: the plan that is there needs no more than `room`. */
static bool cap_holds(choosing *q, size_t room) {
  if (q->now.peak < q->least) {
    q->least = q->now.peak;
    q->least_chunk = q->r.chunk;
    choice_copy(q, q->least_from, q->r.from);
  }
  return q->now.peak <= room;
}

/* Of the values that a round computes again, no more than it takes. */
static fl_status cap_fewest(choosing *q, again level, size_t room,
                            bool *launches) {
  uint32_t low = 0, high = q->peak;
  choice_copy(q, q->best, q->r.from);
  for (int k = 0; k < BISECTS && low < high; k++) {
    uint32_t middle = low + (high - low) / 2;
    FLI_TRY(choice_try(q, level, middle, launches));
    if (q->now.peak <= room) {
      choice_copy(q, q->best, q->r.from);
      high = middle;
    } else
      low = middle + 1;
  }
  choice_copy(q, q->r.from, q->best);
  return choice_make(q);
}

/* Rounds at the peaks of one plan after the other, as long as that helps. */
static fl_status cap_rounds(choosing *q, again level, uint32_t before,
                            size_t room, bool *launches) {
  for (int k = 0; k < 2 * ROUNDS; k++) {
    size_t least = q->now.peak;
    q->peak = q->now.at;
    if (q->peak >= q->w->n)
      return FL_OK;
    choice_copy(q, q->saved, q->r.from);
    FLI_TRY(choice_try(q, level, before, launches));
    if (cap_holds(q, room))
      return level == AGAIN_ALL ? FL_OK : cap_fewest(q, level, room, launches);
    if (q->now.peak >= least)
      return FL_OK;
  }
  return FL_OK;
}

/* The first launch with so many bytes that wait for launches behind the peak.
 */
static uint32_t waiting_at(const choosing *q, int64_t bytes) {
  uint32_t i = 0;
  while (i < q->peak && q->waiting[i] < bytes)
    i++;
  return i;
}

/* Cuts the launches before the peak into n parts of about as many bytes that
 * wait, where the fewest cross. What crosses is kept, so that each part can be
 * computed again by itself. Returns the end of the last but one: that part is
 * needed at once. */
static uint32_t segment(choosing *q, int n) {
  const fli_window *w = q->w;
  uint32_t last = 0;
  look(q);
  memset(q->kept, 0, w->n_slots);
  memset(q->crossing, 0, 2 * (size_t)w->n * sizeof *q->crossing);
  for (uint32_t k = 0; k < w->n_slots; k++) {
    if (!is_temporary(q, (int)k) || q->writer[k] > q->peak)
      continue;
    q->crossing[q->writer[k]] += (int64_t)w->slots[k].bytes;
    q->crossing[q->touched[k]] -= (int64_t)w->slots[k].bytes;
    if (q->late[k] != FUSE_NONE)
      q->waiting[q->writer[k]] += (int64_t)w->slots[k].bytes;
  }
  for (uint32_t i = 1; i <= q->peak; i++) {
    q->crossing[i] += q->crossing[i - 1];
    q->waiting[i] += q->waiting[i - 1];
  }
  int64_t all = q->waiting[q->peak];
  for (int k = 1; k < n; k++) {
    uint32_t from = waiting_at(q, all * (2 * k - 1) / (2 * n)),
             to = waiting_at(q, all * (2 * k + 1) / (2 * n));
    last = from;
    for (uint32_t i = from; i < to; i++)
      if (q->crossing[i] < q->crossing[last])
        last = i;
    for (uint32_t s = 0; s < w->n_slots; s++)
      if (is_temporary(q, (int)s) && q->writer[s] <= last &&
          q->touched[s] != FUSE_NONE && q->touched[s] > last)
        q->kept[s] = 1;
  }
  return last + 1;
}

/* Whole segments, with their products: as few as hold the cap. */
static fl_status cap_segments(choosing *q, size_t room, bool *launches) {
  static const int parts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32};
  uint32_t peak = q->now.at;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
    q->peak = peak;
    uint32_t before = peak < q->w->n ? segment(q, parts[k]) : 0;
    choice_none(q, q->r.from);
    FLI_TRY(choice_make(q));
    FLI_TRY(cap_rounds(q, AGAIN_ALL, before, room, launches));
    if (cap_holds(q, room))
      return FL_OK;
  }
  return FL_OK;
}

/* Cheap values first, then in smaller chunks, then whole segments. */
static fl_status choose_cap(choosing *q, size_t room, bool *launches) {
  static const int chunks[] = {0, 8, 32};
  size_t first = q->now.peak;
  q->least = SIZE_MAX;
  for (int k = 0; k < 6; k++) {
    int chunk = chunks[k % 3];
    if (chunk && (q->c->chunk || q->c->exact))
      continue;
    q->r.chunk = chunk ? room / (size_t)chunk + 1 : 0;
    memset(q->kept, 0, q->w->n_slots);
    choice_none(q, q->r.from);
    FLI_TRY(choice_make(q));
    if (cap_holds(q, room))
      return FL_OK;
    if (chunk && q->now.peak >= first)
      continue; /* nothing runs in chunks */
    FLI_TRY(k < 3 ? cap_rounds(q, AGAIN_CHEAP, FUSE_NONE, room, launches)
                  : cap_segments(q, room, launches));
    if (cap_holds(q, room))
      return FL_OK;
  }
  q->r.chunk = q->least_chunk;
  choice_copy(q, q->r.from, q->least_from);
  return choice_make(q);
}

static fl_status choose(choosing *q, bool *launches) {
  size_t room = fli_cap_room(q->c, q->p, q->w);
  FLI_TRY(choice_make(q));
  q->p->room = room;
  if (q->c->memory && q->now.peak > room)
    return choose_cap(q, room, launches);
  if (q->now.peak < LEAST && !q->c->again)
    return FL_OK;
  fl_status s = choose_free(q, launches);
  if (s == FL_OK || s == FL_ENOMEM || q->paused)
    return s;
  for (uint32_t k = 0; k < q->w->n_slots; k++) /* a kernel was too large */
    q->r.from[k] = FUSE_NONE;
  q->slices = false;
  return choice_build(q);
}

static choosing *choosing_new(fl_compiled *c, fli_plan *p,
                              const fli_window *w) {
  size_t slots = w->n_slots, n = w->n;
  choosing *q = fli_malloc(c->rt, sizeof *q);
  if (!q)
    return NULL;
  *q = (choosing){.c = c, .p = p};
  q->r.args = fli_malloc(
      c->rt, w->n_args * sizeof *q->r.args + 2 * n * sizeof *q->crossing +
                 10 * slots * sizeof *q->r.from + 3 * n + 2 * slots + 1);
  if (!q->r.args) {
    fli_mfree(q);
    return NULL;
  }
  q->crossing = (int64_t *)(void *)(q->r.args + w->n_args);
  q->waiting = q->crossing + n;
  q->r.from = (uint32_t *)(void *)(q->waiting + n);
  q->writer = q->r.from + slots; /* the next five: look() */
  q->touched = q->writer + slots;
  q->late = q->touched + slots;
  q->written = q->late + slots;
  q->rewritten = q->written + slots;
  q->reach = q->rewritten + slots;
  q->saved = q->reach + slots;
  q->best = q->saved + slots;
  q->least_from = q->best + slots;
  q->r.cheap = (uint8_t *)(q->least_from + slots);
  q->r.runs = (bool *)(q->r.cheap + n);
  q->kept = q->r.cheap + 3 * n;
  q->opaque = q->kept + slots;
  return q;
}

void fli_recompute_forget(fli_plan *p) {
  choosing *q = p->search;
  p->search = NULL;
  if (!q)
    return;
  fli_mfree(q->list);
  fli_mfree(q->r.args);
  fli_mfree(q);
}

fl_status fli_recompute(fl_compiled *c, fli_plan *p, const fli_window *w,
                        bool *later) {
  size_t slots = w->n_slots;
  choosing *q = p->search ? p->search : choosing_new(c, p, w);
  if (!q)
    return FL_ENOMEM;
  p->search = q;
  q->w = w;
  q->slices = later != NULL;
  q->paused = q->there = false;
  q->made = q->next = 0;
  q->before = FUSE_NONE;
  memset(q->r.from, 0xff, slots * sizeof *q->r.from);
  memset(q->saved, 0xff, slots * sizeof *q->saved);
  memset(q->kept, 0, slots);
  fl_status s = choose(q, q->r.runs + w->n);
  if (s == FL_OK && !q->there)
    s = choice_build(q);
  if (s && q->paused) {
    *later = true;
    return FL_OK;
  }
  fli_recompute_forget(p);
  return s;
}
