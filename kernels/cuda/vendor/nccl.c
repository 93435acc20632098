/* The engine for GPUs, on one host or several: NCCL, and for small operands
 * flare's own kernels over peer memory (peer.c), or those for all calls. Calls
 * are queued on the launch's stream; no thread waits for the device. A watcher
 * thread follows the queued calls by two events each, updates the board, and
 * aborts the group when the board has a verdict. The group's streams then end
 * with that error.
 *
 * Communicators are blocking, because NCCL makes a thread for every call of a
 * non-blocking one, which costs more than the call. But with blocking ones,
 * joining and the first use of a connection may block for ever. So NCCL's calls
 * are made by a worker thread of each group, and the thread that waits for it
 * polls the board. When the job has failed, that thread aborts the
 * communicator, so that the worker's call returns, and continues without it.
 *
 * ncclCommAbort first marks the communicator, so that kernels and calls end,
 * and then frees it, which waits for the whole device, including calls of other
 * groups. So communicators are marked between ncclGroupStart and ncclGroupEnd,
 * and freed by ncclGroupEnd when the engine closes; never if a call has not
 * returned. */
#include "nccl.h"
#include "../driver/backend.h"
#include "blocking_worker.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUED  96   /* calls followed at a time */
#define SLICE   0.05 /* seconds between polls of the board */
#define SPIN    1e-3 /* seconds; queueing takes some us */
#define VERDICT 1024
#define LEAVING 5.0 /* seconds */
#define COMING  1.0 /* seconds that an aborted call has to return */
#define GRACE   2.0 /* seconds until the death of a rank is detected */

#define TRY(call)                                                              \
  do {                                                                         \
    fl_status s_ = (call);                                                     \
    if (s_)                                                                    \
      return s_;                                                               \
  } while (0)

/* of the open engine; NULL: flare's kernels do all calls */
static const flc_nccl_table *nccl;

/* --- groups --- */

typedef struct call_record { /* a call in flight */
  CUevent start, end;
  bool own; /* flare's own kernel, which sets `mark` when it starts */
  uint32_t mark;
  fl_comm_note note;
  fl_stream *stream;
  double since; /* when the device began it; 0: not yet */
} call_record;

typedef struct engine engine;

typedef struct link_nccl {
  fl_comm_link base;
  struct link_nccl *next;
  engine *engine;
  flc_device *device;
  flc_backend *backend; /* of the calls that it executes */
  ncclComm_t comm;      /* set while the worker joins; NULL without NCCL */
  flc_worker *carrier;
  fl_comm_call call; /* what the worker queues, and on which stream */
  CUstream at;
  ncclUniqueId id;
  flc_peers *peers;     /* NULL: memory cannot be shared */
  CUdeviceptr token;    /* operand of a barrier */
  CUstream ahead;       /* stream of high priority, or NULL */
  pthread_mutex_t lock; /* of everything below, and of calls of `comm` */
  call_record queue[QUEUED];
  uint64_t first, last; /* calls first..last - 1 are in flight */
  bool dead, marked;
  char why[VERDICT];
} link_nccl;

struct engine {
  fl_comm table;
  fl_comm_options o;
  pthread_mutex_t lock; /* of the list of links */
  pthread_cond_t stop;
  link_nccl *links;
  pthread_t thread;
  bool started, quit;
  bool left;          /* a call has not returned */
  flc_device *device; /* of the last group */
};

static double nccl_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Thread_local bool marking; /* this thread has marked communicators */

static void mark(link_nccl *l) {
  ncclComm_t comm = __atomic_load_n(&l->comm, __ATOMIC_ACQUIRE);
  if (!comm || l->marked)
    return;
  l->marked = true;
  if (!marking)
    nccl->ncclGroupStart();
  marking = true;
  nccl->ncclCommAbort(comm);
}

static void free_marked(const engine *m) {
  flc_context before;
  if (marking && !m->left && flc_enter(m->device, &before) == FL_OK) {
    nccl->ncclGroupEnd();
    flc_leave(m->device, before);
  }
  marking = false;
}

