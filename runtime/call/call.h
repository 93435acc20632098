/* What the dispatcher offers to the rest of runtime/. What its own files share
 * on the way to a kernel is in launch.h. */
#ifndef FL_CALL_H
#define FL_CALL_H

#include "../ops/ops.h"

/* --- call.c, and modes --- */

#define FL_MODE(NAME, name)                                                    \
  bool fli_mode_##name(fl_runtime *rt, const fl_call *c, fl_status *status);
#include "modes.def"

/* The call as the modes inside `mode` see it. */
fl_status fli_call_below(fl_runtime *rt, const fl_call *c, int mode);
/* Whether its inputs are there: as many as the row takes, open, on one device.
 * Dtypes are not looked at. */
fl_status fli_check_call(fl_runtime *rt, const fl_call *c);
bool fli_flat_run(fl_runtime *rt, const fl_call *c, fl_status *status);
bool fli_flat_wait(fl_runtime *rt, const fl_call *c, fl_status *status);

/* --- anomaly.c, autocast.c, profile.c --- */

/* After a call in anomaly mode. */
fl_status fli_anomaly(fl_runtime *rt, const fl_call *c, int n_out,
                      fl_tensor *const *out);
void fli_autocast_forget(fl_runtime *rt); /* casts of parameters */
void fli_profile_close(fl_runtime *rt);
/* The backend's copy on the stream in use, with a row of its own. */
fl_status fli_copy(fl_runtime *rt, fl_device d, fl_copy_kind kind, void *to,
                   fl_device from_device, const void *from, size_t bytes);

/* --- graph.c --- */

void fli_graphs_close(fl_runtime *rt); /* before tensors are closed */

/* --- rehearse.c: the calls before a capture --- */

void fli_rehearse_note(fl_runtime *rt, const fl_call *c);
/* Whether this call of the capture has other numbers than it had before. */
bool fli_rehearse_differs(fl_runtime *rt, const fl_call *c);
void fli_rehearse_end(fl_runtime *rt);

/* --- transfer.c --- */

/* The row `copy`, as d or, FL_NODTYPE, as it is. */
fl_status fli_tensor_copy(fl_runtime *rt, fl_tensor *t, fl_dtype d,
                          fl_site site, fl_tensor **out);

/* --- writes.c --- */

/* Whether a call may write its inputs, and that it has. */
fl_status fli_writes_check(fl_runtime *rt, const fl_op *op, const fl_attrs *a,
                           int n_in, const fl_operand *in);
void fli_writes_note(const fl_op *op, const fl_attrs *a, int n_in,
                     const fl_operand *in, fl_site site);

/* --- keep.c --- */

fl_status fli_keep_write(fl_storage *s);

/* --- collective.c: groups of ranks --- */

/* Rank and size of a group; EARG: there is none. Group 0 is the job. */
fl_status fli_comm_group(fl_runtime *rt, int64_t group, int *rank, int *size);
/* Gives a collective's launch its note and remembers what it does. */
fl_status fli_comm_begin(fl_runtime *rt, const fl_call *c, fl_launch *l,
                         fl_tensor *const *out);

#endif
