/* The window of a compiled function: launches that wait, over storages that
 * have no memory yet. All that the host can see of a call (checks, shapes,
 * versions, tape nodes, random numbers) has happened when its launch enters the
 * window; memory and the launch itself wait for the flush. */
#ifndef FL_WINDOW_H
#define FL_WINDOW_H

#include "launch.h"

enum { FLI_ARG_NUMBER = -1, FLI_ARG_NONE = -2 }; /* instead of a slot */

/* An operand: a region of a storage, or a number. */
typedef struct fli_arg {
  int slot;
  fl_meta meta; /* of a number: its dtype */
  int64_t stride[FL_MAX_DIMS];
  int64_t offset;     /* elements, from the slot's base */
  fl_operand operand; /* of a number */
} fli_arg;

typedef struct fli_entry { /* a launch */
  const fl_op *op;
  fl_site site;
  int base, n_in, n_out;
  bool writes;     /* some of its inputs */
  fl_dtype common; /* what numbers become; FL_NODTYPE: they stay as they are */
  uint32_t arg;    /* the first operand: inputs, then results */
  uint32_t attrs;  /* in words */
} fli_entry;

typedef struct fli_slot { /* a storage that launches touch */
  fl_storage *s;          /* counted; NULL after the flush is done with it */
  size_t bytes;
  int64_t base;  /* where offsets count from, bytes */
  uint32_t last; /* launch that touches it */
  bool made;     /* in this window: the first launch makes it */
  bool held;     /* at the flush: by something besides the window */
} fli_slot;

/* Where the offsets of its regions count from. */
static inline void *fli_slot_start(const fli_slot *s) {
  return (char *)s->s->data + s->base;
}
static inline void *fli_slot_data(const fli_slot *s, fl_dtype d,
                                  int64_t offset) {
  return (char *)fli_slot_start(s) + offset * ((int64_t)1 << fli_shift(d));
}
static inline bool fli_slot_held(const fli_slot *s) {
  return atomic_load_explicit(&s->s->rc, memory_order_acquire) > 1;
}

/* The launches of an earlier window, in arrays that its owner keeps. */
typedef struct fli_recording {
  uint64_t id, hash; /* id: no other recording has it; 0: there is none */
  uint32_t n, n_args, n_words, n_slots;
  const fli_entry *entries;
  const fli_arg *args;
  const uint64_t *words;
} fli_recording;

struct fli_plan;

/* Launches [done, n) wait. */
typedef struct fli_window {
  fl_runtime *rt;
  struct fl_compiled *owner; /* NULL: launches wait without a plan */
  struct fli_window *
      *of_owner; /* its pointer to this window while it is open */
  fl_device device;
  fl_stream *stream;
  uint32_t epoch; /* of the storages' marks: which window they are in */
  uint64_t hash;  /* of all that a plan compares */
  uint32_t n, n_args, n_words, n_slots;
  uint32_t room, args_room, words_room, slots_room;
  fli_entry *entries;
  fli_arg *args;
  uint64_t *words; /* attributes, a copy as long as is used */
  fli_slot *slots;
  fli_note *notes; /* of entries, while the profiler runs, or NULL */
  uint32_t notes_room;
  fl_profile_step *step; /* while it runs: what is launched next */
  fli_again *again;      /* launches change a graph; else NULL */
  int depth;             /* of compiled functions that are open */
  int around; /* the depth outside of `owner`, where launches wait without */
  bool whole; /* it may not be flushed before its function ends */
  bool flushing;
  fli_recording next; /* the window that is likely to come, set by the owner */
  uint64_t has;       /* id of the recording that the arrays are equal to */
  bool follows; /* the launches so far are those of `next`; without a hash */
} fli_window;

/* Regions of older memory are found by their distance from the first one that
 * the window has seen, so that a plan fits other slices of a tensor, too. Down
 * to a multiple of this, in bytes, that one's own place is part of it. */
#define FLI_WINDOW_ALIGN 64

/* Before the first launch: whether it follows `next` is known then. */
void fli_window_begin(fli_window *w, fl_device d);
/* Grows an array, *(void **)array, to `need` elements of `size` bytes. */
bool fli_window_room(fl_runtime *rt, void *array, uint32_t *room, uint32_t need,
                     size_t size);
/* True: the launch waits in the window (its operands are in the window's device
 * and stream, and no code outside flare sees their memory), or has failed.
 * False: the caller must run it now; the launches before it have run. */
bool fli_window_takes(fl_runtime *rt, fl_device d, const fli_entry *e,
                      const fl_attrs *attrs, const fl_operand *in,
                      fl_tensor *const *out, fl_status *s);
/* For a call of `flat` shape (flat.c): whether its launch may wait, before its
 * result exists; and the launch, which then waits. */
bool fli_window_waits(fl_runtime *rt, fl_device d, const fli_entry *e,
                      const fl_operand *in);
fl_status fli_window_add(fl_runtime *rt, fl_device d, const fli_entry *given,
                         const fl_attrs *attrs, const fl_operand *in,
                         fl_tensor *const *out);
/* Runs the waiting launches; the window is empty afterwards. */
fl_status fli_window_flush(fl_runtime *rt);
/* Finds the launches that must run: those that write a slot that is `needed` (a
 * flag for each slot; the inputs of launches that run are added). */
void fli_window_runs(const fli_window *w, bool *needed, bool *runs);
/* Whether entry i writes memory that is older than the window. After a failure
 * such launches do not run: their operands may be garbage. */
bool fli_window_changes(const fli_window *w, uint32_t i);
/* Runs entry i as it was called. */
fl_status fli_window_run(fli_window *w, uint32_t i);
/* Launches op's kernel in the place of entry e; *l has operands and attributes,
 * metas those of its first two inputs. */
fl_status fli_window_send(fli_window *w, const fli_entry *e, const fl_op *op,
                          fl_launch *l, const fl_meta *const *metas);
/* fli_send with a row of the profiler. */
fl_status fli_window_timed(fli_window *w, const fli_entry *e, const fl_op *op,
                           const fl_launch *l);
/* "product", "pointwise", ...: what launches of the row are. */
const char *fli_window_kind(const fl_op *op);
/* What launch i does, by its row: FLOPs, bytes, those that it writes. */
void fli_window_cost(const fli_window *w, uint32_t i, double *flops,
                     double *bytes, double *written);
/* A step of n launches, of which the first is launch i, as the profiler keeps
 * it; NULL without memory. */
fl_profile_step *fli_window_step(const fli_window *w, uint32_t i, uint32_t n);
fl_profile_launch fli_window_launched(const fli_window *w, uint32_t i);
/* Sets the kernel's view of an operand, whose storage has memory. */
void fli_window_view(const fli_window *w, const fli_arg *a, fl_dtype common,
                     fl_view *v);
static inline const fl_attrs *fli_entry_attrs(const fli_window *w,
                                              const fli_entry *e) {
  return (const fl_attrs *)(const void *)(w->words + e->attrs);
}

/* *of_owner becomes the window if it is new, and NULL when it ends; both NULL:
 * no plan runs the launches, but those of functions called inside. */
fl_status fli_window_open(fl_runtime *rt, struct fl_compiled *owner,
                          struct fli_window **of_owner);
fl_status fli_window_close(fl_runtime *rt);
void fli_window_free(fl_runtime *rt);

#endif
