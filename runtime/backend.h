/* The contract between the runtime and a device. A backend is one table of
 * functions; a kernel is one function that gets a fl_launch and nothing else.
 * Kernels never see tensors, autograd or Lua. */
#ifndef FL_BACKEND_H
#define FL_BACKEND_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_backend fl_backend;
typedef struct fl_stream fl_stream;         /* the backend's own */
typedef struct fl_event fl_event;           /* the backend's own */
typedef struct fl_graph_exec fl_graph_exec; /* the backend's own */
typedef struct fl_program fl_program;       /* see program.h */
typedef struct fl_tile fl_tile;             /* see tile.h */
typedef struct fl_raw fl_raw; /* a kernel of the user's; the backend's own */
typedef struct fl_launch fl_launch;

/* One attribute of a call. Which member holds is the signature's business: i
 * for dim, pos, count, flag, enum, dtype; f for real; list for dims, counts,
 * shape (n numbers of fl_attrs.list from `at`). An attribute left out that has
 * no default is FL_ATTR_NONE (i), or a list with n = 0. */
typedef union fl_attr {
  int64_t i;
  double f;
  struct {
    uint32_t n, at;
  } list;
} fl_attr;
#define FL_ATTR_NONE INT64_MIN

typedef struct fl_attrs {
  fl_attr v[FL_MAX_ATTRS]; /* in the order of the signature */
  uint32_t used;           /* numbers taken in `list` */
  int64_t list[FL_MAX_LIST];
} fl_attrs;

static inline const int64_t *fl_attr_list(const fl_attrs *a, int k, int *n) {
  *n = (int)a->v[k].list.n;
  return a->list + a->v[k].list.at;
}

/* A `number` parameter is a real, attribute `real`. Where it is an integer that
 * no double holds, attribute `whole` has it. False: it is no integer. Callers
 * may set the real alone. */
static inline bool fl_attr_whole(const fl_attrs *a, int real, int whole,
                                 int64_t *value) {
  double f = a->v[real].f;
  *value = a->v[whole].i;
  if ((double)*value == f)
    return true;
  if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0))
    return false;
  *value = (int64_t)f;
  return (double)*value == f;
}

/* Copies what is in use: the tape keeps no more of a call's attributes. */
static inline void fl_attrs_copy(fl_attrs *to, const fl_attrs *from) {
  __builtin_memcpy(to, from,
                   offsetof(fl_attrs, list) + from->used * sizeof *from->list);
}

/* A kernel's temporary memory, FL_ALIGN-aligned, uninitialised, freed when the
 * kernel has run; NULL when there is none (the message is set). A kernel may
 * take any number of blocks. */
typedef struct fl_scratch fl_scratch;
struct fl_scratch {
  void *(*get)(fl_scratch *s, size_t bytes);
  /* Frees the blocks after the first `keep`, in the order of the stream; NULL:
   * all stay until the kernel has run. */
  void (*release)(fl_scratch *s, int keep);
  int taken; /* blocks so far, where there is a release */
};

/* A launch of the kernel "raw": arguments as they are, pointers to their bytes.
 */
typedef struct fl_raw_call {
  fl_raw *kernel;
  unsigned grid[3], block[3]; /* blocks, threads of a block */
  size_t shared;              /* bytes of dynamic shared memory */
  void **args;
} fl_raw_call;

/* Source in the backend's language, or what its compiler made of it. */
typedef struct fl_raw_source {
  const char *text, *name; /* of the kernel; an instance of a template, too */
  const void
      *image; /* instead of the text (a cubin), copied; name: its entry */
  size_t bytes;
  const char *options; /* of the compiler, separated by newlines */
  const char *arch;    /* without a device; NULL: the oldest there is */
} fl_raw_source;

/* What a kernel takes, -1 where it is not known. */
typedef struct fl_raw_facts {
  int registers, shared, local; /* of a thread, bytes of a block, a thread */
  int threads;                  /* of a block, at most */
  char arch[16];                /* what it was compiled for, "": it was not */
  const char *entry;            /* in the image, which lives as it does */
  const void *image;            /* NULL: there is none */
  size_t bytes;
} fl_raw_facts;

/* How a registered operator's kernel in the backend's language is launched. It
 * gets a pointer for each input (NULL: left out) and each result, contiguous,
 * then the attributes (double, int64_t or bool), then how many elements the
 * first result has (int64_t). */
