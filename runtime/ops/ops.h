/* The op table as the rest of runtime/ reads it: the numbers of its rows, an
 * operator's record, what its rules are given. */
#ifndef FL_OPS_H
#define FL_OPS_H

#include "../tensor/tensor.h"
#include "op_slots.h"

/* Numbers of the built-in rows: FLI_OP_softmax, and those made from unary rows:
 * FLI_OP_gelu_backward (dy * f'), FLI_OP_gelu_backward2 (ddy * dy * f''). */
enum {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  FLI_OP_##name, FLI_OP_##name##_backward, FLI_OP_##name##_backward2,
#define FL_TEST(name, T, sig, f)                         FLI_OP_##name,
#define FL_BINARY(name, T, sig, cast, saves, f)          FLI_OP_##name,
#define FL_COMPARE(name, sig, f)                         FLI_OP_##name,
#define FL_TERNARY(name, T, sig, cast, saves, f)         FLI_OP_##name,
#define FL_OP(name, sig, cast, saves, shape, grad, cost) FLI_OP_##name,
#define FL_VIEW(name, sig, shows, grad)                  FLI_OP_##name,
#define FL_COMPOSE(name, sig)                            FLI_OP_##name,
#include "../ops.def"
  FLI_OPS
};

typedef enum fli_family {
  FLI_UNARY,
  FLI_UNARY_BACKWARD,  /* dy, saved -> dx */
  FLI_UNARY_BACKWARD2, /* ddx, dy, saved -> d saved */
  FLI_TEST,
  FLI_BINARY,
  FLI_COMPARE,
  FLI_TERNARY,
  FLI_STRUCTURED,
  FLI_VIEW,
  FLI_COMPOSE
} fli_family;

enum { /* saves */
       FLI_SAVE_CROSS = 1 << 15,
       FLI_SAVE_ALONE = 1 << 14, /* further results are constants */
       FLI_SAVE_IN = 14,         /* inputs that have a bit */
       FLI_SAVE_OUT = 16         /* bit of the first output */
};

enum { /* whether a call writes an input */
       FLI_WRITES_NOT,
       FLI_WRITES,
       FLI_WRITES_IF /* and above: if the flag with this attribute is on */
};

typedef enum fli_shows { /* what views have of their input: see ops.def */
                         FLI_SHOWS_ANY,
                         FLI_SHOWS_MEMORY,
                         FLI_SHOWS_TURNED,
                         FLI_SHOWS_PART,
                         FLI_SHOWS_SLAB
} fli_shows;

enum { /* marks of rows: FL_<MARK> in ops.def */
       FLI_MARK_INPLACE = 1,
       FLI_MARK_CONSTANT = 2,
       FLI_MARK_COLLECTIVE = 4,
       FLI_MARK_BACKWARD = 8,
       FLI_MARK_IDENTITY = 16,
       FLI_MARK_OVERWRITES = 32,
       FLI_MARK_TRANSFERS = 64,
       FLI_MARK_BOUNDS = 128,
       FLI_MARK_ORDER = 256,
       FLI_MARK_REDUCES = 512,
       FLI_MARK_POINTWISE = 1024
};

enum { /* the attribute `layout` of copy */
       FLI_LAYOUT_KEEP,
       FLI_LAYOUT_CONTIGUOUS,
       FLI_LAYOUT_CHANNELS_LAST
};

enum { /* what autocast does; it looks at those from LOW on */
       FLI_CAST_NONE,
       FLI_CAST_PROMOTE,
       FLI_CAST_LOW,
       FLI_CAST_WIDE,
       FLI_CAST_GIVES
};

typedef enum fli_out_rule {
  FLI_OUT_INPUT,   /* dtype of input `a` */
  FLI_OUT_PROMOTE, /* of a and b (b < 0: of all) */
  FLI_OUT_FLOAT,   /* the same, integers to f32 */
  FLI_OUT_ACC,
  FLI_OUT_WIDE,
  FLI_OUT_FIXED,   /* dtype a */
  FLI_OUT_ATTR,    /* attribute a, or if left out in[0]'s */
  FLI_OUT_COMPLEX, /* of views and composed rows, which see to it themselves */
  FLI_OUT_REAL
} fli_out_rule;

typedef struct fli_env fli_env;
typedef struct fli_infer fli_infer;
typedef struct fli_viewing fli_viewing;
typedef struct fli_composing fli_composing;

