/* The CPU backend's thread pool: cutting a kernel's work into pieces, handing
 * them to waiting threads, and the question whether to stop. A hand-off to a
 * thread that still spins takes a fraction of a microsecond; threads that find
 * nothing to do for SPIN_NS sleep in the kernel. What the pieces are never
 * depends on the threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

/* How long an idle thread spins before it sleeps: longer than the gaps between
 * the operators of a training step, too short to cost much processor time. */
#define SPIN_NS     50000
#define STACK_BYTES (4 << 20)
#define LEAST_CACHE (512 << 10) /* where the system does not tell */

/* A 32-bit word that threads can sleep on. */
typedef struct word {
  _Alignas(FL_ALIGN) atomic_uint value;
#ifndef __linux__
  pthread_mutex_t lock;
  pthread_cond_t changed;
#endif
} word;

typedef struct seat seat;

/* The launching thread writes the job's fields while `left` is 0, then deals
 * the pieces out: a range for each thread, the same one in every job of a
 * shape, so that a thread finds in its cache what it wrote before. A thread
 * takes pieces from the front of its own range, then from the back of other
 * threads' ranges. The thread that moves an end of a range by compare-and-swap
 * owns the piece; the job's fields are valid until it has finished it. */
struct fl_cpu_pool {
  _Alignas(FL_ALIGN) atomic_uint job; /* counts; changes when all is dealt */
  word left; /* pieces not finished; the launching thread waits for 0 */
  word wake; /* changes when sleeping threads shall look again */
  _Alignas(FL_ALIGN) atomic_int sleeping;
  atomic_bool waiting; /* the launching thread sleeps on `left` */
  atomic_bool quit;
  _Alignas(FL_ALIGN) fl_cpu_task task;
  void *context;
  int64_t n, grain;
  atomic_int dealt; /* to so many seats */
  bool busy;        /* a job runs: calls from inside it are serial */
  pthread_t owner;  /* while busy: the launching thread */
  bool (*interrupt)(void *context);
  void *interrupt_context;
  atomic_uint_fast64_t stopped; /* 1 + the launch that is to stop */
  int workers;
  size_t cache; /* bytes of a core's L2 */
  struct seat { /* the launching thread's, then the workers' */
    /* first piece (low half) and the one after the last */
    _Alignas(FL_ALIGN) atomic_uint_fast64_t range;
    fl_cpu_pool *pool;
    pthread_t thread;
  } seat[];
};

/* --- waiting --- */

static void word_open(word *w) {
  atomic_init(&w->value, 0);
#ifndef __linux__
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
#endif
}

static void word_close(word *w) {
#ifndef __linux__
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
#else
  (void)w;
#endif
}

/* Sleeps unless the value is no longer `seen`; may return for no reason. */
static void word_wait(word *w, unsigned seen) {
#ifdef __linux__
  syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
  pthread_mutex_lock(&w->lock);
  if (atomic_load(&w->value) == seen)
    pthread_cond_wait(&w->changed, &w->lock);
  pthread_mutex_unlock(&w->lock);
#endif
}