/* Ends a group with the message of this thread's last failure. Results of its
 * pending calls are undefined, and waits for their streams return the message.
 */
static void die(link_nccl *l) {
  if (l->dead)
    return;
  l->dead = true;
  snprintf(l->why, sizeof l->why, "%s", fl_error());
  bool whole =
      flc_peers_late(l->peers) < 0; /* else kernels have stopped waiting */
  for (uint64_t k = l->first; k < l->last && whole; k++)
    whole = flc_cu->EventQuery(l->queue[k % QUEUED].end) == CUDA_SUCCESS;
  if (!whole)
    flc_break(l->backend, l->why);
  flc_peers_stop(l->peers);
  mark(l);
  fli_fail(FL_ECOMM, "%s", l->why);
}

/* NCCL may report closed connections before the board detects that the other
 * rank has died, so the verdict is delayed by GRACE. */
static fl_status nccl_failed(link_nccl *l, ncclResult_t e,
                             const fl_comm_note *n, const char *tried) {
  fl_board *b = l->engine->o.board;
  const struct timespec nap = {.tv_nsec = 20000000};
  char what[VERDICT];
  const char *more = l->comm ? nccl->ncclGetLastError(l->comm) : "";
  snprintf(what, sizeof what, "%s: NCCL: %s%s%.400s", tried,
           nccl->ncclGetErrorString(e), more && *more ? ": " : "",
           more ? more : "");
  fl_status s = FL_OK;
  for (double start = nccl_now(); !s && nccl_now() - start < GRACE;) {
    s = b->look(b, n, 0);
    if (!s)
      nanosleep(&nap, NULL);
  }
  if (!s)
    s = b->fail(b, -1, what);
  die(l);
  return s;
}

/* Runs f(l) on the group's worker; returns when it has, or when the job fails.
 */
static fl_status carried(link_nccl *l, int (*f)(void *), const fl_comm_note *n,
                         const char *tried) {
  fl_board *b = l->engine->o.board;
  const struct timespec nap = {.tv_nsec = 20000};
  double start = nccl_now(), next = start + SLICE;
  int e;
  flc_worker_ask(l->carrier, f, l);
  while (!flc_worker_done(l->carrier, &e)) {
    double t = nccl_now();
    if (t - start > SPIN)
      nanosleep(&nap, NULL);
    else
      sched_yield();
    if (t < next)
      continue;
    next += SLICE;
    fl_status s = b->look(b, n, t - start);
    if (s) {
      die(l);
      return s;
    }
  }
  return e == ncclSuccess ? FL_OK : nccl_failed(l, e, n, tried);
}

/* --- following calls --- */

static void follow(link_nccl *l) {
  fl_board *b = l->engine->o.board;
  while (!l->dead && l->first < l->last) {
    call_record *d = &l->queue[l->first % QUEUED];
    if (!d->since && (d->own ? flc_peers_begun(l->peers, d->mark)
                             : flc_cu->EventQuery(d->start) == CUDA_SUCCESS)) {
      d->since = nccl_now();
      b->begin(b, &d->note);
    }
    bool late = flc_peers_late(l->peers) >= 0;
    CUresult e =
        d->since && !late ? flc_cu->EventQuery(d->end) : CUDA_ERROR_NOT_READY;
    if (e == CUDA_ERROR_NOT_READY) {
      double waited = late ? HUGE_VAL : nccl_now() - d->since;
      if (d->since && b->look(b, &d->note, waited))
        die(l);
      ncclResult_t state = ncclSuccess;
      if (!l->dead && l->comm &&
          nccl->ncclCommGetAsyncError(l->comm, &state) == 0 &&
          state != ncclSuccess && state != ncclInProgress)
        nccl_failed(l, state, &d->note, "a collective");
      return;
    }
    b->end(b, &d->note);
    l->first++;
  }
}

