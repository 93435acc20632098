/* Machine code for plans of the kernel "tile": runs of f32 instructions whose
 * values stay in registers. What has no code here is left to the loops of the
 * rows; those give the same bits for arithmetic, and functions within the same
 * bounds. */
#include "tile_maker.h"

#include "../../runtime/math/math.h"

#include <string.h>

#if FL_CODE_LANES

/* --- which instructions --- */

#define PLAIN(row, op)                                                         \
  case FL_ROW_##row:                                                           \
    return op
/* The instruction of a row that is one instruction of the processor. */
static int plain_code(int row) {
  switch (row) {
    PLAIN(add, FL_CODE_ADD);
    PLAIN(sub, FL_CODE_SUB);
    PLAIN(mul, FL_CODE_MUL);
    PLAIN(div, FL_CODE_DIV);
  default:
    return 0;
  }
}

/* Rows whose code may give other bits than their loops do. */
static bool row_is_function(int row) {
  switch (row) {
  case FL_ROW_exp:
  case FL_ROW_log:
  case FL_ROW_tanh:
  case FL_ROW_sigmoid:
    return FL_CODE_LANES == 16;
  case FL_ROW_tanh_backward:
  case FL_ROW_sigmoid_backward:
    return true;
  default:
    return false;
  }
}

static bool row_has_code(int row, bool exact) {
  switch (row) {
  case FL_ROW_neg:
  case FL_ROW_sqrt:
  case FL_ROW_abs:
  case FL_ROW_square:
  case FL_ROW_reciprocal:
  case FL_ROW_rsqrt:
  case FL_ROW_mul_add:
  case FL_ROW_mul_sub:
  case FL_ROW_sub_mul:
    return true;
  default:
    return plain_code(row) != 0 || (!exact && row_is_function(row));
  }
}

bool FL_CPU(nest_codes)(const maker *m, int instr) {
  const fl_instr *x = &m->p->instrs[instr];
  return m->code && m->p->separate && x->type == FL_F32 &&
         x->result == FL_F32 && row_has_code(x->row, m->t->exact) &&
         vary_block(m, m->first + instr) == m->full;
}

/* --- the order of steps --- */

static bool has_code(const maker *m, const fl_nest_step *s) {
  return s->kind == FL_NEST_INSTR && FL_CPU(nest_codes)(m, s->what);
}

/* When a step runs: instructions with code in odd turns, as early as they can,
 * others in even ones. Stores are last, since they may write over leaves. */
static int16_t step_turn(const maker *m, const fl_nest_step *s,
                         const int16_t *made) {
  int in[3], n = FL_CPU(nest_reads)(m, s, in), odd = has_code(m, s), turn = odd;
  if (s->kind == FL_NEST_STORE)
    return INT16_MAX;
  for (int k = 0; k < n; k++)
    turn = made[in[k]] > turn ? made[in[k]] : turn;
  return (int16_t)(turn + (turn % 2 != odd));
}

static void order_list(maker *m, const fl_nest_list *list) {
  fl_nest_plan *n = m->n;
  int16_t made[2 * FL_PROGRAM_VALUES] = {0}, turn[FL_NEST_STEPS];
  for (int i = list->begin; i < list->end; i++) {
    int gives = FL_CPU(nest_gives)(m, &n->steps[i]);
    turn[i] = step_turn(m, &n->steps[i], made);
    if (gives >= 0)
      made[gives] = turn[i];
  }
  for (int i = list->begin + 1; i < list->end; i++) { /* by insertion: stable */
    fl_nest_step s = n->steps[i];
    int16_t t = turn[i];
    int k = i;
    for (; k > list->begin && turn[k - 1] > t; k--) {
      n->steps[k] = n->steps[k - 1];
      turn[k] = turn[k - 1];
    }
    n->steps[k] = s;
    turn[k] = t;
  }
}

static bool is_constant(const maker *m, int value) {
  return value >= m->p->n_in && value < m->first;
}

