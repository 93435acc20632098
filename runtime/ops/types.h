/* Which dtypes a row's parameters take. */
#ifndef FL_OPS_TYPES_H
#define FL_OPS_TYPES_H

#include "ops.h"

static inline bool fli_type_fits(fl_param_type want, fl_dtype d) {
  switch (want) {
  case FL_T_ANY:
    return fl_dtype_is_real(d);
  case FL_T_NUM:
    return fli_is_float(d) || fl_dtype_is_int(d);
  case FL_T_FLOAT:
    return fli_is_float(d);
  case FL_T_INT:
    return fl_dtype_is_int(d) || d == FL_BOOL;
  case FL_T_BOOL:
    return d == FL_BOOL || d == FL_U8;
  case FL_T_COMPLEX:
    return fli_is_complex(d);
  default:
    return d == FL_I64 || d == FL_I32;
  }
}

/* Whether parameter p of a row takes a complex tensor as it is. */
bool fli_complex_passes(const fl_op *op, int p, fl_dtype d);
/* FL_EDTYPE: input k (-1: a result) must not be of dtype d. */
fl_status fli_wrong_type(const fl_op *op, int k, fl_dtype d);

#endif
