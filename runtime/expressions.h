/* Kernels of the program's own: expressions, as text or recorded, and source in
 * a backend's language. A part of flare.h. */
#ifndef FL_EXPRESSIONS_H
#define FL_EXPRESSIONS_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- expressions --- */

/* An elementwise kernel, written as text or recorded from calls. Its inputs'
 * dtypes decide which operator it is; that one is called as any other, and
 * lives as long as the runtime. */
typedef struct fl_expr fl_expr;

typedef struct fl_expr_options {
  size_t struct_size; /* sizeof(fl_expr_options) */
  const char *name;   /* in messages; NULL: what it is */
  const char *reduce; /* "sum", "prod", "max" or "min" over dims; NULL: none */
  /* text that sets g<input> from the inputs, the results and g<result>; NULL:
   * the gradient is derived */
  const char *backward;
  fl_site site; /* where it was written */
} fl_expr_options;

/* inputs "T x, f32 a", outputs "T z", body "z = exp(x) * a": a capital stands
 * for what all inputs with it promote to. body NULL: it is to be recorded, and
 * inputs and outputs are not used. o may be NULL. The caller frees *e. EARG
 * with the line and a caret for text that is wrong. */
FL_API fl_status fl_expr_new(fl_runtime *rt, const char *inputs,
                             const char *outputs, const char *body,
                             const fl_expr_options *o, fl_expr **e);
/* Frees the expression; operators that it gave stay. Also after the runtime is
 * closed. */
FL_API void fl_expr_free(fl_expr *e);
/* The name of the options, or "elementwise", "reduce", "kernel"; and
 * "elementwise(T x, f32 a) -> T z". Both live as long as the expression. */
FL_API const char *fl_expr_name(const fl_expr *e);
FL_API const char *fl_expr_signature(const fl_expr *e);
/* How many inputs it has; < 0: as many as are recorded. */
FL_API int fl_expr_inputs(const fl_expr *e);
/* The operator for n inputs such as these; only their dtypes matter. *op is
 * NULL with FL_OK if it is still to be recorded. EARG, EDTYPE. */
FL_API fl_status fl_expr_op(fl_expr *e, int n, const fl_operand *in,
                            const fl_op **op);
/* Starts recording: until fl_trace_end each call becomes part of the expression
 * instead of running. args has room for n tensors, which stand for the inputs
 * (new references). ESIZE: more than 12 inputs. */
FL_API fl_status fl_trace_begin(fl_expr *e, int n, const fl_operand *in,
                                fl_tensor **args);
/* Ends it. results: the n tensors that are the expression's values, borrowed;
 * *op: the operator for such inputs. n < 0 gives up: results and op are not
 * used. EARG: nothing is being recorded for e, or a result was not made by the
 * recorded calls. Recording is over after a failure, unless an argument was
 * NULL. */
FL_API fl_status fl_trace_end(fl_expr *e, int n, fl_tensor *const *results,
                              const fl_op **op);
/* Writes an expression's instructions as C text (see program.h), as snprintf
 * does: at most `room` bytes with the final zero; returns the length of the
 * whole text. 0 for other operators. text NULL: only the length. */
FL_API size_t fl_op_source(const fl_op *op, char *text, size_t room);

/* --- kernels as source --- */

/* A kernel in the language of a backend ("cuda"), see backend.h; it lives as
 * long as the process. EARG for source that does not compile: *log then has the
 * compiler's messages, which the caller frees with free(); else it is NULL.
 * EUNSUPPORTED: the backend takes no source. */
FL_API fl_status fl_raw_new(fl_runtime *rt, const char *backend,
                            const fl_raw_source *s, fl_raw **k, char **log);
/* Registers, shared memory and more of a compiled kernel. device: an index of
 * that backend; < 0: what is known without one. */
FL_API fl_status fl_raw_about(fl_runtime *rt, const char *backend, fl_raw *k,
                              int device, fl_raw_facts *facts);

typedef struct fl_raw_arg { /* a tensor's memory, or bytes */
  fl_tensor *tensor;
  bool writes;
  void *value;
} fl_raw_arg;

/* Queues `call` on the stream in use, with n arguments, at most 64; call->args
 * is set by this function. All tensors lie on one device, and there is one at
 * least. `name` is for messages. EARG, ECLOSED, EDEVICE, ESIZE. */
FL_API fl_status fl_raw_run(fl_runtime *rt, const char *name, fl_site site,
                            fl_raw_call *call, int n, const fl_raw_arg *args);

#ifdef __cplusplus
}
#endif
#endif
