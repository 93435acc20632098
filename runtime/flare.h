/* flare's C interface: runtimes, tensors, operators, autograd, devices. No word
 * of Lua here (that is flarelua.h). Nothing in this library prints, exits,
 * installs signal handlers or keeps global state.
 *
 * Every function that can fail returns a fl_status; fl_error() then has the
 * message of this thread. Results come through the last pointer. "New
 * reference" means: yours to release. A runtime and its tensors are used by one
 * thread at a time. Positions and dims count from 0. */
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
typedef struct fl_tensor fl_tensor;
typedef struct fl_op fl_op;
typedef int fl_device;              /* backend * 256 + index; 0 is "cpu" */
typedef struct fl_budget fl_budget; /* a memory limit that runtimes share */

FL_API const char *fl_status_name(fl_status s); /* "ESHAPE" */
FL_API const char *fl_status_text(fl_status s); /* "shapes do not match" */
FL_API int fl_api_version(void);

/* --- runtime --- */

typedef struct fl_runtime_options {
  size_t struct_size;  /* sizeof(fl_runtime_options) */
  int threads;         /* of the CPU pool; 0: as many as cores */
  size_t memory_limit; /* bytes on the CPU device; 0: none */
  /* asked now and then in long work; true stops it with FL_EINTERRUPT */
  bool (*interrupted)(void *context);
  /* out of memory: free what can be freed, true if it is worth another try */
  bool (*reclaim)(void *context, fl_device device, size_t bytes);
  void (*log)(void *context, const char *message);
  void *context;
  fl_budget *budget; /* of another runtime: its limit holds for both; or NULL */
} fl_runtime_options;

/* `options` may be NULL. Closing releases what is left; tensors still held then
 * become closed, and releasing them later is harmless. */
FL_API fl_status fl_runtime_open(const fl_runtime_options *options,
                                 fl_runtime **rt);
FL_API void fl_runtime_close(fl_runtime *rt);
FL_API bool fl_runtime_interrupted(fl_runtime *rt);
FL_API int fl_runtime_threads(fl_runtime *rt);
/* From now on the CPU's kernels use so many threads, the calling one counted.
 * EARG: not from 1 to 1024. */
FL_API fl_status fl_runtime_set_threads(fl_runtime *rt, int threads);

/* --- devices --- */

/* The table must outlive the runtime. Devices get numbers at once. */
FL_API fl_status fl_backend_register(fl_runtime *rt, fl_backend *b);
/* Loads a shared object that has a function
 *   fl_backend *flare_backend_open(fl_backend *cpu);
 * and registers what it returns (NULL: it failed, after fli_fail). The object
 * stays loaded; the backend is closed with the runtime. EFILE, EARG. */
FL_API fl_status fl_backend_load(fl_runtime *rt, const char *path);
FL_API fl_status fl_device_find(fl_runtime *rt, const char *name, fl_device *d);
FL_API const char *fl_device_name(fl_runtime *rt, fl_device d);
FL_API int fl_device_list(fl_runtime *rt, fl_device *list, int room);
/* A backend's words about itself ("doctor"), for free(); EARG: there is no such
 * backend, or it tells nothing. */
FL_API fl_status fl_backend_query(fl_runtime *rt, const char *backend,
                                  const char *what, const char *argument,
                                  char **text);
/* Sets one of a backend's own knobs; EARG as well. */
FL_API fl_status fl_backend_control(fl_runtime *rt, const char *backend,
                                    const char *what, double value);
/* Waits for all work of a device (< 0: of all); returns the first failure there
 * was. */
FL_API fl_status fl_device_sync(fl_runtime *rt, fl_device d);
FL_API fl_backend *fl_device_backend(fl_runtime *rt, fl_device d);

