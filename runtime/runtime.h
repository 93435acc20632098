/* The structs behind flare.h's names that every group of runtime/ reads: the
 * runtime, storages and tensors. Functions are in the groups' own headers. */
#ifndef FL_RUNTIME_H
#define FL_RUNTIME_H

#include "base/base.h"

#include <stdatomic.h>

#define FLI_MAX_BACKENDS 8
#define FLI_MAX_DEVICES  16 /* of one backend */
#define FLI_STREAMS      24 /* of one device */
#define FLI_SMALL        32 /* classes of small host blocks, 64 bytes apart */

typedef struct fli_block fli_block; /* memory/alloc.h */
typedef struct fl_node fl_node;     /* tape/tape.h */
typedef struct fli_extra fli_extra; /* tensor/extra.h */
typedef struct fli_grad fli_grad;   /* rules/env.h */
struct fli_graph;                   /* expr/expr.h */
struct fli_native;                  /* register/native.h */
struct fli_window;                  /* call/window.h */

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
  bool pending;          /* no memory yet: its launch waits (window.c) */
  bool away;             /* pending as its memory was evicted (evict.c) */
  uint8_t exposed;       /* FLI_EXPOSED, FLI_KEPT */
  uint32_t window, slot; /* the window that has it, and as what */
  struct fl_kept *kept;  /* what it holds belongs to a mark (keep.c), or NULL */
} fl_storage;

enum {
  FLI_EXPOSED = 1, /* code outside flare has the address */
  FLI_KEPT = 2     /* `kept` is there: the next write takes a copy first */
};

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

/* Bits of fl_runtime.modes. */
enum {
#define FL_MODE(NAME, name) FLI_MODE_##NAME,
#include "call/modes.def"
  FLI_MODES
};

/* A mode takes a call or leaves it to the next one: see call/modes.def. */
typedef bool (*fli_mode_fn)(fl_runtime *rt, const fl_call *c,
                            fl_status *status);

/* The calls from a lower group of folders to a higher one: the runtime has the
 * table (runtime.c), so that includes and calls run one way. */
typedef struct fli_upcalls {
  /* memory -> tensor: takes in what other libraries gave back (dlpack.c) */
  void (*drain)(fl_runtime *rt);
  /* memory -> ops: backend k is new */
  void (*kernels)(fl_runtime *rt, int k);
  /* memory -> call: closes what holds memory of the device that it can do
   * without (graph.c) */
  void (*spare)(fl_runtime *rt, fl_device d);
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
  /* tensor -> call: before a write of what a mark keeps (keep.c) */
  fl_status (*keep_write)(fl_storage *s);
  /* all -> call: runs the launches that wait (window.c) */
  fl_status (*flush)(fl_runtime *rt);
  /* call -> compile: runs the window by a plan; false: there is none */
  bool (*plan)(struct fli_window *w, fl_status *status);
  /* rules -> autograd */
  fl_status (*grad)(fl_runtime *rt, int n_roots, fl_tensor *const *roots,
                    fl_tensor *const *seeds, int n_inputs,
                    fl_tensor *const *inputs, unsigned flags, fl_tensor **out);
} fli_upcalls;

struct fl_runtime {
  fl_op *ops;
  int n_ops;
  uint16_t *op_slots; /* by name (op.c) */
  fl_op *more_ops;    /* made at run time */
  fl_budget *budget;
  struct fli_expr_op *exprs;       /* all of them */
  struct fli_expr_op **expr_slots; /* by hash, chained; a power of two */
  uint32_t n_exprs, n_expr_slots;
  struct fli_tile *tiles;   /* all of them */
  const fl_op *tile_op;     /* "fused"; NULL: not made yet */
  const fl_op *epilogue_op; /* the same */
  struct fli_trace *trace;  /* of a function that is being recorded */
  struct fli_batch *batch;  /* vmap's innermost open level */
  bool one;                 /* vmap asks for the shapes of one sample */
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
  struct fli_capture *capture;     /* of a graph, under way: memory/capture.h */
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
  unsigned modes; /* that are on, a bit each: see modes.def */
  struct fli_window *window, *spare_window; /* open; for the next time */
  uint32_t epochs;                          /* windows so far */
  uint32_t moves;        /* of tensors into other memory (place.c) */
  uint64_t recordings;   /* of windows, so far */
  struct fli_comm *comm; /* groups, NULL: none was asked for */
  int local_rank;        /* this process among the ranks of its host */
  fl_status (*on_ready)(void *context, fl_tensor *leaf);
  void *on_ready_context;
  uintptr_t owner;             /* the thread that opened it */
  char *text;                  /* of fl_..._text */
  struct fli_lending *lending; /* what other libraries hold (dlpack.c) */
  fl_backend *cpu;
  fli_launch_note ring[FLI_RING];
  fli_noted *noted;
  struct fl_graph *graphs;         /* all of them */
  struct fli_rehearsal *rehearsal; /* the calls before a capture, or NULL */
};

/* The part of a profile that launches and nodes belong to now. */
static inline fl_profile_part *fli_part(fl_runtime *rt) {
  return rt->in_backward ? &rt->back_part : &rt->part;
}

static inline void fli_mode_set(fl_runtime *rt, int mode, bool on) {
  rt->modes = on ? rt->modes | 1u << mode : rt->modes & ~(1u << mode);
}

/* Runs the launches that wait in a window. Every wait for a device calls it
 * first. */
static inline fl_status fli_settle_all(fl_runtime *rt) {
  return rt->window ? rt->up->flush(rt) : FL_OK;
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

/* When no other library holds a tensor any more (runtime.c). */
void fli_runtime_end(fl_runtime *rt);

#endif
