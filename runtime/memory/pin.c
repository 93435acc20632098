/* Pinned memory: host memory that a device copies from and to by itself. The
 * driver is slow to allocate it, so freed blocks are cached and reused when the
 * copies that were queued have run. */
#include "stream.h"

#include <stdlib.h>

#define KEPT ((size_t)256 << 20) /* bytes that wait for another use */

typedef struct fli_pin {
  struct fli_pin *next;
  fl_runtime *rt;
  fl_backend *backend;
  void *memory;
  size_t bytes;
  int n, room;
  struct use { /* the last copy on each stream */
    fl_device device;
    int stream;
    fl_event *event;
  } * uses;
} fli_pin;

/* From any thread: the owner takes them up (collect). */
void fli_pin_release(void *context, void *data) {
  fli_pin *p = context;
  fl_runtime *rt = p->rt;
  (void)data;
  p->next = atomic_load_explicit(&rt->pins_back, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&rt->pins_back, &p->next, p,
                                                memory_order_release,
                                                memory_order_relaxed)) {
  }
}

struct fli_pin *fli_pin_of(const fl_storage *s) {
  return !s->block && s->done == fli_pin_release ? s->context : NULL;
}

bool fli_pin_fits(const fli_pin *p, fl_device d) {
  return p->backend == fli_backend(p->rt, d);
}

static void pin_free(fli_pin *p) {
  for (int k = 0; k < p->n; k++)
    p->backend->event_free(p->backend, p->uses[k].event);
  p->backend->host_free(p->backend, p->memory);
  free(p->uses);
  free(p);
}

static bool passed(const fli_pin *p) {
  for (int k = 0; k < p->n; k++)
    if (!p->backend->event_done(p->backend, p->uses[k].event))
      return false;
  return true;
}

static void pin_collect(fl_runtime *rt) {
  fli_pin *p =
      atomic_exchange_explicit(&rt->pins_back, NULL, memory_order_acquire);
  for (fli_pin *next; p; p = next) {
    next = p->next;
    fli_trail_drop(rt, p);
    p->next = rt->pins;
    rt->pins = p;
  }
  size_t kept = 0; /* the newest are kept */
  for (fli_pin **at = &rt->pins; *at;) {
    p = *at;
    kept += p->bytes;
    if (kept <= KEPT || !passed(p)) {
      at = &p->next;
      continue;
    }
    kept -= p->bytes;
    *at = p->next;
    pin_free(p);
  }
}

void fli_pins_close(fl_runtime *rt) {
  pin_collect(rt);
  for (fli_pin *p = rt->pins, *next; p; p = next) {
    next = p->next;
    pin_free(p);
  }
  rt->pins = NULL;
}

/* The last backend that has devices and such memory. */
static fl_backend *pinning(fl_runtime *rt) {
  for (int k = rt->n_backends - 1; k >= 0; k--) {
    fl_backend *b = rt->backends[k];
    if (b->host_alloc && b->event_new && b->device_count(b) > 0)
      return b;
  }
  return NULL;
}

fl_status fli_pin_new(fl_runtime *rt, size_t bytes, fli_pin **out) {
  fl_backend *b = pinning(rt);
  *out = NULL;
  if (!b)
    return FL_OK;
  FLI_TRY(fli_check_owner(rt));
  pin_collect(rt);
  for (fli_pin **at = &rt->pins; *at; at = &(*at)->next) {
    fli_pin *p = *at;
    if (p->backend != b || p->bytes < bytes || p->bytes / 2 > bytes ||
        !passed(p))
      continue;
    *at = p->next;
    *out = p;
    return FL_OK;
  }
  fli_pin *p = calloc(1, sizeof *p);
  if (!p)
    return fli_fail(FL_ENOMEM, "out of memory: pinned memory");
  bytes = (bytes + 4095) / 4096 * 4096;
  fl_status s = b->host_alloc(b, bytes, &p->memory);
  if (s) {
    free(p);
    return s;
  }
  p->rt = rt;
  p->backend = b;
  p->bytes = bytes;
  *out = p;
  return FL_OK;
}

void *fli_pin_memory(const fli_pin *p) {
  return p->memory;
}

fl_status fli_pin_used(fli_pin *p, fl_device d) {
  fl_runtime *rt = p->rt;
  fl_backend *b = p->backend;
  int stream = fl_stream_current(rt, d), k = 0;
  while (k < p->n && (p->uses[k].device != d || p->uses[k].stream != stream))
    k++;
  if (k < p->n)
    return b->event_record(b, p->uses[k].event, fli_stream(rt, d));
  if (p->n == p->room) {
    int room = p->room ? p->room * 2 : 2;
    void *uses = realloc(p->uses, (size_t)room * sizeof *p->uses);
    if (!uses)
      return fli_stream_finish(rt, d);
    p->uses = uses;
    p->room = room;
  }
  fl_event *e = fli_stream_event(rt, d, stream);
  if (e)
    p->uses[p->n++] = (struct use){d, stream, e};
  return FL_OK;
}
