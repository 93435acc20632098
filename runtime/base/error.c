/* Messages of failures, names of statuses and dtypes, and the promotion of
 * dtypes: what the tables status.def and dtype.def say. */
#include "../internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

fl_status fli_fail(fl_status s, const char *format, ...) {
  char text[sizeof message]; /* an argument may be the old message */
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(message, text, sizeof message);
  return s;
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

fl_status fli_told(const char *name, fl_status s) {
  size_t n = strlen(name);
  bool known = strncmp(message, name, n) == 0 &&
               !isalnum((unsigned char)message[n]) && message[n] != '_';
  return known || s > FL_EUNSUPPORTED ? s
                                      : fli_fail(s, "%s: %s", name, message);
}

fl_status fli_no_tensor(const fl_op *op) {
  const fl_op_info *info = &op->info;
  for (int k = 0; k < info->n_params; k++)
    if (info->params[k].kind == FL_P_TENSOR)
      return fli_fail(FL_EARG, "%s: %s must be a tensor, got a number: %s",
                      info->name, info->params[k].name, info->signature);
  return FL_EARG;
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

#define BOOL  FL_KIND_BOOL
#define UINT  FL_KIND_UINT
#define INT   FL_KIND_INT
#define FLOAT FL_KIND_FLOAT
static const struct {
  const char *name;
  uint8_t size, kind;
} dtypes[] = {
#define FL_DTYPE(NAME, name, T, size, kind, C)   {#name, size, kind},
#define FL_DTYPE_COMPLEX(NAME, name, part, size) {#name, size, FL_KIND_COMPLEX},
#include "../dtype.def"
};
#undef BOOL
#undef UINT
#undef INT
#undef FLOAT

size_t fl_dtype_size(fl_dtype d) {
  return (unsigned)d < FL_DTYPES ? dtypes[d].size : 0;
}

const char *fl_dtype_name(fl_dtype d) {
  return (unsigned)d < FL_DTYPES ? dtypes[d].name : "none";
}

fl_kind fl_dtype_kind(fl_dtype d) {
  return (unsigned)d < FL_DTYPES ? (fl_kind)dtypes[d].kind : FL_KIND_BOOL;
}

/* The smallest type that holds both: the higher kind wins; within a kind the
 * wider; f16 with bf16 gives f32, u8 with i8 gives i16. */
fl_dtype fli_promote(fl_dtype a, fl_dtype b) {
  if (a == b || b == FL_NODTYPE)
    return a;
  if (a == FL_NODTYPE)
    return b;
  fl_kind ka = fl_dtype_kind(a), kb = fl_dtype_kind(b);
  if (ka == FL_KIND_COMPLEX || kb == FL_KIND_COMPLEX)
    return a == FL_C128 || b == FL_C128 || a == FL_F64 || b == FL_F64 ? FL_C128
                                                                      : FL_C64;
  if (ka == FL_KIND_FLOAT || kb == FL_KIND_FLOAT) {
    if (ka != kb)
      return ka == FL_KIND_FLOAT ? a : b;
    if (fl_dtype_size(a) == fl_dtype_size(b))
      return FL_F32; /* f16 and bf16 */
    return fl_dtype_size(a) > fl_dtype_size(b) ? a : b;
  }
  if (ka == FL_KIND_BOOL || kb == FL_KIND_BOOL)
    return ka == FL_KIND_BOOL ? b : a;
  if ((a == FL_U8 && b == FL_I8) || (a == FL_I8 && b == FL_U8))
    return FL_I16;
  if (fl_dtype_size(a) == fl_dtype_size(b))
    return ka == FL_KIND_INT ? a : b;
  return fl_dtype_size(a) > fl_dtype_size(b) ? a : b;
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
