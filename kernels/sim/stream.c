/* What happens in order on a sim device: a stream is a queue of tasks and a
 * thread that runs them. Launches are copied whole, so the caller's views and
 * attributes may be gone when they run; failures are kept until they are asked
 * for. As on a GPU, a failed kernel does not stop the ones behind it, but those
 * that change state for good (optimizer steps, running statistics) do nothing.
 */
#include "sim.h"

#include "../../runtime/comm.h"
#include "../../runtime/tile.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Tasks; then launching waits. Fewer than the launches a runtime remembers, so
 * that a late failure still finds its line. */
#define QUEUE_MOST 100
#define STAGED     ((size_t)1 << 20) /* larger copies in are waited for */

typedef enum task_kind { LAUNCH, COPY, RECORD, AWAIT, FOLLOW, GRAPH } task_kind;

struct fl_event {
  int device;
  int holders; /* its creator and tasks */
  uint64_t recorded, done;
  double us; /* when it last passed */
};

struct fl_sim_task {
  fl_sim_task *next;
  task_kind kind;
  bool faulty; /* this launch ends the device */
  int64_t delay_us;
  fl_kernel kernel;
  fl_launch launch;
  void *to;
  const void *from;
  size_t bytes;
  fl_event *event;
  fl_stream *leader; /* FOLLOW: until it has done `ticket` tasks */
  uint64_t ticket;
  fl_graph_exec *exec;
  int64_t fault; /* GRAPH: its launch that ends the device, negative: none */
  /* views, attributes and note of a launch, or staged bytes */
  _Alignas(FL_ALIGN) unsigned char payload[];
};

struct fl_graph_exec {
  fl_stream *stream;
  fl_sim_task *first, *last; /* launches */
  int64_t n;
  fl_status failed; /* what a graph cannot have was asked of the stream */
};

/* --- running (on the stream's thread, without the lock) --- */

typedef struct chunk {
  struct chunk *next;
  _Alignas(FL_ALIGN) unsigned char bytes[];
} chunk;

typedef struct scratch {
  fl_scratch base;
  chunk *chunks;
} scratch;

static void *scratch_get(fl_scratch *base, size_t bytes) {
  scratch *s = (scratch *)base;
  void *p = NULL;
  if (bytes > SIZE_MAX / 2 ||
      posix_memalign(&p, FL_ALIGN, sizeof(chunk) + bytes)) {
    fli_fail(FL_ENOMEM, "out of memory: %zu bytes for a kernel", bytes);
    return NULL;
  }
  chunk *c = p;
  c->next = s->chunks;
  s->chunks = c;
  return c->bytes;
}

