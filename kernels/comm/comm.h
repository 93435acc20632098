/* Shared by the files of this folder: shared memory segments of the ranks of
 * one host, and the arithmetic of reductions. */
#ifndef FL_KERNELS_COMM_H
#define FL_KERNELS_COMM_H

#include "../../runtime/comm.h"

/* Opens or creates the segment named by the job's key and `what`, for this user
 * only. A new one is zeroed. Its pages are allocated, so no write can fail. */
fl_status fl_segment_open(const char *key, const char *what, size_t bytes,
                          void **memory);
void fl_segment_close(void *memory, size_t bytes);
/* Unlinks the name; processes that have opened the segment keep it. */
void fl_segment_forget(const char *key, const char *what);

double fl_comm_now(void); /* seconds */

/* out[i]: parts[0][i], parts[1][i], ... reduced in this order and rounded once.
 * `mean_of`: the divisor of a mean, 0 for a partial sum. `out` may be one of
 * the parts. */
void fl_comm_fold(fl_dtype d, fl_comm_reduce reduce, size_t n, int n_parts,
                  const void *const *parts, int mean_of, void *out);

#endif
