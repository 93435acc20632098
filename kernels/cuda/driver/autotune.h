/* What the user has chosen, and what is remembered about shapes met before:
 * which kernel does them best. */
#ifndef FL_CUDA_AUTOTUNE_H
#define FL_CUDA_AUTOTUNE_H

#include "../cuda.h"

/* --- what `flare.backends` sets, for the whole process --- */

typedef enum flc_setting {
  FLC_MATMUL,        /* who does products: an flc_by */
  FLC_CONV,          /* and convolutions */
  FLC_TF32,          /* whether products may round f32 on its way in */
  FLC_DETERMINISTIC, /* the same bits in every run (flc_deterministic) */
  FLC_SETTINGS
} flc_setting;

/* Our own kernels, the library, the faster one. */
enum flc_by { FLC_OWN, FLC_LIBRARY, FLC_AUTO };

int flc_setting_of(flc_setting s);
const char *flc_setting_name(flc_setting s);
/* fl_backend.control */
fl_status flc_control(fl_backend *b, const char *what, double value);

/* --- shapes --- */

#define FLC_KEY 28

/* One shape of one operator. It lives as long as the process. */
typedef struct flc_tuned {
  int64_t key[FLC_KEY];
  int seen;   /* how often it was met before now, atomic */
  int chosen; /* -1: not yet; its owner's number otherwise, atomic */
  void *plan; /* its owner's, set before `chosen` */
} flc_tuned;

/* The place of a key (unused numbers are 0); NULL: out of memory. */
flc_tuned *flc_tuned_of(const int64_t key[FLC_KEY]);
int flc_tuned_made(const flc_tuned *c);
/* The first to choose wins; `plan` of the others is theirs to free. */
bool flc_tuned_make(flc_tuned *c, int chosen, void *plan);

/* Whether candidates may be measured now: not while the stream's work is being
 * captured, and not where every run is to choose the same. */
bool flc_may_measure(const fl_launch *l);
enum { FLC_FEW = 3, FLC_MANY = 8 };
/* Runs candidates 0 .. n - 1 on the launch's stream and waits for them; the
 * fastest that did not fail, or -1; an earlier one if it is within a percent,
 * since what is expected counts more than noise. Each must do the whole work,
 * leave the same result when it does it again, and keep no scratch memory,
 * which is released after each run. `again`: how many of the closest are run
 * once more in turns, and how many turns; few where a first step waits for it.
 */
int flc_fastest(const fl_launch *l, int n, int again,
                fl_status (*run)(void *context, int candidate), void *context);

#endif