#define FL_NATIVE_OWN (-1)
typedef struct fl_native_kernel {
  fl_dtype dtype; /* of the tensors that it takes */
  fl_raw *kernel;
} fl_native_kernel;
typedef struct fl_native {
  int n_kernels;
  const fl_native_kernel *kernels; /* at most one for each dtype */
  /* what inputs and results come as: a dtype, FL_NODTYPE: what the kernel is
   * for, FL_NATIVE_OWN: as they are */
  int in_as[FL_MAX_NATIVE], out_as[FL_MAX_OUT];
  int n_attr;
  char attr[FL_MAX_ATTRS]; /* 'd'ouble, 'i'nteger, 'b'ool */
  /* NULL: 256 threads, as many blocks as the first result has elements. Sets
   * blocks, threads and shared memory; no blocks: nothing is launched */
  fl_status (*configure)(void *context, const fl_launch *l, fl_raw_call *c);
  void *context;
} fl_native;

typedef fl_status (*fl_kernel)(const fl_launch *l);

/* One launch. The dispatcher has checked everything that can be known without
 * reading memory: counts, dtypes, shapes, attributes. Dims in attributes are
 * 0-based and not negative. An optional input left out has data == NULL. With
 * an in-place call out[0] and in[0] are the same memory; otherwise outputs
 * overlap nothing and are contiguous, unless the row's shape rule has laid them
 * out in another way (layout.c). */
struct fl_launch {
  const char *op;
  int n_in, n_out;
  const fl_view *in;
  const fl_view *out;
  const fl_attrs *attrs;
  const fl_program *program; /* of the kernels "expr" and "epilogue" */
  const fl_tile *tile;       /* of the kernel "tile" */
  const fl_raw_call *raw;    /* of the kernel "raw"; it has no operands */
  const fl_native *native;   /* of the kernel "native" */
  fl_kernel row;             /* of the kernel "epilogue": see program.h */
  int row_in, row_out, row_result;
  int base;    /* what positions inside index tensors count from: 0 or 1 */
  bool flat;   /* elementwise, and every operand has one dim of as many elements
                  of the dtype of in[0] (results of tests: bool), or is a number
                  in `imm` */
  bool writes; /* some of its inputs */
  bool probe;  /* the kernel "tile" only says whether it can run, FL_ESIZE if
                  not: views have no memory, but equal addresses where they
                  will have. (And see `prepare`.) */
  int device;
  fl_stream *stream;
  void *handle; /* the stream as the device's own library has it (CUstream) */
  fl_scratch *scratch;
  uint64_t seq;
  const struct fl_comm_note *comm; /* of a collective (comm.h), else NULL */
};

static inline void *fl_scratch_get(const fl_launch *l, size_t bytes) {
  return l->scratch->get(l->scratch, bytes);
}
/* Around a part of a kernel that runs many times: what it took is freed, so
 * that memory does not grow with the number of times. */
static inline int fl_scratch_mark(const fl_launch *l) {
  return l->scratch->taken;
}
static inline void fl_scratch_release(const fl_launch *l, int mark) {
  if (l->scratch->release)
    l->scratch->release(l->scratch, mark);
}

/* Why a matrix cannot be done: every backend says it alike (error.c). */
typedef enum fl_matrix_fault {
  FL_MATRIX_SINGULAR,   /* this pivot is zero */
  FL_MATRIX_DIAGONAL,   /* so is this element of a triangle's diagonal */
  FL_MATRIX_INDEFINITE, /* this leading minor is not positive */
  FL_MATRIX_SLOW,       /* no convergence */
  FL_MATRIX_STRANGE     /* an inf or NaN where that cannot be */
} fl_matrix_fault;
/* `which` matrix of a batch, from 0; -1: there is one. `number` is what the
 * fault speaks of, from 1. */
FL_API fl_status fli_fail_matrix(const char *op, fl_matrix_fault f,
                                 int64_t which, int base, int number);

/* What every backend says of x of bce_loss; the %g is the element. */
#define FL_BCE_REFUSES                                                         \
  "bce_loss: x must be probabilities from 0 to 1, got %g; bce_with_logits "    \
  "takes logits"

/* Fourier transforms (fourier.c). The factors of n, positive, in the order of
 * their passes: fours, a two, odd primes; how many, -1: one is too large. */
#define FL_FACTORS 40 /* at most */
FL_API int fli_factors(int64_t n, int *factors);
/* exp(-2 pi i k / n) for 0 <= k < n. */
FL_API void fli_root(int64_t k, int64_t n, double *y);

