/* The profiler: while it is on, every launch and transfer leaves a row with its
 * operator, line, module, host time and, on devices that run behind the host,
 * the time between two events. Rows are formatted when it ends; adding them
 * up is left to the library (flare.profile). */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOLDERS 5

typedef struct pair { /* around a launch */
  fl_event *begin, *end;
  bool shared; /* begin is the end of another */
} pair;

typedef struct behind {  /* a device that runs behind the host */
  fl_event *base, *last; /* where its time begins; the end of the last row */
  fl_stream *stream;     /* which that row was on */
} behind;

typedef struct peak {
  size_t bytes, listed; /* the most; when the holders were listed */
  size_t before;        /* the allocator's, without this profile */
  char *held;
} peak;

struct fli_profile {
  fl_profile_row *rows;
  pair *pairs;
  size_t n, room, most;
  uint64_t lost, calls;
  double start;
  fl_backend *ranges; /* the one that shows them, or NULL */
  bool by_row;        /* the peak of memory of each row */
  bool meta;          /* rows of calls in meta mode */
  behind behind[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
  peak peaks[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
};

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static bool timed(const fl_backend *b) {
  return (b->flags & FL_BACKEND_ASYNC) && b->event_elapsed;
}

static void drop_events(fl_runtime *rt, struct fli_profile *p) {
  for (size_t i = 0; i < p->n; i++) {
    fl_backend *b = fli_backend(rt, p->rows[i].device);
    pair *x = &p->pairs[i];
    if (x->begin && !x->shared)
      b->event_free(b, x->begin);
    if (x->end)
      b->event_free(b, x->end);
    *x = (pair){NULL, NULL, false};
  }
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < FLI_MAX_DEVICES; i++) {
      behind *x = &p->behind[k][i];
      if (x->base)
        rt->backends[k]->event_free(rt->backends[k], x->base);
      *x = (behind){NULL, NULL, NULL};
    }
}

void fli_profile_close(fl_runtime *rt) {
  struct fli_profile *p = rt->profiled;
  rt->profile = rt->profiled = NULL;
  rt->part = rt->back_part = (fl_profile_part){0, 0};
  if (!p)
    return;
  drop_events(rt, p);
  for (size_t i = 0; i < p->n; i++)
    fli_mfree((void *)(uintptr_t)p->rows[i].step);
  for (int k = 0; k < FLI_MAX_BACKENDS; k++)
    for (int i = 0; i < FLI_MAX_DEVICES; i++)
      free(p->peaks[k][i].held);
  fli_mfree(p->rows);
  fli_mfree(p->pairs);
  fli_mfree(p);
}

/* The whole profile is a range, too, so that an error of the tool shows at the
 * start. */
static fl_status open_ranges(fl_runtime *rt, struct fli_profile *p) {
  for (int k = 0; k < rt->n_backends; k++)
    if (rt->backends[k]->range)
      p->ranges = rt->backends[k];
  return p->ranges ? p->ranges->range(p->ranges, "profile")
                   : fli_fail(FL_EUNSUPPORTED,
                              "the profiler: no backend shows ranges");
}

/* Peaks of rows restart the allocator's figure, which must not be lost. */
static void keep_peaks(fl_runtime *rt, struct fli_profile *p, bool begin) {
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < rt->n_devices[k] && i < FLI_MAX_DEVICES; i++) {
      fl_device d = (fl_device)(k << 8 | i);
      peak *x = &p->peaks[k][i];
      size_t now = fli_memory_peak(rt, d, 0);
      if (begin)
        x->before = now;
      else if (now > x->bytes)
        x->bytes = now;
      if (!begin)
        fli_memory_peak(rt, d, x->before > x->bytes ? x->before : x->bytes);
    }
}

