/* The contract between the runtime and an engine that moves tensors between the
 * processes of a job (the ranks).
 *
 * A collective is an operator, a row of the op table (comm_all_reduce ...), and
 * called by fl_call like any other. Its launch has a fl_comm_note: the group
 * and engine, the sequence number of the call, the line of the script. The
 * kernel of a backend makes its operands contiguous, fills a fl_comm_call
 * (fl_comm_read) and passes it to note->link->engine->run. In a group of one
 * there is no link, and the kernel copies (fl_comm_alone). A backend does
 * nothing else.
 *
 * An engine is one table, fl_comm. For host memory run() returns when the
 * collective is complete, or at once if the call is `async`; then the caller
 * uses wait(), and keeps the operands alive until done() returns true. For
 * devices run() queues on call->stream, as a kernel does, and never waits for
 * the device; the caller chooses streams to overlap work. All ranks make the
 * calls of a group in the same order. Each engine counts its calls in
 * note->seq.
 *
 * A thread that waits for other ranks polls the board (fl_board), which detects
 * ranks that died or are late and composes the error message.
 *
 * A group is linked in two steps, which Lua code drives: its rank 0 gets a
 * ticket() that the job distributes; then all members call link(). */
#ifndef FL_COMM_H
#define FL_COMM_H

#include "backend.h"
#include "op_slots.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_COMM_TICKET 128 /* bytes */
#define FL_COMM_RANKS  1024

typedef enum fl_comm_kind {
#define FL_COLLECTIVE(name, kind) FL_COMM_##kind,
#include "ops.def"
  FL_COMM_KINDS
} fl_comm_kind;

/* The operator, "comm_all_reduce", and the collective, "all_reduce". */
static inline const char *fl_comm_op_name(int kind) {
  static const char *const names[] = {
#define FL_COLLECTIVE(name, kind) "comm_" #name,
#include "ops.def"
  };
  return kind >= 0 && kind < FL_COMM_KINDS ? names[kind] : "comm_?";
}

static inline const char *fl_comm_kind_name(int kind) {
  return fl_comm_op_name(kind) + sizeof "comm_" - 1;
}

typedef enum fl_comm_reduce { /* the order of the rows' enums */
                              FL_COMM_SUM,
                              FL_COMM_MEAN,
                              FL_COMM_MIN,
                              FL_COMM_MAX
} fl_comm_reduce;

typedef enum fl_comm_way {
  FL_COMM_AUTO,
  FL_COMM_NCCL,
  FL_COMM_RING,
  FL_COMM_ONE_SHOT, /* each rank reads all data: few steps */
  FL_COMM_TWO_SHOT  /* each rank reduces a part: few bytes */
} fl_comm_way;

typedef struct fl_comm fl_comm;   /* an engine */
typedef struct fl_board fl_board; /* the state of all ranks */

/* A group in one engine, `rank` of `size`. The engine's own struct begins with
 * it. */
typedef struct fl_comm_link {
  fl_comm *engine;
  int group, rank, size;
  const int *ranks; /* their numbers in the job; lives as long as the link */
} fl_comm_link;

/* Calls of a group are counted in three lanes: collectives, sends, receives. */
enum { FL_COMM_TOGETHER, FL_COMM_SENDS, FL_COMM_RECEIVES, FL_COMM_LANES };

/* Describes one call, for messages and for the board. The runtime owns it and
 * keeps it until the kernel returns: an engine or a stream that works on the
 * call after that copies the note. */
typedef struct fl_comm_note {
  fl_comm_link *link; /* NULL: a group of one */
  int group, rank, size;
  fl_comm_kind kind;
  int lane;
  uint64_t seq; /* in its lane, from 1 */
  fl_meta x;
  int peer; /* rank of the job that it sends to or receives from, or -1 */
  bool async;
  char site[96]; /* "train.lua:41", or "" */
} fl_comm_note;

