/* Finding NVIDIA's libraries: the one dlopen of CUDA. Who needs a library asks
 * for its table; nothing is loaded before. */
#include "library.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_ROOM 512

/* Where toolkits and Python's wheels put them, relative ones to the home. */
static const char *const folders[] = {
    "$CUDA_HOME/lib64",
    "$CUDA_PATH/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda-*/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/local/nvidia/lib64",
    "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/*/lib",
    "$CONDA_PREFIX/lib",
    "$HOME/.local/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "/usr/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
};

/* "$NAME/rest" becomes the variable's value and the rest; false: not set. */
static bool expand(const char *folder, char *out) {
  const char *rest = folder;
  char name[64];
  if (*folder == '$') {
    rest = strchr(folder, '/');
    size_t n = (size_t)(rest - folder) - 1;
    memcpy(name, folder + 1, n);
    name[n] = 0;
    const char *value = getenv(name);
    if (!value || !*value)
      return false;
    return snprintf(out, PATH_ROOM, "%s%s", value, rest) < PATH_ROOM;
  }
  return snprintf(out, PATH_ROOM, "%s", rest) < PATH_ROOM;
}

static void *open_in(const char *pattern, const char *name, char *where) {
  char path[PATH_ROOM + 80];
  glob_t found;
  void *handle = NULL;
  snprintf(path, sizeof path, "%s/%s", pattern, name);
  if (glob(path, 0, NULL, &found) != 0)
    return NULL;
  for (size_t i = found.gl_pathc; i-- > 0 && !handle;) {
    handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    if (handle)
      snprintf(where, PATH_ROOM, "%s", found.gl_pathv[i]);
  }
  globfree(&found);
  return handle;
}

static void *open_name(const char *name, char *where) {
  const char *own = getenv("FLARE_CUDA_PATH");
  char folder[PATH_ROOM];
  void *handle;
  for (const char *p = own; p && *p;) {
    size_t n = strcspn(p, ":");
    snprintf(folder, sizeof folder, "%.*s", (int)n, p);
    if (n && (handle = open_in(folder, name, where)))
      return handle;
    p += n + (p[n] == ':');
  }
  if ((handle = dlopen(name, RTLD_NOW | RTLD_LOCAL))) {
    snprintf(where, PATH_ROOM, "%s", name);
    return handle;
  }
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (expand(folders[i], folder) && (handle = open_in(folder, name, where)))
      return handle;
  return NULL;
}

/* FLARE_CUDA_HIDE=libnvrtc,libcudnn: as if they were not there, for tests. */
static bool hidden(const char *name) {
  const char *list = getenv("FLARE_CUDA_HIDE");
  for (size_t n; list && *list; list += n + (list[n] == ',')) {
    n = strcspn(list, ",");
    if (n && strncmp(list, name, n) == 0 && (!name[n] || name[n] == '.'))
      return true;
  }
  return false;
}

void *flc_library_open(const char *const *names, char *where) {
  where[0] = 0;
  if (hidden(names[0])) {
    fli_fail(FL_EDEVICE, "%s is hidden by FLARE_CUDA_HIDE", names[0]);
    return NULL;
  }
  for (int i = 0; names[i]; i++) {
    void *handle = open_name(names[i], where);
    if (handle)
      return handle;
  }
  fli_fail(FL_EDEVICE, "%s was not found", names[0]);
  return NULL;
}

bool flc_library_bind(void *handle, const char *where,
                      const char *const *symbols, int n, void *table) {
  for (int i = 0; i < n; i++) {
    void *f = dlsym(handle, symbols[i]);
    if (!f) {
      fli_fail(FL_EDEVICE, "%s has no %s: it is too old, or not what it claims",
               where, symbols[i]);
      return false;
    }
    memcpy((char *)table + (size_t)i * sizeof f, &f, sizeof f);
  }
  return true;
}

void flc_shared_find(flc_shared *f, const char *const *names,
                     const char *const *symbols, int n, void *table,
                     const char *hint) {
  void *handle = flc_library_open(names, f->where);
  f->open = handle && flc_library_bind(handle, f->where, symbols, n, table);
  if (!f->open)
    snprintf(f->why, sizeof f->why, "%s: %s", fl_error(), hint);
}

