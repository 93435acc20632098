/* Backends and their devices, the thread that owns a runtime, and the modes
 * that are plain switches of it. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fl_status fli_check_owner(fl_runtime *rt) {
  if (FLI_LIKELY(rt->owner == fli_self()))
    return FL_OK;
  return fli_fail(FL_EOWNER, "this runtime belongs to another thread: open one "
                             "for each thread, and pass storages");
}

bool fl_runtime_interrupted(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", false);
  return rt->options.interrupted &&
         rt->options.interrupted(rt->options.context);
}

bool fl_meta_mode(fl_runtime *rt, bool on) {
  FLI_NEED_OR(rt, "rt", false);
  bool was = rt->meta;
  rt->meta = on;
  return was;
}

bool fl_anomaly_mode(fl_runtime *rt, bool on) {
  FLI_NEED_OR(rt, "rt", false);
  bool was = rt->anomaly;
  rt->anomaly = on;
  return was;
}

/* --- devices --- */

/* How many a backend has, counted when first asked for; < 0: it cannot be used,
 * and the message says why. */
static int count_devices(fl_runtime *rt, int k) {
  fl_backend *b = rt->backends[k];
  if (rt->n_devices[k] >= 0)
    return rt->n_devices[k];
  int n = b->device_count(b);
  if (n < 0)
    return n;
  rt->n_devices[k] = n < FLI_MAX_DEVICES ? n : FLI_MAX_DEVICES;
  for (int i = 0; i < rt->n_devices[k]; i++)
    fli_alloc_device(rt, k << 8 | i);
  return rt->n_devices[k];
}

fl_status fl_backend_register(fl_runtime *rt, fl_backend *b) {
  FLI_NEED(rt, "rt");
  FLI_NEED(b, "b");
  if (rt->n_backends == FLI_MAX_BACKENDS)
    return fli_fail(FL_ESIZE, "there is room for %d backends only",
                    FLI_MAX_BACKENDS);
  if (b->struct_size < sizeof(fl_backend) || !b->name || !b->device_count ||
      !b->kernel || !b->alloc || !b->release)
    return fli_fail(FL_EARG,
                    "backend %s: its table is incomplete or of another "
                    "version (%zu bytes, expected %zu)",
                    b->name ? b->name : "?", b->struct_size,
                    sizeof(fl_backend));
  for (int k = 0; k < rt->n_backends; k++)
    if (strcmp(rt->backends[k]->name, b->name) == 0)
      return fli_fail(FL_EARG, "there is a backend \"%s\" already", b->name);
  int k = rt->n_backends;
  rt->backends[k] = b;
  rt->n_devices[k] = -1;
  rt->up->kernels(rt, k);
  rt->n_backends++;
  if (!(b->flags & FL_BACKEND_LAZY) && count_devices(rt, k) < 0) {
    rt->n_backends--;
    return FL_EDEVICE;
  }
  return FL_OK;
}

fl_stream *fli_stream_open(fl_runtime *rt, fl_device d) {
  fl_stream **s = &rt->streams[d >> 8][d & 255];
  fl_backend *b = fli_backend(rt, d);
  if (!*s && b->stream_new)
    b->stream_new(b, d & 255, s); /* NULL stays: the backend's first stream */
  return *s;
}

fl_status fl_device_find(fl_runtime *rt, const char *name, fl_device *d) {
  FLI_NEED(rt, "rt");
  FLI_NEED(name, "name");
  FLI_NEED(d, "d");
  const char *colon = strchr(name, ':');
  size_t len = colon ? (size_t)(colon - name) : strlen(name);
  char *end;
  long index = colon ? strtol(colon + 1, &end, 10) : -1;
  if (colon && (end == colon + 1 || *end))
    return fli_fail(FL_EARG, "\"%s\" is no device: write name:index", name);
  for (int k = 0; k < rt->n_backends; k++) {
    if (strlen(rt->backends[k]->name) != len ||
        strncmp(rt->backends[k]->name, name, len) != 0)
      continue;
    int n = count_devices(rt, k);
    if (n < 0) {
      char why[600];
      snprintf(why, sizeof why, "%s", fl_error());
      return fli_fail(FL_EDEVICE, "there is no device \"%s\": %s", name, why);
    }
    if (!colon && n > 0)
      index = rt->local_rank % n; /* ranks of a host share its devices */
    if (index < 0 || index >= n)
      return fli_fail(FL_EARG, "there is no device \"%s\": %s has %d", name,
                      rt->backends[k]->name, n);
    *d = k << 8 | (int)index;
    return FL_OK;
  }
  char list[128] = "";
  for (int k = 0; k < rt->n_backends; k++)
    if (!(rt->backends[k]->flags & FL_BACKEND_UNLISTED))
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
               k ? ", " : "", rt->backends[k]->name);
  return fli_fail(FL_EARG, "there is no device \"%s\"; there are: %s", name,
                  list);
}

