/* Who does products and convolutions: what the user has set, and a table of
 * shapes for which it was measured. Process-wide, under process.c's lock. */
#include "choice.h"
#include "backend.h"
#include "product.h"

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

static flc_choice **table;
static size_t room, used;

static flc_choice **place_of(flc_choice **t, size_t n, const int64_t *key) {
  size_t i = flc_hash(FLC_HASH, key, FLC_KEY * sizeof *key) & (n - 1);
  while (t[i] && memcmp(t[i]->key, key, sizeof t[i]->key) != 0)
    i = (i + 1) & (n - 1);
  return &t[i];
}

static bool grow(void) {
  size_t n = room ? room * 2 : 64;
  flc_choice **t = calloc(n, sizeof(flc_choice *));
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

static flc_choice *find(const int64_t *key) {
  if (used * 2 >= room && !grow())
    return NULL;
  flc_choice **place = place_of(table, room, key);
  if (!*place) {
    flc_choice *c = calloc(1, sizeof *c);
    if (!c)
      return NULL;
    memcpy(c->key, key, sizeof c->key);
    c->chosen = -1;
    *place = c;
    used++;
  }
  return *place;
}

flc_choice *flc_choice_of(const int64_t key[FLC_KEY]) {
  pthread_mutex_lock(&flc_lock);
  flc_choice *c = find(key);
  pthread_mutex_unlock(&flc_lock);
  if (!c)
    fli_fail(FL_ENOMEM, "out of memory: a table of shapes");
  return c;
}

int flc_choice_made(const flc_choice *c) {
  return __atomic_load_n(&c->chosen, __ATOMIC_ACQUIRE);
}

bool flc_choice_make(flc_choice *c, int chosen, void *plan) {
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

#define REPEATS FLC_FEW
#define LONG    0.5f /* ms: no repeats, or a first step takes too long */
#define MOST    32   /* candidates */
#define CLOSE   1.1f /* times the least: measured again */
#define SAME    1.005f

/* One run before loads it, and hides how long a launch takes. */
static bool measure(const fl_launch *l, CUevent from, CUevent to,
                    fl_status (*run)(void *context, int candidate),
                    void *context, int i, bool before, int repeats, float *ms) {
  CUstream stream = flc_stream_of(l);
  if ((before && run(context, i) != FL_OK) ||
      flc_cu->EventRecord(from, stream) != CUDA_SUCCESS)
    return false;
  for (int k = 0; k < repeats; k++)
    if (run(context, i) != FL_OK)
      return false;
  bool good = flc_cu->EventRecord(to, stream) == CUDA_SUCCESS &&
              flc_wait_event(l->stream, to) == FL_OK &&
              flc_cu->EventElapsedTime(ms, from, to) == CUDA_SUCCESS;
  if (good)
    *ms /= (float)repeats;
  return good;
}

/* Waiting would break a capture, and what is fastest differs from run to run.
 */
bool flc_may_measure(const fl_launch *l) {
  int capturing = 0;
  return !flc_deterministic() &&
         flc_cu->StreamIsCapturing(flc_stream_of(l), &capturing) ==
             CUDA_SUCCESS &&
         capturing == CU_STREAM_CAPTURE_STATUS_NONE;
}

int flc_fastest(const fl_launch *l, int n, int again,
                fl_status (*run)(void *context, int candidate), void *context) {
  CUevent from, to;
  float times[MOST], ms;
  int best = -1, repeats = REPEATS;
  if (flc_cu->EventCreate(&from, 0) != CUDA_SUCCESS)
    return -1;
  n = n < MOST ? n : MOST;
  if (flc_cu->EventCreate(&to, 0) == CUDA_SUCCESS) {
    for (int i = 0; i < n; i++) {
      bool good = measure(l, from, to, run, context, i, true, repeats, &ms);
      times[i] = good ? ms : INFINITY;
      best = good && (best < 0 || ms < times[best]) ? i : best;
      repeats = best >= 0 && times[best] > LONG ? 1 : REPEATS;
    }
    /* the first ones ran on a device that had been idle, so the very first has
     * another try in any case; what is run more often now counts alone */
    float close = best < 0 ? 0 : times[best] * CLOSE;
    bool brief = repeats > 1;
    for (int i = 0; i < n; i++) {
      if ((i == 0 || times[i] <= close) &&
          measure(l, from, to, run, context, i, brief, brief ? again : 1,
                  &ms) &&
          ((brief && again > REPEATS) || ms < times[i]))
        times[i] = ms;
    }
    for (int i = 0; i < n && best >= 0; i++)
      best = times[i] < times[best] ? i : best;
    flc_cu->EventDestroy(to);
  }
  flc_cu->EventDestroy(from);
  return best > 0 && times[0] <= times[best] * SAME ? 0 : best;
}
