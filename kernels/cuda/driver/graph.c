/* CUDA graphs: a stream's launches are captured and run again as one. The
 * capture is relaxed: allocation and loading of modules are allowed while it
 * goes on, and calls that would break it are refused here. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

typedef struct exec_launch {
  flc_name name;
  uint32_t first, n; /* nodes that flc_run has made */
  bool fixed;        /* it has others, too */
} exec_launch;

struct fl_graph_exec {
  fl_stream *stream;
  CUgraph graph;
  CUgraphExec handle;
  fl_status failed;      /* something was refused */
  exec_launch *launches; /* by their numbers */
  size_t n, room;
  flc_node *nodes;
  size_t n_nodes, nodes_room;
  char *args; /* of the nodes */
  size_t n_args, args_room;
  CUgraphNode last; /* of the capture */
  exec_launch *now; /* that is being changed */
  uint32_t turn;    /* its next node */
  fl_graph_exec *next;
};

static void exec_drop(fl_graph_exec *e) {
  free(e->launches);
  free(e->nodes);
  free(e->args);
  free(e);
}

/* Room for `need` elements of an array. */
static fl_status exec_room(void *array, size_t *room, size_t need,
                           size_t size) {
  void **old = array;
  size_t n = *room ? *room : 64;
  if (need <= *room)
    return FL_OK;
  while (n < need)
    n *= 2;
  void *more = realloc(*old, n * size);
  if (!more)
    return fli_fail(FL_ENOMEM, "out of memory: a graph");
  *old = more;
  *room = n;
  return FL_OK;
}

fl_status flc_capture_waits(fl_stream *s, const char *op) {
  if (!s->capture)
    return FL_OK;
  s->capture->failed = FL_EUNSUPPORTED;
  return fli_fail(FL_EUNSUPPORTED,
                  "%s%sa graph cannot capture work that waits for cuda:%d or "
                  "uses the host's memory",
                  op ? op : "", op ? ": " : "", s->device->index);
}

/* The node that the next one will follow; NULL if there are several, or none.
 */
