/* Without a pack, threads compile ahead into the disk cache, so that a launch
 * finds its kernel there, or waits for less: from a device's first stream
 * on those that training a transformer or a residual network begins with
 * (core.def), and once a kernel had to be compiled all the same, what many
 * programs need. */
#define _GNU_SOURCE /* nice of one thread */
#include "process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 16
#define BESIDE  2 /* of them beyond the core */

typedef struct item {
  flc_spec spec;
  uint64_t key[2];
  int place; /* in core.def */
  enum { WAITING, BUSY, DONE } state;
} item;

static struct {
  int users;   /* backends that are open */
  int waiting; /* callers that compile what they need now */
  int beside;  /* items beyond the core that are being compiled */
  bool begun, running, stop, all;
  pid_t process; /* a forked child has no threads */
  char arch[16];
  pthread_t first;
  item *items;
  size_t n, core, next;
} warm;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* --- which --- */

uint32_t flc_core_key(const flc_spec *s) {
  char name[240];
  int n = snprintf(name, sizeof name, "%s ", s->file);
  flc_spec_text(s, name + n, sizeof name - (size_t)n);
  uint64_t h = flc_hash(FLC_HASH, name, strlen(name));
  return (uint32_t)(s->text ? flc_hash(h, s->text, strlen(s->text)) : h);
}

static int core_place(const flc_spec *s) {
  static const uint32_t core[] = {
#define CORE(key) key,
#include "core.def"
  };
  uint32_t key = flc_core_key(s);
  for (size_t i = 0; i < sizeof core / sizeof *core; i++)
    if (core[i] == key)
      return (int)i;
  return -1;
}

typedef struct collector {
  flc_visitor visitor;
  item *items;
  size_t n, room;
  int turn;
} collector;

/* The core is 0; formulas, many, of which each program needs few, come last. */
static int turn_of(const flc_spec *s, int place) {
  static const char *const later[] = {
      "conv", "conv_plain", "depthwise",  "pooling",         "rnn", "scan",
      "sort", "mask",       "batch_norm", "attention_plain", "expr"};
  if (place >= 0)
    return 0;
  if (s->text)
    return 3;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    if (strcmp(s->file, later[i]) == 0)
      return 2;
  return 1;
}

/* Besides the core one of each kernel, and of those that are no formulas all
 * for bf16. */
static void precompile_collect(flc_visitor *v, const flc_spec *s, bool quick) {
  collector *c = (collector *)v;
  int place = core_place(s);
  bool wanted = place >= 0 || quick || (!s->text && s->n && s->t[0] == FL_BF16);
  if (!wanted || turn_of(s, place) != c->turn)
    return;
  if (c->n == c->room) {
    size_t room = c->room ? c->room * 2 : 256;
    item *more = realloc(c->items, room * sizeof *more);
    if (!more)
      return;
    c->items = more;
    c->room = room;
  }
  c->items[c->n++] = (item){.spec = *s, .place = place};
}

static int by_place(const void *a, const void *b) {
  return ((const item *)a)->place - ((const item *)b)->place;
}

/* --- compiling --- */

static bool is_cached(const item *it, char *path, size_t room) {
  return !flc_cache_path(warm.arch, it->key, path, room) ||
         access(path, R_OK) == 0;
}

static void precompile_compile(const item *it) {
  char path[512];
  flc_binary b = {.owned = NULL};
  if (is_cached(it, path, sizeof path) ||
      flc_compile(warm.arch, &it->spec, 1, &b.owned, &b.bytes, &b.entry,
                  NULL) != FL_OK)
    return;
  b.image = b.owned;
  flc_cache_write(path, &b);
  free(b.owned);
}

/* The next one, when its time has come: beyond the core there are few at once,
 * and none begins while a launch waits, since compilations slow each other.
 * NULL: there is no more. */
static item *next(void) {
  while (!warm.stop && warm.next < warm.n) {
    if (warm.next >= warm.core &&
        (!warm.all || warm.waiting || warm.beside == BESIDE))
      pthread_cond_wait(&changed, &flc_lock);
    else if (warm.items[warm.next++].state == WAITING)
      return &warm.items[warm.next - 1];
  }
  return NULL;
}

/* At a program's exit the compiler's own handlers must come after ours. Some it
 * makes while it compiles, the first times. */