typedef struct fl_memory_stats {
  size_t live, peak_live;         /* bytes in tensors */
  size_t reserved, peak_reserved; /* bytes taken from the backend */
  size_t limit;                   /* 0: none */
  size_t blocks;                  /* live blocks */
  size_t largest_free;            /* bytes */
  uint64_t allocations, segments, flushes;
} fl_memory_stats;
FL_API void fl_memory_get(fl_runtime *rt, fl_device d, fl_memory_stats *s);
FL_API void fl_memory_reset_peak(fl_runtime *rt, fl_device d);
/* On the CPU the limit is that of the runtime's budget. */
FL_API void fl_memory_limit(fl_runtime *rt, fl_device d, size_t bytes);
/* The budget of a runtime; every runtime has one. Borrowed: it is valid as long
 * as the runtime is open, unless you retain it. From any thread. */
FL_API fl_budget *fl_runtime_budget(fl_runtime *rt);
FL_API fl_budget *fl_budget_retain(fl_budget *b);
FL_API void fl_budget_release(fl_budget *b); /* NULL is fine */
/* Counts memory of the host's own (bytes) against the limit, until as much is
 * given back. false: the limit does not allow it, nothing was counted. */
FL_API bool fl_budget_take(fl_budget *b, size_t bytes);
FL_API void fl_budget_give(fl_budget *b, size_t bytes);
FL_API void fl_memory_flush(fl_runtime *rt, fl_device d);
/* Tests: after `skip` more allocations (memory and headers alike) let the next
 * `count` fail; count < 0: all. Returns how many have been asked for since. */
FL_API int64_t fl_memory_fail(fl_runtime *rt, int64_t skip, int64_t count);
/* The biggest live blocks by birth site, "12.0 MB train.lua:41"; a text that
 * lives until the next call. */
FL_API const char *fl_memory_holders(fl_runtime *rt, fl_device d, int most);
/* Calls `event` before every allocation of tensor memory (bytes >= 0) and after
 * every free (bytes < 0), with the device's live bytes at that moment. An event
 * may free: one that collects all garbage before each allocation makes the
 * greatest `live + bytes` what exact reference counting would have needed.
 * NULL ends it. */
FL_API void fl_memory_trace(fl_runtime *rt,
                            void (*event)(void *context, fl_device d,
                                          int64_t bytes, size_t live),
                            void *context);

/* --- streams: queues of work of one device, numbers; 0 is the first --- */

/* A stream that no other caller has. ESIZE: there are too many. */
FL_API fl_status fl_stream_new(fl_runtime *rt, fl_device d, int *stream);
FL_API void fl_stream_retain(fl_runtime *rt, fl_device d, int stream);
/* What it has to do goes on. */
FL_API void fl_stream_release(fl_runtime *rt, fl_device d, int stream);
/* Where calls on tensors of the device go from now on. */
FL_API fl_status fl_stream_use(fl_runtime *rt, fl_device d, int stream);
FL_API int fl_stream_current(fl_runtime *rt, fl_device d);
/* The stream as other libraries know it: on "cuda" a cudaStream_t. */
FL_API fl_status fl_stream_handle(fl_runtime *rt, fl_device d, int stream,
                                  intptr_t *handle);
/* Another library's stream as one of the device, by its handle, which must live
 * as long as the runtime: flare can then work in it. Released as any other. */
FL_API fl_status fl_stream_adopt(fl_runtime *rt, fl_device d, intptr_t handle,
                                 int *stream);
/* What the stream has got until now writes these tensors: a stream that uses
 * one of them from now on waits for it, when it first does. */
FL_API fl_status fl_stream_promise(fl_runtime *rt, fl_device d, int stream,
                                   int n, fl_tensor *const *of);
/* Waits for its work, returns its first failure. */
FL_API fl_status fl_stream_sync(fl_runtime *rt, fl_device d, int stream);
/* Looks for tensors that two streams use without order, returns whether it did
 * before: such a call fails with FL_EDEVICE and names both lines. */
FL_API bool fl_stream_races(fl_runtime *rt, bool on);

/* A mark in a stream, behind all that was queued there when it was recorded.
 * One that never was has passed. */