/* How many constants the code of a row has, at most. */
static int row_constants(int row) {
  switch (row) {
  case FL_ROW_exp:
  case FL_ROW_tanh:
  case FL_ROW_sigmoid:
    return 16;
  case FL_ROW_log:
    return 18;
  default:
    return 1;
  }
}

/* Runs of instructions with code that follow each other, of no more operands
 * and constants than a run can have. */
static void cut_runs(maker *m, const fl_nest_list *list) {
  fl_nest_plan *n = m->n;
  int16_t seen[2 * FL_PROGRAM_VALUES] = {0};
  for (int i = list->begin, k; i < list->end; i = k) {
    int operands = 1, constants = 0;
    for (k = i; k < list->end && has_code(m, &n->steps[k]); k++) {
      int in[3], count = FL_CPU(nest_reads)(m, &n->steps[k], in);
      operands++; /* its result */
      constants += row_constants(m->p->instrs[n->steps[k].what].row);
      for (int j = 0; j < count; j++) {
        bool fresh = seen[in[j]] != i + 1, whole = is_constant(m, in[j]);
        operands += fresh && !whole;
        constants += fresh && whole;
      }
      if (operands > FL_NEST_OPERANDS || constants > FL_NEST_CONSTANTS)
        break;
      for (int j = 0; j < count; j++)
        seen[in[j]] = (int16_t)(i + 1);
      seen[m->first + n->steps[k].what] = (int16_t)(i + 1);
    }
    n->steps[i].run = (int16_t)(k - i);
    k += k == i;
  }
}

void FL_CPU(nest_order)(maker *m) {
  for (int k = 0; k < m->n->phases && m->code; k++) {
    order_list(m, &m->n->block[k]);
    cut_runs(m, &m->n->block[k]);
  }
}

/* --- a run as nodes: what is loaded, and operations --- */

#define NODES 512
#define PARTS 2  /* vectors that are computed side by side */
#define WORTH 16 /* nodes from which that helps */

/* Loads: of vectors, of one element for all, of one for each row; what has an
 * opcode; `in[0]`, or `in[1]` where `in[2]` is negative. */
enum { NODE_LOAD, NODE_ONE, NODE_ROW, NODE_SELECT };

typedef struct node {
  int op, in[3], n_in; /* loads: in[0] is the operand, in[1] bytes from there */
  int out;             /* the operand that it is stored to, or -1 */
  bool late;           /* stored last: it is written over what the run reads */
  bool saved;          /* in its slot of the stack */
  int part;            /* of which vector, where several are computed */
  int uses[2];         /* how many, and how many are over */
  int reg, slot;       /* -1: none */
} node;

typedef struct coder {
  maker *m;
  fl_code *c;
  fl_nest_code *head;
  int n_nodes, n_fixed, n_slots, n_constants;
  bool masked;
  node node[NODES];
  int16_t of[2 * FL_PROGRAM_VALUES]; /* 1 + the node of a value */
  int16_t owner[FL_CODE_REGISTERS];  /* node in a register, -1: none */
} coder;

static int add_node(coder *x, int op, int n_in, int a, int b, int c) {
  x->node[x->n_nodes] =
      (node){.op = op, .in = {a, b, c}, .n_in = n_in, .out = -1};
  return x->n_nodes++;
}

static int binary(coder *x, int op, int a, int b) {
  return add_node(x, op, 2, a, b, 0);
}

static int unary(coder *x, int op, int a) {
  return add_node(x, op, 1, a, 0, 0);
}

static int add_operand(coder *x, fl_nest_operand o) {
  x->head->op[x->head->n] = o;
  return x->head->n++;
}

/* Constants lie side by side; the first operand is where. */
static int constant_node(coder *x, float value) {
  int k = 0;
  while (k < x->n_nodes && (x->node[k].op != NODE_ONE || x->node[k].in[0] ||
                            memcmp(&x->head->constant[x->node[k].in[1] / 4],
                                   &value, sizeof value) != 0))
    k++;
  if (k < x->n_nodes)
    return k;
  x->head->constant[x->n_constants] = value;
  return add_node(x, NODE_ONE, 0, 0, 4 * x->n_constants++, 0);
}

