/* Spans: a backend's segments, cut and joined again. Best fit, the lowest
 * address among equals, in one tree of free spans for each pool. What a caller
 * does with a span (slabs, large blocks, figures) is alloc.c's business.
 *
 * The pools keep sizes apart that would block each other: up to 512 KiB from
 * segments of 2 MiB, up to 16 MiB from segments of 8 to 32 MiB (four spans, or
 * an eighth of what there is, so that little work reserves little), larger ones
 * from segments of their own, which are cut only for other large ones. Where a
 * backend can move memory to other addresses, both larger pools are in segments
 * of pages (pages.c). */
#include "alloc.h"

#include <stdlib.h>

#define PAGE   ((size_t)4096)
#define MIB    ((size_t)1 << 20)
#define SLACK  (32 * MIB) /* kept beyond what was needed lately */
#define WINDOW 16384      /* spans; "lately" is this window or the last */

static const struct {
  size_t most;            /* the largest span asked of this pool */
  size_t segment, growth; /* sizes of segments, of the first and at most */
  size_t least;           /* smaller rests stay with the span that is cut */
} pools[FLI_POOLS] = {
    {512 << 10, 2 * MIB, 2 * MIB, 4096},
    {16 * MIB, 8 * MIB, 32 * MIB, 64 << 10},
    {SIZE_MAX, 0, 0, MIB},
};

/* --- the tree: a treap by (size, address) --- */

static bool segment_before(const fli_span *a, const fli_span *b) {
  if (a->size != b->size)
    return a->size < b->size;
  return (uintptr_t)a->block.memory < (uintptr_t)b->block.memory;
}

static uint32_t weight(const fli_span *s) {
  return (uint32_t)(((uint64_t)(uintptr_t)s * 0x9E3779B97F4A7C15u) >> 32);
}

static void tree_insert(fli_span **t, fli_span *s) {
  uint32_t w = weight(s);
  while (*t && weight(*t) >= w)
    t = segment_before(s, *t) ? &(*t)->left : &(*t)->right;
  /* what is below is split around s */
  fli_span *rest = *t, **left = &s->left, **right = &s->right;
  *t = s;
  while (rest) {
    if (segment_before(s, rest)) {
      *right = rest;
      right = &rest->left;
      rest = rest->left;
    } else {
      *left = rest;
      left = &rest->right;
      rest = rest->right;
    }
  }
  *left = *right = NULL;
}

static void tree_remove(fli_span **t, fli_span *s) {
  while (*t != s)
    t = segment_before(s, *t) ? &(*t)->left : &(*t)->right;
  fli_span *a = s->left, *b = s->right;
  while (a && b) {
    if (weight(a) >= weight(b)) {
      *t = a;
      t = &a->right;
      a = a->right;
    } else {
      *t = b;
      t = &b->left;
      b = b->left;
    }
  }
  *t = a ? a : b;
}

static fli_span *tree_fit(fli_span *t, size_t size) {
  fli_span *best = NULL;
  while (t) {
    if (t->size >= size) {
      best = t;
      t = t->left;
    } else {
      t = t->right;
    }
  }
  return best;
}

size_t fli_span_largest(const fli_heap *h) {
  size_t most = 0;
  for (int p = 0; p < FLI_POOLS; p++) {
    const fli_span *s = h->tree[p];
    while (s && s->right)
      s = s->right;
    if (s && s->size > most)
      most = s->size;
  }
  return most;
}

void fli_span_list(fli_span *s) {
  fli_segment *g = s->segment;
  s->free = true;
  tree_insert(&g->heap->tree[g->pool], s);
  if (g->pages)
    g->heap->idle += s->size;
}

void fli_span_unlist(fli_span *s) {
  fli_segment *g = s->segment;
  s->free = false;
  tree_remove(&g->heap->tree[g->pool], s);
  if (g->pages)
    g->heap->idle -= s->size;
}

/* --- segments --- */

static void idle_add(fli_segment *g) {
  fli_heap *h = g->heap;
  g->idle = true;
  h->idle += g->size;
  g->newer = NULL;
  g->older = h->newest;
  *(h->newest ? &h->newest->newer : &h->oldest) = g;
  h->newest = g;
}

