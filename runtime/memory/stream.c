/* Streams of a device and events in them: the current stream, waits between
 * streams, failures that are reported late. Pinned memory is in pin.c, race
 * detection in race.c. A device that only uses its first stream has no lanes.
 */
#include "stream.h"
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct lane {
  fl_stream *stream; /* NULL: the backend's first, or there are none */
  bool adopted;      /* made by another library */
  int holders;
  int id; /* of its clock */
  fli_clock clock;
  uint32_t n_notes;
  fli_launch_note ring[FLI_RING]; /* its own last launches */
} lane;

struct fli_lanes {
  int n, now;
  lane *lane[FLI_STREAMS];
};

struct fl_mark {
  fl_runtime *rt; /* NULL: closed */
  fl_device device;
  fl_event *event; /* NULL: not recorded, or nothing to wait for */
  double us;       /* on the host, for devices that do everything at once */
  bool recorded;
  int stream;    /* where */
  int blocks;    /* of memory that it is a promise of */
  uint32_t seen; /* by these streams, as a promise */
  fli_clock clock;
  fl_mark *prev, *next;
};

static bool is_async(fl_runtime *rt, fl_device d) {
  return fli_backend(rt, d)->flags & FL_BACKEND_ASYNC;
}

static struct fli_lanes *lanes_of(fl_runtime *rt, fl_device d) {
  return rt->lanes[d >> 8][d & 255];
}

static lane *lane_of(fl_runtime *rt, fl_device d, int stream) {
  struct fli_lanes *l = lanes_of(rt, d);
  return l && stream >= 0 && stream < l->n ? l->lane[stream] : NULL;
}

static fl_status stream_check(fl_runtime *rt, fl_device d, int stream) {
  FLI_TRY(fli_check_device(rt, d));
  if (stream == 0 || lane_of(rt, d, stream))
    return FL_OK;
  return fli_fail(FL_EARG, "%s has no stream %d", fl_device_name(rt, d),
                  stream);
}

/* --- making them --- */

/* With a stream of its own, or over another library's `handle`. */
static fl_status lane_add(fl_runtime *rt, struct fli_lanes *l, fl_device d,
                          intptr_t handle) {
  if (l->n == FLI_STREAMS || rt->n_clocks == FLI_CLOCKS - 1)
    return fli_fail(FL_ESIZE,
                    "%s has %d streams already: let go of some before making "
                    "more",
                    fl_device_name(rt, d), l->n);
  lane *x = fli_malloc(rt, sizeof *x);
  if (!x)
    return FL_ENOMEM;
  memset(x, 0, sizeof *x);
  fl_backend *b = fli_backend(rt, d);
  fl_status s = FL_OK;
  if (l->n == 0)
    x->stream = fli_stream(rt, d);
  else if (handle)
    s = b->stream_adopt(b, d & 255, handle, &x->stream);
  else if (b->stream_new)
    s = b->stream_new(b, d & 255, &x->stream);
  if (s) {
    fli_mfree(x);
    return s;
  }
  x->adopted = handle != 0;
  x->id = ++rt->n_clocks; /* 0 is the host's */
  l->lane[l->n++] = x;
  return FL_OK;
}

static fl_status lanes_open(fl_runtime *rt, fl_device d) {
  struct fli_lanes **l = &rt->lanes[d >> 8][d & 255];
  if (*l)
    return FL_OK;
  struct fli_lanes *fresh = fli_malloc(rt, sizeof *fresh);
  if (!fresh)
    return FL_ENOMEM;
  memset(fresh, 0, sizeof *fresh);
  fl_status s = lane_add(rt, fresh, d, 0);
  if (s)
    fli_mfree(fresh);
  else
    *l = fresh;
  return s;
}

fl_status fl_stream_new(fl_runtime *rt, fl_device d, int *stream) {
  FLI_NEED(rt, "rt");
  FLI_NEED(stream, "stream");
  FLI_TRY(fli_check_device(rt, d));
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(lanes_open(rt, d));
  struct fli_lanes *l = lanes_of(rt, d);
  int k = 1;
  while (k < l->n && (l->lane[k]->holders || l->lane[k]->adopted))
    k++;
  if (k == l->n)
    FLI_TRY(lane_add(rt, l, d, 0));
  l->lane[k]->holders = 1;
  rt->watch |= FLI_WATCH_STREAMS;
  *stream = k;
  return FL_OK;
}

