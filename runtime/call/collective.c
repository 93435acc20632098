/* Process groups: their numbers, the engines attached to them, the note that
 * the dispatcher passes to the kernel of a collective, and the queues of
 * asynchronous calls whose operands must stay alive. The engines are in
 * kernels/. */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENGINES 4
#define GROUPS  4096

typedef struct pending { /* operands of an asynchronous call */
  uint64_t seq;
  fl_tensor *keep[2];
} pending;

/* Ring buffer of the asynchronous calls of one lane. Calls complete in order,
 * so only the head is checked: a call costs O(1) however many are pending. */
typedef struct pending_queue {
  pending *list;
  size_t first, n, room;
} pending_queue;

typedef struct lane_calls {
  uint64_t seq; /* the last call's number */
  pending_queue pending;
} lane_calls;

typedef struct group {
  int rank, size;
  int *ranks;
  fl_comm_link *link[FLI_MAX_BACKENDS];
  /* indexed by a link's first backend: each engine counts its own calls */
  lane_calls lanes[FLI_MAX_BACKENDS][FL_COMM_LANES];
  fl_comm_note note; /* of the newest call */
} group;

struct fli_comm {
  fl_comm_options options;
  char *key;
  fl_board *board;
  fl_comm *engines[ENGINES];
  int n_engines;
  group **groups;
  int n_groups;
};

/* --- groups --- */

static fl_status add_group(struct fli_comm *m, int n, const int *ranks) {
  group *g = calloc(1, sizeof *g);
  int *copy = calloc((size_t)n, sizeof *copy);
  group **list = realloc(m->groups, (size_t)(m->n_groups + 1) * sizeof *list);
  if (list)
    m->groups = list;
  if (!g || !copy || !list) {
    free(g);
    free(copy);
    return fli_fail(FL_ENOMEM, "out of memory: a group of ranks");
  }
  g->rank = -1;
  g->size = n;
  g->ranks = copy;
  for (int k = 0; k < n; k++) {
    copy[k] = ranks ? ranks[k] : k;
    if (copy[k] == m->options.rank)
      g->rank = k;
  }
  m->groups[m->n_groups++] = g;
  return FL_OK;
}

/* The runtime's groups; without a job there is one, of this process alone. */
static fl_status comm_of(fl_runtime *rt, struct fli_comm **m) {
  if (rt->comm) {
    *m = rt->comm;
    return FL_OK;
  }
  struct fli_comm *fresh = calloc(1, sizeof *fresh);
  if (!fresh)
    return fli_fail(FL_ENOMEM, "out of memory: groups of ranks");
  fresh->options.size = 1;
  fl_status s = add_group(fresh, 1, NULL);
  if (s) {
    free(fresh);
    return s;
  }
  *m = rt->comm = fresh;
  return FL_OK;
}

static fl_status group_of(fl_runtime *rt, int64_t number, group **g) {
  struct fli_comm *m = NULL;
  FLI_TRY(comm_of(rt, &m));
  if (number < 0 || number >= m->n_groups)
    return fli_fail(FL_EARG, "there is no group %lld of ranks",
                    (long long)number);
  *g = m->groups[number];
  return FL_OK;
}

fl_status fli_comm_group(fl_runtime *rt, int64_t number, int *rank, int *size) {
  group *g = NULL;
  FLI_TRY(group_of(rt, number, &g));
  if (g->rank < 0)
    return fli_fail(FL_EARG, "rank %d is not in group %lld",
                    rt->comm->options.rank, (long long)number);
  *rank = g->rank;
  *size = g->size;
  return FL_OK;
}

fl_status fl_comm_members(fl_runtime *rt, int number, int *rank, int *size,
                          const int **ranks) {
  FLI_NEED(rt, "rt");
  FLI_NEED(rank, "rank");
  FLI_NEED(size, "size");
  FLI_NEED(ranks, "ranks");
  group *g = NULL;
  FLI_TRY(group_of(rt, number, &g));
  *rank = g->rank;
  *size = g->size;
  *ranks = g->ranks;
  return FL_OK;
}

