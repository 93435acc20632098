/* Error messages, the names of statuses (status.def), shapes as text. */
#include "base.h"

#include "../tile.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];
static _Thread_local uint64_t failed_of; /* 0: the launch that says it */

fl_status fli_fail(fl_status s, const char *format, ...) {
  char text[sizeof message]; /* an argument may be the old message */
  va_list args;
  va_start(args, format);
  fli_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(message, text, sizeof message);
  failed_of = 0;
  return s;
}

void fli_fail_of(uint64_t seq) {
  failed_of = seq;
}

uint64_t fli_failed_of(uint64_t seq) {
  return failed_of ? failed_of : seq;
}

fl_status fli_check_sized(const char *where, const char *type,
                          const void *given) {
  if (!given || *(const size_t *)given >= sizeof(size_t))
    return FL_OK;
  return fli_fail(FL_EARG, "%s: struct_size of %s is %zu; set it to sizeof(%s)",
                  where, type, *(const size_t *)given, type);
}

fl_status fli_fail_matrix(const char *op, fl_matrix_fault f, int64_t which,
                          int base, int number) {
  char name[48] = "the matrix", why[80];
  if (which >= 0)
    snprintf(name, sizeof name, "matrix %lld of the batch",
             (long long)which + base);
  switch (f) {
  case FL_MATRIX_SINGULAR:
    snprintf(why, sizeof why, "is singular: pivot %d is zero", number);
    break;
  case FL_MATRIX_DIAGONAL:
    snprintf(why, sizeof why, "is singular: element %d of its diagonal is zero",
             number);
    break;
  case FL_MATRIX_INDEFINITE:
    snprintf(why, sizeof why,
             "is not positive definite: its leading minor of order %d is not "
             "positive",
             number);
    break;
  case FL_MATRIX_STRANGE:
    snprintf(why, sizeof why, "has an inf or NaN");
    break;
  default:
    return fli_fail(FL_EARG, "%s: no convergence for %s (%d)", op, name,
                    number);
  }
  return fli_fail(FL_EARG, "%s: %s %s", op, name, why);
}

const char *fl_error(void) {
  return message;
}

fl_status fli_check_count(const char *function, const char *what, int n) {
  return n >= 0 ? FL_OK : fli_fail(FL_EARG, "%s: %s is %d", function, what, n);
}

fl_status fli_told(const char *name, fl_status s) {
  size_t n = strlen(name);
  bool known = strncmp(message, name, n) == 0 &&
               !isalnum((unsigned char)message[n]) && message[n] != '_';
  return known || s > FL_EUNSUPPORTED ? s
                                      : fli_fail(s, "%s: %s", name, message);
}

static const char *const status_names[] = {
#define FL_STATUS(NAME, text) #NAME,
#include "../status.def"
};
static const char *const status_texts[] = {
#define FL_STATUS(NAME, text) text,
#include "../status.def"
};

const char *fl_status_name(fl_status s) {
  return (unsigned)s < FL_STATUSES ? status_names[s] : "?";
}

const char *fl_status_text(fl_status s) {
  return (unsigned)s < FL_STATUSES ? status_texts[s] : "unknown status";
}

int fl_api_version(void) {
  return FL_API_VERSION;
}

const char *fli_shape_text(int ndim, const int64_t *shape) {
  static _Thread_local char rows[8][FL_MAX_DIMS * 22 + 4];
  static _Thread_local unsigned turn;
  char *row = rows[turn++ % 8];
  size_t at = 0, room = sizeof rows[0];
  at += (size_t)snprintf(row, room, "(");
  for (int i = 0; i < ndim; i++)
    at += (size_t)snprintf(row + at, room - at, i ? ", %lld" : "%lld",
                           (long long)shape[i]);
  snprintf(row + at, room - at, ")");
  return row;
}