static fl_stream *stream_of(fl_runtime *rt, fl_device d, int stream) {
  lane *x = lane_of(rt, d, stream);
  return x ? x->stream : fli_stream(rt, d);
}

fl_status fl_stream_handle(fl_runtime *rt, fl_device d, int stream,
                           intptr_t *handle) {
  FLI_NEED(rt, "rt");
  FLI_NEED(handle, "handle");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(stream_check(rt, d, stream));
  fl_backend *b = fli_backend(rt, d);
  if (b->stream_handle)
    return b->stream_handle(b, d & 255, stream_of(rt, d, stream), handle);
  return fli_fail(FL_EUNSUPPORTED, "%s has no streams that others could use",
                  fl_device_name(rt, d));
}

fl_status fl_stream_adopt(fl_runtime *rt, fl_device d, intptr_t handle,
                          int *stream) {
  FLI_NEED(rt, "rt");
  FLI_NEED(stream, "stream");
  FLI_TRY(fli_check_device(rt, d));
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(lanes_open(rt, d));
  struct fli_lanes *l = lanes_of(rt, d);
  fl_backend *b = fli_backend(rt, d);
  intptr_t own;
  int k = 0;
  for (; k < l->n; k++) {
    FLI_TRY(fl_stream_handle(rt, d, k, &own));
    if (own == handle)
      break;
  }
  if (k == l->n) {
    if (!b->stream_adopt)
      return fli_fail(FL_EUNSUPPORTED, "%s takes no streams of others",
                      fl_device_name(rt, d));
    FLI_TRY(lane_add(rt, l, d, handle));
  }
  l->lane[k]->holders++;
  rt->watch |= FLI_WATCH_STREAMS;
  *stream = k;
  return FL_OK;
}

void fl_stream_retain(fl_runtime *rt, fl_device d, int stream) {
  if (!rt || fli_check_device(rt, d))
    return;
  lane *x = lane_of(rt, d, stream);
  if (x)
    x->holders++;
}

/* The backend's stream stays and is reused: work that is queued later runs
 * later. */
void fl_stream_release(fl_runtime *rt, fl_device d, int stream) {
  if (!rt || fli_check_device(rt, d))
    return;
  lane *x = lane_of(rt, d, stream);
  if (x && x->holders)
    x->holders--;
}

void fli_marks_close(fl_runtime *rt) {
  for (fl_mark *m = rt->marks, *next; m; m = next) {
    next = m->next;
    if (m->event)
      fli_backend(rt, m->device)
          ->event_free(fli_backend(rt, m->device), m->event);
    m->event = NULL;
    m->rt = NULL;
  }
  rt->marks = NULL;
}

void fli_streams_close(fl_runtime *rt) {
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < FLI_MAX_DEVICES; i++) {
      struct fli_lanes *l = rt->lanes[k][i];
      if (!l)
        continue;
      fl_backend *b = rt->backends[k];
      rt->streams[k][i] = l->lane[0]->stream;
      for (int n = 0; n < l->n; n++) {
        if (n && l->lane[n]->stream && b->stream_free)
          b->stream_free(b, l->lane[n]->stream);
        fli_mfree(l->lane[n]);
      }
      fli_mfree(l);
    }
}

/* --- the current stream --- */

int fl_stream_current(fl_runtime *rt, fl_device d) {
  FLI_NEED_OR(rt, "rt", 0);
  if (fli_check_device(rt, d))
    return 0;
  struct fli_lanes *l = lanes_of(rt, d);
  return l ? l->now : 0;
}

fl_status fl_stream_use(fl_runtime *rt, fl_device d, int stream) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(stream_check(rt, d, stream));
  struct fli_lanes *l = lanes_of(rt, d);
  if (!l || l->now == stream)
    return FL_OK;
  FLI_TRY(fli_capture_refuses(rt, d, "a change of the stream"));
  l->now = stream;
  rt->streams[d >> 8][d & 255] = l->lane[stream]->stream;
  if (is_async(rt, d)) /* other devices have one queue */
    fli_alloc_stream(rt, d);
  return FL_OK;
}

fl_status fli_stream_uses(fl_runtime *rt, fl_device d, fli_block *b) {
  int now = fl_stream_current(rt, d);
  fl_mark *m = fli_block_used(b, now, 0);
  if (FLI_LIKELY(!m) || m->seen >> now & 1)
    return FL_OK;
  FLI_TRY(fl_mark_wait(m, d, now));
  m->seen |= 1u << now;
  return FL_OK;
}