/* --- the tables --- */

typedef struct found {
  pthread_once_t once;
  void *handle; /* NULL: `why` says why not */
  char where[PATH_ROOM], why[2 * PATH_ROOM];
} found;

static found driver_found = {.once = PTHREAD_ONCE_INIT};
static found compiler_found = {.once = PTHREAD_ONCE_INIT};
static flc_driver driver_table;
static flc_compiler compiler_table;

static void open_found(found *f, const char *const *names, const char *hint) {
  f->handle = flc_library_open(names, f->where);
  if (!f->handle)
    snprintf(f->why, sizeof f->why, "%s%s", fl_error(), hint);
}

static void bind_found(found *f, const char *const *symbols, int n,
                       void *table) {
  if (!f->handle || flc_library_bind(f->handle, f->where, symbols, n, table))
    return;
  snprintf(f->why, sizeof f->why, "%s", fl_error());
  f->handle = NULL;
}

/* A version is looked at before the table: an old library lacks functions. */
static bool new_enough(found *f, const char *symbol, const char *what,
                       bool (*read)(void *function, int *major, int *minor)) {
  void *function = f->handle ? dlsym(f->handle, symbol) : NULL;
  int major = 0, minor = 0;
  if (!function || !read(function, &major, &minor) || major >= 12)
    return true;
  snprintf(f->why, sizeof f->why, "%.400s is %s %d.%d, 12.0 is needed",
           f->where, what, major, minor);
  return false;
}

static bool driver_version(void *function, int *major, int *minor) {
  CUresult (*get)(int *);
  int version = 0;
  memcpy(&get, &function, sizeof get);
  if (get(&version) != CUDA_SUCCESS)
    return false;
  *major = version / 1000;
  *minor = version % 1000 / 10;
  return true;
}

static bool compiler_version(void *function, int *major, int *minor) {
  nvrtcResult (*get)(int *, int *);
  memcpy(&get, &function, sizeof get);
  return get(major, minor) == 0;
}

static void find_driver(void) {
  static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
  static const char *const symbols[] = {
#define FLC_CU(ret, name, symbol, params) #symbol,
#include "dl.def"
  };
  found *f = &driver_found;
  open_found(f, names, ": there is no NVIDIA driver on this machine");
  if (!new_enough(f, "cuDriverGetVersion", "the driver of CUDA",
                  driver_version)) {
    f->handle = NULL;
    return;
  }
  bind_found(f, symbols, sizeof symbols / sizeof *symbols, &driver_table);
  if (!f->handle)
    return;
  int e = driver_table.Init(0);
  const char *text = "?";
  if (e == CUDA_SUCCESS)
    return;
  driver_table.GetErrorString(e, &text);
  snprintf(f->why, sizeof f->why, "the driver does not start: %s (%d)",
           text ? text : "?", e);
  f->handle = NULL;
}

static void find_compiler(void) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                      "libnvrtc.so", NULL};
  static const char *const symbols[] = {
#define FLC_RTC(ret, name, symbol, params) #symbol,
#include "dl.def"
  };
  found *f = &compiler_found;
  open_found(f, names,
             ": kernels that are not in the pack cannot be compiled; "
             "`pip install nvidia-cuda-nvrtc` or a CUDA toolkit brings it");
  if (new_enough(f, "nvrtcVersion", "NVRTC", compiler_version))
    bind_found(f, symbols, sizeof symbols / sizeof *symbols, &compiler_table);
  else
    f->handle = NULL;
}

static const void *table_of(found *f, void (*look)(void), const void *table) {
  pthread_once(&f->once, look);
  if (f->handle)
    return table;
  fli_fail(FL_EDEVICE, "%s", f->why);
  return NULL;
}

const flc_driver *flc_driver_get(void) {
  return table_of(&driver_found, find_driver, &driver_table);
}

const flc_compiler *flc_compiler_get(void) {
  return table_of(&compiler_found, find_compiler, &compiler_table);
}

const char *flc_driver_path(void) {
  return driver_found.handle ? driver_found.where : "";
}

const char *flc_compiler_path(void) {
  return compiler_found.handle ? compiler_found.where : "";
}
