/* The caching allocator, the same for all devices: small blocks from slabs by
 * size class, large ones as spans (segment.c), figures by device and birth
 * site, frees from other threads, what happens when memory runs out, and
 * injected failures. A stream's blocks are given to it again at once, because
 * its later work comes later; one that other streams have used waits for them.
 */
#include "alloc.h"
#include "stream.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMPTY_KEPT  ((size_t)2 << 20) /* bytes of empty slabs, each device */
#define ADDRESSABLE ((size_t)1 << 47) /* more is not worth asking for */
#define CARVED      8                 /* blocks of a new slab at a time */

typedef void (*trace_fn)(void *context, fl_device d, int64_t bytes,
                         size_t live);

struct fli_allocator {
  fli_heap *heap[FLI_MAX_BACKENDS][FLI_MAX_DEVICES]; /* of streams in use */
  fli_memory *memory[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
  size_t limit[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
  _Atomic(fli_block *) returned; /* freed by other threads */
  fli_block *later;              /* freed in a capture, to wait for streams */
  int64_t asked, skip, failing;  /* failure injection */
  bool watched;                  /* tracing, or failing */
  bool reclaiming;
  trace_fn trace;
  void *trace_context;
  char *text; /* of fl_memory_holders */
};

/* --- size classes: 64 .. 512 by 64, then four to each power of two --- */

static inline int class_of(size_t bytes) {
  uint32_t g = (uint32_t)((bytes + FLI_GRANULE - 1) / FLI_GRANULE);
  if (g <= 8)
    return g ? (int)g - 1 : 0;
  int e = 31 - __builtin_clz(g - 1);
  return 8 + (e - 3) * 4 + (int)((g - 1) >> (e - 2) & 3);
}

static size_t class_bytes(int sort) {
  if (sort < 8)
    return (size_t)(sort + 1) * FLI_GRANULE;
  int e = 3 + (sort - 8) / 4;
  return (size_t)(5 + (sort - 8) % 4) << (e - 2) << 6;
}

/* --- slabs --- */

static void slab_list(fli_slab *s) {
  fli_slab **head = &s->heap->room[s->sort];
  s->prev = NULL;
  s->next = *head;
  if (s->next)
    s->next->prev = s;
  *head = s;
}

static void slab_unlist(fli_slab *s) {
  *(s->prev ? &s->prev->next : &s->heap->room[s->sort]) = s->next;
  if (s->next)
    s->next->prev = s->prev;
}

/* Blocks are carved a few at a time, lowest address first, so that pages that
 * are never used are never touched. */
static bool slab_carve(fli_slab *s) {
  uint32_t n = s->count - s->carved;
  n = n < CARVED ? n : CARVED;
  for (uint32_t i = s->carved + n; i-- > s->carved;) {
    s->blocks[i] = (fli_block){.memory = (char *)s->span->block.memory +
                                         (size_t)i * s->size,
                               .bytes = FLI_NOT_LIVE,
                               .next = s->free,
                               .slab = s};
    s->free = &s->blocks[i];
  }
  s->carved += n;
  return n > 0;
}

static fl_status slab_new(fli_heap *h, int sort, bool tight, fli_slab **out) {
  size_t size = class_bytes(sort);
  size_t bytes = 64 * size;
  bytes = bytes < 16u << 10    ? 16u << 10
          : bytes > 512u << 10 ? 512u << 10
                               : bytes;
  fli_span *span;
  fl_status status = fli_span_take(h, bytes, tight, &span);
  if (status == FL_ENOMEM && tight)
    status = fli_span_take(h, size, true, &span);
  if (status)
    return status;
  size_t count = span->size / size;
  fli_slab *s = malloc(sizeof *s + count * sizeof *s->blocks);
  if (!s) {
    fli_span_give(span);
    return FL_ENOMEM;
  }
  *s = (fli_slab){.heap = h,
                  .span = span,
                  .size = (uint32_t)size,
                  .count = (uint32_t)count,
                  .sort = sort};
  span->slab = s;
  h->empty += span->size;
  slab_carve(s);
  slab_list(s);
  *out = s;
  return FL_OK;
}

static void slab_free(fli_slab *s) {
  fli_heap *h = s->heap;
  h->empty -= s->span->size;
  slab_unlist(s);
  fli_span_give(s->span);
  free(s);
}

static void slabs_free_empty(fli_heap *h) {
  for (int sort = 0; sort < FLI_CLASSES && h->empty; sort++)
    for (fli_slab *s = h->room[sort], *next; s; s = next) {
      next = s->next;
      if (s->used == 0)
        slab_free(s);
    }
}

static inline fli_block *slab_pop(fli_heap *h, fli_slab *s) {
  fli_block *b = s->free;
  s->free = b->next;
  if (s->used++ == 0)
    h->empty -= s->span->size;
  if (!s->free && !slab_carve(s))
    slab_unlist(s);
  return b;
}

static inline void slab_push(fli_heap *h, fli_slab *s, fli_block *b) {
  b->next = s->free;
  s->free = b;
  if (!b->next)
    slab_list(s);
  if (--s->used == 0) {
    h->empty += s->span->size;
    if (h->ended || (h->empty > EMPTY_KEPT && (s->prev || s->next)))
      slab_free(s);
  }
}

/* --- blocks --- */

static inline void block_born(fli_heap *h, fli_block *b, size_t bytes,
                              fl_site site) {
  b->bytes = bytes;
  b->site = site;
  fli_memory *m = h->all;
  m->live += bytes;
  if (m->live > m->peak)
    m->peak = m->live;
  m->blocks++;
  m->allocations++;
  FLI_UNPOISON(h, b->memory, bytes);
}

static inline fli_heap *heap_with(const fli_block *b) {
  return b->slab ? b->slab->heap : ((const fli_span *)b)->segment->heap;
}

static inline void block_give(fli_heap *h, fli_block *b) {
  fli_slab *slab = b->slab;
  if (FLI_LIKELY(slab != NULL)) {
    FLI_POISON(h, b->memory, slab->size);
    slab_push(h, slab, b);
  } else {
    FLI_POISON(h, b->memory, ((fli_span *)b)->size);
    fli_span_give((fli_span *)b);
  }
}

void fli_block_passed(fl_runtime *rt, fli_block *b) {
  if (b->users & FLI_TRAILED)
    fli_trail_drop(rt, b);
  fli_promise_drop(b->promise);
  b->promise = NULL;
  b->users = 0;
}

/* Other streams have used it: it is reused when they have reached this point.
 */
static void block_wait(fli_heap *h, fli_block *b) {
  uint32_t users = b->users & ~(FLI_TRAILED | FLI_PROMISED);
  fli_memory *m = h->all;
  fli_block_passed(h->rt, b);
  int n = __builtin_popcount(users);
  fli_waiting *w = n ? malloc(sizeof *w + (size_t)n * sizeof *w->events) : NULL;
  if (!w) {
    fli_stream_settle(h->rt, h->device, users);
    block_give(h, b);
    return;
  }
  *w = (fli_waiting){.block = b};
  for (int i = 0; users; i++, users >>= 1)
    if (users & 1) {
      fl_event *e = fli_stream_event(h->rt, h->device, i);
      if (e)
        w->events[w->n++] = e;
    }
  *(m->last ? &m->last->next : &m->first) = w;
  m->last = w;
}

static void waiting_end(fli_heap *h, fli_waiting *w) {
  for (int i = 0; i < w->n; i++)
    h->backend->event_free(h->backend, w->events[i]);
  free(w);
}

/* Frees the blocks that other streams have passed; `all`: waits for them. In a
 * capture it does nothing: events are not looked at. */
static void give_waiting(fli_memory *m, bool all) {
  fli_waiting **at = &m->first, *before = NULL;
  for (int late = 0; *at && (all || late < 8);) {
    fli_waiting *w = *at;
    fli_heap *h = heap_with(w->block);
    fl_backend *b = h->backend;
    if (fli_capturing(h->rt, h->device))
      return;
    bool passed = true;
    if (all)
      fli_stream_settle(h->rt, h->device, ~FLI_TRAILED);
    for (int i = 0; i < w->n && passed && !all; i++)
      passed = b->event_done(b, w->events[i]);
    if (!passed) {
      late++;
      before = w;
      at = &w->next;
      continue;
    }
    *at = w->next;
    if (m->last == w)
      m->last = before;
    block_give(h, w->block);
    waiting_end(h, w);
  }
}

static void block_free(struct fli_allocator *a, fli_block *b) {
  assert(b->bytes != FLI_NOT_LIVE);
  fli_heap *h = heap_with(b);
  size_t bytes = b->bytes;
  h->all->live -= bytes;
  h->all->blocks--;
  b->bytes = FLI_NOT_LIVE;
  if (FLI_LIKELY(b->users == 0))
    block_give(h, b);
  else if (!fli_capturing(h->rt, h->device))
    block_wait(h, b);
  else {
    b->next = a->later;
    a->later = b;
  }
  if (a->watched && a->trace)
    a->trace(a->trace_context, h->device, -(int64_t)bytes, h->all->live);
}

fl_mark *fli_block_used(fli_block *b, int stream, uint32_t flags) {
  b->users |= flags | (heap_with(b)->stream == stream ? 0 : 1u << stream);
  return b->promise;
}

void fli_block_promise(fli_block *b, fl_mark *m) {
  fli_promise_drop(b->promise);
  b->promise = m;
  b->users |= FLI_PROMISED;
}

static void drain(struct fli_allocator *a) {
  if (!atomic_load_explicit(&a->returned, memory_order_relaxed))
    return;
  fli_block *b =
      atomic_exchange_explicit(&a->returned, NULL, memory_order_acquire);
  for (fli_block *next; b; b = next) {
    next = b->next;
    block_free(a, b);
  }
}

void fli_free(fl_runtime *rt, fli_block *b) {
  struct fli_allocator *a = rt->allocator;
  if (FLI_LIKELY(fli_self() == rt->owner)) {
    block_free(a, b);
    return;
  }
  b->next = atomic_load_explicit(&a->returned, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(
      &a->returned, &b->next, b, memory_order_release, memory_order_relaxed)) {
  }
}

/* --- out of memory --- */

static bool reclaim(struct fli_allocator *a, fli_heap *h, size_t bytes) {
  const fl_runtime_options *o = &h->rt->options;
  if (!o->reclaim || a->reclaiming)
    return false;
  a->reclaiming = true;
  bool again = o->reclaim(o->context, h->device, bytes);
  a->reclaiming = false;
  return again;
}

/* --- allocation --- */

static fl_status block_take(fli_heap *h, size_t bytes, bool tight,
                            fli_block **b) {
  if (!tight)
    bytes += FLI_RED_ZONE;
  if (bytes > FLI_SMALL_BYTES || h->direct) {
    fli_span *span;
    FLI_TRY(fli_span_take(h, bytes, tight, &span));
    *b = &span->block;
    return FL_OK;
  }
  int sort = class_of(bytes);
  fli_slab *s = h->room[sort];
  if (!s)
    FLI_TRY(slab_new(h, sort, tight, &s));
  *b = slab_pop(h, s);
  return FL_OK;
}

/* All heaps of the device return segments until no more than `keep` bytes are
 * reserved. */
static void memory_trim(fli_memory *m, size_t keep) {
  for (fli_heap *h = m->heaps; h && m->reserved > keep; h = h->next) {
    if (h->kept)
      continue;
    size_t others = m->reserved - h->reserved;
    slabs_free_empty(h);
    fli_heap_trim(h, keep > others ? keep - others : 0);
  }
}

static void memory_flush(fli_memory *m) {
  give_waiting(m, true);
  memory_trim(m, 0);
  m->flushes++;
}

/* Ways to get a block, the cheapest first: cached memory and a segment of the
 * usual size; memory of larger sizes, the smallest segment, and free memory at
 * other addresses; blocks that wait for other streams; releasing the cache; and
 * twice a collection by the host. */
static fl_status block_force(struct fli_allocator *a, fli_heap *h, size_t bytes,
                             fli_block **b) {
  fl_status s = block_take(h, bytes, false, b);
  if (s != FL_ENOMEM)
    return s;
  slabs_free_empty(h);
  s = block_take(h, bytes, true, b);
  if (s == FL_ENOMEM && h->all->first) {
    give_waiting(h->all, true);
    s = block_take(h, bytes, true, b);
  }
  for (int i = 0; i < 3 && s == FL_ENOMEM; i++) {
    if (i > 0 && !reclaim(a, h, bytes))
      break;
    if (i == 0)
      h->rt->up->spare(h->rt, h->device);
    drain(a);
    memory_flush(h->all);
    s = block_take(h, bytes, true, b);
  }
  return s == FL_ENOMEM ? fli_out_of_memory(h, bytes, "") : s;
}

static fli_memory *memory_of(fl_runtime *rt, fl_device d) {
  struct fli_allocator *a = rt->allocator;
  fli_memory **m = &a->memory[d >> 8][d & 255];
  if (!*m && (*m = calloc(1, sizeof **m))) {
    (*m)->limit = a->limit[d >> 8][d & 255];
    (*m)->budget = d == 0 ? rt->budget : NULL;
  }
  return *m;
}

/* FLARE_MEMORY=direct: nothing of a device's memory is cached, for tools that
 * look for what is read or written beyond a block. FLARE_MEMORY=segments: no
 * memory gets other addresses. */
static bool alloc_wish(const fl_backend *b, const char *what) {
  const char *said = getenv("FLARE_MEMORY");
  return said && strcmp(said, what) == 0 && !(b->flags & FL_BACKEND_HOST);
}

static fli_heap *heap_new(fl_runtime *rt, fl_device d, fli_memory *m) {
  fli_heap *h = calloc(1, sizeof *h);
  if (!h)
    return NULL;
  h->rt = rt;
  h->device = d;
  h->stream = fl_stream_current(rt, d);
  h->backend = fli_backend(rt, d);
  h->all = m;
  h->next = m->heaps;
  return m->heaps = h;
}

/* Of the stream that is used now. */
static fli_heap *heap_of(fl_runtime *rt, fl_device d) {
  fli_heap **now = &rt->allocator->heap[d >> 8][d & 255];
  if (*now)
    return *now;
  fli_memory *m = memory_of(rt, d);
  if (!m)
    return NULL;
  fli_heap **h = &m->heap[fl_stream_current(rt, d)];
  if (!*h && (*h = heap_new(rt, d, m))) {
    (*h)->direct = alloc_wish((*h)->backend, "direct");
    (*h)->fixed = alloc_wish((*h)->backend, "segments");
  }
  return *now = *h;
}

void fli_alloc_stream(fl_runtime *rt, fl_device d) {
  rt->allocator->heap[d >> 8][d & 255] = NULL;
  heap_of(rt, d);
}

/* --- pools of graphs --- */

/* Those of graphs that are gone stay until they have no segment. */
static void pools_reap(fli_memory *m) {
  for (fli_heap **at = &m->heaps; *at;) {
    fli_heap *h = *at;
    if (h->ended && !h->segments) {
      *at = h->next;
      free(h);
    } else
      at = &h->next;
  }
}

fl_status fli_pool_new(fl_runtime *rt, fl_device d, fli_heap **pool) {
  fli_memory *m = memory_of(rt, d);
  if (m)
    pools_reap(m);
  if (!m || !(*pool = heap_new(rt, d, m)))
    return fli_fail(FL_ENOMEM, "out of memory on the host");
  (*pool)->kept = true;
  return FL_OK;
}

void fli_pool_use(fl_runtime *rt, fl_device d, fli_heap *pool) {
  struct fli_allocator *a = rt->allocator;
  a->heap[d >> 8][d & 255] = pool;
  heap_of(rt, d);
  while (!rt->capture && a->later) {
    fli_block *b = a->later;
    a->later = b->next;
    block_wait(heap_with(b), b);
  }
}

void fli_pool_charge(fli_heap *pool, size_t bytes) {
  fli_memory *m = pool->all;
  if (bytes <= pool->charged)
    return;
  m->live += bytes - pool->charged;
  if (m->live > m->peak)
    m->peak = m->live;
  pool->charged = bytes;
}

void fli_pool_end(fli_heap *pool) {
  pool->all->live -= pool->charged;
  pool->charged = 0;
  pool->kept = false;
  pool->ended = true;
  slabs_free_empty(pool);
  fli_heap_trim(pool, 0);
}

bool fli_pool_has(const fli_heap *pool, const fli_block *b) {
  return b && heap_with(b) == pool;
}

size_t fli_pool_bytes(const fli_heap *pool) {
  return pool->reserved;
}

static bool failure_due(struct fli_allocator *a) {
  if (FLI_LIKELY(a->failing == 0))
    return false;
  if (a->skip > 0) {
    a->skip--;
    return false;
  }
  if (a->failing > 0)
    a->failing--;
  return true;
}

static fl_status alloc_slow(fl_runtime *rt, fl_device d, size_t bytes,
                            fl_site site, fli_block **block, void **memory) {
  struct fli_allocator *a = rt->allocator;
  fli_heap *h = heap_of(rt, d);
  if (!h)
    return fli_fail(FL_ENOMEM, "out of memory on the host");
  rt->up->drain(rt);
  drain(a);
  if (h->all->first)
    give_waiting(h->all, false);
  if (a->trace)
    a->trace(a->trace_context, d, (int64_t)bytes, h->all->live);
  if (failure_due(a))
    return fli_out_of_memory(h, bytes, " (injected)");
  if (bytes > ADDRESSABLE)
    return fli_out_of_memory(h, bytes, "");
  FLI_TRY(block_force(a, h, bytes, block));
  block_born(h, *block, bytes, site);
  *memory = (*block)->memory;
  return FL_OK;
}

fl_status fli_alloc(fl_runtime *rt, fl_device d, size_t bytes, fl_site site,
                    fli_block **block, void **memory) {
  struct fli_allocator *a = rt->allocator;
  fli_heap *h = a->heap[d >> 8][d & 255];
  a->asked++;
  if (FLI_LIKELY(bytes <= FLI_SMALL_BYTES - FLI_RED_ZONE && h && !a->watched)) {
    fli_slab *s = h->room[class_of(bytes + FLI_RED_ZONE)];
    if (FLI_LIKELY(s != NULL)) {
      *block = slab_pop(h, s);
      block_born(h, *block, bytes, site);
      *memory = (*block)->memory;
      return FL_OK;
    }
  }
  return alloc_slow(rt, d, bytes, site, block, memory);
}

bool fli_fail_now(fl_runtime *rt) {
  struct fli_allocator *a = rt->allocator;
  a->asked++;
  return failure_due(a);
}

/* rt may still be without an allocator: while it is opened. */
void *fli_malloc(fl_runtime *rt, size_t bytes) {
  bool fails = rt && rt->allocator && fli_fail_now(rt);
  void *p = fails ? NULL : malloc(bytes ? bytes : 1);
  if (!p)
    fli_fail(FL_ENOMEM, "out of memory on the host%s: asked for %zu bytes",
             fails ? " (injected)" : "", bytes);
  return p;
}

void fli_mfree(void *p) {
  free(p);
}

/* --- opening and closing --- */

fl_status fli_alloc_open(fl_runtime *rt) {
  struct fli_allocator *a = calloc(1, sizeof *a);
  if (!a)
    return fli_fail(FL_ENOMEM, "out of memory on the host");
  rt->allocator = a;
  return FL_OK;
}

/* If this fails, the first allocation tries again. */
void fli_alloc_device(fl_runtime *rt, fl_device d) {
  heap_of(rt, d);
}

static void memory_close(fli_memory *m) {
  if (!m)
    return;
  for (fli_waiting *w = m->first, *next; w; w = next) {
    next = w->next;
    waiting_end(heap_with(w->block), w);
  }
  for (fli_heap *h = m->heaps, *after; h; h = after) {
    after = h->next;
    for (fli_segment *g = h->segments; g; g = g->next)
      for (fli_span *s = g->first; s; s = s->after)
        free(s->slab);
    fli_heap_drop(h);
    free(h);
  }
  free(m);
}

void fli_alloc_close(fl_runtime *rt) {
  struct fli_allocator *a = rt->allocator;
  if (!a)
    return;
  drain(a);
  for (int i = 0; i < FLI_MAX_BACKENDS; i++)
    for (int k = 0; k < FLI_MAX_DEVICES; k++)
      memory_close(a->memory[i][k]);
  free(a->text);
  free(a);
  rt->allocator = NULL;
}

/* --- queries --- */

void fl_memory_get(fl_runtime *rt, fl_device d, fl_memory_stats *s) {
  if (!s)
    return;
  *s = (fl_memory_stats){0};
  if (!rt || fli_check_device(rt, d))
    return;
  fli_memory *m = memory_of(rt, d);
  if (!m)
    return;
  drain(rt->allocator);
  *s = (fl_memory_stats){.live = m->live,
                         .peak_live = m->peak,
                         .reserved = m->reserved,
                         .peak_reserved = m->peak_reserved,
                         .limit = fli_limit_of(m),
                         .blocks = m->blocks,
                         .largest_free = fli_largest_free(m),
                         .allocations = m->allocations,
                         .segments = m->segments_taken,
                         .flushes = m->flushes,
                         .moved = m->moved};
}

size_t fli_memory_live(fl_runtime *rt, fl_device d) {
  const fli_memory *m = memory_of(rt, d);
  return m ? m->live : 0;
}

size_t fli_memory_peak(fl_runtime *rt, fl_device d, size_t peak) {
  fli_memory *m = memory_of(rt, d);
  size_t most = m ? m->peak : 0;
  if (m)
    m->peak = peak > m->live ? peak : m->live;
  return most;
}

void fl_memory_reset_peak(fl_runtime *rt, fl_device d) {
  if (!rt || fli_check_device(rt, d))
    return;
  fli_memory *m = memory_of(rt, d);
  drain(rt->allocator);
  if (!m)
    return;
  m->peak = m->live;
  m->peak_reserved = m->reserved;
}

void fl_memory_limit(fl_runtime *rt, fl_device d, size_t bytes) {
  if (!rt || fli_check_device(rt, d))
    return;
  struct fli_allocator *a = rt->allocator;
  fli_memory *m = memory_of(rt, d);
  a->limit[d >> 8][d & 255] = bytes;
  if (d == 0)
    fli_budget_set(rt->budget, bytes);
  if (!m)
    return;
  m->limit = bytes;
  drain(a);
  if (bytes && m->reserved > bytes)
    memory_trim(m, bytes);
}

void fl_memory_flush(fl_runtime *rt, fl_device d) {
  if (!rt || fli_check_device(rt, d))
    return;
  fli_memory *m = memory_of(rt, d);
  drain(rt->allocator);
  if (m)
    memory_flush(m);
}

int64_t fl_memory_fail(fl_runtime *rt, int64_t skip, int64_t count) {
  FLI_NEED_OR(rt, "rt", 0);
  struct fli_allocator *a = rt->allocator;
  int64_t asked = a->asked;
  a->asked = 0;
  a->skip = skip;
  a->failing = count;
  a->watched = a->trace || count != 0;
  return asked;
}

void fl_memory_trace(fl_runtime *rt, trace_fn event, void *context) {
  if (!rt)
    return;
  struct fli_allocator *a = rt->allocator;
  drain(a);
  a->trace = event;
  a->trace_context = context;
  a->watched = event || a->failing != 0;
}

const char *fl_memory_holders(fl_runtime *rt, fl_device d, int most) {
  FLI_NEED_OR(rt, "rt", "");
  if (fli_check_device(rt, d))
    return "";
  struct fli_allocator *a = rt->allocator;
  fli_memory *m = memory_of(rt, d);
  drain(a);
  free(a->text);
  a->text = m ? fli_holders_text(rt, m, most) : NULL;
  return a->text ? a->text : "";
}
