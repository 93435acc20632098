/* The table of a compiled instruction set: operator names and their kernels. */
#ifndef FL_CPU_TABLE_H
#define FL_CPU_TABLE_H

#include "../../runtime/backend.h"

typedef struct fl_cpu_entry {
  const char *name; /* NULL ends the table */
  fl_kernel kernel;
} fl_cpu_entry;

fl_status fl_cpu_open(const fl_backend_options *o, fl_backend *none,
                      fl_backend **out);

#endif
