/* Memory of a plan: when each storage gets memory and loses it, how much that
 * is at most, and in which order steps need less at once. */
#include "chunk.h"

#include <string.h>

#define NEVER UINT32_MAX

typedef struct memory_use { /* a slot that a step touches */
  uint32_t slot;
  uint32_t before, after; /* positions that touch it next to this one */
  bool writes;
} memory_use;

typedef struct memory {
  fuse *f;
  uint32_t n;          /* steps */
  uint32_t *first;     /* of each step: its uses; n + 1 of them */
  memory_use *uses;    /* a slot once for each step */
  uint32_t *order;     /* steps, as they run */
  uint32_t *seen;      /* of slots: the position that was last met */
  int64_t *live, most; /* at the launch of each position */
  uint32_t at, count;  /* the first position with `most`; how many have it */
} memory;

int fli_fuse_step_operand(const fuse *f, const fli_step *x, int k,
                          bool *writes) {
  if (x->op) {
    *writes = k >= x->n_in;
    return f->p->operands[x->operands + (uint32_t)k].slot;
  }
  const fli_entry *e = &f->w->entries[x->entry];
  *writes = fli_fuse_writes(f, e, k);
  return fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
}

int fli_fuse_step_operands(const fuse *f, const fli_step *x) {
  const fli_entry *e = &f->w->entries[x->entry];
  return x->op ? x->n_in + x->n_out : e->n_in + e->n_out;
}

static void note_uses(memory *m) {
  const fuse *f = m->f;
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n; i++) {
    const fli_step *x = &f->p->steps[i];
    m->first[i] = n;
    m->order[i] = i;
    for (int k = 0, count = fli_fuse_step_operands(f, x); k < count; k++) {
      bool writes;
      int slot = fli_fuse_step_operand(f, x, k, &writes);
      uint32_t u = m->first[i];
      if (slot < 0)
        continue;
      while (u < n && m->uses[u].slot != (uint32_t)slot)
        u++;
      if (u == n)
        m->uses[n++] = (memory_use){.slot = (uint32_t)slot};
      m->uses[u].writes |= writes;
    }
  }
  m->first[m->n] = n;
}

/* --- how much is live --- */

/* What a step needs beside its operands: loops have values of their own. */
static int64_t step_own(const fuse *f, const fli_step *x) {
  const fli_loop *l = x->op ? NULL : fli_chunk_loop(f, x->entry);
  return l ? (int64_t)fli_loop_memory(l) : 0;
}

static int64_t slot_bytes(const memory *m, uint32_t slot) {
  return (int64_t)m->f->w->slots[slot].bytes;
}

/* Memory goes with the last step that touches it, unless it stays. */
static bool use_frees(const memory *m, const memory_use *x) {
  return x->after == NEVER && !m->f->p->held[x->slot];
}

static bool use_makes(const memory *m, const memory_use *x) {
  return x->before == NEVER && m->f->w->slots[x->slot].made;
}

static void forget_positions(memory *m) {
  for (uint32_t i = 0; i < m->f->w->n_slots; i++)
    m->seen[i] = NEVER;
}

/* Sets the positions next to each use, and what is live at each position,
 * without memory that is older than the window and stays. */
static void measure(memory *m) {
  const fuse *f = m->f;
  int64_t live = 0;
  m->most = -1;
  memset(m->live, 0, m->n * sizeof *m->live);
  forget_positions(m);
  for (uint32_t i = m->n; i-- > 0;) { /* `after` first: it is needed below */
    uint32_t s = m->order[i];
    for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++) {
      m->uses[u].after = m->seen[m->uses[u].slot];
      m->seen[m->uses[u].slot] = i;
    }
  }
  forget_positions(m);
  for (uint32_t i = 0; i < m->n; i++) {
    uint32_t s = m->order[i];
    for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++) {
      uint32_t slot = m->uses[u].slot;
      m->uses[u].before = m->seen[slot];
      if (f->w->slots[slot].made && m->seen[slot] == NEVER)
        live += slot_bytes(m, slot);
      m->seen[slot] = i;
    }
    m->live[i] = live + step_own(f, &f->p->steps[s]);
    for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++)
      if (use_frees(m, &m->uses[u]))
        live -= slot_bytes(m, m->uses[u].slot);
    if (m->live[i] > m->most) {
      m->most = m->live[i];
      m->at = i;
      m->count = 0;
    }
    m->count += m->live[i] == m->most;
  }
}

/* --- the order of steps --- */

static const memory_use *use_of(const memory *m, uint32_t step, uint32_t slot) {
  for (uint32_t u = m->first[step]; u < m->first[step + 1]; u++)
    if (m->uses[u].slot == slot)
      return &m->uses[u];
  return NULL;
}

static bool steps_conflict(const memory *m, uint32_t a, uint32_t b) {
  for (uint32_t u = m->first[a]; u < m->first[a + 1]; u++) {
    const memory_use *v = use_of(m, b, m->uses[u].slot);
    if (v && (v->writes || m->uses[u].writes))
      return true;
  }
  return false;
}

/* Bytes less at the peak if the step at position j > peak ran right before it:
 * what it frees then, without what it makes. */
static int64_t gain_early(const memory *m, uint32_t j) {
  uint32_t s = m->order[j];
  int64_t gain = 0;
  for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++) {
    const memory_use *x = &m->uses[u];
    bool makes = use_makes(m, x), frees = use_frees(m, x);
    if ((x->before != NEVER && x->before >= m->at) || makes == frees)
      continue; /* what comes and goes with the step moves with it */
    gain += frees ? slot_bytes(m, x->slot) : -slot_bytes(m, x->slot);
  }
  return gain;
}

