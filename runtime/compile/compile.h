/* Compiled functions: the windows that they have run, and a plan for each that
 * has occurred again. */
#ifndef FL_COMPILE_H
#define FL_COMPILE_H

#include "../call/window.h"
#include "../tile.h"
#include "trial.h"

/* What a fused kernel gets: memory of a slot, or a number of the window. */
typedef struct fli_fused_operand {
  int slot;
  uint32_t number; /* operand of the window, if slot < 0 */
  fl_meta meta;
  int64_t offset, stride[FL_MAX_DIMS];
} fli_fused_operand;

typedef struct fli_moved { /* an operand that lies elsewhere than in the window
                            */
  uint32_t arg;
  int slot;
  int64_t offset, stride[FL_MAX_DIMS];
} fli_moved;

/* Why a launch begins a kernel instead of joining one before it. */
typedef enum fli_apart {
  FLI_APART_NOT,
  FLI_APART_OPERATOR, /* no expression of its row is known */
  FLI_APART_DTYPE,    /* expressions do not compute in the dtype */
  FLI_APART_EMPTY,    /* tensors without elements */
  FLI_APART_NOTHING,  /* no kernel has computed what it reads */
  FLI_APART_AFTER,    /* a kernel that takes no others has */
  FLI_APART_CLOSED,   /* the kernel that has was ended by launches since */
  FLI_APART_LOOPS,    /* it has other loops */
  FLI_APART_ROWS,     /* rows are too long to be read again in the kernel */
  FLI_APART_MEMORY,   /* the kernel uses the memory it writes otherwise */
  FLI_APART_ORDER,    /* another kernel has to run in between */
  FLI_APART_LIMIT     /* the kernel is full */
} fli_apart;

#define FLI_AGAIN (1u << 31) /* of a member: it is computed again */

typedef struct fli_step { /* a launch of a plan */
  uint32_t entry;         /* of the window; of a fused one the last */
  const fl_op *op;        /* of a fused one; NULL: the entry's */
  const fl_tile *tile;    /* of a fused one that is no expression */
  int n_in, n_out;
  uint32_t operands; /* of a fused one: the first, in plan->operands */
  /* 1 + the entry of a row behind whose result op runs, an expression, in one
     kernel (epilogue.c): the operands of op, then those of the row, without its
     result if nothing else reads that, which is input `result` of op; 0 */
  uint32_t leader;
  int result;
  uint32_t members; /* of a fused one: entries, in plan->members */
  uint32_t n_members;
  fli_apart apart;
  uint32_t from;         /* an entry of the kernel that it is apart from */
  bool list;             /* op takes a list: results, then inputs */
  uint32_t made, n_made; /* slots that get memory before it */
  uint32_t last, n_last; /* slots that nothing uses behind it */
  struct fli_loop *loop; /* launches that run chunk by chunk (chunk.h) */
  bool ready;            /* its kernels are there */
} fli_step;

typedef struct fli_repeat { /* a launch that runs a second time (repeat.c) */
  uint32_t entry;           /* of the window */
  uint32_t arg;             /* its first operand, in plan->repeat_args */
} fli_repeat;

typedef struct fli_plan {
  uint64_t id, hash;
  fl_device device;
  uint32_t n, n_args, n_words, n_slots;
  fli_entry *entries; /* one block with all that follows */
  fli_arg *args;
  uint64_t *words;
  uint8_t *held, *made; /* of each slot */
  uint8_t *lately;      /* held in one of the last runs */
  int recent, shrunk;   /* runs that `lately` is about; times `held` shrank */
  int starved;          /* times that there was no memory for it */
  uint32_t seen;        /* runs of such a window */
  uint64_t turn;        /* of the last one */
  bool built, failed;
  uint32_t prepared; /* steps whose kernels are there (prepare.c) */
  bool sums, adds;   /* sums at positions may be in any order; some are */
  uint32_t n_steps, n_numbers, n_operands, n_moved, n_members;
  fli_step *steps;
  uint32_t *numbers; /* slots that steps refer to */
  fli_fused_operand *operands;
  fli_moved *moved;
  uint32_t *members;  /* launches that kernels hold */
  size_t peak;        /* bytes that it needs at most at a time, beside
                         those before it */
  uint32_t peak_step; /* where that is */
  size_t room;        /* that there was for it, with a cap */
  size_t scratch;     /* that its kernels need beside it */
  int shrunk_room;    /* times that it was made anew for less room */
  uint64_t traffic;   /* bytes that its steps read and write */
  /* launches that it adds to the window's, their operands, and storages: slot
     n_slots + k has the values of slot copies[k] */
  uint32_t n_repeats, n_repeat_args, n_copies;
  fli_repeat *repeats;
  fli_arg *repeat_args;
  uint32_t *copies;
  struct fli_replay *replay; /* its graphs (replay.c), NULL: none */
  void *search;              /* for it, while it goes on (recompute.c) */
  int warm;                  /* runs that might have been a graph's */
  uint64_t sent;             /* launches of the runtime before the last run */
  bool plain;                /* a graph would not pay */
  struct fli_plan *next;     /* for the window that came after it last time */
} fli_plan;