typedef struct fl_comm_call {
  const fl_comm_note *note;
  fl_comm_kind kind;
  fl_comm_reduce reduce; /* of ALL_REDUCE, REDUCE, REDUCE_SCATTER */
  fl_comm_way way;       /* of ALL_REDUCE; AUTO in other calls */
  fl_dtype dtype;
  int peer; /* root, or the other end: a rank of the group */
  /* Elements of one block. In and out have one block each, except: out has
   * `size` blocks for ALL_GATHER, ALL_TO_ALL, and GATHER on the root (on other
   * ranks none); in has `size` blocks for REDUCE_SCATTER, ALL_TO_ALL, and
   * SCATTER on the root (on other ranks it is not read). Block k belongs to
   * rank k. REDUCE returns its input on all ranks but the root. */
  size_t count;
  /* Contiguous. May be `out` where both have one block, and this rank's block
   * of it for ALL_GATHER. */
  const void *in;
  void *out;
  bool async;  /* host memory only: calls on streams are asynchronous */
  bool beside; /* the script passed async: other work overlaps */
  int device;
  fl_stream *stream;
} fl_comm_call;

/* One for each process, opened with the job. */
typedef struct fl_comm_options {
  size_t struct_size;
  const char *key; /* the job's secret, in hex; the same on all ranks */
  int rank, size;
  int here;              /* the number among the ranks of this host */
  double timeout, first; /* seconds, 0: no limit; first: of a group's first
                          call */
  bool check; /* also compare lines of the script, and all engines' calls */
  bool (*interrupted)(
      void *context); /* called on this thread only; may be NULL */
  void *context;
  fl_board *board; /* set by the runtime, as is what follows */
  /* For link(): gathers `bytes` of each rank of the group at `all`, by the
   * engine that carries host memory. EUNSUPPORTED: there is none yet. */
  fl_status (*swap)(void *swapper, int group, const void *mine, void *all,
                    size_t bytes);
  void *swapper;
} fl_comm_options;

/* Functions may be NULL where a comment says so. */
struct fl_comm {
  size_t struct_size; /* sizeof(fl_comm), the version of this table */
  const char *name;   /* "host" */
  /* backends whose memory it carries: "cpu sim" */
  const char *backends;
  void *state;
  /* rank 0's identifier of a group for the others; NULL: none is needed */
  fl_status (*ticket)(fl_comm *c, unsigned char *ticket);
  /* `g` has group, rank, size and ranks; device: of the backend, -1 for host
   * memory. Returns when all members have called it, or fails. */
  fl_status (*link)(fl_comm *c, const fl_comm_link *g, int device,
                    const unsigned char *ticket, fl_comm_link **link);
  void (*unlink)(fl_comm *c, fl_comm_link *link);
  fl_status (*run)(const fl_comm_call *c);
  /* Checks that all ranks make the same call, for a collective that another
   * engine of the group will execute; `seq`: its number among the calls of this
   * engine. NULL: this engine does not compare its own calls either. */
  fl_status (*agree)(fl_comm_link *link, const fl_comm_call *c, uint64_t seq);
  /* of async calls; NULL for engines with streams */
  fl_status (*wait)(fl_comm_link *link, int lane, uint64_t seq);
  bool (*done)(fl_comm_link *link, int lane, uint64_t seq);
  void (*close)(fl_comm *c); /* after all links are unlinked */
};

/* The engines that come with the library (kernels/register.c). */
typedef struct fl_builtin_comm {
  const char *name;
  fl_status (*open)(const fl_comm_options *o, fl_comm **c);
} fl_builtin_comm;
const fl_builtin_comm *fl_builtin_comms(int *n);

/* --- the board (kernels/comm/board.c) --- */

typedef struct fl_comm_turn { /* a rank's current or last call in a lane */
  char engine[8];
  bool busy; /* current */
  int group, peer;
  uint64_t seq;
} fl_comm_turn;

