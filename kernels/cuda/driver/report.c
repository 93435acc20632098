/* The backend's answers in text: which device, driver and libraries there
 * are and what a missing one would bring; every built-in kernel compiled, with
 * its registers and spills; the pack, written. */
#include "../vendor/cublaslt.h"
#include "../vendor/nccl.h"
#include "autotune.h"
#include "../vendor/cudnn.h"
#include "process.h"
#include "../vendor/cusolver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct text {
  char *at;
  size_t n, room;
} text;

static void say(text *t, const char *format, ...) FL_PRINTF(2, 3);

static void say(text *t, const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (n >= (int)sizeof line)
    n = (int)sizeof line - 1;
  if (t->n + (size_t)n + 1 > t->room) {
    size_t room = t->room * 2 + (size_t)n + 256;
    char *more = realloc(t->at, room);
    if (!more)
      return;
    t->at = more;
    t->room = room;
  }
  memcpy(t->at + t->n, line, (size_t)n + 1);
  t->n += (size_t)n;
}

/* --- doctor --- */

/* The message without the device that it begins with. */
static const char *reason(void) {
  const char *colon = strstr(fl_error(), ": ");
  return colon ? colon + 2 : fl_error();
}

static void tell_devices(text *t) {
  int n = flc_devices();
  if (n < 0) {
    say(t, "cuda     no: %s\n", reason());
    return;
  }
  int version = 0;
  flc_cu->DriverGetVersion(&version);
  say(t, "driver   CUDA %d.%d (%s)\n", version / 1000, version % 1000 / 10,
      flc_driver_path());
  for (int i = 0; i < n; i++) {
    const flc_device *d = flc_device_open(i);
    if (!d)
      say(t, "cuda:%d   no: %s\n", i, reason());
    else
      say(t, "cuda:%d   %s, %s, %d multiprocessors, %.1f GiB\n", i, d->name,
          d->arch, d->chip.processors, (double)d->memory / (1 << 30));
  }
}

static void tell_library(text *t, const char *name, const char *path, int major,
                         int minor) {
  if (path[0])
    say(t, "%-8s %d.%d (%s)\n", name, major, minor, path);
  else
    say(t, "%-8s no: %s\n", name, fl_error());
}

static void tell_libraries(text *t) {
  const flc_compiler *rtc = flc_compiler_get();
  int major = 0, minor = 0;
  if (rtc)
    rtc->Version(&major, &minor);
  tell_library(t, "nvrtc", flc_compiler_path(), major, minor);
  const flc_blas_table *blas = flc_blas_get();
  int version = blas ? (int)blas->cublasLtGetVersion() : 0;
  tell_library(t, "cublasLt", flc_blas_path(), version / 10000,
               version / 100 % 100);
  const flc_cublas_table *cublas = flc_cublas_get();
  major = minor = 0;
  if (cublas) {
    cublas->cublasGetProperty(MAJOR_VERSION, &major);
    cublas->cublasGetProperty(MINOR_VERSION, &minor);
  }
  tell_library(t, "cublas", flc_cublas_path(), major, minor);
  const flc_cusolver_table *solver = flc_cusolver_get();
  version = 0;
  if (solver)
    solver->cusolverGetVersion(&version);
  tell_library(t, "cusolver", flc_cusolver_path(), version / 1000,
               version / 100 % 10);
  const flc_fft_table *fft = flc_fft_get();
  version = 0;
  if (fft)
    fft->cufftGetVersion(&version);
  tell_library(t, "cufft", flc_fft_path(), version / 1000, version / 100 % 10);
  const flc_dnn_table *dnn = flc_dnn_get();
  version = dnn ? (int)dnn->cudnnGetVersion() : 0;
  tell_library(t, "cudnn", flc_dnn_path(), version / 10000,
               version / 100 % 100);
  const flc_nccl_table *nccl = flc_nccl_get();
  version = 0;
  if (nccl)
    nccl->ncclGetVersion(&version);
  tell_library(t, "nccl", flc_nccl_path(), version / 10000,
               version / 100 % 100);
  if (flc_pack_path()[0])
    say(t, "pack     %llu kernels (%s)\n", (unsigned long long)flc_pack_count(),
        flc_pack_path());
  else
    say(t, "pack     no: kernels are compiled when first used; "
           "`flare kernels --pack sm_90a` makes one\n");
}

/* --- all kernels --- */