fl_status fli_stream_note(fl_runtime *rt, fl_device d) {
  struct fli_lanes *l = lanes_of(rt, d);
  if (l && is_async(rt, d)) {
    lane *x = l->lane[l->now];
    x->ring[x->n_notes++ % FLI_RING] = rt->ring[rt->seq % FLI_RING];
  }
  return is_async(rt, d) && rt->watch & FLI_WATCH_RACES ? lanes_open(rt, d)
                                                        : FL_OK;
}

fl_status fli_streams_touch(fl_tensor *t, bool writes, const char *what,
                            fl_site site) {
  fl_runtime *rt = t->rt;
  fl_device d = t->storage->device;
  int now = is_async(rt, d) ? fl_stream_current(rt, d) : -1;
  if (now >= 0 && t->storage->block)
    FLI_TRY(fli_stream_uses(rt, d, t->storage->block));
  if (!(rt->watch & FLI_WATCH_RACES))
    return FL_OK;
  if (now >= 0)
    FLI_TRY(lanes_open(rt, d));
  return fli_race_check(rt, d, now, t, writes, what, site);
}

/* --- waiting --- */

fli_clock *fli_stream_clock(fl_runtime *rt, fl_device d, int stream, int *id) {
  lane *x = lane_of(rt, d, stream);
  if (x && id)
    *id = x->id;
  return x ? &x->clock : NULL;
}

/* One stream of d; the failure that came first. */
static fl_status sync_one(fl_runtime *rt, fl_device d, int stream) {
  fl_backend *b = fli_backend(rt, d);
  lane *x = lane_of(rt, d, stream);
  uint64_t seq = 0;
  /* a device without work is not opened for this */
  if (!is_async(rt, d) || (!x && !rt->streams[d >> 8][d & 255]))
    return FL_OK;
  FLI_TRY(fli_capture_refuses(rt, d, "a wait for the device"));
  fl_status s = b->stream_sync(b, d & 255, stream_of(rt, d, stream), &seq);
  if (x)
    fli_host_seen(rt, &x->clock);
  if (!s)
    return FL_OK;
  const fli_launch_note *n = &rt->ring[seq % FLI_RING];
  const fli_launch_note *noted = fli_noted_find(rt, seq);
  for (int k = 0; x && n->seq != seq && k < FLI_RING; k++)
    if (x->ring[k].seq == seq)
      n = &x->ring[k];
  if (noted)
    n = noted;
  return fli_late_failure(rt, s, n, seq);
}

fl_status fl_stream_sync(fl_runtime *rt, fl_device d, int stream) {
  FLI_NEED(rt, "rt");
  FLI_TRY(stream_check(rt, d, stream));
  FLI_TRY(fli_settle_all(rt));
  return sync_one(rt, d, stream);
}

fl_status fli_stream_finish(fl_runtime *rt, fl_device d) {
  return sync_one(rt, d, fl_stream_current(rt, d));
}

static void keep_waiting(fl_runtime *rt, fl_device d, int stream) {
  char text[1024];
  snprintf(text, sizeof text, "%s", fl_error());
  fli_stream_settle(rt, d, 1u << stream);
  fli_fail(FL_OK, "%s", text);
}

fl_status fl_device_sync(fl_runtime *rt, fl_device d) {
  FLI_NEED(rt, "rt");
  fl_status first = FL_OK;
  FLI_TRY(fli_settle_all(rt));
  if (d < 0) {
    for (int k = 0; k < rt->n_backends; k++)
      for (int i = 0; i < rt->n_devices[k]; i++)
        if (first == FL_OK)
          first = fl_device_sync(rt, k << 8 | i);
    return first;
  }
  FLI_TRY(fli_check_device(rt, d));
  struct fli_lanes *l = lanes_of(rt, d);
  for (int k = 0; k < (l ? l->n : 1); k++)
    if (first == FL_OK)
      first = sync_one(rt, d, k);
    else /* other failures are reported next time */
      keep_waiting(rt, d, k);
  return first;
}

fl_event *fli_stream_event(fl_runtime *rt, fl_device d, int stream) {
  fl_backend *b = fli_backend(rt, d);
  fl_event *e = NULL;
  if (b->event_new(b, d & 255, &e) == FL_OK) {
    if (b->event_record(b, e, stream_of(rt, d, stream)) == FL_OK)
      return e;
    b->event_free(b, e);
  }
  fli_stream_settle(rt, d, 1u << stream);
  return NULL;
}

