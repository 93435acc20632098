/* Numbers beside tensors (number.c): what fits a dtype, and calls made exact.
 */
#ifndef FL_NUMBER_H
#define FL_NUMBER_H

#include "ops.h"

/* Neither floats nor bool. */
static inline bool fli_is_integer(fl_dtype d) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (uint32_t)(FL_KIND_##kind == FL_KIND_INT ||                                \
               FL_KIND_##kind == FL_KIND_UINT)                                 \
          << FL_##NAME
  return (0
#include "../dtype.def"
          ) >>
             (d & 31) &
         1;
}

/* Whether a number can be an element of integer dtype d; others take any. */
fl_status fli_number_fits(const char *op, bool inplace, const fl_operand *o,
                          fl_dtype d);
/* The same of all numbers among a call's inputs. */
fl_status fli_numbers_fit(const fl_call *c, int n, const fl_operand *in,
                          fl_dtype d);
/* A number as a 0-d view for a kernel that computes in dtype d, FL_NODTYPE: in
 * its own. */
void fli_view_number(const fl_operand *o, fl_dtype d, fl_view *v);
/* The lower or the upper bound of clamp; false: there is none. */
bool fli_clamp_bound(const fl_attrs *a, bool lower, fl_operand *bound);
/* A comparison of integers with the real `number` as one with an integer. */
void fli_compare_exactly(int *id, fl_operand *number, bool number_first);
/* The attribute of a `number` parameter. */
fl_operand fli_attr_operand(const fl_attrs *a, const fl_param *p);

#endif
