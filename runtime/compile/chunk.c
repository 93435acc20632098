/* Which launches run chunk by chunk: those around a value that is large, made
 * and last read inside the window, if all of them can be cut along one dim of
 * it and nothing between them needs the whole of what they make. */
#include "chunk.h"
#include "recompute.h"

#include <string.h>

#define BYTES_CPU  ((size_t)64 << 20)  /* of a chunk's values, about */
#define BYTES      ((size_t)256 << 20) /* the same on other devices */
#define ROWS_LEAST 1024 /* of a chunk: products of fewer are slower */
#define ROWS_EVEN  128  /* what chunks are a multiple of, if they are large */
#define UNKNOWN    (-3) /* of an operand: not yet asked */
#define TRIES      16   /* values */

/* What a walk over the launches knows of a slot. */
enum { READ = 1, WRITTEN = 2 };

typedef struct growing {
  fli_region r;
  size_t limit;
  uint8_t *in;             /* of launches: it is in the region */
  uint8_t *after, *before; /* it depends on the region, or the reverse */
  uint8_t *seen;           /* of slots, while walking */
  uint8_t *tried;          /* as the first value of a region */
  const fl_meta *metas[FLI_SPLIT_OPERANDS];
} growing;

/* --- what launches do with slots --- */

static int use_of(const fuse *f, const fli_entry *e, int k) {
  if (k >= e->n_in)
    return WRITTEN;
  return fli_op_writes(e->op, fli_entry_attrs(f->w, e), e->n_in, k)
             ? READ | WRITTEN
             : READ;
}

/* Whether the launch has to run in another order than after what `seen` says
 * has been done with its slots. */
static bool walk_conflicts(const fuse *f, const fli_entry *e,
                           const uint8_t *seen) {
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot < 0)
      continue;
    if (seen[slot] & WRITTEN || (seen[slot] && use_of(f, e, k) & WRITTEN))
      return true;
  }
  return false;
}

static void walk_note(const fuse *f, const fli_entry *e, uint8_t *seen) {
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0)
      seen[slot] |= (uint8_t)use_of(f, e, k);
  }
}

/* Finds the launches that depend on the region and those on which it depends;
 * what is both joins it. True: some have joined. */
static bool grow_between(growing *g) {
  const fuse *f = g->r.f;
  uint32_t n = f->w->n;
  bool more = false;
  memset(g->seen, 0, f->w->n_slots);
  for (uint32_t i = 0; i < n; i++) {
    const fli_entry *e = &f->w->entries[i];
    g->after[i] = f->runs[i] && !g->in[i] && walk_conflicts(f, e, g->seen);
    if (g->in[i] || g->after[i])
      walk_note(f, e, g->seen);
  }
  memset(g->seen, 0, f->w->n_slots);
  for (uint32_t i = n; i-- > 0;) {
    const fli_entry *e = &f->w->entries[i];
    g->before[i] = f->runs[i] && !g->in[i] && walk_conflicts(f, e, g->seen);
    if (g->in[i] || g->before[i])
      walk_note(f, e, g->seen);
    if (g->before[i] && g->after[i])
      g->in[i] = more = true;
  }
  return more;
}

/* All launches that touch the slot join. */
static bool grow_around(growing *g, int slot) {
  const fuse *f = g->r.f;
  bool more = false;
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && f->runs[i] && !g->in[i]; k++)
      if (fli_fuse_arg(f, e->arg + (uint32_t)k)->slot == slot)
        g->in[i] = more = true;
  }
  return more;
}

static bool is_temporary(const fuse *f, int slot) {
  return f->w->slots[slot].made && !f->p->held[slot];
}

/* --- how they are cut --- */

bool fli_region_ask(const fuse *f, const fli_entry *e, int at, int dim,
                    const fl_meta **metas, fli_split *s) {
  *s = (fli_split){.op = e->op,
                   .attrs = fli_entry_attrs(f->w, e),
                   .n_in = e->n_in,
                   .n_out = e->n_out,
                   .in = metas,
                   .out = metas + e->n_in,
                   .at = at,
                   .dim = dim};
  if (e->n_in + e->n_out > FLI_SPLIT_OPERANDS || e->writes ||
      e->op->info.random)
    return false;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
    metas[k] = a->slot < 0 ? NULL : &a->meta;
  }
  return fli_split_of(s);
}

