/* What the files of the backward pass share. */
#ifndef FL_AUTOGRAD_H
#define FL_AUTOGRAD_H

#include "../tape/tape.h"
#include "../rules/env.h"

/* region.c: the gradient of narrow and the like into a sum of gradients. */
bool fli_is_part(const fl_op *op);
fl_status fli_add_part(fl_runtime *rt, fl_node *n);
/* Zeros where no part of a gradient of n has been. */
fl_status fli_fill_slabs(fl_runtime *rt, fl_node *n);
static inline fl_status fli_finish_sum(fl_runtime *rt, fl_node *n) {
  return n->slabs ? fli_fill_slabs(rt, n) : FL_OK;
}
/* Whether all that is left to do with a gradient is to put it into the leaf's
 * place, whatever its dtype is. */
static inline bool fli_only_placed(const fli_edge *e) {
  const fli_extra *x = e->leaf ? e->leaf->extra : NULL;
  return x && x->place && !x->grad && !x->sum && !x->hooks && x->deps == 1;
}
/* g, whose reference is taken over, becomes or joins the gradient in its place.
 */
fl_status fli_place(fl_runtime *rt, fli_extra *x, fl_tensor *g, fl_site site);

#endif