typedef struct fl_mark fl_mark;
FL_API fl_status fl_mark_new(fl_runtime *rt, fl_device d, fl_mark **m);
FL_API void fl_mark_free(fl_mark *m); /* also after the runtime is closed */
FL_API fl_device fl_mark_device(const fl_mark *m);
FL_API fl_status fl_mark_record(fl_mark *m, int stream);
/* What the stream (of any device of the backend) gets from now on waits. */
FL_API fl_status fl_mark_wait(fl_mark *m, fl_device d, int stream);
FL_API fl_status fl_mark_sync(fl_mark *m); /* the host waits */
FL_API bool fl_mark_passed(fl_mark *m);
/* Between two that have passed. */
FL_API fl_status fl_mark_elapsed(fl_mark *from, fl_mark *to, double *us);

/* --- call sites: where in a script something was asked for --- */

typedef uint32_t fl_site; /* 0: unknown */
FL_API fl_site fl_site_intern(fl_runtime *rt, const char *file, int line);
FL_API const char *fl_site_text(fl_runtime *rt, fl_site s); /* "train.lua:41" */

/* --- tensors --- */

/* New reference, contents undefined (new) or zero. ESIZE, ENOMEM. */
FL_API fl_status fl_tensor_new(fl_runtime *rt, fl_dtype dtype, int ndim,
                               const int64_t *shape, fl_device d,
                               fl_tensor **t);
FL_API fl_status fl_tensor_zeros(fl_runtime *rt, fl_dtype dtype, int ndim,
                                 const int64_t *shape, fl_device d,
                                 fl_tensor **t);
/* A CPU tensor over memory of yours, contiguous, not copied; `done` (may be
 * NULL) is called once, when no tensor uses it any more. New reference. */
FL_API fl_status fl_tensor_wrap(fl_runtime *rt, void *data, fl_dtype dtype,
                                int ndim, const int64_t *shape,
                                void (*done)(void *context, void *data),
                                void *context, fl_tensor **t);
FL_API fl_tensor *fl_tensor_retain(fl_tensor *t);
FL_API void fl_tensor_release(fl_tensor *t); /* NULL is fine */

FL_API const fl_meta *fl_tensor_meta(const fl_tensor *t);
FL_API const int64_t *fl_tensor_strides(const fl_tensor *t);
FL_API int64_t fl_tensor_offset(const fl_tensor *t);
FL_API int64_t fl_tensor_numel(const fl_tensor *t);
FL_API fl_device fl_tensor_device(const fl_tensor *t);
FL_API uint64_t fl_tensor_id(const fl_tensor *t); /* never used again */
FL_API fl_runtime *fl_tensor_runtime(const fl_tensor *t);
FL_API bool fl_tensor_contiguous(const fl_tensor *t);
FL_API uint32_t fl_tensor_version(const fl_tensor *t); /* of its storage */
FL_API bool fl_tensor_closed(const fl_tensor *t);      /* its runtime is gone */
/* True if both have the same storage. */
FL_API bool fl_tensor_shares(const fl_tensor *a, const fl_tensor *b);
/* From now on its memory, and so that of its views, may only be read. */
FL_API void fl_tensor_protect(fl_tensor *t);
/* How many handles of a garbage-collected host stand for it (+1, -1). */
FL_API void fl_tensor_handle(fl_tensor *t, int change);
/* Bytes that only such handles keep alive, over all devices, and the bytes of
 * all live storages. */
FL_API size_t fl_handles_bytes(fl_runtime *rt, size_t *live);

/* The first element in host memory after waiting for the device, NULL with a
 * message for a device whose memory the host cannot read. */
FL_API void *fl_tensor_data(fl_tensor *t);
/* Elements in row-major order from and to host memory, whatever the device and
 * strides; `bytes` must be numel * size. Writing is an in-place write. */