fl_status fl_profile_start(fl_runtime *rt, size_t most, unsigned flags) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  if (rt->profile)
    return fli_fail(FL_EARG, "the profiler is running already");
  FLI_TRY(fli_settle_all(rt));
  fli_profile_close(rt);
  struct fli_profile *p = fli_malloc(rt, sizeof *p);
  if (!p)
    return FL_ENOMEM;
  memset(p, 0, sizeof *p);
  p->most = most ? most : SIZE_MAX;
  p->start = now_us();
  fl_status s = flags & FL_PROFILE_RANGES ? open_ranges(rt, p) : FL_OK;
  if (s) {
    fli_mfree(p);
    return s;
  }
  rt->profile = rt->profiled = p;
  p->by_row = flags & FL_PROFILE_PEAKS;
  p->meta = flags & FL_PROFILE_META;
  if (p->by_row)
    keep_peaks(rt, p, true);
  return FL_OK;
}

bool fli_profile_meta(const fl_runtime *rt) {
  return rt->profile && rt->profile->meta;
}

/* --- modules --- */

fl_profile_part fl_profile_push(fl_runtime *rt, const char *path,
                                fl_site caller) {
  FLI_NEED_OR(rt, "rt", ((fl_profile_part){0, 0}));
  FLI_NEED_OR(path, "path", ((fl_profile_part){0, 0}));
  fl_profile_part *now = fli_part(rt), before = *now;
  *now = (fl_profile_part){fl_site_intern(rt, path, 0), caller};
  if (rt->profile && rt->profile->ranges)
    rt->profile->ranges->range(rt->profile->ranges, path);
  return before;
}

void fl_profile_pop(fl_runtime *rt, fl_profile_part before) {
  if (!rt)
    return;
  *fli_part(rt) = before;
  if (rt->profile && rt->profile->ranges)
    rt->profile->ranges->range(rt->profile->ranges, NULL);
}

/* --- rows --- */

static bool profile_grow(fl_runtime *rt, struct fli_profile *p) {
  if (p->n < p->room)
    return true;
  size_t room = p->room ? p->room * 2 : 1024;
  fl_profile_row *rows = fli_malloc(rt, room * sizeof *rows);
  pair *pairs = fli_malloc(rt, room * sizeof *pairs);
  if (!rows || !pairs) {
    fli_mfree(rows);
    fli_mfree(pairs);
    return false;
  }
  if (p->n) {
    memcpy(rows, p->rows, p->n * sizeof *rows);
    memcpy(pairs, p->pairs, p->n * sizeof *pairs);
  }
  fli_mfree(p->rows);
  fli_mfree(p->pairs);
  p->rows = rows;
  p->pairs = pairs;
  p->room = room;
  return true;
}

static fl_event *profile_mark(fl_backend *b, int device, fl_stream *s) {
  fl_event *e;
  if (b->event_new(b, device, &e) != FL_OK)
    return NULL;
  if (b->event_record(b, e, s) == FL_OK)
    return e;
  b->event_free(b, e);
  return NULL;
}

/* While the device is still busy with the last row, this one begins where that
 * ends: one event less, since events cost time on the device. */
static pair begin_of(fl_backend *b, behind *x, int device, fl_stream *s) {
  if (!x->base)
    x->base = profile_mark(b, device, s);
  if (x->last && x->stream == s && !b->event_done(b, x->last))
    return (pair){x->last, NULL, true};
  return (pair){profile_mark(b, device, s), NULL, false};
}

/* Holders are listed when the peak has grown by a twentieth since the last
 * time, since a list walks over all blocks. */
static void note_memory(fl_runtime *rt, struct fli_profile *p, fl_device d) {
  peak *k = &p->peaks[d >> 8][d & 255];
  size_t live = fli_memory_live(rt, d);
  size_t more = p->by_row ? 1 : k->listed / 20 + 4096;
  k->bytes = live > k->bytes ? live : k->bytes;
  if (live < k->listed + more)
    return;
  k->listed = live;
  free(k->held);
  k->held = strdup(fl_memory_holders(rt, d, HOLDERS));
}

