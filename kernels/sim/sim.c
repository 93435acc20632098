/* The sim backend's table, its devices' memory and its controls. Memory is the
 * host's, but its addresses are shifted out of what a process can have: host
 * code that reads a device's memory faults at once, as it would with a GPU's.
 * Order, launches and copies are in stream.c. */
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHIFT  ((uintptr_t)1 << 55) /* no user address has this bit */
#define FILLED ((size_t)2 << 20)    /* bytes of new memory made NaN */
#define PART   ((size_t)64 << 10)   /* a multiple of the host's pages */

struct fl_sim_memory {
  fl_sim_memory *next;
  char *real;
  size_t bytes;
  bool range; /* addresses, which may be without memory */
};

static fl_sim *sim_of(fl_backend *b) {
  return b->state;
}

/* --- memory --- */

void *fl_sim_real(fl_sim *s, int device, const void *p) {
  uintptr_t a = (uintptr_t)p;
  if (!(a & SHIFT))
    return NULL;
  char *real = (char *)(a ^ SHIFT);
  pthread_mutex_lock(&s->lock);
  fl_sim_memory *m = s->memory[device];
  while (m && (real < m->real || real > m->real + m->bytes))
    m = m->next;
  pthread_mutex_unlock(&s->lock);
  return m ? real : NULL;
}

static size_t physical_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : SIZE_MAX;
}

static fl_status sim_alloc(fl_backend *b, int device, size_t bytes,
                           void **memory) {
  fl_sim *s = sim_of(b);
  pthread_mutex_lock(&s->lock);
  size_t used = s->used[device], limit = s->memory_limit;
  pthread_mutex_unlock(&s->lock);
  if (limit && (used > limit || bytes > limit - used))
    return fli_fail(FL_ENOMEM,
                    "sim:%d: %zu bytes asked for, %zu of %zu are in use",
                    device, bytes, used, limit);
  fl_sim_memory *m = malloc(sizeof *m);
  void *real = NULL;
  if (!m || posix_memalign(&real, FL_ALIGN, bytes ? bytes : 1)) {
    free(m);
    return fli_fail(FL_ENOMEM, "sim:%d: the host has no %zu bytes", device,
                    bytes);
  }
  /* all ones is NaN in every float type: unwritten elements show */
  memset(real, 0xff, bytes < FILLED ? bytes : FILLED);
  pthread_mutex_lock(&s->lock);
  *m = (fl_sim_memory){s->memory[device], real, bytes, false};
  s->memory[device] = m;
  s->used[device] += bytes;
  pthread_mutex_unlock(&s->lock);
  *memory = (void *)((uintptr_t)real | SHIFT);
  return FL_OK;
}

/* Waits, as a driver does: work that is under way may use the memory. */
static void sim_release(fl_backend *b, int device, void *memory, size_t bytes) {
  fl_sim *s = sim_of(b);
  void *real = (void *)((uintptr_t)memory ^ SHIFT);
  pthread_mutex_lock(&s->lock);
  fl_sim_wait_all(s);
  for (fl_sim_memory **m = &s->memory[device]; *m; m = &(*m)->next)
    if ((*m)->real == real) {
      fl_sim_memory *gone = *m;
      *m = gone->next;
      free(gone);
      free(real);
      s->used[device] -= bytes;
      break;
    }
  pthread_mutex_unlock(&s->lock);
}