/* Every specialisation once, in the order of the visits. */
typedef struct collector {
  flc_visitor visitor;
  flc_spec *specs;
  size_t n, room;
  bool quick, failed;
  const char *files; /* those wanted, " softmax sort "; NULL: all */
} collector;

static bool wanted(const collector *c, const flc_spec *s) {
  char name[80];
  snprintf(name, sizeof name, " %s ", s->file);
  return !c->files || strstr(c->files, name);
}

static void collect(flc_visitor *v, const flc_spec *s, bool quick) {
  collector *c = (collector *)v;
  if ((c->quick && !quick) || !wanted(c, s))
    return;
  if (c->n == c->room) {
    size_t room = c->room ? c->room * 2 : 512;
    flc_spec *more = realloc(c->specs, room * sizeof *more);
    if (!more) {
      c->failed = true;
      return;
    }
    c->specs = more;
    c->room = room;
  }
  c->specs[c->n++] = *s;
}

/* Specialisations of one source and text are compiled together. */
static int by_source(const void *a, const void *b) {
  const flc_spec *x = a, *y = b;
  int c = strcmp(x->file, y->file);
  if (c == 0)
    c = strcmp(x->text ? x->text : "", y->text ? y->text : "");
  if (c == 0)
    c = strcmp(x->entry, y->entry);
  for (int i = 0; i < FLC_SPEC_ARGS && c == 0; i++)
    c = x->t[i] - y->t[i];
  return c;
}

#define TOGETHER 8

static int group_at(const collector *c, size_t i) {
  int n = 1;
  const flc_spec *s = &c->specs[i];
  while (i + (size_t)n < c->n && n < TOGETHER &&
         strcmp(s[n].file, s->file) == 0 &&
         strcmp(s[n].text ? s[n].text : "", s->text ? s->text : "") == 0)
    n++;
  return n;
}

/* Threads take the next group from a counter. */
typedef struct job {
  const collector *all;
  const char *arch;
  size_t next;
  char (*notes)[FLC_NOTE]; /* one for each, or NULL */
  flc_pack *pack;          /* where images go, or NULL */
  fl_status status;
  char message[512];
} job;

static fl_status compile_group(job *j, size_t i, int n) {
  char entries[TOGETHER][FLC_ENTRY];
  void *image;
  size_t bytes;
  const flc_spec *specs = &j->all->specs[i];
  fl_status s = flc_compile(j->arch, specs, n, &image, &bytes, entries,
                            j->notes ? &j->notes[i] : NULL);
  if (s)
    return s;
  if (!j->pack) {
    free(image);
    return FL_OK;
  }
  return flc_pack_add(j->pack, j->arch, specs, n, image, bytes, entries);
}

static void *work(void *context) {
  job *j = context;
  for (;;) {
    pthread_mutex_lock(&flc_lock);
    size_t i = j->next;
    int n = i < j->all->n && !j->status ? group_at(j->all, i) : 0;
    j->next += (size_t)n;
    pthread_mutex_unlock(&flc_lock);
    if (n == 0)
      return NULL;
    fl_status s = compile_group(j, i, n);
    pthread_mutex_lock(&flc_lock);
    if (s && !j->status) {
      j->status = s;
      snprintf(j->message, sizeof j->message, "%s", fl_error());
    }
    pthread_mutex_unlock(&flc_lock);
  }
}

static fl_status run_all(job *j) {
  pthread_t threads[64];
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int n = cores < 1 ? 1 : cores > 64 ? 64 : (int)cores, started = 0;
  while (started < n - 1 &&
         pthread_create(&threads[started], NULL, work, j) == 0)
    started++;
  work(j);
  while (started)
    pthread_join(threads[--started], NULL);
  return j->status ? fli_fail(j->status, "%s", j->message) : FL_OK;
}

static fl_status gather(collector *c, bool quick, const char *files) {
  *c = (collector){.visitor = {collect}, .quick = quick, .files = files};
  flc_visit_all(&c->visitor);
  if (c->failed) {
    free(c->specs);
    return fli_fail(FL_ENOMEM, "out of memory: a list of kernels");
  }
  qsort(c->specs, c->n, sizeof *c->specs, by_source);
  return FL_OK;
}

/* "sm_90a [quick] [list] [in softmax sort ]": a line for each kernel; with
 * "list" none is compiled, and lines have their keys where notes would be. */