struct fl_board {
  /* Called before and after a call: publishes what this rank is doing. */
  void (*begin)(fl_board *b, const fl_comm_note *n);
  void (*end)(fl_board *b, const fl_comm_note *n);
  /* Called about every 50 ms while waiting; `waited` in seconds. FL_ECOMM with
   * the verdict, the same on all ranks of the job, if a rank of the group is
   * gone or late; FL_EINTERRUPT if the user interrupts. */
  fl_status (*look)(fl_board *b, const fl_comm_note *n, double waited);
  /* The same for waits that a rank may complete and then exit: if over(wait) is
   * true after its exit was detected, there is no verdict. */
  fl_status (*look_unless)(fl_board *b, const fl_comm_note *n, double waited,
                           bool (*over)(const void *wait), const void *wait);
  /* Ends the job with the verdict `what`, unless there is one already.
   * `guilty`: the rank at fault, or -1. Returns FL_ECOMM. */
  fl_status (*fail)(fl_board *b, int guilty, const char *what);
  /* Writes the state of each rank, a line each, into `text`. */
  void (*table)(fl_board *b, char *text, size_t room);
  /* A rank's calls, by lane; false: it has not joined here, has left or ended.
   */
  bool (*turns)(fl_board *b, int rank, fl_comm_turn turns[FL_COMM_LANES]);
  /* Writes the verdict with the table, "" if there is none; returns the rank at
   * fault, or -1. */
  int (*verdict)(fl_board *b, char *text, size_t room);
  /* Called by the launcher: the wait status (as of waitpid) of a rank. */
  void (*exited)(fl_board *b, int rank, int status);
  /* Clears this rank's calls; with `lead` also the verdict, and segments of
   * groups whose rendezvous was never complete. */
  void (*reset)(fl_board *b, bool lead);
  void (*close)(fl_board *b); /* leaves the job */
};

/* rank < 0: an observer, such as the launcher. */
fl_status fl_board_open(const fl_comm_options *o, fl_board **b);

/* --- for kernels --- */

/* Fills the call of a launch, except `in` and `out`. */
static inline void fl_comm_read(const fl_launch *l, fl_comm_call *c) {
  const fl_attr *v = l->attrs->v;
  const fl_comm_note *n = l->comm;
  c->note = n;
  c->kind = n->kind;
  c->async = n->async;
  c->beside = n->kind != FL_COMM_BARRIER && v[FL_ATTR_collectives_async].i != 0;
  c->reduce = FL_COMM_SUM;
  c->way = FL_COMM_AUTO;
  c->peer = -1;
  c->dtype = n->x.dtype;
  c->count = (size_t)fl_numel(n->x.ndim, n->x.shape);
  c->device = l->device;
  c->stream = l->stream;
  switch (n->kind) {
  case FL_COMM_ALL_REDUCE:
    c->reduce = (fl_comm_reduce)v[FL_ATTR_comm_all_reduce_reduce].i;
    c->way = (fl_comm_way)v[FL_ATTR_comm_all_reduce_algorithm].i;
    break;
  case FL_COMM_REDUCE_SCATTER:
    c->reduce = (fl_comm_reduce)v[FL_ATTR_comm_reduce_scatter_reduce].i;
    c->count /= (size_t)n->size;
    break;
  case FL_COMM_REDUCE:
    c->reduce = (fl_comm_reduce)v[FL_ATTR_comm_reduce_reduce].i;
    c->peer = (int)v[FL_ATTR_comm_reduce_root].i;
    break;
  case FL_COMM_ALL_TO_ALL:
    c->count /= (size_t)n->size;
    break;
  case FL_COMM_ALL_GATHER:
    if (v[FL_ATTR_comm_all_gather_whole].i)
      c->count /= (size_t)n->size;
    break;
  case FL_COMM_BARRIER:
    c->count = 0;
    break;
  case FL_COMM_SEND:
  case FL_COMM_RECV: /* note->x of scatter and receive is the result */
    c->peer = (int)v[FL_ATTR_comm_peers_peer].i;
    break;
  default:
    c->peer = (int)v[FL_ATTR_comm_roots_root].i;
  }
}

/* This rank's input within `x`, which is contiguous: all of it, or this rank's
 * part if x has room for the parts of all ranks. */
static inline const void *fl_comm_given(const fl_launch *l,
                                        const fl_comm_call *c, const void *x) {
  bool whole = c->kind == FL_COMM_ALL_GATHER &&
               l->attrs->v[FL_ATTR_comm_all_gather_whole].i != 0;
  return x && whole ? (const char *)x + (size_t)c->note->rank * c->count *
                                            fl_dtype_size(c->dtype)
                    : x;
}

/* Whether the group has one rank, so that out is a copy of in. */
static inline bool fl_comm_alone(const fl_launch *l) {
  return l->comm->link == NULL;
}

#ifdef __cplusplus
}
#endif
#endif
