/* Memory of Lua states that flare opens: small blocks that the collector frees
 * wait in lists by size for the next handles. A step frees hundreds of handles
 * at once, more than the system's caches for a thread take. */
#include "fll.h"

#include <stdlib.h>

#define SIZES 16  /* lists: of 8, 16, ... bytes */
#define KEPT  512 /* blocks in each */

struct fll_heap {
  void *free[SIZES + 1];
  int n[SIZES + 1];
};

static inline bool heap_listed(size_t bytes) {
  return bytes % 8 == 0 && bytes - 1 < SIZES * 8;
}

static void *heap_allocate(void *context, void *p, size_t old, size_t bytes) {
  fll_heap *h = context;
  if (!p) {
    void **block = heap_listed(bytes) ? h->free[bytes / 8] : NULL;
    if (!block)
      return bytes ? malloc(bytes) : NULL;
    h->free[bytes / 8] = *block;
    h->n[bytes / 8]--;
    return block;
  }
  if (bytes)
    return realloc(p, bytes);
  if (heap_listed(old) && h->n[old / 8] < KEPT) {
    *(void **)p = h->free[old / 8];
    h->free[old / 8] = p;
    h->n[old / 8]++;
  } else {
    free(p);
  }
  return NULL;
}

/* Blocks that L has already are as good: each list is of one exact size. */
fll_heap *fll_heap_open(lua_State *L) {
  fll_heap *h = calloc(1, sizeof *h);
#ifndef __SANITIZE_ADDRESS__ /* which would not see into the lists */
  if (h)
    lua_setallocf(L, heap_allocate, h);
#endif
  return h;
}

void fll_heap_close(fll_heap *h) {
  for (int k = 0; h && k <= SIZES; k++)
    for (void **p = h->free[k], **next; p; p = next) {
      next = *p;
      free(p);
    }
  free(h);
}
