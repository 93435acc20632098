/* The board of a job: shared memory in which each rank of this host publishes
 * its current call, and the first rank that detects a failure publishes the
 * verdict. Ranks that wait poll the board, so they never wait for a rank that
 * is gone. */
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPOKEN 900 /* bytes of a verdict; an error message holds 1024 */
#define TABLE  16384
#define GROUPS 4096 /* at most, see runtime/call/collective.c */

typedef struct entry { /* a rank's current or last call in a lane */
  char engine[8];
  int busy, group, kind, peer;
  uint64_t seq;
  fl_meta x;
  double since;
  char site[96];
} entry;

typedef struct seat {
  _Atomic int pid, left;
  _Atomic int exited;    /* 1 + wait status */
  _Atomic unsigned turn; /* sequence lock; odd: lanes are being written */
  _Atomic uint64_t
      born; /* start time, tells the process from a later one with its number */
  entry lanes[FL_COMM_LANES];
} seat;

typedef struct shared {
  _Atomic int size, joined;
  _Atomic int state; /* 0: no verdict, 1: being written, 2: there is one */
  int guilty;
  char what[SPOKEN], table[TABLE];
  seat seats[];
} shared;

typedef struct board {
  fl_board base;
  fl_comm_options o;
  char *key;
  pthread_t owner;
  pthread_mutex_t lock; /* of this rank's seat, which several threads write */
  shared *s;
  size_t bytes;
} board;

double fl_comm_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- segments --- */

static void segment_name(const char *key, const char *what, char *name,
                         size_t room) {
  snprintf(name, room, "/flare-%.40s-%s", key, what);
}

fl_status fl_segment_open(const char *key, const char *what, size_t bytes,
                          void **memory) {
  char name[96];
  struct stat st;
  segment_name(key, what, name, sizeof name);
  int fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0)
    return fli_fail(FL_ECOMM, "cannot open shared memory %s: %s", name,
                    strerror(errno));
  int e = fstat(fd, &st) != 0 ? errno : 0;
  if (!e && st.st_uid != geteuid())
    e = EPERM;
  if (!e && (size_t)st.st_size < bytes)
    e = ftruncate(fd, (off_t)bytes) != 0 ? errno : 0;
  if (!e)
    e = posix_fallocate(fd, 0, (off_t)bytes);
  *memory = e ? MAP_FAILED
              : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!e && *memory == MAP_FAILED)
    e = errno;
  close(fd);
  if (e)
    return fli_fail(FL_ECOMM, "shared memory %s, %zu bytes: %s%s", name, bytes,
                    strerror(e),
                    e == ENOSPC ? ": /dev/shm is full, or too small (that of a "
                                  "container: --shm-size)"
                                : "");
  return FL_OK;
}

void fl_segment_close(void *memory, size_t bytes) {
  munmap(memory, bytes);
}

void fl_segment_forget(const char *key, const char *what) {
  char name[96];
  segment_name(key, what, name, sizeof name);
  shm_unlink(name);
}

/* --- processes --- */

/* Reads from /proc/PID/stat the state, the start time (field 22) and the exit
 * status (field 52). False: there is no such process. */
static bool read_process(int pid, char *state, uint64_t *born, int *status) {
  char path[40], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = fopen(path, "re");
  if (!f)
    return false;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  char *p = strrchr(text, ')');
  if (!p || p[1] != ' ')
    return false;
  *state = p[2];
  *born = 0;
  *status = 0;
  int field = 2;
  for (p++; *p; p++) {
    if (*p != ' ')
      continue;
    field++;
    if (field == 22)
      *born = strtoull(p + 1, NULL, 10);
    if (field == 52)
      *status = atoi(p + 1);
  }
  return true;
}

/* Whether the process of a seat has ended; *status as of waitpid, -1: unknown.
 */
static bool is_dead(seat *t, int *status) {
  int pid = atomic_load(&t->pid), exited = atomic_load(&t->exited);
  char state;
  uint64_t born;
  *status = exited - 1;
  if (exited)
    return true;
  if (!pid)
    return false;
#ifdef __linux__
  bool found = read_process(pid, &state, &born, status);
  if (found && born == atomic_load(&t->born))
    return state == 'Z' || state == 'X';
  *status = -1; /* the number is free, or reused */
  return true;
#else
  (void)state;
  (void)born;
  return kill(pid, 0) != 0 && errno == ESRCH;
#endif
}

/* --- texts --- */

