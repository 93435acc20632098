/* What index.c and advanced.c share: the plan of an x[...], and a run of
 * operators that owns its intermediates. */
#ifndef FLL_INDEX_H
#define FLL_INDEX_H

#include "fll.h"

typedef struct fll_item {
  enum {
    FLL_ALL,
    FLL_INT,
    FLL_RANGE,
    FLL_INDEX,
    FLL_MASK,
    FLL_NEW,
    FLL_REST
  } kind;
  int64_t a, b, step; /* settled: a from 0; of a range b is the length */
  fl_tensor *tensor;  /* borrowed */
} fll_item;

typedef struct fll_plan {
  int n;
  fll_item item[3 * FL_MAX_DIMS]; /* "..." adds up to a third */
} fll_plan;

/* What is left when positions and ranges have become views: index tensors and
 * masks, and where they stand. */
typedef struct fll_gather {
  int n;
  fl_tensor *tensor[FL_MAX_DIMS];
  int dim[FL_MAX_DIMS];
} fll_gather;

#define FLL_TEMPS 128

typedef struct fll_plan_run {
  fl_lua *st;
  fl_status status;
  fl_site site;
  fl_device device;
  fl_generator *generator; /* NULL: the runtime's */
  int n;
  fl_tensor *temps[FLL_TEMPS];
} fll_plan_run;

void fll_run_open(fll_plan_run *r, lua_State *L, fl_lua *st);
void fll_run_close(fll_plan_run *r); /* releases everything made in it */
fl_tensor *fll_keep(fll_plan_run *r, fl_tensor *t);
/* Runs an operator; its first result, NULL after a failure (then or before). */
fl_tensor *fll_do(fll_plan_run *r, const fl_op *op, const fl_attrs *a, int n,
                  const fl_operand *in, bool inplace);
/* The same with a list as its only attribute: reshape, expand, permute. */
fl_tensor *fll_do_ints(fll_plan_run *r, const fl_op *op, fl_tensor *x, int n,
                       const int64_t *v);

fl_tensor *fll_gather_read(fll_plan_run *r, const fll_gather *g, fl_tensor *x);
void fll_gather_write(fll_plan_run *r, const fll_gather *g, fl_tensor *x,
                      fl_operand value);

#endif
