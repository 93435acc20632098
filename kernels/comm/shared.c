/* The collectives of the host engine over shared memory, in pieces and phases;
 * send and receive through ring buffers; and the comparison of the ranks' call
 * records. */
#include "host.h"

#include <stdio.h>
#include <string.h>

#define SMALL                                                                  \
  ((size_t)32                                                                  \
   << 10) /* bytes; above, a second phase costs less than reading all */

static member *member_of(host_link *l, int k) {
  return (member *)(l->memory + l->at_member +
                    (size_t)k * ((sizeof(member) + FL_ALIGN - 1) / FL_ALIGN *
                                 FL_ALIGN));
}

static pair *pair_of(host_link *l, int from, int to) {
  size_t k = (size_t)from * (size_t)l->base.size + (size_t)to;
  return (pair *)(l->memory + l->at_pair +
                  k * ((sizeof(pair) + FL_ALIGN - 1) / FL_ALIGN * FL_ALIGN));
}

static char *stage(host_link *l, int k, int half) {
  return l->memory + l->at_stage + ((size_t)k * 2 + (size_t)half) * l->piece;
}

static char *part(host_link *l, int k, int half) {
  return l->memory + l->at_part + ((size_t)k * 2 + (size_t)half) * l->part;
}

static char *slot_at(host_link *l, int from, int to, unsigned half) {
  size_t k = (size_t)from * (size_t)l->base.size + (size_t)to;
  return l->memory + l->at_slot + (k * 2 + half) * l->slot;
}

/* --- agreement --- */

static void describe(const fl_comm_call *c, call_record *d) {
  const fl_comm_note *n = c->note;
  snprintf(d->engine, sizeof d->engine, "%s", n->link->engine->name);
  d->seq = n->seq;
  d->kind = (int)c->kind;
  d->reduce = (int)c->reduce;
  d->way = (int)c->way;
  d->peer = c->peer;
  d->dtype = (int)c->dtype;
  d->count = c->count;
  d->x = n->x;
  memcpy(d->site, n->site, sizeof d->site);
}