#define FLI_PLANS 32 /* that a compiled function remembers */

struct fl_compiled {
  fl_runtime *rt;
  fli_window *window; /* that it has opened */
  bool exact, first, check, no_graphs, again, wait;
  size_t chunk;    /* bytes of a chunk; 0: as is best for the device,
                      SIZE_MAX: nothing runs in chunks */
  size_t memory;   /* cap of what is in memory; 0: none */
  bool off;        /* calls vary, or plans do not win */
  bool varies;     /* off, since calls vary */
  bool fresh;      /* this call had a window that was new */
  bool used;       /* this call had one that ran by a plan of earlier calls */
  int misses;      /* calls with new windows alone, less those by plans */
  fli_trial trial; /* on the CPU: whether they win */
  int n_plans;
  fli_plan *plans[FLI_PLANS];
  fli_plan *start, *last; /* for a call's first window; for this call's last */
  uint64_t runs, planned; /* windows; by a plan */
  uint64_t replayed;      /* by a graph */
  uint64_t unready;       /* without, since kernels were being compiled */
  struct fli_pure *pure;  /* or NULL (pure.h) */
  char failure[256];      /* why one could not be, "" */
};

fli_plan *fli_plan_new(const fli_window *w);
void fli_plan_free(fli_plan *p);
fl_status fli_plan_run(fli_window *w, const fli_plan *p);
/* The view of an operand of a kernel of the plan; its storage has memory. */
void fli_plan_view(const fli_window *w, const fli_fused_operand *o, fl_view *v);
#define FLI_LIST_MOST 96 /* copies of a launch */
/* Runs a step that is a launch of a list (batch.c). */
fl_status fli_plan_list(fli_window *w, const fli_plan *p, const fli_step *x);
/* Builds the steps of p, which was made for windows like w (fuse.c). */
fl_status fli_plan_build(struct fl_compiled *c, fli_plan *p,
                         const fli_window *w);
/* The same with what is to be computed a second time; r may be NULL. */
struct fli_recompute;
fl_status fli_plan_make(struct fl_compiled *c, fli_plan *p, const fli_window *w,
                        struct fli_recompute *r);
/* Adds the plan's own launches to the window (repeat.c). */
fl_status fli_plan_extend(fli_window *w, const fli_plan *p);
static inline uint32_t fli_plan_slots(const fli_plan *p) {
  return p->n_slots + p->n_copies;
}
/* Whether the device's kernels may add in any order now (gather.c). */
bool fli_sums_allowed(fl_runtime *rt, fl_device d);
/* Asks the backend for the kernels of the plan: those of the first p->prepared
 * steps are there. A failure is of one that there will never be. */
fl_status fli_plan_prepare(fli_plan *p, const fli_window *w);
/* Asks for those of the launches of a window that runs without a plan. */
void fli_window_prepare(const fli_window *w);
/* Forgets the steps. */
void fli_plan_unbuild(fli_plan *p);
/* The windows that come are likely to be like those of p, or NULL. */
void fli_window_expect(fli_window *w, const fli_plan *p);
bool fli_compiled_plan(fli_window *w, fl_status *status);
/* While the profiler runs: what step x is, which is launched next. */
void fli_explain_step(fli_window *w, const fli_plan *p, const fli_step *x);

/* run(w, p), after the same without the plan (check.c): FL_EFAULT if the
 * results differ by more than rounding. */
fl_status fli_plan_check(fli_window *w, const fli_plan *p, bool exact,
                         fl_status (*run)(fli_window *, const fli_plan *));
/* Runs a step that has a leader (epilogue.c). */
fl_status fli_plan_epilogue(fli_window *w, const fli_plan *p,
                            const fli_step *x);
/* Launches step x, whose operands have memory. */
fl_status fli_plan_step(fli_window *w, const fli_plan *p, const fli_step *x);

static inline bool fli_same_region(const fli_arg *a, const fli_arg *b) {
  if (a->slot != b->slot || a->meta.dtype != b->meta.dtype ||
      a->meta.ndim != b->meta.ndim)
    return false;
  if (a->slot < 0)
    return true;
  for (int i = 0; i < a->meta.ndim; i++)
    if (a->meta.shape[i] != b->meta.shape[i] || a->stride[i] != b->stride[i])
      return false;
  return a->offset == b->offset;
}

#endif