static void sleep_us(int64_t us) {
  struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  while (us > 0 && nanosleep(&t, &t) != 0) {
  }
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void keep_failure(fl_stream *s, fl_status status, uint64_t seq,
                         const char *message) {
  pthread_mutex_lock(&s->sim->lock);
  if (!s->status) {
    s->status = status;
    s->seq = seq;
    snprintf(s->message, sizeof s->message, "%s", message);
    atomic_store(&s->failed, true);
  }
  pthread_mutex_unlock(&s->sim->lock);
}

static fl_status failure_of(fl_stream *s) {
  pthread_mutex_lock(&s->sim->lock);
  fl_status status = s->status;
  pthread_mutex_unlock(&s->sim->lock);
  return status;
}

static void run_launch(fl_stream *s, fl_sim_task *t) {
  fl_launch *l = &t->launch;
  fl_status failed = failure_of(s);
  if (failed == FL_EFAULT)
    return;
  if (failed && l->writes) /* what a failed launch has left must not spread */
    return;
  if (t->faulty) {
    char text[128];
    snprintf(text, sizeof text,
             "sim:%d: device fault in %s; the device cannot be used any more",
             s->device, l->op);
    keep_failure(s, FL_EFAULT, l->seq, text);
    return;
  }
  scratch mine = {.base = {scratch_get}};
  l->scratch = &mine.base;
  fl_status status = t->kernel(l);
  if (status)
    keep_failure(s, status, fli_failed_of(l->seq), fl_error());
  for (chunk *c = mine.chunks, *next; c; c = next) {
    next = c->next;
    free(c);
  }
}

static void run_graph(fl_stream *s, const fl_sim_task *t) {
  int64_t k = 0;
  for (fl_sim_task *l = t->exec->first; l; l = l->next) {
    l->faulty = k++ == t->fault;
    run_launch(s, l);
  }
}

static void drop_event(fl_event *e) { /* with the lock */
  if (e && --e->holders == 0)
    free(e);
}

static bool may_go_on(const fl_sim_task *t) { /* with the lock */
  return t->kind == AWAIT    ? t->event->done >= t->ticket
         : t->kind == FOLLOW ? t->leader->done >= t->ticket
                             : true;
}

static void *run_stream(void *stream) {
  fl_stream *s = stream;
  fl_sim *sim = s->sim;
  pthread_mutex_lock(&sim->lock);
  for (;;) {
    while (!s->head && !s->stop)
      pthread_cond_wait(&s->work, &sim->lock);
    fl_sim_task *t = s->head;
    if (!t)
      break;
    while (!may_go_on(t))
      pthread_cond_wait(&sim->progress, &sim->lock);
    pthread_mutex_unlock(&sim->lock);
    sleep_us(t->delay_us);
    if (t->kind == LAUNCH)
      run_launch(s, t);
    else if (t->kind == GRAPH)
      run_graph(s, t);
    else if (t->kind == COPY && failure_of(s) != FL_EFAULT)
      memmove(t->to, t->from, t->bytes);
    pthread_mutex_lock(&sim->lock);
    if (t->kind == RECORD && t->event->done < t->ticket) {
      t->event->done = t->ticket;
      t->event->us = now_us();
    }
    drop_event(t->event);
    s->head = t->next;
    if (!s->head)
      s->tail = NULL;
    free(t);
    s->done++;
    pthread_cond_broadcast(&sim->progress);
  }
  pthread_mutex_unlock(&sim->lock);
  return NULL;
}

/* --- queueing (with the lock) --- */

/* Signals stay with the host's threads. */
static fl_status stream_start(fl_stream *s) {
  sigset_t all, old;
  if (s->started)
    return FL_OK;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int e = pthread_create(&s->thread, NULL, run_stream, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (e)
    return fli_fail(FL_ENOMEM, "sim:%d: cannot start a thread: %s", s->device,
                    strerror(e));
  s->started = true;
  return FL_OK;
}

static fl_sim_task *task_new(task_kind kind, size_t payload) {
  void *p = NULL;
  if (posix_memalign(&p, FL_ALIGN, sizeof(fl_sim_task) + payload)) {
    fli_fail(FL_ENOMEM, "out of memory: a task for a sim device");
    return NULL;
  }
  fl_sim_task *t = p;
  memset(t, 0, sizeof *t);
  t->kind = kind;
  return t;
}

static fl_status stream_queue(fl_stream *s, fl_sim_task *t) {
  fl_status status = stream_start(s);
  if (status) {
    free(t);
    return status;
  }
  while (s->queued - s->done >= QUEUE_MOST)
    pthread_cond_wait(&s->sim->progress, &s->sim->lock);
  if (t->event)
    t->event->holders++;
  *(s->tail ? &s->tail->next : &s->head) = t;
  s->tail = t;
  s->queued++;
  pthread_cond_signal(&s->work);
  return FL_OK;
}

/* What a GPU refuses as well; the capture has failed. With the lock. */
static fl_status stream_waits(const fl_stream *s) {
  if (!s || !s->capture)
    return FL_OK;
  s->capture->failed = fli_fail(
      FL_EUNSUPPORTED, "sim:%d: its stream is captured: it takes only launches",
      s->device);
  return s->capture->failed;
}

static void wait_for(fl_stream *s, uint64_t ticket) {
  while (s->done < ticket)
    pthread_cond_wait(&s->sim->progress, &s->sim->lock);
}

void fl_sim_wait_all(fl_sim *sim) {
  for (fl_stream *s = sim->streams; s; s = s->next)
    wait_for(s, s->queued);
}

static fl_stream *stream_make(fl_sim *sim, int device) {
  fl_stream *s = calloc(1, sizeof *s);
  if (!s) {
    fli_fail(FL_ENOMEM, "out of memory: a stream");
    return NULL;
  }
  s->sim = sim;
  s->device = device;
  pthread_cond_init(&s->work, NULL);
  s->next = sim->streams;
  sim->streams = s;
  return s;
}

/* NULL stands for the device's first stream. */
static fl_stream *stream_of(fl_sim *sim, int device, fl_stream *s) {
  if (!s && !(s = sim->first[device]))
    s = sim->first[device] = stream_make(sim, device);
  return s;
}

/* --- launches and copies --- */

static fl_status move_view(fl_sim *sim, const fl_launch *l, fl_view *to,
                           const fl_view *from, const char *what, int k) {
  fl_view_copy(to, from);
  if (!from->data || to->data == to->imm)
    return FL_OK;
  to->data = fl_sim_real(sim, l->device, from->data);
  if (to->data)
    return FL_OK;
  return fli_fail(FL_EDEVICE, "%s: %s %d is not in the memory of sim:%d", l->op,
                  what, k + 1, l->device);
}

/* t takes the place of the launch of its number. */
static fl_status graph_change(fl_graph_exec *e, fl_sim_task *t) {
  fl_sim_task **at = &e->first;
  while (*at && (*at)->launch.seq != t->launch.seq)
    at = &(*at)->next;
  fl_sim_task *old = *at;
  if (!old || old->kernel != t->kernel) {
    fl_status s = fli_fail(FL_EUNSUPPORTED, "%s: the graph has no such launch",
                           t->launch.op);
    free(t);
    return s;
  }
  t->next = old->next;
  *at = t;
  if (e->last == old)
    e->last = t;
  free(old);
  return FL_OK;
}

fl_status fl_sim_launch(fl_backend *b, fl_kernel k, const fl_launch *l) {
  fl_sim *sim = b->state;
  size_t views = (size_t)(l->n_in + l->n_out);
  size_t attrs = l->attrs ? sizeof *l->attrs : 0;
  fl_sim_task *t = task_new(LAUNCH, views * sizeof(fl_view) + attrs +
                                        (l->comm ? sizeof *l->comm : 0));
  if (!t)
    return FL_ENOMEM;
  fl_view *v = (fl_view *)t->payload;
  t->kernel = k;
  t->launch = *l;
  t->launch.in = v;
  t->launch.out = v + l->n_in;
  t->launch.stream = NULL; /* the CPU's pool: serial here */
  if (l->attrs) {
    fl_attrs_copy((fl_attrs *)(v + views), l->attrs);
    t->launch.attrs = (fl_attrs *)(v + views);
  }
  if (l->comm) {
    fl_comm_note *note = (fl_comm_note *)((char *)(v + views) + attrs);
    *note = *l->comm;
    t->launch.comm = note;
  }
  fl_status status = FL_OK;
  for (int i = 0; i < l->n_in && !status; i++)
    status = move_view(sim, l, &v[i], &l->in[i], "input", i);
  for (int i = 0; i < l->n_out && !status; i++)
    status = move_view(sim, l, &v[l->n_in + i], &l->out[i], "result", i);
  if (status) {
    free(t);
    return status;
  }
  pthread_mutex_lock(&sim->lock);
  fl_stream *s = stream_of(sim, l->device, l->stream);
  if (s && s->update) {
    status = graph_change(s->update, t);
    pthread_mutex_unlock(&sim->lock);
    return status;
  }
  if (s && s->capture) {
    *(s->capture->last ? &s->capture->last->next : &s->capture->first) = t;
    s->capture->last = t;
    s->capture->n++;
    pthread_mutex_unlock(&sim->lock);
    return FL_OK;
  }
  t->delay_us = sim->delay_us;
  t->faulty = sim->fault == 0;
  if (sim->fault >= 0)
    sim->fault--;
  if (s)
    status = stream_queue(s, t);
  else
    free(t);
  pthread_mutex_unlock(&sim->lock);
  return s ? status : FL_ENOMEM;
}

static fl_status queue_follow(fl_stream *s, fl_stream *leader) {
  if (leader->done == leader->queued || leader == s)
    return FL_OK;
  fl_sim_task *t = task_new(FOLLOW, 0);
  if (!t)
    return FL_ENOMEM;
  t->leader = leader;
  t->ticket = leader->queued;
  return stream_queue(s, t);
}

/* The destination's stream waits for what the source's streams have to do, and
 * they wait for the copy: their memory may be used again afterwards. */
static fl_status queue_copy(fl_sim *sim, fl_stream *s, fl_sim_task *t,
                            int from_device) {
  fl_status status = FL_OK;
  bool peer = s->device != from_device;
  for (fl_stream *k = sim->streams; peer && k && !status; k = k->next)
    if (k->device == from_device)
      status = queue_follow(s, k);
  if (status) {
    free(t);
    return status;
  }
  status = stream_queue(s, t);
  for (fl_stream *k = sim->streams; peer && k && !status; k = k->next)
    if (k->device == from_device)
      status = queue_follow(k, s);
  return status;
}

fl_status fl_sim_copy(fl_backend *b, int device, fl_stream *s,
                      fl_copy_kind kind, void *to, int from_device,
                      const void *from, size_t bytes) {
  fl_sim *sim = b->state;
  bool staged = kind == FL_COPY_IN && bytes <= STAGED;
  if (kind != FL_COPY_PEER)
    from_device = device;
  bool out = kind == FL_COPY_OUT || kind == FL_COPY_OUT_PINNED;
  bool in = kind == FL_COPY_IN || kind == FL_COPY_IN_PINNED;
  if (!out && !(to = fl_sim_real(sim, device, to)))
    return fli_fail(FL_EDEVICE,
                    "copy: the destination is not in the memory of "
                    "sim:%d",
                    device);
  if (!in && !(from = fl_sim_real(sim, from_device, from)))
    return fli_fail(FL_EDEVICE,
                    "copy: the source is not in the memory of "
                    "sim:%d",
                    from_device);
  fl_sim_task *t = task_new(COPY, staged ? bytes : 0);
  if (!t)
    return FL_ENOMEM;
  t->to = to;
  t->from = staged ? memcpy(t->payload, from, bytes) : from;
  t->bytes = bytes;
  pthread_mutex_lock(&sim->lock);
  fl_status status = FL_ENOMEM;
  if ((s = stream_of(sim, device, s)) && (status = stream_waits(s)))
    free(t);
  else if (s) {
    t->delay_us = sim->delay_us;
    status = queue_copy(sim, s, t, from_device);
    if (!status && (kind == FL_COPY_OUT || (kind == FL_COPY_IN && !staged)))
      wait_for(s, s->queued);
  } else
    free(t);
  pthread_mutex_unlock(&sim->lock);
  return status;
}

/* --- streams --- */

fl_status fl_sim_stream_new(fl_backend *b, int device, fl_stream **s) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  *s = stream_make(sim, device);
  pthread_mutex_unlock(&sim->lock);
  return *s ? FL_OK : FL_ENOMEM;
}

/* Nothing is under way any more. */
static void stream_end(fl_stream *s) {
  fl_sim *sim = s->sim;
  pthread_mutex_lock(&sim->lock);
  s->stop = true;
  pthread_cond_signal(&s->work);
  fl_stream **at = &sim->streams;
  while (*at != s)
    at = &(*at)->next;
  *at = s->next;
  if (sim->first[s->device] == s)
    sim->first[s->device] = NULL;
  pthread_mutex_unlock(&sim->lock);
  if (s->started)
    pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->work);
  free(s);
}

