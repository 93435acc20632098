/* The host's figures: use of the processor and of memory by /proc, energy by
 * the counters of RAPL in /sys/class/powercap. */
#include "sensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DOMAINS 32 /* of RAPL */
#define TICKS   5  /* of each core, below which use is not measured anew */

typedef struct domain {
  char path[PATH_MAX];
  uint64_t last, range; /* microjoules; the counter begins anew at range */
} domain;

struct fll_sensors {
  fll_columns columns;
  fll_gpus *gpus; /* NULL: none */
  char stat[PATH_MAX], meminfo[PATH_MAX], process[PATH_MAX];
  int host, own, energy; /* the first columns; -1: none */
  int cores;
  uint64_t busy, all, used; /* ticks: of the host, of the process */
  double cpu, process_cpu;
  domain domain[DOMAINS];
  int domains;
  uint64_t microjoules; /* since the monitor was opened */
  double joules, time, power;
};

int fll_column_add(fll_columns *c, const char *source, const char *what) {
  if (c->n == FLL_SENSORS)
    return -1;
  snprintf(c->name[c->n], sizeof *c->name, "%s%s%s", source, *what ? "/" : "",
           what);
  return c->n++;
}

void fll_column_missing(fll_columns *c, const char *format, ...) {
  size_t n = strlen(c->missing);
  va_list list;
  va_start(list, format);
  vsnprintf(c->missing + n, sizeof c->missing - n, format, list);
  va_end(list);
  n = strlen(c->missing);
  if (n + 1 < sizeof c->missing)
    memcpy(c->missing + n, "\n", 2);
}

/* The beginning of a file as text; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
  int e = errno;
  if (fd >= 0)
    close(fd);
  errno = e;
  text[n > 0 ? n : 0] = 0;
  return n >= 0;
}

static bool read_number(const char *path, uint64_t *n) {
  char text[64], *end;
  if (!read_text(path, text, sizeof text))
    return false;
  *n = strtoull(text, &end, 10);
  errno = EINVAL;
  return end != text;
}

static void join(char *to, const char *root, const char *path) {
  if (snprintf(to, PATH_MAX, "%s%s", root, path) >= PATH_MAX)
    to[0] = 0;
}

/* --- /proc --- */

/* Ticks of all cores together: those in which they worked, and all. */
static bool read_stat(fll_sensors *s, uint64_t *busy, uint64_t *all) {
  char text[512];
  unsigned long long t[8] = {0}; /* user nice system idle iowait irq ... */
  if (!read_text(s->stat, text, sizeof text) ||
      sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1],
             &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
    return false;
  *all = 0;
  for (int k = 0; k < 8; k++)
    *all += t[k];
  *busy = *all - t[3] - t[4];
  return true;
}

static bool read_process(fll_sensors *s, uint64_t *ticks, double *bytes) {
  char text[1024];
  unsigned long long user, system, pages;
  if (!read_text(s->process, text, sizeof text))
    return false;
  const char *at = strrchr(text, ')'); /* the name may hold spaces */
  if (!at || sscanf(at,
                    ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu "
                    "%*d %*d %*d %*d %*d %*d %*u %*u %llu",
                    &user, &system, &pages) != 3)
    return false;
  *ticks = user + system;
  *bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
  return true;
}

static double line_of(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at ? strtod(at + strlen(name), NULL) * 1024 : NAN;
}

/* Use of the processor since it was last measured: ticks say both how much and
 * how long. */
static void read_use(fll_sensors *s, double *row) {
  uint64_t busy, all, used;
  double bytes = NAN;
  bool own = read_process(s, &used, &bytes);
  if (!read_stat(s, &busy, &all)) {
    row[s->host] = NAN;
    return;
  }
  if ((int64_t)(all - s->all) >= TICKS * s->cores) {
    double time = (double)(all - s->all);
    if (s->all) {
      s->cpu = (double)(busy - s->busy) / time;
      s->process_cpu = own ? (double)(used - s->used) / time * s->cores : NAN;
    }
    s->busy = busy;
    s->all = all;
    s->used = used;
  }
  row[s->host] = s->cpu;
  if (s->own >= 0) {
    row[s->own] = own ? s->process_cpu : NAN;
    row[s->own + 1] = bytes;
  }
}

static void read_memory(fll_sensors *s, double *row) {
  char text[2048];
  double total = NAN, available = NAN;
  if (read_text(s->meminfo, text, sizeof text)) {
    total = line_of(text, "MemTotal:");
    available = line_of(text, "MemAvailable:");
  }
  row[s->host + 1] = total - available;
  row[s->host + 2] = total;
}

static int count_cores(const fll_sensors *s) {
  int n = 0;
  size_t size = 1 << 20; /* thousands of cores */
  char *text = malloc(size);
  if (text && read_text(s->stat, text, size))
    for (const char *at = text; (at = strstr(at, "\ncpu")); at++)
      n++;
  free(text);
  return n ? n : 1;
}

