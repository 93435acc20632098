/* The profiler: while it is on, every launch leaves a row with its operator,
 * line, host time and, on devices that run behind the host, the time between
 * two events. Rows are made readable when it ends; adding them up is the
 * library's business (flare.profile). */
#include "internal.h"

#include <time.h>

typedef struct pair { /* around a launch */
  fl_event *begin, *end;
} pair;

struct fli_profile {
  fl_profile_row *rows;
  pair *pairs;
  size_t n, room, most;
  uint64_t lost;
  double start;
  fl_event *base[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
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
    if (p->pairs[i].begin)
      b->event_free(b, p->pairs[i].begin);
    if (p->pairs[i].end)
      b->event_free(b, p->pairs[i].end);
    p->pairs[i] = (pair){NULL, NULL};
  }
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < FLI_MAX_DEVICES; i++)
      if (p->base[k][i]) {
        rt->backends[k]->event_free(rt->backends[k], p->base[k][i]);
        p->base[k][i] = NULL;
      }
}

void fli_profile_close(fl_runtime *rt) {
  struct fli_profile *p = rt->profiled;
  rt->profile = rt->profiled = NULL;
  if (!p)
    return;
  drop_events(rt, p);
  fli_mfree(p->rows);
  fli_mfree(p->pairs);
  fli_mfree(p);
}

fl_status fl_profile_start(fl_runtime *rt, size_t most) {
  FLI_TRY(fli_check_owner(rt));
  fli_profile_close(rt);
  struct fli_profile *p = fli_malloc(rt, sizeof *p);
  if (!p)
    return FL_ENOMEM;
  *p = (struct fli_profile){.most = most ? most : SIZE_MAX, .start = now_us()};
  rt->profile = rt->profiled = p;
  return FL_OK;
}

static bool grow(fl_runtime *rt, struct fli_profile *p) {
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
  for (size_t i = 0; i < p->n; i++) {
    rows[i] = p->rows[i];
    pairs[i] = p->pairs[i];
  }
  fli_mfree(p->rows);
  fli_mfree(p->pairs);
  p->rows = rows;
  p->pairs = pairs;
  p->room = room;
  return true;
}

static fl_event *mark(fl_backend *b, int device, fl_stream *s) {
  fl_event *e;
  if (b->event_new(b, device, &e) != FL_OK)
    return NULL;
  if (b->event_record(b, e, s) == FL_OK)
    return e;
  b->event_free(b, e);
  return NULL;
}

/* Called before a launch; what it returns goes to fli_profile_end. SIZE_MAX:
 * not counted. */
size_t fli_profile_begin(fl_runtime *rt, const char *op, fl_site site,
                         fl_device d, fl_stream *s, double flops,
                         double bytes) {
  struct fli_profile *p = rt->profile;
  fl_backend *b = fli_backend(rt, d);
  if (p->n >= p->most || !grow(rt, p)) {
    p->lost++;
    return SIZE_MAX;
  }
  size_t i = p->n++;
  p->pairs[i] = (pair){NULL, NULL};
  if (timed(b)) {
    fl_event **base = &p->base[d >> 8][d & 255];
    if (!*base)
      *base = mark(b, d & 255, s);
    p->pairs[i].begin = mark(b, d & 255, s);
  }
  p->rows[i] = (fl_profile_row){.op = op,
                                .site = site,
                                .backward = rt->in_backward,
                                .device = d,
                                .start_us = now_us() - p->start,
                                .flops = flops,
                                .bytes = bytes};
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
  if (p->pairs[i].begin)
    p->pairs[i].end = mark(b, r->device & 255, s);
}

fl_status fl_profile_stop(fl_runtime *rt, const fl_profile_row **rows,
                          size_t *n, uint64_t *lost) {
  struct fli_profile *p = rt->profile;
  if (!p)
    return fli_fail(FL_EARG, "the profiler is not running");
  rt->profile = NULL;
  fl_status s = fl_device_sync(rt, -1);
  for (size_t i = 0; i < p->n && s == FL_OK; i++) {
    fl_profile_row *r = &p->rows[i];
    fl_backend *b = fli_backend(rt, r->device);
    fl_event *base = p->base[r->device >> 8][r->device & 255];
    if (!base || !p->pairs[i].end)
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