fl_status fl_comm_group(fl_runtime *rt, int n, const int *ranks, int *number) {
  FLI_NEED(rt, "rt");
  FLI_NEED(number, "group");
  if (n > 0)
    FLI_NEED(ranks, "ranks");
  struct fli_comm *m = NULL;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(comm_of(rt, &m));
  if (n < 1 || m->n_groups == GROUPS)
    return fli_fail(FL_EARG, n < 1 ? "a group needs a rank at least"
                                   : "there are too many groups of ranks");
  for (int k = 0; k < n; k++)
    for (int j = 0; j <= k; j++)
      if (ranks[k] < 0 || ranks[k] >= m->options.size ||
          (j < k && ranks[j] == ranks[k]))
        return fli_fail(FL_EARG,
                        j < k && ranks[j] == ranks[k]
                            ? "rank %d is twice in a group"
                            : "there is no rank %d in a job of %d",
                        ranks[k], m->options.size);
  FLI_TRY(add_group(m, n, ranks));
  *number = m->n_groups - 1;
  return FL_OK;
}

/* fl_comm_options.swap, by the engine of the first backend: host memory. */
static fl_status swap(void *swapper, int number, const void *mine, void *all,
                      size_t bytes) {
  struct fli_comm *m = swapper;
  group *g = m->groups[number];
  fl_comm_link *link = g->link[0];
  if (!link)
    return fli_fail(FL_EUNSUPPORTED,
                    "no engine carries the host's memory in group %d", number);
  fl_comm_note n = {.link = link,
                    .group = number,
                    .rank = g->rank,
                    .size = g->size,
                    .kind = FL_COMM_ALL_GATHER,
                    .lane = FL_COMM_TOGETHER,
                    .seq = ++g->lanes[0][FL_COMM_TOGETHER].seq,
                    .x = {.dtype = FL_U8, .ndim = 1, .shape = {(int64_t)bytes}},
                    .peer = -1,
                    .site = "the start of the group"};
  const fl_comm_call c = {.note = &n,
                          .kind = n.kind,
                          .dtype = FL_U8,
                          .peer = -1,
                          .count = bytes,
                          .in = mine,
                          .out = all};
  return link->engine->run(&c);
}

/* --- the job --- */

fl_status fl_comm_open(fl_runtime *rt, const fl_comm_options *o) {
  FLI_NEED(rt, "rt");
  FLI_NEED(o, "o");
  FLI_TRY(FL_CHECK_SIZED(fl_comm_options, o));
  FLI_TRY(fli_check_owner(rt));
  if (rt->comm && rt->comm->board)
    return fli_fail(FL_EARG, "this process has joined a job already");
  if (o->size < 1 || o->size > FL_COMM_RANKS || o->rank < 0 ||
      o->rank >= o->size)
    return fli_fail(FL_EARG, "there is no rank %d in a job of %d", o->rank,
                    o->size);
  if (!(o->timeout >= 0) || !(o->first >= 0)) /* NaN is neither */
    return fli_fail(FL_EARG,
                    "a job's time-outs are seconds of at least 0, got %g and "
                    "%g for the first call of a group",
                    o->timeout, o->first);
  fl_comm_close(rt); /* the group of one that exists without a job */
  struct fli_comm *m = calloc(1, sizeof *m);
  if (!m || !(m->key = strdup(o->key ? o->key : ""))) {
    free(m);
    return fli_fail(FL_ENOMEM, "out of memory: a job");
  }
  m->options = *o;
  m->options.key = m->key;
  fl_status s = add_group(m, o->size, NULL);
  if (s == FL_OK)
    s = fl_board_open(&m->options, &m->board);
  m->options.board = m->board;
  m->options.swap = swap;
  m->options.swapper = m;
  rt->comm = m;
  rt->local_rank = o->here;
  if (s)
    fl_comm_close(rt);
  return s;
}

static pending *pending_head(pending_queue *q) {
  return q->n ? &q->list[q->first] : NULL;
}

