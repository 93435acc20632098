/* The engine for the ranks of one host, which exchange tensors through shared
 * memory.
 *
 * A collective is processed in pieces, a piece in phases. In a phase each rank
 * does its part, publishes its `step` and waits for the steps of the others.
 * Staging buffers are double, so one phase is enough where ranks only read: a
 * rank that writes a half again has seen all others enter the next phase. The
 * order of a sum is that of the ranks, or of the ring beginning at the part's
 * own rank, so results are deterministic. Every wait polls the board. */
#include "host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define SLICE 0.05 /* seconds between polls of the board */
#define SPINS 2000

/* --- waiting --- */

static void sleep_on(word *w, unsigned seen) {
  struct timespec t = {.tv_nsec = (long)(SLICE * 1e9)};
  atomic_fetch_add(&w->sleepers, 1);
#ifdef __linux__
  if (atomic_load(&w->value) == seen)
    syscall(SYS_futex, &w->value, FUTEX_WAIT, seen, &t, NULL, 0);
#else
  t.tv_nsec = 100000;
  nanosleep(&t, NULL);
#endif
  atomic_fetch_sub(&w->sleepers, 1);
}

void fl_host_set(word *w, unsigned value) {
  atomic_store(&w->value, value);
#ifdef __linux__
  if (atomic_load(&w->sleepers))
    syscall(SYS_futex, &w->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#endif
}

static bool reached(word *w, unsigned value) {
  return (int)(atomic_load_explicit(&w->value, memory_order_acquire) - value) >=
         0;
}

typedef struct condition { /* what this rank waits for */
  word *w;
  unsigned value;
} condition;

static bool condition_met(const void *context) {
  const condition *one = context;
  return reached(one->w, one->value);
}

static fl_status stopped(const host_link *l) {
  return atomic_load(&l->stop)
             ? fli_fail(FL_ECOMM, "the group is closed while a call is "
                                  "running")
             : FL_OK;
}

fl_status fl_host_await(host_link *l, const fl_comm_note *n, word *w,
                        unsigned value) {
  fl_board *board = l->host->o.board;
  condition mine = {w, value};
  for (int k = 0; k < l->spins; k++) {
    if (reached(w, value))
      return FL_OK;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  double start = fl_comm_now(), next = start + SLICE;
  for (;;) {
    unsigned seen = atomic_load(&w->value);
    if (reached(w, value))
      return FL_OK;
    sleep_on(w, seen);
    double now = fl_comm_now();
    if (now < next)
      continue;
    next = now + SLICE;
    fl_status s = stopped(l);
    if (!s)
      s = board->look_unless(board, n, now - start, condition_met, &mine);
    if (s && !reached(w, value)) /* it may have been reached since */
      return s;
  }
}

/* --- lanes: the calls of a lane are executed in order --- */

static void lane_begin(lane *q) {
  pthread_mutex_lock(&q->lock);
  q->active = true;
  pthread_mutex_unlock(&q->lock);
}

static void lane_end(lane *q, uint64_t seq, fl_status s, bool by_worker) {
  pthread_mutex_lock(&q->lock);
  q->done = seq;
  q->active = false;
  if (by_worker)
    q->worked = seq;
  if (s && !q->status) {
    q->status = s;
    snprintf(q->why, sizeof q->why, "%s", fl_error());
  }
  pthread_cond_broadcast(&q->moved);
  pthread_mutex_unlock(&q->lock);
}

static void soon(struct timespec *t) {
  clock_gettime(CLOCK_REALTIME, t);
  t->tv_nsec += (long)(SLICE * 1e9);
  if (t->tv_nsec >= 1000000000) {
    t->tv_nsec -= 1000000000;
    t->tv_sec++;
  }
}

/* A call that was counted and never ran, because its kernel failed before it
 * reached the engine, would block its lane for ever. The time-out of the job
 * applies to that as well. */
static fl_status lane_stuck(const host_link *l, const lane *q, double waited) {
  const fl_comm_options *o = &l->host->o;
  double limit = q->done ? o->timeout : o->first;
  if (q->active || limit <= 0 || waited <= limit)
    return FL_OK;
  return fli_fail(FL_ECOMM,
                  "call #%llu of group %d did not run within %g s: an earlier "
                  "error of this rank stopped it",
                  (unsigned long long)q->done + 1, l->base.group, limit);
}

/* Waits until the lane has executed `seq`; returns the lane's failure if there
 * is one. */
static fl_status lane_wait(host_link *l, lane *q, uint64_t seq) {
  fl_status s = FL_OK;
  const fl_comm_options *o = &l->host->o;
  bool mine = pthread_equal(pthread_self(), l->host->owner);
  struct timespec t;
  double since = 0; /* when the lane became idle */
  pthread_mutex_lock(&q->lock);
  while (q->done < seq && !q->status && !s) {
    uint64_t before = q->done;
    soon(&t);
    pthread_cond_timedwait(&q->moved, &q->lock, &t);
    double now = fl_comm_now();
    if (!since || q->active || q->done != before)
      since = now;
    s = stopped(l);
    if (!s)
      s = lane_stuck(l, q, now - since);
    if (!s && mine && o->interrupted && o->interrupted(o->context)) {
      atomic_store(&l->stop, true);
      s = fli_fail(FL_EINTERRUPT, "interrupted!");
    }
  }
  if (!s && q->status)
    s = fli_fail(q->status, "%s", q->why);
  pthread_mutex_unlock(&q->lock);
  return s;
}

static fl_status perform_call(const fl_comm_call *c) {
  host_link *l = (host_link *)c->note->link;
  fl_board *board = l->host->o.board;
  lane *q = &l->lanes[c->note->lane];
  fl_status s = lane_wait(l, q, c->note->seq - 1);
  if (!s) {
    lane_begin(q);
    board->begin(board, c->note);
    s = c->note->lane == FL_COMM_TOGETHER ? fl_host_together(l, c)
                                          : fl_host_pass(l, c);
    board->end(board, c->note);
  }
  lane_end(q, c->note->seq, s, c->async);
  return s;
}

static void *work(void *context) {
  lane *q = context;
  pthread_mutex_lock(&q->lock);
  for (;;) {
    while (!q->first && !q->quit)
      pthread_cond_wait(&q->moved, &q->lock);
    task *t = q->first;
    if (!t)
      break;
    pthread_mutex_unlock(&q->lock);
    perform_call(&t->call);
    pthread_mutex_lock(&q->lock);
    q->first = t->next;
    if (!q->first)
      q->last = NULL;
    free(t);
  }
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

/* The worker blocks all signals, so that the host program's threads get them.
 */
static fl_status start_worker(lane *q) {
  sigset_t all, old;
  if (q->started)
    return FL_OK;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int e = pthread_create(&q->thread, NULL, work, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (e)
    return fli_fail(FL_ENOMEM, "cannot start a thread: %s", strerror(e));
  q->started = true;
  return FL_OK;
}

static fl_status host_run(const fl_comm_call *c) {
  host_link *l = (host_link *)c->note->link;
  lane *q = &l->lanes[c->note->lane];
  const fl_comm_options *o = &l->host->o;
  /* short calls finish before they poll the board */
  if (o->interrupted && pthread_equal(pthread_self(), l->host->owner) &&
      o->interrupted(o->context)) {
    lane_end(q, c->note->seq, fli_fail(FL_EINTERRUPT, "interrupted!"), false);
    return FL_EINTERRUPT;
  }
  if (!c->async)
    return perform_call(c);
  task *t = malloc(sizeof *t);
  fl_status s =
      t ? start_worker(q) : fli_fail(FL_ENOMEM, "out of memory: a collective");
  if (s) {
    free(t);
    lane_end(q, c->note->seq, s, false);
    return s;
  }
  t->call = *c;
  t->note = *c->note;
  t->call.note = &t->note;
  t->next = NULL;
  pthread_mutex_lock(&q->lock);
  *(q->last ? &q->last->next : &q->first) = t;
  q->last = t;
  pthread_cond_broadcast(&q->moved);
  pthread_mutex_unlock(&q->lock);
  return FL_OK;
}

static fl_status host_agree(fl_comm_link *link, const fl_comm_call *c,
                            uint64_t seq) {
  host_link *l = (host_link *)link;
  fl_board *board = l->host->o.board;
  lane *q = &l->lanes[FL_COMM_TOGETHER];
  fl_status s = lane_wait(l, q, seq - 1);
  if (!s) {
    lane_begin(q);
    board->begin(board, c->note);
    s = fl_host_agree(l, c, seq);
    board->end(board, c->note);
  }
  lane_end(q, seq, s, false);
  return s;
}

static fl_status host_wait(fl_comm_link *link, int number, uint64_t seq) {
  host_link *l = (host_link *)link;
  return lane_wait(l, &l->lanes[number], seq);
}

static bool host_done(fl_comm_link *link, int number, uint64_t seq) {
  lane *q = &((host_link *)link)->lanes[number];
  pthread_mutex_lock(&q->lock);
  /* a call that failed at once may complete before the worker's earlier ones */
  const task *t = q->first;
  bool busy = t && t->call.note->seq <= seq && t->call.note->seq > q->worked;
  bool done = q->done >= seq && !busy;
  pthread_mutex_unlock(&q->lock);
  return done;
}

/* --- groups --- */

static size_t up(size_t n) {
  return (n + FL_ALIGN - 1) / FL_ALIGN * FL_ALIGN;
}

/* Sets the offsets in the segment and returns its size. */
static size_t lay_out(host_link *l) {
  size_t n = (size_t)l->base.size, at = up(sizeof(area));
  l->at_member = at;
  at += n * up(sizeof(member));
  l->at_pair = at;
  at += n * n * up(sizeof(pair));
  l->piece = PIECE;
  l->part = up(PIECE / n + FL_ALIGN);
  l->slot = n <= 8 ? 32 << 10 : 4 << 10;
  l->at_stage = at;
  at += n * 2 * l->piece;
  l->at_part = at;
  at += n * 2 * l->part;
  l->at_slot = at;
  return at + n * n * 2 * l->slot;
}

static void host_unlink(fl_comm *c, fl_comm_link *link) {
  host_link *l = (host_link *)link;
  (void)c;
  atomic_store(&l->stop, true);
  for (int k = 0; k < FL_COMM_LANES; k++) {
    lane *q = &l->lanes[k];
    pthread_mutex_lock(&q->lock);
    q->quit = true;
    pthread_cond_broadcast(&q->moved);
    pthread_mutex_unlock(&q->lock);
    if (q->started)
      pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->moved);
    pthread_mutex_destroy(&q->lock);
  }
  if (l->memory)
    fl_segment_close(l->memory, l->bytes);
  free(l);
}

static void say_ranks(int n, const int *ranks, char *text, size_t room) {
  size_t at = 0;
  text[0] = 0;
  for (int k = 0; k < n && at < room; k++)
    at += (size_t)snprintf(text + at, room - at, " %d", ranks[k]);
}

/* The first rank writes the list of members; the others compare theirs. */
static fl_status agree_members(host_link *l, const fl_comm_note *n) {
  const fl_comm_link *g = &l->base;
  area *a = (area *)l->memory;
  int first = 0, me = g->ranks[g->rank];
  size_t bytes = (size_t)g->size * sizeof *g->ranks;
  if (atomic_compare_exchange_strong(&a->first, &first, me + 1)) {
    a->size = g->size;
    memcpy(a->ranks, g->ranks, bytes);
    fl_host_set(&a->listed, 1);
    return FL_OK;
  }
  fl_status s = fl_host_await(l, n, &a->listed, 1);
  if (s || (a->size == g->size && memcmp(a->ranks, g->ranks, bytes) == 0))
    return s;
  char mine[300], theirs[300], what[900];
  say_ranks(g->size, g->ranks, mine, sizeof mine);
  say_ranks(a->size, a->ranks, theirs, sizeof theirs);
  snprintf(what, sizeof what,
           "rank %d made group %d of the ranks%s, but rank %d of%s: all ranks "
           "of the job make all groups, the same in the same order",
           me, g->group, mine, first - 1, theirs);
  fl_board *board = l->host->o.board;
  return board->fail(board, me, what);
}

/* Waits until all members have opened the segment; the last one unlinks its
 * name. */
static fl_status meet(host_link *l, const char *what) {
  area *a = (area *)l->memory;
  unsigned n = (unsigned)l->base.size;
  fl_comm_note note = {.link = &l->base,
                       .group = l->base.group,
                       .kind = FL_COMM_BARRIER,
                       .peer = -1,
                       .size = l->base.size,
                       .site = "the start of the group"};
  fl_board *board = l->host->o.board;
  board->begin(board, &note); /* number 0: not one of the group's calls */
  fl_status s = agree_members(l, &note);
  if (!s && atomic_fetch_add(&a->joined.value, 1) + 1 == n) {
    fl_host_set(&a->joined, n);
    fl_segment_forget(l->host->o.key, what);
  }
  if (!s)
    s = fl_host_await(l, &note, &a->joined, n);
  board->end(board, &note);
  return s;
}

static fl_status host_link_new(fl_comm *c, const fl_comm_link *g, int device,
                               const unsigned char *ticket,
                               fl_comm_link **out) {
  host *h = c->state;
  (void)device;
  (void)ticket;
  if (g->size > FL_HOST_RANKS)
    return fli_fail(FL_ECOMM, "the host engine is for %d ranks at most",
                    FL_HOST_RANKS);
  host_link *l = calloc(1, sizeof *l);
  if (!l)
    return fli_fail(FL_ENOMEM, "out of memory: a group of ranks");
  l->base = *g;
  l->base.engine = c;
  l->host = h;
  l->spins = sysconf(_SC_NPROCESSORS_ONLN) >= g->size ? SPINS : 16;
  for (int k = 0; k < FL_COMM_LANES; k++) {
    pthread_mutex_init(&l->lanes[k].lock, NULL);
    pthread_cond_init(&l->lanes[k].moved, NULL);
  }
  char what[32];
  snprintf(what, sizeof what, "group-%d", g->group);
  l->bytes = lay_out(l);
  fl_status s = fl_segment_open(h->o.key, what, l->bytes, (void **)&l->memory);
  if (s == FL_OK)
    s = meet(l, what);
  else
    l->memory = NULL;
  if (s) {
    host_unlink(c, &l->base);
    return s;
  }
  *out = &l->base;
  return FL_OK;
}

/* --- the engine --- */

static void host_close(fl_comm *c) {
  free(c->state);
}

fl_status fl_host_open(const fl_comm_options *o, fl_comm **c);

fl_status fl_host_open(const fl_comm_options *o, fl_comm **c) {
  host *h = calloc(1, sizeof *h);
  if (!h)
    return fli_fail(FL_ENOMEM, "out of memory: the host engine");
  h->o = *o;
  h->owner = pthread_self();
  h->table = (fl_comm){.struct_size = sizeof(fl_comm),
                       .name = "host",
                       .backends = "cpu sim",
                       .state = h,
                       .link = host_link_new,
                       .unlink = host_unlink,
                       .run = host_run,
                       .agree = host_agree,
                       .wait = host_wait,
                       .done = host_done,
                       .close = host_close};
  *c = &h->table;
  return FL_OK;
}
