/* What a capture refuses: the first refusal is kept, because it makes the
 * capture fail even if the caller goes on after the error. */
#include "capture.h"

#include <stdio.h>

fl_status fli_capture_fails(fl_runtime *rt, const char *what) {
  fli_capture *k = rt->capture;
  fl_status s = fli_fail(FL_EUNSUPPORTED, "%s%sa graph cannot capture %s",
                         k->op ? k->op : "", k->op ? ": " : "", what);
  if (!k->failed) {
    k->failed = s;
    snprintf(k->why, sizeof k->why, "%s", fl_error());
  }
  return s;
}
