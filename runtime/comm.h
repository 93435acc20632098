/* The contract between the runtime and an engine that moves tensors between the
 * processes of a job (the ranks).
 *
 * A collective is an operator, a row of ops.def (comm_all_reduce ...), and a
 * fl_call like any other. Its launch has a fl_comm_note: which group and
 * engine, the number of the collective, the line of the script. The kernel of a
 * backend makes its operands contiguous, fills a fl_comm_call (fl_comm_read)
 * and hands it to note->link->engine->run. In a group of one there is no link:
 * the kernel copies (fl_comm_alone). That is all that a backend has to do.
 *
 * An engine is one table, fl_comm. For memory of the host run() returns when
 * the collective is done, or at once if it is `async`: then wait() is called,
 * and operands stay alive until done() says so. For devices run() queues on
 * call->stream, as a kernel does, and never waits for the device; overlap is
 * the caller's choice of streams. One thing must hold on every rank: calls of a
 * group come in the same order; each engine's are counted, in note->seq.
 *
 * Whoever waits for other ranks looks at the board now and then: it knows who
 * died, who never came and for how long to wait, and has the words for it.
 *
 * A group is linked in two steps, led from Lua: its rank 0 asks for a ticket()
 * and the job hands it to the others; then all call link() at the same time. */
#ifndef FL_COMM_H
#define FL_COMM_H

#include "backend.h"

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
  FL_COMM_ONE_SHOT, /* everybody reads everything: few steps */
  FL_COMM_TWO_SHOT  /* everybody reduces a part: few bytes */
} fl_comm_way;

typedef struct fl_comm fl_comm;   /* an engine */
typedef struct fl_board fl_board; /* what is known of all ranks */

/* A group in one engine, `rank` of `size`; what an engine makes begins so. */
typedef struct fl_comm_link {
  fl_comm *engine;
  int group, rank, size;
  const int *ranks; /* their numbers in the job; lives as long as the link */
} fl_comm_link;

/* Calls of a group are counted in three rows: collectives, what this rank
 * sends, what it receives. */
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
  int peer; /* rank of the job it sends to or receives from; -1 */
  bool async;
  char site[96]; /* "train.lua:41", or "" */
} fl_comm_note;

typedef struct fl_comm_call {
  const fl_comm_note *note;
  fl_comm_kind kind;
  fl_comm_reduce reduce; /* of ALL_REDUCE, REDUCE, REDUCE_SCATTER */
  fl_comm_way way;       /* of ALL_REDUCE; AUTO where it makes no sense */
  fl_dtype dtype;
  int peer; /* root, or the other end: a rank of the group */
  /* Elements of one block. In and out have one block each; but out has `size`
   * blocks for ALL_GATHER, ALL_TO_ALL, and GATHER on the root (elsewhere none),
   * and in has for REDUCE_SCATTER, ALL_TO_ALL, and SCATTER on the root
   * (elsewhere whatever it is is not read). Block k is of rank k. REDUCE gives
   * its input to all but the root. */
  size_t count;
  /* Contiguous. May be `out` where both have one block, and this rank's block
   * of it for ALL_GATHER. */
  const void *in;
  void *out;
  bool async;  /* never on a stream: there everything is */
  bool beside; /* asked for to be async: other work goes on meanwhile */
  int device;
  fl_stream *stream;
} fl_comm_call;

/* One for each process, opened with the job. */
typedef struct fl_comm_options {
  size_t struct_size;
  const char *key; /* the job's secret, in hex; the same on all ranks */
  int rank, size;
  int here;              /* the number among the ranks of this host */
  double timeout, first; /* seconds; for the first call of a group */
  bool check; /* compare the lines of the script, too, and all engines' calls */
  bool (*interrupted)(void *context); /* this thread only; may be NULL */
  void *context;
  fl_board *board; /* set by the runtime, as is what follows */
  /* For link(): `bytes` of every rank of the group, at `all` in order, by what
   * carries its memory of the host; EUNSUPPORTED: nothing does yet. */
  fl_status (*swap)(void *swapper, int group, const void *mine, void *all,
                    size_t bytes);
  void *swapper;
} fl_comm_options;

/* Functions may be NULL where a comment says so. */
struct fl_comm {
  size_t struct_size; /* sizeof(fl_comm), the version of this table */
  const char *name;   /* "host" */
  /* backends whose memory it takes: "cpu sim" */
  const char *backends;
  void *state;
  /* what rank 0 of a group makes for the others; NULL: nothing is needed */
  fl_status (*ticket)(fl_comm *c, unsigned char *ticket);
  /* `g` has group, rank, size and ranks; device: of the backend, -1 for the
   * host's. Returns when all have come, or fails. */
  fl_status (*link)(fl_comm *c, const fl_comm_link *g, int device,
                    const unsigned char *ticket, fl_comm_link **link);
  void (*unlink)(fl_comm *c, fl_comm_link *link);
  fl_status (*run)(const fl_comm_call *c);
  /* Whether all ranks want the same: of a call together that another engine of
   * the group is to do; `seq`: its number among those of this one. NULL: this
   * engine's own calls are not compared either. */
  fl_status (*agree)(fl_comm_link *link, const fl_comm_call *c, uint64_t seq);
  /* of async calls; NULL for engines with streams */
  fl_status (*wait)(fl_comm_link *link, int lane, uint64_t seq);
  bool (*done)(fl_comm_link *link, int lane, uint64_t seq);
  void (*close)(fl_comm *c); /* links are gone */
};

