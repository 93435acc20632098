/* Launch graphs: the launches of a stretch of calls, recorded once and run
 * again as a whole, which costs the host one launch. Memory that the calls
 * allocate belongs to the graph, so every run writes the same results. On
 * "cuda" they are CUDA graphs. Included by flare.h. */
#ifndef FL_GRAPHS_H
#define FL_GRAPHS_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_graph fl_graph;
/* on: from here to fl_graph_begin, or until it is turned off, calls run as
 * ever, and their numbers and attributes are remembered. A capture that follows
 * fails at a call that has others than the call in its place, because runs
 * would use the same ones: a step count, a learning rate that changes. */
FL_API fl_status fl_graph_rehearse(fl_runtime *rt, bool on);
/* From here to fl_graph_end the launches of calls on device d, which go to the
 * stream in use, are recorded and do not run. A call that a graph cannot hold
 * fails with EUNSUPPORTED, and fl_graph_end fails, too: one that waits for the
 * device, copies to or from the host, computes on another device, draws random
 * numbers, changes streams, or is a collective. Numbers and shapes are recorded
 * as they are. EUNSUPPORTED: the device has no graphs. EARG: another capture
 * goes on, or a compiled function runs. The caller frees the graph. */
FL_API fl_status fl_graph_begin(fl_runtime *rt, fl_device d, fl_graph **out);
/* Ends the capture, also when it fails: the graph can then only be freed. The
 * n results, which the calls made, are written by every run. */
FL_API fl_status fl_graph_end(fl_graph *g, int n, fl_tensor *const *results);
/* Runs the launches on the stream that they were recorded on, which must be in
 * use; `site` is the call's. Tensors that they use stay in memory as long as
 * the graph. */
FL_API fl_status fl_graph_run(fl_graph *g, fl_site site);
/* Ends a capture that goes on; waits for the device. Results remain valid. Also
 * after the runtime is closed. */
FL_API void fl_graph_free(fl_graph *g);

typedef struct fl_graph_stats {
  uint64_t launches, runs;
  size_t bytes; /* of memory that belongs to the graph */
} fl_graph_stats;
/* Its figures; zeros for NULL. */
FL_API void fl_graph_get(const fl_graph *g, fl_graph_stats *s);

#ifdef __cplusplus
}
#endif
#endif