size_t fl_profile_peak(fl_runtime *rt, fl_device d, const char **held) {
  FLI_NEED_OR(rt, "rt", 0);
  FLI_NEED_OR(held, "held", 0);
  const struct fli_profile *p = rt->profiled;
  bool known = p && fli_check_device(rt, d) == FL_OK;
  const peak *k = known ? &p->peaks[d >> 8][d & 255] : NULL;
  *held = k && k->held ? k->held : "";
  return k ? k->bytes : 0;
}

/* The most bytes since it was last asked; what goes after a row has ended, such
 * as scratch memory, is that row's. */
static size_t note_peak(fl_runtime *rt, struct fli_profile *p, fl_device d) {
  peak *k = &p->peaks[d >> 8][d & 255];
  size_t most = p->by_row ? fli_memory_peak(rt, d, 0) : 0;
  k->bytes = most > k->bytes ? most : k->bytes;
  return most;
}

/* Of a launch that is called now and sent later. */
fli_note fli_profile_note(fl_runtime *rt) {
  struct fli_profile *p = rt->profile;
  if (!rt->called)
    p->calls++;
  return (fli_note){.called = rt->called,
                    .call = p->calls,
                    .part = *fli_part(rt),
                    .backward = rt->in_backward};
}

void fli_profile_call(fl_runtime *rt, const char *op) {
  rt->called = op;
  rt->profile->calls++;
}

static uint64_t flow_number(const fl_tensor *t) {
  return t->base ? t->base->id : t->id;
}

static double flow_bytes(const fl_tensor *t) {
  return (double)t->numel * (double)fl_dtype_size(t->meta.dtype);
}

void fli_profile_operands(int n_in, const fl_operand *in, int n_out,
                          fl_tensor *const *out, fli_profiled *what) {
  fl_profile_flow *f = &what->flow;
  what->dtype = !n_in          ? FL_NODTYPE
                : in[0].tensor ? in[0].tensor->meta.dtype
                               : in[0].dtype;
  for (int k = 0, n = 0; k < n_in && n < FL_PROFILE_READS; k++)
    if (in[k].tensor) {
      f->read[n] = flow_number(in[k].tensor);
      f->read_bytes[n++] = flow_bytes(in[k].tensor);
    }
  for (int k = 0; k < n_out; k++)
    f->written_bytes += flow_bytes(out[k]);
  f->written = n_out ? flow_number(out[0]) : 0;
}

/* Called before a launch; what it returns goes to fli_profile_end. SIZE_MAX:
 * not counted. */
size_t fli_profile_begin(fl_runtime *rt, const fli_profiled *what,
                         fl_stream *s) {
  struct fli_profile *p = rt->profile;
  fl_device d = what->device;
  fl_backend *b = fli_backend(rt, d);
  note_memory(rt, p, d);
  note_peak(rt, p, d);
  if (p->n >= p->most || !profile_grow(rt, p)) {
    fli_mfree(what->step);
    p->lost++;
    return SIZE_MAX;
  }
  size_t i = p->n++;
  fli_note note = what->note ? *what->note : fli_profile_note(rt);
  p->pairs[i] = (pair){NULL, NULL, false};
  if (timed(b))
    p->pairs[i] = begin_of(b, &p->behind[d >> 8][d & 255], d & 255, s);
  if (p->ranges) {
    char name[300];
    snprintf(name, sizeof name, "%s %s", what->op,
             fl_site_text(rt, what->site));
    p->ranges->range(p->ranges, name);
  }
  p->rows[i] = (fl_profile_row){.op = what->op,
                                .called = note.called ? note.called : what->op,
                                .call = note.call,
                                .site = what->site,
                                .part = note.part,
                                .backward = note.backward,
                                .transfer = what->transfer,
                                .dtype = what->dtype,
                                .device = d,
                                .start_us = now_us() - p->start,
                                .flops = what->flops,
                                .bytes = what->bytes,
                                .live = fli_memory_live(rt, d),
                                .step = what->step,
                                .flow = what->flow};
  return i;
}

