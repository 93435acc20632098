/* The limit on the CPU's memory, shared by a runtime and those that its threads
 * open: counts what allocators have reserved, and memory that crosses threads.
 */
#include "alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

struct fl_budget {
  atomic_int rc;
  atomic_size_t limit, used; /* bytes; limit 0: none */
};

fl_budget *fli_budget_new(void) {
  fl_budget *b = calloc(1, sizeof *b);
  if (b)
    atomic_init(&b->rc, 1);
  return b;
}

fl_budget *fl_budget_retain(fl_budget *b) {
  if (b)
    atomic_fetch_add_explicit(&b->rc, 1, memory_order_relaxed);
  return b;
}

void fl_budget_release(fl_budget *b) {
  if (b && atomic_fetch_sub_explicit(&b->rc, 1, memory_order_acq_rel) == 1)
    free(b);
}

bool fl_budget_take(fl_budget *b, size_t bytes) {
  FLI_NEED_OR(b, "b", false);
  size_t limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
  size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
  do {
    if (limit && (used > limit || bytes > limit - used))
      return false;
  } while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
  return true;
}

void fl_budget_give(fl_budget *b, size_t bytes) {
  if (!b)
    return;
  atomic_fetch_sub(&b->used, bytes);
}

size_t fli_budget_used(fl_budget *b) {
  return atomic_load(&b->used);
}

size_t fli_budget_limit(fl_budget *b) {
  return atomic_load(&b->limit);
}

void fli_budget_set(fl_budget *b, size_t limit) {
  atomic_store(&b->limit, limit);
}

fl_budget *fl_runtime_budget(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", NULL);
  return rt->budget;
}
