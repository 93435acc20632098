/* Launch graphs: capturing, running, and what a graph keeps: the storages that
 * its launches use, the notes that give a late failure its line, a pool of
 * memory. What a capture refuses is in memory/capture.c. */
#include "../memory/capture.h"
#include "../memory/stream.h"
#include "../tape/tape.h"
#include "graph.h"

#include <stdio.h>
#include <string.h>

typedef struct graph_use {
  fl_storage *s; /* counted */
  bool writes;
} graph_use;

struct fl_graph {
  fli_capture capture; /* while rt->capture points to it */
  fl_runtime *rt;      /* NULL: closed */
  fl_device device;
  int stream;
  fl_graph_exec *exec; /* NULL: the capture goes on, or has failed */
  struct fli_heap *pool;
  uint32_t epoch; /* of storages' marks: they have a use */
  uint32_t n_uses, uses_room;
  graph_use *uses;
  fli_noted noted;
  uint64_t runs;
  bool planned; /* of a plan */
  bool dropped; /* freed in the capture of another */
  fl_graph *next;
};

static fl_graph *graph_captured(fl_runtime *rt) {
  return (fl_graph *)(void *)rt->capture;
}

/* --- calls during a capture --- */

/* The call, which must not draw random numbers: whether it does is known when
 * its generator has moved on. */
static fl_status graph_call(fl_runtime *rt, const fl_call *c) {
  fl_generator *g = c->generator ? c->generator : &rt->generator;
  uint64_t offset = g->offset;
  fl_status s = fli_call_below(rt, c, FLI_MODE_CAPTURE);
  if (g->offset == offset)
    return s;
  g->offset = offset;
  for (int k = 0; k < c->op->info.n_out && s == FL_OK; k++)
    fl_tensor_release(c->out[k]);
  return fli_capture_fails(
      rt, "random numbers: every run would draw the same ones");
}

bool fli_mode_capture(fl_runtime *rt, const fl_call *c, fl_status *status) {
  fli_capture *k = rt->capture;
  if (!k) {
    fli_rehearse_note(rt, c);
    return false;
  }
  bool outermost = !k->op;
  if (outermost)
    k->op = c->op->info.name;
  if (c->op->info.collective)
    *status = fli_capture_fails(rt, "collectives");
  else if (fli_rehearse_differs(rt, c))
    *status = fli_capture_fails(rt, "a number that changes from run to run: "
                                    "every run would use the same one");
  else if (outermost)
    *status = graph_call(rt, c);
  else
    return false;
  if (outermost && rt->capture == k)
    k->op = NULL;
  return true;
}

/* Grows an array of *room elements of `size` bytes by one. */
static bool graph_room(fl_runtime *rt, void *array, uint32_t *room, uint32_t n,
                       size_t size) {
  void **old = array;
  if (n < *room)
    return true;
  uint32_t more = *room ? 2 * *room : 64;
  void *p = fli_malloc(rt, more * size);
  if (!p)
    return false;
  if (*old)
    memcpy(p, *old, n * size);
  fli_mfree(*old);
  *old = p;
  *room = more;
  return true;
}

static fl_status graph_takes(const fl_graph *g, fl_device d) {
  fl_runtime *rt = g->rt;
  char what[128];
  if (rt->profile)
    return fli_capture_fails(rt, "launches while the profiler runs");
  if (d == g->device)
    return FL_OK;
  snprintf(what, sizeof what, "work on %s: it is a graph of %s",
           fl_device_name(rt, d), fl_device_name(rt, g->device));
  return fli_capture_fails(rt, what);
}

fl_status fli_capture_launch(fl_runtime *rt, fl_device d, const char *op) {
  fl_graph *g = graph_captured(rt);
  const char *called = g->capture.op;
  if (!called) /* a kernel of the user's */
    g->capture.op = op;
  fl_status s = graph_takes(g, d);
  g->capture.op = called;
  FLI_TRY(s);
  fli_noted *k = &g->noted;
  if (!graph_room(rt, &k->notes, &k->room, k->n, sizeof *k->notes))
    return FL_ENOMEM;
  k->notes[k->n++] = rt->ring[rt->seq % FLI_RING];
  return FL_OK;
}

