/* Launches that come earlier than they were called. A sum of a gradient is
 * often called when other launches have long used the gradient: the kernel that
 * computes it cannot wait so long, and the sum would read it again. A launch
 * with a small result therefore comes right behind what it depends on, if that
 * may be one kernel with it. */
#include "fuse.h"
#include "rows.h"

#include <string.h>

#define SMALLER 8 /* times, than what is read: such results are small */

static int64_t bytes_of(const fli_arg *a) {
  int64_t n = (int64_t)fl_dtype_size(a->meta.dtype);
  for (int d = 0; d < a->meta.ndim; d++)
    n *= a->meta.shape[d];
  return n;
}

/* Whether launch i has to come behind launch e. */
static bool depends_on(const fuse *f, const fli_entry *i, const fli_entry *e) {
  for (int k = 0; k < i->n_in + i->n_out; k++) {
    int slot = fli_fuse_arg(f, i->arg + (uint32_t)k)->slot;
    bool writes = fli_fuse_writes(f, i, k);
    for (int n = 0; n < e->n_in + e->n_out && slot >= 0; n++)
      if (fli_fuse_arg(f, e->arg + (uint32_t)n)->slot == slot &&
          (writes || fli_fuse_writes(f, e, n)))
        return true;
  }
  return false;
}

/* A sum with a result much smaller than what it reads, or a copy of one that
 * comes early. */
static bool is_small(const fuse *f, const fli_entry *e, const uint8_t *early) {
  bool copies = fli_row_copies(e->op, e->n_in) == 0;
  if (e->n_in < 1 || e->n_out != 1 || e->writes || !fli_fuse_can(f, e) ||
      !(fli_row_facts_of(e->op)->body || copies))
    return false;
  const fli_arg *from = fli_fuse_arg(f, e->arg),
                *to = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  return from->slot >= 0 && (copies ? early[from->slot]
                                    : bytes_of(to) * SMALLER <= bytes_of(from));
}

/* Behind which place of the order launch i may come; at most `end`. */
static uint32_t place_of(const fuse *f, const uint32_t *order, uint32_t end,
                         uint32_t i) {
  const fli_entry *entries = f->w->entries;
  while (end > 0 && (!f->runs[order[end - 1]] ||
                     !depends_on(f, &entries[i], &entries[order[end - 1]])))
    end--;
  return end;
}

fl_status fli_fuse_early(const fuse *f, uint32_t *order) {
  uint32_t n = f->w->n;
  uint8_t *early = fli_malloc(f->rt, f->w->n_slots + 1);
  if (!early)
    return FL_ENOMEM;
  memset(early, 0, f->w->n_slots + 1);
  for (uint32_t i = 0; i < n; i++) {
    const fli_entry *e = &f->w->entries[i];
    order[i] = i;
    if (!f->tiles || f->c->exact || !f->runs[i] || !is_small(f, e, early))
      continue;
    uint32_t at = place_of(f, order, i, i);
    if (at == 0 || !fli_fuse_can(f, &f->w->entries[order[at - 1]]))
      continue;
    early[fli_fuse_arg(f, e->arg + (uint32_t)e->n_in)->slot] = 1;
    memmove(order + at + 1, order + at, (i - at) * sizeof *order);
    order[at] = i;
  }
  fli_mfree(early);
  return FL_OK;
}
