/* Expression graphs: what the parser (parse.c) and the recorder
 * (trace.c) build, what gradient rules extend through env.h, and what
 * becomes a run-time operator (operator.c). A graph knows dtypes, no shapes. */
#ifndef FL_EXPR_H
#define FL_EXPR_H

#include "../program.h"
#include "../rules/env.h"

#define FLI_EXPR_IN 12 /* inputs of a kernel that a user writes */

/* How much of a say a value has in promotion. */
enum { FLI_TENSOR, FLI_TENSOR_0D, FLI_NUMBER };

typedef struct fli_expr_node {
  int op; /* FLI_OP_...; FLI_INPUT */
  int n_in;
  int weak;        /* FLI_TENSOR ... */
  fl_dtype dtype;  /* FL_NODTYPE: not known, while only names are checked */
  fl_attr attr[2]; /* of elementwise rows */
  fl_value in[3];  /* numbers, or nodes before this one */
  uint32_t origin; /* the graph's when the node was made */
} fli_expr_node;
#define FLI_INPUT (-1)

struct fli_graph {
  fl_runtime *rt;
  int n, room, n_in; /* nodes, room for them, inputs among them */
  fli_expr_node *nodes;
  uint32_t origin; /* the caller's: nodes remember what it was */
  /* Makes the node of a reduction; NULL: texts may not have one. */
  fl_status (*reduce)(void *context, fl_reduction kind, fl_value v,
                      fl_value *out);
  void *context;
};

void fli_graph_open(fli_graph *g, fl_runtime *rt);
void fli_graph_close(fli_graph *g);
/* Returns the room for further nodes: the graph will be kept. */
void fli_graph_fit(fli_graph *g);
fl_status fli_graph_copy(fli_graph *to, const fli_graph *from);
fl_status fli_graph_input(fli_graph *g, fl_dtype d, int weak, fl_value *out);
/* A row applied to values, its dtype by the row's rule; equal nodes are one.
 * Refuses what is not elementwise. */
fl_status fli_graph_apply(fli_graph *g, int op, const fl_attrs *attrs, int n,
                          const fl_value *in, fl_value *out);
fl_status fli_graph_cast(fli_graph *g, fl_value v, fl_dtype d, fl_value *out);
fl_dtype fli_graph_dtype(const fli_graph *g, fl_value v);
/* What several values promote to together; `weak` is the result's. */
fl_dtype fli_graph_promote(const fli_graph *g, int n, const fl_value *v,
                           int *weak);
/* Extends the graph by the gradients of `out` (with `dy`) towards the inputs
 * `wanted`; nothing where there is no influence. */
fl_status fli_graph_gradient(fli_graph *g, int n_out, const fl_value *out,
                             const fl_value *dy, int n_wanted,
                             const int *wanted, fl_value *dx);

/* The same through node i, a second derivative that no row differentiates;
 * `wanted` are its inputs (order.c). */
fl_status fli_graph_third(fli_graph *g, int i, fl_value dy, int n,
                          const int *wanted, fl_value *dx);

static inline fl_value fli_node_value(int i) {
  return (fl_value){.dtype = FLI_NODE, .i = i};
}

/* --- programs and operators --- */

/* Where an input of a derived operator comes from: 0 ... the inputs, then the
 * results, then the gradients of the results. */
typedef struct fli_derived {
  uint32_t need, dy; /* inputs wanted, results that have a gradient */
  const fl_op *op;   /* NULL: there is none, `status` and `message` say why */
  fl_status status;
  char *message;
  uint8_t from[FL_PROGRAM_IN], gives[FL_MAX_OUT]; /* results: of which input */
  struct fli_derived *next;
} fli_derived;