static bool alike(const fl_meta *a, const fl_meta *b) {
  return a->ndim == b->ndim &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static bool same(const call_record *a, const call_record *b, bool lines) {
  return strcmp(a->engine, b->engine) == 0 && a->seq == b->seq &&
         a->kind == b->kind && a->reduce == b->reduce && a->way == b->way &&
         a->peer == b->peer && a->count == b->count && alike(&a->x, &b->x) &&
         (a->dtype == b->dtype || a->kind == FL_COMM_BARRIER) &&
         (!lines || strcmp(a->site, b->site) == 0);
}

static void say(const call_record *d, char *text, size_t room) {
  static const char *const reduces[] = {"sum", "mean", "min", "max"};
  static const char *const ways[] = {"auto", "nccl", "ring", "one_shot",
                                     "two_shot"};
  char root[32] = "";
  bool here = strcmp(d->engine, "host") == 0;
  if (d->kind == FL_COMM_BARRIER) {
    snprintf(text, room, "barrier #%llu at %.95s", (unsigned long long)d->seq,
             d->site);
    return;
  }
  bool passed = d->kind == FL_COMM_SEND || d->kind == FL_COMM_RECV;
  if (d->peer >= 0 && !passed)
    snprintf(root, sizeof root, " root %d", d->peer);
  bool sums = d->kind == FL_COMM_ALL_REDUCE || d->kind == FL_COMM_REDUCE ||
              d->kind == FL_COMM_REDUCE_SCATTER;
  snprintf(text, room, "%s #%llu %s %s%s%s%s%s%s%s%.7s at %.95s",
           fl_comm_kind_name(d->kind), (unsigned long long)d->seq,
           fl_dtype_name((fl_dtype)d->dtype),
           fli_shape_text(d->x.ndim, d->x.shape), sums ? " " : "",
           sums ? reduces[d->reduce & 3] : "", d->way ? " " : "",
           d->way ? ways[d->way % 5] : "", root, here ? "" : " by ",
           here ? "" : d->engine, d->site);
}

/* The majority's call is taken to be right; in a tie, the lowest rank's. */
static fl_status compare(host_link *l) {
  int n = l->base.size, best = 0, votes = 0, half = l->place;
  bool lines = l->host->o.check, differ = false;
  char theirs[300], ours[300], what[900];
  for (int k = 1; k < n && !differ; k++)
    differ = !same(&member_of(l, k)->records[half],
                   &member_of(l, 0)->records[half], lines);
  if (!differ)
    return FL_OK;
  for (int k = 0; k < n; k++) {
    int agree = 0;
    for (int j = 0; j < n; j++)
      agree += same(&member_of(l, k)->records[half],
                    &member_of(l, j)->records[half], lines);
    if (agree > votes) {
      votes = agree;
      best = k;
    }
  }
  const call_record *right = &member_of(l, best)->records[half];
  int guilty = 0;
  while (same(&member_of(l, guilty)->records[half], right, lines))
    guilty++;
  say(&member_of(l, guilty)->records[half], theirs, sizeof theirs);
  say(right, ours, sizeof ours);
  size_t at =
      (size_t)snprintf(what, sizeof what, "rank %d called %s, but rank%s",
                       l->base.ranks[guilty], theirs, votes > 1 ? "s" : "");
  for (int k = 0, comma = 0; k < n && at < 700; k++)
    if (same(&member_of(l, k)->records[half], right, lines))
      at += (size_t)snprintf(what + at, sizeof what - at, "%s %d",
                             comma++ ? "," : "", l->base.ranks[k]);
  snprintf(what + at, sizeof what - at, " called %s", ours);
  fl_board *board = l->host->o.board;
  return board->fail(board, l->base.ranks[guilty], what);
}

/* --- phases --- */

/* Ends a phase: publishes this rank's step and waits for all others. After the
 * first phase of a call the records of all ranks are there to be compared. */
static fl_status phase(host_link *l, const fl_comm_call *c) {
  int me = l->base.rank;
  unsigned step = ++l->step;
  fl_status s = FL_OK;
  fl_host_set(&member_of(l, me)->step, step);
  for (int k = 0; k < l->base.size && !s; k++)
    if (k != me)
      s = fl_host_await(l, c->note, &member_of(l, k)->step, step);
  if (s || !l->fresh)
    return s;
  l->fresh = false;
  return compare(l);
}

typedef struct span { /* a piece of every block, in elements */
  size_t at, n;
  int half;
} span;

static size_t min(size_t a, size_t b) {
  return a < b ? a : b;
}

/* --- the collectives, one piece; a half holds `blocks` blocks --- */

static const char *in_at(const fl_comm_call *c, size_t block, size_t at) {
  return (const char *)c->in +
         (block * c->count + at) * fl_dtype_size(c->dtype);
}

static char *out_at(const fl_comm_call *c, size_t block, size_t at) {
  return (char *)c->out + (block * c->count + at) * fl_dtype_size(c->dtype);
}

static void folded(host_link *l, const fl_comm_call *c, int half, size_t from,
                   size_t n, void *out) {
  const void *parts[FL_HOST_RANKS];
  size_t size = fl_dtype_size(c->dtype);
  for (int k = 0; k < l->base.size; k++)
    parts[k] = stage(l, k, half) + from * size;
  fl_comm_fold(c->dtype, c->reduce, n, l->base.size, parts, l->base.size, out);
}

/* Each rank reads and reduces all elements. */
static fl_status one_shot(host_link *l, const fl_comm_call *c, span p) {
  memcpy(stage(l, l->base.rank, p.half), in_at(c, 0, p.at),
         p.n * fl_dtype_size(c->dtype));
  fl_status s = phase(l, c);
  if (s)
    return s;
  if (c->peer < 0 || c->peer == l->base.rank)
    folded(l, c, p.half, 0, p.n, out_at(c, 0, p.at));
  else if (c->out != c->in)
    memcpy(out_at(c, 0, p.at), in_at(c, 0, p.at),
           p.n * fl_dtype_size(c->dtype));
  return FL_OK;
}

/* Where part k of n of a piece begins. */
static size_t bound(size_t elements, int k, int n) {
  return elements * (size_t)k / (size_t)n;
}

/* Each rank reduces one part and then reads the parts of the others. */
static fl_status two_shot(host_link *l, const fl_comm_call *c, span p) {
  int me = l->base.rank, n = l->base.size;
  size_t size = fl_dtype_size(c->dtype), from = bound(p.n, me, n);
  memcpy(stage(l, me, p.half), in_at(c, 0, p.at), p.n * size);
  fl_status s = phase(l, c);
  if (s)
    return s;
  folded(l, c, p.half, from, bound(p.n, me + 1, n) - from, part(l, me, p.half));
  s = phase(l, c);
  for (int k = 0; k < n && !s; k++) {
    from = bound(p.n, k, n);
    memcpy(out_at(c, 0, p.at + from), part(l, k, p.half),
           (bound(p.n, k + 1, n) - from) * size);
  }
  return s;
}

/* A ring reduce-scatter, each part summed beginning at its own rank, followed
 * by a ring all-gather. */
static fl_status ring(host_link *l, const fl_comm_call *c, span p) {
  int me = l->base.rank, n = l->base.size, left = (me + n - 1) % n;
  size_t size = fl_dtype_size(c->dtype);
  char *mine = stage(l, me, p.half), *theirs = stage(l, left, p.half);
  memcpy(mine, in_at(c, 0, p.at), p.n * size);
  fl_status s = phase(l, c);
  for (int t = 0; t < n - 1 && !s; t++) {
    int k = (left + n - t) % n;
    size_t from = bound(p.n, k, n), many = bound(p.n, k + 1, n) - from;
    const void *parts[2] = {theirs + from * size, mine + from * size};
    fl_comm_fold(c->dtype, c->reduce, many, 2, parts, t == n - 2 ? n : 0,
                 mine + from * size);
    s = phase(l, c);
  }
  for (int t = 0; t < n - 1 && !s; t++) {
    int k = (me + n - t) % n;
    size_t from = bound(p.n, k, n), many = bound(p.n, k + 1, n) - from;
    memcpy(mine + from * size, theirs + from * size, many * size);
    s = phase(l, c);
  }
  if (!s)
    memcpy(out_at(c, 0, p.at), mine, p.n * size);
  return s;
}

static fl_status broadcast(host_link *l, const fl_comm_call *c, span p) {
  size_t bytes = p.n * fl_dtype_size(c->dtype);
  bool root = c->peer == l->base.rank;
  if (root)
    memcpy(stage(l, c->peer, p.half), in_at(c, 0, p.at), bytes);
  fl_status s = phase(l, c);
  if (!s && (!root || c->out != c->in))
    memmove(out_at(c, 0, p.at), stage(l, c->peer, p.half), bytes);
  return s;
}

/* One block of each rank: all_gather, and gather on its root. */
static fl_status gather(host_link *l, const fl_comm_call *c, span p) {
  size_t bytes = p.n * fl_dtype_size(c->dtype);
  memcpy(stage(l, l->base.rank, p.half), in_at(c, 0, p.at), bytes);
  fl_status s = phase(l, c);
  for (int k = 0; k < l->base.size && !s; k++)
    if (c->peer < 0 || c->peer == l->base.rank)
      memcpy(out_at(c, (size_t)k, p.at), stage(l, k, p.half), bytes);
  return s;
}

/* A block for each rank, adjacent in a half: reduce_scatter, all_to_all, and
 * scatter from its root. */
static fl_status scatter(host_link *l, const fl_comm_call *c, span p) {
  int me = l->base.rank, n = l->base.size;
  size_t size = fl_dtype_size(c->dtype), bytes = p.n * size;
  if (c->peer < 0 || c->peer == me)
    for (int k = 0; k < n; k++)
      memcpy(stage(l, me, p.half) + (size_t)k * bytes,
             in_at(c, (size_t)k, p.at), bytes);
  fl_status s = phase(l, c);
  if (s)
    return s;
  if (c->kind == FL_COMM_REDUCE_SCATTER)
    folded(l, c, p.half, (size_t)me * p.n, p.n, out_at(c, 0, p.at));
  else if (c->kind == FL_COMM_SCATTER)
    memcpy(out_at(c, 0, p.at), stage(l, c->peer, p.half) + (size_t)me * bytes,
           bytes);
  else
    for (int k = 0; k < n; k++)
      memcpy(out_at(c, (size_t)k, p.at),
             stage(l, k, p.half) + (size_t)me * bytes, bytes);
  return FL_OK;
}

typedef fl_status (*doer)(host_link *l, const fl_comm_call *c, span p);

static doer choose(const host_link *l, const fl_comm_call *c, int *blocks) {
  *blocks = 1;
  switch (c->kind) {
  case FL_COMM_REDUCE:
    return one_shot;
  case FL_COMM_BROADCAST:
    return broadcast;
  case FL_COMM_ALL_GATHER:
  case FL_COMM_GATHER:
    return gather;
  case FL_COMM_REDUCE_SCATTER:
  case FL_COMM_ALL_TO_ALL:
  case FL_COMM_SCATTER:
    *blocks = l->base.size;
    return scatter;
  default:
    break;
  }
  if (c->way == FL_COMM_RING)
    return ring;
  bool small = c->count * fl_dtype_size(c->dtype) <= SMALL || l->base.size == 2;
  return c->way == FL_COMM_ONE_SHOT || (c->way == FL_COMM_AUTO && small)
             ? one_shot
             : two_shot;
}

/* Publishes this rank's call record, which the next phase compares. */
static void begin(host_link *l, const fl_comm_call *c, uint64_t seq) {
  l->place = (int)(seq & 1);
  describe(c, &member_of(l, l->base.rank)->records[l->place]);
  l->fresh = true;
}

fl_status fl_host_agree(host_link *l, const fl_comm_call *c, uint64_t seq) {
  begin(l, c, seq);
  return phase(l, c);
}

fl_status fl_host_together(host_link *l, const fl_comm_call *c) {
  int blocks;
  if (c->way == FL_COMM_NCCL)
    return fli_fail(FL_EARG,
                    "comm_all_reduce: algorithm nccl is for GPUs; this "
                    "group's are ring, one_shot, two_shot");
  if (c->count == 0)
    return fl_host_agree(l, c, c->note->seq);
  begin(l, c, c->note->seq);
  doer f = choose(l, c, &blocks);
  size_t room = l->piece / fl_dtype_size(c->dtype) / (size_t)blocks;
  fl_status s = FL_OK;
  for (span p = {0}; p.at < c->count && !s; p.at += p.n) {
    p.n = min(room, c->count - p.at);
    p.half = l->half ^= 1; /* other ranks may still read the last piece */
    s = f(l, c, p);
  }
  return s;
}

/* --- from one rank to another --- */

static fl_status pass_differs(host_link *l, const fl_comm_call *c,
                              const call_record *there) {
  call_record mine;
  char theirs[300], ours[300], what[900];
  describe(c, &mine);
  say(there, theirs, sizeof theirs);
  say(&mine, ours, sizeof ours);
  snprintf(what, sizeof what, "rank %d called %s, but rank %d called %s",
           l->base.ranks[c->peer], theirs, l->base.ranks[l->base.rank], ours);
  fl_board *board = l->host->o.board;
  return board->fail(board, l->base.ranks[c->peer], what);
}

/* A tensor is sent in slots of a ring buffer; an empty one takes one slot. */
fl_status fl_host_pass(host_link *l, const fl_comm_call *c) {
  bool sends = c->kind == FL_COMM_SEND;
  int from = sends ? l->base.rank : c->peer,
      to = sends ? c->peer : l->base.rank;
  pair *q = pair_of(l, from, to);
  size_t bytes = c->count * fl_dtype_size(c->dtype), at = 0;
  do {
    size_t n = min(l->slot, bytes - at);
    word *mine = sends ? &q->put : &q->taken;
    unsigned turn = atomic_load(&mine->value);
    fl_status s =
        sends ? fl_host_await(l, c->note, &q->taken, at ? turn - 1 : turn)
              : fl_host_await(l, c->note, &q->put, turn + 1);
    if (s)
      return s;
    char *half = slot_at(l, from, to, turn & 1);
    if (sends) {
      if (at == 0)
        describe(c, &q->record);
      memcpy(half, (const char *)c->in + at, n);
    } else {
      if (at == 0 && (!alike(&q->record.x, &c->note->x) ||
                      q->record.dtype != (int)c->dtype))
        return pass_differs(l, c, &q->record);
      memcpy((char *)c->out + at, half, n);
    }
    fl_host_set(mine, turn + 1);
    at += n;
  } while (at < bytes);
  return FL_OK;
}
