/* The runtime object: opening and closing, backends and their devices, the
 * owner thread, the ring of the last launches, and small host blocks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "internal.h"
#include "math/math.h"
#include "tape/tape.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fl_status fli_check_owner(fl_runtime *rt) {
  if (FLI_LIKELY(rt->owner == fli_self()))
    return FL_OK;
  return fli_fail(FL_EOWNER, "this runtime belongs to another thread: open one "
                             "for each thread, and pass storages");
}

/* --- opening and closing --- */

static bool interrupted(void *context) {
  return fl_runtime_interrupted(context);
}

static fl_status open_backends(fl_runtime *rt) {
  int n;
  const fl_builtin_backend *list = fl_builtin_backends(&n);
  fl_backend_options o = {.threads = rt->options.threads,
                          .interrupted = interrupted,
                          .context = rt};
  for (int i = 0; i < n; i++) {
    fl_backend *b;
    FLI_TRY(list[i].open(&o, rt->cpu, &b));
    fl_status s = fl_backend_register(rt, b);
    if (s) {
      if (b->close)
        b->close(b);
      return s;
    }
    rt->owned |= 1u << (rt->n_backends - 1);
    if (i == 0)
      rt->cpu = b;
  }
  return FL_OK;
}

/* Those that this process may use. */
static int cores(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

fl_status fl_runtime_open(const fl_runtime_options *options, fl_runtime **out) {
  fl_runtime *rt = calloc(1, sizeof *rt);
  if (!rt)
    return fli_fail(FL_ENOMEM, "out of memory: a runtime");
  if (options)
    memcpy(&rt->options, options,
           options->struct_size < sizeof rt->options ? options->struct_size
                                                     : sizeof rt->options);
  if (rt->options.threads < 1)
    rt->options.threads = cores();
  rt->owner = fli_self();
  rt->grad_enabled = true;
  rt->autocast = FL_NODTYPE;
  rt->generator.seed = 0x5eed;
  fl_status s = fli_sites_open(rt);
  if (s == FL_OK)
    s = fli_alloc_open(rt);
  if (s == FL_OK)
    s = fli_ops_init(rt);
  if (s == FL_OK)
    s = fli_tape_open(rt);
  if (s == FL_OK)
    s = open_backends(rt);
  if (s) {
    fl_runtime_close(rt);
    return s;
  }
  if (rt->options.memory_limit)
    fl_memory_limit(rt, 0, rt->options.memory_limit);
  *out = rt;
  return FL_OK;
}

static void close_devices(fl_runtime *rt) {
  for (int k = rt->n_backends - 1; k >= 0; k--) {
    fl_backend *b = rt->backends[k];
    for (int i = 0; i < rt->n_devices[k]; i++)
      if (rt->streams[k][i] && b->stream_free)
        b->stream_free(b, rt->streams[k][i]);
    if (b->close && (rt->owned >> k & 1))
      b->close(b);
  }
}

void fl_runtime_close(fl_runtime *rt) {
  if (!rt)
    return;
  rt->closing = true;
  fli_autocast_forget(rt);
  fli_profile_close(rt);
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < rt->n_devices[k]; i++)
      fl_device_sync(rt, k << 8 | i);
  fl_comm_close(rt);
  if (rt->ops)
    fli_tensors_close(rt);
  fli_tape_close(rt);
  fli_marks_close(rt);
  if (!fli_lending_keeps(rt))
    fli_runtime_end(rt);
}

void fli_runtime_end(fl_runtime *rt) {
  fli_alloc_close(rt);
  fli_pins_close(rt);
  fli_streams_close(rt);
  fli_races_close(rt);
  close_devices(rt);
  for (int i = 0; i < FLI_SMALL; i++)
    for (struct fli_small *p = rt->small[i], *next; p; p = next) {
      next = *(struct fli_small **)p;
      fli_mfree(p);
    }
  fli_exprs_close(rt);
  fli_ops_close(rt);
  fli_sites_close(rt);
  free(rt->text);
  free(rt);
}

bool fl_runtime_interrupted(fl_runtime *rt) {
  return rt->options.interrupted &&
         rt->options.interrupted(rt->options.context);
}

int fl_runtime_threads(fl_runtime *rt) {
  return rt->options.threads;
}

fl_generator *fl_runtime_generator(fl_runtime *rt) {
  return &rt->generator;
}

bool fl_meta_mode(fl_runtime *rt, bool on) {
  bool was = rt->meta;
  rt->meta = on;
  return was;
}

