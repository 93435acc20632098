/* Finding LAPACK: FLARE_LAPACK, OpenBLAS, the system's, or MKL; looked for when
 * a factorization first runs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lapack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static fl_lapack table;
static char why[600];   /* "": the table is complete */
static atomic_int left; /* threads that nothing can stop */

/* Threads of its own would fight with the pool, which has a matrix of the batch
 * for each of its threads. A library that the host has loaded before is left as
 * the host has set it. */
static void *open_serial(const char *name) {
  void *there = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (there)
    return there;
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return NULL;
  static const char *const setters[] = {"openblas_set_num_threads",
                                        "MKL_Set_Num_Threads"};
  for (size_t i = 0; i < sizeof setters / sizeof *setters; i++) {
    void *f = dlsym(handle, setters[i]);
    void (*set)(int);
    memcpy(&set, &f, sizeof set);
    if (f)
      set(1);
  }
  return handle;
}

static void lapack_find(void) {
  static const char *const names[] = {
      "libopenblas.so.0",
      "liblapack.so.3",
      "libmkl_rt.so.2",
      "libopenblas.so",
      "liblapack.so",
      "libmkl_rt.so",
#ifdef __APPLE__
      "/System/Library/Frameworks/Accelerate.framework/Accelerate",
#endif
  };
  static const char *const symbols[] = {
#define FL_LAPACK(T, name, symbol, params) #symbol,
#include "lapack.def"
  };
  const char *own = getenv("FLARE_LAPACK");
  void *handle = NULL;
  if (own && *own) {
    if (!(handle = open_serial(own))) {
      snprintf(why, sizeof why, "FLARE_LAPACK does not open: %.400s",
               dlerror());
      return;
    }
  }
  for (size_t i = 0; i < sizeof names / sizeof *names && !handle; i++)
    handle = open_serial(names[i]);
  if (!handle) {
    snprintf(why, sizeof why,
             "no library has it here: the package liblapack3 (or libopenblas0) "
             "brings it, FLARE_LAPACK names a file");
    return;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *f = dlsym(handle, symbols[i]);
    if (!f) {
      snprintf(why, sizeof why, "the library found has no %s", symbols[i]);
      return;
    }
    memcpy((char *)&table + i * sizeof f, &f, sizeof f);
  }
}

const fl_lapack *fl_lapack_get(const char *op) {
  pthread_once(&once, lapack_find);
  if (!why[0])
    return &table;
  fli_fail(FL_EUNSUPPORTED, "%s: needs LAPACK, and %s", op, why);
  return NULL;
}

/* --- threads that outlive their caller, in LAPACK and elsewhere --- */

void fli_keep_loaded(const void *address) {
  Dl_info info;
  if (dladdr(address, &info) && info.dli_fname && *info.dli_fname)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

void fli_thread_left(int by) {
  atomic_fetch_add(&left, by);
}

int fl_threads_left(void) {
  return atomic_load(&left);
}
