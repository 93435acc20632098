/* The backend "dry": a device that allocates, orders and fails like another
 * one, but has no memory and runs nothing, so that a program that needs more
 * than this machine has can be run for what it would allocate. Addresses are
 * numbers. What the host reads is zero. It has one device as soon as control
 * "open" was set, so that no list of devices shows it before; control "page"
 * and "part" set what its segments and the memory that moves are a multiple of,
 * as those of another device. */
#include "../../runtime/backend.h"

#include <stdlib.h>
#include <string.h>

/* As sim's addresses: none that a process can have. */
#define FIRST ((uintptr_t)1 << 56)
#define PART  ((size_t)64 << 10)

struct fl_stream {
  int device;
};

struct fl_event {
  int device;
};

typedef struct dry {
  fl_backend table;
  fl_backend *cpu;
  bool opened;
  uintptr_t next; /* address */
  size_t used;
} dry;

static int dry_device_count(fl_backend *b) {
  const dry *s = b->state;
  if (s->opened)
    return 1;
  fli_fail(FL_EDEVICE, "flare.plan opens it");
  return -1;
}

static fl_kernel dry_kernel(fl_backend *b, const char *op) {
  fl_backend *cpu = ((dry *)b->state)->cpu;
  return cpu->kernel(cpu, op);
}

static fl_status dry_launch(fl_backend *b, fl_kernel k, const fl_launch *l) {
  (void)b, (void)k, (void)l;
  return FL_OK;
}

static fl_status dry_alloc(fl_backend *b, int device, size_t bytes,
                           void **memory) {
  dry *s = b->state;
  (void)device;
  *memory = (void *)s->next; /* only a number: nothing is behind it */
  s->next += (bytes + FL_ALIGN) / FL_ALIGN * FL_ALIGN;
  s->used += bytes;
  return FL_OK;
}

static void dry_release(fl_backend *b, int device, void *memory, size_t bytes) {
  (void)device, (void)memory;
  ((dry *)b->state)->used -= bytes;
}

static fl_status dry_reserve(fl_backend *b, int device, size_t bytes,
                             void **at) {
  dry *s = b->state;
  (void)device;
  *at = (void *)s->next;
  s->next += bytes;
  return FL_OK;
}

static void dry_unreserve(fl_backend *b, int device, void *at, size_t bytes) {
  (void)b, (void)device, (void)at, (void)bytes;
}

static fl_status dry_remap(fl_backend *b, int device, void *to, void *from,
                           size_t bytes) {
  dry *s = b->state;
  (void)device;
  s->used += to ? bytes : 0;
  s->used -= from ? bytes : 0;
  return FL_OK;
}

static fl_status dry_memory_info(fl_backend *b, int device, size_t *free_bytes,
                                 size_t *total_bytes) {
  const dry *s = b->state;
  (void)device;
  *total_bytes = SIZE_MAX / 2;
  *free_bytes = *total_bytes - s->used;
  return FL_OK;
}

static fl_status dry_copy(fl_backend *b, int device, fl_stream *s,
                          fl_copy_kind kind, void *to, int from_device,
                          const void *from, size_t bytes) {
  (void)b, (void)device, (void)s, (void)from_device, (void)from;
  if (kind == FL_COPY_OUT || kind == FL_COPY_OUT_PINNED)
    memset(to, 0, bytes);
  return FL_OK;
}

static fl_status dry_stream_new(fl_backend *b, int device, fl_stream **s) {
  (void)b;
  *s = calloc(1, sizeof **s);
  if (!*s)
    return fli_fail(FL_ENOMEM, "out of memory: a stream");
  (*s)->device = device;
  return FL_OK;
}

static void dry_stream_free(fl_backend *b, fl_stream *s) {
  (void)b;
  free(s);
}

static fl_status dry_stream_ask(fl_backend *b, int device, fl_stream *s,
                                uint64_t *failed) {
  (void)b, (void)device, (void)s, (void)failed;
  return FL_OK;
}

static fl_status dry_event_new(fl_backend *b, int device, fl_event **e) {
  (void)b;
  *e = calloc(1, sizeof **e);
  if (!*e)
    return fli_fail(FL_ENOMEM, "out of memory: an event");
  (*e)->device = device;
  return FL_OK;
}

static void dry_event_free(fl_backend *b, fl_event *e) {
  (void)b;
  free(e);
}

static fl_status dry_event_order(fl_backend *b, fl_event *e, fl_stream *s) {
  (void)b, (void)e, (void)s;
  return FL_OK;
}

static bool dry_event_done(fl_backend *b, fl_event *e) {
  (void)b, (void)e;
  return true;
}

static fl_status dry_control(fl_backend *b, const char *what, double value) {
  if (strcmp(what, "open") == 0)
    ((dry *)b->state)->opened = value != 0;
  else if (strcmp(what, "page") == 0)
    b->page = value > 0 ? (size_t)value : 0;
  else if (strcmp(what, "part") == 0)
    b->part = value > 0 ? (size_t)value : PART;
  else
    return fli_fail(FL_EARG,
                    "dry has no control \"%s\"; it has open, page, part", what);
  return FL_OK;
}

static void dry_close(fl_backend *b) {
  free(b->state);
}

fl_status fl_dry_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);

fl_status fl_dry_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b) {
  (void)o;
  dry *s = calloc(1, sizeof *s);
  if (!s)
    return fli_fail(FL_ENOMEM, "out of memory: the dry backend");
  s->cpu = cpu;
  s->next = FIRST;
  s->table = (fl_backend){
      .struct_size = sizeof(fl_backend),
      .name = "dry",
      .flags = FL_BACKEND_ASYNC | FL_BACKEND_LAZY | FL_BACKEND_UNLISTED,
      .state = s,
      .device_count = dry_device_count,
      .kernel = dry_kernel,
      .launch = dry_launch,
      .alloc = dry_alloc,
      .release = dry_release,
      .memory_info = dry_memory_info,
      .part = PART,
      .reserve = dry_reserve,
      .unreserve = dry_unreserve,
      .remap = dry_remap,
      .copy = dry_copy,
      .stream_new = dry_stream_new,
      .stream_free = dry_stream_free,
      .stream_sync = dry_stream_ask,
      .stream_peek = dry_stream_ask,
      .event_new = dry_event_new,
      .event_free = dry_event_free,
      .event_record = dry_event_order,
      .event_wait = dry_event_order,
      .event_done = dry_event_done,
      .close = dry_close,
      .control = dry_control,
  };
  *b = &s->table;
  return FL_OK;
}
