/* Small helpers on views and positions that do not depend on the instruction
 * set; compiled once. */
#include "cpu.h"

#include "../../runtime/math/math.h"

#include <string.h>

static double float_at(const fl_view *v) {
  uint16_t h;
  float f;
  double d;
  switch (v->dtype) {
  case FL_F64:
    memcpy(&d, v->data, sizeof d);
    return d;
  case FL_F32:
    memcpy(&f, v->data, sizeof f);
    return f;
  default:
    memcpy(&h, v->data, sizeof h);
    return v->dtype == FL_F16 ? fl_from_f16(h) : fl_from_bf16(h);
  }
}

static int64_t int_at(const fl_view *v) {
  switch (v->dtype) {
  case FL_I64:
    return *(const int64_t *)v->data;
  case FL_I32:
    return *(const int32_t *)v->data;
  case FL_I16:
    return *(const int16_t *)v->data;
  case FL_I8:
    return *(const int8_t *)v->data;
  default:
    return *(const uint8_t *)v->data;
  }
}

double fl_cpu_scalar(const fl_view *v) {
  return fl_dtype_is_float(v->dtype) ? float_at(v) : (double)int_at(v);
}

int64_t fl_cpu_scalar_int(const fl_view *v) {
  return fl_dtype_is_float(v->dtype) ? fl_to_int(float_at(v)) : int_at(v);
}

fl_status fl_cpu_bad_position(const fl_launch *l, int64_t shifted,
                              int64_t bound) {
  int64_t given = shifted + l->base;
  return fli_fail(FL_EINDEX, "%s: position %lld is out of range %d..%lld%s",
                  l->op, (long long)given, l->base,
                  (long long)(bound - 1 + l->base),
                  given == 0 && l->base == 1
                      ? ": positions count from 1; for data that counts from "
                        "0 say base = 0"
                      : "");
}