FL_API fl_status fl_tensor_read(fl_tensor *t, void *to, size_t bytes);
FL_API fl_status fl_tensor_write(fl_tensor *t, const void *from, size_t bytes);
/* The value of a one-element tensor. Integers give `i` exactly. */
FL_API fl_status fl_tensor_item(fl_tensor *t, double *f, int64_t *i);
/* New reference: same storage and values, no history. */
FL_API fl_status fl_tensor_detach(fl_tensor *t, fl_tensor **out);
/* New reference: on another device and/or of another dtype (FL_NODTYPE: as it
 * is), differentiable; `t` itself if nothing changes. */
FL_API fl_status fl_tensor_to(fl_tensor *t, fl_device d, fl_dtype dtype,
                              fl_tensor **out);

/* The same without waiting, where the host's side is pinned: what comes to the
 * host is there when the stream in use has passed. */
FL_API fl_status fl_tensor_to_async(fl_tensor *t, fl_device d, fl_dtype dtype,
                                    fl_site site, fl_tensor **out);
/* New reference, contents undefined: a CPU tensor in memory that devices can
 * copy from and to by themselves; ordinary where there is no such device. */
FL_API fl_status fl_tensor_new_pinned(fl_runtime *rt, fl_dtype dtype, int ndim,
                                      const int64_t *shape, fl_tensor **t);
FL_API bool fl_tensor_pinned(const fl_tensor *t);

/* --- operators --- */

/* What a parameter of an operator is; see ops.def for the notation. */
typedef enum fl_param_kind {
  FL_P_TENSOR, /* an input; the rest are attributes */
  FL_P_DIM,    /* a dim, 0-based, negative from the end */
  FL_P_DIMS,   /* several */
  FL_P_POS,    /* a position along a dim */
  FL_P_INT,    /* a count or another integer */
  FL_P_INTS,   /* several */
  FL_P_SHAPE,  /* a shape */
  FL_P_REAL,
  FL_P_FLAG,
  FL_P_ENUM,
  FL_P_DTYPE,
  FL_P_RNG,   /* an input that the dispatcher takes from a generator */
  FL_P_NEWDIM /* a dim of the result, which has one more; negative from its end
               */
} fl_param_kind;

typedef enum fl_param_type { /* of a tensor */
                             FL_T_ANY,
                             FL_T_NUM, /* everything but bool */
                             FL_T_FLOAT,
                             FL_T_INT, /* integers and bool */
                             FL_T_BOOL,
                             FL_T_INDEX, /* i64 or i32 positions, counted from
                                            the base; -1 is the last */
                             FL_T_COMPLEX,
                             FL_T_ID /* the same, but negative is an error */
} fl_param_type;

#define FL_MAX_PARAMS 16

typedef struct fl_param {
  char name[20];
  fl_param_kind kind;
  fl_param_type type;
  bool optional, variadic;
  bool has_default;
  int slot;            /* input number, or attribute number */
  fl_attr value;       /* the default; lists are empty */
  const char *choices; /* "erf|tanh" for ENUM, in the signature's text */
  int choices_len;
  bool written;           /* an input that a call writes ... */
  const char *written_if; /* ... if this flag is on, in the signature's text */
  int whole; /* of a `number`: the attribute with it as an integer, else 0 */
} fl_param;

typedef struct fl_op_info {
  const char *name, *signature, *doc;
  const char *family; /* unary test binary compare ternary op view compose */
  int n_params;
  fl_param params[FL_MAX_PARAMS];
  int n_in, n_attr, n_out; /* n_in without the elements of a variadic one */
  int n_shown; /* results for users; the rest are kept for gradients */
  char out_name[FL_MAX_OUT][20];
  bool differentiable, inplace, view, random, collective, composed, backward;
} fl_op_info;

FL_API const fl_op *fl_op_find(fl_runtime *rt, const char *name);
FL_API int fl_op_count(fl_runtime *rt);
FL_API const fl_op *fl_op_at(fl_runtime *rt, int i);
FL_API const fl_op_info *fl_op_get(const fl_op *op);
/* Whether the device's backend has a kernel for it; else, if anything, it runs
 * an expression there. */