fl_status fli_capture_uses(fl_storage *s, bool writes) {
  fl_graph *g = graph_captured(s->rt);
  if (fli_pool_has(g->pool, s->block))
    return FL_OK;
  if (s->window != g->epoch) {
    if (!graph_room(s->rt, &g->uses, &g->uses_room, g->n_uses, sizeof *g->uses))
      return FL_ENOMEM;
    s->window = g->epoch;
    s->slot = g->n_uses;
    g->uses[g->n_uses++] = (graph_use){.s = s};
    fli_storage_retain(s);
  }
  g->uses[s->slot].writes |= writes;
  return FL_OK;
}

/* --- capturing --- */

static fl_status graph_may_begin(fl_runtime *rt, fl_device d) {
  if (!fli_backend(rt, d)->capture_begin)
    return fli_fail(FL_EUNSUPPORTED, "%s has no graphs of launches",
                    fl_device_name(rt, d));
  if (rt->capture)
    return fli_fail(FL_EARG, "a graph is being captured already");
  if (rt->window)
    return fli_fail(FL_EARG, "a graph cannot be captured in a compiled "
                             "function: compile inside of it instead");
  if (rt->meta)
    return fli_fail(FL_EARG, "a graph cannot be captured in meta mode");
  if (rt->profile)
    return fli_fail(FL_EARG, "a graph cannot be captured while the profiler "
                             "runs");
  return FL_OK;
}

static void graph_close(fl_graph *g);

static void capture_stop(fl_graph *g) {
  fl_runtime *rt = g->rt;
  rt->capture = NULL;
  rt->watch &= ~(unsigned)FLI_WATCH_CAPTURE;
  fli_pool_use(rt, g->device, NULL);
  if (!g->planned) {
    fli_mode_set(rt, FLI_MODE_CAPTURE, false);
    fli_rehearse_end(rt);
    fli_autocast_forget(rt); /* the graph's casts */
  }
  for (fl_graph **at = &rt->graphs; *at;) {
    fl_graph *k = *at;
    if (!k->dropped) {
      at = &k->next;
      continue;
    }
    graph_close(k); /* takes it out of the list */
    fli_mfree(k);
  }
}

/* The memory that graphs of plans on the stream in use share. */
static struct fli_heap *graph_pool(fl_runtime *rt, fl_device d) {
  for (fl_graph *k = rt->graphs; k; k = k->next)
    if (k->planned && k->device == d && k->stream == fl_stream_current(rt, d))
      return k->pool;
  return NULL;
}

static fl_status graph_new(fl_runtime *rt, fl_device d, bool planned,
                           fl_graph **out) {
  fl_backend *b = fli_backend(rt, d);
  fl_graph *g = fli_malloc(rt, sizeof *g);
  if (!g)
    return FL_ENOMEM;
  memset(g, 0, sizeof *g);
  g->rt = rt;
  g->device = d;
  g->stream = fl_stream_current(rt, d);
  g->epoch = ++rt->epochs;
  g->capture.device = d;
  g->planned = planned;
  g->pool = planned ? graph_pool(rt, d) : NULL;
  bool fresh = !g->pool;
  fl_status s = fresh ? fli_pool_new(rt, d, &g->pool) : FL_OK;
  if (s == FL_OK) {
    g->capture.pool = g->pool;
    s = b->capture_begin(b, d & 255, fli_stream(rt, d));
    if (s && fresh)
      fli_pool_end(g->pool);
  }
  if (s) {
    fli_mfree(g);
    return s;
  }
  g->next = rt->graphs;
  rt->graphs = g;
  g->noted.next = rt->noted;
  rt->noted = &g->noted;
  rt->capture = &g->capture;
  rt->watch |= FLI_WATCH_CAPTURE;
  fli_pool_use(rt, d, g->pool);
  *out = g;
  return FL_OK;
}

fl_status fl_graph_begin(fl_runtime *rt, fl_device d, fl_graph **out) {
  FLI_NEED(rt, "rt");
  FLI_NEED(out, "out");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_check_device(rt, d));
  FLI_TRY(graph_may_begin(rt, d));
  FLI_TRY(fl_device_sync(rt, d)); /* earlier failures are not the graph's */
  fli_autocast_forget(rt);        /* runs must cast again */
  fl_memory_flush(rt, d);
  FLI_TRY(graph_new(rt, d, false, out));
  fli_mode_set(rt, FLI_MODE_CAPTURE, true);
  return FL_OK;
}