static void pop_pending(pending_queue *q) {
  pending p = q->list[q->first];
  q->first = (q->first + 1) % q->room;
  q->n--;
  fl_tensor_release(p.keep[0]);
  fl_tensor_release(p.keep[1]);
}

/* Releases the operands of calls that are done. */
static void drop_done(lane_calls *calls, fl_comm_link *link, int lane) {
  pending *p;
  while ((p = pending_head(&calls->pending)) &&
         link->engine->done(link, lane, p->seq))
    pop_pending(&calls->pending);
}

static void drop_lanes(group *g) {
  for (int k = 0; k < FLI_MAX_BACKENDS; k++)
    for (int lane = 0; lane < FL_COMM_LANES; lane++) {
      pending_queue *q = &g->lanes[k][lane].pending;
      while (q->n)
        pop_pending(q);
      free(q->list);
    }
}

/* Makes room for one more call, so that appending it cannot fail. */
static fl_status reserve_pending(pending_queue *q) {
  if (q->n < q->room)
    return FL_OK;
  size_t room = q->room ? 2 * q->room : 16;
  pending *list = calloc(room, sizeof *list);
  if (!list)
    return fli_fail(FL_ENOMEM, "out of memory: a collective");
  for (size_t k = 0; k < q->n; k++)
    list[k] = q->list[(q->first + k) % q->room];
  free(q->list);
  *q = (pending_queue){.list = list, .n = q->n, .room = room};
  return FL_OK;
}

static void append_pending(pending_queue *q, uint64_t seq, fl_tensor *in,
                           fl_tensor *out) {
  q->list[(q->first + q->n++) % q->room] = (pending){
      seq,
      {in ? fl_tensor_retain(in) : NULL, out ? fl_tensor_retain(out) : NULL}};
}

static void unlink_group(group *g) {
  for (int k = 0; k < FLI_MAX_BACKENDS; k++) {
    fl_comm_link *link = g->link[k];
    for (int j = k; j < FLI_MAX_BACKENDS; j++)
      if (g->link[j] == link)
        g->link[j] = NULL;
    if (link)
      link->engine->unlink(link->engine, link);
  }
}

void fl_comm_close(fl_runtime *rt) {
  if (!rt)
    return;
  struct fli_comm *m = rt->comm;
  if (!m)
    return;
  if (!m->board) /* streams may still run collectives of the group of one */
    fl_device_sync(rt, -1);
  rt->comm = NULL;
  rt->local_rank = 0;
  for (int i = m->n_groups - 1; i >= 0; i--)
    unlink_group(m->groups[i]);
  for (int i = 0; i < m->n_groups; i++) {
    drop_lanes(m->groups[i]);
    free(m->groups[i]->ranks);
    free(m->groups[i]);
  }
  for (int i = 0; i < m->n_engines; i++)
    m->engines[i]->close(m->engines[i]);
  if (m->board)
    m->board->close(m->board);
  free(m->groups);
  free(m->key);
  free(m);
}

fl_status fl_comm_reset(fl_runtime *rt, int groups, bool lead) {
  FLI_NEED(rt, "rt");
  struct fli_comm *m = rt->comm;
  FLI_TRY(fli_check_owner(rt));
  if (!m || !m->board)
    return fli_fail(FL_EARG, "this process has not joined a job");
  if (groups < 1 || groups > m->n_groups)
    return fli_fail(FL_EARG, "there are %d groups of ranks, not %d",
                    m->n_groups, groups);
  fl_device_sync(rt, -1); /* a failure there is already known */
  for (int i = m->n_groups - 1; i >= 0; i--) {
    group *g = m->groups[i];
    unlink_group(g);
    drop_lanes(g);
    memset(g->lanes, 0, sizeof g->lanes);
    if (i < groups)
      continue;
    free(g->ranks);
    free(g);
    m->n_groups--;
  }
  m->board->reset(m->board, lead);
  return FL_OK;
}

int fl_comm_groups(const fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  return rt->comm ? rt->comm->n_groups : 0;
}

/* --- engines --- */

