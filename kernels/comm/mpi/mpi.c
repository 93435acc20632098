/* The engine for ranks on several hosts, over MPI, in a shared object of its
 * own, so that only jobs that use it need MPI. Collectives are complete when
 * run() returns; sends may be pending. An MPI error ends the job. */
#include "../comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE                                                                  \
  ((size_t)1 << 20) /* bytes per rank and step of a reduction by fl_comm_fold  \
                     */

typedef struct sending {
  struct sending *next;
  uint64_t seq;
  MPI_Request request;
} sending;

typedef struct mpi_link {
  fl_comm_link base;
  MPI_Comm comm;
  char *stage;            /* `size` pieces */
  sending *sends, **last; /* pending, by number; the end of the list */
} mpi_link;

typedef struct engine {
  fl_comm table;
  fl_comm_options o;
  bool ours; /* this engine called MPI_Init, so it calls MPI_Finalize */
} engine;

static MPI_Datatype type_of(fl_dtype d) {
  switch (d) {
  case FL_F64:
    return MPI_DOUBLE;
  case FL_F32:
    return MPI_FLOAT;
  case FL_I64:
    return MPI_INT64_T;
  case FL_I32:
    return MPI_INT32_T;
  case FL_I16:
    return MPI_INT16_T;
  case FL_I8:
    return MPI_INT8_T;
  default:
    return MPI_UINT8_T;
  }
}

static fl_status check(int e, const char *what) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int n = 0;
  if (e == MPI_SUCCESS)
    return FL_OK;
  MPI_Error_string(e, text, &n);
  return fli_fail(FL_ECOMM, "%s: %s", what, text);
}

/* MPI counts in int: f(bytes from `at`, how many) for pieces of a block. */
#define PIECES(c, at, n)                                                       \
  for (size_t size = fl_dtype_size((c)->dtype), most = PIECE / size, at = 0,   \
              n = 0;                                                           \
       at < (c)->count &&                                                      \
       (n = (c)->count - at < most ? (c)->count - at : most, true);            \
       at += n)

/* --- reductions: every rank's part is gathered and folded by rank, so that the
 * order is the same as on one host --- */

static fl_status reduce_pieces(mpi_link *l, const fl_comm_call *c) {
  int n_ranks = l->base.size, me = l->base.rank;
  bool scatters = c->kind == FL_COMM_REDUCE_SCATTER;
  const void *parts[FL_COMM_RANKS];
  fl_status s = FL_OK;
  PIECES(c, at, n) {
    size_t bytes = n * size;
    for (int k = 0; k < n_ranks; k++)
      parts[k] = l->stage + (size_t)k * PIECE;
    if (scatters) { /* block k of each rank to rank k */
      for (int k = 0; k < n_ranks && !s; k++)
        s = check(
            MPI_Gather((const char *)c->in + ((size_t)k * c->count + at) * size,
                       (int)bytes, MPI_BYTE, l->stage, (int)bytes, MPI_BYTE, k,
                       l->comm),
            "MPI_Gather");
    } else if (c->peer >= 0)
      s = check(MPI_Gather((const char *)c->in + at * size, (int)bytes,
                           MPI_BYTE, l->stage, (int)bytes, MPI_BYTE, c->peer,
                           l->comm),
                "MPI_Gather");
    else
      s = check(MPI_Allgather((const char *)c->in + at * size, (int)bytes,
                              MPI_BYTE, l->stage, (int)bytes, MPI_BYTE,
                              l->comm),
                "MPI_Allgather");
    if (s)
      return s;
    for (int k = 0; k < n_ranks; k++)
      parts[k] = l->stage + (size_t)k * bytes;
    char *out = (char *)c->out + at * size;
    if (c->peer < 0 || c->peer == me)
      fl_comm_fold(c->dtype, c->reduce, n, n_ranks, parts, n_ranks, out);
    else if (c->in != c->out)
      memcpy(out, (const char *)c->in + at * size, bytes);
  }
  return s;
}

/* Large sums of MPI's own types use MPI's reduction. */
static fl_status all_reduce(mpi_link *l, const fl_comm_call *c) {
  bool sums = c->reduce == FL_COMM_SUM || c->reduce == FL_COMM_MEAN;
  bool plain = fl_dtype_size(c->dtype) > 2 && c->dtype != FL_BOOL;
  if (!sums || !plain || c->count * fl_dtype_size(c->dtype) <= PIECE / 16)
    return reduce_pieces(l, c);
  fl_status s = FL_OK;
  PIECES(c, at, n) {
    const char *in = (const char *)c->in + at * size;
    char *out = (char *)c->out + at * size;
    const void *one[1] = {out};
    s = check(MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)n,
                            type_of(c->dtype), MPI_SUM, l->comm),
              "MPI_Allreduce");
    if (s)
      return s;
    if (c->reduce == FL_COMM_MEAN)
      fl_comm_fold(c->dtype, c->reduce, n, 1, one, l->base.size, out);
  }
  return s;
}

