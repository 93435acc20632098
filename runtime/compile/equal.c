/* Launches that compute the same twice, as the casts of autocast do. */
#include "fuse.h"

#include <string.h>

typedef struct equal { /* the pass over a window */
  fuse *f;
  uint32_t *version, *writers; /* of slots: launches so far, in all */
  uint32_t *table, mask;       /* launches by hash, + 1 */
  uint64_t *hash;              /* of launches */
  uint32_t *versions;          /* of operands, when their launch ran */
} equal;

static uint64_t equal_mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 32;
}

static uint32_t words_of(const fuse *f, const fli_entry *e) {
  size_t used = fli_entry_attrs(f->w, e)->used;
  return (uint32_t)((offsetof(fl_attrs, list) + used * 8 + 7) / 8);
}

/* Whether another launch with the same operands gives the same, and its results
 * are fresh and stay as they are. */
static bool equal_may(const equal *q, const fli_entry *e, bool second) {
  const fuse *f = q->f;
  if (e->op->info.random || e->writes || e->op->id >= FLI_OPS)
    return false;
  for (int k = 0; k < e->n_in; k++)
    if (fli_fuse_arg(f, e->arg + (uint32_t)k)->slot == FLI_ARG_NUMBER)
      return false;
  for (int k = 0; k < e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)(e->n_in + k))->slot;
    if (!f->w->slots[slot].made || q->writers[slot] != 1 ||
        (second && f->p->held[slot]))
      return false;
  }
  return true;
}

static uint64_t equal_hash(const equal *q, const fli_entry *e) {
  const fuse *f = q->f;
  uint64_t h = (uint64_t)(uintptr_t)e->op + (uint64_t)e->n_in;
  for (uint32_t k = 0, n = words_of(f, e); k < n; k++)
    h = equal_mix(h, f->w->words[e->attrs + k]);
  for (int k = 0; k < e->n_in; k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
    h = equal_mix(h, (uint64_t)a->slot << 32 | (uint64_t)a->offset);
    h = equal_mix(h, a->slot < 0 ? 0 : q->version[a->slot]);
  }
  return h;
}

static bool same_shape_of_memory(const fli_arg *a, const fli_arg *b) {
  fli_arg at = *b;
  at.slot = a->slot;
  return fli_same_region(a, &at);
}

static bool equal_same(const equal *q, uint32_t i, uint32_t j) {
  const fuse *f = q->f;
  const fli_entry *a = &f->w->entries[i], *b = &f->w->entries[j];
  if (q->hash[i] != q->hash[j] || a->op != b->op || a->base != b->base ||
      a->common != b->common || a->n_in != b->n_in || a->n_out != b->n_out ||
      words_of(f, a) != words_of(f, b) ||
      memcmp(f->w->words + a->attrs, f->w->words + b->attrs,
             words_of(f, a) * sizeof *f->w->words))
    return false;
  for (int k = 0; k < a->n_in + a->n_out; k++) {
    uint32_t x = a->arg + (uint32_t)k, y = b->arg + (uint32_t)k;
    const fli_arg *u = fli_fuse_arg(f, x), *v = fli_fuse_arg(f, y);
    if (k < a->n_in ? !fli_same_region(u, v) || q->versions[x] != q->versions[y]
                    : !same_shape_of_memory(u, v))
      return false;
  }
  return true;
}

/* What reads the results of launch i reads those of launch `first`. */
static void equal_rename(equal *q, uint32_t i, uint32_t first) {
  fuse *f = q->f;
  const fli_entry *a = &f->w->entries[first], *b = &f->w->entries[i];
  for (int k = 0; k < b->n_out; k++) {
    int to = fli_fuse_arg(f, a->arg + (uint32_t)(a->n_in + k))->slot;
    int from = fli_fuse_arg(f, b->arg + (uint32_t)(b->n_in + k))->slot;
    for (uint32_t x = b->arg; x < f->w->n_args; x++)
      if (f->args[x].slot == from)
        f->args[x].slot = to;
  }
  f->runs[i] = false;
}

static void equal_visit(equal *q, uint32_t i) {
  fuse *f = q->f;
  const fli_entry *e = &f->w->entries[i];
  if (equal_may(q, e, false)) {
    for (int k = 0; k < e->n_in; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
      q->versions[e->arg + (uint32_t)k] = slot < 0 ? 0 : q->version[slot];
    }
    uint64_t h = q->hash[i] = equal_hash(q, e);
    uint32_t at = (uint32_t)h & q->mask;
    for (; q->table[at]; at = (at + 1) & q->mask)
      if (equal_same(q, q->table[at] - 1, i)) {
        if (equal_may(q, e, true))
          equal_rename(q, i, q->table[at] - 1);
        return;
      }
    q->table[at] = i + 1;
  }
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
    if (slot >= 0 && fli_fuse_writes(f, e, k))
      q->version[slot]++;
  }
}

static void count_writers(equal *q) {
  const fuse *f = q->f;
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && f->runs[i]; k++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)k)->slot;
      if (slot >= 0 && fli_fuse_writes(f, e, k))
        q->writers[slot]++;
    }
  }
}

fl_status fli_fuse_equal(fuse *f) {
  const fli_window *w = f->w;
  uint32_t size = 64;
  while (size < 2 * w->n)
    size *= 2;
  f->args = fli_malloc(f->rt, w->n_args * sizeof *f->args + 1);
  size_t words = 2 * (size_t)w->n_slots + size + w->n_args;
  uint64_t *room =
      fli_malloc(f->rt, w->n * sizeof *room + words * sizeof(uint32_t));
  if (!f->args || !room) {
    fli_mfree(room);
    return FL_ENOMEM;
  }
  memcpy(f->args, w->args, w->n_args * sizeof *f->args);
  memset(room, 0, w->n * sizeof *room + words * sizeof(uint32_t));
  equal q = {.f = f, .hash = room, .mask = size - 1};
  q.version = (uint32_t *)(room + w->n);
  q.writers = q.version + w->n_slots;
  q.table = q.writers + w->n_slots;
  q.versions = q.table + size;
  count_writers(&q);
  for (uint32_t i = 0; i < w->n; i++)
    if (f->runs[i])
      equal_visit(&q, i);
  fli_mfree(room);
  return FL_OK;
}
