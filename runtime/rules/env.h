/* The language of gradient rules and composed operators: values and functions
 * that run operators on them. A value is a tensor, a number or nothing; what a
 * rule makes belongs to its environment and is released with it, and after a
 * failure everything is "nothing", so rules are plain expressions without error
 * handling:
 *
 *   void fli_grad_div(fli_grad *g) {
 *     fl_value a = g->in[0], b = g->in[1], dy = g->dy[0];
 *     if (g->need[0]) g->dx[0] = DIV(dy, b);
 *     if (g->need[1]) g->dx[1] = NEG(DIV(MUL(dy, a), MUL(b, b)));
 *   }
 *
 * The macros expect the environment in a variable `g` that begins with a
 * fli_env. A gradient may have the broadcast shape and a wider dtype: the
 * engine sums and converts it to the input's. */
#ifndef FL_ENV_H
#define FL_ENV_H

#include "../ops/rules.h"

/* A tensor, a number, nothing, or, where an environment extends an expression
 * graph, node `i` of it: then dtype is FLI_NODE. */
typedef fl_operand fl_value;
#define FLI_NODE ((fl_dtype)(FL_NODTYPE + 31))

typedef struct fli_graph fli_graph;

struct fli_env {
  fl_runtime *rt;
  fli_graph *graph; /* NULL: rows run on tensors; else they become nodes */
  fl_status status;
  const fl_op *failed; /* the row that gave the status */
  int base;
  fl_site site;
  fl_device device;        /* of operators on numbers alone */
  fl_generator *generator; /* that rows draw from; NULL: the runtime's */
  int n_temps, room;
  fl_tensor **temps;
  fl_tensor *few[24];
};

/* A gradient rule's context. in[k]: a saved input (nothing if the row does not
 * save it), y[k]: a saved output, dy[k]: the gradient of output k (nothing: it
 * had no influence; fli_g_dy makes zeros of it). dx[k] is left nothing where
 * there is no gradient. `create`: the result must be differentiable itself, so
 * a rule that has a fused kernel takes the expression of ordinary rows instead.
 */
struct fli_grad {
  fli_env e;
  const fl_op *op;
  const fl_attrs *attrs;
  int n_in, n_out;
  const fl_meta *in_meta;  /* of all inputs */
  const fl_meta *out_meta; /* of all outputs */
  fl_value *in, *y, *dy, *dx;
  const bool *need;
  bool create;
};

/* A call of a composed row; its attributes are settled. */
fl_status fli_compose_call(fl_runtime *rt, const fl_call *c,
                           const fl_attrs *attrs, fl_device d);

/* A composed operator's context: in[] given, out[] to be set. */
struct fli_composing {
  fli_env e;
  const fl_op *op;
  const fl_attrs *attrs;
  int n_in;
  const fl_value *in;
  fl_value out[FL_MAX_OUT];
};

void fli_env_open(fli_env *e, fl_runtime *rt, int base, fl_site site);
void fli_env_close(fli_env *e); /* releases everything made in it */

static inline bool fli_nothing(fl_value v) {
  return !v.tensor && v.dtype == FL_NODTYPE;
}

static inline bool fli_is_number(fl_value v) {
  return !v.tensor && v.dtype < FL_NODTYPE;
}

static inline fl_value fli_none(void) {
  return (fl_value){.dtype = FL_NODTYPE};
}

/* A float, an integer, that do not promote. */
static inline fl_value fli_number(double f) {
  return (fl_value){.dtype = FL_F64, .f = f};
}

static inline fl_value fli_integer(int64_t i) {
  return (fl_value){.dtype = FL_I64, .i = i};
}

/* A tensor that the caller keeps a reference to; NULL: nothing. Field by field:
 * a copy of a structure that was just written would wait for the writes. */
static inline void fli_give(fl_value *v, fl_tensor *t) {
  v->tensor = t;
  v->dtype = t ? (fl_dtype)0 : FL_NODTYPE;
  v->i = 0;
}

static inline fl_value fli_given(fl_tensor *t) {
  fl_value v;
  fli_give(&v, t);
  return v;
}

/* A new tensor, released with the environment. */
fl_value fli_env_own(fli_env *e, fl_tensor *t);
/* Fails the environment with a message. */
fl_value fli_env_fail(fli_env *e, fl_status s, const char *format, ...)
    FL_PRINTF(3, 4);

/* Runs a row; attrs NULL: its defaults. fli_run gives the first result,
 * fli_run_all all of them into out[]. */
fl_value fli_run(fli_env *e, int op, const fl_attrs *attrs, int n,
                 const fl_value *in);
void fli_run_all(fli_env *e, int op, const fl_attrs *attrs, int n,
                 const fl_value *in, fl_value *out);
/* The same for an operator that is no row, on tensors. */
void fli_run_op(fli_env *e, const fl_op *op, const fl_attrs *attrs, int n,
                const fl_value *in, fl_value *out);
/* in[0] is written. */
fl_value fli_run_inplace(fli_env *e, int op, const fl_attrs *attrs, int n,
                         const fl_value *in);

