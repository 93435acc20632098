/* Plans as graphs of launches: a plan that has run a few times is captured, and
 * from then on runs by one launch of the host, with what has changed since put
 * in its place. Memory that the plan makes and nothing holds belongs to the
 * graph. */
#ifndef FL_COMPILE_REPLAY_H
#define FL_COMPILE_REPLAY_H

#include "compile.h"

/* Runs the window by a graph of p. False: it has none that fits, and nothing
 * has run. */
bool fli_replay_run(struct fl_compiled *c, fli_window *w, fli_plan *p,
                    fl_status *status);
void fli_replay_free(struct fli_replay *r);
/* Graphs that it has, and the bytes of their memory. */
int fli_replay_graphs(const struct fli_replay *r, size_t *bytes);

#endif
