/* The cheapest set of values that separates what is there from what is needed:
 * a minimum cut. */
#ifndef FL_COMPILE_CUT_H
#define FL_COMPILE_CUT_H

#include "../runtime.h"

#define FLI_CUT_NEVER INT64_MAX

typedef struct fli_cut_edge {
  uint32_t to, next;
  int64_t left; /* of its capacity */
} fli_cut_edge;

/* A graph of n nodes; the source is node 0, the sink node 1. */
typedef struct fli_cut {
  fl_runtime *rt;
  uint32_t n, n_edges, room;
  uint32_t *first; /* of nodes: the first edge, FLI_CUT_NONE: none */
  uint32_t *by;    /* of nodes, while searching: the edge that reached it */
  uint32_t *queue;
  fli_cut_edge *edges; /* an edge and the one back are neighbours */
} fli_cut;

fl_status fli_cut_open(fli_cut *c, fl_runtime *rt, uint32_t n);
void fli_cut_close(fli_cut *c);
fl_status fli_cut_edge_add(fli_cut *c, uint32_t from, uint32_t to,
                           int64_t capacity);
/* Saturates the cheapest cut. */
void fli_cut_solve(fli_cut *c);
/* After it: whether the node is on the source's side. */
bool fli_cut_source(const fli_cut *c, uint32_t node);

#endif