/* By an event, so that the next synchronisation reports a failure. */
void fli_stream_settle(fl_runtime *rt, fl_device d, uint32_t which) {
  fl_backend *b = fli_backend(rt, d);
  struct fli_lanes *l = lanes_of(rt, d);
  struct timespec nap = {.tv_nsec = 20000};
  for (int k = 0; k < (l ? l->n : 1); k++) {
    fl_event *e = NULL;
    if (!(which >> k & 1) || b->event_new(b, d & 255, &e) != FL_OK)
      continue;
    if (b->event_record(b, e, stream_of(rt, d, k)) == FL_OK)
      while (!b->event_done(b, e))
        nanosleep(&nap, NULL);
    b->event_free(b, e);
  }
}

fl_status fli_stream_order(fl_runtime *rt, fl_device d, int stream,
                           uint32_t others) {
  struct fli_lanes *l = lanes_of(rt, d);
  fl_backend *b = fli_backend(rt, d);
  if (!l || !is_async(rt, d))
    return FL_OK;
  lane *x = l->lane[stream];
  for (int k = 0; k < l->n; k++) {
    if (k == stream || !(others >> k & 1))
      continue;
    FLI_TRY(fli_capture_refuses(rt, d, "a wait for another stream"));
    fl_event *e = fli_stream_event(rt, d, k);
    fl_status s = e ? b->event_wait(b, e, x->stream) : FL_OK;
    if (e)
      b->event_free(b, e);
    FLI_TRY(s);
    fli_clock_join(&x->clock, &l->lane[k]->clock);
  }
  return FL_OK;
}

fl_status fli_stream_follow(fl_runtime *rt, fl_device d, uint32_t others) {
  return fli_stream_order(rt, d, fl_stream_current(rt, d), others);
}

/* --- marks --- */

fl_status fl_mark_new(fl_runtime *rt, fl_device d, fl_mark **out) {
  FLI_NEED(rt, "rt");
  FLI_NEED(out, "m");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_check_device(rt, d));
  fl_backend *b = fli_backend(rt, d);
  fl_mark *m = fli_malloc(rt, sizeof *m);
  if (!m)
    return FL_ENOMEM;
  memset(m, 0, sizeof *m);
  m->rt = rt;
  m->device = d;
  fl_status s = is_async(rt, d) ? b->event_new(b, d & 255, &m->event) : FL_OK;
  if (s) {
    fli_mfree(m);
    return s;
  }
  m->next = rt->marks;
  if (m->next)
    m->next->prev = m;
  rt->marks = m;
  *out = m;
  return FL_OK;
}

void fl_mark_free(fl_mark *m) {
  if (!m)
    return;
  if (m->rt) {
    fl_backend *b = fli_backend(m->rt, m->device);
    *(m->prev ? &m->prev->next : &m->rt->marks) = m->next;
    if (m->next)
      m->next->prev = m->prev;
    if (m->event)
      b->event_free(b, m->event);
  }
  fli_mfree(m);
}

fl_device fl_mark_device(const fl_mark *m) {
  FLI_NEED_OR(m, "m", -1);
  return m->device;
}

static fl_status check_mark(const fl_mark *m) {
  return m->rt ? fli_check_owner(m->rt)
               : fli_fail(FL_ECLOSED, "the event's runtime is closed");
}

