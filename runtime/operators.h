/* Operators: finding, registering and calling them. A part of flare.h. */
#ifndef FL_OPERATORS_H
#define FL_OPERATORS_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- operators --- */

/* What a parameter of an operator is; see ops.def for the notation. */
typedef enum fl_param_kind {
  FL_P_TENSOR, /* an input; the rest are attributes */
  FL_P_DIM,    /* a dim, 0-based, negative from the end */
  FL_P_DIMS,   /* several */
  FL_P_POS,    /* a position along a dim */
  FL_P_INT,    /* a count or another integer */
  FL_P_INTS,   /* several */
  FL_P_SHAPE,  /* a shape */
  FL_P_REAL,
  FL_P_FLAG,
  FL_P_ENUM,
  FL_P_DTYPE,
  FL_P_RNG,   /* an input that the dispatcher takes from a generator */
  FL_P_NEWDIM /* a dim of the result, which has one more; negative from its end
               */
} fl_param_kind;

typedef enum fl_param_type { /* of a tensor */
                             FL_T_ANY,
                             FL_T_NUM, /* everything but bool */
                             FL_T_FLOAT,
                             FL_T_INT, /* integers and bool */
                             FL_T_BOOL,
                             FL_T_INDEX, /* i64 or i32 positions, counted from
                                            the base; -1 is the last */
                             FL_T_COMPLEX,
                             FL_T_ID /* the same, but negative is an error */
} fl_param_type;

#define FL_MAX_PARAMS 16

typedef struct fl_param {
  char name[20];
  fl_param_kind kind;
  fl_param_type type;
  bool optional, variadic;
  bool has_default;
  int slot;            /* input number, or attribute number */
  fl_attr value;       /* the default; lists are empty */
  const char *choices; /* "erf|tanh" for ENUM, in the signature's text */
  int choices_len;
  bool written;           /* an input that a call writes ... */
  const char *written_if; /* ... if this flag is on, in the signature's text */
  int whole; /* of a `number`: the attribute with it as an integer, else 0 */
} fl_param;

typedef struct fl_op_info {
  const char *name, *signature, *doc;
  const char *family; /* unary test binary compare ternary op view compose */
  int n_params;
  fl_param params[FL_MAX_PARAMS];
  int n_in, n_attr, n_out; /* n_in without the elements of a variadic one */
  int n_shown; /* results for users; the rest are kept for gradients */
  char out_name[FL_MAX_OUT][20];
  bool differentiable, inplace, view, random, collective, composed, backward;
} fl_op_info;

/* The operator of a name, a row of the op table or one that was registered;
 * valid as long as the runtime. NULL with a message: there is none. */
FL_API const fl_op *fl_op_find(fl_runtime *rt, const char *name);
/* How many rows the op table has, and row i of them; NULL: there is none. */
FL_API int fl_op_count(fl_runtime *rt);
FL_API const fl_op *fl_op_at(fl_runtime *rt, int i);
/* The number of the row of a name; -1, without a message: there is none. */
FL_API int fl_op_row(fl_runtime *rt, const char *name);
/* What an operator's signature says. Borrowed: as long as the operator. */
FL_API const fl_op_info *fl_op_get(const fl_op *op);
/* The defaults of its attributes, to copy and change. Borrowed as well. */
FL_API const fl_attrs *fl_op_defaults(const fl_op *op);
/* Whether the device's backend has a kernel for it. An operator without one may
 * still run there as an expression of others. */
FL_API bool fl_op_has_kernel(const fl_op *op, fl_device d);

/* --- operators from outside --- */

/* An operator of the program's own, or of a shared library: from then on like
 * any other, for this runtime. The same name with the same signature adds the
 * kernel of another backend; with another one it is refused. */