static void *nccl_watch(void *context) {
  engine *m = context;
  pthread_mutex_lock(&m->lock);
  while (!m->quit) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(SLICE * 1e9);
    if (t.tv_nsec >= 1000000000) {
      t.tv_nsec -= 1000000000;
      t.tv_sec++;
    }
    pthread_cond_timedwait(&m->stop, &m->lock, &t);
    for (link_nccl *l = m->links; l && !m->quit; l = l->next) {
      flc_context before;
      /* the thread that is queueing a call checks it itself */
      if (pthread_mutex_trylock(&l->lock))
        continue;
      if (flc_enter(l->device, &before) == FL_OK) {
        follow(l);
        flc_leave(l->device, before);
      }
      pthread_mutex_unlock(&l->lock);
    }
  }
  pthread_mutex_unlock(&m->lock);
  free_marked(m);
  return NULL;
}

static fl_status start_watching(engine *m) {
  if (m->started)
    return FL_OK;
  int e = flc_thread(&m->thread, nccl_watch, m);
  if (e)
    return fli_fail(FL_ENOMEM, "cannot start a thread: %s", strerror(e));
  m->started = true;
  return FL_OK;
}

/* Waits until there is room for one more call in flight. */
static fl_status make_room(link_nccl *l) {
  while (!l->dead && l->last - l->first == QUEUED) {
    const struct timespec nap = {.tv_nsec = 50000};
    follow(l);
    if (l->last - l->first == QUEUED)
      nanosleep(&nap, NULL);
  }
  return l->dead ? fli_fail(FL_ECOMM, "%s", l->why) : FL_OK;
}

/* --- calls of NCCL --- */

static ncclDataType_t type_of(fl_dtype d) { /* -1: NCCL does not reduce these */
  switch (d) {
  case FL_F64:
    return ncclFloat64;
  case FL_F32:
    return ncclFloat32;
  case FL_F16:
    return ncclFloat16;
  case FL_BF16:
    return ncclBfloat16;
  case FL_I64:
    return ncclInt64;
  case FL_I32:
    return ncclInt32;
  case FL_I8:
    return ncclInt8;
  case FL_U8:
  case FL_BOOL:
    return ncclUint8;
  default:
    return -1;
  }
}

/* Block k of a buffer. */
static char *block(const void *p, size_t bytes, int k) {
  return (char *)(uintptr_t)p + bytes * (size_t)k;
}

static bool going(ncclResult_t e) {
  return e == ncclSuccess || e == ncclInProgress;
}

/* Sends and receives of one call go together, the own block included. */
static ncclResult_t nccl_exchange(const link_nccl *l, const fl_comm_call *c,
                                  size_t bytes, CUstream s) {
  const flc_nccl_table *t = nccl;
  int rank = l->base.rank, size = l->base.size;
  bool root = c->peer == rank;
  ncclResult_t e = t->ncclGroupStart(), end;
  for (int k = 0; k < size && going(e); k++) {
    bool to = c->kind == FL_COMM_ALL_TO_ALL ||
              (c->kind == FL_COMM_SCATTER && root) ||
              (c->kind == FL_COMM_GATHER && k == c->peer);
    bool from = c->kind == FL_COMM_ALL_TO_ALL ||
                (c->kind == FL_COMM_GATHER && root) ||
                (c->kind == FL_COMM_SCATTER && k == c->peer);
    if (to)
      e = t->ncclSend(c->kind == FL_COMM_GATHER ? c->in
                                                : block(c->in, bytes, k),
                      bytes, ncclInt8, k, l->comm, s);
    if (from && going(e))
      e = t->ncclRecv(c->kind == FL_COMM_SCATTER ? c->out
                                                 : block(c->out, bytes, k),
                      bytes, ncclInt8, k, l->comm, s);
  }
  end = t->ncclGroupEnd();
  return going(e) ? end : e;
}