typedef enum fl_copy_kind {
  FL_COPY_IN,     /* host to device */
  FL_COPY_OUT,    /* device to host */
  FL_COPY_WITHIN, /* one device */
  FL_COPY_PEER,   /* between two devices of the backend */
  /* as IN and OUT, but host memory is of host_alloc, and no thread waits */
  FL_COPY_IN_PINNED,
  FL_COPY_OUT_PINNED
} fl_copy_kind;

/* Flags of a backend. */
enum {
  FL_BACKEND_HOST = 1,     /* its memory is the host's: pointers may be read */
  FL_BACKEND_ASYNC = 2,    /* launches return before they have run */
  FL_BACKEND_LAZY = 4,     /* devices are counted when one is first asked for */
  FL_BACKEND_UNLISTED = 8, /* messages do not offer its devices */
  FL_BACKEND_PROBES = 16   /* `prepare` takes the kernels of all rows */
};

/* Functions may be NULL where a comment says so. All return a status with a
 * message. `device` counts from 0. What is asynchronous happens in the order of
 * its stream; stream NULL is the device's first one. */
struct fl_backend {
  size_t struct_size; /* sizeof(fl_backend), the version of this table */
  const char *name;   /* "cpu"; devices are name:index */
  unsigned flags;
  void *state;