/* --- collectives that move blocks of bytes --- */

static fl_status move(mpi_link *l, const fl_comm_call *c) {
  int n_ranks = l->base.size, me = l->base.rank;
  size_t block = c->count * fl_dtype_size(c->dtype);
  fl_status s = FL_OK;
  for (int k = 0; k < n_ranks && !s; k++) { /* one rank's block at a time */
    bool to_all = c->kind == FL_COMM_ALL_GATHER;
    if (c->kind == FL_COMM_BROADCAST && k != c->peer)
      continue;
    const char *in = c->in;
    char *out = c->out;
    PIECES(c, at, n) {
      int bytes = (int)(n * size);
      size_t from = at * size;
      switch (c->kind) {
      case FL_COMM_BROADCAST:
      case FL_COMM_ALL_GATHER: {
        char *to = out + (to_all ? (size_t)k * block : 0) + from;
        if (k == me && to != in + from)
          memmove(to, in + from, (size_t)bytes);
        s = check(MPI_Bcast(to, bytes, MPI_BYTE, k, l->comm), "MPI_Bcast");
        break;
      }
      default: { /* GATHER, SCATTER, ALL_TO_ALL between this rank and k */
        bool sends = c->kind == FL_COMM_ALL_TO_ALL ||
                     (c->kind == FL_COMM_GATHER ? k == c->peer : me == c->peer);
        bool receives =
            c->kind == FL_COMM_ALL_TO_ALL ||
            (c->kind == FL_COMM_GATHER ? me == c->peer : k == c->peer);
        const char *give =
            in + (c->kind == FL_COMM_GATHER ? 0 : (size_t)k * block) + from;
        char *take =
            out + (c->kind == FL_COMM_SCATTER ? 0 : (size_t)k * block) + from;
        s = check(MPI_Sendrecv(give, sends ? bytes : 0, MPI_BYTE,
                               sends ? k : MPI_PROC_NULL, 1, take,
                               receives ? bytes : 0, MPI_BYTE,
                               receives ? k : MPI_PROC_NULL, 1, l->comm,
                               MPI_STATUS_IGNORE),
                  "MPI_Sendrecv");
      }
      }
      if (s)
        return s;
    }
  }
  return s;
}

/* --- from one rank to another --- */

/* Completes sends up to number `upto`, or those that are done already. The list
 * is in the order of the numbers, so that a thousand pending sends are not
 * tested for each that ends. */
static fl_status drop_sends(mpi_link *l, uint64_t upto, bool wait) {
  fl_status s = FL_OK;
  while (l->sends && l->sends->seq <= upto) {
    int done = 1;
    sending *one = l->sends;
    int e = wait ? MPI_Wait(&one->request, MPI_STATUS_IGNORE)
                 : MPI_Test(&one->request, &done, MPI_STATUS_IGNORE);
    s = s ? s : check(e, "MPI_Isend");
    if (!done)
      break;
    if (!(l->sends = one->next))
      l->last = &l->sends;
    free(one);
  }
  return s;
}

static fl_status pass(mpi_link *l, const fl_comm_call *c) {
  fl_status s = FL_OK;
  bool sends = c->kind == FL_COMM_SEND;
  size_t piece = (size_t)1 << 30, bytes = c->count * fl_dtype_size(c->dtype);
  size_t at = 0;
  do {
    int n = (int)(bytes - at < piece ? bytes - at : piece);
    if (!sends) {
      s = check(MPI_Recv((char *)c->out + at, n, MPI_BYTE, c->peer, 2, l->comm,
                         MPI_STATUS_IGNORE),
                "MPI_Recv");
    } else {
      sending *one = malloc(sizeof *one);
      if (!one)
        return fli_fail(FL_ENOMEM, "out of memory: sending");
      one->seq = c->note->seq;
      one->next = NULL;
      *l->last = one;
      l->last = &one->next;
      s = check(MPI_Isend((const char *)c->in + at, n, MPI_BYTE, c->peer, 2,
                          l->comm, &one->request),
                "MPI_Isend");
    }
    at += (size_t)n;
  } while (at < bytes && !s);
  if (sends && !s && !c->async)
    s = drop_sends(l, c->note->seq, true);
  return s;
}