/* No other library knows them: it says which is which, for tests. */
fl_status fl_sim_stream_handle(fl_backend *b, int device, fl_stream *s,
                               intptr_t *handle) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  s = stream_of(sim, device, s);
  pthread_mutex_unlock(&sim->lock);
  *handle = (intptr_t)s;
  return s ? FL_OK : FL_ENOMEM;
}

void fl_sim_stream_free(fl_backend *b, fl_stream *s) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  fl_sim_wait_all(sim); /* others may follow it */
  pthread_mutex_unlock(&sim->lock);
  stream_end(s);
}

void fl_sim_streams_close(fl_sim *sim) {
  pthread_mutex_lock(&sim->lock);
  fl_sim_wait_all(sim);
  pthread_mutex_unlock(&sim->lock);
  while (sim->streams)
    stream_end(sim->streams);
}

/* Returns the stream's failure, if it has one. The caller holds the lock. */
static fl_status stream_tell(fl_stream *s, uint64_t *failed) {
  if (!s->status)
    return FL_OK;
  if (failed)
    *failed = s->seq;
  return fli_fail(s->status, "%s", s->message);
}

fl_status fl_sim_stream_sync(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  s = s ? s : sim->first[device];
  fl_status status = stream_waits(s);
  if (s && !status) {
    wait_for(s, s->queued);
    status = stream_tell(s, failed);
    if (status && status != FL_EFAULT) {
      s->status = FL_OK;
      atomic_store(&s->failed, false);
    }
  }
  pthread_mutex_unlock(&sim->lock);
  return status;
}

