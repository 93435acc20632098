/* The capture of a launch graph as the groups of runtime/ see it: while it goes
 * on, one stream records its launches, memory of its device comes from a pool
 * of the graph's, and nothing may wait for the device. Graphs themselves are in
 * call/graph.c. */
#ifndef FL_CAPTURE_H
#define FL_CAPTURE_H

#include "../runtime.h"

struct fli_heap;

typedef struct fli_scratch_note { /* a block of a launch's scratch memory */
  void *memory;
  size_t bytes;
} fli_scratch_note;

typedef struct fli_scratch_log { /* those of all launches of a capture */
  fli_scratch_note *notes;
  uint32_t n, room;
} fli_scratch_log;

typedef struct fli_capture {
  fl_device device;
  struct fli_heap *pool;
  const char *op;           /* the operator that is called, NULL: none */
  fli_scratch_log *scratch; /* or NULL */
  fl_status failed;         /* something could not be captured, and why */
  char why[600];
} fli_capture;

static inline bool fli_capturing(const fl_runtime *rt, fl_device d) {
  return !FLI_LIKELY(!rt->capture) && rt->capture->device == d;
}
/* Fails, and with it the capture that goes on. `what` completes "a graph cannot
 * capture ...". */
fl_status fli_capture_fails(fl_runtime *rt, const char *what);
/* The same if a capture goes on (`d` >= 0: of this device), else FL_OK. */
static inline fl_status fli_capture_refuses(fl_runtime *rt, fl_device d,
                                            const char *what) {
  return FLI_LIKELY(!rt->capture) || (d >= 0 && rt->capture->device != d)
             ? FL_OK
             : fli_capture_fails(rt, what);
}

/* --- alloc.c: the memory of a graph --- */

/* A heap of its own for the stream in use; its segments stay until the end. */
fl_status fli_pool_new(fl_runtime *rt, fl_device d, struct fli_heap **pool);
/* Blocks of the device come from the pool; NULL: from its stream's heap. */
void fli_pool_use(fl_runtime *rt, fl_device d, struct fli_heap *pool);
/* So many bytes of it count as live from now on, since its launches use them,
 * though no block has them. */
void fli_pool_charge(struct fli_heap *pool, size_t bytes);
/* The pool returns its memory as soon as no block of it is live. */
void fli_pool_end(struct fli_heap *pool);
bool fli_pool_has(const struct fli_heap *pool, const fli_block *b);
size_t fli_pool_bytes(const struct fli_heap *pool);

#endif
