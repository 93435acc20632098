/* Numbers beside integer tensors: which ones fit a dtype, how comparisons with
 * them stay exact, and integer bounds of clamp. */
#include "number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TWO63 9223372036854775808.0

/* The least and the largest value of an integer dtype. */
static void range_of(fl_dtype d, int64_t *low, int64_t *high) {
  int bits = 8 * (int)fl_dtype_size(d);
  bool uint = fl_dtype_kind(d) == FL_KIND_UINT;
  *high = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - !uint)) - 1;
  *low = uint ? 0 : -*high - 1;
}

fl_status fli_number_fits(const char *op, bool inplace, const fl_operand *o,
                          fl_dtype d) {
  int64_t low, high;
  char text[40];
  if (!fli_is_integer(d) || o->dtype == FL_BOOL ||
      (o->dtype == FL_I64 && d == FL_I64))
    return FL_OK;
  range_of(d, &low, &high);
  if (o->dtype == FL_I64 && o->i >= low && o->i <= high)
    return FL_OK;
  /* the comparison is false for NaN */
  if (o->dtype == FL_F64 && trunc(o->f) >= (double)low &&
      (d == FL_I64 ? o->f < TWO63 : trunc(o->f) <= (double)high))
    return FL_OK;
  if (o->dtype == FL_I64)
    snprintf(text, sizeof text, "%lld", (long long)o->i);
  else
    snprintf(text, sizeof text, "%g", o->f);
  return fli_fail(FL_EARG, "%s%s: %s does not fit %s (%lld..%lld)", op,
                  inplace ? "_" : "", text, fl_dtype_name(d), (long long)low,
                  (long long)high);
}

fl_status fli_numbers_fit(const fl_call *c, int n, const fl_operand *in,
                          fl_dtype d) {
  for (int k = 0; k < n; k++)
    if (!in[k].tensor && in[k].dtype != FL_NODTYPE)
      FLI_TRY(fli_number_fits(c->op->info.name, c->inplace, &in[k], d));
  return FL_OK;
}

/* Elementwise calls compute in d; results of others may take the number's own
 * dtype. */
void fli_view_number(const fl_operand *o, fl_dtype d, fl_view *v) {
  bool own = d == FL_NODTYPE;
  double f = o->dtype == FL_F64 ? o->f : (double)o->i;
  int64_t i = o->dtype == FL_F64 ? fli_to_integer(o->f) : o->i;
  d = own ? o->dtype : d;
  if (d == FL_BOOL && own)
    i = i != 0; /* its first byte, then */
  else if (fl_dtype_kind(d) != FL_KIND_FLOAT)
    d = FL_I64;
  else if (d != FL_F64)
    d = FL_F32; /* 16-bit floats compute in f32 anyway */
  float single = (float)f;
  v->data = v->imm;
  v->dtype = d;
  v->ndim = 0;
  memcpy(v->imm,
         d == FL_F64   ? (void *)&f
         : d == FL_F32 ? (void *)&single
                       : (void *)&i,
         d == FL_F32 ? 4 : 8);
}

/* --- comparisons --- */

enum { LESS = 1, EQUAL = 2, GREATER = 4 };

static const struct {
  int id, holds; /* for a less than b, equal to it, greater */
} orders[] = {
#define FL_ORDER(name, holds) {FLI_OP_##name, holds},
#include "../ops.def"
};

static int mirror(int holds) {
  return (holds & EQUAL) | (holds & LESS ? GREATER : 0) |
         (holds & GREATER ? LESS : 0);
}

/* x < f is x < i for i = ceil(f), x <= f is x <= floor(f), and so on. Beyond
 * i64 the answer is the same for every x: `never` is x < INT64_MIN, `always`
 * x >= INT64_MIN. */
void fli_compare_exactly(int *id, fl_operand *number, bool number_first) {
  double f = number->f;
  int holds = 0;
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
    if (orders[k].id == *id)
      holds = number_first ? mirror(orders[k].holds) : orders[k].holds;
  bool less = holds & LESS, equal = holds & EQUAL;
  double whole = less != equal ? ceil(f) : floor(f);
  bool always, never;
  if (less == !!(holds & GREATER)) { /* == or != */
    bool has = whole == f && whole >= -TWO63 && whole < TWO63;
    always = less && !has;
    never = equal && !has;
  } else {
    always = less ? whole >= TWO63 : whole < -TWO63;
    never = f != f || (less ? whole < -TWO63 : whole >= TWO63);
  }
  number->dtype = FL_I64;
  number->i = always || never ? INT64_MIN : (int64_t)whole;
  if (always)
    holds = GREATER | EQUAL;
  else if (never)
    holds = LESS;
  if (number_first)
    holds = mirror(holds);
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
    if (orders[k].holds == holds)
      *id = orders[k].id;
}

/* --- clamp --- */

fl_operand fli_attr_operand(const fl_attrs *a, const fl_param *p) {
  int64_t whole;
  if (fl_attr_whole(a, p->slot, p->whole, &whole))
    return (fl_operand){.dtype = FL_I64, .i = whole};
  return (fl_operand){.dtype = FL_F64, .f = a->v[p->slot].f};
}

/* A bound of clamp as an integer; false: it bounds nothing. Real bounds are
 * rounded inwards, so that results lie between them. */
bool fli_clamp_bound(const fl_attrs *a, bool lower, fl_operand *bound) {
  int real = lower ? FL_ATTR_clamp_min : FL_ATTR_clamp_max;
  int whole = lower ? FL_WHOLE_clamp_min : FL_WHOLE_clamp_max;
  double f = a->v[real].f;
  bound->tensor = NULL;
  bound->dtype = FL_I64;
  if (fl_attr_whole(a, real, whole, &bound->i))
    return true;
  f = lower ? ceil(f) : floor(f);
  if (f != f || (lower ? f <= -TWO63 : f >= TWO63))
    return false;
  bound->i = fli_to_integer(f);
  return true;
}