/* The same if the step at position j < peak ran right behind the peak: what it
 * makes comes later, and what it would have freed stays. */
static int64_t gain_late(const memory *m, uint32_t j) {
  uint32_t s = m->order[j];
  int64_t gain = 0;
  for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++) {
    const memory_use *x = &m->uses[u];
    bool makes = use_makes(m, x), frees = use_frees(m, x);
    if (x->after <= m->at || makes == frees)
      continue;
    gain += makes ? slot_bytes(m, x->slot) : -slot_bytes(m, x->slot);
  }
  return gain;
}

static void move_step(uint32_t *order, uint32_t from, uint32_t to) {
  uint32_t s = order[from];
  if (from > to)
    memmove(order + to + 1, order + to, (from - to) * sizeof *order);
  else
    memmove(order + from, order + from + 1, (to - from) * sizeof *order);
  order[to] = s;
}

#define REACH 256 /* steps that one moves across, at most */
#define MOVES 64

/* The move that saves most at the peak. False: none does. */
static bool best_move(const memory *m, uint32_t *from, uint32_t *to) {
  uint32_t end = m->n - m->at > REACH ? m->at + REACH : m->n,
           begin = m->at > REACH ? m->at - REACH : 0;
  int64_t most = 0;
  for (uint32_t j = m->at + 1; j < end; j++) {
    int64_t gain = gain_early(m, j);
    bool free = gain > most;
    for (uint32_t i = m->at; i < j && free; i++)
      free = !steps_conflict(m, m->order[i], m->order[j]);
    if (free) {
      most = gain;
      *from = j;
      *to = m->at;
    }
  }
  for (uint32_t j = begin; j < m->at; j++) {
    int64_t gain = gain_late(m, j);
    bool free = gain > most;
    for (uint32_t i = j + 1; i <= m->at && free; i++)
      free = !steps_conflict(m, m->order[i], m->order[j]);
    if (free) {
      most = gain;
      *from = j;
      *to = m->at;
    }
  }
  return most > 0;
}

/* Steps move across the peak as long as that lowers it. */
static void order_steps(memory *m) {
  for (int k = 0; k < MOVES; k++) {
    int64_t most = m->most;
    uint32_t from, to, count = m->count;
    if (!best_move(m, &from, &to))
      return;
    move_step(m->order, from, to);
    measure(m);
    if (m->most < most || (m->most == most && m->count < count))
      continue;
    move_step(m->order, to, from);
    measure(m);
    return;
  }
}

/* The steps in their new order. */
static fl_status apply_order(memory *m) {
  fli_plan *p = m->f->p;
  fli_step *to = fli_malloc(m->f->rt, (m->n + 1) * sizeof *to);
  if (!to)
    return FL_ENOMEM;
  for (uint32_t i = 0; i < m->n; i++)
    to[i] = p->steps[m->order[i]];
  fli_mfree(p->steps);
  p->steps = to;
  return FL_OK;
}

/* --- what the plan keeps of it --- */

/* Lists the slots that get memory before each step, and those that lose it
 * after it. */
static fl_status list_numbers(memory *m) {
  fli_plan *p = m->f->p;
  p->numbers =
      fli_malloc(m->f->rt, (2 * m->first[m->n] + 1) * sizeof *p->numbers);
  if (!p->numbers)
    return FL_ENOMEM;
  for (uint32_t i = 0; i < m->n; i++) {
    uint32_t s = m->order[i];
    fli_step *x = &p->steps[i];
    x->made = p->n_numbers;
    for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++)
      if (m->f->w->slots[m->uses[u].slot].made)
        p->numbers[p->n_numbers++] = m->uses[u].slot;
    x->n_made = p->n_numbers - x->made;
    x->last = p->n_numbers;
    for (uint32_t u = m->first[s]; u < m->first[s + 1]; u++)
      if (m->uses[u].after == NEVER)
        p->numbers[p->n_numbers++] = m->uses[u].slot;
    x->n_last = p->n_numbers - x->last;
  }
  p->traffic = 0;
  for (uint32_t u = 0; u < m->first[m->n]; u++)
    p->traffic += (uint64_t)slot_bytes(m, m->uses[u].slot);
  p->peak = m->most > 0 ? (size_t)m->most : 0;
  p->peak_step = m->at;
  return FL_OK;
}

fl_status fli_fuse_memory(fuse *f) {
  memory m = {.f = f, .n = f->p->n_steps};
  size_t uses = 0, n = m.n, slots = f->w->n_slots;
  for (uint32_t i = 0; i < m.n; i++)
    uses += (size_t)fli_fuse_step_operands(f, &f->p->steps[i]);
  m.live = fli_malloc(f->rt, n * sizeof *m.live + uses * sizeof *m.uses +
                                 (2 * n + 1 + slots) * sizeof *m.first + 1);
  if (!m.live)
    return FL_ENOMEM;
  m.uses = (memory_use *)(void *)(m.live + n);
  m.first = (uint32_t *)(void *)(m.uses + uses);
  m.order = m.first + n + 1;
  m.seen = m.order + n;
  note_uses(&m);
  measure(&m);
  order_steps(&m);
  fl_status s = apply_order(&m);
  if (s == FL_OK)
    s = list_numbers(&m);
  fli_mfree(m.live);
  return s;
}