  int (*device_count)(fl_backend *b); /* < 0: none, the message says why */
  /* compute: the kernel of an operator, NULL if there is none. `launch` NULL:
   * kernels are called at once. A launch that is kept must be copied. */
  fl_kernel (*kernel)(fl_backend *b, const char *op);
  fl_status (*launch)(fl_backend *b, fl_kernel k, const fl_launch *l);
  /* memory: whole segments for the caching allocator, FL_ALIGN-aligned; release
   * waits for work that may use it */
  fl_status (*alloc)(fl_backend *b, int device, size_t bytes, void **memory);
  void (*release)(fl_backend *b, int device, void *memory, size_t bytes);
  fl_status (*memory_info)(fl_backend *b, int device, size_t *free_bytes,
                           size_t *total_bytes); /* may be NULL */
  size_t page; /* what alloc takes is a multiple of it; 0: as asked */
  /* memory apart from addresses; all NULL and 0: there is only alloc. `reserve`
   * takes addresses for `bytes`, where no memory is; `unreserve` returns them
   * when none is there any more. `remap` moves memory from one such place to
   * another, and what is in it is lost: from NULL it is new, to NULL it goes
   * back to the device. All are multiples of `part`. If it fails, all is as
   * before. It waits for work that may use what is at `from` */
  size_t part;
  fl_status (*reserve)(fl_backend *b, int device, size_t bytes, void **at);
  void (*unreserve)(fl_backend *b, int device, void *at, size_t bytes);
  fl_status (*remap)(fl_backend *b, int device, void *to, void *from,
                     size_t bytes);
  /* transfers, bytes; for PEER `device` is the destination's. Host memory may
   * be used as soon as this returns; a copy out has been waited for. NULL with
   * FL_BACKEND_HOST */
  fl_status (*copy)(fl_backend *b, int device, fl_stream *s, fl_copy_kind kind,
                    void *to, int from_device, const void *from, size_t bytes);
  /* dependencies; all NULL for a backend that is not ASYNC */
  fl_status (*stream_new)(fl_backend *b, int device, fl_stream **s);
  void (*stream_free)(fl_backend *b, fl_stream *s);
  /* waits until all of the stream has run, then returns its first failure and
   * forgets it, unless it is a fault of the device (FL_EFAULT), which stays;
   * `failed` gets the sequence number of that launch */
  fl_status (*stream_sync)(fl_backend *b, int device, fl_stream *s,
                           uint64_t *failed);
  /* a failure that is already known; cheap, looked at by every dispatch */
  fl_status (*stream_peek)(fl_backend *b, int device, fl_stream *s,
                           uint64_t *failed);
  fl_status (*event_new)(fl_backend *b, int device, fl_event **e);
  void (*event_free)(fl_backend *b, fl_event *e);
  fl_status (*event_record)(fl_backend *b, fl_event *e, fl_stream *s);
  fl_status (*event_wait)(fl_backend *b, fl_event *e, fl_stream *s);
  bool (*event_done)(fl_backend *b, fl_event *e);
  /* microseconds from one recorded event to a later one, both passed; may be
   * NULL */
  double (*event_elapsed)(fl_backend *b, fl_event *from, fl_event *to);
  /* host memory that devices copy from and to by themselves; may be NULL */
  fl_status (*host_alloc)(fl_backend *b, size_t bytes, void **memory);
  void (*host_free)(fl_backend *b, void *memory);
  void (*close)(fl_backend *b); /* may be NULL */
  /* a backend's own knobs, by name; may be NULL */
  fl_status (*control)(fl_backend *b, const char *what, double value);
  /* text about the backend ("doctor"), to be freed; may be NULL */
  fl_status (*query)(fl_backend *b, const char *what, const char *argument,
                     char **text);
  /* kernels from source, for the kernel "raw"; NULL: there is none. They live
   * as long as the process. `log` gets what the compiler said, to be freed, or
   * NULL. Without a device the source is checked if it can be. */
  fl_status (*raw_new)(fl_backend *b, const fl_raw_source *s, fl_raw **k,
                       char **log);
  fl_status (*raw_facts)(fl_backend *b, fl_raw *k, int device,
                         fl_raw_facts *facts);
  /* a stream as other libraries know it, and one over another library's, whose
   * handle stream_free leaves alone; may be NULL */
  fl_status (*stream_handle)(fl_backend *b, int device, fl_stream *s,
                             intptr_t *handle);
  fl_status (*stream_adopt)(fl_backend *b, int device, intptr_t handle,
                            fl_stream **s);
  /* a range of this name begins in the timeline of the device's tools, NULL: it
   * ends; may be NULL */
  fl_status (*range)(fl_backend *b, const char *name);
  /* Launch graphs; all NULL: there are none. From capture_begin to capture_end
   * the stream records its launches instead of running them. Meanwhile whatever
   * waits for it or copies to or from the host fails. */
  fl_status (*capture_begin)(fl_backend *b, int device, fl_stream *s);
  /* Ends the capture, also when it fails; `exec` NULL: the record is dropped */
  fl_status (*capture_end)(fl_backend *b, int device, fl_stream *s,
                           fl_graph_exec **exec);
  /* runs the launches on the stream that recorded them; a failure of one has
   * the sequence number that it was recorded with */
  fl_status (*exec_launch)(fl_backend *b, fl_graph_exec *e, uint64_t seq);
  void (*exec_free)(fl_backend *b, fl_graph_exec *e); /* waits for it */
  /* Changing a graph; both NULL: that cannot be. While it is `on`, a launch on
   * the graph's stream does not run, but takes the place of the one that the
   * graph has with the same sequence number, with the kernels of that one; it
   * fails with EUNSUPPORTED if it cannot, and the graph must not be run any
   * more. Runs that have been queued are not affected. */
  fl_status (*exec_update)(fl_backend *b, fl_graph_exec *e, bool on);
  /* Whether the launch of that number can never be changed: it has work of
   * another library, or copies */
  bool (*exec_fixed)(fl_backend *b, const fl_graph_exec *e, uint64_t seq);
  /* Launches of a kernel, "tile", "expr" or "epilogue", and with
   * FL_BACKEND_PROBES that of any row, will come with operands like those of
   * `l`, a probe: `ready` is false while what they need is being made, beside
   * the caller. The caller asks again later, or launches and waits. It fails if
   * they never can run; of a row that says nothing. NULL: they are always
   * ready. */
  fl_status (*prepare)(fl_backend *b, fl_kernel k, const fl_launch *l,
                       bool *ready);
};

/* --- the backends that come with the library --- */

/* What one of them may want to know when it is opened; all zero: defaults. */
typedef struct fl_backend_options {
  int threads; /* of a pool, at least 1 */
  /* asked now and then in long work; true stops it. May be NULL. */
  bool (*interrupted)(void *context);
  void *context;
} fl_backend_options;

/* `cpu` is the one opened first, NULL while that is opened. The runtime calls
 * the backend's close, in reverse order. */
typedef struct fl_builtin_backend {
  const char *name;
  fl_status (*open)(const fl_backend_options *o, fl_backend *cpu,
                    fl_backend **b);
} fl_builtin_backend;

/* The explicit table (kernels/register.c); the first is the CPU. */
const fl_builtin_backend *fl_builtin_backends(int *n);

#ifdef __cplusplus
}
#endif
#endif
