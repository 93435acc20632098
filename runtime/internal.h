/* What the files of runtime/ share: the structs behind flare.h's names. Nobody
 * outside runtime/ includes this. */
#ifndef FL_INTERNAL_H
#define FL_INTERNAL_H

#include "flare.h"

#include <stdatomic.h>

#define FLI_LIKELY(x) __builtin_expect(!!(x), 1)
#define FLI_TRY(call)                                                          \
  do {                                                                         \
    fl_status fli_s_ = (call);                                                 \
    if (FLI_LIKELY(fli_s_ == FL_OK))                                           \
      break;                                                                   \
    return fli_s_;                                                             \
  } while (0)

#define FLI_S(n) ((n) == 1 ? "" : "s") /* a plural's */

static inline bool fli_has_shape(const fl_meta *m, int ndim,
                                 const int64_t *shape) {
  if (m->ndim != ndim)
    return false;
  for (int i = 0; i < ndim; i++)
    if (m->shape[i] != shape[i])
      return false;
  return true;
}

static inline bool fli_same_shape(const fl_meta *a, const fl_meta *b) {
  return fli_has_shape(a, b->ndim, b->shape);
}

/* log2 of a dtype's bytes: fl_dtype_size without a call. */
static inline unsigned fli_shift(fl_dtype d) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (uint64_t)(size == 8   ? 3                                                 \
               : size == 4 ? 2                                                 \
               : size == 2 ? 1                                                 \
                           : 0)                                                \
          << (FL_##NAME * 4)
#define FL_DTYPE_COMPLEX(NAME, name, part, size)                               \
  | (uint64_t)(size == 16 ? 4 : 3) << (FL_##NAME * 4)
  return (unsigned)((0
#include "dtype.def"
                     ) >>
                    (d * 4)) &
         15;
}

static inline bool fli_is_float(fl_dtype d) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (uint32_t)(FL_KIND_##kind == FL_KIND_FLOAT) << FL_##NAME
  return (0
#include "dtype.def"
          ) >>
             d &
         1;
}

static inline bool fli_is_complex(fl_dtype d) {
  return d == FL_C64 || d == FL_C128;
}

/* Of a complex dtype's two parts. */
static inline fl_dtype fli_part_dtype(fl_dtype d) {
  return d == FL_C128 ? FL_F64 : FL_F32;
}

#define FLI_MAX_BACKENDS 8
#define FLI_MAX_DEVICES  16         /* of one backend */
#define FLI_RING         256        /* launches remembered */
#define FLI_STREAMS      24         /* of one device */
#define FLI_TRAILED      (1u << 31) /* among a block's users: has a trail */
#define FLI_PROMISED     (1u << 30) /* the same: a promise */
#define FLI_SMALL        32 /* classes of small host blocks, 64 bytes apart */

/* --- operators --- */

/* Numbers of the built-in rows: FLI_OP_softmax, and those made from unary rows:
 * FLI_OP_gelu_backward (dy * f'), FLI_OP_gelu_backward2 (ddy * dy * f''). */
enum {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  FLI_OP_##name, FLI_OP_##name##_backward, FLI_OP_##name##_backward2,
#define FL_TEST(name, T, sig, f)                         FLI_OP_##name,
#define FL_BINARY(name, T, sig, cast, saves, f)          FLI_OP_##name,
#define FL_COMPARE(name, sig, f)                         FLI_OP_##name,
#define FL_TERNARY(name, T, sig, cast, saves, f)         FLI_OP_##name,
#define FL_OP(name, sig, cast, saves, shape, grad, cost) FLI_OP_##name,
#define FL_VIEW(name, sig, shows, grad)                  FLI_OP_##name,
#define FL_COMPOSE(name, sig)                            FLI_OP_##name,
#include "ops.def"
  FLI_OPS
};

typedef enum fli_family {
  FLI_UNARY,
  FLI_UNARY_BACKWARD,  /* dy, saved -> dx */
  FLI_UNARY_BACKWARD2, /* ddx, dy, saved -> d saved */
  FLI_TEST,
  FLI_BINARY,
  FLI_COMPARE,
  FLI_TERNARY,
  FLI_STRUCTURED,
  FLI_VIEW,
  FLI_COMPOSE
} fli_family;

enum { /* saves */
       FLI_SAVE_CROSS = 1 << 15,
       FLI_SAVE_ALONE = 1 << 14, /* further results are constants */
       FLI_SAVE_IN = 14,         /* inputs that have a bit */
       FLI_SAVE_OUT = 16         /* bit of the first output */
};

enum { /* whether a call writes an input */
       FLI_WRITES_NOT,
       FLI_WRITES,
       FLI_WRITES_IF /* and above: if the flag with this attribute is on */
};

typedef enum fli_shows { /* what views have of their input: see ops.def */
                         FLI_SHOWS_ANY,
                         FLI_SHOWS_TURNED,
                         FLI_SHOWS_PART,
                         FLI_SHOWS_SLAB
} fli_shows;

enum { /* what autocast does; it looks at those from LOW on */
       FLI_CAST_NONE,
       FLI_CAST_PROMOTE,
       FLI_CAST_LOW,
       FLI_CAST_WIDE,
       FLI_CAST_GIVES
};

typedef enum fli_out_rule {
  FLI_OUT_INPUT,   /* dtype of input `a` */
  FLI_OUT_PROMOTE, /* of a and b (b < 0: of all) */
  FLI_OUT_FLOAT,   /* the same, integers to f32 */
  FLI_OUT_ACC,
  FLI_OUT_WIDE,
  FLI_OUT_FIXED,   /* dtype a */
  FLI_OUT_ATTR,    /* attribute a, or if left out in[0]'s */
  FLI_OUT_COMPLEX, /* of views and composed rows, which see to it themselves */
  FLI_OUT_REAL
} fli_out_rule;

typedef struct fli_env fli_env;
typedef struct fli_infer fli_infer;
typedef struct fli_grad fli_grad;
typedef struct fli_viewing fli_viewing;
typedef struct fli_composing fli_composing;

typedef fl_status (*fli_shape_fn)(fli_infer *c);
typedef void (*fli_grad_fn)(fli_grad *g);
typedef void (*fli_cost_fn)(const fli_infer *c, double *flops, double *bytes);
typedef fl_status (*fli_view_fn)(fli_viewing *v);
typedef void (*fli_compose_fn)(fli_composing *c);
/* Lays a fresh result out, given the first input; it is contiguous before. */
typedef void (*fli_layout_fn)(const fl_tensor *x, fl_tensor *y);
void fli_conv_layout(const fl_tensor *x, fl_tensor *y);
void fli_heads_layout(const fl_tensor *q, fl_tensor *y);

struct fl_op {
  fl_op_info info;
  int id; /* FLI_OP_..., or FLI_OPS and above for run-time ones */
  fli_family family;
  int cast;
  uint32_t saves;
  fli_shows shows; /* of a view */
  int flat; /* inputs of a row that may take the short path (flat.c), or 0 */
  unsigned modes; /* that always look at its calls: see modes.def */
  int variadic;   /* the parameter's number, -1 if there is none */
  bool dims;      /* has attributes that name dims */
  /* of the inputs by slot; a variadic one's come last */
  uint8_t in_type[FL_MAX_PARAMS], in_optional[FL_MAX_PARAMS];
  bool writes;                      /* some of its inputs */
  uint8_t in_writes[FL_MAX_PARAMS]; /* FLI_WRITES_... */
  struct {
    uint8_t rule; /* fli_out_rule */
    int8_t a, b;
  } out[FL_MAX_OUT];
  fl_attrs defaults;
  fli_shape_fn shape;
  fli_grad_fn grad; /* NULL: results never need gradients */
  fli_cost_fn cost;
  fli_view_fn view;
  fli_compose_fn compose;
  const char *kernel_name; /* of a run-time operator; rows have their own */
  const fl_program *program;
  struct fli_expr_op *expr;  /* of an expression (expr.h) */
  struct fli_native *native; /* of a registered one (native.h) */
  const fl_native *plan;     /* of its kernel in the backend's language */
  fl_kernel kernel[FLI_MAX_BACKENDS];
  fl_op *next; /* run-time operators */
};

/* After a call in anomaly mode. */
fl_status fli_anomaly(fl_runtime *rt, const fl_call *c, int n_out,
                      fl_tensor *const *out);
void fli_autocast_forget(fl_runtime *rt); /* casts of parameters */
void fli_profile_close(fl_runtime *rt);
/* The backend's copy on the stream in use, with a row of its own. */
fl_status fli_copy(fl_runtime *rt, fl_device d, fl_copy_kind kind, void *to,
                   fl_device from_device, const void *from, size_t bytes);
size_t fli_memory_live(fl_runtime *rt, fl_device d);
bool fli_flat_run(fl_runtime *rt, const fl_call *c, fl_status *status);
fl_status fli_ops_init(fl_runtime *rt); /* fills rt->ops from ops.def */
void fli_ops_close(fl_runtime *rt);
/* A run-time operator: a structured one, in no table, found by its pointer; it
 * lives as long as the runtime. Whoever makes it sets the rules. `kernel` names
 * its kernel on every backend. */
fl_status fli_op_new(fl_runtime *rt, const char *name, const char *signature,
                     const char *kernel, fl_op **op);
/* A public function's pointer that must be there. */
#define FLI_NEED(p, what)                                                      \
  FLI_TRY((p) ? FL_OK : fli_fail(FL_EARG, "%s: %s is NULL", __func__, what))
void fli_exprs_close(fl_runtime *rt);
void fli_native_free(struct fli_native *n);
/* A function of a shared object, which stays open (load.c). */
fl_status fli_library_symbol(const char *path, const char *name,
                             void *function);
fl_status fli_engine_symbol(const char *path, void *function);
fl_dtype fli_promote(fl_dtype a, fl_dtype b);

/* --- what rules see --- */

/* Shape rules: read in[], write out[k].ndim and .shape (dtypes are set already
 * by the signature; a rule may change them). `attrs` may be completed in place
 * (a left-out stride list filled in, say). An input left out is NULL. */
struct fli_infer {
  fl_runtime *rt;
  const fl_op *op;
  int n_in, n_out;
  const fl_meta *const *in;
  const fl_operand *operands; /* for the few that read scalar values */
  fl_meta *out;
  fl_attrs *attrs;
  int base;
  /* for the rule to change: */
  uint32_t saves;       /* without what this call's gradient will not need */
  int64_t draws;        /* random numbers; < 0: as out[0] has elements */
  fli_layout_fn layout; /* of results; NULL: they are contiguous */
};

/* View rules: read `x` (shape, strides, offset in elements), write `out`. */
struct fli_viewing {
  const fl_op *op;
  const fl_attrs *attrs;
  const fl_meta *x;
  const int64_t *x_stride;
  int64_t x_offset;
  int base;    /* of positions in messages; attrs count from 0 */
  fl_meta out; /* dtype is set */
  int64_t stride[FL_MAX_DIMS];
  int64_t offset;
};

/* --- modes (modes.def) --- */

typedef bool (*fli_mode_fn)(fl_runtime *rt, const fl_call *c,
                            fl_status *status);
enum {
#define FL_MODE(NAME, name) FLI_MODE_##NAME,
#include "call/modes.def"
  FLI_MODES
};
#define FL_MODE(NAME, name)                                                    \
  bool fli_mode_##name(fl_runtime *rt, const fl_call *c, fl_status *status);
#include "call/modes.def"

/* The call as the modes inside `mode` see it. */
fl_status fli_call_below(fl_runtime *rt, const fl_call *c, int mode);
/* Whether its inputs are there: as many as the row takes, open, on one device.
 * Dtypes are not looked at. */
fl_status fli_check_call(fl_runtime *rt, const fl_call *c);

/* --- memory --- */

typedef struct fli_block fli_block; /* of alloc.c */

/* alloc.c. Counts, limits, reclaiming and failure injection are inside;
 * ENOMEM's message has the figures. bytes 0 gives a small block. */
fl_status fli_alloc(fl_runtime *rt, fl_device d, size_t bytes, fl_site site,
                    fli_block **block, void **memory);
/* From any thread. */
void fli_free(fl_runtime *rt, fli_block *block);
fl_status fli_alloc_open(fl_runtime *rt);
void fli_alloc_close(fl_runtime *rt);
void fli_alloc_device(fl_runtime *rt, fl_device d); /* a device appeared */
void fli_alloc_stream(fl_runtime *rt, fl_device d); /* another is used now */
/* A stream uses the block; `flags` may be FLI_TRAILED. Gives back the promise
 * of its contents, or NULL. */
fl_mark *fli_block_used(fli_block *b, int stream, uint32_t flags);
/* Holds m, instead of the promise before. */
void fli_block_promise(fli_block *b, fl_mark *m);
/* Host memory for headers and tables; NULL with a message. */
void *fli_malloc(fl_runtime *rt, size_t bytes);
void fli_mfree(void *p);
/* Whether an injected failure is due; counts. */
bool fli_fail_now(fl_runtime *rt);
/* The same failure, with a composed operator's name in front of what a row
 * inside it said. */
fl_status fli_told(const char *name, fl_status s);
fl_status fli_no_tensor(const fl_op *op); /* it was called with numbers alone */

typedef struct fl_storage {
  atomic_int rc; /* tensors (headers) on it, and other threads */
  /* Owner thread only: references to its tensors (without those of views to
   * their base), and how many of them are handles of the host. When equal,
   * only the host's garbage collector keeps the bytes alive. */
  int refs, handles;
  fl_device device;
  void *data;
  size_t bytes;
  fl_runtime *rt;
  fli_block *block; /* NULL: foreign memory */
  void (*done)(void *context, void *data);
  void *context;
  uint32_t version; /* counts in-place writes */
  fl_site write_site;
  struct fli_loan *loan; /* or NULL; its element 0 is */
  int64_t loan_at;       /* this one of what was lent: see loan.c */
  bool host_only;        /* counted in rt->host_only */
  bool read_only;        /* nothing is written in place */
} fl_storage;

fl_status fli_storage_new(fl_runtime *rt, size_t bytes, fl_device d,
                          fl_site site, fl_storage **s);
void fli_storage_retain(fl_storage *s);
void fli_storage_release(fl_storage *s);
void fli_loan_leave(fl_storage *s);
void fli_loan_pass(const fl_tensor *from, fl_tensor *to);

/* --- tensors --- */

typedef struct fl_node fl_node;
typedef struct fli_extra fli_extra; /* gradient, hooks: few tensors have them */

struct fl_tensor {
  fl_meta meta;
  int64_t stride[FL_MAX_DIMS];
  int64_t offset; /* elements */
  int64_t numel;
  int rc;
  int handles;
  bool contiguous;
  bool requires_grad;  /* a leaf that does; others have a node */
  bool is_view;        /* has a base */
  bool no_grad_view;   /* it or what it views was, while gradients were off */
  bool wrapped_number; /* a 0-d tensor that promotes like a number */
  int node_out;        /* which result of the node */
  fl_storage *storage; /* NULL in meta mode or when closed */
  fl_runtime *rt;      /* NULL when closed */
  uint64_t id;
  fl_node *node;
  fl_tensor *base;  /* of a view: the tensor that is not one */
  uint32_t rebases; /* how often an in-place write replaced node */
  uint32_t seen;    /* of a view: base->rebases when node was made */
  fli_extra *extra;
  fl_tensor *prev, *next; /* all of the runtime's, or the free list */
};

/* New reference; storage's reference is taken over. */
fl_status fli_tensor_header(fl_runtime *rt, fl_tensor **t);
void fli_tensor_own(fl_tensor *t); /* ends being a view */
/* t lies in s from now on, with so many references that storages count. */
void fli_tensor_rehouse(fl_tensor *t, fl_storage *s, int refs);
fl_status fli_tensor_view(fl_tensor *x, const fl_meta *m, const int64_t *stride,
                          int64_t offset, fl_tensor **out);
void fli_tensor_set_shape(fl_tensor *t, const fl_meta *m);
/* What others give as a tensor's memory: that it is there, and aligned. */
fl_status fli_check_memory(const char *who, const void *memory, size_t bytes,
                           fl_dtype d);
fl_status fli_check_size(fl_dtype d, int ndim, const int64_t *shape,
                         size_t *bytes);
static inline void *fli_tensor_ptr(const fl_tensor *t) {
  return (char *)t->storage->data +
         t->offset * ((int64_t)1 << fli_shift(t->meta.dtype));
}
/* A fresh contiguous tensor; in meta mode without memory. `bytes` is what
 * fli_check_size said. */
fl_status fli_tensor_make(fl_runtime *rt, const fl_meta *m, size_t bytes,
                          fl_device d, fl_site site, fl_tensor **out);
void fli_tensors_close(fl_runtime *rt);
/* The same without history; `bare`: what it stands for inside vmap, too. */
fl_status fli_tensor_alias(fl_tensor *x, bool bare, fl_tensor **out);
/* The row `copy`, as d or, FL_NODTYPE, as it is. */
fl_status fli_tensor_copy(fl_runtime *rt, fl_tensor *t, fl_dtype d,
                          fl_site site, fl_tensor **out);
bool fli_overlaps_itself(const fl_tensor *t);
bool fli_same_place(const fl_tensor *a, const fl_tensor *b);
/* Fails unless t has memory, and the caller is the owner thread. */
fl_status fli_need_memory(const fl_tensor *t, const char *who);
double fli_half_value(fl_dtype d, uint16_t bits);
int64_t fli_to_integer(double f);

/* --- the runtime --- */

typedef struct fli_launch_note {
  uint64_t seq;
  const char *op;
  fl_site site;
  uint8_t n;
  uint8_t ndim[3];
  int64_t shape[3][4];
} fli_launch_note;

struct fli_graph;
struct fli_native;

/* The calls from a lower group of folders to a higher one: the runtime has the
 * table (runtime.c), so that includes and calls run one way. */
typedef struct fli_upcalls {
  /* memory -> tensor: takes in what other libraries gave back (dlpack.c) */
  void (*drain)(fl_runtime *rt);
  /* tensor -> tape: a tensor with a node goes away */
  void (*node_release)(fl_runtime *rt, fl_node *n);
  void (*node_unretain)(fl_tensor *t);
  /* tensor -> runtime.c: other libraries hold nothing any more */
  void (*end)(fl_runtime *rt);
  /* ops -> register: a registered operator goes away */
  void (*native_free)(struct fli_native *n);
  /* call -> modes */
  const fli_mode_fn *mode;
  /* call -> rules: a composed row; attrs are settled */
  fl_status (*compose)(fl_runtime *rt, const fl_call *c, const fl_attrs *attrs,
                       fl_device d);
  /* rules -> expr: a row becomes nodes of a graph */
  fl_status (*graph_apply)(struct fli_graph *g, int op, const fl_attrs *attrs,
                           int n, const fl_operand *in, fl_operand *out);
  /* rules -> expr: the gradient of a row by that of its expression */
  void (*row_grad)(fli_grad *g);
  /* rules -> autograd */
  fl_status (*grad)(fl_runtime *rt, int n_roots, fl_tensor *const *roots,
                    fl_tensor *const *seeds, int n_inputs,
                    fl_tensor *const *inputs, unsigned flags, fl_tensor **out);
} fli_upcalls;

struct fl_runtime {
  fl_op *ops;
  int n_ops;
  fl_op *more_ops; /* made at run time */
  fl_budget *budget;
  struct fli_expr_op *exprs;       /* all of them */
  struct fli_expr_op **expr_slots; /* by hash, chained; a power of two */
  uint32_t n_exprs, n_expr_slots;
  struct fli_trace *trace; /* of a function that is being recorded */
  struct fli_batch *batch; /* vmap's innermost open level */
  bool one;                /* vmap asks for the shapes of one sample */
  fl_backend *backends[FLI_MAX_BACKENDS];
  int n_backends;
  unsigned owned; /* backends that are closed with the runtime, a bit each */
  int n_devices[FLI_MAX_BACKENDS];
  fl_stream *streams[FLI_MAX_BACKENDS][FLI_MAX_DEVICES]; /* in use now */
  struct fli_lanes *lanes[FLI_MAX_BACKENDS][FLI_MAX_DEVICES];
  unsigned watch; /* FLI_WATCH_...: what launches have to tell stream.c */
  struct fli_races *races;
  fl_site copy_site; /* of the copy under way */
  int n_clocks;
  fl_mark *marks;
  struct fli_pin *pins;                /* for another use */
  _Atomic(struct fli_pin *) pins_back; /* given back, from any thread */
  fl_runtime_options options;
  bool grad_enabled, meta, anomaly, in_backward, closing;
  fl_dtype autocast; /* the low type, FL_NODTYPE: off */
  fl_site grad_site; /* where recording was turned off */
  struct fli_cast *casts;
  struct fli_profile *profile, *profiled; /* running; the last one */
  fl_profile_part part, back_part; /* of launches, of those in backward */
  const char *called; /* the composed operator that runs while profiling */
  uint64_t next_id, seq, node_seq, pass;
  fl_generator generator;
  size_t host_only, live_bytes; /* bytes of storages */
  fl_tensor *tensors, *free_tensors;
  uint64_t n_tensors;
  struct fli_small *small[FLI_SMALL];
  struct fli_allocator *allocator;
  struct fli_sites *sites;
  struct fli_tape *tape;
  fl_tape_host tape_host;
  const fli_upcalls *up;
  unsigned modes;        /* that are on, a bit each: see modes.def */
  struct fli_comm *comm; /* groups, NULL: none was asked for */
  int local_rank;        /* this process among the ranks of its host */
  fl_status (*on_ready)(void *context, fl_tensor *leaf);
  void *on_ready_context;
  uintptr_t owner;             /* the thread that opened it */
  char *text;                  /* of fl_..._text */
  struct fli_lending *lending; /* what other libraries hold (dlpack.c) */
  fl_backend *cpu;
  fli_launch_note ring[FLI_RING];
};

static inline void fli_mode_set(fl_runtime *rt, int mode, bool on) {
  rt->modes = on ? rt->modes | 1u << mode : rt->modes & ~(1u << mode);
}

static inline fl_backend *fli_backend(fl_runtime *rt, fl_device d) {
  return rt->backends[d >> 8];
}

/* This thread, as rt->owner has it: where its control block lies. (A variable
 * of our own would need static TLS, which a module loaded late may not get.) */
static inline uintptr_t fli_self(void) {
#if defined(__x86_64__)
  uintptr_t p;
  __asm__("movq %%fs:0, %0" : "=r"(p));
  return p;
#else
  return (uintptr_t)__builtin_thread_pointer();
#endif
}

/* Host blocks that come and go with every call (tape nodes): free lists by
 * size. `bytes` must be the same for both. */
static inline void *fli_small_new(fl_runtime *rt, size_t bytes) {
  size_t k = (bytes + 63) / 64;
  if (k >= FLI_SMALL)
    return fli_malloc(rt, bytes);
  struct fli_small *p = rt->small[k];
  if (!p)
    return fli_malloc(rt, k * 64);
  rt->small[k] = *(struct fli_small **)p;
  return p;
}

static inline void fli_small_free(fl_runtime *rt, void *p, size_t bytes) {
  size_t k = (bytes + 63) / 64;
#ifdef __SANITIZE_ADDRESS__
  k = FLI_SMALL; /* so that it sees what is used after it was freed */
#endif
  /* storages may be released by any thread; lists are the owner's */
  if (k >= FLI_SMALL || rt->owner != fli_self()) {
    fli_mfree(p);
    return;
  }
  *(struct fli_small **)p = rt->small[k];
  rt->small[k] = p;
}

fl_status fli_check_owner(fl_runtime *rt);
fl_status fli_check_device(fl_runtime *rt, fl_device d);
fl_status fli_sites_open(fl_runtime *rt);
void fli_sites_close(fl_runtime *rt);
fl_stream *fli_stream_open(fl_runtime *rt, fl_device d);
static inline fl_stream *fli_stream(fl_runtime *rt, fl_device d) {
  fl_stream *s = rt->streams[d >> 8][d & 255];
  return FLI_LIKELY(s != NULL) ? s : fli_stream_open(rt, d);
}
char *fli_text(fl_runtime *rt, size_t room); /* for fl_..._text */
/* Fails with the site of a launch whose failure came later, from the ring. */
fl_status fli_late_failure(fl_runtime *rt, fl_status s,
                           const fli_launch_note *n, uint64_t seq);

/* Whether a call that is not in place writes its input k: what the row's
 * signature says. */
bool fli_op_writes(const fl_op *op, const fl_attrs *a, int n_in, int k);
/* Whether a call may write its inputs, and that it has (writes.c). */
fl_status fli_writes_check(fl_runtime *rt, const fl_op *op, const fl_attrs *a,
                           int n_in, const fl_operand *in);
void fli_writes_note(const fl_op *op, const fl_attrs *a, int n_in,
                     const fl_operand *in, fl_site site);

/* --- groups of ranks (comm.c) --- */

/* Rank and size of a group; EARG: there is none. Group 0 is the job. */
fl_status fli_comm_group(fl_runtime *rt, int64_t group, int *rank, int *size);
/* Gives a collective's launch its note and remembers what it does. */
fl_status fli_comm_begin(fl_runtime *rt, const fl_call *c, fl_launch *l,
                         fl_tensor *const *out);

#include "memory/stream.h"

/* --- vmap (vmap.c) --- */

/* extra.c */
/* Fails with why a tensor has none. */
fl_status fli_no_values(const fl_tensor *t, const char *who);
/* For rows whose result's size depends on values; x NULL: a number. */
fl_status fli_needs_values(const fl_runtime *rt, const fl_tensor *x,
                           const char *op);

/* --- memory that other libraries hold (dlpack.c) --- */

/* Takes in what was given back on other threads. */
void fli_lending_drain(fl_runtime *rt);
/* At the end of a runtime: whether something is still held. If so, the last
 * that is given back calls fli_runtime_end, on whatever thread. */
bool fli_lending_keeps(fl_runtime *rt);
void fli_runtime_end(fl_runtime *rt);
/* Whether t may be written by `op`; `suffix` goes behind its name in messages.
 */
fl_status fli_check_writable(const fl_tensor *t, const char *op,
                             const char *suffix);

#endif
