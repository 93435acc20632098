/* Lowering of graphs to programs: unused nodes are dropped, dtypes become the
 * four register types, conversions become instructions, and results get buffers
 * by their last use. */
#include "../tile.h"
#include "expr.h"

#include <string.h>

static const int16_t row_of[FLI_OPS] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  [FLI_OP_##name] = FL_ROW_##name,                                             \
  [FLI_OP_##name##_backward] = FL_ROW_##name##_backward,                       \
  [FLI_OP_##name##_backward2] = FL_ROW_##name##_backward2,
#define FL_TEST(name, T, sig, f)                [FLI_OP_##name] = FL_ROW_##name,
#define FL_BINARY(name, T, sig, cast, saves, f) [FLI_OP_##name] = FL_ROW_##name,
#define FL_COMPARE(name, sig, f)                [FLI_OP_##name] = FL_ROW_##name,
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  [FLI_OP_##name] = FL_ROW_##name,
#include "../ops.def"
};

/* A value before it has its number: which kind, and which of them. */
typedef struct ref {
  enum { INPUT, CONSTANT, RESULT } kind;
  int i;
} ref;

typedef struct lowering {
  const fli_graph *g;
  int n_in, n_const, n_instr;
  uint8_t in_type[FL_TILE_LEAVES];
  fl_constant constants[FL_PROGRAM_VALUES];
  struct {
    fl_instr x;
    ref in[3];
  } instrs[FL_PROGRAM_VALUES];
  ref value[FL_PROGRAM_VALUES]; /* of nodes, in the type of their dtype */
  bool full;
} lowering;

static fl_dtype type_of(fl_dtype d) {
  switch (fl_dtype_kind(d)) {
  case FL_KIND_BOOL:
    return FL_BOOL;
  case FL_KIND_FLOAT:
    return d == FL_F64 ? FL_F64 : FL_F32;
  default:
    return FL_I64;
  }
}

static ref constant(lowering *w, fl_value v, fl_dtype type) {
  fl_constant c = {.type = type, .i = 0};
  double f = v.dtype == FL_F64 ? v.f : (double)v.i;
  int64_t i = v.dtype == FL_F64 ? fli_to_integer(v.f) : v.i;
  if (fl_dtype_kind(type) == FL_KIND_FLOAT)
    c.f = type == FL_F32 ? (double)(float)f : f;
  else
    c.i = type == FL_BOOL ? f != 0 : i;
  int k = 0;
  while (k < w->n_const &&
         (w->constants[k].type != type || w->constants[k].i != c.i))
    k++;
  if (k == w->n_const && k < FL_PROGRAM_VALUES)
    w->constants[w->n_const++] = c;
  w->full = w->full || k == FL_PROGRAM_VALUES;
  return (ref){CONSTANT, k};
}

static ref emit(lowering *w, int row, fl_dtype type, fl_dtype result, int n,
                const ref *in, const double *p) {
  if (w->n_instr == FL_PROGRAM_VALUES) {
    w->full = true;
    return (ref){RESULT, 0};
  }
  fl_instr *x = &w->instrs[w->n_instr].x;
  *x = (fl_instr){.row = (uint16_t)row,
                  .type = (uint8_t)type,
                  .result = (uint8_t)result,
                  .n_in = (uint8_t)n};
  memcpy(w->instrs[w->n_instr].in, in, (size_t)n * sizeof *in);
  if (p)
    memcpy(x->p, p, sizeof x->p);
  return (ref){RESULT, w->n_instr++};
}

static ref lower_convert(lowering *w, ref v, fl_dtype from, fl_dtype to) {
  if (from == to)
    return v;
  for (int k = 0; k < w->n_instr; k++) {
    const fl_instr *x = &w->instrs[k].x;
    const ref *in = &w->instrs[k].in[0];
    if (x->row == FL_ROW_convert && x->result == to && in->kind == v.kind &&
        in->i == v.i)
      return (ref){RESULT, k};
  }
  return emit(w, FL_ROW_convert, from, to, 1, &v, NULL);
}

static ref operand(lowering *w, fl_value v, fl_dtype type) {
  if (v.dtype != FLI_NODE)
    return constant(w, v, type);
  return lower_convert(w, w->value[v.i], type_of(w->g->nodes[v.i].dtype), type);
}

void fli_attributes(const fl_op *op, const fl_attr *a, double p[2]) {
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *q = &op->info.params[k];
    if (q->kind != FL_P_TENSOR && q->slot < 2)
      p[q->slot] = q->kind == FL_P_REAL ? a[q->slot].f : (double)a[q->slot].i;
  }
}

/* What bitwise rows are on booleans; other arithmetic on them is done on
 * integers. */
static const struct {
  int op, row;
} logical[] = {
#define FL_LOGICAL(name, logical) {FLI_OP_##name, FL_ROW_##logical},
#include "../ops.def"
};

static int logical_row(int op) {
  for (size_t k = 0; k < sizeof logical / sizeof *logical; k++)
    if (logical[k].op == op)
      return logical[k].row;
  return -1;
}

/* The row that rounds to a 16-bit type, whose values are F32 here: a conversion
 * to it drops digits that stay otherwise. -1: nothing to round. */
static int rounding_row(const lowering *w, const fli_expr_node *x) {
  if (fli_graph_dtype(w->g, x->in[0]) == x->dtype)
    return -1;
  return x->dtype == FL_F16    ? FL_ROW_round_f16
         : x->dtype == FL_BF16 ? FL_ROW_round_bf16
                               : -1;
}

static ref lower_node(lowering *w, const fli_expr_node *x) {
  const fl_op *op = &w->g->rt->ops[x->op];
  fl_dtype type = type_of(x->dtype), result = type;
  double p[2] = {0, 0};
  int row = row_of[x->op], weak;
  ref in[3];
  if (op->marks & FLI_MARK_IDENTITY) {
    ref v = operand(w, x->in[0], type);
    int rounds = rounding_row(w, x);
    return rounds < 0 ? v : emit(w, rounds, type, type, 1, &v, NULL);
  }
  if (op->family == FLI_TEST || op->family == FLI_COMPARE) {
    type = type_of(fli_graph_promote(w->g, x->n_in, x->in, &weak));
  } else if (type == FL_BOOL && op->in_type[0] != FL_T_BOOL) {
    if (logical_row(x->op) >= 0)
      row = logical_row(x->op);
    else
      type = result = FL_I64;
  }
  for (int k = 0; k < x->n_in; k++)
    in[k] = operand(w, x->in[k], op->in_type[k] == FL_T_BOOL ? FL_BOOL : type);
  fli_attributes(op, x->attr, p);
  ref v = emit(w, row, type, result, x->n_in, in, p);
  return lower_convert(w, v, result, type_of(x->dtype));
}

/* --- products that are added at once --- */

static bool is_product(const lowering *w, ref v, const int *uses) {
  return v.kind == RESULT && w->instrs[v.i].x.row == FL_ROW_mul &&
         uses[v.i] == 1;
}

/* a * b + c and the like, where the product has no other use, are one
 * instruction; `dead` marks the products. */
static void join_products(lowering *w, const int *uses, bool *dead) {
  for (int k = 0; k < w->n_instr; k++) {
    fl_instr *x = &w->instrs[k].x;
    ref *in = w->instrs[k].in;
    bool sub = x->row == FL_ROW_sub;
    if ((x->row != FL_ROW_add && !sub) || x->type == FL_I64)
      continue;
    int which = is_product(w, in[0], uses)   ? 0
                : is_product(w, in[1], uses) ? 1
                                             : -1;
    if (which < 0)
      continue;
    int product = in[which].i;
    ref c = in[1 - which];
    x->row = !sub         ? FL_ROW_mul_add
             : which == 0 ? FL_ROW_mul_sub
                          : FL_ROW_sub_mul;
    x->n_in = 3;
    in[0] = w->instrs[product].in[0];
    in[1] = w->instrs[product].in[1];
    in[2] = c;
    dead[product] = true;
  }
}

static void lower_join(lowering *w, int n_out, ref *out) {
  int uses[FL_PROGRAM_VALUES] = {0}, at[FL_PROGRAM_VALUES], n = 0;
  bool dead[FL_PROGRAM_VALUES] = {false};
  for (int k = 0; k < w->n_instr; k++)
    for (int j = 0; j < w->instrs[k].x.n_in; j++)
      if (w->instrs[k].in[j].kind == RESULT)
        uses[w->instrs[k].in[j].i]++;
  for (int k = 0; k < n_out; k++)
    if (out[k].kind == RESULT)
      uses[out[k].i] = 2; /* it must be there by itself */
  join_products(w, uses, dead);
  for (int k = 0; k < w->n_instr; k++) {
    if (dead[k])
      continue;
    at[k] = n;
    w->instrs[n] = w->instrs[k];
    for (int j = 0; j < w->instrs[n].x.n_in; j++)
      if (w->instrs[n].in[j].kind == RESULT)
        w->instrs[n].in[j].i = at[w->instrs[n].in[j].i];
    n++;
  }
  w->n_instr = n;
  for (int k = 0; k < n_out; k++)
    if (out[k].kind == RESULT)
      out[k].i = at[out[k].i];
}

/* --- the program --- */

static uint16_t lower_number(const lowering *w, ref v) {
  return (uint16_t)(v.kind == INPUT      ? v.i
                    : v.kind == CONSTANT ? w->n_in + v.i
                                         : w->n_in + w->n_const + v.i);
}

static size_t bytes_of(const fl_program *p, int value) {
  return fl_dtype_size(fl_program_type(p, value));
}

/* A result may take the buffer of an operand that ends there, if elements have
 * the same size: loops go element by element. */
static fl_status give_buffers(fl_program *p, fl_instr *instrs) {
  int first = p->n_in + p->n_const, last[FL_PROGRAM_VALUES];
  bool taken[256] = {false};
  for (int k = 0; k < p->n_instr; k++)
    last[k] = -1;
  for (int k = 0; k < p->n_instr; k++)
    for (int j = 0; j < instrs[k].n_in; j++)
      if (instrs[k].in[j] >= first)
        last[instrs[k].in[j] - first] = k;
  for (int k = 0; k < p->n_out; k++)
    if (p->out[k] >= first)
      last[p->out[k] - first] = p->n_instr;
  for (int k = 0; k < p->n_instr; k++) {
    fl_instr *x = &instrs[k];
    for (int turn = 0; turn < 2; turn++) {
      for (int j = 0; j < x->n_in; j++) {
        int of = x->in[j] - first;
        bool early = x->row != FL_ROW_convert &&
                     bytes_of(p, x->in[j]) == bytes_of(p, first + k);
        if (of >= 0 && last[of] == k && early == (turn == 0))
          taken[instrs[of].buffer] = false;
      }
      if (turn)
        continue;
      int b = 0;
      while (b < 255 && taken[b])
        b++;
      if (b == 255)
        return FL_ESIZE;
      x->buffer = (uint8_t)b;
      taken[b] = true;
      if (b >= p->buffers)
        p->buffers = b + 1;
    }
    if (last[k] < 0)
      taken[x->buffer] = false;
  }
  return FL_OK;
}

static uint64_t hash_text(const char *s, size_t n, uint64_t h) {
  for (size_t i = 0; i < n; i++)
    h = (h ^ (unsigned char)s[i]) * 0x100000001b3u; /* FNV-1a */
  return h;
}

static fl_status set_hash(fl_runtime *rt, fl_program *p,
                          const fl_dtype *out_dtype) {
  size_t n = fl_program_source(p, NULL, 0) + 1;
  char *text = fli_malloc(rt, n);
  uint64_t h = 0xcbf29ce484222325u + (uint64_t)p->reduce;
  if (!text)
    return FL_ENOMEM;
  fl_program_source(p, text, n);
  h = hash_text(text, n, h);
  fli_mfree(text);
  h = hash_text((const char *)p->in_type, (size_t)p->n_in, h);
  h = hash_text((const char *)p->out, (size_t)p->n_out * sizeof *p->out, h);
  p->hash = hash_text((const char *)out_dtype,
                      (size_t)p->n_out * sizeof *out_dtype, h);
  return FL_OK;
}

static fl_status lower_build(const lowering *w, int n_out, const ref *out,
                             fl_reduction reduce, bool separate,
                             const fl_dtype *out_dtype, fl_program **result) {
  size_t constants = (size_t)w->n_const * sizeof(fl_constant);
  size_t instrs = (size_t)w->n_instr * sizeof(fl_instr);
  size_t outs = (size_t)n_out * sizeof(uint16_t);
  char *at = fli_malloc(w->g->rt, sizeof(fl_program) + constants + instrs +
                                      outs + (size_t)w->n_in);
  if (!at)
    return FL_ENOMEM;
  fl_program *p = (fl_program *)(void *)at;
  fl_constant *c = (fl_constant *)(void *)(at += sizeof *p);
  fl_instr *x = (fl_instr *)(void *)(at += constants);
  uint16_t *o = (uint16_t *)(void *)(at += instrs);
  memcpy(c, w->constants, constants);
  for (int k = 0; k < w->n_instr; k++) {
    x[k] = w->instrs[k].x;
    for (int j = 0; j < x[k].n_in; j++)
      x[k].in[j] = lower_number(w, w->instrs[k].in[j]);
  }
  for (int k = 0; k < n_out; k++)
    o[k] = lower_number(w, out[k]);
  memcpy(at + outs, w->in_type, (size_t)w->n_in);
  *p = (fl_program){.n_in = w->n_in,
                    .n_const = w->n_const,
                    .n_instr = w->n_instr,
                    .n_out = n_out,
                    .reduce = reduce,
                    .separate = separate,
                    .in_type = (const uint8_t *)at + outs,
                    .constants = c,
                    .instrs = x,
                    .out = o};
  fl_status s = give_buffers(p, x);
  if (s == FL_OK)
    s = set_hash(w->g->rt, p, out_dtype);
  if (s)
    fli_mfree(p);
  else
    *result = p;
  return s;
}

static fl_status lower(lowering *w, int n_out, const fl_value *out,
                       const fl_dtype *out_dtype, fl_reduction reduce,
                       bool separate, fl_program **program) {
  bool used[FL_PROGRAM_VALUES] = {false};
  ref outs[FL_TILE_OUT];
  const fli_graph *g = w->g;
  for (int k = 0; k < n_out; k++)
    used[out[k].i] = true;
  for (int i = g->n - 1; i >= 0; i--)
    for (int k = 0; used[i] && k < g->nodes[i].n_in; k++)
      if (g->nodes[i].in[k].dtype == FLI_NODE)
        used[g->nodes[i].in[k].i] = true;
  for (int i = 0; i < g->n; i++) {
    const fli_expr_node *x = &g->nodes[i];
    if (x->op == FLI_INPUT) {
      w->in_type[w->n_in] = (uint8_t)type_of(x->dtype);
      w->value[i] = (ref){INPUT, w->n_in++};
    } else if (used[i]) {
      w->value[i] = lower_node(w, x);
    }
  }
  for (int k = 0; k < n_out; k++) {
    fl_dtype d = type_of(out_dtype[k]);
    if (reduce) /* in the type of what is reduced */
      d = type_of(fli_graph_dtype(g, out[k]));
    outs[k] = operand(w, out[k], reduce && d == FL_BOOL ? FL_I64 : d);
  }
  if (w->full || w->n_in + w->n_const + w->n_instr > FL_PROGRAM_VALUES)
    return FL_ESIZE;
  lower_join(w, n_out, outs);
  return lower_build(w, n_out, outs, reduce, separate, out_dtype, program);
}

fl_status fli_expr_lower(const fli_graph *g, int n_out, const fl_value *out,
                         const fl_dtype *out_dtype, fl_reduction reduce,
                         bool separate, const char *name,
                         fl_program **program) {
  lowering *w = fli_malloc(g->rt, sizeof *w);
  if (!w)
    return FL_ENOMEM;
  w->g = g;
  w->n_in = w->n_const = w->n_instr = 0;
  w->full = false;
  fl_status s = lower(w, n_out, out, out_dtype, reduce, separate, program);
  fli_mfree(w);
  return s == FL_ESIZE ? fli_fail(s, "%s: the expression is too long", name)
                       : s;
}
