/* Calls with complex tensors. Kernels have no complex dtypes: views and
 * composed rows take such tensors as they are, rows with a mark FL_COMPLEX run
 * on pairs of reals, all others refuse them by name. */
#ifndef FL_COMPLEX_H
#define FL_COMPLEX_H

#include "../runtime.h"

void fli_complex_init(fl_runtime *rt);

#endif