static int bits_node(coder *x, uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return constant_node(x, value);
}

/* Input j of a step. */
static int input_node(coder *x, const fl_nest_step *s, int j) {
  int id = s->in[j], kind = s->read[j] == FL_READ_ONE    ? NODE_ONE
                            : s->read[j] == FL_READ_ROWS ? NODE_ROW
                                                         : NODE_LOAD;
  fl_nest_operand o = {.value = (int16_t)id,
                       .step = -1,
                       .row = kind == NODE_ONE ? 0 : s->row[j]};
  float value;
  if (is_constant(x->m, id)) {
    memcpy(&value, &x->m->n->cell[id - x->m->p->n_in], sizeof value);
    return constant_node(x, value);
  }
  if (!x->of[id])
    x->of[id] = (int16_t)(1 + add_node(x, kind, 0, add_operand(x, o), 0, 0));
  return x->of[id] - 1;
}

/* a b + c, and c - a b, rounded once */
static int fma_node(coder *x, int a, int b, int c) {
  return add_node(x, FL_CODE_FMA, 3, a, b, c);
}
static int fnma_node(coder *x, int a, int b, int c) {
  return add_node(x, FL_CODE_FNMA, 3, a, b, c);
}

/* A polynomial in v, its highest coefficient first. */
static int horner(coder *x, int v, int n, const float *coef) {
  int y = constant_node(x, coef[0]);
  for (int k = 1; k < n; k++)
    y = fma_node(x, y, v, constant_node(x, coef[k]));
  return y;
}

/* exp(v) = (1 + q) 2^t, as in math_float.h, for -130 < v < 130. */
static int exp_parts(coder *x, int v, int *t) {
  static const float p[] = {FL_EXP_P4, FL_EXP_P3, FL_EXP_P2, FL_EXP_P1,
                            FL_EXP_P0};
  int bias = constant_node(x, 0x1.8p23f);
  int sum = fma_node(x, v, constant_node(x, FL_EXP_LOG2E), bias);
  *t = binary(x, FL_CODE_SUB, sum, bias);
  int high = fnma_node(x, *t, constant_node(x, FL_EXP_LN2_HI), v);
  int low = binary(x, FL_CODE_MUL, *t, constant_node(x, -FL_EXP_LN2_LO));
  int r = binary(x, FL_CODE_ADD, high, low);
  int square = binary(x, FL_CODE_MUL, r, r);
  return binary(x, FL_CODE_ADD, high,
                fma_node(x, square, horner(x, r, 5, p), low));
}

static int exp_node(coder *x, int v) {
  int t, q = exp_parts(x, v, &t);
  return binary(x, FL_CODE_SCALE,
                binary(x, FL_CODE_ADD, q, constant_node(x, 1)), t);
}

/* v, but no further from 0 than `most` */
static int bounded(coder *x, int v, float most) {
  v = binary(x, FL_CODE_MAX, constant_node(x, -most), v);
  return binary(x, FL_CODE_MIN, constant_node(x, most), v);
}

/* 1 / (1 + e) for e = exp(-v) = (1 + q) 2^t, both halves of the quotient times
 * 2^-t where t > 0. */
static int sigmoid_node(coder *x, int v) {
  int sign = bits_node(x, 0x80000000), zero = constant_node(x, 0);
  int one = constant_node(x, 1), t;
  int q = exp_parts(x, bounded(x, binary(x, FL_CODE_XOR, v, sign), 110), &t);
  int r = binary(x, FL_CODE_SCALE, one, binary(x, FL_CODE_MIN, t, zero));
  t = binary(x, FL_CODE_XOR, t, sign);
  int over = binary(x, FL_CODE_SCALE, one, binary(x, FL_CODE_MIN, t, zero));
  int e = fma_node(x, r, q, binary(x, FL_CODE_MUL, r, over));
  return binary(x, FL_CODE_DIV, over, binary(x, FL_CODE_ADD, e, one));
}

