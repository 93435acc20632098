/* Kernels of plans that have just been made are compiled and loaded by threads,
 * beside the program: its calls go on without the plan, or wait for what a
 * thread has begun and make by themselves what none has. The same threads do
 * other work that no call is to wait for. */
#define _GNU_SOURCE /* nice of one thread */
#include "process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 16

typedef struct wish {
  flc_device *device; /* of a kernel */
  flc_spec spec;
  void (*work)(void *context); /* no kernel, or NULL */
  void *context;
  enum { WAITING, BUSY, FAILED } state; /* one that is there is no wish */
  char *why;                            /* it failed; NULL: no memory for it */
  struct wish *next;
} wish;

static struct {
  wish *list;
  int threads, ended;    /* ended: how often the end of one has been prepared */
  _Atomic pid_t process; /* a forked child has no threads */
} ahead;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static wish *find_wish(const flc_device *d, const flc_spec *spec) {
  wish *w = ahead.list;
  while (w && (w->work || w->device != d || !flc_spec_same(&w->spec, spec)))
    w = w->next;
  return w;
}

static void drop_wish(wish *w) {
  wish **at = &ahead.list;
  while (*at != w)
    at = &(*at)->next;
  *at = w->next;
  free(w->why);
  free(w);
}

static fl_status ahead_make(const wish *w) {
  flc_context before;
  flc_function *f;
  if (w->work) {
    w->work(w->context);
    return FL_OK;
  }
  fl_status s = flc_enter(w->device, &before);
  if (s)
    return s;
  s = flc_function_make(w->device, &w->spec, &f);
  flc_leave(w->device, before);
  return s;
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
    fl_status s = ahead_make(w);
    pthread_mutex_lock(&lock);
    if (s) {
      w->state = FAILED;
      w->why = strdup(fl_error());
    } else
      drop_wish(w);
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

/* Takes the lock. A forked child begins anew: it has one thread, and one of the
 * parent's may have held the lock. */
static void ahead_lock(void) {
  pid_t owner = ahead.process, self = getpid();
  if (owner && owner != self) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    ahead.list = NULL;
    ahead.threads = 0;
  }
  pthread_mutex_lock(&lock);
  ahead.process = self;
}

static int most_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > THREADS ? THREADS : cores > 2 ? (int)cores - 1 : 1;
}

/* Adds a wish to the end. Without a thread for it there is none. */
static wish *add_wish(const wish *given) {
  wish *w = calloc(1, sizeof *w), **at = &ahead.list;
  int waiting = 0;
  if (!w)
    return NULL;
  *w = *given;
  for (; *at; at = &(*at)->next)
    waiting += (*at)->state == WAITING;
  *at = w;
  if (ahead.threads <= waiting && ahead.threads < most_threads())
    start_thread();
  if (ahead.threads)
    return w;
  drop_wish(w);
  return NULL;
}

bool flc_ahead_do(void (*work)(void *context), void *context) {
  ahead_lock();
  bool added = add_wish(&(wish){.work = work, .context = context}) != NULL;
  pthread_mutex_unlock(&lock);
  return added;
}

fl_status flc_ahead_want(flc_device *d, const flc_spec *spec, bool *waits) {
  fl_status s = FL_OK;
  ahead_lock();
  wish *w = find_wish(d, spec);
  if (w && w->state == FAILED)
    s = fli_fail(FL_EDEVICE, "%s", w->why ? w->why : "out of memory");
  else if (!flc_function_known(d, spec))
    *waits = w || add_wish(&(wish){.device = d, .spec = *spec});
  pthread_mutex_unlock(&lock);
  return s;
}

void flc_ahead_claim(flc_device *d, const flc_spec *spec) {
  ahead_lock();
  wish *w = find_wish(d, spec);
  while (w && w->state == BUSY) {
    pthread_cond_wait(&changed, &lock);
    w = find_wish(d, spec);
  }
  if (w)
    drop_wish(w);
  pthread_mutex_unlock(&lock);
}

void flc_ahead_stop(void) {
  ahead_lock();
  for (wish *w = ahead.list, *next; w; w = next) {
    next = w->next;
    if (w->state == WAITING)
      drop_wish(w);
  }
  while (ahead.threads)
    pthread_cond_wait(&changed, &lock);
  while (ahead.list)
    drop_wish(ahead.list);
  pthread_mutex_unlock(&lock);
}