typedef struct fli_expr_op {
  fl_op *op;
  uint64_t hash;
  fli_graph graph;
  int n_out;
  fl_value out[FL_MAX_OUT];
  fl_dtype out_dtype[FL_MAX_OUT];
  fl_program *program;
  bool separate;
  const fl_op *plain; /* of a reduction: without it */
  /* a gradient given as text: its inputs are ours, our results and their
   * gradients; backward_for says of which inputs its values are gradients */
  fli_graph backward;
  uint32_t backward_for;
  fl_value backward_out[FLI_EXPR_IN];
  uint32_t uses; /* inputs and results that the whole gradient needs */
  bool uses_known;
  fli_derived *derived;
  struct fli_expr_op *next, *next_in_slot;
} fli_expr_op;

typedef struct fli_op_request {
  const char *name;
  fli_graph *graph; /* left empty: taken over */
  int n_out;
  const fl_value *out;
  const fl_dtype *out_dtype;
  fl_reduction reduce;
  bool separate;       /* products are rounded before they are added */
  fli_graph *backward; /* NULL, or the same; taken over, too */
  uint32_t backward_for;
  const fl_value *backward_out;
} fli_op_request;

/* The operator of a graph: the same one for equal graphs. */
fl_status fli_expr_intern(fl_runtime *rt, const fli_op_request *q,
                          const fl_op **op);
/* The attributes of an elementwise row as p0 and p1 of its formula. */
void fli_attributes(const fl_op *op, const fl_attr *a, double p[2]);
/* The elementwise row of g as an expression of tensors, and the gradients of an
 * expression in the place of the row's own rule. */
fl_status fli_expr_of_row(const fli_grad *g, const fl_op **op);
void fli_expr_flow_back(fli_grad *g, const fl_op *op);
/* The gradient of the row of g by that of its expression (order.c). */
void fli_expr_row_grad(fli_grad *g);
/* Graph to straight-line code; one block, freed with fli_mfree. */
fl_status fli_expr_lower(const fli_graph *g, int n_out, const fl_value *out,
                         const fl_dtype *out_dtype, fl_reduction reduce,
                         bool separate, const char *name, fl_program **program);

/* --- text (parse.c) --- */

typedef struct fli_source {
  fl_runtime *rt;
  const char *name, *inputs, *outputs, *body;
  fl_reduction reduce;
  const char *where; /* "" or " (train.lua:12)": of the definition */
} fli_source;

typedef struct fli_decl {
  char type[8]; /* a dtype's name, or a letter */
  char name[32];
  fl_dtype dtype; /* FL_NODTYPE: a letter */
} fli_decl;

/* "T x, f32 a" */
fl_status fli_read_decls(const fli_source *s, const char *text,
                         const char *what, int room, fli_decl *d, int *n);
/* Builds the graph for inputs of these dtypes (NULL: only checks the text). */
fl_status fli_expr_parse(const fli_source *s, int n_in, const fli_decl *in,
                         int n_out, const fli_decl *out, const fl_dtype *dtypes,
                         const int *weak, fli_graph *g, fl_value *values,
                         fl_dtype *out_dtypes);

/* A row's formula as ops.def has it, in x and y of dtype `t` and p0, p1. */
fl_status fli_expr_formula(fli_graph *g, const char *name, const char *text,
                           fl_dtype t, fl_value x, fl_value y, const double *p,
                           fl_value *out);

/* The body of a row (FL_BODY of ops.def): assignments to the row's results, in
 * the dtype t, from the values given by name. */
typedef struct fli_named_value {
  const char *name;
  fl_value value;
} fli_named_value;
fl_status fli_expr_body(fli_graph *g, const char *name, const char *text,
                        fl_dtype t, int n, const fli_named_value *given,
                        int n_out, const char (*out_name)[20], fl_value *out);

/* --- recording (trace.c) --- */

/* Takes a call while a function is being recorded. */
/* How much of a say a tensor has in promotion. */
int fli_trace_weak(const fl_runtime *rt, const fl_tensor *t);
/* Remembers the operator for inputs of these dtypes. */
fl_status fli_expr_remember(fl_expr *e, int n, const fl_operand *in,
                            const fl_op *op);
void fli_exprs_close(fl_runtime *rt);
fl_runtime *fli_expr_runtime(const fl_expr *e);

#endif