FL_API bool fl_op_has_kernel(const fl_op *op, fl_device d);

/* --- operators from outside --- */

/* An operator of the program's own, or of a shared library: from then on like
 * any other, for this runtime. The same name with the same signature adds the
 * kernel of another backend; with another one it is refused. */
typedef struct fl_op_spec {
  size_t struct_size;           /* sizeof(fl_op_spec) */
  const char *name, *signature; /* "x:float, y:float, by:real=1 -> z:x" */
  uint64_t fingerprint; /* not 0: must be fl_op_fingerprint of the operator */
  const char *backend;  /* whose memory the kernel takes; NULL: "cpu" */
  fl_kernel kernel;     /* NULL: `symbol` of `library`, a path */
  const char *library, *symbol;
  /* NULL, or a function of the library: fl_status f(const char *name, uint64_t
   * fingerprint), called before; what it fails with is the outcome */
  const char *init;
  /* instead of these kernels of fl_raw_new, copied, and what sets their grid
   * (fl_native in backend.h); NULL: none */
  const fl_native_kernel *native;
  int n_native;
  fl_status (*configure)(void *context, const fl_launch *l, fl_raw_call *c);
  /* NULL, or called before; what it fails with is the outcome */
  fl_status (*start)(void *context, const char *name, uint64_t fingerprint);
  int like; /* the input, from 0, whose shape the results have */
  /* NULL, or what sets ndim and shape of the results; dtypes are set */
  fl_status (*shape)(void *context, int n_in, const fl_meta *const *in,
                     const fl_attrs *attrs, int n_out, fl_meta *out);
  void *context; /* of the three */
  /* NULL, or "y = x * by": runs where there is no kernel. Attributes are
   * constants in it */
  const char *expression;
  /* NULL: no gradient. A registered operator that takes the inputs, the results
   * and their gradients, has the same attributes, and gives a gradient for each
   * input. */
  const char *backward;
  /* NULL, or text instead of it: "gx = gy * by"; without either, an
   * expression's gradient is derived */
  const char *gradient;
} fl_op_spec;
FL_API fl_status fl_op_register(fl_runtime *rt, const fl_op_spec *spec,
                                const fl_op **op);
/* Of the name, the numbers of inputs, attributes and results, and all types. */
FL_API uint64_t fl_op_fingerprint(const fl_op *op);

typedef struct fl_generator { /* counter-based random numbers (Philox 4x32) */
  uint64_t seed, offset;
} fl_generator;
FL_API fl_generator *fl_runtime_generator(fl_runtime *rt);

/* An input of a call: a tensor, or a number with the dtype that it would have
 * as a tensor (F64, I64 or BOOL: it does not promote a tensor of its kind), or
 * nothing (tensor NULL, dtype FL_NODTYPE). */
typedef struct fl_operand {
  fl_tensor *tensor;
  fl_dtype dtype;
  FL_UNNAMED union {
    double f;
    int64_t i;
  };
} fl_operand;

/* One operation: every call is such a record. Zeroed members mean the
 * default. With `inplace` the result is written into in[0]'s tensor and out[0]
 * is that tensor. `out` gets new references. */
typedef struct fl_call {
  const fl_op *op;
  int n_in;
  const fl_operand *in;
  const fl_attrs *attrs; /* NULL: the defaults */
  int base;
  bool inplace;
  fl_site site;
  fl_device device;        /* for operators without tensor inputs */
  fl_generator *generator; /* NULL: the runtime's */
  fl_tensor **out;         /* room for the operator's results */
} fl_call;

FL_API fl_status fl_call_run(fl_runtime *rt, const fl_call *c);
/* The defaults of an operator's attributes. */
FL_API const fl_attrs *fl_op_defaults(const fl_op *op);
/* Appends a list to `a` as attribute k. ESIZE when it does not fit. */
FL_API fl_status fl_attrs_list(fl_attrs *a, int k, int n, const int64_t *v);

