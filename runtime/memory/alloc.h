/* Between alloc.c (blocks: small ones in slabs, figures, failures), segment.c
 * (spans of a backend's segments), pages.c (segments whose memory comes and
 * goes) and holders.c (who holds them). Descriptions of memory lie in host
 * memory, apart from what they describe: the host cannot read a device. */
#ifndef FL_ALLOC_H
#define FL_ALLOC_H

#include "capture.h"
#include "memory.h"

#define FLI_GRANULE     64          /* small blocks are multiples of it */
#define FLI_SMALL_BYTES (64u << 10) /* larger blocks are spans of their own */
#define FLI_CLASSES     36          /* sizes of small blocks */
#define FLI_POOLS       3           /* of spans, by size: see segment.c */
#define FLI_NOT_LIVE    SIZE_MAX    /* fli_block.bytes of a free block */

#if defined(__SANITIZE_ADDRESS__)
#define FLI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLI_ASAN 1
#endif
#endif
/* With the address sanitizer, host memory that is not live is poisoned, and a
 * red zone follows each block: so it sees inside the cache. */
#ifdef FLI_ASAN
#include <sanitizer/asan_interface.h>
#define FLI_RED_ZONE FLI_GRANULE
#define FLI_POISON(h, p, n)                                                    \
  ((h)->backend->flags & FL_BACKEND_HOST ? __asan_poison_memory_region(p, n)   \
                                         : (void)0)
#define FLI_UNPOISON(h, p, n)                                                  \
  ((h)->backend->flags & FL_BACKEND_HOST ? __asan_unpoison_memory_region(p, n) \
                                         : (void)0)
#else
#define FLI_RED_ZONE          0
#define FLI_POISON(h, p, n)   ((void)0)
#define FLI_UNPOISON(h, p, n) ((void)0)
#endif

typedef struct fli_slab fli_slab;
typedef struct fli_span fli_span;
typedef struct fli_segment fli_segment;
typedef struct fli_heap fli_heap;
typedef struct fli_memory fli_memory;

struct fli_block {
  void *memory;
  size_t bytes;    /* as asked for, or FLI_NOT_LIVE */
  fli_block *next; /* in its slab's free list, or in the queue of others */
  fli_slab *slab;  /* NULL: this is the head of a fli_span */
  fl_site site;
  uint32_t users;   /* other streams that used it, a bit each, and flags */
  fl_mark *promise; /* behind the writing that goes on, or NULL */
};

/* A piece of a segment: free, a large block, the memory of a slab, or a hole:
 * addresses without memory. */
struct fli_span {
  fli_block block;
  size_t size;
  fli_segment *segment;
  fli_span *before, *after; /* neighbours in memory */
  fli_span *left, *right;   /* in the pool's tree of free spans */
  fli_slab *slab;           /* that lives here */
  bool free, hole;
};

struct fli_segment {
  fli_heap *heap;
  void *memory;
  size_t size; /* of the addresses */
  size_t here; /* bytes of memory: all, but for pages */
  int pool;
  bool idle;  /* one free span; pages: not said */
  bool pages; /* see pages.c */
  fli_span *first;
  fli_segment *prev, *next;   /* of the heap */
  fli_segment *older, *newer; /* among the idle ones */
};

struct fli_slab {
  fli_heap *heap;
  fli_span *span;
  fli_block *free;
  fli_slab *prev, *next; /* among those of the class that have room */
  uint32_t size, used, carved, count;
  int sort; /* size class */
  fli_block blocks[];
};

/* A block that its stream may have again when others have passed. */
typedef struct fli_waiting {
  struct fli_waiting *next;
  fli_block *block;
  int n;
  fl_event *events[];
} fli_waiting;

/* All memory of one device: a heap for each of its streams, so that what one
 * has done with is not given to another that may be ahead of it, and pools: a
 * heap for each graph, whose launches go on using its memory. */
