/* Long calls of LAPACK, which cannot be stopped: they run on threads of their
 * own, over copies of what they read and write, so that an interrupted caller
 * can go on at once. What such a thread still computes is then dropped. */
#include "lapack.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 64
#define ASK_NS       10000000 /* how often the caller looks whether to stop */
#define STACK_BYTES  (8 << 20)

typedef struct job {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  atomic_bool abandoned;
  atomic_int_fast64_t next; /* matrix */
  int users;                /* threads and the caller; locked, as the rest */
  int running;
  int64_t bad;
  int info;
  fl_factor c; /* over the memory below */
  fl_launch launch;
  fl_attrs attrs;
  fl_lapack_step f;
  size_t each; /* bytes of working memory of a thread */
  char *room;
  char op[48];
} job;

static void free_job(job *j) {
  for (int k = 0; k < 2; k++)
    free((void *)(uintptr_t)j->c.in[k]); /* a copy */
  for (int k = 0; k < 3; k++)
    free(j->c.out[k]);
  free(j->room);
  pthread_mutex_destroy(&j->lock);
  pthread_cond_destroy(&j->ended);
  free(j);
}

/* Drops a user; `lock` is held, and is not afterwards. */
static void leave_job(job *j) {
  bool last = --j->users == 0;
  pthread_mutex_unlock(&j->lock);
  if (last)
    free_job(j);
}

typedef struct seat {
  job *j;
  char *room;
} seat;

static void run_matrices(seat *s) {
  job *j = s->j;
  while (!atomic_load(&j->abandoned)) {
    int64_t b = (int64_t)atomic_fetch_add(&j->next, 1);
    if (b >= j->c.batch)
      return;
    int info = j->f(&j->c, b, s->room);
    pthread_mutex_lock(&j->lock);
    if (info && (j->bad < 0 || b < j->bad)) {
      j->bad = b;
      j->info = info;
    }
    pthread_mutex_unlock(&j->lock);
  }
}

static void *thread_main(void *context) {
  seat *s = context;
  job *j = s->j;
  run_matrices(s);
  free(s);
  pthread_mutex_lock(&j->lock);
  j->running--;
  if (atomic_load(&j->abandoned))
    fli_thread_left(-1);
  pthread_cond_signal(&j->ended);
  leave_job(j);
  return NULL;
}

static job *new_job(const fl_factor *c, fl_lapack_step f, size_t each,
                    int threads) {
  job *j = calloc(1, sizeof *j);
  if (!j)
    return NULL;
  pthread_mutex_init(&j->lock, NULL);
  pthread_condattr_t a;
  pthread_condattr_init(&a);
#ifndef __APPLE__
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
#endif
  pthread_cond_init(&j->ended, &a);
  pthread_condattr_destroy(&a);
  atomic_init(&j->abandoned, false);
  atomic_init(&j->next, 0);
  j->users = 1;
  j->bad = -1;
  j->c = *c;
  j->launch = (fl_launch){.op = j->op, .base = c->l->base, .attrs = &j->attrs};
  strncpy(j->op, c->l->op, sizeof j->op - 1);
  j->attrs = *c->l->attrs;
  j->c.l = &j->launch;
  j->c.abandoned = &j->abandoned;
  j->f = f;
  j->each = each;
  bool whole = (j->room = malloc(each * (size_t)threads)) != NULL;
  for (int k = 0; k < 2; k++) {
    void *copy = c->in[k] ? malloc(c->in_bytes[k] + 1) : NULL;
    if (copy)
      memcpy(copy, c->in[k], c->in_bytes[k]);
    whole = whole && (copy || !c->in[k]);
    j->c.in[k] = copy;
  }
  for (int k = 0; k < 3; k++) {
    j->c.out[k] = c->out[k] ? malloc(c->out_bytes[k] + 1) : NULL;
    whole = whole && (j->c.out[k] || !c->out[k]);
  }
  if (whole)
    return j;
  free_job(j);
  return NULL;
}

/* Signals are the host's: the threads take none. */
static int start_threads(job *j, int wanted, pthread_t *threads) {
  sigset_t all, before;
  pthread_attr_t attr;
  sigfillset(&all);
  if (pthread_attr_init(&attr) != 0)
    return 0;
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&j->lock);
  int n = 0;
  for (; n < wanted; n++) {
    seat *s = malloc(sizeof *s);
    if (!s)
      break;
    *s = (seat){j, j->room + (size_t)n * j->each};
    if (pthread_create(&threads[n], &attr, thread_main, s) != 0) {
      free(s);
      break;
    }
    j->users++;
    j->running++;
  }
  pthread_mutex_unlock(&j->lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return n;
}

/* Until a thread has ended or some time has passed; `lock` is held. */
static void wait_some(job *j) {
  struct timespec t;
#ifdef __APPLE__
  clock_gettime(CLOCK_REALTIME, &t);
#else
  clock_gettime(CLOCK_MONOTONIC, &t);
#endif
  t.tv_nsec += ASK_NS;
  t.tv_sec += t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&j->ended, &j->lock, &t);
}

/* The caller goes on without the threads. */
static void abandon_job(job *j, int n, const pthread_t *threads) {
  void *(*own)(void *) = thread_main;
  const void *address;
  memcpy(&address, &own, sizeof own);
  fli_keep_loaded(address);
  atomic_store(&j->abandoned, true);
  fli_thread_left(j->running);
  for (int k = 0; k < n; k++)
    pthread_detach(threads[k]);
  leave_job(j);
}

fl_status fl_lapack_detached(const fl_factor *c, fl_lapack_step f, size_t each,
                             int64_t *bad, int *info) {
  pthread_t threads[MOST_THREADS];
  int most = fl_cpu_pool_threads((const fl_cpu_pool *)c->l->stream);
  int wanted = most < MOST_THREADS ? most : MOST_THREADS;
  wanted = c->batch < wanted ? (int)c->batch : wanted;
  job *j = new_job(c, f, each, wanted);
  if (!j)
    return fli_fail(FL_ENOMEM, "%s: out of memory", c->l->op);
  int n = start_threads(j, wanted, threads);
  if (n == 0)
    run_matrices(&(seat){j, j->room});
  pthread_mutex_lock(&j->lock);
  while (j->running) {
    wait_some(j);
    pthread_mutex_unlock(&j->lock);
    bool stop = fl_cpu_interrupted(c->l); /* may take the host some time */
    pthread_mutex_lock(&j->lock);
    if (stop && j->running) {
      abandon_job(j, n, threads);
      return fl_cpu_stopped(c->l);
    }
  }
  pthread_mutex_unlock(&j->lock);
  for (int k = 0; k < n; k++)
    pthread_join(threads[k], NULL);
  for (int k = 0; k < 3; k++)
    if (c->out[k])
      memcpy(c->out[k], j->c.out[k], c->out_bytes[k]);
  *bad = j->bad;
  *info = j->info;
  free_job(j);
  return FL_OK;
}