/* (1 - e) / (1 + e) for e = exp(-2 |v|) = s (1 + q) */
static int tanh_node(coder *x, int v) {
  int one = constant_node(x, 1), t, sign = bits_node(x, 0x80000000);
  int a = binary(x, FL_CODE_AND, v, bits_node(x, 0x7fffffff));
  a = binary(x, FL_CODE_MIN, constant_node(x, 10), a);
  int q = exp_parts(x, binary(x, FL_CODE_MUL, a, constant_node(x, -2)), &t);
  int s = binary(x, FL_CODE_SCALE, one, t);
  int y =
      binary(x, FL_CODE_DIV, fnma_node(x, s, q, binary(x, FL_CODE_SUB, one, s)),
             fma_node(x, s, q, binary(x, FL_CODE_ADD, one, s)));
  return binary(x, FL_CODE_OR, y, binary(x, FL_CODE_AND, v, sign));
}

/* v = m 2^k with m between the roots of 1/2 and 2; the polynomial is that of
 * fl_log_reduce. */
static int log_node(coder *x, int v) {
  static const float p[] = {-0.0760925636f, 0.129014209f, -0.132463455f,
                            0.141822726f,   -0.16608718f, 0.200019613f,
                            -0.250016004f,  0.333333254f, -0.499999881f};
  int one = constant_node(x, 1), zero = constant_node(x, 0);
  int m = unary(x, FL_CODE_FRACTION, v), k = unary(x, FL_CODE_EXPONENT, v);
  int far = binary(x, FL_CODE_SUB, constant_node(x, 1.41421354f), m);
  m = binary(x, FL_CODE_MUL, m,
             add_node(x, NODE_SELECT, 3, one, constant_node(x, 0.5f), far));
  k = binary(x, FL_CODE_ADD, k, add_node(x, NODE_SELECT, 3, zero, one, far));
  int f = binary(x, FL_CODE_SUB, m, one);
  int r =
      binary(x, FL_CODE_MUL, binary(x, FL_CODE_MUL, f, f), horner(x, f, 9, p));
  r = fma_node(x, k, constant_node(x, 1.42860682e-6f), r);
  return fma_node(x, k, constant_node(x, 0.693145752f),
                  binary(x, FL_CODE_ADD, f, r));
}

/* Rows that are a formula of few nodes. */
static int formula_node(coder *x, int row, const int *in) {
  int one = constant_node(x, 1);
  switch (row) {
  case FL_ROW_exp:
    return exp_node(x, bounded(x, in[0], 120));
  case FL_ROW_log:
    return log_node(x, in[0]);
  case FL_ROW_tanh:
    return tanh_node(x, in[0]);
  case FL_ROW_sigmoid:
    return sigmoid_node(x, in[0]);
  case FL_ROW_tanh_backward:
    return binary(x, FL_CODE_MUL, in[0], fnma_node(x, in[1], in[1], one));
  case FL_ROW_sigmoid_backward:
    return binary(
        x, FL_CODE_MUL, in[0],
        binary(x, FL_CODE_MUL, in[1], binary(x, FL_CODE_SUB, one, in[1])));
  case FL_ROW_rsqrt:
    return binary(x, FL_CODE_DIV, one, unary(x, FL_CODE_SQRT, in[0]));
  default:
    return binary(x, FL_CODE_DIV, one, in[0]); /* reciprocal */
  }
}

