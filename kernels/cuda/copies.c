/* Large collectives beside other work: what copies between GPUs moves the
 * bytes, and streams wait for words in memory, so that no multiprocessor is
 * taken from what they are beside, but for the moments in which sums are made.
 * (NCCL's blocks stay for the whole time: products, whose blocks fill all
 * multiprocessors, take up to twice as long beside them.)
 *
 * Each rank gets its part of everybody's operand, adds them up and gives the
 * result to all. Operands come in pieces, for which the two halves of each
 * rank's area take turns: who writes one again has heard of everybody in the
 * piece between, who was then through with the one before. Sums go by rank and
 * are rounded once, as in two_shot. */
#include "peers.h"

/* Blocks of a sum: enough for memory of another's speed, few to be placed
 * beside others. */
#define BLOCKS 32

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static bool adds(fl_comm_kind kind) {
  return kind != FL_COMM_ALL_GATHER;
}

bool flc_copies_can(fl_comm_kind kind) {
  return kind == FL_COMM_ALL_REDUCE || kind == FL_COMM_REDUCE_SCATTER ||
         kind == FL_COMM_ALL_GATHER;
}

typedef struct piece {
  flc_peers *p;
  const fl_comm_call *c;
  CUstream stream;
  size_t unit, room; /* bytes of an element, and of a rank's place */
  size_t at, most;   /* elements before it, and of a part at most */
} piece;

typedef struct part { /* bytes */
  size_t at, bytes;
} part;

/* Rank k's part of the piece, within all ranks' elements. */
static part part_of(const piece *q, int k) {
  size_t left = q->c->count - q->at, size = (size_t)q->p->size, from, n;
  if (q->c->kind == FL_COMM_ALL_REDUCE) {
    size_t all = least(left, q->most * size);
    size_t each = ((all + size - 1) / size + 15) / 16 * 16;
    from = least((size_t)k * each, all);
    n = least(all - from, each);
  } else {
    from = (size_t)k * q->c->count;
    n = least(left, q->most);
  }
  return (part){(from + q->at) * q->unit, n * q->unit};
}

/* Rank `of`'s place in rank k's area; results lie behind operands. */
static CUdeviceptr place(const piece *q, int k, int of, bool result) {
  return q->p->area[k] + COPY_STAGE + q->p->copies_half * COPY_HALF +
         (result ? COPY_PLACES : 0) + (size_t)of * q->room;
}

static fl_status copy(const piece *q, CUdeviceptr to, CUdeviceptr from,
                      size_t bytes) {
  if (bytes && to != from)
    FLC_TRY(q->p->device, flc_cu->MemcpyDtoDAsync(to, from, bytes, q->stream),
            "a copy to another GPU");
  return FL_OK;
}

/* Tells all others how far this rank is, and waits until they are there. */
static fl_status meet(const piece *q) {
  flc_peers *p = q->p;
  uint32_t phase = ++p->copied;
  for (int k = 0; k < p->size; k++)
    if (k != p->rank)
      FLC_TRY(p->device,
              flc_cu->StreamWriteValue32(
                  q->stream, p->area[k] + COPY_WORDS + 4 * (size_t)p->rank,
                  phase, 0),
              "a word to another GPU");
  for (int k = 0; k < p->size; k++)
    if (k != p->rank) /* until it is at least that, cyclically */
      FLC_TRY(p->device,
              flc_cu->StreamWaitValue32(
                  q->stream, p->area[p->rank] + COPY_WORDS + 4 * (size_t)k,
                  phase, 0),
              "waiting for another GPU");
  return FL_OK;
}

static fl_status add_up(const piece *q, const char *in, char *out,
                        size_t bytes) {
  flc_peers *p = q->p;
  peer_args a = {.in = in,
                 .out = out,
                 .n = (int64_t)(bytes / q->unit),
                 .rank = p->rank,
                 .size = p->size,
                 .reduce = (int)q->c->reduce};
  for (int k = 0; k < p->size; k++)
    a.area[k] = (char *)(uintptr_t)place(q, p->rank, k, false);
  flc_spec spec = flc_peers_sum(q->c->dtype, p->size);
  int64_t blocks = flc_ceil_div((int64_t)bytes, 16 * PEER_THREADS);
  flc_grid grid = {.x = (unsigned)(blocks < BLOCKS ? blocks : BLOCKS),
                   .block = PEER_THREADS};
  return bytes ? flc_run_on(p->device, q->stream, "a sum of all ranks", &spec,
                            grid, &a)
               : FL_OK;
}

static fl_status run_piece(const piece *q) {
  const flc_peers *p = q->p;
  fl_comm_kind kind = q->c->kind;
  const char *in = q->c->in;
  char *out = q->c->out;
  part mine = part_of(q, p->rank);
  /* this rank's part of the result, as it is given to all */
  char *sum = kind == FL_COMM_ALL_REDUCE ? out + mine.at
              : kind == FL_COMM_ALL_GATHER
                  ? (char *)(uintptr_t)in + q->at * q->unit
                  : out + q->at * q->unit;
  fl_status s = FL_OK;
  if (adds(kind)) {
    for (int j = 1; j < p->size && !s; j++) {
      int k = (p->rank + j) % p->size; /* not all to the same one at once */
      part theirs = part_of(q, k);
      s = copy(q, place(q, k, p->rank, false), (uintptr_t)(in + theirs.at),
               theirs.bytes);
    }
    if (s || (s = meet(q)) || (s = add_up(q, in + mine.at, sum, mine.bytes)))
      return s;
  }
  if (kind == FL_COMM_REDUCE_SCATTER)
    return FL_OK;
  for (int j = 1; j < p->size && !s; j++) {
    int k = (p->rank + j) % p->size;
    s = copy(q, place(q, k, p->rank, true), (uintptr_t)sum, mine.bytes);
  }
  if (s || (s = meet(q)))
    return s;
  for (int k = 0; k < p->size && !s; k++) {
    part theirs = part_of(q, k);
    s = copy(q, (uintptr_t)(out + theirs.at),
             k == p->rank ? (uintptr_t)sum : place(q, p->rank, k, true),
             theirs.bytes);
  }
  return s;
}

fl_status flc_copies_run(flc_peers *p, const fl_comm_call *c, CUstream s) {
  size_t unit = fl_dtype_size(c->dtype), size = (size_t)p->size;
  piece q = {.p = p, .c = c, .stream = s, .unit = unit};
  q.most = COPY_PLACES / size / unit / 16 * 16;
  q.room = q.most * unit;
  size_t step = c->kind == FL_COMM_ALL_REDUCE ? q.most * size : q.most;
  for (; q.at < c->count; q.at += step) {
    p->copies_half ^= 1;
    fl_status status = run_piece(&q);
    if (status)
      return status;
  }
  return FL_OK;
}

/* Streams that wait for somebody go on: what they would do means nothing. */
void flc_copies_stop(flc_peers *p) {
  CUstream s;
  if (flc_cu->StreamCreate(&s, CU_STREAM_NON_BLOCKING))
    return;
  for (int k = 0; k < p->size; k++)
    flc_cu->StreamWriteValue32(s, p->area[p->rank] + COPY_WORDS + 4 * (size_t)k,
                               p->copied, 0);
  flc_cu->StreamDestroy(s);
}
