/* Whether plans of a compiled function win. On the CPU calls take as long as
 * they run, so a few are timed with a plan, then in turn with it and without.
 */
#ifndef FLI_TRIAL_H
#define FLI_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  bool plain;   /* the call runs without a plan */
  bool spoiled; /* it has more than one window, or another device */
  bool done, lost;
  int with, without;                               /* calls so far */
  uint64_t begun, hash, least_with, least_without; /* ns; hash 0: no window */
} fli_trial;

/* At the start of a call: chooses whether it is plain. */
void fli_trial_next(fli_trial *t);
/* At its end, after `took` ns. */
void fli_trial_add(fli_trial *t, uint64_t took);

#endif
