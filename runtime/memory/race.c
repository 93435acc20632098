/* Race detection: tensors that two streams use without synchronisation. Each
 * stream has a vector clock, which events and waits pass on; each block in use
 * has a trail of accesses, with their stream and bytes. An access is ordered if
 * its stream's clock includes all accesses that conflict with it. */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
#define MOST    48 /* accesses remembered of one memory */

typedef struct access {
  uint64_t ticket;
  int clock, stream;
  fl_device device;
  bool writes;
  fl_site site;
  size_t from, to; /* bytes */
  char op[32];
} access;

typedef struct trail {
  struct trail *next;
  const void *memory; /* a block, or a fli_pin */
  int n, room;
  access *list;
} trail;

struct fli_races {
  fli_clock host;
  trail *bucket[BUCKETS];
};

void fli_clock_join(fli_clock *c, const fli_clock *other) {
  for (int k = 0; k < FLI_CLOCKS; k++)
    if (other->seen[k] > c->seen[k])
      c->seen[k] = other->seen[k];
}

void fli_host_seen(fl_runtime *rt, const fli_clock *c) {
  if (rt->races)
    fli_clock_join(&rt->races->host, c);
}

static trail **bucket_of(fl_runtime *rt, const void *memory) {
  uint64_t h = (uint64_t)(uintptr_t)memory * 0x9E3779B97F4A7C15u;
  return &rt->races->bucket[h >> 54];
}

void fli_trail_drop(fl_runtime *rt, const void *memory) {
  if (!rt->races)
    return;
  for (trail **at = bucket_of(rt, memory); *at; at = &(*at)->next)
    if ((*at)->memory == memory) {
      trail *t = *at;
      *at = t->next;
      free(t->list);
      free(t);
      return;
    }
}

void fli_races_close(fl_runtime *rt) {
  for (int k = 0; rt->races && k < BUCKETS; k++)
    for (trail *t = rt->races->bucket[k], *next; t; t = next) {
      next = t->next;
      free(t->list);
      free(t);
    }
  free(rt->races);
  rt->races = NULL;
}

bool fl_stream_races(fl_runtime *rt, bool on) {
  FLI_NEED_OR(rt, "rt", false);
  bool was = rt->watch & FLI_WATCH_RACES;
  if (on == was)
    return was;
  if (on && !(rt->races = calloc(1, sizeof *rt->races)))
    return was;
  rt->watch = on ? rt->watch | FLI_WATCH_RACES : rt->watch & ~FLI_WATCH_RACES;
  if (!on)
    fli_races_close(rt);
  return was;
}

static trail *trail_of(fl_runtime *rt, const void *memory) {
  trail **at = bucket_of(rt, memory);
  for (trail *t = *at; t; t = t->next)
    if (t->memory == memory)
      return t;
  trail *t = calloc(1, sizeof *t);
  if (t) {
    t->memory = memory;
    t->next = *at;
    *at = t;
  }
  return t;
}

/* The bytes that a tensor may touch. */
static void race_extent(const fl_tensor *t, size_t *from, size_t *to) {
  int64_t low = t->offset, high = t->offset;
  size_t each = fl_dtype_size(t->meta.dtype);
  for (int i = 0; i < t->meta.ndim; i++) {
    int64_t reach = (t->meta.shape[i] - 1) * t->stride[i];
    *(reach < 0 ? &low : &high) += reach;
  }
  *from = (size_t)low * each;
  *to = (size_t)(high + 1) * each;
}

static const char *who(fl_runtime *rt, char out[64], fl_device d, int stream) {
  if (stream < 0)
    snprintf(out, 64, "the host");
  else
    snprintf(out, 64, "stream %d of %s", stream, fl_device_name(rt, d));
  return out;
}

static fl_status clash(fl_runtime *rt, const access *now, const access *then) {
  char here[64], there[64], at[256];
  snprintf(at, sizeof at, "%s", fl_site_text(rt, then->site));
  return fli_fail(
      FL_EDEVICE,
      "%s on %s (%s) %s a tensor that %s on %s (%s) %s, without order between "
      "the two: let the one wait for an event recorded behind the other",
      now->op, who(rt, here, now->device, now->stream),
      fl_site_text(rt, now->site), now->writes ? "writes" : "reads", then->op,
      who(rt, there, then->device, then->stream), at,
      then->writes ? "writes" : "reads");
}

/* Accesses that this one covers can be dropped: it is ordered after them, so
 * what is ordered after it is ordered after them, too. */
static bool covers(const access *a, const access *old) {
  return a->from <= old->from && a->to >= old->to &&
         (a->writes || (!old->writes && a->clock == old->clock));
}

static void race_remember(trail *t, const access *a) {
  int kept = 0;
  for (int k = 0; k < t->n; k++)
    if (!covers(a, &t->list[k]))
      t->list[kept++] = t->list[k];
  t->n = kept;
  if (t->n == MOST) {
    memmove(t->list, t->list + 1, (MOST - 1) * sizeof *t->list);
    t->n--;
  }
  if (t->n == t->room) {
    int room = t->room ? t->room * 2 : 4;
    access *list = realloc(t->list, (size_t)room * sizeof *list);
    if (!list)
      return;
    t->list = list;
    t->room = room;
  }
  t->list[t->n++] = *a;
}

fl_status fli_race_check(fl_runtime *rt, fl_device d, int stream,
                         const fl_tensor *x, bool writes, const char *op,
                         fl_site site) {
  fl_storage *s = x->storage;
  struct fli_pin *pin = s ? fli_pin_of(s) : NULL;
  if (!s || x->numel == 0 || (stream < 0 && !pin) || (!s->block && !pin))
    return FL_OK;
  access a = {.device = d, .stream = stream, .writes = writes, .site = site};
  fli_clock *c = &rt->races->host;
  if (stream >= 0) {
    c = fli_stream_clock(rt, d, stream, &a.clock);
    fli_clock_join(c, &rt->races->host);
  }
  snprintf(a.op, sizeof a.op, "%s", op);
  race_extent(x, &a.from, &a.to);
  const void *memory = pin ? (const void *)pin : (const void *)s->block;
  trail *t = trail_of(rt, memory);
  if (!t)
    return fli_fail(FL_ENOMEM, "out of memory: debug_streams");
  if (!pin)
    fli_block_used(s->block, stream, FLI_TRAILED);
  for (int k = 0; k < t->n; k++) {
    const access *old = &t->list[k];
    if ((writes || old->writes) && old->clock != a.clock && old->from < a.to &&
        a.from < old->to && c->seen[old->clock] < old->ticket)
      return clash(rt, &a, old);
  }
  a.ticket = ++c->seen[a.clock];
  race_remember(t, &a);
  return FL_OK;
}