static fl_status engine_of(fl_runtime *rt, const char *name, fl_comm **c) {
  struct fli_comm *m = rt->comm;
  int n;
  const fl_builtin_comm *all = fl_builtin_comms(&n);
  if (!m || !m->board)
    return fli_fail(FL_EARG, "this process has not joined a job");
  for (int i = 0; i < m->n_engines; i++)
    if (strcmp(m->engines[i]->name, name) == 0) {
      *c = m->engines[i];
      return FL_OK;
    }
  for (int i = 0; i < n && m->n_engines < ENGINES; i++)
    if (strcmp(all[i].name, name) == 0) {
      FLI_TRY(all[i].open(&m->options, c));
      m->engines[m->n_engines++] = *c;
      return FL_OK;
    }
  return fli_fail(FL_EUNSUPPORTED, "there is no engine \"%s\" for collectives",
                  name);
}

fl_status fl_comm_load(fl_runtime *rt, const char *path) {
  FLI_NEED(rt, "rt");
  FLI_NEED(path, "path");
  struct fli_comm *m = rt->comm;
  fl_status (*open)(const fl_comm_options *o, fl_comm **c);
  FLI_TRY(fli_check_owner(rt));
  if (!m || !m->board || m->n_engines == ENGINES)
    return fli_fail(FL_EARG, "an engine needs a job, and one has %d at most",
                    ENGINES);
  FLI_TRY(fli_engine_symbol(path, &open));
  FLI_TRY(open(&m->options, &m->engines[m->n_engines]));
  m->n_engines++;
  return FL_OK;
}

fl_status fl_comm_ticket(fl_runtime *rt, const char *engine,
                         unsigned char *ticket) {
  FLI_NEED(rt, "rt");
  FLI_NEED(engine, "engine");
  FLI_NEED(ticket, "ticket");
  fl_comm *c;
  memset(ticket, 0, FL_COMM_TICKET);
  FLI_TRY(engine_of(rt, engine, &c));
  return c->ticket ? c->ticket(c, ticket) : FL_OK;
}