fl_status fl_sim_stream_peek(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed) {
  fl_sim *sim = b->state;
  if (s && !atomic_load_explicit(&s->failed, memory_order_relaxed))
    return FL_OK;
  pthread_mutex_lock(&sim->lock);
  s = s ? s : sim->first[device];
  fl_status status = s ? stream_tell(s, failed) : FL_OK;
  pthread_mutex_unlock(&sim->lock);
  return status;
}

/* --- events --- */

fl_status fl_sim_event_new(fl_backend *b, int device, fl_event **e) {
  (void)b;
  *e = calloc(1, sizeof **e);
  if (!*e)
    return fli_fail(FL_ENOMEM, "out of memory: an event");
  (*e)->device = device;
  (*e)->holders = 1;
  return FL_OK;
}

void fl_sim_event_free(fl_backend *b, fl_event *e) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  drop_event(e);
  pthread_mutex_unlock(&sim->lock);
}

static fl_status queue_event(fl_sim *sim, task_kind kind, fl_event *e,
                             fl_stream *s) {
  fl_sim_task *t = task_new(kind, 0);
  if (!t)
    return FL_ENOMEM;
  pthread_mutex_lock(&sim->lock);
  fl_status status = FL_ENOMEM;
  if ((s = stream_of(sim, e->device, s)) && (status = stream_waits(s)))
    free(t);
  else if (s) {
    t->event = e;
    t->ticket = e->recorded + (kind == RECORD);
    status = stream_queue(s, t);
    if (!status && kind == RECORD)
      e->recorded++;
  } else
    free(t);
  pthread_mutex_unlock(&sim->lock);
  return status;
}

