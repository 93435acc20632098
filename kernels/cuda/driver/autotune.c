/* Who does products and convolutions: what the user has set, and a table of
 * shapes for which it was measured. Process-wide, under process.c's lock. */
#include "autotune.h"
#include "backend.h"
#include "../gemm/product.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* --- settings --- */

static struct {
  const char *name;
  int most;
  _Atomic int value;
} settings[FLC_SETTINGS] = {
    [FLC_MATMUL] = {"matmul", FLC_AUTO, FLC_AUTO},
    [FLC_CONV] = {"conv", FLC_AUTO, FLC_AUTO},
    [FLC_TF32] = {"tf32", 1, 0},
    [FLC_DETERMINISTIC] = {"deterministic", 1, 0},
};

int flc_setting_of(flc_setting s) {
  return atomic_load_explicit(&settings[s].value, memory_order_relaxed);
}

const char *flc_setting_name(flc_setting s) {
  return settings[s].name;
}

fl_status flc_control(fl_backend *b, const char *what, double value) {
  (void)b;
  for (int i = 0; i < FLC_SETTINGS; i++) {
    if (strcmp(settings[i].name, what) != 0)
      continue;
    if (!(value >= 0 && value <= settings[i].most && value == (int)value))
      return fli_fail(FL_EARG, "cuda: %s must be 0 to %d, got %g", what,
                      settings[i].most, value);
    atomic_store(&settings[i].value, (int)value);
    return FL_OK;
  }
  return fli_fail(FL_EARG,
                  "cuda has no control \"%s\"; it has matmul, conv, tf32, "
                  "deterministic",
                  what);
}

bool flc_deterministic(void) {
  return flc_setting_of(FLC_DETERMINISTIC);
}

/* --- the table --- */

static flc_tuned **table;
static size_t room, used;

static flc_tuned **place_of(flc_tuned **t, size_t n, const int64_t *key) {
  size_t i = flc_hash(FLC_HASH, key, FLC_KEY * sizeof *key) & (n - 1);
  while (t[i] && memcmp(t[i]->key, key, sizeof t[i]->key) != 0)
    i = (i + 1) & (n - 1);
  return &t[i];
}

static bool autotune_grow(void) {
  size_t n = room ? room * 2 : 64;
  flc_tuned **t = calloc(n, sizeof(flc_tuned *));
  if (!t)
    return false;
  for (size_t i = 0; i < room; i++)
    if (table[i])
      *place_of(t, n, table[i]->key) = table[i];
  free(table);
  table = t;
  room = n;
  return true;
}

static flc_tuned *autotune_find(const int64_t *key) {
  if (used * 2 >= room && !autotune_grow())
    return NULL;
  flc_tuned **place = place_of(table, room, key);
  if (!*place) {
    flc_tuned *c = calloc(1, sizeof *c);
    if (!c)
      return NULL;
    memcpy(c->key, key, sizeof c->key);
    c->chosen = -1;
    *place = c;
    used++;
  }
  return *place;
}

flc_tuned *flc_tuned_of(const int64_t key[FLC_KEY]) {
  pthread_mutex_lock(&flc_lock);
  flc_tuned *c = autotune_find(key);
  pthread_mutex_unlock(&flc_lock);
  if (!c)
    fli_fail(FL_ENOMEM, "out of memory: a table of shapes");
  return c;
}

int flc_tuned_made(const flc_tuned *c) {
  return __atomic_load_n(&c->chosen, __ATOMIC_ACQUIRE);
}

