/* By which times a compiled function keeps its plans: those of a clock that the
 * test sets, so that no machine's load decides. */
#include "check.h"

#include "../../runtime/compile/trial.h"

/* Calls that take with[k % 2] ns by a plan and without[k % 2] at once, until
 * the trial is done; returns how many there were. */
static int try_times(fli_trial *t, const uint64_t *with,
                     const uint64_t *without) {
  *t = (fli_trial){0};
  for (int k = 0; k < 100; k++) {
    fli_trial_next(t);
    t->hash = 1;
    fli_trial_add(t, t->plain ? without[t->without % 2] : with[t->with % 2]);
    if (t->done)
      return k + 1;
  }
  return 100;
}

static bool loses(uint64_t with, uint64_t without, int *calls) {
  fli_trial t;
  *calls =
      try_times(&t, (uint64_t[]){with, with}, (uint64_t[]){without, without});
  CHECK(t.done, "after %d calls", *calls);
  return t.lost;
}

int main(void) {
  fli_trial t;
  int calls;
  CHECK(loses(2000, 250, &calls), "slower");
  CHECK(calls < 16, "%d calls", calls);
  CHECK(!loses(250, 2000, &calls), "faster");
  CHECK(calls < 16, "%d calls", calls);
  CHECK(!loses(1000, 1000, &calls), "equal");
  CHECK(calls > 40, "%d calls, though times are close", calls);
  CHECK(!loses(1031, 1000, &calls), "slower by what the collector takes");
  CHECK(loses(1100, 1000, &calls), "slower by a tenth");

  /* The least time counts: every second call meets other work. */
  try_times(&t, (uint64_t[]){900, 90000}, (uint64_t[]){1000, 80000});
  CHECK(t.done && !t.lost);
  try_times(&t, (uint64_t[]){90000, 1500}, (uint64_t[]){80000, 1000});
  CHECK(t.done && t.lost);

  /* The first call by a plan, which may compile a kernel, counts for nothing,
   * nor do calls without a window or with several. */
  t = (fli_trial){0};
  for (int k = 0; k < 100; k++) {
    fli_trial_next(&t);
    t.hash = k % 2;
    t.spoiled = k % 4 == 1;
    fli_trial_add(&t, t.hash && !t.spoiled && !t.with ? 5 : 1000);
  }
  CHECK(t.with > 3 && (t.least_with == 0 || t.least_with == 1000), "%d, %d ns",
        t.with, (int)t.least_with);
  return check_done("trial");
}