/* The engines that come with the library (kernels/register.c). */
typedef struct fl_builtin_comm {
  const char *name;
  fl_status (*open)(const fl_comm_options *o, fl_comm **c);
} fl_builtin_comm;
const fl_builtin_comm *fl_builtin_comms(int *n);

/* --- the board (kernels/comm/board.c) --- */

struct fl_board {
  /* Before and after a call: what this rank is doing, for the others to see. */
  void (*begin)(fl_board *b, const fl_comm_note *n);
  void (*end)(fl_board *b, const fl_comm_note *n);
  /* While waiting, every 50 ms or so; `waited` in seconds. FL_ECOMM with the
   * verdict, which is one for the whole job, if a rank of the group is gone or
   * the time is over; FL_EINTERRUPT if the user wants to stop. */
  fl_status (*look)(fl_board *b, const fl_comm_note *n, double waited);
  /* The same where a rank may have done its part and then gone: there is no
   * verdict if over(wait) is true when that has been seen. */
  fl_status (*look_unless)(fl_board *b, const fl_comm_note *n, double waited,
                           bool (*over)(const void *wait), const void *wait);
  /* Ends the job with a verdict of one's own; if there is one already, that
   * one stays. `guilty`: a rank of the job, or -1. Returns FL_ECOMM. */
  fl_status (*fail)(fl_board *b, int guilty, const char *what);
  /* Who is where, a line for each rank, into `text`. */
  void (*table)(fl_board *b, char *text, size_t room);
  /* The verdict with the table, "" if there is none; the rank that is to blame,
   * or -1. */
  int (*verdict)(fl_board *b, char *text, size_t room);
  /* What wait status (as of waitpid) rank's process had: from who started it.
   */
  void (*exited)(fl_board *b, int rank, int status);
  /* Forgets what this rank has done; `lead`: also the verdict, and segments of
   * groups that were never complete. */
  void (*reset)(fl_board *b, bool lead);
  void (*close)(fl_board *b); /* leaves the job */
};

/* rank < 0: one who only watches. */
fl_status fl_board_open(const fl_comm_options *o, fl_board **b);

/* --- for kernels --- */

/* The call of a launch, all but `in` and `out`. The rows of collectives have
 * their attributes in one order: group, async, then what is their own. */
static inline void fl_comm_read(const fl_launch *l, fl_comm_call *c) {
  const fl_attr *v = l->attrs->v;
  const fl_comm_note *n = l->comm;
  c->note = n;
  c->kind = n->kind;
  c->async = n->async;
  c->beside = n->kind != FL_COMM_BARRIER && v[1].i != 0;
  c->reduce = FL_COMM_SUM;
  c->way = FL_COMM_AUTO;
  c->peer = -1;
  c->dtype = n->x.dtype;
  c->count = (size_t)fl_numel(n->x.ndim, n->x.shape);
  c->device = l->device;
  c->stream = l->stream;
  switch (n->kind) {
  case FL_COMM_ALL_REDUCE:
    c->reduce = (fl_comm_reduce)v[2].i;
    c->way = (fl_comm_way)v[3].i;
    break;
  case FL_COMM_REDUCE_SCATTER:
    c->reduce = (fl_comm_reduce)v[2].i;
    c->count /= (size_t)n->size;
    break;
  case FL_COMM_REDUCE:
    c->reduce = (fl_comm_reduce)v[3].i;
    c->peer = (int)v[2].i;
    break;
  case FL_COMM_ALL_TO_ALL:
    c->count /= (size_t)n->size;
    break;
  case FL_COMM_ALL_GATHER:
    if (v[2].i)
      c->count /= (size_t)n->size;
    break;
  case FL_COMM_BARRIER:
    c->count = 0;
    break;
  default: /* x of a note on scatter and receive is the result */
    c->peer = (int)v[2].i;
  }
}

/* What this rank gives of x, contiguous at `x`: its part, where x has the place
 * of all ranks' parts. */
static inline const void *fl_comm_given(const fl_launch *l,
                                        const fl_comm_call *c, const void *x) {
  bool whole = c->kind == FL_COMM_ALL_GATHER && l->attrs->v[2].i != 0;
  return x && whole ? (const char *)x + (size_t)c->note->rank * c->count *
                                            fl_dtype_size(c->dtype)
                    : x;
}

/* A collective of nobody but oneself: whether out is a copy of in. */
static inline bool fl_comm_alone(const fl_launch *l) {
  return l->comm->link == NULL;
}

#ifdef __cplusplus
}
#endif
#endif
