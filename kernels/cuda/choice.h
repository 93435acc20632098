/* What is remembered about shapes met before: which kernel does them best. */
#ifndef FL_CUDA_CHOICE_H
#define FL_CUDA_CHOICE_H

#include "cuda.h"

#define FLC_KEY 28

/* One shape of one operator. It lives as long as the process. */
typedef struct flc_choice {
  int64_t key[FLC_KEY];
  int seen;   /* how often it was met before now, atomic */
  int chosen; /* -1: not yet; its owner's number otherwise, atomic */
  void *plan; /* its owner's, set before `chosen` */
} flc_choice;

/* The place of a key (unused numbers are 0); NULL: out of memory. */
flc_choice *flc_choice_of(const int64_t key[FLC_KEY]);
int flc_choice_made(const flc_choice *c);
/* The first to choose wins; `plan` of the others is theirs to free. */
bool flc_choice_make(flc_choice *c, int chosen, void *plan);

/* Runs candidates 0 .. n - 1 on the launch's stream and waits for them; the
 * fastest that did not fail, or -1. Each must do the whole work, and leave the
 * same result when it does it again. */
int flc_fastest(const fl_launch *l, int n,
                fl_status (*run)(void *context, int candidate), void *context);

#endif
