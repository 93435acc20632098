/* NVIDIA's GPUs by NVML, which is loaded when a monitor is opened. What is
 * declared here is part of its interface since driver 410 (CUDA 10). */
#include "library.h"
#include "sensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 32 /* GPUs */

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlUtilization_t {
  unsigned gpu, memory; /* percent */
} nvmlUtilization_t;
typedef struct nvmlMemory_t {
  unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;
enum { NVML_NOT_SUPPORTED = 3 };
enum { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };

typedef struct nvml_table {
#define FLL_NVML(name, parameters) nvmlReturn_t(*name) parameters;
#include "nvml.def"
  const char *(*nvmlErrorString)(nvmlReturn_t);
} nvml_table;

enum {
  UTILISATION,
  MEMORY,
  MEMORY_TOTAL,
  TEMPERATURE,
  POWER,
  CLOCK,
  MEMORY_CLOCK,
  JOULES,
  KINDS
};
static const char *const kinds[KINDS] = {
    "utilisation", "memory", "memory_total", "temperature",
    "power",       "clock",  "memory_clock", "joules"};

typedef struct gpu {
  double total; /* bytes of memory */
  nvmlDevice_t handle;
  char name[96], uuid[96];
  int column[KINDS];             /* -1: it does not measure this */
  bool counts;                   /* its driver counts energy */
  uint64_t counter, millijoules; /* what it said last; since the opening */
  double joules, time, power;    /* otherwise: power times time up to `time` */
} gpu;

struct fll_gpus {
  void *library;
  nvml_table f;
  int n;
  gpu gpu[MOST];
};

static bool load_table(fll_gpus *g) {
  const fll_symbol all[] = {
#define FLL_NVML(name, parameters) {&g->f.name, #name},
#include "nvml.def"
      {&g->f.nvmlErrorString, "nvmlErrorString"}};
  return fll_library_bind(g->library, all, sizeof all / sizeof *all);
}

static nvmlReturn_t read_energy(fll_gpus *g, gpu *d, uint64_t *millijoules) {
  unsigned long long mj = 0;
  nvmlReturn_t e = g->f.nvmlDeviceGetTotalEnergyConsumption(d->handle, &mj);
  *millijoules = mj;
  return e;
}

/* Joules since the monitor was opened. */
static nvmlReturn_t read_joules(fll_gpus *g, gpu *d, double time, double *to) {
  uint64_t mj;
  unsigned mw;
  nvmlReturn_t e;
  if (d->counts) {
    e = read_energy(g, d, &mj);
    if (e != 0)
      return e;
    if (mj > d->counter) /* it begins anew with the driver */
      d->millijoules += mj - d->counter;
    d->counter = mj;
    *to = (double)d->millijoules * 1e-3;
    return 0;
  }
  e = g->f.nvmlDeviceGetPowerUsage(d->handle, &mw);
  if (e != 0)
    return e;
  if (d->time > 0) /* the trapezoidal rule */
    d->joules += (time - d->time) * 0.5 * (mw * 1e-3 + d->power);
  d->time = time;
  d->power = mw * 1e-3;
  *to = d->joules;
  return 0;
}

static nvmlReturn_t read_kind(fll_gpus *g, gpu *d, int kind, double time,
                              double *to) {
  nvmlUtilization_t rates;
  nvmlMemory_t memory;
  unsigned x = 0;
  nvmlReturn_t e;
  switch (kind) {
  case UTILISATION:
    e = g->f.nvmlDeviceGetUtilizationRates(d->handle, &rates);
    *to = e ? NAN : rates.gpu / 100.0;
    return e;
  case MEMORY:
    e = g->f.nvmlDeviceGetMemoryInfo(d->handle, &memory);
    *to = e ? NAN : (double)memory.used;
    d->total = e ? d->total : (double)memory.total;
    return e;
  case MEMORY_TOTAL: /* its query is that of MEMORY, before */
    *to = d->total;
    return d->total > 0 ? 0 : NVML_NOT_SUPPORTED;
  case TEMPERATURE:
    e = g->f.nvmlDeviceGetTemperature(d->handle, NVML_TEMPERATURE_GPU, &x);
    *to = e ? NAN : (double)x;
    return e;
  case POWER:
    e = g->f.nvmlDeviceGetPowerUsage(d->handle, &x);
    *to = e ? NAN : x * 1e-3;
    return e;
  case CLOCK:
  case MEMORY_CLOCK:
    e = g->f.nvmlDeviceGetClockInfo(
        d->handle, kind == CLOCK ? NVML_CLOCK_SM : NVML_CLOCK_MEM, &x);
    *to = e ? NAN : (double)x;
    return e;
  default:
    return read_joules(g, d, time, to);
  }
}

/* Columns for what the GPU measures. */
static void add_columns(fll_gpus *g, gpu *d, fll_columns *c) {
  char source[16], absent[160] = "";
  double x;
  nvmlReturn_t why = 0;
  snprintf(source, sizeof source, "cuda:%d", g->n);
  d->counts = read_energy(g, d, &d->counter) == 0;
  for (int k = 0; k < KINDS; k++) {
    nvmlReturn_t e = read_kind(g, d, k, 0, &x);
    d->column[k] = e ? -1 : fll_column_add(c, source, kinds[k]);
    if (e) {
      size_t n = strlen(absent);
      snprintf(absent + n, sizeof absent - n, "%s%s", n ? ", " : "", kinds[k]);
      why = e;
    }
  }
  if (absent[0])
    fll_column_missing(c, "%s (%s) has no %s: %s", source, d->name, absent,
                       g->f.nvmlErrorString(why));
  else if (!d->counts)
    fll_column_missing(c,
                       "%s (%s) has no counter of energy: its joules are sums "
                       "of power times time",
                       source, d->name);
}

/* Whether a word of the list names the GPU: its index, or the beginning of its
 * UUID. */
static bool is_named(const char *word, size_t n, unsigned index,
                     const char *uuid) {
  char number[16];
  snprintf(number, sizeof number, "%u", index);
  return (strlen(number) == n && strncmp(number, word, n) == 0) ||
         (n > 4 && strncmp(uuid, word, n) == 0);
}

static void add_gpu(fll_gpus *g, fll_columns *c, unsigned index,
                    nvmlDevice_t handle) {
  gpu *d = &g->gpu[g->n];
  if (g->n == MOST)
    return;
  d->handle = handle;
  if (g->f.nvmlDeviceGetName(handle, d->name, sizeof d->name) != 0)
    snprintf(d->name, sizeof d->name, "GPU %u", index);
  if (g->f.nvmlDeviceGetUUID(handle, d->uuid, sizeof d->uuid) != 0)
    d->uuid[0] = 0;
  add_columns(g, d, c);
  g->n++;
}

/* The GPUs in the order of the list, which is how CUDA numbers them. */
static void find_gpus(fll_gpus *g, fll_columns *c, const char *only) {
  unsigned count = 0;
  nvmlReturn_t e = g->f.nvmlDeviceGetCount_v2(&count);
  if (e != 0)
    fll_column_missing(c, "no GPU is measured: %s", g->f.nvmlErrorString(e));
  for (const char *word = only ? only : "*"; *word && e == 0;) {
    size_t n = strcspn(word, ",");
    bool found = false;
    for (unsigned i = 0; i < count; i++) {
      nvmlDevice_t handle;
      char uuid[96] = "";
      if (g->f.nvmlDeviceGetHandleByIndex_v2(i, &handle) != 0)
        continue;
      g->f.nvmlDeviceGetUUID(handle, uuid, sizeof uuid);
      if (only && !is_named(word, n, i, uuid))
        continue;
      found = true;
      add_gpu(g, c, i, handle);
    }
    if (only && !found)
      fll_column_missing(c,
                         "no GPU is called '%.*s': it is an index below %u "
                         "or a UUID",
                         (int)n, word, count);
    word += n + (word[n] == ',');
  }
}

static fll_gpus *give_up(fll_gpus *g) {
  if (g->library)
    dlclose(g->library);
  free(g);
  return NULL;
}

fll_gpus *fll_gpus_open(fll_columns *c, const char *library, const char *only) {
  fll_gpus *g = calloc(1, sizeof *g);
  if (!g)
    return NULL;
  g->library = fll_library_open(library, NULL);
  if (!g->library) {
    fll_column_missing(c,
                       "no GPU is measured: %s, a part of NVIDIA's driver, is "
                       "not here (containers need the driver's capability "
                       "'utility')",
                       library);
    return give_up(g);
  }
  if (!load_table(g)) {
    fll_column_missing(c, "no GPU is measured: %s is older than driver 410",
                       library);
    return give_up(g);
  }
  nvmlReturn_t e = g->f.nvmlInit_v2();
  if (e != 0) {
    fll_column_missing(c, "no GPU is measured: NVML says: %s",
                       g->f.nvmlErrorString(e));
    return give_up(g);
  }
  find_gpus(g, c, only);
  return g;
}

void fll_gpus_read(fll_gpus *g, double *row, double time, bool counters) {
  for (int i = 0; i < g->n; i++)
    for (int k = counters ? JOULES : 0; k < KINDS; k++) {
      int at = g->gpu[i].column[k];
      double x;
      if (at >= 0)
        row[at] = read_kind(g, &g->gpu[i], k, time, &x) == 0 ? x : NAN;
    }
}

const char *fll_gpus_name(const fll_gpus *g, int i, const char **uuid) {
  if (!g || i >= g->n)
    return NULL;
  *uuid = g->gpu[i].uuid;
  return g->gpu[i].name;
}

void fll_gpus_close(fll_gpus *g) {
  g->f.nvmlShutdown();
  dlclose(g->library);
  free(g);
}
