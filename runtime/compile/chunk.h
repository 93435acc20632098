/* Strip-mining: launches around a large intermediate value run chunk by chunk,
 * so that only a chunk of it is ever in memory. chunk.c finds the launches,
 * loop.c makes them a step of the plan and runs it. */
#ifndef FL_COMPILE_CHUNK_H
#define FL_COMPILE_CHUNK_H

#include "fuse.h"
#include "split.h"

typedef struct fli_chunk_slot { /* a storage, as the launches of a region see it
                                 */
  int64_t step;                 /* bytes of a unit; 0: it is not cut */
  uint32_t writers;             /* among the launches */
  bool read, sum;               /* by them; they add it up */
  bool ahead;                   /* it is known before the first chunk */
  bool outside;                 /* others touch it, or it is held */
  bool inner;                   /* there is memory for a chunk alone */
  int lies_in;                  /* the slot whose memory it takes over; -1 */
} fli_chunk_slot;

/* Launches that run together for each chunk of `units`. */
typedef struct fli_region {
  fuse *f;
  uint32_t n, *entries; /* in their order */
  int64_t units;
  int8_t *dim; /* of operands: the one that is cut, or FLI_SPLIT_... */
  fli_chunk_slot *slots;
  int64_t each; /* units of a chunk */
} fli_region;

/* The launch as a question to its row; *metas has room for its operands. */
bool fli_region_ask(const fuse *f, const fli_entry *e, int at, int dim,
                    const fl_meta **metas, fli_split *s);
/* The bytes of a unit of an operand that is cut. */
int64_t fli_region_step(const fli_region *r, const fli_arg *a, int dim);

/* Operands of all loops of a window, at most. */
static inline size_t fli_chunk_args(uint32_t n_slots) {
  return FUSE_LOOPS * 2 * (size_t)n_slots;
}
/* Puts regions of the window in place of their launches: f->w is then
 * f->chunked, with an entry for each loop. */
fl_status fli_chunk(fuse *f);
/* Sets the loops of the steps, and their entries to those of the window. */
void fli_chunk_finish(fuse *f);
void fli_chunk_close(fuse *f);
/* The loop that launch i of f->w stands for, or NULL. */
const struct fli_loop *fli_chunk_loop(const fuse *f, uint32_t i);

/* --- loop.c --- */

typedef struct fli_loop fli_loop;
fl_status fli_loop_new(const fli_region *r, fli_loop **out);
void fli_loop_free(fli_loop *l);
/* fli_plan_prepare of its plans; `ready`: all kernels are there. */
fl_status fli_loop_prepare(const fli_loop *l, bool *ready);
fl_status fli_loop_run(fli_window *w, fli_loop *l);
/* The slots of the window that it touches: those that it reads, then those that
 * it writes. Returns how many, *n_read of which are read; `slots` has room for
 * twice the window's. */
uint32_t fli_loop_slots(const fli_loop *l, uint32_t *n_read, int *slots);
/* Whether it writes memory that is older than the window. */
bool fli_loop_changes(const fli_window *w, const fli_loop *l);
uint32_t fli_loop_turns(const fli_loop *l);
/* Bytes of its own that it needs at most at a time. */
size_t fli_loop_memory(const fli_loop *l);

#endif
