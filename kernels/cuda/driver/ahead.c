/* Kernels of plans that have just been made are compiled by several threads,
 * while the plan's first run begins: it takes what is ready, waits for what is
 * being compiled, and compiles by itself what no thread has begun. */
#define _GNU_SOURCE /* nice of one thread */
#include "process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 16

typedef struct wish {
  flc_spec spec;
  uint64_t key[2];
  char arch[16];
  enum { WAITING, BUSY, DONE } state;
  flc_binary b; /* without an image: it could not be compiled */
  struct wish *next;
} wish;

static struct {
  wish *list;
  int threads, ended; /* ended: how often the end of one has been prepared */
  pid_t process;      /* a forked child has no threads */
} ahead;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static wish *find_wish(const uint64_t key[2]) {
  wish *w = ahead.list;
  while (w && (w->key[0] != key[0] || w->key[1] != key[1]))
    w = w->next;
  return w;
}

static void drop_wish(wish *w) {
  wish **at = &ahead.list;
  while (*at != w)
    at = &(*at)->next;
  *at = w->next;
  free(w);
}

static void ahead_compile(wish *w) {
  char path[512];
  if (flc_compile(w->arch, &w->spec, 1, &w->b.owned, &w->b.bytes, &w->b.entry,
                  NULL) != FL_OK)
    return;
  w->b.image = w->b.owned;
  if (flc_cache_path(w->arch, w->key, path, sizeof path))
    flc_cache_write(path, &w->b);
}

/* At a program's exit the compiler's own handlers must come after ours. Some it
 * makes while it compiles, the first times. */
static void *ahead_work(void *unused) {
  (void)unused;
  setpriority(PRIO_PROCESS, 0, 5); /* on Linux, of this thread */
  pthread_mutex_lock(&lock);
  for (;;) {
    wish *w = ahead.list;
    while (w && w->state != WAITING)
      w = w->next;
    if (!w)
      break;
    w->state = BUSY;
    pthread_mutex_unlock(&lock);
    ahead_compile(w);
    pthread_mutex_lock(&lock);
    w->state = DONE;
    if (ahead.ended < 4) {
      ahead.ended++;
      atexit(flc_ahead_stop);
    }
    pthread_cond_broadcast(&changed);
  }
  ahead.threads--;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void start_thread(void) {
  pthread_t thread;
  pthread_attr_t detached;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ahead.threads += pthread_create(&thread, &detached, ahead_work, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&detached);
}

/* A forked child begins anew. */
static void enter_process(void) {
  if (ahead.process == getpid())
    return;
  ahead.process = getpid();
  ahead.list = NULL;
  ahead.threads = 0;
}

void flc_ahead_want(const char *arch, const flc_spec *spec) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int most = cores > THREADS ? THREADS : (int)cores - 1, waiting = 0;
  uint64_t key[2];
  char path[512];
  flc_binary b;
  flc_pack_key(arch, spec, key);
  if (most < 1 || flc_pack_find(key, &b) ||
      (flc_cache_path(arch, key, path, sizeof path) &&
       access(path, R_OK) == 0) ||
      !flc_compiler_get())
    return;
  pthread_mutex_lock(&lock);
  enter_process();
  wish *w = find_wish(key) ? NULL : calloc(1, sizeof *w);
  if (w) {
    wish **at = &ahead.list;
    w->spec = *spec;
    memcpy(w->key, key, sizeof w->key);
    strncpy(w->arch, arch, sizeof w->arch - 1);
    for (; *at; at = &(*at)->next)
      waiting += (*at)->state == WAITING;
    *at = w;
    if (ahead.threads < most && ahead.threads <= waiting)
      start_thread();
  }
  pthread_mutex_unlock(&lock);
}

bool flc_ahead_take(const uint64_t key[2], flc_binary *b) {
  pthread_mutex_lock(&lock);
  enter_process();
  wish *w = find_wish(key);
  while (w && w->state == BUSY) {
    pthread_cond_wait(&changed, &lock);
    w = find_wish(key);
  }
  bool good = w && w->state == DONE && w->b.image;
  if (good)
    *b = w->b;
  if (w)
    drop_wish(w);
  pthread_mutex_unlock(&lock);
  return good;
}

void flc_ahead_stop(void) {
  pthread_mutex_lock(&lock);
  enter_process();
  for (wish *w = ahead.list, *next; w; w = next) {
    next = w->next;
    if (w->state == WAITING)
      drop_wish(w);
  }
  while (ahead.threads)
    pthread_cond_wait(&changed, &lock);
  while (ahead.list) {
    free(ahead.list->b.owned);
    drop_wish(ahead.list);
  }
  pthread_mutex_unlock(&lock);
}