int64_t fli_region_step(const fli_region *r, const fli_arg *a, int dim) {
  return a->meta.shape[dim] / r->units * a->stride[dim] *
         (int64_t)fl_dtype_size(a->meta.dtype);
}

/* The dim whose elements lie furthest apart; -1. */
static int dim_outermost(const fli_arg *a) {
  int dim = -1;
  for (int i = 0; i < a->meta.ndim; i++)
    if (a->meta.shape[i] > 1 && (dim < 0 || a->stride[i] > a->stride[dim]))
      dim = i;
  return dim;
}

/* The dim of an operand along which its memory is cut in such steps; -1. */
static int dim_of_step(const fli_region *r, const fli_arg *a, int64_t step) {
  for (int i = 0; i < a->meta.ndim; i++)
    if (a->meta.shape[i] > 1 && a->meta.shape[i] % r->units == 0 &&
        fli_region_step(r, a, i) == step)
      return i;
  return -1;
}

/* Every access of the first value is cut along its outermost dim, in as many
 * units as the coarsest of them has. */
static bool set_units(growing *g, int slot) {
  const fuse *f = g->r.f;
  int64_t units = 0, step = 0;
  for (int turn = 0; turn < 2; turn++)
    for (uint32_t i = 0; i < f->w->n; i++) {
      const fli_entry *e = &f->w->entries[i];
      for (int k = 0; k < e->n_in + e->n_out && g->in[i]; k++) {
        const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
        int dim = a->slot == slot ? dim_outermost(a) : 0;
        if (dim < 0)
          return false;
        if (a->slot != slot)
          continue;
        int64_t size = a->meta.shape[dim];
        if (turn == 0) {
          units = units == 0 || size < units ? size : units;
          continue;
        }
        g->r.units = units;
        if (size % units || (step && fli_region_step(&g->r, a, dim) != step))
          return false;
        step = fli_region_step(&g->r, a, dim);
      }
    }
  g->r.slots[slot].step = step;
  return units > 1 && step > 0;
}

/* Takes over the row's answer for one operand. */
static bool cut_operand(growing *g, const fli_entry *e, int k, int to) {
  uint32_t at = e->arg + (uint32_t)k;
  const fli_arg *a = fli_fuse_arg(g->r.f, at);
  g->r.dim[at] = (int8_t)to;
  if (a->slot < 0)
    return to == FLI_SPLIT_WHOLE;
  fli_chunk_slot *slot = &g->r.slots[a->slot];
  if (to == FLI_SPLIT_SUM) {
    slot->sum = true;
    return k >= e->n_in && slot->writers == 1 && slot->step == 0 &&
           g->r.f->w->slots[a->slot].made;
  }
  if (to < 0) /* read whole, or a result without elements */
    return k < e->n_in || fl_numel(a->meta.ndim, a->meta.shape) == 0;
  if (a->meta.shape[to] % g->r.units)
    return false;
  int64_t step = fli_region_step(&g->r, a, to);
  if (slot->writers == 0)
    return true; /* several may read it, each in its way */
  if (step <= 0 || slot->sum)
    return false;
  bool same = slot->step == 0 || slot->step == step;
  slot->step = step;
  return same;
}

/* A result that another row gives before the chunks. */
static void note_ahead(growing *g, const fli_entry *e, const fli_split *s) {
  const fuse *f = g->r.f;
  int out = 0, row = fli_split_ahead(e->op, &out);
  bool known = row >= 0 && f->rt->ops[row].kernel[f->w->device >> 8];
  for (int k = 0; k < e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)(e->n_in + k))->slot;
    if (s->over[k] >= 0) {
      int by = fli_fuse_arg(f, e->arg + (uint32_t)(e->n_in + s->over[k]))->slot;
      g->r.slots[by].outside = true; /* it is needed after the last */
    }
    if (known && k == out && s->to[e->n_in + k] == FLI_SPLIT_SUM)
      g->r.slots[slot].ahead = true;
  }
}

