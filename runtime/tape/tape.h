/* What the tape (backward.c, tape.c) gives to the rest of runtime/, and the
 * structs that its own files share. */
#ifndef FL_TAPE_H
#define FL_TAPE_H

#include "../rules/env.h"

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

typedef struct fli_hook {
  int64_t key;
  int out;
  bool dropped;    /* while a pass runs, which may be in the list */
  fl_tensor *keep; /* retain_grad: put the gradient here (not a reference) */
  struct fli_hook *next;
} fli_hook;

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

/* What few tensors have. */
struct fli_extra {
  fl_tensor *grad;
  fl_tensor *place;      /* where it is to lie, or NULL */
  fl_tensor *stand;      /* the leaf that gets its gradient, or NULL: itself */
  struct fli_loan *loan; /* of a mark; see loan.c */
  fli_hook *hooks;       /* of a leaf */
  bool retain;           /* not a leaf, but wants its gradient kept */
  fl_tensor *all;        /* of all samples, where this one stands for each */
  uint64_t level;        /* of vmap (vmap.c) */
  /* of the pass that is running */
  uint64_t pass;
  int deps, capture;
  uint32_t makers;
  fl_tensor *sum;
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
void fli_extra_free(fl_tensor *t);
fl_status fli_extra_of(fl_tensor *t, fli_extra **x);

/* The node behind a tensor, NULL for a leaf. A view of a base that was written
 * since gets a new one first. */
fl_status fli_node_of(fl_tensor *t, fl_node **n);
/* Of fl_grad: nothing behind the inputs takes part, not even other inputs. */
#define FLI_BACKWARD_STOP 8u
bool fli_wants_grad(fl_tensor *t); /* leaf that requires it, or has a node */
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
fl_value fli_loan_fetch(fli_env *e, fl_tensor *mark);
void fli_extra_drop_loan(fl_runtime *rt, fli_extra *x);
static inline bool fli_is_mark(const fl_tensor *t) {
  return t && !t->storage && t->extra && t->extra->loan;
}
static inline fl_tensor *fli_stand_in(fl_tensor *leaf) {
  return leaf->extra && leaf->extra->stand ? leaf->extra->stand : leaf;
}

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
fl_status fli_place(fl_runtime *rt, fli_extra *x, fl_tensor *g);

#endif