static int instr_node(coder *x, const fl_nest_step *s) {
  const fl_instr *i = &x->m->p->instrs[s->what];
  int in[3] = {0};
  for (int j = 0; j < i->n_in; j++)
    in[j] = input_node(x, s, j);
  switch (i->row) {
  case FL_ROW_neg:
    return binary(x, FL_CODE_XOR, in[0], bits_node(x, 0x80000000));
  case FL_ROW_abs:
    return binary(x, FL_CODE_AND, in[0], bits_node(x, 0x7fffffff));
  case FL_ROW_square:
    return binary(x, FL_CODE_MUL, in[0], in[0]);
  case FL_ROW_sqrt:
    return unary(x, FL_CODE_SQRT, in[0]);
  case FL_ROW_mul_add:
    return binary(x, FL_CODE_ADD, binary(x, FL_CODE_MUL, in[0], in[1]), in[2]);
  case FL_ROW_mul_sub:
    return binary(x, FL_CODE_SUB, binary(x, FL_CODE_MUL, in[0], in[1]), in[2]);
  case FL_ROW_sub_mul:
    return binary(x, FL_CODE_SUB, in[2], binary(x, FL_CODE_MUL, in[0], in[1]));
  default:
    return plain_code(i->row) ? binary(x, plain_code(i->row), in[0], in[1])
                              : formula_node(x, i->row, in);
  }
}

/* Whether a step of the run reads a leaf that the result is written over. */
static bool is_late(const coder *x, const fl_nest_step *run, int store) {
  uint64_t over = store < 0 ? 0 : x->m->n->over[store];
  for (int i = 0; over && i < run->run; i++)
    for (int j = 0; j < x->m->p->instrs[run[i].what].n_in; j++)
      if (run[i].in[j] < x->m->p->n_in && over >> run[i].in[j] & 1)
        return true;
  return false;
}

static void list_nodes(coder *x, int at) {
  const fl_nest_step *run = &x->m->n->steps[at];
  for (int i = 0; i < run->run; i++) {
    const fl_nest_step *s = &run[i];
    int k = instr_node(x, s);
    fl_nest_operand o = {.value = -1,
                         .step = (int16_t)(at + i),
                         .row = s->pitch ? s->pitch : -(int64_t)s->size};
    x->of[x->m->first + s->what] = (int16_t)(k + 1);
    x->head->rows |= s->by_rows;
    if (s->inside)
      continue;
    x->node[k].out = add_operand(x, o);
    x->node[k].late = is_late(x, run, s->store);
  }
}

/* --- code --- */

static bool is_load(const node *k) {
  return k->op <= NODE_ROW;
}

/* A general register with where operand `op` is read or written. */
static int pointer(coder *x, int op) {
  if (op < FL_CODE_POINTERS)
    return 8 + op;
  FL_CPU(code_at)(x->c, 0x8B, FL_CODE_FREE, FL_CODE_PLACES, 8 * op);
  return FL_CODE_FREE;
}

static void load_node(coder *x, int k, int reg) {
  node *v = &x->node[k];
  if (is_load(v))
    FL_CPU(code_memory)
  (x->c, v->op == NODE_LOAD ? FL_CODE_LOAD : FL_CODE_SPREAD, reg, 0,
   pointer(x, v->in[0]), v->op == NODE_LOAD,
   v->op == NODE_LOAD ? v->part : v->in[1], v->op == NODE_LOAD && x->masked);
  else FL_CPU(code_memory)(x->c, FL_CODE_LOAD, reg, 0, FL_CODE_STACK, false,
                           v->slot * 4 * FL_CODE_LANES, false);
  v->reg = reg;
  x->owner[reg] = (int16_t)k;
}

static void store_node(coder *x, const node *v) {
  FL_CPU(code_memory)
  (x->c, FL_CODE_STORE, v->reg, 0, pointer(x, v->out), true, v->part,
   x->masked);
}

/* In how many operations from `at` on node k is read next. */
static int next_use(const coder *x, int k, int at) {
  for (int i = at; i < x->n_nodes; i++)
    for (int j = 0; j < x->node[i].n_in; j++)
      if (x->node[i].in[j] == k)
        return i;
  return x->n_nodes;
}

