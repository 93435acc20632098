/* Compiled functions: the windows that they have run, and a plan for each that
 * has occurred again. */
#ifndef FL_COMPILE_H
#define FL_COMPILE_H

#include "../call/window.h"
#include "../program.h"

typedef struct fli_step { /* a launch of a plan */
  uint32_t entry;         /* of the window; of a fused one the last */
  const fl_op *op;        /* the expression of a fused one, NULL: the entry's */
  int n_in, n_out;
  uint32_t operands;     /* fused: numbers of operands, in plan->operands */
  uint32_t made, n_made; /* slots that get memory before it */
  uint32_t last, n_last; /* slots that nothing uses behind it */
} fli_step;

typedef struct fli_plan {
  uint64_t hash;
  fl_device device;
  uint32_t n, n_args, n_words, n_slots;
  fli_entry *entries; /* one block with all that follows */
  fli_arg *args;
  uint64_t *words;
  uint8_t *held, *made; /* of each slot */
  uint8_t *lately;      /* held in one of the last runs */
  int recent, shrunk;   /* runs that `lately` is about; times `held` shrank */
  uint32_t seen;        /* runs of such a window */
  uint64_t turn;        /* of the last one */
  bool built, failed;
  uint32_t n_steps, n_numbers, numbers_room;
  fli_step *steps;
  uint32_t *numbers; /* what steps refer to: operands, slots */
} fli_plan;

#define FLI_PLANS 32 /* that a compiled function remembers */

struct fl_compiled {
  fl_runtime *rt;
  fli_window *window; /* that it has opened */
  bool exact;
  bool off; /* windows never came back */
  int n_plans;
  fli_plan *plans[FLI_PLANS];
  uint64_t runs, planned, missed; /* windows; by a plan; without, in a row */
};

/* Builds the steps of p, which was made for windows like w (fuse.c). */
fl_status fli_plan_build(struct fl_compiled *c, fli_plan *p,
                         const fli_window *w);
bool fli_compiled_plan(fli_window *w, fl_status *status);
/* Appends to the numbers of a plan. */
bool fli_plan_number(fl_runtime *rt, fli_plan *p, uint32_t v);

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