typedef fl_status (*fli_shape_fn)(fli_infer *c);
typedef void (*fli_grad_fn)(fli_grad *g);
typedef void (*fli_cost_fn)(const fli_infer *c, double *flops, double *bytes);
typedef fl_status (*fli_view_fn)(fli_viewing *v);
typedef void (*fli_compose_fn)(fli_composing *c);
/* Layout rules: change the strides of fresh results, which are contiguous, by
 * those of the inputs. */
typedef void (*fli_layout_fn)(const fl_attrs *attrs, int n_in,
                              const fl_operand *in, int n_out,
                              fl_tensor *const *out);

struct fl_op {
  fl_op_info info;
  int id; /* FLI_OP_..., or FLI_OPS and above for run-time ones */
  fli_family family;
  int cast;
  uint32_t saves;
  fli_shows shows; /* of a view */
  uint16_t marks;  /* FLI_MARK_... */
  uint8_t flat; /* inputs of a row that may take the fast path (flat.c), or 0 */
  unsigned modes; /* that always look at its calls: see modes.def */
  int variadic;   /* the parameter's number, -1 if there is none */
  bool dims;      /* has attributes that name dims */
  /* of the inputs by slot; a variadic one's come last */
  uint8_t in_type[FL_MAX_PARAMS], in_optional[FL_MAX_PARAMS];
  bool writes;                      /* some of its inputs */
  uint8_t in_writes[FL_MAX_PARAMS]; /* FLI_WRITES_... */
  struct {
    uint8_t rule; /* fli_out_rule */
    int8_t a, b;
  } out[FL_MAX_OUT];
  fl_attrs defaults;
  fli_shape_fn shape;
  fli_grad_fn grad; /* NULL: results never need gradients */
  fli_cost_fn cost;
  const char *cost_rule; /* its name */
  fli_view_fn view;
  fli_compose_fn compose;
  fli_layout_fn layout;    /* NULL: results are contiguous */
  const char *kernel_name; /* of a run-time operator; rows have their own */
  const fl_program *program;
  struct fli_expr_op *expr;  /* of an expression (expr.h) */
  struct fli_native *native; /* of a registered one (native.h) */
  const fl_native *plan;     /* of its kernel in the backend's language */
  fl_kernel kernel[FLI_MAX_BACKENDS];
  fl_op *next; /* run-time operators */
};

/* --- what rules see --- */

/* Shape rules: read in[], write out[k].ndim and .shape (dtypes are set already
 * by the signature; a rule may change them). `attrs` may be completed in place
 * (a left-out stride list filled in, say). An input left out is NULL. */
struct fli_infer {
  fl_runtime *rt;
  const fl_op *op;
  int n_in, n_out;
  const fl_meta *const *in;
  const fl_operand *operands; /* for the few that read scalar values */
  fl_meta *out;
  fl_attrs *attrs;
  int base;
  /* for the rule to change: */
  uint32_t saves; /* without what this call's gradient will not need */
  int64_t draws;  /* random numbers; < 0: as out[0] has elements */
};

/* View rules: read `x` (shape, strides, offset in elements), write `out`. */
struct fli_viewing {
  const fl_op *op;
  const fl_attrs *attrs;
  const fl_meta *x;
  const int64_t *x_stride;
  int64_t x_offset;
  int base;    /* of positions in messages; attrs count from 0 */
  fl_meta out; /* dtype is set */
  int64_t stride[FL_MAX_DIMS];
  int64_t offset;
};

/* --- op.c --- */

fl_status fli_ops_init(fl_runtime *rt); /* fills rt->ops from ops.def */
void fli_ops_close(fl_runtime *rt);
/* Looks up the kernels of backend k, which is new. */
void fli_ops_backend(fl_runtime *rt, int k);
/* Makes a run-time operator: a structured one, in no table, found by its
 * pointer; it lives as long as the runtime. The caller sets its rules. `kernel`
 * names its kernel on every backend. */
fl_status fli_op_new(fl_runtime *rt, const char *name, const char *signature,
                     const char *kernel, fl_op **op);
/* Whether a call that is not in place writes its input k: what the row's
 * signature says. */
bool fli_op_writes(const fl_op *op, const fl_attrs *a, int n_in, int k);
fl_status fli_no_tensor(const fl_op *op); /* it was called with numbers alone */

#endif