static void idle_remove(fli_segment *g) {
  fli_heap *h = g->heap;
  g->idle = false;
  h->idle -= g->size;
  *(g->older ? &g->older->newer : &h->oldest) = g->newer;
  *(g->newer ? &g->newer->older : &h->newest) = g->older;
}

void fli_segment_list(fli_heap *h, fli_segment *g) {
  g->next = h->segments;
  if (g->next)
    g->next->prev = g;
  h->segments = g;
}

void fli_segment_unlist(fli_segment *g) {
  *(g->prev ? &g->prev->next : &g->heap->segments) = g->next;
  if (g->next)
    g->next->prev = g->prev;
}

static void segment_free(fli_segment *g) {
  fli_heap *h = g->heap;
  for (fli_span *s = g->first, *next; s; s = next) {
    next = s->after;
    free(s);
  }
  fli_segment_unlist(g);
  h->reserved -= g->size;
  h->all->reserved -= g->size;
  if (h->all->budget)
    fl_budget_give(h->all->budget, g->size);
  FLI_UNPOISON(h, g->memory, g->size);
  h->backend->release(h->backend, h->device & 255, g->memory, g->size);
  free(g);
}

static void segment_retire(fli_segment *g) {
  idle_remove(g);
  fli_span_unlist(g->first);
  segment_free(g);
}

static void trim_segments(fli_heap *h, size_t keep) {
  while (h->oldest && h->reserved > keep && !fli_heap_stays(h))
    segment_retire(h->oldest);
}

void fli_heap_trim(fli_heap *h, size_t keep) {
  trim_segments(h, keep);
  if (h->backend->remap && h->reserved > keep && !fli_heap_stays(h))
    fli_pages_trim(h, keep);
}

void fli_heap_drop(fli_heap *h) {
  while (h->segments)
    if (h->segments->pages)
      fli_pages_free(h->segments);
    else
      segment_free(h->segments);
}

static size_t busy_of(const fli_heap *h) {
  return h->reserved - h->idle;
}

/* How much may stay reserved with segments of `busy` bytes in use: the recent
 * need, so that a training step finds its memory again, not that of a phase
 * long ago. */
static size_t allowance(const fli_heap *h, size_t busy) {
  size_t most = h->peak_busy > h->last_peak ? h->peak_busy : h->last_peak;
  if (busy > most)
    most = busy;
  return most + most / 8 + SLACK;
}

static size_t segment_bytes(const fli_heap *h, int pool, size_t size) {
  size_t bytes = pools[pool].segment;
  while (bytes < pools[pool].growth &&
         (bytes < 4 * size || bytes < h->reserved / 8))
    bytes *= 2;
  return bytes < size ? size : bytes;
}

static fl_status segment_new(fli_heap *h, int pool, size_t size, bool exact) {
  size_t bytes = exact ? size : segment_bytes(h, pool, size);
  if (fli_pages_fit(h, pool)) {
    size_t most = exact           ? 0
                  : h->all->limit ? SIZE_MAX /* who sets one allows so much */
                                  : allowance(h, busy_of(h) + bytes);
    fl_status status = fli_pages_grow(h, pool, bytes, most);
    if (status != FL_EUNSUPPORTED)
      return status;
  }
  size_t page = h->direct ? 0 : h->backend->page, limit = h->all->limit;
  if (page) /* it would be taken anyway */
    bytes = (bytes + page - 1) / page * page;
  fli_heap_trim(h, allowance(h, busy_of(h) + bytes) - bytes);
  size_t reserved = h->all->reserved;
  fl_budget *budget = h->all->budget;
  if (budget ? !fl_budget_take(budget, bytes)
             : limit && (reserved > limit || bytes > limit - reserved))
    return FL_ENOMEM;
  fli_segment *g = calloc(1, sizeof *g);
  fli_span *s = calloc(1, sizeof *s);
  void *memory = NULL;
  fl_status status = FL_ENOMEM;
  if (g && s)
    status = h->backend->alloc(h->backend, h->device & 255, bytes, &memory);
  if (status) { /* a device that has failed is not one without memory */
    free(g);
    free(s);
    if (budget)
      fl_budget_give(budget, bytes);
    return status == FL_EFAULT ? status : FL_ENOMEM;
  }
  *g = (fli_segment){.heap = h,
                     .memory = memory,
                     .size = bytes,
                     .here = bytes,
                     .pool = pool,
                     .first = s};
  s->block = (fli_block){.memory = memory, .bytes = FLI_NOT_LIVE};
  s->size = bytes;
  s->segment = g;
  fli_segment_list(h, g);
  h->reserved += bytes;
  h->all->reserved += bytes;
  if (h->all->reserved > h->all->peak_reserved)
    h->all->peak_reserved = h->all->reserved;
  h->all->segments_taken++;
  FLI_POISON(h, memory, bytes);
  fli_span_list(s);
  idle_add(g);
  return FL_OK;
}