/* Asks the row of launch i, by an operand of which it is known how it is cut;
 * if there is one; false: it cannot be cut. */
static bool cut_launch(growing *g, uint32_t i, bool *done) {
  const fuse *f = g->r.f;
  const fli_entry *e = &f->w->entries[i];
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
    fli_split s;
    if (a->slot < 0 || g->r.slots[a->slot].step == 0 ||
        g->r.slots[a->slot].writers == 0)
      continue;
    int dim = dim_of_step(&g->r, a, g->r.slots[a->slot].step);
    if (dim < 0 || !fli_region_ask(f, e, k, dim, g->metas, &s))
      return false;
    for (int j = 0; j < e->n_in + e->n_out; j++)
      if (!cut_operand(g, e, j, s.to[j]))
        return false;
    note_ahead(g, e, &s);
    *done = true;
    return true;
  }
  return true;
}

static void count_slots(growing *g) {
  const fuse *f = g->r.f;
  for (uint32_t k = 0; k < f->w->n_slots; k++)
    g->r.slots[k] = (fli_chunk_slot){.outside = !is_temporary(f, (int)k)};
  memset(g->r.dim, UNKNOWN, f->w->n_args);
  g->r.n = 0;
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    if (g->in[i])
      g->r.entries[g->r.n++] = i;
    for (int k = 0; k < e->n_in + e->n_out && f->runs[i]; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
      if (slot < 0)
        continue;
      int use = use_of(f, e, k);
      if (!g->in[i])
        g->r.slots[slot].outside = true;
      else {
        g->r.slots[slot].writers += (use & WRITTEN) != 0;
        g->r.slots[slot].read |= use & READ;
      }
    }
  }
}

/* Finds out how every launch of the region is cut, from the first value on. */
static bool cut_all(growing *g, int first) {
  count_slots(g);
  if (!set_units(g, first))
    return false;
  memset(g->seen, 0, g->r.n); /* launches that are done */
  for (uint32_t left = g->r.n, before = left + 1; left && left < before;) {
    before = left;
    for (uint32_t i = 0; i < g->r.n; i++) {
      bool done = false;
      if (g->seen[i])
        continue;
      if (!cut_launch(g, g->r.entries[i], &done))
        return false;
      g->seen[i] = done;
      left -= done;
    }
    if (left == 0)
      return true;
  }
  return false;
}

/* No launch reads all of what another makes chunk by chunk. */
static bool cut_holds(const growing *g) {
  const fuse *f = g->r.f;
  for (uint32_t i = 0; i < g->r.n; i++) {
    const fli_entry *e = &f->w->entries[g->r.entries[i]];
    for (int k = 0; k < e->n_in; k++) {
      uint32_t at = e->arg + (uint32_t)k;
      int slot = fli_fuse_arg(f, at)->slot;
      if (slot < 0 || g->r.slots[slot].writers == 0)
        continue;
      const fli_chunk_slot *s = &g->r.slots[slot];
      if (s->sum ? !s->ahead : g->r.dim[at] < 0)
        return false;
    }
  }
  return true;
}

/* --- growing --- */

/* Other large values that the region makes are part of it, with all that
 * touches them. */
static bool grow_large(growing *g, size_t least) {
  const fuse *f = g->r.f;
  bool more = false;
  for (uint32_t k = 0; k < f->w->n_slots; k++)
    if (g->r.slots[k].writers && g->r.slots[k].step &&
        is_temporary(f, (int)k) && f->w->slots[k].s->bytes >= least)
      more |= grow_around(g, (int)k);
  return more;
}

/* Every access of a unit lies in its step of memory. */
static bool lies_in_steps(const growing *g, uint32_t at, int64_t step) {
  const fli_arg *a = fli_fuse_arg(g->r.f, at);
  int64_t size = (int64_t)fl_dtype_size(a->meta.dtype), end = a->offset + 1;
  for (int i = 0; i < a->meta.ndim; i++) {
    int64_t n = a->meta.shape[i];
    if (a->stride[i] < 0)
      return false;
    end += ((i == g->r.dim[at] ? n / g->r.units : n) - 1) * a->stride[i];
  }
  return end * size <= step;
}