/* A free register; if there is none, that of what is read last. */
static int take_register(coder *x, int at, const node *keep) {
  int best = -1, far = -1;
  for (int r = x->n_fixed; r < FL_CODE_REGISTERS; r++) {
    int k = x->owner[r];
    if (k < 0)
      return r;
    int next = next_use(x, k, at);
    for (int j = 0; keep && j < keep->n_in; j++)
      next = keep->in[j] == k ? -1 : next;
    if (next > far) {
      far = next;
      best = r;
    }
  }
  node *v = &x->node[x->owner[best]];
  if (!is_load(v) && !v->saved) {
    v->saved = true;
    v->slot = v->slot < 0 ? x->n_slots++ : v->slot;
    FL_CPU(code_memory)
    (x->c, FL_CODE_STORE, best, 0, FL_CODE_STACK, false,
     v->slot * 4 * FL_CODE_LANES, false);
  }
  v->reg = -1;
  x->owner[best] = -1;
  return best;
}

static void drop_use(coder *x, int k) {
  node *v = &x->node[k];
  if (++v->uses[1] == v->uses[0] && v->reg >= x->n_fixed) {
    x->owner[v->reg] = -1;
    v->reg = -1;
  }
}

/* a b + c: the result takes the register of what is not read again. */
static void write_fma(coder *x, node *v, const int *reg) {
  int to = v->reg;
  if (to == reg[0] && to != reg[2]) {
    FL_CPU(code_vector)(x->c, v->op - FL_CODE_OVER, to, reg[1], reg[2]);
  } else if (to == reg[1] && to != reg[2]) {
    FL_CPU(code_vector)(x->c, v->op - FL_CODE_OVER, to, reg[0], reg[2]);
  } else {
    if (to != reg[2])
      FL_CPU(code_vector)(x->c, FL_CODE_COPY, to, 0, reg[2]);
    FL_CPU(code_vector)(x->c, v->op, to, reg[0], reg[1]);
  }
}

static void run_node(coder *x, int k) {
  node *v = &x->node[k];
  int reg[3];
  for (int j = 0; j < v->n_in; j++)
    if (x->node[v->in[j]].reg < 0)
      load_node(x, v->in[j], take_register(x, k, v));
  for (int j = 0; j < v->n_in; j++)
    reg[j] = x->node[v->in[j]].reg;
  for (int j = 0; j < v->n_in; j++)
    drop_use(x, v->in[j]);
  v->reg = -1;
  for (int j = v->n_in - 1; j >= 0 && v->reg < 0; j--)
    if (reg[j] >= x->n_fixed && x->owner[reg[j]] < 0)
      v->reg = reg[j];
  if (v->reg < 0)
    v->reg = take_register(x, k + 1, v);
  x->owner[v->reg] = (int16_t)k;
  if (v->op == NODE_SELECT)
    FL_CPU(code_select)(x->c, v->reg, reg[2], reg[0], reg[1]);
  else if (v->n_in == 3)
    write_fma(x, v, reg);
  else
    FL_CPU(code_vector)
  (x->c, v->op, v->reg, v->n_in == 1 ? 0 : reg[0], reg[v->n_in - 1]);
  if (v->out >= 0 && !v->late)
    store_node(x, v);
  if (v->uses[0] == 0) {
    x->owner[v->reg] = -1;
    v->reg = -1;
  }
}

/* One vector of all operands, at FL_CODE_INDEX. */
static void write_body(coder *x, bool masked) {
  x->masked = masked;
  for (int k = 0; k < x->n_nodes; k++) {
    node *v = &x->node[k];
    v->uses[1] = 0;
    v->saved = false;
    if (v->reg >= x->n_fixed)
      v->reg = -1;
  }
  for (int r = x->n_fixed; r < FL_CODE_REGISTERS; r++)
    x->owner[r] = -1;
  for (int k = 0; k < x->n_nodes; k++)
    if (!is_load(&x->node[k]))
      run_node(x, k);
  for (int k = 0; k < x->n_nodes; k++) {
    node *v = &x->node[k];
    if (v->out < 0 || !v->late)
      continue;
    if (v->reg < 0)
      load_node(x, k, take_register(x, x->n_nodes, NULL));
    store_node(x, v);
    drop_use(x, k);
  }
}

/* The same nodes for several vectors side by side, which do not wait for each
 * other; single elements are the same for all. False: they are too many. */
