/* Graphs of plans: like those of graphs.h, but begun in the middle of a flush,
 * without a wait for the device, and with memory that all of a stream share,
 * since nothing of it outlives a run. */
#ifndef FL_GRAPH_H
#define FL_GRAPH_H

#include "../memory/capture.h"
#include "launch.h"

/* From here to fli_capture_shut launches are recorded, and blocks of the device
 * are the graphs'. To be freed by fl_graph_free. */
fl_status fli_capture_open(fl_runtime *rt, fl_device d, fl_graph **out);
/* `log` gets the scratch memory of launches from now on. */
void fli_capture_log(fl_graph *g, fli_scratch_log *log);
/* Ends the capture; after a failure the graph can only be freed. */
fl_status fli_capture_shut(fl_graph *g);
/* Queues a run. */
fl_status fli_graph_send(fl_graph *g, fl_site site);
/* The backend's, NULL: it has failed, or was closed to give memory back. */
fl_graph_exec *fli_graph_exec(const fl_graph *g);
/* A note for each launch, in their order. */
fli_noted *fli_graph_notes(fl_graph *g);
/* The launches of g use so many bytes of the memory. */
void fli_graph_charge(fl_graph *g, size_t bytes);
/* How many graphs of plans there are, and bytes of the memory that g shares. */
int fli_graphs_live(const fl_runtime *rt);
size_t fli_graph_bytes(const fl_graph *g);
/* False while launches of the stream behind the one of that number have run by
 * kernels that the backend still compares with others: a graph would keep them.
 * Backends with such kernels have one named "settled", whose probe it is. */
bool fli_settled(fl_runtime *rt, fl_device d, fl_stream *s, uint64_t since);
/* The launches that a capture of the stream, or a change of its graph, gets
 * from now on leave these `n` ranges of memory as they are, so kernels may read
 * there before the launches in front of them have ended. The ranges stay the
 * caller's until the next call, of which n is 0 behind the last launch.
 * Backends that make use of it have a kernel named "lasting", whose probe it
 * is. */
void fli_lasting(fl_runtime *rt, fl_device d, fl_stream *s,
                 const fl_view *ranges, int n);
/* Memory of the device is short: closes its graphs of plans. */
void fli_graphs_spare(fl_runtime *rt, fl_device d);

#endif
