/* Ranges in the timelines of NVIDIA's tools: NVTX, found at run time when
 * ranges are first asked for. */
#include "library.h"
#include "process.h"

#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;
static char why[600];
static struct {
  int (*push)(const char *name);
  int (*pop)(void);
} nvtx;

static void nvtx_find(void) {
  static const char *const names[] = {
      "libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1", NULL};
  static const char *const symbols[] = {"nvtxRangePushA", "nvtxRangePop"};
  char where[512];
  void *handle = flc_library_open(names, where);
  there = handle && flc_library_bind(handle, where, symbols, 2, &nvtx);
  if (!there)
    snprintf(why, sizeof why, "%s", fl_error());
}

fl_status flc_range(fl_backend *b, const char *name) {
  (void)b;
  pthread_once(&once, nvtx_find);
  if (!there)
    return fli_fail(FL_EDEVICE, "NVTX: %s", why);
  if (name)
    nvtx.push(name);
  else
    nvtx.pop();
  return FL_OK;
}