static ncclResult_t queue(const link_nccl *l, const fl_comm_call *c,
                          CUstream s) {
  static const ncclRedOp_t reductions[] = {
      [FL_COMM_SUM] = ncclSum,
      [FL_COMM_MEAN] = ncclAvg,
      [FL_COMM_MIN] = ncclMin,
      [FL_COMM_MAX] = ncclMax,
  };
  const flc_nccl_table *t = nccl;
  size_t bytes = c->count * fl_dtype_size(c->dtype);
  ncclDataType_t type = type_of(c->dtype);
  ncclRedOp_t op = reductions[c->reduce];
  void *token = (void *)(uintptr_t)l->token;
  switch (c->kind) {
  case FL_COMM_ALL_REDUCE:
    return t->ncclAllReduce(c->in, c->out, c->count, type, op, l->comm, s);
  case FL_COMM_REDUCE_SCATTER:
    return t->ncclReduceScatter(c->in, c->out, c->count, type, op, l->comm, s);
  case FL_COMM_REDUCE:
    if (c->peer != l->base.rank && c->in != c->out)
      flc_cu->MemcpyDtoDAsync((uintptr_t)c->out, (uintptr_t)c->in, bytes, s);
    return t->ncclReduce(c->in, c->out, c->count, type, op, c->peer, l->comm,
                         s);
  case FL_COMM_BROADCAST:
    return t->ncclBroadcast(c->in, c->out, bytes, ncclInt8, c->peer, l->comm,
                            s);
  case FL_COMM_ALL_GATHER:
    return t->ncclAllGather(c->in, c->out, bytes, ncclInt8, l->comm, s);
  case FL_COMM_SEND:
    return t->ncclSend(c->in, bytes, ncclInt8, c->peer, l->comm, s);
  case FL_COMM_RECV:
    return t->ncclRecv(c->out, bytes, ncclInt8, c->peer, l->comm, s);
  case FL_COMM_BARRIER:
    return t->ncclAllReduce(token, token, 1, ncclInt32, ncclMax, l->comm, s);
  default:
    return nccl_exchange(l, c, bytes, s);
  }
}

/* NCCL_COMM_BLOCKING=0 makes communicators of the other kind. */
static int nccl_ended(link_nccl *l, ncclResult_t e) {
  const struct timespec nap = {.tv_nsec = 20000};
  while (e == ncclInProgress) {
    nanosleep(&nap, NULL);
    ncclResult_t asked = nccl->ncclCommGetAsyncError(l->comm, &e);
    if (asked != ncclSuccess)
      return asked;
  }
  return e;
}

static int queue_carried(void *context) {
  link_nccl *l = context;
  return nccl_ended(l, queue(l, &l->call, l->at));
}

static fl_status queue_nccl(link_nccl *l, const fl_comm_call *c, CUstream s,
                            const fl_comm_note *n, const char *tried) {
  l->call = *c;
  l->at = s;
  return carried(l, queue_carried, n, tried);
}

/* --- calls --- */

static fl_status nccl_refuse(const link_nccl *l, const fl_comm_call *c,
                             fl_comm_way way) {
  bool adds = c->kind == FL_COMM_ALL_REDUCE || c->kind == FL_COMM_REDUCE ||
              c->kind == FL_COMM_REDUCE_SCATTER;
  if (way == FL_COMM_NCCL && !l->comm)
    return fli_fail(
        FL_EUNSUPPORTED, "%s: %s needs NCCL, which FLARE_PEERS=only excludes",
        fl_comm_kind_name(c->kind),
        c->kind == FL_COMM_ALL_REDUCE ? "the algorithm \"nccl\"" : "the call");
  if (way == FL_COMM_NCCL && adds && type_of(c->dtype) < 0)
    return fli_fail(FL_EDTYPE, "NCCL does not reduce %s: convert to i32 first",
                    fl_dtype_name(c->dtype));
  if (way != FL_COMM_NCCL && !l->peers)
    return fli_fail(FL_EUNSUPPORTED,
                    "%s: this group has only the algorithm \"nccl\": its "
                    "GPUs cannot access each other's memory",
                    fl_comm_kind_name(c->kind));
  return FL_OK;
}

/* NCCL's calls and those of flare's kernels run in one order on all streams. */
static fl_status follow_last(const link_nccl *l, fl_stream *s) {
  const call_record *d = &l->queue[(l->last + QUEUED - 1) % QUEUED];
  if (l->last == 0 || d->stream == s)
    return FL_OK;
  FLC_TRY(l->device, flc_cu->StreamWaitEvent(s->handle, d->end, 0),
          "before a collective");
  return FL_OK;
}