static void open_proc(fll_sensors *s, const fll_sensor_options *o) {
  char name[64];
  uint64_t busy, all, ticks;
  double bytes;
  join(s->stat, o->root, "/proc/stat");
  join(s->meminfo, o->root, "/proc/meminfo");
  snprintf(name, sizeof name, o->process ? "/proc/%ld/stat" : "/proc/self/stat",
           o->process);
  join(s->process, o->root, name);
  s->host = s->own = -1;
  s->cpu = s->process_cpu = NAN;
  if (!read_stat(s, &busy, &all)) {
    fll_column_missing(&s->columns, "no use of the host is measured: %s: %s",
                       s->stat, strerror(errno));
    return;
  }
  s->cores = count_cores(s);
  s->host = fll_column_add(&s->columns, "host", "cpu");
  fll_column_add(&s->columns, "host", "memory");
  fll_column_add(&s->columns, "host", "memory_total");
  if (!read_process(s, &ticks, &bytes)) {
    fll_column_missing(&s->columns, "the process is not measured: %s: %s",
                       s->process, strerror(errno));
    return;
  }
  s->own = fll_column_add(&s->columns, "process", "cores");
  fll_column_add(&s->columns, "process", "memory");
}

/* --- RAPL --- */

/* Adds what a folder of powercap counts: packages, and their memory, which is
 * not part of them. False: the folder is not there. */
static bool add_domain(fll_sensors *s, const char *root, const char *name) {
  char path[PATH_MAX], folder[128], kind[64];
  domain *d = &s->domain[s->domains];
  snprintf(folder, sizeof folder, "/sys/class/powercap/%s/name", name);
  join(path, root, folder);
  if (!read_text(path, kind, sizeof kind))
    return false;
  if ((strncmp(kind, "package", 7) != 0 && strncmp(kind, "dram", 4) != 0) ||
      s->domains == DOMAINS)
    return true;
  snprintf(folder, sizeof folder, "/sys/class/powercap/%s/max_energy_range_uj",
           name);
  join(path, root, folder);
  if (!read_number(path, &d->range))
    d->range = 0;
  snprintf(folder, sizeof folder, "/sys/class/powercap/%s/energy_uj", name);
  join(d->path, root, folder);
  if (read_number(d->path, &d->last))
    s->domains++;
  else
    fll_column_missing(&s->columns,
                       "the energy of %.*s is not measured: %s: "
                       "%s%s",
                       (int)strcspn(kind, "\n"), kind, d->path, strerror(errno),
                       errno == EACCES ? " (root lets others read it by chmod "
                                         "a+r)"
                                       : "");
  return true;
}

static void open_rapl(fll_sensors *s, const char *root) {
  char name[64];
  bool any = false;
  s->energy = -1;
  for (int k = 0; k < DOMAINS; k++) {
    snprintf(name, sizeof name, "intel-rapl:%d", k);
    if (!add_domain(s, root, name))
      break;
    any = true;
    for (int j = 0; j < DOMAINS; j++) {
      snprintf(name, sizeof name, "intel-rapl:%d:%d", k, j);
      if (!add_domain(s, root, name))
        break;
    }
  }
  if (s->domains) {
    s->energy = fll_column_add(&s->columns, "host", "power");
    fll_column_add(&s->columns, "host", "joules");
  } else if (!any)
    fll_column_missing(
        &s->columns,
        "the host's energy is not measured: %s/sys/class/"
        "powercap has no intel-rapl (virtual machines have none)",
        root);
}

static void read_rapl(fll_sensors *s, double *row) {
  for (int k = 0; k < s->domains; k++) {
    domain *d = &s->domain[k];
    uint64_t now;
    if (!read_number(d->path, &now))
      continue;
    s->microjoules += now >= d->last ? now - d->last : now + d->range - d->last;
    d->last = now;
  }
  row[s->energy + 1] = (double)s->microjoules * 1e-6;
}

/* Power since the row before. */
static void read_power(fll_sensors *s, double *row) {
  double joules = row[s->energy + 1];
  if (s->time > 0 && row[0] > s->time)
    s->power = (joules - s->joules) / (row[0] - s->time);
  s->time = row[0];
  s->joules = joules;
  row[s->energy] = s->power;
}

/* --- all --- */

fll_sensors *fll_sensors_open(const fll_sensor_options *o) {
  fll_sensors *s = calloc(1, sizeof *s);
  if (!s)
    return NULL;
  s->power = NAN;
  fll_column_add(&s->columns, "time", "");
  open_proc(s, o);
  open_rapl(s, o->root);
  s->gpus = fll_gpus_open(&s->columns, o->library, o->gpus);
  return s;
}

const fll_columns *fll_sensors_columns(const fll_sensors *s) {
  return &s->columns;
}

const fll_gpus *fll_sensors_gpus(const fll_sensors *s) {
  return s->gpus;
}

void fll_sensors_read(fll_sensors *s, double *row, bool counters) {
  struct timespec t;
  for (int k = 0; k < s->columns.n; k++)
    row[k] = NAN;
  clock_gettime(CLOCK_MONOTONIC, &t);
  row[0] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
  if (s->energy >= 0)
    read_rapl(s, row);
  if (s->gpus)
    fll_gpus_read(s->gpus, row, row[0], counters);
  if (counters)
    return;
  if (s->energy >= 0)
    read_power(s, row);
  if (s->host >= 0) {
    read_use(s, row);
    read_memory(s, row);
  }
}

void fll_sensors_close(fll_sensors *s, bool forked) {
  if (s && s->gpus && !forked)
    fll_gpus_close(s->gpus);
  free(s);
}