static void find_inner(growing *g) {
  const fuse *f = g->r.f;
  for (uint32_t k = 0; k < f->w->n_slots; k++) {
    fli_chunk_slot *s = &g->r.slots[k];
    s->inner = s->writers && s->step && !s->outside;
  }
  for (uint32_t i = 0; i < g->r.n; i++) {
    const fli_entry *e = &f->w->entries[g->r.entries[i]];
    for (int k = 0; k < e->n_in + e->n_out; k++) {
      uint32_t at = e->arg + (uint32_t)k;
      int slot = fli_fuse_arg(f, at)->slot;
      if (slot >= 0 && g->r.slots[slot].inner &&
          !lies_in_steps(g, at, g->r.slots[slot].step))
        g->r.slots[slot].inner = false;
    }
  }
}

static bool same_elements(const fli_arg *a, const fli_arg *b) {
  fli_arg at = *b;
  at.slot = a->slot;
  return fli_same_region(a, &at);
}

/* A result takes over the memory of an input that nothing reads behind it, if
 * the row allows it. */
static void find_reused(growing *g) {
  const fuse *f = g->r.f;
  for (uint32_t k = 0; k < f->w->n_slots; k++)
    g->r.slots[k].lies_in = -1;
  for (uint32_t i = 0; i < g->r.n; i++) {
    const fli_entry *e = &f->w->entries[g->r.entries[i]];
    int in = fli_split_reuses(e->op);
    if (in < 0)
      continue;
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)in),
                  *y = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
    bool last = a->slot >= 0 && g->r.slots[a->slot].inner &&
                g->r.slots[y->slot].inner && same_elements(a, y);
    for (uint32_t j = i + 1; j < g->r.n && last; j++) {
      const fli_entry *later = &f->w->entries[g->r.entries[j]];
      for (int k = 0; k < later->n_in + later->n_out; k++)
        last &= fli_fuse_arg(f, later->arg + (uint32_t)k)->slot != a->slot;
    }
    int lies_in = last ? g->r.slots[a->slot].lies_in : -1;
    if (last) /* or in that of the input's input */
      g->r.slots[y->slot].lies_in = lies_in < 0 ? a->slot : lies_in;
  }
}

/* Chunks as large as the limit allows; false: they save too little. */
static bool choose_chunks(growing *g, int first) {
  const fuse *f = g->r.f;
  size_t unit = 0, whole = 0, sums = 0;
  for (uint32_t k = 0; k < f->w->n_slots; k++) {
    const fli_chunk_slot *s = &g->r.slots[k];
    size_t bytes = f->w->slots[k].s->bytes;
    if (s->inner) {
      unit = (size_t)s->step > unit ? (size_t)s->step : unit;
      whole += bytes;
    }
    if (s->sum && s->outside && !s->ahead)
      sums += 3 * bytes; /* a chunk's, and all in f32 if they have 16 bits */
  }
  int64_t each = (int64_t)(g->limit / (unit ? unit : 1)), n = g->r.units;
  if (!f->c->chunk && !(f->recompute && f->recompute->chunk)) {
    int64_t rows = ROWS_LEAST;
    for (uint32_t i = 0; i < f->w->n_args; i++) /* of the first value */
      if (f->args[i].slot == first && g->r.dim[i] >= 0) {
        int64_t per = f->args[i].meta.shape[g->r.dim[i]] / n;
        rows = per < ROWS_LEAST ? ROWS_LEAST / per : 1;
      }
    each = each > rows ? each : rows;
  }
  each = each < 1 ? 1 : each;
  int64_t turns = (n + each - 1) / each;
  each = (n + turns - 1) / turns;
  if (each > 4 * ROWS_EVEN)
    each = (each + ROWS_EVEN - 1) / ROWS_EVEN * ROWS_EVEN;
  g->r.each = each;
  return g->r.slots[first].inner && each < n &&
         whole - whole / (size_t)turns > sums;
}