bool fl_anomaly_mode(fl_runtime *rt, bool on) {
  bool was = rt->anomaly;
  rt->anomaly = on;
  return was;
}

fl_tensor *fl_tensor_newest(fl_runtime *rt) {
  return rt->tensors;
}

uint64_t fl_tensor_count(fl_runtime *rt) {
  return rt->n_tensors;
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
  for (int i = 0; i < rt->n_ops; i++)
    if (rt->ops[i].family != FLI_VIEW && rt->ops[i].family != FLI_COMPOSE)
      rt->ops[i].kernel[k] = b->kernel(b, rt->ops[i].info.name);
  for (fl_op *op = rt->more_ops; op; op = op->next)
    op->kernel[k] = b->kernel(b, op->kernel_name);
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
      index = fli_comm_here(rt) % n; /* ranks of a host share its devices */
    if (index < 0 || index >= n)
      return fli_fail(FL_EARG, "there is no device \"%s\": %s has %d", name,
                      rt->backends[k]->name, n);
    *d = k << 8 | (int)index;
    return FL_OK;
  }
  char list[128] = "";
  for (int k = 0; k < rt->n_backends; k++)
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
  static _Thread_local char rows[4][48];
  static _Thread_local unsigned turn;
  char *row = rows[turn++ % 4];
  if (d >> 8 >= rt->n_backends)
    return "?";
  if (rt->n_devices[d >> 8] == 1 && d == 0)
    return rt->backends[0]->name;
  snprintf(row, sizeof rows[0], "%s:%d", rt->backends[d >> 8]->name, d & 255);
  return row;
}

int fl_device_list(fl_runtime *rt, fl_device *list, int room) {
  int n = 0;
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0, have = count_devices(rt, k); i < have; i++, n++)
      if (n < room)
        list[n] = k << 8 | i;
  return n;
}

fl_backend *fl_device_backend(fl_runtime *rt, fl_device d) {
  return d >= 0 && d >> 8 < rt->n_backends ? fli_backend(rt, d) : NULL;
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
  fl_backend *b = backend_named(rt, backend);
  if (!b)
    return FL_EARG;
  if (b->query)
    return b->query(b, what, argument, text);
  return fli_fail(FL_EARG, "the backend %s tells nothing", backend);
}

fl_status fl_backend_control(fl_runtime *rt, const char *backend,
                             const char *what, double value) {
  fl_backend *b = backend_named(rt, backend);
  if (!b)
    return FL_EARG;
  if (b->control)
    return b->control(b, what, value);
  return fli_fail(FL_EARG, "the backend %s has no controls", backend);
}

/* --- the last launches --- */

fl_status fli_late_failure(fl_runtime *rt, fl_status s,
                           const fli_launch_note *n, uint64_t seq) {
  if (seq == 0 || n->seq != seq || n->site == 0)
    return s;
  char text[600];
  snprintf(text, sizeof text, "%s", fl_error());
  return fli_fail(s, "%s (launched at %s)", text, fl_site_text(rt, n->site));
}

/* A growing text owned by the runtime. */
char *fli_text(fl_runtime *rt, size_t room) {
  char *p = realloc(rt->text, room);
  if (p)
    rt->text = p;
  return p;
}

const char *fl_launches_text(fl_runtime *rt, int most) {
  if (most < 1)
    return "";
  size_t room = (size_t)(most < FLI_RING ? most : FLI_RING) * 600 + 1, at = 0;
  char *text = fli_text(rt, room);
  if (!text)
    return "";
  text[0] = 0;
  for (uint64_t seq = rt->seq; seq > 0 && most-- > 0; seq--) {
    const fli_launch_note *n = &rt->ring[seq % FLI_RING];
    if (n->seq != seq)
      break;
    at += (size_t)snprintf(text + at, room - at, "#%llu %s %.200s",
                           (unsigned long long)seq, n->op,
                           fl_site_text(rt, n->site));
    for (int k = 0; k < n->n; k++)
      at += (size_t)snprintf(
          text + at, room - at, " %s%s",
          fli_shape_text(n->ndim[k] < 4 ? n->ndim[k] : 4, n->shape[k]),
          n->ndim[k] > 4 ? "..." : "");
    at += (size_t)snprintf(text + at, room - at, "\n");
  }
  return text;
}

/* --- values --- */

double fli_half_value(fl_dtype d, uint16_t bits) {
  return d == FL_BF16 ? fl_from_bf16(bits) : fl_from_f16(bits);
}

int64_t fli_to_integer(double f) {
  return fl_to_int(f);
}
