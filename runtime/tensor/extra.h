/* What few tensors have besides a header: gradient, hooks, the batched tensor
 * that vmap puts in its place, the loan of its memory. */
#ifndef FL_EXTRA_H
#define FL_EXTRA_H

#include "tensor.h"

typedef struct fli_hook {
  int64_t key;
  int out;
  bool dropped;    /* while a pass runs, which may be in the list */
  fl_tensor *keep; /* retain_grad: put the gradient here (not a reference) */
  struct fli_hook *next;
} fli_hook;

/* Memory on loan (tape/loan.c). */
struct fli_loan {
  int rc; /* storages and marks */
  int64_t key;
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

/* Fails with why a tensor has none. */
fl_status fli_no_values(const fl_tensor *t, const char *who);
/* For rows whose result's size depends on values; x NULL: a number. */
fl_status fli_needs_values(const fl_runtime *rt, const fl_tensor *x,
                           const char *op);
void fli_loan_leave(fl_storage *s);
void fli_loan_pass(const fl_tensor *from, fl_tensor *to);
fl_status fli_extra_of(fl_tensor *t, fli_extra **x);
void fli_extra_free(fl_tensor *t);
void fli_hooks_drop(fl_runtime *rt, fli_hook **list);
/* A leaf that requires a gradient, or a result that has a node. */
bool fli_wants_grad(fl_tensor *t);

static inline bool fli_is_mark(const fl_tensor *t) {
  return t && !t->storage && t->extra && t->extra->loan;
}

static inline fl_tensor *fli_stand_in(fl_tensor *leaf) {
  return leaf->extra && leaf->extra->stand ? leaf->extra->stand : leaf;
}

/* vmap: `t` stands for one sample of `all` at this level. */
fl_status fli_extra_stand(fl_tensor *t, fl_tensor *all, uint64_t level);
/* It does so no more; returns what it stood for, or NULL. */
fl_tensor *fli_extra_let_go(fl_tensor *t);
/* The host has a handle more or less. */
void fli_extra_handle(fl_tensor *t, int change);
/* The device of a tensor without storage. */
fl_device fli_extra_device(const fl_tensor *t);
/* An alias, or a detached one (`bare`), stands for the same samples. Releases
 * `to` if it fails. */
fl_status fli_extra_alias(fl_tensor *from, fl_tensor *to, bool bare);

#endif
