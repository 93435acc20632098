/* Backends in shared objects: loaded by path, opened by the name of a function,
 * registered like any other; and functions of other shared objects. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "memory.h"

#include <dlfcn.h>
#include <string.h>

typedef fl_backend *(*open_fn)(fl_backend *cpu);

/* What is loaded needs our functions (fli_fail). They are global when they are
 * the program's, but not when a Lua module brought us. */
static void export_ourselves(void) {
  Dl_info us;
  if (dladdr((void *)(uintptr_t)fl_backend_load, &us) && us.dli_fname)
    dlopen(us.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

fl_status fl_backend_load(fl_runtime *rt, const char *path) {
  FLI_NEED(rt, "rt");
  FLI_NEED(path, "path");
  FLI_TRY(fli_check_owner(rt));
  export_ourselves();
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object)
    return fli_fail(FL_EFILE, "backend: %s", dlerror());
  open_fn open;
  void *symbol = dlsym(object, "flare_backend_open");
  if (!symbol) {
    dlclose(object);
    return fli_fail(FL_EARG, "backend: %s has no function flare_backend_open",
                    path);
  }
  memcpy(&open, &symbol, sizeof open); /* ISO C has no such cast */
  fli_fail(FL_OK, "%s", "");
  fl_backend *b = open(rt->cpu);
  fl_status s = FL_EARG;
  if (!b && !*fl_error())
    fli_fail(s, "backend: %s did not open", path);
  if (b && (s = fl_backend_register(rt, b)) != FL_OK && b->close)
    b->close(b);
  if (s) {
    dlclose(object);
    return s;
  }
  rt->owned |= 1u << (rt->n_backends - 1);
  return FL_OK;
}

static fl_status load_find(const char *who, const char *path, const char *name,
                           void *function) {
  export_ourselves();
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object)
    return fli_fail(FL_EFILE, "%s: %s", who, dlerror());
  void *symbol = name ? dlsym(object, name) : NULL;
  if (!symbol)
    return fli_fail(FL_EARG, "%s: %s has no function %s", who, path,
                    name ? name : "(symbol is missing)");
  memcpy(function, &symbol, sizeof symbol);
  return FL_OK;
}

fl_status fli_library_symbol(const char *path, const char *name,
                             void *function) {
  return load_find("op.register", path, name, function);
}

fl_status fli_engine_symbol(const char *path, void *function) {
  return load_find("collectives", path, "flare_comm_open", function);
}
