/* Minimum cuts by augmenting along shortest paths. */
#include "cut.h"

#include "../memory/memory.h"

#include <string.h>

#define NONE UINT32_MAX

fl_status fli_cut_open(fli_cut *c, fl_runtime *rt, uint32_t n) {
  *c = (fli_cut){.rt = rt, .n = n};
  c->first = fli_malloc(rt, 3 * (size_t)n * sizeof *c->first);
  if (!c->first)
    return FL_ENOMEM;
  c->by = c->first + n;
  c->queue = c->by + n;
  memset(c->first, 0xff, n * sizeof *c->first);
  return FL_OK;
}

void fli_cut_close(fli_cut *c) {
  fli_mfree(c->first);
  fli_mfree(c->edges);
}

fl_status fli_cut_edge_add(fli_cut *c, uint32_t from, uint32_t to,
                           int64_t capacity) {
  if (c->n_edges + 2 > c->room) {
    uint32_t room = c->room ? 2 * c->room : 256;
    fli_cut_edge *more = fli_malloc(c->rt, room * sizeof *more);
    if (!more)
      return FL_ENOMEM;
    if (c->n_edges)
      memcpy(more, c->edges, c->n_edges * sizeof *more);
    fli_mfree(c->edges);
    c->edges = more;
    c->room = room;
  }
  c->edges[c->n_edges] = (fli_cut_edge){to, c->first[from], capacity};
  c->first[from] = c->n_edges++;
  c->edges[c->n_edges] = (fli_cut_edge){from, c->first[to], 0};
  c->first[to] = c->n_edges++;
  return FL_OK;
}

/* Finds a shortest path to the sink along edges with something left. */
static bool cut_search(fli_cut *c) {
  uint32_t head = 0, tail = 0;
  memset(c->by, 0xff, c->n * sizeof *c->by);
  c->queue[tail++] = 0;
  while (head < tail) {
    uint32_t at = c->queue[head++];
    for (uint32_t e = c->first[at]; e != NONE; e = c->edges[e].next) {
      uint32_t to = c->edges[e].to;
      if (c->edges[e].left == 0 || to == 0 || c->by[to] != NONE)
        continue;
      c->by[to] = e;
      if (to == 1)
        return true;
      c->queue[tail++] = to;
    }
  }
  return false;
}

static void cut_push(fli_cut *c) {
  int64_t least = FLI_CUT_NEVER;
  for (uint32_t at = 1; at != 0; at = c->edges[c->by[at] ^ 1].to)
    if (c->edges[c->by[at]].left < least)
      least = c->edges[c->by[at]].left;
  for (uint32_t at = 1; at != 0; at = c->edges[c->by[at] ^ 1].to) {
    fli_cut_edge *e = &c->edges[c->by[at]], *back = &c->edges[c->by[at] ^ 1];
    e->left -= e->left == FLI_CUT_NEVER ? 0 : least;
    back->left += back->left == FLI_CUT_NEVER ? 0 : least;
  }
}

void fli_cut_solve(fli_cut *c) {
  while (cut_search(c))
    cut_push(c);
}

bool fli_cut_source(const fli_cut *c, uint32_t node) {
  return node == 0 || c->by[node] != NONE;
}
