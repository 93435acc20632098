/* One runtime's CUDA backend: its streams and its memory. What belongs to the
 * process is in process.h. */
#ifndef FL_CUDA_BACKEND_H
#define FL_CUDA_BACKEND_H

#include "process.h"

#include <stdatomic.h>

#define FLC_PAGE ((size_t)2 << 20) /* what the hardware maps at a time */
#define FLC_PART                                                               \
  ((size_t)8 << 20)   /* moves at once: each costs driver calls                \
                       */
#define FLC_NAMES 256 /* launches whose operator's name a stream remembers */

/* As flare.cuh lays it out; the mirror is in pinned host memory. */
typedef struct flc_word {
  uint64_t seq;
  int64_t position, bound;
  struct flc_word *mirror; /* as the device sees it */
} flc_word;

typedef struct flc_stage { /* pinned host memory on its way */
  char *memory;
  CUevent free; /* recorded behind its last use */
} flc_stage;

typedef struct flc_name { /* of a launch */
  uint64_t seq;
  const char *op; /* lives as long as the runtime */
  int base;
  bool raw; /* a kernel of the user's */
} flc_name;

typedef struct flc_backend flc_backend;
typedef struct flc_addresses flc_addresses;

struct fl_stream {
  flc_backend *backend;
  flc_device *device;
  CUstream handle;
  bool adopted; /* the handle is another library's */
  CUdeviceptr word;
  volatile flc_word *mirror; /* host side; seq is 0 while all is well */
  flc_stage stage[2];
  unsigned turn;
  flc_name names[FLC_NAMES];
  fl_graph_exec *capture; /* gets the launches now, or NULL */
  fl_graph_exec *update;  /* launches change it now, or NULL */
  uint64_t last, done;    /* launches: the last one, the last that is known to
                             have run */
  uint64_t unsettled;     /* the last launch that is still being autotuned */
  const fl_view *lasting; /* memory that what is captured does not write */
  int n_lasting;
  bool unready; /* a kernel that `prepare` asks for is not there */
  bool left;    /* a wait was interrupted: what runs may never end */
  fl_stream *next;
};

struct fl_event {
  flc_device *device;
  CUevent handle;
};

typedef struct flc_segment {
  CUdeviceptr at;
  size_t bytes;
  CUmemGenericAllocationHandle handle;
  struct flc_segment *next;
} flc_segment;

struct flc_backend {
  fl_backend base;
  fl_backend_options options;
  fl_backend *cpu;  /* runs what has no kernel here: host.c */
  bool sync;        /* FLARE_SYNC: wait for every launch */
  bool direct;      /* FLARE_MEMORY=direct: no pages, bytes as asked for */
  uint64_t suspect; /* the launch that a fault came from; 0: not known */
  uint32_t lost;    /* devices where a stream was left running, a bit each */
  char *_Atomic broken; /* a collective failed for this reason */
  fl_stream *streams;
  fl_stream *first[FLC_DEVICES];
  flc_segment *segments;
  flc_addresses *ranges;
  fl_graph_exec *execs; /* all graphs */
};

fl_stream *flc_stream_find(flc_backend *c, int device, fl_stream *s);
/* The results of its streams are no longer valid, since each may have waited
 * for what failed: later calls fail with `why`. From any thread. */
void flc_break(flc_backend *c, const char *why);
/* Until all of the stream has run, or what is before the event; FL_EINTERRUPT
 * if the user wants to stop. */
fl_status flc_wait(fl_stream *s);
fl_status flc_wait_event(fl_stream *s, CUevent e);
/* The message of a fault, with the launch that caused it; `failed` gets its
 * number. */
fl_status flc_tell_fault(fl_stream *s, uint64_t *failed);
fl_status flc_transfer(fl_backend *b, int device, fl_stream *s,
                       fl_copy_kind kind, void *to, int from_device,
                       const void *from, size_t bytes);
/* Remembers what the stream is about to launch. */
fl_status flc_name_launch(fl_stream *s, const flc_name *name);

fl_status flc_prepare(fl_backend *b, fl_kernel k, const fl_launch *l,
                      bool *ready); /* launch.c */

/* Waits for the device, so that Ctrl-C can end the wait; false: it has, or what
 * runs may never end. */
bool flc_settle(flc_backend *c, flc_device *d);

/* memory.c: functions of the table */
fl_status flc_memory_get(fl_backend *b, int device, size_t bytes,
                         void **memory);
void flc_memory_put(fl_backend *b, int device, void *memory, size_t bytes);
fl_status flc_memory_info(fl_backend *b, int device, size_t *free_bytes,
                          size_t *total);
fl_status flc_reserve(fl_backend *b, int device, size_t bytes, void **at);
void flc_unreserve(fl_backend *b, int device, void *at, size_t bytes);
fl_status flc_remap(fl_backend *b, int device, void *to, void *from,
                    size_t bytes);
fl_status flc_host_alloc(fl_backend *b, size_t bytes, void **memory);
void flc_host_free(fl_backend *b, void *memory);

/* graph.c */
fl_status flc_capture_begin(fl_backend *b, int device, fl_stream *s);
fl_status flc_capture_end(fl_backend *b, int device, fl_stream *s,
                          fl_graph_exec **exec);
fl_status flc_exec_launch(fl_backend *b, fl_graph_exec *e, uint64_t seq);
void flc_exec_free(fl_backend *b, fl_graph_exec *e);
fl_status flc_exec_update(fl_backend *b, fl_graph_exec *e, bool on);
bool flc_exec_fixed(fl_backend *b, const fl_graph_exec *e, uint64_t seq);
/* A kernel as flc_run launches it. */
typedef struct flc_node {
  CUgraphNode handle;
  const flc_function *f;
  unsigned x, y, z, block, shared;
  size_t at, bytes; /* its arguments */
} flc_node;
/* It has been captured. */
fl_status flc_capture_node(fl_graph_exec *e, const flc_node *n,
                           const void *args);
/* What the launch has captured may not be changed. */
void flc_capture_fix(fl_graph_exec *e);
/* The launch begins to change the graph; its next kernel; and it has ended. */
fl_status flc_update_begin(fl_graph_exec *e, uint64_t seq);
fl_status flc_update_node(fl_graph_exec *e, const flc_node *n,
                          const void *args);
fl_status flc_update_end(fl_graph_exec *e);
fl_status flc_update_fails(fl_graph_exec *e);
/* Fails if the stream is captured, and the capture with it: what `op` (NULL: no
 * operator) is about to do waits for the device or uses the host's memory. */
fl_status flc_capture_waits(fl_stream *s, const char *op);
/* Whether the capture goes on after a launch of `op`, which it names if not. */
fl_status flc_capture_check(fl_stream *s, const char *op);
fl_status flc_capture_name(fl_graph_exec *e, const flc_name *name);
/* The launch of that number in a graph of the stream, or NULL. */
const flc_name *flc_capture_find(const fl_stream *s, uint64_t seq);
fl_status flc_stages_open(fl_stream *s);
void flc_stages_close(fl_stream *s);

/* random.c: the error of a value that a random row refuses. */
fl_status flc_value_refused(const char *op, int64_t bits, int64_t code);

#endif
