/* What the tape (tape.c, loan.c) offers to the rest of runtime/, and the
 * structs that its files share. */
#ifndef FL_TAPE_H
#define FL_TAPE_H

#include "../tensor/extra.h"
#include "../ops/ops.h"

/* --- nodes --- */

/* Where the gradient of an input goes: to result `out` of a node, or to a leaf;
 * both NULL: nowhere. */
typedef struct fli_edge {
  fl_node *node;
  fl_tensor *leaf;
  int out;
} fli_edge;

typedef struct fli_saved {
  fl_operand value; /* a tensor (a reference) or a number */
  uint32_t version; /* of its storage when saved */
  int slot;         /* k: input k; -1 - k: output k */
} fli_saved;

typedef enum fli_node_kind {
  FLI_NODE_OP,
  FLI_NODE_CUSTOM, /* a function of the host */
  FLI_NODE_REGION, /* an in-place write through a view; see tape.c */
  FLI_NODE_TRANSFER
} fli_node_kind;

typedef struct fli_slabs fli_slabs;

struct fl_node {
  int rc;
  fli_node_kind kind;
  const fl_op *op;  /* OP */
  const char *name; /* CUSTOM; owned */
  int64_t key;      /* CUSTOM */
  fl_node *inner;   /* REGION: the operation on the region */
  fl_node *next_dying;
  uint64_t seq;
  fl_attrs *attrs;
  int base;
  fl_site site;
  fl_profile_part part;
  fl_device device;
  int n_in, n_out, n_saved;
  bool released;  /* what it saved is gone */
  uint8_t stream; /* of `device`, where its backward goes too */
  size_t bytes;
  fli_edge *edges;   /* n_in */
  fl_meta *in_meta;  /* n_in */
  fl_meta *out_meta; /* n_out */
  fli_saved *saved;
  fli_hook *hooks;
  struct fli_geometry { /* REGION: where in the base */
    int ndim;
    int64_t shape[FL_MAX_DIMS], stride[FL_MAX_DIMS], offset;
  } * region;
  /* of the pass that is running */
  uint64_t pass;
  bool active, needed, end; /* end: what lies behind takes no part */
  int deps;
  uint32_t makers;   /* streams that made its gradients, a bit each */
  fl_tensor **grads; /* n_out */
  fli_slabs *slabs;  /* NULL: no gradient has holes (region.c) */
};

static inline void fli_node_drop_grads(fl_node *n) {
  for (int k = 0; k < n->n_out; k++) {
    fl_tensor_release(n->grads[k]);
    n->grads[k] = NULL;
  }
  fli_mfree(n->slabs);
  n->slabs = NULL;
}
void fli_node_release(fl_runtime *rt, fl_node *n);
void fli_node_forget(fl_runtime *rt, fl_node *n); /* drops what it saved */
const char *fli_node_name(const fl_node *n);
void fli_node_unretain(fl_tensor *t);

/* The node behind a tensor, NULL for a leaf. A view of a base that was written
 * since gets a new one first. */
fl_status fli_node_of(fl_tensor *t, fl_node **n);
/* Of fl_grad: nothing behind the inputs takes part, not even other inputs. */
#define FLI_BACKWARD_STOP 8u
void fli_edge_to(fl_tensor *t, fli_edge *e);

fl_status fli_node_new(fl_runtime *rt, fli_node_kind kind, const fl_op *op,
                       int n_in, int n_out, int n_saved, const fl_attrs *attrs,
                       fl_node **out);

/* Records a call that has run: `in` as it was called with, `out` its results;
 * `saves` is the row's, or less of it. */
fl_status fli_tape_record(fl_runtime *rt, const fl_call *c,
                          const fl_attrs *attrs, uint32_t saves,
                          fl_tensor **out);
/* Before and after an in-place call on in[0]; `saved` are the inputs to save:
 * copies where the write has changed them. */
fl_status fli_tape_check_inplace(const fl_call *c);
fl_status fli_tape_record_inplace(fl_runtime *rt, const fl_call *c,
                                  const fl_attrs *attrs,
                                  const fl_operand *saved);
/* `to` is `t` on another device. */
fl_status fli_tape_transfer(fl_tensor *t, fl_tensor *to);
/* A node for the part of its base that a region node has written. */
fl_status fli_node_part(fl_runtime *rt, fl_node *region, fl_node **out);

/* Tells who wants to know (fl_tape_on_ready). */
fl_status fli_tape_ready(fl_runtime *rt, fl_tensor *leaf);
fl_status fli_tape_open(fl_runtime *rt);
void fli_tape_close(fl_runtime *rt);

/* loan.c: what the tape keeps of t, and what that is in backward; a leaf's
 * stand-in. */
fl_status fli_loan_mark(fl_tensor *t, fl_tensor **mark);
fl_status fli_loan_fetch(fl_runtime *rt, fl_tensor *mark, fl_tensor **out);

#endif