/* --- expressions: kernels of one's own --- */

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
 * for what all inputs with it promote to. body NULL: to be recorded. EARG with
 * the line and a caret for text that is wrong. `o` may be NULL. */
FL_API fl_status fl_expr_new(fl_runtime *rt, const char *inputs,
                             const char *outputs, const char *body,
                             const fl_expr_options *o, fl_expr **e);
FL_API void fl_expr_free(fl_expr *e);
FL_API const char *fl_expr_name(const fl_expr *e);
/* "elementwise(T x, f32 a) -> T z" */
FL_API const char *fl_expr_signature(const fl_expr *e);
FL_API int fl_expr_inputs(const fl_expr *e); /* < 0: as many as recorded */
/* The operator for these inputs. *op is NULL if it is still to be recorded. */
FL_API fl_status fl_expr_op(fl_expr *e, int n, const fl_operand *in,
                            const fl_op **op);
/* Records: until fl_trace_end every call becomes part of the expression instead
 * of running. args[n] are new references to tensors that stand for the inputs;
 * `results` are what was made of them, n < 0 gives up. */
FL_API fl_status fl_trace_begin(fl_expr *e, int n, const fl_operand *in,
                                fl_tensor **args);
FL_API fl_status fl_trace_end(fl_expr *e, int n, fl_tensor *const *results,
                              const fl_op **op);
/* An expression's instructions as C or CUDA text (program.h), as snprintf; 0
 * for other operators. */
FL_API size_t fl_op_source(const fl_op *op, char *text, size_t room);

/* --- kernels as source --- */

/* A kernel in the language of a backend ("cuda"), see backend.h; it lives as
 * long as the process. EARG for source that does not compile: `log` then has
 * what the compiler said, to be freed; else it is NULL. */
FL_API fl_status fl_raw_new(fl_runtime *rt, const char *backend,
                            const fl_raw_source *s, fl_raw **k, char **log);
/* device: of that backend; < 0 without one. */
FL_API fl_status fl_raw_about(fl_runtime *rt, const char *backend, fl_raw *k,
                              int device, fl_raw_facts *facts);

typedef struct fl_raw_arg { /* a tensor's memory, or bytes */
  fl_tensor *tensor;
  bool writes;
  void *value;
} fl_raw_arg;

/* Launches `call` (its args are set from these) behind what the device has been
 * asked for. All tensors lie on one device. `name` is for messages. */
FL_API fl_status fl_raw_run(fl_runtime *rt, const char *name, fl_site site,
                            fl_raw_call *call, int n, const fl_raw_arg *args);

/* Shapes and dtypes only: while on, results have no memory. */
FL_API bool fl_meta_mode(fl_runtime *rt, bool on); /* returns what it was */

/* --- vmap: a function of one sample, run on all at once --- */

/* Between open and close, tensors made by fl_vmap_in stand for one sample: they
 * have its shape and no values. Calls on them are calls on all samples. Levels
 * nest. */
FL_API fl_status fl_vmap_open(fl_runtime *rt, int64_t samples);
FL_API void fl_vmap_close(fl_runtime *rt);
/* New reference: stands for t[0], t[1], ... */
FL_API fl_status fl_vmap_in(fl_runtime *rt, fl_tensor *t, fl_tensor **one);
/* New reference: all samples of a result, in a first dim. */
FL_API fl_status fl_vmap_out(fl_runtime *rt, fl_tensor *t, fl_tensor **all);

/* --- autograd --- */

