/* Traces of pure functions: the launches of a whole call, and what they have to
 * do with the world outside it, so that a later call needs no Lua code. */
#ifndef FL_COMPILE_PURE_H
#define FL_COMPILE_PURE_H

#include "compile.h"

#define FLI_TRACES      16 /* of a function */
#define FLI_PURE_INPUTS 32

typedef struct fli_trace_input { /* a tensor among the arguments */
  fl_meta meta;
  int64_t stride[FL_MAX_DIMS];
  bool requires_grad;
} fli_trace_input;

typedef enum fli_trace_kind {
  FLI_TRACE_INNER, /* made in the call, and gone at its end */
  FLI_TRACE_FRESH, /* memory of results alone: new in each call */
  FLI_TRACE_KEPT,  /* something else holds it, too: overwritten */
  FLI_TRACE_INPUT, /* an argument's */
  FLI_TRACE_OUTER, /* that of a tensor that the function refers to */
  FLI_TRACE_VALUE  /* of none any more: what the host has written */
} fli_trace_kind;

typedef struct fli_trace_slot {
  fli_slot slot; /* without the storage */
  fli_trace_kind kind;
  int input;
  int64_t shift;     /* bytes from the argument's first element to the base */
  int64_t low, high; /* INPUT: bytes from the base that launches touch */
  fl_tensor *t;      /* KEPT, OUTER: one that lies there, a reference */
  fl_storage *s;     /* and where; not a reference */
  uint32_t writes, write_site; /* of memory that is older than the call */
  fl_device device;
} fli_trace_slot;

typedef enum fli_trace_draw {
  FLI_TRACE_NUMBER,
  FLI_TRACE_SEED,  /* the generator's */
  FLI_TRACE_OFFSET /* counted from the generator's */
} fli_trace_draw;

typedef struct fli_trace_number {
  uint32_t arg;
  fl_operand operand;
  fli_trace_draw draw;
} fli_trace_number;

typedef struct fli_trace_result {
  fl_tensor *t; /* the same each time, a reference; NULL: a new one */
  int input;    /* -1, or that argument */
  int slot;
  fl_meta meta;
  int64_t stride[FL_MAX_DIMS], offset;
} fli_trace_result;

typedef struct fli_trace_grad { /* references */
  fl_tensor *leaf, *grad;
} fli_trace_grad;

typedef struct fli_trace {
  int number;
  uint64_t turn; /* of its last call */
  uint64_t id;   /* of the recording */
  fl_device device;
  unsigned modes;
  uint32_t moves; /* of tensors, before it */
  bool grad_enabled;
  fl_dtype autocast;
  uint32_t n, n_inputs, n_slots, n_numbers, n_results, n_grads;
  uint64_t draws; /* the generator moves on by so much */
  fli_trace_input *inputs;
  fli_trace_slot *slots;
  fli_trace_number *numbers;
  fli_trace_result *results;
  fli_trace_grad *grads;
} fli_trace;

/* What a pure function knows; NULL for others. */
struct fli_pure {
  fl_runtime *rt;
  int n_traces, made_so_far;
  fli_trace *traces[FLI_TRACES];
  uint64_t turn;          /* counts calls of traces */
  fl_generator generator; /* when the call began */
  uint32_t windows;       /* of this call */
  uint64_t entered;       /* calls without the code */
  /* f has run in full: its tensors and the ranges of launches that run again */
  bool noted, repeats; /* repeats: a call like the one before */
  uint32_t n_inputs, n_results, n_lives;
  fl_tensor **inputs, **results; /* references */
  uint32_t *lives;
  /* of the call before this one */
  uint64_t last_id;
  fl_generator last_generator;
  uint32_t n_numbers, n_kept;
  int64_t *numbers;
  fl_tensor **kept; /* references */
  int made;         /* the trace that the last call has made, -1 */
  char why[256];    /* it could not, "": it has to be seen once more */
  fli_trace *feeding;
};

/* --- trace.c --- */

/* Of the window of a call like the one before; NULL: u->why says why not. */
fli_trace *fli_trace_make(struct fli_pure *u, fli_window *w, const fli_plan *p);
void fli_trace_free(fli_trace *t);
uint32_t fli_trace_count(const fli_window *w); /* numbers among operands */

/* --- pure.c --- */

fl_status fli_pure_new(fl_compiled *c);
void fli_pure_free(struct fli_pure *u);
void fli_pure_begin(struct fli_pure *u);
void fli_pure_end(struct fli_pure *u); /* u may be NULL */
/* Frees the traces that no call can have any more; c->pure may be NULL. */
void fli_pure_clean(fl_compiled *c);
/* The window of a call is about to run, like those of plan p. */
void fli_pure_see(struct fli_pure *u, fli_window *w, const fli_plan *p);

#endif
