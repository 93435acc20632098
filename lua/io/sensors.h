/* What a machine measures of itself, as columns of numbers: /proc and RAPL
 * (sensors.c), NVIDIA's GPUs (nvml.c). No Lua here: a thread reads them. */
#ifndef FLL_SENSORS_H
#define FLL_SENSORS_H

#include <stdbool.h>
#include <stddef.h>

#define FLL_SENSOR_NAME 48
#define FLL_SENSORS     320 /* columns at most */

typedef struct fll_columns {
  int n;
  char name[FLL_SENSORS][FLL_SENSOR_NAME];
  char missing[4096]; /* lines: what is not measured, and why */
} fll_columns;

/* Adds a column "source/what"; -1: there are too many. */
int fll_column_add(fll_columns *c, const char *source, const char *what);
void fll_column_missing(fll_columns *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct fll_gpus fll_gpus;

/* GPUs by NVML. `only`: a list of indices and UUIDs with commas between, or
 * NULL for all. NULL: there are none, and `c` says why. */
fll_gpus *fll_gpus_open(fll_columns *c, const char *library, const char *only);
void fll_gpus_read(fll_gpus *g, double *row, double time, bool counters);
/* The name of GPU i, NULL after the last. */
const char *fll_gpus_name(const fll_gpus *g, int i, const char **uuid);
void fll_gpus_close(fll_gpus *g);

typedef struct fll_sensors fll_sensors;

typedef struct fll_sensor_options {
  const char *root;    /* of /proc and /sys */
  const char *library; /* libnvidia-ml */
  const char *gpus;    /* as for fll_gpus_open */
  long process;        /* 0: this one */
} fll_sensor_options;

/* NULL: out of memory. Column 0 is the time in seconds. */
fll_sensors *fll_sensors_open(const fll_sensor_options *o);
const fll_columns *fll_sensors_columns(const fll_sensors *s);
const fll_gpus *fll_sensors_gpus(const fll_sensors *s);
/* Fills a row; NaN where nothing was read. `counters`: the time and the
 * joules alone, which takes some microseconds. One thread at a time. */
void fll_sensors_read(fll_sensors *s, double *row, bool counters);
/* `forked`: in a child, where NVML is the parent's. */
void fll_sensors_close(fll_sensors *s, bool forked);

#endif
