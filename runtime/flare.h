/* flare's C interface: runtimes, devices, tensors, operators, autograd. One
 * include has all of it; the headers that it includes are its chapters. Lua is
 * in flarelua.h. Nothing in this library prints, exits, installs signal
 * handlers or keeps global state.
 *
 * These rules hold where a declaration does not say otherwise:
 *
 * Errors. A function that can fail returns fl_status; fl_error() then has the
 * message, which names function and argument or operator. Results come through
 * pointers; after a failure they hold nothing that must be released. Memory can
 * run out in every function that makes something (FL_ENOMEM).
 *
 * Bad arguments. NULL, a negative count, and the number of a device, stream or
 * group that does not exist give FL_EARG; a tensor whose runtime is closed
 * gives FL_ECLOSED, one of another runtime FL_EARG. Functions that return no
 * status ignore such calls: they return 0, false, NULL, or for text "" or "?".
 *
 * Ownership. A "new reference" to a tensor is the caller's, who ends it with
 * fl_tensor_release. Arguments are borrowed for the call; text and arrays are
 * copied where they are kept. Returned text is the runtime's, and valid until
 * the next call that returns text.
 *
 * Threads. A runtime, and the tensors, events and expressions of it, belong to
 * the thread that opened it; calls of other threads fail with FL_EOWNER or, if
 * they return no status, are not checked. Each thread may open a runtime of its
 * own. Functions without a runtime or tensor can be called on any thread.
 *
 * Units. Dims and positions count from 0, sizes are elements, memory is bytes,
 * strides are elements, times are microseconds. */
#ifndef FLARE_H
#define FLARE_H

#include "types.h"

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_VERSION     "0.1.0"
#define FL_API_VERSION 1

typedef struct fl_runtime fl_runtime;
typedef struct fl_tensor fl_tensor;   /* reference-counted; see tensors.h */
typedef struct fl_op fl_op;           /* lives as long as the runtime */
typedef struct fl_operand fl_operand; /* an input of a call: operators.h */
typedef int fl_device;                /* backend * 256 + index; 0 is "cpu" */
typedef struct fl_budget fl_budget;   /* a memory limit that runtimes share */

/* The name of a status, "ESHAPE", and what it means, "shapes do not match".
 * Constant text; "?" and "unknown status" for other numbers. */
FL_API const char *fl_status_name(fl_status s);
FL_API const char *fl_status_text(fl_status s);
/* FL_API_VERSION of the library that runs: a program compares it with its own.
 */
FL_API int fl_api_version(void);

/* --- runtime --- */

typedef struct fl_runtime_options {
  size_t struct_size;  /* sizeof(fl_runtime_options) */
  int threads;         /* of the CPU pool; 0: as many as cores */
  size_t memory_limit; /* bytes on the CPU device; 0: none */
  /* called now and then in long work; true stops it with FL_EINTERRUPT */
  bool (*interrupted)(void *context);
  /* out of memory: free what can be freed, true if it is worth another try */
  bool (*reclaim)(void *context, fl_device device, size_t bytes);
  void (*log)(void *context, const char *message);
  void *context;
  fl_budget *budget; /* of another runtime: its limit holds for both; or NULL */
} fl_runtime_options;

/* Opens a runtime for the calling thread, with the CPU and the devices that
 * are found. options: NULL for the defaults. */
FL_API fl_status fl_runtime_open(const fl_runtime_options *options,
                                 fl_runtime **rt);
/* Waits for the devices and releases everything. The caller must not use `rt`
 * after that. Tensors and events that are still held become closed; releasing
 * them later is right. */
FL_API void fl_runtime_close(fl_runtime *rt);
/* Calls the option `interrupted`; false if there is none. */
FL_API bool fl_runtime_interrupted(fl_runtime *rt);
/* The threads of the CPU's kernels, the calling one counted. Setting: 1 to
 * 1024, else FL_EARG. */
FL_API int fl_runtime_threads(fl_runtime *rt);
FL_API fl_status fl_runtime_set_threads(fl_runtime *rt, int threads);

/* --- call sites: where in a script a call was made --- */

typedef uint32_t fl_site; /* a number of the runtime's; 0: unknown */
/* The number of a line of a file, the same for equal lines. 0 without a file,
 * or if memory has run out. */
FL_API fl_site fl_site_intern(fl_runtime *rt, const char *file, int line);
/* "train.lua:41"; "?" for 0 and for numbers that the runtime does not have. */
FL_API const char *fl_site_text(fl_runtime *rt, fl_site s);

#ifdef __cplusplus
}
#endif

#include "devices.h"
#include "tensors.h"
#include "operators.h"
#include "expressions.h"
#include "modes.h"
#include "gradients.h"
#include "profile.h"
#include "ranks.h"
#include "compiled.h"
#include "graphs.h"

#endif