static fl_status check(const char *argument, text *t) {
  char arch[16];
  collector all;
  size_t n = strcspn(argument, " ");
  const char *more = argument + n, *files = strstr(more, " in ");
  bool list = strstr(more, " list") != NULL;
  snprintf(arch, sizeof arch, "%.*s", (int)n, argument);
  fl_status s =
      gather(&all, strstr(more, " quick") != NULL, files ? files + 3 : NULL);
  if (s)
    return s;
  job j = {.all = &all, .arch = arch};
  j.notes = calloc(all.n + 1, sizeof *j.notes);
  s = !j.notes ? fli_fail(FL_ENOMEM, "out of memory: a report")
      : list   ? FL_OK
               : run_all(&j);
  for (size_t i = 0; i < all.n && s == FL_OK; i++) {
    char entry[160];
    uint64_t key[2];
    flc_spec_text(&all.specs[i], entry, sizeof entry);
    const char *row = all.specs[i].text ? all.specs[i].text : "";
    flc_pack_key(arch, &all.specs[i], key);
    if (list)
      snprintf(j.notes[i], FLC_NOTE, "%016llx%016llx",
               (unsigned long long)key[0], (unsigned long long)key[1]);
    say(t, "%s\t%s\t%s\t%.*s\n", all.specs[i].file, entry, j.notes[i],
        (int)strcspn(row, "\n"), row);
  }
  free(j.notes);
  free(all.specs);
  return s;
}

/* The kernels that are loaded: what core.def calls each, and its name. */
static fl_status loaded(text *t) {
  flc_device *d = flc_device_open(0);
  if (!d)
    return FL_EDEVICE;
  say(t, "%s", "");
  pthread_mutex_lock(&flc_lock);
  for (size_t i = 0; i < d->room; i++) {
    char entry[160];
    if (!d->functions[i])
      continue;
    const flc_spec *s = &d->functions[i]->spec;
    flc_spec_text(s, entry, sizeof entry);
    say(t, "0x%08x %s %s\n", flc_core_key(s), s->file, entry);
  }
  pthread_mutex_unlock(&flc_lock);
  return FL_OK;
}

/* "sm_80,sm_90a path" */
static fl_status pack(const char *argument, text *t) {
  const char *path = strchr(argument, ' ');
  collector all;
  uint64_t bytes = 0;
  int archs = 0;
  if (!path)
    return fli_fail(FL_EARG, "kernels: architectures and a file are needed");
  fl_status s = gather(&all, false, NULL);
  if (s)
    return s;
  flc_pack *p = flc_pack_new();
  if (!p)
    s = fli_fail(FL_ENOMEM, "out of memory: a pack");
  for (const char *at = argument; at < path && s == FL_OK; archs++) {
    char arch[16];
    size_t n = strcspn(at, ", ");
    snprintf(arch, sizeof arch, "%.*s", (int)n, at);
    job j = {.all = &all, .arch = arch, .pack = p};
    s = run_all(&j);
    at += n + 1;
  }
  if (s == FL_OK)
    s = flc_pack_write(p, path + 1, &bytes);
  if (s == FL_OK)
    say(t, "%s: %zu kernels for %d architectures, %.1f MiB\n", path + 1, all.n,
        archs, (double)bytes / (1 << 20));
  flc_pack_free(p);
  free(all.specs);
  return s;
}

fl_status flc_query(fl_backend *b, const char *what, const char *argument,
                    char **out) {
  text t = {0};
  fl_status s = FL_OK;
  (void)b;
  if (strcmp(what, "available") == 0) {
    if (flc_devices() < 0)
      s = FL_EDEVICE;
    say(&t, "yes");
  } else if (strcmp(what, "doctor") == 0) {
    tell_devices(&t);
    tell_libraries(&t);
  } else if (strcmp(what, "settings") == 0) {
    for (int i = 0; i < FLC_SETTINGS; i++)
      say(&t, "%s %d\n", flc_setting_name((flc_setting)i),
          flc_setting_of((flc_setting)i));
  } else if (strcmp(what, "check") == 0)
    s = check(argument, &t);
  else if (strcmp(what, "pack") == 0)
    s = pack(argument, &t);
  else if (strcmp(what, "loaded") == 0)
    s = loaded(&t);
  else
    s = fli_fail(FL_EARG,
                 "cuda cannot tell \"%s\"; it knows available, doctor, "
                 "settings, check, pack, loaded",
                 what);
  if (s == FL_OK && !t.at)
    s = fli_fail(FL_ENOMEM, "out of memory: a report");
  if (s) {
    free(t.at);
    return s;
  }
  *out = t.at;
  return FL_OK;
}