fl_status fl_sim_event_record(fl_backend *b, fl_event *e, fl_stream *s) {
  return queue_event(b->state, RECORD, e, s);
}

/* Waiting for an event that is not recorded returns at once. */
fl_status fl_sim_event_wait(fl_backend *b, fl_event *e, fl_stream *s) {
  return queue_event(b->state, AWAIT, e, s);
}

bool fl_sim_event_done(fl_backend *b, fl_event *e) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  bool done = e->done >= e->recorded;
  pthread_mutex_unlock(&sim->lock);
  return done;
}

double fl_sim_event_elapsed(fl_backend *b, fl_event *from, fl_event *to) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  double us = to->us - from->us;
  pthread_mutex_unlock(&sim->lock);
  return us;
}

/* --- graphs --- */

fl_status fl_sim_capture_begin(fl_backend *b, int device, fl_stream *s) {
  fl_sim *sim = b->state;
  fl_graph_exec *e = calloc(1, sizeof *e);
  if (!e)
    return fli_fail(FL_ENOMEM, "out of memory: a graph");
  pthread_mutex_lock(&sim->lock);
  s = stream_of(sim, device, s);
  fl_status status = s ? stream_waits(s) : FL_ENOMEM;
  if (!status) {
    e->stream = s;
    s->capture = e;
  }
  pthread_mutex_unlock(&sim->lock);
  if (status)
    free(e);
  return status;
}

static void exec_drop(fl_graph_exec *e) {
  for (fl_sim_task *t = e->first, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  free(e);
}

fl_status fl_sim_capture_end(fl_backend *b, int device, fl_stream *s,
                             fl_graph_exec **exec) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  s = stream_of(sim, device, s);
  fl_graph_exec *e = s ? s->capture : NULL;
  if (e)
    s->capture = NULL;
  pthread_mutex_unlock(&sim->lock);
  if (!e)
    return fli_fail(FL_EARG, "sim:%d: its stream is not captured", device);
  fl_status status = e->failed;
  if (exec && !status)
    *exec = e;
  else
    exec_drop(e);
  return status ? fli_fail(status,
                           "sim:%d: the capture has failed: something waited "
                           "for the device or used an event",
                           device)
                : FL_OK;
}

fl_status fl_sim_exec_launch(fl_backend *b, fl_graph_exec *e, uint64_t seq) {
  fl_sim *sim = b->state;
  (void)seq; /* failures have the numbers of the launches inside */
  fl_sim_task *t = task_new(GRAPH, 0);
  if (!t)
    return FL_ENOMEM;
  t->exec = e;
  pthread_mutex_lock(&sim->lock);
  t->delay_us = sim->delay_us;
  t->fault = sim->fault >= 0 && sim->fault < e->n ? sim->fault : -1;
  if (sim->fault >= 0)
    sim->fault = sim->fault >= e->n ? sim->fault - e->n : -1;
  fl_status status = stream_waits(e->stream);
  if (status)
    free(t);
  else
    status = stream_queue(e->stream, t);
  pthread_mutex_unlock(&sim->lock);
  return status;
}

/* Runs that are queued use the launches as they are. */
fl_status fl_sim_exec_update(fl_backend *b, fl_graph_exec *e, bool on) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  if (on)
    wait_for(e->stream, e->stream->queued);
  e->stream->update = on ? e : NULL;
  pthread_mutex_unlock(&sim->lock);
  return FL_OK;
}

bool fl_sim_exec_fixed(fl_backend *b, const fl_graph_exec *e, uint64_t seq) {
  (void)b, (void)e, (void)seq;
  return false;
}

void fl_sim_exec_free(fl_backend *b, fl_graph_exec *e) {
  fl_sim *sim = b->state;
  pthread_mutex_lock(&sim->lock);
  wait_for(e->stream, e->stream->queued);
  pthread_mutex_unlock(&sim->lock);
  exec_drop(e);
}
