/* A registered operator (register.c): its shape rule, its kernels, and the
 * expression that runs where it has none (native.c). */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include "../expr/expr.h"

typedef struct fli_native {
  int like;
  fl_status (*shape)(void *context, int n_in, const fl_meta *const *in,
                     const fl_attrs *attrs, int n_out, fl_meta *out);
  void *context;
  const fl_op *backward;
  fl_native plan;
  fl_native_kernel kernels[FLI_DTYPES]; /* of the plan */
  /* With an expression the operator is composed: of `inner`, which has the
   * kernels, where there is one, else of the expression. */
  fl_op *inner;
  char *expression, *gradient; /* texts, may be NULL */
  struct fli_written *written; /* read texts */
} fli_native;

void fli_native_free(fli_native *n);
void fli_native_compose(fli_composing *g);
/* A gradient by text or derived from the expression. */
void fli_native_gradient(fli_grad *g);
/* Whether its texts can be read at all. */
fl_status fli_native_check(fl_runtime *rt, const fl_op *op);
/* What a kernel in the backend's language gets. */
fl_status fli_native_plan(const fl_op *op, int n,
                          const fl_native_kernel *kernels, fl_native *plan);

#endif