struct fli_memory {
  size_t live, peak, blocks;
  uint64_t allocations;
  size_t reserved, peak_reserved, limit;
  uint64_t segments_taken, flushes, moved;
  fli_heap *heap[FLI_STREAMS];
  fli_heap *heaps; /* these and the pools */
  fli_waiting *first, *last;
  fl_budget *budget; /* of the CPU: holds the limit; else NULL */
};

struct fli_heap {
  fli_slab *room[FLI_CLASSES]; /* slabs with free blocks, hottest first */
  fli_memory *all;
  size_t empty; /* bytes of slabs without live blocks */

  fl_runtime *rt;
  fl_device device;
  int stream;
  bool direct;    /* every block is a segment of its own, and goes at once */
  bool fixed;     /* no pages */
  bool kept;      /* of a graph: no segment is returned */
  size_t charged; /* of a graph: counted as live */
  bool ended;     /* of a graph that is gone: each goes when it is free */
  fli_heap *next; /* of the device */
  fl_backend *backend;
  fli_span *tree[FLI_POOLS];
  fli_segment *segments, *oldest, *newest;
  size_t reserved;
  size_t idle; /* bytes of segments that are one free span, and of free spans
                  among pages; else: busy */
  size_t peak_busy, last_peak;
  uint32_t since; /* spans taken in this window */
};

/* A span of at least `bytes`, from free ones or from a new segment; ENOMEM
 * without a message, or EFAULT: the device has failed. `anywhere`: also from a
 * pool for larger sizes, and segments no larger than needed. */
fl_status fli_span_take(fli_heap *h, size_t bytes, bool anywhere,
                        fli_span **span);
void fli_span_give(fli_span *s);
/* Returns idle segments to the backend, the oldest first, until no more than
 * `keep` bytes are reserved. */
void fli_heap_trim(fli_heap *h, size_t keep);
/* Everything, whether in use or not. */
void fli_heap_drop(fli_heap *h);
size_t fli_span_largest(const fli_heap *h);
/* Of free spans, by the pool's tree. */
void fli_span_list(fli_span *s);
void fli_span_unlist(fli_span *s);
/* s takes up its neighbour behind, which is in no tree. */
void fli_span_join(fli_span *s);
/* Joins its free neighbours, and is free. */
fli_span *fli_span_free(fli_span *s);
void fli_segment_list(fli_heap *h, fli_segment *g);
void fli_segment_unlist(fli_segment *g);
/* A graph's launches use its memory; and while one is captured, the backend
 * cannot wait for the work that may use a segment. */
static inline bool fli_heap_stays(const fli_heap *h) {
  return h->kept || fli_capturing(h->rt, h->device);
}

/* --- pages.c --- */

/* Whether large spans of the heap are made of pages. */
static inline bool fli_pages_fit(const fli_heap *h, int pool) {
  return h->backend->remap && pool > 0 && !h->direct && !h->fixed && !h->kept &&
         !h->ended;
}
/* A free span of at least `size` bytes. Its memory is new while no more than
 * `most` bytes are reserved; else what is free elsewhere on the device moves
 * there. EUNSUPPORTED: there are no addresses. */
fl_status fli_pages_grow(fli_heap *h, int pool, size_t size, size_t most);
/* Returns memory of free spans until no more than `keep` bytes are reserved. */
void fli_pages_trim(fli_heap *h, size_t keep);
/* The segment ends, whether it is in use or not. */
void fli_pages_free(fli_segment *g);

/* --- holders.c --- */

/* ENOMEM; the message has the figures and the sites that hold most. */
fl_status fli_out_of_memory(fli_heap *h, size_t bytes, const char *why);
size_t fli_largest_free(const fli_memory *m);
size_t fli_limit_of(const fli_memory *m); /* 0: none */
/* "12.0 MB train.lua:41", a line for each site; to be freed, NULL: none. */
char *fli_holders_text(fl_runtime *rt, const fli_memory *m, int most);

#endif
