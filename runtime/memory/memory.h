/* What the allocator and the devices offer to the rest of runtime/. Streams are
 * in stream.h; alloc.h is this folder's own. */
#ifndef FL_MEMORY_H
#define FL_MEMORY_H

#include "../runtime.h"

/* --- alloc.c --- */

#define FLI_TRAILED  (1u << 31) /* among a block's users: has a trail */
#define FLI_PROMISED (1u << 30) /* the same: a promise */

/* Counts, limits, reclaiming and failure injection are inside;
 * ENOMEM's message has the figures. bytes 0 gives a small block. */
fl_status fli_alloc(fl_runtime *rt, fl_device d, size_t bytes, fl_site site,
                    fli_block **block, void **memory);
/* From any thread. */
void fli_free(fl_runtime *rt, fli_block *block);
fl_status fli_alloc_open(fl_runtime *rt);
void fli_alloc_close(fl_runtime *rt);
void fli_alloc_device(fl_runtime *rt, fl_device d); /* a device appeared */
void fli_alloc_stream(fl_runtime *rt, fl_device d); /* another is used now */
size_t fli_memory_live(fl_runtime *rt, fl_device d);
/* The peak of live bytes, which becomes `peak` if that is not below them. */
size_t fli_memory_peak(fl_runtime *rt, fl_device d, size_t peak);
/* A stream uses the block; `flags` may be FLI_TRAILED. Gives back the promise
 * of its contents, or NULL. */
fl_mark *fli_block_used(fli_block *b, int stream, uint32_t flags);
/* Other streams are done with the block: its own comes after them. */
void fli_block_passed(fl_runtime *rt, fli_block *b);
/* Holds m, instead of the promise before. */
void fli_block_promise(fli_block *b, fl_mark *m);
/* Host memory for headers and tables; NULL with a message. */
void *fli_malloc(fl_runtime *rt, size_t bytes);
void fli_mfree(void *p);
/* Whether an injected failure is due; counts. */
bool fli_fail_now(fl_runtime *rt);

/* Host blocks that come and go with every call (tape nodes): free lists by
 * size. `bytes` must be the same for both. */
static inline void *fli_small_new(fl_runtime *rt, size_t bytes) {
  size_t k = (bytes + 63) / 64;
  if (k >= FLI_SMALL)
    return fli_malloc(rt, bytes);
  struct fli_small *p = rt->small[k];
  if (!p)
    return fli_malloc(rt, k * 64);
  rt->small[k] = *(struct fli_small **)p;
  return p;
}

static inline void fli_small_free(fl_runtime *rt, void *p, size_t bytes) {
  size_t k = (bytes + 63) / 64;
#ifdef __SANITIZE_ADDRESS__
  k = FLI_SMALL; /* so that it sees what is used after it was freed */
#endif
  /* storages may be released by any thread; lists are the owner's */
  if (k >= FLI_SMALL || rt->owner != fli_self()) {
    fli_mfree(p);
    return;
  }
  *(struct fli_small **)p = rt->small[k];
  rt->small[k] = p;
}

/* --- budget.c --- */

fl_budget *fli_budget_new(void);
size_t fli_budget_used(fl_budget *b);
size_t fli_budget_limit(fl_budget *b); /* 0: none */
void fli_budget_set(fl_budget *b, size_t limit);

/* --- device.c --- */

fl_status fli_check_owner(fl_runtime *rt);
fl_status fli_check_device(fl_runtime *rt, fl_device d);
fl_stream *fli_stream_open(fl_runtime *rt, fl_device d);
static inline fl_stream *fli_stream(fl_runtime *rt, fl_device d) {
  fl_stream *s = rt->streams[d >> 8][d & 255];
  return FLI_LIKELY(s != NULL) ? s : fli_stream_open(rt, d);
}

/* --- load.c --- */

/* A function of a shared object, which stays open. */
fl_status fli_library_symbol(const char *path, const char *name,
                             void *function);
fl_status fli_engine_symbol(const char *path, void *function);

#endif
