/* Complex tensors meet the dispatcher here. Kernels know nothing of them: views
 * and composed rows take them as they are, and the rows that complex.c knows
 * run on their parts instead; all others refuse them by name. */
#ifndef FL_COMPLEX_H
#define FL_COMPLEX_H

#include "../runtime.h"

void fli_complex_init(fl_runtime *rt);

#endif
