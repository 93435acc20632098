/* The rule by which plans of a compiled function win or lose; compile.c has the
 * clock. */
#include "trial.h"

#define TRIALS 5
#define CLOSE  20 /* trials where the times are close */

/* Whether a plan takes longer; without one the collector's work, which a plan's
 * time includes, comes later. */
static bool trial_lost(uint64_t with, uint64_t without) {
  return with > without + without / 32 + 50;
}

static bool trial_ends(const fli_trial *t) {
  uint64_t a = t->least_with, b = t->least_without;
  bool close = a < b + b / 4 && b < a + a / 4;
  return t->without >= (close ? CLOSE : TRIALS);
}

void fli_trial_next(fli_trial *t) {
  t->hash = 0;
  t->spoiled = false;
  t->plain = t->with > t->without + 3;
}

void fli_trial_add(fli_trial *t, uint64_t took) {
  uint64_t *least = t->plain ? &t->least_without : &t->least_with;
  if (t->plain)
    t->without++;
  else if (!t->hash || t->spoiled)
    return;
  else if (t->with++ == 0) /* the kernels were new */
    return;
  if (*least == 0 || took < *least)
    *least = took;
  t->plain = false;
  if (!trial_ends(t))
    return;
  t->done = true;
  t->lost = trial_lost(t->least_with, t->least_without);
}