fl_status fl_mark_record(fl_mark *m, int stream) {
  FLI_NEED(m, "m");
  struct timespec t;
  FLI_TRY(check_mark(m));
  FLI_TRY(fli_settle_all(m->rt));
  FLI_TRY(stream_check(m->rt, m->device, stream));
  FLI_TRY(fli_capture_refuses(m->rt, m->device, "events"));
  fl_backend *b = fli_backend(m->rt, m->device);
  if (m->event)
    FLI_TRY(b->event_record(b, m->event, stream_of(m->rt, m->device, stream)));
  lane *x = lane_of(m->rt, m->device, stream);
  if (x)
    m->clock = x->clock;
  clock_gettime(CLOCK_MONOTONIC, &t);
  m->us = (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
  m->recorded = true;
  m->stream = stream;
  return FL_OK;
}

fl_status fl_mark_wait(fl_mark *m, fl_device d, int stream) {
  FLI_NEED(m, "m");
  FLI_TRY(check_mark(m));
  fl_runtime *rt = m->rt;
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(stream_check(rt, d, stream));
  if (!m->recorded || !m->event)
    return FL_OK;
  if (d >> 8 != m->device >> 8)
    return fl_mark_sync(m); /* other hardware cannot wait for it */
  FLI_TRY(fli_capture_refuses(rt, d, "a wait for an event"));
  fl_backend *b = fli_backend(rt, d);
  FLI_TRY(b->event_wait(b, m->event, stream_of(rt, d, stream)));
  lane *x = lane_of(rt, d, stream);
  if (x)
    fli_clock_join(&x->clock, &m->clock);
  return FL_OK;
}

bool fl_mark_passed(fl_mark *m) {
  FLI_NEED_OR(m, "m", true);
  if (!m->rt || !m->recorded || !m->event)
    return true;
  fl_backend *b = fli_backend(m->rt, m->device);
  if (!b->event_done(b, m->event))
    return false;
  fli_host_seen(m->rt, &m->clock);
  return true;
}

fl_status fl_mark_sync(fl_mark *m) {
  FLI_NEED(m, "m");
  FLI_TRY(check_mark(m));
  fl_runtime *rt = m->rt;
  FLI_TRY(fli_settle_all(rt));
  fl_backend *b = fli_backend(rt, m->device);
  uint64_t seq;
  for (unsigned turn = 0; !fl_mark_passed(m); turn++) {
    struct timespec nap = {.tv_nsec = turn < 2000 ? 20000 : 200000};
    if (turn < 200)
      continue;
    if (turn % 64 == 0 && fl_runtime_interrupted(rt))
      return fli_fail(FL_EINTERRUPT, "interrupted while waiting for %s",
                      fl_device_name(rt, m->device));
    nanosleep(&nap, NULL);
  }
  if (!m->event || !m->recorded ||
      !b->stream_peek(b, m->device & 255, stream_of(rt, m->device, m->stream),
                      &seq))
    return FL_OK;
  return sync_one(rt, m->device, m->stream);
}

fl_status fl_mark_elapsed(fl_mark *from, fl_mark *to, double *us) {
  FLI_NEED(from, "from");
  FLI_NEED(to, "to");
  FLI_NEED(us, "us");
  FLI_TRY(check_mark(from));
  FLI_TRY(check_mark(to));
  fl_backend *b = fli_backend(from->rt, from->device);
  if (from->device != to->device)
    return fli_fail(FL_EDEVICE, "elapsed: the events are of %s and %s",
                    fl_device_name(from->rt, from->device),
                    fl_device_name(to->rt, to->device));
  if (!from->recorded || !to->recorded || !fl_mark_passed(from) ||
      !fl_mark_passed(to))
    return fli_fail(FL_EARG,
                    "elapsed: both events must be recorded and passed: "
                    "synchronize() the later one first");
  if (from->event && !b->event_elapsed)
    return fli_fail(FL_EUNSUPPORTED, "elapsed: %s takes no times", b->name);
  *us = from->event ? b->event_elapsed(b, from->event, to->event)
                    : to->us - from->us;
  return FL_OK;
}

/* --- promises: marks that blocks hold, for later users --- */

void fli_promise_drop(fl_mark *m) {
  if (m && --m->blocks == 0)
    fl_mark_free(m);
}

fl_status fl_stream_promise(fl_runtime *rt, fl_device d, int stream, int n,
                            fl_tensor *const *of) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_count(__func__, "n", n));
  if (n > 0)
    FLI_NEED(of, "of");
  fl_mark *m;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  FLI_TRY(stream_check(rt, d, stream));
  for (int k = 0; k < n; k++) {
    if (!of[k])
      return fli_fail(FL_EARG, "%s: of[%d] is NULL", __func__, k);
    if (of[k]->rt != rt)
      return of[k]->rt
                 ? fli_fail(FL_EARG, "%s: of[%d] is of another runtime",
                            __func__, k)
                 : fli_fail(FL_ECLOSED, "%s: of[%d] is closed", __func__, k);
    fl_device here = of[k]->storage ? of[k]->storage->device : d;
    if (here != d)
      return fli_fail(FL_EDEVICE, "promise: a tensor of %s, and a stream of %s",
                      fl_device_name(rt, here), fl_device_name(rt, d));
  }
  if (!is_async(rt, d))
    return FL_OK;
  FLI_TRY(fl_mark_new(rt, d, &m));
  fl_status s = fl_mark_record(m, stream);
  m->seen = 1u << stream;
  m->blocks = 1;
  for (int k = 0; k < n && s == FL_OK; k++) {
    fli_block *b = of[k]->storage ? of[k]->storage->block : NULL;
    if (!b)
      continue;
    m->blocks++;
    fli_block_promise(b, m);
  }
  fli_promise_drop(m);
  return s;
}