/* Without memory, addresses cannot be read or written. */
static fl_status sim_reserve(fl_backend *b, int device, size_t bytes,
                             void **at) {
  fl_sim *s = sim_of(b);
  fl_sim_memory *m = malloc(sizeof *m);
  void *real = m ? mmap(NULL, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                 : MAP_FAILED;
  if (real == MAP_FAILED) {
    free(m);
    return fli_fail(FL_ENOMEM, "sim:%d: no addresses for %zu bytes", device,
                    bytes);
  }
  pthread_mutex_lock(&s->lock);
  *m = (fl_sim_memory){s->memory[device], real, bytes, true};
  s->memory[device] = m;
  pthread_mutex_unlock(&s->lock);
  *at = (void *)((uintptr_t)real | SHIFT);
  return FL_OK;
}

static void memory_free(fl_sim_memory *m) {
  if (m->range)
    munmap(m->real, m->bytes);
  else
    free(m->real);
  free(m);
}

static void sim_unreserve(fl_backend *b, int device, void *at, size_t bytes) {
  fl_sim *s = sim_of(b);
  char *real = (char *)((uintptr_t)at ^ SHIFT);
  (void)bytes;
  pthread_mutex_lock(&s->lock);
  for (fl_sim_memory **m = &s->memory[device]; *m; m = &(*m)->next)
    if ((*m)->real == real) {
      fl_sim_memory *gone = *m;
      *m = gone->next;
      memory_free(gone);
      break;
    }
  pthread_mutex_unlock(&s->lock);
}

static fl_status sim_remap(fl_backend *b, int device, void *to, void *from,
                           size_t bytes) {
  fl_sim *s = sim_of(b);
  void *here = (void *)((uintptr_t)to ^ SHIFT);
  void *gone = (void *)((uintptr_t)from ^ SHIFT);
  pthread_mutex_lock(&s->lock);
  size_t used = s->used[device], limit = s->memory_limit;
  if (!from && limit && (used > limit || bytes > limit - used)) {
    pthread_mutex_unlock(&s->lock);
    return fli_fail(FL_ENOMEM,
                    "sim:%d: %zu bytes asked for, %zu of %zu are in use",
                    device, bytes, used, limit);
  }
  if (from)
    fl_sim_wait_all(s);
  if (to && mprotect(here, bytes, PROT_READ | PROT_WRITE)) {
    pthread_mutex_unlock(&s->lock);
    return fli_fail(FL_ENOMEM, "sim:%d: the host has no %zu bytes", device,
                    bytes);
  }
  if (from) {
    madvise(gone, bytes, MADV_DONTNEED);
    mprotect(gone, bytes, PROT_NONE);
  }
  if (to)
    memset(here, 0xff, bytes < FILLED ? bytes : FILLED);
  s->used[device] += to ? bytes : 0;
  s->used[device] -= from ? bytes : 0;
  pthread_mutex_unlock(&s->lock);
  return FL_OK;
}

static fl_status sim_host_alloc(fl_backend *b, size_t bytes, void **memory) {
  (void)b;
  if (posix_memalign(memory, FL_ALIGN, bytes ? bytes : 1))
    return fli_fail(FL_ENOMEM, "sim: the host has no %zu bytes", bytes);
  return FL_OK;
}

static void sim_host_free(fl_backend *b, void *memory) {
  (void)b;
  free(memory);
}

static fl_status sim_memory_info(fl_backend *b, int device, size_t *free_bytes,
                                 size_t *total_bytes) {
  fl_sim *s = sim_of(b);
  pthread_mutex_lock(&s->lock);
  size_t used = s->used[device];
  *total_bytes = s->memory_limit ? s->memory_limit : physical_memory();
  pthread_mutex_unlock(&s->lock);
  *free_bytes = *total_bytes > used ? *total_bytes - used : 0;
  return FL_OK;
}

/* --- the table --- */

static int sim_device_count(fl_backend *b) {
  return sim_of(b)->devices;
}

/* Whether `word` is one of a list with commas. */
static bool sim_listed(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == 0))
      return true;
  }
  return false;
}

static fl_kernel sim_kernel(fl_backend *b, const char *op) {
  fl_backend *cpu = sim_of(b)->cpu;
  return sim_listed(getenv("FLARE_SIM_WITHOUT"), op) ? NULL
                                                     : cpu->kernel(cpu, op);
}

