/* A backward pass, shared by backward.c, which orders it, and functions.c,
 * which adds gradients up and runs the host's functions. */
#ifndef FL_PASS_H
#define FL_PASS_H

#include "autograd.h"

/* A leaf that a pass has reached, and what a pass around it (a backward
 * function may go backward itself) had noted there. */
typedef struct fli_reached {
  fl_tensor *leaf;
  uint64_t pass;
  int deps, capture;
  fl_tensor *sum;
} fli_reached;

typedef struct fli_pass {
  fl_runtime *rt;
  uint64_t id;
  fl_site site; /* of the node that runs: sums are its, too */
  bool create, retain;
  bool recorded;   /* recording was on where the pass was asked for */
  fl_node **nodes; /* all that take part */
  size_t n_nodes, nodes_room;
  fl_node **heap; /* the ready ones, newest on top */
  size_t n_heap, heap_room;
  fli_reached *leaves;
  size_t n_leaves, leaves_room;
  /* fl_grad: gradients wanted back instead of accumulated */
  int n_inputs;
  fl_tensor *const *inputs;
  fl_node **input_nodes;
  fl_tensor **captured; /* NULL: accumulate into leaves */
  fl_grad_fn each;      /* of fl_backward_each, or NULL */
  void *context;
  bool away; /* a node runs, on its stream of `device` instead of `home` */
  fl_device device;
  int home;
} fli_pass;

/* Whether a sum may be added into t in place: nothing else sees it. */
bool fli_sum_is_free(const fl_tensor *t);
/* *sum += g; takes over the reference of g. */
fl_status fli_sum_add(fli_pass *p, fl_tensor **sum, fl_tensor *g);
/* The same for a gradient that users see: it shares no memory. */
fl_status fli_sum_keep(fli_pass *p, fl_tensor **grad, fl_tensor *g);
/* Runs the hooks of result `out` of a node, or of the leaf `of`, on *grad. */
fl_status fli_pass_hooks(fli_pass *p, fli_hook *h, int out, fl_tensor *of,
                         fl_tensor **grad);
/* Runs a function of the host in the place of a rule. */
fl_status fli_pass_custom(fli_pass *p, fl_node *n, fl_tensor **dx);

#endif