static bool widen(const coder *x, coder *to) {
  int16_t at[NODES][PARTS];
  if (PARTS * x->n_nodes > NODES || x->n_nodes < WORTH)
    return false;
  *to = (coder){.m = x->m, .c = x->c, .head = x->head};
  for (int k = 0; k < x->n_nodes; k++)
    for (int part = 0; part < PARTS; part++) {
      node v = x->node[k];
      bool same = part && (v.op == NODE_ONE || v.op == NODE_ROW);
      for (int j = 0; j < v.n_in; j++)
        v.in[j] = at[v.in[j]][part];
      v.part = part;
      at[k][part] = same ? at[k][0] : (int16_t)to->n_nodes;
      if (!same)
        to->node[to->n_nodes++] = v;
    }
  return true;
}

/* Single elements that get a register for all vectors. */
#define FIXED (FL_CODE_REGISTERS - (FL_CODE_REGISTERS > 16 ? 16 : 9))

static void fix_nodes(coder *x) {
  for (int k = 0; k < x->n_nodes; k++) {
    node *v = &x->node[k];
    for (int j = 0; j < v->n_in; j++)
      x->node[v->in[j]].uses[0]++;
    v->uses[0] += v->late;
    v->slot = v->reg = -1;
  }
  for (int k = 0; k < x->n_nodes && x->n_fixed < FIXED; k++)
    if (x->node[k].op == NODE_ONE || x->node[k].op == NODE_ROW)
      x->node[k].reg = x->n_fixed++;
}

static void load_fixed(coder *x, int op) {
  for (int k = 0; k < x->n_nodes; k++)
    if (x->node[k].op == op && x->node[k].reg >= 0)
      load_node(x, k, x->node[k].reg);
}

/* A jump with its condition, or 0xE9, whose end is not known yet. */
static size_t write_jump(fl_code *c, int condition) {
  if (condition != 0xE9)
    FL_CPU(code_byte)(c, 0x0F);
  FL_CPU(code_byte)(c, condition);
  FL_CPU(code_word)(c, 0);
  return c->n - 4;
}

static void write_back(fl_code *c, size_t to) {
  FL_CPU(code_byte)(c, 0xE9);
  FL_CPU(code_word)(c, (int32_t)((int64_t)to - (int64_t)c->n - 4));
}

static const uint8_t saved[] = {0x53, 0x55, 0x41, 0x54, 0x41,
                                0x55, 0x41, 0x56, 0x41, 0x57};
static const uint8_t restored[] = {0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41,
                                   0x5C, 0x5D, 0x5B, 0xC5, 0xF8, 0x77, 0xC3};

static void write_bytes(fl_code *c, const uint8_t *bytes, size_t n) {
  for (size_t k = 0; k < n; k++)
    FL_CPU(code_byte)(c, bytes[k]);
}

static void write_next_row(coder *x) {
  for (int k = 0; k < x->head->n; k++) {
    if (k < FL_CODE_POINTERS) {
      FL_CPU(code_at)(x->c, 0x03, 8 + k, FL_CODE_MOVES, 8 * k);
      continue;
    }
    FL_CPU(code_at)(x->c, 0x8B, FL_CODE_FREE, FL_CODE_MOVES, 8 * k);
    FL_CPU(code_at)(x->c, 0x01, FL_CODE_FREE, FL_CODE_PLACES, 8 * k);
  }
}

/* As many vectors as there are, `parts` at a time. */
static void write_loop(coder *x, int parts) {
  fl_code *c = x->c;
  size_t next = c->n;
  FL_CPU(code_at)
  (c, 0x8D, FL_CODE_SPARE, FL_CODE_INDEX, parts * FL_CODE_LANES);
  FL_CPU(code_whole)(c, 0x3B, FL_CODE_SPARE, FL_CODE_COUNT);
  size_t end = write_jump(c, 0x8F); /* greater */
  write_body(x, false);
  FL_CPU(code_whole)(c, 0x8B, FL_CODE_INDEX, FL_CODE_SPARE);
  write_back(c, next);
  FL_CPU(code_here)(c, end);
}