/* Adds a result to the storages that each run writes. */
static fl_status graph_result(fl_graph *g, const fl_tensor *t) {
  fl_storage *s = t ? t->storage : NULL;
  if (!s || t->rt != g->rt || !fli_pool_has(g->pool, s->block))
    return FL_OK;
  if (!graph_room(g->rt, &g->uses, &g->uses_room, g->n_uses, sizeof *g->uses))
    return FL_ENOMEM;
  g->uses[g->n_uses++] = (graph_use){.s = s, .writes = true};
  fli_storage_retain(s);
  return FL_OK;
}

fl_status fli_capture_shut(fl_graph *g) {
  fl_backend *b = fli_backend(g->rt, g->device);
  fl_graph_exec *exec = NULL;
  fl_status s = g->capture.failed;
  fl_status ended = b->capture_end(
      b, g->device & 255, fli_stream(g->rt, g->device), s ? NULL : &exec);
  capture_stop(g);
  if (s)
    return fli_fail(s, "%s", g->capture.why);
  FLI_TRY(ended);
  g->exec = exec;
  return FL_OK;
}

fl_status fl_graph_end(fl_graph *g, int n, fl_tensor *const *results) {
  FLI_NEED(g, "g");
  FLI_TRY(fli_check_count(__func__, "n", n));
  if (n > 0)
    FLI_NEED(results, "results");
  if (!g->rt)
    return fli_fail(FL_ECLOSED, "the graph's runtime is closed");
  FLI_TRY(fli_check_owner(g->rt));
  if (g->rt->capture != &g->capture)
    return fli_fail(FL_EARG, "this graph is not being captured");
  fl_status waits = fli_settle_all(g->rt);
  fl_status s = fli_capture_shut(g);
  if (s == FL_OK)
    s = waits;
  for (int k = 0; k < n && s == FL_OK; k++)
    s = graph_result(g, results[k]);
  return s;
}

/* --- running --- */

fl_status fli_graph_send(fl_graph *g, fl_site site) {
  fl_runtime *rt = g->rt;
  fl_device d = g->device;
  fl_backend *b = fli_backend(rt, d);
  fl_stream *stream = fli_stream(rt, d);
  uint64_t failed, seq = ++rt->seq;
  size_t row = SIZE_MAX;
  fli_note_launch(rt, "graph", site, seq, 0, NULL);
  FLI_TRY(fli_stream_note(rt, d));
  if (rt->profile) {
    fli_profiled what = {
        .op = "graph", .site = site, .device = d, .dtype = FL_NODTYPE};
    row = fli_profile_begin(rt, &what, stream);
  }
  fl_status s = b->stream_peek(b, d & 255, stream, &failed);
  bool late = s != FL_OK;
  if (!late)
    s = b->exec_launch(b, g->exec, seq);
  if (rt->profile)
    fli_profile_end(rt, row, stream);
  return late || s == FL_EFAULT ? fli_stream_finish(rt, d) : s;
}

fl_status fl_graph_run(fl_graph *g, fl_site site) {
  FLI_NEED(g, "g");
  fl_runtime *rt = g->rt;
  if (!rt)
    return fli_fail(FL_ECLOSED, "the graph's runtime is closed");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_capture_refuses(rt, -1, "the run of another graph"));
  if (!g->exec)
    return fli_fail(FL_EARG, "the graph has not been captured");
  FLI_TRY(fli_settle_all(rt));
  if (fl_stream_current(rt, g->device) != g->stream)
    return fli_fail(FL_EDEVICE,
                    "the graph was captured on stream %d of %s and runs there "
                    "only; stream %d is in use",
                    g->stream, fl_device_name(rt, g->device),
                    fl_stream_current(rt, g->device));
  for (uint32_t k = 0; k < g->n_uses; k++)
    if (g->uses[k].writes && g->uses[k].s->kept)
      FLI_TRY(fli_keep_write(g->uses[k].s));
  for (uint32_t k = 0; k < g->n_uses && rt->watch; k++)
    if (g->uses[k].s->block)
      FLI_TRY(fli_stream_uses(rt, g->device, g->uses[k].s->block));
  FLI_TRY(fli_graph_send(g, site));
  for (uint32_t k = 0; k < g->n_uses; k++)
    if (g->uses[k].writes) {
      g->uses[k].s->version++;
      g->uses[k].s->write_site = site;
    }
  g->runs++;
  return FL_OK;
}