/* After a change of the value. */
static void word_wake(word *w, int threads) {
#ifdef __linux__
  syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
#else
  pthread_mutex_lock(&w->lock);
  if (threads == 1)
    pthread_cond_signal(&w->changed);
  else
    pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
#endif
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

typedef struct spin {
  int64_t until;
  int turns;
} spin;

/* One turn of a bounded wait; false when the time is over. */
static bool spin_on(spin *s) {
  relax();
  if (++s->turns & 31)
    return true;
  int64_t now = now_ns();
  if (!s->until)
    s->until = now + SPIN_NS;
  return now < s->until;
}

/* --- pieces --- */

static bool take_from(seat *s, bool front, uint32_t *piece) {
  uint_fast64_t r = atomic_load_explicit(&s->range, memory_order_acquire);
  for (;;) {
    uint32_t first = (uint32_t)r, end = (uint32_t)(r >> 32);
    if (first == end)
      return false;
    uint64_t rest = front ? r + 1 : r - ((uint64_t)1 << 32);
    if (atomic_compare_exchange_weak_explicit(
            &s->range, &r, rest, memory_order_acq_rel, memory_order_acquire)) {
      *piece = front ? first : end - 1;
      return true;
    }
  }
}

static bool take_piece(seat *mine, uint32_t *piece) {
  fl_cpu_pool *p = mine->pool;
  if (take_from(mine, true, piece))
    return true;
  int dealt = atomic_load(&p->dealt), me = (int)(mine - p->seat);
  for (int i = 1; i <= dealt; i++)
    if (take_from(&p->seat[(me + i) % dealt], false, piece))
      return true;
  return false;
}

static void run_piece(fl_cpu_task f, void *context, int64_t n, int64_t grain,
                      int64_t piece) {
  int64_t begin = piece * grain;
  f(context, begin, n - begin < grain ? n : begin + grain);
}

/* Runs pieces until there are none to take. */
static void pool_work(seat *mine) {
  fl_cpu_pool *p = mine->pool;
  uint32_t piece;
  while (take_piece(mine, &piece)) {
    run_piece(p->task, p->context, p->n, p->grain, piece);
    /* from here on the job may be over, and another one begin */
    if (atomic_fetch_sub(&p->left.value, 1) == 1 && atomic_load(&p->waiting))
      word_wake(&p->left, 1);
  }
}

static bool nothing_to_do(fl_cpu_pool *p, unsigned done) {
  return atomic_load(&p->job) == done && !atomic_load(&p->quit);
}

/* `sleeping` goes up before the last look, and is read by the launching thread
 * after it has published a job: one of the two sees the other. */
static void sleep_until_work(fl_cpu_pool *p, unsigned done) {
  unsigned seen = atomic_load(&p->wake.value);
  atomic_fetch_add(&p->sleeping, 1);
  if (nothing_to_do(p, done))
    word_wait(&p->wake, seen);
  atomic_fetch_sub(&p->sleeping, 1);
}

static void *worker(void *at) {
  seat *mine = at;
  fl_cpu_pool *p = mine->pool;
  unsigned done = 0;
  while (!atomic_load(&p->quit)) {
    spin s = {0};
    while (nothing_to_do(p, done))
      if (!spin_on(&s))
        sleep_until_work(p, done);
    done = atomic_load(&p->job);
    pool_work(mine);
  }
  return NULL;
}

static void wait_for_rest(fl_cpu_pool *p) {
  spin s = {0};
  unsigned left;
  while ((left = atomic_load(&p->left.value)) != 0) {
    if (spin_on(&s))
      continue;
    atomic_store(&p->waiting, true);
    left = atomic_load(&p->left.value);
    if (left)
      word_wait(&p->left, left);
    atomic_store(&p->waiting, false);
  }
}

static void deal(fl_cpu_pool *p, uint32_t pieces) {
  uint32_t seats = (uint32_t)p->workers + 1;
  seats = pieces < seats ? pieces : seats;
  uint64_t first = 0;
  for (uint32_t i = 0; i < seats; i++) {
    uint64_t end = (uint64_t)pieces * (i + 1) / seats;
    atomic_store_explicit(&p->seat[i].range, end << 32 | first,
                          memory_order_release);
    first = end;
  }
  atomic_store(&p->dealt, (int)seats);
}

static void run_shared(fl_cpu_pool *p, int64_t n, int64_t grain,
                       uint32_t pieces, fl_cpu_task f, void *context) {
  p->task = f;
  p->context = context;
  p->n = n;
  p->grain = grain;
  p->busy = true;
  p->owner = pthread_self();
  atomic_store(&p->left.value, pieces);
  deal(p, pieces);
  atomic_fetch_add(&p->job, 1);
  int sleeping = atomic_load(&p->sleeping);
  if (sleeping) {
    atomic_fetch_add(&p->wake.value, 1);
    word_wake(&p->wake,
              sleeping < (int)pieces - 1 ? sleeping : (int)pieces - 1);
  }
  pool_work(p->seat);
  wait_for_rest(p);
  p->busy = false;
}

void fl_cpu_parallel(const fl_launch *l, int64_t n, int64_t grain,
                     fl_cpu_task f, void *context) {
  if (n <= 0)
    return;
  if (grain < 1)
    grain = 1;
  int64_t pieces = n / grain + (n % grain != 0);
  fl_cpu_pool *p = (fl_cpu_pool *)l->stream;
  if (pieces > 1 && pieces <= INT32_MAX && p && p->workers && !p->busy) {
    run_shared(p, n, grain, (uint32_t)pieces, f, context);
    return;
  }
  for (int64_t i = 0; i < pieces; i++)
    run_piece(f, context, n, grain, i);
}

/* --- stopping --- */

void fl_cpu_pool_on_interrupt(fl_cpu_pool *pool,
                              bool (*interrupt)(void *context), void *context) {
  pool->interrupt = interrupt;
  pool->interrupt_context = context;
}

bool fl_cpu_can_stop(const fl_launch *l) {
  const fl_cpu_pool *p = (const fl_cpu_pool *)l->stream;
  return p && p->interrupt;
}

/* Only the launching thread calls the host's callback; the other threads read
 * its last answer. */
bool fl_cpu_interrupted(const fl_launch *l) {
  fl_cpu_pool *p = (fl_cpu_pool *)l->stream;
  if (!p || !p->interrupt)
    return false;
  if (atomic_load_explicit(&p->stopped, memory_order_relaxed) == l->seq + 1)
    return true;
  if (p->busy && !pthread_equal(p->owner, pthread_self()))
    return false;
  if (!p->interrupt(p->interrupt_context))
    return false;
  atomic_store_explicit(&p->stopped, l->seq + 1, memory_order_relaxed);
  return true;
}

fl_status fl_cpu_stopped(const fl_launch *l) {
  return fli_fail(FL_EINTERRUPT, "%s: interrupted", l->op);
}

typedef struct stoppable {
  const fl_launch *launch;
  fl_cpu_task task;
  void *context;
} stoppable;

static void run_unless_stopped(void *context, int64_t begin, int64_t end) {
  const stoppable *s = context;
  if (!fl_cpu_interrupted(s->launch))
    s->task(s->context, begin, end);
}

fl_status fl_cpu_stoppable(const fl_launch *l, int64_t n, int64_t grain,
                           fl_cpu_task f, void *context) {
  bool over = l->n_in && l->n_out && l->in[0].data == l->out[0].data;
  if (over || n <= grain) {
    fl_cpu_parallel(l, n, grain, f, context);
    return FL_OK;
  }
  stoppable s = {l, f, context};
  fl_cpu_parallel(l, n, grain, run_unless_stopped, &s);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

/* --- opening and closing --- */

/* Workers take no signals: those are the host's. */
static int start_workers(fl_cpu_pool *p, int wanted) {
  sigset_t all, before;
  pthread_attr_t attr;
  sigfillset(&all);
  if (pthread_attr_init(&attr) != 0)
    return 0;
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int n = 0;
  while (n < wanted && pthread_create(&p->seat[n + 1].thread, &attr, worker,
                                      &p->seat[n + 1]) == 0)
    n++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return n;
}

/* Bytes of the cache that a core has for itself, the second level. */
static size_t core_cache(void) {
  long bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
  bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  return bytes > 0 ? (size_t)bytes : LEAST_CACHE;
}

static void open_seats(fl_cpu_pool *p, int threads) {
  for (int i = 0; i < threads; i++) {
    atomic_init(&p->seat[i].range, 0);
    p->seat[i].pool = p;
  }
  p->workers = start_workers(p, threads - 1);
}

/* `threads` counts the launching one; 0: as many as cores. A system that gives
 * fewer threads makes a smaller pool, not a failure. */
fl_status fl_cpu_pool_open(int threads, fl_cpu_pool **pool) {
  if (threads < 1)
    threads = 1;
  if (threads > FL_CPU_MOST_THREADS)
    threads = FL_CPU_MOST_THREADS;
  /* seats for all that there may ever be: the pool's address is known */
  size_t bytes =
      sizeof(fl_cpu_pool) + (size_t)FL_CPU_MOST_THREADS * sizeof(seat);
  bytes = (bytes + FL_ALIGN - 1) / FL_ALIGN * FL_ALIGN;
  fl_cpu_pool *p = aligned_alloc(FL_ALIGN, bytes);
  if (!p)
    return fli_fail(FL_ENOMEM, "thread pool: no memory for %d threads",
                    threads);
  *p = (fl_cpu_pool){0};
  atomic_init(&p->job, 0);
  atomic_init(&p->dealt, 0);
  atomic_init(&p->sleeping, 0);
  atomic_init(&p->waiting, false);
  atomic_init(&p->quit, false);
  atomic_init(&p->stopped, 0);
  word_open(&p->left);
  word_open(&p->wake);
  p->cache = core_cache();
  open_seats(p, threads);
  *pool = p;
  return FL_OK;
}

static void end_workers(fl_cpu_pool *p) {
  atomic_store(&p->quit, true);
  atomic_fetch_add(&p->wake.value, 1);
  word_wake(&p->wake, p->workers + 1);
  for (int i = 0; i < p->workers; i++)
    pthread_join(p->seat[i + 1].thread, NULL);
  p->workers = 0;
}

void fl_cpu_pool_resize(fl_cpu_pool *p, int threads) {
  if (p->busy || threads < 1 || threads > FL_CPU_MOST_THREADS ||
      threads == p->workers + 1)
    return;
  end_workers(p);
  atomic_store(&p->quit, false);
  open_seats(p, threads);
}

void fl_cpu_pool_close(fl_cpu_pool *p) {
  if (!p)
    return;
  end_workers(p);
  word_close(&p->left);
  word_close(&p->wake);
  free(p);
}

int fl_cpu_pool_threads(const fl_cpu_pool *p) {
  return p ? p->workers + 1 : 1;
}

size_t fl_cpu_pool_cache(const fl_cpu_pool *p) {
  return p ? p->cache : LEAST_CACHE;
}