static fl_status run_call(mpi_link *l, const fl_comm_call *c) {
  switch (c->kind) {
  case FL_COMM_ALL_REDUCE:
    if (c->way != FL_COMM_AUTO)
      return fli_fail(FL_EARG, "comm_all_reduce: MPI chooses its algorithms "
                               "itself: algorithm must be auto");
    return all_reduce(l, c);
  case FL_COMM_REDUCE:
  case FL_COMM_REDUCE_SCATTER:
    return reduce_pieces(l, c);
  case FL_COMM_SEND:
  case FL_COMM_RECV:
    return pass(l, c);
  case FL_COMM_BARRIER:
    return check(MPI_Barrier(l->comm), "MPI_Barrier");
  default:
    return move(l, c);
  }
}

static fl_status mpi_run(const fl_comm_call *c) {
  mpi_link *l = (mpi_link *)c->note->link;
  fl_board *board = ((engine *)l->base.engine->state)->o.board;
  board->begin(board, c->note);
  fl_status s = run_call(l, c);
  board->end(board, c->note);
  return s;
}

static fl_status mpi_wait(fl_comm_link *link, int lane, uint64_t seq) {
  mpi_link *l = (mpi_link *)link;
  return lane == FL_COMM_SENDS ? drop_sends(l, seq, true) : FL_OK;
}

static bool mpi_done(fl_comm_link *link, int lane, uint64_t seq) {
  mpi_link *l = (mpi_link *)link;
  if (lane != FL_COMM_SENDS)
    return true;
  drop_sends(l, seq, false);
  return !l->sends || l->sends->seq > seq;
}

/* --- groups --- */

/* MPI_Finalize waits for all ranks, so it must not be called after a failure.
 */
static void abort_failed(const engine *e) {
  char why[1024];
  e->o.board->verdict(e->o.board, why, sizeof why);
  if (why[0])
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void mpi_unlink(fl_comm *c, fl_comm_link *link) {
  mpi_link *l = (mpi_link *)link;
  abort_failed(c->state);
  drop_sends(l, UINT64_MAX, true);
  MPI_Comm_free(&l->comm);
  free(l->stage);
  free(l);
}

static fl_status mpi_link_new(fl_comm *c, const fl_comm_link *g, int device,
                              const unsigned char *ticket, fl_comm_link **out) {
  MPI_Group all, some;
  (void)device;
  (void)ticket;
  mpi_link *l = calloc(1, sizeof *l);
  if (!l || !(l->stage = malloc((size_t)g->size * PIECE))) {
    free(l);
    return fli_fail(FL_ENOMEM, "out of memory: a group of ranks");
  }
  l->base = *g;
  l->base.engine = c;
  l->last = &l->sends;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, g->size, g->ranks, &some);
  fl_status s =
      check(MPI_Comm_create_group(MPI_COMM_WORLD, some, g->group, &l->comm),
            "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  if (s) {
    free(l->stage);
    free(l);
    return s;
  }
  *out = &l->base;
  return FL_OK;
}

static void mpi_close(fl_comm *c) {
  engine *e = c->state;
  int over = 0;
  MPI_Finalized(&over);
  if (!over)
    abort_failed(e);
  if (e->ours && !over)
    MPI_Finalize();
  free(e);
}

FL_API fl_status flare_comm_open(const fl_comm_options *o, fl_comm **c);

FL_API fl_status flare_comm_open(const fl_comm_options *o, fl_comm **c) {
  int started = 0, level = 0, rank = 0, size = 0;
  MPI_Initialized(&started);
  engine *e = calloc(1, sizeof *e);
  if (!e)
    return fli_fail(FL_ENOMEM, "out of memory: the MPI engine");
  if (!started) {
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    e->ours = true;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != o->rank || size != o->size) {
    free(e);
    return fli_fail(FL_ECOMM,
                    "MPI says that this is rank %d of %d, the environment that "
                    "it is %d of %d: start it with mpirun -n %d flare "
                    "script.lua",
                    rank, size, o->rank, o->size, o->size);
  }
  e->o = *o;
  e->table = (fl_comm){.struct_size = sizeof(fl_comm),
                       .name = "mpi",
                       .backends = "cpu",
                       .state = e,
                       .link = mpi_link_new,
                       .unlink = mpi_unlink,
                       .run = mpi_run,
                       .wait = mpi_wait,
                       .done = mpi_done,
                       .close = mpi_close};
  *c = &e->table;
  return FL_OK;
}