/* Whether the engine's list of backends has this name. */
static bool carries(const fl_comm *c, const char *backend) {
  size_t n = strlen(backend);
  for (const char *p = c->backends; (p = strstr(p, backend)); p += n)
    if ((p == c->backends || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
      return true;
  return false;
}

fl_status fl_comm_attach(fl_runtime *rt, int number, const char *engine,
                         fl_device d, const unsigned char *ticket) {
  FLI_NEED(rt, "rt");
  FLI_NEED(engine, "engine");
  FLI_NEED(ticket, "ticket");
  FLI_TRY(fli_check_device(rt, d));
  group *g = NULL;
  fl_comm *c;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(group_of(rt, number, &g));
  FLI_TRY(engine_of(rt, engine, &c));
  if (!carries(c, fli_backend(rt, d)->name))
    return fli_fail(FL_EARG, "the engine %s does not carry tensors of %s",
                    engine, fl_device_name(rt, d));
  if (g->rank < 0 || g->size == 1 || g->link[d >> 8])
    return FL_OK;
  fl_comm_link wish = {c, number, g->rank, g->size, g->ranks}, *link;
  bool host = fli_backend(rt, d)->flags & FL_BACKEND_HOST;
  FLI_TRY(c->link(c, &wish, host ? -1 : d & 255, ticket, &link));
  for (int k = 0; k < rt->n_backends; k++)
    if (!g->link[k] && carries(c, rt->backends[k]->name))
      g->link[k] = link;
  return FL_OK;
}

const char *fl_comm_engine(fl_runtime *rt, int number, fl_device d) {
  FLI_NEED_OR(rt, "rt", NULL);
  if (fli_check_device(rt, d))
    return NULL;
  group *g = NULL;
  if (group_of(rt, number, &g) || !g->link[d >> 8])
    return NULL;
  return g->link[d >> 8]->engine->name;
}

/* --- calls --- */

/* The calls of a link and lane, indexed by the link's first backend. */
static lane_calls *calls_of(group *g, const fl_comm_link *link, int lane) {
  int first = 0;
  while (g->link[first] != link)
    first++;
  return &g->lanes[first][lane];
}

static int kind_of(int op) {
  switch (op) {
#define FL_COLLECTIVE(name, kind)                                              \
  case FLI_OP_comm_##name:                                                     \
    return FL_COMM_##kind;
#include "../ops.def"
  default:
    return FL_COMM_BARRIER;
  }
}

static void fill_note(fl_runtime *rt, fl_comm_note *n, const fl_call *c,
                      const fl_launch *l, const group *g) {
  int kind = kind_of(c->op->id);
  const fl_view *x = l->n_in ? &l->in[0] : l->n_out ? &l->out[0] : NULL;
  if (kind == FL_COMM_SCATTER)
    x = &l->out[0];
  n->group = (int)l->attrs->v[FL_ATTR_collectives_group].i;
  n->rank = g->rank;
  n->size = g->size;
  n->kind = (fl_comm_kind)kind;
  n->lane = kind == FL_COMM_SEND   ? FL_COMM_SENDS
            : kind == FL_COMM_RECV ? FL_COMM_RECEIVES
                                   : FL_COMM_TOGETHER;
  n->peer = n->lane == FL_COMM_TOGETHER
                ? -1
                : g->ranks[l->attrs->v[FL_ATTR_comm_peers_peer].i];
  n->x.dtype = x ? x->dtype : FL_U8;
  n->x.ndim = x ? x->ndim : 0;
  for (int i = 0; i < n->x.ndim; i++)
    n->x.shape[i] = x->shape[i];
  snprintf(n->site, sizeof n->site, "%s",
           c->site ? fl_site_text(rt, c->site) : "");
}

/* With `check`, calls of an engine that does not compare them are compared by
 * the group's first engine that does. */
static fl_status agree(fl_runtime *rt, group *g, const fl_launch *l) {
  const fl_comm_note *n = l->comm;
  if (!rt->comm->options.check || !n->link || n->link->engine->agree ||
      n->lane != FL_COMM_TOGETHER)
    return FL_OK;
  for (int k = 0; k < FLI_MAX_BACKENDS; k++)
    if (g->link[k] && g->link[k]->engine->agree) {
      fl_comm_call c = {.in = NULL};
      fl_comm_read(l, &c);
      return g->link[k]->engine->agree(g->link[k], &c,
                                       ++g->lanes[k][FL_COMM_TOGETHER].seq);
    }
  return FL_OK;
}

fl_status fli_comm_begin(fl_runtime *rt, const fl_call *c, fl_launch *l,
                         fl_tensor *const *out) {
  group *g = NULL;
  FLI_TRY(group_of(rt, l->attrs->v[FL_ATTR_collectives_group].i, &g));
  fl_tensor *in = c->n_in ? c->in[0].tensor : NULL;
  fl_tensor *any = in ? in : l->n_out ? out[0] : NULL;
  fl_device d = any ? any->storage->device : c->device;
  fl_comm_link *link = g->link[d >> 8];
  if (g->size > 1 && !link)
    return fli_fail(FL_ECOMM, "%s: no engine carries tensors of %s in group %d",
                    c->op->info.name, fl_device_name(rt, d),
                    (int)l->attrs->v[FL_ATTR_collectives_group].i);
  fl_comm_note *n = &g->note;
  fill_note(rt, n, c, l, g);
  n->link = link;
  lane_calls *calls = calls_of(g, link, n->lane);
  n->seq = calls->seq + 1;
  n->async = n->kind != FL_COMM_BARRIER &&
             l->attrs->v[FL_ATTR_collectives_async].i != 0 && link &&
             !(fli_backend(rt, d)->flags & FL_BACKEND_ASYNC);
  l->comm = n;
  FLI_TRY(agree(rt, g, l));
  if (n->async) {
    drop_done(calls, link, n->lane);
    FLI_TRY(reserve_pending(&calls->pending));
    append_pending(&calls->pending, n->seq, in, l->n_out ? out[0] : NULL);
  }
  calls->seq = n->seq; /* counted: nothing can fail after this */
  return FL_OK;
}

fl_status fl_comm_last(fl_runtime *rt, int number, fl_device d, int *lane,
                       uint64_t *seq) {
  FLI_NEED(rt, "rt");
  FLI_NEED(lane, "lane");
  FLI_NEED(seq, "seq");
  FLI_TRY(fli_check_device(rt, d));
  group *g = NULL;
  (void)d;
  FLI_TRY(group_of(rt, number, &g));
  *lane = g->note.lane;
  *seq = g->note.seq;
  return FL_OK;
}

fl_status fl_comm_wait(fl_runtime *rt, int number, fl_device d, int lane,
                       uint64_t seq) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_device(rt, d));
  group *g = NULL;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(group_of(rt, number, &g));
  fl_comm_link *link = g->link[d >> 8];
  if (!link || !link->engine->wait)
    return FL_OK;
  if (lane < 0 || lane >= FL_COMM_LANES)
    return fli_fail(FL_EARG, "wait: there is no lane %d", lane);
  fl_status s = link->engine->wait(link, lane, seq);
  drop_done(calls_of(g, link, lane), link, lane);
  return s;
}

