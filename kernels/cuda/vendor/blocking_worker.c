#include "blocking_worker.h"

#include "../../../runtime/types.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* nanoseconds for which it looks out for the next call before it sleeps: waking
 * it takes longer than a call */
#define AWAKE 200000

struct flc_worker {
  pthread_t thread;
  pthread_mutex_t lock; /* of `wake` */
  pthread_cond_t wake;
  atomic_bool asleep, quit;
  atomic_uint asked, answered; /* calls */
  int (*f)(void *);
  void *x;
  int result;
};

int flc_thread(pthread_t *thread, void *(*f)(void *), void *x) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int e = pthread_create(thread, NULL, f, x);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return e;
}

static int64_t blocking_worker_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool idle(flc_worker *c) {
  return atomic_load(&c->asked) == atomic_load(&c->answered) &&
         !atomic_load(&c->quit);
}

static void *carry(void *context) {
  flc_worker *c = context;
  for (;;) {
    for (int64_t start = blocking_worker_now();
         idle(c) && blocking_worker_now() - start < AWAKE;)
      sched_yield();
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->asleep, true);
    while (idle(c))
      pthread_cond_wait(&c->wake, &c->lock);
    atomic_store(&c->asleep, false);
    pthread_mutex_unlock(&c->lock);
    if (atomic_load(&c->quit))
      return NULL;
    c->result = c->f(c->x);
    atomic_fetch_add(&c->answered, 1);
  }
}

flc_worker *flc_worker_start(void) {
  flc_worker *c = calloc(1, sizeof *c);
  if (!c) {
    fli_fail(FL_ENOMEM, "out of memory: a thread");
    return NULL;
  }
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->wake, NULL);
  int e = flc_thread(&c->thread, carry, c);
  if (e) {
    fli_fail(FL_ENOMEM, "cannot start a thread: %s", strerror(e));
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
  }
  return c;
}

static void wake(flc_worker *c) {
  if (!atomic_load(&c->asleep))
    return;
  pthread_mutex_lock(&c->lock);
  pthread_cond_signal(&c->wake);
  pthread_mutex_unlock(&c->lock);
}

void flc_worker_ask(flc_worker *c, int (*f)(void *), void *x) {
  c->f = f;
  c->x = x;
  atomic_fetch_add(&c->asked, 1);
  wake(c);
}

bool flc_worker_done(flc_worker *c, int *result) {
  if (c && atomic_load(&c->answered) != atomic_load(&c->asked))
    return false;
  *result = c ? c->result : 0;
  return true;
}

bool flc_worker_end(flc_worker *c) {
  int result;
  if (!c)
    return true;
  if (!flc_worker_done(c, &result)) {
    pthread_detach(c->thread);
    return false;
  }
  atomic_store(&c->quit, true);
  wake(c);
  pthread_join(c->thread, NULL);
  pthread_cond_destroy(&c->wake);
  pthread_mutex_destroy(&c->lock);
  free(c);
  return true;
}