static bool capture_last(const fl_stream *s, CUgraphNode *last) {
  CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode *nodes = NULL;
  size_t n = 0;
  CUresult r =
      flc_cu->StreamGetCaptureInfo(s->handle, &now, NULL, NULL, &nodes, &n);
  if (r != CUDA_SUCCESS || now != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return false;
  *last = n == 1 ? nodes[0] : NULL;
  return true;
}

fl_status flc_capture_check(fl_stream *s, const char *op) {
  fl_graph_exec *e = s->capture;
  CUgraphNode last = NULL;
  if (capture_last(s, &last)) {
    if (last != e->last)
      flc_capture_fix(e);
    e->last = last;
    return FL_OK;
  }
  e->failed = FL_EUNSUPPORTED;
  return fli_fail(FL_EUNSUPPORTED,
                  "%s: a graph cannot capture it: one of its calls of CUDA or "
                  "of a library has ended the capture",
                  op);
}

/* A kernel of the user's gives its launch another name. */
fl_status flc_capture_name(fl_graph_exec *e, const flc_name *name) {
  if (e->n && e->launches[e->n - 1].name.seq == name->seq) {
    e->launches[e->n - 1].name = *name;
    return FL_OK;
  }
  fl_status s =
      exec_room(&e->launches, &e->room, e->n + 1, sizeof *e->launches);
  if (s == FL_OK)
    e->launches[e->n++] =
        (exec_launch){.name = *name, .first = (uint32_t)e->n_nodes};
  return s;
}

void flc_capture_fix(fl_graph_exec *e) {
  if (e->n)
    e->launches[e->n - 1].fixed = true;
}

fl_status flc_capture_node(fl_graph_exec *e, const flc_node *n,
                           const void *args) {
  CUgraphNode before = e->last;
  fl_status s =
      exec_room(&e->nodes, &e->nodes_room, e->n_nodes + 1, sizeof *e->nodes);
  if (s == FL_OK)
    s = exec_room(&e->args, &e->args_room, e->n_args + n->bytes, 1);
  if (s)
    return s;
  if (!capture_last(e->stream, &e->last) || !e->last || e->last == before)
    flc_capture_fix(e); /* flc_capture_check says what it is */
  flc_node *to = &e->nodes[e->n_nodes++];
  *to = *n;
  to->handle = e->last;
  to->at = e->n_args;
  memcpy(e->args + e->n_args, args, n->bytes);
  e->n_args += n->bytes;
  e->launches[e->n - 1].n++;
  return FL_OK;
}

const flc_name *flc_capture_find(const fl_stream *s, uint64_t seq) {
  for (const fl_graph_exec *e = s->backend->execs; e; e = e->next)
    for (size_t k = 0; k < e->n && e->stream == s; k++)
      if (e->launches[k].name.seq == seq)
        return &e->launches[k].name;
  return NULL;
}

/* A probe of it, by `prepare`: keeps the ranges. */
FLC_KERNEL(lasting) {
  l->stream->lasting = l->in;
  l->stream->n_lasting = l->n_in;
  return FL_OK;
}

bool flc_lasting(const fl_launch *l, const void *data) {
  const fl_stream *s = l->stream;
  for (int k = 0; k < s->n_lasting; k++) {
    size_t at = (size_t)((const char *)data - (char *)s->lasting[k].data);
    if (at < (size_t)s->lasting[k].shape[0])
      return true;
  }
  return false;
}

/* --- changing --- */

static exec_launch *launch_of(const fl_graph_exec *e, uint64_t seq) {
  size_t low = 0, high = e->n;
  while (low < high) {
    size_t at = low + (high - low) / 2;
    if (e->launches[at].name.seq < seq)
      low = at + 1;
    else
      high = at;
  }
  return low < e->n && e->launches[low].name.seq == seq ? &e->launches[low]
                                                        : NULL;
}

bool flc_exec_fixed(fl_backend *b, const fl_graph_exec *e, uint64_t seq) {
  const exec_launch *l = launch_of(e, seq);
  (void)b;
  return !l || l->fixed;
}

fl_status flc_exec_update(fl_backend *b, fl_graph_exec *e, bool on) {
  (void)b;
  e->stream->update = on ? e : NULL;
  return FL_OK;
}

/* The launch of now has something else than it had. */
fl_status flc_update_fails(fl_graph_exec *e) {
  e->failed =
      fli_fail(FL_EUNSUPPORTED, "%s: its launch in a graph cannot change",
               e->now ? e->now->name.op : "graph");
  return e->failed;
}

fl_status flc_update_begin(fl_graph_exec *e, uint64_t seq) {
  e->now = launch_of(e, seq);
  e->turn = 0;
  return e->now && !e->now->fixed ? FL_OK : flc_update_fails(e);
}

fl_status flc_update_node(fl_graph_exec *e, const flc_node *n,
                          const void *args) {
  if (e->turn == e->now->n)
    return flc_update_fails(e);
  flc_node *to = &e->nodes[e->now->first + e->turn++];
  if (to->f != n->f || to->block != n->block || to->bytes != n->bytes)
    return flc_update_fails(e);
  if (to->x == n->x && to->y == n->y && to->z == n->z &&
      to->shared == n->shared && memcmp(e->args + to->at, args, n->bytes) == 0)
    return FL_OK;
  void *params[] = {(void *)(uintptr_t)args};
  CUDA_KERNEL_NODE_PARAMS p = {.func = n->f->handle,
                               .gridDimX = n->x,
                               .gridDimY = n->y,
                               .gridDimZ = n->z,
                               .blockDimX = n->block,
                               .blockDimY = 1,
                               .blockDimZ = 1,
                               .sharedMemBytes = n->shared,
                               .kernelParams = params};
  CUresult r = flc_cu->GraphExecKernelNodeSetParams(e->handle, to->handle, &p);
  if (r)
    return flc_failed(e->stream->device, r, e->now->name.op);
  to->x = n->x;
  to->y = n->y;
  to->z = n->z;
  to->shared = n->shared;
  memcpy(e->args + to->at, args, n->bytes);
  return FL_OK;
}

fl_status flc_update_end(fl_graph_exec *e) {
  return e->failed || e->turn != e->now->n ? flc_update_fails(e) : FL_OK;
}

/* --- capturing --- */

fl_status flc_capture_begin(fl_backend *b, int device, fl_stream *s) {
  flc_backend *c = (flc_backend *)b;
  flc_context before;
  if (!(s = flc_stream_find(c, device, s)))
    return FL_EDEVICE;
  fl_graph_exec *e = calloc(1, sizeof *e);
  if (!e)
    return fli_fail(FL_ENOMEM, "out of memory: a graph");
  fl_status status = flc_enter(s->device, &before);
  if (status == FL_OK) {
    CUresult r =
        flc_cu->StreamBeginCapture(s->handle, CU_STREAM_CAPTURE_MODE_RELAXED);
    status = r ? flc_failed(s->device, r, "beginning a capture") : FL_OK;
    flc_leave(s->device, before);
  }
  if (status) {
    free(e);
    return status;
  }
  e->stream = s;
  s->capture = e;
  return FL_OK;
}

/* The stream is as before, whatever has happened. */
static fl_status capture_finish(fl_stream *s, fl_graph_exec *e, bool wanted) {
  flc_context before;
  fl_status status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUresult r = flc_cu->StreamEndCapture(s->handle, &e->graph);
  if (r == CUDA_SUCCESS && wanted && !e->failed)
    r = flc_cu->GraphInstantiate(&e->handle, e->graph, 0);
  if (e->graph && !e->handle)
    flc_cu->GraphDestroy(e->graph);
  flc_leave(s->device, before);
  if (r && wanted)
    return flc_failed(s->device, r, "ending a capture");
  return e->failed ? fli_fail(e->failed,
                              "cuda:%d: the capture has failed: it waited for "
                              "the device or used an event",
                              s->device->index)
                   : FL_OK;
}

fl_status flc_capture_end(fl_backend *b, int device, fl_stream *s,
                          fl_graph_exec **exec) {
  flc_backend *c = (flc_backend *)b;
  if (!(s = flc_stream_find(c, device, s)))
    return FL_EDEVICE;
  fl_graph_exec *e = s->capture;
  if (!e)
    return fli_fail(FL_EARG, "cuda:%d: its stream is not captured", device);
  s->capture = NULL;
  fl_status status = capture_finish(s, e, exec != NULL);
  if (status || !exec) {
    exec_drop(e);
    return exec ? status : FL_OK;
  }
  e->next = c->execs;
  c->execs = e;
  *exec = e;
  return FL_OK;
}

/* What a fault of the graph is said to come from: the first of the user's
 * kernels, since the others have been tried. */
static flc_name suspect_of(const fl_graph_exec *e, uint64_t seq) {
  for (size_t k = 0; k < e->n; k++)
    if (e->launches[k].name.raw)
      return (flc_name){seq, e->launches[k].name.op, 0, true};
  return (flc_name){seq, "graph", 0, false};
}

fl_status flc_exec_launch(fl_backend *b, fl_graph_exec *e, uint64_t seq) {
  fl_stream *s = e->stream;
  flc_context before;
  flc_name name = suspect_of(e, seq);
  fl_status status = flc_name_launch(s, &name);
  if (status == FL_OK)
    status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUresult r = flc_cu->GraphLaunch(e->handle, s->handle);
  if (r)
    status = flc_failed(s->device, r, "graph");
  else if (s->backend->sync)
    status = b->stream_sync(b, s->device->index, s, NULL);
  flc_leave(s->device, before);
  return status;
}

void flc_exec_free(fl_backend *b, fl_graph_exec *e) {
  fl_graph_exec **at = &((flc_backend *)b)->execs;
  fl_stream *s = e->stream;
  flc_context before;
  /* a graph that still runs after an interrupted wait is left to the driver */
  if (flc_wait(s) != FL_EINTERRUPT && flc_enter(s->device, &before) == FL_OK) {
    flc_cu->GraphExecDestroy(e->handle);
    flc_cu->GraphDestroy(e->graph); /* whose nodes exec_update names */
    flc_leave(s->device, before);
  }
  const flc_name *failed = flc_capture_find(s, s->mirror->seq);
  if (failed) /* and has not been reported */
    s->names[failed->seq % FLC_NAMES] = *failed;
  while (*at != e)
    at = &(*at)->next;
  *at = e->next;
  exec_drop(e);
}