/* wide: of several vectors, or NULL. */
static void write_code(coder *x, coder *wide) {
  fl_code *c = x->c;
  static const uint8_t begin[] = {0xF3, 0x0F, 0x1E, 0xFA}, /* endbr64 */
      zero[] = {0x31, 0xC0},                               /* of the index */
      less[] = {0x48, 0xFF, 0xCF};
  write_bytes(c, begin, sizeof begin);
  write_bytes(c, saved, sizeof saved);
  FL_CPU(code_whole)(c, 0x81, 5, FL_CODE_STACK);
  size_t frame = c->n;
  FL_CPU(code_word)(c, 0);
  FL_CPU(code_whole)(c, 0x8B, FL_CODE_INDEX, 8);
  FL_CPU(code_mask)(c, FL_CODE_INDEX);
  for (int k = 0; k < x->head->n && k < FL_CODE_POINTERS; k++)
    FL_CPU(code_at)(c, 0x8B, 8 + k, FL_CODE_PLACES, 8 * k);
  load_fixed(x, NODE_ONE);
  size_t row = c->n;
  load_fixed(x, NODE_ROW);
  write_bytes(c, zero, sizeof zero);
  if (wide)
    write_loop(wide, PARTS);
  write_loop(x, 1);
  FL_CPU(code_whole)(c, 0x3B, FL_CODE_INDEX, FL_CODE_COUNT);
  size_t none = write_jump(c, 0x8D); /* not less */
  write_body(x, true);
  FL_CPU(code_here)(c, none);
  write_bytes(c, less, sizeof less);
  size_t done = write_jump(c, 0x84); /* zero */
  write_next_row(x);
  write_back(c, row);
  FL_CPU(code_here)(c, done);
  size_t end = c->n;
  FL_CPU(code_whole)(c, 0x81, 0, FL_CODE_STACK);
  if (wide && wide->n_slots > x->n_slots)
    x->n_slots = wide->n_slots;
  FL_CPU(code_word)(c, 4 * FL_CODE_LANES * x->n_slots);
  if (!c->full)
    memcpy(c->at + frame, c->at + end + 3, 4);
  write_bytes(c, restored, sizeof restored);
}

static void write_run(maker *m, int at) {
  fl_code *c = m->code;
  coder x = {.m = m, .c = c}, wide = {.m = m};
  const size_t room = sizeof *x.head + FL_NEST_OPERANDS * sizeof *x.head->op;
  _Alignas(8) char head[sizeof *x.head + FL_NEST_OPERANDS * sizeof *x.head->op];
  memset(head, 0, room);
  x.head = (fl_nest_code *)(void *)head;
  add_operand(&x, (fl_nest_operand){.value = -1, .step = -1});
  while (c->n % 64)
    FL_CPU(code_byte)(c, 0xCC);
  list_nodes(&x, at);
  bool several = widen(&x, &wide);
  fix_nodes(&x);
  fix_nodes(&wide);
  size_t begin = c->n,
         used = sizeof *x.head + (size_t)x.head->n * sizeof *x.head->op;
  used = (used + 63) / 64 * 64;
  x.head->entry = (int32_t)used;
  for (size_t k = 0; k < used; k++)
    FL_CPU(code_byte)(c, k < room ? head[k] & 255 : 0);
  write_code(&x, several ? &wide : NULL);
  m->n->steps[at].code = (int32_t)begin;
}

void FL_CPU(nest_code)(maker *m) {
  for (int i = 0; m->code && i < m->n->n_steps; i++)
    if (m->n->steps[i].run)
      write_run(m, i);
}

#else
bool FL_CPU(nest_codes)(const maker *m, int instr) {
  (void)m, (void)instr;
  return false;
}
void FL_CPU(nest_order)(maker *m) {
  (void)m;
}
void FL_CPU(nest_code)(maker *m) {
  (void)m;
}
#endif