/* --- ending --- */

/* A failure that is not reported yet keeps its note. */
static void graph_drop(fl_graph *g) {
  fl_runtime *rt = g->rt;
  fl_backend *b = fli_backend(rt, g->device);
  uint64_t failed = 0;
  b->exec_free(b, g->exec);
  if (b->stream_peek(b, g->device & 255, fli_stream(rt, g->device), &failed)) {
    const fli_launch_note *n = fli_noted_find(rt, failed);
    if (n)
      rt->ring[failed % FLI_RING] = *n;
  }
}

static void graph_close(fl_graph *g) {
  fl_runtime *rt = g->rt;
  fl_backend *b = fli_backend(rt, g->device);
  fl_graph **at = &rt->graphs;
  fli_noted **noted = &rt->noted;
  if (rt->capture == &g->capture) {
    b->capture_end(b, g->device & 255, fli_stream(rt, g->device), NULL);
    capture_stop(g);
  }
  if (g->exec)
    graph_drop(g);
  for (uint32_t k = 0; k < g->n_uses; k++)
    fli_storage_release(g->uses[k].s);
  bool shared = false;
  for (fl_graph *k = rt->graphs; k; k = k->next)
    shared = shared || (k != g && k->pool == g->pool);
  if (!shared)
    fli_pool_end(g->pool);
  while (*at != g)
    at = &(*at)->next;
  *at = g->next;
  while (*noted != &g->noted)
    noted = &(*noted)->next;
  *noted = g->noted.next;
  fli_mfree(g->uses);
  fli_mfree(g->noted.notes);
  g->rt = NULL;
  g->exec = NULL;
}

void fli_graphs_close(fl_runtime *rt) {
  fli_rehearse_end(rt);
  if (rt->capture) /* frees what was dropped, too */
    graph_close(graph_captured(rt));
  while (rt->graphs)
    graph_close(rt->graphs);
}

/* In the capture of another graph nothing can wait for the device: g ends with
 * the capture. */
void fl_graph_free(fl_graph *g) {
  if (!g)
    return;
  if (g->rt && g->rt->capture && g->rt->capture != &g->capture) {
    g->dropped = true;
    return;
  }
  if (g->rt)
    graph_close(g);
  fli_mfree(g);
}

/* --- graphs of plans --- */

fl_status fli_capture_open(fl_runtime *rt, fl_device d, fl_graph **out) {
  return graph_new(rt, d, true, out);
}

void fli_capture_log(fl_graph *g, fli_scratch_log *log) {
  g->capture.scratch = log;
}

fl_graph_exec *fli_graph_exec(const fl_graph *g) {
  return g->exec;
}

fli_noted *fli_graph_notes(fl_graph *g) {
  return &g->noted;
}

void fli_graph_charge(fl_graph *g, size_t bytes) {
  fli_pool_charge(g->pool, bytes);
}

int fli_graphs_live(const fl_runtime *rt) {
  int n = 0;
  for (const fl_graph *k = rt->graphs; k; k = k->next)
    n += k->planned;
  return n;
}

size_t fli_graph_bytes(const fl_graph *g) {
  return g->rt ? fli_pool_bytes(g->pool) : 0;
}

void fli_graphs_spare(fl_runtime *rt, fl_device d) {
  for (fl_graph *k = rt->capture ? NULL : rt->graphs, *next; k; k = next) {
    next = k->next;
    if (k->planned && k->device == d)
      graph_close(k);
  }
}

void fl_graph_get(const fl_graph *g, fl_graph_stats *s) {
  if (!s)
    return;
  *s = (fl_graph_stats){0};
  if (!g || !g->rt)
    return;
  *s = (fl_graph_stats){.launches = g->noted.n,
                        .runs = g->runs,
                        .bytes = fli_pool_bytes(g->pool)};
}
