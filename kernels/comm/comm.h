/* What the files of this folder share: memory that the ranks of one host have
 * in common, and the arithmetic of reductions. */
#ifndef FL_KERNELS_COMM_H
#define FL_KERNELS_COMM_H

#include "../../runtime/comm.h"

/* Shared memory by a name made of the job's key and `what`, of zeros at first,
 * for this user alone. All of it is there: no write to it can fail. */
fl_status fl_segment_open(const char *key, const char *what, size_t bytes,
                          void **memory);
void fl_segment_close(void *memory, size_t bytes);
/* Nobody will find it any more; who has it keeps it. */
void fl_segment_forget(const char *key, const char *what);

double fl_comm_now(void); /* seconds */

/* out[i] = parts[0][i], parts[1][i], ... reduced in this order and rounded
 * once; `mean_of`: what a mean is divided by, 0: not yet. `out` may be one of
 * the parts. */
void fl_comm_fold(fl_dtype d, fl_comm_reduce reduce, size_t n, int n_parts,
                  const void *const *parts, int mean_of, void *out);

#endif
