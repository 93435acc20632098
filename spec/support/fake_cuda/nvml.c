/* NVML whose GPUs are the lines of the file "gpus" beside this library, which
 * every call reads anew: uuid, use in percent, bytes of memory used and of all,
 * degrees, milliwatts, MHz of SMs and of memory, millijoules; - is not
 * supported. A first line "error N" is what nvmlInit_v2 returns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_SUPPORTED = 3, LOST = 15, FIELDS = 9 };

typedef struct fake {
  char field[FIELDS][64];
} fake;

static int lines;

static FILE *open_gpus(void) {
  char path[4096];
  Dl_info here;
  dladdr((void *)open_gpus, &here);
  snprintf(path, sizeof path, "%s", here.dli_fname);
  strcpy(strrchr(path, '/'), "/gpus");
  return fopen(path, "r");
}

static int read_gpu(unsigned index, fake *g) {
  FILE *f = open_gpus();
  char line[512];
  int found = LOST;
  lines = 0;
  while (f && fgets(line, sizeof line, f)) {
    fake here;
    char(*x)[64] = here.field;
    if (sscanf(line, "%63s %63s %63s %63s %63s %63s %63s %63s %63s", x[0], x[1],
               x[2], x[3], x[4], x[5], x[6], x[7], x[8]) != FIELDS)
      continue;
    if ((unsigned)lines++ == index) {
      *g = here;
      found = 0;
    }
  }
  if (f)
    fclose(f);
  return found;
}

static int read_field(void *device, int k, unsigned long long *to) {
  fake g;
  int e = read_gpu((unsigned)(size_t)device - 1, &g);
  if (e || strcmp(g.field[k], "-") == 0)
    return e ? e : NOT_SUPPORTED;
  *to = strtoull(g.field[k], NULL, 10);
  return 0;
}

static int read_small(void *device, int k, unsigned *to) {
  unsigned long long x = 0;
  int e = read_field(device, k, &x);
  *to = (unsigned)x;
  return e;
}

int nvmlInit_v2(void) {
  FILE *f = open_gpus();
  int e = 0;
  if (f && fscanf(f, "error %d", &e) != 1)
    e = 0;
  if (f)
    fclose(f);
  return e;
}

int nvmlShutdown(void) {
  return 0;
}

const char *nvmlErrorString(int e) {
  return e == NOT_SUPPORTED ? "Not Supported"
         : e == 9           ? "Driver Not Loaded"
                            : "GPU is lost";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  fake g;
  read_gpu(0, &g);
  *count = (unsigned)lines;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (void *)(size_t)(index + 1);
  return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  snprintf(name, size, "Fake GPU %u", (unsigned)(size_t)device - 1);
  return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  fake g;
  int e = read_gpu((unsigned)(size_t)device - 1, &g);
  if (e == 0)
    snprintf(uuid, size, "%s", g.field[0]);
  return e;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *gpu_and_memory) {
  return read_small(device, 1, gpu_and_memory);
}

/* total, free, used */
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  int e = read_field(device, 2, &memory[2]);
  return e ? e : read_field(device, 3, &memory[0]);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  return sensor == 0 ? read_small(device, 4, celsius) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  return read_small(device, 5, milliwatts);
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *megahertz) {
  return clock == 1   ? read_small(device, 6, megahertz)
         : clock == 2 ? read_small(device, 7, megahertz)
                      : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
  return read_field(device, 8, mj);
}