static void *precompile_work(void *unused) {
  int times = 0;
  item *it;
  (void)unused;
  setpriority(PRIO_PROCESS, 0, 10); /* on Linux, of this thread */
  pthread_mutex_lock(&flc_lock);
  while ((it = next())) {
    int beside = it->place < 0;
    it->state = BUSY;
    warm.beside += beside;
    pthread_mutex_unlock(&flc_lock);
    precompile_compile(it);
    if (times++ < 4)
      atexit(flc_precompile_stop);
    pthread_mutex_lock(&flc_lock);
    it->state = DONE;
    warm.beside -= beside;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&flc_lock);
  return NULL;
}

/* The lists; of the core only what is not in the cache. */
static void make_items(collector *c) {
  char path[512];
  size_t core = 0;
  for (; c->turn < 4; c->turn++) {
    flc_visit_all(&c->visitor);
    if (c->turn == 0)
      core = c->n;
  }
  for (size_t i = 0; i < c->n; i++)
    flc_pack_key(warm.arch, &c->items[i].spec, c->items[i].key);
  if (core)
    qsort(c->items, core, sizeof *c->items, by_place);
  for (size_t i = 0; i < core; i++)
    if (is_cached(&c->items[i], path, sizeof path))
      c->items[i].state = DONE;
  pthread_mutex_lock(&flc_lock);
  warm.items = c->items;
  warm.n = c->n;
  warm.core = core;
  pthread_mutex_unlock(&flc_lock);
}

/* Makes the lists, and the other threads when there is something to do. */
static void *precompile_begin(void *unused) {
  pthread_t others[THREADS - 1];
  collector c = {.visitor = {precompile_collect}};
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int most = cores > THREADS ? THREADS : (int)cores - 1, started = 0;
  make_items(&c);
  pthread_mutex_lock(&flc_lock);
  while (warm.next < warm.core && warm.items[warm.next].state == DONE)
    warm.next++;
  while (!warm.stop && !warm.all && warm.next == warm.core)
    pthread_cond_wait(&changed, &flc_lock);
  pthread_mutex_unlock(&flc_lock);
  while (started < most - 1 &&
         pthread_create(&others[started], NULL, precompile_work, NULL) == 0)
    started++;
  precompile_work(unused);
  while (started)
    pthread_join(others[--started], NULL);
  return NULL;
}

/* --- from outside --- */

void flc_precompile_open(void) {
  pthread_mutex_lock(&flc_lock);
  warm.users++;
  pthread_mutex_unlock(&flc_lock);
}

void flc_precompile_start(const char *arch, bool more) {
  uint64_t none[2] = {0, 0};
  char path[512];
  sigset_t all, before;
  pthread_mutex_lock(&flc_lock);
  if (more && !warm.all) {
    warm.all = true;
    pthread_cond_broadcast(&changed);
  }
  bool start = !warm.begun && warm.users > 0;
  warm.begun = warm.begun || start;
  pthread_mutex_unlock(&flc_lock);
  if (!start || flc_pack_path()[0] ||
      !flc_cache_path(arch, none, path, sizeof path) || !flc_cache_open(path))
    return;
  atexit(flc_precompile_stop);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&flc_lock);
  snprintf(warm.arch, sizeof warm.arch, "%s", arch);
  warm.process = getpid();
  warm.running = pthread_create(&warm.first, NULL, precompile_begin, NULL) == 0;
  pthread_mutex_unlock(&flc_lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void flc_precompile_stop(void) {
  flc_ahead_stop();
  pthread_mutex_lock(&flc_lock);
  bool running = warm.running && warm.process == getpid();
  warm.running = false;
  warm.stop = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&flc_lock);
  if (!running)
    return;
  pthread_join(warm.first, NULL);
  pthread_mutex_lock(&flc_lock);
  free(warm.items);
  warm.items = NULL;
  warm.n = 0;
  pthread_mutex_unlock(&flc_lock);
}

void flc_precompile_close(void) {
  pthread_mutex_lock(&flc_lock);
  bool last = --warm.users == 0;
  pthread_mutex_unlock(&flc_lock);
  if (last)
    flc_precompile_stop();
}

void flc_precompile_wait(bool begins) {
  pthread_mutex_lock(&flc_lock);
  warm.waiting += begins ? 1 : -1;
  if (warm.waiting == 0)
    pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&flc_lock);
}

bool flc_precompile_claim(const uint64_t key[2]) {
  bool made = false;
  pthread_mutex_lock(&flc_lock);
  for (size_t i = 0; i < warm.n; i++) {
    item *it = &warm.items[i];
    if (it->key[0] != key[0] || it->key[1] != key[1])
      continue;
    while (it->state == BUSY)
      pthread_cond_wait(&changed, &flc_lock);
    made = made || it->state == DONE;
    it->state = DONE;
  }
  pthread_mutex_unlock(&flc_lock);
  return made;
}