static fl_status queue_call(link_nccl *l, const fl_comm_call *c) {
  fl_comm_way way = flc_peers_way(l->peers, c);
  TRY(nccl_refuse(l, c, way));
  TRY(make_room(l));
  TRY(follow_last(l, c->stream));
  call_record *d = &l->queue[l->last % QUEUED];
  flc_device *v = l->device;
  CUstream s = c->stream->handle, at = s;
  l->backend = c->stream->backend;
  d->note = *c->note;
  d->stream = c->stream;
  d->since = 0;
  d->own = way != FL_COMM_NCCL;
  if (way == FL_COMM_NCCL) {
    FLC_TRY(v, flc_cu->EventRecord(d->start, s), "before a collective");
    if (c->beside) { /* some blocks alone would wait for the others, and keep
                        multiprocessors from what they are beside */
      at = l->ahead;
      FLC_TRY(v, flc_cu->StreamWaitEvent(at, d->start, 0),
              "before a collective");
    }
    TRY(queue_nccl(l, c, at, c->note, "a collective"));
  } else {
    d->mark = flc_peers_next(l->peers);
    TRY(flc_peers_run(l->peers, c, way));
  }
  FLC_TRY(v, flc_cu->EventRecord(d->end, at), "after a collective");
  if (at != s)
    FLC_TRY(v, flc_cu->StreamWaitEvent(s, d->end, 0), "after a collective");
  l->last++;
  return FL_OK;
}

static fl_status nccl_run(const fl_comm_call *c) {
  link_nccl *l = (link_nccl *)c->note->link;
  flc_context before;
  if (c->count == 0 && c->kind != FL_COMM_BARRIER)
    return FL_OK;
  if (c->device != l->device->index)
    return fli_fail(FL_EDEVICE,
                    "this rank's part of the group is on cuda:%d, not cuda:%d",
                    l->device->index, c->device);
  TRY(flc_enter(l->device, &before));
  pthread_mutex_lock(&l->lock);
  fl_status s = queue_call(l, c);
  if (s == FL_OK && c->kind == FL_COMM_BARRIER) {
    /* the host waits as well; without the lock, so that it is watched */
    pthread_mutex_unlock(&l->lock);
    s = flc_wait(c->stream);
    pthread_mutex_lock(&l->lock);
    if (s == FL_OK && l->dead)
      s = fli_fail(FL_ECOMM, "%s", l->why);
  }
  pthread_mutex_unlock(&l->lock);
  flc_leave(l->device, before);
  return s;
}

/* --- making and ending groups --- */

static fl_status ticket(fl_comm *c, unsigned char *out) {
  ncclUniqueId id;
  (void)c;
  if (!nccl)
    return FL_OK;
  ncclResult_t e = nccl->ncclGetUniqueId(&id);
  if (e)
    return fli_fail(FL_ECOMM, "NCCL: %s", nccl->ncclGetErrorString(e));
  memcpy(out, id.internal, sizeof id.internal);
  return FL_OK;
}

/* Maps the memory of the others, if all ranks can. */
static fl_status join_peers(link_nccl *l) {
  const fl_comm_options *o = &l->engine->o;
  int size = l->base.size, group = l->base.group;
  double most = o->timeout > o->first ? o->timeout : o->first;
  unsigned char card[FLC_CARD], yes, all[FL_COMM_RANKS];
  unsigned char *cards = malloc(FLC_CARD * (size_t)size);
  if (!cards)
    return fli_fail(FL_ENOMEM, "out of memory: a group of ranks");
  l->peers = flc_peers_new(l->device, l->base.rank, size,
                           most > 0 ? 2 * most : 1e9, card);
  fl_status s = o->swap(o->swapper, group, card, cards, FLC_CARD);
  yes = s == FL_OK && l->peers && flc_peers_join(l->peers, cards);
  free(cards);
  if (s == FL_OK)
    s = o->swap(o->swapper, group, &yes, all, 1);
  if (s == FL_OK && !memchr(all, 0, (size_t)size))
    return FL_OK;
  flc_peers_free(l->peers);
  l->peers = NULL;
  if (s != FL_OK && s != FL_EUNSUPPORTED)
    return s;
  if (nccl)
    return FL_OK;
  return fli_fail(FL_EUNSUPPORTED,
                  "FLARE_PEERS=only: group %d has more than 8 ranks, or GPUs "
                  "with no memory in common",
                  group);
}