bool flc_tuned_make(flc_tuned *c, int chosen, void *plan) {
  pthread_mutex_lock(&flc_lock);
  bool first = c->chosen < 0;
  if (first) {
    c->plan = plan;
    __atomic_store_n(&c->chosen, chosen, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&flc_lock);
  return first;
}

/* --- the measurement --- */

#define REPEATS 3
#define TURN    2    /* runs of one at a time, in turns */
#define LONG    0.5f /* ms: no repeats, or a first step takes too long */
#define VERY    5.0f /* ms: two turns will do */
#define MOST    32   /* candidates */
#define CLOSE   1.1f /* times the least: measured again */
#define SAME    1.01f
#define FINAL   (FLC_MANY + 1)
#define EVENTS  (FINAL * FLC_MANY + 1)

typedef struct trial {
  const fl_launch *l;
  fl_status (*run)(void *context, int candidate);
  void *context;
  CUevent events[EVENTS];
  int made; /* events */
  float times[MOST];
} trial;

static bool autotune_begin(trial *t, int events) {
  while (t->made < events &&
         flc_cu->EventCreate(&t->events[t->made], 0) == CUDA_SUCCESS)
    t->made++;
  return t->made >= events;
}

static void autotune_end(trial *t) {
  while (t->made > 0)
    flc_cu->EventDestroy(t->events[--t->made]);
}

/* A candidate may run a hundred times within one launch: each run's scratch
 * memory is released, in stream order, before the next. */
static bool run_candidate(trial *t, int i) {
  int mark = fl_scratch_mark(t->l);
  fl_status s = t->run(t->context, i);
  fl_scratch_release(t->l, mark);
  return s == FL_OK;
}

/* Candidate i `count` times, after event `from` and before the next. */
static bool run_some(trial *t, int from, int i, int count) {
  for (int k = 0; k < count; k++)
    if (!run_candidate(t, i))
      return false;
  return flc_cu->EventRecord(t->events[from + 1], flc_stream_of(t->l)) ==
         CUDA_SUCCESS;
}

static bool autotune_between(const trial *t, int from, float *ms) {
  return flc_cu->EventElapsedTime(ms, t->events[from], t->events[from + 1]) ==
         CUDA_SUCCESS;
}

/* One run before loads it, and hides how long a launch takes. */
static float autotune_alone(trial *t, int i, int repeats) {
  float ms;
  bool good =
      run_candidate(t, i) &&
      flc_cu->EventRecord(t->events[0], flc_stream_of(t->l)) == CUDA_SUCCESS &&
      run_some(t, 0, i, repeats) &&
      flc_wait_event(t->l->stream, t->events[1]) == FL_OK &&
      autotune_between(t, 0, &ms);
  return good ? ms / (float)repeats : INFINITY;
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The close ones in turns, so that a clock that falls under load falls for
 * each; the median of its turns is what counts. Nothing waits in between. */
static void in_turns(trial *t, const int *close, int n, int turns, int count) {
  float all[FLC_MANY];
  int at = 0;
  bool good =
      autotune_begin(t, n * turns + 1) &&
      flc_cu->EventRecord(t->events[0], flc_stream_of(t->l)) == CUDA_SUCCESS;
  for (int k = 0; k < turns * n && good; k++)
    good = run_some(t, at++, close[k % n], count);
  if (!good || flc_wait_event(t->l->stream, t->events[at]) != FL_OK)
    return;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < turns; k++)
      if (!autotune_between(t, k * n + i, &all[k]))
        return;
    qsort(all, (size_t)turns, sizeof *all, by_size);
    t->times[close[i]] = all[(turns - 1) / 2] / (float)count;
  }
}

/* Waiting would break a capture, and what is fastest differs from run to run.
 */
bool flc_may_measure(const fl_launch *l) {
  int capturing = 0;
  return !flc_deterministic() && !l->stream->update &&
         flc_cu->StreamIsCapturing(l->stream->handle, &capturing) ==
             CUDA_SUCCESS &&
         capturing == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The closest `again`, and the first if it is not far off, as they came: how
 * many. (The very first run was on a device that had been idle.) */
static int closest(const trial *t, int n, int again, int *close) {
  float sorted[MOST];
  int found = 0;
  memcpy(sorted, t->times, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, by_size);
  float last = sorted[n < again ? n - 1 : again - 1];
  float most = fminf(last, sorted[0] * CLOSE);
  for (int i = 0; i < n && found < FINAL; i++)
    if (t->times[i] <= (i ? most : sorted[0] * 2) && t->times[i] < INFINITY)
      close[found++] = i;
  return found;
}

int flc_fastest(const fl_launch *l, int n, int again,
                fl_status (*run)(void *context, int candidate), void *context) {
  trial t = {.l = l, .run = run, .context = context};
  int close[FINAL], found = 0, best = -1;
  float least = INFINITY;
  n = n < MOST ? n : MOST;
  if (n > 0 && autotune_begin(&t, 2)) {
    for (int i = 0; i < n; i++) {
      t.times[i] = autotune_alone(&t, i, least > LONG && i ? 1 : REPEATS);
      least = fminf(least, t.times[i]);
    }
    found = closest(&t, n, again, close);
  }
  if (found > 1)
    in_turns(&t, close, found, least > VERY ? 2 : again,
             least > LONG ? 1 : TURN);
  for (int i = 0; i < found; i++)
    if (best < 0 || t.times[close[i]] * SAME < t.times[best])
      best = close[i];
  autotune_end(&t);
  return best;
}
