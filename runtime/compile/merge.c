/* Merging of groups: two kernels whose results meet in a launch become one,
 * which then need not read from memory what the other has written. */
#include "fuse.h"

static bool has_member(const fuse *f, uint32_t which, uint32_t entry) {
  for (int i = 0; i < FUSE_OPEN; i++)
    for (int k = 0; which >> i & 1 && k < f->groups[i]->n; k++)
      if (f->groups[i]->entry[k] == entry)
        return true;
  return false;
}

bool fli_fuse_merge_loads(const fuse *f, int slot, uint32_t time) {
  uint32_t k = f->merged ? f->last[slot] : FUSE_NONE;
  if (k == FUSE_NONE)
    return false;
  for (; k != FUSE_NONE && f->entry_of[k] >= time; k = f->before[k])
    if (!has_member(f, f->merged, f->entry_of[k]))
      return false;
  return k == FUSE_NONE || !has_member(f, f->merged, f->entry_of[k]);
}

/* Adds the launches of a and b to group z in their order. */
static bool merge_members(fuse *f, const fuse_group *a, const fuse_group *b,
                          int z) {
  uint32_t close = 0;
  for (int i = 0, k = 0; i < a->n || k < b->n;) {
    bool first = k == b->n || (i < a->n && a->entry[i] < b->entry[k]);
    uint32_t entry = first ? a->entry[i++] : b->entry[k++];
    f->now = entry;
    if (i + k == 1 ? !fli_fuse_begin(f, z, entry, &close)
                   : !fli_fuse_join(f, z, entry, &close))
      return false;
  }
  return !(close & ~f->merged);
}

static void forget_readers(fuse *f, int i) {
  const fuse_group *g = f->groups[i];
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].slot >= 0)
      f->readers[g->leaves[k].slot] &= ~(1u << i);
}

static void restore_writer(fuse *f, int i) {
  const fuse_group *g = f->groups[i];
  for (int k = 0; k < g->n_written; k++)
    f->writer[g->written[k].slot] = (int8_t)i;
}

static void drop_group(fuse *f, int i) {
  forget_readers(f, i);
  fli_fuse_group_free(f->groups[i]);
  f->groups[i] = NULL;
}

static bool has_sum(const fuse *f, const fuse_group *g) {
  for (int k = 0; k < g->n; k++)
    if (fli_fuse_part(f, &f->entries[g->entry[k]])->role >= FUSE_BEGIN)
      return true;
  return false;
}

bool fli_fuse_merge(fuse *f, int a, int b, int *at) {
  fuse_group *x = f->groups[a], *y = f->groups[b];
  int z = 0;
  while (z < FUSE_OPEN && f->groups[z])
    z++;
  if (z == FUSE_OPEN || x->n + y->n > f->most ||
      x->graph.n + y->graph.n > FUSE_NODES || has_sum(f, x) || has_sum(f, y))
    return false;
  fuse_group *g = f->groups[z] = fli_fuse_group_new(f);
  if (!g)
    return false;
  fli_apart apart = f->apart;
  uint32_t from = f->from, now = f->now;
  g->apart = x->apart;
  g->from = x->from;
  f->merged = 1u << a | 1u << b;
  bool merged = merge_members(f, x, y, z);
  f->merged = 0;
  f->apart = apart;
  f->from = from;
  f->now = now;
  if (merged) {
    drop_group(f, a);
    drop_group(f, b);
    *at = z;
  } else {
    drop_group(f, z);
    restore_writer(f, a);
    restore_writer(f, b);
  }
  return merged;
}
