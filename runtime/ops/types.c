/* See types.h. */
#include "types.h"

bool fli_complex_passes(const fl_op *op, int p, fl_dtype d) {
  return fli_is_complex(d) && op->in_type[p] == FL_T_ANY &&
         (op->family == FLI_VIEW || op->family == FLI_COMPOSE);
}

fl_status fli_wrong_type(const fl_op *op, int k, fl_dtype d) {
  static const char *const wants[] = {"any dtype", "numbers",
                                      "floats",    "integers",
                                      "bool",      "positions (i64 or i32)",
                                      "complex",   "positions (i64 or i32)"};
  int p = k < op->info.n_in ? k : op->info.n_in;
  if (k < 0 || (fli_is_complex(d) && op->in_type[p] < FL_T_INT))
    return fli_fail(FL_EDTYPE, "%s: does not %s %s yet", op->info.name,
                    k < 0 ? "make" : "take", fl_dtype_name(d));
  return fli_fail(FL_EDTYPE, "%s: input %d is %s, but must be %s",
                  op->info.name, k + 1, fl_dtype_name(d),
                  wants[op->in_type[p]]);
}
