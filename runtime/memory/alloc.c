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
    if (h->empty > EMPTY_KEPT && (s->prev || s->next))
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

/* Other streams have used it: it is reused when they have reached this point.
 */
static void block_wait(fli_heap *h, fli_block *b) {
  uint32_t users = b->users & ~(FLI_TRAILED | FLI_PROMISED);
  fli_memory *m = h->all;
  if (b->users & FLI_TRAILED)
    fli_trail_drop(h->rt, b);
  fli_promise_drop(b->promise);
  b->promise = NULL;
  b->users = 0;
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

/* Frees the blocks that other streams have passed; `all`: waits for them. */
static void give_waiting(fli_memory *m, bool all) {
  fli_waiting **at = &m->first, *before = NULL;
  for (int late = 0; *at && (all || late < 8);) {
    fli_waiting *w = *at;
    fli_heap *h = heap_with(w->block);
    fl_backend *b = h->backend;
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
  else
    block_wait(h, b);
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

/* "12.0 MB": three digits, powers of ten as in the limits people set. */
static const char *bytes_text(char out[16], size_t bytes) {
  static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
  double v = (double)bytes / 1000;
  int u = 0;
  if (bytes < 1000) {
    snprintf(out, 16, "%zu B", bytes);
    return out;
  }
  for (; v >= 999.5 && u < 5; u++)
    v /= 1000;
  snprintf(out, 16, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
  return out;
}

typedef struct holding {
  fl_site site;
  size_t bytes;
} holding;

static int by_site(const void *a, const void *b) {
  fl_site x = ((const holding *)a)->site, y = ((const holding *)b)->site;
  return (x > y) - (x < y);
}

static int by_bytes(const void *a, const void *b) {
  size_t x = ((const holding *)a)->bytes, y = ((const holding *)b)->bytes;
  return x != y ? (x < y) - (x > y) : by_site(a, b);
}

static size_t heap_holdings(const fli_heap *h, holding *list) {
  size_t n = 0;
  for (const fli_segment *g = h->segments; g; g = g->next)
    for (const fli_span *s = g->first; s; s = s->after) {
      const fli_block *b = s->slab ? s->slab->blocks : &s->block;
      for (uint32_t i = 0; i < (s->slab ? s->slab->carved : 1); i++)
        if (b[i].bytes != FLI_NOT_LIVE)
          list[n++] = (holding){b[i].site, b[i].bytes};
    }
  return n;
}

/* Live bytes of each site, the most first; *list is the caller's to free. */
static size_t holdings(const fli_memory *all, holding **list) {
  size_t n = 0, m = 0;
  *list = malloc((all->blocks + 1) * sizeof **list);
  if (!*list)
    return 0;
  for (int i = 0; i < FLI_STREAMS; i++)
    if (all->heap[i])
      n += heap_holdings(all->heap[i], *list + n);
  qsort(*list, n, sizeof **list, by_site);
  for (size_t i = 0; i < n; i++) {
    if (m && (*list)[m - 1].site == (*list)[i].site)
      (*list)[m - 1].bytes += (*list)[i].bytes;
    else
      (*list)[m++] = (*list)[i];
  }
  qsort(*list, m, sizeof **list, by_bytes);
  return m;
}

static size_t largest_free(const fli_memory *m) {
  size_t most = 0;
  for (int i = 0; i < FLI_STREAMS; i++) {
    size_t here = m->heap[i] ? fli_span_largest(m->heap[i]) : 0;
    most = here > most ? here : most;
  }
  return most;
}

static size_t limit_of(const fli_memory *m) {
  return m->budget ? fli_budget_limit(m->budget) : m->limit;
}

static fl_status out_of_memory(fli_heap *h, size_t bytes, const char *why) {
  char asked[16], live[16], reserved[16], limit[16], largest[16], part[16];
  char most[256] = "", there_is[96] = "";
  size_t at = 0, left = 0, total = 0;
  const fli_memory *m = h->all;
  fl_backend *b = h->backend;
  holding *list;
  if (b->memory_info &&
      b->memory_info(b, h->device & 255, &left, &total) == FL_OK) {
    char there[16];
    snprintf(there_is, sizeof there_is, "; the device has %s free of %s",
             bytes_text(part, left), bytes_text(there, total));
  }
  size_t used = m->budget ? fli_budget_used(m->budget) : 0;
  if (used > m->reserved)
    snprintf(there_is, sizeof there_is,
             "; other threads and shared memory have %s of the limit",
             bytes_text(part, used - m->reserved));
  size_t n = holdings(m, &list);
  for (size_t i = 0; i < n && i < 3 && list[i].bytes; i++) {
    at += (size_t)snprintf(
        most + at, sizeof most - at, "%s%s %s",
        i ? ", " : "; held most: ", bytes_text(part, list[i].bytes),
        fl_site_text(h->rt, list[i].site));
    if (at >= sizeof most)
      break;
  }
  free(list);
  return fli_fail(
      FL_ENOMEM,
      "out of memory on %s%s: asked for %s; live %s in %zu blocks, reserved "
      "%s, limit %s, largest free block %s%s%s",
      fl_device_name(h->rt, h->device), why, bytes_text(asked, bytes),
      bytes_text(live, m->live), m->blocks, bytes_text(reserved, m->reserved),
      limit_of(m) ? bytes_text(limit, limit_of(m)) : "none",
      bytes_text(largest, largest_free(m)), there_is, most);
}

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
  for (int i = 0; i < FLI_STREAMS && m->reserved > keep; i++) {
    fli_heap *h = m->heap[i];
    if (!h)
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
 * usual size; memory of larger sizes and the smallest segment; releasing the
 * cache; and twice a collection by the host. */
static fl_status block_force(struct fli_allocator *a, fli_heap *h, size_t bytes,
                             fli_block **b) {
  fl_status s = block_take(h, bytes, false, b);
  if (s != FL_ENOMEM)
    return s;
  slabs_free_empty(h);
  s = block_take(h, bytes, true, b);
  for (int i = 0; i < 3 && s == FL_ENOMEM; i++) {
    if (i > 0 && !reclaim(a, h, bytes))
      break;
    drain(a);
    memory_flush(h->all);
    s = block_take(h, bytes, true, b);
  }
  return s == FL_ENOMEM ? out_of_memory(h, bytes, "") : s;
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
 * look for what is read or written beyond a block. */
static bool alloc_direct(const fl_backend *b) {
  const char *said = getenv("FLARE_MEMORY");
  return said && strcmp(said, "direct") == 0 && !(b->flags & FL_BACKEND_HOST);
}

/* Of the stream that is used now. */
static fli_heap *heap_of(fl_runtime *rt, fl_device d) {
  fli_heap **now = &rt->allocator->heap[d >> 8][d & 255];
  if (*now)
    return *now;
  fli_memory *m = memory_of(rt, d);
  int stream = fl_stream_current(rt, d);
  if (!m)
    return NULL;
  fli_heap **h = &m->heap[stream];
  if (!*h && (*h = calloc(1, sizeof **h))) {
    (*h)->rt = rt;
    (*h)->device = d;
    (*h)->stream = stream;
    (*h)->backend = fli_backend(rt, d);
    (*h)->direct = alloc_direct((*h)->backend);
    (*h)->all = m;
  }
  return *now = *h;
}

void fli_alloc_stream(fl_runtime *rt, fl_device d) {
  rt->allocator->heap[d >> 8][d & 255] = NULL;
  heap_of(rt, d);
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
    return out_of_memory(h, bytes, " (injected)");
  if (bytes > ADDRESSABLE)
    return out_of_memory(h, bytes, "");
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
  for (int k = 0; k < FLI_STREAMS; k++) {
    fli_heap *h = m->heap[k];
    if (!h)
      continue;
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
                         .limit = limit_of(m),
                         .blocks = m->blocks,
                         .largest_free = largest_free(m),
                         .allocations = m->allocations,
                         .segments = m->segments_taken,
                         .flushes = m->flushes};
}

size_t fli_memory_live(fl_runtime *rt, fl_device d) {
  const fli_memory *m = memory_of(rt, d);
  return m ? m->live : 0;
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
  char part[16];
  free(a->text);
  a->text = NULL;
  if (!m)
    return "";
  drain(a);
  holding *list;
  size_t n = holdings(m, &list), at = 0;
  for (size_t i = 0; i < n && (int64_t)i < most; i++) {
    const char *where = fl_site_text(rt, list[i].site);
    size_t room = strlen(where) + sizeof part + 2;
    char *text = realloc(a->text, at + room);
    if (!text)
      break;
    a->text = text;
    at += (size_t)snprintf(text + at, room, "%s%s %s", at ? "\n" : "",
                           bytes_text(part, list[i].bytes), where);
  }
  free(list);
  return a->text ? a->text : "";
}