fl_status fl_sim_control(fl_backend *b, const char *what, double value) {
  fl_sim *s = sim_of(b);
  if (b->control != fl_sim_control)
    return fli_fail(FL_EARG, "%s is not a sim backend", b->name);
  fl_status status = FL_OK;
  pthread_mutex_lock(&s->lock);
  if (strcmp(what, "memory_limit") == 0)
    s->memory_limit = value > 0 ? (size_t)value : 0;
  else if (strcmp(what, "delay_us") == 0)
    s->delay_us = value > 0 ? (int64_t)value : 0;
  else if (strcmp(what, "fault") == 0)
    s->fault = value >= 0 ? (int64_t)value : -1;
  else if (strcmp(what, "compiling") == 0)
    s->compiling = (int64_t)value;
  else if (strcmp(what, "revive") == 0) {
    fl_sim_wait_all(s);
    for (fl_stream *k = s->streams; k; k = k->next) {
      k->status = FL_OK;
      atomic_store(&k->failed, false);
    }
  } else
    status = fli_fail(FL_EARG,
                      "sim has no control \"%s\"; it has memory_limit, "
                      "delay_us, fault, revive, compiling",
                      what);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static fl_status sim_prepare(fl_backend *b, fl_kernel k, const fl_launch *l,
                             bool *ready) {
  fl_sim *s = sim_of(b);
  (void)k;
  pthread_mutex_lock(&s->lock);
  int64_t left = s->compiling;
  s->compiling -= left > 0 ? 1 : left < -1 ? -1 : 0;
  pthread_mutex_unlock(&s->lock);
  *ready = left == 0;
  return left != -1
             ? FL_OK
             : fli_fail(FL_EDEVICE, "sim: %s cannot be compiled, as was wished",
                        l->op);
}

static void sim_close(fl_backend *b) {
  fl_sim *s = sim_of(b);
  fl_sim_streams_close(s);
  for (int i = 0; i < s->devices; i++)
    for (fl_sim_memory *m = s->memory[i], *next; m; m = next) {
      next = m->next;
      memory_free(m);
    }
  pthread_cond_destroy(&s->progress);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static double wish(const char *name, double otherwise) {
  const char *text = getenv(name);
  char *end;
  double value = text ? fli_strtod(text, &end) : 0;
  return text && end != text ? value : otherwise;
}

fl_status fl_sim_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);

/* Cheap: threads start with the first work on a device. */
fl_status fl_sim_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b) {
  (void)o;
  fl_sim *s = calloc(1, sizeof *s);
  if (!s)
    return fli_fail(FL_ENOMEM, "out of memory: the sim backend");
  double devices = wish("FLARE_SIM_DEVICES", 2);
  s->devices = devices > FL_SIM_DEVICES ? FL_SIM_DEVICES
               : devices < 1            ? 1
                                        : (int)devices;
  s->memory_limit = (size_t)fmax(wish("FLARE_SIM_MEMORY", 0), 0);
  s->delay_us = (int64_t)fmax(wish("FLARE_SIM_DELAY_US", 0), 0);
  s->compiling = (int64_t)wish("FLARE_SIM_COMPILING", 0);
  s->fault = -1;
  s->cpu = cpu;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->progress, NULL);
  s->table = (fl_backend){
      .struct_size = sizeof(fl_backend),
      .name = "sim",
      .flags = FL_BACKEND_ASYNC,
      .state = s,
      .device_count = sim_device_count,
      .kernel = sim_kernel,
      .launch = fl_sim_launch,
      .alloc = sim_alloc,
      .release = sim_release,
      .memory_info = sim_memory_info,
      .part = PART,
      .reserve = sim_reserve,
      .unreserve = sim_unreserve,
      .remap = sim_remap,
      .copy = fl_sim_copy,
      .stream_new = fl_sim_stream_new,
      .stream_free = fl_sim_stream_free,
      .stream_sync = fl_sim_stream_sync,
      .stream_peek = fl_sim_stream_peek,
      .event_new = fl_sim_event_new,
      .event_free = fl_sim_event_free,
      .event_record = fl_sim_event_record,
      .event_wait = fl_sim_event_wait,
      .event_done = fl_sim_event_done,
      .event_elapsed = fl_sim_event_elapsed,
      .host_alloc = sim_host_alloc,
      .host_free = sim_host_free,
      .close = sim_close,
      .control = fl_sim_control,
      .stream_handle = fl_sim_stream_handle,
      .capture_begin = fl_sim_capture_begin,
      .capture_end = fl_sim_capture_end,
      .exec_launch = fl_sim_exec_launch,
      .exec_free = fl_sim_exec_free,
      .exec_update = fl_sim_exec_update,
      .exec_fixed = fl_sim_exec_fixed,
      .prepare = sim_prepare,
  };
  *b = &s->table;
  return FL_OK;
}