bool fl_comm_done(fl_runtime *rt, int number, fl_device d, int lane,
                  uint64_t seq) {
  FLI_NEED_OR(rt, "rt", true);
  group *g = NULL;
  if (fli_check_device(rt, d) || group_of(rt, number, &g) || lane < 0 ||
      lane >= FL_COMM_LANES)
    return true;
  fl_comm_link *link = g->link[d >> 8];
  return !link || !link->engine->done || link->engine->done(link, lane, seq);
}

/* Whether this rank has still to make a call that another is in or has made. A
 * receive or a send of the other's waits for this rank however they count. */
static bool is_behind(struct fli_comm *m, int lane, const fl_comm_turn *t) {
  if (!t->busy && !t->seq)
    return false;
  if (t->group >= m->n_groups)
    return true; /* ranks make groups in the same order */
  group *g = m->groups[t->group];
  if (g->rank < 0)
    return false;
  if (lane != FL_COMM_TOGETHER)
    return t->busy && t->peer == m->options.rank;
  for (int k = 0; k < FLI_MAX_BACKENDS; k++)
    if (g->link[k] && strcmp(g->link[k]->engine->name, t->engine) == 0)
      return t->seq > calls_of(g, g->link[k], lane)->seq;
  return true; /* the other is in the link of the group, or has it */
}

bool fl_comm_behind(const fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", false);
  struct fli_comm *m = rt->comm;
  fl_comm_turn turns[FL_COMM_LANES];
  for (int r = 0; m && m->board && r < m->options.size; r++) {
    if (r == m->options.rank || !m->board->turns(m->board, r, turns))
      continue;
    for (int lane = 0; lane < FL_COMM_LANES; lane++)
      if (is_behind(m, lane, &turns[lane]))
        return true;
  }
  return false;
}

/* --- failures --- */

const char *fl_comm_verdict(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", "");
  const size_t room = 64 << 10;
  char *text = rt->comm && rt->comm->board ? fli_text(rt, room) : NULL;
  if (!text)
    return "";
  rt->comm->board->verdict(rt->comm->board, text, room);
  return text;
}

void fl_comm_fail(fl_runtime *rt, const char *why) {
  if (!rt || !why)
    return;
  struct fli_comm *m = rt->comm;
  char what[1024];
  if (!m || !m->board)
    return;
  snprintf(what, sizeof what, "rank %d failed: %s", m->options.rank, why);
  m->board->fail(m->board, m->options.rank, what);
}

fl_status fl_comm_watch(const char *key, int size, fl_board **b) {
  FLI_NEED(key, "key");
  FLI_NEED(b, "b");
  if (size < 1 || size > FL_COMM_RANKS)
    return fli_fail(FL_EARG, "there is no job of %d ranks", size);
  fl_comm_options o = {
      .struct_size = sizeof o, .key = key, .rank = -1, .size = size};
  return fl_board_open(&o, b);
}
