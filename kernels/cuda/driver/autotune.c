/* Who does products and convolutions: what the user has set, a table of shapes,
 * and the trials of a shape's candidates. Process-wide; the table is under
 * process.c's lock. */
#include "autotune.h"
#include "backend.h"
#include "../gemm/product.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- settings --- */

static struct {
  const char *name;
  int most;
  _Atomic int value;
} settings[FLC_SETTLE + 1] = {
    [FLC_MATMUL] = {"matmul", FLC_AUTO, FLC_AUTO},
    [FLC_CONV] = {"conv", FLC_AUTO, FLC_AUTO},
    [FLC_TF32] = {"tf32", 1, 0},
    [FLC_DETERMINISTIC] = {"deterministic", 1, 0},
    [FLC_SETTLE] = {"settle", 1, 0},
};

int flc_setting_of(flc_setting s) {
  return atomic_load_explicit(&settings[s].value, memory_order_relaxed);
}

const char *flc_setting_name(flc_setting s) {
  return settings[s].name;
}

fl_status flc_control(fl_backend *b, const char *what, double value) {
  (void)b;
  for (int i = 0; i <= FLC_SETTLE; i++) {
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

/* Waiting would break a capture, and what is fastest differs from run to run.
 */
bool flc_may_measure(const fl_launch *l) {
  int capturing = 0;
  return !flc_deterministic() && !l->stream->update &&
         flc_cu->StreamIsCapturing(l->stream->handle, &capturing) ==
             CUDA_SUCCESS &&
         capturing == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* --- what trials may cost --- */

#define SHARE 0.02f /* of the time of the work that is tuned */
#define GUESS 0.3f  /* of the best time: more, that an unknown one may take */
#define ROOM  1.0f  /* ms that are saved up, at most */

/* Milliseconds that trials on a device may take longer than the best candidates
 * would. Each tuned launch adds its share. */
static struct {
  pthread_mutex_t lock;
  float left[FLC_DEVICES];
} budget = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void budget_add(int device, float ms, float most) {
  pthread_mutex_lock(&budget.lock);
  float *left = &budget.left[device];
  if (ms < 0 || *left < most)
    *left += ms;
  pthread_mutex_unlock(&budget.lock);
}

static bool budget_take(int device, float ms) {
  pthread_mutex_lock(&budget.lock);
  bool enough = budget.left[device] >= ms;
  if (enough)
    budget.left[device] -= ms;
  pthread_mutex_unlock(&budget.lock);
  return enough;
}

/* --- trials --- */

#define RUNS    3       /* of a candidate */
#define SAME    1.01f   /* times the least: not faster */
#define CLOSE   1.15f   /* further off, two runs will do */
#define FAR     1.5f    /* and then one */
#define SLOW    1.3f    /* two in a row: the heuristic has no better ones */
#define AGAIN   4       /* the best one is timed every so many times */
#define LOADS   1000000 /* ns: the host has loaded a kernel, or been away */
#define SPOILED 4       /* runs that say nothing, of a candidate */

#define FLIGHTS 8 /* runs that the device has not ended yet */

typedef struct rival {
  float times[RUNS]; /* the last ones, ms */
  int runs, spoiled;
  int flying; /* runs more, whose times are not known yet */
  bool out;
} rival;

typedef struct flight { /* a run that is timed */
  int rival;
  float charged; /* what it may take longer than the best one */
  CUevent begin, end;
} flight;

struct flc_trials {
  int n, best, apart;
  bool settled;
  bool launching; /* the caller of the last flight is */
  int turn;
  uint64_t begun; /* its launch */
  int first, flying;
  flight flights[FLIGHTS]; /* a ring: `flying` from `first` on */
  rival rivals[FLC_CANDIDATES];
};

/* Number i of those under way. */
static flight *flight_at(flc_trials *t, int i) {
  return &t->flights[(t->first + i) % FLIGHTS];
}

static uint64_t trials_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int runs_of(const rival *r) {
  return r->runs < RUNS ? r->runs : RUNS;
}

static float least_of(const rival *r) {
  float least = INFINITY;
  for (int k = 0; k < runs_of(r); k++)
    least = fminf(least, r->times[k]);
  return least;
}

flc_trials *flc_trials_new(int n, int first, int apart) {
  flc_trials *t = calloc(1, sizeof *t);
  if (!t) {
    fli_fail(FL_ENOMEM, "out of memory: a table of shapes");
    return NULL;
  }
  t->n = n < FLC_CANDIDATES ? n : FLC_CANDIDATES;
  t->best = first;
  t->apart = apart;
  t->settled = n < 2;
  return t;
}

int flc_trials_best(const flc_trials *t, bool *settled) {
  *settled = t->settled;
  return t->best;
}

static void trials_close(flc_trials *t) {
  t->settled = true;
  t->launching = false;
  t->flying = 0;
  for (int i = 0; i < FLIGHTS; i++) {
    flight *f = &t->flights[i];
    if (f->begin)
      flc_cu->EventDestroy(f->begin);
    if (f->end)
      flc_cu->EventDestroy(f->end);
    f->begin = f->end = NULL;
  }
}

/* Two slow ones behind each other: those that the heuristic expects less of are
 * out. */
static void drop_rest(flc_trials *t, int i) {
  float most = least_of(&t->rivals[t->best]) * SLOW;
  int listed = t->n - t->apart;
  if (i < 1 || i >= listed || t->rivals[i - 1].runs == 0 ||
      least_of(&t->rivals[i]) <= most || least_of(&t->rivals[i - 1]) <= most)
    return;
  for (int k = i + 1; k < listed; k++)
    t->rivals[k].out |= k != t->best;
}

/* What the runs so far say of candidate i. */
static void trials_judge(flc_trials *t, int i) {
  rival *r = &t->rivals[i];
  float best = least_of(&t->rivals[t->best]), least = least_of(r);
  if (i == t->best)
    return;
  r->out = least > best * (r->runs > 1 ? CLOSE : FAR);
  if (r->out)
    drop_rest(t, i);
  else if (r->runs >= RUNS) {
    r->out = true;
    if (least * SAME < best) {
      t->rivals[t->best].out = true;
      t->best = i;
    }
  }
}

/* Of what is far slower the budget pays no more than twice the best time, or
 * other candidates would wait for too long. */
static void trials_sample(flc_trials *t, int device, const flight *f,
                          float ms) {
  rival *r = &t->rivals[f->rival];
  float best = least_of(&t->rivals[t->best]);
  r->times[r->runs++ % RUNS] = ms;
  if (f->rival != t->best)
    budget_add(device, f->charged - fminf(best, fmaxf(0, ms - best)), INFINITY);
  trials_judge(t, f->rival);
}

/* Reads the events of the runs that have ended. */
static void trials_collect(flc_trials *t, int device) {
  while (t->flying > t->launching) {
    float ms;
    flight *f = flight_at(t, 0);
    rival *r = &t->rivals[f->rival];
    CUresult e = flc_cu->EventQuery(f->end);
    if (e == CUDA_ERROR_NOT_READY)
      return;
    if (e == CUDA_SUCCESS)
      e = flc_cu->EventElapsedTime(&ms, f->begin, f->end);
    r->flying--;
    t->first = (t->first + 1) % FLIGHTS;
    t->flying--;
    if (e == CUDA_SUCCESS && ms < INFINITY)
      trials_sample(t, device, f, ms);
    else
      r->out = ++r->spoiled >= SPOILED;
  }
}

/* Whether the candidate needs no more runs than those under way; of a new one
 * the first time says whether there will be others. */
static bool rival_waits(const rival *r) {
  return r->flying > 0 && (r->runs == 0 || r->runs + r->flying >= RUNS);
}

/* The next one to time, or -1. `waits`: some are not ready, or under way. */
static int trials_pick(flc_trials *t,
                       int (*ready)(void *context, int candidate),
                       void *context, bool *waits) {
  const rival *best = &t->rivals[t->best];
  *waits = t->flying > 0;
  if (best->runs + best->flying < RUNS) /* else nothing can be measured here */
    return best->spoiled < SPOILED ? t->best : -1;
  if (best->runs < RUNS)
    return -1;
  for (int i = 0; i < t->n; i++) {
    rival *r = &t->rivals[i];
    if (r->out || i == t->best || rival_waits(r))
      continue;
    int is = ready(context, i);
    r->out = is < 0;
    if (is > 0)
      return i;
    *waits = *waits || is == 0;
  }
  return -1;
}

/* Takes what the run may cost, *charged; false: not now. */
static bool trials_pay(const flc_trials *t, int device, int i, float *charged) {
  const rival *r = &t->rivals[i];
  float best = least_of(&t->rivals[t->best]);
  *charged = i == t->best ? 0
             : r->runs    ? fmaxf(SHARE * best, least_of(r) - best)
                          : GUESS * best;
  return *charged == 0 || budget_take(device, *charged);
}

static bool flight_open(flight *f) {
  return (f->begin || flc_cu->EventCreate(&f->begin, 0) == CUDA_SUCCESS) &&
         (f->end || flc_cu->EventCreate(&f->end, 0) == CUDA_SUCCESS);
}

static bool trials_begin(flc_trials *t, const fl_launch *l, int i,
                         float charged) {
  flight *f = flight_at(t, t->flying);
  if (!flight_open(f) ||
      flc_cu->EventRecord(f->begin, l->stream->handle) != CUDA_SUCCESS)
    return false;
  f->rival = i;
  f->charged = charged;
  t->rivals[i].flying++;
  t->flying++;
  t->launching = true;
  t->turn++;
  t->begun = trials_clock();
  return true;
}

int flc_trials_next(flc_trials *t, const fl_launch *l,
                    int (*ready)(void *context, int candidate), void *context,
                    bool *timed) {
  float best = least_of(&t->rivals[t->best]);
  *timed = false;
  if (best < INFINITY)
    budget_add(l->device, SHARE * best, fmaxf(ROOM, GUESS * best));
  if (t->settled || t->launching || !flc_may_measure(l))
    return t->best;
  l->stream->unsettled = l->seq;
  trials_collect(t, l->device);
  if (t->flying == FLIGHTS)
    return t->best;
  bool waits;
  float charged = 0;
  int i = trials_pick(t, ready, context, &waits);
  if (i < 0 && !waits)
    trials_close(t);
  if (i < 0)
    return t->best;
  if (t->turn % AGAIN == AGAIN - 1 || !trials_pay(t, l->device, i, &charged))
    i = t->best;
  *timed = trials_begin(t, l, i, charged);
  return *timed ? i : t->best;
}

void flc_trials_end(flc_trials *t, const fl_launch *l, bool good) {
  flight *f = flight_at(t, t->flying - 1);
  rival *r = &t->rivals[f->rival];
  t->launching = false;
  if (good && flc_cu->EventRecord(f->end, l->stream->handle) != CUDA_SUCCESS)
    good = false;
  else if (good && trials_clock() - t->begun > LOADS && r->spoiled < SPOILED)
    r->spoiled++; /* what the device waited for was the host */
  else if (good)
    return;
  else
    r->out = f->rival != t->best;
  budget_add(l->device, f->charged, INFINITY);
  r->flying--;
  t->flying--;
}

/* --- measuring at once --- */

#define SETTLE 8 /* runs of a candidate */

/* Candidate i a few times in a row; each run's scratch memory is released, in
 * stream order, before the next. One run before loads it. */
static float settle_time(flc_trials *t, const fl_launch *l, int i,
                         fl_status (*run)(void *context, int candidate),
                         void *context) {
  float ms;
  flight *f = &t->flights[0];
  for (int k = 0; k < 1 + SETTLE; k++) {
    int mark = fl_scratch_mark(l);
    fl_status s = run(context, i);
    fl_scratch_release(l, mark);
    if (s || (k == 0 &&
              flc_cu->EventRecord(f->begin, l->stream->handle) != CUDA_SUCCESS))
      return INFINITY;
  }
  bool good = flc_cu->EventRecord(f->end, l->stream->handle) == CUDA_SUCCESS &&
              flc_wait_event(l->stream, f->end) == FL_OK &&
              flc_cu->EventElapsedTime(&ms, f->begin, f->end) == CUDA_SUCCESS;
  return good ? ms / SETTLE : INFINITY;
}

void flc_trials_settle(flc_trials *t, const fl_launch *l,
                       fl_status (*run)(void *context, int candidate),
                       void *context) {
  if (t->settled || t->launching || !flc_may_measure(l))
    return;
  t->launching = true;
  if (flight_open(&t->flights[0])) {
    float least = settle_time(t, l, t->best, run, context);
    for (int i = 0; i < t->n; i++) {
      float ms = t->rivals[i].out || i == t->best
                     ? INFINITY
                     : settle_time(t, l, i, run, context);
      if (ms * SAME < least) {
        least = ms;
        t->best = i;
      }
    }
  }
  trials_close(t);
}