void fli_profile_end(fl_runtime *rt, size_t i, fl_stream *s) {
  struct fli_profile *p = rt->profile;
  if (i == SIZE_MAX || !p)
    return;
  fl_profile_row *r = &p->rows[i];
  fl_backend *b = fli_backend(rt, r->device);
  r->host_us = now_us() - p->start - r->start_us;
  r->device_start_us = r->start_us;
  r->device_us = b->flags & FL_BACKEND_ASYNC ? 0 : r->host_us;
  r->peak = note_peak(rt, p, r->device);
  if (p->pairs[i].begin) {
    behind *x = &p->behind[r->device >> 8][r->device & 255];
    x->last = p->pairs[i].end = profile_mark(b, r->device & 255, s);
    x->stream = s;
  }
  if (p->ranges)
    p->ranges->range(p->ranges, NULL);
}

fl_status fli_copy(fl_runtime *rt, fl_device d, fl_copy_kind kind, void *to,
                   fl_device from_device, const void *from, size_t bytes) {
  static const char *const names[] = {
      [FL_COPY_IN] = "copy to the device",
      [FL_COPY_OUT] = "copy to the host",
      [FL_COPY_WITHIN] = "copy within the device",
      [FL_COPY_PEER] = "copy between devices",
      [FL_COPY_IN_PINNED] = "copy to the device (pinned)",
      [FL_COPY_OUT_PINNED] = "copy to the host (pinned)"};
  fl_backend *b = fli_backend(rt, d);
  fl_stream *stream = fli_stream(rt, d);
  size_t row = SIZE_MAX;
  if (rt->profile) {
    fli_profiled what = {.op = names[kind],
                         .site = rt->copy_site,
                         .device = d,
                         .dtype = FL_NODTYPE,
                         .transfer = true,
                         .bytes = (double)bytes};
    row = fli_profile_begin(rt, &what, stream);
  }
  fl_status s =
      b->copy(b, d & 255, stream, kind, to, from_device & 255, from, bytes);
  fli_profile_end(rt, row, stream);
  return s;
}

void fl_copy_site(fl_runtime *rt, fl_site site) {
  if (!rt)
    return;
  rt->copy_site = site;
}

fl_status fl_profile_stop(fl_runtime *rt, const fl_profile_row **rows,
                          size_t *n, uint64_t *lost) {
  FLI_NEED(rt, "rt");
  FLI_NEED(rows, "rows");
  FLI_NEED(n, "n");
  FLI_NEED(lost, "lost");
  struct fli_profile *p = rt->profile;
  if (!p)
    return fli_fail(FL_EARG, "the profiler is not running");
  fl_status settled = fli_settle_all(rt); /* its rows count, too */
  rt->profile = NULL;
  if (p->by_row)
    keep_peaks(rt, p, false);
  rt->part = rt->back_part = (fl_profile_part){0, 0};
  if (p->ranges)
    p->ranges->range(p->ranges, NULL);
  fl_status s = fl_device_sync(rt, -1);
  s = settled ? settled : s;
  for (size_t i = 0; i < p->n && s == FL_OK; i++) {
    fl_profile_row *r = &p->rows[i];
    fl_backend *b = fli_backend(rt, r->device);
    fl_event *base = p->behind[r->device >> 8][r->device & 255].base;
    if (!base || !p->pairs[i].end || !p->pairs[i].begin)
      continue;
    r->device_start_us = b->event_elapsed(b, base, p->pairs[i].begin);
    r->device_us = b->event_elapsed(b, p->pairs[i].begin, p->pairs[i].end);
  }
  drop_events(rt, p);
  *rows = p->rows;
  *n = p->n;
  *lost = p->lost;
  return s;
}