FL_API bool fl_grad_mode(fl_runtime *rt, bool on); /* returns what it was */
/* Where recording was turned off, for messages; returns what it was. */
FL_API fl_site fl_grad_site(fl_runtime *rt, fl_site site);
FL_API bool fl_grad_enabled(fl_runtime *rt);
FL_API fl_status fl_tensor_require_grad(fl_tensor *t, bool on);
FL_API bool fl_tensor_requires_grad(fl_tensor *t);
FL_API bool fl_tensor_is_leaf(fl_tensor *t);
FL_API const char *fl_tensor_node_name(fl_tensor *t); /* NULL: a leaf */
FL_API fl_site fl_tensor_node_site(fl_tensor *t);
/* Borrowed, NULL if there is none. Setting takes a reference of its own. */
FL_API fl_tensor *fl_tensor_grad(fl_tensor *t);
FL_API fl_status fl_tensor_set_grad(fl_tensor *t, fl_tensor *grad);
/* Moves the elements of t, which has no history, into `flat`, a contiguous
 * tensor of its dtype on its device, from that element on (0, ...): they lie
 * there from now on. Views of t, and others that see nothing beyond it, come
 * along if it is contiguous. */
FL_API fl_status fl_tensor_place(fl_tensor *t, fl_tensor *flat, int64_t from);
/* From now on a new gradient of the leaf t is written into `flat`, a contiguous
 * tensor on its device, from that element on (0, ...), and lies there as a
 * tensor of t's shape, of flat's dtype. NULL: anywhere. */
FL_API fl_status fl_tensor_place_grad(fl_tensor *t, fl_tensor *flat,
                                      int64_t from);
FL_API fl_status fl_tensor_retain_grad(fl_tensor *t);
/* What lies in flat's memory is there for a while: what the tape would keep of
 * it, the host gives once more, by `key`, when backward needs it. */
FL_API fl_status fl_tensor_lend(fl_tensor *flat, int64_t key);
/* `leaf` gets the gradients of t, which becomes a leaf itself. */
FL_API fl_status fl_tensor_stand_in(fl_tensor *t, fl_tensor *leaf);
FL_API bool fl_tensor_held(const fl_tensor *t); /* not by handles alone */

enum {
  FL_BACKWARD_RETAIN = 1, /* keep what was saved, to go again */
  FL_BACKWARD_CREATE = 2, /* record backward itself, to differentiate it */
  FL_BACKWARD_UNUSED = 4  /* fl_grad: inputs without influence give NULL */
};
/* Gradients of sum(roots[i] * seeds[i]) into the leaves' grad. seeds NULL, or
 * an element NULL: ones, for one-element roots only. */
FL_API fl_status fl_backward(fl_runtime *rt, int n, fl_tensor *const *roots,
                             fl_tensor *const *seeds, unsigned flags);
/* The same; `each` learns of the gradient that this pass gives a leaf (both
 * borrowed, the gradient without those of other passes). A failure ends it. */
typedef fl_status (*fl_grad_fn)(void *context, fl_tensor *leaf,
                                fl_tensor *grad);
FL_API fl_status fl_backward_each(fl_runtime *rt, int n,
                                  fl_tensor *const *roots,
                                  fl_tensor *const *seeds, unsigned flags,
                                  fl_grad_fn each, void *context);
/* The same, but returned for `inputs` (leaves or not), accumulated nowhere. */
FL_API fl_status fl_grad(fl_runtime *rt, int n, fl_tensor *const *roots,
                         fl_tensor *const *seeds, int n_inputs,
                         fl_tensor *const *inputs, unsigned flags,
                         fl_tensor **grads);

/* Functions of the host on the tape. The tape keeps the key only. */
typedef struct fl_tape_host {
  /* Gradients dx (new references or NULL) from dy (borrowed, may be NULL). */
  fl_status (*backward)(void *context, int64_t key, int n_dy,
                        fl_tensor *const *dy, int n_dx, fl_tensor **dx);
  /* A hook: may put a replacement (a new reference) into *grad. */
  fl_status (*hook)(void *context, int64_t key, fl_tensor *of,
                    fl_tensor **grad);
  void (*forget)(void *context, int64_t key); /* may be NULL */
  /* All that was lent as `key` (a new reference), on the stream in use. */
  fl_status (*lent)(void *context, int64_t key, fl_dtype d, fl_tensor **flat);
  void *context;
  /* Where the function `key` is written, for messages; may be NULL. */
  fl_site (*where)(void *context, int64_t key);
} fl_tape_host;
FL_API void fl_tape_set_host(fl_runtime *rt, const fl_tape_host *host);
/* Makes `outs` (fresh results without history) depend on `ins` through the
 * host's function `key`. */
