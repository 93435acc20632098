/* NCCL's library: found, bound and old enough. */
#include "../driver/library.h"
#include "nccl.h"

#include <pthread.h>
#include <stdio.h>

static struct {
  pthread_once_t once;
  bool open;
  char where[512], why[800];
  flc_nccl_table table;
} lib = {.once = PTHREAD_ONCE_INIT};

static void nccl_library_find(void) {
  static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_nccl.def"
  };
  int version = 0;
  void *handle = flc_library_open(names, lib.where);
  lib.open =
      handle && flc_library_bind(handle, lib.where, symbols,
                                 sizeof symbols / sizeof *symbols, &lib.table);
  if (lib.open &&
      (lib.table.ncclGetVersion(&version) || version < FLC_NCCL_OLDEST)) {
    fli_fail(FL_EDEVICE, "%s is NCCL %d.%d, 2.18 is needed", lib.where,
             version / 10000, version / 100 % 100);
    lib.open = false;
  }
  if (!lib.open)
    snprintf(lib.why, sizeof lib.why,
             "%s: several GPUs need it; `pip install nvidia-nccl-cu13` or the "
             "package libnccl2 brings it",
             fl_error());
}

const flc_nccl_table *flc_nccl_get(void) {
  pthread_once(&lib.once, nccl_library_find);
  if (lib.open)
    return &lib.table;
  fli_fail(FL_EDEVICE, "%s", lib.why);
  return NULL;
}

const char *flc_nccl_path(void) {
  return lib.open ? lib.where : "";
}