/* The context stays current for the calls that follow. */
static int join_carried(void *context) {
  const int any = INT_MIN;
  link_nccl *l = context;
  ncclConfig_t config = {
      sizeof config, 0xcafebeef, FLC_NCCL_OLDEST, 1, any, any, any, NULL, any};
  flc_context before;
  if (flc_enter(l->device, &before))
    return ncclUnhandledCudaError;
  return nccl_ended(l,
                    nccl->ncclCommInitRankConfig(&l->comm, l->base.size, l->id,
                                                 l->base.rank, &config));
}

static fl_status nccl_join(link_nccl *l, const unsigned char *ticket) {
  int first = 0;
  flc_device *v = l->device;
  fl_board *b = l->engine->o.board;
  fl_comm_note n = {.link = &l->base,
                    .group = l->base.group,
                    .kind = FL_COMM_BARRIER,
                    .peer = -1,
                    .seq = 1,
                    .rank = l->base.rank,
                    .size = l->base.size,
                    .site = "the start of the group"};
  memcpy(l->id.internal, ticket, sizeof l->id.internal);
  if (!(l->carrier = flc_worker_start()))
    return FL_ENOMEM;
  for (int k = 0; k < QUEUED; k++) {
    FLC_TRY(v, flc_cu->EventCreate(&l->queue[k].start, CU_EVENT_DISABLE_TIMING),
            "events of a group");
    FLC_TRY(v, flc_cu->EventCreate(&l->queue[k].end, CU_EVENT_DISABLE_TIMING),
            "events of a group");
  }
  FLC_TRY(v, flc_cu->MemAlloc(&l->token, sizeof(int)), "memory of a group");
  FLC_TRY(v, flc_cu->CtxGetStreamPriorityRange(NULL, &first),
          "a stream of a group");
  FLC_TRY(v,
          flc_cu->StreamCreateWithPriority(&l->ahead, CU_STREAM_NON_BLOCKING,
                                           first),
          "a stream of a group");
  if (nccl) {
    b->begin(b, &n);
    fl_status s = carried(l, join_carried, &n, "joining a group");
    b->end(b, &n);
    TRY(s);
  }
  return join_peers(l);
}

/* Whether all ranks have come to the end: what one has sent may still be on its
 * way, and its memory in use. Waits for some seconds at most, and not at all if
 * the job is over. */
static bool met(link_nccl *l) {
  fl_board *b = l->engine->o.board;
  const struct timespec nap = {.tv_nsec = 1000000};
  fl_comm_note n = {.link = &l->base, .kind = FL_COMM_BARRIER, .peer = -1};
  fl_stream on = {.device = l->device};
  const fl_comm_call barrier = {.kind = FL_COMM_BARRIER, .stream = &on};
  const call_record *d = &l->queue[(l->last + QUEUED - 1) % QUEUED];
  double start = nccl_now();
  CUstream s;
  if (b->look(b, &n, 0) || flc_cu->StreamCreate(&s, CU_STREAM_NON_BLOCKING))
    return false;
  CUresult e = l->last ? flc_cu->StreamWaitEvent(s, d->end, 0) : CUDA_SUCCESS;
  on.handle = s;
  if (e == CUDA_SUCCESS &&
      (l->comm ? queue_nccl(l, &barrier, s, &n, "leaving a group")
               : flc_peers_run(l->peers, &barrier, FL_COMM_ONE_SHOT)) == FL_OK)
    do
      nanosleep(&nap, NULL);
    while ((e = flc_cu->StreamQuery(s)) == CUDA_ERROR_NOT_READY &&
           nccl_now() - start < LEAVING && b->look(b, &n, 0) == FL_OK);
  else
    e = CUDA_ERROR_NOT_READY;
  flc_cu->StreamDestroy(s);
  return e == CUDA_SUCCESS;
}