typedef struct fl_op_spec {
  size_t struct_size;           /* sizeof(fl_op_spec) */
  const char *name, *signature; /* "x:float, y:float, by:real=1 -> z:x" */
  uint64_t fingerprint; /* not 0: must be fl_op_fingerprint of the operator */
  const char *backend;  /* whose memory the kernel takes; NULL: "cpu" */
  fl_kernel kernel;     /* NULL: `symbol` of `library`, a path */
  const char *library, *symbol;
  /* NULL, or a function of the library: fl_status f(const char *name, uint64_t
   * fingerprint), called before; what it fails with is the outcome */
  const char *init;
  /* instead of these kernels of fl_raw_new, copied, and what sets their grid
   * (fl_native in backend.h); NULL: none */
  const fl_native_kernel *native;
  int n_native;
  fl_status (*configure)(void *context, const fl_launch *l, fl_raw_call *c);
  /* NULL, or called before; what it fails with is the outcome */
  fl_status (*start)(void *context, const char *name, uint64_t fingerprint);
  int like; /* the input, from 0, whose shape the results have */
  /* NULL, or what sets ndim and shape of the results; dtypes are set */
  fl_status (*shape)(void *context, int n_in, const fl_meta *const *in,
                     const fl_attrs *attrs, int n_out, fl_meta *out);
  void *context; /* of the three */
  /* NULL, or "y = x * by": runs where there is no kernel. Attributes are
   * constants in it */
  const char *expression;
  /* NULL: no gradient. A registered operator that takes the inputs, the results
   * and their gradients, has the same attributes, and gives a gradient for each
   * input. */
  const char *backward;
  /* NULL, or text instead of it: "gx = gy * by"; without either, an
   * expression's gradient is derived */
  const char *gradient;
} fl_op_spec;
/* Adds an operator, or the kernel of another backend to one. *op: as of
 * fl_op_find. EARG: the spec is incomplete, the name is taken, the signature is
 * wrong, or the fingerprint is another; EFILE: the library. */
FL_API fl_status fl_op_register(fl_runtime *rt, const fl_op_spec *spec,
                                const fl_op **op);
/* A hash of the name, the numbers of inputs, attributes and results, and all
 * types; never 0, but for NULL. */
FL_API uint64_t fl_op_fingerprint(const fl_op *op);

/* --- calls --- */

typedef struct fl_generator { /* counter-based random numbers (Philox 4x32) */
  uint64_t seed, offset;
} fl_generator;
/* The runtime's own generator, borrowed; the caller may set it. */
FL_API fl_generator *fl_runtime_generator(fl_runtime *rt);

/* An input of a call: a tensor, or a number with the dtype that it would have
 * as a tensor (F64, I64 or BOOL: it does not promote a tensor of its kind), or
 * nothing (tensor NULL, dtype FL_NODTYPE). */
struct fl_operand {
  fl_tensor *tensor;
  fl_dtype dtype;
  FL_UNNAMED union {
    double f;
    int64_t i;
  };
};

/* One operation: every call is such a record. Zeroed members mean the
 * default. With `inplace` the result is written into in[0]'s tensor and out[0]
 * is that tensor. `out` gets new references. */
typedef struct fl_call {
  const fl_op *op;
  int n_in;
  const fl_operand *in;
  const fl_attrs *attrs; /* NULL: the defaults */
  int base;
  bool inplace;
  fl_site site;
  fl_device device;        /* for operators without tensor inputs */
  fl_generator *generator; /* NULL: the runtime's */
  fl_tensor **out;         /* room for the operator's results */
} fl_call;

/* Runs one operation. c->out gets a new reference for each result of the
 * operator (n_out of them); after a failure there is nothing to release. A
 * failure of the device may come with a later call. EARG, ESHAPE, EDTYPE,
 * EDEVICE, EINDEX, EAUTOGRAD and others by the operator. */
FL_API fl_status fl_call_run(fl_runtime *rt, const fl_call *c);
/* Sets attribute k of `a` to a list of n numbers. ESIZE: there is no attribute
 * k, n is negative, or the list does not fit. */
FL_API fl_status fl_attrs_list(fl_attrs *a, int k, int n, const int64_t *v);
/* The last launches, newest first, at most `most`, a line each:
 * "#812 matmul train.lua:41 (2, 3) ...". */
FL_API const char *fl_launches_text(fl_runtime *rt, int most);

#ifdef __cplusplus
}
#endif
#endif