static bool region_grow(growing *g, int first) {
  const fuse *f = g->r.f;
  memset(g->in, 0, f->w->n);
  grow_around(g, first);
  do {
    while (grow_between(g))
      ;
    if (!cut_all(g, first))
      return false;
  } while (grow_large(g, f->w->slots[first].s->bytes / 4));
  if (!cut_holds(g))
    return false;
  find_inner(g);
  find_reused(g);
  return choose_chunks(g, first);
}

/* --- the window with loops in it --- */

/* As a launch: it touches what the loop touches. */
static const fl_op loop_op = {
    .info = {.name = "loop"}, .id = FLI_OPS, .family = FLI_STRUCTURED};

/* What the region needs comes first, then the loop, then what needs it. */
static void put_loop(growing *g, fli_entry loop) {
  fuse *f = g->r.f;
  fli_window *w = &f->chunked;
  uint32_t last = g->r.entries[g->r.n - 1], n = 0, first = g->r.entries[0];
  uint32_t origin = f->origin[first];
  /* in a copy of what follows the first launch */
  fli_entry *entries = w->entries + w->n;
  uint32_t *origins = f->origin + w->n;
  bool *runs = (bool *)g->before;
  for (int turn = 0; turn < 3; turn++) {
    for (uint32_t i = first; i < w->n && turn != 1; i++) {
      bool early = i < last && !g->after[i];
      if (g->in[i] || early != (turn == 0))
        continue;
      entries[n] = w->entries[i];
      origins[n] = f->origin[i];
      runs[n++] = f->runs[i];
    }
    if (turn == 1) {
      entries[n] = loop;
      origins[n] = origin;
      runs[n++] = true;
    }
  }
  memmove(w->entries + first, entries, n * sizeof *entries);
  memmove(f->origin + first, origins, n * sizeof *origins);
  memcpy(f->runs + first, runs, n * sizeof *runs);
  w->n = first + n;
}

static fl_status chunk_add(growing *g, int *slots) {
  fuse *f = g->r.f;
  fli_window *w = &f->chunked;
  fli_loop *loop;
  uint32_t n_read;
  if (f->n_loops == FUSE_LOOPS)
    return FL_OK;
  FLI_TRY(fli_loop_new(&g->r, &loop));
  f->loops[f->n_loops] = loop;
  const fli_entry *first = &w->entries[g->r.entries[0]];
  uint32_t n = fli_loop_slots(loop, &n_read, slots);
  fli_entry e = {.op = &loop_op,
                 .site = first->site,
                 .base = (int)f->n_loops++,
                 .n_in = (int)n_read,
                 .n_out = (int)(n - n_read),
                 .common = FL_NODTYPE,
                 .arg = w->n_args,
                 .attrs = first->attrs};
  for (uint32_t k = 0; k < n; k++) {
    fli_arg *a = &f->args[w->n_args++];
    memset(a, 0, sizeof *a);
    a->slot = slots[k];
  }
  put_loop(g, e);
  return FL_OK;
}

/* The largest value that may be the first of a region; -1. */
static int choose_first(const growing *g) {
  const fuse *f = g->r.f;
  int best = -1;
  size_t most = 2 * g->limit - 1;
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    if (!f->runs[i] || e->op->id >= FLI_OPS || fli_fuse_can(f, e))
      continue;
    for (int k = 0; k < e->n_out; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)(e->n_in + k))->slot;
      size_t bytes = f->w->slots[slot].s->bytes;
      if (!g->tried[slot] && is_temporary(f, slot) && bytes > most) {
        most = bytes;
        best = slot;
      }
    }
  }
  return best;
}

static fl_status chunk_all(growing *g, int *slots) {
  for (int k = 0; k < TRIES; k++) {
    int first = choose_first(g);
    if (first < 0)
      break;
    g->tried[first] = true;
    if (region_grow(g, first))
      FLI_TRY(chunk_add(g, slots));
  }
  return FL_OK;
}

