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
  FLC_SETTINGS,
  FLC_SETTLE = FLC_SETTINGS /* not the user's: a capture comes next, so trials
                               are decided at once */
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
  void *plan;        /* its owner's, under the owner's lock */
  _Atomic int ahead; /* what a thread does about it before the first call */
} flc_tuned;
enum { FLC_AHEAD_NOT, FLC_AHEAD_BUSY, FLC_AHEAD_DONE };

/* The place of a key (unused numbers are 0); NULL: out of memory. */
flc_tuned *flc_tuned_of(const int64_t key[FLC_KEY]);

/* Whether candidates may be measured now: not while the stream's work is being
 * captured, and not where every run is to choose the same. */
bool flc_may_measure(const fl_launch *l);

#define FLC_CANDIDATES 32

/* Candidates of a shape, timed by events around the caller's own calls, several
 * of which may be on their way to the device: no call runs two of them, or
 * waits. The caller holds a lock. */
typedef struct flc_trials flc_trials;

/* Of n candidates number `first` runs until others have proved faster. They
 * come in the order of what is expected of them, but the last `apart`: when two
 * in a row are much slower, those behind them are not tried. NULL: no memory.
 */
flc_trials *flc_trials_new(int n, int first, int apart);
/* The candidate that this launch runs; `*timed`: between this and
 * flc_trials_end. Only those are tried for which `ready` says 1; for -1 they
 * never will be. */
int flc_trials_next(flc_trials *t, const fl_launch *l,
                    int (*ready)(void *context, int candidate), void *context,
                    bool *timed);
/* The candidate has been launched, or has failed: then it is tried no more. */
void flc_trials_end(flc_trials *t, const fl_launch *l, bool good);
/* The candidate that runs now; `*settled`: for good. */
int flc_trials_best(const flc_trials *t, bool *settled);
/* Measures the candidates that are left at once, since the launch's work is
 * about to be captured. `run` does the whole work, leaves the same result when
 * it does it again, and keeps no scratch memory, which is released after each
 * run. */
void flc_trials_settle(flc_trials *t, const fl_launch *l,
                       fl_status (*run)(void *context, int candidate),
                       void *context);

#endif
