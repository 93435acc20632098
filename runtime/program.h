/* What a fused expression is to a backend: straight-line code over the formulas
 * of elementwise rows. Its kernel is called "expr"; the launch has the program.
 *
 * Values are numbered: the inputs, the constants, then the result of each
 * instruction. Each has one of four types: F32 (also for f16 and bf16), F64,
 * I64 (for all integers) and BOOL. An input is converted to its type when it is
 * read, a result to its tensor's dtype when it is written. Inputs broadcast
 * against each other. */
#ifndef FL_PROGRAM_H
#define FL_PROGRAM_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_PROGRAM_IN     14  /* inputs at most */
#define FL_PROGRAM_VALUES 512 /* values at most */

/* The elementwise rows in the order of ops.def: FL_ROW_tanh, and those made of
 * it, FL_ROW_tanh_backward (in: dy, saved) and FL_ROW_tanh_backward2 (in: ddx,
 * dy, saved). */
enum {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  FL_ROW_##name, FL_ROW_##name##_backward, FL_ROW_##name##_backward2,
#define FL_TEST(name, T, sig, f)                 FL_ROW_##name,
#define FL_BINARY(name, T, sig, cast, saves, f)  FL_ROW_##name,
#define FL_COMPARE(name, sig, f)                 FL_ROW_##name,
#define FL_TERNARY(name, T, sig, cast, saves, f) FL_ROW_##name,
#include "ops.def"
  /* no rows: */
  FL_ROW_round_f16, /* to the next f16 or bf16; its type is F32 */
  FL_ROW_round_bf16,
  FL_ROW_convert, /* its input as `result`; to BOOL: != 0 */
  FL_ROW_mul_add, /* a * b + c, for floats */
  FL_ROW_mul_sub, /* a * b - c */
  FL_ROW_sub_mul, /* c - a * b */
  FL_ROWS
};

typedef struct fl_instr {
  uint16_t row;
  uint8_t type; /* of its inputs, the formula's T; a `where` has a BOOL first */
  uint8_t result; /* the same, or BOOL */
  uint8_t n_in;
  uint8_t buffer; /* one of program.buffers, free again after its last use */
  uint16_t in[3]; /* values */
  double p[2];    /* the row's attributes p0, p1 */
} fl_instr;

typedef struct fl_constant {
  fl_dtype type;
  FL_UNNAMED union {
    double f;
    int64_t i; /* I64, BOOL */
  };
} fl_constant;

typedef enum fl_reduction {
  FL_REDUCE_NONE,
  FL_REDUCE_SUM,
  FL_REDUCE_PROD,
  FL_REDUCE_MAX, /* NaN if any is */
  FL_REDUCE_MIN,
  /* of tiles alone (tile.h), of floats: */
  FL_REDUCE_MEAN,
  FL_REDUCE_DEVIATION, /* the sum of squared differences from the mean */
  FL_REDUCTIONS
} fl_reduction;

/* With a reduction there is one result, and the launch has the attributes of
 * the rows `sum`, ...: v[0] the dims, a list, none for all; v[1] keepdim. Sums
 * and products of integers are I64. Programs live as long as their runtime. */
struct fl_program {
  uint64_t hash; /* of the source text and all types */
  int n_in, n_const, n_instr, n_out;
  int buffers;
  fl_reduction reduce;
  bool separate;          /* products are rounded before they are added */
  const uint8_t *in_type; /* of each input's value */
  const fl_constant *constants;
  const fl_instr *instrs;
  const uint16_t *out; /* values */
};

static inline fl_dtype fl_program_type(const fl_program *p, int value) {
  if (value < p->n_in)
    return (fl_dtype)p->in_type[value];
  value -= p->n_in;
  return value < p->n_const ? p->constants[value].type
                            : (fl_dtype)p->instrs[value - p->n_const].result;
}

/* The constants and instructions as C or CUDA: statements that declare v<n> for
 * every value from n_in on, of float, double, long long or bool, given v0 ...
 * of the inputs, with the rows' formulas as they are in ops.def (so fl_exp and
 * its like must be there for each type). Where products are separate,
 * fl_separate(v) keeps v from being contracted with what follows. Returns the
 * length, as snprintf does.
 */
FL_API size_t fl_program_source(const fl_program *p, char *text, size_t room);

/* The kernel "epilogue" runs the kernel of a row, `row`, and then `program`
 * over its first result, elementwise, or `tile` (tile.h), which has reductions
 * or column sums of it. The launch has the operands of both: first row_in
 * inputs and row_out results of the row, then the inputs and results of the
 * program or tile, of which input row_result is the result of the row. A
 * program has its elements in the order of its loops; the view of that input
 * says how, and has no memory. Neither has out[0] if nothing else reads it.
 * Attributes are the row's. */
typedef struct fl_epilogue { /* the two launches */
  fl_launch row, program;
  fl_view out[FL_MAX_OUT], in[FL_PROGRAM_IN];
} fl_epilogue;

/* `result`: memory for out[0]. */
static inline void fl_epilogue_split(const fl_launch *l, void *result,
                                     fl_epilogue *e) {
  for (int k = 0; k < l->row_out; k++)
    fl_view_copy(&e->out[k], &l->out[k]);
  for (int k = 0; k < l->n_in - l->row_in; k++)
    fl_view_copy(&e->in[k], &l->in[l->row_in + k]);
  e->out[0].data = e->in[l->row_result].data = result;
  e->row = e->program = *l;
  e->row.program = NULL;
  e->row.tile = NULL;
  e->row.n_in = l->row_in;
  e->row.n_out = l->row_out;
  e->row.out = e->out;
  e->program.n_in = l->n_in - l->row_in;
  e->program.in = e->in;
  e->program.n_out = l->n_out - l->row_out;
  e->program.out = l->out + l->row_out;
}

#ifdef __cplusplus
}
#endif
#endif