/* --- spans --- */

/* Small sizes in pages, large ones in steps of 1/64 to 1/32 of their size, so
 * that nearly equal sizes can follow each other in one place. */
static size_t segment_rounded(size_t bytes) {
  size_t step = PAGE;
  while (step < bytes / 64)
    step *= 2;
  return (bytes + step - 1) / step * step;
}

static fli_span *segment_cut(fli_heap *h, fli_span *s, size_t size) {
  fli_segment *g = s->segment;
  fli_span_unlist(s);
  if (g->idle)
    idle_remove(g);
  fli_span *rest = NULL;
  if (s->size - size >= pools[g->pool].least)
    rest = calloc(1, sizeof *rest); /* without it, the span stays whole */
  if (rest) {
    rest->block.memory = (char *)s->block.memory + size;
    rest->block.bytes = FLI_NOT_LIVE;
    rest->size = s->size - size;
    rest->segment = g;
    rest->before = s;
    rest->after = s->after;
    if (rest->after)
      rest->after->before = rest;
    s->after = rest;
    s->size = size;
    fli_span_list(rest);
  }
  size_t busy = busy_of(h);
  if (busy > h->peak_busy)
    h->peak_busy = busy;
  if (++h->since >= WINDOW) {
    h->since = 0;
    h->last_peak = h->peak_busy;
    h->peak_busy = busy;
    fli_heap_trim(h, allowance(h, busy));
  }
  return s;
}

static fl_status take_direct(fli_heap *h, size_t bytes, fli_span **span) {
  FLI_TRY(segment_new(h, FLI_POOLS - 1, bytes ? bytes : FLI_GRANULE, true));
  *span = segment_cut(h, h->segments->first, h->segments->size);
  return FL_OK;
}

fl_status fli_span_take(fli_heap *h, size_t bytes, bool anywhere,
                        fli_span **span) {
  if (h->direct)
    return take_direct(h, bytes, span);
  size_t size = segment_rounded(bytes);
  int pool = 0;
  while (size > pools[pool].most)
    pool++;
  for (int p = pool; p < (anywhere ? FLI_POOLS : pool + 1); p++) {
    fli_span *s = tree_fit(h->tree[p], size);
    if (s) {
      *span = segment_cut(h, s, size);
      return FL_OK;
    }
  }
  fl_status status = segment_new(h, pool, size, anywhere);
  if (status == FL_ENOMEM && anywhere) {
    size = (bytes + FLI_GRANULE - 1) / FLI_GRANULE * FLI_GRANULE;
    status = segment_new(h, pool, size, true);
  }
  if (status)
    return status;
  *span = segment_cut(h, tree_fit(h->tree[pool], size), size);
  return FL_OK;
}

void fli_span_join(fli_span *s) {
  fli_span *gone = s->after;
  s->size += gone->size;
  s->after = gone->after;
  if (s->after)
    s->after->before = s;
  free(gone);
}

fli_span *fli_span_free(fli_span *s) {
  if (s->after && s->after->free) {
    fli_span_unlist(s->after);
    fli_span_join(s);
  }
  if (s->before && s->before->free) {
    s = s->before;
    fli_span_unlist(s);
    fli_span_join(s);
  }
  s->block.bytes = FLI_NOT_LIVE;
  fli_span_list(s);
  return s;
}

void fli_span_give(fli_span *s) {
  fli_segment *g = s->segment;
  fli_heap *h = g->heap;
  s->slab = NULL;
  s = fli_span_free(s);
  if (s->size == g->size && !g->pages) {
    idle_add(g);
    if (h->direct || h->ended)
      trim_segments(h, h->reserved - g->size);
    else
      trim_segments(h, allowance(h, busy_of(h)));
  }
}
