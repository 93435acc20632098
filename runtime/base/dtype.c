/* Dtypes: names, sizes and kinds (dtype.def), promotion, conversions. */
#include "../math/math.h"
#include "base.h"

#include <string.h>

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
  return (unsigned)d < FLI_DTYPES ? dtypes[d].size : 0;
}

const char *fl_dtype_name(fl_dtype d) {
  return (unsigned)d < FLI_DTYPES ? dtypes[d].name : "none";
}

fl_kind fl_dtype_kind(fl_dtype d) {
  return (unsigned)d < FLI_DTYPES ? (fl_kind)dtypes[d].kind : FL_KIND_BOOL;
}

fl_dtype fl_dtype_find(const char *name) {
  for (int d = 0; name && d < FLI_DTYPES; d++)
    if (strcmp(dtypes[d].name, name) == 0)
      return (fl_dtype)d;
  return FL_NODTYPE;
}

int fl_dtype_count(void) {
  return FLI_DTYPES;
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

double fli_half_value(fl_dtype d, uint16_t bits) {
  return d == FL_BF16 ? fl_from_bf16(bits) : fl_from_f16(bits);
}

int64_t fli_to_integer(double f) {
  return fl_to_int(f);
}
