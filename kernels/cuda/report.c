/* What the backend tells in words: which device, driver and libraries there
 * are and what a missing one would bring; every built-in kernel compiled, with
 * its registers and spills; the pack, written. */
#include "process.h"

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

static void tell_devices(text *t) {
  int n = flc_devices();
  if (n < 0) {
    say(t, "cuda     no: %s\n", fl_error() + strlen("cuda: "));
    return;
  }
  int version = 0;
  flc_cu->DriverGetVersion(&version);
  say(t, "driver   CUDA %d.%d (%s)\n", version / 1000, version % 1000 / 10,
      flc_driver_path());
  for (int i = 0; i < n; i++) {
    const flc_device *d = flc_device_open(i);
    if (!d)
      say(t, "cuda:%d   no: %s\n", i, fl_error());
    else
      say(t, "cuda:%d   %s, %s, %d multiprocessors, %.1f GiB\n", i, d->name,
          d->arch, d->chip.processors, (double)d->memory / (1 << 30));
  }
}

static void tell_libraries(text *t) {
  const flc_compiler *rtc = flc_compiler_get();
  int major = 0, minor = 0;
  if (rtc) {
    rtc->Version(&major, &minor);
    say(t, "nvrtc    %d.%d (%s)\n", major, minor, flc_compiler_path());
  } else
    say(t, "nvrtc    no: %s\n", fl_error());
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
} collector;

static void collect(flc_visitor *v, const flc_spec *s, bool quick) {
  collector *c = (collector *)v;
  if (c->quick && !quick)
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

/* Compiling takes a core each: threads take the next one from a counter. */
typedef struct job {
  const collector *all;
  const char *arch;
  size_t next;
  flc_binary *out;   /* one for each, or NULL */
  char (*logs)[200]; /* one for each, or NULL */
  fl_status status;
  char message[512];
} job;

static void *work(void *context) {
  job *j = context;
  for (;;) {
    size_t i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);
    if (i >= j->all->n || j->status)
      return NULL;
    flc_binary b;
    fl_status s =
        flc_compile(j->arch, &j->all->specs[i], &b, j->logs ? j->logs[i] : NULL,
                    j->logs ? sizeof j->logs[i] : 0);
    pthread_mutex_lock(&flc_lock);
    if (s && !j->status) {
      j->status = s;
      snprintf(j->message, sizeof j->message, "%s", fl_error());
    }
    pthread_mutex_unlock(&flc_lock);
    if (s)
      return NULL;
    if (j->out)
      j->out[i] = b;
    else
      free(b.owned);
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

static fl_status gather(collector *c, bool quick) {
  *c = (collector){.visitor = {collect}, .quick = quick};
  flc_visit_all(&c->visitor);
  if (!c->failed)
    return FL_OK;
  free(c->specs);
  return fli_fail(FL_ENOMEM, "out of memory: a list of kernels");
}

/* "sm_90a" or "sm_90a quick": a line for each kernel. */
static fl_status check(const char *argument, text *t) {
  char arch[16];
  collector all;
  snprintf(arch, sizeof arch, "%.*s", (int)strcspn(argument, " "), argument);
  fl_status s = gather(&all, strstr(argument, " quick") != NULL);
  if (s)
    return s;
  job j = {.all = &all, .arch = arch};
  j.logs = calloc(all.n + 1, sizeof *j.logs);
  s = j.logs ? run_all(&j) : fli_fail(FL_ENOMEM, "out of memory: a report");
  for (size_t i = 0; i < all.n && s == FL_OK; i++) {
    char entry[160];
    flc_spec_text(&all.specs[i], entry, sizeof entry);
    say(t, "%s\t%s\t%s\n", all.specs[i].file, entry, j.logs[i]);
  }
  free(j.logs);
  free(all.specs);
  return s;
}

static fl_status add_arch(flc_pack *p, const collector *all, const char *arch) {
  job j = {.all = all, .arch = arch};
  j.out = calloc(all->n + 1, sizeof *j.out);
  if (!j.out)
    return fli_fail(FL_ENOMEM, "out of memory: a pack");
  fl_status s = run_all(&j);
  for (size_t i = 0; i < all->n; i++) {
    uint64_t key[2];
    if (s) {
      free(j.out[i].owned);
      continue;
    }
    flc_pack_key(arch, &all->specs[i], key);
    s = flc_pack_add(p, key, &j.out[i]);
  }
  free(j.out);
  return s;
}

/* "sm_80,sm_90a path" */
static fl_status pack(const char *argument, text *t) {
  const char *path = strchr(argument, ' ');
  collector all;
  uint64_t bytes = 0;
  if (!path)
    return fli_fail(FL_EARG, "kernels: architectures and a file are needed");
  fl_status s = gather(&all, false);
  if (s)
    return s;
  flc_pack *p = flc_pack_new();
  if (!p)
    s = fli_fail(FL_ENOMEM, "out of memory: a pack");
  int archs = 0;
  for (const char *at = argument; at < path && s == FL_OK; archs++) {
    char arch[16];
    size_t n = strcspn(at, ", ");
    snprintf(arch, sizeof arch, "%.*s", (int)n, at);
    s = add_arch(p, &all, arch);
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
  } else if (strcmp(what, "check") == 0)
    s = check(argument, &t);
  else if (strcmp(what, "pack") == 0)
    s = pack(argument, &t);
  else
    s = fli_fail(FL_EARG,
                 "cuda cannot tell \"%s\"; it knows available, doctor, check, "
                 "pack",
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
