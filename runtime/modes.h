/* Modes of a runtime, which change what calls do: meta mode, autocast, anomaly
 * mode, vmap. A part of flare.h. */
#ifndef FL_MODES_H
#define FL_MODES_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- modes --- */

/* Meta mode: calls infer shapes and dtypes, and results have no memory. Returns
 * what it was. */
FL_API bool fl_meta_mode(fl_runtime *rt, bool on);
/* Anomaly mode: the results of each call are read, and the first NaN is an
 * error. Returns what it was. */
FL_API bool fl_anomaly_mode(fl_runtime *rt, bool on);
/* Operators of class LOW (products, convolutions, attention) take f32, f16 and
 * bf16 tensors as `low`, those of class WIDE take them as f32; FL_NODTYPE ends
 * it. Backward follows what forward did. Returns what was set before. */
FL_API fl_dtype fl_autocast(fl_runtime *rt, fl_dtype low);
/* What is set now; FL_NODTYPE: autocast is off. */
FL_API fl_dtype fl_autocast_now(const fl_runtime *rt);

/* --- vmap: a function of one sample, run on all at once --- */

/* Opens a level for so many samples, 1 or more. Until it is closed, tensors of
 * fl_vmap_in stand for one sample: they have its shape and no values, and calls
 * on them are calls on all samples. Levels nest. EUNSUPPORTED: a kernel is
 * being recorded. */
FL_API fl_status fl_vmap_open(fl_runtime *rt, int64_t samples);
/* Closes the innermost level; nothing if none is open. */
FL_API void fl_vmap_close(fl_runtime *rt);
/* New reference: stands for t[0], t[1], ... ESHAPE: the first dim of t is not
 * the number of samples; EARG: no level is open. */
FL_API fl_status fl_vmap_in(fl_runtime *rt, fl_tensor *t, fl_tensor **one);
/* New reference: all samples of a result, in a first dim. ESIZE: the result has
 * FL_MAX_DIMS dims; EARG: no level is open. */
FL_API fl_status fl_vmap_out(fl_runtime *rt, fl_tensor *t, fl_tensor **all);

#ifdef __cplusplus
}
#endif
#endif