/* Room for twice the launches and, of all loops, operands. */
static fl_status chunk_open(fuse *f) {
  const fli_window *w = f->w;
  size_t args = w->n_args + fli_chunk_args(w->n_slots);
  fli_arg *more = fli_malloc(f->rt, args * sizeof *more + 1);
  f->chunked = *w;
  f->chunked.entries =
      fli_malloc(f->rt, 2 * (size_t)w->n * sizeof(fli_entry) + 1);
  uint32_t *old = f->origin;
  f->origin = fli_malloc(f->rt, 2 * (size_t)w->n * sizeof *f->origin + 1);
  for (uint32_t i = 0; f->origin && i < w->n; i++)
    f->origin[i] = old ? old[i] : i;
  fli_mfree(old);
  if (!more || !f->chunked.entries || !f->origin) {
    fli_mfree(more);
    return FL_ENOMEM;
  }
  memcpy(more, f->args, w->n_args * sizeof *more);
  memcpy(f->chunked.entries, w->entries, w->n * sizeof(fli_entry));
  fli_mfree(f->args);
  f->args = more;
  f->w = &f->chunked;
  return FL_OK;
}

static size_t device_bytes(const fuse *f) {
  size_t given = f->recompute ? f->recompute->chunk : 0;
  return given          ? given
         : f->c->chunk  ? f->c->chunk
         : f->w->device ? BYTES
                        : BYTES_CPU;
}

fl_status fli_chunk(fuse *f) {
  const fli_window *w = f->w;
  growing g = {.r.f = f, .limit = device_bytes(f)};
  size_t n = w->n, slots = w->n_slots,
         args = w->n_args + fli_chunk_args(w->n_slots);
  if (!w->owner || f->c->exact || f->c->chunk == SIZE_MAX)
    return FL_OK;
  uint8_t *tried = fli_malloc(f->rt, slots + 1);
  if (!tried)
    return FL_ENOMEM;
  memset(tried, 0, slots);
  g.tried = tried;
  if (choose_first(&g) < 0) { /* most windows */
    fli_mfree(tried);
    return FL_OK;
  }
  fl_status s = chunk_open(f);
  g.r.entries =
      fli_malloc(f->rt, n * sizeof *g.r.entries + 2 * slots * sizeof(int));
  g.r.slots = fli_malloc(f->rt, slots * sizeof *g.r.slots);
  g.r.dim = fli_malloc(f->rt, args + 3 * n + slots + n);
  if (s == FL_OK && g.r.entries && g.r.slots && g.r.dim) {
    g.in = (uint8_t *)g.r.dim + args;
    g.after = g.in + n;
    g.before = g.after + n;
    g.seen = g.before + n;
    s = chunk_all(&g, (int *)(void *)(g.r.entries + n));
  } else if (s == FL_OK)
    s = FL_ENOMEM;
  fli_mfree(g.r.dim);
  fli_mfree(g.r.slots);
  fli_mfree(g.r.entries);
  fli_mfree(tried);
  return s;
}

const fli_loop *fli_chunk_loop(const fuse *f, uint32_t i) {
  const fli_entry *e = &f->w->entries[i];
  return e->op == &loop_op ? f->loops[e->base] : NULL;
}

void fli_chunk_finish(fuse *f) {
  fli_plan *p = f->p;
  for (uint32_t i = 0; i < p->n_steps && f->origin; i++) {
    fli_step *x = &p->steps[i];
    const fli_entry *e = &f->w->entries[x->entry];
    if (!x->op && e->op == &loop_op) {
      x->loop = f->loops[e->base];
      f->loops[e->base] = NULL;
    }
    x->entry = f->origin[x->entry];
    x->leader = x->leader ? f->origin[x->leader - 1] + 1 : 0;
    x->from = x->from == FUSE_NONE ? FUSE_NONE : f->origin[x->from];
  }
  for (uint32_t k = 0; k < p->n_members && f->origin; k++) {
    uint32_t member = p->members[k];
    p->members[k] = (member & FLI_AGAIN) | f->origin[member & ~FLI_AGAIN];
  }
}

void fli_chunk_close(fuse *f) {
  for (uint32_t k = 0; k < f->n_loops; k++)
    fli_loop_free(f->loops[k]);
  fli_mfree(f->chunked.entries);
  fli_mfree(f->origin);
}