FL_API fl_status fl_tape_custom(fl_runtime *rt, const char *name, int64_t key,
                                fl_site site, int n_in, fl_tensor *const *ins,
                                int n_out, fl_tensor *const *outs);
/* The hook sees the whole gradient of `t`, once a pass. */
FL_API fl_status fl_tensor_add_hook(fl_tensor *t, int64_t key);
FL_API void fl_tensor_drop_hook(fl_tensor *t, int64_t key);
/* Called when a leaf's gradient is complete, before the pass of fl_backward
 * goes on, and with NULL at its end. A failure ends the pass. */
FL_API void fl_tape_on_ready(fl_runtime *rt,
                             fl_status (*ready)(void *context, fl_tensor *leaf),
                             void *context);
/* The profiler: a row for each launch and each transfer until it is stopped,
 * `most` at most (0: no limit; `lost` counts the rest). Rows live until the
 * next start. */
typedef struct fl_profile_part { /* sites; the path is the module's text */
  fl_site module, caller;
} fl_profile_part;
typedef struct fl_profile_row {
  const char *op, *called; /* whose kernel; what was called, if composed */
  uint64_t call;           /* the number of that call */
  fl_site site;
  fl_profile_part part; /* of fl_profile_push */
  bool backward;        /* launched by a backward pass */
  bool transfer;        /* between memories, not a launch */
  fl_dtype dtype;       /* of the first input */
  fl_device device;
  double start_us, host_us, device_start_us, device_us; /* from the start */
  double flops, bytes; /* what the operator must do: its row's cost rule */
} fl_profile_row;
enum { FL_PROFILE_RANGES = 1 }; /* show launches to the device's own tools */
FL_API fl_status fl_profile_start(fl_runtime *rt, size_t most, unsigned flags);
FL_API fl_status fl_profile_stop(fl_runtime *rt, const fl_profile_row **rows,
                                 size_t *n, uint64_t *lost);
/* What is launched from now on is a part of `path`, asked for at `caller`;
 * backward follows forward. Returns what it was a part of before, for pop. */
FL_API fl_profile_part fl_profile_push(fl_runtime *rt, const char *path,
                                       fl_site caller);
FL_API void fl_profile_pop(fl_runtime *rt, fl_profile_part before);
/* The peak of live bytes on a device at a launch of the last profile, and the
 * call sites that held them, as text like fl_memory_holders'. */
FL_API size_t fl_profile_peak(fl_runtime *rt, fl_device d, const char **held);
/* Copies, and tensors made without an operator, are from that line until the
 * next call of this. */
FL_API void fl_copy_site(fl_runtime *rt, fl_site site);
/* From now on operators of class LOW (products, convolutions, attention) take
 * f32, f16 and bf16 tensors as `low`, those of class WIDE as f32; FL_NODTYPE
 * ends it. Backward follows what forward did. Returns what was set before. */
FL_API fl_dtype fl_autocast(fl_runtime *rt, fl_dtype low);
FL_API fl_dtype fl_autocast_now(const fl_runtime *rt);
/* Anomaly mode: every result is looked at; the first NaN is an error. */
FL_API bool fl_anomaly_mode(fl_runtime *rt, bool on);
/* The graph behind t, a line for each node, newest first; a text that lives
 * until the next call. */
FL_API const char *fl_tape_text(fl_tensor *t, int most);

/* The last launches, newest first: "#812 matmul train.lua:41 (2, 3) ..." */
FL_API const char *fl_launches_text(fl_runtime *rt, int most);
FL_API uint64_t fl_tensor_count(fl_runtime *rt);    /* live tensor headers */
FL_API fl_tensor *fl_tensor_newest(fl_runtime *rt); /* of these, or NULL */

#include "ranks.h"

#ifdef __cplusplus
}
#endif
#endif