/* Without the others. */
static void nccl_part(link_nccl *l) {
  const struct timespec nap = {.tv_nsec = 100000};
  double start = nccl_now();
  int e;
  mark(l);
  while (!flc_worker_done(l->carrier, &e) && nccl_now() - start < COMING) {
    nanosleep(&nap, NULL);
    mark(l); /* one that joins may have got it just now */
  }
}

static void unlink_group(fl_comm *c, fl_comm_link *link) {
  link_nccl *l = (link_nccl *)link;
  engine *m = c->state;
  flc_context before;
  pthread_mutex_lock(&m->lock);
  for (link_nccl **at = &m->links; *at; at = &(*at)->next)
    if (*at == l) {
      *at = l->next;
      break;
    }
  pthread_mutex_unlock(&m->lock);
  if (flc_enter(l->device, &before) == FL_OK) {
    if (l->dead || !(l->comm || l->peers) || !met(l))
      nccl_part(l);
    else if (l->comm)
      nccl->ncclCommDestroy(l->comm);
    flc_peers_stop(l->peers);
    if (!flc_worker_end(l->carrier)) {
      m->left = true;
      flc_leave(l->device, before);
      return; /* what it is in may still use all this */
    }
    flc_peers_free(l->peers);
    for (int k = 0; k < QUEUED; k++) {
      if (l->queue[k].start)
        flc_cu->EventDestroy(l->queue[k].start);
      if (l->queue[k].end)
        flc_cu->EventDestroy(l->queue[k].end);
    }
    if (l->ahead)
      flc_cu->StreamDestroy(l->ahead);
    if (l->token)
      flc_cu->MemFree(l->token);
    flc_leave(l->device, before);
  }
  pthread_mutex_destroy(&l->lock);
  free(l);
}

static fl_status link_group(fl_comm *c, const fl_comm_link *g, int device,
                            const unsigned char *ticket, fl_comm_link **out) {
  engine *m = c->state;
  flc_context before;
  flc_device *d = flc_device_open(device);
  if (!d)
    return FL_EDEVICE;
  TRY(start_watching(m));
  link_nccl *l = calloc(1, sizeof *l);
  if (!l)
    return fli_fail(FL_ENOMEM, "out of memory: a group of ranks");
  l->base = *g;
  l->base.engine = c;
  l->engine = m;
  l->device = m->device = d;
  pthread_mutex_init(&l->lock, NULL);
  fl_status s = flc_enter(d, &before);
  if (s == FL_OK) {
    s = nccl_join(l, ticket);
    flc_leave(d, before);
  }
  if (s) {
    unlink_group(c, &l->base);
    return s;
  }
  pthread_mutex_lock(&m->lock);
  l->next = m->links;
  m->links = l;
  pthread_mutex_unlock(&m->lock);
  *out = &l->base;
  return FL_OK;
}

/* --- the engine --- */

static void close_engine(fl_comm *c) {
  engine *m = c->state;
  pthread_mutex_lock(&m->lock);
  m->quit = true;
  pthread_cond_signal(&m->stop);
  pthread_mutex_unlock(&m->lock);
  if (m->started)
    pthread_join(m->thread, NULL);
  free_marked(m);
  pthread_cond_destroy(&m->stop);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

fl_status fl_nccl_open(const fl_comm_options *o, fl_comm **c);

fl_status fl_nccl_open(const fl_comm_options *o, fl_comm **c) {
  if (flc_devices() < 0 || (!flc_peers_only() && !(nccl = flc_nccl_get())))
    return FL_EDEVICE;
  engine *m = calloc(1, sizeof *m);
  if (!m)
    return fli_fail(FL_ENOMEM, "out of memory: the engine of NCCL");
  m->o = *o;
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->stop, NULL);
  m->table = (fl_comm){.struct_size = sizeof(fl_comm),
                       .name = "nccl",
                       .backends = "cuda",
                       .state = m,
                       .ticket = ticket,
                       .link = link_group,
                       .unlink = unlink_group,
                       .run = nccl_run,
                       .close = close_engine};
  *c = &m->table;
  return FL_OK;
}
