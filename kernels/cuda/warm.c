/* Without a pack, threads compile what most programs need from the moment that
 * one kernel had to be compiled, into the disk cache: so whoever comes to
 * another later finds it there, or waits for less. */
#define _GNU_SOURCE /* nice of one thread */
#include "process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 8

typedef struct item {
  flc_spec spec;
  uint64_t key[2];
  enum { WAITING, BUSY, DONE } state;
} item;

static struct {
  int users; /* backends that are open */
  bool begun, running, stop;
  pid_t process; /* a forked child has no threads */
  char arch[16];
  pthread_t first;
  item *items;
  size_t n, next;
} warm;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* --- which --- */

typedef struct collector {
  flc_visitor visitor;
  item *items;
  size_t n, room;
  int turn;
} collector;

/* What training a network of today meets first is 0; formulas, many, of which
 * each program needs few, come last. */
static int turn_of(const flc_spec *s) {
  static const char *const later[] = {
      "conv", "conv_plain", "pooling",         "rnn", "scan", "sort",
      "mask", "planes",     "attention_plain", "expr"};
  if (s->text)
    return 2;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    if (strcmp(s->file, later[i]) == 0)
      return 1;
  return 0;
}

/* One of each kernel, and of those that are no formulas all for bf16. */
static void collect(flc_visitor *v, const flc_spec *s, bool quick) {
  collector *c = (collector *)v;
  bool wanted = quick || (!s->text && s->n && s->t[0] == FL_BF16);
  if (!wanted || turn_of(s) != c->turn)
    return;
  if (c->n == c->room) {
    size_t room = c->room ? c->room * 2 : 256;
    item *more = realloc(c->items, room * sizeof *more);
    if (!more)
      return;
    c->items = more;
    c->room = room;
  }
  c->items[c->n++] = (item){.spec = *s};
}

/* --- compiling --- */

static void compile(const item *it) {
  char path[512];
  flc_binary b = {.owned = NULL};
  if (!flc_cache_path(warm.arch, it->key, path, sizeof path) ||
      access(path, R_OK) == 0 ||
      flc_compile(warm.arch, &it->spec, 1, &b.owned, &b.bytes, &b.entry,
                  NULL) != FL_OK)
    return;
  b.image = b.owned;
  flc_cache_write(path, &b);
  free(b.owned);
}

/* At a program's exit the compiler's own handlers must come after ours. Some it
 * makes while it compiles, the first times. */
static void *work(void *unused) {
  int times = 0;
  (void)unused;
  setpriority(PRIO_PROCESS, 0, 10); /* on Linux, of this thread */
  pthread_mutex_lock(&flc_lock);
  while (!warm.stop && warm.next < warm.n) {
    item *it = &warm.items[warm.next++];
    if (it->state != WAITING)
      continue;
    it->state = BUSY;
    pthread_mutex_unlock(&flc_lock);
    compile(it);
    if (times++ < 4)
      atexit(flc_warm_stop);
    pthread_mutex_lock(&flc_lock);
    it->state = DONE;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&flc_lock);
  return NULL;
}

/* Makes the list, and the other threads. */
static void *begin(void *unused) {
  pthread_t others[THREADS - 1];
  collector c = {.visitor = {collect}};
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int most = cores / 2 > THREADS ? THREADS : (int)(cores / 2), started = 0;
  for (; c.turn < 3; c.turn++)
    flc_visit_all(&c.visitor);
  for (size_t i = 0; i < c.n; i++)
    flc_pack_key(warm.arch, &c.items[i].spec, c.items[i].key);
  pthread_mutex_lock(&flc_lock);
  warm.items = c.items;
  warm.n = c.n;
  pthread_mutex_unlock(&flc_lock);
  while (started < most - 1 &&
         pthread_create(&others[started], NULL, work, NULL) == 0)
    started++;
  work(unused);
  while (started)
    pthread_join(others[--started], NULL);
  return NULL;
}

/* --- from outside --- */

void flc_warm_open(void) {
  pthread_mutex_lock(&flc_lock);
  warm.users++;
  pthread_mutex_unlock(&flc_lock);
}

void flc_warm_start(const char *arch) {
  uint64_t none[2] = {0, 0};
  char path[512];
  sigset_t all, before;
  pthread_mutex_lock(&flc_lock);
  bool start = !warm.begun && warm.users > 0;
  warm.begun = warm.begun || start;
  pthread_mutex_unlock(&flc_lock);
  if (!start || flc_pack_path()[0] ||
      !flc_cache_path(arch, none, path, sizeof path) || !flc_cache_open(path))
    return;
  atexit(flc_warm_stop);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&flc_lock);
  snprintf(warm.arch, sizeof warm.arch, "%s", arch);
  warm.process = getpid();
  warm.running = pthread_create(&warm.first, NULL, begin, NULL) == 0;
  pthread_mutex_unlock(&flc_lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void flc_warm_stop(void) {
  pthread_mutex_lock(&flc_lock);
  bool running = warm.running && warm.process == getpid();
  warm.running = false;
  warm.stop = true;
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

void flc_warm_close(void) {
  pthread_mutex_lock(&flc_lock);
  bool last = --warm.users == 0;
  pthread_mutex_unlock(&flc_lock);
  if (last)
    flc_warm_stop();
}

bool flc_warm_claim(const uint64_t key[2]) {
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