fl_status fli_check_device(fl_runtime *rt, fl_device d) {
  if (d >= 0 && d >> 8 < rt->n_backends && (d & 255) < rt->n_devices[d >> 8])
    return FL_OK;
  return fli_fail(FL_EARG, "there is no device number %d", d);
}

const char *fl_device_name(fl_runtime *rt, fl_device d) {
  FLI_NEED_OR(rt, "rt", "?");
  static _Thread_local char rows[4][48];
  static _Thread_local unsigned turn;
  char *row = rows[turn++ % 4];
  if (d < 0 || d >> 8 >= rt->n_backends)
    return "?";
  if (rt->n_devices[d >> 8] == 1 && d == 0)
    return rt->backends[0]->name;
  snprintf(row, sizeof rows[0], "%s:%d", rt->backends[d >> 8]->name, d & 255);
  return row;
}

int fl_device_list(fl_runtime *rt, fl_device *list, int room) {
  FLI_NEED_OR(rt, "rt", 0);
  int n = 0;
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0, have = count_devices(rt, k); i < have; i++, n++)
      if (list && n < room)
        list[n] = k << 8 | i;
  return n;
}

fl_backend *fl_device_backend(fl_runtime *rt, fl_device d) {
  FLI_NEED_OR(rt, "rt", NULL);
  return d >= 0 && d >> 8 < rt->n_backends ? fli_backend(rt, d) : NULL;
}

fl_status fl_memory_driver(fl_runtime *rt, fl_device d, size_t *free_bytes,
                           size_t *total) {
  FLI_NEED(rt, "rt");
  FLI_NEED(free_bytes, "free");
  FLI_NEED(total, "total");
  FLI_TRY(fli_check_device(rt, d));
  fl_backend *b = fli_backend(rt, d);
  return b->memory_info ? b->memory_info(b, d & 255, free_bytes, total)
                        : fli_fail(FL_EUNSUPPORTED,
                                   "%s: its driver says nothing about memory",
                                   fl_device_name(rt, d));
}

static fl_backend *backend_named(fl_runtime *rt, const char *name) {
  for (int k = 0; k < rt->n_backends; k++)
    if (strcmp(rt->backends[k]->name, name) == 0)
      return rt->backends[k];
  fli_fail(FL_EARG, "there is no backend \"%s\"", name);
  return NULL;
}

fl_status fl_backend_query(fl_runtime *rt, const char *backend,
                           const char *what, const char *argument,
                           char **text) {
  FLI_NEED(rt, "rt");
  FLI_NEED(backend, "backend");
  FLI_NEED(what, "what");
  FLI_NEED(text, "text");
  fl_backend *b = backend_named(rt, backend);
  if (!b)
    return FL_EARG;
  if (b->query)
    return b->query(b, what, argument, text);
  return fli_fail(FL_EARG, "the backend %s tells nothing", backend);
}

fl_status fl_backend_control(fl_runtime *rt, const char *backend,
                             const char *what, double value) {
  FLI_NEED(rt, "rt");
  FLI_NEED(backend, "backend");
  FLI_NEED(what, "what");
  fl_backend *b = backend_named(rt, backend);
  if (!b)
    return FL_EARG;
  if (b->control)
    return b->control(b, what, value);
  return fli_fail(FL_EARG, "the backend %s has no controls", backend);
}