/* The gradients of what a row is composed of, for dy (nothing: no influence),
 * towards the inputs that are needed; recorded where gradients are. */
void fli_composed_grad(fli_env *e, const fl_op *op, const fl_attrs *attrs,
                       int n, const fl_value *in, const bool *need,
                       const fl_value *dy, fl_value *dx);
/* The row of linear's activation `act`, not 0, and its attributes. */
int fli_linear_act(fli_env *e, int64_t act, fl_attrs *a);

const fl_meta *fli_meta(fl_value v);    /* of a tensor */
fl_attrs fli_attrs(fli_env *e, int op); /* a copy of the defaults, to change */
void fli_set_list(fli_env *e, fl_attrs *a, int k, int n, const int64_t *v);

/* RUN(add, a, b). Rows of four inputs or more get them by name, so that a
 * change to the signature moves them: RUN(foo_backward, IN(foo_backward, dy) =
 * dy, ...). Fewer values than the row has inputs do not compile. */
#define IN(row, input) [FL_IN_##row##_##input]
#define GIVEN(...)     (sizeof((fl_value[]){__VA_ARGS__}) / sizeof(fl_value))
#define GIVEN_TO(op, ...)                                                      \
  ((int)(GIVEN(__VA_ARGS__) +                                                  \
         0 * sizeof(char[GIVEN(__VA_ARGS__) >= FL_INS_##op ? 1 : -1])))

#define RUN(op, ...)                                                           \
  fli_run(&g->e, FLI_OP_##op, NULL, GIVEN_TO(op, __VA_ARGS__),                 \
          (fl_value[]){__VA_ARGS__})
#define RUN_A(op, attrs, ...)                                                  \
  fli_run(&g->e, FLI_OP_##op, attrs, GIVEN_TO(op, __VA_ARGS__),                \
          (fl_value[]){__VA_ARGS__})
#define RUN_ALL(op, attrs, out, ...)                                           \
  fli_run_all(&g->e, FLI_OP_##op, attrs, GIVEN_TO(op, __VA_ARGS__),            \
              (fl_value[]){__VA_ARGS__}, out)

/* The attributes of this call of row (or rule) `from` for row `to`: it compiles
 * if both have the same list of them. */
#define ATTRS_FOR(to, from)                                                    \
  (g->attrs + 0 * sizeof(char[FL_ATTRS_##to == FL_ATTRS_##from ? 1 : -1]))

#define ADD(a, b)    RUN(add, a, b)
#define SUB(a, b)    RUN(sub, a, b)
#define MUL(a, b)    RUN(mul, a, b)
#define DIV(a, b)    RUN(div, a, b)
#define NEG(a)       RUN(neg, a)
#define EXP(a)       RUN(exp, a)
#define LOG(a)       RUN(log, a)
#define SQRT(a)      RUN(sqrt, a)
#define MATMUL(a, b) RUN(matmul, a, b)
#define NUM(x)       fli_number(x)

#define SUM(x, n, dims, keep) fli_v_sum(&g->e, x, n, dims, keep)
#define SUM1(x, dim, keep)    fli_v_sum(&g->e, x, 1, (int64_t[]){dim}, keep)
#define RESHAPE(x, m)         fli_v_reshape(&g->e, x, (m)->ndim, (m)->shape)
#define EXPAND(x, m)          fli_v_expand(&g->e, x, (m)->ndim, (m)->shape)
#define TRANSPOSE(x, d0, d1)  fli_v_transpose(&g->e, x, d0, d1)
#define CAST(x, dt)           fli_v_cast(&g->e, x, dt)

/* Dims count from 0. */
fl_value fli_v_sum(fli_env *e, fl_value x, int n, const int64_t *dims,
                   bool keepdim); /* n = 0: over everything */
fl_value fli_v_reshape(fli_env *e, fl_value x, int ndim, const int64_t *shape);
fl_value fli_v_expand(fli_env *e, fl_value x, int ndim, const int64_t *shape);
fl_value fli_v_permute(fli_env *e, fl_value x, const int64_t *dims);
fl_value fli_v_transpose(fli_env *e, fl_value x, int d0, int d1);
fl_value fli_v_unsqueeze(fli_env *e, fl_value x, int dim);
/* elements start, start + step, ... (0-based), `length` of them */
fl_value fli_v_narrow(fli_env *e, fl_value x, int dim, int64_t start,
                      int64_t length, int64_t step);
fl_value fli_v_cast(fli_env *e, fl_value x, fl_dtype d);
fl_value fli_v_widened(fli_env *e, fl_value x); /* f16 and bf16 as f32 */
fl_value fli_v_zeros(fli_env *e, fl_dtype d, int ndim, const int64_t *shape,
                     fl_device device);
/* sums what was broadcast, so that x gets m's shape */
fl_value fli_v_sum_to(fli_env *e, fl_value x, const fl_meta *m);
fl_value fli_g_dy(fli_grad *g, int k); /* dy[k], zeros if nothing */
fl_value fli_g_none(fli_grad *g);      /* zeros, for an input like the result */

#endif