static size_t say_call(const entry *e, char *text, size_t room) {
  size_t at = (size_t)snprintf(text, room, "%s", fl_comm_kind_name(e->kind));
  if (e->seq)
    at += (size_t)snprintf(text + at, room - at, " #%llu",
                           (unsigned long long)e->seq);
  if (e->group)
    at += (size_t)snprintf(text + at, room - at, " of group %d", e->group);
  if (e->kind != FL_COMM_BARRIER)
    at += (size_t)snprintf(text + at, room - at, " %s %s",
                           fl_dtype_name(e->x.dtype),
                           fli_shape_text(e->x.ndim, e->x.shape));
  if (e->peer >= 0)
    at += (size_t)snprintf(text + at, room - at, " %s rank %d",
                           e->kind == FL_COMM_SEND ? "to" : "from", e->peer);
  if (e->site[0])
    at += (size_t)snprintf(text + at, room - at, " at %s", e->site);
  return at;
}

static void say_end(int status, char *text, size_t room) {
  if (status < 0)
    snprintf(text, room, "died");
  else if (WIFSIGNALED(status))
    snprintf(text, room, "died: signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(text, room, "ended with status %d", WEXITSTATUS(status));
}

/* Copies a rank's lanes consistently (sequence lock). */
static void read_seat(seat *t, entry *lanes) {
  for (int tries = 0; tries < 1000; tries++) {
    unsigned turn = atomic_load(&t->turn);
    memcpy(lanes, t->lanes, sizeof t->lanes);
    atomic_thread_fence(memory_order_acquire);
    if (!(turn & 1) && atomic_load(&t->turn) == turn)
      break;
  }
  for (int k = 0; k < FL_COMM_LANES;
       k++) { /* the rank may have died while writing */
    entry *e = &lanes[k];
    e->site[sizeof e->site - 1] = 0;
    if (e->kind < 0 || e->kind > FL_COMM_BARRIER)
      e->kind = FL_COMM_BARRIER;
    if (e->x.ndim < 0 || e->x.ndim > FL_MAX_DIMS)
      e->x.ndim = 0;
  }
}

/* The text of a rank's current or last call. */
static void say_seat(seat *t, char *text, size_t room) {
  entry lanes[FL_COMM_LANES];
  const entry *last = NULL, *busy = NULL;
  size_t at = 0;
  read_seat(t, lanes);
  for (int k = 0; k < FL_COMM_LANES; k++) {
    bool used = lanes[k].seq || lanes[k].busy;
    if (used && (!last || lanes[k].since > last->since))
      last = &lanes[k];
    if (lanes[k].busy && (!busy || lanes[k].since > busy->since))
      busy = &lanes[k];
  }
  if (!last) {
    snprintf(text, room, "has called no collective");
    return;
  }
  const entry *e = busy ? busy : last;
  at = (size_t)snprintf(text, room, busy ? "is in " : "has done ");
  at += say_call(e, text + at, room - at);
  snprintf(text + at, room - at, ", %.1f s", fl_comm_now() - e->since);
}

static void say_all(board *b, char *text, size_t room) {
  size_t at = 0;
  text[0] = 0;
  for (int r = 0; r < b->o.size && at + 512 < room; r++) {
    seat *t = &b->s->seats[r];
    char end[80] = "", doing[400];
    int pid = atomic_load(&t->pid), status;
    if (!pid) {
      at += (size_t)snprintf(text + at, room - at,
                             "  rank %d: not here (yet)\n", r);
      continue;
    }
    say_seat(t, doing, sizeof doing);
    if (is_dead(t, &status))
      say_end(status, end, sizeof end);
    else if (atomic_load(&t->left))
      snprintf(end, sizeof end, "left the job");
    at += (size_t)snprintf(text + at, room - at, "  rank %d (pid %d): %s%s%s\n",
                           r, pid, end, end[0] ? "; " : "", doing);
  }
}

/* --- the verdict --- */

static fl_status tell(board *b) {
  return fli_fail(FL_ECOMM, "%s", b->s->what);
}

static fl_status board_fail(fl_board *base, int guilty, const char *what) {
  board *b = (board *)base;
  int none = 0;
  if (atomic_compare_exchange_strong(&b->s->state, &none, 1)) {
    b->s->guilty = guilty;
    snprintf(b->s->what, sizeof b->s->what, "%s", what);
    say_all(b, b->s->table, sizeof b->s->table);
    atomic_store(&b->s->state, 2);
  }
  struct timespec ms = {.tv_nsec = 1000000};
  for (int k = 0; k < 500 && atomic_load(&b->s->state) != 2; k++)
    nanosleep(&ms, NULL); /* the writer may die */
  if (atomic_load(&b->s->state) != 2)
    return fli_fail(FL_ECOMM, "%s", what);
  return tell(b);
}

static const char *say_rank(board *b, int rank, char *text, size_t room) {
  int pid = atomic_load(&b->s->seats[rank].pid);
  if (pid)
    snprintf(text, room, "rank %d (pid %d)", rank, pid);
  else
    snprintf(text, room, "rank %d (it has not joined)", rank);
  return text;
}

static fl_status gone(board *b, int rank, const char *how) {
  char what[SPOKEN], doing[400], who[40];
  say_seat(&b->s->seats[rank], doing, sizeof doing);
  snprintf(what, sizeof what, "%s %s; it %s",
           say_rank(b, rank, who, sizeof who), how, doing);
  return board_fail(&b->base, rank, what);
}

static void name_engine(entry *e, const fl_comm_note *n) {
  snprintf(e->engine, sizeof e->engine, "%s",
           n->link && n->link->engine ? n->link->engine->name : "");
}

static fl_status late(board *b, const fl_comm_note *n, double limit) {
  char what[SPOKEN], mine[400], doing[400], who[40];
  entry me = {.group = n->group,
              .kind = (int)n->kind,
              .peer = n->peer,
              .seq = n->seq,
              .x = n->x},
        lanes[FL_COMM_LANES];
  snprintf(me.site, sizeof me.site, "%s", n->site);
  name_engine(&me, n);
  say_call(&me, mine, sizeof mine);
  for (int k = 0; n->link && k < n->link->size; k++) {
    int r = n->link->ranks[k];
    seat *t = &b->s->seats[r];
    if (r == b->o.rank || (n->peer >= 0 && r != n->peer))
      continue;
    read_seat(t, lanes);
    const entry *e = &lanes[FL_COMM_TOGETHER];
    if (n->lane == FL_COMM_TOGETHER && e->group == n->group &&
        e->seq >= n->seq && strcmp(e->engine, me.engine) == 0)
      continue;
    say_seat(t, doing, sizeof doing);
    snprintf(what, sizeof what, "%s did not come to %s within %g s; it %s",
             say_rank(b, r, who, sizeof who), mine, limit, doing);
    return board_fail(&b->base, r, what);
  }
  snprintf(what, sizeof what, "rank %d waited %g s in %s", b->o.rank, limit,
           mine);
  return board_fail(&b->base, -1, what);
}

static fl_status look_unless(fl_board *base, const fl_comm_note *n,
                             double waited, bool (*over)(const void *wait),
                             const void *wait) {
  board *b = (board *)base;
  char how[80];
  int status;
  if (atomic_load(&b->s->state) == 2)
    return tell(b);
  if (b->o.interrupted && pthread_equal(pthread_self(), b->owner) &&
      b->o.interrupted(b->o.context))
    return fli_fail(FL_EINTERRUPT, "interrupted!");
  for (int k = 0; n->link && k < n->link->size; k++) {
    int r = n->link->ranks[k];
    seat *t = &b->s->seats[r];
    if (r == b->o.rank || (n->peer >= 0 && r != n->peer))
      continue;
    bool left = atomic_load(&t->left), dead = is_dead(t, &status);
    if (!left && !dead)
      continue;
    if (over && over(wait))
      return FL_OK;
    if (dead && !left)
      say_end(status, how, sizeof how);
    else
      snprintf(how, sizeof how, "left the job");
    return gone(b, r, how);
  }
  double limit = n->seq <= 1 ? b->o.first : b->o.timeout;
  if (limit <= 0 || waited <= limit || (over && over(wait)))
    return FL_OK;
  return late(b, n, limit);
}

static fl_status board_look(fl_board *base, const fl_comm_note *n,
                            double waited) {
  return look_unless(base, n, waited, NULL, NULL);
}

/* --- this rank's seat --- */

static void board_begin(fl_board *base, const fl_comm_note *n) {
  board *b = (board *)base;
  seat *t = &b->s->seats[b->o.rank];
  entry *e = &t->lanes[n->lane];
  pthread_mutex_lock(&b->lock);
  atomic_fetch_add(&t->turn, 1);
  name_engine(e, n);
  e->busy = 1;
  e->group = n->group;
  e->kind = (int)n->kind;
  e->peer = n->peer;
  e->seq = n->seq;
  e->x = n->x;
  e->since = fl_comm_now();
  memcpy(e->site, n->site, sizeof e->site);
  atomic_fetch_add(&t->turn, 1);
  pthread_mutex_unlock(&b->lock);
}

static void board_end(fl_board *base, const fl_comm_note *n) {
  board *b = (board *)base;
  seat *t = &b->s->seats[b->o.rank];
  pthread_mutex_lock(&b->lock);
  atomic_fetch_add(&t->turn, 1);
  t->lanes[n->lane].busy = 0;
  t->lanes[n->lane].since = fl_comm_now();
  atomic_fetch_add(&t->turn, 1);
  pthread_mutex_unlock(&b->lock);
}

static void board_table(fl_board *base, char *text, size_t room) {
  say_all((board *)base, text, room);
}

static bool board_turns(fl_board *base, int rank, fl_comm_turn *turns) {
  seat *t = &((board *)base)->s->seats[rank];
  entry lanes[FL_COMM_LANES];
  int status;
  if (!atomic_load(&t->pid) || atomic_load(&t->left) || is_dead(t, &status))
    return false;
  read_seat(t, lanes);
  for (int k = 0; k < FL_COMM_LANES; k++) {
    const entry *e = &lanes[k];
    turns[k] = (fl_comm_turn){.busy = e->busy != 0,
                              .group = e->group,
                              .peer = e->peer,
                              .seq = e->seq};
    memcpy(turns[k].engine, e->engine, sizeof e->engine);
  }
  return true;
}

static int board_verdict(fl_board *base, char *text, size_t room) {
  board *b = (board *)base;
  text[0] = 0;
  if (atomic_load(&b->s->state) != 2)
    return -1;
  snprintf(text, room, "%s\n%s", b->s->what, b->s->table);
  return b->s->guilty;
}

static void board_exited(fl_board *base, int rank, int status) {
  board *b = (board *)base;
  if (rank >= 0 && rank < b->o.size)
    atomic_store(&b->s->seats[rank].exited, status + 1);
}

/* Unlinks the names of groups whose rendezvous was never complete. */
static void forget_groups(board *b) {
  for (int k = 0; k < GROUPS; k++) {
    char what[32];
    snprintf(what, sizeof what, "group-%d", k);
    fl_segment_forget(b->key, what);
  }
}

static void board_reset(fl_board *base, bool lead) {
  board *b = (board *)base;
  seat *t = &b->s->seats[b->o.rank];
  pthread_mutex_lock(&b->lock);
  atomic_fetch_add(&t->turn, 1);
  memset(t->lanes, 0, sizeof t->lanes);
  atomic_fetch_add(&t->turn, 1);
  pthread_mutex_unlock(&b->lock);
  if (!lead)
    return;
  forget_groups(b);
  b->s->guilty = -1;
  b->s->what[0] = b->s->table[0] = 0;
  atomic_store(&b->s->state, 0);
}

static void board_close(fl_board *base) {
  board *b = (board *)base;
  if (b->s && b->o.rank >= 0)
    atomic_store(&b->s->seats[b->o.rank].left, 1);
  if (b->s) /* on several hosts no rank was the last to join */
    fl_segment_forget(b->key, "board");
  if (b->s && b->o.rank < 0)
    forget_groups(b);
  if (b->s)
    fl_segment_close(b->s, b->bytes);
  pthread_mutex_destroy(&b->lock);
  free(b->key);
  free(b);
}

static fl_status take_seat(board *b) {
  seat *t = &b->s->seats[b->o.rank];
  char state;
  uint64_t born = 0;
  int status, pid = 0;
  read_process((int)getpid(), &state, &born, &status);
  atomic_store(&t->born, born);
  if (!atomic_compare_exchange_strong(&t->pid, &pid, (int)getpid()))
    return fli_fail(FL_ECOMM,
                    "rank %d is taken already, by process %d: two processes "
                    "have the same number, or an earlier job the same name",
                    b->o.rank, pid);
  if (atomic_fetch_add(&b->s->joined, 1) + 1 == b->o.size)
    fl_segment_forget(b->key, "board");
  return FL_OK;
}

fl_status fl_board_open(const fl_comm_options *o, fl_board **out) {
  board *b = calloc(1, sizeof *b);
  if (!b || !(b->key = strdup(o->key ? o->key : ""))) {
    free(b);
    return fli_fail(FL_ENOMEM, "out of memory: a job");
  }
  b->base = (fl_board){board_begin,  board_end,   board_look,  look_unless,
                       board_fail,   board_table, board_turns, board_verdict,
                       board_exited, board_reset, board_close};
  b->o = *o;
  b->owner = pthread_self();
  b->bytes = sizeof(shared) + (size_t)o->size * sizeof(seat);
  pthread_mutex_init(&b->lock, NULL);
  fl_status s = fl_segment_open(b->key, "board", b->bytes, (void **)&b->s);
  int none = 0;
  if (s == FL_OK &&
      !atomic_compare_exchange_strong(&b->s->size, &none, o->size) &&
      none != o->size)
    s = fli_fail(FL_ECOMM,
                 "this rank thinks that the job has %d ranks, another that it "
                 "has %d",
                 o->size, none);
  if (s == FL_OK && o->rank >= 0)
    s = take_seat(b);
  if (s) {
    b->o.rank = 0;
    if (b->s)
      fl_segment_close(b->s, b->bytes);
    b->s = NULL;
    board_close(&b->base);
    return s;
  }
  *out = &b->base;
  return FL_OK;
}
