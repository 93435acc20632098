/* CUDA graphs: a stream's launches are captured and run again as one. The
 * capture is relaxed: allocation and loading of modules are allowed while it
 * goes on, and calls that would break it are refused here. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

struct fl_graph_exec {
  fl_stream *stream;
  CUgraphExec handle;
  fl_status failed; /* something was refused */
  flc_name *names;  /* of the launches, by their numbers */
  size_t n, room;
  fl_graph_exec *next;
};

static void exec_drop(fl_graph_exec *e) {
  free(e->names);
  free(e);
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

fl_status flc_capture_check(fl_stream *s, const char *op) {
  CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult r = flc_cu->StreamIsCapturing(s->handle, &now);
  if (r == CUDA_SUCCESS && now == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return FL_OK;
  s->capture->failed = FL_EUNSUPPORTED;
  return fli_fail(FL_EUNSUPPORTED,
                  "%s: a graph cannot capture it: one of its calls of CUDA or "
                  "of a library has ended the capture",
                  op);
}

/* A kernel of the user's gives its launch another name. */
fl_status flc_capture_name(fl_graph_exec *e, const flc_name *name) {
  if (e->n && e->names[e->n - 1].seq == name->seq) {
    e->names[e->n - 1] = *name;
    return FL_OK;
  }
  if (e->n == e->room) {
    size_t room = e->room ? 2 * e->room : 64;
    flc_name *more = realloc(e->names, room * sizeof *more);
    if (!more)
      return fli_fail(FL_ENOMEM, "out of memory: a graph");
    e->names = more;
    e->room = room;
  }
  e->names[e->n++] = *name;
  return FL_OK;
}

const flc_name *flc_capture_find(const fl_stream *s, uint64_t seq) {
  for (const fl_graph_exec *e = s->backend->execs; e; e = e->next)
    for (size_t k = 0; k < e->n && e->stream == s; k++)
      if (e->names[k].seq == seq)
        return &e->names[k];
  return NULL;
}

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
  CUgraph graph = NULL;
  fl_status status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUresult r = flc_cu->StreamEndCapture(s->handle, &graph);
  if (r == CUDA_SUCCESS && wanted && !e->failed)
    r = flc_cu->GraphInstantiate(&e->handle, graph, 0);
  if (graph)
    flc_cu->GraphDestroy(graph);
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
    if (e->names[k].raw)
      return (flc_name){seq, e->names[k].op, 0, true};
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
